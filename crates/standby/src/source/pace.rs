//! How often the primary's log is read.
//!
//! A walsender writes each message to its socket by itself. While there is room at the other end
//! the kernel makes a packet of each, which costs the walsender more than decoding does; while
//! there is none they gather, and the reader that makes room has them sent together. So one that
//! takes what comes as it comes makes the primary work twice as much as one that waits a little.

use std::time::{Duration, Instant};

use hindcast_pg::{CopyBoth, Error};

/// The least time from one read to the next.
const PAUSE: Duration = Duration::from_millis(1);
/// What may wait here of a primary that is [`NEAR`]; the kernel takes about twice as much.
const WAITING: usize = 64 * 1024;
/// A longer round trip with so little under way would slow the log down.
const NEAR: Duration = Duration::from_millis(1);
/// So much in a millisecond, 8 MB/s, is much; [`RUN`] times in a row, and more is behind it. A
/// primary that flushes what many commit at a time has as much now and then.
const MUCH: u64 = 8 * 1024;
const RUN: u32 = 4;
/// With so much there was no room for more.
const FULL: u64 = WAITING as u64 / 5 * 4;
/// How long the primary is let fill up what may wait here, and then gather more.
const GATHERING: Duration = Duration::from_millis(10);

/// When to read next.
pub struct Pace {
    near: bool,
    read_at: Instant,
    /// How many bytes had come by then.
    received: u64,
    /// How many reads in a row found much.
    run: u32,
}

impl Pace {
    pub fn of(session: &CopyBoth) -> Result<Self, Error> {
        Ok(Self {
            near: session.limit_waiting(WAITING, NEAR)?,
            read_at: Instant::now(),
            received: session.received(),
            run: 0,
        })
    }

    /// Waits until it is time to read again, with what has come in all.
    pub fn before_a_read(&mut self, received: u64) {
        let pause = self.pause(received);
        if let Some(early) = pause.checked_sub(self.read_at.elapsed()) {
            std::thread::sleep(early);
        }
        self.read_at = Instant::now();
    }

    /// From a read to the next one.
    fn pause(&mut self, received: u64) -> Duration {
        let came = received - self.received;
        self.received = received;
        self.run = match came {
            MUCH.. => self.run + 1,
            _ => 0,
        };
        match came {
            // More has gathered behind them most likely: it fills the room at once.
            FULL.. => PAUSE,
            _ if self.near && self.run >= RUN => GATHERING,
            _ => PAUSE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pauses behind reads that found so many bytes.
    fn pauses(near: bool, reads: &[u64]) -> Vec<Duration> {
        let mut pace = Pace {
            near,
            read_at: Instant::now(),
            received: 0,
            run: 0,
        };
        let mut received = 0;
        let pause = |came: &u64| {
            received += came;
            pace.pause(received)
        };
        reads.iter().map(pause).collect()
    }

    #[test]
    fn a_log_that_goes_on_is_let_gather() {
        let reads = [MUCH, MUCH, MUCH, MUCH, FULL, FULL, MUCH, 0, MUCH];
        let mut expected = vec![PAUSE; 9];
        expected[3] = GATHERING;
        expected[6] = GATHERING;
        assert_eq!(pauses(true, &reads), expected);
    }

    #[test]
    fn what_comes_now_and_then_is_read_at_once() {
        let reads = [
            MUCH,
            0,
            10 * MUCH,
            MUCH - 1,
            FULL,
            FULL,
            0,
            MUCH,
            MUCH,
            MUCH,
            0,
        ];
        assert_eq!(pauses(true, &reads), vec![PAUSE; 11]);
    }

    #[test]
    fn from_far_away_everything_is_read_at_once() {
        assert_eq!(pauses(false, &[MUCH; 9]), vec![PAUSE; 9]);
    }
}
