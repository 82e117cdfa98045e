//! What can go wrong on the primary's side.

use hindcast_pg::{ConnectError, Error};

use crate::pgoutput::Malformed;
use crate::source::spill::SpillError;

/// Why the log could not be had, or not any longer.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("the primary cannot be reached")]
    Connect(#[source] ConnectError),
    #[error("the primary does not let slot {slot} be read")]
    Start {
        slot: String,
        #[source]
        source: Error,
    },
    /// The session ended under us: nothing is lost, since what was not acknowledged is sent again.
    #[error("the primary was lost")]
    Lost(#[source] Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Spill(#[from] SpillError),
}

impl SourceError {
    /// Trying again may be enough.
    pub fn is_transient(&self) -> bool {
        match self {
            SourceError::Connect(error) => error.is_transient(),
            // The slot is still held by a session that the primary has not missed yet.
            SourceError::Start { source, .. } => {
                source.is_connection() || source.code() == Some("55006")
            }
            SourceError::Lost(Error::Interrupted) => false,
            // The session is gone, or the primary is short of something (53), was told to end it
            // (57), or has a failing disk (58); anything else it will say again when it decodes the
            // same again.
            SourceError::Lost(error) => {
                let class = error.code().unwrap_or("").get(..2);
                error.is_connection() || matches!(class, Some("53" | "57" | "58"))
            }
            SourceError::Malformed(_) | SourceError::Spill(_) => false,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            SourceError::Connect(error) => Some(error.hint()),
            SourceError::Start { source, slot } => Some(match source.code() {
                Some("55006") => format!(
                    "another session reads this slot: stop it, or choose another --name (SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{slot}')"
                ),
                Some("42704") => "the slot is gone, and with it the WAL that was kept for this standby: \
                    make the backup's database anew and start again"
                    .to_owned(),
                Some("55000") => "the primary has removed WAL that this slot needed (max_slot_wal_keep_size): \
                    `hindcast standby drop`, make the backup's database anew, and start again"
                    .to_owned(),
                Some("42501") => "give the role of --from the attribute REPLICATION".to_owned(),
                _ => "the primary's log says more".to_owned(),
            }),
            SourceError::Lost(error) if error.code() == Some("42704") => Some(
                "somebody dropped the publication while changes were made, and these cannot be had any more: \
                    `hindcast standby drop`, make the backup's database anew, and start again"
                    .to_owned(),
            ),
            SourceError::Lost(Error::Server(_)) if !self.is_transient() => {
                Some("the primary cannot decode its log; its own log says more".to_owned())
            }
            SourceError::Lost(_) => Some("start again: it goes on where it was".to_owned()),
            SourceError::Spill(_) => Some(
                "make room there, or name another folder with TMPDIR, or follow without --streaming; nothing of the transaction was acknowledged"
                    .to_owned(),
            ),
            SourceError::Malformed(_) => Some(
                "this is a defect of hindcast, or a server that is not Postgres: please report it with the version of the primary"
                    .to_owned(),
            ),
        }
    }
}
