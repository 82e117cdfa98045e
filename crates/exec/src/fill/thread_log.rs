//! One log, and the one that is made of it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use hindcast_execlog::event::{self, FLAG_ECHO, FLAG_REFERENCE};
use hindcast_execlog::reference::{Given, Reference};
use hindcast_execlog::{Event, Kind, LogHeader};

use super::sources::{Sent, Source};
use crate::log;

/// How much of a log is looked at together.
const PIECE: u64 = 256 << 10;
const HEADER: u64 = LogHeader::BYTES as u64;

/// So much of the disk is left to what the program writes as long as it runs: its log ends where
/// there is no room for it, and this one can be completed later.
const LEFT: u64 = 16 << 20;

pub struct Log {
    path: PathBuf,
    source: File,
    /// So many bytes behind the header were looked at.
    at: u64,
    /// The log that refers to nothing, once it is another one, and how long it is.
    whole: Option<(io::BufWriter<File>, u64)>,
    /// Bytes of files that were put into it, and of what named these.
    read: u64,
    /// It goes no further, because of this.
    cut: Option<String>,
    /// Which file is in each place.
    places: HashMap<u32, u32>,
}

impl Log {
    pub fn open(path: PathBuf) -> io::Result<Log> {
        let source = hindcast_private::options()
            .read(true)
            .write(true)
            .open(&path)?;
        Ok(Log {
            source,
            path,
            at: 0,
            whole: None,
            read: 0,
            cut: None,
            places: HashMap::new(),
        })
    }

    fn whole_path(&self) -> PathBuf {
        self.path.with_extension("whole")
    }

    /// Looks at what is new. Whether there was something.
    pub fn go_on(
        &mut self,
        is_over: bool,
        files: &mut HashMap<u32, Source>,
        sent: &mut Sent,
    ) -> io::Result<bool> {
        let committed = word(&self.source, std::mem::offset_of!(LogHeader, committed))?;
        let (begun, mut length) = (self.at, PIECE);
        while self.at < committed && self.cut.is_none() {
            let mut piece = vec![0; length.min(committed - self.at) as usize];
            self.source.read_exact_at(&mut piece, HEADER + self.at)?;
            // A run of acquisitions that a log ends with may still be growing.
            let is_last = self.at + piece.len() as u64 == committed;
            let used = self.take(&piece, is_last && !is_over, files, sent)?;
            if used == 0 {
                if is_last {
                    break;
                }
                // One event that is longer.
                length *= 2;
                continue;
            }
            self.at += used;
            length = PIECE;
        }
        if self.at != begun {
            let read = std::mem::offset_of!(LogHeader, read) as u64;
            self.source.write_all_at(&self.read.to_ne_bytes(), read)?;
        }
        Ok(self.at != begun)
    }

    /// Takes the events of a piece: how many bytes they were.
    fn take(
        &mut self,
        piece: &[u8],
        may_grow: bool,
        files: &mut HashMap<u32, Source>,
        sent: &mut Sent,
    ) -> io::Result<u64> {
        let mut out = Vec::new();
        let mut taken = 0;
        // The files that events of this piece refer to, and where the first of each begins.
        let mut used: HashMap<u32, (usize, u64)> = HashMap::new();
        while let Some(event) = Event::at(piece, taken) {
            if may_grow && event.kind == Kind::Relaxed as u16 && event.end == piece.len() {
                break;
            }
            if event.kind == Kind::Given as u16 {
                self.begin(taken)?;
                self.know(&event, files, sent);
                self.read += Given::BYTES as u64;
            } else if let Some(reference) = reference(&event) {
                used.entry(reference.file).or_insert((out.len(), self.read));
                let whole = filled(&event, &reference, files.get(&reference.file), &mut out);
                match whole {
                    Ok(bytes) => self.read += bytes,
                    Err(why) => {
                        self.cut = Some(why);
                        break;
                    }
                }
            } else if self.whole.is_some() {
                out.extend(&piece[event.offset..event.end]);
            }
            taken = event.end;
        }
        // Only now is it known that all that was read had not changed before.
        let changed = used
            .iter()
            .filter_map(|(number, place)| {
                let source = files.get(number)?;
                (!source.is_as_it_was()).then(|| (*place, source.changed()))
            })
            .min_by_key(|(place, _)| *place);
        if let Some(((end, read), why)) = changed {
            out.truncate(end);
            self.read = read;
            self.cut = Some(why);
        }
        if let Some(why) = &self.cut {
            let payload = why.len().min(u16::MAX as usize - 1);
            let header = event::header(Kind::Ended as u16, 0, payload as u16);
            out.extend(header.to_ne_bytes());
            out.extend(&why.as_bytes()[..payload]);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        if let Some((whole, length)) = &mut self.whole {
            if sent.may_come() && room(whole.get_ref())? < LEFT + out.len() as u64 {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            whole.write_all(&out)?;
            *length += out.len() as u64;
        }
        Ok(taken as u64)
    }

    /// From here on the whole log is another one. What lies before, up to `taken` bytes of the
    /// piece at hand, is the same.
    fn begin(&mut self, taken: usize) -> io::Result<()> {
        if self.whole.is_some() {
            return Ok(());
        }
        let file = hindcast_private::create(self.whole_path())?;
        let mut whole = io::BufWriter::with_capacity(PIECE as usize, file);
        let length = self.at + taken as u64;
        io::copy(
            &mut File::open(&self.path)?.take(HEADER + length),
            &mut whole,
        )?;
        self.whole = Some((whole, length));
        Ok(())
    }

    fn know(&mut self, event: &Event<'_>, files: &mut HashMap<u32, Source>, sent: &mut Sent) {
        let Some((found, path)) = event.payload.split_first_chunk::<{ Given::BYTES }>() else {
            return;
        };
        let found = Given::from_bytes(found);
        // Only this thread has read the file that was there before.
        if let Some(before) = self.places.insert(found.place, found.number) {
            files.remove(&before);
        }
        let source = Source::new(&found, path, sent.take(found.number));
        files.insert(found.number, source);
    }

    /// Removes what was made so far.
    pub fn give_up(self) {
        if self.whole.is_some() {
            let _ = std::fs::remove_file(self.whole_path());
        }
    }

    /// Puts the whole log in the place of the one that refers. Why it ends early, if it does.
    pub fn conclude(mut self) -> io::Result<Option<String>> {
        let path = self.whole_path();
        let Some((whole, length)) = self.whole.take() else {
            return Ok(None);
        };
        let written = whole.into_inner().map_err(io::IntoInnerError::into_error);
        let replaced = written.and_then(|file| {
            let at = |field: usize| field as u64;
            file.write_all_at(
                &length.to_ne_bytes(),
                at(std::mem::offset_of!(LogHeader, committed)),
            )?;
            for field in [
                std::mem::offset_of!(LogHeader, referred),
                std::mem::offset_of!(LogHeader, read),
            ] {
                file.write_all_at(&0u64.to_ne_bytes(), at(field))?;
            }
            std::fs::rename(&path, &self.path)
        });
        if replaced.is_err() {
            let _ = std::fs::remove_file(&path);
        }
        replaced.map(|()| self.cut)
    }
}

/// What a read has in the log in place of its bytes.
fn reference(event: &Event<'_>) -> Option<Reference> {
    let refers = event.is_call() && event.flags & (FLAG_REFERENCE | FLAG_ECHO) == FLAG_REFERENCE;
    if !refers || !matches!(log::name(event.kind), "read" | "pread") {
        return None;
    }
    let (_, _, written) = event.call()?;
    Some(Reference::from_bytes(written.try_into().ok()?))
}

/// The event with the bytes that it refers to: how many these were.
fn filled(
    event: &Event<'_>,
    reference: &Reference,
    source: Option<&Source>,
    out: &mut Vec<u8>,
) -> Result<u64, String> {
    let damaged = || "the log refers to a file that it does not name".to_owned();
    let (_, result, _) = event.call().ok_or_else(damaged)?;
    let source = source.ok_or_else(damaged)?;
    let bytes = usize::try_from(result.unwrap_or(0)).map_err(|_| damaged())?;
    let before = &event.payload[..event.payload.len() - Reference::BYTES];
    let payload = before.len() + bytes;
    let mut read = vec![0; event::padded(payload) - before.len()];
    source.read(reference, &mut read[..bytes])?;
    let flags = event.flags & !FLAG_REFERENCE;
    match u16::try_from(payload) {
        Ok(short) if short != event::LONG => {
            out.extend(event::header(event.kind, flags, short).to_ne_bytes());
        }
        _ => {
            out.extend(event::header(event.kind, flags, event::LONG).to_ne_bytes());
            out.extend((payload as u32).to_ne_bytes());
        }
    }
    out.extend(before);
    out.extend(read);
    Ok(bytes as u64)
}

/// How much may still be written to the disk that a file is on.
fn room(file: &File) -> io::Result<u64> {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut disk: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the structure is ours.
    match unsafe { libc::fstatvfs(file.as_raw_fd(), &raw mut disk) } {
        0 => Ok(disk.f_bavail * disk.f_frsize),
        _ => Err(io::Error::last_os_error()),
    }
}

pub fn word(file: &File, at: usize) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at as u64)?;
    Ok(u64::from_ne_bytes(bytes))
}
