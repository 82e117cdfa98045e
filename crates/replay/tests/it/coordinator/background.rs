//! What a service does outside of requests that ghosts do.

use expect_test::expect;

use super::{How, check};

/// A thread writes for several requests in one transaction. Now it does for one at a time, and the
/// recording has done it for both.
#[test]
fn who_lays_a_row_that_a_ghost_has_laid_does_no_other_ghost() {
    check(
        How::Recorded { sequential: false },
        "request 1 0..100
         tx ghost 10..20 xid 100 sees 100: INSERT INTO t VALUES ($1); INSERT INTO t VALUES ($1)
         tx ghost 30..40 xid 101 sees 101: INSERT INTO t VALUES ($1)",
        "background 0 INSERT INTO t VALUES (7); INSERT INTO t VALUES (8)
         is-laid INSERT INTO t VALUES (8)
         ghost-turn 0 0
         is-laid INSERT INTO t VALUES (8)
         is-laid INSERT INTO t VALUES (9)
         snapshot 0
         ended 0
         claim none INSERT INTO t VALUES (8)
         claim none INSERT INTO t VALUES (9)",
        expect![[r#"
            background 0 INSERT INTO t VALUES (7); INSERT INTO t VALUES (8)
            is-laid INSERT INTO t VALUES (8) => false
            ghost-turn 0 0 => Now +1
            is-laid INSERT INTO t VALUES (8) => true
            is-laid INSERT INTO t VALUES (9) => false
            snapshot 0 +1
            ended 0 +1
            claim none INSERT INTO t VALUES (8) => Outside
            claim none INSERT INTO t VALUES (9) => Run(Tx(1)) +1
        "#]],
    );
}

/// The service takes a ghost's place, and goes away in the middle of it. The recording does the
/// ghost then, behind what it was to come before, so it may read otherwise.
#[test]
fn a_ghost_that_is_done_late_may_read_otherwise() {
    check(
        How::Recorded { sequential: false },
        "request 1 0..100
         tx ghost 10..20 xid 100 sees 100: UPDATE t SET a = $1
         tx ghost 30..40 xid 101 sees 101: INSERT INTO t VALUES ($1)",
        "background 0 UPDATE t SET a = 7
         claim none UPDATE t SET a = 7
         snapshot 0
         lost 0
         ghost 0
         ended 0 results
         ghost 1
         snapshot 1
         ended 1 results",
        expect![[r#"
            background 0 UPDATE t SET a = 7
            claim none UPDATE t SET a = 7 => Run(Tx(0)) +1
            snapshot 0 +1
            lost 0 +1
            ghost 0 => true +1
            ended 0 results +1
            ghost 1 => true +1
            snapshot 1 +1
            ended 1 results +1
                - 1 OtherResults { expected_rows: 1, actual_rows: 2, expected_digest: 00000001, actual_digest: 000003e9, read_committed: false }
        "#]],
    );
}
