//! What a client says.

use bytes::{BufMut, BytesMut};

use crate::sql::Edits;

use super::{Body, Malformed, message, put_count, put_text, put_value, untagged};

pub const BIND: u8 = b'B';
pub const CLOSE: u8 = b'C';
pub const COPY_DATA: u8 = b'd';
pub const COPY_DONE: u8 = b'c';
pub const COPY_FAIL: u8 = b'f';
pub const DESCRIBE: u8 = b'D';
pub const EXECUTE: u8 = b'E';
pub const FLUSH: u8 = b'H';
pub const FUNCTION_CALL: u8 = b'F';
pub const PARSE: u8 = b'P';
pub const PASSWORD: u8 = b'p';
pub const QUERY: u8 = b'Q';
pub const SYNC: u8 = b'S';
pub const TERMINATE: u8 = b'X';

/// Protocol versions, and the request codes that stand in their place.
pub const PROTOCOL_3_0: u32 = 3 << 16;
pub const PROTOCOL_3_2: u32 = 3 << 16 | 2;
pub const CANCEL_REQUEST: u32 = 80_877_102;
pub const SSL_REQUEST: u32 = 80_877_103;
pub const GSSENC_REQUEST: u32 = 80_877_104;

/// The packet that opens a session: a version and pairs of names and values.
#[derive(Clone, Copy, Debug)]
pub struct Startup<'a> {
    pub version: u32,
    pairs: &'a [u8],
}

impl<'a> Startup<'a> {
    /// Reads the whole packet, length field included.
    pub fn parse(packet: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Body::new(packet);
        body.u32("the length is cut off")?;
        let version = body.u32("the version is cut off")?;
        let startup = Self {
            version,
            pairs: body.rest(),
        };
        loop {
            if body.text("a parameter's name is cut off")?.is_empty() {
                body.end()?;
                return Ok(startup);
            }
            body.text("a parameter's value is cut off")?;
        }
    }

    pub fn parameters(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut texts = self.pairs.split(|&byte| byte == 0);
        std::iter::from_fn(move || {
            let name = texts.next().filter(|name| !name.is_empty())?;
            Some((name, texts.next()?))
        })
    }

    /// The last value given for a name, as Postgres takes it.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.parameters()
            .filter(|(given, _)| given.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
            .last()
    }

    /// Whether the session is to speak the replication protocol, which is another language than SQL
    /// sessions speak.
    pub fn is_replication(&self) -> bool {
        self.get("replication").is_some_and(|value| {
            !["false", "off", "no", "0", "f", "n", ""]
                .iter()
                .any(|no| value.eq_ignore_ascii_case(no.as_bytes()))
        })
    }
}

/// Appends a startup packet.
pub fn startup(out: &mut BytesMut, version: u32, parameters: &[(&[u8], &[u8])]) {
    untagged(out, |out| {
        out.put_u32(version);
        for (name, value) in parameters {
            put_text(out, name);
            put_text(out, value);
        }
        out.put_u8(0);
    });
}

/// The text of a `Query`.
pub fn parse_query(body: &[u8]) -> Result<&[u8], Malformed> {
    let mut body = Body::new(body);
    let text = body.text("the text is not terminated")?;
    body.end()?;
    Ok(text)
}

pub fn query(out: &mut BytesMut, text: &[u8]) {
    message(out, QUERY, |out| put_text(out, text));
}

/// A `Query` with a changed text.
pub fn query_edited(out: &mut BytesMut, text: &[u8], edits: &Edits) {
    message(out, QUERY, |out| {
        edits.apply(text, out);
        out.put_u8(0);
    });
}

/// `Parse`: prepare a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parse<'a> {
    /// Empty for the unnamed statement.
    pub name: &'a [u8],
    pub text: &'a [u8],
    /// Count and oids as they stand in the message.
    pub types: &'a [u8],
}

impl<'a> Parse<'a> {
    #[allow(
        clippy::self_named_constructors,
        reason = "parsers of messages are called `parse`, and so is this message"
    )]
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Body::new(body);
        let name = body.text("the statement's name is not terminated")?;
        let text = body.text("the text is not terminated")?;
        let types = body.rest();
        let count = body.u16("the number of parameter types is cut off")?;
        body.take(4 * usize::from(count), "the parameter types are cut off")?;
        body.end()?;
        Ok(Self { name, text, types })
    }

    pub fn build(&self, out: &mut BytesMut) {
        message(out, PARSE, |out| {
            put_text(out, self.name);
            put_text(out, self.text);
            out.put_slice(self.types);
        });
    }
}

pub fn parse(out: &mut BytesMut, name: &[u8], text: &[u8], types: &[u32]) {
    message(out, PARSE, |out| {
        put_text(out, name);
        put_text(out, text);
        put_count(out, types.len());
        types.iter().for_each(|&oid| out.put_u32(oid));
    });
}

/// The names at the head of a `Bind`, which is all that most need of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindNames<'a> {
    pub portal: &'a [u8],
    pub statement: &'a [u8],
}

impl<'a> BindNames<'a> {
    /// `body` may be cut off anywhere behind the names.
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Body::new(body);
        let portal = body.text("the portal's name is not terminated")?;
        let statement = body.text("the statement's name is not terminated")?;
        Ok(Self { portal, statement })
    }
}

/// `Bind`: make a portal of a prepared statement and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind<'a> {
    pub portal: &'a [u8],
    pub statement: &'a [u8],
    pub parameter_formats: Vec<u16>,
    pub parameters: Vec<Option<&'a [u8]>>,
    /// None: all text. One: for all columns. Else one per column.
    pub result_formats: Formats,
}

impl<'a> Bind<'a> {
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let names = BindNames::parse(body)?;
        let mut body = Body::new(body);
        body.take(
            names.portal.len() + names.statement.len() + 2,
            "the names are cut off",
        )?;
        let count = body.u16("the number of parameter formats is cut off")?;
        let parameter_formats = (0..count)
            .map(|_| body.u16("a parameter format is cut off"))
            .collect::<Result<_, _>>()?;
        let count = body.u16("the number of parameters is cut off")?;
        let parameters = (0..count).map(|_| body.value()).collect::<Result<_, _>>()?;
        let result_formats = Formats::parse(&mut body)?;
        body.end()?;
        Ok(Self {
            portal: names.portal,
            statement: names.statement,
            parameter_formats,
            parameters,
            result_formats,
        })
    }
}

/// Formats of result columns: 0 is text, 1 is binary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Formats {
    #[default]
    Text,
    All(u16),
    Each(Box<[u16]>),
    /// The message was too long to look for them.
    Unknown,
}

impl Formats {
    fn parse(body: &mut Body<'_>) -> Result<Self, Malformed> {
        match body.u16("the number of result formats is cut off")? {
            0 => Ok(Self::Text),
            1 => Ok(Self::All(body.u16("a result format is cut off")?)),
            count => (0..count)
                .map(|_| body.u16("a result format is cut off"))
                .collect::<Result<_, _>>()
                .map(Self::Each),
        }
    }

    /// Whether values of any column come in binary, as far as it is known.
    pub fn has_binary(&self) -> bool {
        match self {
            Self::Text | Self::Unknown => false,
            Self::All(format) => *format == 1,
            Self::Each(formats) => formats.contains(&1),
        }
    }

    pub fn of(&self, column: usize) -> u16 {
        match self {
            Self::Text => 0,
            Self::Unknown => u16::MAX,
            Self::All(format) => *format,
            Self::Each(formats) => formats.get(column).copied().unwrap_or(0),
        }
    }
}

/// Only the result formats of a whole `Bind`, skipping over the values.
pub fn bind_result_formats(body: &[u8]) -> Result<Formats, Malformed> {
    bind_rest(body).map(|(_, formats)| formats)
}

/// The values of a whole `Bind` as they stand in it, behind their number, and the result formats.
pub fn bind_rest(body: &[u8]) -> Result<(&[u8], Formats), Malformed> {
    let mut body = Body::new(body);
    body.text("the portal's name is not terminated")?;
    body.text("the statement's name is not terminated")?;
    let count = body.u16("the number of parameter formats is cut off")?;
    body.take(2 * usize::from(count), "the parameter formats are cut off")?;
    let from = body.rest();
    let count = body.u16("the number of parameters is cut off")?;
    for _ in 0..count {
        body.value()?;
    }
    let values = &from[..from.len() - body.rest().len()];
    Ok((values, Formats::parse(&mut body)?))
}

/// The values of a whole `Bind`; `None` is NULL.
pub fn bind_values(body: &[u8]) -> Result<Vec<Option<&[u8]>>, Malformed> {
    let parts = BindParts::of(body)?;
    let mut values = Body::new(parts.values);
    let formats = values.u16("the number of parameter formats is cut off")?;
    values.take(
        2 * usize::from(formats),
        "the parameter formats are cut off",
    )?;
    let count = values.u16("the number of parameters is cut off")?;
    (0..count).map(|_| values.value()).collect()
}

/// A whole `Bind` of the same portal and statement, with the values of another one and their
/// formats; `None` if that has another number of them.
pub fn rebind(body: &[u8], values_of: &[u8]) -> Result<Option<BytesMut>, Malformed> {
    let (own, others) = (BindParts::of(body)?, BindParts::of(values_of)?);
    if own.count != others.count {
        return Ok(None);
    }
    let mut out = BytesMut::new();
    message(&mut out, BIND, |out| {
        for part in [own.names, others.values, own.results] {
            out.put_slice(part);
        }
    });
    Ok(Some(out))
}

/// A whole `Bind` with the same portal and values, of another statement.
pub fn bind_of(body: &[u8], statement: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    let names = BindNames::parse(body)?;
    let rest = &body[names.portal.len() + names.statement.len() + 2..];
    message(out, BIND, |out| {
        put_text(out, names.portal);
        put_text(out, statement);
        out.put_slice(rest);
    });
    Ok(())
}

/// The body of a `Bind`, taken apart.
struct BindParts<'a> {
    names: &'a [u8],
    /// With their formats.
    values: &'a [u8],
    count: u16,
    results: &'a [u8],
}

impl<'a> BindParts<'a> {
    fn of(whole: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Body::new(whole);
        body.text("the portal's name is not terminated")?;
        body.text("the statement's name is not terminated")?;
        let from = body.rest();
        let count = body.u16("the number of parameter formats is cut off")?;
        body.take(2 * usize::from(count), "the parameter formats are cut off")?;
        let count = body.u16("the number of parameters is cut off")?;
        for _ in 0..count {
            body.value()?;
        }
        let results = body.rest();
        Ok(Self {
            names: &whole[..whole.len() - from.len()],
            values: &from[..from.len() - results.len()],
            count,
            results,
        })
    }
}

/// A `Bind` with all values and results as text.
pub fn bind(out: &mut BytesMut, portal: &[u8], statement: &[u8], parameters: &[Option<&[u8]>]) {
    message(out, BIND, |out| {
        put_text(out, portal);
        put_text(out, statement);
        out.put_u16(0);
        put_count(out, parameters.len());
        parameters.iter().for_each(|value| put_value(out, *value));
        out.put_u16(0);
    });
}

/// What `Describe` and `Close` are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    Statement(&'a [u8]),
    Portal(&'a [u8]),
}

impl<'a> Target<'a> {
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Body::new(body);
        let kind = body.u8("the kind is missing")?;
        let name = body.text("the name is not terminated")?;
        body.end()?;
        match kind {
            b'S' => Ok(Self::Statement(name)),
            b'P' => Ok(Self::Portal(name)),
            _ => Err(Malformed {
                what: "the kind is neither `S` nor `P`",
                at: 0,
            }),
        }
    }

    fn put(&self, out: &mut BytesMut) {
        let (kind, name) = match self {
            Self::Statement(name) => (b'S', name),
            Self::Portal(name) => (b'P', name),
        };
        out.put_u8(kind);
        put_text(out, name);
    }
}

pub fn describe(out: &mut BytesMut, target: Target<'_>) {
    message(out, DESCRIBE, |out| target.put(out));
}

pub fn close(out: &mut BytesMut, target: Target<'_>) {
    message(out, CLOSE, |out| target.put(out));
}

/// The portal and the row limit (0: none) of an `Execute`.
pub fn parse_execute(body: &[u8]) -> Result<(&[u8], u32), Malformed> {
    let mut body = Body::new(body);
    let portal = body.text("the portal's name is not terminated")?;
    let rows_max = body.u32("the row limit is cut off")?;
    body.end()?;
    Ok((portal, rows_max))
}

pub fn execute(out: &mut BytesMut, portal: &[u8], rows_max: u32) {
    message(out, EXECUTE, |out| {
        put_text(out, portal);
        out.put_u32(rows_max);
    });
}

pub fn sync(out: &mut BytesMut) {
    message(out, SYNC, |_| ());
}

pub fn flush(out: &mut BytesMut) {
    message(out, FLUSH, |_| ());
}

pub fn terminate(out: &mut BytesMut) {
    message(out, TERMINATE, |_| ());
}

pub fn copy_data(out: &mut BytesMut, data: &[u8]) {
    message(out, COPY_DATA, |out| out.put_slice(data));
}

pub fn copy_done(out: &mut BytesMut) {
    message(out, COPY_DONE, |_| ());
}

pub fn copy_fail(out: &mut BytesMut, reason: &[u8]) {
    message(out, COPY_FAIL, |out| put_text(out, reason));
}

/// A password, or a step of GSS or SASL authentication.
pub fn password(out: &mut BytesMut, data: &[u8]) {
    message(out, PASSWORD, |out| out.put_slice(data));
}

/// A call of a function by its oid, without arguments and with a result as text.
pub fn function_call(out: &mut BytesMut, function: u32) {
    message(out, FUNCTION_CALL, |out| {
        out.put_u32(function);
        out.put_u16(0);
        out.put_u16(0);
        out.put_u16(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{self, Direction};

    fn body(build: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
        let mut out = BytesMut::new();
        build(&mut out);
        let frame = frame::split(Direction::FromClient, &mut out)
            .unwrap()
            .unwrap();
        assert!(out.is_empty());
        frame.body().to_vec()
    }

    #[test]
    fn what_is_built_can_be_parsed() {
        assert_eq!(
            parse_query(&body(|out| query(out, b"SELECT 1"))),
            Ok(&b"SELECT 1"[..])
        );
        let prepare = body(|out| parse(out, b"s", b"SELECT $1", &[23]));
        let parsed = Parse::parse(&prepare).unwrap();
        assert_eq!(
            (parsed.name, parsed.text, parsed.types),
            (&b"s"[..], &b"SELECT $1"[..], &[0, 1, 0, 0, 0, 23][..])
        );
        assert_eq!(body(|out| parsed.build(out)), prepare);
        let bound = body(|out| bind(out, b"p", b"s", &[Some(b"7"), None]));
        assert_eq!(
            BindNames::parse(&bound[..5]).unwrap(),
            BindNames {
                portal: b"p",
                statement: b"s"
            }
        );
        assert_eq!(
            Bind::parse(&bound).unwrap().parameters,
            [Some(&b"7"[..]), None]
        );
        assert_eq!(bind_result_formats(&bound), Ok(Formats::Text));
        assert_eq!(
            parse_execute(&body(|out| execute(out, b"p", 3))),
            Ok((&b"p"[..], 3))
        );
        assert_eq!(
            Target::parse(&body(|out| close(out, Target::Portal(b"p")))),
            Ok(Target::Portal(b"p"))
        );
    }

    #[test]
    fn a_startup_packet_is_pairs_of_names_and_values() {
        let mut packet = BytesMut::new();
        startup(
            &mut packet,
            PROTOCOL_3_2,
            &[
                (b"user", b"a"),
                (b"replication", b"database"),
                (b"user", b"b"),
            ],
        );
        let parsed = Startup::parse(&packet).unwrap();
        assert_eq!(
            (parsed.version, parsed.get("user"), parsed.is_replication()),
            (PROTOCOL_3_2, Some(&b"b"[..]), true)
        );
        assert!(Startup::parse(&packet[..packet.len() - 1]).is_err());
    }

    #[test]
    fn malformed_bodies_name_what_and_where() {
        let error = Parse::parse(b"s\0SELECT 1\0\0\x02\0\0\0\x17").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the parameter types are cut off at byte 13 of its body"
        );
        let error = Bind::parse(b"\0\0\0\0\0\x01\xff\xff\xff\xf0").unwrap_err();
        assert_eq!(
            error.to_string(),
            "a value is cut off at byte 10 of its body"
        );
    }
}
