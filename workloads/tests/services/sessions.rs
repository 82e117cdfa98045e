//! What the services send to the database, and what becomes of their sessions.

use std::net::TcpStream;
use std::thread;

use hindcast_cluster::{Cluster, Options, Shutdown};
use hindcast_workloads::database::{DatabaseOptions, Propagation};
use hindcast_workloads::drive::{HttpCall, Requests};
use hindcast_workloads::moodle::Subscribe;
use hindcast_workloads::tpcc::NewOrder;
use hindcast_workloads::{Scale, Variant, Workload};
use serde_json::Value;

use crate::common::{App, SMALL};

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// How the log writes an empty `application_name`.
const NO_NAME: &str = "[unknown]";
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";

fn traced(call: HttpCall) -> HttpCall {
    HttpCall {
        traceparent: Some(TRACEPARENT.into()),
        ..call
    }
}

fn subscribe(userid: i64) -> HttpCall {
    HttpCall::post("/subscribe".into(), &Subscribe { userid, forum: 3 })
}

/// What Table 1 says of an operation, given what came of it: transactions, statements.
fn table_1(operation: &str, call: &HttpCall, status: u16, answer: &Value) -> (usize, usize) {
    let did = |what: &str| answer[what] == true;
    match operation {
        "list-subscribers" | "get-option" => (1, 1),
        "subscribe-user" if did("created") => (2, 2),
        "insert-option" | "update-option" if did("changed") => (2, 2),
        "trash-post" if did("moved") => (2, 5),
        "untrash-post" if did("moved") => (1, 3 + answer["comments"].as_u64().unwrap() as usize),
        // There was nothing to do.
        "subscribe-user" | "insert-option" | "trash-post" | "untrash-post" => (1, 1),
        "read-post" | "add-comment" => (1, 2),
        "payment" if String::from_utf8_lossy(&call.body).contains("c_last") => (1, 8),
        "payment" => (1, 7),
        "new-order" if status == 422 => {
            let order: NewOrder = serde_json::from_slice(&call.body).unwrap();
            (1, 4 + 2 * order.lines.len() - 1)
        }
        "new-order" => (1, 6 + 2 * answer["lines"].as_array().unwrap().len()),
        other => panic!("Table 1 does not have {other}"),
    }
}

#[test]
fn every_operation_has_the_transactions_and_statements_of_table_1() {
    let comment = format!(" /*traceparent='{TRACEPARENT}'*/");
    for workload in [
        Workload::Moodle,
        Workload::WpOptions,
        Workload::WpComments,
        Workload::Tpcc,
    ] {
        let app = App::new(workload);
        app.log_statements();
        let mut requests = Requests::new(workload, Scale::new(SMALL).unwrap(), 3, None).unwrap();
        let names = requests.operations();
        let mut left = vec![5; names.len()];
        while left.iter().any(|left| *left > 0) {
            let (operation, call) = requests.next();
            if left[operation] == 0 {
                continue;
            }
            left[operation] -= 1;
            let call = traced(call);
            let ((status, answer), statements) = app.statements(|| app.send(&call));
            let texts: Vec<&str> = statements.iter().map(|(_, text)| text.as_str()).collect();
            let begun = texts.iter().filter(|text| **text == BEGIN).count();
            let ended = texts
                .iter()
                .filter(|text| matches!(**text, "COMMIT" | "ROLLBACK"))
                .count();
            let counts = (begun, texts.len() - begun - ended);
            let expected = table_1(names[operation], &call, status, &answer);
            assert_eq!(
                counts, expected,
                "{} answered {answer}: {texts:#?}",
                names[operation]
            );
            assert_eq!(begun, ended, "{texts:#?}");
            // The comment is on the first statement of each transaction and on no other.
            for pair in texts.windows(2) {
                assert_eq!(pair[1].ends_with(&comment), pair[0] == BEGIN, "{texts:#?}");
            }
        }
    }
}

#[test]
fn the_application_name_names_the_request_and_is_reset_for_one_without_a_name() {
    let app = App::with(Workload::Moodle, Variant::Original, |options| {
        options.propagation = Propagation::ApplicationName;
        options.sessions_max = 1;
    });
    app.log_statements();
    let list = HttpCall::get("/forums/3/subscribers".into());
    let (_, statements) = app.statements(|| app.client().send(&traced(list.clone())).unwrap());
    assert_eq!(
        statements[0].1,
        format!("SET application_name = '{TRACEPARENT}'")
    );
    assert!(
        statements[1..]
            .iter()
            .all(|(name, text)| name == TRACEPARENT && !text.contains("traceparent"))
    );
    assert_eq!(statements.len(), 4);

    // Its transactions are one request's: the name is set once.
    let (_, statements) = app.statements(|| app.client().send(&traced(subscribe(5))).unwrap());
    assert!(
        statements
            .iter()
            .all(|(name, text)| name == TRACEPARENT && !text.starts_with("SET")),
        "{statements:#?}"
    );

    let (_, statements) = app.statements(|| app.client().send(&list).unwrap());
    assert_eq!(statements[0].1, "RESET application_name");
    assert!(
        statements[1..].iter().all(|(name, _)| name == NO_NAME),
        "{statements:#?}"
    );
}

#[test]
fn nothing_is_propagated_when_nothing_should_be() {
    let app = App::with(Workload::Moodle, Variant::Original, |options| {
        options.propagation = Propagation::None
    });
    app.log_statements();
    let (_, statements) = app.statements(|| app.client().send(&traced(subscribe(5))).unwrap());
    assert_eq!(statements.len(), 6);
    assert!(
        statements
            .iter()
            .all(|(name, text)| name == NO_NAME && !text.contains(&TRACEPARENT[3..35]))
    );
}

#[test]
fn a_read_of_one_statement_may_go_without_begin_and_keeps_its_isolation() {
    let app = App::with(Workload::Moodle, Variant::Original, |options| {
        options.autocommit_reads = true
    });
    app.log_statements();
    let list = HttpCall::get("/forums/3/subscribers".into());
    let (_, statements) = app.statements(|| app.client().send(&traced(list)).unwrap());
    assert_eq!(statements.len(), 1, "{statements:#?}");
    assert!(
        statements[0]
            .1
            .ends_with(&format!("/*traceparent='{TRACEPARENT}'*/"))
    );

    // What writes is still a transaction.
    let (_, statements) = app.statements(|| app.client().send(&subscribe(5)).unwrap());
    let texts: Vec<_> = statements.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!((texts.len(), texts[1], texts[3]), (4, BEGIN, "COMMIT"));
}

#[test]
fn a_client_that_goes_away_takes_its_transaction_with_it() {
    let app = App::with(Workload::Moodle, Variant::Original, |options| {
        options.sessions_max = 1
    });
    let gate = app.session();
    gate.forbid_writes("mdl_forum_subscriptions");
    let before = gate.value("SELECT count(*) FROM mdl_forum_subscriptions");
    let address = app.target.to_string().replace("http://", "");
    let mut stream = TcpStream::connect(address).unwrap();
    let body = r#"{"userid": 9, "forum": 9}"#;
    let request = format!(
        "POST /subscribe HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    gate.await_writers("mdl_forum_subscriptions", 1);
    drop(stream);
    // The only session is lost with the request, once that is noticed; the pool opens another.
    assert_eq!(app.get("/forums/3/subscribers").0, 200);
    gate.run("COMMIT");

    let inserting = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE d.datname = current_database() AND mode = 'RowExclusiveLock'";
    gate.await_value(inserting, "0");
    assert_eq!(
        gate.value("SELECT count(*) FROM mdl_forum_subscriptions"),
        before
    );
}

#[test]
fn more_requests_than_sessions_wait_for_their_turn() {
    let app = App::with(Workload::Moodle, Variant::Original, |options| {
        options.sessions_max = 2
    });
    let statuses = thread::scope(|scope| {
        let requests: Vec<_> = (1..=20)
            .map(|user| {
                scope.spawn({
                    let app = &app;
                    move || app.send(&subscribe(user)).0
                })
            })
            .collect();
        requests
            .into_iter()
            .map(|request| request.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert!(statuses.iter().all(|status| *status < 300), "{statuses:?}");
    let sessions = format!(
        "SELECT count(*) <= 2 FROM pg_stat_activity WHERE datname = '{}' AND pid <> pg_backend_pid()",
        app.database
    );
    assert_eq!(app.session().value(&sessions), "t");
}

#[test]
fn a_database_that_goes_away_is_a_503_and_one_that_comes_back_is_found_again() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut cluster = Cluster::temporary(Options::throw_away().port(port)).unwrap();
    let url = cluster.url("postgres");
    let runtime = crate::common::runtime();
    runtime
        .block_on(hindcast_workloads::load::load(
            Workload::Moodle,
            &crate::common::load_options(&url, SMALL),
        ))
        .unwrap();
    let app = App::with(
        Workload::Moodle,
        Variant::Original,
        |options: &mut DatabaseOptions| options.url = url,
    );
    assert_eq!(app.get("/forums/3/subscribers").0, 200);
    cluster.stop(Shutdown::Fast).unwrap();
    let (status, body) = app.get("/forums/3/subscribers");
    assert_eq!(
        (status, body["error"].as_str()),
        (503, Some("database_unavailable"))
    );
    assert_eq!(app.get("/healthz").0, 200, "the service itself is well");
    cluster.start().unwrap();
    assert_eq!(app.get("/forums/3/subscribers").0, 200);
}

#[test]
fn a_shutdown_answers_what_it_has_accepted_and_accepts_nothing_more() {
    let mut app = App::new(Workload::Moodle);
    let gate = app.session();
    gate.forbid_writes("mdl_forum_subscriptions");
    let mut client = app.client();
    let answering = thread::spawn(move || client.send(&subscribe(5)).unwrap().status);
    gate.await_writers("mdl_forum_subscriptions", 1);
    app.begin_shutdown();
    let address = app.target.to_string().replace("http://", "");
    while TcpStream::connect(&address).is_ok() {
        thread::yield_now();
    }
    gate.run("COMMIT");
    assert_eq!(answering.join().unwrap(), 201);
    app.await_shutdown();
}
