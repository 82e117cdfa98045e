//! Whole recordings: a service, its database, and what the trace says afterwards.

mod common;

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use common::*;
use hindcast_gateway::record::{
    FinalStateMode, RecordError, RecordOptions, Recording, Runtimes, Summary,
};
use hindcast_gateway::{ListenAddress, record};
use hindcast_rewind::cluster::{Cluster, Options, Shutdown};
use hindcast_trace::{
    Attribution, GapCause, Isolation, Location, Outcome, Request, RequestFilter, Response, Trace,
    Transaction, TransactionFilter,
};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;

/// A database, a service in front of it, and a recording of both.
struct Stage {
    cluster: Cluster,
    recording: Recording,
    folder: tempfile::TempDir,
}

/// What a service of the tests does with a request: the traceparent it got, and a session through the gateway.
type Handler = fn(String, tokio_postgres::Client) -> futures::future::BoxFuture<'static, String>;

const SCHEMA: &str = "CREATE TABLE note (id serial PRIMARY KEY, text text NOT NULL UNIQUE); \
                      CREATE TABLE seen (xid xid8); \
                      CREATE TABLE counter (k int PRIMARY KEY, n int); \
                      INSERT INTO counter SELECT k, 0 FROM generate_series(1, 10) k; \
                      CREATE ROLE app LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO app; \
                      GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO app";

impl Stage {
    async fn new() -> Self {
        Self::with(|_, _| Box::pin(async { String::new() }), |_| {}).await
    }

    async fn with(handler: Handler, change: impl FnOnce(&mut RecordOptions)) -> Self {
        // What was committed must survive the server's death, or it would give out the same ids again.
        let cluster = cluster_with(Options::throw_away().set("synchronous_commit", "on")).await;
        cluster.sql("postgres", SCHEMA).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let database = Arc::new(OnceLock::new());
        let service = service(handler, Arc::clone(&database)).await;
        let mut options = options(&cluster.url("postgres"), service, folder.path());
        change(&mut options);
        let recording = record::start(options).await.unwrap();
        database.set(recording.started().pg_listen.clone()).unwrap();
        Self {
            cluster,
            recording,
            folder,
        }
    }

    fn pg(&self) -> &ListenAddress {
        &self.recording.started().pg_listen
    }

    async fn request(&self, path: &str) -> String {
        let port = port_of(&self.recording.started().listen);
        let output = run(
            "curl",
            &[
                "-sS",
                "--max-time",
                "25",
                &format!("http://127.0.0.1:{port}{path}"),
            ],
        )
        .await;
        String::from_utf8(output.stdout).unwrap()
    }

    /// Stops the recording and reads what it left.
    async fn end(self) -> (Summary, Recorded) {
        let summary = self.recording.stop().await;
        let recorded = Recorded::read(self.folder.path()).await;
        (summary, recorded)
    }
}

fn options(postgres: &str, service: u16, folder: &Path) -> RecordOptions {
    let mut options = RecordOptions::new(
        any_port(),
        format!("http://127.0.0.1:{service}").parse().unwrap(),
        any_port(),
        postgres.parse().unwrap(),
        Location::folder(folder.join("trace")),
    );
    options.writer.flush_interval = Duration::from_millis(50);
    options.drain = Duration::from_secs(5);
    options
}

async fn service(handler: Handler, database: Arc<OnceLock<ListenAddress>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let database = Arc::clone(&database);
            let service = hyper::service::service_fn(
                move |request: hyper::Request<hyper::body::Incoming>| {
                    let database = Arc::clone(&database);
                    async move {
                        let traceparent = request.headers()["traceparent"]
                            .to_str()
                            .unwrap()
                            .to_owned();
                        let client = connect(database.get().unwrap(), "app").await;
                        let answer = handler(traceparent, client).await;
                        Ok::<_, Infallible>(hyper::Response::new(Full::new(bytes::Bytes::from(
                            answer,
                        ))))
                    }
                },
            );
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    port
}

/// A trace, read whole.
struct Recorded {
    requests: Vec<Request>,
    transactions: Vec<Transaction>,
    gaps: Vec<GapCause>,
    shapes: HashMap<u32, Vec<String>>,
    trace: Trace,
}

impl Recorded {
    async fn read(folder: &Path) -> Self {
        let location = Location::folder(folder.join("trace"));
        tokio::task::spawn_blocking(move || {
            let trace = Trace::open(&location).unwrap();
            let requests = trace
                .requests(RequestFilter::default())
                .collect::<Result<_, _>>()
                .unwrap();
            let mut transactions: Vec<Transaction> = trace
                .transactions(TransactionFilter::default())
                .collect::<Result<_, _>>()
                .unwrap();
            transactions.sort_by_key(|transaction| transaction.id);
            Self {
                requests,
                transactions,
                gaps: trace.gaps().iter().map(|gap| gap.cause.clone()).collect(),
                shapes: trace
                    .shapes()
                    .iter()
                    .map(|shape| (shape.id.0, shape.statements.clone()))
                    .collect(),
                trace,
            }
        })
        .await
        .unwrap()
    }

    fn text(&self, transaction: &Transaction) -> String {
        self.shapes[&transaction.shape.0].join("; ")
    }

    /// The transactions with these words in one of their statements.
    fn about(&self, words: &str) -> Vec<&Transaction> {
        self.transactions
            .iter()
            .filter(|transaction| self.text(transaction).contains(words))
            .collect()
    }

    fn only(&self, words: &str) -> &Transaction {
        match &self.about(words)[..] {
            [one] => one,
            found => panic!(
                "{} transactions with {words:?} among {:?}",
                found.len(),
                self.shapes
            ),
        }
    }

    fn unaccounted(&self) -> Vec<u64> {
        let causes = self.gaps.iter().filter_map(|cause| match cause {
            GapCause::Unaccounted { xids } => Some(xids.iter().map(|xid| xid.0)),
            _ => None,
        });
        causes.flatten().collect()
    }
}

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

/// Writers insert their own ids, readers read them all: a snapshot must say exactly what its reader saw.
#[tokio::test]
async fn snapshots_say_exactly_what_was_seen() {
    // At READ COMMITTED every statement has a snapshot of its own, the recorder's question included.
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
async fn who_passes_no_recorder_is_missed() {
    let stage = Stage::new().await;
    let direct = stage.cluster.connect("postgres").await.unwrap();
    // Reads, aborts, statistics and other databases' affairs are nobody's loss.
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
    assert_eq!(summary.status.unobserved_sessions, 1);
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

async fn raw_session(address: &ListenAddress) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port_of(address)))
        .await
        .unwrap();
    let mut startup = b"\0\0\0\0\0\x03\0\0user\0postgres\0database\0postgres\0\0".to_vec();
    let length = startup.len() as u32;
    startup[..4].copy_from_slice(&length.to_be_bytes());
    stream.write_all(&startup).await.unwrap();
    while read_message(&mut stream).await.0 != b'Z' {}
    stream
}

async fn read_message(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let tag = stream.read_u8().await.unwrap();
    let length = stream.read_u32().await.unwrap() as usize - 4;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    (tag, body)
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
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
        stage.recording.sessions().sessions() == 0
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
        stage.recording.sessions().sessions() == 0
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
    let client = connect(&recording.started().pg_listen, "app").await;
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
        hindcast_rewind::state::digest_tables(&direct)
            .await
            .unwrap()
    };
    let (summary, recorded) = stage.end().await;
    assert_eq!(summary.final_state.unwrap().tables, digests);
    let state = recorded.trace.final_state().unwrap();
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
    (first.unwrap(), second.unwrap());
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
    options.pg_identity = Some((certificates.certificate(), certificates.key()));
    let recording = record::start(options).await.unwrap();
    let port = port_of(&recording.started().pg_listen);
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
            let target = if side == "http" {
                &mut options.listen
            } else {
                &mut options.pg_listen
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
        port_of(&recording.started().listen)
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
