//! What a writer is told, and what it tells about itself.

use std::path::PathBuf;
use std::time::Duration;

use crate::Key;

#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// A crash loses at most what was recorded within this time.
    pub flush_interval: Duration,
    /// Only kept for the caller's convenience: who wants durability awaits
    /// [`durable`](super::Writer::durable).
    pub durable: bool,
    /// A write-ahead file becomes a segment after this time …
    pub roll_every: Duration,
    /// … or when it is this long.
    pub roll_bytes_max: usize,
    pub buffer_records_max: usize,
    pub buffer_bytes_max: usize,
    /// Where write-ahead files are kept; `wal` inside the trace if it is a folder. A trace in a
    /// store needs one.
    pub wal_folder: Option<PathBuf>,
    /// How long [`Writer::close`] keeps trying when the trace refuses.
    pub close_timeout: Duration,
    /// This writer records no requests: it must not take a number that requests would be named by.
    pub notes_only: bool,
    /// Encrypts the trace. The public key is enough.
    pub key: Option<Key>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            flush_interval: Duration::from_secs(2),
            durable: false,
            roll_every: Duration::from_secs(15 * 60),
            roll_bytes_max: 64 << 20,
            buffer_records_max: 200_000,
            buffer_bytes_max: 64 << 20,
            wal_folder: None,
            close_timeout: Duration::from_secs(15),
            notes_only: false,
            key: None,
        }
    }
}

/// How the writer is doing. Counters only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriterStatus {
    /// Records accepted, and of those on disk.
    pub accepted: u64,
    pub flushed: u64,
    pub dropped_requests: u64,
    pub dropped_transactions: u64,
    pub dropped_others: u64,
    /// Waiting in memory.
    pub buffered_records: u64,
    pub buffered_bytes: u64,
    /// Finished write-ahead files that have not become segments yet.
    pub segments_waiting: u64,
    pub segments_written: u64,
    /// Why the write-ahead file cannot be written at the moment.
    pub wal_failure: Option<String>,
    /// Why segments cannot be written at the moment.
    pub segment_failure: Option<String>,
}

impl WriterStatus {
    /// Whether anything was lost since the writer was created.
    pub fn lost_something(&self) -> bool {
        self.dropped_requests + self.dropped_transactions + self.dropped_others > 0
    }
}
