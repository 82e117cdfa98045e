//! What an observer is given and what it tells.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use hindcast_model::{
    Attribution, DrawnUuid, Isolation, Lock, Micros, Outcome, RequestId, SequenceValue, Snapshot,
    Xid,
};

use super::columns::SequenceColumns;
use super::keeping::Keeping;
use crate::frame::{Direction, FrameError};
use crate::message::Malformed;
use crate::sql::ScriptCache;
use crate::tracker::Unexpected;
use crate::{limits, sql};

/// How a session is observed.
#[derive(Clone, Debug)]
pub struct ObserverOptions {
    /// The high half of the trace-ids that this recorder's ingress gives out. Other trace-ids name
    /// no request.
    pub trace_id_prefix: u64,
    /// Analysed statement texts, shared by all sessions of a host.
    pub scripts: Arc<ScriptCache>,
    /// Tells the names of our statements from all that a client could think of; one per session.
    pub token: u64,
    /// Where the session's default isolation is weaker than REPEATABLE READ, make it that.
    pub raise_isolation: bool,
    /// Whether statements of ours may stay prepared, which the host finds out.
    pub keeping: Arc<Keeping>,
    /// What is observed has happened already: nothing is asked or changed, and what is put into
    /// [`Wires`](crate::Wires) goes nowhere. Snapshots and ids have to come by another way; so that
    /// they can be joined with what is told here, empty transactions are told as well.
    pub passive: bool,
    /// Take SCRAM-SHA-256-PLUS out of the server's offer, because TLS ends at the host.
    pub strip_channel_binding: bool,
    /// How much of either direction is kept for aborted transactions and ghosts.
    pub kept_bytes_max: usize,
    /// How much of what the client sent is told of transactions that belong to a request; nothing
    /// of those that sent more.
    pub values_max: usize,
}

impl ObserverOptions {
    pub fn new(trace_id_prefix: u64, scripts: Arc<ScriptCache>) -> Self {
        Self {
            trace_id_prefix,
            scripts,
            token: 0,
            raise_isolation: false,
            keeping: Arc::default(),
            passive: false,
            strip_channel_binding: false,
            kept_bytes_max: limits::KEPT_BYTES,
            values_max: 0,
        }
    }
}

/// What the host knows at the moment of a step.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub now: Micros,
    /// The request in flight, if there is exactly one.
    pub alone: Option<RequestId>,
    /// The request on whose behalf the client's bytes were sent, where its process tells.
    pub turn: Option<RequestId>,
    pub sequences: &'a SequenceColumns,
    /// Draws the next number of the order in which locking statements complete, across all
    /// sessions.
    pub lock_order: &'a dyn Fn() -> u64,
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
    /// A transaction began. Every [`Event::Transaction`] or [`Event::CommitUncertain`] of a session
    /// ends the last one that began; one that turned out to be empty is never heard of again.
    TransactionBegan {
        began: Micros,
    },
    Transaction(Box<ObservedTransaction>),
    /// The server went away before it answered a commit. The outcome is [`Outcome::Unknown`];
    /// `pg_xact_status` can settle it if the xid is known.
    CommitUncertain(Box<ObservedTransaction>),
    /// A result has columns of a table that [`SequenceColumns`] does not know. Told once per
    /// session and table.
    UnknownTable {
        table: u32,
    },
    /// A statement of ours between the client's transactions committed under this id: temporary
    /// tables were dropped before the server would have done it.
    OwnXid {
        xid: Xid,
    },
    /// A transaction without an id of its own was committed where the session has temporary tables
    /// that commits empty: that may have taken an id, when it was too late to ask.
    EmptiedOnCommit {
        began: Micros,
        ended: Micros,
    },
    /// Something may have committed under ids that could not be asked for.
    Unasked {
        /// `None`: the end of the session, at which the server drops temporary tables.
        statement: Option<Arc<sql::Fingerprint>>,
        began: Micros,
        ended: Micros,
        /// Its ids are among these. `None`: that is not known.
        xids: Option<Range<Xid>>,
        /// It is a procedure or `DO` block with transactions inside. None of them but the last is
        /// told.
        commits_inside: bool,
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
    pub began: Micros,
    pub ended: Micros,
    /// The request it belongs to, if any. Without one it is a ghost and `client_bytes` is there.
    pub request: Option<(RequestId, Attribution)>,
    /// Opened with `BEGIN`, as opposed to a single statement, `Query` or pipeline.
    pub explicit: bool,
    /// None of its statements took a snapshot: session settings, `LISTEN` and the like. Worth
    /// recording only as a ghost.
    pub passive: bool,
    /// Nothing ran in it that is worth telling. Told to passive hosts only.
    pub is_empty: bool,
    /// `None` where no snapshot is known.
    pub isolation: Option<Isolation>,
    pub snapshot: Option<Snapshot>,
    /// The transaction's `now()`, where a snapshot is known.
    pub now: Option<Micros>,
    pub xid: Option<Xid>,
    pub subxids: Vec<Xid>,
    /// Whether `xid: None` means that it wrote nothing. False for statements that refuse company
    /// (`VACUUM`), and where asking could have disturbed the client.
    pub xid_known: bool,
    pub outcome: Outcome,
    /// How many statements it had, and how many of them were answered without an error.
    pub statement_count: u32,
    pub completed: u32,
    /// Those that were not, in their order.
    pub failures: Vec<Failure>,
    /// Its statements in order, `BEGIN` and `COMMIT` included.
    pub statements: Vec<Arc<sql::Fingerprint>>,
    /// Hash over the fingerprints of all statements, those beyond [`limits::STATEMENTS_MAX`]
    /// included.
    pub shape: u32,
    pub result_digest: u32,
    pub result_rows: u64,
    /// Of statements with several rows: see [`RowOrder::all`](crate::row_order::RowOrder::all).
    pub row_order: Vec<u8>,
    /// `completed` is from [`Context::lock_order`].
    pub locks: Vec<Lock>,
    pub sequence_values: Vec<SequenceValue>,
    /// UUIDs that the server drew, in order of appearance.
    pub drawn_uuids: Vec<DrawnUuid>,
    /// With which values the statement ran that took the snapshot, see
    /// [`values_of`](crate::values_of). `None`: with none, or they were not seen.
    pub values: Option<u64>,
    /// For an aborted transaction: what the client was sent, from the first message after the
    /// previous transaction ended (or after the last `ReadyForQuery` outside a transaction) up to
    /// and including the `ReadyForQuery` that ended it.
    pub server_bytes: Option<Bytes>,
    /// For a ghost: what the client sent, trace comments included. If it runs statements that were
    /// prepared earlier, a batch that closes and prepares these stands in front.
    pub client_bytes: Option<Bytes>,
    pub cut: Cut,
}

/// A statement that was answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its index in its transaction.
    pub statement: u32,
    /// Zeros if the error had none.
    pub sqlstate: [u8; 5],
}

/// What is missing because a limit was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    pub server_bytes: bool,
    pub client_bytes: bool,
    pub statements: bool,
    pub notes: bool,
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

impl ProtocolError {
    pub(super) fn at(direction: Direction, tag: u8, offset: u64) -> impl Fn(Problem) -> Self {
        move |problem| Self {
            direction,
            tag,
            offset,
            problem,
        }
    }
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
