//! One small program for each family of calls: run as it is, recorded, and replayed twice where
//! nothing is left of what it used.
//!
//! The programs are in tests/programs; see.h there says what their output means.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{TcpListener, TcpStream};

use hindcast_tests::exec::{DIVERGED, Outcome, Program, Recorded, Scene, programs, servers};
use hindcast_tests::wait_for;

/// What a program is given, and how it ends.
struct Case {
    arguments: &'static [&'static str],
    code: i32,
    /// Threads that its recording must have, itself included.
    threads: usize,
}

const PLAIN: Case = Case {
    arguments: &[],
    code: 0,
    threads: 1,
};

fn input() -> String {
    (1..=2000).map(|line| format!("line {line}\n")).collect()
}

fn scene(name: &str) -> Scene {
    Scene::new(name).file("input.txt", input())
}

fn check(program: &str, name: &str, case: &Case) {
    let scene = scene(name);
    let command = Program::new(programs::compiled(program))
        .args(case.arguments)
        .input(input());
    let recorded = scene.assert_records_and_replays(&command);
    recorded.assert_code(case.code);
    let events = Recorded::in_folder(scene.recording()).events();
    let of_first = events
        .iter()
        .filter(|(name, count)| name.starts_with("p0/") && **count > 0)
        .count();
    assert!(
        of_first >= case.threads,
        "{name} has {} threads, its recording: {events:?}",
        case.threads
    );
}

/// Every program here has a test, either of these or one below.
macro_rules! programs {
    ($($name:ident $(as $program:literal)? $(: $case:expr)?;)*) => {
        $(
            #[test]
            fn $name() {
                #[allow(unused_mut, unused_assignments)]
                let (mut program, mut case) = (stringify!($name), PLAIN);
                $(program = $program;)?
                $(case = $case;)?
                check(program, stringify!($name), &case);
            }
        )*
        const TESTED: &[&str] = &[$({
            #[allow(unused_mut, unused_assignments)]
            let mut program = stringify!($name);
            $(program = $program;)?
            program
        }),*];
    };
}

programs! {
    aio;
    checkpoints: Case { code: 3, threads: 5, ..PLAIN };
    cpp_threads: Case { threads: 4, ..PLAIN };
    descriptors;
    directories;
    environment: Case { arguments: &["one", "", "größe"], ..PLAIN };
    epoll;
    files;
    heap: Case { threads: 5, ..PLAIN };
    heap_exchange: Case { threads: 5, ..PLAIN };
    heap_limit;
    heap_threads: Case { threads: 73, ..PLAIN };
    instructions: Case { threads: 2, ..PLAIN };
    interfaces;
    large;
    leave_by_return as "leave": Case { arguments: &["return"], code: 3, ..PLAIN };
    leave_by_exit as "leave": Case { arguments: &["exit"], code: 4, ..PLAIN };
    leave_at_once as "leave": Case { arguments: &["_exit"], code: 5, ..PLAIN };
    leave_quickly as "leave": Case { arguments: &["quick"], code: 6, ..PLAIN };
    leave_from_a_thread as "leave": Case { arguments: &["thread"], code: 7, threads: 2 };
    leave_by_abort as "leave": Case { arguments: &["abort"], code: 134, ..PLAIN };
    leave_by_a_fault as "leave": Case { arguments: &["fault"], code: 139, ..PLAIN };
    leave_by_killing_itself as "leave": Case { arguments: &["kill"], code: 137, ..PLAIN };
    leave_by_a_signal as "leave": Case { arguments: &["terminate"], code: 143, ..PLAIN };
    deep_stacks as "leave": Case { arguments: &["deep"], code: 9, ..PLAIN };
    listed;
    locale;
    mapped;
    names;
    numbers;
    pipes;
    poll;
    random;
    random_device;
    random_instructions;
    renumbered: Case { threads: 3, ..PLAIN };
    residue;
    shared;
    socketpairs;
    stat;
    stdio;
    tcp;
    terminal;
    threads: Case { threads: 9, ..PLAIN };
    time;
    udp;
    users;
    vectors;
    vfork;
}

/// Programs that another test uses.
const ELSEWHERE: &[&str] = &[
    "after_detach",
    "cancel",
    "coherent",
    "compute",
    "deepbind",
    "dlopen",
    "fetch",
    "hello",
    "library",
    "race",
    "racy",
    "seccomp",
    "serve",
    "sparse",
    "spin",
    "sysv",
    "uring",
];

#[test]
fn every_program_has_a_test() {
    let tested: BTreeSet<String> = TESTED
        .iter()
        .chain(ELSEWHERE)
        .map(|name| (*name).to_owned())
        .collect();
    let there: BTreeSet<String> = programs::names()
        .into_iter()
        // Those of locks, signals, processes and followers are tested with these.
        .filter(|name| {
            !["sync_", "signal_", "process_", "follow_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        })
        .collect();
    assert_eq!(tested, there);
}

#[test]
fn dlopen() {
    let library = programs::compiled_as("library", "library.so", &["-shared", "-fPIC"]);
    let program = Program::new(programs::compiled("dlopen")).args([library]);
    scene("dlopen")
        .assert_records_and_replays(&program)
        .assert_code(0);
}

#[test]
fn deepbind() {
    let library = programs::compiled_as("library", "library_deep.so", &["-shared", "-fPIC"]);
    let program = Program::new(programs::compiled("deepbind")).args([library]);
    scene("deepbind")
        .assert_records_and_replays(&program)
        .assert_code(0);
}

#[test]
fn serve() {
    let scene = scene("serve");
    let program = Program::new(programs::compiled("serve")).args(["port"]);
    let mut server = scene.start_recording(&program);
    let note = scene.work().join("port");
    let port: u16 = server.wait_until("its port", || {
        std::fs::read_to_string(&note).ok()?.trim().parse().ok()
    });
    let connect = || TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let mut stream = connect();
            std::thread::spawn(move || {
                for line in 0..25 {
                    let said = format!("client {client}, line {line}");
                    let answer = servers::ask(&mut stream, &said).expect("it answers");
                    assert!(answer.ends_with(&said), "{answer}");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("every client is answered");
    }
    servers::ask(&mut connect(), "quit").expect("it answers");
    let recorded = Outcome::of_end(server);
    recorded.assert_code(0);
    assert!(
        recorded.text().contains("served 9 connections, 201 lines"),
        "{}",
        recorded.text()
    );
    scene.assert_replays(&recorded);
}

#[test]
fn fetch() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let port = listener.local_addr().expect("just bound").port();
    let server = servers::answer_lines(listener, 20);
    let scene = scene("fetch");
    let recorded =
        scene.record(&Program::new(programs::compiled("fetch")).args([port.to_string()]));
    recorded.assert_code(0);
    server.join().expect("the server has no reason to panic");
    assert!(
        recorded.text().contains("to question 19"),
        "{}",
        recorded.text()
    );
    scene.assert_replays(&recorded);
}

/// Where the processor could let `cpuid` fault, traps in its place alone do as well.
#[test]
fn instructions_need_no_help_of_the_processor() {
    for name in [
        "instructions",
        "random",
        "random_device",
        "random_instructions",
        "cpp_threads",
    ] {
        let scene = scene(&format!("replaced-{name}"));
        let program = Program::new(programs::compiled(name));
        let recorded = scene.record(&program.options(["--instructions", "replaced"]));
        recorded.assert_code(0);
        scene.assert_replays(&recorded);
    }
}

/// All orders of acquisitions do for the programs with threads.
#[test]
fn every_order_replays() {
    // `threads` is not among them: a quarter of its replays stands still under the orders with
    // clocks or tickets, which is not understood yet. Under `edge`, the default, it has a test
    // of its own.
    for order in ["edge", "relaxed", "total", "vector"] {
        for name in ["cpp_threads", "heap"] {
            let scene = scene(&format!("{order}-{name}"));
            let recorded =
                scene.record(&Program::new(programs::compiled(name)).options(["--order", order]));
            recorded.assert_code(0);
            scene.assert_replays(&recorded);
        }
    }
}

/// What no stub covers is recorded by its number; it is named with its place, or ends the program,
/// by the user's wish.
#[test]
fn what_bypasses_the_interface_is_named() {
    let program = Program::new(programs::compiled("numbers"));
    let scene = scene("policy");
    let reported = scene.record(&program.clone().options(["--policy", "report"]));
    reported.assert_code(0).assert_said(&[
        "system call 39 from ",
        "numbers+0x",
        "system call 4000",
    ]);
    scene.assert_replays(&reported);
    scene
        .record(&program.options(["--policy", "abort"]))
        .assert_code(DIVERGED)
        .assert_said(&[
            "Error: the policy ended the program at thread 0, event",
            "Call site:",
            "Hint: ",
        ]);
}

/// The comparison sees a recording in which one byte of what a call returned is another one.
#[test]
fn what_a_call_returned_is_what_replay_shows() {
    let scene = scene("tampered");
    let recorded = scene.record(&Program::new(programs::compiled("random")));
    recorded.assert_code(0);
    scene.assert_replays(&recorded);
    let log = &Recorded::in_folder(scene.recording()).logs()["p0/t0"];
    // The first random bytes that it asked for: 300 in one call.
    let places = Recorded::each(log, |event| {
        (event.payload.len() >= 300 && event.payload.len() < 320).then_some(event.end - 8)
    });
    let place = places
        .into_iter()
        .flatten()
        .next()
        .expect("a call that gave 300 bytes");
    Recorded::spoil(log, |bytes| bytes[64 + place] ^= 1);
    let replayed = scene.replay();
    let difference = replayed.difference(&recorded).expect("a difference");
    assert!(
        replayed.code() == DIVERGED || difference.contains("getrandom"),
        "{difference}"
    );
}

/// Another input of a call than in the recording is a divergence, and named.
#[test]
fn what_a_call_was_given_is_checked() {
    let scene = scene("checked");
    let recorded = scene.record(&Program::new(programs::compiled("files")));
    recorded.assert_code(0);
    let log = &Recorded::in_folder(scene.recording()).logs()["p0/t0"];
    let calls = Recorded::each(log, |event| (event.kind >= 64).then_some(event.offset));
    let calls: Vec<usize> = calls.into_iter().flatten().collect();
    // The check of a call is the first word behind its header; this one is in the middle.
    let call = calls[calls.len() / 2];
    Recorded::spoil(log, |bytes| bytes[64 + call + 4] ^= 0xff);
    let replayed = scene.replay();
    replayed.assert_code(DIVERGED).assert_said(&[
        "Error: replay diverged",
        "thread 0",
        "event",
        "Expected",
        "Actual",
    ]);
    let shown = replayed.stdout.len();
    assert_eq!(
        replayed.stdout,
        recorded.stdout[..shown],
        "what came before is as it was"
    );
}

#[test]
fn it_takes_part_in_a_pipeline() {
    let scene = scene("pipeline");
    let launcher = hindcast_tests::program("hindcast");
    let stdio = programs::compiled("stdio");
    // What it reads comes from a pipe that is written to slowly, and ends.
    std::fs::create_dir(scene.work()).expect("the scene's folder is ours");
    let mut child = std::process::Command::new(launcher)
        .args(["exec", "--record"])
        .arg(scene.recording())
        .arg("--")
        .arg(stdio)
        .current_dir(scene.work())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("hindcast starts");
    std::fs::write(scene.work().join("input.txt"), input()).expect("the scene's folder is ours");
    let mut pipe = child.stdin.take().expect("it is a pipe");
    for line in input().lines() {
        writeln!(pipe, "{line}").expect("it reads on");
    }
    drop(pipe);
    wait_for("the pipeline to end", || {
        child.try_wait().expect("it is our child")
    });
    let output = child.wait_with_output().expect("it has ended");
    assert!(output.status.success());
    let replayed = scene.replay();
    assert_eq!(
        String::from_utf8_lossy(&replayed.stdout),
        String::from_utf8_lossy(&output.stdout)
    );
}

/// A gigabyte is mapped, of which 60 KB are no hole.
#[test]
fn holes_of_mapped_files_are_not_in_the_recording() {
    let scene = Scene::new("sparse");
    let program = Program::new(programs::compiled("sparse"));
    scene.assert_records_and_replays(&program).assert_code(0);
    let bytes = Recorded::in_folder(scene.recording()).bytes();
    assert!(bytes < 20 << 20, "{bytes} bytes are recorded");
}
