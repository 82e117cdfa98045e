//! What requests read from clocks, until they end and behind their answers.

use std::collections::BTreeMap;

use hindcast_taplog::pins::{READINGS, Reading};

/// By request, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Readings {
    of: BTreeMap<u64, Vec<Option<Reading>>>,
    /// How many there are, of all requests.
    count: usize,
    /// By request that has ended: the number of the reading that comes next.
    ended: BTreeMap<u64, usize>,
}

impl Readings {
    /// Requests of which readings are kept, or of which it is known that they have ended; of more,
    /// the oldest goes.
    const REQUESTS_MAX: usize = 1 << 13;
    const READINGS_MAX: usize = 1 << 20;

    /// Returns the reading if its request has ended: it is what was read behind the answer.
    pub fn told(&mut self, request: u64, n: u16, reading: Reading) -> Option<Reading> {
        let n = usize::from(n);
        if n >= READINGS {
            return None;
        }
        if let Some(next) = self.ended.get_mut(&request) {
            let is_next = n == *next;
            // Behind one that was lost none is in its place.
            *next = if is_next { n + 1 } else { READINGS };
            return is_next.then_some(reading);
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
        None
    }

    /// The request has ended. As many as there are without one missing.
    pub fn take(&mut self, request: u64) -> Vec<Reading> {
        let own = self.of.remove(&request).unwrap_or_default();
        self.count -= own.len();
        let all = own.len();
        let own: Vec<Reading> = own.into_iter().map_while(|reading| reading).collect();
        let next = if own.len() == all { all } else { READINGS };
        self.ended.insert(request, next);
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
            assert_eq!(readings.told(request, n, reading(time)), None);
        }
        assert_eq!(readings.take(1), [10, 11].map(reading));
        assert_eq!(readings.take(2), [20].map(reading));
        assert_eq!(readings.take(2), []);
    }

    #[test]
    fn what_is_read_behind_the_answer_is_told_as_that() {
        let mut readings = Readings::default();
        assert_eq!(readings.told(1, 0, reading(10)), None);
        assert_eq!(readings.take(1), [10].map(reading));
        assert_eq!(readings.told(1, 1, reading(11)), Some(reading(11)));
        assert_eq!(readings.told(1, 2, reading(12)), Some(reading(12)));
        // One was lost.
        assert_eq!(readings.told(1, 4, reading(14)), None);
        assert_eq!(readings.told(1, 5, reading(15)), None);
        // One that read nothing before.
        assert_eq!(readings.take(2), []);
        assert_eq!(readings.told(2, 0, reading(20)), Some(reading(20)));
        // And one of which something was lost.
        readings.told(3, 1, reading(31));
        assert_eq!(readings.take(3), []);
        assert_eq!(readings.told(3, 2, reading(32)), None);
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
