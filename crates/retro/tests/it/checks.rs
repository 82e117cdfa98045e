//! The user's own queries against a real server.

use std::time::Duration;

use hindcast_cluster::{Cluster, Options};
use hindcast_pg::tokio::Client;
use hindcast_retro::checks::{Limits, ask, check};
use hindcast_retro::report::Answer;

async fn database(sql: &str) -> (Cluster, Client) {
    let cluster = Cluster::temporary_async(Options::throw_away())
        .await
        .unwrap();
    let client = cluster.connect("postgres").await.unwrap();
    client.batch_execute(sql).await.unwrap();
    (cluster, client)
}

fn rows(columns: &[&str], rows: &[&[Option<&str>]], count: u64) -> Answer {
    let text = |row: &&[Option<&str>]| row.iter().map(|value| value.map(str::to_owned)).collect();
    Answer::Rows {
        columns: columns.iter().map(|column| (*column).to_owned()).collect(),
        rows: rows.iter().map(text).collect(),
        count,
    }
}

fn failed(answer: &Answer) -> &str {
    match answer {
        Answer::Failed { error } => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_query_is_answered_and_changes_nothing() {
    let (_cluster, client) = database(
        "CREATE TABLE t (k int, v text); INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 1000) g; CREATE SEQUENCE s",
    )
    .await;
    let limits = Limits {
        rows: 2,
        timeout: Duration::from_secs(20),
    };
    let ask = async |sql: &str| ask(&client, sql, &limits).await;
    assert_eq!(
        ask("SELECT k, nullif(v, 'v2') AS v FROM t ORDER BY k -- the first ones").await,
        rows(
            &["k", "v"],
            &[&[Some("1"), Some("v1")], &[Some("2"), None]],
            1000
        )
    );
    assert_eq!(
        ask(" SELECT k FROM t WHERE k > 1000; ").await,
        rows(&["k"], &[], 0)
    );
    assert_eq!(
        ask("TABLE t LIMIT 2").await,
        rows(
            &["k", "v"],
            &[&[Some("1"), Some("v1")], &[Some("2"), Some("v2")]],
            2
        )
    );
    assert_eq!(
        failed(&ask("SELECT * FROM u").await),
        "relation \"u\" does not exist"
    );
    assert_eq!(
        failed(&ask("SELECT nextval('s')").await),
        "cannot execute nextval() in a read-only transaction"
    );
    assert_eq!(
        failed(&ask("SELECT 1; COMMIT; DELETE FROM t").await),
        "cannot insert multiple commands into a prepared statement"
    );
    failed(&ask("DELETE FROM t").await);
    failed(&ask("WITH gone AS (DELETE FROM t RETURNING 1) SELECT count(*) FROM gone").await);
    failed(&ask("").await);
    // The session is as it was.
    client
        .batch_execute("INSERT INTO t VALUES (0, '')")
        .await
        .unwrap();
    assert_eq!(
        ask("SELECT count(*) FROM t").await,
        rows(&["count"], &[&[Some("1001")]], 1)
    );
}

#[tokio::test]
async fn a_query_that_takes_too_long_is_ended() {
    let (_cluster, client) = database("").await;
    let limits = Limits {
        rows: 2,
        timeout: Duration::from_millis(50),
    };
    // At once, while rows are fetched, and while they are counted.
    for sql in [
        "SELECT pg_sleep(60)",
        "SELECT CASE WHEN g > 3 THEN pg_sleep(60) END FROM generate_series(1, 10) g",
    ] {
        assert_eq!(
            failed(&ask(&client, sql, &limits).await),
            "canceling statement due to statement timeout"
        );
    }
}

#[tokio::test]
async fn without_an_original_only_one_side_is_asked() {
    let (_cluster, client) = database("").await;
    let check = check(None, &client, "SELECT 1 AS one", &Limits::default()).await;
    assert_eq!(check.before, Answer::NotAsked);
    assert_eq!(check.after, rows(&["one"], &[&[Some("1")]], 1));
}
