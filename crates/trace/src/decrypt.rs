//! A copy of an encrypted trace that is read without a key: for DuckDB, Spark and the like.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use parquet::file::reader::ChunkReader;
use xxhash_rust::xxh3::Xxh3;

use crate::reader::{Access, admit, read_claims, read_manifests, wal_folder_of};
use crate::segment::{
    self, Claim, Lock, Manifest, Summaries, TRACE_FILE, TraceFile, claim_name, manifest_name,
    marker_name, read_markers, segment_name,
};
use crate::store::Store;
use crate::wal::Wal;
use crate::{Key, Location, OpenError};

/// What [`decrypt`] copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decrypted {
    pub segments: u64,
    /// Of Parquet files.
    pub bytes: u64,
}

/// Copies a trace, decrypted, into a folder that must not exist or be empty. What is in write-ahead
/// files on this machine becomes segments of the copy.
pub fn decrypt(location: &Location, key: &Key, folder: &Path) -> Result<Decrypted, OpenError> {
    let source = admit(Store::new(location)?, Some(key), Access::Read)?;
    let failed = |source| OpenError::Io {
        what: format!("{} cannot be written", folder.display()),
        source,
    };
    hindcast_private::folders(folder).map_err(failed)?;
    if std::fs::read_dir(folder).map_err(failed)?.next().is_some() {
        let taken = io::Error::new(io::ErrorKind::AlreadyExists, "the folder is not empty");
        return Err(failed(taken));
    }
    let target = Store::new(&Location::folder(folder))?;
    let mut copy = Copy {
        source: &source,
        target: &target,
        done: Decrypted::default(),
    };
    // Write-ahead files first: what becomes a segment meanwhile is then seen as one.
    let wals = copy.wals()?;
    let manifests = read_manifests(&source)?;
    let markers = read_markers(&source)?;
    let through = |recorder: u16| markers.get(&recorder).map_or(0, |marker| marker.through);
    for manifest in manifests.values().flat_map(BTreeMap::values) {
        if manifest.segment > through(manifest.recorder) {
            copy.segment(manifest)?;
        }
    }
    for left in wals {
        let known = manifests.get(&left.recorder);
        let known = known.is_some_and(|segments| segments.contains_key(&left.segment));
        if !known && left.segment > through(left.recorder) {
            copy.wal(left)?;
        }
    }
    for marker in markers.values() {
        let mut marker = marker.clone();
        marker.tables = copy.tables(&marker.carried, &marker.tables)?;
        copy.json(&marker_name(marker.recorder, marker.through), &marker)?;
    }
    for claim in read_claims(&source)?.into_values() {
        // The write-ahead files of the original are none of the copy's.
        let claim = Claim {
            wal_folder: None,
            ..claim
        };
        copy.json(&claim_name(claim.recorder), &claim)?;
    }
    copy.trace_file(!markers.is_empty())?;
    Ok(copy.done)
}

/// A write-ahead file that is no segment yet.
struct Left {
    recorder: u16,
    segment: u32,
    wal: Wal,
    /// No other file of this recorder follows, and it is gone.
    last: bool,
}

struct Copy<'a> {
    source: &'a Store,
    target: &'a Store,
    done: Decrypted,
}

impl Copy<'_> {
    fn json<T: serde::Serialize>(&self, name: &str, value: &T) -> Result<(), OpenError> {
        let text = serde_json::to_vec_pretty(value).expect("what was read can be written");
        Ok(self.target.put(name, text)?)
    }

    /// Last: without it the copy is no trace.
    fn trace_file(&self, pruned: bool) -> Result<(), OpenError> {
        let bytes = self.source.read(TRACE_FILE)?.unwrap_or_default();
        let damaged = |error: serde_json::Error| OpenError::Damaged {
            what: self.source.shown(TRACE_FILE),
            reason: error.to_string(),
        };
        let file: TraceFile = serde_json::from_slice(&bytes).map_err(damaged)?;
        self.json(TRACE_FILE, &file.decrypted(pruned))
    }

    fn segment(&mut self, manifest: &Manifest) -> Result<(), OpenError> {
        let files = segment_name(manifest.recorder, manifest.segment);
        let tables = self.tables(&files, &manifest.tables)?;
        let manifest = Manifest {
            tables,
            ..manifest.clone()
        };
        self.json(
            &manifest_name(manifest.recorder, manifest.segment),
            &manifest,
        )?;
        self.done.segments += 1;
        Ok(())
    }

    fn tables(&mut self, files: &str, tables: &Summaries) -> Result<Summaries, OpenError> {
        let mut copied = tables.clone();
        for (table, summary) in &mut copied {
            let name = format!("{table}/{files}.parquet");
            let chunks = self.source.open(&name)?;
            chunks.check(summary.bytes, &summary.xxh3)?;
            let draft = self.target.draft(&name, Path::new(""));
            let failed = |source| OpenError::Io {
                what: format!("{} cannot be written", draft.display()),
                source,
            };
            crate::store::create_parent(&draft).map_err(failed)?;
            let mut reader = chunks.get_read(0).map_err(|error| OpenError::Damaged {
                what: self.source.shown(&name),
                reason: error.to_string(),
            })?;
            let file = hindcast_private::create(&draft).map_err(failed)?;
            (summary.bytes, summary.xxh3) = copy_hashed(&mut reader, file).map_err(failed)?;
            self.target.publish(&draft, &name)?;
            self.done.bytes += summary.bytes;
        }
        Ok(copied)
    }

    fn wals(&self) -> Result<Vec<Left>, OpenError> {
        let mut found = Vec::new();
        for claim in read_claims(self.source)?.values() {
            let folder = wal_folder_of(self.source, claim).filter(|folder| folder.is_dir());
            let Some(folder) = folder else { continue };
            let recorder = claim.recorder;
            let running = Lock::is_held(&folder, recorder);
            let of_recorder = segment::list_wals(&folder)?.remove(&recorder);
            let of_recorder = of_recorder.unwrap_or_default();
            let last = of_recorder.keys().next_back().copied();
            for (segment, path) in of_recorder {
                if let Some(wal) = Wal::open(&path, self.source.keyring())? {
                    found.push(Left {
                        recorder,
                        segment,
                        wal,
                        last: Some(segment) == last && !running,
                    });
                }
            }
        }
        Ok(found)
    }

    fn wal(&mut self, left: Left) -> Result<(), OpenError> {
        let Left {
            recorder,
            segment,
            mut wal,
            last,
        } = left;
        let end = segment::conclude(
            self.source,
            &mut wal,
            recorder,
            segment,
            crate::wal::Follows::of_last(last),
        )?;
        let manifest = segment::write_segment(self.target, &wal, recorder, segment, end)?;
        self.done.bytes += manifest
            .tables
            .values()
            .map(|table| table.bytes)
            .sum::<u64>();
        self.json(&manifest_name(recorder, segment), &manifest)?;
        self.done.segments += 1;
        Ok(())
    }
}

/// Length and XXH3 of what was copied, which is then on disk.
fn copy_hashed(from: &mut impl io::Read, file: File) -> io::Result<(u64, String)> {
    let (mut hash, mut bytes) = (Xxh3::new(), 0);
    let mut target = BufWriter::new(file);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
        target.write_all(&buffer[..read])?;
        bytes += read as u64;
    }
    let file = target.into_inner().map_err(|error| error.into_error())?;
    file.sync_all()?;
    Ok((bytes, format!("{:016x}", hash.digest())))
}
