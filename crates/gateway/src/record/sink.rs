//! Where everything that is observed comes together on its way to the trace.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hindcast_trace::{
    Gap, GapCause, Id, Micros, Record, Request, SessionId, Shape, ShapeId, Transaction,
    TransactionId, Writer,
};

use hindcast_wire::SequenceColumns;
use tokio::sync::{Notify, watch};

use super::catalog::Catalog;
use super::requests::Requests;
use super::settle::Ledger;
use super::status::{Counters, Status};
use crate::http::{Arrival, Durable, Witness};

/// How long a session that changed the schema may wait for the catalog to be read again.
const CATALOG_PATIENCE: Duration = Duration::from_secs(5);

/// Shared by all connections, sessions and background tasks of a recording.
pub(super) struct Sink {
    writer: Writer,
    recorder: u16,
    trace_id_prefix: u64,
    durable: bool,
    requests: Requests,
    counters: Counters,
    ledger: Ledger,
    transactions: AtomicU64,
    locks: AtomicU64,
    /// Shapes that are in the trace. Sessions remember those they have met, so this is asked rarely.
    shapes: RwLock<HashSet<ShapeId>>,
    /// Tables that nobody knows yet: the catalog has to be read again.
    unknown_tables: Mutex<HashSet<u32>>,
    catalog_wanted: Notify,
    sequences: RwLock<Arc<SequenceColumns>>,
    /// Moves after `sequences` has changed, so that sessions need not look at it.
    sequences_version: AtomicU64,
    /// How often the catalog was asked for, and up to which of these it was read.
    catalog_tickets: AtomicU64,
    catalog_served: watch::Sender<u64>,
}

impl Sink {
    pub fn new(writer: Writer, recorder: u16, trace_id_prefix: u64, durable: bool) -> Self {
        Self {
            writer,
            recorder,
            trace_id_prefix,
            durable,
            requests: Requests::new(recorder, trace_id_prefix),
            counters: Counters::default(),
            ledger: Ledger::default(),
            transactions: AtomicU64::new(1),
            locks: AtomicU64::new(1),
            shapes: RwLock::default(),
            unknown_tables: Mutex::default(),
            catalog_wanted: Notify::new(),
            sequences: RwLock::default(),
            sequences_version: AtomicU64::new(0),
            catalog_tickets: AtomicU64::new(0),
            catalog_served: watch::Sender::new(0),
        }
    }

    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn trace_id_prefix(&self) -> u64 {
        self.trace_id_prefix
    }

    pub fn session_id(&self, number: u64) -> SessionId {
        Id::new(self.recorder, number)
    }

    /// Transactions are numbered in the order in which they begin.
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

    /// Written once per recorder.
    pub fn shape(&self, shape: Shape) {
        if self
            .shapes
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(shape.id)
        {
            self.writer.record(Record::Shape(shape));
        }
    }

    pub fn transaction(&self, transaction: Transaction) {
        self.ledger.account(&transaction);
        self.writer.record(Record::Transaction(transaction));
    }

    pub fn gap(&self, gap: Gap) {
        self.counters.gap(&gap.cause);
        tracing::warn!(cause = ?gap.cause, "the recording has a gap");
        self.writer.record(Record::Gap(gap));
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
        self.writer.record(Record::Gap(Gap {
            from: since,
            to: self.now(),
            cause,
        }));
    }

    pub fn record(&self, record: Record) {
        self.writer.record(record);
    }

    /// Asks for the catalog to be read again, once per table.
    pub fn unknown_table(&self, table: u32) {
        if self
            .unknown_tables
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(table)
        {
            self.catalog_wanted.notify_one();
        }
    }

    /// Asks for the catalog to be read again. Resolves when that is done, or when it takes too long.
    pub fn schema_changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let ticket = self.catalog_tickets.fetch_add(1, Ordering::AcqRel) + 1;
        let mut served = self.catalog_served.subscribe();
        self.catalog_wanted.notify_one();
        async move {
            let _ = tokio::time::timeout(
                CATALOG_PATIENCE,
                served.wait_for(|served| *served >= ticket),
            )
            .await;
        }
    }

    /// Waits until somebody asks, and says what to tell [`Sink::catalog_read`].
    pub async fn catalog_wanted(&self) -> u64 {
        self.catalog_wanted.notified().await;
        self.catalog_tickets.load(Ordering::Acquire)
    }

    /// The catalog was read; everybody up to `ticket` is served. Without `catalog` it could not be read.
    pub fn catalog_read(&self, ticket: u64, catalog: Option<Catalog>) {
        if let Some(catalog) = catalog {
            self.ledger.set_functions_catch(catalog.functions_catch);
            *self
                .sequences
                .write()
                .unwrap_or_else(PoisonError::into_inner) = Arc::new(catalog.sequences);
            self.sequences_version.fetch_add(1, Ordering::Release);
        }
        self.catalog_served
            .send_modify(|served| *served = ticket.max(*served));
    }

    pub fn sequences_version(&self) -> u64 {
        self.sequences_version.load(Ordering::Acquire)
    }

    /// With the version they have at least.
    pub fn sequences(&self) -> (Arc<SequenceColumns>, u64) {
        let version = self.sequences_version();
        let sequences = self
            .sequences
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        (Arc::clone(&sequences), version)
    }

    pub fn status(&self) -> Status {
        self.counters
            .read(self.requests.in_flight(), self.writer.status())
    }
}

impl Witness for Sink {
    fn arrived(&self) -> Option<Arrival> {
        self.requests.arrive(self.now())
    }

    fn ended(&self, request: Request) {
        self.requests.end(request.id);
        self.counters.request(&request);
        self.writer.record(Record::Request(request));
    }

    fn durable(&self) -> Option<Durable> {
        if !self.durable {
            return None;
        }
        let durable = self.writer.durable();
        // If the disk fails, the service goes on all the same; the writer's status says why, and a gap is marked.
        Some(Box::pin(async move {
            let _ = durable.await;
        }))
    }

    fn now(&self) -> Micros {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_micros() as Micros,
            Err(before) => -(before.duration().as_micros() as Micros),
        }
    }
}
