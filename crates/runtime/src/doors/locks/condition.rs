//! Condition variables.
//!
//! What a wait does to the order of threads is that it gives the mutex away and takes it again,
//! which is an acquisition of the mutex like any other. Who signalled whom is nowhere logged: the
//! waiter's acquisition comes after those that were made while it slept. So replay never sleeps on
//! a condition: it unlocks, awaits the turn of the acquisition, and locks. A wait that timed out
//! with nobody else taking the mutex is a relaxed acquisition (section 4.1.1 of the paper
//! on relaxed total ordering), preceded by its result.
//!
//! A wait for the lock of an interpreter lasts longer than the program says: see [`interpreter`].
//!
//! Signals and broadcasts are executed in both runs, since threads that are not ours may wait; in
//! replay nobody else does. There they are counted: a follower that goes on sleeps where its leader
//! slept, for not every program looks again at what it has waited for.

// SAFETY, of each `unsafe` here that has no reason of its own: a function has the contract of
// libc's function of the same name, the caller keeps it, and `real` is that function.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{clockid_t, pthread_cond_t, pthread_mutex_t, timespec};

use super::{interpreter, mutex};
use crate::mechanism::sync::{
    self, Step, after_timeout, before_wait, real, record_failure, waiting,
};
use crate::mechanism::{alone, signals};
use crate::state::mode::{Mode, mode};
use crate::state::thread::{self, Current};

fn wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    function: &'static str,
    thread: &mut Current,
    real: impl FnOnce() -> c_int,
) -> c_int {
    before_wait(thread);
    let told = match mode() {
        Mode::Replay => replay(thread, condition, mutex, function),
        _ => None,
    };
    let result = told.unwrap_or_else(|| {
        if mode() == Mode::Record {
            sleep(thread, condition, mutex, real)
        } else {
            sync::blocked(thread, real)
        }
    });
    if result == libc::ETIMEDOUT {
        after_timeout(thread);
    }
    signals::leave(thread);
    result
}

/// The wait itself, recorded.
fn sleep(
    thread: &mut Current,
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    real: impl FnOnce() -> c_int,
) -> c_int {
    alone::waits(thread);
    let mut result = waiting(thread, real);
    if result == libc::ETIMEDOUT && interpreter::owns(condition) {
        // SAFETY: the program's, as in the wait that has run out.
        result = waiting(thread, || unsafe { interpreter::wait_on(condition, mutex) });
    }
    if result != 0 {
        record_failure(thread, result);
    }
    if holds_mutex(result) {
        // SAFETY: the wait has taken the mutex again.
        unsafe { mutex::record(thread, mutex) };
    }
    result
}

/// Whether the wait came to give the mutex away and took it again. Errors of use are found before
/// that.
fn holds_mutex(result: c_int) -> bool {
    matches!(result, 0 | libc::ETIMEDOUT | libc::EOWNERDEAD | libc::EINTR)
}

/// `None` if the log ends in this wait and the process goes on: then the thread has the mutex and
/// is to wait, as nobody has woken it.
fn replay(
    thread: &mut Current,
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    function: &'static str,
) -> Option<c_int> {
    let step = Step::new(function, condition).recorded_after();
    // Whoever made the mutex free for this thread's result may need it first, so let go of it
    // before looking. A wait that failed at once is the exception, and the only event that the
    // thread's own log can have without the mutex.
    let early = sync::failure_if(thread, step, |code| !holds_mutex(code));
    if early.is_some() {
        return early;
    }
    let wakes_before = wakes(condition).load(Ordering::Acquire);
    // SAFETY: the program's mutex, which it holds, as the interface demands.
    unsafe { real!(pthread_mutex_unlock: fn(*mut pthread_mutex_t) -> c_int)(mutex) };
    let result = sync::failure(thread, step).unwrap_or(0);
    if !holds_mutex(result) {
        // Of a log that grows it was not known yet.
        // SAFETY: as above.
        unsafe { mutex::lock_now(thread, mutex) };
        return Some(result);
    }
    let is_told = sync::pass_if_told(
        thread,
        step,
        // SAFETY: as above.
        |thread| unsafe {
            mutex::lock_now(thread, mutex);
        },
    );
    if is_told {
        return Some(result);
    }
    if result == 0 && wakes(condition).load(Ordering::Acquire) == wakes_before {
        return None;
    }
    if mode() == Mode::Record {
        // SAFETY: it holds the mutex again.
        unsafe { mutex::record(thread, mutex) };
    }
    Some(result)
}

/// How often somebody was to be woken in a replay, in which nobody sleeps: of several condition
/// variables together, so that more may seem to have been woken. A wait may end for no reason.
fn wakes(condition: *const pthread_cond_t) -> &'static AtomicU32 {
    const COUNTERS: usize = 256;
    static WAKES: [AtomicU32; COUNTERS] = [const { AtomicU32::new(0) }; COUNTERS];
    &WAKES[condition.addr() / size_of::<pthread_cond_t>() % COUNTERS]
}

// Programs bind to the second version of these symbols; without asking for it one would get the
// first, whose condition variables have another layout. Ours have no version and serve whoever asks
// for any.

takers! { wait:
    pthread_cond_wait @ c"GLIBC_2.3.2" (condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t), mutex;
    pthread_cond_timedwait @ c"GLIBC_2.3.2" (condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec), mutex;
    pthread_cond_clockwait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec), mutex;
}

// These run in system space, because waking is a system call. Nothing is logged, so no signal is
// delivered. To destroy a variable is to wait until whoever was woken is out of it.
macro_rules! wakers {
    ($($name:ident)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(condition: *mut pthread_cond_t) -> c_int {
            let real = real!($name @ c"GLIBC_2.3.2": fn(*mut pthread_cond_t) -> c_int);
            if mode() == Mode::Replay {
                wakes(condition).fetch_add(1, Ordering::AcqRel);
            }
            // SAFETY: the program's condition variable.
            thread::in_system_space(|| unsafe { real(condition) })
        }
    )*};
}

wakers! { pthread_cond_signal pthread_cond_broadcast pthread_cond_destroy }
