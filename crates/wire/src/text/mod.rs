//! The text form of rows: what the server would have sent, had all of a row been asked for as text.
//!
//! A driver asks for the same rows as text at one time and in binary at another: pgjdbc does from a
//! statement's fifth execution on in a connection, and a replayed service runs its statements in
//! other connections. So digests are of the text form. Rows that came as text have it already,
//! which costs nothing; binary values of types that drivers ask for in binary are converted.
//!
//! What text a value has depends on settings of the session ([`Settings`]). A value keeps its bytes
//! where its text is not known: its type is another one, or a setting is.

mod numbers;
mod settings;
mod times;
mod values;

pub use settings::Settings;

use crate::limits;
use crate::message::backend;
use crate::message::frontend::Formats;
use values::Type;

/// Turns the rows of one result into their text form.
#[derive(Debug, Default)]
pub struct TextForm {
    /// By column; `None`: its values stay as they are. Empty: all do.
    columns: Vec<Option<Type>>,
    row: Vec<u8>,
}

impl TextForm {
    /// Rows are in their text form from here on.
    pub fn clear(&mut self) {
        self.columns.clear();
    }

    /// What comes are rows of a result that is described so (the body of a `RowDescription`), with
    /// values in these formats.
    pub fn begin(&mut self, description: &[u8], formats: &Formats) {
        self.columns.clear();
        if !formats.has_binary() {
            return;
        }
        let columns = backend::parse_row_description(description).enumerate();
        self.columns
            .extend(columns.map(|(at, column)| match column {
                Ok(column) if formats.of(at) == 1 => Type::of(column.type_oid),
                _ => None,
            }));
        if self.columns.iter().all(Option::is_none) {
            self.columns.clear();
        }
    }

    /// Whether rows may have another form than they come in.
    pub fn converts(&self) -> bool {
        !self.columns.is_empty()
    }

    /// The text form of a row: of the body of a `DataRow`.
    pub fn row<'a>(&'a mut self, body: &'a [u8], settings: &Settings) -> &'a [u8] {
        if self.columns.is_empty() || body.len() > limits::CONVERTED_ROW_BYTES_MAX {
            return body;
        }
        let Some((count, _)) = body.split_first_chunk::<2>() else {
            return body;
        };
        self.row.clear();
        self.row.extend_from_slice(count);
        let mut columns = self.columns.iter();
        for value in backend::parse_data_row(body) {
            let column = columns.next().copied().flatten();
            let Some(value) = value else {
                self.row.extend_from_slice(&u32::MAX.to_be_bytes());
                continue;
            };
            let start = self.row.len();
            self.row.extend_from_slice(&[0; 4]);
            let is_text = column.is_some_and(|of| of.write(value, settings, &mut self.row));
            if !is_text {
                self.row.truncate(start + 4);
                self.row.extend_from_slice(value);
            }
            let length = (self.row.len() - start - 4) as u32;
            self.row[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
        &self.row
    }
}

#[cfg(test)]
mod tests;
