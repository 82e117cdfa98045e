//! What Node's stacks show and tell is the same in a replay.

use hindcast_tests::http::Client;
use hindcast_tests::{Process, Stage, install, repository};

const NAMES: [&str; 3] = ["one", "two", "three"];

/// The service, in which requests of this name wait.
fn service(stage: &Stage, waiting: &str) -> Vec<String> {
    let file = repository("tests/services/stacks.js").display().to_string();
    let port = stage.service_port.to_string();
    ["node", &file, &port, waiting].map(str::to_owned).to_vec()
}

fn run(stage: &Stage, what: &str, more: &[String]) -> Process {
    let mut command = stage.hindcast(&[what, "--trace"]);
    command
        .arg(stage.trace())
        .args(more)
        .env("NODE_PATH", repository("examples/node/node_modules"))
        .env("DATABASE_URL", stage.database_url())
        .env("HINDCAST_POSTGRES", stage.database_url());
    Process::start(what, command, stage.folder())
}

/// Returns what the requests were answered.
fn record(stage: &Stage, requests: &[(&str, &str)]) -> Vec<String> {
    install("examples/node/run.sh", &["--install"]);
    let own = ["--base", "template", "--"].map(str::to_owned);
    let mut recorder = run(
        stage,
        "record",
        &[own.to_vec(), service(stage, NAMES[0])].concat(),
    );
    recorder.wait_until_it_listens(stage.service_port);
    let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
    let mut send = |(method, path): &(&str, &str)| client.send(method, path, None).unwrap();
    let answers = requests.iter().map(|request| send(request).text());
    let answers: Vec<String> = answers.collect();
    recorder.interrupt().assert_code(0);
    answers
}

fn assert_faithful(stage: &Stage, more: &[String]) {
    let replayed = run(stage, "replay", more).wait().assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");
}

#[test]
fn the_stack_of_an_error_is_what_it_was() {
    let stage = Stage::new("stacks-shown", "");
    let answers = record(&stage, &[("GET", "/")]);
    assert!(answers[0].contains("/hindcast-tap-"), "{}", answers[0]);
    assert_faithful(&stage, &[]);
}

/// In a replay another request fills a cache, and waits for what is in it.
#[test]
fn who_has_waited_draws_what_who_has_not_has_drawn() {
    let stage = Stage::new("stacks-draws", "");
    let paths = NAMES.map(|name| format!("/{name}"));
    record(
        &stage,
        &paths.each_ref().map(|path| ("POST", path.as_str())),
    );
    let other = service(&stage, NAMES[1]).join(" ");
    assert_faithful(&stage, &["--app".to_owned(), other]);
}
