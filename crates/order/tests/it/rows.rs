//! What makes row granularity right, least and fast enough.
//!
//! That the store obeys it, and shows its readers prefixes of the log, is tested in `crates/store`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use expect_test::expect;
use hindcast_order::rows::{Constraints, Granularity, Log, Row, Schedule, Seq};
use proptest::prelude::*;
use proptest::sample::Index;

use Granularity::{Single, Transaction};

const GRANULARITIES: [Granularity; 3] = [Granularity::Row, Transaction, Single];

fn log(transactions: &[Vec<u32>]) -> Log {
    let mut log = Log::new();
    for rows in transactions {
        for &row in rows {
            log.write(Row(row));
        }
        log.commit();
    }
    log
}

/// Few rows, so that most writes conflict; some transactions write a row twice, some nothing, and
/// some writes take over values from elsewhere.
fn any_log() -> impl Strategy<Value = Log> {
    let row = || prop_oneof![3 => 0..3u32, 2 => 3..12u32];
    let write = (row(), prop::option::weighted(0.2, row()));
    let transaction = prop::collection::vec(write, 0..7);
    let transactions = prop::collection::vec(transaction, 0..12);
    (transactions, any::<bool>()).prop_map(|(transactions, open)| {
        let mut log = Log::new();
        for (at, writes) in transactions.iter().enumerate() {
            for &(row, source) in writes {
                log.write_from(Row(row), Row(source.unwrap_or(row)));
            }
            if !(open && at + 1 == transactions.len()) {
                log.commit();
            }
        }
        log
    })
}

fn any_choices() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 1..40)
}

/// Some schedule that the constraints allow: the choices, over and over, say which of the safe
/// writes is next.
fn interleave(constraints: &Constraints, choices: &[Index]) -> Vec<Seq> {
    let mut schedule = Schedule::new(constraints);
    let mut order = Vec::new();
    for choice in choices.iter().cycle() {
        if schedule.is_finished() {
            break;
        }
        let ready: Vec<_> = schedule.ready().collect();
        let write = *choice.get(&ready);
        schedule.done(write);
        order.push(write);
    }
    order
}

fn serial(log: &Log) -> Vec<Seq> {
    log.writes().map(|(write, _)| write).collect()
}

/// The state after these writes when each replaces its row: the write that was last.
fn overwrite(log: &Log, order: &[Seq]) -> BTreeMap<Row, Seq> {
    order.iter().map(|&write| (log.row(write), write)).collect()
}

/// By row its versions, newest last: which write, and which writes made its value what it is.
type Versions = BTreeMap<Row, Vec<(Seq, Vec<Seq>)>>;

/// Applies a write that builds upon its row as it finds it, or upon the source's version of the
/// time when it was logged.
fn build(log: &Log, versions: &mut Versions, write: Seq) {
    let (row, source) = (log.row(write), log.source(write));
    let found = versions
        .get(&source.unwrap_or(row))
        .and_then(|versions| match source {
            Some(_) => versions.iter().rfind(|version| version.0 < write),
            None => versions.last(),
        });
    let mut value = found.map_or_else(Vec::new, |found| found.1.clone());
    value.push(write);
    versions.entry(row).or_default().push((write, value));
}

/// The state after these writes when each builds upon what was there, as a change of some columns
/// does.
fn build_upon(log: &Log, order: &[Seq]) -> Versions {
    let mut versions = Versions::new();
    for &write in order {
        build(log, &mut versions, write);
    }
    for versions in versions.values_mut() {
        versions.drain(..versions.len() - 1);
    }
    versions
}

/// By write: its place in a schedule.
fn places(order: &[Seq]) -> BTreeMap<Seq, usize> {
    let places = order.iter().enumerate();
    places.map(|(place, &write)| (write, place)).collect()
}

/// All pairs of writes to the same row.
fn conflicts(log: &Log) -> Vec<(Seq, Seq)> {
    let writes = || log.writes();
    let pairs = writes().flat_map(|(a, row)| {
        let later = writes().filter(move |&(b, other)| a < b && row == other);
        later.map(move |(b, _)| (a, b))
    });
    pairs.collect()
}

/// Whether a constraint follows from others.
fn is_implied(constraints: &Constraints, (before, after): (Seq, Seq)) -> bool {
    let others = constraints
        .before(after)
        .iter()
        .filter(|&&other| other != before);
    let mut look: Vec<_> = others.copied().collect();
    while let Some(write) = look.pop() {
        if write == before {
            return true;
        }
        look.extend(constraints.before(write));
    }
    false
}

/// The writes of each transaction.
fn transactions(log: &Log) -> Vec<Vec<(Seq, Row)>> {
    let mut transactions = vec![Vec::new(); log.boundaries().len() + 1];
    for (write, row) in log.writes() {
        let tx = log.transaction(write);
        transactions[tx.map_or(log.boundaries().len(), |tx| tx.index())].push((write, row));
    }
    transactions
}

/// `x₁ y₂ │ x₃ z₄ │ z₅ │ v₆`, as in the essay.
#[test]
fn granularities_differ_in_what_waits() {
    let log = log(&[vec![0, 1], vec![0, 2], vec![2], vec![3]]);
    let mut lines = String::new();
    for granularity in GRANULARITIES {
        let constraints = Constraints::new(&log, granularity);
        let pairs = constraints.pairs();
        let pairs: Vec<_> = pairs.map(|(a, b)| format!("{a}→{b}")).collect();
        lines += &format!("{granularity:?}: {}\n", pairs.join(" "));
    }
    expect![[r#"
        Row: 1→3 4→5
        Transaction: 1→2 2→3 3→4 4→5
        Single: 1→2 2→3 3→4 4→5 5→6
    "#]]
    .assert_eq(&lines);
}

#[test]
fn a_finished_write_tells_which_have_become_safe() {
    let log = log(&[vec![0, 1], vec![0, 1], vec![0]]);
    let mut schedule = Schedule::new(&Constraints::new(&log, Granularity::Row));
    assert_eq!(schedule.ready().collect::<Vec<_>>(), [Seq(1), Seq(2)]);
    assert_eq!(schedule.done(Seq(2)), [Seq(4)]);
    assert_eq!(schedule.done(Seq(4)), []);
    assert!(schedule.is_safe(Seq(1)) && !schedule.is_safe(Seq(3)) && schedule.is_done(Seq(4)));
    assert_eq!(schedule.done(Seq(1)), [Seq(3)]);
    assert_eq!(schedule.done(Seq(3)), [Seq(5)]);
    assert_eq!(schedule.done(Seq(5)), []);
    assert!(schedule.is_finished());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The state is that of serial execution, however much its writes depend on each other.
    #[test]
    fn every_schedule_is_valid(log in any_log(), choices in any_choices()) {
        for granularity in GRANULARITIES {
            let constraints = Constraints::new(&log, granularity);
            let order = interleave(&constraints, &choices);
            prop_assert!(constraints.allow(order.iter().copied()));
            prop_assert_eq!(build_upon(&log, &order), build_upon(&log, &serial(&log)));
            prop_assert_eq!(overwrite(&log, &order), overwrite(&log, &serial(&log)));
        }
    }

    /// Of what is left, the first write in the log is always safe.
    #[test]
    fn nothing_locks_up(log in any_log(), choices in any_choices()) {
        for granularity in GRANULARITIES {
            let mut schedule = Schedule::new(&Constraints::new(&log, granularity));
            for choice in choices.iter().cycle() {
                let first = serial(&log).into_iter().find(|&write| !schedule.is_done(write));
                prop_assert_eq!(schedule.ready().next(), first);
                prop_assert_eq!(schedule.is_finished(), first.is_none());
                if first.is_none() {
                    break;
                }
                let ready: Vec<_> = schedule.ready().collect();
                let before = ready.len();
                let safe = schedule.done(*choice.get(&ready));
                prop_assert!(safe.iter().all(|write| schedule.is_safe(*write) && !ready.contains(write)));
                prop_assert_eq!(schedule.ready().len(), before - 1 + safe.len());
            }
        }
    }

    /// What a stronger granularity allows, a weaker one allows.
    #[test]
    fn granularities_contain_each_other(log in any_log(), choices in any_choices()) {
        let [rows, transactions, single] = GRANULARITIES.map(|granularity| Constraints::new(&log, granularity));
        for (weaker, stronger) in [(&rows, &transactions), (&transactions, &single), (&rows, &single)] {
            prop_assert!(weaker.allow(interleave(stronger, &choices)));
        }
        prop_assert_eq!(interleave(&single, &choices), serial(&log));
    }

    /// Row granularity is the previous write of the row, and that of the source.
    #[test]
    fn rows_wait_for_the_previous_write_of_the_row(log in any_log()) {
        let constraints = Constraints::new(&log, Granularity::Row);
        for (write, row) in log.writes() {
            let last = |of| log.writes().filter(|&(other, row)| other < write && row == of).map(|(other, _)| other).last();
            let source = log.source(write).and_then(last);
            let both: BTreeSet<_> = last(row).into_iter().chain(source).collect();
            prop_assert_eq!(constraints.before(write), both.into_iter().collect::<Vec<_>>());
        }
    }

    /// A transaction comes after all that wrote one of its rows, and waits for no others.
    #[test]
    fn transactions_wait_for_those_that_wrote_their_rows(log in any_log(), choices in any_choices()) {
        let constraints = Constraints::new(&log, Transaction);
        let transactions = transactions(&log);
        let needs = |b: &[(Seq, Row)], a: &[(Seq, Row)]| {
            b.iter().any(|&(write, row)| a.iter().any(|other| row == other.1 || log.source(write) == Some(other.1)))
        };
        let place = places(&interleave(&constraints, &choices));
        for (later, b) in transactions.iter().enumerate() {
            prop_assert!(b.windows(2).all(|pair| place[&pair[0].0] < place[&pair[1].0]));
            for a in transactions[..later].iter().filter(|a| needs(b, a)) {
                prop_assert!(a.iter().all(|x| b.iter().all(|y| place[&x.0] < place[&y.0])));
            }
        }
        for (before, after) in constraints.pairs() {
            let of = |write| transactions.iter().position(|writes| writes.iter().any(|x| x.0 == write)).unwrap();
            let (a, b) = (of(before), of(after));
            prop_assert!(a == b || needs(&transactions[b], &transactions[a]));
        }
    }

    /// Theorem 2: whichever constraint is dropped, some schedule that obeys all others ends in
    /// another state than serial execution.
    #[test]
    fn no_constraint_of_rows_can_be_spared(log in any_log(), choices in any_choices()) {
        let rows = Constraints::new(&log, Granularity::Row);
        let conflicts = conflicts(&log);
        for (a, b) in rows.pairs().filter(|&pair| !is_implied(&rows, pair)) {
            let fewer = rows.without(a, b);
            // As in the log, but `a` waits until `b` is done.
            let mut schedule = Schedule::new(&fewer);
            let mut swapped = Vec::new();
            while !schedule.is_finished() {
                let mut ready = schedule.ready();
                let next = ready.find(|&write| write != a || schedule.is_done(b)).unwrap();
                drop(ready);
                schedule.done(next);
                swapped.push(next);
            }
            prop_assert!(!rows.allow(swapped.iter().copied()));

            // When each write builds upon what it finds, the mistake stays until somebody replaces
            // the row with what is elsewhere.
            let in_order = serial(&log);
            if in_order.iter().all(|&write| log.source(write).is_none()) {
                prop_assert_ne!(build_upon(&log, &swapped), build_upon(&log, &in_order));
            }
            // When writes replace rows, the next one hides it. But the log may end with `b`: nobody
            // knew when the two were scheduled.
            let in_order = &in_order[..b.0 as usize];
            let swapped: Vec<_> = swapped.into_iter().filter(|&write| write <= b).collect();
            prop_assert_ne!(build_upon(&log, &swapped), build_upon(&log, in_order));
            if log.row(a) == log.row(b) {
                prop_assert_ne!(overwrite(&log, &swapped), overwrite(&log, in_order));
            }

            // Only this one was dropped.
            let place = places(&interleave(&fewer, &choices));
            let others = rows.pairs().chain(conflicts.iter().copied());
            for (c, d) in others.filter(|&pair| pair != (a, b)) {
                prop_assert!(place[&c] < place[&d]);
            }
        }
    }
}

/// When each transaction committed on a primary with two-phase locking: one arrives per unit of
/// time, takes a core, inserts `inserts` rows, and then gets the lock on the hot row in the order
/// of asking.
fn primary(transactions: usize, inserts: usize, cores: usize) -> Vec<usize> {
    let mut finished = Vec::new();
    let mut arrived = 0;
    let mut running = VecDeque::<usize>::new();
    for now in 0.. {
        if finished.len() == transactions {
            break;
        }
        if arrived < transactions {
            running.push_back(0);
            arrived += 1;
        }
        assert!(running.len() <= cores, "the workload fits the primary");
        // Whoever arrived first asks first.
        let has_lock = running.front().is_some_and(|&done| done == inserts);
        for done in &mut running {
            *done = inserts.min(*done + 1);
        }
        if has_lock {
            running.pop_front();
            finished.push(now + 1);
        }
    }
    finished
}

/// When each transaction and all before it were applied by so many cores, each of which takes the
/// first safe write of the log that has arrived and needs a unit of time for it.
fn backup(log: &Log, granularity: Granularity, arrivals: &[usize], cores: usize) -> Vec<usize> {
    let mut schedule = Schedule::new(&Constraints::new(log, granularity));
    let mut visible = Vec::new();
    let mut arrived = 0;
    for now in 0.. {
        if visible.len() == arrivals.len() {
            break;
        }
        arrived += arrivals[arrived..]
            .iter()
            .take_while(|&&at| at <= now)
            .count();
        let received = arrived
            .checked_sub(1)
            .map_or(Seq::START, |at| log.boundaries()[at]);
        let safe = schedule.ready().take_while(|&write| write <= received);
        for write in safe.take(cores).collect::<Vec<_>>() {
            schedule.done(write);
        }
        // Of what is left the first write is safe, so everything before it is done.
        let left = schedule.ready().next();
        let done = left.map_or(log.last(), |first| Seq(first.0 - 1));
        let count = log.boundaries().partition_point(|&end| end <= done);
        visible.resize(count, now + 1);
    }
    visible
}

/// Theorem 1's construction, with `e = d = 1`: transactions of `n − 1` inserts and a hot row, one
/// per unit of time.
#[test]
fn transactions_fall_behind_without_bound_and_rows_do_not() {
    let mut lines = String::new();
    for (n, cores) in [(2, 2), (4, 4), (4, 8), (16, 16)] {
        for count in [10, 100, 1000] {
            let mut log = Log::new();
            for tx in 0..count {
                for insert in 1..n {
                    log.write(Row((tx * (n - 1) + insert) as u32));
                }
                log.write(Row(0));
                log.commit();
            }
            let committed = primary(count, n - 1, cores);
            let lags = |granularity| -> Vec<usize> {
                let applied = backup(&log, granularity, &committed, cores);
                let times = applied.iter().zip(&committed);
                times
                    .map(|(applied, committed)| applied - committed)
                    .collect()
            };
            let [rows, transactions, single] = GRANULARITIES.map(lags);

            // The proof's f_p and lag.
            for i in 0..count {
                assert_eq!(committed[i], n + i);
                assert_eq!(transactions[i], i * (n - 1) + n);
            }
            assert_eq!(single, transactions);
            let [rows, transactions] =
                [rows, transactions].map(|lags| lags.into_iter().max().unwrap());
            lines += &format!(
                "{n:2} writes, {cores:2} cores, {count:4} transactions: lag {transactions:5}, of rows {rows}\n"
            );
        }
    }
    expect![[r#"
         2 writes,  2 cores,   10 transactions: lag    11, of rows 1
         2 writes,  2 cores,  100 transactions: lag   101, of rows 1
         2 writes,  2 cores, 1000 transactions: lag  1001, of rows 1
         4 writes,  4 cores,   10 transactions: lag    31, of rows 1
         4 writes,  4 cores,  100 transactions: lag   301, of rows 1
         4 writes,  4 cores, 1000 transactions: lag  3001, of rows 1
         4 writes,  8 cores,   10 transactions: lag    31, of rows 1
         4 writes,  8 cores,  100 transactions: lag   301, of rows 1
         4 writes,  8 cores, 1000 transactions: lag  3001, of rows 1
        16 writes, 16 cores,   10 transactions: lag   151, of rows 1
        16 writes, 16 cores,  100 transactions: lag  1501, of rows 1
        16 writes, 16 cores, 1000 transactions: lag 15001, of rows 1
    "#]]
    .assert_eq(&lines);
}
