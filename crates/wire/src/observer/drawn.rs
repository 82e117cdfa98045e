//! Rows of the client's results: their digest, and the values in them that the server drew.

use hindcast_model::{DrawnAt, DrawnUuid};

use super::columns::{DrawnColumn, DrawnFrom, Source};
use super::note::{Tracked, Work};
use super::observed::{Context, Event};
use super::server::{Parts, ServerSide};
use crate::digest::row_hash;
use crate::frame::Piece;
use crate::limits;
use crate::message::backend;
use crate::message::frontend::Formats;
use crate::sql::{SequenceColumn, Statement};

impl ServerSide {
    pub(super) fn row(&mut self, piece: Piece<'_>, ordered: bool) {
        let Some(open) = &mut self.open else { return };
        match piece.last {
            true => {
                let row = self.text_form.row(piece.body(), &self.settings);
                open.row(ordered, row_hash(row));
                self.refused |= self.tries && is_refusal(row);
            }
            false if self.text_form.converts() => {
                self.collected.clear();
                self.collected.extend_from_slice(piece.body());
                self.parts = Parts::Collected { ordered };
            }
            false => {
                self.hasher.part(piece.body());
                self.parts = Parts::Row { ordered };
            }
        }
        if piece.tag != backend::DATA_ROW || self.drawn_columns.is_empty() {
            return;
        }
        let mut columns = self.drawn_columns.iter().peekable();
        for (index, value) in backend::parse_data_row(piece.body()).enumerate() {
            let (Some(column), Some(value)) =
                (columns.next_if(|column| column.index == index), value)
            else {
                continue;
            };
            match column.from {
                DrawnFrom::Sequence(sequence) => {
                    if let Some(value) = integer(value, column.format) {
                        open.sequence_value(sequence, value);
                    }
                }
                DrawnFrom::SequenceBefore(sequence) => {
                    if let Some(value) = integer(value, column.format) {
                        open.sequence_value_before(sequence, value);
                    }
                }
                DrawnFrom::Uuids(place) => {
                    if let Some(value) = uuid(value, column.format) {
                        open.drawn_uuid(place, value);
                    }
                }
            }
        }
    }

    /// A later part of a row.
    pub(super) fn part_of_row(&mut self, piece: Piece<'_>, ordered: bool) {
        self.hasher.part(piece.bytes);
        if piece.last {
            let hash = self.hasher.finish();
            if let Some(open) = &mut self.open {
                open.row(ordered, hash);
            }
        }
    }

    /// A later part of a row that is converted, unless it gets too long.
    pub(super) fn collect(&mut self, piece: Piece<'_>, ordered: bool) {
        self.collected.extend_from_slice(piece.bytes);
        if piece.last {
            let collected = std::mem::take(&mut self.collected);
            let row = self.text_form.row(&collected, &self.settings);
            if let Some(open) = &mut self.open {
                open.row(ordered, row_hash(row));
            }
        } else if self.collected.len() > limits::CONVERTED_ROW_BYTES_MAX {
            self.hasher.part(&std::mem::take(&mut self.collected));
            self.parts = Parts::Row { ordered };
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
            if statement.may_show_drawn() {
                self.find_drawn(statement, body, &Formats::Text, cx, events);
            }
        }
    }

    pub(super) fn find_drawn(
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
            let call_draws = statement.draws(column.name);
            let from = if column.table != 0 {
                if !statement.returns_new_rows() {
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
                match cx.sequences.of_column(column.table, column.attribute) {
                    _ if call_draws => Some(DrawnFrom::Uuids(DrawnAt::Call)),
                    Some(Source::Sequence(sequence)) => Some(DrawnFrom::Sequence(sequence)),
                    Some(Source::Uuids) => Some(DrawnFrom::Uuids(DrawnAt::Default {
                        table: column.table,
                        column: column.attribute,
                    })),
                    None => None,
                }
            } else if call_draws {
                Some(DrawnFrom::Uuids(DrawnAt::Call))
            } else {
                let call = calls.next_if(|call| call.column.as_bytes() == column.name);
                call.and_then(|call| self.drawn_by(call, cx))
            };
            let format = formats.of(index);
            self.drawn_columns.extend(from.map(|from| DrawnColumn {
                index,
                from,
                format,
            }));
        }
    }
}

impl ServerSide {
    /// The sequence whose value a call shows.
    fn drawn_by(&self, call: &SequenceColumn, cx: &Context<'_>) -> Option<DrawnFrom> {
        let sequence = match (&call.sequence, &self.inserted_into) {
            (Some(name), _) => cx.sequences.by_name(name),
            (None, Some(table)) => cx.sequences.of_insert(table),
            (None, None) => None,
        };
        let from = match call.is_last {
            true => DrawnFrom::SequenceBefore,
            false => DrawnFrom::Sequence,
        };
        sequence.map(from)
    }
}

/// Whether a row of a single value says no, as a try for a lock does, or nothing, as where a
/// service makes something else of it.
fn is_refusal(row: &[u8]) -> bool {
    let mut values = backend::parse_data_row(row);
    let says_no = matches!(values.next(), Some(None | Some(b"f" | b"0" | [0])));
    says_no && values.next().is_none()
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

/// Of a column of type `uuid`, or of texts that hold one as the server writes it.
fn uuid(value: &[u8], format: u16) -> Option<u128> {
    match (format, value.len()) {
        (1, 16) => Some(u128::from_be_bytes(value.try_into().ok()?)),
        _ => DrawnUuid::number(value),
    }
}
