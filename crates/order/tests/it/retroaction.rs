//! The rules for changed code on the smallest histories that need them.

use hindcast_order::retroaction::{Origin, Past, Retroaction, Victim};
use hindcast_order::{Level, Levels, Request, Tx};

/// When a transaction began and ended, what became of it, its level, from which level on it was
/// seen.
type Line = (i64, i64, Origin, Option<u32>, Option<u32>);

fn retroaction(lines: &[Line]) -> Retroaction {
    let level: Vec<_> = lines.iter().map(|line| line.3.map(Level)).collect();
    let visible: Vec<_> = lines.iter().map(|line| line.4.map(Level)).collect();
    let past = lines.iter().zip(0..).map(|(line, request)| Past {
        began: line.0,
        ended: line.1,
        origin: line.2,
        request: Some(Request(request)),
    });
    Retroaction::new(Levels::from_parts(&level, &visible), past.collect(), [])
}

use Origin::{Aborted, Committed, Left};

const T1: Tx = Tx(0);
const T2: Tx = Tx(1);
const T3: Tx = Tx(2);

fn added(ended: i64) -> Victim<'static> {
    Victim {
        tx: None,
        ended,
        unclaimed: &[],
    }
}

fn recorded(tx: Tx, ended: i64) -> Victim<'static> {
    Victim {
        tx: Some(tx),
        ..added(ended)
    }
}

/// R³ section 4.2: s(T1) s(T2) c(T1) c(T2) s(T3) c(T3).
#[test]
fn order_and_concurrency_are_kept() {
    let mut run = retroaction(&[
        (1, 3, Committed, Some(0), Some(1)),
        (2, 4, Committed, Some(0), Some(1)),
        (5, 6, Committed, Some(1), Some(2)),
    ]);
    run.took_snapshot(T1);
    assert!(!run.may_commit(T1), "T2 must not see it");
    assert!(!run.may_take_snapshot(T3), "T3 must see both");
    run.took_snapshot(T2);
    assert!(run.may_commit(T1) && run.may_commit(T2));
    run.committed(T1);
    run.committed(T2);
    assert!(run.may_take_snapshot(T3));
    run.took_snapshot(T3);
    run.committed(T3);
    assert!(run.is_finished());
}

/// R³ section 4.3: s(T1) s(T2) c(T2) s(T3) c(T1) c(T3), and the change makes T2 wait for a row of
/// T1's.
#[test]
fn whoever_waits_for_one_that_has_to_commit_later_gives_way() {
    let mut run = retroaction(&[
        (1, 5, Committed, Some(0), Some(2)),
        (2, 3, Committed, Some(0), Some(1)),
        (4, 6, Committed, Some(1), Some(2)),
    ]);
    run.took_snapshot(T1);
    run.took_snapshot(T2);
    assert!(!run.may_commit(T1), "T3 must not see it");
    assert!(run.must_yield(recorded(T2, 3), T1));
    assert!(!run.must_yield(recorded(T1, 5), T2), "T2 commits first");
    run.failed(T2);
    run.took_snapshot(T3);
    assert!(run.may_commit(T1));
    // Who was added gives way if its request was over before.
    assert!(run.must_yield(added(4), T1));
    assert!(!run.must_yield(added(9), T1));
}

/// Two requests check and insert; merging the two must not keep them from missing each other.
#[test]
fn moved_writes_are_seen_by_nobody_who_did_not_see_them() {
    let [check, other_check, insert, other_insert] = [0, 1, 2, 3].map(Tx);
    let mut run = retroaction(&[
        (1, 2, Committed, Some(0), None),
        (3, 4, Committed, Some(0), None),
        (5, 6, Committed, Some(0), Some(1)),
        (7, 8, Committed, Some(1), Some(2)),
    ]);
    run.took_snapshot(check);
    run.absorb(check, insert, &[]);
    assert!(
        !run.may_commit(check),
        "the other check did not see the insert"
    );
    run.took_snapshot(other_check);
    assert!(run.may_commit(check));
    run.absorb(other_check, other_insert, &[]);
    run.committed(check);
    assert!(run.may_commit(other_check));
    run.committed(other_check);
    assert!(
        run.is_finished(),
        "what moved is over with what it moved into"
    );
}

#[test]
fn what_moved_is_over_with_what_it_moved_into_also_if_no_rule_holds_that() {
    let [check, insert, reader] = [0, 1, 2].map(Tx);
    for let_go_first in [true, false] {
        let mut run = retroaction(&[
            (1, 2, Committed, Some(0), None),
            (3, 4, Committed, Some(0), Some(1)),
            (5, 6, Committed, Some(1), None),
        ]);
        run.took_snapshot(check);
        if let_go_first {
            run.let_go(check);
        }
        // The later one is not between the two.
        run.absorb(check, insert, &[insert]);
        run.let_go(check);
        assert!(run.may_commit(check));
        run.committed(check);
        assert!(run.may_take_snapshot(reader), "it saw the insert");
        run.took_snapshot(reader);
        run.committed(reader);
        assert!(run.is_finished());
    }
}

#[test]
fn moved_writes_do_not_wait_for_what_is_between_them() {
    let [first, between, last] = [0, 1, 2].map(Tx);
    let mut run = retroaction(&[
        (1, 2, Committed, Some(0), None),
        (3, 4, Committed, Some(0), None),
        (5, 6, Committed, Some(0), Some(1)),
    ]);
    run.took_snapshot(first);
    run.absorb(first, last, &[between]);
    assert!(run.may_commit(first));
}

#[test]
fn a_new_writer_waits_for_those_that_ran_beside_it() {
    let mut run = retroaction(&[
        (1, 4, Committed, Some(0), None),
        (3, 6, Committed, Some(0), None),
        (5, 7, Committed, Some(0), None),
    ]);
    run.took_snapshot(T1);
    run.became_writer(T1);
    assert!(!run.may_commit(T1), "T2 began before it had ended");
    run.took_snapshot(T2);
    assert!(run.may_commit(T1), "T3 began later");
    run.committed(T1);
    assert!(run.may_take_snapshot(T3));
}

#[test]
fn a_new_writer_does_not_wait_for_who_saw_more_than_somebody_that_began_later() {
    // T2 began before T1 had ended, but took its snapshot after T3, which began after that, had
    // committed.
    let mut run = retroaction(&[
        (1, 4, Committed, Some(0), None),
        (3, 9, Committed, Some(1), None),
        (5, 7, Committed, Some(0), Some(1)),
    ]);
    run.took_snapshot(T1);
    run.became_writer(T1);
    assert!(run.may_commit(T1));
}

/// #1 saw #4 and is not waited for, but began before #2, who is. The rest of its own request (#3)
/// cannot come before it is over.
#[test]
fn progress_tells_of_a_new_writer_that_may_commit() {
    let mut run = retroaction(&[
        (1, 4, Committed, Some(0), None),
        (2, 9, Committed, Some(1), None),
        (3, 9, Committed, Some(0), None),
        (5, 7, Committed, Some(0), None),
        (5, 6, Committed, Some(0), Some(1)),
    ]);
    run.took_snapshot(Tx(4));
    run.took_snapshot(T1);
    run.became_writer(T1);
    assert!(!run.may_commit(T1));
    let before = run.progress();
    run.took_snapshot(T3);
    assert!(run.may_commit(T1));
    assert_ne!(run.progress(), before, "whoever waits is asked again");
}

#[test]
fn who_lost_acts_when_who_won_is_over() {
    let mut run = retroaction(&[
        (1, 3, Committed, Some(0), Some(1)),
        (2, 4, Aborted, Some(0), None),
        (2, 9, Committed, Some(0), Some(2)),
        (5, 6, Committed, Some(1), None),
    ]);
    assert!(run.may_take_snapshot(T2));
    run.took_snapshot(T1);
    run.took_snapshot(T2);
    run.took_snapshot(T3);
    assert!(!run.may_act(T2));
    run.committed(T1);
    assert!(run.may_act(T2), "T4 began later and did not see T3");
    assert!(run.may_commit(T2));
}

#[test]
fn who_won_may_be_seen_to_end_after_who_lost() {
    let mut run = retroaction(&[
        (1, 5, Committed, Some(0), Some(1)),
        (2, 4, Aborted, Some(0), None),
        (6, 7, Committed, Some(1), None),
    ]);
    run.took_snapshot(T1);
    run.took_snapshot(T2);
    assert!(!run.may_act(T2), "nothing says that T1 did not win");
    let before = run.progress();
    run.committed(T1);
    assert!(run.may_act(T2));
    assert_ne!(run.progress(), before, "T2 waits is asked again");
}

#[test]
fn who_does_not_come_is_waited_for_by_nobody() {
    let mut run = retroaction(&[
        (1, 3, Left, None, None),
        (2, 4, Committed, Some(0), Some(1)),
        (5, 6, Committed, Some(1), None),
    ]);
    run.leave(T2);
    assert!(run.may_take_snapshot(T3));
    // It comes all the same, and nothing it does matters to anybody.
    run.took_snapshot(T2);
    run.committed(T2);
    run.committed(T2);
    assert!(!run.is_finished());
}

#[test]
fn who_is_let_go_is_held_no_more() {
    let mut run = retroaction(&[
        (1, 3, Committed, Some(0), Some(1)),
        (2, 4, Committed, Some(0), None),
    ]);
    run.took_snapshot(T1);
    let before = run.progress();
    run.let_go(T1);
    assert_ne!(
        run.progress(),
        before,
        "whoever waits has to be asked again"
    );
    assert!(run.may_commit(T1));
    run.became_writer(T1);
    assert!(run.may_commit(T1), "and it stays so");
}
