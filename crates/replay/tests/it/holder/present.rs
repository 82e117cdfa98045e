//! Reads under READ COMMITTED that do not see what was recorded at their place: of a transaction of
//! which it is not known yet which it is, and where nothing else would go on.

use expect_test::expect;

use super::check;

/// The statement behind it asks for what it was to see.
#[test]
fn a_read_that_sees_the_present_leaves_what_it_was_to_see_to_the_next_statement() {
    // The snapshot of its transaction.
    check(
        "@ pins read-committed looks= recorded=BEGIN;SELECT_a_FROM_t;UPDATE_t_SET_a_=_1;COMMIT
         @ present
         > Q BEGIN {5}
         > P - SELECT a FROM t | B - - | E - | S
         > P - UPDATE t SET a = 1 | B - - 1 | E - | S",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE
            » [snapshot*]
            » P - SELECT a FROM t
            » B - -
            » E -
            » S
            « 1
            « 2
            « D x
            « C SELECT 1
            « Z T
            ? snapshot of 3
            » P - UPDATE t SET a = 1
            » B - - 1
            » E -
            » S
            « 1
            « 2
            ! 3 took its snapshot
            « C UPDATE 1
            « Z T
        "#]],
    );
    // No statement looks behind it.
    check(
        "@ pins read-committed looks= recorded=BEGIN;SELECT_a_FROM_t;UPDATE_t_SET_a_=_1;COMMIT
         @ present
         > Q BEGIN {5}
         > P - SELECT a FROM t | B - - | E - | S
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE
            » [snapshot*]
            » P - SELECT a FROM t
            » B - -
            » E -
            » S
            « 1
            « 2
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ! 3 took its snapshot
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 7877900d, digest 641466f1, 1 rows
            « C COMMIT
            « Z I
        "#]],
    );
    // What later statements saw.
    check(
        "@ pins read-committed looks=2-3 recorded=BEGIN;SELECT_a_FROM_t;SELECT_b_FROM_t;UPDATE_t_SET_a_=_1;COMMIT
         > Q BEGIN {5}
         > Q SELECT a FROM t
         @ present
         > P - SELECT b FROM t | B - - | E - | S
         > P - UPDATE t SET a = 1 | B - - 1 | E - | S",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE
            » [snapshot*]
            » Q SELECT a FROM t
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            ? look 0 of 3
            » P - SELECT b FROM t
            » B - -
            » E -
            » S
            « 1
            « 2
            « D x
            « C SELECT 1
            « Z T
            ? look 0 of 3
            » P - UPDATE t SET a = 1
            » B - - 1
            » E -
            » S
            « 1
            « 2
            ! 3 is through with look 0
            « C UPDATE 1
            « Z T
        "#]],
    );
    // Others are sent with it.
    check(
        "@ pins read-committed looks= recorded=BEGIN;SELECT_a_FROM_t;UPDATE_t_SET_a_=_1;COMMIT
         @ present
         > Q BEGIN {5}
         > P - SELECT a FROM t | B - - | E - | P - UPDATE t SET a = 1 | B - - 1 | E - | S",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE
            » [snapshot*]
            » P - SELECT a FROM t
            » B - -
            » E -
            » P - UPDATE t SET a = 1
            » B - - 1
            » E -
            » S
            « 1
            « 2
            ! 3 took its snapshot
            « D x
            « C SELECT 1
            « 1
            « 2
            « C UPDATE 1
            « Z T
        "#]],
    );
}

/// It is one of two, and waits for what the first of them waits for.
#[test]
fn what_is_known_later_waits_for_what_it_may_be() {
    check(
        "@ claim later 2
         @ pins read-committed looks=2-2 recorded=BEGIN;SELECT_a_FROM_t;UPDATE_t_SET_a_=_1;COMMIT
         > Q BEGIN {5}
         > P - SELECT a FROM t | B - - | E - | S
         @ claim run 3
         > P - UPDATE t SET a = 1 | B - - 1 | E - | S
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Later(Some(Tx(2)))
            ! claim of request 5: Later(Some(Tx(2)))
            ? snapshot of 2
            » Q BEGIN
            » [writable*]
            » P - SELECT a FROM t
            » H
            « 1
            ? snapshot of 2
            » B - -
            » E -
            » S
            « 2
            « D x
            « C SELECT 1
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            ! 3 took its snapshot
            » [snapshot*]
            ? look 0 of 3
            » P - UPDATE t SET a = 1
            » B - - 1
            » E -
            » S
            ! 3 took its snapshot
            « 1
            « 2
            ! 3 is through with look 0
            « C UPDATE 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape b880a140, digest d8ed06a6, 1 rows
            « C COMMIT
            « Z I
        "#]],
    );
}
