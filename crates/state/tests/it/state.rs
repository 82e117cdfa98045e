//! Digests and differences of what tables hold.

use std::ops::ControlFlow;

use hindcast_cluster::{Cluster, Options};
use hindcast_pg::ConnectOptions;
use hindcast_pg::tokio::Client;
use hindcast_state::{
    Aligned, Difference, FoundRow, Pair, RowDifference, Show, Side, StateError, Written,
    digest_tables, first_differences,
};
use hindcast_trace::TableDigest;

/// A server with databases `a` and `b`, made by the same statements and then changed by different
/// ones.
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
    assert_eq!(settings.get::<&str>(0), "Asia/Tokyo");
    assert_eq!(settings.get::<&str>(1), "off");
    assert_eq!(settings.get::<&str>(2), "\"$user\", public");
}

#[tokio::test]
async fn a_table_that_may_not_be_read_is_named_and_not_skipped() {
    let (cluster, a, _b) =
        pair("CREATE TABLE t (k int); CREATE ROLE reader LOGIN; CREATE TABLE ours (k int); GRANT SELECT ON ours TO reader", "", "").await;
    drop(a);
    let url = cluster.socket_url_as("reader", "a");
    let reader = Client::connect(&url, &ConnectOptions::default())
        .await
        .unwrap();
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

/// All differences of a table, shown completely, with who wrote the rows.
async fn all(a: &Client, b: &Client, table: &str) -> (Aligned, Vec<Difference>) {
    let pair = Pair::open(a, b).await.unwrap();
    let aligned = pair.align(table).await.unwrap();
    let mut found = Vec::new();
    let show = Show {
        value_characters_max: None,
        provenance: true,
    };
    pair.differences(&aligned, show, &mut |difference| {
        found.push(difference);
        ControlFlow::Continue(())
    })
    .await
    .unwrap();
    pair.close().await;
    (aligned, found)
}

/// The keys of differing rows, with a sign for the kind of difference.
fn keys(differences: &[Difference]) -> Vec<String> {
    let shown = |difference: &Difference| match difference {
        Difference::OnlyInA(row) => format!("-{}", row.key),
        Difference::OnlyInB(row) => format!("+{}", row.key),
        Difference::Changed { a, .. } => format!("~{}", a.key),
    };
    differences.iter().map(shown).collect()
}

#[tokio::test]
async fn differences_come_in_the_order_of_the_key() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE numbers (k bigint PRIMARY KEY, v text); CREATE TABLE texts (k text PRIMARY KEY, v int); \
         CREATE TABLE pairs (n int, t text, v int, PRIMARY KEY (t, n)); \
         INSERT INTO numbers SELECT g * 7 - 30000, 'v' FROM generate_series(1, 50000) g; \
         INSERT INTO texts SELECT 'k' || g, g FROM generate_series(1, 20000) g; \
         INSERT INTO pairs SELECT g % 1000, 't' || (g / 1000), g FROM generate_series(1, 20000) g",
        "DELETE FROM numbers WHERE k IN (-29993, 2, 320000); DELETE FROM texts WHERE v = 15; INSERT INTO numbers VALUES (-9223372036854775808, 'lowest')",
        "UPDATE numbers SET v = 'w' WHERE k IN (9, 16); INSERT INTO numbers VALUES (6, 'new'), (100000000, 'far away'); \
         UPDATE texts SET v = -v WHERE v IN (2, 150); DELETE FROM pairs WHERE v IN (999, 1000, 1001, 2017); UPDATE pairs SET v = NULL WHERE v = 1002",
    )
    .await;
    assert_eq!(
        keys(&all(&a, &b, "public.numbers").await.1),
        [
            "-(-9223372036854775808)",
            "+(-29993)",
            "+(2)",
            "+(6)",
            "~(9)",
            "~(16)",
            "+(320000)",
            "+(100000000)"
        ]
    );
    assert_eq!(
        keys(&all(&a, &b, "public.texts").await.1),
        ["+(k15)", "~(k150)", "~(k2)"]
    );
    assert_eq!(
        keys(&all(&a, &b, "public.pairs").await.1),
        ["-(t0,999)", "-(t1,0)", "-(t1,1)", "~(t1,2)", "-(t2,17)"]
    );
}

#[tokio::test]
async fn a_row_says_who_wrote_it() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE t (k int PRIMARY KEY, v text); CREATE TABLE keyless (v text)",
        "",
        "",
    )
    .await;
    b.batch_execute("BEGIN; INSERT INTO t VALUES (1, 'first'); INSERT INTO keyless VALUES ('x'); INSERT INTO t VALUES (2, 'third')")
        .await
        .unwrap();
    let xid: String = b
        .query_one("SELECT pg_current_xact_id()::text", &[])
        .await
        .unwrap()
        .get(0);
    b.batch_execute("COMMIT").await.unwrap();
    let written = |table: &'static str| {
        let (a, b) = (&a, &b);
        async move {
            let (_, found) = all(a, b, table).await;
            let by = |difference| match difference {
                Difference::OnlyInB(FoundRow {
                    written: Some(Written { xmin, cmin }),
                    ..
                }) => (xmin, cmin),
                other => panic!("{other:?}"),
            };
            found.into_iter().map(by).collect::<Vec<_>>()
        }
    };
    let xid: u32 = xid.parse().unwrap();
    assert_eq!(written("public.t").await, [(xid, 0), (xid, 2)]);
    assert_eq!(written("public.keyless").await, [(xid, 1)]);
}

#[tokio::test]
async fn columns_that_differ_are_left_out_and_named() {
    let (_cluster, a, b) = pair(
        "CREATE TYPE mood AS ENUM ('fine', 'bad'); CREATE DOMAIN percent AS int CHECK (VALUE <= 100); \
         CREATE TABLE t (k int PRIMARY KEY, n int, wide varchar(9), m text, gone int, other int, share percent); \
         INSERT INTO t SELECT g, g, 'w' || g, 'fine', g, g, g % 100 FROM generate_series(1, 5000) g",
        "",
        "ALTER TABLE t ALTER k TYPE bigint, ALTER n TYPE bigint, ALTER wide TYPE text, ALTER m TYPE mood USING m::mood, DROP gone, \
         ALTER other TYPE text USING 'as text ' || other, ALTER share TYPE int, ADD added int; \
         UPDATE t SET wide = 'x', added = 3 WHERE k = 4000; UPDATE t SET m = 'bad', other = 'not seen' WHERE k = 17",
    )
    .await;
    let (aligned, found) = all(&a, &b, "public.t").await;
    assert_eq!(aligned.column_names(), ["k", "n", "wide", "m", "share"]);
    assert_eq!(aligned.key_names(), ["k"]);
    let left_out: Vec<_> = aligned
        .left_out
        .iter()
        .map(|left| (left.column.as_str(), left.a.as_deref(), left.b.as_deref()))
        .collect();
    assert_eq!(
        left_out,
        [
            ("gone", Some("integer"), None),
            ("other", Some("integer"), Some("text")),
            ("added", None, Some("integer")),
        ]
    );
    assert_eq!(keys(&found), ["~(17)", "~(4000)"]);
    let Difference::Changed { a, b } = &found[0] else {
        panic!("{found:?}")
    };
    assert_eq!(a.values, row(&["17", "17", "w17", "fine", "17"]));
    assert_eq!(b.values, row(&["17", "17", "w17", "bad", "17"]));
}

#[tokio::test]
async fn a_primary_key_of_another_type_makes_a_table_incomparable() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1)",
        "",
        "ALTER TABLE t ALTER k TYPE text",
    )
    .await;
    let pair = Pair::open(&a, &b).await.unwrap();
    let error = pair.align("public.t").await.unwrap_err();
    assert!(error.is_about_layout());
    assert_eq!(
        error.to_string(),
        "rows of the table public.t cannot be told apart in the same way: \
         the column k of its primary key is integer in the first database, text in the second"
    );
}

#[tokio::test]
async fn a_table_of_one_side_only_is_all_difference() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE common (k int)",
        "CREATE TABLE old (v text); INSERT INTO old VALUES ('x'), ('x'), ('y')",
        "CREATE TABLE new (k int PRIMARY KEY); INSERT INTO new SELECT generate_series(1, 3)",
    )
    .await;
    let tables: Vec<_> = {
        let pair = Pair::open(&a, &b).await.unwrap();
        let tables = pair.tables().await.unwrap();
        pair.close().await;
        tables
            .into_iter()
            .map(|table| (table.name, table.only_in))
            .collect()
    };
    assert_eq!(
        tables,
        [
            ("public.common".to_owned(), None),
            ("public.new".to_owned(), Some(Side::B)),
            ("public.old".to_owned(), Some(Side::A))
        ]
    );
    let (aligned, found) = all(&a, &b, "public.new").await;
    assert_eq!(aligned.only_in, Some(Side::B));
    assert_eq!(keys(&found), ["+(1)", "+(2)", "+(3)"]);
    let (_, found) = all(&a, &b, "public.old").await;
    let mut counts: Vec<_> = found
        .iter()
        .map(|difference| match difference {
            Difference::OnlyInA(row) => (row.values[0].as_deref(), row.count),
            other => panic!("{other:?}"),
        })
        .collect();
    counts.sort();
    assert_eq!(counts, [(Some("x"), 2), (Some("y"), 1)]);
}

#[tokio::test]
async fn a_primary_key_that_one_side_lacks_is_not_used() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE t (v text); INSERT INTO t VALUES ('x'), ('x'), ('y')",
        "",
        "ALTER TABLE t ADD id serial PRIMARY KEY; DELETE FROM t WHERE id = 2",
    )
    .await;
    let (aligned, found) = all(&a, &b, "public.t").await;
    assert!(aligned.key.is_empty());
    let [Difference::Changed { a, b }] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((a.count, b.count), (2, 1));
}

#[tokio::test]
async fn the_rows_of_a_thousand_random_changes_are_found_exactly() {
    for create in [
        "CREATE TABLE t (k bigint PRIMARY KEY, v int)",
        "CREATE TABLE t (k text PRIMARY KEY, v int)",
        "CREATE TABLE t (k bigint, v int)",
    ] {
        let (_cluster, a, b) = pair(
            &format!(
                "{create}; INSERT INTO t SELECT g * 3, g FROM generate_series(1, 100000) g"
            ),
            "",
            "SELECT setseed(0.42); UPDATE t SET v = -v WHERE random() < 0.004; DELETE FROM t WHERE random() < 0.003; \
             INSERT INTO t SELECT g * 3 + 1, g FROM generate_series(1, 100000) g WHERE random() < 0.003",
        )
        .await;
        let expected: Vec<(i64, i64)> = {
            // Asked of the database itself, with both tables in one.
            let rows = b
                .query(
                    "SELECT count(*), count(*) FILTER (WHERE v < 0) FROM t WHERE v < 0 OR k::bigint % 3 = 1",
                    &[],
                )
                .await
                .unwrap();
            rows.iter().map(|row| (row.get(0), row.get(1))).collect()
        };
        let left: i64 = b
            .query_one("SELECT count(*) FROM t WHERE k::bigint % 3 = 0", &[])
            .await
            .unwrap()
            .get(0);
        let (new_or_changed, changed) = expected[0];
        let (aligned, found) = all(&a, &b, "public.t").await;
        let count = |of: fn(&Difference) -> bool| found.iter().filter(|d| of(d)).count() as i64;
        let (removed, added, differ) = (
            count(|d| matches!(d, Difference::OnlyInA(_))),
            count(|d| matches!(d, Difference::OnlyInB(_))),
            count(|d| matches!(d, Difference::Changed { .. })),
        );
        let gone = 100_000 - left;
        if aligned.key.is_empty() {
            assert_eq!(
                (removed, added, differ),
                (gone + changed, new_or_changed, 0)
            );
        } else {
            assert_eq!(
                (removed, added, differ),
                (gone, new_or_changed - changed, changed)
            );
        }
        assert!(changed > 300 && gone > 200, "{changed} {gone}");
    }
}

#[tokio::test]
async fn a_table_with_few_differences_is_read_once() {
    let (_cluster, a, b) = pair(
        "CREATE TABLE t (k bigint PRIMARY KEY, v text); INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 200000) g; ANALYZE t",
        "",
        "UPDATE t SET v = 'w' WHERE k % 1000 = 7",
    )
    .await;
    let read = async || -> (i64, i64) {
        // What a session did shows once it is idle and others ask.
        a.batch_execute("SELECT pg_stat_force_next_flush()")
            .await
            .unwrap();
        let row = a
            .query_one(
                "SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 't'",
                &[],
            )
            .await
            .unwrap();
        (row.get(0), row.get(1))
    };
    let before = read().await;
    assert_eq!(all(&a, &b, "public.t").await.1.len(), 200);
    let after = read().await;
    assert_eq!(after.0 - before.0, 200_000);
    // 200 ranges of some tens of rows.
    assert!(after.1 - before.1 < 20_000, "{after:?}");
}
