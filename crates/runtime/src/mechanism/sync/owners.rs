//! Who acquired an object last, for objects that have no room for it themselves.
//!
//! A table of fixed size, never emptied. An object's address finds its cell within a few steps, or,
//! where these are all taken, shares the cell at its place with others. Sharing is sound: it only
//! orders acquisitions of different objects that nobody asked to be ordered. So is a cell that
//! outlives its object and finds the next one at the same address: its owner word names an
//! acquisition that did happen before.

use std::sync::atomic::{AtomicU64, Ordering};

/// The word that says who acquired an object last.
pub struct Cell<'a> {
    pub owner: &'a AtomicU64,
    /// No other object has this cell.
    pub alone: bool,
}

#[repr(C, align(16))]
struct Entry {
    /// The object, or zero. Written once.
    key: AtomicU64,
    owner: AtomicU64,
}

pub struct Owners<const ENTRIES: usize> {
    entries: [Entry; ENTRIES],
    /// Words that are shared by whatever found no entry.
    shared: [AtomicU64; SHARED],
}

/// Two cache lines.
const STEPS: usize = 8;
const SHARED: usize = 4096;

impl<const ENTRIES: usize> Owners<ENTRIES> {
    pub const fn new() -> Self {
        assert!(ENTRIES.is_power_of_two() && ENTRIES >= STEPS);
        Owners {
            entries: [const {
                Entry {
                    key: AtomicU64::new(0),
                    owner: AtomicU64::new(0),
                }
            }; ENTRIES],
            shared: [const { AtomicU64::new(0) }; SHARED],
        }
    }

    #[inline]
    pub fn cell(&self, key: u64) -> Cell<'_> {
        let hash = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Whole groups, so that a search touches two lines at most.
        let first = (hash >> 32) as usize & (ENTRIES - 1) & !(STEPS - 1);
        let start = (hash >> 24) as usize % STEPS;
        for step in 0..STEPS {
            let entry = &self.entries[first + (start + step) % STEPS];
            let found = match entry.key.load(Ordering::Acquire) {
                0 => match entry
                    .key
                    .compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire)
                {
                    Ok(_) => key,
                    Err(other) => other,
                },
                found => found,
            };
            if found == key {
                return Cell {
                    owner: &entry.owner,
                    alone: true,
                };
            }
        }
        Cell {
            owner: &self.shared[(hash >> 40) as usize % SHARED],
            alone: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(cell: &Cell<'_>) -> usize {
        cell.owner as *const AtomicU64 as usize
    }

    #[test]
    fn an_object_keeps_its_cell_and_has_it_alone_while_there_is_room() {
        let owners: Box<Owners<4096>> = Box::new(Owners::new());
        let first: Vec<_> = (1..500u64)
            .map(|index| address(&owners.cell(0x5555_0000 + index * 40)))
            .collect();
        let again: Vec<_> = (1..500u64)
            .map(|index| address(&owners.cell(0x5555_0000 + index * 40)))
            .collect();
        assert_eq!(first, again);
        let distinct: std::collections::HashSet<_> = first.iter().collect();
        assert!(
            distinct.len() >= 495,
            "only {} cells for 499 objects in 4096 entries",
            distinct.len()
        );
    }

    #[test]
    fn more_objects_than_entries_share_cells_and_each_keeps_its_own() {
        let owners: Box<Owners<64>> = Box::new(Owners::new());
        let first: Vec<_> = (1..5000u64)
            .map(|index| address(&owners.cell(index * 8)))
            .collect();
        let again: Vec<_> = (1..5000u64)
            .map(|index| address(&owners.cell(index * 8)))
            .collect();
        assert_eq!(first, again);
    }

    #[test]
    fn threads_that_meet_an_object_at_the_same_time_agree_on_its_cell() {
        let owners: Box<Owners<1024>> = Box::new(Owners::new());
        let barrier = std::sync::Barrier::new(4);
        let found: Vec<Vec<usize>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        (1..800u64)
                            .map(|index| address(&owners.cell(index * 64)))
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(found.windows(2).all(|pair| pair[0] == pair[1]));
    }
}
