//! A standby from beginning to end: what the command runs.
//!
//! ```text
//!  preflight ─▶ publication ─▶ slot + snapshot ─▶ copy ─▶ follow ─▶ …
//!                                                   ▲        │ a server was lost: wait, look where the target is, go on
//!                                  later starts ────┼────────┘
//! ```

mod backup;
mod error;
mod memory;
mod retry;
mod status;

use std::time::Duration;

use hindcast_pg::{DatabaseUrl, Lsn};

use crate::source::{Names, SlotError, TableFilter, slot};
use crate::status::Control;

pub use crate::backup::Granularity;
pub use backup::to_backup;
pub use error::StandbyError;
pub use memory::to_memory;
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
    pub granularity: Granularity,
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
    pub epoch_rows: usize,
    pub epoch_interval: Duration,
    /// Bring the schema along if the backup has none of the tables.
    pub schema: bool,
}

/// A standby in memory.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    pub common: Options,
    /// Where reads are served.
    pub serve: String,
    /// How far back states can be read.
    pub retention: Duration,
    /// Bytes.
    pub memory_max: Option<u64>,
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

/// Tells whoever watches, once.
fn note(control: &Control, notices: &[String]) {
    control.update(|status| {
        for notice in notices {
            if !status.notices.contains(notice) {
                status.notices.push(notice.clone());
            }
        }
    });
}
