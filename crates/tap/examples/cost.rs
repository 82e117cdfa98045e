//! What the tap costs: `cargo run --release -p hindcast-tap --example cost`.
//!
//! A program exchanges requests and responses between two of its threads, over TCP, as it is and
//! with the tap in turn. A round is four calls that carry bytes, 2,200 in all.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hindcast_spool::{Drain, spool};

const ROUNDS: u64 = 200_000;
const PAIRS: usize = 9;

fn main() {
    let example = std::env::current_exe().expect("we run");
    let library = example
        .parent()
        .and_then(Path::parent)
        .expect("examples are in a folder of their own")
        .join("deps/libhindcast_tap.so");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let program = folder.path().join("exchange");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/exchange.c");
    let compiled = Command::new("cc")
        .args(["-O2", "-pthread", "-o"])
        .args([&program, &source])
        .status();
    assert!(compiled.expect("there is a C compiler").success());

    let (mut direct, mut tapped, mut drained) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        direct.push(run(&mut Command::new(&program)));
        let (mut writer, _reader) = spool(folder.path(), u64::MAX).expect("the folder is ours");
        let mut drain = Drain::new().expect("a socket can be had");
        let (name, value) = drain.variable();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            drain.run(&mut writer, &stopped).expect("it drains");
            processor_time()
        });
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", &library).env(name, value);
        tapped.push(run(&mut command));
        stop.store(true, Ordering::Relaxed);
        drained.push(thread.join().expect("it drains") / ROUNDS);
    }
    let differences = tapped
        .iter()
        .zip(&direct)
        .map(|(tapped, direct)| tapped - direct);
    report("direct", direct.clone());
    report("tapped", tapped.clone());
    report("tapped less direct", differences.collect());
    let drained = drained.into_iter().map(|one| one as i64);
    report("drain, beside it", drained.collect());
}

fn run(command: &mut Command) -> i64 {
    let output = command.arg(ROUNDS.to_string()).output();
    let output = output.expect("the program can be started");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().expect("it prints a number")
}

/// Of this thread, in nanoseconds.
fn processor_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the memory is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn report(what: &str, mut all: Vec<i64>) {
    all.sort_unstable();
    let (least, median, most) = (all[0], all[all.len() / 2], all[all.len() - 1]);
    println!("{what:<20} {median:>7} ns of CPU a round ({least} to {most})");
}
