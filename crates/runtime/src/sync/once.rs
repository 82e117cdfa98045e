//! `pthread_once`.
//!
//! Which thread runs the routine is logged when it begins; that the routine has returned is an acquisition, after which
//! come those of all threads that find it done. These do not come before anything, so the owner stays the thread that ran it.
//!
//! The real function runs in replay space, since the routine is the program's.

use std::cell::Cell;
use std::ffi::c_int;

use super::{
    Outcome, Step, await_turn, back_to_replay, claim, enter, publish, real, record, record_claim,
    record_observation, unexpected,
};
use crate::mode::{Mode, mode};
use crate::thread::{self, Thread};

type Routine = extern "C-unwind" fn();

/// What the innermost `pthread_once` of a thread is about to run. Part of the thread's own state, not a thread-local
/// variable of Rust: those need libc.
pub struct Current {
    routine: Cell<Option<(Routine, *mut c_int)>>,
    /// It has returned.
    ran: Cell<bool>,
}

impl Current {
    pub const fn new() -> Self {
        Current {
            routine: Cell::new(None),
            ran: Cell::new(false),
        }
    }
}

extern "C-unwind" fn run() {
    let Some((routine, control)) =
        thread::current().and_then(|thread| thread.sync.once.routine.take())
    else {
        return;
    };
    if mode() == Mode::Record
        && let Some(thread) = thread::in_replay_space()
    {
        thread.enter_system();
        record_claim(thread, control as usize);
        // An acquisition, too: a routine that leaves by an exception is begun again by somebody, later.
        record(thread, control as u64);
        thread.enter_replay();
    }
    routine();
    if let Some(thread) = thread::current() {
        thread.sync.once.ran.set(true);
    }
    // Before the real function lets others see that it has returned: whoever finds that comes after this acquisition.
    if mode() == Mode::Record
        && let Some(thread) = thread::in_replay_space()
    {
        thread.enter_system();
        record(thread, control as u64);
        thread.enter_replay();
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pthread_once(control: *mut c_int, routine: Routine) -> c_int {
    let real = real!(pthread_once: fn(*mut c_int, Routine) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(control, routine) };
    };
    let step = Step::new("pthread_once", control);
    if mode() == Mode::Replay {
        enter(thread);
        let runs = claim(thread, control as usize);
        pass(thread, step);
        if !runs {
            // The routine has returned in the thread that ran it. The real function notices, and returns at once.
            let result = unsafe { real(control, routine) };
            back_to_replay(thread);
            return result;
        }
        thread.enter_replay();
    }
    let outer = thread.sync.once.routine.replace(Some((routine, control)));
    thread.sync.once.ran.set(false);
    let result = unsafe { real(control, run) };
    let Some(thread) = thread::in_replay_space() else {
        return result;
    };
    enter(thread);
    thread.sync.once.routine.set(outer);
    let ran = thread.sync.once.ran.replace(false);
    match (mode(), ran) {
        // By `run`.
        (Mode::Record, true) => {}
        (Mode::Record, false) => record_observation(thread, control as u64),
        _ => pass(thread, step),
    }
    back_to_replay(thread);
    result
}

fn pass(thread: &mut Thread, step: Step) {
    match await_turn(thread, step) {
        Outcome::Acquires => publish(thread),
        Outcome::Fails(_) => unexpected(thread, step),
    }
}

/// The same function under its name in C11.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn call_once(control: *mut c_int, routine: Routine) {
    unsafe { pthread_once(control, routine) };
}
