//! What was told, on disk until somebody has time to read it.
//!
//! ```text
//!   drain ──▶ Writer ──▶ │ file │ file │ fi… ──▶ Reader, some time later
//!   file      chunk │ chunk │ …         one with a name begins with a header: see [`files`]
//!   chunk     length u32 │ that of the blocks u32 │ number u64 │ blocks, small or not, and sealed
//!   block     length of the contents u32 │ ring u32 │ kind u32 │ contents
//! ```
//!
//! Numbers are little-endian. What is on disk is sealed: in it is what a recording leaves out.
//!
//! A spool of [`spool`] has files without names and a key that is nowhere but in memory. It is gone
//! with the recorder, however that ends, and a file is given up when it was read.
//!
//! A spool of [`lasting`] has files with names, and its key beside them, sealed for somebody. It is
//! kept from its beginning until its owner removes it, so who finds it can read all of it again:
//! [`left`]. Where it gets too large for that, files that were read are removed, and the key with
//! them.
//!
//! Who writes never waits for who reads.

mod files;
mod seal;

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hindcast_taplog::Told;

use crate::clock::{Clock, wall};
use crate::taker::{Program, Records, SpoolError, Taker};
use files::{Files, Found};
pub use files::{HowFar, how_far, remove, sealed_key};
pub use seal::Key;
use seal::{CHUNK_HEAD, Head, Seal};

const BLOCK_HEAD: usize = 12;
/// Where a file ends and the next one begins.
const FILE: u64 = if cfg!(test) { 1 << 20 } else { 8 << 20 };
/// So much is written at once.
const AT_ONCE: usize = 256 << 10;
/// Room that a buffer keeps.
const KEPT: usize = 4 << 20;
/// How often it is noted how much was read, in microseconds.
const NOTE_EVERY: i64 = 500_000;

const RING: u32 = 1;
const TOLD: u32 = 2;
const GARBLED: u32 = 3;
const ENDED: u32 = 4;
const LOOKED: u32 = 5;
const NOTED: u32 = 6;
const ABOUT: u32 = 7;

/// What stands in a spool.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A ring appears.
    Ring {
        ring: u32,
        program: Program,
    },
    Told {
        ring: u32,
        told: Records<'a>,
    },
    /// The ring's memory held nonsense from here on.
    Garbled {
        ring: u32,
    },
    /// Nothing more comes of the ring.
    Ended {
        ring: u32,
    },
    /// All rings were looked at: see [`Taker::flush`].
    Looked {
        moment: u64,
        clock: Clock,
    },
    /// Somebody else had something to say: see [`Writer::note`].
    Noted(&'a [u8]),
    /// What has to be known to make something of the rest: see [`lasting`].
    About(&'a [u8]),
}

/// A new spool, in files without names in this folder. It may hold `limit` bytes that were not
/// read, and not much more than is taken at once besides.
pub fn spool(folder: &Path, limit: u64) -> Result<(Writer, Reader), SpoolError> {
    begin(Files::without_names(folder), limit, &Key::random()?)
}

/// A new spool that can be read by others, in this folder, which is made. `limit` bytes of it may
/// be on disk. `sealed_key` is the key as it may be left beside it, and `about` is what the first
/// entry holds.
pub fn lasting(
    folder: &Path,
    limit: u64,
    key: &Key,
    sealed_key: &[u8],
    about: &[u8],
) -> Result<(Writer, Reader), SpoolError> {
    let (writer, reader) = begin(Files::named(folder, sealed_key)?, limit, key)?;
    let mut writing = writer.locked();
    writing.block(0, ABOUT, about);
    writing.write_out();
    drop(writing);
    Ok((writer, reader))
}

/// What somebody left who is gone, as far as it is whole. Reading removes nothing.
pub fn left(folder: &Path, key: &Key) -> Result<Reader, SpoolError> {
    let (files, found) = Files::found(folder)?;
    let found: Vec<Written> = found.into_iter().map(Written::whole).collect();
    let unread = found.iter().map(|file| file.length).sum();
    let shared = Shared::new(found, unread, u64::MAX);
    shared.locked().is_closed = true;
    Ok(Reader::new(
        Arc::new(shared),
        Seal::new(key)?,
        Arc::new(files),
    ))
}

fn begin(files: Files, limit: u64, key: &Key) -> Result<(Writer, Reader), SpoolError> {
    let first = files.make(1)?;
    let length = files.header();
    let written = Written {
        number: 1,
        file: Arc::clone(&first),
        length,
        is_full: false,
    };
    let shared = Arc::new(Shared::new([written], length, limit));
    let files = Arc::new(files);
    let writing = Writing {
        files: Arc::clone(&files),
        file: first,
        number: 1,
        length,
        pending: Vec::new(),
        sealed: Vec::new(),
        seal: Seal::new(key)?,
        in_a_hurry: false,
        refused: false,
        shared: Arc::clone(&shared),
    };
    let reader = Reader::new(shared, Seal::new(key)?, files);
    Ok((Writer(Arc::new(Mutex::new(writing))), reader))
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    limit: u64,
}

#[derive(Debug)]
struct State {
    /// Those that were not read to their end, the oldest first.
    files: VecDeque<Written>,
    /// Those that were, and are kept.
    read: Vec<u32>,
    /// Bytes of `files` that were not read.
    unread: u64,
    /// Bytes of `read`, and of the oldest of `files` as far as that was read.
    kept: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct Written {
    number: u32,
    file: Arc<File>,
    length: u64,
    /// Nothing more is written to it.
    is_full: bool,
}

impl Written {
    fn whole((number, file, length): Found) -> Self {
        Self {
            number,
            file: Arc::new(file),
            length,
            is_full: true,
        }
    }
}

impl Shared {
    fn new(files: impl Into<VecDeque<Written>>, unread: u64, limit: u64) -> Self {
        Self {
            state: Mutex::new(State {
                files: files.into(),
                read: Vec::new(),
                unread,
                kept: 0,
                is_closed: false,
            }),
            changed: Condvar::new(),
            limit,
        }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes to a spool. Several may.
#[derive(Clone, Debug)]
pub struct Writer(Arc<Mutex<Writing>>);

#[derive(Debug)]
struct Writing {
    files: Arc<Files>,
    file: Arc<File>,
    number: u32,
    /// Of the file.
    length: u64,
    /// Whole blocks that are not in the file yet.
    pending: Vec<u8>,
    /// A chunk on its way to the file.
    sealed: Vec<u8>,
    seal: Seal,
    /// Whoever tells will have no room soon.
    in_a_hurry: bool,
    /// The disk did not take them the last time.
    refused: bool,
    shared: Arc<Shared>,
}

impl Writer {
    /// Something that no tap told, to be found in the place where it was said. It is written at
    /// once.
    pub fn note(&self, contents: &[u8]) {
        let mut writing = self.locked();
        writing.block(0, NOTED, contents);
        writing.write_out();
    }

    /// Whether more can be taken.
    pub fn has_room(&self) -> bool {
        self.locked().has_room()
    }

    /// Nothing more will be written.
    pub fn close(&self) {
        let writing = self.locked();
        writing.shared.locked().is_closed = true;
        writing.shared.changed.notify_all();
    }

    fn locked(&self) -> MutexGuard<'_, Writing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writing {
    fn block(&mut self, ring: u32, kind: u32, contents: &[u8]) {
        for number in [contents.len() as u32, ring, kind] {
            self.pending.extend_from_slice(&number.to_le_bytes());
        }
        self.pending.extend_from_slice(contents);
        if self.pending.len() >= AT_ONCE {
            self.write_out();
        }
    }

    /// What the disk does not take stays here, and is offered again.
    fn write_out(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.seal
            .close(&self.pending, self.in_a_hurry, &mut self.sealed);
        if let Err(error) = self.file.write_all_at(&self.sealed, self.length) {
            if !std::mem::replace(&mut self.refused, true) {
                let folder = self.files.folder().display();
                tracing::warn!(%error, "cannot write to {folder}: what the service does waits in memory, and is lost where there is no room");
            }
            return;
        }
        self.refused = false;
        self.length += self.sealed.len() as u64;
        let mut next = None;
        if self.length >= FILE {
            // If none can be had this one becomes longer.
            next = self.files.make(self.number + 1).ok();
        }
        let mut state = self.shared.locked();
        state.unread += self.sealed.len() as u64;
        if let Some(last) = state.files.back_mut() {
            last.length = self.length;
            last.is_full = next.is_some();
        }
        if let Some(next) = next {
            self.file = Arc::clone(&next);
            self.number += 1;
            self.length = self.files.header();
            state.unread += self.length;
            state.files.push_back(Written {
                number: self.number,
                file: next,
                length: self.length,
                is_full: false,
            });
        }
        drop(state);
        self.shared.changed.notify_all();
        self.pending.clear();
        self.pending.shrink_to(KEPT);
        self.sealed.shrink_to(KEPT);
    }

    fn has_room(&mut self) -> bool {
        if self.refused {
            self.write_out();
        }
        let mut state = self.shared.locked();
        if state.kept > 0 && state.unread + state.kept >= self.shared.limit / 2 {
            self.files.keep_no_more();
            state.forget_read(&self.files);
        }
        !self.refused && state.unread + state.kept < self.shared.limit
    }
}

impl State {
    /// What was read takes no room any more.
    fn forget_read(&mut self, files: &Files) {
        for number in self.read.drain(..) {
            files.remove(number);
        }
        self.kept = 0;
    }
}

impl Taker for Writer {
    fn ring(&mut self, ring: u32, program: &Program) -> Result<(), SpoolError> {
        self.locked().block(ring, RING, &program.encode());
        Ok(())
    }

    fn told(&mut self, ring: u32, records: Records<'_>) -> Result<(), SpoolError> {
        self.locked().block(ring, TOLD, records.bytes());
        Ok(())
    }

    fn hurry(&mut self, is_behind: bool) {
        self.locked().in_a_hurry = is_behind;
    }

    fn garbled(&mut self, ring: u32) -> Result<(), SpoolError> {
        self.locked().block(ring, GARBLED, &[]);
        Ok(())
    }

    fn ended(&mut self, ring: u32) -> Result<(), SpoolError> {
        self.locked().block(ring, ENDED, &[]);
        Ok(())
    }

    fn has_room(&self) -> bool {
        Self::has_room(self)
    }

    fn flush(&mut self, moment: u64, clock: Clock) -> Result<(), SpoolError> {
        let mut contents = [0; 16];
        contents[..8].copy_from_slice(&moment.to_le_bytes());
        contents[8..].copy_from_slice(&clock.zero.to_le_bytes());
        let mut writing = self.locked();
        writing.block(0, LOOKED, &contents);
        writing.write_out();
        Ok(())
    }
}

/// Reads a spool in the order in which it was written: of a ring as it was told, of several by and
/// large.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    seal: Seal,
    /// How much of the oldest file was read.
    at: u64,
    chunk: Vec<u8>,
    /// As it is on disk.
    sealed: Vec<u8>,
    /// Those of the chunk that were not given away.
    blocks: Range<usize>,
    files: Arc<Files>,
    /// Bytes that were read.
    taken: u64,
    /// When it was noted how many.
    noted: i64,
}

/// How full a spool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Bytes on disk that were not read.
    pub unread: u64,
    pub limit: u64,
    pub is_closed: bool,
}

impl Fill {
    /// What is in it should be read before more comes.
    pub fn is_urgent(self) -> bool {
        self.is_closed || self.unread > self.limit / 2
    }

    /// It was urgent, and is not any more.
    pub fn is_calm(self) -> bool {
        !self.is_closed && self.unread < self.limit / 4
    }
}

/// Tells how full a spool is.
#[derive(Clone, Debug)]
pub struct Meter(Arc<Shared>);

impl Meter {
    pub fn read(&self) -> Fill {
        let state = self.0.locked();
        Fill {
            unread: state.unread,
            limit: self.0.limit,
            is_closed: state.is_closed,
        }
    }
}

impl Reader {
    fn new(shared: Arc<Shared>, seal: Seal, files: Arc<Files>) -> Self {
        let mut reader = Self {
            shared,
            seal,
            at: files.header(),
            chunk: Vec::new(),
            sealed: Vec::new(),
            blocks: 0..0,
            files,
            taken: 0,
            noted: 0,
        };
        reader.passed(reader.at);
        reader
    }

    /// The next entry; `None` if no more has been written yet.
    pub fn read(&mut self) -> Result<Option<Entry<'_>>, SpoolError> {
        if self.blocks.is_empty() && !self.next_chunk()? {
            return Ok(None);
        }
        let mut rest = &self.chunk[self.blocks.clone()];
        let block = block(&mut rest);
        let left = rest.len();
        self.blocks.start = self.blocks.end - left;
        match block {
            Some(entry) => Ok(Some(entry)),
            None => Err(self.damaged("a block holds what no recorder writes")),
        }
    }

    /// Waits until there may be more, or until nothing more will be.
    pub fn wait(&mut self, patience: Duration) {
        self.note_how_far();
        let state = self.shared.locked();
        let nothing = |state: &mut State| {
            let more = state
                .files
                .front()
                .is_some_and(|file| file.length > self.at || file.is_full);
            !more && !state.is_closed
        };
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, patience, nothing);
        drop(waited);
    }

    pub fn meter(&self) -> Meter {
        Meter(Arc::clone(&self.shared))
    }

    /// Whether there is one.
    fn next_chunk(&mut self) -> Result<bool, SpoolError> {
        let Some((file, end)) = self.current() else {
            return Ok(false);
        };
        let mut head = [0; CHUNK_HEAD];
        let begin = self.at + CHUNK_HEAD as u64;
        if begin > end {
            return Err(self.damaged("it ends within a chunk"));
        }
        self.fill(&file, &mut head, self.at)?;
        let head = Head::decode(head);
        let after = begin + u64::from(head.length);
        if after > end {
            return Err(self.damaged("a chunk is longer than what was written"));
        }
        let (mut chunk, mut sealed) = (
            std::mem::take(&mut self.chunk),
            std::mem::take(&mut self.sealed),
        );
        sealed.clear();
        sealed.shrink_to(KEPT);
        sealed.resize(head.length as usize, 0);
        self.fill(&file, &mut sealed, begin)?;
        chunk.clear();
        chunk.shrink_to(KEPT);
        if self.seal.open(&head, &mut sealed, &mut chunk).is_none() {
            return Err(self.damaged("a chunk is not what was written"));
        }
        self.blocks = 0..chunk.len();
        (self.chunk, self.sealed) = (chunk, sealed);
        self.passed(after - self.at);
        self.at = after;
        if wall() - self.noted >= NOTE_EVERY {
            self.note_how_far();
        }
        Ok(true)
    }

    /// So many bytes were read.
    fn passed(&mut self, bytes: u64) {
        self.taken += bytes;
        let mut state = self.shared.locked();
        state.unread -= bytes;
        state.kept += bytes;
        if !self.files.keeps() {
            state.forget_read(&self.files);
        }
    }

    /// For who asks how far it is.
    fn note_how_far(&mut self) {
        self.noted = wall();
        let total = self.taken + self.shared.locked().unread;
        self.files.note(self.taken, total, self.noted);
    }

    fn fill(&self, file: &File, into: &mut [u8], at: u64) -> Result<(), SpoolError> {
        file.read_exact_at(into, at)
            .map_err(|source| SpoolError::Read {
                path: self.files.folder().to_owned(),
                source,
            })
    }

    /// The file to read from, in which there is more, and its length.
    fn current(&mut self) -> Option<(Arc<File>, u64)> {
        let next = {
            let mut state = self.shared.locked();
            let oldest = state.files.front()?;
            if self.at < oldest.length {
                return Some((Arc::clone(&oldest.file), oldest.length));
            }
            if !oldest.is_full {
                return None;
            }
            let number = oldest.number;
            state.files.pop_front();
            match self.files.keeps() {
                true => state.read.push(number),
                false => self.files.remove(number),
            }
            state.files.front().is_some()
        };
        self.at = self.files.header();
        if next {
            self.passed(self.at);
        }
        self.current()
    }

    fn damaged(&self, what: &'static str) -> SpoolError {
        SpoolError::Damaged {
            path: self.files.folder().to_owned(),
            at: self.at,
            what,
        }
    }
}

/// The first of some blocks, which is taken away from them.
fn block<'a>(blocks: &mut &'a [u8]) -> Option<Entry<'a>> {
    let (head, rest) = blocks.split_at_checked(BLOCK_HEAD)?;
    let number = |at: usize| Some(u32::from_le_bytes(head[at..at + 4].try_into().ok()?));
    let (contents, rest) = rest.split_at_checked(number(0)? as usize)?;
    *blocks = rest;
    entry(number(4)?, number(8)?, contents)
}

fn entry(ring: u32, kind: u32, contents: &[u8]) -> Option<Entry<'_>> {
    match kind {
        RING => Program::decode(contents).map(|program| Entry::Ring { ring, program }),
        TOLD => {
            // All of it can be read: then who goes through it needs not ask.
            let mut rest = contents;
            while Told::decode(&mut rest).is_some() {}
            let told = Records::of(contents);
            rest.is_empty().then_some(Entry::Told { ring, told })
        }
        GARBLED => Some(Entry::Garbled { ring }),
        ENDED => Some(Entry::Ended { ring }),
        LOOKED => {
            let (moment, rest) = contents.split_first_chunk()?;
            let zero = i64::from_le_bytes(rest.try_into().ok()?);
            Some(Entry::Looked {
                moment: u64::from_le_bytes(*moment),
                clock: Clock { zero },
            })
        }
        NOTED => Some(Entry::Noted(contents)),
        ABOUT => Some(Entry::About(contents)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
