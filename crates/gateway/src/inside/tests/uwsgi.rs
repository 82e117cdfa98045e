//! uwsgi.

use expect_test::expect;
use hindcast_taplog::Direction::{In, Out};
use hindcast_taplog::Told;

use super::{Stage, comes_to_the_same_in_any_pieces};

fn request(all: &[(&str, &str)]) -> Vec<u8> {
    let mut variables = Vec::new();
    for text in all.iter().flat_map(|(name, value)| [name, value]) {
        variables.extend_from_slice(&(text.len() as u16).to_le_bytes());
        variables.extend_from_slice(text.as_bytes());
    }
    let size = (variables.len() as u16).to_le_bytes();
    [&[0, size[0], size[1], 0], &variables[..]].concat()
}

#[test]
fn as_a_web_server_asks() {
    let mut asked = request(&[
        ("REQUEST_METHOD", "POST"),
        ("REQUEST_URI", "/form"),
        ("CONTENT_LENGTH", "5"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("HTTP_ACCEPT_LANGUAGE", "de"),
    ]);
    asked.extend_from_slice(b"hello");
    let said = [
        (Some(3), In, &asked[..]),
        (
            None,
            Out,
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n",
        ),
        (None, Out, b"until closed"),
    ];
    comes_to_the_same_in_any_pieces(&said);
    let mut stage = Stage::new();
    stage.accepted(1);
    stage.read(1, &asked);
    stage.wrote(1, said[1].2);
    stage.wrote(1, said[2].2);
    stage.told(Told::Closed { stream: 1 });
    stage.passes(1_000_000_000);
    expect![[r#"
        1000 @2-5 POST /form (accept-language=de content-length=5 :uwsgi:SERVER_PROTOCOL=HTTP/1.1) "hello"
            200 (content-type=text/plain) "until closed"
    "#]].assert_eq(&stage.recorded());
    stage.finish();
}

#[test]
fn a_head_has_no_body() {
    let mut stage = Stage::new();
    stage.accepted(1);
    stage.read(
        1,
        &request(&[("REQUEST_METHOD", "HEAD"), ("REQUEST_URI", "/x")]),
    );
    stage.wrote(1, b"HTTP/1.1 200 OK\r\nContent-Length: 70\r\n\r\n");
    assert_eq!(stage.requests().len(), 1);
    stage.finish();
}
