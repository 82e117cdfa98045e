//! Two servers, a database on each, and a follower in between.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hindcast_cluster::{Cluster, Options};
use serde_json::Value;

use crate::session::{Failure, Session};
use crate::standby::compare::{self, Contents};
use crate::{Finished, PATIENCE, Process, program, wait_for};

/// Written last, to see that everything before has arrived.
const MARKER: &str = "CREATE TABLE test_marker (id int PRIMARY KEY, n bigint NOT NULL); INSERT INTO test_marker VALUES (1, 0)";

/// A primary and a backup.
pub struct Servers {
    pub primary: Cluster,
    pub backup: Cluster,
}

impl Servers {
    /// # Panics
    /// If Postgres cannot be started.
    pub fn start(primary: Options, backup: Options) -> Self {
        let start = |options| {
            std::thread::spawn(|| {
                let mut cluster = Cluster::temporary(options)
                    .unwrap_or_else(|error| panic!("no private Postgres: {error}"));
                // Where it is found stays the same when it is restarted.
                let port = cluster.port();
                cluster.options_mut().port = Some(port);
                cluster
            })
        };
        let (primary, backup) = (start(primary), start(backup));
        Self {
            primary: primary.join().expect("the primary starts"),
            backup: backup.join().expect("the backup starts"),
        }
    }

    fn shared() -> &'static Self {
        static SERVERS: OnceLock<Servers> = OnceLock::new();
        SERVERS.get_or_init(|| Self::start(primary(), backup()))
    }
}

/// Settings of a primary that can be followed.
pub fn primary() -> Options {
    Options::throw_away()
        .set("wal_level", "logical")
        .set("max_replication_slots", 40)
        .set("max_wal_senders", 40)
        .set("max_connections", 200)
        .set("max_prepared_transactions", 20)
        .set("deadlock_timeout", "20ms")
        // A follower that is gone is noticed; one that is there and silent, too.
        .set("wal_sender_timeout", "10s")
}

pub fn backup() -> Options {
    Options::throw_away()
        .set("max_connections", 200)
        .set("max_replication_slots", 20)
        .set("max_logical_replication_workers", 20)
        .set("max_worker_processes", 30)
}

/// A database on the primary, one of the same name on the backup, and a folder for what is written
/// in between.
pub struct Pair {
    servers: Held,
    pub database: String,
    folder: Option<tempfile::TempDir>,
    markers: AtomicU64,
}

enum Held {
    Shared(&'static Servers),
    Own(Box<Servers>),
}

impl Pair {
    /// A pair of databases on servers that all tests of this program share.
    ///
    /// # Panics
    /// If Postgres cannot be started or the schema is wrong.
    pub fn shared(name: &str, schema: &str) -> Self {
        Self::on(Held::Shared(Servers::shared()), name, schema)
    }

    /// A pair of databases on servers of their own, which may be stopped and broken.
    ///
    /// # Panics
    /// Likewise.
    pub fn own(name: &str, schema: &str) -> Self {
        Self::with(name, schema, primary(), backup())
    }

    /// The same with other settings.
    ///
    /// # Panics
    /// Likewise.
    pub fn with(name: &str, schema: &str, primary: Options, backup: Options) -> Self {
        let servers = Servers::start(primary, backup);
        Self::on(Held::Own(Box::new(servers)), name, schema)
    }

    fn on(servers: Held, name: &str, schema: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix(&format!("hindcast-standby-{name}-"))
            .tempdir()
            .expect("a temporary folder can be made");
        let pair = Self {
            servers,
            database: name.replace('-', "_"),
            folder: Some(folder),
            markers: AtomicU64::new(0),
        };
        let create = format!("CREATE DATABASE \"{}\"", pair.database);
        for cluster in [&pair.servers().primary, &pair.servers().backup] {
            cluster
                .sql("postgres", &create)
                .unwrap_or_else(|error| panic!("no database for {name}: {error}"));
        }
        pair.primary(MARKER);
        pair.primary(schema);
        pair
    }

    pub fn servers(&self) -> &Servers {
        match &self.servers {
            Held::Shared(servers) => servers,
            Held::Own(servers) => servers,
        }
    }

    /// # Panics
    /// If they are shared.
    pub fn servers_mut(&mut self) -> &mut Servers {
        match &mut self.servers {
            Held::Shared(_) => panic!("servers that are shared stay as they are"),
            Held::Own(servers) => servers,
        }
    }

    pub fn folder(&self) -> &Path {
        self.folder
            .as_ref()
            .expect("the folder is there until the pair is dropped")
            .path()
    }

    pub fn primary_url(&self) -> String {
        self.servers().primary.url(&self.database)
    }

    /// Of a memory server that listens on this port.
    pub fn memory_url(&self, port: u16) -> String {
        format!("postgres://reader@127.0.0.1:{port}/{}", self.database)
    }

    pub fn backup_url(&self) -> String {
        self.servers().backup.url(&self.database)
    }

    /// Runs SQL on the primary: rows a line each, columns separated by `|`.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn primary(&self, sql: &str) -> String {
        self.servers()
            .primary
            .sql(&self.database, sql)
            .unwrap_or_else(|error| panic!("on the primary: {error}"))
    }

    /// What the catalogs of both say; `None` where what they tell of is being dropped.
    pub fn catalogs(&self, sql: &str) -> Option<[String; 2]> {
        let servers = self.servers();
        let ask = |server: &Cluster| match server.sql(&self.database, sql) {
            Err(error) if error.to_string().contains("cache lookup failed") => None,
            asked => Some(asked.expect("a catalog can be asked")),
        };
        Some([ask(&servers.backup)?, ask(&servers.primary)?])
    }

    /// The same on the backup.
    #[track_caller]
    pub fn backup(&self, sql: &str) -> String {
        self.servers()
            .backup
            .sql(&self.database, sql)
            .unwrap_or_else(|error| panic!("on the backup: {error}"))
    }

    /// `hindcast` with arguments.
    pub fn hindcast<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(program("hindcast"));
        // The environment of whoever runs the tests must not reach them.
        for variable in ["HINDCAST_TRACE", "HINDCAST_POSTGRES", "RUST_LOG"] {
            command.env_remove(variable);
        }
        command
            .env("NO_COLOR", "1")
            .env("RUST_BACKTRACE", "1")
            .args(arguments);
        command
    }

    /// Runs `hindcast standby …` to its end.
    pub fn run(&self, arguments: &[&str]) -> Finished {
        let command = self.hindcast(&[&["standby"], arguments].concat());
        Process::start(&self.log("run"), command, self.folder()).wait()
    }

    /// Promotes the backup.
    pub fn promote(&self, more: &[&str]) -> Finished {
        let (from, to) = (self.primary_url(), self.backup_url());
        let arguments = [
            "promote",
            "--to",
            &to,
            "--from",
            &from,
            "--name",
            &self.database,
        ];
        self.run(&[&arguments, more].concat())
    }

    /// Starts a follower from the primary to the backup.
    pub fn follow(&self, more: &[&str]) -> Follower {
        self.follow_from(&self.primary_url(), more)
    }

    /// The same, the primary reached by another way.
    pub fn follow_from(&self, primary_url: &str, more: &[&str]) -> Follower {
        let to = self.backup_url();
        let mut arguments = vec!["standby", "--from", primary_url, "--to", &to, "--json"];
        // Slots of all databases of a server have different names.
        arguments.extend(["--name", &self.database]);
        arguments.extend(more);
        Follower::start(
            &self.log("follower"),
            self.hindcast(&arguments),
            self.folder(),
        )
    }

    /// Starts a memory server on a port of 127.0.0.1.
    pub fn remember(&self, port: u16, more: &[&str]) -> Follower {
        let (from, serve) = (self.primary_url(), format!("127.0.0.1:{port}"));
        let mut arguments = vec![
            "standby",
            "--from",
            &from,
            "--memory",
            "--serve",
            &serve,
            "--json",
            "--name",
            &self.database,
        ];
        arguments.extend(more);
        Follower::start(
            &self.log("memory"),
            self.hindcast(&arguments),
            self.folder(),
        )
    }

    /// A name for the output of a process that no other has.
    fn log(&self, name: &str) -> String {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        format!("{name}-{}", STARTED.fetch_add(1, Ordering::Relaxed))
    }

    /// Copies the tables, without rows, as a stock subscription needs them.
    pub fn copy_schema(&self) {
        let dump = Command::new(self.servers().primary.binaries().program("pg_dump"))
            .args(["--schema-only", "--no-publications", "--no-subscriptions"])
            .arg(self.primary_url())
            .output()
            .expect("pg_dump can be run");
        assert!(
            dump.status.success(),
            "{}",
            String::from_utf8_lossy(&dump.stderr)
        );
        self.backup(&String::from_utf8_lossy(&dump.stdout));
    }

    /// A follower that is not ours: `CREATE SUBSCRIPTION`.
    pub fn subscribe(&self) {
        self.subscribe_by(self.servers().primary.port());
    }

    /// The same, the primary reached by another port.
    pub fn subscribe_by(&self, port: u16) {
        self.copy_schema();
        self.primary("CREATE PUBLICATION stock FOR ALL TABLES");
        let connection = format!(
            "host=127.0.0.1 port={port} user=postgres dbname={}",
            self.database
        );
        self.backup(&format!(
            "CREATE SUBSCRIPTION stock_{} CONNECTION '{connection}' PUBLICATION stock",
            self.database
        ));
    }

    pub fn unsubscribe(&self) {
        self.backup(&format!("DROP SUBSCRIPTION stock_{}", self.database));
    }

    /// Writes a marker on the primary, after everything that was committed so far.
    pub fn mark(&self) -> u64 {
        let number = self.markers.fetch_add(1, Ordering::SeqCst) + 1;
        self.primary(&format!("UPDATE test_marker SET n = {number} WHERE id = 1"));
        number
    }

    /// Whether the backup has a marker.
    pub fn has(&self, session: &Session, marker: u64) -> Result<bool, Failure> {
        // While the schema is being copied the table is not there yet.
        match session.value("SELECT n FROM test_marker WHERE id = 1") {
            Ok(text) => Ok(text.parse::<u64>().is_ok_and(|n| n >= marker)),
            Err(failure) if failure.is_connection() => Err(failure),
            Err(_) => Ok(false),
        }
    }

    /// Waits until the backup has everything that the primary has now.
    ///
    /// # Panics
    /// If the follower ends before, or it takes too long.
    #[track_caller]
    pub fn wait_until_it_has_all(&self, follower: &mut Follower) {
        let session = Session::connect(&self.backup_url())
            .unwrap_or_else(|failure| panic!("the backup: {failure}"));
        // The first marker may come with the copy, whose indexes are still to be made. The second
        // was made after that copy's snapshot, so it comes from the log, which is read once
        // the copy is done.
        for _ in 0..2 {
            let marker = self.mark();
            follower
                .process
                .wait_until(&format!("the backup to have marker {marker}"), || {
                    self.has(&session, marker)
                        .unwrap_or_else(|failure| panic!("the backup: {failure}"))
                        .then_some(())
                });
        }
    }

    /// Waits until the backup has everything, and compares all rows of all tables.
    ///
    /// # Panics
    /// If it has something else.
    #[track_caller]
    pub fn wait_until_equal(&self, follower: &mut Follower) {
        self.wait_until_it_has_all(follower);
        self.assert_equal();
    }

    /// # Panics
    /// If the databases hold different rows; says which.
    #[track_caller]
    pub fn assert_equal(&self) {
        // Several workers may have written the marker a moment before the rest of its epoch; where
        // transactions are the unit, long before those that it does not depend on.
        let primary = contents(&self.primary_url());
        let begun = Instant::now();
        loop {
            let Some(difference) = compare::difference(&primary, &contents(&self.backup_url()))
            else {
                return;
            };
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "primary and backup differ:\n{difference}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits, without a follower of ours.
    pub fn wait_for_subscription(&self) {
        let marker = self.mark();
        let session = Session::connect(&self.backup_url())
            .unwrap_or_else(|failure| panic!("the backup: {failure}"));
        // Each table is copied by a worker of its own, that of the marker perhaps before others.
        let copied = "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel";
        wait_for("the subscription to have everything", || {
            let is_copied = session.value(copied).is_ok_and(|copied| copied == "t");
            (is_copied && self.has(&session, marker).unwrap_or(false)).then_some(())
        });
    }
}

fn contents(url: &str) -> Contents {
    Session::connect(url)
        .and_then(|session| compare::contents(&session))
        .unwrap_or_else(|failure| panic!("cannot read {url}: {failure}"))
}

impl Drop for Pair {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(folder) = self.folder.take()
        {
            eprintln!("The logs are in {}", folder.keep().display());
        }
        // Slots that nobody reads would keep the log of the other tests.
        if let Held::Shared(servers) = &self.servers {
            let drop_slots = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active AND database = current_database()";
            let _ = servers.primary.sql(&self.database, drop_slots);
        }
    }
}

/// A running `hindcast standby`.
pub struct Follower {
    pub process: Process,
    out: PathBuf,
}

impl Follower {
    pub fn start(name: &str, command: Command, folder: &Path) -> Self {
        Self {
            process: Process::start(name, command, folder),
            out: folder.join(format!("{name}.out")),
        }
    }

    /// What it reported, oldest first.
    pub fn reports(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.out).unwrap_or_default();
        // The last line may be half written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole
            .lines()
            .map(|line| {
                serde_json::from_str(line)
                    .unwrap_or_else(|error| panic!("no JSON ({error}): {line}"))
            })
            .collect()
    }

    /// Waits until it follows, which is when all that was there has been copied.
    #[track_caller]
    pub fn wait_until_it_follows(&mut self) {
        self.wait_for_report("the follower to follow", |report| {
            report["state"] == "following"
        });
    }

    /// Waits for a report.
    #[track_caller]
    pub fn wait_for_report(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let out = self.out.clone();
        self.process.wait_until(what, || {
            let text = std::fs::read_to_string(&out).unwrap_or_default();
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            whole
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .find(|report| is(report))
        })
    }

    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Waits until it handles Ctrl-C itself.
    #[track_caller]
    pub fn wait_until_it_catches_interrupts(&mut self) {
        self.process.wait_until_it_catches_interrupts();
    }

    /// As Ctrl-C would.
    pub fn interrupt(self) -> Finished {
        self.process.interrupt()
    }

    /// Without a chance to do anything about it.
    pub fn kill(self) -> Finished {
        self.process.kill()
    }

    /// Waits until it gives up by itself.
    pub fn wait(self) -> Finished {
        self.process.wait()
    }
}

/// How long nothing may happen where nothing should.
pub const MOMENT: Duration = Duration::from_millis(300);
const _: () = assert!(MOMENT.as_millis() < PATIENCE.as_millis());
