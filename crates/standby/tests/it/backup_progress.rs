//! How far a backup is: through lost connections, workers at different epochs, and idle times.

use std::time::{Duration, Instant};

use crate::backup_support::{Primary, SIMPLE, pump, pump_until};
use hindcast_cluster::{Cluster, Options as ClusterOptions, Shutdown};
use hindcast_pg::Lsn;
use hindcast_standby::backup::{BackupError, Options};
use hindcast_standby::target::Target;

#[test]
fn a_lost_connection_loses_nothing() {
    for workers in [1, 3] {
        let primary = Primary::new(&format!("lost{workers}"), SIMPLE);
        let side = primary.backup("b");
        let options = Options {
            workers,
            epoch_rows_max: 50,
            ..side.options()
        };
        let mut losses = 0;
        for round in 0..5 {
            primary.sql(&format!(
                "UPDATE t SET v = 'round {round} ' || id; INSERT INTO t SELECT i, 'x' FROM generate_series({0}, {0} + 99) i", 1000 * (round + 1)
            ));
            let mut backup = side.open(options.clone()).unwrap();
            let mut log = side.log(backup.resume_point());
            // The epoch under way, if there is one, is lost or committed.
            let killed = format!(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{}' AND application_name = 'hindcast standby'",
                side.database
            );
            side.sql(&killed);
            let result = pump(&mut log, &mut backup, primary.end()).and_then(|()| backup.drain());
            let error = result.expect_err("there is no connection");
            assert!(error.is_transient(), "{error:?}");
            losses += 1;
        }
        assert_eq!(losses, 5);
        side.catch_up(options).unwrap();
        side.same();
    }
}

#[test]
fn what_is_there_already_is_not_applied_again() {
    let primary = Primary::new("again", SIMPLE);
    primary.sql("INSERT INTO t VALUES (1000, 'once'); DELETE FROM t WHERE id = 1");
    let side = primary.backup("b");
    drop(side.catch_up(side.options()).unwrap());
    primary.sql("INSERT INTO t VALUES (1001, 'once')");
    let mut backup = side.open(side.options()).unwrap();
    // From the very beginning, as if the progress had been forgotten on the way.
    let mut log = side.log(primary.from);
    pump(&mut log, &mut backup, primary.end()).unwrap();
    backup.drain().unwrap();
    side.same();
}

#[test]
fn two_at_a_time_cannot_apply_the_same_epoch() {
    let primary = Primary::new("rivals", SIMPLE);
    let side = primary.backup("b");
    let mut rivals = [
        side.open(side.options()).unwrap(),
        side.open(side.options()).unwrap(),
    ];
    primary.sql("UPDATE t SET v = 'once'; INSERT INTO t VALUES (1000, 'x')");
    let results = rivals.each_mut().map(|backup| {
        let mut log = side.log(backup.resume_point());
        pump(&mut log, backup, primary.end()).and_then(|()| backup.drain())
    });
    assert!(results[0].is_ok());
    assert!(results[1].is_err());
    drop(rivals);
    side.catch_up(side.options()).unwrap();
    side.same();
}

#[test]
fn durable_is_what_the_backup_has_flushed() {
    let primary = Primary::new("flushes", SIMPLE);
    let side = primary.backup("b");
    let options = Options {
        epoch_interval: Duration::ZERO,
        ..side.options()
    };
    let mut backup = side.open(options).unwrap();
    assert_eq!(backup.durable(), primary.from);
    let mut log = side.log(backup.resume_point());
    for round in 0..20 {
        primary.sql(&format!("UPDATE t SET v = 'round {round}'"));
        pump(&mut log, &mut backup, primary.end()).unwrap();
        assert!(backup.durable() <= backup.visible() && backup.visible() <= backup.received());
    }
    let begun = Instant::now();
    while backup.durable() < backup.received() {
        assert!(
            begun.elapsed() < crate::backup_support::PATIENCE,
            "nothing is flushed"
        );
        backup.tick(Instant::now()).unwrap();
        std::thread::yield_now();
    }
    let status = backup.status();
    assert_eq!((status.transactions, status.changes), (20, 2000));
    assert!(
        status.rows_written <= 2000 && status.epochs <= 20,
        "{status:?}"
    );
    assert!(status.visible_commit_time.is_some());
}

#[test]
fn an_idle_backup_notes_that_it_has_seen_the_log() {
    let primary = Primary::new("idle", SIMPLE);
    let side = primary.backup("b");
    let mut backup = side.open(side.options()).unwrap();
    let later = Instant::now() + Duration::from_secs(3600);
    let seen = Lsn(primary.from.0 + 0x1000);
    backup.idle(seen, later).unwrap();
    backup.drain().unwrap();
    assert_eq!((backup.visible(), backup.durable()), (seen, seen));
    drop(backup);
    assert_eq!(side.open(side.options()).unwrap().resume_point(), seen);
}

#[test]
fn a_transaction_in_pieces_is_seen_as_a_whole_or_not_at_all() {
    let primary = Primary::new("pieces", SIMPLE);
    let side = primary.backup("b");
    let mut backup = side
        .open(Options {
            epoch_rows_max: 10,
            ..side.options()
        })
        .unwrap();
    let mut log = side.log(backup.resume_point());
    primary.sql("BEGIN; UPDATE t SET v = 'new'; INSERT INTO t SELECT i, 'new' FROM generate_series(101, 1000) i; COMMIT");
    let seen = "SELECT count(*) FROM t WHERE v = 'new'";
    pump_until(&mut log, &mut backup, primary.end(), |backup| {
        assert!(backup.status().rows_written > 100, "no part was written");
        assert_eq!(side.sql(seen), "0");
    })
    .unwrap();
    backup.drain().unwrap();
    assert_eq!(side.sql(seen), "1000");
    assert_eq!(backup.status().epochs, 1);
}

/// Nothing here is cut because of its age, or because a worker has nothing to do.
#[test]
fn an_epoch_ends_with_the_transaction_that_fills_it_however_far_behind_the_backup_is() {
    let primary = Primary::new("filled_behind", SIMPLE);
    primary.sql("DO $$ BEGIN FOR i IN 1..40 LOOP UPDATE t SET v = v || 'x' WHERE id <= 3; COMMIT; END LOOP; END $$");
    // Larger than an epoch by itself.
    primary.sql("UPDATE t SET v = v || 'y'");
    primary.sql("UPDATE t SET v = v || 'z' WHERE id = 1");
    for workers in [1, 3] {
        let side = primary.backup(&format!("by_{workers}"));
        let options = Options {
            workers,
            epoch_rows_max: 5,
            ..side.options()
        };
        let backup = side.catch_up(options).unwrap();
        assert_eq!(backup.status().epochs, 22, "{workers} workers");
        let ends = "SELECT count(DISTINCT end_lsn) FROM hindcast.standby_progress";
        assert_eq!(side.sql(ends), "23");
        drop(backup);
        side.same();
    }
}

#[test]
fn old_progress_is_deleted() {
    let primary = Primary::new("pruned", SIMPLE);
    let side = primary.backup("b");
    side.sql(&format!(
        "INSERT INTO hindcast.standby_progress (slot, worker, workers, epoch, commit_lsn, end_lsn) SELECT slot, 0, 1, i, commit_lsn, end_lsn FROM \
         hindcast.standby_progress, generate_series(1, {}) i", 5000
    ));
    let mut backup = side
        .open(Options {
            epoch_interval: Duration::ZERO,
            ..side.options()
        })
        .unwrap();
    for place in 1..=1001 {
        let seen = Lsn(primary.from.0 + place);
        backup
            .idle(seen, Instant::now() + Duration::from_secs(3600 * place))
            .unwrap();
        backup.drain().unwrap();
    }
    backup.tick(Instant::now()).unwrap();
    let rows: u64 = side
        .sql("SELECT count(*) FROM hindcast.standby_progress")
        .parse()
        .unwrap();
    assert!(rows < 1100, "{rows}");
    drop(backup);
    assert_eq!(
        side.open(side.options()).unwrap().resume_point(),
        Lsn(primary.from.0 + 1001)
    );
}

/// As the backup is when the server stops between the commits of two workers: worker 1 has not come
/// to the last epoch.
fn set_back(side: &crate::backup_support::BackupSide<'_>, workers: u64, before: &str) {
    let rows = side.sql("SELECT id FROM t UNION SELECT id FROM was ORDER BY 1");
    let of_worker: Vec<&str> = rows
        .lines()
        .filter(|id| {
            let mut key = u32::try_from(id.len()).unwrap().to_le_bytes().to_vec();
            key.extend_from_slice(id.as_bytes());
            hindcast_standby::backup::net::hash_key(&key) % workers == 1
        })
        .collect();
    assert!(of_worker.len() > 5, "worker 1 has rows");
    side.sql(&format!(
        "BEGIN; DELETE FROM t WHERE id IN ({0}); INSERT INTO t SELECT * FROM was WHERE id IN ({0}); \
         DELETE FROM hindcast.standby_progress WHERE worker = 1 AND epoch > {before}; COMMIT",
        of_worker.join(", ")
    ));
}

#[test]
fn workers_at_different_epochs_come_together_first() {
    for later in [3, 1, 5] {
        let primary = Primary::new(&format!("uneven{later}"), SIMPLE);
        let side = primary.backup("b");
        let options = Options {
            workers: 3,
            ..side.options()
        };
        primary.sql("UPDATE t SET v = 'even'");
        drop(side.catch_up(options.clone()).unwrap());
        side.sql("CREATE TABLE was AS SELECT * FROM t");
        let greatest = "SELECT max(epoch) FROM hindcast.standby_progress";
        let before = side.sql(greatest);
        primary.sql(
            "UPDATE t SET v = v || id WHERE id < 70; DELETE FROM t WHERE id BETWEEN 20 AND 50",
        );
        primary.sql("INSERT INTO t SELECT i, 'new' FROM generate_series(30, 40) i; INSERT INTO t SELECT i, 'x' FROM generate_series(200, 260) i");
        drop(side.catch_up(options.clone()).unwrap());
        side.same();
        primary.sql("INSERT INTO t VALUES (5000, 'after'); UPDATE t SET v = 'after' WHERE id < 30");

        set_back(&side, 3, &before);
        let mut backup = side
            .open(Options {
                workers: later,
                ..options
            })
            .unwrap();
        assert_eq!(
            backup.visible().to_string(),
            side.sql("SELECT min(end_lsn) FROM (SELECT DISTINCT ON (worker) end_lsn FROM hindcast.standby_progress WHERE worker < 3 ORDER BY worker, epoch DESC) w")
        );
        let mut log = side.log(backup.resume_point());
        pump(&mut log, &mut backup, primary.end()).unwrap();
        backup.drain().unwrap();
        assert_eq!(backup.visible(), backup.received());
        side.same();
        drop((backup, log));
        side.catch_up(Options {
            workers: 2,
            ..side.options()
        })
        .unwrap();
    }
}

#[test]
fn readers_of_several_workers_see_states_that_the_primary_had() {
    let primary = Primary::new(
        "snapshots",
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 200) i",
    );
    let side = primary.backup("b");
    let options = Options {
        workers: 3,
        epoch_interval: Duration::ZERO,
        snapshot_interval: Duration::from_millis(50),
        ..side.options()
    };
    let mut backup = side.open(options).unwrap();
    let mut log = side.log(backup.resume_point());
    for _ in 0..300 {
        primary.sql("UPDATE t SET v = v + 1");
    }
    let end = primary.end();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let named = hindcast_pg::ConnectOptions::named("reader");
            let mut reader = hindcast_pg::Connection::connect(&side.url(), &named).unwrap();
            let mut seen = Vec::new();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let rows = reader.query("SELECT hindcast.standby_snapshot()").unwrap();
                let Some(snapshot) = rows.first().and_then(|row| row.text(0)).map(str::to_owned)
                else {
                    continue;
                };
                let rows = reader
                    .query(&format!(
                        "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'; SELECT min(v), max(v), count(*) FROM t"
                    ))
                    .unwrap();
                let row = rows.first().unwrap();
                assert_eq!(row.text(0), row.text(1), "half an epoch");
                seen.push(row.parse::<u32>(0).unwrap());
                reader.execute("ROLLBACK").unwrap();
            }
            seen
        });
        pump(&mut log, &mut backup, end).unwrap();
        backup.drain().unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(seen.is_sorted(), "nobody goes back: {seen:?}");
    assert!(!seen.is_empty());
    side.same();
    assert_eq!(
        side.sql("SELECT workers, even FROM hindcast.standby_state"),
        "3|t"
    );
}

/// Versions that applied transactions side by side left this behind when they were killed.
#[test]
fn nothing_goes_on_from_progress_without_workers() {
    let primary = Primary::new("kuafu", SIMPLE);
    let side = primary.backup("b");
    side.sql("UPDATE hindcast.standby_progress SET workers = 0");
    let error = side.open(side.options()).err().expect("it may be anywhere");
    assert!(matches!(error, BackupError::Progress { .. }), "{error:?}");
}

/// A linear congruential generator: the same choices for the same seed.
fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn sessions_that_end_at_any_moment_lose_nothing_and_repeat_nothing() {
    for workers in [1, 2, 4] {
        let primary = Primary::new(
            &format!("storm{workers}"),
            "CREATE TABLE t (id int PRIMARY KEY, n int DEFAULT 0, big text); ALTER TABLE t ALTER big SET STORAGE EXTERNAL; \
             INSERT INTO t SELECT i, 0, repeat('x' || i, 1500) FROM generate_series(1, 300) i; \
             CREATE TABLE u (id int PRIMARY KEY, u int UNIQUE); INSERT INTO u SELECT i, i FROM generate_series(1, 20) i",
        );
        let side = primary.backup("b");
        // One worker's rows take longer: the others wait at the barrier, and may be gone when it is
        // their turn to commit.
        side.sql(
            "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.005); RETURN NEW; END $$; \
             CREATE TRIGGER dawdle BEFORE UPDATE ON t FOR EACH ROW WHEN (NEW.id = 40) EXECUTE FUNCTION dawdle(); \
             ALTER TABLE t ENABLE ALWAYS TRIGGER dawdle",
        );
        let mut seed = workers as u64;
        for _ in 0..40 {
            let mut batch = String::new();
            for _ in 0..50 {
                let row = next(&mut seed) % 300 + 1;
                batch += &match next(&mut seed) % 12 {
                    0 => format!("DELETE FROM t WHERE id = {row};\n"),
                    1 | 2 => format!(
                        "INSERT INTO t VALUES ({row}, 1, repeat('y', 9000)) ON CONFLICT DO NOTHING;\n"
                    ),
                    3 => format!(
                        "UPDATE t SET id = {row} + 1000 WHERE id = {row} AND NOT EXISTS (SELECT FROM t WHERE id = {row} + 1000);\n"
                    ),
                    4 => format!(
                        "UPDATE u SET u = u + 100 WHERE id = {0}; UPDATE u SET u = u - 100 WHERE id = {0};\n",
                        row % 20 + 1
                    ),
                    5 => format!("UPDATE t SET n = n + 1 WHERE id BETWEEN {row} AND {row} + 40;\n"),
                    _ => format!("UPDATE t SET n = n + 1 WHERE id = {row};\n"),
                };
            }
            batch += "UPDATE t SET n = n + 1 WHERE id = 40";
            primary.sql(&batch);
        }
        let end = primary.end();
        let options = Options {
            workers,
            epoch_interval: Duration::ZERO,
            epoch_rows_max: 40,
            ..side.options()
        };
        let victim = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}' AND application_name = 'hindcast standby' AND xact_start IS NOT NULL ORDER BY state = 'idle in transaction' DESC, random() LIMIT 1",
            side.database
        );
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let named = hindcast_pg::ConnectOptions::named("storm");
                let mut killer = hindcast_pg::Connection::connect(&side.url(), &named).unwrap();
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_secs(3)
                    && !stop.load(std::sync::atomic::Ordering::Relaxed)
                {
                    killer.execute("SELECT pg_sleep(random() * 0.04)").unwrap();
                    killer.execute(&victim).unwrap();
                }
            });
            loop {
                let result = side.open(options.clone()).and_then(|mut backup| {
                    let mut log = side.log(backup.resume_point());
                    pump(&mut log, &mut backup, end)?;
                    backup.drain()
                });
                match result {
                    Ok(()) => break,
                    Err(error) => assert!(error.is_transient(), "{error:?}"),
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        side.same();
    }
}

#[test]
fn a_crash_of_the_backups_server_loses_nothing_that_was_durable() {
    for workers in [1, 3] {
        let primary = Primary::new(&format!("crash{workers}"), SIMPLE);
        // Its WAL writer is slow, so that commits are lost.
        let mut cluster =
            Cluster::temporary(ClusterOptions::throw_away().set("wal_writer_delay", "10s"))
                .unwrap();
        let side = primary.backup_on(&cluster, "b");
        let options = Options {
            workers,
            epoch_interval: Duration::ZERO,
            ..side.options()
        };
        primary.sql("UPDATE t SET v = 'drained'");
        let mut backup = side.catch_up(options.clone()).unwrap();
        let drained = backup.durable();
        let mut log = side.log(backup.received());
        for round in 0..20 {
            primary.sql(&format!(
                "UPDATE t SET v = 'round {round}'; INSERT INTO t VALUES (1000 + {round}, 'x')"
            ));
            pump(&mut log, &mut backup, primary.end()).unwrap();
        }
        let (durable, visible) = (backup.durable(), backup.visible());
        assert!(drained <= durable && durable <= visible);
        cluster.stop(Shutdown::Immediate).unwrap();
        let error = backup.drain().expect_err("the server is gone");
        assert!(error.is_transient(), "{error:?}");
        drop((backup, log));
        cluster.start().unwrap();
        let side = primary.backup_again(&cluster, "b");
        let backup = side.open(options.clone()).unwrap();
        assert!(durable <= backup.resume_point() && backup.resume_point() <= visible);
        drop(backup);
        side.catch_up(options).unwrap();
        side.same();
    }
}
