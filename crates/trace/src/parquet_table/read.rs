//! Reading a table: row groups out of range are left out, then batches, then single columns.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::{Range, RangeInclusive};

use parquet::basic::Type as PhysicalType;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;

use super::{FORMAT_VERSION, Kind, Malformed, Table, VERSION_KEY, schema_of};
use crate::ReadError;
use crate::store::Chunks;

/// Rows decoded at a time.
const BATCH: usize = 1024;

/// Which rows are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    pub ids: Option<RangeInclusive<u64>>,
    pub times: Option<Range<i64>>,
    pub requests: Option<RangeInclusive<u64>>,
    /// Leave bulky columns unread.
    pub lean: bool,
}

impl Selection {
    pub fn takes(&self, id: u64, time: i64, request: Option<u64>) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.contains(&id))
            && self
                .times
                .as_ref()
                .is_none_or(|times| times.contains(&time))
            && self
                .requests
                .as_ref()
                .is_none_or(|requests| request.is_some_and(|request| requests.contains(&request)))
    }

    /// Whether anything between these bounds, ends included, can be wanted.
    pub fn may_take(&self, ids: RangeInclusive<u64>, times: RangeInclusive<i64>) -> bool {
        self.ids.as_ref().is_none_or(|wanted| overlap(wanted, &ids))
            && self
                .times
                .as_ref()
                .is_none_or(|wanted| *times.start() < wanted.end && wanted.start <= *times.end())
    }
}

fn overlap(a: &RangeInclusive<u64>, b: &RangeInclusive<u64>) -> bool {
    a.start() <= b.end() && b.start() <= a.end()
}

/// Streams the wanted rows of one file in the order in which they are stored.
pub(crate) struct TableReader<T: Table> {
    what: String,
    file: SerializedFileReader<Chunks>,
    groups: VecDeque<usize>,
    selection: Selection,
    group: Option<Group>,
    table: PhantomData<T>,
}

/// The row group being read.
struct Group {
    columns: Vec<Option<ColumnCursor>>,
    rows_left: usize,
    /// Rows passed over that the columns which did not decide about them have not skipped yet.
    unskipped: usize,
    /// Whether each row of the decoded batch is wanted, and how many of them were handed out or passed over.
    wanted: Vec<bool>,
    next: usize,
}

impl<T: Table> TableReader<T> {
    pub fn open(chunks: Chunks, selection: Selection) -> Result<Self, ReadError> {
        let what = chunks.shown().to_owned();
        let failed = |source| unreadable(&what, source);
        let file = SerializedFileReader::new(chunks).map_err(failed)?;
        let metadata = file.metadata().file_metadata();
        let version = metadata
            .key_value_metadata()
            .and_then(|pairs| pairs.iter().find(|pair| pair.key == VERSION_KEY))
            .and_then(|pair| pair.value.as_deref()?.parse::<u32>().ok());
        let problem = match version {
            None => Some("it is not part of a trace".to_owned()),
            Some(found) if found > FORMAT_VERSION => Some(format!(
                "it has format version {found}, this version of hindcast reads up to {FORMAT_VERSION}"
            )),
            Some(_) if metadata.schema() != schema_of::<T>().as_ref() => Some(format!(
                "its columns are not those of a table of {}",
                T::NAME
            )),
            Some(_) => None,
        };
        if let Some(reason) = problem {
            return Err(ReadError::Damaged { what, reason });
        }
        let groups = (0..file.num_row_groups())
            .filter(|&group| may_hold::<T>(file.metadata().row_group(group), &selection))
            .collect();
        Ok(Self {
            what,
            file,
            groups,
            selection,
            group: None,
            table: PhantomData,
        })
    }

    pub fn next_row(&mut self) -> Result<Option<T::Row>, ReadError> {
        loop {
            let Some(group) = &mut self.group else {
                let Some(group) = self.groups.pop_front() else {
                    return Ok(None);
                };
                self.group = Some(
                    self.start_group(group)
                        .map_err(|source| unreadable(&self.what, source))?,
                );
                continue;
            };
            if group.next == group.wanted.len() {
                if group.rows_left == 0 {
                    self.group = None;
                    continue;
                }
                group
                    .start_batch::<T>(&self.selection)
                    .map_err(|source| unreadable(&self.what, source))?;
                continue;
            }
            let wanted = group.wanted[group.next];
            group.next += 1;
            let row = T::assemble(&mut RowReader {
                columns: &mut group.columns,
                next: 0,
            });
            let row = row.map_err(|Malformed(reason)| ReadError::Damaged {
                what: self.what.clone(),
                reason,
            })?;
            if wanted {
                return Ok(Some(row));
            }
        }
    }

    fn start_group(&self, group: usize) -> Result<Group, ParquetError> {
        let rows_left = self.file.metadata().row_group(group).num_rows() as usize;
        let reader = self.file.get_row_group(group)?;
        let mut columns = Vec::with_capacity(T::COLUMNS.len());
        for (index, column) in T::COLUMNS.iter().enumerate() {
            let left_out = self.selection.lean && column.bulky;
            columns.push(match left_out {
                true => None,
                false => Some(ColumnCursor::new(
                    reader.get_column_reader(index)?,
                    column.kind,
                )),
            });
        }
        Ok(Group {
            columns,
            rows_left,
            unskipped: 0,
            wanted: Vec::new(),
            next: 0,
        })
    }
}

impl Group {
    /// Decodes the columns that decide, and the others only if any row of the batch is wanted.
    fn start_batch<T: Table>(&mut self, selection: &Selection) -> Result<(), ParquetError> {
        let rows = self.rows_left.min(BATCH);
        self.rows_left -= rows;
        self.next = 0;
        self.wanted.clear();
        self.wanted.resize(rows, true);

        let id = T::ID.filter(|_| selection.ids.is_some());
        let time = T::TIME.filter(|_| selection.times.is_some());
        let request = T::REQUEST.filter(|_| selection.requests.is_some());
        let deciding = [id, time, request];
        for index in deciding.into_iter().flatten() {
            let column = self.columns[index]
                .as_mut()
                .expect("columns that decide are always read");
            column.fill(rows)?;
            for row in 0..rows {
                let value = column.optional_int();
                let takes = match value {
                    Some(value) if Some(index) == id => selection.takes_id(value as u64),
                    Some(value) if Some(index) == time => selection.takes_time(value),
                    Some(value) => selection.takes_request(value as u64),
                    None => false,
                };
                self.wanted[row] &= takes;
            }
            column.rewind();
        }
        if !self.wanted.contains(&true) {
            self.wanted.clear();
            self.unskipped += rows;
            return Ok(());
        }
        let unskipped = std::mem::take(&mut self.unskipped);
        for (index, column) in self.columns.iter_mut().enumerate() {
            if let Some(column) = column
                && !deciding.contains(&Some(index))
            {
                column.skip(unskipped)?;
                column.fill(rows)?;
            }
        }
        Ok(())
    }
}

impl Selection {
    fn takes_id(&self, id: u64) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.contains(&id))
    }
    fn takes_time(&self, time: i64) -> bool {
        self.times
            .as_ref()
            .is_none_or(|times| times.contains(&time))
    }
    fn takes_request(&self, request: u64) -> bool {
        self.requests
            .as_ref()
            .is_none_or(|requests| requests.contains(&request))
    }
}

/// Whether the statistics of a row group leave room for wanted rows.
fn may_hold<T: Table>(group: &RowGroupMetaData, selection: &Selection) -> bool {
    let bounds = |column: Option<usize>| match group.column(column?).statistics()? {
        Statistics::Int64(values) => Some((*values.min_opt()?, *values.max_opt()?)),
        _ => None,
    };
    let ids = bounds(T::ID).map_or(0..=u64::MAX, |(min, max)| min as u64..=max as u64);
    let times = bounds(T::TIME).map_or(i64::MIN..=i64::MAX, |(min, max)| min..=max);
    let requests = bounds(T::REQUEST).map_or(0..=u64::MAX, |(min, max)| min as u64..=max as u64);
    selection.may_take(ids, times)
        && selection
            .requests
            .as_ref()
            .is_none_or(|wanted| overlap(wanted, &requests))
}

fn unreadable(what: &str, source: ParquetError) -> ReadError {
    ReadError::Parquet {
        what: what.to_owned(),
        source,
    }
}

/// Yields the values of one row, column after column in declared order.
pub(crate) struct RowReader<'a> {
    columns: &'a mut [Option<ColumnCursor>],
    next: usize,
}

impl RowReader<'_> {
    fn column(&mut self) -> Option<&mut ColumnCursor> {
        self.next += 1;
        self.columns[self.next - 1].as_mut()
    }

    pub fn int(&mut self) -> i64 {
        self.column()
            .and_then(ColumnCursor::optional_int)
            .unwrap_or(0)
    }

    pub fn optional_int(&mut self) -> Option<i64> {
        self.column()?.optional_int()
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        self.optional_bytes().unwrap_or_default()
    }

    pub fn optional_bytes(&mut self) -> Option<Vec<u8>> {
        Some(self.column()?.optional_bytes()?.data().to_vec())
    }

    pub fn text(&mut self) -> Result<String, Malformed> {
        Ok(self.optional_text()?.unwrap_or_default())
    }

    pub fn optional_text(&mut self) -> Result<Option<String>, Malformed> {
        self.optional_bytes().map(text).transpose()
    }

    /// The value of a column with few distinct values, without allocating one string per row.
    pub fn word<V>(&mut self, known: impl Fn(&str) -> Option<V>) -> Result<Option<V>, Malformed> {
        let Some(value) = self.column().and_then(ColumnCursor::optional_bytes) else {
            return Ok(None);
        };
        let word = str::from_utf8(value.data()).ok().and_then(known);
        word.map(Some).ok_or_else(|| {
            Malformed(format!(
                "{:?} is not a known word",
                String::from_utf8_lossy(value.data())
            ))
        })
    }

    pub fn ints(&mut self) -> Vec<i64> {
        let mut values = Vec::new();
        if let Some(column) = self.column() {
            for _ in 0..column.list_length() {
                values.push(column.next_int());
            }
        }
        values
    }

    pub fn byte_strings(&mut self) -> Vec<Vec<u8>> {
        let mut values = Vec::new();
        if let Some(column) = self.column() {
            for _ in 0..column.list_length() {
                values.push(column.next_bytes().data().to_vec());
            }
        }
        values
    }
}

pub(crate) fn text(bytes: Vec<u8>) -> Result<String, Malformed> {
    String::from_utf8(bytes).map_err(|_| Malformed("text that is not UTF-8".to_owned()))
}

/// A decoded batch of one column and the position in it.
struct ColumnCursor {
    values: Values,
    definition: Vec<i16>,
    repetition: Vec<i16>,
    nullable: bool,
    unsigned_32: bool,
    next_value: usize,
    next_level: usize,
}

enum Values {
    Int32(ColumnReaderImpl<Int32Type>, Vec<i32>),
    Int64(ColumnReaderImpl<Int64Type>, Vec<i64>),
    Bytes(ColumnReaderImpl<ByteArrayType>, Vec<ByteArray>),
}

impl ColumnCursor {
    fn new(reader: ColumnReader, kind: Kind) -> Self {
        let values = match kind {
            Kind::UInt32 | Kind::UInt16 => Values::Int32(typed(reader), Vec::new()),
            Kind::Int64 | Kind::UInt64 | Kind::Timestamp => {
                Values::Int64(typed(reader), Vec::new())
            }
            Kind::Text | Kind::Binary => Values::Bytes(typed(reader), Vec::new()),
        };
        Self {
            values,
            definition: Vec::new(),
            repetition: Vec::new(),
            nullable: false,
            unsigned_32: matches!(kind, Kind::UInt32 | Kind::UInt16),
            next_value: 0,
            next_level: 0,
        }
    }

    fn fill(&mut self, rows: usize) -> Result<(), ParquetError> {
        self.rewind();
        self.definition.clear();
        self.repetition.clear();
        let (definition, repetition) = (&mut self.definition, &mut self.repetition);
        let read = match &mut self.values {
            Values::Int32(reader, values) => fill(reader, values, rows, definition, repetition)?,
            Values::Int64(reader, values) => fill(reader, values, rows, definition, repetition)?,
            Values::Bytes(reader, values) => fill(reader, values, rows, definition, repetition)?,
        };
        self.nullable = !self.definition.is_empty();
        if read != rows {
            return Err(ParquetError::EOF(format!(
                "{rows} rows expected, {read} found"
            )));
        }
        Ok(())
    }

    fn skip(&mut self, rows: usize) -> Result<(), ParquetError> {
        let skipped = match &mut self.values {
            _ if rows == 0 => 0,
            Values::Int32(reader, _) => reader.skip_records(rows)?,
            Values::Int64(reader, _) => reader.skip_records(rows)?,
            Values::Bytes(reader, _) => reader.skip_records(rows)?,
        };
        if skipped != rows {
            return Err(ParquetError::EOF(format!(
                "{rows} rows to skip, {skipped} found"
            )));
        }
        Ok(())
    }

    fn rewind(&mut self) {
        self.next_value = 0;
        self.next_level = 0;
    }

    fn is_null(&mut self) -> bool {
        if !self.nullable {
            return false;
        }
        self.next_level += 1;
        self.definition[self.next_level - 1] == 0
    }

    fn optional_int(&mut self) -> Option<i64> {
        (!self.is_null()).then(|| self.next_int())
    }

    fn optional_bytes(&mut self) -> Option<&ByteArray> {
        match self.is_null() {
            true => None,
            false => Some(self.next_bytes()),
        }
    }

    fn list_length(&mut self) -> usize {
        let start = self.next_level;
        self.next_level += 1;
        while self.repetition.get(self.next_level) == Some(&1) {
            self.next_level += 1;
        }
        match self.definition[start] {
            0 => 0,
            _ => self.next_level - start,
        }
    }

    fn next_int(&mut self) -> i64 {
        self.next_value += 1;
        match &self.values {
            Values::Int64(_, values) => values[self.next_value - 1],
            Values::Int32(_, values) if self.unsigned_32 => {
                i64::from(values[self.next_value - 1] as u32)
            }
            Values::Int32(_, values) => i64::from(values[self.next_value - 1]),
            Values::Bytes(..) => unreachable!("an integer from a column of bytes"),
        }
    }

    fn next_bytes(&mut self) -> &ByteArray {
        let Values::Bytes(_, values) = &self.values else {
            unreachable!("bytes from a column of integers")
        };
        self.next_value += 1;
        &values[self.next_value - 1]
    }
}

fn typed<D: DataType>(reader: ColumnReader) -> ColumnReaderImpl<D> {
    debug_assert!(matches!(
        D::get_physical_type(),
        PhysicalType::INT32 | PhysicalType::INT64 | PhysicalType::BYTE_ARRAY
    ));
    get_typed_column_reader(reader)
}

fn fill<D: DataType>(
    reader: &mut ColumnReaderImpl<D>,
    values: &mut Vec<D::T>,
    rows: usize,
    definition: &mut Vec<i16>,
    repetition: &mut Vec<i16>,
) -> Result<usize, ParquetError> {
    values.clear();
    let (records, _, _) = reader.read_records(rows, Some(definition), Some(repetition), values)?;
    Ok(records)
}
