//! The simple protocol.

use expect_test::expect;

use super::check;

#[test]
fn what_only_reads_is_held_and_sent_as_it_is() {
    check(
        "@ pins reads-only
         > Q SELECT a FROM t {5}
         > Q SELECT b FROM t",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » Q SELECT a FROM t
            ! in None
            ! 3 took its snapshot
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
            « T a
            « D x
            « C SELECT 1
            « Z I
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » Q SELECT b FROM t
            ! in None
            ! 3 took its snapshot
            ! Run(Tx(3)) committed, shape 586ecd9d, digest a9c69739, 1 rows
            « T a
            « D x
            « C SELECT 1
            « Z I
        "#]],
    );
}

#[test]
fn a_statement_by_itself_gets_a_transaction_whose_commit_is_held() {
    check(
        "@ pins now=1000000 sequence=7
         > Q INSERT INTO t VALUES (nextval('s')) {5}
         > Q INSERT INTO t VALUES (nextval('s')) {5}",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot 1970-01-01T00:00:01.000000+00 ;500:7;*]
            » Q INSERT INTO t VALUES (nextval('s'))
            ! 3 took its snapshot
            ! 3 ran
            « C INSERT 0 1
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 7a63e4f9, digest 31fb68fc, 0 rows
            « Z I
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin]
            » [snapshot 1970-01-01T00:00:01.000000+00 ;500:7;]
            » Q INSERT INTO t VALUES (nextval('s'))
            ! 3 took its snapshot
            ! 3 ran
            « C INSERT 0 1
            ? commit of 3
            » [commit]
            ! in None
            ! Run(Tx(3)) committed, shape 7a63e4f9, digest 31fb68fc, 0 rows
            « Z I
        "#]],
    );
}

#[test]
fn several_statements_in_one_query_are_one_transaction() {
    check(
        "> Q INSERT INTO t VALUES (1); SELECT a FROM t ORDER BY a; UPDATE t SET a = 2 {5}",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » Q INSERT INTO t VALUES (1); SELECT a FROM t ORDER BY a; UPDATE t SET a = 2
            ! 3 took its snapshot
            ! 3 ran
            « C INSERT 0 1
            « T a
            « D x
            « C SELECT 1
            « C UPDATE 1
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape a3a5ef8f, digest 12c4c112, 1 rows
            « Z I
        "#]],
    );
}

#[test]
fn a_transaction_takes_its_snapshot_before_its_first_statement_that_needs_one() {
    check(
        "> Q BEGIN {5}
         > Q SET LOCAL work_mem = '1MB'
         > Q SELECT a FROM t
         > Q UPDATE t SET a = 1
         > Q COMMIT
         @ idle",
        expect![[r#"
            « C BEGIN
            « Z T
            » Q BEGIN
            » Q SET LOCAL work_mem = '1MB'
            « C SET
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [write*]
            » [snapshot*]
            » Q SELECT a FROM t
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            » Q UPDATE t SET a = 1
            « C UPDATE 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape dd5fc25c, digest 6afd497a, 1 rows
            « C COMMIT
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn a_transaction_that_only_reads_takes_its_own_snapshot() {
    check(
        "@ pins reads-only
         > Q BEGIN ISOLATION LEVEL REPEATABLE READ
         > Q SELECT a FROM t {5}
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL REPEATABLE READ
            » Q SELECT a FROM t
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            ! in None
            ! Run(Tx(3)) committed, shape 258eb1b0, digest 641466f1, 1 rows
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn read_committed_stays_read_committed() {
    check(
        "@ pins read-committed
         > Q BEGIN
         > Q UPDATE t SET a = 1
         > Q COMMIT
         > Q UPDATE t SET a = 1",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE
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
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin_rc*]
            » [snapshot]
            » Q UPDATE t SET a = 1
            ! 3 took its snapshot
            ! 3 ran
            « C UPDATE 1
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 2251b0e2, digest 0d8610f8, 0 rows
            « Z I
        "#]],
    );
}

#[test]
fn a_transaction_that_is_rolled_back_did_not_commit() {
    check(
        "> Q BEGIN
         > Q INSERT INTO t VALUES (1)
         > Q ROLLBACK",
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
            » Q ROLLBACK
            ! in None
            ! Run(Tx(3)) rolled back, shape e3d30949, digest 44fd2434, 0 rows
            « C ROLLBACK
            « Z I
        "#]],
    );
}

#[test]
fn commit_of_a_failed_transaction_is_not_held_and_is_a_rollback() {
    check(
        "@ fail INTO 23505 twice
         > Q BEGIN
         > Q INSERT INTO t VALUES (1)
         > Q SELECT a FROM t
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
            « E 23505 twice
            « Z E
            » Q SELECT a FROM t
            « T a
            « E 25P02 the transaction is aborted
            « Z E
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) rolled back: twice (23505), shape 792c1fdf, digest 8eab3482, 0 rows
            « C ROLLBACK
            « Z I
        "#]],
    );
}

#[test]
fn an_error_that_was_rolled_back_to_a_savepoint_is_forgotten() {
    check(
        "@ fail INTO 23505 twice
         > Q BEGIN
         > Q SAVEPOINT a
         > Q INSERT INTO t VALUES (1)
         > Q ROLLBACK TO a
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            » Q BEGIN
            » [writable*]
            » Q SAVEPOINT a
            « C SAVEPOINT
            « Z T
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [snapshot*]
            » Q INSERT INTO t VALUES (1)
            ! 3 took its snapshot
            « E 23505 twice
            « Z E
            » Q ROLLBACK TO a
            « C ROLLBACK
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape ed68a26a, digest 71481199, 0 rows
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn a_statement_by_itself_that_fails_commits_nothing() {
    check(
        "@ fail INTO 23505 twice
         > Q INSERT INTO t VALUES (1) {5}
         > Q INSERT INTO t VALUES (1) {5}",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » Q INSERT INTO t VALUES (1)
            ! 3 took its snapshot
            ! 3 ran
            « E 23505 twice
            » [commit*]
            ! in None
            ! Run(Tx(3)) rolled back: twice (23505), shape 5ab1b73a, digest 1b2f005a, 0 rows
            « Z I
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin]
            » [snapshot]
            » Q INSERT INTO t VALUES (1)
            ! 3 took its snapshot
            ! 3 ran
            « C INSERT 0 1
            ? commit of 3
            » [commit]
            ! in None
            ! Run(Tx(3)) committed, shape 5ab1b73a, digest 31fb68fc, 0 rows
            « Z I
        "#]],
    );
}

#[test]
fn a_commit_of_ours_that_fails_is_told_to_the_client() {
    check(
        "@ fail COMMIT 40001 cannot
         > Q INSERT INTO t VALUES (1) {5}
         @ idle",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
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
            ! Run(Tx(3)) rolled back, shape 5ab1b73a, digest 31fb68fc, 0 rows
            « E 40001 cannot
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn a_prepared_transaction_is_held_like_a_commit() {
    check(
        "> Q BEGIN
         > Q INSERT INTO t VALUES (1)
         > Q PREPARE TRANSACTION 'x'",
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
            ! 3 ran
            ? commit of 3
            » Q PREPARE TRANSACTION 'x'
            ! in None
            ! Run(Tx(3)) committed, shape f60ea6b0, digest 2b1b1c9c, 0 rows
            « C PREPARE TRANSACTION
            « Z I
        "#]],
    );
}

#[test]
fn a_text_with_its_own_begin_and_commit_is_run_a_statement_at_a_time() {
    check(
        "> Q BEGIN; INSERT INTO t VALUES (1); SELECT a FROM t; COMMIT {5}
         @ idle",
        expect![[r#"
            » Q BEGIN
            ! claim of request 5: Run(Tx(3))
            « C BEGIN
            ? snapshot of 3
            » [write*]
            » [snapshot*]
            » Q INSERT INTO t VALUES (1)
            ! 3 took its snapshot
            « C INSERT 0 1
            » Q SELECT a FROM t
            ! 3 ran
            « T a
            « D x
            « C SELECT 1
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 792c1fdf, digest 7489bb6e, 1 rows
            « C COMMIT
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn of_a_text_that_fails_in_the_middle_the_rest_is_not_run() {
    check(
        "@ fail INTO 23505 twice
         > Q BEGIN; INSERT INTO t VALUES (1); SELECT a FROM t; COMMIT {5}
         > Q ROLLBACK",
        expect![[r#"
            » Q BEGIN
            ! claim of request 5: Run(Tx(3))
            « C BEGIN
            ? snapshot of 3
            » [write*]
            » [snapshot*]
            » Q INSERT INTO t VALUES (1)
            ! 3 took its snapshot
            « E 23505 twice
            « Z E
            » Q ROLLBACK
            ! in None
            ! Run(Tx(3)) rolled back: twice (23505), shape e3d30949, digest 2af6a2c1, 0 rows
            « C ROLLBACK
            « Z I
        "#]],
    );
}

#[test]
fn a_text_may_end_in_the_middle_of_a_transaction() {
    check(
        "> Q BEGIN; INSERT INTO t VALUES (1) {5}
         > Q COMMIT; BEGIN
         > Q SELECT a FROM t; COMMIT",
        expect![[r#"
            » Q BEGIN
            ! claim of request 5: Run(Tx(3))
            « C BEGIN
            ? snapshot of 3
            » [write*]
            » [snapshot*]
            » Q INSERT INTO t VALUES (1)
            ! 3 took its snapshot
            « C INSERT 0 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 1739474f, digest ec6f0ca6, 0 rows
            « C COMMIT
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE
            » [snapshot]
            » Q SELECT a FROM t
            ! 3 took its snapshot
            ! 3 ran
            « T a
            « D x
            « C SELECT 1
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 7877900d, digest 641466f1, 1 rows
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn a_statement_that_must_be_alone_is_run_by_itself_in_a_session_that_may_write() {
    check(
        "> Q VACUUM t
         > Q SELECT a FROM t",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [read_write*]
            » Q VACUUM t
            ! in None
            ! 3 took its snapshot
            ! Run(Tx(3)) committed, shape d8288423, digest 29d1fc58, 0 rows
            « C VACUUM
            « Z I
            » [read_only*]
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » Q SELECT a FROM t
            ! 3 took its snapshot
            ! 3 ran
            « T a
            « D x
            « C SELECT 1
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
            « Z I
        "#]],
    );
}

#[test]
fn the_server_sees_no_comment_no_row_lock_and_no_clock() {
    check(
        "> Q SELECT a, now() FROM t FOR UPDATE {5}",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » Q SELECT a, now() FROM t 
            ! 3 took its snapshot
            ! 3 ran
            « T a
            « D x
            « C SELECT 1
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 04a2929d, digest a9c69739, 1 rows
            « Z I
        "#]],
    );
}

#[test]
fn an_advisory_lock_is_held_and_reported() {
    check(
        "> Q BEGIN
         > Q SELECT a FROM t
         > Q SELECT pg_advisory_xact_lock(1)
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE
            » [snapshot*]
            » Q SELECT a FROM t
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? lock of 3 by statement 2
            » Q SELECT pg_advisory_xact_lock(1)
            ! 3 locked by statement 2
            « T a
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape e0664986, digest f447f2af, 2 rows
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn what_belongs_to_no_request_is_sent_as_it_is_and_may_be_refused() {
    check(
        "@ claim outside
         @ fail INTO 25006 read-only
         > Q SELECT a FROM t
         > Q INSERT INTO t VALUES (1)
         > Q BEGIN
         > Q SELECT a FROM t
         > Q INSERT INTO t VALUES (1)
         > Q ROLLBACK",
        expect![[r#"
            ! claim of request none: Outside
            » Q SELECT a FROM t
            « T a
            « D x
            « C SELECT 1
            « Z I
            ! claim of request none: Outside
            » Q INSERT INTO t VALUES (1)
            ! refused: INSERT INTO t VALUES ($1)
            « E 25006 read-only
            « Z I
            « C BEGIN
            « Z T
            ! claim of request none: Outside
            » Q BEGIN
            » Q SELECT a FROM t
            « T a
            « D x
            « C SELECT 1
            « Z T
            » Q INSERT INTO t VALUES (1)
            « C INSERT 0 1
            « Z T
            » Q ROLLBACK
            ! in None
            ! 4 statements of none
            « C ROLLBACK
            « Z I
        "#]],
    );
}

#[test]
fn a_transaction_too_many_is_sent_as_it_is() {
    check(
        "@ claim extra
         > Q INSERT INTO t VALUES (1) {5}
         > Q BEGIN
         > Q INSERT INTO t VALUES (1) {5}
         > Q COMMIT",
        expect![[r#"
            ! claim of request 5: Extra
            » Q INSERT INTO t VALUES (1)
            « C INSERT 0 1
            « Z I
            « C BEGIN
            « Z T
            ! claim of request 5: Extra
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
fn under_read_committed_a_text_is_held_where_it_begins() {
    check(
        "@ pins read-committed looks=2-3,4-4
         > Q BEGIN; SELECT a FROM t {5}
         > Q SELECT a FROM t; SELECT b FROM t
         > Q UPDATE t SET a = 1
         > Q COMMIT",
        expect![[r#"
            » Q BEGIN
            ! claim of request 5: Run(Tx(3))
            « C BEGIN
            ? snapshot of 3
            » [write_rc*]
            » [snapshot*]
            » Q SELECT a FROM t
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            ? look 0 of 3
            » Q SELECT a FROM t; SELECT b FROM t
            ! 3 is through with look 0
            « T a
            « D x
            « C SELECT 1
            « T a
            « D x
            « C SELECT 1
            « Z T
            ? look 1 of 3
            » Q UPDATE t SET a = 1
            ! 3 is through with look 1
            « C UPDATE 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 08cf039c, digest b20be171, 3 rows
            « C COMMIT
            « Z I
        "#]],
    );
}

/// Who was not the first to insert, and looks who was.
#[test]
fn under_read_committed_looks_go_on_behind_a_statement_that_failed() {
    check(
        "@ pins read-committed looks=3-3,5-5,6-6
         @ fail INTO 23505 twice
         > Q BEGIN
         > Q SELECT a FROM t {5}
         > Q SAVEPOINT a
         > Q INSERT INTO t VALUES (1)
         > Q ROLLBACK TO a
         > Q SELECT a FROM t
         > Q SELECT b FROM t
         > Q COMMIT",
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
            » Q SAVEPOINT a
            « C SAVEPOINT
            « Z T
            ? look 0 of 3
            » Q INSERT INTO t VALUES (1)
            ! 3 is through with look 0
            « E 23505 twice
            « Z E
            » Q ROLLBACK TO a
            « C ROLLBACK
            « Z T
            ? look 1 of 3
            » Q SELECT a FROM t
            ! 3 is through with look 1
            « T a
            « D x
            « C SELECT 1
            « Z T
            ? look 2 of 3
            » Q SELECT b FROM t
            ! 3 is through with look 2
            « T a
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape c6ea1b35, digest b43cd232, 3 rows
            « C COMMIT
            « Z I
        "#]],
    );
}
