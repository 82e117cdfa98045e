//! FastCGI.

use Direction::{In, Out};
use expect_test::expect;
use hindcast_taplog::{Direction, Told};

use super::{Stage, comes_to_the_same_in_any_pieces};

const BEGIN: u8 = 1;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

fn record(kind: u8, request: u8, contents: &[u8]) -> Vec<u8> {
    let padding = (8 - contents.len() % 8) % 8;
    let length = (contents.len() as u16).to_be_bytes();
    let head = [1, kind, 0, request, length[0], length[1], padding as u8, 0];
    [&head[..], contents, &[0xff; 8][..padding]].concat()
}

fn begin(request: u8, keep: bool) -> Vec<u8> {
    record(BEGIN, request, &[0, 1, u8::from(keep), 0, 0, 0, 0, 0])
}

fn params(request: u8, all: &[(&str, &str)]) -> Vec<u8> {
    let mut contents = Vec::new();
    for (name, value) in all {
        contents.push(name.len() as u8);
        match value.len() {
            short @ 0..128 => contents.push(short as u8),
            long => contents.extend_from_slice(&(long as u32 | 1 << 31).to_be_bytes()),
        }
        contents.extend_from_slice(name.as_bytes());
        contents.extend_from_slice(value.as_bytes());
    }
    // A record's end may be in the middle of one.
    let (one, other) = contents.split_at(contents.len() / 2);
    [
        record(PARAMS, request, one),
        record(PARAMS, request, other),
        record(PARAMS, request, b""),
    ]
    .concat()
}

fn end(request: u8) -> Vec<u8> {
    record(END, request, &[0; 8])
}

fn post(request: u8, length: &str) -> Vec<u8> {
    let long = "l".repeat(200);
    params(
        request,
        &[
            ("REQUEST_METHOD", "POST"),
            ("REQUEST_URI", "/form?a=1"),
            ("QUERY_STRING", "a=1"),
            ("REDIRECT_QUERY_STRING", "a=1"),
            ("FULL_URL", "http://example/form?a=1"),
            ("SCRIPT_FILENAME", "/srv/index.php"),
            ("CONTENT_TYPE", "text/plain"),
            ("CONTENT_LENGTH", length),
            ("HTTP_HOST", "example"),
            ("HTTP_X_LONG", &long),
        ],
    )
}

fn get(request: u8) -> Vec<u8> {
    let all = [
        ("REQUEST_METHOD", "GET"),
        ("SCRIPT_NAME", "/index.php"),
        ("PATH_INFO", "/more"),
        ("QUERY_STRING", "b=2"),
        ("CONTENT_LENGTH", ""),
    ];
    params(request, &all)
}

#[test]
fn as_a_web_server_asks_and_php_answers() {
    let first = [
        begin(1, true),
        post(1, "11"),
        record(STDIN, 1, b"hello "),
        record(STDIN, 1, b"world"),
        record(STDIN, 1, b""),
    ]
    .concat();
    let answer = [
        record(STDERR, 1, b"a warning"),
        record(
            STDOUT,
            1,
            b"Status: 404 Not Found\r\nX-Powered-By: PHP\r\nContent-type: text/html\r\n\r\nno ",
        ),
        record(STDOUT, 1, b"such page"),
        record(STDOUT, 1, b""),
        end(1),
    ]
    .concat();
    let second = [begin(1, true), get(1), record(STDIN, 1, b"")].concat();
    let moved = [record(STDOUT, 1, b"Location: /else\n\n"), end(1)].concat();
    let said = [
        (Some(5), In, &first[..]),
        (None, Out, &answer[..]),
        (Some(6), In, &second[..]),
        (None, Out, &moved[..]),
    ];
    let mut stage = Stage::new();
    stage.accepted(1);
    for (turn, direction, bytes) in said {
        stage.told(Told::Turn {
            stream: 1,
            request: turn.unwrap_or(99),
        });
        match direction {
            In => stage.read(1, bytes),
            Out => stage.wrote(1, bytes),
        }
    }
    expect![[r#"
        5 @3-5 POST /form?a=1 (host=example x-long=llllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllll content-type=text/plain content-length=11 :fastcgi:SCRIPT_FILENAME=/srv/index.php) "hello world"
            404 (x-powered-by=PHP content-type=text/html) "no such page"
        6 @7-9 GET /index.php/more?b=2 (:fastcgi:SCRIPT_NAME=/index.php :fastcgi:PATH_INFO=/more)
            302 (location=/else) ""
    "#]].assert_eq(&stage.recorded());
    stage.finish();
    comes_to_the_same_in_any_pieces(&said);
}

#[test]
fn the_end_of_a_body_need_not_be_read() {
    let mut stage = Stage::new();
    stage.accepted(1);
    stage.read(
        1,
        &[begin(1, false), post(1, "5"), record(STDIN, 1, b"hello")].concat(),
    );
    stage.wrote(1, &[record(STDOUT, 1, b"A: b\r\n\r\nok"), end(1)].concat());
    assert_eq!(stage.requests().len(), 1, "{}", stage.recorded());
    stage.finish();
    assert_eq!(stage.requests().len(), 1);
}

#[test]
fn requests_that_share_a_connection() {
    let said = [
        [begin(1, true), begin(2, true), get(2), post(1, "3")].concat(),
        [record(STDOUT, 2, b"A: 2\r\n\r\ntwo"), end(2)].concat(),
        record(STDIN, 1, b"abc"),
        [record(STDOUT, 1, b"A: 1\r\n\r\none"), end(1)].concat(),
    ];
    let mut stage = Stage::new();
    stage.accepted(1);
    for pair in said.chunks(2) {
        stage.read(1, &pair[0]);
        stage.wrote(1, &pair[1]);
    }
    let recorded = stage.recorded();
    let second = recorded.find("@2-3 GET").expect("GET was recorded");
    assert!(
        recorded.find("@2-5 POST").expect("POST was recorded") > second,
        "{recorded}"
    );
    assert!(
        recorded.contains("\"two\"") && recorded.contains("\"one\""),
        "{recorded}"
    );
    stage.finish();
}

#[test]
fn what_ends_without_an_answer() {
    let mut stage = Stage::new();
    for stream in 1..=3 {
        stage.accepted(stream);
        stage.read(stream, &[begin(1, false), get(1)].concat());
    }
    stage.wrote(1, &end(1));
    stage.wrote(2, &record(STDOUT, 1, b"A: b\r\n\r\nthe beginn"));
    for stream in 1..=3 {
        stage.told(Told::Closed { stream });
    }
    stage.passes(6_000_000_000);
    expect![[r#"
        1000 @2-7 GET /index.php/more?b=2 (:fastcgi:SCRIPT_NAME=/index.php :fastcgi:PATH_INFO=/more)
            broken: the service ended it without an answer
        1001 @4-10 GET /index.php/more?b=2 (:fastcgi:SCRIPT_NAME=/index.php :fastcgi:PATH_INFO=/more)
            broken: the connection was closed after 10 bytes of the response
        1002 @6-11 GET /index.php/more?b=2 (:fastcgi:SCRIPT_NAME=/index.php :fastcgi:PATH_INFO=/more)
            broken: the connection was closed before the service had answered
    "#]].assert_eq(&stage.recorded());
    stage.finish();
}
