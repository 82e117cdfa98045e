//! What a replay ends with. Plain data: the caller decides how it looks.

use hindcast_trace::{Digest, Gap, RequestId, ShapeId, TableDigest, TransactionId};
pub use hindcast_wire::answered::Answer;
pub use hindcast_wire::spoken::Spoken;
use serde::Serialize;

use crate::plan::Pause;

/// The outcome of a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub faithful: bool,
    pub from: RequestId,
    pub to: RequestId,
    /// The first one that happened comes first. Only so many are described; `divergence_count`
    /// counts all.
    pub divergences: Vec<Divergence>,
    pub divergence_count: u64,
    pub counts: Counts,
    pub timing: Timing,
    pub final_state: FinalState,
    /// What makes the verdict less than complete.
    pub remarks: Vec<Remark>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub requests: u64,
    pub lead_in: u64,
    pub trail: u64,
    /// Sent again, but without a response to compare with.
    pub requests_not_compared: u64,
    pub transactions: u64,
    pub served_from_recording: u64,
    pub ghosts: u64,
    /// Of those, the ones that the service did itself.
    pub ghosts_by_service: u64,
    pub read_committed: u64,
    pub outside_writes_refused: u64,
    /// What the service wrote outside of requests, and no ghost was left that it was.
    pub outside_writes_undone: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timing {
    pub prepare_us: i64,
    pub replay_us: i64,
    pub original_us: i64,
}

/// What was learned in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Learning {
    /// What the service draws is pinned: these are ids that depend on more than their request.
    pub pinned: bool,
    /// Values that were put into requests, and into how many.
    pub values: u64,
    pub requests: u64,
    /// Responses that are the same but for such values, or for times.
    pub responses: u64,
    /// Responses whose body could not be looked into: it is compressed, or was not kept.
    pub unread: u64,
    /// Transactions whose results are the same but for such values.
    pub transactions: u64,
}

/// Where a replay stopped being the recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Divergence {
    pub position: Position,
    #[serde(flatten)]
    pub kind: DivergenceKind,
    /// What was recorded there, and what the service did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sides: Option<Box<Sides>>,
}

impl Divergence {
    pub fn at(position: Position, kind: DivergenceKind) -> Self {
        Self {
            position,
            kind,
            sides: None,
        }
    }
}

/// Both sides of a divergence, without what the recording's rules leave out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sides {
    /// `POST /subscribe`.
    pub request: Option<String>,
    /// The statements of the transaction.
    pub recorded: Vec<Told>,
    pub replayed: Vec<Told>,
    /// The first statement, by its index, that differs; `None`: what is known does not tell.
    pub differs_at: Option<usize>,
    /// What was recorded has its values, and its rows.
    pub values_kept: bool,
    pub rows_kept: bool,
}

/// A statement, and what it was answered where that is known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Told {
    #[serde(flatten)]
    pub spoken: Spoken,
    pub answer: Option<Answer>,
    #[serde(skip)]
    pub fingerprint: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Position {
    pub request: Option<RequestId>,
    pub transaction: Option<TransactionId>,
}

impl Position {
    pub fn request(request: RequestId) -> Self {
        Self {
            request: Some(request),
            transaction: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DivergenceKind {
    /// A response with another status.
    Status {
        expected: u16,
        actual: u16,
        actual_body: Option<String>,
    },
    Header {
        name: String,
        expected: Option<String>,
        actual: Option<String>,
    },
    Body {
        expected: BodySeen,
        actual: BodySeen,
    },
    /// The service gave no response.
    NoResponse {
        error: String,
    },
    ExtraTransaction {
        recorded: usize,
        /// What it begins with, without values.
        statement: String,
    },
    MissingTransaction,
    OtherStatements {
        expected: ShapeId,
        actual: ShapeId,
    },
    OtherResults {
        expected_rows: u64,
        actual_rows: u64,
        expected_digest: Digest,
        actual_digest: Digest,
        read_committed: bool,
    },
    /// It committed originally.
    Failed {
        error: Option<String>,
        /// What its later statements saw is not known.
        read_committed: bool,
    },
    /// It aborted originally; the service asked for other things than it did then.
    ServedDiffers,
    /// The service closed the connection in the middle of it.
    ConnectionLost,
    /// Nothing moved any more.
    Stuck {
        waits: Vec<String>,
        suspicion: Option<Suspicion>,
        after_s: f64,
    },
    ServiceExited {
        status: String,
        last_lines: Vec<String>,
    },
    FinalState {
        table: String,
        expected_rows: Option<u64>,
        actual_rows: Option<u64>,
        /// Rows that differ, the first few, if a database in the recorded final state was at hand.
        differences: Vec<String>,
    },
}

/// A body, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BodySeen {
    pub bytes: u64,
    pub digest: Digest,
    /// Around the first difference, if both bodies are at hand; else the beginning, if this one
    /// is.
    pub excerpt: Option<String>,
    /// Where the first difference is.
    pub at: Option<u64>,
}

/// Why a replay may be stuck without the service being at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Suspicion {
    /// Every database connection of the service waits, and requests that could help have none:
    /// there are fewer than requests were in flight at a time.
    PoolTooSmall {
        connections: usize,
        connections_needed: usize,
    },
    /// Row locks of READ COMMITTED transactions, whose order is not enforced.
    ReadCommitted,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum FinalState {
    /// Every table is as recorded.
    Same {
        tables: usize,
        rows: u64,
    },
    /// Every table has as many rows as recorded. All is as recorded but for rows of these tables,
    /// which hold what the service drew or read from its clock.
    SameButDrawn {
        tables: usize,
        rows: u64,
        drawn: Vec<String>,
    },
    Differs,
    NotCompared {
        reason: NotCompared,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotCompared {
    NotRecorded,
    RangeEndsBefore,
    StoppedBefore,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "remark", rename_all = "snake_case")]
pub enum Remark {
    /// READ COMMITTED transactions are replayed with the snapshot of their first statement.
    ReadCommitted {
        transactions: u64,
    },
    /// Reads that came in other requests than originally, or in none: caches were filled by another
    /// one.
    MovedReads {
        reads: u64,
        statements: Vec<String>,
    },
    /// Nobody can have the service draw what it drew, so what it drew instead was put into later
    /// requests.
    Learned {
        #[serde(flatten)]
        learning: Learning,
    },
    /// Transactions whose results hold what the service or the database drew, or read from its
    /// clock, in this run.
    /// Of what else they hold nothing can be said.
    DrawnResults {
        transactions: u64,
        statements: Vec<String>,
    },
    CrossedGap {
        gap: Gap,
    },
    /// Stretches of the trace before the one that was chosen, by their last requests.
    LeftOut {
        until: Vec<RequestId>,
    },
    CrossedPause {
        #[serde(flatten)]
        pause: Pause,
    },
    /// Requests that were not answered originally would have done more than is recorded of them.
    CutOff {
        requests: u64,
    },
    /// The service wrote outside any request, by a statement that cannot be undone.
    OutsideWriteRefused {
        statement: String,
        times: u64,
    },
    /// The service wrote outside any request what the recording had done, or does not have: it was
    /// undone.
    OutsideWriteUndone {
        statement: String,
        times: u64,
    },
    /// Transactions, or statements of them, that only read went on out of order, since nothing else
    /// would have moved.
    ReadsLetGo {
        transactions: u64,
    },
    NotPinned {
        what: String,
    },
    UnattributedTransactions {
        transactions: u64,
    },
    NotSentAgain {
        request: RequestId,
        reason: String,
    },
    /// The service had begun these ghosts, and did something else. The recording did them then,
    /// behind what they were to come before, and they read otherwise.
    GhostsLate {
        transactions: u64,
    },
    /// The service asked somebody else for what the recording does not have: it got no answer.
    CallNotRecorded {
        what: String,
        times: u64,
    },
    /// A request brought somebody else other values than it did, and was answered as it was then.
    CallDiffered {
        what: String,
        times: u64,
    },
    /// It diverged, and what was sent or run lacked secrets. `request` is the one that diverged,
    /// or else the first that lacked one; `None` for ghosts.
    Redacted {
        request: Option<RequestId>,
        rules: Vec<String>,
    },
}

/// How the tables of two databases compare.
pub fn differing_tables<'a>(
    expected: &'a [TableDigest],
    actual: &'a [TableDigest],
) -> impl Iterator<Item = (&'a str, Option<&'a TableDigest>, Option<&'a TableDigest>)> {
    let find = |side: &'a [TableDigest], name: &str| side.iter().find(|table| table.table == name);
    let changed = expected.iter().filter_map(move |table| {
        let other = find(actual, &table.table);
        (other != Some(table)).then_some((table.table.as_str(), Some(table), other))
    });
    let added = actual
        .iter()
        .filter(move |table| find(expected, &table.table).is_none())
        .map(|table| (table.table.as_str(), None, Some(table)));
    changed.chain(added)
}
