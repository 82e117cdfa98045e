//! Whether a text may deallocate or list prepared statements that are not its own.

use super::lexer::{Token, TokenKind};
use super::statement::{Kind, Statement};

/// How far a text reaches at the statements that someone else has prepared in its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Not at all.
    #[default]
    None,
    /// While it runs, it may deallocate or list all of them.
    Running,
    /// So may what it leaves in its session: a prepared statement, a cursor.
    Session,
    /// So may what it leaves in the database: a function, a view.
    Database,
}

const WORDS: [&[u8]; 4] = [
    b"deallocate",
    b"discard",
    b"pg_prepared_statement",
    b"pg_prepared_statements",
];

impl Reach {
    /// Of one statement. `named`: one of the words is in it, be it within a string.
    pub(super) fn of(statement: Option<&Statement>, named: bool) -> Self {
        let Some(statement) = statement else {
            return Self::None;
        };
        match &statement.kind {
            // Its name is the client's own.
            Kind::Deallocate { name: Some(_) } | Kind::Discard { all: false } => Self::None,
            // It may put its statements together from pieces.
            Kind::Do if !named => Self::Running,
            _ if !named => Self::None,
            Kind::Do | Kind::Prepare | Kind::Declare => Self::Session,
            Kind::Utility if makes_callable(&statement.fingerprint.text) => Self::Database,
            _ => Self::Running,
        }
    }
}

/// Whether a statement creates or alters something that runs or shows what it was defined as. Data
/// do not, whatever their columns are called.
fn makes_callable(fingerprint: &str) -> bool {
    let mut words = fingerprint.split(' ').map(str::to_ascii_lowercase);
    let creates = words
        .next()
        .is_some_and(|word| matches!(&word[..], "create" | "alter"));
    let what = words.find(|word| !matches!(&word[..], "temp" | "temporary" | "unlogged"));
    let data = |word: String| matches!(&word[..], "table" | "index" | "unique" | "sequence");
    creates && !what.is_some_and(data)
}

/// Whether a token is one of the words that deallocate or list prepared statements, or has one in
/// it.
pub(super) fn names_others(token: Token, text: &[u8]) -> bool {
    let text = token.text(text);
    match token.kind {
        TokenKind::Word => WORDS.iter().any(|word| text.eq_ignore_ascii_case(word)),
        TokenKind::String | TokenKind::QuotedName => has_word(text),
        _ => false,
    }
}

fn has_word(text: &[u8]) -> bool {
    let is_part = |at: usize| {
        let byte = text.get(at);
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    };
    // What follows a backslash may be a line break.
    let begins = |at: usize| {
        at == 0 || !is_part(at - 1) || at.checked_sub(2).is_some_and(|at| text[at] == b'\\')
    };
    memchr::memchr2_iter(b'd', b'D', text)
        .chain(memchr::memchr2_iter(b'p', b'P', text))
        .any(|at| {
            WORDS.iter().any(|word| {
                let end = at + word.len();
                let found = text.get(at..end);
                found.is_some_and(|found| found.eq_ignore_ascii_case(word))
                    && begins(at)
                    && !is_part(end)
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{Dialect, Script};

    #[test]
    fn how_far_texts_reach() {
        let check = |text: &str, expected: Reach| {
            let script = Script::of(text.as_bytes(), Dialect::default());
            assert_eq!(script.reach, expected, "{text}");
        };
        for text in [
            "SELECT 1",
            "DEALLOCATE mine",
            "DEALLOCATE PREPARE mine; SELECT 1",
            "DISCARD TEMP",
            "SELECT discarded, deallocated_at FROM discards",
            "SELECT 'discarded', $$undeallocate$$",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "SELECT 1 -- DISCARD ALL",
        ] {
            check(text, Reach::None);
        }
        for text in [
            "deallocate all",
            "Discard All",
            "DEALLOCATE mine; DEALLOCATE ALL",
            "DEALLOCATE ALL; DEALLOCATE mine",
            "SELECT * FROM pg_prepared_statements",
            "SELECT pg_catalog.pg_prepared_statement()",
            "TABLE pg_catalog.\"pg_prepared_statements\"",
            "SELECT run('x; dealLocate all')",
            "SELECT run($$DISCARD ALL$$)",
            "SELECT run(E'\\nDISCARD ALL')",
            "DO $$ BEGIN PERFORM 1; END $$",
            "CREATE TABLE cards (discard int)",
            "CREATE TEMP TABLE seen AS TABLE pg_prepared_statements",
            "EXPLAIN SELECT * FROM pg_prepared_statements",
        ] {
            check(text, Reach::Running);
        }
        for text in [
            "PREPARE p AS SELECT * FROM pg_prepared_statements",
            "DECLARE c CURSOR FOR SELECT * FROM pg_prepared_statements",
            "DO $$ BEGIN DEALLOCATE ALL; END $$",
            "SELECT 1; PREPARE p AS TABLE pg_prepared_statements; SELECT 2",
        ] {
            check(text, Reach::Session);
        }
        for text in [
            "CREATE VIEW v AS SELECT * FROM pg_prepared_statements",
            "CREATE OR REPLACE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$BEGIN EXECUTE 'DEALLOCATE ALL'; END$$",
            "CREATE RULE r AS ON INSERT TO t DO ALSO SELECT count(*) FROM pg_prepared_statements",
        ] {
            check(text, Reach::Database);
        }
    }
}
