//! Sessions as scripts: transactions and what is asked within them.
//! See `support::script` for how they are written.

use expect_test::expect;
use hindcast_wire::Direction;

use crate::support::script::{Session, check, check_with};

#[test]
fn startup_passes_through_and_the_cancel_key_is_told() {
    let mut session = Session::new(|options| options.strip_channel_binding = true);
    session.run(
        "> startup user=u database=d application_name=x
         < SASL SCRAM-SHA-256-PLUS SCRAM-SHA-256
         > p n,,n=,r=abc
         < R
         < S server_version 18.0
         < K 0123456789abcdef0123456789abcdef
         < Z I",
    );
    expect![[r#"
        » startup user=u database=d application_name=x
        « R SCRAM-SHA-256
        » p n,,n=,r=abc
        « R
        « S server_version 18.0
        « K
        « Z I
        ! ready: process 7, key b"0123456789abcdef0123456789abcdef", 18.0
    "#]]
    .assert_eq(&session.shown);
    assert!(session.observer.is_idle());
}

#[test]
fn a_replication_connection_passes_through() {
    let mut session = Session::new(|_| ());
    session.run("> startup user=u replication=database");
    expect![[r#"
        » startup user=u replication=database
        ! unobserved: it is a replication connection
    "#]]
    .assert_eq(&session.shown);
    assert!(
        session.observer.is_raw(Direction::FromClient)
            && session.observer.is_raw(Direction::FromServer)
    );
}

#[test]
fn an_old_server_is_not_asked() {
    let mut session = Session::new(|_| ());
    session.run(
        "> startup user=u
         < R
         < S server_version 12.18
         < Z I
         > Q SELECT 1",
    );
    expect![[r#"
        » startup user=u
        « R
        « S server_version 12.18
        « Z I
        ! ready: process 0, key b"", 12.18
        ! unobserved: the server is older than Postgres 13, or does not say what it is
        » Q SELECT 1
    "#]]
    .assert_eq(&session.shown);
}

#[test]
fn an_autocommitted_query_gets_ours_behind_it() {
    check(
        "> Q INSERT INTO t VALUES (1); -- done
         < C INSERT 0 1
         < ask 3
         < Z I",
        expect![[r#"
            » Q INSERT INTO t VALUES (1); -- done~;<snapshot xid>
            ! began at 7
            « C INSERT 0 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 0
                INSERT INTO t VALUES ($1)
                sent: Q INSERT INTO t VALUES (1); -- done
        "#]],
    );
}

#[test]
fn a_commit_that_fails_behind_a_statement_is_the_statements_failure() {
    check(
        "> Q INSERT INTO t VALUES (1)
         < C INSERT 0 1
         < T hindcast_ask
         < D 100:105: repeatable~read \x0002ad22dce66000 off 777
         < N 00000 late
         < E 23505 duplicate key
         < Z I",
        expect![[r#"
            » Q INSERT INTO t VALUES (1)~;<snapshot xid>
            ! began at 7
            « N 00000 late
            « E 23505 duplicate key
            « Z I
            ! Aborted, snapshot 100:105:[], xid 777, rows 0
                INSERT INTO t VALUES ($1)
                sent: Q INSERT INTO t VALUES (1)
                was answered: N 00000 late | E 23505 duplicate key | Z I
        "#]],
    );
}

#[test]
fn a_block_is_asked_for_its_snapshot_at_its_first_statement_and_for_its_id_at_commit() {
    check(
        "> Q BEGIN
         < C BEGIN
         < Z T
         > Q SET LOCAL x = 1
         < C SET
         < Z T
         > Q SELECT a FROM t
         < T a
         < D 1
         < D 2
         < C SELECT 2
         < Z T
         > Q UPDATE t SET a = 2
         < C UPDATE 2
         < Z T
         > Q COMMIT
         < C COMMIT
         < Z I",
        expect![[r#"
            » Q BEGIN
            « C BEGIN
            « Z T
            » Q SET LOCAL x = 1
            « C SET
            ! began at 7
            « Z T
            » P ours <snapshot>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q SELECT a FROM t
            « T a
            « D 1
            « D 2
            « C SELECT 2
            « Z T
            » Q UPDATE t SET a = 2
            « C UPDATE 2
            « Z T
            » P ours <xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q COMMIT
            « C COMMIT
            « Z I
            ! Committed block, snapshot 100:105:[102], xid 777, rows 2
                BEGIN
                SET LOCAL x = $1
                SELECT a FROM t
                UPDATE t SET a = $1
                COMMIT
                sent: Q BEGIN | Q SET LOCAL x = 1 | Q SELECT a FROM t | Q UPDATE t SET a = 2 | Q COMMIT
        "#]],
    );
}

#[test]
fn a_read_only_block_is_not_asked_for_an_id() {
    check(
        "@ read-only on
         > Q BEGIN
         < C BEGIN
         < Z T
         > Q SELECT 1
         < T a
         < D 1
         < C SELECT 1
         < Z T
         > Q COMMIT
         < C COMMIT
         < Z I",
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
            « T a
            ! began at 7
            « D 1
            « C SELECT 1
            « Z T
            » Q COMMIT
            « C COMMIT
            « Z I
            ! Committed block, snapshot 100:105:[102], rows 1
                BEGIN
                SELECT $1
                COMMIT
                sent: Q BEGIN | Q SELECT 1 | Q COMMIT
        "#]],
    );
}

#[test]
fn an_empty_block_is_not_told() {
    check(
        "> Q BEGIN
         < C BEGIN
         < Z T
         > Q SHOW work_mem
         < T work_mem
         < D 4MB
         < C SHOW
         < Z T
         > Q COMMIT
         < C COMMIT
         < Z I",
        expect![[r#"
            » Q BEGIN
            « C BEGIN
            « Z T
            » Q SHOW work_mem
            « T work_mem
            « D 4MB
            « C SHOW
            « Z T
            » Q COMMIT
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn settings_are_told_as_passive_ghosts() {
    check(
        "> Q SET search_path = x
         < C SET
         < Z I
         > Q SHOW search_path
         < T search_path
         < D x
         < C SHOW
         < Z I",
        expect![[r#"
            » Q SET search_path = x
            « C SET
            ! began at 7
            « Z I
            ! Committed passive, rows 0
                SET search_path = x
                sent: Q SET search_path = x
            » Q SHOW search_path
            « T search_path
            « D x
            « C SHOW
            « Z I
        "#]],
    );
}

#[test]
fn an_aborted_block_keeps_what_it_was_answered() {
    check(
        "> Q BEGIN
         < C BEGIN
         < Z T
         > Q SELECT a FROM t
         < T a
         < D 1
         < C SELECT 1
         < Z T
         > Q INSERT INTO t VALUES (1)
         < E 23505 duplicate key
         < Z E
         > Q ROLLBACK
         < C ROLLBACK
         < Z I",
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
            » Q SELECT a FROM t
            « T a
            ! began at 7
            « D 1
            « C SELECT 1
            « Z T
            » Q INSERT INTO t VALUES (1)
            « E 23505 duplicate key
            « Z E
            » Q ROLLBACK
            « C ROLLBACK
            « Z I
            ! Aborted block, snapshot 100:105:[102], xid unknown, rows 1
                BEGIN
                SELECT a FROM t
                INSERT INTO t VALUES ($1)
                ROLLBACK
                sent: Q BEGIN | Q SELECT a FROM t | Q INSERT INTO t VALUES (1) | Q ROLLBACK
                was answered: C BEGIN | Z T | T a | D 1 | C SELECT 1 | Z T | E 23505 duplicate key | Z E | C ROLLBACK | Z I
        "#]],
    );
}

#[test]
fn begin_and_first_statement_in_one_batch() {
    check(
        "> P - BEGIN
         > B - -
         > E -
         > P - SELECT a FROM t
         > B - -
         > D P -
         > E -
         > S
         < 1
         < 2
         < C BEGIN
         < 1
         < 2
         < T a
         < D 1
         < C SELECT 1
         < Z T
         > P - COMMIT
         > B - -
         > E -
         > S
         < 1
         < 2
         < C COMMIT
         < Z I",
        expect![[r#"
            » P - BEGIN
            » B - -
            » E -
            » P ours <snapshot>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » P - SELECT a FROM t
            » B - -
            » D P -
            » E -
            » S
            « 1
            « 2
            « C BEGIN
            « 1
            « 2
            « T a
            « D 1
            ! began at 9
            « C SELECT 1
            « Z T
            » P ours <xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » P - COMMIT
            » B - -
            » E -
            » S
            « 1
            « 2
            « C COMMIT
            « Z I
            ! Committed block, snapshot 100:105:[102], xid 777, rows 1
                BEGIN
                SELECT a FROM t
                COMMIT
                sent: P - BEGIN | B - - | E - | P - SELECT a FROM t | B - - | D P - | E - | S | P - COMMIT | B - - | E - | S
        "#]],
    );
}

#[test]
fn a_pipelined_batch_gets_ours_before_its_sync() {
    check(
        "> P s INSERT INTO t VALUES ($1)
         > B - s 1
         > E -
         > B - s 2
         > E -
         > S
         > B - s 3
         > E -
         > S
         < 1
         < 2
         < C INSERT 0 1
         < 2
         < C INSERT 0 1
         < Z I
         @ xid 778
         < 2
         < C INSERT 0 1
         < Z I
         > B - s 4
         > E -
         > S
         < 2
         < C INSERT 0 1
         < Z I",
        expect![[r#"
            » P s INSERT INTO t VALUES ($1)
            » B - s 1
            » E -
            » B - s 2
            » E -
            » P ours <snapshot xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » B - s 3
            » E -
            » P ours <snapshot xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            « 1
            « 2
            « C INSERT 0 1
            ! began at 9
            « 2
            « C INSERT 0 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 0
                INSERT INTO t VALUES ($1)
                INSERT INTO t VALUES ($1)
                sent: P s INSERT INTO t VALUES ($1) | B - s 1 | E - | B - s 2 | E - | S
            « 2
            « C INSERT 0 1
            ! began at 14
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 0
                INSERT INTO t VALUES ($1)
                sent: C S s | P s INSERT INTO t VALUES ($1) | D S s | S | B - s 3 | E - | S
            » B - s 4
            » E -
            » P ours <snapshot xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            « 2
            « C INSERT 0 1
            ! began at 38
            « Z I
            ! Committed, snapshot 100:105:[102], xid 778, rows 0
                INSERT INTO t VALUES ($1)
                sent: C S s | P s INSERT INTO t VALUES ($1) | D S s | S | B - s 4 | E - | S
        "#]],
    );
}

#[test]
fn an_error_in_a_pipeline_discards_ours_too() {
    check(
        "> P - INSERT INTO t VALUES (1)
         > B - -
         > E -
         > P - SELECT nope
         > B - -
         > E -
         > S
         > P - SELECT 2
         > B - -
         > E -
         > S
         < 1
         < 2
         < C INSERT 0 1
         < E 42703 8 no such column
         < Z I
         < 1
         < 2
         < D 2
         < C SELECT 1
         < Z I",
        expect![[r#"
            » P - INSERT INTO t VALUES (1)
            » B - -
            » E -
            » P - SELECT nope
            » B - -
            » E -
            » P ours <snapshot xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » P - SELECT 2
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
            « C INSERT 0 1
            ! began at 9
            « E 42703 8 no such column
            « Z I
            ! Aborted, xid unknown, rows 0
                INSERT INTO t VALUES ($1)
                SELECT nope
                sent: P - INSERT INTO t VALUES (1) | B - - | E - | P - SELECT nope | B - - | E - | S
                was answered: 1 | 2 | C INSERT 0 1 | E 42703 8 no such column | Z I
            « 1
            « 2
            « D 2
            ! began at 16
            « C SELECT 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 1
                SELECT $1
                sent: P - SELECT 2 | B - - | E - | S
        "#]],
    );
}

#[test]
fn preparing_alone_is_no_transaction() {
    check(
        "> P s SELECT a FROM t
         > D S s
         > S
         < 1
         < t
         < T a
         < Z I",
        expect![[r#"
            » P s SELECT a FROM t
            » D S s
            » S
            « 1
            « t
            « T a
            « Z I
        "#]],
    );
}

#[test]
fn ours_failing_inside_a_batch_is_told_to_the_client() {
    check(
        "> P - INSERT INTO t VALUES (1)
         > B - -
         > E -
         < 1
         < 2
         < C INSERT 0 1
         > S
         < ours E 57014 canceled
         < Z I",
        expect![[r#"
            » P - INSERT INTO t VALUES (1)
            » B - -
            » E -
            « 1
            « 2
            « C INSERT 0 1
            ! began at 9
            » P ours <snapshot xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            « E 57014 canceled
            « Z I
            ! Aborted, xid unknown, rows 0
                INSERT INTO t VALUES ($1)
                sent: P - INSERT INTO t VALUES (1) | B - - | E - | S
                was answered: 1 | 2 | C INSERT 0 1 | E 57014 canceled | Z I
        "#]],
    );
}

#[test]
fn many_transactions_in_one_text() {
    check(
        "> Q INSERT INTO t VALUES (1); BEGIN; INSERT INTO t VALUES (2); COMMIT; SELECT 3; ROLLBACK; INSERT INTO t VALUES (4)
         < C INSERT 0 1
         < C BEGIN
         < ask 1
         < C INSERT 0 1
         < ask 2
         < C COMMIT
         @ xid NULL
         < T a
         < D 3
         < C SELECT 1
         < C ROLLBACK
         @ xid 779
         < C INSERT 0 1
         < ask 3
         < Z I",
        expect![[r#"
            » Q INSERT INTO t VALUES (1); BEGIN; <snapshot>; INSERT INTO t VALUES (2); <xid>; COMMIT; SELECT 3; ROLLBACK; INSERT INTO t VALUES (4)~;<snapshot xid>
            « C INSERT 0 1
            ! began at 7
            « C BEGIN
            « C INSERT 0 1
            « C COMMIT
            « T a
            ! Committed block, snapshot 100:105:[102], xid 777, rows 0
                INSERT INTO t VALUES ($1)
                BEGIN
                INSERT INTO t VALUES ($1)
                COMMIT
                sent: Q INSERT INTO t VALUES (1); BEGIN; INSERT INTO t VALUES (2); COMMIT
            ! began at 7
            « D 3
            « C SELECT 1
            « C ROLLBACK
            ! Aborted, xid unknown, rows 1
                SELECT $1
                ROLLBACK
                sent: Q SELECT 3; ROLLBACK
                was answered: T a | D 3 | C SELECT 1 | C ROLLBACK
            ! began at 7
            « C INSERT 0 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 779, rows 0
                INSERT INTO t VALUES ($1)
                sent: Q INSERT INTO t VALUES (4)
        "#]],
    );
}

#[test]
fn commit_and_chain_goes_on_with_another_transaction() {
    check(
        "> Q BEGIN
         < C BEGIN
         < Z T
         > Q INSERT INTO t VALUES (1)
         < C INSERT 0 1
         < Z T
         > Q COMMIT AND CHAIN
         < C COMMIT
         < Z T
         @ xid 778
         > Q INSERT INTO t VALUES (2)
         < C INSERT 0 1
         < Z T
         > Q ROLLBACK
         < C ROLLBACK
         < Z I",
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
            » Q INSERT INTO t VALUES (1)
            « C INSERT 0 1
            ! began at 7
            « Z T
            » P ours <xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q COMMIT AND CHAIN
            « C COMMIT
            « Z T
            ! Committed block, snapshot 100:105:[102], xid 777, rows 0
                BEGIN
                INSERT INTO t VALUES ($1)
                COMMIT AND CHAIN
                sent: Q BEGIN | Q INSERT INTO t VALUES (1) | Q COMMIT AND CHAIN
            » P ours <snapshot>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q INSERT INTO t VALUES (2)
            « C INSERT 0 1
            ! began at 30
            « Z T
            » Q ROLLBACK
            « C ROLLBACK
            « Z I
            ! Aborted block, snapshot 100:105:[102], xid unknown, rows 0
                INSERT INTO t VALUES ($1)
                ROLLBACK
                sent: Q INSERT INTO t VALUES (2) | Q ROLLBACK
                was answered: C INSERT 0 1 | Z T | C ROLLBACK | Z I
        "#]],
    );
}

#[test]
fn savepoints_and_their_ids() {
    check(
        "> Q BEGIN
         < C BEGIN
         < Z T
         > Q INSERT INTO t VALUES (1)
         < C INSERT 0 1
         < Z T
         > Q SAVEPOINT a
         < C SAVEPOINT
         < Z T
         > Q SELECT 1/0
         < E 22012 division by zero
         < Z E
         > Q ROLLBACK TO a
         < C ROLLBACK
         < Z T
         > Q RELEASE a
         < C RELEASE
         < Z T
         > Q INSERT INTO t VALUES (2)
         < C INSERT 0 1
         < Z T
         > Q COMMIT
         < C COMMIT
         < Z I",
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
            » Q INSERT INTO t VALUES (1)
            « C INSERT 0 1
            ! began at 7
            « Z T
            » Q SAVEPOINT a
            « C SAVEPOINT
            « Z T
            » Q SELECT 1/0
            « E 22012 division by zero
            « Z E
            » Q ROLLBACK TO a
            « C ROLLBACK
            « Z T
            » P ours <xid subxids>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q RELEASE a
            « C RELEASE
            « Z T
            » Q INSERT INTO t VALUES (2)
            « C INSERT 0 1
            « Z T
            » P ours <xid subxids>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q COMMIT
            « C COMMIT
            « Z I
            ! Committed block, snapshot 100:105:[102], xid 777, subxids [778, 780], rows 0
                BEGIN
                INSERT INTO t VALUES ($1)
                SAVEPOINT _
                SELECT $1/$2
                ROLLBACK TO _
                RELEASE _
                INSERT INTO t VALUES ($1)
                COMMIT
                sent: Q BEGIN | Q INSERT INTO t VALUES (1) | Q SAVEPOINT a | Q SELECT 1/0 | Q ROLLBACK TO a | Q RELEASE a | Q INSERT INTO t VALUES (2) | Q COMMIT
        "#]],
    );
}

#[test]
fn two_phase_commit() {
    check(
        "> Q BEGIN
         < C BEGIN
         < Z T
         > Q INSERT INTO t VALUES (1)
         < C INSERT 0 1
         < Z T
         > Q PREPARE TRANSACTION 'g'
         < C PREPARE TRANSACTION
         < Z I
         > Q COMMIT PREPARED 'g'
         < C COMMIT PREPARED
         < Z I",
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
            » Q INSERT INTO t VALUES (1)
            « C INSERT 0 1
            ! began at 7
            « Z T
            » P ours <xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q PREPARE TRANSACTION 'g'
            « C PREPARE TRANSACTION
            « Z I
            ! Prepared { gid: "g" } block, snapshot 100:105:[102], xid 777, rows 0
                BEGIN
                INSERT INTO t VALUES ($1)
                PREPARE TRANSACTION $1
                sent: Q BEGIN | Q INSERT INTO t VALUES (1) | Q PREPARE TRANSACTION 'g'
            » Q COMMIT PREPARED 'g'
            « C COMMIT PREPARED
            ! began at 30
            « Z I
            ! Committed, rows 0
                COMMIT PREPARED $1
                sent: Q COMMIT PREPARED 'g'
        "#]],
    );
}

#[test]
fn statements_that_refuse_company_are_left_alone() {
    check(
        "@ own-status I
         @ standing 100 3/7, 103 3/10, 103 3/11, 104 3/13, 104 3/14, 106 3/17, 106 3/18, 106 3/20
         > Q VACUUM t
         < C VACUUM
         < Z I
         < ours
         > Q CALL p()
         < C CALL
         < Z I
         < ours
         > P - VACUUM t
         > B - -
         > E -
         > S
         < 1
         < 2
         < C VACUUM
         < Z I
         < ours
         > F 89
         < V x
         < Z I
         < ours",
        expect![[r#"
            » P ours <standing>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q VACUUM t
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
                VACUUM t
                sent: Q VACUUM t
            ! unasked: VACUUM t from 7 to 16, ids Some("100..103")
            » P ours <standing>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q CALL p()
            » P ours <standing>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            « C CALL
            ! began at 24
            « Z I
            ! Committed, xid unknown, rows 0
                CALL p()
                sent: Q CALL p()
            ! unasked: CALL p() from 24 to 33, ids Some("103..104")
            » P ours <standing>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » P - VACUUM t
            » B - -
            » E -
            » S
            » P ours <standing>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            « 1
            « 2
            « C VACUUM
            ! began at 43
            « Z I
            ! Committed, xid unknown, rows 0
                VACUUM t
                sent: P - VACUUM t | B - - | E - | S
            ! unasked: VACUUM t from 43 to 55, ids Some("104..106")
            » P ours <standing>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » F 89
            » P ours <standing>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            « V
            ! began at 63
            « Z I
            ! Committed, xid unknown, rows 1
                FUNCTION CALL
                sent: F 89
            ! unasked: FUNCTION CALL from 63 to 72, ids Some("106..106")
        "#]],
    );
}

#[test]
fn copies_in_both_directions() {
    check(
        "> Q COPY t FROM STDIN
         < G 1
         > d 1~
         > d 2~
         > c
         < C COPY 2
         < ask 3
         < Z I
         > Q COPY t TO STDOUT
         < H 1
         < d 1~
         < d 2~
         < c
         < C COPY 2
         @ xid NULL
         < ask 3
         < Z I",
        expect![[r#"
            » Q COPY t FROM STDIN~;<snapshot xid>
            « G
            ! began at 7
            » d 1~
            » d 2~
            » c
            « C COPY 2
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 0
                COPY t FROM STDIN
                sent: Q COPY t FROM STDIN | d 1~ | d 2~ | c
            » Q COPY t TO STDOUT~;<snapshot xid>
            « H
            ! began at 17
            « d 1~
            « d 2~
            « c
            « C COPY 2
            « Z I
            ! Committed, snapshot 100:105:[102], rows 2
                COPY t TO STDOUT
                sent: Q COPY t TO STDOUT
        "#]],
    );
}

#[test]
fn a_sync_that_a_copy_swallows_is_not_answered() {
    check(
        "> P - COPY t FROM STDIN
         > B - -
         > E -
         > S
         < 1
         < 2
         < G 1
         > d 1~
         > c
         > S
         < C COPY 1
         < Z I
         > Q SELECT 1
         < T a
         < D 1
         < C SELECT 1
         < ask 3
         < Z I",
        expect![[r#"
            » P - COPY t FROM STDIN
            » B - -
            » E -
            » S
            « 1
            « 2
            « G
            ! began at 9
            » d 1~
            » c
            » P ours <snapshot xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            « C COPY 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 0
                COPY t FROM STDIN
                sent: P - COPY t FROM STDIN | B - - | E - | S | d 1~ | c | S
            » Q SELECT 1~;<snapshot xid>
            « T a
            ! began at 25
            « D 1
            « C SELECT 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 1
                SELECT $1
                sent: Q SELECT 1
        "#]],
    );
}

#[test]
fn requests_by_comment_name_and_being_alone() {
    check(
        "@ alone 9
         > Q SELECT 1 /*traceparent='00-00000000000000010000000000000005-00000000000000ff-01'*/
         < T a
         < D 1
         < C SELECT 1
         @ xid NULL
         < ask 3
         < Z I
         > Q SELECT 2 /*traceparent='00-00000000000000020000000000000005-00000000000000ff-01'*/
         < T a
         < D 2
         < C SELECT 1
         < ask 3
         < Z I
         < S application_name 00-00000000000000010000000000000007-00000000000000ff-01
         > Q SELECT 3
         < T a
         < D 3
         < C SELECT 1
         < ask 3
         < Z I",
        expect![[r#"
            » Q SELECT 1~;<snapshot xid>
            « T a
            ! began at 7
            « D 1
            « C SELECT 1
            « Z I
            ! Committed, request 5 by Comment, snapshot 100:105:[102], rows 1
                SELECT $1
            » Q SELECT 2~;<snapshot xid>
            « T a
            ! began at 15
            « D 2
            « C SELECT 1
            « Z I
            ! Committed, request 9 by Alone, snapshot 100:105:[102], rows 1
                SELECT $1
            « S application_name 00-00000000000000010000000000000007-00000000000000ff-01
            » Q SELECT 3~;<snapshot xid>
            « T a
            ! began at 24
            « D 3
            « C SELECT 1
            « Z I
            ! Committed, request 7 by ApplicationName, snapshot 100:105:[102], rows 1
                SELECT $1
        "#]],
    );
}

#[test]
fn positions_of_errors_are_the_clients() {
    check(
        "> Q /*traceparent='00-00000000000000010000000000000005-00000000000000ff-01'*/ SELECT nope
         < E-at nope 42703 column does not exist
         < Z I
         > Q BEGIN; SELECT 1; COMMIT; SELECT nope
         < C BEGIN
         < ask 1
         < T a
         < D 1
         < C SELECT 1
         < ask 2
         < C COMMIT
         < E-at nope 42703 column does not exist
         < Z I
         > Q SELECT 1 +
         < E 42601 12 syntax error at or near \";\"
         < Z I",
        expect![[r#"
            » Q SELECT nope~;<snapshot xid>
            « E 42703 82 column does not exist
            ! began at 7
            « Z I
            ! Aborted, request 5 by Comment, xid unknown, rows 0
                SELECT nope
                was answered: E 42703 82 column does not exist | Z I
            » Q BEGIN; <snapshot>; SELECT 1; <xid>; COMMIT; SELECT nope~;<snapshot xid>
            « C BEGIN
            « T a
            ! began at 10
            « D 1
            « C SELECT 1
            « C COMMIT
            « E 42703 33 column does not exist
            ! Committed block, snapshot 100:105:[102], xid 777, rows 1
                BEGIN
                SELECT $1
                COMMIT
                sent: Q BEGIN; SELECT 1; COMMIT
            ! began at 10
            « Z I
            ! Aborted, xid unknown, rows 0
                SELECT nope
                sent: Q SELECT nope
                was answered: E 42703 33 column does not exist | Z I
            » Q SELECT 1 +~;<snapshot xid>
            « E 42601 11 syntax error at end of input
            ! began at 24
            « Z I
            ! Aborted, xid unknown, rows 0
                SELECT $1 +
                sent: Q SELECT 1 +
                was answered: E 42601 11 syntax error at end of input | Z I
        "#]],
    );
}

#[test]
fn locks_and_sequences_and_unknown_tables() {
    check(
        "> Q SELECT * FROM t FOR UPDATE
         < T a
         < D 1
         < C SELECT 1
         < ask 3
         < Z I
         > Q INSERT INTO u VALUES (1) RETURNING id, x
         < T id@500.1 x@600.2
         < D 41 9
         < D 42 9
         < C INSERT 0 2
         < ask 3
         < Z I
         > Q SELECT nextval('s')
         < T nextval
         < D 43
         < C SELECT 1
         < ask 3
         < Z I",
        expect![[r#"
            » Q SELECT * FROM t FOR UPDATE~;<snapshot xid>
            « T a
            ! began at 7
            « D 1
            « C SELECT 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 1, lock by 0 as 0
                SELECT * FROM t FOR UPDATE
                sent: Q SELECT * FROM t FOR UPDATE
            » Q INSERT INTO u VALUES (1) RETURNING id, x~;<snapshot xid>
            « T id x
            ! began at 15
            ! unknown table 600
            « D 41 9
            « D 42 9
            « C INSERT 0 2
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 2, sequence 501=41, sequence 501=42
                INSERT INTO u VALUES ($1) RETURNING id, x
                sent: Q INSERT INTO u VALUES (1) RETURNING id, x
            » Q SELECT nextval('s')~;<snapshot xid>
            « T nextval
            ! began at 24
            « D 43
            « C SELECT 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 1, sequence 502=43
                SELECT nextval($1)
                sent: Q SELECT nextval('s')
        "#]],
    );
}

#[test]
fn a_notification_makes_the_commit_assign_an_id() {
    check(
        "> Q BEGIN
         < C BEGIN
         < Z T
         > Q NOTIFY c
         < C NOTIFY
         < Z T
         > Q COMMIT
         < C COMMIT
         < Z I",
        expect![[r#"
            » Q BEGIN
            « C BEGIN
            « Z T
            » Q NOTIFY c
            « C NOTIFY
            ! began at 7
            « Z T
            » P ours <assign>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q COMMIT
            « C COMMIT
            « Z I
            ! Committed block, xid 777, rows 0
                BEGIN
                NOTIFY c
                COMMIT
                sent: Q BEGIN | Q NOTIFY c | Q COMMIT
        "#]],
    );
}

#[test]
fn nothing_of_ours_outlives_a_flight() {
    check(
        "> P - SELECT 1
         > B - -
         > E -
         > S
         < 1
         < 2
         < D 1
         < C SELECT 1
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
         < Z I",
        expect![[r#"
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
            ! began at 9
            « C SELECT 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 1
                SELECT $1
                sent: P - SELECT 1 | B - - | E - | S
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
            ! began at 22
            « Z I
            ! Committed passive, rows 0
                DISCARD ALL
                sent: Q DISCARD ALL
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
            ! began at 39
            « C SELECT 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 1
                SELECT $1
                sent: P - SELECT 1 | B - - | E - | S
        "#]],
    );
}

#[test]
fn a_server_that_leaves_makes_commits_uncertain() {
    check(
        "> Q BEGIN
         < C BEGIN
         < Z T
         > Q INSERT INTO t VALUES (1)
         < C INSERT 0 1
         < Z T
         > Q COMMIT
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
            » Q INSERT INTO t VALUES (1)
            « C INSERT 0 1
            ! began at 7
            « Z T
            » P ours <xid>
            » B ours ours
            » E ours
            » C P ours
            » C S ours
            » S
            » Q COMMIT
            ! uncertain: Unknown block, snapshot 100:105:[102], xid 777, rows 0
                BEGIN
                INSERT INTO t VALUES ($1)
                COMMIT
                sent: Q BEGIN | Q INSERT INTO t VALUES (1) | Q COMMIT
            ! unasked: end of session from 27 to 28, ids None
        "#]],
    );
    check(
        "> Q INSERT INTO t VALUES (1)
         > Q SELECT 2
         @ server-gone",
        expect![[r#"
            » Q INSERT INTO t VALUES (1)~;<snapshot xid>
            » Q SELECT 2~;<snapshot xid>
            ! began at 7
            ! unasked: INSERT INTO t VALUES ($1) from 7 to 9, ids None
            ! uncertain: Unknown, xid unknown, rows 0
                INSERT INTO t VALUES ($1)
                sent: Q INSERT INTO t VALUES (1)
            ! began at 8
            ! unasked: SELECT $1 from 8 to 9, ids None
            ! uncertain: Unknown, xid unknown, rows 0
                SELECT $1
                sent: Q SELECT 2
            ! unasked: end of session from 6 to 9, ids None
        "#]],
    );
    check(
        "> Q BEGIN
         < C BEGIN
         < Z T
         > Q INSERT INTO t VALUES (1)
         < C INSERT 0 1
         < Z T
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
            » Q INSERT INTO t VALUES (1)
            « C INSERT 0 1
            ! began at 7
            « Z T
            ! Aborted block, snapshot 100:105:[102], xid unknown, rows 0
                BEGIN
                INSERT INTO t VALUES ($1)
                sent: Q BEGIN | Q INSERT INTO t VALUES (1)
                was answered: C BEGIN | Z T | C INSERT 0 1 | Z T
            ! unasked: end of session from 19 to 20, ids None
        "#]],
    );
}

#[test]
fn what_does_not_fit_is_said_to_be_missing() {
    check_with(
        |options| options.kept_bytes_max = 100,
        "> Q SELECT 1, 'a text that is longer than what is kept, so that it cannot be told what the client sent'
         < T a
         < D 1
         < C SELECT 1
         < ask 3
         < Z I
         > Q SELECT 1
         < T a
         < D 1
         < C SELECT 1
         < ask 3
         < Z I",
        expect![[r#"
            » Q SELECT 1, 'a text that is longer than what is kept, so that it cannot be told what the client sent'~;<snapshot xid>
            « T a
            ! began at 7
            « D 1
            « C SELECT 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 1, Cut { server_bytes: false, client_bytes: true, statements: false, notes: false }
                SELECT $1, $2
            » Q SELECT 1~;<snapshot xid>
            « T a
            ! began at 15
            « D 1
            « C SELECT 1
            « Z I
            ! Committed, snapshot 100:105:[102], xid 777, rows 1
                SELECT $1
                sent: Q SELECT 1
        "#]],
    );
}

#[test]
fn what_cannot_be_followed_passes_through() {
    check(
        "> Q BEGIN
         < C BEGIN
         < Z T
         > Q SELECT 1
         > raw hello
         > Q SELECT 2
         < T a
         < D 1
         < C SELECT 1
         < Z T
         < T a",
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
            » raw b"hello"
            ! from the client, message `h` at byte 52: no message begins with byte 0x68
            » Q SELECT 2
            « T a
            « D 1
            « C SELECT 1
            « Z T
            « T a
        "#]],
    );
    check(
        "> Q SELECT 1
         < 1
         < Z I",
        expect![[r#"
            » Q SELECT 1~;<snapshot xid>
            « 1
            ! from the server, message `1` at byte 89: this does not answer the oldest outstanding message, Query
            « Z I
        "#]],
    );
}
