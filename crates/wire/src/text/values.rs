//! One value, from binary to text.

use std::io::Write;

use super::numbers::{float4, float8, numeric, put};
use super::{Settings, times};
use crate::message::Body;

/// How a type's binary values become text. Types whose binary values are their text, and those that
/// are not known here, have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Bool,
    Int2,
    Int4,
    Int8,
    /// `oid`, `xid`, `cid`: 32 bits without a sign.
    Oid,
    /// `xid8`.
    Xid8,
    Float4,
    Float8,
    Numeric,
    /// Text as it is: of interest within arrays only.
    Text,
    Bytea,
    Uuid,
    Date,
    Time,
    TimeTz,
    Timestamp,
    TimestampTz,
    Interval,
    Jsonb,
    Point,
    Box,
    /// What its elements are, a value says itself.
    Array,
}

impl Type {
    pub fn of(oid: u32) -> Option<Self> {
        match Self::scalar(oid)? {
            Self::Text => None,
            known => Some(known),
        }
    }

    /// The types that Postgres has from its beginning have the same numbers in every server.
    fn scalar(oid: u32) -> Option<Self> {
        Some(match oid {
            16 => Self::Bool,
            17 => Self::Bytea,
            19 | 25 | 114 | 705 | 1042 | 1043 => Self::Text,
            20 => Self::Int8,
            21 => Self::Int2,
            23 => Self::Int4,
            26 | 28 | 29 => Self::Oid,
            600 => Self::Point,
            603 => Self::Box,
            700 => Self::Float4,
            701 => Self::Float8,
            1082 => Self::Date,
            1083 => Self::Time,
            1114 => Self::Timestamp,
            1184 => Self::TimestampTz,
            1186 => Self::Interval,
            1266 => Self::TimeTz,
            1700 => Self::Numeric,
            2950 => Self::Uuid,
            3802 => Self::Jsonb,
            5069 => Self::Xid8,
            // bool, bytea, name, int2, int4, text, xid, cid, bpchar, varchar, int8, point, box,
            // float4, float8, oid, timestamp, date, time, timestamptz, interval, numeric, timetz,
            // json, jsonb, uuid, xid8
            1000
            | 1001
            | 1003
            | 1005
            | 1007
            | 1009
            | 1011
            | 1012
            | 1014..=1017
            | 1020..=1022
            | 1028
            | 1115
            | 1182
            | 1183
            | 1185
            | 1187
            | 1231
            | 1270
            | 199
            | 3807
            | 2951
            | 271 => Self::Array,
            _ => return None,
        })
    }

    /// Appends the text of a binary value. False if it is not known; then what was appended is to
    /// be taken back.
    pub fn write(self, value: &[u8], settings: &Settings, out: &mut Vec<u8>) -> bool {
        self.try_write(value, settings, out).is_some()
    }

    fn try_write(self, value: &[u8], settings: &Settings, out: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Bool => out.push(if *whole::<1>(value)? == [0] {
                b'f'
            } else {
                b't'
            }),
            Self::Int2 => put!(out, "{}", i16::from_be_bytes(*whole(value)?)),
            Self::Int4 => put!(out, "{}", i32::from_be_bytes(*whole(value)?)),
            Self::Int8 => put!(out, "{}", i64::from_be_bytes(*whole(value)?)),
            Self::Oid => put!(out, "{}", u32::from_be_bytes(*whole(value)?)),
            Self::Xid8 => put!(out, "{}", u64::from_be_bytes(*whole(value)?)),
            Self::Float4 => float4(f32::from_be_bytes(*whole(value)?), out),
            Self::Float8 => float8(f64::from_be_bytes(*whole(value)?), out),
            Self::Numeric => return numeric(value, out).then_some(()),
            Self::Text => out.extend_from_slice(value),
            Self::Bytea => {
                out.extend_from_slice(b"\\x");
                hex(value, out);
            }
            Self::Uuid => uuid(whole(value)?, out),
            Self::Jsonb => out.extend_from_slice(value.strip_prefix(&[1])?),
            Self::Point => point(whole(value)?, out),
            Self::Box => {
                let (high, low) = value.split_first_chunk::<16>()?;
                point(high, out);
                out.push(b',');
                point(whole(low)?, out);
            }
            Self::Array => return array(value, settings, out),
            Self::Date
            | Self::Time
            | Self::TimeTz
            | Self::Timestamp
            | Self::TimestampTz
            | Self::Interval => return self.time(value, settings, out),
        }
        Some(())
    }

    fn time(self, value: &[u8], settings: &Settings, out: &mut Vec<u8>) -> Option<()> {
        let known = match self {
            Self::Interval => settings.postgres_intervals,
            Self::Time | Self::TimeTz => true,
            _ => settings.iso_dates,
        };
        match self {
            _ if !known => return None,
            Self::Date => times::date(i32::from_be_bytes(*whole(value)?), out),
            Self::Time => times::time(i64::from_be_bytes(*whole(value)?), out),
            Self::TimeTz => {
                let (micros, zone) = value.split_first_chunk()?;
                times::time(i64::from_be_bytes(*micros), out);
                times::zone(-i64::from(i32::from_be_bytes(*whole(zone)?)), out);
            }
            Self::Timestamp | Self::TimestampTz => {
                let settings = (self == Self::TimestampTz).then_some(settings);
                let micros = i64::from_be_bytes(*whole(value)?);
                return times::timestamp(micros, settings, out).then_some(());
            }
            _ => {
                let (micros, rest) = value.split_first_chunk()?;
                let (days, months) = rest.split_first_chunk()?;
                let [days, months] = [days, whole(months)?].map(|one| i32::from_be_bytes(*one));
                times::interval(i64::from_be_bytes(*micros), days, months, out);
            }
        }
        Some(())
    }

    /// What is between the elements of its arrays.
    fn delimiter(self) -> u8 {
        if self == Self::Box { b';' } else { b',' }
    }
}

fn whole<const N: usize>(value: &[u8]) -> Option<&[u8; N]> {
    value.try_into().ok()
}

fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
    let digits = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
    out.extend(bytes.iter().flat_map(digits));
}

fn uuid(bytes: &[u8; 16], out: &mut Vec<u8>) {
    let mut rest = &bytes[..];
    for length in [4, 2, 2, 2, 6] {
        let (part, behind) = rest.split_at(length);
        if length != 4 {
            out.push(b'-');
        }
        hex(part, out);
        rest = behind;
    }
}

fn point(value: &[u8; 16], out: &mut Vec<u8>) {
    let (numbers, _) = value.as_chunks();
    let [x, y] = [numbers[0], numbers[1]].map(f64::from_be_bytes);
    out.push(b'(');
    float8(x, out);
    out.push(b',');
    float8(y, out);
    out.push(b')');
}

/// As many as Postgres allows.
const DIMENSIONS_MAX: u32 = 6;

fn array(value: &[u8], settings: &Settings, out: &mut Vec<u8>) -> Option<()> {
    let mut rest = Body::new(value);
    let dimensions = rest.u32("").ok().filter(|&count| count <= DIMENSIONS_MAX)?;
    let _has_nulls = rest.u32("").ok()?;
    let of = Type::scalar(rest.u32("").ok()?).filter(|of| *of != Type::Array)?;
    let mut lengths = Vec::new();
    let (mut bounds, mut needs_bounds) = (Vec::new(), false);
    for _ in 0..dimensions {
        let length = i64::from(rest.u32("").ok()? as i32);
        let lower = i64::from(rest.u32("").ok()? as i32);
        put!(bounds, "[{lower}:{}]", lower + length - 1);
        needs_bounds |= lower != 1;
        lengths.push(usize::try_from(length).ok().filter(|&length| length > 0)?);
    }
    if needs_bounds {
        out.extend_from_slice(&bounds);
        out.push(b'=');
    }
    if lengths.is_empty() {
        out.extend_from_slice(b"{}");
    } else {
        elements(of, &lengths, &mut rest, settings, out)?;
    }
    rest.end().ok()
}

/// The elements of one dimension, and of those within it.
fn elements(
    of: Type,
    lengths: &[usize],
    rest: &mut Body<'_>,
    settings: &Settings,
    out: &mut Vec<u8>,
) -> Option<()> {
    let (&length, within) = lengths.split_first()?;
    out.push(b'{');
    for nth in 0..length {
        if nth > 0 {
            out.push(of.delimiter());
        }
        if !within.is_empty() {
            elements(of, within, rest, settings, out)?;
            continue;
        }
        match rest.value().ok()? {
            None => out.extend_from_slice(b"NULL"),
            Some(value) => {
                let start = out.len();
                of.try_write(value, settings, out)?;
                quote(start, of.delimiter(), out);
            }
        }
    }
    out.push(b'}');
    Some(())
}

/// Quotes what was written from there on, if it would not be read as an element otherwise.
fn quote(start: usize, delimiter: u8, out: &mut Vec<u8>) {
    let is_special = |byte: &u8| {
        matches!(byte, b'"' | b'\\' | b'{' | b'}' | b' ' | b'\t'..=b'\r') || *byte == delimiter
    };
    let text = &out[start..];
    if !text.is_empty() && !text.eq_ignore_ascii_case(b"NULL") && !text.iter().any(is_special) {
        return;
    }
    let text = out.split_off(start);
    out.push(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}
