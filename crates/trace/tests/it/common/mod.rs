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
        user_id: None,
        came_to: None,
        came_from: None,
        came_by: None,
        clock: Vec::new(),
        secrets: Default::default(),
        calls: Vec::new(),
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
        drawn_uuids: Vec::new(),
        drawn: Vec::new(),
        clock: Vec::new(),
        server_bytes: None,
        secrets: Default::default(),
        client_bytes: None,
        statement_snapshots: Vec::new(),
        rechecked: Vec::new(),
        commit_lsn: None,
        values: None,
        row_order: Vec::new(),
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
        redacted: vec!["field:password".into()],
        command: vec!["serve".into(), "-p 8000".into()],
        directory: "/srv/forum".into(),
        environment: vec!["LANG=C".into(), "API_TOKEN".into()],
        pins_key: Some(PinsKey([7; 32])),
        postgres_tls: Some(false),
        values_key: None,
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

/// A recording of its own, with `count` requests, one shape, and its end.
pub fn record_with(location: &Location, options: WriterOptions, count: u64) -> u16 {
    let (writer, number) = Writer::create(location, options).unwrap();
    writer.record(Record::Recorder(recorder(number)));
    writer.record(Record::Shape(Shape {
        id: ShapeId(u32::from(number)),
        statements: vec![format!("SELECT {number}")],
    }));
    for sequence in 1..=count {
        writer.record(Record::Request(request(number, sequence)));
        writer.record(Record::Transaction(transaction(number, sequence)));
    }
    writer.close().unwrap();
    number
}

/// A base that was taken now.
pub fn take_base(location: &Location, options: WriterOptions) -> Base {
    let base = Base {
        taken: now(),
        snapshot: Snapshot {
            xmin: Xid(700),
            xmax: Xid(700),
            in_progress: Vec::new(),
        },
        kind: BaseKind::Template {
            database: "forum_base".into(),
        },
    };
    let options = WriterOptions {
        notes_only: true,
        ..options
    };
    let (writer, _) = Writer::create(location, options).unwrap();
    writer.record(Record::Base(base.clone()));
    writer.close().unwrap();
    base
}

/// Everything that was recorded until now.
pub fn all_of_it() -> PruneOptions {
    PruneOptions {
        older_than: Some(now() + 1),
        ..PruneOptions::default()
    }
}

pub fn regardless() -> PruneOptions {
    PruneOptions {
        ignore_bases: true,
        ..all_of_it()
    }
}
