//! How transactions end: prepared, failed, cancelled, with the session, with the server; and those
//! that no client began.

use hindcast_cluster::Shutdown;
use hindcast_pg::ConnectOptions;

use crate::server::{options, reader, server, server_with, session, session_in, wait_for};

#[test]
fn prepared_transactions_are_told_by_their_name() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run("CREATE TABLE t (k int)");
    reader.take();
    for name in ["one", "two"] {
        session.run("BEGIN");
        session.run("INSERT INTO t VALUES (1)");
        session.run("SAVEPOINT s");
        session.run("INSERT INTO t VALUES (1)");
        session.run(&format!("PREPARE TRANSACTION '{name}'"));
    }
    session.run("COMMIT PREPARED 'one'");
    session.run("ROLLBACK PREPARED 'two'");
    session.run("BEGIN");
    session.fails("SELECT 1 / 0");
    // Rolls back.
    session.run("PREPARE TRANSACTION 'three'");
    session.fails("COMMIT PREPARED 'three'");
    session.run("SELECT 1");
    let records = reader.take_of(session.pid);
    let ends: Vec<_> = records
        .iter()
        .map(|record| (record.ended.as_str(), record.gid.as_deref()))
        .collect();
    assert_eq!(
        ends,
        [
            ("prepare", Some("one")),
            ("prepare", Some("two")),
            ("commit prepared", Some("one")),
            ("rollback prepared", Some("two")),
            ("abort", None),
            ("abort", None),
            ("commit", None),
        ]
    );
    assert!(records[0].xid.is_some() && records[0].subxids.len() == 1);
    assert!(records[0].end_lsn.is_none());
    assert!(records[2].end_lsn.is_some());
}

#[test]
fn what_a_failed_block_leaves_behind_is_not_the_next_transactions() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let (mut session, mut other) = (session(&cluster), session_in(&cluster, "postgres"));
    session.run("CREATE TABLE t (k int)");
    reader.take();
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    session.run("SAVEPOINT s");
    session.fails("SELECT 1 / 0");
    session.run("ROLLBACK TO s");
    session.fails("SELECT 1 / (SELECT count(*) FROM t)");
    other.run("INSERT INTO t VALUES (1)");
    session.run("ROLLBACK");
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    let seen = session.one("SELECT pg_current_snapshot()");
    session.run("COMMIT");
    let records = reader.take_of(session.pid);
    let counts: Vec<_> = records.iter().map(|record| record.statements).collect();
    // What fails while it is planned does not run.
    assert_eq!(counts, [4, 3], "{records:?}");
    assert_eq!(records[1].snapshots, [seen]);
}

#[test]
fn failed_and_cancelled_transactions_are_aborts() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run("CREATE TABLE t (k int)");
    reader.take();
    session.fails("SELECT * FROM missing");
    session.fails("INSERT INTO t VALUES (1), (1 / 0)");
    session.fails("SELEC");
    session.run("SET statement_timeout = '10ms'");
    session.fails("SELECT pg_sleep(60)");
    session.run("SET statement_timeout = 0");
    session.run("BEGIN");
    session.run("INSERT INTO t VALUES (1)");
    session.run("ROLLBACK");
    let records = reader.take_of(session.pid);
    let ends: Vec<_> = records.iter().map(|record| record.ended.as_str()).collect();
    assert_eq!(
        ends,
        [
            "abort", "abort", "abort", "commit", "abort", "commit", "abort"
        ]
    );
    assert_eq!(records[3].statements, 1);
    assert!(records[6].xid.is_some() && records[6].end_lsn.is_none());
    assert_eq!(records[6].statements, 3);
}

#[test]
fn a_transaction_that_ends_with_its_session_says_so() {
    let cluster = server();
    let mut reader = reader(&cluster);
    for kill in [true, false] {
        let mut session = session(&cluster);
        session.run("BEGIN");
        session.run("SAVEPOINT s");
        session.run("CREATE TABLE t (k int)");
        let pid = session.pid;
        if kill {
            reader.run(&format!("SELECT pg_terminate_backend({pid})"));
        } else {
            // Without a word, as a client that was killed.
            drop(session);
        }
        let record = wait_for("the record", || reader.take_of(pid).pop());
        assert_eq!(
            (record.ended.as_str(), record.statements),
            ("terminated", 3)
        );
        assert_eq!((record.subxids.len(), record.aborted_subxids.len()), (0, 1));
    }
}

#[test]
fn after_a_crash_the_ring_is_empty_and_has_another_epoch() {
    // The extension itself is to survive.
    let cluster = server_with(options().set("synchronous_commit", "on"));
    let mut writer = session(&cluster);
    let mut first = reader(&cluster);
    writer.run("SELECT 1");
    let before = first.take()[0].epoch;
    writer.run("SELECT 2");
    let kill = std::process::Command::new("kill")
        .args(["-KILL", &writer.pid.to_string()])
        .status();
    assert!(kill.unwrap().success());
    let url = cluster.url("postgres").to_string().parse().unwrap();
    wait_for("the end of the sessions", || {
        first.connection.query("SELECT 1").err()
    });
    wait_for("the restart", || {
        hindcast_pg::Connection::connect(&url, &ConnectOptions::default()).ok()
    });
    let mut second = reader(&cluster);
    let mut again = session(&cluster);
    again.run("SELECT 3");
    let records = second.take_of(again.pid);
    assert_eq!((records.len(), records[0].ordinal), (1, 1));
    assert!(records[0].epoch > before);
    assert_eq!(second.one("SELECT lost FROM hindcast.status()"), "0");
}

#[test]
fn a_restart_makes_another_epoch_too() {
    let mut cluster = server();
    let epoch = "SELECT epoch FROM hindcast.status()";
    let before: i64 = cluster.sql("postgres", epoch).unwrap().parse().unwrap();
    cluster.stop(Shutdown::Fast).unwrap();
    cluster.start().unwrap();
    let after: i64 = cluster.sql("postgres", epoch).unwrap().parse().unwrap();
    assert!(after > before);
}

#[test]
fn autovacuum_is_recorded_and_marked() {
    let cluster = server_with(
        options()
            .set("autovacuum_naptime", "1s")
            .set("autovacuum_vacuum_threshold", 1),
    );
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run("CREATE TABLE t AS SELECT generate_series(1, 1000) AS k");
    session.run("DELETE FROM t");
    let record = wait_for("autovacuum", || {
        let mut records = reader.take();
        records.retain(|record| record.pid != session.pid);
        records.pop()
    });
    assert_eq!(record.backend_type, "autovacuum worker");
}

#[test]
fn background_workers_are_recorded_and_marked() {
    let cluster = server_with(options().set("wal_level", "logical"));
    cluster.sql("postgres", "CREATE DATABASE copy").unwrap();
    cluster
        .sql("copy", "CREATE TABLE t (k int PRIMARY KEY)")
        .unwrap();
    let mut session = session(&cluster);
    session.run("CREATE TABLE t (k int PRIMARY KEY)");
    session.run("CREATE PUBLICATION p FOR TABLE t");
    session.run("SELECT pg_create_logical_replication_slot('s', 'pgoutput')");
    let mut copy = session_in(&cluster, "copy");
    copy.run(&format!(
        "CREATE SUBSCRIPTION s CONNECTION '{}' PUBLICATION p
         WITH (create_slot = false, slot_name = 's', copy_data = false)",
        cluster.url("postgres")
    ));
    let mut reader = reader(&cluster);
    session.run("INSERT INTO t VALUES (1)");
    let oid = reader.one("SELECT oid FROM pg_database WHERE datname = 'copy'");
    wait_for("the worker's write", || {
        let records = reader.take();
        let mut workers = records
            .iter()
            .filter(|record| record.backend_type.ends_with("worker"));
        workers
            .find(|record| record.xid.is_some() && record.database.to_string() == oid)
            .map(drop)
    });
    copy.run("ALTER SUBSCRIPTION s DISABLE");
}
