//! `record -- COMMAND` of a service of several processes that keep something in their memory: a
//! request comes in a replay to the process that it came to.

use hindcast_tests::http::Client;
use hindcast_tests::{Stage, repository};

use super::inside;

const SCHEMA: &str = "CREATE TABLE visit (name text NOT NULL, times int, names int)";
const NAMES: usize = 8;
const ROUNDS: usize = 4;

#[test]
fn requests_come_in_a_replay_to_the_processes_that_they_came_to() {
    let stage = Stage::new("inside-processes", SCHEMA);
    let service = [
        inside::python(),
        repository("tests/services/processes.py")
            .display()
            .to_string(),
        stage.service_port.to_string(),
    ];
    let recorder = inside::record(&stage, &service);
    for _ in 0..ROUNDS {
        for name in 0..NAMES {
            let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
            let visited = client.send("POST", &format!("/n{name}"), None);
            assert_eq!(visited.unwrap().status, 200);
        }
    }
    recorder.interrupt().assert_code(0);

    let replayed = inside::replay(&stage, &[]).assert_code(0);
    assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);
}
