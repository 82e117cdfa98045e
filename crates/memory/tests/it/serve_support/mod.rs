//! A store that a test fills by hand, and the server in front of it.

use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hindcast_cluster::Binaries;
use hindcast_memory::Catalog;
use hindcast_memory::serve::{Door, Server};
use hindcast_pg::{ConnectOptions, Connection};
use hindcast_standby::source::{ReplicatedTable, TableColumn};
use hindcast_store::{Appender, Cell, Mark, Store, TableId};

pub const ACCOUNT: TableId = TableId(16384);
/// 2026-11-21 10:00:00+00, from where the commits' times count.
pub const TEN: i64 = 1_795_255_200_000_000;
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Standby {
    pub server: Server,
    pub store: Store,
    pub appender: Appender,
    pub catalog: Arc<Catalog>,
}

impl Standby {
    /// With one table, in which nothing is.
    pub fn new() -> Self {
        Self::behind(&Door::open("127.0.0.1:0"))
    }

    /// Behind a door of one's own.
    pub fn behind(door: &Door) -> Self {
        let (store, appender) = hindcast_store::open(hindcast_store::Options {
            retention: Duration::from_secs(3600),
            ..hindcast_store::Options::default()
        });
        let columns = [
            ("id", 23, "integer", ""),
            ("owner", 25, "text", "C"),
            ("balance", 1700, "numeric(10,2)", ""),
            ("active", 16, "boolean", ""),
            ("rate", 701, "double precision", ""),
            ("since", 1184, "timestamp with time zone", ""),
            ("data", 17, "bytea", ""),
            ("place", 600, "point", ""),
        ];
        let table = ReplicatedTable {
            oid: ACCOUNT.0,
            schema: "public".to_owned(),
            name: "account".to_owned(),
            columns: columns
                .map(|(name, type_oid, type_name, collation)| TableColumn {
                    name: name.to_owned(),
                    type_oid,
                    type_name: type_name.to_owned(),
                    collation: collation.to_owned(),
                })
                .into(),
            primary_key: vec!["id".to_owned()],
            identity: 'd',
            changed: 0,
            rows_estimate: 0,
            bytes: 0,
            pages: 0,
            shape: Default::default(),
            rows: None,
            root: None,
        };
        let catalog = Arc::new(Catalog::new(&[table]));
        let server = Server::start(
            door,
            store.clone(),
            Arc::clone(&catalog),
            "shop".to_owned(),
            "15.4".to_owned(),
        )
        .unwrap_or_else(|error| panic!("{error}: {}", error.hint()));
        Self {
            server,
            store,
            appender,
            catalog,
        }
    }

    /// Accounts 1 to `count` with 100 each, committed at 1000.
    pub fn filled(count: i32) -> Self {
        let mut standby = Self::new();
        for id in 1..=count {
            standby.put(id, "100.00");
        }
        standby.commit(1000);
        standby
    }

    pub fn put(&mut self, id: i32, balance: &str) {
        let table = self.catalog.by_oid(ACCOUNT.0).expect("it is the table");
        let (id, owner) = (id.to_string(), format!("owner {id}"));
        let active = if id.ends_with('3') { None } else { Some("t") };
        let row = [
            Some(id.as_str()),
            Some(owner.as_str()),
            Some(balance),
            active,
            Some("0.25"),
            Some("2026-11-21 10:15:00.5+00"),
            Some("\\x00ff"),
            Some("(1,2)"),
        ];
        let mut key = Vec::new();
        table
            .encode_key(|place| row[place].map(str::as_bytes), &mut key)
            .expect("numbers are keys");
        let cells = row.map(|value| value.map_or(Cell::Null, |text| Cell::Value(text.as_bytes())));
        self.appender.put(ACCOUNT, &key, 0, cells.into_iter(), None);
    }

    /// The commit at `lsn` µs after ten is visible afterwards.
    pub fn commit(&mut self, lsn: u64) {
        let time = TEN + i64::try_from(lsn).expect("small");
        self.appender.commit(Mark { lsn, time });
        self.appender.flush();
        assert!(self.store.wait_visible(lsn, Instant::now() + PATIENCE));
    }

    pub fn url(&self) -> String {
        format!("postgres://ann@{}/shop", self.server.address())
    }

    pub fn connect(&self) -> Connection {
        Connection::connect(
            &self.url().parse().expect("an address"),
            &ConnectOptions::named("test"),
        )
        .unwrap_or_else(|error| panic!("{error}"))
    }

    pub async fn tokio(&self) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url(), tokio_postgres::NoTls)
            .await
            .unwrap_or_else(|error| panic!("{error:?}"));
        tokio::spawn(connection);
        client
    }

    pub fn psql(&self, arguments: &[&str]) -> Output {
        let binaries = Binaries::find().unwrap_or_else(|error| panic!("no Postgres: {error}"));
        Command::new(binaries.program("psql"))
            .args(["-X", "-A", "-t", &self.url()])
            .args(arguments)
            .current_dir("/")
            .output()
            .unwrap_or_else(|error| panic!("no psql: {error}"))
    }

    /// Nobody is connected any more, and nobody holds a state.
    pub fn wait_until_nobody_is_there(&self) {
        wait(|| self.server.sessions() == 0 && self.store.metrics().readers == 0);
    }
}

/// Until something is so.
pub fn wait(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not become so");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The first row's values.
pub fn first(connection: &mut Connection, sql: &str) -> Vec<Option<String>> {
    let rows = connection
        .query(sql)
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    let row = rows.first().unwrap_or_else(|| panic!("{sql}: no row"));
    (0..rows.columns().len())
        .map(|column| row.text(column).map(str::to_owned))
        .collect()
}

/// The first row's first value.
pub fn one(connection: &mut Connection, sql: &str) -> String {
    first(connection, sql).swap_remove(0).unwrap_or_default()
}

/// The SQLSTATE with which something is refused.
pub fn code(connection: &mut Connection, sql: &str) -> String {
    match connection.query(sql) {
        Ok(rows) => panic!("{sql}: {} rows", rows.len()),
        Err(error) => error.code().unwrap_or("none").to_owned(),
    }
}
