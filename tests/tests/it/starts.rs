//! `record -- COMMAND` of services that draw when they start: a key that nobody has configured, and
//! what ids are made of.

use std::collections::BTreeSet;
use std::path::PathBuf;

use hindcast_tests::http::Client;
use hindcast_tests::{Finished, Process, Stage, install, repository};

const SCHEMA: &str =
    "CREATE TABLE note (id text PRIMARY KEY, person text NOT NULL, text text NOT NULL)";
const PEOPLE: usize = 3;
const NOTES: usize = 4;

fn python(stage: &Stage) -> Vec<String> {
    install("tests/services/install.sh", &[]);
    let python = repository("tests/services/.venv/bin/python");
    let service = repository("tests/services/starts.py");
    let words = [python.display().to_string(), service.display().to_string()];
    [&words[..], &[stage.service_port.to_string()]].concat()
}

fn node(stage: &Stage) -> Vec<String> {
    install("examples/node/run.sh", &["--install"]);
    let service = repository("tests/services/starts.js");
    let words = ["node".to_owned(), service.display().to_string()];
    [&words[..], &[stage.service_port.to_string()]].concat()
}

/// Where the service says what it has drawn.
fn drawn(stage: &Stage) -> PathBuf {
    stage.folder().join("drawn")
}

/// What it has said since this was asked last.
fn drawn_since(stage: &Stage) -> Vec<String> {
    let text = std::fs::read_to_string(drawn(stage)).unwrap();
    std::fs::remove_file(drawn(stage)).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// One request after the other: a counter of the process is in every id.
fn record(stage: &Stage, service: &[String], workers: usize, more: &[&str]) {
    let mut command = stage.hindcast(&["record"]);
    command
        .args(more)
        .arg("--trace")
        .arg(stage.trace())
        .arg("--")
        .args(service)
        .env("NODE_PATH", repository("examples/node/node_modules"))
        .env("DATABASE_URL", stage.database_url())
        .env("WORKERS", workers.to_string())
        .env("DRAWN", drawn(stage));
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    let address = format!("127.0.0.1:{}", stage.service_port);
    for number in 0..PEOPLE {
        let mut client = Client::new(address.clone());
        let login = client.send("POST", &format!("/login/person-{number}"), None);
        let login = login.unwrap();
        let cookie = login.headers["set-cookie"].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap();
        for note in 0..NOTES {
            let target = format!("/note/{note}");
            let answer = client.send_with("POST", &target, &[("cookie", cookie)], None);
            let answer = answer.unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
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

fn assert_faithful(replayed: Finished) {
    let said = replayed.assert_code(0).stdout;
    let requests = format!("{} requests", PEOPLE * (NOTES + 1));
    assert!(
        said.contains("faithful") && said.contains(&requests),
        "{said}"
    );
}

#[test]
fn what_a_service_draws_when_it_is_loaded_and_forked_is_drawn_again() {
    let stage = Stage::new("starts", SCHEMA);
    record(&stage, &python(&stage), 1, &["--base", "template"]);
    let recorded = drawn_since(&stage);
    assert_eq!(recorded.len(), 4, "{recorded:?}");
    assert_faithful(replay(&stage, &[]));
    assert_eq!(drawn_since(&stage), recorded);
    // By a shell, in other words.
    let service = format!("cd / && exec {}", python(&stage).join(" "));
    assert_faithful(replay(&stage, &["--app", &service]));
    assert_eq!(drawn_since(&stage), recorded);
}

#[test]
fn what_node_draws_when_a_service_is_loaded_is_drawn_again() {
    let stage = Stage::new("starts-node", SCHEMA);
    record(&stage, &node(&stage), 1, &["--base", "template"]);
    assert_faithful(replay(&stage, &[]));
}

/// The second start is another recorder's, of the same trace.
#[test]
fn no_worker_and_no_start_draws_what_another_one_drew() {
    const WORKERS: usize = 2;
    let stage = Stage::new("starts-twice", SCHEMA);
    let service = python(&stage);
    let start = |more: &[&str]| {
        record(&stage, &service, WORKERS, more);
        drawn_since(&stage)
    };
    let (first, second) = (start(&["--base", "template"]), start(&[]));
    let words = |lines: &[String]| {
        let words = lines.iter().flat_map(|line| line.split(' ').skip(1));
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let all = [words(&first), words(&second)].concat();
    // Key, prefix and counter, and of each worker what it drew and what its thread did.
    assert_eq!(all.len(), 2 * (3 + 2 * WORKERS), "{all:?}");
    let different: BTreeSet<_> = all.iter().collect();
    assert_eq!(different.len(), all.len(), "{all:?}");
    // Which worker takes a request is not known again; all draw what they drew, and one start is
    // replayed: the first of the range.
    replay(&stage, &["--keep-going"]);
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    assert_eq!(sorted(drawn_since(&stage)), sorted(first));
}

#[test]
fn without_pins_a_service_draws_something_else_in_each_replay() {
    let stage = Stage::new("starts-no-pins", SCHEMA);
    let options = ["--base", "template", "--no-pins"];
    record(&stage, &python(&stage), 1, &options);
    let recorded = drawn_since(&stage);
    replay(&stage, &["--keep-going"]);
    let replayed = drawn_since(&stage);
    assert_eq!(replayed.len(), recorded.len());
    let same = replayed.iter().filter(|line| recorded.contains(line));
    assert_eq!(same.count(), 0);
}
