//! A small service that is recorded through the real recorder and replayed through the real replay,
//! all in one process.
//!
//! ```text
//!   recording:  Stage::request ─▶ ingress ─▶ handler ─▶ recording gateway ─▶ Postgres
//!   replay:     re-sender ─────────────────▶ handler ─▶ holding gateway ───▶ rewound clone
//! ```
//!
//! While it is recorded, a handler can wait for its *turn*, so that a test chooses which race it
//! records. In the replay turns are not waited for: it is the replay that has to bring the race
//! about again.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use hindcast_cluster::{Cluster, Options};
use hindcast_gateway::ListenAddress;
use hindcast_gateway::record::{self, Front, RecordOptions};
use hindcast_pg::DatabaseUrl;
use hindcast_replay::compare::Ignore;
use hindcast_replay::place::Place;
use hindcast_replay::sender::{Pace, Sent};
use hindcast_replay::verdict::Remark;
use hindcast_replay::{Hooks, Plan, ReplayOptions, Setting, Start, Verdict, restore};
use hindcast_rewind::pins::Pinned;
use hindcast_rewind::{Rewound, take_template};
use hindcast_trace::{Id, Location, RequestId, Trace};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_postgres::SimpleQueryMessage;

/// Long enough for a slow machine; a test that needs it has failed.
pub const PATIENCE: Duration = Duration::from_secs(40);

const SCHEMA: &str = "
    CREATE TABLE claim (k int, who text);
    CREATE TABLE taken (k int PRIMARY KEY, who text);
    CREATE TABLE serial (id serial PRIMARY KEY, who text);
    CREATE TABLE counter (k int PRIMARY KEY, n int);
    INSERT INTO counter SELECT k, 0 FROM generate_series(1, 10) k;
    CREATE SCHEMA other;
    CREATE TABLE other.note (text text);
    CREATE TABLE later (k int PRIMARY KEY, next int REFERENCES later DEFERRABLE INITIALLY DEFERRED);
    CREATE TABLE note (text text, at timestamptz DEFAULT now());";

pub type Handler = fn(Call) -> BoxFuture<'static, Result<String, tokio_postgres::Error>>;

/// One request at the service.
#[derive(Clone)]
pub struct Call {
    pub path: String,
    traceparent: String,
    pub world: Arc<World>,
}

/// What all requests of a service share.
pub struct World {
    database: OnceLock<ListenAddress>,
    pub replaying: bool,
    turn: watch::Sender<u32>,
}

impl World {
    pub fn new(replaying: bool) -> Arc<Self> {
        Arc::new(Self {
            database: OnceLock::new(),
            replaying,
            turn: watch::Sender::new(0),
        })
    }

    pub fn set_database(&self, address: &ListenAddress) {
        self.database
            .set(address.clone())
            .expect("it is there once");
    }

    /// Waits, while being recorded, until it is this turn.
    pub async fn turn(&self, number: u32) {
        if !self.replaying {
            let mut turns = self.turn.subscribe();
            turns
                .wait_for(|&now| now >= number)
                .await
                .expect("the world goes on");
        }
    }

    /// Ends a turn.
    pub fn next(&self) {
        self.turn.send_modify(|turn| *turn += 1);
    }

    /// Waits, while being recorded, for as many as `count` to have come here.
    pub async fn meet(&self, count: u32) {
        self.next();
        self.turn(count).await;
    }

    /// A session of the service.
    pub async fn connect(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let mut config = tokio_postgres::Config::new();
        config.user("postgres").dbname("app");
        match self.database.get().expect("the database is known by now") {
            ListenAddress::Tcp { port, .. } => config.host("127.0.0.1").port(*port),
            ListenAddress::Unix(path) => config
                .host_path(path.parent().expect("a folder"))
                .port(5432),
        };
        let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(client)
    }
}

impl Call {
    /// A statement that says whose it is.
    pub fn sql(&self, text: &str) -> String {
        format!("{text} /*traceparent='{}'*/", self.traceparent)
    }

    pub async fn session(&self) -> Result<Session, tokio_postgres::Error> {
        Ok(Session {
            client: self.world.connect().await?,
            call: self.clone(),
        })
    }

    pub async fn turn(&self, number: u32) {
        self.world.turn(number).await;
    }
}

/// A database session of one request. Plain statements use the simple protocol.
pub struct Session {
    pub client: tokio_postgres::Client,
    call: Call,
}

impl Session {
    /// The first column of the first row, if there is one.
    pub async fn run(&self, text: &str) -> Result<String, tokio_postgres::Error> {
        let messages = self.client.simple_query(&self.call.sql(text)).await?;
        Ok(messages
            .iter()
            .find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            })
            .unwrap_or_default())
    }

    /// The same in the extended protocol, prepared first.
    pub async fn prepared(&self, text: &str) -> Result<String, tokio_postgres::Error> {
        let statement = self.client.prepare(&self.call.sql(text)).await?;
        let rows = self.client.query(&statement, &[]).await?;
        Ok(rows
            .first()
            .map(|row| row.get::<_, String>(0))
            .unwrap_or_default())
    }
}

/// Serves on any port; returns it.
pub async fn serve(handler: Handler, world: Arc<World>) -> (u16, tokio::task::JoinHandle<()>) {
    serve_on(
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        handler,
        world,
    )
}

pub fn serve_on(
    listener: TcpListener,
    handler: Handler,
    world: Arc<World>,
) -> (u16, tokio::task::JoinHandle<()>) {
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        // Connections end with the service.
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let world = Arc::clone(&world);
            let service = hyper::service::service_fn(
                move |request: hyper::Request<hyper::body::Incoming>| {
                    let call = Call {
                        path: request.uri().path().to_owned(),
                        traceparent: request.headers()["traceparent"]
                            .to_str()
                            .unwrap()
                            .to_owned(),
                        world: Arc::clone(&world),
                    };
                    async move {
                        let (status, body) = match handler(call).await {
                            Ok(body) => (200, body),
                            Err(error) => match error.code() {
                                Some(code) => (409, code.code().to_owned()),
                                None => (500, error.to_string()),
                            },
                        };
                        let mut response = hyper::Response::new(Full::new(Bytes::from(body)));
                        *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
                        Ok::<_, Infallible>(response)
                    }
                },
            );
            connections.spawn(async move {
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    (port, serving)
}

/// A service that is being recorded.
pub struct Stage {
    pub cluster: Cluster,
    pub recording: record::Recording,
    pub world: Arc<World>,
    handler: Handler,
    folder: tempfile::TempDir,
}

impl Stage {
    pub async fn new(handler: Handler) -> Self {
        Self::with(handler, |_| {}).await
    }

    pub async fn with(handler: Handler, change: impl FnOnce(&mut RecordOptions)) -> Self {
        let cluster = Cluster::temporary_async(Options::throw_away())
            .await
            .unwrap();
        cluster.sql("postgres", "CREATE DATABASE app").unwrap();
        cluster.sql("app", SCHEMA).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let world = World::new(false);
        let (port, _) = serve(handler, Arc::clone(&world)).await;
        let url: DatabaseUrl = cluster.url("app").parse().unwrap();
        let mut options = RecordOptions::new(
            Front::proxies_of(
                any_port(),
                format!("http://127.0.0.1:{port}").parse().unwrap(),
                any_port(),
            ),
            url.clone(),
            Location::folder(folder.path().join("trace")),
        );
        options.writer.flush_interval = Duration::from_millis(50);
        options.raise_isolation = true;
        options.base = Some(take_template(&url).await.unwrap());
        options.drain = Duration::from_secs(5);
        options.runtimes = record::Runtimes::Shared;
        change(&mut options);
        let recording = record::start(options).await.unwrap();
        world.set_database(recording.started().pg_listen.as_ref().unwrap());
        Self {
            cluster,
            recording,
            world,
            handler,
            folder,
        }
    }

    /// Sends a request and returns its answer, as `200 body`.
    pub fn request(&self, path: &str) -> impl Future<Output = String> + Send + 'static {
        let ListenAddress::Tcp { port, .. } = self.recording.started().listen.as_ref().unwrap()
        else {
            panic!("the ingress listens on a port")
        };
        let uri = format!("http://127.0.0.1:{port}{path}");
        async move {
            let http: HttpClient<_, Full<Bytes>> =
                HttpClient::builder(TokioExecutor::new()).build_http();
            let answer = http.get(uri.parse().unwrap()).await.unwrap();
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            format!("{status} {}", String::from_utf8_lossy(&body))
        }
    }

    /// Sends requests at once; their answers in the same order.
    pub async fn at_once(&self, paths: &[&str]) -> Vec<String> {
        futures::future::join_all(paths.iter().map(|path| self.request(path))).await
    }

    /// Sends a request and waits until it has ended `turns` turns.
    pub async fn begin(&self, path: &str, turns: u32) -> tokio::task::JoinHandle<String> {
        let request = tokio::spawn(self.request(path));
        self.world.turn(turns).await;
        request
    }

    /// A session through the recorder that belongs to no request.
    pub async fn stranger(&self) -> tokio_postgres::Client {
        self.world.connect().await.unwrap()
    }

    pub async fn stop(self) -> Recorded {
        let summary = self.recording.stop().await;
        summary.closed.unwrap();
        Recorded {
            cluster: self.cluster,
            handler: self.handler,
            folder: self.folder,
        }
    }
}

/// A recording on disk, and the server that holds its base.
pub struct Recorded {
    pub cluster: Cluster,
    handler: Handler,
    pub folder: tempfile::TempDir,
}

/// A replay that is about to run.
pub struct Prepared {
    pub trace: Arc<Trace>,
    pub plan: Plan,
    pub options: ReplayOptions,
    pub rewound: Rewound,
    pub hooks: Watcher,
}

impl Recorded {
    pub async fn replay(&self) -> Verdict {
        self.replay_with(|_| {}).await
    }

    pub async fn replay_with(&self, change: impl FnOnce(&mut ReplayOptions)) -> Verdict {
        let mut prepared = self.prepare(None, None).await;
        change(&mut prepared.options);
        prepared.run().await
    }

    pub async fn replay_range(&self, from: u64, to: u64) -> Verdict {
        let prepared = self.prepare(Some(Id(from)), Some(Id(to))).await;
        prepared.run().await
    }

    pub async fn prepare(&self, from: Option<RequestId>, to: Option<RequestId>) -> Prepared {
        let location = Location::folder(self.folder.path().join("trace"));
        let trace = tokio::task::spawn_blocking(move || Trace::open(&location).unwrap())
            .await
            .unwrap();
        let start = Start::choose(&trace, from, to).unwrap();
        let mut rewinding = hindcast_rewind::Options::new("app");
        rewinding.server = Some(self.cluster.url("app").parse().unwrap());
        let (rewound, pinned) = restore(&trace, &start, &rewinding).await.unwrap();
        let world = World::new(true);
        let (port, serving) = serve(self.handler, Arc::clone(&world)).await;
        let mut setting = Setting {
            service_command: None,
            launch: None,
            service: Place::Tcp(format!("http://127.0.0.1:{port}").parse().unwrap()),
            service_log: self.folder.path().join("service.log"),
            pg_listen: any_port(),
            database: rewound.url().clone(),
            pinned: Pinned::default(),
            allow_outside_writes: false,
            isolation: None,
            stall_timeout: Duration::from_millis(1500),
            ready: None,
            pace: Pace::Max,
            debug_wait: None,
        };
        setting.use_database(rewound.url().clone(), &pinned);
        let options = ReplayOptions {
            setting,
            sequential: false,
            keep_going: false,
            ignore: Ignore::default(),
            compare_with: None,
            recorded_database: None,
            values: true,
        };
        Prepared {
            trace: Arc::new(trace),
            plan: start.plan,
            options,
            rewound,
            hooks: Watcher {
                world,
                serving: Some(serving),
                outside: None,
                database: None,
            },
        }
    }
}

impl Prepared {
    pub async fn run(mut self) -> Verdict {
        let replay = hindcast_replay::run(self.trace, self.plan, self.options, &mut self.hooks);
        let verdict = tokio::time::timeout(PATIENCE, replay)
            .await
            .expect("a replay ends with a verdict")
            .unwrap();
        drop(self.hooks);
        self.rewound.discard().await.unwrap();
        verdict
    }
}

/// Starts the service of a replay, and ends it when dropped.
pub struct Watcher {
    pub world: Arc<World>,
    pub serving: Option<tokio::task::JoinHandle<()>>,
    /// What the service does outside of any request, when it starts.
    pub outside: Option<&'static str>,
    pub database: Option<ListenAddress>,
}

impl Hooks for Watcher {
    async fn ready(&mut self, database: &ListenAddress) {
        self.database = Some(database.clone());
        self.world.set_database(database);
        if let Some(statement) = self.outside {
            let session = self.world.connect().await.unwrap();
            let _ = session.batch_execute(statement).await;
        }
    }
    fn progress(&mut self, _sent: Sent) {}
    async fn debug_wait(&mut self, _request: RequestId, _process_group: Option<u32>) {}
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

pub fn any_port() -> ListenAddress {
    "127.0.0.1:0".parse().unwrap()
}

#[track_caller]
pub fn assert_faithful(verdict: &Verdict) {
    assert!(verdict.faithful, "{verdict:#?}");
    assert!(
        matches!(
            verdict.final_state,
            hindcast_replay::verdict::FinalState::Same { .. }
                | hindcast_replay::verdict::FinalState::NotCompared {
                    reason: hindcast_replay::verdict::NotCompared::RangeEndsBefore
                }
        ),
        "{verdict:#?}"
    );
}

pub fn remark(verdict: &Verdict, is: impl Fn(&Remark) -> bool) -> bool {
    verdict.remarks.iter().any(is)
}
