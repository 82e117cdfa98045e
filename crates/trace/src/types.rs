//! What a recording says: requests, transactions, gaps.
//!
//! These types know nothing about who observed them (a gateway process, later a library inside the
//! application or an extension inside the database) nor about how they are stored.
//! Times are microseconds since the Unix epoch.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Microseconds since the Unix epoch.
pub type Micros = i64;

/// A recorder's number in the high 16 bits, a sequence number in the low 48.
///
/// Several recorders write into one trace without coordination: each owns a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Id(pub u64);

impl Id {
    pub fn new(recorder: u16, sequence: u64) -> Self {
        assert!(sequence < 1 << 48, "a recorder numbers at most 2^48 things");
        Self(u64::from(recorder) << 48 | sequence)
    }
    pub fn recorder(self) -> u16 {
        (self.0 >> 48) as u16
    }
    pub fn sequence(self) -> u64 {
        self.0 & ((1 << 48) - 1)
    }
}

/// `17` for recorder 0, `2.17` for recorder 2. `FromStr` reads the same.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.recorder() {
            0 => f.pad(&self.sequence().to_string()),
            recorder => f.pad(&format!("{recorder}.{}", self.sequence())),
        }
    }
}

/// A text that is no [`Id`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a number like 17, or 2.17 for the second recorder's")]
pub struct IdError(String);

impl FromStr for Id {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let (recorder, sequence) = text.split_once('.').unwrap_or(("0", text));
        match (recorder.parse(), sequence.parse()) {
            (Ok(recorder), Ok(sequence)) if sequence < 1 << 48 => Ok(Self::new(recorder, sequence)),
            _ => Err(IdError(text.to_owned())),
        }
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Requests are numbered from 1 in order of arrival.
pub type RequestId = Id;
/// Transactions are numbered from 1 in the order in which they began at this recorder.
pub type TransactionId = Id;
/// Database sessions are numbered from 1 in the order in which they connected.
pub type SessionId = Id;

/// A 64-bit Postgres transaction id (`xid8`), epoch included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Xid(pub u64);

/// What `pg_current_snapshot()` returns: every committed transaction below `xmax` that is not in
/// `in_progress` is visible.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    pub xmin: Xid,
    pub xmax: Xid,
    /// Ascending.
    pub in_progress: Vec<Xid>,
}

impl Snapshot {
    /// Whether a transaction with this id is visible if it committed.
    pub fn sees(&self, xid: Xid) -> bool {
        xid < self.xmax && self.in_progress.binary_search(&xid).is_err()
    }
}

/// One HTTP request as it reached the ingress, with its response. Written when it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: RequestId,
    pub arrived: Micros,
    pub ended: Micros,
    pub method: String,
    /// Path and query as sent.
    pub target: String,
    /// In order, as sent, without the hop-by-hop ones and without the `traceparent` we added.
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    /// The `traceparent` that the caller sent, if any; the service got ours.
    pub caller_traceparent: Option<String>,
    pub response: Response,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Response {
    Answered {
        status: u16,
        headers: Vec<(String, Vec<u8>)>,
        /// Of the whole body.
        body_digest: Digest,
        body_bytes: u64,
        /// The body if it was no longer than the recorder's limit for keeping bodies.
        body: Option<Vec<u8>>,
    },
    /// The client or the service went away before the response was complete.
    Broken { reason: String },
    /// Passed through without being recorded (a protocol upgrade, a body over the limit): replay cannot re-send it.
    Unrecorded { reason: String },
}

/// The low 32 bits of an XXH3 hash: enough to notice a difference, small enough to keep always.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Digest(pub u32);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(bytes) as u32)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Isolation {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Committed,
    Aborted,
    /// `PREPARE TRANSACTION`; the later `COMMIT PREPARED` is a transaction of its own.
    Prepared {
        gid: String,
    },
    /// The answer to `COMMIT` was lost and `pg_xact_status` could not settle it.
    Unknown,
}

/// How a transaction was attributed to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Attribution {
    /// A `traceparent` in a SQL comment.
    Comment,
    /// `SET application_name = '<traceparent>'`.
    ApplicationName,
    /// Exactly one request was in flight.
    Alone,
}

/// One database transaction. Written when it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transaction {
    pub id: TransactionId,
    pub session: SessionId,
    /// `None`: a ghost. It belongs to no request and is replayed from `client_bytes`.
    pub request: Option<(RequestId, Attribution)>,
    pub began: Micros,
    pub ended: Micros,
    pub isolation: Isolation,
    /// `None` if it never needed one, if it failed before it had one, or if the statement did not allow company.
    pub snapshot: Option<Snapshot>,
    /// `None` if it wrote nothing.
    pub xid: Option<Xid>,
    /// Ids of its subtransactions, where known.
    pub subxids: Vec<Xid>,
    pub outcome: Outcome,
    /// The transaction's `now()`, where a snapshot was taken.
    pub now: Option<Micros>,
    /// What it was made of: key into [`Shape`].
    pub shape: ShapeId,
    /// Of everything the server answered; rows of a statement without ORDER BY count in any order.
    pub result_digest: Digest,
    pub result_rows: u64,
    /// Statements that lock other than by writing rows, in the order in which they ran.
    pub locks: Vec<Lock>,
    /// Sequence values that appeared in results, in order of appearance.
    pub sequence_values: Vec<SequenceValue>,
    /// Everything the server answered, if the transaction aborted: replay serves these bytes.
    pub server_bytes: Option<Vec<u8>>,
    /// Everything the client sent, if the transaction is a ghost: replay sends these bytes. `Parse` messages of
    /// statements that were prepared earlier are put in front.
    pub client_bytes: Option<Vec<u8>>,
}

/// A statement that locks rows, tables or keys other than by writing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Index of the statement within its transaction.
    pub statement: u32,
    /// Hash of what is locked, as far as the text tells: table name, or one hash for all advisory locks.
    pub target: u32,
    /// Position in the order in which such statements completed at this recorder.
    pub completed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SequenceValue {
    /// `pg_class.oid` of the sequence.
    pub sequence: u32,
    pub value: i64,
}

/// Low 32 bits of an XXH3 hash over the fingerprints of a transaction's statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShapeId(pub u32);

/// The normalised statements of a kind of transaction; written once per recorder and shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub id: ShapeId,
    /// Literals replaced by `$n`, white space folded, comments removed.
    pub statements: Vec<String>,
}

/// Something that should be in the recording and is not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    pub from: Micros,
    pub to: Micros,
    pub cause: GapCause,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GapCause {
    /// The writer's buffer was full or the trace could not be written.
    Dropped {
        requests: u64,
        transactions: u64,
        reason: String,
    },
    /// The recorder stopped without closing the trace; up to the flush interval before `to` may be missing.
    Crashed { recorder: u16 },
    /// Transactions committed by somebody who passed no recorder.
    Unaccounted { xids: Vec<Xid> },
    /// A session whose protocol the observer could not follow; it was passed through from there on.
    Unobserved { session: SessionId, reason: String },
}

/// Written when a recorder starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recorder {
    pub number: u16,
    pub started: Micros,
    /// The high half of every trace-id that this recorder gives out; the low half is the request id.
    pub trace_id_prefix: u64,
    /// As given on the command line, without secrets: where the gateway listened and what it fronted.
    pub listen: String,
    pub app: String,
    pub pg_listen: String,
    /// Without password.
    pub postgres: String,
    pub database: String,
    pub server_version: String,
    /// `pg_control_system().system_identifier`
    pub system_identifier: u64,
    pub raised_isolation: Option<Isolation>,
    pub hindcast_version: String,
}

/// A state of the database from which a replay can start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Base {
    pub taken: Micros,
    pub snapshot: Snapshot,
    pub kind: BaseKind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BaseKind {
    /// A database in the same cluster, made with `CREATE DATABASE … TEMPLATE`.
    Template { database: String },
    /// A `pg_basebackup` folder, and the folder or restore_command of archived WAL if there is one.
    Backup {
        folder: String,
        wal_archive: Option<String>,
    },
}

/// What the tables held when recording stopped with nothing in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinalState {
    pub taken: Micros,
    pub tables: Vec<TableDigest>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDigest {
    /// Schema-qualified, quoted where needed.
    pub table: String,
    pub rows: u64,
    /// Sum over the rows of a 64-bit hash of each row's text: independent of their order.
    pub digest: u64,
}

/// Anything that a recorder hands to the trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    Recorder(Recorder),
    Base(Base),
    Request(Request),
    Transaction(Transaction),
    Shape(Shape),
    Gap(Gap),
    FinalState(FinalState),
    /// The recorder stopped on purpose, everything written.
    Closed {
        at: Micros,
    },
}
