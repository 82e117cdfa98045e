use std::time::{Duration, Instant};

use super::generator::{HttpCall, Requests};

/// When requests are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// As soon as a client is free.
    Closed,
    /// At exponentially distributed distances, this many per second on average.
    Poisson { rate: f64 },
    /// At equal distances, this many per second.
    Fixed { rate: f64 },
}

/// When it ends: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    pub duration: Option<Duration>,
    pub requests: Option<u64>,
}

impl Limit {
    pub fn duration(duration: Duration) -> Self {
        Self {
            duration: Some(duration),
            requests: None,
        }
    }
    pub fn requests(requests: u64) -> Self {
        Self {
            duration: None,
            requests: Some(requests),
        }
    }
}

/// A request and when it is due.
#[derive(Debug)]
pub(super) struct Due {
    pub at: Instant,
    pub operation: usize,
    pub call: HttpCall,
}

/// Hands out requests in the order in which they are due.
pub(super) struct Schedule {
    requests: Requests,
    arrivals: Arrivals,
    traceparent: bool,
    started: Instant,
    ends: Option<Instant>,
    left: Option<u64>,
    made: u64,
    /// Seconds from the start to the last Poisson arrival.
    elapsed: f64,
}

impl Schedule {
    pub fn new(
        requests: Requests,
        arrivals: Arrivals,
        limit: Limit,
        traceparent: bool,
        started: Instant,
    ) -> Self {
        let ends = limit.duration.map(|duration| started + duration);
        Self {
            requests,
            arrivals,
            traceparent,
            started,
            ends,
            left: limit.requests,
            made: 0,
            elapsed: 0.0,
        }
    }

    pub fn ends(&self) -> Option<Instant> {
        self.ends
    }

    /// `None` once the limit is reached.
    pub fn next(&mut self, now: Instant) -> Option<Due> {
        if self.left == Some(0) {
            return None;
        }
        let at = match self.arrivals {
            Arrivals::Closed => now,
            Arrivals::Fixed { rate } => {
                self.started + Duration::from_secs_f64(self.made as f64 / rate)
            }
            Arrivals::Poisson { rate } => {
                self.elapsed += self.requests.random().exponential() / rate;
                self.started + Duration::from_secs_f64(self.elapsed)
            }
        };
        if self.ends.is_some_and(|end| at >= end) {
            return None;
        }
        self.made += 1;
        self.left = self.left.map(|left| left - 1);
        let (operation, mut call) = self.requests.next();
        if self.traceparent {
            let random = self.requests.random();
            // Odd numbers are not zero, which the standard forbids.
            let (high, low, span) = (random.word(), random.word() | 1, random.word() | 1);
            call.traceparent = Some(format!("00-{high:016x}{low:016x}-{span:016x}-01"));
        }
        Some(Due {
            at,
            operation,
            call,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::TraceParent;
    use crate::{Scale, Workload};

    fn schedule(arrivals: Arrivals, limit: Limit) -> (Schedule, Instant) {
        let requests = Requests::new(Workload::Moodle, Scale::PAPER, 1, None).unwrap();
        let started = Instant::now();
        (
            Schedule::new(requests, arrivals, limit, true, started),
            started,
        )
    }

    fn all(mut schedule: Schedule, now: Instant) -> Vec<Due> {
        std::iter::from_fn(|| schedule.next(now)).collect()
    }

    #[test]
    fn fixed_arrivals_are_equally_far_apart_however_late_one_asks() {
        let (schedule, started) = schedule(
            Arrivals::Fixed { rate: 100.0 },
            Limit::duration(Duration::from_secs(2)),
        );
        let due = all(schedule, started + Duration::from_secs(60));
        assert_eq!(due.len(), 200);
        assert_eq!(due[150].at - started, Duration::from_millis(1500));
    }

    #[test]
    fn poisson_arrivals_come_at_the_rate_asked_for() {
        let (schedule, started) = schedule(
            Arrivals::Poisson { rate: 500.0 },
            Limit::duration(Duration::from_secs(20)),
        );
        let due = all(schedule, started);
        assert!((9_600..10_400).contains(&due.len()), "{}", due.len());
        assert!(due.windows(2).all(|pair| pair[0].at <= pair[1].at));
    }

    #[test]
    fn a_closed_loop_is_due_at_once_and_ends_after_its_requests() {
        let (schedule, started) = schedule(Arrivals::Closed, Limit::requests(7));
        let due = all(schedule, started);
        assert_eq!(due.len(), 7);
        assert!(due.iter().all(|due| due.at == started));
    }

    #[test]
    fn a_traceparent_of_the_drivers_own_is_well_formed() {
        let (schedule, started) = schedule(Arrivals::Closed, Limit::requests(100));
        for due in all(schedule, started) {
            let traceparent = due.call.traceparent.unwrap();
            assert!(
                TraceParent::parse(traceparent.as_bytes()).is_some(),
                "{traceparent}"
            );
        }
    }
}
