//! Two recordings in one trace, one after the other.

use std::os::unix::fs::PermissionsExt;

use hindcast_tests::Stage;
use hindcast_tests::http::Client;

use super::inside::{record_with, replay};
use super::sides::{SCHEMA, assert_says, service};

fn record(stage: &Stage, requests: u64) {
    record_command(stage, &service(stage), requests);
}

fn record_command(stage: &Stage, command: &[String], requests: u64) {
    let recorder = record_with(stage, &[], command);
    let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
    for number in 1..=requests {
        let answer = client.send("POST", &format!("/{}", number % 3 + 1), None);
        assert_eq!(answer.unwrap().status, 200);
    }
    recorder.interrupt().assert_code(0);
}

#[test]
fn the_last_recording_is_replayed_from_its_own_base_if_nothing_else_is_asked_for() {
    let stage = Stage::new("recorded-again", SCHEMA);
    record(&stage, 4);
    // Nobody records this.
    stage.sql("UPDATE ballot SET votes = 100");
    record(&stage, 3);

    let last = replay(&stage, &[]).assert_code(0);
    let left_out = "an earlier recording in this trace, which ends with request 4, is left out: --to 4 runs that one";
    assert_says(
        &last,
        &[
            "Verdict: faithful",
            "3 requests (1.1 to 1.3)",
            "2 tables with 9 rows, as recorded",
            left_out,
        ],
    );
    // Each has a final state of its own.
    let first = replay(&stage, &["--to", "4"]).assert_code(0);
    assert_says(
        &first,
        &[
            "Verdict: faithful",
            "4 requests (1 to 4)",
            "2 tables with 9 rows, as recorded",
        ],
    );
    let first = replay(&stage, &["--from", "2"]).assert_code(0);
    assert_says(&first, &["Verdict: faithful", "3 requests (2 to 4)"]);
    let both = replay(&stage, &["--from", "1", "--to", "1.3"]).assert_code(1);
    assert_says(
        &both,
        &[
            "Verdict: diverged",
            "recording had stopped after request 4, and began anew before 1.1",
            "--from 1.1 begins there",
        ],
    );
}

/// The second time its user starts the service otherwise.
#[test]
fn the_command_is_that_of_the_recording_that_is_replayed() {
    let stage = Stage::new("recorded-otherwise", SCHEMA);
    let launcher = stage.folder().join("launch");
    std::fs::write(&launcher, "#!/bin/sh\nexec \"$@\"\n").unwrap();
    let runs = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&launcher, runs).unwrap();
    let mut launched = vec![launcher.display().to_string()];
    launched.extend(service(&stage));
    record_command(&stage, &launched, 2);
    record(&stage, 3);
    std::fs::remove_file(&launcher).unwrap();
    let last = replay(&stage, &[]).assert_code(0);
    assert_says(&last, &["Verdict: faithful", "3 requests (1.1 to 1.3)"]);
}
