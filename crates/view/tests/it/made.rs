//! Recordings that tests make up.

use hindcast_trace::*;
use hindcast_view::{Index, Progress, load};

pub struct Made {
    pub folder: tempfile::TempDir,
    records: Vec<Record>,
}

pub const NOON: Micros = 1_795_233_600_000_000;

impl Made {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self {
            folder,
            records: Vec::new(),
        }
    }

    pub fn shape(&mut self, id: u32, statements: &[&str]) -> &mut Self {
        self.records.push(Record::Shape(Shape {
            id: ShapeId(id),
            statements: statements.iter().map(ToString::to_string).collect(),
        }));
        self
    }

    /// Times are from noon on.
    pub fn request(
        &mut self,
        number: u64,
        at: Micros,
        took: Micros,
        line: &str,
        status: u16,
    ) -> &mut Self {
        let (method, target) = line.split_once(' ').expect("a method and a target");
        let body = format!("answer {number}").into_bytes();
        self.records.push(Record::Request(Request {
            id: Id::new(0, number),
            arrived: NOON + at,
            ended: NOON + at + took,
            method: method.to_owned(),
            target: target.to_owned(),
            headers: vec![("accept".to_owned(), b"*/*".to_vec())],
            body: Vec::new(),
            caller_traceparent: None,
            user_id: None,
            came_to: None,
            came_from: None,
            came_by: None,
            response: match status {
                0 => Response::Broken {
                    reason: "the client went away".to_owned(),
                },
                status => Response::Answered {
                    status,
                    headers: Vec::new(),
                    body_digest: Digest::of(&body),
                    body_bytes: body.len() as u64,
                    body: Some(body),
                },
            },
            clock: Vec::new(),
            secrets: Secrets::None,
            calls: Vec::new(),
        }));
        self
    }

    /// `snapshot`: as Postgres writes it.
    pub fn transaction(&mut self, own: Own<'_>) -> &mut Self {
        self.records.push(Record::Transaction(Transaction {
            id: Id::new(0, own.number),
            session: Id::new(0, own.session),
            request: own.request.map(|id| (Id::new(0, id), Attribution::Comment)),
            began: NOON + own.began,
            ended: NOON + own.ended,
            isolation: Isolation::RepeatableRead,
            snapshot: Some(own.snapshot.parse().expect("a snapshot")),
            xid: own.xid.map(Xid),
            subxids: Vec::new(),
            outcome: if own.aborted {
                Outcome::Aborted
            } else {
                Outcome::Committed
            },
            now: None,
            shape: ShapeId(own.shape),
            result_digest: Digest(7),
            result_rows: 1,
            locks: own.lock.into_iter().map(lock).collect(),
            sequence_values: Vec::new(),
            server_bytes: None,
            secrets: Default::default(),
            client_bytes: own.sent.map(<[u8]>::to_vec),
            statement_snapshots: Vec::new(),
            rechecked: own.rechecked.to_vec(),
            commit_lsn: None,
            values: None,
            row_order: Vec::new(),
            drawn_uuids: Vec::new(),
            drawn: Vec::new(),
            clock: Vec::new(),
        }));
        self
    }

    /// What was made up so far, for a trace that the caller writes.
    pub fn take(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    pub fn trace(&mut self) -> Trace {
        let location = Location::folder(self.folder.path());
        let options = WriterOptions {
            buffer_records_max: 1 << 20,
            buffer_bytes_max: 1 << 30,
            ..WriterOptions::default()
        };
        let (writer, _) = Writer::create(&location, options).expect("a trace");
        for record in self.records.drain(..) {
            writer.record(record);
        }
        writer.close().expect("it is written");
        Trace::open(&location).expect("it is read")
    }
}

fn lock(completed: u64) -> Lock {
    Lock {
        statement: 0,
        target: 1,
        completed,
    }
}

#[derive(Clone, Copy)]
pub struct Own<'a> {
    pub number: u64,
    pub session: u64,
    pub request: Option<u64>,
    pub began: Micros,
    pub ended: Micros,
    pub snapshot: &'a str,
    pub xid: Option<u64>,
    pub shape: u32,
    pub aborted: bool,
    pub sent: Option<&'a [u8]>,
    pub rechecked: &'a [u32],
    /// Its place among the locks that were taken.
    pub lock: Option<u64>,
}

impl Default for Own<'_> {
    fn default() -> Self {
        Self {
            number: 1,
            session: 1,
            request: None,
            began: 0,
            ended: 10,
            snapshot: "100:100:",
            xid: None,
            shape: 1,
            aborted: false,
            sent: None,
            rechecked: &[],
            lock: None,
        }
    }
}

pub fn indexed(trace: &Trace) -> Index {
    load(trace, &Progress::default()).expect("it is read")
}

/// `INSERT …` by the extended protocol, with its values.
pub fn sent(text: &str, values: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut message = |tag: u8, body: &[u8]| {
        bytes.push(tag);
        bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(body);
    };
    message(b'P', &[b"\0", text.as_bytes(), b"\0\0\0"].concat());
    let mut bind = vec![0, 0, 0, 0];
    bind.extend_from_slice(&(values.len() as u16).to_be_bytes());
    for value in values {
        bind.extend_from_slice(&(value.len() as u32).to_be_bytes());
        bind.extend_from_slice(value.as_bytes());
    }
    bind.extend_from_slice(&[0, 0]);
    message(b'B', &bind);
    message(b'E', &[0, 0, 0, 0, 0]);
    bytes
}
