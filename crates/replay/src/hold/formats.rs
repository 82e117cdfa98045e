//! Recorded rows in the formats in which a portal asks for them.
//!
//! A driver that has run a statement often enough on its connection asks for binary, and in a
//! replay its connection may be another one. Values of the types for which pgjdbc does so come out
//! in either format; what cannot be read as its type is given as it is.

use bytes::{Buf, Bytes, BytesMut};
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta};
use hindcast_wire::message::backend as server;
use hindcast_wire::message::frontend::Formats;
use hindcast_wire::text::{Settings, TextForm};

const BOOL: u32 = 16;
const BYTEA: u32 = 17;
const INT8: u32 = 20;
const INT2: u32 = 21;
const INT4: u32 = 23;
const OID: u32 = 26;
const FLOAT4: u32 = 700;
const FLOAT8: u32 = 701;
const DATE: u32 = 1082;
const TIME: u32 = 1083;
const TIMESTAMP: u32 = 1114;
const TIMESTAMPTZ: u32 = 1184;
const NUMERIC: u32 = 1700;
const UUID: u32 = 2950;

/// Types whose binary form is no text: these, and interval, timetz and jsonb.
const FIXED: [u32; 17] = [
    BOOL,
    BYTEA,
    INT8,
    INT2,
    INT4,
    OID,
    FLOAT4,
    FLOAT8,
    DATE,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    NUMERIC,
    UUID,
    1186,
    1266,
    3802,
];

/// In which format each column of a recorded answer came: a value of a type such as `int8` that
/// comes in binary holds bytes that no text of it has.
pub(super) fn recorded(answer: &Bytes, description: &[u8]) -> Vec<u16> {
    let types = server::parse_row_description(description).map_while(Result::ok);
    let came = |(at, column): (usize, server::Column<'_>)| {
        let in_binary = || {
            let mut values = rows(answer).filter_map(|row| value(&row, at));
            let is_text = |byte: &u8| matches!(byte, b' '..=b'~');
            values
                .next()
                .is_some_and(|first| !first.iter().all(is_text))
        };
        u16::from(FIXED.contains(&column.type_oid) && in_binary())
    };
    types.enumerate().map(came).collect()
}

/// The messages of a recorded answer, with its rows in the formats that are asked for. `None`: they
/// are so.
pub(super) fn as_asked(
    answer: &Bytes,
    description: &[u8],
    asked: &Formats,
    settings: &Settings,
) -> Option<Bytes> {
    let came = recorded(answer, description);
    if (0..came.len()).all(|at| !is_other(asked, at, came[at])) {
        return None;
    }
    let types = server::parse_row_description(description).map_while(Result::ok);
    let types: Vec<u32> = types.map(|column| column.type_oid).collect();
    let mut text = TextForm::default();
    text.begin(description, &Formats::Each(came.clone().into()));
    let mut all = BytesMut::with_capacity(answer.len());
    for message in messages(answer) {
        match message[0] {
            server::DATA_ROW => {
                let as_text = text.row(&message[5..], settings);
                let values = server::parse_data_row(&message[5..]);
                let values = values.zip(server::parse_data_row(as_text)).enumerate();
                let values: Vec<Option<Bytes>> = values
                    .map(|(at, (value, as_text))| {
                        let (value, as_text) = (value?, as_text?);
                        let other = match came.get(at) {
                            Some(0) if is_other(asked, at, 0) => in_binary(types[at], as_text),
                            Some(1) if is_other(asked, at, 1) => Some(as_text.to_vec()),
                            _ => None,
                        };
                        Some(other.map_or_else(|| Bytes::copy_from_slice(value), Bytes::from))
                    })
                    .collect();
                let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
                server::data_row(&mut all, &values);
            }
            _ => all.extend_from_slice(&message),
        }
    }
    Some(all.freeze())
}

fn is_other(asked: &Formats, column: usize, came: u16) -> bool {
    matches!(asked.of(column), 0 | 1) && asked.of(column) != came
}

/// The binary form of a value, as the server sends it.
fn in_binary(kind: u32, value: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(value).ok()?;
    let since_2000 = |moment: NaiveDateTime| {
        let begin = NaiveDate::from_ymd_opt(2000, 1, 1)?.and_hms_opt(0, 0, 0)?;
        (moment - begin).num_microseconds()
    };
    Some(match kind {
        BOOL => vec![u8::from(text == "t")],
        BYTEA => {
            let digits = text.strip_prefix("\\x")?;
            let pair = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
            let pairs = (0..digits.len()).step_by(2).map(pair);
            pairs.collect::<Option<Vec<u8>>>()?
        }
        INT2 => text.parse::<i16>().ok()?.to_be_bytes().into(),
        INT4 => text.parse::<i32>().ok()?.to_be_bytes().into(),
        INT8 => text.parse::<i64>().ok()?.to_be_bytes().into(),
        OID => text.parse::<u32>().ok()?.to_be_bytes().into(),
        FLOAT4 => text.parse::<f32>().ok()?.to_be_bytes().into(),
        FLOAT8 => text.parse::<f64>().ok()?.to_be_bytes().into(),
        UUID => {
            let digits = text.replace('-', "");
            u128::from_str_radix(&digits, 16).ok()?.to_be_bytes().into()
        }
        DATE => {
            let date = text.parse::<NaiveDate>().ok()?;
            let days = date - NaiveDate::from_ymd_opt(2000, 1, 1)?;
            (days.num_days() as i32).to_be_bytes().into()
        }
        TIME => {
            let time = text.parse::<NaiveTime>().ok()?;
            let since: TimeDelta = time - NaiveTime::MIN;
            since.num_microseconds()?.to_be_bytes().into()
        }
        TIMESTAMP => {
            let moment = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").ok()?;
            since_2000(moment)?.to_be_bytes().into()
        }
        TIMESTAMPTZ => {
            let moment = DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%#z").ok()?;
            since_2000(moment.naive_utc())?.to_be_bytes().into()
        }
        NUMERIC => numeric(text)?,
        _ => return None,
    })
}

/// Digits by fours: how many groups, the power of 10,000 of the first, sign, digits behind the
/// point, and the groups.
fn numeric(text: &str) -> Option<Vec<u8>> {
    let (is_negative, plain) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || plain.is_empty() {
        return None;
    }
    let before = whole.len().div_ceil(4);
    let behind = fraction.len().div_ceil(4);
    let digits = format!("{whole:0>0$}{fraction:0<1$}", before * 4, behind * 4);
    let groups = (0..before + behind).map(|at| digits[at * 4..at * 4 + 4].parse::<u16>());
    let groups = groups.collect::<Result<Vec<u16>, _>>().ok()?;
    let leading = groups.iter().take_while(|&&group| group == 0).count();
    let trailing = groups.iter().rev().take_while(|&&group| group == 0).count();
    let some = groups.get(leading..groups.len() - trailing).unwrap_or(&[]);
    let weight = match some {
        [] => 0,
        _ => before as i16 - 1 - leading as i16,
    };
    let sign: u16 = if is_negative { 0x4000 } else { 0 };
    let mut bytes = (some.len() as u16).to_be_bytes().to_vec();
    bytes.extend(weight.to_be_bytes());
    bytes.extend(sign.to_be_bytes());
    bytes.extend((fraction.len() as u16).to_be_bytes());
    bytes.extend(some.iter().flat_map(|group| group.to_be_bytes()));
    Some(bytes)
}

/// Takes the first message off recorded answers.
pub(super) fn next_message(bytes: &mut Bytes) -> Option<Bytes> {
    let length = bytes.get(1..5)?.get_u32() as usize + 1;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

fn messages(answer: &Bytes) -> impl Iterator<Item = Bytes> {
    let mut rest = answer.clone();
    std::iter::from_fn(move || next_message(&mut rest))
}

fn rows(answer: &Bytes) -> impl Iterator<Item = Bytes> {
    messages(answer).filter(|message| message[0] == server::DATA_ROW)
}

/// A value of a row, if it is not NULL.
fn value(row: &Bytes, column: usize) -> Option<Bytes> {
    let value = server::parse_data_row(&row[5..]).nth(column)??;
    Some(Bytes::copy_from_slice(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body of a description of columns of these types.
    fn description(types: &[u32]) -> Vec<u8> {
        let mut described = types.len().to_be_bytes()[6..].to_vec();
        for number in types {
            described.extend(b"name\0\0\0\0\x01\0\x02");
            described.extend(number.to_be_bytes());
            described.extend([0, 8, 255, 255, 255, 255, 0, 0]);
        }
        described
    }

    fn row(values: &[Option<&[u8]>]) -> Bytes {
        let mut row = BytesMut::new();
        server::data_row(&mut row, values);
        row.freeze()
    }

    #[test]
    fn rows_tell_in_which_formats_they_are() {
        let types = description(&[INT8, 25, TIMESTAMP]);
        let of = |rows: &[Bytes]| recorded(&rows.concat().into(), &types);
        let name = "café".as_bytes();
        let as_text = row(&[Some(b"2"), Some(name), Some(b"2026-11-29 22:10:39")]);
        assert_eq!(of(&[as_text]), [0, 0, 0]);
        let number = 2u64.to_be_bytes();
        let moment = 850_000_000_000_000u64.to_be_bytes();
        let nothing = row(&[None, None, None]);
        let as_binary = row(&[Some(&number), Some(name), Some(&moment)]);
        assert_eq!(of(&[nothing.clone(), as_binary]), [1, 0, 1]);
        assert_eq!(of(&[nothing]), [0, 0, 0]);
        assert_eq!(of(&[]), [0, 0, 0]);
    }

    #[test]
    fn rows_come_in_the_format_that_is_asked_for_and_back() {
        let values: [(u32, &str); 20] = [
            (BOOL, "t"),
            (BOOL, "f"),
            (BYTEA, "\\x00ff"),
            (INT2, "-2"),
            (INT4, "70000"),
            (INT8, "-5000000000"),
            (OID, "4000000000"),
            (FLOAT8, "0.1"),
            (DATE, "1999-12-31"),
            (TIME, "22:10:39.5"),
            (TIMESTAMP, "2026-11-29 22:10:39.760782"),
            (TIMESTAMP, "1999-12-31 23:59:59"),
            (TIMESTAMPTZ, "2026-11-29 22:10:39+00"),
            (UUID, "cd613e30-d8f1-6adf-91b7-584a2265b1f5"),
            (NUMERIC, "10.50"),
            (NUMERIC, "-123456789.00012"),
            (NUMERIC, "0"),
            (NUMERIC, "0.00"),
            (NUMERIC, "100000000"),
            (25, "text"),
        ];
        let types = description(&values.map(|(kind, _)| kind));
        let as_text = row(&values.map(|(_, text)| Some(text.as_bytes())));
        let mut settings = Settings::default();
        settings.note(b"DateStyle", b"ISO, MDY");
        settings.note(b"TimeZone", b"UTC");
        let asked = |answer: &Bytes, formats| as_asked(answer, &types, &formats, &settings);
        assert_eq!(asked(&as_text, Formats::Text), None);
        let as_binary = asked(&as_text, Formats::All(1)).expect("it came as text");
        for (at, (kind, text)) in values.iter().enumerate() {
            let back = asked(&as_binary, Formats::Text).expect("it came in binary");
            let back = value(&back, at).unwrap();
            assert_eq!(back, text.as_bytes(), "{kind} {text}");
        }
    }

    #[test]
    fn what_is_no_value_of_its_type_is_given_as_it_is() {
        let types = description(&[INT8, NUMERIC]);
        let odd = row(&[Some(b"many"), Some(b"NaN")]);
        let given = as_asked(&odd, &types, &Formats::All(1), &Settings::default());
        assert_eq!(given, Some(odd));
    }
}
