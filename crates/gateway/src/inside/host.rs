//! To whom requests are told, and how they are recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hindcast_trace::Micros;

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
    pub clock: Clock,
    pub counters: Arc<Counters>,
}

impl Host {
    /// Requests may be missing.
    pub fn missed(&self, from: u64, to: u64, reason: &str) {
        let (from, to) = (self.clock.micros(from), self.clock.micros(to));
        self.witness.missed(from, to, reason);
    }
}

/// The tap's moments, by the clock of the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// What the recording's clock shows when the machine's monotonic one shows zero.
    zero: Micros,
}

impl Clock {
    /// Of two readings that were taken at the same time.
    pub fn new(moment: u64, now: Micros) -> Self {
        Self {
            zero: now - (moment / 1000) as Micros,
        }
    }

    pub fn micros(self, moment: u64) -> Micros {
        self.zero.saturating_add((moment / 1000) as Micros)
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
    /// Answers to nothing that was seen: a server may say that a request took too long to come.
    unasked_answers,
    /// Requests or answers of which a part was not seen.
    partly_seen,
    /// What taps could not tell.
    lost_records,
    lost_bytes,
    /// Threads that wrote nonsense instead of records.
    garbled,
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
