//! HTTP/1.

use expect_test::{Expect, expect};
use hindcast_taplog::{Direction, How, Told};
use proptest::prelude::*;

use super::super::stream::{Kind, recognise};
use super::{Said, Stage, comes_to_the_same_in_any_pieces};
use Direction::{In, Out};

/// What is recorded of a connection that carries this and is closed.
fn check(said: &[Said<'_>], expected: Expect) {
    let mut stage = Stage::new();
    stage.carries(said);
    expected.assert_eq(&stage.recorded());
    stage.finish();
    comes_to_the_same_in_any_pieces(said);
}

#[test]
fn one_after_the_other_on_a_connection() {
    check(
        &[
            (
                Some(7),
                In,
                b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nX-Two: 1\r\nX-Two: 2\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
            ),
            (None, Out, b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\nDate: now\r\n\r\ndone"),
            (
                Some(9),
                In,
                b"GET http://other/b HTTP/1.1\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\r\n",
            ),
            (None, Out, b"HTTP/1.1 204 No Content\r\n\r\n"),
        ],
        expect![[r#"
            7 @3-4 POST /a?b=c (host=x x-two=1 x-two=2 content-length=5 connection=keep-alive) "hello"
                201 (content-length=4 date=now) "done"
            9 @6-7 GET /b (host=other) caller 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
                204 () ""
        "#]],
    );
}

#[test]
fn chunks_both_ways_with_trailers() {
    check(
        &[
            (
                Some(1),
                In,
                b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;name=value\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n",
            ),
            (
                None,
                Out,
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nTrailer: grpc-status\r\n\r\n5\r\nhello\r\n0\r\ngrpc-status: 0\r\n\r\n",
            ),
            (Some(2), In, b"GET / HTTP/1.1\r\n\r\n"),
            (None, Out, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ],
        expect![[r#"
            1 @3-4 PUT / () "abc0123456789"
                200 (grpc-status=0) "hello"
            2 @6-7 GET / ()
                200 () ""
        "#]],
    );
}

#[test]
fn answers_without_a_body_although_they_say_how_long_it_is() {
    check(
        &[
            (Some(1), In, b"HEAD /long HTTP/1.1\r\n\r\n"),
            (
                None,
                Out,
                b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n",
            ),
            (Some(2), In, b"GET /same HTTP/1.1\r\n\r\n"),
            (
                None,
                Out,
                b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5000\r\n\r\n",
            ),
            (Some(3), In, b"GET /last HTTP/1.1\r\n\r\n"),
            (None, Out, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!"),
        ],
        expect![[r#"
            1 @3-4 HEAD /long ()
                200 (content-length=5000) ""
            2 @6-7 GET /same ()
                304 (content-length=5000) ""
            3 @9-10 GET /last ()
                200 (content-length=1) "!"
        "#]],
    );
}

#[test]
fn an_answer_that_ends_when_the_connection_does() {
    check(
        &[
            (Some(1), In, b"GET /page HTTP/1.0\r\n\r\n"),
            (None, Out, b"HTTP/1.0 200 OK\r\n\r\n"),
            (None, Out, b"all that "),
            (None, Out, b"comes"),
        ],
        expect![[r#"
            1 @3-7 GET /page ()
                200 () "all that comes"
        "#]],
    );
}

#[test]
fn a_request_that_waits_to_be_told_to_continue_has_the_turn_in_which_it_is_read() {
    check(
        &[
            (
                Some(4),
                In,
                b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
            ),
            (None, Out, b"HTTP/1.1 100 Continue\r\n\r\n"),
            (Some(5), In, b"body"),
            (None, Out, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        ],
        expect![[r#"
            5 @3-7 POST / (expect=100-continue content-length=4) "body"
                200 (content-length=2) "ok"
        "#]],
    );
}

#[test]
fn requests_that_are_sent_without_waiting_are_answered_in_order() {
    let mut stage = Stage::new();
    stage.accepted(1);
    stage.told(Told::Turn {
        stream: 1,
        request: 3,
    });
    stage.read(1, b"GET /a HTTP/1.1\r\n\r\nHEAD /b HTTP/1.1\r\n\r\nGET /c");
    stage.read(1, b" HTTP/1.1\r\n\r\n\r\n");
    stage.wrote(
        1,
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
    );
    stage.wrote(1, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    expect![[r#"
        3 @3-5 GET /a ()
            200 (content-length=1) "a"
        1000 @3-5 HEAD /b ()
            200 (content-length=9) ""
        1001 @3-6 GET /c ()
            404 (content-length=0) ""
    "#]]
    .assert_eq(&stage.recorded());
    assert_eq!(stage.seen().without_turn, 2);
    stage.finish();
}

#[test]
fn a_request_whose_rest_is_read_in_a_turn_of_its_own_has_that_number() {
    let mut stage = Stage::new();
    stage.accepted(1);
    stage.told(Told::Turn {
        stream: 1,
        request: 3,
    });
    stage.read(1, b"GET /a HTTP/1.1\r\n\r\nGET /b HT");
    stage.wrote(1, b"HTTP/1.1 204 No\r\n\r\n");
    stage.told(Told::Turn {
        stream: 1,
        request: 8,
    });
    stage.read(1, b"TP/1.1\r\n\r\n");
    stage.wrote(1, b"HTTP/1.1 204 No\r\n\r\n");
    expect![[r#"
        3 @3-4 GET /a ()
            204 () ""
        8 @3-7 GET /b ()
            204 () ""
    "#]]
    .assert_eq(&stage.recorded());
    stage.finish();
}

#[test]
fn what_is_answered_early_is_whole_when_the_rest_has_been_read() {
    let mut stage = Stage::new();
    stage.accepted(1);
    stage.read(1, b"POST /a HTTP/1.1\r\nContent-Length: 9\r\n\r\n1234");
    stage.wrote(1, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(stage.recorded(), "");
    stage.read(1, b"56789");
    stage.read(1, b"POST /b HTTP/1.1\r\nContent-Length: 9\r\n\r\n1234");
    stage.wrote(1, b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
    stage.told(Told::Closed { stream: 1 });
    stage.passes(1_000_000_000);
    expect![[r#"
        1000 @2-3 POST /a (content-length=9) "123456789"
            200 (content-length=0) ""
        1001 @5-6 POST /b (content-length=9) "1234"
            unrecorded: the service answered before it had read the whole request
    "#]]
    .assert_eq(&stage.recorded());
    stage.finish();
}

#[test]
fn what_goes_on_in_another_protocol_is_left_alone() {
    let mut stage = Stage::new();
    for stream in 1..=3 {
        stage.accepted(stream);
    }
    stage.read(
        1,
        b"GET /socket HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    );
    // Told before the write that permits it.
    stage.read(1, b"\x81\x05hello");
    stage.wrote(
        1,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x81\x05hello",
    );
    stage.read(1, b"GET / HTTP/1.1\r\n\r\n");
    stage.wrote(1, b"\x81\x05hello");
    stage.read(2, b"CONNECT a:1 HTTP/1.1\r\n\r\n");
    stage.wrote(2, b"HTTP/1.1 200 OK\r\n\r\n");
    stage.read(2, b"\x16\x03\x01");
    // What is offered in passing does no harm.
    stage.read(
        3,
        b"GET /plain HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
    );
    stage.wrote(3, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    expect![[r#"
        1000 @4-6 GET /socket ()
            unrecorded: the connection was upgraded to websocket
        1001 @9-10 CONNECT a:1 ()
            unrecorded: CONNECT is for proxies
        1002 @12-13 GET /plain ()
            200 (content-length=0) ""
    "#]]
    .assert_eq(&stage.recorded());
    let seen = stage.seen();
    assert_eq!((seen.upgraded, seen.malformed, seen.http1), (2, 0, 3));
    stage.finish();
}

#[test]
fn a_body_over_the_limit_is_not_kept_and_the_request_not_recorded() {
    let mut stage = Stage::new();
    stage.accepted(1);
    let body = vec![b'x'; (1 << 20) + 1];
    let head = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
    stage.read(1, head.as_bytes());
    for part in body.chunks(16 << 10) {
        stage.read(1, part);
    }
    stage.wrote(1, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    expect![[r#"
        1000 @2-68 POST / (content-length=1048577)
            unrecorded: the request's body is longer than the 1048576 bytes that are kept
    "#]]
    .assert_eq(&stage.recorded());
    stage.finish();
}

#[test]
fn who_is_asked_twice_for_nothing_answers_nothing() {
    let mut stage = Stage::new();
    stage.accepted(1);
    stage.wrote(1, b"HTTP/1.1 408 Request Timeout\r\n\r\n");
    stage.read(1, b"GET / HTTP/1.1\r\n\r\n");
    stage.wrote(1, b"HTTP/1.1 204 No\r\n\r\n");
    stage.wrote(1, b"HTTP/1.1 408 Request Timeout\r\n\r\n");
    expect![[r#"
        1000 @3-4 GET / ()
            204 () ""
    "#]]
    .assert_eq(&stage.recorded());
    assert_eq!(stage.seen().unasked_answers, 1);
    stage.finish();
}

#[test]
fn what_connections_carry_is_told_by_their_first_bytes() {
    let check = |bytes: &[u8], expected| {
        assert_eq!(recognise(bytes), Some(expected), "{bytes:?}");
        for end in 0..bytes.len() {
            let early = recognise(&bytes[..end]);
            assert!(
                early.is_none_or(|early| early == expected),
                "{:?}",
                &bytes[..end]
            );
        }
    };
    check(b"GET / HTTP/1.1\r\n", Kind::Http1);
    check(b"\r\nPROPFIND / HTTP/1.1\r\n", Kind::Http1);
    check(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Kind::Http2);
    check(b"PRINT / HTTP/1.1\r\n", Kind::Http1);
    check(b"\x16\x03\x01\x02\x00\x01", Kind::Tls);
    check(b"\x01\x01\x00\x01\x00\x08\x00\x00", Kind::FastCgi);
    check(b"\x00\x40\x01\x00\x0e\x00REQUEST_METHOD", Kind::Uwsgi);
    check(b"\x00\x00\x00\x00", Kind::Other);
    check(b"\x03\x00\x00\x16", Kind::Other);
    check(&[b'A'; 40], Kind::Other);
    check(b"EHLO\r\n", Kind::Other);
}

#[test]
fn what_the_service_did_not_accept_is_none_of_ours() {
    let mut stage = Stage::new();
    for (stream, how) in [(1, How::Connected), (2, How::Found), (3, How::Found)] {
        stage.told(Told::Opened {
            stream,
            how,
            local: b"",
            peer: b"",
        });
    }
    stage.told(Told::Turn {
        stream: 3,
        request: 6,
    });
    for stream in 1..=3 {
        stage.read(stream, b"GET / HTTP/1.1\r\n\r\n");
        stage.wrote(stream, b"HTTP/1.1 204 No\r\n\r\n");
    }
    expect![[r#"
        6 @9-10 GET / ()
            204 () ""
    "#]]
    .assert_eq(&stage.recorded());
    stage.finish();
}

#[test]
fn what_a_service_asks_of_itself_is_a_part_of_the_request() {
    let mut stage = Stage::new();
    let turn = |stream, request| Told::Turn { stream, request };
    for stream in 1..=4 {
        stage.accepted(stream);
    }
    stage.told(turn(1, 5));
    stage.read(1, b"GET /outer HTTP/1.1\r\n\r\n");
    stage.told(turn(2, 5));
    stage.read(2, b"GET /inner HTTP/1.1\r\n\r\n");
    stage.wrote(2, b"HTTP/1.1 204 No\r\n\r\n");
    stage.wrote(1, b"HTTP/1.1 204 No\r\n\r\n");
    stage.told(turn(2, 5));
    stage.read(2, b"GET /afterwards HTTP/1.1\r\n\r\n");
    stage.wrote(2, b"HTTP/1.1 204 No\r\n\r\n");
    // If the outer one cannot be followed, the inner one is what there is.
    stage.told(turn(3, 6));
    stage.read(3, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    stage.told(turn(4, 6));
    stage.read(4, b"GET /seen HTTP/1.1\r\n\r\n");
    stage.wrote(4, b"HTTP/1.1 204 No\r\n\r\n");
    expect![[r#"
        5 @6-10 GET /outer ()
            204 () ""
        6 @17-18 GET /seen ()
            204 () ""
    "#]]
    .assert_eq(&stage.recorded());
    assert_eq!(stage.seen().within, 2);
    stage.finish();
}

/// Who connects first is told of before it is known that the service listens there.
#[test]
fn what_a_service_asks_of_itself_is_no_call_of_another_also_the_first_time() {
    let mut stage = Stage::new();
    let turn = |stream, request| Told::Turn { stream, request };
    let opened = |stream, how, local, peer| Told::Opened {
        stream,
        how,
        local,
        peer,
    };
    stage.accepted(1);
    stage.told(turn(1, 5));
    stage.read(1, b"GET / HTTP/1.1\r\n\r\n");
    let own = b"unix:/run/own.sock";
    stage.told(opened(2, How::Connected, own, own));
    stage.told(opened(3, How::Connected, b"", b"127.0.0.1:6379"));
    stage.told(opened(4, How::Accepted, own, b""));
    for stream in [2, 3] {
        stage.told(turn(stream, 5));
        stage.wrote(stream, b"*1\r\n$4\r\nPING\r\n");
        stage.read(stream, b"+PONG\r\n");
    }
    stage.wrote(1, b"HTTP/1.1 204 No\r\n\r\n");
    let requests = stage.collected.requests.lock().unwrap();
    let calls: Vec<_> = requests[0].calls.iter().map(|call| &call.peer).collect();
    assert_eq!(calls, ["127.0.0.1:6379"]);
}

#[test]
fn closed_by_a_parent_and_served_by_a_child() {
    let mut stage = Stage::new();
    stage.accepted(1);
    stage.told(Told::Closed { stream: 1 });
    // Ring 4 is of another program.
    stage.now += 1_000_000_000;
    let now = stage.now;
    let say = |stage: &mut Stage, after: u64, told| {
        stage.streams.told(4, std::iter::once((now + after, told)));
    };
    let read = Told::Bytes {
        stream: 1,
        direction: In,
        bytes: b"GET / HTTP/1.0\r\n\r\n",
    };
    say(&mut stage, 0, read);
    let wrote = Told::Bytes {
        stream: 1,
        direction: Out,
        bytes: b"HTTP/1.0 200 OK\r\n\r\nall",
    };
    say(&mut stage, 2_000_000_000, wrote);
    stage.passes(3_000_000_000);
    assert_eq!(stage.recorded(), "", "the child has it open");
    // The child is killed: it does not say that it closes anything.
    stage.streams.ended(4);
    for ring in 5..8 {
        stage.streams.ended(ring);
    }
    stage.passes(1_000_000_000);
    stage.passes(1_000_000_000);
    expect![[r#"
        1000 @1000002-3000002 GET / ()
            200 () "all"
    "#]]
    .assert_eq(&stage.recorded());
    stage.finish();
}

proptest! {
    /// Whatever the bodies, and however they are framed.
    #[test]
    fn bodies_are_what_was_sent(
        exchanges in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..50), prop::collection::vec(any::<u8>(), 0..50), any::<(bool, bool)>(), 1..20usize),
            1..4,
        ),
        pieces in prop::collection::vec(1..40usize, 1..20),
    ) {
        let framed = |first: &str, body: &[u8], chunked: bool, size: usize| {
            let mut out = first.as_bytes().to_vec();
            match chunked {
                true => {
                    out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                    for chunk in body.chunks(size) {
                        out.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                        out.extend_from_slice(chunk);
                        out.extend_from_slice(b"\r\n");
                    }
                    out.extend_from_slice(b"0\r\n\r\n");
                }
                false => {
                    out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
                    out.extend_from_slice(body);
                }
            }
            out
        };
        let mut stage = Stage::new();
        stage.accepted(1);
        let mut sizes = pieces.iter().cycle();
        for (request, answer, (one, other), size) in &exchanges {
            let mut request = &framed("PUT / HTTP/1.1\r\n", request, *one, *size)[..];
            while !request.is_empty() {
                let (piece, rest) = request.split_at(request.len().min(*sizes.next().unwrap()));
                stage.read(1, piece);
                request = rest;
            }
            let mut answer = &framed("HTTP/1.1 200 OK\r\n", answer, *other, *size)[..];
            while !answer.is_empty() {
                let (piece, rest) = answer.split_at(answer.len().min(*sizes.next().unwrap()));
                stage.wrote(1, piece);
                answer = rest;
            }
        }
        let recorded = stage.requests();
        stage.finish();
        prop_assert_eq!(recorded.len(), exchanges.len());
        for (recorded, (request, answer, ..)) in recorded.iter().zip(&exchanges) {
            prop_assert_eq!(&recorded.body, request);
            let hindcast_trace::Response::Answered { body, body_digest, .. } = &recorded.response else {
                panic!("{recorded:?}");
            };
            prop_assert_eq!(body.as_ref(), Some(answer));
            prop_assert_eq!(*body_digest, hindcast_trace::Digest::of(answer));
        }
    }
}
