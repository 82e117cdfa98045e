//! A run of the service against a rewound database: starts everything, sends the requests, watches that it moves, and clears away.
//!
//! Faithful replay and retroaction differ in what the coordinator says and in who judges the responses; this serves both.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hindcast_gateway::ListenAddress;
use hindcast_gateway::http::ServiceUrl;
use hindcast_gateway::pg::{Connector, DatabaseUrl, Server, ServerOptions};
use hindcast_order::Tx;
use hindcast_trace::{Isolation, ReadError, RequestId, Trace};
use hindcast_wire::sql::ScriptCache;
use tokio::task::JoinSet;

use crate::blockers;
use crate::coordinator::Coordinator;
use crate::desk::{Floor, HoldingHost};
use crate::gate::Gate;
use crate::ghosts;
use crate::hold::{Code, HoldOptions};
use crate::plan::Plan;
use crate::recording::Recording;
use crate::run::ReplayError;
use crate::sender::{Judge, Sender, Sent};
use crate::service::Service;
use crate::shapes::Shapes;
use crate::verdict::Remark;

/// Where the service and its database are.
#[derive(Clone)]
pub struct Setting {
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
    pub allow_outside_writes: bool,
    /// What transactions get that do not ask for an isolation; `None`: what the recorder gave them.
    pub isolation: Option<Isolation>,
    pub stall_timeout: Duration,
    pub debug_wait: Option<RequestId>,
}

/// Who watches a run.
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

/// Why a run came to its end.
#[derive(Debug)]
pub enum End {
    Done,
    /// Nothing moved for so long.
    Stuck {
        after: Duration,
    },
    /// The service ended by itself.
    Exited {
        status: String,
    },
    Read(ReadError),
}

/// How long everybody may be held before order is given up, where it can be.
const QUIET: Duration = Duration::from_millis(40);
/// How long, if the service may be at work.
const QUIET_AT_WORK: Duration = Duration::from_secs(2);

/// The holding gateway, which is not to outlive a run that is dropped in the middle.
struct Leash(Option<Server<HoldingHost>>);

impl Drop for Leash {
    fn drop(&mut self) {
        if let Some(server) = &self.0 {
            server.cut_off();
        }
    }
}

/// A run, from when the service is up until it is cleared away.
///
/// It may be dropped at any time: the service, if it was started here, the sessions, the ghosts and the requests in flight end with it.
pub struct Performance {
    pub gate: Gate,
    pub floor: Arc<Floor>,
    pub connector: Arc<Connector>,
    pub service: Option<Service>,
    pub prepared: Duration,
    trace: Arc<Trace>,
    plan: Arc<Plan>,
    setting: Setting,
    hold: HoldOptions,
    ghosts: Vec<Vec<Tx>>,
    /// Ghosts, and whoever watches. A set ends its tasks when it is dropped.
    aside: JoinSet<()>,
    leash: Leash,
}

/// What there is to say about a run besides what the coordinator and the judge know.
#[derive(Debug, Default)]
pub struct Ran {
    pub not_compared: u64,
    pub remarks: Vec<Remark>,
    pub took: Duration,
}

impl Performance {
    /// Starts everything up to the service.
    #[allow(clippy::too_many_arguments)]
    pub async fn start(
        trace: Arc<Trace>,
        plan: Arc<Plan>,
        recording: Arc<Recording>,
        mut coordinator: Coordinator,
        shapes: &Shapes,
        code: Code,
        setting: Setting,
        hooks: &mut impl Hooks,
    ) -> Result<Self, ReplayError> {
        let started = Instant::now();
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
            shapes.reading.clone(),
            code,
        ));
        let first = trace.recorders().first().ok_or(ReplayError::NoRecorder)?;
        let hold = HoldOptions {
            trace_id_prefixes: trace
                .recorders()
                .iter()
                .map(|recorder| recorder.trace_id_prefix)
                .collect(),
            scripts: Arc::new(ScriptCache::default()),
            pinned: setting.unpinned.is_some(),
            code,
        };
        let connector = Arc::new(Connector::new(setting.database.clone())?);
        let host = Arc::new(HoldingHost {
            floor: Arc::clone(&floor),
            options: hold.clone(),
            database: setting.database.database(),
            allow_outside_writes: setting.allow_outside_writes,
            isolation: setting.isolation.or(first.raised_isolation),
        });
        let server_options = ServerOptions {
            listen: setting.pg_listen.clone(),
            identity: None,
            runtimes: Vec::new(),
        };
        let server = Server::bind(server_options, Arc::clone(&connector), host).await?;
        let address = server.handle().address().clone();
        let leash = Leash(Some(server));
        hooks.ready(&address).await;
        let service = match &setting.service_command {
            Some(command) => {
                Some(Service::start(command, &setting.service_url, &setting.service_log).await?)
            }
            None => None,
        };
        Ok(Self {
            gate,
            floor,
            connector,
            service,
            prepared: started.elapsed(),
            trace,
            plan,
            setting,
            hold,
            ghosts: ghosts.into_values().collect(),
            aside: JoinSet::new(),
            leash,
        })
    }

    /// Sends all requests and runs all ghosts, until that is done or cannot be.
    pub async fn run(
        &mut self,
        judge: Arc<dyn Judge>,
        hooks: &mut impl Hooks,
    ) -> Result<(End, Ran), ReplayError> {
        let started = Instant::now();
        let (gate, recording) = (self.gate.clone(), Arc::clone(&self.floor.recording));
        let process_group = self.service.as_ref().and_then(Service::process_group);
        self.aside.spawn(ghosts::run_all(
            Arc::clone(&self.floor),
            Arc::clone(&self.connector),
            self.hold.clone(),
            std::mem::take(&mut self.ghosts),
        ));
        let changed = self.hold.code != Code::Recorded;
        if changed {
            let control = self.connector.control("hindcast blockers").await?;
            self.aside
                .spawn(blockers::watch(Arc::clone(&self.floor), control));
        }
        let sender = Sender {
            floor: Arc::clone(&self.floor),
            plan: Arc::clone(&self.plan),
            service: self.setting.service_url.clone(),
            judge,
            prefixes: self
                .trace
                .recorders()
                .iter()
                .map(|recorder| (recorder.number, recorder.trace_id_prefix))
                .collect(),
            debug_wait: self.setting.debug_wait,
        };
        let longest = longest_request(&recording);
        let patience = self.setting.stall_timeout.max(longest * 2);
        let paused = std::cell::Cell::new(false);
        let hooks = tokio::sync::Mutex::new(hooks);
        let mut ran = Ran::default();
        let (not_compared, remarks) = (&mut ran.not_compared, &mut ran.remarks);
        let (setting, service) = (&self.setting, &mut self.service);
        let end = {
            let trace = Arc::clone(&self.trace);
            let sending = async {
                let told = |sent: Sent| {
                    *not_compared = sent.not_compared;
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
                let sent = sender.run(trace, remarks, told, wait);
                if let Err(error) = sent.await {
                    return End::Read(error);
                }
                until(&gate, |coordinator| coordinator.is_finished()).await;
                End::Done
            };
            // Somebody sits in a debugger, and takes the time that it takes.
            let debugging = || {
                let debugged = setting.debug_wait.and_then(|id| recording.find(id));
                let in_flight = debugged.is_some_and(|request| {
                    gate.with(|c| !c.is_over() && c.in_flight().any(|one| one == request))
                });
                paused.get() || in_flight
            };
            // Requests in flight may be held for ever when it is over. Those of somebody who sits in a debugger are left alone.
            let over = until(&gate, |coordinator| coordinator.is_over() && !paused.get());
            let exiting = async {
                match service {
                    Some(service) => End::Exited {
                        status: service.ended().await,
                    },
                    None => std::future::pending().await,
                }
            };
            let nudging = async {
                match changed {
                    true => nudge(&self.floor, longest).await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                end = sending => end,
                end = exiting => end,
                () = over => End::Done,
                () = stall(&gate, patience, debugging) => End::Stuck { after: patience },
                () = nudging => unreachable!("it goes on for ever"),
            }
        };
        ran.took = started.elapsed();
        match end {
            End::Read(error) => Err(error.into()),
            end => Ok((end, ran)),
        }
    }

    /// Lets everything go that could still wait, and ends it: the service first, so that it does not see its sessions fall over.
    pub async fn shut_down(mut self) {
        if let Some(service) = self.service.take() {
            service.stop().await;
        }
        self.gate.open();
        self.aside.shutdown().await;
        if let Some(server) = self.leash.0.take() {
            server.shut_down(Duration::from_millis(500)).await;
        }
    }
}

/// Keeps a run of changed code moving: where everybody waits, somebody gives way or goes on out of order.
async fn nudge(floor: &Floor, longest: Duration) {
    let gate = &floor.gate;
    // Whoever gave way may only have tried again. So what did not help once is not done a second time.
    let mut gave_way_at = None;
    loop {
        stall(gate, QUIET, || false).await;
        let (waiting, blocked) = (gate.waiting(), floor.blocked());
        let at_work = gate.with(|coordinator| {
            let recording = coordinator.recording();
            let held = |request| {
                let waits =
                    |tx| recording.transaction(tx).request.map(|(own, _)| own) == Some(request);
                let is_own = |&claim| coordinator.request_of(claim) == Some(request);
                waiting.iter().any(|ask| waits(ask.tx())) || blocked.iter().any(is_own)
            };
            coordinator.in_flight().any(|request| !held(request))
        });
        if at_work {
            // It may be computing, or talking to somebody else.
            let more = QUIET_AT_WORK.max(longest * 2) - QUIET;
            let before = gate.with(|coordinator| coordinator.steps());
            let _ = tokio::time::timeout(more, until(gate, |c| c.steps() != before)).await;
            if gate.with(|coordinator| coordinator.steps()) != before {
                continue;
            }
        }
        let steps = gate.with(|coordinator| coordinator.steps());
        if gave_way_at == Some(steps) || !floor.make_all_yield() {
            gate.with(|coordinator| coordinator.let_go(&waiting));
        }
        gave_way_at = Some(steps);
    }
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
pub(crate) async fn until(gate: &Gate, fact: impl Fn(&Coordinator) -> bool) {
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
