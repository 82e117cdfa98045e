//! Applies the log to the store in memory.
//!
//! `durable` means applied here, since memory survives nothing. A change of a table's shape that
//! the rows in memory cannot follow ends the standby at that position: a column added, whose
//! default the log does not say, or another type.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hindcast_pg::Lsn;
use hindcast_standby::initial::Fields;
use hindcast_standby::pgoutput::{
    Begin, Change, Commit, Datum, Identity, Old, Relation, Truncate, Tuple,
};
use hindcast_standby::source::ReplicatedTable;
use hindcast_standby::target::{Target, TargetStatus};
use hindcast_store::{Appender, Cell, Failure, Mark, Store, TableId};

use crate::catalog::{Catalog, KeyError, Known, Table};

/// How long applying what was received may make no progress.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);

/// Why the log could not be applied to the store any further.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error("{} cannot be kept in memory: the log names changed rows by all their values, and memory finds rows by a primary key", tables.join(", "))]
    NoKey { tables: Vec<String> },
    #[error("{} cannot be kept in memory: the log names rows there by another index than the primary key", tables.join(", "))]
    OtherIndex { tables: Vec<String> },
    #[error("{table} was changed at {lsn}: {what}, and the rows in memory cannot follow that")]
    Reshaped {
        table: String,
        lsn: Lsn,
        what: String,
    },
    #[error("{table} is in the log at {lsn}, and was not there when the copy was made")]
    Unknown { table: String, lsn: Lsn },
    #[error("a row of {table} at {lsn} has no key")]
    Key {
        table: String,
        lsn: Lsn,
        #[source]
        source: KeyError,
    },
    #[error("the store has stopped")]
    Store(#[from] Failure),
    #[error("the store has not applied {behind} in {} s", DRAIN_PATIENCE.as_secs())]
    Stuck { behind: Lsn },
}

impl MemoryError {
    pub fn hint(&self) -> String {
        match self {
            MemoryError::NoKey { tables } => {
                format!(
                    "give it one, or leave it out: --exclude-table {}",
                    tables[0]
                )
            }
            MemoryError::OtherIndex { tables } => {
                format!(
                    "ALTER TABLE {0} REPLICA IDENTITY DEFAULT on the primary, or leave it out: --exclude-table {0}",
                    tables[0]
                )
            }
            MemoryError::Reshaped { .. } | MemoryError::Unknown { .. } => {
                "start again: the copy is made with the tables as they are now".to_owned()
            }
            MemoryError::Key { .. } | MemoryError::Stuck { .. } => {
                "this is a defect of hindcast: please report it; starting again makes a new copy"
                    .to_owned()
            }
            MemoryError::Store(failure) => failure.hint().to_owned(),
        }
    }
}

/// The store, as a target of the log.
pub struct Memory {
    store: Store,
    appender: Appender,
    catalog: Arc<Catalog>,
    known: Known,
    /// For each oid: where the columns of the log's rows are in the table's.
    places: HashMap<u32, Vec<usize>>,
    /// Of the transaction under way.
    lsn: Lsn,
    /// How many rows without a key there are, and how many with those of the transaction under way.
    /// Such a row has its number for a key: it stays as it was inserted.
    numbered: u64,
    numbering: u64,
    key: Vec<u8>,
    old_key: Vec<u8>,
    received: Lsn,
    idle: Lsn,
    unflushed: bool,
    status: TargetStatus,
}

impl Memory {
    /// # Errors
    /// If a table whose rows change has no primary key, or another index tells its rows apart in
    /// the log.
    pub fn new(
        store: Store,
        appender: Appender,
        catalog: Arc<Catalog>,
    ) -> Result<Self, MemoryError> {
        let tables = catalog.all();
        let keyless: Vec<String> = tables
            .iter()
            .filter(|table| table.key.is_empty() && table.identity != 'n')
            .map(|table| table.to_string())
            .collect();
        if !keyless.is_empty() {
            return Err(MemoryError::NoKey { tables: keyless });
        }
        let other_index: Vec<String> = tables
            .iter()
            .filter(|table| table.identity == 'i')
            .map(|table| table.to_string())
            .collect();
        if !other_index.is_empty() {
            return Err(MemoryError::OtherIndex {
                tables: other_index,
            });
        }
        Ok(Self {
            store,
            appender,
            known: tables
                .into_iter()
                .map(|table| (table.id.0, table))
                .collect(),
            catalog,
            places: HashMap::new(),
            lsn: Lsn(0),
            numbered: 0,
            numbering: 0,
            key: Vec::new(),
            old_key: Vec::new(),
            received: Lsn(0),
            idle: Lsn(0),
            unflushed: false,
            status: TargetStatus::default(),
        })
    }

    /// A row of the initial copy. Nobody sees it before [`Memory::loaded`].
    pub fn load(&mut self, table: &ReplicatedTable, row: &Fields) -> Result<(), MemoryError> {
        let known = known(&self.known, table.oid, table, self.lsn)?;
        self.key.clear();
        number(known, &mut self.numbering, &mut self.key);
        known
            .encode_key(|place| row.get(place), &mut self.key)
            .map_err(|source| MemoryError::Key {
                table: table.to_string(),
                lsn: self.lsn,
                source,
            })?;
        let cells = row
            .iter()
            .map(|value| value.map_or(Cell::Null, Cell::Value));
        self.appender.put(known.id, &self.key, 0, cells, None);
        Ok(())
    }

    /// The copy is complete, and is the state at `at`.
    pub fn loaded(&mut self, at: Lsn, time: i64) -> Result<(), MemoryError> {
        self.received = at;
        self.numbered = self.numbering;
        self.appender.commit(Mark { lsn: at.0, time });
        self.drain()
    }

    pub fn resume_point(&self) -> Lsn {
        self.received
    }

    fn put(
        &mut self,
        relation: &Relation,
        old: Option<Tuple<'_>>,
        new: Tuple<'_>,
    ) -> Result<(), MemoryError> {
        let table = known(&self.known, relation.id, relation, self.lsn)?;
        let places = &self.places[&relation.id];
        let failed = |source| MemoryError::Key {
            table: relation.to_string(),
            lsn: self.lsn,
            source,
        };
        let new_at = values(table, places, new);
        let old_at = old.map(|old| values(table, places, old));
        self.key.clear();
        number(table, &mut self.numbering, &mut self.key);
        // A large part of a key that did not change is told with the old row only.
        let value = |place: usize| match (new_at[place], &old_at) {
            (Datum::Unchanged, Some(old)) => text(old[place]),
            (datum, _) => text(datum),
        };
        table.encode_key(value, &mut self.key).map_err(failed)?;
        let moved_from = match &old_at {
            None => None,
            Some(old) => {
                self.old_key.clear();
                table
                    .encode_key(|place| text(old[place]), &mut self.old_key)
                    .map_err(failed)?;
                Some(self.old_key.as_slice())
            }
        };
        let cells = new_at.iter().enumerate().map(|(place, datum)| match datum {
            Datum::Null => Cell::Null,
            Datum::Text(text) => Cell::Value(text),
            Datum::Unchanged => match old_at.as_ref().map(|old| old[place]) {
                Some(Datum::Text(text)) => Cell::Value(text),
                _ => Cell::Unchanged,
            },
        });
        self.appender.put(table.id, &self.key, 0, cells, moved_from);
        Ok(())
    }

    fn delete(&mut self, relation: &Relation, old: Tuple<'_>) -> Result<(), MemoryError> {
        let table = known(&self.known, relation.id, relation, self.lsn)?;
        let old = values(table, &self.places[&relation.id], old);
        self.key.clear();
        table
            .encode_key(|place| text(old[place]), &mut self.key)
            .map_err(|source| MemoryError::Key {
                table: relation.to_string(),
                lsn: self.lsn,
                source,
            })?;
        self.appender.delete(table.id, &self.key);
        Ok(())
    }
}

/// Begins the key of the next row of a table that has none.
fn number(table: &Table, numbering: &mut u64, key: &mut Vec<u8>) {
    if table.key.is_empty() {
        key.extend_from_slice(&numbering.to_be_bytes());
        *numbering += 1;
    }
}

fn known<'a>(
    known: &'a Known,
    oid: u32,
    name: &dyn std::fmt::Display,
    lsn: Lsn,
) -> Result<&'a Arc<Table>, MemoryError> {
    known.get(&oid).ok_or_else(|| MemoryError::Unknown {
        table: name.to_string(),
        lsn,
    })
}

/// Whether changes say which row of the store they are about. A changed key whose old row is not
/// told would leave that row behind, and rows that have numbers are not found by their values.
fn names_rows_by_key(table: &Table, relation: &Relation) -> bool {
    match relation.identity {
        Identity::Full if table.key.is_empty() => false,
        // The old row is there whole; and without an identity there are no changes of rows.
        Identity::Full | Identity::Nothing => true,
        Identity::Default | Identity::Index => relation.columns.iter().all(|column| {
            let place = table.column(&column.name);
            column.key == place.is_some_and(|place| table.key.contains(&place))
        }),
    }
}

fn text(datum: Datum<'_>) -> Option<&[u8]> {
    match datum {
        Datum::Text(text) => Some(text),
        Datum::Null | Datum::Unchanged => None,
    }
}

/// The values in the table's order.
fn values<'a>(table: &Table, places: &[usize], tuple: Tuple<'a>) -> Vec<Datum<'a>> {
    let mut values = vec![Datum::Null; table.columns.len()];
    for (datum, &place) in tuple.iter().zip(places) {
        values[place] = datum;
    }
    values
}

impl Target for Memory {
    type Error = MemoryError;

    fn relation(&mut self, relation: &Arc<Relation>) -> Result<(), MemoryError> {
        let table = known(&self.known, relation.id, relation, self.lsn)?;
        let reshaped = |what| MemoryError::Reshaped {
            table: relation.to_string(),
            lsn: self.lsn,
            what,
        };
        let mut places = Vec::with_capacity(relation.columns.len());
        for column in &relation.columns {
            let place = table
                .column(&column.name)
                .ok_or_else(|| reshaped(format!("it has a column {} now", column.name)))?;
            if table.columns[place].type_oid != column.type_oid {
                return Err(reshaped(format!("{} is of another type now", column.name)));
            }
            places.push(place);
        }
        if let Some(place) = (0..table.columns.len()).find(|place| !places.contains(place)) {
            let name = &table.columns[place].name;
            return Err(reshaped(format!("its column {name} is gone")));
        }
        if !names_rows_by_key(table, relation) {
            return Err(reshaped(
                "the log names its rows by other columns than the primary key's".to_owned(),
            ));
        }
        if table.schema != relation.schema || table.name != relation.name {
            let renamed = Arc::new(Table {
                schema: relation.schema.clone(),
                name: relation.name.clone(),
                ..(**table).clone()
            });
            self.catalog.replace(Arc::clone(&renamed));
            self.known.insert(relation.id, renamed);
        }
        self.places.insert(relation.id, places);
        Ok(())
    }

    fn begin(&mut self, begin: &Begin) -> Result<(), MemoryError> {
        self.lsn = begin.final_lsn;
        // One that was cut off comes again, and its rows are those that are there.
        self.numbering = self.numbered;
        Ok(())
    }

    fn change(&mut self, relation: &Arc<Relation>, change: &Change<'_>) -> Result<(), MemoryError> {
        self.status.changes += 1;
        match *change {
            Change::Insert { new } => self.put(relation, None, new),
            Change::Update { old, new } => match old {
                Old::None => self.put(relation, None, new),
                Old::Key(old) | Old::Full(old) => self.put(relation, Some(old), new),
            },
            Change::Delete { old } => match old {
                Old::Key(old) | Old::Full(old) => self.delete(relation, old),
                Old::None => Ok(()),
            },
        }
    }

    fn truncate(&mut self, relations: &[Arc<Relation>], _: Truncate) -> Result<(), MemoryError> {
        for relation in relations {
            self.appender.truncate(TableId(relation.id));
        }
        Ok(())
    }

    fn commit(&mut self, commit: &Commit) -> Result<(), MemoryError> {
        self.appender.commit(Mark {
            lsn: commit.end_lsn.0,
            time: commit.time,
        });
        self.received = commit.end_lsn;
        self.numbered = self.numbering;
        self.status.transactions += 1;
        self.unflushed = true;
        Ok(())
    }

    fn tick(&mut self, _: Instant) -> Result<(), MemoryError> {
        if std::mem::take(&mut self.unflushed) {
            self.appender.flush();
        }
        match self.store.failure() {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }

    fn idle(&mut self, read_to: Lsn, _: Instant) -> Result<(), MemoryError> {
        self.idle = self.idle.max(read_to);
        Ok(())
    }

    fn drain(&mut self) -> Result<(), MemoryError> {
        self.appender.flush();
        let deadline = Instant::now() + DRAIN_PATIENCE;
        if self.store.wait_visible(self.received.0, deadline) {
            return Ok(());
        }
        Err(match self.store.failure() {
            Some(failure) => failure.into(),
            None => MemoryError::Stuck {
                behind: self.received,
            },
        })
    }

    fn received(&self) -> Lsn {
        self.received
    }

    fn visible(&self) -> Lsn {
        Lsn(self.store.visible().lsn)
    }

    fn durable(&self) -> Lsn {
        match self.visible() >= self.received {
            true => self.received.max(self.idle),
            false => self.visible(),
        }
    }

    fn status(&self) -> TargetStatus {
        let metrics = self.store.metrics();
        TargetStatus {
            rows_written: metrics.applied,
            deferred: metrics.deferred,
            pending_bytes: 0,
            visible_commit_time: Some(self.store.visible().time),
            ..self.status.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use hindcast_standby::pgoutput::Column;
    use hindcast_standby::source::TableColumn;

    use super::*;

    const OID: u32 = 16_384;

    /// A table of one column, and no key.
    fn history() -> (ReplicatedTable, Arc<Relation>) {
        let table = ReplicatedTable {
            oid: OID,
            schema: "public".to_owned(),
            name: "history".to_owned(),
            columns: vec![TableColumn {
                name: "what".to_owned(),
                type_oid: 25,
                type_name: "text".to_owned(),
                collation: "C".to_owned(),
            }],
            primary_key: Vec::new(),
            identity: 'n',
            changed: 0,
            rows_estimate: 0,
            bytes: 0,
            pages: 0,
            shape: hindcast_standby::source::shape::Shape::default(),
            rows: None,
            root: None,
        };
        let relation = Relation {
            id: OID,
            schema: table.schema.clone(),
            name: table.name.clone(),
            identity: Identity::Default,
            columns: vec![Column {
                name: "what".to_owned(),
                key: false,
                type_oid: 25,
                type_modifier: -1,
            }],
        };
        (table, Arc::new(relation))
    }

    #[test]
    fn rows_without_a_key_that_may_change_from_now_on_are_not_followed() {
        let (table, relation) = history();
        let (store, appender) = hindcast_store::open(hindcast_store::Options::default());
        let mut memory = Memory::new(store, appender, Arc::new(Catalog::new(&[table]))).unwrap();
        memory.loaded(Lsn(10), 0).unwrap();
        memory.relation(&relation).unwrap();
        let full = Relation {
            identity: Identity::Full,
            ..(*relation).clone()
        };
        let error = memory.relation(&Arc::new(full)).unwrap_err();
        assert!(matches!(error, MemoryError::Reshaped { .. }), "{error}");
    }

    #[test]
    fn a_transaction_that_was_cut_off_comes_again_and_counts_once() {
        let (table, relation) = history();
        let (store, appender) = hindcast_store::open(hindcast_store::Options::default());
        let catalog = Arc::new(Catalog::new(&[table]));
        let mut memory = Memory::new(store.clone(), appender, catalog).unwrap();
        memory.loaded(Lsn(10), 0).unwrap();
        memory.relation(&relation).unwrap();
        let begin = |memory: &mut Memory, lsn| {
            let begin = Begin {
                final_lsn: Lsn(lsn),
                time: 0,
                xid: 1,
            };
            memory.begin(&begin).unwrap();
        };
        let insert = |memory: &mut Memory| {
            let new = Tuple::from_raw(1, b"t\0\0\0\x01x").unwrap();
            memory.change(&relation, &Change::Insert { new }).unwrap();
        };
        let commit = |memory: &mut Memory, lsn| {
            let commit = Commit {
                lsn: Lsn(lsn),
                end_lsn: Lsn(lsn + 1),
                time: 0,
            };
            memory.commit(&commit).unwrap();
        };
        begin(&mut memory, 20);
        insert(&mut memory);
        commit(&mut memory, 20);
        begin(&mut memory, 30);
        insert(&mut memory);
        // The primary is lost, and found again.
        begin(&mut memory, 30);
        insert(&mut memory);
        insert(&mut memory);
        commit(&mut memory, 30);
        memory.drain().unwrap();
        let rows = store.snapshot();
        let all = rows.scan(TableId(OID), Bound::Unbounded, Bound::Unbounded);
        assert_eq!(all.count(), 3);
    }
}
