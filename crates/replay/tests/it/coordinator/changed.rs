//! Changed code: what it does otherwise is kept account of.

use expect_test::expect;

use super::{How, answers, check};

#[test]
fn changed_code_that_does_the_same_is_the_same() {
    check(
        How::Changed,
        "request 1 0..100
         request 2 5..90
         tx 1 10..20 xid 100 sees 100: UPDATE t SET a = $1; COMMIT
         tx 2 15..25 sees 100: SELECT a FROM t",
        "sent 1
         sent 2
         claim 1 UPDATE t SET a = 1
         claim 2 SELECT a FROM t
         may snapshot 0
         may snapshot 1
         snapshot 0
         wrote 0 UPDATE t SET a = $1
         may commit 0
         snapshot 1
         may commit 0
         ended 1
         ended 0
         answered 1
         answered 2
         finished
         changes",
        expect![[r#"
            sent 1 +1
            sent 2 +1
            claim 1 UPDATE t SET a = 1 => Run(Tx(0)) +1
            claim 2 SELECT a FROM t => Run(Tx(1)) +1
            may snapshot 0 => yes
            may snapshot 1 => yes
            snapshot 0 +1
            wrote 0 UPDATE t SET a = $1
            may commit 0 => no
            snapshot 1 +1
            may commit 0 => yes
            ended 1 +1
            ended 0 +1
            answered 1 +1
            answered 2 +1
            finished => true
            changes => ChangeCounts { same: 2, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: false
        "#]],
    );
}

#[test]
fn what_matches_nothing_is_added_and_what_does_not_come_is_deleted() {
    check(
        How::Changed,
        "request 1 0..100
         tx 1 10..20 sees 100: SELECT a FROM t
         tx 1 30..40 xid 100 sees 100: UPDATE t SET a = $1",
        "sent 1
         claim 1 SELECT a FROM t
         claim 1 UPDATE t SET a = 1
         claim 1 INSERT INTO t VALUES (1)
         ended 0
         ended 1
         ended added-0 statements INSERT INTO t VALUES ($1)
         answered 1
         changes",
        expect![[r#"
            sent 1 +1
            claim 1 SELECT a FROM t => Run(Tx(0)) +1
            claim 1 UPDATE t SET a = 1 => Run(Tx(1)) +1
            claim 1 INSERT INTO t VALUES (1) => Added(0)
            ended 0 +1
            ended 1 +1
            ended added-0 statements INSERT INTO t VALUES ($1)
                None Some(Request(0)) Added { shape: ShapeId(99), error: None, retry: false }
            answered 1 +1
            changes => ChangeCounts { same: 2, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 1, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: false
        "#]],
    );
}

#[test]
fn what_is_passed_over_is_not_waited_for() {
    check(
        How::Changed,
        "request 1 0..100
         tx 1 10..20 xid 100 sees 100: UPDATE t SET a = $1
         tx 1 30..40 xid 101 sees 101: UPDATE t SET b = $1",
        "sent 1
         claim 1 UPDATE t SET b = 1
         may snapshot 1
         snapshot 1
         may commit 1
         ended 1
         answered 1
         finished
         changes",
        expect![[r#"
            sent 1 +1
            claim 1 UPDATE t SET b = 1 => Run(Tx(1)) +1
            may snapshot 1 => yes
            snapshot 1 +1
            may commit 1 => yes
            ended 1 +1
            answered 1 +2
                Some(Tx(0)) Some(Request(0)) Deleted { into: None }
            finished => true
            changes => ChangeCounts { same: 1, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 1, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: false
        "#]],
    );
}

#[test]
fn one_that_was_added_in_front_does_not_shift_those_behind_it() {
    check(
        How::Changed,
        "request 1 0..100
         tx 1 10..20 sees 100: SELECT a FROM t
         tx 1 20..30 sees 100: SELECT b FROM t
         tx 1 30..40 sees 100: SELECT c FROM t",
        "claim 1 SELECT x FROM t
         claim 1 SELECT a FROM t
         claim 1 SELECT b FROM t
         claim 1 SELECT c FROM t
         changes",
        expect![[r#"
            claim 1 SELECT x FROM t => Run(Tx(0)) +1
            claim 1 SELECT a FROM t => Added(0)
            claim 1 SELECT b FROM t => Run(Tx(1)) +1
            claim 1 SELECT c FROM t => Run(Tx(2)) +1
            changes => ChangeCounts { same: 0, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: true
        "#]],
    );
}

#[test]
fn a_run_that_has_learnt_something_goes_as_far_again_and_is_over() {
    let requests: String = (1..=60)
        .map(|n| format!("request {n} {}..{}\n", n * 100, n * 100 + 90))
        .collect();
    let recorded = format!("{requests} tx 11 1110..1120 sees 100: SELECT a FROM t");
    let answered = |numbers: std::ops::RangeInclusive<u32>| -> String {
        numbers.map(|n| format!("answered {n}\n")).collect()
    };
    let script = format!(
        "{}claim 11 SELECT b FROM t
         over
         claim 11 SELECT a FROM t
         over
         {}over
         answered 41
         over",
        answered(1..=10),
        answered(12..=40)
    );
    let is_over = answers(How::Changed, &recorded, &script, "over");
    assert_eq!(is_over, ["false", "false", "false", "true"]);
}

#[test]
fn a_run_that_has_learnt_something_is_not_helped_on() {
    check(
        How::Changed,
        "request 1 0..100
         tx 1 10..20 sees 100: SELECT a FROM t",
        "claim 1 SELECT b FROM t
         let-go 0
         over
         claim 1 SELECT a FROM t
         let-go 0
         over",
        expect![[r#"
            claim 1 SELECT b FROM t => Run(Tx(0)) +1
            let-go 0
            over => false
            claim 1 SELECT a FROM t => Added(0)
            let-go 0
            over => true
        "#]],
    );
}

#[test]
fn what_takes_the_place_of_another_and_turns_out_added_is_learnt() {
    check(
        How::Changed,
        "request 1 0..100
         tx 1 10..20 sees 100: SELECT a FROM t",
        "claim 1 SELECT b FROM t
         changes
         claim 1 SELECT a FROM t
         changes",
        expect![[r#"
            claim 1 SELECT b FROM t => Run(Tx(0)) +1
            changes => ChangeCounts { same: 0, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: false
            claim 1 SELECT a FROM t => Added(0)
            changes => ChangeCounts { same: 0, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: true
        "#]],
    );
}

#[test]
fn reads_that_were_rolled_back_were_not_tried_again() {
    check(
        How::Changed,
        "request 1 0..100
         tx 1 10..20 aborted sees 100: BEGIN; SELECT a FROM t; ROLLBACK
         tx 1 30..40 aborted sees 100: BEGIN; SELECT a FROM t; ROLLBACK",
        "claim 1 SELECT a FROM t
         claim 1 SELECT a FROM t",
        expect![[r#"
            claim 1 SELECT a FROM t => Run(Tx(0)) +1
            claim 1 SELECT a FROM t => Run(Tx(1)) +1
        "#]],
    );
}

#[test]
fn what_failed_is_tried_again() {
    check(
        How::Changed,
        "request 1 0..100
         tx 1 10..20 xid 100 sees 100: UPDATE t SET a = $1",
        "claim 1 UPDATE t SET a = 1
         ended 0 error cannot (40001)
         claim 1 UPDATE t SET a = 1
         ended added-0
         changes",
        expect![[r#"
            claim 1 UPDATE t SET a = 1 => Run(Tx(0)) +1
            ended 0 error cannot (40001) +1
                Some(Tx(0)) Some(Request(0)) NewlyFailing { error: "cannot (40001)" }
            claim 1 UPDATE t SET a = 1 => Added(0)
            ended added-0
                None Some(Request(0)) Added { shape: ShapeId(99), error: None, retry: true }
            changes => ChangeCounts { same: 0, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 1, newly_succeeding: 0, deleted: 0, added: 1, retries: 1, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: false
        "#]],
    );
}

#[test]
fn a_request_that_was_tried_again_has_not_begun_by_that() {
    check(
        How::Changed,
        "request 1 0..100
         tx 1 10..20 sees 100 failed 40001: UPDATE t SET a = $1
         tx 1 30..40 xid 101 sees 100: UPDATE t SET a = $1",
        "begun 1
         claim 1 UPDATE t SET a = 1
         begun 1",
        expect![[r#"
            begun 1 => false
            claim 1 UPDATE t SET a = 1 => Run(Tx(1)) +1
            begun 1 => true
        "#]],
    );
}

#[test]
fn what_failed_originally_may_succeed_and_the_other_way_round() {
    check(
        How::Changed,
        "request 1 0..100
         tx 1 10..20 sees 100 failed 23505: INSERT INTO t VALUES ($1)
         tx 1 30..40 sees 100 failed 23503: INSERT INTO u VALUES ($1)
         tx 1 50..60 sees 100 failed 23503: INSERT INTO v VALUES ($1)
         tx 1 70..80 sees 100: SELECT a FROM t
         tx 1 82..84 sees 100: SELECT b FROM t
         tx 1 86..88 sees 100: SELECT c FROM t
         tx 1 90..92 sees 100 aborted: SELECT d FROM t",
        "may act 0
         ended 0
         ended 1 error no (23505)
         ended 2 error failed (23503)
         ended 3 error no (23505)
         ended 4 rolled-back
         ended 5 results
         ended 6 rolled-back
         changes",
        expect![[r#"
            may act 0 => yes
            ended 0 +1
                Some(Tx(0)) Some(Request(0)) NewlySucceeding { before: Some("failed (23505)") }
            ended 1 error no (23505) +1
                Some(Tx(1)) Some(Request(0)) FailsOtherwise { before: Some("failed (23503)"), after: Some("no (23505)") }
            ended 2 error failed (23503) +1
            ended 3 error no (23505) +1
                Some(Tx(3)) Some(Request(0)) NewlyFailing { error: "no (23505)" }
            ended 4 rolled-back +1
                Some(Tx(4)) Some(Request(0)) NewlyFailing { error: "rolled back" }
            ended 5 results +1
                Some(Tx(5)) Some(Request(0)) Results { rows: 2 }
            ended 6 rolled-back +1
            changes => ChangeCounts { same: 1, same_failure: 1, statements: 0, results: 1, fails_otherwise: 1, newly_failing: 2, newly_succeeding: 1, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: false
        "#]],
    );
}

#[test]
fn only_another_isolation_is_no_other_statement() {
    check(
        How::Changed,
        "request 1 0..100
         tx 1 10..20 sees 100: BEGIN; SELECT a FROM t; COMMIT
         tx 1 30..40 sees 100: BEGIN; SELECT b FROM t; COMMIT",
        "ended 0 statements BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT a FROM t; COMMIT
         ended 1 statements BEGIN; SELECT c FROM t; COMMIT
         changes",
        expect![[r#"
            ended 0 statements BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT a FROM t; COMMIT +1
            ended 1 statements BEGIN; SELECT c FROM t; COMMIT +1
                Some(Tx(1)) Some(Request(0)) Statements { shape: ShapeId(99) }
            changes => ChangeCounts { same: 1, same_failure: 0, statements: 1, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 1, mistaken: 0 }, outdated: false
        "#]],
    );
}

#[test]
fn writes_that_moved_into_a_transaction_that_only_read() {
    check(
        How::Changed,
        "request 1 0..100
         request 2 0..100
         tx 1 10..20 sees 100: SELECT a FROM t
         tx 2 12..22 sees 100: SELECT b FROM t
         tx 1 30..40 xid 100 sees 100: UPDATE t SET a = $1
         tx 2 50..60 sees 101: SELECT c FROM t",
        "sent 1
         sent 2
         claim 1 SELECT a FROM t
         snapshot 0
         claim 2 SELECT b FROM t
         wrote 0 UPDATE t SET a = $1
         may commit 0
         snapshot 1
         may commit 0
         may snapshot 3
         ended 0 statements SELECT a FROM t; UPDATE t SET a = $1
         may snapshot 3
         answered 1
         changes",
        expect![[r#"
            sent 1 +1
            sent 2 +1
            claim 1 SELECT a FROM t => Run(Tx(0)) +1
            snapshot 0 +1
            claim 2 SELECT b FROM t => Run(Tx(1)) +1
            wrote 0 UPDATE t SET a = $1 +1
                Some(Tx(2)) Some(Request(0)) Deleted { into: Some(Tx(0)) }
            may commit 0 => no
            snapshot 1 +1
            may commit 0 => yes
            may snapshot 3 => no
            ended 0 statements SELECT a FROM t; UPDATE t SET a = $1 +1
                Some(Tx(0)) Some(Request(0)) Statements { shape: ShapeId(99) }
            may snapshot 3 => yes
            answered 1 +1
            changes => ChangeCounts { same: 0, same_failure: 0, statements: 1, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 1, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: false
        "#]],
    );
}

#[test]
fn a_transaction_that_now_writes_commits_after_those_who_did_not_see_it() {
    check(
        How::Changed,
        "request 1 0..100
         request 2 0..100
         tx 1 10..20 sees 100: SELECT a FROM t
         tx 2 12..22 sees 100: SELECT b FROM t",
        "sent 1
         sent 2
         claim 1 SELECT a FROM t
         snapshot 0
         wrote 0 UPDATE t SET a = $1
         may commit 0
         snapshot 1
         may commit 0",
        expect![[r#"
            sent 1 +1
            sent 2 +1
            claim 1 SELECT a FROM t => Run(Tx(0)) +1
            snapshot 0 +1
            wrote 0 UPDATE t SET a = $1 +1
            may commit 0 => no
            snapshot 1 +1
            may commit 0 => yes
        "#]],
    );
}

#[test]
fn who_waits_for_one_that_has_to_come_later_gives_way() {
    check(
        How::Changed,
        "request 1 0..100
         request 2 0..90
         tx 1 10..50 xid 100 sees 100: UPDATE t SET a = $1
         tx 2 15..25 xid 101 sees 100: UPDATE t SET a = $1",
        "sent 1
         sent 2
         claim 1 UPDATE t SET a = 1
         claim 2 UPDATE t SET a = 1
         snapshot 0
         snapshot 1
         must-yield 1 0
         must-yield 0 1
         ended 1 error cannot (40001)
         claim 2 UPDATE t SET a = 1
         must-yield added-0 0",
        expect![[r#"
            sent 1 +1
            sent 2 +1
            claim 1 UPDATE t SET a = 1 => Run(Tx(0)) +1
            claim 2 UPDATE t SET a = 1 => Run(Tx(1)) +1
            snapshot 0 +1
            snapshot 1 +1
            must-yield 1 0 => false
            must-yield 0 1 => false
            ended 1 error cannot (40001) +1
            claim 2 UPDATE t SET a = 1 => Added(0)
            must-yield added-0 0 => false
        "#]],
    );
}

#[test]
fn where_nothing_moves_what_will_not_come_goes_first_and_then_the_earliest() {
    check(
        How::Changed,
        "request 1 0..100
         request 2 0..100
         tx 1 10..20 xid 100 sees 100: UPDATE t SET a = $1
         tx 2 12..22 sees 100: SELECT b FROM t
         tx 1 150..160 sees 100: SELECT c FROM t",
        "sent 1
         sent 2
         claim 1 UPDATE t SET a = 1
         snapshot 0
         may commit 0
         answered 1
         let-go 0
         may commit 0
         let-go 0
         may commit 0
         changes",
        expect![[r#"
            sent 1 +1
            sent 2 +1
            claim 1 UPDATE t SET a = 1 => Run(Tx(0)) +1
            snapshot 0 +1
            may commit 0 => no
            answered 1 +1
            let-go 0 +1
                Some(Tx(2)) Some(Request(0)) Deleted { into: None }
            may commit 0 => no
            let-go 0
            may commit 0 => yes
            changes => ChangeCounts { same: 0, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 1, added: 0, retries: 0, yielded: 0, let_go: 1, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: false
        "#]],
    );
}

/// What changed code does in the background is undone, so nobody waits for it to do a ghost.
#[test]
fn a_ghost_of_changed_code_is_not_left_to_the_service() {
    let recording = "request 1 0..100
         tx ghost 5..8 xid 100 sees 100: INSERT INTO log VALUES ($1)
         tx ghost 10..20 xid 101 sees 101: INSERT INTO log VALUES ($1)";
    let script = "background
         ghost-turn 0 0
         claim none INSERT INTO log VALUES (1)
         ghost-turn 1 0";
    check(
        How::Recorded { sequential: false },
        recording,
        script,
        expect![[r#"
            background
            ghost-turn 0 0 => Now +1
            claim none INSERT INTO log VALUES (1) => Outside
            ghost-turn 1 0 => Later
        "#]],
    );
    check(
        How::Changed,
        recording,
        script,
        expect![[r#"
        background
        ghost-turn 0 0 => Now +1
        claim none INSERT INTO log VALUES (1) => Outside
        ghost-turn 1 0 => Now +1
    "#]],
    );
}

/// Rows lie in the order in which they were inserted, in changed code as well.
#[test]
fn changed_code_inserts_in_the_order_of_ids() {
    check(
        How::Changed,
        "request 1 0..100
         request 2 0..100
         tx 1 10..40 xid 100 sees 100: INSERT INTO t VALUES ($1)
         tx 2 12..30 xid 101 sees 100: INSERT INTO t VALUES ($1)",
        "claim 2 INSERT INTO t VALUES (2)
         may snapshot 1
         may insert 1 0
         claim 1 INSERT INTO t VALUES (1)
         may insert 0 0
         locked 0 0
         may insert 1 0",
        expect![[r#"
            claim 2 INSERT INTO t VALUES (2) => Run(Tx(1)) +1
            may snapshot 1 => yes
            may insert 1 0 => no
            claim 1 INSERT INTO t VALUES (1) => Run(Tx(0)) +1
            may insert 0 0 => yes
            locked 0 0
            may insert 1 0 => yes
        "#]],
    );
}

#[test]
fn a_ghost_of_changed_code_that_cannot_be_run_is_no_divergence() {
    check(
        How::Changed,
        "request 1 0..100
         tx ghost 10..20 xid 100 sees 100: UPDATE t SET a = $1",
        "ghost 0
         ghost-failed 0 the connection was lost
         changes
         counts",
        expect![[r#"
            ghost 0 => true +1
            ghost-failed 0 the connection was lost +1
                Some(Tx(0)) None GhostFailed { error: "the connection was lost" }
            changes => ChangeCounts { same: 0, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 1, isolation: 0, mistaken: 0 }, outdated: false
            counts => Counts { transactions: 1, transactions_done: 1, served: 0, ghosts: 1, ghosts_by_service: 0, ghosts_late: 0, read_committed: 0, divergences: 0 }
        "#]],
    );
}

/// Ghosts are counted by themselves, and not among those that are to come again.
#[test]
fn a_ghost_that_is_the_same_is_not_counted_among_those_of_requests() {
    check(
        How::Changed,
        "request 1 0..100
         tx ghost 10..20 xid 100 sees 100: UPDATE t SET a = $1
         tx 1 30..40 xid 101 sees 101: UPDATE t SET b = $1",
        "sent 1
         ghost 0
         snapshot 0
         ended 0
         claim 1 UPDATE t SET b = 1
         ended 1
         changes",
        expect![[r#"
            sent 1 +1
            ghost 0 => true +1
            snapshot 0 +1
            ended 0 +1
            claim 1 UPDATE t SET b = 1 => Run(Tx(1)) +1
            ended 1 +1
            changes => ChangeCounts { same: 1, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: false
        "#]],
    );
}

#[test]
fn what_was_retried_originally_is_left_out() {
    check(
        How::Changed,
        "request 1 0..100
         tx 1 10..20 xid 100 sees 100 failed 40001: UPDATE t SET a = $1
         tx 1 30..40 xid 101 sees 101: UPDATE t SET a = $1",
        "sent 1
         claim 1 UPDATE t SET a = 1
         ended 1
         answered 1
         finished
         changes",
        expect![[r#"
            sent 1 +1
            claim 1 UPDATE t SET a = 1 => Run(Tx(1)) +1
            ended 1 +1
            answered 1 +1
            finished => true
            changes => ChangeCounts { same: 1, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: false
        "#]],
    );
}

#[test]
fn a_session_of_changed_code_that_goes_away_as_it_did_has_not_failed() {
    check(
        How::Changed,
        "request 1 0..100
         tx 1 10..20 sees 100 aborted: SELECT a FROM t WHERE a = $1",
        "claim 1 SELECT a FROM t WHERE a = 1
         lost 0
         changes",
        expect![[r#"
            claim 1 SELECT a FROM t WHERE a = 1 => Run(Tx(0)) +1
            lost 0 +1
            changes => ChangeCounts { same: 1, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: false
        "#]],
    );
}

/// A pool closes the connection as soon as it hears of the error.
#[test]
fn a_session_of_changed_code_that_goes_away_when_its_statement_has_failed_fails_as_before() {
    check(
        How::Changed,
        "request 1 0..100
         tx 1 10..20 sees 100 failed 23505: INSERT INTO t VALUES ($1)",
        "claim 1 INSERT INTO t VALUES (1)
         lost 0 error failed (23505)
         changes",
        expect![[r#"
            claim 1 INSERT INTO t VALUES (1) => Run(Tx(0)) +1
            lost 0 error failed (23505) +1
            changes => ChangeCounts { same: 0, same_failure: 1, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: false
        "#]],
    );
}

#[test]
fn a_session_of_changed_code_that_goes_away_has_failed() {
    check(
        How::Changed,
        "request 1 0..100
         tx 1 10..20 xid 100 sees 100: UPDATE t SET a = $1",
        "claim 1 UPDATE t SET a = 1
         lost 0
         changes",
        expect![[r#"
            claim 1 UPDATE t SET a = 1 => Run(Tx(0)) +1
            lost 0 +1
                Some(Tx(0)) Some(Request(0)) NewlyFailing { error: "the service closed the connection in the middle of it" }
            changes => ChangeCounts { same: 0, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 1, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: false
        "#]],
    );
}

/// Each process asks once, in whichever request is first.
#[test]
fn what_the_catalog_says_is_asked_sooner_and_waits_for_nothing() {
    check(
        How::Changed,
        "request 1 0..100
         request 2 20..90
         tx 1 10..20 xid 100 sees 100: UPDATE t SET a = $1
         tx 2 30..40 xid 101 sees 101: UPDATE t SET a = $1
         tx 2 50..60 sees 102: SELECT oid FROM pg_type",
        "sent 1
         sent 2
         claim 2 SELECT oid FROM pg_type
         claim 2 UPDATE t SET a = 1
         may snapshot 1
         may snapshot 2
         claim 1 UPDATE t SET a = 1
         ended 0
         may snapshot 1
         ended 1
         claim 2 SELECT oid FROM pg_type
         ended 2
         answered 1
         answered 2
         finished
         changes",
        expect![[r#"
            sent 1 +1
            sent 2 +1
            claim 2 SELECT oid FROM pg_type => Outside
            claim 2 UPDATE t SET a = 1 => Run(Tx(1)) +1
            may snapshot 1 => no
            may snapshot 2 => yes
            claim 1 UPDATE t SET a = 1 => Run(Tx(0)) +1
            ended 0 +1
            may snapshot 1 => yes
            ended 1 +1
            claim 2 SELECT oid FROM pg_type => Run(Tx(2)) +1
            ended 2 +1
            answered 1 +1
            answered 2 +1
            finished => true
            changes => ChangeCounts { same: 3, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: false
        "#]],
    );
}
