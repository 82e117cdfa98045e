//! Changed code rolls back to savepoints: what it draws behind that is what was drawn there.

use expect_test::{Expect, expect};

use hindcast_replay::hold::Code;

use super::Session;

/// What is set for a transaction, between what its client sends.
#[track_caller]
fn check(script: &str, expected: Expect) {
    let changed = Code::Changed {
        outside_writes: false,
    };
    let mut session = Session::new(changed, true);
    session.run(script);
    let lines = session.shown.lines();
    let sent = lines.filter(|line| line.starts_with("» ") && !line.starts_with("» [id"));
    let sent: String = sent.map(|line| format!("{line}\n")).collect();
    expected.assert_eq(&sent);
}

/// A transaction within a transaction, whose row is there already.
#[test]
fn a_savepoint_before_anything_was_pinned() {
    check(
        "@ pins now=1000000 drawn=2-0.25 drawn=4-0.5 \
           recorded=BEGIN;SAVEPOINT_a;INSERT_INTO_t_VALUES_(1);ROLLBACK_TO_a;INSERT_INTO_u_VALUES_(1);COMMIT
         @ fail INTO 23505 twice
         > Q BEGIN
         > Q SAVEPOINT a
         > Q INSERT INTO t VALUES (1)
         > Q ROLLBACK TO a
         > Q INSERT INTO u VALUES (1)
         > Q COMMIT",
        expect![[r#"
            » Q BEGIN
            » Q SAVEPOINT a
            » [snapshot 1970-01-01T00:00:01.000000+00    0.25 0.5*]
            » Q INSERT INTO t VALUES (1)
            » Q ROLLBACK TO a
            » [snapshot 1970-01-01T00:00:01.000000+00    0.5]
            » Q INSERT INTO u VALUES (1)
            » Q COMMIT
        "#]],
    );
}

#[test]
fn a_savepoint_before_anything_was_pinned_and_nobody_knows_what_drew() {
    check(
        "@ pins sequence=7
         > Q BEGIN
         > Q SAVEPOINT a
         > Q INSERT INTO t VALUES (1)
         > Q ROLLBACK TO a
         > Q INSERT INTO t VALUES (2)
         > Q COMMIT",
        expect![[r#"
            » Q BEGIN
            » Q SAVEPOINT a
            » [snapshot  ;500:7;*]
            » Q INSERT INTO t VALUES (1)
            » Q ROLLBACK TO a
            » [snapshot  ;500:7;]
            » Q INSERT INTO t VALUES (2)
            » Q COMMIT
        "#]],
    );
}

const RECORDED: &str = "recorded=BEGIN;INSERT_INTO_t_VALUES_(1);SAVEPOINT_a;\
     INSERT_INTO_t_VALUES_(1);ROLLBACK_TO_a;INSERT_INTO_t_VALUES_(1);INSERT_INTO_u_VALUES_(1);\
     COMMIT drawn=1-0.25 drawn=3-0.5 drawn=5-0.75 drawn=6-0.875";

/// The statements of changed code have other numbers.
#[test]
fn a_statement_more_before_and_one_less_behind() {
    check(
        &format!(
            "@ pins {RECORDED}
             > Q BEGIN
             > Q SELECT a FROM t
             > Q INSERT INTO t VALUES (1)
             > Q SAVEPOINT a
             > Q INSERT INTO t VALUES (1)
             > Q ROLLBACK TO a
             > Q INSERT INTO u VALUES (1)
             > Q COMMIT"
        ),
        expect![[r#"
            » Q BEGIN
            » [snapshot     0.25 0.5 0.75 0.875*]
            » Q SELECT a FROM t
            » Q INSERT INTO t VALUES (1)
            » Q SAVEPOINT a
            » Q INSERT INTO t VALUES (1)
            » Q ROLLBACK TO a
            » [snapshot     0.875]
            » Q INSERT INTO u VALUES (1)
            » Q COMMIT
        "#]],
    );
}

/// It stands for the one that it comes in place of, as far as anybody knows.
#[test]
fn another_statement_behind() {
    check(
        &format!(
            "@ pins {RECORDED}
             > Q BEGIN
             > Q INSERT INTO t VALUES (1)
             > Q SAVEPOINT a
             > Q INSERT INTO t VALUES (1)
             > Q ROLLBACK TO a
             > Q INSERT INTO v VALUES (1)
             > Q COMMIT"
        ),
        expect![[r#"
            » Q BEGIN
            » [snapshot     0.25 0.5 0.75 0.875*]
            » Q INSERT INTO t VALUES (1)
            » Q SAVEPOINT a
            » Q INSERT INTO t VALUES (1)
            » Q ROLLBACK TO a
            » [snapshot     0.75 0.875]
            » Q INSERT INTO v VALUES (1)
            » Q COMMIT
        "#]],
    );
}

/// The database puts back what was used since the savepoint, and nothing was dropped.
#[test]
fn what_did_not_roll_back_draws_again_what_it_drew() {
    check(
        "@ pins drawn=1-0.25 drawn=2-0.5 recorded=BEGIN;INSERT_INTO_t_VALUES_(1);INSERT_INTO_u_VALUES_(1);COMMIT
         > Q BEGIN
         > Q INSERT INTO t VALUES (1)
         > Q SAVEPOINT a
         > Q INSERT INTO u VALUES (1)
         > Q ROLLBACK TO a
         > Q INSERT INTO u VALUES (2)
         > Q COMMIT",
        expect![[r#"
            » Q BEGIN
            » [snapshot     0.25 0.5*]
            » Q INSERT INTO t VALUES (1)
            » Q SAVEPOINT a
            » Q INSERT INTO u VALUES (1)
            » Q ROLLBACK TO a
            » Q INSERT INTO u VALUES (2)
            » Q COMMIT
        "#]],
    );
}

/// Here it puts back that nothing is pinned.
#[test]
fn what_did_not_roll_back_and_had_nothing_pinned() {
    let recorded = "drawn=2-0.25 drawn=4-0.5 recorded=BEGIN;SAVEPOINT_a;INSERT_INTO_t_VALUES_(1);\
         SAVEPOINT_a;INSERT_INTO_u_VALUES_(1);COMMIT";
    check(
        &format!(
            "@ pins {recorded}
             > Q BEGIN
             > Q SAVEPOINT a
             > Q INSERT INTO t VALUES (1)
             > Q ROLLBACK TO a
             > Q INSERT INTO t VALUES (2)
             > Q SAVEPOINT a
             > Q INSERT INTO u VALUES (1)
             > Q ROLLBACK TO a
             > Q INSERT INTO u VALUES (2)
             > Q COMMIT"
        ),
        expect![[r#"
            » Q BEGIN
            » Q SAVEPOINT a
            » [snapshot     0.25 0.5*]
            » Q INSERT INTO t VALUES (1)
            » Q ROLLBACK TO a
            » [snapshot     0.25 0.5]
            » Q INSERT INTO t VALUES (2)
            » Q SAVEPOINT a
            » Q INSERT INTO u VALUES (1)
            » Q ROLLBACK TO a
            » [snapshot     0.5]
            » Q INSERT INTO u VALUES (2)
            » Q COMMIT
        "#]],
    );
}

#[test]
fn where_nothing_is_pinned_nothing_is_pinned_again() {
    check(
        "@ pins reads-only
         > Q BEGIN
         > Q SAVEPOINT a
         > Q INSERT INTO t VALUES (1)
         > Q ROLLBACK TO a
         > Q INSERT INTO t VALUES (1)
         > Q COMMIT",
        expect![[r#"
            » Q BEGIN
            » Q SAVEPOINT a
            » Q INSERT INTO t VALUES (1)
            » Q ROLLBACK TO a
            » Q INSERT INTO t VALUES (1)
            » Q COMMIT
        "#]],
    );
}
