//! What an observer must survive: any bytes from either side, in any pieces.
//!
//! Shared by the tests and the fuzz target.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use hindcast_wire::frame::{self, Direction};
use hindcast_wire::sql::ScriptCache;
use hindcast_wire::{Context, Observer, ObserverOptions, SequenceColumns, Wires, limits};

const CLIENT_TAGS: &[u8] = b"QPBEDCSHFXdcfp";
const SERVER_TAGS: &[u8] = b"123CDEGHINRSTVZAKWcdnstv";

/// What both sides say until a session is established.
pub const CLIENT_STARTUP: &[u8] = b"\0\0\0\x10\0\x03\0\0user\0u\0\0";
pub const SERVER_STARTUP: &[u8] =
    b"R\0\0\0\x08\0\0\0\0S\0\0\0\x16server_version\x0015\0Z\0\0\0\x05I";

/// Bodies that get further than noise does.
const CLIENT_BODIES: &[(u8, &[u8])] = &[
    (b'Q', b"BEGIN\0"),
    (b'Q', b"SELECT 1\0"),
    (b'Q', b"COMMIT\0"),
    (b'Q', b"SELECT 1; COMMIT; BEGIN; INSERT INTO t VALUES (1)\0"),
    (b'Q', b"COPY t FROM STDIN\0"),
    (b'Q', b"SAVEPOINT a; RELEASE a; DISCARD ALL\0"),
    (b'P', b"s\0SELECT nextval('x') /*traceparent='00-00000000000000010000000000000005-00000000000000ff-01'*/\0\0\0"),
    (b'P', b"\0COMMIT\0\0\0"),
    (b'B', b"\0s\0\0\0\0\0\0\0"),
    (b'B', b"\0\0\0\0\0\0\0\0"),
    (b'E', b"\0\0\0\0\0"),
    (b'D', b"Ss\0"),
    (b'D', b"P\0"),
    (b'C', b"Ss\0"),
    (b'S', b""),
    (b'c', b""),
    (b'd', b"1\n"),
    (b'F', b"\0\0\0\x01\0\0\0\0\0\0"),
];
const SERVER_BODIES: &[(u8, &[u8])] = &[
    (b'Z', b"I"),
    (b'Z', b"T"),
    (b'Z', b"E"),
    (b'1', b""),
    (b'2', b""),
    (b'3', b""),
    (b'n', b""),
    (b's', b""),
    (b'I', b""),
    (b'C', b"BEGIN\0"),
    (b'C', b"COMMIT\0"),
    (b'C', b"ROLLBACK\0"),
    (b'C', b"INSERT 0 1\0"),
    (
        b'T',
        b"\0\x01hindcast_ask\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0",
    ),
    (
        b'T',
        b"\0\x01nextval\0\0\0\0\0\0\0\0\0\0\x14\xff\xff\xff\xff\xff\xff\0\0",
    ),
    (b'D', b"\0\x01\0\0\0\x0510:1:"),
    (b'D', b"\0\x01\0\0\0\x017"),
    (b'E', b"SERROR\0VERROR\0C42601\0Mno\0P12\0\0"),
    (b'G', b"\0\0\x01\0\0"),
    (b'S', b"standard_conforming_strings\0off\0"),
    (b'S', b"client_encoding\0SJIS\0"),
];

fn message(out: &mut BytesMut, tag: u8, body: &[u8]) {
    out.put_u8(tag);
    out.put_u32(body.len() as u32 + 4);
    out.put_slice(body);
}

/// Lets `data` decide what both sides say, and checks what must hold whatever they do.
pub fn abuse(data: &[u8]) {
    let mut options = ObserverOptions::new(1, Arc::new(ScriptCache::new(64 << 10)));
    options.kept_bytes_max = 1000;
    options.strip_channel_binding = true;
    let mut observer = Observer::new(options);
    let mut sequences = SequenceColumns::default();
    sequences.add_name("x", 1);
    let context = Context {
        now: 1,
        alone: None,
        turn: None,
        sequences: &sequences,
        lock_order: &|| 1,
    };
    let (mut from_client, mut from_server) = (BytesMut::new(), BytesMut::new());
    let mut rest = data;
    // Most inputs are better spent behind the startup.
    if rest.split_off_first().is_some_and(|first| first % 8 != 0) {
        from_client.put_slice(CLIENT_STARTUP);
        from_server.put_slice(SERVER_STARTUP);
    }
    let (mut out, mut events) = (Wires::default(), Vec::new());
    while let Some(&op) = rest.split_off_first() {
        let mut take = |count: usize| {
            let count = count.min(rest.len());
            rest.split_off(..count).unwrap_or_default()
        };
        let next = |bytes: &[u8]| usize::from(bytes.first().copied().unwrap_or(0));
        match op % 8 {
            0 => from_client.put_slice(take(usize::from(op >> 3))),
            1 => from_server.put_slice(take(usize::from(op >> 3))),
            2 => {
                let tag = CLIENT_TAGS[next(take(1)) % CLIENT_TAGS.len()];
                message(&mut from_client, tag, take(usize::from(op >> 3)));
            }
            3 => {
                let tag = SERVER_TAGS[next(take(1)) % SERVER_TAGS.len()];
                message(&mut from_server, tag, take(usize::from(op >> 3)));
            }
            4 | 5 => {
                let (tag, body) = CLIENT_BODIES[usize::from(op >> 3) % CLIENT_BODIES.len()];
                message(&mut from_client, tag, body);
            }
            _ => {
                let (tag, body) = SERVER_BODIES[usize::from(op >> 3) % SERVER_BODIES.len()];
                message(&mut from_server, tag, body);
            }
        }
        for direction in [Direction::FromClient, Direction::FromServer] {
            let input = match direction {
                Direction::FromClient => &mut from_client,
                Direction::FromServer => &mut from_server,
            };
            let was_raw = observer.is_raw(direction);
            let result = match direction {
                Direction::FromClient => observer.on_client(input, &context, &mut out, &mut events),
                Direction::FromServer => observer.on_server(input, &context, &mut out, &mut events),
            };
            match result {
                Err(error) => {
                    assert!(!was_raw, "raw bytes cannot be wrong");
                    assert_eq!(error.direction, direction);
                    assert!(input.is_empty(), "what was buffered goes out");
                    assert!(!error.to_string().is_empty());
                }
                Ok(()) => check_rest(direction, input, &observer),
            }
        }
        out.to_client.clear();
        out.to_server.clear();
        events.clear();
    }
    observer.on_server_gone(&context, &mut events);
}

/// What stays in the buffer is the beginning of one message that has to be seen whole.
fn check_rest(direction: Direction, rest: &[u8], observer: &Observer) {
    if rest.is_empty() {
        return;
    }
    assert!(!observer.is_raw(direction), "raw bytes go out at once");
    if observer.is_following() {
        let length = frame::message_length(direction, rest).expect("an error is told at once");
        assert!(length.is_none_or(|length| rest.len() < length));
    } else {
        assert!(rest.len() < limits::STARTUP_BYTES_MAX);
    }
}
