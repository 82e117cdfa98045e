//! A recording of two days, of which the first goes: what remains replays, and what is gone is
//! called pruned wherever it is asked for.

use std::process::Command;

use hindcast_tests::retro::Case;
use hindcast_tests::{Finished, Stage};

/// Two recordings into one trace, each with its base: requests 1 to 3, and 1.1 to 1.3.
fn two_days() -> Case {
    let day = |case: &Case, users: std::ops::RangeInclusive<u32>| {
        for user in users {
            let body = format!("{{\"userid\":{user},\"forum\":1}}");
            let answer = case.client().send("POST", "/subscribe", Some(&body));
            assert!(answer.expect("the service answers").status < 300);
        }
    };
    let case = Case::recorded("moodle", "0.01", |case| day(case, 1..=3));
    let recorder = case.stage.record(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", &case.service("original")]);
    let service = case.stage.start_service(command);
    day(&case, 4..=6);
    service.stop();
    recorder.interrupt().assert_code(0);
    case
}

fn on_trace(stage: &Stage, command: &str, more: &[&str]) -> Finished {
    let trace = stage.trace().display().to_string();
    let arguments = [&[command, "--trace", &trace], more].concat();
    stage.run(command, &arguments)
}

#[track_caller]
fn assert_says(finished: &Finished, parts: &[&str]) {
    let said = format!("{}{}", finished.stdout, finished.stderr);
    for part in parts {
        assert!(said.contains(part), "no {part:?} in:\n{said}");
    }
}

#[test]
fn the_first_day_goes_and_the_second_replays() {
    let case = two_days();
    let stage = &case.stage;
    let limits = ["--older", "0s"];

    let planned = on_trace(stage, "prune", &["--older", "0s", "--dry-run"]).assert_code(0);
    assert_says(
        &planned,
        &[
            "Would remove 1 segment of recorder 0",
            "3 requests",
            "requests 1 to 3",
        ],
    );
    assert_says(&planned, &["more would go but for the base of"]);
    let before = on_trace(stage, "ls", &[]).assert_code(0);
    assert_eq!(before.stdout.lines().count(), 7, "{}", before.stdout);

    let removed = on_trace(stage, "prune", &limits).assert_code(0);
    assert_says(&removed, &["Removed 1 segment of recorder 0"]);
    let again = on_trace(stage, "prune", &limits).assert_code(0);
    assert_says(&again, &["Nothing to remove."]);

    let listed = on_trace(stage, "ls", &[]).assert_code(0);
    assert_eq!(listed.stdout.lines().count(), 4, "{}", listed.stdout);
    assert_says(
        &listed,
        &["Pruned: ", "3 requests and ", "of recorder 0 were removed"],
    );
    let gone = on_trace(stage, "ls", &["--to", "2"]).assert_code(3);
    assert_says(&gone, &["earlier ones were pruned"]);
    let gone = stage
        .replay_app(&case.service("original"), &["--to", "2"])
        .assert_code(3);
    assert_says(
        &gone,
        &["request 2 was pruned; the recording has requests 1.1 to 1.3"],
    );

    stage
        .replay_app(&case.service("original"), &[])
        .assert_code(0);
    let url = stage.database_url();
    let rewound = on_trace(stage, "rewind", &["--before", "1.1", "--postgres", &url]);
    assert_says(
        &rewound.assert_code(0),
        &["The database as of just before request 1.1"],
    );
}

#[test]
fn what_cannot_be_replayed_any_more_says_why() {
    let case = two_days();
    let stage = &case.stage;
    let url = stage.database_url();
    let more = ["--older", "0s", "--ignore-bases", "--json"];
    let removed = on_trace(stage, "prune", &more).assert_code(0);
    let report: serde_json::Value =
        serde_json::from_str(&removed.stdout).expect("the report is JSON");
    assert_eq!(
        report["removed"].as_array().map(Vec::len),
        Some(2),
        "{report}"
    );
    let listed = on_trace(stage, "ls", &[]).assert_code(0);
    assert_says(&listed, &["All requests were pruned in", "Pruned: "]);
    // A third day without a base of its own: the only bases are before what was removed.
    let mut command = stage.hindcast(&["record"]);
    command
        .args(["--listen", &stage.ingress()])
        .args(["--app", &format!("http://127.0.0.1:{}", stage.service_port)])
        .args(["--pg-listen", &format!("127.0.0.1:{}", stage.gateway_port)])
        .args(["--postgres", &url, "--trace"])
        .arg(stage.trace());
    let mut recorder = hindcast_tests::Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.ingress_port);
    let mut service = Command::new("sh");
    service.args(["-c", &case.service("original")]);
    let service = stage.start_service(service);
    let body = Some("{\"userid\":7,\"forum\":1}");
    let answer = case.client().send("POST", "/subscribe", body);
    assert!(answer.expect("the service answers").status < 300);
    service.stop();
    recorder.interrupt().assert_code(0);
    for refused in [
        stage.replay_app(&case.service("original"), &["--across-gaps"]),
        on_trace(stage, "rewind", &["--before", "2.1", "--postgres", &url]),
    ] {
        let refused = refused.assert_code(3);
        assert_says(
            &refused,
            &[
                "Pruned: ",
                "Error: what this range is replayed from was pruned",
                "Hint: nothing that remains can be replayed: it has no base of its own",
            ],
        );
    }
}
