//! Digests and differences of what tables hold.

use hindcast_rewind::cluster::{Cluster, Options};
use hindcast_rewind::state::{RowDifference, Side, StateError, digest_tables, first_differences};
use hindcast_trace::TableDigest;
use tokio_postgres::Client;

/// A server with databases `a` and `b`, made by the same statements and then changed by different ones.
async fn pair(both: &str, only_a: &str, only_b: &str) -> (Cluster, Client, Client) {
    let cluster = Cluster::temporary_async(Options::throw_away())
        .await
        .unwrap();
    let admin = cluster.connect("postgres").await.unwrap();
    admin.batch_execute("CREATE DATABASE a").await.unwrap();
    let a = cluster.connect("a").await.unwrap();
    a.batch_execute(both).await.unwrap();
    drop(a);
    // The session ends a moment after its client is dropped.
    while admin
        .batch_execute("CREATE DATABASE b TEMPLATE a")
        .await
        .is_err()
    {}
    let (a, b) = (
        cluster.connect("a").await.unwrap(),
        cluster.connect("b").await.unwrap(),
    );
    a.batch_execute(only_a).await.unwrap();
    b.batch_execute(only_b).await.unwrap();
    (cluster, a, b)
}

fn names(digests: &[TableDigest]) -> Vec<&str> {
    digests.iter().map(|digest| digest.table.as_str()).collect()
}

fn row(values: &[&str]) -> Vec<Option<String>> {
    values
        .iter()
        .map(|value| Some((*value).to_owned()))
        .collect()
}

#[tokio::test]
async fn a_digest_depends_on_rows_and_on_nothing_else() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE t (k int PRIMARY KEY, v text, at timestamptz, f float8)",
        "INSERT INTO t SELECT g, 'v' || g, timestamptz '2024-05-01 12:00+00' + g * interval '1 day', 1 / g::float8 FROM generate_series(1, 500) g",
        "INSERT INTO t SELECT g, 'v' || g, timestamptz '2024-05-01 12:00+00' + g * interval '1 day', 1 / g::float8 FROM generate_series(500, 1, -1) g; \
         UPDATE t SET v = 'w'; UPDATE t SET v = 'v' || k; DELETE FROM t WHERE k = 7; INSERT INTO t SELECT 7, 'v7', '2024-05-08 12:00+00', 1 / 7::float8; \
         ALTER DATABASE b SET timezone = 'Asia/Tokyo'; SET timezone = 'Asia/Tokyo'; SET datestyle = 'German'; SET extra_float_digits = 0",
    )
    .await;
    let digests = digest_tables(&a).await.unwrap();
    assert_eq!(digests, digest_tables(&b).await.unwrap());
    assert_eq!(
        (digests[0].table.as_str(), digests[0].rows),
        ("public.t", 500)
    );
    b.batch_execute("UPDATE t SET v = v || ' ' WHERE k = 250")
        .await
        .unwrap();
    assert_ne!(digests, digest_tables(&b).await.unwrap());
}

#[tokio::test]
async fn rows_that_changed_places_are_noticed() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE t (a int, b int)",
        "INSERT INTO t VALUES (1, 2), (3, 4)",
        "INSERT INTO t VALUES (1, 4), (3, 2)",
    )
    .await;
    assert_ne!(
        digest_tables(&a).await.unwrap(),
        digest_tables(&b).await.unwrap()
    );
}

#[tokio::test]
async fn user_tables_are_digested_and_nothing_more() {
    let (_cluster, a, _b) = pair(
        "CREATE SCHEMA \"Odd schema\"; CREATE TABLE \"Odd schema\".\"T\" (\"r\" int, hindcast_row text); CREATE TABLE no_columns (); \
         CREATE TABLE parted (k int) PARTITION BY RANGE (k); CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (9); \
         CREATE TABLE parent (k int); CREATE TABLE child () INHERITS (parent); CREATE UNLOGGED TABLE quick (k int); \
         CREATE VIEW seen AS SELECT 1; CREATE SEQUENCE s; INSERT INTO child VALUES (1); INSERT INTO no_columns DEFAULT VALUES",
        "CREATE TEMP TABLE passing (k int)",
        "",
    )
    .await;
    let digests = digest_tables(&a).await.unwrap();
    assert_eq!(
        names(&digests),
        [
            "\"Odd schema\".\"T\"",
            "public.child",
            "public.no_columns",
            "public.parent",
            "public.parted_1",
            "public.quick"
        ]
    );
    // The parent's own rows only, or every row would count twice.
    assert_eq!(
        digests.iter().map(|digest| digest.rows).collect::<Vec<_>>(),
        [0, 1, 1, 0, 0, 0]
    );
}

#[tokio::test]
async fn the_session_is_left_as_it_was() {
    let (_cluster, a, _b) = pair("CREATE TABLE t ()", "SET timezone = 'Asia/Tokyo'", "").await;
    digest_tables(&a).await.unwrap();
    let settings = a
        .query_one("SELECT current_setting('timezone'), current_setting('transaction_read_only'), current_setting('search_path')", &[])
        .await
        .unwrap();
    assert_eq!(settings.get::<_, &str>(0), "Asia/Tokyo");
    assert_eq!(settings.get::<_, &str>(1), "off");
    assert_eq!(settings.get::<_, &str>(2), "\"$user\", public");
}

#[tokio::test]
async fn a_table_that_may_not_be_read_is_named_and_not_skipped() {
    let (cluster, a, _b) =
        pair("CREATE TABLE t (k int); CREATE ROLE reader LOGIN; CREATE TABLE ours (k int); GRANT SELECT ON ours TO reader", "", "").await;
    drop(a);
    let url = cluster.socket_url("a").replace("postgres@", "reader@");
    let (reader, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let error = digest_tables(&reader).await.unwrap_err();
    assert!(
        matches!(&error, StateError::Read { table, .. } if table == "public.t"),
        "{error}"
    );
    assert!(
        reader
            .query_one("SELECT count(*) FROM ours", &[])
            .await
            .is_ok(),
        "the session is usable"
    );
}

#[tokio::test]
async fn differing_rows_are_found_by_primary_key() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE t (forum int, \"user\" text, n int, PRIMARY KEY (\"user\", forum)); \
         INSERT INTO t SELECT g % 10, 'user ' || g, g FROM generate_series(1, 20000) g",
        "DELETE FROM t WHERE n = 17",
        "UPDATE t SET n = NULL WHERE n = 4711; INSERT INTO t VALUES (3, 'zoë', 1)",
    )
    .await;
    let difference = first_differences(&a, &b, "public.t", 10).await.unwrap();
    assert_eq!(difference.columns, ["forum", "user", "n"]);
    assert_eq!(difference.key, ["user", "forum"]);
    assert!(!difference.more);
    assert_eq!(
        sorted(difference.rows),
        sorted(vec![
            RowDifference::Changed {
                a: row(&["1", "user 4711", "4711"]),
                b: vec![Some("1".to_owned()), Some("user 4711".to_owned()), None],
            },
            RowDifference::OnlyInB(row(&["7", "user 17", "17"])),
            RowDifference::OnlyInB(row(&["3", "zoë", "1"])),
        ])
    );
}

/// In an order that does not depend on hashes.
fn sorted(mut rows: Vec<RowDifference>) -> Vec<RowDifference> {
    rows.sort_by_key(|row| format!("{row:?}"));
    rows
}

#[tokio::test]
async fn equal_tables_do_not_differ_and_large_differences_are_cut() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 1000)",
        "",
        "",
    )
    .await;
    assert!(
        first_differences(&a, &b, "public.t", 5)
            .await
            .unwrap()
            .rows
            .is_empty()
    );
    b.batch_execute("UPDATE t SET k = k + 5000").await.unwrap();
    let difference = first_differences(&a, &b, "public.t", 5).await.unwrap();
    assert_eq!((difference.rows.len(), difference.more), (5, true));
    b.batch_execute("TRUNCATE t").await.unwrap();
    let difference = first_differences(&a, &b, "public.t", 1000).await.unwrap();
    assert_eq!((difference.rows.len(), difference.more), (1000, false));
}

#[tokio::test]
async fn without_a_primary_key_rows_are_counted() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE t (v text); INSERT INTO t VALUES ('twice'), ('twice'), ('same'), ('same'), (NULL)",
        "INSERT INTO t VALUES ('only a')",
        "INSERT INTO t VALUES ('twice')",
    )
    .await;
    let difference = first_differences(&a, &b, "public.t", 10).await.unwrap();
    assert!(difference.key.is_empty());
    assert_eq!(
        sorted(difference.rows),
        [
            RowDifference::Count {
                row: row(&["twice"]),
                a: 2,
                b: 3
            },
            RowDifference::OnlyInA(row(&["only a"])),
        ]
    );
}

#[tokio::test]
async fn a_difference_far_inside_a_long_value_is_seen() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE t (k int PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, repeat('x', 100000) || 'a')",
        "INSERT INTO t VALUES (1, repeat('x', 100000) || 'b')",
    )
    .await;
    let difference = first_differences(&a, &b, "public.t", 10).await.unwrap();
    let [RowDifference::Changed { a, b }] = &difference.rows[..] else {
        panic!("{difference:?}")
    };
    assert_ne!(a, b);
    assert!(
        a[1].as_ref()
            .is_some_and(|value| value.len() < 300 && value.contains("100001 characters")),
        "{a:?}"
    );
}

#[tokio::test]
async fn tables_that_cannot_be_compared_say_why() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE t (k int)",
        "CREATE TABLE a_only ()",
        "ALTER TABLE t ADD COLUMN extra int",
    )
    .await;
    let error = first_differences(&a, &b, "public.a_only", 1)
        .await
        .unwrap_err();
    assert!(
        matches!(error, StateError::Missing { side: Side::B, .. }),
        "{error}"
    );
    let error = first_differences(&a, &b, "public.t", 1).await.unwrap_err();
    assert!(
        matches!(error, StateError::DifferentColumns { .. }),
        "{error}"
    );
    assert!(a.simple_query("SELECT 1").await.is_ok() && b.simple_query("SELECT 1").await.is_ok());
}
