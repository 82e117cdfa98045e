//! What statements were answered, for people to read: the rows, and how each statement ended.

use bytes::BytesMut;
use serde::Serialize;

use crate::frame::{self, Direction};
use crate::message::backend::{self as server, Fields};
use crate::message::frontend::Formats;
use crate::sent;
use crate::text::{Settings, TextForm};

/// What one statement was answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Names of what is in the rows; empty where that is not known.
    pub columns: Vec<String>,
    /// The first rows, as text. `None` is NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// Rows that are not in `rows`.
    pub more: u64,
    /// `SELECT 2`, or the error.
    pub end: String,
    pub failed: bool,
}

/// How rows are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowForm<'a> {
    /// As the client asked for them, by statement; where that says nothing, as their description
    /// says.
    Asked(&'a [Formats]),
    /// In their text form, whatever their description says.
    Text,
}

/// One for each statement that was answered in full, in their order, each with so many rows at
/// most. Rows that were not described within these bytes are only counted: it is not known what is
/// in them.
pub fn answers(bytes: &[u8], form: RowForm<'_>, rows_max: usize) -> Vec<Answer> {
    let mut bytes = BytesMut::from(bytes);
    let mut reader = Reader::new(form, rows_max);
    while let Ok(Some(frame)) = frame::split(Direction::FromServer, &mut bytes) {
        reader.message(frame.tag(), frame.body());
    }
    reader.found
}

/// What the statements of a transaction were answered, by what its client sent, if that was kept.
pub fn of_transaction(sent: Option<&[u8]>, answered: &[u8], rows_max: usize) -> Vec<Answer> {
    let sent = sent.map(sent::statements).unwrap_or_default();
    let formats: Vec<Formats> = sent.into_iter().map(|one| one.formats).collect();
    answers(answered, RowForm::Asked(&formats), rows_max)
}

/// Whether each row in these bytes was described before it.
pub fn describes_rows(bytes: &[u8]) -> bool {
    let mut bytes = BytesMut::from(bytes);
    let mut described = false;
    while let Ok(Some(frame)) = frame::split(Direction::FromServer, &mut bytes) {
        match frame.tag() {
            server::ROW_DESCRIPTION => described = true,
            server::NO_DATA | server::COMMAND_COMPLETE => described = false,
            server::DATA_ROW | server::COPY_DATA if !described => return false,
            _ => {}
        }
    }
    true
}

struct Reader<'a> {
    form: RowForm<'a>,
    rows_max: usize,
    settings: Settings,
    text_form: TextForm,
    /// `None`: what comes was not described.
    columns: Option<Vec<String>>,
    answer: Answer,
    found: Vec<Answer>,
}

impl<'a> Reader<'a> {
    fn new(form: RowForm<'a>, rows_max: usize) -> Self {
        let mut settings = Settings::default();
        let known: [(&[u8], &[u8]); 3] = [
            (b"DateStyle", b"ISO"),
            (b"IntervalStyle", b"postgres"),
            (b"TimeZone", b"UTC"),
        ];
        known
            .iter()
            .for_each(|(name, value)| settings.note(name, value));
        Self {
            form,
            rows_max,
            settings,
            text_form: TextForm::default(),
            columns: None,
            answer: Answer::default(),
            found: Vec::new(),
        }
    }

    fn message(&mut self, tag: u8, body: &[u8]) {
        match tag {
            server::ROW_DESCRIPTION => self.described(body),
            server::NO_DATA => self.columns = None,
            server::DATA_ROW => self.row(body),
            server::COPY_DATA => self.answer.more += 1,
            server::COMMAND_COMPLETE => {
                let tag = server::parse_command_complete(body).unwrap_or_default();
                self.end(String::from_utf8_lossy(tag).into_owned(), false);
            }
            server::EMPTY_QUERY_RESPONSE => self.end("an empty query".to_owned(), false),
            server::PORTAL_SUSPENDED => {
                self.end("as many rows as were asked for".to_owned(), false)
            }
            server::ERROR_RESPONSE => self.end(error_text(body), true),
            _ => {}
        }
    }

    fn described(&mut self, body: &[u8]) {
        let columns = server::parse_row_description(body).flatten();
        let formats: Vec<u16> = columns.map(|column| column.format).collect();
        let described = Formats::Each(formats.into());
        match self.form {
            RowForm::Asked(asked) => {
                let asked = asked.get(self.found.len());
                let asked = asked.filter(|formats| formats.has_binary());
                self.text_form.begin(body, asked.unwrap_or(&described));
            }
            RowForm::Text => self.text_form.clear(),
        }
        let columns = server::parse_row_description(body).flatten();
        let name = |column: server::Column<'_>| String::from_utf8_lossy(column.name).into_owned();
        self.columns = Some(columns.map(name).collect());
    }

    fn row(&mut self, body: &[u8]) {
        let Some(columns) = &self.columns else {
            self.answer.more += 1;
            return;
        };
        if self.answer.rows.len() >= self.rows_max {
            self.answer.more += 1;
            return;
        }
        let row = self.text_form.row(body, &self.settings);
        let values = server::parse_data_row(row).map(|value| value.map(value_text));
        let values: Vec<_> = values.collect();
        if values.len() != columns.len() {
            self.answer.more += 1;
            return;
        }
        self.answer.columns.clone_from(columns);
        self.answer.rows.push(values);
    }

    fn end(&mut self, end: String, failed: bool) {
        // A description is of one statement.
        self.columns = None;
        let mut answer = std::mem::take(&mut self.answer);
        // What was kept may be fewer rows than came.
        if let Some(count) = row_count(&end).filter(|_| !answer.rows.is_empty()) {
            answer.more = count.saturating_sub(answer.rows.len() as u64);
        }
        self.found.push(Answer {
            end,
            failed,
            ..answer
        });
    }
}

/// `SELECT 2`, `INSERT 0 2`: the last word.
fn row_count(tag: &str) -> Option<u64> {
    tag.rsplit(' ').next()?.parse().ok()
}

fn value_text(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) => text.to_owned(),
        Err(_) => value
            .iter()
            .fold("\\x".to_owned(), |text, byte| format!("{text}{byte:02x}")),
    }
}

/// `duplicate key value … (23505)`, from the body of an `ErrorResponse`.
pub fn error_text(body: &[u8]) -> String {
    match Fields::parse(body) {
        Ok(fields) => {
            let text = |field| {
                fields
                    .get(field)
                    .map(String::from_utf8_lossy)
                    .unwrap_or_default()
            };
            format!("{} ({})", text(b'M'), text(b'C'))
        }
        Err(_) => "an error that cannot be read".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(out: &mut BytesMut, names: &[&str], type_oid: u32, format: u16) {
        let column = |name: &&'static str| server::Column {
            name: name.as_bytes(),
            table: 0,
            attribute: 0,
            type_oid,
            format,
        };
        let names: Vec<&'static str> = names.iter().map(|it| &*it.to_string().leak()).collect();
        let columns: Vec<_> = names.iter().map(column).collect();
        server::row_description(out, &columns);
    }

    #[test]
    fn rows_are_told_by_statement() {
        let mut bytes = BytesMut::new();
        server::command_complete(&mut bytes, b"BEGIN");
        description(&mut bytes, &["id", "name"], 25, 0);
        server::data_row(&mut bytes, &[Some(b"1"), None]);
        server::data_row(&mut bytes, &[Some(b"2"), Some(b"bob")]);
        server::command_complete(&mut bytes, b"SELECT 2");
        server::error_response(&mut bytes, b"ERROR", b"23505", b"it is there");
        let told = answers(&bytes, RowForm::Asked(&[]), 1);
        let [begin, select, failed] = &told[..] else {
            panic!("three statements: {told:?}");
        };
        assert_eq!((begin.end.as_str(), begin.rows.len()), ("BEGIN", 0));
        assert_eq!(select.columns, ["id", "name"]);
        assert_eq!(select.rows, [[Some("1".to_owned()), None]]);
        assert_eq!((select.more, select.end.as_str()), (1, "SELECT 2"));
        assert_eq!(
            (failed.end.as_str(), failed.failed),
            ("it is there (23505)", true)
        );
    }

    #[test]
    fn binary_rows_are_told_as_text() {
        let mut bytes = BytesMut::new();
        description(&mut bytes, &["n"], 23, 1);
        server::data_row(&mut bytes, &[Some(&[0, 0, 0, 7])]);
        server::command_complete(&mut bytes, b"SELECT 1");
        let told = answers(&bytes, RowForm::Asked(&[]), 5);
        assert_eq!(told[0].rows, [[Some("7".to_owned())]]);
    }

    #[test]
    fn rows_that_were_not_described_are_counted() {
        let mut bytes = BytesMut::new();
        server::data_row(&mut bytes, &[Some(b"secret")]);
        server::command_complete(&mut bytes, b"SELECT 1");
        let told = answers(&bytes, RowForm::Asked(&[]), 5);
        assert_eq!((told[0].rows.len(), told[0].more), (0, 1));
        assert!(!describes_rows(&bytes));
        let mut described = BytesMut::new();
        description(&mut described, &["n"], 25, 0);
        described.extend_from_slice(&bytes);
        assert!(describes_rows(&described));
        described.extend_from_slice(&bytes);
        assert!(
            !describes_rows(&described),
            "a description is for one statement"
        );
    }
}
