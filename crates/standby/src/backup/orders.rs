//! From net changes and raw ones to statements with parameters.
//!
//! Pure. Each order says how many rows it must find, and of whom it speaks if it does not.

use hindcast_pg::{Lsn, Parameter};

use crate::pgoutput::{Change, Datum, Old, Tuple};

use super::epoch::Raw;
use super::error::BackupError;
use super::net::{Contradiction, Net, read_key, write_key};
use super::statements;
use super::table::Table;
use super::values::{array, array_text, copy_value};

/// What is sent to the backup.
pub enum Command<'a> {
    Sql(String),
    Order(Order<'a>),
    Copy {
        table: &'a Table,
        net: &'a Net,
        rows: Vec<u32>,
    },
}

impl Command<'_> {
    pub fn sql(text: &str) -> Self {
        Command::Sql(text.to_owned())
    }
}

/// A prepared statement's run.
pub struct Order<'a> {
    pub table: &'a Table,
    pub statement: Statement,
    pub parameters: Vec<Value>,
    /// So many rows must be affected.
    pub expected: u64,
    pub who: Who<'a>,
}

/// Of which rows an order speaks.
pub enum Who<'a> {
    Keys(&'a Net, Vec<u32>),
    Key(Vec<u8>, Lsn),
    /// All values, for people.
    Row(String, Lsn),
    Inserted,
}

pub enum Value {
    Null,
    Text(Vec<u8>),
    Binary(Vec<u8>),
}

impl Value {
    pub fn borrow(&self) -> Parameter<'_> {
        match self {
            Value::Null => Parameter::Null,
            Value::Text(bytes) => Parameter::Text(bytes),
            Value::Binary(bytes) => Parameter::Binary(bytes),
        }
    }
}

/// Which of a table's statements it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Statement {
    Delete,
    Update(Vec<usize>),
    Move(Vec<usize>),
    Insert,
    InsertNothing,
    DeleteRow(Vec<bool>),
    UpdateRow(Vec<bool>, Vec<usize>),
}

impl Statement {
    pub fn sql(&self, table: &Table) -> String {
        match self {
            Statement::Delete => statements::delete(table),
            Statement::Update(mask) => {
                statements::update(table, mask).expect("updates that set nothing are not ordered")
            }
            Statement::Move(mask) => statements::move_key(table, mask),
            Statement::Insert => statements::insert(table),
            Statement::InsertNothing => statements::insert_nothing(table),
            Statement::DeleteRow(nulls) => statements::delete_row(table, nulls),
            Statement::UpdateRow(nulls, mask) => statements::update_row(table, nulls, mask),
        }
    }
}

fn text(value: Datum<'_>) -> Option<&[u8]> {
    match value {
        Datum::Text(bytes) => Some(bytes),
        Datum::Null | Datum::Unchanged => None,
    }
}

/// An array of one column's values.
fn column<'v>(
    table: &Table,
    column: usize,
    lsn: Lsn,
    values: impl ExactSizeIterator<Item = Option<&'v [u8]>>,
) -> Result<Value, BackupError> {
    if table.columns[column].parsed_as.is_some() {
        return Ok(Value::Text(array_text(values)));
    }
    array(table.columns[column].wire, values)
        .map(Value::Binary)
        .map_err(|source| BackupError::Value {
            table: table.relation.to_string(),
            column: table.relation.columns[column].name.clone(),
            lsn,
            source,
        })
}

fn keys(table: &Table, net: &Net, rows: &[u32]) -> Result<Vec<Value>, BackupError> {
    let lsn = rows.last().map_or(Lsn(0), |&row| net.lsn(row));
    let numbered = table.key.iter().enumerate();
    numbered
        .map(|(at, &key)| {
            let values = rows.iter().map(|&row| read_key(net.key(row)).nth(at));
            column(table, key, lsn, values)
        })
        .collect()
}

fn columns(
    table: &Table,
    net: &Net,
    rows: &[u32],
    which: impl Iterator<Item = usize>,
) -> Result<Vec<Value>, BackupError> {
    let lsn = rows.last().map_or(Lsn(0), |&row| net.lsn(row));
    which
        .map(|at| {
            column(
                table,
                at,
                lsn,
                rows.iter().map(|&row| text(net.value(row, at))),
            )
        })
        .collect()
}

/// How a step is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The net change of each row.
    Net,
    /// The same, with rows deleted and inserted where they could be updated: all old values are
    /// gone before the first new one comes, so that rows may exchange values of which there can be
    /// only one. Only for tables that have such.
    Replacing,
    /// One change after the other, as the primary made them.
    InOrder,
}

/// Writes the net changes of a table: deletions, updates, insertions. Insertions of many rows are
/// copied.
pub fn net_commands<'a>(
    table: &'a Table,
    net: &'a Net,
    replacing: bool,
    copy_rows_min: usize,
    into: &mut Vec<Command<'a>>,
) -> Result<(), BackupError> {
    let mut plan = net.plan(|rows| table.sort(net, rows));
    if replacing && !table.extra_columns {
        // Only of these all values are known.
        let whole: Vec<usize> = (0..table.columns.len())
            .filter(|column| !table.key.contains(column))
            .collect();
        let rows = plan.updates.remove(&whole).unwrap_or_default();
        let rows: Vec<u32> = rows.into_iter().chain(plan.replaces.drain(..)).collect();
        plan.deletes.extend_from_slice(&rows);
        plan.inserts.extend(rows);
    }
    if !plan.replaces.is_empty() {
        if table.replaces_by_two() {
            plan.deletes.extend_from_slice(&plan.replaces);
            plan.inserts.extend_from_slice(&plan.replaces);
        } else {
            let mask: Vec<usize> = (0..table.columns.len())
                .filter(|column| !table.key.contains(column))
                .collect();
            if !mask.is_empty() {
                let rows = plan.updates.entry(mask).or_default();
                rows.extend_from_slice(&plan.replaces);
            }
        }
    }
    if !plan.deletes.is_empty() {
        into.push(Command::Order(Order {
            table,
            statement: Statement::Delete,
            parameters: keys(table, net, &plan.deletes)?,
            expected: plan.deletes.len() as u64,
            who: Who::Keys(net, plan.deletes),
        }));
    }
    for (mask, rows) in plan.updates {
        let (settable, fixed) = statements::settable(table, &mask);
        if settable.is_empty() {
            continue;
        }
        let mut parameters = keys(table, net, &rows)?;
        parameters.extend(columns(
            table,
            net,
            &rows,
            settable.into_iter().chain(fixed),
        )?);
        into.push(Command::Order(Order {
            table,
            statement: Statement::Update(mask),
            parameters,
            expected: rows.len() as u64,
            who: Who::Keys(net, rows),
        }));
    }
    if plan.inserts.len() >= copy_rows_min {
        into.push(Command::Copy {
            table,
            net,
            rows: plan.inserts,
        });
    } else if !plan.inserts.is_empty() {
        into.push(Command::Order(Order {
            table,
            statement: Statement::Insert,
            parameters: columns(table, net, &plan.inserts, 0..table.columns.len())?,
            expected: plan.inserts.len() as u64,
            who: Who::Inserted,
        }));
    }
    Ok(())
}

/// A line of `COPY`.
pub fn copy_line(table: &Table, net: &Net, row: u32, into: &mut Vec<u8>) {
    for column in 0..table.columns.len() {
        if column > 0 {
            into.push(b'\t');
        }
        copy_value(text(net.value(row, column)), into);
    }
    into.push(b'\n');
}

/// Writes changes one after the other.
pub fn orderly_commands<'a>(
    table: &'a Table,
    raw: &Raw,
    into: &mut Vec<Command<'a>>,
) -> Result<(), BackupError> {
    let mut inserts: Vec<Tuple<'_>> = Vec::new();
    let mut insert_lsn = Lsn(0);
    for (lsn, change) in raw.iter() {
        if let Change::Insert { new } = change {
            insert_lsn = lsn;
            inserts.push(new);
            continue;
        }
        insert(table, &inserts, insert_lsn, into)?;
        inserts.clear();
        match (table.key.is_empty(), change) {
            (_, Change::Insert { .. }) => unreachable!("was dealt with"),
            (true, change) => by_row(table, lsn, change, into)?,
            (false, change) => by_key(table, lsn, change, into)?,
        }
    }
    insert(table, &inserts, insert_lsn, into)
}

fn insert<'a>(
    table: &'a Table,
    rows: &[Tuple<'_>],
    lsn: Lsn,
    into: &mut Vec<Command<'a>>,
) -> Result<(), BackupError> {
    let order = |statement, parameters, expected| {
        Command::Order(Order {
            table,
            statement,
            parameters,
            expected,
            who: Who::Inserted,
        })
    };
    if rows.is_empty() {
        return Ok(());
    }
    if table.columns.is_empty() {
        into.extend(
            rows.iter()
                .map(|_| order(Statement::InsertNothing, vec![], 1)),
        );
        return Ok(());
    }
    let mut values = vec![Vec::with_capacity(rows.len()); table.columns.len()];
    for row in rows {
        for (column, value) in values.iter_mut().zip(row.iter()) {
            column.push(text(value));
        }
    }
    let parameters = values
        .into_iter()
        .enumerate()
        .map(|(at, values)| column(table, at, lsn, values.into_iter()))
        .collect::<Result<_, _>>()?;
    into.push(order(Statement::Insert, parameters, rows.len() as u64));
    Ok(())
}

pub(super) fn contradiction(table: &Table, lsn: Lsn, source: Contradiction) -> BackupError {
    BackupError::Contradiction {
        table: table.relation.to_string(),
        lsn,
        source,
    }
}

/// A change of a row that has a key.
fn by_key<'a>(
    table: &'a Table,
    lsn: Lsn,
    change: Change<'_>,
    into: &mut Vec<Command<'a>>,
) -> Result<(), BackupError> {
    let key_of = |tuple, fallback| {
        let mut key = Vec::new();
        match write_key(&table.key, tuple, fallback, &mut key) {
            Ok(()) => Ok(key),
            Err(source) => Err(contradiction(table, lsn, source)),
        }
    };
    let key_values = |key: &[u8]| -> Result<Vec<Value>, BackupError> {
        let columns = table.key.iter().zip(read_key(key));
        columns
            .map(|(&at, value)| column(table, at, lsn, [Some(value)].into_iter()))
            .collect()
    };
    let order = |statement, parameters, key| {
        Command::Order(Order {
            table,
            statement,
            parameters,
            expected: 1,
            who: Who::Key(key, lsn),
        })
    };
    let no_key = || contradiction(table, lsn, Contradiction::NoKey);
    match change {
        Change::Insert { .. } => unreachable!("insertions are put together"),
        Change::Delete { old } => {
            let (Old::Key(old) | Old::Full(old)) = old else {
                return Err(no_key());
            };
            let key = key_of(old, None)?;
            into.push(order(Statement::Delete, key_values(&key)?, key));
        }
        Change::Update { old, new } => {
            let before = match old {
                Old::None => None,
                Old::Key(tuple) | Old::Full(tuple) => Some(tuple),
            };
            let key = key_of(new, before)?;
            let old_key = before.map(|before| key_of(before, None)).transpose()?;
            let moves = old_key.as_ref().is_some_and(|old_key| *old_key != key);
            let from = old_key.unwrap_or_else(|| key.clone());
            let complete = new.iter().all(|value| value != Datum::Unchanged);
            if moves && complete && table.key.iter().any(|&column| table.columns[column].always) {
                // The key cannot be set, but the row can be inserted again with another.
                into.push(order(Statement::Delete, key_values(&from)?, from));
                return insert(table, &[new], lsn, into);
            }
            let values: Vec<Datum<'_>> = new.iter().collect();
            let mask: Vec<usize> = (0..values.len())
                .filter(|&column| values[column] != Datum::Unchanged)
                .filter(|column| match table.key.contains(column) {
                    true => moves,
                    false => !moves || !table.columns[*column].always,
                })
                .collect();
            let columns = match moves {
                true => mask.clone(),
                false => {
                    let (settable, fixed) = statements::settable(table, &mask);
                    if settable.is_empty() {
                        return Ok(());
                    }
                    settable.into_iter().chain(fixed).collect()
                }
            };
            let mut parameters = key_values(&from)?;
            for at in columns {
                parameters.push(column(table, at, lsn, [text(values[at])].into_iter())?);
            }
            let statement = match moves {
                true => Statement::Move(mask),
                false => Statement::Update(mask),
            };
            into.push(order(statement, parameters, from));
        }
    }
    Ok(())
}

/// A change of a row that is found by all its values.
fn by_row<'a>(
    table: &'a Table,
    lsn: Lsn,
    change: Change<'_>,
    into: &mut Vec<Command<'a>>,
) -> Result<(), BackupError> {
    let (Change::Delete {
        old: Old::Full(old),
    }
    | Change::Update {
        old: Old::Full(old),
        ..
    }) = change
    else {
        return Err(contradiction(table, lsn, Contradiction::NoKey));
    };
    let nulls: Vec<bool> = old.iter().map(|value| value == Datum::Null).collect();
    let mut parameters: Vec<Value> = old
        .iter()
        .filter_map(text)
        .map(|value| Value::Text(value.to_vec()))
        .collect();
    let who = Who::Row(describe(table, old), lsn);
    let statement = match change {
        Change::Update { new, .. } => {
            let before: Vec<Datum<'_>> = old.iter().collect();
            let changed = |(column, value): &(usize, Datum<'_>)| {
                *value != Datum::Unchanged && *value != before[*column]
            };
            let changed: Vec<(usize, Datum<'_>)> = new.iter().enumerate().filter(changed).collect();
            if changed.is_empty() {
                return Ok(());
            }
            let mut mask = Vec::new();
            for (column, value) in &changed {
                mask.push(*column);
                match text(*value) {
                    Some(value) => parameters.push(Value::Text(value.to_vec())),
                    None => parameters.push(Value::Null),
                }
            }
            Statement::UpdateRow(nulls, mask)
        }
        _ => Statement::DeleteRow(nulls),
    };
    into.push(Command::Order(Order {
        table,
        statement,
        parameters,
        expected: 1,
        who,
    }));
    Ok(())
}

/// A row's values, for people.
fn describe(table: &Table, row: Tuple<'_>) -> String {
    let columns = table.relation.columns.iter().zip(row.iter());
    let values: Vec<String> = columns
        .map(|(column, value)| {
            let value = match text(value) {
                None => "null".to_owned(),
                Some(value) => String::from_utf8_lossy(value).chars().take(40).collect(),
            };
            format!("{} = {value}", column.name)
        })
        .collect();
    values.join(", ")
}
