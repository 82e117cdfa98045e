//! Libraries below the cut: a higher interface than libc's, such as SQLite's, or one that a user annotated.
//!
//! While such a function runs, the thread is in system space: nothing beneath is recorded, its memory is the system heap's,
//! and in replay it does not run at all. Three things lead out of it again and are dealt with here:
//!
//! ```text
//!   results that point into the library's memory      copies in the replay heap ([`shadow`], R2's xpointer)
//!   functions of the program that it calls             stand-ins that step up into replay space ([`stand_in`], R2's upcalls)
//!   buffers that it fills after the call returned      remembered from prepare to commit ([`prepare`], [`commit`])
//! ```
//!
//! Called by generated stubs (`generated/`), by those of users ([`crate::user_interface`]), and by the few by hand in [`sqlite3`].

mod callbacks;
mod find;
mod shadows;
pub mod sqlite3;
mod transfers;

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::call::{Call, Function};
use crate::thread::{self, Thread};
use crate::{init, syscall};

pub use callbacks::{Upcall, call_back, stand_in};
pub(crate) use find::next;
pub use find::{Next, find_but};
pub use shadows::{Owner, free, release, replace, shadow, take_real};
pub use transfers::{commit, prepare};

/// For functions of libc, which nobody has to choose.
pub const ALWAYS: u32 = u32::MAX;

/// The calling thread's state if a function of the interface is to be recorded or replayed: it comes from replay space, and
/// the interface was chosen.
#[inline]
pub fn in_replay_space(chosen: u32) -> Option<&'static mut Thread> {
    thread::in_replay_space()
        .filter(|_| chosen == ALWAYS || init::config().interfaces & chosen != 0)
}

/// As [`Call::enter`], if the interface was chosen.
#[inline]
pub fn enter(chosen: u32, function: Function) -> Option<Call> {
    in_replay_space(chosen)?;
    Call::enter(function)
}

/// Directly before the kernel forks: the child must not find what another thread was changing.
pub fn lock_for_fork() {
    shadows::SHADOWS.lock();
    callbacks::USED.lock();
    transfers::PREPARED.lock();
    sqlite3::AGGREGATES.lock();
}

/// Directly after it, in the parent and in the child.
pub fn unlock_after_fork() {
    shadows::SHADOWS.unlock();
    callbacks::USED.unlock();
    transfers::PREPARED.unlock();
    sqlite3::AGGREGATES.unlock();
}

/// Something that threads share, held only for a few instructions and never while code of the program or the library runs.
struct Guarded<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached by whoever has set `taken`.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    const fn new(value: T) -> Self {
        Guarded {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    fn lock(&self) {
        while self.taken.swap(true, Ordering::Acquire) {
            // SAFETY: no arguments.
            unsafe { syscall!(libc::SYS_sched_yield) };
        }
    }

    fn unlock(&self) {
        self.taken.store(false, Ordering::Release);
    }

    fn with<R>(&self, inner: impl FnOnce(&mut T) -> R) -> R {
        self.lock();
        // SAFETY: `taken` was ours to set.
        let result = inner(unsafe { &mut *self.value.get() });
        self.unlock();
        result
    }
}
