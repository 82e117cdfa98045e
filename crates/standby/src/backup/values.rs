//! Values on their way into statements: columns as binary arrays, rows as lines of `COPY`.
//!
//! The log carries every value as text. Types whose text can be turned into their binary form
//! without a doubt travel as arrays of that type, which spares the server the parsing; all others
//! travel as `text[]`, and the statement casts each element.

/// How a column's values travel in an array parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wire {
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Float4,
    Float8,
    Uuid,
    Bytea,
    Text,
    Varchar,
    Bpchar,
    Json,
    Jsonb,
    /// As text, cast by the statement.
    Cast,
}

/// A value is not one of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {wire:?}")]
pub struct Unreadable {
    text: String,
    wire: Wire,
}

impl Wire {
    /// For a type, by oid.
    pub fn of(type_oid: u32) -> Self {
        match type_oid {
            16 => Wire::Bool,
            17 => Wire::Bytea,
            20 => Wire::Int8,
            21 => Wire::Int2,
            23 => Wire::Int4,
            25 => Wire::Text,
            26 => Wire::Oid,
            114 => Wire::Json,
            700 => Wire::Float4,
            701 => Wire::Float8,
            1042 => Wire::Bpchar,
            1043 => Wire::Varchar,
            2950 => Wire::Uuid,
            3802 => Wire::Jsonb,
            _ => Wire::Cast,
        }
    }

    fn element_oid(self) -> u32 {
        match self {
            Wire::Bool => 16,
            Wire::Bytea => 17,
            Wire::Int8 => 20,
            Wire::Int2 => 21,
            Wire::Int4 => 23,
            Wire::Text | Wire::Cast => 25,
            Wire::Oid => 26,
            Wire::Json => 114,
            Wire::Float4 => 700,
            Wire::Float8 => 701,
            Wire::Bpchar => 1042,
            Wire::Varchar => 1043,
            Wire::Uuid => 2950,
            Wire::Jsonb => 3802,
        }
    }

    /// The type of the array.
    pub fn array_sql(self) -> &'static str {
        match self {
            Wire::Bool => "bool[]",
            Wire::Bytea => "bytea[]",
            Wire::Int8 => "int8[]",
            Wire::Int2 => "int2[]",
            Wire::Int4 => "int4[]",
            Wire::Text | Wire::Cast => "text[]",
            Wire::Oid => "oid[]",
            Wire::Json => "json[]",
            Wire::Float4 => "float4[]",
            Wire::Float8 => "float8[]",
            Wire::Bpchar => "bpchar[]",
            Wire::Varchar => "varchar[]",
            Wire::Uuid => "uuid[]",
            Wire::Jsonb => "jsonb[]",
        }
    }

    /// Whether it is an integer, of which keys are often made: they are put in numeric order.
    pub fn is_integer(self) -> bool {
        matches!(self, Wire::Int2 | Wire::Int4 | Wire::Int8 | Wire::Oid)
    }

    /// Appends a value's binary form.
    ///
    /// # Errors
    /// If the text is not of this type.
    pub fn encode(self, text: &[u8], out: &mut Vec<u8>) -> Result<(), Unreadable> {
        self.try_encode(text, out).ok_or_else(|| Unreadable {
            text: String::from_utf8_lossy(&text[..text.len().min(100)]).into_owned(),
            wire: self,
        })
    }

    fn try_encode(self, text: &[u8], out: &mut Vec<u8>) -> Option<()> {
        match self {
            Wire::Text | Wire::Cast | Wire::Varchar | Wire::Bpchar | Wire::Json => {
                out.extend_from_slice(text);
            }
            Wire::Jsonb => {
                // The version of the format.
                out.push(1);
                out.extend_from_slice(text);
            }
            Wire::Bool => out.push(match text {
                b"t" => 1,
                b"f" => 0,
                _ => return None,
            }),
            Wire::Int2 => out.extend_from_slice(&i16::try_from(integer(text)?).ok()?.to_be_bytes()),
            Wire::Int4 => out.extend_from_slice(&i32::try_from(integer(text)?).ok()?.to_be_bytes()),
            Wire::Int8 => out.extend_from_slice(&integer(text)?.to_be_bytes()),
            Wire::Oid => out.extend_from_slice(&u32::try_from(integer(text)?).ok()?.to_be_bytes()),
            Wire::Float4 => {
                let value: f32 = std::str::from_utf8(text).ok()?.parse().ok()?;
                out.extend_from_slice(&value.to_be_bytes());
            }
            Wire::Float8 => {
                let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
                out.extend_from_slice(&value.to_be_bytes());
            }
            Wire::Uuid => {
                let before = out.len();
                let mut digits = text.iter().filter(|&&digit| digit != b'-');
                while let Some(&high) = digits.next() {
                    out.push(nibble(high)? << 4 | nibble(*digits.next()?)?);
                }
                if out.len() != before + 16 {
                    return None;
                }
            }
            Wire::Bytea => {
                let (pairs, rest) = text.strip_prefix(b"\\x")?.as_chunks::<2>();
                if !rest.is_empty() {
                    return None;
                }
                out.reserve(pairs.len());
                for &[high, low] in pairs {
                    out.push(nibble(high)? << 4 | nibble(low)?);
                }
            }
        }
        Some(())
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// A decimal integer as Postgres writes it.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value: i64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // Counted downwards: the least integer has no positive counterpart.
        value = value
            .checked_mul(10)?
            .checked_sub(i64::from(digit - b'0'))?;
    }
    match negative {
        true => Some(value),
        false => value.checked_neg(),
    }
}

/// The binary form of an array with these elements; `None` is NULL.
///
/// # Errors
/// If an element is not of the type.
pub fn array<'a>(
    wire: Wire,
    elements: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
) -> Result<Vec<u8>, Unreadable> {
    let count = i32::try_from(elements.len()).expect("batches are cut long before 2^31 rows");
    let mut out = Vec::with_capacity(20 + elements.len() * 12);
    let mut nulls = false;
    for header in [1, 0, wire.element_oid().cast_signed(), count, 1] {
        out.extend_from_slice(&header.to_be_bytes());
    }
    for element in elements {
        let Some(text) = element else {
            nulls = true;
            out.extend_from_slice(&(-1_i32).to_be_bytes());
            continue;
        };
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        wire.encode(text, &mut out)?;
        let length = i32::try_from(out.len() - start - 4).expect("values are smaller than 1 GB");
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
    out[4..8].copy_from_slice(&i32::from(nulls).to_be_bytes());
    Ok(out)
}

/// The text form of an array with these elements; `None` is NULL.
pub fn array_text<'a>(elements: impl Iterator<Item = Option<&'a [u8]>>) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (at, element) in elements.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let Some(text) = element else {
            out.extend_from_slice(b"NULL");
            continue;
        };
        out.push(b'"');
        for &byte in text {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(byte);
        }
        out.push(b'"');
    }
    out.push(b'}');
    out
}

/// Appends a value in the text format of `COPY`.
pub fn copy_value(value: Option<&[u8]>, out: &mut Vec<u8>) {
    let Some(text) = value else {
        out.extend_from_slice(b"\\N");
        return;
    };
    let mut rest = text;
    while let Some(at) = rest
        .iter()
        .position(|byte| matches!(byte, b'\\' | b'\t' | b'\n' | b'\r'))
    {
        out.extend_from_slice(&rest[..at]);
        out.push(b'\\');
        out.push(match rest[at] {
            b'\t' => b't',
            b'\n' => b'n',
            b'\r' => b'r',
            other => other,
        });
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(wire: Wire, text: &str) -> Result<Vec<u8>, Unreadable> {
        let mut out = Vec::new();
        wire.encode(text.as_bytes(), &mut out).map(|()| out)
    }

    #[test]
    fn integers_are_read_to_their_limits() {
        for value in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(integer(value.to_string().as_bytes()), Some(value));
        }
        for text in ["", "-", "1.0", "9223372036854775808", "1 "] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(encoded(Wire::Oid, "4294967295").unwrap(), [0xFF; 4]);
        assert!(encoded(Wire::Int2, "32768").is_err());
    }

    #[test]
    fn floats_keep_every_bit() {
        for value in [0.1, -0.0, 1e-320, f64::MAX, f64::INFINITY] {
            let text = match value {
                f64::INFINITY => "Infinity".to_owned(),
                value => format!("{value:e}"),
            };
            assert_eq!(encoded(Wire::Float8, &text).unwrap(), value.to_be_bytes());
        }
        assert_eq!(
            encoded(Wire::Float4, "-Infinity").unwrap(),
            f32::NEG_INFINITY.to_be_bytes()
        );
        assert!(encoded(Wire::Float8, "NaN").is_ok());
    }

    #[test]
    fn uuids_and_bytes_are_read_from_hexadecimal() {
        let uuid = encoded(Wire::Uuid, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11").unwrap();
        assert_eq!((uuid.len(), uuid[0], uuid[15]), (16, 0xA0, 0x11));
        assert!(encoded(Wire::Uuid, "a0eebc99").is_err());
        assert_eq!(encoded(Wire::Bytea, "\\x00ff1a").unwrap(), [0, 255, 26]);
        assert_eq!(encoded(Wire::Bytea, "\\x").unwrap(), [0_u8; 0]);
        assert!(encoded(Wire::Bytea, "\\x0").is_err());
    }

    #[test]
    fn arrays_say_whether_they_hold_nulls() {
        let bytes = array(Wire::Int4, [Some(&b"1"[..]), None].into_iter()).unwrap();
        assert_eq!(bytes[4..8], [0, 0, 0, 1]);
        assert_eq!(bytes[20..], [0, 0, 0, 4, 0, 0, 0, 1, 255, 255, 255, 255]);
        let bytes = array(Wire::Text, [Some(&b"ab"[..])].into_iter()).unwrap();
        assert_eq!(bytes[4..8], [0, 0, 0, 0]);
    }

    #[test]
    fn elements_of_a_written_array_cannot_end_it() {
        let elements = [Some(&b"a\"b\\,}"[..]), None, Some(b"NULL"), Some(b"")];
        assert_eq!(
            array_text(elements.into_iter()),
            br#"{"a\"b\\,}",NULL,"NULL",""}"#
        );
        assert_eq!(array_text(std::iter::empty()), b"{}");
    }

    #[test]
    fn copied_values_cannot_end_a_line_or_a_column() {
        let mut out = Vec::new();
        copy_value(Some(b"a\tb\nc\rd\\N"), &mut out);
        assert_eq!(out, b"a\\tb\\nc\\rd\\\\N");
        out.clear();
        copy_value(None, &mut out);
        assert_eq!(out, b"\\N");
    }
}
