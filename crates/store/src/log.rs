//! The log: what the scheduler hands to the workers.
//!
//! Headers and data are apart, so that the scheduler touches only what it needs (paper, section
//! 7.1). Neither a header's sequence number nor the place of its data is stored: the nth header of
//! a segment has the segment's first number plus n, and its data follows that of the header before.

use crate::types::{Cell, Mark};

/// Stands where a row id could be and none is.
pub(crate) const NO_ROW: u32 = u32::MAX;

/// The most that the values of one row may take together: two bits of every length are flags.
pub(crate) const BODY_BYTES_MAX: usize = (1 << 30) - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A row with all its values.
    Put,
    /// A row some of whose values are those of an earlier version; the next of the segment's
    /// `bases` says which.
    PutOver,
    Delete,
    /// Takes a number in the log and nothing else; a truncation is known to readers through its
    /// table.
    Nothing,
}

/// One write, without its values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    /// The number of the previous write to the same row; 0 when this is the first. The paper's
    /// `prev_timestamp`.
    pub prev: u64,
    pub row: u32,
    /// Length of the body in the segment's data.
    pub len: u32,
    pub layout: u32,
    pub cells: u32,
    pub kind: Kind,
}

/// Where the `Unchanged` values of a write come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    /// `NO_ROW` when the log says "unchanged" about a row that does not exist.
    pub row: u32,
    pub seq: u64,
}

/// A commit: the number of the last write at or before it, and what it is known by outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commit {
    pub seq: u64,
    pub mark: Mark,
}

/// A transaction, in [`Mode::Transaction`](crate::Mode::Transaction) only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub number: u64,
    /// Where it ends in headers, data, bases and dependencies; the one before says where it
    /// begins.
    pub end: Place,
}

/// A place between two writes of a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub header: usize,
    pub data: usize,
    pub base: usize,
    pub dependency: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Segment {
    /// The number of the first header.
    pub first: u64,
    pub headers: Vec<Header>,
    pub data: Vec<u8>,
    /// How much of `data` belongs to `headers`; behind that may lie what an interrupted write
    /// left.
    pub data_used: usize,
    pub bases: Vec<Base>,
    pub commits: Vec<Commit>,
    pub units: Vec<Unit>,
    /// Numbers of the transactions that the units wait for.
    pub dependencies: Vec<u64>,
}

impl Segment {
    pub fn with_capacity(bytes: usize) -> Segment {
        let mut segment = Segment::default();
        segment.headers.reserve(bytes / (2 * size_of::<Header>()));
        segment.data.reserve(bytes / 2 + bytes / 8);
        segment
    }

    pub fn clear(&mut self) {
        self.headers.clear();
        self.data.clear();
        self.data_used = 0;
        self.bases.clear();
        self.commits.clear();
        self.units.clear();
        self.dependencies.clear();
    }

    pub fn bytes(&self) -> usize {
        self.headers.len() * size_of::<Header>() + self.data.len()
    }

    pub fn end(&self) -> Place {
        Place {
            header: self.headers.len(),
            data: self.data_used,
            base: self.bases.len(),
            dependency: self.dependencies.len(),
        }
    }

    /// Where unit `index` begins.
    pub fn begin_of(&self, index: usize) -> Place {
        index
            .checked_sub(1)
            .map_or(Place::default(), |before| self.units[before].end)
    }
}

const NULL: u32 = 1 << 31;
const UNCHANGED: u32 = 1 << 30;

/// Writes the values of one row behind `data`: where each ends (with two flags), then all the
/// bytes. A version in memory has the same form. Says whether a value is `Unchanged`.
///
/// The iterator is borrowed for a reason: to copy it, just made, in other pieces than it was made
/// in, would wait for all earlier stores.
pub(crate) fn write_body<'a>(
    data: &mut Vec<u8>,
    cells: &mut impl ExactSizeIterator<Item = Cell<'a>>,
) -> bool {
    let ends = data.len();
    let bytes = ends + cells.len() * 4;
    data.resize(bytes, 0);
    let mut unchanged = false;
    for (i, cell) in cells.enumerate() {
        let flag = match cell {
            Cell::Null => NULL,
            Cell::Unchanged => {
                unchanged = true;
                UNCHANGED
            }
            Cell::Value(value) => {
                data.extend_from_slice(value);
                0
            }
        };
        let end = data.len() - bytes;
        assert!(
            end <= BODY_BYTES_MAX,
            "the values of a row take more than {BODY_BYTES_MAX} bytes"
        );
        data[ends + i * 4..ends + i * 4 + 4].copy_from_slice(&(end as u32 | flag).to_ne_bytes());
    }
    unchanged
}

/// One value of a body that has `cells` of them. Panics when there is no such cell.
pub(crate) fn body_cell(body: &[u8], cells: u32, index: usize) -> Cell<'_> {
    assert!(
        index < cells as usize,
        "cell {index} of a row that has {cells}"
    );
    let entry = |i: usize| {
        u32::from_ne_bytes([
            body[i * 4],
            body[i * 4 + 1],
            body[i * 4 + 2],
            body[i * 4 + 3],
        ])
    };
    let own = entry(index);
    if own & NULL != 0 {
        return Cell::Null;
    }
    if own & UNCHANGED != 0 {
        return Cell::Unchanged;
    }
    let bytes = cells as usize * 4;
    let start = if index == 0 {
        0
    } else {
        entry(index - 1) & !(NULL | UNCHANGED)
    };
    Cell::Value(&body[bytes + start as usize..bytes + own as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_gives_back_what_was_written() {
        let cells = [
            Cell::Value(b"one"),
            Cell::Null,
            Cell::Value(b""),
            Cell::Unchanged,
            Cell::Value(b"five"),
        ];
        let mut data = b"before".to_vec();
        assert!(write_body(&mut data, &mut cells.iter().copied()));
        let read: Vec<_> = (0..5).map(|i| body_cell(&data[6..], 5, i)).collect();
        assert_eq!(read, cells);
    }

    #[test]
    fn a_row_may_have_no_cells() {
        let mut data = Vec::new();
        assert!(!write_body(&mut data, &mut [].into_iter()));
        assert!(data.is_empty());
    }

    #[test]
    #[should_panic(expected = "cell 2 of a row that has 2")]
    fn a_cell_beyond_the_row_is_a_defect() {
        let mut data = Vec::new();
        write_body(&mut data, &mut [Cell::Null, Cell::Null].into_iter());
        body_cell(&data, 2, 2);
    }
}
