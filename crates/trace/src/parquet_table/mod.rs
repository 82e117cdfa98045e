//! One Parquet file of one table: declared columns, rows written and read one at a time.
//!
//! A table says what its columns are ([`Column`]) and how a row becomes values and back; everything
//! Parquet (levels, pages, dictionaries, row groups, statistics) stays in here. Three shapes of
//! column are enough for a trace, so levels are never larger than 1:
//!
//! ```text
//! required   one value per row
//! optional   definition level 0: null, 1: a value
//! list       definition level 0: empty, 1: an element;
//!            repetition level 1: another element of the same row
//! ```

mod column;
mod read;
mod row_reader;
mod row_writer;
mod table;
mod write;

pub(crate) use column::{Column, Kind, Malformed, Packing};
pub(crate) use read::{Selection, TableReader};
pub(crate) use row_reader::{RowReader, text};
pub(crate) use row_writer::RowWriter;
#[cfg(test)]
pub(crate) use table::schema_of;
pub(crate) use table::{FORMAT_VERSION, PRUNED_VERSION, SEALED_VERSION, SUPPORTED_VERSION, Table};
pub(crate) use write::{DictionaryPays, TableSummary, TableWriter};
