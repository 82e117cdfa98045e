//! Whole transactions at a time: those that write a common row wait for each other, all others run side by side (KuaFu, ICDE 2013).
//!
//! For measuring against. Transactions are cut into rounds as they are into epochs otherwise. Within a round they commit in any order that the
//! common rows leave, so that readers see states that the primary never had; between rounds they do not.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::epoch::Part;

/// A row, or with [`WHOLE_TABLE`] all rows of a table whose transactions must not run side by side.
pub type Written = (u32, u64);

pub const WHOLE_TABLE: u64 = u64::MAX;

/// A round that is being put together.
#[derive(Debug, Default)]
pub struct RoundBuilder {
    transactions: Vec<Part>,
    /// How many must be over before each.
    blockers: Vec<usize>,
    /// Who waits for each.
    dependents: Vec<Vec<usize>>,
    last_writer: HashMap<Written, usize>,
    /// All later ones wait for this one.
    floor: Option<usize>,
    changes: usize,
    bytes: usize,
}

impl RoundBuilder {
    pub fn changes(&self) -> usize {
        self.changes
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// `alone`: it waits for all before, and all after wait for it.
    pub fn push(
        &mut self,
        part: Part,
        written: impl IntoIterator<Item = Written>,
        alone: bool,
        changes: usize,
        bytes: usize,
    ) {
        let number = self.transactions.len();
        let mut before: HashSet<usize> = self.floor.into_iter().collect();
        for row in written {
            before.extend(
                self.last_writer
                    .insert(row, number)
                    .filter(|&other| other != number),
            );
        }
        if alone {
            before = (0..number).collect();
            self.floor = Some(number);
        }
        self.blockers.push(before.len());
        self.dependents.push(Vec::new());
        for other in before {
            self.dependents[other].push(number);
        }
        self.transactions.push(part);
        self.changes += changes;
        self.bytes += bytes;
    }

    pub fn finish(self) -> Round {
        let ready = (0..self.transactions.len())
            .filter(|&number| self.blockers[number] == 0)
            .collect();
        Round {
            state: Mutex::new(State {
                left: self.transactions.len(),
                transactions: self.transactions.into_iter().map(Some).collect(),
                blockers: self.blockers,
                dependents: self.dependents,
                ready,
                failed: false,
            }),
            changed: Condvar::new(),
        }
    }
}

/// A round that workers take transactions from.
#[derive(Debug)]
pub struct Round {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    transactions: Vec<Option<Part>>,
    blockers: Vec<usize>,
    dependents: Vec<Vec<usize>>,
    ready: VecDeque<usize>,
    left: usize,
    failed: bool,
}

impl Round {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next transaction that nothing stands in the way of. `None` when all are over, or one has failed.
    ///
    /// It ends because whoever has a transaction calls [`Round::done`] or [`Round::fail`].
    pub fn next(&self) -> Option<(usize, Part)> {
        let mut state = self.lock();
        loop {
            if state.failed || state.left == 0 {
                return None;
            }
            if let Some(number) = state.ready.pop_front() {
                let part = state.transactions[number].take();
                return Some((number, part.expect("a transaction is ready once")));
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// It is committed.
    pub fn done(&self, number: usize) {
        let mut state = self.lock();
        state.left -= 1;
        for other in std::mem::take(&mut state.dependents[number]) {
            state.blockers[other] -= 1;
            if state.blockers[other] == 0 {
                state.ready.push_back(other);
            }
        }
        self.changed.notify_all();
    }

    pub fn fail(&self) {
        self.lock().failed = true;
        self.changed.notify_all();
    }

    pub fn has_failed(&self) -> bool {
        self.lock().failed
    }
}

#[cfg(test)]
mod tests {
    use hindcast_pg::Lsn;

    use super::*;

    fn round(transactions: &[(&[u64], bool)]) -> Round {
        let mut builder = RoundBuilder::default();
        for (rows, alone) in transactions {
            let part = Part {
                steps: Vec::new(),
                lsn: Lsn(0),
                end: None,
            };
            builder.push(part, rows.iter().map(|&row| (1, row)), *alone, 1, 1);
        }
        builder.finish()
    }

    /// All that are ready now.
    fn ready(round: &Round) -> Vec<usize> {
        let count = round.lock().ready.len();
        (0..count)
            .map(|_| round.next().expect("it is ready").0)
            .collect()
    }

    #[test]
    fn transactions_wait_for_those_with_a_common_row() {
        let round = round(&[
            (&[1, 2], false),
            (&[3], false),
            (&[2, 3], false),
            (&[1], false),
            (&[3], false),
        ]);
        assert_eq!(ready(&round), [0, 1]);
        round.done(0);
        assert_eq!(ready(&round), [3]);
        round.done(1);
        assert_eq!(ready(&round), [2]);
        round.done(2);
        assert_eq!(ready(&round), [4]);
        round.done(3);
        round.done(4);
        assert!(round.next().is_none());
    }

    #[test]
    fn some_run_alone() {
        let round = round(&[(&[1], false), (&[], true), (&[9], false)]);
        assert_eq!(ready(&round), [0]);
        round.done(0);
        assert_eq!(ready(&round), [1]);
        round.done(1);
        assert_eq!(ready(&round), [2]);
    }

    #[test]
    fn nobody_goes_on_after_a_failure() {
        let round = round(&[(&[1], false), (&[2], false)]);
        round.fail();
        assert!(round.next().is_none() && round.has_failed());
    }
}
