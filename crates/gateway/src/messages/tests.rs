use super::*;

/// All messages that come of bytes in pieces of a length.
fn cut(mut messages: Messages, bytes: &[u8], length: usize) -> Vec<String> {
    let (mut all, mut message) = (Vec::new(), Vec::new());
    for mut piece in bytes.chunks(length) {
        while !piece.is_empty() {
            if messages.take(&mut piece, &mut message, false).unwrap() {
                let whole = std::mem::take(&mut message);
                all.push(String::from_utf8(whole).unwrap());
            }
        }
    }
    assert!(message.is_empty(), "{message:?}");
    all
}

#[test]
fn messages_are_cut_wherever_reads_end() {
    let asked = ["*2\r\n$3\r\nGET\r\n$1\r\na\r\n", "*1\r\n$4\r\nPING\r\n"];
    let answered = [
        "$-1\r\n",
        "*2\r\n:1\r\n%1\r\n+a\r\n$2\r\nbc\r\n",
        "+OK\r\n",
        "_\r\n",
    ];
    let http = [
        "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi",
        "GET /b HTTP/1.1\r\nHost: x\r\n\r\n",
    ];
    let http_answered = [
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
    ];
    for length in 1..60 {
        let of = |messages, all: &[&str]| {
            assert_eq!(
                cut(messages, all.concat().as_bytes(), length),
                all,
                "{length}"
            );
        };
        of(Messages::asks(Protocol::Redis), &asked);
        of(Messages::answers(Protocol::Redis), &answered);
        of(Messages::asks(Protocol::Http), &http);
        of(Messages::answers(Protocol::Http), &http_answered);
    }
}

#[test]
fn what_is_no_such_protocol_is_malformed() {
    let (mut bytes, mut message) = (&b"*1\r\n?\r\n"[..], Vec::new());
    let mut redis = Messages::asks(Protocol::Redis);
    assert_eq!(redis.take(&mut bytes, &mut message, false), Err(Malformed));
    assert_eq!(Protocol::of(b"\x16\x03\x01"), Some(Protocol::Other));
    assert_eq!(Protocol::of(b"EHLO me"), Some(Protocol::Other));
    assert_eq!(Protocol::of(b"GET "), None);
    assert_eq!(Protocol::of(b"GET /"), Some(Protocol::Http));
}

#[test]
fn passwords_are_not_kept() {
    let auth = b"*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$6\r\nsecret\r\n";
    assert_eq!(without_password(auth).unwrap(), b"*1\r\n$4\r\nauth\r\n");
    let hello = b"*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$1\r\np\r\n";
    assert_eq!(without_password(hello).unwrap(), b"*1\r\n$5\r\nhello\r\n");
    assert_eq!(without_password(b"*2\r\n$3\r\nGET\r\n$4\r\nauth\r\n"), None);
    assert!(sets_up(auth) && !sets_up(b"*2\r\n$3\r\nGET\r\n$4\r\nauth\r\n"));
    assert_eq!(title(b"*2\r\n$3\r\nGET\r\n$4\r\nauth\r\n"), "GET auth");
    assert_eq!(title(b"GET /a?b HTTP/1.1\r\n\r\n"), "GET /a?b");
}
