//! What a service does outside of requests.

use expect_test::{Expect, expect};
use hindcast_replay::hold::Code;

use super::Session;

/// What it does has been done. What has an id by its commit is undone.
#[test]
fn what_is_written_outside_of_requests_is_undone() {
    let mut session = Session::new(Code::Recorded, false);
    session.run(
        "> startup user=u database=d default_transaction_read_only=on
         < R
         < Z I
         @ claim outside
         > Q CREATE TABLE IF NOT EXISTS t (a int)
         > Q SELECT a FROM t
         > Q BEGIN
         > Q UPDATE t SET a = 1
         > P - COMMIT | B - - | E - | S
         @ fail INTO 25006 read-only
         > Q INSERT INTO t VALUES (1)
         > Q CREATE INDEX IF NOT EXISTS i ON t (a)",
    );
    expect![[r#"
        » startup user=u database=d default_transaction_read_only=on
        « R
        « Z I
        ! claim of request none: Outside
        » [begin_as_chosen*]
        » [patience*]
        » Q CREATE TABLE IF NOT EXISTS t (a int)
        « C CREATE
        » [id*]
        ! undone: CREATE TABLE IF NOT EXISTS t (a int)
        » [rollback*]
        ! in None
        ! 1 statements of none
        « Z I
        ! claim of request none: Outside
        » Q SELECT a FROM t
        « T a
        « D x
        « C SELECT 1
        « Z I
        « C BEGIN
        « Z T
        ! claim of request none: Outside
        » Q BEGIN
        » [writable*]
        » [patience]
        » Q UPDATE t SET a = 1
        « C UPDATE 1
        « Z T
        » P - COMMIT
        » H
        « 1
        » [id]
        ! undone: UPDATE t SET a = $1
        » [undo*]
        » B - -
        » E -
        » S
        « 2
        « C COMMIT
        ! in None
        ! 3 statements of none
        « Z I
        ! claim of request none: Outside
        » [begin_as_chosen]
        » [patience]
        » Q INSERT INTO t VALUES (1)
        « E 25006 read-only
        » [commit*]
        ! in None
        ! 1 statements of none
        « Z I
        ! claim of request none: Outside
        » [begin_as_chosen]
        » [patience]
        » Q CREATE INDEX IF NOT EXISTS i ON t (a)
        « C CREATE
        » [id]
        ! undone: CREATE INDEX IF NOT EXISTS i ON t (a)
        » [rollback]
        ! in None
        ! 1 statements of none
        « Z I
    "#]]
    .assert_eq(&session.shown);
}

#[track_caller]
fn check(script: &str, expected: Expect) {
    let mut session = Session::new(Code::Recorded, false);
    session.run(
        "> startup user=u database=d default_transaction_read_only=on
         < R
         < Z I",
    );
    session.shown.clear();
    session.run(script);
    expected.assert_eq(&session.shown);
}

/// A worker takes the job that it took, at the recorded time.
#[test]
fn a_ghost_that_the_service_does_runs_with_the_recorded_values() {
    check(
        "@ claim run 3
         @ ghost Q BEGIN | P - SELECT id FROM job FOR UPDATE SKIP LOCKED | B - - | E - | S | P s UPDATE job SET at = $1 | B - s then | E - | S | Q COMMIT
         > Q BEGIN
         > P - SELECT id FROM job FOR UPDATE SKIP LOCKED | B - - | E - | S
         > P s UPDATE job SET at = $1 | B - s now | E - | S
         > Q COMMIT
         @ claim run 4
         @ ghost Q UPDATE worker SET seen = 1
         > Q UPDATE worker SET seen = 2",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE
            » [snapshot*]
            » P - SELECT id FROM job FOR UPDATE SKIP LOCKED
            » B - -
            » E -
            » S
            ! 3 took its snapshot
            « 1
            « 2
            « D x
            « C SELECT 1
            « Z T
            » P s UPDATE job SET at = $1
            » B - s then
            » E -
            » S
            « 1
            « 2
            « C UPDATE 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 65329d2a, digest d8ed06a6, 1 rows
            « C COMMIT
            « Z I
            ! claim of request none: Run(Tx(4))
            ? snapshot of 4
            » [begin*]
            » [snapshot]
            » Q UPDATE worker SET seen = 1
            ! 4 took its snapshot
            ! 4 ran
            « C UPDATE 1
            ? commit of 4
            » [commit*]
            ! in None
            ! Run(Tx(4)) committed, shape 7c1092e4, digest 0d8610f8, 0 rows
            « Z I
        "#]],
    );
}

/// It found no job, or failed in the middle. The recording does it then.
#[test]
fn a_ghost_that_the_service_does_otherwise_is_undone_and_given_back() {
    check(
        "@ claim run 3
         @ ghost Q BEGIN | Q INSERT INTO t VALUES (1) | Q UPDATE t SET a = 1 | Q COMMIT
         > Q BEGIN
         > Q INSERT INTO t VALUES (1)
         > Q COMMIT",
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
            ! 3 is given back
            » [id*]
            ! undone: INSERT INTO t VALUES ($1)
            » [undo*]
            » Q COMMIT
            ! in None
            ! 3 statements of none
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn what_waits_to_do_a_ghost_is_asked_again() {
    check(
        "@ claim wait 3
         @ hold
         > Q BEGIN
         > P - INSERT INTO t VALUES ($1) | B - - a | E - | S
         @ claim outside
         @ permit
         @ claim wait 4
         > Q COMMIT
         > Q INSERT INTO t VALUES (1)
         @ gone",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Wait(Tx(3))
            ? to do 3
            ! claim of request none: Outside
            » Q BEGIN
            » [writable*]
            » [patience*]
            » P - INSERT INTO t VALUES ($1)
            » B - - a
            » E -
            » S
            « 1
            « 2
            « C INSERT 0 1
            « Z T
            » [id*]
            ! undone: INSERT INTO t VALUES ($1)
            » [undo*]
            » Q COMMIT
            ! in None
            ! 3 statements of none
            « C COMMIT
            « Z I
            ! claim of request none: Wait(Tx(4))
            ? to do 4
            ! 4 is not waited for
            ! in None
        "#]],
    );
}

/// What there is, is what others took.
#[test]
fn who_looks_for_something_to_do_in_vain_finds_nothing() {
    check(
        "@ claim vain
         > Q BEGIN
         > Q SELECT id FROM job FOR UPDATE SKIP LOCKED
         > Q SELECT b FROM t
         > Q COMMIT
         > P - UPDATE job SET taken = true RETURNING id | B - - | D P - | E - | S",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: InVain
            » Q BEGIN
            » [writable*]
            » [patience*]
            » Q SELECT id FROM job FOR UPDATE SKIP LOCKED
            « T a
            « C SELECT 0
            « Z T
            » Q SELECT b FROM t
            « T a
            « D x
            « C SELECT 1
            « Z T
            » [id*]
            ! undone: SELECT id FROM job FOR UPDATE SKIP LOCKED
            » [undo*]
            » Q COMMIT
            ! in None
            ! 4 statements of none
            « C COMMIT
            « Z I
            ! claim of request none: InVain
            » [begin_as_chosen*]
            » [patience]
            » P - UPDATE job SET taken = true RETURNING id
            » B - -
            » D P -
            » C P hindcast_nothing
            » S
            « 1
            « 2
            « n
            « C UPDATE 0
            » [id]
            ! undone: UPDATE job SET taken = true RETURNING id
            » [rollback*]
            ! in None
            ! 1 statements of none
            « Z I
        "#]],
    );
}

/// A thread of the service writes sessions for requests, several in one transaction, and they wait
/// for it.
#[test]
fn a_row_that_a_ghost_has_laid_is_not_laid_again() {
    check(
        "@ claim outside
         @ laid P s INSERT INTO t VALUES ($1, $2) | B - s a b | E - | S
         > Q BEGIN
         > P s INSERT INTO t VALUES ($1, $2) | B - s a b | E - | B - s a c | E - | S
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Outside
            » Q BEGIN
            » [writable*]
            » [patience*]
            » P s INSERT INTO t VALUES ($1, $2)
            » B - s a b
            » C P hindcast_nothing
            » B - s a c
            » E -
            » S
            « 1
            « 2
            « C INSERT 0 1
            « 2
            « C INSERT 0 1
            « Z T
            » [id*]
            ! undone: INSERT INTO t VALUES ($1, $2)
            » [undo*]
            » Q COMMIT
            ! in None
            ! 4 statements of none
            « C COMMIT
            « Z I
        "#]],
    );
}
