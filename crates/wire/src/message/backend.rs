//! What a server says.

use bytes::{BufMut, BytesMut};

use super::{Body, Malformed, message, put_count, put_text, put_value};

pub const AUTHENTICATION: u8 = b'R';
pub const BACKEND_KEY_DATA: u8 = b'K';
pub const BIND_COMPLETE: u8 = b'2';
pub const CLOSE_COMPLETE: u8 = b'3';
pub const COMMAND_COMPLETE: u8 = b'C';
pub const COPY_BOTH_RESPONSE: u8 = b'W';
pub const COPY_DATA: u8 = b'd';
pub const COPY_DONE: u8 = b'c';
pub const COPY_IN_RESPONSE: u8 = b'G';
pub const COPY_OUT_RESPONSE: u8 = b'H';
pub const DATA_ROW: u8 = b'D';
pub const EMPTY_QUERY_RESPONSE: u8 = b'I';
pub const ERROR_RESPONSE: u8 = b'E';
pub const FUNCTION_CALL_RESPONSE: u8 = b'V';
pub const NEGOTIATE_PROTOCOL_VERSION: u8 = b'v';
pub const NO_DATA: u8 = b'n';
pub const NOTICE_RESPONSE: u8 = b'N';
pub const NOTIFICATION_RESPONSE: u8 = b'A';
pub const PARAMETER_DESCRIPTION: u8 = b't';
pub const PARAMETER_STATUS: u8 = b'S';
pub const PARSE_COMPLETE: u8 = b'1';
pub const PORTAL_SUSPENDED: u8 = b's';
pub const READY_FOR_QUERY: u8 = b'Z';
pub const ROW_DESCRIPTION: u8 = b'T';

/// The `Authentication` request that offers SASL mechanisms.
pub const SASL: u32 = 10;
/// The mechanism that binds a password to the connection's certificate.
pub const SCRAM_PLUS: &[u8] = b"SCRAM-SHA-256-PLUS";

/// The transaction status in a `ReadyForQuery`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    Idle,
    InTransaction,
    Failed,
}

impl Status {
    pub fn byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::InTransaction => b'T',
            Self::Failed => b'E',
        }
    }
}

pub fn parse_ready_for_query(body: &[u8]) -> Result<Status, Malformed> {
    match body {
        b"I" => Ok(Status::Idle),
        b"T" => Ok(Status::InTransaction),
        b"E" => Ok(Status::Failed),
        _ => Err(Malformed {
            what: "there is no transaction status",
            at: 0,
        }),
    }
}

pub fn ready_for_query(out: &mut BytesMut, status: Status) {
    message(out, READY_FOR_QUERY, |out| out.put_u8(status.byte()));
}

/// The tag of a `CommandComplete`, such as `INSERT 0 1`.
pub fn parse_command_complete(body: &[u8]) -> Result<&[u8], Malformed> {
    Body::new(body).text("the tag is not terminated")
}

pub fn command_complete(out: &mut BytesMut, tag: &[u8]) {
    message(out, COMMAND_COMPLETE, |out| put_text(out, tag));
}

/// The name and value of a `ParameterStatus`.
pub fn parse_parameter_status(body: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let mut body = Body::new(body);
    Ok((
        body.text("the name is not terminated")?,
        body.text("the value is not terminated")?,
    ))
}

pub fn parameter_status(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    message(out, PARAMETER_STATUS, |out| {
        put_text(out, name);
        put_text(out, value);
    });
}

/// The process and the secret key of a `BackendKeyData`: four bytes, or up to 256 since protocol
/// 3.2.
pub fn parse_backend_key_data(body: &[u8]) -> Result<(u32, &[u8]), Malformed> {
    let mut body = Body::new(body);
    let process = body.u32("the process is cut off")?;
    match body.rest().len() {
        4..=256 => Ok((process, body.rest())),
        _ => body.fail("the key is neither 4 to 256 bytes long"),
    }
}

pub fn backend_key_data(out: &mut BytesMut, process: u32, key: &[u8]) {
    message(out, BACKEND_KEY_DATA, |out| {
        out.put_u32(process);
        out.put_slice(key);
    });
}

/// The kind of an `Authentication` request (0: accepted) and what comes with it.
pub fn parse_authentication(body: &[u8]) -> Result<(u32, &[u8]), Malformed> {
    let mut body = Body::new(body);
    Ok((body.u32("the kind is cut off")?, body.rest()))
}

pub fn authentication(out: &mut BytesMut, kind: u32, data: &[u8]) {
    message(out, AUTHENTICATION, |out| {
        out.put_u32(kind);
        out.put_slice(data);
    });
}

/// The offer of SASL mechanisms without those that bind to a channel, which cannot cross a host
/// that ends TLS; `None` if there is none among them.
pub fn without_channel_binding(body: &[u8]) -> Option<BytesMut> {
    let (kind, mechanisms) = parse_authentication(body).ok()?;
    if kind != SASL
        || !mechanisms
            .split(|&byte| byte == 0)
            .any(|mechanism| mechanism == SCRAM_PLUS)
    {
        return None;
    }
    let mut out = BytesMut::new();
    message(&mut out, AUTHENTICATION, |out| {
        out.put_u32(SASL);
        for mechanism in mechanisms
            .split(|&byte| byte == 0)
            .filter(|mechanism| !mechanism.is_empty() && *mechanism != SCRAM_PLUS)
        {
            put_text(out, mechanism);
        }
        out.put_u8(0);
    });
    Some(out)
}

/// A column of a `RowDescription`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    pub name: &'a [u8],
    /// 0 if the column is not simply one of a table.
    pub table: u32,
    pub attribute: i16,
    pub type_oid: u32,
    /// 0 is text, 1 is binary. Always 0 in the description of a statement, whatever its portals
    /// ask for.
    pub format: u16,
}

/// The columns of a `RowDescription`. Ends early, with an error, if they are malformed.
pub fn parse_row_description(body: &[u8]) -> impl Iterator<Item = Result<Column<'_>, Malformed>> {
    let mut body = Body::new(body);
    let mut remaining = None;
    std::iter::from_fn(move || {
        let left = match remaining {
            Some(left) => left,
            None => match body.u16("the number of columns is cut off") {
                Ok(count) => count,
                Err(error) => {
                    remaining = Some(0);
                    return Some(Err(error));
                }
            },
        };
        remaining = Some(left.saturating_sub(1));
        if left == 0 {
            return None;
        }
        let column = parse_column(&mut body);
        if column.is_err() {
            remaining = Some(0);
        }
        Some(column)
    })
}

fn parse_column<'a>(body: &mut Body<'a>) -> Result<Column<'a>, Malformed> {
    let name = body.text("a column's name is not terminated")?;
    let table = body.u32("a column is cut off")?;
    let attribute = body.u16("a column is cut off")? as i16;
    let type_oid = body.u32("a column is cut off")?;
    body.take(6, "a column is cut off")?;
    let format = body.u16("a column is cut off")?;
    Ok(Column {
        name,
        table,
        attribute,
        type_oid,
        format,
    })
}

pub fn row_description(out: &mut BytesMut, columns: &[Column<'_>]) {
    message(out, ROW_DESCRIPTION, |out| {
        put_count(out, columns.len());
        for column in columns {
            put_text(out, column.name);
            out.put_u32(column.table);
            out.put_u16(column.attribute as u16);
            out.put_u32(column.type_oid);
            out.put_u16(u16::MAX);
            out.put_u32(u32::MAX);
            out.put_u16(column.format);
        }
    });
}

/// The values of a `DataRow`; `body` may be cut off, then the values end before the cut.
pub fn parse_data_row(body: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut body = Body::new(body);
    let mut left = body.u16("").unwrap_or(0);
    std::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        match body.value() {
            Ok(value) => Some(value),
            Err(_) => {
                left = 0;
                None
            }
        }
    })
}

pub fn data_row(out: &mut BytesMut, values: &[Option<&[u8]>]) {
    message(out, DATA_ROW, |out| {
        put_count(out, values.len());
        values.iter().for_each(|value| put_value(out, *value));
    });
}

/// The fields of an `ErrorResponse` or `NoticeResponse`: a letter and a text each.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = Body::new(body);
        while rest.u8("the fields are not terminated")? != 0 {
            rest.text("a field is not terminated")?;
        }
        rest.end()?;
        Ok(Self(body))
    }

    pub fn iter(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut body = Body::new(self.0);
        std::iter::from_fn(move || match body.u8("") {
            Ok(0) | Err(_) => None,
            Ok(field) => body.text("").ok().map(|value| (field, value)),
        })
    }

    pub fn get(&self, field: u8) -> Option<&'a [u8]> {
        self.iter()
            .find(|(given, _)| *given == field)
            .map(|(_, value)| value)
    }

    pub fn sqlstate(&self) -> &'a [u8] {
        self.get(b'C').unwrap_or_default()
    }

    /// Where in the client's text the error is, in characters from 1.
    pub fn position(&self) -> Option<u32> {
        std::str::from_utf8(self.get(b'P')?).ok()?.parse().ok()
    }

    /// The session ends with this error.
    pub fn is_fatal(&self) -> bool {
        matches!(self.get(b'V').or(self.get(b'S')), Some(b"FATAL" | b"PANIC"))
    }
}

/// Appends an error (or, with [`NOTICE_RESPONSE`] as the tag, a notice) made of these fields.
pub fn error_fields<'a>(out: &mut BytesMut, tag: u8, fields: impl Iterator<Item = (u8, &'a [u8])>) {
    message(out, tag, |out| {
        for (field, value) in fields {
            out.put_u8(field);
            put_text(out, value);
        }
        out.put_u8(0);
    });
}

pub fn error_response(out: &mut BytesMut, severity: &[u8], sqlstate: &[u8], text: &[u8]) {
    error_fields(
        out,
        ERROR_RESPONSE,
        [
            (b'S', severity),
            (b'V', severity),
            (b'C', sqlstate),
            (b'M', text),
        ]
        .into_iter(),
    );
}

pub fn notice_response(out: &mut BytesMut, sqlstate: &[u8], text: &[u8]) {
    error_fields(
        out,
        NOTICE_RESPONSE,
        [
            (b'S', &b"NOTICE"[..]),
            (b'V', b"NOTICE"),
            (b'C', sqlstate),
            (b'M', text),
        ]
        .into_iter(),
    );
}

/// The messages without a body.
pub fn parse_complete(out: &mut BytesMut) {
    message(out, PARSE_COMPLETE, |_| ());
}
pub fn bind_complete(out: &mut BytesMut) {
    message(out, BIND_COMPLETE, |_| ());
}
pub fn close_complete(out: &mut BytesMut) {
    message(out, CLOSE_COMPLETE, |_| ());
}
pub fn no_data(out: &mut BytesMut) {
    message(out, NO_DATA, |_| ());
}
pub fn portal_suspended(out: &mut BytesMut) {
    message(out, PORTAL_SUSPENDED, |_| ());
}
pub fn empty_query_response(out: &mut BytesMut) {
    message(out, EMPTY_QUERY_RESPONSE, |_| ());
}
pub fn copy_done(out: &mut BytesMut) {
    message(out, COPY_DONE, |_| ());
}

pub fn parameter_description(out: &mut BytesMut, types: &[u32]) {
    message(out, PARAMETER_DESCRIPTION, |out| {
        put_count(out, types.len());
        types.iter().for_each(|&oid| out.put_u32(oid));
    });
}

pub fn copy_data(out: &mut BytesMut, data: &[u8]) {
    message(out, COPY_DATA, |out| out.put_slice(data));
}

/// `CopyInResponse`, `CopyOutResponse` or `CopyBothResponse`, by tag, for text columns.
pub fn copy_response(out: &mut BytesMut, tag: u8, columns: usize) {
    message(out, tag, |out| {
        out.put_u8(0);
        put_count(out, columns);
        (0..columns).for_each(|_| out.put_u16(0));
    });
}

pub fn function_call_response(out: &mut BytesMut, value: Option<&[u8]>) {
    message(out, FUNCTION_CALL_RESPONSE, |out| put_value(out, value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::HEADER;

    #[test]
    fn what_is_built_can_be_parsed() {
        let columns = [
            Column {
                name: b"id",
                table: 16384,
                attribute: 1,
                type_oid: 20,
                format: 0,
            },
            Column {
                name: b"n",
                table: 0,
                attribute: 0,
                type_oid: 23,
                format: 1,
            },
        ];
        let mut out = BytesMut::new();
        row_description(&mut out, &columns);
        let parsed: Vec<_> = parse_row_description(&out[HEADER..])
            .map(Result::unwrap)
            .collect();
        assert_eq!(parsed, columns);
        assert!(
            parse_row_description(&out[HEADER..out.len() - 1])
                .last()
                .unwrap()
                .is_err()
        );

        let mut out = BytesMut::new();
        data_row(&mut out, &[Some(b"1"), None, Some(b"abc")]);
        assert_eq!(
            parse_data_row(&out[HEADER..]).collect::<Vec<_>>(),
            [Some(&b"1"[..]), None, Some(b"abc")]
        );
        assert_eq!(parse_data_row(&out[HEADER..out.len() - 1]).count(), 2);
    }

    #[test]
    fn errors_have_fields() {
        let mut out = BytesMut::new();
        error_response(&mut out, b"ERROR", b"40001", b"could not serialize");
        let fields = Fields::parse(&out[HEADER..]).unwrap();
        assert_eq!(
            (fields.sqlstate(), fields.position(), fields.is_fatal()),
            (&b"40001"[..], None, false)
        );
        assert!(Fields::parse(&out[HEADER..out.len() - 1]).is_err());
    }

    #[test]
    fn channel_binding_is_taken_out_of_the_offer() {
        let mut offer = BytesMut::new();
        authentication(&mut offer, SASL, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
        let mut rest = BytesMut::new();
        authentication(&mut rest, SASL, b"SCRAM-SHA-256\0\0");
        assert_eq!(
            without_channel_binding(&offer[HEADER..]),
            Some(rest.clone())
        );
        assert_eq!(without_channel_binding(&rest[HEADER..]), None);
    }

    #[test]
    fn cancel_keys_may_be_longer_than_four_bytes() {
        assert_eq!(
            parse_backend_key_data(&[0, 0, 0, 9, 1, 2, 3, 4]),
            Ok((9, &[1, 2, 3, 4][..]))
        );
        assert_eq!(parse_backend_key_data(&[0; 36]).unwrap().1.len(), 32);
        assert!(parse_backend_key_data(&[0; 7]).is_err());
    }
}
