//! Applies the log to a stock Postgres, the backup.
//!
//! ```text
//!  the follower's thread                            threads of the workers, a connection each
//!  ┌────────────────────────────────┐            ┌────────────────────────────────────────────┐
//!  │ change ─▶ pending: net changes │── epoch ──▶│ BEGIN; DELETE, UPDATE, INSERT with arrays; │
//!  │ cut when the workers are idle  │            │ progress; counts right? ─ barrier ─▶ COMMIT│
//!  │ visible, durable ◀─────────────│◀─ report ──│                                            │
//!  └────────────────────────────────┘            └────────────────────────────────────────────┘
//! ```
//!
//! While one epoch is written the next one grows, so that epochs are as large as the backup is
//! slow: a row that changes often is written once per epoch and not once per change. An epoch ends
//! between two transactions of the primary and is one transaction on the backup: with one worker
//! every reader sees a state that the primary had, whatever its isolation level is, and with
//! several those who import a snapshot.
//!
//! **Nothing is applied twice and nothing is lost** because the progress is written in the epoch's
//! own transaction, and acknowledged only when the backup has flushed it. **Nothing is applied to
//! the wrong row** because every statement must find exactly the rows that it was made for, and is
//! rolled back otherwise.
//!
//! Start reading at [`Backup`]; the pure parts are [`net`], [`pending`], [`statements`] and
//! [`orders`], what talks to the backup is [`writer`] and [`catalog`].

pub mod catalog;
pub mod epoch;
mod error;
mod hand_over;
mod marks;
pub mod net;
pub mod orders;
pub mod pending;
pub mod progress;
pub mod schema;
mod session;
pub mod snapshots;
pub mod statements;
pub mod table;
mod target;
pub mod values;
pub mod worker;
pub mod writer;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use hindcast_pg::{Connection, DatabaseUrl, Interrupter, Lsn};

use crate::pgoutput::{Begin, Commit};
use crate::status::now_micros;
use crate::target::TargetStatus;

pub use error::BackupError;

use epoch::End;
use marks::Marks;
use pending::Pending;
use snapshots::Snapshots;
use table::Table;
use worker::{Report, Worker};

/// What is applied as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Granularity {
    /// Rows: the net change of each, in epochs.
    #[default]
    Row,
    /// Transactions as they were, one after the other. Only to measure against.
    Single,
}

/// How the log is applied.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose progress it is.
    pub slot: String,
    pub granularity: Granularity,
    /// Connections that write. With more than one, readers that want a state of the primary must
    /// import a snapshot.
    pub workers: usize,
    /// An epoch is not cut before its first transaction is so old, unless it is large.
    pub epoch_interval: Duration,
    /// How many changes an epoch has at most, not counting those of the transaction that is under
    /// way. A single transaction that is larger is written in pieces of this size, and committed
    /// as one: it ends its epoch, as the transaction that fills it does. However far behind the
    /// backup is, what it has written becomes visible and its progress, and a kill takes back one
    /// epoch.
    pub epoch_rows_max: usize,
    /// The same for the memory they take.
    pub epoch_bytes_max: usize,
    /// How long a statement waits for somebody else's lock.
    pub lock_timeout: Duration,
    /// So many insertions into one table are copied.
    pub copy_rows_min: usize,
    /// With several workers: readers get a new snapshot that often. Each can be imported for ten
    /// seconds, and takes a connection until then.
    pub snapshot_interval: Duration,
    /// Transactions that commit up to here are an epoch each: for a second attempt at one that does
    /// not fit the backup, of which an error says which one it is then.
    pub alone_until: Option<Lsn>,
}

/// How old the first transaction of an epoch is when it is cut, unless told otherwise.
pub const EPOCH_INTERVAL: Duration = Duration::from_millis(2);

impl Options {
    /// One worker, and epochs that keep the backup a few milliseconds behind.
    pub fn new(slot: &str) -> Self {
        Self {
            slot: slot.to_owned(),
            granularity: Granularity::Row,
            workers: 1,
            epoch_interval: EPOCH_INTERVAL,
            epoch_rows_max: 20_000,
            epoch_bytes_max: 64 << 20,
            lock_timeout: Duration::from_secs(10),
            copy_rows_min: 1000,
            snapshot_interval: Duration::from_secs(1),
            alone_until: None,
        }
    }
}

/// An epoch has at most so many steps that must be done in order, not counting those of its last
/// transaction. Versions that a transaction writes cannot be pruned while it runs, so a row that is
/// written in each of many steps costs the square of their number.
const EPOCH_STEPS_MAX: usize = 64;
/// Flushes are asked for no more often than this.
const FLUSH_POLL: Duration = Duration::from_millis(20);
/// How often an idle backup notes that it has seen the log.
const IDLE_NOTE: Duration = Duration::from_secs(10);

/// A stock Postgres that the log is applied to.
///
/// After an error everything since the last commit is gone from the backup, every call fails, and a
/// new one must be opened.
pub struct Backup {
    options: Options,
    /// For the catalog, for flushes, for what is not part of an epoch.
    control: Connection,
    workers: Vec<Worker>,
    reports: Receiver<Report>,
    /// By the primary's oid.
    tables: HashMap<u32, Arc<Table>>,
    /// From where on the log is for a table that was, or is to be, copied later.
    joined: HashMap<u32, Lsn>,
    serial: u64,
    pending: Pending,
    /// When the oldest transaction in `pending` was committed, by our clock.
    pending_since: Option<Instant>,
    transaction: Option<Begin>,
    changes_of_transaction: usize,
    /// What was pending when the transaction under way began: changes, and the memory they take.
    /// Nothing, once a part of it was handed over.
    pending_before: (usize, usize),
    /// The transaction under way is on the backup already.
    skipping: bool,
    /// Parts of the transaction under way are with the worker already.
    parts: usize,
    /// The last transaction in `pending`.
    last: Option<Commit>,
    /// Workers that are to write the epoch after the first one's position, and no other: the
    /// others have it.
    catching_up: Option<CatchUp>,
    in_flight: Option<InFlight>,
    /// None where one worker writes, and every reader sees whole epochs.
    snapshots: Option<Snapshots>,
    marks: Marks,
    /// Of the epoch that was cut last.
    number: u64,
    received: Lsn,
    visible: Lsn,
    durable: Lsn,
    /// Epochs that are committed: flushed once the backup's WAL is up to the first, then the log
    /// is durable up to the second.
    unflushed: VecDeque<(Lsn, Lsn)>,
    flush_polled: Instant,
    idle_noted: Instant,
    pruned: u64,
    status: TargetStatus,
    stopped: bool,
}

struct CatchUp {
    behind: Vec<usize>,
    workers: usize,
    to: End,
}

struct InFlight {
    /// Reports that are missing.
    missing: usize,
    changes: u64,
    bytes: u64,
    end: Option<End>,
    insert_lsn: Lsn,
    error: Option<BackupError>,
}

impl Backup {
    /// Connects, and reads how far the backup is. The initial copy must be complete.
    pub fn open(url: &DatabaseUrl, options: Options) -> Result<Self, BackupError> {
        let is_single = options.granularity == Granularity::Single;
        assert!(options.workers > 0, "somebody must write");
        assert!(!is_single || options.workers == 1, "one after the other");
        let mut control = session::open(url, &options)?;
        schema::create(&mut control).map_err(|error| BackupError::at(Lsn(0), error))?;
        let Some(mut progress) = progress::read(&mut control, &options.slot)? else {
            return Err(BackupError::Progress {
                slot: options.slot,
                what: "nothing is noted: the initial copy is not complete".to_owned(),
            });
        };
        let least = progress.least();
        if options.granularity != Granularity::Row && !progress.is_even() {
            return Err(BackupError::Progress {
                slot: options.slot,
                what: "the workers are at different epochs, and only epochs bring them together"
                    .to_owned(),
            });
        }
        if progress.is_even() && progress.positions.len() != options.workers {
            progress = session::spread(&mut control, &options, &progress)?;
        }
        let catching_up = (!progress.is_even()).then(|| CatchUp {
            behind: progress.behind(),
            workers: progress.positions.len(),
            to: progress.greatest(),
        });
        let partitions = catching_up
            .as_ref()
            .map_or(options.workers, |catching_up| catching_up.workers);
        let (sender, reports) = std::sync::mpsc::channel();
        let start = |number| {
            let (slot, rows_min) = (&options.slot, options.copy_rows_min);
            let connection = session::open(url, &options)?;
            Worker::start(number, connection, slot, rows_min, sender.clone())
                .map_err(|error| BackupError::Lost(error.into()))
        };
        let workers: Result<_, _> = (0..options.workers).map(start).collect();
        let now = Instant::now();
        let snapshots = (options.workers > 1).then(|| Snapshots::new(url, &options));
        let mut backup = Self {
            snapshots,
            marks: Marks::new(url, &options),
            pending: match options.granularity {
                Granularity::Row => Pending::new(partitions),
                Granularity::Single => Pending::in_order(),
            },
            pending_since: None,
            options,
            control,
            workers: workers?,
            reports,
            tables: HashMap::new(),
            joined: HashMap::new(),
            serial: 0,
            transaction: None,
            changes_of_transaction: 0,
            pending_before: (0, 0),
            skipping: false,
            parts: 0,
            last: None,
            catching_up,
            in_flight: None,
            number: progress.greatest().number,
            received: least.end_lsn,
            visible: least.end_lsn,
            durable: Lsn(0),
            unflushed: VecDeque::new(),
            flush_polled: now,
            idle_noted: now,
            pruned: progress.greatest().number,
            status: TargetStatus::default(),
            stopped: false,
        };
        backup.status.visible_commit_time = Some(least.commit_time).filter(|&time| time > 0);
        // What is read may have been committed without having been flushed.
        backup.flush()?;
        Ok(backup)
    }

    /// The log is to be followed from here.
    pub fn resume_point(&self) -> Lsn {
        self.visible
    }

    /// Ends whatever call is under way, from another thread.
    pub fn interrupters(&self) -> Vec<Interrupter> {
        let workers = self.workers.iter().map(Worker::interrupter);
        std::iter::once(self.control.interrupter())
            .chain(workers)
            .collect()
    }

    fn position(&self) -> Lsn {
        self.transaction
            .map_or(self.received, |begin| begin.final_lsn)
    }

    /// Nothing is done after an error.
    #[inline]
    fn unless_stopped(
        &mut self,
        call: impl FnOnce(&mut Self) -> Result<(), BackupError>,
    ) -> Result<(), BackupError> {
        if self.stopped {
            return Err(BackupError::Stopped);
        }
        let result = call(self);
        self.stopped = result.is_err();
        result
    }

    /// Notes a position as progress, without anything to write: up to here and now nothing was
    /// committed that readers do not see.
    fn note(&mut self, position: Lsn) -> Result<(), BackupError> {
        self.number += 1;
        let end = End {
            number: self.number,
            commit_lsn: position,
            end_lsn: position,
            commit_time: now_micros(),
        };
        self.hand_over_ordered(position, Some(end))
    }

    /// Waits until nothing is in flight.
    fn wait(&mut self) -> Result<(), BackupError> {
        while self.in_flight.is_some() {
            let report = self.reports.recv().map_err(|_| BackupError::Stopped)?;
            self.take_in(report)?;
        }
        Ok(())
    }

    /// Takes in what has been reported.
    fn collect(&mut self) -> Result<(), BackupError> {
        while self.in_flight.is_some() {
            match self.reports.try_recv() {
                Ok(report) => self.take_in(report)?,
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn take_in(&mut self, report: Report) -> Result<(), BackupError> {
        let flight = self
            .in_flight
            .as_mut()
            .expect("only what is in flight is reported");
        flight.missing -= 1;
        match report {
            Report::Part(written) => {
                self.status.rows_written += written.rows;
                self.status.deferred += written.deferred;
            }
            Report::Epoch(_, written, committed) => {
                self.status.rows_written += written.rows;
                self.status.deferred += written.deferred;
                flight.insert_lsn = flight.insert_lsn.max(committed.insert_lsn);
                flushed(&mut self.unflushed, &mut self.durable, committed.flush_lsn);
            }
            // That another worker failed says less than why.
            Report::Failed(BackupError::Stopped) if flight.error.is_some() => {}
            Report::Failed(error) => flight.error = Some(error),
        }
        if flight.missing > 0 {
            return Ok(());
        }
        let flight = self.in_flight.take().expect("it was there");
        if let Some(error) = flight.error {
            return Err(error);
        }
        if let Some(end) = flight.end {
            self.visible = end.end_lsn;
            self.unflushed.push_back((flight.insert_lsn, end.end_lsn));
            self.status.epochs += 1;
            self.status.epoch_changes = flight.changes;
            if end.commit_time > 0 {
                self.status.visible_commit_time = Some(end.commit_time);
            }
        }
        Ok(())
    }

    fn poll_flush(&mut self, now: Instant) -> Result<(), BackupError> {
        if self.unflushed.is_empty()
            || now.saturating_duration_since(self.flush_polled) < FLUSH_POLL
        {
            return Ok(());
        }
        self.flush_polled = now;
        let lsn = session::flush_lsn(&mut self.control)
            .map_err(|error| BackupError::at(self.received, error))?;
        flushed(&mut self.unflushed, &mut self.durable, lsn);
        Ok(())
    }

    /// What is visible becomes durable now. Nothing may be in flight.
    fn flush(&mut self) -> Result<(), BackupError> {
        session::flush(&mut self.control).map_err(|error| BackupError::at(self.received, error))?;
        self.unflushed.clear();
        self.durable = self.visible;
        Ok(())
    }

    /// Deletes old rows of the progress table.
    fn prune(&mut self) -> Result<(), BackupError> {
        if self.number < self.pruned + progress::EPOCHS_KEPT {
            return Ok(());
        }
        self.pruned = self.number;
        let settled = match self.in_flight {
            Some(_) => self.number - 1,
            None => self.number,
        };
        progress::prune(&mut self.control, &self.options.slot, settled)
            .map_err(|error| BackupError::at(self.received, error))
    }
}

impl InFlight {
    fn new(missing: usize, changes: usize, bytes: usize, end: Option<End>) -> Self {
        Self {
            missing,
            changes: changes as u64,
            bytes: bytes as u64,
            end,
            insert_lsn: Lsn(0),
            error: None,
        }
    }
}

/// Moves `durable` on to the last epoch whose commit the backup has flushed.
fn flushed(unflushed: &mut VecDeque<(Lsn, Lsn)>, durable: &mut Lsn, flush_lsn: Lsn) {
    while let Some(&(committed, end)) = unflushed.front()
        && committed <= flush_lsn
    {
        *durable = end;
        unflushed.pop_front();
    }
}
