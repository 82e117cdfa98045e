//! The driver that observes sessions while recording.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::BytesMut;
use hindcast_trace::{
    Attribution, Digest, Id, Isolation, Lock, Micros, Outcome, SequenceValue, SessionId, Shape,
    ShapeId, Snapshot, Transaction, TransactionId, Xid,
};
use hindcast_wire::sql::ScriptCache;
use hindcast_wire::{self as wire, Context, Event, ObservedTransaction, Output, RecorderOptions};

use super::sink::Sink;
use crate::http::Witness;
use crate::pg::{Driver, Flow, Host, Permission, Refusal, SessionStart, Wires};

const ISOLATION: &str = "default_transaction_isolation";

/// Gives every session an observer.
pub(super) struct RecordingHost {
    pub sink: Arc<Sink>,
    pub scripts: Arc<ScriptCache>,
    /// The database that is recorded; sessions with others pass through.
    pub database: String,
    /// Sessions that do not choose an isolation level get REPEATABLE READ.
    pub raise_isolation: bool,
}

/// Observes one session.
pub(super) struct RecordingDriver {
    sink: Arc<Sink>,
    session: SessionId,
    /// `None`: the session passes through.
    recorder: Option<wire::Recorder>,
    /// Kept from step to step for its capacity.
    events: Vec<Event>,
    sequences: Arc<wire::SequenceColumns>,
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

impl Host for RecordingHost {
    type Driver = RecordingDriver;

    fn open(&self, start: &mut SessionStart) -> Result<RecordingDriver, Refusal> {
        let parameters = &mut start.parameters;
        let replication = parameters.is_replication();
        if self.raise_isolation && !replication && !parameters.chooses(ISOLATION) {
            parameters.set(ISOLATION, "repeatable read");
        }
        let client = match parameters.text("application_name") {
            "" => {
                let machine = start
                    .peer
                    .rsplit_once(':')
                    .map_or(start.peer.as_str(), |(machine, _)| machine);
                format!("{}@{machine}", parameters.user())
            }
            // Clients that put the trace there are no better known by it.
            name if crate::http::Traceparent::parse(name).is_some() => parameters.user().to_owned(),
            name => name.to_owned(),
        };
        let observed = !replication && parameters.database() == self.database;
        let options = RecorderOptions::new(self.sink.trace_id_prefix(), Arc::clone(&self.scripts));
        let (sequences, sequences_version) = self.sink.sequences();
        let mut driver = RecordingDriver {
            session: self.sink.session_id(start.number),
            recorder: observed.then(|| wire::Recorder::new(options)),
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
        };
        self.sink.counters().session();
        // A replication connection only reads.
        if !observed && !replication {
            let database = start.parameters.database();
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
            &mut wire::Recorder,
            &Context<'_>,
            &mut Output,
        ) -> Result<(), wire::ProtocolError>,
    ) -> Flow {
        let Some(recorder) = &mut self.recorder else {
            return Flow::PassThrough;
        };
        if self.sink.sequences_version() != self.sequences_version {
            (self.sequences, self.sequences_version) = self.sink.sequences();
        }
        let sink = &*self.sink;
        let context = Context {
            now: sink.now(),
            alone: sink.requests().alone().map(|id| id.0),
            sequences: &self.sequences,
            lock_order: &|| sink.next_lock(),
        };
        let mut output = Output {
            to_server: std::mem::take(&mut wires.to_server),
            to_client: std::mem::take(&mut wires.to_client),
            events: std::mem::take(&mut self.events),
        };
        let followed = act(recorder, &context, &mut output);
        wires.to_server = output.to_server;
        wires.to_client = output.to_client;
        let mut events = output.events;
        for event in events.drain(..) {
            self.tell(event);
        }
        self.events = events;
        // The observer goes on in raw mode, for it still has answers of its own to swallow.
        if let Err(error) = followed {
            self.give_up(error.to_string());
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
            Event::Ready { .. } => {}
            Event::TransactionBegan { .. } => {
                let crowded = self.sink.requests().in_flight() > 1;
                self.current = Some((self.sink.next_transaction(), crowded));
            }
            Event::Transaction(observed) => self.transaction(*observed, false),
            Event::CommitUncertain(observed) => {
                self.sink.counters().uncertain();
                self.transaction(*observed, true);
            }
            Event::UnknownTable { table } => self.sink.unknown_table(table),
            Event::Unobserved { reason } => {
                tracing::debug!(session = %self.session, reason, "a session passes through");
            }
        }
    }

    fn transaction(&mut self, observed: ObservedTransaction, uncertain: bool) {
        let (id, crowded) = self
            .current
            .take()
            .unwrap_or_else(|| (self.sink.next_transaction(), false));
        // A request's settings are made again by the service itself.
        if observed.passive && observed.request.is_some() {
            return;
        }
        self.note_cuts(id, &observed);
        let shape = ShapeId(observed.shape);
        if self.shapes.insert(shape) && !self.sink.knows_shape(shape) {
            let statements = observed
                .statements
                .iter()
                .map(|statement| statement.text.clone())
                .collect();
            self.sink.shape(Shape {
                id: shape,
                statements,
            });
        }
        if observed.xid.is_some()
            && observed
                .statements
                .iter()
                .any(|statement| changes_schema(&statement.text))
        {
            // The next statement may well fill a column from a new sequence.
            self.waits.push(Box::pin(self.sink.schema_changed()));
        }
        let xid_known = observed.xid_known;
        // Settings of the session are made outside requests as a rule.
        let crowded = crowded && !observed.passive;
        let transaction = to_trace(id, self.session, self.isolation, observed);
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
        // A request's transactions are on disk before its response leaves. A ghost has no response: its answer waits.
        if ghost_committed && let Some(durable) = self.sink.durable() {
            self.waits.push(durable);
        }
    }

    /// What replay would need and a limit kept out is a gap.
    fn note_cuts(&self, id: TransactionId, observed: &ObservedTransaction) {
        let cut = observed.cut;
        let missing = match () {
            _ if cut.server_bytes && observed.outcome == wire::Outcome::Aborted => {
                "what it was answered before it aborted"
            }
            _ if cut.client_bytes && observed.request.is_none() => "what its client sent",
            _ if cut.notes => "some of its locks or sequence values",
            _ => return,
        };
        let reason = format!("transaction {id} is larger than what is kept: {missing} is missing");
        self.sink.unobserved(self.session, observed.began, reason);
    }

    fn give_up(&mut self, reason: String) {
        if self.unobserved.is_none() {
            let now = self.sink.now();
            self.sink.unobserved(self.session, now, reason.clone());
            self.unobserved = Some((now, reason));
        }
    }
}

impl Driver for RecordingDriver {
    fn on_client(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow {
        self.step(wires, |recorder, context, output| {
            recorder.on_client(input, context, output)
        })
    }

    fn on_server(&mut self, input: &mut BytesMut, wires: &mut Wires) -> Flow {
        self.step(wires, |recorder, context, output| {
            recorder.on_server(input, context, output)
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
        self.step(wires, |recorder, context, output| {
            recorder.on_client_gone(context, output);
            Ok(())
        });
    }

    fn on_server_gone(&mut self, wires: &mut Wires) {
        self.step(wires, |recorder, context, output| {
            recorder.on_server_gone(context, output);
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
        self.recorder.as_ref().is_some_and(wire::Recorder::is_idle) && self.withheld.is_none()
    }
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
        request: observed.request.map(|(request, how)| {
            let how = match how {
                wire::Attribution::Comment => Attribution::Comment,
                wire::Attribution::ApplicationName => Attribution::ApplicationName,
                wire::Attribution::Alone => Attribution::Alone,
            };
            (Id(request), how)
        }),
        began: observed.began,
        ended: observed.ended,
        isolation: match observed.isolation {
            Some(wire::Isolation::ReadCommitted) => Isolation::ReadCommitted,
            Some(wire::Isolation::RepeatableRead) => Isolation::RepeatableRead,
            Some(wire::Isolation::Serializable) => Isolation::Serializable,
            None => assumed,
        },
        snapshot: observed.snapshot.map(|snapshot| Snapshot {
            xmin: Xid(snapshot.xmin),
            xmax: Xid(snapshot.xmax),
            in_progress: snapshot.in_progress.into_iter().map(Xid).collect(),
        }),
        xid: observed.xid.map(Xid),
        subxids: observed.subxids.into_iter().map(Xid).collect(),
        outcome: match observed.outcome {
            wire::Outcome::Committed => Outcome::Committed,
            wire::Outcome::Aborted => Outcome::Aborted,
            wire::Outcome::Prepared { gid } => Outcome::Prepared { gid },
            wire::Outcome::Unknown => Outcome::Unknown,
        },
        now: observed.now,
        shape: ShapeId(observed.shape),
        result_digest: Digest(observed.result_digest),
        result_rows: observed.result_rows,
        locks: observed
            .locks
            .into_iter()
            .map(|lock| Lock {
                statement: lock.statement,
                target: lock.target,
                completed: lock.completed,
            })
            .collect(),
        sequence_values: observed
            .sequence_values
            .into_iter()
            .map(|taken| SequenceValue {
                sequence: taken.sequence,
                value: taken.value,
            })
            .collect(),
        server_bytes: observed.server_bytes.map(Vec::from),
        client_bytes: observed.client_bytes.map(Vec::from),
    }
}

/// Whether columns may be filled from other sequences than before.
fn changes_schema(fingerprint: &str) -> bool {
    ["create", "alter"].iter().any(|word| {
        fingerprint
            .get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
    })
}
