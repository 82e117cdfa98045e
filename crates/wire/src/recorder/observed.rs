//! What a recorder is given and what it tells.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::frame::{Direction, FrameError};
use crate::message::Malformed;
use crate::sql::ScriptCache;
use crate::tracker::Unexpected;
use crate::{limits, sql};

/// How a session is observed.
#[derive(Clone, Debug)]
pub struct RecorderOptions {
    /// The high half of the trace-ids that this recorder's ingress gives out. Other trace-ids are somebody else's and name no request.
    pub trace_id_prefix: u64,
    /// Analysed statement texts, shared by all sessions of a host.
    pub scripts: Arc<ScriptCache>,
    /// Take SCRAM-SHA-256-PLUS out of the server's offer, because TLS ends at the host.
    pub strip_channel_binding: bool,
    /// How much of either direction is kept for aborted transactions and ghosts.
    pub kept_bytes_max: usize,
}

impl RecorderOptions {
    pub fn new(trace_id_prefix: u64, scripts: Arc<ScriptCache>) -> Self {
        Self {
            trace_id_prefix,
            scripts,
            strip_channel_binding: false,
            kept_bytes_max: limits::KEPT_BYTES,
        }
    }
}

/// What the host knows at the moment of a step.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Microseconds since the Unix epoch.
    pub now: i64,
    /// The request in flight, if there is exactly one.
    pub alone: Option<u64>,
    pub sequences: &'a SequenceColumns,
    /// Draws the next number of the order in which locking statements complete, across all sessions.
    pub lock_order: &'a dyn Fn() -> u64,
}

/// Which columns are filled from which sequences, from `pg_attrdef`, `pg_depend` and identity columns.
#[derive(Clone, Debug, Default)]
pub struct SequenceColumns {
    tables: HashSet<u32>,
    columns: HashMap<(u32, i16), u32>,
    names: HashMap<String, u32>,
}

impl SequenceColumns {
    /// A table exists, with or without such columns.
    pub fn add_table(&mut self, table: u32) {
        self.tables.insert(table);
    }
    /// A column (`attribute` counts from 1) takes its values from a sequence.
    pub fn add_column(&mut self, table: u32, attribute: i16, sequence: u32) {
        self.tables.insert(table);
        self.columns.insert((table, attribute), sequence);
    }
    /// A sequence can be written like this in `nextval('…')`: add it with and without its schema.
    pub fn add_name(&mut self, name: &str, sequence: u32) {
        self.names.insert(name.to_owned(), sequence);
    }
    pub fn knows_table(&self, table: u32) -> bool {
        self.tables.contains(&table)
    }
    pub fn of_column(&self, table: u32, attribute: i16) -> Option<u32> {
        self.columns.get(&(table, attribute)).copied()
    }
    pub fn by_name(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }
}

/// Something that the host should know.
#[derive(Debug)]
pub enum Event {
    /// The session is established.
    Ready {
        process_id: u32,
        /// Four bytes, or up to 256 since protocol 3.2.
        cancel_key: Bytes,
        /// As the server reported it, such as `15.4 (Debian 15.4-1)`.
        server_version: String,
    },
    /// A transaction began. Every [`Event::Transaction`] or [`Event::CommitUncertain`] of a session ends the last one that
    /// began; one that turned out to be empty is never heard of again.
    TransactionBegan {
        began: i64,
    },
    Transaction(Box<ObservedTransaction>),
    /// The server went away before it answered a commit. The outcome is [`Outcome::Unknown`]; `pg_xact_status` can settle it if
    /// the xid is known.
    CommitUncertain(Box<ObservedTransaction>),
    /// A result has columns of a table that [`SequenceColumns`] does not know. Told once per session and table.
    UnknownTable {
        table: u32,
    },
    /// The session speaks a protocol of its own from here on (replication) and passes through.
    Unobserved {
        reason: &'static str,
    },
}

/// One transaction, as seen from outside.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedTransaction {
    /// When its first message came from the client, and when its last answer came from the server.
    pub began: i64,
    pub ended: i64,
    /// The request it belongs to, if any. Without one it is a ghost and `client_bytes` is there.
    pub request: Option<(u64, Attribution)>,
    /// Opened with `BEGIN`, as opposed to a single statement, `Query` or pipeline.
    pub explicit: bool,
    /// None of its statements took a snapshot: session settings, `LISTEN` and the like. Worth recording only as a ghost.
    pub passive: bool,
    /// `None` where no snapshot is known.
    pub isolation: Option<Isolation>,
    pub snapshot: Option<Snapshot>,
    /// The transaction's `now()`, where a snapshot is known.
    pub now: Option<i64>,
    pub xid: Option<u64>,
    pub subxids: Vec<u64>,
    /// Whether `xid: None` means that it wrote nothing. False for statements that refuse company (`VACUUM`), and where asking
    /// could have disturbed the client.
    pub xid_known: bool,
    pub outcome: Outcome,
    /// Its statements in order, `BEGIN` and `COMMIT` included.
    pub statements: Vec<Arc<sql::Fingerprint>>,
    /// Hash over the fingerprints of all statements, those beyond [`limits::STATEMENTS_MAX`] included.
    pub shape: u32,
    pub result_digest: u32,
    pub result_rows: u64,
    pub locks: Vec<LockTaken>,
    pub sequence_values: Vec<SequenceTaken>,
    /// For an aborted transaction: what the client was sent, from the first message after the previous transaction ended (or after the last
    /// `ReadyForQuery` outside a transaction) up to and including the `ReadyForQuery` that ended it.
    pub server_bytes: Option<Bytes>,
    /// For a ghost: what the client sent, trace comments included. If it runs statements that were prepared earlier, a batch that closes
    /// and prepares these stands in front.
    pub client_bytes: Option<Bytes>,
    pub cut: Cut,
}

/// What is missing because a limit was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    pub server_bytes: bool,
    pub client_bytes: bool,
    pub statements: bool,
    pub notes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribution {
    Comment,
    ApplicationName,
    Alone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    Aborted,
    Prepared { gid: String },
    Unknown,
}

/// What `pg_current_snapshot()` returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub xmin: u64,
    pub xmax: u64,
    /// Ascending.
    pub in_progress: Vec<u64>,
}

/// A statement that locks other than by writing rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockTaken {
    /// Index of the statement within its transaction.
    pub statement: u32,
    pub target: u32,
    /// From [`Context::lock_order`], when it completed.
    pub completed: u64,
}

/// A sequence value that the client saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceTaken {
    pub sequence: u32,
    pub value: i64,
}

/// The session cannot be followed any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}, message `{}` at byte {offset}: {problem}", match direction { Direction::FromClient => "from the client", Direction::FromServer => "from the server" }, *tag as char)]
pub struct ProtocolError {
    pub direction: Direction,
    /// 0 for the startup packet.
    pub tag: u8,
    /// Where the message begins, in bytes since the session began.
    pub offset: u64,
    pub problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Unexpected(#[from] Unexpected),
}
