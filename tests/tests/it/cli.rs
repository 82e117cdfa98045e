//! What a user of the command sees when all is well, and when something is not: every message has a
//! cause and a next step, every failure an exit code, and nothing is left running.

use std::process::Command;

use hindcast_tests::{Finished, Process, Stage, http, program};

const SUCCESS: i32 = 0;
const DIVERGED: i32 = 1;
const USAGE: i32 = 2;
const FAILED: i32 = 3;

/// The Moodle service, which loads its tables by itself.
struct Moodle {
    stage: Stage,
}

impl Moodle {
    fn new(name: &str) -> Self {
        let stage = Stage::new(name, "SELECT 1");
        let mut load = Command::new(program("hindcast-workload"));
        load.args([
            "load",
            "moodle",
            "--scale",
            "0.01",
            "--database-url",
            &stage.database_url(),
        ]);
        Process::start("load", load, stage.folder())
            .wait()
            .assert_code(SUCCESS);
        Self { stage }
    }

    fn command(&self, variant: &str) -> String {
        format!(
            "exec {} serve moodle --listen 127.0.0.1:{} --database-url {} --variant {variant}",
            program("hindcast-workload").display(),
            self.stage.service_port,
            self.stage.gateway_url()
        )
    }

    fn start(&self) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", &self.command("original")]);
        self.stage.start_service(command)
    }

    /// Subscribes users 1 to `count` to forum 1, one after the other.
    fn subscribe(&self, count: u32) {
        self.subscribe_from(1, count);
    }

    fn subscribe_from(&self, first: u32, last: u32) {
        let mut client = http::Client::new(self.stage.ingress());
        for user in first..=last {
            let body = format!("{{\"userid\":{user},\"forum\":1}}");
            let response = client
                .send("POST", "/subscribe", Some(&body))
                .expect("the service answers");
            assert!(
                response.status < 300,
                "{}: {}",
                response.status,
                response.text()
            );
        }
    }

    fn recorded(name: &str, requests: u32) -> Self {
        let moodle = Self::new(name);
        let recorder = moodle.stage.record(&[]);
        let service = moodle.start();
        moodle.subscribe(requests);
        service.stop();
        recorder.interrupt().assert_code(SUCCESS);
        moodle
    }

    fn trace(&self) -> String {
        self.stage.trace().display().to_string()
    }
}

/// The parts of a message that every failure has.
#[track_caller]
fn assert_error(finished: &Finished, code: i32, parts: &[&str]) {
    assert_eq!(
        finished.code,
        Some(code),
        "{}\n{}",
        finished.stdout,
        finished.stderr
    );
    for part in parts {
        assert!(
            finished.stderr.contains(part),
            "no {part:?} in:\n{}",
            finished.stderr
        );
    }
}

fn record_at(stage: &Stage, postgres: &str, listen: u16) -> Finished {
    let trace = stage.trace();
    stage.run(
        "record-refused",
        &[
            "record",
            "--listen",
            &format!("127.0.0.1:{listen}"),
            "--app",
            "http://127.0.0.1:9",
            "--pg-listen",
            "127.0.0.1:0",
            "--postgres",
            postgres,
            "--trace",
            &trace.display().to_string(),
        ],
    )
}

#[test]
fn a_wrong_database_url_is_refused_with_what_to_check() {
    let stage = Stage::new("wrong-url", "SELECT 1");
    let nobody = "postgres://postgres@127.0.0.1:9/app";
    assert_error(
        &record_at(&stage, nobody, 0),
        FAILED,
        &[
            "Error: cannot record",
            "127.0.0.1:9",
            "Hint: check host and port",
        ],
    );
    let missing = stage.database_url().replace("/app", "/nothere");
    assert_error(
        &record_at(&stage, &missing, 0),
        FAILED,
        &["nothere", "Hint: check the database's name"],
    );
    assert_error(
        &record_at(&stage, "mysql://x/y", 0),
        USAGE,
        &["Error: --postgres"],
    );
}

#[test]
fn an_address_in_use_is_named() {
    let stage = Stage::new("in-use", "SELECT 1");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("there are free ports");
    let port = taken.local_addr().expect("it is bound").port();
    assert_error(
        &record_at(&stage, &stage.database_url(), port),
        FAILED,
        &[&format!("127.0.0.1:{port} is in use"), "Hint: "],
    );
}

#[test]
fn what_is_not_there_is_named_with_where_to_look() {
    let moodle = Moodle::recorded("not-there", 3);
    let (stage, trace) = (&moodle.stage, moodle.trace());
    let nowhere = stage.folder().join("nowhere").display().to_string();
    assert_error(
        &stage.run("ls-nowhere", &["ls", "--trace", &nowhere]),
        FAILED,
        &["cannot open the recording", "Hint: "],
    );
    assert_error(
        &stage.run("ls-beyond", &["ls", "--trace", &trace, "--from", "99"]),
        FAILED,
        &["no such requests", "3 requests"],
    );
    assert_error(
        &stage.run("show-beyond", &["show", "--trace", &trace, "99"]),
        FAILED,
        &["request 99 is not in the recording", "Hint: `hindcast ls`"],
    );
    assert_error(
        &stage.run("show-what", &["show", "--trace", &trace, "seven"]),
        USAGE,
        &["neither a request nor a transaction"],
    );
    let beyond = stage.replay_app("true", &["--from", "2", "--to", "99"]);
    assert_error(
        &beyond,
        FAILED,
        &[
            "request 99 is not in the recording, which has requests 1 to 3",
            "Hint: ",
        ],
    );
    assert_error(
        &stage.replay_app("true", &["--from", "3", "--to", "2"]),
        FAILED,
        &["before it begins"],
    );
    assert_error(
        &stage.replay_app("true", &["--ignore", "cookies"]),
        USAGE,
        &["header:NAME"],
    );
}

#[test]
fn a_recording_can_be_looked_into() {
    let moodle = Moodle::recorded("look", 2);
    let (stage, trace) = (&moodle.stage, moodle.trace());
    let list = stage
        .run("ls", &["ls", "--trace", &trace])
        .assert_code(SUCCESS);
    assert_eq!(list.stdout.lines().count(), 3, "{}", list.stdout);
    assert!(
        list.stdout
            .lines()
            .nth(1)
            .is_some_and(|line| line.contains("POST /subscribe")),
        "{}",
        list.stdout
    );
    let lines = stage
        .run("ls-json", &["ls", "--trace", &trace, "--json"])
        .assert_code(SUCCESS);
    let first: serde_json::Value =
        serde_json::from_str(lines.stdout.lines().next().unwrap_or_default()).expect("JSON lines");
    assert_eq!(first["request"], "1");
    assert_eq!(first["transactions"], 2);
    let request = stage
        .run("show", &["show", "--trace", &trace, "2"])
        .assert_code(SUCCESS);
    for part in [
        "request 2: POST /subscribe",
        "2 transactions",
        "REPEATABLE READ",
        "by a comment in its SQL",
        "mdl_forum_subscriptions",
        "wrote as transaction id",
    ] {
        assert!(
            request.stdout.contains(part),
            "no {part:?} in:\n{}",
            request.stdout
        );
    }
    let transaction = stage
        .run("show-t", &["show", "--trace", &trace, "t1"])
        .assert_code(SUCCESS);
    assert!(
        transaction
            .stdout
            .contains("saw every transaction id below"),
        "{}",
        transaction.stdout
    );
}

#[test]
fn every_range_replays_and_a_verdict_can_be_read_by_programs() {
    let moodle = Moodle::recorded("ranges", 5);
    for (from, to) in [("1", "5"), ("2", "3"), ("5", "5")] {
        let verdict = moodle
            .stage
            .replay_app(
                &moodle.command("original"),
                &["--from", from, "--to", to, "--json"],
            )
            .assert_code(SUCCESS);
        let verdict: serde_json::Value =
            serde_json::from_str(&verdict.stdout).expect("the verdict is JSON");
        assert_eq!(verdict["faithful"], true, "{verdict}");
        assert_eq!(verdict["divergence_count"], 0);
    }
    moodle
        .stage
        .replay_app(&moodle.command("original"), &["--sequential"])
        .assert_code(SUCCESS);
}

#[test]
fn changed_code_diverges_at_a_named_place() {
    let moodle = Moodle::recorded("changed", 3);
    let merged = moodle.stage.replay_app(&moodle.command("merged"), &[]);
    assert_eq!(
        merged.code,
        Some(DIVERGED),
        "{}\n{}",
        merged.stdout,
        merged.stderr
    );
    for part in [
        "Verdict: diverged",
        "(request 1, POST /subscribe), statement 3 of 3",
        "Expected: ",
        "Actual: ",
        "Hint: ",
    ] {
        assert!(
            merged.stdout.contains(part),
            "no {part:?} in:\n{}",
            merged.stdout
        );
    }
}

#[test]
fn a_service_that_does_not_start_or_dies_is_reported_with_its_last_words() {
    let moodle = Moodle::recorded("dying", 3);
    let stage = &moodle.stage;
    assert_error(
        &stage.replay_app("echo no configuration >&2; exit 7", &[]),
        FAILED,
        &[
            "the service ended before it listened",
            "exit status 7",
            "no configuration",
            "Hint: ",
        ],
    );
    // It listens, and dies of its first request.
    let listens_once = format!(
        "exec python3 -c \"import socket,sys;s=socket.create_server(('127.0.0.1',{}));\nwhile 1:\n c=s.accept()[0]\n if c.recv(10):\n  sys.exit('out of luck')\"",
        stage.service_port
    );
    let dead = stage.replay_app(&listens_once, &[]);
    assert_eq!(
        dead.code,
        Some(DIVERGED),
        "{}\n{}",
        dead.stdout,
        dead.stderr
    );
    assert!(
        dead.stdout.contains("out of luck") || dead.stdout.contains("a response"),
        "{}",
        dead.stdout
    );
}

#[test]
fn nothing_can_be_replayed_without_a_base() {
    let moodle = Moodle::new("no-base");
    let stage = &moodle.stage;
    let mut command = stage.hindcast(&["record"]);
    command
        .args([
            "--listen",
            &stage.ingress(),
            "--app",
            &format!("http://127.0.0.1:{}", stage.service_port),
        ])
        .args([
            "--pg-listen",
            &format!("127.0.0.1:{}", stage.gateway_port),
            "--postgres",
            &stage.database_url(),
        ])
        .args(["--trace", &moodle.trace()]);
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.ingress_port);
    let service = moodle.start();
    moodle.subscribe(1);
    service.stop();
    recorder.interrupt().assert_code(SUCCESS);
    assert_error(
        &stage.replay_app("true", &[]),
        FAILED,
        &["no base", "Hint: take one with `hindcast base`"],
    );
}

#[test]
fn a_killed_recorder_leaves_a_recording_that_says_so() {
    let moodle = Moodle::new("killed");
    let stage = &moodle.stage;
    let recorder = stage.record(&["--durable"]);
    let service = moodle.start();
    moodle.subscribe(3);
    recorder.kill();
    service.stop();
    let list = stage
        .run("ls", &["ls", "--trace", &moodle.trace()])
        .assert_code(SUCCESS);
    // Durable: every answered request is there.
    assert_eq!(
        list.stdout.lines().count(),
        4,
        "{}\n{}",
        list.stdout,
        list.stderr
    );
    assert!(list.stderr.contains("Gap: "), "{}", list.stderr);
    let all = stage.replay_app(&moodle.command("original"), &[]);
    assert_eq!(all.code, Some(SUCCESS), "{}\n{}", all.stdout, all.stderr);
    assert!(
        all.stderr.contains("stopped without closing the trace"),
        "{}",
        all.stderr
    );

    // The service goes on, recorded by another recorder: whoever replays across the crash has to
    // say so.
    let recorder = stage.record(&[]);
    let service = moodle.start();
    moodle.subscribe_from(4, 6);
    service.stop();
    recorder.interrupt().assert_code(SUCCESS);
    assert_error(
        &stage.replay_app("true", &["--from", "1", "--to", "1.3"]),
        FAILED,
        &["gaps in this range", "--across-gaps"],
    );
    let across = ["--from", "1", "--to", "1.3", "--across-gaps"];
    let across = stage.replay_app(&moodle.command("original"), &across);
    assert_eq!(
        across.code,
        Some(SUCCESS),
        "{}\n{}",
        across.stdout,
        across.stderr
    );
    assert!(across.stdout.contains("note: Gap: "), "{}", across.stdout);
}

#[test]
fn a_database_is_rewound_to_before_a_request() {
    let moodle = Moodle::recorded("rewind", 2);
    let stage = &moodle.stage;
    let before = stage
        .run(
            "rewind",
            &[
                "rewind",
                "--trace",
                &moodle.trace(),
                "--postgres",
                &stage.database_url(),
                "--before",
                "1",
                "--json",
            ],
        )
        .assert_code(SUCCESS);
    let before: serde_json::Value = serde_json::from_str(&before.stdout).expect("JSON");
    let database = before["url"]
        .as_str()
        .and_then(|url| url.rsplit_once('/'))
        .expect("a URL")
        .1
        .to_owned();
    let count = "SELECT count(*) FROM mdl_forum_subscriptions";
    let (then, now): (i64, i64) = (
        stage.sql_in(&database, count).trim().parse().unwrap(),
        stage.sql(count).trim().parse().unwrap(),
    );
    assert_eq!(now - then, 2);
    // A template cannot be brought further by itself.
    let later = stage.run(
        "rewind-later",
        &[
            "rewind",
            "--trace",
            &moodle.trace(),
            "--postgres",
            &stage.database_url(),
            "--before",
            "2",
        ],
    );
    assert_error(&later, FAILED, &["just before request 1", "Hint: "]);
}

#[test]
fn what_belongs_to_no_request_runs_as_a_ghost() {
    let moodle = Moodle::new("ghosts");
    let stage = &moodle.stage;
    let recorder = stage.record(&["--isolation", "repeatable-read"]);
    let service = moodle.start();
    let psql = |name: &str, statements: &[&str]| {
        let mut command = Command::new(stage.cluster.binaries().program("psql"));
        command.args(["-v", "ON_ERROR_STOP=1", &stage.gateway_url()]);
        for statement in statements {
            command.args(["-c", statement]);
        }
        Process::start(name, command, stage.folder())
            .wait()
            .assert_code(SUCCESS);
    };
    moodle.subscribe(2);
    psql(
        "psql-session",
        &[
            "SET search_path = pg_temp, public",
            "CREATE TEMPORARY TABLE wanted (userid bigint)",
            "INSERT INTO wanted VALUES (31), (32)",
            "INSERT INTO public.mdl_forum_subscriptions (userid, forum) SELECT userid, 1 FROM wanted",
        ],
    );
    moodle.subscribe_from(3, 4);
    psql(
        "psql-block",
        &[
            "BEGIN; UPDATE mdl_forum_subscriptions SET forum = 2 WHERE userid = 31; SAVEPOINT s; DELETE FROM mdl_forum_subscriptions; \
             ROLLBACK TO s; COMMIT",
        ],
    );
    // It finds the recorded database's name, unless it changes something about that database.
    let name = stage.sql("SELECT current_database()");
    let named = format!(
        "INSERT INTO mdl_forum_subscriptions (userid, forum) SELECT 33, 1 WHERE current_database() = '{}'",
        name.trim()
    );
    psql("psql-named", &[&named]);
    psql(
        "psql-alters",
        &[
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 777', current_database()); END $$",
        ],
    );
    let mut client = http::Client::new(stage.ingress());
    let list = client
        .send("GET", "/forums/1/subscribers", None)
        .expect("the service answers");
    for user in ["user000032", "user000033"] {
        assert!(list.text().contains(user), "{}", list.text());
    }
    service.stop();
    recorder.interrupt().assert_code(SUCCESS);
    stage.sql(&format!("ALTER DATABASE {} RESET work_mem", name.trim()));

    let verdict = stage
        .replay_app(&moodle.command("original"), &["--json"])
        .assert_code(SUCCESS);
    let verdict: serde_json::Value = serde_json::from_str(&verdict.stdout).expect("JSON");
    assert_eq!(verdict["faithful"], true, "{verdict}");
    assert!(verdict["counts"]["ghosts"].as_u64() >= Some(6), "{verdict}");
    assert_eq!(verdict["final_state"]["state"], "same", "{verdict}");
    let own = "SELECT count(*) FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase \
               WHERE datname = current_database()";
    assert_eq!(stage.sql(own).trim(), "0");
}

#[test]
fn help_is_as_it_was_written_and_on_standard_output() {
    let stage = Stage::new("help", "SELECT 1");
    let help = stage
        .run("help", &["record", "--help"])
        .assert_code(SUCCESS);
    for flag in ["--key <FILE>", "--secrets-key <FILE>"] {
        assert!(help.stdout.contains(flag), "{}", help.stdout);
    }
    assert_eq!(help.stderr, "");
}

/// `hindcast … | head`: what it did is done, and nobody reads that.
#[test]
fn who_stops_reading_is_no_fault() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    let mut made = Command::new(program("hindcast"));
    made.args(["key", "new"]).arg(folder.path().join("key"));
    let status = made.stdout(nobody()).stderr(nobody()).status().unwrap();
    assert!(status.success(), "{status}");
    let mut shown = Command::new(program("hindcast"));
    shown.args(["key", "show"]).arg(folder.path().join("none"));
    let status = shown.stdout(nobody()).stderr(nobody()).status().unwrap();
    // What went wrong is said to nobody, but by this.
    assert_eq!(status.code(), Some(3));
}

/// No value is none that could be a password: what was given is repeated as it is.
#[test]
fn a_url_without_a_value_is_told_so_in_plain_words() {
    let mut command = Command::new(program("hindcast"));
    command.args(["replay", "--trace", "here", "--postgres"]);
    let finished = Process::start("usage", command, tempfile::tempdir().unwrap().path()).wait();
    let said = "a value is required for '--postgres <URL>'";
    assert_error(&finished, USAGE, &[said]);
}
