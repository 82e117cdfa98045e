//! `pthread_once`.
//!
//! Which thread runs the routine is logged when it begins; that the routine has returned is an
//! acquisition, after which come those of all threads that find it done. These do not come before
//! anything, so the owner stays the thread that ran it.
//!
//! The real function runs in replay space, since the routine is the program's.

// SAFETY, of each `unsafe` here that has no reason of its own: a function has the contract of
// libc's function of the same name, the caller keeps it, and `real` is that function.

use std::ffi::c_int;

use crate::mechanism::signals;
use crate::mechanism::sync::{Step, claim, pass, real, record, record_claim, record_observation};
use crate::state::mode::{Mode, mode};
use crate::state::sync::Routine;
use crate::state::thread;

extern "C-unwind" fn run() {
    // SAFETY: the real function calls this in replay space, where no guard is in use.
    let thread = unsafe { thread::current() };
    let Some((routine, control)) = thread.and_then(|thread| thread.sync.once.routine.take()) else {
        return;
    };
    if mode() == Mode::Record
        && let Some(thread) = &mut thread::enter()
    {
        record_claim(thread, control as usize);
        // An acquisition, too: a routine that leaves by an exception is begun again by somebody,
        // later.
        record(thread, control as u64);
        thread.enter_replay();
    }
    routine();
    // SAFETY: as above.
    if let Some(thread) = unsafe { thread::current() } {
        thread.sync.once.ran.set(true);
    }
    // Before the real function lets others see that it has returned: whoever finds that comes after
    // this acquisition.
    if mode() == Mode::Record
        && let Some(thread) = &mut thread::enter()
    {
        record(thread, control as u64);
        thread.enter_replay();
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pthread_once(control: *mut c_int, routine: Routine) -> c_int {
    let real = real!(pthread_once: fn(*mut c_int, Routine) -> c_int);
    let Some(thread) = &mut thread::enter() else {
        return unsafe { real(control, routine) };
    };
    let step = Step::new("pthread_once", control);
    if mode() == Mode::Replay {
        let runs = claim(thread, control as usize);
        pass(thread, step, |_| {});
        if !runs {
            // The routine has returned in the thread that ran it. The real function notices, and
            // returns at once.
            let result = unsafe { real(control, routine) };
            signals::leave(thread);
            return result;
        }
    }
    let outer = thread.sync.once.routine.replace(Some((routine, control)));
    thread.sync.once.ran.set(false);
    thread.enter_replay();
    let result = unsafe { real(control, run) };
    let Some(thread) = &mut thread::enter() else {
        return result;
    };
    thread.sync.once.routine.set(outer);
    let ran = thread.sync.once.ran.replace(false);
    match (mode(), ran) {
        // By `run`.
        (Mode::Record, true) => {}
        (Mode::Record, false) => record_observation(thread, control as u64),
        _ => pass(thread, step, |_| {}),
    }
    signals::leave(thread);
    result
}

/// The same function under its name in C11.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn call_once(control: *mut c_int, routine: Routine) {
    unsafe { pthread_once(control, routine) };
}
