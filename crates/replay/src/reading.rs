//! What a statement does besides reading, as far as its text tells.

use hindcast_wire::sql::{self, Dialect, Kind, Statement};

use crate::known::Known;

/// Functions that read a clock or a sequence.
const DRAWING: [&str; 16] = [
    "now",
    "clock_timestamp",
    "statement_timestamp",
    "transaction_timestamp",
    "timeofday",
    "current_date",
    "current_time",
    "current_timestamp",
    "localtime",
    "localtimestamp",
    "nextval",
    "currval",
    "lastval",
    "setval",
    "random",
    "gen_random_uuid",
];

/// What a query begins with that writes in a `WITH` in front of it.
const WRITING: [&str; 4] = ["insert", "update", "delete", "merge"];

/// Whether a statement does nothing but read: it locks nothing, draws from no sequence and reads no
/// clock, as far as its text tells.
pub fn only_reads(statement: &Statement) -> bool {
    thread_local! {
        static KNOWN: Known = Known::default();
    }
    KNOWN.with(|known| known.or_find(statement, does_only_read))
}

fn does_only_read(statement: &Statement) -> bool {
    let text = statement.fingerprint.text.to_ascii_lowercase();
    // Whole words: columns are named `updated_timestamp` and `is_known`.
    let mut words = text
        .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty());
    let has_ctes = words.clone().next() == Some("with");
    let writes = |word: &str| has_ctes && WRITING.contains(&word);
    let plain = statement.locks.is_empty()
        && statement.sequences.is_empty()
        && statement.uuids.is_empty()
        && !words.any(|word| DRAWING.contains(&word) || writes(word));
    // What a cursor fetches was read when it was declared, as far as others can tell.
    let asks = matches!(statement.kind, Kind::Select | Kind::Declare);
    statement.kind.controls_transaction() || asks && plain
}

/// Whether a statement inserts rows, or changes those that are there (`ON CONFLICT … DO UPDATE`),
/// and reads nothing else. It takes a row as it has become, though its snapshot shows an earlier
/// one or none: what it saw of the row is known only from who committed before it.
pub fn upserts(statement: &Statement) -> bool {
    let text = statement.fingerprint.text.to_ascii_lowercase();
    let mut words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    statement.kind == Kind::Insert
        && text.contains("do update")
        && !words.any(|word| word == "select")
}

/// Whether a query locks the rows that it finds.
pub fn locks_rows(statement: &Statement) -> bool {
    let text = &statement.fingerprint.text;
    let locks = || !sql::lock_edits(text.as_bytes(), Dialect::default()).is_empty();
    statement.kind == Kind::Select && (skips_locked(text) || locks())
}

/// Whether a statement leaves alone what others have locked.
pub fn skips_locked(text: &str) -> bool {
    text.to_ascii_lowercase().contains("skip locked")
}

/// What completes a statement that begins a transaction, and does nothing else: it cannot fail.
pub fn only_begins(statement: &Statement) -> Option<&'static [u8]> {
    const WORDS: [&str; 16] = [
        "begin",
        "start",
        "work",
        "transaction",
        "isolation",
        "level",
        "serializable",
        "repeatable",
        "read",
        "committed",
        "uncommitted",
        "only",
        "write",
        "not",
        "deferrable",
        "",
    ];
    const START: &str = "start";
    let start = statement.fingerprint.text.get(..START.len());
    let is_start = start.is_some_and(|start| start.eq_ignore_ascii_case(START));
    let begins = matches!(statement.kind, Kind::Begin { .. }) && has_only(statement, &WORDS);
    begins.then_some(match is_start {
        true => b"START TRANSACTION",
        false => b"BEGIN",
    })
}

/// Whether a statement commits, and does nothing else.
pub fn only_commits(statement: &Statement) -> bool {
    const WORDS: [&str; 5] = ["commit", "end", "work", "transaction", ""];
    statement.kind == Kind::Commit { chain: false } && has_only(statement, &WORDS)
}

fn has_only(statement: &Statement, words: &[&str]) -> bool {
    let text = &statement.fingerprint.text;
    let mut all = text.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';'));
    all.all(|word| words.iter().any(|known| known.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use hindcast_wire::sql::{Dialect, Script};

    use super::*;

    fn reads(text: &str) -> bool {
        let script = Script::of(text.as_bytes(), Dialect::default());
        only_reads(&script.statements[0])
    }

    /// As Parse Server deletes. A transaction of such a statement alone is held before it commits.
    #[test]
    fn a_query_with_a_write_in_front_of_it_does_more_than_read() {
        for write in [
            "DELETE FROM note WHERE id = 1 RETURNING *",
            "insert into note values (1) returning *",
            "UPDATE note SET a = 1 RETURNING *",
        ] {
            let text = format!("WITH done AS ({write}) SELECT count(*) FROM done");
            assert!(!reads(&text), "{text}");
        }
        assert!(reads(
            "WITH some AS (SELECT updated, delete_at FROM note) SELECT * FROM some"
        ));
        assert!(reads("SELECT update FROM note"));
    }

    /// As Django's `iterator()` asks, which fills caches.
    #[test]
    fn a_cursor_reads_if_its_query_does() {
        let declared = |query: &str| {
            let text = format!("DECLARE c NO SCROLL CURSOR WITH HOLD FOR {query}");
            reads(&text)
        };
        assert!(declared("SELECT id FROM role"));
        assert!(!declared("SELECT id FROM role FOR UPDATE"));
        assert!(!declared("SELECT nextval('s')"));
    }

    #[test]
    fn a_clock_is_known_by_its_whole_name() {
        assert!(reads(
            "SELECT last_updated_timestamp, is_known, current_step FROM t"
        ));
        assert!(reads("SELECT a::timestamp, interval_now FROM t"));
        assert!(!reads("SELECT a FROM t WHERE until < now()"));
        assert!(!reads("SELECT CURRENT_TIMESTAMP"));
        assert!(!reads("SELECT currval('s')"));
    }

    #[test]
    fn an_upsert_reads_nothing_else() {
        let is_one = |text: &str| {
            let script = Script::of(text.as_bytes(), Dialect::default());
            upserts(&script.statements[0])
        };
        let on_conflict = "ON CONFLICT (a) DO UPDATE SET n = t.n + 1";
        assert!(is_one(&format!(
            "INSERT INTO t (a, n) VALUES (1, 1) {on_conflict} RETURNING n"
        )));
        assert!(!is_one(&format!(
            "INSERT INTO t SELECT a, 1 FROM u {on_conflict}"
        )));
        assert!(!is_one("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING"));
    }
}
