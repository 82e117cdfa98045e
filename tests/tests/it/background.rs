//! `record -- COMMAND` of services that write outside of requests: they say that they are alive,
//! and do jobs that requests leave them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use hindcast_tests::http::Client;
use hindcast_tests::{Finished, Process, Stage, repository, wait_for};

use super::inside_extension;

const SCHEMA: &str = "CREATE TABLE worker (name uuid PRIMARY KEY, seen timestamptz, beats int); \
     CREATE TABLE job (id serial PRIMARY KEY, text text, state text, worker uuid, result text, at timestamptz)";
const CLIENTS: usize = 4;
const JOBS: usize = 5;

fn service(stage: &Stage) -> Vec<String> {
    let install = Command::new(repository("tests/services/install.sh")).status();
    assert!(install.expect("bash is there").success());
    let python = repository("tests/services/.venv/bin/python");
    let service = repository("tests/services/jobs.py");
    let words = [python.display().to_string(), service.display().to_string()];
    [&words[..], &[stage.service_port.to_string()]].concat()
}

fn done(stage: &Stage) -> PathBuf {
    stage.folder().join("done")
}

/// The jobs that were done since this was asked last.
fn done_since(stage: &Stage) -> Vec<String> {
    let text = std::fs::read_to_string(done(stage)).unwrap_or_default();
    let _ = std::fs::remove_file(done(stage));
    text.lines().map(str::to_owned).collect()
}

fn get(client: &mut Client, target: &str) -> serde_json::Value {
    let answer = client.send("GET", target, None).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_str(&answer.text()).unwrap()
}

/// Leaves jobs, and asks for each until it is done.
fn load(address: String, number: usize) {
    let mut client = Client::new(address);
    for job in 0..JOBS {
        let target = format!("/job/job-{number}-{job}");
        let answer = client.send("POST", &target, None).unwrap();
        let left: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
        let target = format!("/job/{}", left["job"]);
        while get(&mut client, &target)["state"] != "done" {
            std::thread::sleep(Duration::from_millis(20));
        }
        get(&mut client, "/worker");
    }
}

fn record(stage: &Stage, service: &[String]) {
    record_under(stage, service, load);
}

fn record_under(stage: &Stage, service: &[String], load: fn(String, usize)) {
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command
        .arg(stage.trace())
        .arg("--")
        .args(service)
        .env("DATABASE_URL", stage.database_url())
        .env("DONE", done(stage));
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    let address = format!("127.0.0.1:{}", stage.service_port);
    let clients = (0..CLIENTS).map(|number| {
        let address = address.clone();
        std::thread::spawn(move || load(address, number))
    });
    let clients: Vec<_> = clients.collect();
    for client in clients {
        client.join().unwrap();
    }
    recorder.interrupt().assert_code(0);
}

fn replay(stage: &Stage, more: &[&str]) -> Finished {
    let mut command = stage.hindcast(&["replay", "--trace"]);
    command
        .arg(stage.trace())
        .args(more)
        .env("HINDCAST_POSTGRES", stage.database_url())
        .env("DATABASE_URL", stage.database_url());
    Process::start("replay", command, stage.folder()).wait()
}

#[test]
fn background_work_is_done_again() {
    let stage = Stage::new("background", SCHEMA);
    record(&stage, &service(&stage));
    let recorded: BTreeSet<String> = done_since(&stage).into_iter().collect();
    assert_eq!(recorded.len(), CLIENTS * JOBS);
    for _ in 0..2 {
        let replayed = replay(&stage, &[]).assert_code(0);
        assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);
        let again = done_since(&stage);
        let once: BTreeSet<String> = again.iter().cloned().collect();
        assert_eq!(again.len(), once.len(), "each job once: {again:?}");
        assert!(once.is_subset(&recorded), "{again:?}");
        // On a machine that is busy, some may have been done by the recording.
        assert!(2 * once.len() > recorded.len(), "{again:?}");
    }
}

/// A worker that begins when the recording has made its row finds that row, though it has another
/// name for it.
#[test]
fn a_late_worker_is_alive_by_the_recorded_row() {
    let stage = Stage::new(
        "alive",
        "CREATE TABLE worker (name text PRIMARY KEY, beats int)",
    );
    let mut words = service(&stage);
    words[1] = repository("tests/services/alive.py").display().to_string();
    let file = stage.folder().join("late");
    words.push(file.display().to_string());
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command
        .arg(stage.trace())
        .arg("--")
        .args(&words)
        .env("DATABASE_URL", stage.database_url());
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
    assert_eq!(get(&mut client, "/")[0], 1);
    recorder.interrupt().assert_code(0);
    std::fs::write(&file, "").unwrap();
    let replayed = replay(&stage, &[]).assert_code(0);
    assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);
}

/// The job has the only connection in the replay before those that looked before it originally, and
/// is held at its commit until they have.
#[test]
fn a_job_does_not_keep_the_only_connection_from_those_that_it_waits_for() {
    let schema = "CREATE TABLE written (name text, by text)";
    let stage = inside_extension::stage("one-connection", schema, &[]);
    let mut words = service(&stage);
    words[1] = repository("tests/services/one_connection.py")
        .display()
        .to_string();
    let file = stage.folder().join("job-first");
    words.push(file.display().to_string());
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command
        .arg(stage.trace())
        .arg("--")
        .args(&words)
        .env("DATABASE_URL", stage.database_url());
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    std::thread::scope(|scope| {
        let looks = || {
            let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
            client.send("GET", "/", None).unwrap().text()
        };
        for one in [(); 2].map(|()| scope.spawn(looks)) {
            assert_eq!(one.join().unwrap(), "0");
        }
    });
    let count = || stage.sql("SELECT count(*) FROM written");
    wait_for("the job", || (count() == "4").then_some(()));
    recorder.interrupt().assert_code(0);
    std::fs::write(&file, "").unwrap();
    let replayed = replay(&stage, &[]).assert_code(0);
    assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);
}

/// A worker in a process of its own takes jobs from a broker that is not there in a replay.
#[test]
fn a_worker_gets_the_jobs_of_a_broker_again() {
    let stage = Stage::new(
        "queued",
        "CREATE TABLE job (id serial PRIMARY KEY, text text, result text)",
    );
    let mut words = service(&stage);
    words[1] = repository("tests/services/queued.py").display().to_string();
    let port = hindcast_tests::stage::free_port();
    let mut broker = Command::new(&words[0]);
    broker.args([&words[1], "--broker", &port.to_string()]);
    let mut broker = Process::start("broker", broker, stage.folder());
    broker.wait_until_it_listens(port);
    words.push(port.to_string());
    record_under(&stage, &words, |address, number| {
        let mut client = Client::new(address);
        for job in 0..JOBS {
            let target = format!("/job/job-{number}-{job}");
            let answer = client.send("POST", &target, None).unwrap();
            let left: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
            let target = format!("/job/{}", left["job"]);
            while get(&mut client, &target)["told"].is_null() {
                std::thread::sleep(Duration::from_millis(20));
            }
            let target = format!("/ask/ask-{number}-{job}");
            let answer = client.send("POST", &target, None).unwrap();
            let text = format!("ASK-{number}-{job}");
            assert!(answer.text().contains(&text), "{}", answer.text());
        }
    });
    drop(broker);
    let recorded: BTreeSet<String> = done_since(&stage).into_iter().collect();
    assert_eq!(recorded.len(), 2 * CLIENTS * JOBS);
    for _ in 0..2 {
        let replayed = replay(&stage, &[]).assert_code(0);
        assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);
        assert!(!replayed.stdout.contains("refused"), "{}", replayed.stdout);
        // The message names the process that left it, which made no difference.
        let told = "with other values than recorded";
        assert!(!replayed.stdout.contains(told), "{}", replayed.stdout);
        let again = done_since(&stage);
        let once: BTreeSet<String> = again.iter().cloned().collect();
        assert_eq!(again.len(), once.len(), "each job once: {again:?}");
        assert!(once.is_subset(&recorded), "{again:?}");
        assert!(2 * once.len() > recorded.len(), "{again:?}");
    }
}
