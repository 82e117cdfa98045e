//! Why a backup was not promoted, and what to do then.

use hindcast_pg::{ConnectError, Error, Lsn};

use crate::initial::Side;
use crate::source::SlotError;

/// Why a backup was not promoted. It is what it was before; only a follower that was asked to stop
/// may have stopped.
#[derive(Debug, thiserror::Error)]
pub enum PromoteError {
    #[error(transparent)]
    Name(#[from] SlotError),
    #[error("cannot connect to {side}")]
    Connect {
        side: Side,
        #[source]
        source: Box<ConnectError>,
    },
    #[error("cannot {doing} on {side}")]
    Query {
        side: Side,
        doing: &'static str,
        #[source]
        source: Error,
    },
    #[error("the database is no backup of this name ({slot}){}", others(known))]
    Unknown { slot: String, known: Vec<String> },
    #[error("the backup's copy was never completed: it does not hold what the primary held")]
    Incomplete,
    #[error("it was promoted already")]
    Already,
    #[error("{given} is not the primary of this backup, which is {known}")]
    OtherPrimary { given: String, known: String },
    #[error("the process that follows did not stop within {seconds} s; it has applied the log up to {applied}{}", wanted.map(|lsn| format!(" of {lsn}")).unwrap_or_default())]
    NoAnswer {
        seconds: u64,
        applied: Lsn,
        wanted: Option<Lsn>,
    },
    #[error(
        "the backup is behind: it has applied the log up to {applied}, and the primary has changes up to {wanted}"
    )]
    Behind { applied: Lsn, wanted: Lsn },
    #[error(
        "the backup's workers stopped at different epochs: what it shows now is no state that the primary had"
    )]
    Uneven,
    #[error("the primary is gone: {0}")]
    Gone(String),
    #[error("somebody still writes to the primary: {}", findings.join("; "))]
    StillWritten { findings: Vec<String> },
    /// The primary's list of today has more tables than the backup.
    #[error("the backup lacks tables of the primary: {}", tables.join(", "))]
    Tables { tables: Vec<String> },
    #[error("primary and backup do not hold the same rows: {}", tables.join("; "))]
    Differs {
        tables: Vec<String>,
        /// Changes were made on the primary since the backup stopped following.
        moving: bool,
    },
}

impl PromoteError {
    pub(crate) fn query(side: Side, doing: &'static str) -> impl Fn(Error) -> Self {
        move |source| Self::Query {
            side,
            doing,
            source,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Name(error) => error.hint(),
            Self::Connect { source, .. } => source.hint(),
            Self::Query { source, .. } => match source.code() {
                Some("42501") => "let the owner of the tables or a superuser promote".to_owned(),
                Some("25006") => "it is read-only: see default_transaction_read_only, and whether it is in recovery".to_owned(),
                Some("42704") => "what the standby had on the primary is gone: promote without --from".to_owned(),
                _ => "the server's log says more".to_owned(),
            },
            Self::Unknown { known, .. } => match known.first() {
                Some(name) => format!("say --name {}", name.trim_start_matches("hindcast_")),
                None => "name the database that `hindcast standby --to` was given".to_owned(),
            },
            Self::Incomplete => "run `hindcast standby` until it follows".to_owned(),
            Self::Already => "there is nothing to do: it is a database of its own".to_owned(),
            Self::OtherPrimary { .. } => "name the primary that this backup follows, or leave --from out".to_owned(),
            Self::NoAnswer { .. } => "stop `hindcast standby` yourself, then promote again".to_owned(),
            Self::Behind { .. } => {
                "start `hindcast standby` again and promote while it runs; or say --no-wait, and what is missing is lost".to_owned()
            }
            Self::Tables { tables } => format!(
                "`hindcast standby` copies tables that are new while it follows, and says why if it cannot: start it again and promote while it runs; or leave them out (--exclude-table {}); or promote without --from, and they are lost",
                tables.first().map_or("NAME", String::as_str)
            ),
            Self::Gone(_) => "a backup takes over from a primary that is gone with `hindcast standby promote`".to_owned(),
            Self::StillWritten { .. } => "look for a session that sets default_transaction_read_only = off itself".to_owned(),
            Self::Uneven => "start `hindcast standby` again, with which they get even, and promote while it runs".to_owned(),
            Self::Differs { moving: true, .. } => {
                "stop whoever writes to the primary, start `hindcast standby` again, and promote then".to_owned()
            }
            Self::Differs { .. } => {
                "something else has written to the backup: make its database anew, or promote without --check".to_owned()
            }
        }
    }
}

fn others(known: &[String]) -> String {
    match known.is_empty() {
        true => String::new(),
        false => format!("; it is one of {}", known.join(", ")),
    }
}
