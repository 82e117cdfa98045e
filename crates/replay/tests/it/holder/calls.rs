//! The protocol's own function calls.

use expect_test::expect;

use super::check;

#[test]
fn a_call_is_a_statement_of_its_transaction() {
    check(
        "> Q BEGIN {5}
         > F 957
         > Q INSERT INTO t VALUES (1)
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE
            » [snapshot*]
            » F 957
            ! 3 took its snapshot
            « V
            « Z T
            » Q INSERT INTO t VALUES (1)
            « C INSERT 0 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 7452b70a, digest 7011036e, 1 rows
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn a_call_by_itself_gets_a_transaction_whose_commit_is_held() {
    check(
        "@ alone 5
         > F 957
         > Q SELECT a FROM t {5}",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » F 957
            ! 3 took its snapshot
            ! 3 ran
            « V
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 71886095, digest 103ef101, 1 rows
            « Z I
            ! claim of request 5: Run(Tx(3))
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
fn a_statement_of_ours_stays_prepared_where_it_fails() {
    check(
        "@ fail set_config 25001 too late
         > Q BEGIN {5}
         > Q SELECT a FROM t
         > Q ROLLBACK
         > Q BEGIN {5}
         > Q SELECT a FROM t
         > Q ROLLBACK",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE
            » [snapshot*]
            » Q SELECT a FROM t
            « T a
            « E 25P02 the transaction is aborted
            « Z E
            » Q ROLLBACK
            ! in None
            ! Run(Tx(3)) rolled back: too late (25001), shape 7d5f059a, digest 98c1bcf1, 0 rows
            « C ROLLBACK
            « Z I
            « C BEGIN
            « Z T
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE
            » [snapshot]
            » Q SELECT a FROM t
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            » Q ROLLBACK
            ! in None
            ! Run(Tx(3)) rolled back, shape 7d5f059a, digest 9afed0e9, 1 rows
            « C ROLLBACK
            « Z I
        "#]],
    );
}
