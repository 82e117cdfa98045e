//! A statement with its values, and what was not fetched of its result.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use hindcast_wire::message::frontend::Formats;

use super::sql::{OutputColumn, SqlError, Statement};

/// What one portal may keep of a result that is fetched in parts.
const PORTAL_BYTES_MAX: usize = 256 << 20;

pub struct Portal {
    pub statement: Statement,
    pub parameters: Vec<Option<Vec<u8>>>,
    pub formats: Formats,
    /// The rows that are still to be fetched, as messages; `None` before the first `Execute`.
    pub kept: Option<Kept>,
}

impl Portal {
    pub fn columns(&self) -> &[OutputColumn] {
        self.statement.columns()
    }
}

/// Rows as messages.
#[derive(Default)]
pub struct Kept {
    rows: VecDeque<Bytes>,
    bytes: usize,
}

impl Kept {
    pub fn push(&mut self, row: &mut BytesMut) -> Result<(), SqlError> {
        self.bytes += row.len() + size_of::<Bytes>();
        if self.bytes > PORTAL_BYTES_MAX {
            return Err(SqlError::new(
                "53200",
                format!(
                    "the result is larger than the {} MiB that are kept for fetching in parts",
                    PORTAL_BYTES_MAX >> 20
                ),
            )
            .hint("fetch it without a row limit, or select less"));
        }
        self.rows.push_back(row.split().freeze());
        Ok(())
    }

    pub fn next(&mut self) -> Option<Bytes> {
        self.rows.pop_front()
    }
}
