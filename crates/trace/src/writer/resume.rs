//! Goes on with what a recorder wrote that is gone.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Writer, WriterOptions};
use crate::reader::{self, Access};
use crate::segment::{self, Lock, SegmentEnd};
use crate::store::{Store, sync_parent};
use crate::wal::{Follows, Wal};
use crate::{Location, Micros, OpenError};

/// Whether a recorder's part of a trace can be gone on with.
pub enum Resume {
    /// The recorder is there, or somebody goes on with it.
    InUse,
    /// It is complete.
    Closed,
    Open(Resumed),
}

pub struct Resumed {
    pub writer: Writer,
    /// When the recorder was killed, as closely as is known: what it recorded at first is there to
    /// the one moment, and it recorded nothing after the other.
    pub killed: (Micros, Micros),
}

/// `stopped`, in the folder of the spool. It is written by who goes on first: later ones find files
/// that are not the recorder's own.
#[derive(Serialize, Deserialize)]
struct Stopped {
    from: Micros,
    to: Micros,
}

const STOPPED: &str = "stopped";

impl Writer {
    /// Writes on where this recorder stopped: its next segment. If the trace is encrypted that
    /// takes the secret key.
    pub fn resume(
        location: &Location,
        options: WriterOptions,
        recorder: u16,
    ) -> Result<Resume, OpenError> {
        let store = reader::admit(Store::new(location)?, options.key.as_ref(), Access::Read)?;
        let claim = reader::read_claims(&store)?.remove(&recorder);
        let folder = claim.and_then(|claim| reader::wal_folder_of(&store, &claim));
        let Some(folder) = folder.filter(|folder| folder.is_dir()) else {
            return Ok(Resume::Closed);
        };
        let Some(lock) = Lock::take_if_free(&folder, recorder)? else {
            return Ok(Resume::InUse);
        };
        let mut ends = reader::read_manifests(&store)?
            .remove(&recorder)
            .unwrap_or_default();
        let pruned = segment::read_markers(&store)?.remove(&recorder);
        let is_closed = |end: SegmentEnd| end != SegmentEnd::Rolled;
        if ends.values().any(|manifest| is_closed(manifest.end))
            || pruned.as_ref().is_some_and(|marker| is_closed(marker.end))
        {
            lock.remove();
            return Ok(Resume::Closed);
        }
        let wals = segment::list_wals(&folder)?
            .remove(&recorder)
            .unwrap_or_default();
        let last = match wals.last_key_value() {
            Some((number, path)) => Wal::open(path, store.keyring())?.map(|wal| (*number, wal)),
            None => None,
        };
        let complete = last.as_ref().is_some_and(|(_, wal)| wal.closed.is_some());
        let next = wals
            .keys()
            .copied()
            .chain(ends.pop_last().map(|(number, _)| number))
            .chain(pruned.map(|marker| marker.through))
            .max()
            .unwrap_or(0)
            + 1;
        let killed = match complete {
            true => None,
            false => Some(stopped(&store, &folder, recorder, next, last)?),
        };
        for (number, path) in wals {
            segment::finish_wal(&store, &path, recorder, number, Follows::Resumed)?;
        }
        let Some(Stopped { from, to }) = killed else {
            lock.remove();
            return Ok(Resume::Closed);
        };
        let writer = Self::start(store, options, folder, (recorder, next), lock)?;
        let killed = (from, to);
        Ok(Resume::Open(Resumed { writer, killed }))
    }
}

/// When the recorder was killed.
fn stopped(
    store: &Store,
    folder: &Path,
    recorder: u16,
    next: u32,
    last: Option<(u32, Wal)>,
) -> Result<Stopped, OpenError> {
    let path = segment::spool_folder(folder, recorder).join(STOPPED);
    let failed = |source| OpenError::Io {
        what: format!("{} cannot be written", path.display()),
        source,
    };
    match std::fs::read(&path) {
        Ok(json) => {
            if let Ok(stopped) = serde_json::from_slice(&json) {
                return Ok(stopped);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let before = || segment::recorded_before(store, recorder, next);
    let (from, to) = match last {
        Some((_, wal)) if wal.has_header() => (wal.until, wal.crashed_at()),
        Some((_, wal)) => (before()?.unwrap_or(wal.until), wal.crashed_at()),
        None => before()?.map_or((0, 0), |until| (until, until)),
    };
    let stopped = Stopped {
        from,
        to: to.max(from),
    };
    let json = serde_json::to_vec(&stopped).expect("two numbers can be written as JSON");
    let draft = path.with_extension("new");
    hindcast_private::write(&draft, json)
        .and_then(|()| std::fs::rename(&draft, &path))
        .and_then(|()| sync_parent(&path))
        .map_err(failed)?;
    Ok(stopped)
}
