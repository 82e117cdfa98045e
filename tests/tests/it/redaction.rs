//! Recordings without secrets: what is in them, and what replaying them says.

use std::fs;
use std::path::Path;
use std::process::Command;

use hindcast_tests::{Finished, Process, Stage, http, program, wait_for};

const SECRETS: [&str; 5] = [
    "hemlig-lösen",
    "s3ssion",
    "bearer-4711",
    "4111111111111111",
    "in-the-query",
];

const RULES: [&str; 4] = [
    "--redact",
    "field:comment_author_email",
    "--redact",
    "cookie:sid",
];

fn stage() -> Stage {
    let stage = Stage::new("redaction", "SELECT 1");
    let mut load = Command::new(program("hindcast-workload"));
    let url = stage.database_url();
    load.args([
        "load",
        "wp-comments",
        "--scale",
        "0.01",
        "--database-url",
        &url,
    ]);
    Process::start("load", load, stage.folder())
        .wait()
        .assert_code(0);
    stage
}

fn service(stage: &Stage) -> String {
    format!(
        "exec {} serve wp-comments --listen 127.0.0.1:{} --variant original --database-url '{}'",
        program("hindcast-workload").display(),
        stage.service_port,
        stage.gateway_url()
    )
}

/// Records four requests, whose secrets the service at most stores.
fn record(stage: &Stage, more: &[&str]) -> Finished {
    let recorder = stage.record(&[&["--isolation", "repeatable-read"], more].concat());
    let mut command = Command::new("sh");
    command.args(["-c", &service(stage)]);
    let service = stage.start_service(command);
    let mut client = http::Client::new(stage.ingress());
    for user in 1..=4 {
        let body = format!(
            "{{\"comment_author\":\"ann {user}\",\"comment_author_email\":\"hemlig-lösen\",\
             \"comment_content\":\"4111111111111111\"}}"
        );
        let headers = [
            ("authorization", "Bearer bearer-4711"),
            ("cookie", "theme=dark; sid=s3ssion"),
        ];
        let target = "/posts/1/comments?token=in-the-query";
        let response = client.send_with("POST", target, &headers, Some(&body));
        let response = response.expect("the service answers");
        assert!(response.status < 300, "{}", response.text());
    }
    // While it records, everything is in the write-ahead file, uncompressed.
    wait_for("the requests in the write-ahead file", || {
        contains(&stage.trace(), "/posts/1/comments").then_some(())
    });
    for secret in SECRETS {
        let there = contains(&stage.trace(), secret);
        assert_eq!(there, more == ["--no-default-redaction"], "{secret}");
    }
    service.stop();
    recorder.interrupt().assert_code(0)
}

fn contains(folder: &Path, text: &str) -> bool {
    let Ok(entries) = fs::read_dir(folder) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => contains(&path, text),
            false => fs::read(&path)
                .unwrap_or_default()
                .windows(text.len())
                .any(|window| window == text.as_bytes()),
        }
    })
}

fn show(stage: &Stage, what: &[&str]) -> String {
    let trace = stage.trace().display().to_string();
    let command = [what, &["--trace", &trace]].concat();
    stage.run("show", &command).assert_code(0).stdout
}

#[test]
fn secrets_that_are_only_carried_do_not_keep_a_replay_from_being_faithful() {
    let stage = stage();
    // The service stores both: what a replay writes is not compared.
    let columns = [
        "--drop-secrets",
        "--redact",
        "column:comment_author_email",
        "--redact",
        "column:comment_content",
        "--user",
        "cookie:sid",
    ];
    let recorded = record(&stage, &[&RULES[..], &columns].concat());
    assert!(
        recorded
            .stdout
            .contains("  redacted      header: authorization; cards; field: password,"),
        "{}",
        recorded.stdout
    );
    let shown = [
        show(&stage, &["ls", "--json"]),
        show(&stage, &["show", "1", "--json"]),
    ];
    for shown in &shown {
        assert!(
            SECRETS.iter().all(|secret| !shown.contains(secret)),
            "{shown}"
        );
    }
    let page = show(&stage, &["show", "2"]);
    assert!(
        page.contains(
            "redacted by header:authorization, cards, field:token, field:comment_author_email, cookie:sid"
        ),
        "{page}"
    );
    assert!(page.contains("theme=dark; sid=redacted-"), "{page}");
    assert!(page.contains("\nuser redacted-"), "{page}");

    stage.replay_app(&service(&stage), &[]).assert_code(0);
    let trace = stage.trace().display().to_string();
    let (url, app) = (stage.database_url(), service(&stage));
    let retro = [
        "retro",
        "--app",
        &app,
        "--postgres",
        &url,
        "--trace",
        &trace,
    ];
    let report = stage.run("retro", &retro).assert_code(0);
    // What ran is the same. The rows that it wrote are not, and the report says so.
    let same = ["transactions 4: 4 same", "different in 1 table"];
    let said = same.iter().all(|line| report.stdout.contains(line));
    assert!(said, "{}", report.stdout);
}

#[test]
fn a_replay_that_a_redacted_value_decides_names_the_rule() {
    let stage = stage();
    record(
        &stage,
        &[
            &RULES[..],
            &["--redact", "json:/comment_author", "--drop-secrets"],
        ]
        .concat(),
    );
    let diverged = stage.replay_app(&service(&stage), &[]).assert_code(1);
    assert!(
        diverged.stdout.contains("was sent without secrets")
            && diverged.stdout.contains("json:/comment_author"),
        "{}",
        diverged.stdout
    );
}

#[test]
fn a_replay_sends_what_was_sealed_where_the_key_is() {
    let stage = stage();
    let rules = [&RULES[..], &["--redact", "json:/comment_author"]].concat();
    let recorded = record(&stage, &rules);
    let said = "sealed for a replay; --drop-secrets keeps nothing";
    assert!(recorded.stdout.contains(said), "{}", recorded.stdout);
    stage.replay_app(&service(&stage), &[]).assert_code(0);

    let other = stage.folder().join("other.key").display().to_string();
    stage.run("key", &["key", "new", &other]).assert_code(0);
    let other = stage.replay_app(&service(&stage), &["--secrets-key", &other]);
    let out = other.assert_code(1).stdout;
    let rule = out.contains("was sent without secrets") && out.contains("json:/comment_author");
    assert!(rule, "{out}");
}

#[test]
fn the_switch_turns_redaction_off_and_a_wrong_rule_is_refused() {
    let stage = stage();
    let recorded = record(&stage, &["--no-default-redaction"]);
    assert!(
        recorded.stdout.contains("  redacted      nothing"),
        "{}",
        recorded.stdout
    );
    stage.replay_app(&service(&stage), &[]).assert_code(0);

    let rules = stage.folder().join("rules");
    fs::write(&rules, "field:pin\nfield\n").expect("written");
    let rules = rules.display().to_string();
    for wrong in [
        ["--user", "cards"],
        ["--redact", "body:x"],
        ["--redact-file", &rules],
    ] {
        let url = stage.database_url();
        let mut command = vec![
            "record",
            "--listen",
            ":0",
            "--app",
            "http://h:1",
            "--pg-listen",
            ":0",
        ];
        command.extend(["--postgres", &url, "--trace", "x"]);
        command.extend(wrong);
        let refused = stage.run("refused", &command);
        assert_eq!(refused.code, Some(2));
        assert!(
            refused.stderr.contains("is not a rule"),
            "{}",
            refused.stderr
        );
    }
}
