//! Two databases that were once the same.

use hindcast_cluster::{Cluster, Options};
use hindcast_pg::tokio::Client;
use hindcast_retro::noise::Window;
use hindcast_retro::report::Cause;
use hindcast_retro::rows::Causes;

/// A server with databases `a` and `b`, made by the same statements and then changed by different
/// ones.
pub async fn pair(both: &str, only_a: &str, only_b: &str) -> (Cluster, Client, Client) {
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

/// The original ran on 1 May 2024 from 12:00 to 12:10, the changed code on 3 June from 9:00 to
/// 9:05.
pub const WINDOW: Window = Window {
    original: (1_714_564_800_000_000, 1_714_565_400_000_000),
    run: (1_717_405_200_000_000, 1_717_405_500_000_000),
    replayed: None,
};

/// The cause of nothing is known.
pub struct Nobody;

impl Causes for Nobody {
    fn before(&self, _: &str, _: u32, _: u32) -> Cause {
        Cause::Unknown
    }
    fn after(&self, _: &str, _: u32, _: u32) -> Cause {
        Cause::Unknown
    }
    fn deleted(&self, _: &str, _: &str) -> Option<Cause> {
        None
    }
}
