//! Which requests are in flight.

use std::sync::atomic::{AtomicU64, Ordering};

use hindcast_model::Traceparent;
use hindcast_trace::{Id, Micros, RequestId};

use crate::http::Arrival;

const SEQUENCE_BITS: u32 = 44;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;
const IN_FLIGHT_MAX: u64 = (1 << (64 - SEQUENCE_BITS)) - 1;

/// Numbers requests and knows how many are in flight, and which one if it is only one. All sessions
/// share it, so it has to do without a lock.
#[derive(Debug)]
pub(super) struct Requests {
    recorder: u16,
    prefix: u64,
    next: AtomicU64,
    /// How many are in flight in the high bits, the sum of their sequence numbers (modulo 2^44) in
    /// the low ones: when one is in flight, the sum is its number.
    in_flight: AtomicU64,
    spans: AtomicU64,
}

impl Requests {
    pub fn new(recorder: u16, prefix: u64) -> Self {
        Self {
            recorder,
            prefix,
            next: AtomicU64::new(1),
            in_flight: AtomicU64::new(0),
            spans: AtomicU64::new(random()),
        }
    }

    /// `None` if more are in flight than can be counted.
    pub fn arrive(&self, at: Micros) -> Option<Arrival> {
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        self.arrive_as(Id::new(self.recorder, sequence), at)
    }

    /// With a number that somebody else gave. `None` as well if this recorder gives none such.
    pub fn arrive_as(&self, id: RequestId, at: Micros) -> Option<Arrival> {
        let sequence = id.sequence();
        if sequence > SEQUENCE_MASK || id.recorder() != self.recorder {
            return None;
        }
        self.update(|count, sum| {
            (count < IN_FLIGHT_MAX).then_some((count + 1, sum.wrapping_add(sequence)))
        })?;
        let span = mix(self.spans.fetch_add(1, Ordering::Relaxed)).max(1);
        Some(Arrival {
            id,
            at,
            traceparent: Traceparent {
                prefix: self.prefix,
                request: id,
                span,
            },
        })
    }

    pub fn end(&self, id: RequestId) {
        let ended = self
            .update(|count, sum| Some((count.checked_sub(1)?, sum.wrapping_sub(id.sequence()))));
        assert!(
            ended.is_some(),
            "request {id} ended although none was in flight"
        );
    }

    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Acquire) >> SEQUENCE_BITS
    }

    /// The only request in flight.
    pub fn alone(&self) -> Option<RequestId> {
        let packed = self.in_flight.load(Ordering::Acquire);
        (packed >> SEQUENCE_BITS == 1).then(|| Id::new(self.recorder, packed & SEQUENCE_MASK))
    }

    fn update(&self, change: impl Fn(u64, u64) -> Option<(u64, u64)>) -> Option<u64> {
        self.in_flight
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |packed| {
                let (count, sum) = change(packed >> SEQUENCE_BITS, packed & SEQUENCE_MASK)?;
                Some(count << SEQUENCE_BITS | sum & SEQUENCE_MASK)
            })
            .ok()
    }
}

/// Different in every process: the standard library seeds its hash maps from the operating system.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}

/// splitmix64's finisher: neighbours become strangers.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain list of who is in flight.
        #[test]
        fn exactly_one_in_flight_is_alone(steps in prop::collection::vec(any::<Option<prop::sample::Index>>(), 0..200)) {
            let requests = Requests::new(7, 1);
            // Large numbers, so that sums overflow.
            requests.next.store(SEQUENCE_MASK - 1000, Ordering::Relaxed);
            let mut expected = Vec::new();
            for step in steps {
                match step {
                    Some(index) if !expected.is_empty() => {
                        requests.end(expected.swap_remove(index.index(expected.len())));
                    }
                    _ => expected.push(requests.arrive(0).expect("far from full").id),
                }
                prop_assert_eq!(requests.in_flight(), expected.len() as u64);
                let alone = (expected.len() == 1).then(|| expected[0]);
                prop_assert_eq!(requests.alone(), alone);
            }
        }
    }

    #[test]
    fn traceparents_name_their_request_and_are_all_different() {
        let requests = Requests::new(2, 0xabc);
        let first = requests.arrive(5).unwrap();
        let second = requests.arrive(6).unwrap();
        assert_eq!((first.id, second.id), (Id::new(2, 1), Id::new(2, 2)));
        assert_eq!(
            (first.traceparent.request, first.traceparent.prefix),
            (first.id, 0xabc)
        );
        assert_ne!(first.traceparent.span, second.traceparent.span);
    }
}
