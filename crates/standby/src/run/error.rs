//! Why a standby could not go on.

use crate::backup::BackupError;
use crate::follow::FollowError;
use crate::initial::{InitialError, Unfit};
use crate::source::{PreflightError, SlotError, SourceError};

/// Each part has errors of its own; this is where they meet.
#[derive(Debug, thiserror::Error)]
pub enum StandbyError {
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error(transparent)]
    Initial(#[from] InitialError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Backup(#[from] BackupError),
}

impl From<FollowError<SourceError, BackupError>> for StandbyError {
    fn from(error: FollowError<SourceError, BackupError>) -> Self {
        match error {
            FollowError::Log(error) => error.into(),
            FollowError::Target(error) => error.into(),
        }
    }
}

impl StandbyError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            StandbyError::Preflight(error) => Some(error.hint()),
            StandbyError::Slot(error) => Some(error.hint()),
            StandbyError::Initial(error) => Some(error.hint()),
            StandbyError::Source(error) => error.hint(),
            StandbyError::Backup(error) => Some(error.hint()),
        }
    }

    /// Trying again may be enough: a server restarts, a cable is plugged in again.
    pub fn is_transient(&self) -> bool {
        match self {
            StandbyError::Preflight(error) => error.is_transient(),
            StandbyError::Slot(error) => error.is_transient(),
            StandbyError::Initial(error) => error.is_transient(),
            StandbyError::Source(error) => error.is_transient(),
            StandbyError::Backup(error) => error.is_transient(),
        }
    }

    /// Another standby of this name runs, or is just ending.
    pub fn is_about_predecessor(&self) -> bool {
        match self {
            StandbyError::Slot(error) => matches!(error, SlotError::Active { .. }),
            StandbyError::Initial(error) => {
                matches!(error, InitialError::Unfit(Unfit::InUse { .. }))
            }
            StandbyError::Preflight(error) => matches!(error, PreflightError::Senders(_)),
            StandbyError::Source(SourceError::Start { source, .. }) => {
                source.code() == Some("55006")
            }
            _ => false,
        }
    }

    /// The error and what is behind it, in one line.
    pub fn in_a_line(&self) -> String {
        let mut line = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let text = error.to_string();
            if !line.contains(&text) {
                line = format!("{line}: {text}");
            }
            cause = error.source();
        }
        line
    }
}
