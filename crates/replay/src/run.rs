//! Puts the parts together: from a plan and a rewound database to a verdict.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use hindcast_gateway::BindError;
use hindcast_gateway::pg::{Connector, ControlError, DatabaseUrl, TlsError};
use hindcast_order::{Request, Schedule, Tx};
use hindcast_rewind::state::{self, RowDifference, StateError};
use hindcast_trace::{self as trace, ReadError, Trace};

use crate::compare::{self, Ignore, Seen};
use crate::coordinator::Coordinator;
use crate::desk::Floor;
use crate::gate::Gate;
use crate::hold::Code;
use crate::perform::{End, Performance, Ran};
pub use crate::perform::{Hooks, Setting};
use crate::plan::Plan;
use crate::recording::{Fate, LoadError, Recording, Scope};
use crate::sender::{self, Judge};
use crate::service::{Service, ServiceError};
use crate::shapes::Shapes;
use crate::verdict::*;

/// How to replay.
pub struct ReplayOptions {
    pub setting: Setting,
    pub sequential: bool,
    pub keep_going: bool,
    pub ignore: Ignore,
    /// A database in the recorded final state.
    pub compare_with: Option<DatabaseUrl>,
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

/// How long a service that closed its connections in the middle of something may take to be seen as ended.
const EXIT_PATIENCE: Duration = Duration::from_secs(1);

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
    let shapes = Arc::new(Shapes::of(&trace));
    let loading = {
        let (trace, plan, shapes) = (Arc::clone(&trace), Arc::clone(&plan), Arc::clone(&shapes));
        tokio::task::spawn_blocking(move || Recording::load(&trace, &plan, &shapes, &Scope::ALL))
    };
    let (recording, levels, locks) = loading.await.expect("loading does not panic")?;
    let recording = Arc::new(recording);
    let coordinator = Coordinator::new(
        Arc::clone(&recording),
        Arc::clone(&plan),
        Schedule::new(levels, locks),
        Arc::clone(&shapes),
        options.sequential,
        options.keep_going,
    );
    let mut performance = Performance::start(
        Arc::clone(&trace),
        Arc::clone(&plan),
        Arc::clone(&recording),
        coordinator,
        &shapes,
        Code::Recorded,
        options.setting.clone(),
        hooks,
    )
    .await?;
    let prepared = started.elapsed();
    let judge = Arc::new(Comparison {
        ignore: options.ignore.clone(),
    });
    let (end, ran) = performance.run(judge, hooks).await?;

    let gate = performance.gate.clone();
    let divergence = match end {
        End::Stuck { after } => Some(stuck(&gate, &recording, after)),
        End::Exited { status } => {
            let service = performance.service.as_ref();
            Some(exited(&gate, &recording, service, status))
        }
        End::Done | End::Read(_) => None,
    };
    if let Some(divergence) = divergence {
        gate.with(|coordinator| coordinator.diverge(divergence));
    }
    let first = gate.with(|coordinator| coordinator.divergences().next().cloned());
    let complete = first.is_none();
    if let (Some(first), Some(running)) = (first, &mut performance.service)
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
    let (floor, connector) = (
        Arc::clone(&performance.floor),
        Arc::clone(&performance.connector),
    );
    performance.shut_down().await;

    let final_state =
        compare_final_state(&trace, &plan, &options, &connector, complete, &gate).await?;
    Ok(verdict(&plan, &floor, final_state, &options, ran, prepared))
}

/// Compares responses with the recorded ones.
struct Comparison {
    ignore: Ignore,
}

impl Judge for Comparison {
    fn response(
        &self,
        recorded: &trace::Request,
        outcome: Result<Seen, String>,
    ) -> Option<Divergence> {
        let kind = match outcome {
            Ok(seen) => compare::difference(&recorded.response, &seen, &self.ignore)?,
            Err(error) => DivergenceKind::NoResponse { error },
        };
        Some(Divergence {
            position: Position::request(recorded.id),
            kind,
        })
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

/// Who waits for whom, for a message about a run that does not move.
pub fn waits(gate: &Gate, recording: &Recording) -> Vec<String> {
    let waiting = gate.waiting();
    gate.with(|coordinator| {
        let schedule = coordinator.schedule();
        if waiting.is_empty() {
            let unanswered = coordinator
                .in_flight()
                .take(8)
                .map(|one| recording.request(one).id);
            return unanswered
                .map(|id| format!("request {id} is not answered"))
                .collect();
        }
        let described = waiting.iter().take(8).map(|ask| {
            let on = schedule.explain(ask.tx()).wait.map(|wait| wait.on());
            describe_wait(recording, ask.tx(), on)
        });
        described.collect()
    })
}

fn stuck(gate: &Gate, recording: &Recording, patience: Duration) -> Divergence {
    let waiting = gate.waiting();
    let waits = waits(gate, recording);
    gate.with(|coordinator| {
        let schedule = coordinator.schedule();
        let culprit = waiting
            .first()
            .map(|ask| schedule.explain(ask.tx()).culprit);
        let silent: Vec<Request> = coordinator.in_flight().collect();
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
pub fn unattributed(recording: &Recording) -> u64 {
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

fn verdict(
    plan: &Plan,
    floor: &Floor,
    final_state: FinalState,
    options: &ReplayOptions,
    ran: Ran,
    prepared: Duration,
) -> Verdict {
    let mut remarks = ran.remarks;
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
    match &options.setting.unpinned {
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
            requests_not_compared: ran.not_compared,
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
            replay_us: ran.took.as_micros() as i64,
            original_us: original,
        },
        final_state,
        remarks,
    }
}
