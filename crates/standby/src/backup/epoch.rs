//! An epoch: what is written to the backup in one transaction.
//!
//! It ends with a transaction of the primary, and is made of steps that are done in order. Within a
//! step tables are independent of one another: nothing on the backup looks from one into another
//! while the log is applied (foreign keys and triggers rest).

use std::sync::Arc;

use hindcast_pg::Lsn;

use crate::pgoutput::{Change, Malformed, Old, Truncate, Tuple};

use super::net::Net;
use super::table::Table;

/// Changes as the log has them, copied.
#[derive(Debug, Default)]
pub struct Raw {
    bytes: Vec<u8>,
    changes: Vec<RawChange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Insert,
    Update,
    UpdateKey,
    UpdateFull,
    DeleteKey,
    DeleteFull,
}

#[derive(Debug)]
struct RawChange {
    lsn: Lsn,
    shape: Shape,
    columns: usize,
    start: usize,
    /// Where the first tuple ends and the second begins.
    middle: usize,
    end: usize,
}

impl Raw {
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The memory it holds, about.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.changes.len() * size_of::<RawChange>()
    }

    pub fn push(&mut self, lsn: Lsn, change: &Change<'_>) {
        let (shape, first, second) = match *change {
            Change::Insert { new } => (Shape::Insert, new, None),
            Change::Update { old, new } => match old {
                Old::None => (Shape::Update, new, None),
                Old::Key(old) => (Shape::UpdateKey, old, Some(new)),
                Old::Full(old) => (Shape::UpdateFull, old, Some(new)),
            },
            Change::Delete { old } => match old {
                Old::None => panic!("a deletion says of which row"),
                Old::Key(old) => (Shape::DeleteKey, old, None),
                Old::Full(old) => (Shape::DeleteFull, old, None),
            },
        };
        let start = self.bytes.len();
        self.bytes.extend_from_slice(first.raw());
        let middle = self.bytes.len();
        if let Some(second) = second {
            self.bytes.extend_from_slice(second.raw());
        }
        self.changes.push(RawChange {
            lsn,
            shape,
            columns: first.len(),
            start,
            middle,
            end: self.bytes.len(),
        });
    }

    pub fn iter(&self) -> impl Iterator<Item = (Lsn, Change<'_>)> {
        self.changes.iter().map(|change| {
            (
                change.lsn,
                self.read(change)
                    .expect("these bytes were read before they were copied"),
            )
        })
    }

    fn read(&self, change: &RawChange) -> Result<Change<'_>, Malformed> {
        let tuple =
            |start: usize, end: usize| Tuple::from_raw(change.columns, &self.bytes[start..end]);
        let first = tuple(change.start, change.middle)?;
        Ok(match change.shape {
            Shape::Insert => Change::Insert { new: first },
            Shape::Update => Change::Update {
                old: Old::None,
                new: first,
            },
            Shape::UpdateKey => Change::Update {
                old: Old::Key(first),
                new: tuple(change.middle, change.end)?,
            },
            Shape::UpdateFull => Change::Update {
                old: Old::Full(first),
                new: tuple(change.middle, change.end)?,
            },
            Shape::DeleteKey => Change::Delete {
                old: Old::Key(first),
            },
            Shape::DeleteFull => Change::Delete {
                old: Old::Full(first),
            },
        })
    }
}

/// What is to be done to one table in one step.
#[derive(Debug)]
pub struct Work {
    pub table: Arc<Table>,
    pub body: Body,
}

#[derive(Debug)]
pub enum Body {
    /// `raw` is kept for tables on which the order of changes may matter, and used only when it
    /// turns out that it did.
    Net { net: Net, raw: Option<Raw> },
    /// One after the other: the table has no key, or a row must be moved where it is.
    InOrder(Raw),
}

impl Work {
    /// `in_order`: every change is done as it was.
    pub fn new(table: Arc<Table>, in_order: bool) -> Self {
        let body = match in_order || table.key.is_empty() {
            true => Body::InOrder(Raw::default()),
            false => Body::Net {
                net: Net::new(table.columns.len(), table.key.clone()),
                raw: table.constrained.then(Raw::default),
            },
        };
        Self { table, body }
    }

    pub fn bytes(&self) -> usize {
        match &self.body {
            Body::Net { net, raw } => net.bytes() + raw.as_ref().map_or(0, Raw::bytes),
            Body::InOrder(raw) => raw.bytes(),
        }
    }
}

#[derive(Debug)]
pub enum Step {
    Tables(Vec<Work>),
    Truncate {
        tables: Vec<Arc<Table>>,
        how: Truncate,
    },
}

/// A piece of an epoch for one worker: all of it, unless a single transaction is larger than an
/// epoch may be.
#[derive(Debug)]
pub struct Part {
    pub steps: Vec<Step>,
    /// The last transaction in it that has changes.
    pub lsn: Lsn,
    /// The epoch ends with this part and is committed.
    pub end: Option<End>,
}

/// Where an epoch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub number: u64,
    /// Of the last transaction.
    pub commit_lsn: Lsn,
    pub end_lsn: Lsn,
    /// In µs since 1970.
    pub commit_time: i64,
}
