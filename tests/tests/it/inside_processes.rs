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
    come_to_the_same_process("inside-processes", "at-once");
}

/// Listeners of nginx, Apache, unicorn and fasthttp wait for data. A replay sends none before it
/// knows which process has the connection.
#[test]
fn so_they_do_where_a_listener_waits_for_data() {
    come_to_the_same_process("inside-processes-deferred", "deferred");
}

fn come_to_the_same_process(stage: &str, how: &str) {
    let stage = Stage::new(stage, SCHEMA);
    let service = [
        inside::python(),
        repository("tests/services/processes.py")
            .display()
            .to_string(),
        stage.service_port.to_string(),
        how.to_owned(),
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
