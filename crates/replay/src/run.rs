//! Puts the parts together: from a plan and a rewound database to a verdict.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use hindcast_gateway::http::ServiceUrl;
use hindcast_gateway::pg::{Connector, ControlError, DatabaseUrl, Server, ServerOptions, TlsError};
use hindcast_gateway::{BindError, ListenAddress};
use hindcast_order::{Request, Tx};
use hindcast_rewind::state::{self, RowDifference, StateError};
use hindcast_trace::{Isolation, ReadError, RequestId, ShapeId, Trace};
use hindcast_wire::sql::{Dialect, Kind, Script, ScriptCache, Statement};

use crate::compare::Ignore;
use crate::coordinator::Coordinator;
use crate::desk::{Floor, HoldingHost};
use crate::gate::Gate;
use crate::ghosts;
use crate::hold::HoldOptions;
use crate::plan::Plan;
use crate::recording::{Fate, LoadError, Recording};
use crate::sender::{self, Sender, Sent};
use crate::service::{Service, ServiceError};
use crate::verdict::*;

/// How to replay.
pub struct ReplayOptions {
    /// Command that starts the service; `None` if [`Hooks::ready`] does.
    pub service_command: Option<String>,
    pub service_url: ServiceUrl,
    pub service_log: PathBuf,
    /// Where the service finds its database. [`Hooks::ready`] is told the port if it is 0 here.
    pub pg_listen: ListenAddress,
    /// The rewound database.
    pub database: DatabaseUrl,
    /// What could not be pinned there; `None` if nothing could.
    pub unpinned: Option<Vec<String>>,
    pub sequential: bool,
    pub keep_going: bool,
    pub allow_outside_writes: bool,
    pub ignore: Ignore,
    pub debug_wait: Option<RequestId>,
    pub stall_timeout: Duration,
    /// A database in the recorded final state.
    pub compare_with: Option<DatabaseUrl>,
}

/// Who watches a replay.
pub trait Hooks {
    /// The service's database is there, under this address. If nobody gave a command that starts the service, return when it serves.
    fn ready(&mut self, _database: &ListenAddress) -> impl Future<Output = ()> {
        std::future::ready(())
    }
    fn progress(&mut self, sent: Sent);
    /// The service, in this process group, is about to get this request; return to send it.
    fn debug_wait(
        &mut self,
        request: RequestId,
        process_group: Option<u32>,
    ) -> impl Future<Output = ()>;
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("the recording cannot be read")]
    Read(#[from] ReadError),
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error("the holding gateway cannot listen")]
    Bind(#[from] BindError),
    #[error("TLS to the rewound database cannot be set up")]
    Tls(#[from] TlsError),
    #[error("cannot connect to the rewound database")]
    Control(#[from] ControlError),
    #[error("the final state cannot be compared")]
    State(#[from] StateError),
    #[error("the recording has no recorder")]
    NoRecorder,
}

/// Why a run came to its end.
enum End {
    Done,
    Stuck,
    Exited { status: String },
    Read(ReadError),
}

/// How long a service that closed its connections in the middle of something may take to be seen as ended.
const EXIT_PATIENCE: Duration = Duration::from_secs(1);

/// The holding gateway, which is not to outlive a replay that is dropped in the middle.
struct Leash(Option<Server<HoldingHost>>);

impl Drop for Leash {
    fn drop(&mut self) {
        if let Some(server) = &self.0 {
            server.cut_off();
        }
    }
}

/// Replays `plan` and compares.
///
/// The future may be dropped at any time: the service, if it was started here, the sessions, the ghosts and the requests in flight end with it.
pub async fn run(
    trace: Arc<Trace>,
    plan: Plan,
    options: ReplayOptions,
    hooks: &mut impl Hooks,
) -> Result<Verdict, ReplayError> {
    let started = Instant::now();
    let plan = Arc::new(plan);
    let (recording, schedule) = {
        let (trace, plan) = (Arc::clone(&trace), Arc::clone(&plan));
        tokio::task::spawn_blocking(move || Recording::load(&trace, &plan))
            .await
            .expect("loading does not panic")?
    };
    let recording = Arc::new(recording);
    let shapes = Shapes::of(&trace);
    let mut coordinator = Coordinator::new(
        Arc::clone(&recording),
        Arc::clone(&plan),
        schedule,
        shapes.openings,
        options.sequential,
        options.keep_going,
    );
    let ghosts = ghosts::by_session(&recording);
    coordinator.leave_out(
        recording
            .ghosts()
            .filter(|tx| !ghosts.values().any(|own| own.contains(tx)))
            .collect::<Vec<Tx>>(),
    );
    let gate = Gate::new(coordinator);
    let floor = Arc::new(Floor::new(
        gate.clone(),
        Arc::clone(&recording),
        shapes.reading,
    ));

    let first = trace.recorders().first().ok_or(ReplayError::NoRecorder)?;
    let hold = HoldOptions {
        trace_id_prefixes: trace
            .recorders()
            .iter()
            .map(|recorder| recorder.trace_id_prefix)
            .collect(),
        scripts: Arc::new(ScriptCache::default()),
        pinned: options.unpinned.is_some(),
    };
    let connector = Arc::new(Connector::new(options.database.clone())?);
    let host = Arc::new(HoldingHost {
        floor: Arc::clone(&floor),
        options: hold.clone(),
        database: options.database.database(),
        allow_outside_writes: options.allow_outside_writes,
        raise_isolation: first.raised_isolation == Some(Isolation::RepeatableRead),
    });
    let server_options = ServerOptions {
        listen: options.pg_listen.clone(),
        identity: None,
        runtimes: Vec::new(),
    };
    let server = Server::bind(server_options, Arc::clone(&connector), host).await?;
    let address = server.handle().address().clone();
    let mut leash = Leash(Some(server));
    hooks.ready(&address).await;
    let mut service = match &options.service_command {
        Some(command) => {
            Some(Service::start(command, &options.service_url, &options.service_log).await?)
        }
        None => None,
    };
    let process_group = service.as_ref().and_then(Service::process_group);
    let prepared = started.elapsed();

    let replaying = Instant::now();
    // A set of one, since a set ends its tasks when it is dropped.
    let mut haunting = tokio::task::JoinSet::new();
    haunting.spawn(ghosts::run_all(
        Arc::clone(&floor),
        Arc::clone(&connector),
        hold.clone(),
        ghosts.into_values().collect(),
    ));
    let sender = Sender {
        floor: Arc::clone(&floor),
        plan: Arc::clone(&plan),
        service: options.service_url.clone(),
        ignore: Arc::new(options.ignore.clone()),
        prefixes: trace
            .recorders()
            .iter()
            .map(|recorder| (recorder.number, recorder.trace_id_prefix))
            .collect(),
        debug_wait: options.debug_wait,
    };
    let patience = options.stall_timeout.max(longest_request(&recording) * 2);
    let paused = std::cell::Cell::new(false);
    let hooks = tokio::sync::Mutex::new(hooks);
    let mut not_compared = 0;
    let mut remarks = Vec::new();
    let end = {
        let sending = async {
            let told = |sent: Sent| {
                not_compared = sent.not_compared;
                // While somebody sits in a debugger nothing is sent, so nothing is done either.
                if let Ok(mut hooks) = hooks.try_lock() {
                    hooks.progress(sent);
                }
            };
            let wait = async |request| {
                paused.set(true);
                hooks.lock().await.debug_wait(request, process_group).await;
                paused.set(false);
            };
            let sent = sender.run(Arc::clone(&trace), &mut remarks, told, wait);
            if let Err(error) = sent.await {
                return End::Read(error);
            }
            until(&gate, |coordinator| coordinator.is_finished()).await;
            End::Done
        };
        // Somebody sits in a debugger, and takes the time that it takes.
        let debugging = || {
            let debugged = options.debug_wait.and_then(|id| recording.find(id));
            let in_flight = debugged.is_some_and(|request| {
                gate.with(|c| !c.is_over() && c.in_flight().any(|one| one == request))
            });
            paused.get() || in_flight
        };
        // Requests in flight may be held for ever when it is over. Those of somebody who sits in a debugger are left alone.
        let over = until(&gate, |coordinator| coordinator.is_over() && !paused.get());
        let exiting = async {
            match &mut service {
                Some(service) => End::Exited {
                    status: service.ended().await,
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            end = sending => end,
            end = exiting => end,
            () = over => End::Done,
            () = stall(&gate, patience, debugging) => End::Stuck,
        }
    };
    let replayed = replaying.elapsed();

    match end {
        End::Read(error) => return Err(error.into()),
        End::Done => {}
        End::Stuck => {
            let divergence = stuck(&gate, &recording, patience);
            gate.with(|coordinator| coordinator.diverge(divergence));
        }
        End::Exited { status } => {
            let divergence = exited(&gate, &recording, service.as_ref(), status);
            gate.with(|coordinator| coordinator.diverge(divergence));
        }
    }
    let first = gate.with(|coordinator| coordinator.divergences().next().cloned());
    let complete = first.is_none();
    if let (Some(first), Some(running)) = (first, &mut service)
        && matches!(
            first.kind,
            DivergenceKind::NoResponse { .. } | DivergenceKind::ConnectionLost
        )
        && let Ok(status) = tokio::time::timeout(EXIT_PATIENCE, running.ended()).await
    {
        // Its connections were seen to close before its end was.
        let last_lines = running.last_lines();
        gate.with(|coordinator| {
            coordinator.explain_first(DivergenceKind::ServiceExited { status, last_lines })
        });
    }

    // Everything that could still wait goes: the service first, so that it does not see its sessions fall over.
    if let Some(service) = service {
        service.stop().await;
    }
    gate.open();
    haunting.shutdown().await;
    if let Some(server) = leash.0.take() {
        server.shut_down(Duration::from_millis(500)).await;
    }

    let final_state =
        compare_final_state(&trace, &plan, &options, &connector, complete, &gate).await?;
    Ok(verdict(
        &plan,
        &floor,
        final_state,
        remarks,
        &options,
        not_compared,
        prepared,
        replayed,
    ))
}

/// What is known about a kind of transaction from its statements.
#[derive(Default)]
struct Shapes {
    /// The hash of the statement that makes a transaction take its snapshot.
    openings: HashMap<ShapeId, u64>,
    reading: HashSet<ShapeId>,
}

impl Shapes {
    fn of(trace: &Trace) -> Self {
        let mut shapes = Self::default();
        for shape in trace.shapes() {
            // A fingerprint is a statement again, and its own fingerprint.
            let scripts = shape
                .statements
                .iter()
                .map(|text| Script::of(text.as_bytes(), Dialect::default()));
            let statements: Vec<_> = scripts.flat_map(|script| script.statements).collect();
            if let Some(opening) = statements.iter().find(|statement| statement.takes_snapshot) {
                shapes.openings.insert(shape.id, opening.fingerprint.hash);
            }
            if statements.iter().all(only_reads) {
                shapes.reading.insert(shape.id);
            }
        }
        shapes
    }
}

fn only_reads(statement: &Statement) -> bool {
    let text = statement.fingerprint.text.to_ascii_lowercase();
    let reads_clock = ["now", "timestamp", "current_", "localtime"]
        .iter()
        .any(|word| text.contains(word));
    let plain = statement.locks.is_empty()
        && statement.sequences.is_empty()
        && !reads_clock
        && !text.contains("val(");
    statement.kind.controls_transaction() || statement.kind == Kind::Select && plain
}

fn longest_request(recording: &Recording) -> Duration {
    let longest = recording
        .requests
        .iter()
        .map(|request| request.ended - request.arrived)
        .max()
        .unwrap_or(0);
    Duration::from_micros(longest.max(0) as u64)
}

/// Resolves when something is true of the coordinator.
async fn until(gate: &Gate, fact: impl Fn(&Coordinator) -> bool) {
    let mut changes = gate.changes();
    loop {
        changes.borrow_and_update();
        if gate.with(|coordinator| fact(coordinator)) {
            return;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Resolves when no step of the recording was taken for as long as `patience`, whatever else the service may have done.
async fn stall(gate: &Gate, patience: Duration, excused: impl Fn() -> bool) {
    let steps = || gate.with(|coordinator| coordinator.steps());
    let mut changes = gate.changes();
    loop {
        let before = steps();
        let moves = async {
            while steps() == before {
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        match tokio::time::timeout(patience, moves).await {
            Ok(()) => {}
            Err(_) if excused() => {}
            Err(_) => return,
        }
    }
}

/// The service ended by itself, in the middle of the first request that it had not answered.
fn exited(
    gate: &Gate,
    recording: &Recording,
    service: Option<&Service>,
    status: String,
) -> Divergence {
    let in_flight = gate.with(|coordinator| coordinator.in_flight().next());
    let position = in_flight.map_or(Position::default(), |request| {
        Position::request(recording.request(request).id)
    });
    let last_lines = service.map(Service::last_lines).unwrap_or_default();
    Divergence {
        position,
        kind: DivergenceKind::ServiceExited { status, last_lines },
    }
}

fn stuck(gate: &Gate, recording: &Recording, patience: Duration) -> Divergence {
    let waiting = gate.waiting();
    gate.with(|coordinator| {
        let schedule = coordinator.schedule();
        let mut waits: Vec<String> = Vec::new();
        let mut culprit = None;
        for ask in waiting.iter().take(8) {
            let explanation = schedule.explain(ask.tx());
            culprit.get_or_insert(explanation.culprit);
            let on = explanation.wait.map(|wait| wait.on());
            waits.push(describe_wait(recording, ask.tx(), on));
        }
        let silent: Vec<Request> = coordinator.in_flight().collect();
        if waiting.is_empty() {
            let unanswered = silent.iter().take(8).map(|&one| recording.request(one).id);
            waits.extend(unanswered.map(|id| format!("request {id} is not answered")));
        }
        // Nobody waits: then it is up to who was sent and is silent, in the middle of a transaction or not. What was not sent waits for them.
        let is_left = |tx: &Tx| !schedule.has_ended(*tx) && !schedule.is_abandoned(*tx);
        let of_silent = silent.iter().flat_map(|&one| recording.own(one));
        let culprit = culprit.or_else(|| of_silent.copied().find(is_left));
        let culprit = culprit.or_else(|| {
            let mut all = (0..recording.transactions.len() as u32).map(Tx);
            all.find(is_left).filter(|_| silent.is_empty())
        });
        let position = match (culprit, silent.first()) {
            (Some(tx), _) => {
                let recorded = recording.transaction(tx);
                let request = recorded.request.map(|(request, _)| request);
                Position {
                    request: request.map(|request| recording.request(request).id),
                    transaction: Some(recorded.id),
                }
            }
            (None, Some(&request)) => Position::request(recording.request(request).id),
            (None, None) => Position::default(),
        };
        let unclaimed = culprit.is_some_and(|tx| !coordinator.is_claimed(tx));
        let read_committed = coordinator.counts().read_committed > 0;
        let suspicion = match () {
            () if unclaimed && !waiting.is_empty() => Some(Suspicion::PoolTooSmall {
                connections_needed: sender::connections_needed(recording),
            }),
            () if read_committed => Some(Suspicion::ReadCommitted),
            () => None,
        };
        Divergence {
            position,
            kind: DivergenceKind::Stuck {
                waits,
                suspicion,
                after_s: patience.as_secs_f64(),
            },
        }
    })
}

fn describe_wait(recording: &Recording, tx: Tx, on: Option<Tx>) -> String {
    let name = |tx: Tx| {
        let recorded = recording.transaction(tx);
        match recorded.request {
            Some((request, _)) => format!(
                "t{} of request {}",
                recorded.id,
                recording.request(request).id
            ),
            None => format!("t{}, a ghost", recorded.id),
        }
    };
    match on {
        Some(on) => format!("{} waits for {}", name(tx), name(on)),
        None => format!("{} may go on", name(tx)),
    }
}

async fn compare_final_state(
    trace: &Trace,
    plan: &Plan,
    options: &ReplayOptions,
    connector: &Connector,
    complete: bool,
    gate: &Gate,
) -> Result<FinalState, ReplayError> {
    let not = |reason| Ok(FinalState::NotCompared { reason });
    let Some(expected) = trace.final_state() else {
        return not(NotCompared::NotRecorded);
    };
    if !plan.reaches_end {
        return not(NotCompared::RangeEndsBefore);
    }
    if !complete && !options.keep_going {
        return not(NotCompared::StoppedBefore);
    }
    let ours = connector.control("hindcast final state").await?;
    let actual = state::digest_tables(&ours).await?;
    let theirs = match &options.compare_with {
        Some(url) => Some(
            Connector::new(url.clone())?
                .control("hindcast final state")
                .await?,
        ),
        None => None,
    };
    let mut differs = false;
    for (table, expected, actual) in differing_tables(&expected.tables, &actual) {
        differs = true;
        let differences = match &theirs {
            Some(theirs) => match state::first_differences(theirs, &ours, table, 10).await {
                Ok(found) => found.rows.iter().map(row_difference).collect(),
                Err(error) => vec![error.to_string()],
            },
            None => Vec::new(),
        };
        let kind = DivergenceKind::FinalState {
            table: table.to_owned(),
            expected_rows: expected.map(|table| table.rows),
            actual_rows: actual.map(|table| table.rows),
            differences,
        };
        gate.with(|coordinator| {
            coordinator.diverge(Divergence {
                position: Position::default(),
                kind,
            })
        });
    }
    Ok(match differs {
        true => FinalState::Differs,
        false => FinalState::Same {
            tables: actual.len(),
            rows: actual.iter().map(|table| table.rows).sum(),
        },
    })
}

fn row_difference(difference: &RowDifference) -> String {
    match difference {
        RowDifference::OnlyInA(row) => format!("missing: {}", row_text(row)),
        RowDifference::OnlyInB(row) => format!("new: {}", row_text(row)),
        RowDifference::Changed { a, b } => format!("was {}, is {}", row_text(a), row_text(b)),
        RowDifference::Count { row, a, b } => {
            format!("was there {a} times, is there {b} times: {}", row_text(row))
        }
    }
}

fn row_text(row: &[Option<String>]) -> String {
    let values: Vec<&str> = row
        .iter()
        .map(|value| value.as_deref().unwrap_or("NULL"))
        .collect();
    format!("({})", values.join(", "))
}

/// Ghosts that began while a request was in flight, and so may well belong to one.
fn unattributed(recording: &Recording) -> u64 {
    let mut spans: Vec<_> = recording
        .requests
        .iter()
        .map(|request| (request.arrived, request.ended))
        .collect();
    spans.sort_unstable();
    let mut latest = i64::MIN;
    for span in &mut spans {
        latest = latest.max(span.1);
        span.1 = latest;
    }
    let in_flight = |at| {
        spans[..spans.partition_point(|&(arrived, _)| arrived <= at)]
            .last()
            .is_some_and(|&(_, ended)| ended >= at)
    };
    recording
        .transactions
        .iter()
        .filter(|ghost| ghost.request.is_none() && ghost.has_snapshot && in_flight(ghost.began))
        .count() as u64
}

#[allow(clippy::too_many_arguments)]
fn verdict(
    plan: &Plan,
    floor: &Floor,
    final_state: FinalState,
    mut remarks: Vec<Remark>,
    options: &ReplayOptions,
    not_compared: u64,
    prepared: Duration,
    replayed: Duration,
) -> Verdict {
    let recording = &floor.recording;
    let (counted, divergences) = floor.gate.with(|coordinator| {
        (
            coordinator.counts(),
            coordinator.divergences().cloned().collect::<Vec<_>>(),
        )
    });
    let refused = floor.refused.lock().unwrap_or_else(PoisonError::into_inner);
    if counted.read_committed > 0 {
        remarks.push(Remark::ReadCommitted {
            transactions: counted.read_committed,
        });
    }
    let unattributed = unattributed(recording);
    if unattributed > 0 {
        remarks.push(Remark::UnattributedTransactions {
            transactions: unattributed,
        });
    }
    remarks.extend(
        plan.gaps
            .iter()
            .map(|gap| Remark::CrossedGap { gap: gap.clone() }),
    );
    remarks.extend(
        refused
            .iter()
            .map(|(statement, times)| Remark::OutsideWriteRefused {
                statement: statement.clone(),
                times: *times,
            }),
    );
    match &options.unpinned {
        None => remarks.push(Remark::NotPinned {
            what: "sequence values and now(): the user of the rewound database is no superuser"
                .to_owned(),
        }),
        Some(unpinned) => remarks.extend(
            unpinned
                .iter()
                .map(|what| Remark::NotPinned { what: what.clone() }),
        ),
    }
    let original = match (
        recording.requests.iter().map(|r| r.arrived).min(),
        recording.requests.iter().map(|r| r.ended).max(),
    ) {
        (Some(first), Some(last)) => last - first,
        _ => 0,
    };
    Verdict {
        faithful: counted.divergences == 0,
        from: *plan.range.start(),
        to: *plan.range.end(),
        divergences,
        divergence_count: counted.divergences,
        counts: Counts {
            requests: plan.compared - plan.lead_in,
            lead_in: plan.lead_in,
            trail: plan.trail,
            requests_not_compared: not_compared,
            transactions: recording
                .transactions
                .iter()
                .filter(|t| t.request.is_some())
                .count() as u64,
            served_from_recording: counted.served,
            ghosts: recording
                .transactions
                .iter()
                .filter(|t| t.request.is_none() && t.fate != Fate::Aborted)
                .count() as u64,
            read_committed: counted.read_committed,
            outside_writes_refused: refused.values().sum(),
        },
        timing: Timing {
            prepare_us: prepared.as_micros() as i64,
            replay_us: replayed.as_micros() as i64,
            original_us: original,
        },
        final_state,
        remarks,
    }
}
