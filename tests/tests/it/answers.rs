//! What a request has asked at a time is answered in a replay in the order in which it was: a
//! service decides by that what it asks next.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use hindcast_tests::http::Client;
use hindcast_tests::{Process, Stage, repository};

use super::inside_extension;
use super::languages::install;

const PAGES: &str = "CREATE TABLE author (id int PRIMARY KEY, name text NOT NULL);
    INSERT INTO author SELECT id, 'author ' || id FROM generate_series(1, 5) AS id;
    CREATE TABLE page (id int GENERATED ALWAYS AS IDENTITY, kind text NOT NULL, author int NOT NULL);
    INSERT INTO page (kind, author) VALUES ('new', 1), ('new', 2), ('old', 2), ('old', 3)";

const ROUNDS: usize = 4;

/// The service's command, and its surroundings.
fn service(stage: &Stage) -> [String; 3] {
    let service = repository("tests/services/loads.js");
    let port = stage.service_port.to_string();
    ["node".to_owned(), service.display().to_string(), port]
}

/// Runs a command of a recording, with the list that takes long.
fn run(stage: &Stage, what: &str, slow: &str, more: &[&str]) -> Process {
    let mut command = stage.hindcast(&[what, "--trace"]);
    command
        .arg(stage.trace())
        .args(more)
        .env("HINDCAST_POSTGRES", stage.database_url())
        .env("DATABASE_URL", stage.database_url())
        .env("NODE_PATH", repository("examples/node/node_modules"))
        .env("SLOW", slow);
    Process::start(what, command, stage.folder())
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

fn record(stage: &Stage, slow: &str, written: bool) -> BTreeSet<String> {
    install("examples/node/run.sh", &["--install"]);
    let command = service(stage);
    let [node, file, port] = &command;
    let more = ["--base", "template", "--", node, file, port];
    let mut recorder = run(stage, "record", slow, &more);
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
    let replayed = run(stage, "replay", "old", &[]).wait();
    let replayed = replayed.assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");
    assert!(!replayed.contains("moved"), "{replayed}");
    // Half of what was asked at a time does not come.
    let began = Instant::now();
    let app = format!("CHANGED=1 {}", service(stage).join(" "));
    let changed = run(stage, "retro", "old", &["--json", "--app", &app]).wait();
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
