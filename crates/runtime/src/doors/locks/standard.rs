//! Mutexes and condition variables of C11. In glibc they are pthread's with other results; its own
//! versions call pthread's from inside, past us.

// SAFETY, of each `unsafe` here that has no reason of its own: a function has the contract of
// libc's function of the same name, the caller keeps it, and pthread's has the same.

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

macro_rules! renamed {
    ($($name:ident($($argument:ident: $type:ty),*) = $real:path;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            result(unsafe { $real($($argument),*) })
        }
    )*};
}

renamed! {
    mtx_lock(mutex: *mut pthread_mutex_t) = mutex::pthread_mutex_lock;
    mtx_trylock(mutex: *mut pthread_mutex_t) = mutex::pthread_mutex_trylock;
    mtx_timedlock(mutex: *mut pthread_mutex_t, until: *const timespec) = mutex::pthread_mutex_timedlock;
    mtx_unlock(mutex: *mut pthread_mutex_t) = mutex::pthread_mutex_unlock;
    cnd_wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) = condition::pthread_cond_wait;
    cnd_timedwait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec) = condition::pthread_cond_timedwait;
    cnd_signal(condition: *mut pthread_cond_t) = condition::pthread_cond_signal;
    cnd_broadcast(condition: *mut pthread_cond_t) = condition::pthread_cond_broadcast;
}
