//! From a write-ahead file to a segment of the trace.
//!
//! ```text
//! trace.json                      format and version
//! claims/r0.json                  who owns recorder number 0
//! segments/r0-000001.json         manifest: the segment is part of the trace from when this exists
//! requests/r0-000001.parquet      one file per table that has rows, in a folder per table
//! transactions/r0-000001.parquet
//! …
//! wal/r0-000002.wal               what has not become a segment yet; in another place if the trace is in a store
//! wal/r0.lock                     held by the recorder as long as it lives
//! ```
//!
//! A segment is written tables first, manifest last, and only then is its write-ahead file removed. Doing it twice
//! gives the same files, so whoever finds a write-ahead file without a living owner may finish the job.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::parquet_table::{FORMAT_VERSION, Table, TableSummary, TableWriter};
use crate::store::{Store, StoreError, sync_parent};
use crate::tables::{Bases, FinalStates, Gaps, Recorders, Requests, Shapes, Transactions};
use crate::wal::Wal;
use crate::{Gap, GapCause, Location, Micros, OpenError, ReadError};

pub(crate) const TRACE_FILE: &str = "trace.json";
pub(crate) const FORMAT: &str = "hindcast-trace";

/// `trace.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TraceFile {
    pub format: String,
    pub version: u32,
    pub created: Micros,
    pub created_by: String,
}

impl TraceFile {
    pub fn new(created: Micros) -> Self {
        let created_by = format!("hindcast {}", env!("CARGO_PKG_VERSION"));
        Self {
            format: FORMAT.into(),
            version: FORMAT_VERSION,
            created,
            created_by,
        }
    }
}

/// `claims/r0.json`: created by exactly one recorder, then never changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub recorder: u16,
    pub host: String,
    pub pid: u32,
    pub claimed: Micros,
    /// Where its write-ahead files are, if not in the trace itself.
    pub wal_folder: Option<PathBuf>,
}

/// `segments/r0-000001.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub version: u32,
    pub recorder: u16,
    pub segment: u32,
    /// Everything recorded up to this time is in this segment or an earlier one.
    pub until: Micros,
    pub end: SegmentEnd,
    pub tables: BTreeMap<String, TableSummary>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SegmentEnd {
    /// Another segment follows.
    Rolled,
    /// The recorder's last one.
    Closed,
    /// The recorder's last one, written after it had crashed.
    Crashed,
}

pub(crate) fn recorder_name(recorder: u16) -> String {
    format!("r{recorder}")
}

pub(crate) fn segment_name(recorder: u16, segment: u32) -> String {
    format!("r{recorder}-{segment:06}")
}

/// The reverse of [`segment_name`], whatever the ending.
pub(crate) fn parse_segment_name(name: &str) -> Option<(u16, u32)> {
    let (recorder, segment) = name.split_once('.')?.0.strip_prefix('r')?.split_once('-')?;
    Some((recorder.parse().ok()?, segment.parse().ok()?))
}

pub(crate) fn claim_name(recorder: u16) -> String {
    format!("claims/{}.json", recorder_name(recorder))
}

pub(crate) fn manifest_name(recorder: u16, segment: u32) -> String {
    format!("segments/{}.json", segment_name(recorder, segment))
}

pub(crate) fn table_name<T: Table>(recorder: u16, segment: u32) -> String {
    format!("{}/{}.parquet", T::NAME, segment_name(recorder, segment))
}

/// Where write-ahead files of this trace are: inside it, or below a folder that several traces may share.
pub(crate) fn wal_folder(location: &Location, chosen: Option<&Path>) -> Result<PathBuf, OpenError> {
    match (location, chosen) {
        (Location::Folder(folder), None) => Ok(folder.join("wal")),
        (Location::S3 { .. }, None) => Err(OpenError::NoWalFolder {
            location: location.to_string(),
        }),
        (_, Some(chosen)) => {
            let name = match location {
                Location::Folder(folder) => fs::canonicalize(folder)
                    .unwrap_or_else(|_| folder.clone())
                    .display()
                    .to_string(),
                Location::S3 { .. } => location.to_string(),
            };
            let absolute = std::path::absolute(chosen).unwrap_or_else(|_| chosen.to_owned());
            Ok(absolute.join(format!(
                "{:016x}",
                xxhash_rust::xxh3::xxh3_64(name.as_bytes())
            )))
        }
    }
}

pub(crate) fn wal_path(folder: &Path, recorder: u16, segment: u32) -> PathBuf {
    folder.join(format!("{}.wal", segment_name(recorder, segment)))
}

pub(crate) fn lock_path(folder: &Path, recorder: u16) -> PathBuf {
    folder.join(format!("{}.lock", recorder_name(recorder)))
}

/// The write-ahead files in a folder, by recorder and segment.
pub(crate) fn list_wals(folder: &Path) -> Result<BTreeMap<u16, BTreeMap<u32, PathBuf>>, OpenError> {
    let failed = |source| OpenError::Io {
        what: format!("{} cannot be listed", folder.display()),
        source,
    };
    let mut found: BTreeMap<u16, BTreeMap<u32, PathBuf>> = BTreeMap::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(failed(error)),
    };
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let (Some((recorder, segment)), true) =
            (parse_segment_name(&name), name.ends_with(".wal"))
        {
            found
                .entry(recorder)
                .or_default()
                .insert(segment, path.clone());
        }
    }
    Ok(found)
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SegmentError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{what} cannot be written")]
    Write { what: String, source: io::Error },
}

impl SegmentError {
    /// The error and its causes: for the status, which is text.
    pub fn in_one_line(&self) -> String {
        if let Self::Store(error) = self {
            return error.in_one_line();
        }
        let mut line = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            line.push_str(&format!(": {error}"));
            cause = error.source();
        }
        line
    }
}

impl From<SegmentError> for OpenError {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::Store(error) => error.into(),
            SegmentError::Open(error) => error,
            SegmentError::Write { what, source } => Self::Io { what, source },
            SegmentError::Read(error) => Self::Io {
                what: "a write-ahead file cannot be turned into a segment".into(),
                source: io::Error::other(error),
            },
        }
    }
}

/// Turns a write-ahead file into a segment and removes it. `last`: no other file of this recorder follows.
pub(crate) fn finish_wal(
    store: &Store,
    path: &Path,
    recorder: u16,
    segment: u32,
    last: bool,
) -> Result<(), SegmentError> {
    let manifest_name = manifest_name(recorder, segment);
    let Some(mut wal) = Wal::open(path)? else {
        return Ok(());
    };
    if store.read(&manifest_name)?.is_none() {
        let end = match (wal.closed, last) {
            (Some(_), _) => SegmentEnd::Closed,
            (None, true) => SegmentEnd::Crashed,
            (None, false) => SegmentEnd::Rolled,
        };
        if end == SegmentEnd::Crashed || wal.torn.is_some() {
            let from = match wal.has_header() {
                true => wal.until,
                false => recorded_before(store, recorder, segment)?.unwrap_or(wal.until),
            };
            let to = wal.crashed_at().max(from);
            wal.small.gaps.push(Gap {
                from,
                to,
                cause: GapCause::Crashed { recorder },
            });
        }
        let manifest = write_segment(store, &wal, recorder, segment, end)?;
        let json = serde_json::to_vec_pretty(&manifest).expect("a manifest can be written as JSON");
        store.put(&manifest_name, json)?;
    }
    // What lies behind a tear is not in the segment: kept for whoever wants to look at it.
    let removed = match wal.torn {
        Some(_) => fs::rename(path, path.with_extension("torn")),
        None => fs::remove_file(path),
    };
    match removed.and_then(|()| sync_parent(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(SegmentError::Write {
            what: format!("{} cannot be removed", path.display()),
            source: error,
        }),
        _ => Ok(()),
    }
}

/// Up to when a recorder's records are in the segments before this one.
fn recorded_before(
    store: &Store,
    recorder: u16,
    segment: u32,
) -> Result<Option<Micros>, SegmentError> {
    let previous = store.read(&manifest_name(recorder, segment.saturating_sub(1)))?;
    if let Some(manifest) = previous.and_then(|json| serde_json::from_slice::<Manifest>(&json).ok())
    {
        return Ok(Some(manifest.until));
    }
    let claim = store.read(&claim_name(recorder))?;
    Ok(claim
        .and_then(|json| serde_json::from_slice::<Claim>(&json).ok())
        .map(|claim| claim.claimed))
}

fn write_segment(
    store: &Store,
    wal: &Wal,
    recorder: u16,
    segment: u32,
    end: SegmentEnd,
) -> Result<Manifest, SegmentError> {
    let output = Output {
        store,
        local: wal.path.parent().unwrap_or(Path::new(".")),
        recorder,
        segment,
    };
    let mut tables = BTreeMap::new();
    let index = wal.index()?;
    output.sorted::<Requests>(
        wal,
        &index.requests,
        wal.request_dictionary.pays(),
        &mut tables,
    )?;
    output.sorted::<Transactions>(
        wal,
        &index.transactions,
        wal.transaction_dictionary.pays(),
        &mut tables,
    )?;
    output.table::<Shapes>(&wal.small.shapes, &mut tables)?;
    output.table::<Gaps>(&wal.small.gaps, &mut tables)?;
    output.table::<Bases>(&wal.small.bases, &mut tables)?;
    output.table::<Recorders>(&wal.small.recorders, &mut tables)?;
    output.table::<FinalStates>(&wal.small.final_states, &mut tables)?;
    Ok(Manifest {
        version: FORMAT_VERSION,
        recorder,
        segment,
        until: wal.until,
        end,
        tables,
    })
}

struct Output<'a> {
    store: &'a Store,
    local: &'a Path,
    recorder: u16,
    segment: u32,
}

type Summaries = BTreeMap<String, TableSummary>;

impl Output<'_> {
    /// One record is in memory at a time, and one row group.
    fn sorted<T: Table>(
        &self,
        wal: &Wal,
        places: &[(u64, u64)],
        dictionary_pays: bool,
        tables: &mut Summaries,
    ) -> Result<(), SegmentError> {
        let rows = places.iter().map(|&(_, at)| {
            let record = wal.record_at(at)?;
            Ok(T::pick(record).expect("the index knows what is where"))
        });
        self.write::<T>(rows, dictionary_pays, tables)
    }

    fn table<T: Table>(&self, rows: &[T::Row], tables: &mut Summaries) -> Result<(), SegmentError>
    where
        T::Row: Clone,
    {
        self.write::<T>(rows.iter().cloned().map(Ok), true, tables)
    }

    fn write<T: Table>(
        &self,
        rows: impl ExactSizeIterator<Item = Result<T::Row, ReadError>>,
        dictionary_pays: bool,
        tables: &mut Summaries,
    ) -> Result<(), SegmentError> {
        if rows.len() == 0 {
            return Ok(());
        }
        let name = table_name::<T>(self.recorder, self.segment);
        let draft = self.store.draft(&name, self.local);
        let written = self.write_draft::<T>(&draft, rows, dictionary_pays);
        let published = written.and_then(|summary| {
            self.store.publish(&draft, &name)?;
            Ok(summary)
        });
        if published.is_err() {
            // Space may be what is missing.
            let _ = fs::remove_file(&draft);
        }
        tables.insert(T::NAME.to_owned(), published?);
        Ok(())
    }

    fn write_draft<T: Table>(
        &self,
        draft: &Path,
        rows: impl Iterator<Item = Result<T::Row, ReadError>>,
        dictionary_pays: bool,
    ) -> Result<TableSummary, SegmentError> {
        let failed = |source| SegmentError::Write {
            what: draft.display().to_string(),
            source,
        };
        crate::store::create_parent(draft).map_err(failed)?;
        let file = Hashed {
            inner: BufWriter::new(File::create(draft).map_err(failed)?),
            hash: Xxh3::new(),
        };
        let mut table = TableWriter::<T, _>::new(file, dictionary_pays)
            .map_err(|error| failed(io::Error::other(error)))?;
        for row in rows {
            table
                .write(&row?)
                .map_err(|error| failed(io::Error::other(error)))?;
        }
        let (file, mut summary) = table
            .finish()
            .map_err(|error| failed(io::Error::other(error)))?;
        summary.xxh3 = format!("{:016x}", file.hash.digest());
        let file = file
            .inner
            .into_inner()
            .map_err(|error| failed(error.into_error()))?;
        file.sync_all().map_err(failed)?;
        summary.bytes = file.metadata().map_err(failed)?.len();
        Ok(summary)
    }
}

/// Hashes what is written.
struct Hashed<W> {
    inner: W,
    hash: Xxh3,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Turns write-ahead files whose recorders are gone into segments; returns how many.
pub(crate) fn recover_folder(store: &Store, folder: &Path) -> Result<usize, SegmentError> {
    let mut recovered = 0;
    for (recorder, _) in list_wals(folder)? {
        let Some(lock) = Lock::take_if_orphaned(folder, recorder)? else {
            continue;
        };
        // Listed again: now nobody else changes them.
        let wals = list_wals(folder)?.remove(&recorder).unwrap_or_default();
        let last = wals.keys().next_back().copied();
        for (segment, path) in wals {
            finish_wal(store, &path, recorder, segment, Some(segment) == last)?;
            recovered += 1;
        }
        lock.remove();
    }
    Ok(recovered)
}

/// Held by a recorder for as long as its process lives; the kernel lets go of it when it is killed.
#[derive(Clone)]
pub(crate) struct Lock {
    path: PathBuf,
    _file: Arc<File>,
}

impl Lock {
    pub fn take(folder: &Path, recorder: u16) -> io::Result<Self> {
        let path = lock_path(folder, recorder);
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)?;
        file.lock()?;
        Ok(Self {
            path,
            _file: Arc::new(file),
        })
    }

    fn take_if_orphaned(folder: &Path, recorder: u16) -> Result<Option<Self>, OpenError> {
        let path = lock_path(folder, recorder);
        let failed = |source| OpenError::Io {
            what: format!("{} cannot be locked", path.display()),
            source,
        };
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self {
                path,
                _file: Arc::new(file),
            })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Whether a recorder on this machine holds it.
    pub fn is_held(folder: &Path, recorder: u16) -> bool {
        match File::open(lock_path(folder, recorder)) {
            Ok(file) => matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)),
            Err(_) => false,
        }
    }

    /// Nothing is left that it protects.
    pub fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }
}
