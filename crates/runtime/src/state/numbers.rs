//! Numbers of descriptors that are ours for a moment.
//!
//! In a follower whose leader is on another machine the program's descriptors are made one after
//! the other, each under the number that the log says. A file that the runtime opens for a moment
//! may get a number that another thread is about to give away. So that is done by one at a time.

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
