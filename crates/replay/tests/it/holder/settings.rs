//! Settings that a driver shows.

use expect_test::expect;

use super::check;

/// Rails shows a setting once on each connection, in the midst of whichever transaction is first.
#[test]
fn a_setting_that_a_driver_shows_is_no_part_of_what_is_served() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | E ERROR 23505 taken | Z E | C ROLLBACK | Z I
         @ lookups - | - | -
         > Q BEGIN {5}
         > Q SHOW max_identifier_length
         > Q INSERT INTO t VALUES (1)
         > Q ROLLBACK
         @ idle",
        expect![[r#"
            « C BEGIN
            « Z T
            » Q BEGIN
            » Q SHOW max_identifier_length
            « T a
            « D on
            « C SHOW
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » [rollback*]
            « E ERROR 23505 taken
            « Z E
            ! 4 was served whole
            « C ROLLBACK
            « Z I
            idle: true
        "#]],
    );
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | T l | D 63 | C SHOW | Z T | E ERROR 23505 taken | Z E | C ROLLBACK | Z I
         @ lookups - | SHOW max_identifier_length | - | -
         > Q BEGIN {5}
         > Q INSERT INTO t VALUES (1)
         > Q ROLLBACK
         @ idle",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            « E ERROR 23505 taken
            « Z E
            ! 4 was served whole
            « C ROLLBACK
            « Z I
            idle: true
        "#]],
    );
}
