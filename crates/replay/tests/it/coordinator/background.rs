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
