//! Writing a table: rows are collected column by column until a row group is full.

use std::collections::HashSet;
use std::io::Write;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use serde::{Deserialize, Serialize};

use super::column::{Kind, Packing};
use super::row_writer::{Data, RowWriter, Values};
use super::table::{FORMAT_VERSION, Table, VERSION_KEY, schema_of};

/// A row group holds at most this many rows: what one reader of a file keeps decoding through, and
/// the grain of pruning.
const GROUP_ROWS_MAX: usize = 128 << 10;
/// … and about this many bytes of values, which bounds the memory of writer and reader.
const GROUP_BYTES_MAX: usize = 32 << 20;
/// Chosen by measurement, see `docs/trace-format.md`.
const ZSTD_LEVEL: i32 = 3;
/// How many of the row groups without a value its Bloom filter lets through. As many distinct
/// values as rows then take a byte each; with fewer the filter is folded.
const LOOKED_UP_IN_VAIN: f64 = 0.03;
/// Values are handed to the column writer in portions of this many levels.
const PORTION: usize = 4096;

/// What a file holds, kept in the segment's manifest so that readers need not open files out of
/// range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TableSummary {
    pub rows: u64,
    pub bytes: u64,
    pub first_id: u64,
    pub last_id: u64,
    pub first_time: i64,
    pub last_time: i64,
    /// XXH3 of the file, 64 bits in hexadecimal; empty for what is not in a file.
    pub xxh3: String,
}

impl TableSummary {
    pub fn count(&mut self, id: u64, time: i64) {
        if self.rows == 0 {
            (self.first_id, self.last_id, self.first_time, self.last_time) = (id, id, time, time);
        }
        self.rows += 1;
        self.first_id = self.first_id.min(id);
        self.last_id = self.last_id.max(id);
        self.first_time = self.first_time.min(time);
        self.last_time = self.last_time.max(time);
    }
}

pub(crate) struct TableWriter<T, W: Write + Send> {
    file: SerializedFileWriter<W>,
    columns: Vec<Values>,
    rows: usize,
    summary: TableSummary,
    table: PhantomData<T>,
}

impl<T: Table, W: Write + Send> TableWriter<T, W> {
    /// `dictionary`: whether columns that leave the choice open get one.
    pub fn new(target: W, dictionary_pays: bool) -> Result<Self, ParquetError> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            .set_created_by(format!("hindcast version {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(vec![KeyValue::new(
                VERSION_KEY.to_owned(),
                FORMAT_VERSION.to_string(),
            )]))
            .set_max_row_group_row_count(None)
            .set_data_page_row_count_limit(GROUP_ROWS_MAX)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_offset_index_disabled(true);
        if let Some(id) = T::ID {
            let sorted = SortingColumn {
                column_idx: id as i32,
                descending: false,
                nulls_first: false,
            };
            properties = properties.set_sorting_columns(Some(vec![sorted]));
        }
        for column in T::COLUMNS {
            let path = column.path();
            if column.statistics {
                properties = properties
                    .set_column_statistics_enabled(path.clone(), EnabledStatistics::Chunk);
            }
            if column.looked_up {
                properties = properties
                    .set_column_bloom_filter_max_ndv(path.clone(), GROUP_ROWS_MAX as u64)
                    .set_column_bloom_filter_fpp(path.clone(), LOOKED_UP_IN_VAIN);
            }
            let dictionary = match column.packing {
                Packing::Dictionary => true,
                Packing::Delta | Packing::Plain => false,
                Packing::WhateverIsSmaller => dictionary_pays,
            };
            properties = properties.set_column_dictionary_enabled(path.clone(), dictionary);
            let encoding = match (column.packing, column.kind) {
                (Packing::Delta, Kind::Text | Kind::Binary) => Encoding::DELTA_LENGTH_BYTE_ARRAY,
                (Packing::Delta, _) => Encoding::DELTA_BINARY_PACKED,
                _ => Encoding::PLAIN,
            };
            properties = properties.set_column_encoding(path, encoding);
        }
        Ok(Self {
            file: SerializedFileWriter::new(
                target,
                schema_of::<T>(),
                Arc::new(properties.build()),
            )?,
            columns: T::COLUMNS.iter().map(Values::new).collect(),
            rows: 0,
            summary: TableSummary::default(),
            table: PhantomData,
        })
    }

    pub fn write(&mut self, row: &T::Row) -> Result<(), ParquetError> {
        let mut columns = RowWriter::new(T::COLUMNS, &mut self.columns);
        T::shred(row, &mut columns);
        assert!(
            columns.are_filled(),
            "a row of {} fills every column",
            T::NAME
        );
        self.summary.count(T::id(row), T::time(row));
        self.rows += 1;
        let bytes: usize = self.columns.iter().map(Values::bytes).sum();
        if self.rows >= GROUP_ROWS_MAX || bytes >= GROUP_BYTES_MAX {
            self.end_group()?;
        }
        Ok(())
    }

    /// Returns where it wrote to, and what; length and checksum are for the caller to fill in.
    pub fn finish(mut self) -> Result<(W, TableSummary), ParquetError> {
        if self.rows > 0 {
            self.end_group()?;
        }
        Ok((self.file.into_inner()?, self.summary))
    }

    fn end_group(&mut self) -> Result<(), ParquetError> {
        self.rows = 0;
        let mut group = self.file.next_row_group()?;
        for values in &mut self.columns {
            let mut writer = group
                .next_column()?
                .expect("the schema has as many leaves as declared columns");
            let levels = Levels {
                definition: &values.definition,
                repetition: &values.repetition,
            };
            match &mut values.data {
                Data::Int32(data) => {
                    levels.write(writer.typed::<Int32Type>(), data.len(), |range| {
                        data[range].to_vec()
                    })?
                }
                Data::Int64(data) => {
                    levels.write(writer.typed::<Int64Type>(), data.len(), |range| {
                        data[range].to_vec()
                    })?
                }
                Data::Bytes { arena, ends } => {
                    let arena = Bytes::from(std::mem::take(arena));
                    let value = |index: usize| {
                        let start = if index == 0 { 0 } else { ends[index - 1] };
                        ByteArray::from(arena.slice(start..ends[index]))
                    };
                    levels.write(writer.typed::<ByteArrayType>(), ends.len(), |range| {
                        range.map(value).collect()
                    })?;
                }
            }
            writer.close()?;
            values.clear();
        }
        group.close()?;
        Ok(())
    }
}

struct Levels<'a> {
    definition: &'a [i16],
    repetition: &'a [i16],
}

impl Levels<'_> {
    /// Writes a column in portions that end between rows.
    fn write<D: DataType>(
        &self,
        writer: &mut ColumnWriterImpl<'_, D>,
        values: usize,
        portion: impl Fn(std::ops::Range<usize>) -> Vec<D::T>,
    ) -> Result<(), ParquetError> {
        let levels = if self.definition.is_empty() {
            values
        } else {
            self.definition.len()
        };
        let (mut level, mut value) = (0, 0);
        while level < levels {
            let mut end = (level + PORTION).min(levels);
            while end < levels && self.repetition.get(end) == Some(&1) {
                end += 1;
            }
            let definition = self.definition.get(level..end);
            let count = definition.map_or(end - level, |levels| {
                levels.iter().filter(|&&level| level == 1).count()
            });
            writer.write_batch(
                &portion(value..value + count),
                definition,
                self.repetition.get(level..end),
            )?;
            (level, value) = (end, value + count);
        }
        Ok(())
    }
}

/// Decides whether a column of four-byte values is smaller with a dictionary, from the values
/// themselves.
#[derive(Default)]
pub(crate) struct DictionaryPays {
    distinct: HashSet<u32>,
    values: u64,
}

impl DictionaryPays {
    /// More distinct values than this make a dictionary that does not pay within a row group.
    const DISTINCT_MAX: usize = 64 << 10;

    pub fn see(&mut self, value: u32) {
        self.values += 1;
        if self.distinct.len() <= Self::DISTINCT_MAX {
            self.distinct.insert(value);
        }
    }

    pub fn pays(&self) -> bool {
        let distinct = self.distinct.len() as u64;
        if self.distinct.len() > Self::DISTINCT_MAX {
            return false;
        }
        let bits = u64::from(distinct.max(2).ilog2() + 1);
        let groups = self.values.div_ceil(GROUP_ROWS_MAX as u64);
        distinct * 4 * groups + self.values * bits / 8 < self.values * 4
    }
}
