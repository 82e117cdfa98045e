//! What the recorder asks of the server for itself: clients do not notice, and every id of their
//! sessions is known.

use hindcast_gateway::ListenAddress;
use hindcast_trace::{GapCause, Isolation};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::stage::*;
use crate::common::*;

async fn stage() -> Stage {
    Stage::with(|_, _| Box::pin(async { String::new() }), |_| {}).await
}

async fn raised() -> Stage {
    let quiet: Handler = |_, _| Box::pin(async { String::new() });
    Stage::with(quiet, |options| options.raise_isolation = true).await
}

fn direct(stage: &Stage) -> ListenAddress {
    let address = format!("127.0.0.1:{}", stage.cluster.port());
    address.parse().unwrap()
}

/// Two doctors are on call, and each goes off call because the other one is. SQLSTATE of the
/// second commit, or of what it did before.
async fn write_skew(address: &ListenAddress, user: &str) -> Option<String> {
    let (one, other) = (connect(address, user).await, connect(address, user).await);
    one.batch_execute("UPDATE counter SET n = 1 WHERE k IN (1, 2)")
        .await
        .unwrap();
    for client in [&one, &other] {
        client.batch_execute("BEGIN").await.unwrap();
        let row = client
            .query_one(
                "SELECT count(*) FROM counter WHERE k IN (1, 2) AND n = 1",
                &[],
            )
            .await
            .unwrap();
        assert_eq!(row.get::<_, i64>(0), 2);
    }
    let off = |k: i32| format!("UPDATE counter SET n = 0 WHERE k = {k}");
    one.batch_execute(&off(1)).await.unwrap();
    one.batch_execute("SELECT 1").await.unwrap();
    let second = async {
        other.batch_execute(&off(2)).await?;
        one.batch_execute("COMMIT").await?;
        other.batch_execute("COMMIT").await
    };
    let error = second.await.err()?;
    Some(error.code()?.code().to_owned())
}

async fn default_isolation(client: &tokio_postgres::Client) -> String {
    let row = client
        .query_one("SHOW default_transaction_isolation", &[])
        .await
        .unwrap();
    row.get(0)
}

#[tokio::test]
async fn a_role_or_database_that_defaults_to_serializable_keeps_it() {
    let stage = raised().await;
    let sql = |text: &str| stage.cluster.sql("postgres", text).unwrap();
    sql("CREATE ROLE strict LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO strict");
    sql("ALTER ROLE strict SET default_transaction_isolation = 'serializable'");
    for address in [&direct(&stage), stage.pg()] {
        assert_eq!(
            write_skew(address, "strict").await.as_deref(),
            Some("40001"),
            "the role's default, at {address}"
        );
    }
    assert_eq!(
        write_skew(stage.pg(), "app").await,
        None,
        "it is not more than raised"
    );
    sql("ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'");
    for address in [&direct(&stage), stage.pg()] {
        assert_eq!(
            write_skew(address, "app").await.as_deref(),
            Some("40001"),
            "the database's default, at {address}"
        );
    }
    let (_, recorded) = stage.end().await;
    let serializable = recorded.about("UPDATE counter SET n = $1 WHERE k = $2");
    let serializable = serializable
        .iter()
        .filter(|one| one.isolation == Isolation::Serializable);
    assert!(serializable.count() >= 2, "as serializable it is recorded");
}

#[tokio::test]
async fn a_raised_session_stays_raised_unless_it_chooses() {
    let stage = raised().await;
    let client = connect(stage.pg(), "app").await;
    for back in [
        "SELECT 1",
        "RESET ALL",
        "DISCARD ALL",
        "RESET default_transaction_isolation",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; RESET ALL",
        "BEGIN; RESET ALL; COMMIT",
        "SET default_transaction_isolation TO DEFAULT",
    ] {
        client.batch_execute(back).await.unwrap();
        assert_eq!(
            default_isolation(&client).await,
            "repeatable read",
            "after {back}"
        );
    }
    client
        .batch_execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")
        .await
        .unwrap();
    client.batch_execute("RESET search_path").await.unwrap();
    assert_eq!(default_isolation(&client).await, "read committed");
    let warnings = stage.recording.started().warnings.join("\n");
    assert!(warnings.contains("40001"), "{warnings}");
    let (summary, _) = stage.end().await;
    assert_eq!(
        summary.status.read_committed, 0,
        "no transaction touched data there"
    );
}

#[tokio::test]
async fn temporary_tables_leave_no_gap_however_a_session_ends() {
    let stage = stage().await;
    let temporary =
        "CREATE TEMP TABLE scratch (a int) ON COMMIT PRESERVE ROWS; INSERT INTO scratch VALUES (1)";
    for _ in 0..3 {
        let url = format!(
            "host=127.0.0.1 port={} user=app dbname=postgres",
            port_of(stage.pg())
        );
        psql(&url, temporary).await.unwrap();
    }
    // Without a last word, within a block and outside of one.
    for before in ["", "BEGIN; SELECT 1; "] {
        let mut stream = raw_session(stage.pg()).await;
        let text = format!("{before}{temporary}\0");
        stream
            .write_all(&message(b'Q', text.as_bytes()))
            .await
            .unwrap();
        while read_message(&mut stream).await.0 != b'Z' {}
    }
    let pooled = connect(stage.pg(), "app").await;
    for reset in ["DISCARD ALL", "DISCARD TEMP", "DROP TABLE pg_temp.scratch"] {
        pooled.batch_execute(temporary).await.unwrap();
        pooled.batch_execute(reset).await.unwrap();
    }
    // And one that is still open when the recording stops.
    pooled.batch_execute(temporary).await.unwrap();
    let left = "SELECT count(*) FROM pg_class WHERE relname = 'scratch'";
    until("only the pool's is left", || async {
        stage.cluster.sql("postgres", left).unwrap().trim() == "1"
    })
    .await;
    let (summary, recorded) = stage.end().await;
    assert_eq!(recorded.gaps, [], "{:?}", summary.status);
}

#[tokio::test]
async fn a_call_that_commits_inside_is_a_gap_that_says_so() {
    let stage = stage().await;
    stage
        .cluster
        .sql(
            "postgres",
            "CREATE PROCEDURE once() LANGUAGE sql AS 'UPDATE counter SET n = n + 1 WHERE k = 3';
             CREATE PROCEDURE twice() LANGUAGE plpgsql AS $$ BEGIN
                 UPDATE counter SET n = n + 1 WHERE k = 3; COMMIT; UPDATE counter SET n = n + 1 WHERE k = 3;
             END $$",
        )
        .unwrap();
    let client = connect(stage.pg(), "app").await;
    client.execute("CALL once()", &[]).await.unwrap();
    client.execute("CALL twice()", &[]).await.unwrap();
    client.batch_execute("CALL twice()").await.unwrap();
    let in_block = client.batch_execute("BEGIN; CALL once(); COMMIT").await;
    in_block.unwrap();
    drop(client);
    let (_, recorded) = stage.end().await;
    let said: Vec<&str> = recorded
        .gaps
        .iter()
        .filter_map(|gap| match gap {
            GapCause::Unobserved { reason, .. } => Some(reason.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(said.len(), 2, "{:?}", recorded.gaps);
    for reason in said {
        assert!(
            reason.starts_with("`CALL twice()` committed inside")
                && reason.contains("without COMMIT"),
            "{reason}"
        );
    }
}

#[tokio::test]
async fn a_client_finds_nothing_of_ours_and_can_take_nothing_from_us() {
    let stage = stage().await;
    let client = connect(stage.pg(), "app").await;
    let _own = client.prepare("SELECT 1 AS hindcast_ask").await.unwrap();
    client
        .batch_execute("PREPARE hindcast_1 AS SELECT 1")
        .await
        .unwrap();
    for dealing in [
        "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$",
        "PREPARE hindcast_3 AS SELECT 1",
        "DISCARD ALL",
    ] {
        client.batch_execute("BEGIN").await.unwrap();
        client
            .query_one("SELECT count(*) FROM counter", &[])
            .await
            .unwrap();
        client.batch_execute("COMMIT").await.unwrap();
        client.batch_execute(dealing).await.unwrap();
        client.batch_execute("BEGIN").await.unwrap();
        client
            .batch_execute("UPDATE counter SET n = 7 WHERE k = 7")
            .await
            .unwrap();
        client.batch_execute("COMMIT").await.unwrap();
    }
    let names = client
        .simple_query("SELECT name AS hindcast_ask FROM pg_prepared_statements")
        .await
        .unwrap();
    let rows: Vec<_> = names
        .iter()
        .filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get("hindcast_ask")),
            _ => None,
        })
        .collect();
    assert_eq!(rows, [None::<&str>; 0], "DISCARD ALL left none");
    let (_, recorded) = stage.end().await;
    assert_eq!(recorded.gaps, []);
}

#[tokio::test]
async fn psql_points_where_it_does_without_us() {
    let stage = stage().await;
    let mut seen = Vec::new();
    for address in [direct(&stage), stage.pg().clone()] {
        let url = format!(
            "host=127.0.0.1 port={} user=postgres dbname=postgres",
            port_of(&address)
        );
        let output = run(
            "psql",
            &[
                "-Xq",
                "-d",
                &url,
                "-c",
                "CREATE TABLE narrow (a int, b int)",
                "-c",
                "PREPARE q AS SELECT a, a, a, a, a, a, a, a, a, a, a, b FROM narrow",
                "-c",
                "ALTER TABLE narrow DROP COLUMN b",
                "-c",
                "EXECUTE q",
                "-c",
                "SELECT 1 +",
                "-c",
                "DROP TABLE narrow",
                "-c",
                "BEGIN",
                "-c",
                "CHECKPOINT",
                "-c",
                "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
                "-c",
                "COMMIT",
            ],
        )
        .await;
        seen.push(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    assert!(
        seen[0].contains("column \"b\" does not exist"),
        "{}",
        seen[0]
    );
    assert_eq!(seen[0], seen[1]);
    drop(stage.end().await);
}

/// What comes back, up to the end, for what a client opens a connection with.
async fn greeted(address: &ListenAddress, packets: &[u8]) -> Vec<u8> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port_of(address)))
        .await
        .unwrap();
    greeted_on(stream, packets).await
}

async fn greeted_on(mut stream: tokio::net::TcpStream, packets: &[u8]) -> Vec<u8> {
    stream.write_all(packets).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer))
        .await
        .expect("the connection ends")
        .unwrap();
    answer
}

/// The fields of an `ErrorResponse` that do not name Postgres' source.
fn fields(answer: &[u8]) -> Vec<String> {
    let start = answer.iter().position(|&byte| byte == b'E');
    let body = start.and_then(|start| answer.get(start + 5..));
    body.unwrap_or_default()
        .split(|&byte| byte == 0)
        .map(|field| String::from_utf8_lossy(field).into_owned())
        .filter(|field| field.starts_with(['S', 'V', 'C', 'M']))
        .collect()
}

#[tokio::test]
async fn what_is_no_startup_packet_is_refused_as_the_server_does() {
    let stage = stage().await;
    let packet = |code: u32, body: &[u8]| {
        let length = body.len() as u32 + 8;
        [&length.to_be_bytes()[..], &code.to_be_bytes(), body].concat()
    };
    const SSL: u32 = 80_877_103;
    for (what, body) in [
        ("no terminator", &b"user\0postgres\0"[..]),
        ("a name without value", b"user\0"),
        ("something behind the end", b"user\0postgres\0\0more\0\0"),
        ("nothing", b""),
    ] {
        let packet = packet(3 << 16, body);
        let expected = fields(&greeted(&direct(&stage), &packet).await);
        assert_eq!(
            fields(&greeted(stage.pg(), &packet).await),
            expected,
            "{what}"
        );
        assert!(
            expected.iter().any(|field| field == "C08P01"),
            "{what}: {expected:?}"
        );
    }
    let ssl = packet(SSL, b"");
    for address in [&direct(&stage), stage.pg()] {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port_of(address)))
            .await
            .unwrap();
        stream.write_all(&ssl).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'N');
        let answer = greeted_on(stream, &ssl).await;
        let fields = fields(&answer);
        assert!(
            fields.contains(&"C0A000".to_owned())
                && fields
                    .iter()
                    .any(|field| field.contains("unsupported frontend protocol 1234.5679")),
            "{fields:?}"
        );
    }
    drop(stage.end().await);
}
