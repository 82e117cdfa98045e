//! Read-write locks and spin locks.
//!
//! Readers of one lock are ordered among themselves, too: who comes first does not matter to them, but then the next writer
//! has one edge, to the last of them, which came after all others.

use std::ffi::{c_int, c_void};

use libc::{clockid_t, pthread_rwlock_t, timespec};

use super::{
    Outcome, Step, await_turn, back_to_replay, enter, publish, real, record, record_exclusive,
    record_failure,
};
use crate::mode::{Mode, mode};
use crate::thread::{self, Thread};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

fn acquire(
    lock: *mut pthread_rwlock_t,
    access: Access,
    function: &'static str,
    thread: &'static mut Thread,
    real: impl FnOnce() -> c_int,
) -> c_int {
    enter(thread);
    let result = if mode() == Mode::Record {
        let result = real();
        match result {
            // The owner word of a lock that is at times shared is taken over in one step at all times.
            0 => record(thread, lock as u64),
            code => record_failure(thread, code),
        }
        result
    } else {
        let step = Step::new(function, lock);
        match await_turn(thread, step) {
            Outcome::Acquires => {
                let result = lock_now(thread, lock, access, step);
                publish(thread);
                result
            }
            Outcome::Fails(code) => code,
        }
    };
    back_to_replay(thread);
    result
}

fn lock_now(thread: &mut Thread, lock: *mut pthread_rwlock_t, access: Access, step: Step) -> c_int {
    // SAFETY: the program's lock.
    unsafe {
        let now = match access {
            Access::Read => {
                real!(pthread_rwlock_tryrdlock: fn(*mut pthread_rwlock_t) -> c_int)(lock)
            }
            Access::Write => {
                real!(pthread_rwlock_trywrlock: fn(*mut pthread_rwlock_t) -> c_int)(lock)
            }
        };
        if now != libc::EBUSY {
            return now;
        }
        super::blocked(thread, step, || match access {
            Access::Read => real!(pthread_rwlock_rdlock: fn(*mut pthread_rwlock_t) -> c_int)(lock),
            Access::Write => real!(pthread_rwlock_wrlock: fn(*mut pthread_rwlock_t) -> c_int)(lock),
        })
    }
}

/// A function that takes a read-write lock.
macro_rules! locks {
    ($($name:ident($access:ident $(, $argument:ident: $type:ty)*);)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(lock: *mut pthread_rwlock_t $(, $argument: $type)*) -> c_int {
            let real = real!($name: fn(*mut pthread_rwlock_t $(, $type)*) -> c_int);
            let Some(thread) = thread::in_replay_space() else { return unsafe { real(lock $(, $argument)*) } };
            acquire(lock, Access::$access, stringify!($name), thread, || unsafe { real(lock $(, $argument)*) })
        }
    )*};
}

locks! {
    pthread_rwlock_rdlock(Read);
    pthread_rwlock_tryrdlock(Read);
    pthread_rwlock_timedrdlock(Read, until: *const timespec);
    pthread_rwlock_clockrdlock(Read, clock: clockid_t, until: *const timespec);
    pthread_rwlock_wrlock(Write);
    pthread_rwlock_trywrlock(Write);
    pthread_rwlock_timedwrlock(Write, until: *const timespec);
    pthread_rwlock_clockwrlock(Write, clock: clockid_t, until: *const timespec);
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int {
    let real = real!(pthread_rwlock_unlock: fn(*mut pthread_rwlock_t) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(lock) };
    };
    enter(thread);
    let result = unsafe { real(lock) };
    thread.enter_replay();
    result
}

type Spin = *mut c_void;

fn acquire_spin(
    lock: Spin,
    function: &'static str,
    thread: &'static mut Thread,
    real: impl FnOnce() -> c_int,
) -> c_int {
    enter(thread);
    let result = if mode() == Mode::Record {
        let result = real();
        match result {
            0 => record_exclusive(thread, lock as u64),
            code => record_failure(thread, code),
        }
        result
    } else {
        match await_turn(thread, Step::new(function, lock)) {
            Outcome::Acquires => {
                // SAFETY: the program's lock.
                let result = unsafe { real!(pthread_spin_lock: fn(Spin) -> c_int)(lock) };
                publish(thread);
                result
            }
            Outcome::Fails(code) => code,
        }
    };
    back_to_replay(thread);
    result
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_spin_lock(lock: Spin) -> c_int {
    let real = real!(pthread_spin_lock: fn(Spin) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(lock) };
    };
    acquire_spin(lock, "pthread_spin_lock", thread, || unsafe { real(lock) })
}

// `pthread_spin_unlock` is a store: nothing to do.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_spin_trylock(lock: Spin) -> c_int {
    let real = real!(pthread_spin_trylock: fn(Spin) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(lock) };
    };
    acquire_spin(lock, "pthread_spin_trylock", thread, || unsafe {
        real(lock)
    })
}
