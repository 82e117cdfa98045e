//! The thread that turns finished write-ahead files into segments, however long that takes.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::segment::{Lock, finish_wal, recover_folder};
use crate::store::Store;
use crate::wal::Follows;

use super::options::WriterStatus;

const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Segments {
    queue: Mutex<Queue>,
    wake: Condvar,
    ended: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Oldest first.
    waiting: VecDeque<Finished>,
    written: u64,
    failure: Option<String>,
    ending: Option<End>,
    ended: bool,
}

#[derive(Clone)]
struct Finished {
    path: PathBuf,
    segment: u32,
    last: bool,
}

#[derive(Clone, Copy)]
enum End {
    /// Leave what is waiting to a later recovery.
    Abandoned,
    /// Finish, but do not try for longer than this.
    Closing { until: Instant },
}

impl Segments {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn status(&self) -> WriterStatus {
        let queue = self.lock();
        WriterStatus {
            segments_waiting: queue.waiting.len() as u64,
            segments_written: queue.written,
            segment_failure: queue.failure.clone(),
            ..WriterStatus::default()
        }
    }

    pub fn add(&self, path: PathBuf, segment: u32) {
        self.lock().waiting.push_back(Finished {
            path,
            segment,
            last: false,
        });
        self.wake.notify_one();
    }

    pub fn finish(&self, path: PathBuf, segment: u32, patience: Duration) {
        let mut queue = self.lock();
        queue.waiting.push_back(Finished {
            path,
            segment,
            last: true,
        });
        queue.ending = Some(End::Closing {
            until: Instant::now() + patience,
        });
        self.wake.notify_one();
    }

    pub fn abandon(&self) {
        self.lock().ending = Some(End::Abandoned);
        self.wake.notify_one();
    }

    /// Waits for the thread to end, but not if it is in the middle of something long.
    pub fn wait_for_end(&self, patience: Duration) {
        let queue = self.lock();
        let _ = self
            .ended
            .wait_timeout_while(queue, patience, |queue| !queue.ended);
    }

    /// `Err`: why not everything became a segment before the end.
    pub fn run(
        &self,
        store: &Store,
        wal_folder: &Path,
        recorder: u16,
        lock: Lock,
    ) -> Result<(), String> {
        let outcome = self.work(store, wal_folder, recorder, lock);
        self.lock().ended = true;
        self.ended.notify_all();
        outcome
    }

    fn work(
        &self,
        store: &Store,
        wal_folder: &Path,
        recorder: u16,
        lock: Lock,
    ) -> Result<(), String> {
        // Leftovers of other recorders: worth trying once, and never worth troubling this one.
        let _ = recover_folder(store, wal_folder);
        let mut retry = RETRY_MIN;
        while let Some(finished) = self.next() {
            let outcome = finish_wal(
                store,
                &finished.path,
                recorder,
                finished.segment,
                Follows::of_last(finished.last),
            );
            let mut queue = self.lock();
            match outcome {
                Ok(()) => {
                    queue.waiting.pop_front();
                    queue.written += 1;
                    queue.failure = None;
                    retry = RETRY_MIN;
                }
                Err(error) => {
                    queue.failure = Some(error.in_one_line());
                    self.pause(queue, retry);
                    retry = (retry * 2).min(RETRY_MAX);
                }
            }
        }
        let queue = self.lock();
        match (&queue.failure, queue.waiting.is_empty()) {
            (_, true) if matches!(queue.ending, Some(End::Closing { .. })) => {
                lock.remove();
                Ok(())
            }
            (_, true) => Ok(()),
            (failure, false) => Err(failure
                .clone()
                .unwrap_or_else(|| "the recording was abandoned".into())),
        }
    }

    /// The next file to work on; `None` when it is time to stop.
    fn next(&self) -> Option<Finished> {
        let mut queue = self.lock();
        loop {
            match queue.ending {
                Some(End::Abandoned) => return None,
                // The first attempt is made however late it is.
                Some(End::Closing { until })
                    if queue.failure.is_some() && Instant::now() >= until =>
                {
                    return None;
                }
                Some(End::Closing { .. }) if queue.waiting.is_empty() => return None,
                _ => {}
            }
            if let Some(finished) = queue.waiting.front() {
                return Some(finished.clone());
            }
            queue = self
                .wake
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits before another attempt, but not beyond the end.
    fn pause(&self, mut queue: MutexGuard<'_, Queue>, pause: Duration) {
        let mut due = Instant::now() + pause;
        loop {
            match queue.ending {
                Some(End::Abandoned) => return,
                Some(End::Closing { until }) => {
                    due = due.min(until).min(Instant::now() + RETRY_MIN)
                }
                None => {}
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let was_ending = queue.ending.is_some();
            queue = self
                .wake
                .wait_timeout(queue, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            if queue.ending.is_some() && !was_ending {
                // Closing: one more attempt right away.
                return;
            }
        }
    }
}
