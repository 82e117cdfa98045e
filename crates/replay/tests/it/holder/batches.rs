//! Batches of the extended protocol that fail, wait or end in the middle of something.

use expect_test::expect;

use super::check;

#[test]
fn a_transaction_in_one_batch() {
    check(
        "> P - BEGIN {5} | B - - | E - | P - INSERT INTO t VALUES (1) | B - - | E - | P - COMMIT | B - - | E - | S
         @ idle",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            » P - BEGIN
            » B - -
            » E -
            ? snapshot of 3
            » [write*]
            » [snapshot*]
            » P - INSERT INTO t VALUES (1)
            » B - -
            » E -
            » P - COMMIT
            » B - -
            » H
            « 1
            « 2
            « C BEGIN
            ! 3 took its snapshot
            « 1
            « 2
            « C INSERT 0 1
            « 1
            ! 3 ran
            « 2
            ? commit of 3
            » E -
            » S
            « C COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 1739474f, digest ec6f0ca6, 0 rows
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn a_batch_that_ends_one_transaction_and_begins_another() {
    check(
        "> Q BEGIN
         > P - SELECT a FROM t | B - - | E - | P - COMMIT | B - - | E - | P - BEGIN | B - - | E - | S
         > P - SELECT b FROM t | B - - | E - | S
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE
            » [snapshot*]
            » P - SELECT a FROM t
            » B - -
            » E -
            » P - COMMIT
            » B - -
            » H
            ! 3 took its snapshot
            « 1
            « 2
            « D x
            « C SELECT 1
            « 1
            ! 3 ran
            « 2
            ? commit of 3
            » E -
            » P - BEGIN
            » B - -
            » E -
            » S
            « C COMMIT
            « 1
            « 2
            « C BEGIN
            « Z T
            » P - SELECT b FROM t
            » B - -
            » E -
            » S
            « 1
            « 2
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 4ece8afc, digest 0efbb79b, 2 rows
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn what_fails_in_a_wrapped_batch_fails_all_of_it() {
    check(
        "@ fail two 23505 twice
         > P - INSERT INTO one VALUES (1) | B - - | E - | P - INSERT INTO two VALUES (1) | B - - | E - | P - INSERT INTO three VALUES (1) | B - - | E - | S
         > Q SELECT a FROM t",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » P - INSERT INTO one VALUES (1)
            » B - -
            » E -
            » P - INSERT INTO two VALUES (1)
            » B - -
            » E -
            » P - INSERT INTO three VALUES (1)
            » B - -
            » E -
            » S
            ! 3 took its snapshot
            « 1
            « 2
            « C INSERT 0 1
            « 1
            « 2
            « E 23505 twice
            ! 3 ran
            » [commit*]
            ! in None
            ! Run(Tx(3)) rolled back: twice (23505), shape 83923a5b, digest 1774adc9, 0 rows
            « Z I
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin]
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

#[test]
fn what_cannot_be_prepared_fails_the_batch() {
    check(
        "@ fail-parse two 42601 what is two
         > P - INSERT INTO one VALUES (1) | B - - | E - | P - INSERT two VALUES (1) | B - - | E - | S",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » P - INSERT INTO one VALUES (1)
            » B - -
            » E -
            » P - INSERT two VALUES (1)
            » B - -
            » E -
            » S
            ! 3 took its snapshot
            « 1
            « 2
            « C INSERT 0 1
            « E 42601 what is two
            ! 3 ran
            » [commit*]
            ! in None
            ! Run(Tx(3)) rolled back: what is two (42601), shape b75a7787, digest 7f0a727e, 0 rows
            « Z I
        "#]],
    );
}

#[test]
fn what_follows_a_failure_in_a_transaction_is_not_held() {
    check(
        "@ fail two 23505 twice
         > Q BEGIN
         > P - INSERT INTO one VALUES (1) | B - - | E - | P - INSERT INTO two VALUES (1) | B - - | E - | P - SELECT pg_advisory_xact_lock(1) | B - - | E - | P - COMMIT | B - - | E - | S
         > Q ROLLBACK",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE
            » [snapshot*]
            » P - INSERT INTO one VALUES (1)
            » B - -
            » E -
            » P - INSERT INTO two VALUES (1)
            » B - -
            » E -
            » P - SELECT pg_advisory_xact_lock(1)
            » B - -
            » H
            ! 3 took its snapshot
            « 1
            « 2
            « C INSERT 0 1
            « 1
            « 2
            ! 3 ran
            ! 3 ran
            « E 23505 twice
            » E -
            » P - COMMIT
            » B - -
            » H
            » E -
            » S
            « Z E
            » Q ROLLBACK
            ! in None
            ! Run(Tx(3)) rolled back: twice (23505), shape 7e51a9a2, digest 5e8a591f, 0 rows
            « C ROLLBACK
            « Z I
        "#]],
    );
}

#[test]
fn a_failure_before_the_snapshot_leaves_none_to_be_taken() {
    check(
        "@ fail SET 22023 no such setting
         > P - BEGIN | B - - | E - | P - SET x = 1 | B - - | E - | P - SELECT a FROM t | B - - | E - | S
         > Q ROLLBACK",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            » P - BEGIN
            » B - -
            » E -
            » P - SET x = 1
            » B - -
            » E -
            » H
            « 1
            « 2
            « C BEGIN
            « 1
            « 2
            « E 22023 no such setting
            » P - SELECT a FROM t
            » B - -
            » E -
            » S
            « Z E
            » Q ROLLBACK
            ! in None
            ! Run(Tx(3)) rolled back: no such setting (22023), shape e5ef4872, digest 437785ff, 0 rows
            « C ROLLBACK
            « Z I
        "#]],
    );
}

#[test]
fn an_advisory_lock_in_the_middle_of_a_batch() {
    check(
        "> P - BEGIN | B - - | E - | P - SELECT a FROM t | B - - | E - | P - SELECT pg_advisory_xact_lock(1) | B - - | E - | P - COMMIT | B - - | E - | S",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            » P - BEGIN
            » B - -
            » E -
            ? snapshot of 3
            » [write*]
            » [snapshot*]
            » P - SELECT a FROM t
            » B - -
            » E -
            » P - SELECT pg_advisory_xact_lock(1)
            » B - -
            » H
            « 1
            « 2
            « C BEGIN
            ! 3 took its snapshot
            « 1
            « 2
            « D x
            « C SELECT 1
            « 1
            ! 3 ran
            « 2
            ? lock of 3 by statement 2
            » E -
            » P - COMMIT
            » B - -
            » H
            ! 3 locked by statement 2
            « D x
            « C SELECT 1
            « 1
            ! 3 ran
            « 2
            ? commit of 3
            » E -
            » S
            « C COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape e0664986, digest f447f2af, 2 rows
            « Z I
        "#]],
    );
}

#[test]
fn a_flushed_batch_stays_open_until_its_sync() {
    check(
        "> P - INSERT INTO t VALUES (1) | D S - | H
         > B - - | E - | H
         > B - - | E - | S
         @ idle",
        expect![[r#"
            » P - INSERT INTO t VALUES (1)
            » D S -
            » H
            « 1
            « t
            « n
            ! claim of request none: Run(Tx(3))
            » S
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » B - -
            » E -
            » H
            ! 3 took its snapshot
            « 2
            « C INSERT 0 1
            » B - -
            » E -
            » S
            « 2
            « C INSERT 0 1
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape ffd420c2, digest a564c6b6, 0 rows
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn begin_after_a_flushed_parse() {
    check(
        "> P - BEGIN | H
         > B - - | E - | S
         > P - SELECT a FROM t | H
         > B - - | E - | S
         > Q COMMIT",
        expect![[r#"
            » P - BEGIN
            » H
            « 1
            » B - -
            » E -
            » S
            « 2
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [write*]
            » [snapshot*]
            » P - SELECT a FROM t
            » H
            ! 3 took its snapshot
            « 1
            » B - -
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
            ! Run(Tx(3)) committed, shape 7877900d, digest 641466f1, 1 rows
            « C COMMIT
            « Z I
        "#]],
    );
}

/// Its `ReadyForQuery` ends the implicit transaction that both are in, as a `Sync` does.
#[test]
fn a_batch_that_a_query_ends() {
    check(
        "> P s INSERT INTO t VALUES (1) {5} | B - s | E - | Q UPDATE t SET a = 2
         > B - s | E - | S
         @ fail UPDATE 22012 no
         > B - s | E - | Q UPDATE t SET a = 2
         @ idle",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » P s INSERT INTO t VALUES (1)
            » B - s
            » E -
            » H
            ! 3 took its snapshot
            « 1
            « 2
            « C INSERT 0 1
            » Q UPDATE t SET a = 2
            ! 3 ran
            « C UPDATE 1
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 957a71c3, digest 8290b172, 0 rows
            « Z I
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin]
            » [snapshot]
            » B - s
            » E -
            » S
            ! 3 took its snapshot
            « 2
            « C INSERT 0 1
            ! 3 ran
            ? commit of 3
            » [commit]
            ! in None
            ! Run(Tx(3)) committed, shape 5ab1b73a, digest 31fb68fc, 0 rows
            « Z I
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin]
            » [snapshot]
            » B - s
            » E -
            » H
            ! 3 took its snapshot
            « 2
            « C INSERT 0 1
            » Q UPDATE t SET a = 2
            ! 3 ran
            « E 22012 no
            » [commit]
            ! in None
            ! Run(Tx(3)) rolled back: no (22012), shape 957a71c3, digest 697c3108, 0 rows
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn what_is_prepared_right_before_a_query() {
    check(
        "> P s SELECT a FROM t | B p s | Q INSERT INTO t VALUES (1) {5}
         > P u SELECT b FROM t | Q BEGIN
         > B - u | E - | S
         > P v SELECT c FROM t | Q COMMIT
         > P w SELECT d FROM t | F 7
         > B - w | E - | S
         @ idle",
        expect![[r#"
            » P s SELECT a FROM t
            » B p s
            » H
            « 1
            ! claim of request 5: Run(Tx(3))
            « 2
            » S
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » Q INSERT INTO t VALUES (1)
            ! 3 took its snapshot
            ! 3 ran
            « C INSERT 0 1
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 5ab1b73a, digest 31fb68fc, 0 rows
            « Z I
            » P u SELECT b FROM t
            » H
            « 1
            » S
            » Q BEGIN
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [write*]
            » [snapshot]
            » B - u
            » E -
            » S
            ! 3 took its snapshot
            « 2
            « D x
            « C SELECT 1
            « Z T
            » P v SELECT c FROM t
            » H
            ! 3 ran
            « 1
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 0cd211f6, digest 641466f1, 1 rows
            « C COMMIT
            « Z I
            » P w SELECT d FROM t
            » H
            ! claim of request none: Run(Tx(3))
            « 1
            » S
            ? snapshot of 3
            » [begin]
            » [snapshot]
            » F 7
            ! 3 took its snapshot
            ! 3 ran
            « V
            ? commit of 3
            » [commit]
            ! in None
            ! Run(Tx(3)) committed, shape 71886095, digest 103ef101, 1 rows
            « Z I
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin]
            » [snapshot]
            » B - w
            » E -
            » S
            ! 3 took its snapshot
            « 2
            « D x
            « C SELECT 1
            ! 3 ran
            ? commit of 3
            » [commit]
            ! in None
            ! Run(Tx(3)) committed, shape 50bd4681, digest a9c69739, 1 rows
            « Z I
            idle: true
        "#]],
    );
}

/// The server ignores what it gets after an error, up to a `Sync`.
#[test]
fn a_query_behind_a_parse_that_failed() {
    check(
        "@ fail-parse this 42601 what is this
         > P - SELECT this | B - - | Q INSERT INTO t VALUES (1) {5}
         > P - SELECT b FROM t | B - - | E - | H
         > S
         > Q SELECT c FROM t
         @ idle",
        expect![[r#"
            » P - SELECT this
            » B - -
            » H
            « E 42601 what is this
            » S
            « Z I
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » Q SELECT c FROM t
            ! 3 took its snapshot
            ! 3 ran
            « T a
            « D x
            « C SELECT 1
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 0a92f009, digest a9c69739, 1 rows
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn outside_of_requests_batches_are_sent_as_they_are() {
    check(
        "@ claim outside
         @ fail INTO 25006 read-only
         > P - INSERT INTO t VALUES (1) | B - - | E - | S",
        expect![[r#"
            ! claim of request none: Outside
            » P - INSERT INTO t VALUES (1)
            » B - -
            » E -
            » S
            « 1
            « 2
            ! refused: INSERT INTO t VALUES ($1)
            « E 25006 read-only
            « Z I
        "#]],
    );
}

#[test]
fn a_batch_while_the_one_before_is_held_waits_its_turn() {
    check(
        "@ hold
         > P - INSERT INTO t VALUES (1) | B - - | E - | S
         > P - INSERT INTO t VALUES (2) | B - - | E - | S
         @ permit
         @ permit
         @ permit
         @ permit",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » P - INSERT INTO t VALUES (1)
            » B - -
            » E -
            » S
            ! 3 took its snapshot
            « 1
            « 2
            « C INSERT 0 1
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 5ab1b73a, digest 31fb68fc, 0 rows
            ! claim of request none: Run(Tx(3))
            « Z I
            ? snapshot of 3
            » [begin]
            » [snapshot]
            » P - INSERT INTO t VALUES (2)
            » B - -
            » E -
            » S
            ! 3 took its snapshot
            « 1
            « 2
            « C INSERT 0 1
            ! 3 ran
            ? commit of 3
            » [commit]
            ! in None
            ! Run(Tx(3)) committed, shape 5ab1b73a, digest 31fb68fc, 0 rows
            « Z I
        "#]],
    );
}
