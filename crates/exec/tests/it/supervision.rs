//! What becomes of a replay in which the program does not do as it should. In place of the runtime,
//! a small library plays each part.
//!
//! One test: supervision waits for whatever child ends, so two cannot share a process.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use hindcast_exec::error::ExecError;
use hindcast_exec::recording::{Machine, Recording, Text};
use hindcast_exec::replay::{ReplayOptions, Replayed, replay};
use hindcast_exec::report::Awaited;
use hindcast_exec::runtime::identity;
use hindcast_exec::watch::{Ended, descendants};
use hindcast_execlog::board::{Report, Slot, State};
use hindcast_execlog::config::{Order, Policy};
use hindcast_execlog::event::{Kind, header};
use hindcast_execlog::files::End;
use hindcast_execlog::{Board, LogHeader, ProcessHeader};

const PLAYER: &str = r#"
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *board;

static void slot(int number, uint32_t state) {
    char *slot = board + SLOTS + number * SLOT;
    *(uint32_t *)(slot + SLOT_PID) = getpid();
    *(uint32_t *)(slot + SLOT_THREAD) = number;
    *(uint64_t *)(slot + SLOT_EVENT) = 100 + number;
    *(uint64_t *)(slot + SLOT_AWAITED) = 7;
    *(uint64_t *)(slot + SLOT_AWAITED + 8) = 41;
    atomic_store((_Atomic uint32_t *)slot, state);
    atomic_fetch_add((_Atomic uint32_t *)(board + USED), 1);
}

static void report(uint32_t kind) {
    *(uint32_t *)(board + REPORT_KIND) = kind;
    strcpy(board + REPORT_PROCESS + 4, "p0");
    *(uint32_t *)(board + REPORT_PROCESS) = 2;
    atomic_store((_Atomic uint32_t *)(board + REPORT), 2);
}

__attribute__((constructor)) static void play(void) {
    const char *part = getenv("PART");
    board = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, 962, 0);
    unsetenv("LD_PRELOAD");
    if (!part || board == MAP_FAILED) _exit(99);
    if (!strcmp(part, "stall")) {
        slot(0, 3);
        slot(1, 2);
        if (fork() == 0) { setsid(); for (;;) pause(); }
        for (;;) pause();
    } else if (!strcmp(part, "diverge")) {
        report(1);
        if (fork() == 0) { setsid(); for (;;) pause(); }
        for (;;) pause();
    } else if (!strcmp(part, "end")) {
        report(2);
        _exit(86);
    } else if (!strcmp(part, "leave a child")) {
        if (fork() == 0) { setsid(); usleep(300000); report(1); _exit(0); }
        _exit(5);
    } else if (!strcmp(part, "exit")) {
        _exit(5);
    }
}
"#;

fn build(folder: &Path) -> std::path::PathBuf {
    let (source, library) = (folder.join("player.c"), folder.join("player.so"));
    std::fs::write(&source, PLAYER).unwrap();
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source);
    let report = std::mem::offset_of!(Board, report);
    for (name, value) in [
        ("BYTES", Board::bytes()),
        ("USED", std::mem::offset_of!(Board, slots_used)),
        ("SLOTS", std::mem::offset_of!(Board, slots)),
        ("SLOT", size_of::<Slot>()),
        ("SLOT_PID", std::mem::offset_of!(Slot, pid)),
        ("SLOT_THREAD", std::mem::offset_of!(Slot, thread)),
        ("SLOT_EVENT", std::mem::offset_of!(Slot, event)),
        ("SLOT_AWAITED", std::mem::offset_of!(Slot, awaited_thread)),
        ("REPORT", report + std::mem::offset_of!(Report, state)),
        ("REPORT_KIND", report + std::mem::offset_of!(Report, kind)),
        (
            "REPORT_PROCESS",
            report + std::mem::offset_of!(Report, process),
        ),
    ] {
        command.arg(format!("-D{name}={value}"));
    }
    assert!(
        command
            .status()
            .expect("a C compiler is needed: apt-get install gcc")
            .success()
    );
    library
}

/// A recording of one event, in which the player plays `part`.
fn recording(folder: &Path, library: &[u8], part: &str, end: End) {
    let mut log = LogHeader::MAGIC.to_vec();
    log.extend(hindcast_execlog::VERSION.to_ne_bytes());
    log.resize(LogHeader::BYTES, 0);
    log[24] = 4;
    log.extend(header(Kind::Start as u16, 0, 0).to_ne_bytes());
    let process = ProcessHeader::new(0, "");
    process
        .threads
        .store(1, std::sync::atomic::Ordering::Relaxed);
    process
        .end
        .store(end as u32, std::sync::atomic::Ordering::Relaxed);
    // SAFETY: plain data.
    let process = unsafe {
        std::slice::from_raw_parts(
            (&raw const process).cast::<u8>(),
            size_of::<ProcessHeader>(),
        )
    };
    std::fs::create_dir_all(folder.join("p0")).unwrap();
    std::fs::write(folder.join("p0/process"), process).unwrap();
    std::fs::write(folder.join("p0/t0"), log).unwrap();
    let recording = Recording {
        hindcast: "0".into(),
        log_version: hindcast_execlog::VERSION,
        functions: String::new(),
        runtime: identity(library),
        path: Text::from("/bin/true"),
        arguments: vec![Text::from("true")],
        environment: vec![Text(OsString::from(format!("PART={part}")))],
        folder: Text::from("/nowhere"),
        stack_limit: 8 << 20,
        order: Order::Edge,
        policy: Policy::Record,
        interfaces: Vec::new(),
        cache: false,
        one_at_a_time: false,
        reproduce: None,
        files: Vec::new(),
        machine: Machine::default(),
        began: 0,
        ended: None,
    };
    recording.save(folder).unwrap();
}

#[test]
fn whatever_the_program_does_the_replay_ends_and_leaves_nothing_running() {
    let folder = tempfile::tempdir().unwrap();
    let library = build(folder.path());
    // SAFETY: this test is the only one in its process.
    unsafe { std::env::set_var("HINDCAST_RUNTIME", library.as_os_str()) };
    let play = |part: &str, end: End| -> Result<Replayed, ExecError> {
        let folder = folder.path().join(part);
        recording(&folder, &std::fs::read(&library).unwrap(), part, end);
        let options = ReplayOptions {
            folder,
            waiting: Default::default(),
            stall_timeout: Duration::from_millis(700),
            debugger: None,
            at: None,
            checkpoint_every: None,
        };
        let replayed = replay(&options, &mut |_| {});
        assert_eq!(
            descendants(),
            Vec::<libc::pid_t>::new(),
            "left running by {part:?}"
        );
        replayed
    };

    let begun = Instant::now();
    match play("stall", End::Exited).unwrap() {
        Replayed::Stalled(stall) => {
            assert!(stall.still_for >= Duration::from_millis(700));
            let views: Vec<_> = stall
                .threads
                .iter()
                .map(|view| (view.thread, view.state, view.event, view.awaits))
                .collect();
            let awaited = Some(Awaited::Thread {
                thread: 7,
                acquisition: 41,
            });
            assert_eq!(
                views,
                [
                    (0, State::Blocked, 100, None),
                    (1, State::Waiting, 101, awaited)
                ]
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(begun.elapsed() < Duration::from_secs(10));

    assert!(matches!(
        play("diverge", End::Exited).unwrap(),
        Replayed::Reported(_)
    ));
    // A kill, as far as the log can tell.
    match play("end", End::Running).unwrap() {
        Replayed::RecordingEnds { report, as_then } => {
            assert_eq!(
                (report.process.as_str(), as_then),
                ("p0", Some(Ended::Signalled(libc::SIGKILL)))
            );
        }
        other => panic!("{other:?}"),
    }
    match play("end detached", End::Detached).unwrap() {
        // A part that is not played: the program runs as it is.
        Replayed::Ended { ended, .. } => assert_eq!(ended, Ended::Exited(0)),
        other => panic!("{other:?}"),
    }
    match play("exit", End::Exited).unwrap() {
        Replayed::Ended { ended, notes } => {
            assert_eq!((ended, notes.len()), (Ended::Exited(5), 0));
        }
        other => panic!("{other:?}"),
    }
    // What is left behind is watched as long as it lives.
    assert!(matches!(
        play("leave a child", End::Exited).unwrap(),
        Replayed::Reported(_)
    ));
}
