//! What a retroaction ends with. Plain data: the caller decides how it looks.
//!
//! Everything that can be numerous is counted exactly and described up to a limit, and is grouped
//! so that ten thousand differences of one kind read as one.

use hindcast_replay::plan::Pause;
use hindcast_replay::verdict::Learning;
use hindcast_trace::{Gap, Micros, RequestId, TransactionId};
use serde::Serialize;

/// The outcome of a retroaction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub from: RequestId,
    pub to: RequestId,
    pub change: Change,
    pub outcome: Outcome,
    pub counts: Counts,
    /// By kind of request, those with differences first.
    pub types: Vec<TypeSummary>,
    /// What `--select` decided; `None` if everything was executed.
    pub selection: Option<Selection>,
    pub responses: Responses,
    pub transactions: Transactions,
    pub state: State,
    pub checks: Vec<Check>,
    pub timing: Timing,
    /// What makes the report less than complete.
    pub remarks: Vec<Remark>,
}

/// What was different from the recording on purpose. It tells a later reader which fix the report
/// is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The command that started the changed service, without secrets: reports are passed on.
    pub app: String,
    /// The scripts that ran in the rewound database first, by file name.
    pub migrations: Vec<String>,
    /// Isolation of sessions that did not choose one themselves, where it was not as recorded.
    pub isolation: Option<String>,
    /// As the user named them; [`Counts::requests_skipped`] says how many it came to.
    pub skipped: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The same statements with the same results, the same responses, and the same final state as
    /// far as it could be compared: only analysis was added, and this was a faithful replay.
    Faithful,
    /// Everything ran, and something is different.
    Different,
    /// The run ended before its end; what is reported is what was seen up to there.
    Stopped { why: Stopped },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Stopped {
    /// The changed service ended by itself.
    ServiceExited {
        status: String,
        last_lines: Vec<String>,
        /// Sent and not answered then.
        in_flight: Vec<RequestId>,
    },
    /// Nothing moved any more.
    Hung {
        after_s: f64,
        in_flight: Vec<RequestId>,
        waits: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// In the range, lead-in included.
    pub requests: u64,
    pub requests_executed: u64,
    /// Sent and not answered when the run stopped.
    pub requests_unanswered: u64,
    /// Not sent, because the run stopped before.
    pub requests_not_sent: u64,
    /// Left out because the user said so.
    pub requests_skipped: u64,
    /// Left out because they cannot matter.
    pub requests_not_selected: u64,
    pub responses_changed: u64,
    /// Of the requests that were executed: recorded transactions that were to come again.
    pub transactions: u64,
    /// The same statements and the same results.
    pub same: u64,
    /// The run stopped before they were over.
    pub not_over: u64,
    pub same_failure: u64,
    pub changed: u64,
    pub deleted: u64,
    pub added: u64,
    /// Added transactions that repeat one which failed just before.
    pub retries: u64,
    pub newly_failing: u64,
    pub newly_succeeding: u64,
    /// Failed with 40001 because they were in the way of one that had to commit after them.
    pub yielded: u64,
    /// Went on without the order being kept, because nothing else would have moved.
    pub let_go: u64,
    /// What connections and pools do for themselves, in whatever request: nobody follows it.
    pub unnoticed: u64,
    pub ghosts: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypeSummary {
    /// `POST /subscribe`, `GET /forums/{id}/subscribers`
    pub name: String,
    pub requests: u64,
    pub executed: u64,
    pub responses_changed: u64,
    pub transactions_changed: u64,
}

/// Which request types were executed, and why each was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Selection {
    pub executed: Vec<SelectedType>,
    pub left_out: Vec<LeftOutType>,
    /// How often a touch outside of the closure made it grow and the run begin again.
    pub restarts: u32,
    /// Tables that were touched, as the database counted; all of them are in the closure.
    pub tables_touched: Vec<String>,
    /// Statements whose tables could not be determined, so that they count as touching everything:
    /// statement and reason.
    pub undetermined: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SelectedType {
    pub name: String,
    pub requests: u64,
    pub why: String,
    pub reads: Vec<String>,
    pub writes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOutType {
    pub name: String,
    pub requests: u64,
    /// Why it cannot matter: it writes nothing, or nothing that the executed ones touch.
    pub why: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Responses {
    /// Described changes, in the order of the requests.
    pub changed: Vec<ResponseChange>,
    /// All changes, by kind of request and kind of change; the most frequent first.
    pub groups: Vec<Group<RequestId>>,
    /// Those that differ only in clocks, sequence values or randomness.
    pub noise: Vec<Group<RequestId>>,
}

/// Many differences of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group<Id> {
    /// `POST /subscribe: 201 → 200`, `GET /forums/{id}/subscribers: /subscribers/3 is gone`
    pub what: String,
    pub count: u64,
    pub first: Id,
    pub last: Id,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResponseChange {
    pub request: RequestId,
    /// The kind of request.
    pub of: String,
    /// `None`: the service gave no response now, or the recording has none.
    pub status: (Option<u16>, Option<u16>),
    pub headers: Vec<ValueChange>,
    pub body: Option<BodyChange>,
    /// Why there is no response now.
    pub error: Option<String>,
}

/// Something with a name, before and after. `None`: it was not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValueChange {
    pub name: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BodyChange {
    /// By JSON pointer; `more` were left out.
    Json {
        changes: Vec<ValueChange>,
        more: u64,
    },
    /// Around the first difference.
    Text {
        at: u64,
        before: String,
        after: String,
    },
    /// The recorded body was not kept: only its length and digest are known.
    Unkept {
        before_bytes: u64,
        after_bytes: u64,
        after: String,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Transactions {
    /// Described changes, in the order of the requests.
    pub changed: Vec<TransactionChange>,
    pub groups: Vec<Group<TransactionId>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TransactionChange {
    /// `None` for one that was added.
    pub transaction: Option<TransactionId>,
    pub request: Option<RequestId>,
    /// The kind of request.
    pub of: String,
    #[serde(flatten)]
    pub kind: TransactionChangeKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TransactionChangeKind {
    Added {
        statements: Vec<String>,
        /// With which error it failed, if it did.
        error: Option<String>,
        /// It repeats one that failed just before.
        retry: bool,
    },
    /// Its request did not come to it; `into`: its writes moved into this transaction.
    Deleted {
        into: Option<TransactionId>,
    },
    /// Other statements than before.
    Statements {
        before: Vec<String>,
        after: Vec<String>,
    },
    /// The same statements with other results.
    Results {
        before_rows: u64,
        after_rows: u64,
    },
    NewlyFailing {
        error: String,
    },
    /// It failed before, with this error if that is known.
    NewlySucceeding {
        error: Option<String>,
    },
    /// It failed before and now, in another way.
    FailsOtherwise {
        before: Option<String>,
        after: Option<String>,
    },
}

/// What the database holds at the end, compared with what it held then.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct State {
    pub against: Baseline,
    pub tables: Vec<TableChange>,
    pub tables_same: u64,
    /// `(table, reason)`
    pub incomparable: Vec<(String, String)>,
}

/// Where the original final state came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "baseline", rename_all = "snake_case")]
pub enum Baseline {
    /// The recorded database, which is as it was when the recording ended.
    RecordedDatabase,
    /// The original service, replayed; `faithful`: as recorded.
    Replayed {
        faithful: bool,
    },
    Given,
    /// Archived WAL, up to the end of the range.
    Archive,
    None {
        reason: String,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableChange {
    pub table: String,
    pub columns: Vec<String>,
    /// Empty: the table has no primary key, and rows are told apart by all they hold.
    pub key: Vec<String>,
    /// Columns that only one side has, or whose type is another: these were not compared.
    pub columns_changed: Vec<ValueChange>,
    pub added: u64,
    pub removed: u64,
    pub changed: u64,
    /// Of these, rows that differ only in clocks, sequence values or randomness.
    pub noise: u64,
    /// Which columns made them noise: `timemodified: a clock`
    pub noise_columns: Vec<String>,
    /// Added and removed rows beyond those among which counterparts with another number were
    /// looked for; they count as no noise.
    pub not_paired: u64,
    /// Described rows that are no noise, in the order of their keys; without a primary key, of
    /// their values.
    pub rows: Vec<RowChange>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowChange {
    #[serde(flatten)]
    pub kind: RowChangeKind,
    /// Who wrote it in the original run.
    pub before_by: Option<Cause>,
    /// Who wrote or deleted it in this one.
    pub after_by: Option<Cause>,
}

/// Values in the order of the table's columns; `None` is NULL.
pub type RowText = Vec<Option<String>>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RowChangeKind {
    Added {
        row: RowText,
    },
    Removed {
        row: RowText,
    },
    Changed {
        before: RowText,
        after: RowText,
    },
    /// Without a primary key: the same row, but not the same number of times.
    Count {
        row: RowText,
        before: u64,
        after: u64,
    },
}

/// Which request and statement wrote a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum Cause {
    Transaction {
        request: Option<RequestId>,
        /// The recorded transaction, or the one it was matched to; `None` for one that was added.
        transaction: Option<TransactionId>,
        /// The kind of request.
        of: String,
        /// `None` if several of its statements may have been it.
        statement: Option<String>,
    },
    /// The migration.
    Migration,
    /// It was so before the range began.
    Before,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub sql: String,
    pub before: Answer,
    pub after: Answer,
}

/// What a query says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    Rows {
        columns: Vec<String>,
        rows: Vec<RowText>,
        count: u64,
    },
    Failed {
        error: String,
    },
    /// There is no original final state to ask.
    NotAsked,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timing {
    pub prepare_us: Micros,
    pub run_us: Micros,
    pub compare_us: Micros,
    /// From the first arrival to the last response of the original.
    pub original_us: Micros,
    /// Runs before the one that counts, which were given up for what they taught.
    pub runs_given_up: u32,
    /// What these took, with their preparation.
    pub given_up_us: Micros,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "remark", rename_all = "snake_case")]
pub enum Remark {
    ReadCommitted {
        transactions: u64,
    },
    /// Ran with the same statements as recorded, at an isolation that the changed service asked
    /// for.
    OtherIsolation {
        transactions: u64,
    },
    /// Reads that came in other transactions than originally, and are no differences: caches were
    /// filled by another request.
    MovedReads {
        reads: u64,
        statements: Vec<String>,
    },
    /// They took the place of recorded transactions which came after them: they were added, and
    /// those ran out of order.
    TakenForOthers {
        transactions: u64,
    },
    /// See [`hindcast_replay::verdict::Remark::Learned`].
    Learned {
        #[serde(flatten)]
        learning: Learning,
    },
    /// Transactions that are not told from recorded ones: their results hold what the service drew,
    /// or read from its clock, in this run.
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
    OutsideWriteRefused {
        statement: String,
        times: u64,
    },
    /// Likewise, and undone: while the service started, or where it may have been done.
    OutsideWriteUndone {
        statement: String,
        times: u64,
    },
    NotPinned {
        what: String,
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
    NotSentAgain {
        request: RequestId,
        reason: String,
    },
    GhostFailed {
        transaction: TransactionId,
        error: String,
    },
    UnattributedTransactions {
        transactions: u64,
    },
    /// Went on without the order being kept, because nothing else would have moved.
    LetGo {
        transactions: u64,
        hint: String,
    },
    /// The modified request types were found by comparing statements, not named by the user.
    ModifiedFound {
        types: Vec<String>,
    },
}
