use super::*;

fn peer(calls: &[(u64, &str, &str)]) -> Peer {
    let mut all = Calls::default();
    for &(request, sent, received) in calls {
        let peer = all.peers.entry("x".to_owned()).or_default();
        peer.add(
            request,
            Call {
                within: request != 0,
                sent: sent.into(),
                received: received.into(),
                ..Call::default()
            },
        );
    }
    all.peers.remove("x").unwrap()
}

fn said(answer: Option<Answer>) -> Option<String> {
    answer.map(|answer| String::from_utf8(answer.bytes).unwrap())
}

const GET: &str = "GET /a HTTP/1.1\r\n\r\n";
const POST: &str = "POST /a HTTP/1.1\r\nContent-Length: 1\r\n\r\n";

#[test]
fn a_request_gets_its_own_answers_in_their_order() {
    let mut peer = peer(&[(1, GET, "1"), (2, GET, "2"), (2, GET, "3")]);
    let mut ask = |request| said(peer.answer(request, GET.as_bytes()));
    let answers = [ask(2), ask(1), ask(2)].map(Option::unwrap);
    assert_eq!(answers, ["2", "1", "3"]);
}

#[test]
fn what_is_redacted_does_not_keep_a_call_from_being_found() {
    let (recorded, asked) = (format!("{POST}x"), format!("{POST}y"));
    let mut peer = peer(&[(1, &recorded, "1")]);
    assert_eq!(said(peer.answer(2, asked.as_bytes())), None);
    assert_eq!(said(peer.answer(1, asked.as_bytes())), Some("1".to_owned()));
    assert_eq!(said(peer.answer(1, asked.as_bytes())), None);
}

#[test]
fn a_connection_is_set_up_by_anybody_and_without_the_password() {
    let recorded = "*1\r\n$4\r\nauth\r\n";
    let asked = "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n";
    let mut peer = peer(&[(1, recorded, "+OK\r\n")]);
    for request in [0, 1, 2] {
        let answer = peer.answer(request, asked.as_bytes());
        assert_eq!(said(answer), Some("+OK\r\n".to_owned()));
    }
}

#[test]
fn where_nothing_says_where_a_message_ends_more_is_waited_for() {
    let mut peer = peer(&[(0, "", "220 "), (1, "EHLO me\r\n", "250 ")]);
    assert_eq!(said(peer.greeting()), Some("220 ".to_owned()));
    assert_eq!(peer.answer_bytes(1, b"EHLO"), Found::More);
    assert!(matches!(
        peer.answer_bytes(1, b"EHLO me\r\n"),
        Found::Answer(_)
    ));
    assert_eq!(peer.answer_bytes(1, b"HELO"), Found::Nothing);
}
