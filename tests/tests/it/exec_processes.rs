//! Signals and processes: run as they are, recorded, and replayed where nothing is left of what
//! they used.
//!
//! The programs are in tests/programs; see.h there says what their output means.

use std::collections::BTreeSet;

use hindcast_tests::exec::{Program, Scene, programs};

/// A program, its arguments, how it ends.
fn check(test: &str, program: &str, arguments: &[&str], code: i32) {
    let scene = Scene::new(test);
    let command = Program::new(programs::compiled(program)).args(arguments.iter().copied());
    scene.assert_records_and_replays(&command).assert_code(code);
}

macro_rules! programs {
    ($($name:ident $(as $program:ident)?, $arguments:expr, $code:expr;)*) => {
        $(
            #[test]
            fn $name() {
                #[allow(unused_mut, unused_assignments)]
                let mut program = stringify!($name);
                $(program = stringify!($program);)?
                check(stringify!($name), program, &$arguments, $code);
            }
        )*
        const TESTED: &[&str] = &[$({
            #[allow(unused_mut, unused_assignments)]
            let mut program = stringify!($name);
            $(program = stringify!($program);)?
            program
        }),*];
    };
}

programs! {
    signal_handlers, [], 0;
    signal_mask, [], 0;
    signal_timers, [], 0;
    signal_restart, [], 0;
    signal_stack, [], 0;
    signal_jump, [], 0;
    signal_children, [], 0;
    signal_pipe, [], 0;
    signal_threads, [], 0;
    dies_of_hangup as signal_fatal, ["1"], 129;
    dies_of_a_real_time_signal as signal_fatal, ["40"], 168;
    dies_of_abort as signal_fatal, ["abort"], 134;
    dies_of_a_fault as signal_fatal, ["fault"], 139;
    a_child_dies_while_it_waits as signal_fatal, ["waiting"], 0;
    a_child_dies_while_it_computes as signal_fatal, ["computing"], 0;
    dies_of_what_was_blocked as signal_fatal, ["blocked"], 143;
    children_die_of_every_signal as signal_fatal, ["children"], 0;
    process_fork, [], 0;
    process_vfork, [], 0;
    process_exec, [], 5;
    process_spawn, [], 0;
    process_shell, [], 0;
    process_daemon, [], 0;
    process_threads, [], 0;
    process_semaphore, [], 0;
}

/// Programs with a test of their own below, or in another file.
const ELSEWHERE: &[&str] = &["signal_compute", "signal_often", "process_foreign"];

#[test]
fn every_program_has_a_test() {
    let tested: BTreeSet<&str> = TESTED.iter().chain(ELSEWHERE).copied().collect();
    for name in programs::names()
        .iter()
        .filter(|name| name.starts_with("process_"))
    {
        assert!(tested.contains(name.as_str()), "{name} is not tested");
    }
}

/// Recording goes on and says from where on a replay is not exact; the replay says so, too, and
/// prints the same.
fn computes(name: &str) {
    let scene = Scene::new(name);
    let program = Program::new(programs::compiled(name));
    let plain = scene.run(&program);
    let recorded = scene.record(&program);
    recorded.assert_code(0);
    assert_eq!(recorded.text(), plain.text());
    recorded.assert_said(&["a signal came while the program computed"]);
    let replayed = scene.replay();
    replayed.assert_code(0);
    assert_eq!(replayed.text(), recorded.text());
    replayed.assert_said(&["a replay is not exact from"]);
}

#[test]
fn a_loop_that_only_a_signal_ends_is_ended_by_it() {
    computes("signal_compute");
}

#[test]
fn signals_that_come_more_often_than_calls_arrive() {
    computes("signal_often");
}

#[test]
fn a_full_disk_disturbs_no_process() {
    let scene = Scene::new("full_disk");
    let disk = scene.folder().join("disk");
    std::fs::create_dir_all(&disk).expect("the scene's folder is ours");
    let output = std::process::Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c"])
        .arg(
            r#"mount -t tmpfs -o size=3m none "$2" && "$1" exec --record "$2/recording" -- \
            sh -c 'for i in 1 2 3; do head -c 3000000 /dev/zero | md5sum | wc -c; done'"#,
        )
        .arg("sh")
        .arg(hindcast_tests::program("hindcast"))
        .arg(&disk)
        .output()
        .expect("unshare is there");
    assert_eq!(
        (
            String::from_utf8_lossy(&output.stdout).as_ref(),
            output.status.code()
        ),
        ("36\n36\n36\n", Some(0)),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The launcher is killed: nothing of the replay stays.
#[test]
fn a_replay_ends_with_its_launcher() {
    let scene = Scene::new("launcher_killed");
    // Computes for long, in two processes, without a call that replay could shorten.
    let loops = "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done";
    let program =
        Program::new("/bin/sh").args(["-c".to_owned(), format!("({loops}) & {loops}; wait")]);
    scene.record(&program).assert_code(0);
    let mut replay = std::process::Command::new(hindcast_tests::program("hindcast"))
        .args(["exec", "--replay"])
        .arg(scene.recording())
        .spawn()
        .expect("hindcast runs");
    let tree = || descendants(replay.id());
    hindcast_tests::wait_for("the processes of the replay", || {
        (tree().len() >= 2).then_some(())
    });
    let replayed = tree();
    replay.kill().expect("it runs");
    replay.wait().expect("it was killed");
    hindcast_tests::wait_for("the end of the replay", || {
        let gone = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_err();
        replayed.iter().all(gone).then_some(())
    });
}

fn descendants(of: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children"));
    let children = children.unwrap_or_default();
    let direct = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    direct
        .flat_map(|pid| std::iter::once(pid).chain(descendants(pid)))
        .collect()
}

#[test]
fn a_static_child_runs_and_is_named() {
    let scene = Scene::new("process_foreign");
    let child = programs::compiled_as("hello", "hello_static", &["-static"]);
    let recorded = scene.record(&Program::new(programs::compiled("process_foreign")).args([child]));
    recorded.assert_said(&["which is linked statically"]);
    scene.assert_replays(&recorded);
}
