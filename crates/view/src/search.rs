//! Looks for text and for rows through all that was recorded.
//!
//! A trace has no rows of the database in it. What touched a row is told in two ways: by a
//! statement that names the table and was sent with the value, which is certain as far as it goes;
//! or, where statements were recorded without their values, by a request that has the value in its
//! target or a body and a statement that names the table.

use std::sync::atomic::{AtomicBool, Ordering};

use hindcast_trace::{
    ReadError, Request, RequestFilter, Response, Trace, Transaction, TransactionFilter,
};
use hindcast_wire::spoken::spoken;
use serde::Serialize;

use crate::bits::Bits;
use crate::index::Index;
use crate::load::Progress;

/// What is looked for. Both: requests must have both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// In targets, bodies and statements, in any case. Empty: not asked for.
    pub text: String,
    pub row: Option<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    pub table: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WantedError {
    #[error("{0:?} is no row: give a table and a value, as in `orders 4711`")]
    Row(String),
    #[error("no recorded statement names the table {0:?}")]
    NoSuchTable(String),
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub requests: Bits,
    pub how: How,
}

/// By what requests were found to have touched a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct How {
    /// A value of a statement.
    pub by_value: u64,
    /// A value in the request or its response.
    pub by_request: u64,
    /// Touched the table with values that were not recorded, and have not the value themselves.
    pub unknown: u64,
}

impl Wanted {
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.row.is_none()
    }

    /// `orders 4711`, `orders.id = 4711`, `public.orders 'a b'`.
    pub fn parse_row(text: &str) -> Result<Row, WantedError> {
        let wrong = || WantedError::Row(text.to_owned());
        let (table, value) = match text.split_once('=') {
            // A column says nothing that a recorded statement could be asked for.
            Some((column, value)) => {
                let column = column.trim();
                (
                    column.rsplit_once('.').map_or(column, |(table, _)| table),
                    value,
                )
            }
            None => text
                .trim()
                .split_once(char::is_whitespace)
                .ok_or_else(wrong)?,
        };
        let (table, value) = (table.trim(), value.trim().trim_matches('\''));
        if table.is_empty() || value.is_empty() || table.contains(char::is_whitespace) {
            return Err(wrong());
        }
        Ok(Row {
            table: table.to_owned(),
            value: value.to_owned(),
        })
    }

    /// Refuses what no request can match, which a typing error would be.
    pub fn check(&self, index: &Index) -> Result<(), WantedError> {
        match &self.row {
            Some(row) if !index.shapes.iter().any(|shape| shape.touches(&row.table)) => {
                Err(WantedError::NoSuchTable(row.table.clone()))
            }
            _ => Ok(()),
        }
    }
}

/// Reads the trace until it has been read, or `cancelled`. Blocks.
pub fn search(
    trace: &Trace,
    index: &Index,
    wanted: &Wanted,
    progress: &Progress,
    cancelled: &AtomicBool,
) -> Result<Found, ReadError> {
    let total = trace.request_count() + trace.transaction_count();
    progress.total.store(total, Ordering::Relaxed);
    let mut looking = Looking::new(index, wanted);
    for transaction in trace.transactions(TransactionFilter::default()) {
        looking.transaction(&transaction?);
        progress.add(1);
        if cancelled.load(Ordering::Relaxed) {
            return Ok(Found::default());
        }
    }
    for request in trace.requests(RequestFilter::default()) {
        looking.request(&request?);
        progress.add(1);
        if cancelled.load(Ordering::Relaxed) {
            return Ok(Found::default());
        }
    }
    Ok(looking.found)
}

struct Looking<'a> {
    index: &'a Index,
    wanted: &'a Wanted,
    /// In small letters.
    text: String,
    /// By shape: has the text, touches the table.
    shapes: Vec<(bool, bool)>,
    places: std::collections::HashMap<u32, usize>,
    /// Requests with the text in a statement.
    texts: Bits,
    /// Requests with the value in a statement that touches the table.
    valued: Bits,
    /// Requests that touched the table with values that are not known.
    maybe: Bits,
    found: Found,
}

impl<'a> Looking<'a> {
    fn new(index: &'a Index, wanted: &'a Wanted) -> Self {
        let text = wanted.text.to_lowercase();
        let shapes = index.shapes.iter().map(|shape| {
            let mut statements = shape.statements.iter();
            let has = !text.is_empty() && statements.any(|it| it.to_lowercase().contains(&text));
            let touches = wanted
                .row
                .as_ref()
                .is_some_and(|row| shape.touches(&row.table));
            (has, touches)
        });
        let bits = || Bits::new(index.requests());
        Self {
            index,
            wanted,
            shapes: shapes.collect(),
            places: index.shapes.iter().map(|it| it.id).zip(0..).collect(),
            text,
            texts: bits(),
            valued: bits(),
            maybe: bits(),
            found: Found {
                requests: bits(),
                how: How::default(),
            },
        }
    }

    fn transaction(&mut self, own: &Transaction) {
        let Some(at) = own.request.and_then(|(id, _)| self.index.find(id)) else {
            return;
        };
        let Some(shape) = self.places.get(&own.shape.0).copied() else {
            return;
        };
        let (mut has_text, touches) = self.shapes[shape];
        let statements = &self.index.shapes[shape].statements;
        if let Some(sent) = own.client_bytes.as_deref() {
            let said = || spoken(Some(sent), statements);
            if !self.text.is_empty() && !has_text {
                has_text = said().iter().any(|it| {
                    it.text.to_lowercase().contains(&self.text)
                        || it
                            .values
                            .iter()
                            .any(|it| it.to_lowercase().contains(&self.text))
                });
            }
            if let Some(row) = self.wanted.row.as_ref().filter(|_| touches) {
                let is_it = |value: &String| value.trim_matches('\'') == row.value;
                let mut said = said().into_iter();
                if said.any(|it| it.values.iter().any(is_it) || has_word(&it.text, &row.value)) {
                    self.valued.set(at);
                }
            }
        } else if touches {
            self.maybe.set(at);
        }
        if has_text {
            self.texts.set(at);
        }
    }

    fn request(&mut self, request: &Request) {
        let Some(at) = self.index.find(request.id) else {
            return;
        };
        if !self.text.is_empty() && !self.texts.has(at) && !self.has_text(request) {
            return;
        }
        if let Some(row) = &self.wanted.row {
            let how = &mut self.found.how;
            match (self.valued.has(at), self.maybe.has(at)) {
                (true, _) => how.by_value += 1,
                (false, true) if has_value(request, &row.value) => how.by_request += 1,
                (false, maybe) => {
                    how.unknown += u64::from(maybe);
                    return;
                }
            }
        }
        self.found.requests.set(at);
    }

    fn has_text(&self, request: &Request) -> bool {
        let has = |text: &str| text.to_lowercase().contains(&self.text);
        let line = format!("{} {}", request.method, request.target);
        has(&line) || bodies(request).any(|body| has(&String::from_utf8_lossy(body)))
    }
}

fn bodies(request: &Request) -> impl Iterator<Item = &[u8]> {
    let response = match &request.response {
        Response::Answered { body, .. } => body.as_deref(),
        Response::Broken { .. } | Response::Unrecorded { .. } => None,
    };
    [request.body.as_slice()].into_iter().chain(response)
}

fn has_value(request: &Request, value: &str) -> bool {
    has_word(&request.target, value)
        || bodies(request).any(|body| has_word(&String::from_utf8_lossy(body), value))
}

/// `47` is in `id=47&` and not in `147` or `4.47`.
fn has_word(text: &str, word: &str) -> bool {
    let ends = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    text.match_indices(word).any(|(at, _)| {
        ends(text[..at].chars().next_back()) && ends(text[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_written_as_people_write_them() {
        let row = |text: &str| Wanted::parse_row(text).map(|row| (row.table, row.value));
        let is = |table: &str, value: &str| Ok((table.to_owned(), value.to_owned()));
        assert_eq!(row("orders 4711"), is("orders", "4711"));
        assert_eq!(row(" orders.id = 4711"), is("orders", "4711"));
        assert_eq!(row("public.orders 'a b'"), is("public.orders", "a b"));
        assert_eq!(row("orders=7"), is("orders", "7"));
        for wrong in ["", "orders", "orders =", "= 7"] {
            assert_eq!(row(wrong), Err(WantedError::Row(wrong.to_owned())));
        }
    }

    #[test]
    fn a_number_is_not_found_within_another() {
        assert!(has_word("/orders/47?x", "47") && has_word("[1,47]", "47") && has_word("47", "47"));
        assert!(!has_word("/orders/147", "47") && !has_word("472", "47"));
        assert!(has_word("147 47", "47"));
    }
}
