//! To whom requests are told, and how they are recorded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hindcast_spool::Clock;
use hindcast_taplog::pins::Reading;

use super::calls::Calls;
use super::readings::Readings;
use super::sessions::Sessions;
use crate::http::{Limits, Witness};
use crate::redact::Redactor;

/// Gives the next number of a request, from where the tap takes them.
pub type Numbers = Box<dyn FnMut() -> u64 + Send>;

/// What all streams share.
pub(super) struct Host {
    pub witness: Arc<dyn Witness>,
    pub limits: Limits,
    pub redactor: Arc<Redactor>,
    pub numbers: Numbers,
    pub sessions: Option<Box<dyn Sessions>>,
    pub clock: Clock,
    pub counters: Arc<Counters>,
    pub claims: Claims,
    pub readings: Readings,
    pub calls: Calls,
    /// Of the connection whose bytes are taken.
    pub came: Came,
}

/// Both ends of a connection that the service accepted, as far as they are known.
#[derive(Clone, Default)]
pub(super) struct Came {
    pub to: Option<Arc<str>>,
    /// An address of IP.
    pub from: Option<Arc<str>>,
    /// The number of the process that did.
    pub by: Option<u32>,
}

impl Came {
    pub fn new(own: &[u8], peer: &[u8], by: u32) -> Self {
        let text = |name: &[u8]| {
            let name = String::from_utf8_lossy(name);
            (!name.is_empty()).then(|| Arc::from(name.as_ref()))
        };
        Self {
            to: text(own),
            from: text(peer).filter(|peer: &Arc<str>| !peer.starts_with("unix:")),
            by: Some(by),
        }
    }
}

/// Numbers that requests have. What a service asks of itself while it works on a request has that
/// one's number: it is a part of it, and no request of its own.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// First and last of those without a hole. There are few: the tap counts.
    ranges: BTreeMap<u64, u64>,
}

impl Claims {
    /// Of a service that writes what it likes to its rings not all is remembered.
    const RANGES_MAX: usize = 1 << 16;

    /// False if a request has it already.
    pub fn claim(&mut self, number: u64) -> bool {
        let before = self.ranges.range(..=number).next_back();
        let before = before.map(|(&first, &last)| (first, last));
        let first = match before {
            Some((_, last)) if last >= number => return false,
            Some((first, last)) if last + 1 == number => first,
            _ => number,
        };
        let next = number.checked_add(1);
        let last = next.and_then(|next| self.ranges.remove(&next));
        self.ranges.insert(first, last.unwrap_or(number));
        if self.ranges.len() > Self::RANGES_MAX {
            self.ranges.pop_first();
        }
        true
    }
}

impl Host {
    /// All has come that was done before this moment.
    pub fn all_told(&mut self, moment: u64) {
        let until = self.clock.micros(moment);
        if let Some(sessions) = &mut self.sessions {
            sessions.all_told(until);
        }
    }

    /// A request has read the wall clock.
    pub fn read(&mut self, request: u64, n: u16, reading: Reading) {
        for late in self.readings.told(request, n, reading) {
            if let Some(sessions) = &mut self.sessions {
                sessions.read_late(request, late);
            }
        }
    }

    /// Requests may be missing.
    pub fn missed(&self, from: u64, to: u64, reason: &str) {
        let (from, to) = (self.clock.micros(from), self.clock.micros(to));
        self.witness.missed(from, to, reason);
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub $name: Counter,)*
        }

        /// A reading of what was seen from inside. All of it only grows.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Seen {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            pub fn read(&self) -> Seen {
                Seen {
                    $($name: self.$name.0.load(Ordering::Relaxed),)*
                }
            }
        }
    };
}

counters! {
    /// Connections by what they turned out to carry.
    http1,
    fastcgi,
    uwsgi,
    /// Not looked into: encrypted.
    tls,
    /// Not looked into: HTTP/2 that was begun without asking.
    http2,
    /// Not looked into: something else.
    unrecognised,
    /// Recognised, and then not followed: what came next is no such protocol.
    malformed,
    /// Became WebSockets or something else that is no HTTP.
    upgraded,
    /// Requests to which a tap gave no number: several were read at once, or it was lost.
    without_turn,
    /// Numbers that taps gave and no request has.
    turns_unused,
    /// What the service asked of itself while it worked on a request, which is no request.
    within,
    /// Answers to nothing that was seen: a server may say that a request took too long to come.
    unasked_answers,
    /// Requests or answers of which a part was not seen.
    partly_seen,
    /// What taps could not tell.
    lost_records,
    lost_bytes,
    /// Threads that wrote nonsense instead of records.
    garbled,
    /// Connections to others that were not followed to their end.
    calls_lost,
    /// Requests that could not be numbered: too many were in flight.
    refused,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub fn one(&self) {
        self.add(1);
    }

    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a plain set.
        #[test]
        fn a_number_is_claimed_once(numbers in prop::collection::vec(prop_oneof![0..40u64, u64::MAX - 5..=u64::MAX], 0..200)) {
            let (mut claims, mut expected) = (Claims::default(), HashSet::new());
            for number in numbers {
                prop_assert_eq!(claims.claim(number), expected.insert(number));
            }
            let holes = (0..41).filter(|n| expected.contains(n) && !expected.contains(&(n + 1)));
            let high = (u64::MAX - 5..=u64::MAX).filter(|n| expected.contains(n) && (*n == u64::MAX || !expected.contains(&(n + 1))));
            prop_assert_eq!(claims.ranges.len(), holes.count() + high.count());
        }
    }
}
