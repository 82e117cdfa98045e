//! What the tests of this crate share: records to write, and a folder to write them to.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod any;
pub mod python;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hindcast_trace::*;

/// Options under which nothing happens by itself during a test.
pub fn quiet() -> WriterOptions {
    WriterOptions {
        flush_interval: Duration::from_secs(3600),
        roll_every: Duration::from_secs(3600),
        close_timeout: Duration::from_millis(300),
        ..WriterOptions::default()
    }
}

/// Options under which everything happens soon.
pub fn hasty() -> WriterOptions {
    WriterOptions {
        flush_interval: Duration::from_millis(20),
        ..WriterOptions::default()
    }
}

pub fn now() -> Micros {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_micros() as Micros
}

/// A request that arrived `sequence` milliseconds after a fixed moment and took half a millisecond.
pub fn request(recorder: u16, sequence: u64) -> Request {
    let arrived = 1_700_000_000_000_000 + sequence as Micros * 1000;
    let body = format!("{{\"answer\":{sequence}}}").into_bytes();
    Request {
        id: Id::new(recorder, sequence),
        arrived,
        ended: arrived + 500,
        method: "GET".into(),
        target: format!(
            "/forum/list?user={}&forum={}",
            sequence * 7919 % 5000,
            sequence * 104_729 % 1000
        ),
        headers: vec![
            ("host".into(), b"forum.example".to_vec()),
            ("accept".into(), b"*/*".to_vec()),
        ],
        body: Vec::new(),
        caller_traceparent: None,
        response: Response::Answered {
            status: 200,
            headers: vec![("content-type".into(), b"application/json".to_vec())],
            body_digest: Digest::of(&body),
            body_bytes: body.len() as u64,
            body: Some(body),
        },
    }
}

/// The one transaction of that request.
pub fn transaction(recorder: u16, sequence: u64) -> Transaction {
    let began = 1_700_000_000_000_000 + sequence as Micros * 1000 + 100;
    Transaction {
        id: Id::new(recorder, sequence),
        session: Id::new(recorder, sequence % 8 + 1),
        request: Some((Id::new(recorder, sequence), Attribution::Comment)),
        began,
        ended: began + 200,
        isolation: Isolation::RepeatableRead,
        snapshot: Some(Snapshot {
            xmin: Xid(700 + sequence),
            xmax: Xid(700 + sequence),
            in_progress: Vec::new(),
        }),
        xid: sequence.is_multiple_of(5).then_some(Xid(700 + sequence)),
        subxids: Vec::new(),
        outcome: Outcome::Committed,
        now: Some(began + 20),
        shape: ShapeId(1),
        result_digest: Digest(sequence as u32),
        result_rows: 3,
        locks: Vec::new(),
        sequence_values: Vec::new(),
        server_bytes: None,
        client_bytes: None,
    }
}

pub fn recorder(number: u16) -> Recorder {
    Recorder {
        number,
        started: 1_700_000_000_000_000,
        trace_id_prefix: 0xfedc_ba98_7654_3210,
        listen: "127.0.0.1:8080".into(),
        app: "http://127.0.0.1:8000".into(),
        pg_listen: "127.0.0.1:6432".into(),
        postgres: "postgres://127.0.0.1/forum".into(),
        database: "forum".into(),
        server_version: "15.14".into(),
        system_identifier: u64::MAX - 5,
        raised_isolation: Some(Isolation::RepeatableRead),
        hindcast_version: "0.1.0".into(),
    }
}

pub fn read_requests(trace: &Trace) -> Vec<Request> {
    trace
        .requests(RequestFilter::default())
        .collect::<Result<_, _>>()
        .unwrap()
}

pub fn read_transactions(trace: &Trace) -> Vec<Transaction> {
    trace
        .transactions(TransactionFilter::default())
        .collect::<Result<_, _>>()
        .unwrap()
}

pub fn request_ids(trace: &Trace) -> Vec<u64> {
    read_requests(trace)
        .iter()
        .map(|request| request.id.sequence())
        .collect()
}

/// Waits for a fact; a fact that never comes is a failed test, not a hanging one.
pub fn wait_for(what: &str, mut fact: impl FnMut() -> bool) {
    let give_up = std::time::Instant::now() + Duration::from_secs(60);
    while !fact() {
        assert!(
            std::time::Instant::now() < give_up,
            "still not true after a minute: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until everything recorded so far is on disk.
pub fn flush(writer: &Writer) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(writer.durable()).unwrap();
}
