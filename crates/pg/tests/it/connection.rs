//! The blocking connection against a real server.

use std::time::{Duration, Instant};

use hindcast_cluster::{Cluster, Options};
use hindcast_pg::{ConnectOptions, Connection, DatabaseUrl, Error, Parameter};

fn cluster() -> Cluster {
    let options = Options::throw_away()
        .set("wal_level", "logical")
        .set("max_wal_senders", 4)
        .set("max_replication_slots", 4);
    Cluster::temporary(options).unwrap_or_else(|error| panic!("no private Postgres: {error}"))
}

fn url(cluster: &Cluster) -> DatabaseUrl {
    cluster.url("postgres").parse().expect("its own URL")
}

fn connect(cluster: &Cluster) -> Connection {
    Connection::connect(&url(cluster), &ConnectOptions::named("test")).expect("it runs")
}

#[test]
fn queries_pipelines_and_copies_answer_what_they_are_asked() {
    let cluster = cluster();
    let mut connection = connect(&cluster);
    assert!(connection.server_version() >= 140_000);
    assert!(connection.process() > 0);

    let rows = connection
        .query("SELECT 1; SELECT n, NULL AS nothing FROM generate_series(1, 3) n")
        .unwrap();
    assert_eq!(rows.columns(), ["n", "nothing"]);
    let seen: Vec<_> = rows
        .iter()
        .map(|row| (row.parse::<i32>(0).unwrap(), row.text(1)))
        .collect();
    assert_eq!(seen, [(1, None), (2, None), (3, None)]);

    connection
        .execute("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
        .unwrap();
    let mut pipeline = connection.pipeline();
    pipeline.prepare("insert", "INSERT INTO t VALUES ($1, $2)", &[20, 25]);
    for k in 0..1000_i64 {
        pipeline.run(
            "insert",
            &[Parameter::Binary(&k.to_be_bytes()), Parameter::Text(b"one")],
        );
    }
    pipeline.run("insert", &[Parameter::Text(b"1000"), Parameter::Null]);
    pipeline.run_sql("UPDATE t SET v = 'two' WHERE k < 10 RETURNING k");
    let outcomes = pipeline.finish().unwrap();
    assert_eq!(outcomes.len(), 1002);
    assert!(outcomes[..1001].iter().all(|outcome| outcome.affected == 1));
    assert_eq!(
        (outcomes[1001].affected, outcomes[1001].rows.len()),
        (10, 10)
    );

    let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    copy.write(b"2000\tthr").unwrap();
    copy.write(b"ee\n2001\t\\N\n").unwrap();
    assert_eq!(copy.finish().unwrap(), 2);
    let mut lines = Vec::new();
    let copied = connection.copy_out::<Error>(
        "COPY (SELECT * FROM t WHERE k >= 1000 ORDER BY k) TO STDOUT",
        |line| {
            lines.push(String::from_utf8_lossy(line).into_owned());
            Ok(())
        },
    );
    assert_eq!(copied.unwrap(), 3);
    assert_eq!(lines, ["1000\t\\N\n", "2000\tthree\n", "2001\t\\N\n"]);
}

#[test]
fn an_error_leaves_the_session_usable_and_says_which_run_it_was() {
    let cluster = cluster();
    let mut connection = connect(&cluster);
    let error = connection.query("SELECT 1 / 0").unwrap_err();
    assert_eq!(error.code(), Some("22012"));
    assert!(!error.is_connection());

    connection
        .execute("CREATE TABLE t (k int PRIMARY KEY)")
        .unwrap();
    let mut pipeline = connection.pipeline();
    pipeline.run_sql("BEGIN");
    pipeline.run_sql("INSERT INTO t VALUES (1)");
    pipeline.run_sql("INSERT INTO t VALUES (1)");
    pipeline.run_sql("COMMIT");
    let error = pipeline.finish().unwrap_err();
    let server = error.server().unwrap();
    assert_eq!(
        (server.run, server.constraint.as_deref()),
        (Some(2), Some("t_pkey"))
    );
    assert_eq!(connection.transaction_status(), b'E');
    connection.execute("ROLLBACK").unwrap();

    let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    copy.write(b"1\n").unwrap();
    drop(copy);
    let error = connection
        .copy_in("COPY t FROM '/nowhere'; COPY missing FROM STDIN")
        .err()
        .unwrap();
    assert!(error.code().is_some());
    assert_eq!(
        connection
            .query("SELECT count(*) FROM t")
            .unwrap()
            .first()
            .unwrap()
            .text(0),
        Some("0")
    );
}

#[test]
fn a_blocked_call_ends_when_it_is_interrupted_or_cancelled() {
    let cluster = cluster();
    let mut connection = connect(&cluster);
    let token = connection.cancel_token();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        token.cancel().unwrap();
    });
    assert_eq!(
        connection.query("SELECT pg_sleep(60)").unwrap_err().code(),
        Some("57014")
    );
    canceller.join().unwrap();

    let interrupter = connection.interrupter();
    let breaker = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        interrupter.interrupt();
    });
    assert!(matches!(
        connection.query("SELECT pg_sleep(60)"),
        Err(Error::Interrupted)
    ));
    breaker.join().unwrap();
    assert!(connection.is_broken());
    assert!(matches!(
        connection.query("SELECT 1"),
        Err(Error::Interrupted)
    ));
}

#[test]
fn a_replication_stream_is_read_until_a_deadline() {
    let cluster = cluster();
    let mut connection = connect(&cluster);
    connection
        .execute("CREATE TABLE t (k int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
        .unwrap();
    let options = ConnectOptions {
        replication: true,
        ..ConnectOptions::default()
    };
    let mut session = Connection::connect(&url(&cluster), &options).unwrap();
    session
        .query("CREATE_REPLICATION_SLOT s TEMPORARY LOGICAL pgoutput")
        .unwrap();
    connection
        .execute("INSERT INTO t SELECT generate_series(1, 10000)")
        .unwrap();
    let mut stream = session
        .start_replication(
            "START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1', publication_names 'p')",
        )
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut inserts = 0;
    while inserts < 10_000 {
        let message = stream
            .read(deadline)
            .unwrap()
            .expect("all of it comes before the deadline");
        inserts += usize::from(message[0] == b'w' && message[25] == b'I');
    }
    // Nothing more but keepalives: the deadline ends the wait.
    let soon = Instant::now() + Duration::from_millis(100);
    while stream.read(soon).unwrap().is_some() {}
    assert!(Instant::now() >= soon);
    let mut session = stream.finish().unwrap();
    assert_eq!(session.query("SELECT 1").unwrap().len(), 1);
}

#[test]
fn a_server_that_is_not_there_or_refuses_is_named() {
    let error = Connection::connect(
        &"postgres://someone@127.0.0.1:1/none".parse().unwrap(),
        &ConnectOptions::default(),
    )
    .err()
    .unwrap();
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    assert!(error.is_transient());

    let cluster = cluster();
    let missing: DatabaseUrl = cluster.url("missing").parse().unwrap();
    let error = Connection::connect(&missing, &ConnectOptions::default())
        .err()
        .unwrap();
    assert_eq!(error.server().unwrap().code, "3D000");
    assert!(!error.is_transient());
    assert!(error.hint().contains("create the database"));
}
