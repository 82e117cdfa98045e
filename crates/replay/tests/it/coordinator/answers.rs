//! Answers to what a request asked at a time come in the order in which they came.

use expect_test::expect;
use hindcast_order::Tx;
use hindcast_replay::monitor::Monitor;
use hindcast_replay::transaction::Ask;

use super::{How, Replay, check};

const RECORDED: How = How::Recorded { sequential: false };

/// Two are asked for at a time; what the second shows is asked for before the first is answered.
const LOADS: &str = "request 1 0..100
    tx 1 10..60 sees 100: SELECT a FROM t
    tx 1 11..30 sees 100: SELECT b FROM t
    tx 1 40..50 sees 100: SELECT c FROM t
    tx 1 70..80 sees 100: SELECT d FROM t";

#[test]
fn an_answer_waits_for_those_before_it_and_for_what_was_asked_before_it() {
    check(
        RECORDED,
        LOADS,
        "sent 1
         claim 1 SELECT a FROM t
         withhold 0
         ended 0
         awaits 0
         claim 1 SELECT b FROM t
         awaits 0
         withhold 1
         ended 1
         awaits 0
         may answer 0
         may answer 1
         gave 1
         awaits 0
         claim 1 SELECT c FROM t
         awaits 0
         withhold 2
         ended 2
         may answer 2
         gave 2
         may answer 0
         gave 0",
        expect![[r#"
            sent 1 +1
            claim 1 SELECT a FROM t => Run(Tx(0)) +1
            withhold 0
            ended 0 +1
            awaits 0 => Some(Begin(Tx(1)))
            claim 1 SELECT b FROM t => Run(Tx(1)) +1
            awaits 0 => Some(Answer(Tx(1)))
            withhold 1
            ended 1 +1
            awaits 0 => Some(Answer(Tx(1)))
            may answer 0 => no
            may answer 1 => yes
            gave 1
            awaits 0 => Some(Begin(Tx(2)))
            claim 1 SELECT c FROM t => Run(Tx(2)) +1
            awaits 0 => Some(Answer(Tx(2)))
            withhold 2
            ended 2 +1
            may answer 2 => yes
            gave 2
            may answer 0 => yes
            gave 0
        "#]],
    );
}

#[test]
fn an_answer_waits_for_none_that_was_over_or_that_another_request_has() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 sees 100: SELECT a FROM t
         request 2 0..100
         tx 2 12..18 sees 100: SELECT b FROM t
         tx 1 20..30 sees 100: SELECT c FROM t",
        "sent 1
         claim 1 SELECT a FROM t
         may answer 0
         claim 1 SELECT c FROM t
         may answer 2",
        expect![[r#"
            sent 1 +1
            claim 1 SELECT a FROM t => Run(Tx(0)) +1
            may answer 0 => yes
            claim 1 SELECT c FROM t => Run(Tx(2)) +1
            may answer 2 => yes
        "#]],
    );
}

/// Where its first statement comes is not known: behind this answer, perhaps.
#[test]
fn a_transaction_that_its_client_has_begun_need_not_have_come() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..40 sees 100: SELECT a FROM t
         tx 1 20..80 xid 100 sees 100: BEGIN; UPDATE t SET a = $1; COMMIT",
        "sent 1
         claim 1 SELECT a FROM t
         may answer 0",
        expect![[r#"
            sent 1 +1
            claim 1 SELECT a FROM t => Run(Tx(0)) +1
            may answer 0 => yes
        "#]],
    );
}

#[test]
fn what_does_not_come_several_times_is_not_waited_for_any_more() {
    let request = |number: u32| {
        format!(
            "request {number} {0}..{0}99
             tx {number} {0}10..{0}60 sees 100: SELECT a FROM t
             tx {number} {0}20..{0}70 sees 100: SELECT b FROM t\n",
            number
        )
    };
    let recording: String = (1..=5).map(request).collect();
    let mut replay = Replay::new(&recording, RECORDED);
    for number in 0..5 {
        let (one, tx) = (number + 1, 2 * number);
        replay.run(&format!("sent {one}\nclaim {one} SELECT a FROM t"));
        let waits = replay.coordinator.answer_awaits(Tx(tx)).is_some();
        assert_eq!(waits, number < 4, "{number}");
        if waits {
            replay.run(&format!("in-vain {tx}"));
        }
    }
}

#[test]
fn changed_code_that_does_not_ask_again_goes_on() {
    check(
        How::Changed,
        LOADS,
        "sent 1
         claim 1 SELECT a FROM t
         awaits 0
         claim 1 SELECT d FROM t
         awaits 0",
        expect![[r#"
            sent 1 +1
            claim 1 SELECT a FROM t => Run(Tx(0)) +1
            awaits 0 => None
            claim 1 SELECT d FROM t => Run(Tx(3)) +1
            awaits 0 => None
        "#]],
    );
}

#[tokio::test]
async fn nothing_waits_for_long_for_what_does_not_come() {
    let mut replay = Replay::new(LOADS, RECORDED);
    replay.run("sent 1\nclaim 1 SELECT a FROM t");
    let monitor = Monitor::new(replay.coordinator);
    let permission = monitor.permission(Ask::Answer(Tx(0)));
    let longest = 100 * Ask::ANSWER_PATIENCE;
    let waited = tokio::time::timeout(longest, permission);
    waited.await.expect("it goes on");
}

/// Two things at a time, which had one connection, and now have two.
#[test]
fn what_is_behind_an_answer_that_was_not_given_still_comes() {
    check(
        RECORDED,
        "request 1 0..100
         tx 1 10..20 with 1 sees 100: SELECT a FROM t WHERE id = $1
         tx 1 20..30 with 1 sees 100: SELECT b FROM t WHERE id = $1
         tx 1 30..40 with 2 sees 100: SELECT a FROM t WHERE id = $1
         tx 1 40..50 with 2 sees 100: SELECT b FROM t WHERE id = $1
         request 2 200..300
         tx 2 210..220 with 1 sees 100: SELECT b FROM t WHERE id = $1",
        "sent 1
         claim 1 SELECT a FROM t WHERE id = 1
         claim 1 SELECT a FROM t WHERE id = 2
         withhold 0
         ended 0
         gave 0
         claim 1 SELECT b FROM t WHERE id = 1
         ended 2
         claim 1 SELECT b FROM t WHERE id = 2
         moved",
        expect![[r#"
            sent 1 +1
            claim 1 SELECT a FROM t WHERE id = 1 => Run(Tx(0)) +1
            claim 1 SELECT a FROM t WHERE id = 2 => Run(Tx(2)) +1
            withhold 0
            ended 0 +1
            gave 0
            claim 1 SELECT b FROM t WHERE id = 1 => Run(Tx(1)) +1
            ended 2 +1
            claim 1 SELECT b FROM t WHERE id = 2 => Run(Tx(3)) +1
            moved
        "#]],
    );
}
