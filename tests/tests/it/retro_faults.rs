//! Retroaction where the recording, the schema or the service is not as one would wish: gaps,
//! tables without a key, a service that never answers; and the script that brings today's database
//! to the corrected past.

use std::process::Command;

use hindcast_tests::retro::{Case, FAILED, Report, STOPPED, SUCCESS};
use hindcast_tests::{Process, http};

const DUPLICATES: &str =
    "SELECT userid, forum, count(*) FROM mdl_forum_subscriptions GROUP BY 1, 2 HAVING count(*) > 1";
const UNIQUE: &str = "CREATE UNIQUE INDEX once ON mdl_forum_subscriptions (userid, forum)";

fn subscribe(client: &mut http::Client, user: u32, forum: u32) {
    let body = format!("{{\"userid\":{user},\"forum\":{forum}}}");
    let response = client
        .send("POST", "/subscribe", Some(&body))
        .expect("the service answers");
    assert!(response.status < 300, "{}", response.text());
}

/// Four users subscribe, then one of them by a double click, then two more.
fn moodle() -> Case {
    Case::recorded("moodle", "0.02", traffic)
}

fn traffic(case: &Case) {
    let mut client = case.client();
    for user in 1..=4 {
        subscribe(&mut client, user, 1);
    }
    let body = "{\"userid\":42,\"forum\":3}";
    case.both_wait_for("mdl_forum_subscriptions", || {
        let statuses = case.both(("/subscribe", body), ("/subscribe", body));
        assert_eq!(statuses, [201, 201]);
    });
    let list = client.send("GET", "/forums/3/subscribers", None);
    assert_eq!(list.expect("the service answers").status, 200);
    for user in 5..=6 {
        subscribe(&mut client, user, 2);
    }
}

/// Every row of the table that the service writes, in any database of the stage.
fn subscriptions(case: &Case, database: &str) -> String {
    let query = "SELECT id, userid, forum FROM mdl_forum_subscriptions ORDER BY id";
    case.stage.sql_in(database, query)
}

#[test]
fn the_correction_script_brings_the_original_database_to_the_corrected_past() {
    let case = moodle();
    let script = case.stage.folder().join("correction.sql");
    let unique = case.migration(UNIQUE);
    let finished = case
        .run(
            &case.service("upsert"),
            &[
                "--json",
                "--keep",
                "--migrate",
                &unique,
                "--emit-sql",
                &script.display().to_string(),
            ],
        )
        .assert_code(SUCCESS);
    assert_eq!(
        case.stage.sql(DUPLICATES).trim(),
        "42|3|2",
        "nothing was run yet"
    );
    let kept = case.stage.sql_in(
        "postgres",
        "SELECT datname FROM pg_database WHERE datname LIKE 'hindcast_rewound%'",
    );
    let kept = kept.trim();
    assert!(!kept.is_empty(), "{}", finished.stderr);

    case.stage
        .sql_in("postgres", "CREATE DATABASE corrected TEMPLATE app");
    let run = |name: &str, more: &[&str]| {
        let mut psql = Command::new(case.stage.cluster.binaries().program("psql"));
        psql.args(["-X", &case.stage.cluster.url("corrected"), "-f"])
            .arg(&script)
            .args(more);
        Process::start(name, psql, case.stage.folder())
            .wait()
            .assert_code(SUCCESS)
    };
    let before = subscriptions(&case, "app");
    let tried = run("psql-try", &[]);
    assert!(tried.stdout.contains("rolled back"), "{}", tried.stdout);
    assert_eq!(
        subscriptions(&case, "corrected"),
        before,
        "it was only tried"
    );
    let done = run("psql-commit", &["-v", "commit=1"]);
    assert!(done.stdout.contains("committed"), "{}", done.stdout);
    assert_eq!(
        subscriptions(&case, "corrected"),
        subscriptions(&case, kept)
    );
    assert_eq!(
        case.stage.sql_in("corrected", DUPLICATES),
        "",
        "the duplicate is gone"
    );

    // Each change says whose it is.
    let script = std::fs::read_to_string(&script).expect("it was written");
    assert!(
        script.contains("(POST /subscribe): INSERT INTO mdl_forum_subscriptions"),
        "{script}"
    );
    // A second time there is nothing left to do, and it says so.
    let again = run("psql-again", &["-v", "commit=1"]);
    assert!(
        again.stdout.contains("0 of 1 changes left alone"),
        "{}",
        again.stdout
    );
    assert_eq!(
        subscriptions(&case, "corrected"),
        subscriptions(&case, kept)
    );
}

#[test]
fn selecting_leaves_out_what_cannot_matter_and_comes_to_the_same() {
    let case = moodle();
    let unique = case.migration(UNIQUE);
    let flags = ["--migrate", &unique, "--check", DUPLICATES];
    let all = case.retro("upsert", &flags);
    let selected = case.retro(
        "upsert",
        &[&flags[..], &["--select", "--modified", "POST /subscribe"]].concat(),
    );

    let selection = &selected.0["selection"];
    let executed = &selection["executed"][0];
    assert_eq!(executed["name"], "POST /subscribe", "{selection}");
    assert!(
        executed["why"].as_str().is_some_and(|why| !why.is_empty()),
        "{selection}"
    );
    assert!(
        executed["writes"]
            .to_string()
            .contains("mdl_forum_subscriptions"),
        "{selection}"
    );
    let left_out = &selection["left_out"][0];
    assert_eq!(
        left_out["name"], "GET /forums/{id}/subscribers",
        "{selection}"
    );
    assert!(
        left_out["why"].as_str().is_some_and(|why| !why.is_empty()),
        "{selection}"
    );
    assert_eq!(selection["restarts"], 0, "{selection}");
    assert_eq!(selected.count("requests_not_selected"), 1);

    assert_eq!(selected.check(0), all.check(0));
    assert_eq!(selected.check(0), (1, 0));
    // Which of the two that were concurrent comes first is not the same in every run; whose row
    // goes is.
    for report in [&all, &selected] {
        let table = report.table("public.mdl_forum_subscriptions");
        let [added, removed, changed] = ["added", "removed", "changed"].map(|of| &table[of]);
        assert_eq!((added, removed, changed), (&0.into(), &1.into(), &0.into()));
        assert_eq!(table["rows"][0]["row"][1], "42", "{table}");
    }
    // Who does not say what was modified is told what was found.
    let found = case.retro("upsert", &[&flags[..], &["--select"]].concat());
    assert_eq!(found.check(0), (1, 0));
    assert_eq!(
        found.count("requests_not_selected"),
        1,
        "{}",
        found.0["selection"]
    );
    let remarks = found.0["remarks"].to_string();
    assert!(
        remarks.contains("modified_found") && remarks.contains("POST /subscribe"),
        "{remarks}"
    );
}

#[test]
fn a_gap_in_the_recording_is_crossed_only_if_asked() {
    let case = moodle();
    // One recorder is killed; another one goes on.
    for users in [7..=9, 10..=12] {
        let mut client = case.client();
        let is_last = *users.start() == 10;
        let recorder = case.stage.record(&["--durable"]);
        let mut command = Command::new("sh");
        command.args(["-c", &case.service("original")]);
        let service = case.stage.start_service(command);
        for user in users {
            subscribe(&mut client, user, 2);
        }
        if is_last {
            service.stop();
            recorder.interrupt().assert_code(SUCCESS);
        } else {
            recorder.kill();
            service.stop();
        }
    }

    let before = case.state();
    let refused = case.run(&case.service("merged"), &[]).assert_code(FAILED);
    assert!(
        refused.stderr.contains("--across-gaps"),
        "{}",
        refused.stderr
    );
    case.nothing_is_left();
    let finished = case
        .run(
            &case.service("merged"),
            &["--across-gaps", "--json", "--check", DUPLICATES],
        )
        .assert_code(SUCCESS);
    let report = Report::of(&finished);
    assert!(
        report.0["remarks"].to_string().contains("crossed_gap"),
        "{}",
        report.0["remarks"]
    );
    case.nothing_is_left();
    assert_eq!(case.state(), before, "the original database is untouched");
}

#[test]
fn a_service_that_never_answers_is_stopped_and_leaves_nothing() {
    let case = moodle();
    let before = case.state();
    // It accepts connections and is silent.
    let silent = format!(
        "exec python3 -c \"import socket,time\ns=socket.create_server(('127.0.0.1',{}))\nkept=[]\nwhile 1: kept.append(s.accept())\"",
        case.stage.service_port
    );
    let finished = case
        .run(&silent, &["--json", "--stall-timeout", "1"])
        .assert_code(STOPPED);
    let report = Report::of(&finished);
    assert_eq!(report.outcome(), "stopped");
    assert_eq!(report.0["outcome"]["why"]["why"], "hung");
    case.nothing_is_left();
    assert_eq!(case.state(), before);
}

#[test]
fn being_interrupted_leaves_nothing() {
    let case = moodle();
    let before = case.state();
    let slow = case.migration(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(3600); RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE INSERT ON mdl_forum_subscriptions FOR EACH ROW EXECUTE FUNCTION slow();",
    );
    let mut command = case
        .stage
        .hindcast(&["retro", "--app", &case.service("original")]);
    command
        .args(["--postgres", &case.stage.database_url(), "--migrate", &slow])
        .arg("--trace")
        .arg(case.stage.trace());
    let mut retro = Process::start("retro", command, case.stage.folder());
    retro.wait_until("a subscription to be slow", || {
        let sleeping = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        (!case.stage.sql_in("postgres", sleeping).is_empty()).then_some(())
    });
    let ended = retro.interrupt();
    assert_eq!(ended.code, Some(FAILED), "{}", ended.stderr);
    case.nothing_is_left();
    assert_eq!(case.state(), before);
}

#[test]
fn rows_of_a_table_without_a_key_are_compared_by_all_they_hold() {
    let case = Case::recorded("moodle", "0.02", |case| {
        // A log without a key, kept by the database itself.
        traffic(case);
    });
    let logs = case.migration(
        "CREATE TABLE log (what text);
         CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log VALUES ('forum ' || NEW.forum); RETURN NEW; END $$;
         CREATE TRIGGER log AFTER INSERT ON mdl_forum_subscriptions FOR EACH ROW EXECUTE FUNCTION log();",
    );
    let report = case.retro("original", &["--migrate", &logs]);
    assert_eq!(report.outcome(), "different");
    assert_eq!(report.count("newly_failing"), 0);
    let changed = report.0["state"].to_string();
    assert!(
        changed.contains("public.log"),
        "a table that was not there: {changed}"
    );
}

#[test]
fn a_drained_pool_is_no_reason_to_hang() {
    // One session for two requests that were concurrent.
    let case = moodle();
    let one = format!("{} --pool 1", case.service("merged"));
    let finished = case
        .run(
            &one,
            &["--json", "--check", DUPLICATES, "--stall-timeout", "3"],
        )
        .assert_code(SUCCESS);
    let report = Report::of(&finished);
    assert_eq!(report.outcome(), "different");
    case.nothing_is_left();
    // What cannot be concurrent any more is not, and that is said.
    assert!(
        report.count("let_go") > 0 || report.check(0).1 == 0,
        "{}",
        report.0["counts"]
    );
}
