//! What requests hand over to a thread comes before their answers or behind them.

use expect_test::expect;

use super::{How, check};

const RECORDED: How = How::Recorded { sequential: false };

/// Each request updates, and hands an insert over. The first one had it before its answer, the
/// second one behind.
const HANDED_OVER: &str = "request 1 0..100
     request 2 200..300
     request 3 400..500
     tx 1 10..20 xid 100 sees 100: UPDATE t SET a = $1
     tx 1 30..40 xid 101 sees 101: INSERT INTO seen VALUES ($1)
     tx 2 210..220 xid 102 sees 102: UPDATE t SET a = $1
     tx 2 310..320 xid 103 sees 103: INSERT INTO seen VALUES ($1)
     tx 3 410..420 sees 104: SELECT a FROM seen";

#[test]
fn what_came_before_an_answer_may_come_behind_it() {
    check(
        RECORDED,
        HANDED_OVER,
        "sent 1
         claim 1 UPDATE t SET a = 1
         snapshot 0
         ended 0
         answered 1
         sent 3
         claim 3 SELECT a FROM seen
         may snapshot 4
         claim 1 INSERT INTO seen VALUES (1)
         may snapshot 1
         snapshot 1
         ended 1
         answered 2
         counts",
        expect![[r#"
            sent 1 +1
            claim 1 UPDATE t SET a = 1 => Run(Tx(0)) +1
            snapshot 0 +1
            ended 0 +1
            answered 1 +1
            sent 3 +1
            claim 3 SELECT a FROM seen => Run(Tx(4)) +1
            may snapshot 4 => no
            claim 1 INSERT INTO seen VALUES (1) => Run(Tx(1)) +1
            may snapshot 1 => yes
            snapshot 1 +1
            ended 1 +1
            answered 2 +1
                2 2 MissingTransaction
            counts => Counts { transactions: 5, transactions_done: 3, served: 0, ghosts: 0, ghosts_by_service: 0, ghosts_late: 0, read_committed: 0, divergences: 1 }
        "#]],
    );
}

#[test]
fn what_does_not_come_is_missing_where_nothing_moves() {
    check(
        RECORDED,
        HANDED_OVER,
        "sent 1
         claim 1 UPDATE t SET a = 1
         snapshot 0
         ended 0
         answered 1
         nothing-moves
         nothing-moves
         claim 1 INSERT INTO seen VALUES (1)",
        expect![[r#"
            sent 1 +1
            claim 1 UPDATE t SET a = 1 => Run(Tx(0)) +1
            snapshot 0 +1
            ended 0 +1
            answered 1 +1
            nothing-moves +1
                1 1 MissingTransaction
            nothing-moves
            claim 1 INSERT INTO seen VALUES (1) => Extra
                1 - ExtraTransaction { recorded: 2, statement: "INSERT INTO seen VALUES ($1)" }
        "#]],
    );
}

/// The thread is ahead of the request, which has more to read, and reads that on the connection
/// that the thread had.
#[test]
fn what_came_behind_an_answer_may_come_before_all_else() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 session 7 sees 100: SELECT b FROM u
         tx 1 30..40 session 7 sees 100: SELECT a FROM t
         tx 1 110..120 session 7 xid 100 sees 100: INSERT INTO seen VALUES ($1)",
        "sent 1
         claim 1 SELECT b FROM u
         snapshot 0
         ended 0
         claim 1 INSERT INTO seen VALUES (1)
         may snapshot 2
         snapshot 2
         claim 1 SELECT a FROM t
         ended 1
         may commit 2
         ended 2
         answered 1
         finished
         settle
         moved",
        expect![[r#"
            sent 1 +1
            claim 1 SELECT b FROM u => Run(Tx(0)) +1
            snapshot 0 +1
            ended 0 +1
            claim 1 INSERT INTO seen VALUES (1) => Run(Tx(2)) +1
            may snapshot 2 => yes
            snapshot 2 +1
            claim 1 SELECT a FROM t => Run(Tx(1)) +1
            ended 1 +1
            may commit 2 => yes
            ended 2 +1
            answered 1 +1
            finished => true
            settle
            moved
        "#]],
    );
}

/// It was in the way of nothing that its request did itself.
#[test]
fn a_read_of_the_request_is_its_own_before_what_is_handed_over() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 200..300
         tx 1 10..20 session 7 xid 100 sees 100: INSERT INTO seen VALUES ($1)
         tx 1 30..40 session 7 sees 101: SELECT a FROM t
         tx 2 210..220 sees 101: SELECT a FROM t
         tx 2 290..310 xid 101 sees 101: INSERT INTO seen VALUES ($1)",
        "sent 1
         claim 1 SELECT a FROM t
         ended 1
         answered 1
         claim 1 INSERT INTO seen VALUES (1)",
        expect![[r#"
            sent 1 +1
            claim 1 SELECT a FROM t => Run(Tx(1)) +1
            ended 1 +1
            answered 1 +1
            claim 1 INSERT INTO seen VALUES (1) => Run(Tx(0)) +1
        "#]],
    );
}

/// What has only read is ended behind many an answer, and fills caches.
#[test]
fn a_read_is_handed_over_only_if_it_began_behind_an_answer() {
    let script = "sent 1
         answered 1
         finished
         nothing-moves
         settle";
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100 broken
         tx 1 10..20 sees 100: SELECT a FROM t
         tx 2 10..120 sees 100: SELECT a FROM t",
        script,
        expect![[r#"
            sent 1 +1
            answered 1 +1
            finished => false
            nothing-moves
            settle
                1 0 MissingTransaction
        "#]],
    );
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100 broken
         tx 1 10..20 sees 100: SELECT a FROM t
         tx 2 110..120 sees 100: SELECT a FROM t",
        "sent 1
         answered 1
         claim 1 SELECT a FROM t
         ended 0
         settle",
        expect![[r#"
            sent 1 +1
            answered 1 +1
            claim 1 SELECT a FROM t => Run(Tx(0)) +1
            ended 0 +1
            settle
        "#]],
    );
}

#[test]
fn changed_code_may_hand_it_over_later_or_not_at_all() {
    check(
        How::Changed,
        HANDED_OVER,
        "sent 1
         claim 1 UPDATE t SET a = 1
         ended 0
         answered 1
         claim 1 INSERT INTO seen VALUES (1)
         ended 1
         sent 2
         claim 2 UPDATE t SET a = 1
         ended 2
         answered 2
         let-go",
        expect![[r#"
            sent 1 +1
            claim 1 UPDATE t SET a = 1 => Run(Tx(0)) +1
            ended 0 +1
            answered 1 +1
            claim 1 INSERT INTO seen VALUES (1) => Run(Tx(1)) +1
            ended 1 +1
            sent 2 +1
            claim 2 UPDATE t SET a = 1 => Run(Tx(2)) +1
            ended 2 +1
            answered 2 +1
            let-go +1
                Some(Tx(3)) Some(Request(1)) Deleted { into: None }
        "#]],
    );
}

/// What a pool asks of a connection is asked behind an answer, too.
#[test]
fn what_a_pool_asks_is_not_handed_over() {
    check(
        How::Changed,
        "request 1 0..100
         request 2 0..100
         tx 1 10..15 sees 100: SELECT 1
         tx 1 20..30 xid 100 sees 100: UPDATE t SET a = $1
         tx 1 110..115 sees 101: SELECT 1
         tx 2 40..60 xid 101 sees 101: UPDATE t SET a = $1
         tx 2 45..50 sees 101: SELECT 1",
        "sent 1
         claim 1 UPDATE t SET a = 1
         snapshot 1
         may commit 1",
        expect![[r#"
            sent 1 +1
            claim 1 UPDATE t SET a = 1 => Run(Tx(1)) +1
            snapshot 1 +1
            may commit 1 => yes
        "#]],
    );
}

/// What the thread reads fills a cache, which was filled before originally: it is taken for the
/// later one.
#[test]
fn what_changed_code_has_to_do_before_it_hands_something_over_is_not_left_out() {
    check(
        How::Changed,
        "request 1 0..100
         request 2 200..300
         tx 1 10..20 xid 100 sees 100: UPDATE t SET a = $1
         tx 1 110..120 sees 101: SELECT b FROM names
         tx 2 210..220 sees 101: SELECT a FROM t",
        "sent 1
         claim 1 SELECT b FROM names
         sent 2
         claim 2 SELECT a FROM t
         may snapshot 2
         claim 1 UPDATE t SET a = 1
         ended 0
         may snapshot 2",
        expect![[r#"
            sent 1 +1
            claim 1 SELECT b FROM names => Run(Tx(1)) +1
            sent 2 +1
            claim 2 SELECT a FROM t => Run(Tx(2)) +1
            may snapshot 2 => no
            claim 1 UPDATE t SET a = 1 => Run(Tx(0)) +1
            ended 0 +1
            may snapshot 2 => yes
        "#]],
    );
}

#[test]
fn what_changed_code_has_handed_over_is_not_left_out() {
    check(
        How::Changed,
        "request 1 0..100
         request 2 200..300
         tx 1 10..20 xid 100 sees 100: INSERT INTO seen VALUES ($1)
         tx 1 30..40 xid 101 sees 101: UPDATE t SET a = $1
         tx 2 210..320 xid 102 sees 102: INSERT INTO seen VALUES ($1)
         tx 2 220..230 sees 102: SELECT a FROM seen",
        "sent 1
         claim 1 UPDATE t SET a = 1
         ended 1
         answered 1
         sent 2
         claim 2 SELECT a FROM seen
         may snapshot 3
         claim 1 INSERT INTO seen VALUES (1)
         ended 0
         may snapshot 3",
        expect![[r#"
            sent 1 +1
            claim 1 UPDATE t SET a = 1 => Run(Tx(1)) +1
            ended 1 +1
            answered 1 +1
            sent 2 +1
            claim 2 SELECT a FROM seen => Run(Tx(3)) +1
            may snapshot 3 => no
            claim 1 INSERT INTO seen VALUES (1) => Run(Tx(0)) +1
            ended 0 +1
            may snapshot 3 => yes
        "#]],
    );
}

/// Where something is defined, too: who asks may have a lock in its hands that all others want.
#[test]
fn changed_code_asks_at_any_time_whether_the_server_is_there() {
    check(
        How::Changed,
        "request 1 0..100
         request 2 0..100
         tx 1 1..5 xid 99 sees 99: CREATE TABLE IF NOT EXISTS t (a integer)
         tx 1 10..20 xid 100 sees 100: UPDATE t SET a = $1
         tx 2 30..35 sees 101: SELECT $1
         tx 2 40..45 sees 101: SELECT a FROM t",
        "sent 2
         claim 2 SELECT 1
         may snapshot 2
         ended 2
         claim 2 SELECT a FROM t
         may snapshot 3",
        expect![[r#"
            sent 2 +1
            claim 2 SELECT 1 => Run(Tx(2)) +1
            may snapshot 2 => yes
            ended 2 +1
            claim 2 SELECT a FROM t => Run(Tx(3)) +1
            may snapshot 3 => no
        "#]],
    );
}
