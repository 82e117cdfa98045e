//! The write-ahead file: what a recorder has recorded since its last segment.
//!
//! ```text
//! file    header entry*
//! header  magic[8] version:u32 recorder:u16 segment:u32 created:i64 flush_interval_us:u64 crc:u32
//! entry   length:u32 crc:u32 payload[length]                                         little-endian
//! payload 0 record (postcard)  |  1 time:i64 "everything up to this time is in the file"
//! ```
//!
//! In an encrypted trace the header is of a later version and has an address before its checksum,
//! and a payload is `number:u64 ciphertext tag[16]`. The number is the nonce: each payload that is
//! written gets the next one, also if writing it failed or something is written over it.
//!
//! The checksum of an entry covers its length and payload and starts from the checksum of the
//! record before it, so neither an old record in its place nor a record after a hole is ever taken
//! for one of the file. A time entry is always the last one: the next record is written over it,
//! and the chain of checksums leaves it out.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::crypt::{ADDRESS_BYTES, Address, FileKey, Keyring, TAG_BYTES};
use crate::parquet_table::{DictionaryPays, FORMAT_VERSION, SEALED_VERSION, Table, TableSummary};
use crate::store::sync_parent;
use crate::tables::{Requests, Transactions};
use crate::{Base, FinalState, Gap, Micros, OpenError, ReadError, Record, Recorder, Shape};

const MAGIC: &[u8; 8] = b"HNDCSWAL";
const HEADER_BYTES: usize = 8 + 4 + 2 + 4 + 8 + 8 + 4;
const ENTRY_BYTES: usize = 8;
const RECORD: u8 = 0;
const TIME: u8 = 1;
/// Of the number in front of an encrypted payload.
const NUMBER_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalHeader {
    pub recorder: u16,
    pub segment: u32,
    pub created: Micros,
    pub flush_interval_us: u64,
    /// If the payloads are encrypted. Filled in when the file is created.
    pub address: Option<Address>,
}

impl WalHeader {
    /// How long it is in the file.
    fn length(&self) -> usize {
        HEADER_BYTES + self.address.map_or(0, |_| ADDRESS_BYTES)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.length());
        bytes.extend_from_slice(MAGIC);
        let version = self.address.map_or(FORMAT_VERSION, |_| SEALED_VERSION);
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&self.recorder.to_le_bytes());
        bytes.extend_from_slice(&self.segment.to_le_bytes());
        bytes.extend_from_slice(&self.created.to_le_bytes());
        bytes.extend_from_slice(&self.flush_interval_us.to_le_bytes());
        if let Some(address) = &self.address {
            bytes.extend_from_slice(&address.to_bytes());
        }
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// From the beginning of a file, however short. `None` if it is damaged.
    fn decode(bytes: &[u8], path: &Path) -> Result<Option<Self>, OpenError> {
        if bytes.len() < HEADER_BYTES || &bytes[..8] != MAGIC {
            return Ok(None);
        }
        let found = u32::from_le_bytes(part(bytes, 8));
        let sealed = found == SEALED_VERSION;
        let length = HEADER_BYTES + if sealed { ADDRESS_BYTES } else { 0 };
        if bytes.len() < length {
            return Ok(None);
        }
        let (body, crc) = bytes[..length].split_at(length - 4);
        if crc32fast::hash(body).to_le_bytes() != crc {
            return Ok(None);
        }
        if found != FORMAT_VERSION && !sealed {
            return Err(OpenError::Newer {
                what: path.display().to_string(),
                found,
                supported: SEALED_VERSION,
            });
        }
        Ok(Some(Self {
            recorder: u16::from_le_bytes(part(body, 12)),
            segment: u32::from_le_bytes(part(body, 14)),
            created: i64::from_le_bytes(part(body, 18)),
            flush_interval_us: u64::from_le_bytes(part(body, 26)),
            address: sealed.then(|| Address::from_bytes(&part(body, 34))),
        }))
    }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N]
        .try_into()
        .expect("the slice is as long as the array")
}

/// Appends a record, not yet checksummed, to a batch for [`WalWriter::append`].
pub(crate) fn add_to_batch(record: &Record, batch: &mut Vec<u8>) {
    let start = batch.len();
    batch.extend_from_slice(&[0, 0, 0, 0, RECORD]);
    postcard::to_io(record, &mut *batch).expect("a record can be written to memory");
    let length = u32::try_from(batch.len() - start - 4).expect("a record is shorter than 4 GiB");
    batch[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

pub(crate) struct WalWriter {
    file: File,
    path: PathBuf,
    header: WalHeader,
    /// Where the next record goes; nothing before it ever changes.
    end: u64,
    /// Checksum of the last record.
    chain: u32,
    framed: Vec<u8>,
    sealing: Option<Sealing>,
}

/// Encrypts the payloads of one file.
struct Sealing {
    key: Arc<FileKey>,
    /// Of the next payload. Never goes back: it is the nonce.
    number: u64,
}

impl Sealing {
    fn seal(&mut self, payload: &[u8], at: u64) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(NUMBER_BYTES + payload.len() + TAG_BYTES);
        sealed.extend_from_slice(&self.number.to_le_bytes());
        sealed.extend_from_slice(payload);
        let place = at.to_le_bytes();
        self.key
            .seal(self.number, false, &place, &mut sealed, NUMBER_BYTES);
        self.number += 1;
        sealed
    }
}

/// The payload of the entry at this place. `None`: it is not what was written there.
fn unseal<'a>(key: &FileKey, payload: &'a mut [u8], at: u64) -> Option<&'a [u8]> {
    let (number, sealed) = payload.split_at_mut_checked(NUMBER_BYTES)?;
    let number = u64::from_le_bytes(part(number, 0));
    key.unseal(number, false, &at.to_le_bytes(), sealed)
}

impl WalWriter {
    pub fn create(
        path: PathBuf,
        mut header: WalHeader,
        keyring: Option<&Keyring>,
    ) -> io::Result<Self> {
        header.address = None;
        let mut sealing = None;
        if let Some(keyring) = keyring {
            let (key, address) = keyring.key_for_new(&path).map_err(io::Error::other)?;
            header.address = Some(address);
            sealing = Some(Sealing { key, number: 0 });
        }
        let file = hindcast_private::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        let bytes = header.encode();
        let chain = crc32fast::hash(&bytes);
        let written = file
            .write_all_at(&bytes, 0)
            .and_then(|()| file.sync_all())
            .and_then(|()| sync_parent(&path));
        if let Err(error) = written {
            // Without a whole header the file is of no use, and in the way of the next attempt.
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        Ok(Self {
            file,
            path,
            header,
            end: bytes.len() as u64,
            chain,
            framed: Vec::new(),
            sealing,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn header(&self) -> WalHeader {
        self.header
    }

    pub fn bytes(&self) -> u64 {
        self.end
    }

    pub fn is_empty(&self) -> bool {
        self.end == self.header.length() as u64
    }

    /// Writes a batch and waits until it is on disk. If that fails nothing has changed, and the
    /// same batch can be tried again: it is then written anew, because what the kernel could not
    /// write once it may have forgotten.
    pub fn append(&mut self, batch: &[u8], now: Micros) -> io::Result<()> {
        let mut framed = std::mem::take(&mut self.framed);
        framed.clear();
        let mut chain = self.chain;
        let mut rest = batch;
        while !rest.is_empty() {
            let length = u32::from_le_bytes(part(rest, 0)) as usize;
            let (payload, after) = rest[4..].split_at(length);
            chain = self.frame(payload, chain, &mut framed);
            rest = after;
        }
        let added = framed.len() as u64;
        self.frame(&time_payload(now), chain, &mut framed);
        let written = self
            .file
            .write_all_at(&framed, self.end)
            .and_then(|()| self.file.sync_data());
        framed.shrink_to(4 << 20);
        self.framed = framed;
        if let Err(error) = written {
            // Best effort: a reader would cut the same bytes off as torn.
            let _ = self.file.set_len(self.end);
            return Err(error);
        }
        self.end += added;
        self.chain = chain;
        Ok(())
    }

    /// Notes that nothing more was recorded until now. Not synced: worth a write, not a seek.
    pub fn note_time(&mut self, now: Micros) -> io::Result<()> {
        let mut framed = Vec::with_capacity(32);
        self.frame(&time_payload(now), self.chain, &mut framed);
        self.file.write_all_at(&framed, self.end)
    }

    /// Appends an entry to what is to be written at the end.
    fn frame(&mut self, payload: &[u8], chain: u32, framed: &mut Vec<u8>) -> u32 {
        let at = self.end + framed.len() as u64;
        match &mut self.sealing {
            None => frame(payload, chain, framed),
            Some(sealing) => frame(&sealing.seal(payload, at), chain, framed),
        }
    }
}

fn time_payload(now: Micros) -> [u8; 9] {
    let mut payload = [TIME; 9];
    payload[1..].copy_from_slice(&now.to_le_bytes());
    payload
}

fn frame(payload: &[u8], chain: u32, framed: &mut Vec<u8>) -> u32 {
    let length = (payload.len() as u32).to_le_bytes();
    let crc = checksum(chain, &length, payload);
    framed.extend_from_slice(&length);
    framed.extend_from_slice(&crc.to_le_bytes());
    framed.extend_from_slice(payload);
    crc
}

fn checksum(chain: u32, length: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(chain);
    hasher.update(length);
    hasher.update(payload);
    hasher.finalize()
}

/// What comes after a write-ahead file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    /// Another one.
    Another,
    /// Nothing: the recorder is gone.
    Nothing,
    /// Another one, which holds what is missing in this.
    Resumed,
}

impl Follows {
    pub fn of_last(last: bool) -> Self {
        match last {
            true => Self::Nothing,
            false => Self::Another,
        }
    }
}

/// A write-ahead file that was read through once: what is in it, apart from the many requests and
/// transactions.
pub(crate) struct Wal {
    pub path: PathBuf,
    file: Arc<File>,
    /// `None`: even the header is torn, so there is nothing to read.
    header: Option<WalHeader>,
    key: Option<Arc<FileKey>>,
    /// End of the last whole record.
    end: u64,
    pub torn: Option<Torn>,
    /// Everything recorded up to this time is here.
    pub until: Micros,
    pub closed: Option<Micros>,
    pub requests: TableSummary,
    pub transactions: TableSummary,
    pub request_dictionary: DictionaryPays,
    pub transaction_dictionary: DictionaryPays,
    pub small: Small,
}

/// Where the file stops making sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Torn {
    pub at: u64,
    pub bytes: u64,
    pub file_changed: Micros,
}

/// Records of the tables that are read whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Small {
    pub recorders: Vec<Recorder>,
    pub bases: Vec<Base>,
    pub shapes: Vec<Shape>,
    pub gaps: Vec<Gap>,
    pub final_states: Vec<FinalState>,
}

impl Wal {
    /// `None` if the file is gone.
    pub fn open(path: &Path, keyring: Option<&Keyring>) -> Result<Option<Self>, OpenError> {
        let failed = |source| OpenError::Io {
            what: format!("{} cannot be read", path.display()),
            source,
        };
        let file = match File::open(path) {
            Ok(file) => Arc::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let metadata = file.metadata().map_err(failed)?;
        let mut wal = Self {
            path: path.to_owned(),
            file: Arc::clone(&file),
            header: None,
            key: None,
            end: 0,
            torn: None,
            until: Micros::MIN,
            closed: None,
            requests: TableSummary::default(),
            transactions: TableSummary::default(),
            request_dictionary: DictionaryPays::default(),
            transaction_dictionary: DictionaryPays::default(),
            small: Small::default(),
        };
        let header = WalHeader::decode(&beginning(&file).map_err(failed)?, path)?;
        wal.key = key_of(path, header.as_ref(), keyring)?;
        let (mut torn, mut written_until) = (true, None);
        if let Some(header) = header {
            wal.header = Some(header);
            wal.until = header.created;
            let mut entries = Entries::new(Arc::clone(&file), header, wal.key.clone());
            loop {
                match entries.next().map_err(failed)? {
                    Entry::Record { record, .. } => wal.count(record),
                    Entry::Time(time) => written_until = Some(time),
                    Entry::End { clean } => {
                        torn = !clean;
                        break;
                    }
                }
            }
            wal.end = entries.end;
        }
        wal.until = wal.until.max(written_until.unwrap_or(Micros::MIN));
        let changed = metadata
            .modified()
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let file_changed = changed.map_or(wal.until, |since| since.as_micros() as Micros);
        if header.is_none() {
            wal.until = file_changed;
        }
        // A file that was created and never written is whole, whatever it lacks.
        if torn && metadata.len() > wal.end {
            wal.torn = Some(Torn {
                at: wal.end,
                bytes: metadata.len() - wal.end,
                file_changed,
            });
        }
        Ok(Some(wal))
    }

    /// Whether there is at least a header; if not, nothing is known about the file but that it
    /// exists.
    pub fn has_header(&self) -> bool {
        self.header.is_some()
    }

    /// When the recorder stopped at the latest, if it stopped without saying so.
    pub fn crashed_at(&self) -> Micros {
        let flush_interval = self
            .header
            .map_or(0, |header| header.flush_interval_us as Micros);
        let end = self.until.saturating_add(flush_interval);
        self.torn.map_or(end, |torn| end.max(torn.file_changed))
    }

    fn count(&mut self, record: Record) {
        let seen = match record {
            Record::Request(request) => {
                self.requests
                    .count(Requests::id(&request), Requests::time(&request));
                if let Some(digest) = Requests::digest(&request) {
                    self.request_dictionary.see(digest);
                }
                request.ended
            }
            Record::Transaction(transaction) => {
                self.transactions.count(
                    Transactions::id(&transaction),
                    Transactions::time(&transaction),
                );
                if let Some(digest) = Transactions::digest(&transaction) {
                    self.transaction_dictionary.see(digest);
                }
                transaction.ended
            }
            Record::Recorder(recorder) => {
                let started = recorder.started;
                self.small.recorders.push(recorder);
                started
            }
            Record::Base(base) => {
                let taken = base.taken;
                self.small.bases.push(base);
                taken
            }
            Record::Shape(shape) => {
                self.small.shapes.push(shape);
                Micros::MIN
            }
            Record::Gap(gap) => {
                self.small.gaps.push(gap);
                Micros::MIN
            }
            Record::FinalState(state) => {
                let taken = state.taken;
                self.small.final_states.push(state);
                taken
            }
            Record::Closed { at } => {
                self.closed = Some(at);
                at
            }
        };
        self.until = self.until.max(seen);
    }

    /// Reads the file again and says where its requests and transactions are, each in order of
    /// their ids.
    pub fn index(&self) -> Result<WalIndex, ReadError> {
        let mut index = WalIndex {
            requests: Vec::new(),
            transactions: Vec::new(),
        };
        let Some(header) = self.header else {
            return Ok(index);
        };
        let mut entries = Entries::new(Arc::clone(&self.file), header, self.key.clone());
        // A file that is still being written may have grown since it was opened; what came later is
        // not counted.
        while entries.end < self.end {
            match entries.next().map_err(|source| self.unreadable(source))? {
                Entry::Record {
                    record: Record::Request(request),
                    at,
                } => index.requests.push((request.id.0, at)),
                Entry::Record {
                    record: Record::Transaction(transaction),
                    at,
                } => {
                    index.transactions.push((transaction.id.0, at));
                }
                Entry::Record { .. } | Entry::Time(_) => {}
                Entry::End { .. } => break,
            }
        }
        index.requests.sort_unstable();
        index.transactions.sort_unstable();
        Ok(index)
    }

    /// The record whose entry is at this place, according to the index.
    pub fn record_at(&self, at: u64) -> Result<Record, ReadError> {
        let mut entry = [0; ENTRY_BYTES];
        self.file
            .read_exact_at(&mut entry, at)
            .map_err(|source| self.unreadable(source))?;
        let mut payload = vec![0; u32::from_le_bytes(part(&entry, 0)) as usize];
        self.file
            .read_exact_at(&mut payload, at + ENTRY_BYTES as u64)
            .map_err(|source| self.unreadable(source))?;
        let payload = match &self.key {
            None => Some(&payload[..]),
            Some(key) => unseal(key, &mut payload, at),
        };
        match payload.and_then(<[u8]>::split_first) {
            Some((&RECORD, bytes)) => postcard::from_bytes(bytes).ok(),
            _ => None,
        }
        .ok_or_else(|| ReadError::Damaged {
            what: self.path.display().to_string(),
            reason: format!("the record at byte {at} changed while it was being read"),
        })
    }

    fn unreadable(&self, source: io::Error) -> ReadError {
        ReadError::Io {
            what: format!("{} cannot be read", self.path.display()),
            source,
        }
    }
}

/// Ids and places of entries, in order of ids.
pub(crate) struct WalIndex {
    pub requests: Vec<(u64, u64)>,
    pub transactions: Vec<(u64, u64)>,
}

#[expect(
    clippy::large_enum_variant,
    reason = "nearly every entry is a record, and each lives only for a moment"
)]
enum Entry {
    Record { record: Record, at: u64 },
    Time(Micros),
    End { clean: bool },
}

/// The bytes that a header is in, or as many as there are.
fn beginning(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEADER_BYTES + ADDRESS_BYTES];
    let mut read = 0;
    loop {
        match file.read_at(&mut bytes[read..], read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

/// The key of a file, if its trace is encrypted.
fn key_of(
    path: &Path,
    header: Option<&WalHeader>,
    keyring: Option<&Keyring>,
) -> Result<Option<Arc<FileKey>>, OpenError> {
    let damaged = |reason: &str| OpenError::Damaged {
        what: path.display().to_string(),
        reason: reason.to_owned(),
    };
    let Some(header) = header else {
        return Ok(None);
    };
    match (&header.address, keyring) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(damaged(
            "it is not encrypted, as the rest of the recording is",
        )),
        (Some(_), None) => Err(damaged("it is encrypted, and the recording is not")),
        (Some(address), Some(keyring)) => match keyring.key_of(path, address) {
            Some(key) => Ok(Some(key)),
            None if keyring.secret().is_none() => Err(OpenError::OnlyPublic {
                location: path.display().to_string(),
                needed: address.recipient,
            }),
            None => Err(OpenError::OtherKey {
                location: path.display().to_string(),
                needed: address.recipient,
                given: keyring.public().id(),
            }),
        },
    }
}

/// Goes through the entries until the first that is not whole.
struct Entries {
    reader: BufReader<Positioned>,
    key: Option<Arc<FileKey>>,
    chain: u32,
    /// End of the last whole record.
    end: u64,
    payload: Vec<u8>,
}

impl Entries {
    fn new(file: Arc<File>, header: WalHeader, key: Option<Arc<FileKey>>) -> Self {
        let start = header.length() as u64;
        let positioned = Positioned {
            file,
            position: start,
        };
        Self {
            reader: BufReader::with_capacity(256 << 10, positioned),
            key,
            chain: crc32fast::hash(&header.encode()),
            end: start,
            payload: Vec::new(),
        }
    }

    fn next(&mut self) -> io::Result<Entry> {
        if self.reader.fill_buf()?.is_empty() {
            return Ok(Entry::End { clean: true });
        }
        let mut entry = [0; ENTRY_BYTES];
        if !self.read_whole(&mut entry)? {
            return Ok(Entry::End { clean: false });
        }
        let length = u32::from_le_bytes(part(&entry, 0)) as usize;
        // A damaged length must not make us allocate gigabytes.
        self.payload.clear();
        let read = (&mut self.reader)
            .take(length as u64)
            .read_to_end(&mut self.payload)?;
        let crc = checksum(self.chain, &entry[..4], &self.payload);
        if read < length || crc.to_le_bytes() != entry[4..] {
            return Ok(Entry::End { clean: false });
        }
        let payload = match &self.key {
            None => Some(&self.payload[..]),
            Some(key) => unseal(key, &mut self.payload, self.end),
        };
        match payload.and_then(<[u8]>::split_first) {
            Some((&RECORD, bytes)) => match postcard::from_bytes(bytes) {
                Ok(record) => {
                    let at = self.end;
                    self.end += (ENTRY_BYTES + length) as u64;
                    self.chain = crc;
                    Ok(Entry::Record { record, at })
                }
                Err(_) => Ok(Entry::End { clean: false }),
            },
            Some((&TIME, time)) if time.len() == 8 => {
                Ok(Entry::Time(i64::from_le_bytes(part(time, 0))))
            }
            _ => Ok(Entry::End { clean: false }),
        }
    }

    fn read_whole(&mut self, target: &mut [u8]) -> io::Result<bool> {
        match self.reader.read_exact(target) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Reads a file from a position of its own, independent of other readers.
struct Positioned {
    file: Arc<File>,
    position: u64,
}

impl Read for Positioned {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(target, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}
