//! Records a service: both sides of the gateway, the trace, and what has to be asked of the server besides.
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
//! Start reading at [`start`]; `session` turns what the observer of one session says into records, `sink` is where everything
//! meets, `settle` finds out who is missing.

mod catalog;
mod error;
mod requests;
mod session;
mod settle;
mod sink;
mod status;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hindcast_trace::{
    Base, FinalState, Isolation, Location, Record, Recorder, Writer, WriterOptions,
};
use hindcast_wire::sql::ScriptCache;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub use error::RecordError;
pub use status::Status;

use crate::http::{Ingress, IngressOptions, Limits, ServiceUrl, Witness, with_causes};
use crate::listen::{ListenAddress, Listener};
use crate::pg::{Connector, DatabaseUrl, Server, ServerHandle, ServerIdentity, ServerOptions};
use catalog::{Catalog, ServerFacts};
use session::RecordingHost;
use settle::{Settler, Start};
use sink::Sink;

/// A database below this size gets its final state recorded without being asked for it.
const FINAL_STATE_BYTES_MAX: i64 = 1 << 30;

/// What to record, and where.
#[derive(Debug)]
pub struct RecordOptions {
    pub listen: ListenAddress,
    pub service: ServiceUrl,
    /// Speak HTTP/2 with the service.
    pub service_http2: bool,
    pub pg_listen: ListenAddress,
    pub postgres: DatabaseUrl,
    /// Certificate and key, in PEM, for database clients that ask for TLS.
    pub pg_identity: Option<(PathBuf, PathBuf)>,
    pub trace: Location,
    pub writer: WriterOptions,
    pub limits: Limits,
    /// Sessions that do not choose an isolation level get REPEATABLE READ.
    pub raise_isolation: bool,
    /// A state that a replay can start from, taken before this recording began.
    pub base: Option<Base>,
    pub final_state: FinalStateMode,
    /// How long requests and transactions in flight may take to end at a shutdown.
    pub drain: Duration,
    pub runtimes: Runtimes,
}

impl RecordOptions {
    /// With the defaults for everything that has one.
    pub fn new(
        listen: ListenAddress,
        service: ServiceUrl,
        pg_listen: ListenAddress,
        postgres: DatabaseUrl,
        trace: Location,
    ) -> Self {
        Self {
            listen,
            service,
            service_http2: false,
            pg_listen,
            postgres,
            pg_identity: None,
            trace,
            writer: WriterOptions::default(),
            limits: Limits::default(),
            raise_isolation: false,
            base: None,
            final_state: FinalStateMode::Auto,
            drain: Duration::from_secs(30),
            runtimes: Runtimes::default(),
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
    /// On as many threads of our own, each with a runtime of its own: a session never moves between cores, and no
    /// thread looks for work at another.
    PerCore(usize),
}

impl Default for Runtimes {
    /// A thread per core: about a tenth cheaper per message than a runtime that balances between cores.
    fn default() -> Self {
        Self::PerCore(std::thread::available_parallelism().map_or(1, usize::from))
    }
}

/// A recording that goes on.
pub struct Recording {
    sink: Arc<Sink>,
    writer: Writer,
    connector: Arc<Connector>,
    ingress: Ingress,
    postgres: Server<RecordingHost>,
    settler: (oneshot::Sender<()>, JoinHandle<()>),
    catalog: JoinHandle<()>,
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
    pub listen: ListenAddress,
    pub pg_listen: ListenAddress,
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
pub async fn start(options: RecordOptions) -> Result<Recording, RecordError> {
    let connector = Arc::new(Connector::new(options.postgres.clone())?);
    let identity = match &options.pg_identity {
        Some((certificate, key)) => Some(ServerIdentity::load(certificate, key)?),
        None => None,
    };
    let unreachable = |error| RecordError::database(&options.postgres, error);
    let control = connector
        .control("hindcast: catalog")
        .await
        .map_err(unreachable)?;
    let accounting = connector
        .control("hindcast: accounting")
        .await
        .map_err(unreachable)?;
    let asked = |error| RecordError::question(&options.postgres, error);
    let facts = ServerFacts::ask(&control).await.map_err(asked)?;
    if facts.is_too_old() {
        return Err(RecordError::TooOld {
            version: facts.version,
        });
    }
    if facts.standby {
        return Err(RecordError::Standby {
            url: options.postgres.to_string(),
        });
    }

    let catalog = Catalog::read(&control).await.map_err(asked)?;

    // Ports before the trace: a start that fails leaves no recorder behind in it.
    let http_listener = Listener::bind(&options.listen).await?;
    let pg_listener = Listener::bind(&options.pg_listen).await?;
    let (location, writer_options) = (options.trace.clone(), options.writer.clone());
    let created =
        tokio::task::spawn_blocking(move || Writer::create(&location, writer_options)).await;
    let (writer, number) = created.expect("creating a trace does not panic")?;

    let trace_id_prefix = requests::random().max(1);
    let sink = Arc::new(Sink::new(
        writer.clone(),
        number,
        trace_id_prefix,
        options.writer.durable,
    ));
    sink.catalog_read(0, Some(catalog));
    let (listen, pg_listen) = (http_listener.address(), pg_listener.address());
    let recorder = Recorder {
        number,
        started: sink.now(),
        trace_id_prefix,
        listen: listen.to_string(),
        app: options.service.to_string(),
        pg_listen: pg_listen.to_string(),
        postgres: options.postgres.to_string(),
        database: facts.database.clone(),
        server_version: facts.version.clone(),
        system_identifier: facts.system_identifier,
        raised_isolation: options.raise_isolation.then_some(Isolation::RepeatableRead),
        hindcast_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    sink.record(Record::Recorder(recorder.clone()));
    // Accounting starts where a replay would: what was committed since the base was taken must be known.
    let since = options
        .base
        .as_ref()
        .map_or(&facts.snapshot, |base| &base.snapshot);
    let accounting_start = Start {
        bound: since.xmax,
        in_progress: since.in_progress.clone(),
    };
    if let Some(base) = options.base {
        sink.record(Record::Base(base));
    }

    let mut warnings = Vec::new();
    if let Err(error) = options.service.connect().await {
        warnings.push(format!(
            "the service at {} cannot be reached yet: {error}",
            options.service
        ));
    }
    let threads = Threads::start(options.runtimes);
    let host = RecordingHost {
        sink: Arc::clone(&sink),
        scripts: Arc::new(ScriptCache::default()),
        database: facts.database,
        raise_isolation: options.raise_isolation,
    };
    let postgres = Server::serve(
        pg_listener,
        ServerOptions {
            listen: options.pg_listen,
            identity,
            runtimes: threads.handles.clone(),
        },
        Arc::clone(&connector),
        Arc::new(host),
    );
    let ingress = Ingress::serve(
        http_listener,
        IngressOptions {
            listen: options.listen,
            service: options.service,
            service_http2: options.service_http2,
            limits: options.limits,
            runtimes: threads.handles.clone(),
        },
        Arc::clone(&sink) as Arc<dyn Witness>,
    );
    let settler = Settler::new(
        Arc::clone(&connector),
        accounting,
        Arc::clone(&sink),
        accounting_start,
    );
    let (stop_settler, stopped) = oneshot::channel();
    let settler = tokio::spawn(settler.run(options.writer.flush_interval, stopped));
    let catalog = tokio::spawn(catalog::keep_current(
        control,
        Arc::clone(&connector),
        Arc::clone(&sink),
    ));
    Ok(Recording {
        sink,
        writer,
        connector,
        ingress,
        postgres,
        settler: (stop_settler, settler),
        catalog,
        threads,
        started: Started {
            recorder,
            listen,
            pg_listen,
            warnings,
        },
        final_state: options.final_state,
        drain: options.drain,
    })
}

impl Recording {
    pub fn started(&self) -> &Started {
        &self.started
    }

    pub fn status(&self) -> Status {
        self.sink.status()
    }

    /// A way to read the status while somebody else owns the recording.
    pub fn watch(&self) -> StatusReader {
        StatusReader {
            sink: Arc::clone(&self.sink),
        }
    }

    pub fn sessions(&self) -> ServerHandle {
        self.postgres.handle()
    }

    /// Lets what is in flight end, settles what is open, records the final state, and closes the trace.
    pub async fn stop(self) -> Summary {
        // Requests first: they need their database sessions.
        self.ingress.shut_down(self.drain).await;
        let requests_cut_off = self.sink.requests().in_flight();
        let sessions_cut_off = self.postgres.shut_down(self.drain).await;
        self.catalog.abort();
        let (stop, settler) = self.settler;
        let _ = stop.send(());
        let _ = settler.await;

        let quiet = requests_cut_off == 0 && sessions_cut_off == 0;
        let final_state = match (quiet, self.final_state) {
            (_, FinalStateMode::Never) => Err("not asked for".to_owned()),
            (false, _) => Err("something was still in flight".to_owned()),
            (true, mode) => final_state(&self.connector, &self.sink, mode).await,
        };
        if let Ok(state) = &final_state {
            self.sink.record(Record::FinalState(state.clone()));
        }
        let writer = self.writer;
        let closed = tokio::task::spawn_blocking(move || writer.close())
            .await
            .expect("closing a trace does not panic");
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
            closed: closed.map(|_| ()),
        }
    }
}

/// Reads the counters of a [`Recording`].
#[derive(Clone)]
pub struct StatusReader {
    sink: Arc<Sink>,
}

impl StatusReader {
    pub fn read(&self) -> Status {
        self.sink.status()
    }
}

async fn final_state(
    connector: &Connector,
    sink: &Sink,
    mode: FinalStateMode,
) -> Result<FinalState, String> {
    let control = connector
        .control("hindcast: final state")
        .await
        .map_err(|error| error.to_string())?;
    let bytes = catalog::database_bytes(&control)
        .await
        .map_err(|error| with_causes(&error))?;
    if mode == FinalStateMode::Auto && bytes >= FINAL_STATE_BYTES_MAX {
        let gib = bytes >> 30;
        return Err(format!(
            "the database has {gib} GiB; ask for it if it is worth reading all of that"
        ));
    }
    let taken = sink.now();
    let tables = hindcast_rewind::state::digest_tables(&control)
        .await
        .map_err(|error| with_causes(&error))?;
    Ok(FinalState { taken, tables })
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
