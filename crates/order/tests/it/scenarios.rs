//! Small cases to read: who may do what when, and how it is explained.

use expect_test::{Expect, expect};
use hindcast_model::{Snapshot, Xid};
use hindcast_order::{
    Admission, Levels, LockStep, Observed, Request, Schedule, Span, Step, StepAt, Tx, Writers,
    admission,
};

/// `xmax` and who was in progress.
type Seen<'a> = (u64, &'a [u64]);

/// Levels of transactions given as `(id, snapshot)`.
fn levels(transactions: &[(Option<u64>, Option<Seen<'_>>)]) -> Levels {
    let snapshots: Vec<_> = transactions
        .iter()
        .map(|(_, seen)| {
            seen.map(|(xmax, in_progress)| Snapshot {
                xmin: Xid(0),
                xmax: Xid(xmax),
                in_progress: in_progress.iter().copied().map(Xid).collect(),
            })
        })
        .collect();
    let observed = transactions
        .iter()
        .zip(&snapshots)
        .map(|((xid, _), snapshot)| Observed {
            xid: xid.map(Xid),
            snapshot: snapshot.as_ref(),
        });
    Levels::of(&observed.collect::<Vec<_>>()).unwrap()
}

/// R³'s example (section 3.5): s(#0) s(#1) c(#0) c(#1) s(#2) c(#2), all writers.
fn paper() -> Levels {
    levels(&[
        (Some(10), Some((10, &[]))),
        (Some(11), Some((10, &[]))),
        (Some(12), Some((12, &[]))),
    ])
}

fn check_state(schedule: &Schedule, expect: Expect) {
    let mut text = String::new();
    for tx in schedule.levels().transactions() {
        text += &format!("{}\n", schedule.explain(tx));
    }
    expect.assert_eq(&text);
}

#[test]
fn concurrent_transactions_run_in_parallel_and_the_next_waits_for_both() {
    let mut schedule = Schedule::new(paper(), []);
    check_state(
        &schedule,
        expect![[r#"
        transaction #0 may go on
        transaction #1 may go on
        transaction #2 waits for transaction #0 and one more to commit, which it saw
    "#]],
    );
    schedule.took_snapshot(Tx(1));
    check_state(
        &schedule,
        expect![[r#"
        transaction #0 may go on
        transaction #1 waits to commit until transaction #0 took the snapshot that lacks it
        transaction #2 waits for transaction #0 and one more to commit, which it saw
    "#]],
    );
    schedule.took_snapshot(Tx(0));
    schedule.committed(Tx(1));
    check_state(
        &schedule,
        expect![[r#"
        transaction #0 may go on
        transaction #1 may go on
        transaction #2 waits for transaction #0 to commit, which it saw
    "#]],
    );
    schedule.committed(Tx(0));
    assert!(schedule.may_take_snapshot(Tx(2)));
}

#[test]
fn the_end_of_a_chain_of_waits_is_named() {
    // #1 saw #0, #2 saw #1, and #0 has not come.
    let chain = levels(&[
        (Some(10), Some((10, &[]))),
        (Some(11), Some((11, &[]))),
        (None, Some((12, &[]))),
    ]);
    let mut schedule = Schedule::new(chain, []);
    check_state(
        &schedule,
        expect![[r#"
        transaction #0 may go on
        transaction #1 waits for transaction #0 to commit, which it saw
        transaction #2 waits for transaction #0 and one more to commit, which it saw
    "#]],
    );
    schedule.took_snapshot(Tx(0));
    schedule.committed(Tx(0));
    schedule.took_snapshot(Tx(1));
    check_state(
        &schedule,
        expect![[r#"
        transaction #0 may go on
        transaction #1 may go on
        transaction #2 waits for transaction #1 to commit, which it saw
    "#]],
    );
    schedule.abandon(Tx(1));
    assert!(schedule.may_take_snapshot(Tx(2)));
    schedule.took_snapshot(Tx(2));
    schedule.committed(Tx(2));
    assert!(schedule.is_finished());
}

#[test]
fn locks_are_taken_in_the_order_in_which_they_were() {
    let step = |tx, at, completed| LockStep {
        tx: Tx(tx),
        at,
        target: 7,
        completed,
    };
    let three = levels(&[(None, Some((10, &[] as &[u64]))); 3]);
    let mut schedule = Schedule::new(
        three,
        [
            step(2, StepAt::Statement(0), 1),
            step(2, StepAt::End, 2),
            step(0, StepAt::Statement(4), 3),
            step(1, StepAt::Statement(0), 4),
        ],
    );
    for tx in [0, 1, 2] {
        schedule.took_snapshot(Tx(tx));
    }
    check_state(
        &schedule,
        expect![[r#"
        transaction #0 waits for a lock that transaction #2 had before it
        transaction #1 waits for a lock that transaction #2 had before it
        transaction #2 may go on
    "#]],
    );
    assert!(schedule.may_lock(Tx(0), 3), "that statement locks nothing");
    schedule.locked(Tx(2), 0);
    assert!(
        !schedule.may_lock(Tx(0), 4),
        "it holds the lock until its end"
    );
    assert_eq!(schedule.progress().lock_steps, 1);
    schedule.committed(Tx(2));
    assert!(schedule.may_lock(Tx(0), 4) && !schedule.may_lock(Tx(1), 0));
    // A transaction that does not come holds no other up.
    schedule.abandon(Tx(0));
    assert!(schedule.may_lock(Tx(1), 0));
}

#[test]
fn a_writer_that_nobody_saw_commits_after_all_snapshots() {
    let mut schedule = Schedule::new(levels(&[(Some(10), None), (None, Some((9, &[])))]), []);
    assert!(schedule.may_take_snapshot(Tx(0)) && !schedule.may_commit(Tx(0)));
    schedule.took_snapshot(Tx(1));
    assert!(schedule.may_commit(Tx(0)));
}

#[test]
fn a_writers_own_id_is_not_seen_even_if_its_snapshot_does_not_list_it() {
    // #0 had its id 10 before its snapshot, and 11 had completed by then.
    let levels = levels(&[(Some(10), Some((12, &[]))), (Some(11), None)]);
    assert!(levels.sees(Tx(0), Tx(1)) && !levels.sees(Tx(0), Tx(0)));
}

#[test]
fn the_sequential_order_is_algorithm_1() {
    use Step::{Commit, Run};
    assert_eq!(
        paper().sequential_order(),
        [
            Run(Tx(0)),
            Run(Tx(1)),
            Commit(Tx(0)),
            Commit(Tx(1)),
            Run(Tx(2)),
            Commit(Tx(2))
        ]
    );
}

#[test]
fn requests_are_sent_in_the_order_of_their_first_use_of_the_database() {
    // As drawn in the essay of `admission`.
    let spans = [
        (0, Some(50)),
        (10, Some(20)),
        (18, Some(35)),
        (40, Some(60)),
        (5, None),
    ];
    let spans = spans.map(|(first, last)| Span { first, last });
    let mut admission = Admission::new(&spans, 1);
    assert_eq!(
        (admission.overlap(), admission.limit()),
        (3, 3),
        "a limit that is too low is raised"
    );
    let mut sent = Vec::new();
    while let Some(request) = admission.next() {
        admission.sent(request);
        sent.push(request.0);
    }
    assert_eq!(sent, [0, 4, 1], "three at a time");
    admission.ended(Request(4));
    assert_eq!(admission.next(), Some(Request(2)));
    admission.ended(Request(2));
    assert_eq!(
        admission.next(),
        Some(Request(3)),
        "one that will not be sent makes way"
    );
    admission.ended(Request(3));
    assert!(admission.is_finished());
    assert_eq!(admission.in_flight(), 2);
}

#[test]
fn intervals_that_only_touch_do_not_overlap() {
    assert_eq!(
        admission::overlap([(0, 10), (10, 20), (20, 20), (20, 30)]),
        2
    );
    assert_eq!(
        admission::overlap([(0, 10), (5, 5)]),
        2,
        "one of no length still holds its point"
    );
    assert_eq!(admission::overlap([]), 0);
}

/// Of two writers nobody saw the one without the other. One that waited for the first of them has
/// a level between them, by the order of commits.
#[test]
fn an_end_is_a_level_between_two_others() {
    let saw = |xmax, in_progress: &[u64]| Snapshot {
        xmin: Xid(700),
        xmax: Xid(xmax),
        in_progress: in_progress.iter().copied().map(Xid).collect(),
    };
    let mut writers = Writers::new(6);
    for (tx, xid) in [(0, 700), (1, 701), (2, 702)] {
        writers.insert(Tx(tx), Xid(xid));
    }
    let mut snapshots = writers.sorted().unwrap();
    snapshots.insert(Tx(0), &saw(700, &[])).unwrap();
    snapshots.insert(Tx(1), &saw(701, &[700])).unwrap();
    // The third waited for the first, or for both: by its snapshot it saw neither.
    snapshots.insert(Tx(2), &saw(702, &[700, 701])).unwrap();
    // A later look of the second, at what had committed before it did; and a reader after all.
    snapshots.insert_end(Tx(3), Tx(1));
    snapshots.insert_end(Tx(4), Tx(2));
    snapshots.insert(Tx(5), &saw(703, &[])).unwrap();
    for (tx, place) in [(0, 10), (1, 20), (2, 30)] {
        snapshots.committed_at(Tx(tx), place);
    }
    let levels = snapshots.levels().unwrap();
    let sees = |reader| [0, 1, 2].map(|writer| levels.sees(Tx(reader), Tx(writer)));
    assert_eq!(sees(2), [false, false, false]);
    assert_eq!(sees(3), [true, false, false]);
    assert_eq!(sees(4), [true, true, false]);
    assert_eq!(sees(5), [true, true, true]);
    assert_eq!(levels.level_count(), 4);
}
