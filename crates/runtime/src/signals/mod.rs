//! Signals: queued when they arrive, delivered at the boundaries of calls, logged before the program's handler runs.

use std::sync::atomic::AtomicU8;

use hindcast_execlog::Event;

use crate::thread::Thread;

/// A thread's queue.
pub struct ThreadSignals {
    queued: AtomicU8,
}

impl ThreadSignals {
    pub const fn new() -> Self {
        ThreadSignals { queued: AtomicU8::new(0) }
    }

    /// Not zero while a signal is queued: what `raw::blocking6` looks at.
    pub fn queued_byte(&self) -> *const u8 {
        self.queued.as_ptr()
    }
}

pub fn start() {}

/// The thread is back in replay space: delivers what is queued, or what the log says was delivered here.
#[inline(always)]
pub fn at_boundary(thread: &mut Thread) {
    let _ = thread;
}

/// After `EINTR`: delivers what is queued if all of it wants the call to be restarted, and says whether it did. Logged as
/// delivered inside a call.
pub fn deliver_and_restart(thread: &mut Thread) -> bool {
    let _ = thread;
    false
}

/// Replay of what `deliver_and_restart` logged.
pub fn replay_inside(thread: &mut Thread, event: Event<'static>) {
    thread.reader.advance(&event);
}

pub fn by_number(_number: i64, _arguments: [usize; 6], _context: *mut libc::ucontext_t) -> Option<isize> {
    None
}

/// A signal that an instruction of the program raised.
pub fn synchronous_fault(_signal: i32, _information: *mut libc::siginfo_t, _context: *mut libc::ucontext_t) {}
