//! Reads that come nowhere.

use expect_test::expect;

use super::{How, check};

const RECORDED: How = How::Recorded { sequential: false };

#[test]
fn a_read_that_comes_nowhere_is_missing() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100
         tx 1 10..20 sees 100: SELECT name FROM kind
         tx 1 30..40 sees 100: SELECT a FROM t
         tx 2 30..40 sees 100: SELECT a FROM t",
        "claim 1 SELECT a FROM t
         ended 1
         answered 1
         claim 2 SELECT a FROM t
         claim 2 SELECT other FROM t
         ended 2
         answered 2
         settle
         moved",
        expect![[r#"
            claim 1 SELECT a FROM t => Run(Tx(1)) +1
            ended 1 +1
            answered 1 +1
            claim 2 SELECT a FROM t => Run(Tx(2)) +1
            claim 2 SELECT other FROM t => Extra
                2 - ExtraTransaction { recorded: 1, statement: "SELECT other FROM t" }
            ended 2 +1
            answered 2 +1
            settle
                1 0 MissingTransaction
            moved
        "#]],
    );
}

/// What another statement has put into a cache.
#[test]
fn a_read_that_the_code_goes_without_now_and_then_has_moved() {
    let recorded = "request 1 0..100
         request 2 0..100
         tx 1 10..20 sees 100: SELECT a FROM member
         tx 1 21..22 sees 100: SELECT name FROM kind
         tx 1 30..40 sees 100: SELECT a FROM t
         tx 2 21..29 sees 100: SELECT a FROM member
         tx 2 30..40 sees 100: SELECT a FROM t";
    check(
        RECORDED,
        recorded,
        "claim 1 SELECT a FROM member
         ended 1
         claim 1 SELECT a FROM t
         ended 3
         answered 1
         settle
         moved",
        expect![[r#"
            claim 1 SELECT a FROM member => Run(Tx(0)) +1
            ended 1 +1
            claim 1 SELECT a FROM t => Run(Tx(3)) +1
            ended 3 +1
            answered 1 +1
            settle
            moved => 1× SELECT name FROM kind
        "#]],
    );
    // Its request is different in something else, too.
    check(
        RECORDED,
        recorded,
        "claim 1 SELECT a FROM member
         ended 0 rolled-back
         claim 1 SELECT a FROM t
         ended 3
         answered 1
         settle
         moved",
        expect![[r#"
            claim 1 SELECT a FROM member => Run(Tx(0)) +1
            ended 0 rolled-back +1
                1 0 Failed { error: None, read_committed: false }
            claim 1 SELECT a FROM t => Run(Tx(3)) +1
            ended 3 +1
            answered 1 +1
            settle
                1 1 MissingTransaction
            moved
        "#]],
    );
}
