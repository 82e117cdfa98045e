//! A private server with the extension, sessions in it, and the one that reads the records.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use hindcast_cluster::{Binaries, Cluster, Options};
use hindcast_extension::InstallError;
use hindcast_pg::{ConnectOptions, Connection, Row, Rows};

/// Puts the extension into the folders of the server that tests use, once.
pub fn installed() -> &'static Binaries {
    static INSTALLED: OnceLock<Binaries> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let binaries = Binaries::find().unwrap();
        let pg_config = binaries.program("pg_config");
        let mut done = hindcast_extension::install(&pg_config);
        if let Err(InstallError::Headers { .. }) = done {
            // As `make test` would have done.
            let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/setup");
            assert!(
                Command::new(setup)
                    .arg("headers")
                    .status()
                    .unwrap()
                    .success()
            );
            done = hindcast_extension::install(&pg_config);
        }
        done.unwrap_or_else(|error| panic!("{error}\nHint: {}", error.hint()));
        binaries
    })
}

pub fn options() -> Options {
    installed();
    Options::throw_away().set("max_prepared_transactions", 10)
}

/// A server that records.
pub fn server() -> Cluster {
    server_with(options())
}

pub fn server_with(options: Options) -> Cluster {
    let cluster = Cluster::temporary(options.set("shared_preload_libraries", "hindcast")).unwrap();
    cluster
        .sql("postgres", "CREATE EXTENSION hindcast")
        .unwrap();
    cluster
}

/// Polls until `fact` yields something.
#[track_caller]
pub fn wait_for<T>(what: &str, mut fact: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = fact() {
            return found;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "waited in vain for {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub struct Session {
    pub connection: Connection,
    pub pid: i32,
}

pub fn session(cluster: &Cluster) -> Session {
    session_in(cluster, "postgres")
}

pub fn session_in(cluster: &Cluster, database: &str) -> Session {
    let url = cluster.url(database).to_string().parse().unwrap();
    let connection = Connection::connect(&url, &ConnectOptions::default()).unwrap();
    let pid = connection.process() as i32;
    Session { connection, pid }
}

impl Session {
    #[track_caller]
    pub fn run(&mut self, sql: &str) -> Rows {
        let done = self.connection.query(sql);
        done.unwrap_or_else(|error| panic!("{sql}: {}", full(&error)))
    }

    /// The only value of the only row.
    #[track_caller]
    pub fn one(&mut self, sql: &str) -> String {
        self.run(sql).first().expect("a row").string(0)
    }

    #[track_caller]
    pub fn fails(&mut self, sql: &str) -> String {
        match self.connection.query(sql) {
            Ok(_) => panic!("{sql}: no error"),
            Err(error) => full(&error),
        }
    }
}

/// An error with its causes.
pub fn full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// A record as `hindcast.take` returns it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub epoch: i64,
    pub lost: i64,
    pub database: u32,
    pub pid: i32,
    pub backend_start: String,
    pub backend_type: String,
    pub ordinal: i64,
    pub xid: Option<u64>,
    pub subxids: Vec<u64>,
    pub aborted_subxids: Vec<u64>,
    pub isolation: String,
    pub started: String,
    pub statements: i32,
    pub snapshots: Vec<String>,
    pub snapshot_statements: Vec<i32>,
    pub snapshot_nested: Vec<bool>,
    pub rechecked: Vec<i32>,
    pub ended: String,
    pub end_lsn: Option<String>,
    pub gid: Option<String>,
    pub left_out: i32,
    pub drawn: Vec<String>,
}

impl Record {
    fn read(row: &Row) -> Self {
        Self {
            epoch: row.get("epoch"),
            lost: row.get("lost"),
            database: row.get("database"),
            pid: row.get::<i64>("pid") as i32,
            backend_start: row.get("backend_start"),
            backend_type: row.get("backend_type"),
            ordinal: row.get("ordinal"),
            xid: row.get("xid"),
            subxids: row.get("subxids"),
            aborted_subxids: row.get("aborted_subxids"),
            isolation: row.get("isolation"),
            started: row.get("started"),
            statements: row.get("statements"),
            snapshots: row.get("snapshots"),
            snapshot_statements: row.get("snapshot_statements"),
            snapshot_nested: row.get("snapshot_nested"),
            rechecked: row.get("rechecked"),
            ended: row.get("ended"),
            end_lsn: row.get("end_lsn"),
            gid: row.get("gid"),
            left_out: row.get("left_out"),
            drawn: row.get("drawn"),
        }
    }
}

impl Session {
    pub fn take(&mut self) -> Vec<Record> {
        let rows = self.run("SELECT * FROM hindcast.take()");
        rows.iter().map(Record::read).collect()
    }

    /// What was recorded of another session.
    pub fn take_of(&mut self, pid: i32) -> Vec<Record> {
        let mut records = self.take();
        records.retain(|record| record.pid == pid);
        records
    }
}

/// A session that has made itself the reader; it is not recorded.
pub fn reader(cluster: &Cluster) -> Session {
    let mut reader = session(cluster);
    reader.take();
    reader
}
