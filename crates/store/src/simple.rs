//! Everything in one thread under one lock: the semantics, until the real thing replaces it.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use crate::types::*;

#[derive(Debug, Clone)]
struct Row {
    layout: u32,
    cells: Vec<Option<Vec<u8>>>,
}
type Table = BTreeMap<Vec<u8>, Arc<Row>>;
type Tables = BTreeMap<TableId, Arc<Table>>;
#[derive(Default)]
struct State {
    history: Vec<(Mark, i64, Tables)>,
    metrics: Metrics,
}
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}
impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Starts a store: the threads that apply, and the one appender that feeds them.
pub fn open(_options: Options) -> (Store, Appender) {
    let shared = Arc::new(Shared::default());
    shared
        .lock()
        .history
        .push((Mark::default(), i64::MIN, Tables::new()));
    (
        Store {
            shared: shared.clone(),
        },
        Appender {
            shared,
            tables: Tables::new(),
        },
    )
}

/// The reading side. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

/// The one writer. Everything is given in commit order; what was not committed is never visible.
pub struct Appender {
    shared: Arc<Shared>,
    tables: Tables,
}

impl Appender {
    /// Inserts or replaces a row. With `moved_from`, the row had that key before: `Unchanged` cells come from there and
    /// the old key is deleted.
    pub fn put<'a>(
        &mut self,
        table: TableId,
        key: &[u8],
        layout: u32,
        cells: impl ExactSizeIterator<Item = Cell<'a>>,
        moved_from: Option<&[u8]>,
    ) {
        let rows = Arc::make_mut(self.tables.entry(table).or_default());
        let base = match moved_from {
            Some(old) => rows.remove(old),
            None => rows.get(key).cloned(),
        };
        let cells = cells
            .enumerate()
            .map(|(i, cell)| match cell {
                Cell::Null => None,
                Cell::Value(value) => Some(value.to_vec()),
                Cell::Unchanged => base
                    .as_ref()
                    .and_then(|row| row.cells.get(i).cloned().flatten()),
            })
            .collect();
        rows.insert(key.to_vec(), Arc::new(Row { layout, cells }));
        self.shared.lock().metrics.rows += 1;
    }

    /// Deletes a row. Nothing happens if there is none.
    pub fn delete(&mut self, table: TableId, key: &[u8]) {
        Arc::make_mut(self.tables.entry(table).or_default()).remove(key);
        self.shared.lock().metrics.rows += 1;
    }

    /// Deletes every row of a table.
    pub fn truncate(&mut self, table: TableId) {
        self.tables.remove(&table);
        self.shared.lock().metrics.rows += 1;
    }

    /// Ends a transaction. One without writes is fine: it says that the log has nothing else up to `mark`.
    pub fn commit(&mut self, mark: Mark) {
        let mut state = self.shared.lock();
        let time = state
            .history
            .last()
            .map_or(mark.time, |last| last.1.max(mark.time));
        let first = state.history.len() == 1 && state.metrics.commits == 0;
        if first {
            state.history.clear();
        }
        state.history.push((mark, time, self.tables.clone()));
        state.metrics.commits += 1;
        self.shared.changed.notify_all();
    }

    /// Hands what was written so far to the workers now instead of when a segment is full.
    pub fn flush(&mut self) {}
}

impl Store {
    /// The current snapshot: a prefix of the log that ends with a commit, never older than an earlier one.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.shared.lock();
        let (mark, _, tables) = &state.history[state.history.len() - 1];
        Snapshot {
            mark: *mark,
            tables: tables.clone(),
        }
    }

    /// A past state, as far back as the retention goes.
    pub fn snapshot_at(&self, at: AsOf) -> Result<Snapshot, AsOfError> {
        let state = self.shared.lock();
        let newest = &state.history[state.history.len() - 1];
        let (beyond, end) = match at {
            AsOf::Lsn(lsn) => (
                lsn > newest.0.lsn,
                state.history.partition_point(|h| h.0.lsn <= lsn),
            ),
            AsOf::Time(time) => (
                time > newest.1,
                state.history.partition_point(|h| h.1 <= time),
            ),
        };
        if beyond {
            return Err(AsOfError::NotYet { newest: newest.0 });
        }
        match end.checked_sub(1) {
            None => Err(AsOfError::TooOld {
                oldest: state.history[0].0,
            }),
            Some(i) => Ok(Snapshot {
                mark: state.history[i].0,
                tables: state.history[i].2.clone(),
            }),
        }
    }

    /// The last commit of the current snapshot. All zero before the first.
    pub fn visible(&self) -> Mark {
        let state = self.shared.lock();
        state.history[state.history.len() - 1].0
    }

    /// The oldest commit that [`Store::snapshot_at`] can still give.
    pub fn oldest(&self) -> Mark {
        self.shared.lock().history[0].0
    }

    pub fn metrics(&self) -> Metrics {
        self.shared.lock().metrics
    }

    /// Waits until the current snapshot includes everything up to `lsn`. False at the deadline or when the store failed.
    /// Whoever appends must have flushed (or commit again) for this to end well.
    pub fn wait_visible(&self, lsn: u64, deadline: Instant) -> bool {
        let mut state = self.shared.lock();
        loop {
            if state.history[state.history.len() - 1].0.lsn >= lsn {
                return true;
            }
            let Some(left) = deadline
                .checked_duration_since(Instant::now())
                .filter(|left| !left.is_zero())
            else {
                return false;
            };
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .0;
        }
    }

    /// Why the store stopped following its log, if it did.
    pub fn failure(&self) -> Option<Failure> {
        None
    }
}

/// A state of all tables that does not change. As long as it is held, its versions stay in memory.
pub struct Snapshot {
    mark: Mark,
    tables: Tables,
}

impl Snapshot {
    /// The last commit it includes.
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// One row by its key.
    pub fn get(&self, table: TableId, key: &[u8]) -> Option<RowRef<'_>> {
        self.tables.get(&table)?.get(key).map(|row| RowRef { row })
    }

    /// The rows of a table within bounds, in byte order of their keys.
    pub fn scan(&self, table: TableId, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Scan<'_> {
        let empty = match (&from, &to) {
            (Bound::Included(a), Bound::Included(b)) => a > b,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Excluded(b) | Bound::Included(b)) => {
                a >= b
            }
            _ => false,
        };
        let rows = self.tables.get(&table).filter(|_| !empty);
        Scan {
            rows: rows.map(|rows| rows.range::<[u8], _>((from, to))),
        }
    }

    /// About how many rows a table has; never less than it really has.
    pub fn len_estimate(&self, table: TableId) -> usize {
        self.tables.get(&table).map_or(0, |rows| rows.len())
    }
}

/// Rows in key order, from [`Snapshot::scan`].
pub struct Scan<'s> {
    rows: Option<btree_map::Range<'s, Vec<u8>, Arc<Row>>>,
}

impl<'s> Iterator for Scan<'s> {
    type Item = (&'s [u8], RowRef<'s>);
    fn next(&mut self) -> Option<Self::Item> {
        self.rows
            .as_mut()?
            .next()
            .map(|(key, row)| (key.as_slice(), RowRef { row }))
    }
}

/// One row as a snapshot sees it.
#[derive(Clone, Copy)]
pub struct RowRef<'s> {
    row: &'s Row,
}

impl<'s> RowRef<'s> {
    /// The number that came with [`Appender::put`].
    pub fn layout(&self) -> u32 {
        self.row.layout
    }

    /// One value; `None` is null. Panics if there is no such cell.
    pub fn cell(&self, index: usize) -> Option<&'s [u8]> {
        self.row.cells[index].as_deref()
    }

    /// How many cells it has.
    pub fn len(&self) -> usize {
        self.row.cells.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
