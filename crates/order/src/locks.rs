//! Rule C: per lock target, steps in the order in which they completed.
//!
//! Snapshots say nothing about locks. Where a transaction locks other than by writing rows, who
//! came first decides who waits, and a replay in another order can wait for itself: the lock's
//! second owner waits in the database for the first, whose commit rule B holds until a transaction
//! took its snapshot that only comes after the second.
//!
//! ```text
//!   target    completed →
//!   forum     │ #4 stmt 2 │ #4 end │ #9 stmt 1 │ #7 stmt 3 │ #9 end │
//!                  done       done       ▲ head: only this one may run now
//! ```
//!
//! What belongs into a target's queue is everything that changes, or depends on, who holds its
//! locks: the statements that lock, the ends of the transactions that hold such locks
//! ([`StepAt::End`]), and, for row locks, the writes to the same target.
//! `docs/design/0001-snapshot-levels.md` says which of these may be left out, and when. Whatever is
//! put in, the original run obeys it, so more steps can cost parallelism but never cause a
//! deadlock.

use crate::Tx;

/// A step that touches the locks of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockStep {
    pub tx: Tx,
    pub at: StepAt,
    /// What is locked: a hash of a table's name, one value for all advisory locks, …
    pub target: u64,
    /// Position in the order in which such steps completed in the original run. Distinct within a
    /// target.
    pub completed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepAt {
    /// A statement, by the caller's count within the transaction. One statement may have steps on
    /// several targets.
    Statement(u32),
    /// The end of the transaction, which releases its locks.
    End,
}

/// The queues of all targets.
#[derive(Clone, Debug)]
pub(crate) struct LockQueues {
    /// By target, then by order of completion.
    steps: Vec<Queued>,
    /// Positions in `steps` by transaction and place.
    by_tx: Vec<u32>,
    /// By queue: position in `steps` of the first step that is not done, or the queue's end.
    heads: Vec<u32>,
    /// By queue: position in `steps` where it ends.
    ends: Vec<u32>,
    /// How many steps are done. Only grows.
    done: u64,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    step: LockStep,
    queue: u32,
    done: bool,
}

impl LockQueues {
    pub fn new(steps: impl IntoIterator<Item = LockStep>) -> Self {
        let queued = |step| Queued {
            step,
            queue: 0,
            done: false,
        };
        let mut steps: Vec<Queued> = steps.into_iter().map(queued).collect();
        assert!(
            steps.len() < u32::MAX as usize,
            "lock steps are numbered with 32 bits"
        );
        steps.sort_by_key(|q| (q.step.target, q.step.completed, q.step.tx, q.step.at));
        let (mut heads, mut ends) = (Vec::new(), Vec::new());
        let mut previous = None;
        for (position, queued) in (0..).zip(&mut steps) {
            if previous != Some(queued.step.target) {
                previous = Some(queued.step.target);
                heads.push(position);
                ends.push(position);
            }
            queued.queue = heads.len() as u32 - 1;
            ends[queued.queue as usize] = position + 1;
        }
        let mut by_tx: Vec<u32> = (0..steps.len() as u32).collect();
        by_tx.sort_by_key(|&position| {
            let step = steps[position as usize].step;
            (step.tx, step.at, position)
        });
        Self {
            steps,
            by_tx,
            heads,
            ends,
            done: 0,
        }
    }

    pub fn done(&self) -> u64 {
        self.done
    }

    pub fn transactions(&self) -> impl Iterator<Item = Tx> {
        self.steps.iter().map(|q| q.step.tx)
    }

    /// Positions of the steps of one transaction within a range of places.
    fn range(&self, from: (Tx, StepAt), to: (Tx, StepAt)) -> std::ops::Range<usize> {
        let key = |&position: &u32| {
            let step = self.steps[position as usize].step;
            (step.tx, step.at)
        };
        self.by_tx.partition_point(|p| key(p) < from)..self.by_tx.partition_point(|p| key(p) <= to)
    }

    /// The step that keeps this one waiting, if any.
    pub fn ahead(&self, tx: Tx, at: StepAt) -> Option<LockStep> {
        let mine = &self.by_tx[self.range((tx, at), (tx, at))];
        mine.iter().find_map(|&position| {
            let mine = &self.steps[position as usize];
            let head = self.heads[mine.queue as usize];
            // Steps of one transaction never wait for each other: it goes through them in its own
            // order anyway.
            let others = self.steps[head as usize..position.max(head) as usize].iter();
            if mine.done {
                return None;
            }
            others
                .filter(|q| !q.done)
                .map(|q| q.step)
                .find(|s| s.tx != tx)
        })
    }

    /// The first step of a transaction that is not done.
    pub fn next(&self, tx: Tx) -> Option<LockStep> {
        let mine = &self.by_tx[self.range((tx, StepAt::Statement(0)), (tx, StepAt::End))];
        let mut steps = mine.iter().map(|&position| &self.steps[position as usize]);
        steps.find(|q| !q.done).map(|q| q.step)
    }

    pub fn finish(&mut self, tx: Tx, at: StepAt) {
        self.finish_between(tx, at, at);
    }

    pub fn finish_all(&mut self, tx: Tx) {
        self.finish_between(tx, StepAt::Statement(0), StepAt::End);
    }

    fn finish_between(&mut self, tx: Tx, from: StepAt, to: StepAt) {
        for at in self.range((tx, from), (tx, to)) {
            let position = self.by_tx[at] as usize;
            if std::mem::replace(&mut self.steps[position].done, true) {
                continue;
            }
            self.done += 1;
            let queue = self.steps[position].queue as usize;
            let head = &mut self.heads[queue];
            while *head < self.ends[queue] && self.steps[*head as usize].done {
                *head += 1;
            }
        }
    }
}
