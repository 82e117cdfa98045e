//! The thread that owns the write-ahead file.

use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::store::Store;
use crate::wal::{WalHeader, WalWriter, add_to_batch};
use crate::{CloseError, Record, segment};

use super::shared::{Counts, Ending, Shared, now};

/// How soon a failed write is tried again.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_WHEN_CLOSING: Duration = Duration::from_millis(100);

pub(super) struct Flusher {
    shared: Arc<Shared>,
    store: Store,
    wal_folder: PathBuf,
    wal: WalWriter,
    wal_started: Instant,
    /// Taken from the buffer and not on disk yet. After a failure it is tried again as it is.
    batch: Vec<u8>,
    /// How many records are on disk once the batch is.
    through: u64,
    next_flush: Instant,
}

impl Flusher {
    pub fn new(shared: Arc<Shared>, store: Store, wal_folder: PathBuf, wal: WalWriter) -> Self {
        let now = Instant::now();
        let next_flush = now + shared.options.flush_interval;
        Self {
            shared,
            store,
            wal_folder,
            wal,
            wal_started: now,
            batch: Vec::new(),
            through: 0,
            next_flush,
        }
    }

    pub fn run(mut self) -> Result<(), CloseError> {
        loop {
            let ending = self.wait();
            match ending {
                None => {
                    let written = self.flush();
                    let pause = if written {
                        self.shared.options.flush_interval
                    } else {
                        RETRY
                    };
                    self.next_flush = Instant::now() + pause;
                    if written {
                        self.roll_if_due();
                    }
                }
                Some(Ending::Abandoned) => {
                    self.flush_all(Duration::ZERO);
                    self.shared.segments.abandon();
                    return Ok(());
                }
                Some(Ending::Closed) => return self.close(),
            }
        }
    }

    /// Sleeps until there is a reason to write.
    fn wait(&self) -> Option<Ending> {
        let mut state = self.shared.lock();
        loop {
            if state.ending.is_some() {
                return state.ending;
            }
            let early = state.flush_wanted
                || state.pending.len() >= Shared::EARLY_BYTES
                || state.pending_counts.total() as usize
                    >= self.shared.options.buffer_records_max.div_ceil(2);
            let left = self.next_flush.saturating_duration_since(Instant::now());
            if left.is_zero() || (early && state.wal_failure.is_none()) {
                return None;
            }
            let waited = self.shared.wake.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes what is there; says whether that worked.
    fn flush(&mut self) -> bool {
        if self.batch.is_empty() {
            self.take_batch();
        }
        let now = now();
        if self.batch.is_empty() {
            // Only tells a reader until when nothing happened; the next batch will show whether
            // there is a problem.
            let _ = self.wal.note_time(now);
            return true;
        }
        let written = self.wal.append(&self.batch, now);
        let mut state = self.shared.lock();
        match written {
            Ok(()) => {
                self.batch.clear();
                self.batch.shrink_to(Shared::EARLY_BYTES);
                state.writing_bytes = 0;
                state.writing_counts = Counts::default();
                state.flushed = self.through;
                state.wal_failure = None;
                self.shared
                    .progress
                    .send_modify(|progress| progress.flushed = self.through);
                true
            }
            Err(error) => {
                let reason = format!("{}: {error}", self.wal.path().display());
                state.wal_failure = Some(reason.clone());
                self.shared.progress.send_modify(|progress| {
                    progress.failures += 1;
                    progress.reason = reason;
                });
                false
            }
        }
    }

    fn take_batch(&mut self) {
        let mut state = self.shared.lock();
        mem::swap(&mut state.pending, &mut self.batch);
        state.writing_counts = mem::take(&mut state.pending_counts);
        state.flush_wanted = false;
        self.through = state.accepted;
        let gap = state.gap.take();
        state.writing_bytes = self.batch.len();
        drop(state);
        if let Some(gap) = gap {
            add_to_batch(&gap.into_record(), &mut self.batch);
        }
    }

    /// Flushes until nothing is left; gives up after `patience` of failures.
    fn flush_all(&mut self, patience: Duration) -> bool {
        let give_up = Instant::now() + patience;
        loop {
            if self.flush() {
                if self.shared.lock().pending.is_empty() {
                    return true;
                }
            } else if Instant::now() >= give_up {
                return false;
            } else {
                std::thread::sleep(RETRY_WHEN_CLOSING);
            }
        }
    }

    fn close(mut self) -> Result<(), CloseError> {
        let patience = self.shared.options.close_timeout;
        let mut flushed = self.flush_all(patience);
        if flushed {
            // What came after the end was asked for is a gap of its own.
            self.take_batch();
            add_to_batch(&Record::Closed { at: now() }, &mut self.batch);
            flushed = self.flush_all(patience);
        }
        // Without its end the file is one of a crashed recorder, which is for a later recovery to
        // say.
        if !flushed {
            self.shared.segments.abandon();
            let state = self.shared.lock();
            let Counts {
                requests,
                transactions,
                ..
            } = state.writing_counts;
            return Err(CloseError::Lost {
                requests: requests + state.pending_counts.requests,
                transactions: transactions + state.pending_counts.transactions,
                reason: state.wal_failure.clone().unwrap_or_default(),
            });
        }
        let WalHeader { segment, .. } = self.wal.header();
        self.shared
            .segments
            .finish(self.wal.path().to_owned(), segment, patience);
        Ok(())
    }

    /// Goes on with a new file and hands the old one over. Where no new file can be created the old
    /// one just grows.
    fn roll_if_due(&mut self) {
        let options = &self.shared.options;
        let due = self.wal.bytes() >= options.roll_bytes_max as u64
            || self.wal_started.elapsed() >= options.roll_every;
        if !due || self.wal.is_empty() {
            return;
        }
        let header = self.wal.header();
        let next = WalHeader {
            segment: header.segment + 1,
            created: now(),
            ..header
        };
        let path = segment::wal_path(&self.wal_folder, next.recorder, next.segment);
        if let Ok(wal) = WalWriter::create(path, next, self.store.keyring()) {
            let finished = mem::replace(&mut self.wal, wal);
            self.wal_started = Instant::now();
            self.shared
                .segments
                .add(finished.path().to_owned(), header.segment);
        }
    }
}
