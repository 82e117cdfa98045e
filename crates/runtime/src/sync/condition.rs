//! Condition variables.
//!
//! What a wait does to the order of threads is that it gives the mutex away and takes it again, which is an acquisition
//! of the mutex like any other. Who signalled whom is nowhere logged: the waiter's acquisition comes after those that
//! were made while it slept. So replay never sleeps on a condition: it unlocks, awaits the turn of the acquisition, and
//! locks. A wait that timed out with nobody else taking the mutex is a relaxed acquisition (section 4.1.1 of the paper
//! on relaxed total ordering), preceded by its result.
//!
//! Signals and broadcasts are executed in both runs, since threads that are not ours may wait; in replay nobody else does.

use std::ffi::c_int;

use libc::{clockid_t, pthread_cond_t, pthread_mutex_t, timespec};

use super::{
    Outcome, Step, after_timeout, await_turn, back_to_replay, before_wait, enter, mutex, publish,
    real, record_failure, waiting,
};
use crate::mode::{Mode, mode};
use crate::thread::{self, Thread};

fn wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    function: &'static str,
    thread: &'static mut Thread,
    real: impl FnOnce() -> c_int,
) -> c_int {
    enter(thread);
    before_wait(thread);
    let result = if mode() == Mode::Record {
        let result = waiting(thread, real);
        if result != 0 {
            record_failure(thread, result);
        }
        if holds_mutex(result) {
            // SAFETY: the wait has taken the mutex again.
            unsafe { mutex::record(thread, mutex) };
        }
        result
    } else {
        replay(thread, condition, mutex, function)
    };
    if result == libc::ETIMEDOUT {
        after_timeout(thread);
    }
    back_to_replay(thread);
    result
}

/// Whether the wait came to give the mutex away and took it again. Errors of use are found before that.
fn holds_mutex(result: c_int) -> bool {
    matches!(result, 0 | libc::ETIMEDOUT | libc::EOWNERDEAD | libc::EINTR)
}

fn replay(
    thread: &mut Thread,
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    function: &'static str,
) -> c_int {
    let step = Step::new(function, condition);
    // Whoever made the mutex free for this thread's result may need it first, so let go of it before looking. A wait that
    // failed at once is the exception, and the only event that the thread's own log can have without the mutex.
    let early = super::failure_if(thread, step, |code| !holds_mutex(code));
    if let Some(code) = early {
        return code;
    }
    // SAFETY: the program's mutex, which it holds, as the interface demands.
    unsafe { real!(pthread_mutex_unlock: fn(*mut pthread_mutex_t) -> c_int)(mutex) };
    let result = super::failure(thread, step).unwrap_or(0);
    match await_turn(thread, step) {
        Outcome::Acquires => {
            // SAFETY: as above.
            unsafe { mutex::lock_now(thread, mutex, step) };
            publish(thread);
        }
        Outcome::Fails(_) => super::unexpected(thread, step),
    }
    result
}

// Programs bind to the second version of these symbols; without asking for it one would get the first, whose
// condition variables have another layout. Ours have no version and serve whoever asks for any.

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pthread_cond_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    let real = real!(pthread_cond_wait @ c"GLIBC_2.3.2": fn(*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(condition, mutex) };
    };
    wait(condition, mutex, "pthread_cond_wait", thread, || unsafe {
        real(condition, mutex)
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pthread_cond_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    let real = real!(pthread_cond_timedwait @ c"GLIBC_2.3.2": fn(*mut pthread_cond_t, *mut pthread_mutex_t, *const timespec) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(condition, mutex, until) };
    };
    wait(
        condition,
        mutex,
        "pthread_cond_timedwait",
        thread,
        || unsafe { real(condition, mutex, until) },
    )
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pthread_cond_clockwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    let real = real!(pthread_cond_clockwait: fn(*mut pthread_cond_t, *mut pthread_mutex_t, clockid_t, *const timespec) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(condition, mutex, clock, until) };
    };
    wait(
        condition,
        mutex,
        "pthread_cond_clockwait",
        thread,
        || unsafe { real(condition, mutex, clock, until) },
    )
}

/// In system space, because waking is a system call. Nothing is logged, so no signal is delivered.
fn wake(thread: &mut Thread, real: impl FnOnce() -> c_int) -> c_int {
    thread::system_space(thread, real)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cond_signal(condition: *mut pthread_cond_t) -> c_int {
    let real = real!(pthread_cond_signal @ c"GLIBC_2.3.2": fn(*mut pthread_cond_t) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(condition) };
    };
    wake(thread, || unsafe { real(condition) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cond_broadcast(condition: *mut pthread_cond_t) -> c_int {
    let real = real!(pthread_cond_broadcast @ c"GLIBC_2.3.2": fn(*mut pthread_cond_t) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(condition) };
    };
    wake(thread, || unsafe { real(condition) })
}

/// Waits until whoever was woken is out of it, which may be a system call.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cond_destroy(condition: *mut pthread_cond_t) -> c_int {
    let real = real!(pthread_cond_destroy @ c"GLIBC_2.3.2": fn(*mut pthread_cond_t) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(condition) };
    };
    wake(thread, || unsafe { real(condition) })
}
