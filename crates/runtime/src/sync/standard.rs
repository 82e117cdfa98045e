//! Mutexes and condition variables of C11. In glibc they are pthread's with other results; its own versions call pthread's
//! from inside, past us.

use std::ffi::c_int;

use libc::{pthread_cond_t, pthread_mutex_t, timespec};

use super::{condition, mutex};

const SUCCESS: c_int = 0;
const BUSY: c_int = 1;
const ERROR: c_int = 2;
const NO_MEMORY: c_int = 3;
const TIMED_OUT: c_int = 4;

/// What C11 calls a result of pthread.
pub fn result(code: c_int) -> c_int {
    match code {
        0 => SUCCESS,
        libc::EBUSY => BUSY,
        libc::ENOMEM => NO_MEMORY,
        libc::ETIMEDOUT => TIMED_OUT,
        _ => ERROR,
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mtx_lock(mutex: *mut pthread_mutex_t) -> c_int {
    result(unsafe { mutex::pthread_mutex_lock(mutex) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mtx_trylock(mutex: *mut pthread_mutex_t) -> c_int {
    result(unsafe { mutex::pthread_mutex_trylock(mutex) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mtx_timedlock(
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    result(unsafe { mutex::pthread_mutex_timedlock(mutex, until) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mtx_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    result(unsafe { mutex::pthread_mutex_unlock(mutex) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn cnd_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    result(unsafe { condition::pthread_cond_wait(condition, mutex) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn cnd_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    result(unsafe { condition::pthread_cond_timedwait(condition, mutex, until) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn cnd_signal(condition: *mut pthread_cond_t) -> c_int {
    result(unsafe { condition::pthread_cond_signal(condition) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn cnd_broadcast(condition: *mut pthread_cond_t) -> c_int {
    result(unsafe { condition::pthread_cond_broadcast(condition) })
}
