//! What a run of changes to a table amounts to, row by row.
//!
//! Pure. A row that was updated a thousand times is written once; one that came and went is not
//! written at all. Rows are told apart by the bytes of their key. Every value is copied once, into
//! one arena; what was overwritten since stays there until the whole is dropped, which is why its
//! size is watched ([`Net::bytes`]) and not only the number of its rows.
//!
//! ```text
//!            insert    update            delete
//! nothing    Insert    Update            Delete
//! Insert     -         Insert, merged    Gone
//! Update     -         Update, merged    Delete
//! Replace    -         Replace, merged   Delete
//! Delete     Replace   -                 -
//! Gone       Insert    -                 -
//! ```
//!
//! Where there is a dash the log contradicts itself.

use std::collections::BTreeMap;

use hashbrown::HashTable;
use hindcast_pg::Lsn;
use xxhash_rust::xxh3::xxh3_64;

use crate::pgoutput::{Change, Datum, Old, Tuple};

/// What is to be done to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It was not there before.
    Insert,
    /// It was there, and some of its columns may be unchanged.
    Update,
    /// It was there; was deleted, and inserted again: all columns are known.
    Replace,
    Delete,
    /// It was not there, and is not there again.
    Gone,
}

/// A value: where its bytes are, or why it has none.
#[derive(Clone, Copy, Debug)]
struct Cell {
    start: u32,
    length: u32,
}

impl Cell {
    const NULL: u32 = u32::MAX;
    const UNCHANGED: u32 = u32::MAX - 1;

    fn is_unchanged(self) -> bool {
        self.length == Self::UNCHANGED
    }
}

#[derive(Clone, Debug)]
struct Row {
    hash: u64,
    key: Cell,
    /// Where its cells begin; meaningless for deleted rows.
    cells: usize,
    kind: Kind,
    lsn: Lsn,
}

/// The changes of a table contradict each other, or say too little.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    #[error("it inserts a row that it has just inserted or updated")]
    AlreadyThere,
    #[error("it changes a row that it has just deleted")]
    NotThere,
    /// Two rows had the same key for a moment.
    #[error("it changes a row that is not as the change before left it")]
    AnotherRow,
    #[error("it does not say which row it changes")]
    NoKey,
    #[error("it leaves out a value of a new row")]
    Incomplete,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Applied {
    Done,
    /// The change moves a row to another key and leaves out values that are not known here. Nothing
    /// was done: everything before must be written first, then the row be moved where it is.
    MustMove,
}

/// The net changes of one table.
#[derive(Debug)]
pub struct Net {
    columns: usize,
    key: Vec<usize>,
    index: HashTable<u32>,
    rows: Vec<Row>,
    cells: Vec<Cell>,
    arena: Vec<u8>,
    scratch: Keys,
}

#[derive(Debug, Default)]
struct Keys {
    key: Vec<u8>,
    old_key: Vec<u8>,
}

fn whole(old: Old<'_>) -> Option<Tuple<'_>> {
    match old {
        Old::None => None,
        Old::Key(tuple) | Old::Full(tuple) => Some(tuple),
    }
}

/// The whole row before a change, if the log has it.
fn before_of<'a>(change: &Change<'a>) -> Option<Tuple<'a>> {
    match *change {
        Change::Update {
            old: Old::Full(old),
            ..
        }
        | Change::Delete {
            old: Old::Full(old),
        } => Some(old),
        _ => None,
    }
}

/// Appends the key of a row to `into`: each column's length and bytes.
///
/// # Errors
/// If a column of the key is null or left out.
pub fn write_key(
    key: &[usize],
    tuple: Tuple<'_>,
    fallback: Option<Tuple<'_>>,
    into: &mut Vec<u8>,
) -> Result<(), Contradiction> {
    for &column in key {
        let mut value = tuple.iter().nth(column);
        if value == Some(Datum::Unchanged) {
            value = fallback.and_then(|tuple| tuple.iter().nth(column));
        }
        let Some(Datum::Text(bytes)) = value else {
            return Err(Contradiction::NoKey);
        };
        into.extend_from_slice(&length(bytes.len()).to_le_bytes());
        into.extend_from_slice(bytes);
    }
    Ok(())
}

/// The columns of a key that [`write_key`] wrote.
pub fn read_key(mut key: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = key.split_first_chunk()?;
        let (value, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        key = rest;
        Some(value)
    })
}

/// Spreads keys over workers, and is the same for the same key in every process.
pub fn hash_key(key: &[u8]) -> u64 {
    xxh3_64(key)
}

fn length(length: usize) -> u32 {
    u32::try_from(length)
        .ok()
        .filter(|&length| length < Cell::UNCHANGED)
        .expect("a value of a row is smaller than 1 GB")
}

impl Net {
    /// Of a table with so many columns, of which these are the key. There must be one.
    pub fn new(columns: usize, key: Vec<usize>) -> Self {
        assert!(!key.is_empty(), "net changes need a key");
        Self {
            columns,
            key,
            index: HashTable::new(),
            rows: Vec::new(),
            cells: Vec::new(),
            arena: Vec::new(),
            scratch: Keys::default(),
        }
    }

    /// How many rows were touched.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The memory it holds, about.
    pub fn bytes(&self) -> usize {
        self.arena.len()
            + self.cells.len() * size_of::<Cell>()
            + self.rows.len() * (size_of::<Row>() + 8)
    }

    /// Takes the next change in.
    ///
    /// # Errors
    /// If it contradicts what was taken in before; then nothing was done.
    pub fn apply(&mut self, lsn: Lsn, change: &Change<'_>) -> Result<Applied, Contradiction> {
        let mut keys = std::mem::take(&mut self.scratch);
        let applied = self.apply_with(lsn, change, &mut keys);
        self.scratch = keys;
        applied
    }

    fn apply_with(
        &mut self,
        lsn: Lsn,
        change: &Change<'_>,
        Keys { key, old_key }: &mut Keys,
    ) -> Result<Applied, Contradiction> {
        key.clear();
        match *change {
            Change::Insert { new } => {
                write_key(&self.key, new, None, key)?;
                if new.iter().any(|value| value == Datum::Unchanged) {
                    return Err(Contradiction::Incomplete);
                }
                self.insert(lsn, key, |net| {
                    for value in new {
                        net.push(value);
                    }
                })?;
            }
            Change::Delete { old } => {
                let old = whole(old).ok_or(Contradiction::NoKey)?;
                write_key(&self.key, old, None, key)?;
                self.expect_as_left(key, before_of(change))?;
                self.delete(lsn, key)?;
            }
            Change::Update { old, new } => {
                let before = whole(old);
                write_key(&self.key, new, before, key)?;
                if let Some(before) = before {
                    old_key.clear();
                    write_key(&self.key, before, None, old_key)?;
                    self.expect_as_left(old_key, before_of(change))?;
                    if old_key != key {
                        return self.move_row(lsn, old_key, key, old, new);
                    }
                }
                self.update(lsn, key, new)?;
            }
        }
        Ok(Applied::Done)
    }

    /// Where the log tells the whole row before a change, it must be the row that is pending: a key
    /// that may be there twice for a moment, as with a primary key that is deferrable on the
    /// primary only, would mix rows up.
    fn expect_as_left(&self, key: &[u8], before: Option<Tuple<'_>>) -> Result<(), Contradiction> {
        let Some((before, row)) = before.zip(self.find(hash_key(key), key)) else {
            return Ok(());
        };
        let row = &self.rows[row];
        if matches!(row.kind, Kind::Delete | Kind::Gone) {
            return Err(Contradiction::NotThere);
        }
        let cells = &self.cells[row.cells..][..self.columns];
        let same = before.iter().zip(cells).all(|(value, &cell)| match value {
            Datum::Text(bytes) => {
                cell.is_unchanged() || (cell.length != Cell::NULL && self.slice(cell) == bytes)
            }
            Datum::Null => cell.is_unchanged() || cell.length == Cell::NULL,
            Datum::Unchanged => true,
        });
        match same {
            true => Ok(()),
            false => Err(Contradiction::AnotherRow),
        }
    }

    fn slice(&self, cell: Cell) -> &[u8] {
        &self.arena[cell.start as usize..][..cell.length as usize]
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        self.index
            .find(hash, |&row| self.slice(self.rows[row as usize].key) == key)
            .map(|&row| row as usize)
    }

    fn store(&mut self, bytes: &[u8]) -> Cell {
        let start = u32::try_from(self.arena.len()).expect("batches are cut long before 4 GB");
        self.arena.extend_from_slice(bytes);
        Cell {
            start,
            length: length(bytes.len()),
        }
    }

    fn cell(&mut self, value: Datum<'_>) -> Cell {
        match value {
            Datum::Null => Cell {
                start: 0,
                length: Cell::NULL,
            },
            Datum::Unchanged => Cell {
                start: 0,
                length: Cell::UNCHANGED,
            },
            Datum::Text(bytes) => self.store(bytes),
        }
    }

    fn push(&mut self, value: Datum<'_>) {
        let cell = self.cell(value);
        self.cells.push(cell);
    }

    /// A row that was not touched before. Its cells follow.
    fn touch(&mut self, hash: u64, key: &[u8], kind: Kind, lsn: Lsn) {
        let key = self.store(key);
        let row = u32::try_from(self.rows.len()).expect("batches are cut long before 2^32 rows");
        self.rows.push(Row {
            hash,
            key,
            cells: self.cells.len(),
            kind,
            lsn,
        });
        let rows = &self.rows;
        self.index
            .insert_unique(hash, row, |&row| rows[row as usize].hash);
    }

    /// `values` pushes one cell per column.
    fn insert(
        &mut self,
        lsn: Lsn,
        key: &[u8],
        values: impl FnOnce(&mut Self),
    ) -> Result<(), Contradiction> {
        let hash = hash_key(key);
        let start = self.cells.len();
        match self.find(hash, key) {
            None => self.touch(hash, key, Kind::Insert, lsn),
            Some(row) => {
                let row = &mut self.rows[row];
                row.kind = match row.kind {
                    Kind::Delete => Kind::Replace,
                    Kind::Gone => Kind::Insert,
                    Kind::Insert | Kind::Update | Kind::Replace => {
                        return Err(Contradiction::AlreadyThere);
                    }
                };
                row.lsn = lsn;
                row.cells = start;
            }
        }
        values(self);
        assert_eq!(
            self.cells.len(),
            start + self.columns,
            "a row has all columns"
        );
        Ok(())
    }

    fn update(&mut self, lsn: Lsn, key: &[u8], new: Tuple<'_>) -> Result<(), Contradiction> {
        let hash = hash_key(key);
        let Some(row) = self.find(hash, key) else {
            self.touch(hash, key, Kind::Update, lsn);
            for value in new {
                self.push(value);
            }
            return Ok(());
        };
        if matches!(self.rows[row].kind, Kind::Delete | Kind::Gone) {
            return Err(Contradiction::NotThere);
        }
        self.rows[row].lsn = lsn;
        let start = self.rows[row].cells;
        for (column, value) in new.iter().enumerate() {
            if let Datum::Text(bytes) = value {
                // A value of the same length, as counters and timestamps are, takes the place of
                // the one before.
                let cell = self.cells[start + column];
                if cell.length as usize == bytes.len() {
                    self.arena[cell.start as usize..][..bytes.len()].copy_from_slice(bytes);
                    continue;
                }
            }
            if value != Datum::Unchanged {
                self.cells[start + column] = self.cell(value);
            }
        }
        Ok(())
    }

    fn delete(&mut self, lsn: Lsn, key: &[u8]) -> Result<(), Contradiction> {
        let hash = hash_key(key);
        let Some(row) = self.find(hash, key) else {
            self.touch(hash, key, Kind::Delete, lsn);
            return Ok(());
        };
        let row = &mut self.rows[row];
        row.kind = match row.kind {
            Kind::Insert => Kind::Gone,
            Kind::Update | Kind::Replace => Kind::Delete,
            Kind::Delete | Kind::Gone => return Err(Contradiction::NotThere),
        };
        row.lsn = lsn;
        Ok(())
    }

    /// An update of the key: the row under the old key goes, one with all its values comes.
    fn move_row(
        &mut self,
        lsn: Lsn,
        from: &[u8],
        to: &[u8],
        old: Old<'_>,
        new: Tuple<'_>,
    ) -> Result<Applied, Contradiction> {
        let pending = self
            .find(hash_key(from), from)
            .map(|row| (self.rows[row].kind, self.rows[row].cells));
        if matches!(pending, Some((Kind::Delete | Kind::Gone, _))) {
            return Err(Contradiction::NotThere);
        }
        // The new key must be free before the old one is given up: nothing may be half done.
        if let Some(target) = self.find(hash_key(to), to)
            && !matches!(self.rows[target].kind, Kind::Delete | Kind::Gone)
        {
            return Err(Contradiction::AlreadyThere);
        }
        enum From<'a> {
            Log(Datum<'a>),
            Pending(Cell),
        }
        let mut values = Vec::with_capacity(self.columns);
        for (column, value) in new.iter().enumerate() {
            let before = match old {
                Old::None => None,
                Old::Key(tuple) => tuple
                    .iter()
                    .nth(column)
                    .filter(|_| self.key.contains(&column)),
                Old::Full(tuple) => tuple.iter().nth(column),
            };
            values.push(match (value, before, pending) {
                (Datum::Unchanged, Some(before), _) => From::Log(before),
                (Datum::Unchanged, None, Some((_, cells)))
                    if !self.cells[cells + column].is_unchanged() =>
                {
                    From::Pending(self.cells[cells + column])
                }
                (Datum::Unchanged, None, _) => return Ok(Applied::MustMove),
                (value, ..) => From::Log(value),
            });
        }
        self.delete(lsn, from)?;
        self.insert(lsn, to, |net| {
            for value in values {
                match value {
                    From::Log(value) => net.push(value),
                    From::Pending(cell) => net.cells.push(cell),
                }
            }
        })?;
        Ok(Applied::Done)
    }

    pub fn kind(&self, row: u32) -> Kind {
        self.rows[row as usize].kind
    }

    /// The end of the transaction that changed the row last.
    pub fn lsn(&self, row: u32) -> Lsn {
        self.rows[row as usize].lsn
    }

    pub fn key(&self, row: u32) -> &[u8] {
        self.slice(self.rows[row as usize].key)
    }

    /// A column of a row that is not deleted. `Unchanged` only for [`Kind::Update`].
    pub fn value(&self, row: u32, column: usize) -> Datum<'_> {
        let cell = self.cells[self.rows[row as usize].cells + column];
        match cell.length {
            Cell::NULL => Datum::Null,
            Cell::UNCHANGED => Datum::Unchanged,
            _ => Datum::Text(self.slice(cell)),
        }
    }

    /// The rows by what is to be done to them, each list in the order that `sort` makes.
    pub fn plan(&self, sort: impl FnOnce(&mut [u32])) -> Plan {
        let mut order: Vec<u32> = (0..length(self.rows.len()))
            .filter(|&row| self.kind(row) != Kind::Gone)
            .collect();
        sort(&mut order);
        let mut plan = Plan::default();
        // Nearly all updates say all columns: those need no look-up of what they say.
        let mut complete = Vec::new();
        for row in order {
            match self.kind(row) {
                Kind::Gone => {}
                Kind::Delete => plan.deletes.push(row),
                Kind::Insert => plan.inserts.push(row),
                Kind::Replace => plan.replaces.push(row),
                Kind::Update => {
                    let cells = &self.cells[self.rows[row as usize].cells..][..self.columns];
                    if !cells.iter().any(|cell| cell.is_unchanged()) {
                        complete.push(row);
                        continue;
                    }
                    let mask: Vec<usize> = (0..self.columns)
                        .filter(|column| {
                            !cells[*column].is_unchanged() && !self.key.contains(column)
                        })
                        .collect();
                    if !mask.is_empty() {
                        plan.updates.entry(mask).or_default().push(row);
                    }
                }
            }
        }
        let mask: Vec<usize> = (0..self.columns)
            .filter(|column| !self.key.contains(column))
            .collect();
        if !complete.is_empty() && !mask.is_empty() {
            plan.updates.insert(mask, complete);
        }
        plan
    }
}

/// What is to be written, by statement.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub deletes: Vec<u32>,
    /// By the columns that change. The key is never among them.
    pub updates: BTreeMap<Vec<usize>, Vec<u32>>,
    pub replaces: Vec<u32>,
    pub inserts: Vec<u32>,
}

#[cfg(test)]
#[path = "net_tests.rs"]
mod tests;
