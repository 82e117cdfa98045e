//! The snapshotter: moves the current snapshot on (paper, sections 4.2 and 7.2).
//!
//! The current snapshot is everything up to c. The least of what the workers say is how far
//! everything is applied; c moves to the last commit at or before that. Then it moves the horizon,
//! and sees to it that the store stays within its memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::history::PAST_BYTES;
use crate::log::Commit;
use crate::shared::{Shared, lock};
use crate::types::Failure;

/// How long to sleep when someone waits and the workers are silent. They wake the snapshotter; this
/// is for when the last word came just before.
const NAP_AWAITED: Duration = Duration::from_millis(1);

/// So many looks in a row must find nothing left to give up before the store says that it is full.
const FULL_LOOKS: u32 = 20;

pub(crate) struct Snapshotter {
    shared: Arc<Shared>,
    /// Commits that are handed out and not visible yet.
    pending: VecDeque<Commit>,
    full_looks: u32,
}

impl Snapshotter {
    pub fn new(shared: Arc<Shared>) -> Snapshotter {
        Snapshotter {
            shared,
            pending: VecDeque::new(),
            full_looks: 0,
        }
    }

    pub fn run(&mut self) {
        while !self.shared.ending() {
            let awaited = self.shared.waiting.load(Ordering::Relaxed) > 0;
            let interval = self.shared.options.snapshot_interval;
            std::thread::park_timeout(if awaited {
                interval.min(NAP_AWAITED)
            } else {
                interval
            });
            self.step();
        }
        // What the workers did to the end still counts, unless one of them failed in the middle.
        self.step();
    }

    pub fn step(&mut self) {
        let everything_done = self.advance();
        if let Some(max) = self.shared.options.memory_max {
            self.keep_within(max, everything_done);
        }
    }

    /// The greatest number up to which everything is installed, and whether that is all that was
    /// handed out.
    fn applied_up_to(&self) -> (u64, bool) {
        // First how far the log goes, then who has what of it: a worker that has done all that it
        // was given does not hold back anything up to here.
        let frontier = self.shared.frontier.load(Ordering::Acquire);
        let mut least = frontier;
        for (progress, assigned) in self.shared.progress.iter().zip(&self.shared.assigned) {
            let assigned = assigned.0.load(Ordering::Acquire);
            let done = progress.done.load(Ordering::Acquire);
            if done < assigned {
                least = least.min(done);
            }
        }
        (least, least == frontier)
    }

    fn advance(&mut self) -> bool {
        // Before looking at the commits: what is seen here to be handed out has its commits there.
        let (applied, everything) = self.applied_up_to();
        self.pending.extend(lock(&self.shared.commits).drain(..));

        let mut history = lock(&self.shared.history);
        let before = history.newest();
        let reached = self.pending.partition_point(|commit| commit.seq <= applied);
        for commit in self.pending.drain(..reached) {
            history.push(commit);
        }
        history.prune();
        let newest = history.newest();
        self.shared.visible.store(newest.seq, Ordering::Release);
        self.shared
            .horizon
            .store(history.horizon(), Ordering::Release);
        let moved = before.mark != newest.mark || before.seq != newest.seq;
        drop(history);
        if moved {
            self.shared.moved.notify_all();
        }
        everything
    }

    /// Over the limit the appender is held back already. If that alone does not help, history is
    /// given up; if there is none left, the store fails.
    fn keep_within(&mut self, max: u64, everything_done: bool) {
        let mut history = lock(&self.shared.history);
        let bytes = self.shared.memory() + (history.len() * PAST_BYTES) as u64;
        let horizon = history.horizon();
        let collected = self
            .shared
            .progress
            .iter()
            .all(|progress| progress.collected_to.load(Ordering::Relaxed) >= horizon);
        if bytes <= max || history.held_by_reader() || !collected {
            self.full_looks = 0;
        } else if history.shorten() {
            self.shared
                .retention_shortened
                .fetch_add(1, Ordering::Relaxed);
            self.shared
                .horizon
                .store(history.horizon(), Ordering::Release);
            self.full_looks = 0;
        } else if everything_done {
            self.full_looks += 1;
            if self.full_looks >= FULL_LOOKS {
                drop(history);
                self.shared
                    .fail(Failure::MemoryExhausted { bytes, limit: max });
            }
        }
    }
}
