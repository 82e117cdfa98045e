//! The copy into a Postgres backup: schema, rows, indexes, statistics.

use hindcast_pg::{Connection, DatabaseUrl, Error, Lsn};

use super::dump::{self, Schema};
use super::error::{InitialError, Side, Unfit};
use super::schema::{self, Present};
use super::state::{self, Identity};
use super::workers::{self, Copied, Piece, Source, at_snapshot, reading};
use crate::backup;
use crate::source::ReplicatedTable;
use crate::source::tables::{TableFilter, tables};
use crate::status::{Control, State};

/// An initial copy into a backup.
#[derive(Clone, Copy, Debug)]
pub struct BackupCopy<'a> {
    pub source: Source<'a>,
    pub backup: &'a DatabaseUrl,
    pub identity: &'a Identity,
    /// What the source's snapshot is the state at.
    pub consistent_point: Lsn,
    /// Make the tables if the backup has none of them.
    pub make_schema: bool,
}

/// Copies the tables as of the snapshot into a backup, which then can follow from
/// `consistent_point` on. If this fails, the backup stays in the state `copying`, and the next copy
/// first removes what this one did.
///
/// # Errors
/// If a table is neither missing nor fit and empty, if a side fails, or if `control` says stop.
pub fn to_backup(
    copy: &BackupCopy<'_>,
    wanted: &[ReplicatedTable],
    control: &Control,
) -> Result<Copied, InitialError> {
    let identity = copy.identity;
    let mut primary = at_snapshot(&copy.source)?;
    let tables = as_of(&mut primary, wanted)?;
    let mut session = writing(copy.backup)?;
    let failed = InitialError::query(Side::Backup, "begin the copy");
    backup::schema::create(&mut session).map_err(&failed)?;

    let schema_made = was_made(&mut session, &identity.slot)?;
    let begun = schema::begun(&mut session, &identity.slot)?;
    let schema = match schema::compare(&mut session, &tables, !schema_made)? {
        Present::None if !copy.make_schema => {
            return Err(InitialError::Different {
                differences: tables
                    .iter()
                    .map(|table| format!("{table} is missing"))
                    .collect(),
            });
        }
        // What an interrupted copy made is not finished: indexes and constraints come after the
        // rows.
        Present::All if !schema_made => None,
        present => {
            let url = copy.source.primary;
            let version = primary.server_version();
            let mut schema = Schema::dump(url, version, copy.source.snapshot, &[], control)?;
            if present == Present::All {
                schema.before_data.clear();
            }
            Some(schema)
        }
    };
    drop(primary);

    session.execute("BEGIN").map_err(&failed)?;
    if let Some(schema) = &schema {
        dump::execute(&mut session, &schema.before_data)?;
    }
    schema::empty(&mut session, &begun)?;
    schema::must_be_empty(&mut session, &tables)?;
    let begin = state::copying(identity, schema.is_some(), &tables, copy.consistent_point);
    session.execute(&begin).map_err(&failed)?;
    session.execute("COMMIT").map_err(&failed)?;

    let copied = rows(copy, &tables, control)?;
    show(control, "indexes and constraints");
    watched(&mut session, control, |session| {
        finish(session, copy, schema.as_ref(), control)
    })?;
    show(control, "statistics");
    watched(&mut session, control, |session| analyze(session, &tables))?;
    Ok(copied)
}

/// What is being done when all rows are there.
fn show(control: &Control, doing: &str) {
    control.update(|status| {
        if let State::Copying(progress) = &mut status.state {
            doing.clone_into(&mut progress.current);
        }
    });
}

/// The tables as they are in the snapshot: somebody may have changed them since they were chosen.
pub(super) fn as_of(
    primary: &mut Connection,
    wanted: &[ReplicatedTable],
) -> Result<Vec<ReplicatedTable>, InitialError> {
    let found = tables(primary, &TableFilter::default())
        .map_err(InitialError::query(Side::Primary, "look at its tables"))?;
    let mut found: std::collections::HashMap<u32, ReplicatedTable> = found
        .tables
        .into_iter()
        .map(|table| (table.oid, table))
        .collect();
    wanted
        .iter()
        .map(|table| {
            let found = found.remove(&table.oid);
            let mut found = found.ok_or_else(|| InitialError::Rewritten {
                table: table.to_string(),
            })?;
            found.rows.clone_from(&table.rows);
            Ok(found)
        })
        .collect()
}

/// A session on the backup in which rows are what they were on the primary: no triggers, no foreign
/// keys. What it commits need not be on disk before the copy is complete.
pub(crate) fn writing(url: &DatabaseUrl) -> Result<Connection, InitialError> {
    let mut session = Connection::connect(url, &reading().set("synchronous_commit", "off"))
        .map_err(InitialError::connect(Side::Backup))?;
    session
        .execute("SET session_replication_role = replica; SET xmloption = content; SET check_function_bodies = off; SET client_min_messages = warning")
        .map_err(InitialError::query(
            Side::Backup,
            "take the role of a replica",
        ))?;
    Ok(session)
}

/// Whether the backup's tables were made by a copy that was interrupted. One that was not
/// interrupted must not be begun again.
fn was_made(session: &mut Connection, slot: &str) -> Result<bool, InitialError> {
    let rows = session
        .query(&format!(
            "SELECT schema_made, state = 'copying' FROM hindcast.standby WHERE slot = {}",
            hindcast_pg::quote_literal(slot)
        ))
        .map_err(InitialError::query(Side::Backup, "begin the copy"))?;
    match rows.first() {
        Some(row) if !row.is_true(1) => Err(InitialError::Unfit(Unfit::Taken {
            slot: slot.to_owned(),
        })),
        Some(row) => Ok(row.is_true(0)),
        None => Ok(false),
    }
}

fn rows(
    copy: &BackupCopy<'_>,
    tables: &[ReplicatedTable],
    control: &Control,
) -> Result<Copied, InitialError> {
    let mut sessions = Vec::new();
    for _ in 0..copy.source.workers.max(1) {
        let session = writing(copy.backup)?;
        let interrupter = session.interrupter();
        sessions.push((session, Some(interrupter)));
    }
    workers::run(&copy.source, tables, sessions, control, write)
}

/// Copies a piece of a table.
pub(super) fn write(
    session: &mut Connection,
    table: &ReplicatedTable,
    piece: &mut Piece<'_, '_>,
) -> Result<(), InitialError> {
    let failed = |source| InitialError::Copy {
        table: table.to_string(),
        side: Side::Backup,
        source,
    };
    let columns = match table.columns.is_empty() {
        true => String::new(),
        false => format!("({})", table.column_list()),
    };
    let sql = format!("COPY {} {columns} FROM STDIN", table.quoted());
    let mut copy_in = session.copy_in(&sql).map_err(failed)?;
    piece.read(|line| copy_in.write(line).map_err(failed))?;
    copy_in.finish().map(drop).map_err(failed)
}

/// Indexes and constraints, and the first progress: all of it or nothing.
fn finish(
    session: &mut Connection,
    copy: &BackupCopy<'_>,
    schema: Option<&Schema>,
    control: &Control,
) -> Result<(), InitialError> {
    let failed = InitialError::query(Side::Backup, "end the copy");
    // This one commit waits until it is on disk, and with it all that was written before.
    session
        .execute("BEGIN; SET LOCAL synchronous_commit = local")
        .map_err(&failed)?;
    if let Some(schema) = schema {
        let left_out = dump::execute(session, &schema.after_data)?;
        control.update(|status| status.notices.extend(left_out));
    }
    let following = state::following(&copy.identity.slot, copy.consistent_point);
    if session.execute(&following).map_err(&failed)? != 1 {
        return Err(InitialError::Unfit(Unfit::Taken {
            slot: copy.identity.slot.clone(),
        }));
    }
    session.execute("COMMIT").map(drop).map_err(&failed)
}

/// Without statistics the backup would plan its first queries, and ours, as if its tables were
/// empty.
pub(super) fn analyze(
    session: &mut Connection,
    tables: &[ReplicatedTable],
) -> Result<(), InitialError> {
    for table in tables {
        match session.execute(&format!("ANALYZE {}", table.quoted())) {
            Ok(_) => {}
            // The rows are there: statistics that somebody else has to gather are no reason to
            // fail.
            Err(error) if !error.is_connection() && !matches!(error, Error::Interrupted) => {}
            Err(source) => {
                return Err(InitialError::Copy {
                    table: table.to_string(),
                    side: Side::Backup,
                    source,
                });
            }
        }
    }
    Ok(())
}

/// Does something that may take long, and ends it when everything is to stop.
pub(crate) fn watched<T>(
    session: &mut Connection,
    control: &Control,
    work: impl FnOnce(&mut Connection) -> Result<T, InitialError>,
) -> Result<T, InitialError> {
    let (cancel, interrupter) = (session.cancel_token(), session.interrupter());
    let (done, ended) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let pause = std::time::Duration::from_millis(50);
            while ended.recv_timeout(pause) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                if control.is_stopping() {
                    // An index that is being built would not notice that nobody listens any more.
                    // If the server cannot be told, so be it.
                    let _ = cancel.cancel();
                    interrupter.interrupt();
                    return;
                }
            }
        });
        let result = work(session);
        drop(done);
        match control.is_stopping() {
            true => result.map_err(|_| InitialError::Stopped),
            false => result,
        }
    })
}
