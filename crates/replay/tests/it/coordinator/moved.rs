//! Reads that come in another request than they did.

use expect_test::expect;

use super::{How, check};

const RECORDED: How = How::Recorded { sequential: false };

#[test]
fn a_cache_may_be_filled_by_another_request() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 5..90
         tx 1 10..20 sees 100: SELECT name FROM kind
         tx 1 30..40 xid 100 sees 100: UPDATE t SET a = $1
         tx 2 50..60 xid 101 sees 101: UPDATE t SET a = $1",
        "sent 1
         claim 1 UPDATE t SET a = 7
         snapshot 1
         may commit 1
         ended 1
         answered 1
         sent 2
         claim 2 SELECT name FROM kind
         claim 2 UPDATE t SET a = 8
         snapshot 2
         ended 2
         answered 2
         finished
         settle
         moved",
        expect![[r#"
            sent 1 +1
            claim 1 UPDATE t SET a = 7 => Run(Tx(1)) +1
            snapshot 1 +1
            may commit 1 => yes
            ended 1 +1
            answered 1 +1
            sent 2 +1
            claim 2 SELECT name FROM kind => Outside
            claim 2 UPDATE t SET a = 8 => Run(Tx(2)) +1
            snapshot 2 +1
            ended 2 +1
            answered 2 +1
            finished => true
            settle
            moved => 2× SELECT name FROM kind
        "#]],
    );
}

#[test]
fn a_read_that_moved_does_not_stand_for_one_behind_a_write() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100
         tx 2 10..20 sees 100: SELECT name FROM kind
         tx 1 30..40 session 7 xid 100 sees 100: UPDATE t SET a = $1
         tx 1 50..60 session 7 sees 101: SELECT name FROM kind",
        "claim 1 SELECT name FROM kind
         claim 1 UPDATE t SET a = 7
         snapshot 1
         ended 1
         claim 1 SELECT name FROM kind",
        expect![[r#"
            claim 1 SELECT name FROM kind => Outside
            claim 1 UPDATE t SET a = 7 => Run(Tx(1)) +1
            snapshot 1 +1
            ended 1 +1
            claim 1 SELECT name FROM kind => Run(Tx(2)) +1
        "#]],
    );
}

#[test]
fn what_the_catalog_says_waits_for_nobody_where_nothing_is_defined() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100
         tx 2 5..9 xid 100 sees 100: UPDATE t SET a = $1
         tx 1 10..20 sees 101: SELECT attname FROM pg_attribute
         tx 1 30..40 xid 101 sees 101: UPDATE t SET a = $1",
        "claim 1 SELECT attname FROM pg_attribute
         claim 1 UPDATE t SET a = 7
         counts",
        expect![[r#"
            claim 1 SELECT attname FROM pg_attribute => Outside +1
            claim 1 UPDATE t SET a = 7 => Run(Tx(2)) +1
            counts => Counts { transactions: 3, transactions_done: 1, served: 0, ghosts: 0, ghosts_by_service: 0, ghosts_late: 0, read_committed: 0, divergences: 0 }
        "#]],
    );
}

#[test]
fn a_read_that_is_only_late_has_not_moved() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 sees 100: SELECT name FROM kind
         tx 1 30..40 sees 100: SELECT a FROM t",
        "claim 1 SELECT a FROM t
         claim 1 SELECT name FROM kind
         ended 1
         answered 1
         settle
         moved",
        expect![[r#"
            claim 1 SELECT a FROM t => Run(Tx(1)) +1
            claim 1 SELECT name FROM kind => Outside
            ended 1 +1
            answered 1 +1
            settle
            moved
        "#]],
    );
}

#[test]
fn of_two_reads_by_one_statement_the_first_may_be_the_one_that_moved() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 sees 100: SELECT name FROM kind WHERE id = $1
         tx 1 30..40 sees 100: SELECT name FROM kind WHERE id = $1",
        "claim 1 SELECT name FROM kind WHERE id = 2
         ended 0 results-of 1
         answered 1
         settle
         moved
         counts",
        expect![[r#"
            claim 1 SELECT name FROM kind WHERE id = 2 => Run(Tx(0)) +1
            ended 0 results-of 1 +1
            answered 1 +1
            settle
            moved => 1× SELECT name FROM kind WHERE id = $1
            counts => Counts { transactions: 2, transactions_done: 2, served: 0, ghosts: 0, ghosts_by_service: 0, ghosts_late: 0, read_committed: 0, divergences: 0 }
        "#]],
    );
}

/// Of two keys, each request asked for one. Where no such read moves, the answer is a difference.
#[test]
fn a_cache_by_a_key_may_be_filled_in_another_order() {
    let recorded = "request 1 0..100
         request 2 0..100
         tx 1 10..20 sees 100: SELECT name FROM kind WHERE id = $1
         tx 2 30..40 sees 100: SELECT name FROM kind WHERE id = $1";
    check(
        RECORDED,
        recorded,
        "claim 1 SELECT name FROM kind WHERE id = 2
         claim 2 SELECT name FROM kind WHERE id = 1
         claim 2 SELECT name FROM kind WHERE id = 3
         ended 0 results-of 1
         ended 1 results-of 0
         answered 1
         answered 2
         settle
         moved",
        expect![[r#"
            claim 1 SELECT name FROM kind WHERE id = 2 => Run(Tx(0)) +1
            claim 2 SELECT name FROM kind WHERE id = 1 => Run(Tx(1)) +1
            claim 2 SELECT name FROM kind WHERE id = 3 => Outside
            ended 0 results-of 1 +1
            ended 1 results-of 0 +1
            answered 1 +1
            answered 2 +1
            settle
            moved => 3× SELECT name FROM kind WHERE id = $1
        "#]],
    );
    check(
        RECORDED,
        recorded,
        "claim 1 SELECT name FROM kind WHERE id = 2
         claim 2 SELECT name FROM kind WHERE id = 2
         ended 0 results-of 1
         ended 1 error no such table
         answered 1
         answered 2
         settle
         moved",
        expect![[r#"
            claim 1 SELECT name FROM kind WHERE id = 2 => Run(Tx(0)) +1
            claim 2 SELECT name FROM kind WHERE id = 2 => Run(Tx(1)) +1
            ended 0 results-of 1 +1
            ended 1 error no such table +1
                1 0 OtherResults { expected_rows: 1, actual_rows: 1, expected_digest: 00000000, actual_digest: 00000001, read_committed: false }
                2 1 Failed { error: Some("no such table"), read_committed: false }
            answered 1 +1
            answered 2 +1
            settle
            moved
        "#]],
    );
}

#[test]
fn reads_move_into_transactions_and_out_of_them() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100
         tx 1 10..20 xid 100 sees 100: BEGIN; SELECT name FROM kind; UPDATE t SET a = $1; COMMIT
         tx 2 30..40 xid 101 sees 101: BEGIN; UPDATE u SET a = $1; COMMIT",
        "ended 0 statements BEGIN; UPDATE t SET a = 1; COMMIT
         ended 1 statements BEGIN; SELECT name FROM kind; UPDATE u SET a = 1; COMMIT
         settle
         moved",
        expect![[r#"
            ended 0 statements BEGIN; UPDATE t SET a = 1; COMMIT +1
            ended 1 statements BEGIN; SELECT name FROM kind; UPDATE u SET a = 1; COMMIT +1
            settle
            moved => 2× SELECT name FROM kind
        "#]],
    );
    // Nowhere else, not recorded, or no read.
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 xid 100 sees 100: BEGIN; SELECT name FROM kind; UPDATE t SET a = $1; COMMIT
         tx 1 30..40 xid 101 sees 101: BEGIN; UPDATE u SET a = $1; COMMIT
         tx 1 50..60 xid 102 sees 102: BEGIN; UPDATE u SET a = $1; COMMIT",
        "ended 0 statements BEGIN; UPDATE t SET a = 1; COMMIT
         ended 1 statements BEGIN; SELECT other FROM kind; UPDATE u SET a = 1; COMMIT
         ended 2 statements BEGIN; UPDATE t SET a = 1; UPDATE u SET a = 1; COMMIT
         settle
         moved",
        expect![[r#"
            ended 0 statements BEGIN; UPDATE t SET a = 1; COMMIT +1
            ended 1 statements BEGIN; SELECT other FROM kind; UPDATE u SET a = 1; COMMIT +1
                1 1 OtherStatements { expected: ShapeId(1), actual: ShapeId(99) }
            ended 2 statements BEGIN; UPDATE t SET a = 1; UPDATE u SET a = 1; COMMIT +1
                1 2 OtherStatements { expected: ShapeId(1), actual: ShapeId(99) }
            settle
                1 0 OtherStatements { expected: ShapeId(0), actual: ShapeId(99) }
            moved
        "#]],
    );
}

#[test]
fn of_changed_code_a_read_that_moved_is_no_difference() {
    let recording = "request 1 0..100
         request 2 0..100
         tx 1 10..20 sees 100: SELECT name FROM kind
         tx 1 30..40 xid 100 sees 100: UPDATE t SET a = $1
         tx 2 50..60 xid 101 sees 101: BEGIN; UPDATE t SET a = $1; COMMIT";
    // Into a transaction, and into a request.
    check(
        How::Changed,
        recording,
        "claim 1 UPDATE t SET a = 7
         ended 1
         answered 1
         claim 2 UPDATE t SET a = 8
         ended 2 statements BEGIN; SELECT name FROM kind; UPDATE t SET a = 1; COMMIT
         answered 2
         settle-changes
         moved",
        expect![[r#"
            claim 1 UPDATE t SET a = 7 => Run(Tx(1)) +1
            ended 1 +1
            answered 1 +2
                Some(Tx(0)) Some(Request(0)) Deleted { into: None }
            claim 2 UPDATE t SET a = 8 => Run(Tx(2)) +1
            ended 2 statements BEGIN; SELECT name FROM kind; UPDATE t SET a = 1; COMMIT +1
                Some(Tx(2)) Some(Request(1)) Statements { shape: ShapeId(99) }
            answered 2 +1
            settle-changes => [] ChangeCounts { same: 2, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }
            moved => 2× SELECT name FROM kind
        "#]],
    );
    check(
        How::Changed,
        recording,
        "claim 1 UPDATE t SET a = 7
         ended 1
         answered 1
         claim 2 SELECT name FROM kind
         ended added-0 statements SELECT name FROM kind
         claim 2 UPDATE t SET a = 8
         ended 2
         answered 2
         settle-changes
         moved",
        expect![[r#"
            claim 1 UPDATE t SET a = 7 => Run(Tx(1)) +1
            ended 1 +1
            answered 1 +2
                Some(Tx(0)) Some(Request(0)) Deleted { into: None }
            claim 2 SELECT name FROM kind => Added(0)
            ended added-0 statements SELECT name FROM kind
                None Some(Request(1)) Added { shape: ShapeId(99), error: None, retry: false }
            claim 2 UPDATE t SET a = 8 => Run(Tx(2)) +1
            ended 2 +1
            answered 2 +1
            settle-changes => [] ChangeCounts { same: 2, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }
            moved => 2× SELECT name FROM kind
        "#]],
    );
    // It came nowhere else: the change did that.
    check(
        How::Changed,
        recording,
        "claim 1 UPDATE t SET a = 7
         ended 1
         answered 1
         claim 2 UPDATE t SET a = 8
         ended 2
         answered 2
         settle-changes
         moved",
        expect![[r#"
            claim 1 UPDATE t SET a = 7 => Run(Tx(1)) +1
            ended 1 +1
            answered 1 +2
                Some(Tx(0)) Some(Request(0)) Deleted { into: None }
            claim 2 UPDATE t SET a = 8 => Run(Tx(2)) +1
            ended 2 +1
            answered 2 +1
            settle-changes => ["Deleted { into: None }"] ChangeCounts { same: 2, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 1, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }
            moved
        "#]],
    );
}

/// Two processes filled their caches, and one of them does now.
#[test]
fn of_changed_code_a_cache_that_fewer_processes_fill_is_no_difference() {
    let recording = "request 1 0..100
         request 2 0..100
         request 3 0..100
         tx 1 10..20 sees 100: SELECT name FROM kind
         tx 1 30..40 xid 100 sees 100: UPDATE t SET a = $1
         tx 2 50..60 sees 101: SELECT name FROM kind
         tx 2 70..80 xid 101 sees 101: BEGIN; UPDATE t SET a = $1; COMMIT
         tx 3 81..90 xid 102 sees 102: UPDATE t SET a = $1";
    let happens = "claim 1 SELECT name FROM kind
         ended 0
         claim 1 UPDATE t SET a = 7
         ended 1
         answered 1
         claim 2 UPDATE t SET a = 8
         ended 3 statements BEGIN; SHOW server_version; UPDATE t SET a = 1; COMMIT
         answered 2
         settle-changes
         moved";
    check(
        How::Changed,
        recording,
        happens,
        expect![[r#"
        claim 1 SELECT name FROM kind => Run(Tx(0)) +1
        ended 0 +1
        claim 1 UPDATE t SET a = 7 => Run(Tx(1)) +1
        ended 1 +1
        answered 1 +1
        claim 2 UPDATE t SET a = 8 => Run(Tx(3)) +1
        ended 3 statements BEGIN; SHOW server_version; UPDATE t SET a = 1; COMMIT +1
            Some(Tx(3)) Some(Request(1)) Statements { shape: ShapeId(99) }
        answered 2 +2
            Some(Tx(2)) Some(Request(1)) Deleted { into: None }
        settle-changes => [] ChangeCounts { same: 3, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }
        moved => 1× SELECT name FROM kind
    "#]],
    );
    // Each of several requests that write reads as well: that one does not, the change did.
    let always = recording.replace(
        "xid 102 sees 102: UPDATE t SET a = $1",
        "sees 102: SELECT a FROM u",
    );
    check(
        How::Changed,
        &always,
        happens,
        expect![[r#"
        claim 1 SELECT name FROM kind => Run(Tx(0)) +1
        ended 0 +1
        claim 1 UPDATE t SET a = 7 => Run(Tx(1)) +1
        ended 1 +1
        answered 1 +1
        claim 2 UPDATE t SET a = 8 => Run(Tx(3)) +1
        ended 3 statements BEGIN; SHOW server_version; UPDATE t SET a = 1; COMMIT +1
            Some(Tx(3)) Some(Request(1)) Statements { shape: ShapeId(99) }
        answered 2 +2
            Some(Tx(2)) Some(Request(1)) Deleted { into: None }
        settle-changes => ["Deleted { into: None }"] ChangeCounts { same: 3, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 1, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }
        moved
    "#]],
    );
}

/// The first request finds less in its cache than it did. What it asks for first is not what it
/// asked for behind its list, which still comes, and is to see what it saw.
#[test]
fn a_read_that_may_move_does_not_give_up_one_that_never_does() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100
         tx 2 1..2 sees 100: SELECT a FROM list
         tx 2 3..4 sees 100: SELECT name FROM kind
         tx 1 10..20 sees 100: SELECT a FROM list
         tx 2 25..28 xid 100 sees 100: INSERT INTO list VALUES ($1)
         tx 1 30..40 sees 101: SELECT name FROM kind
         tx 1 50..60 sees 101: SELECT name FROM kind",
        "claim 1 SELECT name FROM kind
         claim 1 SELECT a FROM list
         snapshot 2
         claim 1 SELECT name FROM kind
         may snapshot 4",
        expect![[r#"
            claim 1 SELECT name FROM kind => Outside
            claim 1 SELECT a FROM list => Run(Tx(2)) +1
            snapshot 2 +1
            claim 1 SELECT name FROM kind => Run(Tx(4)) +1
            may snapshot 4 => no
        "#]],
    );
}

/// Two things that are asked at a time, as all requests of a kind do, come in another order.
#[test]
fn what_all_requests_ask_is_late_and_not_gone() {
    let recording = "request 1 0..100
         request 2 0..100
         tx 1 10..20 sees 100: SELECT count(*) FROM note
         tx 1 30..40 sees 100: SELECT a FROM t
         tx 2 50..60 sees 100: SELECT count(*) FROM note
         tx 2 70..80 sees 100: SELECT a FROM t";
    check(
        RECORDED,
        recording,
        "claim 1 SELECT a FROM t
         claim 1 SELECT count(*) FROM note
         claim 2 SELECT a FROM t
         nothing-moves
         claim 2 SELECT count(*) FROM note
         moved",
        expect![[r#"
            claim 1 SELECT a FROM t => Run(Tx(1)) +1
            claim 1 SELECT count(*) FROM note => Run(Tx(0)) +1
            claim 2 SELECT a FROM t => Run(Tx(3)) +1
            nothing-moves +1
            claim 2 SELECT count(*) FROM note => Outside
            moved
        "#]],
    );
}

/// A request reads by another connection in the midst of its transaction, and finds a cache filled.
#[test]
fn a_read_that_all_wait_for_is_passed_over() {
    let recording = "request 1 0..100
         request 2 0..100
         tx 1 10..60 xid 100 sees 100: BEGIN; INSERT INTO a VALUES ($1); COMMIT
         tx 1 30..40 sees 100: SELECT name FROM role
         tx 2 45..70 xid 101 sees 100: UPDATE t SET a = $1
         tx 2 80..90 sees 102: SELECT a FROM t";
    check(
        RECORDED,
        recording,
        "sent 1
         sent 2
         claim 1 BEGIN; INSERT INTO a VALUES (1)
         snapshot 0
         claim 2 UPDATE t SET a = 1
         snapshot 2
         may commit 0
         nothing-moves commit 0 2
         may commit 0
         moved",
        expect![[r#"
            sent 1 +1
            sent 2 +1
            claim 1 BEGIN; INSERT INTO a VALUES (1) => Run(Tx(0)) +1
            snapshot 0 +1
            claim 2 UPDATE t SET a = 1 => Run(Tx(2)) +1
            snapshot 2 +1
            may commit 0 => no
            nothing-moves commit 0 2 +1
            may commit 0 => yes
            moved
        "#]],
    );
}

/// An ORM begins a transaction for each read, and rolls it back.
#[test]
fn a_read_in_a_transaction_moves_likewise() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100
         tx 1 10..20 aborted sees 100: BEGIN; SELECT name FROM kind; ROLLBACK
         tx 1 30..40 xid 100 sees 100: BEGIN; UPDATE t SET a = $1; COMMIT
         tx 2 50..60 xid 101 sees 101: BEGIN; UPDATE t SET a = $1; COMMIT",
        "claim 1 BEGIN; UPDATE t SET a = 7
         claim 2 BEGIN; SELECT name FROM kind
         snapshot 1
         ended 1
         answered 1
         claim 2 BEGIN; UPDATE t SET a = 7
         snapshot 2
         ended 2
         answered 2
         settle
         moved",
        expect![[r#"
            claim 1 BEGIN; UPDATE t SET a = 7 => Run(Tx(1)) +1
            claim 2 BEGIN; SELECT name FROM kind => Outside
            snapshot 1 +1
            ended 1 +1
            answered 1 +1
            claim 2 BEGIN; UPDATE t SET a = 7 => Run(Tx(2)) +1
            snapshot 2 +1
            ended 2 +1
            answered 2 +1
            settle
            moved => 2× SELECT name FROM kind
        "#]],
    );
}

/// All of its statements have come, and not only the one that it begins with.
#[test]
fn a_read_moves_out_of_a_transaction_into_one_that_stands_for_none() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100
         tx 1 10..20 xid 100 sees 100: BEGIN; SELECT name FROM kind; SELECT a FROM u; UPDATE t SET a = $1; COMMIT
         tx 2 50..60 xid 101 sees 101: BEGIN; UPDATE t SET a = $1; COMMIT",
        "ended 0 statements BEGIN; UPDATE t SET a = 1; COMMIT
         claim none BEGIN; SELECT name FROM kind
         came BEGIN; SELECT name FROM kind; SELECT a FROM u; COMMIT
         settle
         moved",
        expect![[r#"
            ended 0 statements BEGIN; UPDATE t SET a = 1; COMMIT +1
            claim none BEGIN; SELECT name FROM kind => Outside
            came BEGIN; SELECT name FROM kind; SELECT a FROM u; COMMIT
            settle
            moved => 1× SELECT a FROM u, 1× SELECT name FROM kind
        "#]],
    );
}

/// An ORM has one transaction for all of a request. Which reads it begins with depends on what is
/// in a cache.
#[test]
fn a_transaction_that_writes_may_lack_the_reads_in_front() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100
         tx 1 10..20 xid 100 sees 100: BEGIN; SELECT name FROM kind; SELECT a FROM t; UPDATE t SET a = $1; COMMIT
         tx 2 30..40 xid 101 sees 101: BEGIN; SELECT a FROM t; SELECT name FROM kind; UPDATE t SET a = $1; COMMIT
         tx 2 50..60 sees 102: BEGIN; SELECT a FROM t; COMMIT
         tx 2 70..80 sees 102: BEGIN; SELECT name FROM kind; COMMIT",
        "claim 1 BEGIN; SELECT a FROM t
         ended 0 statements BEGIN; SELECT a FROM t; UPDATE t SET a = 7; COMMIT
         claim 2 BEGIN; UPDATE t SET a = 7
         ended 1 statements BEGIN; UPDATE t SET a = 7; COMMIT
         claim 2 BEGIN; SELECT a FROM t
         claim 2 BEGIN; SELECT name FROM kind
         settle
         moved",
        expect![[r#"
            claim 1 BEGIN; SELECT a FROM t => Run(Tx(0)) +1
            ended 0 statements BEGIN; SELECT a FROM t; UPDATE t SET a = 7; COMMIT +1
            claim 2 BEGIN; UPDATE t SET a = 7 => Run(Tx(1)) +1
            ended 1 statements BEGIN; UPDATE t SET a = 7; COMMIT +1
            claim 2 BEGIN; SELECT a FROM t => Run(Tx(2)) +1
            claim 2 BEGIN; SELECT name FROM kind => Run(Tx(3)) +1
            settle
            moved => 2× SELECT name FROM kind, 1× SELECT a FROM t
        "#]],
    );
}

/// Under READ COMMITTED the statement behind it has a snapshot of its own, and tells.
#[test]
fn a_transaction_that_writes_may_begin_with_a_read_that_it_did_not_have() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100
         request 3 0..100
         tx 1 10..20 sees 100 read-committed: BEGIN; SELECT name FROM kind; COMMIT
         tx 2 30..40 xid 101 sees 100 read-committed: BEGIN; SELECT a FROM t; UPDATE t SET a = $1; COMMIT
         tx 2 50..60 sees 102 read-committed: BEGIN; SELECT b FROM t; COMMIT
         tx 3 50..60 xid 103 sees 102: BEGIN; UPDATE t SET a = $1; COMMIT",
        "claim 2 BEGIN; SELECT name FROM kind
         claim 2 BEGIN; SELECT a FROM t
         claim 2 BEGIN; SELECT name FROM kind
         claim 3 BEGIN; SELECT name FROM kind",
        expect![[r#"
            claim 2 BEGIN; SELECT name FROM kind => Later(None)
            claim 2 BEGIN; SELECT a FROM t => Run(Tx(1)) +1
            claim 2 BEGIN; SELECT name FROM kind => Outside
            claim 3 BEGIN; SELECT name FROM kind => Outside
        "#]],
    );
}

/// Others begin so and write.
#[test]
fn a_request_that_has_none_left_may_read_what_others_begin_with() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100
         tx 1 10..20 xid 100 sees 100 read-committed: BEGIN; SELECT name FROM kind; UPDATE t SET a = $1; COMMIT",
        "claim 2 BEGIN; SELECT name FROM kind
         turned-out-as-none BEGIN; SELECT name FROM kind; COMMIT
         moved
         claim 2 BEGIN; SELECT name FROM kind
         claim 2 BEGIN; SELECT name FROM kind; UPDATE t SET a = 7",
        expect![[r#"
            claim 2 BEGIN; SELECT name FROM kind => Later(None)
            turned-out-as-none BEGIN; SELECT name FROM kind; COMMIT
            moved => 1× SELECT name FROM kind
            claim 2 BEGIN; SELECT name FROM kind => Later(None)
            claim 2 BEGIN; SELECT name FROM kind; UPDATE t SET a = 7 => Extra
                2 - ExtraTransaction { recorded: 0, statement: "UPDATE t SET a = $1" }
        "#]],
    );
}

/// Its first read is in a cache, and it begins with what the one behind it begins with.
#[test]
fn a_transaction_that_reads_is_not_the_one_behind_it_that_begins_with_its_second_read() {
    let recorded = "request 1 0..100
         request 2 0..100
         tx 2 5..8 sees 100 read-committed: BEGIN; SELECT name FROM kind; COMMIT
         tx 1 10..20 sees 100 read-committed: BEGIN; SELECT name FROM kind; SELECT a FROM t; SELECT b FROM u; COMMIT
         tx 1 30..40 xid 100 sees 100 read-committed: BEGIN; SELECT a FROM t; SELECT c FROM v; UPDATE t SET a = $1; COMMIT";
    check(
        RECORDED,
        recorded,
        "claim 1 BEGIN; SELECT a FROM t
         claim 1 BEGIN; SELECT a FROM t; SELECT b FROM u
         ended 1 statements BEGIN; SELECT a FROM t; SELECT b FROM u; COMMIT
         claim 1 BEGIN; SELECT a FROM t
         ended 2
         answered 1
         claim 2 BEGIN; SELECT name FROM kind
         answered 2
         settle
         moved",
        expect![[r#"
            claim 1 BEGIN; SELECT a FROM t => Later(Some(Tx(1)))
            claim 1 BEGIN; SELECT a FROM t; SELECT b FROM u => Run(Tx(1)) +1
            ended 1 statements BEGIN; SELECT a FROM t; SELECT b FROM u; COMMIT +1
            claim 1 BEGIN; SELECT a FROM t => Run(Tx(2)) +1
            ended 2 +1
            answered 1 +1
            claim 2 BEGIN; SELECT name FROM kind => Run(Tx(0)) +1
            answered 2 +1
            settle
            moved => 1× SELECT name FROM kind
        "#]],
    );
    // The whole of it is in a cache.
    check(
        RECORDED,
        recorded,
        "claim 1 BEGIN; SELECT a FROM t
         claim 1 BEGIN; SELECT a FROM t; UPDATE t SET a = 7",
        expect![[r#"
            claim 1 BEGIN; SELECT a FROM t => Later(Some(Tx(1)))
            claim 1 BEGIN; SELECT a FROM t; UPDATE t SET a = 7 => Run(Tx(2)) +1
        "#]],
    );
    check(
        RECORDED,
        recorded,
        "claim 1 BEGIN; SELECT a FROM t
         claim 1 BEGIN; SELECT a FROM t; SELECT a FROM t
         claim 1 BEGIN; SELECT a FROM t; SELECT a FROM t; SELECT c FROM v",
        expect![[r#"
            claim 1 BEGIN; SELECT a FROM t => Later(Some(Tx(1)))
            claim 1 BEGIN; SELECT a FROM t; SELECT a FROM t => Later(Some(Tx(1)))
            claim 1 BEGIN; SELECT a FROM t; SELECT a FROM t; SELECT c FROM v => Run(Tx(2)) +1
        "#]],
    );
}

/// The late one is given up first. That may be all that the others wait for.
#[test]
fn no_read_goes_on_out_of_order_where_a_late_one_is_in_the_way() {
    check(
        RECORDED,
        LATE,
        "claim 1 UPDATE t SET a = 1
         snapshot 1
         may commit 1
         claim 2 SELECT a FROM t
         may snapshot 2
         nothing-moves 2
         may snapshot 2
         may commit 1",
        expect![[r#"
            claim 1 UPDATE t SET a = 1 => Run(Tx(1)) +1
            snapshot 1 +1
            may commit 1 => no
            claim 2 SELECT a FROM t => Run(Tx(2)) +1
            may snapshot 2 => no
            nothing-moves 2 +1
            may snapshot 2 => no
            may commit 1 => yes
        "#]],
    );
}

/// Of two requests that read and write, the first writes and has not read.
const LATE: &str = "request 1 0..100
     request 2 0..100
     tx 1 10..20 sees 100: SELECT a FROM t
     tx 1 30..40 xid 100 sees 100: UPDATE t SET a = $1
     tx 2 50..60 sees 101: SELECT a FROM t
     tx 2 70..80 xid 101 sees 101: UPDATE t SET a = $1";

/// Likewise of changed code: nothing else goes on out of order.
#[test]
fn what_changed_code_does_not_read_any_more_is_given_up_before_another_goes_on() {
    check(
        How::Changed,
        LATE,
        "claim 1 UPDATE t SET a = 1
         snapshot 1
         may commit 1
         claim 2 SELECT a FROM t
         may snapshot 2
         let-go 2
         may snapshot 2
         may commit 1
         changes",
        expect![[r#"
            claim 1 UPDATE t SET a = 1 => Run(Tx(1)) +1
            snapshot 1 +1
            may commit 1 => no
            claim 2 SELECT a FROM t => Run(Tx(2)) +1
            may snapshot 2 => no
            let-go 2 +1
            may snapshot 2 => no
            may commit 1 => yes
            changes => ChangeCounts { same: 0, same_failure: 0, statements: 0, results: 0, fails_otherwise: 0, newly_failing: 0, newly_succeeding: 0, deleted: 0, added: 0, retries: 0, yielded: 0, let_go: 0, unnoticed: 0, ghosts_failed: 0, isolation: 0, mistaken: 0 }, outdated: false
        "#]],
    );
}

/// An ORM has a cache of kinds, and asks for one of each row as well.
#[test]
fn a_read_that_asks_again_does_not_take_the_place_of_one_behind_other_reads() {
    let recorded = "request 1 0..100
         request 2 0..100
         tx 1 10..12 with 1 sees 100: SELECT name FROM kind WHERE id = $1
         tx 1 20..22 with 5 sees 100: SELECT a FROM t WHERE id = $1
         tx 1 30..32 with 1 sees 100: SELECT name FROM kind WHERE id = $1
         tx 1 40..42 with 6 sees 100: SELECT a FROM t WHERE id = $1
         tx 2 50..52 with 1 sees 100: SELECT name FROM kind WHERE id = $1
         tx 2 54..56 with 1 sees 100: SELECT name FROM kind WHERE id = $1
         tx 2 60..62 with 5 sees 100: SELECT a FROM t WHERE id = $1";
    let script = "claim 1 SELECT name FROM kind WHERE id = 1
         ended 0
         claim 1 SELECT name FROM kind WHERE id = 1
         claim 1 SELECT a FROM t WHERE id = 5
         ended 1
         claim 1 SELECT name FROM kind WHERE id = 1
         ended 2
         claim 1 SELECT a FROM t WHERE id = 6";
    let expected = expect![[r#"
        claim 1 SELECT name FROM kind WHERE id = 1 => Run(Tx(0)) +1
        ended 0 +1
        claim 1 SELECT name FROM kind WHERE id = 1 => Outside
        claim 1 SELECT a FROM t WHERE id = 5 => Run(Tx(1)) +1
        ended 1 +1
        claim 1 SELECT name FROM kind WHERE id = 1 => Run(Tx(2)) +1
        ended 2 +1
        claim 1 SELECT a FROM t WHERE id = 6 => Run(Tx(3)) +1
    "#]];
    check(
        How::Recorded { sequential: false },
        recorded,
        script,
        expected,
    );
}
