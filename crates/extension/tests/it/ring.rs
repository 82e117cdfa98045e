//! The ring: full, read by one, by those who may, and by many written.

use crate::server::{options, reader, server, server_with, session};

#[test]
fn a_full_ring_loses_records_and_counts_them() {
    let cluster = server_with(options().set("hindcast.ring_size", "64kB"));
    let mut session = session(&cluster);
    for _ in 0..1000 {
        session.run("SELECT 1");
    }
    let mut reader = reader_without_taking(&cluster);
    let status = reader.run("SELECT records, lost, ring_size, used FROM hindcast.status()");
    let row = status.first().unwrap();
    let (records, lost): (i64, i64) = (row.get("records"), row.get("lost"));
    // The reader's own login and question are among the lost.
    assert!(lost > 100 && records > 100, "{records} {lost}");
    assert!(row.get::<i64>("used") <= row.get::<i64>("ring_size"));
    let taken = reader.take();
    assert_eq!(taken.len() as i64, records);
    assert!(taken.iter().all(|record| record.lost == 0));
    session.run("SELECT 1");
    let next = reader.take_of(session.pid);
    assert_eq!((next.len(), next[0].ordinal), (1, 1001));
    assert!(next[0].lost >= lost);
}

fn reader_without_taking(cluster: &hindcast_cluster::Cluster) -> crate::server::Session {
    session(cluster)
}

#[test]
fn what_a_transaction_took_is_gone_when_it_commits() {
    let cluster = server();
    let mut reader = reader(&cluster);
    let mut session = session(&cluster);
    for _ in 0..5 {
        session.run("SELECT 1");
    }
    let two = "SELECT ordinal FROM hindcast.take(2)";
    reader.run("BEGIN");
    assert_eq!(reader.run(two).len(), 2);
    assert_eq!(reader.one(two), "3");
    reader.run("ROLLBACK");
    reader.run("BEGIN");
    assert_eq!(reader.one(two), "1");
    reader.run("SAVEPOINT s");
    let refused = reader.fails(two);
    assert!(refused.contains("within a savepoint"), "{refused}");
    reader.run("ROLLBACK TO s");
    reader.run("COMMIT");
    assert_eq!(reader.one("SELECT count(*) FROM hindcast.take(0)"), "0");
    assert_eq!(reader.one("SELECT count(*) FROM hindcast.take(NULL)"), "0");
    let rest: Vec<_> = reader.take().iter().map(|record| record.ordinal).collect();
    assert_eq!(rest, [3, 4, 5]);
    assert_eq!(reader.one("SELECT used FROM hindcast.status()"), "0");
}

#[test]
fn a_second_reader_is_told_of_the_first() {
    let cluster = server();
    let mut first = reader(&cluster);
    let mut second = session(&cluster);
    let refused = second.fails("SELECT * FROM hindcast.take()");
    assert!(
        refused.contains(&format!(
            "process {} takes hindcast's records already",
            first.pid
        )),
        "{refused}"
    );
    assert_eq!(
        second.one("SELECT reader FROM hindcast.status()"),
        first.pid.to_string()
    );
    first.run("BEGIN");
    second.run(&format!("SELECT pg_terminate_backend({})", first.pid));
    crate::server::wait_for("the first's end", || {
        second
            .one("SELECT reader IS NULL FROM hindcast.status()")
            .eq("t")
            .then_some(())
    });
    assert!(!second.take().is_empty());
}

#[test]
fn only_those_may_read_who_were_granted_it() {
    let cluster = server();
    cluster
        .sql("postgres", "CREATE ROLE recorder LOGIN")
        .unwrap();
    let mut recorder = session(&cluster);
    recorder.run("SET SESSION AUTHORIZATION recorder");
    for sql in [
        "SELECT * FROM hindcast.take()",
        "SELECT * FROM hindcast.status()",
    ] {
        assert!(recorder.fails(sql).contains("permission denied for schema"));
    }
    cluster
        .sql("postgres", "GRANT USAGE ON SCHEMA hindcast TO recorder")
        .unwrap();
    for sql in [
        "SELECT * FROM hindcast.take()",
        "SELECT * FROM hindcast.status()",
    ] {
        assert!(
            recorder
                .fails(sql)
                .contains("permission denied for function")
        );
    }
    cluster
        .sql(
            "postgres",
            "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA hindcast TO recorder",
        )
        .unwrap();
    recorder.run("SELECT * FROM hindcast.status()");
    assert!(!recorder.take().is_empty());
}

#[test]
fn without_the_library_nothing_is_recorded_and_nothing_fails() {
    let cluster = hindcast_cluster::Cluster::temporary(options()).unwrap();
    let mut session = session(&cluster);
    session.run("CREATE EXTENSION hindcast");
    let status = session.run("SELECT version, epoch, lost FROM hindcast.status()");
    let row = status.first().unwrap();
    assert_eq!(row.string(0), hindcast_extension::VERSION);
    assert_eq!((row.text(1), row.text(2)), (None, None));
    let refused = session.fails("SELECT * FROM hindcast.take()");
    assert!(refused.contains("shared_preload_libraries"), "{refused}");
}

#[test]
fn many_writers_and_a_reader_lose_nothing_uncounted() {
    const WRITERS: usize = 8;
    const EACH: i64 = 3000;
    // Wraps around all the time, and is full now and then.
    let cluster = server_with(options().set("hindcast.ring_size", "64kB"));
    let mut reader = reader(&cluster);
    let before: i64 = reader
        .one("SELECT records + lost FROM hindcast.status()")
        .parse()
        .unwrap();
    let mut sessions: Vec<_> = (0..WRITERS).map(|_| session(&cluster)).collect();
    let writing: Vec<_> = sessions
        .drain(..)
        .map(|mut session| {
            std::thread::spawn(move || {
                for at in 0..EACH {
                    match at % 3 {
                        0 => session.run("SELECT pg_current_xact_id()"),
                        1 => session.run(
                            "BEGIN; SELECT 1; SAVEPOINT a; SELECT pg_current_xact_id(); COMMIT",
                        ),
                        _ => session.run("SELECT 1"),
                    };
                }
                session
            })
        })
        .collect();
    let mut records = Vec::new();
    while !writing.iter().all(|thread| thread.is_finished()) {
        records.extend(reader.take());
    }
    let done: Vec<_> = writing
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    records.extend(reader.take());
    let pids: Vec<_> = done.iter().map(|session| session.pid).collect();
    let after: i64 = reader
        .one("SELECT records + lost FROM hindcast.status()")
        .parse()
        .unwrap();
    let lost: i64 = reader
        .one("SELECT lost FROM hindcast.status()")
        .parse()
        .unwrap();
    assert!(after - before >= WRITERS as i64 * EACH);
    assert_eq!(before + records.len() as i64 + lost, after);
    // Each is whole, and those of a session are in order.
    for pid in pids {
        let own: Vec<_> = records.iter().filter(|record| record.pid == pid).collect();
        assert!(own.is_sorted_by(|a, b| a.ordinal < b.ordinal));
        for record in own {
            let (statements, xid) = match (record.ordinal - 1) % 3 {
                0 => (1, true),
                1 => (5, true),
                _ => (1, false),
            };
            assert_eq!(
                (record.statements, record.xid.is_some()),
                (statements, xid),
                "{record:?}"
            );
            assert_eq!(record.snapshots.len(), record.snapshot_statements.len());
            assert_eq!(record.left_out, 0);
        }
    }
}
