//! A moment at which the backup shows what its primary showed: for a base that is read from the
//! backup.
//!
//! ```text
//!  a snapshot of the primary ──▶ a mark in its log ──▶ nothing was committed in between
//!    ──▶ the follower gets there: all before the mark is on the backup, and nothing behind it
//!    ──▶ it exports a snapshot of the backup, and follows on
//! ```
//!
//! The mark is a message in the log that names the follower's slot (`pg_logical_emit_message`), so
//! anybody may write it who may connect, it takes no transaction id, and its place among the
//! commits is exact. Why: `docs/design/0174-bases-from-a-standby.md`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hindcast_pg::{Connection, DatabaseUrl, Error, Lsn, Row, quote_literal};

use crate::initial::{Hold, InitialError, Side, enums, state};
use crate::source::compared::{Compared, Copied, compare};
use crate::source::tables::tables;
use crate::source::{Names, ReplicatedTable, TableFilter, session};
use crate::status::now_micros;

mod error;

pub use error::MarkError;

/// Of our messages in the log.
pub const PREFIX: &str = "hindcast.standby";
/// How long the follower may take to a mark.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The mark in a message, if it is for the follower of this slot.
pub fn for_slot<'a>(content: &'a [u8], slot: &str) -> Option<&'a str> {
    let (named, mark) = std::str::from_utf8(content).ok()?.split_once(' ')?;
    (named == slot).then_some(mark)
}

/// Writes marks for the follower of a backup.
pub struct Marker {
    from: DatabaseUrl,
    to: DatabaseUrl,
    names: Names,
    primary: Connection,
    /// How many it has written.
    count: u64,
}

/// A place in the log up to which it holds what a snapshot of the primary shows.
#[derive(Clone, Debug)]
pub struct Mark {
    name: String,
    pub at: Lsn,
    /// The primary's sequences then, which are not in the log: SQL that gives them these values.
    pub sequences: Vec<String>,
}

/// What the backup showed at a mark, held as long as this lives.
pub struct There {
    /// For `SET TRANSACTION SNAPSHOT`.
    pub snapshot: String,
    /// The tables whose rows are all there, as SQL writes their names.
    pub tables: Vec<String>,
    /// Those of the primary that followers follow, and whose rows are not, with the reason.
    pub elsewhere: Vec<(String, String)>,
    _session: Connection,
}

impl Marker {
    /// Sees that the backup is one of this primary, complete, and followed.
    pub fn new(from: &DatabaseUrl, to: &DatabaseUrl) -> Result<Self, MarkError> {
        let mut primary = connect(from, Side::Primary)?;
        let mut backup = connect(to, Side::Backup)?;
        let slot = slot_of(&mut primary, &mut backup)?;
        if Hold::take(to, &slot)?.is_some() {
            return Err(MarkError::NotFollowed);
        }
        let marker = Self {
            from: from.clone(),
            to: to.clone(),
            names: Names {
                slot: slot.clone(),
                publication: slot,
            },
            primary,
            count: 0,
        };
        marker.compared(&mut connect(from, Side::Primary)?, &mut backup)?;
        Ok(marker)
    }

    /// Writes a mark. `None`: a transaction ended after `snapshot` was taken, or one that wrote is
    /// open, so the log up to the mark may hold another state than the snapshot shows.
    ///
    /// `snapshot` is what `pg_current_snapshot()` said in the transaction that shows it.
    pub fn mark(&mut self, snapshot: &str) -> Result<Option<Mark>, MarkError> {
        self.count += 1;
        let pid = self.primary.process();
        let name = format!("{pid}-{}-{}", self.count, now_micros());
        let content = quote_literal(&format!("{} {name}", self.names.slot));
        let failed = InitialError::query(Side::Primary, "write a mark into the log");
        // Each a transaction of its own: the end of the first has the message written out soon, and
        // the last one's snapshot must be younger than what the second one sees.
        let emit =
            format!("SELECT pg_catalog.pg_logical_emit_message(false, '{PREFIX}', {content})");
        let rows = self.primary.query(&emit).map_err(&failed)?;
        let at = first(&rows, &emit).and_then(|row| row.parse(0));
        let at = at.map_err(&failed)?;
        let rows = self.primary.query(WRITERS).map_err(&failed)?;
        let is_written = rows.first().is_none_or(|row| row.is_true(0));
        let rows = self.primary.query(SNAPSHOT).map_err(&failed)?;
        let is_same = rows
            .first()
            .is_some_and(|row| row.text(0) == Some(snapshot));
        if is_written || !is_same {
            return Ok(None);
        }
        let rows = self.primary.query(SEQUENCES).map_err(&failed)?;
        Ok(Some(Mark {
            name,
            at,
            sequences: rows.iter().map(|row| row.string(0)).collect(),
        }))
    }

    /// Waits until the follower has got to a mark. `exported` is the name of the primary's snapshot
    /// that it was written for.
    pub fn there(&mut self, mark: &Mark, exported: &str) -> Result<There, MarkError> {
        let mut asked = connect(&self.to, Side::Backup)?;
        let reached = self.reached(&mut asked, mark)?;
        let mut backup = as_of(&self.to, Side::Backup, &reached)?;
        let mut primary = as_of(&self.from, Side::Primary, exported)?;
        let (compared, copied) = self.compared(&mut primary, &mut backup)?;
        let failed = InitialError::query(Side::Backup, "see its tables");
        let there = tables(&mut backup, &TableFilter::default()).map_err(&failed)?;
        let there: HashMap<_, _> = (there.tables.iter())
            .map(|table| ((&table.schema, &table.name), table))
            .collect();
        let unlike = enums::unlike(&mut primary, &mut backup, &self.names.slot)?;
        let (mut exact, mut elsewhere) = (Vec::new(), lacking(&compared));
        for table in compared.same.iter().chain(&compared.reshaped) {
            let name = (table.schema.clone(), table.name.clone());
            let shape = copied.get(&name);
            match there.get(&(&table.schema, &table.name)) {
                Some(_) if shape == Some(&None) => {
                    elsewhere.push((table.to_string(), UNSHAPED.to_owned()));
                }
                Some(_) if unlike.contains(&name) => {
                    elsewhere.push((table.to_string(), LABELS.to_owned()));
                }
                Some(found) => match other_columns(table, found) {
                    None => exact.push(table.quoted()),
                    Some(why) => elsewhere.push((table.to_string(), why)),
                },
                None => elsewhere.push((table.to_string(), "the backup lacks it".to_owned())),
            }
        }
        let sql = "SELECT pg_catalog.pg_export_snapshot()";
        let rows = backup.query(sql).map_err(&failed)?;
        Ok(There {
            snapshot: first(&rows, sql).map_err(&failed)?.string(0),
            tables: exact,
            elsewhere,
            _session: backup,
        })
    }

    /// The name of the snapshot that the follower exports at a mark.
    fn reached(&self, backup: &mut Connection, mark: &Mark) -> Result<String, MarkError> {
        let failed = InitialError::query(Side::Backup, "see whether its follower got to a mark");
        let (slot, name) = (quote_literal(&self.names.slot), quote_literal(&mark.name));
        let sql = format!(
            "SELECT snapshot, refused FROM hindcast.standby_marks WHERE slot = {slot} AND mark = {name}"
        );
        let deadline = Instant::now() + PATIENCE;
        let mut look_at = Instant::now() + PATIENCE / 10;
        loop {
            let rows = match backup.query(&sql) {
                // It is made by who follows.
                Err(error) if error.code() == Some("42P01") => return Err(MarkError::Older),
                rows => rows.map_err(&failed)?,
            };
            if let Some(row) = rows.first() {
                return match (row.text(0), row.text(1)) {
                    (Some(snapshot), _) => Ok(snapshot.to_owned()),
                    (None, why) => Err(MarkError::Refused(why.unwrap_or_default().to_owned())),
                };
            }
            if Instant::now() > look_at {
                look_at = Instant::now() + PATIENCE / 10;
                if Hold::take(&self.to, &self.names.slot)?.is_some() {
                    return Err(MarkError::NotFollowed);
                }
            }
            if Instant::now() > deadline {
                let stored = state::stored(backup, &self.names.slot).map_err(&failed)?;
                return Err(MarkError::Late {
                    at: mark.at,
                    applied: stored.and_then(|it| it.applied),
                });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// The primary's tables beside those of the backup, which must have all that can be followed.
    fn compared(
        &self,
        primary: &mut Connection,
        backup: &mut Connection,
    ) -> Result<(Compared, Copied), MarkError> {
        let failed = InitialError::query(Side::Backup, "see its tables");
        let slot = &self.names.slot;
        let filter = state::filter(backup, slot).map_err(&failed)?;
        let filter = filter.unwrap_or_default();
        let copied = state::tables(backup, slot).map_err(failed)?;
        let compared = compare(primary, &self.names, &filter, &copied)
            .map_err(InitialError::query(Side::Primary, "see its tables"))?;
        let left_out = compared.left_out.iter().filter(|it| it.is_chosen());
        let tables: Vec<_> = left_out.map(|it| it.table.clone()).collect();
        match tables.is_empty() {
            true => Ok((compared, copied)),
            false => Err(MarkError::LeftOut { tables }),
        }
    }
}

/// The transactions that have written here and not ended, as all may see them: who has a
/// transaction id holds its lock until readers see the transaction as ended. One without a process
/// is prepared.
const WRITERS: &str = "\
SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid \
                 LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = l.transactionid \
                WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted \
                  AND coalesce(a.datname, p.database, current_database()) = current_database())";

const SNAPSHOT: &str = "SELECT pg_catalog.pg_current_snapshot()::text";

/// Those that we may read.
const SEQUENCES: &str = "\
SELECT pg_catalog.format('SELECT pg_catalog.setval(pg_catalog.to_regclass(%1$L), %2$s, %3$L) WHERE pg_catalog.to_regclass(%1$L) IS NOT NULL;', \
                         pg_catalog.format('%I.%I', schemaname, sequencename), coalesce(last_value, start_value), last_value IS NOT NULL) \
  FROM pg_catalog.pg_sequences \
 WHERE pg_catalog.has_sequence_privilege(pg_catalog.format('%I.%I', schemaname, sequencename), 'SELECT')";

const UNSHAPED: &str = "it was copied by an older version, which did not note its shape";

const LABELS: &str = "labels of an enum have other names in the backup";

/// Tables that the backup does not hold as the primary does now.
fn lacking(compared: &Compared) -> Vec<(String, String)> {
    let why = |table: &ReplicatedTable| match table.may_be_published() {
        true => "the backup does not have its rows yet".to_owned(),
        false => table.unpublished().to_owned(),
    };
    let missing = compared.missing.iter();
    let missing = missing.map(|table| (table.to_string(), why(table)));
    let changed = compared.altered.iter().chain(&compared.renamed);
    let changed = changed.map(|table| {
        let why = "it was changed on the primary, and not in the backup yet";
        (table.to_string(), why.to_owned())
    });
    missing.chain(changed).collect()
}

/// Which columns two tables do not have in common.
fn other_columns(primary: &ReplicatedTable, backup: &ReplicatedTable) -> Option<String> {
    let columns = |table: &ReplicatedTable| {
        let columns = table.columns.iter();
        let mut columns: Vec<_> = columns
            .map(|column| format!("{} {}", column.name, column.type_name))
            .collect();
        columns.sort();
        columns
    };
    let (ours, theirs) = (columns(backup), columns(primary));
    let only = |of: &[String], not: &[String]| {
        let only = of.iter().filter(|column| !not.contains(column));
        only.cloned().collect::<Vec<_>>().join(", ")
    };
    match (only(&theirs, &ours), only(&ours, &theirs)) {
        (lacks, has) if lacks.is_empty() && has.is_empty() => None,
        (lacks, has) if has.is_empty() => Some(format!("the backup lacks its {lacks}")),
        (lacks, has) if lacks.is_empty() => Some(format!("the backup still has its {has}")),
        (lacks, has) => Some(format!("the backup has {has} for its {lacks}")),
    }
}

/// The slot by which the backup follows this primary.
fn slot_of(primary: &mut Connection, backup: &mut Connection) -> Result<String, MarkError> {
    let asked = "SELECT system_identifier, current_database() FROM pg_catalog.pg_control_system()";
    let failed = InitialError::query(Side::Primary, "see which server it is");
    let rows = primary.query(asked).map_err(&failed)?;
    let row = first(&rows, asked).map_err(failed)?;
    let ours = (row.string(0), row.string(1));
    let failed = InitialError::query(Side::Backup, "see what it is a backup of");
    let rows = match backup.query(
        "SELECT slot, state, source, system_identifier, source_database FROM hindcast.standby ORDER BY following_since DESC NULLS LAST",
    ) {
        Err(error) if matches!(error.code(), Some("42P01" | "3F000")) => {
            return Err(MarkError::NotABackup);
        }
        rows => rows.map_err(failed)?,
    };
    let is_ours = |row: &&Row| (row.string(3), row.string(4)) == ours;
    let Some(row) = rows.iter().find(is_ours) else {
        return Err(match rows.first() {
            None => MarkError::NotABackup,
            Some(row) => MarkError::OtherPrimary {
                source_url: row.string(2),
            },
        });
    };
    match row.text(1) {
        Some("following") => Ok(row.string(0)),
        Some("promoted") => Err(MarkError::Promoted),
        _ => Err(MarkError::Copying),
    }
}

fn connect(url: &DatabaseUrl, side: Side) -> Result<Connection, InitialError> {
    let settings = session("hindcast base").set("idle_session_timeout", "0");
    Connection::connect(url, &settings).map_err(InitialError::connect(side))
}

/// A session that sees what an exported snapshot shows.
fn as_of(url: &DatabaseUrl, side: Side, snapshot: &str) -> Result<Connection, MarkError> {
    let mut connection = connect(url, side)?;
    let begin = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {}",
        quote_literal(snapshot)
    );
    match connection.execute(&begin) {
        Err(error) if !error.is_connection() && side == Side::Backup => Err(MarkError::Gone(error)),
        done => {
            done.map_err(InitialError::query(side, "see what it showed"))?;
            Ok(connection)
        }
    }
}

fn first<'a>(rows: &'a hindcast_pg::Rows, sql: &str) -> Result<&'a Row, Error> {
    let missing = || Error::Protocol(format!("no answer to {sql}"));
    rows.first().ok_or_else(missing)
}
