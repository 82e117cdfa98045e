//! Rows of the client's results: their digest, and the sequence values in them.

use super::note::{Tracked, Work};
use super::observed::{Context, Event};
use super::server::{Parts, ServerSide};
use crate::frame::Piece;
use crate::limits;
use crate::message::backend;
use crate::message::frontend::Formats;
use crate::sql::Statement;

impl ServerSide {
    pub(super) fn row(&mut self, piece: Piece<'_>, ordered: bool) {
        let Some(open) = &mut self.open else { return };
        if piece.last {
            open.digest.row(ordered, piece.body());
        } else {
            self.hasher.part(piece.body());
            self.parts = Parts::Row { ordered };
        }
        if piece.tag != backend::DATA_ROW || self.sequence_columns.is_empty() {
            return;
        }
        let mut columns = self.sequence_columns.iter().peekable();
        for (index, value) in backend::parse_data_row(piece.body()).enumerate() {
            let Some(&(_, sequence, format)) = columns.next_if(|(column, ..)| *column == index)
            else {
                continue;
            };
            if let Some(value) = value.and_then(|value| integer(value, format)) {
                open.sequence_value(sequence, value);
            }
        }
    }

    /// The row description of a client's `Query`, or of the portal that it executes next.
    pub(super) fn described(
        &mut self,
        pending: &Tracked,
        body: &[u8],
        cx: &Context<'_>,
        events: &mut Vec<Event>,
    ) {
        if let Work::Query(query) = &pending.payload.work {
            let statement = self.statement_of(query);
            if statement.may_show_sequences() {
                self.find_sequences(statement, body, &Formats::Text, cx, events);
            }
        }
    }

    pub(super) fn find_sequences(
        &mut self,
        statement: &Statement,
        description: &[u8],
        formats: &Formats,
        cx: &Context<'_>,
        events: &mut Vec<Event>,
    ) {
        let mut calls = statement.sequences.iter().peekable();
        for (index, column) in backend::parse_row_description(description).enumerate() {
            // The client is told the same; what is malformed is its business.
            let Ok(column) = column else { return };
            let sequence = if column.table != 0 {
                if !statement.returning {
                    continue;
                }
                if !cx.sequences.knows_table(column.table)
                    && !self.unknown_tables.contains(&column.table)
                {
                    if self.unknown_tables.len() >= limits::UNKNOWN_TABLES_MAX {
                        self.unknown_tables.clear();
                    }
                    self.unknown_tables.push(column.table);
                    events.push(Event::UnknownTable {
                        table: column.table,
                    });
                }
                cx.sequences.of_column(column.table, column.attribute)
            } else {
                let call = calls.next_if(|call| call.column.as_bytes() == column.name);
                call.and_then(|call| cx.sequences.by_name(&call.sequence))
            };
            if let Some(sequence) = sequence {
                self.sequence_columns
                    .push((index, sequence, formats.of(index)));
            }
        }
    }
}

fn integer(value: &[u8], format: u16) -> Option<i64> {
    match (format, value.len()) {
        (0, _) => std::str::from_utf8(value).ok()?.parse().ok(),
        (1, 2) => Some(i16::from_be_bytes(value.try_into().ok()?).into()),
        (1, 4) => Some(i32::from_be_bytes(value.try_into().ok()?).into()),
        (1, 8) => Some(i64::from_be_bytes(value.try_into().ok()?)),
        _ => None,
    }
}
