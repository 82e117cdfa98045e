//! `export --redact`: a part of a recording that is given away, and replayed elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hindcast_cluster::Shutdown;
use hindcast_tests::http::Client;
use hindcast_tests::{Finished, Process, Stage, repository};

use crate::{inside, python};

/// Tables that are there no more make oids others than in a new server.
const SCHEMA: &str = "CREATE TABLE gone (id serial PRIMARY KEY, what text); DROP TABLE gone;
    CREATE ROLE clerk LOGIN;
    CREATE TABLE person (id int PRIMARY KEY, token text UNIQUE, password varchar(40) NOT NULL, secret bytea, left_over int);
    CREATE TABLE entry (id serial PRIMARY KEY, person int REFERENCES person, amount int);
    ALTER TABLE entry OWNER TO clerk;
    INSERT INTO person SELECT id, 'tok-4711-' || id, 'hunter2-' || id, 'sealed-wax', 1000 FROM generate_series(0, 3) id";

const SECRETS: [&str; 3] = ["tok-4711", "hunter2", "sealed-wax"];
const CLIENTS: usize = 4;
const ROUNDS: usize = 6;

fn spends(stage: &Stage) {
    let address = format!("127.0.0.1:{}", stage.service_port);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = Client::new(address.clone());
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let person = (number + round) % 2;
                    let token = format!("Bearer tok-4711-{person}");
                    let body = format!(r#"{{"password":"hunter2-{person}","amount":{round}}}"#);
                    let headers = [
                        ("authorization", token.as_str()),
                        ("content-type", "application/json"),
                    ];
                    let answer = client.send_with("POST", "/spend", &headers, Some(&body));
                    let expected = if round == 0 { 403 } else { 200 };
                    assert_eq!(answer.expect("it answers").status, expected);
                }
            });
        }
    });
}

fn service(stage: &Stage) -> [String; 3] {
    let service = repository("tests/services/spend.py");
    let port = stage.service_port.to_string();
    [inside::python(), service.display().to_string(), port]
}

fn export(stage: &Stage, folder: &Path, more: &[&str]) -> Finished {
    let mut command = stage.hindcast(&["export", "--trace"]);
    command.arg(stage.trace()).arg("--redact").arg(folder);
    command
        .args(more)
        .env("HINDCAST_POSTGRES", stage.database_url());
    Process::start("export", command, stage.folder()).wait()
}

fn replay(stage: &Stage, trace: &Path) -> Finished {
    let mut command = stage.hindcast(&["replay", "--trace"]);
    command.arg(trace).env("DATABASE_URL", stage.database_url());
    Process::start("replay", command, stage.folder()).wait()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is a folder");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let (folders, mut files): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    files.extend(folders.iter().flat_map(|folder| self::files(folder)));
    files
}

/// All that a folder says, as far as tools can read it.
fn told(stage: &Stage, folder: &Path) -> String {
    const TABLES: &str = "
import duckdb, glob, sys
for name in glob.glob(sys.argv[1] + '/*/*.parquet'):
    for row in duckdb.sql(f\"SELECT * FROM '{name}'\").fetchall():
        print(name, row)
";
    let mut told = python::print(TABLES, &folder.display().to_string());
    let mut restore = Command::new(stage.cluster.binaries().program("pg_restore"));
    restore
        .arg("--file=-")
        .arg(folder.join("base/database.dump"));
    let dump = Process::start("pg_restore", restore, stage.folder()).wait();
    told.push_str(&dump.assert_code(0).stdout);
    for file in files(folder) {
        let bytes = fs::read(file).expect("it can be read");
        told.push_str(&String::from_utf8_lossy(&bytes));
    }
    told
}

#[test]
fn a_part_is_given_away_without_secrets_and_is_faithful_on_another_server() {
    let mut stage = Stage::new("share", SCHEMA);
    let recorder = inside::record_with(&stage, &["--no-default-redaction"], &service(&stage));
    spends(&stage);
    spends(&stage);
    recorder.interrupt().assert_code(0);
    let original = told_of_trace(&stage);
    for secret in &SECRETS[..2] {
        assert!(original.contains(secret), "{secret} was recorded");
    }

    let folder = stage.folder().join("given");
    let half = (CLIENTS * ROUNDS).to_string();
    let rules = ["--rule", "column:token", "--rule", "field:token"];
    let window = ["--to", &half];
    let exported = export(&stage, &folder, &[&window[..], &rules].concat());
    let exported = exported.assert_code(0);
    assert!(
        exported.stderr.contains(
            "Hashed in the base: public.person.token, public.person.password, public.person.secret\n"
        ),
        "{}",
        exported.stderr
    );
    let told = told(&stage, &folder);
    for secret in SECRETS {
        assert!(!told.contains(secret), "{secret} was given away");
    }
    assert!(told.contains("Bearer redacted-"), "the scheme stays");
    let again = export(&stage, &folder, &[]).assert_code(3);
    assert!(
        again.stderr.contains("is not an empty folder"),
        "{}",
        again.stderr
    );

    // Nothing of the recorded server is needed.
    stage.cluster.stop(Shutdown::Fast).expect("it stops");
    let moved = stage.folder().join("elsewhere");
    fs::rename(&folder, &moved).expect("it can be moved");
    let replayed = replay(&stage, &moved).assert_code(0);
    let says = format!("{half} requests");
    assert!(
        replayed.stdout.contains("Verdict: faithful") && replayed.stdout.contains(&says),
        "{}",
        replayed.stdout
    );
    // What sequences drew is known by oids, which are others there: without their names it is lost.
    fs::write(moved.join("base/objects.txt"), "").expect("it can be written");
    let nameless = replay(&stage, &moved).assert_code(1);
    assert!(
        nameless.stdout.contains("Verdict: diverged"),
        "{}",
        nameless.stdout
    );
}

/// With the key of secrets here, requests are opened; what is given away has neither.
#[test]
fn what_was_sealed_is_hashed_as_in_the_base_and_the_final_state_is_compared() {
    let mut stage = Stage::new("share-sealed", SCHEMA);
    let rules = ["--redact", "column:token", "--redact", "field:token"];
    let recorder = inside::record_with(&stage, &rules, &service(&stage));
    spends(&stage);
    recorder.interrupt().assert_code(0);
    let folder = stage.folder().join("given");
    export(&stage, &folder, &[]).assert_code(0);
    let told = told(&stage, &folder);
    for secret in SECRETS {
        assert!(!told.contains(secret), "{secret} was given away");
    }
    let key = stage.folder().join("secrets.key");
    assert!(key.exists(), "they were sealed");
    fs::remove_file(key).expect("it can be removed");
    stage.cluster.stop(Shutdown::Fast).expect("it stops");
    let replayed = replay(&stage, &folder).assert_code(0);
    assert!(
        replayed.stdout.contains("Verdict: faithful") && replayed.stdout.contains("as recorded"),
        "{}",
        replayed.stdout
    );
}

fn told_of_trace(stage: &Stage) -> String {
    let show = stage.run(
        "show",
        &["show", "--trace", &stage.trace().display().to_string(), "1"],
    );
    show.assert_code(0).stdout
}
