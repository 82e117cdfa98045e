//! What a recording leaves behind in the server, and what a recording without requests says.

use hindcast_tests::{Finished, Process, Stage};

const SUCCESS: i32 = 0;
const USAGE: i32 = 2;
const FAILED: i32 = 3;

#[track_caller]
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

/// Runs `hindcast base …` on the stage's server.
fn base(stage: &Stage, arguments: &[&str]) -> Finished {
    let url = stage.database_url();
    stage.run(
        "base",
        &[&["base"], arguments, &["--postgres", &url]].concat(),
    )
}

/// `psql` through the gateway.
fn psql(stage: &Stage, script: &str) {
    let mut psql = std::process::Command::new("psql");
    psql.args([
        "-XAtq",
        "-v",
        "ON_ERROR_STOP=1",
        "-d",
        &stage.gateway_url(),
        "-c",
        script,
    ]);
    Process::start("psql", psql, stage.folder())
        .wait()
        .assert_code(SUCCESS);
}

fn bases(stage: &Stage) -> Vec<String> {
    let names = stage.sql_in(
        "postgres",
        "SELECT datname FROM pg_database WHERE datname LIKE 'hindcast_base_%' ORDER BY oid",
    );
    names.lines().map(str::to_owned).collect()
}

#[test]
fn a_base_that_a_recording_needs_stays_until_it_is_forced() {
    let stage = Stage::new("bases", "CREATE TABLE t (k int)");
    let recorder = stage.record(&[]);
    let ended = recorder.interrupt().assert_code(SUCCESS);
    let [first] = &bases(&stage)[..] else {
        panic!("{:?}", bases(&stage));
    };
    assert_says(
        &ended.stdout,
        &[
            &format!("base          template database {first} stays in the server"),
            &format!("`hindcast base drop {first}` removes this one"),
        ],
    );
    // Without a subcommand a base is taken, as ever.
    let trace = stage.trace().display().to_string();
    let taken = base(&stage, &["--trace", &trace]).assert_code(SUCCESS);
    assert_says(
        &taken.stdout,
        &["Base taken: template database hindcast_base_app_"],
    );
    let other = stage.folder().join("other").display().to_string();
    base(&stage, &["take", "--trace", &other]).assert_code(SUCCESS);
    let names = bases(&stage);
    let [_, second, third] = &names[..] else {
        panic!("{names:?}");
    };

    let listed = base(&stage, &["ls"]).assert_code(SUCCESS);
    let lines: Vec<_> = listed.stdout.lines().collect();
    assert_says(
        lines[0],
        &["BASE", "OF", "SIZE", "TAKEN (UTC)", "RECORDING"],
    );
    for (name, recording) in [(first, &trace), (second, &trace), (third, &other)] {
        let line = lines.iter().find(|line| line.starts_with(name.as_str()));
        assert_says(line.expect(name), &["  app  ", "B  20", recording]);
    }
    assert_says(&listed.stdout, &["3 bases, ", "`hindcast base drop NAME`"]);
    let json = base(&stage, &["ls", "--json"]).assert_code(SUCCESS).stdout;
    assert_says(
        &json,
        &[&format!("\"base\":\"{first}\""), "\"used_by\":[\""],
    );

    // One that is needed keeps all.
    let refused = base(&stage, &["drop", third, first]).assert_code(FAILED);
    assert_says(
        &refused.stderr,
        &[
            &format!("{third} is the base of the recording in {other}"),
            "Hint: ",
            "--force",
        ],
    );
    assert_eq!(bases(&stage).len(), 3);
    std::fs::remove_dir_all(&other).expect("the recording is removed");
    let listed = base(&stage, &["ls"]).assert_code(SUCCESS).stdout;
    assert_says(&listed, &[&format!("{other} (not there any more)")]);
    let removed = base(&stage, &["drop", third]).assert_code(SUCCESS).stdout;
    assert_says(&removed, &[&format!("Removed {third} (")]);
    base(&stage, &["drop", "--force", first, second]).assert_code(SUCCESS);
    assert!(bases(&stage).is_empty());
    let none = base(&stage, &["ls"]).assert_code(SUCCESS).stdout;
    assert_eq!(none, "The server has no bases.\n");
}

#[test]
fn only_bases_are_dropped() {
    let stage = Stage::new("no-bases", "CREATE TABLE t (k int)");
    stage.sql_in("postgres", "CREATE DATABASE hindcast_base_of_mine");
    for name in ["app", "hindcast_base_of_mine", "nowhere"] {
        let refused = base(&stage, &["drop", "--force", name]).assert_code(FAILED);
        assert_says(
            &refused.stderr,
            &[
                &format!("the server has no base {name}"),
                "Hint: `hindcast base ls`",
            ],
        );
    }
    assert_eq!(bases(&stage), ["hindcast_base_of_mine"]);
    let nothing = base(&stage, &["drop"]).assert_code(USAGE);
    assert_says(&nothing.stderr, &["<NAME>"]);
    let no_trace = base(&stage, &[]).assert_code(USAGE);
    assert_says(&no_trace.stderr, &["--trace <DIR>"]);
}

#[test]
fn a_recording_of_ghosts_says_so_while_and_after() {
    let stage = Stage::new("ghosts", "CREATE TABLE t (k int)");
    let mut recorder = stage.record(&[]);
    psql(&stage, "INSERT INTO t VALUES (1)");
    psql(&stage, "SELECT 1");
    // Two transactions are nothing to warn of; 20 in a row are.
    for _ in 0..20 {
        psql(&stage, "INSERT INTO t VALUES (2)");
    }
    let files = recorder.output_files();
    let warned = recorder.wait_until("the warning", || {
        let text = std::fs::read_to_string(&files[1]).expect("its standard error");
        text.contains("Hint: ").then_some(text)
    });
    let (listen, app) = (
        stage.ingress(),
        format!("http://127.0.0.1:{}", stage.service_port),
    );
    assert_says(
        &warned,
        &[
            " transactions in a row belong to no request: no request has come to ",
            &format!("connect to the service at {app} directly"),
            &format!("let clients connect to {listen} instead"),
            &format!("`curl -i http://{listen}/`"),
        ],
    );
    // A gap, which is listed as beside requests.
    stage.sql_in("app", "DELETE FROM t WHERE k = 1");
    let ended = recorder.interrupt().assert_code(SUCCESS);
    assert_eq!(
        ended
            .stderr
            .matches(" in a row belong to no request")
            .count(),
        1,
        "{}",
        ended.stderr
    );
    assert_says(
        &ended.stdout,
        &[&format!(
            "note          22 transactions and no request: none came to {listen}"
        )],
    );
    let trace = stage.trace().display().to_string();
    let listed = stage
        .run("ls", &["ls", "--trace", &trace])
        .assert_code(SUCCESS);
    assert_says(
        &listed.stderr,
        &[
            &format!(
                "No requests were recorded in {trace}, only 22 transactions that belong to none (ghosts)."
            ),
            &format!("Cause: no request came to {listen}."),
            "Hint: `hindcast show t1`",
            "0 requests, 22 transactions (22 ghosts",
            "Gap: ",
            "1 transaction wrote to public.t past the recorder",
        ],
    );
    let shown = stage
        .run("show", &["show", "--trace", &trace, "t1"])
        .assert_code(SUCCESS);
    assert_says(&shown.stdout, &["INSERT INTO t"]);
}
