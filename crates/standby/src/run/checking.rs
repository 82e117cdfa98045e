//! Compares the backup with its primary while it follows.
//!
//! ```text
//!  a slot for the moment: position and snapshot ──▶ the log followed exactly up to there
//!    ──▶ what differed last time gets the primary's rows ──▶ a snapshot of the backup
//!    ──▶ followed on; a thread compares the two snapshots meanwhile, chunk by chunk
//! ```
//!
//! Following stops for as long as it takes to make the slot. It is not made while a transaction
//! runs on the primary that it would have to wait for.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hindcast_pg::{Connection, DatabaseUrl, Error, Lsn, quote_literal};

use super::open::{connect, open};
use super::{BackupOptions, Check, StandbyError};
use crate::check::{self, Budget, Differing, Place, Sides, Slice};
use crate::follow::{Wish, follow};
use crate::initial::{InitialError, Side, state, writing};
use crate::source::{Names, ReplicatedTable, SlotError, session, slot, tables};
use crate::status::{CheckStatus, Control, now_micros};

/// How long the slot may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// Not while the backup is farther behind.
const BEHIND_BYTES: u64 = 16 << 20;
/// When all is through, so many periods pass before it begins again.
const REST_PERIODS: u32 = 20;
/// How long a snapshot may be kept on both sides: it keeps dead rows.
const SLICE: Duration = Duration::from_secs(10);

pub(super) struct Checking<'a> {
    options: &'a BackupOptions,
    names: &'a Names,
    due_at: Instant,
    place: Place,
    /// What differed, and is to be repaired when nobody follows next.
    differing: Vec<Differing>,
    running: Option<Running>,
}

/// A thread that compares.
struct Running {
    at: Lsn,
    /// Rows that were repaired before.
    repaired: u64,
    _stop: Stop,
    thread: JoinHandle<(Result<Vec<Differing>, Error>, Slice)>,
}

/// Dropped, it ends the thread after its chunk.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn count(differing: &[Differing]) -> u64 {
    // At least one, where they cannot be told one by one.
    differing.iter().map(|it| it.keys.len().max(1) as u64).sum()
}

impl<'a> Checking<'a> {
    pub fn new(options: &'a BackupOptions, names: &'a Names) -> Self {
        Self {
            options,
            names,
            due_at: Instant::now() + options.check.map_or(Duration::ZERO, |check| check.period),
            place: Place::default(),
            differing: Vec::new(),
            running: None,
        }
    }

    /// Whether to stop following, and [`Checking::begin`].
    pub fn is_due(&mut self, control: &Control) -> bool {
        let Some(check) = self.options.check else {
            return false;
        };
        if self
            .running
            .as_ref()
            .is_some_and(|it| it.thread.is_finished())
        {
            self.settle(check, control);
        }
        self.running.is_none()
            && Instant::now() >= self.due_at
            && control.status().lag.bytes < BEHIND_BYTES
    }

    /// Takes in what a thread has found.
    fn settle(&mut self, check: Check, control: &Control) {
        let Some(running) = self.running.take() else {
            return;
        };
        let (still, slice) =
            (running.thread.join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let found = count(&slice.differing);
        let notes = slice.differing.iter().map(described(running.at));
        control.note(&notes.collect::<Vec<_>>());
        // What a repair did not mend is no matter of single rows.
        let still = still.unwrap_or_default();
        let unmended = count(&still);
        self.differing = slice.differing;
        self.differing.extend(still.into_iter().map(|it| Differing {
            keys: Vec::new(),
            ..it
        }));
        let complete = slice.next.is_none();
        self.place = slice.next.unwrap_or_default();
        self.due_at = Instant::now() + check.period * if complete { REST_PERIODS } else { 1 };
        if !self.differing.is_empty() {
            self.due_at = Instant::now();
        }
        control.update(|status| {
            let check = status.check.get_or_insert_default();
            check.rows += slice.rows;
            check.differed += found;
            check.is_doubtful = found > 0 || unmended > 0;
            check.repaired += running.repaired.saturating_sub(unmended);
            check.passed_over.extend(slice.passed_over);
            check.passed_over.sort();
            check.passed_over.dedup();
            if complete {
                check.complete = Some((now_micros(), running.at));
            }
        });
        let noted = control.status().check.unwrap_or_default();
        // The status is for people: what cannot be noted now is noted the next time.
        let _ = self.note_on_backup(&noted);
    }

    fn note_on_backup(&self, check: &CheckStatus) -> Result<(), StandbyError> {
        let Some((micros, at)) = check.complete else {
            return Ok(());
        };
        let failed = InitialError::query(Side::Backup, "note what was compared");
        connect(&self.options.to, Side::Backup)?
            .execute(&format!(
                "UPDATE hindcast.standby SET checked_at = pg_catalog.to_timestamp({micros} / 1e6), checked_lsn = '{at}', \
                    check_differed = {}, check_repaired = {} WHERE slot = {}",
                check.differed,
                check.repaired,
                quote_literal(&self.names.slot)
            ))
            .map_err(failed)?;
        Ok(())
    }

    /// Repairs what differed, and starts to compare more. Nobody may follow meanwhile. Returns
    /// tables that are to be copied again.
    pub fn begin(
        &mut self,
        control: &Control,
        alone_until: Option<Lsn>,
    ) -> Result<Vec<ReplicatedTable>, StandbyError> {
        let Some(check) = self.options.check else {
            return Ok(Vec::new());
        };
        self.due_at = Instant::now() + check.period;
        let (from, to) = (&self.options.common.from, &self.options.to);
        if is_busy(&mut connect(from, Side::Primary)?)? {
            return Ok(Vec::new());
        }
        let deadline = Instant::now() + PATIENCE;
        let is_over = || control.is_stopping() || Instant::now() > deadline;
        let created = match slot::create_temporary(from, self.names, is_over, |_| {}) {
            Err(SlotError::Stopped) => return Ok(Vec::new()),
            created => created?,
        };
        let at = created.consistent_point;
        let (mut log, mut target) = open(self.options, self.names, alone_until)?;
        follow(&mut log, &mut target, control, Some(at), || Ok(Wish::GoOn))?;
        log.finish();
        drop(target);
        if control.is_stopping() {
            return Ok(Vec::new());
        }
        let mut primary = snapshot(from, Side::Primary, Some(&created.snapshot))?;
        drop(created);
        let (repaired, copy_again) = self.repair(&mut primary)?;
        let mut wanted = self.tables(&mut primary, control)?;
        wanted.retain(|table| copy_again.iter().all(|it| it.oid != table.oid));
        let backup = snapshot(to, Side::Backup, None)?;
        let stop = Arc::new(AtomicBool::new(false));
        let place = self.place.clone();
        let budget = Budget {
            bytes: check
                .bytes_per_second
                .saturating_mul(check.period.as_secs().max(1)),
            time: SLICE.min(check.period),
        };
        let is_stopped = Arc::clone(&stop);
        let count = count(&repaired) + copy_again.len() as u64;
        let mut sides = Sides { primary, backup };
        self.running = Some(Running {
            at,
            repaired: count,
            _stop: Stop(stop),
            thread: std::thread::spawn(move || {
                let still = sides.differ_still(&repaired);
                let is_stopped = || is_stopped.load(Ordering::SeqCst);
                (still, sides.compare(&wanted, place, budget, is_stopped))
            }),
        });
        Ok(copy_again)
    }

    /// Those that the backup has, and that are not to be copied anyway.
    fn tables(
        &self,
        primary: &mut Connection,
        control: &Control,
    ) -> Result<Vec<ReplicatedTable>, StandbyError> {
        let failed = |side| InitialError::query(side, "see its tables");
        let filter = &self.options.common.tables;
        let mut wanted = tables::tables(primary, filter)
            .map_err(failed(Side::Primary))?
            .tables;
        let mut backup = connect(&self.options.to, Side::Backup)?;
        let there = state::tables(&mut backup, &self.names.slot).map_err(failed(Side::Backup))?;
        let missing: HashSet<String> = control.status().missing_tables.into_iter().collect();
        wanted.retain(|table| {
            there.contains_key(&(table.schema.clone(), table.name.clone()))
                && !missing.contains(&table.to_string())
        });
        wanted.sort_by(|a, b| (&a.schema, &a.name).cmp(&(&b.schema, &b.name)));
        Ok(wanted)
    }

    /// Gives rows that differed the primary's values of now. What that does not help is copied
    /// again.
    fn repair(
        &mut self,
        primary: &mut Connection,
    ) -> Result<(Vec<Differing>, Vec<ReplicatedTable>), StandbyError> {
        let mut repaired = Vec::new();
        let mut copy_again = Vec::new();
        let differing = std::mem::take(&mut self.differing);
        if differing.is_empty() {
            return Ok((repaired, copy_again));
        }
        let mut backup = writing(&self.options.to)?;
        let failed = || InitialError::query(Side::Backup, "repair rows");
        for one in differing {
            if one.keys.is_empty() {
                copy_again.push(one.table);
                continue;
            }
            backup
                .execute("BEGIN; SET LOCAL synchronous_commit = local")
                .map_err(failed())?;
            match check::repair(primary, &mut backup, &one) {
                Ok(()) => {
                    backup.execute("COMMIT").map_err(failed())?;
                    repaired.push(one);
                }
                Err(error) if error.is_connection() => return Err(failed()(error).into()),
                Err(_) => {
                    backup.execute("ROLLBACK").map_err(failed())?;
                    copy_again.push(one.table);
                }
            }
        }
        Ok((repaired, copy_again))
    }
}

/// A difference, for people.
fn described(at: Lsn) -> impl Fn(&Differing) -> String {
    move |Differing { table, keys }| {
        let names = table.primary_key.join(", ");
        match keys.as_slice() {
            [] => format!("{table} held other rows than the primary's at {at}: it is copied again"),
            [key] => format!(
                "a row of {table} was not the primary's at {at}, and is repaired: ({names}) = ({})",
                key.join(", ")
            ),
            [key, ..] => format!(
                "{} rows of {table} were not the primary's at {at}, and are repaired: the first is ({names}) = ({})",
                keys.len(),
                key.join(", ")
            ),
        }
    }
}

/// Whether a transaction that has written runs on the primary for longer than most: a slot waits
/// for its end.
fn is_busy(primary: &mut Connection) -> Result<bool, StandbyError> {
    let failed = InitialError::query(Side::Primary, "see what runs");
    let rows = primary
        .query(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL AND xact_start < pg_catalog.clock_timestamp() - interval '1 s') \
                 OR EXISTS (SELECT FROM pg_catalog.pg_prepared_xacts)",
        )
        .map_err(failed)?;
    Ok(rows.first().is_some_and(|row| row.is_true(0)))
}

/// A session that sees one state of a database as long as it lasts.
fn snapshot(
    url: &DatabaseUrl,
    side: Side,
    snapshot: Option<&str>,
) -> Result<Connection, InitialError> {
    let settings = session("hindcast check")
        .set("search_path", "")
        .set("idle_session_timeout", "0");
    let mut connection =
        Connection::connect(url, &settings).map_err(|source| InitialError::Connect {
            side,
            source: Box::new(source),
        })?;
    let import = snapshot.map(|name| format!("SET TRANSACTION SNAPSHOT {}", quote_literal(name)));
    connection
        .execute(&format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {}",
            import.unwrap_or_else(|| "SELECT 1".to_owned())
        ))
        .map_err(InitialError::query(side, "take a snapshot"))?;
    Ok(connection)
}
