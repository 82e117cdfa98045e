//! The page that shows a recording, as a browser asks for it; and the exports.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use hindcast_tests::retro::{Case, FAILED, SUCCESS, USAGE};
use hindcast_tests::{Process, http, wait_for};
use serde_json::{Value, json};

use crate::python;

/// `hindcast web`, and where it serves.
struct Page {
    process: Process,
    client: http::Client,
    token: String,
}

impl Page {
    fn of(case: &Case, command: Command) -> Self {
        let mut process = Process::start("web", command, case.stage.folder());
        let [stdout, _] = process.output_files();
        let url = process.wait_until("the address of the page", || {
            let said = fs::read_to_string(&stdout).ok()?;
            let url = said.lines().find(|line| line.starts_with("http://"))?;
            said.ends_with('\n').then(|| url.to_owned())
        });
        let (address, token) = url["http://".len()..].split_once("/#").expect("a token");
        Self {
            process,
            client: http::Client::new(address),
            token: token.to_owned(),
        }
    }

    fn open(case: &Case, more: &[&str]) -> Self {
        Self::of(case, command(case, more))
    }

    fn with_token(&mut self, token: Option<&str>, path: &str) -> http::Response {
        let given = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<_> = given
            .iter()
            .map(|it| ("authorization", it.as_str()))
            .collect();
        let answer = self.client.send_with("POST", path, &headers, Some("{}"));
        answer.expect("it answers")
    }

    fn ask(&mut self, path: &str, question: &Value) -> http::Response {
        let bearer = format!("Bearer {}", self.token);
        let (headers, question) = ([("authorization", bearer.as_str())], question.to_string());
        let path = format!("/api/{path}");
        let answer = self
            .client
            .send_with("POST", &path, &headers, Some(&question));
        answer.expect("it answers")
    }

    #[track_caller]
    fn answer(&mut self, path: &str, question: &Value) -> Value {
        let answer = self.ask(path, question);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// What is known of the recording, once it is read and `enough` holds.
    fn recording(&mut self, enough: impl Fn(&Value) -> bool) -> Value {
        wait_for("the recording to be read", || {
            let status = self.answer("status", &json!({}));
            let recording = status["recording"].clone();
            (!recording.is_null() && enough(&recording)).then_some(recording)
        })
    }
}

fn command(case: &Case, more: &[&str]) -> Command {
    let mut command = case.stage.hindcast(&["web"]);
    command.arg("--trace").arg(case.stage.trace()).args(more);
    command
}

fn subscribe(client: &mut http::Client, user: u32) {
    let body = format!("{{\"userid\":{user},\"forum\":1}}");
    let answer = client.send("POST", "/subscribe", Some(&body));
    assert!(answer.expect("the service answers").status < 300);
}

/// Records three requests, with a look at the page while they are.
fn recorded() -> Case {
    Case::recorded("moodle", "0.01", |case| {
        let mut page = Page::open(case, &[]);
        // A recorder that has only just begun has no part in the trace yet.
        let nothing = page.recording(|recording| recording["live"] == true);
        assert_eq!(nothing["requests"], 0);
        assert!(nothing["from"].is_null());
        let mut client = case.client();
        for (user, count) in [(1, 1), (2, 2), (3, 3)] {
            subscribe(&mut client, user);
            let seen = page.recording(|recording| recording["requests"] == count);
            assert_eq!(seen["live"], true);
        }
        page.process.interrupt().assert_code(SUCCESS);
    })
}

#[test]
fn a_recording_is_looked_at_while_it_grows_and_afterwards() {
    let case = recorded();
    let mut page = Page::open(&case, &[]);
    let recording = page.recording(|_| true);
    assert_eq!(recording["live"], false);
    assert_eq!(recording["types"], json!(["POST /subscribe"]));
    let (from, until) = (&recording["from"], &recording["until"]);
    let timeline = page.answer(
        "timeline",
        &json!({ "from": from, "until": until, "lanes": "type" }),
    );
    assert_eq!(timeline["drawn"], "marks");
    let marks = timeline["marks"].as_array().expect("marks");
    assert_eq!(marks.len(), 3);
    assert_eq!(timeline["lanes"][0]["name"], "POST /subscribe");

    let detail = page.answer("request", &json!({ "id": "2" }));
    assert_eq!(detail["target"], "/subscribe");
    assert!(
        detail["body"]["text"]
            .as_str()
            .expect("a body")
            .contains("\"userid\":2")
    );
    let insert = detail["transactions"]
        .as_array()
        .expect("some")
        .last()
        .expect("one");
    assert_eq!(insert["writes"], json!(["mdl_forum_subscriptions"]));
    let own = page.answer(
        "transaction",
        &json!({ "id": insert["id"], "lanes": "type" }),
    );
    let saw = &own["sight"]["saw"][0];
    assert_eq!((&saw["request"], &saw["lane"]), (&json!("1"), &json!(0)));

    // The body has the user, and the statements name the table.
    let row =
        json!({ "filter": { "row": "mdl_forum_subscriptions 3" }, "from": from, "until": until });
    let found = wait_for("the search", || {
        let answer = page.answer("timeline", &row);
        answer["searching"].is_null().then_some(answer)
    });
    assert_eq!(
        (&found["taken"], &found["marks"][0]["id"]),
        (&json!(1), &json!("3"))
    );
    let list = page.answer("list", &json!({ "from": from, "until": i64::MAX }));
    assert_eq!(list["rows"].as_array().map(Vec::len), Some(3));

    for (path, question, says) in [
        (
            "request",
            json!({ "id": "99" }),
            "request 99 is not in the recording",
        ),
        (
            "timeline",
            json!({ "filter": { "status": ["many"] } }),
            "is not a status",
        ),
        (
            "timeline",
            json!({ "filter": { "row": "nosuchtable 1" } }),
            "no recorded statement names the table",
        ),
        ("timeline", json!("x"), "the question cannot be read"),
        ("report", json!({}), "there is no report of a retroaction"),
    ] {
        let refused = page.ask(path, &question);
        assert!(
            (400..500).contains(&refused.status),
            "{path}: {}",
            refused.status
        );
        assert!(refused.text().contains(says), "{path}: {}", refused.text());
    }
    page.process.interrupt().assert_code(SUCCESS);
    exported(&case);
}

fn exported(case: &Case) {
    let folder = case.stage.folder();
    let file = |name: &str| folder.join(name).display().to_string();
    let (perfetto, otlp, csv) = (file("p.json"), file("o.jsonl"), file("csv"));
    let trace = case.stage.trace().display().to_string();
    let arguments = [
        "export",
        "--trace",
        &trace,
        "--perfetto",
        &perfetto,
        "--otlp",
        &otlp,
        "--csv",
        &csv,
    ];
    case.stage.run("export", &arguments).assert_code(SUCCESS);
    let events: Value = serde_json::from_slice(&fs::read(perfetto).unwrap()).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    let requests = events
        .iter()
        .filter(|event| event["cat"] == "request" && event["ph"] == "X");
    assert_eq!(requests.count(), 3);
    let spans = fs::read_to_string(otlp).unwrap();
    assert!(spans.contains("\"http.response.status_code\""));
    let rows = fs::read_to_string(folder.join("csv/requests.csv")).unwrap();
    assert_eq!(rows.lines().count(), 4);
    views(case, &trace);
    case.stage
        .run("export", &["export", "--trace", &trace])
        .assert_code(USAGE);
}

const COUNT: &str = "
import duckdb, sys
print(*duckdb.connect(sys.argv[1]).sql('''
    SELECT (SELECT count(*) FROM requests), (SELECT count(*) FROM saw WHERE writer_request = 1),
           (SELECT count(DISTINCT wrote.table) FROM wrote)''').fetchall()[0])
";

/// A database of DuckDB's, by the Python that has it; without, the script that makes one.
fn views(case: &Case, trace: &str) {
    let database = case.stage.folder().join("views.duckdb");
    let name = database.display().to_string();
    let export = |path: &str| {
        let arguments = ["export", "--trace", trace, "--sql", &name];
        let mut command = case.stage.hindcast(&arguments);
        command.env("PATH", path);
        Process::start("export", command, case.stage.folder()).wait()
    };
    let nowhere = export("/nonexistent").assert_code(FAILED);
    let says = "there is no DuckDB here: neither the program `duckdb` nor Python's module";
    assert!(nowhere.stderr.contains(says), "{}", nowhere.stderr);
    let script = fs::read_to_string(format!("{name}.sql")).expect("the script is there");
    assert!(script.contains("CREATE OR REPLACE VIEW saw AS"), "{script}");

    let bin = python::python();
    let bin = bin.parent().expect("it is in a folder").display();
    let path = std::env::var("PATH").expect("a path");
    for _ in 0..2 {
        export(&format!("{bin}:{path}")).assert_code(SUCCESS);
    }
    let mode = fs::metadata(&database)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o077, 0, "others can read it");
    let counted = python::print(COUNT, &name);
    let counted: Vec<u64> = counted
        .split_whitespace()
        .map(|number| number.parse().expect("a number"))
        .collect();
    assert!(
        counted[0] == 3 && counted[1] > 0 && counted[2] == 1,
        "{counted:?}"
    );
}

#[test]
fn nothing_is_told_without_the_token_or_to_others() {
    let case = Case::recorded("moodle", "0.01", |case| subscribe(&mut case.client(), 1));
    let mut page = Page::open(&case, &[]);
    page.recording(|_| true);
    for path in [
        "/api/status",
        "/api/timeline",
        "/api/request",
        "/api/nothing",
    ] {
        assert_eq!(page.with_token(None, path).status, 401, "{path}");
        let wrong = "0".repeat(page.token.len());
        assert_eq!(page.with_token(Some(&wrong), path).status, 403, "{path}");
    }
    // The page itself holds nothing, and lets nothing in.
    for path in ["/", "/page.js", "/page.css", "/icon.svg"] {
        let file = page.client.send("GET", path, None).expect("it answers");
        assert_eq!(file.status, 200, "{path}");
        let policy = file.headers["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        for elsewhere in ["https://", "//cdn", "@import"] {
            assert!(
                !file.text().contains(elsewhere),
                "{path} loads from {elsewhere}"
            );
        }
    }
    assert_eq!(page.client.send("GET", "/other", None).unwrap().status, 404);

    // A name that somebody else made to mean this machine.
    let address = page.process.stdout();
    let port = address
        .split(['/', ':'])
        .filter_map(|part| part.parse::<u16>().ok())
        .next();
    let port = port.expect("a port");
    let mut curl = Command::new("curl");
    curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}"])
        .args(["-H", &format!("Host: evil.example:{port}")])
        .arg(format!("http://127.0.0.1:{port}/"));
    let asked = Process::start("curl", curl, case.stage.folder()).wait();
    assert_eq!(asked.stdout, "403");

    let listen = format!("127.0.0.1:{port}");
    let second = Process::start(
        "web",
        command(&case, &["--listen", &listen]),
        case.stage.folder(),
    );
    let second = second.wait().assert_code(FAILED);
    assert!(
        second
            .stderr
            .contains(&format!("cannot listen at {listen}")),
        "{}",
        second.stderr
    );
    assert!(
        second.stderr.contains("another process has this port"),
        "{}",
        second.stderr
    );
    let open = command(&case, &["--listen", "0.0.0.0:0"]);
    let open = Process::start("web", open, case.stage.folder())
        .wait()
        .assert_code(USAGE);
    assert!(
        open.stderr.contains("not an address of this machine alone"),
        "{}",
        open.stderr
    );
    page.process.interrupt().assert_code(SUCCESS);
}

#[test]
fn what_cannot_be_read_is_said() {
    let case = Case::recorded("moodle", "0.01", |case| subscribe(&mut case.client(), 1));
    let segment = case.stage.trace().join("requests/r0-000001.parquet");
    let whole = fs::read(&segment).expect("a segment");
    fs::write(&segment, &whole[..whole.len() / 2]).expect("it can be written");
    let mut page = Page::open(&case, &[]);
    let failure = wait_for("the failure", || {
        let status = page.answer("status", &json!({}));
        status["failure"].as_str().map(str::to_owned)
    });
    assert!(failure.contains("r0-000001.parquet"), "{failure}");
    let refused = page.ask("timeline", &json!({}));
    assert_eq!(refused.status, 500, "{}", refused.text());
    // Mended, it is read when somebody asks for it.
    fs::write(&segment, &whole).expect("it can be written");
    page.answer("reload", &json!({}));
    page.recording(|recording| recording["requests"] == 1);
    page.process.interrupt().assert_code(SUCCESS);

    let report = case.stage.folder().join("no-report.json");
    fs::write(&report, "{}").expect("it can be written");
    let no_report = command(&case, &["--report", &report.display().to_string()]);
    let no_report = Process::start("web", no_report, case.stage.folder())
        .wait()
        .assert_code(FAILED);
    assert!(
        no_report.stderr.contains("is no report of a retroaction"),
        "{}",
        no_report.stderr
    );

    let named = case.stage.trace().join("trace.json");
    let text = fs::read_to_string(&named).expect("it is there");
    fs::write(
        &named,
        text.replace("\"version\":1", "\"version\":99")
            .replace("\"version\": 1", "\"version\": 99"),
    )
    .unwrap();
    let later = Process::start("web", command(&case, &[]), case.stage.folder()).wait();
    let later = later.assert_code(FAILED);
    assert!(
        later.stderr.contains("99") && later.stderr.contains("Hint:"),
        "{}",
        later.stderr
    );
}

#[test]
fn a_retroaction_is_looked_at_beside_the_recording() {
    let case = Case::recorded("moodle", "0.01", |case| subscribe(&mut case.client(), 1));
    let mut command = case.stage.hindcast(&["retro", "--web", "--app"]);
    command
        .arg(case.service("merged"))
        .args(["--postgres", &case.stage.database_url()])
        .arg("--trace")
        .arg(case.stage.trace());
    let mut page = Page::of(&case, command);
    page.recording(|_| true);
    assert_eq!(page.answer("status", &json!({}))["report"], true);
    let report = page.answer("report", &json!({}));
    assert_eq!(report["outcome"]["outcome"], "different");
    let changed = report["transactions"]["changed"]
        .as_array()
        .expect("changes");
    assert!(
        changed.iter().any(|change| change["kind"] == "statements"),
        "{report}"
    );
    case.nothing_is_left();
    page.process.interrupt().assert_code(SUCCESS);
}
