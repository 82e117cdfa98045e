//! The slot on the primary: what is kept for us there.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use hindcast_pg::{
    ConnectError, ConnectOptions, Connection, DatabaseUrl, Error, Lsn, Row, Rows, quote_identifier,
    quote_literal,
};

use super::session::session;

/// What slot and publication of a standby are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub slot: String,
    pub publication: String,
}

impl Names {
    /// # Errors
    /// If it cannot be part of a slot's name: lower-case letters, digits and underscores can.
    pub fn new(standby: &str) -> Result<Self, SlotError> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if standby.is_empty() || standby.len() > 40 || !standby.chars().all(fits) {
            return Err(SlotError::Name(standby.to_owned()));
        }
        let name = format!("hindcast_{standby}");
        Ok(Self {
            slot: name.clone(),
            publication: name,
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    #[error("`{0}` cannot be the name of a standby")]
    Name(String),
    #[error("the primary cannot be reached")]
    Connect(#[source] ConnectError),
    #[error("cannot {doing} on the primary")]
    Refused {
        doing: &'static str,
        #[source]
        source: Error,
    },
    /// The primary does not take a condition of ours.
    #[error("the primary does not take a --row-filter")]
    RowFilter {
        #[source]
        source: Error,
    },
    #[error("{table} has a --row-filter, and a publication has them from Postgres 15 on")]
    NoRowFilters { table: String },
    /// Publishing it would make the next UPDATE or DELETE fail on the primary.
    #[error(
        "the --row-filter of {table} reads {columns}, which is not in its replica identity: the primary would refuse to update and delete its rows"
    )]
    Unidentified { table: String, columns: String },
    #[error("stopped before the replication slot was made")]
    Stopped,
    /// Of a backup that is not this one.
    #[error("slot {slot} exists on the primary already, and this backup knows nothing of it")]
    Exists { slot: String },
    #[error("slot {slot} is in use by another session (process {pid} on the primary)")]
    Active { slot: String, pid: String },
    #[error("slot {slot} is gone from the primary, and with it the WAL since {since}")]
    Gone { slot: String, since: Lsn },
    #[error("slot {slot} is lost: the primary has removed WAL that it needed ({why})")]
    Lost { slot: String, why: String },
    #[error("slot {slot} is of another kind: {what}")]
    Foreign { slot: String, what: String },
    /// The backup is older than what was acknowledged: it was put back to an earlier state.
    #[error(
        "slot {slot} has let go of the log up to {confirmed}, but the backup is only at {progress}"
    )]
    Ahead {
        slot: String,
        confirmed: Lsn,
        progress: Lsn,
    },
}

impl SlotError {
    pub fn hint(&self) -> String {
        match self {
            SlotError::Name(_) => "use up to 40 lower-case letters, digits and underscores".to_owned(),
            SlotError::Connect(error) => error.hint(),
            SlotError::Refused { source, .. } => match source.code() {
                Some("42710") => "another standby has this --name; if it is gone for good, `hindcast standby drop` removes what it left".to_owned(),
                Some("55P03") => "somebody has a table locked: try again when they are done (SELECT pid, query FROM pg_stat_activity WHERE wait_event_type = 'Lock' shows who waits)".to_owned(),
                Some("42501") => "let a superuser or the tables' owner with the attribute REPLICATION follow".to_owned(),
                Some("53400") => "two are needed for a moment: drop slots that nobody reads (SELECT slot_name, active FROM pg_replication_slots), or raise max_replication_slots and restart the primary".to_owned(),
                _ => "the primary's log says more".to_owned(),
            },
            SlotError::Exists { .. } => "another backup follows under this name: choose another --name; or, if that backup is gone for good, `hindcast standby drop`".to_owned(),
            SlotError::Active { pid, .. } => format!(
                "another standby runs with this --name: stop it, or choose another name; if it is dead, SELECT pg_terminate_backend({pid}) on the primary"
            ),
            SlotError::Gone { .. } | SlotError::Lost { .. } | SlotError::Ahead { .. } => {
                "the gap cannot be closed: `hindcast standby drop`, make the backup's database anew, and start again".to_owned()
            }
            SlotError::RowFilter { .. } => "it is a condition as in CREATE PUBLICATION … WHERE: of columns of the table and constants, with built-in operators and functions that are immutable".to_owned(),
            SlotError::NoRowFilters { .. } => "follow a newer primary, or leave --row-filter out".to_owned(),
            SlotError::Unidentified { table, .. } => format!("on the primary: ALTER TABLE {table} REPLICA IDENTITY FULL; or filter by columns of its key"),
            SlotError::Stopped => "start again: it begins anew".to_owned(),
            SlotError::Foreign { .. } => "choose another --name".to_owned(),
        }
    }

    /// Trying again may be enough.
    pub fn is_transient(&self) -> bool {
        match self {
            SlotError::Connect(error) => error.is_transient(),
            SlotError::Refused { source, .. } => source.is_connection(),
            // The primary has not missed our predecessor yet.
            SlotError::Active { .. } => true,
            _ => false,
        }
    }
}

pub(super) fn refused(doing: &'static str) -> impl Fn(Error) -> SlotError {
    move |source| SlotError::Refused { doing, source }
}

/// A slot that was just made. As long as this lives, `snapshot` is the state that the slot's log
/// continues.
pub struct Created {
    name: String,
    pub consistent_point: Lsn,
    /// For `SET TRANSACTION SNAPSHOT`.
    pub snapshot: String,
    /// The snapshot lives as long as this session does nothing else.
    _keeper: Connection,
}

pub(super) fn connect(url: &DatabaseUrl) -> Result<Connection, SlotError> {
    Connection::connect(url, &session("hindcast standby")).map_err(SlotError::Connect)
}

impl Created {
    /// Makes a slot of the standby's name that begins where this one does, and stays. Its point
    /// tells it from anybody else's: see [`remove_unread`].
    pub fn keep(&self, url: &DatabaseUrl, names: &Names) -> Result<(), SlotError> {
        let copied = connect(url)?.execute(&format!(
            "SELECT pg_catalog.pg_copy_logical_replication_slot({}, {}, false)",
            quote_literal(&self.name),
            quote_literal(&names.slot)
        ));
        copied.map(drop).map_err(|source| match source.code() {
            Some("42710") => SlotError::Exists {
                slot: names.slot.clone(),
            },
            _ => refused("make a replication slot")(source),
        })
    }
}

/// Makes the slot. The publication must be there already, or changes in between would be missing.
pub fn create(url: &DatabaseUrl, names: &Names) -> Result<Created, SlotError> {
    create_unless(url, names, || false, |_| {})
}

/// The same. The primary first waits for the end of all transactions that have written something,
/// and that may take as long as somebody forgets to commit: `waiting` is told what it waits for,
/// and `stop` is asked now and then whether to give up.
pub fn create_unless(
    url: &DatabaseUrl,
    names: &Names,
    stop: impl Fn() -> bool,
    waiting: impl FnMut(String),
) -> Result<Created, SlotError> {
    create_slot(url, names, Lasting::Always, stop, waiting)
}

/// Makes one that goes with its session, whatever ends that: nobody who is killed leaves one
/// behind.
pub fn create_temporary(
    url: &DatabaseUrl,
    names: &Names,
    stop: impl Fn() -> bool,
    waiting: impl FnMut(String),
) -> Result<Created, SlotError> {
    create_slot(url, names, Lasting::WithSession, stop, waiting)
}

#[derive(Clone, Copy)]
enum Lasting {
    Always,
    WithSession,
}

fn create_slot(
    url: &DatabaseUrl,
    names: &Names,
    lasting: Lasting,
    stop: impl Fn() -> bool,
    mut waiting: impl FnMut(String),
) -> Result<Created, SlotError> {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    const PATIENCE: Duration = Duration::from_secs(1);
    let refused = || refused("make a replication slot");
    let options = ConnectOptions {
        replication: true,
        ..session("hindcast standby")
    };
    let mut keeper = Connection::connect(url, &options).map_err(SlotError::Connect)?;
    // Not among the settings of the session, which an older server would refuse.
    if keeper.server_version() >= 170_000 {
        keeper
            .execute("SET transaction_timeout = 0")
            .map_err(refused())?;
    }
    let (token, pid) = (keeper.cancel_token(), keeper.process());
    let (name, kind) = match lasting {
        Lasting::Always => (names.slot.clone(), ""),
        // No two sessions have it, though the primary may not have missed a predecessor yet.
        Lasting::WithSession => (format!("{}_{pid}", names.slot), "TEMPORARY "),
    };
    let rows = std::thread::scope(|scope| {
        let (ended, end) = mpsc::channel::<()>();
        let (keeper, name) = (&mut keeper, &name);
        let creation = scope.spawn(move || {
            let rows = create_with(keeper, name, kind);
            drop(ended);
            rows
        });
        let mut look_at = Instant::now() + PATIENCE;
        let mut stopped = false;
        // Nothing is ever sent: it is the drop that ends the wait.
        while end.recv_timeout(LOOK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
            if stop() {
                stopped = true;
                // Asked again until it helps; if the primary cannot be reached, creating fails by
                // itself.
                let _ = token.cancel();
            } else if Instant::now() > look_at {
                if let Ok(Some(text)) = blockers(url, pid) {
                    waiting(text);
                }
                look_at = Instant::now() + PATIENCE;
            }
        }
        let rows = creation
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match rows {
            Err(_) if stopped => Err(SlotError::Stopped),
            rows => rows.map_err(refused()),
        }
    })?;
    let row = rows
        .first()
        .ok_or_else(|| Error::Protocol("no answer to CREATE_REPLICATION_SLOT".to_owned()))
        .map_err(refused())?;
    Ok(Created {
        name,
        consistent_point: row.parse(1).map_err(refused())?,
        snapshot: row.string(2),
        _keeper: keeper,
    })
}

fn create_with(keeper: &mut Connection, slot: &str, kind: &str) -> Result<Rows, Error> {
    // The form with parentheses is of version 15.
    let export = match keeper.server_version() {
        150_000.. => "(SNAPSHOT 'export')",
        _ => "EXPORT_SNAPSHOT",
    };
    keeper.query(&format!(
        "CREATE_REPLICATION_SLOT {} {kind}LOGICAL pgoutput {export}",
        quote_identifier(slot)
    ))
}

/// Whom a process of the primary waits for.
fn blockers(url: &DatabaseUrl, pid: u32) -> Result<Option<String>, SlotError> {
    let refused = refused("see what it waits for");
    let rows = connect(url)?
        .query(&format!(
            "SELECT b.pid, a.application_name, to_char(a.xact_start, 'YYYY-MM-DD HH24:MI:SS') \
               FROM unnest(pg_catalog.pg_blocking_pids({pid})) AS b(pid) LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid LIMIT 3"
        ))
        .map_err(&refused)?;
    // The same words as long as it is the same transaction.
    let blocker = |row: &Row| match (row.text(0), row.text(2)) {
        // How Postgres writes the holder that has no process.
        (Some("0") | None, _) => "a prepared transaction (pg_prepared_xacts)".to_owned(),
        (Some(pid), Some(since)) => format!("process {pid} ({}, since {since} UTC)", row.string(1)),
        (Some(pid), None) => format!("process {pid}"),
    };
    let blockers: Vec<_> = rows.iter().map(blocker).collect();
    Ok(match blockers.is_empty() {
        true => None,
        false => Some(format!(
            "waiting for transactions that run on the primary: {}",
            blockers.join(", ")
        )),
    })
}

/// Whether the slot can go on from `progress`, the end of what the backup has.
pub fn check(url: &DatabaseUrl, names: &Names, progress: Lsn) -> Result<(), SlotError> {
    let refused = refused("look at the replication slot");
    let mut connection = connect(url)?;
    // Before version 17 there was only one reason.
    let why = match connection.server_version() {
        170_000.. => "invalidation_reason",
        _ => "NULL",
    };
    let rows = connection
        .query(&format!(
            "SELECT coalesce(plugin, 'physical'), coalesce(database, '') = current_database(), active_pid, wal_status, confirmed_flush_lsn, database, {why} \
               FROM pg_catalog.pg_replication_slots WHERE slot_name = {}",
            quote_literal(&names.slot)
        ))
        .map_err(&refused)?;
    let slot = names.slot.clone();
    let Some(row) = rows.first() else {
        let since = progress;
        return Err(SlotError::Gone { slot, since });
    };
    if row.text(0) != Some("pgoutput") {
        let what = format!("its plugin is {}", row.string(0));
        return Err(SlotError::Foreign { slot, what });
    }
    if !row.is_true(1) {
        let what = format!("it belongs to the database {}", row.string(5));
        return Err(SlotError::Foreign { slot, what });
    }
    if row.text(3) == Some("lost") {
        let why = row.text(6).unwrap_or("max_slot_wal_keep_size").to_owned();
        return Err(SlotError::Lost { slot, why });
    }
    if let Some(pid) = row.text(2) {
        let pid = pid.to_owned();
        return Err(SlotError::Active { slot, pid });
    }
    let confirmed: Lsn = row.parse(4).map_err(&refused)?;
    if confirmed > progress {
        return Err(SlotError::Ahead {
            slot,
            confirmed,
            progress,
        });
    }
    Ok(())
}

/// Removes slot and publication of a copy that was interrupted, if the slot is the one that was
/// made at this point and has not been read since. Another standby's of the same name is at another
/// one.
pub fn remove_unread(url: &DatabaseUrl, names: &Names, made_at: Lsn) -> Result<(), SlotError> {
    let rows = connect(url)?
        .query(&format!(
            "SELECT confirmed_flush_lsn = '{made_at}' FROM pg_catalog.pg_replication_slots WHERE slot_name = {}",
            quote_literal(&names.slot)
        ))
        .map_err(refused("look at the replication slot"))?;
    match rows.first() {
        Some(row) if !row.is_true(0) => Err(SlotError::Exists {
            slot: names.slot.clone(),
        }),
        _ => remove(url, names).map(drop),
    }
}

/// Removes what there is of slot and publication; says what that was.
pub fn remove(url: &DatabaseUrl, names: &Names) -> Result<Vec<String>, SlotError> {
    let mut connection = connect(url)?;
    let mut removed = Vec::new();
    let slot = quote_literal(&names.slot);
    let rows = connection
        .query(&format!(
            "SELECT active_pid FROM pg_catalog.pg_replication_slots WHERE slot_name = {slot}"
        ))
        .map_err(refused("look at the replication slot"))?;
    if let Some(row) = rows.first() {
        if let Some(pid) = row.text(0) {
            return Err(SlotError::Active {
                slot: names.slot.clone(),
                pid: pid.to_owned(),
            });
        }
        connection
            .execute(&format!(
                "SELECT pg_catalog.pg_drop_replication_slot({slot})"
            ))
            .map_err(refused("drop the replication slot"))?;
        removed.push(format!("slot {}", names.slot));
    }
    let rows = connection
        .query(&format!(
            "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = {}",
            quote_literal(&names.publication)
        ))
        .map_err(refused("look at the publication"))?;
    if !rows.is_empty() {
        connection
            .execute(&format!(
                "DROP PUBLICATION {}",
                quote_identifier(&names.publication)
            ))
            .map_err(refused("drop the publication"))?;
        removed.push(format!("publication {}", names.publication));
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_slots_may_be_called() {
        assert_eq!(Names::new("eu_2").unwrap().slot, "hindcast_eu_2");
        for wrong in ["", "Big", "a-b", "a b", &"x".repeat(41)] {
            assert!(Names::new(wrong).is_err(), "{wrong}");
        }
    }
}
