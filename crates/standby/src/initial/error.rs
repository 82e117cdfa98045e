//! What can go wrong before a standby follows, and what to do then.

use std::path::PathBuf;

use hindcast_cluster::ClusterError;
use hindcast_pg::{ConnectError, Error};

/// One of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Side {
    #[error("the primary")]
    Primary,
    #[error("the backup")]
    Backup,
}

/// Why there is no copy of the primary. The backup says `copying` until there is one: the next
/// start begins again.
#[derive(Debug, thiserror::Error)]
pub enum InitialError {
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
    #[error("the role {role} of the backup {lacks}")]
    Role {
        role: String,
        lacks: String,
        /// What to run on the backup.
        grant: String,
    },
    /// What the backup says about itself does not let this standby use it.
    #[error("the backup cannot be used: {0}")]
    Unfit(Unfit),
    #[error(
        "the backup's tables are not those of the primary: {}",
        list(differences)
    )]
    Different { differences: Vec<String> },
    #[error("the backup already holds rows: {}", list(tables))]
    NotEmpty { tables: Vec<String> },
    #[error("cannot copy the schema: no pg_dump found")]
    NoPgDump(#[source] ClusterError),
    #[error(
        "cannot copy the schema: {} is of version {found}, and the primary of version {needed}",
        program.display()
    )]
    OldPgDump {
        program: PathBuf,
        found: u32,
        needed: u32,
    },
    #[error("cannot run {}", program.display())]
    RunPgDump {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("pg_dump failed: {output}")]
    PgDump { output: String },
    #[error("the backup refused a part of the primary's schema: {statement}")]
    Schema {
        statement: String,
        #[source]
        source: Error,
    },
    #[error("cannot copy {table}: {side} failed")]
    Copy {
        table: String,
        side: Side,
        #[source]
        source: Error,
    },
    /// `TRUNCATE`, `VACUUM FULL` and their like do not respect snapshots.
    #[error("{table} was truncated, rewritten or dropped while the copy began")]
    Rewritten { table: String },
    #[error("the copy was stopped before it was complete")]
    Stopped,
    /// From whoever takes the rows.
    #[error("cannot keep a row of {table}")]
    Taken {
        table: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Why a backup is not for this standby.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("it is the primary's own database")]
    Itself,
    #[error("it is in recovery, and nothing can be written to it")]
    InRecovery,
    /// It follows somebody else under this name.
    #[error("it is the backup of another primary, {source_url}")]
    OtherPrimary { source_url: String },
    #[error("its tables were copied with {before}, and other rows are wanted now")]
    OtherRows { before: String },
    #[error("it was promoted (slot {slot}), and is a database of its own since")]
    Promoted { slot: String },
    #[error("another process follows into it (slot {slot})")]
    InUse { slot: String },
    /// It says that it was promoted, or stopped being ours, while we worked.
    #[error("slot {slot} was promoted or removed from it meanwhile")]
    Taken { slot: String },
}

/// What a catalog was asked for went away while it was read: `pg_get_indexdef` and its like look
/// where nothing is any more.
fn was_dropped_meanwhile(error: &Error) -> bool {
    const INTERNAL: &str = "XX000";
    error.server().is_some_and(|error| {
        error.code == INTERNAL && error.message.starts_with("cache lookup failed for")
    })
}

impl InitialError {
    pub(crate) fn connect(side: Side) -> impl Fn(ConnectError) -> Self {
        move |source| Self::Connect {
            side,
            source: Box::new(source),
        }
    }

    pub(crate) fn query(side: Side, doing: &'static str) -> impl Fn(Error) -> Self {
        move |source| Self::Query {
            side,
            doing,
            source,
        }
    }

    /// Beginning again may be enough.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { source, .. } => source.is_transient(),
            Self::Query { source, .. } => source.is_connection() || was_dropped_meanwhile(source),
            Self::Copy { source, .. } | Self::Schema { source, .. } => source.is_connection(),
            Self::Rewritten { .. } | Self::Unfit(Unfit::InUse { .. }) => true,
            _ => false,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Connect { source, .. } => source.hint(),
            Self::Query { side, source, .. } => advice(*side, source),
            Self::Role { grant, .. } => format!("as a superuser on the backup: {grant}"),
            Self::Unfit(Unfit::Itself) => "give --to another database, best of another server".to_owned(),
            Self::Unfit(Unfit::InRecovery) => {
                "the backup must be a server of its own: end its replication with SELECT pg_promote(), or choose another".to_owned()
            }
            Self::Unfit(Unfit::OtherPrimary { .. }) => {
                "choose another --name, or another database".to_owned()
            }
            Self::Unfit(Unfit::OtherRows { .. }) => {
                "say the same as before; for other rows `hindcast standby drop`, make the backup's database anew, and start again".to_owned()
            }
            Self::Unfit(Unfit::Promoted { .. }) => {
                "to make it a standby again, choose an empty database, or DROP SCHEMA hindcast CASCADE in it and empty its tables".to_owned()
            }
            Self::Unfit(Unfit::InUse { .. }) => {
                "stop the other one first, or choose another --name".to_owned()
            }
            Self::Unfit(Unfit::Taken { .. }) => "see `hindcast standby status`".to_owned(),
            Self::Different { .. } => {
                "change the backup's tables with ALTER TABLE, or drop them all so that the schema is copied, too".to_owned()
            }
            Self::NotEmpty { tables } => format!(
                "if nobody needs these rows, TRUNCATE {} on the backup; else choose an empty database",
                tables.first().map_or("them", String::as_str)
            ),
            Self::NoPgDump(source) => source.hint().unwrap_or_else(|| {
                "install the Postgres client programs, or make the schema yourself and say --no-schema".to_owned()
            }),
            Self::OldPgDump { needed, .. } => format!(
                "install the programs of Postgres {needed} or newer and name their folder in HINDCAST_PG_BIN, \
                 or make the schema yourself and say --no-schema"
            ),
            Self::RunPgDump { .. } => "check that it may be read and executed".to_owned(),
            Self::PgDump { .. } => {
                "the role of --from must be allowed to read all tables; or make the schema yourself and say --no-schema".to_owned()
            }
            Self::Schema { source, .. } => match source.code() {
                Some("42704") => {
                    "something that the schema names is missing on the backup: create the role, or install the extension's package".to_owned()
                }
                Some("58P01" | "0A000") => "install the extension's package on the backup's server".to_owned(),
                Some("42501") => "let the role of --to be a superuser, or create this part yourself".to_owned(),
                Some("42P06" | "42P07" | "42710" | "42723") => {
                    "the backup's database is not empty: choose an empty one, or make the whole schema yourself and say --no-schema".to_owned()
                }
                _ => "correct this on the primary or make the schema yourself and say --no-schema".to_owned(),
            },
            Self::Copy { side, source, .. } => advice(*side, source),
            Self::Rewritten { .. } | Self::Stopped => "start again: the copy begins anew".to_owned(),
            Self::Taken { .. } => "start again".to_owned(),
        }
    }
}

fn advice(side: Side, source: &Error) -> String {
    match source.code() {
        Some("42501") => match side {
            Side::Primary => "GRANT SELECT on all tables and USAGE on their schemas to the role of --from (row security: BYPASSRLS)".to_owned(),
            Side::Backup => "let the role of --to be a superuser, or give it the tables and, from version 15 on, \
                GRANT SET ON PARAMETER session_replication_role"
                .to_owned(),
        },
        Some("53100") => format!("the disk of {side} is full: make room, and start again"),
        Some("53200") => format!("raise max_locks_per_transaction on {side}: there are more tables than it has room for locks"),
        Some("53300") => format!("{side} has no connection left: raise max_connections, or take fewer --copy-workers"),
        Some("42704") if side == Side::Primary => {
            "the snapshot of the copy is gone, because the session that held it broke: start again".to_owned()
        }
        Some(code) if code.starts_with("22") || code.starts_with("23") => {
            "the backup's table is not like the primary's: drop it so that the schema is copied, too".to_owned()
        }
        _ if source.is_connection() => format!("see why {side} ended the connection, and start again: the copy begins anew"),
        _ => format!("the log of {side} says more"),
    }
}

/// At most a few, for a person to read.
fn list(parts: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = parts[..parts.len().min(SHOWN)].join("; ");
    match parts.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}
