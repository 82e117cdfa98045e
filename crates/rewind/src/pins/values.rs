//! What one transaction is to draw and read again, as the settings that say so.

use chrono::DateTime;
use hindcast_pg::quote_literal;
use hindcast_trace::{Drawn, DrawnUuid, DrawnValue, Micros};

use super::uuids;

/// What one transaction is to draw and read again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Values<'a> {
    pub now: Option<Micros>,
    /// In order.
    pub drawn: &'a [Drawn],
    /// UUIDs that results showed, in order.
    pub uuids: &'a [DrawnUuid],
}

/// The settings by which a transaction gets its [`Values`].
pub const SETTINGS: [&str; 7] = [
    "hindcast_pins.now",
    "hindcast_pins.sequences",
    "hindcast_pins.uuids",
    "hindcast_pins.clocks",
    "hindcast_pins.randoms",
    // The extension reads these, and no function here.
    "hindcast_pins.bytes",
    "hindcast_pins.objects",
];

/// A value for each of [`SETTINGS`].
pub type Settings = [String; SETTINGS.len()];

impl Values<'_> {
    /// What [`SETTINGS`] are to be; empty for what is not pinned.
    ///
    /// To be set for the transaction only: as `SET LOCAL name = 'value'` (which takes no snapshot;
    /// see [`Values::prelude`]) or with `set_config(name, value, true)`. Other statements of the
    /// transaction use the values up from the front.
    pub fn settings(&self) -> Settings {
        let now = self.now.map(timestamp).unwrap_or_default();
        let told = self.of(|value| match value {
            DrawnValue::Uuid(uuid) => Some(uuid),
            _ => None,
        });
        let clocks = self.of(|value| match value {
            DrawnValue::Clock(moment) => Some(timestamp(moment)),
            _ => None,
        });
        let randoms = self.of(|value| match value {
            DrawnValue::Random(number) => Some(number.to_string()),
            _ => None,
        });
        let bytes = self.of(|value| match value {
            DrawnValue::Bytes(bytes) => Some(bytes.text()),
            _ => None,
        });
        let objects = self.of(|value| match value {
            DrawnValue::LargeObject(object) => Some(object.to_string()),
            _ => None,
        });
        let uuids = uuids::queues(&told.collect::<Vec<_>>(), self.uuids);
        let words = |all: Vec<String>| all.join(" ");
        [
            now,
            self.sequences(),
            uuids,
            words(clocks.collect()),
            words(randoms.collect()),
            bytes.collect(),
            words(objects.collect()),
        ]
    }

    fn of<T>(&self, which: impl Fn(DrawnValue) -> Option<T>) -> impl Iterator<Item = T> {
        self.drawn.iter().filter_map(move |one| which(one.value))
    }

    /// The settings as statements for the start of a transaction. They take no snapshot. `None`:
    /// there is nothing to set.
    pub fn prelude(&self) -> Option<String> {
        let settings = SETTINGS.into_iter().zip(self.settings());
        let statements: Vec<String> = settings
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("SET LOCAL {name} = {}", quote_literal(&value)))
            .collect();
        (!statements.is_empty()).then(|| statements.join("; "))
    }

    /// `;SEQUENCE:RUN RUN …;SEQUENCE:…;`, a run being a value or `FIRST*COUNT` consecutive ones.
    fn sequences(&self) -> String {
        let mut queues: Vec<(u32, Vec<(i64, u64)>)> = Vec::new();
        let runs = self.of(|value| match value {
            DrawnValue::Sequence { first, count } => Some((first, count)),
            _ => None,
        });
        for (first, more) in runs {
            let (sequence, value) = (first.sequence, first.value);
            let runs = match queues.iter_mut().find(|(known, _)| *known == sequence) {
                Some((_, runs)) => runs,
                None => {
                    queues.push((sequence, Vec::new()));
                    &mut queues.last_mut().expect("it was just pushed").1
                }
            };
            match runs.last_mut() {
                Some((first, count)) if first.checked_add_unsigned(*count) == Some(value) => {
                    *count = count.saturating_add(more);
                }
                _ => runs.push((value, more)),
            }
        }
        if queues.is_empty() {
            return String::new();
        }
        let mut text = String::from(";");
        for (sequence, runs) in queues {
            let runs: Vec<String> = runs
                .into_iter()
                .map(|(first, count)| match count {
                    1 => first.to_string(),
                    _ => format!("{first}*{count}"),
                })
                .collect();
            text.push_str(&format!("{sequence}:{};", runs.join(" ")));
        }
        text
    }
}

/// In UTC and ISO order, which Postgres reads the same way under every DateStyle and time zone, in
/// one word.
fn timestamp(micros: Micros) -> String {
    match DateTime::from_timestamp_micros(micros) {
        Some(at) => at.format("%Y-%m-%dT%H:%M:%S%.6f+00").to_string(),
        // No clock of a server goes so far.
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use hindcast_trace::{DrawnBytes, SequenceValue};

    use super::*;

    fn drawn(values: impl IntoIterator<Item = DrawnValue>) -> Vec<Drawn> {
        let drawn = |value| Drawn {
            statement: None,
            value,
        };
        values.into_iter().map(drawn).collect()
    }

    fn run(sequence: u32, value: i64, count: u64) -> DrawnValue {
        let first = SequenceValue { sequence, value };
        DrawnValue::Sequence { first, count }
    }

    #[test]
    fn queues_are_kept_per_sequence_and_runs_are_short() {
        let drawn = drawn([
            run(7, 5, 1),
            run(9, -1, 1),
            run(7, 6, 2),
            run(9, 0, 1),
            run(7, 5, 1),
            run(7, i64::MAX, 1),
        ]);
        let values = Values {
            drawn: &drawn,
            ..Values::default()
        };
        let queues = format!(";7:5*3 5 {};9:-1*2;", i64::MAX);
        assert_eq!(values.settings()[1], queues);
    }

    #[test]
    fn each_kind_has_a_queue_of_its_own() {
        let drawn = drawn([
            DrawnValue::Bytes(DrawnBytes::new(&[0, 255]).unwrap()),
            DrawnValue::Random(0.5),
            DrawnValue::Clock(0),
            DrawnValue::Uuid(1),
            DrawnValue::Clock(1),
            DrawnValue::Random(1e-7),
            DrawnValue::Bytes(DrawnBytes::new(&[16]).unwrap()),
            DrawnValue::LargeObject(16626),
            DrawnValue::LargeObject(16627),
        ]);
        let values = Values {
            drawn: &drawn,
            ..Values::default()
        };
        assert_eq!(
            values.settings(),
            [
                "",
                "",
                ";told:00000000-0000-0000-0000-000000000001;",
                "1970-01-01T00:00:00.000000+00 1970-01-01T00:00:00.000001+00",
                "0.5 0.0000001",
                "00ff10",
                "16626 16627",
            ]
        );
    }

    #[test]
    fn times_are_written_as_postgres_reads_them() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000+00"),
            (-1, "1969-12-31T23:59:59.999999+00"),
            (1_709_208_000_000_001, "2024-02-29T12:00:00.000001+00"),
            (1_709_251_200_000_000, "2024-03-01T00:00:00.000000+00"),
            (4_102_444_799_123_456, "2099-12-31T23:59:59.123456+00"),
        ] {
            assert_eq!(timestamp(micros), text);
        }
    }

    #[test]
    fn a_transaction_without_recorded_values_needs_no_prelude() {
        assert_eq!(Values::default().prelude(), None);
        let values = Values {
            now: Some(0),
            drawn: &drawn([run(7, 5, 1)]),
            uuids: &[],
        };
        assert_eq!(
            values.prelude().as_deref(),
            Some(
                "SET LOCAL hindcast_pins.now = '1970-01-01T00:00:00.000000+00'; SET LOCAL hindcast_pins.sequences = ';7:5;'"
            )
        );
    }
}
