//! Primary and backup change places under users who write, and the command is killed in between.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hindcast_tests::Process;
use hindcast_tests::session::Session;
use hindcast_tests::standby::{Follower, Pair, Random, assert_refused, kills, pair};

const SCHEMA: &str = "CREATE TABLE orders (id serial PRIMARY KEY, by int, n int, UNIQUE (by, n)); CREATE TABLE log (by int, n int)";

fn stage(name: &str) -> Pair {
    // Each is the primary once.
    Pair::with(name, SCHEMA, pair::primary(), pair::primary())
}

fn arguments(pair: &Pair, more: &[&str]) -> Vec<String> {
    let (from, to) = (pair.primary_url(), pair.backup_url());
    let name = ["--name", &pair.database];
    let fixed = ["switchover", "--from", &from, "--to", &to];
    [&fixed[..], &name, more]
        .concat()
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn switchover(pair: &Pair, more: &[&str]) -> hindcast_tests::Finished {
    let arguments = arguments(pair, more);
    pair.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Users who write where they may, and go on when their sessions are ended; each returns how many
/// of its transactions were committed, as far as it was told.
fn users<R>(pair: &Pair, meanwhile: impl FnOnce() -> R) -> (R, Vec<i64>) {
    let stop = AtomicBool::new(false);
    let url = pair.primary_url();
    std::thread::scope(|scope| {
        let user = |by: i64| {
            let (stop, url) = (&stop, &url);
            scope.spawn(move || {
                let mut session = Session::connect(url).ok();
                let mut told = 0;
                while !stop.load(Ordering::SeqCst) {
                    let next = told + 1;
                    // What was committed and not told is not committed again.
                    let sql = format!(
                        "INSERT INTO orders (by, n) VALUES ({by}, {next}) ON CONFLICT DO NOTHING; INSERT INTO log VALUES ({by}, {next})"
                    );
                    match session.as_ref().map(|session| session.run(&sql)) {
                        Some(Ok(())) => told = next,
                        _ => session = Session::connect(url).ok(),
                    }
                }
                told
            })
        };
        let users = [1, 2, 3].map(user);
        let done = meanwhile();
        stop.store(true, Ordering::SeqCst);
        (
            done,
            users
                .map(|user| user.join().expect("users do not panic"))
                .to_vec(),
        )
    })
}

/// Everything that users were told is there, and no number is left out.
#[track_caller]
fn nothing_is_lost(rows: &str, told: &[i64]) {
    for (row, told) in rows.lines().zip(told) {
        let numbers: Vec<i64> = row.split('|').filter_map(|n| n.parse().ok()).collect();
        assert!(numbers[1] >= *told, "{told} were told, and there is {row}");
        assert_eq!(numbers[1], numbers[2], "numbers are missing: {row}");
    }
    assert_eq!(rows.lines().count(), told.len(), "{rows}");
}

const ORDERS: &str = "SELECT by, max(n), count(*) FROM orders GROUP BY by ORDER BY by";

fn follow_back(pair: &Pair) -> Follower {
    let (from, to) = (pair.backup_url(), pair.primary_url());
    let back = [
        "standby",
        "--from",
        &from,
        "--to",
        &to,
        "--json",
        "--name",
        &pair.database,
    ];
    Follower::start("back", pair.hindcast(&back), pair.folder())
}

#[test]
fn users_lose_nothing_when_primary_and_backup_change_places() {
    let pair = stage("places");
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    let (finished, told) = users(&pair, || {
        pair.wait_until_it_has_all(&mut follower);
        switchover(&pair, &[])
    });
    let said = finished.assert_code(0).stdout;
    for line in [
        "3 sessions ended",
        "3 tables compared, all rows the same",
        "nothing that the primary has committed",
        "The old primary only reads",
    ] {
        assert!(said.contains(line), "{line:?} is not in\n{said}");
    }
    follower.wait().assert_code(0);
    nothing_is_lost(&pair.backup(ORDERS), &told);
    pair.assert_equal();

    // Nothing was copied again: the old primary goes on with what comes.
    let mut back = follow_back(&pair);
    pair.backup("INSERT INTO orders (by, n) SELECT 9, n FROM generate_series(1, 100) n; UPDATE test_marker SET n = 1000000");
    back.process.wait_until("the old primary to have it", || {
        (pair.primary("SELECT n FROM test_marker") == "1000000").then_some(())
    });
    pair.assert_equal();
    assert!(
        back.reports()
            .iter()
            .all(|report| report["state"] != "copying")
    );
    let (from, to) = (pair.backup_url(), pair.primary_url());
    let status = ["status", "--to", &to, "--from", &from, "--name", "places"];
    let status = pair.run(&status).assert_code(0).stdout;
    assert!(status.contains("fenced   it was the primary"), "{status}");
    back.interrupt().assert_code(0);
}

#[test]
fn a_switchover_that_is_killed_goes_on_or_is_taken_back() {
    let pair = stage("killed");
    let mut random = Random::seeded();
    let mut follower = pair.follow(&[]);
    pair.wait_until_it_has_all(&mut follower);
    for kill in 0..kills(4) {
        let command = [vec!["standby".to_owned()], arguments(&pair, &["--json"])].concat();
        let begun = Process::start(
            &format!("switchover-{kill}"),
            pair.hindcast(&command),
            pair.folder(),
        );
        // Any moment of it.
        std::thread::sleep(Duration::from_millis(random.below(600)));
        let said = begun.kill().stdout;
        if pair.backup("SELECT state FROM hindcast.standby") == "promoted" {
            break;
        }
        if pair.backup("SELECT switchover_at IS NOT NULL FROM hindcast.standby") == "t" {
            let to = pair.backup_url();
            let status = pair
                .run(&["status", "--to", &to, "--name", "killed"])
                .stdout;
            assert!(
                status.contains("switchover under way since"),
                "{status}\n{said}"
            );
            let taken = switchover(&pair, &["--abort"]).assert_code(0).stdout;
            assert!(taken.contains("Taken back"), "{taken}");
        } else {
            assert_refused(&switchover(&pair, &["--abort"]), &["nothing to take back"]);
        }
        // The primary takes writes, and the follower that made way goes on.
        pair.primary("INSERT INTO orders (by, n) SELECT 1, count(*) FROM orders");
        pair.wait_until_equal(&mut follower);
    }
    // Also when the one that was killed had done everything but end, or had ended.
    for _ in 0..2 {
        let said = switchover(&pair, &[]).assert_code(0).stdout;
        assert!(said.contains("The old primary only reads"), "{said}");
    }
    follower.wait().assert_code(0);
    pair.assert_equal();
    let slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()";
    assert_eq!(
        (pair.primary(slots), pair.backup(slots)),
        ("0".to_owned(), "1".to_owned())
    );
}
