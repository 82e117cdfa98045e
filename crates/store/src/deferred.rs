//! A worker's deferred writes: a queue per row, and the order in which the rows began to wait.
//!
//! The paper keeps one queue and looks at all of it again and again. Behind a hot row that becomes
//! long, and only the first write of each row can be next; so this looks at one write per row, and
//! takes along what follows it.

use std::collections::VecDeque;

use hashbrown::HashTable;

use crate::log::Base;
use crate::rows::Draft;

/// A write that is not installed yet.
pub(crate) struct Write {
    pub row: u32,
    pub prev: u64,
    pub draft: Draft,
    pub base: Option<Base>,
}

#[derive(Default)]
pub(crate) struct Deferred {
    /// One per row that waits.
    queues: HashTable<Queue>,
    /// The rows of `queues`, in the order in which they began to wait.
    rows: VecDeque<u32>,
    len: usize,
    /// The least number of all deferred writes.
    oldest: Option<u64>,
    /// Empty queues that keep their memory.
    spare: Vec<VecDeque<Write>>,
}

struct Queue {
    row: u32,
    writes: VecDeque<Write>,
}

fn hash(row: u32) -> u64 {
    u64::from(row).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Deferred {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of the oldest deferred write.
    pub fn oldest(&self) -> Option<u64> {
        self.oldest
    }

    /// Defers a write if an earlier one to its row is deferred; else gives it back.
    pub fn push_behind(&mut self, write: Write) -> Result<(), Write> {
        if self.len == 0 {
            return Err(write);
        }
        match self
            .queues
            .find_mut(hash(write.row), |queue| queue.row == write.row)
        {
            Some(queue) => {
                queue.writes.push_back(write);
                self.len += 1;
                Ok(())
            }
            None => Err(write),
        }
    }

    /// Defers the first write of its row. Its number is greater than that of everything deferred so
    /// far.
    pub fn push(&mut self, write: Write) {
        let row = write.row;
        self.oldest.get_or_insert(write.draft.seq());
        let mut writes = self.spare.pop().unwrap_or_default();
        writes.push_back(write);
        self.queues
            .insert_unique(hash(row), Queue { row, writes }, |queue| hash(queue.row));
        self.rows.push_back(row);
        self.len += 1;
    }

    /// Looks at every row that waits, and gives `install` its writes in order until it gives one
    /// back. Says whether there was progress.
    pub fn retry(&mut self, mut install: impl FnMut(Write) -> Result<(), Write>) -> bool {
        let before = self.len;
        let mut oldest: Option<u64> = None;
        for _ in 0..self.rows.len() {
            let Some(row) = self.rows.pop_front() else {
                break;
            };
            let Ok(mut entry) = self.queues.find_entry(hash(row), |queue| queue.row == row) else {
                unreachable!("row {row} waits and has no queue");
            };
            let writes = &mut entry.get_mut().writes;
            while let Some(write) = writes.pop_front() {
                match install(write) {
                    Ok(()) => self.len -= 1,
                    Err(write) => {
                        let seq = write.draft.seq();
                        oldest = Some(oldest.map_or(seq, |oldest| oldest.min(seq)));
                        writes.push_front(write);
                        break;
                    }
                }
            }
            if writes.is_empty() {
                let (queue, _) = entry.remove();
                self.spare.push(queue.writes);
            } else {
                self.rows.push_back(row);
            }
        }
        self.oldest = oldest;
        self.spare.truncate(64);
        self.len < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spare::Spare;

    fn write(row: u32, seq: u64) -> Write {
        Write {
            row,
            prev: 0,
            draft: Draft::tombstone(&mut Spare::default(), seq),
            base: None,
        }
    }

    #[test]
    fn rows_wait_by_themselves_and_their_writes_stay_in_order() {
        let mut deferred = Deferred::default();
        for (row, seq) in [(1, 1), (2, 2), (1, 3), (1, 4), (2, 5)] {
            if let Err(write) = deferred.push_behind(write(row, seq)) {
                deferred.push(write);
            }
        }
        assert_eq!(deferred.oldest(), Some(1));
        let mut installed = Vec::new();
        // Row 1 may go on up to 3, row 2 not at all.
        let progressed = deferred.retry(|write| {
            if write.row == 1 && write.draft.seq() < 4 {
                installed.push(write.draft.seq());
                return Ok(());
            }
            Err(write)
        });
        assert!(progressed);
        assert_eq!(installed, [1, 3]);
        assert_eq!((deferred.len(), deferred.oldest()), (3, Some(2)));
        assert!(!deferred.retry(Err));
        deferred.retry(|write| {
            installed.push(write.draft.seq());
            Ok(())
        });
        assert_eq!(installed, [1, 3, 4, 2, 5]);
        assert!(deferred.is_empty());
        assert_eq!(deferred.oldest(), None);
    }
}
