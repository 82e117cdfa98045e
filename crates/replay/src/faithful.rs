//! A faithful replay: from a plan and a rewound database to a verdict.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use hindcast_order::{Request, Schedule, Tx};
use hindcast_pg::DatabaseUrl;
use hindcast_trace::{self as trace, Gap, Trace};

use crate::compare::{self, Compare, Ignore, Seen};
use crate::coordinator::Coordinator;
use crate::final_state::{self, Originals};
use crate::hold::Code;
use crate::monitor::Monitor;
use crate::plan::Plan;
use crate::recording::{Fate, Recording, Scope};
use crate::redacted::Redacted;
use crate::run::{End, Hooks, Ran, ReplayError, Run, Setting};
use crate::sender;
use crate::service::Service;
use crate::shapes::Shapes;
use crate::shared::Shared;
use crate::sides::Teller;
use crate::verdict::*;

/// How to replay.
pub struct ReplayOptions {
    pub setting: Setting,
    pub sequential: bool,
    pub keep_going: bool,
    pub ignore: Ignore,
    /// A database in the recorded final state.
    pub compare_with: Option<DatabaseUrl>,
    /// The database that was recorded. If it still holds what it held at the end, its rows are
    /// compared with, should tables differ.
    pub recorded_database: Option<DatabaseUrl>,
    /// Divergences are told with the values of statements, and with rows.
    pub values: bool,
}

/// How long a service that closed its connections in the middle of something may take to be seen as
/// ended.
const EXIT_PATIENCE: Duration = Duration::from_secs(1);

/// Replays `plan` and compares.
///
/// The future may be dropped at any time: the service, if it was started here, the sessions, the
/// ghosts and the requests in flight end with it.
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
    let coordinator = Coordinator::new(
        Arc::new(recording),
        Arc::clone(&plan),
        Schedule::new(levels, locks),
        shapes,
        options.sequential,
        options.keep_going,
    );
    let (setting, code) = (options.setting.clone(), Code::Recorded);
    let mut running = Run::start(Arc::clone(&trace), coordinator, code, setting, hooks).await?;
    let prepared = started.elapsed();
    let compare = Arc::new(Comparison {
        ignore: options.ignore.clone(),
        redacted: Redacted::of(&trace),
    });
    let comparing = Arc::clone(&compare);
    let (end, mut ran) = running.run(comparing, hooks).await?;
    let complete = conclude(&mut running, end).await;
    let (shared, connector) = (Arc::clone(&running.shared), Arc::clone(&running.connector));
    running.shut_down().await;

    let monitor = &shared.monitor;
    let originals = Originals {
        given: options.compare_with.as_ref(),
        recorded: options.recorded_database.as_ref(),
    };
    let complete = complete || options.keep_going;
    let final_state =
        final_state::compare(&trace, &plan, originals, &connector, complete, &shared).await?;
    let first = monitor.with(|coordinator| coordinator.divergences().next().cloned());
    let ghosts = monitor.with(|coordinator| coordinator.counts().ghosts > 0);
    let cause = first.and_then(|first| compare.redacted.cause(&first, ghosts));
    ran.remarks.extend(cause);
    let mut verdict = verdict(&plan, &shared, final_state, &options, ran, prepared);
    let teller = Teller {
        trace: &trace,
        redacted: &compare.redacted,
        values: options.values,
    };
    for divergence in &mut verdict.divergences {
        let id = divergence.position.transaction;
        let said = id.and_then(|id| monitor.with(|coordinator| coordinator.said(id)));
        divergence.sides = teller.sides(divergence, said.as_ref()).map(Box::new);
    }
    Ok(verdict)
}

/// Tells the coordinator how a run ended. Whether nothing diverged.
async fn conclude(running: &mut Run, end: End) -> bool {
    let shared = Arc::clone(&running.shared);
    let (monitor, recording) = (&shared.monitor, &shared.recording);
    let divergence = match end {
        End::Stuck { after } => Some(stuck(&shared, after)),
        End::Exited { status } => {
            let service = running.service.as_ref();
            Some(exited(monitor, recording, service, status))
        }
        End::Done => None,
    };
    monitor.with(|coordinator| match divergence {
        Some(divergence) => coordinator.diverge(divergence),
        None if coordinator.is_finished() => coordinator.settle_moved(),
        None => {}
    });
    let Some(first) = monitor.with(|coordinator| coordinator.divergences().next().cloned()) else {
        return true;
    };
    if let Some(service) = &mut running.service
        && matches!(
            first.kind,
            DivergenceKind::NoResponse { .. } | DivergenceKind::ConnectionLost
        )
        && let Ok(status) = tokio::time::timeout(EXIT_PATIENCE, service.ended()).await
    {
        // Its connections were seen to close before its end was.
        let last_lines = service.last_lines();
        monitor.with(|coordinator| {
            coordinator.explain_first(DivergenceKind::ServiceExited { status, last_lines })
        });
    }
    false
}

/// Compares responses with the recorded ones.
struct Comparison {
    ignore: Ignore,
    redacted: Redacted,
}

impl Compare for Comparison {
    fn response(
        &self,
        recorded: &trace::Request,
        outcome: Result<Seen, String>,
    ) -> Option<Divergence> {
        let kind = match outcome {
            Ok(seen) => {
                let (expected, seen) = self.redacted.comparable(recorded, seen);
                compare::difference(&expected, &seen, &self.ignore)?
            }
            Err(error) => DivergenceKind::NoResponse { error },
        };
        Some(Divergence::at(Position::request(recorded.id), kind))
    }

    fn sending(&self, recorded: &trace::Request) {
        self.redacted.sending(recorded);
    }
}

/// The service ended by itself, in the middle of the first request that it had not answered.
fn exited(
    monitor: &Monitor,
    recording: &Recording,
    service: Option<&Service>,
    status: String,
) -> Divergence {
    let in_flight = monitor.with(|coordinator| coordinator.in_flight().next());
    let position = in_flight.map_or(Position::default(), |request| {
        Position::request(recording.request(request).id)
    });
    let last_lines = service.map(Service::last_lines).unwrap_or_default();
    Divergence::at(
        position,
        DivergenceKind::ServiceExited { status, last_lines },
    )
}

/// What waits for what, for a message about a run that does not move.
pub fn waits(monitor: &Monitor, recording: &Recording) -> Vec<String> {
    let waiting = monitor.waiting();
    monitor.with(|coordinator| {
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
            let on = schedule.explain(recording.scheduled(*ask)).wait;
            let on = on.map(|wait| recording.looks().owner(wait.on()));
            describe_wait(recording, ask.tx(), on)
        });
        described.collect()
    })
}

fn stuck(shared: &Shared, patience: Duration) -> Divergence {
    let (monitor, recording) = (&shared.monitor, &shared.recording);
    let connections = shared.connections();
    let connections_needed = sender::connections_needed(recording);
    let waiting = monitor.waiting();
    let waits = waits(monitor, recording);
    monitor.with(|coordinator| {
        let schedule = coordinator.schedule();
        let culprit = waiting
            .first()
            .map(|ask| schedule.explain(recording.scheduled(*ask)).culprit)
            .map(|tx| recording.looks().owner(tx));
        let silent: Vec<Request> = coordinator.in_flight().collect();
        // Nothing waits: then it is up to requests that were sent and are silent, in the middle of
        // a transaction or not. What was not sent waits for them.
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
            () if unclaimed
                && !waiting.is_empty()
                && waiting.len() >= connections
                && connections < connections_needed =>
            {
                Some(Suspicion::PoolTooSmall {
                    connections,
                    connections_needed,
                })
            }
            () if read_committed => Some(Suspicion::ReadCommitted),
            () => None,
        };
        let kind = DivergenceKind::Stuck {
            waits,
            suspicion,
            after_s: patience.as_secs_f64(),
        };
        Divergence::at(position, kind)
    })
}

fn describe_wait(recording: &Recording, tx: Tx, on: Option<Tx>) -> String {
    let name = |tx: Tx| {
        if tx == recording.look() {
            return "what is to be seen".to_owned();
        }
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
    match on.filter(|&on| on != tx) {
        Some(on) => format!("{} waits for {}", name(tx), name(on)),
        None if on == Some(tx) => format!("{} waits for an earlier statement of its own", name(tx)),
        None => format!("{} may go on", name(tx)),
    }
}

fn verdict(
    plan: &Plan,
    shared: &Shared,
    final_state: FinalState,
    options: &ReplayOptions,
    ran: Ran,
    prepared: Duration,
) -> Verdict {
    let recording = &shared.recording;
    let (counted, divergences) = shared.monitor.with(|coordinator| {
        let divergences = coordinator.divergences().cloned().collect();
        (coordinator.counts(), divergences)
    });
    let refused = shared
        .refused
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let mut remarks = ran.remarks;
    let moved = shared.monitor.with(|coordinator| coordinator.moved_reads());
    let moved = moved.map(|(reads, statements)| Remark::MovedReads { reads, statements });
    remarks.extend(moved);
    let cut_off = shared.monitor.with(|coordinator| coordinator.cut_off());
    remarks.extend((cut_off > 0).then_some(Remark::CutOff { requests: cut_off }));
    let transactions = counted.ghosts_late;
    remarks.extend((transactions > 0).then_some(Remark::GhostsLate { transactions }));
    remarks.extend(remarks_on(
        plan,
        recording,
        &refused,
        options,
        counted.read_committed,
    ));
    if counted.divergences == 0 {
        // They made no difference.
        remarks.retain(|remark| !matches!(remark, Remark::CallDiffered { .. }));
    } else {
        let drawn = shared
            .monitor
            .with(|coordinator| coordinator.unpinned_statements());
        remarks.extend(drawn.into_iter().map(|what| Remark::NotPinned { what }));
    }
    let all = &recording.transactions;
    let of_requests = all.iter().filter(|one| one.request.is_some());
    let ghosts = all.iter().filter(|one| one.request.is_none());
    let first = recording.requests.iter().map(|request| request.arrived);
    let last = recording.requests.iter().map(|request| request.ended);
    let original = first.min().zip(last.max());
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
            transactions: of_requests.count() as u64,
            served_from_recording: counted.served,
            ghosts: ghosts.filter(|one| one.fate != Fate::Aborted).count() as u64,
            ghosts_by_service: counted.ghosts_by_service,
            read_committed: counted.read_committed,
            outside_writes_refused: refused.values().sum(),
            outside_writes_undone: shared.undone(),
        },
        timing: Timing {
            prepare_us: prepared.as_micros() as i64,
            replay_us: ran.took.as_micros() as i64,
            original_us: original.map_or(0, |(first, last)| last - first),
        },
        final_state,
        remarks,
    }
}

/// What makes the verdict less than complete.
fn remarks_on(
    plan: &Plan,
    recording: &Recording,
    refused: &BTreeMap<String, u64>,
    options: &ReplayOptions,
    read_committed: u64,
) -> Vec<Remark> {
    let mut remarks = Vec::new();
    if read_committed > 0 {
        remarks.push(Remark::ReadCommitted {
            transactions: read_committed,
        });
    }
    let transactions = recording.unattributed();
    if transactions > 0 {
        remarks.push(Remark::UnattributedTransactions { transactions });
    }
    let crossed = |gap: &Gap| Remark::CrossedGap { gap: gap.clone() };
    remarks.extend(plan.gaps.iter().map(crossed));
    remarks.extend(plan.left_out().map(|until| Remark::LeftOut { until }));
    let pauses = plan.pauses.iter();
    remarks.extend(pauses.map(|&pause| Remark::CrossedPause { pause }));
    remarks.extend(refused.iter().map(|(statement, &times)| {
        let statement = statement.clone();
        Remark::OutsideWriteRefused { statement, times }
    }));
    let not_pinned = recording.not_pinned(&options.setting.pinned).into_iter();
    remarks.extend(not_pinned.map(|what| Remark::NotPinned { what }));
    remarks
}
