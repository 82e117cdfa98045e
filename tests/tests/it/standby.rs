//! `hindcast standby` as its users know it: it copies, follows, goes on where it was, shows only
//! states that existed, and hands over.

use std::time::{Duration, Instant};

use hindcast_tests::http;
use hindcast_tests::session::Session;
use hindcast_tests::stage::free_port;
use hindcast_tests::standby::readers::{Readers, View};
use hindcast_tests::standby::workload::Workload;
use hindcast_tests::standby::{Follower, Pair, Random, assert_refused, checker, kills};

const ORDERS: &str = "CREATE TABLE orders (id serial PRIMARY KEY, what text, pieces int DEFAULT 1);
     CREATE TABLE customer (name text PRIMARY KEY, seen timestamptz);
     CREATE VIEW big_orders AS SELECT * FROM orders WHERE pieces > 10;
     INSERT INTO orders (what, pieces) SELECT 'thing ' || i, i FROM generate_series(1, 1000) i;
     INSERT INTO customer SELECT 'customer ' || i, '2026-01-01' FROM generate_series(1, 100) i;";

#[test]
fn it_copies_what_is_there_and_goes_on_where_it_was() {
    let pair = Pair::shared("orders", ORDERS);
    let mut follower = pair.follow(&[]);
    pair.wait_until_equal(&mut follower);
    assert_eq!(pair.backup("SELECT count(*) FROM big_orders"), "990");
    pair.primary("UPDATE orders SET pieces = 0 WHERE id < 10; DELETE FROM customer WHERE name LIKE '%7'; INSERT INTO orders (what) VALUES ('new')");
    pair.wait_until_equal(&mut follower);
    let report = follower.wait_for_report("a report of having followed", |report| {
        report["state"] == "following"
            && report["lag_bytes"].is_number()
            && report["lag_ms"].is_number()
    });
    for lsn in ["received_lsn", "visible_lsn", "durable_lsn"] {
        assert!(
            report[lsn]
                .as_str()
                .is_some_and(|lsn| lsn.starts_with("0/")),
            "{report}"
        );
    }
    let finished = follower.interrupt().assert_code(0);
    assert!(!finished.stderr.contains("Error"), "{}", finished.stderr);

    // While nobody follows.
    pair.primary("UPDATE orders SET what = 'meanwhile' WHERE id BETWEEN 20 AND 30; INSERT INTO customer VALUES ('late', NULL)");
    assert_eq!(
        pair.backup("SELECT count(*) FROM orders WHERE what = 'meanwhile'"),
        "0"
    );
    let mut follower = pair.follow(&[]);
    pair.wait_until_equal(&mut follower);
    assert!(
        follower
            .reports()
            .iter()
            .all(|report| report["state"] != "copying"),
        "it copied again"
    );
    follower.interrupt().assert_code(0);
}

#[test]
fn it_ends_by_itself_at_the_position_it_was_given() {
    let pair = Pair::shared("until", ORDERS);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    follower.interrupt().assert_code(0);
    pair.primary("INSERT INTO customer VALUES ('before', NULL)");
    let until = pair.primary("SELECT pg_current_wal_insert_lsn()");
    pair.primary("INSERT INTO customer VALUES ('after', NULL)");
    pair.follow(&["--until", &until]).wait().assert_code(0);
    assert_eq!(
        pair.backup("SELECT count(*) FROM customer WHERE name = 'before'"),
        "1"
    );
    // Now there is no further to go: everything up to here was there before the start.
    let until = pair.primary("SELECT pg_current_wal_insert_lsn()");
    pair.follow(&["--until", &until]).wait().assert_code(0);
    pair.follow(&["--until", &until]).wait().assert_code(0);
    pair.assert_equal();
}

#[test]
fn only_the_tables_that_are_wanted_are_followed() {
    let pair = Pair::shared(
        "filtered",
        &format!(
            "{ORDERS} CREATE TABLE keyless (a int); CREATE SCHEMA logs; CREATE TABLE logs.big (id int PRIMARY KEY)"
        ),
    );
    let mut follower = pair.follow(&[
        "--table",
        "public.*",
        "--exclude-table",
        "keyless",
        "--exclude",
        "public.cust*",
    ]);
    pair.wait_until_it_has_all(&mut follower);
    pair.primary("INSERT INTO customer VALUES ('new', NULL); INSERT INTO keyless VALUES (1); UPDATE keyless SET a = 2; INSERT INTO logs.big VALUES (1); UPDATE orders SET pieces = 5");
    pair.wait_until_it_has_all(&mut follower);
    assert_eq!(pair.backup("SELECT DISTINCT pieces FROM orders"), "5");
    for table in ["customer", "keyless", "logs.big"] {
        let rows = Session::connect(&pair.backup_url())
            .and_then(|session| session.value(&format!("SELECT count(*) FROM {table}")));
        assert!(
            rows.is_err() || rows.is_ok_and(|rows| rows == "0"),
            "{table} was followed"
        );
    }
    // What is left out is said while it follows, when one asks, and at the end.
    let left_out = ["customer", "keyless"].map(|table| format!("public.{table}"));
    follower.wait_for_report("a report of what is left out", |report| {
        let tables = report["left_out_tables"].as_array();
        tables.is_some_and(|tables| {
            let names = tables
                .iter()
                .map(|it| it["table"].as_str().unwrap_or_default());
            names.eq(["logs.big", &left_out[0], &left_out[1]])
        })
    });
    let (from, to) = (pair.primary_url(), pair.backup_url());
    let status = ["status", "--to", &to, "--from", &from, "--name", "filtered"];
    let line = "left out logs.big, public.customer, public.keyless: not wanted by --table and --exclude-table";
    for finished in [pair.run(&status), pair.promote(&["--check"])] {
        let said = finished.assert_code(0).stdout;
        assert!(said.contains(line), "{said}");
    }
    follower.wait().assert_code(0);
    let finished = pair.run(&[
        "--from",
        &pair.primary_url(),
        "--to",
        &pair.backup_url(),
        "--name",
        "filtered_none",
        "--table",
        "no_such_table",
    ]);
    assert_refused(&finished, &["no_such_table"]);
}

#[test]
fn tables_that_are_there_already_are_used_if_one_says_so() {
    let pair = Pair::shared("no-schema", ORDERS);
    pair.copy_schema();
    // A backup may have more: a column, an index.
    pair.backup(
        "ALTER TABLE orders ADD noted timestamptz DEFAULT now(); CREATE INDEX ON orders (what)",
    );
    let mut follower = pair.follow(&["--no-schema"]);
    pair.wait_until_it_has_all(&mut follower);
    pair.primary(
        "UPDATE orders SET pieces = 7 WHERE id = 1; INSERT INTO orders (what) VALUES ('new')",
    );
    pair.wait_until_it_has_all(&mut follower);
    let of = "SELECT count(*), sum(pieces), max(what) FROM orders";
    assert_eq!(pair.backup(of), pair.primary(of));
    assert_eq!(
        pair.backup("SELECT count(*) FROM orders WHERE noted IS NULL"),
        "0"
    );
    follower.interrupt().assert_code(0);
}

#[test]
fn status_and_metrics_say_how_far_it_is() {
    let pair = Pair::shared("status", ORDERS);
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let mut follower = pair.follow(&["--metrics", &address]);
    follower.wait_until_it_follows();
    let response = http::Client::new(address)
        .send("GET", "/metrics", None)
        .expect("the metrics are served");
    assert_eq!(response.status, 200);
    assert!(
        response.text().contains("hindcast_standby_lag"),
        "{}",
        response.text()
    );
    let to = pair.backup_url();
    let status = |more: &[&str]| {
        let arguments = ["status", "--to", &to, "--name", &pair.database];
        pair.run(&[&arguments, more].concat()).assert_code(0).stdout
    };
    assert!(status(&[]).contains("0/"), "{}", status(&[]));
    let json: serde_json::Value =
        serde_json::from_str(&status(&["--json", "--from", &pair.primary_url()]))
            .expect("it is JSON");
    assert!(json.is_object(), "{json}");
    follower.interrupt().assert_code(0);
    status(&["--json"]);
}

#[test]
fn drop_leaves_nothing_on_the_primary() {
    let pair = Pair::shared("dropping", ORDERS);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    follower.wait_until_it_follows();
    let from = pair.primary_url();
    let drop = ["drop", "--from", &from, "--name", "dropping"];
    // Not under a follower that runs.
    follower.wait_until_it_follows();
    assert_refused(&pair.run(&drop), &["hindcast_dropping"]);
    follower.interrupt().assert_code(0);
    pair.run(&drop).assert_code(0);
    let left = "SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%dropping%') + (SELECT count(*) FROM pg_publication)";
    assert_eq!(pair.primary(left), "0");
    // Once more is no error; following again is one.
    pair.run(&drop).assert_code(0);
    assert_refused(&pair.follow(&[]).wait(), &[]);
}

// ── Readers, and a follower that is killed
// ──────────────────────────────────────────────────────────────────────────────────────

/// Clients work on the primary, readers watch the backup, and the follower is killed and started
/// again and again.
fn survives(name: &str, flags: &[&[&str]], views: &[View], times: usize) {
    let mut random = Random::seeded();
    let pair = Pair::shared(name, &checker::schema());
    let mut follower = pair.follow(flags[0]);
    // Keys and indexes come after the rows, and lock whole tables.
    follower.wait_until_it_follows();
    let workload = Workload::start(&pair.primary_url(), 3, 0, &mut random);
    let readers = Readers::start(&pair.backup_url(), views, false);
    let session = Session::connect(&pair.backup_url()).expect("the backup is there");
    let number = || -> i64 {
        session
            .value("SELECT n FROM head")
            .ok()
            .and_then(|number| number.parse().ok())
            .unwrap_or(-1)
    };
    for kill in 0..=times {
        let (before, states) = (number(), readers.states());
        let enough = before + 1 + random.below(150) as i64;
        let begun = Instant::now();
        follower.process.wait_until("the backup to move on", || {
            let now = number();
            let has_moved = now > before && readers.states() > states;
            // On a busy machine an epoch of a few rows takes long, and a hundred take minutes.
            let is_enough = now >= enough || begun.elapsed() > Duration::from_secs(10);
            (readers.is_broken() || has_moved && is_enough).then_some(())
        });
        if readers.is_broken() {
            break;
        }
        if kill < times {
            // Any moment of an epoch.
            std::thread::sleep(Duration::from_micros(random.below(12_000)));
            follower.kill();
            follower = pair.follow(flags[(kill + 1) % flags.len()]);
        }
    }
    let transactions = workload.stop();
    let seen = readers.stop();
    eprintln!(
        "{transactions} transactions, {} states read, {} different, {times} kills",
        seen.states, seen.advances
    );
    seen.assert_sound();
    pair.wait_until_it_has_all(&mut follower);
    follower.interrupt().assert_code(0);
    pair.assert_equal();
}

#[test]
fn readers_of_a_backup_with_one_worker_see_only_states_that_existed() {
    let flags: &[&str] = &["--workers", "1"];
    survives(
        "one-worker",
        &[flags],
        &[View::Statement, View::RepeatableRead],
        kills(4),
    );
}

#[test]
fn readers_of_exported_snapshots_see_only_states_that_existed() {
    let flags: &[&str] = &["--workers", "3"];
    survives(
        "three-workers",
        &[flags],
        &[View::Exported, View::Exported],
        kills(4),
    );
}

#[test]
fn readers_of_one_transaction_after_the_other_see_only_states_that_existed() {
    let flags: &[&str] = &["--granularity", "single"];
    survives(
        "single",
        &[flags],
        &[View::Statement, View::RepeatableRead],
        kills(2),
    );
}

#[test]
fn the_number_of_workers_and_the_size_of_epochs_may_change_at_each_start() {
    // Several each time: with one worker there are no snapshots to import, and no need for them.
    let flags: &[&[&str]] = &[
        &["--workers", "3", "--epoch-rows", "5", "--epoch-ms", "1"],
        &["--workers", "2", "--epoch-ms", "50"],
        &["--workers", "4", "--epoch-rows", "100"],
        &["--workers", "3", "--streaming"],
    ];
    survives("changing", flags, &[View::Exported], kills(5));
}

/// Readers of a memory server, which is killed and copies again.
fn memory_survives(name: &str, flags: &[&str], times: usize) {
    let mut random = Random::seeded();
    let pair = Pair::shared(name, &checker::schema());
    let port = free_port();
    let url = pair.memory_url(port);
    let mut memory = pair.remember(port, flags);
    memory
        .process
        .wait_until("the memory server to take sessions", || {
            Session::connect(&url).ok()
        });
    let workload = Workload::start(&pair.primary_url(), 3, 0, &mut random);
    let readers = Readers::start(&url, &[View::Memory, View::Memory], true);
    for kill in 0..=times {
        let (enough, states) = (
            readers.number().max(0) + 1 + random.below(150) as i64,
            readers.states(),
        );
        memory
            .process
            .wait_until("readers of memory to move on", || {
                (readers.is_broken() || readers.number() >= enough && readers.states() > states + 3)
                    .then_some(())
            });
        if readers.is_broken() {
            break;
        }
        if kill < times {
            memory.kill();
            memory = pair.remember(port, flags);
        }
    }
    let transactions = workload.stop();
    let seen = readers.stop();
    eprintln!(
        "{transactions} transactions, {} states read, {} different, {times} kills",
        seen.states, seen.advances
    );
    seen.assert_sound();
    memory_is_equal(&pair, &mut memory, &url);
    memory.interrupt().assert_code(0);
}

/// Waits until a memory server has everything, and compares the rows of the workload's tables.
fn memory_is_equal(pair: &Pair, memory: &mut Follower, url: &str) {
    let marker = pair.mark();
    let session = Session::connect(url).unwrap_or_else(|failure| panic!("memory: {failure}"));
    let primary = Session::connect(&pair.primary_url()).expect("the primary is there");
    memory.process.wait_until("memory to have the marker", || {
        pair.has(&session, marker)
            .unwrap_or_else(|failure| panic!("memory: {failure}"))
            .then_some(())
    });
    for table in checker::TABLES {
        let query = format!("SELECT * FROM {table}");
        let rows = |session: &Session| {
            let mut rows = session
                .query(&query)
                .unwrap_or_else(|failure| panic!("{query}: {failure}"));
            rows.sort();
            rows
        };
        assert_eq!(rows(&session), rows(&primary), "{table}");
    }
}

#[test]
fn readers_of_memory_see_only_states_that_existed() {
    memory_survives(
        "memory-row",
        &["--workers", "3", "--granularity", "row"],
        kills(3),
    );
}

#[test]
fn readers_of_memory_by_transactions_see_only_states_that_existed() {
    memory_survives(
        "memory-transaction",
        &["--workers", "2", "--granularity", "transaction"],
        kills(1),
    );
}

#[test]
fn readers_of_memory_with_one_worker_see_only_states_that_existed() {
    memory_survives(
        "memory-single",
        &["--workers", "1", "--granularity", "single"],
        kills(1),
    );
}

#[test]
fn a_follower_killed_while_it_copies_copies_again() {
    let mut random = Random::seeded();
    let pair = Pair::shared(
        "copying",
        &format!(
            "{} CREATE TABLE filler (id int PRIMARY KEY, t text); INSERT INTO filler SELECT i, repeat('x', 200) FROM generate_series(1, 60000) i",
            checker::schema()
        ),
    );
    let workload = Workload::start(&pair.primary_url(), 2, 200, &mut random);
    for _ in 0..kills(4) {
        let mut follower = pair.follow(&[]);
        let patience = Duration::from_millis(random.below(700));
        let begun = std::time::Instant::now();
        while begun.elapsed() < patience {
            assert!(
                follower.is_running(),
                "it gave up:\n{}",
                follower.process.stderr()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        follower.kill();
    }
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    workload.stop();
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
    let slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()";
    assert_eq!(
        pair.primary(slots),
        "1",
        "slots of earlier attempts are left"
    );
}

// ── Memory, as its users know it
// ────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn memory_answers_simple_questions_and_refuses_others() {
    let pair = Pair::shared("memory-sql", "CREATE TABLE t (id bigint PRIMARY KEY, v int, s text); CREATE TABLE u (id bigint PRIMARY KEY, t bigint, w text);
        INSERT INTO t SELECT i, i * 10, 's' || i FROM generate_series(1, 100) i; INSERT INTO u SELECT i, i % 10 + 1, 'w' || i FROM generate_series(1, 50) i; INSERT INTO t VALUES (101, NULL, NULL);");
    let port = free_port();
    let url = pair.memory_url(port);
    let mut memory = pair.remember(port, &["--retention", "5m"]);
    let session = memory
        .process
        .wait_until("the memory server to take sessions", || {
            Session::connect(&url).ok()
        });
    let primary = Session::connect(&pair.primary_url()).expect("the primary is there");
    for query in [
        "SELECT * FROM t WHERE id = 7",
        "SELECT s, v FROM t WHERE id = 101",
        "SELECT id, s FROM t WHERE id BETWEEN 5 AND 9 ORDER BY id",
        "SELECT id FROM t WHERE id >= 98 AND id < 100 ORDER BY id DESC",
        "SELECT count(*), sum(v), min(v), max(v) FROM t",
        "SELECT count(v) FROM t WHERE id > 50",
        "SELECT id FROM t WHERE id IN (3, 1, 2) ORDER BY id LIMIT 2",
        "SELECT u.w, t.s FROM u JOIN t ON t.id = u.t WHERE u.id = 5",
        "SELECT count(*) FROM public.t WHERE v IS NULL",
    ] {
        let expected = primary.query(query).expect("the primary answers");
        let served = session
            .query(query)
            .unwrap_or_else(|failure| panic!("{query}: {failure}"));
        assert_eq!(served, expected, "{query}");
    }
    assert_eq!(
        session
            .prepared("SELECT id FROM t WHERE id = $1", 42)
            .unwrap_or_else(|failure| panic!("{failure}")),
        [42]
    );
    for query in [
        "INSERT INTO t VALUES (1000, 1, 'x')",
        "UPDATE t SET v = 1",
        "DELETE FROM t",
        "TRUNCATE t",
        "CREATE TABLE x (a int)",
        "SELECT * FROM no_such_table",
        "SELECT no_such_column FROM t",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "SELECT * FROM t WHERE v = (SELECT max(v) FROM t)",
        "nonsense",
    ] {
        let failure = session.query(query).expect_err(query);
        assert!(!failure.is_connection(), "{query}: {failure}");
        assert!(failure.message.len() > 10, "{query}: {failure}");
        // The session goes on.
        assert_eq!(
            session.value("SELECT count(*) FROM t").expect("it goes on"),
            "101"
        );
    }
    // What a person types.
    let psql = |sql: &str| {
        let output = std::process::Command::new(pair.servers().primary.binaries().program("psql"))
            .args(["-X", "-At", &url, "-c", sql])
            .output()
            .expect("psql can be run");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(psql("SELECT s FROM t WHERE id = 3"), "s3");
    memory.interrupt().assert_code(0);
}

#[test]
fn memory_answers_as_of_past_commits() {
    let pair = Pair::shared(
        "memory-past",
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 10) i",
    );
    let port = free_port();
    let url = pair.memory_url(port);
    let mut memory = pair.remember(port, &["--retention", "5m"]);
    let session = memory
        .process
        .wait_until("the memory server to take sessions", || {
            Session::connect(&url).ok()
        });
    let mut past = Vec::new();
    for turn in 1..=20 {
        let insert = match turn % 3 {
            0 => {
                format!("DELETE FROM t WHERE id = {turn}; INSERT INTO t VALUES ({turn} + 100, 1);")
            }
            _ => String::new(),
        };
        pair.primary(&format!(
            "BEGIN; UPDATE t SET v = v + {turn}; {insert} COMMIT"
        ));
        let mark = pair.primary(
            "SELECT pg_current_wal_insert_lsn() || '|' || count(*) || '|' || sum(v) FROM t",
        );
        let mut fields = mark.split('|').map(str::to_owned);
        past.push([(); 3].map(|()| fields.next().unwrap_or_default()));
    }
    let marker = pair.mark();
    memory.process.wait_until("memory to have the marker", || {
        pair.has(&session, marker)
            .unwrap_or_else(|failure| panic!("{failure}"))
            .then_some(())
    });
    for [lsn, count, sum] in &past {
        let rows = session
            .query(&format!("SELECT count(*), sum(v) FROM t AS OF '{lsn}'"))
            .unwrap_or_else(|failure| panic!("as of {lsn}: {failure}"));
        assert_eq!(
            rows,
            [vec![Some(count.clone()), Some(sum.clone())]],
            "as of {lsn}"
        );
    }
    // Neither the future nor what was before the copy.
    for lsn in ["0/1", "FFFF/0"] {
        let failure = session
            .query(&format!("SELECT count(*) FROM t AS OF '{lsn}'"))
            .expect_err("no such state");
        assert!(!failure.is_connection(), "{failure}");
    }
    memory.interrupt().assert_code(0);
}

// ── Promotion
// ────────────────────────────────────────────────────────────────────────────────────────────

const SEQUENCES: &str = "CREATE TABLE orders (id serial PRIMARY KEY, what text);
     CREATE TABLE items (id bigint GENERATED ALWAYS AS IDENTITY (START 100 INCREMENT 10) PRIMARY KEY, what text);
     CREATE SEQUENCE numbers START 5 MAXVALUE 1000 CYCLE; CREATE SEQUENCE \"Unused\"; CREATE SEQUENCE down INCREMENT -1;
     INSERT INTO orders (what) SELECT 'x' FROM generate_series(1, 10); INSERT INTO items (what) SELECT 'x' FROM generate_series(1, 10);";

#[test]
fn a_promoted_backup_takes_over() {
    let pair = Pair::shared("promoted", SEQUENCES);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    pair.primary("INSERT INTO orders (what) SELECT 'y' FROM generate_series(1, 90); INSERT INTO items (what) VALUES ('y'); DELETE FROM orders WHERE id > 95;
        SELECT nextval('numbers') FROM generate_series(1, 3); SELECT nextval('down') FROM generate_series(1, 3)");
    // The follower runs on; promotion makes it stop.
    let finished = pair.promote(&["--check"]).assert_code(0);
    follower.wait().assert_code(0);
    pair.assert_equal();
    // Each sequence goes on where the primary's would.
    for next in [
        "orders_id_seq",
        "items_id_seq",
        "numbers",
        "\"Unused\"",
        "down",
    ] {
        let next = format!("SELECT nextval('{next}')");
        assert_eq!(
            pair.backup(&next),
            pair.primary(&next),
            "{next}\n{}",
            finished.stdout
        );
    }
    assert_eq!(
        pair.backup("INSERT INTO orders (what) VALUES ('mine') RETURNING id"),
        "102"
    );
    pair.backup("INSERT INTO items (what) VALUES ('mine'); UPDATE orders SET what = 'mine'; CREATE TABLE more (a int); TRUNCATE items");
    let left = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()";
    assert_eq!(pair.primary(left), "0", "the slot is left");
    // It is nobody's backup any more.
    assert_refused(&pair.follow(&[]).wait(), &[]);
    assert_eq!(
        pair.backup("SELECT count(*) FROM orders WHERE what <> 'mine'"),
        "0"
    );
}

#[test]
fn a_backup_is_promoted_when_the_primary_is_gone() {
    let mut pair = Pair::own("orphaned", SEQUENCES);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    pair.servers_mut()
        .primary
        .stop(hindcast_cluster::Shutdown::Immediate)
        .expect("it can be stopped");
    // The follower waits for the primary and goes on waiting.
    follower.wait_for_report("the follower to wait", |report| {
        report["state"] == "waiting"
    });
    pair.run(&[
        "promote",
        "--to",
        &pair.backup_url(),
        "--name",
        "orphaned",
        "--no-wait",
    ])
    .assert_code(0);
    follower.wait().assert_code(0);
    // Sequences are not in the log: they go on beyond what the tables hold.
    let id: i64 = pair
        .backup("INSERT INTO orders (what) VALUES ('mine') RETURNING id")
        .parse()
        .expect("a number");
    assert!(id > 10, "{id}");
    let id: i64 = pair
        .backup("INSERT INTO items (what) VALUES ('mine') RETURNING id")
        .parse()
        .expect("a number");
    assert!(id > 190, "{id}");
}

#[test]
fn a_promotion_that_fails_leaves_its_follower_following() {
    let pair = Pair::shared("promotion-fails", SEQUENCES);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    pair.backup("UPDATE orders SET what = 'not the primary''s' WHERE id = 5");
    assert_refused(&pair.promote(&["--check"]), &["orders"]);
    pair.backup("UPDATE orders SET what = 'x' WHERE id = 5");
    pair.primary("INSERT INTO orders (what) VALUES ('later')");
    pair.wait_until_equal(&mut follower);
    // Somebody asked for a promotion and is gone.
    pair.backup("UPDATE hindcast.standby SET stop_requested_at = now()");
    follower.wait_for_report("the follower to make way", |report| {
        report["state"] == "promoting"
    });
    pair.primary("INSERT INTO orders (what) VALUES ('later still')");
    pair.wait_until_equal(&mut follower);
    pair.promote(&["--check"]).assert_code(0);
    follower.wait().assert_code(0);
}

#[test]
fn a_promotion_that_leaves_something_behind_says_so_with_its_exit_code() {
    let pair = Pair::shared("left-behind", SEQUENCES);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    follower.interrupt().assert_code(0);
    pair.primary("INSERT INTO orders (what) VALUES ('lost')");
    assert_refused(&pair.promote(&[]), &["behind"]);
    let finished = pair.promote(&["--no-wait"]).assert_code(1);
    assert!(
        finished.stdout.contains("1 transaction"),
        "{}",
        finished.stdout
    );
    // What is missing can still be read there.
    let kept = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()";
    assert_eq!(pair.primary(kept), "1");
    let changes = "SELECT count(*) > 0 FROM pg_logical_slot_peek_binary_changes('hindcast_left_behind', NULL, NULL, 'proto_version', '1', 'publication_names', 'hindcast_left_behind')";
    assert_eq!(pair.primary(changes), "t");
}

#[test]
fn promotion_with_a_check_says_what_differs() {
    let pair = Pair::shared("promote-check", SEQUENCES);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    follower.interrupt().assert_code(0);
    pair.backup("UPDATE orders SET what = 'not the primary''s' WHERE id = 5");
    let finished = pair.promote(&["--check"]);
    assert_refused(&finished, &["orders"]);
    // It is still a backup.
    let mut follower = pair.follow(&[]);
    pair.backup("UPDATE orders SET what = 'x' WHERE id = 5");
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
}

#[test]
fn an_interrupt_ends_it_in_whatever_it_is_doing() {
    let mut random = Random::seeded();
    let pair = Pair::shared("interrupted", &checker::schema());
    let workload = Workload::start(&pair.primary_url(), 2, 0, &mut random);
    for _ in 0..kills(6) {
        let mut follower = pair.follow(&[]);
        follower.wait_until_it_catches_interrupts();
        let patience = Duration::from_millis(random.below(800));
        let begun = std::time::Instant::now();
        while begun.elapsed() < patience {
            assert!(
                follower.is_running(),
                "it gave up:\n{}",
                follower.process.stderr()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        let begun = std::time::Instant::now();
        follower.interrupt().assert_code(0);
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "it took {:?} to stop",
            begun.elapsed()
        );
    }
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    workload.stop();
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
}
