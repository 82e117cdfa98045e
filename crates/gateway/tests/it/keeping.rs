//! Statements of the gateway's own stay prepared where nothing in the database can reach them.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::common::stage::Stage;
use crate::common::{PATIENCE, connect};

/// How many statements of ours the session's backend has, told by what it has memory for. (To ask
/// for its prepared statements would have them closed before, and this text is none of them.)
async fn kept(client: &Client) -> i64 {
    let row = client
        .query_one(
            "SELECT count(*) FROM pg_backend_memory_contexts \
              WHERE name = 'CachedPlanSource' AND ident LIKE '%hindcast' || '_ask%'",
            &[],
        )
        .await
        .unwrap();
    row.get(0)
}

/// Until as many are kept as they should be, and for more than the moment of doubt in which none
/// is.
async fn wait(client: &Client, what: &str, holds: impl Fn(i64) -> bool) {
    let (began, mut times) = (Instant::now(), 0);
    while times < 20 {
        let count = kept(client).await;
        times = if holds(count) { times + 1 } else { 0 };
        assert!(began.elapsed() < PATIENCE, "{what}: {count} are kept");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn function(body: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION run(command text) RETURNS void LANGUAGE plpgsql AS \
         $$ BEGIN {body}; END $$"
    )
}

#[tokio::test]
async fn they_are_kept_where_no_function_and_no_view_can_reach_them() {
    let stage = Stage::new().await;
    let client = connect(stage.pg(), "postgres").await;
    wait(&client, "at first", |count| count > 0).await;
    for (body, may_stay) in [
        ("EXECUTE command", false),
        ("PERFORM 1", true),
        ("EXECUTE format('%s', command)", false),
        ("EXECUTE format('DROP TABLE IF EXISTS %I', command)", true),
        ("EXECUTE 'TRUNCATE ' || command", true),
        ("IF false THEN DEALLOCATE ALL; END IF", false),
    ] {
        client.batch_execute(&function(body)).await.unwrap();
        wait(&client, body, |count| (count > 0) == may_stay).await;
    }
    drop(client);
    stage.end().await;
}

#[tokio::test]
async fn what_is_made_past_the_gateway_counts_too() {
    let stage = Stage::new().await;
    let client = connect(stage.pg(), "postgres").await;
    wait(&client, "at first", |count| count > 0).await;
    let sql = |text: &str| stage.cluster.sql("postgres", text).unwrap();
    sql("CREATE VIEW listed AS SELECT * FROM pg_prepared_statements");
    wait(&client, "a view", |count| count == 0).await;
    sql("DROP VIEW listed");
    wait(&client, "no view", |count| count > 0).await;
    // The migration of a block is not to be seen in its text.
    client
        .batch_execute("DO $$ BEGIN EXECUTE 'CREATE FUNCTION run(text) RETURNS void LANGUAGE plpgsql AS ''BEGIN EXEC' || 'UTE $1; END'''; END $$")
        .await
        .unwrap();
    wait(&client, "a function", |count| count == 0).await;
    drop(client);
    stage.end().await;
}
