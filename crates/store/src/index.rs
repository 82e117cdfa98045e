//! Rows in key order: for each table a few sorted, immutable runs of row ids.
//!
//! ```text
//! scheduler ──born, dead──▶ arrivals ──▶ pending ──sort──▶ run · run · run
//!                          (per table)                      └─ merge ─┘
//! ```
//!
//! Readers turn what has arrived into a small run when they first touch a table; the indexer, a
//! thread of its own, merges runs so that each is at least twice as long as the next, and takes
//! dead rows out. Workers know nothing of it: a row is in the index before its first write is
//! handed to any of them, and invisible until the snapshot has that write. A key whose row was
//! forgotten and that came back has two rows in the index for a while; the dead one is invisible to
//! every reader there is.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::runs::{Run, Runs, TableIndex};
use crate::shared::{ARRIVALS_MANY, Shared, Table, lock};

/// Readers merge runs up to this length themselves.
const MERGE_AT_ONCE_MAX: usize = 1 << 12;

/// Dead rows are taken out when there are so many, and more than a quarter of all.
const DEAD_MANY: usize = 1 << 10;

/// How often the indexer looks around when nobody wakes it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Table {
    /// The runs with every row that has arrived so far.
    pub fn runs(&self, shared: &Shared) -> Arc<Runs> {
        let mut index = lock(&self.index);
        index.take_in(self);
        index.pending_to_run(shared);
        if index.merge_point().is_some() {
            shared.wake_indexer();
        }
        index.runs.clone()
    }
}

impl TableIndex {
    fn take_in(&mut self, table: &Table) {
        let mut arrivals = lock(&table.arrivals);
        self.pending.append(&mut arrivals.born);
        self.dead.append(&mut arrivals.dead);
        table.arrived.store(0, Ordering::Relaxed);
    }

    fn pending_to_run(&mut self, shared: &Shared) {
        if self.pending.is_empty() {
            return;
        }
        // SAFETY: no row that is pending is recycled: the indexer first takes it out of all runs.
        let mut run = unsafe { Run::sort(&shared.rows, std::mem::take(&mut self.pending)) };
        let mut runs = Runs::clone(&self.runs);
        let mut bytes = 0;
        while runs.0.len() > self.busy
            && let Some(last) = runs.0.last()
            && last.len() <= run.len() * 2
            && last.len() + run.len() <= MERGE_AT_ONCE_MAX
        {
            // SAFETY: this set of runs is held, by the table itself.
            run = unsafe { Run::merge(&shared.rows, last, &run, &HashSet::new()) };
            bytes -= last.bytes();
            runs.0.pop();
        }
        shared.account(bytes + run.bytes(), 0);
        runs.0.push(Arc::new(run));
        self.replace(runs, Vec::new());
    }
}

/// The thread that keeps all tables' runs few and free of dead rows.
pub(crate) struct Indexer {
    shared: Arc<Shared>,
}

impl Indexer {
    pub fn new(shared: Arc<Shared>) -> Indexer {
        Indexer { shared }
    }

    pub fn run(&mut self) {
        while !self.shared.ending() {
            std::thread::park_timeout(LOOK_EVERY);
            let tables: Vec<_> = lock(&self.shared.tables).values().cloned().collect();
            for table in tables {
                self.tidy(&table);
            }
        }
    }

    fn tidy(&self, table: &Table) {
        let mut index = lock(&table.index);
        index.take_in(table);
        if index.pending.len() >= ARRIVALS_MANY {
            index.pending_to_run(&self.shared);
        }
        drop(index);
        self.take_out_dead(table);
        while !self.shared.ending() && self.merge_once(table) {}
        self.recycle(table);
    }

    fn merge_once(&self, table: &Table) -> bool {
        let mut index = lock(&table.index);
        let Some(first) = index.merge_point() else {
            return false;
        };
        let held = index.runs.clone();
        index.busy = first + 2;
        drop(index);
        // Without the lock: it may take long. Readers add runs behind these meanwhile.
        // SAFETY: this set of runs is held.
        let merged = unsafe {
            Run::merge(
                &self.shared.rows,
                &held.0[first],
                &held.0[first + 1],
                &HashSet::new(),
            )
        };
        self.shared.account(
            merged.bytes() - held.0[first].bytes() - held.0[first + 1].bytes(),
            0,
        );
        let mut index = lock(&table.index);
        let mut runs = Runs::clone(&index.runs);
        runs.0.splice(first..first + 2, [Arc::new(merged)]);
        index.busy = 0;
        drop(held);
        index.replace(runs, Vec::new());
        true
    }

    /// When there are many dead rows: merges everything into one run without them.
    fn take_out_dead(&self, table: &Table) {
        let mut index = lock(&table.index);
        let total: usize =
            index.runs.0.iter().map(|run| run.len()).sum::<usize>() + index.pending.len();
        if index.dead.len() < DEAD_MANY.max(total / 4) {
            return;
        }
        index.pending_to_run(&self.shared);
        let dead = std::mem::take(&mut index.dead);
        let held = index.runs.clone();
        let count = held.0.len();
        index.busy = count;
        drop(index);

        let set: HashSet<u32> = dead.iter().copied().collect();
        let mut merged = Run::default();
        // From the short end, so that each row is moved a few times only.
        for run in held.0.iter().rev() {
            // SAFETY: this set of runs is held.
            merged = unsafe { Run::merge(&self.shared.rows, run, &merged, &set) };
        }
        let bytes: i64 = held.0.iter().map(|run| run.bytes()).sum();
        self.shared.account(merged.bytes() - bytes, 0);

        let mut index = lock(&table.index);
        let mut runs = Runs::clone(&index.runs);
        runs.0.splice(..count, [Arc::new(merged)]);
        index.busy = 0;
        drop(held);
        index.replace(runs, dead);
    }

    /// Frees the dead rows that nobody can come across any more, and gives their ids back to the
    /// scheduler.
    fn recycle(&self, table: &Table) {
        let mut free = Vec::new();
        let mut index = lock(&table.index);
        index
            .replaced
            .retain_mut(|(runs, dead)| !dead.is_empty() || Arc::get_mut(runs).is_none());
        // A dead row may be in any set up to the one that it was taken out of.
        while let Some((runs, _)) = index.replaced.front_mut() {
            if Arc::get_mut(runs).is_none() {
                break;
            }
            if let Some((_, dead)) = index.replaced.pop_front() {
                free.extend(dead);
            }
        }
        drop(index);
        if free.is_empty() {
            return;
        }
        let (mut bytes, mut versions) = (0, 0);
        for &row in &free {
            // SAFETY: the row is dead; neither the newest set of runs nor any that is held has it.
            let given_back = unsafe { self.shared.rows.recycle(row) };
            bytes += given_back.0 as i64;
            versions += given_back.1 as i64;
        }
        self.shared.account(-bytes, -versions);
        self.shared
            .recycled
            .fetch_add(free.len() as u64, Ordering::Relaxed);
        lock(&self.shared.free_rows).append(&mut free);
    }
}
