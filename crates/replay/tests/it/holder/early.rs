//! Statements under READ COMMITTED that waited, and go on with what they saw before.

use expect_test::expect;

use super::check;

/// What it saw when it began is taken down before those commit that it waited for, and it goes on
/// with that when they have.
#[test]
fn a_statement_that_waited_goes_on_with_what_it_saw_before() {
    check(
        "@ pins read-committed looks=!2-2,2-2
         > Q BEGIN
         > P - SELECT a FROM t {5} | B - - | E - | S
         > P - UPDATE t SET a = (SELECT count(*) FROM u) | B - - | E - | S
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
            ! 3 took its snapshot
            « D x
            « C SELECT 1
            « Z T
            » P - UPDATE t SET a = (SELECT count(*) FROM u)
            » H
            « 1
            ? look 0 of 3
            » P hindcast_early SELECT pg_catalog.set_config('hindcast_pins.snapshot', pg_catalog.pg_current_snapshot()::pg_catalog.text, true) FROM pg_catalog.generate_series(1, 2)
            » C P hindcast_early
            » B hindcast_early hindcast_early
            » E hindcast_early
            » S
            ! 3 is through with look 0
            ? look 1 of 3
            » [go_on*]
            » B - -
            » E -
            » S
            « 2
            ! 3 is through with look 1
            « C UPDATE 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 92f584b6, digest d8ed06a6, 1 rows
            « C COMMIT
            « Z I
        "#]],
    );
}

/// As above, of one that is all of its transaction.
#[test]
fn a_statement_alone_that_waited_goes_on_with_what_it_saw_before() {
    check(
        "@ pins read-committed looks=!0-0,0-0
         > P - UPDATE t SET a = (SELECT count(*) FROM u) {5} | B - - | E - | S",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin_rc*]
            » [snapshot*]
            » P - UPDATE t SET a = (SELECT count(*) FROM u)
            » H
            ! 3 took its snapshot
            « 1
            ? look 0 of 3
            » P hindcast_early SELECT pg_catalog.set_config('hindcast_pins.snapshot', pg_catalog.pg_current_snapshot()::pg_catalog.text, true) FROM pg_catalog.generate_series(1, 2)
            » C P hindcast_early
            » B hindcast_early hindcast_early
            » E hindcast_early
            » S
            ! 3 is through with look 0
            ? look 1 of 3
            » [go_on*]
            » B - -
            » E -
            » S
            « 2
            ! 3 is through with look 1
            « C UPDATE 1
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 31b28cb7, digest 0d8610f8, 0 rows
            « Z I
        "#]],
    );
}

/// Of several statements in one text each is held where it looks, and the rest is not run where one
/// fails.
#[test]
fn a_text_with_several_statements_is_run_one_at_a_time() {
    check(
        "@ pins read-committed looks=1-1
         > Q INSERT INTO t VALUES (1); UPDATE t SET a = 2 {5}",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin_rc*]
            » [snapshot*]
            » Q INSERT INTO t VALUES (1)
            ! 3 took its snapshot
            « C INSERT 0 1
            ? look 0 of 3
            » Q UPDATE t SET a = 2
            ! 3 is through with look 0
            ! 3 ran
            « C UPDATE 1
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 957a71c3, digest 8290b172, 0 rows
            « Z I
        "#]],
    );
    check(
        "@ pins read-committed looks=1-1
         @ fail nobody 42P01 missing
         > Q UPDATE nobody SET a = 2; UPDATE t SET a = 2 {5}
         > Q SELECT a FROM t {5}",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin_rc*]
            » [snapshot*]
            » Q UPDATE nobody SET a = 2
            ! 3 took its snapshot
            ! 3 ran
            « E 42P01 missing
            » [commit*]
            ! in None
            ! Run(Tx(3)) rolled back: missing (42P01), shape 19947610, digest f8a96f9e, 0 rows
            « Z I
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin_rc]
            » [snapshot]
            » Q SELECT a FROM t
            ! 3 took its snapshot
            ! 3 ran
            « T a
            « D x
            « C SELECT 1
            ? commit of 3
            » [commit]
            ! in None
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
            « Z I
        "#]],
    );
}

/// A query that waited asks for its locks, which it does without otherwise.
#[test]
fn a_query_that_waited_for_a_lock_asks_for_it() {
    check(
        "@ pins read-committed looks=!1-1,1-1
         > Q BEGIN
         > P s SELECT a FROM t WHERE a = $1 FOR UPDATE | B - s | E - | S
         > B - s | E - | S {5}
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE
            » [snapshot*]
            » P s SELECT a FROM t WHERE a = $1 
            » H
            ! 3 took its snapshot
            « 1
            ? look 0 of 3
            » P hindcast_early SELECT pg_catalog.set_config('hindcast_pins.snapshot', pg_catalog.pg_current_snapshot()::pg_catalog.text, true) FROM pg_catalog.generate_series(1, 2)
            » C P hindcast_early
            » B hindcast_early hindcast_early
            » E hindcast_early
            » S
            ! 3 is through with look 0
            ? look 1 of 3
            » [go_on*]
            » C S hindcast_locking
            » P hindcast_locking SELECT a FROM t WHERE a = $1 FOR UPDATE
            » B - hindcast_locking
            » E -
            » S
            « 2
            ! 3 is through with look 1
            « D x
            « C SELECT 1
            « Z T
            » B - s
            » E -
            » S
            « 2
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 5281dc71, digest f447f2af, 2 rows
            « C COMMIT
            « Z I
        "#]],
    );
}
