//! What a statement that creates, alters or drops something means for what is known of the catalog.
//!
//! A column's values are recorded where they come from a sequence, so what matters is which columns
//! are filled from which sequences, and by what names these go. Most DDL changes neither. This
//! reads tokens only and errs on the side of looking: a look by name costs the server a few index
//! scans.

use std::collections::BTreeSet;

use super::lexer::{Dialect, Lexer, TokenKind};
use super::words::Words;

/// What has to be looked at in the catalog once a transaction has committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemaChange {
    pub relations: Relations,
    /// A function or procedure may be new, or have another body.
    pub routines: bool,
    /// The next statement may draw a value that can only be recorded by what is looked up now.
    pub urgent: bool,
}

/// Which tables and sequences may be different.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Relations {
    #[default]
    None,
    /// Those of these names, in whatever schema, and with `descendants` those that inherit from
    /// them. Words that name no relation may be among the names.
    Named {
        names: BTreeSet<String>,
        descendants: bool,
    },
    All,
}

/// Words by which a column gets its values from a sequence.
const FILLING: [&str; 10] = [
    "serial",
    "serial2",
    "serial4",
    "serial8",
    "smallserial",
    "bigserial",
    "identity",
    "nextval",
    // From another table's columns.
    "like",
    "inherits",
];

impl SchemaChange {
    /// Of the statement with this fingerprint.
    pub fn of(fingerprint: &str) -> Self {
        // Its text is not in the fingerprint, and it may well be a migration.
        if starts_with(fingerprint, "do ") {
            return Self {
                routines: true,
                ..Self::default()
            };
        }
        // Nearly all statements end here.
        if !["create", "alter", "drop"]
            .iter()
            .any(|word| starts_with(fingerprint, word))
        {
            return Self::default();
        }
        let text = fingerprint.as_bytes();
        let tokens: Vec<_> = Lexer::new(text, Dialect::default())
            .filter(|token| !matches!(token.kind, TokenKind::Space | TokenKind::Comment))
            .collect();
        let words = Words::new(text, &tokens);
        match () {
            () if words.is(0, "create") => created(&words),
            () if words.is(0, "alter") => altered(&words),
            () if words.is(0, "drop") && words.is(1, "sequence") => named(&words, false, false),
            () => Self::default(),
        }
    }

    /// Everything that statements could change.
    pub fn everything() -> Self {
        Self {
            relations: Relations::All,
            routines: true,
            urgent: true,
        }
    }

    pub fn is_none(&self) -> bool {
        !self.routines && self.relations == Relations::None
    }

    /// Both this and the other.
    pub fn add(&mut self, other: Self) {
        self.routines |= other.routines;
        self.urgent |= other.urgent;
        self.relations = match (std::mem::take(&mut self.relations), other.relations) {
            (Relations::None, one) | (one, Relations::None) => one,
            (
                Relations::Named {
                    mut names,
                    descendants,
                },
                Relations::Named {
                    names: more,
                    descendants: of_more,
                },
            ) => {
                names.extend(more);
                Relations::Named {
                    names,
                    descendants: descendants || of_more,
                }
            }
            (Relations::All, _) | (_, Relations::All) => Relations::All,
        };
    }
}

fn starts_with(text: &str, word: &str) -> bool {
    text.get(..word.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(word))
}

fn created(words: &Words<'_>) -> SchemaChange {
    let mut at = 1;
    let mut temporary = false;
    while words.any(
        at,
        &[
            "or",
            "replace",
            "global",
            "local",
            "unlogged",
            "foreign",
            "temp",
            "temporary",
        ],
    ) {
        temporary |= words.any(at, &["temp", "temporary"]);
        at += 1;
    }
    let routines = words.any(at, &["function", "procedure"]);
    // It is dropped with its session, and a rewound database has none.
    if temporary || words.find_top("pg_temp").is_some() {
        return SchemaChange {
            routines,
            ..SchemaChange::default()
        };
    }
    match () {
        () if words.is(at, "sequence") => named(words, false, true),
        // CREATE TABLE … AS SELECT copies no defaults.
        () if words.is(at, "table") && words.find_top("as").is_some() => SchemaChange::default(),
        () if words.is(at, "table") && fills(words) => named(words, false, true),
        // Its elements may be tables and sequences.
        () if words.is(at, "schema") && (fills(words) || words.find("sequence").is_some()) => {
            named(words, false, true)
        }
        () if words.is(at, "extension") => SchemaChange::everything(),
        () => SchemaChange {
            routines,
            ..SchemaChange::default()
        },
    }
}

fn altered(words: &Words<'_>) -> SchemaChange {
    let at = match words.any(1, &["foreign", "materialized"]) {
        true => 2,
        false => 1,
    };
    let moves = || words.find_top("schema").is_some();
    let renames = || words.find_top("rename").is_some();
    match () {
        // ALTER TABLE may also be said of a sequence, and moves those that its columns own.
        () if words.any(at, &["table", "view"]) => {
            let defaults = ["default", "identity"]
                .iter()
                .any(|word| words.find(word).is_some());
            match fills(words) || moves() {
                true => named(words, true, true),
                false if defaults || renames() => named(words, true, false),
                false => SchemaChange::default(),
            }
        }
        () if words.is(at, "sequence") && (moves() || renames()) => named(words, false, true),
        () if words.is(at, "schema") && renames() => SchemaChange {
            relations: Relations::All,
            routines: false,
            urgent: true,
        },
        () if words.is(at, "extension") && words.find_top("update").is_some() => {
            SchemaChange::everything()
        }
        () => SchemaChange::default(),
    }
}

/// The relations that the statement names outside of parentheses.
fn named(words: &Words<'_>, descendants: bool, urgent: bool) -> SchemaChange {
    let is_name = |&index: &usize| {
        matches!(
            words.kind(index),
            Some(TokenKind::Word | TokenKind::QuotedName)
        )
    };
    let names: BTreeSet<String> = words
        .top_level()
        .skip(1)
        .filter(is_name)
        .map(|index| String::from_utf8_lossy(&words.name(index)).into_owned())
        .collect();
    // A name in an encoding that is not UTF-8, or spelled in escapes, cannot be looked for.
    let legible = |name: &String| !name.contains(char::REPLACEMENT_CHARACTER);
    let escaped = words
        .top_level()
        .filter(is_name)
        .any(|index| words.is_escaped(index));
    SchemaChange {
        relations: match names.iter().all(legible) && !escaped {
            true => Relations::Named { names, descendants },
            false => Relations::All,
        },
        routines: false,
        urgent,
    }
}

/// Whether a column that the statement defines may take its values from a sequence.
fn fills(words: &Words<'_>) -> bool {
    let fills = |at| match words.kind(at) {
        Some(TokenKind::Word) => {
            words.any(at, &FILLING)
                || (words.is(at, "partition") && words.is(at + 1, "of"))
                || (words.is(at, "default") && calls_with_arguments(words, at + 1))
        }
        Some(TokenKind::QuotedName) => {
            let name = words.name(at);
            words.is_escaped(at) || FILLING.iter().any(|word| name[..] == *word.as_bytes())
        }
        _ => false,
    };
    words.are_cut() || words.indices().any(fills)
}

/// Whether the expression of a default calls a function with arguments, of which a sequence may be
/// one. `now()`, constants and the like draw nothing.
fn calls_with_arguments(words: &Words<'_>, from: usize) -> bool {
    let end = [
        "not",
        "constraint",
        "check",
        "unique",
        "primary",
        "references",
        "generated",
        "collate",
        "default",
    ];
    let mut depth = 0usize;
    for at in from.. {
        match words.kind(at) {
            None => return false,
            Some(TokenKind::Comma | TokenKind::Close) if depth == 0 => return false,
            Some(TokenKind::Word) if depth == 0 && words.any(at, &end) => return false,
            Some(TokenKind::Open) => {
                let called = at > from
                    && matches!(
                        words.kind(at - 1),
                        Some(TokenKind::Word | TokenKind::QuotedName)
                    );
                if called && words.kind(at + 1) != Some(TokenKind::Close) {
                    return true;
                }
                depth += 1;
            }
            Some(TokenKind::Close) => depth -= 1,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let change = SchemaChange::of(text);
        let mut shown = match &change.relations {
            Relations::None => "nothing".to_owned(),
            Relations::Named { names, descendants } => {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                let heirs = if *descendants { " and heirs" } else { "" };
                format!("{}{heirs}", names.join(" "))
            }
            Relations::All => "all".to_owned(),
        };
        if change.routines {
            shown += ", routines";
        }
        if change.urgent {
            shown += ", now";
        }
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn what_creates_no_sequence_is_not_looked_at() {
        for text in [
            "SELECT nextval($1)",
            "CREATE TABLE t (a int, b text DEFAULT $1, c timestamptz DEFAULT now() NOT NULL)",
            "CREATE TABLE t (a int CHECK (a > $1), b numeric(10, 2) DEFAULT -$1::numeric)",
            "CREATE TABLE t (a int DEFAULT $1 NOT NULL CHECK (f(a, $2)), b uuid DEFAULT gen_random_uuid())",
            "CREATE TABLE t AS SELECT nextval($1) AS id",
            "CREATE TABLE t (a int) PARTITION BY RANGE (a)",
            "CREATE TEMP TABLE t (id serial)",
            "create local temporary table t (id bigserial primary key)",
            "CREATE TEMP SEQUENCE s",
            "CREATE TABLE pg_temp.t (id serial)",
            "CREATE INDEX serial ON t (identity)",
            "CREATE VIEW v AS SELECT nextval($1)",
            "CREATE MATERIALIZED VIEW v AS SELECT $1",
            "CREATE TRIGGER t BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()",
            "CREATE TYPE e AS ENUM ($1)",
            "CREATE SCHEMA s",
            "CREATE ROLE serial",
            "ALTER TABLE t ADD COLUMN b int NOT NULL",
            "ALTER TABLE t ADD COLUMN b text GENERATED ALWAYS AS (lower(a)) STORED",
            "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
            "ALTER SEQUENCE s RESTART WITH $1",
            "ALTER SCHEMA s OWNER TO r",
            "DROP TABLE t",
        ] {
            check(text, "nothing");
        }
    }

    #[test]
    fn new_sequences_are_waited_for() {
        check("CREATE SEQUENCE a.s", "a s sequence, now");
        check("CREATE TABLE \"T\" (id serial)", "T table, now");
        check(
            "CREATE UNLOGGED TABLE t (id \"bigserial\")",
            "t table unlogged, now",
        );
        check(
            "CREATE TABLE IF NOT EXISTS t (id int GENERATED BY DEFAULT AS IDENTITY)",
            "exists if not t table, now",
        );
        check(
            "CREATE TABLE t (id int DEFAULT nextval($1))",
            "t table, now",
        );
        check(
            "CREATE TABLE t (id int DEFAULT \"my next\"($1) NOT NULL)",
            "t table, now",
        );
        check(
            "CREATE TABLE t (id int DEFAULT ($1 + next_of($2)))",
            "t table, now",
        );
        check("CREATE TABLE t (LIKE u INCLUDING ALL)", "t table, now");
        check("CREATE TABLE t () INHERITS (u)", "inherits t table, now");
        check(
            "CREATE TABLE p PARTITION OF t FOR VALUES IN ($1)",
            "for in of p partition t table values, now",
        );
        check("CREATE TABLE t (a int, …", "t table, now");
        check(
            "CREATE SCHEMA s CREATE SEQUENCE q CREATE TABLE t (id int)",
            "create q s schema sequence t table, now",
        );
        check("CREATE EXTENSION x", "all, routines, now");
        check("CREATE TABLE U&\"\\0074\" (id serial)", "all, now");
        check("CREATE TABLE \u{fffd}\u{fffd} (id serial)", "all, now");
    }

    #[test]
    fn changed_defaults_and_names_are_looked_up() {
        check(
            "ALTER TABLE ONLY t ALTER COLUMN id SET DEFAULT nextval($1::regclass)",
            "alter column default id nextval only set t table and heirs, now",
        );
        check(
            "ALTER TABLE t ADD id serial",
            "add id serial t table and heirs, now",
        );
        check(
            "ALTER TABLE t ALTER id ADD GENERATED ALWAYS AS IDENTITY",
            "add alter always as generated id identity t table and heirs, now",
        );
        check(
            "ALTER TABLE t ALTER id DROP DEFAULT",
            "alter default drop id t table and heirs",
        );
        check("ALTER TABLE s RENAME TO r", "r rename s table to and heirs");
        check(
            "ALTER TABLE t SET SCHEMA a",
            "a schema set t table and heirs, now",
        );
        check(
            "ALTER SEQUENCE s RENAME TO r",
            "r rename s sequence to, now",
        );
        check("DROP SEQUENCE a.s, q", "a q s sequence");
        check("ALTER SCHEMA a RENAME TO b", "all, now");
        check("ALTER EXTENSION x UPDATE", "all, routines, now");
        check(
            "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $1",
            "nothing, routines",
        );
        check("DO $1", "nothing, routines");
        check("DO LANGUAGE plpgsql $1", "nothing, routines");
    }

    #[test]
    fn a_transaction_changes_what_its_statements_change() {
        let mut change = SchemaChange::of("CREATE TABLE a (id serial)");
        change.add(SchemaChange::of("SELECT $1"));
        change.add(SchemaChange::of("ALTER TABLE a RENAME TO b"));
        let Relations::Named { names, descendants } = &change.relations else {
            panic!("{change:?}");
        };
        assert!(names.contains("a") && names.contains("b") && *descendants && change.urgent);
        change.add(SchemaChange::of("CREATE PROCEDURE p() LANGUAGE sql AS $1"));
        assert!(change.routines);
        change.add(SchemaChange::of("CREATE EXTENSION x"));
        assert_eq!(change, SchemaChange::everything());
    }
}
