//! A session on the log: how far it is, how it ends, and how the next one goes on.

use std::time::{Duration, Instant};

use hindcast_cluster::{Cluster, Shutdown};
use hindcast_pg::{Error, Lsn};
use hindcast_standby::follow::{Acknowledgement, Event, Log};
use hindcast_standby::source::{
    Names, SourceError, Stream, StreamOptions, TableFilter, preflight, publication, slot,
};

use super::support::{PATIENCE, Stage, cluster, eventually, options, read_to, words};

fn everywhere(lsn: Lsn) -> Acknowledgement {
    Acknowledgement {
        received: lsn,
        visible: lsn,
        durable: lsn,
    }
}

#[test]
fn following_on_repeats_nothing_and_misses_nothing() {
    let stage = Stage::with("again", "CREATE TABLE t (k int PRIMARY KEY)");
    let from = stage.prepare();
    stage.sql(&"BEGIN; INSERT INTO t SELECT coalesce(max(k), 0) + 1 FROM t; INSERT INTO t SELECT max(k) + 1 FROM t; COMMIT;\n".repeat(20));
    let end = stage.end();

    // Stops after every transaction, in the middle of the next one, and acknowledges only every
    // third.
    let (mut all, mut progress, mut round) = (String::new(), from, 0);
    while progress < end {
        let mut stream = stage.stream(progress, StreamOptions::default());
        let begun = Instant::now();
        let mut transaction = String::new();
        while begun.elapsed() < PATIENCE {
            let tick = Instant::now() + Duration::from_millis(20);
            if let Some(event) = stream.next(tick).unwrap() {
                transaction += &words(&event);
                if let Event::Commit(commit) = event {
                    progress = commit.end_lsn;
                    break;
                }
            }
            if stream.read_to() >= end {
                progress = end;
                break;
            }
        }
        all += &transaction;
        round += 1;
        if round % 3 == 0 {
            stream.acknowledge(everywhere(progress)).unwrap();
        }
        drop(stream);
        // The primary may not have noticed yet.
        let slot = &stage.names.slot;
        let active = format!("SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'");
        eventually("the slot is free", || stage.sql(&active) == "f");
    }
    let rows: Vec<_> = all
        .lines()
        .filter(|line| line.starts_with("t insert"))
        .collect();
    let expected: Vec<_> = (1..=40).map(|k| format!("t insert ({k})")).collect();
    assert_eq!(rows, expected);
}

#[test]
fn a_slot_beside_a_busy_database_does_not_keep_wal_for_ever() {
    let stage = Stage::with("idle", "CREATE TABLE t (k int PRIMARY KEY)");
    let from = stage.prepare();
    let mut stream = stage.stream(from, StreamOptions::default());
    stage.sql("CREATE UNLOGGED TABLE other (k int); SELECT pg_logical_emit_message(true, 'test', repeat('x', 100000));");
    let end = stage.end();
    assert!(end.0 > from.0 + 100_000);
    // With a message of others, and nothing else.
    assert_eq!(read_to(&mut stream, end), "begin\ncommit\n");
    assert!(stream.primary_end() >= end);
    eventually("the slot lets go of the WAL", || {
        let read = stream.read_to();
        stream.acknowledge(everywhere(read)).unwrap();
        stream
            .next(Instant::now() + Duration::from_millis(5))
            .unwrap();
        stage.confirmed() >= end
    });
}

#[test]
fn the_primary_hears_of_us_even_when_nothing_happens() {
    let stage = Stage::with(
        "silent",
        "CREATE TABLE t (k int PRIMARY KEY); ALTER DATABASE silent SET wal_sender_timeout = '300ms'",
    );
    let from = stage.prepare();
    let options = StreamOptions {
        status_interval: Duration::from_millis(50),
        ..StreamOptions::default()
    };
    let mut stream = stage.stream(from, options);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1200) {
        stream
            .next(Instant::now() + Duration::from_millis(10))
            .unwrap();
        stream.acknowledge(everywhere(from)).unwrap();
    }
    // And it does end sessions that are silent.
    let begun = Instant::now();
    let error = loop {
        assert!(begun.elapsed() < PATIENCE);
        match stream.next(Instant::now() + Duration::from_millis(50)) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error, SourceError::Lost(_)) && error.is_transient(),
        "{error:?}"
    );
}

#[test]
fn a_stream_can_be_interrupted_and_a_terminated_one_is_lost() {
    let stage = Stage::with("ended", "CREATE TABLE t (k int PRIMARY KEY)");
    let from = stage.prepare();
    let mut stream = stage.stream(from, StreamOptions::default());
    let interrupter = stream.interrupter();
    let thread = std::thread::spawn(move || {
        let begun = Instant::now();
        loop {
            if let Err(error) = stream.next(Instant::now() + PATIENCE) {
                return (error, begun.elapsed());
            }
        }
    });
    interrupter.interrupt();
    let (error, took) = thread.join().unwrap();
    assert!(
        matches!(error, SourceError::Lost(Error::Interrupted)),
        "{error:?}"
    );
    assert!(!error.is_transient() && took < PATIENCE / 2);

    let slot = &stage.names.slot;
    let pid = format!("SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{slot}'");
    eventually("the slot is free", || stage.sql(&pid).is_empty());
    let mut stream = stage.stream(from, StreamOptions::default());
    stage.sql(&format!("SELECT pg_terminate_backend(({pid}))"));
    let begun = Instant::now();
    let error = loop {
        assert!(begun.elapsed() < PATIENCE);
        match stream.next(Instant::now() + Duration::from_millis(50)) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error, SourceError::Lost(_)) && error.is_transient(),
        "{error:?}"
    );
}

#[test]
fn the_end_of_the_log_is_known_before_it_is_sent() {
    let stage = Stage::with("ends", "CREATE TABLE t (k int PRIMARY KEY)");
    let from = stage.prepare();
    let stream = stage.stream(from, StreamOptions::default());
    stage.sql("INSERT INTO t VALUES (1)");
    let end = stage.end();
    eventually("the stream knows although nobody reads it", || {
        stream.primary_end() >= end
    });
    assert_eq!(stream.read_to(), from);
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'ends' AND application_name = 'hindcast standby lag'";
    assert_eq!(stage.sql(sessions), "1");
    drop(stream);
    eventually("its session has ended", || stage.sql(sessions) == "0");
}

#[test]
fn the_clocks_are_compared() {
    let stage = Stage::with("clocks", "CREATE TABLE t (k int PRIMARY KEY)");
    let from = stage.prepare();
    stage.sql("INSERT INTO t VALUES (1)");
    let mut stream = stage.stream(from, StreamOptions::default());
    read_to(&mut stream, stage.end());
    // Both are this machine's.
    assert!(stream.clock_offset() <= 0 && stream.clock_offset() > -1_000_000);
}

#[test]
fn a_primary_that_crashed_goes_on_where_we_were() {
    let mut cluster = cluster(options());
    cluster
        .sql("postgres", "CREATE TABLE t (k int PRIMARY KEY)")
        .unwrap();
    let url = |cluster: &Cluster| cluster.socket_url("postgres");
    let names = Names::new("crash").unwrap();
    let tables = preflight(&url(&cluster), &TableFilter::default(), &names.slot)
        .unwrap()
        .tables;
    publication::publish(&url(&cluster), &names, &tables).unwrap();
    let mut progress = slot::create(&url(&cluster), &names)
        .unwrap()
        .consistent_point;
    let mut seen = Vec::new();
    for round in 0..3 {
        // Half of it is read before the crash.
        let sql: String = (0..20)
            .map(|k| format!("INSERT INTO t VALUES ({});", 20 * round + k))
            .collect();
        cluster.sql("postgres", &sql).unwrap();
        let mut stream = Stream::start(
            &url(&cluster),
            &names.slot,
            &names.publication,
            progress,
            StreamOptions::default(),
        )
        .unwrap();
        let begun = Instant::now();
        let mut row = String::new();
        while seen.len() < 20 * round + 10 {
            assert!(begun.elapsed() < PATIENCE);
            match stream
                .next(Instant::now() + Duration::from_millis(50))
                .unwrap()
            {
                Some(Event::Commit(commit)) => {
                    seen.push(std::mem::take(&mut row));
                    progress = commit.end_lsn;
                }
                Some(event @ Event::Change { .. }) => row = words(&event),
                _ => {}
            }
            // What was acknowledged and what was not, both are followed on from.
            if round == 1 {
                stream.acknowledge(everywhere(progress)).unwrap();
            }
        }
        cluster.stop(Shutdown::Immediate).unwrap();
        let begun = Instant::now();
        let error = loop {
            assert!(begun.elapsed() < PATIENCE);
            match stream.next(Instant::now() + Duration::from_millis(50)) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(error.is_transient(), "{error:?}");
        cluster.start().unwrap();
        slot::check(&url(&cluster), &names, progress).unwrap();
    }
    let mut stream = Stream::start(
        &url(&cluster),
        &names.slot,
        &names.publication,
        progress,
        StreamOptions::default(),
    )
    .unwrap();
    let end = cluster
        .sql("postgres", "SELECT pg_current_wal_flush_lsn()")
        .unwrap()
        .parse()
        .unwrap();
    seen.extend(
        read_to(&mut stream, end)
            .lines()
            .filter(|line| line.contains("insert"))
            .map(|line| format!("{line}\n")),
    );
    let expected: Vec<_> = (0..60).map(|k| format!("t insert ({k})\n")).collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_primary_that_says_nothing_is_lost() {
    let stage = Stage::with("mute", "CREATE TABLE t (k int PRIMARY KEY)");
    let from = stage.prepare();
    let options = StreamOptions {
        status_interval: Duration::from_millis(50),
        silence_max: Duration::from_millis(800),
        ..StreamOptions::default()
    };
    let mut stream = stage.stream(from, options);
    let read = |stream: &mut Stream| {
        let event = stream.next(Instant::now() + Duration::from_millis(10));
        event.map(drop)?;
        stream.acknowledge(everywhere(from))
    };
    // It answers when it is asked.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2000) {
        read(&mut stream).unwrap();
    }
    let pid =
        stage.sql("SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'hindcast_mute'");
    let signal = |name: &str| {
        let sent = std::process::Command::new("kill")
            .args([name, &pid])
            .status();
        assert!(sent.unwrap().success());
    };
    signal("-STOP");
    let begun = Instant::now();
    let error = loop {
        assert!(begun.elapsed() < PATIENCE);
        if let Err(error) = read(&mut stream) {
            break error;
        }
    };
    signal("-CONT");
    assert!(
        matches!(error, SourceError::Lost(Error::Timeout(_))) && error.is_transient(),
        "{error:?}"
    );
}

#[test]
fn a_stream_that_is_finished_has_left_its_slot() {
    let stage = Stage::with("finished", "CREATE TABLE t (k int PRIMARY KEY, v text)");
    let from = stage.prepare();
    stage.sql("INSERT INTO t SELECT k, repeat('v', 1000) FROM generate_series(1, 20000) k; INSERT INTO t VALUES (0, '');");
    let end = stage.end();
    // In the middle of the first transaction, and after everything.
    for to in [Lsn(0), end] {
        let mut stream = stage.stream(from, StreamOptions::default());
        stream.next(Instant::now() + PATIENCE).unwrap();
        read_to(&mut stream, to);
        stream.finish();
        assert_eq!(
            stage.sql(
                "SELECT active FROM pg_replication_slots WHERE slot_name = 'hindcast_finished'"
            ),
            "f"
        );
    }
}
