//! What requests saw in caches of a service in Node is shown to them again in a replay, and they
//! come to the workers that they came to.

use hindcast_tests::http::Client;
use hindcast_tests::{Stage, repository};

use super::answers::{run, service};
use super::inside_extension;
use super::languages::install;

const NOTES: &str = "CREATE TABLE note (id int GENERATED ALWAYS AS IDENTITY);
    CREATE TABLE seen (times int); INSERT INTO seen VALUES (0)";
const CLIENTS: usize = 6;
const ROUNDS: usize = 8;

/// Clients at a time.
fn load(stage: &Stage) {
    let ask = |number: usize| {
        // By which it is known that they are of one client.
        let cookie = format!("client=client-number-{number}");
        for round in 0..ROUNDS {
            // Each comes by a connection of its own.
            let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
            let asked = ["/list", "/page", "/together"];
            let target = asked[(number + round) % asked.len()];
            let name = format!("/n{number}");
            for (method, target) in [("GET", target), ("POST", &*name), ("GET", "/list")] {
                let headers = [("cookie", &*cookie)];
                let answer = client.send_with(method, target, &headers, None).unwrap();
                assert_eq!(answer.status, 200, "{target}: {}", answer.text());
            }
        }
    };
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            scope.spawn(move || ask(number));
        }
    });
}

/// Recorded with lists that are fresh for so many milliseconds. In a replay they are so without
/// end.
fn is_the_same(name: &str, fresh: &str, environment: &[(&str, &str)]) {
    install("examples/node/run.sh", &["--install"]);
    let stage = inside_extension::stage(name, NOTES, &[]);
    let [node, file, port] = &service(&stage, "shown.js");
    let more = ["--base", "template", "--", node, file, port];
    let packages = ["examples/node/node_modules", "tests/services"];
    let packages = packages.map(|path| repository(path).display().to_string());
    let packages = packages.join(":");
    let with = |fresh| [environment, &[("FOR", fresh), ("NODE_PATH", &packages)]].concat();
    let mut recorder = run(&stage, "record", &with(fresh), &more);
    recorder.wait_until_it_listens(stage.service_port);
    load(&stage);
    recorder.interrupt().assert_code(0);
    for _ in 0..2 {
        let replayed = run(&stage, "replay", &with("1000000"), &[]).wait();
        let replayed = replayed.assert_code(0).stdout;
        assert!(replayed.contains("faithful"), "{replayed}");
        assert!(!replayed.contains("came in other requests"), "{replayed}");
    }
}

#[test]
fn requests_see_in_caches_of_next_what_they_saw() {
    is_the_same("shown", "20", &[]);
}

#[test]
fn requests_come_to_the_workers_of_a_cluster_that_they_came_to() {
    is_the_same("shown-cluster", "20", &[("CLUSTER", "1")]);
}
