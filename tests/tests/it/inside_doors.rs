//! `record -- COMMAND` of a service that listens on several ports: a replay waits for those that
//! requests came to, and sends each request where it came.

use hindcast_tests::http::Client;
use hindcast_tests::stage::free_port;
use hindcast_tests::{Stage, repository};

use super::inside;

const SCHEMA: &str = "CREATE TABLE mark (name text NOT NULL, step int NOT NULL)";
const ROUNDS: usize = 10;
/// Longer than a replay waits for the port that clients named.
const SECONDS: &str = "2";

#[test]
fn requests_of_a_replay_go_to_the_listeners_that_they_came_to_once_all_of_them_listen() {
    let stage = Stage::new("inside-doors", SCHEMA);
    let (cluster, metrics) = (free_port(), free_port());
    let service = [
        inside::python(),
        repository("tests/services/doors.py").display().to_string(),
        cluster.to_string(),
        metrics.to_string(),
        stage.service_port.to_string(),
        SECONDS.to_owned(),
    ];
    let recorder = inside::record(&stage, &service);
    let client = |port: u16| Client::new(format!("127.0.0.1:{port}"));
    let (mut app, mut counts) = (client(stage.service_port), client(metrics));
    for round in 0..ROUNDS {
        let marked = app.send("POST", &format!("/mark/m{round}"), None).unwrap();
        assert_eq!(marked.status, 200, "{}", marked.text());
        let counted = counts.send("GET", "/count", None).unwrap();
        assert_eq!(counted.text(), (round + 1).to_string());
        let missing = app.send("GET", "/count", None).unwrap();
        assert_eq!(missing.status, 404);
    }
    recorder.interrupt().assert_code(0);

    let replayed = inside::replay(&stage, &[]).assert_code(0);
    assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);
}
