//! Barriers.
//!
//! A wait is two steps: a thread arrives, then it leaves. All arrivals of a round come before its
//! first departure, as they did in the recording, so replay needs no real barrier: the order of the
//! steps is one.

// SAFETY, of each `unsafe` here that has no reason of its own: a function has the contract of
// libc's function of the same name, the caller keeps it, and `real` is that function.

use std::ffi::{c_int, c_void};

use crate::mechanism::sync::{Step, failure, pass_if_told, real, record, record_failure, waiting};
use crate::mechanism::{alone, signals};
use crate::state::mode::{Mode, mode};
use crate::state::thread;

/// What one thread of each round gets.
const SERIAL_THREAD: c_int = -1;

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_barrier_wait(barrier: *mut c_void) -> c_int {
    let real = real!(pthread_barrier_wait: fn(*mut c_void) -> c_int);
    let Some(thread) = &mut thread::enter() else {
        return unsafe { real(barrier) };
    };
    alone::away(thread);
    let result = if mode() == Mode::Record {
        record(thread, barrier as u64);
        alone::waits(thread);
        let result = waiting(thread, || unsafe { real(barrier) });
        if result != 0 {
            record_failure(thread, result);
        }
        record(thread, barrier as u64);
        result
    } else {
        let step = Step::new("pthread_barrier_wait", barrier);
        let arrives = pass_if_told(thread, step, |_| {});
        let result = failure(thread, step).unwrap_or(0);
        debug_assert!(result == 0 || result == SERIAL_THREAD || result > 0);
        if arrives && pass_if_told(thread, step, |_| {}) {
            result
        } else {
            // The log has nobody leave: they all meet here.
            unsafe { real(barrier) }
        }
    };
    signals::leave(thread);
    result
}
