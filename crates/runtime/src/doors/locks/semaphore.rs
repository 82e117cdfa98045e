//! Semaphores.
//!
//! A post is an acquisition before its effect can be seen, a wait one after it has seen the effect
//! of a post. Replay repeats the order of the two, in which no wait can come before its post; so it
//! never sleeps on a semaphore. The real value is kept up to date for threads that are not ours.

// SAFETY, of each `unsafe` here that has no reason of its own: a function has the contract of
// libc's function of the same name, the caller keeps it, and `real` is that function.

use std::ffi::c_int;

use libc::{clockid_t, sem_t, timespec};

use crate::mechanism::sync::{
    self, Outcome, Step, after_timeout, await_turn, before_wait, publish, real, record,
    record_failure, unexpected, waiting,
};
use crate::mechanism::{alone, signals};
use crate::raw::{errno, set_errno};
use crate::state::mode::{Mode, mode};
use crate::state::thread::{self, Current};

fn acquire(
    semaphore: *mut sem_t,
    function: &'static str,
    thread: &mut Current,
    real: impl FnMut() -> c_int,
) -> c_int {
    before_wait(thread);
    let told = match mode() {
        Mode::Replay => replay(thread, semaphore, function),
        _ => None,
    };
    let result = told.unwrap_or_else(|| really(thread, semaphore, real));
    if result != 0 && errno() == libc::ETIMEDOUT {
        after_timeout(thread);
        set_errno(libc::ETIMEDOUT);
    }
    signals::leave(thread);
    result
}

/// What the log says. `None`: it says no more.
fn replay(thread: &mut Current, semaphore: *mut sem_t, function: &'static str) -> Option<c_int> {
    let step = Step::new(function, semaphore).recorded_after();
    match await_turn(thread, step) {
        Outcome::Acquires => {
            let before = errno();
            // SAFETY: the program's semaphore. In one that is shared with another process the
            // post may have been the other's.
            unsafe { real!(sem_trywait: fn(*mut sem_t) -> c_int)(semaphore) };
            set_errno(before);
            publish(thread);
            Some(0)
        }
        Outcome::Fails(code) => {
            set_errno(code);
            Some(-1)
        }
        Outcome::GoesOn => None,
    }
}

/// Waits for real, and logs how that ended where the process is recorded.
fn really(thread: &mut Current, semaphore: *mut sem_t, mut real: impl FnMut() -> c_int) -> c_int {
    if value_of(semaphore) <= 0 {
        alone::waits(thread);
    }
    let mut result = waiting(thread, &mut real);
    while result != 0
        && errno() == libc::EINTR
        && mode() == Mode::Record
        && signals::deliver_and_restart(thread)
    {
        result = waiting(thread, &mut real);
    }
    match (mode(), result) {
        (Mode::Record, 0) => record(thread, semaphore as u64),
        (Mode::Record, _) => {
            let code = errno();
            record_failure(thread, code);
            set_errno(code);
        }
        _ => {}
    }
    result
}

takers! { acquire:
    sem_wait(semaphore: *mut sem_t);
    sem_timedwait(semaphore: *mut sem_t, until: *const timespec);
    sem_clockwait(semaphore: *mut sem_t, clock: clockid_t, until: *const timespec);
    sem_trywait(semaphore: *mut sem_t);
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sem_post(semaphore: *mut sem_t) -> c_int {
    let real = real!(sem_post: fn(*mut sem_t) -> c_int);
    let Some(thread) = &mut thread::enter() else {
        return unsafe { real(semaphore) };
    };
    let step = Step::new("sem_post", semaphore).recorded_after();
    let mut result = 0;
    match mode() {
        Mode::Replay => match await_turn(thread, step) {
            Outcome::Acquires => {
                // What the log says has come of it: other processes may have left another value
                // in one that they share.
                unsafe { real(semaphore) };
                publish(thread);
            }
            Outcome::Fails(code) => {
                set_errno(code);
                result = -1;
            }
            Outcome::GoesOn => result = post(thread, semaphore),
        },
        _ => result = post(thread, semaphore),
    }
    signals::leave(thread);
    result
}

/// For real, and logs it where the process is recorded.
fn post(thread: &mut Current, semaphore: *mut sem_t) -> c_int {
    let real = real!(sem_post: fn(*mut sem_t) -> c_int);
    if mode() != Mode::Record {
        return unsafe { real(semaphore) };
    }
    if value_of(semaphore) == c_int::MAX {
        record_failure(thread, libc::EOVERFLOW);
        set_errno(libc::EOVERFLOW);
        return -1;
    }
    record(thread, semaphore as u64);
    unsafe { real(semaphore) }
}

fn value_of(semaphore: *mut sem_t) -> c_int {
    let mut value = 0;
    unsafe { real!(sem_getvalue: fn(*mut sem_t, *mut c_int) -> c_int)(semaphore, &raw mut value) };
    value
}

/// The value depends on what other threads have come to, so it is logged.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sem_getvalue(semaphore: *mut sem_t, value: *mut c_int) -> c_int {
    let real = real!(sem_getvalue: fn(*mut sem_t, *mut c_int) -> c_int);
    let Some(thread) = &mut thread::enter() else {
        return unsafe { real(semaphore, value) };
    };
    let result = if mode() == Mode::Record {
        let result = unsafe { real(semaphore, value) };
        record_failure(thread, unsafe { *value });
        result
    } else {
        let step = Step::new("sem_getvalue", semaphore);
        match sync::failure(thread, step) {
            Some(seen) => {
                unsafe { *value = seen };
                0
            }
            None if mode() == Mode::Off => unsafe { real(semaphore, value) },
            None => unexpected(thread, step),
        }
    };
    signals::leave(thread);
    result
}
