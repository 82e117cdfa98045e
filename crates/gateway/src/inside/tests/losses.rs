//! What was not told.

use expect_test::expect;
use hindcast_taplog::{Direction, Told};

use super::Stage;
use Direction::{In, Out};

fn lost(stream: Option<u64>) -> Told<'static> {
    Told::Lost {
        stream,
        records: 2,
        bytes: 100,
    }
}

#[test]
fn a_body_that_goes_from_a_file_to_the_socket_has_a_length() {
    let mut stage = Stage::new();
    stage.accepted(1);
    let unseen = |length| Told::Unseen {
        stream: 1,
        direction: Out,
        length,
    };
    stage.read(1, b"GET /file HTTP/1.1\r\n\r\n");
    stage.wrote(1, b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n");
    stage.told(unseen(4000));
    stage.told(unseen(1000));
    stage.read(1, b"GET /next HTTP/1.1\r\n\r\n");
    stage.wrote(
        1,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n",
    );
    stage.told(unseen(5));
    stage.wrote(1, b"\r\n0\r\n\r\n");
    stage.read(1, b"GET /last HTTP/1.1\r\n\r\n");
    stage.wrote(1, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!");
    expect![[r#"
        1000 @2-5 GET /file ()
            broken: answered with 200, but 5000 of the 5000 bytes of the body went from a file to the socket without being seen
        1001 @6-9 GET /next ()
            broken: answered with 200, but 5 of the 5 bytes of the body went from a file to the socket without being seen
        1002 @10-11 GET /last ()
            200 (content-length=1) "!"
    "#]].assert_eq(&stage.recorded());
    assert_eq!((stage.seen().malformed, stage.seen().partly_seen), (0, 2));
    stage.finish();
}

#[test]
fn a_request_that_goes_from_the_socket_to_a_file_cannot_be_sent_again() {
    let mut stage = Stage::new();
    stage.accepted(1);
    stage.read(1, b"PUT /file HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
    stage.told(Told::Unseen {
        stream: 1,
        direction: In,
        length: 7,
    });
    stage.wrote(1, b"HTTP/1.1 204 No\r\n\r\n");
    expect![[r#"
        1000 @2-4 PUT /file (content-length=10) "abc"
            unrecorded: a part of the request's body went from the socket to a file without being seen
    "#]].assert_eq(&stage.recorded());
    stage.finish();
}

#[test]
fn requests_are_known_where_answers_go_by_stdio() {
    let mut stage = Stage::new();
    stage.accepted(1);
    stage.read(1, b"GET /a HTTP/1.0\r\n\r\n");
    stage.told(Told::Unseen {
        stream: 1,
        direction: Out,
        length: u64::MAX,
    });
    expect![[r#"
        1000 @2-3 GET /a ()
            broken: the service answers by stdio, which is not seen
    "#]]
    .assert_eq(&stage.recorded());
    stage.finish();
}

#[test]
fn what_a_full_ring_lost_is_found_again_with_the_next_turn() {
    let mut stage = Stage::new();
    for stream in 1..=3 {
        stage.accepted(stream);
    }
    stage.read(1, b"POST /read HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
    stage.read(2, b"POST /half HTTP/1.1\r\nContent-Length: 3\r\n\r\na");
    stage.read(3, b"GET /other HTTP/1.1\r\n\r\n");
    stage.told(lost(Some(1)));
    stage.told(lost(Some(2)));
    // The rest of what is not known.
    stage.wrote(1, b"k, and more\r\n\r\n");
    stage.read(2, b"c");
    stage.wrote(3, b"HTTP/1.1 204 No\r\n\r\n");
    for (stream, request) in [(1, 50), (2, 51)] {
        stage.told(Told::Turn { stream, request });
        stage.read(stream, b"GET /again HTTP/1.1\r\n\r\n");
        stage.wrote(stream, b"HTTP/1.1 204 No\r\n\r\n");
    }
    expect![[r#"
        1000 @4-7 POST /read (content-length=3) "abc"
            broken: a part of what its connection carried was not told: the tap had no room for it
        1002 @5-8 POST /half (content-length=3) "a"
            unrecorded: a part of what its connection carried was not told: the tap had no room for it
        1001 @6-11 GET /other ()
            204 () ""
        50 @13-14 GET /again ()
            204 () ""
        51 @16-17 GET /again ()
            204 () ""
    "#]].assert_eq(&stage.recorded());
    let seen = stage.seen();
    assert_eq!((seen.lost_records, seen.lost_bytes), (4, 200));
    stage.finish();
}

#[test]
fn what_may_be_of_any_stream_is_of_all_that_are_in_the_middle_of_something() {
    let mut stage = Stage::new();
    for stream in 1..=3 {
        stage.accepted(stream);
    }
    stage.read(1, b"GET /waits HTTP/1.1\r\n\r\n");
    stage.read(2, b"GET /answered HTTP/1.1\r\n\r\n");
    stage.wrote(2, b"HTTP/1.1 204 No\r\n\r\n");
    stage.told(lost(None));
    // As it is found out in the end.
    stage.streams.told(0, std::iter::once((0, lost(None))));
    for stream in [2, 3] {
        stage.read(stream, b"GET /later HTTP/1.1\r\n\r\n");
        stage.wrote(stream, b"HTTP/1.1 204 No\r\n\r\n");
    }
    expect![[r#"
        1001 @5-6 GET /answered ()
            204 () ""
        1000 @4-7 GET /waits ()
            broken: a part of what its connection carried was not told: the tap had no room for it
        1002 @8-9 GET /later ()
            204 () ""
        1003 @10-11 GET /later ()
            204 () ""
    "#]]
    .assert_eq(&stage.recorded());
    stage.finish();
}

#[test]
fn a_connection_that_goes_on_with_something_else_is_left_until_the_next_turn() {
    let mut stage = Stage::new();
    stage.accepted(1);
    stage.read(1, b"GET /a HTTP/1.1\r\n\r\n");
    stage.wrote(1, b"220 mail.example ESMTP\r\n\r\n");
    stage.read(1, b"\x80\x00\x00");
    stage.wrote(1, b"500\r\n");
    stage.read(1, b"GET /b HTTP/1.1\r\n\r\n");
    stage.wrote(1, b"HTTP/1.1 204 No\r\n\r\n");
    expect![[r#"
        1000 @2-3 GET /a ()
            broken: its connection went on with what is not the protocol that it began with
        1001 @6-7 GET /b ()
            204 () ""
    "#]]
    .assert_eq(&stage.recorded());
    assert_eq!(stage.seen().malformed, 1);
    stage.finish();
}

#[test]
fn what_is_in_flight_when_the_recording_ends_has_no_answer() {
    let mut stage = Stage::new();
    for stream in 1..=3 {
        stage.accepted(stream);
    }
    stage.read(1, b"GET /waits HTTP/1.1\r\n\r\n");
    stage.read(2, b"POST /half HTTP/1.1\r\nContent-Length: 3\r\n\r\na");
    stage.read(3, b"GET /answered HTTP/1.1\r\n\r\n");
    stage.wrote(3, b"HTTP/1.1 200 OK\r\n\r\nuntil");
    stage.finish();
    let mut lines: Vec<_> = stage.requests().iter().map(super::as_text).collect();
    lines.sort();
    expect![[r#"
        1000 @4-7 GET /waits ()
            broken: the recording ended before the service had answered
        1001 @6-7 GET /answered ()
            broken: the recording ended before the service had answered
        1002 @5-7 POST /half (content-length=3) "a"
            unrecorded: the recording ended before the service had answered"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn many_losses_become_one_gap() {
    let mut stage = Stage::new();
    for _ in 0..50 {
        stage.told(lost(None));
    }
    assert_eq!(stage.recorded(), "");
    stage.passes(1_000_000_000);
    stage.told(lost(None));
    stage.finish();
    assert_eq!(stage.recorded().lines().count(), 2, "{}", stage.recorded());
}

#[test]
fn numbers_that_no_request_can_have_are_replaced() {
    let mut stage = Stage::new();
    stage.accepted(1);
    for request in [u64::MAX, 1 << 44, 17] {
        stage.told(Told::Turn { stream: 1, request });
        stage.read(1, b"GET /a HTTP/1.1\r\n\r\n");
        stage.wrote(1, b"HTTP/1.1 204 No\r\n\r\n");
    }
    let numbers: Vec<u64> = stage.requests().iter().map(|one| one.id.0).collect();
    assert_eq!(numbers, [super::OTHERS, super::OTHERS + 1, 17]);
    stage.finish();
}
