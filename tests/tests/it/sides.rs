//! What is told of a divergence: both sides, with values and rows, without secrets.

use hindcast_tests::http::Client;
use hindcast_tests::{Finished, Stage, repository};

use super::inside::{python, record_with, replay};

pub const SCHEMA: &str = "CREATE TABLE ballot (id int PRIMARY KEY, votes int NOT NULL DEFAULT 0, voter text, \
    password text NOT NULL DEFAULT 'swordfish'); \
    CREATE TABLE entry (number int); INSERT INTO ballot (id) SELECT generate_series(1, 9)";

pub fn service(stage: &Stage) -> [String; 3] {
    let service = repository("tests/services/ballot.py").display().to_string();
    [python(), service, stage.service_port.to_string()]
}

fn recorded(name: &str, more: &[&str]) -> Stage {
    let stage = Stage::new(name, SCHEMA);
    let recorder = record_with(&stage, more, &service(&stage));
    let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
    for number in 1..=2 {
        let headers = [("authorization", "Bearer hunter2-and-more")];
        let answer = client.send_with("POST", &format!("/{number}"), &headers, None);
        assert_eq!(answer.unwrap().status, 200);
    }
    recorder.interrupt().assert_code(0);
    stage
}

/// Replays what this changes in the service.
fn changed(stage: &Stage, environment: &str, more: &[&str]) -> Finished {
    let app = format!("{environment} exec {}", service(stage).join(" "));
    replay(stage, &[&["--app", &app], more].concat()).assert_code(1)
}

#[track_caller]
pub fn assert_says(finished: &Finished, parts: &[&str]) {
    for part in parts {
        assert!(
            finished.stdout.contains(part),
            "no {part:?} in:\n{}",
            finished.stdout
        );
    }
    for secret in ["hunter2", "swordfish"] {
        assert!(
            !finished.stdout.contains(secret),
            "{secret} in:\n{}",
            finished.stdout
        );
    }
}

#[test]
fn a_divergence_shows_the_statements_of_both_sides_with_values_and_rows() {
    let stage = recorded("sides", &["--values"]);
    replay(&stage, &[]).assert_code(0);

    let said = changed(&stage, "STEP=2", &[]);
    assert_says(
        &said,
        &[
            "(request 1, POST /1), statement 3 of 4",
            "-   3  UPDATE ballot SET votes = votes + $1, voter = $2",
            "$1 = 1, $2 = 'Bearer redacted', $3 = 1",
            "votes = 1, voter = Bearer redacted",
            "$1 = 2, $2 = 'Bearer redacted', $3 = 1",
            "votes = 2, voter = Bearer redacted",
        ],
    );
    let said = changed(&stage, "ORDER=1", &["--keep-going"]);
    assert_says(
        &said,
        &[
            "-   2  SELECT id",
            "+   2  SELECT id",
            "ORDER BY id LIMIT 1",
            "password = redacted",
        ],
    );

    let said = changed(&stage, "STEP=2", &["--no-values"]);
    assert_says(&said, &["UPDATE ballot"]);
    assert!(!said.stdout.contains("votes = 2"), "{}", said.stdout);

    let trace = stage.trace().display().to_string();
    let shown = stage.run("show", &["show", "1", "--trace", &trace]);
    let shown = shown.assert_code(0);
    let rows = "           UPDATE 1:\n             votes = 1, voter = ";
    assert!(shown.stdout.contains(rows), "{}", shown.stdout);
}

#[test]
fn a_recording_without_values_shows_those_of_the_replay_and_says_what_it_lacks() {
    let stage = recorded("sides-plain", &[]);
    let said = changed(&stage, "STEP=2", &["--keep-going"]);
    assert_says(
        &said,
        &[
            "UPDATE ballot SET votes = votes + $1",
            "$1 = 2, $2 = 'Bearer redacted', $3 = 1",
            "replayed: UPDATE 1:",
            "kept with `record --values`",
            "id = 1: votes was 1, is 2",
        ],
    );
    let said = changed(&stage, "EXTRA=1", &[]);
    assert_says(
        &said,
        &["one more, which begins with INSERT INTO entry VALUES ($1)"],
    );
}
