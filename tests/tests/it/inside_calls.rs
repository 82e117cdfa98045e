//! A service that calls others than its database, recorded and replayed without them.

use std::process::Command;

use hindcast_tests::http::Client;
use hindcast_tests::stage::free_port;
use hindcast_tests::{Process, Stage, repository};

use super::inside::{CLIENTS, python, record, replay};

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
