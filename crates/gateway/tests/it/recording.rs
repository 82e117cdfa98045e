//! Whole recordings: what a trace says about requests and transactions.

use std::sync::LazyLock;
use std::time::Duration;

use crate::common::stage::*;
use crate::common::*;
use hindcast_gateway::record::{self, RecordOptions, Runtimes};
use hindcast_trace::{Attribution, Isolation, Outcome, Transaction};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Barrier;

#[tokio::test]
async fn a_comment_names_the_request_in_either_protocol() {
    let stage = Stage::with(
        |traceparent, client| {
            Box::pin(async move {
                let comment = format!("/*traceparent='{traceparent}'*/");
                let seen = client
                    .simple_query(&format!(
                        "{comment} SELECT query AS simple FROM pg_stat_activity WHERE pid = pg_backend_pid()"
                    ))
                    .await
                    .unwrap();
                let seen = seen.iter().find_map(|message| match message {
                    tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                    _ => None,
                });
                client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
                let insert = format!("INSERT INTO note (text) VALUES ($1) RETURNING id {comment}");
                client.query_one(&insert, &[&"extended"]).await.unwrap();
                client.batch_execute("COMMIT").await.unwrap();
                seen.unwrap()
            })
        },
        |_| {},
    )
    .await;
    let seen = stage.request("/").await;
    assert!(
        !seen.contains("traceparent"),
        "the server must not see the comment, so that plans can be cached: {seen}"
    );
    let (summary, recorded) = stage.end().await;

    let request = &recorded.requests[0];
    for words in ["simple", "INSERT INTO note"] {
        let transaction = recorded.only(words);
        assert_eq!(
            transaction.request,
            Some((request.id, Attribution::Comment)),
            "{words}"
        );
        assert!(transaction.client_bytes.is_none(), "only ghosts need them");
        assert!(transaction.snapshot.is_some(), "{words}");
    }
    let write = recorded
        .transactions
        .iter()
        .find(|transaction| transaction.xid.is_some())
        .unwrap();
    assert_eq!(
        (write.isolation, &write.outcome),
        (Isolation::RepeatableRead, &Outcome::Committed)
    );
    assert_eq!(
        write
            .sequence_values
            .iter()
            .map(|value| value.value)
            .collect::<Vec<_>>(),
        [1]
    );
    assert_eq!(summary.status.by_comment, 2);
    assert_eq!(recorded.gaps, [], "{:?}", summary.status);
}

#[tokio::test]
async fn an_application_name_names_the_request() {
    let stage = Stage::with(
        |traceparent, client| {
            Box::pin(async move {
                client
                    .batch_execute(&format!("SET application_name = '{traceparent}'"))
                    .await
                    .unwrap();
                client
                    .batch_execute("INSERT INTO note (text) VALUES ('named')")
                    .await
                    .unwrap();
                String::new()
            })
        },
        |_| {},
    )
    .await;
    stage.request("/").await;
    let (_, recorded) = stage.end().await;
    let write = recorded
        .transactions
        .iter()
        .find(|transaction| transaction.xid.is_some())
        .unwrap();
    assert_eq!(
        write.request,
        Some((recorded.requests[0].id, Attribution::ApplicationName))
    );
}

#[tokio::test]
async fn the_only_request_in_flight_is_the_one() {
    let stage = Stage::with(
        |_, client| {
            Box::pin(async move {
                client
                    .batch_execute("INSERT INTO note (text) VALUES ('alone')")
                    .await
                    .unwrap();
                String::new()
            })
        },
        |_| {},
    )
    .await;
    stage.request("/").await;
    let (summary, recorded) = stage.end().await;
    let write = recorded
        .transactions
        .iter()
        .find(|transaction| transaction.xid.is_some())
        .unwrap();
    assert_eq!(
        write.request,
        Some((recorded.requests[0].id, Attribution::Alone))
    );
    assert_eq!(
        (summary.status.by_being_alone, summary.status.unattributed),
        (1, 0)
    );
}

#[tokio::test]
async fn a_service_that_never_passes_the_trace_on_is_counted_and_named() {
    static BOTH: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(2));
    let stage = Stage::with(
        |_, client| {
            Box::pin(async move {
                client
                    .batch_execute("SET application_name = 'forgetful'")
                    .await
                    .unwrap();
                BOTH.wait().await;
                client
                    .batch_execute("SELECT count(*) FROM note")
                    .await
                    .unwrap();
                BOTH.wait().await;
                String::new()
            })
        },
        |_| {},
    )
    .await;
    tokio::join!(stage.request("/a"), stage.request("/b"));
    let (summary, recorded) = stage.end().await;
    assert_eq!(summary.status.unattributed, 2, "{:?}", summary.status);
    assert_eq!(
        summary.status.unattributed_by,
        [("app@127.0.0.1".to_owned(), 2)]
    );
    let reads = recorded.about("note");
    assert_eq!(reads.len(), 2);
    assert!(
        reads
            .iter()
            .all(|read| read.request.is_none() && read.client_bytes.is_some())
    );
}

#[tokio::test]
async fn what_belongs_to_no_request_is_a_ghost_with_what_its_client_sent() {
    let stage = Stage::new().await;
    let connection = format!(
        "host=127.0.0.1 port={} user=app dbname=postgres",
        port_of(stage.pg())
    );
    psql(
        &connection,
        "INSERT INTO note (text) VALUES ('by hand') /* why */",
    )
    .await
    .unwrap();
    let (summary, recorded) = stage.end().await;
    let ghost = recorded
        .transactions
        .iter()
        .find(|transaction| transaction.xid.is_some())
        .unwrap();
    assert_eq!(ghost.request, None);
    let bytes = ghost.client_bytes.as_deref().unwrap();
    let text = String::from_utf8_lossy(bytes);
    assert!(
        bytes[0] == b'Q' && text.contains("'by hand') /* why */"),
        "{text}"
    );
    assert_eq!((summary.status.ghosts, summary.status.unattributed), (1, 0));
    assert_eq!(ghost.isolation, Isolation::ReadCommitted);
    assert_eq!(summary.status.read_committed, 1);
}

#[tokio::test]
async fn an_aborted_transaction_keeps_what_it_was_answered() {
    let stage = Stage::with(
        |traceparent, client| {
            Box::pin(async move {
                client.batch_execute("BEGIN").await.unwrap();
                let insert = format!(
                    "INSERT INTO note (text) VALUES ('twice') /*traceparent='{traceparent}'*/"
                );
                client.batch_execute(&insert).await.unwrap();
                let error = client.batch_execute(&insert).await.unwrap_err();
                client.batch_execute("ROLLBACK").await.unwrap();
                error.as_db_error().unwrap().message().to_owned()
            })
        },
        |_| {},
    )
    .await;
    let message = stage.request("/").await;
    assert!(message.contains("duplicate key"));
    let (summary, recorded) = stage.end().await;
    let aborted = recorded
        .transactions
        .iter()
        .find(|transaction| transaction.outcome == Outcome::Aborted)
        .unwrap();
    assert_eq!(
        aborted.request,
        Some((recorded.requests[0].id, Attribution::Comment))
    );
    let bytes = aborted.server_bytes.as_deref().unwrap();
    let text = String::from_utf8_lossy(bytes);
    assert!(
        text.starts_with("C\0\0\0\nBEGIN") && text.contains(&message),
        "{text}"
    );
    assert!(
        bytes.ends_with(b"Z\0\0\0\x05I"),
        "up to the end of the transaction"
    );
    // It had an id, and that id is accounted for.
    assert_eq!(recorded.unaccounted(), [0; 0]);
    assert_eq!(summary.status.transactions_aborted, 1);
}

/// Writers insert their own ids, readers read them all: a snapshot must say exactly what its reader
/// saw.
#[tokio::test]
async fn snapshots_say_exactly_what_was_seen() {
    // At READ COMMITTED every statement has a snapshot of its own, the recorder's question
    // included.
    let raise = |options: &mut RecordOptions| options.raise_isolation = true;
    let stage = Stage::with(|_, _| Box::pin(async { String::new() }), raise).await;
    let mut clients = Vec::new();
    for number in 0..6 {
        let address = stage.pg().clone();
        clients.push(tokio::spawn(async move {
            let client = connect(&address, "app").await;
            let write = client
                .prepare("INSERT INTO seen VALUES (pg_current_xact_id())")
                .await
                .unwrap();
            let mut observed = Vec::new();
            for round in 0..30 {
                match (number + round) % 3 {
                    0 => {
                        client
                            .batch_execute("BEGIN; INSERT INTO seen VALUES (pg_current_xact_id())")
                            .await
                            .unwrap();
                        let end = if round % 4 == 0 { "ROLLBACK" } else { "COMMIT" };
                        client.batch_execute(end).await.unwrap();
                    }
                    1 => {
                        client.execute(&write, &[]).await.unwrap();
                    }
                    _ => {
                        let marker = format!("reader {number}/{round}.");
                        let sql = format!("SELECT xid::text FROM seen /* {marker} */");
                        let rows = match round % 2 {
                            0 => client.query(&sql, &[]).await.unwrap(),
                            _ => {
                                client
                                    .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                                    .await
                                    .unwrap();
                                let rows = client.query(&sql, &[]).await.unwrap();
                                client.batch_execute("COMMIT").await.unwrap();
                                rows
                            }
                        };
                        let xids: Vec<u64> = rows
                            .iter()
                            .map(|row| row.get::<_, String>(0).parse().unwrap())
                            .collect();
                        observed.push((marker, xids));
                    }
                }
            }
            observed
        }));
    }
    let mut observed = Vec::new();
    for client in clients {
        observed.extend(client.await.unwrap());
    }
    let (_, recorded) = stage.end().await;
    let writers: Vec<&Transaction> = recorded
        .transactions
        .iter()
        .filter(|t| t.xid.is_some())
        .collect();
    // A rollback is not worth a question: what was undone has no id in the trace.
    let committed = |number: usize, round: usize| match (number + round) % 3 {
        0 => !round.is_multiple_of(4),
        1 => true,
        _ => false,
    };
    let expected = (0..6).flat_map(|number| (0..30).map(move |round| (number, round)));
    let expected = expected
        .filter(|(number, round)| committed(*number, *round))
        .count();
    assert_eq!(writers.len(), expected);
    for (marker, xids) in observed {
        let sent = |transaction: &&Transaction| {
            let bytes = transaction.client_bytes.as_deref().unwrap_or_default();
            bytes
                .windows(marker.len())
                .any(|window| window == marker.as_bytes())
        };
        let reader = recorded
            .transactions
            .iter()
            .find(sent)
            .unwrap_or_else(|| panic!("{marker} is not recorded"));
        let snapshot = reader
            .snapshot
            .as_ref()
            .unwrap_or_else(|| panic!("{marker} has no snapshot"));
        for writer in &writers {
            let xid = writer.xid.unwrap();
            let expected = writer.outcome == Outcome::Committed && snapshot.sees(xid);
            assert_eq!(
                xids.contains(&xid.0),
                expected,
                "{marker} and {xid:?} of {snapshot:?}"
            );
        }
        assert_eq!(reader.result_rows, xids.len() as u64);
    }
    assert_eq!(recorded.unaccounted(), [0; 0]);
}

#[tokio::test]
async fn sessions_that_do_not_choose_are_raised() {
    let stage = Stage::with(
        |_, _| Box::pin(async { String::new() }),
        |options| options.raise_isolation = true,
    )
    .await;
    let client = connect(stage.pg(), "app").await;
    client.batch_execute("SELECT 'raised'").await.unwrap();
    client
        .batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT 'chosen'; COMMIT")
        .await
        .unwrap();
    let chooses = format!(
        "host=127.0.0.1 port={} user=app dbname=postgres options='-c default_transaction_isolation=serializable'",
        port_of(stage.pg())
    );
    assert_eq!(
        psql(&chooses, "SHOW transaction_isolation")
            .await
            .as_deref(),
        Ok("serializable")
    );
    assert_eq!(
        stage.recording.started().recorder.raised_isolation,
        Some(Isolation::RepeatableRead)
    );
    let row = client
        .query_one("SHOW transaction_isolation", &[])
        .await
        .unwrap();
    assert_eq!(row.get::<_, String>(0), "repeatable read");
    drop(client);
    let (summary, recorded) = stage.end().await;
    let of = |marker: &str| {
        let sent = |t: &&Transaction| {
            String::from_utf8_lossy(t.client_bytes.as_deref().unwrap_or_default()).contains(marker)
        };
        recorded.transactions.iter().find(sent).unwrap().isolation
    };
    assert_eq!(of("'raised'"), Isolation::RepeatableRead);
    assert_eq!(of("'chosen'"), Isolation::ReadCommitted);
    assert_eq!(summary.status.read_committed, 1);
}

#[tokio::test]
async fn new_tables_and_their_sequences_are_known_at_once() {
    let stage = Stage::new().await;
    let client = connect(stage.pg(), "postgres").await;
    client
        .batch_execute("CREATE TABLE fresh (id int GENERATED ALWAYS AS IDENTITY, n int)")
        .await
        .unwrap();
    client
        .query_one("INSERT INTO fresh (n) VALUES (1) RETURNING n, id", &[])
        .await
        .unwrap();
    client
        .batch_execute("ALTER TABLE note ADD COLUMN counter serial")
        .await
        .unwrap();
    client
        .query_one(
            "INSERT INTO note (text) VALUES ('x') RETURNING counter, id",
            &[],
        )
        .await
        .unwrap();
    client
        .query_one("SELECT nextval('fresh_id_seq')", &[])
        .await
        .unwrap();
    drop(client);
    let sequence = |name: &str| -> u32 {
        let oid = stage
            .cluster
            .sql("postgres", &format!("SELECT '{name}'::regclass::oid"))
            .unwrap();
        oid.parse().unwrap()
    };
    let (fresh, counter, id) = (
        sequence("fresh_id_seq"),
        sequence("note_counter_seq"),
        sequence("note_id_seq"),
    );
    let (_, recorded) = stage.end().await;
    let values: Vec<(u32, i64)> = recorded
        .transactions
        .iter()
        .flat_map(|transaction| &transaction.sequence_values)
        .map(|value| (value.sequence, value.value))
        .collect();
    assert_eq!(values, [(fresh, 1), (counter, 1), (id, 1), (fresh, 2)]);
}

#[tokio::test]
async fn the_final_state_is_what_the_tables_hold() {
    let stage = Stage::new().await;
    let client = connect(stage.pg(), "app").await;
    client
        .batch_execute("INSERT INTO note (text) VALUES ('a'), ('b')")
        .await
        .unwrap();
    drop(client);
    let digests = {
        let direct = stage.cluster.connect("postgres").await.unwrap();
        hindcast_state::digest_tables(&direct).await.unwrap()
    };
    let (summary, recorded) = stage.end().await;
    assert_eq!(summary.final_state.unwrap().tables, digests);
    let state = recorded.trace.final_states().last().unwrap();
    assert_eq!(state.tables, digests);
    let note = state
        .tables
        .iter()
        .find(|table| table.table == "public.note");
    assert_eq!(note.map(|table| table.rows), Some(2));
}

#[tokio::test]
async fn with_durable_a_ghosts_commit_is_on_disk_before_it_is_answered() {
    let stage = Stage::with(
        |_, client| {
            Box::pin(async move {
                client
                    .batch_execute("INSERT INTO note (text) VALUES ('requested')")
                    .await
                    .unwrap();
                "done".to_owned()
            })
        },
        |options| {
            options.writer.durable = true;
            options.writer.flush_interval = Duration::from_secs(3600);
        },
    )
    .await;
    let client = connect(stage.pg(), "app").await;
    client
        .batch_execute("INSERT INTO note (text) VALUES ('durable')")
        .await
        .unwrap();
    let status = stage.recording.status().writer;
    assert_eq!(status.accepted, status.flushed);
    // Two pipelined ones wait as well.
    let (first, second) = tokio::join!(
        client.execute("INSERT INTO note (text) VALUES ('third')", &[]),
        client.execute("INSERT INTO note (text) VALUES ('fourth')", &[])
    );
    first.unwrap();
    second.unwrap();
    let status = stage.recording.status().writer;
    assert_eq!(status.accepted, status.flushed);
    assert_eq!(stage.request("/").await, "done");
    assert_eq!(
        stage.recording.status().writer.accepted,
        stage.recording.status().writer.flushed
    );
    drop(client);
    let (_, recorded) = stage.end().await;
    assert_eq!(
        recorded
            .transactions
            .iter()
            .filter(|t| t.xid.is_some())
            .count(),
        4
    );
}

#[tokio::test]
async fn any_runtime_records_everything_that_pgbench_does() {
    for runtimes in [Runtimes::Shared, Runtimes::PerCore(2)] {
        let stage = Stage::with(
            |_, _| Box::pin(async { String::new() }),
            |options| options.runtimes = runtimes,
        )
        .await;
        let script = stage.folder.path().join("script.sql");
        let text = "\\set k random(1, 10)\nBEGIN;\nUPDATE counter SET n = n + 1 WHERE k = :k;\nSELECT n FROM counter WHERE k = :k;\nEND;\n";
        std::fs::write(&script, text).unwrap();
        let (port, script) = (
            port_of(stage.pg()).to_string(),
            script.display().to_string(),
        );
        let mut expected = 0;
        for mode in ["simple", "extended", "prepared"] {
            let arguments = [
                "-n",
                "-h",
                "127.0.0.1",
                "-p",
                &port,
                "-U",
                "app",
                "-M",
                mode,
                "-c",
                "4",
                "-t",
                "25",
            ];
            let output = run(
                "pgbench",
                &[&arguments[..], &["-f", &script, "postgres"]].concat(),
            )
            .await;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                text.contains("100/100"),
                "{mode}: {text}{}",
                String::from_utf8_lossy(&output.stderr)
            );
            expected += 100;
        }
        let (summary, recorded) = stage.end().await;
        let updates: Vec<_> = recorded
            .transactions
            .iter()
            .filter(|t| t.xid.is_some())
            .collect();
        assert_eq!(updates.len(), expected, "{runtimes:?}");
        assert!(
            updates
                .iter()
                .all(|t| t.outcome == Outcome::Committed && t.snapshot.is_some())
        );
        assert_eq!(recorded.gaps, [], "{:?}", summary.status);
        assert!(summary.closed.is_ok());
    }
}

#[tokio::test]
async fn both_sides_may_be_encrypted() {
    let certificates = Certificates::new();
    let cluster = encrypted_cluster(&certificates).await;
    let folder = tempfile::tempdir().unwrap();
    let postgres = format!(
        "postgres://alice:secret@localhost:{}/postgres?sslmode=verify-full&sslrootcert={}",
        cluster.port(),
        certificates.root().display()
    );
    let mut options = options(&postgres, 1, folder.path());
    options.pg_identity = Some(hindcast_pg::Certificate::Files {
        certificate: certificates.certificate(),
        key: certificates.key(),
    });
    let recording = record::start(options).await.unwrap();
    let port = port_of(recording.started().pg_listen.as_ref().unwrap());
    let connection = format!(
        "host=localhost hostaddr=127.0.0.1 port={port} user=alice password=secret dbname=postgres \
         sslmode=verify-full channel_binding=require sslrootcert={}",
        certificates.root().display()
    );
    let rows = psql(&connection, "SELECT n FROM generate_series(1, 1000) n")
        .await
        .unwrap();
    assert_eq!(rows.lines().count(), 1000);
    recording.stop().await;
    let recorded = Recorded::read(folder.path()).await;
    assert_eq!(recorded.only("generate_series").result_rows, 1000);
}

#[tokio::test]
async fn large_results_and_copies_pass_without_filling_memory() {
    let stage = Stage::new().await;
    let mut stream = raw_session(stage.pg()).await;
    let before = peak_memory();
    let mut received = 0;
    for sql in [
        "SELECT repeat('x', 1000) FROM generate_series(1, 100000)",
        // One row that must not be held whole.
        "SELECT repeat('x', 100000000)",
        "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 100000)) TO STDOUT",
    ] {
        stream
            .write_all(&message(b'Q', format!("{sql}\0").as_bytes()))
            .await
            .unwrap();
        received += skip_to_ready(&mut stream).await;
    }
    assert!(received > 300_000_000, "{received}");

    stream
        .write_all(&message(b'Q', b"COPY note (text) FROM STDIN\0"))
        .await
        .unwrap();
    assert_eq!(read_message(&mut stream).await.0, b'G');
    for number in 0..1000 {
        let line = format!("{number} {}\n", "y".repeat(100_000));
        // An index entry would be too large for so long a text.
        let line = &line[..2000.min(line.len() - 1)];
        stream
            .write_all(&message(b'd', format!("{line}\n").as_bytes()))
            .await
            .unwrap();
    }
    stream.write_all(&message(b'c', b"")).await.unwrap();
    skip_to_ready(&mut stream).await;
    let grown = peak_memory().saturating_sub(before);
    assert!(
        grown < 48 << 20,
        "300 MB went through and left {grown} bytes"
    );
    assert_eq!(
        stage
            .cluster
            .sql("postgres", "SELECT count(*) FROM note")
            .unwrap(),
        "1000"
    );
    drop(stream);
    let (_, recorded) = stage.end().await;
    let rows: Vec<u64> = recorded
        .transactions
        .iter()
        .map(|transaction| transaction.result_rows)
        .collect();
    assert_eq!(rows[..3], [100_000, 1, 100_000]);
    assert_eq!(
        recorded.only("COPY note").xid.map(|_| ()),
        Some(()),
        "what it wrote is known"
    );
    assert_eq!(recorded.unaccounted(), [0; 0]);
}

/// Reads up to and including the next `ReadyForQuery`, keeping nothing; says how much that was.
async fn skip_to_ready(stream: &mut tokio::net::TcpStream) -> u64 {
    let mut skipped = 0;
    loop {
        let tag = stream.read_u8().await.unwrap();
        let length = u64::from(stream.read_u32().await.unwrap()) - 4;
        let mut body = (&mut *stream).take(length);
        assert_eq!(
            tokio::io::copy(&mut body, &mut tokio::io::sink())
                .await
                .unwrap(),
            length
        );
        assert_ne!(tag, b'E', "the server complains");
        skipped += length;
        if tag == b'Z' {
            return skipped;
        }
    }
}

#[tokio::test]
async fn a_cancelled_statement_is_recorded_as_it_was_answered() {
    let stage = Stage::new().await;
    let client = connect(stage.pg(), "app").await;
    let bystander = stage.cluster.connect("postgres").await.unwrap();
    let cancel = client.cancel_token();
    let sleeping = tokio::spawn(async move { client.batch_execute("SELECT pg_sleep(600)").await });
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    until("the statement runs", async || {
        bystander
            .query_one(asleep, &[])
            .await
            .unwrap()
            .get::<i64>(0)
            == 1
    })
    .await;
    cancel.cancel_query(tokio_postgres::NoTls).await.unwrap();
    let error = sleeping.await.unwrap().unwrap_err();
    assert_eq!(
        error.code(),
        Some(&tokio_postgres::error::SqlState::QUERY_CANCELED)
    );
    let (_, recorded) = stage.end().await;
    let cancelled = recorded.only("pg_sleep");
    assert_eq!(cancelled.outcome, Outcome::Aborted);
    let bytes = cancelled.server_bytes.as_deref().unwrap();
    assert!(String::from_utf8_lossy(bytes).contains("canceling statement due to user request"));
}
