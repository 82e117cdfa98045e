//! The rows of the backup are compared with the primary's while users write, and repaired.

use std::sync::atomic::{AtomicBool, Ordering};

use hindcast_tests::session::Session;
use hindcast_tests::standby::{Follower, Pair};
use serde_json::Value;

const SCHEMA: &str = "CREATE TABLE busy (id int PRIMARY KEY, n int); INSERT INTO busy SELECT i, 0 FROM generate_series(1, 2000) i;
     CREATE TABLE many (id bigint PRIMARY KEY, u int UNIQUE, what text); INSERT INTO many SELECT i, i, 'thing ' || i FROM generate_series(1, 12000) i;
     CREATE TABLE named (name text, at timestamptz, price numeric(8,2), place inet, PRIMARY KEY (name, at));
     INSERT INTO named SELECT chr(65 + i % 58) || i, '2026-01-01'::timestamptz + i * interval '1 s', i / 7.0, '10.0.0.1' FROM generate_series(1, 6000) i;
     CREATE TABLE log (at int, what text); INSERT INTO log SELECT i, 'x' FROM generate_series(1, 500) i;
     CREATE TABLE counted (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED); INSERT INTO counted (n) SELECT i FROM generate_series(1, 100) i";
const FLAGS: [&str; 4] = ["--check-rate", "200MB", "--check-period", "200ms"];

/// Waits until all tables were through after something was, and says what was found until then.
fn checked(follower: &mut Follower, after: f64) -> Value {
    let report = follower.wait_for_report("all tables to be compared", |report| {
        report["check"]["complete_at"]
            .as_f64()
            .is_some_and(|at| at > after)
    });
    report["check"].clone()
}

fn now(pair: &Pair) -> f64 {
    let now = pair.backup("SELECT extract(epoch FROM clock_timestamp())");
    now.parse().expect("a number")
}

/// Users who write all the time.
fn under_load<R>(pair: &Pair, meanwhile: impl FnOnce() -> R) -> R {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for user in 0..2 {
            let stop = &stop;
            scope.spawn(move || {
                let session = Session::connect(&pair.primary_url()).expect("the primary is there");
                let mut n = user;
                while !stop.load(Ordering::SeqCst) {
                    n += 2;
                    let id = n % 2000 + 1;
                    let sql = format!(
                        "UPDATE busy SET n = n + 1 WHERE id = {id}; INSERT INTO log VALUES ({n}, 'new'); \
                         INSERT INTO many VALUES ({0}, {0}, 'new'); DELETE FROM many WHERE id = {0} - 40", 100_000 + n
                    );
                    session.run(&sql).expect("users may write");
                }
            });
        }
        let result = meanwhile();
        stop.store(true, Ordering::SeqCst);
        result
    })
}

#[test]
fn rows_that_are_not_the_primarys_are_found_and_repaired() {
    let pair = Pair::shared("checked", SCHEMA);
    let mut follower = pair.follow(&FLAGS);
    pair.wait_until_it_has_all(&mut follower);
    under_load(&pair, || {
        // Nothing is found where nothing is, while users write.
        let found = checked(&mut follower, 0.0);
        assert_eq!(
            (&found["differed"], &found["passed_over"]),
            (&0.into(), &Value::Array(vec![])),
            "{found}"
        );
        assert!(
            found["rows"].as_u64().is_some_and(|rows| rows > 20_000),
            "{found}"
        );

        pair.backup("UPDATE many SET what = 'other' WHERE id IN (7, 11000); DELETE FROM many WHERE id = 8; \
            UPDATE named SET price = price + 0.01 WHERE name IN (SELECT name FROM named ORDER BY at LIMIT 3); \
            INSERT INTO named VALUES ('nobody''s', '2026-01-01', 1, '::1'); UPDATE counted SET n = 0 WHERE id = 5; \
            DELETE FROM log WHERE at = 3");
        // Rows that exchanged a unique value.
        pair.backup("UPDATE many SET u = -1 WHERE id = 20; UPDATE many SET u = 20 WHERE id = 21; UPDATE many SET u = 21 WHERE id = 20");
        let found = checked(&mut follower, now(&pair));
        // Three and two of `many`, four of `named`, one of `counted`, and `log`.
        assert_eq!(found["differed"], 11, "{found}");
        let repaired = follower.wait_for_report("all of it to be repaired", |report| {
            report["check"]["repaired"] == 11
        });
        assert_eq!(repaired["state"], "following");
    });
    let before = now(&pair);
    checked(&mut follower, before);
    pair.wait_until_equal(&mut follower);
    let found = checked(&mut follower, now(&pair));
    assert_eq!(
        (&found["differed"], &found["repaired"]),
        (&11.into(), &11.into()),
        "{found}"
    );
    let status = pair.run(&["status", "--to", &pair.backup_url(), "--name", "checked"]);
    let said = status.assert_code(0).stdout;
    assert!(
        said.contains("11 rows differed, 11 were repaired"),
        "{said}"
    );
    let said = follower.interrupt().assert_code(0).stderr;
    for note in [
        "public.log held other rows",
        "5 rows of public.many were not the primary's",
        "a row of public.counted was not",
        "(id) = (5)",
    ] {
        assert!(said.contains(note), "{note:?} is not in\n{said}");
    }
}
