//! What a query returned, in text form.

use std::sync::Arc;

use bytes::Bytes;
use hindcast_wire::message::backend;

use crate::error::Error;
use crate::text::FromText;

/// The rows of one statement.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    pub(crate) columns: Arc<[String]>,
    pub(crate) rows: Vec<Row>,
    pub(crate) affected: u64,
}

impl Rows {
    pub(crate) fn with_columns(body: &[u8]) -> Result<Self, Error> {
        Ok(Self {
            columns: columns(body)?,
            ..Self::default()
        })
    }

    /// Takes the body of a `DataRow`.
    pub(crate) fn push(&mut self, body: Bytes) {
        let columns = Arc::clone(&self.columns);
        self.rows.push(Row { columns, body });
    }

    pub(crate) fn complete(&mut self, body: &[u8]) -> Result<(), Error> {
        self.affected = affected(body)?;
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many rows the statement inserted, updated, deleted, copied or returned.
    pub fn affected(&self) -> u64 {
        self.affected
    }

    /// The columns' names; empty in pipelines, which do not ask for them.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    pub fn get(&self, index: usize) -> Option<&Row> {
        self.rows.get(index)
    }

    pub fn first(&self) -> Option<&Row> {
        self.rows.first()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Row> {
        self.rows.iter()
    }
}

impl IntoIterator for Rows {
    type Item = Row;
    type IntoIter = std::vec::IntoIter<Row>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.into_iter()
    }
}

impl<'a> IntoIterator for &'a Rows {
    type Item = &'a Row;
    type IntoIter = std::slice::Iter<'a, Row>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The names in a `RowDescription`.
pub(crate) fn columns(body: &[u8]) -> Result<Arc<[String]>, Error> {
    backend::parse_row_description(body)
        .map(|column| column.map(|column| String::from_utf8_lossy(column.name).into_owned()))
        .collect::<Result<_, _>>()
        .map_err(|error| Error::Protocol(error.to_string()))
}

/// How many rows a `CommandComplete` speaks of.
pub(crate) fn affected(body: &[u8]) -> Result<u64, Error> {
    let tag = backend::parse_command_complete(body)
        .map_err(|error| Error::Protocol(error.to_string()))?;
    let number = tag.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
    Ok(std::str::from_utf8(number)
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0))
}

/// One row: the bytes as they were read, in which values are found when they are asked for.
#[derive(Clone, Debug)]
pub struct Row {
    pub(crate) columns: Arc<[String]>,
    pub(crate) body: Bytes,
}

/// A column's number from 0, or its name.
pub trait Index {
    fn index(&self, columns: &[String]) -> usize;
}

impl Index for usize {
    fn index(&self, _: &[String]) -> usize {
        *self
    }
}

impl Index for &str {
    fn index(&self, columns: &[String]) -> usize {
        let index = columns.iter().position(|column| column == self);
        index.unwrap_or_else(|| panic!("the query has no column {self}"))
    }
}

impl Row {
    /// The value as `T`. For statements of our own, which say what they return.
    ///
    /// # Panics
    /// If there is no such column, or it holds something else.
    pub fn get<'a, T: FromText<'a>>(&'a self, column: impl Index) -> T {
        let column = column.index(&self.columns);
        let text = self.text(column);
        T::from_text(text).unwrap_or_else(|| panic!("{}", mistake::<T>(column, text)))
    }

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = Option<&[u8]>> {
        backend::parse_data_row(&self.body)
    }

    pub fn bytes(&self, column: usize) -> Option<&[u8]> {
        self.values().nth(column)?
    }

    /// `None` is NULL. The session's encoding is UTF-8, so every value is.
    pub fn text(&self, column: usize) -> Option<&str> {
        self.bytes(column)
            .map(|bytes| std::str::from_utf8(bytes).unwrap_or(""))
    }

    /// NULL as the empty text.
    pub fn string(&self, column: usize) -> String {
        self.text(column).unwrap_or_default().to_owned()
    }

    /// # Errors
    /// If the value is NULL or of another type.
    pub fn parse<T: std::str::FromStr>(&self, column: usize) -> Result<T, Error> {
        let text = self.text(column);
        text.and_then(|text| text.parse().ok())
            .ok_or_else(|| Error::Protocol(mistake::<T>(column, text)))
    }

    /// `t` or `f`; NULL is false.
    pub fn is_true(&self, column: usize) -> bool {
        self.text(column) == Some("t")
    }
}

fn mistake<T>(column: usize, text: Option<&str>) -> String {
    format!(
        "column {} holds {text:?}, which is not a {}",
        column + 1,
        std::any::type_name::<T>()
    )
}
