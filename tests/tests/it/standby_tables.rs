//! Tables that appear on the primary while a standby follows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hindcast_tests::session::Session;
use hindcast_tests::stage::free_port;
use hindcast_tests::standby::{Follower, Pair, Random, assert_refused};
use hindcast_tests::wait_for;

const MEASURES: &str = "CREATE TABLE place (id int PRIMARY KEY, name text);
     INSERT INTO place SELECT i, 'place ' || i FROM generate_series(1, 50) i;
     CREATE TABLE measure (id bigint GENERATED ALWAYS AS IDENTITY, at date NOT NULL, place int REFERENCES place, value int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
     CREATE INDEX ON measure (place);
     CREATE TABLE measure_1 PARTITION OF measure FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
     INSERT INTO measure (at, place, value) SELECT '2026-01-15', i, i FROM generate_series(1, 50) i;";

fn nothing_is_missing(follower: &mut Follower) {
    follower.wait_for_report("every table to be there", |report| {
        report["state"] == "following" && report["missing_tables"] == serde_json::json!([])
    });
}

#[test]
fn tables_that_appear_are_copied_and_followed() {
    let pair = Pair::shared("appearing", MEASURES);
    let mut follower = pair.follow(&["--workers", "2"]);
    pair.wait_until_equal(&mut follower);
    pair.primary(
        "CREATE TABLE measure_2 PARTITION OF measure FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
         CREATE INDEX measure_2_value ON measure_2 (value);
         CREATE TABLE measure_rest PARTITION OF measure DEFAULT PARTITION BY LIST (at);
         CREATE TABLE measure_rest_all PARTITION OF measure_rest DEFAULT;
         INSERT INTO measure (at, place, value) SELECT '2026-02-15', i, i FROM generate_series(1, 50) i;
         INSERT INTO measure (at, place, value) SELECT '2027-02-15', i, i FROM generate_series(1, 50) i;
         CREATE SCHEMA other; CREATE TABLE other.\"A b\" (k serial PRIMARY KEY, place int REFERENCES place, t text UNIQUE, CHECK (k > 0));
         INSERT INTO other.\"A b\" (place, t) SELECT i, 'first ' || i FROM generate_series(1, 50) i;
         CREATE TABLE tree (k int PRIMARY KEY, v text) PARTITION BY HASH (k);
         CREATE TABLE tree_0 PARTITION OF tree FOR VALUES WITH (MODULUS 2, REMAINDER 0);
         CREATE TABLE tree_1 PARTITION OF tree FOR VALUES WITH (MODULUS 2, REMAINDER 1);
         INSERT INTO tree SELECT i, 'v' FROM generate_series(1, 1000) i;",
    );
    // While they are copied, others write to them and to those that are there, in one transaction.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                pair.primary(&format!(
                    "BEGIN; INSERT INTO other.\"A b\" (place, t) VALUES (1, 'more {n}'); UPDATE tree SET v = '{n}' WHERE k % 100 = {n} % 100; \
                     DELETE FROM measure WHERE place = {n} % 50 AND at > '2026-02-01'; UPDATE place SET name = 'after {n}' WHERE id = 1; COMMIT"
                ));
            }
        });
        wait_for("the tables to appear on the backup", || {
            let found = "SELECT count(*) FROM pg_class WHERE relname IN ('measure_2', 'measure_rest_all', 'A b', 'tree_1')";
            (pair.backup(found) == "4").then_some(())
        });
        nothing_is_missing(&mut follower);
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
    });
    pair.primary(
        "TRUNCATE measure_2; INSERT INTO measure (at, place, value) VALUES ('2026-02-20', 7, 7)",
    );
    pair.wait_until_equal(&mut follower);
    let shape = "SELECT string_agg(pg_get_indexdef(indexrelid), '; ' ORDER BY indexrelid::regclass::text) FROM pg_index WHERE indrelid::regclass::text !~ '^(pg_|hindcast|test_)'";
    assert_eq!(pair.backup(shape), pair.primary(shape));
    let constraints = "SELECT string_agg(conrelid::regclass || ' ' || pg_get_constraintdef(oid), '; ' ORDER BY conrelid::regclass::text, conname)
         FROM pg_constraint WHERE connamespace IN ('public'::regnamespace, 'other'::regnamespace)";
    assert_eq!(pair.backup(constraints), pair.primary(constraints));
    // It goes on from there, also after a start.
    follower.interrupt().assert_code(0);
    pair.primary("INSERT INTO tree VALUES (2000, 'late'); CREATE TABLE later (k int PRIMARY KEY); INSERT INTO later VALUES (1)");
    let mut follower = pair.follow(&[]);
    nothing_is_missing(&mut follower);
    pair.wait_until_equal(&mut follower);
    pair.promote(&["--check"]).assert_code(0);
    follower.wait().assert_code(0);
    pair.assert_equal();
}

/// What `pgbench` makes and does without options: `pgbench_history` has no key.
#[test]
fn tables_whose_rows_are_only_inserted_need_no_key() {
    let pair = Pair::shared("pgbench", "CREATE TABLE log (at int, what text)");
    let pgbench = |arguments: &[&str]| {
        let status =
            std::process::Command::new(pair.servers().primary.binaries().program("pgbench"))
                .args(arguments)
                .arg(pair.primary_url())
                .output()
                .expect("pgbench can be run");
        assert!(
            status.status.success(),
            "{}",
            String::from_utf8_lossy(&status.stderr)
        );
    };
    pgbench(&["-i"]);
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    pgbench(&["-c", "2", "-t", "150"]);
    pair.primary("INSERT INTO log SELECT 1, 'the same' FROM generate_series(1, 1000)");
    pair.wait_until_equal(&mut follower);
    assert_eq!(pair.backup("SELECT count(*) FROM pgbench_history"), "300");

    // Those that appear, too.
    pair.primary("CREATE TABLE new_log (at int); INSERT INTO new_log VALUES (1), (1)");
    wait_for("the table to be copied", || {
        (pair.backup("SELECT to_regclass('new_log') IS NOT NULL") == "t").then_some(())
    });
    pair.primary("INSERT INTO new_log VALUES (1)");
    pair.wait_until_equal(&mut follower);

    // The primary refuses what the log could not say, until it can.
    let update = "UPDATE log SET at = 2";
    let refused = pair
        .servers()
        .primary
        .sql(&pair.database, update)
        .unwrap_err();
    assert!(
        refused.to_string().contains("replica identity"),
        "{refused}"
    );
    pair.primary("ALTER TABLE log REPLICA IDENTITY FULL");
    pair.primary(&format!("{update}; INSERT INTO log VALUES (2, 'the same')"));
    pair.primary("TRUNCATE pgbench_history");
    pair.wait_until_equal(&mut follower);
    pair.promote(&["--check"]).assert_code(0);
    let said = follower.wait().assert_code(0).stderr;
    for table in ["pgbench_history", "log", "new_log"] {
        let note = format!("public.{table} has no primary key or other replica identity");
        assert!(said.contains(&note), "{said}");
    }
}

/// A label at its place, an enum for a new column, and one for a new table.
#[test]
fn enums_get_the_labels_that_they_have_on_the_primary() {
    let pair = Pair::shared(
        "labels",
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE \"Size\" AS ENUM ('s');
         CREATE TABLE person (id int PRIMARY KEY, mood mood, size \"Size\");
         INSERT INTO person VALUES (1, 'sad', 's'), (2, 'ok', 's');",
    );
    let mut follower = pair.follow(&[]);
    pair.wait_until_equal(&mut follower);
    pair.primary("ALTER TYPE mood ADD VALUE 'it''s fine' BEFORE 'ok'");
    pair.primary(
        "ALTER TYPE mood ADD VALUE 'worst' BEFORE 'sad'; ALTER TYPE \"Size\" ADD VALUE 'm'",
    );
    pair.primary("INSERT INTO person VALUES (3, 'it''s fine', 'm'), (4, 'worst', NULL)");
    pair.wait_until_equal(&mut follower);
    pair.primary(
        "CREATE TYPE colour AS ENUM ('red', 'blue'); ALTER TABLE person ADD colour colour; UPDATE person SET colour = 'blue' WHERE id = 1; \
         CREATE TYPE kind AS ENUM ('k'); CREATE TABLE thing (id int PRIMARY KEY, kind kind); INSERT INTO thing VALUES (1, 'k')",
    );
    nothing_is_missing(&mut follower);
    pair.wait_until_equal(&mut follower);
    let order = "SELECT enum_range(NULL::mood), enum_range(NULL::colour), enum_range(NULL::kind)";
    assert_eq!(pair.backup(order), pair.primary(order));
    follower.interrupt().assert_code(0);
}

/// What the primary's tables get and lose, theirs get and lose as well: while values wander from
/// row to row, with several workers, and where what is gone allows rows that it did not.
#[test]
fn indexes_and_constraints_come_and_go_with_those_of_the_primary() {
    let pair = Pair::shared(
        "indexes",
        "CREATE TABLE item (id int PRIMARY KEY, code int, n int, note text);
         INSERT INTO item SELECT i, i, i % 7, 'n' || i FROM generate_series(1, 500) i;
         CREATE TABLE part (id int PRIMARY KEY, item int);
         INSERT INTO part SELECT i, i FROM generate_series(1, 500) i;
         CREATE INDEX early ON item (n);",
    );
    let mut follower = pair.follow(&["--workers", "3"]);
    pair.wait_until_equal(&mut follower);
    pair.backup("CREATE INDEX own ON item (note); ALTER TABLE item ADD CONSTRAINT tame CHECK (id < 1000000)");
    let wander = "UPDATE item SET code = code + 1000; UPDATE item SET code = 1501 - code";
    pair.primary(
        "CREATE INDEX item_note ON item (lower(note)) WHERE n > 2;
         CREATE UNIQUE INDEX item_code ON item (code);
         ALTER TABLE item ADD CONSTRAINT item_n CHECK (n >= 0);
         ALTER TABLE item ADD CONSTRAINT item_id CHECK (id > 0) NOT VALID;
         ALTER TABLE item ADD CONSTRAINT item_both UNIQUE (id, code);
         ALTER TABLE part ADD CONSTRAINT part_item FOREIGN KEY (item) REFERENCES item ON DELETE CASCADE;",
    );
    let all = "SELECT string_agg(x, '; ' ORDER BY x) FROM (
        SELECT pg_get_indexdef(indexrelid) || CASE WHEN indisvalid THEN '' ELSE ' invalid' END FROM pg_index WHERE indrelid IN ('item'::regclass, 'part'::regclass)
        UNION ALL SELECT conname || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid IN ('item'::regclass, 'part'::regclass)) a (x)
        WHERE x !~ '(own|tame)'";
    let are_equal = |follower: &mut Follower| {
        follower.process.wait_until("the same indexes", || {
            let [here, there] = pair.catalogs(all)?;
            (here == there).then_some(())
        });
    };
    let workload = || {
        for _ in 0..5 {
            pair.primary(wander);
            pair.primary("UPDATE item SET code = (SELECT max(code) + 1 FROM item) WHERE id = 1");
        }
    };
    workload();
    are_equal(&mut follower);
    workload();
    pair.wait_until_equal(&mut follower);

    // Another one of the same name; one under another name; one that somebody does not want here.
    pair.backup("DROP INDEX early");
    pair.primary(
        "DROP INDEX item_note; CREATE INDEX item_note ON item (note, n);
         ALTER INDEX item_code RENAME TO item_codes; ALTER TABLE item VALIDATE CONSTRAINT item_id",
    );
    follower.process.wait_until("the same indexes", || {
        let [here, there] = pair.catalogs(all)?;
        let early = "CREATE INDEX early ON public.item USING btree (n); ";
        (here.replace(" NOT VALID", "") == there.replace(early, "")).then_some(())
    });

    // Rows that were not allowed before come at once.
    pair.primary(
        "ALTER TABLE item DROP CONSTRAINT item_n, DROP CONSTRAINT item_both; DROP INDEX item_codes; ALTER TABLE part DROP CONSTRAINT part_item;
         UPDATE item SET n = -1 WHERE id < 10; UPDATE item SET code = 3; INSERT INTO part VALUES (1000, 1000)",
    );
    pair.wait_until_equal(&mut follower);
    let own = "SELECT count(*) FROM pg_class WHERE relname = 'own' UNION ALL SELECT count(*) FROM pg_constraint WHERE conname = 'tame'";
    assert_eq!(pair.backup(own), "1\n1");
    follower.interrupt().assert_code(0);
}

/// Rows come and go as they begin and cease to meet the condition, also in a table that appears;
/// and no rows that do not are taken for missing.
#[test]
fn of_a_table_the_rows_are_kept_that_meet_a_condition() {
    let pair = Pair::shared(
        "rows-filtered",
        "CREATE TABLE orders (id int PRIMARY KEY, region text NOT NULL, note text);
         ALTER TABLE orders REPLICA IDENTITY FULL; ALTER TABLE orders ALTER note SET STORAGE EXTERNAL;
         INSERT INTO orders SELECT i, CASE i % 2 WHEN 0 THEN 'eu' ELSE 'us' END, repeat('x', 3000) FROM generate_series(1, 400) i;
         CREATE TABLE customer (id int PRIMARY KEY, name text);
         INSERT INTO customer SELECT i, 'c' || i FROM generate_series(1, 100) i;",
    );
    let filters = [
        "--row-filter",
        "orders*: region = 'eu'",
        "--row-filter",
        "customer: id <= 50",
    ];
    let checked = [
        &filters[..],
        &["--check-rate", "10MB", "--check-period", "1s"],
    ]
    .concat();
    let follower = pair.follow(&checked);
    let has = |sql: &str, what: &str| {
        // Before the copy the tables are not there.
        let said = || pair.servers().backup.sql(&pair.database, sql);
        wait_for(sql, || said().is_ok_and(|said| said == what).then_some(()));
    };
    let orders =
        "SELECT coalesce(sum(id), 0)::text || ' ' || string_agg(DISTINCT region, ',') FROM orders";
    has(orders, "40200 eu");
    has("SELECT count(*) FROM customer", "50");
    pair.primary(
        "UPDATE orders SET region = 'us' WHERE id = 2; UPDATE orders SET region = 'eu' WHERE id = 1; \
         UPDATE orders SET note = 'y' WHERE id = 3; DELETE FROM orders WHERE id = 4; INSERT INTO orders VALUES (1000, 'eu', 'n'), (1001, 'us', 'n'); \
         UPDATE customer SET id = 1050 WHERE id = 50; UPDATE customer SET id = 0 WHERE id = 99; \
         CREATE TABLE orders_2 (id int, region text, PRIMARY KEY (id, region)); INSERT INTO orders_2 VALUES (1, 'eu'), (2, 'us')",
    );
    has(orders, "41195 eu");
    has("SELECT length(note) FROM orders WHERE id = 1", "3000");
    has("SELECT count(*) || ' ' || max(id) FROM customer", "50 49");
    wait_for("the table to be copied", || {
        (pair.backup("SELECT to_regclass('orders_2') IS NOT NULL") == "t").then_some(())
    });
    pair.primary("INSERT INTO orders_2 VALUES (3, 'eu'), (4, 'us')");
    has(
        "SELECT string_agg(id::text, ',' ORDER BY id) FROM orders_2",
        "1,3",
    );
    // A row that is too much is found, and one that is not wanted is not brought.
    pair.backup("INSERT INTO orders VALUES (1001, 'us', 'n'); DELETE FROM orders WHERE id = 10");
    has(orders, "41195 eu");
    follower.interrupt().assert_code(0);

    let other = pair
        .follow(&["--row-filter", "orders*: region = 'us'"])
        .wait();
    assert_refused(&other, &["customer: id <= 50", "other rows are wanted"]);
    let follower = pair.follow(&filters);
    pair.primary("DELETE FROM orders WHERE id = 6");
    has(orders, "41189 eu");
    let (from, to) = (pair.primary_url(), pair.backup_url());
    let switched = pair.run(&[
        "switchover",
        "--from",
        &from,
        "--to",
        &to,
        "--name",
        &pair.database,
    ]);
    assert_refused(&switched, &["has not all rows", "promote"]);
    let promoted = pair.promote(&["--check"]).assert_code(0).stdout;
    assert!(
        promoted.contains("not wanted by --row-filter"),
        "{promoted}"
    );
    follower.process.wait().assert_code(0);
}

/// In memory, where each start chooses anew.
#[test]
fn memory_has_the_rows_that_meet_a_condition() {
    let pair = Pair::shared(
        "filtered-memory",
        "CREATE TABLE orders (id int PRIMARY KEY, note text); INSERT INTO orders SELECT i, 'n' FROM generate_series(1, 100) i;",
    );
    let port = free_port();
    let url = pair.memory_url(port);
    let read = |condition: &str, change: &str, ids: &str| {
        let memory = pair.remember(port, &["--row-filter", &format!("orders: {condition}")]);
        pair.primary(change);
        wait_for("the rows in memory", || {
            let session = Session::connect(&url).ok()?;
            let rows = session.query("SELECT id FROM orders ORDER BY id").ok()?;
            let found: Vec<_> = rows.into_iter().flatten().flatten().collect();
            (found.join(",") == ids).then_some(())
        });
        memory.interrupt().assert_code(0);
    };
    read("id <= 3", "UPDATE orders SET id = 1000 WHERE id = 2", "1,3");
    read("id > 98", "DELETE FROM orders WHERE id = 99", "100,1000");
}

/// What the primary, or its users, could not live with.
#[test]
fn a_condition_that_the_primary_cannot_keep_is_refused() {
    let pair = Pair::shared(
        "unfiltered",
        "CREATE TABLE orders (id int PRIMARY KEY, region text NOT NULL)",
    );
    let refused = |filter: &str, naming: &[&str]| {
        let refused = pair.follow(&["--row-filter", filter]).wait();
        assert_refused(&refused, naming);
        let left = "SELECT count(*) FROM pg_publication WHERE pubname = 'hindcast_unfiltered'";
        assert_eq!(pair.primary(left), "0", "{filter}");
    };
    let identity = ["public.orders reads region", "REPLICA IDENTITY FULL"];
    refused("orders: region = 'eu'", &identity);
    refused("orders: nonsense = 1", &["nonsense"]);
    refused("orders: id > random()", &["--row-filter", "immutable"]);
    refused("order: id > 1", &["no table fits order"]);
    pair.primary("UPDATE orders SET region = 'us'; INSERT INTO orders VALUES (1, 'eu')");
}

#[test]
fn a_table_that_was_made_anew_is_copied_anew() {
    let pair = Pair::shared("made-anew", MEASURES);
    let mut follower = pair.follow(&[]);
    pair.wait_until_equal(&mut follower);
    pair.primary("DROP TABLE measure; DROP TABLE place; CREATE TABLE place (id int PRIMARY KEY, name text); INSERT INTO place VALUES (3, 'another')");
    pair.backup("DROP TABLE measure");
    wait_for("the table to be copied", || {
        (pair.backup("SELECT * FROM place") == "3|another").then_some(())
    });
    pair.primary("UPDATE place SET name = 'another still'");
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
}

#[test]
fn a_backup_that_lacks_a_table_is_not_promoted() {
    let pair = Pair::shared("lacking", MEASURES);
    let mut follower = pair.follow(&[]);
    pair.wait_until_equal(&mut follower);
    // Changes like these cannot be logged.
    pair.primary(
        "CREATE TABLE keyless (a int); INSERT INTO keyless VALUES (0); UPDATE keyless SET a = 1",
    );
    follower.wait_for_report("the table to be missed", |report| {
        report["missing_tables"] == serde_json::json!(["public.keyless"])
    });
    let refused = pair.promote(&["--check"]);
    assert_refused(&refused, &["public.keyless", "--exclude-table"]);
    let arguments = [
        "status",
        "--to",
        &pair.backup_url(),
        "--from",
        &pair.primary_url(),
        "--name",
        &pair.database,
    ];
    let status = pair.run(&arguments).assert_code(0).stdout;
    assert!(status.contains("missing  public.keyless"), "{status}");
    // It follows on, and has it as soon as it can.
    pair.primary("ALTER TABLE keyless ADD PRIMARY KEY (a); INSERT INTO place VALUES (100, 'new')");
    nothing_is_missing(&mut follower);
    pair.wait_until_equal(&mut follower);
    let finished = pair.promote(&["--check"]).assert_code(0);
    let error = follower.wait().assert_code(0).stderr;
    assert!(
        error.contains("public.keyless is not replicated"),
        "{error}"
    );
    assert!(finished.stdout.contains("nothing"), "{}", finished.stdout);
    pair.assert_equal();
}

/// What a migration does, and what has to be on the backup then.
#[test]
fn tables_that_change_are_changed_or_copied_again() {
    let pair = Pair::shared(
        "migrated",
        "CREATE TABLE bill (id int PRIMARY KEY, cents int NOT NULL, who text, note varchar(10));
         INSERT INTO bill SELECT i, i * 100, 'person ' || i, 'n' FROM generate_series(1, 500) i;
         CREATE TABLE line (id int PRIMARY KEY, bill int REFERENCES bill);
         INSERT INTO line SELECT i, i FROM generate_series(1, 500) i;",
    );
    let mut follower = pair.follow(&[]);
    pair.wait_until_equal(&mut follower);
    let writer = "SELECT xmin FROM bill WHERE id = 1";
    let mut number = 1000;
    pair.primary("ALTER TABLE bill ALTER cents SET DEFAULT 5");
    for (migration, is_copied) in [
        (
            "ALTER TABLE bill ADD paid boolean NOT NULL DEFAULT false, ADD tags text[] DEFAULT '{\"a b\",c}', ADD later date",
            false,
        ),
        ("ALTER TABLE bill ALTER note TYPE varchar(40)", false),
        ("ALTER TABLE bill RENAME who TO customer", true),
        (
            "ALTER TABLE bill ALTER cents TYPE numeric USING cents / 100.0",
            true,
        ),
        (
            "ALTER TABLE bill ADD drawn int DEFAULT (random() * 1000000)::int",
            true,
        ),
        ("ALTER TABLE bill DROP COLUMN later", false),
    ] {
        let before = pair.backup(writer);
        number += 1;
        pair.primary(&format!("{migration}; INSERT INTO bill (id) VALUES ({number}); UPDATE bill SET note = 'seen' WHERE id = 7"));
        pair.wait_until_it_has_all(&mut follower);
        let of_theirs = "SELECT string_agg(attname, ', ' ORDER BY attname) FROM pg_attribute WHERE attrelid = 'bill'::regclass AND attnum > 0 AND NOT attisdropped";
        let columns = pair.primary(of_theirs);
        let rows =
            format!("SELECT md5(string_agg(ROW({columns})::text, ';' ORDER BY id)) FROM bill");
        assert_eq!(pair.backup(&rows), pair.primary(&rows), "{migration}");
        assert_eq!(pair.backup(writer) != before, is_copied, "{migration}");
    }
    // The log does not tell that these are other rows.
    for migration in [
        "ALTER TABLE bill ALTER cents TYPE numeric USING cents * 2",
        "ALTER TABLE bill DROP COLUMN customer; ALTER TABLE bill ADD COLUMN customer text DEFAULT 'nobody'",
    ] {
        pair.primary(migration);
        let rows = "SELECT sum(cents), count(DISTINCT customer) FROM bill";
        assert_ne!(pair.backup(rows), pair.primary(rows), "{migration}");
        wait_for("the table to be copied again", || {
            (pair.backup(rows) == pair.primary(rows)).then_some(())
        });
    }
    // Names: with a change behind it, without one, and exchanged.
    let writer = pair.backup(writer);
    pair.primary("ALTER TABLE bill RENAME TO invoice; UPDATE invoice SET cents = 1 WHERE id > 5");
    pair.wait_until_it_has_all(&mut follower);
    let sum = "SELECT sum(cents) FROM invoice";
    assert_eq!(pair.backup(sum), pair.primary(sum));
    assert_eq!(
        pair.backup("SELECT xmin FROM invoice WHERE id = 1"),
        writer,
        "it was copied"
    );
    pair.primary("CREATE SCHEMA old; ALTER TABLE invoice SET SCHEMA old");
    wait_for("the table to be in another schema", || {
        (pair.backup("SELECT to_regclass('old.invoice')") == "old.invoice").then_some(())
    });
    assert_eq!(
        pair.backup("SELECT xmin FROM old.invoice WHERE id = 1"),
        writer,
        "it was copied"
    );
    let lines = |of: &str| format!("SELECT count(*), sum(bill), max(id) FROM {of}");
    pair.primary("CREATE TABLE line_new (LIKE line INCLUDING ALL); INSERT INTO line_new SELECT id, id + 7 FROM line");
    wait_for("the new table", || {
        (pair.backup("SELECT to_regclass('line_new')") == "line_new").then_some(())
    });
    pair.primary(
        "BEGIN; ALTER TABLE line RENAME TO line_old; ALTER TABLE line_new RENAME TO line; COMMIT;
         DELETE FROM line WHERE id = 3; DELETE FROM line_old WHERE id > 10",
    );
    pair.wait_until_it_has_all(&mut follower);
    for table in ["line", "line_old"] {
        assert_eq!(
            pair.backup(&lines(table)),
            pair.primary(&lines(table)),
            "{table}"
        );
    }
    pair.promote(&["--check"]).assert_code(0);
    let said = follower.wait().assert_code(0).stderr;
    assert!(
        said.contains("public.bill was changed on the primary, and is changed here: column"),
        "{said}"
    );
    assert!(said.contains("column customer is missing"), "{said}");
}

#[test]
fn a_schema_that_somebody_else_keeps_is_not_changed() {
    let pair = Pair::shared("kept-schema", "CREATE TABLE t (id int PRIMARY KEY, v text)");
    pair.copy_schema();
    let mut follower = pair.follow(&["--no-schema"]);
    pair.wait_until_it_has_all(&mut follower);
    pair.primary("ALTER TABLE t ADD w int; INSERT INTO t VALUES (1, 'a', 1)");
    let refused = follower.wait();
    assert_refused(&refused, &["public.t", "column w is missing", "just as"]);
    pair.backup("ALTER TABLE t ADD w int");
    let mut follower = pair.follow(&["--no-schema"]);
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
}

#[test]
fn a_follower_killed_while_tables_join_goes_on() {
    let pair = Pair::shared("joining-killed", MEASURES);
    let mut follower = pair.follow(&[]);
    pair.wait_until_equal(&mut follower);
    follower.interrupt().assert_code(0);
    let mut random = Random::new(7);
    for round in 0..12 {
        pair.primary(&format!(
            "CREATE TABLE place_{round} (id int PRIMARY KEY, v int); INSERT INTO place_{round} SELECT i, i FROM generate_series(1, 20000) i;
             ALTER TABLE place ADD COLUMN c_{round} int DEFAULT (random() * 100)::int; UPDATE place SET name = 'round {round}' WHERE id = {round}"
        ));
        let follower = pair.follow(&[]);
        std::thread::sleep(Duration::from_millis(random.below(2500)));
        drop(follower);
        pair.primary(&format!("UPDATE place_{round} SET v = v + 1 WHERE id % 7 = 0; UPDATE place SET name = name || {round}"));
    }
    let mut follower = pair.follow(&[]);
    wait_for("the last table", || {
        (pair.backup("SELECT to_regclass('place_11')") == "place_11").then_some(())
    });
    nothing_is_missing(&mut follower);
    pair.wait_until_equal(&mut follower);
    pair.promote(&["--check"]).assert_code(0);
    follower.wait().assert_code(0);
}

/// A table that has to be copied again waits for its readers, and the others do not.
#[test]
fn a_reader_keeps_back_one_table_only() {
    let pair = Pair::shared("read-while", MEASURES);
    let mut follower = pair.follow(&[]);
    pair.wait_until_equal(&mut follower);
    let reader = Session::connect(&pair.backup_url()).unwrap();
    reader.run("BEGIN").unwrap();
    reader.value("SELECT count(*) FROM measure_1").unwrap();
    pair.primary(
        "ALTER TABLE measure ALTER value TYPE numeric USING value / 3.0;
         INSERT INTO measure (at, place, value) VALUES ('2026-01-20', 1, 0.5); UPDATE place SET name = 'seen'",
    );
    wait_for("the other table to be followed", || {
        (pair.backup("SELECT DISTINCT name FROM place") == "seen").then_some(())
    });
    follower.wait_for_report("the table to be missed", |report| {
        report["missing_tables"] == serde_json::json!(["public.measure_1"])
    });
    assert_refused(&pair.promote(&[]), &["public.measure_1"]);
    reader.run("COMMIT").unwrap();
    let sum = "SELECT sum(value) FROM measure";
    wait_for("the table to be copied again", || {
        (pair.backup(sum) == pair.primary(sum)).then_some(())
    });
    follower.interrupt().assert_code(0);
}
