use super::*;
use crate::inside::tests::{Collected, host};
use crate::redact::Redactor;

/// A connection on which this was carried: who (0: in), on whose behalf, what.
fn carried(all: &[(bool, u64, &[u8])]) -> Host {
    let mut host = host(&std::sync::Arc::new(Collected::default()));
    let mut outbound = Outbound::new(7, b"127.0.0.1:6379");
    for (at, (is_sent, turn, bytes)) in all.iter().enumerate() {
        let at = at as u64;
        let followed = match is_sent {
            true => outbound.sent(&mut host, at, Some(*turn), bytes),
            false => outbound.received(&mut host, at, bytes),
        };
        followed.unwrap();
    }
    host
}

fn taken(host: &mut Host, request: u64) -> Vec<(bool, String, String)> {
    let calls = host.calls.take(request, &Redactor::default());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let each = calls.iter();
    each.map(|call| (call.within, text(&call.sent), text(&call.received)))
        .collect()
}

fn call(within: bool, sent: &str, received: &str) -> (bool, String, String) {
    (within, sent.to_owned(), received.to_owned())
}

const PING: &str = "*1\r\n$4\r\nPING\r\n";
const GET: &str = "*2\r\n$3\r\nGET\r\n$1\r\na\r\n";

#[test]
fn answers_belong_to_what_was_asked_in_their_order_whoever_asked() {
    let mut host = carried(&[
        (true, 0, PING.as_bytes()),
        (false, 0, b"+PONG\r\n"),
        (true, 1, GET.as_bytes()),
        (true, 2, &GET.as_bytes()[..9]),
        (true, 2, &GET.as_bytes()[9..]),
        (false, 0, b"$1\r\nx"),
        (false, 0, b"\r\n$1\r\ny\r\n"),
    ]);
    let (first, second) = (taken(&mut host, 1), taken(&mut host, 2));
    assert_eq!(
        first,
        [
            call(false, PING, "+PONG\r\n"),
            call(true, GET, "$1\r\nx\r\n")
        ]
    );
    assert_eq!(second, [call(true, GET, "$1\r\ny\r\n")]);
    assert_eq!(taken(&mut host, 2), []);
}

#[test]
fn of_another_protocol_what_is_sent_before_an_answer_is_one_call() {
    let mut host = carried(&[
        (false, 0, b"220 ready\r\n"),
        (true, 3, b"EHLO "),
        (true, 3, b"me\r\n"),
        (false, 0, b"250 "),
        (false, 0, b"ok\r\n"),
        (true, 3, b"QUIT\r\n"),
    ]);
    let expected = [
        call(false, "", "220 ready\r\n"),
        call(true, "EHLO me\r\n", "250 ok\r\n"),
        call(true, "QUIT\r\n", ""),
    ];
    assert_eq!(taken(&mut host, 3), expected);
}

/// Who looks for a job waits for as long as requests come and go.
#[test]
fn what_nobody_asked_for_is_kept_until_it_is_answered() {
    let mut host = host(&std::sync::Arc::new(Collected::default()));
    let mut outbound = Outbound::new(7, b"127.0.0.1:6379");
    outbound.sent(&mut host, 0, None, GET.as_bytes()).unwrap();
    assert_eq!(taken(&mut host, 1), []);
    outbound.received(&mut host, 1, b"$1\r\n").unwrap();
    assert_eq!(taken(&mut host, 2), []);
    outbound.received(&mut host, 2, b"x\r\n").unwrap();
    assert_eq!(taken(&mut host, 3), [call(false, GET, "$1\r\nx\r\n")]);
}

#[test]
fn commands_of_redis_that_run_together_are_one_call() {
    let (multi, exec) = ("*1\r\n$5\r\nMULTI\r\n", "*1\r\n$4\r\nEXEC\r\n");
    let sent = [multi, GET, exec].concat();
    let mut host = carried(&[
        (true, 1, sent.as_bytes()),
        (false, 0, b"+OK\r\n+QUEUED\r\n"),
        (false, 0, b"*1\r\n$1\r\nx\r\n"),
        (true, 1, GET.as_bytes()),
        (false, 0, b"$-1\r\n"),
    ]);
    let together = call(true, &sent, "+OK\r\n+QUEUED\r\n*1\r\n$1\r\nx\r\n");
    assert_eq!(taken(&mut host, 1), [together, call(true, GET, "$-1\r\n")]);
}

#[test]
fn what_is_published_answers_nothing() {
    let subscribe = "*3\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n$1\r\nb\r\n";
    let answers = ["a", "b"].map(|it| format!("*3\r\n$9\r\nsubscribe\r\n$1\r\n{it}\r\n:1\r\n"));
    let message = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n";
    let mut host = carried(&[
        (true, 1, subscribe.as_bytes()),
        (false, 0, answers[0].as_bytes()),
        (false, 0, message.as_bytes()),
        (false, 0, answers[1].as_bytes()),
        (true, 1, PING.as_bytes()),
        (false, 0, b"+PONG\r\n"),
    ]);
    let expected = [
        call(false, "", message),
        call(true, subscribe, &answers.concat()),
        call(true, PING, "+PONG\r\n"),
    ];
    assert_eq!(taken(&mut host, 1), expected);
}
