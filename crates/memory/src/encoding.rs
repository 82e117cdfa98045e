//! Values as bytes whose order is the values' own.
//!
//! Two values of a type are equal exactly when their encodings are, and the smaller value has the
//! smaller encoding; encodings of several columns after one another compare as the columns do. So
//! keys can be compared without knowing their types, and everything else that is compared goes the
//! same way. NULL has no encoding: no comparison is true of it.

use std::fmt;

use hindcast_standby::pgoutput::POSTGRES_EPOCH;

/// How a type's values compare, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Bool,
    /// `smallint`, `integer`, `bigint`.
    Int,
    /// Unsigned: `oid`, `xid`.
    Oid,
    /// `real`: compares with `double precision` as the number that it is, not as the one that its
    /// text means there.
    Real,
    /// `double precision`.
    Float,
    Numeric,
    /// `text`, `varchar`: in the order of their bytes, which is the collation `C`.
    Text,
    /// `char(n)`: blanks at the end mean nothing.
    Padded,
    Bytes,
    Uuid,
    Date,
    Time,
    Timestamp,
    TimestampTz,
    /// Values of all other types are equal when their texts are, as far as is known here, and have
    /// no order.
    Other,
}

impl Kind {
    pub fn of(type_oid: u32) -> Self {
        match type_oid {
            16 => Kind::Bool,
            20 | 21 | 23 => Kind::Int,
            26 | 28 => Kind::Oid,
            700 => Kind::Real,
            701 => Kind::Float,
            1700 => Kind::Numeric,
            19 | 25 | 1043 => Kind::Text,
            1042 => Kind::Padded,
            17 => Kind::Bytes,
            2950 => Kind::Uuid,
            1082 => Kind::Date,
            1083 => Kind::Time,
            1114 => Kind::Timestamp,
            1184 => Kind::TimestampTz,
            _ => Kind::Other,
        }
    }

    /// Whether `<` can be answered.
    pub fn is_ordered(self) -> bool {
        self != Kind::Other
    }

    /// Whether the order depends on a collation.
    pub fn is_collated(self) -> bool {
        matches!(self, Kind::Text | Kind::Padded)
    }
}

/// A text that is no value of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid input syntax for type {}: {text:?}", name(*.kind))]
pub struct Invalid {
    pub kind: Kind,
    pub text: String,
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "boolean",
        Kind::Int => "bigint",
        Kind::Oid => "oid",
        Kind::Real => "real",
        Kind::Float => "double precision",
        Kind::Numeric => "numeric",
        Kind::Text | Kind::Padded | Kind::Other => "text",
        Kind::Bytes => "bytea",
        Kind::Uuid => "uuid",
        Kind::Date => "date",
        Kind::Time => "time",
        Kind::Timestamp => "timestamp",
        Kind::TimestampTz => "timestamp with time zone",
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name(*self))
    }
}

/// Appends the encoding of a value in text form.
pub fn encode(kind: Kind, text: &[u8], out: &mut Vec<u8>) -> Result<(), Invalid> {
    let invalid = || Invalid {
        kind,
        text: String::from_utf8_lossy(text).into_owned(),
    };
    let trimmed = || {
        std::str::from_utf8(text)
            .map(str::trim)
            .unwrap_or("\u{fffd}")
    };
    match kind {
        Kind::Bool => out.push(match trimmed().to_ascii_lowercase().as_str() {
            "t" | "tr" | "tru" | "true" | "y" | "ye" | "yes" | "on" | "1" => 1,
            "f" | "fa" | "fal" | "fals" | "false" | "n" | "no" | "of" | "off" | "0" => 0,
            _ => return Err(invalid()),
        }),
        Kind::Int => signed(parse_int(text).ok_or_else(invalid)?, out),
        Kind::Oid => {
            let value: u32 = trimmed().parse().map_err(|_| invalid())?;
            out.extend_from_slice(&value.to_be_bytes());
        }
        Kind::Real => float(parse_real(trimmed()).ok_or_else(invalid)?.into(), out),
        Kind::Float => float(parse_float(trimmed()).ok_or_else(invalid)?, out),
        Kind::Numeric => numeric(trimmed(), out).ok_or_else(invalid)?,
        Kind::Text | Kind::Other => terminated(text, out),
        Kind::Padded => {
            let end = text.iter().rposition(|&byte| byte != b' ');
            terminated(&text[..end.map_or(0, |end| end + 1)], out);
        }
        Kind::Bytes => terminated(&parse_bytes(text).ok_or_else(invalid)?, out),
        Kind::Uuid => out.extend_from_slice(&parse_uuid(trimmed()).ok_or_else(invalid)?),
        Kind::Date => signed(parse_date(trimmed()).ok_or_else(invalid)?, out),
        Kind::Time => signed(parse_time(trimmed()).ok_or_else(invalid)?, out),
        Kind::Timestamp => signed(parse_zoned(trimmed(), false).ok_or_else(invalid)?, out),
        Kind::TimestampTz => signed(parse_zoned(trimmed(), true).ok_or_else(invalid)?, out),
    }
    Ok(())
}

fn signed(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&(value.cast_unsigned() ^ (1 << 63)).to_be_bytes());
}

/// Zero bytes are escaped, so that the end is less than whatever could follow.
fn terminated(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

/// What the log sends has no blanks and no plus sign; what users write may.
fn parse_int(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

pub fn parse_float(text: &str) -> Option<f64> {
    match text.to_ascii_lowercase().as_str() {
        "nan" => Some(f64::NAN),
        "infinity" | "inf" | "+infinity" => Some(f64::INFINITY),
        "-infinity" | "-inf" => Some(f64::NEG_INFINITY),
        other => other.parse().ok().filter(|value: &f64| value.is_finite()),
    }
}

pub fn parse_real(text: &str) -> Option<f32> {
    let wide = parse_float(text)?;
    match wide.is_finite() {
        // By way of `double precision` it would be rounded twice.
        true => text.parse().ok().filter(|value: &f32| value.is_finite()),
        false => Some(wide as f32),
    }
}

/// As Postgres has it: NaN equals itself and is greater than everything; both zeros are one.
fn float(value: f64, out: &mut Vec<u8>) {
    let value = if value == 0.0 { 0.0 } else { value };
    let bits = if value.is_nan() {
        f64::NAN.to_bits() & !(1 << 63)
    } else {
        value.to_bits()
    };
    let ordered = match bits >> 63 {
        0 => bits | (1 << 63),
        _ => !bits,
    };
    out.extend_from_slice(&ordered.to_be_bytes());
}

/// Sign, decimal exponent, digits: all turned over for negative numbers.
fn numeric(text: &str, out: &mut Vec<u8>) -> Option<()> {
    match text.to_ascii_lowercase().as_str() {
        "nan" => {
            out.push(5);
            return Some(());
        }
        "infinity" | "inf" | "+infinity" => {
            out.push(4);
            return Some(());
        }
        "-infinity" | "-inf" => {
            out.push(0);
            return Some(());
        }
        _ => {}
    }
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, exponent) = match digits.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    if all.is_empty() || !all.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let Some(first) = all.iter().position(|&digit| digit != b'0') else {
        out.push(2);
        return Some(());
    };
    let last = all.iter().rposition(|&digit| digit != b'0')?;
    let point = i32::try_from(whole.len()).ok()? - i32::try_from(first).ok()?;
    let exponent = point.checked_add(exponent)?;
    let start = out.len();
    out.push(3);
    out.extend_from_slice(&(exponent.cast_unsigned() ^ (1 << 31)).to_be_bytes());
    out.extend_from_slice(&all[first..=last]);
    out.push(0);
    if negative {
        out[start] = 1;
        out[start + 1..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    Some(())
}

/// `\x` and hex digits, or anything else as it is, where a backslash begins an octal escape.
pub fn parse_bytes(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    if let Some(hex) = text.strip_prefix(b"\\x") {
        if hex.len() % 2 != 0 {
            return None;
        }
        return hex
            .chunks_exact(2)
            .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
            .collect();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match after {
            [b'\\', after @ ..] => {
                bytes.push(b'\\');
                rest = after;
            }
            [
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                after @ ..,
            ] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => return None,
        }
    }
    Some(bytes)
}

pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let text = text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'))
        .unwrap_or(text);
    let mut bytes = [0; 16];
    let mut digits = text.chars().filter(|&c| c != '-').map(|c| c.to_digit(16));
    for byte in &mut bytes {
        *byte = (digits.next()?? << 4 | digits.next()??) as u8;
    }
    digits.next().is_none().then_some(bytes)
}

const DAY: i64 = 86_400_000_000;

/// Days since 1970.
fn parse_date(text: &str) -> Option<i64> {
    match text.to_ascii_lowercase().as_str() {
        "infinity" => return Some(i64::MAX),
        "-infinity" => return Some(i64::MIN),
        _ => {}
    }
    let (text, before_christ) = match text.strip_suffix(" BC") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let mut parts = text.splitn(3, '-');
    let mut number = || parts.next()?.parse::<i64>().ok();
    let (year, month, day) = (number()?, number()?, number()?);
    if !(1..=12).contains(&month)
        || !(1..=days_of(year, month, before_christ)).contains(&day)
        || year < 1
    {
        return None;
    }
    let year = if before_christ { 1 - year } else { year };
    Some(days(year, month, day))
}

fn days_of(year: i64, month: i64, before_christ: bool) -> i64 {
    let year = if before_christ { 1 - year } else { year };
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970 in the Gregorian calendar without a beginning (Howard Hinnant's
/// `days_from_civil`).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Microseconds since midnight.
fn parse_time(text: &str) -> Option<i64> {
    let (text, micros) = match text.split_once('.') {
        Some((text, fraction)) => (text, parse_fraction(fraction)?),
        None => (text, 0),
    };
    let mut parts = text.split(':');
    let mut number = || parts.next()?.parse::<i64>().ok();
    let (hours, minutes) = (number()?, number()?);
    let seconds = match parts.next() {
        Some(seconds) => seconds.parse::<i64>().ok()?,
        None => 0,
    };
    let fits =
        (0..=24).contains(&hours) && (0..60).contains(&minutes) && (0..=60).contains(&seconds);
    (fits && parts.next().is_none())
        .then_some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros)
}

fn parse_fraction(text: &str) -> Option<i64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (kept, more) = text.split_at(text.len().min(6));
    let value = kept.parse::<i64>().ok()? * 10_i64.pow(6 - kept.len() as u32);
    let up = more.bytes().next().is_some_and(|digit| digit >= b'5');
    Some(value + i64::from(up))
}

/// Microseconds since 1970; a zone is subtracted, and none is UTC. `2026-11-21 10:15:00.5+02`,
/// `…T10:15Z`, `44-03-15 12:00:00 BC`, a day alone.
pub fn parse_timestamp(text: &str) -> Option<i64> {
    match parse_zoned(text, true)? {
        infinite @ (i64::MAX | i64::MIN) => Some(infinite),
        since_2000 => since_2000.checked_add(POSTGRES_EPOCH),
    }
}

/// Microseconds since 2000: counted from 1970 the last timestamps would not fit.
/// Where a type has no zone, one that is given means nothing.
fn parse_zoned(text: &str, zone_counts: bool) -> Option<i64> {
    match text.to_ascii_lowercase().as_str() {
        "infinity" => return Some(i64::MAX),
        "-infinity" => return Some(i64::MIN),
        _ => {}
    }
    let (text, era) = match text.strip_suffix(" BC") {
        Some(text) => (text, " BC"),
        None => (text, ""),
    };
    let Some((date, time)) = text.split_once([' ', 'T']) else {
        return match parse_date(&format!("{text}{era}"))? {
            infinite @ (i64::MAX | i64::MIN) => Some(infinite),
            days => days.checked_sub(POSTGRES_EPOCH / DAY)?.checked_mul(DAY),
        };
    };
    let date = parse_date(&format!("{date}{era}"))?.checked_sub(POSTGRES_EPOCH / DAY)?;
    let time = time.trim();
    let (time, zone) = match time.find(['+', '-', 'Z']) {
        Some(at) => (&time[..at], parse_zone(&time[at..])?),
        None => (time, 0),
    };
    date.checked_mul(DAY)?
        .checked_add(parse_time(time.trim())?)?
        .checked_sub(if zone_counts { zone } else { 0 })
}

/// `+02`, `-05:30`, `+00:19:32`, `Z`, in microseconds east of Greenwich.
fn parse_zone(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let (sign, text) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    // Without colons: +0530.
    let with_colon = match text.split_at_checked(2) {
        Some((hours, minutes)) if text.len() == 4 => format!("{hours}:{minutes}"),
        _ => text.to_owned(),
    };
    let mut seconds = 0;
    for (part, unit) in with_colon.split(':').zip([3600, 60, 1]) {
        if part.is_empty() || part.len() > 2 {
            return None;
        }
        seconds += part.parse::<i64>().ok()? * unit;
    }
    Some(sign * seconds * 1_000_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(kind: Kind, text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        encode(kind, text.as_bytes(), &mut out).unwrap_or_else(|error| panic!("{error}"));
        out
    }

    /// Each list is in ascending order, as Postgres sorts it.
    #[test]
    fn encodings_are_in_the_order_of_the_values() {
        let lists: [(Kind, &[&str]); 13] = [
            (
                Kind::Real,
                &[
                    "-Infinity",
                    "-1",
                    "0",
                    "1e-10",
                    "0.1",
                    "1e+10",
                    "Infinity",
                    "NaN",
                ],
            ),
            (Kind::Bool, &["f", "t"]),
            (
                Kind::Int,
                &[
                    "-9223372036854775808",
                    "-1",
                    "0",
                    "9",
                    "10",
                    "9223372036854775807",
                ],
            ),
            (Kind::Oid, &["0", "9", "10", "4294967295"]),
            (
                Kind::Float,
                &[
                    "-Infinity",
                    "-1e300",
                    "-1",
                    "0",
                    "1e-300",
                    "1",
                    "2",
                    "Infinity",
                    "NaN",
                ],
            ),
            (
                Kind::Numeric,
                &[
                    "-Infinity",
                    "-100",
                    "-10.5",
                    "-10.25",
                    "-1",
                    "-0.001",
                    "0",
                    "0.0005",
                    "0.001",
                    "0.9",
                    "1",
                    "1.01",
                    "1.1",
                    "9",
                    "10",
                    "1e20",
                    "Infinity",
                    "NaN",
                ],
            ),
            (Kind::Text, &["", "B", "Ba", "a", "a ", "aa", "ä"]),
            (
                Kind::Bytes,
                &["\\x", "\\x00", "\\x0000", "\\x0001", "\\x01", "\\xff"],
            ),
            (
                Kind::Uuid,
                &[
                    "00000000-0000-0000-0000-000000000001",
                    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                ],
            ),
            (
                Kind::Date,
                &[
                    "-infinity",
                    "0044-03-15 BC",
                    "0001-01-01",
                    "1969-12-31",
                    "1970-01-01",
                    "2024-02-29",
                    "10000-01-01",
                    "infinity",
                ],
            ),
            (
                Kind::Time,
                &[
                    "00:00:00",
                    "00:00:00.000001",
                    "09:59:59",
                    "10:00:00",
                    "24:00:00",
                ],
            ),
            (
                Kind::Timestamp,
                &[
                    "-infinity",
                    "0044-03-15 12:00:00 BC",
                    "2026-11-21 10:15:00",
                    "2026-11-21 10:15:00.5",
                    "294276-12-31 23:59:59.999999",
                    "infinity",
                ],
            ),
            (
                Kind::TimestampTz,
                &[
                    "2026-11-21 10:15:00+02",
                    "2026-11-21 10:15:00+00",
                    "2026-11-21 10:15:00-05:30",
                ],
            ),
        ];
        for (kind, list) in lists {
            for pair in list.windows(2) {
                assert!(
                    encoded(kind, pair[0]) < encoded(kind, pair[1]),
                    "{kind}: {pair:?}"
                );
            }
        }
    }

    #[test]
    fn equal_values_are_equal_however_they_are_written() {
        for (kind, one, other) in [
            (Kind::Numeric, "1", "1.000"),
            (Kind::Numeric, "-0", "0.00"),
            (Kind::Numeric, "1200", "1.2e3"),
            (Kind::Float, "-0", "0"),
            (Kind::Float, "1", "1.0"),
            (Kind::Padded, "ab", "ab   "),
            (Kind::Bytes, "\\x41", "A"),
            (
                Kind::Uuid,
                "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
                "{a0eebc999c0b4ef8bb6d6bb9bd380a11}",
            ),
            (
                Kind::TimestampTz,
                "2026-11-21 10:15:00+02",
                "2026-11-21T08:15:00Z",
            ),
            (Kind::Timestamp, "2026-11-21", "2026-11-21 00:00:00"),
            (
                Kind::TimestampTz,
                "2026-11-21 10:15:00+0530",
                "2026-11-21 04:45:00+00",
            ),
        ] {
            assert_eq!(encoded(kind, one), encoded(kind, other), "{one} {other}");
        }
        assert_ne!(encoded(Kind::Text, "ab"), encoded(Kind::Text, "ab "));
        // Numbers that are the same in both types, and one that is not.
        assert_eq!(encoded(Kind::Real, "0.5"), encoded(Kind::Float, "0.5"));
        assert!(encoded(Kind::Real, "0.1") > encoded(Kind::Float, "0.1"));
        assert_eq!(
            encoded(Kind::Timestamp, "2026-11-21 10:00+02"),
            encoded(Kind::Timestamp, "2026-11-21 10:00:00")
        );
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for (kind, text) in [
            (Kind::Int, "1.5"),
            (Kind::Int, "x"),
            (Kind::Bool, "maybe"),
            (Kind::Numeric, "1..2"),
            (Kind::Numeric, ""),
            (Kind::Date, "2023-02-29"),
            (Kind::Uuid, "a0eebc99"),
            (Kind::Bytes, "\\x1"),
            (Kind::Timestamp, "2026-11-21 25:00:00"),
        ] {
            assert!(
                encode(kind, text.as_bytes(), &mut Vec::new()).is_err(),
                "{kind} {text}"
            );
        }
    }

    proptest! {
        #[test]
        fn keys_of_several_columns_compare_column_by_column(
            a in (".{0,6}", any::<i64>()), b in (".{0,6}", any::<i64>()),
        ) {
            let key = |(text, number): &(String, i64)| {
                let mut out = encoded(Kind::Text, text);
                out.extend(encoded(Kind::Int, &number.to_string()));
                out
            };
            prop_assert_eq!(key(&a).cmp(&key(&b)), (a.0.as_bytes(), a.1).cmp(&(b.0.as_bytes(), b.1)));
        }

        #[test]
        fn decimals_compare_as_the_numbers_do(a in -1_000_000_i64..1_000_000, b in -1_000_000_i64..1_000_000, scale in 0_u32..5) {
            let text = |value: i64| {
                let unit = 10_i64.pow(scale);
                let sign = if value < 0 { "-" } else { "" };
                match scale {
                    0 => format!("{value}"),
                    _ => format!("{sign}{}.{:0width$}", value.abs() / unit, value.abs() % unit, width = scale as usize),
                }
            };
            let (one, other) = (encoded(Kind::Numeric, &text(a)), encoded(Kind::Numeric, &text(b)));
            prop_assert_eq!(one.cmp(&other), a.cmp(&b));
        }

        #[test]
        fn any_text_is_a_value_or_an_error(text in prop::collection::vec(any::<u8>(), 0..24)) {
            for kind in [Kind::Int, Kind::Float, Kind::Numeric, Kind::Bytes, Kind::Uuid, Kind::Date, Kind::Time, Kind::TimestampTz] {
                let _ = encode(kind, &text, &mut Vec::new());
            }
        }
    }
}
