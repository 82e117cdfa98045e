//! What is not waited for: nobody has to look before a commit, and what is bound does nothing yet.

use expect_test::expect;

use super::check;

#[test]
fn a_commit_that_nobody_has_to_look_before_goes_with_its_statement() {
    check(
        "@ free
         > P - INSERT INTO t VALUES ($1) {5} | B - - 1 | E - | S
         > Q UPDATE t SET a = 1 {5}
         @ fail UPDATE 22003 too much
         > Q UPDATE t SET a = 2 {5}
         @ idle",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » P - INSERT INTO t VALUES ($1)
            » B - - 1
            » E -
            » S
            » [commit*]
            ! 3 took its snapshot
            « 1
            « 2
            « C INSERT 0 1
            ! in None
            ! Run(Tx(3)) committed, shape 5ab1b73a, digest 31fb68fc, 0 rows
            « Z I
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin]
            » [snapshot]
            » Q UPDATE t SET a = 1
            » [commit]
            ! 3 took its snapshot
            « C UPDATE 1
            ! in None
            ! Run(Tx(3)) committed, shape 2251b0e2, digest 0d8610f8, 0 rows
            « Z I
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin]
            » [snapshot]
            » Q UPDATE t SET a = 2
            » [commit]
            ! 3 took its snapshot
            « E 22003 too much
            ! in None
            ! Run(Tx(3)) rolled back: too much (22003), shape 2251b0e2, digest ca928b99, 0 rows
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn a_commit_waits_for_a_procedure_and_for_the_parts_of_a_text() {
    check(
        "@ free
         > Q CALL p() {5}
         > Q BEGIN {5}; UPDATE t SET a = 1; COMMIT; UPDATE t SET a = 2",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » Q CALL p()
            ! 3 took its snapshot
            ! 3 ran
            « C CALL
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 399b5838, digest b06725ac, 0 rows
            « Z I
            » Q BEGIN
            ! claim of request 5: Run(Tx(3))
            « C BEGIN
            ? snapshot of 3
            » [write*]
            » [snapshot]
            » Q UPDATE t SET a = 1
            ! 3 took its snapshot
            ! 3 ran
            « C UPDATE 1
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 034aa058, digest df497f85, 0 rows
            ! claim of request 5: Run(Tx(3))
            « C COMMIT
            ? snapshot of 3
            » [begin]
            » [snapshot]
            » Q UPDATE t SET a = 2
            ! 3 took its snapshot
            ! 3 ran
            « C UPDATE 1
            ? commit of 3
            » [commit]
            ! in None
            ! Run(Tx(3)) committed, shape 2251b0e2, digest 0d8610f8, 0 rows
            « Z I
        "#]],
    );
}

/// What is only bound waits as well, and nothing is waited for that nobody waits for.
#[test]
fn what_is_bound_is_sent_when_its_statement_may_insert() {
    check(
        "@ pins inserts=0
         @ hold
         > P s INSERT INTO t VALUES ($1) {5} | S
         > B - s 1 | D P - | E - | S
         @ permit
         @ permit
         @ permit",
        expect![[r#"
            » P s INSERT INTO t VALUES ($1)
            » S
            « 1
            « Z I
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            ? insert of 3 by statement 0
            » B - s 1
            » D P -
            » E -
            » S
            ! 3 took its snapshot
            « 2
            « n
            ! 3 locked by statement 0
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

/// What changes rows waits for those that found a key taken before it. It tells when it is through,
/// and so does what finds a key taken.
#[test]
fn who_found_a_key_taken_comes_before_who_changes_rows() {
    check(
        "@ pins read-committed looks=2-2 losing=2 changes=5
         @ fail INTO 23505 duplicate
         > Q BEGIN
         > Q SAVEPOINT a
         > Q INSERT INTO t VALUES (1)
         > Q ROLLBACK TO a
         > Q SELECT a FROM t
         > Q UPDATE t SET a = 2
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
            ! 3 took its snapshot
            » [snapshot*]
            ? look 0 of 3
            » Q INSERT INTO t VALUES (1)
            ! 3 took its snapshot
            ! 3 is through with look 0
            ! 3 locked by statement 2
            « E 23505 duplicate
            « Z E
            » Q ROLLBACK TO a
            « C ROLLBACK
            « Z T
            » [snapshot]
            » Q SELECT a FROM t
            « T a
            « D x
            « C SELECT 1
            « Z T
            ? change of 3 by statement 5
            » Q UPDATE t SET a = 2
            ! 3 locked by statement 5
            « C UPDATE 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 6fd544db, digest 7b7dbbae, 1 rows
            « C COMMIT
            « Z I
        "#]],
    );
}
