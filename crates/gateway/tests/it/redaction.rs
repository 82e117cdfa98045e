//! What is left out of a recording, and who is let in to what is recorded.

use crate::common::stage::*;
use crate::common::*;
use hindcast_gateway::ListenAddress;
use hindcast_gateway::record::Front;
use hindcast_gateway::redact::Rules;
use hindcast_trace::Outcome;

fn nothing(_: String, _: tokio_postgres::Client) -> futures::future::BoxFuture<'static, String> {
    Box::pin(async { String::new() })
}

#[tokio::test]
async fn a_secret_column_is_in_no_ghost_and_in_no_aborted_answer() {
    let stage = Stage::with(nothing, |options| {
        options.redact = Rules::read(["column:note.text"]).unwrap();
    })
    .await;
    let client = connect(stage.pg(), "app").await;
    let insert = "INSERT INTO note (text) VALUES ($1)";
    client.execute(insert, &[&"hemlig"]).await.unwrap();
    client
        .batch_execute("UPDATE note SET text = 'hemlig två' WHERE text = 'hemlig'")
        .await
        .unwrap();
    // The answers of these are kept: one with a row, one with an error that quotes a value.
    client.batch_execute("BEGIN").await.unwrap();
    client
        .batch_execute("SELECT id, text FROM note; UPDATE counter SET n = 7 WHERE k = 3")
        .await
        .unwrap();
    client.batch_execute("ROLLBACK").await.unwrap();
    client
        .batch_execute("INSERT INTO note (text) VALUES ('hemlig två')")
        .await
        .unwrap_err();
    let copied = client
        .copy_in::<_, bytes::Bytes>("COPY note (text) FROM STDIN")
        .await
        .unwrap();
    let mut copied = Box::pin(copied);
    futures::SinkExt::send(&mut copied, bytes::Bytes::from_static(b"hemlig tre\n"))
        .await
        .unwrap();
    copied.as_mut().finish().await.unwrap();
    let there = stage
        .cluster
        .sql("postgres", "SELECT text FROM note ORDER BY 1");
    assert_eq!(
        there.unwrap().trim(),
        "hemlig tre\nhemlig två",
        "traffic is not changed"
    );
    drop(client);

    let (_, recorded) = stage.end().await;
    let kept = |bytes: &Option<Vec<u8>>| {
        String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned()
    };
    let mut hashes = 0;
    for transaction in &recorded.transactions {
        for kept in [
            kept(&transaction.client_bytes),
            kept(&transaction.server_bytes),
        ] {
            assert!(!kept.contains("hemlig"), "{kept}");
            hashes += kept.matches("redacted-").count();
        }
    }
    assert!(hashes >= 5, "{hashes}");
    let aborted = |t: &&hindcast_trace::Transaction| t.outcome == Outcome::Aborted;
    let answers: Vec<_> = (recorded.transactions.iter().filter(aborted))
        .map(|transaction| kept(&transaction.server_bytes))
        .collect();
    assert!(
        answers
            .iter()
            .any(|answer| answer.contains("Key (text)=(redacted)")),
        "{answers:?}"
    );
    let gaps = format!("{:?}", recorded.gaps);
    assert!(gaps.contains("it copies a redacted column in"), "{gaps}");
}

#[tokio::test]
async fn a_gateway_that_lets_everybody_in_is_warned_about() {
    for (host, warned) in [("0.0.0.0", true), ("127.0.0.1", false)] {
        let stage = Stage::with(nothing, |options| {
            let Front::Proxies(proxies) = &mut options.front else {
                unreachable!()
            };
            proxies.pg_listen = ListenAddress::Tcp {
                host: host.to_owned(),
                port: 0,
            };
        })
        .await;
        let warnings = stage.recording.started().warnings.join("\n");
        assert_eq!(
            warnings.contains("can be reached from other machines"),
            warned,
            "{warnings}"
        );
        stage.end().await;
    }
}
