//! Which state is wanted, and what was reached.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use hindcast_pg::{DatabaseUrl, Lsn};
use hindcast_trace::{Snapshot, Xid};

/// A quiet point of a recording: a moment at which no recorded transaction was in flight.
///
/// ```text
///           base                        point
///   ─────────┬───────────────────────────┬───────────────▶
///            │   included, own           │   excluded
/// ```
///
/// Ids are those of committed top-level transactions, epoch included. Ids of before the base may be
/// listed or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Recorded, committed, ended before the point: the state must hold what they wrote.
    pub included: BTreeSet<Xid>,
    /// Recorded, committed, began at the point or later: the state must not hold what they wrote.
    pub excluded: BTreeSet<Xid>,
    /// Committed by the database itself (autovacuum, maintenance) or otherwise known not to
    /// matter: either way is fine.
    pub own: BTreeSet<Xid>,
    /// From this id on somebody kept account of all transactions: whatever is neither recorded nor
    /// among `strangers` did not touch the recorded database. `None`: nobody did, and every id
    /// in no other set counts as a stranger.
    pub accounted_from: Option<Xid>,
    /// Known to have been committed by somebody who passed no recorder.
    pub strangers: BTreeSet<Xid>,
    /// What the first transaction from the point on saw, if it took a snapshot. Checked against
    /// the sets above and against the restored state.
    pub first_snapshot: Option<Snapshot>,
}

/// How to rewind.
#[derive(Clone)]
pub struct Options {
    /// The server of the recording. A template base is cloned there, by this user, who must be its
    /// owner or a superuser. Not used for backups.
    pub server: Option<DatabaseUrl>,
    /// The name of the recorded database; a backup holds all databases of its server.
    pub database: String,
    /// A superuser of the backed up server, to connect to the restored one. `None`: as noted with
    /// the backup, else `postgres`.
    pub superuser: Option<String>,
    /// Where a backup is restored to, in a new folder. `None`: the folder for temporary files. It
    /// needs room for all of the backup.
    pub folder: Option<PathBuf>,
    /// Lines of `postgresql.conf` for the server that a backup is restored into
    /// (`shared_preload_libraries`, …).
    pub settings: Vec<(String, String)>,
    /// Compare the backup with its manifest first.
    pub verify_backup: bool,
    /// Go on although somebody who passed no recorder wrote between the base and the point.
    pub allow_unaccounted: bool,
    pub progress: Progress,
}

impl Options {
    pub fn new(database: impl Into<String>) -> Self {
        Self {
            server: None,
            database: database.into(),
            superuser: None,
            folder: None,
            settings: Vec::new(),
            verify_backup: true,
            allow_unaccounted: false,
            progress: Arc::new(|_| ()),
        }
    }
}

/// Is told what happens while a rewind takes its time.
pub type Progress = Arc<dyn Fn(Step) + Send + Sync>;

/// What a rewind is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Cloning {
        base: String,
    },
    VerifyingBackup,
    Copying {
        bytes: u64,
    },
    /// Looking for commits in archived WAL.
    ReadingWal {
        segment: String,
    },
    /// The server replays WAL.
    Recovering,
    Checking,
}

/// How the state was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// A clone of a template in the same server.
    Template { base: String },
    /// A backup, and archived WAL up to and including the commit whose record begins at `lsn`.
    PointInTime { backup: PathBuf, lsn: Lsn, xid: u32 },
    /// A backup as of its end.
    Backup { backup: PathBuf },
    /// A dump, in a private server.
    Dump { folder: PathBuf },
}
