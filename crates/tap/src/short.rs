//! A request's number in fewer bits, where it goes together with others in one word.
//!
//! A number is that of a recorder, and behind it the recorder's own number of the request. A
//! process sees requests of one recorder while it is recorded, and of a few in a replay. So here
//! each recorder is known by its place in a table.

use std::sync::atomic::{AtomicU32, Ordering};

/// How long they are.
pub const BITS: u32 = OF_REQUEST + OF_RECORDER;
const OF_REQUEST: u32 = 33;
const OF_RECORDER: u32 = 4;
/// Where the recorder's number begins in a request's.
const RECORDER_FROM: u32 = 48;

/// Recorders that were seen, and 1.
static RECORDERS: [AtomicU32; 1 << OF_RECORDER] = [const { AtomicU32::new(0) }; 1 << OF_RECORDER];

/// `None`: it is too large, or there are too many recorders.
pub fn short(request: u64) -> Option<u64> {
    let own = request & ((1 << RECORDER_FROM) - 1);
    let recorder = (request >> RECORDER_FROM) as u32 + 1;
    let is_of = |place: &AtomicU32| {
        let known = place.compare_exchange(0, recorder, Ordering::Relaxed, Ordering::Relaxed);
        known.is_ok() || known == Err(recorder)
    };
    let place = RECORDERS.iter().position(is_of)? as u64;
    (own >> OF_REQUEST == 0).then_some(place << OF_REQUEST | own)
}

/// The request that is short so.
pub fn request(short: u64) -> u64 {
    let own = short & ((1 << OF_REQUEST) - 1);
    let place = RECORDERS.get((short >> OF_REQUEST) as usize);
    let recorder = place.map_or(0, |place| place.load(Ordering::Relaxed));
    u64::from(recorder.saturating_sub(1)) << RECORDER_FROM | own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requests_number_comes_back_whichever_recorder_gave_it() {
        for request in [0, 1, 7, 1 << 32, 1 << 48 | 1, 65535 << 48 | 12] {
            let short = short(request).unwrap();
            assert_eq!(short >> BITS, 0);
            assert_eq!(super::request(short), request);
        }
        assert_eq!(short(1 << 33), None);
        let many: Vec<_> = (0..100)
            .filter_map(|recorder| short(recorder << 48))
            .collect();
        assert!(many.len() < 1 << OF_RECORDER);
    }
}
