//! Statements and the values they were sent with, as one would write them.

use crate::sent::{self, Parameter, SentStatement};

/// A statement as it can be told.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Spoken {
    /// On one line.
    pub text: String,
    /// Of `$1`, `$2` and so on, as one would write them in SQL, where they were kept.
    pub values: Vec<String>,
}

/// The statements of a transaction, by what its client sent if that was kept, or by its shape.
pub fn spoken(sent: Option<&[u8]>, shape: &[String]) -> Vec<Spoken> {
    let sent = sent.map(sent::statements);
    let sent = sent.filter(|sent| sent.len() == shape.len());
    let statement = |(at, normal): (usize, &String)| match &sent {
        Some(sent) if !sent[at].text.is_empty() => Spoken::of(&sent[at]),
        Some(sent) => Spoken {
            text: without_trace(normal),
            ..Spoken::of(&sent[at])
        },
        None => Spoken {
            text: without_trace(normal),
            values: Vec::new(),
        },
    };
    shape.iter().enumerate().map(statement).collect()
}

impl Spoken {
    pub fn of(sent: &SentStatement) -> Self {
        Self {
            text: without_trace(&sent.text),
            values: sent.parameters.iter().map(parameter).collect(),
        }
    }
}

/// On one line, and without the comment that says whose it is.
pub fn without_trace(statement: &str) -> String {
    let comment = statement
        .find("/*")
        .filter(|_| statement.contains("traceparent"));
    let own = &statement[..comment.unwrap_or(statement.len())];
    own.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// As one would write it in SQL. A binary value of a type that the client did not say is taken for
/// a number or a text where it looks like one.
fn parameter(value: &Parameter) -> String {
    let (bytes, oid) = match value {
        Parameter::Null => return "NULL".to_owned(),
        Parameter::Text(text) => return quoted(text),
        Parameter::Binary { bytes, oid } => (bytes, *oid),
    };
    const NUMBERS: [u32; 4] = [20, 21, 23, 26];
    let number = match bytes[..] {
        [a, b] => i64::from(i16::from_be_bytes([a, b])),
        [a, b, c, d] => i64::from(i32::from_be_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => i64::from_be_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    };
    match (oid, bytes.len(), std::str::from_utf8(bytes)) {
        (Some(16), 1, _) => (bytes[0] != 0).to_string(),
        (Some(oid), 2 | 4 | 8, _) if NUMBERS.contains(&oid) => number.to_string(),
        (Some(700), 4, _) => f32::from_bits(number as u32).to_string(),
        (Some(701), 8, _) => f64::from_bits(number as u64).to_string(),
        (_, 16, Err(_)) => uuid(bytes),
        (_, _, Ok(text)) if text.chars().all(|one| !one.is_control()) => quoted(text),
        (None, 2 | 4 | 8, _) => number.to_string(),
        _ => format!(
            "'\\x{}'",
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        ),
    }
}

fn uuid(bytes: &[u8]) -> String {
    let hex = |range: std::ops::Range<usize>| -> String {
        bytes[range]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    };
    let parts = [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)];
    format!("'{}'", parts.join("-"))
}

/// Numbers as they are: most parameters in text are some.
fn quoted(text: &str) -> String {
    match text.parse::<f64>() {
        Ok(_) if text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
            text.to_owned()
        }
        _ => format!("'{}'", text.replace('\'', "''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_as_one_would_write_them() {
        let binary = |bytes: &'static [u8], oid| {
            let bytes = bytes::Bytes::from_static(bytes);
            parameter(&Parameter::Binary { bytes, oid })
        };
        let text = |text: &str| parameter(&Parameter::Text(text.to_owned()));
        assert_eq!(text("it's"), "'it''s'");
        assert_eq!([text("7"), text("-1.5")], ["7", "-1.5"]);
        assert_eq!([text("nan"), text("1 or 2")], ["'nan'", "'1 or 2'"]);
        assert_eq!(parameter(&Parameter::Null), "NULL");
        assert_eq!(binary(&[0, 0, 0, 7], Some(23)), "7");
        assert_eq!(binary(&[0xff, 0xff, 0xff, 0xff], None), "-1");
        assert_eq!(binary(&[1], Some(16)), "true");
        assert_eq!(binary(b"name", Some(25)), "'name'");
        assert_eq!(binary(b"name", None), "'name'");
        assert_eq!(binary(&[0x3f, 0xc0, 0, 0], Some(700)), "1.5");
        assert_eq!(binary(&[0xff, 0, 1], None), "'\\xff0001'");
        let id = b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef";
        assert_eq!(binary(id, None), "'01234567-89ab-cdef-0123-456789abcdef'");
    }
}
