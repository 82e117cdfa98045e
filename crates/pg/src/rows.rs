//! What a query returned, in text form.

use hindcast_wire::message::backend;

use crate::error::Error;

/// The rows of one statement; all values in one buffer.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    columns: Vec<String>,
    width: usize,
    bytes: Vec<u8>,
    /// Where each value is; `None` is NULL.
    values: Vec<Option<(u32, u32)>>,
    count: usize,
    affected: u64,
}

impl Rows {
    pub(crate) fn with_columns(body: &[u8]) -> Result<Self, Error> {
        let columns: Vec<String> = backend::parse_row_description(body)
            .map(|column| column.map(|column| String::from_utf8_lossy(column.name).into_owned()))
            .collect::<Result<_, _>>()
            .map_err(|error| Error::Protocol(error.to_string()))?;
        Ok(Self {
            width: columns.len(),
            columns,
            ..Self::default()
        })
    }

    pub(crate) fn push(&mut self, body: &[u8]) -> Result<(), Error> {
        let before = self.values.len();
        for value in backend::parse_data_row(body) {
            self.values.push(match value {
                None => None,
                Some(value) => {
                    let start = self.bytes.len();
                    self.bytes.extend_from_slice(value);
                    let too_large = || Error::Protocol("a result of more than 4 GiB".to_owned());
                    let place = |at: usize| u32::try_from(at).map_err(|_| too_large());
                    Some((place(start)?, place(self.bytes.len())?))
                }
            });
        }
        self.width = self.values.len() - before;
        self.count += 1;
        Ok(())
    }

    pub(crate) fn complete(&mut self, body: &[u8]) -> Result<(), Error> {
        self.affected = affected(body)?;
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many rows the statement inserted, updated, deleted, copied or returned.
    pub fn affected(&self) -> u64 {
        self.affected
    }

    /// The columns' names; empty in pipelines, which do not ask for them.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    pub fn get(&self, index: usize) -> Option<Row<'_>> {
        (index < self.count).then_some(Row { rows: self, index })
    }

    pub fn first(&self) -> Option<Row<'_>> {
        self.get(0)
    }

    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.count).map(|index| Row { rows: self, index })
    }
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

#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    rows: &'a Rows,
    index: usize,
}

impl<'a> Row<'a> {
    pub fn bytes(&self, column: usize) -> Option<&'a [u8]> {
        if column >= self.rows.width {
            return None;
        }
        let (start, end) = self.rows.values[self.index * self.rows.width + column]?;
        Some(&self.rows.bytes[start as usize..end as usize])
    }

    /// `None` is NULL. The session's encoding is UTF-8, so every value is.
    pub fn text(&self, column: usize) -> Option<&'a str> {
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
        text.and_then(|text| text.parse().ok()).ok_or_else(|| {
            Error::Protocol(format!(
                "column {} holds {text:?}, which is not a {}",
                column + 1,
                std::any::type_name::<T>()
            ))
        })
    }

    /// `t` or `f`; NULL is false.
    pub fn is_true(&self, column: usize) -> bool {
        self.text(column) == Some("t")
    }
}
