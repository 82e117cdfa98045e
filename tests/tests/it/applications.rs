//! Applications as people run them, their frameworks unmodified: logins, sessions, forms and writes
//! by several users at once, recorded by a word in front of the command and replayed.
//!
//! An application is a folder in `tests/applications` with a program `run`, which says what it
//! does. `bench/applications.py` measures the same ones.

use std::process::Command;

use hindcast_tests::{Finished, Process, Stage, repository};

use super::inside_extension;

/// How often a recording has to be replayed without a difference.
const REPLAYS: usize = 3;

struct Application {
    stage: Stage,
    run: std::path::PathBuf,
}

impl Application {
    /// Installs it, and makes its tables.
    fn new(name: &str) -> Self {
        let run = repository(&format!("tests/applications/{name}/run"));
        let application = Self {
            stage: inside_extension::stage(name, "", &[]),
            run,
        };
        application.command("install");
        application.command("prepare");
        application
    }

    fn serve(&self) -> [String; 3] {
        let port = self.stage.service_port.to_string();
        [self.run.display().to_string(), "serve".to_owned(), port]
    }

    fn command(&self, what: &str) {
        let mut command = Command::new(&self.run);
        command
            .arg(what)
            .arg(self.stage.service_port.to_string())
            .env("DATABASE_URL", self.stage.database_url());
        Process::start(what, command, self.stage.folder())
            .wait()
            .assert_code(0);
    }

    fn record(&self) {
        let mut command = self.stage.hindcast(&["record", "--base", "template"]);
        command
            .arg("--trace")
            .arg(self.stage.trace())
            .arg("--")
            .args(self.serve())
            .env("DATABASE_URL", self.stage.database_url());
        let mut recorder = Process::start("record", command, self.stage.folder());
        recorder.wait_until_it_listens(self.stage.service_port);
        self.command("load");
        recorder.interrupt().assert_code(0);
    }

    fn replay(&self) -> Finished {
        self.again("replay", &["--keep-going"])
    }

    /// A retroaction of the application with this in its environment.
    fn retro(&self, environment: &str, more: &[&str]) -> Finished {
        let app = format!("{environment} exec {}", self.serve().join(" "));
        self.again("retro", &[&["--app", &app], more].concat())
    }

    fn again(&self, what: &str, more: &[&str]) -> Finished {
        let mut command = self.stage.hindcast(&[what, "--trace"]);
        command
            .arg(self.stage.trace())
            .args(more)
            .env("HINDCAST_POSTGRES", self.stage.database_url())
            .env("DATABASE_URL", self.stage.database_url());
        Process::start(what, command, self.stage.folder()).wait()
    }
}

/// It is replayed faithfully each time, and where a line of it is changed, so many responses are
/// others, all to requests of one kind.
fn is_replayed_each_time(name: &str, requests: &str, changed: u64, kind: &str) -> Application {
    let application = Application::new(name);
    application.record();
    for _ in 0..REPLAYS {
        let replayed = application.replay().assert_code(0).stdout;
        assert!(replayed.contains("Verdict: faithful"), "{replayed}");
        assert!(replayed.contains(requests), "{replayed}");
    }
    let report = application.retro("CHANGED=1", &["--json"]).assert_code(0);
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(report["counts"]["responses_changed"], changed);
    let changed = report["responses"]["changed"].as_array().unwrap();
    assert!(changed.iter().all(|one| one["of"] == kind), "{changed:?}");
    application
}

/// What lists show is changed. Each user has asked for three.
#[test]
fn django_with_logins_is_replayed_each_time() {
    is_replayed_each_time("django", "136 requests", 24, "GET /admin/notes/note/");
}

/// Passwords are hashed in the program itself, which looks at the clock in each round.
#[test]
fn next_with_logins_is_replayed_each_time() {
    is_replayed_each_time("next", "160 requests", 24, "GET /api/notes");
}

/// It asks for several things at a time.
#[test]
fn nest_with_logins_is_replayed_each_time() {
    is_replayed_each_time("nest", "168 requests", 24, "GET /notes");
}

/// Hibernate takes 50 ids from the database at a time, and a request has the next one; a cache
/// shows what another request has put there, for a second. Each user writes eight notes.
#[test]
fn spring_with_logins_is_replayed_each_time_and_gives_no_id_twice() {
    let application = is_replayed_each_time("spring", "400 requests", 64, "GET /notes");
    // Changed code that writes each note twice has new ids for what it did not write before.
    let check = "SELECT id, text FROM note WHERE text NOT LIKE 'again%' ORDER BY id";
    let report = application.retro("TWICE=1", &["--check", check, "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report.assert_code(0).stdout).unwrap();
    let [before, after] = ["before", "after"].map(|side| &report["checks"][0][side]);
    assert_eq!((before, &before["count"]), (after, &64.into()), "{report}");
    let changed = report["responses"]["changed"].as_array().unwrap();
    let of = |kind: &str| changed.iter().filter(|one| one["of"] == kind).count();
    assert_eq!(of("GET /notes"), 64, "{changed:?}");
    assert_eq!(64 + of("GET /statistics"), changed.len(), "{changed:?}");
}

/// It makes its tables when it starts, has passwords hashed in native code, and asks itself once.
/// What a change touches is not reported exactly each time, so that is not asked for.
#[test]
fn parse_with_logins_is_replayed_each_time() {
    let application = Application::new("parse");
    application.record();
    for _ in 0..REPLAYS {
        let replayed = application.replay().assert_code(0).stdout;
        assert!(replayed.contains("Verdict: faithful"), "{replayed}");
        assert!(replayed.contains("273 requests"), "{replayed}");
    }
}

/// Go makes its system calls itself, and has threads of its own.
#[test]
fn go_with_logins_is_replayed_each_time() {
    let application = is_replayed_each_time("go", "248 requests", 32, "GET /notes");
    let index = application.stage.folder().join("index.sql");
    std::fs::write(&index, "CREATE INDEX ON note (text)").unwrap();
    let index = index.display().to_string();
    let index = application.again("retro", &["--migrate", &index, "--json"]);
    let index: serde_json::Value = serde_json::from_str(&index.assert_code(0).stdout).unwrap();
    let counts = &index["counts"];
    let differ = (&counts["responses_changed"], &counts["changed"]);
    assert_eq!(differ, (&0.into(), &0.into()), "{index}");
}

/// Nothing can be loaded into a static program: it is recorded from outside, and what it draws in a
/// replay is learned. Two in three requests carry something that it drew.
#[test]
fn a_static_program_with_logins_is_replayed_each_time() {
    let application = Application::new("go");
    let stage = &application.stage;
    let recorder = stage.record(&[]);
    let mut command = Command::new(&application.run);
    command
        .args(["serve", &stage.service_port.to_string()])
        .env("STATIC", "1")
        .env("DATABASE_URL", stage.gateway_url());
    let service = stage.start_service(command);
    let mut load = Command::new(&application.run);
    load.args(["load", &stage.ingress_port.to_string()]);
    Process::start("load", load, stage.folder())
        .wait()
        .assert_code(0);
    service.stop();
    recorder.interrupt().assert_code(0);
    let app = |environment: &str| {
        let url = stage.gateway_url();
        let serve = application.serve().join(" ");
        format!("{environment} STATIC=1 DATABASE_URL={url} exec {serve}")
    };
    for _ in 0..REPLAYS {
        let replayed = stage.replay_app(&app(""), &["--keep-going", "--json"]);
        let verdict: serde_json::Value =
            serde_json::from_str(&replayed.assert_code(0).stdout).unwrap();
        assert_eq!(verdict["counts"]["requests"], 248, "{verdict}");
        let remarks = verdict["remarks"].as_array().unwrap();
        let learned = remarks.iter().find(|one| one["remark"] == "learned");
        // All but the first of each user: the others carry its cookie at least.
        assert_eq!(learned.unwrap()["requests"], 240, "{verdict}");
    }
    // That hides nothing else.
    let changed = stage.replay_app(&app("CHANGED=1"), &["--keep-going", "--json"]);
    let verdict: serde_json::Value = serde_json::from_str(&changed.assert_code(1).stdout).unwrap();
    assert_eq!(verdict["divergence_count"], 32, "{verdict}");
    let report = application.again("retro", &["--app", &app("CHANGED=1"), "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report.assert_code(0).stdout).unwrap();
    let changed = report["responses"]["changed"].as_array().unwrap();
    assert!(
        changed.iter().all(|one| one["of"] == "GET /notes"),
        "{changed:?}"
    );
    assert_eq!(report["counts"]["responses_changed"], 32);
}
