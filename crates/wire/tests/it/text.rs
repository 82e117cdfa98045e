//! Against a real server: the text form of what it sends in binary is what it sends as text.

use bytes::{BufMut, BytesMut};
use hindcast_wire::frame::Frame;
use hindcast_wire::message::backend::{self, parse_parameter_status};
use hindcast_wire::message::frontend::{self, Formats, Target};
use hindcast_wire::text::{Settings, TextForm};
use hindcast_wire::{Event, SequenceColumns};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::server::{CLUSTER, Wire, databases};
use crate::support::relay::Relay;

struct Session {
    wire: Wire,
    settings: Settings,
}

/// What a query has for a parameter: an array, in binary.
type Parameter = (u32, Vec<u8>);

impl Session {
    fn open(database: &str) -> Self {
        databases(&[database]);
        let mut session = Self {
            wire: Wire::connect(CLUSTER.port(), database),
            settings: Settings::default(),
        };
        for name in ["DateStyle", "IntervalStyle", "TimeZone"] {
            let value = session.wire.value(&format!("SHOW {name}"));
            session.settings.note(name.as_bytes(), value.as_bytes());
        }
        session
    }

    fn set(&mut self, name: &str, value: &str) {
        let to = if name == "TIME ZONE" { "" } else { "TO" };
        self.wire.send(&[&format!("Q SET {name} {to} {value}")]);
        let frames = self.wire.until_ready(1);
        for frame in frames.iter().filter(|frame| frame.tag() == b'S') {
            let (name, value) = parse_parameter_status(frame.body()).unwrap();
            self.settings.note(name, value);
        }
    }

    /// What a query is answered, with all columns in this format.
    fn answers(&mut self, text: &str, parameter: Option<&Parameter>, format: u16) -> Vec<Frame> {
        let mut out = BytesMut::new();
        let types: Vec<u32> = parameter.iter().map(|(oid, _)| *oid).collect();
        frontend::parse(&mut out, b"", text.as_bytes(), &types);
        bind(&mut out, b"", parameter, format);
        frontend::describe(&mut out, Target::Portal(b""));
        frontend::execute(&mut out, b"", 0);
        frontend::sync(&mut out);
        self.wire.send_bytes(&out);
        let frames = self.wire.until_ready(1);
        if let Some(error) = frames.iter().find(|frame| frame.tag() == b'E') {
            panic!("{text}: {}", String::from_utf8_lossy(error.body()));
        }
        frames
    }

    /// Asks for the same in both formats. Returns how many values have another text form than the
    /// server's text.
    fn differing(&mut self, text: &str, parameter: Option<&Parameter>) -> Vec<String> {
        let as_text = self.answers(text, parameter, 0);
        let binary = self.answers(text, parameter, 1);
        let described = binary.iter().find(|frame| frame.tag() == b'T').unwrap();
        let mut form = TextForm::default();
        form.begin(described.body(), &Formats::All(1));
        let is_row = |frame: &&Frame| frame.tag() == b'D';
        let pairs = as_text
            .iter()
            .filter(is_row)
            .zip(binary.iter().filter(is_row));
        let shown = |row: &[u8]| -> Vec<String> {
            let values = backend::parse_data_row(row);
            let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
            values.map(|one| one.map_or("NULL".into(), text)).collect()
        };
        let mut differing = Vec::new();
        for (expected, row) in pairs {
            let seen = form.row(row.body(), &self.settings);
            if seen != expected.body() {
                let (seen, expected) = (shown(seen), shown(expected.body()));
                differing.push(format!("{seen:?} instead of {expected:?}"));
            }
        }
        differing
    }

    #[track_caller]
    fn check(&mut self, text: &str, parameter: Option<&Parameter>) {
        let differing = self.differing(text, parameter);
        assert!(differing.is_empty(), "{text}: {differing:#?}");
    }

    /// So many values of a type, made from this many random bytes each.
    fn check_random<T: std::fmt::Debug>(
        &mut self,
        (element, array): (u32, u32),
        values: impl Strategy<Value = T>,
        bytes: impl Fn(T) -> Vec<u8>,
    ) {
        const COUNT: u32 = 4000;
        let mut runner = TestRunner::default();
        let mut made = BytesMut::new();
        for word in [1, 0, element, COUNT, 1] {
            made.put_u32(word);
        }
        for _ in 0..COUNT {
            let value = bytes(values.new_tree(&mut runner).unwrap().current());
            made.put_u32(value.len() as u32);
            made.put_slice(&value);
        }
        let parameter = (array, made.to_vec());
        self.check("SELECT unnest($1)", Some(&parameter));
        self.check("SELECT $1, 1", Some(&parameter));
    }
}

/// To the unnamed portal: a parameter in binary, and all columns in this format.
fn bind(out: &mut BytesMut, statement: &[u8], parameter: Option<&Parameter>, format: u16) {
    let mut body = BytesMut::from(&b"\0"[..]);
    body.put_slice(statement);
    body.put_slice(b"\0\0\x01\0\x01");
    body.put_u16(parameter.is_some().into());
    if let Some((_, value)) = parameter {
        body.put_u32(value.len() as u32);
        body.put_slice(value);
    }
    body.put_u16(1);
    body.put_u16(format);
    out.put_u8(frontend::BIND);
    out.put_u32(body.len() as u32 + 4);
    out.put_slice(&body);
}

/// Literals of each type, its extremes among them.
const LITERALS: &[(&str, &[&str])] = &[
    ("bool", &["true", "false"]),
    ("int2", &["0", "-32768", "32767"]),
    ("int4", &["0", "-2147483648", "2147483647"]),
    (
        "int8",
        &["0", "-9223372036854775808", "9223372036854775807"],
    ),
    ("oid", &["0", "4294967295"]),
    ("xid", &["3", "4294967295"]),
    ("xid8", &["3", "18446744073709551615"]),
    (
        "float4",
        &[
            "NaN",
            "Infinity",
            "-Infinity",
            "0",
            "-0",
            "1e-45",
            "1.17549435e-38",
            "3.4028235e38",
            "0.1",
            "999999",
            "1000000",
            "0.0001",
            "0.00001",
            "16777216",
            "33554432",
            "8388609.5",
        ],
    ),
    (
        "float8",
        &[
            "NaN",
            "Infinity",
            "-Infinity",
            "0",
            "-0",
            "5e-324",
            "2.2250738585072014e-308",
            "1.7976931348623157e308",
            "0.1",
            "1e23",
            "9.5e22",
            "999999999999999",
            "1e15",
            "0.0001",
            "0.00001",
            "9007199254740993",
            "18014398509481984",
            "3.141592653589793",
        ],
    ),
    (
        "numeric",
        &[
            "NaN",
            "0",
            "0.000",
            "-0.00",
            "1",
            "-1",
            "10000",
            "9999",
            "0.0001",
            "0.00001",
            "0.00000000000000000001",
            "-12345.6789",
            "1e100",
            "1e-100",
            "100000000.0000",
            "123456789012345678901234567890.123456789",
            "1e131071",
            "1.50",
        ],
    ),
    (
        "text",
        &[
            "", "a", "NULL", "null", "a,b", "{}", "\"", "\\", " ", "é", "a b",
        ],
    ),
    ("varchar", &["", "x"]),
    ("char(5)", &["", "x"]),
    ("name", &["a name"]),
    (
        "uuid",
        &[
            "00000000-0000-0000-0000-000000000000",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ],
    ),
    ("bytea", &["", "\\x00ff", "\\xdeadbeef"]),
    (
        "date",
        &[
            "infinity",
            "-infinity",
            "2000-01-01",
            "1999-12-31",
            "0001-01-01",
            "0001-12-31 BC",
            "4714-11-24 BC",
            "5874897-12-31",
            "2024-02-29",
        ],
    ),
    (
        "time",
        &[
            "00:00",
            "24:00:00",
            "23:59:59.999999",
            "12:30:00.5",
            "01:02:03.000001",
        ],
    ),
    (
        "timetz",
        &[
            "00:00+00",
            "24:00:00-12:30",
            "23:59:59.999999+15:59:59",
            "12:30:00.5-00:00:01",
            "01:02:03-08",
        ],
    ),
    (
        "timestamp",
        &[
            "infinity",
            "-infinity",
            "2000-01-01",
            "1999-12-31 23:59:59.9",
            "0001-01-01 BC",
            "4714-11-24 00:00 BC",
            "294276-12-31 23:59:59.999999",
        ],
    ),
    (
        "timestamptz",
        &[
            "infinity",
            "-infinity",
            "2000-01-01 00:00+00",
            "0001-01-01 00:00+00 BC",
            "4714-11-25 00:00+00 BC",
            "294276-12-30 23:59:59.999999+00",
            "1800-01-01 00:00+00",
            "2024-03-31 01:30+00",
            "2024-10-27 00:30+00",
            "2037-07-01 00:00+00",
            "2038-07-01 00:00+00",
            "9999-12-31 12:00+00",
            "12024-07-01 00:00+00",
        ],
    ),
    (
        "interval",
        &[
            "0",
            "1 year",
            "-1 year",
            "2 years -3 months",
            "-1 day 2 hours",
            "1 mon -1 day -00:00:00.5",
            "-1 mon 1 day",
            "-00:00:01",
            "178000000 years",
            "1 day",
            "2562047788:00:54.775807",
            "-3 days +00:00:00.000001",
        ],
    ),
    ("json", &["{\"a\": 1}", "null", "\"x\""]),
    ("jsonb", &["{\"a\": 1}", "null", "\"x\"", "[1, 2.50]"]),
    ("point", &["(0,0)", "(-1.5,1e300)", "(NaN,Infinity)"]),
    ("box", &["(1,2),(3,4)"]),
];

/// What a session may have set, and is known to write.
const ZONES: &[&str] = &[
    "'UTC'",
    "'Europe/Berlin'",
    "'America/St_Johns'",
    "'Africa/Monrovia'",
    "'Europe/Dublin'",
    "'Pacific/Apia'",
    "'Australia/Lord_Howe'",
    "'GMT'",
    "INTERVAL '-05:30' HOUR TO MINUTE",
    "'EST5EDT'",
    "3",
];

#[test]
fn every_type_has_the_text_that_the_server_sends() {
    let mut session = Session::open("text_literals");
    for zone in ZONES {
        session.set("TIME ZONE", zone);
        for (of, literals) in LITERALS {
            let quoted: Vec<_> = literals
                .iter()
                .map(|one| format!("'{}'::{of}", one.replace('\'', "''")))
                .collect();
            session.check(&format!("SELECT {}, NULL::{of}", quoted.join(", ")), None);
            let list = quoted.join(", ");
            session.check(
                &format!("SELECT ARRAY[{list}, NULL], ARRAY[[{list}], [{list}]], ARRAY[]::{of}[]"),
                None,
            );
            session.check(
                &format!(
                    "SELECT (ARRAY[{list}])[2:1], array_fill({}, '{{2,3}}', '{{-1,4}}')",
                    quoted[0]
                ),
                None,
            );
        }
        if *zone == "'UTC'" {
            session.check(
                "SELECT relname, oid, relkind, reltuples FROM pg_class",
                None,
            );
        }
    }
}

#[test]
fn values_keep_their_bytes_where_their_text_is_not_known() {
    let mut session = Session::open("text_unknown");
    session.check(
        "SELECT date '2024-02-29', interval '1 day', timestamptz '2024-02-29 01:02:03.5+07'",
        None,
    );
    session.set("DateStyle", "German");
    assert_eq!(session.differing("SELECT date '2024-02-29'", None).len(), 1);
    session.set("IntervalStyle", "iso_8601");
    assert_eq!(session.differing("SELECT interval '1 day'", None).len(), 1);
    session.set("DateStyle", "ISO");
    session.check("SELECT date '2024-02-29'", None);
}

/// Moments that Postgres has, in microseconds since 2000.
const MOMENTS: std::ops::Range<i64> = -211_813_400_000_000_000..9_223_371_300_000_000_000;
/// From 1970 to 2025: of these, all versions of the database of time zones say the same.
const RECENT: std::ops::Range<i64> = -946_684_800_000_000..780_000_000_000_000;

#[test]
fn numbers_and_moments_by_chance_have_the_text_that_the_server_sends() {
    let mut session = Session::open("text_random");
    session.check_random((701, 1022), any::<u64>(), |bits| bits.to_be_bytes().into());
    session.check_random((700, 1021), any::<u32>(), |bits| bits.to_be_bytes().into());
    // Few digits, and as many as there can be: neighbours of short texts, and what lies between.
    let short = (1u64..10_000, -320i32..300)
        .prop_map(|(number, power)| format!("{number}e{power}").parse::<f64>().unwrap());
    session.check_random((701, 1022), short, |value| value.to_be_bytes().into());
    let short = (1u64..10_000, -45i32..38)
        .prop_map(|(number, power)| format!("{number}e{power}").parse::<f32>().unwrap());
    session.check_random((700, 1021), short, |value| value.to_be_bytes().into());
    let whole = (any::<u64>(), 1u32..64).prop_map(|(bits, shift)| (bits >> shift) as f64);
    session.check_random((701, 1022), whole, |value| value.to_be_bytes().into());
    let digits = prop::collection::vec(0u16..10_000, 0..8);
    let numeric = (digits, -6i16..9, any::<bool>(), 0u16..40);
    session.check_random(
        (1700, 1231),
        numeric,
        |(digits, weight, negative, scale)| {
            let head = [
                digits.len() as u16,
                weight as u16,
                u16::from(negative) << 14,
                scale,
            ];
            head.into_iter()
                .chain(digits)
                .flat_map(u16::to_be_bytes)
                .collect()
        },
    );
    session.check_random((1082, 1182), -2_451_000i32..100_000_000, |days| {
        days.to_be_bytes().into()
    });
    for zone in ZONES {
        session.set("TIME ZONE", zone);
        session.check_random((1184, 1185), MOMENTS, |micros| micros.to_be_bytes().into());
        session.check_random((1184, 1185), RECENT, |micros| micros.to_be_bytes().into());
    }
    session.check_random((1114, 1115), MOMENTS, |micros| micros.to_be_bytes().into());
    let interval = (any::<i64>(), any::<i32>(), any::<i32>());
    session.check_random((1186, 1187), interval, |(micros, days, months)| {
        [
            &micros.to_be_bytes()[..],
            &days.to_be_bytes(),
            &months.to_be_bytes(),
        ]
        .concat()
    });
    session.check_random((25, 1009), "[ -~]{0,4}", String::into_bytes);
    session.check_random(
        (17, 1001),
        prop::collection::vec(any::<u8>(), 0..9),
        |bytes| bytes,
    );
}

/// As drivers do: a statement that was described once is executed again in the other format, and
/// is not described again.
#[test]
fn a_transaction_has_one_digest_whatever_format_it_asks_for() {
    databases(&["text_digest"]);
    let relay = Relay::start(CLUSTER.port(), SequenceColumns::default());
    let mut wire = Wire::connect(relay.port, "text_digest");
    let text = b"SELECT n, timestamptz '2024-02-29 01:02:03+00', repeat('ab', 50000)::bytea FROM generate_series(1, 3) n";
    let mut prepare = BytesMut::new();
    frontend::parse(&mut prepare, b"s", text, &[]);
    frontend::describe(&mut prepare, Target::Statement(b"s"));
    frontend::sync(&mut prepare);
    wire.send_bytes(&prepare);
    wire.until_ready(1);
    for format in [0, 1, 0] {
        let mut out = BytesMut::new();
        bind(&mut out, b"s", None, format);
        frontend::execute(&mut out, b"", 0);
        frontend::sync(&mut out);
        // The same, unnamed and described with its portal.
        frontend::parse(&mut out, b"", text, &[]);
        bind(&mut out, b"", None, format);
        frontend::describe(&mut out, Target::Portal(b""));
        frontend::execute(&mut out, b"", 0);
        frontend::sync(&mut out);
        wire.send_bytes(&out);
        wire.until_ready(2);
    }
    drop(wire);
    let told = relay.finish();
    let digests = told.iter().filter_map(|told| match told {
        Ok(Event::Transaction(one)) if one.result_rows > 0 => Some(one.result_digest),
        _ => None,
    });
    let digests: Vec<_> = digests.collect();
    assert_eq!(digests, [digests[0]; 6]);
}
