//! Pools of connections that are smaller than what a replay has in flight.

use hindcast_tests::http::Client;
use hindcast_tests::{Process, Stage, install, repository, wait_for};

use super::inside_extension;

const SCHEMA: &str = "CREATE TABLE written (name text NOT NULL)";

fn record(stage: &Stage, service: &[&str]) {
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command
        .arg(stage.trace())
        .arg("--")
        .args(service)
        .env("LATE", "first")
        .env("DATABASE_URL", stage.database_url());
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    let answer = |target: &str| {
        let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
        client.send("GET", target, None).unwrap().text()
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| answer("/first"));
        let count = || stage.sql("SELECT count(*) FROM written");
        wait_for("its first row", || (count() == "1").then_some(()));
        assert_eq!(answer("/second"), "2");
        assert_eq!(first.join().unwrap(), "2");
    });
    recorder.interrupt().assert_code(0);
}

fn is_replayed(stage: &Stage, service: &[&str]) {
    let mut command = stage.hindcast(&["replay", "--trace"]);
    let app = format!("LATE=second exec {}", service.join(" "));
    command
        .arg(stage.trace())
        .args(["--app", &app])
        .env("HINDCAST_POSTGRES", stage.database_url())
        .env("DATABASE_URL", stage.database_url());
    let replayed = Process::start("replay", command, stage.folder()).wait();
    let replayed = replayed.assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");
}

/// In the replay, the first request takes the only connection again before the second one comes,
/// and waits for what that one writes.
#[test]
fn a_pool_of_java_is_as_large_as_a_replay_needs() {
    let stage = inside_extension::stage("pool-java", SCHEMA, &[]);
    let service = repository("tests/services/Pooled.java")
        .display()
        .to_string();
    let service = ["java", &service, &stage.service_port.to_string()];
    record(&stage, &service);
    is_replayed(&stage, &service);
}

/// As a replay tells it.
#[test]
fn pools_of_threads_of_python_are_as_large_as_a_replay_needs() {
    install("tests/services/install.sh", &[]);
    let stage = Stage::new("pool-python", "");
    let python = repository("tests/services/.venv/bin/python");
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command
        .arg(stage.trace())
        .arg("--")
        .arg(python)
        .arg(repository("tests/services/threads.py"))
        .env("HINDCAST_POOL", "7")
        .env("DATABASE_URL", stage.database_url());
    let ended = Process::start("record", command, stage.folder()).wait();
    let said = ended.assert_code(0).stdout;
    for pool in ["waitress 7", "cheroot 7", "executor 7", "one 1"] {
        assert!(said.lines().any(|line| line == pool), "{said}");
    }
}

/// Nobody can tell a program in Rust to have more connections. So the first request does not hear
/// that it has written before the second one stands in line.
#[test]
fn transactions_of_a_pool_of_tokio_begin_in_their_order() {
    let stage = inside_extension::stage("pool-tokio", SCHEMA, &[]);
    let port = stage.service_port.to_string();
    let service = [env!("CARGO_BIN_EXE_pooled"), &port];
    record(&stage, &service);
    is_replayed(&stage, &service);
}
