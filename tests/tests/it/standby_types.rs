//! What a row may hold and what may happen to a table: it arrives as it is, or is refused with the
//! next step.

use hindcast_tests::session::Session;
use hindcast_tests::stage::free_port;
use hindcast_tests::standby::{Follower, Pair, assert_refused, number};
use hindcast_tests::wait_for;

/// Types of core Postgres and values of them, the odd ones among them. The second field says
/// whether a primary key may have the type.
const TYPES: &[(&str, bool, &[&str])] = &[
    ("boolean", true, &["true", "false"]),
    ("smallint", true, &["-32768", "32767", "0"]),
    ("int", true, &["-2147483648", "2147483647", "0"]),
    (
        "bigint",
        true,
        &["-9223372036854775808", "9223372036854775807", "0"],
    ),
    (
        "numeric",
        true,
        &[
            "NaN",
            "Infinity",
            "-Infinity",
            "0",
            "0.000",
            "-1.50",
            "123456789012345678901234567890.123456789",
        ],
    ),
    ("numeric(12,3)", true, &["1.5", "-999999999.999", "0"]),
    (
        "real",
        true,
        &[
            "NaN",
            "Infinity",
            "-Infinity",
            "-0",
            "1e-45",
            "3.4028235e38",
            "0.1",
        ],
    ),
    (
        "double precision",
        true,
        &[
            "NaN",
            "Infinity",
            "-Infinity",
            "-0",
            "5e-324",
            "1.7976931348623157e308",
            "0.1",
        ],
    ),
    ("money", true, &["-92233720368547758.08", "12.34"]),
    (
        "text",
        true,
        &[
            "",
            "a",
            "it''s \"quoted\" \\ and , {braces} (parens)",
            "two\nlines\tand a tab",
            "ünïcödé 😀",
            "NULL",
            "\\N",
        ],
    ),
    ("varchar(20)", true, &["", "trailing  ", "ünï"]),
    ("char(5)", true, &["", "a", "abcde"]),
    ("\"char\"", true, &["a", "", "\\200"]),
    ("name", true, &["", "a name"]),
    ("bytea", true, &["", "\\x00ff5c27", "\\xdeadbeef"]),
    (
        "date",
        true,
        &[
            "infinity",
            "-infinity",
            "4713-01-01 BC",
            "5874897-12-31",
            "2026-02-28",
        ],
    ),
    ("time", true, &["00:00", "24:00", "12:34:56.789012"]),
    ("time(2)", true, &["12:34:56.78"]),
    ("timetz", true, &["00:00+00", "12:34:56.789012-15:59"]),
    (
        "timestamp",
        true,
        &[
            "infinity",
            "-infinity",
            "4713-01-01 00:00 BC",
            "294276-12-31 23:59:59.999999",
        ],
    ),
    (
        "timestamptz",
        true,
        &["infinity", "2026-03-29 02:30+02", "0044-03-15 12:00+00 BC"],
    ),
    (
        "interval",
        true,
        &[
            "0",
            "-1 year 2 mons -3 days 04:05:06.789",
            "178000000 years",
        ],
    ),
    (
        "uuid",
        true,
        &[
            "00000000-0000-0000-0000-000000000000",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
        ],
    ),
    (
        "json",
        false,
        &[
            "null",
            "{\"b\": 1,   \"a\": [1, 2.50, \"\\u00e4\"], \"b\": 2}",
        ],
    ),
    (
        "jsonb",
        true,
        &["null", "{\"b\": 1, \"a\": [1, 2.50, \"ä\"]}", "\"x\""],
    ),
    ("jsonpath", false, &["$.a[*] ? (@ > 1)"]),
    ("xml", false, &["<a b=\"c\">&lt;ä</a>", ""]),
    ("inet", true, &["10.0.0.1", "::1", "192.168.1.5/24"]),
    ("cidr", true, &["10.0.0.0/8", "2001:db8::/32"]),
    ("macaddr", true, &["08:00:2b:01:02:03"]),
    ("macaddr8", true, &["08:00:2b:01:02:03:04:05"]),
    ("bit(5)", true, &["10101", "00000"]),
    ("bit varying(9)", true, &["", "101010101"]),
    ("point", false, &["(0.1,-1e300)"]),
    ("line", false, &["{1,-1,0}"]),
    ("lseg", false, &["[(0,0),(1,1)]"]),
    ("box", false, &["(1,1),(0,0)"]),
    ("path", false, &["[(0,0),(1,1),(2,0)]", "((0,0),(1,1))"]),
    ("polygon", false, &["((0,0),(1,1),(2,0))"]),
    ("circle", false, &["<(0,0),1.5>"]),
    ("tsvector", true, &["", "''a'':1A ''it''''s'':2,3B"]),
    ("tsquery", true, &["''fat'' & ( ''rat'' | !''cat'' )"]),
    ("int4range", true, &["empty", "[1,5)", "(,)", "[7,)"]),
    ("numrange", true, &["[1.5,2.50]", "(,0)"]),
    ("tstzrange", true, &["[2026-01-01 00:00+00,infinity)"]),
    ("daterange", true, &["[2026-01-01,2026-02-01)"]),
    ("int8multirange", true, &["{}", "{[1,3),[5,7)}"]),
    (
        "int[]",
        true,
        &["{}", "{1,NULL,3}", "{{1,2},{3,4}}", "[0:1]={5,6}"],
    ),
    (
        "text[]",
        true,
        &["{}", "{\"a,b\",\"\",NULL,\"NULL\",\"q\\\"\\\\\",\"{}\"}"],
    ),
    ("bytea[]", true, &["{\"\\\\x00ff\",NULL}"]),
    (
        "timestamptz[]",
        true,
        &["{infinity,\"2026-01-01 00:00+00\"}"],
    ),
    ("mood", true, &["sad", "ok", "very happy"]),
    ("mood[]", true, &["{sad,\"very happy\",NULL}"]),
    ("short", true, &["abc", ""]),
    ("pair", true, &["(1,a)", "(,)", "(3,\"it''s, (odd)\")"]),
    ("pair[]", true, &["{\"(1,a)\",NULL}"]),
    ("floatrange", true, &["[0.1,2)", "empty"]),
    ("oid", true, &["4294967295", "0"]),
    ("oidvector", true, &["1 2 3"]),
    ("int2vector", false, &["1 2 3"]),
    ("regtype", true, &["integer", "text"]),
    // None, and one whose relation is gone.
    ("regclass", true, &["pg_class", "-", "4294967294"]),
    ("bpchar", false, &["", "a", "b  "]),
    ("pg_lsn", true, &["0/0", "16/B374D848"]),
    ("xid8", true, &["18446744073709551615"]),
    ("xid", false, &["4294967295"]),
    ("cid", false, &["7"]),
    ("tid", true, &["(1,2)"]),
    ("pg_snapshot", false, &["10:20:10,14,15"]),
    ("aclitem", false, &["postgres=r/postgres"]),
    ("refcursor", false, &["cursor"]),
];

const DECLARED: &str = "CREATE TYPE mood AS ENUM ('sad', 'ok', 'very happy');
    CREATE DOMAIN short AS varchar(3) CHECK (length(VALUE) < 4);
    CREATE TYPE pair AS (one int, other text);
    CREATE TYPE floatrange AS RANGE (subtype = double precision);";

/// A table with a column of each type, and one with a key of each type that can be one.
fn every_type() -> String {
    let columns: String = TYPES
        .iter()
        .enumerate()
        .map(|(number, (name, ..))| format!(", c{number} {name}"))
        .collect();
    let keys: String = TYPES
        .iter()
        .enumerate()
        .filter(|(_, (_, is_key, _))| *is_key)
        .map(|(number, (name, ..))| {
            format!("CREATE TABLE key{number} (k {name} PRIMARY KEY, v int, t text);\n")
        })
        .collect();
    format!("{DECLARED} CREATE TABLE every (id int PRIMARY KEY{columns}); {keys}")
}

/// A row of `every` with the values of one turn.
fn row(id: usize, turn: usize) -> String {
    let values: String = TYPES
        .iter()
        .map(|(name, _, values)| format!(", '{}'::{name}", values[turn % values.len()]))
        .collect();
    format!("INSERT INTO every VALUES ({id}{values});\n")
}

fn turns() -> usize {
    TYPES
        .iter()
        .map(|(.., values)| values.len())
        .max()
        .unwrap_or(0)
}

/// All rows of `every`, and each key; what happens to them afterwards.
fn changes() -> [String; 4] {
    let rows: String = (0..turns()).map(|turn| row(100 + turn, turn)).collect();
    let mut keys = String::new();
    let mut touched = String::new();
    let mut moved = String::new();
    for (number, (name, is_key, values)) in TYPES.iter().enumerate() {
        if !is_key {
            continue;
        }
        for (turn, value) in values.iter().enumerate() {
            keys += &format!(
                "INSERT INTO key{number} VALUES ('{value}'::{name}, {turn}, 'a') ON CONFLICT DO NOTHING;\n"
            );
        }
        touched += &format!("UPDATE key{number} SET v = v + 1;\n");
        // The last value goes and comes back under another name.
        let (first, last) = (values[0], values[values.len() - 1]);
        moved += &format!("DELETE FROM key{number} WHERE k = '{first}'::{name};\n");
        if first != last {
            moved += &format!(
                "UPDATE key{number} SET k = '{first}'::{name} WHERE k = '{last}'::{name};\n"
            );
        }
    }
    let set = |value: &dyn Fn(usize) -> String| {
        let columns: Vec<String> = (0..TYPES.len())
            .map(|number| format!("c{number} = {}", value(number)))
            .collect();
        columns.join(", ")
    };
    let copy = set(&|number| format!("other.c{number}"));
    let nulls = set(&|_| "NULL".to_owned());
    [
        format!("{rows} INSERT INTO every (id) VALUES (99); {keys}"),
        format!(
            "{touched} UPDATE every SET {copy} FROM every other WHERE other.id = every.id + 1 AND every.id < 103;"
        ),
        format!(
            "BEGIN; {moved} UPDATE every SET {nulls} WHERE id = 104; UPDATE every SET c0 = true WHERE id = 99; COMMIT;"
        ),
        "DELETE FROM every WHERE id = 100; UPDATE every SET id = id + 1000 WHERE id > 104;"
            .to_owned(),
    ]
}

#[test]
fn every_type_arrives_as_it_is() {
    let pair = Pair::shared("every-type", &every_type());
    // Some of it is copied, the rest follows.
    let copied: String = (0..turns()).map(|turn| row(turn, turn)).collect();
    pair.primary(&format!("{copied} INSERT INTO every (id) VALUES (98);"));
    let mut follower = pair.follow(&[]);
    pair.wait_until_equal(&mut follower);
    for change in changes() {
        pair.primary(&change);
        pair.wait_until_equal(&mut follower);
    }
    follower.interrupt().assert_code(0);
}

/// Rows are found by all their values, as the log has them.
#[test]
fn every_type_arrives_as_it_is_in_a_table_without_a_key() {
    let pair = Pair::shared(
        "every-type-full",
        &format!(
            "{} ALTER TABLE every DROP CONSTRAINT every_pkey; ALTER TABLE every REPLICA IDENTITY FULL;",
            every_type()
        ),
    );
    let copied: String = (0..turns()).map(|turn| row(turn, turn)).collect();
    pair.primary(&copied);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    let followed: String = (0..turns()).map(|turn| row(100 + turn, turn)).collect();
    pair.primary(&format!("{followed} UPDATE every SET id = id + 1000; UPDATE every SET id = id + 1 WHERE id % 2 = 0; DELETE FROM every WHERE id % 3 = 0"));
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
}

#[test]
fn a_name_that_the_backup_does_not_know_is_told_and_not_tried_for_ever() {
    let pair = Pair::shared(
        "unknown-name",
        "CREATE TABLE t (id int PRIMARY KEY, r regclass)",
    );
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    pair.backup("CREATE SCHEMA only_here");
    pair.primary("CREATE SCHEMA elsewhere; CREATE VIEW elsewhere.view AS SELECT 1");
    pair.primary(
        "INSERT INTO t VALUES (1, 'pg_class'); INSERT INTO t VALUES (2, 'elsewhere.view')",
    );
    assert_refused(&follower.wait(), &["public.t", "0/", "elsewhere"]);
    assert_eq!(pair.backup("SELECT max(id) FROM t"), "1");
    pair.backup("CREATE SCHEMA elsewhere; CREATE VIEW elsewhere.view AS SELECT 1");
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    assert_eq!(
        pair.backup("SELECT r FROM t WHERE id = 2"),
        "elsewhere.view"
    );
    follower.interrupt().assert_code(0);
}

#[test]
fn every_type_is_right_when_it_changes_many_times_in_one_epoch() {
    let pair = Pair::shared("every-type-net", &every_type());
    // Everything that happens is there before the follower looks.
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    follower.interrupt().assert_code(0);
    for change in changes() {
        pair.primary(&change);
    }
    let mut follower = pair.follow(&["--epoch-ms", "1000", "--epoch-rows", "100000"]);
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
}

#[test]
fn every_type_is_served_from_memory_as_postgres_writes_it() {
    let pair = Pair::shared("every-type-memory", &every_type());
    let copied: String = (0..turns()).map(|turn| row(turn, turn)).collect();
    pair.primary(&copied);
    let port = free_port();
    let mut memory = pair.remember(port, &[]);
    let session = wait_for_memory(&pair, &mut memory, port);
    for change in changes() {
        pair.primary(&change);
        let marker = pair.mark();
        memory.process.wait_until("memory to have the marker", || {
            pair.has(&session, marker)
                .unwrap_or_else(|failure| panic!("{failure}"))
                .then_some(())
        });
        let primary = Session::connect(&pair.primary_url()).expect("the primary is there");
        primary
            .run("SET timezone = 'UTC'; SET extra_float_digits = 3; SET lc_monetary = 'C'")
            .expect("settings");
        let query = "SELECT * FROM every ORDER BY id";
        let (names, expected) = primary.table(query).expect("the primary answers");
        let (served_names, served) = session
            .table(query)
            .unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(served_names, names);
        assert_eq!(served, expected);
    }
    memory.interrupt().assert_code(0);
}

/// A session of a memory server, once it takes one.
fn wait_for_memory(pair: &Pair, memory: &mut Follower, port: u16) -> Session {
    let url = pair.memory_url(port);
    memory
        .process
        .wait_until("the memory server to take sessions", || {
            Session::connect(&url).ok()
        })
}

/// Follows while a script runs on the primary, waits after each step, and compares at its end.
fn follows(name: &str, schema: &str, steps: &[&str]) {
    let pair = Pair::shared(name, schema);
    let mut follower = pair.follow(&[]);
    for step in steps {
        pair.wait_until_it_has_all(&mut follower);
        pair.primary(step);
    }
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
    // The same in as few epochs as possible.
    let pair = Pair::shared(&format!("{name}-net"), schema);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    follower.interrupt().assert_code(0);
    for step in steps {
        pair.primary(step);
    }
    let mut follower = pair.follow(&["--epoch-ms", "2000", "--epoch-rows", "1000000"]);
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
}

#[test]
fn generated_columns_and_identities_come_out_the_same() {
    follows(
        "generated",
        "CREATE TABLE g (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int, b int GENERATED ALWAYS AS (a * 2) STORED, c text DEFAULT 'default', d timestamptz DEFAULT clock_timestamp());
         CREATE TABLE h (b int GENERATED ALWAYS AS (a + 1) STORED, a int, id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY);
         INSERT INTO g (a) SELECT generate_series(1, 50); INSERT INTO h (a) SELECT generate_series(1, 50);",
        &[
            "INSERT INTO g (a) SELECT generate_series(1, 50); INSERT INTO h (a, id) VALUES (7, 1000);",
            "UPDATE g SET a = a + 1 WHERE id % 2 = 0; UPDATE h SET a = NULL WHERE id < 5;",
            "INSERT INTO g (id, a) OVERRIDING SYSTEM VALUE VALUES (5000, 1); UPDATE g SET id = DEFAULT WHERE id = 1; DELETE FROM h WHERE id < 3;",
        ],
    );
}

#[test]
fn odd_names_composite_keys_and_schemas_are_no_matter() {
    follows(
        "odd-names",
        "CREATE SCHEMA \"My \"\"Schema\"\"\";
         CREATE TABLE \"My \"\"Schema\"\"\".\"select\" (\"from\" int, \"Group By\" text, \"ünï 'x'\" text, v int, PRIMARY KEY (\"Group By\", \"from\"));
         CREATE TABLE \"My \"\"Schema\"\"\".t (a int, b int, c int, v text, PRIMARY KEY (c, a, b));
         CREATE TABLE only_a_key (a int PRIMARY KEY);
         CREATE TABLE wide (id int PRIMARY KEY);
         DO $$ BEGIN FOR i IN 1..300 LOOP EXECUTE format('ALTER TABLE wide ADD c%s int', i); END LOOP; END $$;
         INSERT INTO \"My \"\"Schema\"\"\".\"select\" SELECT i, 'k' || i % 3, 'x', i FROM generate_series(1, 30) i;",
        &[
            "INSERT INTO \"My \"\"Schema\"\"\".t SELECT i % 3, i % 5, i % 7, i FROM generate_series(1, 50) i ON CONFLICT DO NOTHING; INSERT INTO only_a_key SELECT generate_series(1, 20);
             INSERT INTO wide (id, c300) SELECT i, i FROM generate_series(1, 20) i;",
            "UPDATE \"My \"\"Schema\"\"\".\"select\" SET \"Group By\" = 'moved', \"ünï 'x'\" = NULL WHERE \"from\" % 2 = 0;
             UPDATE \"My \"\"Schema\"\"\".t SET a = b + 10, b = a + 10 WHERE c > 3; UPDATE only_a_key SET a = a + 100; UPDATE wide SET c7 = 1, c299 = id WHERE id < 10;",
            "DELETE FROM \"My \"\"Schema\"\"\".t WHERE a > 10; DELETE FROM only_a_key WHERE a > 110; INSERT INTO only_a_key VALUES (120), (1);",
        ],
    );
}

#[test]
fn partitioned_tables_follow_with_rows_that_move() {
    follows(
        "partitioned",
        "CREATE TABLE p (id int, day date, v text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
         CREATE TABLE p2 PARTITION OF p FOR VALUES FROM ('2026-02-01') TO ('2026-03-01') PARTITION BY LIST (id);
         CREATE TABLE p2a PARTITION OF p2 FOR VALUES IN (1, 2, 3);
         CREATE TABLE p2b PARTITION OF p2 DEFAULT;
         -- Columns in another order than the parent's.
         CREATE TABLE p3 (v text, day date NOT NULL, dropped int, id int NOT NULL);
         ALTER TABLE p3 DROP dropped; ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM ('2026-03-01') TO ('2026-04-01');
         INSERT INTO p SELECT i, '2026-01-01'::date + i, 'x' FROM generate_series(1, 80) i;",
        &[
            "INSERT INTO p SELECT i + 100, '2026-01-01'::date + i, 'y' FROM generate_series(1, 80) i;",
            "UPDATE p SET day = day + 31 WHERE day < '2026-02-01' AND id % 2 = 0; UPDATE p SET v = 'z' WHERE id % 3 = 0;",
            "DELETE FROM p WHERE id % 5 = 0; UPDATE p SET id = id + 1000 WHERE id BETWEEN 20 AND 30;",
            "TRUNCATE p2; INSERT INTO p VALUES (1, '2026-02-02', 'again');",
        ],
    );
}

#[test]
fn out_of_line_values_survive_updates_of_other_columns() {
    follows(
        "toast",
        "CREATE TABLE big (id int PRIMARY KEY, n int, a text, b text, u int UNIQUE);
         ALTER TABLE big ALTER a SET STORAGE EXTERNAL; ALTER TABLE big ALTER b SET STORAGE EXTERNAL;
         CREATE TABLE big_full (id int PRIMARY KEY, n int, a text); ALTER TABLE big_full ALTER a SET STORAGE EXTERNAL; ALTER TABLE big_full REPLICA IDENTITY FULL;
         CREATE TABLE big_key (k text PRIMARY KEY, n int, a text); ALTER TABLE big_key ALTER a SET STORAGE EXTERNAL;
         INSERT INTO big SELECT i, 0, repeat(md5(i::text), 200), repeat(md5((-i)::text), 200), i FROM generate_series(1, 20) i;
         INSERT INTO big_full SELECT i, 0, repeat(md5(i::text), 200) FROM generate_series(1, 20) i;
         INSERT INTO big_key SELECT i || repeat('k', 500), 0, repeat(md5(i::text), 200) FROM generate_series(1, 20) i;",
        &[
            "UPDATE big SET n = n + 1; UPDATE big_full SET n = n + 1; UPDATE big_key SET n = n + 1;",
            "BEGIN; UPDATE big SET a = 'short' WHERE id = 1; UPDATE big SET n = n + 1 WHERE id = 1; UPDATE big SET b = repeat('b', 9000) WHERE id = 1; UPDATE big SET n = n + 1 WHERE id = 1; COMMIT;",
            "INSERT INTO big VALUES (100, 0, repeat('new', 5000), repeat('newer', 5000), 100); UPDATE big SET n = 5 WHERE id = 100; UPDATE big SET b = NULL WHERE id = 100; UPDATE big SET n = 6 WHERE id = 100;",
            // Another key, the values untouched; and once more within one transaction, with one of them changed.
            "UPDATE big SET id = id + 1000 WHERE id = 2; UPDATE big_full SET id = id + 1000 WHERE id = 2; UPDATE big_key SET k = 'moved' WHERE k LIKE '2k%';",
            "BEGIN; UPDATE big SET id = id + 1000 WHERE id = 3; UPDATE big SET n = 77 WHERE id = 1003; UPDATE big SET id = 2003 WHERE id = 1003; UPDATE big SET a = 'changed' WHERE id = 2003; COMMIT;",
            "BEGIN; UPDATE big SET n = 88, u = -1 WHERE id = 4; UPDATE big SET u = 4 WHERE id = 5; UPDATE big SET u = 5 WHERE id = 4; COMMIT;",
            "BEGIN; DELETE FROM big WHERE id = 6; INSERT INTO big VALUES (6, 1, 'again', repeat('again', 4000), 6); UPDATE big SET n = 2 WHERE id = 6; COMMIT;",
            // Two rows exchange their keys.
            "BEGIN; UPDATE big SET id = -7 WHERE id = 7; UPDATE big SET id = 7 WHERE id = 8; UPDATE big SET id = 8 WHERE id = -7; COMMIT;",
        ],
    );
}

#[test]
fn unique_values_may_wander() {
    follows(
        "wandering",
        "CREATE TABLE seat (id int PRIMARY KEY, place int UNIQUE, label text, UNIQUE (label, place));
         CREATE TABLE later (id int PRIMARY KEY, place int UNIQUE DEFERRABLE INITIALLY DEFERRED);
         CREATE TABLE room (id int PRIMARY KEY, during int4range, EXCLUDE USING gist (during WITH &&));
         CREATE UNIQUE INDEX ON seat (lower(label)) WHERE place > 0;
         INSERT INTO seat SELECT i, i, 'l' || i FROM generate_series(1, 20) i; INSERT INTO later SELECT i, i FROM generate_series(1, 20) i;
         INSERT INTO room SELECT i, int4range(i * 10, i * 10 + 10) FROM generate_series(1, 10) i;",
        &[
            "BEGIN; UPDATE seat SET place = -1 WHERE id = 1; UPDATE seat SET place = 1 WHERE id = 2; UPDATE seat SET place = 2 WHERE id = 1; COMMIT;",
            // Once around, in one statement.
            "UPDATE later SET place = place % 20 + 1;",
            // A value goes from one row to a new one, and to one that was there.
            "BEGIN; DELETE FROM seat WHERE id = 5; INSERT INTO seat VALUES (105, 5, 'l5'); COMMIT; BEGIN; UPDATE seat SET place = 200 WHERE id = 6; UPDATE seat SET place = 6 WHERE id = 7; INSERT INTO seat VALUES (107, 7, 'x'); COMMIT;",
            "BEGIN; UPDATE room SET during = int4range(1000, 1010) WHERE id = 1; UPDATE room SET during = int4range(10, 20) WHERE id = 2; UPDATE room SET during = int4range(20, 30) WHERE id = 1; COMMIT;",
            // The same value leaves and comes back, over many transactions.
            "DO $$ BEGIN FOR i IN 1..50 LOOP UPDATE seat SET place = -1 WHERE id = 10; UPDATE seat SET place = 10 WHERE id = 11; UPDATE seat SET place = 11 WHERE id = 10;
             UPDATE seat SET place = -1 WHERE id = 11; UPDATE seat SET place = 10 WHERE id = 10; UPDATE seat SET place = 11 WHERE id = 11; COMMIT; END LOOP; END $$;",
            "UPDATE seat SET label = upper(label) WHERE id = 12; DELETE FROM seat WHERE id = 13; INSERT INTO seat VALUES (13, 13, 'L13');",
        ],
    );
}

#[test]
fn keys_that_are_equal_and_look_different_are_one_key() {
    follows(
        "equal-keys",
        "CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
         CREATE TABLE n (k numeric PRIMARY KEY, v int); CREATE TABLE c (k text COLLATE blind PRIMARY KEY, v int); CREATE TABLE f (k float8 PRIMARY KEY, v int);
         CREATE TABLE i (k interval PRIMARY KEY, v int); CREATE TABLE j (k jsonb PRIMARY KEY, v int);
         INSERT INTO n VALUES (1.0, 0), (2, 0); INSERT INTO c VALUES ('a', 0), ('b', 0); INSERT INTO f VALUES ('-0', 0); INSERT INTO i VALUES ('24 hours', 0); INSERT INTO j VALUES ('1.0', 0);",
        &[
            "UPDATE n SET k = 1.00 WHERE k = 1; UPDATE c SET k = 'A' WHERE k = 'a'; UPDATE f SET k = 0; UPDATE i SET k = '1 day'; UPDATE j SET k = '1.00';",
            "UPDATE n SET v = 1; UPDATE c SET v = 1; UPDATE f SET v = 1; UPDATE i SET v = 1; UPDATE j SET v = 1;",
            "BEGIN; DELETE FROM n WHERE k = 1; INSERT INTO n VALUES (1.000, 5); DELETE FROM c WHERE k = 'a'; INSERT INTO c VALUES ('a', 5); UPDATE n SET v = 6 WHERE k = 1; UPDATE c SET v = 6 WHERE k = 'A'; COMMIT;",
            "BEGIN; UPDATE n SET k = 3 WHERE k = 1; INSERT INTO n VALUES (1, 7); UPDATE c SET k = 'z' WHERE k = 'a'; INSERT INTO c VALUES ('A', 7); COMMIT;",
        ],
    );
}

#[test]
fn replica_identities_other_than_the_primary_key_follow() {
    follows(
        "identities",
        "CREATE TABLE ful (id int PRIMARY KEY, a int, b text); ALTER TABLE ful REPLICA IDENTITY FULL;
         CREATE TABLE ful_without (a int, b text); ALTER TABLE ful_without REPLICA IDENTITY FULL;
         CREATE TABLE idx (id int PRIMARY KEY, u int NOT NULL, b text); CREATE UNIQUE INDEX idx_u ON idx (u); ALTER TABLE idx REPLICA IDENTITY USING INDEX idx_u;
         CREATE TABLE idx_without (u int NOT NULL, b text); CREATE UNIQUE INDEX idx_without_u ON idx_without (u); ALTER TABLE idx_without REPLICA IDENTITY USING INDEX idx_without_u;
         INSERT INTO ful SELECT i, i, 'x' FROM generate_series(1, 20) i; INSERT INTO ful_without SELECT i / 2, 'x' FROM generate_series(1, 20) i; INSERT INTO ful_without VALUES (NULL, NULL);
         INSERT INTO idx SELECT i, i, 'x' FROM generate_series(1, 20) i; INSERT INTO idx_without SELECT i, 'x' FROM generate_series(1, 20) i;",
        &[
            "UPDATE ful SET a = a + 1 WHERE id < 10; DELETE FROM ful WHERE id = 11; UPDATE ful SET id = 111 WHERE id = 12;",
            // Rows that are there twice: one of them goes.
            "DELETE FROM ful_without WHERE ctid IN (SELECT min(ctid) FROM ful_without WHERE a = 3); UPDATE ful_without SET b = 'y' WHERE ctid IN (SELECT min(ctid) FROM ful_without WHERE a = 5); UPDATE ful_without SET b = 'z' WHERE a IS NULL; INSERT INTO ful_without VALUES (7, 'x');",
            "UPDATE idx SET b = 'y' WHERE id < 5; UPDATE idx SET u = u + 100 WHERE id = 6; UPDATE idx SET id = id + 100 WHERE id = 7; DELETE FROM idx WHERE id = 8; UPDATE idx_without SET b = 'y' WHERE u < 5; UPDATE idx_without SET u = 55 WHERE u = 5; DELETE FROM idx_without WHERE u = 9;",
            "BEGIN; INSERT INTO ful_without VALUES (1000, 'new'); UPDATE ful_without SET b = 'newer' WHERE a = 1000; DELETE FROM ful_without WHERE a = 1000; UPDATE idx SET u = -1 WHERE id = 1; UPDATE idx SET u = 1 WHERE id = 2; UPDATE idx SET u = 2 WHERE id = 1; COMMIT;",
        ],
    );
}

#[test]
fn truncate_follows_with_all_it_takes_along() {
    follows(
        "truncate",
        "CREATE TABLE a (id int PRIMARY KEY, v int); CREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a); CREATE TABLE c (id serial PRIMARY KEY, v int);
         INSERT INTO a SELECT i, i FROM generate_series(1, 20) i; INSERT INTO b SELECT i, i FROM generate_series(1, 20) i; INSERT INTO c (v) SELECT generate_series(1, 20);",
        &[
            "TRUNCATE c RESTART IDENTITY; INSERT INTO c (v) VALUES (7);",
            "BEGIN; INSERT INTO a VALUES (100, 1); UPDATE a SET v = 5 WHERE id = 1; TRUNCATE a CASCADE; INSERT INTO a VALUES (1, 99), (2, 98); INSERT INTO b VALUES (1, 2); COMMIT;",
            "BEGIN; INSERT INTO c (v) VALUES (1), (2); TRUNCATE a, b, c; COMMIT; INSERT INTO a VALUES (5, 5);",
            "BEGIN; TRUNCATE c; ROLLBACK; INSERT INTO b VALUES (5, 5); INSERT INTO c (v) VALUES (3);",
        ],
    );
}

#[test]
fn foreign_keys_and_triggers_of_the_backup_stay_quiet() {
    follows(
        "quiet",
        "CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE);
         CREATE TABLE audit (id serial PRIMARY KEY, what text);
         CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit (what) VALUES (TG_OP || TG_TABLE_NAME); RETURN NULL; END $$;
         CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON child FOR EACH ROW EXECUTE FUNCTION audit();
         CREATE RULE nothing AS ON DELETE TO audit WHERE OLD.what = 'keep' DO INSTEAD NOTHING;
         INSERT INTO parent SELECT generate_series(1, 20); INSERT INTO child SELECT i, i FROM generate_series(1, 20) i;",
        &[
            "DELETE FROM parent WHERE id < 5; UPDATE parent SET id = id + 100 WHERE id = 7;",
            "BEGIN; ALTER TABLE child ALTER CONSTRAINT child_parent_fkey DEFERRABLE; SET CONSTRAINTS ALL DEFERRED; INSERT INTO child VALUES (50, 50); INSERT INTO parent VALUES (50); COMMIT;",
            "UPDATE child SET id = id + 1000; DELETE FROM audit WHERE id < 5;",
        ],
    );
}

#[test]
fn only_what_was_committed_arrives() {
    follows(
        "committed",
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'x' FROM generate_series(1, 20) i;",
        &[
            "BEGIN; INSERT INTO t VALUES (100, 'a'); SAVEPOINT s; INSERT INTO t VALUES (101, 'lost'); UPDATE t SET v = 'lost' WHERE id = 1; ROLLBACK TO s; INSERT INTO t VALUES (102, 'b'); SAVEPOINT u; UPDATE t SET v = 'kept' WHERE id = 2; RELEASE u; COMMIT;",
            "BEGIN; DELETE FROM t; ROLLBACK; DO $$ BEGIN FOR i IN 1..200 LOOP BEGIN UPDATE t SET v = i WHERE id = 3; IF i % 2 = 0 THEN RAISE 'no'; END IF; EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END $$;",
            "BEGIN; UPDATE t SET v = 'prepared' WHERE id = 4; INSERT INTO t VALUES (200, 'p'); PREPARE TRANSACTION 'committed_a'; BEGIN; DELETE FROM t WHERE id = 5; PREPARE TRANSACTION 'committed_b'; UPDATE t SET v = 'between' WHERE id = 6; ROLLBACK PREPARED 'committed_b'; COMMIT PREPARED 'committed_a';",
        ],
    );
}

#[test]
fn a_prepared_transaction_counts_when_it_is_committed_also_after_a_restart() {
    let pair = Pair::shared(
        "prepared",
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x')",
    );
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    pair.primary("BEGIN; UPDATE t SET v = 'prepared'; PREPARE TRANSACTION 'prepared'");
    pair.wait_until_it_has_all(&mut follower);
    assert_eq!(pair.backup("SELECT v FROM t"), "x");
    follower.kill();
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    assert_eq!(pair.backup("SELECT v FROM t"), "x");
    pair.primary("COMMIT PREPARED 'prepared'");
    pair.wait_until_equal(&mut follower);
    assert_eq!(pair.backup("SELECT v FROM t"), "prepared");
    follower.interrupt().assert_code(0);
}

#[test]
fn a_large_transaction_arrives_whole() {
    // Ten million with HINDCAST_STANDBY_LARGE=10000000.
    let rows = number("HINDCAST_STANDBY_LARGE").unwrap_or(300_000);
    for (name, flags) in [
        ("large", &[][..]),
        ("large-streaming", &["--streaming"][..]),
    ] {
        let pair = Pair::shared(name, "CREATE TABLE t (id int PRIMARY KEY, v int, w text)");
        let mut follower = pair.follow(flags);
        pair.wait_until_it_has_all(&mut follower);
        pair.primary(&format!(
            "INSERT INTO t SELECT i, i, 'row ' || i FROM generate_series(1, {rows}) i"
        ));
        let session = Session::connect(&pair.backup_url()).expect("the backup is there");
        let counted = "SELECT count(*) FROM t";
        let seen = wait_for("the rows to arrive", || {
            let seen = session
                .value(counted)
                .unwrap_or_else(|failure| panic!("{failure}"));
            (seen != "0").then_some(seen)
        });
        assert_eq!(seen, rows.to_string(), "a part of the transaction was seen");
        pair.primary("BEGIN; UPDATE t SET v = v + 1; SAVEPOINT s; DELETE FROM t WHERE id % 2 = 0; ROLLBACK TO s; DELETE FROM t WHERE id % 3 = 0; COMMIT");
        pair.wait_until_it_has_all(&mut follower);
        let sums = "SELECT count(*), sum(v), sum(hashtext(w)) FROM t";
        assert_eq!(pair.backup(sums), pair.primary(sums));
        follower.interrupt().assert_code(0);
    }
}

/// A change of a table on the primary, while the backup's schema is somebody else's: the follower
/// stops, naming the table and the position; after the same on the backup it goes on.
fn stops_at(name: &str, ddl: &str, then: &str, naming: &[&str]) {
    let pair = Pair::shared(
        name,
        "CREATE TABLE t (id int PRIMARY KEY, a int, b text); INSERT INTO t SELECT i, i, 'x' FROM generate_series(1, 20) i",
    );
    pair.copy_schema();
    let mut follower = pair.follow(&["--no-schema"]);
    pair.wait_until_it_has_all(&mut follower);
    pair.primary("UPDATE t SET a = 100 WHERE id = 1");
    pair.primary(ddl);
    pair.primary(then);
    pair.primary("UPDATE t SET b = 'after'");
    let finished = follower.wait();
    assert_refused(&finished, &[&["public.t", "0/"], naming].concat());
    // Everything before is there, nothing of what came after.
    assert_eq!(pair.backup("SELECT a FROM t WHERE id = 1"), "100");
    assert_eq!(pair.backup("SELECT count(*) FROM t WHERE b = 'after'"), "0");
    // It stops at the same place as long as nothing is done about it.
    assert_refused(&pair.follow(&["--no-schema"]).wait(), naming);
    pair.backup(ddl);
    let mut follower = pair.follow(&["--no-schema"]);
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
}

#[test]
fn a_new_column_stops_it_until_the_backup_has_it_too() {
    stops_at(
        "added",
        "ALTER TABLE t ADD c int DEFAULT 7",
        "INSERT INTO t VALUES (100, 1, 'new', 8)",
        &["c"],
    );
}

#[test]
fn a_column_of_another_type_stops_it_until_the_backup_has_it_too() {
    stops_at(
        "retyped",
        "ALTER TABLE t ALTER a TYPE text",
        "INSERT INTO t VALUES (100, 'no number', 'new')",
        &["a"],
    );
}

#[test]
fn a_renamed_column_stops_it_until_the_backup_has_it_too() {
    stops_at(
        "renamed",
        "ALTER TABLE t RENAME a TO z",
        "INSERT INTO t VALUES (100, 1, 'new')",
        &["z"],
    );
}

#[test]
fn a_column_that_was_dropped_is_no_loss() {
    // The backup may keep the column or not; what it has must be equal afterwards.
    let pair = Pair::shared(
        "dropped",
        "CREATE TABLE t (id int PRIMARY KEY, a int, b text); INSERT INTO t SELECT i, i, 'x' FROM generate_series(1, 20) i",
    );
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    pair.primary("ALTER TABLE t DROP a; INSERT INTO t VALUES (100, 'new'); UPDATE t SET b = 'after' WHERE id < 5");
    let marker = pair.mark();
    let session = Session::connect(&pair.backup_url()).expect("the backup is there");
    wait_for("the follower to go on or to stop", || {
        (!follower.is_running() || pair.has(&session, marker).unwrap_or(false)).then_some(())
    });
    if !follower.is_running() {
        assert_refused(&follower.wait(), &["public.t", "a"]);
        pair.backup("ALTER TABLE t DROP a");
        follower = pair.follow(&[]);
    } else {
        pair.backup("ALTER TABLE t DROP a");
    }
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
}
