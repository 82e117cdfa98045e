//! Transactions that aborted originally are answered from the recording.

use expect_test::expect;

use super::check;

#[test]
fn a_statement_by_itself() {
    check(
        "@ claim serve 4
         @ recorded E 23505 twice | Z I
         > Q INSERT INTO t VALUES (1) {5}
         @ claim run 5
         > Q SELECT a FROM t
         @ idle",
        expect![[r#"
            ! claim of request 5: Serve(Tx(4))
            ! 4 was served whole
            « E 23505 twice
            « Z I
            ! claim of request none: Run(Tx(5))
            ? snapshot of 5
            » [begin*]
            » [snapshot*]
            » Q SELECT a FROM t
            ! 5 took its snapshot
            ! 5 ran
            « T a
            « D x
            « C SELECT 1
            ? commit of 5
            » [commit*]
            ! in None
            ! Run(Tx(5)) committed, shape c4728aa3, digest a9c69739, 1 rows
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn a_transaction_whose_begin_the_server_has_had_is_rolled_back_there() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | T a | D 1 | C SELECT 1 | Z T | E 40001 cannot | Z E | C ROLLBACK | Z I
         > Q BEGIN {5}
         > Q SELECT a FROM t
         > Q UPDATE t SET a = 1
         > Q ROLLBACK
         @ idle",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            « T a
            « D 1
            « C SELECT 1
            « Z T
            « E 40001 cannot
            « Z E
            ! 4 was served whole
            « C ROLLBACK
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn a_text_that_is_run_a_statement_at_a_time() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | E 23505 twice | Z E | C ROLLBACK | Z I
         > Q BEGIN; INSERT INTO t VALUES (1); COMMIT {5}
         > Q ROLLBACK",
        expect![[r#"
            » Q BEGIN
            ! claim of request 5: Serve(Tx(4))
            « C BEGIN
            » [rollback*]
            « E 23505 twice
            « Z E
            ! 4 was served whole
            « C ROLLBACK
            « Z I
        "#]],
    );
}

#[test]
fn a_prepared_statement() {
    check(
        "@ claim serve 4
         @ recorded 1 | t | T a | Z I | 2 | E 40001 cannot | Z I
         > P s SELECT a FROM t FOR UPDATE {5} | D S s | S
         > B - s | E - | S
         @ claim run 5
         > B - s | E - | S",
        expect![[r#"
            » P s SELECT a FROM t 
            » D S s
            » S
            « 1
            « t
            « T a
            « Z I
            ! claim of request 5: Serve(Tx(4))
            ! 4 was served whole
            « 2
            « E 40001 cannot
            « Z I
            ! claim of request none: Run(Tx(5))
            ? snapshot of 5
            » [begin*]
            » [snapshot*]
            » B - s
            » E -
            » S
            ! 5 took its snapshot
            « 2
            « D x
            « C SELECT 1
            ! 5 ran
            ? commit of 5
            » [commit*]
            ! in None
            ! Run(Tx(5)) committed, shape 9ee66499, digest a9c69739, 1 rows
            « Z I
        "#]],
    );
}

#[test]
fn preparing_is_left_to_the_server() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | 1 | 2 | T a | D 1 | C SELECT 1 | Z T | 1 | 2 | n | E 40001 cannot | Z E | C ROLLBACK | Z I
         > Q BEGIN {5}
         > P - SELECT a FROM t | B - - | D P - | E - | S
         > P u UPDATE t SET a = 1 | D S u | S
         > B - u | D P - | E - | S
         > Q ROLLBACK
         @ claim run 5
         > B - u | E - | S",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            » P - SELECT a FROM t
            » S
            « 1
            « 2
            « T a
            « D 1
            « C SELECT 1
            « Z T
            » P u UPDATE t SET a = 1
            » S
            « 1
            » D S u
            » S
            « t
            « n
            « Z T
            « 2
            « n
            « E 40001 cannot
            « Z E
            ! 4 was served whole
            « C ROLLBACK
            « Z I
            ! claim of request none: Run(Tx(5))
            ? snapshot of 5
            » [begin*]
            » [snapshot*]
            » B - u
            » E -
            » S
            ! 5 took its snapshot
            « 2
            « C UPDATE 1
            ! 5 ran
            ? commit of 5
            » [commit*]
            ! in None
            ! Run(Tx(5)) committed, shape 2251b0e2, digest 0d8610f8, 0 rows
            « Z I
        "#]],
    );
}

#[test]
fn names_of_a_batch_that_is_served_are_those_that_were_prepared() {
    check(
        "@ claim serve 4
         @ recorded 1 | 2 | E 23505 twice | Z I
         > P s INSERT INTO t VALUES (1) {5} | B - s | E - | P after SELECT a FROM t | S
         @ claim run 5
         @ pins reads-only
         > B - s | E - | S
         > B - after | E - | S",
        expect![[r#"
            ! claim of request 5: Serve(Tx(4))
            » P s INSERT INTO t VALUES (1)
            » S
            « 1
            ! 4 was served whole
            « 2
            « E 23505 twice
            « Z I
            ! claim of request 5: Run(Tx(5))
            ? snapshot of 5
            » B - s
            » E -
            » S
            « 2
            « C INSERT 0 1
            ! in None
            ! 5 took its snapshot
            ! Run(Tx(5)) committed, shape 5ab1b73a, digest 31fb68fc, 0 rows
            « Z I
            ! claim of request none: Run(Tx(5))
            ? snapshot of 5
            » B - after
            » E -
            » S
            « E 26000 there is no such thing
            ! in None
            ! 5 took its snapshot
            ! Run(Tx(5)) rolled back: there is no such thing (26000), shape 5ab1b73a, digest af595569, 0 rows
            « Z I
        "#]],
    );
}

#[test]
fn a_batch_that_begins_its_transaction_and_is_served_from_there() {
    check(
        "@ claim serve 4
         @ recorded 1 | 2 | C BEGIN | 1 | 2 | E 23505 twice | Z E | C ROLLBACK | Z I
         > P - BEGIN | B - - | E - | P - INSERT INTO t VALUES (1) {5} | B - - | E - | S
         > Q ROLLBACK
         @ idle",
        expect![[r#"
            ! claim of request 5: Serve(Tx(4))
            » P - BEGIN
            » B - -
            » E -
            » [rollback*]
            « 1
            « 2
            « C BEGIN
            » P - INSERT INTO t VALUES (1)
            » S
            « 1
            « 2
            « E 23505 twice
            « Z E
            ! 4 was served whole
            « C ROLLBACK
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn what_could_not_be_bound_then_and_cannot_be_prepared_now() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | C SELECT 0 | Z T | 1 | E 42601 what is this | Z E | C ROLLBACK | Z I
         @ fail-parse this 42601 what is this
         > Q BEGIN
         > Q SELECT a FROM t {5}
         > P - SELECT this | B - - | E - | S
         > Q ROLLBACK",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            « C SELECT 0
            « Z T
            » P - SELECT this
            » S
            « E 42601 what is this
            « Z E
            ! 4 was served whole
            « C ROLLBACK
            « Z I
        "#]],
    );
}

/// A batch of which only the `Parse` was answered, with an error, looks as a `Query` that failed.
#[test]
fn what_could_not_be_prepared_then_and_cannot_now() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | C SELECT 0 | Z T | E 42601 what is this | Z E | C ROLLBACK | Z I
         @ fail-parse this 42601 what is this
         > Q BEGIN
         > Q SELECT a FROM t {5}
         > P - SELECT this | B - - | E - | S
         > Q ROLLBACK
         @ idle",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            « C SELECT 0
            « Z T
            » P - SELECT this
            » S
            « E 42601 what is this
            « Z E
            ! 4 was served whole
            « C ROLLBACK
            « Z I
            idle: true
        "#]],
    );
}

/// Outside its transaction, which the server does not have, it would prepare this.
#[test]
fn what_a_failed_transaction_did_not_prepare() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | E 42P01 no t | Z E | E 25P02 aborted | Z E | 1 | Z E | 2 | C ROLLBACK | Z I
         > Q BEGIN
         > Q SELECT a FROM t {5}
         > P s SELECT a FROM u | D S s | S
         > P r ROLLBACK | S
         > B - r | E - | S
         @ idle",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            « E 42P01 no t
            « Z E
            « E 25P02 aborted
            « Z E
            » P r ROLLBACK
            » S
            « 1
            « Z E
            ! 4 was served whole
            « 2
            « C ROLLBACK
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn what_could_be_prepared_now_and_not_then_fails_when_it_is_bound() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | C SELECT 0 | Z T | E 42P01 no u | Z E | C ROLLBACK | Z I
         > Q BEGIN
         > Q SELECT a FROM t {5}
         > P - SELECT a FROM u | B - - | E - | S
         > Q ROLLBACK
         @ idle",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            « C SELECT 0
            « Z T
            » P - SELECT a FROM u
            » S
            « 1
            « E 42P01 no u
            « Z E
            ! 4 was served whole
            « C ROLLBACK
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn more_questions_than_answers() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | C SELECT 0 | Z T
         > Q BEGIN
         > Q SELECT a FROM t {5}
         > Q SELECT b FROM t
         > Q SELECT c FROM t
         @ idle",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            « C SELECT 0
            « Z T
            ! 4 was served in part
            « E 40001 the recording has no answer to this: it aborted here originally
            « Z I
            ! claim of request none: Serve(Tx(4))
            « C BEGIN
            « Z T
            idle: false
        "#]],
    );
}

#[test]
fn more_questions_than_answers_in_a_batch() {
    check(
        "@ claim serve 4
         @ recorded 1 | 2 | C SELECT 0 | Z T
         > P - SELECT a FROM t {5} | B - - | E - | E - | S",
        expect![[r#"
            ! claim of request 5: Serve(Tx(4))
            » P - SELECT a FROM t
            » S
            « 1
            « 2
            « C SELECT 0
            « E 40001 the recording has no answer to this: it aborted here originally
            « Z T
        "#]],
    );
}

#[test]
fn fewer_questions_than_answers() {
    check(
        "@ claim serve 4
         @ recorded E 23505 twice | Z I | E 23505 twice | Z I
         > Q INSERT INTO t VALUES (1) {5}",
        expect![[r#"
            ! claim of request 5: Serve(Tx(4))
            ! 4 was served in part
            « E 23505 twice
            « Z I
        "#]],
    );
}

#[test]
fn answers_that_were_not_kept() {
    check(
        "@ claim serve 4
         > Q INSERT INTO t VALUES (1) {5}",
        expect![[r#"
            ! claim of request 5: Serve(Tx(4))
            ! 4 was served in part
            « E 40001 the recording has no answer to this: it aborted here originally
            « Z I
        "#]],
    );
}

#[test]
fn data_of_a_copy() {
    check(
        "@ claim serve 4
         @ recorded G 1 | E 22P04 not like that | Z I
         > Q COPY t FROM STDIN {5}
         > d 1~ | d 2~ | c
         @ idle",
        expect![[r#"
            ! claim of request 5: Serve(Tx(4))
            « G
            ! 4 was served whole
            « E 22P04 not like that
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn a_client_that_says_goodbye() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | C SELECT 0 | Z T | C ROLLBACK | Z I
         > Q BEGIN
         > Q SELECT a FROM t {5}
         > X
         @ idle",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            « C SELECT 0
            « Z T
            ! 4 was served in part
            » X
            idle: true
        "#]],
    );
}

#[test]
fn a_client_that_goes_away() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | C SELECT 0 | Z T | C ROLLBACK | Z I
         > Q BEGIN
         > Q SELECT a FROM t {5}
         @ gone
         @ idle",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            « C SELECT 0
            « Z T
            ! 4 was served in part
            ! in None
            idle: true
        "#]],
    );
}

#[test]
fn a_flushed_parse_before_it() {
    check(
        "@ claim serve 4
         @ recorded 1 | 2 | E 23505 twice | Z I
         > P - INSERT INTO t VALUES (1) {5} | H
         > B - - | E - | S
         @ claim run 5
         > P - SELECT a FROM t | B - - | E - | S",
        expect![[r#"
            » P - INSERT INTO t VALUES (1)
            » H
            « 1
            ! claim of request 5: Serve(Tx(4))
            » S
            ! 4 was served whole
            « 2
            « E 23505 twice
            « Z I
            ! claim of request none: Run(Tx(5))
            ? snapshot of 5
            » [begin*]
            » [snapshot*]
            » P - SELECT a FROM t
            » B - -
            » E -
            » S
            ! 5 took its snapshot
            « 1
            « 2
            « D x
            « C SELECT 1
            ! 5 ran
            ? commit of 5
            » [commit*]
            ! in None
            ! Run(Tx(5)) committed, shape c4728aa3, digest a9c69739, 1 rows
            « Z I
        "#]],
    );
}

/// Its driver knew the types then, and asks for them now; or the other way round.
#[test]
fn what_a_driver_asks_for_itself_is_answered_by_the_server() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | T a | D 1 | C SELECT 1 | Z T | C ROLLBACK | Z I
         @ lookups - | - | -
         > Q BEGIN {5}
         > Q SELECT a FROM t
         > P n SELECT oid FROM pg_type | S
         > B p n | E p | S
         > Q SELECT typname FROM pg_type
         > Q ROLLBACK
         @ idle",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            « T a
            « D 1
            « C SELECT 1
            « Z T
            » P n SELECT oid FROM pg_type
            » S
            « 1
            « Z T
            » B p n
            » E p
            » S
            « 2
            « D x
            « C SELECT 1
            « Z T
            » Q SELECT typname FROM pg_type
            « T a
            « D x
            « C SELECT 1
            « Z T
            ! 4 was served whole
            « C ROLLBACK
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn what_a_driver_asked_for_itself_and_does_not_ask_is_passed_over() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | T o | D 9 | C SELECT 1 | Z T | T a | D 1 | C SELECT 1 | Z T | C ROLLBACK | Z I
         @ lookups - | SELECT oid FROM pg_type | - | -
         > Q BEGIN {5}
         > Q SELECT a FROM t
         > Q ROLLBACK
         @ idle",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            « T a
            « D 1
            « C SELECT 1
            « Z T
            ! 4 was served whole
            « C ROLLBACK
            « Z I
            idle: true
        "#]],
    );
}

/// A pool looks whether the database is there, and closes the connection.
#[test]
fn what_was_cut_off_by_the_end_of_its_session_is_whole_where_that_ends_again() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | T a | D 1 | C SELECT 1 | Z T
         > Q BEGIN {5}
         > Q SELECT a FROM t
         @ gone",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            « T a
            « D 1
            « C SELECT 1
            « Z T
            ! 4 was served whole
            ! in None
        "#]],
    );
    // It says that it closes it.
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | T a | D 1 | C SELECT 1 | Z T
         > Q BEGIN {5}
         > Q SELECT a FROM t
         > X",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            « T a
            « D 1
            « C SELECT 1
            « Z T
            ! 4 was served whole
            » X
        "#]],
    );
}

/// An ORM ends what it has read with by `ROLLBACK`. A cache has what it read originally, and lacks
/// what it does not.
#[test]
fn a_read_that_a_cache_had_is_answered_by_the_server_and_one_that_it_has_is_passed_over() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | T a | D 1 | C SELECT 1 | Z T | T b | D 2 | C SELECT 1 | Z T | C ROLLBACK | Z I
         @ lookups - | SELECT a FROM t | SELECT b FROM t | -
         @ reads
         > Q BEGIN {5}
         > Q SELECT b FROM t
         > Q SELECT c FROM t
         > Q ROLLBACK
         @ idle",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            « T b
            « D 2
            « C SELECT 1
            « Z T
            » Q SELECT c FROM t
            « T a
            « D x
            « C SELECT 1
            « Z T
            ! 4 was served whole, without 1 reads and with 1 others
            « C ROLLBACK
            « Z I
            idle: true
        "#]],
    );
}

#[test]
fn what_a_driver_asks_for_itself_does_not_tell_which_transaction_is_served() {
    check(
        "@ later
         @ claim serve 4
         @ recorded C BEGIN | Z T | T a | D 1 | C SELECT 1 | Z T | C ROLLBACK | Z I
         @ lookups - | - | -
         > Q BEGIN {5}
         > P n SELECT oid FROM pg_type | B p n | E p | S
         > Q SELECT a FROM t
         > Q ROLLBACK
         @ idle",
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
            ! claim of request 5: Serve(Tx(4))
            » [rollback*]
            « T a
            « D 1
            « C SELECT 1
            « Z T
            ! 4 was served whole
            « C ROLLBACK
            « Z I
            idle: true
        "#]],
    );
}
