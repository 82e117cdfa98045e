//! What is answered at once, and sent with what comes behind it.

use expect_test::expect;
use hindcast_replay::hold::Code;

use super::{check, check_code};

#[test]
fn the_commit_of_what_only_read_goes_with_what_comes_next() {
    check(
        "@ pins reads-only
         > Q BEGIN {5}
         > Q SELECT a FROM t
         > Q COMMIT
         > Q BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY {5}
         > Q SELECT b FROM t
         > Q COMMIT
         @ idle
         @ quiet
         @ quiet
         > Q BEGIN WORK {5}
         > Q SELECT a FROM t
         > Q END",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN
            » Q SELECT a FROM t
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            ! in None
            ! Run(Tx(3)) committed, shape 7877900d, digest 641466f1, 1 rows
            « C COMMIT
            « Z I
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » Q COMMIT
            » Q BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY
            » Q SELECT b FROM t
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            ! in None
            ! Run(Tx(3)) committed, shape c9c9686c, digest 641466f1, 1 rows
            « C COMMIT
            « Z I
            idle: true
            keeps: true
            » Q COMMIT
            keeps: false
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN WORK
            » Q SELECT a FROM t
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            ! in None
            ! Run(Tx(3)) committed, shape b456aadd, digest 641466f1, 1 rows
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn a_prepared_commit_is_answered_message_by_message() {
    check(
        "@ pins reads-only
         > P b BEGIN | B - b | E - | P s SELECT a FROM t | B - s | D P - | E - | S
         > P c COMMIT | B - c | D P - | E - | S
         > B - b | E - | B - s | E - | S
         > B - c | E - | C P - | S
         @ quiet",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            » P b BEGIN
            » B - b
            » E -
            ? snapshot of 3
            » P s SELECT a FROM t
            » B - s
            » D P -
            » E -
            » S
            « 1
            « 2
            « C BEGIN
            « 1
            « 2
            « T a
            ! 3 took its snapshot
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            ! in None
            ! Run(Tx(3)) committed, shape 7877900d, digest 641466f1, 1 rows
            « 1
            « 2
            « n
            « C COMMIT
            « Z I
            ! claim of request none: Run(Tx(3))
            » P c COMMIT
            » B - c
            » D P -
            » E -
            » S
            » B - b
            » E -
            ? snapshot of 3
            » B - s
            » E -
            » S
            « 2
            « C BEGIN
            « 2
            ! 3 took its snapshot
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            » B - c
            » E -
            » C P -
            » S
            « 2
            « C COMMIT
            « 3
            ! in None
            ! Run(Tx(3)) committed, shape 7877900d, digest 641466f1, 1 rows
            « Z I
            keeps: false
        "#]],
    );
}

#[test]
fn what_may_do_something_is_sent() {
    check(
        "> Q BEGIN {5}
         > Q UPDATE t SET a = 1
         > Q COMMIT
         @ pins reads-only
         > Q BEGIN {5}
         > Q SELECT a FROM t
         > Q COMMIT AND CHAIN
         > Q SELECT a FROM t
         > P c COMMIT | B - c | E - | P - SELECT a FROM t | S",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE
            » [snapshot*]
            » Q UPDATE t SET a = 1
            ! 3 took its snapshot
            « C UPDATE 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 034aa058, digest df497f85, 0 rows
            « C COMMIT
            « Z I
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN
            » Q SELECT a FROM t
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT AND CHAIN
            ! in None
            ! Run(Tx(3)) committed, shape 860acda7, digest 641466f1, 1 rows
            « C COMMIT
            « Z I
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » Q SELECT a FROM t
            ! in None
            ! 3 took its snapshot
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
            « T a
            « D x
            « C SELECT 1
            « Z I
            » P c COMMIT
            » B - c
            » E -
            » P - SELECT a FROM t
            » S
            « 1
            « 2
            « C COMMIT
            « 1
            « Z I
        "#]],
    );
}

#[test]
fn changed_code_that_only_reads_commits_itself() {
    check_code(
        Code::Changed {
            outside_writes: false,
        },
        "@ pins reads-only
         > Q BEGIN {5}
         > Q SELECT a FROM t
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » Q BEGIN
            » Q SELECT a FROM t
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 7877900d, digest 641466f1, 1 rows; BEGIN; SELECT a FROM t; COMMIT
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn a_client_that_has_sent_more_hears_of_both_together() {
    check(
        "@ pins reads-only
         @ hold
         > Q BEGIN {5} | P - SELECT a FROM t | B - - | D P - | E - | S
         @ permit
         > Q COMMIT
         @ permit",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN
            » P - SELECT a FROM t
            » B - -
            » D P -
            » E -
            » S
            « C BEGIN
            « Z T
            « 1
            « 2
            « T a
            ! 3 took its snapshot
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            ! in None
            ! Run(Tx(3)) committed, shape 7877900d, digest 641466f1, 1 rows
            « C COMMIT
            « Z I
        "#]],
    );
}
