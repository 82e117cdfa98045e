//! What readers see is exactly the state after some commit, whatever the workers are doing.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::model::{Log, Op, check_snapshot, feed};
use hindcast_store::{AsOf, Mode, Options, Store, open};
use proptest::prelude::*;

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Checks the current snapshot and a past one, until told to stop. Returns how many it checked.
fn read(store: &Store, log: &Log, stop: &AtomicBool, seed: u64) -> usize {
    let mut last = 0;
    let mut checked = 0;
    let mut random = seed;
    loop {
        let stopping = stop.load(Ordering::Acquire);
        let snapshot = store.snapshot();
        assert!(
            snapshot.mark().lsn >= last,
            "the current snapshot went back from {last} to {:?}",
            snapshot.mark()
        );
        last = snapshot.mark().lsn;
        check_snapshot(&snapshot, log);

        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let lsn = (random >> 33) % (last + 1);
        if let Ok(past) = store.snapshot_at(AsOf::Lsn(lsn)) {
            assert_eq!(past.mark().lsn, log.at_or_before(lsn));
            check_snapshot(&past, log);
        }
        // It did not change under its reader.
        check_snapshot(&snapshot, log);
        checked += 1;
        // Miri runs one thread at a time, and readers must not have all of it.
        if stopping || cfg!(miri) && checked == 3 {
            return checked;
        }
    }
}

fn run(log: &Log, options: Options, flush_every: usize) {
    let (store, mut appender) = open(options.clone());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                // A reader that panics must not leave the others running.
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    read(store, log, stop, seed)
                }));
                stop.store(true, Ordering::Release);
                if let Err(panic) = result {
                    std::panic::resume_unwind(panic);
                }
            });
        }
        feed(&mut appender, log, flush_every);
        appender.flush();
        let visible = store.wait_visible(log.last_lsn(), deadline());
        stop.store(true, Ordering::Release);
        assert!(visible, "{:?} {:?}", store.failure(), store.metrics());
    });
    if options.retention > Duration::from_secs(1) {
        for lsn in log.states.keys() {
            let snapshot = store
                .snapshot_at(AsOf::Lsn(*lsn))
                .unwrap_or_else(|error| panic!("at {lsn}: {error}"));
            assert_eq!(snapshot.mark().lsn, *lsn);
            check_snapshot(&snapshot, log);
            let snapshot = store
                .snapshot_at(AsOf::Time(*lsn as i64 * 10))
                .unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(snapshot.mark().lsn, *lsn);
        }
    }
    check_snapshot(&store.snapshot(), log);
    assert_eq!(store.failure(), None);
}

fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![3 => Just(Mode::Row), 2 => Just(Mode::Transaction), 1 => Just(Mode::Single)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(debug_assertions) { 150 } else { 600 }, ..ProptestConfig::default() })]

    #[test]
    fn every_snapshot_is_the_state_after_a_commit(
        transactions in prop::collection::vec(prop::collection::vec(crate::model::op(), 0..6), 1..80),
        mode in modes(),
        workers in 1usize..5,
        segment_bytes in prop_oneof![Just(1usize), 32usize..200, 200usize..4000],
        retention in prop_oneof![Just(Duration::from_secs(3600)), Just(Duration::ZERO), Just(Duration::from_micros(100))],
        flush_every in 1usize..8,
    ) {
        let log = Log::new(transactions);
        let snapshot_interval = Duration::from_micros(200);
        run(&log, Options { workers, mode, segment_bytes, retention, snapshot_interval, memory_max: None }, flush_every);
    }
}

#[test]
fn a_long_log_with_hot_rows_under_small_retention() {
    for mode in [Mode::Row, Mode::Transaction, Mode::Single] {
        let rounds = match (cfg!(miri), cfg!(debug_assertions)) {
            (true, _) => 25,
            (_, true) => 3_000,
            _ => 40_000,
        };
        let log = Log::random(rounds, 7);
        run(
            &log,
            Options {
                workers: 3,
                mode,
                segment_bytes: 700,
                retention: Duration::from_micros(500),
                snapshot_interval: Duration::from_micros(100),
                memory_max: None,
            },
            50,
        );
    }
}

#[test]
fn what_was_not_committed_is_never_visible() {
    let (store, mut appender) = open(Options {
        segment_bytes: 1,
        ..Options::default()
    });
    let log = Log::new(vec![vec![Op::put(0, 1, 10)]]);
    feed(&mut appender, &log, 1);
    // The rest of an unfinished transaction goes to the workers too, and its writes are installed.
    let unfinished = Log::new(vec![vec![
        Op::put(0, 1, 11),
        Op::put(0, 2, 12),
        Op::Truncate { table: 0 },
    ]]);
    crate::model::feed_ops(&mut appender, &unfinished.transactions[0]);
    drop(appender);
    assert!(store.wait_visible(log.last_lsn(), deadline()));
    let until = deadline();
    while store.metrics().applied < 3 && Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(store.metrics().applied, 3);
    check_snapshot(&store.snapshot(), &log);
}

#[test]
fn a_scan_keeps_to_its_bounds_from_both_ends() {
    let (store, mut appender) = open(Options::default());
    let log = Log::random(500, 3);
    feed(&mut appender, &log, 10);
    appender.flush();
    assert!(store.wait_visible(log.last_lsn(), deadline()));
    let snapshot = store.snapshot();
    let state = log.state(log.last_lsn());
    let keys: Vec<Vec<u8>> = (0..20).map(crate::model::key).collect();
    for table in 0..crate::model::TABLES {
        for a in &keys {
            for b in &keys {
                for (from, to) in [
                    (Bound::Included(a.as_slice()), Bound::Included(b.as_slice())),
                    (Bound::Excluded(a.as_slice()), Bound::Excluded(b.as_slice())),
                    (Bound::Unbounded, Bound::Excluded(b.as_slice())),
                    (Bound::Excluded(a.as_slice()), Bound::Unbounded),
                ] {
                    let inside = |key: &[u8]| {
                        (match from {
                            Bound::Included(a) => key >= a,
                            Bound::Excluded(a) => key > a,
                            Bound::Unbounded => true,
                        }) && match to {
                            Bound::Included(b) => key <= b,
                            Bound::Excluded(b) => key < b,
                            Bound::Unbounded => true,
                        }
                    };
                    let expected: Vec<&[u8]> = state[table as usize]
                        .keys()
                        .map(|key| key.as_slice())
                        .filter(|key| inside(key))
                        .collect();
                    let table = crate::model::table(table);
                    let forward: Vec<&[u8]> =
                        snapshot.scan(table, from, to).map(|(key, _)| key).collect();
                    let mut backward: Vec<&[u8]> = snapshot
                        .scan(table, from, to)
                        .rev()
                        .map(|(key, _)| key)
                        .collect();
                    backward.reverse();
                    assert_eq!(forward, expected);
                    assert_eq!(backward, expected);
                    let mut both = snapshot.scan(table, from, to);
                    let mut met = Vec::new();
                    while let Some((first, _)) = both.next() {
                        met.push(first);
                        met.extend(both.next_back().map(|(last, _)| last));
                    }
                    met.sort_unstable();
                    assert_eq!(met, expected);
                }
            }
        }
    }
}
