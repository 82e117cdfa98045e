//! Mutexes: the quick path. Locking and unlocking a mutex that no other thread wants costs a few instructions more than
//! without us, and no atomic one.

use std::ffi::c_int;

use libc::{clockid_t, pthread_mutex_t, timespec};

use super::{Outcome, Step, await_turn, back_to_replay, enter, order, publish, real, record_exclusive, record_failure};
use crate::mode::{Mode, mode};
use crate::thread::{self, Thread};

/// Where `pthread_mutex_t` of glibc for x86-64 keeps its kind.
const KIND: usize = 16;
/// Where it keeps its links in the list of robust and priority-inheriting mutexes that a thread holds: free in all others.
const OWNER: usize = 24;
/// Bits of the kind: robust, priority-inheriting, shared between processes. These have their owners in the table, the
/// last because another process would write numbers of its own threads there.
const IN_TABLE: c_int = 16 | 32 | 128;

const _: () = assert!(size_of::<pthread_mutex_t>() >= OWNER + 8 && align_of::<pthread_mutex_t>() >= 8);

/// Logs that the mutex, which this thread now holds, was locked.
#[inline(always)]
pub unsafe fn record(thread: &mut Thread, mutex: *mut pthread_mutex_t) {
    // SAFETY: a mutex of the program, which the real function has just dealt with.
    unsafe {
        if mutex.byte_add(KIND).cast::<c_int>().read() & IN_TABLE == 0 {
            order::record_inline(thread, mutex.byte_add(OWNER).cast());
        } else {
            record_exclusive(thread, mutex as u64);
        }
    }
}

#[inline(always)]
unsafe fn record_result(thread: &mut Thread, mutex: *mut pthread_mutex_t, result: c_int) {
    if result != 0 {
        record_failure(thread, result);
        if result != libc::EOWNERDEAD {
            return;
        }
    }
    // SAFETY: held: it was locked, or inherited from a thread that died with it.
    unsafe { record(thread, mutex) };
}

/// Replay of any function that locks: what the log says, and the lock if it was got.
fn replay(thread: &mut Thread, mutex: *mut pthread_mutex_t, function: &'static str) -> c_int {
    let step = Step::new(function, mutex);
    match await_turn(thread, step) {
        Outcome::Acquires => {
            // SAFETY: the program's mutex.
            let result = unsafe { lock_now(thread, mutex, step) };
            publish(thread);
            result
        }
        Outcome::Fails(libc::EOWNERDEAD) => {
            replay(thread, mutex, function);
            libc::EOWNERDEAD
        }
        Outcome::Fails(code) => code,
    }
}

/// Locks a mutex whose turn this is. At worst the previous owner has yet to let go of it.
pub unsafe fn lock_now(thread: &mut Thread, mutex: *mut pthread_mutex_t, step: Step) -> c_int {
    // SAFETY: the program's mutex.
    unsafe {
        let result = real!(pthread_mutex_trylock: fn(*mut pthread_mutex_t) -> c_int)(mutex);
        if result != libc::EBUSY {
            return result;
        }
        super::blocked(thread, step, || real!(pthread_mutex_lock: fn(*mut pthread_mutex_t) -> c_int)(mutex))
    }
}

#[inline(always)]
unsafe fn acquire(
    mutex: *mut pthread_mutex_t,
    function: &'static str,
    thread: &'static mut Thread,
    real: impl FnOnce() -> c_int,
) -> c_int {
    enter(thread);
    let result = if mode() == Mode::Record {
        let result = real();
        // SAFETY: the program's mutex.
        unsafe { record_result(thread, mutex, result) };
        result
    } else {
        replay(thread, mutex, function)
    };
    back_to_replay(thread);
    result
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    let real = real!(pthread_mutex_lock: fn(*mut pthread_mutex_t) -> c_int);
    let Some(thread) = thread::in_replay_space() else { return unsafe { real(mutex) } };
    unsafe { acquire(mutex, "pthread_mutex_lock", thread, || real(mutex)) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int {
    let real = real!(pthread_mutex_trylock: fn(*mut pthread_mutex_t) -> c_int);
    let Some(thread) = thread::in_replay_space() else { return unsafe { real(mutex) } };
    unsafe { acquire(mutex, "pthread_mutex_trylock", thread, || real(mutex)) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int {
    let real = real!(pthread_mutex_timedlock: fn(*mut pthread_mutex_t, *const timespec) -> c_int);
    let Some(thread) = thread::in_replay_space() else { return unsafe { real(mutex, until) } };
    unsafe { acquire(mutex, "pthread_mutex_timedlock", thread, || real(mutex, until)) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_mutex_clocklock(mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec) -> c_int {
    let real = real!(pthread_mutex_clocklock: fn(*mut pthread_mutex_t, clockid_t, *const timespec) -> c_int);
    let Some(thread) = thread::in_replay_space() else { return unsafe { real(mutex, clock, until) } };
    unsafe { acquire(mutex, "pthread_mutex_clocklock", thread, || real(mutex, clock, until)) }
}

/// Nothing is logged, so no signal is delivered here either: replay would not know where. In system space, because
/// waking a waiter is a system call.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    let real = real!(pthread_mutex_unlock: fn(*mut pthread_mutex_t) -> c_int);
    let Some(thread) = thread::in_replay_space() else { return unsafe { real(mutex) } };
    enter(thread);
    let result = unsafe { real(mutex) };
    thread.enter_replay();
    result
}
