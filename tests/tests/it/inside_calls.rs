//! A service that calls others than its database, recorded and replayed without them.

use std::path::PathBuf;
use std::process::Command;

use hindcast_tests::http::Client;
use hindcast_tests::stage::free_port;
use hindcast_tests::{Process, Stage, install, repository};

use super::inside::{CLIENTS, python, record, replay};
use super::inside_loops;

const SCHEMA: &str = "CREATE TABLE seen (text text PRIMARY KEY)";
const ROUNDS: usize = 8;

struct Others {
    port: u16,
    socket: String,
}

impl Others {
    fn start(&self, stage: &Stage) -> Process {
        let mut command = Command::new(python());
        command
            .arg(repository("tests/services/others.py"))
            .arg(self.port.to_string())
            .arg(&self.socket);
        let mut process = Process::start("others", command, stage.folder());
        process.wait_until_it_listens(self.port);
        process
    }
}

#[test]
fn whom_a_service_calls_is_not_there_in_a_replay_and_answers() {
    let stage = Stage::new("inside-calls", SCHEMA);
    let others = Others {
        port: free_port(),
        socket: stage.folder().join("redis").display().to_string(),
    };
    let running = others.start(&stage);
    let service = [
        python(),
        repository("tests/services/caller.py").display().to_string(),
        stage.service_port.to_string(),
        others.port.to_string(),
        others.socket.clone(),
    ];
    let recorder = record(&stage, &service);
    let address = format!("127.0.0.1:{}", stage.service_port);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = Client::new(address.clone());
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let answer = client.send("POST", &format!("/{number}/{round}"), None);
                    assert_eq!(answer.unwrap().status, 200);
                }
            });
        }
    });
    let recorded = recorder.interrupt().assert_code(0);
    let requests = format!("{} requests", CLIENTS * ROUNDS);
    assert!(recorded.stderr.contains(&requests), "{}", recorded.stderr);

    // They are there, and would answer otherwise.
    let replayed = replay(&stage, &[]).assert_code(0);
    assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);
    assert!(!replayed.stdout.contains("refused"), "{}", replayed.stdout);
    drop(running);
    let replayed = replay(&stage, &[]).assert_code(0);
    assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);

    // Who asks for something else gets nothing, and is told.
    let changed = stage.folder().join("changed.py");
    let text = std::fs::read_to_string(repository("tests/services/caller.py")).unwrap();
    std::fs::write(&changed, text.replace("\"/rates\"", "\"/prices\"")).unwrap();
    let mut command = service.clone();
    command[1] = changed.display().to_string();
    let replayed = replay(&stage, &["--app", &format!("exec {}", command.join(" "))]);
    let replayed = replayed.assert_code(1);
    // Not all of those that run at once need have come to it when the replay stops.
    let names = |line: &str| {
        let end = format!(
            "/0 of 127.0.0.1:{} (--outbound live makes calls)",
            others.port
        );
        line.contains("GET /prices/") && line.ends_with(&end)
    };
    assert!(replayed.stdout.lines().any(names), "{}", replayed.stdout);
}

/// Each request's are its own, in which order ever a replay asks: drivers put commands of several
/// requests into one write, and a generator of ids has random bytes for all of them.
#[test]
fn what_requests_of_node_ask_on_one_connection_and_draw_from_one_block_is_known() {
    let file = repository("tests/services/asks.js");
    let ways = [
        "ioredis",
        "scripted",
        "gathered",
        "pipeline",
        "node-redis",
        "node-redis-pipeline",
        "node-redis-4",
        "session",
        "fetch",
    ];
    is_known_of_each_request("inside-calls-node", |_| file.clone(), &ways);
}

/// In a bundle the packages have no name.
#[test]
fn what_requests_of_a_bundle_of_node_ask_on_one_connection_and_draw_from_one_block_is_known() {
    let bundled = |stage: &Stage| {
        let bundle = stage.folder().join("bundle.js");
        let service = repository("tests/services/asks.js");
        inside_loops::bundle_of(&service, &bundle, &[]);
        bundle
    };
    let ways = [
        "ioredis",
        "scripted",
        "gathered",
        "pipeline",
        "node-redis",
        "node-redis-pipeline",
        "session",
        "fetch",
    ];
    is_known_of_each_request("inside-calls-bundle", bundled, &ways);
}

fn is_known_of_each_request(name: &str, file: impl Fn(&Stage) -> PathBuf, ways: &[&str]) {
    const TOGETHER: usize = 4;
    let stage = Stage::new(name, SCHEMA);
    install("examples/node/run.sh", &["--install"]);
    let others = Others {
        port: free_port(),
        socket: stage.folder().join("redis").display().to_string(),
    };
    let running = others.start(&stage);
    let file = file(&stage).display().to_string();
    let service = |order: &str| {
        let (order, modules) = (
            format!("ORDER={order}"),
            repository("examples/node/node_modules"),
        );
        let modules = format!("NODE_PATH={}", modules.display());
        let ports = [stage.service_port, others.port].map(|port| port.to_string());
        let command = ["env", &order, &modules, "node", &file, &ports[0], &ports[1]];
        [&command[..], &[&others.socket]].concat().join(" ")
    };
    let words: Vec<String> = service("forwards").split(' ').map(str::to_owned).collect();
    let recorder = record(&stage, &words);
    let address = format!("127.0.0.1:{}", stage.service_port);
    std::thread::scope(|scope| {
        for number in 0..TOGETHER {
            let mut client = Client::new(address.clone());
            scope.spawn(move || {
                for way in ways {
                    let answer = client.send("POST", &format!("/{way}/{number}"), None);
                    assert_eq!(answer.unwrap().status, 200);
                }
            });
        }
    });
    recorder.interrupt().assert_code(0);
    drop(running);

    for order in ["forwards", "backwards"] {
        let app = format!("exec {}", service(order));
        let replayed = replay(&stage, &["--app", &app]).assert_code(0);
        assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);
        assert!(!replayed.stdout.contains("refused"), "{}", replayed.stdout);
    }
}

/// The service verifies whom it calls, when it is recorded and in a replay.
#[test]
fn whom_a_service_calls_encrypted_answers_in_a_replay() {
    let stage = Stage::new("inside-calls-tls", SCHEMA);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = stage.folder().join("rates.pem").display().to_string();
    let pem = made.signing_key.serialize_pem() + &made.cert.pem();
    std::fs::write(&certificate, pem).unwrap();
    let (rates, port) = (repository("tests/services/rates.py"), free_port());
    let mut giver = Command::new(python());
    giver
        .arg(&rates)
        .args(["--give", &port.to_string(), &certificate]);
    let mut giver = Process::start("rates", giver, stage.folder());
    giver.wait_until_it_listens(port);

    let url = format!("https://localhost:{port}");
    let mut recorder = stage.hindcast(&["record", "--base", "template", "--trace"]);
    recorder
        .arg(stage.trace())
        .arg("--")
        .arg(python())
        .arg(&rates)
        .args([&stage.service_port.to_string(), &url])
        .env("DATABASE_URL", stage.database_url())
        .env("SSL_CERT_FILE", &certificate);
    let mut recorder = Process::start("record", recorder, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
    for number in 1..=ROUNDS {
        let answer = client.send("POST", &format!("/{number}"), None).unwrap();
        assert_eq!(answer.text(), format!("/{number} {number}"));
    }
    recorder.interrupt().assert_code(0);
    drop(giver);

    let replayed = replay(&stage, &[]).assert_code(0);
    assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);
    assert!(!replayed.stdout.contains("refused"), "{}", replayed.stdout);

    // Who trusts nobody else does not trust us, and that is told.
    let text = std::fs::read_to_string(&rates).unwrap();
    let pinned = text.replace(
        "urlopen(sys.argv[2] + self.path)",
        &format!("urlopen(sys.argv[2] + self.path, context=ssl.create_default_context(cafile={certificate:?}))"),
    );
    let changed = stage.folder().join("pinned.py");
    std::fs::write(&changed, pinned).unwrap();
    let app = format!(
        "exec {} {} {} {url}",
        python(),
        changed.display(),
        stage.service_port
    );
    let replayed = replay(&stage, &["--app", &app]).assert_code(1);
    let told = "whose certificate the service did not trust";
    assert!(replayed.stdout.contains(told), "{}", replayed.stdout);
}
