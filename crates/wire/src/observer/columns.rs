//! Which columns the server fills, and from what.

use std::collections::HashMap;
use std::sync::Arc;

use hindcast_model::DrawnAt;

/// Entries that are always cheap to copy.
const RECENT_MIN: usize = 256;

/// From what the server fills a column that a statement does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A sequence, by its number.
    Sequence(u32),
    /// A function that draws UUIDs.
    Uuids,
}

/// A column of rows that shows what the server drew.
#[derive(Debug)]
pub(super) struct DrawnColumn {
    pub index: usize,
    pub from: DrawnFrom,
    pub format: u16,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum DrawnFrom {
    Sequence(u32),
    /// Another statement drew it.
    SequenceBefore(u32),
    Uuids(DrawnAt),
}

impl From<u32> for Source {
    fn from(sequence: u32) -> Self {
        Self::Sequence(sequence)
    }
}

/// Which columns are filled from which sequences, from `pg_attrdef`, `pg_depend` and identity
/// columns, and by what names sequences go; and which columns are filled with UUIDs.
///
/// A clone costs as much as what was learned lately, not as all that is known: all sessions read
/// one, while the host prepares the next.
#[derive(Clone, Debug, Default)]
pub struct SequenceColumns {
    /// Shared with clones.
    settled: Arc<Layer>,
    /// What was learned since. Comes first.
    recent: Layer,
}

/// An entry that is `None` says that there is none any more.
#[derive(Clone, Debug, Default)]
struct Layer {
    /// By table: the columns that the server fills, and from what.
    tables: HashMap<u32, Option<Columns>>,
    /// By sequence: its names.
    sequences: HashMap<u32, Option<Names>>,
    names: HashMap<Arc<str>, Option<u32>>,
    /// Tables with such columns, by name. One that has another name now, or is gone, may be among
    /// them.
    table_names: HashMap<Arc<str>, Option<u32>>,
}

type Columns = Arc<[(i16, Source)]>;
type Names = Arc<[Arc<str>]>;

impl SequenceColumns {
    /// A table exists, with or without such columns.
    pub fn add_table(&mut self, table: u32) {
        if !self.knows_table(table) {
            self.set_table(table, &[]);
        }
    }

    /// A column (`attribute` counts from 1) takes its values from there.
    pub fn add_column(&mut self, table: u32, attribute: i16, source: impl Into<Source>) {
        let mut columns = self.columns(table).unwrap_or_default().to_vec();
        columns.retain(|(known, _)| *known != attribute);
        columns.push((attribute, source.into()));
        self.set_table(table, &columns);
    }

    /// A table exists, and the server fills these of its columns (counted from 1).
    pub fn set_table(&mut self, table: u32, columns: &[(i16, Source)]) {
        self.recent.tables.insert(table, Some(columns.into()));
        self.settle();
    }

    /// A sequence can be written like this in `nextval('…')`: add it with and without its schema.
    pub fn add_name(&mut self, name: &str, sequence: u32) {
        let name: Arc<str> = name.into();
        let known = self.names(sequence).unwrap_or_default();
        if !known.contains(&name) {
            let names = known.iter().chain([&name]).map(Arc::clone).collect();
            self.recent.sequences.insert(sequence, Some(names));
        }
        self.recent.names.insert(name, Some(sequence));
        self.settle();
    }

    /// A table can be written like this: add it with and without its schema.
    pub fn add_table_name(&mut self, name: &str, table: u32) {
        self.recent.table_names.insert(name.into(), Some(table));
        self.settle();
    }

    /// A table is gone.
    pub fn forget_table(&mut self, table: u32) {
        self.recent.tables.insert(table, None);
        self.settle();
    }

    /// A sequence is gone, or its names are others.
    pub fn forget_sequence(&mut self, sequence: u32) {
        let names: Vec<_> = self.names(sequence).unwrap_or_default().to_vec();
        for name in names {
            if self.by_name(&name) == Some(sequence) {
                self.recent.names.insert(name, None);
            }
        }
        self.recent.sequences.insert(sequence, None);
        self.settle();
    }

    pub fn knows_table(&self, table: u32) -> bool {
        self.columns(table).is_some()
    }

    pub fn of_column(&self, table: u32, attribute: i16) -> Option<Source> {
        let columns = self.columns(table)?;
        let found = columns.iter().find(|(column, _)| *column == attribute)?;
        Some(found.1)
    }

    pub fn by_name(&self, name: &str) -> Option<u32> {
        let recent = self.recent.names.get(name);
        *recent.or_else(|| self.settled.names.get(name))?
    }

    /// The sequence from which an insert into a table draws, if that is one.
    pub fn of_insert(&self, table: &str) -> Option<u32> {
        let recent = self.recent.table_names.get(table);
        let table = (*recent.or_else(|| self.settled.table_names.get(table))?)?;
        let mut sequences = self.of_table(table);
        sequences.next().filter(|_| sequences.next().is_none())
    }

    /// The sequences from which columns of this table take their values.
    pub fn of_table(&self, table: u32) -> impl Iterator<Item = u32> + '_ {
        let columns = self.columns(table).unwrap_or_default();
        columns.iter().filter_map(|(_, source)| match source {
            Source::Sequence(sequence) => Some(*sequence),
            Source::Uuids => None,
        })
    }

    fn columns(&self, table: u32) -> Option<&[(i16, Source)]> {
        let recent = self.recent.tables.get(&table);
        let columns = recent.or_else(|| self.settled.tables.get(&table))?;
        columns.as_deref()
    }

    fn names(&self, sequence: u32) -> Option<&[Arc<str>]> {
        let recent = self.recent.sequences.get(&sequence);
        let names = recent.or_else(|| self.settled.sequences.get(&sequence))?;
        names.as_deref()
    }

    /// Puts what was learned to the rest once copying it would cost too much: in all, each entry is
    /// copied a bounded number of times.
    fn settle(&mut self) {
        if self.recent.len() > RECENT_MIN.max(self.settled.len() / 16) {
            let recent = std::mem::take(&mut self.recent);
            Arc::make_mut(&mut self.settled).take_over(recent);
        }
    }
}

impl Layer {
    fn len(&self) -> usize {
        self.tables.len() + self.sequences.len() + self.names.len() + self.table_names.len()
    }

    fn take_over(&mut self, newer: Layer) {
        take_over(&mut self.tables, newer.tables);
        take_over(&mut self.sequences, newer.sequences);
        take_over(&mut self.names, newer.names);
        take_over(&mut self.table_names, newer.table_names);
    }
}

fn take_over<K: Eq + std::hash::Hash, V>(
    older: &mut HashMap<K, Option<V>>,
    newer: HashMap<K, Option<V>>,
) {
    for (key, value) in newer {
        match value.is_some() {
            true => drop(older.insert(key, value)),
            false => drop(older.remove(&key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Table(u32, Vec<(i16, u32)>),
        ForgetTable(u32),
        Sequence(u32, Vec<u8>),
        Clone,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let columns = prop::collection::vec((1i16..4, 0u32..400), 0..3);
        let names = prop::collection::vec(any::<u8>(), 0..3);
        let step = prop_oneof![
            4 => (0u32..400, columns).prop_map(|(table, columns)| Step::Table(table, columns)),
            1 => (0u32..400).prop_map(Step::ForgetTable),
            3 => (0u32..400, names).prop_map(|(sequence, names)| Step::Sequence(sequence, names)),
            1 => Just(Step::Clone),
        ];
        prop::collection::vec(step, 0..1500)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Against plain maps, whatever has settled and whatever is shared.
        #[test]
        fn what_was_learned_last_counts(steps in steps()) {
            let mut known = SequenceColumns::default();
            let mut tables: BTreeMap<u32, BTreeMap<i16, u32>> = BTreeMap::new();
            let mut names: BTreeMap<String, u32> = BTreeMap::new();
            let mut of: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
            let mut kept = Vec::new();
            for step in steps {
                match step {
                    Step::Table(table, columns) => {
                        known.set_table(table, &[]);
                        tables.insert(table, BTreeMap::new());
                        for (column, sequence) in columns {
                            known.add_column(table, column, sequence);
                            tables.get_mut(&table).unwrap().insert(column, sequence);
                        }
                    }
                    Step::ForgetTable(table) => {
                        known.forget_table(table);
                        tables.remove(&table);
                    }
                    Step::Sequence(sequence, now) => {
                        known.forget_sequence(sequence);
                        for name in of.remove(&sequence).unwrap_or_default() {
                            if names.get(&name) == Some(&sequence) {
                                names.remove(&name);
                            }
                        }
                        for name in now.iter().map(|name| name.to_string()) {
                            known.add_name(&name, sequence);
                            names.insert(name.clone(), sequence);
                            of.entry(sequence).or_default().insert(name);
                        }
                    }
                    Step::Clone => kept.push(known.clone()),
                }
            }
            for table in 0..400 {
                let expected = tables.get(&table);
                prop_assert_eq!(known.knows_table(table), expected.is_some());
                for column in 1..4 {
                    let sequence = expected.and_then(|columns| columns.get(&column)).copied();
                    prop_assert_eq!(known.of_column(table, column), sequence.map(Source::from));
                }
            }
            for name in 0..=255u8 {
                let name = name.to_string();
                prop_assert_eq!(known.by_name(&name), names.get(&name).copied());
            }
        }
    }

    #[test]
    fn a_clone_copies_little() {
        let mut known = SequenceColumns::default();
        for table in 0..30_000 {
            known.add_column(table, 1, table);
            known.add_name(&format!("s{table}"), table);
        }
        let mut copies = 0;
        for table in 30_000..31_000 {
            let before = known.clone();
            copies += before.recent.len();
            known.add_column(table, 1, table);
            assert!(!before.knows_table(table) && known.knows_table(table));
        }
        assert!(copies < 1000 * (RECENT_MIN + 90_000 / 16), "{copies}");
        assert!(known.recent.len() <= RECENT_MIN + known.settled.len() / 16);
    }
}
