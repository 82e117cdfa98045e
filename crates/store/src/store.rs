//! The store as its user holds it: opening, snapshots, waiting, figures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::history::{History, PAST_BYTES};
use crate::index::Indexer;
use crate::modes::Done;
use crate::reader::Snapshot;
use crate::scheduler::{Appender, QUEUE_SEGMENTS};
use crate::shared::{Progress, Shared, lock};
use crate::snapshotter::Snapshotter;
use crate::types::{AsOf, AsOfError, Failure, Mark, Metrics, Mode, Options, Seq};
use crate::worker::Worker;

/// The reading side. Cheap to clone; the threads of the store end with the last clone.
#[derive(Clone)]
pub struct Store {
    running: Arc<Running>,
}

struct Running {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Starts a store: the threads that apply, and the one appender that feeds them.
pub fn open(options: Options) -> (Store, Appender) {
    let workers = if options.mode == Mode::Single {
        1
    } else {
        options.workers.max(1)
    };
    let shared = Arc::new(Shared::new(options, workers));
    let done = (shared.options.mode == Mode::Transaction).then(|| Arc::new(Done::new()));
    let mut threads = Vec::new();
    let mut queues = Vec::new();
    let (used_sender, used) = channel();
    for number in 0..workers {
        let (queue, segments) = sync_channel(QUEUE_SEGMENTS);
        queues.push(queue);
        let mut worker = Worker::new(
            shared.clone(),
            number,
            segments,
            used_sender.clone(),
            done.clone(),
        );
        threads.push(spawn(
            &shared,
            format!("store-worker-{number}"),
            move || worker.run(),
        ));
    }
    let mut snapshotter = Snapshotter::new(shared.clone());
    let thread = spawn(&shared, "store-snapshots".into(), move || snapshotter.run());
    shared.snapshotter.get_or_init(|| thread.thread().clone());
    threads.push(thread);
    let mut indexer = Indexer::new(shared.clone());
    let thread = spawn(&shared, "store-index".into(), move || indexer.run());
    shared.indexer.get_or_init(|| thread.thread().clone());
    threads.push(thread);

    let appender = Appender::new(shared.clone(), queues, used);
    (
        Store {
            running: Arc::new(Running {
                shared,
                threads: Mutex::new(threads),
            }),
        },
        appender,
    )
}

/// A thread whose panic becomes a failure of the store, so that nobody waits for it.
fn spawn(
    shared: &Arc<Shared>,
    name: String,
    body: impl FnOnce() + Send + 'static,
) -> JoinHandle<()> {
    let shared = shared.clone();
    let thread = name.clone();
    let run = move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
            let message = match panic.downcast::<String>() {
                Ok(message) => *message,
                Err(panic) => panic
                    .downcast::<&str>()
                    .map_or_else(|_| "no message".into(), |message| message.to_string()),
            };
            shared.fail(Failure::Panicked { thread, message });
        }
    };
    match std::thread::Builder::new().name(name).spawn(run) {
        Ok(handle) => handle,
        Err(error) => panic!("cannot start a thread: {error}"),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake_snapshotter();
        self.shared.wake_indexer();
        for thread in lock(&self.threads).drain(..) {
            // Its panic, if any, was caught and recorded.
            let _ = thread.join();
        }
    }
}

impl Store {
    fn shared(&self) -> &Arc<Shared> {
        &self.running.shared
    }

    /// The current snapshot: a prefix of the log that ends with a commit, never older than an
    /// earlier one.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::current(self.shared())
    }

    /// A past state, as far back as the retention goes.
    pub fn snapshot_at(&self, at: AsOf) -> Result<Snapshot, AsOfError> {
        let mut history = lock(&self.shared().history);
        let commit = history.find(at)?;
        history.register(commit.seq);
        drop(history);
        Ok(Snapshot::registered(self.shared().clone(), commit))
    }

    /// The last commit of the current snapshot. All zero before the first.
    pub fn visible(&self) -> Mark {
        lock(&self.shared().history).newest().mark
    }

    /// The oldest commit that [`Store::snapshot_at`] can still give.
    pub fn oldest(&self) -> Mark {
        lock(&self.shared().history).oldest().mark
    }

    /// Waits until the current snapshot includes everything up to `lsn`. False at the deadline or
    /// when the store failed.
    ///
    /// While someone waits, every commit is handed to the workers at once. What was committed
    /// before is not, so whoever appends has to flush when the log runs dry.
    pub fn wait_visible(&self, lsn: u64, deadline: Instant) -> bool {
        let shared = self.shared();
        shared.waiting.fetch_add(1, Ordering::SeqCst);
        shared.wake_snapshotter();
        let reached = wait(shared, deadline, |history| history.newest().mark.lsn >= lsn);
        shared.waiting.fetch_sub(1, Ordering::SeqCst);
        reached
    }

    /// Why the store stopped following its log, if it did.
    pub fn failure(&self) -> Option<Failure> {
        lock(&self.shared().failure).clone()
    }

    pub fn metrics(&self) -> Metrics {
        let shared = self.shared();
        let sum = |counter: fn(&Progress) -> &AtomicU64| {
            shared
                .progress
                .iter()
                .map(|progress| counter(progress).load(Ordering::Relaxed))
                .sum()
        };
        let (readers, history_bytes) = {
            let history = lock(&shared.history);
            (
                history.readers() as u64,
                (history.len() * PAST_BYTES) as u64,
            )
        };
        let visible = shared.visible.load(Ordering::Acquire);
        let written = shared.written.load(Ordering::Relaxed);
        Metrics {
            rows: written,
            applied: sum(|progress| &progress.applied),
            commits: shared.committed.load(Ordering::Relaxed),
            deferred: sum(|progress| &progress.deferred),
            collected: sum(|progress| &progress.collected),
            recycled: shared.recycled.load(Ordering::Relaxed),
            unresolved: sum(|progress| &progress.unresolved),
            retention_shortened: shared.retention_shortened.load(Ordering::Relaxed),
            held_back_us: shared.held_back_us.load(Ordering::Relaxed),
            versions: u64::try_from(shared.versions.load(Ordering::Relaxed)).unwrap_or(0),
            bytes: shared.memory() + history_bytes,
            readers,
            visible: Seq(visible),
            horizon: Seq(shared.horizon.load(Ordering::Acquire)),
            lag_rows: written.saturating_sub(visible),
        }
    }
}

fn wait(shared: &Shared, deadline: Instant, reached: impl Fn(&History) -> bool) -> bool {
    let mut history = lock(&shared.history);
    loop {
        if reached(&history) {
            return true;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || shared.ending() {
            return false;
        }
        history = shared
            .moved
            .wait_timeout(history, left)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::types::{Cell, TableId};

    #[test]
    fn a_worker_that_panics_is_a_failure_and_nobody_hangs() {
        let (store, mut appender) = open(Options {
            workers: 2,
            segment_bytes: 64,
            ..Options::default()
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        let put = |appender: &mut Appender, lsn: u64| {
            appender.put(
                TableId(1),
                &lsn.to_be_bytes(),
                0,
                [Cell::Null].into_iter(),
                None,
            );
            appender.commit(Mark { lsn, time: 0 });
        };
        put(&mut appender, 1);
        appender.flush();
        assert!(store.wait_visible(1, deadline));
        appender.append_defect();
        // Far more than the queues hold.
        for lsn in 2..10_000 {
            put(&mut appender, lsn);
        }
        appender.flush();
        assert!(!store.wait_visible(9_999, deadline));
        assert!(Instant::now() < deadline);
        let Some(Failure::Panicked { thread, message }) = store.failure() else {
            panic!("{:?}", store.failure());
        };
        assert!(thread.starts_with("store-worker-"), "{thread}");
        assert_eq!(message, "row 4294967295 was never created");
        assert!(
            store
                .snapshot()
                .get(TableId(1), &1u64.to_be_bytes())
                .is_some()
        );
    }
}
