//! A recording that starts from a backup: with archived WAL any range replays from just before it,
//! without it from the backup on.

use std::process::Command;

use hindcast_cluster::Options;
use hindcast_tests::{Process, Stage, http, program, wait_for};

fn moodle(stage: &Stage) -> String {
    format!(
        "exec {} serve moodle --listen 127.0.0.1:{} --database-url {}",
        program("hindcast-workload").display(),
        stage.service_port,
        stage.gateway_url()
    )
}

fn subscribe(stage: &Stage, users: std::ops::RangeInclusive<u32>) {
    let mut client = http::Client::new(stage.ingress());
    for user in users {
        let body = format!("{{\"userid\":{user},\"forum\":1}}");
        let response = client
            .send("POST", "/subscribe", Some(&body))
            .expect("the service answers");
        assert!(response.status < 300, "{}", response.text());
    }
}

/// A server that archives its WAL beside its data, with Moodle's tables.
fn archiving_stage(name: &str) -> Stage {
    let options = Options::throw_away()
        .set("wal_level", "replica")
        .set("max_wal_senders", 4)
        .set("archive_mode", "on")
        // Relative to the data folder, which is not known before the server is there.
        .set(
            "archive_command",
            "mkdir -p ../archive && cp %p ../archive/%f.part && mv ../archive/%f.part ../archive/%f",
        );
    let stage = Stage::with(name, "SELECT 1", options);
    let mut load = Command::new(program("hindcast-workload"));
    load.args(["load", "moodle", "--scale", "0.01", "--database-url"])
        .arg(stage.database_url());
    Process::start("load", load, stage.folder())
        .wait()
        .assert_code(0);
    stage
}

/// Takes a backup as a base, records `users` subscriptions, and waits until all WAL is archived.
fn record(stage: &Stage, base: &[&str], users: u32) {
    let trace = stage.trace().display().to_string();
    let url = stage.database_url();
    let mut arguments = vec!["base", "--trace", &trace, "--postgres", &url];
    arguments.extend(base);
    stage.run("base", &arguments).assert_code(0);

    let mut command = stage.hindcast(&["record"]);
    command
        .args(["--listen", &stage.ingress()])
        .args(["--app", &format!("http://127.0.0.1:{}", stage.service_port)])
        .args(["--pg-listen", &format!("127.0.0.1:{}", stage.gateway_port)])
        .args(["--postgres", &url, "--trace", &trace]);
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.ingress_port);
    let mut service = Command::new("sh");
    service.args(["-c", &moodle(stage)]);
    let service = stage.start_service(service);
    subscribe(stage, 1..=users);
    service.stop();
    recorder.interrupt().assert_code(0);

    let last = stage.sql("SELECT pg_walfile_name(pg_switch_wal())");
    let archived = stage.cluster.folder().join("archive").join(last.trim());
    wait_for("the last WAL segment to be archived", || {
        archived.exists().then_some(())
    });
}

fn verdict(stage: &Stage, more: &[&str]) -> serde_json::Value {
    let mut arguments = vec!["--json"];
    arguments.extend(more);
    let replay = stage.replay_app(&moodle(stage), &arguments).assert_code(0);
    serde_json::from_str(&replay.stdout).expect("the verdict is JSON")
}

#[test]
fn with_archived_wal_a_range_replays_from_just_before_it() {
    let stage = archiving_stage("archive");
    let archive = stage.cluster.folder().join("archive").display().to_string();
    let backup = stage.cluster.folder().join("backup").display().to_string();
    record(&stage, &["--backup", &backup, "--wal-archive", &archive], 6);
    let all = verdict(&stage, &[]);
    assert_eq!(all["faithful"], true, "{all}");
    let part = verdict(&stage, &["--from", "4", "--to", "5"]);
    assert_eq!(part["faithful"], true, "{part}");
    assert_eq!(part["counts"]["requests"], 2, "{part}");
    assert_eq!(part["counts"]["lead_in"], 0, "{part}");
}

#[test]
fn without_archived_wal_everything_since_the_backup_is_replayed() {
    let stage = archiving_stage("backup");
    let backup = stage.cluster.folder().join("backup").display().to_string();
    record(&stage, &["--backup", &backup], 4);
    let part = verdict(&stage, &["--from", "3", "--to", "4"]);
    assert_eq!(part["faithful"], true, "{part}");
    assert_eq!(part["counts"]["requests"], 2, "{part}");
    assert_eq!(part["counts"]["lead_in"], 2, "{part}");
}
