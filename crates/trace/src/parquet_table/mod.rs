//! One Parquet file of one table: declared columns, rows written and read one at a time.
//!
//! A table says what its columns are ([`Column`]) and how a row becomes values and back; everything
//! Parquet (levels, pages, dictionaries, row groups, statistics) stays in here. Three shapes of column
//! are enough for a trace, so levels are never larger than 1:
//!
//! ```text
//! required   one value per row
//! optional   definition level 0: null, 1: a value
//! list       definition level 0: empty, 1: an element; repetition level 1: another element of the same row
//! ```

mod read;
mod write;

use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use crate::Record;

pub(crate) use read::text;
pub(crate) use read::{RowReader, Selection, TableReader};
pub(crate) use write::{DictionaryPays, RowWriter, TableSummary, TableWriter};

/// The version of everything a trace consists of: folder layout, tables, columns, write-ahead files.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Key of the format version in the metadata of each Parquet file.
pub(crate) const VERSION_KEY: &str = "hindcast.trace.version";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Int64,
    UInt64,
    UInt32,
    UInt16,
    /// Microseconds, UTC.
    Timestamp,
    Text,
    Binary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    Optional,
    /// `name` is a list of plain values.
    List,
    /// `list` is a list of structs, of which this column is a field; fields of one list stand next to each other.
    ListField {
        list: &'static str,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Differences between neighbours, bit-packed: for what grows or stays small.
    Delta,
    /// Distinct values once, then their numbers: for what repeats.
    Dictionary,
    /// As they are, for zstd to deal with.
    Plain,
    /// `Dictionary` or `Plain`, whichever is smaller for the values at hand.
    WhateverIsSmaller,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub name: &'static str,
    pub kind: Kind,
    pub presence: Presence,
    pub packing: Packing,
    /// Minimum and maximum per row group, so that a range can leave row groups out.
    pub statistics: bool,
    /// Large and rarely wanted: left unread by lean scans.
    pub bulky: bool,
}

/// How rows of one kind are stored. Rows are written in ascending order of `id`.
pub(crate) trait Table: Send + 'static {
    type Row: Send;

    /// Also the name of the folder.
    const NAME: &'static str;
    const COLUMNS: &'static [Column];
    /// Indices of the columns that a [`Selection`] looks at.
    const ID: Option<usize> = None;
    const TIME: Option<usize> = None;
    const REQUEST: Option<usize> = None;

    fn id(_row: &Self::Row) -> u64 {
        0
    }
    fn time(_row: &Self::Row) -> i64 {
        0
    }
    fn request(_row: &Self::Row) -> Option<u64> {
        None
    }
    /// What goes into the columns that are packed in whatever way is smaller.
    fn digest(_row: &Self::Row) -> Option<u32> {
        None
    }
    /// The row in a record, if it is one of this table.
    fn pick(record: Record) -> Option<Self::Row>;
    /// Hands the values of one row to the columns, in their order.
    fn shred(row: &Self::Row, columns: &mut RowWriter<'_>);
    /// The reverse; columns that were left out yield nothing, zero or empty.
    fn assemble(columns: &mut RowReader<'_>) -> Result<Self::Row, Malformed>;
}

/// A stored value that means nothing, such as an unknown outcome.
#[derive(Debug)]
pub(crate) struct Malformed(pub String);

impl Column {
    pub const fn new(name: &'static str, kind: Kind, packing: Packing) -> Self {
        Self {
            name,
            kind,
            presence: Presence::Required,
            packing,
            statistics: false,
            bulky: false,
        }
    }
    pub const fn optional(mut self) -> Self {
        self.presence = Presence::Optional;
        self
    }
    pub const fn list(mut self) -> Self {
        self.presence = Presence::List;
        self
    }
    pub const fn of(mut self, list: &'static str) -> Self {
        self.presence = Presence::ListField { list };
        self
    }
    pub const fn with_statistics(mut self) -> Self {
        self.statistics = true;
        self
    }
    pub const fn bulky(mut self) -> Self {
        self.bulky = true;
        self
    }

    fn path(&self) -> ColumnPath {
        let parts = match self.presence {
            Presence::Required | Presence::Optional => vec![self.name],
            Presence::List => vec![self.name, "list", "element"],
            Presence::ListField { list } => vec![list, "list", "element", self.name],
        };
        ColumnPath::new(parts.into_iter().map(str::to_owned).collect())
    }

    fn leaf(&self) -> TypePtr {
        let (name, repetition) = match self.presence {
            Presence::Optional => (self.name, Repetition::OPTIONAL),
            Presence::Required | Presence::ListField { .. } => (self.name, Repetition::REQUIRED),
            Presence::List => ("element", Repetition::REQUIRED),
        };
        let (physical, logical) = match self.kind {
            Kind::Int64 => (PhysicalType::INT64, None),
            Kind::UInt64 => (PhysicalType::INT64, Some(LogicalType::integer(64, false))),
            Kind::UInt32 => (PhysicalType::INT32, Some(LogicalType::integer(32, false))),
            Kind::UInt16 => (PhysicalType::INT32, Some(LogicalType::integer(16, false))),
            Kind::Timestamp => (
                PhysicalType::INT64,
                Some(LogicalType::timestamp(true, TimeUnit::MICROS)),
            ),
            Kind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Binary => (PhysicalType::BYTE_ARRAY, None),
        };
        let leaf = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical);
        Arc::new(leaf.build().expect("a declared column is well-formed"))
    }
}

/// `required group NAME (LIST) { repeated group list { element } }`
fn list_of(name: &str, element: TypePtr) -> TypePtr {
    let list = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![element]);
    let outer = Type::group_type_builder(name)
        .with_repetition(Repetition::REQUIRED)
        .with_converted_type(ConvertedType::LIST)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(
            list.build().expect("a declared list is well-formed"),
        )]);
    Arc::new(outer.build().expect("a declared list is well-formed"))
}

pub(crate) fn schema_of<T: Table>() -> TypePtr {
    let mut fields = Vec::new();
    let mut columns = T::COLUMNS.iter().peekable();
    while let Some(column) = columns.next() {
        fields.push(match column.presence {
            Presence::Required | Presence::Optional => column.leaf(),
            Presence::List => list_of(column.name, column.leaf()),
            Presence::ListField { list } => {
                let mut leaves = vec![column.leaf()];
                while let Some(next) =
                    columns.next_if(|next| next.presence == Presence::ListField { list })
                {
                    leaves.push(next.leaf());
                }
                let element = Type::group_type_builder("element")
                    .with_repetition(Repetition::REQUIRED)
                    .with_fields(leaves);
                list_of(
                    list,
                    Arc::new(element.build().expect("a declared struct is well-formed")),
                )
            }
        });
    }
    let root = Type::group_type_builder(T::NAME).with_fields(fields);
    Arc::new(root.build().expect("a declared table is well-formed"))
}
