//! A primary for all tests, a database for each.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use hindcast_cluster::{Cluster, Options};
use hindcast_pg::{ConnectOptions, Connection, DatabaseUrl, Lsn};
use hindcast_standby::follow::{Acknowledgement, Event, Log};
use hindcast_standby::pgoutput::{Change, Datum, Old, Relation, Tuple};
use hindcast_standby::source::{
    Names, Primary, Stream, StreamOptions, TableFilter, preflight, publication, slot,
};

/// Far beyond what anything here should take.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn options() -> Options {
    Options::throw_away()
        .set("wal_level", "logical")
        // What was committed is in the WAL: with fsync off this costs nothing.
        .set("synchronous_commit", "on")
        .set("max_replication_slots", 40)
        .set("max_wal_senders", 40)
        .set("max_prepared_transactions", 4)
        .set("logical_decoding_work_mem", "64kB")
}

pub fn cluster(options: Options) -> Cluster {
    Cluster::temporary(options).unwrap_or_else(|error| panic!("no private Postgres: {error}"))
}

static PRIMARY: LazyLock<Cluster> = LazyLock::new(|| cluster(options()));

/// A database of the primary.
pub struct Stage {
    pub database: &'static str,
    pub names: Names,
}

impl Stage {
    pub fn new(database: &'static str) -> Self {
        let cluster = &*PRIMARY;
        cluster
            .sql("postgres", &format!("CREATE DATABASE {database}"))
            .unwrap();
        Self {
            database,
            names: Names::new(database).unwrap(),
        }
    }

    pub fn with(database: &'static str, sql: &str) -> Self {
        let stage = Self::new(database);
        stage.sql(sql);
        stage
    }

    #[track_caller]
    pub fn sql(&self, text: &str) -> String {
        PRIMARY
            .sql(self.database, text)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn url(&self) -> DatabaseUrl {
        PRIMARY.socket_url(self.database)
    }

    pub fn url_of(&self, role: &str) -> DatabaseUrl {
        let url = PRIMARY.url(self.database);
        url.replace("postgres@", &format!("{role}@"))
            .parse()
            .unwrap()
    }

    pub fn connect(&self) -> Connection {
        Connection::connect(&self.url(), &ConnectOptions::named("test")).unwrap()
    }

    /// The primary's end of WAL.
    pub fn end(&self) -> Lsn {
        self.sql("SELECT pg_current_wal_flush_lsn()")
            .parse()
            .unwrap()
    }

    pub fn primary(&self) -> Primary {
        preflight(&self.url(), &TableFilter::default(), &self.names.slot)
            .unwrap_or_else(|error| panic!("{error}: {}", error.hint()))
    }

    /// Publishes all tables and makes the slot; from where the log is to be read.
    pub fn prepare(&self) -> Lsn {
        publication::publish(&self.url(), &self.names, &self.primary().tables).unwrap();
        slot::create(&self.url(), &self.names)
            .unwrap()
            .consistent_point
    }

    /// Waits until the slot is free: the server of a stream that was dropped may still end.
    pub fn stream(&self, from: Lsn, options: StreamOptions) -> Stream {
        let Names { slot, publication } = &self.names;
        let active = format!("SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'");
        eventually("the slot is free", || self.sql(&active) != "t");
        let started = Stream::start(&self.url(), slot, publication, from, options);
        started.unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// What the log says of everything that `work` did.
    pub fn log_of(&self, work: &str) -> String {
        let from = self.prepare();
        self.sql(work);
        read_to(&mut self.stream(from, StreamOptions::default()), self.end())
    }

    pub fn confirmed(&self) -> Lsn {
        let slot = &self.names.slot;
        self.sql(&format!(
            "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{slot}'"
        ))
        .parse()
        .unwrap()
    }
}

/// Waits for a fact.
#[track_caller]
pub fn eventually(what: &str, mut fact: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !fact() {
        assert!(begun.elapsed() < PATIENCE, "did not happen: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Everything up to a position, in words.
#[track_caller]
pub fn read_to(stream: &mut Stream, end: Lsn) -> String {
    let mut text = String::new();
    let begun = Instant::now();
    while stream.read_to() < end {
        assert!(
            begun.elapsed() < PATIENCE,
            "the log stopped at {}",
            stream.read_to()
        );
        let tick = Instant::now() + Duration::from_millis(20);
        if let Some(event) = stream
            .next(tick)
            .unwrap_or_else(|error| panic!("{error:?}"))
        {
            text += &words(&event);
        }
        stream.acknowledge(Acknowledgement::default()).unwrap();
    }
    text
}

/// An event on a line of its own; nothing for nothing.
pub fn words(event: &Event<'_>) -> String {
    match event {
        Event::Begin(_) => "begin\n".to_owned(),
        Event::Commit(_) => "commit\n".to_owned(),
        Event::Mark { .. } => "mark\n".to_owned(),
        Event::Nothing => String::new(),
        Event::Relation(relation) => {
            let column = |column: &hindcast_standby::pgoutput::Column| {
                let key = if column.key { "*" } else { "" };
                format!("{}{key}", column.name)
            };
            let columns: Vec<_> = relation.columns.iter().map(column).collect();
            format!(
                "table {relation} ({}) {:?}\n",
                columns.join(", "),
                relation.identity
            )
        }
        Event::Truncate { relations, how } => {
            let names: Vec<_> = relations.iter().map(ToString::to_string).collect();
            let restart = if how.restart_identity {
                " restart identity"
            } else {
                ""
            };
            format!("truncate {}{restart}\n", names.join(", "))
        }
        Event::Change { relation, change } => {
            let text = match *change {
                Change::Insert { new } => format!("insert {}", row(relation, new)),
                Change::Update { old, new } => {
                    format!("update {}{}", was(relation, old), row(relation, new))
                }
                Change::Delete { old } => format!("delete {}", was(relation, old)),
            };
            format!("{} {}\n", relation.name, text.trim_end())
        }
    }
}

fn was(relation: &Relation, old: Old<'_>) -> String {
    match old {
        Old::None => String::new(),
        Old::Key(tuple) => format!("key{} ", row(relation, tuple)),
        Old::Full(tuple) => format!("row{} ", row(relation, tuple)),
    }
}

fn row(relation: &Relation, tuple: Tuple<'_>) -> String {
    assert_eq!(tuple.len(), relation.columns.len());
    let value = |datum| match datum {
        Datum::Null => "-".to_owned(),
        Datum::Unchanged => "=".to_owned(),
        Datum::Text(text) if text.len() > 40 => format!("{} bytes", text.len()),
        Datum::Text(text) => String::from_utf8_lossy(text).into_owned(),
    };
    let values: Vec<_> = tuple.iter().map(value).collect();
    format!("({})", values.join(", "))
}
