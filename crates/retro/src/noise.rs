//! Differences that are caused only by clocks, sequences or randomness.

use hindcast_trace::Micros;

/// When the original ran and when the changed code ran, by the wall clock. A value that moved from the one to the other came from a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub original: (Micros, Micros),
    pub run: (Micros, Micros),
}

/// What is known about numbers in a response.
pub trait Numbers: Send + Sync {
    /// Whether a sequence gave out `after` where it gave out `before` in the recording.
    fn renumbered(&self, before: i64, after: i64) -> bool;
}

/// No number is another one's counterpart.
#[derive(Clone, Copy, Debug)]
pub struct NoNumbers;

impl Numbers for NoNumbers {
    fn renumbered(&self, _: i64, _: i64) -> bool {
        false
    }
}
