//! Memory, threads and failures: what has to hold over a long life.

use std::ops::Bound;
use std::time::{Duration, Instant};

use hindcast_store::{
    Appender, AsOf, AsOfError, Cell, Failure, Mark, Metrics, Mode, Options, Store, TableId, open,
};

const TABLE: TableId = TableId(7);

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn options() -> Options {
    Options {
        segment_bytes: 4 << 10,
        retention: Duration::ZERO,
        snapshot_interval: Duration::from_millis(1),
        ..Options::default()
    }
}

fn put(appender: &mut Appender, key: u64, value: &[u8]) {
    appender.put(
        TABLE,
        &key.to_be_bytes(),
        1,
        [Cell::Value(value)].into_iter(),
        None,
    );
}

fn commit(appender: &mut Appender, lsn: u64) {
    appender.commit(Mark {
        lsn,
        time: lsn as i64,
    });
}

/// Waits for a fact about the figures; says what they are if it does not come.
fn until(store: &Store, appender: &mut Appender, fact: impl Fn(&Metrics) -> bool) {
    let until = deadline();
    while !fact(&store.metrics()) {
        assert!(
            Instant::now() < until,
            "{:?} {:?}",
            store.metrics(),
            store.failure()
        );
        appender.flush();
        std::thread::yield_now();
    }
}

#[test]
fn overwritten_versions_are_freed() {
    let (store, mut appender) = open(options());
    for lsn in 1..=2000 {
        for key in 0..10 {
            put(&mut appender, key, b"value");
        }
        commit(&mut appender, lsn);
    }
    appender.flush();
    assert!(store.wait_visible(2000, deadline()));
    until(&store, &mut appender, |metrics| metrics.versions == 10);
    assert_eq!(store.metrics().collected, 19_990);
}

#[test]
fn a_reader_keeps_its_versions_and_lets_them_go() {
    let (store, mut appender) = open(options());
    put(&mut appender, 1, b"first");
    commit(&mut appender, 1);
    appender.flush();
    assert!(store.wait_visible(1, deadline()));
    let held = store.snapshot();
    for lsn in 2..=2000 {
        put(&mut appender, 1, b"later");
        commit(&mut appender, lsn);
    }
    appender.flush();
    assert!(store.wait_visible(2000, deadline()));
    assert_eq!(
        held.get(TABLE, &1u64.to_be_bytes())
            .and_then(|row| row.cell(0)),
        Some(&b"first"[..])
    );
    assert_eq!(store.metrics().horizon, held.seq());
    assert!(store.metrics().versions > 1000);
    drop(held);
    until(&store, &mut appender, |metrics| metrics.versions == 1);
}

#[test]
fn inserting_and_deleting_other_keys_for_ever_takes_no_more_memory() {
    for with_readers in [false, true] {
        let (store, mut appender) = open(options());
        let rounds = 60;
        let mut most = [0, 0];
        for round in 1..=rounds {
            for i in 0..1000 {
                put(
                    &mut appender,
                    round * 1000 + i,
                    b"a value that is not there for long",
                );
            }
            for i in 0..1000 {
                appender.delete(TABLE, &(round * 1000 + i).to_be_bytes());
            }
            commit(&mut appender, round);
            if with_readers {
                let snapshot = store.snapshot();
                assert_eq!(
                    snapshot
                        .scan(TABLE, Bound::Unbounded, Bound::Unbounded)
                        .count(),
                    0
                );
            }
            // The horizon moves and the dead rows come back.
            appender.flush();
            assert!(store.wait_visible(round, deadline()));
            until(&store, &mut appender, |metrics| {
                metrics.recycled + 4000 > round * 1000
            });
            let half = usize::from(round > rounds / 2);
            most[half] = store.metrics().bytes.max(most[half]);
        }
        assert!(
            most[1] <= most[0] * 3 / 2,
            "at most {} bytes in the first half, {} in the second",
            most[0],
            most[1]
        );
        assert!(store.metrics().versions < 10_000, "{:?}", store.metrics());
    }
}

#[test]
fn a_truncated_table_gives_its_rows_back() {
    let (store, mut appender) = open(options());
    for round in 0..5 {
        for key in 0..5000 {
            put(&mut appender, key, b"value");
        }
        commit(&mut appender, round * 2 + 1);
        appender.truncate(TABLE);
        put(&mut appender, 77, b"new");
        commit(&mut appender, round * 2 + 2);
        appender.flush();
        assert!(store.wait_visible(round * 2 + 2, deadline()));
        let snapshot = store.snapshot();
        assert_eq!(
            snapshot
                .scan(TABLE, Bound::Unbounded, Bound::Unbounded)
                .count(),
            1
        );
        drop(snapshot);
        until(&store, &mut appender, |metrics| {
            metrics.recycled >= (round + 1) * 4999 && metrics.versions == 1
        });
    }
}

#[test]
fn a_key_that_was_forgotten_and_came_back_is_there_once() {
    let (store, mut appender) = open(options());
    let mut held = Vec::new();
    for lsn in 1..=40 {
        put(&mut appender, 1, &lsn.to_string().into_bytes());
        commit(&mut appender, lsn * 2);
        appender.flush();
        assert!(store.wait_visible(lsn * 2, deadline()));
        let snapshot = store.snapshot();
        let values: Vec<_> = snapshot
            .scan(TABLE, Bound::Unbounded, Bound::Unbounded)
            .filter_map(|(_, row)| row.cell(0))
            .collect();
        assert_eq!(values, [lsn.to_string().as_bytes()]);
        assert_eq!(
            snapshot
                .get(TABLE, &1u64.to_be_bytes())
                .and_then(|row| row.cell(0)),
            Some(values[0])
        );
        // Some hold on to a state in which it was there.
        if lsn % 10 == 0 {
            held.push((lsn, store.snapshot()));
        }
        drop(snapshot);
        appender.delete(TABLE, &1u64.to_be_bytes());
        commit(&mut appender, lsn * 2 + 1);
        appender.flush();
        assert!(store.wait_visible(lsn * 2 + 1, deadline()));
        assert!(store.snapshot().get(TABLE, &1u64.to_be_bytes()).is_none());
    }
    for (lsn, snapshot) in held {
        let row = snapshot.get(TABLE, &1u64.to_be_bytes());
        assert_eq!(
            row.and_then(|row| row.cell(0)),
            Some(lsn.to_string().as_bytes())
        );
    }
}

#[test]
fn history_gives_way_to_the_memory_limit() {
    let limit = 16 << 20;
    let (store, mut appender) = open(Options {
        retention: Duration::from_secs(3600),
        memory_max: Some(limit),
        segment_bytes: 64 << 10,
        ..options()
    });
    let value = [b'x'; 1000];
    for lsn in 1..=60_000 {
        put(&mut appender, lsn % 100, &value);
        commit(&mut appender, lsn);
        if lsn % 5_000 == 0 {
            // Queues and what is being applied come on top, for moments.
            assert!(store.metrics().bytes < 2 * limit, "{:?}", store.metrics());
        }
    }
    appender.flush();
    assert!(
        store.wait_visible(60_000, deadline()),
        "{:?}",
        store.failure()
    );
    assert!(store.metrics().retention_shortened > 0);
    assert!(store.oldest().lsn > 1);
    assert!(matches!(
        store.snapshot_at(AsOf::Lsn(1)),
        Err(AsOfError::TooOld { .. })
    ));
    assert_eq!(store.failure(), None);
}

#[test]
fn rows_that_do_not_fit_are_a_failure_and_nobody_hangs() {
    let (store, mut appender) = open(Options {
        memory_max: Some(1 << 20),
        ..options()
    });
    for lsn in 1..=10_000 {
        put(&mut appender, lsn, &[b'x'; 1000]);
        commit(&mut appender, lsn);
    }
    appender.flush();
    assert!(!store.wait_visible(10_000, deadline()));
    assert!(
        matches!(store.failure(), Some(Failure::MemoryExhausted { limit, .. }) if limit == 1 << 20)
    );
    // What was visible stays readable.
    let snapshot = store.snapshot();
    let rows = snapshot
        .scan(TABLE, Bound::Unbounded, Bound::Unbounded)
        .count();
    assert_eq!(rows as u64, snapshot.mark().lsn);
}

#[test]
fn a_large_table_stays_in_order_while_its_runs_are_merged() {
    // Each transaction inserts as many new keys, in no order, and deletes half of what the one
    // before it inserted.
    const EACH: u64 = 128;
    let transactions = if cfg!(debug_assertions) {
        5_000
    } else {
        20_000
    };
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let (store, mut appender) = open(Options {
        segment_bytes: 64 << 10,
        ..options()
    });
    let stop = std::sync::atomic::AtomicBool::new(false);
    let scans = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2u64)
            .map(|reader| {
                let (store, stop) = (&store, &stop);
                scope.spawn(move || {
                    let mut scans = 0;
                    while !stop.load(std::sync::atomic::Ordering::Acquire) {
                        let snapshot = store.snapshot();
                        let lsn = snapshot.mark().lsn;
                        let scan = snapshot.scan(TABLE, Bound::Unbounded, Bound::Unbounded);
                        let keys: Vec<&[u8]> = if reader == 0 {
                            scan.map(|row| row.0).collect()
                        } else {
                            scan.rev().map(|row| row.0).collect()
                        };
                        assert!(
                            keys.windows(2)
                                .all(|pair| (pair[0] < pair[1]) == (reader == 0)),
                            "in order, none twice"
                        );
                        let deleted = lsn.saturating_sub(1) * EACH / 2;
                        assert_eq!(keys.len() as u64, lsn * EACH - deleted);
                        for n in (lsn * EACH).saturating_sub(2 * EACH)..(lsn + 1) * EACH {
                            let there = n < lsn * EACH && (n + EACH >= lsn * EACH || n % 2 == 0);
                            assert_eq!(
                                snapshot.get(TABLE, &key(n)).is_some(),
                                there,
                                "{n} at {lsn}"
                            );
                        }
                        scans += 1;
                    }
                    scans
                })
            })
            .collect();
        for lsn in 1..=transactions {
            for n in (lsn - 1) * EACH..lsn * EACH {
                appender.put(TABLE, &key(n), 1, [Cell::Value(b"value")].into_iter(), None);
                if let Some(old) = n.checked_sub(EACH).filter(|old| old % 2 == 1) {
                    appender.delete(TABLE, &key(old));
                }
            }
            commit(&mut appender, lsn);
        }
        appender.flush();
        let visible = store.wait_visible(transactions, deadline());
        stop.store(true, std::sync::atomic::Ordering::Release);
        assert!(visible, "{:?}", store.failure());
        readers
            .into_iter()
            .map(|reader| {
                reader
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .sum::<u64>()
    });
    assert!(scans > 0);
    // Dead rows go when they are a quarter of all.
    let rows = transactions * EACH / 2;
    until(&store, &mut appender, |metrics| {
        metrics.recycled > 0 && metrics.versions < rows * 3 / 2 + 4000
    });
}

#[test]
fn a_commit_without_writes_moves_the_position() {
    let (store, mut appender) = open(options());
    commit(&mut appender, 5);
    appender.flush();
    assert!(store.wait_visible(5, deadline()));
    put(&mut appender, 1, b"one");
    commit(&mut appender, 6);
    commit(&mut appender, 9);
    appender.flush();
    assert!(store.wait_visible(9, deadline()));
    assert_eq!(store.snapshot().mark().lsn, 9);
    assert_eq!(
        store
            .snapshot()
            .scan(TABLE, Bound::Unbounded, Bound::Unbounded)
            .count(),
        1
    );
}

#[test]
fn who_waits_need_not_flush_what_is_committed_later() {
    let (store, mut appender) = open(Options {
        segment_bytes: 1 << 20,
        ..options()
    });
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.wait_visible(3, deadline()));
        let mut lsn = 3;
        // Every commit is handed over once someone waits; before that, it waits for a full segment.
        while !waiting.is_finished() {
            put(&mut appender, lsn, b"value");
            commit(&mut appender, lsn);
            lsn += 1;
            std::thread::yield_now();
        }
        assert_eq!(waiting.join().ok(), Some(true));
    });
}

#[test]
fn a_write_whose_values_cannot_be_had_never_was() {
    let (store, mut appender) = open(options());
    put(&mut appender, 1, b"one");
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let cells = (0..2).map(|i| {
            if i == 0 {
                Cell::Value(b"two")
            } else {
                panic!("no value")
            }
        });
        appender.put(TABLE, &2u64.to_be_bytes(), 1, cells, None);
    }));
    assert!(failed.is_err());
    put(&mut appender, 2, b"three");
    commit(&mut appender, 1);
    appender.flush();
    assert!(store.wait_visible(1, deadline()));
    let snapshot = store.snapshot();
    let values: Vec<_> = snapshot
        .scan(TABLE, Bound::Unbounded, Bound::Unbounded)
        .filter_map(|(_, row)| row.cell(0))
        .collect();
    assert_eq!(values, [&b"one"[..], b"three"]);
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let (store, _appender) = open(options());
    assert!(!store.wait_visible(1, Instant::now() + Duration::from_millis(20)));
}

#[test]
fn everything_can_be_dropped_in_any_order() {
    for order in 0..6 {
        for mode in [Mode::Row, Mode::Transaction] {
            let (store, mut appender) = open(Options {
                mode,
                retention: Duration::from_secs(3600),
                ..options()
            });
            for lsn in 1..=500 {
                put(&mut appender, lsn % 20, b"value");
                commit(&mut appender, lsn);
            }
            appender.flush();
            assert!(store.wait_visible(500, deadline()));
            let snapshot = store
                .snapshot_at(AsOf::Lsn(250))
                .unwrap_or_else(|error| panic!("{error}"));
            let check = |snapshot: &hindcast_store::Snapshot| {
                assert_eq!(
                    snapshot
                        .scan(TABLE, Bound::Unbounded, Bound::Unbounded)
                        .count(),
                    20
                );
            };
            match order {
                0 => {
                    drop(appender);
                    drop(store);
                    check(&snapshot);
                }
                1 => {
                    drop(store);
                    check(&snapshot);
                    put(&mut appender, 1, b"x");
                    drop(appender);
                    check(&snapshot);
                }
                2 => {
                    drop(snapshot);
                    drop(store);
                    drop(appender);
                }
                3 => {
                    drop(appender);
                    check(&snapshot);
                    drop(snapshot);
                    drop(store);
                }
                4 => {
                    // The appender goes on alone: nobody will ever see it, and it must not hang.
                    drop(store);
                    for lsn in 501..5000 {
                        put(&mut appender, lsn, &[0; 500]);
                        commit(&mut appender, lsn);
                    }
                }
                _ => {
                    let other = store.clone();
                    drop(store);
                    put(&mut appender, 1000, b"one more");
                    commit(&mut appender, 501);
                    drop(appender);
                    assert!(
                        other.wait_visible(501, deadline()),
                        "a dropped appender handed over what it had"
                    );
                    assert_eq!(
                        other
                            .snapshot()
                            .scan(TABLE, Bound::Unbounded, Bound::Unbounded)
                            .count(),
                        21
                    );
                    check(&snapshot);
                }
            }
        }
    }
}

#[test]
fn a_snapshot_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Store>();
    shared::<hindcast_store::Snapshot>();
    sent::<Appender>();
    sent::<hindcast_store::Scan<'static>>();
}
