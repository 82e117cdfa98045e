//! The files of a spool.
//!
//! ```text
//!   000000.spool   magic │ block │ block │ …
//!   block          length u32 │ crc32 of the rest u32 │ ring u32 │ kind u32 │ contents
//! ```
//!
//! Numbers are little-endian. A recorder that is killed leaves half a block at the end: it is
//! noticed, and counts as the end.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use hindcast_taplog::Told;

use crate::taker::{Program, Records, SpoolError, Taker};

const MAGIC: &[u8; 8] = b"hcspool1";
const HEAD: usize = 16;
/// Where a file ends and the next one begins.
const SEGMENT: u64 = if cfg!(test) { 1 << 20 } else { 64 << 20 };

const RING: u32 = 1;
const TOLD: u32 = 2;
const GARBLED: u32 = 3;

/// Writes a spool.
#[derive(Debug)]
pub struct Segments {
    folder: PathBuf,
    path: PathBuf,
    file: io::BufWriter<File>,
    number: u32,
    in_segment: u64,
    written: u64,
    limit: u64,
}

impl Segments {
    /// In a folder that is there and has no spool. Of `limit` bytes not much more is written than
    /// was taken at once.
    pub fn create(folder: &Path, limit: u64) -> Result<Self, SpoolError> {
        let (path, file) = begin(folder, 0)?;
        Ok(Self {
            folder: folder.to_owned(),
            path,
            file,
            number: 0,
            in_segment: 0,
            written: 0,
            limit,
        })
    }

    /// Bytes so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn block(&mut self, ring: u32, kind: u32, contents: &[u8]) -> Result<(), SpoolError> {
        if self.in_segment >= SEGMENT {
            self.write_out()?;
            self.number += 1;
            (self.path, self.file) = begin(&self.folder, self.number)?;
            self.in_segment = 0;
        }
        let (ring, kind) = (ring.to_le_bytes(), kind.to_le_bytes());
        let mut crc = crc32fast::Hasher::new();
        for part in [&ring[..], &kind, contents] {
            crc.update(part);
        }
        let length = (contents.len() as u32).to_le_bytes();
        let crc = crc.finalize().to_le_bytes();
        let mut write = || {
            for part in [&length[..], &crc, &ring, &kind, contents] {
                self.file.write_all(part)?;
            }
            Ok(())
        };
        write().map_err(|source| self.cannot_write(source))?;
        let bytes = (HEAD + contents.len()) as u64;
        self.in_segment += bytes;
        self.written += bytes;
        Ok(())
    }

    fn write_out(&mut self) -> Result<(), SpoolError> {
        self.file
            .flush()
            .map_err(|source| self.cannot_write(source))
    }

    fn cannot_write(&self, source: io::Error) -> SpoolError {
        SpoolError::Write {
            path: self.path.clone(),
            source,
        }
    }
}

impl Taker for Segments {
    fn ring(&mut self, ring: u32, program: &Program) -> Result<(), SpoolError> {
        self.block(ring, RING, &program.encode())
    }

    fn told(&mut self, ring: u32, records: Records<'_>) -> Result<(), SpoolError> {
        self.block(ring, TOLD, records.bytes())
    }

    fn garbled(&mut self, ring: u32) -> Result<(), SpoolError> {
        self.block(ring, GARBLED, &[])
    }

    /// Who reads the spool sees that nothing more comes.
    fn ended(&mut self, _: u32) -> Result<(), SpoolError> {
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.written < self.limit
    }

    fn flush(&mut self, _: u64) -> Result<(), SpoolError> {
        self.write_out()
    }
}

fn path_of(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:06}.spool"))
}

fn begin(folder: &Path, number: u32) -> Result<(PathBuf, io::BufWriter<File>), SpoolError> {
    let path = path_of(folder, number);
    let create = || {
        let mut options = hindcast_private::options();
        let mut file = options.write(true).create_new(true).open(&path)?;
        file.write_all(MAGIC)?;
        Ok(io::BufWriter::with_capacity(1 << 20, file))
    };
    match create() {
        Ok(file) => Ok((path, file)),
        Err(source) => Err(SpoolError::Write { path, source }),
    }
}

/// Reads a spool, in the order in which it was collected: of a ring as it was told, of several by
/// and large.
#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    path: PathBuf,
    next: u32,
    file: Option<io::BufReader<File>>,
    /// Of the file.
    length: u64,
    at: u64,
    contents: Vec<u8>,
}

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
}

impl Spool {
    pub fn open(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            path: folder.to_owned(),
            next: 0,
            file: None,
            length: 0,
            at: 0,
            contents: Vec::new(),
        }
    }

    /// The next entry; `None` at the end, which may be in the middle of a block.
    pub fn read(&mut self) -> Result<Option<Entry<'_>>, SpoolError> {
        let Some((ring, kind)) = self.block()? else {
            return Ok(None);
        };
        let entry = match kind {
            RING => Program::decode(&self.contents).map(|program| Entry::Ring { ring, program }),
            TOLD => {
                // All of it can be read: then who goes through it needs not ask.
                let mut rest = &self.contents[..];
                while Told::decode(&mut rest).is_some() {}
                let told = Records::of(&self.contents);
                rest.is_empty().then_some(Entry::Told { ring, told })
            }
            GARBLED => Some(Entry::Garbled { ring }),
            _ => None,
        };
        let damaged = SpoolError::Damaged {
            path: self.path.clone(),
            at: self.at,
            what: "a block holds what no recorder writes",
        };
        entry.map(Some).ok_or(damaged)
    }

    /// Reads the next block's contents; its ring and kind.
    fn block(&mut self) -> Result<Option<(u32, u32)>, SpoolError> {
        let mut head = [0; HEAD];
        loop {
            if self.file.is_none() && !self.open_next()? {
                return Ok(None);
            }
            if self.fill(&mut head)? {
                break;
            }
            self.file = None;
        }
        let number = |at: usize| {
            u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes were taken"))
        };
        let length = number(0) as usize;
        let end = self.at + (HEAD + length) as u64;
        let mut contents = std::mem::take(&mut self.contents);
        // A length may be anything; what the file has not is not made room for.
        contents.resize(if end <= self.length { length } else { 0 }, 0);
        let whole = self.fill(&mut contents);
        self.contents = contents;
        if !whole? || end > self.length {
            self.file = None;
            return match path_of(&self.folder, self.next).exists() {
                true => Err(self.damaged("the file ends in the middle of a block")),
                false => Ok(None),
            };
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&head[8..]);
        crc.update(&self.contents);
        if crc.finalize() != number(4) {
            return Err(self.damaged("a block's checksum is wrong"));
        }
        self.at = end;
        Ok(Some((number(8), number(12))))
    }

    fn open_next(&mut self) -> Result<bool, SpoolError> {
        let path = path_of(&self.folder, self.next);
        let open = || {
            let file = File::open(&path)?;
            let length = file.metadata()?.len();
            Ok::<_, io::Error>((file, length))
        };
        let (file, length) = match open() {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(SpoolError::Read { path, source }),
        };
        (self.path, self.length, self.at) = (path, length, 0);
        self.next += 1;
        self.file = Some(io::BufReader::with_capacity(1 << 20, file));
        let mut magic = [0; MAGIC.len()];
        if self.fill(&mut magic)? && magic != *MAGIC {
            return Err(self.damaged("it does not begin as a spool"));
        }
        self.at = MAGIC.len() as u64;
        Ok(true)
    }

    /// False at the end of the file.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, SpoolError> {
        let Some(file) = &mut self.file else {
            return Ok(false);
        };
        match file.read_exact(bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(source) => Err(SpoolError::Read {
                path: self.path.clone(),
                source,
            }),
        }
    }

    fn damaged(&self, what: &'static str) -> SpoolError {
        SpoolError::Damaged {
            path: self.path.clone(),
            at: self.at,
            what,
        }
    }
}

#[cfg(test)]
mod tests;
