//! The extended protocol: prepared names and portals.

use expect_test::expect;

use super::check;

#[test]
fn a_statement_by_itself_is_wrapped_whatever_it_was_prepared_with() {
    check(
        "> P - INSERT INTO t VALUES ($1) {5} | D S - | S
         > B - - 1 | E - | S
         @ idle",
        expect![[r#"
            » P - INSERT INTO t VALUES ($1)
            » D S -
            » S
            « 1
            « t
            « n
            « Z I
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » B - - 1
            » E -
            » S
            ! 3 took its snapshot
            « 2
            « C INSERT 0 1
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 5ab1b73a, digest 31fb68fc, 0 rows
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn a_batch_of_one_flight_is_wrapped() {
    check(
        "> P - INSERT INTO t VALUES ($1) {5} | B - - 1 | D P - | E - | S",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » P - INSERT INTO t VALUES ($1)
            » B - - 1
            » D P -
            » E -
            » S
            ! 3 took its snapshot
            « 1
            « 2
            « n
            « C INSERT 0 1
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 5ab1b73a, digest 31fb68fc, 0 rows
            « Z I
        "#]],
    );
}

#[test]
fn what_only_reads_is_sent_as_it_is() {
    check(
        "@ pins reads-only
         > P - SELECT a FROM t {5} | B - - | D P - | E - | S",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » P - SELECT a FROM t
            » B - -
            » D P -
            » E -
            » S
            « 1
            « 2
            « T a
            « D x
            « C SELECT 1
            ! in None
            ! 3 took its snapshot
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
            « Z I
        "#]],
    );
}

#[test]
fn the_comment_of_a_prepared_statement_counts_once() {
    check(
        "> P s SELECT a FROM t {5} | S
         > B - s | E - | S
         > B - s | E - | S",
        expect![[r#"
            » P s SELECT a FROM t
            » S
            « 1
            « Z I
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » B - s
            » E -
            » S
            ! 3 took its snapshot
            « 2
            « D x
            « C SELECT 1
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
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
            « D x
            « C SELECT 1
            ! 3 ran
            ? commit of 3
            » [commit]
            ! in None
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
            « Z I
        "#]],
    );
}

#[test]
fn a_comment_that_is_prepared_and_used_in_one_batch() {
    check(
        "> P s SELECT a FROM t {5} | B - s | E - | S
         > B - s | E - | S
         > B - s | E - | S",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » P s SELECT a FROM t
            » B - s
            » E -
            » S
            ! 3 took its snapshot
            « 1
            « 2
            « D x
            « C SELECT 1
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
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
            « D x
            « C SELECT 1
            ! 3 ran
            ? commit of 3
            » [commit]
            ! in None
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
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
            « D x
            « C SELECT 1
            ! 3 ran
            ? commit of 3
            » [commit]
            ! in None
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
            « Z I
        "#]],
    );
}

#[test]
fn a_portal_counts_as_its_statement() {
    check(
        "> P s SELECT a FROM t {5} | B p s | B q s | S
         > E p | S
         > E q | S",
        expect![[r#"
            » P s SELECT a FROM t
            » B p s
            » B q s
            » S
            « 1
            « 2
            « 2
            « Z I
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » E p
            » S
            ! 3 took its snapshot
            « D x
            « C SELECT 1
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
            « Z I
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin]
            » [snapshot]
            » E q
            » S
            ! 3 took its snapshot
            « D x
            « C SELECT 1
            ! 3 ran
            ? commit of 3
            » [commit]
            ! in None
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
            « Z I
        "#]],
    );
}

#[test]
fn a_transaction_over_several_batches() {
    check(
        "> P b BEGIN {5} | B - b | E - | S
         > P s SELECT a FROM t | D S s | S
         > B - s | E - | S
         > P - COMMIT | B - - | E - | S",
        expect![[r#"
            » P b BEGIN
            » B - b
            » E -
            » S
            « 1
            « 2
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [write*]
            » [snapshot*]
            » P s SELECT a FROM t
            » D S s
            » S
            ! 3 took its snapshot
            « 1
            « t
            « T a
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
            » P - COMMIT
            » B - -
            » E -
            » S
            « 1
            « 2
            « C COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 7877900d, digest 641466f1, 1 rows
            « Z I
        "#]],
    );
}

#[test]
fn a_portal_is_read_in_pieces() {
    check(
        "@ suspend
         > P s SELECT a FROM t | B p s | E p 1 | H
         > E p | S
         > C P p | C S s | S",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » P s SELECT a FROM t
            » B p s
            » E p
            » H
            ! 3 took its snapshot
            « 1
            « 2
            « D x
            « C SELECT 1
            » E p
            » S
            « D x
            « C SELECT 1
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 5eab4193, digest 948cec62, 2 rows
            « Z I
            » C P p
            » C S s
            » S
            « 3
            « 3
            « Z I
        "#]],
    );
}

#[test]
fn a_name_that_is_not_known_is_the_servers_to_refuse() {
    check(
        "> B - nothing | E - | S
         > E nothing | S
         > D S nothing | S",
        expect![[r#"
            » B - nothing
            » E -
            » S
            « E 26000 there is no such thing
            « Z I
            » E nothing
            » S
            « E 26000 there is no such thing
            « Z I
            » D S nothing
            » S
            « t
            « n
            « Z I
        "#]],
    );
}

#[test]
fn an_unnamed_statement_is_replaced() {
    check(
        "> P - SELECT a FROM t | S
         > P - INSERT INTO t VALUES (1) | B - - | E - | S
         > B - - | E - | S",
        expect![[r#"
            » P - SELECT a FROM t
            » S
            « 1
            « Z I
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
            « Z I
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin]
            » [snapshot]
            » B - -
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
        "#]],
    );
}

#[test]
fn two_executions_in_a_batch_are_one_transaction() {
    check(
        "> P s INSERT INTO t VALUES ($1) | S
         > B - s 1 | E - | B - s 2 | E - | S",
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
            » E -
            » S
            ! 3 took its snapshot
            « 2
            « C INSERT 0 1
            « 2
            « C INSERT 0 1
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape ffd420c2, digest a564c6b6, 0 rows
            « Z I
        "#]],
    );
}

#[test]
fn a_statement_that_must_be_alone() {
    check(
        "> P - VACUUM t | B - - | E - | S
         > P - VACUUM t | H
         > B - - | E - | S",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [read_write*]
            » P - VACUUM t
            » B - -
            » E -
            » S
            « 1
            « 2
            « C VACUUM
            ! in None
            ! 3 took its snapshot
            ! Run(Tx(3)) committed, shape d8288423, digest 29d1fc58, 0 rows
            « Z I
            » [read_only*]
            » P - VACUUM t
            » H
            « 1
            ! claim of request none: Run(Tx(3))
            » S
            ? snapshot of 3
            » [read_write]
            » B - -
            » E -
            » S
            « 2
            « C VACUUM
            ! in None
            ! 3 took its snapshot
            ! Run(Tx(3)) committed, shape d8288423, digest 29d1fc58, 0 rows
            « Z I
            » [read_only]
        "#]],
    );
}

/// A driver asks for types, and another connection has asked in the replay. Others wait until the
/// transaction has its snapshot, and what comes next in it waits for them.
#[test]
fn a_snapshot_whose_statement_does_not_come_is_not_waited_for() {
    check(
        "@ pins read-committed looks=2-2 recorded=BEGIN;SELECT_typname_FROM_pg_type;SELECT_a_FROM_t;COMMIT
         > Q BEGIN
         > P - SELECT a FROM t {5} | B - - | E - | S
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            ! 3 took its snapshot
            » Q BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE
            » [snapshot*]
            ? look 0 of 3
            » P - SELECT a FROM t
            » B - -
            » E -
            » S
            ! 3 took its snapshot
            « 1
            « 2
            ! 3 is through with look 0
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

/// A portal looks when it is bound, and the transaction's snapshot is that of its own first
/// statement.
#[test]
fn under_read_committed_later_statements_are_held_before_they_are_bound() {
    check(
        "@ pins read-committed looks=2-2
         > Q BEGIN
         > P - SELECT a FROM t {5} | B - - | E - | S
         > P - UPDATE t SET a = 1 | B - - 1 | E - | S
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

/// Its driver knew the types then, and asks for them now.
#[test]
fn what_a_driver_asks_for_itself_does_not_tell_which_transaction_it_is() {
    check(
        "@ later
         @ pins read-committed looks=2-2 recorded=BEGIN;SELECT_a_FROM_t;SELECT_b_FROM_t;COMMIT
         > Q BEGIN {5}
         > P n SELECT oid FROM pg_type | B p n | E p | S
         > P s SELECT a FROM t | S
         > P m SELECT typname FROM pg_type | B p m | E p | S
         > B p s | E p | S
         > P s SELECT b FROM t | B p s | E p | S
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Later(None)
            ! claim of request 5: Later(None)
            » Q BEGIN
            » [writable*]
            » P n SELECT oid FROM pg_type
            » H
            « 1
            » B p n
            » E p
            » S
            « 2
            « D x
            « C SELECT 1
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [snapshot*]
            » P s SELECT a FROM t
            » S
            « 1
            « Z T
            » P m SELECT typname FROM pg_type
            » B p m
            » E p
            » S
            « 1
            « 2
            « D x
            « C SELECT 1
            « Z T
            » B p s
            » E p
            » S
            « 2
            ! 3 took its snapshot
            « D x
            « C SELECT 1
            « Z T
            ? look 0 of 3
            » P s SELECT b FROM t
            » B p s
            » E p
            » S
            « 1
            « 2
            ! 3 is through with look 0
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 7ea081d2, digest 0c9ba9c4, 4 rows
            « C COMMIT
            « Z I
        "#]],
    );
}

/// Reads of one flight are a transaction of their own, and under READ COMMITTED each looks by
/// itself.
#[test]
fn reads_of_one_flight_look_one_by_one() {
    check(
        "@ pins reads-only read-committed looks=1-1
         > P - SELECT a FROM t {5} | B - - 1 | E - | P - SELECT b FROM t | B - - 1 | E - | S
         @ idle",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » P - SELECT a FROM t
            » B - - 1
            » E -
            » P - SELECT b FROM t
            » H
            « 1
            « 2
            ! 3 took its snapshot
            « D x
            « C SELECT 1
            « 1
            ? look 0 of 3
            » B - - 1
            » E -
            » S
            « 2
            ! 3 is through with look 0
            « D x
            « C SELECT 1
            ! in None
            ! 3 took its snapshot
            ! Run(Tx(3)) committed, shape 46ac3ae3, digest 948cec62, 2 rows
            « Z I
            idle: true
        "#]],
    );
}
