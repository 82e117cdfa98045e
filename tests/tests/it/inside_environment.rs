//! Who starts a service may give it an environment of its own: what it does is seen all the same.

use hindcast_tests::http::Client;
use hindcast_tests::{Process, Stage, repository};

const REQUESTS: usize = 3;

/// `start` executes what is behind it.
fn is_seen(name: &str, start: &[&str]) {
    let stage = Stage::new(name, "");
    let run = |what: &str, more: &[&str]| {
        let mut command = stage.hindcast(&[what, "--trace"]);
        command
            .arg(stage.trace())
            .args(more)
            .env("DATABASE_URL", stage.database_url())
            .env("HINDCAST_POSTGRES", stage.database_url());
        Process::start(what, command, stage.folder())
    };
    let service = repository("tests/services/headers.py");
    let (service, port) = (
        service.display().to_string(),
        stage.service_port.to_string(),
    );
    let before = ["--base", "template", "--"];
    let command = [&before[..], start, &["/usr/bin/python3", &service, &port]].concat();
    let mut recorder = run("record", &command);
    recorder.wait_until_it_listens(stage.service_port);
    let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
    for _ in 0..REQUESTS {
        assert_eq!(client.send("GET", "/", None).unwrap().status, 200);
    }
    let recorded = recorder.interrupt();
    let told = recorded.assert_code(0).stderr;
    assert!(
        told.contains(&format!("Recorded {REQUESTS} requests")),
        "{told}"
    );
    let replayed = run("replay", &[]).wait().assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");
}

#[test]
fn a_service_without_any_of_our_environment_is_seen() {
    is_seen("env-empty", &["env", "-i", "LANG=C"]);
}

#[test]
fn a_service_that_is_executed_with_an_environment_of_its_own_is_seen() {
    const EXECUTE: &str = "import os, sys; os.execve(sys.argv[1], sys.argv[1:], {'LANG': 'C'})";
    is_seen("env-executed", &["/usr/bin/python3", "-c", EXECUTE]);
}

#[test]
fn a_service_that_is_spawned_with_an_environment_of_its_own_is_seen() {
    const SPAWN: &str = "import os, signal, sys; \
        child = os.posix_spawn(sys.argv[1], sys.argv[1:], {'LANG': 'C'}); \
        signal.signal(signal.SIGINT, lambda *_: os.kill(child, signal.SIGTERM)); \
        signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM)); \
        os.waitpid(child, 0)";
    is_seen("env-spawned", &["/usr/bin/python3", "-c", SPAWN]);
}
