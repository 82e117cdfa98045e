//! `hindcast see`: psql, or any client, on what a transaction saw.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use hindcast_tests::retro::Case;
use hindcast_tests::{Finished, Process, Stage, http, wait_for};
use serde_json::Value;

use super::{inside, inside_extension};

fn start(stage: &Stage, name: &str, arguments: &[&str], input: Stdio) -> Process {
    let mut command = stage.hindcast(&["see"]);
    command
        .args(arguments)
        .env("HINDCAST_TRACE", stage.trace())
        .env("HINDCAST_POSTGRES", stage.database_url())
        .env("DATABASE_URL", stage.database_url())
        .env("WALLET_SECRET", "s3cret");
    Process::start_with(name, command, stage.folder(), input)
}

fn see(stage: &Stage, arguments: &[&str]) -> Finished {
    start(stage, "see", arguments, Stdio::null()).wait()
}

fn assert_refused(finished: &Finished, code: i32, parts: &[&str]) {
    let Finished { stdout, stderr, .. } = finished;
    assert_eq!(finished.code, Some(code), "{stdout}\n{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "no {part:?} in:\n{stderr}");
    }
    assert!(stderr.contains("Hint: "), "{stderr}");
}

fn show(stage: &Stage, request: &str, more: &[&str]) -> String {
    let trace = stage.trace().display().to_string();
    let show = [&["show", request, "--trace", &trace], more].concat();
    stage.run("show", &show).assert_code(0).stdout
}

/// The last transaction of a request, as `show` names it.
fn last(stage: &Stage, request: &str) -> String {
    let shown = show(stage, request, &[]);
    let mut lines = shown.lines().rev();
    let line = lines.find_map(|line| line.strip_prefix("transaction "));
    line.and_then(|line| line.split_once(':'))
        .unwrap()
        .0
        .to_owned()
}

/// What was answered is the balance that the request's transaction saw, or left.
#[test]
fn a_transaction_among_others_saw_what_its_request_was_answered() {
    const ROUNDS: usize = 12;
    let stage = Stage::new("see", inside::SCHEMA);
    let recorder = inside::record(&stage, &inside::command(&stage, 3));
    inside::load(&stage, ROUNDS);
    recorder.interrupt().assert_code(0);

    let (mut among_others, mut left) = (0, 0);
    for number in 1..=2 * inside::CLIENTS * ROUNDS {
        let number = number.to_string();
        let request: Value = serde_json::from_str(&show(&stage, &number, &["--json"])).unwrap();
        // The last one of a request is the one that did not fail.
        let transaction = last(&stage, &number);
        let shown: Value = serde_json::from_str(&show(&stage, &transaction, &["--json"])).unwrap();
        let others = shown["concurrent_writers"].as_array().unwrap().len();
        let target = request["request"]["target"].as_str().unwrap();
        let answer = request["request"]["response"]["Answered"]["body"]
            .as_array()
            .unwrap();
        let answer: String = answer
            .iter()
            .map(|byte| byte.as_u64().unwrap() as u8 as char)
            .collect();
        let is_post = target.matches('/').count() > 1;
        // Whether one that writes meets others is a matter of chance: it is tried out all the same.
        let alone = others == 0 && (!is_post || left >= 3);
        if alone || answer == "None" || among_others >= 8 && left >= 3 {
            continue;
        }
        among_others += usize::from(others > 0);
        left += usize::from(is_post);
        let account = target.split('/').nth(1).unwrap();
        let query = format!("SELECT balance FROM account WHERE id = {account}");
        let at = ["--statement", "end", "--", "-Atc", &query];
        let before = &at[2..];
        let at = if is_post { &at } else { before };
        let seen = see(&stage, &[&[transaction.as_str()], at].concat()).assert_code(0);
        assert_eq!(seen.stdout.trim(), answer, "{transaction} of {target}");
        let sum = "SELECT sum(balance) FROM account";
        let seen = see(&stage, &[&transaction, "--", "-Atc", sum]).assert_code(0);
        assert_eq!(seen.stdout.trim(), "1600", "{transaction}");
    }
    assert!(among_others >= 4 && left >= 1, "{among_others}, {left}");
}

/// `/slow` reads, waits for `/quick` to have written, reads again and writes.
const READ_COMMITTED: &str = r#"
import http.server, os, sys, threading, psycopg

written = threading.Event()

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        with psycopg.connect(os.environ["DATABASE_URL"]) as c:
            if self.path == "/slow":
                c.execute("SELECT count(*) FROM t WHERE true")
                written.wait(30)
                c.execute("SELECT count(*) FROM t")
                c.execute("INSERT INTO t VALUES ('slow')")
            else:
                c.execute("INSERT INTO t VALUES ('quick')")
        written.set()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

#[test]
fn under_read_committed_each_statement_is_shown_by_its_own_snapshot() {
    let stage = inside_extension::stage("see-rc", "CREATE TABLE t (who text)", &[]);
    let service = stage.folder().join("service.py");
    std::fs::write(&service, READ_COMMITTED).unwrap();
    let command = [
        inside::python(),
        service.display().to_string(),
        stage.service_port.to_string(),
    ];
    let recorder = inside::record(&stage, &command);
    let send = |target: &str| {
        let address = format!("127.0.0.1:{}", stage.service_port);
        let answer = http::Client::new(address).send("POST", target, None);
        assert_eq!(answer.unwrap().status, 200);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| send("/slow"));
        let reads = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE 'SELECT count%'";
        wait_for("it to have read", || {
            (!stage.sql(reads).is_empty()).then_some(())
        });
        send("/quick");
    });
    recorder.interrupt().assert_code(0);

    let slow = last(&stage, "1");
    let shown = show(&stage, &slow, &[]);
    assert!(shown.contains("READ COMMITTED"), "{shown}");
    assert!(
        shown.contains("  saw from statement 3 on every transaction id"),
        "{shown}"
    );
    let saw = |more: &[&str]| {
        let who = "SELECT string_agg(who, ' ' ORDER BY who) FROM t";
        let seen = see(
            &stage,
            &[&[slow.as_str()], more, &["--", "-Atc", who]].concat(),
        );
        let seen = seen.assert_code(0);
        assert!(!seen.stderr.contains("READ COMMITTED"), "{}", seen.stderr);
        seen.stdout.trim().to_owned()
    };
    // BEGIN, SELECT, SELECT, INSERT, COMMIT
    assert_eq!(saw(&[]), "");
    assert_eq!(saw(&["--statement", "2"]), "");
    assert_eq!(saw(&["--statement", "3"]), "quick");
    assert_eq!(saw(&["--statement", "4"]), "quick");
    assert_eq!(saw(&["--statement", "end"]), "quick slow");
}

/// Three subscriptions one after the other, the last of them twice at once.
fn recorded() -> Case {
    Case::recorded("moodle", "0.01", |case| {
        let body = |user: u32| format!("{{\"userid\":{user},\"forum\":1}}");
        for user in [1, 2] {
            let answer = case.client().send("POST", "/subscribe", Some(&body(user)));
            assert!(answer.unwrap().status < 300);
        }
        case.both_wait_for("mdl_forum_subscriptions", || {
            let both = ("/subscribe", &*body(3));
            assert_eq!(case.both(both, both), [201, 201]);
        });
    })
}

/// The transactions that insert, in order.
fn inserts(stage: &Stage) -> Vec<String> {
    (1..=4)
        .map(|request| last(stage, &request.to_string()))
        .collect()
}

const SUBSCRIBED: &str =
    "SELECT count(*) FROM mdl_forum_subscriptions WHERE userid <= 3 AND forum = 1";

#[test]
fn psql_is_opened_on_any_of_its_statements() {
    let case = recorded();
    let stage = &case.stage;
    let app = case.service("original");
    let inserts = inserts(stage);
    let before: u32 = stage.sql(SUBSCRIBED).trim().parse().unwrap();
    let count = |more: &[&str]| {
        let arguments = [more, &["--app", &app, "--", "-Atc", SUBSCRIBED]].concat();
        let seen = see(stage, &arguments).assert_code(0);
        seen.stdout.trim().parse::<u32>().unwrap()
    };
    // Neither of the two that raced saw the other.
    assert_eq!(count(&[&inserts[2]]), before - 2);
    assert_eq!(count(&[&inserts[3]]), before - 2);
    assert_eq!(count(&[&inserts[3], "--statement", "end"]), before - 1);
    // BEGIN, INSERT, COMMIT
    assert_eq!(count(&[&inserts[1], "--statement", "2"]), before - 3);
    assert_eq!(count(&[&inserts[1], "--statement", "3"]), before - 2);
    case.nothing_is_left();

    // It reads what psql reads, and ends as psql does.
    let script = stage.folder().join("script.sql");
    std::fs::write(&script, "SELECT 'from ' || 'a file'; SELECT wrong;").unwrap();
    let input = std::fs::File::open(&script).unwrap();
    let piped = start(stage, "piped", &[&inserts[0], "--app", &app], input.into());
    let piped = piped.wait().assert_code(0);
    assert!(piped.stdout.contains("from a file"), "{}", piped.stdout);
    let heading = format!("The database as {} of request 1 saw it", inserts[0]);
    assert!(piped.stderr.contains(&heading), "{}", piped.stderr);
    let wrong = ["--app", &app, "--", "-c", "SELECT wrong"];
    let wrong = see(stage, &[&[inserts[0].as_str()], &wrong[..]].concat());
    assert!(
        wrong.stderr.contains("\"wrong\" does not exist"),
        "{}",
        wrong.stderr
    );
    wrong.assert_code(1);
    case.nothing_is_left();
}

/// The database that is offered.
fn offered(process: &mut Process) -> String {
    let [out, _] = process.output_files();
    process.wait_until("a URL", || {
        let text = std::fs::read_to_string(&out).ok()?;
        let offered: Value = serde_json::from_str(&text).ok()?;
        let database = offered["url"].as_str()?.rsplit_once('/')?.1;
        Some(database.to_owned())
    })
}

#[test]
fn what_is_offered_by_its_url_is_there_until_it_ends() {
    let case = recorded();
    let stage = &case.stage;
    let app = case.service("original");
    let inserts = inserts(stage);
    let offer = |name: &str, more: &[&str]| {
        let arguments = [&[inserts[1].as_str(), "--app", &app, "--json"], more].concat();
        start(stage, name, &arguments, Stdio::null())
    };
    let expected = stage.sql(SUBSCRIBED).trim().parse::<u32>().unwrap() - 3;
    for signal in ["INT", "TERM"] {
        let mut running = offer(signal, &[]);
        let database = offered(&mut running);
        for _ in 0..2 {
            assert_eq!(
                stage.sql_in(&database, SUBSCRIBED).trim(),
                expected.to_string()
            );
        }
        // It is a copy in which anything may be tried.
        stage.sql_in(&database, "DELETE FROM mdl_forum_subscriptions");
        running.signal_alone(signal);
        running.wait().assert_code(0);
        case.nothing_is_left();
    }
    // What a killed one leaves is removed by the next.
    let mut running = offer("killed", &[]);
    let database = offered(&mut running);
    running.kill();
    let kept = offer("kept", &["--keep"]);
    let mut kept = kept;
    let again = offered(&mut kept);
    let there = |name: &str| {
        let query = format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'");
        stage.sql_in("postgres", &query).trim() == "1"
    };
    wait_for("the first to be gone", || (!there(&database)).then_some(()));
    kept.signal_alone("INT");
    let kept = kept.wait().assert_code(0);
    assert!(
        there(&again) && kept.stderr.contains("DROP DATABASE"),
        "{}",
        kept.stderr
    );
    stage.sql_in("postgres", &format!("DROP DATABASE \"{again}\""));
    case.nothing_is_left();
}

#[test]
fn a_signal_before_psql_ends_and_a_signal_to_it_leave_nothing() {
    let case = recorded();
    let stage = &case.stage;
    let inserts = inserts(stage);
    // A service that never listens.
    let waiting = ["--app", "exec sleep 1000", "--", "-c", "SELECT 1"];
    let mut early = start(
        stage,
        "early",
        &[&[inserts[1].as_str()], &waiting[..]].concat(),
        Stdio::null(),
    );
    early.wait_until_it_catches_interrupts();
    wait_for("a copy", || {
        let copies = "SELECT 1 FROM pg_database WHERE datname LIKE 'hindcast_rewound%'";
        (!stage.sql_in("postgres", copies).is_empty()).then_some(())
    });
    early.signal_alone("INT");
    assert!(early.wait().assert_code(3).stderr.contains("interrupted"));
    case.nothing_is_left();

    let app = case.service("original");
    for (signal, code) in [("TERM", Some(3)), ("KILL", None)] {
        let sleeping = ["--app", &app, "--", "-c", "SELECT pg_sleep(1000)"];
        let process = start(
            stage,
            signal,
            &[&[inserts[1].as_str()], &sleeping[..]].concat(),
            Stdio::null(),
        );
        let sleeps = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'";
        wait_for("psql", || {
            (!stage.sql_in("postgres", sleeps).is_empty()).then_some(())
        });
        let children = Command::new("pgrep")
            .args(["-P", &process.pid().to_string(), "psql"])
            .output()
            .unwrap();
        let psql = String::from_utf8(children.stdout).unwrap();
        assert_ne!(psql, "", "psql is a child");
        process.signal_alone(signal);
        assert_eq!(process.wait().code, code);
        wait_for("psql to end", || {
            let state = std::fs::read_to_string(format!("/proc/{}/stat", psql.trim()));
            state
                .map_or(true, |state| state.contains(") Z "))
                .then_some(())
        });
    }
}

/// A folder with all programs of the machine but one.
fn without_psql(stage: &Stage) -> PathBuf {
    let programs = stage.folder().join("programs");
    std::fs::create_dir(&programs).unwrap();
    for folder in ["/usr/bin", "/bin"] {
        for program in std::fs::read_dir(folder).unwrap() {
            let program = program.unwrap();
            if program.file_name() != "psql" {
                // What is in both is there already.
                let _ = symlink(program.path(), programs.join(program.file_name()));
            }
        }
    }
    programs
}

#[test]
fn what_cannot_be_shown_is_refused_with_a_next_step() {
    let case = recorded();
    let stage = &case.stage;
    let app = case.service("original");
    let last = inserts(stage).remove(3);
    assert_refused(
        &see(stage, &["4"]),
        2,
        &["4 is a request", "`hindcast show 4`"],
    );
    assert_refused(&see(stage, &["seven"]), 2, &["\"seven\" is no transaction"]);
    assert_refused(&see(stage, &["t999"]), 3, &["t999 is not in the recording"]);
    let statement = |number| {
        see(
            stage,
            &[last.as_str(), "--app", &app, "--statement", number],
        )
    };
    assert_refused(
        &statement("4"),
        3,
        &["has 3 statements, and no statement 4"],
    );
    let zero = statement("0").assert_code(2);
    assert!(zero.stderr.contains("from 1 on"), "{}", zero.stderr);
    assert_refused(&see(stage, &[&last]), 2, &["how is the service started?"]);

    // A changed service does something else before.
    let changed = case.service("merged");
    let arguments = [last.as_str(), "--app", &changed, "--", "-Atc", "SELECT 1"];
    let diverged = see(stage, &arguments);
    assert_refused(
        &diverged,
        1,
        &["Diverged at", "is not what was recorded", "--keep-going"],
    );
    let all_the_same = [&["--keep-going", "--stall-timeout", "1"], &arguments[..]].concat();
    let all_the_same = see(stage, &all_the_same);
    let warned = "Warning: the replay went otherwise than recorded";
    assert!(
        all_the_same.stderr.contains(warned),
        "{}",
        all_the_same.stderr
    );
    assert_eq!(all_the_same.assert_code(0).stdout, "1\n");
    case.nothing_is_left();

    // Without psql there is still the database.
    let mut command = stage.hindcast(&["see", &last, "--app", &app]);
    command
        .env("HINDCAST_TRACE", stage.trace())
        .env("HINDCAST_POSTGRES", stage.database_url())
        .env("PATH", without_psql(stage));
    let mut alone = Process::start("alone", command, stage.folder());
    let [_, error] = alone.output_files();
    alone.wait_until("the message", || {
        let text = std::fs::read_to_string(&error).ok()?;
        text.contains("There is no psql here").then_some(())
    });
    assert!(alone.stderr().contains("postgres://"), "{}", alone.stderr());
    alone.signal_alone("INT");
    alone.wait().assert_code(0);
    case.nothing_is_left();
}

#[test]
fn a_gap_before_it_must_be_crossed_knowingly_and_one_behind_it_does_not_matter() {
    let case = Case::recorded("moodle", "0.01", |_| {});
    let stage = &case.stage;
    std::fs::remove_dir_all(stage.trace()).unwrap();
    let app = case.service("original");
    let subscribe = |user: u32| {
        let body = format!("{{\"userid\":{user},\"forum\":1}}");
        let answer = case.client().send("POST", "/subscribe", Some(&body));
        assert!(answer.unwrap().status < 300);
    };
    let serve = || {
        let mut command = Command::new("sh");
        command.args(["-c", &app]);
        stage.start_service(command)
    };
    let recorder = stage.record(&["--durable"]);
    let service = serve();
    subscribe(1);
    recorder.kill();
    service.stop();
    let recorder = stage.record(&[]);
    let service = serve();
    subscribe(2);
    service.stop();
    recorder.interrupt().assert_code(0);
    let query = ["--app", &app, "--", "-Atc", "SELECT 1"];
    let seen = |request: &str, more: &[&str]| {
        let transaction = last(stage, request);
        see(stage, &[more, &[transaction.as_str()], &query[..]].concat())
    };
    seen("1", &[]).assert_code(0);
    let requests = stage.run(
        "ls",
        &["ls", "--trace", &stage.trace().display().to_string()],
    );
    let second = requests.stdout.lines().nth(2).unwrap();
    let second = second.split_whitespace().next().unwrap();
    assert_refused(&seen(second, &[]), 3, &["Gap: ", "--across-gaps"]);
    seen(second, &["--across-gaps"]).assert_code(0);
}
