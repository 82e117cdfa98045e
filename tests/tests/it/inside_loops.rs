//! `record -- COMMAND` of services with an event loop: every transaction is its request's.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hindcast_tests::http::Client;
use hindcast_tests::{Process, Stage, install, program, repository};
use serde_json::Value;

use super::inside_extension;

const SCHEMA: &str = "CREATE TABLE mark (name text NOT NULL, step int NOT NULL)";
const CLIENTS: usize = 10;
const ROUNDS: usize = 12;
pub fn python(program: &str) -> String {
    install("tests/services/install.sh", &[]);
    let folder = repository("tests/services/.venv/bin");
    folder.join(program).display().to_string()
}

/// Each client asks each way, with a name that no other request has.
fn load(stage: &Stage, ways: &[&str]) {
    let address = format!("127.0.0.1:{}", stage.service_port);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let address = address.clone();
            scope.spawn(move || {
                let mut client = Client::new(address);
                for round in 0..ROUNDS {
                    let way = ways[(number + round) % ways.len()];
                    let target = format!("/{way}/{way}-{number}-{round}");
                    let answer = client.send("POST", &target, None).unwrap();
                    assert_eq!(answer.status, 200, "{target}: {}", answer.text());
                }
            });
        }
    });
}

fn shown(stage: &Stage, arguments: &[&str]) -> String {
    let output = Command::new(program("hindcast"))
        .args(arguments)
        .arg("--trace")
        .arg(stage.trace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The same in three pieces each, so one thread may read the first and another the last.
fn load_in_pieces(stage: &Stage) {
    let connect = || TcpStream::connect(("127.0.0.1", stage.service_port)).unwrap();
    let client = |number: usize| {
        let mut stream = connect();
        stream.set_nodelay(true).unwrap();
        for round in 0..ROUNDS {
            let name = format!("pieces-{number}-{round}");
            for piece in [
                "POST /pieces",
                &format!("/{name} HTTP/1.1\r\nHost: x\r\n"),
                "Content-Length: 0\r\n\r\n",
            ] {
                stream.write_all(piece.as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(4));
            }
            read_answer(&mut stream, &name);
        }
    };
    by_clients(client);
}

/// Reads until the answer has the request's name in it.
fn read_answer(stream: &mut TcpStream, name: &str) {
    let (mut answer, mut bytes) = (String::new(), [0; 4096]);
    while !answer.contains(name) {
        let length = stream.read(&mut bytes).unwrap();
        assert!(length > 0, "{name}: {answer}");
        answer += &String::from_utf8_lossy(&bytes[..length]);
    }
}

/// All clients at a time, each with its number.
fn by_clients(client: impl Fn(usize) + Sync) {
    let client = &client;
    std::thread::scope(|scope| {
        (0..CLIENTS).for_each(|number| {
            scope.spawn(move || client(number));
        });
    });
}

/// Bodies that come when their requests have been answered, together with the next request.
fn load_with_late_bodies(stage: &Stage) {
    let client = |number: usize| {
        let mut stream = TcpStream::connect(("127.0.0.1", stage.service_port)).unwrap();
        for round in 0..ROUNDS {
            let name = format!("late-{number}-{round}");
            let late = if round == 0 { "" } else { "{}" };
            let head =
                format!("{late}POST /loop/{name} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            read_answer(&mut stream, &name);
        }
        stream.write_all(b"{}").unwrap();
    };
    by_clients(client);
}

/// Bodies that come behind their heads.
fn load_with_bodies_apart(stage: &Stage) {
    let client = |number: usize| {
        let mut stream = TcpStream::connect(("127.0.0.1", stage.service_port)).unwrap();
        stream.set_nodelay(true).unwrap();
        for round in 0..ROUNDS {
            let name = format!("whole-{number}-{round}");
            let head =
                format!("POST /whole/{name} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(4));
            stream.write_all(b"{}").unwrap();
            read_answer(&mut stream, &name);
        }
    };
    by_clients(client);
}

/// Who wrote, by the database: the names in the rows of each transaction.
fn names_in_the_database(stage: &Stage) -> BTreeMap<u64, BTreeSet<String>> {
    let rows = stage.sql("SELECT xmin, name FROM mark");
    let mut names: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for row in rows.lines() {
        let (xid, name) = row.split_once('|').unwrap();
        let of = names.entry(xid.parse().unwrap()).or_default();
        of.insert(name.to_owned());
    }
    names
}

/// Each transaction that wrote is the request's that bears the name in its rows.
fn assert_all_are_right(stage: &Stage) {
    let mut names = names_in_the_database(stage);
    let requests = shown(stage, &["ls", "--json", "--limit", "0"]);
    for line in requests.lines() {
        let request: Value = serde_json::from_str(line).unwrap();
        let (number, target) = (&request["request"], request["target"].as_str().unwrap());
        let own = target.rsplit('/').next().unwrap();
        let shown = shown(stage, &["show", "--json", number.as_str().unwrap()]);
        let shown: Value = serde_json::from_str(&shown).unwrap();
        for transaction in shown["transactions"].as_array().unwrap() {
            let xid = transaction["xid"].as_u64();
            if let Some(written) = xid.and_then(|xid| names.remove(&xid)) {
                assert_eq!(written, BTreeSet::from([own.to_owned()]), "{transaction}");
            }
        }
    }
    assert!(names.is_empty(), "belong to no request: {names:?}");
}

pub fn is_recorded_and_replayed(
    name: &str,
    service: impl Fn(&Stage) -> Vec<String>,
    ways: &[&str],
) {
    let stage = Stage::new(name, SCHEMA);
    let service = service(&stage);
    is_recorded(&stage, &service, || load(&stage, ways));
    is_replayed(&stage);
}

fn is_recorded(stage: &Stage, service: &[String], load: impl FnOnce()) {
    let mut recorder = stage.hindcast(&["record", "--base", "template", "--trace"]);
    recorder
        .arg(stage.trace())
        .arg("--")
        .args(service)
        .env("NODE_PATH", repository("examples/node/node_modules"))
        .env("PYTHONPATH", repository("tests/services"))
        .env("DATABASE_URL", stage.database_url());
    let mut recorder = Process::start("record", recorder, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    load();
    let recorded = recorder.interrupt().assert_code(0);
    let requests = format!("{} requests", CLIENTS * ROUNDS);
    assert!(recorded.stderr.contains(&requests), "{}", recorded.stderr);
    assert!(
        recorded.stderr.contains("(0 ghosts)"),
        "{}",
        recorded.stderr
    );
    assert!(
        recorded.stderr.contains("Node, Bun, Python, Ruby, Perl"),
        "{}",
        recorded.stderr
    );
    assert_all_are_right(stage);
}

/// Its pools are smaller than what is in flight.
fn is_replayed(stage: &Stage) {
    let mut replay = stage.hindcast(&["replay", "--trace"]);
    replay
        .arg(stage.trace())
        .env("HINDCAST_POSTGRES", stage.database_url())
        .env("DATABASE_URL", stage.database_url());
    let replayed = Process::start("replay", replay, stage.folder())
        .wait()
        .assert_code(0);
    assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);
    let requests = format!("{} requests", CLIENTS * ROUNDS);
    assert!(replayed.stdout.contains(&requests), "{}", replayed.stdout);
}

const WAYS_IN_PYTHON: [&str; 7] = [
    "loop", "gather", "psycopg", "thread", "executor", "after", "stream",
];

fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn uvicorn(stage: &Stage, more: &[&str]) -> Vec<String> {
    let (uvicorn, port) = (python("uvicorn"), stage.service_port.to_string());
    let own = [&uvicorn, "marks:app", "--no-access-log", "--port", &port];
    command(&[&own, more].concat())
}

#[test]
fn a_loop_of_asyncio_with_threads_is_known() {
    let more = ["--loop", "asyncio", "--http", "h11"];
    is_recorded_and_replayed("asyncio", |stage| uvicorn(stage, &more), &WAYS_IN_PYTHON);
}

#[test]
fn a_body_that_comes_with_the_next_request_is_not_its_beginning() {
    let stage = Stage::new("late", SCHEMA);
    let service = uvicorn(&stage, &["--loop", "asyncio", "--http", "h11"]);
    is_recorded(&stage, &service, || load_with_late_bodies(&stage));
    is_replayed(&stage);
}

#[test]
fn loops_of_uvloop_in_two_processes_are_known() {
    let more = ["--loop", "uvloop", "--http", "httptools", "--workers", "2"];
    is_recorded_and_replayed("uvloop", |stage| uvicorn(stage, &more), &WAYS_IN_PYTHON);
}

#[test]
fn a_server_of_streams_is_known() {
    let hypercorn = |stage: &Stage| {
        let bind = format!("127.0.0.1:{}", stage.service_port);
        let hypercorn = python("hypercorn");
        command(&[&hypercorn, "marks:app", "--workers", "2", "--bind", &bind])
    };
    is_recorded_and_replayed("streams", hypercorn, &WAYS_IN_PYTHON);
}

fn granian(stage: &Stage, more: &[&str]) -> Vec<String> {
    let (granian, port) = (python("granian"), stage.service_port.to_string());
    let own = [&granian, "--workers", "2", "--port", &port];
    command(&[&own, more].concat())
}

/// Threads in Rust read requests and pass them to a loop in Python. Each process has a listener of
/// its own.
#[test]
fn requests_that_a_server_in_rust_passes_to_a_loop_are_known() {
    let more = ["--interface", "asgi", "marks:app"];
    is_recorded_and_replayed("granian", |stage| granian(stage, &more), &WAYS_IN_PYTHON);
}

/// Likewise to threads.
#[test]
fn requests_that_a_server_in_rust_passes_to_threads_are_known() {
    let more = [
        "--interface",
        "wsgi",
        "--blocking-threads",
        "4",
        "marks_wsgi:app",
    ];
    is_recorded_and_replayed("granian-wsgi", |stage| granian(stage, &more), &["threads"]);
}

/// Coroutines of which a server in Rust was told, in one process and in two.
#[test]
fn functions_that_a_server_in_rust_calls_are_known() {
    for processes in ["1", "2"] {
        let robyn = |stage: &Stage| {
            let service = script(stage, "marks_robyn.py");
            [service, command(&[processes])].concat()
        };
        let name = format!("robyn-{processes}");
        is_recorded_and_replayed(&name, robyn, &["loop"]);
    }
}

fn script(stage: &Stage, name: &str) -> Vec<String> {
    let service = repository("tests/services").join(name);
    let (service, port) = (service.display().to_string(), stage.service_port);
    command(&[&python("python"), &service, &port.to_string()])
}

#[test]
fn handlers_of_tornado_are_known() {
    let tornado = |stage: &Stage| script(stage, "marks_tornado.py");
    is_recorded_and_replayed("tornado", tornado, &["transaction", "gather"]);
}

/// A loop stands still while a driver waits for the database, which in a replay waits for another
/// request of the same loop.
#[test]
fn loops_of_two_processes_that_wait_for_drivers_are_known() {
    let service = |stage: &Stage| {
        let (uvicorn, port) = (python("uvicorn"), stage.service_port.to_string());
        let app = "marks_blocking:app";
        let more = [
            "--no-access-log",
            "--loop",
            "uvloop",
            "--workers",
            "2",
            "--port",
            &port,
        ];
        command(&[&[&uvicorn, app], &more[..]].concat())
    };
    is_recorded_and_replayed("blocking-loops", service, &["psycopg2", "psycopg"]);
}

/// The same where there are no greenlets, in which a loop goes on.
#[test]
fn a_loop_that_waits_for_drivers_is_known_without_greenlets() {
    let service = |stage: &Stage| {
        let without = "import sys; sys.modules['greenlet'] = None; import uvicorn; uvicorn.main()";
        let (python, port) = (python("python"), stage.service_port.to_string());
        let app = ["marks_blocking:app", "--no-access-log", "--port", &port];
        command(&[&[&python, "-c", without], &app[..]].concat())
    };
    is_recorded_and_replayed("blocking-threads", service, &["psycopg2", "psycopg"]);
}

/// psycopg2 waits itself, and has given Python's lock away when it writes. The service has one
/// connection for all requests, so these go on in the order of the recording.
#[test]
fn a_driver_in_c_that_the_loop_waits_for_is_known() {
    let tornado = |stage: &Stage| script(stage, "marks_tornado.py");
    is_recorded_and_replayed("tornado-blocking", tornado, &["blocking"]);
}

/// As Jetty, which hands a request to a handler when its body has come.
#[test]
fn a_thread_that_reads_heads_of_others_before_a_body_has_come_is_known() {
    let stage = Stage::new("whole", SCHEMA);
    let service = script(&stage, "whole.py");
    is_recorded(&stage, &service, || load_with_bodies_apart(&stage));
    is_replayed(&stage);
}

#[test]
fn requests_between_whose_transactions_a_loop_serves_others_are_known() {
    let stage = Stage::new("tornado-interleaved", SCHEMA);
    let service = script(&stage, "marks_tornado.py");
    is_recorded(&stage, &service, || {
        load(&stage, &["interleaved", "transaction"])
    });
}

/// One task serves a connection from its beginning on.
#[test]
fn requests_of_sanic_are_known() {
    let sanic = |stage: &Stage| script(stage, "marks_sanic.py");
    is_recorded_and_replayed("sanic", sanic, &["transaction", "gather"]);
}

#[test]
fn coroutines_callbacks_and_threads_of_twisted_are_known() {
    let twisted = |stage: &Stage| script(stage, "marks_twisted.py");
    is_recorded_and_replayed("twisted", twisted, &["coroutine", "callbacks"]);
}

/// Requests of a later recorder have its number in theirs.
#[test]
fn requests_of_a_later_recording_in_a_trace_draw_as_those_of_the_first() {
    let stage = Stage::new("twisted-again", SCHEMA);
    let service = script(&stage, "marks_twisted.py");
    for _ in 0..2 {
        stage.sql("TRUNCATE mark");
        is_recorded(&stage, &service, || load(&stage, &["coroutine"]));
        is_replayed(&stage);
    }
}

/// A thread reads requests, and others answer them. Another port is there before the service's.
#[test]
fn threads_of_waitress_are_known_and_the_port_that_clients_asked() {
    let waitress = |stage: &Stage| {
        let metrics = stage.ingress_port.to_string();
        [script(stage, "marks_waitress.py"), vec![metrics]].concat()
    };
    let ways = ["transaction", "thread", "executor", "timer"];
    is_recorded_and_replayed("waitress", waitress, &ways);
}

/// One thread serves all, and its driver writes in C. What a request spawns is its own.
#[test]
fn greenlets_of_gevent_are_known() {
    let gunicorn = |stage: &Stage| {
        let bind = format!("127.0.0.1:{}", stage.service_port);
        let (gunicorn, app) = (python("gunicorn"), "marks_gevent:app");
        let own = [&gunicorn, app, "-k", "gevent", "-w", "2", "--bind", &bind];
        command(&own)
    };
    is_recorded_and_replayed("gevent", gunicorn, &["transaction", "spawned"]);
}

/// Two processes, of which each stands still where a handler waits for the database. Requests draw,
/// and go through tables of hashes.
#[test]
fn handlers_and_promises_of_mojolicious_are_known() {
    let mojolicious = |stage: &Stage| {
        let service = repository("tests/services/marks.pl").display().to_string();
        command(&["perl", &service, &stage.service_port.to_string()])
    };
    is_recorded_and_replayed("mojolicious", mojolicious, &["transaction", "promises"]);
}

/// Tasks run now in this thread and now in that one. They start others, which work for the same
/// request, and have others wait in threads.
#[test]
fn tasks_of_tokio_are_known() {
    let ways = ["task", "spawned", "blocking"];
    is_recorded_and_replayed("tokio", |stage| tokio(stage, &[]), &ways);
}

/// What they write is handed to a task of the connection, in the same thread or in another one.
#[test]
fn tasks_of_tokio_that_drive_a_connection_are_known() {
    is_recorded_and_replayed("tokio-driven", |stage| tokio(stage, &[]), &["pool"]);
    is_recorded_and_replayed("tokio-one", |stage| tokio(stage, &["one"]), &["pool"]);
}

/// Each thread reads requests itself, and runs tasks that work for it.
#[test]
fn threads_that_run_tasks_of_tokio_are_known() {
    is_recorded_and_replayed(
        "tokio-threads",
        |stage| tokio(stage, &["threads"]),
        &["pool"],
    );
}

/// One task reads a connection's requests, another one serves them, and a third one answers.
#[test]
fn tasks_of_tokio_that_serve_what_others_read_are_known() {
    let ways = ["task", "spawned", "blocking", "pool"];
    is_recorded_and_replayed("tokio-apart", |stage| tokio(stage, &["apart"]), &ways);
}

fn tokio(stage: &Stage, how: &[&str]) -> Vec<String> {
    let service = [env!("CARGO_BIN_EXE_marks"), &stage.service_port.to_string()].map(str::to_owned);
    [service.to_vec(), command(how)].concat()
}

fn node(stage: &Stage) -> Vec<String> {
    install("examples/node/run.sh", &["--install"]);
    let service = repository("tests/services/marks.js").display().to_string();
    command(&["node", &service, &stage.service_port.to_string()])
}

#[test]
fn node_with_a_pool_is_known() {
    let ways = ["transaction", "pool", "callbacks"];
    is_recorded_and_replayed("node", node, &ways);
}

/// In a bundle no driver has a name.
#[test]
fn node_with_a_pool_in_a_bundle_is_known() {
    let ways = ["transaction", "pool", "callbacks"];
    let bundled = |stage: &Stage| in_a_bundle(stage, node(stage));
    is_recorded_and_replayed("node-bundle", bundled, &ways);
}

#[test]
fn pools_of_others_in_node_are_as_large_as_a_replay_needs() {
    let ways = ["knex", "sequelize", "generic"];
    is_recorded_and_replayed("node-pools", node_with_pools, &ways);
    let bundled = |stage: &Stage| in_a_bundle(stage, node_with_pools(stage));
    is_recorded_and_replayed("node-pools-bundle", bundled, &ways);
}

fn node_with_pools(stage: &Stage) -> Vec<String> {
    let [node, _, port] = node(stage).try_into().unwrap();
    let service = repository("tests/services/marks_pools.js");
    vec![node, service.display().to_string(), port]
}

/// Minified, in one file.
fn in_a_bundle(stage: &Stage, service: Vec<String>) -> Vec<String> {
    let [node, service, port] = service.try_into().unwrap();
    let bundle = stage.folder().join("bundle.js");
    bundle_of(Path::new(&service), &bundle, &[]);
    vec![node, bundle.display().to_string(), port]
}

pub fn bundle_of(service: &Path, bundle: &Path, more: &[&str]) {
    let drivers = "pg-native pg-query-stream pg-hstore better-sqlite3 sqlite3 mysql mysql2 oracledb tedious mariadb";
    let externals = drivers.split(' ').map(|name| format!("--external:{name}"));
    let made = Command::new(repository("examples/node/node_modules/.bin/esbuild"))
        .args([
            "--bundle",
            "--minify",
            "--platform=node",
            "--log-level=error",
        ])
        .args(externals)
        .args(more)
        .arg(format!("--outfile={}", bundle.display()))
        .arg(service)
        .env("NODE_PATH", repository("examples/node/node_modules"))
        .status();
    assert!(made.unwrap().success());
}

/// A worker looks whether its primary has got the port that it asked for.
#[test]
fn processes_of_nodes_cluster_are_known() {
    let ways = ["transaction", "pool", "callbacks"];
    let in_cluster = |stage: &Stage| [command(&["env", "WORKERS=2"]), node(stage)].concat();
    is_recorded_and_replayed("node-cluster", in_cluster, &ways);
}

/// It is not replayed: with one connection for all requests, no request can be let go first.
#[test]
fn queries_in_the_queue_of_a_connection_are_known_in_node() {
    let stage = Stage::new("node-queue", SCHEMA);
    let ways = ["queue", "transaction", "pool"];
    is_recorded(&stage, &node(&stage), || load(&stage, &ways));
}

/// postgres.js puts queries of several requests on one connection, one behind the other.
fn postgres_js(stage: &Stage, environment: &str) -> Vec<String> {
    install("examples/node/run.sh", &["--install"]);
    let service = repository("tests/services/marks_postgres.js");
    let (service, port) = (service.display().to_string(), stage.service_port);
    command(&["env", environment, "node", &service, &port.to_string()])
}

pub const WAYS_OF_POSTGRES_JS: [&str; 4] = ["single", "several", "transaction", "rows"];

#[test]
fn queries_of_several_requests_on_one_connection_are_known_in_node() {
    let service = |stage: &Stage| postgres_js(stage, "MODULE=");
    is_recorded_and_replayed("postgres-js", service, &WAYS_OF_POSTGRES_JS);
}

#[test]
fn they_are_in_an_es_module_whose_sessions_go_straight_to_the_database() {
    let stage = inside_extension::stage("straight-postgres-js", SCHEMA, &[]);
    let service = postgres_js(&stage, "MODULE=1");
    is_recorded(&stage, &service, || load(&stage, &WAYS_OF_POSTGRES_JS));
    is_replayed(&stage);
}

#[test]
fn a_request_that_one_thread_of_puma_reads_and_another_answers_is_known() {
    let stage = Stage::new("puma", SCHEMA);
    let bind = format!("tcp://127.0.0.1:{}", stage.service_port);
    let app = repository("tests/services/marks.ru").display().to_string();
    let service = command(&["puma", "--threads", "20:20", "--bind", &bind, &app]);
    is_recorded(&stage, &service, || load_in_pieces(&stage));
    is_replayed(&stage);
}

#[test]
fn loops_whose_sessions_go_straight_to_the_database_are_known() {
    let more = ["--loop", "uvloop", "--http", "httptools"];
    let stage = inside_extension::stage("straight", SCHEMA, &[]);
    let service = uvicorn(&stage, &more);
    is_recorded(&stage, &service, || load(&stage, &WAYS_IN_PYTHON));

    let stage = inside_extension::stage("straight-node", SCHEMA, &[]);
    let ways = ["transaction", "pool", "queue", "callbacks"];
    is_recorded(&stage, &node(&stage), || load(&stage, &ways));
}
