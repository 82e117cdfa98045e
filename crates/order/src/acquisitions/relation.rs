//! Strict orders as sets of pairs, to compare them with each other.

use std::fmt;

/// An acquisition by its place in the recorded execution: from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Event(pub u32);

impl Event {
    /// The paper's ⊥: the program starts. Before everything, and no acquisition.
    pub const START: Event = Event(0);

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    pub(super) fn at(index: usize) -> Self {
        Self(index as u32)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::START => write!(f, "⊥"),
            Self(number) => write!(f, "e{number}"),
        }
    }
}

/// What comes before what: the transitive closure of some pairs.
///
/// Takes a bit per pair of events, so it is for judging recordings of some hundred events.
#[derive(Clone, PartialEq, Eq)]
pub struct Relation {
    /// By event: the events before it, as bits.
    before: Vec<Vec<u64>>,
}

impl Relation {
    /// That of events below `count`, the start included. The pairs may contradict each other: see
    /// [`Self::is_strict`].
    pub fn closure(count: usize, pairs: impl IntoIterator<Item = (Event, Event)>) -> Self {
        let mut before = vec![vec![0u64; count.div_ceil(64)]; count];
        for (first, second) in pairs {
            before[second.index()][first.index() / 64] |= 1 << (first.index() % 64);
        }
        // Warshall: after step `middle`, every path whose inner events are at most `middle` has its
        // pair.
        for middle in 0..count {
            let reached = before[middle].clone();
            for row in &mut before {
                if row[middle / 64] >> (middle % 64) & 1 == 1 {
                    for (word, more) in row.iter_mut().zip(&reached) {
                        *word |= more;
                    }
                }
            }
        }
        Self { before }
    }

    /// Whether `first` comes before `second`.
    pub fn contains(&self, first: Event, second: Event) -> bool {
        let row = &self.before[second.index()];
        row[first.index() / 64] >> (first.index() % 64) & 1 == 1
    }

    /// All pairs, by the second event.
    pub fn pairs(&self) -> impl Iterator<Item = (Event, Event)> + '_ {
        let events = || (0..self.before.len()).map(Event::at);
        events().flat_map(move |second| {
            let first = events().filter(move |&first| self.contains(first, second));
            first.map(move |first| (first, second))
        })
    }

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        let words = self.before.iter().flatten();
        words.map(|word| word.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the other one has all of these pairs.
    pub fn is_within(&self, other: &Self) -> bool {
        let rows = self.before.iter().zip(&other.before);
        let mut words = rows.flat_map(|(ours, theirs)| ours.iter().zip(theirs));
        words.all(|(ours, theirs)| ours & !theirs == 0)
    }

    /// Whether no event comes before itself. Otherwise nobody could obey it.
    pub fn is_strict(&self) -> bool {
        (0..self.before.len()).all(|event| !self.contains(Event::at(event), Event::at(event)))
    }

    /// Whether these events may happen one after the other, none of them twice: whatever comes
    /// before an event is among those before it.
    pub fn allows(&self, schedule: impl IntoIterator<Item = Event>) -> bool {
        let mut done = vec![0u64; self.before.len().div_ceil(64)];
        done[0] |= 1;
        schedule.into_iter().all(|event| {
            let (word, bit) = (event.index() / 64, 1 << (event.index() % 64));
            let twice = done[word] & bit != 0;
            let row = self.before[event.index()].iter();
            let ready = row.zip(&done).all(|(before, done)| before & !done == 0);
            done[word] |= bit;
            ready && !twice
        })
    }
}

impl std::fmt::Debug for Relation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pairs = self.pairs();
        f.debug_set()
            .entries(pairs.map(|(first, second)| format!("{first}→{second}")))
            .finish()
    }
}
