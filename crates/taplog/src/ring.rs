//! A ring of records: one writes, one reads.
//!
//! ```text
//!   page of the header │ data, a power of two ≥ 64 KiB
//!   written, taken     │ ▓▓▓▓ free ░░░░ told, not taken ▓▓▓▓
//!                                  ▲ taken         ▲ written      counted from the beginning
//! ```
//!
//! Records begin at multiples of 32, the size of their head, so a head never wraps around; what
//! follows it may. A record counts from the moment when `written` has passed it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::{HEAD, Head};
use crate::{Direction, Told};

/// Bytes of data of a ring by default. At a thousand bytes a request and fifty looks a second, a
/// thread may serve two hundred thousand requests a second before it loses one.
pub const CAPACITY: usize = 4 << 20;
/// The least and the most there can be.
pub const CAPACITY_MIN: usize = 64 << 10;
pub const CAPACITY_MAX: usize = 1 << 30;

/// Where data begins: behind a page for the header.
pub const DATA: usize = 4096;

/// Bytes of one record's contents; what is longer becomes several. So a long write goes out while
/// it is still being copied.
pub const PIECE: usize = 16 << 10;

const MAGIC: u64 = u64::from_le_bytes(*b"hindtap1");
const ALIGN: u64 = HEAD as u64;

#[repr(C)]
struct Header {
    magic: AtomicU64,
    capacity: AtomicU64,
    /// The producer's, on a line of its own.
    written: Line,
    /// All that was lost, told or not: who is killed tells nothing any more.
    lost_records: Line,
    lost_bytes: AtomicU64,
    /// The consumer's.
    taken: Line,
}

#[repr(C, align(64))]
struct Line {
    value: AtomicU64,
}

const _: () = assert!(size_of::<Header>() <= DATA && HEAD == 32);

/// How large a file must be for a ring of such a capacity.
pub fn file_size(capacity: usize) -> usize {
    DATA + capacity
}

/// The next capacity that a ring can have.
pub fn capacity_of(wanted: usize) -> usize {
    wanted.clamp(CAPACITY_MIN, CAPACITY_MAX).next_power_of_two()
}

/// The end that writes. All of it is in the process that does; the ring itself has only what the
/// other end needs.
#[derive(Debug)]
pub struct Producer {
    base: *mut u8,
    capacity: u64,
    written: u64,
    /// What the other end had taken when that was last looked at.
    taken: u64,
    lost: Lost,
}

// SAFETY: its owner is the only one that writes to the ring.
unsafe impl Send for Producer {}

/// What could not be told yet.
#[derive(Debug, Default)]
struct Lost {
    records: u64,
    bytes: u64,
    /// The stream that lost it; 0: several, or none.
    stream: u64,
}

impl Producer {
    /// Makes a ring of memory that is zero.
    ///
    /// # Safety
    /// `base` is page-aligned, [`file_size`] of `capacity` bytes from there on may be read and
    /// written for as long as the producer is used, and nobody else writes to them but one
    /// [`Consumer`]. `capacity` is one that [`capacity_of`] gives.
    pub unsafe fn new(base: *mut u8, capacity: usize) -> Self {
        // SAFETY: the header lies within the first page, which is aligned.
        let header = unsafe { &*base.cast::<Header>() };
        header.capacity.store(capacity as u64, Ordering::Relaxed);
        // What finds the magic finds the rest.
        header.magic.store(MAGIC, Ordering::Release);
        Self {
            base,
            capacity: capacity as u64,
            written: 0,
            taken: 0,
            lost: Lost::default(),
        }
    }

    fn header(&self) -> &Header {
        // SAFETY: as promised to `new`.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// Tells something, if there is room; else counts it as lost. `at`: nanoseconds of the
    /// machine's monotonic clock.
    pub fn tell(&mut self, told: &Told<'_>, at: u64) {
        self.tell_lost(at);
        if !self.put(told, at) {
            let length = match told {
                Told::Bytes { bytes, .. } => bytes.len() as u64,
                _ => 0,
            };
            self.lose(told.stream().unwrap_or(0), length);
        }
    }

    /// Tells bytes of a stream that lie in several places: what of them was read or written is
    /// `length`.
    pub fn tell_bytes<'a>(
        &mut self,
        stream: u64,
        direction: Direction,
        places: impl Iterator<Item = &'a [u8]>,
        length: usize,
        at: u64,
    ) {
        let mut left = length;
        for place in places {
            let taken = &place[..place.len().min(left)];
            left -= taken.len();
            for bytes in taken.chunks(PIECE) {
                let told = Told::Bytes {
                    stream,
                    direction,
                    bytes,
                };
                self.tell(&told, at);
            }
            if left == 0 {
                return;
            }
        }
    }

    fn tell_lost(&mut self, at: u64) {
        if self.lost.records == 0 {
            return;
        }
        let told = Told::Lost {
            stream: (self.lost.stream != 0).then_some(self.lost.stream),
            records: self.lost.records,
            bytes: self.lost.bytes,
        };
        if self.put(&told, at) {
            self.lost = Lost::default();
        }
    }

    fn lose(&mut self, stream: u64, bytes: u64) {
        let lost = &mut self.lost;
        lost.stream = match lost.records {
            0 => stream,
            _ if lost.stream == stream => stream,
            _ => 0,
        };
        lost.records += 1;
        lost.bytes += bytes;
        let header = self.header();
        let add = |total: &AtomicU64, more| {
            total.store(total.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&header.lost_records.value, 1);
        add(&header.lost_bytes, bytes);
    }

    fn put(&mut self, told: &Told<'_>, at: u64) -> bool {
        let (mut head, parts) = told.parts(at);
        let size = HEAD + parts.iter().map(|part| part.len()).sum::<usize>();
        let room = (size as u64).next_multiple_of(ALIGN);
        if self.written + room - self.taken > self.capacity {
            self.taken = self.header().taken.value.load(Ordering::Acquire);
            // Whatever the other end says, it has not taken what is not written.
            self.taken = self
                .taken
                .clamp(self.written.saturating_sub(self.capacity), self.written);
            if self.written + room - self.taken > self.capacity {
                return false;
            }
        }
        head.size = size as u32;
        let mut position = self.written;
        self.copy(&mut position, &head.to_bytes());
        for part in parts {
            self.copy(&mut position, part);
        }
        self.written += room;
        let written = &self.header().written.value;
        written.store(self.written, Ordering::Release);
        true
    }

    fn copy(&self, position: &mut u64, bytes: &[u8]) {
        let start = (*position & (self.capacity - 1)) as usize;
        let first = bytes.len().min(self.capacity as usize - start);
        // SAFETY: both halves lie within the ring's data, and the other end does not read there
        // until `written` says so.
        unsafe {
            let data = self.base.add(DATA);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), data.add(start), first);
            std::ptr::copy_nonoverlapping(bytes.as_ptr().add(first), data, bytes.len() - first);
        }
        *position += bytes.len() as u64;
    }
}

/// The end that reads.
#[derive(Debug)]
pub struct Consumer {
    base: *const u8,
    capacity: u64,
    taken: u64,
    /// Told to be lost.
    lost: (u64, u64),
    scratch: Vec<u8>,
}

// SAFETY: its owner is the only one that takes from the ring.
unsafe impl Send for Consumer {}

/// The memory holds no ring, or one that somebody has written over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl Consumer {
    /// `None` as long as nobody has made a ring of the memory.
    ///
    /// # Safety
    /// `base` is page-aligned, and `length` bytes from there on may be read, and the first page
    /// written, for as long as the consumer is used. There is no other consumer.
    pub unsafe fn new(base: *mut u8, length: usize) -> Result<Option<Self>, Corrupt> {
        if length < DATA {
            return Ok(None);
        }
        // SAFETY: the header lies within the first page, which is aligned.
        let header = unsafe { &*base.cast::<Header>() };
        match header.magic.load(Ordering::Acquire) {
            0 => return Ok(None),
            MAGIC => {}
            _ => return Err(Corrupt),
        }
        let capacity = header.capacity.load(Ordering::Relaxed);
        let fits = capacity.is_power_of_two()
            && (CAPACITY_MIN as u64..=CAPACITY_MAX as u64).contains(&capacity)
            && length >= file_size(capacity as usize);
        fits.then(|| {
            Some(Self {
                base,
                capacity,
                taken: header.taken.value.load(Ordering::Relaxed),
                lost: (0, 0),
                scratch: Vec::new(),
            })
        })
        .ok_or(Corrupt)
    }

    fn header(&self) -> &Header {
        // SAFETY: as promised to `new`.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// How much of the ring is told and not taken, in percent.
    pub fn fill(&self) -> u64 {
        let written = self.header().written.value.load(Ordering::Relaxed);
        written.saturating_sub(self.taken).min(self.capacity) * 100 / self.capacity
    }

    /// Records and bytes that were lost and are not told to be: all that is known of them once
    /// nobody writes any more.
    pub fn lost_untold(&self) -> (u64, u64) {
        let header = self.header();
        let records = header.lost_records.value.load(Ordering::Relaxed);
        let bytes = header.lost_bytes.load(Ordering::Relaxed);
        (
            records.saturating_sub(self.lost.0),
            bytes.saturating_sub(self.lost.1),
        )
    }

    /// Hands out what was told since the last time, with its moment, and makes room for more.
    /// Returns how many bytes of the ring that was.
    pub fn take(&mut self, mut told: impl FnMut(u64, Told<'_>)) -> Result<u64, Corrupt> {
        let written = self.header().written.value.load(Ordering::Acquire);
        let started = self.taken;
        let there = written.checked_sub(started).ok_or(Corrupt)?;
        if there > self.capacity || there % ALIGN != 0 {
            return Err(Corrupt);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut result = Ok(());
        while self.taken < written {
            match self.next(written, &mut scratch) {
                Some(head) => match Told::of(&head, &scratch) {
                    Some(said) => {
                        if let Told::Lost { records, bytes, .. } = said {
                            self.lost.0 += records;
                            self.lost.1 += bytes;
                        }
                        told(head.at, said);
                    }
                    None => result = Err(Corrupt),
                },
                None => result = Err(Corrupt),
            }
            if result.is_err() {
                break;
            }
        }
        self.scratch = scratch;
        let taken = &self.header().taken.value;
        taken.store(self.taken, Ordering::Release);
        result.map(|()| self.taken - started)
    }

    fn next(&mut self, written: u64, scratch: &mut Vec<u8>) -> Option<Head> {
        let mut bytes = [0; HEAD];
        let mut position = self.taken;
        self.copy(&mut position, &mut bytes);
        let head = Head::from_bytes(&bytes);
        let size = u64::from(head.size);
        let room = size.next_multiple_of(ALIGN);
        if size < HEAD as u64 || room > written - self.taken {
            return None;
        }
        scratch.resize(head.size as usize - HEAD, 0);
        self.copy(&mut position, scratch);
        self.taken += room;
        Some(head)
    }

    fn copy(&self, position: &mut u64, out: &mut [u8]) {
        let start = (*position & (self.capacity - 1)) as usize;
        let first = out.len().min(self.capacity as usize - start);
        // SAFETY: both halves lie within the ring's data. A producer that writes there all the same
        // is another process; what it may do to the bytes is checked, not trusted.
        unsafe {
            let data = self.base.add(DATA);
            std::ptr::copy_nonoverlapping(data.add(start), out.as_mut_ptr(), first);
            let rest = out.len() - first;
            std::ptr::copy_nonoverlapping(data, out.as_mut_ptr().add(first), rest);
        }
        *position += out.len() as u64;
    }
}

#[cfg(test)]
mod tests;
