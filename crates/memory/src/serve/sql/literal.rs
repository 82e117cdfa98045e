//! Constants: what is a value of which type, and how Postgres writes it.

use pg_query::protobuf::TypeCast;

use crate::encoding::{Kind, parse_float, parse_real, parse_uuid};

use super::SqlError;
use super::decimal::{float4, float8, plain_decimal};
use super::predicate::encoded;
use super::tree::LiteralKind;
use super::types::{BOOL, FLOAT4, FLOAT8, INT4, INT8, NUMERIC, TEXT};

/// Refuses `varchar(3)`, `numeric(4, 1)`, `int[]`: such casts change values.
pub(super) fn plain_type(cast: &TypeCast) -> Result<(), SqlError> {
    match &cast.type_name {
        Some(name) if !name.array_bounds.is_empty() => {
            Err(SqlError::unsupported("a cast to an array"))
        }
        Some(name) if !name.typmods.is_empty() => Err(SqlError::unsupported(
            "a cast to a type with a length or precision",
        )),
        _ => Ok(()),
    }
}

/// Whether a cast of this constant leaves what it says as it is. `None`: it is the result of a
/// cast, and text.
pub(super) fn converts(from: Option<LiteralKind>, to: u32, text: &str) -> bool {
    let whole = text.parse::<i64>().is_ok();
    match (from, to) {
        (Some(LiteralKind::Text), _) => true,
        (Some(LiteralKind::Bool), to) => to == BOOL,
        // Rounds.
        (Some(LiteralKind::Number), 21 | INT4 | INT8 | 26) => whole,
        (Some(_), 21 | INT4 | INT8 | 26 | FLOAT4 | FLOAT8 | NUMERIC | TEXT | 1043) => true,
        (Some(_), _) => false,
        (None, TEXT | 1043) => true,
        (None, to) => matches!(to, 21 | INT4 | INT8 | NUMERIC) && whole,
    }
}

/// The value as Postgres writes it; what is never part of an output is only checked.
pub(super) fn canonical(oid: u32, text: &str) -> Result<String, SqlError> {
    let kind = Kind::of(oid);
    if kind == Kind::Other {
        return Ok(text.to_owned());
    }
    let mut key = Vec::new();
    let plain = text.trim();
    // A whole number of many digits is one, but of no type.
    let digits = plain.strip_prefix(['-', '+']).unwrap_or(plain);
    if kind == Kind::Int && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let value: Option<i64> = plain.parse().ok();
        let fits = value.filter(|&value| match oid {
            21 => i16::try_from(value).is_ok(),
            INT4 => i32::try_from(value).is_ok(),
            _ => true,
        });
        return fits.map(|value| value.to_string()).ok_or_else(|| {
            let name = match oid {
                21 => "smallint",
                INT4 => "integer",
                _ => "bigint",
            };
            SqlError::new(
                "22003",
                format!("value \"{text}\" is out of range for type {name}"),
            )
        });
    }
    encoded(kind, text.as_bytes(), &mut key)?;
    let written = match kind {
        Kind::Bool => Some(if key == [1] { "t" } else { "f" }.to_owned()),
        Kind::Real => parse_real(plain).map(float4),
        Kind::Float => parse_float(plain).map(float8),
        Kind::Numeric => plain_decimal(plain),
        Kind::Oid => Some(plain.to_owned()),
        Kind::Uuid => parse_uuid(plain).map(|bytes| {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let (a, b, c, d, e) = (
                &hex[..8],
                &hex[8..12],
                &hex[12..16],
                &hex[16..20],
                &hex[20..],
            );
            format!("{a}-{b}-{c}-{d}-{e}")
        }),
        _ => None,
    };
    Ok(written.unwrap_or_else(|| text.to_owned()))
}

/// Whether [`canonical`] knows how Postgres writes values of this type.
pub(super) fn is_written_plainly(oid: u32) -> bool {
    !matches!(
        Kind::of(oid),
        Kind::Date | Kind::Time | Kind::Timestamp | Kind::TimestampTz | Kind::Bytes | Kind::Other
    )
}
