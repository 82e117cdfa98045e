//! A service is recorded by somebody who has the public key only, and replayed by somebody who has
//! the secret one.

use std::process::Command;

use hindcast_tests::retro::Case;
use hindcast_tests::{Finished, Process, Stage, program};

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

fn loaded() -> Case {
    let case = Case {
        stage: Stage::new("encrypted", "SELECT 1"),
        workload: "moodle",
    };
    let mut load = Command::new(program("hindcast-workload"));
    load.args(["load", "moodle", "--scale", "0.01", "--database-url"])
        .arg(case.stage.database_url());
    Process::start("load", load, case.stage.folder())
        .wait()
        .assert_code(0);
    case
}

#[test]
fn what_was_recorded_with_the_public_key_is_replayed_with_the_secret_one() {
    let case = loaded();
    let stage = &case.stage;
    let file = |name: &str| stage.folder().join(name).display().to_string();
    let (secret, public) = (file("recording.key"), file("recording.key.pub"));
    let made = stage.run("key", &["key", "new", &secret]).assert_code(0);
    assert_says(&made, &["Key ", &public, "keep the secret one"]);
    let again = stage.run("key", &["key", "new", &secret]).assert_code(3);
    assert_says(&again, &["Error: cannot write", "Hint: choose a file"]);
    let shown = stage.run("key", &["key", "show", &public]).assert_code(0);
    assert_says(&shown, &["public: records", "hindcast-public-"]);

    let recorder = stage.record(&["--key", &public]);
    let mut command = Command::new("sh");
    command.args(["-c", &case.service("original")]);
    let service = stage.start_service(command);
    for user in 1..=3 {
        let body = format!("{{\"userid\":{user},\"forum\":1}}");
        let answer = case.client().send("POST", "/subscribe", Some(&body));
        assert!(answer.expect("the service answers").status < 300);
    }
    service.stop();
    recorder.interrupt().assert_code(0);

    let without = on_trace(stage, "ls", &[]).assert_code(3);
    assert_says(
        &without,
        &[
            "is encrypted for key",
            "Hint: name the key file with `--key`",
        ],
    );
    let public_only = on_trace(stage, "ls", &["--key", &public]).assert_code(3);
    assert_says(&public_only, &["is the public one", "takes the secret key"]);
    let text = std::fs::read_to_string(&secret).expect("the key file can be read");
    let line = text.lines().last().expect("it has lines").to_owned();
    let argument = on_trace(stage, "ls", &["--key", &line]).assert_code(2);
    assert_says(&argument, &["every user of this machine could see"]);

    let listed = on_trace(stage, "ls", &["--key", &secret]).assert_code(0);
    assert_eq!(listed.stdout.lines().count(), 4, "{}", listed.stdout);
    // The environment takes a path, or the key itself.
    for value in [&secret, &line] {
        let trace = stage.trace().display().to_string();
        let mut command = stage.hindcast(&["show", "1", "--trace", &trace]);
        command.env("HINDCAST_KEY", value);
        let shown = Process::start("show", command, stage.folder()).wait();
        assert_says(&shown.assert_code(0), &["POST /subscribe"]);
    }
    // The service does not get the key.
    let app = format!(
        "test -z \"$HINDCAST_KEY\" || exit 9; {}",
        case.service("original")
    );
    let mut replay = stage.hindcast(&["replay", "--app", &app]);
    replay
        .env("HINDCAST_KEY", &line)
        .args(["--postgres", &stage.database_url(), "--trace"])
        .arg(stage.trace());
    let replay = Process::start("replay", replay, stage.folder());
    replay.wait().assert_code(0);

    let views = on_trace(stage, "export", &["--key", &secret, "--sql", "-"]);
    assert_says(
        &views.assert_code(2),
        &["cannot read an encrypted recording", "hindcast decrypt"],
    );
    let copy = file("copy");
    let copied = on_trace(stage, "decrypt", &["--key", &secret, "--to", &copy]);
    assert_says(&copied.assert_code(0), &["Decrypted 1 segment"]);
    let plain = stage
        .run("ls-copy", &["ls", "--trace", &copy])
        .assert_code(0);
    assert_eq!(plain.stdout, listed.stdout);
}

#[test]
fn what_a_killed_recorder_left_is_recovered_with_the_secret_key() {
    let case = loaded();
    let stage = &case.stage;
    let secret = stage.folder().join("k").display().to_string();
    stage.run("key", &["key", "new", &secret]).assert_code(0);
    let public = format!("{secret}.pub");
    let recorder = stage.record(&["--key", &public, "--durable"]);
    let mut command = Command::new("sh");
    command.args(["-c", &case.service("original")]);
    let service = stage.start_service(command);
    let body = Some("{\"userid\":1,\"forum\":1}");
    let answer = case.client().send("POST", "/subscribe", body);
    assert!(answer.expect("the service answers").status < 300);
    recorder.kill();
    service.stop();
    let wal = stage.trace().join("wal/r0-000001.wal");
    assert!(wal.exists());
    let refused = on_trace(stage, "recover", &["--key", &public]).assert_code(3);
    assert_says(&refused, &["is the public one"]);
    let recovered = on_trace(stage, "recover", &["--key", &secret]).assert_code(0);
    assert_says(&recovered, &["1 write-ahead file became segments"]);
    assert!(!wal.exists());
    let listed = on_trace(stage, "ls", &["--key", &secret]).assert_code(0);
    assert_says(
        &listed,
        &[
            "POST",
            "/subscribe",
            "stopped without closing the recording",
        ],
    );
}
