//! The scheduler's map from keys to rows, of one table.
//!
//! The scheduler is one thread, and what it waits for is memory: this map is larger than any cache.
//! So an entry is 16 bytes and has half of its key's hash, and the key itself is looked at only
//! when that agrees. (An own table with linear probing was tried, for one cache miss instead of
//! two. It took twice the time: whether the first place is free cannot be predicted, and each wrong
//! guess waits for memory, while hashbrown's control bytes say no at once and the entry is only
//! written.)
//!
//! The map is in parts, so that growing moves a sixty-fourth of it at once and the log does not
//! stand still meanwhile.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;
use xxhash_rust::xxh3::xxh3_64;

const PARTS: usize = 64;

/// A write's number, and whether it deleted the row. 0 is no write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Last(u64);

const DELETED: u64 = 1 << 63;

impl Last {
    pub fn none() -> Last {
        Last(0)
    }

    pub fn put(seq: u64) -> Last {
        Last(seq)
    }

    pub fn deleted(seq: u64) -> Last {
        Last(seq | DELETED)
    }

    pub fn seq(self) -> u64 {
        self.0 & !DELETED
    }

    pub fn is_deleted(self) -> bool {
        self.0 & DELETED != 0
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// Half of the key's hash.
    pub hash: u32,
    pub row: u32,
    pub last: Last,
}

const _: () = assert!(size_of::<Entry>() == 16, "four entries share a cache line");

pub(crate) struct RowMap {
    parts: Box<[HashTable<Entry>]>,
}

pub(crate) fn hash_of(key: &[u8]) -> u32 {
    xxh3_64(key) as u32
}

/// The table's own hash: it wants good bits at both ends.
fn spread(hash: u32) -> u64 {
    u64::from(hash)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(32)
}

impl RowMap {
    pub fn new() -> RowMap {
        RowMap {
            parts: (0..PARTS).map(|_| HashTable::new()).collect(),
        }
    }

    fn part(&mut self, hash: u32) -> &mut HashTable<Entry> {
        &mut self.parts[hash as usize % PARTS]
    }

    /// The entry with this hash for which `same` says that its row is the one.
    pub fn find(&mut self, hash: u32, same: impl Fn(u32) -> bool) -> Option<&mut Entry> {
        self.part(hash)
            .find_mut(spread(hash), |entry| entry.hash == hash && same(entry.row))
    }

    /// The entry as for `find`, or else a new one if `new` can give it.
    pub fn find_or_insert(
        &mut self,
        hash: u32,
        same: impl Fn(u32) -> bool,
        new: impl FnOnce() -> Option<Entry>,
    ) -> Option<&mut Entry> {
        let same = |entry: &Entry| entry.hash == hash && same(entry.row);
        match self
            .part(hash)
            .entry(spread(hash), same, |entry| spread(entry.hash))
        {
            Place::Occupied(entry) => Some(entry.into_mut()),
            Place::Vacant(place) => Some(place.insert(new()?).into_mut()),
        }
    }

    /// Removes the entry of a row if its last write is `last`. Says whether it was there.
    pub fn remove(&mut self, hash: u32, row: u32, last: Last) -> bool {
        match self
            .part(hash)
            .find_entry(spread(hash), |entry| entry.row == row && entry.last == last)
        {
            Ok(entry) => {
                entry.remove();
                true
            }
            Err(_) => false,
        }
    }

    /// Keeps the entries for which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        for part in &mut self.parts {
            part.retain(|entry| keep(entry));
            if part.capacity() > 4 * part.len() {
                part.shrink_to_fit(|entry| spread(entry.hash));
            }
        }
    }

    pub fn bytes(&self) -> usize {
        self.parts
            .iter()
            .map(|part| part.capacity() * (size_of::<Entry>() + 1))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u32),
        Remove(u32),
        Retain(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        // Few hashes, so that many rows share one and parts are full of neighbours.
        prop_oneof![
            20 => (0u32..4000).prop_map(Step::Insert),
            12 => (0u32..4000).prop_map(Step::Remove),
            1 => (1u32..5).prop_map(Step::Retain),
        ]
    }

    fn hash(row: u32) -> u32 {
        (row / 3).wrapping_mul(0x0100_0040)
    }

    proptest! {
        #[test]
        fn it_holds_what_a_plain_map_holds(steps in prop::collection::vec(step(), 0..2000)) {
            let mut map = RowMap::new();
            let mut model: HashMap<u32, u64> = HashMap::new();
            for (i, step) in steps.into_iter().enumerate() {
                let seq = i as u64 + 1;
                match step {
                    Step::Insert(row) => {
                        let new = || Some(Entry { hash: hash(row), row, last: Last::none() });
                        let entry = map.find_or_insert(hash(row), |other| other == row, new);
                        if let Some(entry) = entry {
                            entry.last = Last::put(seq);
                        }
                        model.insert(row, seq);
                    }
                    Step::Remove(row) => {
                        let last = model.remove(&row);
                        prop_assert!(!map.remove(hash(row), row, Last::put(seq)), "another last write");
                        let removed = map.remove(hash(row), row, Last::put(last.unwrap_or(seq)));
                        prop_assert_eq!(removed, last.is_some());
                    }
                    Step::Retain(divisor) => {
                        map.retain(|entry| entry.row % divisor == 0);
                        model.retain(|row, _| row % divisor == 0);
                    }
                }
            }
            for row in 0..4000 {
                let found = map.find(hash(row), |other| other == row).map(|entry| entry.last.seq());
                prop_assert_eq!(found, model.get(&row).copied());
            }
        }
    }
}
