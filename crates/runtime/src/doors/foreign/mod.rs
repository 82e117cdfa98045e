//! Libraries below the cut: a higher interface than libc's, such as SQLite's, or one that a user
//! annotated.
//!
//! While such a function runs, the thread is in system space: nothing beneath is recorded, its
//! memory is the system heap's, and in replay it does not run at all. Three things lead out of it
//! again and are dealt with here:
//!
//! ```text
//!   results that point into the library's memory      copies in the replay heap ([`shadow`], R2's xpointer)
//!   functions of the program that it calls             stand-ins that step up into replay space ([`stand_in`], R2's upcalls)
//!   buffers that it fills after the call returned      remembered from prepare to commit ([`prepare`], [`commit`])
//! ```
//!
//! Called by generated stubs (`generated/`), by those of users ([`crate::doors::user_interface`]),
//! and by the few by hand in [`sqlite3`].

mod callbacks;
mod enter;
mod find;
mod guarded;
mod shadows;
pub mod sqlite3;
mod transfers;

pub use callbacks::{Upcall, call_back, stand_in};
pub use enter::{enter, is_in_replay_space};
pub(crate) use find::next;
pub use find::{Next, find_but};
pub use shadows::{Owner, free, release, replace, shadow, take_real};
pub use transfers::{arrived, commit, forget, prepare};

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
