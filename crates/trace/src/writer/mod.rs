//! The recording side: records go into a buffer, from there to the write-ahead file, from there into segments.
//!
//! ```text
//! record() ──▶ buffer ──▶ flusher thread ──▶ write-ahead file ──▶ segment thread ──▶ trace
//!              bounded     every flush        durable              when it is old      Parquet
//!                          interval                                or long enough
//! ```
//!
//! The invariant: the caller is never held up and never sees an error. What cannot be kept is counted, and
//! becomes a [`Gap`](crate::Gap) in the trace as soon as anything can be written again.

mod flusher;
mod segments;

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::segment::{self, Claim, Lock, TRACE_FILE, TraceFile};
use crate::store::Store;
use crate::wal::{WalHeader, WalWriter, add_to_batch};
use crate::{CloseError, Gap, GapCause, Location, Micros, NotDurable, OpenError, Record, reader};

use flusher::Flusher;
use segments::Segments;

#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// A crash loses at most what was recorded within this time.
    pub flush_interval: Duration,
    /// Only kept for the caller's convenience: who wants durability awaits [`Writer::durable`].
    pub durable: bool,
    /// A write-ahead file becomes a segment after this time …
    pub roll_every: Duration,
    /// … or when it is this long.
    pub roll_bytes_max: usize,
    pub buffer_records_max: usize,
    pub buffer_bytes_max: usize,
    /// Where write-ahead files are kept; `wal` inside the trace if it is a folder. A trace in a store needs one.
    pub wal_folder: Option<PathBuf>,
    /// How long [`Writer::close`] keeps trying when the trace refuses.
    pub close_timeout: Duration,
    /// This writer records no requests: it must not take a number that requests would be named by.
    pub notes_only: bool,
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

/// Writes one recorder's part of a trace. Clones write into the same part.
///
/// Dropping the last clone without [`close`](Self::close) flushes what there is but leaves the recording
/// unfinished: readers will see it as one that crashed.
#[derive(Clone)]
pub struct Writer {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    wal_folder: PathBuf,
    threads: Mutex<Option<Threads>>,
}

struct Threads {
    flusher: JoinHandle<Result<(), CloseError>>,
    segments: JoinHandle<Result<(), String>>,
}

/// What callers and threads share.
struct Shared {
    options: WriterOptions,
    state: Mutex<State>,
    /// Wakes the flusher before its time.
    wake: Condvar,
    progress: watch::Sender<Progress>,
    segments: Segments,
}

#[derive(Default)]
struct State {
    /// Records for [`WalWriter::append`], and how many.
    pending: Vec<u8>,
    pending_counts: Counts,
    /// Handed to the flusher and not on disk yet; counts against the limits.
    writing_bytes: usize,
    writing_counts: Counts,
    accepted: u64,
    flushed: u64,
    dropped: Counts,
    /// Dropped and not yet in a gap record.
    gap: Option<Dropped>,
    flush_wanted: bool,
    ending: Option<Ending>,
    wal_failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Closed,
    Abandoned,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    requests: u64,
    transactions: u64,
    others: u64,
}

impl Counts {
    fn add(&mut self, record: &Record) {
        match record {
            Record::Request(_) => self.requests += 1,
            Record::Transaction(_) => self.transactions += 1,
            _ => self.others += 1,
        }
    }

    fn total(&self) -> u64 {
        self.requests + self.transactions + self.others
    }
}

struct Dropped {
    counts: Counts,
    from: Micros,
    to: Micros,
    reason: String,
}

/// For those who wait for durability.
#[derive(Clone, Default)]
struct Progress {
    flushed: u64,
    failures: u64,
    reason: String,
}

impl Writer {
    /// Joins the trace at `location`, which is created if need be, and claims a recorder number.
    ///
    /// Blocks until all of that has happened; only now can recording fail. What recorders on this machine left behind
    /// when they crashed is made into segments in the background.
    pub fn create(location: &Location, options: WriterOptions) -> Result<(Writer, u16), OpenError> {
        let store = Store::new(location)?;
        let now = now();
        let trace_file = serde_json::to_vec_pretty(&TraceFile::new(now))
            .expect("the trace file can be written as JSON");
        store.create(TRACE_FILE, trace_file)?;
        reader::check_version(&store)?;

        let wal_folder = segment::wal_folder(location, options.wal_folder.as_deref())?;
        let failed = |source| OpenError::Io {
            what: format!("{} cannot be written", wal_folder.display()),
            source,
        };
        std::fs::create_dir_all(&wal_folder).map_err(failed)?;
        let inside = options.wal_folder.is_none();
        let recorder = claim_number(
            &store,
            now,
            (!inside).then(|| wal_folder.clone()),
            options.notes_only,
        )?;
        let lock = Lock::take(&wal_folder, recorder).map_err(failed)?;
        let flush_interval_us = options.flush_interval.as_micros() as u64;
        let header = WalHeader {
            recorder,
            segment: 1,
            created: now,
            flush_interval_us,
        };
        let wal = WalWriter::create(segment::wal_path(&wal_folder, recorder, 1), header)
            .map_err(failed)?;

        let shared = Arc::new(Shared {
            options,
            state: Mutex::default(),
            wake: Condvar::new(),
            progress: watch::Sender::default(),
            segments: Segments::default(),
        });
        let flusher = Flusher::new(Arc::clone(&shared), wal_folder.clone(), wal);
        let flusher_lock = lock.clone();
        let flusher = spawn("hindcast-wal", move || {
            let outcome = flusher.run();
            drop(flusher_lock);
            outcome
        })
        .map_err(failed)?;
        let segments = {
            let (shared, wal_folder) = (Arc::clone(&shared), wal_folder.clone());
            spawn("hindcast-segments", move || {
                shared.segments.run(&store, &wal_folder, recorder, lock)
            })
            .map_err(failed)?
        };
        let threads = Mutex::new(Some(Threads { flusher, segments }));
        Ok((
            Writer {
                handle: Arc::new(Handle {
                    shared,
                    wal_folder,
                    threads,
                }),
            },
            recorder,
        ))
    }

    /// Never blocks and never fails; what does not fit is counted and becomes a [`Gap`].
    pub fn record(&self, record: Record) {
        thread_local! {
            static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            add_to_batch(&record, scratch);
            self.handle.shared.accept(&record, scratch);
            // One long body must not stay in every thread for ever.
            scratch.shrink_to(1 << 20);
        });
    }

    /// Resolves when everything recorded before the call is on disk, or when that failed.
    ///
    /// Those who wait at the same time share one write. While the write-ahead file cannot be written this
    /// resolves at once, so that a full disk does not slow the service down.
    pub fn durable(&self) -> impl Future<Output = Result<(), NotDurable>> + Send + 'static {
        let mut progress = self.handle.shared.progress.subscribe();
        let wanted = self.handle.shared.want_flush();
        async move {
            let ticket = wanted?;
            let failures = progress.borrow().failures;
            loop {
                {
                    let progress = progress.borrow_and_update();
                    if progress.flushed >= ticket {
                        return Ok(());
                    }
                    if progress.failures > failures {
                        return Err(NotDurable {
                            reason: progress.reason.clone(),
                        });
                    }
                }
                if progress.changed().await.is_err() {
                    return Err(NotDurable {
                        reason: "the recording has ended".into(),
                    });
                }
            }
        }
    }

    pub fn status(&self) -> WriterStatus {
        let shared = &self.handle.shared;
        let mut status = shared.segments.status();
        let state = shared.lock();
        status.accepted = state.accepted;
        status.flushed = state.flushed;
        status.dropped_requests = state.dropped.requests;
        status.dropped_transactions = state.dropped.transactions;
        status.dropped_others = state.dropped.others;
        status.buffered_records = state.pending_counts.total() + state.writing_counts.total();
        status.buffered_bytes = (state.pending.len() + state.writing_bytes) as u64;
        status.wal_failure = state.wal_failure.clone();
        status
    }

    /// Writes what is left and marks the recording as complete. Blocks for as long as that takes, at most about
    /// twice [`WriterOptions::close_timeout`] if the trace refuses.
    pub fn close(self) -> Result<WriterStatus, CloseError> {
        let threads = self
            .handle
            .threads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let threads = threads.ok_or(CloseError::ClosedBefore)?;
        self.handle.shared.end(Ending::Closed);
        let flushed = threads
            .flusher
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let published = threads
            .segments
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        flushed?;
        published.map_err(|reason| CloseError::NotPublished {
            wal_folder: self.handle.wal_folder.clone(),
            reason,
        })?;
        Ok(self.status())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let threads = self
            .threads
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(threads) = threads {
            self.shared.end(Ending::Abandoned);
            let _ = threads.flusher.join();
            // In the middle of a long upload the segment thread ends by itself some time.
            self.shared.segments.wait_for_end(Duration::from_secs(1));
        }
    }
}

impl Shared {
    /// A batch this long is written without waiting for its time.
    const EARLY_BYTES: usize = 4 << 20;

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(&self, record: &Record, encoded: &[u8]) {
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

    /// The number that has to be on disk.
    fn want_flush(&self) -> Result<u64, NotDurable> {
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

    fn end(&self, ending: Ending) {
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
    fn into_record(self) -> Record {
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

/// Numbers from here on belong to writers that record no requests. They are claimed from the top, so that requests are named by the
/// lowest numbers: request 17 is recorder 0's, whatever was noted in the trace before.
const NOTES_FROM: u16 = 0x4000;

/// Claims a number that was never claimed.
fn claim_number(
    store: &Store,
    now: Micros,
    wal_folder: Option<PathBuf>,
    notes_only: bool,
) -> Result<u16, OpenError> {
    let taken = store.list("claims")?;
    let taken = taken.iter().filter_map(|name| {
        name.strip_prefix('r')?
            .strip_suffix(".json")?
            .parse::<u16>()
            .ok()
    });
    let (of_notes, of_requests): (Vec<u16>, Vec<u16>) =
        taken.partition(|&number| number >= NOTES_FROM);
    // Ids are signed 64-bit integers in Parquet, so that every reader can deal with them: 15 bits are left for the number.
    let candidates: Box<dyn Iterator<Item = u16>> = if notes_only {
        let end = of_notes.into_iter().min().unwrap_or(i16::MAX as u16 + 1);
        Box::new((NOTES_FROM..end).rev())
    } else {
        let start = of_requests
            .into_iter()
            .max()
            .map_or(0, |highest| highest + 1);
        Box::new(start..NOTES_FROM)
    };
    for recorder in candidates {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
            .unwrap_or_default()
            .trim()
            .to_owned();
        let claim = Claim {
            recorder,
            host,
            pid: std::process::id(),
            claimed: now,
            wal_folder: wal_folder.clone(),
        };
        let json = serde_json::to_vec_pretty(&claim).expect("a claim can be written as JSON");
        if store.create(&segment::claim_name(recorder), json)? {
            return Ok(recorder);
        }
    }
    Err(OpenError::NoNumberLeft {
        location: store.location().to_string(),
    })
}

fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(body)
}

fn now() -> Micros {
    // A clock before 1970 is no reason to stop recording.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as Micros)
}
