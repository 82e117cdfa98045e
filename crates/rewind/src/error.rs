//! Why a database could not be put back.

use std::path::PathBuf;

use hindcast_pg::Lsn;
use hindcast_trace::Xid;

use hindcast_cluster::ClusterError;

/// Why taking a base or rewinding to a point failed.
#[derive(Debug, thiserror::Error)]
pub enum RewindError {
    #[error("a template base needs the URL of the server that holds it")]
    NoServer,
    #[error("cannot {doing}")]
    Database {
        doing: String,
        source: hindcast_pg::Error,
    },
    #[error(
        "the database {database} has other sessions, so it cannot be cloned: {}",
        list(sessions)
    )]
    SourceInUse {
        database: String,
        sessions: Vec<Session>,
    },
    #[error(
        "transactions committed in the database {database} or beside it each time it was cloned (ids {})",
        list(xids)
    )]
    SourceBusy { database: String, xids: Vec<Xid> },
    #[error("the base {database} does not exist on {server}")]
    BaseMissing { database: String, server: String },
    #[error("the database {database} is not the base of this recording: {reason}")]
    NotOurBase { database: String, reason: String },

    #[error("pg_basebackup failed:\n{output}")]
    TakeBackup { output: String },
    #[error("the backup folder {} does not exist", folder.display())]
    BackupMissing { folder: PathBuf },
    #[error("{} is not a usable backup: {reason}", folder.display())]
    NotABackup { folder: PathBuf, reason: String },
    #[error("the backup {} is damaged; pg_verifybackup says:\n{output}", folder.display())]
    BackupCorrupt { folder: PathBuf, output: String },
    #[error("cannot copy {}", path.display())]
    Copy {
        path: PathBuf,
        source: std::io::Error,
    },

    #[error("cannot read the WAL archive {archive}: {reason}")]
    Archive { archive: String, reason: String },
    #[error(
        "the WAL segment {segment} is missing from {archive}, which goes on after it; it is needed to reach {}",
        transactions(needed)
    )]
    SegmentMissing {
        segment: String,
        archive: String,
        needed: Vec<Xid>,
    },
    #[error(
        "{archive} ends at {reached}, before {} committed; the next segment would be {segment}",
        transactions(needed)
    )]
    NotReached {
        archive: String,
        reached: Lsn,
        segment: String,
        needed: Vec<Xid>,
    },
    #[error("cannot read WAL: {0}")]
    WalUnreadable(#[from] hindcast_wal::Malformed),
    #[error(
        "no state of the database holds exactly the wanted transactions: {excluded} must be out and committed at {excluded_at}, \
         {included} must be in and committed later, at {included_at}",
        excluded = excluded.0, included = included.0
    )]
    Interleaved {
        excluded: Xid,
        excluded_at: Lsn,
        included: Xid,
        included_at: Lsn,
    },
    #[error("the base is too new: it already holds {}", transactions(xids))]
    BaseTooNew { xids: Vec<Xid> },
    #[error("{program} failed:\n{output}")]
    Dump { program: String, output: String },
    #[error("{} is not a usable dump: {reason}", folder.display())]
    NotADump { folder: PathBuf, reason: String },
    #[error(
        "the column {column} of {table} cannot be left out: it is a {kind} and may not be null"
    )]
    NotHidden {
        table: String,
        column: String,
        kind: String,
    },
    #[error("the backup could not be recovered")]
    Recovery(#[source] ClusterError),

    #[error(
        "the first transaction did not see {}, which ended before it",
        transactions(xids)
    )]
    NotSeen { xids: Vec<Xid> },
    #[error(
        "the first transaction saw {}, which began after it",
        transactions(xids)
    )]
    SeenTooEarly { xids: Vec<Xid> },
    #[error(
        "the restored database does not hold {}, which it should",
        transactions(xids)
    )]
    Lacks { xids: Vec<Xid> },
    #[error(
        "the restored database holds {}, which it should not",
        transactions(xids)
    )]
    Holds { xids: Vec<Xid> },
    #[error(
        "recorded as committed, but aborted for the database: {}",
        transactions(xids)
    )]
    NotCommitted { xids: Vec<Xid> },
    #[error(
        "committed after the base by somebody who passed no recorder: {}",
        transactions(xids)
    )]
    Unaccounted { xids: Vec<Xid> },
    #[error(
        "the server no longer knows the outcome of {}, so nothing proves that the base is the state before the first request",
        transactions(xids)
    )]
    Forgotten { xids: Vec<Xid> },

    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

/// A session that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub pid: i32,
    pub user: String,
    pub application: String,
    /// Address, or `local` for a unix socket.
    pub client: String,
}

impl std::fmt::Display for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} from {} (pid {}", self.user, self.client, self.pid)?;
        if !self.application.is_empty() {
            write!(f, ", application {}", self.application)?;
        }
        f.write_str(")")
    }
}

impl RewindError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::SourceInUse { .. } => {
                "stop the service and close other sessions (psql, pools, administration tools) for the moment the base is taken"
            }
            Self::SourceBusy { .. } => "take the base while nothing else writes, or use a backup",
            Self::BaseMissing { .. } | Self::NotOurBase { .. } => {
                "the base was dropped or replaced; record again, or name a backup to start from"
            }
            Self::TakeBackup { .. } => {
                "the role needs REPLICATION, pg_hba.conf a line for `replication`, and max_wal_senders a free slot"
            }
            Self::BackupMissing { .. } => "name the folder where the backup is now",
            Self::NotABackup { .. } => {
                "unpack tar backups first; a copy of a data folder taken without pg_basebackup will not do"
            }
            Self::BackupCorrupt { .. } => "use another backup",
            Self::NotHidden { .. } => {
                "let the column have a default or be null in the base, or name fewer columns"
            }
            Self::NotADump { .. } => "its folder belongs to the recording: copy all of it",
            Self::Dump { .. } => {
                "an extension that the database uses has to be installed here, and this Postgres to be no older than the recorded one"
            }
            Self::Copy { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                "restore into a folder on a larger disk"
            }
            Self::SegmentMissing { .. } => {
                "bring the segment back from wherever WAL is kept, or start from a later backup"
            }
            Self::NotReached { .. } => {
                "`SELECT pg_switch_wal()` on the recorded server closes the current segment, so that it is archived"
            }
            Self::Interleaved { .. } => {
                "choose another first request, one before which nothing was in flight"
            }
            Self::BaseTooNew { .. } => "start from an older base",
            Self::Unaccounted { .. } | Self::Forgotten { .. } => {
                "they were committed past the recorder, or between the base and the recording: `hindcast ls` says where the recorder saw them. To go on without them: --across-gaps"
            }
            Self::NotSeen { .. } | Self::SeenTooEarly { .. } | Self::NotCommitted { .. } => {
                "check that the recording and the server belong together"
            }
            Self::Cluster(error) | Self::Recovery(error) => return error.hint(),
            _ => return None,
        };
        Some(hint.to_owned())
    }

    pub(crate) fn database(doing: impl Into<String>) -> impl FnOnce(hindcast_pg::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Database { doing, source }
    }
}

trait Shown {
    fn shown(&self) -> String;
}

impl Shown for Session {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for Xid {
    fn shown(&self) -> String {
        self.0.to_string()
    }
}

/// The first few of many.
fn list(items: &[impl Shown]) -> String {
    const SHOWN: usize = 5;
    let mut text = items
        .iter()
        .take(SHOWN)
        .map(Shown::shown)
        .collect::<Vec<_>>()
        .join(", ");
    if items.len() > SHOWN {
        text.push_str(&format!(" and {} more", items.len() - SHOWN));
    }
    text
}

fn transactions(xids: &[Xid]) -> String {
    format!(
        "transaction{} {}",
        if xids.len() == 1 { "" } else { "s" },
        list(xids)
    )
}
