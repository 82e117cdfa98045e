//! What requests read from clocks, until they end and behind their answers.

use std::collections::BTreeMap;

use hindcast_taplog::pins::{READINGS, Reading};

/// By request, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Readings {
    of: BTreeMap<u64, Vec<Option<Reading>>>,
    /// How many there are, of all requests.
    count: usize,
    /// Requests that have ended.
    ended: BTreeMap<u64, Ended>,
}

/// What comes behind an answer. Threads that work on one request tell each by itself, so a reading
/// may be told before one that was made before it.
#[derive(Debug, Default)]
struct Ended {
    /// The number of the reading that comes next.
    next: usize,
    /// What was told before that.
    early: BTreeMap<usize, Reading>,
}

impl Ended {
    /// One that has not come behind so many was lost.
    const EARLY_MAX: usize = 64;

    /// Returns what comes next, as far as it is there.
    fn told(&mut self, n: usize, reading: Reading) -> Vec<Reading> {
        if n >= self.next && self.early.len() < Self::EARLY_MAX {
            self.early.insert(n, reading);
        }
        let next = || {
            let reading = self.early.remove(&self.next)?;
            self.next += 1;
            Some(reading)
        };
        std::iter::from_fn(next).collect()
    }
}

impl Readings {
    /// Requests of which readings are kept, or of which it is known that they have ended; of more,
    /// the oldest goes.
    const REQUESTS_MAX: usize = 1 << 13;
    const READINGS_MAX: usize = 1 << 20;

    /// Returns the readings that are known now to have been made behind the answer of a request
    /// that has ended: this one, and those that have waited for it.
    pub fn told(&mut self, request: u64, n: u16, reading: Reading) -> Vec<Reading> {
        let n = usize::from(n);
        if n >= READINGS {
            return Vec::new();
        }
        if let Some(ended) = self.ended.get_mut(&request) {
            return ended.told(n, reading);
        }
        let own = self.of.entry(request).or_default();
        if own.len() <= n {
            self.count += n + 1 - own.len();
            own.resize(n + 1, None);
        }
        own[n] = Some(reading);
        while self.of.len() > Self::REQUESTS_MAX || self.count > Self::READINGS_MAX {
            let oldest = self.of.pop_first();
            self.count -= oldest.map_or(0, |(_, own)| own.len());
        }
        Vec::new()
    }

    /// The request has ended. As many as there are without one missing; the others are behind the
    /// answer as soon as that comes.
    pub fn take(&mut self, request: u64) -> Vec<Reading> {
        let own = self.of.remove(&request).unwrap_or_default();
        self.count -= own.len();
        let mut ended = Ended::default();
        let told = own.into_iter().enumerate();
        let told = told.filter_map(|(n, reading)| Some((n, reading?)));
        let own = told
            .flat_map(|(n, reading)| ended.told(n, reading))
            .collect();
        self.ended.insert(request, ended);
        if self.ended.len() > Self::REQUESTS_MAX {
            self.ended.pop_first();
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(time: i64) -> Reading {
        Reading {
            time,
            ..Reading::default()
        }
    }

    #[test]
    fn readings_are_in_order_up_to_one_that_was_lost() {
        let mut readings = Readings::default();
        for (request, n, time) in [
            (1, 1, 11),
            (2, 0, 20),
            (1, 0, 10),
            (2, 2, 22),
            (1, READINGS as u16, 0),
        ] {
            assert_eq!(readings.told(request, n, reading(time)), []);
        }
        assert_eq!(readings.take(1), [10, 11].map(reading));
        assert_eq!(readings.take(2), [20].map(reading));
        assert_eq!(readings.take(2), []);
    }

    #[test]
    fn what_is_read_behind_the_answer_is_told_as_that() {
        let mut readings = Readings::default();
        assert_eq!(readings.told(1, 0, reading(10)), []);
        assert_eq!(readings.take(1), [10].map(reading));
        assert_eq!(readings.told(1, 1, reading(11)), [11].map(reading));
        assert_eq!(readings.told(1, 2, reading(12)), [12].map(reading));
        // One that read nothing before.
        assert_eq!(readings.take(2), []);
        assert_eq!(readings.told(2, 0, reading(20)), [20].map(reading));
    }

    /// Two threads work on one request: each tells in order, and one later than the other.
    #[test]
    fn what_one_thread_tells_late_keeps_its_place_around_the_answer() {
        let mut readings = Readings::default();
        readings.told(1, 0, reading(10));
        readings.told(1, 2, reading(12));
        assert_eq!(readings.take(1), [10].map(reading));
        assert_eq!(readings.told(1, 4, reading(14)), []);
        assert_eq!(readings.told(1, 1, reading(11)), [11, 12].map(reading));
        assert_eq!(readings.told(1, 3, reading(13)), [13, 14].map(reading));
        // Behind one that was lost none is in its place, and only so many are waited with.
        for n in 6..600 {
            assert_eq!(readings.told(1, n, reading(1)), []);
        }
        assert_eq!(readings.ended[&1].early.len(), Ended::EARLY_MAX);
    }

    #[test]
    fn only_so_many_readings_are_kept() {
        let mut readings = Readings::default();
        let each = READINGS as u64;
        let requests = Readings::READINGS_MAX as u64 / each + 1;
        for request in 1..=requests {
            for n in 0..each {
                readings.told(request, n as u16, reading(1));
            }
        }
        assert_eq!(readings.take(1), []);
        assert_eq!(readings.take(requests).len(), READINGS);
        assert_eq!(readings.count, (requests as usize - 2) * READINGS);
    }

    #[test]
    fn only_so_many_requests_are_waited_for() {
        let mut readings = Readings::default();
        let last = Readings::REQUESTS_MAX as u64;
        for request in 0..=last {
            readings.told(request, 0, reading(1));
        }
        assert_eq!(readings.take(0), []);
        assert_eq!(readings.take(1), [1].map(reading));
        assert_eq!(readings.take(last), [1].map(reading));
    }
}
