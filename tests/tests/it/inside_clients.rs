//! `record -- COMMAND` of a service that keeps the addresses of its clients: it sees them again in
//! a replay.

use hindcast_tests::http::Client;
use hindcast_tests::{Stage, repository};

use super::inside;

const SCHEMA: &str = "CREATE TABLE visit (name text NOT NULL, accepted text, asked text)";
const CLIENTS: usize = 4;
const ROUNDS: usize = 3;

#[test]
fn a_service_sees_in_a_replay_who_its_clients_were() {
    let stage = Stage::new("inside-clients", SCHEMA);
    let service = [
        inside::python(),
        repository("tests/services/clients.py")
            .display()
            .to_string(),
        stage.service_port.to_string(),
    ];
    let recorder = inside::record(&stage, &service);
    let client = |_| Client::new(format!("127.0.0.1:{}", stage.service_port));
    let mut clients: Vec<_> = (0..CLIENTS).map(client).collect();
    for round in 0..ROUNDS {
        for (nth, client) in clients.iter_mut().enumerate() {
            let visited = client.send("POST", &format!("/c{nth}-{round}"), None);
            assert_eq!(visited.unwrap().status, 200);
        }
    }
    recorder.interrupt().assert_code(0);

    let replayed = inside::replay(&stage, &[]).assert_code(0);
    assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);
}
