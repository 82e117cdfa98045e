//! `record -- COMMAND` of a service with logins: what it draws and which time it reads is the same
//! in a replay, however much later that is.

use std::process::Command;
use std::time::{Duration, Instant};

use super::inside_extension;
use hindcast_tests::http::Client;
use hindcast_tests::{Finished, Process, Stage, repository};

const SCHEMA: &str = "CREATE TABLE session (token text PRIMARY KEY, person text NOT NULL, expires timestamptz NOT NULL);
    CREATE TABLE note (id uuid PRIMARY KEY, person text NOT NULL, text text NOT NULL, written timestamptz NOT NULL)";

const CLIENTS: usize = 6;
const NOTES: usize = 4;
/// Of a session.
const LIFETIME: Duration = Duration::from_secs(12);

/// The service's Python, with what the example of Python needs.
fn python() -> String {
    let install = repository("examples/python/run.sh");
    let status = Command::new(install).arg("--install").status();
    assert!(status.expect("bash is there").success());
    let python = repository("examples/python/.venv/bin/python");
    python.display().to_string()
}

/// Clients at a time, each of which logs in, writes notes and reads them. Returns when the last
/// session begins to be too old.
fn record(stage: &Stage, more: &[&str]) -> Instant {
    record_with(stage, more, &[])
}

fn record_with(stage: &Stage, more: &[&str], environment: &[(&str, &str)]) -> Instant {
    let mut command = stage.hindcast(&["record", "--base", "template"]);
    command
        .args(more)
        .arg("--trace")
        .arg(stage.trace())
        .arg("--")
        .arg(python())
        .arg(repository("tests/services/notes.py"))
        .arg(stage.service_port.to_string())
        .env("DATABASE_URL", stage.database_url())
        .env("LIFETIME", LIFETIME.as_secs().to_string())
        .envs(environment.iter().copied());
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    let address = format!("127.0.0.1:{}", stage.service_port);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let address = address.clone();
            scope.spawn(move || write_notes(&address, number));
        }
    });
    let expired = Instant::now() + LIFETIME;
    recorder.interrupt().assert_code(0);
    expired
}

fn write_notes(address: &str, number: usize) {
    let mut client = Client::new(address);
    let answer = client.send("POST", &format!("/login/person-{number}"), None);
    let answer = answer.unwrap();
    let cookie = answer.headers["set-cookie"].to_str().unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let mut ask = |method, target: &str| {
        let answer = client.send_with(method, target, &[("cookie", cookie)], None);
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        answer.json()
    };
    for note in 0..NOTES {
        ask("POST", &format!("/note/{number}-{note}"));
    }
    assert_eq!(ask("GET", "/notes").as_array().unwrap().len(), NOTES);
}

fn replay(stage: &Stage, more: &[&str]) -> Finished {
    let mut command = stage.hindcast(&["replay", "--trace"]);
    command
        .arg(stage.trace())
        .args(more)
        .env("HINDCAST_POSTGRES", stage.database_url())
        .env("DATABASE_URL", stage.database_url());
    Process::start("replay", command, stage.folder()).wait()
}

#[test]
fn logins_are_replayed_with_their_sessions_after_these_have_expired() {
    let stage = Stage::new("pins", SCHEMA);
    let expired = record(&stage, &[]);
    let requests = format!("{} requests", CLIENTS * (NOTES + 2));
    while Instant::now() < expired {
        std::thread::sleep(Duration::from_millis(100));
    }
    let whole = replay(&stage, &[]).assert_code(0);
    assert!(whole.stdout.contains("faithful"), "{}", whole.stdout);
    assert!(whole.stdout.contains(&requests), "{}", whole.stdout);
}

#[test]
fn what_the_database_draws_is_what_it_drew() {
    let schema = SCHEMA.replace(
        "id uuid PRIMARY KEY",
        "id uuid PRIMARY KEY DEFAULT gen_random_uuid()",
    );
    let stage = Stage::new("drawn", &schema);
    record_with(&stage, &[], &[("DRAWN_BY", "database")]);
    let whole = replay(&stage, &[]).assert_code(0);
    assert!(whole.stdout.contains("faithful"), "{}", whole.stdout);
}

/// A rewound database has another name on its server. Applications look for their tables in
/// `information_schema`, by the name that they have connected to.
#[test]
fn the_database_has_its_recorded_name_where_the_service_asks() {
    let schema = format!(
        "{SCHEMA};
         CREATE TABLE told (name text, own bigint);
         CREATE FUNCTION note_told() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO told SELECT min(table_catalog), count(*) FROM information_schema.tables
                 WHERE table_catalog = current_database() AND table_catalog = current_catalog AND table_schema = 'public'; RETURN NEW; END $$;
         CREATE TRIGGER told AFTER INSERT ON note FOR EACH ROW EXECUTE FUNCTION note_told()"
    );
    let stage = Stage::new("named", &schema);
    record(&stage, &[]);
    let told = stage.sql("SELECT DISTINCT name = current_database(), own FROM told");
    assert_eq!(told.trim(), "t|3");
    let original = stage.database_url();
    let whole = replay(&stage, &["--compare-with", &original]).assert_code(0);
    assert!(whole.stdout.contains("faithful"), "{}", whole.stdout);
}

/// The rows of a trigger: no result shows their keys, their times or what was drawn for them.
#[test]
fn what_the_database_drew_and_nobody_saw_is_drawn_again_where_the_extension_told() {
    let schema = format!(
        "{SCHEMA};
         CREATE TABLE event (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, number serial, key uuid DEFAULT gen_random_uuid(),
             at timestamptz DEFAULT clock_timestamp(), lot float8, person text);
         CREATE FUNCTION note_event() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO event (lot, person) VALUES (random(), NEW.person); RETURN NEW; END $$;
         CREATE TRIGGER event AFTER INSERT ON note FOR EACH ROW EXECUTE FUNCTION note_event();
         CREATE TRIGGER event AFTER INSERT ON session FOR EACH ROW EXECUTE FUNCTION note_event()"
    );
    let stage = inside_extension::stage("told-draws", &schema, &[]);
    record(&stage, &[]);
    let events = "SELECT count(*), count(DISTINCT id), count(DISTINCT lot) FROM event";
    let all = CLIENTS * (NOTES + 1);
    assert_eq!(stage.sql(events).trim(), format!("{all}|{all}|{all}"));
    let original = stage.database_url();
    let whole = replay(&stage, &["--compare-with", &original]).assert_code(0);
    let state = format!("final state: 3 tables with {} rows, as recorded", 2 * all);
    assert!(whole.stdout.contains("faithful"), "{}", whole.stdout);
    assert!(whole.stdout.contains(&state), "{}", whole.stdout);
}

#[test]
fn what_is_read_from_the_clock_behind_an_answer_is_read_again() {
    let schema = format!("{SCHEMA}; CREATE TABLE answered (text text, at bigint)");
    let stage = inside_extension::stage("afterwards", &schema, &[]);
    record_with(&stage, &[], &[("AFTERWARDS", "1")]);
    let times = stage.sql("SELECT count(DISTINCT at) FROM answered");
    let times: usize = times.trim().parse().unwrap();
    assert_eq!(times, 2 * CLIENTS * NOTES);
    let original = stage.database_url();
    let whole = replay(&stage, &["--compare-with", &original]).assert_code(0);
    let rows = CLIENTS * (NOTES + 1) + times;
    let state = format!("final state: 3 tables with {rows} rows, as recorded");
    assert!(whole.stdout.contains("faithful"), "{}", whole.stdout);
    assert!(whole.stdout.contains(&state), "{}", whole.stdout);
}

/// Its clock would be ahead of what requests read by as much as it starts more slowly.
#[test]
fn a_service_that_starts_more_slowly_has_the_time_of_its_requests() {
    starts_slowly("slow-start", &[]);
}

/// Servers with workers listen before their workers are loaded.
#[test]
fn a_service_that_listens_before_it_starts_has_the_time_of_its_requests() {
    starts_slowly("slow-workers", &["first"]);
}

fn starts_slowly(name: &str, more: &[&str]) {
    let stage = Stage::new(name, SCHEMA);
    let mut command = stage.hindcast(&["record", "--base", "template"]);
    command
        .arg("--trace")
        .arg(stage.trace())
        .args(["--", "python3"])
        .arg(repository("tests/services/late.py"))
        .arg(stage.service_port.to_string())
        .arg(stage.folder().join("has-started"))
        .args(more)
        .env("DATABASE_URL", stage.database_url());
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
    for _ in 0..4 {
        assert_eq!(client.send("GET", "/", None).unwrap().text(), "on time");
    }
    recorder.interrupt().assert_code(0);
    let whole = replay(&stage, &[]).assert_code(0);
    assert!(whole.stdout.contains("faithful"), "{}", whole.stdout);
}

/// Draws are pinned; the number of the process and the order of its requests are not.
#[test]
fn ids_that_go_by_the_process_are_learned() {
    let stage = inside_extension::stage(
        "counted",
        &format!("{SCHEMA}; CREATE TABLE kept (id uuid PRIMARY KEY)"),
        &[],
    );
    record_with(&stage, &[], &[("DRAWN_BY", "process")]);
    let whole = replay(&stage, &["--json"]).assert_code(0).stdout;
    let verdict: serde_json::Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(verdict["faithful"], true, "{verdict}");
    // No answer showed those of this table.
    assert_eq!(
        verdict["final_state"]["drawn"],
        serde_json::json!(["public.kept"]),
        "{verdict}"
    );
    let remarks = verdict["remarks"].as_array().unwrap();
    let learned = remarks.iter().find(|one| one["remark"] == "learned");
    let requests = CLIENTS * (NOTES + 1);
    assert_eq!(learned.unwrap()["requests"], requests, "{verdict}");
    let told = replay(&stage, &[]).assert_code(0).stdout;
    assert!(told.contains("depend on more than a request"), "{told}");
}

#[test]
fn without_pins_a_replay_goes_on_with_what_the_service_draws() {
    let stage = Stage::new("no-pins", SCHEMA);
    record(&stage, &["--no-pins"]);
    // Numbers that a service draws are not learned, nor is the order of a set.
    let drawn = ["json:/lot", "json:/error", "json:/may"];
    let drawn: Vec<&str> = drawn.iter().flat_map(|one| ["--ignore", one]).collect();
    let whole = replay(&stage, &drawn).assert_code(0).stdout;
    assert!(whole.contains("faithful"), "{whole}");
    // The session of each is put into all of its requests but the login.
    let requests = CLIENTS * (NOTES + 1);
    let learned = format!("{CLIENTS} values were learned from responses and put into {requests}");
    assert!(whole.contains(&learned), "{whole}");
}
