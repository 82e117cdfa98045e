//! What was told, on disk until somebody has time to read it.
//!
//! ```text
//!   drain ──▶ Writer ──▶ │ file │ file │ fi… ──▶ Reader, some time later
//!   file      chunk │ chunk │ …
//!   chunk     length u32 │ its number u64 │ blocks, sealed
//!   block     length of the contents u32 │ ring u32 │ kind u32 │ contents
//! ```
//!
//! Numbers are little-endian. Files have no names, so they are gone with the recorder, however it
//! ends; each is given up when it was read, so one that is read soon never reaches the disk. What
//! does is sealed with a key that is nowhere but in memory: in it is what a recording leaves out.
//!
//! Who writes never waits for who reads.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hindcast_taplog::Told;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::clock::Clock;
use crate::taker::{Program, Records, SpoolError, Taker};

const BLOCK_HEAD: usize = 12;
const CHUNK_HEAD: usize = 12;
/// Where a file ends and the next one begins.
const FILE: u64 = if cfg!(test) { 1 << 20 } else { 8 << 20 };
/// So much is written at once.
const AT_ONCE: usize = 256 << 10;
/// Room that a buffer keeps.
const KEPT: usize = 4 << 20;

const RING: u32 = 1;
const TOLD: u32 = 2;
const GARBLED: u32 = 3;
const ENDED: u32 = 4;
const LOOKED: u32 = 5;
const NOTED: u32 = 6;

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
}

/// A new spool, in files without names in this folder. It may hold `limit` bytes that were not
/// read, and not much more than is taken at once besides.
pub fn spool(folder: &Path, limit: u64) -> Result<(Writer, Reader), SpoolError> {
    let first = nameless(folder)?;
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            files: VecDeque::from([Written {
                file: Arc::clone(&first),
                length: 0,
                is_full: false,
            }]),
            unread: 0,
            is_closed: false,
        }),
        changed: Condvar::new(),
        limit,
    });
    let writing = Writing {
        folder: folder.to_owned(),
        file: first,
        length: 0,
        pending: Vec::new(),
        sealed: Vec::new(),
        seal: seal()?,
        refused: false,
        shared: Arc::clone(&shared),
    };
    let reader = Reader {
        shared,
        seal: writing.seal.clone(),
        at: 0,
        chunk: Vec::new(),
        blocks: 0..0,
        folder: folder.to_owned(),
    };
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
    /// Bytes of them that were not read.
    unread: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct Written {
    file: Arc<File>,
    length: u64,
    /// Nothing more is written to it.
    is_full: bool,
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes to a spool. Several may.
#[derive(Clone, Debug)]
pub struct Writer(Arc<Mutex<Writing>>);

#[derive(Debug)]
struct Writing {
    folder: PathBuf,
    file: Arc<File>,
    /// Of the file.
    length: u64,
    /// Whole blocks that are not in the file yet.
    pending: Vec<u8>,
    /// A chunk on its way to the file.
    sealed: Vec<u8>,
    seal: Seal,
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
        self.seal.close(&self.pending, &mut self.sealed);
        if let Err(error) = self.file.write_all_at(&self.sealed, self.length) {
            if !std::mem::replace(&mut self.refused, true) {
                let folder = self.folder.display();
                tracing::warn!(%error, "cannot write to {folder}: what the service does waits in memory, and is lost where there is no room");
            }
            return;
        }
        self.refused = false;
        self.length += self.sealed.len() as u64;
        let mut next = None;
        if self.length >= FILE {
            // If none can be had this one becomes longer.
            next = nameless(&self.folder).ok();
        }
        let mut state = self.shared.locked();
        state.unread += self.sealed.len() as u64;
        if let Some(last) = state.files.back_mut() {
            last.length = self.length;
            last.is_full = next.is_some();
        }
        if let Some(next) = next {
            self.file = Arc::clone(&next);
            self.length = 0;
            state.files.push_back(Written {
                file: next,
                length: 0,
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
        !self.refused && self.shared.locked().unread < self.shared.limit
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
    /// Those of the chunk that were not given away.
    blocks: Range<usize>,
    folder: PathBuf,
}

/// How full a spool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Bytes that were not read.
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
            None => Err(SpoolError::Damaged {
                path: self.folder.clone(),
                at: self.at,
                what: "a block holds what no recorder writes",
            }),
        }
    }

    /// Waits until there may be more, or until nothing more will be.
    pub fn wait(&self, patience: Duration) {
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
        self.fill(&file, &mut head, self.at)?;
        let (length, number) = head.split_at(4);
        let length = u32::from_le_bytes(length.try_into().expect("four bytes were taken"));
        let number = u64::from_le_bytes(number.try_into().expect("eight bytes were taken"));
        let begin = self.at + CHUNK_HEAD as u64;
        if begin + u64::from(length) > end {
            return Err(self.damaged("a chunk is longer than what was written"));
        }
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.shrink_to(KEPT);
        chunk.resize(length as usize, 0);
        self.fill(&file, &mut chunk, begin)?;
        let Some(blocks) = self.seal.open(number, &mut chunk) else {
            return Err(self.damaged("a chunk is not what was written"));
        };
        self.blocks = 0..blocks;
        self.chunk = chunk;
        self.shared.locked().unread -= CHUNK_HEAD as u64 + u64::from(length);
        self.at = begin + u64::from(length);
        Ok(true)
    }

    fn fill(&self, file: &File, into: &mut [u8], at: u64) -> Result<(), SpoolError> {
        file.read_exact_at(into, at)
            .map_err(|source| SpoolError::Read {
                path: self.folder.clone(),
                source,
            })
    }

    /// The file to read from, in which there is more, and its length.
    fn current(&mut self) -> Option<(Arc<File>, u64)> {
        let mut state = self.shared.locked();
        loop {
            let oldest = state.files.front()?;
            if self.at < oldest.length {
                return Some((Arc::clone(&oldest.file), oldest.length));
            }
            if !oldest.is_full {
                return None;
            }
            state.files.pop_front();
            self.at = 0;
        }
    }

    fn damaged(&self, what: &'static str) -> SpoolError {
        SpoolError::Damaged {
            path: self.folder.clone(),
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
        _ => None,
    }
}

/// A file that nobody else can open.
fn nameless(folder: &Path) -> Result<Arc<File>, SpoolError> {
    match tempfile::tempfile_in(folder) {
        Ok(file) => Ok(Arc::new(file)),
        Err(source) => Err(SpoolError::Write {
            path: folder.to_owned(),
            source,
        }),
    }
}

/// Makes unreadable what is on disk, and notices what was changed there.
#[derive(Clone)]
struct Seal {
    key: Arc<LessSafeKey>,
    next: u64,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

/// With a key that nobody knows.
fn seal() -> Result<Seal, SpoolError> {
    let mut key = [0; 32];
    let filled = SystemRandom::new().fill(&mut key);
    let key = filled.and_then(|()| UnboundKey::new(&AES_256_GCM, &key));
    let key = key.map_err(|_| SpoolError::Key)?;
    Ok(Seal {
        key: Arc::new(LessSafeKey::new(key)),
        next: 0,
    })
}

impl Seal {
    /// Makes a chunk of blocks.
    fn close(&mut self, blocks: &[u8], chunk: &mut Vec<u8>) {
        let number = self.next;
        // Never the same again, even if this chunk is not written.
        self.next += 1;
        let length = blocks.len() + AES_256_GCM.tag_len();
        chunk.clear();
        chunk.extend_from_slice(&(length as u32).to_le_bytes());
        chunk.extend_from_slice(&number.to_le_bytes());
        chunk.extend_from_slice(blocks);
        let contents = &mut chunk[CHUNK_HEAD..];
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(number), Aad::empty(), contents);
        let tag = tag.expect("a chunk is much shorter than what can be sealed");
        chunk.extend_from_slice(tag.as_ref());
    }

    /// In place; how long the blocks are.
    fn open(&self, number: u64, sealed: &mut [u8]) -> Option<usize> {
        let opened = self.key.open_in_place(nonce(number), Aad::empty(), sealed);
        opened.ok().map(|blocks| blocks.len())
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests;
