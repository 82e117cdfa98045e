//! `hindcast extension`: from nothing to a server that records, as the command says.

use std::path::Path;
use std::process::Command;

use hindcast_cluster::{Binaries, Cluster, Options};
use hindcast_tests::{Finished, Process, program, repository};

fn hindcast(folder: &Path, arguments: &[&str]) -> Finished {
    let mut command = Command::new(program("hindcast"));
    command.args(arguments);
    Process::start("hindcast", command, folder).wait()
}

#[test]
fn installing_and_checking_lead_to_a_server_that_records() {
    let setup = Command::new(repository("scripts/setup"))
        .arg("headers")
        .status();
    assert!(setup.unwrap().success());
    let folder = tempfile::tempdir().unwrap();
    let binaries = Binaries::find().unwrap();
    let pg_config = binaries.program("pg_config").display().to_string();

    let installed = hindcast(
        folder.path(),
        &["extension", "install", "--pg-config", &pg_config],
    );
    let installed = installed.assert_code(0).stdout;
    assert!(
        installed.contains(&format!("for Postgres {}", binaries.major())),
        "{installed}"
    );
    // What it says is what is done.
    let setting = installed
        .lines()
        .find(|line| line.contains("shared_preload_libraries"));
    let (name, value) = setting.unwrap().trim().split_once(" = ").unwrap();
    let options = Options::throw_away().set(name, value.trim_matches('\''));
    let cluster = Cluster::temporary(options).unwrap();
    let url = cluster.url("postgres").to_string();
    let check = ["extension", "check", "--postgres", &url];

    let before = hindcast(folder.path(), &check).assert_code(1).stdout;
    let create = installed
        .lines()
        .find(|line| line.contains("CREATE EXTENSION"))
        .unwrap();
    assert!(before.contains("→ CREATE EXTENSION hindcast"), "{before}");
    cluster.sql("postgres", create).unwrap();
    let after = hindcast(folder.path(), &check).assert_code(0).stdout;
    assert!(!after.contains('→'), "{after}");
    let json = [&check[..], &["--json"]].concat();
    let json = hindcast(folder.path(), &json).assert_code(0).stdout;
    for line in json.lines() {
        let finding: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(finding["ok"], true, "{line}");
    }
    assert_eq!(json.lines().count(), after.lines().count());
}

#[test]
fn what_is_no_server_is_said_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let install = |pg_config: &str| {
        let arguments = ["extension", "install", "--pg-config", pg_config];
        hindcast(folder.path(), &arguments).assert_code(3).stderr
    };
    let missing = install("/nowhere/pg_config");
    assert!(
        missing.contains("cannot run /nowhere/pg_config"),
        "{missing}"
    );
    assert!(
        missing.contains("Hint: name the pg_config of the server"),
        "{missing}"
    );

    let headless = folder.path().join("pg_config");
    let says = "#!/bin/sh\ncase $1 in --version) echo PostgreSQL 16.4;; *) echo /nowhere;; esac\n";
    std::fs::write(&headless, says).unwrap();
    let run = Command::new("chmod").arg("+x").arg(&headless).status();
    assert!(run.unwrap().success());
    let refused = install(&headless.display().to_string());
    assert!(
        refused.contains("the headers of Postgres 16 are not installed"),
        "{refused}"
    );
    assert!(
        refused.contains("apt install postgresql-server-dev-16"),
        "{refused}"
    );
}
