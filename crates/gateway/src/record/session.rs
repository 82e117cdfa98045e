//! The driver that observes sessions while recording.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::BytesMut;
use hindcast_model::Traceparent;
use hindcast_spool::SharedBoard;
use hindcast_taplog::board::Line;
use hindcast_trace::{
    Digest, Id, Isolation, Micros, Outcome, Secrets, SessionId, Shape, ShapeId, Transaction,
    TransactionId, ValuesDigest,
};
use hindcast_wire::answered::describes_rows;
use hindcast_wire::sql::{Fingerprint, SchemaChange, ScriptCache};
use hindcast_wire::{
    Context, Event, ObservedTransaction, Observer, ObserverOptions, ProtocolError, SequenceColumns,
    Wires,
};

use super::join::Seen;
use super::ledger::{ON_COMMIT, Unasked};
use super::server_side::{ServerSide, Waiting};
use super::sink::Sink;
use crate::http::Witness;
use crate::pg::{Driver, Flow, Host, Permission, Refusal, SessionStart};
use crate::redact::Redactor;

const ISOLATION: &str = "default_transaction_isolation";

/// Shapes that a session remembers to be in the trace; behind these it asks again.
const SHAPES_MAX: usize = 1024;

/// Gives every session an observer.
#[derive(Clone)]
pub(super) struct RecordingHost {
    pub sink: Arc<Sink>,
    pub scripts: Arc<ScriptCache>,
    pub redactor: Arc<Redactor>,
    /// The database that is recorded; sessions with others pass through.
    pub database: String,
    /// Sessions that do not choose an isolation level, and whose default is weaker, get REPEATABLE
    /// READ.
    pub raise_isolation: bool,
    pub values_max: usize,
    /// Makes digests of values, if they are kept.
    pub values: Option<ValuesDigest>,
    /// What the service's taps say, if it has any.
    pub board: Option<Arc<SharedBoard>>,
    /// What the server tells of transactions, if that is not asked for in the sessions themselves.
    pub told: Option<Arc<ServerSide>>,
}

/// Observes one session.
pub(super) struct RecordingDriver {
    sink: Arc<Sink>,
    redactor: Arc<Redactor>,
    values: Option<ValuesDigest>,
    session: SessionId,
    /// The process id of its backend; 0 until the server has told it.
    backend: u32,
    /// Where the session stands on the service's board.
    turns: Option<(Arc<SharedBoard>, Line)>,
    /// What it does has happened already.
    past: Option<Past>,
    /// `None`: the session passes through.
    observer: Option<Observer>,
    /// Kept from step to step for its capacity.
    events: Vec<Event>,
    sequences: Arc<SequenceColumns>,
    sequences_version: u64,
    /// The transaction that began last, and whether several requests were in flight then.
    current: Option<(TransactionId, bool)>,
    /// Shapes that are known to be in the trace.
    shapes: HashSet<ShapeId>,
    /// What is assumed where it could not be asked for.
    isolation: Isolation,
    /// Unattributed transactions of this client.
    unattributed: Arc<AtomicU64>,
    /// Since when and why the session is not observed.
    unobserved: Option<(Micros, String)>,
    /// Answers that wait, for as long as the session does.
    withheld: Option<BytesMut>,
    /// What they will wait for besides: the disk, or the catalog.
    waits: Vec<Permission>,
}

/// A session that is told of afterwards.
pub(super) struct Past {
    pub server: Arc<ServerSide>,
    /// When what is being told happened, and on which request's behalf.
    pub at: Micros,
    pub turn: Option<u64>,
}

impl Host for RecordingHost {
    type Driver = RecordingDriver;

    fn open(&self, start: &mut SessionStart) -> Result<RecordingDriver, Refusal> {
        let parameters = &start.parameters;
        let replication = parameters.is_replication();
        let client = match parameters.text("application_name") {
            "" => {
                let machine = start
                    .peer
                    .rsplit_once(':')
                    .map_or(start.peer.as_str(), |(machine, _)| machine);
                format!("{}@{machine}", parameters.user())
            }
            // Clients that put the trace there are no better known by it.
            name if Traceparent::parse(name.as_bytes()).is_some() => parameters.user().to_owned(),
            name => name.to_owned(),
        };
        let observed = !replication && parameters.database() == self.database;
        let prefix = self.sink.trace_id_prefix();
        let options = ObserverOptions {
            token: token(prefix, start.number),
            // What the session's default is, the server has to say: it depends on the role, the
            // database and the server's configuration. A startup parameter would outrank all three,
            // and lower SERIALIZABLE.
            raise_isolation: self.raise_isolation && !parameters.chooses(ISOLATION),
            keeping: Arc::clone(self.sink.ledger().keeping()),
            passive: self.told.is_some(),
            values_max: self.values_max,
            ..ObserverOptions::new(prefix, Arc::clone(&self.scripts))
        };
        let (sequences, sequences_version) = self.sink.catalog().sequences();
        let mut driver = RecordingDriver {
            session: self.sink.session_id(start.number),
            backend: 0,
            turns: self.board.clone().zip(start.line),
            past: self.told.clone().map(|server| Past {
                server,
                at: self.sink.now(),
                turn: None,
            }),
            observer: observed.then(|| Observer::new(options)),
            events: Vec::new(),
            sequences,
            sequences_version,
            current: None,
            shapes: HashSet::new(),
            isolation: match self.raise_isolation {
                true => Isolation::RepeatableRead,
                false => Isolation::ReadCommitted,
            },
            unattributed: self.sink.counters().client(client),
            unobserved: None,
            withheld: None,
            waits: Vec::new(),
            sink: Arc::clone(&self.sink),
            redactor: Arc::clone(&self.redactor),
            values: self.values.clone(),
        };
        self.sink.counters().session();
        // A replication connection only reads.
        if !observed && !replication {
            let database = start.parameters.database();
            self.sink.counters().with_other_database();
            driver.give_up(format!(
                "it is connected to database {database:?}, and {:?} is recorded",
                self.database
            ));
        }
        Ok(driver)
    }
}

impl RecordingDriver {
    /// Lets the observer do something, and passes on what it found.
    fn step(
        &mut self,
        wires: &mut Wires,
        act: impl FnOnce(
            &mut Observer,
            &Context<'_>,
            &mut Wires,
            &mut Vec<Event>,
        ) -> Result<(), ProtocolError>,
    ) -> Flow {
        let now = self.now();
        let Some(observer) = &mut self.observer else {
            return Flow::PassThrough;
        };
        if self.sink.catalog().version() != self.sequences_version {
            (self.sequences, self.sequences_version) = self.sink.catalog().sequences();
        }
        let sink = &*self.sink;
        let told = |(board, line): &(Arc<SharedBoard>, Line)| board.whose_turn(*line);
        let turn = match &self.past {
            Some(past) => past.turn,
            None => self.turns.as_ref().and_then(told).filter(|&turn| turn != 0),
        };
        // What has happened is told late where a thread loses its processor between a write and
        // telling of it.
        let told_at = self.past.as_ref().and_then(|_| u64::try_from(now).ok());
        let context = Context {
            now,
            // What taps tell of requests comes later than what is told of transactions, and a
            // thread that works for none may be at work.
            alone: match (&self.turns, &self.past) {
                (None, None) => sink.requests().alone(),
                _ => None,
            },
            turn: turn.map(Id),
            sequences: &self.sequences,
            lock_order: &|| told_at.unwrap_or_else(|| sink.next_lock()),
        };
        let mut events = std::mem::take(&mut self.events);
        let followed = act(observer, &context, wires, &mut events);
        for event in events.drain(..) {
            self.tell(event);
        }
        self.events = events;
        // The observer goes on in raw mode, for it still has answers of its own to swallow.
        if let Err(error) = followed {
            self.give_up(error.to_string());
        }
        if self.past.is_some() {
            // The bytes have gone their way.
            wires.to_client.clear();
            wires.to_server.clear();
            self.waits.clear();
            return Flow::Continue;
        }
        if let Some(withheld) = &mut self.withheld {
            withheld.extend_from_slice(&wires.to_client);
            wires.to_client.clear();
            return Flow::Continue;
        }
        match self.waits.is_empty() {
            true => Flow::Continue,
            false => {
                self.withheld = Some(std::mem::take(&mut wires.to_client));
                self.wait()
            }
        }
    }

    fn now(&self) -> Micros {
        let past = self.past.as_ref();
        past.map_or_else(|| self.sink.now(), |past| past.at)
    }

    /// What comes next happened then.
    pub fn is_at(&mut self, at: Micros, turn: Option<u64>) {
        if let Some(past) = &mut self.past {
            (past.at, past.turn) = (at, turn);
        }
    }

    /// Until everything that answers have to wait for has happened.
    fn wait(&mut self) -> Flow {
        let waits = std::mem::take(&mut self.waits);
        Flow::Wait(Box::pin(async move {
            for wait in waits {
                wait.await;
            }
        }))
    }

    fn tell(&mut self, event: Event) {
        match event {
            Event::Ready { process_id, .. } => {
                self.backend = process_id;
                if let Some(past) = &self.past {
                    past.server.opened(self.session, process_id, past.at);
                }
            }
            Event::TransactionBegan { .. } => {
                let crowded = self.sink.requests().in_flight() > 1;
                self.current = Some((self.sink.next_transaction(), crowded));
            }
            Event::Transaction(observed) => self.transaction(*observed, false),
            Event::CommitUncertain(observed) => {
                if self.past.is_none() {
                    self.sink.counters().uncertain();
                }
                self.transaction(*observed, true);
            }
            // The server tells of ids itself.
            Event::OwnXid { .. } | Event::EmptiedOnCommit { .. } | Event::Unasked { .. }
                if self.past.is_some() => {}
            Event::UnknownTable { table } => self.sink.catalog().unknown_table(table),
            Event::OwnXid { xid } => self.sink.ledger().own(xid.0),
            Event::EmptiedOnCommit { began, ended } => {
                self.unasked(ON_COMMIT, began, ended, None);
            }
            Event::Unasked {
                statement,
                began,
                ended,
                xids,
                commits_inside,
            } => {
                if let Some(statement) = statement.as_ref().filter(|_| commits_inside) {
                    self.commits_inside(statement, began, ended);
                }
                let ids = xids.map(|xids| xids.start.0..xids.end.0);
                self.unasked(kind_of(statement.as_deref()), began, ended, ids);
            }
            Event::Unobserved { reason } => {
                tracing::debug!(session = %self.session, reason, "a session passes through");
            }
        }
    }

    fn unasked(&self, what: &'static str, began: Micros, ended: Micros, ids: Option<Range<u64>>) {
        self.sink.ledger().unasked(Unasked {
            session: self.session,
            backend: self.backend,
            what,
            began,
            ended,
            ids,
        });
    }

    fn transaction(&mut self, observed: ObservedTransaction, uncertain: bool) {
        let (id, crowded) = self
            .current
            .take()
            .unwrap_or_else(|| (self.sink.next_transaction(), false));
        // A request's settings are made again by the service itself.
        let is_kept = !(observed.passive && observed.request.is_some());
        if let Some(past) = &self.past
            && (!is_kept || observed.is_empty)
        {
            let seen = Seen::of(&observed);
            past.server.wired(self.session, seen, None);
            return;
        }
        if !is_kept {
            let ids = observed.xid.iter().chain(&observed.subxids);
            ids.for_each(|xid| self.sink.ledger().own(xid.0));
            return;
        }
        self.note_cuts(id, &observed);
        self.note_shape(&observed);
        // The server tells of ids later.
        let may_have_id = observed.xid.is_some() || self.past.is_some();
        let change = schema_change(&observed, may_have_id);
        self.waits
            .extend(self.sink.schema_changed(change).map(boxed));
        let xid_known = observed.xid_known;
        let is_procedure = is_procedure(&observed);
        // Settings of the session are made outside requests as a rule.
        let crowded = crowded && !observed.passive;
        let seen = self.past.as_ref().map(|_| Seen::of(&observed));
        let values = self.values_digest(&observed);
        let mut transaction = Transaction {
            values,
            ..to_trace(id, self.session, self.isolation, observed)
        };
        self.redact(&mut transaction);
        if let (Some(past), Some(seen)) = (&self.past, seen) {
            let waiting = Waiting {
                transaction,
                crowded,
                unattributed: Arc::clone(&self.unattributed),
                is_procedure,
            };
            return past.server.wired(self.session, seen, Some(waiting));
        }
        self.sink
            .counters()
            .transaction(&transaction, crowded, &self.unattributed);
        let ghost_committed =
            transaction.request.is_none() && transaction.outcome == Outcome::Committed;
        // Without an id there is nothing to ask the server for.
        match uncertain && (transaction.xid.is_some() || xid_known) {
            true => self.sink.ledger().uncertain(transaction),
            false => self.sink.transaction(transaction),
        }
        // A request's transactions are on disk before its response leaves. A ghost has no response:
        // its answer waits.
        if ghost_committed && let Some(durable) = self.sink.durable() {
            self.waits.push(durable);
        }
    }

    fn values_digest(&self, observed: &ObservedTransaction) -> Option<u32> {
        let (request, _) = observed.request?;
        let digest = self.values.as_ref()?;
        Some(digest.of(request, observed.values?))
    }

    fn note_shape(&mut self, observed: &ObservedTransaction) {
        let id = ShapeId(observed.shape);
        if self.shapes.len() >= SHAPES_MAX {
            self.shapes = HashSet::new();
        }
        if self.shapes.insert(id) && !self.sink.knows_shape(id) {
            let statements = observed.statements.iter();
            let statements = statements.map(|statement| statement.text.clone()).collect();
            self.sink.shape(Shape { id, statements });
        }
    }

    /// Takes secrets out of what is kept of the session.
    fn redact(&self, transaction: &mut Transaction) {
        if !self.redactor.rules().look_into_sql() {
            return;
        }
        // Only of these a replay needs what they said.
        let is_replayed = transaction.outcome == Outcome::Aborted || transaction.request.is_none();
        let came = is_replayed.then(|| said(transaction).map(<[u8]>::to_vec));
        self.take_secrets(transaction);
        if let Some(came) = came
            && said(transaction) != [&came[0][..], &came[1]]
        {
            transaction.secrets = self.redactor.sealed(transaction.id, &came[0], &came[1]);
        }
    }

    fn take_secrets(&self, transaction: &mut Transaction) {
        if let Some(bytes) = &mut transaction.server_bytes {
            *bytes = self.redactor.server_bytes(bytes);
        }
        // It is not known of which columns their rows are.
        let is_of_values = transaction.outcome != Outcome::Aborted;
        transaction.server_bytes = transaction
            .server_bytes
            .take()
            .filter(|bytes| !is_of_values || describes_rows(bytes));
        if let Some(bytes) = &mut transaction.client_bytes {
            match self.redactor.client_bytes(bytes) {
                Ok(redacted) => *bytes = redacted,
                Err(_) if transaction.request.is_some() => transaction.client_bytes = None,
                Err(what) => {
                    transaction.client_bytes = None;
                    let id = transaction.id;
                    let reason =
                        format!("what the client of transaction {id} sent is not kept: {what}");
                    self.sink
                        .unobserved(self.session, transaction.began, reason);
                }
            }
        }
    }

    /// What replay would need and a limit kept out is a gap.
    fn note_cuts(&self, id: TransactionId, observed: &ObservedTransaction) {
        let cut = observed.cut;
        let missing = match () {
            _ if cut.server_bytes && observed.outcome == Outcome::Aborted => {
                "what it was answered before it aborted"
            }
            _ if cut.client_bytes && observed.request.is_none() => "what its client sent",
            _ if cut.notes => "some of its locks or sequence values",
            _ => return,
        };
        let reason = format!("transaction {id} is larger than what is kept: {missing} is missing");
        self.sink.unobserved(self.session, observed.began, reason);
    }

    /// A procedure or `DO` block committed inside. Its messages and its end are recorded, and what
    /// its inner transactions saw is not: replay would run it as one.
    fn commits_inside(&self, statement: &Fingerprint, began: Micros, ended: Micros) {
        if self.sink.first_to_commit_inside(statement.hash) {
            tracing::warn!(
                statement = statement.text,
                "it commits inside, which cannot be recorded transaction by transaction: replay refuses to cross it"
            );
        }
        let reason = format!(
            "`{}` committed inside: what its inner transactions saw and wrote is not recorded one by one, so it cannot \
             be replayed. To record it, let the service commit instead: one CALL per transaction, without COMMIT in the \
             procedure",
            statement.text
        );
        self.sink.commits_inside(self.session, began, ended, reason);
    }

    /// See [`Observer::is_ahead`].
    pub fn is_ahead(&self, input: &[u8]) -> bool {
        self.observer
            .as_ref()
            .is_some_and(|observer| observer.is_ahead(input))
    }

    pub fn give_up(&mut self, reason: String) {
        if self.unobserved.is_none() {
            let now = self.now();
            if let Some(past) = &self.past {
                past.server.silent(self.session);
            }
            self.sink.unobserved(self.session, now, reason.clone());
            self.unobserved = Some((now, reason));
        }
    }
}

impl Driver for RecordingDriver {
    fn on_client(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow {
        self.step(wires, |observer, context, wires, events| {
            observer.on_client(input, context, wires, events)
        })
    }

    fn on_server(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow {
        self.step(wires, |observer, context, wires, events| {
            observer.on_server(input, context, wires, events)
        })
    }

    fn on_permission(&mut self, wires: &mut Wires) -> Flow {
        // More may have happened while the session waited.
        if !self.waits.is_empty() {
            return self.wait();
        }
        if let Some(withheld) = self.withheld.take() {
            wires.to_client.unsplit(withheld);
        }
        Flow::Continue
    }

    fn on_client_gone(&mut self, wires: &mut Wires) {
        self.step(wires, |observer, context, wires, _| {
            observer.on_client_gone(context, wires);
            Ok(())
        });
    }

    fn on_server_gone(&mut self, wires: &mut Wires) {
        // What the session ends in the middle of is its last.
        if let Some(past) = &self.past {
            past.server.closed(self.session, past.at);
        }
        self.step(wires, |observer, context, _, events| {
            observer.on_server_gone(context, events);
            Ok(())
        });
        // Nothing follows that could wait.
        if let Some(withheld) = self.withheld.take() {
            wires.to_client.unsplit(withheld);
        }
        // Now the end of the gap is known as well.
        if let Some((since, reason)) = self.unobserved.take() {
            self.sink.unobserved_until_now(self.session, since, reason);
        }
    }

    fn idle(&self) -> bool {
        self.observer.as_ref().is_some_and(Observer::is_idle) && self.withheld.is_none()
    }
}

/// What the server answered a transaction, and what its client sent.
fn said(transaction: &Transaction) -> [&[u8]; 2] {
    [&transaction.server_bytes, &transaction.client_bytes]
        .map(|bytes| bytes.as_deref().unwrap_or_default())
}

fn to_trace(
    id: TransactionId,
    session: SessionId,
    assumed: Isolation,
    observed: ObservedTransaction,
) -> Transaction {
    Transaction {
        id,
        session,
        request: observed.request,
        began: observed.began,
        ended: observed.ended,
        isolation: observed.isolation.unwrap_or(assumed),
        snapshot: observed.snapshot,
        xid: observed.xid,
        subxids: observed.subxids,
        outcome: observed.outcome,
        now: observed.now,
        shape: ShapeId(observed.shape),
        result_digest: Digest(observed.result_digest),
        result_rows: observed.result_rows,
        locks: observed.locks,
        sequence_values: observed.sequence_values,
        drawn_uuids: observed.drawn_uuids,
        server_bytes: observed.server_bytes.map(Vec::from),
        secrets: Secrets::None,
        client_bytes: observed.client_bytes.map(Vec::from),
        statement_snapshots: Vec::new(),
        rechecked: Vec::new(),
        drawn: Vec::new(),
        clock: Vec::new(),
        commit_lsn: None,
        values: None,
        row_order: observed.row_order,
    }
}

/// Tells the names of our statements in one session from all that its client could think of.
fn token(prefix: u64, session: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(&session.to_be_bytes(), prefix)
}

/// Whether it may have committed inside.
fn is_procedure(observed: &ObservedTransaction) -> bool {
    let mut kinds = observed.statements.iter().map(|one| kind_of(Some(one)));
    kinds.any(|kind| matches!(kind, "CALL" | "DO"))
}

/// What to call a statement whose ids could not be asked for.
fn kind_of(statement: Option<&Fingerprint>) -> &'static str {
    const KINDS: [(&str, &str); 22] = [
        ("vacuum", "VACUUM"),
        ("analy", "ANALYZE"),
        ("reindex", "REINDEX"),
        ("cluster", "CLUSTER"),
        ("call", "CALL"),
        ("do", "DO"),
        ("create index concurrently", "CREATE INDEX CONCURRENTLY"),
        (
            "create unique index concurrently",
            "CREATE INDEX CONCURRENTLY",
        ),
        ("drop index concurrently", "DROP INDEX CONCURRENTLY"),
        ("create database", "CREATE DATABASE"),
        ("drop database", "DROP DATABASE"),
        ("alter database", "ALTER DATABASE"),
        ("create tablespace", "CREATE TABLESPACE"),
        ("drop tablespace", "DROP TABLESPACE"),
        ("alter system", "ALTER SYSTEM"),
        ("create subscription", "CREATE SUBSCRIPTION"),
        ("drop subscription", "DROP SUBSCRIPTION"),
        ("alter subscription", "ALTER SUBSCRIPTION"),
        ("alter table", "ALTER TABLE … DETACH PARTITION CONCURRENTLY"),
        ("declare", "DECLARE … WITH HOLD"),
        ("function call", "a function call"),
        ("commit", "COMMIT"),
    ];
    let Some(statement) = statement else {
        return "end of session";
    };
    let text = statement.text.to_ascii_lowercase();
    // In front of the table's name, or among the options in parentheses.
    if text.starts_with("vacuum") && text.contains("full") {
        return "VACUUM FULL";
    }
    let kind = KINDS.iter().find(|(start, _)| text.starts_with(start));
    kind.map_or("a statement", |(_, kind)| kind)
}

/// What a transaction may have changed of what is known of sequences and functions.
fn schema_change(observed: &ObservedTransaction, may_have_id: bool) -> SchemaChange {
    let mut change = SchemaChange::default();
    if !may_have_id || observed.outcome == Outcome::Aborted {
        return change;
    }
    for statement in &observed.statements {
        change.add(SchemaChange::of(&statement.text));
    }
    if observed.cut.statements && !change.is_none() {
        // A migration so long that its end was not kept.
        change.add(SchemaChange::everything());
    }
    change
}

fn boxed(wait: impl Future<Output = ()> + Send + 'static) -> Permission {
    Box::pin(wait)
}
