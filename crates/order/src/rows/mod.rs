//! In which order a standby may apply the writes of a log, and what its readers may see meanwhile.
//!
//! A log is the writes of committed transactions, one transaction after the other in commit order.
//! Whoever applies it in that order, one write at a time, gets every state right and falls behind a
//! primary that used many cores. C5 (Helt et al., "C5: Cloned Concurrency Control That Always Keeps
//! Up", sections 3 and 4) asks what has to be kept of that order, and answers: the order of the
//! writes to each row.
//!
//! ```text
//!   log             x₁ y₂ │ x₃ z₄ │ z₅ │ v₆          │ = commit
//!
//!   Single          x₁ ─▶ y₂ ─▶ x₃ ─▶ z₄ ─▶ z₅ ─▶ v₆
//!
//!   Transaction     x₁ ─▶ y₂ ─▶ x₃ ─▶ z₄ ─▶ z₅       v₆ at any time
//!
//!   Row             x₁ ───────▶ x₃                   y₂, v₆ at any time
//!                               z₄ ─▶ z₅
//! ```
//!
//! Each granularity allows whatever the one above it allows, and `Row` cannot be weakened further:
//! without any one of its arrows there is an execution that ends wrong (Theorem 2). `Transaction`
//! is what KuaFu and most parallel appliers do. A single row that everybody writes makes it as slow
//! as `Single` (Theorem 1), while the primary held that row's lock only for the last of many
//! writes.
//!
//! One thing is added that the paper has no need of. Postgres' log leaves out large values that an
//! update did not change. If the update changes the row's key, they are in what is another row to
//! us, and the write waits for the version there as well. It reads that version whatever came after
//! it, so nobody waits for a reader.
//!
//! Rows that are each right do not add up to a state that ever existed: v₆ may be there long before
//! x₁. So readers do not look at the newest versions but through a *prefix cut*: the last commit
//! below which no worker has anything left to do. What lies below it is a prefix of the log,
//! complete in transactions.
//!
//! This module judges. `crates/store` applies, and its tests step its scheduler, workers and
//! snapshotter in any order and ask here whether each write was safe and each state that a reader
//! saw a prefix.
//!
//! **Where to start reading**: [`Constraints`] are those of any [`Granularity`] over a whole
//! [`Log`], which [`Schedule`] steps through; [`Prefixes`] says which prefix of the log a reader
//! saw.
//!
//! **What this does not do**: it applies nothing and holds no values but those that a test gives to
//! the judge.
//!
//! **The invariant to keep**: a write waits only for writes before it in the log. Of all that is
//! left, the first write in the log is therefore always safe, whatever the workers have put off,
//! and so the cut gets to the end.

mod constraints;
mod prefixes;
mod schedule;

pub use constraints::{Constraints, Granularity};
pub use prefixes::{Prefix, PrefixSet, Prefixes, Reader, Torn, WentBack};
pub use schedule::Schedule;

use std::collections::BTreeMap;
use std::fmt;

use crate::Tx;

/// A row, by the dense index that the caller gave it: from 0, over all tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row(pub u32);

impl Row {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// A write, by its position in the log: from 1. As a position it also names the prefix that ends
/// with this write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first write; the empty prefix.
    pub const START: Seq = Seq(0);

    /// Where this write is in an array of all writes.
    fn index(self) -> usize {
        assert!(self > Seq::START, "there is no write at the log's start");
        (self.0 - 1) as usize
    }

    fn at(index: usize) -> Seq {
        Seq(index as u64 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The writes of committed transactions in commit order. What follows the last commit belongs to a
/// transaction that is not complete yet.
///
/// Transactions are numbered from 0 in this order. A transaction may write a row several times, or
/// nothing at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    rows: Vec<Row>,
    /// From where writes take values that the log leaves out, if not from their own row.
    sources: BTreeMap<Seq, Row>,
    /// By transaction: its last write, or that of the transaction before it if it wrote nothing.
    /// Never decreases.
    boundaries: Vec<Seq>,
}

impl Log {
    pub fn new() -> Self {
        Self::default()
    }

    /// The next write of the transaction that is not complete yet.
    pub fn write(&mut self, row: Row) -> Seq {
        self.rows.push(row);
        Seq::at(self.rows.len() - 1)
    }

    /// The next write, one that takes over values from another row as it is at this point of the
    /// log: an update of a row's key that leaves out unchanged large values. `source` may be the
    /// row itself, which says nothing new.
    pub fn write_from(&mut self, row: Row, source: Row) -> Seq {
        let write = self.write(row);
        if source != row {
            self.sources.insert(write, source);
        }
        write
    }

    /// Completes a transaction of all writes since the last commit.
    pub fn commit(&mut self) -> Tx {
        self.boundaries.push(self.last());
        Tx(self.boundaries.len() as u32 - 1)
    }

    /// How many writes there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The last write.
    pub fn last(&self) -> Seq {
        Seq(self.rows.len() as u64)
    }

    /// Which row a write is to.
    pub fn row(&self, write: Seq) -> Row {
        self.rows[write.index()]
    }

    /// From which other row a write takes over values.
    pub fn source(&self, write: Seq) -> Option<Row> {
        self.sources.get(&write).copied()
    }

    /// All writes with their rows.
    pub fn writes(&self) -> impl ExactSizeIterator<Item = (Seq, Row)> + Clone + '_ {
        let writes = self.rows.iter().enumerate();
        writes.map(|(at, &row)| (Seq::at(at), row))
    }

    /// By transaction: the prefix that ends with it.
    pub fn boundaries(&self) -> &[Seq] {
        &self.boundaries
    }

    /// The last boundary that is not above `position`.
    pub fn boundary(&self, position: Seq) -> Seq {
        let complete = self.boundaries.partition_point(|&end| end <= position);
        match complete {
            0 => Seq::START,
            complete => self.boundaries[complete - 1],
        }
    }

    /// The transaction of a write, unless it is not complete yet.
    pub fn transaction(&self, write: Seq) -> Option<Tx> {
        let before = self.boundaries.partition_point(|&end| end < write);
        (before < self.boundaries.len()).then_some(Tx(before as u32))
    }

    /// How many rows there are if they are dense: one more than the greatest.
    fn row_count(&self) -> usize {
        let rows = self.rows.iter().chain(self.sources.values());
        rows.map(|row| row.index() + 1).max().unwrap_or(0)
    }

    /// The first write and the rows of each transaction that writes anything, then those of the one
    /// that is not complete yet.
    fn transactions(&self) -> impl Iterator<Item = (Seq, &[Row])> {
        let ends = self.boundaries.iter().copied().chain([self.last()]);
        let mut begin = 0;
        ends.filter_map(move |end| {
            let rows = &self.rows[begin..end.0 as usize];
            let first = Seq::at(begin);
            begin = end.0 as usize;
            (!rows.is_empty()).then_some((first, rows))
        })
    }
}
