//! What the observer wants to find again when a message is answered.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use hindcast_model::{Micros, RequestId};

use super::ask::{Ask, Errand};
use super::keeping::Run;
use crate::sql::{Company, Fingerprint, Kind, PositionMap, Script, Statement};
use crate::tracker::{Pending, Prepared};

pub(super) type Tracked = Pending<Note, StatementNote>;
pub(super) type Known = Prepared<StatementNote>;

/// Kept with every message.
#[derive(Debug)]
pub(super) struct Note {
    /// Where the message begins in the client's stream.
    pub start: u64,
    /// When it came.
    pub at: Micros,
    /// The request in flight then, if there was exactly one.
    pub alone: Option<RequestId>,
    /// The request that its sender was working on, if that was told.
    pub turn: Option<RequestId>,
    /// Its place among the steps that lock, if it only gives advisory locks back, and nothing is in
    /// front of it.
    pub gives_back: Option<u64>,
    pub work: Work,
}

impl Note {
    /// For a message of ours that shares no batch with the client's.
    pub fn aside(&self) -> Self {
        let work = Work::AskRest { inline: false };
        Self { work, ..*self }
    }
}

#[derive(Debug)]
pub(super) enum Work {
    Plain,
    Query(Box<QueryNote>),
    /// With the request that the statement's comment named, if this is the first execution since it
    /// was prepared.
    Execute {
        request: Option<RequestId>,
        /// With which values, see [`values_of`](crate::values_of).
        values: Option<u64>,
    },
    /// Ours: an `Execute`, for the transaction with this number.
    Ask {
        ask: Ask,
        transaction: u64,
        run: Run,
        /// Shares a batch with the client's messages, so that its failure is theirs.
        inline: bool,
    },
    /// Ours: an `Execute`, for no transaction of the client's.
    Errand(Errand),
    /// Ours: closes the statement that was kept under this number.
    Close {
        number: u32,
        inline: bool,
    },
    /// Ours: the rest.
    AskRest {
        inline: bool,
    },
}

impl QueryNote {
    /// Whether ours is the last statement, so that the client's last is not the last any more.
    pub fn is_appended(&self) -> bool {
        let last = self.asks.last();
        last.is_some_and(|(before, _)| *before == self.script.statements.len())
    }
}

impl Work {
    /// Whether a message of ours shares a batch with the client's.
    pub fn is_inline(&self) -> bool {
        match self {
            Self::Ask { inline, .. } | Self::Close { inline, .. } | Self::AskRest { inline } => {
                *inline
            }
            _ => false,
        }
    }
}

/// Kept with a `Query`.
#[derive(Debug)]
pub(super) struct QueryNote {
    pub script: Arc<Script>,
    /// Named by its comment.
    pub request: Option<RequestId>,
    /// `None` if the text was forwarded as it came.
    pub positions: Option<PositionMap>,
    /// Our statements in the text, in order, each with the number of the client's before it.
    pub asks: Vec<(usize, Ask)>,
    /// The text, without trace comment, if transactions begin or end within it.
    pub text: Option<Box<[u8]>>,
    /// The transaction (as the forecast counts) in which it ends.
    pub transaction: u64,
}

/// Kept with a prepared statement.
#[derive(Debug)]
pub(super) struct StatementNote {
    /// Named by its comment.
    pub request: Option<RequestId>,
    /// It has not been executed since it was prepared: the comment is not stale yet.
    pub fresh: AtomicBool,
    /// `None` if the text was forwarded as it came.
    pub positions: Option<PositionMap>,
    /// Where the `Parse` begins in the client's stream.
    pub start: u64,
}

/// A statement whose text we do not know: its `Parse` was not seen, or SQL's own `PREPARE` prepared
/// it.
pub(super) static UNKNOWN: LazyLock<Statement> = LazyLock::new(|| statement("?", Company::Any));

/// What a `FunctionCall` does. It cannot be pipelined with anything.
pub static FUNCTION_CALL: LazyLock<Statement> =
    LazyLock::new(|| statement("FUNCTION CALL", Company::Refused));

fn statement(text: &str, company: Company) -> Statement {
    let fingerprint = Fingerprint {
        hash: xxhash_rust::xxh3::xxh3_64(text.as_bytes()),
        text: text.to_owned(),
    };
    Statement {
        range: 0..0,
        kind: Kind::Utility,
        takes_snapshot: true,
        tries: false,
        gives_back: false,
        company,
        ordered: false,
        returning: false,
        notifies: false,
        empties_on_commit: false,
        locks: Box::default(),
        sequences: Box::default(),
        inserts_into: None,
        uuids: Box::default(),
        fingerprint: Arc::new(fingerprint),
        constants: 0,
    }
}
