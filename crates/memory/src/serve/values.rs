//! Values in binary form: what clients ask for and send that know types.
//!
//! The store has text, and so have conditions; this is where the other form begins and ends.

use bytes::{Buf, BufMut};

use crate::encoding::{Kind, encode, parse_bytes, parse_float, parse_uuid};

use super::arrays::{self, element_of};
use super::sql::SqlError;

/// Microseconds and days from 1970, where text begins to count here, to 2000, where binary values
/// do.
const EPOCH_DAYS: i64 = 10_957;
const DAY: i64 = 86_400_000_000;
const EPOCH: i64 = EPOCH_DAYS * DAY;

fn unsupported(type_oid: u32) -> SqlError {
    SqlError::new(
        "0A000",
        format!("values of the type with oid {type_oid} have no binary form here"),
    )
    .hint("ask for text: the simple protocol, or format code 0")
}

fn is_text(type_oid: u32) -> bool {
    // "char", name, text, json, xml, unknown, bpchar, varchar.
    matches!(type_oid, 18 | 19 | 25 | 114 | 142 | 705 | 1042 | 1043)
}

/// Whether values of a type can be given in this format (0: text, 1: binary).
pub fn check(type_oid: u32, format: u16) -> Result<(), SqlError> {
    let known = is_text(type_oid)
        || element_of(type_oid).is_some()
        || matches!(
            type_oid,
            16 | 17
                | 20
                | 21
                | 23
                | 26
                | 28
                | 29
                | 700
                | 701
                | 1082
                | 1083
                | 1114
                | 1184
                | 1700
                | 2950
                | 3802
        );
    match format {
        0 => Ok(()),
        1 if known => Ok(()),
        1 => Err(unsupported(type_oid)),
        other => Err(SqlError::new(
            "22023",
            format!("unsupported format code: {other}"),
        )),
    }
}

/// Appends the binary form of a value in text form.
pub fn to_binary(type_oid: u32, text: &[u8], out: &mut Vec<u8>) -> Result<(), SqlError> {
    let invalid = || {
        SqlError::new(
            "22P02",
            format!(
                "{:?} is no value of the type with oid {type_oid}",
                String::from_utf8_lossy(text)
            ),
        )
    };
    let plain = || std::str::from_utf8(text).unwrap_or("\u{fffd}").trim();
    // The encoding that orders values has the same numbers in it.
    let number = |kind: Kind| -> Result<i64, SqlError> {
        let mut encoded = Vec::with_capacity(8);
        encode(kind, text, &mut encoded).map_err(|_| invalid())?;
        Ok((encoded.as_slice().get_u64() ^ (1 << 63)).cast_signed())
    };
    match type_oid {
        16 => {
            let mut encoded = Vec::new();
            encode(Kind::Bool, text, &mut encoded).map_err(|_| invalid())?;
            out.extend_from_slice(&encoded);
        }
        17 => out.extend_from_slice(&parse_bytes(text).ok_or_else(invalid)?),
        20 => out.put_i64(plain().parse().map_err(|_| invalid())?),
        21 => out.put_i16(plain().parse().map_err(|_| invalid())?),
        23 => out.put_i32(plain().parse().map_err(|_| invalid())?),
        26 | 28 | 29 => out.put_u32(plain().parse().map_err(|_| invalid())?),
        700 => out.put_f32(match parse_float(plain()).ok_or_else(invalid)? {
            value if value.is_finite() => plain().parse().map_err(|_| invalid())?,
            value => value as f32,
        }),
        701 => out.put_f64(parse_float(plain()).ok_or_else(invalid)?),
        1082 => out.put_i32(match number(Kind::Date)? {
            i64::MAX => i32::MAX,
            i64::MIN => i32::MIN,
            days => i32::try_from(days - EPOCH_DAYS).map_err(|_| invalid())?,
        }),
        1083 => out.put_i64(number(Kind::Time)?),
        // Encoded, it counts from 2000 as well.
        1114 | 1184 => out.put_i64(number(Kind::Timestamp)?),
        1700 => numeric_to_binary(plain(), out).ok_or_else(invalid)?,
        2950 => out.extend_from_slice(&parse_uuid(plain()).ok_or_else(invalid)?),
        3802 => {
            out.push(1);
            out.extend_from_slice(text);
        }
        other if is_text(other) => out.extend_from_slice(text),
        other => match element_of(other) {
            Some(element) => {
                arrays::to_binary(element, text, out, to_binary)?.ok_or_else(invalid)?
            }
            None => return Err(unsupported(other)),
        },
    }
    Ok(())
}

/// The text form of a value in binary form.
pub fn to_text(type_oid: u32, mut binary: &[u8]) -> Result<Vec<u8>, SqlError> {
    let wrong = || {
        SqlError::new(
            "22P03",
            format!("incorrect binary data format for the type with oid {type_oid}"),
        )
    };
    let fixed = |width: usize| match binary.len() == width {
        true => Ok(()),
        false => Err(wrong()),
    };
    let text = match type_oid {
        16 => {
            fixed(1)?;
            if binary[0] == 0 { "f" } else { "t" }.to_owned()
        }
        17 => {
            format!("\\x{}", hex(binary))
        }
        20 => {
            fixed(8)?;
            binary.get_i64().to_string()
        }
        21 => {
            fixed(2)?;
            binary.get_i16().to_string()
        }
        23 => {
            fixed(4)?;
            binary.get_i32().to_string()
        }
        26 | 28 | 29 => {
            fixed(4)?;
            binary.get_u32().to_string()
        }
        700 => {
            fixed(4)?;
            let value = binary.get_f32();
            float(value.into(), value.to_string())
        }
        701 => {
            fixed(8)?;
            let value = binary.get_f64();
            float(value, value.to_string())
        }
        1082 => {
            fixed(4)?;
            match binary.get_i32() {
                i32::MAX => "infinity".to_owned(),
                i32::MIN => "-infinity".to_owned(),
                days => {
                    let (date, era) = date(i64::from(days) + EPOCH_DAYS);
                    format!("{date}{era}")
                }
            }
        }
        1083 => {
            fixed(8)?;
            time(binary.get_i64())
        }
        1114 | 1184 => {
            fixed(8)?;
            match binary.get_i64() {
                i64::MAX => "infinity".to_owned(),
                i64::MIN => "-infinity".to_owned(),
                value => timestamp(
                    value.checked_add(EPOCH).ok_or_else(wrong)?,
                    type_oid == 1184,
                ),
            }
        }
        1700 => numeric_to_text(binary).ok_or_else(wrong)?,
        2950 => {
            fixed(16)?;
            uuid(binary)
        }
        3802 => match binary.split_first() {
            Some((1, text)) => return utf8(text),
            _ => return Err(wrong()),
        },
        other if is_text(other) => return utf8(binary),
        other => return Err(unsupported(other)),
    };
    Ok(text.into_bytes())
}

fn float(value: f64, shown: String) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        _ => shown,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn uuid(bytes: &[u8]) -> String {
    let parts = [0..4, 4..6, 6..8, 8..10, 10..16];
    parts.map(|part| hex(&bytes[part])).join("-")
}

/// A parameter in text form has to be text.
pub fn utf8(text: &[u8]) -> Result<Vec<u8>, SqlError> {
    match std::str::from_utf8(text) {
        Ok(valid) if !valid.contains('\0') => Ok(text.to_vec()),
        _ => Err(SqlError::new(
            "22021",
            "invalid byte sequence for encoding \"UTF8\"",
        )),
    }
}

/// Microseconds since 1970, as Postgres writes them in UTC.
pub fn timestamp(micros: i64, with_zone: bool) -> String {
    let (date, era) = date(micros.div_euclid(DAY));
    let zone = if with_zone { "+00" } else { "" };
    format!("{date} {}{zone}{era}", time(micros.rem_euclid(DAY)))
}

fn time(micros: i64) -> String {
    let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
    let mut text = format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    if fraction != 0 {
        text.push_str(format!(".{fraction:06}").trim_end_matches('0'));
    }
    text
}

/// Days since 1970 in the Gregorian calendar without a beginning (Howard Hinnant's
/// `civil_from_days`).
fn date(days: i64) -> (String, &'static str) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    match year {
        1.. => (format!("{year:04}-{month:02}-{day:02}"), ""),
        _ => (format!("{:04}-{month:02}-{day:02}", 1 - year), " BC"),
    }
}

const NUMERIC_NEGATIVE: u16 = 0x4000;
const NUMERIC_NAN: u16 = 0xC000;
const NUMERIC_INFINITE: u16 = 0xD000;
const NUMERIC_NEGATIVE_INFINITE: u16 = 0xF000;

/// Count of digits to the base 10000, weight of the first, sign, digits behind the point; then the
/// digits.
fn numeric_to_binary(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let special = match text.to_ascii_lowercase().as_str() {
        "nan" => Some(NUMERIC_NAN),
        "infinity" => Some(NUMERIC_INFINITE),
        "-infinity" => Some(NUMERIC_NEGATIVE_INFINITE),
        _ => None,
    };
    if let Some(sign) = special {
        [0, 0, sign, 0].iter().for_each(|&part| out.put_u16(part));
        return Some(());
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (NUMERIC_NEGATIVE, digits),
        None => (0, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if !whole
        .bytes()
        .chain(fraction.bytes())
        .all(|b| b.is_ascii_digit())
    {
        return None;
    }
    // Groups of four stand around the point.
    let padded = format!(
        "{}{whole}{fraction}{}",
        "0".repeat((4 - whole.len() % 4) % 4),
        "0".repeat((4 - fraction.len() % 4) % 4)
    );
    let groups: Vec<u16> = padded
        .as_bytes()
        .chunks(4)
        .map(|group| {
            group
                .iter()
                .fold(0, |sum, b| sum * 10 + u16::from(b - b'0'))
        })
        .collect();
    let first = groups.iter().position(|&group| group != 0);
    let last = groups.iter().rposition(|&group| group != 0);
    let (used, weight) = match (first, last) {
        (Some(first), Some(last)) => (
            &groups[first..=last],
            whole.len().div_ceil(4) as i64 - 1 - first as i64,
        ),
        _ => (&groups[..0], 0),
    };
    out.put_u16(u16::try_from(used.len()).ok()?);
    out.put_i16(i16::try_from(weight).ok()?);
    out.put_u16(if used.is_empty() { 0 } else { sign });
    out.put_u16(u16::try_from(fraction.len()).ok()?);
    used.iter().for_each(|&group| out.put_u16(group));
    Some(())
}

fn numeric_to_text(mut binary: &[u8]) -> Option<String> {
    if binary.len() < 8 {
        return None;
    }
    let (count, weight) = (usize::from(binary.get_u16()), i64::from(binary.get_i16()));
    let (sign, scale) = (binary.get_u16(), usize::from(binary.get_u16()));
    match sign {
        NUMERIC_NAN => return Some("NaN".to_owned()),
        NUMERIC_INFINITE => return Some("Infinity".to_owned()),
        NUMERIC_NEGATIVE_INFINITE => return Some("-Infinity".to_owned()),
        0 | NUMERIC_NEGATIVE => {}
        _ => return None,
    }
    if binary.len() != 2 * count {
        return None;
    }
    let groups: Vec<u16> = (0..count).map(|_| binary.get_u16()).collect();
    if groups.iter().any(|&group| group > 9999) {
        return None;
    }
    let group = |place: i64| {
        usize::try_from(weight - place)
            .ok()
            .and_then(|at| groups.get(at).copied())
            .unwrap_or(0)
    };
    let mut whole = String::new();
    for place in (0..=weight.max(0)).rev() {
        whole.push_str(&format!("{:04}", group(place)));
    }
    let mut fraction = String::new();
    for place in 1..=scale.div_ceil(4) as i64 {
        fraction.push_str(&format!("{:04}", group(-place)));
    }
    fraction.truncate(scale);
    let whole = whole.trim_start_matches('0');
    Some(format!(
        "{}{}{}{fraction}",
        if sign == NUMERIC_NEGATIVE { "-" } else { "" },
        if whole.is_empty() { "0" } else { whole },
        if scale > 0 { "." } else { "" },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_and_back_is_the_same_text() {
        let values = [
            (16, "t"),
            (17, "\\x00ff"),
            (20, "-9223372036854775808"),
            (21, "-7"),
            (23, "2147483647"),
            (26, "4294967295"),
            (700, "0.1"),
            (701, "-Infinity"),
            (701, "1234.5678"),
            (25, "täxt"),
            (3802, "{\"a\": 1}"),
            (1082, "1999-12-31"),
            (1082, "infinity"),
            (1082, "0044-03-15 BC"),
            (1083, "23:59:59.5"),
            (1114, "2026-11-21 10:15:00.000001"),
            (1184, "1969-12-31 23:59:59+00"),
            (1184, "-infinity"),
            (1700, "0"),
            (1700, "0.00"),
            (1700, "-12345678.900"),
            (1700, "10000"),
            (1700, "0.00001234"),
            (1700, "NaN"),
            (2950, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ];
        for (type_oid, text) in values {
            let mut binary = Vec::new();
            to_binary(type_oid, text.as_bytes(), &mut binary).unwrap();
            let back = to_text(type_oid, &binary).unwrap();
            assert_eq!(String::from_utf8(back).unwrap(), text, "{type_oid}");
            check(type_oid, 1).unwrap();
        }
        // As Postgres has them.
        let mut binary = Vec::new();
        to_binary(1700, b"12345.678", &mut binary).unwrap();
        assert_eq!(
            binary,
            [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c]
        );
        let mut binary = Vec::new();
        to_binary(1082, b"2000-01-02", &mut binary).unwrap();
        assert_eq!(binary, [0, 0, 0, 1]);
        assert_eq!(check(600, 1).unwrap_err().code, "0A000");
        assert_eq!(to_text(23, b"123").unwrap_err().code, "22P03");
    }
}
