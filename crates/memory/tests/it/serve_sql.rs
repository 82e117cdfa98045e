//! What the store answers is what Postgres answers: the same rows in both, the same random queries
//! of both.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use hindcast_cluster::{Cluster, Options};
use hindcast_memory::Catalog;
use hindcast_memory::serve::sql::{self, View};
use hindcast_pg::{ConnectOptions, Connection};
use hindcast_standby::source::TableFilter;
use hindcast_standby::source::tables::tables;
use hindcast_store::{Appender, Cell, Mark, Store};

const SCHEMA: &str = r#"
CREATE TABLE item (id int PRIMARY KEY, a int, big bigint, n numeric(10, 2), f float8, r real, s text COLLATE "C", b bool, d date, ts timestamptz, u uuid, p char(4), j jsonb);
CREATE TABLE part (k1 int, k2 text COLLATE "C", item_id int, v numeric, PRIMARY KEY (k1, k2));
CREATE TABLE named (id bigint PRIMARY KEY, name text COLLATE "und-x-icu");
INSERT INTO item SELECT i, nullif(i % 7, 3), i::bigint * 5000000000 - 100, nullif(i % 11, 5) * 1.25 - 3, (i % 13) / 4.0 - 1, i * 0.5,
    CASE i % 5 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN 'it''s ' || i WHEN 3 THEN 'Ä_' || i % 3 ELSE E'a%\\b' END,
    CASE i % 3 WHEN 0 THEN true WHEN 1 THEN false END, date '2024-02-27' + i % 9, timestamptz '2026-11-21 10:00+00' + i * interval '7 minutes 0.5 seconds',
    ('00000000-0000-0000-0000-0000000000' || lpad(to_hex(i), 2, '0'))::uuid, CASE i % 4 WHEN 0 THEN 'x' WHEN 1 THEN 'xy ' WHEN 2 THEN 'z' END, '{"i": 1}'
  FROM generate_series(1, 120) i;
INSERT INTO part SELECT i % 10, 'k' || i, CASE WHEN i % 8 = 0 THEN NULL ELSE i % 140 END, CASE i % 6 WHEN 0 THEN NULL WHEN 1 THEN 'NaN' ELSE i * 1.001 END FROM generate_series(1, 90) i;
CREATE TABLE odd (id int PRIMARY KEY, r real, f float8, p char(4), s text COLLATE "C", v varchar(6) COLLATE "C", t time, o oid, i2 int2, y bytea, n numeric, d date, ts timestamp, tz timestamptz, b bool);
INSERT INTO odd VALUES
  (1, 0.1, 0.1, 'x', 'x', 'x', '10:00', 1, 1, '\x00', 1.0, '2024-01-01', '2024-01-01', '2024-01-01', true),
  (2, 16777217, 16777217, 'x', 'x   ', 'x ', '24:00', 4294967295, -32768, '\x', 1.00, '0044-03-15 BC', '0044-03-15 12:00 BC', '0044-03-15 12:00 BC', false),
  (3, 'NaN', 'NaN', ' x', '', '', '00:00:00.000001', 2, 32767, '\xff00', 'NaN', 'infinity', 'infinity', 'infinity', NULL),
  (4, '-0', '-0', '', NULL, NULL, NULL, NULL, NULL, NULL, 'Infinity', '-infinity', '-infinity', '-infinity', NULL),
  (5, 1e10, 1e-7, NULL, 'ä', 'ä', '23:59:59.5', 3, 0, '\x61', -1e-10, '10000-12-31', '2024-02-29 23:59:59.999999', '2024-02-29 23:59:59.999999+05:30', NULL),
  (6, 1e-5, 123456789.125, 'abcd', 'abcd', 'abcd', '01:00', 5, 7, '\x6162', 12345678901234567890.123, '2024-01-01', '2024-01-01 00:00:01', '2024-01-01 01:00:00+01', true);
INSERT INTO named SELECT i, 'name ' || i FROM generate_series(1, 20) i;
"#;

struct Both {
    _cluster: Cluster,
    postgres: Connection,
    store: Store,
    appender: Appender,
    catalog: Catalog,
}

impl Both {
    fn new() -> Self {
        let cluster = Cluster::temporary(Options::throw_away())
            .unwrap_or_else(|error| panic!("no private Postgres: {error}"));
        let url = cluster.url("postgres").parse().unwrap();
        let options = ConnectOptions::named("test")
            .set("timezone", "UTC")
            .set("extra_float_digits", "3");
        let mut postgres = Connection::connect(&url, &options).unwrap();
        postgres.query(SCHEMA).unwrap();
        let found = tables(&mut postgres, &TableFilter::default()).unwrap();
        let catalog = Catalog::new(&found.tables);
        let (store, mut appender) = hindcast_store::open(hindcast_store::Options::default());
        for table in &found.tables {
            let known = catalog.by_oid(table.oid).unwrap();
            let rows = postgres
                .query(&format!(
                    "SELECT {} FROM {}",
                    table.column_list(),
                    table.quoted()
                ))
                .unwrap();
            for row in rows.iter() {
                let mut key = Vec::new();
                known
                    .encode_key(|place| row.bytes(place), &mut key)
                    .unwrap();
                let cells: Vec<Cell<'_>> = (0..table.columns.len())
                    .map(|place| row.bytes(place).map_or(Cell::Null, Cell::Value))
                    .collect();
                appender.put(known.id, &key, 0, cells.into_iter(), None);
            }
        }
        let mut both = Self {
            _cluster: cluster,
            postgres,
            store,
            appender,
            catalog,
        };
        both.show(1);
        both
    }

    fn show(&mut self, lsn: u64) {
        self.appender.commit(Mark { lsn, time: 0 });
        self.appender.flush();
        assert!(
            self.store
                .wait_visible(lsn, Instant::now() + Duration::from_secs(20))
        );
    }

    fn ours(
        &self,
        text: &str,
        parameters: &[Option<Vec<u8>>],
    ) -> Result<Vec<Vec<Option<String>>>, sql::SqlError> {
        let statement = sql::prepare(text, &[], &self.catalog)?;
        let snapshot = self.store.snapshot();
        let status = || vec![("hindcast.lsn", "0/1".to_owned())];
        let view = View {
            snapshot: &snapshot,
            catalog: &self.catalog,
            status: &status,
            interrupted: &|| Ok(()),
        };
        let mut rows = Vec::new();
        sql::execute(&statement, parameters, &view, &mut |row| {
            let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
            assert_eq!(row.len(), statement.columns().len());
            rows.push(row.iter().map(|value| value.map(text)).collect());
            Ok(())
        })?;
        Ok(rows)
    }

    fn theirs(&mut self, text: &str) -> Result<Vec<Vec<Option<String>>>, hindcast_pg::Error> {
        let rows = self.postgres.query(text)?;
        let width = rows.columns().len();
        Ok(rows
            .iter()
            .map(|row| {
                (0..width)
                    .map(|column| row.text(column).map(str::to_owned))
                    .collect()
            })
            .collect())
    }

    /// Compares row by row where the query says in which order, else as sets with repetitions.
    fn compare(&mut self, text: &str) {
        let theirs = self.theirs(text);
        let ours = self.ours(text, &[]);
        match (theirs, ours) {
            (Ok(mut theirs), Ok(mut ours)) => {
                if !text.contains("ORDER BY") {
                    theirs.sort();
                    ours.sort();
                }
                assert_eq!(ours, theirs, "{text}");
            }
            (Err(theirs), Err(ours)) => {
                assert_eq!(Some(ours.code), theirs.code(), "{text}: {ours} / {theirs}");
            }
            (theirs, ours) => panic!("{text}\n  Postgres: {theirs:?}\n  we: {ours:?}"),
        }
    }
}

/// Queries that every branch of the subset needs.
#[test]
fn chosen_queries_are_answered_as_postgres_does() {
    let mut both = Both::new();
    for text in [
        "SELECT * FROM item WHERE id = 17",
        "SELECT id FROM item WHERE 17 = id AND a IS NOT NULL",
        "SELECT id, s FROM public.item WHERE id BETWEEN 10 AND 20 ORDER BY id",
        "SELECT id FROM item ORDER BY id DESC LIMIT 3 OFFSET 2",
        "SELECT id FROM item WHERE id > 100 AND id <= 110 ORDER BY id DESC LIMIT 4",
        "SELECT count(*), count(a), sum(a), avg(a), min(a), max(a) FROM item",
        "SELECT count(*), sum(big), avg(big), sum(n), avg(n), min(n), max(n) FROM item WHERE id < 50",
        "SELECT sum(f), avg(f), min(f), max(f), max(ts), min(d), min(s), max(p) FROM item",
        "SELECT sum(a), avg(n), min(s) FROM item WHERE id = -1",
        "SELECT a, count(*), sum(n) FROM item GROUP BY a ORDER BY a",
        "SELECT a, b, count(*) AS c FROM item GROUP BY 1, 2 ORDER BY c DESC, a NULLS FIRST, b",
        "SELECT d, max(id) FROM item GROUP BY d ORDER BY 2 DESC LIMIT 3",
        "SELECT count(DISTINCT a), count(DISTINCT p) FROM item",
        "SELECT p FROM item GROUP BY p",
        "SELECT id FROM item WHERE a IN (1, 2, NULL)",
        "SELECT id FROM item WHERE a NOT IN (1, 2)",
        "SELECT id FROM item WHERE a NOT IN (1, NULL)",
        "SELECT id FROM item WHERE NOT (a = 1 OR b)",
        "SELECT id FROM item WHERE b IS NOT TRUE AND b IS NOT UNKNOWN",
        "SELECT id FROM item WHERE b",
        "SELECT id FROM item WHERE a IS DISTINCT FROM 2",
        "SELECT id FROM item WHERE a IS NOT DISTINCT FROM NULL",
        "SELECT id FROM item WHERE a = NULL",
        "SELECT id FROM item WHERE s LIKE 'it''s _'",
        "SELECT id FROM item WHERE s NOT LIKE '%\\_%'",
        "SELECT id FROM item WHERE s ILIKE 'A%'",
        "SELECT id FROM item WHERE s >= 'a' ORDER BY s, id",
        "SELECT id FROM item WHERE n = 1.50 OR n < -2.9",
        "SELECT id FROM item WHERE a > 1.5",
        "SELECT id FROM item WHERE f > 0.3 AND f <= 2",
        "SELECT id FROM item WHERE r = 12.5",
        "SELECT id FROM item WHERE d = '2024-02-29' AND ts > '2026-11-21 12:00:00+02'",
        "SELECT id FROM item WHERE ts < '2026-11-21 11:00Z'::timestamptz",
        "SELECT id FROM item WHERE u = '00000000-0000-0000-0000-000000000011'",
        "SELECT id FROM item WHERE p = 'x'",
        "SELECT id FROM item WHERE p = 'xy' AND big > 100",
        "SELECT id, a AS id2, 1, 'x', NULL, true, -2.5 FROM item WHERE id = 1",
        "SELECT a::text, n::text FROM item WHERE id < 4 ORDER BY id",
        "SELECT k1, k2, v FROM part WHERE k1 = 3 ORDER BY k2",
        "SELECT k1, k2 FROM part WHERE k1 = 3 AND k2 > 'k2' ORDER BY k2 DESC",
        "SELECT * FROM part WHERE k1 = 3 AND k2 = 'k13'",
        "SELECT sum(v), avg(v), max(v), count(*) FROM part",
        "SELECT avg(v), sum(v) FROM part WHERE v <> 'NaN'",
        "SELECT v FROM part ORDER BY v DESC NULLS LAST, k1, k2 LIMIT 5",
        "SELECT p.k2, i.s FROM part p JOIN item i ON i.id = p.item_id WHERE p.k1 = 4",
        "SELECT p.k2, i.a, n.name FROM part p JOIN item i ON p.item_id = i.id JOIN named n ON n.id = i.a ORDER BY p.k2",
        "SELECT count(*), sum(i.n) FROM part p JOIN item i ON i.id = p.item_id AND i.a > 2",
        "SELECT name FROM named WHERE name = 'name 7'",
        "SELECT name FROM named ORDER BY name COLLATE \"C\" LIMIT 3",
        "SELECT id FROM named WHERE name COLLATE \"C\" < 'name 2' ORDER BY 1",
        "SELECT id FROM item WHERE id = 5 LIMIT 0",
        "SELECT id FROM item WHERE id = 99999",
        "SELECT 1",
        "SELECT id FROM item WHERE id = 'x'",
        "SELECT nothing FROM item",
        "SELECT id FROM nothing",
        "SELECT a, count(*) FROM item",
        "SELECT i.id FROM item",
        "SELECT id FROM item LIMIT -1",
        "SELECT id FROM item ORDER BY 2",
        "SELEC 1",
        "SELECT id FROM part p JOIN item i ON i.id = p.item_id JOIN named n ON n.id = i.a",
    ] {
        both.compare(text);
    }
}

/// Where types meet, and at the ends of their values.
#[test]
fn values_of_two_types_are_compared_as_postgres_does() {
    let mut both = Both::new();
    for condition in [
        "r = 0.1",
        "r = '0.1'",
        "r > 0.1",
        "r >= 0.1",
        "r = f",
        "f = 0.1",
        "r = 16777217",
        "r = 16777216",
        "r = i2",
        "f = n",
        "n = f",
        "r = 0",
        "r = -0.0",
        "r = 'NaN'",
        "f = 'NaN'::float8",
        "r < 'Infinity'",
        "f > 1e300",
        "r = 0.1::real",
        "r = 0.1::float8",
        "p = s",
        "p = v",
        "s = p",
        "p = 'x'",
        "p = 'x  '",
        "p = 'x'::text",
        "p = 'x '::text",
        "s = 'x'",
        "s = v",
        "v = 'x '",
        "p <> s",
        "p = ''",
        "p < 'y'",
        "p > ' '",
        "p IN ('x', 'abcd ')",
        "s IN ('x   ')",
        "o = 4294967295",
        "o > 2",
        "i2 = 1",
        "i2 > 100000",
        "i2 = '1'",
        "i2 = '100000'",
        "i2 = 1.0",
        "i2 = 1.5",
        "id = 99999999999",
        "id = '99999999999'",
        "id = 99999999999999999999",
        "n = 1",
        "n = '1.000'",
        "n > 1e9",
        "n < 0",
        "n = 'NaN'",
        "n > 'Infinity'",
        "n = 'Infinity'",
        "n >= -1e-10",
        "n = ' 1 '",
        "n = ''",
        "n = '1_0'",
        "n = '0x1'",
        "d = '2024-01-01'",
        "d < '0001-01-01'",
        "d = 'infinity'",
        "d = '2024-1-1'",
        "d = 'x'",
        "d = ts",
        "d < ts",
        "d = '2024-01-01'::timestamp",
        "ts = '2024-01-01'",
        "ts < '2024-01-01 00:00:00.5'",
        "ts = '2024-01-01T00:00:01'",
        "ts > 'infinity'",
        "ts = 'infinity'",
        "ts = '2024-01-01 00:00:01+05'",
        "tz = '2024-01-01'",
        "tz = '2024-01-01 05:30+05:30'",
        "tz < '2024-02-29 23:59:59.999999Z'",
        "tz = '2024-01-01 00:00 BC'",
        "tz > '0044-03-15 11:00:00 BC'",
        "ts = 'Infinity'",
        "tz = 'x'",
        "ts = '2024-01-01 00:00:01.0000001'",
        "t = '24:00'",
        "t < '10:00:00'",
        "t > '23:59:59.49'",
        "t = '10'",
        "y = '\\x61'",
        "y = 'a'",
        "y > '\\x'",
        "y = 'ab'",
        "y < '\\xFF'",
        "b",
        "NOT b",
        "b = true",
        "b = 't'",
        "b = 'TRUE'",
        "b = 'tr'",
        "b = 'of'",
        "b = 'o'",
        "b > false",
        "b IS NOT FALSE",
        "b = 'maybe'",
        "b IN (true, NULL)",
        "b = NULL",
        "true",
        "NULL",
        "'t'",
        "b OR NULL",
        "b AND NULL",
        "s LIKE ''",
        "s LIKE 'x%'",
        "s LIKE '_'",
        "s NOT LIKE NULL",
        "v LIKE 'x_'",
        "s LIKE 'x\\'",
        "s LIKE '%\\'",
        "s ILIKE 'X'",
        "s > 'x'",
        "s >= ''",
        "s = NULL",
        "s BETWEEN 'a' AND 'x'",
        "NOT s BETWEEN 'a' AND NULL",
        "s NOT BETWEEN 'x' AND 'a'",
        "id > 2 AND id < 2",
        "id > 5 AND id < 2",
        "id >= 2 AND id > 2",
        "id BETWEEN 5 AND 1",
        "id = 2 AND id = 3",
        "id IN (1, 1, 2)",
        "id < NULL",
        "id = 2.0",
        "id > 2.5",
        "id > 2147483647",
        "id <= -2147483648",
        "1 = 1",
        "1 = 2",
        "1 < 1.5",
        "'a' < 'b'",
        "1 = '1'",
        "NULL = NULL",
        "NULL IS NULL",
        "id IS NOT NULL AND NOT (id = 1)",
        "(id = 1) IS TRUE",
        "(id = NULL) IS UNKNOWN",
        "odd.id = 1",
        "public.odd.id = 1",
        "o.id = 1",
    ] {
        both.compare(&format!("SELECT id FROM odd WHERE {condition}"));
    }
}

#[test]
fn values_are_written_as_postgres_does() {
    let mut both = Both::new();
    for query in [
        "sum(r) FROM odd",
        "avg(r) FROM odd",
        "sum(f) FROM odd",
        "avg(f) FROM odd",
        "min(r), max(r) FROM odd",
        "sum(n) FROM odd",
        "avg(n) FROM odd",
        "min(d), max(d) FROM odd",
        "min(ts), max(tz) FROM odd",
        "min(t), max(t) FROM odd",
        "sum(i2), avg(i2) FROM odd",
        "min(o), max(o) FROM odd",
        "max(y) FROM odd",
        "min(b) FROM odd",
        "min(p), max(p) FROM odd",
        "min(s), max(v) FROM odd",
        "count(DISTINCT r), count(DISTINCT n), count(DISTINCT p), sum(DISTINCT i2) FROM odd",
        "r, count(*) FROM odd GROUP BY r",
        "n, count(*) FROM odd GROUP BY n",
        "r FROM odd ORDER BY r DESC",
        "n FROM odd ORDER BY n, id",
        "tz FROM odd ORDER BY tz DESC, id",
        "y FROM odd ORDER BY y",
        "o FROM odd ORDER BY o NULLS FIRST",
        "sum(r), avg(r), avg(f), sum(f), avg(n) FROM odd WHERE id IN (1, 5, 6)",
        "sum(n), avg(n) FROM odd WHERE id IN (1, 2, 5)",
        "id::text, r::text, d::text, tz::text FROM odd",
        "id x, id FROM odd x ORDER BY x",
        "r AS f, f AS r FROM odd ORDER BY r",
        "id FROM odd ORDER BY id LIMIT NULL OFFSET NULL",
        "id FROM odd ORDER BY id OFFSET 3 ROWS FETCH FIRST 2 ROWS ONLY",
        "odd.* FROM odd ORDER BY id",
        "sum(id) s FROM odd GROUP BY s ORDER BY s",
        "'1'::int, 1::text, ' 7'::int8, 'yes'::bool, '1.50'::numeric, '{A0EEBC999C0B4EF8BB6D6BB9BD380A11}'::uuid",
        "'x'::int",
        "NULL::int",
        "1.0, 1e3, .5, -2.50e1, 4294967296, 12345678901234567890",
        "'a' 'b', E'\\n', $$x$$",
    ] {
        both.compare(&format!("SELECT {query}"));
    }
}

#[test]
fn parameters_are_values_of_the_type_they_are_compared_with() {
    let both = Both::new();
    let ask = |text: &str, parameters: &[Option<&str>]| {
        let parameters: Vec<_> = parameters
            .iter()
            .map(|value| value.map(|text| text.as_bytes().to_vec()))
            .collect();
        both.ours(text, &parameters).unwrap().len()
    };
    assert_eq!(ask("SELECT * FROM item WHERE id = $1", &[Some("7")]), 1);
    assert_eq!(ask("SELECT * FROM item WHERE id = $1", &[None]), 0);
    assert_eq!(
        ask(
            "SELECT * FROM item WHERE id > $1 AND id <= $2 LIMIT $3",
            &[Some("7"), Some("100"), Some("5")]
        ),
        5
    );
    let statement = sql::prepare(
        "SELECT s FROM item WHERE id = $1 AND n < $2 AND s = $3 LIMIT $4",
        &[],
        &both.catalog,
    )
    .unwrap();
    assert_eq!(statement.parameters(), [23, 1700, 25, 20]);
    assert_eq!(statement.columns()[0].type_oid, 25);
    let error = both
        .ours("SELECT * FROM item WHERE id = $1", &[])
        .unwrap_err();
    assert_eq!(error.code, "08P01");
}

#[test]
fn what_is_not_answered_is_named() {
    let both = Both::new();
    for (text, code, said) in [
        ("INSERT INTO item (id) VALUES (1)", "25006", "INSERT"),
        ("UPDATE item SET a = 1", "25006", "UPDATE"),
        ("DELETE FROM item", "25006", "DELETE"),
        ("SELECT * FROM item FOR UPDATE", "25006", "FOR UPDATE"),
        ("SELECT DISTINCT a FROM item", "0A000", "DISTINCT"),
        ("SELECT a + 1 FROM item", "0A000", "arithmetic"),
        ("SELECT lower(s) FROM item", "0A000", "function lower"),
        (
            "SELECT * FROM item WHERE id = (SELECT 1)",
            "0A000",
            "subquery",
        ),
        (
            "SELECT * FROM item i LEFT JOIN named n ON n.id = i.id",
            "0A000",
            "outer",
        ),
        (
            "SELECT * FROM item i JOIN part p ON p.item_id = i.id",
            "0A000",
            "primary key (k1, k2)",
        ),
        ("SELECT * FROM item, named", "0A000", "list of tables"),
        ("SELECT * FROM named ORDER BY name", "0A000", "collation"),
        ("SELECT * FROM item WHERE j = '{}'", "0A000", "jsonb"),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "0A000", "WITH"),
        ("SELECT a FROM item UNION SELECT 1", "0A000", "UNION"),
        ("SELECT * FROM pg_class", "0A000", "system catalog"),
        ("SELECT a, sum(n) OVER () FROM item", "0A000", "OVER"),
        ("CREATE TABLE x (a int)", "25006", "CREATE TABLE"),
        ("SELECT s::varchar(1) FROM odd", "0A000", "length"),
        ("SELECT '1.55'::numeric(3, 1)", "0A000", "precision"),
        ("SELECT '{1}'::int[]", "0A000", "array"),
        ("SELECT 1.5::int", "0A000", "cast of 1.5"),
        ("SELECT '2024-1-1'::date", "0A000", "output"),
        ("SELECT id FROM odd WHERE o = -1", "0A000", "negative"),
        ("SELECT id FROM odd WHERE s ILIKE 'Ä'", "0A000", "ILIKE"),
    ] {
        let error = both.ours(text, &[]).unwrap_err();
        assert_eq!(error.code, code, "{text}: {error}");
        assert!(error.message.contains(said), "{text}: {error}");
        assert!(error.hint.is_some() || code == "25006", "{text}");
    }
}

#[test]
fn keys_lead_to_the_rows() {
    let both = Both::new();
    let explain = |text: &str| {
        both.ours(&format!("EXPLAIN {text}"), &[])
            .unwrap()
            .concat()
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("; ")
    };
    assert_eq!(
        explain("SELECT * FROM item WHERE id = 5"),
        "Point on public.item;   Filter: 1 conditions"
    );
    assert_eq!(
        explain("SELECT * FROM part WHERE k1 = 5 ORDER BY k2 DESC"),
        "Range backward on public.part;   Filter: 1 conditions"
    );
    assert_eq!(
        explain("SELECT * FROM item WHERE id > 5 ORDER BY a"),
        "Sort; Range on public.item;   Filter: 1 conditions"
    );
    assert_eq!(
        explain("SELECT * FROM item WHERE a = 5"),
        "Scan on public.item;   Filter: 1 conditions"
    );
    assert_eq!(
        explain("SELECT * FROM part p JOIN item i ON i.id = p.item_id WHERE id = NULL"),
        "Scan on public.part;   Lookup in public.item by primary key;   Filter: 2 conditions"
    );
}

/// Random queries: repeatable by their seed, which a failure names with the query.
#[test]
fn random_queries_are_answered_as_postgres_does() {
    let mut both = Both::new();
    let mut random = Random(0x1234_5678);
    let mut asked = BTreeSet::new();
    while asked.len() < 400 {
        let text = random.query();
        if asked.insert(text.clone()) {
            both.compare(&text);
        }
    }
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

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    /// A column and a constant of its type.
    fn pair(&mut self) -> (&'static str, String) {
        match self.below(9) {
            0 => ("id", self.below(130).to_string()),
            1 => ("a", self.below(8).to_string()),
            2 => ("n", format!("{}.{}", self.below(10), self.below(4) * 25)),
            3 => ("f", format!("{}.25", self.below(3))),
            4 => (
                "s",
                format!("'{}'", self.one(&["", "it''s 2", "Ä_1", "a%\\b", "zz"])),
            ),
            5 => ("d", format!("'2024-03-0{}'", 1 + self.below(8))),
            6 => ("ts", format!("'2026-11-21 1{}:00:00+00'", self.below(10))),
            7 => ("p", format!("'{}'", self.one(&["x", "xy", "z  ", "q"]))),
            _ => (
                "big",
                format!("{}", self.below(600) as i64 * 1_000_000_000 - 100),
            ),
        }
    }

    fn condition(&mut self, depth: u32) -> String {
        match self.below(if depth == 0 { 5 } else { 8 }) {
            0 | 1 => {
                let (column, value) = self.pair();
                let ordered = column != "p";
                let operator = self.one(if ordered {
                    &["=", "<>", "<", "<=", ">", ">="]
                } else {
                    &["=", "<>"]
                });
                match self.below(4) {
                    0 => format!("{value} {operator} {column}"),
                    _ => format!("{column} {operator} {value}"),
                }
            }
            2 => {
                let (column, value) = self.pair();
                let (_, not) = (0, self.one(&["", "NOT "]));
                format!("{column} {not}IN ({value}, {value})")
            }
            3 => {
                let (column, _) = self.pair();
                format!("{column} IS {}NULL", self.one(&["", "NOT "]))
            }
            4 => {
                let (from, to) = (self.below(100), self.below(130));
                format!("id {}BETWEEN {from} AND {to}", self.one(&["", "NOT "]))
            }
            5 => format!("NOT ({})", self.condition(depth - 1)),
            6 => format!(
                "({} AND {})",
                self.condition(depth - 1),
                self.condition(depth - 1)
            ),
            _ => format!(
                "({} OR {})",
                self.condition(depth - 1),
                self.condition(depth - 1)
            ),
        }
    }

    fn query(&mut self) -> String {
        let mut conditions = Vec::new();
        for _ in 0..self.below(3) {
            conditions.push(self.condition(2));
        }
        let filter = match conditions.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", conditions.join(" AND ")),
        };
        match self.below(4) {
            0 => format!(
                "SELECT count(*), sum(a), avg(n), min(ts), max(s), sum(big), avg(a) FROM item{filter}"
            ),
            1 => {
                let column = self.one(&["a", "b", "d", "s", "n"]);
                format!(
                    "SELECT {column}, count(*), min(id), sum(n) FROM item{filter} GROUP BY {column}"
                )
            }
            2 => {
                let column = self.one(&["id", "a", "n", "f", "s", "d", "ts", "u"]);
                let (direction, nulls) = (
                    self.one(&["", " DESC"]),
                    self.one(&["", " NULLS FIRST", " NULLS LAST"]),
                );
                let limit = self.below(20);
                format!(
                    "SELECT id, {column} FROM item{filter} ORDER BY {column}{direction}{nulls}, id LIMIT {limit} OFFSET {}",
                    self.below(4)
                )
            }
            _ => format!("SELECT * FROM item{filter}"),
        }
    }
}
