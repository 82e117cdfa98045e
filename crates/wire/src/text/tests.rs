use expect_test::{Expect, expect};

use super::numbers::{float4, float8};
use super::*;

const INT8: u32 = 20;
const TEXT: u32 = 25;
const INT4_ARRAY: u32 = 1007;
const TIMESTAMPTZ: u32 = 1184;
/// A type that is not known.
const MONEY: u32 = 790;

fn settings(zone: &str) -> Settings {
    let mut settings = Settings::default();
    settings.note(b"DateStyle", b"ISO, MDY");
    settings.note(b"IntervalStyle", b"postgres");
    settings.note(b"TimeZone", zone.as_bytes());
    settings
}

fn description(types: &[u32]) -> Vec<u8> {
    let mut out = bytes::BytesMut::new();
    let columns: Vec<_> = types
        .iter()
        .map(|&type_oid| backend::Column {
            name: b"a",
            table: 0,
            attribute: 0,
            type_oid,
            format: 0,
        })
        .collect();
    backend::row_description(&mut out, &columns);
    out[5..].to_vec()
}

fn body(values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut out = bytes::BytesMut::new();
    backend::data_row(&mut out, values);
    out[5..].to_vec()
}

/// The values of a row in its text form.
fn text_form(types: &[u32], formats: &Formats, zone: &str, row: &[u8]) -> Vec<Option<String>> {
    let mut form = TextForm::default();
    form.begin(&description(types), formats);
    let row = form.row(row, &settings(zone)).to_vec();
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    backend::parse_data_row(&row)
        .map(|value| value.map(text))
        .collect()
}

#[test]
fn only_binary_values_of_known_types_are_converted() {
    let seven = 7i64.to_be_bytes();
    let row = body(&[Some(&seven), Some(b"7"), None, Some(b"as is"), Some(&seven)]);
    let types = [INT8, INT8, INT8, TEXT, MONEY];
    let formats = Formats::Each([1, 0, 1, 1, 1].into());
    let seen = text_form(&types, &formats, "UTC", &row);
    let kept = String::from_utf8_lossy(&seven).into_owned();
    let expected = [Some("7"), Some("7"), None, Some("as is"), Some(&kept)];
    assert_eq!(seen, expected.map(|value| value.map(str::to_owned)));
    for formats in [Formats::Text, Formats::All(0), Formats::Unknown] {
        let mut form = TextForm::default();
        form.begin(&description(&types), &formats);
        assert!(!form.converts());
        assert_eq!(form.row(&row, &settings("UTC")), row);
    }
}

#[test]
fn what_is_no_value_of_its_type_keeps_its_bytes() {
    let check = |oid: u32, value: &[u8]| {
        let kept = text_form(&[oid], &Formats::All(1), "UTC", &body(&[Some(value)]));
        assert_eq!(kept, [Some(String::from_utf8_lossy(value).into_owned())]);
    };
    check(INT8, b"1234567");
    check(TIMESTAMPTZ, b"");
    check(
        INT4_ARRAY,
        b"\0\0\0\x01\0\0\0\0\0\0\0\x17\x7f\xff\xff\xff\0\0\0\x01",
    );
    check(INT4_ARRAY, b"\0\0\0\x07\0\0\0\0\0\0\0\x17");
}

#[test]
fn moments_are_written_in_the_time_zone_of_the_session_if_it_is_known() {
    let check = |zone: &str, expect: Expect| {
        // Christmas of 2023 in London.
        let row = body(&[Some(&756_777_600_000_000i64.to_be_bytes())]);
        let seen = text_form(&[TIMESTAMPTZ], &Formats::All(1), zone, &row);
        expect.assert_eq(seen[0].as_deref().unwrap_or_default());
    };
    check("UTC", expect!["2023-12-25 00:00:00+00"]);
    check("Europe/Berlin", expect!["2023-12-25 01:00:00+01"]);
    check("Asia/Kolkata", expect!["2023-12-25 05:30:00+05:30"]);
    check("<+02>-02", expect!["2023-12-25 02:00:00+02"]);
}

#[test]
fn moments_keep_their_bytes_in_a_time_zone_that_is_not_known() {
    let row = body(&[Some(&756_777_600_000_000i64.to_be_bytes())]);
    let mut form = TextForm::default();
    form.begin(&description(&[TIMESTAMPTZ]), &Formats::All(1));
    for zone in ["Nowhere/Else", ""] {
        assert_eq!(form.row(&row, &settings(zone)), row);
    }
    assert_ne!(form.row(&row, &settings("UTC")), row);
}

#[test]
fn floats_are_written_as_postgres_does() {
    let check = |value: f64, expect: Expect| {
        let mut out = Vec::new();
        float8(value, &mut out);
        out.push(b' ');
        float4(value as f32, &mut out);
        expect.assert_eq(&String::from_utf8(out).unwrap());
    };
    check(0.1, expect!["0.1 0.1"]);
    check(-0.0, expect!["-0 -0"]);
    check(123456.0, expect!["123456 123456"]);
    check(1234567.0, expect!["1234567 1.234567e+06"]);
    check(1e15, expect!["1e+15 1e+15"]);
    check(0.00001, expect!["1e-05 1e-05"]);
    check(0.000123, expect!["0.000123 0.000123"]);
}
