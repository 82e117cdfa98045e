//! `record -- COMMAND` of services in several languages, with logins, at READ COMMITTED: what their
//! runtimes draw and read of the clock is the same in a replay, after sessions have expired.

use std::process::Command;
use std::time::{Duration, Instant};

use hindcast_tests::http::{Client, Response};
use hindcast_tests::{Process, Stage, install, repository};

use super::{inside_extension, inside_loops};

pub const SCHEMA: &str = "CREATE TABLE session (token text PRIMARY KEY, csrf text NOT NULL, person text NOT NULL, expires timestamptz NOT NULL);
    CREATE TABLE counter (n int NOT NULL); INSERT INTO counter VALUES (0);
    CREATE TABLE note (id uuid PRIMARY KEY, person text NOT NULL, text text NOT NULL, number int NOT NULL, written timestamptz NOT NULL)";

const CLIENTS: usize = 8;
const LOGINS: usize = 2;
const NOTES: usize = 4;
pub const REQUESTS: usize = CLIENTS * LOGINS * (NOTES + 2);
/// Of a session.
pub const LIFETIME: Duration = Duration::from_secs(10);

/// Sends a request with these headers.
trait Ask: FnMut(&str, &str, &[(&str, &str)]) -> Response {}
impl<F: FnMut(&str, &str, &[(&str, &str)]) -> Response> Ask for F {}

fn write_notes(mut send: impl Ask, person: &str) {
    for login in 0..LOGINS {
        let answer = send("POST", &format!("/login/{person}-{login}"), &[]);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let cookie = answer.headers["set-cookie"].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let csrf = answer.json()["csrf"].as_str().unwrap().to_owned();
        let mut ask = |method, target: &str| {
            let headers = [("cookie", cookie.as_str()), ("x-csrf", csrf.as_str())];
            let answer = send(method, target, &headers);
            assert_eq!(answer.status, 200, "{target}: {}", answer.text());
            answer.json()
        };
        for note in 0..NOTES {
            ask("POST", &format!("/note/{person}-{note}"));
        }
        assert_eq!(ask("GET", "/notes").as_array().unwrap().len(), NOTES);
    }
}

/// Clients at a time, each by a connection of its own.
pub fn load<A>(client: impl Fn() -> A + Sync)
where
    A: FnMut(&str, &str, &[(&str, &str)]) -> Response,
{
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let client = &client;
            scope.spawn(move || write_notes(client(), &format!("person-{number}")));
        }
    });
}

pub fn surroundings(command: &mut Command, stage: &Stage) {
    command
        .env("NODE_PATH", repository("examples/node/node_modules"))
        .env("DATABASE_URL", stage.database_url())
        .env("LIFETIME", LIFETIME.as_secs().to_string());
}

/// Clients at a time, each of which logs in, writes notes and reads them; then a replay when the
/// sessions are too old.
fn is_recorded_and_replayed(name: &str, service: impl Fn(&Stage) -> Vec<String>) {
    let stage = inside_extension::stage(name, SCHEMA, &[]);
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command.arg(stage.trace()).arg("--").args(service(&stage));
    surroundings(&mut command, &stage);
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    let address = format!("127.0.0.1:{}", stage.service_port);
    load(|| {
        let mut client = Client::new(address.clone());
        move |method: &str, target: &str, headers: &[(&str, &str)]| {
            client.send_with(method, target, headers, None).unwrap()
        }
    });
    let expired = Instant::now() + LIFETIME;
    let recorded = recorder.interrupt().assert_code(0).stderr;
    let requests = format!("{REQUESTS} requests");
    assert!(recorded.contains(&requests), "{recorded}");
    assert!(recorded.contains("(0 ghosts)"), "{recorded}");
    // The clock of the replayed service is back where it was.
    std::thread::sleep(expired.saturating_duration_since(Instant::now()));
    let mut command = stage.hindcast(&["replay", "--trace"]);
    command
        .arg(stage.trace())
        .env("HINDCAST_POSTGRES", stage.database_url());
    surroundings(&mut command, &stage);
    let replayed = Process::start("replay", command, stage.folder()).wait();
    let replayed = replayed.assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");
    assert!(replayed.contains(&requests), "{replayed}");
}

#[test]
fn node_draws_and_reads_in_a_replay_what_it_did() {
    install("examples/node/run.sh", &["--install"]);
    is_recorded_and_replayed("notes-node", |stage| {
        let service = repository("tests/services/notes.js");
        let port = stage.service_port.to_string();
        vec!["node".into(), service.display().to_string(), port]
    });
}

/// Of blocks of random bytes something was used before, in the replay.
#[test]
fn ids_of_packages_in_node_are_the_same_wherever_their_blocks_begin() {
    install("tests/services/ids/install.sh", &[]);
    is_the_same_if_filled("ids-node", &["node", "ids/ids.js"], &[]);
}

/// In a bundle the packages have no name.
#[test]
fn ids_of_packages_in_a_bundle_of_node_are_the_same_wherever_their_blocks_begin() {
    install("tests/services/ids/install.sh", &[]);
    install("examples/node/run.sh", &["--install"]);
    let bundle = "ids/node_modules/.bundled/ids.mjs";
    inside_loops::bundle_of(
        &repository("tests/services/ids/ids.js"),
        &repository("tests/services").join(bundle),
        &["--format=esm", "--external:@node-rs/argon2"],
    );
    is_the_same_if_filled("ids-node-bundle", &["node", bundle], &[]);
}

/// Nobody fills the caches in the replay, or uses a class of the runtime first. What a request drew
/// and read for that moves nothing that it draws and reads for itself.
#[test]
fn who_fills_a_cache_draws_and_reads_what_it_did_besides_in_node() {
    is_the_same_if_filled("first-node", &["node", "first.js"], &[]);
}

#[test]
fn who_fills_a_cache_draws_and_reads_what_it_did_besides_in_threads_of_python() {
    install("tests/services/install.sh", &[]);
    is_the_same_if_filled(
        "first-threads",
        &[".venv/bin/python", "first.py"],
        &["threads"],
    );
}

/// A file `*.pth` of a package has code run when Python starts, before the recorder's own: here
/// such as takes the functions that draw.
#[test]
fn it_does_so_where_a_package_is_loaded_before_all_else_in_python() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(folder.path())
        .status();
    assert!(made.unwrap().success());
    let versions = folder.path().join("lib").read_dir().unwrap();
    let version = versions.map(|entry| entry.unwrap().path()).next().unwrap();
    let early = version.join("site-packages/early.pth");
    std::fs::write(early, "import random, secrets, socketserver\n").unwrap();
    let python = folder.path().join("bin/python").display().to_string();
    is_the_same_if_filled("first-early", &[&python, "first.py"], &["threads"]);
}

#[test]
fn who_fills_a_cache_draws_and_reads_what_it_did_besides_in_a_loop_of_python() {
    install("tests/services/install.sh", &[]);
    is_the_same_if_filled("first-loop", &[".venv/bin/python", "first.py"], &["loop"]);
}

#[test]
fn who_fills_a_cache_reads_what_it_did_besides_in_ruby() {
    is_the_same_if_filled("first-ruby", &["ruby", "first.rb"], &[]);
}

/// What the recorded service has put into it is still there.
#[test]
fn files_of_a_cache_are_a_replays_own_in_ruby() {
    let stage = Stage::new("kept-files", "");
    let service = format!(
        "exec ruby {} {}",
        repository("tests/services/kept.rb").display(),
        stage.service_port
    );
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command
        .arg(stage.trace())
        .args(["--", "sh", "-c", &service])
        .env("DATABASE_URL", stage.database_url())
        .env("KEPT", stage.folder().join("kept"));
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    for found in ["false ", "true "] {
        let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
        let answer = client.send("GET", "/", None).unwrap().text();
        assert!(answer.starts_with(found), "{answer}");
    }
    recorder.interrupt().assert_code(0);
    for _ in 0..2 {
        let replayed = super::inside::replay(&stage, &[]).assert_code(0).stdout;
        assert!(replayed.contains("faithful"), "{replayed}");
    }
}

#[test]
fn who_fills_a_cache_reads_what_it_did_besides_in_perl() {
    is_the_same_if_filled("first-perl", &["perl", "first.pl"], &[]);
}

#[test]
fn who_fills_a_cache_reads_what_it_did_besides_in_php() {
    is_the_same_if_filled("first-php", &["php", "first.php"], &[]);
}

#[test]
fn who_fills_a_cache_draws_and_reads_what_it_did_besides_in_java() {
    is_the_same_if_filled("first-java", &["java", "First.java"], &[]);
}

/// How long something took, and since when the service runs.
#[test]
fn what_code_in_python_measures_is_what_it_measured() {
    is_the_same_if_filled("measured", &["python3", "measured.py"], &[]);
}

/// Of a service in `tests/services`, which is given its port and more. In the replay it is told
/// that it is to have been used before it listens.
fn is_the_same_if_filled(name: &str, service: &[&str], more: &[&str]) {
    let stage = Stage::new(name, "");
    let services = repository("tests/services");
    let mut words = vec!["exec".to_owned()];
    words.extend(service.iter().map(|word| match services.join(word) {
        file if file.exists() => file.display().to_string(),
        _ => (*word).to_owned(),
    }));
    words.push(stage.service_port.to_string());
    words.extend(more.iter().map(|word| (*word).to_owned()));
    let service = words.join(" ");
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command
        .arg(stage.trace())
        .args(["--", "sh", "-c", &service])
        .env("DATABASE_URL", stage.database_url());
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    let ask = |_| {
        let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
        client.send("GET", "/", None).unwrap().text()
    };
    let answers: std::collections::BTreeSet<_> = (0..3).map(ask).collect();
    assert_eq!(answers.len(), 3);
    recorder.interrupt().assert_code(0);
    let mut command = stage.hindcast(&["replay", "--trace"]);
    command
        .arg(stage.trace())
        .args(["--app", &format!("{service} filled")])
        .env("HINDCAST_POSTGRES", stage.database_url());
    let replayed = Process::start("replay", command, stage.folder()).wait();
    let replayed = replayed.assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");
}

/// Each product is read by the same statement, all of a request at a time. The replayed service
/// asks for them in another order, so only their values tell which read is which. Prices may be
/// raised meanwhile where it is recorded what each statement saw.
fn reads_at_a_time_are_known_by_their_values(stage: &Stage, raised: bool) {
    install("examples/node/run.sh", &["--install"]);
    let service = repository("tests/services/products.js");
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command
        .arg(stage.trace())
        .args(["--", "node", &service.display().to_string()])
        .arg(stage.service_port.to_string());
    surroundings(&mut command, stage);
    command.env("ORDER", "forwards");
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    let ways = ["bound", "prepared", "literal", "transaction"];
    std::thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
                let mut send = |method, target: &str| {
                    let answer = client.send(method, target, None).unwrap();
                    assert_eq!(answer.status, 200, "{target}: {}", answer.text());
                };
                for way in ways.iter().cycle().skip(number).take(2 * ways.len()) {
                    if raised {
                        send("POST", "/raise");
                    }
                    send("GET", &format!("/{way}"));
                }
            });
        }
    });
    let recorded = recorder.interrupt().assert_code(0).stderr;
    let requests = if raised { "64 requests" } else { "32 requests" };
    assert!(recorded.contains(requests), "{recorded}");
    let mut command = stage.hindcast(&["replay", "--trace"]);
    command
        .arg(stage.trace())
        .env("HINDCAST_POSTGRES", stage.database_url());
    surroundings(&mut command, stage);
    command.env("ORDER", "backwards");
    let replayed = Process::start("replay", command, stage.folder()).wait();
    let replayed = replayed.assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");
    assert!(replayed.contains(requests), "{replayed}");
}

const PRODUCTS: &str =
    "CREATE TABLE product (id int PRIMARY KEY, name text NOT NULL, price int NOT NULL);
    INSERT INTO product SELECT id, 'product ' || id, 100 * id FROM generate_series(1, 5) AS id";

#[test]
fn equal_reads_of_one_request_come_in_another_order_through_the_gateway() {
    reads_at_a_time_are_known_by_their_values(&Stage::new("products", PRODUCTS), false);
}

#[test]
fn equal_reads_of_one_request_come_in_another_order_straight_to_the_database() {
    let stage = inside_extension::stage("products-straight", PRODUCTS, &[]);
    reads_at_a_time_are_known_by_their_values(&stage, true);
}

#[test]
fn an_event_loop_in_python_draws_and_reads_in_a_replay_what_it_did() {
    install("tests/services/install.sh", &[]);
    is_recorded_and_replayed("notes-asyncio", |stage| {
        let python = repository("tests/services/.venv/bin/python");
        let service = repository("tests/services/notes_async.py");
        let port = stage.service_port.to_string();
        vec![
            python.display().to_string(),
            service.display().to_string(),
            port,
        ]
    });
}

#[test]
fn ruby_draws_and_reads_in_a_replay_what_it_did() {
    is_recorded_and_replayed("notes-ruby", |stage| {
        let bind = format!("tcp://127.0.0.1:{}", stage.service_port);
        let service = repository("tests/services/notes.ru");
        let service = service.display().to_string();
        let command = ["puma", "--threads", "20:20", "--bind", &bind, &service];
        command.map(str::to_owned).to_vec()
    });
}

/// Which of the two asks first is otherwise each time.
fn work_that_is_handed_over_draws_by_itself(name: &str, service: impl Fn(u16) -> Vec<String>) {
    let stage = Stage::new(name, "");
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command
        .arg(stage.trace())
        .arg("--")
        .args(service(stage.service_port))
        .env("DATABASE_URL", stage.database_url());
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    for _ in 0..4 {
        let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
        assert_eq!(client.send("GET", "/", None).unwrap().status, 200);
    }
    recorder.interrupt().assert_code(0);
    let mut command = stage.hindcast(&["replay", "--trace"]);
    command
        .arg(stage.trace())
        .env("HINDCAST_POSTGRES", stage.database_url());
    let replayed = Process::start("replay", command, stage.folder()).wait();
    let replayed = replayed.assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");
}

#[test]
fn work_that_a_request_has_posted_draws_by_itself_in_ruby() {
    work_that_is_handed_over_draws_by_itself("apart-ruby", |port| {
        let bind = format!("tcp://127.0.0.1:{port}");
        let service = repository("tests/services/apart.ru").display().to_string();
        ["puma", "--bind", &bind, &service]
            .map(str::to_owned)
            .to_vec()
    });
}

#[test]
fn work_that_a_request_has_handed_to_threads_draws_by_itself_in_python() {
    work_that_is_handed_over_draws_by_itself("apart-python", |port| {
        let service = repository("tests/services/apart.py").display().to_string();
        ["python3", &service, &port.to_string()]
            .map(str::to_owned)
            .to_vec()
    });
}

/// PHP seeds its generators in each request.
#[test]
fn php_draws_and_reads_in_a_replay_what_it_did() {
    draws_and_reads_what_it_did("draws-php", |port| {
        let service = repository("tests/services/draws.php");
        let address = format!("127.0.0.1:{port}");
        let command = ["php", "-S", &address, &service.display().to_string()];
        command.map(str::to_owned).to_vec()
    });
}

#[test]
fn java_draws_and_reads_in_a_replay_what_it_did() {
    draws_and_reads_what_it_did("draws-java", |port| {
        let service = repository("tests/services/Draws.java");
        let command = ["java", &service.display().to_string(), &port.to_string()];
        command.map(str::to_owned).to_vec()
    });
}

#[test]
fn a_pool_of_java_works_for_the_requests_that_a_loop_hands_it() {
    draws_and_reads_what_it_did("draws-java-loop", |port| {
        let service = repository("tests/services/Draws.java");
        let command = [
            "java",
            &service.display().to_string(),
            &port.to_string(),
            "loop",
        ];
        command.map(str::to_owned).to_vec()
    });
}

/// One thread reads several requests, each of which has its answer from another; a part of it is
/// computed by a third.
#[test]
fn pools_that_are_made_after_javas_work_for_the_requests_that_they_are_handed() {
    what_is_handed_over_draws_what_it_did("handed-pools", "java", "pools");
}

/// Into the folder of the stage. Newer versions run no file whose place is not that of its package.
pub fn compile(stage: &Stage, files: &[&str]) {
    let services = repository("tests/services");
    let made = Command::new("javac")
        .arg("-d")
        .arg(stage.folder())
        .args(files.iter().map(|file| services.join(file)))
        .status();
    assert!(made.expect("javac is there").success());
}

/// The first of those here that has them.
pub fn java_with_threads_of_its_own() -> Option<String> {
    let machines = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten();
    let has_them = |java: &std::path::PathBuf| {
        let said = Command::new(java).arg("-version").output();
        let said = said.map(|said| String::from_utf8_lossy(&said.stderr).into_owned());
        let version = said.ok()?.split('"').nth(1)?.split('.').next()?.to_owned();
        version.parse().ok().filter(|&version: &u32| version >= 21)
    };
    let all = machines.filter_map(|folder| Some(folder.ok()?.path().join("bin/java")));
    let first = all.filter(|java| has_them(java).is_some()).min();
    first.map(|java| java.display().to_string())
}

#[test]
fn threads_that_java_runs_by_itself_work_for_requests() {
    match java_with_threads_of_its_own() {
        Some(java) => {
            what_is_handed_over_draws_what_it_did("handed-virtual", &java, "virtual");
            // What was recorded before into the same trace has given numbers of its own.
            let stage = Stage::new("handed-again", "");
            let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
            command.arg(stage.trace()).args(["--", &java]);
            handed(&mut command, &stage, "virtual");
            command.env("DATABASE_URL", stage.database_url());
            let mut before = Process::start("before", command, stage.folder());
            before.wait_until_it_listens(stage.service_port);
            before.interrupt().assert_code(0);
            is_drawn_again(&stage, &java, "virtual");
        }
        None => eprintln!("not tried: no Java here has virtual threads"),
    }
}

/// A loop serves all requests, and goes on with each when the database has answered.
#[test]
fn a_loop_of_java_goes_on_for_the_request_that_asked() {
    let schema = "CREATE TABLE note (id uuid, drawn uuid, written timestamptz)";
    let stage = inside_extension::stage("looped-java", schema, &[]);
    is_replayed_as_recorded(&stage, |command| {
        command
            .args(["java"])
            .arg(repository("tests/services/Looped.java"))
            .arg(stage.service_port.to_string());
    });
}

/// The one before it on its connection has its answer, and is not over.
#[test]
fn a_request_that_another_one_of_java_lets_begin_works_for_itself() {
    let stage = Stage::new("queued-java", "");
    compile(&stage, &["Queued.java"]);
    let clients = |address: &str| {
        let mut client = Client::new(address.to_owned());
        for _ in 0..NOTES {
            assert_eq!(client.send("GET", "/", None).unwrap().status, 200);
        }
    };
    clients_are_replayed_as_recorded(&stage, clients, |command| {
        command
            .args(["java", "-cp"])
            .arg(stage.folder())
            .arg("io.vertx.core.http.impl.Queued")
            .arg(stage.service_port.to_string());
    });
}

/// One thread works off a queue of what several requests have handed over.
#[test]
fn blocking_work_of_vertx_that_waits_in_a_queue_works_for_its_request() {
    let stage = Stage::new("blocking-java", "");
    compile(&stage, &["Blocking.java", "PoolMetrics.java"]);
    is_replayed_as_recorded(&stage, |command| {
        command
            .args(["java", "-cp"])
            .arg(stage.folder())
            .arg("io.vertx.core.impl.Blocking")
            .arg(stage.service_port.to_string());
    });
}

/// An actor works off messages of several requests, the latest first, and sends itself others.
#[test]
fn messages_of_an_actor_work_for_the_requests_that_sent_them() {
    let stage = Stage::new("actors-java", "");
    let files = ["ActorRef", "Envelope", "ActorCell", "Acting"];
    let files = files.map(|name| format!("pekko/{name}.java"));
    compile(&stage, &files.each_ref().map(String::as_str));
    is_replayed_as_recorded(&stage, |command| {
        command
            .args(["java", "-cp"])
            .arg(stage.folder())
            .arg("org.apache.pekko.actor.Acting")
            .arg(stage.service_port.to_string());
    });
}

fn what_is_handed_over_draws_what_it_did(name: &str, java: &str, way: &str) {
    is_drawn_again(&Stage::new(name, ""), java, way);
}

fn is_drawn_again(stage: &Stage, java: &str, way: &str) {
    is_replayed_as_recorded(stage, |command| {
        command.arg(java);
        handed(command, stage, way);
    });
}

fn handed(command: &mut Command, stage: &Stage, way: &str) {
    command
        .arg(repository("tests/services/Handed.java"))
        .arg(stage.service_port.to_string())
        .arg(way);
}

/// Clients at a time, each of which sends requests by a connection each.
fn is_replayed_as_recorded(stage: &Stage, service: impl FnOnce(&mut Command)) {
    let client = |address: &str| {
        for _ in 0..NOTES {
            let mut client = Client::new(address.to_owned());
            assert_eq!(client.send("GET", "/", None).unwrap().status, 200);
        }
    };
    clients_are_replayed_as_recorded(stage, client, service);
}

/// Each client sends a number of requests.
fn clients_are_replayed_as_recorded(
    stage: &Stage,
    client: impl Fn(&str) + Sync,
    service: impl FnOnce(&mut Command),
) {
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command
        .arg(stage.trace())
        .arg("--")
        .env("DATABASE_URL", stage.database_url());
    service(&mut command);
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| client(&format!("127.0.0.1:{}", stage.service_port)));
        }
    });
    let recorded = recorder.interrupt().assert_code(0).stderr;
    let requests = format!("{} requests", CLIENTS * NOTES);
    assert!(recorded.contains(&requests), "{recorded}");
    assert!(
        !recorded.contains(" ghost") || recorded.contains("(0 ghosts)"),
        "{recorded}"
    );
    let mut command = stage.hindcast(&["replay", "--trace"]);
    command
        .arg(stage.trace())
        .env("HINDCAST_POSTGRES", stage.database_url())
        .env("DATABASE_URL", stage.database_url());
    let replayed = Process::start("replay", command, stage.folder()).wait();
    let replayed = replayed.assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");
}

/// The service lists ways to draw and to read the clock, and answers each.
fn draws_and_reads_what_it_did(name: &str, service: impl Fn(u16) -> Vec<String>) {
    let stage = Stage::new(name, "");
    let address = format!("127.0.0.1:{}", stage.service_port);
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command
        .arg(stage.trace())
        .arg("--")
        .args(service(stage.service_port))
        .env("DATABASE_URL", stage.database_url());
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    let ask = |target: &str| {
        let answer = Client::new(address.clone()).send("GET", target, None);
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        answer.json()
    };
    let ways = ask("/");
    let ways = ways.as_array().unwrap();
    let drawn = |_| -> Vec<_> {
        let each = ways
            .iter()
            .map(|way| ask(&format!("/{}", way.as_str().unwrap())));
        each.collect()
    };
    let [first, second] = [0, 1].map(drawn);
    for ((way, first), second) in ways.iter().zip(&first).zip(&second) {
        assert_ne!(first, second, "{way}");
    }
    let recorded = recorder.interrupt().assert_code(0).stderr;
    let requests = format!("{} requests", 1 + 2 * ways.len());
    assert!(recorded.contains(&requests), "{recorded}");
    let mut command = stage.hindcast(&["replay", "--trace"]);
    command
        .arg(stage.trace())
        .env("HINDCAST_POSTGRES", stage.database_url())
        .env("DATABASE_URL", stage.database_url());
    let replayed = Process::start("replay", command, stage.folder()).wait();
    let replayed = replayed.assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");
    assert!(replayed.contains(&requests), "{replayed}");
}
