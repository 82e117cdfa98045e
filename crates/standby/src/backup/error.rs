//! What can stop the backup, and what to do then.

use std::sync::Arc;

use hindcast_pg::{ConnectError, Error, Lsn};

use crate::pgoutput::Relation;

use super::net::Contradiction;
use super::values::Unreadable;

/// Why the log could not be applied any further. Nothing of the epoch that failed was kept.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("the backup cannot be reached")]
    Connect(#[source] Box<ConnectError>),
    /// What was committed is in the progress table; following on from there loses nothing.
    #[error("the connection to the backup was lost")]
    Lost(#[source] Error),
    /// It copies another server itself.
    #[error("the backup is in recovery: nothing can be written to it")]
    InRecovery,
    /// A table or what the session may do with it was changed while the log was applied; looking at
    /// it again may be enough.
    #[error("{} changed on the backup while the log was applied", table.as_deref().unwrap_or("a table"))]
    Changed {
        table: Option<String>,
        lsn: Lsn,
        #[source]
        source: Error,
    },
    /// The backup's table cannot hold what the primary's does.
    #[error("{relation} is not the same on the backup, needed at {lsn}: {what}")]
    Mismatch {
        /// As the primary has it.
        relation: Arc<Relation>,
        lsn: Lsn,
        what: String,
    },
    #[error("the log contradicts itself about {table} at {lsn}")]
    Contradiction {
        table: String,
        lsn: Lsn,
        #[source]
        source: Contradiction,
    },
    #[error("the log has a value of {table}.{column} at {lsn} that is not of its type")]
    Value {
        table: String,
        column: String,
        lsn: Lsn,
        #[source]
        source: Unreadable,
    },
    /// The backup is not what it was when the primary's change was made.
    #[error("the backup differs from the primary before {lsn}: {table}, row {key}: {what}")]
    Diverged {
        table: String,
        key: String,
        lsn: Lsn,
        what: String,
    },
    #[error("the backup refused what was written up to {lsn}{}", table.as_ref().map(|table| format!(", {table}")).unwrap_or_default())]
    Refused {
        lsn: Lsn,
        table: Option<String>,
        #[source]
        source: Error,
    },
    /// The progress that is stored cannot be continued.
    #[error("the progress of slot {slot} on the backup makes no sense: {what}")]
    Progress { slot: String, what: String },
    /// Or the session of one that ended has not ended yet on the backup.
    #[error("somebody else applies the log of slot {slot} to this backup")]
    Busy { slot: String },
    /// Another call has failed before, and said why.
    #[error("the backup has stopped after an error")]
    Stopped,
}

impl BackupError {
    /// Following on from the stored progress, with a new [`Backup`](super::Backup), may succeed
    /// without anybody doing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            BackupError::Connect(error) => error.is_transient(),
            BackupError::Lost(_) | BackupError::Changed { .. } | BackupError::Busy { .. } => true,
            // Serialization failures, deadlocks, lock timeouts, statements that somebody cancelled.
            BackupError::Refused { source, .. } => matches!(
                source.code(),
                Some("40001" | "40P01" | "55P03" | "57014" | "53300")
            ),
            _ => false,
        }
    }

    /// Where in the log it happened.
    pub fn lsn(&self) -> Option<Lsn> {
        match self {
            BackupError::Changed { lsn, .. }
            | BackupError::Mismatch { lsn, .. }
            | BackupError::Contradiction { lsn, .. }
            | BackupError::Value { lsn, .. }
            | BackupError::Diverged { lsn, .. }
            | BackupError::Refused { lsn, .. } => Some(*lsn),
            _ => None,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            BackupError::Connect(error) => error.hint(),
            BackupError::Lost(_) => {
                "nothing is lost; it goes on when the backup answers again".to_owned()
            }
            BackupError::InRecovery => {
                "the backup must be a server of its own: end its replication with `SELECT pg_promote()`, or choose another"
                    .to_owned()
            }
            BackupError::Changed { .. } => {
                "it goes on with the table as it is now; if that does not fit, the next message says what is missing"
                    .to_owned()
            }
            // What a change did to the rows that were there (a default, a rename, the USING of
            // another type) is not in the log: no statement that is made up here would be right.
            BackupError::Mismatch { relation, .. } => format!(
                "make {relation} on the backup just as it was made or changed on the primary; without --no-schema, what changed on the primary is changed or copied again here"
            ),
            BackupError::Contradiction { table, source, .. } => contradicted(table, source),
            BackupError::Value { .. } => {
                "give the column the primary's type on the backup".to_owned()
            }
            BackupError::Diverged { table, .. } => format!(
                "somebody else wrote to {table} on the backup, or a trigger there did (ENABLE ALWAYS or REPLICA): put the row back as it is on the \
                 primary, or copy the table again, and take their right to write away"
            ),
            BackupError::Refused { source, .. } => match source.code() {
                Some("53100") => "the backup's disk is full: make room, then start again".to_owned(),
                Some("25006") => {
                    "the backup is read-only: check default_transaction_read_only for the role and the database".to_owned()
                }
                Some("42501") => {
                    "the role needs INSERT, UPDATE, DELETE, SELECT and TRUNCATE on the tables, CREATE on the database for the schema hindcast, must not be subject to row \
                     security, and must be allowed to set session_replication_role (a superuser, or GRANT SET ON PARAMETER)"
                        .to_owned()
                }
                Some("55P03") => {
                    "somebody holds a lock on the table for long: find them in pg_stat_activity".to_owned()
                }
                Some("40P01") => "another session of the backup locks the same rows or tables".to_owned(),
                Some("23505" | "23P01") => {
                    "the backup has a constraint that the primary has not, or somebody else wrote to it".to_owned()
                }
                Some("22P02" | "22001" | "22003") => {
                    "a type of the backup cannot hold the value: make it as on the primary (a label of an enum that has another name: ALTER TYPE … RENAME VALUE)".to_owned()
                }
                Some("42P01" | "42704" | "42883" | "3F000") => {
                    "a value names something that the backup does not have (regclass and its like), or a table or type was dropped there: make it as on the primary".to_owned()
                }
                Some(code) if code.starts_with("23") => {
                    "the backup has a constraint that the primary has not: drop it".to_owned()
                }
                _ => "see the backup's log".to_owned(),
            },
            BackupError::Progress { .. } => {
                "copy the data again, or correct the rows in hindcast.standby_progress".to_owned()
            }
            BackupError::Busy { .. } => {
                "end the other `hindcast standby`; its sessions have `hindcast standby` in pg_stat_activity.application_name".to_owned()
            }
            BackupError::Stopped => "see the first error".to_owned(),
        }
    }

    /// Names the table that was being written, where the server did not say it.
    pub(super) fn about(mut self, relation: impl std::fmt::Display) -> Self {
        if let BackupError::Refused { table, .. } | BackupError::Changed { table, .. } = &mut self {
            table.get_or_insert_with(|| relation.to_string());
        }
        self
    }

    /// An error of the connection while the log was applied up to a place.
    pub(super) fn at(lsn: Lsn, source: Error) -> Self {
        if source.is_connection() || matches!(source, Error::Interrupted) {
            return BackupError::Lost(source);
        }
        let table = source.server().and_then(|error| {
            let table = error.table.as_ref()?;
            Some(format!("{}.{table}", error.schema.as_deref()?))
        });
        match source.code() {
            // A column, table, schema, function or type is not there; its type is another; a plan
            // is out of date.
            Some("42703" | "42P01" | "3F000" | "42883" | "42704" | "42804" | "0A000") => {
                BackupError::Changed { table, lsn, source }
            }
            _ => BackupError::Refused { lsn, table, source },
        }
    }
}

/// What to do about a log that contradicts itself.
fn contradicted(table: &str, what: &Contradiction) -> String {
    match what {
        Contradiction::NoKey => format!(
            "most likely its key has a generated column by now, which is not in the log: on the primary, ALTER TABLE {table} REPLICA IDENTITY FULL; then make the standby anew, as the log up to there says no more"
        ),
        _ => "this is a fault of the log or of Hindcast; copy the table again".to_owned(),
    }
}
