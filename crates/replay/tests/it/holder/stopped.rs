//! A transaction that is stopped before a statement commits there, and goes no further.

use expect_test::{Expect, expect};
use hindcast_order::Tx;
use hindcast_replay::hold::Code;
use hindcast_replay::transaction::Stop;

use super::Session;

/// The last permission, to go on, is never given.
#[track_caller]
fn check(statement: u32, script: &str, expected: Expect) {
    let stop = Stop {
        tx: Tx(3),
        statement,
    };
    let mut session = Session::stopped(Code::Recorded, true, Some(stop));
    session.run(script);
    expected.assert_eq(&session.shown);
}

#[test]
fn before_a_statement_of_its_own() {
    check(
        2,
        "> Q BEGIN
         > Q INSERT INTO t VALUES (1)
         @ hold
         > Q INSERT INTO t VALUES (2)
         @ permit",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE
            » [snapshot*]
            » Q INSERT INTO t VALUES (1)
            ! 3 took its snapshot
            « C INSERT 0 1
            « Z T
            ? stop of 3
            » [commit*]
            ! stopped
            ? stop of 3
        "#]],
    );
}

#[test]
fn in_the_middle_of_a_batch() {
    check(
        1,
        "> P s INSERT INTO t VALUES ($1) | S
         @ hold
         > B - s 1 | E - | B - s 2 | E - | S
         @ permit
         @ permit",
        expect![[r#"
            » P s INSERT INTO t VALUES ($1)
            » S
            « 1
            « Z I
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » B - s 1
            » E -
            » B - s 2
            » H
            ! 3 took its snapshot
            « 2
            « C INSERT 0 1
            « 2
            ? stop of 3
            » [commit*]
            ! stopped
            ? stop of 3
        "#]],
    );
}

#[test]
fn at_the_end_of_one_without_a_commit() {
    check(
        1,
        "@ hold
         > Q INSERT INTO t VALUES (1)
         @ permit
         @ permit",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » Q INSERT INTO t VALUES (1)
            ! 3 took its snapshot
            « C INSERT 0 1
            ? stop of 3
            » [commit*]
            ! stopped
            ? stop of 3
        "#]],
    );
}

#[test]
fn within_a_text() {
    check(
        1,
        "@ hold
         > Q INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)
         @ permit",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            ! cannot be stopped within a text
            » [begin*]
            » [snapshot*]
            ? stop of 3
        "#]],
    );
}

#[test]
fn after_a_failure() {
    check(
        2,
        "@ fail broken 23505 duplicate
         > Q BEGIN
         > Q INSERT INTO broken VALUES (1)
         @ hold
         > Q ROLLBACK
         @ permit",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE
            » [snapshot*]
            » Q INSERT INTO broken VALUES (1)
            ! 3 took its snapshot
            « E 23505 duplicate
            « Z E
            ? stop of 3
            » [commit*]
            ! stopped, and had failed
            ? stop of 3
        "#]],
    );
}

#[test]
fn another_transaction_goes_on() {
    check(
        0,
        "@ claim run 4
         > Q INSERT INTO t VALUES (1)",
        expect![[r#"
            ! claim of request none: Run(Tx(4))
            ? snapshot of 4
            » [begin*]
            » [snapshot*]
            » Q INSERT INTO t VALUES (1)
            ! 4 took its snapshot
            ! 4 ran
            « C INSERT 0 1
            ? commit of 4
            » [commit*]
            ! in None
            ! Run(Tx(4)) committed, shape 5ab1b73a, digest 31fb68fc, 0 rows
            « Z I
        "#]],
    );
}
