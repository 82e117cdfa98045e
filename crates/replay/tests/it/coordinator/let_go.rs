//! Reads that go on out of order, since nothing else does.

use expect_test::expect;

use super::{How, check};

const RECORDED: How = How::Recorded { sequential: false };

/// The one that it waits for waits for it within the service.
#[test]
fn a_read_goes_on_where_nothing_else_would() {
    check(
        RECORDED,
        "request 1 0..100
         request 2 0..100
         tx 1 10..20 xid 100 sees 100: INSERT INTO t VALUES ($1)
         tx 2 30..40 sees 101: SELECT a FROM t",
        "claim 2 SELECT a FROM t
         may snapshot 1
         nothing-moves 1
         may snapshot 1",
        expect![[r#"
            claim 2 SELECT a FROM t => Run(Tx(1)) +1
            may snapshot 1 => no
            nothing-moves 1 +1
            may snapshot 1 => yes
        "#]],
    );
}

/// Likewise one statement of a transaction that writes. The rest of it waits as ever.
#[test]
fn a_statement_that_reads_goes_on_where_nothing_else_would() {
    let recorded = "request 1 0..100
         request 2 0..100
         tx 1 10..20 xid 100 sees 100: INSERT INTO t VALUES ($1)
         tx 2 30..40 xid 101 sees 101 read-committed told 9: BEGIN; SELECT a FROM t; UPDATE t SET a = $1; COMMIT";
    check(
        RECORDED,
        recorded,
        "claim 2 BEGIN; SELECT a FROM t
         asks-to-see 1
         may snapshot 1
         nothing-moves 1
         may snapshot 1
         sees-present 1
         may snapshot 1
         asks-to-see 1
         nothing-moves 1
         sees-present 1
         counts-let-go",
        expect![[r#"
            claim 2 BEGIN; SELECT a FROM t => Run(Tx(1)) +1
            asks-to-see 1
            may snapshot 1 => no
            nothing-moves 1 +1
            may snapshot 1 => yes
            sees-present 1 => true
            may snapshot 1 => no
            asks-to-see 1
            nothing-moves 1 +1
            sees-present 1 => true
            counts-let-go => 1
        "#]],
    );
    // It does more than read, or is one of several.
    check(
        RECORDED,
        recorded,
        "claim 2 BEGIN; SELECT a FROM t
         nothing-moves 1
         may snapshot 1
         sees-present 1",
        expect![[r#"
            claim 2 BEGIN; SELECT a FROM t => Run(Tx(1)) +1
            nothing-moves 1
            may snapshot 1 => no
            sees-present 1 => false
        "#]],
    );
    // It is not known what each statement saw.
    check(
        RECORDED,
        &recorded.replace("told 9", ""),
        "claim 2 BEGIN; SELECT a FROM t
         asks-to-see 1
         nothing-moves 1
         may snapshot 1",
        expect![[r#"
            claim 2 BEGIN; SELECT a FROM t => Run(Tx(1)) +1
            asks-to-see 1
            nothing-moves 1
            may snapshot 1 => no
        "#]],
    );
}
