//! Numbers of descriptors that are ours for a moment.
//!
//! A follower gets the program's descriptors under the numbers that they have in its leader: one
//! after the other if that is on another machine, else all of them when it goes on. A file that the
//! runtime opens for a moment may get a number that another thread is about to give away, and would
//! be replaced, or close what has replaced it. So that is done by one at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::raw;

/// Runs `inner`, which opens and closes, or opens and keeps, while nobody else does.
pub fn alone<R>(inner: impl FnOnce() -> R) -> R {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    const SPINS: u32 = 100;
    let mut rounds = 0u32;
    while TAKEN.swap(true, Ordering::Acquire) {
        rounds = rounds.saturating_add(1);
        match rounds < SPINS {
            true => std::hint::spin_loop(),
            false => raw::pause(Duration::from_micros(20)),
        }
    }
    let result = inner();
    TAKEN.store(false, Ordering::Release);
    result
}
