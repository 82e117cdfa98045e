//! How fast a log is applied: the synthetic workloads of the C5 paper (section 6) on the in-memory
//! store.
//!
//! ```text
//! cargo run --release -p hindcast-store --example throughput -- insert-only
//! cargo run --release -p hindcast-store --example throughput -- adversarial 16 --mode single
//! cargo run --release -p hindcast-store --example throughput -- scheduler --json
//! ```
//!
//! The log is in memory before the clock starts. The clock stops when the last commit is visible.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use hindcast_store::{Appender, Cell, Mark, Metrics, Mode, Options, Store, TableId};

const USAGE: &str = "\
usage: throughput insert-only | adversarial N | update | scheduler  [options]

  insert-only         transactions of 16 unique inserts each
  adversarial N       transactions of N unique inserts and one update of the same row
  update              transactions of 16 updates of random rows, as many as there are rows
  scheduler           insert-only without workers: segments are thrown away as they come

  --mode row|transaction|single   what runs in parallel (row)
  --workers N                     threads that apply (2)
  --rows N                        writes in the log (4000000)
  --segment-kib N                 size of a segment
  --retention-ms N                how much history is kept, at 10 µs per transaction (10)
  --write-us N                    every write takes so much longer, asleep (0)
  --json                          one line of JSON";

#[derive(Clone, Copy, PartialEq)]
enum Workload {
    InsertOnly,
    Adversarial(u64),
    Update,
    Scheduler,
}

struct Arguments {
    workload: Workload,
    options: Options,
    rows: u64,
    write_cost: Duration,
    json: bool,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Arguments> {
    let workload = match arguments.next()?.as_str() {
        "insert-only" => Workload::InsertOnly,
        "adversarial" => Workload::Adversarial(arguments.next()?.parse().ok()?),
        "update" => Workload::Update,
        "scheduler" => Workload::Scheduler,
        _ => return None,
    };
    let options = Options {
        retention: Duration::from_millis(10),
        ..Options::default()
    };
    let mut parsed = Arguments {
        workload,
        options,
        rows: 4_000_000,
        write_cost: Duration::ZERO,
        json: false,
    };
    while let Some(argument) = arguments.next() {
        if argument == "--json" {
            parsed.json = true;
            continue;
        }
        let value = arguments.next()?;
        match argument.as_str() {
            "--mode" => {
                parsed.options.mode = match value.as_str() {
                    "row" => Mode::Row,
                    "transaction" => Mode::Transaction,
                    "single" => Mode::Single,
                    _ => return None,
                }
            }
            "--workers" => parsed.options.workers = value.parse().ok()?,
            "--write-us" => parsed.write_cost = Duration::from_micros(value.parse().ok()?),
            "--rows" => parsed.rows = value.parse().ok()?,
            "--segment-kib" => parsed.options.segment_bytes = value.parse::<usize>().ok()? << 10,
            "--retention-ms" => {
                parsed.options.retention = Duration::from_millis(value.parse().ok()?)
            }
            _ => return None,
        }
    }
    Some(parsed)
}

/// One write of the log: a key and a value, or the end of a transaction.
#[derive(Clone, Copy)]
enum Record {
    Write { key: u64, value: u64 },
    Commit,
}

const HOT: u64 = u64::MAX;

fn log(workload: Workload, rows: u64) -> Vec<Record> {
    let (inserts, hot) = match workload {
        Workload::InsertOnly | Workload::Update | Workload::Scheduler => (16, false),
        Workload::Adversarial(inserts) => (inserts, true),
    };
    let mut log = Vec::with_capacity((rows + rows / inserts.max(1) + 2 * inserts) as usize);
    let mut written = 0;
    let mut key = 0;
    while written < rows {
        for _ in 0..inserts {
            log.push(Record::Write {
                key,
                value: key.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            });
            key += 1;
        }
        if hot {
            log.push(Record::Write {
                key: HOT,
                value: written,
            });
        }
        written += inserts + u64::from(hot);
        log.push(Record::Commit);
    }
    log
}

/// The rows of an insert-only log in another order, with other values.
fn updates(inserts: &[Record]) -> Vec<Record> {
    let mut random = 1u64;
    let mut keys: Vec<u64> = inserts
        .iter()
        .filter_map(|record| match record {
            Record::Write { key, .. } => Some(*key),
            Record::Commit => None,
        })
        .collect();
    for i in (1..keys.len()).rev() {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        keys.swap(i, (random >> 33) as usize % (i + 1));
    }
    let mut keys = keys.into_iter();
    inserts
        .iter()
        .map(|record| match record {
            Record::Write { value, .. } => Record::Write {
                key: keys.next().unwrap_or(0),
                value: !value,
            },
            Record::Commit => Record::Commit,
        })
        .collect()
}

/// Returns the position of the last commit and how many rows there were.
fn feed(appender: &mut Appender, log: &[Record], mut lsn: u64) -> (u64, u64) {
    let mut rows = 0;
    for record in log {
        match record {
            Record::Write { key, value } => {
                let key = key.to_be_bytes();
                let cells = [Cell::Value(&key), Cell::Value(&value.to_be_bytes())];
                appender.put(TableId(1), &key, 1, cells.into_iter(), None);
                rows += 1;
            }
            Record::Commit => {
                lsn += 1;
                appender.commit(Mark {
                    lsn,
                    time: lsn as i64 * 10,
                });
            }
        }
    }
    appender.flush();
    (lsn, rows)
}

/// CPU seconds of the threads of one kind, by the beginning of their name.
fn cpu_of(name: &str) -> f64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return 0.0;
    };
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let nanoseconds: u64 = threads
        .flatten()
        .filter(|thread| read(thread.path().join("comm")).starts_with(name))
        .filter_map(|thread| {
            read(thread.path().join("schedstat"))
                .split(' ')
                .next()?
                .parse::<u64>()
                .ok()
        })
        .sum();
    nanoseconds as f64 / 1e9
}

/// CPU time of this process so far, all threads.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the command's name in parentheses; user and system time are the 12th and 13th from
    // there, in hundredths of a second.
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |i: usize| {
        fields
            .get(i)
            .and_then(|field| field.parse::<u64>().ok())
            .unwrap_or(0)
    };
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    hindcast_store::measure::set_write_cost(arguments.write_cost);
    let mut log = log(arguments.workload, arguments.rows);
    let (store, mut appender) = match arguments.workload {
        Workload::Scheduler => (
            None,
            hindcast_store::measure::scheduler_alone(arguments.options.clone()),
        ),
        _ => {
            let (store, appender) = hindcast_store::open(arguments.options.clone());
            (Some(store), appender)
        }
    };
    let visible = |lsn: u64| match &store {
        Some(store) if !store.wait_visible(lsn, Instant::now() + Duration::from_secs(600)) => {
            eprintln!(
                "Error: the log was not applied: {:?}, {:?}",
                store.failure(),
                store.metrics()
            );
            std::process::exit(1);
        }
        _ => {}
    };
    let mut position = 0;
    if arguments.workload == Workload::Update {
        position = feed(&mut appender, &log, 0).0;
        visible(position);
        log = updates(&log);
    }
    let (cpu_before, start) = (cpu(), Instant::now());
    let before = [
        cpu_of("throughput"),
        cpu_of("store-worker"),
        cpu_of("store-"),
    ];
    let (lsn, rows) = feed(&mut appender, &log, position);
    visible(lsn);
    let elapsed = start.elapsed().as_secs_f64();
    let cpu = (cpu() - cpu_before).as_secs_f64();
    let metrics = store.as_ref().map(Store::metrics).unwrap_or_default();
    let scheduler = cpu_of("throughput") - before[0];
    let workers = cpu_of("store-worker") - before[1];
    let cost = Cost {
        seconds: elapsed,
        cpu,
        scheduler,
        workers,
        others: cpu_of("store-") - before[2] - workers,
    };
    print(&arguments, lsn - position, rows, &cost, &metrics);
    // Not worth the time it takes to free millions of rows one by one.
    std::process::exit(0);
}

/// What it took, in seconds.
struct Cost {
    seconds: f64,
    /// All threads.
    cpu: f64,
    /// The appender's thread, which also reads the log.
    scheduler: f64,
    workers: f64,
    /// Snapshotter and indexer.
    others: f64,
}

fn print(arguments: &Arguments, transactions: u64, rows: u64, cost: &Cost, metrics: &Metrics) {
    let workload = match arguments.workload {
        Workload::InsertOnly => "insert-only".to_string(),
        Workload::Adversarial(inserts) => format!("adversarial {inserts}"),
        Workload::Update => "update".to_string(),
        Workload::Scheduler => "scheduler".to_string(),
    };
    let mode = format!("{:?}", arguments.options.mode).to_lowercase();
    let workers = arguments.options.workers;
    let Cost {
        seconds,
        cpu,
        scheduler,
        workers: workers_cpu,
        others,
    } = cost;
    let rate = rows as f64 / seconds;
    let per_cpu = rows as f64 / cpu.max(0.01);
    if arguments.json {
        let Metrics {
            deferred,
            collected,
            versions,
            bytes,
            held_back_us,
            ..
        } = metrics;
        println!(
            "{{\"workload\":\"{workload}\",\"mode\":\"{mode}\",\"workers\":{workers},\"write_us\":{},\"rows\":{rows},\
             \"transactions\":{transactions},\"seconds\":{seconds:.4},\"cpu_seconds\":{cpu:.2},\
             \"scheduler_cpu_seconds\":{scheduler:.3},\"worker_cpu_seconds\":{workers_cpu:.3},\
             \"other_cpu_seconds\":{others:.3},\"rows_per_second\":{rate:.0},\"rows_per_cpu_second\":{per_cpu:.0},\
             \"deferred\":{deferred},\"collected\":{collected},\"versions\":{versions},\"bytes\":{bytes},\
             \"held_back_us\":{held_back_us}}}",
            arguments.write_cost.as_micros()
        );
    } else {
        println!(
            "{workload}, {mode}, {workers} workers: {rows} rows in {seconds:.2} s = {:.3} M rows/s ({:.3} M tx/s); \
             {cpu:.2} CPU s (scheduler {scheduler:.2}, workers {workers_cpu:.2}, snapshots and index {others:.2}) = \
             {:.2} M rows per CPU s; {} deferred, {} MiB",
            rate / 1e6,
            transactions as f64 / seconds / 1e6,
            per_cpu / 1e6,
            metrics.deferred,
            metrics.bytes >> 20
        );
    }
}
