//! Statements within statements: functions, triggers, procedures, parallel workers.

use crate::server::{Record, reader, server, session};

/// The snapshots of a record as (statement, nested).
fn places(record: &Record) -> Vec<(i32, bool)> {
    let statements = record.snapshot_statements.iter().copied();
    statements
        .zip(record.snapshot_nested.iter().copied())
        .collect()
}

/// A function that lets another session commit between its statements.
const COMMITTING: &str = "
CREATE EXTENSION dblink;
CREATE TABLE t (k int);
CREATE FUNCTION elsewhere() RETURNS void VOLATILE LANGUAGE plpgsql AS $$
BEGIN PERFORM dblink_exec(format('dbname=postgres user=postgres host=%s port=%s',
                          current_setting('unix_socket_directories'), current_setting('port')),
                   'INSERT INTO t VALUES (1)'); END $$;";

#[test]
fn a_volatile_function_takes_snapshots_of_its_own() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run(COMMITTING);
    session.run(
        "CREATE FUNCTION f() RETURNS text VOLATILE LANGUAGE plpgsql AS $$
         DECLARE seen text; BEGIN
           PERFORM elsewhere();
           SELECT pg_current_snapshot() INTO seen;
           RETURN seen;
         END $$",
    );
    session.run("BEGIN");
    session.run("SELECT 1");
    let inner = session.one("SELECT f()");
    let outer = session.one("SELECT pg_current_snapshot()");
    session.run("COMMIT");
    let record = reader.take_of(session.pid).pop().unwrap();
    // SELECT 1, and f's. What came after f sees what f saw last.
    assert_eq!(places(&record), [(2, false), (3, true)]);
    assert_eq!(record.snapshots[1], inner);
    assert_eq!(outer, inner);
    assert_eq!(record.statements, 5);
    // It saw more than its own snapshot shows.
    assert_eq!(record.rechecked, [3]);
}

#[test]
fn a_stable_function_sees_what_its_statement_sees() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run("CREATE TABLE t (k int)");
    session.run(
        "CREATE FUNCTION f() RETURNS bigint STABLE LANGUAGE plpgsql AS $$
         DECLARE n bigint; r record; BEGIN
           FOR r IN SELECT * FROM pg_class LIMIT 3 LOOP NULL; END LOOP;
           SELECT count(*) INTO n FROM t; RETURN n;
         END $$",
    );
    session.run("SELECT f() FROM generate_series(1, 3) WHERE f() = 0");
    let record = reader.take_of(session.pid).pop().unwrap();
    assert_eq!(record.statements, 1);
    assert_eq!(places(&record), [(1, false)]);
    assert_eq!(record.rechecked, []);
}

#[test]
fn what_a_function_sees_that_sees_less_than_another_is_not_what_the_next_statement_sees() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run(COMMITTING);
    session.run(
        "CREATE FUNCTION sees_more() RETURNS text VOLATILE LANGUAGE plpgsql AS $$
         DECLARE seen text; BEGIN
           PERFORM elsewhere();
           SELECT pg_current_snapshot() INTO seen;
           RETURN seen;
         END $$;
         CREATE FUNCTION sees_the_same(text) RETURNS text STABLE LANGUAGE plpgsql AS $$
         DECLARE n bigint; BEGIN SELECT count(*) INTO n FROM t; RETURN $1; END $$;",
    );
    session.run("BEGIN");
    let seen = session.one("SELECT sees_the_same(sees_more())");
    session.run("COMMIT");
    let record = reader.take_of(session.pid).pop().unwrap();
    assert_eq!(places(&record), [(2, false), (2, true)]);
    assert_eq!(record.snapshots[1], seen);
    assert_eq!(record.rechecked, [2]);
}

#[test]
fn what_foreign_keys_are_checked_by_is_not_what_the_statement_saw() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run(COMMITTING);
    session.run(
        "CREATE TABLE u (k int PRIMARY KEY);
         INSERT INTO u VALUES (1);
         CREATE TABLE of_u (k int REFERENCES u, n int);
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN PERFORM elsewhere(); RETURN NEW; END $$;
         CREATE TRIGGER before BEFORE INSERT ON of_u FOR EACH ROW EXECUTE FUNCTION f();",
    );
    session.run("INSERT INTO of_u VALUES (1, 1)");
    let record = reader.take_of(session.pid).pop().unwrap();
    assert_eq!(places(&record), [(1, false), (1, true)]);
    assert_eq!(record.rechecked, []);
}

#[test]
fn triggers_are_nested_also_at_the_commit() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run(COMMITTING);
    session.run(
        "CREATE TABLE u (k int);
         CREATE FUNCTION g() RETURNS trigger LANGUAGE plpgsql AS $$
         DECLARE r record; BEGIN
           PERFORM elsewhere();
           FOR r IN SELECT k FROM t LOOP NULL; END LOOP;
           RETURN NULL;
         END $$;
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON u DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW EXECUTE FUNCTION g();",
    );
    // Without a block, the trigger runs when the statement is over.
    session.run("INSERT INTO u VALUES (1)");
    let alone = reader.take_of(session.pid).pop().unwrap();
    assert_eq!(alone.statements, 1);
    assert_eq!(places(&alone), [(1, false), (1, true)]);
    assert_eq!(alone.rechecked, [1]);
    session.run("BEGIN");
    session.run("INSERT INTO u VALUES (1)");
    session.run("COMMIT");
    let block = reader.take_of(session.pid).pop().unwrap();
    assert_eq!(block.statements, 3);
    assert_eq!(places(&block), [(2, false), (3, true)]);
}

#[test]
fn an_error_within_a_function_confuses_nothing() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run(
        "CREATE TABLE t (k int);
         CREATE FUNCTION fails() RETURNS int LANGUAGE plpgsql AS $$ BEGIN
           PERFORM 1 FROM t; RETURN 1 / 0; END $$;
         CREATE FUNCTION catches() RETURNS int LANGUAGE plpgsql AS $$ BEGIN
           PERFORM fails(); RETURN 1; EXCEPTION WHEN division_by_zero THEN RETURN 0; END $$;",
    );
    session.fails("SELECT fails()");
    session.run("BEGIN");
    session.run("SELECT catches()");
    session.run("SELECT 1");
    session.run("COMMIT");
    let records = reader.take_of(session.pid);
    let [.., failed, caught] = &records[..] else {
        panic!("{records:?}");
    };
    assert_eq!((failed.ended.as_str(), failed.statements), ("abort", 1));
    assert_eq!(caught.statements, 4);
    assert!(
        caught.snapshot_nested.iter().all(|nested| !nested),
        "{caught:?}"
    );
}

#[test]
fn a_procedure_that_commits_is_several_transactions() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run("CREATE TABLE t (k int)");
    session.run(
        "CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN
           INSERT INTO t VALUES (1); COMMIT;
           INSERT INTO t VALUES (2); ROLLBACK;
           INSERT INTO t VALUES (3);
         END $$",
    );
    reader.take();
    session.run("CALL p()");
    session.run("SELECT 1");
    let records = reader.take_of(session.pid);
    let ended: Vec<_> = records.iter().map(|record| record.ended.as_str()).collect();
    assert_eq!(ended, ["commit", "abort", "commit", "commit"]);
    assert!(records[..3].iter().all(|record| record.xid.is_some()));
    // The statement began in the first of them.
    let statements: Vec<_> = records.iter().map(|record| record.statements).collect();
    assert_eq!(statements, [1, 0, 0, 1]);
    assert!(places(&records[1]).iter().all(|place| *place == (0, true)));
    assert!(!records[1].snapshots.is_empty());
    assert_eq!(places(&records[3]), [(1, false)]);
}

#[test]
fn one_statement_of_many_kinds_counts_once() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run(
        "CREATE TABLE t (k int); CREATE TABLE log (k int);
         CREATE RULE r AS ON UPDATE TO t DO ALSO INSERT INTO log VALUES (new.k);
         INSERT INTO t VALUES (1); PREPARE q AS SELECT * FROM t;",
    );
    for statement in [
        "UPDATE t SET k = 2",
        "EXPLAIN SELECT * FROM t",
        "EXPLAIN ANALYZE UPDATE t SET k = 3",
        "EXECUTE q",
        "CREATE TABLE made AS SELECT * FROM t",
        "WITH w AS (DELETE FROM log RETURNING k) INSERT INTO t SELECT * FROM w",
        "VACUUM t",
        "CREATE INDEX CONCURRENTLY i ON t (k)",
    ] {
        reader.take();
        session.run(statement);
        let records = reader.take_of(session.pid);
        let statements: i32 = records.iter().map(|record| record.statements).sum();
        assert_eq!(statements, 1, "{statement}: {records:?}");
    }
    reader.take();
    session.run("SELECT 1; SELECT 2; SELECT 3");
    assert_eq!(reader.take_of(session.pid)[0].statements, 3);
}

#[test]
fn cursors_see_what_their_declaration_saw() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let (mut session, mut other) = (session(&cluster), session(&cluster));
    session.run("CREATE TABLE t AS SELECT generate_series(1, 9) AS k");
    session.run("BEGIN");
    session.run("DECLARE c CURSOR FOR SELECT k FROM t");
    session.run("FETCH 2 FROM c");
    other.run("DELETE FROM t");
    session.run("FETCH 2 FROM c");
    session.run("COMMIT");
    let record = reader.take_of(session.pid).pop().unwrap();
    assert_eq!(record.statements, 5);
    assert_eq!(places(&record), [(2, false)]);
}

#[test]
fn parallel_workers_are_no_transactions() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run("CREATE TABLE t AS SELECT generate_series(1, 200000) AS k; ANALYZE t");
    session.run(
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
         SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2",
    );
    reader.take();
    let plan = session.run("EXPLAIN (ANALYZE, COSTS OFF) SELECT count(*) FROM t");
    let launched = plan
        .iter()
        .any(|row| row.string(0).contains("Workers Launched: 2"));
    assert!(launched, "no worker was there");
    session.run("SELECT count(*) FROM t");
    let records = reader.take();
    assert_eq!(records.len(), 2, "{records:?}");
    assert!(records.iter().all(|record| record.pid == session.pid));
}
