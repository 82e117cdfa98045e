//! What comparing two large tables row by row costs.
//!
//! ```text
//! cargo run --release -p hindcast-state --example compare_rows -- ROWS DIFFERENCES bigint|text|none RUNS
//! ```
//!
//! Makes two databases in a private server that differ in so many rows of one table, whose primary
//! key is of that type, and compares them RUNS times. The yardstick is a plain scan that makes a
//! text of every row and hashes it, of both tables at the same time.

use std::ops::ControlFlow;
use std::time::Instant;

use futures::future;
use hindcast_cluster::{Cluster, Options};
use hindcast_pg::tokio::Client;
use hindcast_state::{Pair, Show};

const YARDSTICK: &str = "SELECT count(*), sum(hashtext(t::text)) FROM t";

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default: u64| -> u64 {
        args.get(place)
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let (rows, differences, runs) = (number(0, 100_000), number(1, 1000), number(3, 3));
    let key = args.get(2).map_or("bigint", String::as_str);

    let began = Instant::now();
    let options = Options::throw_away().set("shared_buffers", "256MB");
    let cluster = Cluster::temporary_async(options).await.expect("a server");
    let (a, b) = databases(&cluster, rows, differences, key).await;
    println!(
        "{rows} rows, {differences} of them different, key {key}; made in {:.0} s",
        began.elapsed().as_secs_f64()
    );
    for run in 1..=runs {
        let before = cpu_s(&cluster, [&a, &b]).await;
        let began = Instant::now();
        future::try_join(a.query_one(YARDSTICK, &[]), b.query_one(YARDSTICK, &[]))
            .await
            .expect("a scan");
        let scan_s = began.elapsed().as_secs_f64();
        let between = cpu_s(&cluster, [&a, &b]).await;

        let began = Instant::now();
        let found = compare(&a, &b).await;
        let compare_s = began.elapsed().as_secs_f64();
        let after = cpu_s(&cluster, [&a, &b]).await;
        println!(
            "run {run}: scan {scan_s:.2} s (server {:.1} s CPU), comparison {compare_s:.2} s (server {:.1} s CPU, client {:.1} s), {:.2} times the scan, {found} differences",
            between.0 - before.0,
            after.0 - between.0,
            after.1 - between.1,
            compare_s / scan_s,
        );
    }
    println!("client memory at most {} MB", peak_mb());
}

async fn databases(cluster: &Cluster, rows: u64, differences: u64, key: &str) -> (Client, Client) {
    let admin = cluster.connect("postgres").await.expect("a session");
    let database = "CREATE DATABASE a";
    admin.batch_execute(database).await.expect("a database");
    let a = cluster.connect("a").await.expect("a session");
    let (declared, value) = match key {
        "bigint" => ("bigint PRIMARY KEY", "g"),
        "text" => ("text PRIMARY KEY", "md5(g::text)"),
        "none" => ("bigint", "g"),
        other => panic!("bigint, text or none, not {other}"),
    };
    // About a hundred bytes, of the usual types.
    a.batch_execute(&format!(
        "CREATE TABLE t (k {declared}, owner int, state text, at timestamptz, amount numeric(12,2), note text); \
         INSERT INTO t SELECT {value}, g % 100000, CASE WHEN g % 3 = 0 THEN 'open' ELSE 'done' END, \
         timestamptz '2024-01-01' + g * interval '1 second', g % 1000 + 0.25, 'note number ' || g FROM generate_series(1, {rows}) g"
    ))
    .await
    .expect("a table");
    // Or the first scan would write everything once more.
    a.batch_execute("VACUUM ANALYZE t").await.expect("a vacuum");
    drop(a);
    // The session ends a moment after its client is dropped.
    while admin
        .batch_execute("CREATE DATABASE b TEMPLATE a")
        .await
        .is_err()
    {}
    let (a, b) = (
        cluster.connect("a").await.expect("a session"),
        cluster.connect("b").await.expect("a session"),
    );
    let step = (rows / differences.max(1)).max(1);
    b.batch_execute(&format!(
        "UPDATE t SET note = 'another note' WHERE note IN (SELECT 'note number ' || (g * {step} - {step} / 2) FROM generate_series(1, {differences}) g)"
    ))
    .await
    .expect("differences");
    b.batch_execute("VACUUM ANALYZE t").await.expect("a vacuum");
    (a, b)
}

async fn compare(a: &Client, b: &Client) -> u64 {
    let pair = Pair::open(a, b).await.expect("two snapshots");
    let aligned = pair.align("public.t").await.expect("a table");
    let show = Show {
        value_characters_max: None,
        provenance: true,
    };
    let mut found = 0;
    pair.differences(&aligned, show, &mut |_| {
        found += 1;
        ControlFlow::Continue(())
    })
    .await
    .expect("differences");
    pair.close().await;
    found
}

/// CPU seconds of the server's processes, those that ended included, and of this one.
async fn cpu_s(cluster: &Cluster, clients: [&Client; 2]) -> (f64, f64) {
    let mut server = 0.0;
    for client in clients {
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
        let pid: i32 = row.expect("a pid").get(0);
        server += process_cpu_s(&pid.to_string(), 13..15);
    }
    // Parallel workers are the postmaster's children, and count there once they ended.
    if let Some(pid) = cluster.pid() {
        server += process_cpu_s(&pid.to_string(), 15..17);
    }
    (server, process_cpu_s("self", 13..15))
}

/// Fields of `/proc/PID/stat` counted from 0, added up; they are in hundredths of a second.
fn process_cpu_s(pid: &str, fields: std::ops::Range<usize>) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program, in parentheses, may hold blanks.
    let rest = stat.rsplit(") ").next().unwrap_or("");
    let values: Vec<&str> = rest.split(' ').collect();
    let ticks = fields.filter_map(|field| values.get(field - 2)?.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) / 1024
}
