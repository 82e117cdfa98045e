//! What a record says of a transaction.

use hindcast_cluster::Shutdown;

use crate::server::{Session, options, reader, server, server_with, session, session_in, wait_for};

#[test]
fn a_record_says_what_the_session_could_ask() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run("CREATE TABLE t (k int)");
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    let snapshot = session.one("SELECT pg_current_snapshot()");
    let started = session.one("SELECT now()");
    let xid: u64 = session.one("SELECT pg_current_xact_id()").parse().unwrap();
    session.run("INSERT INTO t VALUES (1)");
    let before = session.one("SELECT pg_current_wal_insert_lsn()");
    session.run("COMMIT");
    let backend_start =
        session.one("SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()");
    let oid = session.one("SELECT oid FROM pg_database WHERE datname = 'postgres'");

    let records = reader.take_of(session.pid);
    let ordinals: Vec<_> = records.iter().map(|record| record.ordinal).collect();
    assert_eq!(ordinals, [1, 2, 3, 4]);
    let record = &records[1];
    assert_eq!(record.xid, Some(xid));
    assert_eq!(record.database.to_string(), oid);
    assert_eq!(record.backend_start, backend_start);
    assert_eq!(record.backend_type, "client backend");
    assert_eq!(record.isolation, "repeatable read");
    assert_eq!(record.started, started);
    assert_eq!(record.statements, 7);
    assert_eq!(record.snapshots, [snapshot]);
    assert_eq!(record.snapshot_statements, [2]);
    assert_eq!(record.snapshot_nested, [false]);
    assert_eq!((record.ended.as_str(), record.left_out), ("commit", 0));
    let end = record.end_lsn.as_deref().unwrap();
    let ordered =
        format!("SELECT '{before}' < '{end}'::pg_lsn AND '{end}' <= pg_current_wal_insert_lsn()");
    assert_eq!(reader.one(&ordered), "t");
    // One that wrote nothing has no id and no commit record.
    assert_eq!((records[2].xid, &records[2].end_lsn), (None, &None));
}

#[test]
fn the_end_is_that_of_the_commit_record() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run("CREATE TABLE t (k int)");
    session.run("INSERT INTO t VALUES (1)");
    let records = reader.take_of(session.pid);
    let (xid, end) = (records[1].xid.unwrap(), records[1].end_lsn.clone().unwrap());
    reader.run("CHECKPOINT");
    let mut waldump = cluster
        .run_as()
        .command(cluster.binaries().program("pg_waldump"), cluster.folder());
    waldump.arg("-p").arg(cluster.data_folder().join("pg_wal"));
    // The record before `end` is the one that ends there.
    let said = waldump
        .args(["-s", "0/1000028", "-e", &end])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let last = said.lines().last().unwrap_or_default();
    assert!(
        last.contains("Transaction")
            && last.contains("COMMIT")
            && last.contains(&format!("tx: {xid:>10}")),
        "{xid} {end}: {last}"
    );
}

#[test]
fn under_read_committed_each_change_of_the_snapshot_is_noted() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session_a = session(&cluster);
    let mut session_b = session(&cluster);
    session_a.run("CREATE TABLE t (k int)");
    session_a.run("BEGIN");
    let first = session_a.one("SELECT pg_current_snapshot()");
    session_a.run("SELECT 1");
    session_a.run("SHOW work_mem");
    session_b.run("BEGIN");
    session_b.run("INSERT INTO t VALUES (1)");
    let while_open = session_a.one("SELECT pg_current_snapshot()");
    session_b.run("COMMIT");
    let last = session_a.one("SELECT pg_current_snapshot()");
    session_a.run("COMMIT");

    let records = reader.take();
    let of_a = records
        .iter()
        .rfind(|record| record.pid == session_a.pid)
        .unwrap();
    let of_b = records
        .iter()
        .rfind(|record| record.pid == session_b.pid)
        .unwrap();
    assert_eq!(of_a.isolation, "read committed");
    // That b has begun to write changes nothing of what a sees, and not its snapshot either.
    assert_eq!(first, while_open);
    assert_eq!(of_a.snapshots, [first, last]);
    assert_eq!(of_a.snapshot_statements, [2, 6]);
    assert_eq!(of_a.statements, 7);
    assert_eq!(of_b.statements, 3);
}

#[test]
fn statements_of_the_extended_protocol_are_told_apart() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut other = session(&cluster);
    other.run("CREATE TABLE t (k int)");
    let mut session = session(&cluster);
    session.run("BEGIN");
    for _ in 0..2 {
        // Parse, Bind and Execute of each, all of them in one flight.
        let mut pipeline = session.connection.pipeline();
        pipeline.run_sql("SELECT count(*) FROM t");
        pipeline.run_sql("INSERT INTO t VALUES (1)");
        pipeline.run_sql("SHOW work_mem");
        pipeline.run_sql("SELECT * FROM t FOR UPDATE");
        pipeline.finish().unwrap();
        other.run("INSERT INTO t VALUES (2)");
    }
    session.run("COMMIT");
    let record = reader.take_of(session.pid).pop().unwrap();
    assert_eq!(record.statements, 10);
    // The first, and the first after the other's commit.
    assert_eq!(record.snapshot_statements, [2, 6]);
    assert_eq!(record.snapshot_nested, [false, false]);
}

#[test]
fn the_running_are_listed_in_order() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut open: Vec<_> = (0..9).map(|_| session(&cluster)).collect();
    open[0].run("CREATE TABLE t (k int)");
    for at in [4, 2, 7, 0, 8, 1, 6, 3, 5] {
        let session = &mut open[at];
        session.run("BEGIN");
        session.run("INSERT INTO t VALUES (1)");
    }
    open[6].run("COMMIT");
    let mut session = session(&cluster);
    let snapshot = session.one("SELECT pg_current_snapshot()");
    assert!(snapshot.matches(',').count() > 4, "{snapshot}");
    assert_eq!(reader.take_of(session.pid)[0].snapshots, [snapshot]);
}

#[test]
fn subtransactions_are_told_by_how_they_ended() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run("CREATE TABLE t (k int)");
    session.run("BEGIN");
    let write = "INSERT INTO t VALUES (1) RETURNING xmin";
    session.run("SAVEPOINT kept");
    let kept: u64 = session.one(write).parse().unwrap();
    session.run("SAVEPOINT undone");
    let undone: u64 = session.one(write).parse().unwrap();
    session.run("SAVEPOINT within");
    let within: u64 = session.one(write).parse().unwrap();
    session.run("RELEASE within");
    session.run("ROLLBACK TO undone");
    let again: u64 = session.one(write).parse().unwrap();
    session.run("SAVEPOINT empty");
    session.run("COMMIT");
    let record = reader.take_of(session.pid).pop().unwrap();
    let sorted = |mut ids: Vec<u64>| {
        ids.sort_unstable();
        ids
    };
    assert_eq!(sorted(record.subxids), [kept, again]);
    assert_eq!(sorted(record.aborted_subxids), [undone, within]);
    assert_eq!(record.xid, Some(kept - 1));
}

#[test]
fn more_subtransactions_than_the_server_lists_are_all_recorded() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut writer = session(&cluster);
    let mut other = session(&cluster);
    writer.run("CREATE TABLE t (k int)");
    writer.run("BEGIN");
    let xid = writer.one("SELECT pg_current_xact_id()");
    writer.run(
        "DO $$ BEGIN FOR i IN 1..500 LOOP
           BEGIN INSERT INTO t VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END;
         END LOOP; END $$",
    );
    other.run("SELECT pg_current_xact_id()");
    other.run("SELECT 1");
    writer.run("COMMIT");
    let records = reader.take();
    let seen = records
        .iter()
        .rfind(|record| record.pid == other.pid)
        .unwrap();
    // By the others it is seen as one.
    assert!(seen.snapshots[0].ends_with(&format!(":{xid}")), "{seen:?}");
    let written = records
        .iter()
        .rfind(|record| record.pid == writer.pid)
        .unwrap();
    assert_eq!(written.subxids.len(), 500);
    assert_eq!(written.left_out, 0);
}

#[test]
fn what_does_not_fit_into_a_record_is_counted_in_it() {
    let cluster = server_with(options().set("hindcast.ring_size", "64kB"));
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run("CREATE TABLE t (k int)");
    session.run(
        "DO $$ BEGIN FOR i IN 1..5000 LOOP
           BEGIN INSERT INTO t VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END;
         END LOOP; END $$",
    );
    let record = reader.take_of(session.pid).pop().unwrap();
    assert!(record.subxids.len() > 1000, "{}", record.subxids.len());
    assert!(record.left_out as usize >= 5000 - record.subxids.len());
    // And the next is whole again.
    session.run("INSERT INTO t VALUES (1)");
    assert_eq!(reader.take_of(session.pid).pop().unwrap().left_out, 0);
}

#[test]
fn ids_have_64_bits() {
    let mut cluster = server();
    cluster.stop(Shutdown::Fast).unwrap();
    let resetwal = cluster.binaries().program("pg_resetwal");
    let mut reset = cluster.run_as().command(resetwal, cluster.folder());
    reset.args(["-e", "7", "-D"]).arg(cluster.data_folder());
    assert!(reset.status().unwrap().success());
    cluster.start().unwrap();

    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    session.run("BEGIN");
    let xid: u64 = session.one("SELECT pg_current_xact_id()").parse().unwrap();
    let snapshot = session.one("SELECT pg_current_snapshot()");
    session.run("SAVEPOINT s");
    session.run("CREATE TABLE u (k int)");
    session.run("COMMIT");
    assert_eq!(xid >> 32, 7);
    let record = reader.take_of(session.pid).pop().unwrap();
    assert_eq!((record.xid, record.subxids), (Some(xid), vec![xid + 1]));
    assert!(
        record.snapshots.contains(&snapshot),
        "{:?}",
        record.snapshots
    );
}

#[test]
fn a_statement_that_waited_for_a_row_is_marked() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut first = session(&cluster);
    first.run("CREATE TABLE t (k int PRIMARY KEY, v int)");
    first.run("INSERT INTO t VALUES (1, 0), (2, 0)");
    let waited = [
        "SELECT v FROM t WHERE k = 1 AND v < 5 FOR UPDATE",
        "UPDATE t SET v = v WHERE k IN (SELECT k FROM t WHERE k = 1 FOR UPDATE)",
        "UPDATE t SET v = v + 1 WHERE k = 1",
        "SELECT v FROM t WHERE k = 1 FOR UPDATE",
        "WITH w AS (UPDATE t SET v = v + 1 WHERE k = 1 RETURNING v) SELECT v FROM w",
    ];
    for statement in waited {
        let mut second = session(&cluster);
        first.run("BEGIN");
        first.run("UPDATE t SET v = v + 10 WHERE k = 1");
        let blocked = format!("SELECT pg_blocking_pids({})", second.pid);
        let pid = second.pid;
        let waiting = std::thread::spawn(move || {
            second.run("BEGIN");
            second.run("UPDATE t SET v = v + 1 WHERE k = 2");
            second.run(statement);
            second.run("COMMIT");
        });
        wait_for("the second to wait", || {
            (reader.one(&blocked) != "{}").then_some(())
        });
        first.run("COMMIT");
        waiting.join().unwrap();
        let record = reader.take_of(pid).pop().unwrap();
        assert_eq!(record.rechecked, [3], "{statement}");
    }
}

#[test]
fn a_statement_that_waited_is_marked_whether_or_not_there_is_a_newer_row() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut first = session(&cluster);
    first.run("CREATE TABLE t (k int PRIMARY KEY)");
    first.run("CREATE TABLE of_t (t int REFERENCES t)");
    first.run("INSERT INTO t VALUES (1)");
    let lock = "SELECT FROM t WHERE k = 1 FOR UPDATE";
    let waited = [
        (lock, lock),
        (lock, "INSERT INTO of_t VALUES (1)"),
        ("INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (2)"),
        (
            "INSERT INTO t VALUES (3)",
            "INSERT INTO t VALUES (3) ON CONFLICT DO NOTHING",
        ),
        ("INSERT INTO t VALUES (4)", "COPY t FROM PROGRAM 'echo 4'"),
        (lock, "ALTER TABLE t ADD COLUMN IF NOT EXISTS x int"),
        (lock, "LOCK TABLE t"),
        (
            "SELECT pg_advisory_xact_lock(1)",
            "SELECT pg_advisory_xact_lock(1)",
        ),
    ];
    for (held, statement) in waited {
        let mut second = session(&cluster);
        first.run("BEGIN");
        first.run(held);
        let blocked = format!("SELECT pg_blocking_pids({})", second.pid);
        let pid = second.pid;
        let waiting = std::thread::spawn(move || {
            second.run("BEGIN");
            second.run("SELECT FROM t");
            second.run(statement);
            second.run("SELECT FROM t");
            second.run("COMMIT");
        });
        wait_for("the second to wait", || {
            (reader.one(&blocked) != "{}").then_some(())
        });
        first.run("ROLLBACK");
        waiting.join().unwrap();
        let record = reader.take_of(pid).pop().unwrap();
        assert_eq!(record.rechecked, [3], "{statement}");
    }
}

/// By its next snapshot those may be over whose rows it has skipped.
#[test]
fn what_a_statement_took_that_skips_locked_rows_is_told_by_what_could_be_seen_then() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut first = session(&cluster);
    first.run("CREATE TABLE t (k int PRIMARY KEY, v int)");
    first.run("INSERT INTO t VALUES (1, 0), (2, 0)");
    let mut holder = session(&cluster);
    holder.run("BEGIN");
    holder.run("UPDATE t SET v = 1 WHERE k = 1");
    let held = holder.one("SELECT txid_current()");
    let mut second = session(&cluster);
    let pid = second.pid;
    let taking = std::thread::spawn(move || {
        second.run("BEGIN");
        second.run("SELECT k FROM t WHERE pg_sleep(0.5) IS NOT NULL FOR UPDATE SKIP LOCKED");
        second.run("COMMIT");
    });
    let sleeps = format!("SELECT wait_event FROM pg_stat_activity WHERE pid = {pid}");
    wait_for("the second to sleep", || {
        (first.one(&sleeps) == "PgSleep").then_some(())
    });
    first.run("BEGIN");
    first.run("UPDATE t SET v = 2 WHERE k = 2");
    let seen = first.one("SELECT txid_current()").parse::<u64>().unwrap();
    first.run("COMMIT");
    taking.join().unwrap();
    holder.run("COMMIT");
    let record = reader.take_of(pid).pop().unwrap();
    assert_eq!(record.rechecked, []);
    let behind = record.snapshots.last().unwrap();
    assert_eq!(*behind, format!("{held}:{}:{held}", seen + 1));
}

#[test]
fn only_the_databases_asked_for_are_recorded() {
    let cluster = server();
    cluster.sql("postgres", "CREATE DATABASE one").unwrap();
    cluster.sql("postgres", "CREATE DATABASE \"Two\"").unwrap();
    let mut reader = reader(&cluster);
    let mut one = session_in(&cluster, "one");
    let mut two = session_in(&cluster, "Two");
    one.run("SELECT 1");
    two.run("SELECT 1");
    assert_eq!(reader.take_of(one.pid).len(), 1);
    let mut set = |value: &str| {
        reader.run(&format!("ALTER SYSTEM SET hindcast.databases = {value}"));
        reader.run("SELECT pg_reload_conf()");
        let current = value.replace('\'', "");
        for session in [&mut one, &mut two] {
            wait_for("the setting", || {
                (session.one("SHOW hindcast.databases") == current).then_some(())
            });
        }
        reader.take();
        one.run("SELECT 1");
        two.run("SELECT 1");
        let records = reader.take();
        [one.pid, two.pid].map(|pid| records.iter().any(|record| record.pid == pid))
    };
    assert_eq!(set("'other, one'"), [true, false]);
    assert_eq!(set("'\"Two\"'"), [false, true]);
    assert_eq!(set("'two'"), [false, false]);
    assert_eq!(set("''"), [true, true]);
}

#[test]
fn recording_can_be_switched_off_and_on() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    let mut switch = |session: &mut Session, value: &str| {
        reader.run(&format!("ALTER SYSTEM SET hindcast.enabled = {value}"));
        reader.run("SELECT pg_reload_conf()");
        wait_for("the setting", || {
            (session.one("SHOW hindcast.enabled") == value).then_some(())
        });
        reader.take_of(session.pid)
    };
    switch(&mut session, "off");
    session.run("SELECT 1");
    assert_eq!(switch(&mut session, "off").len(), 0);
    session.run("BEGIN");
    session.run("SELECT 1");
    switch(&mut session, "on");
    session.run("COMMIT");
    session.run("SELECT 1");
    let records = switch(&mut session, "on");
    // Of the first, what ran before is missing.
    assert!(records[0].left_out > 0 && records[0].snapshots.is_empty());
    assert_eq!((records[1].left_out, records[1].snapshots.len()), (0, 1));
    assert_eq!(records[0].ordinal + 1, records[1].ordinal);
}
