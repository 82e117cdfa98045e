//! Private Postgres servers: for tests, for the demo, and for point-in-time recovery.
//!
//! ```no_run
//! # use hindcast_cluster::{Cluster, Options};
//! let cluster = Cluster::temporary(Options::throw_away())?;
//! cluster.sql("postgres", "CREATE TABLE t (k int PRIMARY KEY)")?;
//! println!("{}", cluster.url("postgres"));
//! # Ok::<(), hindcast_cluster::ClusterError>(())
//! ```
//!
//! A cluster lives in one folder:
//!
//! ```text
//! FOLDER/data             what initdb or a restored backup put there
//!       /postgresql.conf  written by us at every start; the data folder's own file is not read
//!       /pg_hba.conf      likewise
//!       /server.log
//!       /.s.PGSQL.PORT    the unix socket, unless the path would be too long for one
//! ```
//!
//! The API blocks; [`Cluster::temporary_async`] and [`Cluster::connect`] are for async callers.
//! Dropping a cluster blocks for the few milliseconds that an immediate shutdown takes.
//!
//! **What this crate does not do**: it never touches a server that it did not start, and it
//! installs no Postgres; [`Binaries`] finds one.
//!
//! **Where to start reading**: [`Cluster::start`], then `supervise.sh`.
//!
//! **The invariant to keep**: no server outlives the process that started it, unless
//! [`Cluster::leave_running`] says so. A small shell process stands between us and the server and
//! holds the read end of a pipe. When the write end closes, even by SIGKILL, the shell stops the
//! server, and a second one removes a temporary folder ([`Scratch`]). `PR_SET_PDEATHSIG` would not
//! do: it fires when the *thread* that started the server ends.

mod binaries;
mod port;
mod scratch;

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use hindcast_pg::tokio::Client;
use hindcast_pg::{Address, ConnectError, ConnectOptions, DatabaseUrl};

pub use binaries::{Binaries, RunAs};
pub use port::free_port;
pub use scratch::{Scratch, supervised};

/// How a cluster is initialised and run. The default is durable, reachable over TCP on 127.0.0.1
/// and a unix socket, and trusts everybody who can reach it.
#[derive(Clone, Debug)]
pub struct Options {
    /// `None`: [`Binaries::find`], or for an existing data folder the version that it needs.
    pub binaries: Option<Binaries>,
    /// `None`: any free port, a new one at every start.
    pub port: Option<u16>,
    /// Lines of `postgresql.conf`; later ones win.
    pub settings: Vec<(String, String)>,
    /// The content of `pg_hba.conf`.
    pub hba: String,
    /// For `initdb`.
    pub locale: String,
    /// How long a start may take before it counts as failed. Recovery of a large backup needs
    /// more.
    pub start_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            binaries: None,
            port: None,
            settings: Vec::new(),
            hba:
                "local all all trust\nhost all all 127.0.0.1/32 trust\nhost all all ::1/128 trust\n\
                  local replication all trust\nhost replication all 127.0.0.1/32 trust\n"
                    .to_owned(),
            locale: "C".to_owned(),
            start_timeout: Duration::from_secs(60),
        }
    }
}

impl Options {
    /// For data that nobody will miss: no fsync, little memory.
    pub fn throw_away() -> Self {
        Self::default()
            .set("fsync", "off")
            .set("synchronous_commit", "off")
            .set("full_page_writes", "off")
            .set("shared_buffers", "64MB")
            // Nobody wants a checkpoint of a throw-away database to disturb a measurement.
            .set("checkpoint_timeout", "1h")
            .set("max_wal_size", "4GB")
    }

    /// Adds a line to `postgresql.conf`.
    pub fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }
}

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Sessions are ended, a checkpoint is written.
    Fast,
    /// As if the machine had lost power; the next start recovers.
    Immediate,
}

/// One private Postgres server, running or not.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    /// Removes the folder when dropped, for temporary clusters.
    temporary: Option<Scratch>,
    /// Where the unix socket is when `folder` is too long for one.
    short_folder: Option<tempfile::TempDir>,
    binaries: Binaries,
    run_as: RunAs,
    options: Options,
    port: u16,
    server: Option<Server>,
}

#[derive(Debug)]
struct Server {
    /// The shell of `supervise.sh`, which ends when the server ends.
    supervisor: Child,
    pid: u32,
}

/// Why a private server could not be made, started or asked.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("no Postgres server programs found{}", looked_in(looked))]
    NotFound { looked: Vec<PathBuf> },
    #[error("no programs of Postgres {major} found{}", looked_in(looked))]
    VersionNotFound { major: u32, looked: Vec<PathBuf> },
    #[error(
        "Postgres refuses to run as root, and there is neither a user `postgres` nor a user `nobody`"
    )]
    NoUnprivilegedUser,
    #[error("cannot run {} as {user}", program.display())]
    Spawn {
        program: PathBuf,
        user: String,
        source: std::io::Error,
    },
    #[error("cannot use the folder {}", path.display())]
    Folder {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} already holds a database cluster", folder.display())]
    AlreadyInitialised { folder: PathBuf },
    #[error("{} holds no database cluster", folder.display())]
    NotInitialised { folder: PathBuf },
    #[error("initdb failed in {}:\n{output}", folder.display())]
    Initialise {
        folder: PathBuf,
        user: String,
        output: String,
    },
    #[error("port {port} on 127.0.0.1 is taken")]
    PortTaken { port: u16 },
    #[error("the Postgres server in {} did not start; the end of its log:\n{log}", folder.display())]
    Start { folder: PathBuf, log: String },
    #[error("the Postgres server in {} did not accept connections within {} s; the end of its log:\n{log}", folder.display(), waited.as_secs())]
    StartTimedOut {
        folder: PathBuf,
        waited: Duration,
        log: String,
    },
    #[error("the Postgres server in {} did not stop within {} s", folder.display(), waited.as_secs())]
    StopTimedOut { folder: PathBuf, waited: Duration },
    #[error("psql failed:\n{output}")]
    Sql { output: String },
    #[error("cannot connect to the private Postgres server")]
    Connect(#[source] ConnectError),
}

impl ClusterError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { .. } => Some(
                "install a Postgres server (Debian, Ubuntu: `apt install postgresql`; Fedora: `dnf install postgresql-server`; \
                 macOS: `brew install postgresql@17`), or name the folder of initdb in HINDCAST_PG_BIN"
                    .to_owned(),
            ),
            Self::VersionNotFound { major, .. } => Some(format!(
                "a backup can only be restored by the major version that wrote it: install Postgres {major} \
                 (Debian, Ubuntu: `apt install postgresql-{major}`), or name the folder of its initdb in HINDCAST_PG_BIN"
            )),
            Self::NoUnprivilegedUser => Some("run hindcast as an ordinary user, or create a user `postgres`".to_owned()),
            Self::Spawn { program, user, .. } => {
                Some(format!("check that {user} may read and execute {}", program.display()))
            }
            Self::Initialise { folder, user, .. } => {
                Some(format!("check that {user} may enter every folder on the way to {}", folder.display()))
            }
            Self::AlreadyInitialised { .. } => Some("choose an empty folder".to_owned()),
            Self::PortTaken { port } => Some(format!("see who has it with `ss -ltnp sport = :{port}`, or choose another")),
            _ => None,
        }
    }
}

fn looked_in(folders: &[PathBuf]) -> String {
    if folders.is_empty() {
        return String::new();
    }
    let folders: Vec<_> = folders
        .iter()
        .map(|folder| folder.display().to_string())
        .collect();
    format!(" (looked in {})", folders.join(", "))
}

impl Cluster {
    /// Initialises and starts a server in a temporary folder, which is removed with it.
    pub fn temporary(options: Options) -> Result<Self, ClusterError> {
        let scratch = Scratch::new(None, "hindcast-pg-", &RunAs::unprivileged()?)?;
        let mut cluster = Self::init(scratch.path(), options)?;
        cluster.adopt(scratch);
        cluster.start()?;
        Ok(cluster)
    }

    /// [`Cluster::temporary`] for async callers.
    pub async fn temporary_async(options: Options) -> Result<Self, ClusterError> {
        tokio::task::spawn_blocking(move || Self::temporary(options))
            .await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// Initialises an empty cluster in `folder`, which is created if need be. It is not started
    /// yet.
    pub fn init(folder: &Path, options: Options) -> Result<Self, ClusterError> {
        let binaries = match &options.binaries {
            Some(binaries) => binaries.clone(),
            None => Binaries::find()?,
        };
        let run_as = RunAs::unprivileged()?;
        let folder = make_folder(folder, &run_as)?;
        let data = folder.join("data");
        if data.join("PG_VERSION").exists() {
            return Err(ClusterError::AlreadyInitialised { folder });
        }
        let mut initdb = run_as.command(binaries.program("initdb"), &folder);
        initdb
            .arg("--pgdata")
            .arg(&data)
            .arg(format!("--locale={}", options.locale))
            .args([
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                // What initdb wrote is on disk before anything that matters is: the first
                // checkpoint sees to it.
                "--no-sync",
            ]);
        let output = run(&mut initdb, &run_as)?;
        if !output.status.success() {
            let user = run_as.name().to_owned();
            return Err(ClusterError::Initialise {
                folder,
                user,
                output: both_streams(&output),
            });
        }
        Self::assemble(folder, binaries, run_as, options)
    }

    /// A cluster that was initialised earlier, or whose `data` folder was restored from a backup.
    /// It is not started yet.
    pub fn open(folder: &Path, options: Options) -> Result<Self, ClusterError> {
        let folder = folder
            .canonicalize()
            .map_err(|source| ClusterError::Folder {
                path: folder.to_owned(),
                source,
            })?;
        let data = folder.join("data");
        let version = std::fs::read_to_string(data.join("PG_VERSION"))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| ClusterError::NotInitialised {
                folder: data.clone(),
            })?;
        let binaries = match &options.binaries {
            Some(binaries) => binaries.clone(),
            None => Binaries::find_version(version)?,
        };
        let run_as = RunAs::owner_of(&data)?;
        Self::assemble(folder, binaries, run_as, options)
    }

    /// Looks after the folder that this cluster is in from now on: it goes when the cluster goes.
    pub fn adopt(&mut self, scratch: Scratch) {
        assert_eq!(
            scratch.path(),
            self.folder,
            "a cluster adopts the folder that it is in"
        );
        self.temporary = Some(scratch);
    }

    fn assemble(
        folder: PathBuf,
        binaries: Binaries,
        run_as: RunAs,
        options: Options,
    ) -> Result<Self, ClusterError> {
        // sockaddr_un holds 107 bytes on Linux and 103 on macOS.
        let too_long = folder.as_os_str().len() + "/.s.PGSQL.65535.lock".len() > 103;
        let short_folder = if too_long {
            let short =
                hindcast_private::temporary_folder("/tmp", "hindcast-").map_err(|source| {
                    ClusterError::Folder {
                        path: "/tmp".into(),
                        source,
                    }
                })?;
            run_as.own(short.path())?;
            Some(short)
        } else {
            None
        };
        Ok(Self {
            folder,
            temporary: None,
            short_folder,
            binaries,
            run_as,
            options,
            port: 0,
            server: None,
        })
    }

    /// Starts the server and waits until it accepts connections. Does nothing if it runs already.
    pub fn start(&mut self) -> Result<(), ClusterError> {
        if self.is_running() {
            return Ok(());
        }
        // Between the moment we find a free port and the moment the server binds it somebody else
        // may take it.
        let mut attempts_left = if self.options.port.is_some() { 1 } else { 10 };
        loop {
            attempts_left -= 1;
            let port = match self.options.port {
                Some(port) => port,
                None => free_port().ok_or(ClusterError::PortTaken { port: 0 })?,
            };
            match self.start_on(port) {
                Err(ClusterError::PortTaken { .. }) if attempts_left > 0 => {}
                result => return result,
            }
        }
    }

    fn start_on(&mut self, port: u16) -> Result<(), ClusterError> {
        self.port = port;
        self.write_configuration()?;
        let log_path = self.log_path();
        let log = hindcast_private::options()
            .create(true)
            .append(true)
            .open(&log_path)
            .and_then(|log| Ok((log.try_clone()?, log.metadata()?.len(), log)));
        let (log_out, log_start, log_err) = log.map_err(|source| ClusterError::Folder {
            path: log_path.clone(),
            source,
        })?;
        self.run_as.own(&log_path)?;
        // The file of a server that was killed may still be there, and must not be taken for the
        // answer of the new one.
        let pid_path = self.data_folder().join("postmaster.pid");
        let stale = std::fs::read_to_string(&pid_path).unwrap_or_default();

        let postgres = self.binaries.program("postgres");
        let mut command = self.run_as.command("/bin/sh", &self.folder);
        use std::os::unix::process::CommandExt;
        command
            .arg("-c")
            .arg(include_str!("supervise.sh"))
            .arg("hindcast-supervisor")
            .arg(&postgres)
            .arg("-D")
            .arg(self.data_folder())
            .arg("-c")
            .arg(format!(
                "config_file={}",
                self.folder.join("postgresql.conf").display()
            ))
            .stdin(Stdio::piped())
            .stdout(log_out)
            .stderr(log_err)
            // Ctrl-C in a terminal reaches us, and we decide what happens to the server.
            .process_group(0);
        let supervisor = command.spawn().map_err(|source| ClusterError::Spawn {
            program: postgres,
            user: self.run_as.name().to_owned(),
            source,
        })?;
        let started = Instant::now();
        let mut server = Server { supervisor, pid: 0 };
        loop {
            if let Ok(Some(_)) = server.supervisor.try_wait() {
                let log = self.log_since(log_start);
                if log.contains("Address already in use") {
                    return Err(ClusterError::PortTaken { port });
                }
                return Err(ClusterError::Start {
                    folder: self.folder.clone(),
                    log: tail(&log),
                });
            }
            if let Some(pid) = ready(&pid_path, &stale) {
                server.pid = pid;
                self.server = Some(server);
                return Ok(());
            }
            if started.elapsed() > self.options.start_timeout {
                let waited = started.elapsed();
                self.server = Some(server);
                let log = tail(&self.log_since(log_start));
                self.stop(Shutdown::Immediate)?;
                return Err(ClusterError::StartTimedOut {
                    folder: self.folder.clone(),
                    waited,
                    log,
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn write_configuration(&self) -> Result<(), ClusterError> {
        let quote = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
        let hba_path = self.folder.join("pg_hba.conf");
        let ident_path = self.folder.join("pg_ident.conf");
        let mut settings = vec![
            ("data_directory", self.data_folder().display().to_string()),
            ("hba_file", hba_path.display().to_string()),
            ("ident_file", ident_path.display().to_string()),
            ("external_pid_file", String::new()),
            ("port", self.port.to_string()),
            ("listen_addresses", "127.0.0.1".to_owned()),
            (
                "unix_socket_directories",
                self.socket_folder().display().to_string(),
            ),
            // The folder may be one that others can enter. A superuser's connection needs no right.
            ("unix_socket_permissions", "0700".to_owned()),
            ("logging_collector", "off".to_owned()),
            ("log_destination", "stderr".to_owned()),
            ("lc_messages", "C".to_owned()),
        ];
        settings.extend(
            self.options
                .settings
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone())),
        );
        let text: String = settings
            .iter()
            .map(|(name, value)| format!("{name} = {}\n", quote(value)))
            .collect();
        for (path, text) in [
            (self.folder.join("postgresql.conf"), &text),
            (hba_path, &self.options.hba),
            (ident_path, &String::new()),
        ] {
            hindcast_private::write(&path, text).map_err(|source| ClusterError::Folder {
                path: path.clone(),
                source,
            })?;
            self.run_as.own(&path)?;
        }
        Ok(())
    }

    /// Stops the server and waits until it is gone. Does nothing if it does not run.
    pub fn stop(&mut self, how: Shutdown) -> Result<(), ClusterError> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let Some(mut server) = self.server.take() else {
            return Ok(());
        };
        server.order(match how {
            Shutdown::Fast => "fast",
            Shutdown::Immediate => "immediate",
        });
        let begun = Instant::now();
        let mut impatient = false;
        let status = loop {
            match server.supervisor.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) => {}
                Err(_) => break None,
            }
            if begun.elapsed() > PATIENCE && !impatient {
                server.order("immediate");
                impatient = true;
            }
            if begun.elapsed() > 2 * PATIENCE {
                return Err(ClusterError::StopTimedOut {
                    folder: self.folder.clone(),
                    waited: begun.elapsed(),
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        // Somebody killed the supervisor and the server may have been left behind: its own pid file
        // tells.
        use std::os::unix::process::ExitStatusExt;
        if status.is_none_or(|status| status.signal().is_some())
            && self.data_folder().join("postmaster.pid").exists()
            && server.pid != 0
        {
            let _ = Command::new("kill")
                .args(["-QUIT", &server.pid.to_string()])
                .stderr(Stdio::null())
                .status();
            while self.data_folder().join("postmaster.pid").exists()
                && begun.elapsed() < 2 * PATIENCE
            {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// Lets the server run on after us, and its folder stay. Says where it is.
    pub fn leave_running(mut self) -> LeftRunning {
        if let Some(folder) = self.temporary.take() {
            folder.keep();
        }
        if let Some(folder) = self.short_folder.take() {
            let _ = folder.keep();
        }
        let pid = self.server.take().map(|mut server| {
            server.order("stay");
            server.pid
        });
        LeftRunning {
            folder: self.folder.clone(),
            url: self.url("postgres"),
            pid,
        }
    }

    /// Asks the operating system, not our memory.
    pub fn is_running(&mut self) -> bool {
        match &mut self.server {
            Some(server) => matches!(server.supervisor.try_wait(), Ok(None)),
            None => false,
        }
    }

    /// `postgres://postgres@127.0.0.1:PORT/DATABASE`
    pub fn url(&self, database: &str) -> String {
        let address = Address::Tcp {
            host: "127.0.0.1".to_owned(),
            port: self.port,
        };
        DatabaseUrl::from_parts(address, "postgres", database).to_string()
    }

    /// The same over the unix socket.
    pub fn socket_url(&self, database: &str) -> DatabaseUrl {
        self.socket_url_as("postgres", database)
    }

    /// [`Cluster::socket_url`] for another user: a restored backup may have a superuser of another
    /// name.
    pub fn socket_url_as(&self, user: &str, database: &str) -> DatabaseUrl {
        let name = format!(".s.PGSQL.{}", self.port);
        let socket = Address::Unix(self.socket_folder().join(name));
        DatabaseUrl::from_parts(socket, user, database)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the server (the postmaster), if it was started.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(|server| server.pid)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn data_folder(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub fn socket_folder(&self) -> &Path {
        self.short_folder
            .as_ref()
            .map_or(&self.folder, |folder| folder.path())
    }

    pub fn log_path(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    pub fn run_as(&self) -> &RunAs {
        &self.run_as
    }

    /// For the next start.
    pub fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    /// Runs SQL through `psql` and returns its rows, one a line, columns separated by `|`. Stops at
    /// the first error.
    pub fn sql(&self, database: &str, text: &str) -> Result<String, ClusterError> {
        let mut psql = Command::new(self.binaries.program("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d"])
            .arg(self.socket_url(database).to_string())
            .args(["-f", "-"]);
        psql.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let spawn_error = |source| ClusterError::Spawn {
            program: self.binaries.program("psql"),
            user: "ourselves".to_owned(),
            source,
        };
        let mut child = psql.spawn().map_err(spawn_error)?;
        let mut input = child
            .stdin
            .take()
            .expect("psql was spawned with a pipe as its input");
        let text = text.to_owned();
        // From another thread, for psql answers before it has read everything.
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let output = child.wait_with_output().map_err(spawn_error)?;
        let _ = writer.join();
        if !output.status.success() {
            return Err(ClusterError::Sql {
                output: both_streams(&output),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned())
    }

    /// A session of a superuser.
    pub async fn connect(&self, database: &str) -> Result<Client, ClusterError> {
        Client::connect(&self.socket_url(database), &ConnectOptions::default())
            .await
            .map_err(ClusterError::Connect)
    }

    fn log_since(&self, start: u64) -> String {
        let mut bytes = Vec::new();
        if let Ok(mut file) = std::fs::File::open(self.log_path()) {
            let _ = file.seek(SeekFrom::Start(start));
            let _ = file.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let how = if self.temporary.is_some() {
            Shutdown::Immediate
        } else {
            Shutdown::Fast
        };
        // Nothing can be done about a failure here; closing the pipe below stops the server in any
        // case.
        let _ = self.stop(how);
    }
}

/// A server that [`Cluster::leave_running`] left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftRunning {
    pub folder: PathBuf,
    pub url: String,
    /// `kill PID` stops it.
    pub pid: Option<u32>,
}

impl Server {
    fn order(&mut self, order: &str) {
        if let Some(pipe) = &mut self.supervisor.stdin {
            // A supervisor that is gone does not read; its exit is what we look at next.
            let _ = writeln!(pipe, "{order}");
        }
    }
}

/// The pid of the server once it accepts connections: what `pg_ctl --wait` looks at, too.
fn ready(pid_path: &Path, stale: &str) -> Option<u32> {
    let text = std::fs::read_to_string(pid_path).ok()?;
    // pid, data folder, start time, port, socket folder, listen address, shared memory, status
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    if text == stale || *lines.get(7)? != "ready" {
        return None;
    }
    lines.first()?.parse().ok()
}

fn make_folder(folder: &Path, run_as: &RunAs) -> Result<PathBuf, ClusterError> {
    let error = |source| ClusterError::Folder {
        path: folder.to_owned(),
        source,
    };
    run_as.make_folders(folder)?;
    let folder = folder.canonicalize().map_err(error)?;
    run_as.own(&folder)?;
    Ok(folder)
}

fn run(command: &mut Command, run_as: &RunAs) -> Result<Output, ClusterError> {
    command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| ClusterError::Spawn {
            program: command.get_program().into(),
            user: run_as.name().to_owned(),
            source,
        })
}

fn both_streams(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    tail(&String::from_utf8_lossy(&text))
}

/// The last lines, which is where the reason is.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
