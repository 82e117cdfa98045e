//! What callers and the writer's threads share: the buffer of records.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use super::options::WriterOptions;
use super::segments::Segments;
use crate::{Gap, GapCause, Micros, NotDurable, Record};

/// What callers and threads share.
pub(super) struct Shared {
    pub options: WriterOptions,
    pub state: Mutex<State>,
    /// Wakes the flusher before its time.
    pub wake: Condvar,
    pub progress: watch::Sender<Progress>,
    pub segments: Segments,
}

#[derive(Default)]
pub(super) struct State {
    /// Records for [`WalWriter::append`](crate::wal::WalWriter::append), and how many.
    pub pending: Vec<u8>,
    pub pending_counts: Counts,
    /// Handed to the flusher and not on disk yet; counts against the limits.
    pub writing_bytes: usize,
    pub writing_counts: Counts,
    pub accepted: u64,
    pub flushed: u64,
    pub dropped: Counts,
    /// Dropped and not yet in a gap record.
    pub gap: Option<Dropped>,
    pub flush_wanted: bool,
    pub ending: Option<Ending>,
    pub wal_failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Closed,
    Abandoned,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub requests: u64,
    pub transactions: u64,
    pub others: u64,
}

impl Counts {
    pub fn add(&mut self, record: &Record) {
        match record {
            Record::Request(_) => self.requests += 1,
            Record::Transaction(_) => self.transactions += 1,
            _ => self.others += 1,
        }
    }

    pub fn total(&self) -> u64 {
        self.requests + self.transactions + self.others
    }
}

pub(super) struct Dropped {
    pub counts: Counts,
    pub from: Micros,
    pub to: Micros,
    pub reason: String,
}

/// What those see who wait for durability.
#[derive(Clone, Default)]
pub(super) struct Progress {
    pub flushed: u64,
    pub failures: u64,
    pub reason: String,
}

impl Shared {
    /// A batch this long is written without waiting for its time.
    pub const EARLY_BYTES: usize = 4 << 20;

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn accept(&self, record: &Record, encoded: &[u8]) {
        let mut state = self.lock();
        let records = (state.pending_counts.total() + state.writing_counts.total()) as usize;
        let bytes = state.pending.len() + state.writing_bytes + encoded.len();
        let (mut records_max, mut bytes_max) = (
            self.options.buffer_records_max,
            self.options.buffer_bytes_max,
        );
        if !matches!(record, Record::Request(_) | Record::Transaction(_)) {
            // Few and irreplaceable (a shape is written only once), so they get room of their own.
            records_max += 1024 + records_max / 4;
            bytes_max += (1 << 20) + bytes_max / 4;
        }
        if records >= records_max || bytes > bytes_max || state.ending.is_some() {
            state.drop_record(record);
            return;
        }
        let early = |state: &State| {
            state.pending.len() >= Self::EARLY_BYTES
                || state.pending_counts.total() as usize >= self.options.buffer_records_max / 2
        };
        let early_before = early(&state);
        state.pending.extend_from_slice(encoded);
        state.pending_counts.add(record);
        state.accepted += 1;
        if early(&state) && !early_before {
            self.wake.notify_one();
        }
    }

    /// Whether less than half of the room is taken, or it makes no difference.
    pub fn has_room(&self) -> bool {
        let state = self.lock();
        let records = state.pending_counts.total() + state.writing_counts.total();
        let bytes = state.pending.len() + state.writing_bytes;
        let half_full = records as usize > self.options.buffer_records_max / 2
            || bytes > self.options.buffer_bytes_max / 2;
        !half_full || state.wal_failure.is_some() || state.ending.is_some()
    }

    /// The number that has to be on disk.
    pub fn want_flush(&self) -> Result<u64, NotDurable> {
        let mut state = self.lock();
        if state.flushed >= state.accepted {
            return Ok(state.accepted);
        }
        if let Some(reason) = &state.wal_failure {
            return Err(NotDurable {
                reason: reason.clone(),
            });
        }
        state.flush_wanted = true;
        self.wake.notify_one();
        Ok(state.accepted)
    }

    pub fn end(&self, ending: Ending) {
        self.lock().ending = Some(ending);
        self.wake.notify_one();
    }
}

impl State {
    fn drop_record(&mut self, record: &Record) {
        self.dropped.add(record);
        let (from, to) = match record {
            Record::Request(request) => (request.arrived, request.ended),
            Record::Transaction(transaction) => (transaction.began, transaction.ended),
            _ => {
                let now = now();
                (now, now)
            }
        };
        let reason = || match &self.wal_failure {
            Some(failure) => format!("the write-ahead file could not be written ({failure})"),
            None => "the buffer was full".to_owned(),
        };
        let gap = self.gap.get_or_insert_with(|| Dropped {
            counts: Counts::default(),
            from,
            to,
            reason: reason(),
        });
        gap.counts.add(record);
        gap.from = gap.from.min(from);
        gap.to = gap.to.max(to);
    }
}

impl Dropped {
    pub fn into_record(self) -> Record {
        let Counts {
            requests,
            transactions,
            others,
        } = self.counts;
        let reason = match others {
            0 => self.reason,
            others => format!("{}; {others} other records are missing, too", self.reason),
        };
        Record::Gap(Gap {
            from: self.from,
            to: self.to,
            cause: GapCause::Dropped {
                requests,
                transactions,
                reason,
            },
        })
    }
}

pub(super) fn now() -> Micros {
    // A clock before 1970 is no reason to stop recording.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as Micros)
}
