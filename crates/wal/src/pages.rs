//! From a stream of pages to whole records.
//!
//! ```text
//!   page   │header│ rest of a record │ record │ record │ first part of a rec… │
//!   page   │header│ …ord │ record │ …
//! ```
//!
//! Records begin at multiples of eight and are cut where a page ends. The header of a page says
//! how much of its first record belongs to an earlier page, so reading can begin with any page.

use hindcast_pg::Lsn;

use super::record::{HEADER, Record, Relfile, relations};
use super::{Bytes, Format, Malformed};

const SHORT_HEADER: usize = 24;
const LONG_HEADER: usize = 40;
/// Bits of `xlp_info`.
const CONTINUES: u16 = 1;
const LONG: u16 = 2;
const OVERWRITTEN: u16 = 8;
/// Postgres makes none larger.
const RECORD_MAX: u32 = 1020 << 20;
/// What is kept of a record: block headers come first. A commit is kept with its lists.
const KEPT: usize = 4 << 10;
const KEPT_OF_COMMITS: usize = 16 << 20;

/// Takes a stream of WAL apart.
pub struct Decoder {
    format: Format,
    /// Of the next byte that is fed.
    position: u64,
    state: State,
    /// The beginning of a page header that was cut by the end of what was fed.
    header: Vec<u8>,
    /// The record being put together: what is kept of it.
    record: Vec<u8>,
    begun: u64,
    /// Of what was seen of the record behind its header.
    checksum: u32,
    /// Where the last whole record began; the next one names it.
    previous: Option<u64>,
    relations: Vec<Relfile>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first page.
    Start,
    /// Where records begin.
    Between,
    /// In the middle of one that began before the first page: so much of it is left.
    Foreign { left: u32 },
    /// In one that is put together: so much was seen of it.
    Inside { seen: u32 },
    /// Behind the record that ends a segment early.
    Segment,
}

impl Decoder {
    /// Begins with the page that holds `from`: bytes are to be fed from [`Decoder::position`] on.
    pub fn new(format: Format, from: Lsn) -> Self {
        Self {
            format,
            position: from.0 / format.page_bytes * format.page_bytes,
            state: State::Start,
            header: Vec::new(),
            record: Vec::new(),
            begun: 0,
            checksum: 0,
            previous: None,
            relations: Vec::new(),
        }
    }

    /// Of the byte that is to be fed next.
    pub fn position(&self) -> Lsn {
        Lsn(self.position)
    }

    /// Hands over each record that ends in `bytes`.
    ///
    /// # Errors
    /// The bytes are no WAL, or that of another version. Nothing can be fed after that.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        each: &mut impl FnMut(&Record<'_>),
    ) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            let in_page = (self.position % self.format.page_bytes) as usize;
            bytes = match in_page == 0 || !self.header.is_empty() {
                true => self.page_header(bytes)?,
                false => {
                    let page_left = self.format.page_bytes as usize - in_page;
                    let (now, later) = bytes.split_at(bytes.len().min(page_left));
                    self.page(now, each)?;
                    later
                }
            };
        }
        Ok(())
    }

    fn malformed<T>(&self, what: &'static str) -> Result<T, Malformed> {
        let at = Lsn(self.position);
        Err(Malformed { what, at })
    }

    /// Takes the header of a page, or as much of it as there is.
    fn page_header<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Malformed> {
        let wanted = match self.header.get(2..4) {
            Some(info) if u16::from_le_bytes([info[0], info[1]]) & LONG != 0 => LONG_HEADER,
            Some(_) => SHORT_HEADER,
            None => 4,
        };
        let (now, later) = bytes.split_at(bytes.len().min(wanted - self.header.len()));
        self.header.extend_from_slice(now);
        self.position += now.len() as u64;
        if wanted == 4 || self.header.len() < wanted {
            return Ok(later);
        }
        let header = std::mem::take(&mut self.header);
        // What follows the switch to another segment need not have been written.
        let in_segment = self.position % self.format.segment_bytes;
        if self.state == State::Segment && in_segment > LONG_HEADER as u64 {
            return Ok(later);
        }
        self.begin_page(&header)?;
        Ok(later)
    }

    fn begin_page(&mut self, header: &[u8]) -> Result<(), Malformed> {
        let mut fields = Bytes(header);
        let fields = (|| {
            let (magic, info, _timeline) = (fields.u16()?, fields.u16()?, fields.u32()?);
            Some((magic, info, fields.u64()?, fields.u32()?))
        })();
        let Some((magic, info, address, left)) = fields else {
            return self.malformed("a page without a header");
        };
        if magic != self.format.magic() {
            return self.malformed("a page of another version of Postgres");
        }
        if address != self.position - header.len() as u64 {
            return self.malformed("a page that belongs elsewhere");
        }
        let continues = info & CONTINUES != 0;
        self.state = match self.state {
            // A server that crashed in the middle of a record begins anew after it.
            State::Inside { .. } if info & OVERWRITTEN != 0 => {
                self.previous = None;
                State::Between
            }
            State::Inside { seen } if continues => {
                if self.length().checked_sub(seen) != Some(left) {
                    return self.malformed("a record whose rest has another length");
                }
                State::Inside { seen }
            }
            State::Foreign { left: known } if continues && known == left => State::Foreign { left },
            State::Start if continues => State::Foreign { left },
            State::Start | State::Segment | State::Between if !continues => State::Between,
            _ => return self.malformed("a page that does not continue the one before"),
        };
        Ok(())
    }

    /// The length of the record being put together, as far as its first bytes are there.
    fn length(&self) -> u32 {
        let bytes = self.record.first_chunk();
        bytes.map_or(u32::MAX, |bytes| u32::from_le_bytes(*bytes))
    }

    /// Takes what lies within one page, behind its header.
    fn page(
        &mut self,
        mut bytes: &[u8],
        each: &mut impl FnMut(&Record<'_>),
    ) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            let taken = match self.state {
                State::Start => return self.malformed("a page without a header"),
                State::Segment => bytes.len(),
                State::Foreign { left } => {
                    let taken = bytes.len().min(left as usize);
                    self.state = match left - taken as u32 {
                        0 => State::Between,
                        left => State::Foreign { left },
                    };
                    taken
                }
                State::Between if !self.position.is_multiple_of(8) => {
                    bytes.len().min((8 - self.position % 8) as usize)
                }
                State::Between => {
                    self.record.clear();
                    self.begun = self.position;
                    self.checksum = 0;
                    self.state = State::Inside { seen: 0 };
                    0
                }
                State::Inside { seen } => self.inside(seen, bytes)?,
            };
            self.position += taken as u64;
            bytes = &bytes[taken..];
            if let State::Inside { seen } = self.state
                && seen >= HEADER as u32
                && seen == self.length()
            {
                self.finish(each)?;
            }
        }
        Ok(())
    }

    /// Takes some of a record: first its header, so that its length is known.
    fn inside(&mut self, seen: u32, bytes: &[u8]) -> Result<usize, Malformed> {
        let wanted = match seen as usize >= HEADER {
            true => self.length() - seen,
            false => HEADER as u32 - seen,
        };
        let now = &bytes[..bytes.len().min(wanted as usize)];
        let keep = match self.record.get(17) {
            Some(&super::record::TRANSACTION) => KEPT_OF_COMMITS,
            _ => KEPT,
        };
        if seen as usize >= HEADER {
            self.checksum = crc32c::crc32c_append(self.checksum, now);
        }
        let room = keep.saturating_sub(self.record.len()).min(now.len());
        self.record.extend_from_slice(&now[..room]);
        let seen = seen + now.len() as u32;
        self.state = State::Inside { seen };
        if seen >= HEADER as u32 {
            self.check_header()?;
        }
        Ok(now.len())
    }

    fn check_header(&self) -> Result<(), Malformed> {
        if !(HEADER as u32..=RECORD_MAX).contains(&self.length()) {
            return self.malformed("a record of an impossible length");
        }
        let named = self
            .record
            .get(8..16)
            .and_then(|bytes| bytes.try_into().ok());
        let named = named.map(u64::from_le_bytes);
        if self.previous.is_some() && named != self.previous {
            return self.malformed("a record that does not follow the one before");
        }
        Ok(())
    }

    /// The checksum is the last field of the header, and is made of what follows the header and
    /// then of the header up to it.
    fn check_checksum(&self) -> Result<(), Malformed> {
        const AT: usize = HEADER - 4;
        let sound = self
            .record
            .split_at_checked(AT)
            .is_some_and(|(header, rest)| {
                let checksum = crc32c::crc32c_append(self.checksum, header);
                rest.starts_with(&checksum.to_le_bytes())
            });
        match sound {
            true => Ok(()),
            false => self.malformed("a record with a wrong checksum"),
        }
    }

    fn finish(&mut self, each: &mut impl FnMut(&Record<'_>)) -> Result<(), Malformed> {
        self.check_checksum()?;
        let whole = self.record.len() == self.length() as usize;
        let record = relations(self.format, &self.record, whole, &mut self.relations);
        let Ok(mut record) = record else {
            return self.malformed("a record that contradicts itself");
        };
        record.lsn = Lsn(self.begun);
        let ends_segment = record.ends_segment();
        each(&record);
        self.previous = Some(self.begun);
        self.state = match ends_segment {
            true if !self.position.is_multiple_of(self.format.segment_bytes) => State::Segment,
            _ => State::Between,
        };
        Ok(())
    }
}
