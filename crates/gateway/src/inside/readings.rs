//! What requests read from clocks, until they end.

use std::collections::BTreeMap;

use hindcast_taplog::pins::{READINGS, Reading};

/// By request, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Readings {
    of: BTreeMap<u64, Vec<Option<Reading>>>,
    /// How many there are, of all requests.
    count: usize,
}

impl Readings {
    /// Requests of which readings are kept. What is read after the answer is told, too, and is not
    /// asked for any more; of those that wait, the oldest goes.
    const REQUESTS_MAX: usize = 1 << 13;
    const READINGS_MAX: usize = 1 << 20;

    pub fn told(&mut self, request: u64, n: u16, reading: Reading) {
        let n = usize::from(n);
        if n >= READINGS {
            return;
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
    }

    /// As many as there are without one missing.
    pub fn take(&mut self, request: u64) -> Vec<Reading> {
        let own = self.of.remove(&request).unwrap_or_default();
        self.count -= own.len();
        own.into_iter().map_while(|reading| reading).collect()
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
            readings.told(request, n, reading(time));
        }
        assert_eq!(readings.take(1), [10, 11].map(reading));
        assert_eq!(readings.take(2), [20].map(reading));
        assert_eq!(readings.take(2), []);
    }

    #[test]
    fn only_so_many_readings_are_kept() {
        let mut readings = Readings::default();
        let each = READINGS as u64;
        let requests = Readings::READINGS_MAX as u64 / each + 1;
        for request in 1..=requests {
            (0..each).for_each(|n| readings.told(request, n as u16, reading(1)));
        }
        assert_eq!(readings.take(1), []);
        assert_eq!(readings.take(requests).len(), READINGS);
        assert_eq!(readings.count, (requests as usize - 2) * READINGS);
    }

    #[test]
    fn only_so_many_requests_are_waited_for() {
        let mut readings = Readings::default();
        let last = Readings::REQUESTS_MAX as u64;
        (0..=last).for_each(|request| readings.told(request, 0, reading(1)));
        assert_eq!(readings.take(0), []);
        assert_eq!(readings.take(1), [1].map(reading));
        assert_eq!(readings.take(last), [1].map(reading));
    }
}
