//! One record: who wrote it, of what kind it is, and which relations it names.

use hindcast_pg::Lsn;

use super::{Bytes, Format};

/// Of a record's header.
pub(super) const HEADER: usize = 24;
/// Resource managers (`rmgrlist.h`).
pub(super) const XLOG: u8 = 0;
pub(super) const TRANSACTION: u8 = 1;
pub(super) const STORAGE: u8 = 2;
pub(super) const RELATION_MAP: u8 = 7;
pub(super) const STANDBY: u8 = 8;
pub(super) const HEAP2: u8 = 9;
pub(super) const HEAP: u8 = 10;
pub(super) const SEQUENCE: u8 = 15;
pub(super) const GENERIC: u8 = 20;
/// Extensions' own begin here.
pub(super) const CUSTOM: u8 = 128;

/// Ids of what is not a block.
const DATA_SHORT: u8 = 255;
const DATA_LONG: u8 = 254;
const ORIGIN: u8 = 253;
const TOP_LEVEL: u8 = 252;
const BLOCK_MAX: u8 = 32;
/// Bits of a block's `fork_flags`.
const FORK: u8 = 0x0F;
const HAS_IMAGE: u8 = 0x10;
const SAME_RELATION: u8 = 0x80;
/// Forks that hold no rows: VACUUM writes them whole where hints are logged.
const FREE_SPACE: u8 = 1;
const VISIBILITY: u8 = 2;
/// Bits of an image's `bimg_info`.
const HAS_HOLE: u8 = 1;

/// The files of a relation: the name by which WAL knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Relfile {
    pub tablespace: u32,
    /// 0 for what all databases share.
    pub database: u32,
    pub node: u32,
}

/// A record, as far as this decoder reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it begins.
    pub lsn: Lsn,
    /// Who wrote it; 0 for none. In a subtransaction, that one's.
    pub xid: u32,
    pub manager: u8,
    /// Which of its manager's kinds it is, in the high four bits.
    pub info: u8,
    /// Of its blocks, in order, each once. Maps of free space and of visibility are left out.
    pub relations: &'a [Relfile],
    /// What belongs to no block; empty where it was too long to be kept.
    pub data: &'a [u8],
}

/// A record that contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

impl Record<'_> {
    /// Whether the transaction committed, if this is its end; else `None`.
    pub fn ends_transaction(&self) -> Option<bool> {
        match (self.manager, self.info & 0x70) {
            (TRANSACTION, 0x00 | 0x30) => Some(true),
            (TRANSACTION, 0x20 | 0x40) => Some(false),
            _ => None,
        }
    }

    /// If this ends a base backup (`XLOG_BACKUP_END`): where that began.
    pub fn ends_backup(&self) -> Option<Lsn> {
        let is_end = self.manager == XLOG && self.info & 0xF0 == 0x50;
        is_end.then(|| Bytes(self.data).u64().map(Lsn))?
    }

    /// `XLOG_SWITCH`: the rest of the segment stays empty.
    pub fn ends_segment(&self) -> bool {
        self.manager == XLOG && self.info & 0xF0 == 0x40
    }
}

/// Reads a record; its relations go into `found`. `whole`: nothing of it was left out.
pub(super) fn relations<'a>(
    format: Format,
    bytes: &'a [u8],
    whole: bool,
    found: &'a mut Vec<Relfile>,
) -> Result<Record<'a>, Refused> {
    found.clear();
    let mut input = Bytes(bytes);
    let header = (|| {
        let (length, xid, _previous) = (input.u32()?, input.u32()?, input.u64()?);
        let (info, manager) = (input.u8()?, input.u8()?);
        input.take(HEADER - 18)?;
        Some((length, xid, info, manager))
    })();
    let (length, xid, info, manager) = header.ok_or(Refused)?;
    let body = (length as usize).checked_sub(HEADER).ok_or(Refused)?;
    let main_bytes = headers(format, input, body, found)?;
    let data = match whole {
        true => bytes.get(bytes.len() - main_bytes..).ok_or(Refused)?,
        false => &[],
    };
    Ok(Record {
        lsn: Lsn(0),
        xid,
        manager,
        info,
        relations: found,
        data,
    })
}

/// Reads the headers of blocks and main data, which must account for the whole `body`; how much of
/// it is main data, which comes last.
fn headers(
    format: Format,
    mut input: Bytes<'_>,
    body: usize,
    found: &mut Vec<Relfile>,
) -> Result<usize, Refused> {
    let start = input.0.len();
    let mut announced = 0;
    let mut main_bytes = 0;
    let mut last = None;
    let left = |input: &Bytes<'_>| body.checked_sub(start - input.0.len());
    while left(&input).ok_or(Refused)? > announced {
        match input.u8().ok_or(Refused)? {
            id @ (DATA_SHORT | DATA_LONG) => {
                main_bytes = match id {
                    DATA_SHORT => usize::from(input.u8().ok_or(Refused)?),
                    _ => input.u32().ok_or(Refused)? as usize,
                };
                announced += main_bytes;
                break;
            }
            ORIGIN => drop(input.take(2).ok_or(Refused)?),
            TOP_LEVEL => drop(input.take(4).ok_or(Refused)?),
            0..=BLOCK_MAX => {
                let block = block(format, &mut input, last).ok_or(Refused)?;
                announced += block.bytes;
                last = Some(block.relation);
                if !block.is_map && !found.contains(&block.relation) {
                    found.push(block.relation);
                }
            }
            _ => return Err(Refused),
        }
    }
    match left(&input) == Some(announced) {
        true => Ok(main_bytes),
        false => Err(Refused),
    }
}

struct Block {
    relation: Relfile,
    is_map: bool,
    /// Of its data and its image.
    bytes: usize,
}

fn block(format: Format, input: &mut Bytes<'_>, last: Option<Relfile>) -> Option<Block> {
    let flags = input.u8()?;
    let mut bytes = usize::from(input.u16()?);
    if flags & HAS_IMAGE != 0 {
        let image = input.u16()?;
        let _hole_offset = input.u16()?;
        let info = input.u8()?;
        // Before 15 there was one way to compress, and its bit was that of "apply" since.
        let compressed = match format.major {
            ..=14 => info & 0x02 != 0,
            _ => info & 0x1C != 0,
        };
        if compressed && info & HAS_HOLE != 0 {
            input.u16()?;
        }
        bytes += usize::from(image);
    }
    let relation = match flags & SAME_RELATION != 0 {
        true => last?,
        false => Relfile {
            tablespace: input.u32()?,
            database: input.u32()?,
            node: input.u32()?,
        },
    };
    let _block = input.u32()?;
    Some(Block {
        relation,
        is_map: matches!(flags & FORK, FREE_SPACE | VISIBILITY),
        bytes,
    })
}

pub(super) fn triple(data: &mut Bytes<'_>) -> Option<(u32, u32, u32)> {
    Some((data.u32()?, data.u32()?, data.u32()?))
}

pub(super) fn relfile(data: &mut Bytes<'_>) -> Option<Relfile> {
    let (tablespace, database, node) = triple(data)?;
    Some(Relfile {
        tablespace,
        database,
        node,
    })
}
