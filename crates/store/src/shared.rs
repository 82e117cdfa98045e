//! What the threads of a store share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::Thread;

use crate::history::History;
pub(crate) use crate::lock::lock;
use crate::log::Commit;
use crate::rows::Rows;
use crate::runs::TableIndex;
use crate::types::{Failure, Options, TableId};

/// So many changes to a table's set of rows are worth the indexer's attention at once.
pub(crate) const ARRIVALS_MANY: usize = 1 << 16;

/// How far one worker is. Its own cache lines, because it is written all the time.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Progress {
    /// This worker will never again install a write with a number up to this one. The paper's c_i.
    /// Only grows; the worker writes it.
    pub done: AtomicU64,
    /// Everything that the horizon allowed up to this number was freed. The worker writes it.
    pub collected_to: AtomicU64,
    pub applied: AtomicU64,
    pub deferred: AtomicU64,
    pub collected: AtomicU64,
    pub unresolved: AtomicU64,
}

/// The last number that was handed to a worker. The scheduler writes it.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Assigned(pub AtomicU64);

pub(crate) struct Shared {
    pub options: Options,
    pub rows: Rows,
    pub progress: Box<[Progress]>,
    pub assigned: Box<[Assigned]>,
    /// Everything up to this number was handed out. The scheduler writes it, after `assigned`.
    pub frontier: AtomicU64,
    /// The last write of the current snapshot: the paper's c. The snapshotter writes it; only
    /// grows.
    pub visible: AtomicU64,
    /// See `rows`. The snapshotter writes it; only grows.
    pub horizon: AtomicU64,
    /// Commits that were handed out and are not visible yet.
    pub commits: Mutex<Vec<Commit>>,
    pub history: Mutex<History>,
    /// Signalled with `history` when the current snapshot moved on or the store failed.
    pub moved: Condvar,
    /// How many wait for the current snapshot to move on.
    pub waiting: AtomicUsize,
    pub tables: Mutex<HashMap<TableId, Arc<Table>>>,
    /// Row ids that can be given out again.
    pub free_rows: Mutex<Vec<u32>>,
    pub snapshotter: OnceLock<Thread>,
    pub indexer: OnceLock<Thread>,

    /// Set when the owner went away: every thread ends.
    pub stop: AtomicBool,
    pub failed: AtomicBool,
    pub failure: Mutex<Option<Failure>>,

    pub bytes: AtomicI64,
    pub versions: AtomicI64,
    pub written: AtomicU64,
    pub committed: AtomicU64,
    pub recycled: AtomicU64,
    pub held_back_us: AtomicU64,
    pub retention_shortened: AtomicU64,
    /// Memory of the scheduler's maps.
    pub map_bytes: AtomicU64,
    /// What workers installed, in this order, for the tests that judge it.
    #[cfg(test)]
    pub installed: Mutex<Vec<u64>>,
}

/// What the scheduler, readers and the indexer share about a table.
pub(crate) struct Table {
    /// What the scheduler says about rows, not in the index yet.
    pub arrivals: Mutex<Arrivals>,
    /// How many are in `arrivals`, for a look without the lock.
    pub arrived: AtomicUsize,
    pub index: Mutex<TableIndex>,
    /// Numbers of the truncations of this table, in order.
    pub truncations: Mutex<Vec<u64>>,
}

#[derive(Default)]
pub(crate) struct Arrivals {
    pub born: Vec<u32>,
    pub dead: Vec<u32>,
}

impl Table {
    pub fn new() -> Table {
        Table {
            arrivals: Mutex::default(),
            arrived: AtomicUsize::new(0),
            index: Mutex::default(),
            truncations: Mutex::default(),
        }
    }

    /// The last truncation at or before `seq`; 0 if there was none. Versions below it are not
    /// visible at `seq`.
    pub fn truncated_before(&self, seq: u64) -> u64 {
        let truncations = lock(&self.truncations);
        let end = truncations.partition_point(|&at| at <= seq);
        end.checked_sub(1).map_or(0, |last| truncations[last])
    }
}

impl Shared {
    pub fn new(options: Options, workers: usize) -> Shared {
        Shared {
            rows: Rows::new(),
            progress: (0..workers).map(|_| Progress::default()).collect(),
            assigned: (0..workers).map(|_| Assigned::default()).collect(),
            frontier: AtomicU64::new(0),
            visible: AtomicU64::new(0),
            horizon: AtomicU64::new(0),
            commits: Mutex::default(),
            history: Mutex::new(History::new(options.retention)),
            moved: Condvar::new(),
            waiting: AtomicUsize::new(0),
            tables: Mutex::default(),
            free_rows: Mutex::default(),
            snapshotter: OnceLock::new(),
            indexer: OnceLock::new(),
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            bytes: AtomicI64::new(0),
            versions: AtomicI64::new(0),
            written: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            recycled: AtomicU64::new(0),
            held_back_us: AtomicU64::new(0),
            retention_shortened: AtomicU64::new(0),
            map_bytes: AtomicU64::new(0),
            #[cfg(test)]
            installed: Mutex::default(),
            options,
        }
    }

    /// Should a thread of the store end now, work or not?
    pub fn ending(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.failed.load(Ordering::Acquire)
    }

    /// The first failure counts. Wakes everybody who could wait for what will not happen any more.
    pub fn fail(&self, failure: Failure) {
        lock(&self.failure).get_or_insert(failure);
        self.failed.store(true, Ordering::Release);
        // Under the lock, so that nobody is between looking and going to sleep.
        drop(lock(&self.history));
        self.moved.notify_all();
        self.wake_snapshotter();
        self.wake_indexer();
    }

    pub fn wake_snapshotter(&self) {
        if let Some(thread) = self.snapshotter.get() {
            thread.unpark();
        }
    }

    pub fn wake_indexer(&self) {
        if let Some(thread) = self.indexer.get() {
            thread.unpark();
        }
    }

    /// Memory in use, about.
    pub fn memory(&self) -> u64 {
        // Threads add what they allocated before others subtract it, but not at one moment: it may
        // be below zero.
        let bytes = u64::try_from(self.bytes.load(Ordering::Relaxed)).unwrap_or(0);
        bytes + self.map_bytes.load(Ordering::Relaxed)
    }

    pub fn account(&self, bytes: i64, versions: i64) {
        if bytes != 0 {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        if versions != 0 {
            self.versions.fetch_add(versions, Ordering::Relaxed);
        }
    }
}
