//! The names of functions and of kinds of events, for reports.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicPtr, AtomicU16, Ordering};

use hindcast_execlog::event::{FUNCTIONS, KINDS_END, Kind, USER_FUNCTIONS};

use crate::functions::{self, Function};

/// A system call that nothing describes: its arguments and its result are in the log, memory that
/// it wrote is not.
pub const UNLISTED: Function = Function(KINDS_END - 1);

/// The name of a function or of a kind of event.
pub fn name(kind: u16) -> &'static str {
    if kind == UNLISTED.0 {
        return "a system call that is not known";
    }
    if kind >= FUNCTIONS {
        return functions::NAMES
            .get((kind - FUNCTIONS) as usize)
            .copied()
            .or_else(|| of_user(kind))
            .unwrap_or("a function of a user's interface");
    }
    match Kind::from_number(kind) {
        Some(Kind::Relaxed | Kind::Edge | Kind::Ticket | Kind::Clock) => "an acquisition",
        Some(Kind::Busy) => "an acquisition that failed",
        Some(Kind::Signal) => "delivery of a signal",
        Some(Kind::Callback | Kind::CallbackReturn) => "a callback",
        Some(Kind::Fork) => "fork",
        Some(Kind::Exec) => "exec",
        Some(Kind::Exit) => "exit",
        Some(Kind::Ended) => "the end of recording",
        Some(Kind::Mapping) => "mmap of a file",
        Some(Kind::Thread) => "creation of a thread",
        Some(Kind::ThreadEnd) => "the end of the thread",
        Some(Kind::Tsc) => "rdtsc",
        Some(Kind::Cpuid) => "cpuid",
        Some(Kind::Random) => "rdrand",
        Some(Kind::Replaced) => "new code",
        Some(Kind::Turn) => "another thread's turn",
        Some(Kind::Fatal) => "a fatal signal",
        _ => "something else",
    }
}

/// How many functions users' interfaces may have together.
pub const USERS_MAX: usize = (KINDS_END - USER_FUNCTIONS - 1) as usize;
/// Names of users' functions, from [`USER_FUNCTIONS`] on. Written once at load, read by reports.
static USERS: [AtomicPtr<c_char>; USERS_MAX] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; USERS_MAX];
static USED: AtomicU16 = AtomicU16::new(0);

/// Gives functions their numbers in the order of their names; returns the first. 0: there are too
/// many.
///
/// # Safety
/// That many C strings, which stay.
pub unsafe fn register(names: *const *const c_char, count: u32) -> u16 {
    let first = USED.fetch_add(count as u16, Ordering::Relaxed);
    if first as usize + count as usize > USERS_MAX {
        return 0;
    }
    for index in 0..count as usize {
        // SAFETY: the caller's promise.
        USERS[first as usize + index]
            .store(unsafe { *names.add(index) }.cast_mut(), Ordering::Release);
    }
    USER_FUNCTIONS + first
}

/// The name that a user's function was registered with.
fn of_user(function: u16) -> Option<&'static str> {
    let name = USERS
        .get(function.checked_sub(USER_FUNCTIONS)? as usize)?
        .load(Ordering::Acquire);
    // SAFETY: registered names are C strings of a library that stays.
    (!name.is_null())
        .then(|| unsafe { CStr::from_ptr(name) })
        .and_then(|name| name.to_str().ok())
}
