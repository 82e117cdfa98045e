//! Reads Postgres' WAL: bytes in, facts out. No I/O.
//!
//! ```text
//!   bytes ─▶ pages ─▶ whole records ─▶ record (id, kind, relations) ─▶ facts per transaction id
//! ```
//!
//! It knows of a record what says *who wrote where*: the transaction id, the resource manager, the
//! relation of each block, and the lists in a commit. It does not know what a row holds. A record
//! must follow the one that it names as its predecessor, fill its length exactly, and have the
//! checksum that its header says.
//!
//! Layouts are those of Postgres 13 to 18 on a little-endian machine (`xlogrecord.h`,
//! `xlog_internal.h`, `xact.h`, `heapam_xlog.h`). A server of another kind is refused by its
//! version or its page headers.
//!
//! **What this crate does not do**: it reads no files and asks no server; others feed it.
//!
//! **Where to start reading**: [`Decoder::feed`]; [`Facts::note`] says what counts as writing.
//!
//! **The invariant to keep**: bytes that are no WAL, or WAL of another version, are an error and
//! never a panic, and memory stays bounded.

mod ending;
mod facts;
mod pages;
mod record;
#[cfg(test)]
mod tests;

pub use ending::Ending;
pub use facts::{Commit, Effects, Facts, widen};
pub use pages::Decoder;
pub use record::{Record, Relfile};

/// What differs between servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// As in `15`.
    pub major: u32,
    pub page_bytes: u64,
    pub segment_bytes: u64,
}

impl Format {
    /// `None` for a server whose WAL is not known here.
    pub fn new(major: u32, page_bytes: u64, segment_bytes: u64) -> Option<Self> {
        let sound = |bytes: u64| bytes.is_power_of_two() && bytes >= 1024;
        let known = (13..=18).contains(&major) && sound(page_bytes) && sound(segment_bytes);
        known.then_some(Self {
            major,
            page_bytes,
            segment_bytes,
        })
    }

    /// `XLOG_PAGE_MAGIC`.
    fn magic(self) -> u16 {
        match self.major {
            13 => 0xD106,
            14 => 0xD10D,
            15 => 0xD110,
            16 => 0xD113,
            17 => 0xD116,
            _ => 0xD118,
        }
    }
}

/// The bytes are not WAL as this decoder knows it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at {at}")]
pub struct Malformed {
    pub what: &'static str,
    pub at: hindcast_pg::Lsn,
}

/// Little-endian values off the front of a slice.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}
