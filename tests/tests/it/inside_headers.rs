//! A request of a replay has the headers that it had: a replay's own are not the service's.

use hindcast_tests::http::Client;
use hindcast_tests::{Process, Stage, repository};

/// A body that several reads take.
const LONG: usize = 20_000;

fn shows_what_it_showed(name: &str, program: &str, file: &str) {
    let stage = Stage::new(name, "");
    let file = repository("tests/services").join(file);
    let run = |what: &str, more: &[&str]| {
        let mut command = stage.hindcast(&[what, "--trace"]);
        command
            .arg(stage.trace())
            .args(more)
            .env("DATABASE_URL", stage.database_url())
            .env("HINDCAST_POSTGRES", stage.database_url());
        Process::start(what, command, stage.folder())
    };
    let (file, port) = (file.display().to_string(), stage.service_port.to_string());
    let command = ["--base", "template", "--", program, &file, &port];
    let mut recorder = run("record", &command);
    recorder.wait_until_it_listens(stage.service_port);
    let address = format!("127.0.0.1:{}", stage.service_port);
    let long = "x".repeat(LONG);
    for (headers, body) in [
        (&[][..], None),
        (&[("x-one", "1"), ("cookie", "a=b")], None),
        (&[("connection", "keep-alive")], None),
        (&[("connection", "close")], None),
        (&[("x-one", "2")], Some("some")),
        (&[("x-one", "3")], Some(&*long)),
    ] {
        let method = if body.is_some() { "POST" } else { "GET" };
        let mut client = Client::new(address.clone());
        let answer = client.send_with(method, "/", headers, body).unwrap();
        assert_eq!(answer.status, 200);
        assert!(!answer.text().contains("hindcast"), "{}", answer.text());
    }
    recorder.interrupt().assert_code(0);
    let replayed = run("replay", &[]).wait().assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");
}

#[test]
fn a_service_in_python_shows_the_headers_that_it_showed() {
    shows_what_it_showed("headers-python", "python3", "headers.py");
}

#[test]
fn a_service_in_node_shows_the_headers_that_it_showed() {
    shows_what_it_showed("headers-node", "node", "headers.js");
}
