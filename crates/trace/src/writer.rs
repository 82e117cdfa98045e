//! The recording side.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{CloseError, Location, NotDurable, OpenError, Record};

#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// A crash loses at most what was recorded within this time.
    pub flush_interval: Duration,
    /// Only kept for the caller's convenience: who wants durability awaits [`Writer::durable`].
    pub durable: bool,
    /// A segment is closed and turned into Parquet after this time …
    pub roll_every: Duration,
    /// … or when its write-ahead file is this long.
    pub roll_bytes_max: usize,
    pub buffer_records_max: usize,
    pub buffer_bytes_max: usize,
    /// Where write-ahead files are kept; `wal` inside the trace if it is a folder.
    pub wal_folder: Option<PathBuf>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            flush_interval: Duration::from_secs(2),
            durable: false,
            roll_every: Duration::from_secs(15 * 60),
            roll_bytes_max: 128 << 20,
            buffer_records_max: 200_000,
            buffer_bytes_max: 64 << 20,
            wal_folder: None,
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
    /// Finished segments that have not reached the trace yet.
    pub segments_waiting: u64,
    pub segments_written: u64,
    /// Why the write-ahead file cannot be written at the moment.
    pub wal_failure: Option<String>,
    /// Why segments cannot be written at the moment.
    pub segment_failure: Option<String>,
}

/// Writes one recorder's part of a trace.
#[derive(Clone)]
pub struct Writer {
    shared: Arc<Shared>,
}

struct Shared;

impl Writer {
    /// Joins the trace at `location`, which is created if need be, and claims a recorder number.
    pub fn create(
        _location: &Location,
        _options: WriterOptions,
    ) -> Result<(Writer, u16), OpenError> {
        unreachable!("under construction")
    }

    /// Never blocks and never fails; what does not fit is counted and becomes a [`Gap`](crate::Gap).
    pub fn record(&self, _record: Record) {}

    /// Resolves when everything recorded before the call is on disk, or when that failed.
    pub fn durable(&self) -> impl Future<Output = Result<(), NotDurable>> + Send + 'static {
        let _shared = Arc::clone(&self.shared);
        async { Ok(()) }
    }

    pub fn status(&self) -> WriterStatus {
        WriterStatus::default()
    }

    /// Writes what is left and marks the recording as complete. Blocks for as long as that takes.
    pub fn close(self) -> Result<WriterStatus, CloseError> {
        unreachable!("under construction")
    }
}
