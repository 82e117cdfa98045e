//! Differences that are caused only by clocks, sequences or randomness.
//!
//! Changed code runs later than the original did, so what it takes from a clock of its own differs,
//! and numbers from sequences and random values may. A reader has no use for those. But a
//! difference that is wrongly taken for noise is a bug that stays unseen. So everything here is
//! conservative: a value is noise only if there is a reason for it, and in doubt a difference is a
//! real one.
//!
//! - **Clock**: the value was a time when the original ran and is a time when the changed code ran
//!   ([`Window`]), or both are times of either run in a column whose default is the current time.
//! - **Sequence**: the column takes its values from a sequence; or a row of which only such a
//!   column of the key differs was given another number.
//! - **Random**: the column's default is a random value, or each statement that fills the column
//!   draws one ([`drawn`](crate::drawn)); or a UUID in a response is another one,
//!   which the recorded one does not contain anywhere.

use std::fmt;

pub use hindcast_replay::clock::Window;
use hindcast_state::{Column, RowText};
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

use crate::json;

/// Why a difference does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Noise {
    Clock,
    Sequence,
    Random,
}

impl fmt::Display for Noise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clock => "a clock",
            Self::Sequence => "a sequence",
            Self::Random => "randomness",
        })
    }
}

/// Knows which numbers are others now because a sequence gave out others.
pub trait Numbers: Send + Sync {
    /// Whether a sequence gave out `after` where it gave out `before` in the recording.
    fn renumbered(&self, before: i64, after: i64) -> bool;
}

/// No number is another one's counterpart.
#[derive(Clone, Copy, Debug)]
pub struct NoNumbers;

impl Numbers for NoNumbers {
    fn renumbered(&self, _: i64, _: i64) -> bool {
        false
    }
}

/// Why two values of a column differ, if it is noise. Both are complete and differ.
pub fn in_column(
    column: &Column,
    before: Option<&str>,
    after: Option<&str>,
    window: &Window,
) -> Option<Noise> {
    // What is there or is not is no question of the time.
    let (before, after) = (before?, after?);
    let nature = Nature::of(column);
    match nature {
        Nature::Sequence => (before.parse::<i64>().is_ok() && after.parse::<i64>().is_ok())
            .then_some(Noise::Sequence),
        Nature::Random => (!is_uuid_column(column)
            || (json::is_uuid(before) && json::is_uuid(after)))
        .then_some(Noise::Random),
        Nature::Time { by_default } => (window.texts_moved(before, after)
            || by_default && window.text_is_of_either(before) && window.text_is_of_either(after))
        .then_some(Noise::Clock),
        Nature::Number { by_default } => {
            let (before, after) = (before.parse().ok()?, after.parse().ok()?);
            (window.epochs_moved(before, after)
                || by_default
                    && window.epoch_is_of_either(before)
                    && window.epoch_is_of_either(after))
            .then_some(Noise::Clock)
        }
        Nature::Json => {
            let (before, after) = (
                serde_json::from_str(before).ok()?,
                serde_json::from_str(after).ok()?,
            );
            in_json(&before, &after, window, &NoNumbers, &|_| false)
        }
        Nature::Text => in_text(before, after, window),
        Nature::Plain => None,
    }
}

/// Why two rows differ, if it is noise in all columns that differ: the columns (by index) and what
/// each is. Values must be complete. `None`: it is a real difference.
pub fn in_row(
    columns: &[Column],
    before: &RowText,
    after: &RowText,
    window: &Window,
    known: &dyn Fn(usize, &str, &str) -> Option<Noise>,
) -> Option<Vec<(usize, Noise)>> {
    let mut noise = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        let (before, after) = (before[index].as_deref(), after[index].as_deref());
        if before == after || column.generated {
            continue;
        }
        let renumbered = || match (before, after) {
            (Some(before), Some(after)) => known(index, before, after),
            _ => None,
        };
        noise.push((
            index,
            in_column(column, before, after, window).or_else(renumbered)?,
        ));
    }
    Some(noise)
}

/// A hash of what is no noise in a row, the same for two rows of which [`in_row`] might say so;
/// others have it by chance or because a time of either run stands in the same place.
pub fn hash_without_noise(
    columns: &[Column],
    row: &RowText,
    window: &Window,
    known: &dyn Fn(usize, &str) -> bool,
) -> u64 {
    let mut hash = Xxh3::new();
    for (index, (column, value)) in columns.iter().zip(row).enumerate() {
        match value {
            None => hash.update(&[0]),
            Some(value)
                if column.generated
                    || known(index, value)
                    || may_be_noise(column, value, window) =>
            {
                hash.update(&[1]);
            }
            Some(value) => {
                hash.update(&[2]);
                hash.update(&(value.len() as u64).to_le_bytes());
                hash.update(value.as_bytes());
            }
        }
    }
    hash.digest()
}

fn may_be_noise(column: &Column, value: &str, window: &Window) -> bool {
    match Nature::of(column) {
        Nature::Sequence | Nature::Random | Nature::Json => true,
        Nature::Time { .. } | Nature::Text => {
            window.text_is_of_either(value)
                || epoch_in_text(value).is_some_and(|at| window.epoch_is_of_either(at))
        }
        Nature::Number { .. } => value.parse().is_ok_and(|at| window.epoch_is_of_either(at)),
        Nature::Plain => false,
    }
}

/// Whether a value of the original final state came from a clock while the original was replayed,
/// so that the recorded database holds another one.
pub(crate) fn is_of_replay(column: &Column, value: &str, window: &Window) -> bool {
    window.replayed.is_some_and(|period| {
        let replay = Window {
            original: period,
            run: period,
            replayed: None,
        };
        !matches!(Nature::of(column), Nature::Sequence | Nature::Random)
            && may_be_noise(column, value, &replay)
    })
}

/// Whether the same row may get another value in this column when it is written again.
pub fn varies_from_run_to_run(column: &Column) -> bool {
    matches!(
        Nature::of(column),
        Nature::Sequence | Nature::Random | Nature::Time { .. }
    )
}

/// What the values of a column are made of, as far as its type and default tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nature {
    Sequence,
    Random,
    /// A date or time of day and date; `by_default`: the current one.
    Time {
        by_default: bool,
    },
    /// Which may be a time since the epoch.
    Number {
        by_default: bool,
    },
    Json,
    Text,
    Plain,
}

impl Nature {
    fn of(column: &Column) -> Self {
        let default = column.default.as_deref().unwrap_or("");
        if column.identity.is_some() || default.starts_with("nextval(") {
            return Self::Sequence;
        }
        if RANDOM.iter().any(|function| default.contains(function)) {
            return Self::Random;
        }
        let by_default = NOW.iter().any(|function| default.contains(function));
        match column.base_type.as_str() {
            "timestamp with time zone" | "timestamp without time zone" | "date" => {
                Self::Time { by_default }
            }
            "integer" | "bigint" | "numeric" | "double precision" => Self::Number { by_default },
            "json" | "jsonb" => Self::Json,
            "text" | "character varying" => Self::Text,
            _ => Self::Plain,
        }
    }
}

/// As `pg_get_expr` writes them.
const NOW: [&str; 8] = [
    "now()",
    "CURRENT_TIMESTAMP",
    "CURRENT_DATE",
    "LOCALTIMESTAMP",
    "clock_timestamp()",
    "statement_timestamp()",
    "transaction_timestamp()",
    "timeofday()",
];
const RANDOM: [&str; 6] = [
    "gen_random_uuid()",
    "uuid_generate_v",
    "uuidv4()",
    "uuidv7()",
    "random()",
    "gen_random_bytes(",
];

fn is_uuid_column(column: &Column) -> bool {
    column.base_type == "uuid"
}

pub(crate) fn in_text(before: &str, after: &str, window: &Window) -> Option<Noise> {
    if window.texts_moved(before, after) {
        return Some(Noise::Clock);
    }
    let (before, after) = (epoch_in_text(before)?, epoch_in_text(after)?);
    window.epochs_moved(before, after).then_some(Noise::Clock)
}

/// A text of digits that are as many as those of times since the epoch.
fn epoch_in_text(text: &str) -> Option<f64> {
    (matches!(text.len(), 10 | 13 | 16 | 19) && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// Why two JSON values differ, if it is noise wherever they do. `fresh` says whether a text that is
/// new in its place is new altogether; UUIDs that are not may be references to something else.
pub fn in_json(
    before: &Value,
    after: &Value,
    window: &Window,
    numbers: &dyn Numbers,
    fresh: &dyn Fn(&str) -> bool,
) -> Option<Noise> {
    let mut worst = None;
    for change in json::changes(before, after) {
        let noise = in_change(&change, window, numbers, fresh)?;
        worst = worst.max(Some(noise));
    }
    worst
}

/// The same for one place.
pub fn in_change(
    change: &json::Change<'_>,
    window: &Window,
    numbers: &dyn Numbers,
    fresh: &dyn Fn(&str) -> bool,
) -> Option<Noise> {
    match (change.before?, change.after?) {
        (Value::Number(before), Value::Number(after)) => {
            if window.epochs_moved(before.as_f64()?, after.as_f64()?) {
                return Some(Noise::Clock);
            }
            numbers
                .renumbered(before.as_i64()?, after.as_i64()?)
                .then_some(Noise::Sequence)
        }
        (Value::String(before), Value::String(after)) => {
            if json::is_uuid(before) && json::is_uuid(after) {
                return fresh(after).then_some(Noise::Random);
            }
            if let (Ok(before), Ok(after)) = (before.parse(), after.parse())
                && numbers.renumbered(before, after)
            {
                return Some(Noise::Sequence);
            }
            in_text(before, after, window)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hindcast_replay::clock::parse_time;
    use serde_json::json;

    use super::*;

    /// The original ran from 12:00 to 12:10 on 1 May 2024, the changed code from 9:00 to 9:05 on 3
    /// June.
    fn window() -> Window {
        let at = |text: &str| parse_time(text).unwrap().0.from;
        Window {
            original: (at("2024-05-01T12:00:00Z"), at("2024-05-01T12:10:00Z")),
            run: (at("2024-06-03T09:00:00Z"), at("2024-06-03T09:05:00Z")),
            replayed: None,
        }
    }

    fn column(base_type: &str, default: Option<&str>) -> Column {
        Column {
            name: "c".into(),
            quoted: "c".into(),
            declared_type: base_type.into(),
            base_type: base_type.into(),
            category: 'X',
            modifier: -1,
            default: default.map(str::to_owned),
            identity: None,
            generated: false,
            has_equality: true,
            sequence: None,
        }
    }

    fn noise(base_type: &str, default: Option<&str>, before: &str, after: &str) -> Option<Noise> {
        in_column(
            &column(base_type, default),
            Some(before),
            Some(after),
            &window(),
        )
    }

    #[test]
    fn a_time_that_moved_from_one_run_to_the_other_is_noise() {
        for (base_type, before, after) in [
            (
                "timestamp with time zone",
                "2024-05-01 12:03:04.5+00",
                "2024-06-03 09:01:02+00",
            ),
            (
                "timestamp without time zone",
                "2024-05-01 12:03:04",
                "2024-06-03 09:01:02.25",
            ),
            // Written by a service that lives in Tokyo.
            (
                "timestamp without time zone",
                "2024-05-01 21:03:04",
                "2024-06-03 18:01:02",
            ),
            ("date", "2024-05-01", "2024-06-03"),
            ("bigint", "1714564984", "1717405262"),
            ("bigint", "1714564984123", "1717405262123"),
            (
                "text",
                "2024-05-01T12:03:04.123Z",
                "2024-06-03T09:01:02.000Z",
            ),
            (
                "text",
                "Wed, 01 May 2024 12:03:04 GMT",
                "Mon, 03 Jun 2024 09:01:02 GMT",
            ),
            (
                "jsonb",
                r#"{"at": "2024-05-01T12:03:04Z", "n": 1}"#,
                r#"{"at": "2024-06-03T09:01:02Z", "n": 1}"#,
            ),
        ] {
            assert_eq!(
                noise(base_type, None, before, after),
                Some(Noise::Clock),
                "{base_type}: {before} {after}"
            );
        }
    }

    #[test]
    fn a_replayed_original_has_times_of_its_replay() {
        let replayed = "2024-07-07 07:07:07+00";
        let at = parse_time(replayed).unwrap().0.from;
        let window = Window {
            replayed: Some((at, at)),
            ..window()
        };
        let column = column("timestamp with time zone", None);
        let noise = |before, after| in_column(&column, Some(before), Some(after), &window);
        assert_eq!(
            noise(replayed, "2024-06-03 09:01:02+00"),
            Some(Noise::Clock)
        );
        assert_eq!(noise("2024-06-03 09:01:02+00", replayed), None);
        assert!(is_of_replay(&column, replayed, &window));
        assert!(!is_of_replay(&column, "2024-05-01 12:03:04+00", &window));
    }

    #[test]
    fn any_other_change_of_a_time_is_a_difference() {
        for (base_type, before, after) in [
            // Due a day later, whenever it ran.
            (
                "timestamp with time zone",
                "2024-05-10 12:00:00+00",
                "2024-05-11 12:00:00+00",
            ),
            // Something else of the original run.
            (
                "timestamp with time zone",
                "2024-05-01 12:03:04+00",
                "2024-05-01 12:05:00+00",
            ),
            // A day later than either run.
            (
                "timestamp with time zone",
                "2024-05-02 12:03:04+00",
                "2024-06-04 09:01:02+00",
            ),
            // The zones differ, too.
            (
                "timestamp without time zone",
                "2024-05-01 21:03:04",
                "2024-06-03 09:01:02",
            ),
            (
                "timestamp with time zone",
                "infinity",
                "2024-06-03 09:01:02+00",
            ),
            ("date", "2024-05-01", "2024-06-05"),
            ("bigint", "17", "1717405262"),
            ("bigint", "1714564984", "1717405262123"),
            ("text", "2024-05-01T12:03:04.123Z", "tomorrow"),
            ("text", "at 2024-05-01", "at 2024-06-03"),
            (
                "jsonb",
                r#"{"at": "2024-05-01T12:03:04Z", "n": 1}"#,
                r#"{"at": "2024-06-03T09:01:02Z", "n": 2}"#,
            ),
            (
                "uuid",
                "6f2c1c5e-5cf4-4b0c-9d3f-2f6e7a8b9c0d",
                "7f2c1c5e-5cf4-4b0c-9d3f-2f6e7a8b9c0d",
            ),
            ("boolean", "true", "false"),
        ] {
            assert_eq!(
                noise(base_type, None, before, after),
                None,
                "{base_type}: {before} {after}"
            );
        }
        let clock = column("timestamp with time zone", Some("now()"));
        assert_eq!(
            in_column(&clock, None, Some("2024-06-03 09:01:02+00"), &window()),
            None
        );
    }

    #[test]
    fn a_default_tells_what_a_column_is_made_of() {
        let (then, later) = ("2024-05-01 12:03:04+00", "2024-05-01 12:05:00+00");
        assert_eq!(
            noise("timestamp with time zone", Some("now()"), then, later),
            Some(Noise::Clock)
        );
        assert_eq!(
            noise(
                "timestamp with time zone",
                Some("now()"),
                then,
                "2030-01-01 00:00:00+00"
            ),
            None
        );
        assert_eq!(
            noise("bigint", Some("nextval('public.s'::regclass)"), "1", "2"),
            Some(Noise::Sequence)
        );
        assert_eq!(noise("bigint", Some("0"), "1", "2"), None);
        let (one, other) = (
            "6f2c1c5e-5cf4-4b0c-9d3f-2f6e7a8b9c0d",
            "7f2c1c5e-5cf4-4b0c-9d3f-2f6e7a8b9c0d",
        );
        assert_eq!(
            noise("uuid", Some("gen_random_uuid()"), one, other),
            Some(Noise::Random)
        );
        assert_eq!(
            noise("text", Some("md5((random())::text)"), "a", "b"),
            Some(Noise::Random)
        );
    }

    #[test]
    fn rows_are_noise_only_if_all_that_differs_is() {
        let columns = [
            column("bigint", Some("nextval('s'::regclass)")),
            column("text", None),
            column("timestamp with time zone", None),
        ];
        let row = |values: [&str; 3]| values.map(|value| Some(value.to_owned())).to_vec();
        let before = row(["1", "x", "2024-05-01 12:03:04+00"]);
        let same = row(["7", "x", "2024-06-03 09:01:02+00"]);
        let other = row(["7", "y", "2024-06-03 09:01:02+00"]);
        let nothing = |_: usize, _: &str, _: &str| None;
        assert_eq!(
            in_row(&columns, &before, &same, &window(), &nothing),
            Some(vec![(0, Noise::Sequence), (2, Noise::Clock)])
        );
        assert_eq!(in_row(&columns, &before, &other, &window(), &nothing), None);
        let hash = |row: &RowText| hash_without_noise(&columns, row, &window(), &|_, _| false);
        assert_eq!(hash(&before), hash(&same));
        assert_ne!(hash(&before), hash(&other));
        assert_eq!(
            in_row(&columns, &before, &other, &window(), &|index, b, a| {
                ((index, b, a) == (1, "x", "y")).then_some(Noise::Sequence)
            })
            .map(|noise| noise.len()),
            Some(3)
        );
    }

    #[test]
    fn a_uuid_in_json_is_noise_only_if_it_is_fresh() {
        let (one, other) = (
            "6f2c1c5e-5cf4-4b0c-9d3f-2f6e7a8b9c0d",
            "7f2c1c5e-5cf4-4b0c-9d3f-2f6e7a8b9c0d",
        );
        let (before, after) = (json!({"id": one}), json!({"id": other}));
        assert_eq!(
            in_json(&before, &after, &window(), &NoNumbers, &|_| true),
            Some(Noise::Random)
        );
        assert_eq!(
            in_json(&before, &after, &window(), &NoNumbers, &|_| false),
            None
        );
    }

    #[test]
    fn a_number_in_json_is_noise_if_a_sequence_gave_it_out() {
        struct Seven;
        impl Numbers for Seven {
            fn renumbered(&self, before: i64, after: i64) -> bool {
                (before, after) == (5, 7)
            }
        }
        let found =
            |before: Value, after: Value| in_json(&before, &after, &window(), &Seven, &|_| false);
        assert_eq!(
            found(json!({"id": 5}), json!({"id": 7})),
            Some(Noise::Sequence)
        );
        assert_eq!(
            found(json!({"id": "5"}), json!({"id": "7"})),
            Some(Noise::Sequence)
        );
        assert_eq!(
            found(json!({"id": 5, "n": 1}), json!({"id": 7, "n": 2})),
            None
        );
        assert_eq!(found(json!({"id": 5}), json!({})), None);
    }
}
