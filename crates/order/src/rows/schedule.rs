//! Constraints as questions and facts: which writes are safe? This one is done.

use std::collections::BTreeSet;

use super::{Constraints, Seq};

/// Which writes of a log may be applied now.
///
/// A write is *safe* once all that it waits for is done. It stays safe, whatever else happens, so
/// workers may take safe writes in any order and at any time.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// By write: for how many it still waits. [`Schedule::DONE`] when it is done itself.
    waits: Vec<u32>,
    /// By write: where in `after` those that wait for it begin. One more at the end.
    begins: Vec<usize>,
    after: Vec<Seq>,
    ready: BTreeSet<Seq>,
    left: usize,
}

impl Schedule {
    const DONE: u32 = u32::MAX;

    pub fn new(constraints: &Constraints) -> Self {
        let left = constraints.len();
        let writes = || (0..left).map(Seq::at);
        let waits: Vec<_> = writes()
            .map(|write| constraints.before(write).len() as u32)
            .collect();

        // The same pairs, by the first of the two: count them, lay them out, fill in.
        let mut begins = vec![0; left + 1];
        for (before, _) in constraints.pairs() {
            begins[before.index() + 1] += 1;
        }
        for at in 0..left {
            begins[at + 1] += begins[at];
        }
        let mut free = begins.clone();
        let mut after = vec![Seq::START; begins[left]];
        for (before, waiting) in constraints.pairs() {
            let slot = &mut free[before.index()];
            after[*slot] = waiting;
            *slot += 1;
        }

        let ready = writes().filter(|write| waits[write.index()] == 0).collect();
        Self {
            waits,
            begins,
            after,
            ready,
            left,
        }
    }

    /// The safe writes that are not done, in log order. Never empty before all is done.
    pub fn ready(&self) -> impl ExactSizeIterator<Item = Seq> + '_ {
        self.ready.iter().copied()
    }

    /// Whether a write may be applied now. Not when it is done.
    pub fn is_safe(&self, write: Seq) -> bool {
        self.waits[write.index()] == 0
    }

    pub fn is_done(&self, write: Seq) -> bool {
        self.waits[write.index()] == Self::DONE
    }

    /// A safe write was applied. Returns those that have become safe by it, in log order.
    pub fn done(&mut self, write: Seq) -> Vec<Seq> {
        assert!(self.ready.remove(&write), "write {write} is not safe");
        self.waits[write.index()] = Self::DONE;
        self.left -= 1;
        let mut safe = Vec::new();
        for &waiting in &self.after[self.begins[write.index()]..self.begins[write.index() + 1]] {
            let waits = &mut self.waits[waiting.index()];
            *waits -= 1;
            if *waits == 0 {
                safe.push(waiting);
            }
        }
        self.ready.extend(&safe);
        safe
    }

    /// Whether all writes are done.
    pub fn is_finished(&self) -> bool {
        self.left == 0
    }
}
