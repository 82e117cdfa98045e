//! Sorted runs of row ids, and the set of them that a table has at a moment.

use std::cmp::Ordering as Order;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use crate::rows::Rows;

/// The beginning of a key as a number, so that most comparisons look at no row.
pub(crate) fn prefix_of(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(8);
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}

/// Rows in the order of their keys.
#[derive(Default)]
pub(crate) struct Run {
    pub prefixes: Vec<u64>,
    pub rows: Vec<u32>,
}

/// The runs of a table at one moment. As long as someone holds it, none of its rows is recycled.
#[derive(Clone, Default)]
pub(crate) struct Runs(pub Vec<Arc<Run>>);

#[derive(Default)]
pub(crate) struct TableIndex {
    pub runs: Arc<Runs>,
    pub pending: Vec<u32>,
    /// Dead rows that are in `runs` or `pending`.
    pub dead: Vec<u32>,
    /// Sets of runs that were replaced, oldest first, each with the dead rows that are in none of
    /// the later ones.
    pub replaced: VecDeque<(Arc<Runs>, Vec<u32>)>,
    /// The first so many runs are being merged by the indexer.
    pub busy: usize,
}

impl Run {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn bytes(&self) -> i64 {
        (self.prefixes.capacity() * 8 + self.rows.capacity() * 4) as i64
    }

    /// # Safety
    /// The rows are in a set of runs that is held, or on their way into one: they are not recycled
    /// meanwhile.
    pub unsafe fn sort(rows: &Rows, ids: Vec<u32>) -> Run {
        // SAFETY: as promised.
        let key = |row: u32| unsafe { rows.key(row) };
        let mut entries: Vec<(u64, u32)> = ids
            .into_iter()
            .map(|row| (prefix_of(key(row)), row))
            .collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(key(b.1))));
        Run {
            prefixes: entries.iter().map(|entry| entry.0).collect(),
            rows: entries.iter().map(|entry| entry.1).collect(),
        }
    }

    /// # Safety
    /// As for `sort`.
    pub unsafe fn merge(rows: &Rows, left: &Run, right: &Run, dead: &HashSet<u32>) -> Run {
        // SAFETY: as promised.
        let order = |l: usize, r: usize| {
            left.prefixes[l]
                .cmp(&right.prefixes[r])
                .then_with(|| unsafe { rows.key(left.rows[l]).cmp(rows.key(right.rows[r])) })
        };
        let mut merged = Run::default();
        merged.prefixes.reserve_exact(left.len() + right.len());
        merged.rows.reserve_exact(left.len() + right.len());
        let mut take = |run: &Run, from: usize, to: usize| {
            if dead.is_empty() {
                merged.prefixes.extend_from_slice(&run.prefixes[from..to]);
                merged.rows.extend_from_slice(&run.rows[from..to]);
            } else {
                for i in (from..to).filter(|&i| !dead.contains(&run.rows[i])) {
                    merged.prefixes.push(run.prefixes[i]);
                    merged.rows.push(run.rows[i]);
                }
            }
        };
        let (mut l, mut r) = (0, 0);
        // Keys that only ever grow: no comparison per row.
        if left.len() > 0 && right.len() > 0 && order(left.len() - 1, 0) == Order::Less {
            take(left, 0, left.len());
            l = left.len();
        }
        while l < left.len() && r < right.len() {
            if order(l, r) == Order::Greater {
                take(right, r, r + 1);
                r += 1;
            } else {
                take(left, l, l + 1);
                l += 1;
            }
        }
        take(left, l, left.len());
        take(right, r, right.len());
        merged
    }
}

impl TableIndex {
    pub fn replace(&mut self, runs: Runs, dead: Vec<u32>) {
        let mut old = std::mem::replace(&mut self.runs, Arc::new(runs));
        // What nobody holds guards nothing. So there are never many more of these than readers.
        if !dead.is_empty() || Arc::get_mut(&mut old).is_none() {
            self.replaced.push_back((old, dead));
        }
    }

    /// The last pair of neighbours whose lengths are too much alike: the index of the first.
    pub fn merge_point(&self) -> Option<usize> {
        let runs = &self.runs.0;
        (1..runs.len())
            .rev()
            .find(|&i| runs[i].len() * 2 > runs[i - 1].len())
            .map(|i| i - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_stays_holds_one_set_of_runs_and_not_those_that_came_later() {
        let mut index = TableIndex::default();
        let held = index.runs.clone();
        for _ in 0..1000 {
            index.replace(Runs::default(), Vec::new());
        }
        assert_eq!(index.replaced.len(), 1);
        assert!(Arc::ptr_eq(&held, &index.replaced[0].0));
    }

    #[test]
    fn prefixes_are_in_the_order_of_their_keys() {
        let keys: [&[u8]; 7] = [b"", b"\0", b"a", b"a\0b", b"abcdefgh", b"abcdefghi", b"b"];
        for pair in keys.windows(2) {
            assert!(pair[0] < pair[1]);
            assert!(prefix_of(pair[0]) <= prefix_of(pair[1]), "{pair:?}");
        }
    }
}
