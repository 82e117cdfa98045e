//! Sessions as scripts: what we do between the client's transactions, and what is not ours.
//! See `support::script` for how they are written.

use expect_test::expect;

use crate::support::script::{check, check_with};

#[test]
fn a_column_called_like_ours_is_the_clients() {
    check(
        "> Q SELECT 1 AS hindcast_ask
         < T hindcast_ask
         < D 1
         < C SELECT 1
         < ask 3
         < Z I
         > Q BEGIN; SELECT 2 AS hindcast_ask; COMMIT
         < C BEGIN
         < ask 1
         < T hindcast_ask
         < D 2
         < C SELECT 1
         < ask 2
         < C COMMIT
         < Z I",
        expect![[r#"
            » Q SELECT 1 AS hindcast_ask~;<snapshot xid>
            « T hindcast_ask
            ! began at 7
            « D 1
            « C SELECT 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 1
                SELECT $1 AS hindcast_ask
                sent: Q SELECT 1 AS hindcast_ask
            » Q BEGIN; <snapshot>; SELECT 2 AS hindcast_ask; <xid>; COMMIT
            « C BEGIN
            « T hindcast_ask
            ! began at 15
            « D 2
            « C SELECT 1
            « C COMMIT
            « Z I
            ! Committed block, snapshot 100:105:[102], xid 777, rows 1
                BEGIN
                SELECT $1 AS hindcast_ask
                COMMIT
                sent: Q BEGIN; SELECT 2 AS hindcast_ask; COMMIT
        "#]],
    );
}

#[test]
fn positions_in_another_text_stay_as_they_are() {
    check(
        "> Q EXECUTE q
         < E 22012 40 division by zero
         < Z I
         > Q EXECUTE
         < E 42601 9 syntax error at or near \";\"
         < Z I",
        expect![[r#"
            » Q EXECUTE q~;<snapshot xid>
            « E 22012 40 division by zero
            ! began at 7
            « Z I
            ! Aborted, xid unknown, rows 0
                EXECUTE _
                sent: Q EXECUTE q
                was answered: E 22012 40 division by zero | Z I
            » Q EXECUTE~;<snapshot xid>
            « E 42601 8 syntax error at end of input
            ! began at 10
            « Z I
            ! Aborted, xid unknown, rows 0
                EXECUTE
                sent: Q EXECUTE
                was answered: E 42601 8 syntax error at end of input | Z I
        "#]],
    );
}

#[test]
fn a_checkpoint_leaves_a_block_as_it_was() {
    check(
        "> Q BEGIN
         < C BEGIN
         < Z T
         > Q CHECKPOINT
         < C CHECKPOINT
         < Z T
         > Q SET TRANSACTION ISOLATION LEVEL SERIALIZABLE
         < C SET
         < Z T
         > Q COMMIT
         < C COMMIT
         < Z I",
        expect![[r#"
            » Q BEGIN
            « C BEGIN
            « Z T
            » Q CHECKPOINT
            « C CHECKPOINT
            « Z T
            » Q SET TRANSACTION ISOLATION LEVEL SERIALIZABLE
            « C SET
            « Z T
            » Q COMMIT
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn a_session_is_raised_before_its_first_statement_and_when_it_goes_back_to_defaults() {
    check_with(
        |options| options.raise_isolation = true,
        "@ own-status I
         > Q SELECT 1
         < T a
         < D 1
         < C SELECT 1
         < ask 3
         < Z I
         > Q SET default_transaction_isolation TO 'read committed'
         < C SET
         < Z I
         > Q RESET search_path
         < C RESET
         < Z I
         > Q BEGIN
         < C BEGIN
         < Z T
         > Q RESET ALL
         < C RESET
         < Z T
         > Q COMMIT
         < C COMMIT
         < Z I
         > Q DISCARD ALL
         < C DISCARD ALL
         < Z I
         > P - SELECT 1
         > B - -
         > E -
         > S
         < 1
         < 2
         < D 1
         < C SELECT 1
         < Z I
         > Q set session default_transaction_isolation = default
         < C SET
         < Z I
         > Q SHOW default_transaction_isolation
         < T default_transaction_isolation
         < D repeatable~read
         < C SHOW
         < Z I",
        expect![[r#"
            » P ours <raise>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q SELECT 1~;<snapshot xid>
            « T a
            ! began at 7
            « D 1
            « C SELECT 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 1
                SELECT $1
                sent: Q SELECT 1
            » Q SET default_transaction_isolation TO 'read committed'
            « C SET
            ! began at 21
            « Z I
            ! Committed passive, rows 0
                SET default_transaction_isolation TO $1
                sent: Q SET default_transaction_isolation TO 'read committed'
            » Q RESET search_path
            « C RESET
            ! began at 24
            « Z I
            ! Committed passive, rows 0
                RESET search_path
                sent: Q RESET search_path
            » Q BEGIN
            « C BEGIN
            « Z T
            » Q RESET ALL
            « C RESET
            ! began at 27
            « Z T
            » Q COMMIT
            « C COMMIT
            « Z I
            ! Committed block passive, rows 0
                BEGIN
                RESET ALL
                COMMIT
                sent: Q BEGIN | Q RESET ALL | Q COMMIT
            » P ours <raise>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » P ours DISCARD TEMP
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » P ours <xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q DISCARD ALL
            ! own xid 777
            « C DISCARD ALL
            ! began at 36
            « Z I
            ! Committed passive, rows 0
                DISCARD ALL
                sent: Q DISCARD ALL
            » P ours <raise>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » P - SELECT 1
            » B - -
            » E -
            » P ours <snapshot xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            « 1
            « 2
            « D 1
            ! began at 59
            « C SELECT 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 1
                SELECT $1
                sent: P - SELECT 1 | B - - | E - | S
            » Q set session default_transaction_isolation = default
            « C SET
            ! began at 78
            « Z I
            ! Committed passive, rows 0
                set session default_transaction_isolation = default
                sent: Q set session default_transaction_isolation = default
            » P ours <raise>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q SHOW default_transaction_isolation
            « T default_transaction_isolation
            « D repeatable read
            « C SHOW
            « Z I
        "#]],
    );
}

#[test]
fn a_raise_that_failed_is_tried_again() {
    check_with(
        |options| options.raise_isolation = true,
        "@ own-status I
         > Q SELECT 1
         < ours E 57014 canceled
         < Z I
         < T a
         < D 1
         < C SELECT 1
         < ask 3
         < Z I
         > Q SELECT 2",
        expect![[r#"
            » P ours <raise>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q SELECT 1~;<snapshot xid>
            « T a
            ! began at 7
            « D 1
            « C SELECT 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 1
                SELECT $1
                sent: Q SELECT 1
            » C S ours
            » P ours <raise>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q SELECT 2~;<snapshot xid>
        "#]],
    );
}

#[test]
fn temporary_tables_are_dropped_before_the_client_leaves() {
    check(
        "@ own-status I
         > Q CREATE TEMP TABLE t (a int)
         < C CREATE TABLE
         < ask 3
         < Z I
         > X
         < ours
         @ client-gone
         @ server-gone",
        expect![[r#"
            » Q CREATE TEMP TABLE t (a int)~;<snapshot xid>
            ! began at 7
            « C CREATE TABLE
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 0
                CREATE TEMP TABLE t (a int)
                sent: Q CREATE TEMP TABLE t (a int)
            » P ours DISCARD TEMP
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » P ours <xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » X
            ! own xid 777
        "#]],
    );
}

#[test]
fn a_block_that_a_client_leaves_open_is_rolled_back_first() {
    check(
        "> Q BEGIN
         < C BEGIN
         < Z T
         > Q CREATE TEMP TABLE t (a int)
         < C CREATE TABLE
         < Z T
         @ own-status I
         @ client-gone
         < ours
         @ server-gone",
        expect![[r#"
            » Q BEGIN
            « C BEGIN
            « Z T
            » P ours <snapshot>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q CREATE TEMP TABLE t (a int)
            « C CREATE TABLE
            ! began at 7
            « Z T
            » P ours ROLLBACK
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » P ours DISCARD TEMP
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » P ours <xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            ! own xid 777
            ! Aborted block, snapshot 100:105:[102], xid unknown, rows 0
                BEGIN
                CREATE TEMP TABLE t (a int)
                sent: Q BEGIN | Q CREATE TEMP TABLE t (a int)
                was answered: C BEGIN | Z T | C CREATE TABLE | Z T
        "#]],
    );
}

#[test]
fn a_backend_that_dies_drops_its_temporary_tables_unasked() {
    check(
        "> Q SELECT f()
         < T f
         < D 1
         < C SELECT 1
         < ask 3
         < Z I
         @ server-gone",
        expect![[r#"
            » Q SELECT f()~;<snapshot xid>
            « T f
            ! began at 7
            « D 1
            « C SELECT 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 1
                SELECT f()
                sent: Q SELECT f()
            ! unasked: end of session from 14 to 15, ids None
        "#]],
    );
}

#[test]
fn a_session_that_only_shows_leaves_nothing() {
    check(
        "> Q SHOW search_path
         < T search_path
         < D public
         < C SHOW
         < Z I
         > X
         @ server-gone",
        expect![[r#"
            » Q SHOW search_path
            « T search_path
            « D public
            « C SHOW
            « Z I
            » X
        "#]],
    );
}

#[test]
fn a_batch_without_its_sync_is_left_to_the_server() {
    check(
        "> P - INSERT INTO t VALUES (1)
         > B - -
         > E -
         > H
         < 1
         < 2
         < C INSERT 0 1
         > X
         @ server-gone",
        expect![[r#"
            » P - INSERT INTO t VALUES (1)
            » B - -
            » E -
            » H
            « 1
            « 2
            « C INSERT 0 1
            ! began at 9
            » X
            ! Aborted, xid unknown, rows 0
                INSERT INTO t VALUES ($1)
                sent: P - INSERT INTO t VALUES (1) | B - - | E - | H | X
                was answered: 1 | 2 | C INSERT 0 1
            ! unasked: end of session from 13 to 15, ids None
        "#]],
    );
}

#[test]
fn discard_temp_is_asked_for_its_id() {
    check(
        "> Q DISCARD TEMP
         < C DISCARD TEMP
         < ask 2
         < Z I",
        expect![[r#"
            » Q DISCARD TEMP~;<xid>
            ! began at 7
            « C DISCARD TEMP
            « Z I
            ! Committed passive, xid 777, rows 0
                DISCARD TEMP
                sent: Q DISCARD TEMP
        "#]],
    );
}

#[test]
fn a_procedure_that_commits_inside_is_found_by_its_transactions() {
    check(
        "@ own-status I
         @ standing 100 3/7, 100 3/9, 100 3/10, 103 3/14
         > P - CALL p()
         > B - -
         > E -
         > S
         < 1
         < 2
         < C CALL
         < Z I
         < ours
         > Q CALL twice()
         < C CALL
         < Z I
         < ours",
        expect![[r#"
            » P ours <standing>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » P - CALL p()
            » B - -
            » E -
            » P ours <snapshot xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » P ours <standing>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            « 1
            « 2
            « C CALL
            ! began at 9
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 0
                CALL p()
                sent: P - CALL p() | B - - | E - | S
            » P ours <standing>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q CALL twice()
            » P ours <standing>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            « C CALL
            ! began at 35
            « Z I
            ! Committed, xid unknown, rows 0
                CALL twice()
                sent: Q CALL twice()
            ! unasked: CALL twice() from 35 to 44, ids Some("100..103"), commits inside
        "#]],
    );
}

#[test]
fn a_question_behind_that_fails_leaves_the_time_only() {
    check(
        "@ own-status I
         @ standing 100 3/7, 100 3/9
         > Q VACUUM
         < C VACUUM
         < Z I
         < ours E 57014 canceled
         < Z I",
        expect![[r#"
            » P ours <standing>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q VACUUM
            » P ours <standing>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            « C VACUUM
            ! began at 7
            « Z I
            ! Committed, xid unknown, rows 0
                VACUUM
                sent: Q VACUUM
            ! unasked: VACUUM from 7 to 16, ids None
        "#]],
    );
}

#[test]
fn a_commit_that_empties_temporary_tables_may_take_an_id() {
    check(
        "> Q SELECT 1
         < T a
         < D 1
         < C SELECT 1
         < ask 3
         < Z I
         > Q CREATE TEMP TABLE own (a int) ON COMMIT DELETE ROWS
         < C CREATE TABLE
         < ask 3
         < Z I
         @ xid NULL
         > Q SELECT a FROM own
         < T a
         < C SELECT 0
         < ask 3
         < Z I
         > Q SHOW work_mem
         < T work_mem
         < D 4MB
         < C SHOW
         < Z I",
        expect![[r#"
            » Q SELECT 1~;<snapshot xid>
            « T a
            ! began at 7
            « D 1
            « C SELECT 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 1
                SELECT $1
                sent: Q SELECT 1
            » Q CREATE TEMP TABLE own (a int) ON COMMIT DELETE ROWS~;<snapshot xid>
            ! began at 15
            « C CREATE TABLE
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 0
                CREATE TEMP TABLE own (a int) ON COMMIT DELETE ROWS
                sent: Q CREATE TEMP TABLE own (a int) ON COMMIT DELETE ROWS
            » Q SELECT a FROM own~;<snapshot xid>
            « T a
            ! began at 21
            « C SELECT 0
            « Z I
            ! emptied on commit
            ! Committed, snapshot 100:105:[102], rows 0
                SELECT a FROM own
                sent: Q SELECT a FROM own
            » Q SHOW work_mem
            « T work_mem
            « D 4MB
            « C SHOW
            « Z I
        "#]],
    );
}

#[test]
fn the_end_of_the_session_is_told_even_where_it_answers_ours() {
    check_with(
        |options| options.raise_isolation = true,
        "> Q SELECT 1
         < ours E 57P01 terminating connection
         @ server-gone",
        expect![[r#"
            » P ours <raise>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q SELECT 1~;<snapshot xid>
            « E 57P01 terminating connection
            ! began at 7
            ! unasked: SELECT $1 from 7 to 9, ids None
            ! uncertain: Unknown, xid unknown, rows 0
                SELECT $1
                sent: Q SELECT 1
            ! unasked: end of session from 8 to 9, ids None
        "#]],
    );
    check(
        "> Q BEGIN
         < C BEGIN
         < Z T
         > Q SELECT 1
         < ours E 57P01 terminating connection
         @ server-gone",
        expect![[r#"
            » Q BEGIN
            « C BEGIN
            « Z T
            » P ours <snapshot>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q SELECT 1
            « E 57P01 terminating connection
            ! began at 7
            ! Aborted block, xid unknown, rows 0
                BEGIN
                SELECT $1
                sent: Q BEGIN | Q SELECT 1
                was answered: C BEGIN | Z T | E 57P01 terminating connection
            ! unasked: end of session from 11 to 12, ids None
        "#]],
    );
}

#[test]
fn what_a_cancel_left_of_ours_is_closed_before_its_name_is_used_again() {
    check(
        "> Q BEGIN
         < C BEGIN
         < Z T
         > Q SELECT 1
         < ours E 57014 canceling statement due to user request
         < Z E
         < E 25P02 current transaction is aborted
         < Z E
         > Q ROLLBACK
         < C ROLLBACK
         < Z I
         > Q BEGIN
         < C BEGIN
         < Z T
         > Q SELECT 1
         < T a
         < D 1
         < C SELECT 1
         < Z T",
        expect![[r#"
            » Q BEGIN
            « C BEGIN
            « Z T
            » P ours <snapshot>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q SELECT 1
            « E 25P02 current transaction is aborted
            ! began at 7
            « Z E
            » Q ROLLBACK
            « C ROLLBACK
            « Z I
            ! Aborted block, xid unknown, rows 0
                BEGIN
                SELECT $1
                ROLLBACK
                sent: Q BEGIN | Q SELECT 1 | Q ROLLBACK
                was answered: C BEGIN | Z T | E 25P02 current transaction is aborted | Z E | C ROLLBACK | Z I
            » Q BEGIN
            « C BEGIN
            « Z T
            » C S ours
            » P ours <snapshot>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q SELECT 1
            « T a
            ! began at 18
            « D 1
            « C SELECT 1
            « Z T
        "#]],
    );
}
