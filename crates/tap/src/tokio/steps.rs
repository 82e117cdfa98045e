//! Walks up a stack that has been walked up before, without the unwinder, which takes a
//! microsecond.
//!
//! A function has a frame of one size wherever it calls. So from where a call returns to follows
//! how far up the caller's own return address is ([`Steps`]), once the unwinder has found it. What
//! such a walk finds counts if the unwinder has found the very same before ([`Chains`]): a frame
//! whose size varies is not trusted.

use std::sync::atomic::{AtomicU64, Ordering};

use hindcast_taplog::pins::mixed;

/// What a word of the program's code is known by: a table that may forget. Both words of a place
/// are written by several threads, so the first one fits the second or counts for nothing.
pub struct Known([[AtomicU64; 2]; 1 << 12]);

impl Known {
    pub const fn none() -> Self {
        Self([const { [AtomicU64::new(0), AtomicU64::new(0)] }; 1 << 12])
    }

    /// `at` is not 0.
    pub fn get(&self, at: usize) -> Option<u64> {
        let [mixed, known] = &self.0[at % self.0.len()];
        let known = known.load(Ordering::Relaxed);
        let is_of = mixed.load(Ordering::Relaxed) ^ known == at as u64;
        is_of.then_some(known)
    }

    pub fn set(&self, at: usize, known: u64) {
        let [mixed, place] = &self.0[at % self.0.len()];
        mixed.store(at as u64 ^ known, Ordering::Relaxed);
        place.store(known, Ordering::Relaxed);
    }
}

/// By where a call returns to: how far up the next return address is.
static DISTANCES: Known = Known::none();
/// It is not always as far.
const VARIES: u64 = u64::MAX;
/// No frame is larger than that.
const FARTHEST: usize = 1 << 16;
/// In place of a return address: the walk begins.
const BEGIN: usize = 1;

/// A walk up the stack, from return address to return address.
pub struct Steps {
    /// The last one, and where on the stack it is.
    last: Option<(usize, usize)>,
    /// All so far.
    chain: u64,
}

impl Steps {
    /// `place`: in the frame of the function that walks, always at the same place of it.
    pub fn from(place: usize) -> Self {
        Self {
            last: Some((BEGIN, place)),
            chain: 0,
        }
    }

    /// The unwinder has found the next one. `place`: where it should be.
    pub fn learn(&mut self, returns: usize, place: usize) {
        // SAFETY: a place on the stack above this frame.
        if unsafe { *(place as *const usize) } != returns {
            self.last = None;
            self.chain = mixed(self.chain, returns as u64);
            return;
        }
        if let Some((last, before)) = self.last {
            let distance = place.wrapping_sub(before);
            let is_other = |known| known != distance as u64;
            let varies = distance > FARTHEST || DISTANCES.get(last).is_some_and(is_other);
            DISTANCES.set(last, if varies { VARIES } else { distance as u64 });
        }
        self.found(returns, place);
    }

    fn found(&mut self, returns: usize, place: usize) {
        self.last = Some((returns, place));
        self.chain = mixed(self.chain, returns as u64);
    }

    /// The unwinder has found just these.
    pub fn are_known(&self) -> bool {
        CHAINS.get(self.chain as usize).is_some()
    }

    pub fn become_known(&self) {
        CHAINS.set(self.chain as usize, 0);
    }
}

/// The next return address.
impl Iterator for Steps {
    type Item = usize;

    /// `None`: the unwinder has to tell it.
    fn next(&mut self) -> Option<usize> {
        let (last, place) = self.last?;
        let distance = DISTANCES.get(last).filter(|&distance| distance != VARIES)?;
        let place = place + distance as usize;
        // SAFETY: between this frame and the outermost one, of which the stack holds more.
        let returns = unsafe { *(place as *const usize) };
        self.found(returns, place);
        Some(returns)
    }
}

/// What the unwinder has found.
static CHAINS: Known = Known::none();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_known_until_its_place_is_anothers() {
        static KNOWN: Known = Known::none();
        assert_eq!(KNOWN.get(7), None);
        KNOWN.set(7, 0x1234);
        assert_eq!(KNOWN.get(7), Some(0x1234));
        let other = 7 + KNOWN.0.len();
        assert_eq!(KNOWN.get(other), None);
        KNOWN.set(other, 5);
        assert_eq!((KNOWN.get(7), KNOWN.get(other)), (None, Some(5)));
    }

    /// A stack: what returns to where, from the inside out.
    fn walk(stack: &[usize], returns: &[usize]) -> Option<Vec<usize>> {
        let mut steps = Steps::from(stack.as_ptr() as usize);
        let found: Vec<_> = steps.by_ref().take(returns.len()).collect();
        (found == returns)
            .then_some(found)
            .filter(|_| steps.are_known())
    }

    fn learn(stack: &[usize], places: &[usize]) {
        let mut steps = Steps::from(stack.as_ptr() as usize);
        for &place in places {
            steps.learn(stack[place], &raw const stack[place] as usize);
        }
        steps.become_known();
    }

    #[test]
    fn a_stack_is_walked_as_the_unwinder_has() {
        let mut stack = [9, 0x50_0010, 9, 9, 0x50_0020, 0x50_0030, 9];
        let returns = [0x50_0010, 0x50_0020, 0x50_0030];
        assert_eq!(walk(&stack, &returns), None);
        learn(&stack, &[1, 4, 5]);
        assert_eq!(walk(&stack, &returns).as_deref(), Some(&returns[..]));
        // Something else has called: what is found there is not known together.
        stack[5] = 0x50_0040;
        assert_eq!(walk(&stack, &[0x50_0010, 0x50_0020, 0x50_0040]), None);
        learn(&stack, &[1, 4, 5]);
        assert!(walk(&stack, &[0x50_0010, 0x50_0020, 0x50_0040]).is_some());
        // The first function has another frame now, so where it is has to be told.
        let stack = [9, 0x50_0010, 9, 0x50_0020, 0x50_0030];
        learn(&stack, &[1, 3, 4]);
        assert_eq!(walk(&stack, &returns), None);
    }
}
