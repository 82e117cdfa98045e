//! Equal statements of one request that come in another order: their values tell them apart.

use expect_test::expect;

use super::{How, check};

const RECORDED: How = How::Recorded { sequential: false };

#[test]
fn reads_that_a_request_sends_at_a_time_are_known_by_their_values() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..30 with 1 sees 100: SELECT name FROM item WHERE id = $1
         tx 1 11..31 with 2 sees 100: SELECT name FROM item WHERE id = $1
         tx 1 12..32 with 3 sees 100: SELECT name FROM item WHERE id = $1",
        "sent 1
         claim 1 SELECT name FROM item WHERE id = 3
         claim 1 SELECT name FROM item WHERE id = 1
         claim 1 SELECT name FROM item WHERE id = 2",
        expect![[r#"
            sent 1 +1
            claim 1 SELECT name FROM item WHERE id = 3 => Run(Tx(2)) +1
            claim 1 SELECT name FROM item WHERE id = 1 => Run(Tx(0)) +1
            claim 1 SELECT name FROM item WHERE id = 2 => Run(Tx(1)) +1
        "#]],
    );
}

#[test]
fn values_that_were_not_recorded_are_known_by_their_place() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..30 with 1 sees 100: SELECT name FROM item WHERE id = $1
         tx 1 11..31 sees 100: SELECT name FROM item WHERE id = $1
         tx 1 12..32 with 3 sees 100: SELECT name FROM item WHERE id = $1",
        "sent 1
         claim 1 SELECT name FROM item WHERE id = 7
         claim 1 SELECT name FROM item WHERE id = 1
         claim 1 SELECT name FROM item WHERE id = 8",
        expect![[r#"
            sent 1 +1
            claim 1 SELECT name FROM item WHERE id = 7 => Run(Tx(0)) +1
            claim 1 SELECT name FROM item WHERE id = 1 => Run(Tx(1)) +1
            claim 1 SELECT name FROM item WHERE id = 8 => Run(Tx(2)) +1
        "#]],
    );
}

#[test]
fn short_transactions_are_known_by_the_values_of_their_first_read() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..30 with 1 sees 100: BEGIN; SELECT name FROM item WHERE id = $1; COMMIT
         tx 1 11..31 with 2 xid 100 sees 100: BEGIN; SELECT name FROM item WHERE id = $1; UPDATE t SET a = $1; COMMIT",
        "sent 1
         claim 1 BEGIN; SELECT name FROM item WHERE id = 2
         claim 1 BEGIN; SELECT name FROM item WHERE id = 1",
        expect![[r#"
            sent 1 +1
            claim 1 BEGIN; SELECT name FROM item WHERE id = 2 => Run(Tx(1)) +1
            claim 1 BEGIN; SELECT name FROM item WHERE id = 1 => Run(Tx(0)) +1
        "#]],
    );
}

/// One of the connections had to be opened, so its read began when the other one was over.
#[test]
fn a_read_on_another_connection_is_late_and_not_gone() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 session 1 with 1 sees 100: SELECT name FROM item WHERE id = $1
         tx 1 30..40 session 2 with 2 sees 100: SELECT name FROM item WHERE id = $1",
        "sent 1
         claim 1 SELECT name FROM item WHERE id = 2
         claim 1 SELECT name FROM item WHERE id = 1
         settle
         moved",
        expect![[r#"
            sent 1 +1
            claim 1 SELECT name FROM item WHERE id = 2 => Run(Tx(1)) +1
            claim 1 SELECT name FROM item WHERE id = 1 => Run(Tx(0)) +1
            settle
            moved
        "#]],
    );
}

/// A pool of two connections: the last one began when the first was over.
#[test]
fn reads_that_wait_for_a_connection_are_sent_together() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 session 1 with 1 sees 100: SELECT name FROM item WHERE id = $1
         tx 1 11..30 session 2 with 2 sees 100: SELECT name FROM item WHERE id = $1
         tx 1 21..40 session 1 with 3 sees 100: SELECT name FROM item WHERE id = $1",
        "sent 1
         claim 1 SELECT name FROM item WHERE id = 3
         claim 1 SELECT name FROM item WHERE id = 2
         claim 1 SELECT name FROM item WHERE id = 1",
        expect![[r#"
            sent 1 +1
            claim 1 SELECT name FROM item WHERE id = 3 => Run(Tx(2)) +1
            claim 1 SELECT name FROM item WHERE id = 2 => Run(Tx(1)) +1
            claim 1 SELECT name FROM item WHERE id = 1 => Run(Tx(0)) +1
        "#]],
    );
}

/// The pool's connections were others' meanwhile: the last two had the same one, one after the
/// other.
#[test]
fn reads_that_had_one_connection_of_several_are_sent_together() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 session 1 with 1 sees 100: SELECT name FROM item WHERE id = $1
         tx 1 11..21 session 2 with 2 sees 100: SELECT name FROM item WHERE id = $1
         tx 1 40..50 session 2 with 3 sees 100: SELECT name FROM item WHERE id = $1
         tx 1 60..70 session 2 with 4 sees 100: SELECT name FROM item WHERE id = $1",
        "sent 1
         claim 1 SELECT name FROM item WHERE id = 1
         claim 1 SELECT name FROM item WHERE id = 2
         claim 1 SELECT name FROM item WHERE id = 4
         claim 1 SELECT name FROM item WHERE id = 3",
        expect![[r#"
            sent 1 +1
            claim 1 SELECT name FROM item WHERE id = 1 => Run(Tx(0)) +1
            claim 1 SELECT name FROM item WHERE id = 2 => Run(Tx(1)) +1
            claim 1 SELECT name FROM item WHERE id = 4 => Run(Tx(3)) +1
            claim 1 SELECT name FROM item WHERE id = 3 => Run(Tx(2)) +1
        "#]],
    );
}

/// As over a map of Go, whose order is another one each time: what comes later sees what came
/// before, and taken for that it would wait for itself.
#[test]
fn writes_that_waited_for_each_other_are_known_by_their_place() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 session 1 with 1 xid 100 sees 100: INSERT INTO t VALUES ($1)
         tx 1 30..40 session 1 with 2 xid 101 sees 101: INSERT INTO t VALUES ($1)",
        "sent 1
         claim 1 INSERT INTO t VALUES (2)
         claim 1 INSERT INTO t VALUES (1)",
        expect![[r#"
            sent 1 +1
            claim 1 INSERT INTO t VALUES (2) => Run(Tx(0)) +1
            claim 1 INSERT INTO t VALUES (1) => Run(Tx(1)) +1
        "#]],
    );
}

#[test]
fn changed_code_is_known_by_its_values_too() {
    check(
        How::Changed,
        "request 1 0..100
         tx 1 10..30 with 1 sees 100: SELECT name FROM item WHERE id = $1
         tx 1 11..31 with 2 sees 100: SELECT name FROM item WHERE id = $1",
        "sent 1
         claim 1 SELECT name FROM item WHERE id = 2
         claim 1 SELECT name FROM item WHERE id = 1",
        expect![[r#"
            sent 1 +1
            claim 1 SELECT name FROM item WHERE id = 2 => Run(Tx(1)) +1
            claim 1 SELECT name FROM item WHERE id = 1 => Run(Tx(0)) +1
        "#]],
    );
}

/// Another request sends the two at a time, so this one did not wait either, though one was over
/// when the other began; a third one sends one of them alone.
#[test]
fn a_read_that_some_request_sends_at_a_time_with_another_one_is_late_and_not_gone() {
    let recording = "request 1 0..100
         request 2 0..100
         request 3 0..100
         tx 1 10..20 session 1 sees 100: SELECT name FROM item
         tx 1 15..25 session 2 sees 100: SELECT count(*) FROM item
         tx 2 30..40 session 1 sees 100: SELECT name FROM item
         tx 2 40..50 session 2 sees 100: SELECT count(*) FROM item
         tx 3 60..70 session 1 sees 100: SELECT count(*) FROM item";
    let happens = "sent 2
         claim 2 SELECT count(*) FROM item
         ended 3
         claim 2 SELECT name FROM item";
    check(
        RECORDED,
        recording,
        happens,
        expect![[r#"
        sent 2 +1
        claim 2 SELECT count(*) FROM item => Run(Tx(3)) +1
        ended 3 +1
        claim 2 SELECT name FROM item => Run(Tx(2)) +1
    "#]],
    );
    // Nobody sent them at a time: it was asked for in front of the other one, which has come.
    let one_by_one = recording.replace("15..25", "20..25");
    check(
        RECORDED,
        &one_by_one,
        happens,
        expect![[r#"
        sent 2 +1
        claim 2 SELECT count(*) FROM item => Run(Tx(3)) +1
        ended 3 +1
        claim 2 SELECT name FROM item => Outside
    "#]],
    );
}
