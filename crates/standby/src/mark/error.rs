//! Why a backup cannot show what its primary showed.

use hindcast_pg::{Error, Lsn};

use crate::initial::InitialError;

#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    #[error("the database is nobody's backup")]
    NotABackup,
    #[error("it is the backup of another primary, {source_url}")]
    OtherPrimary { source_url: String },
    #[error("it was promoted, and is a database of its own since")]
    Promoted,
    #[error("the first copy of the primary is not complete")]
    Copying,
    #[error("nobody follows into the backup")]
    NotFollowed,
    #[error("the follower is of a version that knows no marks")]
    Older,
    #[error("the backup is not to have all of the primary: {}", tables.join(", "))]
    LeftOut { tables: Vec<String> },
    #[error(
        "the follower did not get to {at} of the primary's log in time{}",
        applied.map_or_else(String::new, |applied| format!(": it is at {applied}"))
    )]
    Late { at: Lsn, applied: Option<Lsn> },
    #[error("the follower exported no state of the backup: {0}")]
    Refused(String),
    /// With the session that exported it.
    #[error("the state that the follower exported is gone")]
    Gone(#[source] Error),
    #[error(transparent)]
    Server(#[from] InitialError),
}

impl MarkError {
    /// Another mark may do.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Gone(_) | Self::Refused(_) | Self::NotFollowed | Self::Late { .. } => true,
            Self::Server(error) => error.is_transient(),
            _ => false,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NotABackup | Self::NotFollowed => {
                "follow the database that is recorded: hindcast standby --from URL --to URL".to_owned()
            }
            Self::OtherPrimary { .. } => {
                "name a backup of the database that is recorded, or record that primary".to_owned()
            }
            Self::Promoted => "make another backup: hindcast standby --from URL --to URL".to_owned(),
            Self::Copying => {
                "wait for it: `hindcast standby status` says when it follows".to_owned()
            }
            Self::Older => "start it again with this version of hindcast".to_owned(),
            Self::LeftOut { .. } => {
                "let another standby follow (--name) without --table, --exclude-table and --row-filter, or take the bases from the primary".to_owned()
            }
            Self::Late { .. } => {
                "`hindcast standby status` says how far behind it is; it catches up when the primary writes less".to_owned()
            }
            Self::Refused(_) | Self::Gone(_) => {
                "it is tried again; what the follower says tells more".to_owned()
            }
            Self::Server(error) => error.hint(),
        }
    }
}
