//! The backup's rows against the primary's, at the same position of the log.
//!
//! ```text
//!  table ──▶ chunk: rows between two keys ──▶ digest on both ──▶ equal: next chunk
//!                                                            └─▶ row by row ──▶ keys that differ
//! ```
//!
//! Both sessions must have a snapshot of one position, which [`crate::run`] gives them: then a
//! difference is one, and no matter of who was read first. A chunk is cut by the primary's order,
//! and the backup may sort texts otherwise: rows that only one side has in a chunk are looked up on
//! the other by their key before they are told.
//!
//! The invariant: nothing is written here but by [`repair`], into a backup that nobody follows.

pub mod digest;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hindcast_pg::{Connection, Error, Row, quote_identifier, quote_literal};

use crate::source::ReplicatedTable;
use digest::{columns, digest, row};

/// Rows of a chunk: few enough to be compared one by one.
const CHUNK_ROWS: u64 = 5_000;
/// A table without a key is compared as a whole, up to this size.
const WHOLE_BYTES: u64 = 64 << 20;
/// So many rows of a table are repaired one by one. One with more is copied again.
pub const REPAIR_ROWS: usize = 1_000;

/// The text of each column of a key.
pub type Key = Vec<String>;

/// Where the next chunk begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Tables up to this one are done: schema and name.
    pub done: Option<(String, String)>,
    /// In the next one, rows up to this key are.
    pub after: Option<Key>,
}

/// A table of which rows differ.
#[derive(Clone, Debug)]
pub struct Differing {
    pub table: ReplicatedTable,
    /// Which; empty if they cannot be told one by one, or are too many.
    pub keys: Vec<Key>,
}

/// What was compared.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    pub rows: u64,
    pub bytes: u64,
    pub differing: Vec<Differing>,
    /// Tables that could not be compared, and why.
    pub passed_over: Vec<String>,
    /// Where to go on; `None` when all tables are done.
    pub next: Option<Place>,
}

/// How much may be read.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub bytes: u64,
    /// It is spread over this time, so that neither side is busy with it.
    pub time: Duration,
}

/// One and the other, at one position.
pub struct Sides {
    pub primary: Connection,
    pub backup: Connection,
}

impl Sides {
    /// Compares chunk after chunk until the budget is spent, or `stop` says so.
    pub fn compare(
        &mut self,
        tables: &[ReplicatedTable],
        from: Place,
        budget: Budget,
        stop: impl Fn() -> bool,
    ) -> Slice {
        let begun = Instant::now();
        let mut slice = Slice::default();
        let mut place = from;
        for table in tables {
            let name = (table.schema.clone(), table.name.clone());
            if place.done.as_ref().is_some_and(|done| *done >= name) {
                continue;
            }
            loop {
                if slice.bytes >= budget.bytes || stop() {
                    slice.next = Some(place);
                    return slice;
                }
                match self.chunk(table, place.after.take(), &mut slice) {
                    Ok(Some(key)) => place.after = Some(key),
                    Ok(None) => break,
                    // A server is gone: the next one begins here.
                    Err(error) if error.is_connection() => {
                        slice.next = Some(place);
                        return slice;
                    }
                    Err(error) => {
                        slice.passed_over.push(format!("{table}: {error}"));
                        break;
                    }
                }
                let share = slice.bytes as f64 / budget.bytes.max(1) as f64;
                let until = begun + budget.time.mul_f64(share.min(1.0));
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
            }
            place = Place {
                done: Some(name),
                after: None,
            };
        }
        slice
    }

    /// Compares a chunk; says where it ends, if that is not where the table does.
    fn chunk(
        &mut self,
        table: &ReplicatedTable,
        after: Option<Key>,
        slice: &mut Slice,
    ) -> Result<Option<Key>, Error> {
        let Some(columns) = columns(&mut self.primary, &table.schema, &table.name)? else {
            return Ok(None);
        };
        let name = table.quoted();
        let key = KeyOf::new(table);
        let Some(key) = key else {
            if table.bytes > WHOLE_BYTES {
                let why = format!(
                    "{table}: without a primary key it is compared as a whole, and too large"
                );
                slice.passed_over.push(why);
                return Ok(None);
            }
            let theirs = digest(&mut self.primary, &name, &columns, &wanted(table, "true"))?;
            let ours = digest(&mut self.backup, &name, &columns, "true")?;
            slice.rows += theirs.rows;
            slice.bytes += theirs.bytes;
            if ours != theirs {
                slice.differing.push(Differing {
                    table: table.clone(),
                    keys: Vec::new(),
                });
            }
            return Ok(None);
        };
        let begin = after.as_ref().map(|after| key.compared(">", after));
        let begin = begin.unwrap_or_else(|| "true".to_owned());
        let end = self.primary.query(&format!(
            "SELECT {0} FROM ONLY {name} WHERE {1} ORDER BY {0} OFFSET {2} LIMIT 1",
            key.columns,
            wanted(table, &begin),
            CHUNK_ROWS - 1
        ))?;
        let end: Option<Key> = end.first().map(|row| key.read(row));
        let condition = match &end {
            Some(end) => format!("{begin} AND {}", key.compared("<=", end)),
            None => begin,
        };
        let theirs = digest(
            &mut self.primary,
            &name,
            &columns,
            &wanted(table, &condition),
        )?;
        let ours = digest(&mut self.backup, &name, &columns, &condition)?;
        slice.rows += theirs.rows;
        slice.bytes += theirs.bytes;
        if ours != theirs {
            let keys = self.differing(table, &key, &columns, &condition)?;
            note(&mut slice.differing, table, keys);
        }
        Ok(end)
    }

    /// The keys of rows that differ among those that meet a condition on either side; none at all
    /// where a key does not tell them apart.
    fn differing(
        &mut self,
        table: &ReplicatedTable,
        key: &KeyOf,
        columns: &[String],
        condition: &str,
    ) -> Result<Option<Vec<Key>>, Error> {
        let name = table.quoted();
        let read = |connection: &mut Connection, condition: &str| {
            let sql = format!(
                "SELECT {}, pg_catalog.hashtextextended({}, 0) FROM ONLY {name} WHERE {condition}",
                key.columns,
                row(columns)
            );
            let rows = connection.query(&sql)?;
            let row = |row: &Row| (key.read(row), row.string(key.types.len()));
            let by_key: HashMap<Key, String> = rows.iter().map(row).collect();
            let unique = by_key.len() == rows.len();
            Ok::<_, Error>((by_key, unique))
        };
        let (theirs, _) = read(&mut self.primary, &wanted(table, condition))?;
        let (ours, unique) = read(&mut self.backup, condition)?;
        if !unique {
            return Ok(None);
        }
        let mut differing = Vec::new();
        let only_ours = ours.keys().filter(|at| !theirs.contains_key(*at));
        for at in theirs.keys().chain(only_ours) {
            let (mut there, mut here) = (theirs.get(at).cloned(), ours.get(at).cloned());
            // It may only be in another place of the other side's order.
            let exactly = key.compared("=", at);
            if there.is_none() {
                there = read(&mut self.primary, &wanted(table, &exactly))?
                    .0
                    .remove(at);
            }
            if here.is_none() {
                here = read(&mut self.backup, &exactly)?.0.remove(at);
            }
            if there != here {
                differing.push(at.clone());
            }
        }
        differing.sort();
        Ok(Some(differing))
    }

    /// Which of these rows differ still.
    pub fn differ_still(&mut self, before: &[Differing]) -> Result<Vec<Differing>, Error> {
        let mut still = Vec::new();
        for Differing { table, keys } in before {
            let columns = columns(&mut self.primary, &table.schema, &table.name)?;
            let (Some(key), Some(columns)) = (KeyOf::new(table), columns) else {
                continue;
            };
            for at in keys {
                let condition = key.compared("=", at);
                let left = self.differing(table, &key, &columns, &condition)?;
                note(&mut still, table, left);
            }
        }
        Ok(still)
    }
}

/// Of the primary's rows that meet a condition, those that are to be in the backup; the backup is
/// to have no others.
fn wanted(table: &ReplicatedTable, condition: &str) -> String {
    match &table.rows {
        Some(rows) => format!("({condition}) AND ({rows})"),
        None => condition.to_owned(),
    }
}

/// Rows of one chunk come to those of chunks before. `None`: they cannot be told one by one.
fn note(differing: &mut Vec<Differing>, table: &ReplicatedTable, keys: Option<Vec<Key>>) {
    if keys.as_ref().is_some_and(Vec::is_empty) {
        return;
    }
    let before = differing.pop_if(|last| last.table.oid == table.oid);
    let all = match (before, keys) {
        (None, Some(keys)) => Some(keys),
        (Some(before), Some(keys)) if !before.keys.is_empty() => {
            Some(before.keys.into_iter().chain(keys).collect())
        }
        _ => None,
    };
    differing.push(Differing {
        table: table.clone(),
        keys: all
            .filter(|keys| keys.len() <= REPAIR_ROWS)
            .unwrap_or_default(),
    });
}

/// Gives rows of the backup the values that they have on the primary, in the transaction that
/// `backup` is in. Nobody may follow, and both must be at one position.
pub fn repair(
    primary: &mut Connection,
    backup: &mut Connection,
    differing: &Differing,
) -> Result<(), Error> {
    let table = &differing.table;
    let (Some(key), Some(columns)) = (
        KeyOf::new(table),
        columns(primary, &table.schema, &table.name)?,
    ) else {
        return Ok(());
    };
    let list: Vec<String> = columns.iter().map(|name| quote_identifier(name)).collect();
    let (name, list) = (table.quoted(), list.join(", "));
    // Rows may have exchanged unique values: all old ones go before a new one comes.
    for at in &differing.keys {
        let row = key.compared("=", at);
        backup.execute(&format!("DELETE FROM ONLY {name} WHERE {row}"))?;
    }
    for at in &differing.keys {
        let row = key.compared("=", at);
        let rows = primary.query(&format!(
            "SELECT {list} FROM ONLY {name} WHERE {}",
            wanted(table, &row)
        ))?;
        for row in rows.iter() {
            // A literal without a type is read by the input function of its column.
            let value = |at| row.text(at).map_or("NULL".to_owned(), quote_literal);
            let values: Vec<String> = (0..columns.len()).map(value).collect();
            backup.execute(&format!(
                "INSERT INTO {name} ({list}) OVERRIDING SYSTEM VALUE VALUES ({})",
                values.join(", ")
            ))?;
        }
    }
    Ok(())
}

/// The primary key, for SQL.
struct KeyOf {
    /// As a list.
    columns: String,
    types: Vec<String>,
}

impl KeyOf {
    /// `None` if there is none.
    fn new(table: &ReplicatedTable) -> Option<Self> {
        let mut types = Vec::new();
        let mut columns = Vec::new();
        for name in &table.primary_key {
            let column = table.columns.iter().find(|column| column.name == *name)?;
            types.push(column.type_name.clone());
            columns.push(quote_identifier(name));
        }
        (!types.is_empty()).then(|| Self {
            columns: columns.join(", "),
            types,
        })
    }

    fn read(&self, row: &Row) -> Key {
        (0..self.types.len()).map(|at| row.string(at)).collect()
    }

    fn compared(&self, operator: &str, key: &Key) -> String {
        let values = key.iter().zip(&self.types);
        let values: Vec<String> = values
            .map(|(value, name)| format!("{}::{name}", quote_literal(value)))
            .collect();
        format!("({}) {operator} ({})", self.columns, values.join(", "))
    }
}
