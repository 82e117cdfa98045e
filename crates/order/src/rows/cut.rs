//! Below which commit nobody has anything left to do.
//!
//! ```text
//!   log          1  2 │ 3  4 │ 5 │ 6  7 │ 8             │ = commit
//!   worker 1     ✓  ✓          …                        5 deferred: c₁ = 4
//!   worker 2            ✓  ✓       ✓                    7 not met yet: c₂ = 6
//!
//!   min(c₁, c₂) = 4, and a transaction ends there:      the cut is 4
//! ```
//!
//! The paper's workers set `c_i` one below the write that they applied last, presumably because in Cicada all writes of a
//! transaction have the same timestamp. Here every write has its own position, so the mark is that position itself.

use std::collections::{BTreeSet, VecDeque};

use super::Seq;

/// What one worker still has to do, as one number for the snapshotter: its low-water mark (section 7.2's `c_i`).
///
/// A worker meets its writes in log order, and applies or defers each. The mark only grows.
#[derive(Clone, Debug)]
pub struct LowWater {
    /// No write before this one will come to the worker any more, other than those that it deferred.
    next: Seq,
    deferred: BTreeSet<Seq>,
}

impl Default for LowWater {
    fn default() -> Self {
        let next = Seq::START.next();
        let deferred = BTreeSet::new();
        Self { next, deferred }
    }
}

impl LowWater {
    pub fn new() -> Self {
        Self::default()
    }

    /// The worker has applied a write: the one that it just met, or one that it had deferred.
    pub fn applied(&mut self, write: Seq) {
        if !self.deferred.remove(&write) {
            self.meet(write);
        }
    }

    /// The worker has met a write that is not safe yet. Until it is applied the mark stays below it.
    pub fn deferred(&mut self, write: Seq) {
        self.meet(write);
        self.deferred.insert(write);
    }

    /// Nothing up to `position` will come to the worker any more, because it went to others. Without this a worker that is given nothing would hold everybody back.
    pub fn skipped(&mut self, position: Seq) {
        self.next = self.next.max(position.next());
    }

    fn meet(&mut self, write: Seq) {
        assert!(
            write >= self.next,
            "the worker was past write {write} already"
        );
        self.next = write.next();
    }

    /// The worker will never apply a write up to here again.
    pub fn mark(&self) -> Seq {
        let least = self.deferred.first().copied().unwrap_or(self.next);
        Seq(least.0 - 1)
    }

    /// The deferred writes, in log order.
    pub fn waiting(&self) -> impl ExactSizeIterator<Item = Seq> + '_ {
        self.deferred.iter().copied()
    }
}

/// The snapshotter: which prefix readers see.
///
/// The cut is the last commit that is above no worker's mark. It only grows. Marks may be old when they arrive here: the cut then
/// is merely lower than it could be.
#[derive(Clone, Debug)]
pub struct PrefixCut {
    marks: Vec<Seq>,
    /// Where transactions end above the cut, in log order.
    boundaries: VecDeque<Seq>,
    current: Seq,
}

impl PrefixCut {
    pub fn new(workers: usize) -> Self {
        assert!(workers > 0, "somebody has to apply the log");
        Self {
            marks: vec![Seq::START; workers],
            boundaries: VecDeque::new(),
            current: Seq::START,
        }
    }

    /// A transaction ends with this write. Told in log order, before or after marks have passed it.
    pub fn committed(&mut self, boundary: Seq) {
        let last = self.boundaries.back().copied().unwrap_or(self.current);
        assert!(boundary >= last, "the log's end was {last} already");
        // A transaction without writes moves nothing.
        if boundary > last {
            self.boundaries.push_back(boundary);
        }
    }

    /// What a worker's mark was a while ago.
    pub fn marked(&mut self, worker: usize, mark: Seq) {
        let known = &mut self.marks[worker];
        *known = mark.max(*known);
    }

    /// Moves the cut as far as the marks allow. Returns it if it has moved.
    pub fn advance(&mut self) -> Option<Seq> {
        let least = *self.marks.iter().min()?;
        let before = self.current;
        while let Some(&boundary) = self.boundaries.front()
            && boundary <= least
        {
            self.current = boundary;
            self.boundaries.pop_front();
        }
        (self.current > before).then_some(self.current)
    }

    /// What readers see: everything up to and including this write, nothing of what follows.
    pub fn current(&self) -> Seq {
        self.current
    }
}
