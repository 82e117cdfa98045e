//! Whether and when to try again what failed.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use hindcast_pg::Lsn;

use super::StandbyError;
use crate::backup::BackupError;
use crate::status::{Control, State};

/// Waits a little longer each time; forgets that when things went well for a while.
#[derive(Debug, Default)]
pub struct Retry {
    attempt: u32,
    /// Both servers were there once.
    has_worked: bool,
    /// From where and since when it is followed.
    from: Lsn,
    since: Option<Instant>,
    /// What the backup refused last, and how often one after the other.
    stuck: Option<(Lsn, String, u32)>,
}

const FIRST: Duration = Duration::from_millis(200);
/// Together some twelve seconds.
const PREDECESSOR_ATTEMPTS: u32 = 6;
const LONGEST: Duration = Duration::from_secs(15);
/// A predecessor is gone within a moment, or when the primary misses it.
const LONGEST_FOR_PREDECESSOR: Duration = Duration::from_secs(2);
/// Looking at a table again helps at once or never.
const STUCK_ATTEMPTS: u32 = 3;

impl Retry {
    /// Both servers are there and fit.
    pub fn reached(&mut self) {
        self.has_worked = true;
    }

    /// The log is followed from here on. What made it wait is over if it got further than the last
    /// time.
    pub fn follows(&mut self, from: Lsn) {
        self.has_worked = true;
        if from > self.from {
            self.attempt = 0;
        }
        self.from = from;
        self.since = Some(Instant::now());
    }

    /// Whether to try again: a server that is down at the start may come up, as the one that goes
    /// down later. Another process that follows is waited for longer if this one has followed
    /// before, since then it is most likely our own session that was not missed yet.
    pub fn may_help(&self, error: &StandbyError) -> bool {
        match !self.has_worked && error.is_about_predecessor() {
            true => self.attempt < PREDECESSOR_ATTEMPTS,
            false => error.is_transient(),
        }
    }

    /// Takes for final what was refused for the same reason at the same place of the log again and
    /// again.
    pub fn settle(&mut self, error: StandbyError) -> StandbyError {
        let StandbyError::Backup(BackupError::Changed { table, lsn, source }) = error else {
            return error;
        };
        let text = source.to_string();
        let count = match &self.stuck {
            Some((at, before, count)) if *at == lsn && *before == text => count + 1,
            _ => 1,
        };
        self.stuck = Some((lsn, text, count));
        StandbyError::Backup(match count < STUCK_ATTEMPTS {
            true => BackupError::Changed { table, lsn, source },
            false => BackupError::Refused { lsn, table, source },
        })
    }

    /// Says why, and waits. True when it is time to stop instead.
    pub fn wait(&mut self, control: &Control, error: &StandbyError) -> bool {
        if self
            .since
            .take()
            .is_some_and(|since| since.elapsed() > LONGEST)
        {
            self.attempt = 0;
        }
        self.attempt += 1;
        let attempt = self.attempt;
        let reason = error.in_a_line();
        control.update(|status| {
            status.state = State::Waiting { reason, attempt };
            status.reconnects += 1;
        });
        let longest = match error.is_about_predecessor() && self.has_worked {
            true => LONGEST_FOR_PREDECESSOR,
            false => LONGEST,
        };
        control.pause(patience(attempt).min(longest))
    }
}

fn patience(attempt: u32) -> Duration {
    FIRST
        .saturating_mul(1 << attempt.saturating_sub(1).min(16))
        .min(LONGEST)
}

/// What could not be done, by what it was to be done with, and is tried again later.
pub(super) struct Later<K>(HashMap<K, Instant>);

impl<K: Eq + Hash> Later<K> {
    const AGAIN: Duration = Duration::from_secs(60);

    pub fn new() -> Self {
        Self(HashMap::new())
    }

    pub fn put_off(&mut self, these: impl IntoIterator<Item = K>) {
        let again = Instant::now() + Self::AGAIN;
        self.0.extend(these.into_iter().map(|it| (it, again)));
    }

    pub fn may_be_tried(&self, it: &K) -> bool {
        let until = self.0.get(it);
        until.is_none_or(|until| Instant::now() >= *until)
    }
}

#[cfg(test)]
mod tests {
    use hindcast_pg::Error;

    use super::*;

    fn lost() -> StandbyError {
        StandbyError::Backup(BackupError::Lost(Error::Closed))
    }

    fn changed(lsn: u64, what: &str) -> StandbyError {
        StandbyError::Backup(BackupError::Changed {
            table: None,
            lsn: Lsn(lsn),
            source: Error::Protocol(what.to_owned()),
        })
    }

    #[test]
    fn each_wait_is_longer_up_to_a_limit() {
        assert_eq!(patience(1), FIRST);
        assert_eq!(patience(2), 2 * FIRST);
        assert_eq!(patience(100), LONGEST);
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let control = Control::default();
        control.stop();
        let mut retry = Retry {
            attempt: 50,
            has_worked: true,
            ..Retry::default()
        };
        assert!(retry.wait(&control, &lost()));
        assert_eq!(control.status().reconnects, 1);
    }

    #[test]
    fn only_progress_makes_the_waits_short_again() {
        let control = Control::default();
        control.stop();
        let mut retry = Retry::default();
        for _ in 0..5 {
            retry.reached();
            retry.follows(Lsn(7));
            retry.wait(&control, &lost());
        }
        assert_eq!(retry.attempt, 5);
        retry.follows(Lsn(8));
        assert_eq!(retry.attempt, 0);
    }

    #[test]
    fn what_is_refused_again_at_the_same_place_is_final() {
        let mut retry = Retry::default();
        let mut is_transient = |error| retry.settle(error).is_transient();
        for _ in 1..STUCK_ATTEMPTS {
            assert!(is_transient(changed(5, "no such relation")));
        }
        assert!(!is_transient(changed(5, "no such relation")));
        assert!(is_transient(changed(5, "no such column")));
        assert!(is_transient(changed(6, "no such column")));
        // Other errors do not count, and are not counted.
        assert!(is_transient(lost()));
    }
}
