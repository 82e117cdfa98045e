//! Where everything that is observed comes together on its way to the trace.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use hindcast_trace::{
    Gap, GapCause, Id, Micros, Record, Recorder, Request, SessionId, Shape, ShapeId, Transaction,
    TransactionId, Writer, Xid,
};

use hindcast_wire::sql::SchemaChange;

use super::catalog::{Catalog, Known};
use super::flights::Flights;
use super::ledger::Ledger;
use super::present::Present;
use super::requests::Requests;
use super::status::{Counters, Status};
use crate::http::{Arrival, Durable, Witness};

/// Shapes that are remembered to be in the trace. A service that writes numbers into its tables'
/// names makes a new one with every transaction.
const SHAPES_MAX: usize = 1 << 18;

/// Shared by all connections, sessions and background tasks of a recording.
pub(super) struct Sink {
    writer: Writer,
    recorder: u16,
    trace_id_prefix: u64,
    durable: bool,
    requests: Requests,
    flights: Flights,
    counters: Counters,
    ledger: Ledger,
    transactions: AtomicU64,
    locks: AtomicU64,
    /// Shapes that are in the trace. Sessions remember those they have met, so this is asked
    /// rarely.
    shapes: RwLock<HashSet<ShapeId>>,
    catalog: Known,
    /// Statements that were seen to commit inside, by the hash of their fingerprint.
    commit_inside: Mutex<HashSet<u64>>,
    /// What is in the trace already, and is told once more.
    present: Present,
    /// When what is told now happened, if the recorder that saw it is gone; else 0.
    told_at: AtomicI64,
}

impl Sink {
    pub fn new(writer: Writer, recorder: u16, trace_id_prefix: u64, durable: bool) -> Self {
        Self {
            writer,
            recorder,
            trace_id_prefix,
            durable,
            requests: Requests::new(recorder, trace_id_prefix),
            flights: Flights::default(),
            counters: Counters::default(),
            ledger: Ledger::default(),
            transactions: AtomicU64::new(1),
            locks: AtomicU64::new(1),
            shapes: RwLock::default(),
            catalog: Known::default(),
            commit_inside: Mutex::default(),
            present: Present::default(),
            told_at: AtomicI64::new(0),
        }
    }

    /// Of a recorder that is gone: what it saw is told again, and the trace has some of it.
    pub fn resumed(writer: Writer, recorder: &Recorder, present: Present) -> Self {
        Self {
            present,
            told_at: AtomicI64::new(recorder.started),
            ..Self::new(writer, recorder.number, recorder.trace_id_prefix, false)
        }
    }

    /// What is told from now on happened later than this.
    pub fn is_at(&self, moment: Micros) {
        if self.told_at.load(Ordering::Relaxed) != 0 {
            self.told_at.store(moment, Ordering::Relaxed);
        }
    }

    fn write(&self, record: Record) {
        if !self.present.has(&record) {
            self.writer.record(record);
        }
    }

    /// Records that were accepted, and of those on disk.
    pub fn written(&self) -> (u64, u64) {
        let status = self.writer.status();
        (status.accepted, status.flushed)
    }

    /// Where there is room for what is not in the trace yet.
    pub fn folder(&self) -> &Path {
        self.writer.wal_folder()
    }

    /// Where it may be kept for others.
    pub fn spool_folder(&self) -> PathBuf {
        self.writer.spool_folder(self.recorder)
    }

    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    pub fn flights(&self) -> &Flights {
        &self.flights
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The recorder's number.
    pub fn recorder(&self) -> u16 {
        self.recorder
    }

    pub fn trace_id_prefix(&self) -> u64 {
        self.trace_id_prefix
    }

    pub fn session_id(&self, number: u64) -> SessionId {
        Id::new(self.recorder, number)
    }

    /// Transactions are numbered in the order in which their first statements are answered.
    pub fn next_transaction(&self) -> TransactionId {
        Id::new(
            self.recorder,
            self.transactions.fetch_add(1, Ordering::Relaxed),
        )
    }

    /// The next position in the order in which locking statements complete.
    pub fn next_lock(&self) -> u64 {
        self.locks.fetch_add(1, Ordering::Relaxed)
    }

    pub fn knows_shape(&self, id: ShapeId) -> bool {
        self.shapes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&id)
    }

    /// Written once per recorder, or a few times by one that meets very many.
    pub fn shape(&self, shape: Shape) {
        let new = {
            let mut shapes = self.shapes.write().unwrap_or_else(PoisonError::into_inner);
            if shapes.len() >= SHAPES_MAX {
                *shapes = HashSet::new();
            }
            shapes.insert(shape.id)
        };
        if new {
            self.write(Record::Shape(shape));
        }
    }

    pub fn transaction(&self, transaction: Transaction) {
        self.ledger.account(&transaction);
        self.write(Record::Transaction(transaction));
    }

    pub fn gap(&self, gap: Gap) {
        if self.present.has_gap(&gap) {
            return;
        }
        self.counters.gap(&gap.cause);
        let cause = brief(&gap.cause);
        match gap.cause.is_doubt() {
            true => tracing::warn!(cause, "the recording may have a gap"),
            false => tracing::warn!(cause, "the recording has a gap"),
        }
        self.write(Record::Gap(gap));
    }

    pub fn unobserved(&self, session: SessionId, since: Micros, reason: String) {
        self.gap(Gap {
            from: since,
            to: self.now(),
            cause: GapCause::Unobserved { session, reason },
        });
    }

    /// The same gap once more, now that its end is known.
    pub fn unobserved_until_now(&self, session: SessionId, since: Micros, reason: String) {
        let cause = GapCause::Unobserved { session, reason };
        self.write(Record::Gap(Gap {
            from: since,
            to: self.now(),
            cause,
        }));
    }

    /// Whether this statement has not been seen to commit inside before.
    pub fn first_to_commit_inside(&self, statement: u64) -> bool {
        self.commit_inside
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(statement)
    }

    /// A gap that was said once already, for a statement that may run often.
    pub fn commits_inside(&self, session: SessionId, from: Micros, to: Micros, reason: String) {
        let cause = GapCause::Unobserved { session, reason };
        self.counters.commits_inside();
        self.write(Record::Gap(Gap { from, to, cause }));
    }

    pub fn record(&self, record: Record) {
        self.write(record);
    }

    pub fn catalog(&self) -> &Known {
        &self.catalog
    }

    /// What was read at the start.
    pub fn catalog_read(&self, catalog: Catalog) {
        self.ledger.set_functions_catch(catalog.routines.catch);
        let keeping = self.ledger.keeping();
        keeping.found(keeping.look(), catalog.routines.leave_statements);
        self.catalog.set(catalog.sequences);
    }

    /// A transaction that changed the schema has committed. Resolves when what its session may use
    /// next is known; `None` if there is nothing to wait for.
    pub fn schema_changed(
        &self,
        change: SchemaChange,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        if change.is_none() {
            return None;
        }
        if change.routines {
            // Until it is known better: what is lenient for a moment accuses no one.
            self.ledger.set_functions_catch(true);
            self.ledger.keeping().doubt();
        }
        self.catalog.schema_changed(change)
    }

    /// The catalog was changed by something that we have not seen.
    pub fn look_at_routines(&self) {
        let change = SchemaChange {
            routines: true,
            ..SchemaChange::default()
        };
        drop(self.schema_changed(change));
    }

    fn note_arrival(&self, arrival: Option<Arrival>) -> Option<Arrival> {
        if let Some(arrival) = &arrival {
            self.flights.arrived(arrival.id, arrival.at);
        }
        arrival
    }

    pub fn status(&self) -> Status {
        self.counters
            .read(self.requests.in_flight(), self.writer.status())
    }
}

/// A line for the log, however many ids there are.
fn brief(cause: &GapCause) -> String {
    let ids = |xids: &[Xid]| match xids {
        [] => "no ids".to_owned(),
        [one] => format!("id {}", one.0),
        [first, .., last] => format!("{} ids from {} to {}", xids.len(), first.0, last.0),
    };
    match cause {
        GapCause::Unaccounted { xids, wrote } => {
            format!("wrote to {wrote} past the recorder: {}", ids(xids))
        }
        GapCause::Unexplained { xids, reason } => format!("{}: {reason}", ids(xids)),
        other => format!("{other:?}"),
    }
}

impl Witness for Sink {
    fn arrived(&self) -> Option<Arrival> {
        let arrival = self.requests.arrive(self.now());
        self.note_arrival(arrival)
    }

    fn arrived_before(&self, number: u64, at: Micros) -> Option<Arrival> {
        let arrival = self.requests.arrive_as(Id(number), at);
        self.note_arrival(arrival)
    }

    fn has_room(&self) -> bool {
        self.writer.has_room()
    }

    fn missed(&self, from: Micros, to: Micros, reason: &str) {
        self.gap(Gap {
            from,
            to,
            cause: GapCause::Dropped {
                requests: 0,
                transactions: 0,
                reason: reason.to_owned(),
            },
        });
    }

    fn ended(&self, request: Request) {
        self.requests.end(request.id);
        self.flights.ended(&request);
        self.counters.request(&request);
        self.write(Record::Request(request));
    }

    fn durable(&self) -> Option<Durable> {
        if !self.durable {
            return None;
        }
        let durable = self.writer.durable();
        // If the disk fails, the service goes on all the same; the writer's status says why, and a
        // gap is marked.
        Some(Box::pin(async move {
            let _ = durable.await;
        }))
    }

    fn now(&self) -> Micros {
        let told_at = self.told_at.load(Ordering::Relaxed);
        if told_at != 0 {
            return told_at;
        }
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_micros() as Micros,
            Err(before) => -(before.duration().as_micros() as Micros),
        }
    }
}
