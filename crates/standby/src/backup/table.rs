//! A table of the backup, as the statements that write it need to know it.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::pgoutput::Relation;

use super::net::{Net, read_key};
use super::values::{Wire, integer};

/// Was checked against what the primary says of the table: every column of [`Table::relation`] is
/// there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Another one whenever the table was looked at again: statements are prepared for one of
    /// them.
    pub serial: u64,
    pub relation: Arc<Relation>,
    /// With its schema, quoted.
    pub name: String,
    /// Rows are in its partitions; otherwise in itself only, whoever inherits from it.
    pub partitioned: bool,
    /// As in the relation, in its order.
    pub columns: Vec<Column>,
    /// Indexes into `columns`. Without a key rows are found by all their values.
    pub key: Vec<usize>,
    /// The operators that compare the key's columns, with their schemas.
    pub key_operators: Vec<String>,
    /// There is another constraint between rows, so that their order may matter.
    pub constrained: bool,
    /// One of its constraints may be deferred to the end of a transaction.
    pub deferrable: bool,
    /// There are columns that the primary does not have; a row that is inserted again gets their
    /// defaults again.
    pub extra_columns: bool,
    /// Keys that are equal have the same text: several workers may write the table.
    pub spreadable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Quoted.
    pub name: String,
    /// With its schema and modifier, such as `numeric(10,2)`.
    pub type_sql: String,
    pub wire: Wire,
    /// The array as which values travel so that the type's input function reads them: where a cast
    /// from text would be another function, as that of `regclass` is.
    pub parsed_as: Option<String>,
    /// `GENERATED ALWAYS AS IDENTITY`: can be inserted, but not set.
    pub always: bool,
    /// Values are equal exactly if their texts are.
    pub textual: bool,
}

impl Column {
    /// The type of an array parameter with values of this column.
    pub fn array_sql(&self) -> &str {
        self.parsed_as
            .as_deref()
            .unwrap_or_else(|| self.wire.array_sql())
    }
}

impl Table {
    /// How the table is named where its rows are read or changed.
    pub fn only(&self) -> String {
        match self.partitioned {
            true => self.name.clone(),
            false => format!("ONLY {}", self.name),
        }
    }

    /// Puts rows whose keys are close to one another, and therefore close on disk, next to one
    /// another. Which order that is does not matter for what is written.
    pub fn sort(&self, net: &Net, rows: &mut [u32]) {
        if let [column] = self.key.as_slice()
            && self.columns[*column].wire.is_integer()
        {
            rows.sort_by_cached_key(|&row| read_key(net.key(row)).next().and_then(integer));
            return;
        }
        rows.sort_by(|&a, &b| self.compare_keys(net.key(a), net.key(b)));
    }

    fn compare_keys(&self, a: &[u8], b: &[u8]) -> Ordering {
        let columns = self.key.iter().map(|&column| &self.columns[column]);
        for ((column, a), b) in columns.zip(read_key(a)).zip(read_key(b)) {
            let order = match column.wire.is_integer() {
                true => integer(a).cmp(&integer(b)),
                false => a.cmp(b),
            };
            if order.is_ne() {
                return order;
            }
        }
        Ordering::Equal
    }

    /// A key for people: `(id, name) = (1, x)`.
    pub fn describe_key(&self, key: &[u8]) -> String {
        let names: Vec<&str> = self
            .key
            .iter()
            .map(|&column| self.relation.columns[column].name.as_str())
            .collect();
        let values: Vec<_> = read_key(key).map(String::from_utf8_lossy).collect();
        match (names.as_slice(), values.as_slice()) {
            ([name], [value]) => format!("{name} = {value}"),
            _ => format!("({}) = ({})", names.join(", "), values.join(", ")),
        }
    }

    /// Deleted and inserted again, a row cannot simply be updated: there are columns that an update
    /// does not reach.
    pub fn replaces_by_two(&self) -> bool {
        self.extra_columns || self.fixed().next().is_some()
    }

    /// Columns outside the key that no update can set.
    pub fn fixed(&self) -> impl Iterator<Item = usize> {
        (0..self.columns.len())
            .filter(|column| self.columns[*column].always && !self.key.contains(column))
    }
}
