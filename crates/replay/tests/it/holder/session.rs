//! How a session begins, waits and ends, and what passes through it.

use expect_test::expect;
use hindcast_replay::hold::Code;

use super::{Session, check, traceparent};

#[test]
fn a_request_is_known_by_comment_then_by_name_then_by_being_alone() {
    check(
        "@ pins reads-only
         @ alone 7
         > Q SELECT a FROM t
         < S application_name 00-00000000000000aa0000000000000006-00000000000000ff-01
         > Q SELECT a FROM t
         > Q SELECT a FROM t {5}
         < S application_name something
         > Q SELECT a FROM t
         > Q BEGIN {4}
         > Q SELECT a FROM t {5}
         > Q COMMIT",
        expect![[r#"
            ! claim of request 7: Run(Tx(3))
            ? snapshot of 3
            » Q SELECT a FROM t
            ! in None
            ! 3 took its snapshot
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
            « T a
            « D x
            « C SELECT 1
            « Z I
            « S application_name 00-00000000000000aa0000000000000006-00000000000000ff-01
            ! claim of request 6: Run(Tx(3))
            ? snapshot of 3
            » Q SELECT a FROM t
            ! in None
            ! 3 took its snapshot
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
            « T a
            « D x
            « C SELECT 1
            « Z I
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
            « S application_name something
            ! claim of request 7: Run(Tx(3))
            ? snapshot of 3
            » Q SELECT a FROM t
            ! in None
            ! 3 took its snapshot
            ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
            « T a
            « D x
            « C SELECT 1
            « Z I
            « C BEGIN
            « Z T
            ! claim of request 4: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN
            » Q SELECT a FROM t
            ! 3 took its snapshot
            « T a
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            ! in None
            ! Run(Tx(3)) committed, shape 7877900d, digest 641466f1, 1 rows
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn what_is_held_is_not_sent_before_it_is_permitted() {
    check(
        "@ hold
         > Q INSERT INTO t VALUES (1) {5}
         > Q SELECT a FROM t
         @ idle
         @ permit
         @ permit
         @ permit",
        expect![[r#"
            ! claim of request 5: Run(Tx(3))
            ? snapshot of 3
            idle: false
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
            ! claim of request none: Run(Tx(3))
            « Z I
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
        "#]],
    );
}

#[test]
fn an_empty_query_is_answered() {
    check(
        "> Q
         > Q ;",
        expect![[r#"
            » Q 
            « I
            « Z I
            » Q ;
            « I
            « Z I
        "#]],
    );
}

#[test]
fn a_function_call_is_sent_as_it_is() {
    check(
        "> F 7
         @ idle",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            » F 7
            ! 3 took its snapshot
            ! 3 ran
            « V
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 71886095, digest 103ef101, 1 rows
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn a_client_that_says_goodbye_is_let_go() {
    check(
        "> X
         @ gone
         @ idle",
        expect![[r#"
            » X
            ! in None
            idle: true
        "#]],
    );
}

#[test]
fn a_session_that_goes_away_in_a_transaction_has_lost_it() {
    check(
        "> Q BEGIN
         > Q SELECT a FROM t
         @ gone
         @ idle",
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
            ! Run(Tx(3)) lost
            ! in None
            idle: true
        "#]],
    );
}

#[test]
fn a_client_that_goes_away_while_it_waits_has_lost_its_transaction() {
    check(
        "@ hold
         > Q INSERT INTO t VALUES (1)
         @ gone
         @ idle",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            ! Run(Tx(3)) lost
            ! in None
            idle: true
        "#]],
    );
}

#[test]
fn all_prepared_statements_go_and_ours_with_them() {
    check(
        "> Q INSERT INTO t VALUES (1)
         > Q DISCARD ALL
         > Q INSERT INTO t VALUES (1)",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
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
            » Q DISCARD ALL
            « C DISCARD
            « Z I
            ! claim of request none: Run(Tx(3))
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
        "#]],
    );
}

#[test]
fn notices_and_parameters_pass_through() {
    check(
        "< N 01000 a notice
         < S default_transaction_read_only on
         < S TimeZone UTC",
        expect![[r#"
            « N 01000 a notice
            « S default_transaction_read_only off
            « S TimeZone UTC
        "#]],
    );
}

/// Its sessions are read-only by default, which is ours.
#[test]
fn a_service_that_asks_whether_it_may_write_is_told_what_it_has_chosen() {
    check(
        "> Q SHOW default_transaction_read_only
         > Q SHOW transaction_read_only
         > Q BEGIN READ ONLY
         > Q SHOW transaction_read_only
         > Q COMMIT
         > Q SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY
         > Q SHOW default_transaction_read_only
         > Q SHOW search_path",
        expect![[r#"
            » Q SHOW default_transaction_read_only
            « T a
            « D off
            « C SHOW
            « Z I
            » Q SHOW transaction_read_only
            « T a
            « D off
            « C SHOW
            « Z I
            « C BEGIN
            « Z T
            » Q BEGIN READ ONLY
            » Q SHOW transaction_read_only
            « T a
            « D on
            « C SHOW
            « Z T
            » Q COMMIT
            ! in None
            ! 3 statements of one that is not known
            « C COMMIT
            « Z I
            » Q SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY
            « C SET
            « Z I
            » Q SHOW default_transaction_read_only
            « T a
            « D on
            « C SHOW
            « Z I
            » Q SHOW search_path
            « T a
            « D on
            « C SHOW
            « Z I
        "#]],
    );
}

#[test]
fn a_try_for_a_lock_that_was_in_vain_is_so_again() {
    check(
        "@ pins reads-only refused=0
         > Q SELECT pg_try_advisory_lock(1)
         @ pins refused=2
         > Q BEGIN
         > Q SELECT a FROM t
         > P - SELECT pg_try_advisory_lock(1)
         > B - -
         > E -
         > S
         > Q COMMIT",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [refuse*]
            » Q SELECT pg_try_advisory_lock(1)
            ! in None
            ! 3 took its snapshot
            ! Run(Tx(3)) committed, shape 4afd1f54, digest a9c69739, 1 rows
            « T a
            « D x
            « C SELECT 1
            « Z I
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
            » P - SELECT pg_try_advisory_lock(1)
            » H
            « 1
            » [refuse]
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
            ! Run(Tx(3)) committed, shape 5bc56945, digest f447f2af, 2 rows
            « C COMMIT
            « Z I
        "#]],
    );
}

#[test]
fn an_insert_waits_for_those_that_drew_before_it() {
    check(
        "@ pins inserts=0
         > Q INSERT INTO t (a) VALUES (1) RETURNING id
         @ pins inserts=1
         > Q BEGIN
         > P - INSERT INTO t (a) VALUES (2)
         > B - -
         > E -
         > S
         > Q COMMIT",
        expect![[r#"
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » [begin*]
            » [snapshot*]
            ? insert of 3 by statement 0
            » Q INSERT INTO t (a) VALUES (1) RETURNING id
            ! 3 took its snapshot
            ! 3 locked by statement 0
            ! 3 ran
            « C INSERT 0 1
            ? commit of 3
            » [commit*]
            ! in None
            ! Run(Tx(3)) committed, shape 28066826, digest 31fb68fc, 0 rows
            « Z I
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            » Q BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE
            » [snapshot]
            ? insert of 3 by statement 1
            » P - INSERT INTO t (a) VALUES (2)
            » B - -
            » E -
            » S
            ! 3 took its snapshot
            « 1
            « 2
            ! 3 locked by statement 1
            « C INSERT 0 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 95856571, digest ec6f0ca6, 0 rows
            « C COMMIT
            « Z I
        "#]],
    );
}

/// Behind a savepoint a transaction cannot become one that may write, and what is set is rolled
/// back with it.
#[test]
fn a_savepoint_before_the_snapshot() {
    let mut session = Session::new(Code::Recorded, false);
    session.run(
        "> startup user=u database=d default_transaction_read_only=on
         < R
         < Z I
         > Q BEGIN
         > Q SAVEPOINT a
         > Q INSERT INTO t VALUES (1)
         > Q ROLLBACK TO a
         > P - INSERT INTO t VALUES (2)
         > B - -
         > E -
         > S
         > Q COMMIT
         @ claim outside
         > Q BEGIN
         > P - SAVEPOINT a
         > B - -
         > E -
         > S
         > Q SELECT a FROM t
         > Q COMMIT",
    );
    expect![[r#"
        » startup user=u database=d default_transaction_read_only=on
        « R
        « Z I
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
        « C INSERT 0 1
        « Z T
        » Q ROLLBACK TO a
        « C ROLLBACK
        « Z T
        » P - INSERT INTO t VALUES (2)
        » H
        « 1
        » [snapshot]
        » B - -
        » E -
        » S
        « 2
        « C INSERT 0 1
        « Z T
        ! 3 ran
        ? commit of 3
        » Q COMMIT
        ! in None
        ! Run(Tx(3)) committed, shape 9b2eceb4, digest f53ae928, 0 rows
        « C COMMIT
        « Z I
        « C BEGIN
        « Z T
        » Q BEGIN
        » P - SAVEPOINT a
        » H
        « 1
        » [writable]
        » B - -
        » E -
        » S
        « 2
        « C SAVEPOINT
        « Z T
        ! claim of request none: Outside
        » [patience*]
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
        ! 4 statements of none
        « C COMMIT
        « Z I
    "#]]
    .assert_eq(&session.shown);
}

/// What a client undoes has drawn, and it saw what: the statements behind it draw what comes after.
#[test]
fn a_savepoint_behind_which_values_were_drawn() {
    let mut session = Session::new(Code::Recorded, false);
    session.run(
        "> startup user=u database=d default_transaction_read_only=on
         < R
         < Z I
         @ pins drawn=1-0.25 drawn=3-0.5 drawn=5-0.75
         > Q BEGIN
         > Q INSERT INTO t VALUES (random())
         > Q SAVEPOINT a
         > Q INSERT INTO t VALUES (random())
         > Q ROLLBACK TO a
         > Q INSERT INTO t VALUES (random())
         > Q SELECT 1
         > Q COMMIT",
    );
    expect![[r#"
        » startup user=u database=d default_transaction_read_only=on
        « R
        « Z I
        « C BEGIN
        « Z T
        ! claim of request none: Run(Tx(3))
        ? snapshot of 3
        » Q BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE
        » [snapshot     0.25 0.5 0.75*]
        » Q INSERT INTO t VALUES (random())
        ! 3 took its snapshot
        « C INSERT 0 1
        « Z T
        » Q SAVEPOINT a
        « C SAVEPOINT
        « Z T
        » Q INSERT INTO t VALUES (random())
        « C INSERT 0 1
        « Z T
        » Q ROLLBACK TO a
        « C ROLLBACK
        « Z T
        » [snapshot     0.75]
        » Q INSERT INTO t VALUES (random())
        « C INSERT 0 1
        « Z T
        » Q SELECT 1
        « T a
        « D x
        « C SELECT 1
        « Z T
        ! 3 ran
        ? commit of 3
        » Q COMMIT
        ! in None
        ! Run(Tx(3)) committed, shape 872c9356, digest c5669cee, 1 rows
        « C COMMIT
        « Z I
    "#]]
    .assert_eq(&session.shown);
}

#[test]
fn a_session_starts_between_client_and_server() {
    let mut session = Session::new(Code::Recorded, false);
    let name = traceparent(6);
    session.run(&format!(
        "> startup user=u database=d application_name={name}
         < R 3
         > p secret
         < R
         < S server_version 15.4
         < S default_transaction_read_only on
         < K abcd
         < Z I
         @ pins reads-only
         > Q SELECT a FROM t"
    ));
    expect![[r#"
        » startup user=u database=d application_name=00-00000000000000aa0000000000000006-00000000000000ff-01
        « R
        » p secret
        « R
        « S server_version 15.4
        « S default_transaction_read_only off
        ! backend 7
        « K
        « Z I
        ! claim of request 6: Run(Tx(3))
        ? snapshot of 3
        » Q SELECT a FROM t
        ! in None
        ! 3 took its snapshot
        ! Run(Tx(3)) committed, shape c4728aa3, digest a9c69739, 1 rows
        « T a
        « D x
        « C SELECT 1
        « Z I
    "#]].assert_eq(&session.shown);
}

#[test]
fn what_is_no_message_closes_the_session() {
    for script in ["> raw Q\0\0\0\0x", "< raw Z\0\0\0\0I"] {
        let mut session = Session::new(Code::Recorded, true);
        session.run(script);
        assert_eq!(session.shown, "closed\n");
    }
}

#[test]
fn a_session_whose_recording_cannot_be_read_is_closed() {
    check(
        "> Q BEGIN
         > Q SELECT a FROM t
         @ unreadable
         > Q COMMIT
         > Q INSERT INTO t VALUES (1)",
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
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape 7877900d, digest 641466f1, 1 rows
            « C COMMIT
            « Z I
            ! claim of request none: Run(Tx(3))
            closed
        "#]],
    );
    check(
        "@ claim serve 4
         @ unreadable
         > Q INSERT INTO t VALUES (1)",
        expect![[r#"
            ! claim of request none: Serve(Tx(4))
            closed
        "#]],
    );
}

#[test]
fn a_session_whose_request_went_no_further_is_closed() {
    check(
        "@ claim cut
         > Q UPDATE t SET a = 1 {5}",
        expect![[r#"
            ! claim of request 5: CutOff
            closed
        "#]],
    );
}

/// Its snapshot shows it nothing, and its turn may come behind that of one whose snapshot is later.
#[test]
fn what_locks_first_has_its_snapshot_before_it_waits_for_its_turn() {
    check(
        "@ pins read-committed looks=2-2
         > Q BEGIN
         > Q SELECT pg_advisory_xact_lock(1)
         > Q SELECT a FROM t
         > Q COMMIT",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request none: Run(Tx(3))
            ? snapshot of 3
            ! 3 ran
            ! 3 took its snapshot
            » Q BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE
            » [snapshot*]
            ? lock of 3 by statement 1
            » Q SELECT pg_advisory_xact_lock(1)
            ! 3 took its snapshot
            ! 3 locked by statement 1
            « T a
            « D x
            « C SELECT 1
            « Z T
            ? look 0 of 3
            » Q SELECT a FROM t
            ! 3 is through with look 0
            « T a
            « D x
            « C SELECT 1
            « Z T
            ! 3 ran
            ? commit of 3
            » Q COMMIT
            ! in None
            ! Run(Tx(3)) committed, shape f91b8f62, digest f447f2af, 2 rows
            « C COMMIT
            « Z I
        "#]],
    );
}
