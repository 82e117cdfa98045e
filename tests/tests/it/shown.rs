//! What requests saw in caches of a service in Node or Python is shown to them again in a replay,
//! and they come to the workers that they came to.

use hindcast_tests::http::Client;
use hindcast_tests::{Stage, install, repository};

use super::answers::{run, service};
use super::{inside_extension, inside_loops};

const NOTES: &str = "CREATE TABLE note (id int GENERATED ALWAYS AS IDENTITY);
    CREATE TABLE seen (times int); INSERT INTO seen VALUES (0)";
const CLIENTS: usize = 6;
const ROUNDS: usize = 8;

/// Clients at a time.
fn load(stage: &Stage, asked: &[&str]) {
    let ask = |number: usize| {
        // By which it is known that they are of one client.
        let cookie = format!("client=client-number-{number}");
        for round in 0..ROUNDS {
            // Each comes by a connection of its own.
            let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
            let target = asked[(number + round) % asked.len()];
            let name = format!("/n{number}");
            for (method, target) in [("GET", target), ("POST", &*name), ("GET", asked[0])] {
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

/// Recorded with lists that are fresh for 20 ms. In a replay they are so without end.
fn is_the_same(name: &str, asked: &[&str], environment: &[(&str, &str)]) {
    install("examples/node/run.sh", &["--install"]);
    let stage = inside_extension::stage(name, NOTES, &[]);
    let [node, file, port] = &service(&stage, "shown.js");
    let more = ["--base", "template", "--", node, file, port];
    let packages = ["examples/node/node_modules", "tests/services"];
    let packages = packages.map(|path| repository(path).display().to_string());
    let packages = packages.join(":");
    let with = |fresh| [environment, &[("FOR", fresh), ("NODE_PATH", &packages)]].concat();
    let mut recorder = run(&stage, "record", &with("20"), &more);
    recorder.wait_until_it_listens(stage.service_port);
    load(&stage, asked);
    recorder.interrupt().assert_code(0);
    for _ in 0..2 {
        let replayed = run(&stage, "replay", &with("1000000"), &[]).wait();
        let replayed = replayed.assert_code(0).stdout;
        assert!(replayed.contains("faithful"), "{replayed}");
    }
}

const NEXT: [&str; 3] = ["/list", "/page", "/together"];

#[test]
fn requests_see_in_caches_of_next_what_they_saw() {
    is_the_same("shown", &NEXT, &[]);
}

#[test]
fn requests_see_in_caches_of_packages_what_they_saw() {
    let ways = [
        "/kept/lru",
        "/kept/fetched",
        "/kept/copied",
        "/kept/written",
    ];
    is_the_same("shown-packages", &ways, &[]);
}

#[test]
fn requests_come_to_the_workers_of_a_cluster_that_they_came_to() {
    is_the_same("shown-cluster", &NEXT, &[("CLUSTER", "1")]);
}

const WAYS: [&str; 4] = ["locmem", "simple", "function", "method"];

/// Eight clients, in a process of eight threads: lists are kept for 20 ms, or until a
/// request forgets them. In a replay they are kept without end.
#[test]
fn requests_see_in_caches_of_python_what_they_saw() {
    let stage = inside_extension::stage("shown-python", NOTES, &[]);
    let bind = format!("127.0.0.1:{}", stage.service_port);
    let gunicorn = inside_loops::python("gunicorn");
    let folder = repository("tests/services").display().to_string();
    let service = [&*gunicorn, "shown:app", "--chdir", &folder, "--bind", &bind];
    let threads = ["--workers", "1", "--threads", "8"];
    let more = [&["--base", "template", "--"], &service[..], &threads].concat();
    let mut recorder = run(&stage, "record", &[("FOR", "0.02")], &more);
    recorder.wait_until_it_listens(stage.service_port);
    let ask = |number: usize| {
        let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
        for round in 0..3 * WAYS.len() {
            let way = WAYS[(number + round) % WAYS.len()];
            let (list, note) = (format!("/{way}"), format!("/{way}/n{number}"));
            for (method, target) in [("GET", &list), ("POST", &note), ("GET", &list)] {
                let answer = client.send(method, target, None).unwrap();
                assert_eq!(answer.status, 200, "{target}: {}", answer.text());
            }
        }
    };
    std::thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || ask(number));
        }
    });
    recorder.interrupt().assert_code(0);
    for _ in 0..2 {
        let replayed = run(&stage, "replay", &[("FOR", "1000000")], &[]).wait();
        let replayed = replayed.assert_code(0).stdout;
        assert!(replayed.contains("faithful"), "{replayed}");
    }
}
