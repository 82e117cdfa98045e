//! A recorder killed at any moment: the trace opens, nothing older than the flush interval is
//! missing, and nothing at all that was waited for.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::*;
use hindcast_trace::*;
use tempfile::TempDir;

const KILLS: u64 = 100;
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// How late a thread may be on a busy machine.
const SLACK: Duration = Duration::from_secs(1);

const CHILD: &str = "HINDCAST_TEST_KILL_CHILD";
const DURABLE: &str = "HINDCAST_TEST_KILL_DURABLE";

/// Not a test of its own: what the test below starts and kills.
#[test]
#[ignore = "started by the test that kills it"]
fn child() {
    let Ok(folder) = std::env::var(CHILD) else {
        return;
    };
    let durable = std::env::var(DURABLE).is_ok();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let options = WriterOptions {
        flush_interval: FLUSH_INTERVAL,
        // So that kills also happen while segments are being made.
        roll_bytes_max: 20_000,
        ..WriterOptions::default()
    };
    let (writer, number) = Writer::create(&Location::folder(folder), options).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "recorder {number}").unwrap();
    for sequence in 1.. {
        let at = now();
        writer.record(Record::Request(Request {
            arrived: at,
            ended: at,
            ..request(number, sequence)
        }));
        if durable {
            runtime.block_on(writer.durable()).unwrap();
        }
        // Through a pipe: what was written before the kill is read after it.
        writeln!(out, "recorded {sequence} {at}").unwrap();
        if sequence % 8 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_hundred_kills_cost_at_most_the_flush_interval_each_and_nothing_that_was_durable() {
    let folder = TempDir::new().unwrap();
    let location = Location::folder(folder.path());
    let seed =
        std::env::var("HINDCAST_SEED").map_or_else(|_| now() as u64, |seed| seed.parse().unwrap());
    println!("HINDCAST_SEED={seed}");
    let mut random = seed;
    let mut lost = 0;
    for kill in 0..KILLS {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // Some live long enough that the flush interval matters.
        let lifetime_us = if kill % 10 == 9 {
            1_300_000
        } else {
            (random >> 33) % 150_000
        };
        lost += kill_once(
            &location,
            kill % 2 == 0,
            Duration::from_micros(lifetime_us),
            kill,
        );
    }
    println!("{lost} requests lost in {KILLS} kills");

    // Whatever state a hundred crashes left, it can be put in order.
    Trace::recover(&location).unwrap();
    let trace = Trace::open(&location).unwrap();
    let crashes = trace
        .gaps()
        .iter()
        .filter(|gap| matches!(gap.cause, GapCause::Crashed { .. }))
        .count();
    assert_eq!(crashes as u64, KILLS);
    assert_eq!(read_requests(&trace).len() as u64, trace.request_count());
    assert_eq!(trace.warnings(), Vec::<String>::new());
}

/// Returns how many requests were lost.
fn kill_once(location: &Location, durable: bool, lifetime: Duration, kill: u64) -> usize {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "kill::child",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    command
        .env(CHILD, location.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if durable {
        command.env(DURABLE, "1");
    }
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let number = lines
        .find_map(|line| line.split_once("recorder ")?.1.parse::<u16>().ok())
        .expect("the child starts");
    let reader = std::thread::spawn(move || {
        let words = |line: String| {
            let mut words = line
                .strip_prefix("recorded ")?
                .split(' ')
                .map(str::parse::<i64>);
            Some((words.next()?.ok()? as u64, words.next()?.ok()?))
        };
        lines.filter_map(words).collect::<Vec<(u64, Micros)>>()
    });
    std::thread::sleep(lifetime);
    let killed = now();
    child.kill().unwrap();
    child.wait().unwrap();
    let recorded = reader.join().unwrap();

    let trace = Trace::open(location).unwrap();
    let from = Id::new(number, 0);
    let filter = RequestFilter {
        ids: Some(from..=Id::new(number, (1 << 48) - 1)),
        ..RequestFilter::default()
    };
    let found: Vec<Request> = trace.requests(filter).collect::<Result<_, _>>().unwrap();
    let ids: Vec<u64> = found.iter().map(|request| request.id.sequence()).collect();
    assert_eq!(
        ids,
        (1..=ids.len() as u64).collect::<Vec<_>>(),
        "kill {kill}: nothing is missing in between"
    );
    let crash = trace
        .gaps()
        .iter()
        .find(|gap| gap.cause == GapCause::Crashed { recorder: number });
    let crash = crash.unwrap_or_else(|| {
        panic!(
            "kill {kill}: no gap for recorder {number}: {:?}",
            trace.warnings()
        )
    });
    let missing: Vec<_> = recorded
        .iter()
        .filter(|(sequence, _)| *sequence > ids.len() as u64)
        .collect();
    let oldest_allowed = killed - (FLUSH_INTERVAL + SLACK).as_micros() as Micros;
    for (sequence, at) in &missing {
        assert!(
            !durable,
            "kill {kill}: request {sequence} was durable and is missing"
        );
        assert!(
            *at >= oldest_allowed,
            "kill {kill}: request {sequence} was {} µs old",
            killed - at
        );
        let slack = SLACK.as_micros() as Micros;
        assert!(
            (crash.from - slack..=crash.to + slack).contains(at),
            "kill {kill}: {at} is not in {crash:?}"
        );
    }
    missing.len()
}
