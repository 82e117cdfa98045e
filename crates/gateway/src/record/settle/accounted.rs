//! Which ids are accounted for.

use std::collections::VecDeque;

/// A set of ids at or above a bound that only grows.
#[derive(Debug, Default)]
pub(super) struct Accounted {
    /// A multiple of 64.
    start: u64,
    bits: VecDeque<u64>,
}

impl Accounted {
    pub fn starting_at(bound: u64) -> Self {
        Self {
            start: bound & !63,
            bits: VecDeque::new(),
        }
    }

    pub fn insert(&mut self, xid: u64) {
        let Some(offset) = xid.checked_sub(self.start) else {
            return;
        };
        let word = (offset / 64) as usize;
        // An id from the far future is nonsense; memory is not reserved for it.
        if word > self.bits.len() + (1 << 24) {
            return;
        }
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (offset % 64);
    }

    pub fn contains(&self, xid: u64) -> bool {
        let Some(offset) = xid.checked_sub(self.start) else {
            return false;
        };
        self.bits
            .get((offset / 64) as usize)
            .is_some_and(|word| word >> (offset % 64) & 1 == 1)
    }

    pub fn forget_below(&mut self, bound: u64) {
        while self.start + 64 <= bound {
            self.start += 64;
            self.bits.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn accounting_is_a_set(start in 0u64..1000, ids in prop::collection::vec(0u64..3000, 0..100), bound in 0u64..3000) {
            let mut accounted = Accounted::starting_at(start);
            ids.iter().for_each(|id| accounted.insert(*id));
            accounted.forget_below(bound);
            for id in start.max(bound)..3000 {
                prop_assert_eq!(accounted.contains(id), ids.contains(&id), "{}", id);
            }
        }
    }

    #[test]
    fn an_id_from_the_far_future_takes_no_memory() {
        let mut accounted = Accounted::starting_at(1000);
        accounted.insert(u64::MAX);
        accounted.insert(1001);
        assert!(accounted.contains(1001) && accounted.bits.len() == 1);
    }
}
