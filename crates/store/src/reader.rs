//! Reading: snapshots, single rows, ranges.

use std::cmp::Ordering as Order;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use crate::log::Commit;
use crate::rows::VersionRef;
use crate::runs::{Run, Runs, prefix_of};
use crate::shared::{Shared, lock};
use crate::types::{Cell, Mark, Seq, TableId};

/// A state of all tables that does not change. As long as it is held, its versions stay in memory.
///
/// It can be shared between threads, and outlives the store.
pub struct Snapshot {
    shared: Arc<Shared>,
    commit: Commit,
    /// The tables that were touched. Only added to: rows and keys that were handed out depend on
    /// it.
    views: Mutex<Vec<(TableId, Option<Arc<View>>)>>,
}

/// A table as one snapshot sees it.
struct View {
    runs: Arc<Runs>,
    /// Versions below this are gone.
    truncated: u64,
}

impl Snapshot {
    /// The newest state that readers may see.
    pub(crate) fn current(shared: &Arc<Shared>) -> Snapshot {
        let mut history = lock(&shared.history);
        let commit = history.newest();
        history.register(commit.seq);
        drop(history);
        Snapshot::registered(Arc::clone(shared), commit)
    }

    /// A snapshot at a commit at which the caller has registered a reader, under the lock under
    /// which it found the commit.
    pub(crate) fn registered(shared: Arc<Shared>, commit: Commit) -> Snapshot {
        Snapshot {
            shared,
            commit,
            views: Mutex::default(),
        }
    }

    /// The last commit it includes.
    pub fn mark(&self) -> Mark {
        self.commit.mark
    }

    /// The last write it includes.
    pub fn seq(&self) -> Seq {
        Seq(self.commit.seq)
    }

    /// One row by its key.
    pub fn get(&self, table: TableId, key: &[u8]) -> Option<RowRef<'_>> {
        let view = self.view(table)?;
        let prefix = prefix_of(key);
        for run in view.runs.0.iter().rev() {
            let at = self.lower_bound(run, prefix, key, false);
            // Two rows can have the same key if one of them is dead.
            for i in at..run.len() {
                if run.prefixes[i] != prefix || self.key(run.rows[i]) != key {
                    break;
                }
                if let Some(row) = self.row(&view, run.rows[i]) {
                    return Some(row);
                }
            }
        }
        None
    }

    /// The rows of a table within bounds, in byte order of their keys. Can also be read from the
    /// end.
    pub fn scan(&self, table: TableId, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Scan<'_> {
        let view = self.view(table);
        let mut cursors = Vec::new();
        for (number, run) in view.iter().flat_map(|view| view.runs.0.iter().enumerate()) {
            let start = match from {
                Bound::Unbounded => 0,
                Bound::Included(key) => self.lower_bound(run, prefix_of(key), key, false),
                Bound::Excluded(key) => self.lower_bound(run, prefix_of(key), key, true),
            };
            let end = match to {
                Bound::Unbounded => run.len(),
                Bound::Included(key) => self.lower_bound(run, prefix_of(key), key, true),
                Bound::Excluded(key) => self.lower_bound(run, prefix_of(key), key, false),
            };
            if start < end {
                cursors.push(Cursor {
                    run: number,
                    start,
                    end,
                });
            }
        }
        Scan {
            snapshot: self,
            view,
            cursors,
        }
    }

    fn view(&self, table: TableId) -> Option<Arc<View>> {
        let mut views = lock(&self.views);
        if let Some((_, view)) = views.iter().find(|(id, _)| *id == table) {
            return view.clone();
        }
        let found = lock(&self.shared.tables).get(&table).cloned();
        // A table that comes later has nothing that this snapshot could see.
        let view = found.map(|found| {
            Arc::new(View {
                runs: found.runs(&self.shared),
                truncated: found.truncated_before(self.commit.seq),
            })
        });
        views.push((table, view.clone()));
        view
    }

    fn key(&self, row: u32) -> &[u8] {
        // SAFETY: row ids come from the runs of `views`, which are held as long as `self` is.
        unsafe { self.shared.rows.key(row) }
    }

    fn row(&self, view: &View, row: u32) -> Option<RowRef<'_>> {
        // SAFETY: `self` is registered at this number until it is dropped, and the row id comes
        // from the runs of `views`.
        let version = unsafe { self.shared.rows.visible(row, self.commit.seq) }?;
        (!version.is_tombstone() && version.seq() > view.truncated).then_some(RowRef { version })
    }

    /// The first place in a run whose key is not less (`beyond`: is greater) than the given one.
    fn lower_bound(&self, run: &Run, prefix: u64, key: &[u8], beyond: bool) -> usize {
        let start = run.prefixes.partition_point(|&other| other < prefix);
        let same = run.prefixes[start..].partition_point(|&other| other == prefix);
        let before = |&row: &u32| match self.key(row).cmp(key) {
            Order::Less => true,
            Order::Equal => beyond,
            Order::Greater => false,
        };
        start + run.rows[start..start + same].partition_point(before)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        lock(&self.shared.history).unregister(self.commit.seq);
        if self
            .shared
            .options
            .memory_max
            .is_some_and(|max| self.shared.memory() > max)
        {
            self.shared.wake_snapshotter();
        }
    }
}

/// Rows in key order, from [`Snapshot::scan`].
pub struct Scan<'s> {
    snapshot: &'s Snapshot,
    view: Option<Arc<View>>,
    cursors: Vec<Cursor>,
}

/// What is left of one run.
struct Cursor {
    run: usize,
    start: usize,
    end: usize,
}

impl<'s> Scan<'s> {
    fn order(&self, view: &View, left: (usize, usize), right: (usize, usize)) -> Order {
        let (l, r) = (&view.runs.0[left.0], &view.runs.0[right.0]);
        l.prefixes[left.1].cmp(&r.prefixes[right.1]).then_with(|| {
            self.snapshot
                .key(l.rows[left.1])
                .cmp(self.snapshot.key(r.rows[right.1]))
        })
    }

    /// Takes the next row id from the front or the back, visible or not.
    fn step(&mut self, view: &View, back: bool) -> Option<u32> {
        let place =
            |cursor: &Cursor| (cursor.run, if back { cursor.end - 1 } else { cursor.start });
        let mut best = 0;
        for other in 1..self.cursors.len() {
            let order = self.order(
                view,
                place(&self.cursors[other]),
                place(&self.cursors[best]),
            );
            if order == if back { Order::Greater } else { Order::Less } {
                best = other;
            }
        }
        let cursor = self.cursors.get_mut(best)?;
        let (run, at) = place(cursor);
        if back {
            cursor.end -= 1;
        } else {
            cursor.start += 1;
        }
        if cursor.start == cursor.end {
            self.cursors.swap_remove(best);
        }
        Some(view.runs.0[run].rows[at])
    }

    fn advance(&mut self, back: bool) -> Option<(&'s [u8], RowRef<'s>)> {
        let view = self.view.clone()?;
        loop {
            let row = self.step(&view, back)?;
            if let Some(found) = self.snapshot.row(&view, row) {
                return Some((self.snapshot.key(row), found));
            }
        }
    }
}

impl<'s> Iterator for Scan<'s> {
    type Item = (&'s [u8], RowRef<'s>);

    fn next(&mut self) -> Option<Self::Item> {
        self.advance(false)
    }
}

impl DoubleEndedIterator for Scan<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.advance(true)
    }
}

/// One row as a snapshot sees it.
#[derive(Clone, Copy)]
pub struct RowRef<'s> {
    version: VersionRef<'s>,
}

impl<'s> RowRef<'s> {
    /// The number that came with [`Appender::put`](crate::Appender::put).
    pub fn layout(&self) -> u32 {
        self.version.layout()
    }

    /// The write that made it so.
    pub fn seq(&self) -> Seq {
        Seq(self.version.seq())
    }

    /// One value; `None` is null. Panics if there is no such cell.
    pub fn cell(&self, index: usize) -> Option<&'s [u8]> {
        match self.version.cell(index) {
            Cell::Value(value) => Some(value),
            Cell::Null => None,
            Cell::Unchanged => unreachable!("an installed version has all its values"),
        }
    }

    /// How many cells it has.
    pub fn len(&self) -> usize {
        self.version.cells() as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Debug for RowRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cells: Vec<_> = (0..self.len())
            .map(|i| self.cell(i).map(String::from_utf8_lossy))
            .collect();
        f.debug_struct("RowRef")
            .field("layout", &self.layout())
            .field("cells", &cells)
            .finish()
    }
}
