//! Barriers.
//!
//! A wait is two steps: a thread arrives, then it leaves. All arrivals of a round come before its first departure, as
//! they did in the recording, so replay needs no real barrier: the order of the steps is one.

use std::ffi::{c_int, c_void};

use super::{
    Outcome, Step, await_turn, back_to_replay, enter, failure, publish, real, record,
    record_failure, unexpected, waiting,
};
use crate::mode::{Mode, mode};
use crate::thread;

/// What one thread of each round gets.
const SERIAL_THREAD: c_int = -1;

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_barrier_wait(barrier: *mut c_void) -> c_int {
    let real = real!(pthread_barrier_wait: fn(*mut c_void) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(barrier) };
    };
    enter(thread);
    let result = if mode() == Mode::Record {
        record(thread, barrier as u64);
        let result = waiting(thread, || unsafe { real(barrier) });
        if result != 0 {
            record_failure(thread, result);
        }
        record(thread, barrier as u64);
        result
    } else {
        let step = Step::new("pthread_barrier_wait", barrier);
        let pass = |thread: &mut _| match await_turn(thread, step) {
            Outcome::Acquires => publish(thread),
            Outcome::Fails(_) => unexpected(thread, step),
        };
        pass(thread);
        let result = failure(thread, step).unwrap_or(0);
        debug_assert!(result == 0 || result == SERIAL_THREAD || result > 0);
        pass(thread);
        result
    };
    back_to_replay(thread);
    result
}
