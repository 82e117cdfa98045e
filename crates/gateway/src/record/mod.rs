//! Records a service: both sides of the gateway, the trace, and what has to be asked of the server
//! besides.
//!
//! ```text
//!   Ingress ──Witness──▶ ┌──────┐
//!                        │ Sink │──▶ trace::Writer
//!   RecordingDriver ───▶ └──┬───┘
//!                           │ Ledger
//!                      ┌────▼────┐  own connection   ┌──────────┐
//!                      │ Settler │ ────────────────▶ │ Postgres │
//!                      └─────────┘                   └──────────┘
//! ```
//!
//! Where sessions go past the recorder, taps tell what they carried and the server's extension what
//! they saw:
//!
//! ```text
//!   taps ─────────────▶ ┌───────┐    inside ──▶ past: RecordingDriver ──┐
//!                       │ spool │ ─▶                                    ├─▶ server_side ──▶ Sink
//!   extension: Reader ▶ └───────┘    extension: Telling ────────────────┘
//! ```
//!
//! Start reading at [`start`]; `session` turns what the observer of one session says into records,
//! `sink` is where everything meets, `settle` finds out who is missing.

mod catalog;
mod error;
mod extension;
mod final_state;
mod flights;
mod front;
mod join;
mod kept;
mod late;
mod ledger;
mod moments;
mod past;
mod present;
mod requests;
mod resume;
mod server_side;
mod session;
mod settle;
mod sink;
mod status;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hindcast_pg::tokio::{Client, Connector};
use hindcast_pg::{Certificate, ConnectOptions, DatabaseUrl, ListenAddress, ServerIdentity};
use hindcast_spool::{Key, Meter};
use hindcast_taplog::pins;
use hindcast_trace::{
    Base, FinalState, Isolation, KeptValuesKey, Location, OpenError, PinsKey, PublicKey, Record,
    Recorder, Sealer, ValuesKey, Writer, WriterOptions,
};
use hindcast_wire::sql::ScriptCache;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub use error::RecordError;
pub use extension::ExtensionError;
pub use front::{Front, Launch, Proxies, Transactions, Variable};
pub use hindcast_spool::spool::HowFar;
pub use moments::Moments;
pub use resume::{Converted, ResumeError, progress, resume};
pub use status::Status;

use crate::http::{Limits, Witness};
use crate::inside::InsideEnd;
use crate::pg::{Server, ServerHandle, ServerOptions};
use crate::redact::{Redactor, Rules};
use catalog::{Catalog, ServerFacts};
use extension::{Claim, Reading};
use front::{Bound, Requests, Whole};
use kept::{About, Kept};
use past::PastSessions;
use server_side::ServerSide;
use session::RecordingHost;
use settle::{Beginning, Settler};
use sink::Sink;

/// What to record, and where.
#[derive(Debug)]
pub struct RecordOptions {
    pub front: Front,
    /// How the service is started, if its recorder does that.
    pub launch: Launch,
    pub postgres: DatabaseUrl,
    /// For database clients that ask for TLS.
    pub pg_identity: Option<Certificate>,
    pub trace: Location,
    pub writer: WriterOptions,
    pub limits: Limits,
    /// [`Recording::moments`] are asked for.
    pub moments: bool,
    /// What is left out of the recording.
    pub redact: Rules,
    /// Where requests name their users, if anywhere; see [`Rules::for_users`].
    pub users: Rules,
    /// The statements of transactions are kept with their values where they are no longer than
    /// this.
    pub values_max: usize,
    /// Keeps what is left out of requests, for who has the key.
    pub sealer: Option<Sealer>,
    /// Who may go on with what was not recorded yet when the recorder is killed. `None`: nobody; it
    /// is lost then. It is from before redaction.
    pub spool_for: Option<PublicKey>,
    /// Sessions that do not choose an isolation level get REPEATABLE READ.
    pub raise_isolation: bool,
    /// A state that a replay can start from, taken before this recording began.
    pub base: Option<Base>,
    pub final_state: FinalStateMode,
    /// How long requests and transactions in flight may take to end at a shutdown.
    pub drain: Duration,
    /// Bytes on disk that what the service's processes told may take before it is in the trace.
    pub spool_max: u64,
    pub runtimes: Runtimes,
    /// Requests that are recorded from inside, and the processes that work on them, draw from a
    /// generator with this key, and what requests read from the clock is kept.
    pub pins_key: Option<PinsKey>,
}

impl RecordOptions {
    /// Requests draw from a generator with a key that nobody else has, by the code that asks.
    pub fn pin(&mut self) {
        let key = pins::count_by_caller(PinsKey::random().0);
        self.pins_key = Some(PinsKey(key));
    }

    /// With the defaults for everything that has one.
    pub fn new(front: Front, postgres: DatabaseUrl, trace: Location) -> Self {
        Self {
            front,
            launch: Launch::default(),
            postgres,
            pg_identity: None,
            trace,
            writer: WriterOptions::default(),
            limits: Limits::default(),
            moments: false,
            redact: Rules::default(),
            users: Rules::default(),
            values_max: 0,
            sealer: None,
            spool_for: None,
            raise_isolation: false,
            base: None,
            final_state: FinalStateMode::Auto,
            drain: Duration::from_secs(30),
            spool_max: 1 << 30,
            runtimes: Runtimes::default(),
            pins_key: None,
        }
    }

    fn redaction(&mut self) -> Result<Redaction, RecordError> {
        let key = Key::random()?.0;
        let keeps_secrets = self.sealer.is_some();
        let values = self.values_key()?;
        let redactor = Redactor::with_key(self.redact.clone(), &key);
        let redactor = redactor.knowing_users_by(self.users.clone());
        let redactor = Arc::new(redactor.keeping(self.sealer.take()));
        Ok(Redaction {
            redactor,
            key,
            keeps_secrets,
            values,
        })
    }

    /// What digests of values are made with. Values that are redacted could be guessed by who has
    /// it, so it is kept as they are: sealed, or not at all.
    fn values_key(&self) -> Result<Option<(ValuesKey, KeptValuesKey)>, RecordError> {
        let key = ValuesKey::random();
        let kept = match &self.sealer {
            Some(sealer) => key.sealed(sealer.recipient()).map_err(RecordError::Seal)?,
            None if self.redact.is_empty() => key.plain(),
            None => return Ok(None),
        };
        Ok(Some((key, kept)))
    }

    fn server(&self, identity: Option<ServerIdentity>, threads: &Threads) -> ServerOptions {
        ServerOptions {
            identity,
            runtimes: threads.handles.clone(),
        }
    }

    fn host(&self, sink: &Arc<Sink>, redaction: &Redaction, database: String) -> RecordingHost {
        RecordingHost {
            board: None,
            told: None,
            sink: Arc::clone(sink),
            scripts: Arc::new(ScriptCache::default()),
            redactor: Arc::clone(&redaction.redactor),
            database,
            raise_isolation: self.raise_isolation,
            values_max: self.values_max,
            values: redaction.values.as_ref().map(|(key, _)| key.prepared()),
        }
    }
}

/// Whether a shutdown reads all tables to say what they held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FinalStateMode {
    /// If the database is smaller than a gibibyte.
    #[default]
    Auto,
    Always,
    Never,
}

/// Where connections and sessions are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtimes {
    /// On the runtime that [`start`] is called on.
    Shared,
    /// On as many threads of our own, each with a runtime of its own: a session never moves between
    /// cores, and no thread looks for work at another.
    PerCore(usize),
}

impl Default for Runtimes {
    /// A thread per core: about a tenth cheaper per message than a runtime that balances between
    /// cores.
    fn default() -> Self {
        Self::PerCore(std::thread::available_parallelism().map_or(1, usize::from))
    }
}

/// A recording that goes on.
pub struct Recording {
    sink: Arc<Sink>,
    writer: Writer,
    connector: Arc<Connector>,
    requests: Requests,
    /// What is left for others if we are killed.
    kept: Option<Kept>,
    /// `None`: sessions go past us, and are told.
    postgres: Option<Server<RecordingHost>>,
    settler: (oneshot::Sender<()>, JoinHandle<()>),
    /// Of what the extension tells.
    reading: Option<Reading>,
    catalog: JoinHandle<()>,
    redactor: Arc<Redactor>,
    threads: Threads,
    started: Started,
    final_state: FinalStateMode,
    drain: Duration,
}

/// What is known once a recording has started.
#[derive(Clone, Debug)]
pub struct Started {
    pub recorder: Recorder,
    /// With the ports that were really bound.
    pub listen: Option<ListenAddress>,
    /// `None`: sessions go past us, and are told.
    pub pg_listen: Option<ListenAddress>,
    /// What the service must have in its environment, beside the tap in `LD_PRELOAD`.
    pub tap: Option<Variable>,
    /// What does not keep it from recording, but should be known.
    pub warnings: Vec<String>,
}

/// How a recording ended.
#[derive(Debug)]
pub struct Summary {
    pub started: Started,
    pub status: Status,
    /// Sessions that had to be cut off in the middle of a transaction.
    pub sessions_cut_off: usize,
    /// Requests that had not ended when patience did.
    pub requests_cut_off: u64,
    /// What the tables held, or why that is not known.
    pub final_state: Result<FinalState, String>,
    /// What was seen from inside the service.
    pub inside: Option<InsideEnd>,
    /// Whether everything reached its place.
    pub closed: Result<(), hindcast_trace::CloseError>,
}

/// Records until `shutdown` resolves.
pub async fn run(
    options: RecordOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, RecordError> {
    let recording = start(options).await?;
    shutdown.await;
    Ok(recording.stop().await)
}

/// Checks what can be checked, then begins to listen. Nothing is left behind if that fails.
pub async fn start(mut options: RecordOptions) -> Result<Recording, RecordError> {
    let connector = Arc::new(Connector::new(options.postgres.clone())?);
    let identity = options.pg_identity.as_ref().map(ServerIdentity::of);
    let identity = identity.transpose()?;
    let asked = Database::ask(&connector, &options.postgres).await?;

    let claim = match options.front {
        Front::Inside(Transactions::Extension) => Some(Claim::stake(&connector).await?),
        _ => None,
    };
    // Ports before the trace: a start that fails leaves no recorder behind in it.
    let bound = options.front.bind().await?;
    let redaction = options.redaction()?;
    let trace = create_trace(&options).await?;
    begin(
        options,
        (connector, identity),
        (asked, claim),
        bound,
        redaction,
        trace,
    )
    .await
}

/// Begins to listen.
async fn begin(
    options: RecordOptions,
    (connector, identity): (Arc<Connector>, Option<ServerIdentity>),
    (asked, claim): (Database, Option<Claim>),
    bound: Bound,
    redaction: Redaction,
    (writer, sink): (Writer, Arc<Sink>),
) -> Result<Recording, RecordError> {
    let (listen, pg_listen) = (bound.listen(), bound.pg_listen());
    sink.catalog_read(asked.catalog);
    let listens = (listen.as_ref(), pg_listen.as_ref());
    let recorder = Recorder {
        values_key: redaction.values.as_ref().map(|(_, kept)| kept.clone()),
        ..recorder(&options, &sink, &asked.facts, listens)
    };
    introduce(&sink, &recorder, options.base.as_ref());
    let server_side = claim
        .as_ref()
        .map(|_| Arc::new(ServerSide::new(Arc::clone(&sink))));
    let beginning = asked.beginning.at(options.base.as_ref());
    let about = about(&options, &recorder, claim.is_some(), &redaction, &beginning);
    let mut settler = Settler::new(
        Arc::clone(&connector),
        asked.accounting,
        Arc::clone(&sink),
        beginning,
    );
    let threads = Threads::start(options.runtimes);
    let mut host = options.host(&sink, &redaction, asked.facts.database);
    let redactor = redaction.redactor;
    let past = |server: &Arc<ServerSide>| PastSessions::boxed(&host, Arc::clone(server));
    let sessions = server_side.as_ref().map(past);
    let whole = Whole {
        options: &options,
        sink: &sink,
        redactor: &redactor,
        about: &about,
    };
    let served = bound.serve(&whole, &threads, sessions)?;
    settler.keeps(served.kept.clone());
    let reading = claim.zip(served.spool);
    let reading = reading.map(|(claim, spool)| Reading::start(claim, &connector, &sink, spool));
    host.board = served.board;
    let server = options.server(identity, &threads);
    let host = Arc::new(host);
    let serve = |listeners| Server::serve(listeners, server, Arc::clone(&connector), host);
    let postgres = served.listeners.map(serve);
    let sessions = processes(postgres.as_ref().map(Server::handle), server_side);
    let (stop_settler, stopped) = oneshot::channel();
    let settler = tokio::spawn(settler.run(options.writer.flush_interval, sessions, stopped));
    let catalog = catalog::keep_current(asked.control, Arc::clone(&connector), Arc::clone(&sink));
    Ok(Recording {
        sink,
        writer,
        connector,
        requests: served.requests,
        kept: served.kept,
        postgres,
        settler: (stop_settler, settler),
        reading,
        catalog: tokio::spawn(catalog),
        redactor,
        threads,
        started: Started {
            warnings: warnings(&options, pg_listen.as_ref(), asked.in_doubt).await,
            recorder,
            listen,
            pg_listen,
            tap: served.tap,
        },
        final_state: options.final_state,
        drain: options.drain,
    })
}

/// What stands first in a recorder's part of the trace.
fn introduce(sink: &Sink, recorder: &Recorder, base: Option<&Base>) {
    sink.record(Record::Recorder(recorder.clone()));
    if let Some(base) = base {
        sink.record(Record::Base(base.clone()));
    }
}

/// How secrets are left out.
struct Redaction {
    redactor: Arc<Redactor>,
    /// Under which they are hashed.
    key: [u8; 32],
    /// They are kept, sealed.
    keeps_secrets: bool,
    /// What digests of values are made with, and how that is kept.
    values: Option<(ValuesKey, KeptValuesKey)>,
}

/// What who goes on has to know if we are killed.
fn about(
    options: &RecordOptions,
    recorder: &Recorder,
    has_transactions: bool,
    redaction: &Redaction,
    beginning: &Beginning,
) -> About {
    About {
        recorder: recorder.clone(),
        base: options.base.clone(),
        has_transactions,
        values_max: options.values_max,
        limits: options.limits,
        redaction_key: redaction.key,
        keeps_secrets: redaction.keeps_secrets,
        users: options.users.texts().map(str::to_owned).collect(),
        values_key: redaction.values.as_ref().map(|(key, _)| *key),
        beginning: beginning.snapshot().clone(),
        flush_interval_us: options.writer.flush_interval.as_micros() as u64,
    }
}

async fn create_trace(options: &RecordOptions) -> Result<(Writer, Arc<Sink>), OpenError> {
    let (location, writer_options) = (options.trace.clone(), options.writer.clone());
    let creating = move || Writer::create(&location, writer_options);
    let created = tokio::task::spawn_blocking(creating).await;
    let (writer, number) = created.expect("creating a trace does not panic")?;
    let prefix = requests::random().max(1);
    let sink = Sink::new(writer.clone(), number, prefix, options.writer.durable);
    if options.moments {
        sink.flights().turn_on();
    }
    Ok((writer, Arc::new(sink)))
}

/// The server's processes of sessions that come through us or are told.
fn processes(gateway: Option<ServerHandle>, past_us: Option<Arc<ServerSide>>) -> settle::Sessions {
    Box::new(move || {
        let through_us = gateway.iter().flat_map(ServerHandle::backends);
        let past_us = past_us.iter().flat_map(|side| side.processes());
        through_us.chain(past_us).collect()
    })
}

/// What `raise_isolation` changes for the service.
const RAISING: &str = "sessions whose default is READ COMMITTED get REPEATABLE READ. Where a transaction waited for \
     another and went on with the row as it had become, it now fails with SQLSTATE 40001 (could not serialize access): \
     the service has to retry it, or answers with an error that it does not give without us";

/// If the service is not there yet, if others can read the recording or reach the database, what
/// raising changes, and what will be in doubt.
async fn warnings(
    options: &RecordOptions,
    pg_listen: Option<&ListenAddress>,
    in_doubt: Option<String>,
) -> Vec<String> {
    let mut unreachable = None;
    if let Some(Proxies { service, .. }) = options.front.proxies()
        && let Err(error) = service.connect().await
    {
        let warning = format!("the service at {service} cannot be reached yet: {error}");
        unreachable = Some(warning);
    }
    let exposed = hindcast_trace::exposed(&options.trace, options.writer.wal_folder.as_deref());
    let exposed = exposed.map(|found| found.to_string());
    let raised = options.raise_isolation.then(|| RAISING.to_owned());
    let warnings = unreachable.into_iter().chain(exposed);
    let warnings = warnings.chain(pg_listen.and_then(reachable));
    warnings.chain(raised).chain(in_doubt).collect()
}

/// A warning if other machines reach the database through us.
fn reachable(pg_listen: &ListenAddress) -> Option<String> {
    (!pg_listen.is_of_this_machine()).then(|| {
        format!(
            "{pg_listen} can be reached from other machines, and Postgres sees the gateway's address instead of theirs: \
             rules of pg_hba.conf for this machine, such as `trust`, then hold for them"
        )
    })
}

/// What the database says before a recording of it begins, and the connections that go on asking.
struct Database {
    control: Client,
    accounting: Client,
    facts: ServerFacts,
    beginning: Beginning,
    catalog: Catalog,
    /// A warning if it will not always be known who wrote past the recorder.
    in_doubt: Option<String>,
}

impl Database {
    async fn ask(connector: &Connector, url: &DatabaseUrl) -> Result<Self, RecordError> {
        let named = ConnectOptions::named;
        let control = connector.client(&named("hindcast: catalog")).await?;
        let accounting = connector.client(&named("hindcast: accounting")).await?;
        let asked = |error| RecordError::question(url, error);
        let facts = ServerFacts::ask(&control).await.map_err(asked)?;
        if facts.is_too_old() {
            return Err(RecordError::TooOld {
                version: facts.version,
            });
        }
        if facts.standby {
            return Err(RecordError::Standby {
                url: url.to_string(),
            });
        }
        let beginning = Beginning::ask(&accounting).await.map_err(asked)?;
        let catalog = Catalog::read(&control).await.map_err(asked)?;
        let in_doubt = settle::in_doubt(&accounting).await.map_err(asked)?;
        let warning = |why| format!("writes past the recorder cannot always be told: {why}");
        Ok(Self {
            control,
            accounting,
            facts,
            beginning,
            catalog,
            in_doubt: in_doubt.map(warning),
        })
    }
}

/// What the trace says about this recorder.
fn recorder(
    options: &RecordOptions,
    sink: &Sink,
    facts: &ServerFacts,
    (listen, pg_listen): (Option<&ListenAddress>, Option<&ListenAddress>),
) -> Recorder {
    let service = options.front.proxies().map(|proxies| &proxies.service);
    Recorder {
        number: sink.recorder(),
        started: sink.now(),
        trace_id_prefix: sink.trace_id_prefix(),
        listen: listen.map(ToString::to_string).unwrap_or_default(),
        app: service.map(ToString::to_string).unwrap_or_default(),
        pg_listen: pg_listen.map(ToString::to_string).unwrap_or_default(),
        postgres: options.postgres.to_string(),
        database: facts.database.clone(),
        server_version: facts.version.clone(),
        system_identifier: facts.system_identifier,
        raised_isolation: options.raise_isolation.then_some(Isolation::RepeatableRead),
        hindcast_version: env!("CARGO_PKG_VERSION").to_owned(),
        redacted: options.redact.texts().map(str::to_owned).collect(),
        command: options.launch.command.clone(),
        directory: options.launch.directory.clone(),
        environment: options.launch.environment.clone(),
        pins_key: options.pins_key,
        postgres_tls: Some(facts.offers_tls),
        values_key: None,
    }
}

impl Recording {
    pub fn started(&self) -> &Started {
        &self.started
    }

    pub fn status(&self) -> Status {
        self.watch().read()
    }

    /// A way to read the status while the recording is owned elsewhere.
    pub fn watch(&self) -> StatusReader {
        StatusReader {
            sink: Arc::clone(&self.sink),
            spool: self.requests.meter(),
        }
    }

    /// Tells when nothing was in flight, if [`RecordOptions::moments`] was set.
    pub fn moments(&self) -> Moments {
        Moments {
            sink: Arc::clone(&self.sink),
            spool: self.requests.meter(),
        }
    }

    /// Of the gateway, if there is one.
    pub fn sessions(&self) -> Option<ServerHandle> {
        self.postgres.as_ref().map(Server::handle)
    }

    /// Lets what is in flight end, settles what is open, records the final state, and closes the
    /// trace.
    pub async fn stop(self) -> Summary {
        // What the server tells of transactions is in the spool when that is read to its end.
        if let Some(reading) = self.reading {
            reading.stop().await;
        }
        // Requests before sessions: they need them.
        let inside = self.requests.stop(self.drain).await;
        let requests_cut_off = self.sink.requests().in_flight();
        let sessions_cut_off = match self.postgres {
            Some(postgres) => postgres.shut_down(self.drain).await,
            None => 0,
        };
        self.catalog.abort();
        let (stop, settler) = self.settler;
        let _ = stop.send(());
        let _ = settler.await;

        let quiet = requests_cut_off == 0 && sessions_cut_off == 0;
        let final_state = match (quiet, self.final_state) {
            (_, FinalStateMode::Never) => Err("not asked for".to_owned()),
            (false, _) => Err("something was still in flight".to_owned()),
            (true, mode) => {
                let rules = self.redactor.rules();
                final_state::take(&self.connector, &self.sink, mode, rules).await
            }
        };
        if let Ok(state) = &final_state {
            self.sink.record(Record::FinalState(state.clone()));
        }
        let writer = self.writer;
        let closed = tokio::task::spawn_blocking(move || writer.close())
            .await
            .expect("closing a trace does not panic");
        if let (Some(kept), Ok(_)) = (&self.kept, &closed) {
            kept.remove();
        }
        let mut status = self.sink.status();
        if let Ok(writer) = &closed {
            status.writer = writer.clone();
        }
        self.threads.stop().await;
        Summary {
            started: self.started,
            status,
            sessions_cut_off,
            requests_cut_off,
            final_state,
            inside,
            closed: closed.map(|_| ()),
        }
    }
}

/// Reads the counters of a [`Recording`].
#[derive(Clone)]
pub struct StatusReader {
    sink: Arc<Sink>,
    spool: Option<Meter>,
}

impl StatusReader {
    pub fn read(&self) -> Status {
        let spool = self.spool.as_ref().map(Meter::read);
        Status {
            spooled: spool.map_or(0, |fill| fill.unread),
            ..self.sink.status()
        }
    }
}

/// Threads with a runtime each.
struct Threads {
    handles: Vec<Handle>,
    /// A runtime ends when its sender is dropped.
    running: Vec<(oneshot::Sender<()>, std::thread::JoinHandle<()>)>,
}

impl Threads {
    fn start(runtimes: Runtimes) -> Self {
        let mut threads = Self {
            handles: Vec::new(),
            running: Vec::new(),
        };
        let Runtimes::PerCore(count) = runtimes else {
            return threads;
        };
        for number in 0..count.max(1) {
            let (stop, stopped) = oneshot::channel::<()>();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("the operating system gives us another epoll");
            threads.handles.push(runtime.handle().clone());
            let thread = std::thread::Builder::new()
                .name(format!("hindcast-{number}"))
                .spawn(move || {
                    let _ = runtime.block_on(stopped);
                })
                .expect("the operating system gives us another thread");
            threads.running.push((stop, thread));
        }
        threads
    }

    async fn stop(self) {
        let _ = tokio::task::spawn_blocking(move || {
            for (stop, thread) in self.running {
                drop(stop);
                let _ = thread.join();
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use hindcast_trace::SecretKey;

    use super::*;

    #[test]
    fn the_key_of_values_is_readable_only_where_values_are() {
        let secret = SecretKey::generate().unwrap();
        let kept = |rules: Rules, recipient: Option<&PublicKey>| {
            let url = "postgres://localhost/app".parse().unwrap();
            let front = Front::Inside(Transactions::Extension);
            let trace = Location::folder("/nowhere");
            let mut options = RecordOptions::new(front, url, trace);
            options.redact = rules;
            options.sealer = recipient.map(|key| Sealer::new(key).unwrap());
            options.values_key().unwrap()
        };
        let (key, plain) = kept(Rules::default(), None).unwrap();
        assert_eq!(plain.open([]), Some(key));
        let (key, sealed) = kept(Rules::defaults(), Some(&secret.public())).unwrap();
        assert_eq!(sealed.open([]), None);
        assert_eq!(sealed.open([&secret]), Some(key));
        assert!(kept(Rules::defaults(), None).is_none());
    }
}
