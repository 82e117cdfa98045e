//! A whole recording on a stage: a service, its database, and what the trace says afterwards.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hindcast_cluster::{Cluster, Options};
use hindcast_gateway::ListenAddress;
use hindcast_gateway::record::{self, Front, RecordOptions, Recording, Summary};
use hindcast_trace::{
    GapCause, Location, Request, RequestFilter, Trace, Transaction, TransactionFilter,
};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::*;

/// A database, a service in front of it, and a recording of both.
pub struct Stage {
    pub cluster: Cluster,
    pub recording: Recording,
    pub folder: tempfile::TempDir,
}

/// What a service of the tests does with a request: the traceparent it got, and a session through
/// the gateway.
pub type Handler =
    fn(String, tokio_postgres::Client) -> futures::future::BoxFuture<'static, String>;

pub const SCHEMA: &str = "CREATE TABLE note (id serial PRIMARY KEY, text text NOT NULL UNIQUE); \
                      CREATE TABLE seen (xid xid8); \
                      CREATE TABLE counter (k int PRIMARY KEY, n int); \
                      INSERT INTO counter SELECT k, 0 FROM generate_series(1, 10) k; \
                      CREATE ROLE app LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO app; \
                      GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO app";

impl Stage {
    pub async fn new() -> Self {
        Self::on(Self::server()).await
    }

    /// A server of which what was committed survives its death, or it would give out the same ids
    /// again.
    pub fn server() -> Options {
        Options::throw_away().set("synchronous_commit", "on")
    }

    pub async fn on(server: Options) -> Self {
        Self::of(server, |_, _| Box::pin(async { String::new() }), |_| {}).await
    }

    pub async fn with(handler: Handler, change: impl FnOnce(&mut RecordOptions)) -> Self {
        Self::of(Self::server(), handler, change).await
    }

    async fn of(
        server: Options,
        handler: Handler,
        change: impl FnOnce(&mut RecordOptions),
    ) -> Self {
        let cluster = cluster_with(server).await;
        cluster.sql("postgres", SCHEMA).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let database = Arc::new(OnceLock::new());
        let service = service(handler, Arc::clone(&database)).await;
        let mut options = options(&cluster.url("postgres"), service, folder.path());
        change(&mut options);
        let recording = record::start(options).await.unwrap();
        database
            .set(recording.started().pg_listen.clone().unwrap())
            .unwrap();
        Self {
            cluster,
            recording,
            folder,
        }
    }

    pub fn pg(&self) -> &ListenAddress {
        self.recording.started().pg_listen.as_ref().unwrap()
    }

    pub async fn request(&self, path: &str) -> String {
        let port = port_of(self.recording.started().listen.as_ref().unwrap());
        let output = run(
            "curl",
            &[
                "-sS",
                "--max-time",
                "25",
                &format!("http://127.0.0.1:{port}{path}"),
            ],
        )
        .await;
        String::from_utf8(output.stdout).unwrap()
    }

    /// Stops the recording and reads what it left.
    pub async fn end(self) -> (Summary, Recorded) {
        let summary = self.recording.stop().await;
        let recorded = Recorded::read(self.folder.path()).await;
        (summary, recorded)
    }
}

pub fn options(postgres: &str, service: u16, folder: &Path) -> RecordOptions {
    let mut options = RecordOptions::new(
        Front::proxies_of(
            any_port(),
            format!("http://127.0.0.1:{service}").parse().unwrap(),
            any_port(),
        ),
        postgres.parse().unwrap(),
        Location::folder(folder.join("trace")),
    );
    options.writer.flush_interval = Duration::from_millis(50);
    options.drain = Duration::from_secs(5);
    options
}

pub async fn service(handler: Handler, database: Arc<OnceLock<ListenAddress>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let database = Arc::clone(&database);
            let service = hyper::service::service_fn(
                move |request: hyper::Request<hyper::body::Incoming>| {
                    let database = Arc::clone(&database);
                    async move {
                        let traceparent = request.headers()["traceparent"]
                            .to_str()
                            .unwrap()
                            .to_owned();
                        let client = connect(database.get().unwrap(), "app").await;
                        let answer = handler(traceparent, client).await;
                        Ok::<_, Infallible>(hyper::Response::new(Full::new(bytes::Bytes::from(
                            answer,
                        ))))
                    }
                },
            );
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    port
}

/// A trace, read whole.
pub struct Recorded {
    pub requests: Vec<Request>,
    pub transactions: Vec<Transaction>,
    pub gaps: Vec<GapCause>,
    pub shapes: HashMap<u32, Vec<String>>,
    pub trace: Trace,
}

impl Recorded {
    pub async fn read(folder: &Path) -> Self {
        let location = Location::folder(folder.join("trace"));
        tokio::task::spawn_blocking(move || {
            let trace = Trace::open(&location).unwrap();
            let requests = trace
                .requests(RequestFilter::default())
                .collect::<Result<_, _>>()
                .unwrap();
            let mut transactions: Vec<Transaction> = trace
                .transactions(TransactionFilter::default())
                .collect::<Result<_, _>>()
                .unwrap();
            transactions.sort_by_key(|transaction| transaction.id);
            Self {
                requests,
                transactions,
                gaps: trace.gaps().iter().map(|gap| gap.cause.clone()).collect(),
                shapes: trace
                    .shapes()
                    .iter()
                    .map(|shape| (shape.id.0, shape.statements.clone()))
                    .collect(),
                trace,
            }
        })
        .await
        .unwrap()
    }

    pub fn text(&self, transaction: &Transaction) -> String {
        self.shapes[&transaction.shape.0].join("; ")
    }

    /// The transactions with these words in one of their statements.
    pub fn about(&self, words: &str) -> Vec<&Transaction> {
        self.transactions
            .iter()
            .filter(|transaction| self.text(transaction).contains(words))
            .collect()
    }

    pub fn only(&self, words: &str) -> &Transaction {
        match &self.about(words)[..] {
            [one] => one,
            found => panic!(
                "{} transactions with {words:?} among {:?}",
                found.len(),
                self.shapes
            ),
        }
    }

    pub fn unaccounted(&self) -> Vec<u64> {
        let causes = self.gaps.iter().filter_map(|cause| match cause {
            GapCause::Unaccounted { xids, .. } => Some(xids.iter().map(|xid| xid.0)),
            _ => None,
        });
        causes.flatten().collect()
    }
}
