//! `record -- COMMAND`, and `replay` with nothing else.

use std::path::PathBuf;
use std::process::Command;

use hindcast_tests::http::Client;
use hindcast_tests::{Process, Stage, repository};

/// Sixteen accounts of eight customers.
pub const SCHEMA: &str = "CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL);
    INSERT INTO account SELECT id, 100 FROM generate_series(0, 15) id";

pub const CLIENTS: usize = 6;

/// The service's Python, with what the example of Python needs.
pub fn python() -> String {
    let install = repository("examples/python/run.sh");
    let status = Command::new(install).arg("--install").status();
    assert!(status.expect("bash is there").success());
    let python = repository("examples/python/.venv/bin/python");
    python.display().to_string()
}

pub fn command(stage: &Stage, processes: usize) -> [String; 4] {
    let service = repository("tests/services/wallet.py");
    let port = stage.service_port.to_string();
    [
        python(),
        service.display().to_string(),
        port,
        processes.to_string(),
    ]
}

/// With the database where a service finds it, which the recorder is not told otherwise.
pub fn record(stage: &Stage, service: &[String]) -> Process {
    record_with(stage, &[], service)
}

pub fn record_with(stage: &Stage, more: &[&str], service: &[String]) -> Process {
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command
        .arg(stage.trace())
        .args(more)
        .arg("--")
        .args(service)
        .env("DATABASE_URL", stage.database_url())
        .env("WALLET_SECRET", "s3cret");
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    recorder
}

/// Clients at a time, whose transfers get into each other's way.
pub fn load(stage: &Stage, rounds: usize) {
    let address = format!("127.0.0.1:{}", stage.service_port);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let address = address.clone();
            scope.spawn(move || {
                let mut client = Client::new(address);
                for round in 0..rounds {
                    let (from, to) = (round % 4, (round + number) % 16);
                    let transfer = format!("/{from}/{to}/{}", 10 + number);
                    let answer = client.send("POST", &transfer, None).unwrap();
                    assert!(matches!(answer.status, 200 | 409), "{}", answer.text());
                    client.send("GET", &format!("/{to}"), None).unwrap();
                }
            });
        }
    });
}

pub fn replay(stage: &Stage, more: &[&str]) -> hindcast_tests::Finished {
    replay_at(stage, &stage.database_url(), more)
}

/// With this in the service's environment.
pub fn replay_at(stage: &Stage, url: &str, more: &[&str]) -> hindcast_tests::Finished {
    let mut command = stage.hindcast(&["replay", "--trace"]);
    command
        .arg(stage.trace())
        .args(more)
        .env("HINDCAST_POSTGRES", stage.database_url())
        .env("DATABASE_URL", url)
        .env("WALLET_SECRET", "s3cret");
    Process::start("replay", command, stage.folder()).wait()
}

#[test]
fn a_service_with_threads_and_processes_is_recorded_as_it_is_started_and_replayed_with_nothing_else()
 {
    const ROUNDS: usize = 15;
    let stage = Stage::new("inside", SCHEMA);
    let recorder = record(&stage, &command(&stage, 3));
    load(&stage, ROUNDS);
    let recorded = recorder.interrupt().assert_code(0);
    let requests = format!("{} requests", 2 * CLIENTS * ROUNDS);
    assert!(recorded.stderr.contains(&requests), "{}", recorded.stderr);
    assert!(
        recorded.stderr.contains("(0 ghosts)"),
        "{}",
        recorded.stderr
    );
    assert_eq!(recorded.stdout, "", "the terminal is the service's");

    let whole = replay(&stage, &[]).assert_code(0);
    assert!(whole.stdout.contains("faithful"), "{}", whole.stdout);
    assert!(whole.stdout.contains(&requests), "{}", whole.stdout);
    // The recorded service may be running again.
    let mut running = Command::new(python());
    running
        .args(&command(&stage, 1)[1..])
        .env("DATABASE_URL", stage.database_url());
    let running = stage.start_service(running);
    let part = replay(&stage, &["--from", "20", "--to", "60"]).assert_code(0);
    assert!(part.stdout.contains("faithful"), "{}", part.stdout);
    running.stop();

    // Changed code is given by its command, and is started in the same surroundings.
    let changed = stage.folder().join("changed.py");
    let text = std::fs::read_to_string(repository("tests/services/wallet.py")).unwrap();
    std::fs::write(
        &changed,
        text.replace("self.send_response(status)", "self.send_response(201)"),
    )
    .unwrap();
    let port = stage.service_port.to_string();
    let app = format!("exec {} {} {port} 1", python(), changed.display());
    let differs = replay(&stage, &["--app", &app]).assert_code(1);
    assert!(differs.stdout.contains("201"), "{}", differs.stdout);

    let recording = stage.trace();
    let kept = Command::new("grep")
        .args(["-rlaF", "s3cret"])
        .arg(recording)
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&kept.stdout),
        "",
        "a secret is kept"
    );
}

#[test]
fn a_recorder_that_is_killed_leaves_the_service_running() {
    let stage = Stage::new("inside-killed", SCHEMA);
    let recorder = record(&stage, &command(&stage, 1));
    load(&stage, 1);
    let service = Command::new("pgrep")
        .args(["-P", &recorder.pid().to_string()])
        .output()
        .unwrap();
    let service = String::from_utf8(service.stdout).unwrap();
    recorder.signal_alone("KILL");
    // Connections that led through the recorder are gone, so a pool makes new ones.
    let address = format!("127.0.0.1:{}", stage.service_port);
    let answered = || {
        Client::new(address.clone())
            .send("GET", "/1", None)
            .is_ok_and(|answer| answer.status == 200)
    };
    hindcast_tests::wait_for("the service to reach its database", || {
        answered().then_some(())
    });
    for pid in service.split_whitespace() {
        let ended = Command::new("kill").arg(pid).status().unwrap();
        assert!(ended.success(), "the service has ended with its recorder");
    }
    drop(recorder);
}

/// A program into which nothing can be loaded.
fn linked_statically(stage: &Stage, source: &str) -> PathBuf {
    let file = stage.folder().join("static.c");
    std::fs::write(&file, source).unwrap();
    let program = stage.folder().join("static");
    let made = Command::new("cc")
        .arg("-static")
        .arg("-o")
        .arg(&program)
        .arg(&file)
        .status();
    assert!(made.unwrap().success());
    program
}

/// A script has started it. What is started itself is refused.
#[test]
fn a_program_that_listens_and_cannot_be_seen_is_told_of() {
    let stage = Stage::new("inside-unseen", "");
    let source = "#include <arpa/inet.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
        int main(int count, char **arguments) {\n\
        struct sockaddr_in at = {AF_INET, htons(atoi(arguments[1])), {htonl(INADDR_LOOPBACK)}};\n\
        int socket_ = socket(AF_INET, SOCK_STREAM, 0);\n\
        return bind(socket_, (void *)&at, sizeof at) || listen(socket_, 9) || sleep(60); }";
    let program = linked_statically(&stage, source);
    let script = format!("{} {} & wait", program.display(), stage.service_port);
    let trace = stage.trace().display().to_string();
    let url = stage.database_url();
    let arguments = ["record", "--trace", &trace, "--postgres", &url, "--"];
    let mut recorder = stage.hindcast(&arguments);
    recorder.args(["sh", "-c", &script]);
    let mut recorder = Process::start("record", recorder, stage.folder());
    let [_, said] = recorder.output_files();
    recorder.wait_until("the program to be told of", || {
        let said = std::fs::read_to_string(&said).unwrap();
        said.contains("Clients connect to port").then_some(())
    });
    let recorded = recorder.interrupt();
    let cause = format!("{} is linked statically", program.display());
    let app = format!("--app http://127.0.0.1:{} ", stage.service_port);
    for expected in [&cause, &app, "nothing was seen of a program that listened"] {
        assert!(recorded.stderr.contains(expected), "{}", recorded.stderr);
    }
}

#[test]
fn what_cannot_be_recorded_from_inside_is_refused_before_it_is_started() {
    let stage = Stage::new("inside-refused", "");
    let program = linked_statically(&stage, "int main(void) { return 0; }");
    let trace = stage.trace().display().to_string();
    let url = stage.database_url();
    let run = |program: &str| {
        let arguments = [
            "record",
            "--trace",
            &trace,
            "--postgres",
            &url,
            "--",
            program,
        ];
        stage.run("refused", &arguments)
    };
    let refused = run(&program.display().to_string()).assert_code(3);
    assert!(
        refused.stderr.contains("linked statically"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("--pg-listen"), "{}", refused.stderr);
    let missing = run("no-such-program").assert_code(3);
    assert!(
        missing.stderr.contains("is in no folder of PATH"),
        "{}",
        missing.stderr
    );
    assert!(!stage.trace().exists(), "nothing is left behind");

    let without = stage.hindcast(&["record", "--trace", &trace, "--", "true"]);
    let without = Process::start("without", without, stage.folder())
        .wait()
        .assert_code(2);
    assert!(
        without.stderr.contains("DATABASE_URL"),
        "{}",
        without.stderr
    );
}
