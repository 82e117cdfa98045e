//! The ring: full, read by several, by those who may, and by many written.

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
fn each_reader_is_given_all_records() {
    let cluster = server();
    let (mut first, mut second) = (reader(&cluster), reader(&cluster));
    let pids = format!("{{{},{}}}", first.pid, second.pid);
    assert_eq!(first.one("SELECT readers FROM hindcast.status()"), pids);
    let mut session = session(&cluster);
    for _ in 0..5 {
        session.run("SELECT 1");
    }
    assert_eq!(first.take_of(session.pid).len(), 5);
    assert_eq!(first.take_of(session.pid).len(), 0);
    let used = "SELECT used > 0 FROM hindcast.status()";
    assert_eq!(first.one(used), "t", "the second has not taken them");
    assert_eq!(second.take_of(session.pid).len(), 5);
    assert_eq!(first.one(used), "f");

    // Whoever ends while taking holds nothing back.
    first.run("BEGIN");
    session.run("SELECT 1");
    assert_eq!(first.take_of(session.pid).len(), 1);
    second.run(&format!("SELECT pg_terminate_backend({})", first.pid));
    let one = format!("{{{}}}", second.pid);
    crate::server::wait_for("the first's end", || {
        let readers = second.one("SELECT readers FROM hindcast.status()");
        (readers == one).then_some(())
    });
    assert_eq!(second.take_of(session.pid).len(), 1);
    let third = crate::server::session(&cluster).take();
    assert!(third.iter().all(|record| record.pid != session.pid));
}

#[test]
fn a_reader_that_another_leaves_behind_is_told_so() {
    let cluster = server_with(options().set("hindcast.ring_size", "64kB"));
    let (mut quick, mut slow) = (reader(&cluster), reader(&cluster));
    let mut session = session(&cluster);
    let mut taken = 0;
    for _ in 0..10 {
        for _ in 0..100 {
            session.run("SELECT 1");
        }
        taken += quick.take_of(session.pid).len();
    }
    assert_eq!(taken, 1000, "nobody holds up the quick one");
    assert_eq!(quick.one("SELECT lost FROM hindcast.status()"), "0");
    let refused = slow.fails("SELECT * FROM hindcast.take()");
    assert!(
        refused.contains("went on without this session"),
        "{refused}"
    );
    session.run("SELECT 1");
    let mut again = reader(&cluster);
    session.run("SELECT 1");
    assert_eq!(again.take_of(session.pid).len(), 1);
}

#[test]
fn more_readers_than_there_is_room_for_are_refused() {
    let cluster = server();
    let mut readers: Vec<_> = (0..16).map(|_| reader(&cluster)).collect();
    let refused = session(&cluster).fails("SELECT * FROM hindcast.take()");
    assert!(refused.contains("16 sessions take"), "{refused}");
    let left = readers.swap_remove(7);
    readers[0].run(&format!("SELECT pg_terminate_backend({})", left.pid));
    crate::server::wait_for("one place", || {
        let count = "SELECT cardinality(readers) FROM hindcast.status()";
        (readers[0].one(count) == "15").then_some(())
    });
    reader(&cluster);
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
