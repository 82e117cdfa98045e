//! Who wrote past the recorder: noticed when it happened, and not said when it did not.

use std::time::{Duration, Instant};

use crate::common::stage::*;
use crate::common::*;
use hindcast_cluster::{Cluster, Options};
use hindcast_gateway::record::{self, Recording};
use hindcast_pg::tokio::Client;
use hindcast_trace::GapCause;

async fn xid(client: &Client, sql: &str) -> u64 {
    client.batch_execute("BEGIN").await.unwrap();
    client.batch_execute(sql).await.unwrap();
    let row = client
        .query_one("SELECT pg_current_xact_id()::text", &[])
        .await
        .unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    row.get::<String>(0).parse().unwrap()
}

async fn missed(stage: &Stage, count: u64) {
    until("it is missed", async || {
        stage.recording.status().unaccounted >= count
    })
    .await;
}

fn wrote(recorded: &Recorded) -> Vec<(Vec<u64>, String)> {
    let told = recorded.gaps.iter().map(|cause| match cause {
        GapCause::Unaccounted { xids, wrote } => {
            (xids.iter().map(|xid| xid.0).collect(), wrote.clone())
        }
        other => panic!("{other:?}"),
    });
    told.collect()
}

#[tokio::test]
async fn a_delete_past_the_gateway_is_noticed_after_any_maintenance() {
    let stage = Stage::new().await;
    let direct = stage.cluster.connect("postgres").await.unwrap();
    direct
        .batch_execute("INSERT INTO note (text) SELECT 'n' || i FROM generate_series(1, 100) i")
        .await
        .unwrap();
    missed(&stage, 1).await;
    let mut deleted = 0;
    for maintenance in ["VACUUM", "ANALYZE", "VACUUM ANALYZE note"] {
        direct.batch_execute(maintenance).await.unwrap();
        let row = direct
            .query_one(
                "WITH gone AS (DELETE FROM note WHERE id = (SELECT max(id) FROM note) RETURNING id) \
                 SELECT pg_current_xact_id()::text FROM gone",
                &[],
            )
            .await
            .unwrap();
        deleted += 1;
        missed(&stage, 1 + deleted).await;
        let id: u64 = row.get::<String>(0).parse().unwrap();
        assert!(id > 0);
    }
    let (summary, recorded) = stage.end().await;
    let wrote = wrote(&recorded);
    assert_eq!(wrote.len(), 4, "{wrote:?}");
    assert_eq!(wrote[0].1, "public.note, public.note_id_seq");
    assert!(
        wrote[1..]
            .iter()
            .all(|(xids, to)| xids.len() == 1 && to == "public.note")
    );
    assert_eq!(summary.status.unexplained, 0);
}

#[tokio::test]
async fn what_changes_nothing_here_is_no_gap() {
    let stage = Stage::new().await;
    let sql = |database: &str, text: &str| stage.cluster.sql(database, text).unwrap();
    // Its id was given out before the last checkpoint, at once after the start.
    sql("postgres", "BEGIN; CREATE ROLE early; CHECKPOINT; COMMIT");
    sql("postgres", "CREATE DATABASE other");
    sql(
        "other",
        "CREATE TABLE t AS SELECT 1 AS x; UPDATE t SET x = 2; VACUUM FULL t",
    );
    sql(
        "other",
        "CREATE TEMP TABLE own (x int); INSERT INTO own VALUES (1)",
    );
    sql("postgres", "CREATE ROLE someone");
    sql(
        "postgres",
        "BEGIN; LOCK TABLE note; SELECT * FROM counter FOR UPDATE; COMMIT",
    );
    sql(
        "postgres",
        "BEGIN; INSERT INTO note (text) VALUES ('undone'); ROLLBACK",
    );
    sql("postgres", "ANALYZE");
    sql("postgres", "VACUUM");
    let end = sql("postgres", "SELECT pg_current_xact_id()::text").parse::<u64>();
    assert!(end.is_ok());
    let (summary, recorded) = stage.end().await;
    assert_eq!(recorded.gaps, []);
    assert_eq!(summary.status.unexplained, 0);
}

#[tokio::test]
async fn a_change_of_the_schema_past_the_gateway_is_one() {
    let stage = Stage::new().await;
    stage.cluster.sql("postgres", "TRUNCATE counter").unwrap();
    missed(&stage, 1).await;
    stage
        .cluster
        .sql(
            "postgres",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        )
        .unwrap();
    missed(&stage, 2).await;
    let (_, recorded) = stage.end().await;
    let wrote = wrote(&recorded);
    assert_eq!(wrote[0].1, "public.counter, the schema");
    assert_eq!(wrote[1].1, "the schema");
}

#[tokio::test]
async fn what_our_own_sessions_do_and_cannot_be_asked_about_is_no_gap() {
    let stage = Stage::new().await;
    let client = connect(stage.pg(), "postgres").await;
    for sql in [
        "VACUUM FULL note",
        "CREATE INDEX CONCURRENTLY ON note (text)",
        "REINDEX TABLE CONCURRENTLY note",
        "CLUSTER note USING note_pkey",
        "CREATE PROCEDURE in_steps() LANGUAGE plpgsql AS $$ BEGIN \
           INSERT INTO note (text) VALUES ('one'); COMMIT; \
           INSERT INTO note (text) VALUES ('two'); COMMIT; END $$",
        "CALL in_steps()",
        "CREATE TEMP TABLE own (x int)",
        "DISCARD ALL",
        "CREATE TEMP TABLE own (x int)",
    ] {
        client.batch_execute(sql).await.unwrap();
    }
    drop(client);
    let (summary, recorded) = stage.end().await;
    assert_eq!(recorded.unaccounted(), [0; 0], "{:?}", recorded.gaps);
    assert_eq!(summary.status.unexplained, 0, "{:?}", recorded.gaps);
}

/// Runs statements through the gateway, each in a message of its own. What they did is ours, and
/// nothing is in doubt.
async fn is_ours(stage: Stage, statements: &[&str]) {
    let client = connect(stage.pg(), "postgres").await;
    for sql in statements {
        client.batch_execute(sql).await.expect(sql);
    }
    drop(client);
    let (summary, recorded) = stage.end().await;
    assert_eq!(recorded.gaps, []);
    assert_eq!(summary.status.unexplained, 0);
}

/// A table with values so long that they are stored apart, and inserted there when it is rewritten.
const LONG: &str = "CREATE TABLE long (id int PRIMARY KEY, text text); \
                    ALTER TABLE long ALTER text SET STORAGE EXTERNAL; \
                    INSERT INTO long SELECT i, repeat('x', 9000) FROM generate_series(1, 5) i";

#[tokio::test]
async fn a_table_with_long_values_that_we_rewrite_is_no_gap() {
    let statements = [
        "VACUUM FULL long",
        "CLUSTER long USING long_pkey",
        "CLUSTER",
    ];
    is_ours(Stage::new().await, &[&[LONG], &statements[..]].concat()).await;
}

#[tokio::test]
async fn what_wal_does_not_show_of_a_rewrite_is_no_gap() {
    let statements = [
        // In what all databases share.
        "VACUUM FULL pg_database",
        "CREATE TEMP TABLE own (x int)",
        "VACUUM (PARALLEL 0, FULL TRUE) own",
        "CREATE UNLOGGED TABLE scratch (x int)",
        "VACUUM (FULL) scratch",
    ];
    is_ours(Stage::new().await, &statements).await;
}

/// Where hints are logged, as with checksums, a table that is cut short has its maps of free space
/// and visibility logged as whole pages.
#[tokio::test]
async fn vacuum_where_hints_are_logged_is_no_gap() {
    let server = Stage::server().set("wal_log_hints", "on");
    let stage = Stage::on(server).await;
    let fill = "INSERT INTO note (text) \
                SELECT repeat('x', 500) || nextval('note_id_seq') FROM generate_series(1, 3000)";
    let client = connect(stage.pg(), "postgres").await;
    for past_us in [false, true] {
        for sql in [fill, "VACUUM note", "DELETE FROM note WHERE id > 50"] {
            client.batch_execute(sql).await.unwrap();
        }
        match past_us {
            true => drop(stage.cluster.sql("postgres", "VACUUM note").unwrap()),
            false => client.batch_execute("VACUUM note").await.unwrap(),
        }
        let pages = "SELECT pg_relation_size('note') BETWEEN 1 AND 80000";
        let cut_short = stage.cluster.sql("postgres", pages).unwrap();
        assert_eq!(cut_short, "t");
    }
    drop(client);
    let (summary, recorded) = stage.end().await;
    assert_eq!(recorded.gaps, []);
    assert_eq!(summary.status.unexplained, 0);
}

/// ANALYZE notes that a table has no children any more.
const CHILDLESS: [&str; 5] = [
    "CREATE TABLE parent (x int)",
    "CREATE TABLE child () INHERITS (parent)",
    "ANALYZE parent",
    "DROP TABLE child",
    "ANALYZE parent",
];

#[tokio::test]
async fn an_analyze_of_a_table_without_children_is_no_gap() {
    is_ours(Stage::new().await, &CHILDLESS).await;
}

const UNLOGGED: &str = "CREATE UNLOGGED TABLE scratch (x int)";

#[tokio::test]
async fn our_maintenance_beside_an_unlogged_table_is_not_in_doubt() {
    let statements = [
        UNLOGGED,
        "INSERT INTO scratch SELECT generate_series(1, 1000)",
        "DELETE FROM scratch",
        // Cuts it short.
        "VACUUM scratch",
        "CREATE TABLE parted (x int) PARTITION BY RANGE (x)",
        "CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE INDEX by_x ON parted (x)",
        "CREATE TEMP TABLE own (x int) ON COMMIT DELETE ROWS",
        "CREATE TEMP TABLE child () INHERITS (own)",
        "CREATE INDEX ON own ((1))",
        "ANALYZE own",
    ];
    let stage = Stage::new().await;
    // Partitioned tables can be clustered since Postgres 15.
    let clusters_partitions = stage.cluster.binaries().major() >= 15;
    let cluster = ["CLUSTER parted USING by_x"];
    let cluster = &cluster[..usize::from(clusters_partitions)];
    let statements = [&statements, cluster, &CHILDLESS[..]].concat();
    is_ours(stage, &statements).await;
}

#[tokio::test]
async fn temporary_tables_that_a_commit_empties_are_not_in_doubt_beside_an_unlogged_table() {
    let statements = [
        UNLOGGED,
        "CREATE TEMP TABLE own (x int) ON COMMIT DELETE ROWS",
        "SELECT * FROM own",
        "BEGIN",
        "SELECT * FROM own",
        "COMMIT",
        "CREATE TEMP TABLE other ON COMMIT DELETE ROWS AS SELECT 1 AS x",
        "SELECT * FROM other",
    ];
    is_ours(Stage::new().await, &statements).await;
}

#[tokio::test]
async fn maintenance_past_the_gateway_is_not_in_doubt_beside_an_unlogged_table() {
    let stage = Stage::new().await;
    let sql = |database: &str, text: &str| stage.cluster.sql(database, text).unwrap();
    sql("postgres", "CREATE DATABASE other");
    sql("other", "CREATE TABLE t (x int); INSERT INTO t VALUES (1)");
    let client = connect(stage.pg(), "postgres").await;
    for text in [UNLOGGED, "DELETE FROM counter"] {
        client.batch_execute(text).await.unwrap();
    }
    sql("postgres", "VACUUM counter");
    sql("other", "DELETE FROM t");
    sql("other", "VACUUM t");
    sql("other", "BEGIN; LOCK TABLE t; COMMIT");
    drop(client);
    let (summary, recorded) = stage.end().await;
    assert_eq!(recorded.gaps, []);
    assert_eq!(summary.status.unexplained, 0);
}

const GRANT: &str = "ALTER ROLE \"recorder\" REPLICATION";

#[tokio::test]
async fn without_the_right_to_read_wal_it_cannot_be_told() {
    let cluster = cluster_with(Options::throw_away().set("synchronous_commit", "on")).await;
    cluster.sql("postgres", SCHEMA).unwrap();
    cluster
        .sql(
            "postgres",
            "CREATE ROLE recorder LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO recorder; \
             CREATE DATABASE other",
        )
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = cluster.url("postgres").replace("postgres@", "recorder@");
    let recording = record::start(options(&url, 1, folder.path()))
        .await
        .unwrap();
    assert!(
        recording
            .started()
            .warnings
            .iter()
            .any(|warning| warning.contains(GRANT)),
        "{:?}",
        recording.started().warnings
    );
    cluster.sql("other", "CREATE TABLE t (x int)").unwrap();
    cluster
        .sql("postgres", "DELETE FROM counter WHERE k = 1")
        .unwrap();
    cluster
        .sql("postgres", "INSERT INTO note (text) VALUES ('left a row')")
        .unwrap();
    until("all three are seen", async || {
        let status = recording.status();
        (status.unexplained, status.unaccounted) == (2, 1)
    })
    .await;
    let summary = recording.stop().await;
    let because = summary.status.unexplained_because.unwrap();
    assert!(because.contains(GRANT), "{because}");
    let recorded = Recorded::read(folder.path()).await;
    let doubts = recorded
        .gaps
        .iter()
        .filter(|cause| cause.is_doubt())
        .count();
    assert_eq!((doubts, recorded.gaps.len() - doubts), (doubts, 1));
    assert!(matches!(
        recorded.gaps.iter().find(|cause| !cause.is_doubt()),
        Some(GapCause::Unaccounted { xids, wrote }) if xids.len() == 1 && wrote == "public.note"
    ));
}

#[tokio::test]
async fn an_unlogged_table_tells_of_rows_that_are_in_it_and_not_of_those_that_are_gone() {
    let stage = Stage::new().await;
    stage
        .cluster
        .sql("postgres", "CREATE UNLOGGED TABLE scratch (x int)")
        .unwrap();
    missed(&stage, 1).await;
    let direct = stage.cluster.connect("postgres").await.unwrap();
    let inserted = xid(&direct, "INSERT INTO scratch VALUES (1)").await;
    missed(&stage, 2).await;
    let deeper = "SAVEPOINT s; INSERT INTO scratch VALUES (2); RELEASE s";
    let deeper = xid(&direct, deeper).await;
    missed(&stage, 3).await;
    xid(&direct, "DELETE FROM scratch").await;
    until("it is doubted", async || {
        stage.recording.status().unexplained == 1
    })
    .await;
    let because = stage.recording.status().unexplained_because.unwrap();
    assert!(because.contains("unlogged"), "{because}");
    let (_, recorded) = stage.end().await;
    let certain = recorded.gaps.iter().filter(|cause| !cause.is_doubt());
    let certain: Vec<&GapCause> = certain.skip(1).collect();
    for (cause, id) in certain.iter().zip([inserted, deeper]) {
        let GapCause::Unaccounted { xids, wrote } = cause else {
            panic!("{cause:?}");
        };
        assert!(xids.iter().any(|xid| xid.0 == id), "{xids:?}");
        assert_eq!(wrote, "public.scratch");
    }
    assert_eq!(certain.len(), 2);
}

#[tokio::test]
async fn a_transaction_that_began_before_the_recording_is_judged_by_its_end() {
    let cluster = cluster_with(Options::throw_away().set("synchronous_commit", "on")).await;
    cluster.sql("postgres", SCHEMA).unwrap();
    let direct = cluster.connect("postgres").await.unwrap();
    direct
        .batch_execute("BEGIN; INSERT INTO note (text) VALUES ('long')")
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = options(&cluster.url("postgres"), 1, folder.path());
    let recording = record::start(options).await.unwrap();
    let row = direct
        .query_one("SELECT pg_current_xact_id()::text", &[])
        .await
        .unwrap();
    direct.batch_execute("COMMIT").await.unwrap();
    until("it is missed", async || recording.status().unaccounted == 1).await;
    recording.stop().await;
    let recorded = Recorded::read(folder.path()).await;
    let id: u64 = row.get::<String>(0).parse().unwrap();
    assert_eq!(recorded.unaccounted(), [id]);
}

/// A request's worth of work on a connection of its own: a temporary table, and a row.
async fn work(recording: &Recording, number: u64) {
    let client = connect(recording.started().pg_listen.as_ref().unwrap(), "app").await;
    client
        .batch_execute(&format!(
            "CREATE TEMP TABLE own AS SELECT {number} AS x; \
             INSERT INTO note (text) SELECT 'n' || x FROM own; \
             UPDATE counter SET n = n + 1 WHERE k = {}",
            number % 10 + 1
        ))
        .await
        .unwrap();
}

async fn neighbours(cluster: &Cluster, end: Instant) {
    let other = cluster.connect("other").await.unwrap();
    while Instant::now() < end {
        other
            .batch_execute("INSERT INTO t VALUES (1); CREATE TEMP TABLE IF NOT EXISTS own (x int); DELETE FROM t WHERE x = 0")
            .await
            .unwrap();
    }
}

async fn maintenance(recording: &Recording, end: Instant) {
    let client = connect(recording.started().pg_listen.as_ref().unwrap(), "postgres").await;
    while Instant::now() < end {
        for sql in ["ANALYZE note", "VACUUM counter", "VACUUM ANALYZE"] {
            client.batch_execute(sql).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// For `HINDCAST_ACCOUNTING_SECONDS`, or 3.
#[tokio::test]
async fn a_service_with_temporary_tables_beside_busy_neighbours_has_no_gap_but_the_one_made() {
    let seconds = std::env::var("HINDCAST_ACCOUNTING_SECONDS");
    let seconds = seconds.ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let cluster = cluster_with(
        Options::throw_away()
            .set("synchronous_commit", "on")
            .set("autovacuum_naptime", "1s")
            .set("autovacuum_vacuum_threshold", "20")
            .set("autovacuum_analyze_threshold", "20"),
    )
    .await;
    cluster.sql("postgres", SCHEMA).unwrap();
    cluster
        .sql(
            "postgres",
            "GRANT ALL ON SCHEMA public TO app; CREATE DATABASE other",
        )
        .unwrap();
    cluster.sql("other", "CREATE TABLE t (x int)").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = options(&cluster.url("postgres"), 1, folder.path());
    let recording = record::start(options).await.unwrap();

    let end = Instant::now() + Duration::from_secs(seconds);
    let requests = async {
        let mut number = 0;
        while Instant::now() < end {
            number += 1;
            work(&recording, number).await;
        }
        number
    };
    let (number, (), ()) = tokio::join!(
        requests,
        neighbours(&cluster, end),
        maintenance(&recording, end)
    );
    assert!(number > 10, "{number} requests");
    let direct = cluster.connect("postgres").await.unwrap();
    let id = xid(&direct, "DELETE FROM note WHERE id = 1").await;
    until("it is missed", async || recording.status().unaccounted > 0).await;
    let summary = recording.stop().await;
    let recorded = Recorded::read(folder.path()).await;
    assert_eq!(
        recorded.gaps.len(),
        1,
        "after {number} requests: {:?}",
        recorded.gaps
    );
    assert_eq!(wrote(&recorded), [(vec![id], "public.note".to_owned())]);
    assert_eq!(summary.status.unexplained, 0);
}
