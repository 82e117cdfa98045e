//! Answers that are kept back until their request may hear of them.

use expect_test::expect;

use super::check;

#[test]
fn an_answer_is_given_as_a_whole_and_those_behind_it_when_it_is_written() {
    check(
        "@ together
         @ hold
         > Q SELECT a FROM t {5}
         @ permit
         @ permit
         @ idle
         > Q SELECT b FROM t {5}
         @ permit
         @ permit
         @ idle
         @ permit
         @ permit",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » Q SELECT a FROM t
            ! 3 took its snapshot
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
            ? answer of 3
            idle: false
            « T a
            « D x
            « C SELECT 1
            « Z I
            ? given answer of 3
            ! 3 was given its answer
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            idle: false
            » [begin]
            » [snapshot]
            » Q SELECT b FROM t
            ! 3 took its snapshot
            ! 3 ran
            ? commit of 3
            » [commit]
            ! in None
            ! Run(Tx(3)) committed, shape 586ecd9d, digest a9c69739, 1 rows
            ? answer of 3
        "#]],
    );
}

#[test]
fn of_a_transaction_the_commit_is_kept() {
    check(
        "@ together
         > Q BEGIN {5}
         > Q UPDATE t SET a = 1
         > P - SELECT a FROM t | B - - | E - | S
         > Q COMMIT",
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
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape b1da1c3d, digest 18d9e887, 1 rows
            ? answer of 3
            « C COMMIT
            « Z I
            ? given answer of 3
            ! 3 was given its answer
        "#]],
    );
}

#[test]
fn a_client_that_is_to_say_more_hears_at_once() {
    check(
        "@ together
         > Q COPY t FROM STDIN {5}
         > d 1~ | c
         @ suspend
         > P - SELECT a FROM t {5} | B - - | E - | H
         > S",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » Q COPY t FROM STDIN
            ! 3 took its snapshot
            « G
            » d 1~
            » c
            » H
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 5e2819c8, digest 0e23a4ff, 0 rows
            ? answer of 3
            « C COPY 1
            « Z I
            ? given answer of 3
            ! 3 was given its answer
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin]
            » [snapshot]
            » P - SELECT a FROM t
            » B - -
            » E -
            » H
            ! 3 took its snapshot
            ! 3 was given its answer
            « 1
            « 2
            « D x
            « C SELECT 1
            » S
            ! 3 ran
            ? commit of 3
            » [commit]
            ! in None
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
            ? answer of 3
            « Z I
            ? given answer of 3
            ! 3 was given its answer
        "#]],
    );
}

#[test]
fn a_client_that_is_gone_keeps_nothing_from_others() {
    check(
        "@ together
         @ hold
         > Q SELECT a FROM t {5}
         @ permit
         @ permit
         @ gone",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » Q SELECT a FROM t
            ! 3 took its snapshot
            ! 3 ran
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
            ? answer of 3
            ! 3 was given its answer
            ! in None
        "#]],
    );
}
