//! Runs ghosts: transactions that belong to no request, from what their clients sent.
//!
//! Each recorded session gets a connection of its own and runs its transactions in order, so that
//! settings, prepared statements and temporary tables are there when they are needed. A [`Holder`]
//! makes them wait, as for sessions of the service.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use hindcast_order::{Admission, Span, Tx, admission};
use hindcast_pg::tokio::Connector;
use hindcast_pg::{ConnectError, ConnectOptions};
use hindcast_rewind::pins::DATABASE;
use hindcast_trace::{RequestId, SessionId};
use hindcast_wire::Wires;
use hindcast_wire::sql::ScriptCache;
use hindcast_wire::text::Settings;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::coordinator::GhostTurn;
use crate::hold::{
    Answered, Context, HoldOptions, Holder, Inserted, Next, Pins, SentOpening, Unreadable,
};
use crate::monitor::Monitor;
use crate::recording::{Fate, Recording};
use crate::shared::Shared;
use crate::transaction::{Ask, Claim, Ended, Looking, MovedReads, Opening, Stopped};

/// Why a ghost could not be run. The replay goes on without it, and diverges if that matters.
#[derive(Debug, thiserror::Error)]
pub enum GhostError {
    #[error("cannot connect to the rewound database: {0}")]
    Connect(#[from] ConnectError),
    #[error("the connection was lost")]
    Lost(#[from] std::io::Error),
    #[error("what the client sent was not kept")]
    NotKept,
    #[error("the recording cannot be read")]
    Unreadable,
}

/// The ghosts to run, by session, in order. Those that only read are left out: nothing depends on
/// them.
pub fn by_session(recording: &Recording) -> BTreeMap<SessionId, Vec<Tx>> {
    let mut sessions: BTreeMap<SessionId, Vec<Tx>> = BTreeMap::new();
    for tx in recording.ghosts().filter(|&tx| matters(recording, tx)) {
        sessions
            .entry(recording.transaction(tx).session)
            .or_default()
            .push(tx);
    }
    // A session that only ever set something set it for nothing.
    sessions.retain(|_, own| {
        own.iter()
            .any(|&tx| recording.transaction(tx).has_snapshot || recording.transaction(tx).wrote)
    });
    sessions
}

/// Those that are not run.
pub fn left_out(recording: &Recording, sessions: &BTreeMap<SessionId, Vec<Tx>>) -> Vec<Tx> {
    let run: HashSet<Tx> = sessions.values().flatten().copied().collect();
    let is_left_out = |tx: &Tx| !run.contains(tx);
    recording.ghosts().filter(is_left_out).collect()
}

/// Whether anything depends on a ghost: it wrote, or it left something behind in its session.
pub fn matters(recording: &Recording, tx: Tx) -> bool {
    let ghost = recording.transaction(tx);
    ghost.fate != Fate::Aborted && (ghost.wrote || !ghost.has_snapshot)
}

/// Those that were over before the first request came: what a service does when it starts.
pub fn before_requests(recording: &Recording, sessions: &BTreeMap<SessionId, Vec<Tx>>) -> Vec<Tx> {
    let first = recording.requests.iter().map(|request| request.arrived);
    let first = first.min().unwrap_or_default();
    let is_before = |tx: &Tx| recording.transaction(*tx).ended < first;
    sessions
        .values()
        .flatten()
        .copied()
        .filter(is_before)
        .collect()
}

/// While nothing has moved for so long, a service that starts waits for what it does not do itself.
const QUIET: Duration = Duration::from_millis(50);

/// By what ghosts begin, to know them when the service does them, and which rows their statements
/// lay.
pub fn openings(
    shared: &Shared,
    scripts: &ScriptCache,
) -> (HashMap<Tx, SentOpening>, HashMap<Inserted, Tx>) {
    let (mut openings, mut inserts) = (HashMap::new(), HashMap::new());
    for tx in shared.recording.ghosts() {
        let Ok(sent) = shared.sent_by(tx, scripts) else {
            continue;
        };
        openings.extend(sent.opening.map(|opening| (tx, opening)));
        inserts.extend(sent.inserts.into_iter().map(|row| (row, tx)));
    }
    (openings, inserts)
}

/// Runs ghosts.
#[derive(Clone)]
pub struct Runner {
    pub shared: Arc<Shared>,
    pub connector: Arc<Connector>,
    pub options: HoldOptions,
    /// What the recorded database is called.
    pub database: String,
}

impl Runner {
    /// Runs all of them.
    ///
    /// No more sessions are open at a time than originally, and they are opened in the order of
    /// their first ghosts. Nothing gets stuck by that, for the reason for which nothing gets stuck
    /// by [`hindcast_order::admission`].
    pub async fn run_all(self, sessions: Vec<Vec<Tx>>) {
        let spans: Vec<Span> = sessions
            .iter()
            .map(|own| {
                let used = |&tx: &Tx| self.shared.recording.transaction(tx);
                Span {
                    first: own.iter().map(|tx| used(tx).began).min().unwrap_or(0),
                    last: own.iter().map(|tx| used(tx).ended).max(),
                }
            })
            .collect();
        let overlap = admission::overlap(spans.iter().filter_map(|s| Some((s.first, s.last?))));
        let mut line = Admission::new(&spans, overlap);
        let mut open = JoinSet::new();
        loop {
            while let Some(session) = line.next() {
                line.sent(session);
                let own = sessions[session.index()].clone();
                let runner = self.clone();
                open.spawn(async move {
                    runner.run(own).await;
                    session
                });
            }
            match open.join_next().await {
                Some(Ok(session)) => line.ended(session),
                Some(Err(error)) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => return,
                },
                None => return,
            }
        }
    }

    /// Runs the ghosts of one session. If one cannot be run, those behind it cannot either: they
    /// might lack what it left behind.
    async fn run(self, ghosts: Vec<Tx>) {
        let mut left = ghosts.into();
        if let Err(error) = self.run_session(&mut left).await {
            let error = error.to_string();
            self.shared.monitor.with(|coordinator| {
                for tx in left {
                    coordinator.ghost_failed(tx, error.clone());
                }
            });
        }
    }

    async fn run_session(&self, left: &mut VecDeque<Tx>) -> Result<(), GhostError> {
        let shared = &self.shared;
        let Some(&first) = left.front() else {
            return Ok(());
        };
        let opened = self.connector.open(&self.settings(left)).await?;
        let mut stream = opened.stream;
        let mut settings = Settings::default();
        for (name, value) in &opened.session.parameters {
            settings.note(name.as_bytes(), value.as_bytes());
        }
        let mut session = Session {
            holder: Holder::running(self.options.clone(), settings),
            context: GhostContext {
                shared: Arc::clone(shared),
                current: first,
                pid: opened.session.process as i32,
                over: false,
            },
        };
        while let Some(&tx) = left.front() {
            if !is_left(&shared.monitor, tx).await {
                left.pop_front();
                continue;
            }
            session.context.current = tx;
            session.context.over = false;
            let outcome = match shared.extras(tx) {
                Ok(extras) => match extras.client_bytes {
                    Some(bytes) => session.run(&mut stream, &bytes).await,
                    None => Err(GhostError::NotKept),
                },
                Err(Unreadable) => Err(GhostError::Unreadable),
            };
            if session.context.over {
                // It has been compared, whatever became of its connection since.
                left.pop_front();
                outcome?;
            } else {
                outcome?;
                // Nothing in it took a snapshot: it is over all the same.
                shared
                    .monitor
                    .with(|coordinator| coordinator.ghost_over(tx));
                left.pop_front();
            }
        }
        Ok(())
    }

    /// A session of ghosts finds the recorded database's name, as the service does, unless it
    /// changes something about a database: that would be the recorded one.
    fn settings(&self, ghosts: &VecDeque<Tx>) -> ConnectOptions {
        let settings = ConnectOptions::named("hindcast ghost").set("synchronous_commit", "off");
        let alters = |&tx: &Tx| {
            let sent = self
                .shared
                .extras(tx)
                .ok()
                .and_then(|extras| extras.client_bytes);
            sent.is_some_and(|sent| alters_database(&sent))
        };
        match ghosts.iter().any(alters) {
            true => settings,
            false => settings.set(DATABASE, &self.database),
        }
    }
}

fn alters_database(sent: &[u8]) -> bool {
    const ALTER: &[u8] = b"ALTER DATABASE";
    sent.windows(ALTER.len())
        .any(|part| part.eq_ignore_ascii_case(ALTER))
}

/// How often it is looked whether a service has begun what it is waited for to do.
const TICK: Duration = Duration::from_millis(5);

/// Waits for a ghost's turn, and for the service as long as it may be expected to do it. Whether it
/// is to be run; then it is claimed.
async fn is_left(monitor: &Monitor, tx: Tx) -> bool {
    monitor.permission(Ask::Snapshot(tx)).await;
    let since = Instant::now();
    loop {
        let quiet = monitor.moved_at().max(since).elapsed() > QUIET;
        match monitor.with(|c| c.ghost_turn(tx, since.elapsed(), quiet)) {
            GhostTurn::Over => return false,
            GhostTurn::Now => return true,
            GhostTurn::Service => {
                monitor
                    .until(|c| !c.is_by_service(tx) || c.is_over_with(tx))
                    .await
            }
            GhostTurn::Later => tokio::time::sleep(TICK).await,
        }
    }
}

struct Session {
    holder: Holder,
    context: GhostContext,
}

impl Session {
    async fn run(
        &mut self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        bytes: &[u8],
    ) -> Result<(), GhostError> {
        let mut wires = Wires::default();
        let mut sent = BytesMut::from(bytes);
        let mut received = BytesMut::new();
        let mut next = self
            .holder
            .on_client(&mut sent, &mut wires, &mut self.context);
        loop {
            stream.write_all(&wires.to_server.split()).await?;
            wires.to_client.clear();
            match next {
                Next::Wait(ask) => {
                    self.context.shared.monitor.permission(ask).await;
                    next = self.holder.on_permission(&mut wires, &mut self.context);
                    continue;
                }
                Next::Close => {
                    return Err(std::io::Error::from(std::io::ErrorKind::InvalidData).into());
                }
                Next::Continue => {}
            }
            if self.holder.is_idle() {
                // The next one may come late.
                self.holder.send_kept(&mut wires);
                stream.write_all(&wires.to_server.split()).await?;
                return Ok(());
            }
            if stream.read_buf(&mut received).await? == 0 {
                self.holder.on_gone(&mut self.context);
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
            next = self
                .holder
                .on_server(&mut received, &mut wires, &mut self.context);
        }
    }
}

/// Knows which ghost it is from the start.
struct GhostContext {
    shared: Arc<Shared>,
    current: Tx,
    /// The server process of its session.
    pid: i32,
    over: bool,
}

impl Context for GhostContext {
    fn claim(&mut self, _request: Option<RequestId>, _opening: Opening<'_>) -> Claim {
        Claim::Run(self.current)
    }
    fn pins(&self, tx: Tx) -> Result<Pins, Unreadable> {
        self.shared.pins(tx)
    }
    fn recorded_answers(&self, _tx: Tx) -> Result<Option<Answered>, Unreadable> {
        Ok(None)
    }
    fn turn(&self) -> Option<RequestId> {
        None
    }
    fn alone(&self) -> Option<RequestId> {
        None
    }
    fn commits_freely(&self, tx: Tx) -> bool {
        self.shared.monitor.commits_freely(tx)
    }
    fn asks_to_change(&mut self, tx: Tx, statement: u32) {
        self.shared
            .monitor
            .with(|c| c.asks_to_change(tx, statement));
    }
    fn took_snapshot(&mut self, tx: Tx) {
        self.shared.monitor.with(|c| c.took_snapshot(tx));
    }
    fn looked(&mut self, tx: Tx, nth: u32) {
        self.shared.monitor.with(|c| c.looked(tx, nth));
    }
    fn locked(&mut self, tx: Tx, statement: u32) {
        self.shared.monitor.with(|c| c.locked(tx, statement));
    }
    fn ran(&mut self, tx: Tx) {
        self.shared.monitor.with(|c| c.ran(tx));
    }
    fn ended(&mut self, claim: Claim, ended: Ended) {
        self.over = true;
        self.shared.monitor.with(|c| c.ended(claim, &ended));
    }
    fn served(&mut self, _tx: Tx, _complete: bool, _moved: MovedReads) {}
    fn lost(&mut self, claim: Claim, ended: Ended) {
        self.over = true;
        self.shared.monitor.with(|c| c.lost(claim, ended));
    }
    fn stopped(&mut self, stopped: Stopped) {
        self.shared.monitor.with(|c| c.stopped(stopped));
    }
    fn outside_write_refused(&mut self, _statement: &str) {}
    fn looking(&mut self, looking: Option<Looking>) {
        self.shared.lookers.note(self.pid, looking);
    }
    fn entered(&mut self, _claim: Option<Claim>) {
        self.shared.lookers.note(self.pid, None);
    }
}
