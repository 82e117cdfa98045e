//! Code that reads the clock again and again until it has gone on.
//!
//! A generator of timestamps keeps the latest one that it gave, and waits for a later one. In a
//! replay others have come to it before, whose clocks are later than this request's. So what it
//! waits for may be far away, and would be waited for as long as it takes.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// Readings in a row that nobody makes who does something with them.
const MANY: u32 = 256;
/// What is read later than this after the reading before is in no such row: somebody sleeps, or
/// works. A thread may lose its processor in between, so that counts for some readings only.
const NEXT: i64 = 100_000;
const LOST: u32 = 64;
/// What each reading more gains.
const STEP: i64 = 1_000_000;

/// Readings of a request in a row.
#[repr(C)]
pub(super) struct Spins {
    /// When the last one was, by the monotonic clock.
    at: AtomicI64,
    count: AtomicU32,
}

impl Spins {
    pub(super) fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
    }

    /// A clock is read that the recording does not say, `now` by the monotonic one. Returns by how
    /// much it has to be later than everybody's clock; `None`: nobody waits for it.
    pub(super) fn note(&self, now: i64) -> Option<i64> {
        let before = self.at.swap(now, Ordering::Relaxed);
        let count = self.count.load(Ordering::Relaxed);
        let count = match now.saturating_sub(before) > NEXT {
            true => count.saturating_sub(LOST),
            false => count.saturating_add(1),
        };
        self.count.store(count, Ordering::Relaxed);
        let many = count.checked_sub(MANY)?;
        Some(i64::from(many).saturating_mul(STEP))
    }
}
