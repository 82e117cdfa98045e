//! The vocabulary of the store.

use std::time::Duration;

/// A table. The number is the caller's (an OID, say); the store gives it no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u32);

/// The position of a write in the log. The first write has 1; 0 stands for "no write yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seq(pub u64);

/// What a commit is known by outside: its position in the primary's log and its time there.
///
/// `lsn` never decreases from one commit to the next. `time` is in microseconds since 1970 and may
/// step back a little, as commit times of a real primary do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark {
    pub lsn: u64,
    pub time: i64,
}

/// One value of a row that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    Null,
    Value(&'a [u8]),
    /// The value that the row had before this write; the log does not repeat it.
    Unchanged,
}

/// What the unit of parallel execution is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// C5: a write waits for the previous write to its row and for nothing else.
    #[default]
    Row,
    /// KuaFu: a transaction waits until every earlier transaction that wrote one of its rows is
    /// done. There to be measured against.
    Transaction,
    /// One worker does everything in log order. There to be measured against.
    Single,
}

/// How a store is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that apply writes. At least 1; [`Mode::Single`] uses one whatever is asked for.
    pub workers: usize,
    pub mode: Mode,
    /// How much of the log is handed to a worker at once.
    pub segment_bytes: usize,
    /// How far back (in commit time, from the newest visible commit) a snapshot can be asked for.
    pub retention: Duration,
    /// How often the current snapshot moves on when nobody waits for it.
    pub snapshot_interval: Duration,
    /// Above this the store first holds the appender back, then gives up retention, then fails.
    /// While it is a reader's old snapshot that needs the memory, the appender is held back for as
    /// long as the reader has it.
    pub memory_max: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            workers: 2,
            mode: Mode::Row,
            segment_bytes: 256 << 10,
            retention: Duration::from_secs(60),
            snapshot_interval: Duration::from_millis(10),
            memory_max: None,
        }
    }
}

/// Which past state a snapshot is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// After the last commit whose position is not above this one.
    Lsn(u64),
    /// The longest prefix of the log whose commits all have a time not above this one, in
    /// microseconds since 1970.
    Time(i64),
}

/// Why there is no snapshot of that past state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AsOfError {
    #[error("history begins at {oldest:?}, the asked-for state is older")]
    TooOld { oldest: Mark },
    #[error("the newest visible commit is {newest:?}, the asked-for state is newer")]
    NotYet { newest: Mark },
}

impl AsOfError {
    /// What whoever asked can do.
    pub fn hint(&self) -> &'static str {
        match self {
            AsOfError::TooOld { .. } => {
                "ask for a later state, or keep more history with a longer retention"
            }
            AsOfError::NotYet { .. } => {
                "wait until the standby has caught up, or read the current state"
            }
        }
    }
}

/// Why a store stopped following its log. What was visible before stays readable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("thread {thread} of the store panicked: {message}")]
    Panicked { thread: String, message: String },
    #[error("the rows alone need {bytes} bytes, the limit is {limit}")]
    MemoryExhausted { bytes: u64, limit: u64 },
    #[error("more than {limit} rows at once")]
    TooManyRows { limit: u64 },
}

impl Failure {
    /// What whoever runs the store can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Failure::Panicked { .. } => {
                "this is a defect; restart the standby and report the message"
            }
            Failure::MemoryExhausted { .. } => "raise the memory limit or replicate fewer tables",
            Failure::TooManyRows { .. } => "replicate fewer tables",
        }
    }
}

/// Counters and gauges at one moment. The counters (`rows` … `retention_shortened`) only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Writes that the appender has put into the log.
    pub rows: u64,
    /// Writes that workers have installed.
    pub applied: u64,
    pub commits: u64,
    /// Writes (transactions in [`Mode::Transaction`]) that were not safe yet when a worker first
    /// met them.
    pub deferred: u64,
    /// Versions that were freed.
    pub collected: u64,
    /// Row slots that became free again after their row was deleted or truncated.
    pub recycled: u64,
    /// `Unchanged` cells that had no earlier value to take; they read as null.
    pub unresolved: u64,
    /// How often retention was given up because of `memory_max`.
    pub retention_shortened: u64,
    /// Time for which the appender was held back, by full queues or by `memory_max`, in
    /// microseconds.
    pub held_back_us: u64,
    /// Versions in memory.
    pub versions: u64,
    /// Memory for versions, rows, the index and history.
    pub bytes: u64,
    /// Snapshots in readers' hands.
    pub readers: u64,
    /// The write up to which the current snapshot goes.
    pub visible: Seq,
    /// No reader can see what was overwritten at or before this write.
    pub horizon: Seq,
    /// Writes in the log that the current snapshot does not have yet.
    pub lag_rows: u64,
}
