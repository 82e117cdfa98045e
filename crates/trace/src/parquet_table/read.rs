//! Reading a table: row groups out of range are left out, then batches, then single columns.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::{Range, RangeInclusive};

use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;

use super::column::Malformed;
use super::row_reader::{ColumnCursor, RowReader};
use super::table::{FORMAT_VERSION, Table, VERSION_KEY, schema_of};
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
    /// Whether each row of the decoded batch is wanted, and how many of them were handed out or
    /// passed over.
    wanted: Vec<bool>,
    next: usize,
}

/// Whether a file has the columns of a table, but for some at the end, which came to the format
/// later: they read as empty.
fn begins_like<T: Table>(schema: &parquet::schema::types::Type) -> bool {
    let table = schema_of::<T>();
    let (there, known) = (schema.get_fields(), table.get_fields());
    there.len() <= known.len() && there.iter().zip(known).all(|(a, b)| a == b)
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
            Some(_) if !begins_like::<T>(metadata.schema()) => Some(format!(
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
            let row = T::assemble(&mut RowReader::new(&mut group.columns));
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
        let there = self
            .file
            .metadata()
            .file_metadata()
            .schema_descr()
            .num_columns();
        for (index, column) in T::COLUMNS.iter().enumerate() {
            let left_out = (self.selection.lean && column.bulky) || index >= there;
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

#[cfg(test)]
mod tests {
    use parquet::schema::types::Type;

    use super::*;
    use crate::tables::Recorders;

    #[test]
    fn a_file_from_before_a_column_was_added_has_the_table() {
        let now = schema_of::<Recorders>();
        let of = |fields: &[parquet::schema::types::TypePtr]| {
            let root = Type::group_type_builder(Recorders::NAME);
            root.with_fields(fields.to_vec()).build().unwrap()
        };
        let fields = now.get_fields();
        assert!(begins_like::<Recorders>(&now));
        assert!(begins_like::<Recorders>(&of(&fields[..fields.len() - 1])));
        assert!(!begins_like::<Recorders>(&of(&fields[1..])));
        let later = [fields, &fields[..1]].concat();
        assert!(!begins_like::<Recorders>(&of(&later)));
    }
}
