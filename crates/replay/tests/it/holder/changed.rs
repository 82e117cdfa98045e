//! Changed code: nothing is served, isolation and locks are its own, and who wrote is noted.

use expect_test::expect;

use hindcast_replay::hold::Code;

use super::check_code;

const CODE: Code = Code::Changed {
    outside_writes: false,
};

#[test]
fn a_statement_by_itself_keeps_its_isolation_and_tells_its_id() {
    check_code(
        CODE,
        "@ pins now=1000000
         > Q UPDATE t SET a = 1 WHERE b = 2 FOR UPDATE {5}
         @ idle",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » [begin_as_chosen*]
            » [snapshot 1970-01-01T00:00:01.000000+00*]
            » Q UPDATE t SET a = 1 WHERE b = 2 FOR UPDATE
            ! 3 took its snapshot
            « C UPDATE 1
            » [id*]
            ! Run(Tx(3)) wrote as [777]: UPDATE t SET a = $1 WHERE b = $2 FOR UPDATE
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 4a6f2ac8, digest 0d8610f8, 0 rows; UPDATE t SET a = $1 WHERE b = $2 FOR UPDATE
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn what_only_reads_is_not_wrapped_even_if_it_did_not_then() {
    check_code(
        CODE,
        "> Q SELECT a FROM t FOR UPDATE
         > Q SELECT a FROM t",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » [begin_as_chosen*]
            » [snapshot*]
            » Q SELECT a FROM t FOR UPDATE
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            » [id*]
            ! Run(Tx(3)) wrote as [777]: SELECT a FROM t FOR UPDATE
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 9ee66499, digest a9c69739, 1 rows; SELECT a FROM t FOR UPDATE
            « Z I
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » Q SELECT a FROM t
            ! 3 took its snapshot
            ! in None
            ! 3 took its snapshot
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows; SELECT a FROM t
            « T a
            « D x
            « C SELECT 1
            « Z I
        "#]],
    );
}

#[test]
fn a_transaction() {
    check_code(
        CODE,
        "@ pins sequence=7
         > Q BEGIN ISOLATION LEVEL SERIALIZABLE {5}
         > Q SELECT a FROM t FOR UPDATE
         > Q UPDATE t SET a = 1
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL SERIALIZABLE
            » [snapshot  ;500:7;*]
            » Q SELECT a FROM t FOR UPDATE
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            » Q UPDATE t SET a = 1
            « C UPDATE 1
            « Z T
            » [id*]
            ! Run(Tx(3)) wrote as [777]: BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT a FROM t FOR UPDATE; UPDATE t SET a = $1; COMMIT
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 810c9f79, digest d8ed06a6, 1 rows; BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT a FROM t FOR UPDATE; UPDATE t SET a = $1; COMMIT
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn a_transaction_that_only_read_takes_its_own_snapshot() {
    check_code(
        CODE,
        "@ pins reads-only
         > Q BEGIN
         > Q SELECT a FROM t
         > Q UPDATE t SET a = 1
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » Q BEGIN
            » Q SELECT a FROM t
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            » Q UPDATE t SET a = 1
            « C UPDATE 1
            « Z T
            » [id*]
            ! Run(Tx(3)) wrote as [777]: BEGIN; SELECT a FROM t; UPDATE t SET a = $1; COMMIT
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape b880a140, digest d8ed06a6, 1 rows; BEGIN; SELECT a FROM t; UPDATE t SET a = $1; COMMIT
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn savepoints_have_ids_of_their_own() {
    check_code(
        CODE,
        "> Q BEGIN
         > Q SAVEPOINT a
         > Q UPDATE t SET a = 1
         > Q RELEASE a
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            » Q BEGIN
            » Q SAVEPOINT a
            « C SAVEPOINT
            « Z T
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » [snapshot*]
            » Q UPDATE t SET a = 1
            ! 3 took its snapshot
            « C UPDATE 1
            « Z T
            » Q RELEASE a
            « C RELEASE
            « Z T
            » [ids*]
            ! Run(Tx(3)) wrote as [777, 778]: BEGIN; SAVEPOINT _; UPDATE t SET a = $1; RELEASE _; COMMIT
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape a974eac1, digest aa770a0e, 0 rows; BEGIN; SAVEPOINT _; UPDATE t SET a = $1; RELEASE _; COMMIT
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn one_that_aborted_originally_acts_late() {
    check_code(
        CODE,
        "@ pins acts-late
         > Q BEGIN
         > Q SELECT a FROM t
         > Q UPDATE t SET a = 1
         > Q UPDATE t SET a = 2
         > Q COMMIT
         > Q UPDATE t SET a = 1",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » Q BEGIN
            » [snapshot*]
            » Q SELECT a FROM t
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            ? act of 3
            » Q UPDATE t SET a = 1
            « C UPDATE 1
            « Z T
            » Q UPDATE t SET a = 2
            « C UPDATE 1
            « Z T
            » [id*]
            ! Run(Tx(3)) wrote as [777]: BEGIN; SELECT a FROM t; UPDATE t SET a = $1; UPDATE t SET a = $1; COMMIT
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape e7d95654, digest 284896ed, 1 rows; BEGIN; SELECT a FROM t; UPDATE t SET a = $1; UPDATE t SET a = $1; COMMIT
            « C COMMIT
            « Z I
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » [begin_as_chosen*]
            » [snapshot]
            ? act of 3
            » Q UPDATE t SET a = 1
            ! 3 took its snapshot
            « C UPDATE 1
            » [id]
            ! Run(Tx(3)) wrote as [777]: UPDATE t SET a = $1
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 2251b0e2, digest 0d8610f8, 0 rows; UPDATE t SET a = $1
            « Z I
        "#]],
    );
}

#[test]
fn one_that_is_added_is_not_held() {
    check_code(
        CODE,
        "@ claim added 2
         > Q UPDATE t SET a = 1 {5}
         > Q BEGIN
         > Q UPDATE t SET a = 1
         > Q COMMIT
         > P - SELECT a FROM t | B - - | E - | S",
        expect![[r#"
            ! claim of request 5: Added(2)
            ! in Some(Added(2))
            » [begin_as_chosen*]
            » Q UPDATE t SET a = 1
            « C UPDATE 1
            » [id*]
            ! Added(2) wrote as [777]: UPDATE t SET a = $1
            » [commit*]
            ! in None
            ! Added(2) committed, shape 2251b0e2, digest 0d8610f8, 0 rows; UPDATE t SET a = $1
            « Z I
            « C BEGIN
            « Z T
            ! claim of request none: Added(2)
            ! in Some(Added(2))
            » Q BEGIN
            » Q UPDATE t SET a = 1
            « C UPDATE 1
            « Z T
            » [id]
            ! Added(2) wrote as [777]: BEGIN; UPDATE t SET a = $1; COMMIT
            » Q COMMIT
            ! in None
            ! Added(2) committed, shape 034aa058, digest df497f85, 0 rows; BEGIN; UPDATE t SET a = $1; COMMIT
            « C COMMIT
            « Z I
            ! claim of request none: Added(2)
            ! in Some(Added(2))
            » P - SELECT a FROM t
            » B - -
            » E -
            » S
            « 1
            « 2
            « D x
            « C SELECT 1
            ! in None
            ! Added(2) committed, shape c4728aa3, digest a9c69739, 1 rows; SELECT a FROM t
            « Z I
        "#]],
    );
}

#[test]
fn one_that_is_cancelled_since_it_ended_a_deadlock_is_told_so() {
    check_code(
        CODE,
        "@ fail UPDATE 57014 canceling
         @ ends-a-deadlock
         > Q UPDATE t SET a = 1",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » [begin_as_chosen*]
            » [snapshot*]
            » Q UPDATE t SET a = 1
            ! 3 took its snapshot
            ! 3 ran
            « E 40P01 deadlock detected
            » [commit*]
            ! in None
            ! Run(Tx(3)) rolled back: deadlock detected (40P01), shape 2251b0e2, digest e144f399, 0 rows; UPDATE t SET a = $1
            « Z I
        "#]],
    );
}

#[test]
fn one_that_is_cancelled_to_give_way_has_failed_to_serialize() {
    check_code(
        CODE,
        "@ fail UPDATE 57014 canceling
         @ yields
         > Q BEGIN
         > Q UPDATE t SET a = 1
         > Q ROLLBACK
         @ fail UPDATE 57014 canceling
         > Q UPDATE t SET a = 1",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » Q BEGIN
            » [snapshot*]
            » Q UPDATE t SET a = 1
            ! 3 took its snapshot
            « E 40001 could not serialize access due to concurrent update
            « Z E
            » Q ROLLBACK
            ! in None
            ! Run(Tx(3)) rolled back: could not serialize access due to concurrent update (40001), shape 22866eeb, digest 79cc2cb4, 0 rows; BEGIN; UPDATE t SET a = $1; ROLLBACK
            « C ROLLBACK
            « Z I
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » [begin_as_chosen*]
            » [snapshot]
            » Q UPDATE t SET a = 1
            ! 3 took its snapshot
            ! 3 ran
            « E 57014 canceling
            » [commit*]
            ! in None
            ! Run(Tx(3)) rolled back: canceling (57014), shape 2251b0e2, digest e0f73041, 0 rows; UPDATE t SET a = $1
            « Z I
        "#]],
    );
}

#[test]
fn an_advisory_lock_that_was_taken_waits_for_its_turn() {
    check_code(
        CODE,
        "> Q BEGIN
         > Q SELECT a FROM t
         > Q SELECT pg_advisory_xact_lock(1)
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » Q BEGIN
            » [snapshot*]
            » Q SELECT a FROM t
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            ? lock of 3 by statement 2
            » Q SELECT pg_advisory_xact_lock(1)
            ! 3 locked by statement 2
            « T a
            « D x
            « C SELECT 1
            « Z T
            » [id*]
            ! Run(Tx(3)) wrote as [777]: BEGIN; SELECT a FROM t; SELECT pg_advisory_xact_lock($1); COMMIT
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape e0664986, digest f447f2af, 2 rows; BEGIN; SELECT a FROM t; SELECT pg_advisory_xact_lock($1); COMMIT
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn outside_of_requests_what_it_writes_is_undone() {
    check_code(
        CODE,
        "@ claim outside
         @ fail INTO 25006 read-only
         > Q SELECT a FROM t
         > Q INSERT INTO t VALUES (1)
         > Q BEGIN
         > Q SELECT a FROM t
         > Q COMMIT
         > P - SELECT a FROM t | B - - | E - | S",
        expect![[r#"
            ! claim of request none: Outside
            ! in Some(Outside)
            » [read_only*]
            » Q SELECT a FROM t
            « T a
            « D x
            « C SELECT 1
            « Z I
            » [read_write*]
            ! claim of request none: Outside
            ! in Some(Outside)
            » [begin_as_chosen*]
            » [patience*]
            » Q INSERT INTO t VALUES (1)
            « E 25006 read-only
            » [commit*]
            ! in None
            ! 1 statements of none
            « Z I
            « C BEGIN
            « Z T
            ! claim of request none: Outside
            ! in Some(Outside)
            » Q BEGIN
            » [patience]
            » Q SELECT a FROM t
            « T a
            « D x
            « C SELECT 1
            « Z T
            » [id*]
            ! undone: SELECT a FROM t
            » [undo*]
            » Q COMMIT
            ! in None
            ! 3 statements of none
            « C COMMIT
            « Z I
            ! claim of request none: Outside
            ! in Some(Outside)
            » [read_only]
            » P - SELECT a FROM t
            » B - -
            » E -
            » S
            « 1
            « 2
            « D x
            « C SELECT 1
            « Z I
            » [read_write]
        "#]],
    );
}

#[test]
fn outside_of_requests_it_may_write_if_that_is_wanted() {
    check_code(
        Code::Changed {
            outside_writes: true,
        },
        "@ claim outside
         > Q INSERT INTO t VALUES (1)
         > Q BEGIN
         > Q INSERT INTO t VALUES (1)
         > Q COMMIT",
        expect![[r#"
            ! claim of request none: Outside
            ! in Some(Outside)
            » Q INSERT INTO t VALUES (1)
            « C INSERT 0 1
            « Z I
            « C BEGIN
            « Z T
            ! claim of request none: Outside
            ! in Some(Outside)
            » Q BEGIN
            » Q INSERT INTO t VALUES (1)
            « C INSERT 0 1
            « Z T
            » Q COMMIT
            ! in None
            ! 3 statements of none
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn a_batch() {
    check_code(
        CODE,
        "> P - BEGIN | B - - | E - | P - UPDATE t SET a = 1 | B - - | E - | P - COMMIT | B - - | E - | S
         > P - UPDATE t SET a = 1 | B - - | E - | S",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            » P - BEGIN
            » B - -
            » E -
            ? snapshot of 3
            » [snapshot*]
            » P - UPDATE t SET a = 1
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
            « C UPDATE 1
            « 1
            « 2
            » [id*]
            ! Run(Tx(3)) wrote as [777]: BEGIN; UPDATE t SET a = $1; COMMIT
            ! 3 ran
            ? commit of 3
            » E -
            » S
            « C COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 034aa058, digest df497f85, 0 rows; BEGIN; UPDATE t SET a = $1; COMMIT
            « Z I
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » [begin_as_chosen*]
            » [snapshot]
            » P - UPDATE t SET a = 1
            » B - -
            » E -
            » S
            ! 3 took its snapshot
            « 1
            « 2
            « C UPDATE 1
            » [id]
            ! Run(Tx(3)) wrote as [777]: UPDATE t SET a = $1
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 2251b0e2, digest 0d8610f8, 0 rows; UPDATE t SET a = $1
            « Z I
        "#]],
    );
}

#[test]
fn a_statement_that_must_be_alone() {
    check_code(
        CODE,
        "> Q VACUUM t
         > Q SELECT a FROM t",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » Q VACUUM t
            ! 3 took its snapshot
            ! in None
            ! 3 took its snapshot
            ! Run(Tx(3)) committed, shape d8288423, digest 29d1fc58, 0 rows; VACUUM t
            « C VACUUM
            « Z I
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » Q SELECT a FROM t
            ! 3 took its snapshot
            ! in None
            ! 3 took its snapshot
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows; SELECT a FROM t
            « T a
            « D x
            « C SELECT 1
            « Z I
        "#]],
    );
}

#[test]
fn what_failed_has_written_nothing() {
    check_code(
        CODE,
        "@ fail UPDATE 23505 twice
         > Q BEGIN
         > Q UPDATE t SET a = 1
         > Q COMMIT
         @ fail UPDATE 23505 twice
         > Q UPDATE t SET a = 1",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » Q BEGIN
            » [snapshot*]
            » Q UPDATE t SET a = 1
            ! 3 took its snapshot
            « E 23505 twice
            « Z E
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) rolled back: twice (23505), shape 034aa058, digest 2af6a2c1, 0 rows; BEGIN; UPDATE t SET a = $1; COMMIT
            « C ROLLBACK
            « Z I
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » [begin_as_chosen*]
            » [snapshot]
            » Q UPDATE t SET a = 1
            ! 3 took its snapshot
            ! 3 ran
            « E 23505 twice
            » [commit*]
            ! in None
            ! Run(Tx(3)) rolled back: twice (23505), shape 2251b0e2, digest 1b2f005a, 0 rows; UPDATE t SET a = $1
            « Z I
        "#]],
    );
}

#[test]
fn a_text_with_its_own_begin_and_commit() {
    check_code(
        CODE,
        "> Q BEGIN; UPDATE t SET a = 1; COMMIT {5}",
        expect![[r#"
            » Q BEGIN
            ! claim of request 5: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            « C BEGIN
            ? snapshot of 3
            » [snapshot*]
            » Q UPDATE t SET a = 1
            ! 3 took its snapshot
            « C UPDATE 1
            » [id*]
            ! Run(Tx(3)) wrote as [777]: BEGIN; UPDATE t SET a = $1; COMMIT
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 034aa058, digest df497f85, 0 rows; BEGIN; UPDATE t SET a = $1; COMMIT
            « C COMMIT
            « Z I
        "#]],
    );
}

/// What it was told is no decision of the code. Another try, or one in another place, is the
/// database's to decide.
#[test]
fn a_try_for_a_lock_ends_as_it_did() {
    check_code(
        CODE,
        "@ pins refused=1 tries=1-SELECT__pg_try_advisory_lock(1)
         > Q BEGIN
         > Q SELECT pg_try_advisory_lock(1)
         > Q SELECT pg_try_advisory_lock(1)
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ! in Some(Run(Tx(3)))
            ? snapshot of 3
            » Q BEGIN
            » [snapshot*]
            » [refuse*]
            ! 3 took its snapshot
            » Q SELECT pg_try_advisory_lock(1)
            « T a
            « D x
            « C SELECT 1
            « Z T
            ? lock of 3 by statement 2
            » Q SELECT pg_try_advisory_lock(1)
            ! 3 locked by statement 2
            « T a
            « D x
            « C SELECT 1
            « Z T
            » [id*]
            ! Run(Tx(3)) wrote as [777]: BEGIN; SELECT pg_try_advisory_lock($1); SELECT pg_try_advisory_lock($1); COMMIT
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 2d00bf41, digest f447f2af, 2 rows; BEGIN; SELECT pg_try_advisory_lock($1); SELECT pg_try_advisory_lock($1); COMMIT
            « C COMMIT
            « Z I
        "#]],
    );
}
