//! The recording side: records go into a buffer, from there to the write-ahead file, from there
//! into segments.
//!
//! ```text
//! record() ──▶ buffer ──▶ flusher thread ──▶ write-ahead file ──▶ segment thread ──▶ trace
//!              bounded     every flush        durable              when it is old      Parquet
//!                          interval                                or long enough
//! ```
//!
//! The invariant: the caller is never held up and never sees an error. What cannot be kept is
//! counted, and becomes a [`Gap`](crate::Gap) in the trace as soon as anything can be written
//! again.

mod flusher;
mod options;
mod resume;
mod segments;
mod shared;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::watch;

use crate::reader::Access;
use crate::segment::{self, Claim, Lock, TRACE_FILE, TraceFile};
use crate::store::Store;
use crate::wal::{WalHeader, WalWriter, add_to_batch};
use crate::{CloseError, Location, NotDurable, OpenError, Record, reader};
use flusher::Flusher;
pub use options::{WriterOptions, WriterStatus};
pub use resume::{Resume, Resumed};
use segments::Segments;
use shared::{Ending, Shared, now};

/// Writes one recorder's part of a trace. Clones write into the same part.
///
/// Dropping the last clone without [`close`](Self::close) flushes what there is but leaves the
/// recording unfinished: readers will see it as one that crashed.
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

impl Writer {
    /// Joins the trace at `location`, which is created if need be, and claims a recorder number.
    ///
    /// Blocks until all of that has happened; only now can recording fail. What recorders on this
    /// machine left behind when they crashed is made into segments in the background.
    pub fn create(location: &Location, options: WriterOptions) -> Result<(Writer, u16), OpenError> {
        let store = Store::new(location)?;
        let now = now();
        let key = options.key.clone();
        let trace_file = serde_json::to_vec_pretty(&TraceFile::new(now, key.as_ref()))
            .expect("the trace file can be written as JSON");
        store.create(TRACE_FILE, trace_file)?;
        let store = reader::admit(store, key.as_ref(), Access::Write)?;

        let wal_folder = segment::wal_folder(location, options.wal_folder.as_deref())?;
        let failed = |source| OpenError::Io {
            what: format!("{} cannot be written", wal_folder.display()),
            source,
        };
        hindcast_private::folders(&wal_folder).map_err(failed)?;
        let mut claim = Claim {
            recorder: 0,
            host: hostname(),
            pid: std::process::id(),
            claimed: now,
            wal_folder: options.wal_folder.is_some().then(|| wal_folder.clone()),
        };
        let lock = claim_number(&store, &wal_folder, &mut claim, options.notes_only)?;
        let recorder = claim.recorder;
        let writer = Self::start(store, options, wal_folder, (recorder, 1), lock)?;
        Ok((writer, recorder))
    }

    /// Begins to write, with this segment.
    fn start(
        store: Store,
        options: WriterOptions,
        wal_folder: PathBuf,
        (recorder, segment): (u16, u32),
        lock: Lock,
    ) -> Result<Writer, OpenError> {
        let failed = |source| OpenError::Io {
            what: format!("{} cannot be written", wal_folder.display()),
            source,
        };
        let header = WalHeader {
            recorder,
            segment,
            created: now(),
            flush_interval_us: options.flush_interval.as_micros() as u64,
            address: None,
        };
        let wal_path = segment::wal_path(&wal_folder, recorder, segment);
        let wal = WalWriter::create(wal_path, header, store.keyring()).map_err(failed)?;

        let shared = Arc::new(Shared {
            options,
            state: Mutex::default(),
            wake: Condvar::new(),
            progress: watch::Sender::default(),
            segments: Segments::default(),
        });
        let flusher = Flusher::new(Arc::clone(&shared), store.clone(), wal_folder.clone(), wal);
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
        Ok(Writer {
            handle: Arc::new(Handle {
                shared,
                wal_folder,
                threads,
            }),
        })
    }

    /// Never blocks and never fails; what does not fit is counted and becomes a
    /// [`Gap`](crate::Gap).
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

    /// Whether much more can be recorded without losing any of it. Who can wait should, if not;
    /// where the disk takes nothing, waiting does not help.
    pub fn has_room(&self) -> bool {
        self.handle.shared.has_room()
    }

    /// Where write-ahead files are kept.
    pub fn wal_folder(&self) -> &Path {
        &self.handle.wal_folder
    }

    /// Where this recorder may keep what it has not made records of. As long as the folder is
    /// there, the recording is taken to go on: see [`Writer::resume`].
    pub fn spool_folder(&self, recorder: u16) -> PathBuf {
        segment::spool_folder(&self.handle.wal_folder, recorder)
    }

    /// Resolves when everything recorded before the call is on disk, or when that failed.
    ///
    /// Those who wait at the same time share one write. While the write-ahead file cannot be
    /// written this resolves at once, so that a full disk does not slow the service down.
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

    /// Writes what is left and marks the recording as complete. Blocks for as long as that takes,
    /// at most about twice [`WriterOptions::close_timeout`] if the trace refuses.
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

/// Numbers from here on belong to writers that record no requests. They are claimed from the top,
/// so that requests are named by the lowest numbers: request 17 is recorder 0's, whatever was noted
/// in the trace before.
const NOTES_FROM: u16 = 0x4000;

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Claims a number that was never claimed. Its lock is held before the claim can be seen: a claim
/// whose lock nobody holds is that of a recorder that was killed.
fn claim_number(
    store: &Store,
    wal_folder: &Path,
    claim: &mut Claim,
    notes_only: bool,
) -> Result<Lock, OpenError> {
    let taken = store.list("claims")?;
    let taken = taken.iter().filter_map(|name| {
        name.strip_prefix('r')?
            .strip_suffix(".json")?
            .parse::<u16>()
            .ok()
    });
    let (of_notes, of_requests): (Vec<u16>, Vec<u16>) =
        taken.partition(|&number| number >= NOTES_FROM);
    // Ids are signed 64-bit integers in Parquet, so that every reader can deal with them: 15 bits
    // are left for the number.
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
        let Some(lock) = Lock::take_if_free(wal_folder, recorder)? else {
            continue;
        };
        claim.recorder = recorder;
        let json = serde_json::to_vec_pretty(claim).expect("a claim can be written as JSON");
        if store.create(&segment::claim_name(recorder), json)? {
            return Ok(lock);
        }
        lock.remove();
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
