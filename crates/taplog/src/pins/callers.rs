//! Draws that are counted by what code asks.
//!
//! A request that fills a cache of its process may draw for it, and another request may fill it in
//! a replay. Counted together, all that the request draws behind that would be moved by one.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Caller, KEY};

/// How the key of a recording ends whose draws are counted so. Earlier ones end at random.
const MARK: [u8; 4] = *b"code";

/// Makes the key one of a recording whose draws are counted by what code asks.
pub fn count_by_caller(mut key: [u8; KEY]) -> [u8; KEY] {
    key[KEY - MARK.len()..].copy_from_slice(&MARK);
    key
}

pub(super) fn counts_by_caller(key: &[u8; KEY]) -> bool {
    key.ends_with(&MARK)
}

/// So many are known of a request. What others draw is counted together.
const REQUESTS: usize = 64;
const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const CALLER_BITS: u32 = 16;

/// Of a request, or of something else that draws, each its number's upper part, a caller and a
/// count; 0: free. What an earlier request has left is free, too.
#[repr(C)]
pub(crate) struct ByCaller<const CALLERS: usize = REQUESTS>([AtomicU64; CALLERS]);

impl<const CALLERS: usize> ByCaller<CALLERS> {
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; CALLERS])
    }

    /// How often the request has asked by this code; `None`: it is not counted apart, or no more,
    /// since it has asked too often. `upper` is not 0, and greater for a later request.
    pub fn count(&self, upper: u64, caller: Caller) -> Option<u64> {
        if caller == Caller::UNKNOWN {
            return None;
        }
        let own = upper << CALLER_BITS | u64::from(caller.0);
        let first = usize::from(caller.0);
        let places = (0..CALLERS).map(|nth| &self.0[(first + nth) % CALLERS]);
        for place in places {
            let next = |now: u64| match now >> COUNT_BITS {
                of if of == own => (now & COUNT_MASK < COUNT_MASK).then(|| now + 1),
                of if of >> CALLER_BITS < upper => Some(own << COUNT_BITS | 1),
                _ => None,
            };
            match place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
                Ok(before) if before >> COUNT_BITS == own => return Some(before & COUNT_MASK),
                Ok(_) => return Some(0),
                // At another place it would begin again.
                Err(now) if now >> COUNT_BITS == own => return None,
                Err(_) => {}
            }
        }
        None
    }

    pub fn clear(&self) {
        self.0
            .iter()
            .for_each(|place| place.store(0, Ordering::Relaxed));
    }
}
