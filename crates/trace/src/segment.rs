//! From a write-ahead file to a segment of the trace.
//!
//! ```text
//! trace.json                      format and version
//! claims/r0.json                  who owns recorder number 0
//! segments/r0-000001.json         manifest: the segment is part of the trace from when this exists
//! requests/r0-000001.parquet      one file per table that has rows, in a folder per table
//! transactions/r0-000001.parquet
//! …
//! wal/r0-000002.wal               what has not become a segment yet; in another place if the trace
//!                                 is in a store
//! wal/r0.lock                     held by the recorder as long as it lives
//! wal/r0.spool/                   what it has not made records of yet, if others can read it
//! ```
//!
//! A segment is written tables first, manifest last, and only then is its write-ahead file removed.
//! Doing it twice gives the same files, so any process that finds a write-ahead file without a
//! living owner may finish the job.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::crypt::SealingWriter;
use crate::parquet_table::{
    FORMAT_VERSION, PRUNED_VERSION, SEALED_VERSION, SUPPORTED_VERSION, Table, TableSummary,
    TableWriter,
};
use crate::store::{Store, StoreError, sync_parent};
use crate::tables::{Bases, FinalStates, Gaps, Recorders, Requests, Shapes, Transactions};
use crate::wal::{Follows, Small, Wal};
use crate::{Gap, GapCause, Key, Location, Micros, OpenError, ReadError};

pub(crate) const TRACE_FILE: &str = "trace.json";
pub(crate) const FORMAT: &str = "hindcast-trace";

/// `trace.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TraceFile {
    pub format: String,
    pub version: u32,
    pub created: Micros,
    pub created_by: String,
    /// Absent: nothing is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
}

/// For whom the tables and write-ahead files of a trace are encrypted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Encryption {
    /// Its id, by which people find it.
    pub key: String,
    pub public_key: String,
}

impl TraceFile {
    pub fn new(created: Micros, key: Option<&Key>) -> Self {
        let created_by = format!("hindcast {}", env!("CARGO_PKG_VERSION"));
        Self {
            format: FORMAT.into(),
            version: key.map_or(FORMAT_VERSION, |_| SEALED_VERSION),
            created,
            created_by,
            encryption: key.map(|key| Encryption {
                key: key.id().to_string(),
                public_key: key.public().to_string(),
            }),
        }
    }
}

impl TraceFile {
    /// Of a copy in which nothing is encrypted.
    pub fn decrypted(self, pruned: bool) -> Self {
        Self {
            version: if pruned {
                PRUNED_VERSION
            } else {
                FORMAT_VERSION
            },
            encryption: None,
            ..self
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

/// `pruned/r0-000008.json`: the segments of a recorder up to this one were removed.
///
/// A segment is gone from the moment its marker exists; its files are removed afterwards. Of
/// several markers of a recorder the last counts, and holds what the earlier ones held.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Marker {
    pub version: u32,
    pub recorder: u16,
    pub through: u32,
    pub pruned: Micros,
    /// What was removed, in all.
    pub requests: u64,
    pub transactions: u64,
    pub bytes: u64,
    /// From the first arrival or beginning to the last thing that was recorded.
    pub from: Micros,
    pub until: Micros,
    /// How the last of the segments ended.
    pub end: SegmentEnd,
    /// Ids of requests that were removed.
    pub first_request: Option<u64>,
    pub last_request: Option<u64>,
    /// What the files are called that hold the small tables of the removed segments.
    pub carried: String,
    pub tables: BTreeMap<String, TableSummary>,
}

pub(crate) fn marker_name(recorder: u16, through: u32) -> String {
    format!("pruned/{}.json", segment_name(recorder, through))
}

/// The last marker of each recorder.
pub(crate) fn read_markers(store: &Store) -> Result<BTreeMap<u16, Marker>, OpenError> {
    let mut last = BTreeMap::new();
    for name in store.list("pruned")? {
        if let Some((recorder, through)) = parse_segment_name(&name) {
            let known = last.entry(recorder).or_insert(through);
            *known = through.max(*known);
        }
    }
    let mut markers = BTreeMap::new();
    for (recorder, through) in last {
        if let Some(marker) = read_marker(store, recorder, through)? {
            markers.insert(recorder, marker);
        }
    }
    Ok(markers)
}

fn read_marker(store: &Store, recorder: u16, through: u32) -> Result<Option<Marker>, OpenError> {
    let name = marker_name(recorder, through);
    let what = store.shown(&name);
    let Some(bytes) = store.read(&name)? else {
        return Ok(None);
    };
    let damaged = |error: serde_json::Error| OpenError::Damaged {
        what: what.clone(),
        reason: error.to_string(),
    };
    let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(damaged)?;
    refuse_newer(&json, &what)?;
    serde_json::from_value(json).map(Some).map_err(damaged)
}

/// Whether a segment was pruned, now.
pub(crate) fn is_pruned(store: &Store, recorder: u16, segment: u32) -> Result<bool, OpenError> {
    let markers = store.list("pruned")?;
    let mut markers = markers.iter().filter_map(|name| parse_segment_name(name));
    Ok(markers.any(|(of, through)| of == recorder && segment <= through))
}

/// Refuses what a later version wrote. Only what all versions agree on is looked at.
pub(crate) fn refuse_newer(json: &serde_json::Value, what: &str) -> Result<(), OpenError> {
    match json["version"].as_u64() {
        Some(found) if found > u64::from(SUPPORTED_VERSION) => Err(OpenError::Newer {
            what: what.to_owned(),
            found: u32::try_from(found).unwrap_or(u32::MAX),
            supported: SUPPORTED_VERSION,
        }),
        _ => Ok(()),
    }
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

/// `files`: [`segment_name`], or [`Marker::carried`].
pub(crate) fn table_name<T: Table>(files: &str) -> String {
    format!("{}/{files}.parquet", T::NAME)
}

/// The folders of tables, one file per segment in each.
pub(crate) const TABLES: [&str; 7] = [
    Requests::NAME,
    Transactions::NAME,
    Shapes::NAME,
    Gaps::NAME,
    Bases::NAME,
    Recorders::NAME,
    FinalStates::NAME,
];

/// Whether a folder of this name in a trace is ours.
pub(crate) fn is_folder_of_a_trace(name: &str) -> bool {
    ["claims", "segments", "wal", "pruned"].contains(&name) || TABLES.contains(&name)
}

/// Where write-ahead files of this trace are: inside it, or below a folder that several traces may
/// share.
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

/// Where a recorder may keep what it has not made records of yet. As long as the folder is there,
/// what it has recorded is not taken for all.
pub(crate) fn spool_folder(folder: &Path, recorder: u16) -> PathBuf {
    folder.join(format!("{}.spool", recorder_name(recorder)))
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

/// Turns a write-ahead file into a segment and removes it.
pub(crate) fn finish_wal(
    store: &Store,
    path: &Path,
    recorder: u16,
    segment: u32,
    follows: Follows,
) -> Result<(), SegmentError> {
    let manifest_name = manifest_name(recorder, segment);
    let Some(mut wal) = Wal::open(path, store.keyring())? else {
        return Ok(());
    };
    // Removing the file may have failed before its segment was pruned.
    let pruned = is_pruned(store, recorder, segment)?;
    if !pruned && store.read(&manifest_name)?.is_none() {
        let end = conclude(store, &mut wal, recorder, segment, follows)?;
        let manifest = write_segment(store, &wal, recorder, segment, end)?;
        let json = serde_json::to_vec_pretty(&manifest).expect("a manifest can be written as JSON");
        store.put(&manifest_name, json)?;
    }
    // What lies behind a tear is not in the segment. It is kept to be looked at.
    let removed = match wal.torn {
        Some(_) => fs::rename(path, path.with_extension("torn")),
        None => fs::remove_file(path),
    };
    if let (Some(keyring), Ok(())) = (store.keyring(), &removed) {
        keyring.forget(path);
    }
    match removed.and_then(|()| sync_parent(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(SegmentError::Write {
            what: format!("{} cannot be removed", path.display()),
            source: error,
        }),
        _ => Ok(()),
    }
}

/// How the segment of a write-ahead file ends; adds the gap of a crash.
pub(crate) fn conclude(
    store: &Store,
    wal: &mut Wal,
    recorder: u16,
    segment: u32,
    follows: Follows,
) -> Result<SegmentEnd, SegmentError> {
    let end = match (wal.closed, follows) {
        (Some(_), _) => SegmentEnd::Closed,
        (None, Follows::Nothing) => SegmentEnd::Crashed,
        (None, Follows::Another | Follows::Resumed) => SegmentEnd::Rolled,
    };
    let torn = wal.torn.is_some() && follows != Follows::Resumed;
    if end == SegmentEnd::Crashed || torn {
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
    Ok(end)
}

/// Up to when a recorder's records are in the segments before this one.
pub(crate) fn recorded_before(
    store: &Store,
    recorder: u16,
    segment: u32,
) -> Result<Option<Micros>, SegmentError> {
    let previous = store.read(&manifest_name(recorder, segment.saturating_sub(1)))?;
    if let Some(manifest) = previous.and_then(|json| serde_json::from_slice::<Manifest>(&json).ok())
    {
        return Ok(Some(manifest.until));
    }
    if let Some(marker) = read_markers(store)?.remove(&recorder) {
        return Ok(Some(marker.until));
    }
    let claim = store.read(&claim_name(recorder))?;
    Ok(claim
        .and_then(|json| serde_json::from_slice::<Claim>(&json).ok())
        .map(|claim| claim.claimed))
}

pub(crate) fn write_segment(
    store: &Store,
    wal: &Wal,
    recorder: u16,
    segment: u32,
    end: SegmentEnd,
) -> Result<Manifest, SegmentError> {
    let output = Output {
        store,
        local: wal.path.parent().unwrap_or(Path::new(".")),
        files: segment_name(recorder, segment),
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
    output.small(&wal.small, &mut tables)?;
    Ok(Manifest {
        version: FORMAT_VERSION,
        recorder,
        segment,
        until: wal.until,
        end,
        tables,
    })
}

/// Writes the small tables of segments that are about to be pruned.
pub(crate) fn carry(
    store: &Store,
    local: &Path,
    files: &str,
    small: &Small,
) -> Result<Summaries, SegmentError> {
    let output = Output {
        store,
        local,
        files: files.to_owned(),
    };
    let mut tables = Summaries::new();
    output.small(small, &mut tables)?;
    Ok(tables)
}

struct Output<'a> {
    store: &'a Store,
    local: &'a Path,
    files: String,
}

pub(crate) type Summaries = BTreeMap<String, TableSummary>;

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

    fn small(&self, small: &Small, tables: &mut Summaries) -> Result<(), SegmentError> {
        self.table::<Shapes>(&small.shapes, tables)?;
        self.table::<Gaps>(&small.gaps, tables)?;
        self.table::<Bases>(&small.bases, tables)?;
        self.table::<Recorders>(&small.recorders, tables)?;
        self.table::<FinalStates>(&small.final_states, tables)
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
        let name = table_name::<T>(&self.files);
        let draft = self.store.draft(&name, self.local);
        let written = self.write_draft::<T>(&draft, &name, rows, dictionary_pays);
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
        name: &str,
        rows: impl Iterator<Item = Result<T::Row, ReadError>>,
        dictionary_pays: bool,
    ) -> Result<TableSummary, SegmentError> {
        let failed = |source| SegmentError::Write {
            what: draft.display().to_string(),
            source,
        };
        crate::store::create_parent(draft).map_err(failed)?;
        let file = Hashed {
            inner: BufWriter::new(hindcast_private::create(draft).map_err(failed)?),
            hash: Xxh3::new(),
        };
        let file = match self.store.keyring() {
            None => Sink::Plain(file),
            Some(keyring) => {
                let sealing = SealingWriter::new(file, &keyring.public(), name);
                Sink::Sealed(Box::new(sealing.map_err(failed)?))
            }
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
        let file = file.finish().map_err(failed)?;
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

/// Where a table goes.
enum Sink<W: Write> {
    Plain(W),
    Sealed(Box<SealingWriter<W>>),
}

impl<W: Write> Sink<W> {
    fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(inner) => Ok(inner),
            Self::Sealed(sealing) => sealing.finish(),
        }
    }
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(inner) => inner.write(bytes),
            Self::Sealed(sealing) => sealing.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(inner) => inner.flush(),
            Self::Sealed(sealing) => sealing.flush(),
        }
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
    // With the public key alone they cannot be read; they wait.
    if store
        .keyring()
        .is_some_and(|keyring| keyring.secret().is_none())
    {
        return Ok(0);
    }
    for (recorder, _) in list_wals(folder)? {
        // It is to go on.
        if spool_folder(folder, recorder).is_dir() {
            continue;
        }
        let Some(lock) = Lock::take_if_free(folder, recorder)? else {
            continue;
        };
        // Listed again: now no other process changes them.
        let wals = list_wals(folder)?.remove(&recorder).unwrap_or_default();
        let last = wals.keys().next_back().copied();
        for (segment, path) in wals {
            let follows = Follows::of_last(Some(segment) == last);
            finish_wal(store, &path, recorder, segment, follows)?;
            recovered += 1;
        }
        lock.remove();
    }
    Ok(recovered)
}

/// A lock on a file, for as long as this is there.
///
/// It is given back by name: while a process is being started it has the descriptor as well, and
/// until it is another program the lock would outlive the file that is closed here.
#[derive(Debug)]
pub(crate) struct FileLock(File);

impl FileLock {
    /// `None` if another has it.
    pub fn try_take(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Held by a recorder for as long as its process lives; the kernel lets go of it when it is killed.
#[derive(Clone)]
pub(crate) struct Lock {
    path: PathBuf,
    _file: Arc<FileLock>,
}

impl Lock {
    /// `None` if a process has it.
    pub fn take_if_free(folder: &Path, recorder: u16) -> Result<Option<Self>, OpenError> {
        let path = lock_path(folder, recorder);
        let taken = open_lock(&path).and_then(FileLock::try_take);
        let taken = taken.map_err(|source| OpenError::Io {
            what: format!("{} cannot be locked", path.display()),
            source,
        })?;
        Ok(taken.map(|file| Self {
            path,
            _file: Arc::new(file),
        }))
    }

    /// Whether a recorder on this machine holds it.
    pub fn is_held(folder: &Path, recorder: u16) -> bool {
        let Ok(file) = File::open(lock_path(folder, recorder)) else {
            return false;
        };
        let taken = file.try_lock_shared();
        let _ = file.unlock();
        matches!(taken, Err(fs::TryLockError::WouldBlock))
    }

    /// Nothing is left that it protects.
    pub fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Opens the file of a lock, which need not be there.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = hindcast_private::options();
    options.create(true).truncate(false).write(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_being_started_keeps_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::take_if_free(folder.path(), 3).unwrap().unwrap();
        // What a child has between its beginning and its program.
        let _copy = lock._file.0.try_clone().unwrap();
        assert!(Lock::is_held(folder.path(), 3));
        drop(lock);
        assert!(!Lock::is_held(folder.path(), 3));
        let taken = Lock::take_if_free(folder.path(), 3).unwrap();
        assert!(taken.is_some());
    }
}
