//! The lock that the threads of an interpreter take turns with.
//!
//! CPython's is a flag, a mutex and a condition. A thread that has waited for it for five
//! milliseconds asks the one that has it to give it away, by a word that is read between two
//! instructions of the interpreter. At which of them it is seen nothing could find again. A thread
//! that makes a call which may wait gives the lock away by itself, and that both runs find.
//!
//! So while recording this wait lasts until the lock is given away, and does not run out. What a
//! program sees is that a thread computes for longer before others have their turn. One that has
//! waited for [`PATIENCE_S`] in vain, as for a thread that goes round until another has set a
//! variable, asks after all: the program goes on, and the recording says that a replay is not exact
//! from there on. Then nothing is gained by waiting any more, and all waits are as the program
//! wants them.
//!
//! The condition is known by its place: it is part of `_PyRuntime`, which libpython and programs
//! that contain it export (3.7 and later), and has no other that is waited for with a limit.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hindcast_execlog::files::INEXACT;
use libc::{clockid_t, pthread_cond_t, pthread_mutex_t, timespec};

use crate::mechanism::sync::real;
use crate::raw;
use crate::state::mode::one_at_a_time;
use crate::state::recording;

/// How long a thread waits at most, once.
const PATIENCE_S: i64 = 5;

/// Where `_PyRuntime` begins and ends; zero where there is none.
static RUNTIME: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// A wait has run out after all.
static RAN_OUT: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn dladdr1(
        address: *const c_void,
        found: *mut libc::Dl_info,
        extra: *mut *const libc::Elf64_Sym,
        flags: c_int,
    ) -> c_int;
}

/// Looks for the interpreter, which may have been loaded since the last thread was made. In system
/// space, while recording.
pub fn find() {
    const RTLD_DL_SYMENT: c_int = 1;
    if RUNTIME[1].load(Ordering::Relaxed) != 0 {
        return;
    }
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    let mut symbol = std::ptr::null();
    // SAFETY: C strings, and room for what is found; the symbol is the loader's own.
    unsafe {
        let start = libc::dlsym(libc::RTLD_DEFAULT, c"_PyRuntime".as_ptr());
        if start.is_null()
            || dladdr1(start, found.as_mut_ptr(), &raw mut symbol, RTLD_DL_SYMENT) == 0
            || symbol.is_null()
        {
            return;
        }
        RUNTIME[0].store(start as usize, Ordering::Relaxed);
        RUNTIME[1].store(
            start as usize + (*symbol).st_size as usize,
            Ordering::Relaxed,
        );
    }
}

/// Whether it is an interpreter's lock that is waited for here, and is worth waiting for. Where one
/// thread runs at a time the other one is at a call when it is asked.
pub fn owns(condition: *const pthread_cond_t) -> bool {
    let [start, end] = [0, 1].map(|at: usize| RUNTIME[at].load(Ordering::Relaxed));
    (start..end).contains(&(condition as usize))
        && !RAN_OUT.load(Ordering::Relaxed)
        && !one_at_a_time()
}

/// The rest of a wait that has run out.
///
/// # Safety
/// As `pthread_cond_wait`.
pub unsafe fn wait_on(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    let mut until = raw::time(libc::CLOCK_MONOTONIC);
    until.tv_sec += PATIENCE_S;
    // SAFETY: the caller's promise.
    let result = unsafe {
        real!(pthread_cond_clockwait: fn(*mut pthread_cond_t, *mut pthread_mutex_t, clockid_t, *const timespec) -> c_int)(
            condition,
            mutex,
            libc::CLOCK_MONOTONIC,
            &raw const until,
        )
    };
    if result == libc::ETIMEDOUT && !RAN_OUT.swap(true, Ordering::Relaxed) {
        recording::warn(format_args!(
            "{INEXACT}: a thread of Python has waited for {PATIENCE_S} s for another that computes without a call"
        ));
    }
    result
}
