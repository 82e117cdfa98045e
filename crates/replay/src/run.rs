//! A run of the service against a rewound database: starts everything, sends the requests, watches
//! that it moves, and clears away.
//!
//! Faithful replay and retroaction differ in what the coordinator says and in how responses are
//! compared; this serves both.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hindcast_gateway::pg::{Server, ServerOptions};
use hindcast_gateway::{BindError, Gates, ListenAddress};
use hindcast_order::{Request, Tx, admission};
use hindcast_pg::tokio::Connector;
use hindcast_pg::{ConnectError, ConnectOptions, DatabaseUrl, ServerIdentity, TlsError};
use hindcast_rewind::pins::Pinned;
use hindcast_state::StateError;
use hindcast_taplog::pins::Number;
use hindcast_trace::{Isolation, ReadError, Recorder, RequestId, SessionId, Trace};
use hindcast_wire::sql::ScriptCache;
use tokio::task::JoinSet;

use crate::blockers;
use crate::compare::Compare;
use crate::coordinator::{Background, Coordinator};
use crate::ghosts::{self, Runner};
use crate::hold::{Code, HoldOptions};
use crate::host::HoldingHost;
use crate::inside::{Inside, Launch};
use crate::learned::{Clock, Draws, Learned};
use crate::monitor::Monitor;
use crate::others::Others;
use crate::place::Place;
use crate::plan::Plan;
use crate::ready::Ready;
use crate::recording::{LoadError, Recording};
use crate::rest::{self, until_at_rest};
use crate::sender::{self, Pace, Sender, Sent};
use crate::service::{START_PATIENCE, Service, ServiceError};
use crate::shared::Shared;
use crate::transaction::{Ask, Claim, Stop};
use crate::verdict::Remark;

/// Where the service and its database are.
#[derive(Clone)]
pub struct Setting {
    /// Command that starts the service; `None` if [`Hooks::ready`] does, or as it was recorded from
    /// inside.
    pub service_command: Option<String>,
    /// How the service was started that was recorded from inside.
    pub launch: Option<Launch>,
    pub service: Place,
    pub service_log: PathBuf,
    /// Where the service finds its database. [`Hooks::ready`] is told the port if it is 0 here.
    pub pg_listen: ListenAddress,
    /// The rewound database.
    pub database: DatabaseUrl,
    /// What is pinned there.
    pub pinned: Pinned,
    pub allow_outside_writes: bool,
    /// What transactions get that do not ask for an isolation; `None`: what the recorder gave
    /// them.
    pub isolation: Option<Isolation>,
    pub stall_timeout: Duration,
    /// What the service does when it serves; `None`: it accepts connections.
    pub ready: Option<Ready>,
    pub pace: Pace,
    pub debug_wait: Option<RequestId>,
}

impl Setting {
    /// Runs on this rewound database.
    pub fn use_database(&mut self, database: DatabaseUrl, pinned: &Pinned) {
        self.database = database;
        self.pinned.clone_from(pinned);
    }

    fn hold_options(&self, recorders: &[Recorder], code: Code, stop: Option<Stop>) -> HoldOptions {
        let prefixes = recorders.iter().map(|recorder| recorder.trace_id_prefix);
        HoldOptions {
            trace_id_prefixes: prefixes.collect(),
            scripts: Arc::new(ScriptCache::default()),
            pinned: self.pinned.active,
            imposes: self.pinned.imposes,
            code,
            stop,
        }
    }
}

/// Watches a run.
pub trait Hooks {
    /// The service's database is there, under this address. Without a command that starts the
    /// service, return when it serves.
    fn ready(&mut self, _database: &ListenAddress) -> impl Future<Output = ()> {
        std::future::ready(())
    }
    fn progress(&mut self, sent: Sent);
    /// What was done so far counts for nothing, and the database is rewound again.
    fn begins_again(&mut self) {}
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
    Control(#[from] ConnectError),
    #[error("the final state cannot be compared")]
    State(#[from] StateError),
    #[error("what the service needs to be replayed from inside cannot be made")]
    Inside(#[source] std::io::Error),
    #[error("the recording has no recorder")]
    NoRecorder,
}

/// How long all sessions may be held before order is given up, where it can be.
const QUIET: Duration = Duration::from_millis(40);
/// How long, if a request that waits does several things at a time, of which one has not come, or
/// a request was answered and something that it has handed over has not come.
const QUIET_BESIDE: Duration = Duration::from_millis(500);
/// How long, if the service may be at work.
const QUIET_AT_WORK: Duration = Duration::from_secs(2);

/// How many connections a pool is given at most; a server allows a hundred by default.
const CONNECTIONS_MAX: usize = 48;

/// The holding gateway, which must not outlive a run that is dropped in the middle.
struct HoldingGateway(Option<Server<HoldingHost>>);

impl Drop for HoldingGateway {
    fn drop(&mut self) {
        if let Some(server) = &self.0 {
            server.cut_off();
        }
    }
}

/// A run, from when the service is up until it is cleared away.
///
/// It may be dropped at any time: the service, if it was started here, the sessions, the ghosts and
/// the requests in flight end with it.
pub struct Run {
    pub shared: Arc<Shared>,
    pub connector: Arc<Connector>,
    pub service: Option<Service>,
    /// What it needs if it is replayed from inside.
    inside: Option<Inside>,
    trace: Arc<Trace>,
    plan: Arc<Plan>,
    setting: Setting,
    hold: HoldOptions,
    /// Ghosts, and what watches. A set ends its tasks when it is dropped.
    aside: JoinSet<()>,
    gateway: HoldingGateway,
}

/// What there is to say about a run besides what the coordinator and the comparison know.
#[derive(Debug, Default)]
pub struct Ran {
    pub not_compared: u64,
    pub remarks: Vec<Remark>,
    /// What was learned: values of this run, each with the recorded one.
    pub ids: Vec<(String, String)>,
    pub took: Duration,
}

/// Listens where the service looks for its database.
async fn serve(
    setting: &Setting,
    mut host: HoldingHost,
    connector: &Arc<Connector>,
    (trace, plan): (&Arc<Trace>, &Plan),
) -> Result<(Server<HoldingHost>, Option<Inside>), ReplayError> {
    let connector = Arc::clone(connector);
    let mut options = ServerOptions {
        identity: None,
        runtimes: Vec::new(),
    };
    let Some(mut launch) = setting.launch.clone() else {
        let server = Server::bind(&setting.pg_listen, options, connector, Arc::new(host)).await?;
        return Ok((server, None));
    };
    if let Some(command) = &setting.service_command {
        launch.command.clone_from(command);
    }
    let others = Others::open(trace, plan, launch.outbound).await;
    let others = others.map_err(ReplayError::Inside)?;
    let gates = Gates::open().await?;
    let begins = plan.period.start;
    let opened = Inside::open(launch, gates, others, &host.shared.monitor, begins);
    let (inside, gates) = opened.map_err(ReplayError::Inside)?;
    host.turns = Some(Arc::clone(&inside.turns));
    // The service may insist on encryption, if it could have it. Where it could not it would now
    // take it if it likes, and write what the tap cannot read.
    let had_none = |recorder: &Recorder| recorder.postgres_tls == Some(false);
    if !trace.recorders().iter().all(had_none) {
        options.identity = Some(ServerIdentity::generated());
    }
    let server = Server::serve(gates, options, connector, Arc::new(host));
    Ok((server, Some(inside)))
}

/// `None` if that is somebody else's. Where it listens is known afterwards.
async fn start_service(
    setting: &mut Setting,
    inside: Option<&Inside>,
) -> Result<Option<Service>, ServiceError> {
    let log = &setting.service_log;
    let mut service = match (inside, &setting.service_command) {
        (Some(inside), _) => {
            let (service, place) = Service::start_inside(inside, log).await?;
            setting.service = place;
            service
        }
        (None, Some(command)) => Service::start(command, &setting.service, log).await?,
        (None, None) => return Ok(None),
    };
    if let Some(ready) = &setting.ready {
        service.until_ready(ready, &setting.service).await?;
    }
    if let Some(group) = service.process_group() {
        until_at_rest(group).await;
    }
    Ok(Some(service))
}

impl Run {
    /// Starts everything up to the service.
    pub async fn start(
        trace: Arc<Trace>,
        mut coordinator: Coordinator,
        code: Code,
        mut setting: Setting,
        hooks: &mut impl Hooks,
    ) -> Result<Self, ReplayError> {
        let recording = Arc::clone(coordinator.recording());
        let ghosts = ghosts::by_session(&recording);
        coordinator.leave_out(ghosts::left_out(&recording, &ghosts));
        let recorders = trace.recorders();
        let draws = draws(recorders, &recording);
        coordinator.draws(draws);
        let (plan, shapes) = (Arc::clone(coordinator.plan()), coordinator.shapes());
        let stop = coordinator.stop_at();
        let reading = shapes.reading.clone();
        let monitor = Monitor::new(coordinator);
        let clock = match setting.launch {
            Some(_) => Clock::Moved,
            None => Clock::Real,
        };
        let began = recording.requests.iter().map(|request| request.arrived);
        let learned = Learned::new(began.min().unwrap_or_default(), clock, draws);
        let shared = Arc::new(Shared::new(monitor, recording, reading, code, learned));
        let of_first = |it: &&Recorder| it.number == plan.first.recorder();
        let first = recorders.iter().find(of_first).or(recorders.first());
        let first = first.ok_or(ReplayError::NoRecorder)?;
        let hold = setting.hold_options(recorders, code, stop);
        let connector = Arc::new(Connector::new(setting.database.clone())?);
        let host = HoldingHost {
            shared: Arc::clone(&shared),
            options: hold.clone(),
            database: setting.database.database(),
            allow_outside_writes: setting.allow_outside_writes,
            isolation: setting.isolation.or(first.raised_isolation),
            turns: None,
        };
        let (server, mut inside) = serve(&setting, host, &connector, (&trace, &plan)).await?;
        let address = server.handle().address().clone();
        let gateway = HoldingGateway(Some(server));
        hooks.ready(&address).await;
        if let Some(inside) = &mut inside {
            let pins = inside.pins(&trace, &shared.recording);
            pins.begin(plan.period.start, plan.first);
            inside.connections = connections(&shared.recording);
        }
        let runner = Runner {
            shared: Arc::clone(&shared),
            connector: Arc::clone(&connector),
            options: hold.clone(),
            database: first.database.clone(),
        };
        let started = start_all(&runner, &mut setting, inside.as_ref(), ghosts);
        let (aside, service) = started.await?;
        Ok(Self {
            shared,
            connector,
            service,
            inside,
            trace,
            plan,
            setting,
            hold,
            aside,
            gateway,
        })
    }

    /// Sends all requests and runs all ghosts, until that is done or cannot be.
    pub async fn run(
        &mut self,
        compare: Arc<dyn Compare>,
        hooks: &mut impl Hooks,
    ) -> Result<(End, Ran), ReplayError> {
        let started = Instant::now();
        self.start_aside().await?;
        let sender = self.sender(compare);
        let in_order = sender.begins_in_order;
        let (shared, setting) = (Arc::clone(&self.shared), &self.setting);
        let monitor = &shared.monitor;
        let longest = longest_request(&shared.recording);
        let mut patience = setting.stall_timeout.max(longest * 2);
        if setting.pace == Pace::Recorded {
            patience += longest_pause(&shared.recording);
        }
        let process_group = self.service.as_ref().and_then(Service::process_group);
        let changed = self.hold.code != Code::Recorded;
        let paused = Cell::new(false);
        let hooks = tokio::sync::Mutex::new(hooks);
        let mut ran = Ran::default();
        let (not_compared, remarks) = (&mut ran.not_compared, &mut ran.remarks);
        let trace = Arc::clone(&self.trace);
        let sending = async {
            let told = |sent: Sent| {
                *not_compared = sent.not_compared;
                // While a debugger is waited for, nothing is sent, so nothing is done either.
                if let Ok(mut hooks) = hooks.try_lock() {
                    hooks.progress(sent);
                }
            };
            let wait = async |request| {
                paused.set(true);
                hooks.lock().await.debug_wait(request, process_group).await;
                paused.set(false);
            };
            sender.run(trace, remarks, told, wait).await?;
            monitor.until(|coordinator| coordinator.is_finished()).await;
            Ok::<_, ReplayError>(End::Done)
        };
        // Requests in flight may be held for ever when it is over. Those in a debugger are left
        // alone.
        let over = over(monitor, &paused);
        // What accepts connections may still be loading, as a master that forks its workers.
        let is_ours = self.service.is_some();
        let is_starting = || {
            let may_load = is_ours && started.elapsed() < START_PATIENCE;
            may_load && !monitor.with(|coordinator| coordinator.has_started())
        };
        let excused = || paused.get() || is_starting() || is_debugged(&shared, setting.debug_wait);
        let end = tokio::select! {
            end = sending => end?,
            status = exit(&mut self.service) => End::Exited { status },
            () = over => End::Done,
            () = stall(monitor, patience, excused) => End::Stuck { after: patience },
            () = let_on(monitor, process_group), if in_order => unreachable!("it goes on for ever"),
            () = nudge(&shared, longest), if changed => unreachable!("it goes on for ever"),
            () = pass_over(monitor), if !changed => unreachable!("it goes on for ever"),
        };
        shared.settle_results(true);
        ran.remarks.extend(shared.remarks());
        ran.ids = shared.learned.texts();
        if let Some(error) = monitor.with(|coordinator| coordinator.take_failure()) {
            return Err(LoadError::Temporary(error).into());
        }
        if let Some(inside) = &self.inside {
            ran.remarks
                .extend(inside.others.remarks(&inside.turns.board));
        }
        ran.took = started.elapsed();
        Ok((end, ran))
    }

    /// Starts what runs beside the requests.
    async fn start_aside(&mut self) -> Result<(), ReplayError> {
        let options = ConnectOptions::named("hindcast blockers");
        let control = self.connector.client(&options).await?;
        self.aside
            .spawn(blockers::watch(Arc::clone(&self.shared), control));
        if self.begins_in_order() {
            self.shared.monitor.with(Coordinator::begin_in_order);
        }
        Ok(())
    }

    /// Whether the service has pools that are as they were, and too small for requests in flight
    /// to begin transactions as they come. One that had a single connection for all of them has it
    /// again: threads with a lock around it, or a loop that stands still while it asks.
    fn begins_in_order(&self) -> bool {
        let recording = &self.shared.recording;
        let used = sender::connections_used(recording);
        let keeps_pools = |inside: &Inside| used == 1 || inside.turns.board.keeps_pools();
        self.inside.as_ref().is_some_and(keeps_pools) && used < connections(recording)
    }

    fn sender(&self, compare: Arc<dyn Compare>) -> Sender {
        let recorders = self.trace.recorders().iter();
        Sender {
            shared: Arc::clone(&self.shared),
            plan: Arc::clone(&self.plan),
            service: self.setting.service.clone(),
            also: self.inside.as_ref().map(Inside::also).unwrap_or_default(),
            clients: self
                .inside
                .as_ref()
                .map(|inside| inside.others.came_from.clone())
                .unwrap_or_default(),
            has_processes: self.inside.as_ref().is_some_and(|inside| {
                // All may have come to one of several.
                let mut numbers = self.shared.recording.numbers();
                inside.others.has_processes || numbers.any(Number::is_seen)
            }),
            inside: self.inside.as_ref().map(|inside| {
                let recording = &self.shared.recording;
                inside.pins(&self.trace, recording)
            }),
            compare,
            prefixes: recorders
                .map(|recorder| (recorder.number, recorder.trace_id_prefix))
                .collect(),
            debug_wait: self.setting.debug_wait,
            pace: self.setting.pace,
            begins_in_order: self.begins_in_order(),
            service_output: self
                .service
                .as_ref()
                .map(|service| Arc::clone(&service.output)),
        }
    }

    /// Lets everything go that could still wait, and ends it: the service first, so that it does
    /// not see its sessions fall over.
    pub async fn shut_down(mut self) {
        if let Some(service) = self.service.take() {
            service.stop().await;
        }
        self.shared.monitor.open();
        self.aside.shutdown().await;
        if let Some(server) = self.gateway.0.take() {
            server.shut_down(Duration::from_millis(500)).await;
        }
    }
}

/// Starts the ghosts and the service.
async fn start_all(
    runner: &Runner,
    setting: &mut Setting,
    inside: Option<&Inside>,
    ghosts: BTreeMap<SessionId, Vec<Tx>>,
) -> Result<(JoinSet<()>, Option<Service>), ServiceError> {
    let Runner {
        shared, options, ..
    } = runner;
    let monitor = &shared.monitor;
    let (known, inserts) = ghosts::openings(shared, &options.scripts);
    let background = Background::new(&shared.recording, known, &ghosts).with_rows(inserts);
    monitor.with(|coordinator| coordinator.set_background(background));
    let before = ghosts::before_requests(&shared.recording, &ghosts);
    let starts_itself = starts_itself(setting, inside.is_some(), options.code);
    if starts_itself {
        monitor.with(|coordinator| coordinator.starts_itself(&before));
    }
    let mut aside = JoinSet::new();
    aside.spawn(runner.clone().run_all(ghosts.into_values().collect()));
    let mut service = None;
    if starts_itself {
        service = start_service(setting, inside).await?;
        monitor.with(|coordinator| coordinator.has_started_itself());
    }
    tokio::select! {
        () = monitor.until(|c| before.iter().all(|&tx| c.is_over_with(tx))) => {}
        () = stall(monitor, setting.stall_timeout, || false) => {}
    }
    if !starts_itself {
        service = start_service(setting, inside).await?;
    }
    Ok((aside, service))
}

/// Whether the service does itself what it did when it started. If it may have been others who
/// did that, or if it would do something else, it is done before, and the service finds its
/// database as it left it when it had started.
fn starts_itself(setting: &Setting, inside: bool, code: Code) -> bool {
    inside && setting.service_command.is_none() && code == Code::Recorded
}

/// Pinned where each recorder was in the service and has a key.
fn draws(recorders: &[Recorder], recording: &Recording) -> Draws {
    let own = recording.requests.iter().map(|request| request.id);
    let own: HashSet<u16> = own.map(RequestId::recorder).collect();
    let mut recorders = recorders.iter().filter(|it| own.contains(&it.number));
    let is_inside = |recorder: &Recorder| !recorder.command.is_empty();
    let is_pinned = |recorder: &Recorder| is_inside(recorder) && recorder.pins_key.is_some();
    match recorders.all(is_pinned) {
        true => Draws::Pinned,
        false => Draws::Free,
    }
}

/// Whether the request to be debugged is in flight. It may take as long as it likes.
fn is_debugged(shared: &Shared, debug_wait: Option<RequestId>) -> bool {
    let debugged = debug_wait.and_then(|id| shared.recording.find(id));
    debugged.is_some_and(|request| {
        let monitor = &shared.monitor;
        monitor.with(|c| !c.is_over() && c.in_flight().any(|one| one == request))
    })
}

/// How the service ended, if it does by itself.
async fn exit(service: &mut Option<Service>) -> String {
    match service {
        Some(service) => service.ended().await,
        None => std::future::pending().await,
    }
}

/// Where all wait for a read that is late, it does not come. Where that helps none and they wait
/// for something else, one that reads goes on.
async fn pass_over(monitor: &Monitor) {
    loop {
        stall(monitor, QUIET_AT_WORK, || false).await;
        let waiting = monitor.waiting();
        monitor.with(|coordinator| coordinator.nothing_moves(&waiting));
    }
}

/// Where transactions begin in the order of the recording, one that does not begin when nothing
/// moves is taken to stand in line for a connection.
async fn let_on(monitor: &Monitor, process_group: Option<u32>) {
    let is_computing = || process_group.is_some_and(rest::is_computing);
    loop {
        stall(monitor, Ask::OPENING_PATIENCE, is_computing).await;
        monitor.with(Coordinator::pass_opening);
    }
}

/// Keeps a run of changed code moving: where all sessions wait, one gives way or goes on out of
/// order.
async fn nudge(shared: &Shared, longest: Duration) {
    let monitor = &shared.monitor;
    // A session that gave way may only have tried again. So what did not help once is not done a
    // second time.
    let mut gave_way_at = None;
    loop {
        stall(monitor, QUIET, || false).await;
        let waiting = monitor.waiting();
        let steps = || monitor.with(|coordinator| coordinator.steps());
        let (expected, handed) = monitor.with(|coordinator| {
            let expected = coordinator.still_to_begin(&waiting);
            (expected, coordinator.awaits_handed_over())
        });
        let more = match is_at_work(shared, &waiting) {
            // It may be computing, or talking to other services.
            true => QUIET_AT_WORK.max(longest * 2) - QUIET,
            false if expected.is_empty() && !handed => Duration::ZERO,
            false => QUIET_BESIDE,
        };
        if !more.is_zero() {
            let before = steps();
            let _ = tokio::time::timeout(more, monitor.until(|c| c.steps() != before)).await;
            if steps() != before {
                continue;
            }
        }
        if !expected.is_empty() {
            monitor.with(|coordinator| coordinator.expected_in_vain(&expected));
            continue;
        }
        let steps = steps();
        if gave_way_at == Some(steps) || !shared.make_all_yield() {
            monitor.with(|coordinator| coordinator.let_go(&waiting));
        }
        gave_way_at = Some(steps);
    }
}

/// Whether a request is in flight of which no transaction waits, or one waits only for a moment, or
/// the database is at work on one that does not wait there.
fn is_at_work(shared: &Shared, waiting: &[Ask]) -> bool {
    let blocked = shared.blocked();
    let mut looking = shared.lookers.all().into_values();
    if looking.any(|one| !blocked.contains(&Claim::Run(one.tx)))
        || waiting.iter().any(|ask| matches!(ask, Ask::Insert(..)))
    {
        return true;
    }
    shared.monitor.with(|coordinator| {
        let held = |request| {
            let is_own = |claim| coordinator.request_of(claim) == Some(request);
            let mut asks = waiting.iter().map(|ask| Claim::Run(ask.tx()));
            asks.any(is_own) || blocked.iter().copied().any(is_own)
        };
        coordinator.in_flight().any(|request| !held(request))
    })
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

/// As many as never have requests wait for each other's: for each of those in flight what one of
/// them used at a time.
fn connections(recording: &Recording) -> usize {
    let of_one = |number: usize| {
        let own = recording.own(Request(number as u32)).iter();
        let used = own.map(|&tx| recording.transaction(tx));
        admission::overlap(used.map(|one| (one.began, one.ended)))
    };
    let most = (0..recording.requests.len()).map(of_one).max();
    let connections = sender::connections_needed(recording) * most.unwrap_or(1).max(1);
    connections.min(CONNECTIONS_MAX)
}

/// The longest time in which no request came.
fn longest_pause(recording: &Recording) -> Duration {
    let mut arrived: Vec<i64> = recording.requests.iter().map(|one| one.arrived).collect();
    arrived.sort_unstable();
    let longest = arrived.windows(2).map(|two| two[1] - two[0]).max();
    Duration::from_micros(longest.unwrap_or(0) as u64)
}

/// Resolves when the replay is to stop, and is not `paused`.
async fn over(monitor: &Monitor, paused: &Cell<bool>) {
    monitor.over().await;
    monitor.until(|_| !paused.get()).await;
}

/// Resolves when no step of the recording was taken for as long as `patience`, whatever else the
/// service may have done. It looks when that may be so, and is not woken by steps: they are many.
async fn stall(monitor: &Monitor, patience: Duration, excused: impl Fn() -> bool) {
    let mut since = Instant::now();
    loop {
        since = since.max(monitor.moved_at());
        match since.elapsed() {
            quiet if quiet < patience => tokio::time::sleep(patience - quiet).await,
            _ if excused() => since = Instant::now(),
            _ => return,
        }
    }
}
