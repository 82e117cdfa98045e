//! What a database that was prepared tells of itself.

use hindcast_cluster::{Cluster, Options};
use hindcast_rewind::pins::{Reserved, prepare};

use crate::pins::ask;

/// Programs look at their columns when they run: they are told what was told before.
#[tokio::test]
async fn defaults_are_told_as_they_were_written() {
    let cluster = Cluster::temporary_async(Options::throw_away())
        .await
        .unwrap();
    let client = cluster.connect("postgres").await.unwrap();
    let table = |name: &str| {
        format!(
            "CREATE TABLE {name} (a timestamptz DEFAULT CURRENT_TIMESTAMP, b timestamptz(3) DEFAULT CURRENT_TIMESTAMP(3), \
             c timestamp DEFAULT LOCALTIMESTAMP, d timestamp DEFAULT LOCALTIMESTAMP(0), e date DEFAULT CURRENT_DATE + 1, \
             f timetz DEFAULT CURRENT_TIME, g timetz DEFAULT CURRENT_TIME(2), h time DEFAULT LOCALTIME, i time DEFAULT LOCALTIME(1), \
             j name DEFAULT CURRENT_CATALOG, k text DEFAULT 'x \"()', l timestamptz DEFAULT now())"
        )
    };
    client.batch_execute(&table("t")).await.unwrap();
    let told = "SELECT string_agg(column_default, E'\\n' ORDER BY ordinal_position) FROM information_schema.columns WHERE table_name = 't'";
    let by_catalog = "SELECT string_agg(pg_get_expr(adbin, adrelid) || pg_get_expr(adbin, adrelid, true), E'\\n' ORDER BY adnum) \
                      FROM pg_attrdef WHERE adrelid = 't'::regclass";
    let before = [ask(&client, told).await, ask(&client, by_catalog).await];
    let pinned = prepare(&client, Reserved::default()).await.unwrap();
    assert!(pinned.active && pinned.rewritten.len() == 10, "{pinned:?}");
    let since = [ask(&client, told).await, ask(&client, by_catalog).await];
    assert_eq!(since, before);
    let null = "SELECT pg_get_expr(NULL, 0) IS NULL";
    assert_eq!(ask(&client, null).await, "t");
}
