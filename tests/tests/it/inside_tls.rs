//! Services that encrypt by themselves, recorded from inside.

use std::process::Command;

use hindcast_tests::{Process, Stage};

use super::inside::{CLIENTS, SCHEMA, command, python, replay_at};
use super::inside_extension;
use super::tls::encrypt;

/// What `inside::load` does, over HTTPS.
const LOAD: &str = r#"
import http.client, ssl, sys, threading
port, clients, rounds = map(int, sys.argv[1:])
context = ssl._create_unverified_context()
failed = []
def work(number):
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    def send(method, path):
        connection.request(method, path)
        response = connection.getresponse()
        response.read()
        return response.status
    for round in range(rounds):
        status = send("POST", f"/{round % 4}/{(round + number) % 16}/{10 + number}")
        if status not in (200, 409): failed.append(status)
        if send("GET", f"/{(round + number) % 16}") != 200: failed.append(round)
threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit(str(failed) if failed else 0)
"#;

const ROUNDS: usize = 10;

/// Certificate and key of the service, in one file.
fn certificate(stage: &Stage) -> String {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let path = stage.folder().join("service.pem");
    std::fs::write(&path, made.signing_key.serialize_pem() + &made.cert.pem()).unwrap();
    path.display().to_string()
}

/// Records clients of a service that speaks HTTPS and insists on TLS to its database.
fn recorded(stage: &Stage, transactions: &str) -> String {
    let mut record = stage.hindcast(&["record", "--base", "template", "--trace"]);
    record
        .arg(stage.trace())
        .args(["--transactions", transactions, "--"])
        .args(command(stage, 2))
        .arg(certificate(stage))
        .env("DATABASE_URL", insisting(stage))
        .env("WALLET_SECRET", "s3cret");
    let mut recorder = Process::start("record", record, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    let load = Command::new(python())
        .args(["-c", LOAD, &stage.service_port.to_string()])
        .args([CLIENTS.to_string(), ROUNDS.to_string()])
        .output()
        .unwrap();
    assert!(load.status.success(), "{load:?}");
    recorder.interrupt().assert_code(0).stderr
}

fn insisting(stage: &Stage) -> String {
    format!("{}?sslmode=require", stage.database_url())
}

fn is_recorded_and_replayed(stage: &Stage, transactions: &str) -> String {
    let said = recorded(stage, transactions);
    let requests = format!("{} requests", 2 * CLIENTS * ROUNDS);
    assert!(
        said.contains(&requests) && said.contains("(0 ghosts)"),
        "{said}"
    );
    assert!(!said.contains("gap"), "{said}");
    let whole = replay_at(stage, &insisting(stage), &[]).assert_code(0);
    assert!(whole.stdout.contains("faithful"), "{}", whole.stdout);
    assert!(whole.stdout.contains(&requests), "{}", whole.stdout);
    said
}

#[test]
fn a_service_that_encrypts_on_both_sides_is_recorded_with_nothing_between_and_replayed() {
    let mut stage = inside_extension::stage("tls-told", SCHEMA, &[]);
    let root = stage.folder().join("root.pem");
    encrypt(&mut stage.cluster, &root);
    let said = is_recorded_and_replayed(&stage, "extension");
    assert!(said.contains("tells, nothing in the way"), "{said}");
}

#[test]
fn a_service_that_insists_on_encryption_finds_it_at_the_gateway() {
    let mut stage = Stage::new("tls-gateway", SCHEMA);
    let root = stage.folder().join("root.pem");
    encrypt(&mut stage.cluster, &root);
    let said = is_recorded_and_replayed(&stage, "auto");
    assert!(said.contains("by way of a gateway"), "{said}");
    assert!(said.contains("TLS"), "{said}");
}
