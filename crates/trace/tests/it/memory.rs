//! Memory stays flat however long a recording is, for who writes it and for who reads it.

use std::process::Command;
use std::time::Duration;

use crate::common::*;
use hindcast_trace::*;
use tempfile::TempDir;

const WRITE: &str = "HINDCAST_TEST_MEMORY_WRITE";
const READ: &str = "HINDCAST_TEST_MEMORY_READ";
const FOLDER: &str = "HINDCAST_TEST_MEMORY_FOLDER";

/// Small segments, so that a short recording has as many as a long one would with larger ones.
const ROLL_BYTES: usize = 2 << 20;
const SHORT: u64 = 20_000;
const LONG: u64 = 200_000;
/// What allocators and threads may make of it.
const NOISE_KB: u64 = 24 << 10;

/// Not a test of its own: a process that does one job, so that its peak of memory is the job's.
#[test]
#[ignore = "started by the test below, in a process of its own"]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let location = Location::folder(folder);
    if let Ok(count) = std::env::var(WRITE) {
        let options = WriterOptions {
            roll_bytes_max: ROLL_BYTES,
            flush_interval: Duration::from_millis(100),
            ..WriterOptions::default()
        };
        let (writer, _) = Writer::create(&location, options).unwrap();
        for sequence in 1..=count.parse().unwrap() {
            writer.record(Record::Request(request(0, sequence)));
            writer.record(Record::Transaction(transaction(0, sequence)));
            if sequence % 2000 == 0 {
                flush(&writer);
            }
        }
        assert!(!writer.close().unwrap().lost_something());
    }
    if let Ok(count) = std::env::var(READ) {
        let count: u64 = count.parse().unwrap();
        let trace = Trace::open(&location).unwrap();
        let requests = trace
            .requests(RequestFilter::default())
            .map(|request| request.unwrap().id.sequence());
        assert!(requests.eq(1..=count));
        let transactions = trace
            .transactions(TransactionFilter::default())
            .map(|row| row.unwrap().id.sequence());
        assert!(transactions.eq(1..=count));
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!(
        "{}",
        status
            .lines()
            .find(|line| line.starts_with("VmHWM"))
            .unwrap()
    );
}

#[test]
fn ten_times_as_many_requests_take_no_more_memory() {
    let (short, long) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for job in [WRITE, READ] {
        let little = peak_kb(job, &short, SHORT);
        let much = peak_kb(job, &long, LONG);
        println!("{job}: {little} kB for {SHORT} requests, {much} kB for {LONG}");
        assert!(
            much < little + NOISE_KB,
            "{job}: {little} kB for {SHORT} requests, {much} kB for {LONG}"
        );
    }
}

fn peak_kb(job: &str, folder: &TempDir, count: u64) -> u64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "memory::child",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    command
        .env(FOLDER, folder.path())
        .env(job, count.to_string());
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{printed}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let line = printed
        .split("VmHWM:")
        .nth(1)
        .expect("the child prints its peak");
    line.split_whitespace().next().unwrap().parse().unwrap()
}
