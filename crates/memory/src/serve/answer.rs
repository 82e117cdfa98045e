//! What a session says: rows, descriptions, errors.

use std::ops::Range;

use bytes::BytesMut;
use hindcast_pg::Lsn;
use hindcast_store::AsOfError;
use hindcast_wire::message::backend::{self, Column};
use hindcast_wire::message::frontend::Formats;

use super::sql::{Kind, OutputColumn, SqlError};
use super::values;

pub fn not_there(text: &str, error: &AsOfError) -> SqlError {
    let message = match error {
        AsOfError::TooOld { oldest } => format!(
            "the state of {text} is not kept any more: the oldest is that of {}, {}",
            Lsn(oldest.lsn),
            values::timestamp(oldest.time, true)
        ),
        AsOfError::NotYet { newest } => format!(
            "the state of {text} is not here yet: the newest is that of {}, {}",
            Lsn(newest.lsn),
            values::timestamp(newest.time, true)
        ),
    };
    SqlError::new("22023", message).hint(error.hint())
}

pub fn aborted() -> SqlError {
    SqlError::new(
        "25P02",
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}

pub fn no_portal(name: &[u8]) -> SqlError {
    SqlError::new(
        "34000",
        format!("portal \"{}\" does not exist", shown(name)),
    )
}

pub fn shown(name: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(name)
}

pub fn utf8(text: &[u8]) -> Result<&str, SqlError> {
    std::str::from_utf8(text)
        .map_err(|_| SqlError::new("22021", "invalid byte sequence for encoding \"UTF8\""))
}

pub fn put_complete(out: &mut BytesMut, kind: &Kind, rows: u64) {
    let tag = match kind {
        Kind::Select => format!("SELECT {rows}"),
        Kind::Show => "SHOW".to_owned(),
        Kind::Set { .. } => "SET".to_owned(),
        Kind::Reset { .. } => "RESET".to_owned(),
        Kind::Begin => "BEGIN".to_owned(),
        Kind::Commit => "COMMIT".to_owned(),
        Kind::Rollback | Kind::RollbackTo { .. } => "ROLLBACK".to_owned(),
        Kind::Savepoint { .. } => "SAVEPOINT".to_owned(),
        Kind::Release { .. } => "RELEASE".to_owned(),
        Kind::DiscardAll => "DISCARD ALL".to_owned(),
        Kind::Deallocate { name: None } => "DEALLOCATE ALL".to_owned(),
        Kind::Deallocate { name: Some(_) } => "DEALLOCATE".to_owned(),
        Kind::Empty => String::new(),
    };
    backend::command_complete(out, tag.as_bytes());
}

pub fn put_description(out: &mut BytesMut, columns: &[OutputColumn], formats: Option<&Formats>) {
    if columns.is_empty() {
        return backend::no_data(out);
    }
    let columns: Vec<Column<'_>> = columns
        .iter()
        .enumerate()
        .map(|(i, column)| Column {
            name: column.name.as_bytes(),
            table: 0,
            attribute: 0,
            type_oid: column.type_oid,
            format: formats.map_or(0, |formats| formats.of(i)),
        })
        .collect();
    backend::row_description(out, &columns);
}

pub fn put_row(
    out: &mut BytesMut,
    columns: &[OutputColumn],
    formats: &Formats,
    row: &[Option<&[u8]>],
) -> Result<(), SqlError> {
    if matches!(formats, Formats::Text | Formats::All(0)) {
        backend::data_row(out, row);
        return Ok(());
    }
    // Where the binary values are in one buffer.
    let mut buffer = Vec::new();
    let mut places: Vec<Option<Range<usize>>> = vec![None; row.len()];
    for (i, (value, column)) in row.iter().zip(columns).enumerate() {
        if let Some(value) = value
            && formats.of(i) == 1
        {
            let start = buffer.len();
            values::to_binary(column.type_oid, value, &mut buffer)?;
            places[i] = Some(start..buffer.len());
        }
    }
    let converted: Vec<Option<&[u8]>> = row
        .iter()
        .zip(places)
        .map(|(value, place)| match place {
            Some(place) => Some(&buffer[place]),
            None => *value,
        })
        .collect();
    backend::data_row(out, &converted);
    Ok(())
}

pub fn put_notice(out: &mut BytesMut, code: &str, text: &str) {
    let fields = [
        (b'S', "WARNING"),
        (b'V', "WARNING"),
        (b'C', code),
        (b'M', text),
    ];
    let fields = fields.map(|(field, value)| (field, value.as_bytes()));
    backend::error_fields(out, backend::NOTICE_RESPONSE, fields.into_iter());
}

pub fn put_error(out: &mut BytesMut, severity: &str, error: &SqlError) {
    let position = error.position.map(|position| position.to_string());
    // A zero byte would end the field.
    let clean = |text: &str| text.replace('\0', "");
    let (message, hint) = (clean(&error.message), error.hint.as_deref().map(clean));
    let fields = [
        (b'S', Some(severity)),
        (b'V', Some(severity)),
        (b'C', Some(error.code)),
        (b'M', Some(message.as_str())),
        (b'H', hint.as_deref()),
        (b'P', position.as_deref()),
    ];
    let given = fields
        .into_iter()
        .filter_map(|(field, value)| value.map(|value| (field, value.as_bytes())));
    backend::error_fields(out, backend::ERROR_RESPONSE, given);
}
