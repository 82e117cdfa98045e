//! Replays up to what a transaction saw, and leaves the database so.
//!
//! ```text
//!   committed before its snapshot ──▶ replayed, committed
//!   committed after it            ──▶ held before their commit, and rolled back
//!   its own statements            ──▶ replayed up to the one asked for, and committed
//! ```
//!
//! The schedule is given one more snapshot, equal to the transaction's, which is never taken. So
//! what it sees commits (rule A waits for that), and what it does not see cannot (rule B). When all
//! that it sees has committed, the database holds just that, for any session of any client.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use hindcast_order::{Schedule, Tx};
use hindcast_pg::tokio::{Client, Connector};
use hindcast_pg::{ConnectError, ConnectOptions};
use hindcast_trace::{
    Micros, Outcome, ReadError, Request, RequestFilter, RequestId, ShapeId, Snapshot, Trace,
    Transaction, TransactionId,
};
use hindcast_wire::digest::ShapeHasher;
use hindcast_wire::sql::{Dialect, Script, Statement};

use crate::compare::{Compare, Seen};
use crate::coordinator::{Coordinator, Look};
use crate::faithful;
use crate::hold::Code;
use crate::plan::Plan;
use crate::reading::only_reads;
use crate::recording::{LoadError, Recording, Scope};
use crate::run::{End, Hooks, ReplayError, Run, Setting};
use crate::service::Service;
use crate::shapes::Shapes;
use crate::shared::Shared;
use crate::transaction::{Stop, Stopped};
use crate::verdict::Divergence;

/// Which moment of a transaction is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// When it took its snapshot: nothing of its own is seen.
    Snapshot,
    /// Just before this statement, counted from 1.
    Statement(u32),
    /// After its last statement, just before its commit.
    End,
}

/// What a transaction saw at a moment, as far as the recording tells.
#[derive(Clone, Debug)]
pub struct View {
    pub transaction: TransactionId,
    request: Option<RequestId>,
    began: Micros,
    ended: Micros,
    snapshot: Snapshot,
    /// Where it is to be stopped, if it may have written something by then, and the shape of its
    /// statements up to there.
    own: Option<(u32, ShapeId)>,
}

/// Why it cannot be told what a transaction saw.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    #[error("transaction t{0} took no snapshot that is known")]
    NoSnapshot(TransactionId),
    #[error("the statements of transaction t{0} are not in the recording")]
    NoStatements(TransactionId),
    #[error("transaction t{transaction} has {count} statements, and no statement {asked}")]
    NoSuchStatement {
        transaction: TransactionId,
        asked: u32,
        count: usize,
    },
    /// A replay answers it from the recording.
    #[error("transaction t{0} aborted, so a replay does not make its writes again")]
    Aborted(TransactionId),
}

impl View {
    pub fn of(trace: &Trace, transaction: &Transaction, moment: Moment) -> Result<Self, ViewError> {
        let id = transaction.id;
        let mut snapshot = seen_at(transaction, moment)
            .cloned()
            .ok_or(ViewError::NoSnapshot(id))?;
        // Its own id counts as not seen, as for the transaction itself.
        if let Some(own) = transaction.xid
            && let Err(at) = snapshot.in_progress.binary_search(&own)
        {
            snapshot.in_progress.insert(at, own);
        }
        Ok(Self {
            transaction: id,
            request: transaction.request.map(|(request, _)| request),
            began: transaction.began,
            ended: transaction.ended,
            snapshot,
            own: own_writes(trace, transaction, moment)?,
        })
    }

    /// From which request to which one a replay has to reach, so that it covers the transaction.
    pub fn range(&self, trace: &Trace) -> Result<Option<RangeInclusive<RequestId>>, ReadError> {
        let requests = trace.requests(RequestFilter {
            lean: true,
            ..Default::default()
        });
        let mut spans = requests
            .map(|request| request.map(|one| (one.arrived, one.ended, one.id)))
            .collect::<Result<Vec<_>, _>>()?;
        spans.sort_unstable();
        let of_own = self
            .request
            .and_then(|own| spans.iter().position(|&(.., id)| id == own));
        let before = spans.partition_point(|&(arrived, ..)| arrived <= self.began);
        let first = of_own.unwrap_or(before.saturating_sub(1));
        let Some(from) = spans.get(first) else {
            return Ok(None);
        };
        let mut later = spans[first..].iter();
        let to = later.find(|&&(_, ended, _)| ended >= self.ended);
        let to = to.or(spans.last()).expect("there is a first");
        Ok(Some(from.2..=to.2))
    }

    /// Leaves only those gaps in a plan that concern what the transaction saw. False if the
    /// transaction is not in the plan.
    pub fn narrow(&self, plan: &mut Plan) -> bool {
        plan.gaps.retain(|gap| gap.from <= self.ended);
        plan.period.contains(&self.began)
    }
}

/// The snapshot that counts at a moment of a transaction. Under READ COMMITTED it is that of the
/// first statement where the others' are not known.
pub fn seen_at(transaction: &Transaction, moment: Moment) -> Option<&Snapshot> {
    let at = match moment {
        Moment::Snapshot => 0,
        Moment::Statement(number) => number.saturating_sub(1),
        Moment::End => u32::MAX,
    };
    let own = transaction.statement_snapshots.iter();
    let own = own.rev().find(|one| one.statement <= at);
    let own = own.map(|one| &one.snapshot);
    own.or(transaction.snapshot.as_ref())
}

/// Where a transaction has to be stopped so that its own writes are seen up to `moment`; `None` if
/// it has none by then.
fn own_writes(
    trace: &Trace,
    transaction: &Transaction,
    moment: Moment,
) -> Result<Option<(u32, ShapeId)>, ViewError> {
    let id = transaction.id;
    if moment == Moment::Snapshot {
        return Ok(None);
    }
    let shape = trace.shape(transaction.shape);
    let shape = shape.ok_or(ViewError::NoStatements(id))?;
    // A fingerprint is a statement again, and its own fingerprint.
    let texts = shape.statements.iter().map(|text| text.as_bytes());
    let scripts: Vec<Script> = texts
        .map(|text| Script::of(text, Dialect::default()))
        .collect();
    let statements: Vec<&Statement> = scripts.iter().flat_map(|one| &*one.statements).collect();
    let ends = |one: &&Statement| one.kind.controls_transaction();
    let count = statements.len();
    let at = match moment {
        Moment::Statement(asked) if asked == 0 || asked as usize > count => {
            return Err(ViewError::NoSuchStatement {
                transaction: id,
                asked,
                count,
            });
        }
        Moment::Statement(asked) => asked as usize - 1,
        Moment::End | Moment::Snapshot => count - usize::from(statements.last().is_some_and(ends)),
    };
    let may_write = |one: &&Statement| one.kind.may_write() && !only_reads(one);
    let so_far = &statements[..at];
    if transaction.outcome == Outcome::Aborted && so_far.iter().any(may_write) {
        return Err(ViewError::Aborted(id));
    }
    // Before its snapshot it has written nothing.
    if transaction.xid.is_none() || !so_far.iter().any(|one| one.takes_snapshot) {
        return Ok(None);
    }
    let mut shape = ShapeHasher::new();
    for statement in so_far {
        shape.add(&statement.fingerprint);
    }
    Ok(Some((at as u32, ShapeId(shape.value()))))
}

/// Why the database cannot be shown as the transaction saw it.
#[derive(Debug, thiserror::Error)]
pub enum SeeError {
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("transaction t{0} is not in the part of the recording that is replayed")]
    NotCovered(TransactionId),
    #[error("what was replayed before it is not what was recorded")]
    Diverged(Box<Divergence>),
    #[error("the replay stood still for {} s before that: {}", .after.as_secs_f64(), .waits.join("; "))]
    Stuck { after: Duration, waits: Vec<String> },
    #[error("the service ended before that ({status})")]
    Exited {
        status: String,
        last_lines: Vec<String>,
    },
    #[error("the replay is over and did not come there")]
    NotReached,
    #[error("what it had written by then cannot be committed: {}", .error.as_deref().unwrap_or("a statement before had failed"))]
    OwnWrites { error: Option<String> },
    #[error("its client sent this statement in one text with the one before it")]
    InOneText,
    #[error("its statements up to there are not those that were recorded")]
    OtherStatements,
    #[error("the rewound database cannot be asked about its sessions")]
    Control(#[from] ConnectError),
    #[error("the rewound database cannot be asked about its sessions")]
    Ask(#[source] hindcast_pg::Error),
    #[error("a session of the replay does not end")]
    Remaining,
}

/// How to replay.
pub struct SeeOptions {
    pub setting: Setting,
    /// Go on although what is seen may not be what was recorded.
    pub keep_going: bool,
}

/// Brings the rewound database to what was seen. Returns where the replay went otherwise than
/// recorded on the way, which is nothing unless that was asked for.
///
/// The future may be dropped at any time, as that of [`crate::run()`] may.
pub async fn see(
    trace: Arc<Trace>,
    plan: Plan,
    view: &View,
    options: SeeOptions,
    hooks: &mut impl Hooks,
) -> Result<Vec<Divergence>, SeeError> {
    let plan = Arc::new(plan);
    let shapes = Arc::new(Shapes::of(&trace));
    let (recording, schedule) = load(&trace, &plan, &shapes, view).await?;
    let tx = find(&recording, view.transaction).ok_or(SeeError::NotCovered(view.transaction))?;
    let stop = view.own.map(|(statement, _)| Stop { tx, statement });
    let keep_going = options.keep_going;
    let mut coordinator = Coordinator::new(recording, plan, schedule, shapes, false, keep_going);
    coordinator.look(Look::new(stop));
    if coordinator.is_seen() {
        // The rewound database is it.
        return Ok(Vec::new());
    }
    let setting = options.setting;
    let mut running = Run::start(trace, coordinator, Code::Recorded, setting, hooks).await?;
    let (end, _) = running.run(Arc::new(NothingCompared), hooks).await?;
    let (shared, connector) = (Arc::clone(&running.shared), Arc::clone(&running.connector));
    let reached = reached(&shared, end, running.service.as_ref(), view);
    // Nothing is let go: what is held must not commit.
    drop(running);
    let divergences = reached?;
    settle(&connector).await?;
    Ok(divergences)
}

async fn load(
    trace: &Arc<Trace>,
    plan: &Arc<Plan>,
    shapes: &Arc<Shapes>,
    view: &View,
) -> Result<(Arc<Recording>, Schedule), ReplayError> {
    let (trace, plan, shapes) = (Arc::clone(trace), Arc::clone(plan), Arc::clone(shapes));
    let look = Some(view.snapshot.clone());
    let loading = tokio::task::spawn_blocking(move || {
        let scope = Scope { look, ..Scope::ALL };
        let (recording, levels, locks) = Recording::load(&trace, &plan, &shapes, &scope)?;
        Ok::<_, LoadError>((Arc::new(recording), Schedule::new(levels, locks)))
    });
    Ok(loading.await.expect("loading does not panic")?)
}

fn find(recording: &Recording, id: TransactionId) -> Option<Tx> {
    let at = recording.transactions.iter().position(|one| one.id == id);
    at.map(|at| Tx(at as u32))
}

/// Whether the database holds what was to be seen, now that the run has ended.
fn reached(
    shared: &Shared,
    end: End,
    service: Option<&Service>,
    view: &View,
) -> Result<Vec<Divergence>, SeeError> {
    let monitor = &shared.monitor;
    let (seen, stopped, divergences) = monitor.with(|coordinator| {
        let divergences: Vec<_> = coordinator.divergences().cloned().collect();
        let stopped = coordinator.how_stopped().cloned();
        (coordinator.is_seen(), stopped, divergences)
    });
    if !seen {
        return Err(match (divergences.into_iter().next(), end) {
            (Some(first), _) => SeeError::Diverged(Box::new(first)),
            (None, End::Stuck { after }) => SeeError::Stuck {
                after,
                waits: faithful::waits(monitor, &shared.recording),
            },
            (None, End::Exited { status }) => SeeError::Exited {
                status,
                last_lines: service.map(Service::last_lines).unwrap_or_default(),
            },
            (None, End::Done) => SeeError::NotReached,
        });
    }
    let expected = view.own.map(|(_, shape)| shape);
    match stopped {
        None => Ok(divergences),
        Some(Stopped::Committed { shape }) if Some(shape) == expected => Ok(divergences),
        Some(Stopped::Committed { .. }) => Err(SeeError::OtherStatements),
        Some(Stopped::Failed { error }) => Err(SeeError::OwnWrites { error }),
        Some(Stopped::InOneText) => Err(SeeError::InOneText),
    }
}

/// What transactions do decides what is in the database; responses do not.
struct NothingCompared;

impl Compare for NothingCompared {
    fn response(&self, _: &Request, _: Result<Seen, String>) -> Option<Divergence> {
        None
    }

    fn sending(&self, _: &Request) {}
}

/// How long sessions that were cut off may take to end.
const SETTLING: Duration = Duration::from_secs(10);

/// Ends what sessions of the replay are left, which were in the middle of something, and waits
/// until the server is done with them.
async fn settle(connector: &Connector) -> Result<(), SeeError> {
    let control = connector
        .client(&ConnectOptions::named("hindcast see"))
        .await?;
    let ended = async {
        while others(&control).await.map_err(SeeError::Ask)? > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    let ended = tokio::time::timeout(SETTLING, ended).await;
    control.close().await;
    ended.unwrap_or(Err(SeeError::Remaining))
}

/// How many other sessions there are. Those that we may end are told to.
async fn others(control: &Client) -> Result<i64, hindcast_pg::Error> {
    let row = control
        .query_one(
            "SELECT count(*), count(CASE WHEN pg_catalog.pg_has_role(usesysid, 'MEMBER') \
                                         THEN pg_catalog.pg_terminate_backend(pid) END) \
               FROM pg_catalog.pg_stat_activity \
              WHERE datname = pg_catalog.current_database() AND pid <> pg_catalog.pg_backend_pid() \
                AND backend_type = 'client backend'",
            &[],
        )
        .await?;
    Ok(row.get(0))
}
