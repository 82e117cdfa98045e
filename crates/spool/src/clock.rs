//! The machine's two clocks.

use std::time::{SystemTime, UNIX_EPOCH};

/// What turns the moments that taps tell into times of day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// What the wall clock shows when the monotonic one shows zero, in microseconds since 1970.
    pub zero: i64,
}

impl Clock {
    /// Readings that are as close as this, in nanoseconds, were made at the same time.
    const CLOSE: u64 = 20_000;

    /// Reads both at about the same time: a reading in between which the thread lost its processor
    /// is made again.
    pub fn read() -> Self {
        let read = || {
            let before = now();
            let wall = wall();
            (now() - before, wall - (before / 1000) as i64)
        };
        let mut best = read();
        for _ in 0..3 {
            if best.0 < Self::CLOSE {
                break;
            }
            best = best.min(read());
        }
        Self { zero: best.1 }
    }

    /// Microseconds since 1970.
    pub fn micros(self, moment: u64) -> i64 {
        self.zero.saturating_add((moment / 1000) as i64)
    }
}

/// Nanoseconds of the machine's monotonic clock, by which taps tell.
pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the memory is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Microseconds since 1970.
pub(crate) fn wall() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_micros() as i64,
        Err(before) => -(before.duration().as_micros() as i64),
    }
}
