//! What a request has asked at a time is answered in a replay in the order in which it was: a
//! service decides by that what it asks next.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use hindcast_tests::http::Client;
use hindcast_tests::{Process, Stage, install, repository};

use super::inside_extension;

const PAGES: &str = "CREATE TABLE author (id int PRIMARY KEY, name text NOT NULL);
    INSERT INTO author SELECT id, 'author ' || id FROM generate_series(1, 5) AS id;
    CREATE TABLE page (id int GENERATED ALWAYS AS IDENTITY, kind text NOT NULL, author int NOT NULL);
    INSERT INTO page (kind, author) VALUES ('new', 1), ('new', 2), ('old', 2), ('old', 3)";

const ROUNDS: usize = 4;

/// The command of the service in this file.
pub fn service(stage: &Stage, file: &str) -> [String; 3] {
    let service = repository("tests/services").join(file);
    let port = stage.service_port.to_string();
    ["node".to_owned(), service.display().to_string(), port]
}

/// Runs a command of a recording.
pub fn run(stage: &Stage, what: &str, environment: &[(&str, &str)], more: &[&str]) -> Process {
    let mut command = stage.hindcast(&[what, "--trace"]);
    command
        .arg(stage.trace())
        .args(more)
        .env("HINDCAST_POSTGRES", stage.database_url())
        .env("DATABASE_URL", stage.database_url())
        .env("NODE_PATH", repository("examples/node/node_modules"))
        .envs(environment.iter().copied());
    Process::start(what, command, stage.folder())
}

/// The list that takes long.
fn slow(list: &str) -> [(&'static str, &str); 1] {
    [("SLOW", list)]
}

/// Clients at a time, which write where it is recorded what each statement saw; what the service
/// asked for, in which order.
fn load(stage: &Stage, written: bool) -> BTreeSet<String> {
    let client = |number: usize| {
        let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
        let mut send = move |method, target: &str| {
            let answer = client.send(method, target, None).unwrap();
            assert_eq!(answer.status, 200, "{target}: {}", answer.text());
            answer
        };
        let round = move |round| {
            if written {
                send("POST", &format!("/{}", 1 + (number + round) % 5));
            }
            send("GET", "/").json()["asked"].to_string()
        };
        (0..ROUNDS).map(round).collect::<BTreeSet<_>>()
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|number| scope.spawn(move || client(number)))
            .collect();
        let asked = clients.into_iter().map(|client| client.join().unwrap());
        asked.flatten().collect()
    })
}

fn record(stage: &Stage, list: &str, written: bool) -> BTreeSet<String> {
    install("examples/node/run.sh", &["--install"]);
    let command = service(stage, "loads.js");
    let [node, file, port] = &command;
    let more = ["--base", "template", "--", node, file, port];
    let mut recorder = run(stage, "record", &slow(list), &more);
    recorder.wait_until_it_listens(stage.service_port);
    let asked = load(stage, written);
    let recorded = recorder.interrupt().assert_code(0).stderr;
    let requests = if written {
        "32 requests"
    } else {
        "16 requests"
    };
    assert!(recorded.contains(requests), "{recorded}");
    asked
}

fn answers_come_in_their_order(stage: &Stage, written: bool) {
    let asked = record(stage, "new", written);
    let old_first = |asked: &String| asked.starts_with("[[2,3]");
    assert!(asked.iter().all(old_first), "{asked:?}");
    let replayed = run(stage, "replay", &slow("old"), &[]).wait();
    let replayed = replayed.assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");
    assert!(!replayed.contains("moved"), "{replayed}");
    // Half of what was asked at a time does not come.
    let began = Instant::now();
    let app = format!("CHANGED=1 {}", service(stage, "loads.js").join(" "));
    let changed = run(stage, "retro", &slow("old"), &["--json", "--app", &app]).wait();
    let took = began.elapsed();
    let report: serde_json::Value = serde_json::from_str(&changed.stdout).unwrap();
    assert_eq!(report["counts"]["let_go"], 0, "{}", report["counts"]);
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn answers_come_in_their_order_through_the_gateway() {
    answers_come_in_their_order(&Stage::new("answers", PAGES), false);
}

#[test]
fn answers_come_in_their_order_straight_to_the_database() {
    let stage = inside_extension::stage("answers-straight", PAGES, &[]);
    answers_come_in_their_order(&stage, true);
}

/// In changed code one of two reads of a request comes behind the other. Nothing moves meanwhile:
/// the other waits for a commit, and that for the one that comes.
#[test]
fn what_a_request_asks_at_a_time_is_waited_for_though_the_rest_of_it_waits() {
    let schema = "CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)";
    let stage = inside_extension::stage("beside", schema, &[]);
    install("examples/node/run.sh", &["--install"]);
    let command = service(&stage, "beside.js");
    let [node, file, port] = &command;
    let more = ["--base", "template", "--", node, file, port];
    let mut recorder = run(&stage, "record", &[], &more);
    recorder.wait_until_it_listens(stage.service_port);
    let ask = |method| {
        let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
        client.send(method, "/", None).unwrap().text()
    };
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| ask("GET"));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(ask("POST"), "1");
        assert_eq!(ask("POST"), "2");
        assert_eq!(reads.join().unwrap(), "[0,2]");
    });
    recorder.interrupt().assert_code(0);
    // The slow read began first, and was answered last.
    let replayed = run(&stage, "replay", &[], &[]).wait().assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");
    assert!(!replayed.contains("out of order"), "{replayed}");
    let app = format!("LATE=1 {}", command.join(" "));
    let changed = run(&stage, "retro", &[], &["--json", "--app", &app]).wait();
    let report: serde_json::Value = serde_json::from_str(&changed.stdout).unwrap();
    assert_eq!(report["counts"]["let_go"], 0, "{report:#}");
    assert_eq!(report["counts"]["responses_changed"], 0, "{report:#}");
}
