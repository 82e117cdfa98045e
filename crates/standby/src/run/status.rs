//! What a backup says about its standby, for whoever asks from outside.

use hindcast_pg::{Connection, DatabaseUrl, Lsn};

use super::StandbyError;
use crate::backup::schema;
use crate::initial::{Hold, InitialError, Side, state};
use crate::source::compared::{self, LeftOut};
use crate::source::{Names, session};

/// As of when it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupStatus {
    pub slot: String,
    /// The primary's URL, without its password.
    pub source: String,
    /// `copying`, `following` or `promoted`.
    pub state: String,
    /// Somebody follows right now.
    pub followed: bool,
    /// Everything up to here is applied.
    pub applied: Option<Lsn>,
    /// The primary's end of WAL, if it was asked.
    pub primary_end: Option<Lsn>,
    /// Tables of the primary that are wanted and not there; `None` if it was not asked, or nobody
    /// has said which are wanted.
    pub missing_tables: Option<Vec<String>>,
    /// Tables that it is not to have, or cannot have, as far as that is known.
    pub left_out: Vec<LeftOut>,
    /// When all its tables were compared with the primary's last, for people, and how many rows
    /// have differed and were repaired; `None` if they were not.
    pub checked: Option<(String, u64, u64)>,
    /// Since when a switchover to it is under way.
    pub switchover: Option<String>,
    /// It was the primary before, and its users only read.
    pub fenced: bool,
}

impl BackupStatus {
    /// WAL that the primary has and the backup has not applied.
    pub fn behind(&self) -> Option<u64> {
        Some(self.primary_end?.0.saturating_sub(self.applied?.0))
    }
}

/// Asks the backup, and the primary if it is given. `None` if the backup knows no standby of that
/// name.
pub fn status(
    to: &DatabaseUrl,
    from: Option<&DatabaseUrl>,
    name: &str,
) -> Result<Option<BackupStatus>, StandbyError> {
    let names = Names::new(name)?;
    let mut backup = connect(to, Side::Backup)?;
    let failed = InitialError::query(Side::Backup, "see what it is a backup of");
    let Some(stored) = state::stored(&mut backup, &names.slot).map_err(failed)? else {
        return Ok(None);
    };
    let (mut primary_end, mut missing_tables, mut left_out) = (None, None, Vec::new());
    if let Some(from) = from {
        let mut primary = connect(from, Side::Primary)?;
        let failed = InitialError::query(Side::Primary, "see how far it is");
        let rows = primary
            .query("SELECT pg_catalog.pg_current_wal_lsn()")
            .map_err(&failed)?;
        primary_end = rows
            .first()
            .map(|row| row.parse(0))
            .transpose()
            .map_err(&failed)?;
        let ours = InitialError::query(Side::Backup, "see its tables");
        schema::create(&mut backup).map_err(&ours)?;
        if let Some(filter) = state::filter(&mut backup, &names.slot).map_err(&ours)? {
            let there = state::tables(&mut backup, &names.slot).map_err(&ours)?;
            let mut compared =
                compared::compare(&mut primary, &names, &filter, &there).map_err(&failed)?;
            compared.look_at_columns(&mut backup).map_err(&ours)?;
            missing_tables = Some(compared.lacking());
            left_out = compared.left_out;
        }
    }
    Ok(Some(BackupStatus {
        slot: stored.slot,
        source: stored.source,
        followed: stored.state != "promoted" && Hold::take(to, &names.slot)?.is_none(),
        state: stored.state,
        applied: stored.applied,
        primary_end,
        missing_tables,
        left_out,
        checked: (stored.checked).map(|when| (when, stored.differed, stored.repaired)),
        switchover: stored.switchover,
        fenced: stored.fenced,
    }))
}

fn connect(url: &DatabaseUrl, side: Side) -> Result<Connection, InitialError> {
    Connection::connect(url, &session("hindcast standby")).map_err(|source| InitialError::Connect {
        side,
        source: Box::new(source),
    })
}
