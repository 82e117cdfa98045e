//! The values of a row on their way out of decoded columns.

use parquet::basic::Type as PhysicalType;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;

use super::column::{Kind, Malformed};

/// Yields the values of one row, column after column in declared order.
pub(crate) struct RowReader<'a> {
    columns: &'a mut [Option<ColumnCursor>],
    next: usize,
}

impl<'a> RowReader<'a> {
    pub(super) fn new(columns: &'a mut [Option<ColumnCursor>]) -> Self {
        Self { columns, next: 0 }
    }

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
pub(super) struct ColumnCursor {
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
    pub fn new(reader: ColumnReader, kind: Kind) -> Self {
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

    pub fn fill(&mut self, rows: usize) -> Result<(), ParquetError> {
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

    pub fn skip(&mut self, rows: usize) -> Result<(), ParquetError> {
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

    pub fn rewind(&mut self) {
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

    pub fn optional_int(&mut self) -> Option<i64> {
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
