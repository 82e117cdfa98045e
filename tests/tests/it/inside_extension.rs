//! `record -- COMMAND` with the extension in the database: nothing is between the two.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use hindcast_cluster::{Options, Shutdown};
use hindcast_tests::http::Client;
use hindcast_tests::stage::free_port;
use hindcast_tests::{Process, Stage, program, repository, wait_for};

use super::inside::{CLIENTS, SCHEMA, command, load, python, record, record_with, replay};

/// A server with the extension in it.
pub fn stage(name: &str, schema: &str, more: &[(&str, &str)]) -> Stage {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let setup = Command::new(repository("scripts/setup"))
            .arg("headers")
            .status();
        assert!(setup.unwrap().success());
        let installed = Command::new(program("hindcast"))
            .args(["extension", "install"])
            .status();
        assert!(installed.unwrap().success());
    });
    let options = Options::throw_away()
        .port(free_port())
        .set("shared_preload_libraries", "hindcast");
    let options = more
        .iter()
        .fold(options, |options, (name, value)| options.set(name, value));
    Stage::with(
        name,
        &format!("CREATE EXTENSION hindcast; {schema}"),
        options,
    )
}

/// A program that is no service: what it does belongs to no request.
fn script(stage: &Stage, more: &[&str], text: &str) -> Process {
    let file = stage.folder().join("script.py");
    let head = "import os, time, psycopg\nurl = os.environ['DATABASE_URL']\n";
    std::fs::write(&file, format!("{head}{text}")).unwrap();
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command
        .arg(stage.trace())
        .args(more)
        .arg("--")
        .arg(python())
        .arg(file)
        .env("DATABASE_URL", stage.database_url());
    Process::start("record", command, stage.folder())
}

fn value(stage: &Stage, sql: &str) -> String {
    let answered = stage.cluster.sql("app", sql);
    answered
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
        .trim()
        .to_owned()
}

fn show(stage: &Stage, transaction: &str) -> String {
    let trace = stage.trace().display().to_string();
    let arguments = ["show", transaction, "--trace", &trace];
    stage.run("show", &arguments).assert_code(0).stdout
}

/// What is listed, and what is said about it.
fn ls(stage: &Stage) -> String {
    let trace = stage.trace().display().to_string();
    let finished = stage.run("ls", &["ls", "--trace", &trace]).assert_code(0);
    finished.stdout + &finished.stderr
}

#[test]
fn a_service_whose_sessions_go_straight_to_its_database_is_recorded_and_replayed() {
    const ROUNDS: usize = 15;
    let stage = stage("told", SCHEMA, &[]);
    let recorder = record(&stage, &command(&stage, 3));
    assert!(is_read(&stage));
    load(&stage, ROUNDS);
    let recorded = recorder.interrupt().assert_code(0);
    let said = &recorded.stderr;
    assert!(said.contains("tells, nothing in the way"), "{said}");
    let requests = format!("{} requests", 2 * CLIENTS * ROUNDS);
    assert!(
        said.contains(&requests) && said.contains("(0 ghosts)"),
        "{said}"
    );
    assert!(!ls(&stage).contains("Gap"), "{}", ls(&stage));

    let whole = replay(&stage, &[]).assert_code(0);
    assert!(whole.stdout.contains("faithful"), "{}", whole.stdout);
    assert!(whole.stdout.contains(&requests), "{}", whole.stdout);
}

#[test]
fn what_the_server_tells_is_joined_with_what_was_said_to_it() {
    let stage = stage(
        "joined",
        "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)",
        &[],
    );
    let text = "
with psycopg.connect(url, autocommit=True) as c:
    c.execute('SET statement_timeout = 60000')
    c.execute('SELECT 1 WHERE false')
    for wrong in ('SELEC 1', 'SELECT no_such_column FROM t', 'INSERT INTO t VALUES (1)'):
        try: c.execute(wrong)
        except psycopg.Error: pass
    with c.transaction():
        c.execute('INSERT INTO t VALUES (2)')
        try:
            with c.transaction():
                c.execute('INSERT INTO t VALUES (3)')
                c.execute('INSERT INTO t VALUES (1)')
        except psycopg.Error: pass
        with c.transaction():
            c.execute('INSERT INTO t VALUES (4)')
    with c.pipeline():
        for a in range(10, 14): c.execute('INSERT INTO t VALUES (%s)', (a,))
    c.execute('BEGIN'); c.execute('COMMIT')
    c.execute('INSERT INTO t VALUES (20)')
";
    let recorded = script(&stage, &[], text).wait().assert_code(0);
    assert!(!recorded.stderr.contains("gap"), "{}", recorded.stderr);
    let listed = ls(&stage);
    assert!(!listed.contains("Gap"), "{listed}");

    let ids = |sql: &str| value(&stage, sql);
    let shown: Vec<String> = (1..=20)
        .filter_map(|number| {
            let trace = stage.trace().display().to_string();
            let transaction = format!("t{number}");
            let shown = stage.run("show", &["show", &transaction, "--trace", &trace]);
            (shown.code == Some(0)).then_some(shown.stdout)
        })
        .collect();
    let of = |statement: &str, which: usize| {
        let mut all = shown.iter().filter(|shown| shown.contains(statement));
        all.nth(which)
            .unwrap_or_else(|| panic!("no {statement} in {shown:?}"))
            .clone()
    };
    // Ids are those of the rows.
    let nested = of("SAVEPOINT", 0);
    let top = ids("SELECT xmin FROM t WHERE a = 2");
    assert!(
        nested.contains(&format!("wrote as transaction id {top}")),
        "{nested}"
    );
    let last = shown.last().unwrap();
    let id = ids("SELECT xmin FROM t WHERE a = 20");
    assert!(
        last.contains(&format!("wrote as transaction id {id}")),
        "{last}"
    );
    // And it saw what was committed then.
    assert!(
        last.contains(&format!("below {id} that committed")),
        "{last}"
    );
}

#[test]
fn a_procedure_that_commits_inside_is_a_gap_that_says_so() {
    let schema = "CREATE TABLE t (a int);
        CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (2); COMMIT; INSERT INTO t VALUES (3); END $$";
    let stage = stage("inside-call", schema, &[]);
    let text = "
with psycopg.connect(url, autocommit=True) as c:
    c.execute('CALL p()')
    c.execute('INSERT INTO t VALUES (9)')
";
    script(&stage, &[], text).wait().assert_code(0);
    let listed = ls(&stage);
    assert!(listed.contains("committed inside"), "{listed}");
    assert!(!listed.contains("past the recorder"), "{listed}");
    assert!(show(&stage, "t2").contains("wrote as transaction id"));
}

#[test]
fn what_is_written_past_the_service_is_told_apart() {
    let stage = stage(
        "stranger",
        "CREATE TABLE t (a int); CREATE TABLE u (a int)",
        &[],
    );
    let text = "
with psycopg.connect(url, autocommit=True) as c:
    for a in range(100):
        c.execute('INSERT INTO t VALUES (%s)', (a,))
        time.sleep(0.02)
";
    let recorder = script(&stage, &[], text);
    wait_for("the script to write", || {
        let rows = value(&stage, "SELECT count(*) FROM t");
        (rows.parse::<u32>().unwrap() > 10).then_some(())
    });
    stage
        .cluster
        .sql("app", "INSERT INTO u VALUES (1)")
        .unwrap();
    recorder.wait().assert_code(0);
    let listed = ls(&stage);
    assert!(listed.contains("public.u past the recorder"), "{listed}");
    assert!(!listed.contains("public.t "), "{listed}");
}

#[test]
fn a_ring_that_was_full_and_a_server_that_crashed_are_gaps() {
    let mut stage = stage(
        "full",
        "CREATE TABLE t (a int)",
        &[("hindcast.ring_size", "64kB")],
    );
    let text = "
import sys
def work(n):
    with psycopg.connect(url, autocommit=True) as c:
        for a in range(n): c.execute('INSERT INTO t VALUES (%s)', (a,))
work(10)
open(sys.argv[0] + '.first', 'w').close()
while not os.path.exists(sys.argv[0] + '.go'): time.sleep(0.01)
work(3000)
open(sys.argv[0] + '.second', 'w').close()
while not os.path.exists(sys.argv[0] + '.on'): time.sleep(0.01)
while True:
    try: work(10); break
    except psycopg.Error: time.sleep(0.05)
";
    let recorder = script(&stage, &[], text);
    let folder = stage.folder().to_owned();
    let file = |end: &str| folder.join(format!("script.py.{end}"));
    let exists = |end: &'static str| {
        wait_for(end, || file(end).exists().then_some(()));
    };
    exists("first");
    // The recorder stands still, and the service does not notice.
    std::thread::sleep(Duration::from_millis(300));
    recorder.signal_alone("STOP");
    std::fs::write(file("go"), "").unwrap();
    exists("second");
    recorder.signal_alone("CONT");
    std::thread::sleep(Duration::from_millis(500));
    stage.cluster.stop(Shutdown::Immediate).unwrap();
    stage.cluster.start().unwrap();
    std::fs::write(file("on"), "").unwrap();
    let recorded = recorder.wait().assert_code(0);
    assert!(recorded.stderr.contains("gap"), "{}", recorded.stderr);
    let listed = ls(&stage);
    assert!(listed.contains("hindcast.ring_size"), "{listed}");
    assert!(!listed.contains("past the recorder"), "{listed}");
    assert_eq!(value(&stage, "SELECT count(*) FROM t"), "3020");
}

#[test]
fn who_cannot_have_the_extension_is_told_why_and_gets_the_gateway_if_that_will_do() {
    let stage = stage("second", "CREATE TABLE t (a int)", &[]);
    let wait = "
with psycopg.connect(url) as c: c.execute('SELECT pg_sleep(0)')
time.sleep(600)
";
    let mut first = script(&stage, &[], wait);
    first.wait_until("it records", || is_read(&stage).then_some(()));
    let trace = stage.folder().join("second").display().to_string();
    let url = stage.database_url();
    let run = |more: &[&str]| {
        let arguments = ["record", "--trace", &trace, "--postgres", &url];
        let arguments = [&arguments[..], more, &["--", "/bin/true"]].concat();
        stage.run("second", &arguments)
    };
    let beside = run(&["--transactions", "extension"]).assert_code(0);
    assert!(
        beside.stderr.contains("tells, nothing in the way"),
        "{}",
        beside.stderr
    );
    let usage = run(&["--transactions", "extension", "--durable"]).assert_code(2);
    assert!(usage.stderr.contains("--durable"), "{}", usage.stderr);
    first.stop();

    stage.cluster.sql("app", "DROP EXTENSION hindcast").unwrap();
    let missing = run(&["--transactions", "extension"]).assert_code(3);
    assert!(
        missing.stderr.contains("CREATE EXTENSION hindcast"),
        "{}",
        missing.stderr
    );
    let other = run(&[]).assert_code(0);
    assert!(
        other.stderr.contains("by way of a gateway")
            && other.stderr.contains("READ COMMITTED")
            && other.stderr.contains("CREATE EXTENSION"),
        "{}",
        other.stderr
    );
}

/// A recorder reads from the server.
fn is_read(stage: &Stage) -> bool {
    let asked =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hindcast: snapshots'";
    value(stage, asked) == "1"
}

const COUNTERS: &str = "CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL);
    INSERT INTO counter SELECT id, 0 FROM generate_series(0, 3) id;
    CREATE TABLE seen (number int, n int, before int, after int, PRIMARY KEY (number, n));
    CREATE TABLE entry (number int REFERENCES counter, nth int, PRIMARY KEY (number, nth));
    CREATE TABLE reference (number int REFERENCES counter);
    CREATE TABLE note (number int, n int);
    CREATE FUNCTION count_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        UPDATE counter SET n = n + 1 WHERE id = NEW.number RETURNING n INTO NEW.n;
        RETURN NEW;
    END $$;
    CREATE TRIGGER count_note BEFORE INSERT ON note FOR EACH ROW EXECUTE FUNCTION count_note()";

/// Each statement sees again what it saw, and one that waited for a row waits again.
#[test]
fn under_read_committed_each_statement_sees_what_it_saw() {
    let requests = |round: usize, number: usize| match (round + number) % 4 {
        0 => ("GET", "/".to_owned()),
        1 => ("OPTIONS", "/".to_owned()),
        2 => ("PUT", format!("/{}", number % 2)),
        _ => ("POST", format!("/{}", round % 4)),
    };
    // How often depends on who else runs on the machine.
    let moved = counters("statements", requests);
    assert_ne!(moved, 0, "nobody committed between two statements");
}

/// Who waited for a lock comes after those it waited for, though it finds no row changed.
#[test]
fn under_read_committed_who_waited_for_a_lock_waits_again() {
    let requests = |round: usize, number: usize| match (round + number) % 4 {
        0 => ("POST", format!("/{}", round % 4)),
        1 => ("DELETE", format!("/{}", number % 2)),
        _ => ("PATCH", format!("/{}", round % 2)),
    };
    counters("locks", requests);
}

/// Who had an advisory lock first has it first again, in a retroaction too.
#[test]
fn under_read_committed_advisory_locks_are_had_in_their_order() {
    let requests = |round: usize, number: usize| match (round + number) % 4 {
        0 => ("GET", "/".to_owned()),
        _ => ("TURN", format!("/{}", round % 2)),
    };
    counters("turns", requests);
}

/// Who takes what nobody has locked takes the same again.
#[test]
fn under_read_committed_who_takes_what_is_free_takes_it_again() {
    let requests = |round: usize, number: usize| match (round + number) % 4 {
        0 => ("GET", "/".to_owned()),
        1 => ("PUT", format!("/{}", round % 4)),
        _ => ("TAKE", "/".to_owned()),
    };
    counters("free", requests);
}

/// Who waited for a row has it as it has become, and all else as it was before.
#[test]
fn under_read_committed_who_waited_goes_on_with_what_it_saw_before() {
    let requests = |round: usize, number: usize| match (round + number) % 4 {
        0 => ("UNLINK", format!("/{}", number % 2)),
        1 => ("PUT", format!("/{}", round % 2)),
        _ => ("LINK", format!("/{}", round % 2)),
    };
    counters("counts", requests);
}

/// As above, where another statement is before it in one text.
#[test]
fn under_read_committed_statements_of_one_text_see_what_they_saw() {
    let requests = |round: usize, number: usize| match (round + number) % 3 {
        0 => ("PUT", format!("/{}", round % 2)),
        1 => ("LINK", format!("/{}", round % 2)),
        _ => ("BOTH", format!("/{}", round % 2)),
    };
    counters("texts", requests);
}

/// A query that waited for a lock has found its rows before, and is given them as they have become.
#[test]
fn under_read_committed_a_query_that_locks_finds_what_it_found() {
    let requests = |round: usize, number: usize| match (round + number) % 3 {
        0 => ("PUT", format!("/{}", round % 4)),
        _ => ("RAISE", "/".to_owned()),
    };
    counters("lowest", requests);
}

/// A trigger sees what has been committed since the statement began that fires it.
#[test]
fn under_read_committed_a_trigger_sees_more_than_its_statement() {
    let requests = |round: usize, number: usize| match (round + number) % 4 {
        0 => ("GET", "/".to_owned()),
        _ => ("NOTE", format!("/{}", round % 2)),
    };
    counters("notes", requests);
}

/// Who made a thing first makes it again, whether the others waited in a transaction or in a
/// statement of their own. What the service does when it starts has been done, and is done again,
/// and sequences that it makes give the same numbers to the same requests.
#[test]
fn under_read_committed_who_made_a_row_first_makes_it_again() {
    let schema = "CREATE TABLE migrating (now bool NOT NULL); INSERT INTO migrating VALUES (false)";
    let stage = stage("things", schema, &[]);
    let service = repository("tests/services/things.py");
    let port = stage.service_port.to_string();
    let recorder = record(&stage, &[python(), service.display().to_string(), port]);
    let address = format!("127.0.0.1:{}", stage.service_port);
    let barrier = std::sync::Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (address, barrier) = (address.clone(), &barrier);
            scope.spawn(move || {
                let mut client = Client::new(address);
                for round in 0..20 {
                    barrier.wait();
                    let method = ["POST", "PUT", "PUT"][(number + round) % 3];
                    let path = format!("/thing-{round}/{number}");
                    let answer = client.send(method, &path, None).unwrap();
                    assert_eq!(answer.status, 200, "{}", answer.text());
                }
            });
        }
    });
    recorder.interrupt().assert_code(0);
    for _ in 0..3 {
        let replayed = replay(&stage, &[]).assert_code(0).stdout;
        assert!(replayed.contains("faithful"), "{replayed}");
        let started = "done by the service itself";
        assert!(replayed.contains(started), "{replayed}");
        assert!(!replayed.contains("refused"), "{replayed}");
        assert!(!replayed.contains("undone"), "{replayed}");
    }
}

/// Has clients send these at a time, round by round. How many things were there already.
fn race(stage: &Stage, methods: &[&'static str]) -> usize {
    let address = format!("127.0.0.1:{}", stage.service_port);
    let barrier = std::sync::Barrier::new(CLIENTS);
    let lost = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (address, barrier, lost) = (address.clone(), &barrier, &lost);
            scope.spawn(move || {
                let mut client = Client::new(address);
                for round in 0..20 {
                    barrier.wait();
                    let method = methods[(number + round) % methods.len()];
                    let path = format!("/thing-{}/maker-{number}", round / 2);
                    let answer = client.send(method, &path, None).unwrap();
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    let found = answer.text().matches(',').count() == 2;
                    lost.fetch_add(usize::from(found), std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    lost.into_inner()
}

/// Who could not insert a row sees what it saw, and loses to the same one: in a savepoint, in a
/// transaction that fails and is followed by another, and where it does nothing.
#[test]
fn under_read_committed_who_lost_a_race_behind_a_savepoint_loses_it_again() {
    let schema = "CREATE TABLE thing (id serial PRIMARY KEY, name text UNIQUE, maker text);
        CREATE TABLE maker (name text PRIMARY KEY, tries int);
        INSERT INTO maker SELECT 'maker-' || n, 0 FROM generate_series(0, 20) n";
    let stage = stage("firsts", schema, &[]);
    let service = repository("tests/services/firsts.py");
    let port = stage.service_port.to_string();
    let recorder = record(&stage, &[python(), service.display().to_string(), port]);
    let lost = race(&stage, &["POST", "POST", "PUT", "PATCH"]);
    recorder.interrupt().assert_code(0);
    assert!(lost > 20, "only {lost} were not the first");
    for _ in 0..3 {
        let replayed = replay(&stage, &[]).assert_code(0).stdout;
        assert!(replayed.contains("faithful"), "{replayed}");
        assert!(!replayed.contains("READ COMMITTED"), "{replayed}");
    }
    let index = stage.folder().join("index.sql");
    std::fs::write(&index, "CREATE INDEX ON thing (maker)").unwrap();
    let migrate = ["--migrate".to_owned(), index.display().to_string()];
    let retro = retro_with(&stage, "", &service, &migrate);
    let counts = &retro["counts"];
    assert_eq!(counts["responses_changed"], 0, "{retro:#}");
    let of = |name: &str| counts[name].as_u64().unwrap();
    let same = of("same") + of("same_failure");
    assert_eq!(same, of("transactions"), "{retro:#}");
    assert_eq!(of("let_go"), 0, "{retro:#}");
}

/// The check of a unique key waits for whom changes the row that is in its way. Who did not wait
/// does not wait again, and sees the row as it was before that change.
#[test]
fn under_read_committed_who_lost_before_the_row_was_changed_loses_before_that() {
    let schema = "CREATE TABLE thing (id serial PRIMARY KEY, name text UNIQUE, maker text);
        CREATE TABLE maker (name text PRIMARY KEY, tries int);
        INSERT INTO maker SELECT 'maker-' || n, 0 FROM generate_series(0, 20) n;
        INSERT INTO thing (name) SELECT 'thing-' || n FROM generate_series(0, 20) n";
    let stage = stage("moved-things", schema, &[]);
    let service = repository("tests/services/firsts.py");
    let port = stage.service_port.to_string();
    let recorder = record(&stage, &[python(), service.display().to_string(), port]);
    race(&stage, &["POST", "MOVE", "COPY"]);
    recorder.interrupt().assert_code(0);
    for _ in 0..3 {
        let replayed = replay(&stage, &[]).assert_code(0).stdout;
        assert!(replayed.contains("faithful"), "{replayed}");
    }
    let index = stage.folder().join("index.sql");
    std::fs::write(&index, "CREATE INDEX ON thing (maker)").unwrap();
    let migrate = ["--migrate".to_owned(), index.display().to_string()];
    let retro = retro_with(&stage, "", &service, &migrate);
    let counts = &retro["counts"];
    assert_eq!(counts["responses_changed"], 0, "{retro:#}");
    assert_eq!(counts["let_go"], 0, "{retro:#}");
}

/// A statement takes its snapshot when it is planned, and planning may take long. One that looks
/// once looks by itself, also where a clock is pinned in front of it.
#[test]
fn under_read_committed_a_read_looks_when_it_is_planned() {
    let schema = "CREATE TABLE counter (n int); INSERT INTO counter VALUES (0);
        CREATE FUNCTION slow(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
            $$ BEGIN PERFORM pg_sleep(0.5); RETURN $1; END $$";
    let stage = stage("planned", schema, &[]);
    let service = repository("tests/services/planned.py");
    let port = stage.service_port.to_string();
    let file = stage.folder().join("file");
    let command = [python(), service.display().to_string(), port];
    let recorder = record(
        &stage,
        &[&command[..], &[file.display().to_string()]].concat(),
    );
    let address = format!("127.0.0.1:{}", stage.service_port);
    std::thread::scope(|scope| {
        let adds = scope.spawn(|| {
            Client::new(address.clone())
                .send("POST", "/", None)
                .unwrap()
        });
        let adding = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";
        wait_for("the counter to be added to", || {
            (value(&stage, adding) == "1").then_some(())
        });
        let seen = Client::new(address.clone()).send("GET", "/", None).unwrap();
        assert_eq!(seen.text(), "[0, 1, true]");
        std::fs::write(&file, "").unwrap();
        assert_eq!(adds.join().unwrap().status, 200);
    });
    recorder.interrupt().assert_code(0);
    let replayed = replay(&stage, &[]).assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");
}

const MEMBERS: &str = "CREATE TABLE member (name text PRIMARY KEY, password text);
    INSERT INTO member SELECT 'member-' || n, md5('hemlig-' || n) FROM generate_series(1, 6) n;
    CREATE EXTENSION pgcrypto;
    CREATE TABLE token (number int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text, value text DEFAULT gen_salt('bf'));
    CREATE FUNCTION new_token(text) RETURNS int LANGUAGE plpgsql AS
        $$ DECLARE new int; BEGIN INSERT INTO token (name) VALUES ($1) RETURNING number INTO new; RETURN new; END $$";

/// A transaction that aborted is answered with the password that it read, where the key is. Changed
/// code ends such a one likewise, and gets from a function what that drew. What pgcrypto draws and
/// nobody sees is drawn again.
#[test]
fn who_checks_passwords_in_what_it_rolls_back_lets_the_same_in_again() {
    let stage = stage("members", MEMBERS, &[]);
    let service = repository("tests/services/members.py");
    let port = stage.service_port.to_string();
    let recorder = record(&stage, &[python(), service.display().to_string(), port]);
    let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
    let form = [("content-type", "application/x-www-form-urlencoded")];
    for number in 1..=6 {
        let given = if number == 4 { 5 } else { number };
        let body = format!("password=hemlig-{given}");
        let answer = client.send_with("POST", &format!("/member-{number}"), &form, Some(&body));
        let expected = if number == 4 { 403 } else { 200 };
        assert_eq!(answer.unwrap().status, expected);
    }
    recorder.interrupt().assert_code(0);
    let shown: String = (1..=6).map(|one| show(&stage, &one.to_string())).collect();
    assert!(shown.contains("password = redacted-"), "{shown}");
    assert!(!shown.contains("hemlig"), "{shown}");

    let replayed = replay(&stage, &[]).assert_code(0);
    assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);
    let counts = &retro(&stage, "", &service)["counts"];
    assert_eq!(counts["responses_changed"], 0, "{counts:#}");
    assert_eq!(counts["same"], counts["transactions"], "{counts:#}");

    let other = stage.folder().join("other.key").display().to_string();
    stage.run("key", &["key", "new", &other]).assert_code(0);
    let replayed = replay(&stage, &["--secrets-key", &other]).assert_code(1);
    let named = replayed.stdout.contains("field:password");
    assert!(named, "{}", replayed.stdout);
}

/// A transaction that is rolled back holds its rows until then, and who saw that it was over gets
/// them behind it, however late it is in changed code.
#[test]
fn rows_of_one_that_was_rolled_back_are_taken_behind_it_by_changed_code() {
    let schema = "CREATE TABLE account (id int PRIMARY KEY, balance int);
        INSERT INTO account VALUES (1, 0), (2, 0)";
    let stage = stage("refused", schema, &[]);
    let service = repository("tests/services/refused.py");
    let port = stage.service_port.to_string();
    let recorder = record(&stage, &[python(), service.display().to_string(), port]);
    let address = format!("127.0.0.1:{}", stage.service_port);
    let ask = |method| {
        let answer = Client::new(address.clone()).send(method, "/", None);
        answer.unwrap().text()
    };
    std::thread::scope(|scope| {
        let pays = scope.spawn(|| ask("POST"));
        let locked = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";
        wait_for("an account to be locked", || {
            (value(&stage, locked) == "1").then_some(())
        });
        assert_eq!(ask("DELETE"), "0");
        assert_eq!(pays.join().unwrap(), "0");
    });
    recorder.interrupt().assert_code(0);
    let report = retro(&stage, "SLOW=1 ", &service);
    let counts = &report["counts"];
    assert_eq!(counts["let_go"], 0, "{report:#}");
    assert_eq!(counts["responses_changed"], 0, "{report:#}");
    assert_eq!(counts["changed"], 0, "{report:#}");
}

/// Rows are changed behind the first write of their transactions, and so lie elsewhere in a replay.
#[test]
fn rows_come_in_the_order_in_which_they_came() {
    let requests = |round: usize, number: usize| match (round + number) % 3 {
        0 => ("VIEW", "/".to_owned()),
        _ => ("LINK", format!("/{}", (round + 3 * number) % 4)),
    };
    counters("rows", requests);
}

/// Django reads the choices of a form so: the statements that read are transactions by themselves,
/// and stand for none that is looked for.
#[test]
fn rows_of_a_cursor_that_outlives_its_transaction_come_in_the_order_in_which_they_came() {
    let requests = |round: usize, number: usize| match (round + number) % 3 {
        0 => ("BROWSE", "/".to_owned()),
        _ => ("LINK", format!("/{}", (round + 3 * number) % 4)),
    };
    counters("browsed", requests);
}

/// Whoever waits first looks first whether each waits for the other. Changed code has the other one
/// wait first.
#[test]
fn under_read_committed_who_ended_a_deadlock_ends_it_again() {
    let stage = stage("deadlocks", COUNTERS, &[("deadlock_timeout", "300ms")]);
    let service = repository("tests/services/counters.py");
    let port = stage.service_port.to_string();
    let recorder = record(&stage, &[python(), service.display().to_string(), port]);
    let address = format!("127.0.0.1:{}", stage.service_port);
    for _ in 0..4 {
        let send = |number: usize| {
            let mut client = Client::new(address.clone());
            let answer = client.send("MOVE", &format!("/{number}"), None).unwrap();
            answer.text()
        };
        let both = std::thread::scope(|scope| {
            let first = scope.spawn(|| send(0));
            (send(1), first.join().unwrap())
        });
        assert_eq!(both, ("[0, 0, 0]".to_owned(), "[0, 1, 0]".to_owned()));
    }
    recorder.interrupt().assert_code(0);
    for environment in ["", "CHANGED=1 "] {
        let report = retro(&stage, environment, &service);
        let counts = &report["counts"];
        assert_eq!(counts["responses_changed"], 0, "{environment}: {report:#}");
        assert_eq!(counts["same_failure"], 4, "{environment}: {counts:#}");
    }
}

/// Has clients send these, records it, and replays it. How often a request saw what others had
/// written between two of its statements.
fn counters(name: &str, requests: impl Fn(usize, usize) -> (&'static str, String) + Sync) -> usize {
    let stage = stage(name, COUNTERS, &[]);
    let service = repository("tests/services/counters.py");
    let port = stage.service_port.to_string();
    let command = [python(), service.display().to_string(), port];
    let recorder = record_with(&stage, &["--values"], &command);
    let address = format!("127.0.0.1:{}", stage.service_port);
    let moved: usize = std::thread::scope(|scope| {
        let client = |number: usize| {
            let (address, requests) = (address.clone(), &requests);
            scope.spawn(move || {
                let mut client = Client::new(address);
                let mut moved = 0;
                for round in 0..25 {
                    let (method, path) = requests(round, number);
                    let answer = client.send(method, &path, None).unwrap();
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    let saw: Vec<i64> = serde_json::from_slice(&answer.body).unwrap();
                    moved += usize::from(saw[2] > saw[0] + i64::from(method == "POST"));
                }
                moved
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        clients.into_iter().map(|one| one.join().unwrap()).sum()
    });
    let recorded = recorder.interrupt().assert_code(0);
    assert!(
        recorded.stderr.contains("(0 ghosts)"),
        "{}",
        recorded.stderr
    );
    for _ in 0..3 {
        let replayed = replay(&stage, &[]).assert_code(0);
        assert!(replayed.stdout.contains("faithful"), "{}", replayed.stdout);
        assert!(
            !replayed.stdout.contains("READ COMMITTED"),
            "{}",
            replayed.stdout
        );
    }
    // Of three requests of a client at least one has a parameter.
    let shown = (1..=2 * CLIENTS + 1).map(|number| show(&stage, &number.to_string()));
    let shown: String = shown.collect();
    assert!(shown.contains("        $1 = "), "{shown}");
    for environment in ["", "CHANGED=1 "] {
        let report = retro(&stage, environment, &service);
        let counts = &report["counts"];
        assert_eq!(counts["responses_changed"], 0, "{environment}: {report:#}");
        assert_eq!(counts["newly_failing"], 0, "{environment}: {counts:#}");
        let is_changed = counts["changed"].as_u64() > Some(0);
        let expected = !environment.is_empty() && ["locks", "turns"].contains(&name);
        assert_eq!(is_changed, expected, "{environment}: {counts:#}");
    }
    moved
}

/// Runs the service on what was recorded, with this in front of its command.
fn retro(stage: &Stage, environment: &str, service: &Path) -> serde_json::Value {
    retro_with(stage, environment, service, &[])
}

pub fn retro_with(
    stage: &Stage,
    environment: &str,
    service: &Path,
    more: &[String],
) -> serde_json::Value {
    let (python, service) = (python(), service.display());
    let app = format!(
        "{environment}exec {python} {service} {}",
        stage.service_port
    );
    let mut retro = stage.hindcast(&["retro", "--json", "--app", &app, "--trace"]);
    retro
        .arg(stage.trace())
        .args(more)
        .env("HINDCAST_POSTGRES", stage.database_url())
        .env("DATABASE_URL", stage.database_url());
    let retro = Process::start("retro", retro, stage.folder()).wait();
    serde_json::from_str(&retro.assert_code(0).stdout).unwrap()
}
