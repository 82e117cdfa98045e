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
