//! Statements that run with a snapshot from the past.

use crate::server::{Session, options, server, session};
use hindcast_cluster::Cluster;

/// A server without recording. The first session keeps old row versions by an open transaction, the
/// second has loaded the library.
fn stage() -> (Cluster, Session, Session) {
    let cluster = Cluster::temporary(options()).unwrap();
    let mut keeper = session(&cluster);
    keeper.run("CREATE TABLE t (k int PRIMARY KEY, v int)");
    keeper.run("INSERT INTO t SELECT k, 0 FROM generate_series(1, 3) AS k");
    keeper.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    keeper.run("SELECT 1");
    let mut session = session(&cluster);
    session.run("LOAD 'hindcast'");
    (cluster, keeper, session)
}

const ALL: &str = "SELECT string_agg(k || '=' || v, ' ' ORDER BY k) FROM t";

fn impose(session: &mut Session, snapshot: &str) {
    session.run(&format!("SET hindcast.snapshot = '{snapshot}'"));
}

#[test]
fn a_session_sees_the_database_as_it_was() {
    let (cluster, _keeper, mut past) = stage();
    let mut now = session(&cluster);
    let snapshot = now.one("SELECT pg_current_snapshot()");
    now.run("INSERT INTO t VALUES (4, 0)");
    now.run("UPDATE t SET v = 10 WHERE k = 1");
    now.run("DELETE FROM t WHERE k = 2");
    assert_eq!(past.one(ALL), "1=10 3=0 4=0");
    impose(&mut past, &snapshot);
    for scan in [
        "SET enable_indexscan = off",
        "SET enable_seqscan = off; SET enable_indexscan = on",
    ] {
        past.run(scan);
        assert_eq!(past.one(ALL), "1=0 2=0 3=0");
        assert_eq!(past.one("SELECT count(*) FROM t WHERE k IN (2, 4)"), "1");
    }
    assert_eq!(past.one("SELECT pg_current_snapshot()"), snapshot);
    // By functions, cursors, prepared statements and parallel workers too.
    past.run("SET hindcast.snapshot = ''");
    past.run(
        "CREATE FUNCTION stable() RETURNS bigint STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT sum(v) FROM t); END $$;
         CREATE FUNCTION volatile() RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE n bigint; BEGIN SELECT sum(v) INTO n FROM t; RETURN n; END $$;
         CREATE FUNCTION in_sql() RETURNS bigint LANGUAGE sql AS $$ SELECT sum(v) FROM t $$;
         PREPARE q AS SELECT sum(v) FROM t",
    );
    impose(&mut past, &snapshot);
    for sql in [
        "SELECT stable()",
        "SELECT volatile()",
        "SELECT in_sql()",
        "EXECUTE q",
        "SELECT stable() + volatile() + sum(v) FROM t",
    ] {
        assert_eq!(past.one(sql), "0", "{sql}");
    }
    let mut copied = Vec::new();
    past.connection
        .copy_out("COPY t TO STDOUT", |data| {
            copied.extend_from_slice(data);
            Ok::<_, hindcast_pg::Error>(())
        })
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&copied), "1\t0\n2\t0\n3\t0\n");
    past.run("BEGIN");
    past.run("DECLARE c CURSOR FOR SELECT sum(v) FROM t");
    assert_eq!(past.one("FETCH c"), "0");
    past.run("COMMIT");
    past.run(
        "SET enable_seqscan = on; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
         SET min_parallel_table_scan_size = 0",
    );
    let plan = past.run("EXPLAIN (ANALYZE, COSTS OFF) SELECT sum(v) FROM t");
    assert!(
        plan.iter()
            .any(|row| row.string(0).contains("Workers Launched: 0"))
    );
    assert_eq!(past.one("SELECT sum(v) FROM t"), "0");
    past.run("SET hindcast.snapshot = ''");
    assert_eq!(past.one(ALL), "1=10 3=0 4=0");
}

#[test]
fn writes_are_refused_until_they_are_allowed() {
    let (cluster, _keeper, mut past) = stage();
    let snapshot = session(&cluster).one("SELECT pg_current_snapshot()");
    impose(&mut past, &snapshot);
    for sql in [
        "UPDATE t SET v = 1",
        "SELECT * FROM t FOR UPDATE",
        "WITH w AS (DELETE FROM t RETURNING k) SELECT * FROM w",
        "CREATE TABLE u (k int)",
        "TRUNCATE t",
        "DO $$ BEGIN DELETE FROM t; END $$",
    ] {
        let refused = past.fails(sql);
        assert!(
            refused.contains("in a read-only transaction"),
            "{sql}: {refused}"
        );
    }
    past.run("SET hindcast.snapshot_writes = on");
    past.run("UPDATE t SET v = 1");
    past.run("SET hindcast.snapshot = ''");
    assert_eq!(past.one(ALL), "1=1 2=1 3=1");
}

#[test]
fn writes_do_what_they_would_have_done_after_waiting() {
    let (cluster, _keeper, mut past) = stage();
    let mut now = session(&cluster);
    let snapshot = now.one("SELECT pg_current_snapshot()");
    now.run("UPDATE t SET v = v + 10 WHERE k = 1");
    now.run("INSERT INTO t VALUES (7, 0)");
    past.run("SET hindcast.snapshot_writes = on");
    impose(&mut past, &snapshot);
    past.run("UPDATE t SET v = v + 1 WHERE k = 1");
    assert_eq!(now.one(ALL), "1=11 2=0 3=0 7=0");
    // Row 1 fails the condition when it is looked at again; row 7 is not seen.
    past.run("UPDATE t SET v = v + 1 WHERE v = 0");
    assert_eq!(now.one(ALL), "1=11 2=1 3=1 7=0");
    // A transaction sees its own writes, whatever its snapshot.
    let snapshot = now.one("SELECT pg_current_snapshot()");
    now.run("INSERT INTO t VALUES (9, 9)");
    impose(&mut past, &snapshot);
    past.run("BEGIN");
    past.run("INSERT INTO t VALUES (8, 8)");
    past.run("UPDATE t SET v = 2 WHERE k = 2");
    assert_eq!(past.one(ALL), "1=11 2=2 3=1 7=0 8=8");
    past.run("COMMIT");
    // One after the other in a function, in a loop over what the first one saw.
    let snapshot = now.one("SELECT pg_current_snapshot()");
    now.run("DELETE FROM t WHERE k = 9");
    now.run("UPDATE t SET v = 1 WHERE k = 7");
    impose(&mut past, &snapshot);
    past.run(
        "DO $$ DECLARE r record; BEGIN
           FOR r IN SELECT k FROM t ORDER BY k LOOP UPDATE t SET v = v * 2 WHERE k = r.k; END LOOP;
         END $$",
    );
    assert_eq!(now.one(ALL), "1=22 2=4 3=2 7=2 8=16");
    now.run("UPDATE t SET v = v + 10 WHERE k = 1");
    past.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    let refused = past.fails("UPDATE t SET v = v + 1 WHERE k = 1");
    assert!(refused.contains("could not serialize access"), "{refused}");
}

/// It goes on as if it had begun before the others committed, and had waited for them.
#[test]
fn the_next_statement_alone_runs_with_a_snapshot() {
    const COUNT: &str = "UPDATE t SET v = v + (SELECT count(*) FROM t) WHERE k = 1";
    let (cluster, _keeper, mut past) = stage();
    let mut now = session(&cluster);
    now.run(
        "CREATE TABLE seen (n bigint); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO seen SELECT count(*) FROM t; RETURN NULL; END $$",
    );
    now.run("CREATE TRIGGER note AFTER UPDATE ON t EXECUTE FUNCTION note()");
    let snapshot = now.one("SELECT pg_current_snapshot()");
    now.run("UPDATE t SET v = 10 WHERE k = 1");
    now.run("INSERT INTO t VALUES (4, 0)");
    let next = |session: &mut Session, snapshot: &str| {
        session.run(&format!(
            "SELECT set_config('hindcast.next_snapshot', '{snapshot}', true)"
        ));
    };
    past.run("BEGIN");
    next(&mut past, &snapshot);
    past.run(COUNT);
    // The row as it has become, three rows as there were; a trigger and the next statement see all.
    assert_eq!(past.one(ALL), "1=13 2=0 3=0 4=0");
    assert_eq!(past.one("SELECT max(n) FROM seen"), "4");
    // A setting that comes back was for a statement that has come.
    let snapshot = now.one("SELECT pg_current_snapshot()");
    now.run("DELETE FROM t WHERE k = 4");
    past.run("SAVEPOINT s");
    next(&mut past, &snapshot);
    assert_eq!(past.one("SELECT count(*) FROM t"), "4");
    past.run("ROLLBACK TO s");
    assert_eq!(past.one("SELECT count(*) FROM t"), "3");
    // One that was given up does not come later.
    past.run("SAVEPOINT s");
    next(&mut past, &snapshot);
    past.run("ROLLBACK TO s");
    assert_eq!(past.one("SELECT count(*) FROM t"), "3");
    next(&mut past, &snapshot);
    past.run("COMMIT");
    assert_eq!(past.one("SELECT count(*) FROM t"), "3");
}

#[test]
fn a_running_transaction_is_never_taken_for_one_that_is_over() {
    let (cluster, _keeper, mut past) = stage();
    let mut open = session(&cluster);
    open.run("BEGIN");
    let xid: u64 = open.one("SELECT pg_current_xact_id()").parse().unwrap();
    open.run("INSERT INTO t VALUES (9, 9)");
    session(&cluster).run("SELECT pg_current_xact_id()");
    let sees = format!("{0}:{0}:", xid + 1);
    impose(&mut past, &sees);
    let refused = past.fails(ALL);
    assert!(
        refused.contains(&format!("sees transaction {xid}, which is not over yet")),
        "{refused}"
    );
    impose(&mut past, &format!("{xid}:{}:{xid}", xid + 1));
    assert_eq!(past.one(ALL), "1=0 2=0 3=0");
    open.run("COMMIT");
    impose(&mut past, &sees);
    assert_eq!(past.one(ALL), "1=0 2=0 3=0 9=9");
    impose(&mut past, &format!("{xid}:{}:", xid + 1000));
    assert!(past.fails(ALL).contains("the next one here is"));
}

#[test]
fn what_a_subtransaction_wrote_is_seen_with_its_parent() {
    let (cluster, _keeper, mut past) = stage();
    let mut open = session(&cluster);
    open.run("BEGIN");
    open.run("UPDATE t SET v = 5 WHERE k = 3");
    open.run("SAVEPOINT s");
    open.run("UPDATE t SET v = 5 WHERE k = 1");
    let mut other = session(&cluster);
    other.run("UPDATE t SET v = 6 WHERE k = 2");
    let snapshot = other.one("SELECT pg_current_snapshot()");
    open.run("COMMIT");
    impose(&mut past, &snapshot);
    assert_eq!(past.one(ALL), "1=0 2=6 3=0", "{snapshot}");
}

#[test]
fn foreign_keys_hold_whatever_is_seen() {
    let (cluster, _keeper, mut past) = stage();
    let mut now = session(&cluster);
    now.run("CREATE TABLE child (k int REFERENCES t)");
    let snapshot = now.one("SELECT pg_current_snapshot()");
    now.run("INSERT INTO child VALUES (3)");
    now.run("DELETE FROM t WHERE k = 2");
    now.run("INSERT INTO t VALUES (5, 0)");
    past.run("SET hindcast.snapshot_writes = on");
    impose(&mut past, &snapshot);
    for sql in ["DELETE FROM t WHERE k = 3", "INSERT INTO child VALUES (2)"] {
        assert!(past.fails(sql).contains("foreign key"), "{sql}");
    }
    past.run("INSERT INTO child VALUES (5)");
}

#[test]
fn only_a_superuser_imposes_and_only_what_is_a_snapshot() {
    let cluster = server();
    let mut session = session(&cluster);
    for wrong in [
        "1", "5:4:", "0:3:", "3:9:9", "3:9:5,4", "3:9:4,", "3:9:x", "3:9", "a:b:c", "3:9:4 ,5",
    ] {
        let refused = session.fails(&format!("SET hindcast.snapshot = '{wrong}'"));
        assert!(
            refused.contains("invalid value for parameter"),
            "{wrong}: {refused}"
        );
    }
    session.run("SET hindcast.snapshot = '3:9:4,5'");
    session.run("RESET hindcast.snapshot");
    session.run("CREATE ROLE somebody; SET ROLE somebody");
    for setting in [
        "hindcast.snapshot = ''",
        "hindcast.next_snapshot = ''",
        "hindcast.snapshot_writes = on",
    ] {
        let refused = session.fails(&format!("SET {setting}"));
        assert!(
            refused.contains("permission denied to set parameter"),
            "{refused}"
        );
    }
    if cluster.binaries().major() >= 15 {
        session.run("RESET ROLE; GRANT SET ON PARAMETER hindcast.snapshot TO somebody");
        session.run("SET ROLE somebody; SET hindcast.snapshot = '3:9:4'");
        assert_eq!(session.one("SELECT pg_current_snapshot()"), "3:9:4");
    }
}
