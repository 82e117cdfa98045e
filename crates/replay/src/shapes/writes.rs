//! What transactions write, from the texts of their statements.

use std::collections::HashMap;
use std::sync::LazyLock;

use hindcast_order::Change;
use hindcast_trace::ShapeId;
use hindcast_wire::sql::{Kind, Statement};
use regex::Regex;

use crate::inserts::FirstWrite;
use crate::reading::{locks_rows, only_reads, skips_locked, upserts};
use crate::setup::sets_up;

/// What transactions write, by what they say.
#[derive(Default)]
pub struct Writes {
    /// The indices of its statements that insert.
    inserting: HashMap<ShapeId, Vec<u32>>,
    /// Its statements that found a key taken, or may have, with their tables.
    losing: HashMap<ShapeId, Vec<(u32, u32)>>,
    /// Its statements that change or delete rows.
    changing: HashMap<ShapeId, Vec<Change>>,
    /// What writes first in it, where that inserts or updates.
    first_writes: HashMap<ShapeId, FirstWrite>,
    /// The tables of these, and of those that lose and change.
    written: Vec<String>,
    upserting: HashMap<ShapeId, Vec<u32>>,
    /// Its statements that go on with the snapshot they began with when they have waited.
    going_on: HashMap<ShapeId, Vec<u32>>,
}

impl Writes {
    pub(super) fn note(&mut self, shape: ShapeId, statements: &[Statement]) {
        self.note_inserts(shape, statements);
        self.note_losers(shape, statements);
        let those = |is: fn(&Statement) -> bool| {
            let all = (0..).zip(statements).filter(|one| is(one.1));
            all.map(|(at, _)| at).collect()
        };
        self.upserting.insert(shape, those(upserts));
        self.going_on.insert(shape, those(goes_on));
    }

    fn note_inserts(&mut self, shape: ShapeId, statements: &[Statement]) {
        let inserts = (0..).zip(statements);
        let inserts = inserts.filter(|one| one.1.inserts_into.is_some());
        let inserts: Vec<u32> = inserts.map(|(at, _)| at).collect();
        if !inserts.is_empty() {
            self.inserting.insert(shape, inserts);
        }
        let leaves_rows = |one: &Statement| {
            let marks = matches!(one.kind, Kind::Savepoint | Kind::Release);
            marks || sets_up(one) || only_reads(one)
        };
        let mut writing = (0..).zip(statements).filter(|one| !leaves_rows(one.1));
        let Some((statement, first)) = writing.next() else {
            return;
        };
        let taken = takes_rows(first);
        let takes = taken.is_some();
        if let Some(table) = taken.or_else(|| lays_rows(first)) {
            let table = self.table(table);
            let first = FirstWrite {
                statement,
                table,
                takes,
            };
            self.first_writes.insert(shape, first);
        }
    }

    /// What its statements do with keys that are taken, and which of them change rows. A statement
    /// that wrote and was rolled back to a savepoint right behind it has failed.
    fn note_losers(&mut self, shape: ShapeId, statements: &[Statement]) {
        let (mut losing, mut changing) = (Vec::new(), Vec::new());
        for (at, one) in (0..).zip(statements) {
            if only_reads(one) {
                continue;
            }
            let text = one.fingerprint.text.to_ascii_lowercase();
            let next = statements.get(at as usize + 1);
            let failed = next.is_some_and(|next| next.kind == Kind::RollbackTo);
            if (failed || text.contains("do nothing"))
                && let Some(table) = lays_rows(one)
            {
                losing.push((at, self.table(bare(&table))));
            }
            let changed = if failed { Vec::new() } else { changed(&text) };
            let tables = changed.iter().map(|table| self.table(bare(table)));
            let tables: Vec<u32> = tables.collect();
            if !tables.is_empty() {
                changing.push(Change {
                    statement: at,
                    tables,
                });
            }
        }
        if !losing.is_empty() {
            self.losing.insert(shape, losing);
        }
        if !changing.is_empty() {
            self.changing.insert(shape, changing);
        }
    }

    /// The number of a table.
    fn table(&mut self, name: String) -> u32 {
        let known = self.written.iter().position(|one| *one == name);
        let number = known.unwrap_or(self.written.len());
        if known.is_none() {
            self.written.push(name);
        }
        number as u32
    }

    /// The indices of the shape's statements that insert.
    pub fn inserting(&self, shape: ShapeId) -> &[u32] {
        self.inserting.get(&shape).map_or(&[], Vec::as_slice)
    }

    /// The indices of the shape's statements that found a key taken, or may have, with the numbers
    /// of their tables.
    pub fn losing(&self, shape: ShapeId) -> &[(u32, u32)] {
        self.losing.get(&shape).map_or(&[], Vec::as_slice)
    }

    /// The shape's statements that change or delete rows.
    pub fn changing(&self, shape: ShapeId) -> &[Change] {
        self.changing.get(&shape).map_or(&[], Vec::as_slice)
    }

    /// The shape's first statement that writes, if that inserts or updates. The server gives its
    /// transaction an id just before it does.
    pub fn first_write(&self, shape: ShapeId) -> Option<FirstWrite> {
        self.first_writes.get(&shape).copied()
    }

    /// The shape's statements that insert a row, or change it as they find it.
    pub fn upserting(&self, shape: ShapeId) -> &[u32] {
        self.upserting.get(&shape).map_or(&[], Vec::as_slice)
    }

    /// The shape's statements that write or lock rows, copy a table or refresh a view, and go on
    /// with the snapshot they began with when they have waited for one.
    pub fn going_on(&self, shape: ShapeId) -> &[u32] {
        self.going_on.get(&shape).map_or(&[], Vec::as_slice)
    }
}

fn goes_on(statement: &Statement) -> bool {
    let writes = matches!(
        statement.kind,
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Merge
    );
    let text = statement.fingerprint.text.to_ascii_lowercase();
    let waits_for_tables =
        text.starts_with("refresh materialized view") || statement.kind == Kind::CopyToStdout;
    writes && !upserts(statement) || locks_rows(statement) || waits_for_tables
}

/// A table's name without its schema.
fn bare(table: &str) -> String {
    table.rsplit('.').next().unwrap_or(table).to_owned()
}

/// The table of an `INSERT` or `UPDATE`, which leaves new rows in it.
fn lays_rows(statement: &Statement) -> Option<String> {
    let text = statement.fingerprint.text.to_ascii_lowercase();
    let begins = |word: &str| text.trim_start().starts_with(word);
    (begins("insert") || begins("update"))
        .then(|| targets(&[text]).into_iter().next())
        .flatten()
}

/// The table of which a statement takes rows that others have not locked.
fn takes_rows(statement: &Statement) -> Option<String> {
    static FROM: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#"\bfrom\s+(?:only\s+)?([\w."$]+)"#).expect("it is a regular expression")
    });
    let text = statement.fingerprint.text.to_ascii_lowercase();
    let from = FROM.captures(&text).filter(|_| skips_locked(&text))?;
    Some(from[1].replace('"', ""))
}

/// The tables that statements name as those they write, as far as plain text tells; for comparing
/// with each other only.
pub fn targets(statements: &[String]) -> Vec<String> {
    let lower = statements.iter().map(|text| text.to_ascii_lowercase());
    let names = lower.flat_map(|text| named(&text));
    names.map(|(_, table)| table).collect()
}

/// Each table that a text in small letters names as one that it writes, with what it says there.
fn named(text: &str) -> Vec<(String, String)> {
    static TARGET: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#"\b(insert\s+into|update(?:\s+only)?|delete\s+from(?:\s+only)?|merge\s+into)\s+([\w."$]+)"#)
            .expect("it is a regular expression")
    });
    let found = TARGET.captures_iter(text);
    let found = found.map(|one| (one[1].to_owned(), one[2].replace('"', "")));
    // `FOR UPDATE OF t` and `DO UPDATE SET` look like updates of other things.
    found
        .filter(|(_, table)| table != "set" && table != "of")
        .collect()
}

/// The tables of which a statement, in small letters, changes or deletes rows that are there.
fn changed(text: &str) -> Vec<String> {
    let replaces = text.contains("do update");
    let named = named(text).into_iter();
    let named = named.filter(|(word, _)| replaces || !word.starts_with("insert"));
    named.map(|(_, table)| table).collect()
}

#[cfg(test)]
mod tests {
    use hindcast_wire::sql::{Dialect, Script};

    use super::*;

    #[track_caller]
    fn check(statement: &str, expected: &[&str]) {
        assert_eq!(targets(&[statement.to_owned()]), expected);
    }

    #[test]
    fn who_finds_a_key_taken_and_who_changes_rows_is_known() {
        let check = |text: &str, losing: &[u32], changing: &[u32]| {
            let mut writes = Writes::default();
            let script = Script::of(text.as_bytes(), Dialect::default());
            writes.note_losers(ShapeId(0), &script.statements);
            let lost: Vec<u32> = writes.losing(ShapeId(0)).iter().map(|one| one.0).collect();
            let changes = writes.changing(ShapeId(0)).iter();
            let changes: Vec<u32> = changes.map(|one| one.statement).collect();
            assert_eq!((&lost[..], &changes[..]), (losing, changing), "{text}");
        };
        let savepoint = "BEGIN; SAVEPOINT a; INSERT INTO t VALUES (1); ROLLBACK TO a; COMMIT";
        check(savepoint, &[2], &[]);
        check(
            "BEGIN; SAVEPOINT a; INSERT INTO t VALUES (1); RELEASE a; COMMIT",
            &[],
            &[],
        );
        check("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", &[0], &[]);
        check(
            "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 1",
            &[],
            &[0],
        );
        check("UPDATE ONLY public.t SET a = 1", &[], &[0]);
        check(
            "WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone",
            &[],
            &[0],
        );
        check(
            "INSERT INTO t (updated_at) SELECT a FROM u FOR UPDATE OF u",
            &[],
            &[],
        );
        check("SELECT updated FROM t", &[], &[]);
    }

    #[test]
    fn the_first_statement_that_writes_is_known_where_it_leaves_rows() {
        let mut writes = Writes::default();
        let mut check = |text: &str, expected: Option<(u32, u32, bool)>| {
            let script = Script::of(text.as_bytes(), Dialect::default());
            writes.note_inserts(ShapeId(0), &script.statements);
            let found = writes.first_writes.remove(&ShapeId(0));
            let found = found.map(|first| (first.statement, first.table, first.takes));
            assert_eq!(found, expected, "{text}");
        };
        check("INSERT INTO a VALUES (1)", Some((0, 0, false)));
        check(
            "BEGIN; SELECT 1; INSERT INTO b VALUES (1); COMMIT",
            Some((2, 1, false)),
        );
        check(
            "BEGIN; INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)",
            Some((1, 0, false)),
        );
        check(
            "BEGIN; UPDATE \"a\" SET x = 1; INSERT INTO b VALUES (1)",
            Some((1, 0, false)),
        );
        check("BEGIN; DELETE FROM a; INSERT INTO a VALUES (1)", None);
        check(
            "BEGIN; SELECT 1 FROM a FOR UPDATE; INSERT INTO a VALUES (1)",
            None,
        );
        check(
            "BEGIN; SELECT 1 FROM ONLY a WHERE x FOR UPDATE SKIP LOCKED; UPDATE b SET x = 1",
            Some((1, 0, true)),
        );
        check(
            "WITH some AS (SELECT FROM b FOR UPDATE SKIP LOCKED) UPDATE a SET x = 1",
            Some((0, 1, true)),
        );
        check("SELECT 1", None);
    }

    #[test]
    fn what_is_written_is_found_in_plain_text() {
        check("INSERT INTO public.t (a) VALUES ($1)", &["public.t"]);
        check(
            "insert into t values ($1) on conflict (a) do update set a = $2",
            &["t"],
        );
        check(
            "WITH gone AS (DELETE FROM a RETURNING *) UPDATE \"B\" SET x = $1",
            &["a", "b"],
        );
        check("SELECT a FROM t FOR UPDATE OF t", &[]);
    }
}
