//! One private server with a primary's database and, for each way to apply its log, a backup's.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use hindcast_cluster::{Cluster, Options as ClusterOptions};
use hindcast_pg::{ConnectOptions, Connection, DatabaseUrl, Lsn};
use hindcast_standby::backup::{Backup, BackupError, Granularity, Options, schema};
use hindcast_standby::follow::{Event, Log};
use hindcast_standby::source::{
    Names, Stream, StreamOptions, TableFilter, preflight, publication, slot,
};
use hindcast_standby::target::Target;

/// Far beyond what anything here should take.
pub const PATIENCE: Duration = Duration::from_secs(60);
const NEVER: Duration = Duration::from_secs(3600);

static SERVER: LazyLock<Cluster> = LazyLock::new(|| {
    let options = ClusterOptions::throw_away()
        .set("wal_level", "logical")
        .set("synchronous_commit", "on")
        .set("max_connections", 200)
        .set("max_replication_slots", 60)
        .set("max_wal_senders", 60);
    Cluster::temporary(options).unwrap_or_else(|error| panic!("no private Postgres: {error}"))
});

/// A table with a few rows.
pub const SIMPLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v text, CHECK (id > 0)); INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 100) i";

/// A primary's database, and where its log begins.
pub struct Primary {
    name: String,
    setup: String,
    pub names: Names,
    pub from: Lsn,
}

fn url(database: &str) -> DatabaseUrl {
    SERVER.url(database).parse().unwrap()
}

#[track_caller]
pub fn sql(database: &str, text: &str) -> String {
    SERVER
        .sql(database, text)
        .unwrap_or_else(|error| panic!("{database}: {error}"))
}

pub fn create_database(database: &str) {
    sql("postgres", &format!("CREATE DATABASE {database}"));
}

impl Primary {
    /// `setup` is run on both sides before the log begins.
    pub fn new(name: &str, setup: &str) -> Self {
        create_database(name);
        sql(name, setup);
        let names = Names::new(name).unwrap();
        let found = preflight(&url(name), &TableFilter::default(), &names.slot)
            .unwrap_or_else(|error| panic!("{error}: {}", error.hint()));
        publication::publish(&url(name), &names, &found.tables).unwrap();
        let from = slot::create(&url(name), &names).unwrap().consistent_point;
        Self {
            name: name.to_owned(),
            setup: setup.to_owned(),
            names,
            from,
        }
    }

    #[track_caller]
    pub fn sql(&self, text: &str) -> String {
        sql(&self.name, text)
    }

    pub fn end(&self) -> Lsn {
        self.sql("SELECT pg_current_wal_flush_lsn()")
            .parse()
            .unwrap()
    }

    /// A backup as the initial copy leaves it.
    pub fn backup(&self, suffix: &str) -> BackupSide<'_> {
        self.backup_on(&SERVER, suffix)
    }

    /// One that exists.
    pub fn backup_again<'a>(&'a self, cluster: &'a Cluster, suffix: &str) -> BackupSide<'a> {
        BackupSide {
            primary: self,
            cluster,
            database: format!("{}_{suffix}", self.name),
        }
    }

    pub fn backup_on<'a>(&'a self, cluster: &'a Cluster, suffix: &str) -> BackupSide<'a> {
        let side = self.backup_again(cluster, suffix);
        let create = format!("CREATE DATABASE {}", side.database);
        cluster.sql("postgres", &create).unwrap();
        side.sql(&self.setup);
        let options = ConnectOptions::named("test");
        let mut connection = Connection::connect(&side.url(), &options).unwrap();
        schema::create(&mut connection).unwrap();
        side.sql(&format!(
            "INSERT INTO hindcast.standby_progress (slot, worker, workers, epoch, commit_lsn, end_lsn) VALUES ('{}', 0, 1, 0, '{1}', '{1}')",
            self.names.slot, self.from
        ));
        side
    }
}

pub struct BackupSide<'a> {
    primary: &'a Primary,
    cluster: &'a Cluster,
    pub database: String,
}

impl BackupSide<'_> {
    pub fn url(&self) -> DatabaseUrl {
        self.cluster.url(&self.database).parse().unwrap()
    }

    pub fn url_of(&self, role: &str) -> DatabaseUrl {
        let url = self.cluster.url(&self.database);
        url.replace("postgres@", &format!("{role}@"))
            .parse()
            .unwrap()
    }

    #[track_caller]
    pub fn sql(&self, text: &str) -> String {
        self.cluster
            .sql(&self.database, text)
            .unwrap_or_else(|error| panic!("{}: {error}", self.database))
    }

    pub fn open(&self, options: Options) -> Result<Backup, BackupError> {
        Backup::open(&self.url(), options)
    }

    pub fn options(&self) -> Options {
        Options {
            epoch_interval: NEVER,
            ..Options::new(&self.primary.names.slot)
        }
    }

    pub fn log(&self, from: Lsn) -> Stream {
        let Names { slot, publication } = &self.primary.names;
        // The reader before has ended, but its server's end may not know yet.
        let active = format!("SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'");
        let begun = Instant::now();
        while self.primary.sql(&active) == "t" {
            assert!(begun.elapsed() < PATIENCE, "the slot stays in use");
            std::thread::yield_now();
        }
        Stream::start(
            &url(&self.primary.name),
            slot,
            publication,
            from,
            StreamOptions::default(),
        )
        .unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// Applies everything there is.
    pub fn catch_up(&self, options: Options) -> Result<Backup, BackupError> {
        let mut backup = self.open(options)?;
        let end = self.primary.end();
        let mut log = self.log(backup.resume_point());
        pump(&mut log, &mut backup, end)?;
        backup.drain()?;
        assert_eq!(backup.visible(), backup.received());
        assert_eq!(backup.durable(), backup.received());
        Ok(backup)
    }

    /// Every table of the schema public has the same rows on both sides.
    #[track_caller]
    pub fn same(&self) {
        let tables = self.primary.sql(
            "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public' ORDER BY 1",
        );
        for table in tables.lines() {
            let content = format!("SELECT t::text FROM {table} AS t ORDER BY 1");
            assert_eq!(
                self.sql(&content),
                self.primary.sql(&content),
                "{table} in {}",
                self.database
            );
        }
    }
}

/// Hands over the log up to `end`.
pub fn pump(log: &mut Stream, backup: &mut Backup, end: Lsn) -> Result<(), BackupError> {
    pump_until(log, backup, end, |_| {})
}

/// The same; looks at the backup before each commit.
pub fn pump_until(
    log: &mut Stream,
    backup: &mut Backup,
    end: Lsn,
    mut before_commit: impl FnMut(&Backup),
) -> Result<(), BackupError> {
    let begun = Instant::now();
    let mut between = true;
    while !(between && log.read_to() >= end) {
        assert!(begun.elapsed() < PATIENCE, "the log does not get to {end}");
        let deadline = Instant::now() + Duration::from_millis(5);
        let event = log.next(deadline).unwrap_or_else(|error| panic!("{error}"));
        match event {
            None => backup.tick(Instant::now())?,
            Some(Event::Begin(begin)) => {
                between = false;
                backup.begin(&begin)?;
            }
            Some(Event::Change { relation, change }) => backup.change(relation, &change)?,
            Some(Event::Commit(commit)) => {
                between = true;
                before_commit(backup);
                backup.commit(&commit)?;
            }
            Some(Event::Relation(relation)) => backup.relation(relation)?,
            Some(Event::Truncate { relations, how }) => backup.truncate(&relations, how)?,
            Some(Event::Mark { .. } | Event::Nothing) => {}
        }
    }
    Ok(())
}

/// Applies the same log in every way: all in one epoch, an epoch for each transaction, in pieces of
/// three changes, with several workers. Each time the backup must end as the primary is.
#[track_caller]
pub fn check(name: &str, setup: &str, work: &[&str]) {
    let primary = Primary::new(name, setup);
    for statement in work {
        primary.sql(statement);
    }
    type Way = (&'static str, fn(&mut Options));
    let ways: [Way; 6] = [
        ("one", |_| {}),
        ("each", |options| options.epoch_interval = Duration::ZERO),
        ("pieces", |options| options.epoch_rows_max = 3),
        ("copied", |options| options.copy_rows_min = 1),
        ("three", |options| {
            options.workers = 3;
            options.epoch_rows_max = 50;
        }),
        ("single", |options| {
            options.granularity = Granularity::Single
        }),
    ];
    for (suffix, change) in ways {
        let backup = primary.backup(suffix);
        let mut options = backup.options();
        change(&mut options);
        if let Err(error) = backup.catch_up(options) {
            let mut cause: &dyn std::error::Error = &error;
            let mut text = error.to_string();
            while let Some(next) = cause.source() {
                text += &format!(": {next}");
                cause = next;
            }
            panic!("{name}, {suffix}: {text}\n{}", error.hint());
        }
        backup.same();
    }
}
