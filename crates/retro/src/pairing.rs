//! Finds rows that came and went only because they were given another number.

use std::collections::{HashMap, VecDeque};

use hindcast_state::{Aligned, Column, ForeignKey, FoundRow, RowText, Side};

use crate::noise::{self, Noise, Window};

/// Which rows were given another key, by table, and who refers to them.
#[derive(Debug)]
pub(crate) struct Renumbered {
    pub foreign_keys: Vec<ForeignKey>,
    tables: HashMap<String, Keys>,
    /// In any column: ids that the service made otherwise.
    ids: Keys,
}

/// Values of a key of one column.
#[derive(Debug, Default)]
struct Keys {
    /// What they are now, by what they were; and the other way round.
    now: HashMap<String, String>,
    was: HashMap<String, String>,
}

impl Renumbered {
    /// `learned`: what ids are now, each with what it was.
    pub fn new(foreign_keys: Vec<ForeignKey>, learned: &[(String, String)]) -> Self {
        let mut ids = Keys::default();
        for (now, was) in learned {
            ids.note(was, now);
        }
        Self {
            foreign_keys,
            tables: HashMap::new(),
            ids,
        }
    }

    /// By column of a table: the table that it refers to, if rows of that have other keys now.
    fn referred(&self, aligned: &Aligned) -> Vec<Option<String>> {
        let referred = |column: &Column| {
            let mut keys = self.foreign_keys.iter().filter(|key| {
                key.table == aligned.table
                    && key.columns.len() == 1
                    && key.columns[0] == column.name
            });
            keys.find(|key| self.tables.contains_key(&key.references))
                .map(|key| key.references.clone())
        };
        aligned.columns.iter().map(referred).collect()
    }

    /// Why a value is another one now, in a column that refers to this table, if to any.
    fn noise(&self, table: Option<&str>, before: &str, after: &str) -> Option<Noise> {
        let keys = table.and_then(|table| self.tables.get(table));
        match () {
            () if keys.is_some_and(|keys| keys.is(before, after)) => Some(Noise::Sequence),
            () if self.ids.is(before, after) => Some(Noise::Random),
            () => None,
        }
    }

    fn occurs(&self, table: Option<&str>, value: &str) -> bool {
        let keys = table.and_then(|table| self.tables.get(table));
        keys.is_some_and(|keys| keys.occurs(value)) || self.ids.occurs(value)
    }

    fn was(&self, table: Option<&str>, now: &str) -> Option<&String> {
        let keys = table.and_then(|table| self.tables.get(table));
        let was = keys.and_then(|keys| keys.was.get(now));
        was.or_else(|| self.ids.was.get(now))
    }

    fn note(&mut self, table: &str, before: &str, after: &str) {
        let keys = self.tables.entry(table.to_owned()).or_default();
        keys.note(before, after);
    }
}

impl Keys {
    fn is(&self, before: &str, after: &str) -> bool {
        self.now.get(before).is_some_and(|now| now == after)
    }

    fn occurs(&self, value: &str) -> bool {
        self.now.contains_key(value) || self.was.contains_key(value)
    }

    fn note(&mut self, before: &str, after: &str) {
        self.now.insert(before.to_owned(), after.to_owned());
        self.was.insert(after.to_owned(), before.to_owned());
    }
}

/// A row that waits for its counterpart.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub ordinal: u64,
    pub row: FoundRow,
}

/// What became of a row that only one side has.
#[derive(Debug)]
pub(crate) enum Offered {
    /// It and its counterpart differ only in noise; `rows` of both sides together.
    Paired {
        rows: u64,
        noise: Vec<(usize, Noise)>,
    },
    Waits,
    /// There is nothing in its key that could be noise.
    Alone(FoundRow),
    /// Too many wait already.
    Full(FoundRow),
}

/// Waiting rows hold at most this much text, so that wide rows are bounded, too.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Of rows that agree but for noise at first sight, so many are looked at.
const ALIKE_MAX: usize = 16;

type Waiting = HashMap<u64, VecDeque<Candidate>>;

/// Looks for counterparts among the rows of one table that only one side has.
#[derive(Debug)]
pub(crate) struct Pairing<'a> {
    aligned: &'a Aligned,
    window: &'a Window,
    renumbered: &'a mut Renumbered,
    referred: Vec<Option<String>>,
    /// Something in the key may be noise; or there is no key, and something in the row may be.
    possible: bool,
    before: Waiting,
    after: Waiting,
    /// More that may wait.
    room: usize,
    room_bytes: usize,
}

impl<'a> Pairing<'a> {
    pub fn new(
        aligned: &'a Aligned,
        window: &'a Window,
        candidates_max: usize,
        renumbered: &'a mut Renumbered,
    ) -> Self {
        let referred = renumbered.referred(aligned);
        let has_ids = !renumbered.ids.now.is_empty();
        let varies = |index: usize| {
            let column = &aligned.columns[index];
            has_ids || noise::varies_from_run_to_run(column) || referred[index].is_some()
        };
        let possible = aligned.only_in.is_none()
            && if aligned.key.is_empty() {
                (0..aligned.columns.len()).any(varies)
            } else {
                aligned.key.iter().any(|index| varies(*index))
            };
        Self {
            aligned,
            window,
            renumbered,
            referred,
            possible,
            before: HashMap::new(),
            after: HashMap::new(),
            room: candidates_max,
            room_bytes: WAITING_BYTES_MAX,
        }
    }

    /// Why two rows differ, if it is noise wherever they do.
    pub fn noise(&self, before: &RowText, after: &RowText) -> Option<Vec<(usize, Noise)>> {
        let known = |index: usize, before: &str, after: &str| {
            let table = self.referred[index].as_deref();
            self.renumbered.noise(table, before, after)
        };
        noise::in_row(&self.aligned.columns, before, after, self.window, &known)
    }

    /// A row of the retroacted database with references to renumbered rows as they are in the
    /// original one.
    pub fn translated(&self, mut after: RowText) -> RowText {
        for (value, table) in after.iter_mut().zip(&self.referred) {
            let was = |now: &String| self.renumbered.was(table.as_deref(), now);
            if let Some(was) = value.as_ref().and_then(was) {
                *value = Some(was.clone());
            }
        }
        after
    }

    /// A row that only `side` has.
    pub fn offer(&mut self, side: Side, ordinal: u64, row: FoundRow) -> Offered {
        if !self.possible {
            return Offered::Alone(row);
        }
        let hash = self.hash(&row.values);
        if let Some((other, noise)) = self.take_counterpart(side, hash, &row) {
            let (before, after) = match side {
                Side::A => (&row, &other),
                Side::B => (&other, &row),
            };
            if let [key] = self.aligned.key[..]
                && let (Some(before), Some(after)) = (&before.values[key], &after.values[key])
            {
                self.renumbered.note(&self.aligned.table, before, after);
            }
            return Offered::Paired {
                rows: row.count + other.count,
                noise,
            };
        }
        let bytes = size(&row);
        if self.room == 0 || self.room_bytes < bytes {
            return Offered::Full(row);
        }
        self.room -= 1;
        self.room_bytes -= bytes;
        let waiting = match side {
            Side::A => &mut self.before,
            Side::B => &mut self.after,
        };
        let candidate = Candidate { ordinal, row };
        waiting.entry(hash).or_default().push_back(candidate);
        Offered::Waits
    }

    /// Those that found no counterpart.
    pub fn take_left(&mut self) -> Vec<(Side, Candidate)> {
        let before = std::mem::take(&mut self.before).into_values().flatten();
        let after = std::mem::take(&mut self.after).into_values().flatten();
        (before.map(|candidate| (Side::A, candidate)))
            .chain(after.map(|candidate| (Side::B, candidate)))
            .collect()
    }

    fn hash(&self, values: &RowText) -> u64 {
        let known = |index: usize, value: &str| {
            let table = self.referred[index].as_deref();
            self.renumbered.occurs(table, value)
        };
        noise::hash_without_noise(&self.aligned.columns, values, self.window, &known)
    }

    fn take_counterpart(
        &mut self,
        side: Side,
        hash: u64,
        row: &FoundRow,
    ) -> Option<(FoundRow, Vec<(usize, Noise)>)> {
        let waiting = match side {
            Side::A => &self.after,
            Side::B => &self.before,
        };
        let alike = waiting.get(&hash)?.iter().take(ALIKE_MAX).enumerate();
        let (place, noise) = alike
            .filter(|(_, candidate)| candidate.row.count == row.count)
            .find_map(|(place, candidate)| {
                let noise = match side {
                    Side::A => self.noise(&row.values, &candidate.row.values),
                    Side::B => self.noise(&candidate.row.values, &row.values),
                };
                Some((place, noise?))
            })?;
        let waiting = match side {
            Side::A => &mut self.after,
            Side::B => &mut self.before,
        };
        let found = waiting.get_mut(&hash)?.remove(place)?;
        self.room += 1;
        self.room_bytes += size(&found.row);
        Some((found.row, noise))
    }
}

fn size(row: &FoundRow) -> usize {
    let values = row.values.iter().flatten();
    row.key.len() + values.map(|value| value.len() + 24).sum::<usize>() + 64
}
