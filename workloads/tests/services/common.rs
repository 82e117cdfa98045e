//! One private Postgres for all tests of this binary, a database and a service for each.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hindcast_cluster::{Cluster, Options};
use hindcast_workloads::check::check;
use hindcast_workloads::database::DatabaseOptions;
use hindcast_workloads::drive::{Client, HttpCall, Target};
use hindcast_workloads::load::{LoadOptions, load};
use hindcast_workloads::race::RaceOptions;
use hindcast_workloads::service::{Service, Threads, serve};
use hindcast_workloads::{Scale, Variant, Workload};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// Ends with this process. Its log says which database and which `application_name` a statement is
/// of.
pub static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let options = Options::throw_away()
        .set("max_connections", 300)
        .set("log_line_prefix", "%d|%a|")
        .set("log_min_messages", "fatal");
    Cluster::temporary(options).expect("a private Postgres starts")
});

pub const SMALL: f64 = 0.01;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A new empty database; its name and URL.
pub fn database() -> (String, String) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
    CLUSTER
        .sql("postgres", &format!("CREATE DATABASE {name}"))
        .unwrap();
    let url = CLUSTER.url(&name);
    (name, url)
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

pub fn load_options(database_url: &str, scale: f64) -> LoadOptions {
    LoadOptions {
        database_url: database_url.to_owned(),
        scale: Scale::new(scale).unwrap(),
        seed: 1,
        variant: Variant::Original,
        replace: false,
    }
}

/// A service over a database of its own.
pub struct App {
    pub workload: Workload,
    pub target: Target,
    pub database: String,
    pub url: String,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<()>>,
}

impl App {
    pub fn new(workload: Workload) -> Self {
        Self::with(workload, Variant::Original, |_| {})
    }

    pub fn with(
        workload: Workload,
        variant: Variant,
        adjust: impl FnOnce(&mut DatabaseOptions),
    ) -> Self {
        let (database, url) = database();
        let schema = if variant == Variant::Upsert {
            variant
        } else {
            Variant::Original
        };
        runtime()
            .block_on(load(
                workload,
                &LoadOptions {
                    variant: schema,
                    ..load_options(&url, SMALL)
                },
            ))
            .unwrap();
        let mut options = DatabaseOptions::new(&url);
        adjust(&mut options);
        let service = Service::new(workload, variant, &options).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (tell, address) = std::sync::mpsc::channel();
        let server = thread::spawn(move || {
            runtime().block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                serve(listener, service, Threads::Shared, async {
                    _ = stopped.await
                })
                .await
                .unwrap();
            });
        });
        let target = format!("http://{}", address.recv().unwrap())
            .parse()
            .unwrap();
        Self {
            workload,
            target,
            database,
            url,
            stop: Some(stop),
            server: Some(server),
        }
    }

    pub fn client(&self) -> Client {
        Client::new(self.target.clone(), PATIENCE)
    }

    pub fn send(&self, call: &HttpCall) -> (u16, Value) {
        let reply = self.client().send(call).unwrap();
        (reply.status, serde_json::from_slice(&reply.body).unwrap())
    }

    pub fn get(&self, path: &str) -> (u16, Value) {
        self.send(&HttpCall::get(path.to_owned()))
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(&HttpCall::post(path.to_owned(), body))
    }

    /// An answer that must be a success.
    pub fn ok<T: DeserializeOwned>(&self, call: &HttpCall) -> T {
        let (status, body) = self.send(call);
        assert!(status < 300, "{status} {body}");
        serde_json::from_value(body).unwrap()
    }

    pub fn session(&self) -> Session {
        Session::new(&self.url)
    }

    /// All violations of all checks.
    pub fn violations(&self) -> Vec<String> {
        let findings = runtime().block_on(check(self.workload, &self.url)).unwrap();
        findings
            .into_iter()
            .flat_map(|finding| finding.violations)
            .collect()
    }

    pub fn begin_shutdown(&mut self) {
        drop(self.stop.take());
    }

    pub fn await_shutdown(mut self) {
        self.server.take().unwrap().join().unwrap();
    }

    /// What the server was asked to execute in this database while `action` ran:
    /// (`application_name`, text).
    pub fn statements<T>(&self, action: impl FnOnce() -> T) -> (T, Vec<(String, String)>) {
        let read = || std::fs::read(CLUSTER.log_path()).unwrap();
        let before = read().len();
        let result = action();
        let log = String::from_utf8_lossy(&read()[before..]).into_owned();
        let prefix = format!("{}|", self.database);
        // A statement of several lines goes on in lines that begin with a tab.
        let log = log.replace("\n\t", " ");
        let statements = log.lines().filter_map(|line| {
            let (name, message) = line.strip_prefix(&prefix)?.split_once('|')?;
            let text = message.strip_prefix("LOG:  ")?.trim_start();
            let text = match text.strip_prefix("statement: ") {
                Some(text) => text,
                None => text.strip_prefix("execute ")?.split_once(": ")?.1,
            };
            Some((name.to_owned(), text.to_owned()))
        });
        (result, statements.collect())
    }

    /// From now on, sessions of this database log their statements.
    pub fn log_statements(&self) {
        CLUSTER
            .sql(
                "postgres",
                &format!("ALTER DATABASE {} SET log_statement = 'all'", self.database),
            )
            .unwrap();
        CLUSTER
            .sql(
                "postgres",
                &format!(
                    "ALTER DATABASE {} SET log_min_messages = 'log'",
                    self.database
                ),
            )
            .unwrap();
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.begin_shutdown();
        if let Some(server) = self.server.take()
            && let Err(panic) = server.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A session of the test's own.
pub struct Session {
    runtime: Runtime,
    client: tokio_postgres::Client,
}

impl Session {
    pub fn new(url: &str) -> Self {
        let runtime = runtime();
        let (client, connection) = runtime
            .block_on(tokio_postgres::connect(url, tokio_postgres::NoTls))
            .unwrap();
        runtime.spawn(connection);
        Self { runtime, client }
    }

    pub fn run(&self, sql: &str) {
        self.runtime
            .block_on(self.client.batch_execute(sql))
            .unwrap();
    }

    /// The first column of the first row, as text.
    pub fn value(&self, sql: &str) -> String {
        let messages = self
            .runtime
            .block_on(self.client.simple_query(sql))
            .unwrap();
        let row = messages.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => {
                Some(row.get(0).unwrap_or("").to_owned())
            }
            _ => None,
        });
        row.expect("one row")
    }

    /// Asks until the answer is the expected one.
    pub fn await_value(&self, sql: &str, expected: &str) {
        let begun = Instant::now();
        while self.value(sql) != expected {
            assert!(begun.elapsed() < PATIENCE, "{sql} never gave {expected}");
            thread::yield_now();
        }
    }

    /// Keeps everybody else from writing to the table, though not from reading it.
    pub fn forbid_writes(&self, table: &str) {
        self.run(&format!(
            "BEGIN; LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"
        ));
    }

    /// Waits until so many others want to write to the table.
    pub fn await_writers(&self, table: &str, count: usize) {
        let waiting = format!(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{table}'::regclass"
        );
        self.await_value(&waiting, &count.to_string());
    }
}

/// Sends two requests such that both have read, and neither has written, before either goes on.
pub fn race(app: &App, table: &str, call: &HttpCall) -> [(u16, Value); 2] {
    let gate = app.session();
    gate.forbid_writes(table);
    let mut answers = thread::scope(|scope| {
        let requests = [(); 2].map(|()| scope.spawn(|| app.send(call)));
        gate.await_writers(table, 2);
        gate.run("COMMIT");
        requests.map(|request| request.join().unwrap())
    });
    answers.sort_by_key(|(status, _)| *status);
    answers
}

/// For the driver that finds a race by itself.
pub fn race_options(app: &App) -> RaceOptions {
    RaceOptions {
        target: app.target.clone(),
        scale: Scale::new(SMALL).unwrap(),
        seed: 1,
        clients: 2,
        time_max: PATIENCE,
        around: Duration::ZERO,
    }
}
