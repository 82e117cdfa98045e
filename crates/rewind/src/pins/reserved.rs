//! Values of sequences that recorded transactions draw, so that nothing else does.

use std::collections::{BTreeMap, HashMap};

use hindcast_pg::tokio::Client;
use hindcast_trace::SequenceValue;

use super::{PinError, failed};

/// What is known of all that transactions drew, from the rewound point on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// The server told of it, also where no result showed it.
    pub told: bool,
    /// By sequence, from their first value to their last.
    ranges: BTreeMap<u32, Vec<(i64, i64)>>,
    /// What sequences are called, for those that are made anew.
    names: BTreeMap<String, u32>,
}

impl Reserved {
    /// Consecutive values, from this one on.
    pub fn add(&mut self, first: SequenceValue, count: u64) {
        let more = i64::try_from(count.saturating_sub(1)).unwrap_or(i64::MAX);
        let range = (first.value, first.value.saturating_add(more));
        self.ranges.entry(first.sequence).or_default().push(range);
    }

    /// A sequence is called so, schema and name, quoted where needed.
    pub fn name(&mut self, name: String, sequence: u32) {
        self.names.insert(name, sequence);
    }

    /// By what sequences are called in the database where they are to be reserved.
    pub fn rename(&mut self, oids: &HashMap<u32, u32>) {
        let ranges = std::mem::take(&mut self.ranges).into_iter();
        let named = |(oid, ranges)| (oids.get(&oid).copied().unwrap_or(oid), ranges);
        self.ranges = ranges.map(named).collect();
        for sequence in self.names.values_mut() {
            *sequence = oids.get(sequence).copied().unwrap_or(*sequence);
        }
    }

    /// In order, those that touch each other as one.
    fn merged(self) -> impl Iterator<Item = (u32, i64, i64)> {
        self.ranges.into_iter().flat_map(|(sequence, mut ranges)| {
            ranges.sort_unstable();
            let mut merged: Vec<(i64, i64)> = Vec::new();
            for (first, last) in ranges {
                match merged.last_mut() {
                    Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                    _ => merged.push((first, last)),
                }
            }
            let whole = move |(first, last)| (sequence, first, last);
            merged.into_iter().map(whole)
        })
    }

    /// Puts them where `nextval` looks.
    pub(super) async fn insert(self, client: &Client) -> Result<(), PinError> {
        const BATCH: usize = 10_000;
        let (names, sequences): (Vec<&str>, Vec<u32>) = self
            .names
            .iter()
            .map(|(name, sequence)| (name.as_str(), *sequence))
            .unzip();
        client
            .execute(
                "INSERT INTO pg_catalog.hindcast_named SELECT * FROM unnest($1::text[], $2::oid[]) ON CONFLICT DO NOTHING",
                &[&names, &sequences],
            )
            .await
            .map_err(failed("name sequences"))?;
        let mut merged = self.merged();
        loop {
            let batch: Vec<_> = merged.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return Ok(());
            }
            let sequences: Vec<u32> = batch.iter().map(|range| range.0).collect();
            let firsts: Vec<i64> = batch.iter().map(|range| range.1).collect();
            let lasts: Vec<i64> = batch.iter().map(|range| range.2).collect();
            client
                .execute(
                    "INSERT INTO pg_catalog.hindcast_reserved SELECT * FROM unnest($1::oid[], $2::bigint[], $3::bigint[]) \
                     ON CONFLICT DO NOTHING",
                    &[&sequences, &firsts, &lasts],
                )
                .await
                .map_err(failed("reserve sequence values"))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let mut reserved = Reserved::default();
        let value = |sequence, value| SequenceValue { sequence, value };
        for (first, count) in [
            (value(7, 10), 3),
            (value(7, 13), 1),
            (value(5, i64::MAX), u64::MAX),
            (value(7, 20), 1),
            (value(7, 11), 1),
            (value(7, -2), 1),
        ] {
            reserved.add(first, count);
        }
        assert_eq!(
            reserved.merged().collect::<Vec<_>>(),
            [
                (5, i64::MAX, i64::MAX),
                (7, -2, -2),
                (7, 10, 13),
                (7, 20, 20)
            ]
        );
    }
}
