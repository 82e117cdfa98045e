//! Facts about one database transaction.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Micros;

/// A 64-bit Postgres transaction id (`xid8`), epoch included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Xid(pub u64);

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Xid {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

/// What `pg_current_snapshot()` returns: every committed transaction below `xmax` that is not in
/// `in_progress` is visible.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    pub xmin: Xid,
    pub xmax: Xid,
    /// Ascending.
    pub in_progress: Vec<Xid>,
}

impl Snapshot {
    /// Whether a transaction with this id is visible if it committed.
    pub fn sees(&self, xid: Xid) -> bool {
        xid < self.xmax && self.in_progress.binary_search(&xid).is_err()
    }
}

/// A text that is no [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a snapshot like 10:20:12,15")]
pub struct SnapshotError(String);

/// `xmin:xmax:xip,xip`, as Postgres writes it.
impl FromStr for Snapshot {
    type Err = SnapshotError;

    fn from_str(text: &str) -> Result<Self, SnapshotError> {
        let parse = || {
            let (xmin, rest) = text.split_once(':')?;
            let (xmax, list) = rest.split_once(':')?;
            let list = list.split(',').filter(|xid| !xid.is_empty());
            Some(Self {
                xmin: xmin.parse().ok()?,
                xmax: xmax.parse().ok()?,
                in_progress: list.map(|xid| xid.parse().ok()).collect::<Option<_>>()?,
            })
        };
        parse().ok_or_else(|| SnapshotError(text.to_owned()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Isolation {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Isolation {
    /// As Postgres calls it in settings: `repeatable read`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }

    /// The level with this name. Postgres runs READ UNCOMMITTED as READ COMMITTED.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "read committed" | "read uncommitted" => Some(Self::ReadCommitted),
            "repeatable read" => Some(Self::RepeatableRead),
            "serializable" => Some(Self::Serializable),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Committed,
    Aborted,
    /// `PREPARE TRANSACTION`; the later `COMMIT PREPARED` is a transaction of its own.
    Prepared {
        gid: String,
    },
    /// The answer to `COMMIT` was lost and `pg_xact_status` could not settle it.
    Unknown,
}

/// How a transaction was attributed to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Attribution {
    /// A `traceparent` in a SQL comment.
    Comment,
    /// `SET application_name = '<traceparent>'`.
    ApplicationName,
    /// Exactly one request was in flight.
    Alone,
    /// The thread that sent it was working on the request.
    Turn,
}

/// A statement that locks rows, tables or keys other than by writing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Index of the statement within its transaction.
    pub statement: u32,
    /// Hash of what is locked, as far as the text tells: table name, or one hash for all advisory
    /// locks, and another one for all that were tried in vain.
    pub target: u32,
    /// Position in the order in which such statements completed at this recorder.
    pub completed: u64,
}

/// A sequence value that the client saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SequenceValue {
    /// `pg_class.oid` of the sequence.
    pub sequence: u32,
    pub value: i64,
}

/// What a statement drew or read that no snapshot determines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drawn {
    /// The statement's index within its transaction; `None`: that is not known.
    pub statement: Option<u32>,
    pub value: DrawnValue,
}

impl Drawn {
    /// A value of a sequence that a result showed.
    pub fn shown(first: SequenceValue) -> Self {
        Self {
            statement: None,
            value: DrawnValue::Sequence { first, count: 1 },
        }
    }

    pub fn is_of_sequence(&self) -> bool {
        matches!(self.value, DrawnValue::Sequence { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum DrawnValue {
    /// Consecutive values of a sequence, from this one on.
    Sequence { first: SequenceValue, count: u64 },
    /// `clock_timestamp()`
    Clock(Micros),
    /// `random()`
    Random(f64),
    /// `gen_random_uuid()`
    Uuid(#[serde(with = "as_text")] u128),
    /// `gen_random_bytes()` and whatever else draws so: the next ones.
    Bytes(DrawnBytes),
    /// The number of a large object that is made: `lo_creat()` and the like.
    LargeObject(u32),
}

/// A few random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrawnBytes {
    bytes: [u8; DrawnBytes::MAX],
    count: u8,
}

impl DrawnBytes {
    pub const MAX: usize = 16;

    /// `None`: they are too many.
    pub fn new(some: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..some.len())?.copy_from_slice(some);
        let count = some.len() as u8;
        Some(Self { bytes, count })
    }

    /// As hexadecimal digits.
    pub fn text(&self) -> String {
        let bytes = &self.bytes[..usize::from(self.count)];
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Of such a text.
    pub fn of_text(text: &[u8]) -> Option<Self> {
        let digit = |letter: u8| char::from(letter).to_digit(16);
        let byte = |pair: &[u8]| match *pair {
            [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.chunks(2).map(byte).collect();
        Self::new(&bytes?)
    }
}

impl DrawnValue {
    /// What drew it.
    pub fn function(&self) -> &'static str {
        match self {
            Self::Sequence { .. } => "nextval",
            Self::Clock(_) => "clock_timestamp",
            Self::Random(_) => "random",
            Self::Uuid(_) => "gen_random_uuid",
            Self::Bytes(_) => "gen_random_bytes",
            Self::LargeObject(_) => "lo_creat",
        }
    }
}

/// A UUID that the server drew, and the client saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DrawnUuid {
    pub place: DrawnAt,
    #[serde(with = "as_text")]
    pub value: u128,
}

impl DrawnUuid {
    /// As the server writes it.
    pub fn text(&self) -> String {
        uuid_text(self.value)
    }

    /// The number of one as the server writes it.
    pub fn number(text: &[u8]) -> Option<u128> {
        let is_hyphen = |at: usize| matches!(at, 8 | 13 | 18 | 23);
        let mut number = 0;
        for (at, &byte) in text.iter().enumerate() {
            match byte {
                b'-' if is_hyphen(at) => {}
                b'0'..=b'9' | b'a'..=b'f' if !is_hyphen(at) => {
                    let digit = char::from(byte).to_digit(16)?;
                    number = (number << 4) | u128::from(digit);
                }
                _ => return None,
            }
        }
        (text.len() == 36).then_some(number)
    }
}

/// A UUID as the server writes it.
pub fn uuid_text(value: u128) -> String {
    let digits = format!("{value:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    parts.join("-")
}

/// For people a UUID is text: JSON has no numbers of that size.
mod as_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub fn serialize<S: Serializer>(value: &u128, to: S) -> Result<S::Ok, S::Error> {
        match to.is_human_readable() {
            true => to.serialize_str(&super::uuid_text(*value)),
            false => value.serialize(to),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        if !from.is_human_readable() {
            return u128::deserialize(from);
        }
        let text = String::deserialize(from)?;
        let number = super::DrawnUuid::number(text.as_bytes());
        number.ok_or_else(|| de::Error::custom(format!("{text} is no UUID")))
    }
}

/// Where a value was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DrawnAt {
    /// By the default of a column: `pg_class.oid` of the table, number of the column from 1.
    Default { table: u32, column: i16 },
    /// By a call in the statement.
    Call,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_read_as_the_server_writes_them() {
        let text = "01234567-89ab-cdef-0011-223344556677";
        let value = DrawnUuid::number(text.as_bytes());
        assert_eq!(value, Some(0x0123_4567_89ab_cdef_0011_2233_4455_6677));
        let place = DrawnAt::Call;
        let drawn = |value| DrawnUuid { place, value };
        assert_eq!(drawn(value.unwrap()).text(), text);
        assert_eq!(
            drawn(1).text(),
            "00000000-0000-0000-0000-000000000001",
            "with all its zeros"
        );
        for other in [
            &text[1..],
            "0123456789abcdef0011223344556677",
            "01234567-89AB-cdef-0011-223344556677",
            "01234567-89ab-cdef-0011-22334455667-",
            "no identifier at all, of 36 letters.",
        ] {
            assert_eq!(DrawnUuid::number(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn snapshots_are_read() {
        let read = |text: &str| text.parse::<Snapshot>().ok();
        let snapshot = read("10:20:10,14").unwrap();
        assert_eq!((snapshot.xmin, snapshot.xmax), (Xid(10), Xid(20)));
        assert_eq!(snapshot.in_progress, [Xid(10), Xid(14)]);
        assert_eq!(read("10:10:").unwrap().in_progress, []);
        for text in ["10:x:", "10:20", "10:20:1,y", ""] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
