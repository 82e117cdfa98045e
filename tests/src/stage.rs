//! One test's Postgres, ports, folder and the processes in between.

use std::path::{Path, PathBuf};
use std::process::Command;

use hindcast_cluster::{Cluster, Options};

use crate::{Finished, Process, program, repository};

/// The database that a stage's service works on.
const DATABASE: &str = "app";

/// A private Postgres with one database, and ports for the ingress, the service and the gateway.
///
/// ```text
/// client ──▶ ingress ──▶ service ──▶ gateway ──▶ Postgres
/// ```
pub struct Stage {
    pub cluster: Cluster,
    /// Removed when the test succeeds.
    folder: Option<tempfile::TempDir>,
    pub ingress_port: u16,
    pub service_port: u16,
    pub gateway_port: u16,
}

impl Stage {
    /// # Panics
    /// If Postgres cannot be started or `schema` is wrong.
    pub fn new(name: &str, schema: &str) -> Self {
        Self::with(name, schema, Options::throw_away())
    }

    /// The same on a server with other settings.
    ///
    /// # Panics
    /// Likewise.
    pub fn with(name: &str, schema: &str, options: Options) -> Self {
        let cluster = Cluster::temporary(options)
            .unwrap_or_else(|error| panic!("no private Postgres: {error}"));
        cluster
            .sql("postgres", &format!("CREATE DATABASE {DATABASE}"))
            .expect("a new cluster takes a database");
        cluster
            .sql(DATABASE, schema)
            .unwrap_or_else(|error| panic!("the schema of {name} does not load: {error}"));
        let folder = tempfile::Builder::new()
            .prefix(&format!("hindcast-test-{name}-"))
            .tempdir()
            .expect("a temporary folder can be made");
        Self {
            cluster,
            folder: Some(folder),
            ingress_port: free_port(),
            service_port: free_port(),
            gateway_port: free_port(),
        }
    }

    pub fn folder(&self) -> &Path {
        self.folder
            .as_ref()
            .expect("the folder is there until the stage is dropped")
            .path()
    }

    pub fn trace(&self) -> PathBuf {
        self.folder().join("trace")
    }

    /// Where clients connect: `127.0.0.1:PORT`.
    pub fn ingress(&self) -> String {
        format!("127.0.0.1:{}", self.ingress_port)
    }

    /// The database itself.
    pub fn database_url(&self) -> String {
        self.cluster.url(DATABASE)
    }

    /// The database as the service finds it, recorded or replayed.
    pub fn gateway_url(&self) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/{DATABASE}",
            self.gateway_port
        )
    }

    /// Rows of the database, one a line, columns separated by `|`.
    ///
    /// # Panics
    /// If the query fails.
    #[track_caller]
    pub fn sql(&self, query: &str) -> String {
        self.sql_in(DATABASE, query)
    }

    /// The same in another database of the cluster.
    #[track_caller]
    pub fn sql_in(&self, database: &str, query: &str) -> String {
        self.cluster
            .sql(database, query)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// `hindcast` with arguments, to be started by [`Process::start`] or [`Stage::run`].
    pub fn hindcast<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(program("hindcast"));
        // The environment of whoever runs the tests must not reach them.
        for variable in [
            "HINDCAST_TRACE",
            "HINDCAST_POSTGRES",
            "HINDCAST_KEY",
            "RUST_LOG",
        ] {
            command.env_remove(variable);
        }
        let folder = self.folder();
        command.env("HINDCAST_SECRETS_KEY", folder.join("secrets.key"));
        command.env("NO_COLOR", "1").args(arguments);
        command
    }

    /// Runs `hindcast` with arguments to its end.
    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, name: &str, arguments: &[S]) -> Finished {
        Process::start(name, self.hindcast(arguments), self.folder()).wait()
    }

    /// Starts `hindcast record` in front of the service and behind it, with a base, and waits until
    /// it listens.
    pub fn record(&self, more: &[&str]) -> Process {
        let mut command = self.hindcast(&["record", "--base", "template"]);
        command
            .args(["--listen", &self.ingress()])
            .args(["--app", &format!("http://127.0.0.1:{}", self.service_port)])
            .args(["--pg-listen", &format!("127.0.0.1:{}", self.gateway_port)])
            .args(["--postgres", &self.database_url()])
            .arg("--trace")
            .arg(self.trace())
            .args(more);
        let mut recorder = Process::start("record", command, self.folder());
        recorder.wait_until_it_listens(self.ingress_port);
        recorder
    }

    /// Starts `hindcast record` with a command that starts the service, with `$PORT` and
    /// `$DATABASE_URL`, and waits until that listens.
    pub fn record_inside(&self, more: &[&str], service: &str) -> Process {
        let mut command = self.hindcast(&["record", "--base", "template", "--trace"]);
        command
            .arg(self.trace())
            .args(more)
            .arg("--")
            .arg(repository(service))
            .env("PORT", self.service_port.to_string())
            .env("DATABASE_URL", self.database_url());
        let mut recorder = Process::start("record", command, self.folder());
        recorder.wait_until_it_listens(self.service_port);
        recorder
    }

    /// Replays with the service started as it was recorded from inside.
    pub fn replay_inside(&self, more: &[&str]) -> Finished {
        self.replay_with(&["replay"], more)
    }

    /// Starts a service, a path in the repository, with `$PORT` and `$DATABASE_URL`, and waits
    /// until it listens.
    pub fn service(&self, path: &str) -> Process {
        let mut command = Command::new(repository(path));
        command
            .env("PORT", self.service_port.to_string())
            .env("DATABASE_URL", self.gateway_url());
        self.start_service(command)
    }

    /// Starts a service and waits until it listens.
    pub fn start_service(&self, command: Command) -> Process {
        let mut service = Process::start("service", command, self.folder());
        service.wait_until_it_listens(self.service_port);
        service
    }

    /// The command line by which a replay starts a program as [`Stage::service`] does.
    pub fn app(&self, path: &str) -> String {
        format!(
            "PORT={} DATABASE_URL={} exec {}",
            self.service_port,
            self.gateway_url(),
            repository(path).display()
        )
    }

    /// Replays with a service that this command starts.
    pub fn replay_app(&self, app: &str, more: &[&str]) -> Finished {
        self.replay_with(&["replay", "--app", app], more)
    }

    fn replay_with(&self, arguments: &[&str], more: &[&str]) -> Finished {
        let mut command = self.hindcast(arguments);
        command
            .args(["--postgres", &self.database_url()])
            .arg("--trace")
            .arg(self.trace());
        command
            .arg("--app-log")
            .arg(self.folder().join("replayed-service.log"))
            .args(more);
        Process::start("replay", command, self.folder()).wait()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(folder) = self.folder.take()
        {
            eprintln!("The logs and the trace are in {}", folder.keep().display());
        }
    }
}

/// A port that is free, and no other test's.
pub fn free_port() -> u16 {
    hindcast_cluster::free_port().expect("not all ports are taken")
}
