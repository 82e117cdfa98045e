//! What a table is: its columns, and how a row becomes values and back.

use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, Repetition};
use parquet::schema::types::{Type, TypePtr};

use super::column::{Column, Malformed, Presence};
use super::row_reader::RowReader;
use super::row_writer::RowWriter;
use crate::Record;

/// The version of everything a trace consists of: folder layout, tables, columns, write-ahead
/// files.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Of a trace from which something was pruned: a reader of the first version would not notice.
pub(crate) const PRUNED_VERSION: u32 = 2;
/// Of a trace that is encrypted, and of its write-ahead files.
pub(crate) const SEALED_VERSION: u32 = 3;
/// What is read. Only `trace.json`, markers and encrypted write-ahead files are of a later version
/// than [`FORMAT_VERSION`].
pub(crate) const SUPPORTED_VERSION: u32 = SEALED_VERSION;
/// Key of the format version in the metadata of each Parquet file.
pub(crate) const VERSION_KEY: &str = "hindcast.trace.version";

/// How rows of one kind are stored. Rows are written in ascending order of `id`.
pub(crate) trait Table: Send + 'static {
    type Row: Send;

    /// Also the name of the folder.
    const NAME: &'static str;
    const COLUMNS: &'static [Column];
    /// Indices of the columns that a [`Selection`](super::Selection) looks at.
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
