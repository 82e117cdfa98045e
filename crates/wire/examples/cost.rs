//! What observing costs: nanoseconds of CPU per exchange, by kind of session, beside merely copying
//! the bytes.
//!
//! `cargo run --release -p hindcast-wire --example cost`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use hindcast_wire::message::{backend, frontend};
use hindcast_wire::sql::ScriptCache;
use hindcast_wire::{Context, Event, Observer, ObserverOptions, SequenceColumns, Status, Wires};

/// One exchange: what the client sends, and what the server answers, our statements included.
struct Exchange {
    client: BytesMut,
    server: BytesMut,
    /// Message pairs in it that are the client's.
    pairs: u32,
}

const SNAPSHOT: [&[u8]; 5] = [
    b"1000:1010:1003,1005",
    b"repeatable read",
    b"\\x0002ad22dce66000",
    b"off",
    b"1007",
];

fn values(columns: &[&'static [u8]]) -> Vec<Option<&'static [u8]>> {
    columns.iter().map(|&column| Some(column)).collect()
}

fn row(out: &mut BytesMut) {
    backend::data_row(
        out,
        &values(&[b"42", b"some text in a row", b"2026-01-01 00:00:00+00"]),
    );
}

/// The answer to an ask of ours.
fn ours(out: &mut BytesMut, columns: &[&'static [u8]]) {
    backend::parse_complete(out);
    backend::bind_complete(out);
    backend::data_row(out, &values(columns));
    backend::command_complete(out, b"SELECT 1");
    backend::close_complete(out);
    backend::close_complete(out);
}

fn autocommitted_extended(rows: usize) -> Exchange {
    let (mut client, mut server) = (BytesMut::new(), BytesMut::new());
    frontend::bind(&mut client, b"", b"s1", &[Some(b"42")]);
    frontend::execute(&mut client, b"", 0);
    frontend::sync(&mut client);
    backend::bind_complete(&mut server);
    (0..rows).for_each(|_| row(&mut server));
    backend::command_complete(&mut server, b"SELECT 1");
    ours(&mut server, &SNAPSHOT);
    backend::ready_for_query(&mut server, Status::Idle);
    Exchange {
        client,
        server,
        pairs: 1,
    }
}

fn autocommitted_simple(comment: &str) -> Exchange {
    let (mut client, mut server) = (BytesMut::new(), BytesMut::new());
    let text =
        format!("SELECT id, name, created FROM users WHERE id = 42 AND deleted IS NULL{comment}");
    frontend::query(&mut client, text.as_bytes());
    let column = |name| backend::Column {
        name,
        table: 0,
        attribute: 0,
        type_oid: 25,
        format: 0,
    };
    backend::row_description(
        &mut server,
        &[column(b"id"), column(b"name"), column(b"created")],
    );
    row(&mut server);
    backend::command_complete(&mut server, b"SELECT 1");
    backend::row_description(&mut server, &[column(b"hindcast_ask")]);
    backend::data_row(&mut server, &values(&SNAPSHOT));
    backend::command_complete(&mut server, b"SELECT 1");
    backend::ready_for_query(&mut server, Status::Idle);
    Exchange {
        client,
        server,
        pairs: 1,
    }
}

/// BEGIN, two prepared statements, COMMIT: each a round trip.
fn block() -> Vec<Exchange> {
    let plain = |text: &[u8], tag: &[u8], before: &[&'static [u8]], status| {
        let (mut client, mut server) = (BytesMut::new(), BytesMut::new());
        frontend::query(&mut client, text);
        if !before.is_empty() {
            ours(&mut server, before);
            backend::ready_for_query(&mut server, Status::InTransaction);
        }
        backend::command_complete(&mut server, tag);
        backend::ready_for_query(&mut server, status);
        Exchange {
            client,
            server,
            pairs: 1,
        }
    };
    let statement = |before: &[&'static [u8]]| {
        let mut exchange = autocommitted_extended(0);
        exchange.server.clear();
        if !before.is_empty() {
            ours(&mut exchange.server, before);
            backend::ready_for_query(&mut exchange.server, Status::InTransaction);
        }
        backend::bind_complete(&mut exchange.server);
        row(&mut exchange.server);
        backend::command_complete(&mut exchange.server, b"SELECT 1");
        backend::ready_for_query(&mut exchange.server, Status::InTransaction);
        exchange
    };
    vec![
        plain(b"BEGIN", b"BEGIN", &[], Status::InTransaction),
        statement(&SNAPSHOT[..4]),
        statement(&[]),
        plain(b"COMMIT", b"COMMIT", &SNAPSHOT[4..], Status::Idle),
    ]
}

fn measure(name: &str, exchanges: &[Exchange], rounds: u32) {
    let mut observer = Observer::new(ObserverOptions::new(1, Arc::new(ScriptCache::default())));
    let sequences = SequenceColumns::default();
    let context = Context {
        now: 1,
        alone: Some(hindcast_model::Id(7)),
        turn: None,
        sequences: &sequences,
        lock_order: &|| 1,
    };
    let mut input = BytesMut::with_capacity(1 << 16);
    let (mut out, mut events) = (Wires::default(), Vec::new());
    frontend::startup(&mut input, frontend::PROTOCOL_3_0, &[(b"user", b"u")]);
    observer
        .on_client(&mut input, &context, &mut out, &mut events)
        .expect("startup");
    backend::authentication(&mut input, 0, b"");
    backend::parameter_status(&mut input, b"server_version", b"15.4");
    backend::ready_for_query(&mut input, Status::Idle);
    observer
        .on_server(&mut input, &context, &mut out, &mut events)
        .expect("startup");
    prepare(&mut observer, &context);

    let mut transactions = 0;
    let start = Instant::now();
    for _ in 0..rounds {
        for exchange in exchanges {
            input.extend_from_slice(&exchange.client);
            observer
                .on_client(&mut input, &context, &mut out, &mut events)
                .expect("it can be followed");
            input.extend_from_slice(&exchange.server);
            observer
                .on_server(&mut input, &context, &mut out, &mut events)
                .expect("it can be followed");
            black_box((&out.to_server, &out.to_client));
            transactions += events
                .iter()
                .filter(|event| matches!(event, Event::Transaction(_)))
                .count();
            out.to_server.clear();
            out.to_client.clear();
            events.clear();
        }
    }
    let observed = start.elapsed();
    let start = Instant::now();
    for _ in 0..rounds {
        for exchange in exchanges {
            for bytes in [&exchange.client, &exchange.server] {
                input.extend_from_slice(bytes);
                out.to_client.extend_from_slice(&input);
                black_box(&out.to_client);
                input.clear();
                out.to_client.clear();
            }
        }
    }
    let copied = start.elapsed();
    let pairs = rounds * exchanges.iter().map(|exchange| exchange.pairs).sum::<u32>();
    let each = |time: std::time::Duration| time.as_nanos() as f64 / f64::from(pairs);
    println!(
        "{name:<44} {:>7.0} ns per exchange, copying {:>4.0} ns, {transactions} transactions",
        each(observed),
        each(copied)
    );
}

/// Prepares the client's statement.
fn prepare(observer: &mut Observer, context: &Context<'_>) {
    let (mut out, mut events) = (Wires::default(), Vec::new());
    let (mut client, mut server) = (BytesMut::new(), BytesMut::new());
    frontend::parse(
        &mut client,
        b"s1",
        b"SELECT id, name, created FROM users WHERE id = $1",
        &[],
    );
    frontend::sync(&mut client);
    backend::parse_complete(&mut server);
    backend::ready_for_query(&mut server, Status::Idle);
    observer
        .on_client(&mut client, context, &mut out, &mut events)
        .expect("it can be followed");
    observer
        .on_server(&mut server, context, &mut out, &mut events)
        .expect("it can be followed");
}

fn main() {
    let comment =
        " /*action='list',traceparent='00-00000000000000010000000000000005-00000000000000ff-01'*/";
    measure(
        "autocommitted, extended, 1 row",
        &[autocommitted_extended(1)],
        300_000,
    );
    measure(
        "autocommitted, extended, 100 rows",
        &[autocommitted_extended(100)],
        30_000,
    );
    measure(
        "autocommitted, simple",
        &[autocommitted_simple("")],
        300_000,
    );
    measure(
        "autocommitted, simple, with trace comment",
        &[autocommitted_simple(comment)],
        300_000,
    );
    measure(
        "a block of two statements (per round trip)",
        &block(),
        100_000,
    );
}
