//! A primary and a backup: two private servers, a database of its own on both for each test.

use std::sync::OnceLock;

use hindcast_cluster::{Cluster, Options};
use hindcast_pg::{ConnectOptions, Connection, DatabaseUrl};
use hindcast_standby::initial::{self, BackupCopy, Copied, Identity, InitialError, Source};
use hindcast_standby::source::{Names, Primary, TableFilter, preflight, publication, slot};
use hindcast_standby::status::Control;

pub struct Servers {
    pub primary: Cluster,
    pub backup: Cluster,
}

impl Servers {
    pub fn start() -> Self {
        let start = |options: Options| {
            Cluster::temporary(options)
                .unwrap_or_else(|error| panic!("no private Postgres: {error}"))
        };
        let options = Options::throw_away()
            .set("max_connections", 100)
            .set("max_replication_slots", 20)
            .set("max_wal_senders", 20)
            .set("max_prepared_transactions", 10)
            // The backup's too, which becomes a primary in a switchover.
            .set("wal_level", "logical");
        Self {
            primary: start(options.clone()),
            backup: start(options),
        }
    }

    fn shared() -> &'static Self {
        static SERVERS: OnceLock<Servers> = OnceLock::new();
        SERVERS.get_or_init(Self::start)
    }
}

enum Held {
    Shared(&'static Servers),
    Own(Box<Servers>),
}

pub struct Pair {
    servers: Held,
    pub database: String,
    pub names: Names,
    pub primary_url: DatabaseUrl,
    pub backup_url: DatabaseUrl,
}

impl Pair {
    /// On servers that all tests of the program share.
    pub fn shared(name: &str, schema: &str) -> Self {
        Self::on(Held::Shared(Servers::shared()), name, schema)
    }

    /// On servers that this test may stop.
    pub fn own(name: &str, schema: &str) -> Self {
        Self::on(Held::Own(Box::new(Servers::start())), name, schema)
    }

    fn on(servers: Held, name: &str, schema: &str) -> Self {
        let both = match &servers {
            Held::Shared(servers) => servers,
            Held::Own(servers) => servers.as_ref(),
        };
        for cluster in [&both.primary, &both.backup] {
            cluster
                .sql("postgres", &format!("CREATE DATABASE {name}"))
                .unwrap_or_else(|error| panic!("no database for {name}: {error}"));
        }
        let url = |cluster: &Cluster| cluster.url(name).parse().expect("its own URL");
        let pair = Self {
            primary_url: url(&both.primary),
            backup_url: url(&both.backup),
            database: name.to_owned(),
            names: Names::new(name).expect("tests have simple names"),
            servers,
        };
        pair.primary(schema);
        pair
    }

    pub fn servers(&self) -> &Servers {
        match &self.servers {
            Held::Shared(servers) => servers,
            Held::Own(servers) => servers,
        }
    }

    pub fn servers_mut(&mut self) -> &mut Servers {
        match &mut self.servers {
            Held::Shared(_) => panic!("servers that are shared stay as they are"),
            Held::Own(servers) => servers,
        }
    }

    /// Runs SQL on the primary, as psql does.
    pub fn primary(&self, sql: &str) -> String {
        run(&self.servers().primary, &self.database, sql)
    }

    pub fn backup(&self, sql: &str) -> String {
        run(&self.servers().backup, &self.database, sql)
    }

    /// The same query on both must have the same answer, which is returned.
    pub fn same(&self, sql: &str) -> String {
        let (primary, backup) = (self.primary(sql), self.backup(sql));
        assert_eq!(primary, backup, "{sql}");
        backup
    }

    pub fn connect(&self, url: &DatabaseUrl) -> Connection {
        Connection::connect(url, &ConnectOptions::named("test")).expect("the server runs")
    }

    pub fn preflight(&self) -> Primary {
        preflight(&self.primary_url, &TableFilter::default(), &self.names.slot)
            .unwrap_or_else(|error| panic!("{error}: {}", error.hint()))
    }

    pub fn identity(&self, primary: &Primary) -> Identity {
        Identity::new(primary, &self.primary_url, &self.names)
    }

    pub fn copy(&self) -> Result<Copied, InitialError> {
        self.copy_with(&Control::default(), Settings::default(), || {})
    }

    /// Publication, slot, copy. `between` runs after the slot's snapshot was taken, and before the
    /// copy begins.
    pub fn copy_with(
        &self,
        control: &Control,
        settings: Settings,
        between: impl FnOnce(),
    ) -> Result<Copied, InitialError> {
        let primary = self.preflight();
        slot::remove(&self.primary_url, &self.names).unwrap();
        publication::publish(&self.primary_url, &self.names, &primary.tables).unwrap();
        let created = slot::create(&self.primary_url, &self.names).unwrap();
        between();
        let copy = BackupCopy {
            source: Source {
                primary: &self.primary_url,
                snapshot: &created.snapshot,
                workers: settings.workers,
                chunk_bytes: settings.chunk_bytes,
            },
            backup: &self.backup_url,
            identity: &self.identity(&primary),
            consistent_point: created.consistent_point,
            make_schema: settings.make_schema,
        };
        initial::to_backup(&copy, &primary.tables, control)
    }

    pub fn state(&self) -> String {
        self.backup("SELECT state FROM hindcast.standby")
    }
}

pub struct Settings {
    pub workers: usize,
    pub chunk_bytes: u64,
    pub make_schema: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: 2,
            chunk_bytes: Source::CHUNK_BYTES,
            make_schema: true,
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // A slot that is left behind takes one of a limited number, where servers are shared.
        if matches!(self.servers, Held::Shared(_)) {
            let _ = slot::remove(&self.primary_url, &self.names);
        }
    }
}

fn run(cluster: &Cluster, database: &str, sql: &str) -> String {
    cluster
        .sql(database, sql)
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// An error with what is behind it, and what to do about it.
pub fn told(error: &InitialError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    format!("{text}\nHint: {}", error.hint())
}
