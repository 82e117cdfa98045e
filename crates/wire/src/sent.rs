//! The statements in what a client sent, with their values.

use std::collections::HashMap;

use bytes::Bytes;

use crate::frame::{self, Direction};
use crate::message::frontend::{self as client, Bind, Formats, Parse};
use crate::sql::{Dialect, Script};

/// A statement as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentStatement {
    pub text: String,
    /// Of `$1`, `$2` and so on, in an extended query.
    pub parameters: Vec<Parameter>,
    /// In which it asked for its rows.
    pub formats: Formats,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parameter {
    Null,
    Text(String),
    /// In the type's binary format. The client need not have said the type.
    Binary {
        bytes: Bytes,
        oid: Option<u32>,
    },
}

/// One for each `Execute` and for each statement of a `Query`, in their order. Prepared statements
/// that these bytes do not prepare have no text.
pub fn statements(sent: &[u8]) -> Vec<SentStatement> {
    let mut sent = bytes::BytesMut::from(sent);
    let mut prepared: HashMap<Vec<u8>, Prepared> = HashMap::new();
    let mut portals: HashMap<Vec<u8>, SentStatement> = HashMap::new();
    let mut found = Vec::new();
    while let Ok(Some(frame)) = frame::split(Direction::FromClient, &mut sent) {
        let body = frame.body();
        match frame.tag() {
            client::QUERY => {
                if let Ok(text) = client::parse_query(body) {
                    found.extend(of_text(text));
                }
            }
            client::PARSE => {
                if let Ok(parse) = Parse::parse(body) {
                    prepared.insert(parse.name.to_vec(), Prepared::of(&parse));
                }
            }
            client::BIND => {
                if let Ok(bind) = Bind::parse(body) {
                    let unknown = Prepared::default();
                    let statement = prepared.get(bind.statement).unwrap_or(&unknown);
                    portals.insert(bind.portal.to_vec(), statement.bound(&bind));
                }
            }
            client::EXECUTE => {
                if let Ok((portal, _)) = client::parse_execute(body)
                    && let Some(statement) = portals.get(portal)
                {
                    found.push(statement.clone());
                }
            }
            _ => {}
        }
    }
    found
}

fn of_text(text: &[u8]) -> impl Iterator<Item = SentStatement> {
    let script = Script::of(text, Dialect::default());
    let statements = script.statements.into_iter();
    statements.map(|statement| SentStatement {
        text: String::from_utf8_lossy(&text[statement.range]).into_owned(),
        parameters: Vec::new(),
        formats: Formats::Text,
    })
}

#[derive(Default)]
struct Prepared {
    text: String,
    types: Vec<u32>,
}

impl Prepared {
    fn of(parse: &Parse<'_>) -> Self {
        let types = parse.types.get(2..).unwrap_or_default().as_chunks().0;
        Self {
            text: of_text(parse.text)
                .next()
                .map_or_else(String::new, |one| one.text),
            types: types.iter().copied().map(u32::from_be_bytes).collect(),
        }
    }

    fn bound(&self, bind: &Bind<'_>) -> SentStatement {
        let format = |at: usize| match &bind.parameter_formats[..] {
            [] => 0,
            [all] => *all,
            each => each.get(at).copied().unwrap_or_default(),
        };
        let parameter = |(at, value): (usize, &Option<&[u8]>)| match value {
            None => Parameter::Null,
            Some(value) if format(at) == 0 => {
                Parameter::Text(String::from_utf8_lossy(value).into_owned())
            }
            Some(value) => Parameter::Binary {
                bytes: Bytes::copy_from_slice(value),
                oid: self.types.get(at).copied().filter(|&oid| oid != 0),
            },
        };
        SentStatement {
            text: self.text.clone(),
            parameters: bind.parameters.iter().enumerate().map(parameter).collect(),
            formats: bind.result_formats.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};

    use super::*;

    fn bind(out: &mut BytesMut, statement: &[u8], values: &[(u16, Option<&[u8]>)]) {
        let mut body = BytesMut::new();
        body.put_slice(b"\0");
        body.put_slice(statement);
        body.put_u8(0);
        body.put_u16(values.len() as u16);
        values.iter().for_each(|(format, _)| body.put_u16(*format));
        body.put_u16(values.len() as u16);
        for (_, value) in values {
            body.put_i32(value.map_or(-1, |value| value.len() as i32));
            body.put_slice(value.unwrap_or_default());
        }
        body.put_u16(0);
        out.put_u8(client::BIND);
        out.put_u32(body.len() as u32 + 4);
        out.put_slice(&body);
    }

    fn execute(out: &mut BytesMut) {
        out.put_slice(b"E\0\0\0\x09\0\0\0\0\0");
    }

    #[test]
    fn statements_come_with_their_values() {
        let mut sent = BytesMut::new();
        client::query(&mut sent, b"BEGIN; SELECT 'a' -- all\n");
        Parse {
            name: b"s",
            text: b"SELECT $1, $2, $3",
            types: &[0, 2, 0, 0, 0, 23, 0, 0, 0, 0],
        }
        .build(&mut sent);
        bind(
            &mut sent,
            b"s",
            &[(1, Some(&[0, 0, 0, 7])), (0, Some(b"x")), (0, None)],
        );
        execute(&mut sent);
        bind(&mut sent, b"elsewhere", &[(1, Some(&[1]))]);
        execute(&mut sent);
        let statement = |text: &str, parameters| SentStatement {
            text: text.to_owned(),
            parameters,
            formats: Formats::Text,
        };
        let binary = |bytes: &'static [u8], oid| Parameter::Binary {
            bytes: Bytes::from_static(bytes),
            oid,
        };
        let seven = binary(&[0, 0, 0, 7], Some(23));
        let three = vec![seven, Parameter::Text("x".to_owned()), Parameter::Null];
        let expected = [
            statement("BEGIN", vec![]),
            statement("SELECT 'a'", vec![]),
            statement("SELECT $1, $2, $3", three),
            statement("", vec![binary(&[1], None)]),
        ];
        assert_eq!(statements(&sent), expected);
        // What is cut off or no message at all is passed over.
        assert_eq!(statements(&sent[..sent.len() - 3]).len(), 3);
        assert!(statements(b"\xff\xff\xff\xff\xff\xff").is_empty());
    }
}
