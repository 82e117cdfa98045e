//! Large objects, which drivers make, write and read by calls of functions and not by statements.

use hindcast_tests::http::Client;
use hindcast_tests::{Process, Stage, repository};

use super::inside::{CLIENTS, record, replay};
use super::inside_extension::stage;
use super::inside_loops::python;

const ROUNDS: usize = 6;

/// Clients at a time: each makes files of its own, and all write one and read it.
fn load(stage: &Stage) {
    let address = format!("127.0.0.1:{}", stage.service_port);
    let send = |client: &mut Client, method: &str, target: &str, body: &str| {
        let body = (!body.is_empty()).then_some(body);
        let answer = client.send(method, target, body).unwrap();
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
    };
    send(
        &mut Client::new(&address),
        "POST",
        "/file/shared",
        "\"begin\"",
    );
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let address = address.clone();
            scope.spawn(move || {
                let mut client = Client::new(&address);
                for round in 0..ROUNDS {
                    let way = ["file", "early"][round % 2];
                    let own = format!("/{way}/{number}-{round}");
                    let text = format!("\"{number} in round {round}\"");
                    send(&mut client, "POST", &own, &text);
                    send(&mut client, "PUT", "/file/shared", &text);
                    send(&mut client, "GET", "/file/shared", "");
                    send(&mut client, "DELETE", "/file/none", "");
                    send(&mut client, "GET", &own, "");
                }
            });
        }
    });
}

#[test]
fn large_objects_have_the_numbers_and_the_contents_that_they_had() {
    let stage = stage(
        "large-objects",
        "CREATE TABLE file (name text PRIMARY KEY, object oid NOT NULL, size int NOT NULL)",
        &[],
    );
    let service = repository("tests/services/blobs.py");
    let port = stage.service_port.to_string();
    let service = [python("python"), service.display().to_string(), port];
    let recorder = record(&stage, &service);
    load(&stage);
    recorder.interrupt().assert_code(0);
    for _ in 0..2 {
        let replayed = replay(&stage, &[]).assert_code(0).stdout;
        assert!(replayed.contains("faithful"), "{replayed}");
        assert!(!replayed.contains("READ COMMITTED"), "{replayed}");
    }
    let index = stage.folder().join("index.sql");
    std::fs::write(&index, "CREATE INDEX ON file (size)").unwrap();
    let mut retro = stage.hindcast(&["retro", "--json", "--trace"]);
    retro
        .arg(stage.trace())
        .arg("--migrate")
        .arg(index)
        .env("HINDCAST_POSTGRES", stage.database_url())
        .env("DATABASE_URL", stage.database_url());
    let retro = Process::start("retro", retro, stage.folder()).wait();
    let retro: serde_json::Value = serde_json::from_str(&retro.assert_code(0).stdout).unwrap();
    assert_eq!(retro["counts"]["responses_changed"], 0, "{retro:#}");
    let of = |name: &str| retro["counts"][name].as_u64().unwrap();
    let same = of("same") + of("same_failure");
    assert_eq!(same, of("transactions"), "{retro:#}");
}
