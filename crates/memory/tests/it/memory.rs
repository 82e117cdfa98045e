//! A standby in memory from beginning to end, against a real primary: every state that the primary
//! had can be read, and is as it was there.

use std::time::{Duration, Instant};

use hindcast_cluster::{Cluster, Options};
use hindcast_memory::serve::Door;
use hindcast_memory::{MemoryOptions, Mode, RunError, to_memory};
use hindcast_pg::{ConnectOptions, Connection};
use hindcast_standby::run;
use hindcast_standby::source::TableFilter;
use hindcast_standby::status::Control;

const PATIENCE: Duration = Duration::from_secs(30);

const SCHEMA: &str = r#"
CREATE TABLE item (id int PRIMARY KEY, a text COLLATE "C", big text, n numeric(12, 3), at timestamptz);
ALTER TABLE item ALTER big SET STORAGE EXTERNAL;
CREATE TABLE part (i bigint, k text COLLATE "C", big text, b bool, PRIMARY KEY (k, i));
ALTER TABLE part ALTER big SET STORAGE EXTERNAL, REPLICA IDENTITY FULL;
CREATE TABLE history (who text COLLATE "C", n int);
INSERT INTO history SELECT 'w' || i % 3, i % 2 FROM generate_series(1, 10) i;
CREATE FUNCTION large(seed int) RETURNS text LANGUAGE sql AS
  $$ SELECT string_agg(md5(seed::text || i), '') FROM generate_series(1, 100) i $$;
INSERT INTO item SELECT i, 'a' || i, large(i), i / 8.0, now() FROM generate_series(1, 15) i;
INSERT INTO part SELECT i, 'k' || i % 3, large(-i), i % 2 = 0 FROM generate_series(1, 15) i;
"#;

/// What is compared, and by what it is ordered: the order is that of the bytes. The last has no
/// key, and rows that are equal.
const STATES: [(&str, &str); 3] = [("item", "id"), ("part", "k, i"), ("history", "who, n")];

fn primary() -> Cluster {
    let options = Options::throw_away().set("wal_level", "logical");
    Cluster::temporary(options).unwrap_or_else(|error| panic!("no private Postgres: {error}"))
}

fn connect(url: &str) -> Connection {
    let options = ConnectOptions::named("test")
        .set("timezone", "UTC")
        .set("extra_float_digits", "3");
    Connection::connect(&url.parse().unwrap(), &options).unwrap_or_else(|error| panic!("{error}"))
}

fn options(cluster: &Cluster, mode: Mode) -> MemoryOptions {
    MemoryOptions {
        common: run::Options {
            from: cluster.url("postgres").parse().unwrap(),
            name: "test".to_owned(),
            tables: TableFilter::default(),
            workers: Some(3),
            copy_workers: 2,
            streaming: true,
            until: None,
        },
        mode,
        serve: Door::open("127.0.0.1:0"),
        retention: Duration::from_secs(600),
        memory_max: None,
    }
}

fn wait(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not become so");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A table's rows, one a line.
fn rows(connection: &mut Connection, (table, order): (&str, &str), at: Option<&str>) -> String {
    let at = at.map_or(String::new(), |lsn| format!(" AS OF '{lsn}'"));
    let sql = format!("SELECT * FROM {table}{at} ORDER BY {order}");
    let rows = connection
        .query(&sql)
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    let width = rows.columns().len();
    rows.iter()
        .map(|row| {
            let values: Vec<_> = (0..width)
                .map(|at| row.text(at).unwrap_or("NULL"))
                .collect();
            values.join("|") + "\n"
        })
        .collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    fn statement(&mut self) -> String {
        let (id, other, number) = (self.below(20), self.below(20), self.below(1000));
        match self.below(14) {
            0 | 1 => format!(
                "INSERT INTO item VALUES ({id}, 'new {number}', large({number}), {number} / 8.0, now()) ON CONFLICT (id) DO UPDATE SET n = item.n + 1"
            ),
            2 => format!(
                "UPDATE item SET a = CASE WHEN id % 2 = 0 THEN 'x{number}' END WHERE id BETWEEN {id} AND {other}"
            ),
            // The row moves, and its large value is not in the log.
            3 => format!("UPDATE item SET id = id + 100 + {number} WHERE id = {id}"),
            4 => format!("UPDATE item SET id = -id, n = NULL WHERE id > {id}"),
            5 => format!("DELETE FROM item WHERE id = {id} OR id < -{other}"),
            6 => format!(
                "INSERT INTO part VALUES ({id}, 'k{}', large({number}), NULL) ON CONFLICT DO NOTHING",
                other % 4
            ),
            7 => format!("UPDATE part SET b = NOT b WHERE i <= {id}"),
            8 => format!("UPDATE part SET k = k || 'x', i = i + {number} WHERE i = {id}"),
            9 => format!("DELETE FROM part WHERE i = {id}"),
            10 => format!(
                "SAVEPOINT s; DELETE FROM item WHERE id > {id}; UPDATE part SET big = NULL; ROLLBACK TO s"
            ),
            11 | 12 => format!(
                "INSERT INTO history SELECT 'w{}', i FROM generate_series(1, {id}) i",
                other % 3
            ),
            _ if number < 150 => "TRUNCATE item, part, history".to_owned(),
            _ => format!(
                "UPDATE item SET big = large({number}) WHERE id = {id}; DELETE FROM item WHERE id = {other}; INSERT INTO item (id) VALUES ({other})"
            ),
        }
    }
}

fn states_are_as_they_were(mode: Mode, seed: u64) {
    let cluster = primary();
    let mut writer = connect(&cluster.url("postgres"));
    writer.query(SCHEMA).unwrap();
    let control = Control::default();
    let options = options(&cluster, mode);
    let standby = {
        let control = control.clone();
        std::thread::spawn(move || to_memory(&options, &control))
    };
    let served = || {
        let notices = control.status().notices;
        notices
            .iter()
            .find_map(|notice| Some(notice.split_once("served at ")?.1.to_owned()))
    };
    wait(|| {
        assert!(!standby.is_finished(), "it ended before it served");
        served().is_some()
    });
    let mut reader = connect(&format!("postgres://ann@{}/postgres", served().unwrap()));

    let mut random = Random(seed);
    let mut states = Vec::new();
    for _ in 0..150 {
        let statements: Vec<String> = (0..=random.below(3)).map(|_| random.statement()).collect();
        let end = if random.below(8) == 0 {
            "ROLLBACK"
        } else {
            "COMMIT"
        };
        let sql = format!("BEGIN; {}; {end}", statements.join("; "));
        if let Err(error) = writer.query(&sql) {
            // Two rows would have one key.
            assert_eq!(error.code(), Some("23505"), "{sql}: {error}");
            writer.query("ROLLBACK").unwrap();
        }
        let lsn = writer.query("SELECT pg_current_wal_insert_lsn()").unwrap();
        let lsn = lsn.first().unwrap().string(0);
        states.push((lsn, sql, STATES.map(|table| rows(&mut writer, table, None))));
    }
    // A large transaction is cut off in its midst, and comes again from its beginning.
    writer
        .query("INSERT INTO history SELECT 'large', i FROM generate_series(1, 50000) i")
        .unwrap();
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(20));
        writer
            .query("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
            .unwrap();
    }
    writer
        .query("INSERT INTO item (id) VALUES (1000000)")
        .unwrap();
    wait(|| {
        let found = reader
            .query("SELECT id FROM item WHERE id = 1000000")
            .unwrap();
        !found.is_empty()
    });
    let mut changed = 0;
    let mut before = None;
    for (lsn, sql, wanted) in &states {
        for (table, wanted) in STATES.iter().zip(wanted) {
            let found = rows(&mut reader, *table, Some(lsn));
            assert!(
                found == *wanted,
                "{table:?} at {lsn} after {sql}\nfound:\n{found}\nwanted:\n{wanted}"
            );
        }
        changed += usize::from(before.replace(wanted) != Some(wanted));
    }
    assert!(changed > 50, "only {changed} states differ");
    for table in STATES {
        assert_eq!(
            rows(&mut reader, table, None),
            rows(&mut writer, table, None)
        );
    }
    control.stop();
    standby
        .join()
        .unwrap()
        .unwrap_or_else(|error| panic!("{error}"));
    let slots = writer
        .query("SELECT slot_name FROM pg_replication_slots")
        .unwrap();
    assert!(slots.is_empty(), "what is on the primary for it is removed");
    assert!(reader.query("SELECT 1").is_err());
}

#[test]
fn states_are_as_they_were_on_the_primary_row_by_row() {
    states_are_as_they_were(Mode::Row, 1);
}

#[test]
fn states_are_as_they_were_on_the_primary_transaction_by_transaction() {
    states_are_as_they_were(Mode::Transaction, 2);
}

/// Why a standby of these tables does not begin.
fn refusal(schema: &str) -> RunError {
    let cluster = primary();
    connect(&cluster.url("postgres")).query(schema).unwrap();
    to_memory(&options(&cluster, Mode::Row), &Control::default())
        .expect_err("it cannot follow these tables")
}

fn said(error: &RunError) -> String {
    let mut said = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        said.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    format!("{said}\n{}", error.hint().unwrap_or_default())
}

#[test]
fn tables_whose_rows_are_not_named_by_their_primary_key_are_refused() {
    let error = refusal(
        "CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL UNIQUE); ALTER TABLE t REPLICA IDENTITY USING INDEX t_b_key;",
    );
    let said = said(&error);
    for part in ["public.t", "another index", "REPLICA IDENTITY DEFAULT"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn rows_that_change_and_have_no_key_are_refused() {
    let error = refusal("CREATE TABLE t (a int, b int); ALTER TABLE t REPLICA IDENTITY FULL;");
    let said = said(&error);
    for part in ["public.t", "primary key", "--exclude-table"] {
        assert!(said.contains(part), "{said}");
    }
}
