//! Brings the database to where a plan begins.

use std::collections::{BTreeSet, HashMap};

use hindcast_pg::tokio::Client;
use hindcast_pg::{ConnectError, ConnectOptions};
use hindcast_rewind::pins::{self, PinError, Pinned, Reserved};
use hindcast_rewind::{Options, Point, RewindError, Rewound, rewind};
use hindcast_trace::{
    Base, BaseKind, DrawnValue, Gap, GapCause, Micros, Outcome, ReadError, RequestFilter,
    RequestId, Snapshot, Trace, TransactionFilter, Xid,
};

use crate::plan::{Plan, PlanError};

/// A plan, and the base that it starts from.
#[derive(Clone, Debug)]
pub struct Start {
    pub plan: Plan,
    pub base: Base,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("the recording has no base: no state of the database from which a replay could start")]
    NoBase,
    #[error("the recording's first base was taken after request {request} had begun")]
    BaseTooLate { request: RequestId },
}

impl Start {
    /// Chooses the base that needs the least replaying. With archived WAL the database can be
    /// brought to a quiet point just before the range; without it, everything since the base has to
    /// be replayed.
    pub fn choose(
        trace: &Trace,
        from: Option<RequestId>,
        to: Option<RequestId>,
    ) -> Result<Self, StartError> {
        if trace.bases().is_empty() {
            // A bad range is the more basic mistake.
            Plan::new(trace, from, to, None)?;
            return Err(StartError::NoBase);
        }
        let exact = Plan::new(trace, from, to, None)?;
        let before = |base: &&Base| base.taken <= exact.period.start;
        let usable = || trace.bases().iter().rev().filter(before);
        if let Some(base) = usable().find(|base| base.has_archive()) {
            return Ok(Self {
                base: base.clone(),
                plan: exact,
            });
        }
        let latest = latest_between_requests(trace, usable())?.ok_or(StartError::BaseTooLate {
            request: exact.first,
        })?;
        Ok(Self {
            plan: Plan::new(trace, from, to, Some(latest.taken))?,
            base: latest.clone(),
        })
    }

    /// The state of the database that the plan begins with.
    pub fn point(&self, trace: &Trace) -> Result<(Point, Reserved), ReadError> {
        let start: Micros = self.plan.period.start;
        let mut point = Point {
            strangers: strangers(trace),
            ..Point::default()
        };
        // A recorder that took the base itself, on its way up, keeps account from the base on;
        // others from when they started, which is before anything they recorded.
        const ON_THE_WAY_UP: Micros = 10_000_000;
        let by_recorder =
            |started: Micros| (0..ON_THE_WAY_UP).contains(&(started - self.base.taken));
        if trace
            .recorders()
            .iter()
            .any(|recorder| by_recorder(recorder.started))
        {
            point.accounted_from = Some(self.base.snapshot.xmin);
        }
        let mut reserved = Reserved::default();
        for transaction in trace.transactions(TransactionFilter {
            lean: true,
            ..Default::default()
        }) {
            let transaction = transaction?;
            let before = transaction.ended < start;
            if let Some(snapshot) = &transaction.snapshot {
                let known = point.accounted_from.get_or_insert(snapshot.xmin);
                *known = snapshot.xmin.min(*known);
            }
            if let (Some(xid), Outcome::Committed) = (transaction.xid, &transaction.outcome) {
                let side = if before {
                    &mut point.included
                } else {
                    &mut point.excluded
                };
                side.insert(xid);
                side.extend(transaction.subxids.iter().copied());
            }
            if !before {
                for seen in transaction.sequence_values {
                    reserved.add(seen, 1);
                }
                reserved.told |= !transaction.drawn.is_empty();
                for drawn in transaction.drawn {
                    if let DrawnValue::Sequence { first, count } = drawn.value {
                        reserved.add(first, count);
                    }
                }
                // Who began first need not have been first to see something. Snapshots are ordered
                // by inclusion, so the least one saw the fewest.
                let saw = |snapshot: &Snapshot| snapshot.xmax.0 - snapshot.in_progress.len() as u64;
                let least = point.first_snapshot.as_ref().map(saw);
                if let Some(snapshot) = transaction.snapshot
                    && least.is_none_or(|least| saw(&snapshot) < least)
                {
                    point.first_snapshot = Some(snapshot);
                }
            }
        }
        Ok((point, reserved))
    }
}

/// The first request that can be replayed although what came before it was pruned: the first one
/// after a base that was taken after all that.
pub fn first_after_pruning(trace: &Trace) -> Result<Option<RequestId>, ReadError> {
    let until = trace.pruned().iter().map(|pruned| pruned.until).max();
    let until = until.unwrap_or(Micros::MIN);
    let base = trace.bases().iter().find(|base| base.taken > until);
    let Some(base) = base else {
        return Ok(None);
    };
    let after = RequestFilter {
        arrived: Some(base.taken..Micros::MAX),
        lean: true,
        ..RequestFilter::default()
    };
    let first = trace.requests(after).next().transpose()?;
    Ok(first.map(|request| request.id))
}

/// Ids that the recorders could not account for.
fn strangers(trace: &Trace) -> BTreeSet<Xid> {
    let unaccounted = |gap: &Gap| match &gap.cause {
        GapCause::Unaccounted { xids, .. } => xids.clone(),
        _ => Vec::new(),
    };
    trace.gaps().iter().flat_map(unaccounted).collect()
}

/// The first of some bases, the latest first, at whose time no request was in flight. Other
/// recorders may have recorded some that its recorder did not know; only a dump is taken while a
/// database is in use.
fn latest_between_requests<'t>(
    trace: &Trace,
    bases: impl Iterator<Item = &'t Base>,
) -> Result<Option<&'t Base>, PlanError> {
    let mut dumps = Vec::new();
    let mut exact = None;
    for base in bases {
        if !matches!(base.kind, BaseKind::Dump { .. }) {
            exact = Some(base);
            break;
        }
        dumps.push(base);
    }
    dumps.reverse();
    if let Some(last) = dumps.last() {
        let earlier = RequestFilter {
            arrived: Some(Micros::MIN..last.taken),
            lean: true,
            ..RequestFilter::default()
        };
        for request in trace.requests(earlier) {
            let request = request?;
            let before = |moment: Micros| dumps.partition_point(|base| base.taken <= moment);
            dumps.drain(before(request.arrived)..before(request.ended.max(request.arrived)));
        }
    }
    Ok(dumps.pop().or(exact))
}

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("the recording cannot be read")]
    Read(#[from] ReadError),
    #[error(transparent)]
    Rewind(#[from] RewindError),
    #[error(transparent)]
    Pin(#[from] PinError),
    #[error("cannot connect to the rewound database")]
    Connect(#[from] ConnectError),
}

/// Rewinds, checks and pins.
pub async fn restore(
    trace: &Trace,
    start: &Start,
    options: &Options,
) -> Result<(Rewound, Pinned), RestoreError> {
    let nothing = async |_: &Client| Ok::<_, RestoreError>(());
    let (rewound, pinned, (), client) = restore_with(trace, start, options, nothing).await?;
    // No other session may be connected when the service starts.
    client.close().await;
    Ok((rewound, pinned))
}

/// Rewinds, checks, takes a step of the caller's in the database, and pins. The session that did so
/// is to be closed before the service starts.
pub async fn restore_with<T, E: From<RestoreError>>(
    trace: &Trace,
    start: &Start,
    options: &Options,
    step: impl AsyncFnOnce(&Client) -> Result<T, E>,
) -> Result<(Rewound, Pinned, T, Client), E> {
    // An earlier run's database called things by names of its own.
    trace.rename(HashMap::new());
    let (point, mut reserved) = start.point(trace).map_err(RestoreError::Read)?;
    let rewound = rewind(&start.base, &point, options)
        .await
        .map_err(RestoreError::Rewind)?;
    trace.rename(rewound.oids().clone());
    for one in trace
        .final_states()
        .iter()
        .flat_map(|state| &state.sequences)
    {
        reserved.name(one.sequence.clone(), one.oid);
    }
    reserved.rename(rewound.oids());
    let client = Client::connect(rewound.url(), &ConnectOptions::default())
        .await
        .map_err(RestoreError::Connect)?;
    let done = step(&client).await?;
    let pinned = pins::prepare(&client, reserved)
        .await
        .map_err(RestoreError::Pin)?;
    Ok((rewound, pinned, done, client))
}
