//! Recordings in which something goes wrong, or a peer does not play along.

use crate::common::stage::*;
use crate::common::*;
use hindcast_cluster::Shutdown;
use hindcast_gateway::record::{self, FinalStateMode, Front, RecordError, RecordOptions};
use hindcast_trace::{GapCause, Location, Outcome, Response, Transaction};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn who_passes_no_recorder_is_missed() {
    let stage = Stage::new().await;
    let direct = stage.cluster.connect("postgres").await.unwrap();
    // Reads, aborts, statistics and other databases' affairs are no loss.
    direct
        .batch_execute("BEGIN; INSERT INTO note (text) VALUES ('undone'); ROLLBACK")
        .await
        .unwrap();
    direct
        .batch_execute("SELECT count(*) FROM note")
        .await
        .unwrap();
    direct.batch_execute("ANALYZE note").await.unwrap();
    direct.batch_execute("CREATE DATABASE other").await.unwrap();
    let through = connect(stage.pg(), "app").await;
    through
        .batch_execute("INSERT INTO note (text) VALUES ('seen')")
        .await
        .unwrap();
    let xid: String = {
        let row = direct
            .query_one(
                "INSERT INTO note (text) VALUES ('unseen') RETURNING pg_current_xact_id()::text",
                &[],
            )
            .await
            .unwrap();
        row.get(0)
    };
    until("it is missed", async || {
        stage.recording.status().unaccounted > 0
    })
    .await;
    drop(through);
    let (summary, recorded) = stage.end().await;
    assert_eq!(recorded.unaccounted(), [xid.parse::<u64>().unwrap()]);
    assert!(summary.status.is_incomplete());
}

#[tokio::test]
async fn sessions_with_another_database_pass_through_and_are_named() {
    let stage = Stage::new().await;
    stage
        .cluster
        .sql("postgres", "CREATE DATABASE other")
        .unwrap();
    let connection = format!(
        "host=127.0.0.1 port={} user=postgres dbname=other",
        port_of(stage.pg())
    );
    assert_eq!(
        psql(&connection, "SELECT current_database()")
            .await
            .as_deref(),
        Ok("other")
    );
    let (summary, recorded) = stage.end().await;
    assert_eq!(recorded.transactions, []);
    let status = &summary.status;
    assert_eq!(
        (status.other_database_sessions, status.unobserved_sessions),
        (1, 0)
    );
    let GapCause::Unobserved { reason, .. } = &recorded.gaps[0] else {
        panic!("{:?}", recorded.gaps)
    };
    assert!(
        reason.contains("\"other\"") && reason.contains("\"postgres\""),
        "{reason}"
    );
}

#[tokio::test]
async fn what_cannot_be_followed_passes_through_and_is_a_gap() {
    let stage = Stage::new().await;
    let mut stream = raw_session(stage.pg()).await;
    // No client sends this; the server says so and goes on.
    stream.write_all(&[b'?', 0, 0, 0, 4]).await.unwrap();
    let (tag, body) = read_message(&mut stream).await;
    assert_eq!(tag, b'E');
    assert!(String::from_utf8_lossy(&body).contains("invalid frontend message type"));
    until("it is counted", async || {
        stage.recording.status().unobserved_sessions == 1
    })
    .await;
    drop(stream);
    let (_, recorded) = stage.end().await;
    assert!(
        matches!(&recorded.gaps[0], GapCause::Unobserved { .. }),
        "{:?}",
        recorded.gaps
    );
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_a_pipeline_loses_nothing_it_had_sent() {
    let stage = Stage::new().await;
    let mut stream = raw_session(stage.pg()).await;
    let insert = |text: &str| {
        [
            message(
                b'P',
                format!("\0INSERT INTO note (text) VALUES ('{text}')\0\0\0").as_bytes(),
            ),
            message(b'B', b"\0\0\0\0\0\0\0\0"),
            message(b'E', b"\0\0\0\0\0"),
        ]
        .concat()
    };
    let mut flight = insert("first");
    flight.extend(message(b'S', b""));
    flight.extend(insert("second"));
    flight.extend(&message(b'S', b"")[..3]);
    stream.write_all(&flight).await.unwrap();
    drop(stream);
    until("the session has ended", async || {
        stage.recording.sessions().unwrap().sessions() == 0
    })
    .await;
    let left = stage
        .cluster
        .sql("postgres", "SELECT string_agg(text, ',') FROM note")
        .unwrap();
    let (_, recorded) = stage.end().await;
    // Whatever the server made of it, the trace agrees.
    let committed = |t: &&Transaction| t.xid.is_some() && t.outcome == Outcome::Committed;
    assert_eq!(left, "first");
    assert_eq!(recorded.transactions.iter().filter(committed).count(), 1);
    assert_eq!(recorded.unaccounted(), [0; 0]);
}

#[tokio::test]
async fn a_server_that_dies_ends_transactions_and_the_next_session_works() {
    let mut stage = Stage::new().await;
    let client = connect(stage.pg(), "app").await;
    client
        .batch_execute("BEGIN; INSERT INTO note (text) VALUES ('lost')")
        .await
        .unwrap();
    stage.cluster.stop(Shutdown::Immediate).unwrap();
    assert!(client.batch_execute("COMMIT").await.is_err());
    until("the session has ended", async || {
        stage.recording.sessions().unwrap().sessions() == 0
    })
    .await;
    assert!(try_connect(stage.pg(), "app").await.is_err());

    let port = stage.cluster.port();
    stage.cluster.options_mut().port = Some(port);
    stage.cluster.start().unwrap();
    let client = connect(stage.pg(), "app").await;
    client
        .batch_execute("INSERT INTO note (text) VALUES ('kept')")
        .await
        .unwrap();
    drop(client);
    let (summary, recorded) = stage.end().await;
    let outcomes: Vec<_> = recorded
        .about("note")
        .iter()
        .map(|t| t.outcome.clone())
        .collect();
    assert!(
        matches!(
            &outcomes[..],
            [Outcome::Aborted | Outcome::Unknown, Outcome::Committed]
        ),
        "{outcomes:?}"
    );
    assert!(summary.final_state.is_ok(), "{:?}", summary.final_state);
}

/// Stands between gateway and server and swallows the answer to the first `COMMIT`.
async fn forgetful_relay(server: u16) -> u16 {
    const COMMITTED: &[u8] = b"C\0\0\0\x0bCOMMIT\0";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            tokio::spawn(async move {
                let (mut client_reads, mut client_writes) = client.into_split();
                let (mut server_reads, mut server_writes) = server.into_split();
                let forward = tokio::spawn(async move {
                    tokio::io::copy(&mut client_reads, &mut server_writes).await
                });
                let mut buffer = vec![0; 64 << 10];
                let mut kept = Vec::new();
                while let Ok(count @ 1..) = server_reads.read(&mut buffer).await {
                    kept.extend_from_slice(&buffer[..count]);
                    if let Some(at) = kept
                        .windows(COMMITTED.len())
                        .position(|window| window == COMMITTED)
                    {
                        let _ = client_writes.write_all(&kept[..at]).await;
                        forward.abort();
                        return;
                    }
                    if client_writes
                        .write_all(&std::mem::take(&mut kept))
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_settled_with_the_server() {
    let cluster = cluster().await;
    cluster.sql("postgres", SCHEMA).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let relay = forgetful_relay(cluster.port()).await;
    let postgres = format!("postgres://postgres@127.0.0.1:{relay}/postgres");
    let mut options = options(&postgres, 1, folder.path());
    options.final_state = FinalStateMode::Never;
    let recording = record::start(options).await.unwrap();
    let client = connect(recording.started().pg_listen.as_ref().unwrap(), "app").await;
    client
        .batch_execute("BEGIN; INSERT INTO note (text) VALUES ('settled')")
        .await
        .unwrap();
    assert!(
        client.batch_execute("COMMIT").await.is_err(),
        "the answer never came"
    );
    assert_eq!(
        cluster
            .sql("postgres", "SELECT count(*) FROM note")
            .unwrap(),
        "1"
    );
    until("it is uncertain", async || {
        recording.status().uncertain == 1
    })
    .await;
    let summary = recording.stop().await;
    let recorded = Recorded::read(folder.path()).await;
    let settled = recorded.only("note");
    assert_eq!(settled.outcome, Outcome::Committed);
    assert!(settled.xid.is_some());
    assert_eq!(recorded.unaccounted(), [0; 0], "{:?}", summary.status);
}

#[tokio::test]
async fn a_start_that_cannot_work_says_why() {
    let certificates = Certificates::new();
    let cluster = encrypted_cluster(&certificates).await;
    let folder = tempfile::tempdir().unwrap();
    let port = cluster.port();
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let attempt = async |url: &str, change: &dyn Fn(&mut RecordOptions)| -> RecordError {
        let mut options = options(url, 1, folder.path());
        change(&mut options);
        match record::start(options).await {
            Ok(_) => panic!("{url} works"),
            Err(error) => error,
        }
    };
    let check = |error: &RecordError, message: &str, hint: &str| {
        assert!(error.to_string().contains(message), "{error}");
        assert!(error.hint().contains(hint), "{}", error.hint());
        assert!(!error.to_string().contains("wrong"), "no secrets: {error}");
    };
    let nothing = |_: &mut RecordOptions| {};
    let good = format!("postgres://alice:secret@127.0.0.1:{port}/postgres");

    let error = attempt(
        &format!("postgres://alice@127.0.0.1:{free}/postgres"),
        &nothing,
    )
    .await;
    check(
        &error,
        &format!("127.0.0.1:{free}: Connection refused"),
        "check host and port",
    );
    let error = attempt(
        &format!("postgres://alice:wrong@127.0.0.1:{port}/postgres"),
        &nothing,
    )
    .await;
    check(
        &error,
        "password authentication failed for user \"alice\"",
        "user and password",
    );
    let error = attempt(&good.replace("/postgres", "/nowhere"), &nothing).await;
    check(
        &error,
        "database \"nowhere\" does not exist",
        "database's name",
    );
    let error = attempt(
        &format!("{good}?sslmode=verify-full&sslrootcert=/nowhere.pem"),
        &nothing,
    )
    .await;
    check(&error, "/nowhere.pem", "");
    assert!(
        !folder.path().join("trace").exists(),
        "nothing is left behind"
    );

    std::fs::write(folder.path().join("file"), "").unwrap();
    let trace = Location::folder(folder.path().join("file").join("trace"));
    let error = attempt(&good, &|options| options.trace = trace.clone()).await;
    check(&error, "the trace cannot be written", "");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for side in ["http", "postgres"] {
        let error = attempt(&good, &|options| {
            let Front::Proxies(proxies) = &mut options.front else {
                unreachable!()
            };
            let target = if side == "http" {
                &mut proxies.listen
            } else {
                &mut proxies.pg_listen
            };
            *target = address.parse().unwrap();
        })
        .await;
        check(
            &error,
            &format!("{address} is in use"),
            "choose another address",
        );
    }

    // A service that is not there yet is no reason not to start.
    let recording = record::start(options(&good, free, folder.path()))
        .await
        .unwrap();
    let warnings = recording.started().warnings.join("\n");
    assert!(
        warnings.contains(&format!("http://127.0.0.1:{free} cannot be reached yet")),
        "{warnings}"
    );
    recording.stop().await;
}

#[tokio::test]
async fn a_request_to_a_dead_service_is_recorded_as_broken() {
    let cluster = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let recording = record::start(options(&cluster.url("postgres"), free, folder.path()))
        .await
        .unwrap();
    let target = format!(
        "http://127.0.0.1:{}/x",
        port_of(recording.started().listen.as_ref().unwrap())
    );
    let output = run("curl", &["-sS", &target]).await;
    assert!(String::from_utf8_lossy(&output.stdout).contains("cannot be reached"));
    let summary = recording.stop().await;
    assert_eq!(
        (summary.status.requests, summary.status.requests_broken),
        (1, 1)
    );
    let recorded = Recorded::read(folder.path()).await;
    assert!(matches!(
        recorded.requests[0].response,
        Response::Broken { .. }
    ));
}

#[tokio::test]
async fn subtransactions_of_functions_are_not_taken_for_strangers() {
    let stage = Stage::new().await;
    let client = connect(stage.pg(), "postgres").await;
    client
        .batch_execute(
            "CREATE FUNCTION careful() RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
               BEGIN INSERT INTO note (text) VALUES ('careful'); EXCEPTION WHEN others THEN NULL; END; END $$",
        )
        .await
        .unwrap();
    client.batch_execute("SELECT careful()").await.unwrap();
    // The row was written under an id that the transaction does not have.
    let xid: i64 = stage
        .cluster
        .sql("postgres", "SELECT xmin FROM note")
        .unwrap()
        .parse()
        .unwrap();
    drop(client);
    let (summary, recorded) = stage.end().await;
    let of_the_row = |t: &&Transaction| t.xid.is_some_and(|top| top.0 as i64 == xid);
    assert_eq!(recorded.transactions.iter().filter(of_the_row).count(), 0);
    assert_eq!(recorded.unaccounted(), [0; 0]);
    // The server's WAL says whose it is.
    assert_eq!(summary.status.presumed_subtransactions, 0);
    assert_eq!(summary.status.unexplained, 0);
}
