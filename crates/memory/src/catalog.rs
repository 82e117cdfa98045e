//! Which tables the store holds, for those who write into it and those who read.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use hindcast_standby::source::ReplicatedTable;
use hindcast_store::TableId;

use crate::encoding::{Invalid, Kind, encode};

/// All tables. Writers of rows look here once for each shape of a table, readers once for each
/// query.
#[derive(Debug, Default)]
pub struct Catalog {
    tables: RwLock<Vec<Arc<Table>>>,
}

/// A table of the primary. Its rows have the columns in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub id: TableId,
    pub schema: String,
    pub name: String,
    pub columns: Vec<Column>,
    /// Places of the primary key's columns, in the key's order; empty too if one of them is
    /// generated, which the log does not have. Rows without a key are told apart by a number.
    pub key: Vec<usize>,
    /// What tells rows apart in the log, as [`ReplicatedTable`] has it.
    pub identity: char,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub type_oid: u32,
    pub type_name: String,
    pub kind: Kind,
    /// Its order is that of the bytes: it has the collation `C`, or none.
    pub in_byte_order: bool,
}

impl Catalog {
    pub fn new(tables: &[ReplicatedTable]) -> Self {
        let tables = tables.iter().map(|table| Arc::new(Table::new(table)));
        Self {
            tables: RwLock::new(tables.collect()),
        }
    }

    pub fn all(&self) -> Vec<Arc<Table>> {
        self.tables
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub fn by_oid(&self, oid: u32) -> Option<Arc<Table>> {
        self.find(|table| table.id == TableId(oid))
    }

    /// A name without a schema is looked for in `public` first, then wherever it is the only one.
    pub fn by_name(&self, schema: Option<&str>, name: &str) -> Option<Arc<Table>> {
        if let Some(schema) = schema {
            return self.find(|table| table.schema == schema && table.name == name);
        }
        self.by_name(Some("public"), name).or_else(|| {
            let mut found = self.all();
            found.retain(|table| table.name == name);
            match found.len() {
                1 => found.pop(),
                _ => None,
            }
        })
    }

    fn find(&self, wanted: impl Fn(&Table) -> bool) -> Option<Arc<Table>> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.iter().find(|table| wanted(table)).cloned()
    }

    /// Puts another shape in a table's place.
    pub(super) fn replace(&self, table: Arc<Table>) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        match tables.iter_mut().find(|known| known.id == table.id) {
            Some(known) => *known = table,
            None => tables.push(table),
        }
    }
}

impl Table {
    pub fn new(table: &ReplicatedTable) -> Self {
        let columns: Vec<Column> = table
            .columns
            .iter()
            .map(|column| {
                let kind = Kind::of(column.type_oid);
                Column {
                    name: column.name.clone(),
                    type_oid: column.type_oid,
                    type_name: column.type_name.clone(),
                    kind,
                    in_byte_order: !kind.is_collated()
                        || matches!(
                            column.collation.as_str(),
                            "C" | "POSIX" | "ucs_basic" | "C.UTF-8" | "C.utf8"
                        ),
                }
            })
            .collect();
        let place = |name: &String| columns.iter().position(|column| column.name == *name);
        Self {
            id: TableId(table.oid),
            schema: table.schema.clone(),
            name: table.name.clone(),
            key: table
                .primary_key
                .iter()
                .map(place)
                .collect::<Option<_>>()
                .unwrap_or_default(),
            identity: table.identity,
            columns,
        }
    }

    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Appends the key of a row whose values `value` gives.
    pub fn encode_key<'a>(
        &self,
        value: impl Fn(usize) -> Option<&'a [u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), KeyError> {
        for &place in &self.key {
            let column = &self.columns[place];
            let text = value(place).ok_or_else(|| KeyError::Missing(column.name.clone()))?;
            encode(column.kind, text, out).map_err(|source| KeyError::Invalid {
                column: column.name.clone(),
                source,
            })?;
        }
        Ok(())
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

/// Why a row has no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the log has no value for the key's column {0}")]
    Missing(String),
    #[error("the key's column {column} cannot be read")]
    Invalid {
        column: String,
        #[source]
        source: Invalid,
    },
}

/// For whoever needs the tables by the primary's oid and often.
pub(super) type Known = HashMap<u32, Arc<Table>>;
