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
}

/// Programs with a test of their own below, or in another file.
const ELSEWHERE: &[&str] = &["signal_compute", "process_foreign"];

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

#[test]
fn a_loop_that_only_a_signal_ends_goes_on_unrecorded() {
    let scene = Scene::new("signal_compute");
    let recorded = scene.record(&Program::new(programs::compiled("signal_compute")));
    recorded.assert_code(0);
    assert!(
        recorded.text().contains("begins\nends"),
        "{}",
        recorded.text()
    );
    recorded.assert_said(&["signal 14 arrived while the program computed"]);
    let replayed = scene.replay();
    assert!(replayed.text().contains("begins"), "{}", replayed.text());
    replayed.assert_said(&["the recording ends"]);
}

#[test]
fn a_static_child_runs_and_is_named() {
    let scene = Scene::new("process_foreign");
    let child = programs::compiled_as("hello", "hello_static", &["-static"]);
    let recorded = scene.record(&Program::new(programs::compiled("process_foreign")).args([child]));
    recorded.assert_said(&["which is linked statically"]);
    scene.assert_replays(&recorded);
}
