//! Whether readers were served prefixes of the log, judged from what they saw.
//!
//! The judge knows the history of the primary and nothing about how the standby works:
//!
//! ```text
//!   prefix     0     1      2      3          saw x=2, y=1:  prefix 2
//!   x                1      2                 saw x=1, y=2:  torn, x was so in 1, y in 3
//!   y                1             2          saw x=2:       prefix 2 or 3
//! ```
//!
//! Monotonic prefix consistency (section 2.3) is that each observation has a prefix, and that a
//! reader's prefixes do not go back.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::fmt::Debug;

use thiserror::Error;

/// How many transactions of the log a state reflects: the first so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(pub u64);

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The prefixes that an observation can be of. Usually one; several when it looked at little, or
/// when a state came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixSet {
    /// First and last of each run. In order, and neither overlapping nor touching.
    runs: Vec<(Prefix, Prefix)>,
}

impl PrefixSet {
    fn push(&mut self, first: Prefix, last: Prefix) {
        match self.runs.last_mut() {
            Some(run) if run.1.0 + 1 == first.0 => run.1 = last,
            _ => self.runs.push((first, last)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn first(&self) -> Option<Prefix> {
        self.runs.first().map(|run| run.0)
    }

    pub fn last(&self) -> Option<Prefix> {
        self.runs.last().map(|run| run.1)
    }

    pub fn contains(&self, prefix: Prefix) -> bool {
        self.first_from(prefix) == Some(prefix)
    }

    /// The least of them that is not below `prefix`.
    pub fn first_from(&self, prefix: Prefix) -> Option<Prefix> {
        let at = self.runs.partition_point(|run| run.1 < prefix);
        self.runs.get(at).map(|run| run.0.max(prefix))
    }

    fn intersection(&self, other: &Self) -> Self {
        let mut both = Self { runs: Vec::new() };
        let (mut a, mut b) = (0, 0);
        while let (Some(one), Some(two)) = (self.runs.get(a), other.runs.get(b)) {
            let (first, last) = (one.0.max(two.0), one.1.min(two.1));
            if first <= last {
                both.push(first, last);
            }
            if one.1 <= two.1 {
                a += 1;
            } else {
                b += 1;
            }
        }
        both
    }
}

impl fmt::Display for PrefixSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.runs.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first} to {last}")?;
            }
        }
        Ok(())
    }
}

/// What was seen is no prefix of the log.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Torn<K> {
    /// Also what a transaction wrote and then wrote again before it committed.
    #[error("row {row:?} was never committed like that")]
    Never { row: K },
    #[error(
        "row {row:?} was like that in prefixes {shown}, but what else was seen is of prefixes {rest}"
    )]
    Apart {
        row: K,
        shown: PrefixSet,
        rest: PrefixSet,
    },
}

/// A reader saw less than it had seen before.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the reader had seen prefix {reached}, and then prefixes {seen}")]
pub struct WentBack {
    pub reached: Prefix,
    pub seen: PrefixSet,
}

/// The history of a primary, with every state that it committed.
///
/// Verdicts are as sharp as values are: give every write a value of its own if each observation is
/// to have one prefix.
#[derive(Clone, Debug)]
pub struct Prefixes<K, V> {
    /// By row: what it became with which prefix, in order. Absent before the first.
    versions: BTreeMap<K, Vec<(Prefix, Option<V>)>>,
    /// By row: what the transaction that is not complete yet made of it so far.
    open: BTreeMap<K, Option<V>>,
    latest: Prefix,
}

impl<K, V> Default for Prefixes<K, V> {
    fn default() -> Self {
        Self {
            versions: BTreeMap::new(),
            open: BTreeMap::new(),
            latest: Prefix(0),
        }
    }
}

impl<K: Ord + Clone + Debug, V: Eq + Clone> Prefixes<K, V> {
    pub fn new() -> Self {
        Self::default()
    }

    /// The next write of the transaction that is not complete yet: an insert or an update.
    pub fn put(&mut self, row: K, value: V) {
        self.open.insert(row, Some(value));
    }

    /// The next write of the transaction that is not complete yet: a delete.
    pub fn delete(&mut self, row: K) {
        self.open.insert(row, None);
    }

    /// Deletes all rows that `which` picks, as `TRUNCATE` does with those of a table.
    pub fn delete_where(&mut self, mut which: impl FnMut(&K) -> bool) {
        let rows = self.versions.keys().chain(self.open.keys());
        let rows: Vec<_> = rows.filter(|row| which(row)).cloned().collect();
        for row in rows {
            self.delete(row);
        }
    }

    /// The transaction rolled back, and the log will not have it.
    pub fn roll_back(&mut self) {
        self.open.clear();
    }

    /// Completes a transaction of all writes since the last commit. Returns the prefix that ends
    /// with it.
    pub fn commit(&mut self) -> Prefix {
        self.latest.0 += 1;
        for (row, value) in std::mem::take(&mut self.open) {
            let versions = match self.versions.entry(row) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(_) if value.is_none() => continue,
                Entry::Vacant(new) => new.insert(Vec::new()),
            };
            if versions.last().and_then(|last| last.1.as_ref()) != value.as_ref() {
                versions.push((self.latest, value));
            }
        }
        self.latest
    }

    /// The whole log so far.
    pub fn latest(&self) -> Prefix {
        self.latest
    }

    /// What a reader of a prefix sees.
    pub fn state(&self, prefix: Prefix) -> BTreeMap<&K, &V> {
        let rows = self.versions.iter();
        rows.filter_map(|(row, versions)| {
            let count = versions.partition_point(|version| version.0 <= prefix);
            let version = count.checked_sub(1).map(|at| &versions[at])?;
            Some((row, version.1.as_ref()?))
        })
        .collect()
    }

    /// The prefixes in which these rows looked like that; `None` for a row that was not there. Of
    /// other rows nothing is said.
    pub fn find<'a>(
        &self,
        seen: impl IntoIterator<Item = (&'a K, Option<&'a V>)>,
    ) -> Result<PrefixSet, Torn<K>>
    where
        K: 'a,
        V: 'a,
    {
        let mut rest = self.all();
        for (row, value) in seen {
            rest = self.narrow(rest, row, value)?;
        }
        Ok(rest)
    }

    /// The prefixes in which these rows looked like that and others were not there.
    pub fn find_whole(&self, seen: &BTreeMap<K, V>) -> Result<PrefixSet, Torn<K>> {
        let absent = self.versions.keys().filter(|row| !seen.contains_key(row));
        let present = seen.iter().map(|(row, value)| (row, Some(value)));
        self.find(present.chain(absent.map(|row| (row, None))))
    }

    fn all(&self) -> PrefixSet {
        PrefixSet {
            runs: vec![(Prefix(0), self.latest)],
        }
    }

    /// Those of `rest` in which the row looked like that, of which there must be one.
    fn narrow(&self, rest: PrefixSet, row: &K, value: Option<&V>) -> Result<PrefixSet, Torn<K>> {
        let both = rest.intersection(&self.shown(&rest, row, value));
        if !both.is_empty() {
            return Ok(both);
        }
        let row = row.clone();
        let shown = self.shown(&self.all(), &row, value);
        Err(if shown.is_empty() {
            Torn::Never { row }
        } else {
            Torn::Apart { row, shown, rest }
        })
    }

    /// The prefixes in which a row looked like that, at least those among `within`. A row has as
    /// many versions as writes; most of them are not looked at when little is left.
    fn shown(&self, within: &PrefixSet, row: &K, value: Option<&V>) -> PrefixSet {
        let mut shown = PrefixSet { runs: Vec::new() };
        let (Some(low), Some(high)) = (within.first(), within.last()) else {
            return shown;
        };
        let versions = self.versions.get(row).map_or(&[][..], Vec::as_slice);
        let first = versions
            .first()
            .map_or(self.latest.0 + 1, |first| first.0.0);
        if value.is_none() {
            // No row is there from the start, and no first version is a deletion.
            shown.push(Prefix(0), Prefix(first - 1));
        }
        let from = versions.partition_point(|version| version.0 <= low);
        for at in from.saturating_sub(1)..versions.len() {
            let (begin, version) = &versions[at];
            if *begin > high {
                break;
            }
            if version.as_ref() == value {
                let next = versions.get(at + 1);
                let end = next.map_or(self.latest.0, |next| next.0.0 - 1);
                shown.push(*begin, Prefix(end));
            }
        }
        shown
    }
}

/// One reader, who must never see less than it has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reader {
    reached: Prefix,
}

impl Reader {
    pub fn new() -> Self {
        Self::default()
    }

    /// The next observation of this reader. Returns the least prefix that it can be of.
    ///
    /// Taking the least of several is never wrong: it leaves the most to all later observations.
    pub fn saw(&mut self, seen: &PrefixSet) -> Result<Prefix, WentBack> {
        match seen.first_from(self.reached) {
            Some(prefix) => {
                self.reached = prefix;
                Ok(prefix)
            }
            None => Err(WentBack {
                reached: self.reached,
                seen: seen.clone(),
            }),
        }
    }

    /// What it has seen at least.
    pub fn reached(&self) -> Prefix {
        self.reached
    }
}
