//! The reading side.
//!
//! Opening reads the manifests and the small tables. Requests and transactions are streamed:
//! segments are opened when the stream reaches them and row groups decoded in batches, so memory
//! does not grow with the trace.

mod accounted;
mod rows;
mod scan;
mod secrets;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::parquet_table::{Selection, Table, TableReader, TableSummary};
use crate::segment::{
    self, Claim, FORMAT, Lock, Manifest, Marker, SegmentEnd, TRACE_FILE, TraceFile,
    parse_segment_name, refuse_newer, segment_name,
};
use crate::store::Store;
use crate::tables;
use crate::wal::{Small, Wal};
use crate::*;

use rows::Renamed;
pub use rows::{Index, IndexEntry, Requests, Transactions};
use scan::{Segment, Source, TraceStream};

/// Which requests to read. The default is all of them, bodies included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Ids are ordered within a recorder; across recorders only time is.
    pub ids: Option<RangeInclusive<RequestId>>,
    pub arrived: Option<Range<Micros>>,
    /// Leave headers and bodies of requests and responses empty: several times faster. What was
    /// read of clocks is there.
    pub lean: bool,
}

/// Which transactions to read. The default is all of them, kept bytes included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionFilter {
    pub ids: Option<RangeInclusive<TransactionId>>,
    /// Only transactions attributed to a request in this range.
    pub requests: Option<RangeInclusive<RequestId>>,
    pub began: Option<Range<Micros>>,
    /// Leave `server_bytes` and `client_bytes` empty, whether there were any or not.
    pub lean: bool,
}

impl From<RequestFilter> for Selection {
    fn from(filter: RequestFilter) -> Self {
        Self {
            ids: filter.ids.map(plain),
            times: filter.arrived,
            requests: None,
            lean: filter.lean,
        }
    }
}

impl From<TransactionFilter> for Selection {
    fn from(filter: TransactionFilter) -> Self {
        Self {
            ids: filter.ids.map(plain),
            times: filter.began,
            requests: filter.requests.map(plain),
            lean: filter.lean,
        }
    }
}

fn plain(ids: RangeInclusive<Id>) -> RangeInclusive<u64> {
    ids.start().0..=ids.end().0
}

/// An opened trace: what was there at that moment, also if recorders go on writing.
pub struct Trace {
    store: Store,
    segments: Vec<Arc<Segment>>,
    small: Small,
    /// What is left of the gaps, once somebody asks.
    gaps: OnceLock<Vec<Gap>>,
    recording: Vec<u16>,
    pruned: Vec<Pruned>,
    warnings: Vec<String>,
    /// Opens what was taken out of requests.
    secrets_key: Option<SecretKey>,
    /// As of the database that was restored last.
    renamed: Mutex<Renamed>,
}

/// What was removed of a recorder's part of a trace; there is a [`Gap`] for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pruned {
    pub recorder: u16,
    pub requests: u64,
    pub transactions: u64,
    /// From the first arrival to the last thing that was recorded.
    pub from: Micros,
    pub until: Micros,
    pub ids: Option<RangeInclusive<RequestId>>,
}

impl Trace {
    /// Opens a trace for reading, including what running recorders on this machine have flushed.
    ///
    /// Blocks; callable from any thread, though one that drives asynchronous tasks should not be
    /// held up.
    pub fn open(location: &Location) -> Result<Trace, OpenError> {
        Self::open_with(location, None)
    }

    /// [`Trace::open`] for a trace that may be encrypted. It takes the secret key; without
    /// encryption the key is not looked at.
    pub fn open_with(location: &Location, key: Option<&Key>) -> Result<Trace, OpenError> {
        let store = admit(Store::new(location)?, key, Access::Read)?;
        // What is pruned while it is opened is gone the next time.
        let mut attempts = 5;
        loop {
            attempts -= 1;
            let before = store.list("pruned")?;
            let opening = Opening {
                store: store.clone(),
                segments: Vec::new(),
                small: Small::default(),
                recording: Vec::new(),
                pruned: Vec::new(),
                warnings: Vec::new(),
            };
            match opening.run() {
                Err(_) if attempts > 0 && store.list("pruned")? != before => {}
                opened => return opened,
            }
        }
    }

    /// Turns the write-ahead files that crashed recorders left on this machine into segments;
    /// returns how many.
    ///
    /// Not necessary for reading them here. Worth it when the trace is in a store and is to be read
    /// elsewhere.
    pub fn recover(location: &Location) -> Result<usize, OpenError> {
        Self::recover_with(location, None)
    }

    /// [`Trace::recover`] for a trace that may be encrypted. It takes the secret key.
    pub fn recover_with(location: &Location, key: Option<&Key>) -> Result<usize, OpenError> {
        let store = admit(Store::new(location)?, key, Access::Read)?;
        let mut recovered = 0;
        for folder in wal_folders(&store, &read_claims(&store)?) {
            recovered += segment::recover_folder(&store, &folder)?;
        }
        Ok(recovered)
    }

    /// Whether its tables are encrypted, so that only a reader with the key can make sense of them.
    pub fn is_encrypted(&self) -> bool {
        self.store.keyring().is_some()
    }

    /// Torn tails, crashes, recorders that cannot be seen from here.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Numbers of the recorders on this machine that are writing into the trace now.
    pub fn recording(&self) -> &[u16] {
        &self.recording
    }

    /// In order of their numbers.
    pub fn recorders(&self) -> &[Recorder] {
        &self.small.recorders
    }

    /// In the order in which they were taken.
    pub fn bases(&self) -> &[Base] {
        &self.small.bases
    }

    /// In order of their beginnings, crashes included. What one recorder could not account for and
    /// another recorded is none.
    pub fn gaps(&self) -> &[Gap] {
        self.gaps.get_or_init(|| accounted::gaps(self))
    }

    /// What was removed, by recorder.
    pub fn pruned(&self) -> &[Pruned] {
        &self.pruned
    }

    /// In order of their ids, each once.
    pub fn shapes(&self) -> &[Shape] {
        &self.small.shapes
    }

    pub fn shape(&self, id: ShapeId) -> Option<&Shape> {
        let found = self
            .small
            .shapes
            .binary_search_by_key(&id, |shape| shape.id);
        found.ok().map(|index| &self.small.shapes[index])
    }

    /// In the order in which they were taken.
    pub fn final_states(&self) -> &[FinalState] {
        &self.small.final_states
    }

    pub fn request_count(&self) -> u64 {
        self.segments
            .iter()
            .map(|segment| segment.requests.rows)
            .sum()
    }

    pub fn transaction_count(&self) -> u64 {
        self.segments
            .iter()
            .map(|segment| segment.transactions.rows)
            .sum()
    }

    /// First and last arrival of a request.
    pub fn arrivals(&self) -> Option<RangeInclusive<Micros>> {
        let filled = || {
            self.segments
                .iter()
                .filter(|segment| segment.requests.rows > 0)
        };
        let first = filled().map(|segment| segment.requests.first_time).min()?;
        let last = filled().map(|segment| segment.requests.last_time).max()?;
        Some(first..=last)
    }

    /// Bytes of Parquet files, by table.
    pub fn stored_bytes(&self) -> BTreeMap<&'static str, u64> {
        let mut bytes = BTreeMap::new();
        for segment in &self.segments {
            *bytes.entry(tables::Requests::NAME).or_default() += segment.requests.bytes;
            *bytes.entry(tables::Transactions::NAME).or_default() += segment.transactions.bytes;
        }
        bytes
    }

    /// In order of arrival.
    pub fn requests(&self, filter: RequestFilter) -> Requests {
        Requests::new(TraceStream::new(&self.store, &self.segments, filter.into()))
    }

    /// In the order in which they began.
    pub fn transactions(&self, filter: TransactionFilter) -> Transactions {
        self.selected(filter.into())
    }

    /// The transactions of a range, each with its position in its request: lean whatever the filter
    /// says.
    ///
    /// Positions count from the first transaction that the filter takes, so it should take requests
    /// whole. Grows by a few bytes per request.
    pub fn index(&self, filter: TransactionFilter) -> Index {
        let selection = Selection {
            lean: true,
            ..filter.into()
        };
        Index::new(self.selected(selection))
    }

    fn selected(&self, selection: Selection) -> Transactions {
        let stream = TraceStream::new(&self.store, &self.segments, selection);
        let renamed = self.renamed.lock().expect("nothing panics with it");
        Transactions::new(stream, Arc::clone(&renamed))
    }

    /// From now on transactions name tables and sequences by these oids, where a database has
    /// others than the recorded one had.
    pub fn rename(&self, oids: HashMap<u32, u32>) {
        *self.renamed.lock().expect("nothing panics with it") = Arc::new(oids);
    }

    pub fn request(&self, id: RequestId) -> Result<Option<Request>, ReadError> {
        self.requests(RequestFilter {
            ids: Some(id..=id),
            ..RequestFilter::default()
        })
        .next()
        .transpose()
    }

    pub fn transaction(&self, id: TransactionId) -> Result<Option<Transaction>, ReadError> {
        self.transactions(TransactionFilter {
            ids: Some(id..=id),
            ..TransactionFilter::default()
        })
        .next()
        .transpose()
    }

    /// Those attributed to this request, in the order in which they began.
    pub fn transactions_of(&self, request: RequestId) -> Result<Vec<Transaction>, ReadError> {
        self.transactions(TransactionFilter {
            requests: Some(request..=request),
            ..TransactionFilter::default()
        })
        .collect()
    }
}

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Refuses what is not a trace, one of a later version, and a key that does not fit.
pub(crate) fn admit(store: Store, key: Option<&Key>, access: Access) -> Result<Store, OpenError> {
    let location = || store.location().to_string();
    let Some(encryption) = check_version(&store)?.encryption else {
        return match (key, access) {
            (Some(_), Access::Write) => Err(OpenError::NotEncrypted {
                location: location(),
            }),
            _ => Ok(store),
        };
    };
    let public = Key::parse(&store.shown(TRACE_FILE), &encryption.public_key);
    let public = public.map_err(|error| OpenError::Damaged {
        what: store.shown(TRACE_FILE),
        reason: error.to_string(),
    })?;
    let needed = public.id();
    match key {
        None => Err(OpenError::Encrypted {
            location: location(),
            needed,
        }),
        Some(key) if key.id() != needed => Err(OpenError::OtherKey {
            location: location(),
            needed,
            given: key.id(),
        }),
        Some(key) if key.secret().is_none() && access == Access::Read => {
            Err(OpenError::OnlyPublic {
                location: location(),
                needed,
            })
        }
        Some(key) => Ok(store.sealed_with(key.clone())),
    }
}

/// Refuses what is not a trace, or one of a later version.
fn check_version(store: &Store) -> Result<TraceFile, OpenError> {
    let what = store.shown(TRACE_FILE);
    let Some(bytes) = store.read(TRACE_FILE)? else {
        return Err(OpenError::NotATrace {
            location: store.location().to_string(),
        });
    };
    // Only what all versions agree on is looked at before the version is known.
    let json: serde_json::Value = parse(&what, &bytes)?;
    if json["format"] != FORMAT {
        return Err(OpenError::Damaged {
            what,
            reason: format!("it is not a {FORMAT} file"),
        });
    }
    refuse_newer(&json, &store.location().to_string())?;
    parse(&what, &bytes)
}

fn parse<T: serde::de::DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, OpenError> {
    serde_json::from_slice(bytes).map_err(|error| OpenError::Damaged {
        what: what.to_owned(),
        reason: error.to_string(),
    })
}

pub(crate) fn read_claims(store: &Store) -> Result<BTreeMap<u16, Claim>, OpenError> {
    let names = store
        .list("claims")?
        .into_iter()
        .filter(|name| name.ends_with(".json"));
    let names: Vec<String> = names.map(|name| format!("claims/{name}")).collect();
    let mut claims = BTreeMap::new();
    for (name, bytes) in names.iter().zip(store.read_all(&names)?) {
        if let Some(bytes) = bytes {
            let claim: Claim = parse(&store.shown(name), &bytes)?;
            claims.insert(claim.recorder, claim);
        }
    }
    Ok(claims)
}

/// Where this recorder keeps its write-ahead files, whether that can be seen from here or not.
pub(crate) fn wal_folder_of(store: &Store, claim: &Claim) -> Option<PathBuf> {
    claim
        .wal_folder
        .clone()
        .or_else(|| Some(store.folder()?.join("wal")))
}

fn wal_folders(store: &Store, claims: &BTreeMap<u16, Claim>) -> BTreeSet<PathBuf> {
    claims
        .values()
        .filter_map(|claim| wal_folder_of(store, claim))
        .filter(|folder| folder.is_dir())
        .collect()
}

/// Where a recorder keeps, or left, what it has not made records of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spooled {
    pub recorder: u16,
    pub folder: PathBuf,
    /// The recorder is there, or somebody who goes on with it.
    pub in_use: bool,
}

/// The folders on this machine in which recorders of the trace keep what they have not made records
/// of.
pub fn spooled(location: &Location) -> Result<Vec<Spooled>, OpenError> {
    let store = Store::new(location)?;
    check_version(&store)?;
    let mut found = Vec::new();
    for claim in read_claims(&store)?.into_values() {
        let recorder = claim.recorder;
        let Some(wal_folder) = wal_folder_of(&store, &claim) else {
            continue;
        };
        let folder = segment::spool_folder(&wal_folder, recorder);
        if folder.is_dir() {
            found.push(Spooled {
                recorder,
                folder,
                in_use: Lock::is_held(&wal_folder, recorder),
            });
        }
    }
    Ok(found)
}

/// The folders on this machine that may hold write-ahead files of the trace.
pub(crate) fn wal_folders_of(store: &Store) -> Result<BTreeSet<PathBuf>, OpenError> {
    Ok(wal_folders(store, &read_claims(store)?))
}

struct Opening {
    store: Store,
    segments: Vec<Arc<Segment>>,
    small: Small,
    recording: Vec<u16>,
    pruned: Vec<Pruned>,
    warnings: Vec<String>,
}

/// What is known of a recorder apart from its segments.
struct Traces {
    claim: Claim,
    /// Its write-ahead files would be found if there were any.
    visible: bool,
    running: bool,
    wals: BTreeMap<u32, Wal>,
}

impl Opening {
    fn run(mut self) -> Result<Trace, OpenError> {
        // In this order whatever moves from a write-ahead file into a segment meanwhile is seen in
        // one of them: a file found and opened can still be read when it has been removed.
        let mut recorders = BTreeMap::new();
        let claims = read_claims(&self.store)?;
        let folders = wal_folders(&self.store, &claims).into_iter();
        let folders = self
            .store
            .folder()
            .map(Path::to_owned)
            .into_iter()
            .chain(folders);
        let exposed = exposure::first_exposed(folders);
        self.warnings.extend(exposed.map(|found| found.to_string()));
        for (number, claim) in claims {
            let traces = self.look_for_wals(claim)?;
            recorders.insert(number, traces);
        }
        let mut manifests = read_manifests(&self.store)?;
        // Markers after manifests: what disappears between the two has one.
        let mut markers = segment::read_markers(&self.store)?;
        for marker in markers.values() {
            if let Some(of_recorder) = manifests.get_mut(&marker.recorder) {
                of_recorder.retain(|segment, _| *segment > marker.through);
            }
            self.add_pruned(marker)?;
        }
        for (number, traces) in recorders {
            let of_recorder = manifests.remove(&number).unwrap_or_default();
            self.add_recorder(number, traces, of_recorder, markers.remove(&number))?;
        }
        // Segments whose claims are gone are still segments.
        for of_recorder in manifests.into_values() {
            for manifest in of_recorder.values() {
                self.add_segment(manifest)?;
            }
        }
        self.finish()
    }

    fn look_for_wals(&self, claim: Claim) -> Result<Traces, OpenError> {
        let folder = wal_folder_of(&self.store, &claim).filter(|folder| folder.is_dir());
        let mut traces = Traces {
            claim,
            visible: folder.is_some(),
            running: false,
            wals: BTreeMap::new(),
        };
        if let Some(folder) = folder {
            traces.running = Lock::is_held(&folder, traces.claim.recorder);
            for (segment, path) in segment::list_wals(&folder)?
                .remove(&traces.claim.recorder)
                .unwrap_or_default()
            {
                if let Some(wal) = Wal::open(&path, self.store.keyring())? {
                    traces.wals.insert(segment, wal);
                }
            }
        }
        Ok(traces)
    }

    fn add_recorder(
        &mut self,
        recorder: u16,
        mut traces: Traces,
        manifests: BTreeMap<u32, Manifest>,
        marker: Option<Marker>,
    ) -> Result<(), OpenError> {
        let ends = manifests.values().map(|manifest| manifest.end);
        let mut ended = ends
            .chain(marker.iter().map(|marker| marker.end))
            .any(|end| end != SegmentEnd::Rolled);
        let untils = manifests.values().map(|manifest| manifest.until);
        let last_manifest = untils.chain(marker.iter().map(|marker| marker.until)).max();
        if let Some(marker) = marker {
            traces.wals.retain(|segment, _| *segment > marker.through);
        }
        for manifest in manifests.values() {
            traces.wals.remove(&manifest.segment);
            self.add_segment(manifest)?;
        }
        let last = traces.wals.keys().next_back().copied();
        let mut recorded_before = last_manifest.unwrap_or(traces.claim.claimed);
        for (segment, wal) in traces.wals {
            let of_running = traces.running && Some(segment) == last;
            if let (Some(torn), false) = (wal.torn, of_running) {
                self.warnings.push(format!(
                    "{} ends in the middle of a record: the last {} bytes, from byte {}, are cut off",
                    wal.path.display(),
                    torn.bytes,
                    torn.at
                ));
            }
            let crashed = Some(segment) == last && !traces.running && wal.closed.is_none();
            if crashed || (wal.torn.is_some() && !of_running) {
                let from = match wal.has_header() {
                    true => wal.until,
                    false => recorded_before,
                };
                let to = wal.crashed_at().max(from);
                self.small.gaps.push(Gap {
                    from,
                    to,
                    cause: GapCause::Crashed { recorder },
                });
            }
            recorded_before = recorded_before.max(wal.until);
            if crashed {
                self.warnings.push(format!(
                    "recorder {recorder} stopped without closing the trace; what it recorded within its flush interval before that is missing"
                ));
            }
            ended |= crashed || wal.closed.is_some();
            self.add_wal(recorder, segment, wal);
        }
        if traces.running {
            self.recording.push(recorder);
        } else if !ended && (last_manifest.is_some() || !traces.visible) {
            let from = last_manifest.unwrap_or(traces.claim.claimed);
            self.add_unclosed(recorder, from, &traces.claim);
        }
        Ok(())
    }

    /// A recorder that has not closed the trace, and whose write-ahead files are not here.
    fn add_unclosed(&mut self, recorder: u16, from: Micros, claim: &Claim) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(from, |since| since.as_micros() as Micros);
        self.small.gaps.push(Gap {
            from,
            to: now.max(from),
            cause: GapCause::Crashed { recorder },
        });
        let host = &claim.host;
        let place = claim.wal_folder.as_ref().map_or_else(
            || "the trace's folder `wal`".to_owned(),
            |path| path.display().to_string(),
        );
        self.warnings.push(format!(
            "recorder {recorder} on host {host:?} has not closed the trace; what it has not yet made into segments is in {place} there, and missing here"
        ));
    }

    fn add_segment(&mut self, manifest: &Manifest) -> Result<(), OpenError> {
        let summary = |name: &str| manifest.tables.get(name).cloned().unwrap_or_default();
        self.segments.push(Arc::new(Segment {
            recorder: manifest.recorder,
            number: manifest.segment,
            source: Source::Files,
            requests: summary(tables::Requests::NAME),
            transactions: summary(tables::Transactions::NAME),
            requests_checked: AtomicBool::new(false),
            transactions_checked: AtomicBool::new(false),
        }));
        let files = segment_name(manifest.recorder, manifest.segment);
        read_small_tables(&self.store, &files, &manifest.tables, &mut self.small)
    }

    fn add_pruned(&mut self, marker: &Marker) -> Result<(), OpenError> {
        let recorder = marker.recorder;
        self.small.gaps.push(Gap {
            from: marker.from,
            to: marker.until,
            cause: GapCause::Pruned {
                recorder,
                requests: marker.requests,
                transactions: marker.transactions,
            },
        });
        let ids = marker.first_request.zip(marker.last_request);
        self.pruned.push(Pruned {
            recorder,
            requests: marker.requests,
            transactions: marker.transactions,
            from: marker.from,
            until: marker.until,
            ids: ids.map(|(first, last)| Id(first)..=Id(last)),
        });
        read_small_tables(
            &self.store,
            &marker.carried,
            &marker.tables,
            &mut self.small,
        )
    }

    fn add_wal(&mut self, recorder: u16, number: u32, mut wal: Wal) {
        let small = std::mem::take(&mut wal.small);
        self.small.recorders.extend(small.recorders);
        self.small.bases.extend(small.bases);
        self.small.shapes.extend(small.shapes);
        self.small.gaps.extend(small.gaps);
        self.small.final_states.extend(small.final_states);
        self.segments.push(Arc::new(Segment {
            recorder,
            number,
            requests: wal.requests.clone(),
            transactions: wal.transactions.clone(),
            requests_checked: AtomicBool::new(false),
            transactions_checked: AtomicBool::new(false),
            source: Source::Wal(Box::new(wal)),
        }));
    }

    fn finish(mut self) -> Result<Trace, OpenError> {
        self.segments
            .sort_by_key(|segment| (segment.recorder, segment.number));
        self.small.recorders.sort_by_key(|recorder| recorder.number);
        self.small.bases.sort_by_key(|base| base.taken);
        self.small.shapes.sort_by_key(|shape| shape.id);
        self.small.shapes.dedup_by_key(|shape| shape.id);
        self.small.gaps.sort_by_key(|gap| gap.from);
        self.small.final_states.sort_by_key(|state| state.taken);
        for base in &mut self.small.bases {
            // Wherever the trace was copied to.
            if let (BaseKind::Dump { folder }, Some(here)) = (&mut base.kind, self.store.folder()) {
                *folder = here.join(&folder).display().to_string();
            }
        }
        let Self {
            store,
            segments,
            small,
            recording,
            pruned,
            warnings,
        } = self;
        Ok(Trace {
            store,
            segments,
            small,
            gaps: OnceLock::new(),
            recording,
            pruned,
            warnings,
            secrets_key: None,
            renamed: Mutex::default(),
        })
    }
}

pub(crate) fn read_manifests(
    store: &Store,
) -> Result<BTreeMap<u16, BTreeMap<u32, Manifest>>, OpenError> {
    let names = store
        .list("segments")?
        .into_iter()
        .filter(|name| parse_segment_name(name).is_some());
    let names: Vec<String> = names.map(|name| format!("segments/{name}")).collect();
    let mut manifests: BTreeMap<u16, BTreeMap<u32, Manifest>> = BTreeMap::new();
    for (name, bytes) in names.iter().zip(store.read_all(&names)?) {
        let Some(bytes) = bytes else { continue };
        let what = store.shown(name);
        refuse_newer(&parse(&what, &bytes)?, &what)?;
        let manifest: Manifest = parse(&what, &bytes)?;
        manifests
            .entry(manifest.recorder)
            .or_default()
            .insert(manifest.segment, manifest);
    }
    Ok(manifests)
}

/// Adds what the small tables of a segment hold.
pub(crate) fn read_small_tables(
    store: &Store,
    files: &str,
    tables: &BTreeMap<String, TableSummary>,
    small: &mut Small,
) -> Result<(), OpenError> {
    read_small::<tables::Recorders>(store, files, tables, &mut small.recorders)?;
    read_small::<tables::Bases>(store, files, tables, &mut small.bases)?;
    read_small::<tables::Shapes>(store, files, tables, &mut small.shapes)?;
    read_small::<tables::Gaps>(store, files, tables, &mut small.gaps)?;
    read_small::<tables::FinalStates>(store, files, tables, &mut small.final_states)
}

fn read_small<T: Table>(
    store: &Store,
    files: &str,
    tables: &BTreeMap<String, TableSummary>,
    rows: &mut Vec<T::Row>,
) -> Result<(), OpenError> {
    let Some(summary) = tables.get(T::NAME) else {
        return Ok(());
    };
    let chunks = store.open(&segment::table_name::<T>(files))?;
    chunks.check(summary.bytes, &summary.xxh3)?;
    let mut table = TableReader::<T>::open(chunks, Selection::default())?;
    while let Some(row) = table.next_row()? {
        rows.push(row);
    }
    Ok(())
}
