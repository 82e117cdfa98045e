//! How a transaction ended.

use super::record::{Record, Relfile, relfile};
use super::{Bytes, Format};

/// What the record of a commit or an abort says (`ParseCommitRecord`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    pub committed: bool,
    /// The transaction itself, also where another session ends a prepared one. 0: it had no id, and
    /// only told others what to forget.
    pub top: u32,
    /// By the server's clock, in microseconds since 2000.
    pub at: i64,
    pub subtransactions: Vec<u32>,
    pub dropped: Vec<Relfile>,
}

/// Bits of `xinfo`: which parts follow.
const HAS_DATABASE: u32 = 1;
const HAS_SUBTRANSACTIONS: u32 = 1 << 1;
const HAS_FILES: u32 = 1 << 2;
const HAS_INVALIDATIONS: u32 = 1 << 3;
const HAS_PREPARED: u32 = 1 << 4;
const HAS_STATISTICS: u32 = 1 << 8;
/// `XLOG_XACT_HAS_INFO`: there is an `xinfo`.
const HAS_INFO: u8 = 0x80;

impl Ending {
    /// `None`: it is a record of another kind, or too long to have been kept
    /// ([`Record::ends_transaction`] tells these apart).
    pub fn read(format: Format, record: &Record<'_>) -> Option<Self> {
        let committed = record.ends_transaction()?;
        let mut data = Bytes(record.data);
        let mut ending = Self {
            committed,
            top: record.xid,
            at: data.u64()? as i64,
            subtransactions: Vec::new(),
            dropped: Vec::new(),
        };
        if record.info & HAS_INFO == 0 {
            return Some(ending);
        }
        let info = data.u32()?;
        if info & HAS_DATABASE != 0 {
            data.take(8)?;
        }
        if info & HAS_SUBTRANSACTIONS != 0 {
            let mut ids = Bytes(list(&mut data, 4)?);
            ending.subtransactions = std::iter::from_fn(|| ids.u32()).collect();
        }
        if info & HAS_FILES != 0 {
            let mut files = Bytes(list(&mut data, 12)?);
            ending.dropped = std::iter::from_fn(|| relfile(&mut files)).collect();
        }
        if info & HAS_STATISTICS != 0 {
            let item_bytes = match format.major {
                ..=14 => return None,
                15..=17 => 12,
                _ => 16,
            };
            list(&mut data, item_bytes)?;
        }
        if committed && info & HAS_INVALIDATIONS != 0 {
            list(&mut data, 16)?;
        }
        if info & HAS_PREPARED != 0 {
            ending.top = data.u32()?;
        }
        Some(ending)
    }
}

/// The elements of an array with its length in front.
fn list<'a>(data: &mut Bytes<'a>, element_bytes: usize) -> Option<&'a [u8]> {
    let count = data.u32()? as usize;
    data.take(count.checked_mul(element_bytes)?)
}
