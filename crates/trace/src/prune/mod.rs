//! Removes the oldest part of a trace, in whole segments.
//!
//! ```text
//!                       base                            base
//!  ──┬─────────┬─────────┬─┬─────────┬─────────┬─────────┬─┬────────▶ time
//!    │ removed │ removed │ kept: what remains is replayed from here │
//!    └─────────┴─────────┘
//! ```
//!
//! What remains can still be replayed: everything is kept from a base on, and from the quiet point
//! before it. The small tables of removed segments (shapes, recorders, bases, gaps, final states)
//! are carried over, since what remains refers to them.
//!
//! The order makes the trace readable at every moment, also when we are killed: the carried tables,
//! then a *marker*, from which on readers pass the segments over and report a gap, then the
//! removal of files. What a killed run has left is removed by the next one. Recorders go on
//! meanwhile; they only add segments.

mod choose;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::parquet_table::{PRUNED_VERSION, Table, TableSummary};
use crate::reader::{Access, admit, read_manifests, read_small_tables, wal_folders_of};
use crate::segment::{
    self, FileLock, Manifest, Marker, SegmentError, TABLES, TRACE_FILE, marker_name, open_lock,
    parse_segment_name, read_markers, segment_name,
};
use crate::store::Store;
use crate::wal::Small;
use crate::{
    Base, BaseKind, Id, Key, Location, Micros, OpenError, ReadError, RequestFilter, RequestId,
    Trace, tables,
};

use choose::{Facts, SegmentFacts, Start};

/// What may go. With several limits, what any of them lets go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneOptions {
    /// What was recorded before this moment.
    pub older_than: Option<Micros>,
    /// The oldest, until this many bytes of Parquet files are left.
    pub keep_bytes: Option<u64>,
    /// Whatever the limits say, also if what remains cannot be replayed without it.
    pub ignore_bases: bool,
}

/// What would be removed, and what is kept for which reason.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrunePlan {
    /// By recorder; empty if there is nothing to remove.
    pub recorders: Vec<PrunedPart>,
    /// Everything from this moment on is kept.
    pub keep_from: Option<Micros>,
    /// The base from which what remains is replayed, if it is why the limits are not reached.
    pub held_by: Option<Base>,
    /// What the limits would let go and the base holds.
    pub held_segments: u64,
    /// Bytes of Parquet files that remain.
    pub kept_bytes: u64,
}

/// What goes of one recorder's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrunedPart {
    pub recorder: u16,
    /// Up to this segment.
    pub through: u32,
    pub segments: u64,
    pub requests: u64,
    pub transactions: u64,
    pub bytes: u64,
    pub until: Micros,
    pub ids: Option<(RequestId, RequestId)>,
}

/// A trace could not be pruned.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{location} is being pruned by another process")]
    Busy { location: String },
    #[error("the recording in {location} changed while it was being pruned: {what} is gone")]
    Changed { location: String, what: String },
    #[error("{reason}")]
    Write { reason: String },
}

impl PruneError {
    /// What the user can do about it; empty where the error says it all.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Open(error) => error.hint(),
            Self::Busy { .. } | Self::Changed { .. } => "try again when the other one has ended",
            Self::Read(_) => "",
            Self::Write { .. } => {
                "run it again when that is put right: nothing is half removed, readers pass over \
                 what was to go"
            }
        }
    }
}

impl From<crate::store::StoreError> for PruneError {
    fn from(error: crate::store::StoreError) -> Self {
        Self::Write {
            reason: error.in_one_line(),
        }
    }
}

impl From<SegmentError> for PruneError {
    fn from(error: SegmentError) -> Self {
        Self::Write {
            reason: error.in_one_line(),
        }
    }
}

/// Says what would be removed. Reads all requests if there are bases, to know what was in flight
/// when they were taken.
pub fn plan_prune(
    location: &Location,
    key: Option<&Key>,
    options: &PruneOptions,
) -> Result<PrunePlan, PruneError> {
    let trace = Trace::open_with(location, key)?;
    let store = Store::new(location)?;
    let manifests = unpruned(&store)?;
    let starts = match options.ignore_bases || trace.bases().is_empty() {
        true => None,
        false => Some(starts(&trace)?),
    };
    let facts = Facts {
        segments: manifests.iter().map(facts_of).collect(),
        starts,
    };
    let choice = choose::choose(&facts, options);
    let mut parts: BTreeMap<u16, PrunedPart> = BTreeMap::new();
    for (manifest, removed) in manifests.iter().zip(&choice.removed) {
        if *removed {
            add_to(&mut parts, manifest);
        }
    }
    // Segments of notes only would be replaced by as much.
    let recorders = parts.into_values();
    let recorders = recorders.filter(|part| part.requests + part.transactions > 0);
    let recorders: Vec<PrunedPart> = recorders.collect();
    let gone: u64 = recorders.iter().map(|part| part.bytes).sum();
    let all: u64 = facts.segments.iter().map(|segment| segment.bytes).sum();
    let held_by = choice.held_by.map(|at| trace.bases()[at].clone());
    Ok(PrunePlan {
        recorders,
        keep_from: choice.keep_from,
        held_by,
        held_segments: choice.held_segments,
        kept_bytes: all - gone,
    })
}

/// In order of recorders and segments.
fn unpruned(store: &Store) -> Result<Vec<Manifest>, PruneError> {
    let manifests = read_manifests(store)?;
    let markers = read_markers(store)?;
    let through = |recorder: u16| markers.get(&recorder).map_or(0, |marker| marker.through);
    let manifests = manifests.into_values().flat_map(BTreeMap::into_values);
    Ok(manifests
        .filter(|manifest| manifest.segment > through(manifest.recorder))
        .collect())
}

fn facts_of(manifest: &Manifest) -> SegmentFacts {
    SegmentFacts {
        recorder: manifest.recorder,
        until: manifest.until,
        bytes: bytes_of(manifest),
    }
}

fn bytes_of(manifest: &Manifest) -> u64 {
    manifest.tables.values().map(|table| table.bytes).sum()
}

fn summary<T: Table>(manifest: &Manifest) -> TableSummary {
    manifest.tables.get(T::NAME).cloned().unwrap_or_default()
}

fn add_to(parts: &mut BTreeMap<u16, PrunedPart>, manifest: &Manifest) {
    let requests = summary::<tables::Requests>(manifest);
    let transactions = summary::<tables::Transactions>(manifest);
    let part = parts.entry(manifest.recorder).or_insert(PrunedPart {
        recorder: manifest.recorder,
        through: 0,
        segments: 0,
        requests: 0,
        transactions: 0,
        bytes: 0,
        until: Micros::MIN,
        ids: None,
    });
    part.through = part.through.max(manifest.segment);
    part.segments += 1;
    part.requests += requests.rows;
    part.transactions += transactions.rows;
    part.bytes += bytes_of(manifest);
    part.until = part.until.max(manifest.until);
    if requests.rows > 0 {
        let (first, last) = (Id(requests.first_id), Id(requests.last_id));
        let (least, greatest) = part.ids.unwrap_or((first, last));
        part.ids = Some((least.min(first), greatest.max(last)));
    }
}

/// For each base the latest moment at or before it at which no recorded request was in flight: what
/// is replayed from the base needs nothing from before.
fn starts(trace: &Trace) -> Result<Vec<Start>, ReadError> {
    let requests = trace.requests(RequestFilter {
        lean: true,
        ..RequestFilter::default()
    });
    let spans = requests.map(|request| request.map(|request| (request.arrived, request.ended)));
    let taken: Vec<Micros> = trace.bases().iter().map(|base| base.taken).collect();
    choose::starts(&taken, spans)
}

/// Removes what the plan says. Calls `progress` with the number of files removed so far.
pub fn prune(
    location: &Location,
    key: Option<&Key>,
    plan: &PrunePlan,
    mut progress: impl FnMut(u64),
) -> Result<(), PruneError> {
    let store = admit(Store::new(location)?, key, Access::Read)?;
    let _lock = Exclusive::take(&store)?;
    let failed = |source: std::io::Error| PruneError::Write {
        reason: format!("no folder for drafts: {source}"),
    };
    let local = hindcast_private::temporary_folder(std::env::temp_dir(), "hindcast-prune-")
        .map_err(failed)?;
    if !plan.recorders.is_empty() {
        raise_version(&store)?;
    }
    for part in &plan.recorders {
        mark(&store, local.path(), part)?;
    }
    let mut removed = 0;
    for (recorder, marker) in read_markers(&store)? {
        sweep(&store, recorder, &marker, &mut |store, name| {
            store.remove(name)?;
            removed += 1;
            progress(removed);
            Ok(())
        })?;
    }
    remove_dumps(&store, location, key)?;
    remove_torn(&store, location)
}

/// One process at a time where that can be known. In an object store two get along as well: a
/// marker is created by one of them.
struct Exclusive {
    _file: Option<FileLock>,
}

impl Exclusive {
    fn take(store: &Store) -> Result<Self, PruneError> {
        let Some(folder) = store.folder() else {
            return Ok(Self { _file: None });
        };
        let path = folder.join("pruned/.lock");
        let failed = |source: std::io::Error| PruneError::Write {
            reason: format!("{} cannot be locked: {source}", path.display()),
        };
        crate::store::create_parent(&path).map_err(failed)?;
        let lock = open_lock(&path).and_then(FileLock::try_take);
        match lock.map_err(failed)? {
            Some(lock) => Ok(Self { _file: Some(lock) }),
            None => Err(PruneError::Busy {
                location: store.location().to_string(),
            }),
        }
    }
}

/// Before anything goes: an earlier version of hindcast would not notice that something is missing.
fn raise_version(store: &Store) -> Result<(), PruneError> {
    let bytes = store.read(TRACE_FILE)?.unwrap_or_default();
    let what = store.shown(TRACE_FILE);
    let damaged = |error: serde_json::Error| OpenError::Damaged {
        what,
        reason: error.to_string(),
    };
    let mut json: serde_json::Value = serde_json::from_slice(&bytes).map_err(damaged)?;
    if json["version"].as_u64() < Some(u64::from(PRUNED_VERSION)) {
        json["version"] = PRUNED_VERSION.into();
        let text = serde_json::to_vec_pretty(&json).expect("a JSON value can be written");
        store.put(TRACE_FILE, text)?;
    }
    Ok(())
}

/// Writes the marker of one recorder, with what is carried over.
fn mark(store: &Store, local: &Path, part: &PrunedPart) -> Result<(), PruneError> {
    let changed = |segment: u32| PruneError::Changed {
        location: store.location().to_string(),
        what: format!("segment {}", segment_name(part.recorder, segment)),
    };
    let before = read_markers(store)?.remove(&part.recorder);
    if let Some(before) = &before
        && before.through >= part.through
    {
        return Ok(());
    }
    let mut manifests = read_manifests(store)?
        .remove(&part.recorder)
        .unwrap_or_default();
    let mut small = Small::default();
    if let Some(before) = &before {
        manifests.retain(|segment, _| *segment > before.through);
        read_small_tables(store, &before.carried, &before.tables, &mut small)?;
    }
    manifests.retain(|segment, _| *segment <= part.through);
    let last = match manifests.get(&part.through) {
        Some(last) if manifests.len() as u64 == part.segments => last,
        _ => return Err(changed(part.through)),
    };
    for manifest in manifests.values() {
        let files = segment_name(manifest.recorder, manifest.segment);
        read_small_tables(store, &files, &manifest.tables, &mut small)?;
    }
    small.shapes.sort_by_key(|shape| shape.id);
    small.shapes.dedup_by_key(|shape| shape.id);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_micros() as Micros);
    // A name of its own: two processes that prune a store at a time do not overwrite each other.
    let token = xxhash_rust::xxh3::xxh3_64(format!("{now} {}", std::process::id()).as_bytes());
    let carried = format!("r{}-p{:06}-{token:016x}", part.recorder, part.through);
    let tables = segment::carry(store, local, &carried, &small)?;
    let marker = marker(
        part,
        before.as_ref(),
        &manifests,
        last,
        (now, carried, tables),
    );
    let json = serde_json::to_vec_pretty(&marker).expect("a marker can be written as JSON");
    if !store.create(&marker_name(part.recorder, part.through), json)? {
        for table in marker.tables.keys() {
            store.remove(&format!("{table}/{}.parquet", marker.carried))?;
        }
    }
    Ok(())
}

fn marker(
    part: &PrunedPart,
    before: Option<&Marker>,
    manifests: &BTreeMap<u32, Manifest>,
    last: &Manifest,
    (pruned, carried, tables): (Micros, String, segment::Summaries),
) -> Marker {
    let filled = |manifest: &Manifest| {
        [
            summary::<tables::Requests>(manifest),
            summary::<tables::Transactions>(manifest),
        ]
    };
    let filled = manifests.values().flat_map(filled);
    let began = filled.filter(|table| table.rows > 0);
    let began = began.map(|table| table.first_time).min();
    let from = before
        .map(|before| before.from)
        .into_iter()
        .chain(began)
        .min();
    let ids = part.ids.map(|(first, last)| (first.0, last.0));
    let first = [
        before.and_then(|before| before.first_request),
        ids.map(|ids| ids.0),
    ];
    let last_id = [
        before.and_then(|before| before.last_request),
        ids.map(|ids| ids.1),
    ];
    Marker {
        version: PRUNED_VERSION,
        recorder: part.recorder,
        through: part.through,
        pruned,
        requests: before.map_or(0, |before| before.requests) + part.requests,
        transactions: before.map_or(0, |before| before.transactions) + part.transactions,
        bytes: before.map_or(0, |before| before.bytes) + part.bytes,
        from: from.unwrap_or(part.until),
        until: part.until,
        end: last.end,
        first_request: first.into_iter().flatten().min(),
        last_request: last_id.into_iter().flatten().max(),
        carried,
        tables,
    }
}

/// Removes the files of pruned segments and of earlier markers.
fn sweep(
    store: &Store,
    recorder: u16,
    marker: &Marker,
    remove: &mut dyn FnMut(&Store, &str) -> Result<(), PruneError>,
) -> Result<(), PruneError> {
    let gone = |name: &str| {
        parse_segment_name(name)
            .is_some_and(|(of, segment)| of == recorder && segment <= marker.through)
    };
    let kept = format!("{}.parquet", marker.carried);
    let carried_before = format!("r{recorder}-p");
    for table in TABLES {
        for name in store.list(table)? {
            if gone(&name) || (name.starts_with(&carried_before) && name != kept) {
                remove(store, &format!("{table}/{name}"))?;
            }
        }
    }
    for name in store.list("segments")? {
        if gone(&name) {
            remove(store, &format!("segments/{name}"))?;
        }
    }
    for name in store.list("pruned")? {
        let earlier = parse_segment_name(&name)
            .is_some_and(|(of, through)| of == recorder && through < marker.through);
        if earlier {
            remove(store, &format!("pruned/{name}"))?;
        }
    }
    Ok(())
}

/// Dumps that are bases in the trace's own folder go with what was replayed from them.
fn remove_dumps(store: &Store, location: &Location, key: Option<&Key>) -> Result<(), PruneError> {
    let Some(here) = store.folder() else {
        return Ok(());
    };
    let markers = read_markers(store)?;
    let Some(until) = markers.values().map(|marker| marker.until).max() else {
        return Ok(());
    };
    for base in Trace::open_with(location, key)?.bases() {
        let BaseKind::Dump { folder } = &base.kind else {
            continue;
        };
        let folder = Path::new(folder);
        if base.taken > until || !folder.starts_with(here) {
            continue;
        }
        match std::fs::remove_dir_all(folder) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(PruneError::Write {
                    reason: format!("{} cannot be removed: {source}", folder.display()),
                });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Write-ahead files that ended in the middle of a record were kept after they were recovered.
fn remove_torn(store: &Store, location: &Location) -> Result<(), PruneError> {
    let markers = read_markers(store)?;
    for folder in wal_folders_of(store)? {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let pruned = parse_segment_name(&name).is_some_and(|(recorder, segment)| {
                let marker = markers.get(&recorder);
                marker.is_some_and(|marker| segment <= marker.through)
            });
            if pruned && name.ends_with(".torn") {
                std::fs::remove_file(entry.path()).map_err(|source| PruneError::Write {
                    reason: format!("{location}: {name} cannot be removed: {source}"),
                })?;
            }
        }
    }
    Ok(())
}
