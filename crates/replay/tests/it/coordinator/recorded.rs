//! The recorded code: whatever is otherwise than recorded is a divergence.

use expect_test::expect;

use super::{How, check};

const RECORDED: How = How::Recorded { sequential: false };

#[test]
fn a_snapshot_waits_for_what_it_saw_and_a_commit_for_those_who_did_not_see_it() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 5..90
         tx 1 10..20 xid 100 sees 100: UPDATE t SET a = $1; COMMIT
         tx 2 15..25 sees 100: SELECT a FROM t
         tx 2 30..35 sees 101: SELECT b FROM t",
        "sent 1
         sent 2
         claim 1 UPDATE t SET a = 7
         may snapshot 0
         snapshot 0
         may commit 0
         claim 2 SELECT a FROM t
         may snapshot 1
         may snapshot 2
         snapshot 1
         may commit 0
         ended 1
         ended 0
         claim 2 SELECT b FROM t
         may snapshot 2
         snapshot 2
         ended 2
         answered 1
         answered 2
         finished
         counts",
        expect![[r#"
            sent 1 +1
            sent 2 +1
            claim 1 UPDATE t SET a = 7 => Run(Tx(0)) +1
            may snapshot 0 => yes
            snapshot 0 +1
            may commit 0 => no
            claim 2 SELECT a FROM t => Run(Tx(1)) +1
            may snapshot 1 => yes
            may snapshot 2 => no
            snapshot 1 +1
            may commit 0 => yes
            ended 1 +1
            ended 0 +1
            claim 2 SELECT b FROM t => Run(Tx(2)) +1
            may snapshot 2 => yes
            snapshot 2 +1
            ended 2 +1
            answered 1 +1
            answered 2 +1
            finished => true
            counts => Counts { transactions: 3, transactions_done: 3, served: 0, ghosts: 0, ghosts_by_service: 0, ghosts_late: 0, read_committed: 0, divergences: 0 }
        "#]],
    );
}

/// A driver asks for types within the transaction that first needs them on its connection.
#[test]
fn what_a_driver_asks_for_itself_does_not_tell_which_transaction_it_is() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100
         tx 1 10..20 sees 100 read-committed: BEGIN; SELECT oid FROM pg_type; SELECT a FROM t FOR UPDATE; COMMIT
         tx 1 30..40 sees 100 read-committed: BEGIN; SELECT b FROM t FOR UPDATE; COMMIT
         tx 2 50..60 sees 100: BEGIN; SELECT b FROM t FOR UPDATE; COMMIT",
        "begun 1
         claim 1 BEGIN; SELECT a FROM t FOR UPDATE
         claim 1 BEGIN; SELECT oid FROM pg_type
         claim 2 BEGIN; SELECT oid FROM pg_type
         claim 1 BEGIN; SELECT b FROM t FOR UPDATE",
        expect![[r#"
            begun 1 => false
            claim 1 BEGIN; SELECT a FROM t FOR UPDATE => Run(Tx(0)) +1
            claim 1 BEGIN; SELECT oid FROM pg_type => Later(None)
            claim 2 BEGIN; SELECT oid FROM pg_type => Outside
            claim 1 BEGIN; SELECT b FROM t FOR UPDATE => Run(Tx(1)) +1
        "#]],
    );
}

#[test]
fn transactions_are_known_by_their_first_statement_and_else_by_their_place() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 sees 100: SELECT a FROM t FOR UPDATE
         tx 1 30..40 sees 100: SELECT b FROM t FOR UPDATE
         tx 1 50..60 sees 100: SELECT c FROM t FOR UPDATE",
        "begun 1
         claim 1 SELECT b FROM t FOR UPDATE
         begun 1
         claim 1 SELECT d FROM t FOR UPDATE
         claim 1 SELECT c FROM t FOR UPDATE
         claim 1 SELECT c FROM t FOR UPDATE
         claim 2 SELECT a FROM t FOR UPDATE
         claim none SELECT a FROM t FOR UPDATE",
        expect![[r#"
            begun 1 => false
            claim 1 SELECT b FROM t FOR UPDATE => Run(Tx(1)) +1
            begun 1 => true
            claim 1 SELECT d FROM t FOR UPDATE => Run(Tx(0)) +1
            claim 1 SELECT c FROM t FOR UPDATE => Run(Tx(2)) +1
            claim 1 SELECT c FROM t FOR UPDATE => Extra
                1 - ExtraTransaction { recorded: 3, statement: "SELECT c FROM t FOR UPDATE" }
            claim 2 SELECT a FROM t FOR UPDATE => Outside
            claim none SELECT a FROM t FOR UPDATE => Outside
        "#]],
    );
}

#[test]
fn what_was_broken_off_goes_no_further() {
    check(
        RECORDED,
        "request 1 0..100 broken
         tx 1 10..20 sees 100: SELECT a FROM t FOR UPDATE
         tx 1 30..40 xid 101 sees 100 aborted: UPDATE t SET a = $1",
        "claim 1 SELECT a FROM t FOR UPDATE
         claim 1 UPDATE t SET a = $1
         served 1 less
         claim 1 SELECT c FROM t FOR UPDATE",
        expect![[r#"
            claim 1 SELECT a FROM t FOR UPDATE => Run(Tx(0)) +1
            claim 1 UPDATE t SET a = $1 => Serve(Tx(1)) +1
            served 1 less +1
            claim 1 SELECT c FROM t FOR UPDATE => CutOff +1
        "#]],
    );
}

/// It drew first and took its snapshot later: it was slow in between. What it saw commits when the
/// other one has looked, which looks as it inserts.
#[test]
fn an_insert_waits_for_no_earlier_one_that_waits_for_its_look() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100
         request 3 0..100
         tx 1 10..40 xid 100 sees 100 read-committed told 30 draws 0@8: INSERT INTO t (a) VALUES ($1)
         tx 2 11..20 xid 101 sees 100: UPDATE u SET a = $1
         tx 3 21..30 xid 102 sees 102-100 draws 0@7: INSERT INTO t (a) VALUES ($1)",
        "may snapshot 2
         may insert 0 0
         snapshot 0
         may insert 0 0
         snapshot 1
         ended 1
         may snapshot 2
         snapshot 2
         may insert 2 0
         locked 2 0
         may insert 0 0",
        expect![[r#"
            may snapshot 2 => no
            may insert 0 0 => yes
            snapshot 0 +1
            may insert 0 0 => no
            snapshot 1 +1
            ended 1 +1
            may snapshot 2 => yes
            snapshot 2 +1
            may insert 2 0 => yes
            locked 2 0
            may insert 0 0 => yes
        "#]],
    );
}

/// An insert that waits for room in its table is told by the server as one that waited, and what
/// that saw is taken from its end.
#[test]
fn an_insert_waits_for_none_that_sees_its_commit_and_for_none_that_is_over() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100
         request 3 0..100
         tx 1 10..20 xid 100 sees 100 draws 0@8: INSERT INTO t (a) VALUES ($1)
         tx 2 11..30 xid 101 sees 101 draws 0@7: INSERT INTO t (a) VALUES ($1)
         tx 3 12..40 xid 102 sees 101 draws 0@9: INSERT INTO t (a) VALUES ($1)",
        "snapshot 0
         may insert 0 0
         locked 0 0
         ended 0
         may insert 2 0
         snapshot 1
         ended 1
         may insert 2 0",
        expect![[r#"
            snapshot 0 +1
            may insert 0 0 => yes
            locked 0 0
            ended 0 +1
            may insert 2 0 => no
            snapshot 1 +1
            ended 1 +1
            may insert 2 0 => yes
        "#]],
    );
}

#[test]
fn an_aborted_one_is_served_and_nobody_waits_for_it() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 xid 100 sees 100 aborted: UPDATE t SET a = $1
         tx 1 30..40 xid 101 sees 101: UPDATE t SET a = $1",
        "sent 1
         claim 1 UPDATE t SET a = 1
         served 0 whole
         claim 1 UPDATE t SET a = 1
         may snapshot 1
         snapshot 1
         may commit 1
         ended 1
         answered 1
         finished",
        expect![[r#"
            sent 1 +1
            claim 1 UPDATE t SET a = 1 => Serve(Tx(0)) +1
            served 0 whole +1
            claim 1 UPDATE t SET a = 1 => Run(Tx(1)) +1
            may snapshot 1 => yes
            snapshot 1 +1
            may commit 1 => yes
            ended 1 +1
            answered 1 +1
            finished => true
        "#]],
    );
}

#[test]
fn what_is_served_in_part_diverges() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 sees 100 aborted: SELECT a FROM t",
        "claim 1 SELECT a FROM t
         served 0 part",
        expect![[r#"
            claim 1 SELECT a FROM t => Serve(Tx(0)) +1
            served 0 part +1
                1 0 ServedDiffers
        "#]],
    );
}

#[test]
fn other_statements_results_and_failures_diverge() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 sees 100: SELECT a FROM t
         tx 1 30..40 xid 100 sees 100 read-committed: UPDATE t SET b = $1
         tx 1 50..60 sees 100: SELECT c FROM t
         tx 1 70..80 sees 100: SELECT d FROM t
         tx 1 90..95 sees 100: SELECT e FROM t",
        "ended 0 statements SELECT x FROM t
         ended 1 results
         ended 2 error no (23505)
         ended 3 rolled-back
         lost 4
         counts",
        expect![[r#"
            ended 0 statements SELECT x FROM t +1
                1 0 OtherStatements { expected: ShapeId(0), actual: ShapeId(99) }
            ended 1 results +1
                1 1 OtherResults { expected_rows: 1, actual_rows: 2, expected_digest: 00000001, actual_digest: 000003e9, read_committed: true }
            ended 2 error no (23505) +1
                1 2 Failed { error: Some("no (23505)"), read_committed: false }
            ended 3 rolled-back +1
                1 3 Failed { error: None, read_committed: false }
            lost 4 +1
                1 4 ConnectionLost
            counts => Counts { transactions: 5, transactions_done: 5, served: 0, ghosts: 0, ghosts_by_service: 0, ghosts_late: 0, read_committed: 1, divergences: 5 }
        "#]],
    );
}

#[test]
fn what_a_request_did_not_begin_is_missing_unless_it_came_after_the_response() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100 broken
         tx 1 10..20 sees 100: SELECT a FROM t
         tx 2 10..20 sees 100: SELECT a FROM t
         tx 1 30..40 xid 100 sees 100: UPDATE t SET a = $1
         tx 1 150..160 sees 101: SELECT b FROM t",
        "sent 1
         sent 2
         answered 1
         answered 2
         finished
         claim 1 SELECT b FROM t
         may snapshot 3
         ended 3
         finished
         settle",
        expect![[r#"
            sent 1 +1
            sent 2 +1
            answered 1 +1
                1 2 MissingTransaction
            answered 2 +1
            finished => false
            claim 1 SELECT b FROM t => Run(Tx(3)) +1
            may snapshot 3 => yes
            ended 3 +1
            finished => true
            settle
                1 0 MissingTransaction
        "#]],
    );
}

#[test]
fn after_the_end_nothing_is_compared() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 sees 100: SELECT a FROM t FOR UPDATE",
        "stop
         ended 0 results
         claim 1 SELECT a FROM t FOR UPDATE
         claim 1 SELECT a FROM t FOR UPDATE
         counts",
        expect![[r#"
            stop
            ended 0 results +1
            claim 1 SELECT a FROM t FOR UPDATE => Run(Tx(0)) +1
            claim 1 SELECT a FROM t FOR UPDATE => Extra
            counts => Counts { transactions: 1, transactions_done: 1, served: 0, ghosts: 0, ghosts_by_service: 0, ghosts_late: 0, read_committed: 0, divergences: 0 }
        "#]],
    );
}

/// The service keeps settings that it has read, and read this one behind the transaction.
#[test]
fn a_read_by_itself_does_not_begin_a_transaction_of_its_client() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 xid 100 sees 100: BEGIN; SELECT a FROM t; INSERT INTO t VALUES ($1); COMMIT
         tx 1 30..40 sees 101: SELECT s FROM setting",
        "claim 1 BEGIN; SELECT s FROM setting
         claim 1 SELECT s FROM setting",
        expect![[r#"
            claim 1 BEGIN; SELECT s FROM setting => Outside
            claim 1 SELECT s FROM setting => Run(Tx(1)) +1
        "#]],
    );
}

#[test]
fn advisory_locks_are_taken_in_their_order() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100
         tx 1 10..20 sees 100 locks 1@2: SELECT a FROM t; SELECT pg_advisory_xact_lock($1)
         tx 2 10..20 sees 100 locks 1@1: SELECT a FROM t; SELECT pg_advisory_xact_lock($1)",
        "may lock 0 1
         may lock 1 1
         locked 1 1
         may lock 0 1
         locked 0 1",
        expect![[r#"
            may lock 0 1 => no
            may lock 1 1 => yes
            locked 1 1 +1
            may lock 0 1 => yes
            locked 0 1 +1
        "#]],
    );
}

/// It was sent before the other one, which committed before the server looked at it.
#[test]
fn who_only_gives_a_lock_back_waits_for_nothing_that_it_saw() {
    for (level, statements) in [
        ("", "SELECT pg_advisory_unlock($1) AS released"),
        ("read-committed told 9", "SELECT pg_advisory_unlock($1)"),
    ] {
        check(
            RECORDED,
            &format!(
                "request 1 0..100
                 request 2 0..100
                 tx 1 10..40 xid 100 sees 100 locks 1@2: UPDATE t SET a = $1; SELECT pg_advisory_unlock($1)
                 tx 2 12..42 {level} sees 101 locks 0@1: {statements}"
            ),
            "snapshot 0
             may lock 0 1
             may snapshot 1
             snapshot 1
             may lock 1 0
             locked 1 0
             may lock 0 1",
            expect![[r#"
                snapshot 0 +1
                may lock 0 1 => no
                may snapshot 1 => yes
                snapshot 1 +1
                may lock 1 0 => yes
                locked 1 0 +1
                may lock 0 1 => yes
            "#]],
        );
    }
}

#[test]
fn in_sequence_one_runs_after_the_other() {
    check(
        How::Recorded { sequential: true },
        "request 1 0..100
         request 2 0..100
         tx 1 10..20 xid 100 sees 100: UPDATE t SET a = $1
         tx 2 12..22 xid 101 sees 100: UPDATE t SET b = $1
         tx 2 30..40 sees 102: SELECT a FROM t",
        "may snapshot 0
         may snapshot 1
         may snapshot 2
         snapshot 0
         ran 0
         may commit 0
         may snapshot 1
         snapshot 1
         ran 1
         may commit 0
         may commit 1
         ended 0
         may commit 1
         ended 1
         may snapshot 2",
        expect![[r#"
            may snapshot 0 => yes
            may snapshot 1 => no
            may snapshot 2 => no
            snapshot 0 +1
            ran 0 +1
            may commit 0 => no
            may snapshot 1 => yes
            snapshot 1 +1
            ran 1 +1
            may commit 0 => yes
            may commit 1 => yes
            ended 0 +1
            may commit 1 => yes
            ended 1 +1
            may snapshot 2 => yes
        "#]],
    );
}

/// The one that began first waits in the database for the lock that the other has until its end.
#[test]
fn in_sequence_commits_that_nobody_sees_between_are_in_no_order() {
    check(
        How::Recorded { sequential: true },
        "request 1 0..100
         request 2 0..100
         tx 1 10..40 xid 101 sees 100 locks 1@6: SELECT pg_advisory_xact_lock($1); UPDATE t SET a = $1
         tx 2 12..30 xid 100 sees 100 locks 1@5: SELECT pg_advisory_xact_lock($1); UPDATE t SET a = $1
         tx 2 50..60 sees 102: SELECT a FROM t",
        "snapshot 0
         ran 0
         may lock 0 1
         snapshot 1
         ran 1
         locked 1 1
         may lock 0 1
         may commit 1
         ended 1
         may snapshot 2
         locked 0 1
         may commit 0
         ended 0
         may snapshot 2",
        expect![[r#"
            snapshot 0 +1
            ran 0 +1
            may lock 0 1 => no
            snapshot 1 +1
            ran 1 +1
            locked 1 1 +1
            may lock 0 1 => yes
            may commit 1 => yes
            ended 1 +1
            may snapshot 2 => no
            locked 0 1 +1
            may commit 0 => yes
            ended 0 +1
            may snapshot 2 => yes
        "#]],
    );
}

/// The one with the older snapshot got the lock second: it has run as far as it can once it waits.
#[test]
fn in_sequence_the_older_snapshot_may_lock_second() {
    check(
        How::Recorded { sequential: true },
        "request 1 0..100
         request 2 0..100
         tx 2 5..8 xid 100 sees 100: UPDATE t SET b = $1
         tx 1 10..40 xid 101 sees 100 locks 1@6: SELECT pg_advisory_xact_lock($1); UPDATE t SET a = $1
         tx 2 12..30 xid 102 sees 101 locks 1@5: SELECT pg_advisory_xact_lock($1); UPDATE t SET a = $1",
        "may snapshot 0
         snapshot 0
         ran 0
         may snapshot 1
         snapshot 1
         ran 1
         may lock 1 1
         may commit 0
         ended 0
         may snapshot 2
         snapshot 2
         ran 2
         may lock 2 1
         locked 2 1
         may lock 1 1",
        expect![[r#"
            may snapshot 0 => yes
            snapshot 0 +1
            ran 0 +1
            may snapshot 1 => yes
            snapshot 1 +1
            ran 1 +1
            may lock 1 1 => no
            may commit 0 => yes
            ended 0 +1
            may snapshot 2 => yes
            snapshot 2 +1
            ran 2 +1
            may lock 2 1 => yes
            locked 2 1 +1
            may lock 1 1 => yes
        "#]],
    );
}

#[test]
fn ghosts_run_unless_they_aborted() {
    check(
        RECORDED,
        "request 1 0..100
         tx ghost 10..20 xid 100 sees 100: UPDATE t SET a = $1
         tx ghost 30..40 sees 101 aborted: SELECT a FROM t
         tx ghost 50..60: SET x = $1
         tx ghost 70..80 xid 101 sees 101: UPDATE t SET a = $1",
        "ghost 0
         snapshot 0
         ended 0
         ghost 1
         ghost 2
         ghost-over 2
         ghost 3
         ghost-failed 3 the connection was lost
         answered 1
         finished
         counts",
        expect![[r#"
            ghost 0 => true +1
            snapshot 0 +1
            ended 0 +1
            ghost 1 => false +1
            ghost 2 => true +1
            ghost-over 2 +1
            ghost 3 => true +1
            ghost-failed 3 the connection was lost +1
                - 3 Failed { error: Some("the connection was lost"), read_committed: false }
            answered 1 +1
            finished => true
            counts => Counts { transactions: 4, transactions_done: 3, served: 0, ghosts: 4, ghosts_by_service: 0, ghosts_late: 0, read_committed: 0, divergences: 1 }
        "#]],
    );
}

#[test]
fn a_request_whose_transactions_were_known_by_being_alone_must_be_alone() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 sees 100 alone: SELECT a FROM t
         tx 1 30..40 sees 100: SELECT b FROM t",
        "alone 1
         claim 1 SELECT a FROM t
         alone 1",
        expect![[r#"
            alone 1 => true
            claim 1 SELECT a FROM t => Run(Tx(0)) +1
            alone 1 => false
        "#]],
    );
}

/// As SQLAlchemy asks before it uses its first connection, and rolls back.
#[test]
fn what_is_asked_of_a_first_connection_may_be_asked_by_another_request() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 5..90
         tx 1 10..12 sees 100 aborted: BEGIN; SELECT version(); SAVEPOINT a; SELECT oid FROM pg_type; RELEASE a; ROLLBACK
         tx 1 15..20 sees 100: SELECT a FROM t
         tx 2 25..30 sees 101: SELECT a FROM t",
        "sent 1
         sent 2
         claim 2 SELECT version()
         claim 2 SELECT a FROM t
         snapshot 2
         ended 2
         answered 2
         claim 1 SELECT a FROM t
         snapshot 1
         ended 1
         answered 1
         finished",
        expect![[r#"
            sent 1 +1
            sent 2 +1
            claim 2 SELECT version() => Outside
            claim 2 SELECT a FROM t => Run(Tx(2)) +1
            snapshot 2 +1
            ended 2 +1
            answered 2 +1
            claim 1 SELECT a FROM t => Run(Tx(1)) +1
            snapshot 1 +1
            ended 1 +1
            answered 1 +1
            finished => true
        "#]],
    );
}

/// A connection may be opened, or looked after by its pool, in another request than originally.
#[test]
fn what_is_about_a_connection_may_come_with_any_request_or_none() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 5..90
         tx 1 10..12 sees 100: SELECT set_config($1, $2, false)
         tx 1 15..20 xid 100 sees 100: UPDATE t SET a = $1; COMMIT
         tx 2 25..30 sees 101: SELECT a FROM t",
        "sent 1
         sent 2
         claim 1 UPDATE t SET a = 7
         snapshot 1
         may commit 1
         ended 1
         answered 1
         claim 2 SELECT set_config('a', 'b', false)
         claim 2 SELECT a FROM t
         may snapshot 2
         snapshot 2
         ended 2
         answered 2
         finished
         counts",
        expect![[r#"
            sent 1 +1
            sent 2 +1
            claim 1 UPDATE t SET a = 7 => Run(Tx(1)) +1
            snapshot 1 +1
            may commit 1 => yes
            ended 1 +1
            answered 1 +1
            claim 2 SELECT set_config('a', 'b', false) => Outside
            claim 2 SELECT a FROM t => Run(Tx(2)) +1
            may snapshot 2 => yes
            snapshot 2 +1
            ended 2 +1
            answered 2 +1
            finished => true
            counts => Counts { transactions: 3, transactions_done: 3, served: 0, ghosts: 0, ghosts_by_service: 0, ghosts_late: 0, read_committed: 0, divergences: 0 }
        "#]],
    );
}

/// Who reads on from a cursor that is held takes no snapshot, and is not asked who it is.
#[test]
fn what_takes_no_snapshot_is_not_missing() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..12 sees 100: DECLARE c CURSOR WITH HOLD FOR SELECT a FROM t
         tx 1 15..16: FETCH 100 FROM c
         tx 1 17..18: CLOSE c
         tx 1 20..30 xid 100 sees 100: UPDATE t SET a = $1; COMMIT",
        "sent 1
         claim 1 DECLARE other CURSOR WITH HOLD FOR SELECT a FROM t
         snapshot 0
         ended 0
         claim 1 UPDATE t SET a = 7
         snapshot 3
         may commit 3
         ended 3
         answered 1
         finished
         counts",
        expect![[r#"
            sent 1 +1
            claim 1 DECLARE other CURSOR WITH HOLD FOR SELECT a FROM t => Run(Tx(0)) +1
            snapshot 0 +1
            ended 0 +1
            claim 1 UPDATE t SET a = 7 => Run(Tx(3)) +1
            snapshot 3 +1
            may commit 3 => yes
            ended 3 +1
            answered 1 +1
            finished => true
            counts => Counts { transactions: 4, transactions_done: 4, served: 0, ghosts: 0, ghosts_by_service: 0, ghosts_late: 0, read_committed: 0, divergences: 0 }
        "#]],
    );
}
