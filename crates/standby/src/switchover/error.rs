//! Why two servers did not change places, and what they are then.

use hindcast_pg::Error;

use crate::fence::FenceError;
use crate::initial::{InitialError, Side};
use crate::promote::PromoteError;
use crate::run::StandbyError;
use crate::source::{PreflightError, SlotError};

/// A switchover that did not come to its end.
#[derive(Debug, thiserror::Error)]
#[error("{}", .after.in_words())]
pub struct SwitchoverError {
    #[source]
    pub cause: Cause,
    pub after: After,
}

impl SwitchoverError {
    pub fn hint(&self) -> String {
        match &self.after {
            After::Nothing | After::TakenBack => self.cause.hint(),
            After::Fenced(_) => format!(
                "{}; then run the same command again, which goes on, or with --abort, which takes everything back",
                self.cause.hint()
            ),
            After::Promoted => "run the same command again: it does what is left".to_owned(),
        }
    }
}

/// What the servers are after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing was begun.
    Nothing,
    /// The primary takes writes, and the backup follows it.
    TakenBack,
    /// The primary may still refuse writes; why that could not be taken back.
    Fenced(String),
    /// The backup is the one to write to already.
    Promoted,
}

impl After {
    fn in_words(&self) -> String {
        match self {
            Self::Nothing => "there was no switchover: nothing was changed".to_owned(),
            Self::TakenBack => {
                "there was no switchover: the primary takes writes as before".to_owned()
            }
            Self::Fenced(why) => format!(
                "the switchover stopped halfway: the primary may refuse writes, and the backup is not promoted ({why})"
            ),
            Self::Promoted => {
                "the backup is promoted, and something is left to do on the old primary".to_owned()
            }
        }
    }
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error(transparent)]
    Promote(#[from] PromoteError),
    #[error(transparent)]
    Following(#[from] StandbyError),
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    #[error("the backup cannot be followed by the old primary")]
    Back(#[source] PreflightError),
    #[error(transparent)]
    Initial(#[from] InitialError),
    #[error("the primary cannot be fenced")]
    Fence(#[from] FenceError),
    #[error("cannot {doing} on {side}")]
    Query {
        side: Side,
        doing: &'static str,
        #[source]
        source: Error,
    },
    #[error("the old primary cannot follow: {} could not be published on the backup", tables.join(", "))]
    Unpublished { tables: Vec<String> },
    #[error(
        "the backup has not all rows of its tables (--row-filter \"{0}\"): it cannot take the place of the primary"
    )]
    Partial(String),
    #[error("no switchover is under way")]
    NotUnderWay,
}

impl Cause {
    pub(super) fn query(side: Side, doing: &'static str) -> impl Fn(Error) -> Self {
        move |source| Self::Query {
            side,
            doing,
            source,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Slot(error) => error.hint(),
            Self::Promote(error) => error.hint(),
            Self::Following(error) => error.hint().unwrap_or_default(),
            Self::Preflight(PreflightError::Connect(error)) => format!(
                "{}; a backup takes over from a primary that is gone with `hindcast standby promote`",
                error.hint()
            ),
            Self::Preflight(error) => error.hint(),
            Self::Back(error) => format!(
                "on the backup, {}; or say --no-back, and nothing follows it",
                error.hint()
            ),
            Self::Initial(error) => format!(
                "{}; or say --no-back, and nothing follows the new primary",
                error.hint()
            ),
            Self::Fence(error) => error.hint(),
            Self::Query { .. } => "the server's log says more".to_owned(),
            Self::Unpublished { .. } => {
                "say --no-back, and nothing follows the new primary".to_owned()
            }
            Self::Partial(_) => {
                "`hindcast standby promote` makes it a database of its own, with the rows that it has"
                    .to_owned()
            }
            Self::NotUnderWay => "there is nothing to take back".to_owned(),
        }
    }
}
