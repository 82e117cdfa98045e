//! Any bytes, any pieces: nothing panics, nothing is withheld, nothing grows.

use std::sync::Arc;

use crate::support::abuse::{CLIENT_STARTUP, SERVER_STARTUP, abuse};
use bytes::{Buf, BytesMut};
use hindcast_wire::frame::Direction;
use hindcast_wire::sql::ScriptCache;
use hindcast_wire::{Context, Observer, ObserverOptions, SequenceColumns, Wires, limits};
use proptest::prelude::*;

/// So many, unless `PROPTEST_CASES` says otherwise.
fn cases(count: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let cases = asked.and_then(|asked| asked.parse().ok()).unwrap_or(count);
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(2000))]
    #[test]
    fn no_bytes_make_it_panic_or_withhold(data in proptest::collection::vec(any::<u8>(), 0..400)) {
        abuse(&data);
    }
}

/// A session as text, both sides in one order.
const LINES: &[&str] = &[
    "> Q BEGIN",
    "> Q SELECT 1",
    "> Q COMMIT",
    "> Q SELECT 1; COMMIT; SELECT 2",
    "> P s SELECT a FROM t",
    "> P - INSERT INTO t VALUES (1) RETURNING id",
    "> B - s 1",
    "> B - -",
    "> E -",
    "> D P -",
    "> D S s",
    "> S",
    "> S",
    "> C S s",
    "> Q COPY t FROM STDIN",
    "> d 1~",
    "> c",
    "> Q ROLLBACK",
    "> H",
    "> Q SELECT 2 /*traceparent='00-00000000000000010000000000000005-00000000000000ff-01'*/",
    "< 1",
    "< 2",
    "< C BEGIN",
    "< C COMMIT",
    "< C ROLLBACK",
    "< C SELECT 1",
    "< C INSERT 0 1",
    "< T a b",
    "< T hindcast_ask",
    "< D 1 2",
    "< D 100:105:102",
    "< Z I",
    "< Z T",
    "< Z E",
    "< Z I",
    "< E 42601 12 syntax error at or near \";\"",
    "< N 00000 hello",
    "< S application_name x",
    "< n",
    "< 3",
    "< I",
    "< s",
    "< G 1",
    "< d 1~",
    "< c",
];

#[derive(Default, PartialEq, Debug)]
struct Seen {
    to_server: BytesMut,
    to_client: BytesMut,
    events: String,
    errors: Vec<String>,
}

/// Plays a session; `cuts` says after how many bytes each call gets what it gets.
fn play(lines: &[usize], cuts: &mut dyn FnMut() -> usize) -> Seen {
    let mut observer = Observer::new(ObserverOptions::new(1, Arc::new(ScriptCache::default())));
    let sequences = SequenceColumns::default();
    let context = Context {
        now: 1,
        alone: None,
        turn: None,
        sequences: &sequences,
        lock_order: &|| 1,
    };
    let (mut seen, mut out, mut events) = (Seen::default(), Wires::default(), Vec::new());
    let (mut client, mut server) = (BytesMut::new(), BytesMut::new());
    let startup = [
        "> startup user=u",
        "< R",
        "< S server_version 15.4",
        "< Z I",
    ];
    for line in startup
        .into_iter()
        .chain(lines.iter().map(|&line| LINES[line]))
    {
        let mut bytes = BytesMut::new();
        let from_client = line.starts_with('>');
        if from_client {
            crate::support::client(&line[2..], &mut bytes);
        } else {
            crate::support::server(&line[2..], &mut bytes);
        }
        while bytes.has_remaining() {
            let part = bytes.split_to(cuts().clamp(1, bytes.len()));
            let result = if from_client {
                client.extend_from_slice(&part);
                observer.on_client(&mut client, &context, &mut out, &mut events)
            } else {
                server.extend_from_slice(&part);
                observer.on_server(&mut server, &context, &mut out, &mut events)
            };
            seen.errors
                .extend(result.err().map(|error| error.to_string()));
        }
    }
    observer.on_server_gone(&context, &mut events);
    seen.to_server = out.to_server;
    seen.to_client = out.to_client;
    seen.events = format!("{:#?}", events);
    seen
}

proptest! {
    #![proptest_config(cases(500))]
    #[test]
    fn pieces_make_no_difference(
        lines in proptest::collection::vec(0..LINES.len(), 0..40),
        sizes in proptest::collection::vec(1usize..12, 1..20),
    ) {
        let whole = play(&lines, &mut || usize::MAX);
        let mut sizes = sizes.iter().cycle();
        let cut = play(&lines, &mut || *sizes.next().expect("it is a cycle"));
        prop_assert_eq!(whole, cut);
    }
}

#[test]
fn most_of_it_happens_to_an_established_session() {
    let mut observer = Observer::new(ObserverOptions::new(1, Arc::new(ScriptCache::default())));
    let sequences = SequenceColumns::default();
    let context = Context {
        now: 1,
        alone: None,
        turn: None,
        sequences: &sequences,
        lock_order: &|| 1,
    };
    let (mut out, mut events) = (Wires::default(), Vec::new());
    observer
        .on_client(&mut CLIENT_STARTUP.into(), &context, &mut out, &mut events)
        .unwrap();
    observer
        .on_server(&mut SERVER_STARTUP.into(), &context, &mut out, &mut events)
        .unwrap();
    assert!(observer.is_following() && observer.is_idle());
}

fn established() -> Observer {
    let mut observer = Observer::new(ObserverOptions::new(1, Arc::new(ScriptCache::default())));
    let (mut input, mut out, mut events) = (BytesMut::new(), Wires::default(), Vec::new());
    let sequences = SequenceColumns::default();
    let context = Context {
        now: 1,
        alone: None,
        turn: None,
        sequences: &sequences,
        lock_order: &|| 1,
    };
    crate::support::client("startup user=u", &mut input);
    observer
        .on_client(&mut input, &context, &mut out, &mut events)
        .unwrap();
    ["R", "S server_version 15.4", "Z I"]
        .iter()
        .for_each(|line| crate::support::server(line, &mut input));
    observer
        .on_server(&mut input, &context, &mut out, &mut events)
        .unwrap();
    observer
}

/// Feeds `bytes` in chunks; returns how much was forwarded and the most that stayed in the buffer.
fn flood(observer: &mut Observer, direction: Direction, bytes: &[u8]) -> (usize, usize) {
    let sequences = SequenceColumns::default();
    let context = Context {
        now: 1,
        alone: None,
        turn: None,
        sequences: &sequences,
        lock_order: &|| 1,
    };
    let (mut input, mut out, mut events) = (BytesMut::new(), Wires::default(), Vec::new());
    let (mut forwarded, mut buffered) = (0, 0);
    for chunk in bytes.chunks(8 << 10) {
        input.extend_from_slice(chunk);
        match direction {
            Direction::FromClient => observer
                .on_client(&mut input, &context, &mut out, &mut events)
                .unwrap(),
            Direction::FromServer => observer
                .on_server(&mut input, &context, &mut out, &mut events)
                .unwrap(),
        }
        forwarded += out.to_client.len() + out.to_server.len();
        out.to_client.clear();
        out.to_server.clear();
        buffered = buffered.max(input.len());
    }
    (forwarded, buffered)
}

#[test]
fn long_rows_and_copy_data_are_not_buffered_whole() {
    let value = vec![b'x'; 3 << 20];
    let mut observer = established();
    let mut bytes = BytesMut::new();
    crate::support::client("Q COPY t FROM STDIN", &mut bytes);
    flood(&mut observer, Direction::FromClient, &bytes);
    bytes.clear();
    crate::support::server("G 1", &mut bytes);
    flood(&mut observer, Direction::FromServer, &bytes);
    bytes.clear();
    hindcast_wire::message::frontend::copy_data(&mut bytes, &value);
    let (forwarded, buffered) = flood(&mut observer, Direction::FromClient, &bytes);
    assert_eq!(forwarded, bytes.len());
    assert!(buffered < limits::BUFFERED_BYTES_MAX, "{buffered}");

    let mut observer = established();
    bytes.clear();
    crate::support::client("Q SELECT x", &mut bytes);
    flood(&mut observer, Direction::FromClient, &bytes);
    bytes.clear();
    crate::support::server("T x", &mut bytes);
    hindcast_wire::message::backend::data_row(&mut bytes, &[Some(&value[..])]);
    let (forwarded, buffered) = flood(&mut observer, Direction::FromServer, &bytes);
    assert_eq!(forwarded, bytes.len());
    assert!(buffered < limits::BUFFERED_BYTES_MAX, "{buffered}");
}

#[test]
fn a_row_in_parts_counts_like_a_row_in_one() {
    let value = vec![b'x'; 300 << 10];
    let digest = |chunk: usize| {
        let mut observer = established();
        let sequences = SequenceColumns::default();
        let context = Context {
            now: 1,
            alone: None,
            turn: None,
            sequences: &sequences,
            lock_order: &|| 1,
        };
        let (mut input, mut out, mut events) = (BytesMut::new(), Wires::default(), Vec::new());
        let mut answer = BytesMut::new();
        crate::support::client("Q BEGIN; ROLLBACK; SELECT x", &mut input);
        observer
            .on_client(&mut input, &context, &mut out, &mut events)
            .unwrap();
        ["C BEGIN", "C ROLLBACK", "T x"]
            .iter()
            .for_each(|line| crate::support::server(line, &mut answer));
        hindcast_wire::message::backend::data_row(&mut answer, &[Some(&value[..])]);
        ["C SELECT 1", "Z I"]
            .iter()
            .for_each(|line| crate::support::server(line, &mut answer));
        for part in answer.chunks(chunk) {
            input.extend_from_slice(part);
            observer
                .on_server(&mut input, &context, &mut out, &mut events)
                .unwrap();
        }
        events.iter().find_map(|event| match event {
            hindcast_wire::Event::Transaction(transaction) => {
                Some((transaction.result_digest, transaction.result_rows))
            }
            _ => None,
        })
    };
    assert_eq!(digest(usize::MAX).map(|(_, rows)| rows), Some(1));
    assert_eq!(digest(usize::MAX), digest(10_000));
}
