//! Transaction granularity, as in KuaFu: what C5 is measured against.
//!
//! A transaction is one unit for one worker and begins when every earlier transaction that wrote
//! one of its rows is done. The scheduler knows those transactions from the same map that gives
//! every write its predecessor.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::log::{Segment, Unit};
use crate::shared::Shared;

/// So many transactions can be on their way at once.
const WINDOW: usize = if cfg!(miri) { 1 << 6 } else { 1 << 16 };

/// Which transactions are done: transaction `n` is when the nth place, modulo the window, says `n`
/// or more.
pub(crate) struct Done(Box<[AtomicU64]>);

impl Done {
    pub fn new() -> Done {
        Done((0..WINDOW).map(|_| AtomicU64::new(0)).collect())
    }

    fn place(&self, number: u64) -> &AtomicU64 {
        &self.0[number as usize % WINDOW]
    }

    pub fn is_done(&self, number: u64) -> bool {
        self.place(number).load(Ordering::Acquire) >= number
    }

    pub fn set(&self, number: u64) {
        self.place(number).store(number, Ordering::Release);
    }
}

/// The scheduler's part: which transactions the open one has to wait for.
pub(crate) struct Conflicts {
    shared: Arc<Shared>,
    /// Number of the open transaction; the first is 1.
    number: u64,
    /// Transactions that may not be done, oldest first: the number of their last write, and their
    /// own.
    recent: VecDeque<(u64, u64)>,
    /// Up to where everything is known to be done.
    visible: u64,
}

impl Conflicts {
    pub fn new(shared: Arc<Shared>) -> Conflicts {
        Conflicts {
            shared,
            number: 1,
            recent: VecDeque::new(),
            visible: 0,
        }
    }

    /// The open transaction writes a row whose last write was `prev`. It also deletes the rows of
    /// other keys that it takes values from, so these are among them.
    pub fn touch(&mut self, prev: u64, open: &mut Segment) {
        if prev <= self.visible {
            return;
        }
        let at = self.recent.partition_point(|&(end, _)| end < prev);
        // None: it was the open transaction itself.
        if let Some(&(_, number)) = self.recent.get(at) {
            open.dependencies.push(number);
        }
    }

    /// The open transaction ends with write `seq`.
    pub fn end(&mut self, seq: u64, open: &mut Segment) {
        let start = open.begin_of(open.units.len());
        if start.header == open.headers.len() {
            return;
        }
        let mut own = open.dependencies.split_off(start.dependency);
        own.sort_unstable();
        own.dedup();
        open.dependencies.append(&mut own);
        open.units.push(Unit {
            number: self.number,
            end: open.end(),
        });
        self.recent.push_back((seq, self.number));
        self.number += 1;
        if self.recent.len().is_multiple_of(1024) {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.visible = self.shared.visible.load(Ordering::Acquire);
        while self
            .recent
            .front()
            .is_some_and(|&(end, _)| end <= self.visible)
        {
            self.recent.pop_front();
        }
    }

    /// Is the window full? Then the next transaction has to wait.
    pub fn crowded(&mut self) -> bool {
        if self.recent.len() < WINDOW {
            return false;
        }
        self.forget();
        self.recent.len() >= WINDOW
    }

    /// Does the segment end inside a transaction?
    pub fn inside(open: &Segment) -> bool {
        open.begin_of(open.units.len()).header < open.headers.len()
    }
}
