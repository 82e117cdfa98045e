//! Rows that are served from the recording, and what they are described as.

use expect_test::expect;

use super::check;

#[test]
fn what_the_recording_does_not_describe_the_server_does() {
    check(
        "@ claim serve 4
         @ recorded C BEGIN | Z T | 2 | D x | C SELECT 1 | Z T | C ROLLBACK | Z I
         > Q BEGIN {5}
         > P one SELECT a FROM t | B p one | D P p | E p | S
         > Q ROLLBACK
         @ idle",
        expect![[r#"
            « C BEGIN
            « Z T
            ! claim of request 5: Serve(Tx(4))
            » Q BEGIN
            » [rollback*]
            » P one SELECT a FROM t
            » S
            « 1
            « 2
            » D S one
            » S
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
