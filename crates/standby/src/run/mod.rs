//! A standby from beginning to end: what the command runs.
//!
//! ```text
//!  preflight ─▶ publication ─▶ slot + snapshot ─▶ copy ─▶ follow ─▶ …
//!                                                   ▲        │ a server was lost: wait, go on
//!                                  later starts ────┼────────┘
//! ```

mod backup;
mod checking;
mod error;
mod indexing;
mod joining;
mod open;
mod promotion;
mod retry;
mod status;

use std::time::Duration;

use hindcast_pg::{DatabaseUrl, Lsn};

use crate::source::{Names, SlotError, TableFilter, slot};

pub use crate::backup::Granularity;
pub use backup::to_backup;
pub use error::StandbyError;
pub use retry::Retry;
pub use status::{BackupStatus, status};

/// What all standbys have in common.
#[derive(Clone, Debug)]
pub struct Options {
    pub from: DatabaseUrl,
    /// Slot and publication are called `hindcast_` and this.
    pub name: String,
    pub tables: TableFilter,
    /// Connections that apply changes, or threads that write versions.
    pub workers: Option<usize>,
    pub copy_workers: usize,
    /// Receive large transactions while they run.
    pub streaming: bool,
    /// End when everything up to here is visible and durable.
    pub until: Option<Lsn>,
}

/// A standby on another Postgres.
#[derive(Clone, Debug)]
pub struct BackupOptions {
    pub common: Options,
    pub to: DatabaseUrl,
    pub granularity: Granularity,
    pub epoch_rows: usize,
    pub epoch_interval: Duration,
    /// Bring the schema along if the backup has none of the tables.
    pub schema: bool,
    /// Compare the rows of both all the time, while the log is followed.
    pub check: Option<Check>,
}

/// How much of both sides is compared.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Of each side, on average.
    pub bytes_per_second: u64,
    /// How long it is until more is compared. Following stops for a moment each time.
    pub period: Duration,
}

/// Why a standby ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Somebody stopped it: a later start goes on.
    Stopped,
    /// What was to be reached was reached.
    Reached,
    /// `promote` took over.
    Promoted,
}

/// Removes slot and publication from a primary; says what there was.
pub fn drop(from: &DatabaseUrl, name: &str) -> Result<Vec<String>, SlotError> {
    slot::remove(from, &Names::new(name)?)
}
