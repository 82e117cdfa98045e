use super::*;
use crate::limits;
use expect_test::{Expect, expect};

fn script(text: &str) -> Script {
    Script::of(text.as_bytes(), Dialect::default())
}

fn one(text: &str) -> Statement {
    let mut script = script(text);
    assert_eq!(script.statements.len(), 1, "{text}");
    script.statements.remove(0)
}

fn check(texts: &[&str], expected: Expect) {
    let lines: Vec<String> = texts
        .iter()
        .map(|text| {
            let statement = one(text);
            let mut notes = Vec::new();
            notes.extend(statement.takes_snapshot.then_some("snapshot".to_owned()));
            notes.extend(
                (statement.company != Company::Any)
                    .then(|| format!("{:?}", statement.company).to_lowercase()),
            );
            notes.extend(statement.ordered.then_some("ordered".to_owned()));
            notes.extend(statement.returning.then_some("returning".to_owned()));
            notes.extend(statement.notifies.then_some("notifies".to_owned()));
            notes.extend(
                statement
                    .empties_on_commit
                    .then_some("empties on commit".to_owned()),
            );
            notes.extend(
                (!statement.locks.is_empty()).then(|| format!("locks {}", statement.locks.len())),
            );
            notes.extend(
                statement
                    .sequences
                    .iter()
                    .map(|one| format!("{}={}", one.column, one.sequence.as_deref().unwrap())),
            );
            format!("{text}\n    {:?} {}\n", statement.kind, notes.join(", "))
        })
        .collect();
    expected.assert_eq(&lines.concat());
}

#[test]
fn transaction_control() {
    check(
        &[
            "begin",
            "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
            "START TRANSACTION READ WRITE ISOLATION LEVEL SERIALIZABLE DEFERRABLE",
            "COMMIT",
            "END WORK AND NO CHAIN",
            "COMMIT TRANSACTION AND CHAIN",
            "ROLLBACK AND CHAIN",
            "ABORT",
            "ROLLBACK TRANSACTION TO SAVEPOINT a",
            "ROLLBACK TO a",
            "SAVEPOINT a",
            "RELEASE a",
            "PREPARE TRANSACTION 'it''s'",
            "COMMIT PREPARED 'g'",
            "ROLLBACK PREPARED 'g'",
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "SET LOCAL TRANSACTION READ ONLY",
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET CONSTRAINTS ALL DEFERRED",
        ],
        expect![[r#"
            begin
                Begin { isolation: None, read_only: None } 
            BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY
                Begin { isolation: Some(RepeatableRead), read_only: Some(true) } 
            START TRANSACTION READ WRITE ISOLATION LEVEL SERIALIZABLE DEFERRABLE
                Begin { isolation: Some(Serializable), read_only: Some(false) } 
            COMMIT
                Commit { chain: false } 
            END WORK AND NO CHAIN
                Commit { chain: false } 
            COMMIT TRANSACTION AND CHAIN
                Commit { chain: true } 
            ROLLBACK AND CHAIN
                Rollback { chain: true } 
            ABORT
                Rollback { chain: false } 
            ROLLBACK TRANSACTION TO SAVEPOINT a
                RollbackTo 
            ROLLBACK TO a
                RollbackTo 
            SAVEPOINT a
                Savepoint 
            RELEASE a
                Release 
            PREPARE TRANSACTION 'it''s'
                PrepareTransaction { gid: [105, 116, 39, 115] } 
            COMMIT PREPARED 'g'
                CommitPrepared { gid: [103] } refused
            ROLLBACK PREPARED 'g'
                RollbackPrepared { gid: [103] } refused
            SET TRANSACTION ISOLATION LEVEL READ COMMITTED
                SetTransaction { isolation: Some(ReadCommitted), read_only: None } 
            SET LOCAL TRANSACTION READ ONLY
                SetTransaction { isolation: None, read_only: Some(true) } 
            SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE
                Set 
            SET CONSTRAINTS ALL DEFERRED
                SetTransaction { isolation: None, read_only: None } 
        "#]],
    );
}

#[test]
fn statements_and_what_they_need() {
    check(
        &[
            "SELECT 1",
            "(SELECT a FROM t ORDER BY a) LIMIT 1",
            "SELECT a, (SELECT b FROM u ORDER BY b LIMIT 1) FROM t",
            "SELECT a FROM t ORDER BY a",
            "WITH w AS (DELETE FROM t RETURNING *) INSERT INTO u SELECT * FROM w RETURNING id",
            "UPDATE t SET a = 1",
            "COPY t (a, b) FROM STDIN WITH (FORMAT csv)",
            "COPY (SELECT * FROM t) TO STDOUT",
            "COPY t FROM '/tmp/file'",
            "SET search_path TO x",
            "RESET ALL",
            "DISCARD ALL",
            "DEALLOCATE PREPARE \"My\"\"s\"",
            "DEALLOCATE ALL",
            "PREPARE s AS SELECT 1",
            "EXECUTE s(1)",
            "LISTEN c",
            "NOTIFY c, 'x'",
            "SELECT pg_notify('c', 'x')",
            "SHOW work_mem",
            "DECLARE c CURSOR FOR SELECT 1",
            "FETCH 10 FROM c",
            "CREATE TABLE t (a int)",
            "CREATE TEMPORARY TABLE t (a int) ON COMMIT DELETE ROWS",
            "CREATE LOCAL TEMP TABLE t ON COMMIT DROP AS SELECT 1",
            "EXPLAIN ANALYZE SELECT 1",
        ],
        expect![[r#"
            SELECT 1
                Select snapshot
            (SELECT a FROM t ORDER BY a) LIMIT 1
                Select snapshot
            SELECT a, (SELECT b FROM u ORDER BY b LIMIT 1) FROM t
                Select snapshot
            SELECT a FROM t ORDER BY a
                Select snapshot, ordered
            WITH w AS (DELETE FROM t RETURNING *) INSERT INTO u SELECT * FROM w RETURNING id
                Insert snapshot, returning
            UPDATE t SET a = 1
                Update snapshot
            COPY t (a, b) FROM STDIN WITH (FORMAT csv)
                CopyFromStdin snapshot
            COPY (SELECT * FROM t) TO STDOUT
                CopyToStdout snapshot
            COPY t FROM '/tmp/file'
                Utility snapshot
            SET search_path TO x
                Set 
            RESET ALL
                Set 
            DISCARD ALL
                Discard { all: true } refused
            DEALLOCATE PREPARE "My""s"
                Deallocate { name: Some([77, 121, 34, 115]) } 
            DEALLOCATE ALL
                Deallocate { name: None } 
            PREPARE s AS SELECT 1
                Prepare snapshot
            EXECUTE s(1)
                Execute snapshot
            LISTEN c
                Listen 
            NOTIFY c, 'x'
                Notify notifies
            SELECT pg_notify('c', 'x')
                Select snapshot, notifies
            SHOW work_mem
                Show 
            DECLARE c CURSOR FOR SELECT 1
                Declare snapshot, pipelined
            FETCH 10 FROM c
                Cursor 
            CREATE TABLE t (a int)
                Utility snapshot
            CREATE TEMPORARY TABLE t (a int) ON COMMIT DELETE ROWS
                Utility snapshot, empties on commit
            CREATE LOCAL TEMP TABLE t ON COMMIT DROP AS SELECT 1
                Utility snapshot
            EXPLAIN ANALYZE SELECT 1
                Utility snapshot
        "#]],
    );
}

#[test]
fn some_statements_refuse_company() {
    let company = |text| one(text).company;
    for text in [
        "VACUUM t",
        "vacuum (full, analyze)",
        "CREATE DATABASE d",
        "DROP DATABASE IF EXISTS d",
        "CREATE UNIQUE INDEX CONCURRENTLY i ON t (a)",
        "DROP INDEX CONCURRENTLY i",
        "REINDEX TABLE CONCURRENTLY t",
        "ALTER SYSTEM SET work_mem = '1MB'",
        "CLUSTER",
        "ALTER TABLE p DETACH PARTITION q CONCURRENTLY",
        "CREATE TABLESPACE x LOCATION '/x'",
        "DROP SUBSCRIPTION s",
        "ANALYZE",
    ] {
        assert_eq!(company(text), Company::Refused, "{text}");
    }
    for text in [
        "CALL p()",
        "DO $$ BEGIN COMMIT; END $$",
        "do language plpgsql 'begin perform 1; rollback; end'",
    ] {
        assert_eq!(company(text), Company::Pipelined, "{text}");
    }
    for text in [
        "DO $$ BEGIN PERFORM 1; END $$",
        "REFRESH MATERIALIZED VIEW CONCURRENTLY v",
        "CREATE INDEX i ON t (a)",
        "SELECT concurrently FROM t",
    ] {
        assert_eq!(company(text), Company::Any, "{text}");
    }
}

#[test]
fn locks_by_table() {
    let locks = |text| one(text).locks;
    assert_eq!(
        locks("SELECT * FROM t FOR UPDATE"),
        locks("LOCK TABLE ONLY public.T IN SHARE MODE")
    );
    assert_eq!(
        locks("SELECT * FROM \"t\" WHERE a = 1 FOR NO KEY UPDATE SKIP LOCKED"),
        locks("LOCK t")
    );
    assert_ne!(
        locks("SELECT * FROM t FOR UPDATE"),
        locks("SELECT * FROM u FOR UPDATE")
    );
    assert_eq!(locks("LOCK a, b").len(), 2);
    assert_eq!(
        locks("SELECT * FROM a x, b JOIN c ON true FOR KEY SHARE").len(),
        3
    );
    assert_eq!(*locks("SELECT pg_try_advisory_xact_lock(1)"), [ADVISORY]);
    assert_eq!(*locks("SELECT pg_advisory_unlock(1)"), [ADVISORY]);
    assert!(locks("SELECT pg_advisory_unlock_all()").is_empty());
    assert!(locks("SELECT substring(a FOR 2) FROM t").is_empty());
    assert!(locks("UPDATE t SET a = 1").is_empty());
}

#[test]
fn sequence_values_in_the_select_list() {
    let columns = |text| {
        one(text)
            .sequences
            .iter()
            .map(|c| {
                let sequence = c.sequence.as_deref().unwrap_or("?");
                format!(
                    "{}{}{sequence}",
                    c.column,
                    if c.is_last { "<" } else { "=" }
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(columns("SELECT nextval('s')"), ["nextval=s"]);
    assert_eq!(
        columns("select pg_catalog.nextval('public.s'::regclass) AS \"Id\", nextval('u') n FROM t"),
        ["Id=public.s", "n=u"]
    );
    assert_eq!(
        columns("SELECT currval('s'), LASTVAL() AS id"),
        ["currval<s", "id<?"]
    );
    assert!(columns("SELECT nextval('s') + 1").is_empty());
    assert!(columns("SELECT 1 WHERE nextval('s') > 1").is_empty());
}

#[test]
fn the_table_of_an_insert() {
    let table = |text| one(text).inserts_into.map(String::from);
    let is = |name: &str| Some(name.to_owned());
    assert_eq!(table("INSERT INTO Orders (a) VALUES (1)"), is("orders"));
    assert_eq!(table("insert into s.\"T\" AS t DEFAULT VALUES"), is("s.T"));
    let with = "WITH x AS (INSERT INTO a VALUES (1) RETURNING id) INSERT INTO b SELECT id FROM x";
    assert_eq!(table(with), is("b"));
    assert_eq!(table("SELECT a INTO b FROM c"), None);
}

#[test]
fn uuids_that_a_call_draws() {
    fn columns(text: &str) -> String {
        one(text).uuids.join(" ")
    }
    assert_eq!(columns("SELECT gen_random_uuid()"), "gen_random_uuid");
    assert_eq!(
        columns("select 1, public.uuid_generate_v4() AS \"Id\", gen_random_uuid() n FROM t"),
        "Id n"
    );
    assert_eq!(columns("SELECT gen_random_uuid()::text"), "");
    assert_eq!(columns("SELECT a FROM t WHERE id = gen_random_uuid()"), "");
    let insert = "INSERT INTO t (id, \"B\", c) VALUES (gen_random_uuid(), $1, public.uuidv7()";
    assert_eq!(columns(&format!("{insert}) RETURNING *")), "id c");
    let second = ", (gen_random_uuid(), gen_random_uuid(), (SELECT max(c) FROM f(1, 2))";
    assert_eq!(columns(&format!("{insert}){second})")), "id");
    for none in [
        "INSERT INTO t VALUES (gen_random_uuid())",
        "INSERT INTO t (id) VALUES (f(gen_random_uuid()))",
        "INSERT INTO t (id) VALUES (gen_random_uuid() || 'a')",
        "INSERT INTO t (id) SELECT gen_random_uuid()",
        "INSERT INTO t (id",
        "INSERT INTO t (id) VALUES (gen_random_uuid(",
        "INSERT INTO t DEFAULT VALUES",
    ] {
        assert_eq!(columns(none), "", "{none}");
    }
}

#[test]
fn texts_are_split_where_the_server_splits_them() {
    let split = |text: &str| {
        script(text)
            .statements
            .iter()
            .map(|s| text[s.range.clone()].to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        split("SELECT 1; ;\n-- x;\nSELECT ';' ;"),
        ["SELECT 1", "SELECT ';'"]
    );
    assert_eq!(split(" ; ; "), Vec::<String>::new());
    assert_eq!(
        split(
            "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END; COMMIT"
        ),
        [
            "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END",
            "COMMIT"
        ]
    );
    assert_eq!(
        split("CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2); SELECT 3").len(),
        2
    );
    assert_eq!(split("BEGIN; SELECT $$;$$; END").len(), 3);
    assert!(script("SELECT 'open").unterminated);
}

#[test]
fn a_statement_with_very_many_values_is_read_to_its_end() {
    let rows = "(1, 'x', f(2)),".repeat(100_000);
    let text = format!(
        "INSERT INTO t VALUES {rows} (1, 'y', 2) ON CONFLICT DO NOTHING RETURNING id; SELECT 2"
    );
    let script = script(&text);
    assert_eq!(script.statements.len(), 2);
    assert!(script.statements[0].returning);
    assert_eq!(&text[script.statements[1].range.clone()], "SELECT 2");
}

#[test]
fn fingerprints_are_what_statements_have_in_common() {
    let fingerprint = |text: &str| one(text).fingerprint.text.clone();
    assert_eq!(
        fingerprint("SELECT  a\n FROM t /* x */ WHERE b = 'it''s' AND c = 1.5;"),
        "SELECT a FROM t WHERE b = $1 AND c = $2"
    );
    assert_eq!(fingerprint("SELECT $2, $1, 7"), "SELECT $2, $1, $3");
    assert_eq!(fingerprint("SELECT 1"), fingerprint("SELECT 2 -- two"));
    // Of which table something is asked, is not what they have in common.
    assert_eq!(
        fingerprint("SELECT a FROM b WHERE c = '\"t\"'::regclass AND d > 0::int"),
        "SELECT a FROM b WHERE c = '\"t\"'::regclass AND d > $1::int"
    );
    assert_eq!(
        fingerprint("SELECT 't' :: RegType"),
        "SELECT 't' :: RegType"
    );
    assert_eq!(fingerprint("SELECT 't'::text, 'u'"), "SELECT $1::text, $2");
}

#[test]
fn the_fingerprint_of_a_long_statement_has_its_end_and_is_its_own() {
    let of = |last: &str| {
        let columns = "t.\"a_column\", 17, ".repeat(2000);
        one(&format!(
            "SELECT {columns}{last} FROM t  FOR UPDATE SKIP LOCKED"
        ))
        .fingerprint
    };
    let (long, other) = (of("b"), of("c"));
    assert!(long.is_cut() && long.text.len() <= limits::FINGERPRINT_BYTES_MAX);
    assert!(
        long.text.starts_with("SELECT t.\"a_column\", $1,"),
        "{}",
        long.text
    );
    assert!(
        long.text.ends_with("b FROM t FOR UPDATE SKIP LOCKED"),
        "{}",
        long.text
    );
    assert_ne!(long.hash, other.hash);
    let again = one(&long.text);
    assert_eq!(again.fingerprint, long);
    assert!(!again.locks.is_empty());
    // More tokens than are kept.
    let rows = |count| {
        one(&format!(
            "INSERT INTO t VALUES {}",
            "(1),".repeat(count) + "(2)"
        ))
    };
    let (many, more) = (rows(20_000).fingerprint, rows(20_001).fingerprint);
    assert_ne!(many.hash, more.hash);
    assert_eq!(one(&many.text).fingerprint, many);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let script = Script::of(&text, Dialect::default());
        for statement in &script.statements {
            proptest::prop_assert!(!statement.text(&text).is_empty());
        }
    }

    #[test]
    fn no_soup_of_keywords_makes_it_panic(words in proptest::collection::vec("(?i)select|nextval|[(']|lock|from|t|for|update|create|function|begin|case|end|;|copy|set|local|commit|to|chain|,|\\$1|\"", 0..30)) {
        let text = words.join(" ");
        let script = Script::of(text.as_bytes(), Dialect::default());
        let mut end = 0;
        for statement in &script.statements {
            proptest::prop_assert!(statement.range.start >= end);
            end = statement.range.end;
        }
        super::trace_comment(text.as_bytes(), Dialect::default());
        super::keyword_edits(text.as_bytes(), Dialect::default());
    }
}
