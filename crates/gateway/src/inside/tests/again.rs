//! What is recorded of FastCGI and uwsgi is sent again so that the same is recorded.

use expect_test::expect;
use hindcast_trace::Request;
use proptest::prelude::*;

use super::Stage;
use crate::inside::{Answered, CgiProtocol};

/// What is recorded of these bytes.
fn recorded(bytes: &[u8]) -> Vec<Request> {
    let mut stage = Stage::new();
    stage.accepted(1);
    stage.read(1, bytes);
    stage.told(hindcast_taplog::Told::Closed { stream: 1 });
    stage.passes(6_000_000_000);
    stage.finish();
    stage.requests()
}

fn request() -> impl Strategy<Value = Request> {
    let query = proptest::option::of("[a-z0-9=&%]{0,20}");
    let headers = proptest::collection::btree_map("x-[a-z]{1,8}", "[ -~]{0,200}", 0..6);
    let variables = proptest::collection::btree_map("[A-G_]{1,8}", "[ ->@-~]{0,300}", 0..6);
    let body = proptest::collection::vec(any::<u8>(), 0..3000);
    let parts = (
        "[A-Z]{3,7}",
        "/[a-z/]{0,9}",
        query,
        headers,
        variables,
        body,
    );
    parts.prop_map(|(method, path, query, headers, variables, body)| {
        let target = query.map_or(path.clone(), |query| format!("{path}?{query}"));
        let template = recorded(b"GET / HTTP/1.1\r\n\r\n").remove(0);
        let mut all: Vec<_> = headers
            .into_iter()
            .map(|(name, value)| (name, value.trim().as_bytes().to_vec()))
            .collect();
        if !body.is_empty() {
            all.push(("content-type".into(), b"text/plain".to_vec()));
            all.push(("content-length".into(), body.len().to_string().into()));
        }
        // No header is called so; it tells who sends it again how it came.
        all.extend(
            variables
                .into_iter()
                .map(|(name, value)| (name, value.into())),
        );
        Request {
            method,
            target,
            headers: all,
            body,
            ..template
        }
    })
}

fn comes_back(mut request: Request, protocol: CgiProtocol, prefix: &str) {
    let mut is_variable = false;
    for (name, value) in &mut request.headers {
        if name.starts_with(|first: char| first.is_ascii_uppercase() || first == '_') {
            *name = format!("{prefix}{name}");
            is_variable = true;
        } else {
            *value = value.trim_ascii().to_vec();
        }
    }
    if !is_variable {
        request.headers.push((prefix.to_owned(), Vec::new()));
    }
    assert_eq!(CgiProtocol::of(&request), Some(protocol));
    let sent = protocol.encode(&request, None).unwrap();
    let again = recorded(&sent).remove(0);
    assert_eq!(
        (&again.method, &again.target, &again.headers, &again.body),
        (
            &request.method,
            &request.target,
            &request.headers,
            &request.body
        )
    );
    assert_eq!(protocol.encode(&again, None).unwrap(), sent);
}

proptest! {
    #[test]
    fn a_request_of_fastcgi_comes_back(request in request()) {
        comes_back(request, CgiProtocol::FastCgi, ":fastcgi:");
    }

    #[test]
    fn a_request_of_uwsgi_comes_back(request in request()) {
        comes_back(request, CgiProtocol::Uwsgi, ":uwsgi:");
    }

    #[test]
    fn any_bytes_are_an_answer_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for protocol in [CgiProtocol::FastCgi, CgiProtocol::Uwsgi] {
            let mut answer = protocol.answer("GET");
            let whole = answer.take(&bytes);
            let _ = answer.finish(whole == Ok(true));
        }
    }
}

fn template() -> Request {
    recorded(b"GET /a?b=c HTTP/1.1\r\nHost: example\r\n\r\n").remove(0)
}

#[test]
fn http_is_neither() {
    assert_eq!(CgiProtocol::of(&template()), None);
}

#[test]
fn a_query_that_the_web_server_rewrote_is_kept() {
    let mut request = template();
    let kept = (":fastcgi:QUERY_STRING".to_owned(), b"q=/a&b=c".to_vec());
    request.headers.push(kept.clone());
    let sent = CgiProtocol::FastCgi
        .encode(&request, Some("00-1-2-03"))
        .unwrap();
    let again = recorded(&sent).remove(0);
    assert_eq!(again.target, "/a?b=c");
    assert!(again.headers.contains(&kept), "{:?}", again.headers);
    assert_eq!(again.caller_traceparent.as_deref(), Some("00-1-2-03"));
}

#[test]
fn no_variable_is_in_two_records() {
    let mut request = template();
    for number in 0..30 {
        let long = vec![b'v'; 4000];
        request.headers.push((format!(":fastcgi:V{number}"), long));
    }
    let sent = CgiProtocol::FastCgi.encode(&request, None).unwrap();
    // Each record of variables is one by itself.
    let mut rest = &sent[..];
    let mut seen = 0;
    while let [1, kind, _, _, high, low, 0, 0, contents @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (contents, behind) = contents.split_at(length);
        if *kind == 4 {
            seen += super::super::fastcgi::variables(contents).unwrap().len();
        }
        rest = behind;
    }
    assert!(rest.is_empty());
    assert_eq!(seen, 30 + 6);
    assert_eq!(recorded(&sent).remove(0).headers.len(), 31);
}

#[test]
fn what_has_no_room_is_said() {
    let mut request = template();
    request
        .headers
        .push((":uwsgi:LONG".into(), vec![b'v'; 70_000]));
    let sent = CgiProtocol::Uwsgi.encode(&request, None);
    expect!["its variables take more than the 65,535 bytes that uwsgi has room for"]
        .assert_eq(&sent.unwrap_err());
}

fn answered(protocol: CgiProtocol, method: &str, bytes: &[u8]) -> Result<Answered, String> {
    // In two pieces, wherever they are parted.
    for at in 0..bytes.len() {
        let mut answer = protocol.answer(method);
        let whole = answer.take(&bytes[..at]).unwrap() || answer.take(&bytes[at..]).unwrap();
        let parted = format!("{:?}", answer.finish(whole));
        let mut answer = protocol.answer(method);
        let whole = answer.take(bytes).unwrap();
        assert_eq!(
            parted,
            format!("{:?}", answer.finish(whole)),
            "parted at {at}"
        );
    }
    let mut answer = protocol.answer(method);
    let whole = answer.take(bytes).unwrap();
    answer.finish(whole)
}

#[test]
fn answers_are_read() {
    let record = |kind: u8, contents: &[u8]| {
        let head = [1, kind, 0, 1, 0, contents.len() as u8, 0, 0];
        [&head[..], contents].concat()
    };
    let found = record(6, b"Status: 404 Not Found\r\nA: b\r\n\r\nno ");
    let fastcgi = [found, record(7, b"a warning"), record(6, b"page")].concat();
    let whole = [&fastcgi[..], &record(3, &[0; 8])].concat();
    let fast = |bytes: &[u8]| answered(CgiProtocol::FastCgi, "GET", bytes);
    let page = fast(&whole).unwrap();
    assert_eq!((page.status, &page.body[..]), (404, &b"no page"[..]));
    assert_eq!(page.headers, [("a".to_owned(), b"b".to_vec())]);
    expect!["the response broke off after 7 bytes of its body"]
        .assert_eq(&fast(&fastcgi).unwrap_err());
    expect!["the service ended it without an answer"]
        .assert_eq(&fast(&record(3, &[0; 8])).unwrap_err());
    expect!["the service closed the connection before it had answered"]
        .assert_eq(&fast(&record(7, b"a warning")).unwrap_err());

    let uwsgi = |method, bytes: &[u8]| answered(CgiProtocol::Uwsgi, method, bytes);
    let until_closed = uwsgi("GET", b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nall").unwrap();
    assert_eq!(until_closed.body, b"all");
    let head = uwsgi("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n").unwrap();
    assert_eq!((head.status, head.body.len()), (200, 0));
    let short = uwsgi("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nabc");
    expect!["the response broke off after 3 bytes of its body"].assert_eq(&short.unwrap_err());
}
