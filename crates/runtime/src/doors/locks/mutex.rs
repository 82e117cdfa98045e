//! Mutexes: the quick path.
//!
//! Locking and unlocking an ordinary mutex that no other thread wants is done here, as libc does
//! it, with the order on top: the same two atomic instructions, one call less. Whatever is out of
//! the ordinary (another kind, a waiter, another owner before) takes the long way through the real
//! function. Whether libc's mutexes are as this module knows them is found out at start
//! ([`is_as_known`]); if not, all take the long way.

// SAFETY, of each `unsafe` here that has no reason of its own: a function has the contract of
// libc's function of the same name, the caller keeps it, and `real` is that function.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{clockid_t, pthread_mutex_t, timespec};

use crate::mechanism::sync::mutex::{IN_TABLE, Known, ORDINARY, second_thread, take};
use crate::mechanism::sync::{
    self, Outcome, Step, await_turn, order, publish, real, record_exclusive, record_failure, turn,
};
use crate::mechanism::{alone, signals};
use crate::state::mode::{Mode, mode};
use crate::state::sync::{Quick, is_same_owner};
use crate::state::thread::{self, Current, REPLAY};
use crate::{raw, syscall};

/// Logs that the mutex, which this thread now holds, was locked.
#[inline(always)]
pub unsafe fn record(thread: &mut Current, mutex: *mut pthread_mutex_t) {
    // SAFETY: a mutex of the program, which the real function has just dealt with.
    unsafe {
        let known = mutex.cast::<Known>();
        if (*known).kind & IN_TABLE == 0 {
            order::record_inline(thread, (&raw mut (*known).links).cast());
        } else {
            record_exclusive(thread, mutex as u64);
        }
    }
}

#[inline(always)]
unsafe fn record_result(thread: &mut Current, mutex: *mut pthread_mutex_t, result: c_int) {
    if result != 0 {
        record_failure(thread, result);
        if result != libc::EOWNERDEAD {
            return;
        }
    }
    // SAFETY: held: it was locked, or inherited from a thread that died with it.
    unsafe { record(thread, mutex) };
}

/// Replay of any function that locks: what the log says, and the lock if it was got. `None`: the
/// log says no more.
fn replay(
    thread: &mut Current,
    mutex: *mut pthread_mutex_t,
    function: &'static str,
) -> Option<c_int> {
    let step = Step::new(function, mutex).recorded_after();
    match await_turn(thread, step) {
        Outcome::Acquires => {
            // SAFETY: the program's mutex.
            let result = unsafe { lock_now(thread, mutex) };
            publish(thread);
            Some(result)
        }
        Outcome::Fails(libc::EOWNERDEAD) => {
            replay(thread, mutex, function)?;
            Some(libc::EOWNERDEAD)
        }
        Outcome::Fails(code) => Some(code),
        Outcome::GoesOn => None,
    }
}

/// Locks a mutex whose turn this is. At worst the previous owner has yet to let go of it.
pub unsafe fn lock_now(thread: &mut Current, mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the program's mutex.
    unsafe {
        let result = real!(pthread_mutex_trylock: fn(*mut pthread_mutex_t) -> c_int)(mutex);
        if result != libc::EBUSY {
            return result;
        }
        sync::blocked(thread, || {
            real!(pthread_mutex_lock: fn(*mut pthread_mutex_t) -> c_int)(mutex)
        })
    }
}

#[inline(always)]
fn acquire(
    mutex: *mut pthread_mutex_t,
    function: &'static str,
    thread: &mut Current,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let told = match mode() {
        Mode::Replay => replay(thread, mutex, function),
        _ => None,
    };
    let result = told.unwrap_or_else(|| {
        // SAFETY: the program's mutex.
        if unsafe { (*mutex.cast::<Known>()).lock.load(Ordering::Relaxed) } != 0 {
            alone::waits(thread);
        }
        let result = real();
        if mode() == Mode::Record {
            // SAFETY: the program's mutex.
            unsafe { record_result(thread, mutex, result) };
        }
        result
    });
    signals::leave(thread);
    result
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // All that is not the usual is a call at the end, so that the usual needs no frame.
    // SAFETY: the program's mutex; in replay space no other guard is in use.
    unsafe {
        match thread::current() {
            Some(thread) if thread.selector.load(Ordering::Relaxed) == REPLAY => {
                match thread.sync.quick {
                    Quick::Edge => lock_quickly::<false>(thread, mutex),
                    Quick::Alone if (*mutex.cast::<Known>()).kind == ORDINARY => {
                        real!(pthread_mutex_lock: fn(*mut pthread_mutex_t) -> c_int)(mutex)
                    }
                    _ => lock_otherwise(mutex),
                }
            }
            _ => lock_otherwise(mutex),
        }
    }
}

/// Recording edges, or (`RELAXED`) the relaxed order, in which a thread's acquisitions are its
/// entry of the global clock. The thread stays in replay space: there is nothing to wait for and no
/// system call.
#[inline(always)]
unsafe fn lock_quickly<const RELAXED: bool>(
    mut thread: Current,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    let known = mutex.cast::<Known>();
    // SAFETY: the program's mutex; held from `take` on, so that its owner word is this thread's.
    unsafe {
        if !take(&thread, known) {
            return lock(mutex);
        }
        let owner = (&raw mut (*known).links).cast::<u64>();
        let acquisition = thread.acquired() + 1;
        let word = thread.sync.tag | acquisition;
        let same = !(RELAXED && *owner == 0) && is_same_owner(*owner, word);
        let is_known = RELAXED || order::is_moment_known(&thread);
        if !same || !is_known || !thread.writer.bump_relaxed_in_place() {
            return log_slowly(thread, known);
        }
        if RELAXED {
            turn::count(thread.number, acquisition);
        }
        thread.has_acquired(acquisition);
        *owner = word;
    }
    end_quickly(thread)
}

#[inline(always)]
fn end_quickly(mut thread: Current) -> c_int {
    if signals::count_boundary(&mut thread) {
        deliver(thread)
    } else {
        0
    }
}

#[cold]
#[inline(never)]
fn deliver(mut thread: Current) -> c_int {
    thread.signals.enters_with_stack(raw::stack_pointer());
    signals::deliver(&mut thread);
    0
}

/// The mutex is held, and its acquisition is more than a count in place.
#[inline(never)]
unsafe fn log_slowly(mut thread: Current, mutex: *mut Known) -> c_int {
    thread.enter_system();
    // SAFETY: the program's mutex, held by this thread.
    unsafe { order::record_inline(&mut thread, (&raw mut (*mutex).links).cast()) };
    thread.enter_replay();
    end_quickly(thread)
}

/// The relaxed order, and replay.
#[inline(never)]
unsafe fn lock_otherwise(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: as in `pthread_mutex_lock`.
    unsafe {
        match thread::current() {
            Some(thread) if thread.selector.load(Ordering::Relaxed) == REPLAY => {
                match thread.sync.quick {
                    Quick::Relaxed => lock_quickly::<true>(thread, mutex),
                    Quick::Replay => lock_again(thread, mutex),
                    _ => lock(mutex),
                }
            }
            _ => lock(mutex),
        }
    }
}

/// Replay of an acquisition that waits for nobody.
#[inline(always)]
unsafe fn lock_again(mut thread: Current, mutex: *mut pthread_mutex_t) -> c_int {
    let known = mutex.cast::<Known>();
    // SAFETY: the program's mutex.
    unsafe {
        if (*known).kind != ORDINARY
            || (*known).lock.load(Ordering::Relaxed) != 0
            || !thread.reader.take_relaxed()
        {
            if mode() == Mode::Record {
                // The process goes on in the place of the one that it has replayed.
                second_thread(&mut thread);
            }
            return lock(mutex);
        }
        if !take(&thread, known) {
            // Whoever has it since then is the previous owner or does not follow the order. It is
            // waited for in either case.
            return lock_after_turn(thread, mutex);
        }
    }
    publish(&mut thread);
    thread.signals.enters_with_stack(raw::stack_pointer());
    signals::at_boundary(&mut thread);
    0
}

#[cold]
#[inline(never)]
unsafe fn lock_after_turn(mut thread: Current, mutex: *mut pthread_mutex_t) -> c_int {
    thread.signals.enters_with_stack(raw::stack_pointer());
    thread.enter_system();
    // SAFETY: the program's mutex.
    let result = unsafe { lock_now(&mut thread, mutex) };
    publish(&mut thread);
    signals::leave(&mut thread);
    result
}

/// The long way.
#[inline(never)]
unsafe fn lock(mutex: *mut pthread_mutex_t) -> c_int {
    let real = real!(pthread_mutex_lock: fn(*mut pthread_mutex_t) -> c_int);
    let Some(thread) = &mut thread::enter() else {
        return unsafe { real(mutex) };
    };
    alone::away(thread);
    acquire(mutex, "pthread_mutex_lock", thread, || unsafe {
        real(mutex)
    })
}

takers! { acquire:
    pthread_mutex_trylock(mutex: *mut pthread_mutex_t);
    pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, until: *const timespec);
    pthread_mutex_clocklock(mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec);
}

/// Nothing is logged, so no signal is delivered here either: replay would not know where.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    let known = mutex.cast::<Known>();
    // SAFETY: as in `pthread_mutex_lock`.
    if let Some(thread) = unsafe { thread::current() }
        && thread.selector.load(Ordering::Relaxed) == REPLAY
        // SAFETY: the program's mutex.
        && unsafe { (*known).kind } == ORDINARY
    {
        match thread.sync.quick {
            Quick::Nothing => return unsafe { unlock(mutex) },
            Quick::Alone => {
                return unsafe {
                    real!(pthread_mutex_unlock: fn(*mut pthread_mutex_t) -> c_int)(mutex)
                };
            }
            Quick::Edge | Quick::Relaxed | Quick::Replay => {}
        }
        // SAFETY: as above, and held by this thread, as the interface demands.
        unsafe {
            (*known).owner = 0;
            (*known).users = (*known).users.wrapping_sub(1);
            if (*known).lock.swap(0, Ordering::Release) > 1 {
                wake_one(&(*known).lock);
            }
        }
        return 0;
    }
    unsafe { unlock(mutex) }
}

#[cold]
#[inline(never)]
fn wake_one(lock: &AtomicU32) {
    // SAFETY: a word of this process. The program may free it any moment; waking an address is
    // harmless.
    unsafe {
        syscall!(
            libc::SYS_futex,
            lock.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1
        )
    };
}

#[inline(never)]
unsafe fn unlock(mutex: *mut pthread_mutex_t) -> c_int {
    let real = real!(pthread_mutex_unlock: fn(*mut pthread_mutex_t) -> c_int);
    // In system space, because waking a waiter is a system call.
    // SAFETY: the program's mutex.
    thread::in_system_space(|| unsafe { real(mutex) })
}
