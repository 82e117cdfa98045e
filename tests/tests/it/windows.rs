//! `hindcast windows`: parts of a recording that are replayed at the same time.

use hindcast_tests::{Finished, Process, Stage};
use serde_json::Value;

use crate::inside;

const ROUNDS: usize = 3;
/// What a recording of `load` has.
const REQUESTS: u64 = 2 * inside::CLIENTS as u64 * ROUNDS as u64;

fn windows(stage: &Stage, more: &[&str]) -> Finished {
    let trace = stage.trace().display().to_string();
    stage.run("windows", &[&["windows", "--trace", &trace], more].concat())
}

fn replay(stage: &Stage, name: &str, window: &Value) -> Process {
    let end = |of: &str| window[of].as_str().expect("a name").to_owned();
    let mut command = stage.hindcast(&["replay", "--json", "--trace"]);
    command
        .arg(stage.trace())
        .args(["--from", &end("from"), "--to", &end("to")])
        .env("HINDCAST_POSTGRES", stage.database_url())
        .env("DATABASE_URL", stage.database_url())
        .env("WALLET_SECRET", "s3cret");
    Process::start(name, command, stage.folder())
}

fn record(stage: &Stage) {
    let recorder = inside::record(stage, &inside::command(stage, 2));
    inside::load(stage, ROUNDS);
    recorder.interrupt().assert_code(0);
}

#[test]
fn windows_begin_at_bases_and_are_replayed_at_the_same_time() {
    let stage = Stage::new("windows", inside::SCHEMA);
    record(&stage);
    record(&stage);

    let listed = windows(&stage, &["--size", "5", "--json"]).assert_code(0);
    let found: Vec<Value> = listed
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object per line"))
        .collect();
    let [first, second] = &found[..] else {
        panic!("{}", listed.stdout);
    };
    for window in &found {
        assert_eq!(window["requests"], REQUESTS, "{window}");
    }
    assert!(first["ended_us"].as_i64() < second["arrived_us"].as_i64());

    let running =
        [("first", first), ("second", second)].map(|(name, window)| replay(&stage, name, window));
    for process in running {
        let verdict = process.wait().assert_code(0).stdout;
        let verdict: Value = serde_json::from_str(&verdict).expect("JSON");
        assert_eq!(verdict["faithful"], true, "{verdict}");
        assert_eq!(verdict["counts"]["requests"], REQUESTS, "{verdict}");
        assert_eq!(verdict["counts"]["lead_in"], 0, "{verdict}");
        // Each is a recording of its own, with tables to compare with at its end.
        assert_eq!(verdict["final_state"]["state"], "same", "{verdict}");
    }

    // Read by people, and cut as asked.
    let page = windows(&stage, &["--size", "5"]).assert_code(0);
    assert!(page.stdout.contains("FROM"), "{}", page.stdout);
    assert_eq!(page.stdout.lines().count(), 3, "{}", page.stdout);
    assert!(page.stderr.contains("2 bases"), "{}", page.stderr);
    let large = windows(&stage, &["--json"]).assert_code(0).stdout;
    assert_eq!(large.lines().count(), 2, "{large}");
}

#[test]
fn a_recording_without_a_base_has_no_windows_and_says_what_to_do() {
    let stage = Stage::new("windowless", inside::SCHEMA);
    let mut command = stage.hindcast(&["record", "--trace"]);
    command
        .arg(stage.trace())
        .arg("--")
        .args(inside::command(&stage, 1))
        .env("DATABASE_URL", stage.database_url());
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    inside::load(&stage, 1);
    recorder.interrupt().assert_code(0);
    let refused = windows(&stage, &[]).assert_code(3);
    assert!(refused.stderr.contains("has no base"), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("hindcast base"),
        "{}",
        refused.stderr
    );
    let zero = windows(&stage, &["--size", "0"]);
    zero.assert_code(2);
}
