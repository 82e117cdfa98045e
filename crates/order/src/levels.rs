//! From observed snapshots to levels, in one pass and without comparing snapshots with each other.
//!
//! Number the recorded committed writers 0, 1, 2 … by transaction id. A snapshot sees those below
//! some `rank` (its `xmax`) except a few that were in progress:
//!
//! ```text
//!   writers       0  1  2  3  4  5  6  7  8          by transaction id
//!   snapshot S    x  x  x  .  x  .  |                rank 5, missing {3}: size 4
//!   snapshot S'   x  x  x  x  x  x  |                rank 6, missing {}:  size 6
//! ```
//!
//! If all sets are ordered by inclusion, the size of a set identifies it. So a transaction's level
//! is the rank of its set's size among the distinct sizes, and one number per writer decides
//! everything else: `missed(w)`, the size of the largest set that does *not* hold w. A set of size
//! s then must be exactly `{w : missed(w) < s}`.
//!
//! That also gives the proof of order for free. For any observed set S of size s, whoever is
//! outside of S has `missed ≥ s`, hence `{w : missed(w) < s} ⊆ S`. The two are equal if and only if
//! they are equally large. When that holds for all observed sizes, the sets are those of a chain;
//! and when they are a chain, it holds. So counting suffices: no set is ever compared with another,
//! and nothing but one number per transaction and one per writer is kept.
//!
//! A transaction under READ COMMITTED takes a snapshot with each statement. Its later ones are
//! *looks*, each a transaction of its own here, which writes nothing. A statement that found a row
//! changed waited for the change and went on with it: it saw more than its snapshot. Where its
//! transaction took another one afterwards, that stands for it, and if not, all that committed
//! before its transaction did ([`Snapshots::insert_end`]). No snapshot shows that set, so it gets a
//! level between two others, by the order of commits.
//!
//! Cost: O(n log n) for ranks, plus the lengths of the in-progress lists times the logarithm of the
//! gaps in them (which are short: transactions in progress at one time have neighbouring ids).

use std::collections::{BTreeSet, HashMap};

use hindcast_model::{Snapshot, Xid};

use crate::{Level, Tx};

/// What was observed of one transaction; see [`Levels::of`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed<'a> {
    /// `None` if it never took one.
    pub snapshot: Option<&'a Snapshot>,
    /// Its id if it wrote something and committed; `None` if it was only reading.
    pub xid: Option<Xid>,
}

/// Why observed snapshots have no levels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LevelsError {
    #[error("transactions {first} and {second} are both recorded with transaction id {xid}")]
    TwoWriters { xid: Xid, first: Tx, second: Tx },
    #[error("the snapshot of transaction {tx} lists its transactions in progress out of order")]
    Unsorted { tx: Tx },
    /// Can only be if the snapshots come from different databases, or from a database after it was
    /// rewound.
    #[error(
        "the snapshots of transactions {one} and {other} contradict each other: {one} saw transaction id {xid} and {other} \
         did not, although {other} saw no fewer ({other_saw} recorded writers against {one_saw})"
    )]
    NotOrdered {
        one: Tx,
        other: Tx,
        /// Seen by `one`, missed by `other`.
        xid: Xid,
        one_saw: u32,
        other_saw: u32,
    },
}

/// The levels of a recording's transactions. Eight bytes per transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    /// By transaction; [`NONE`] for those without snapshot.
    level: Vec<u32>,
    /// By transaction; [`NONE`] for those that wrote nothing.
    visible_from: Vec<u32>,
    level_count: u32,
}

/// One thing to do in [`Levels::sequential_order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Run the transaction up to, but not including, its commit.
    Run(Tx),
    /// Let the transaction commit. Listed for writers only; others may commit as soon as they have
    /// run.
    Commit(Tx),
}

const NONE: u32 = u32::MAX;

fn some(number: u32) -> Option<Level> {
    (number != NONE).then_some(Level(number))
}

impl Levels {
    /// Levels of transactions that are all at hand. For traces too large for that, see [`Writers`].
    pub fn of(transactions: &[Observed<'_>]) -> Result<Self, LevelsError> {
        let each = || (0..).map(Tx).zip(transactions);
        let mut writers = Writers::new(transactions.len());
        for (tx, observed) in each() {
            if let Some(xid) = observed.xid {
                writers.insert(tx, xid);
            }
        }
        let mut snapshots = writers.sorted()?;
        for (tx, observed) in each() {
            if let Some(snapshot) = observed.snapshot {
                snapshots.insert(tx, snapshot)?;
            }
        }
        snapshots.levels()
    }

    /// Levels that are known already, one entry per transaction.
    ///
    /// # Panics
    /// If a writer would see itself, or becomes visible after the last level.
    pub fn from_parts(level: &[Option<Level>], visible_from: &[Option<Level>]) -> Self {
        assert_eq!(
            level.len(),
            visible_from.len(),
            "one entry per transaction in both"
        );
        let level_count = level.iter().flatten().map(|l| l.0 + 1).max().unwrap_or(0);
        for (l, v) in level.iter().zip(visible_from) {
            assert!(
                v.is_none_or(|v| v.0 <= level_count),
                "a writer is visible one past the last level at the latest"
            );
            assert!(
                l.zip(*v).is_none_or(|(l, v)| l < v),
                "a writer does not see itself commit"
            );
        }
        let raw = |all: &[Option<Level>]| all.iter().map(|l| l.map_or(NONE, |l| l.0)).collect();
        Self {
            level: raw(level),
            visible_from: raw(visible_from),
            level_count,
        }
    }

    /// How many transactions there are, with or without snapshot.
    pub fn len(&self) -> usize {
        self.level.len()
    }

    pub fn is_empty(&self) -> bool {
        self.level.is_empty()
    }

    /// How many distinct sets were seen.
    pub fn level_count(&self) -> u32 {
        self.level_count
    }

    /// The level that the transaction saw; `None` if it took no snapshot.
    pub fn level_of(&self, tx: Tx) -> Option<Level> {
        some(self.level[tx.index()])
    }

    /// The least level whose set holds this writer, or one past the last level if it was never
    /// seen; `None` if it wrote nothing.
    pub fn visible_from(&self, tx: Tx) -> Option<Level> {
        some(self.visible_from[tx.index()])
    }

    /// Whether `reader` saw what `writer` wrote.
    pub fn sees(&self, reader: Tx, writer: Tx) -> bool {
        match (self.level_of(reader), self.visible_from(writer)) {
            (Some(level), Some(visible_from)) => visible_from <= level,
            _ => false,
        }
    }

    pub fn transactions(&self) -> impl Iterator<Item = Tx> + use<> {
        (0..self.level.len() as u32).map(Tx)
    }

    /// R³'s Algorithm 1: transactions one at a time in a start order, each writer committed just
    /// before the first that saw it.
    ///
    /// Transactions that neither took a snapshot nor wrote are not in it: nothing orders them.
    /// A writer that took no snapshot runs just before it commits.
    pub fn sequential_order(&self) -> Vec<Step> {
        let commits = by_number(&self.visible_from, self.level_count);
        let runs = by_number(&self.level, self.level_count);
        let mut order = Vec::with_capacity(commits.numbered.len() + runs.numbered.len());
        for level in 0..=self.level_count {
            for &tx in commits.at(level) {
                if self.level_of(tx).is_none() {
                    order.push(Step::Run(tx));
                }
                order.push(Step::Commit(tx));
            }
            order.extend(runs.at(level).iter().map(|&tx| Step::Run(tx)));
        }
        order
    }
}

impl Levels {
    /// Makes room for sets that nobody's snapshot shows: what had committed when a transaction did.
    fn insert_ends(&mut self, ends: &[(Tx, Tx)], committed: &HashMap<Tx, u64>) {
        let end_of = |tx: Tx| committed.get(&tx).copied().unwrap_or(u64::MAX);
        let cut_of = |of: Tx| (self.visible_from[of.index()], end_of(of));
        // Levels to insert, each in front of those who committed at this place or later among
        // the writers that become visible at one level.
        let cuts: BTreeSet<(u32, u64)> = ends.iter().map(|&(_, of)| cut_of(of)).collect();
        let cuts: Vec<(u32, u64)> = cuts.into_iter().collect();
        let before = |cut: (u32, u64)| cuts.partition_point(|&other| other < cut) as u32;
        let up_to = |cut: (u32, u64)| cuts.partition_point(|&other| other <= cut) as u32;
        let looks: Vec<(Tx, u32)> = ends
            .iter()
            .map(|&(look, of)| (look, cut_of(of).0 + before(cut_of(of))))
            .collect();
        let visible = |tx: Tx, v: u32| v + up_to((v, end_of(tx)));
        let visible_from: Vec<u32> = self
            .transactions()
            .zip(&self.visible_from)
            .map(|(tx, &v)| if v == NONE { NONE } else { visible(tx, v) })
            .collect();
        for level in self.level.iter_mut().filter(|level| **level != NONE) {
            *level += up_to((*level, u64::MAX));
        }
        for (look, level) in looks {
            self.level[look.index()] = level;
        }
        self.visible_from = visible_from;
        self.level_count += cuts.len() as u32;
    }
}

/// Transactions grouped by a number, in their own order within each group.
struct ByNumber {
    numbered: Vec<Tx>,
    /// Where each number's group starts, and the end.
    starts: Vec<usize>,
}

impl ByNumber {
    fn at(&self, number: u32) -> &[Tx] {
        &self.numbered[self.starts[number as usize]..self.starts[number as usize + 1]]
    }
}

fn by_number(numbers: &[u32], largest: u32) -> ByNumber {
    let mut starts = vec![0; largest as usize + 2];
    for &number in numbers.iter().filter(|&&n| n != NONE) {
        starts[number as usize + 1] += 1;
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    let mut next = starts.clone();
    let mut numbered = vec![Tx(0); starts[starts.len() - 1]];
    for (tx, &number) in (0..).map(Tx).zip(numbers) {
        if number != NONE {
            numbered[next[number as usize]] = tx;
            next[number as usize] += 1;
        }
    }
    ByNumber { numbered, starts }
}

/// First pass over a recording: who wrote.
///
/// ```
/// # use hindcast_model::{Snapshot, Xid};
/// # use hindcast_order::{Level, Tx, Writers};
/// # let saw = |xmax, in_progress: &[u64]| Snapshot {
/// #     xmin: Xid(700),
/// #     xmax: Xid(xmax),
/// #     in_progress: in_progress.iter().copied().map(Xid).collect(),
/// # };
/// let mut writers = Writers::new(3);              // three transactions
/// writers.insert(Tx(0), Xid(700));                // the first is a committed writer with id 700
/// let mut snapshots = writers.sorted()?;
/// snapshots.insert(Tx(0), &saw(700, &[]))?;       // second pass: what they saw
/// snapshots.insert(Tx(1), &saw(702, &[700]))?;    // 700 was still in progress
/// snapshots.insert(Tx(2), &saw(702, &[]))?;
/// let levels = snapshots.levels()?;
/// assert_eq!(levels.level_of(Tx(1)), Some(Level(0)));
/// assert_eq!(levels.level_of(Tx(2)), Some(Level(1)));
/// assert_eq!(levels.visible_from(Tx(0)), Some(Level(1)));
/// # Ok::<(), hindcast_order::LevelsError>(())
/// ```
#[derive(Debug)]
pub struct Writers {
    transactions: usize,
    writers: Vec<(Xid, Tx)>,
}

impl Writers {
    pub fn new(transactions: usize) -> Self {
        assert!(
            transactions < NONE as usize,
            "transactions are numbered with 32 bits"
        );
        Self {
            transactions,
            writers: Vec::new(),
        }
    }

    /// The transaction wrote and committed under this id (the top-level one: snapshots list no
    /// others).
    ///
    /// Of a prepared transaction, this is the one that issued `COMMIT PREPARED`: it is what makes
    /// the id visible.
    pub fn insert(&mut self, tx: Tx, xid: Xid) {
        assert!(
            tx.index() < self.transactions,
            "transaction {tx} was not announced"
        );
        self.writers.push((xid, tx));
    }

    /// Ends the first pass.
    pub fn sorted(mut self) -> Result<Snapshots, LevelsError> {
        self.writers.sort_unstable();
        for pair in self.writers.windows(2) {
            let [(xid, first), (next, second)] = [pair[0], pair[1]];
            if xid == next {
                return Err(LevelsError::TwoWriters { xid, first, second });
            }
        }
        let mut writer_of = vec![NONE; self.transactions];
        for (writer, &(_, tx)) in (0..).zip(&self.writers) {
            assert_eq!(
                writer_of[tx.index()],
                NONE,
                "transaction {tx} was given two ids"
            );
            writer_of[tx.index()] = writer;
        }
        let count = self.writers.len();
        Ok(Snapshots {
            size: vec![NONE; self.transactions],
            writer_of,
            largest_missing: vec![NONE; count],
            largest_of_rank: vec![NONE; count + 1],
            first_of_size: vec![None; count + 1],
            missing: Vec::new(),
            scratch: Vec::new(),
            ends: Vec::new(),
            committed: HashMap::new(),
            writers: self.writers,
        })
    }
}

/// Second pass over a recording: what they saw.
#[derive(Debug)]
pub struct Snapshots {
    /// Ascending by id; a *writer* below is an index into this.
    writers: Vec<(Xid, Tx)>,
    /// By transaction: which writer it is.
    writer_of: Vec<u32>,
    /// By transaction: how many writers it saw.
    size: Vec<u32>,
    /// By writer: the transaction with the largest set that lists it as missing.
    largest_missing: Vec<u32>,
    /// By rank: the transaction with the largest set of this rank, which thereby misses all
    /// writers from there on.
    largest_of_rank: Vec<u32>,
    /// By size: the first set of this size, only to be able to name a contradiction.
    first_of_size: Vec<Option<Seen>>,
    /// What the sets in `first_of_size` miss.
    missing: Vec<u32>,
    scratch: Vec<u32>,
    /// Looks that saw all that committed before a transaction did.
    ends: Vec<(Tx, Tx)>,
    /// When writers committed.
    committed: HashMap<Tx, u64>,
}

/// A set of writers: those below `rank` but for `missing[start..end]`.
#[derive(Clone, Copy, Debug)]
struct Seen {
    tx: Tx,
    rank: u32,
    start: usize,
    end: usize,
}

impl Snapshots {
    /// What the transaction saw. `xmin` is not needed.
    ///
    /// Its own id is never in its own list, even where it had one already when it took the
    /// snapshot; it does not count as seen.
    pub fn insert(&mut self, tx: Tx, snapshot: &Snapshot) -> Result<(), LevelsError> {
        self.insert_look(tx, tx, snapshot)
    }

    /// What a later statement of a transaction saw.
    pub fn insert_look(&mut self, tx: Tx, of: Tx, snapshot: &Snapshot) -> Result<(), LevelsError> {
        assert_eq!(
            self.size[tx.index()],
            NONE,
            "transaction {tx} was given two snapshots"
        );
        let mut rank = self
            .writers
            .partition_point(|&(xid, _)| xid < snapshot.xmax);
        let mut missing = std::mem::take(&mut self.scratch);
        missing.clear();
        let (mut at, mut previous) = (0, None);
        for &xid in &snapshot.in_progress {
            if previous.is_some_and(|previous| previous >= xid) {
                return Err(LevelsError::Unsorted { tx });
            }
            previous = Some(xid);
            at = gallop(&self.writers[..rank], at, xid);
            if at < rank && self.writers[at].0 == xid {
                missing.push(at as u32);
            }
        }
        let own = self.writer_of[of.index()];
        if (own as usize) < rank
            && let Err(at) = missing.binary_search(&own)
        {
            missing.insert(at, own);
        }
        // A writer missing at the very end is as good as one that is not below the rank. Without
        // it, equal sets look equal.
        while missing
            .last()
            .is_some_and(|&last| last as usize + 1 == rank)
        {
            missing.pop();
            rank -= 1;
        }

        let size = (rank - missing.len()) as u32;
        self.size[tx.index()] = size;
        let larger = |slot: &mut u32, sizes: &[u32]| {
            if *slot == NONE || sizes[*slot as usize] < size {
                *slot = tx.0;
            }
        };
        larger(&mut self.largest_of_rank[rank], &self.size);
        for &writer in &missing {
            larger(&mut self.largest_missing[writer as usize], &self.size);
        }
        if self.first_of_size[size as usize].is_none() {
            let start = self.missing.len();
            self.missing.extend_from_slice(&missing);
            self.first_of_size[size as usize] = Some(Seen {
                tx,
                rank: rank as u32,
                start,
                end: self.missing.len(),
            });
        }
        self.scratch = missing;
        Ok(())
    }

    /// What a later statement of a writer saw, or its first, is all that committed before it did.
    /// Without [`Snapshots::committed_at`] of it and the others, only what all saw that saw it.
    pub fn insert_end(&mut self, tx: Tx, of: Tx) {
        assert_ne!(self.writer_of[of.index()], NONE, "transaction {of} wrote");
        self.ends.push((tx, of));
    }

    /// The writer committed at this place in the order of all commits.
    pub fn committed_at(&mut self, tx: Tx, place: u64) {
        self.committed.insert(tx, place);
    }

    /// Ends the second pass: numbers the distinct sets, or names two that contradict each other.
    pub fn levels(mut self) -> Result<Levels, LevelsError> {
        let count = self.writers.len();
        // From now on `largest_missing[w]` is the transaction with the largest set that does not
        // hold w for any reason.
        let mut largest = NONE;
        for writer in 0..count {
            largest = self.larger_of(largest, self.largest_of_rank[writer]);
            self.largest_missing[writer] = self.larger_of(largest, self.largest_missing[writer]);
        }
        // `missed[w]`: the size of that set, plus one; 0 if every set holds w.
        let missed = |writer: usize| match self.largest_missing[writer] {
            NONE => 0,
            tx => self.size[tx as usize] as usize + 1,
        };

        let mut must_hold = vec![0u32; count + 2];
        for writer in 0..count {
            must_hold[missed(writer)] += 1;
        }
        // `level_of_size[s]`: how many distinct sizes are below s.
        let mut level_of_size = vec![0u32; count + 2];
        let mut holds = 0;
        for size in 0..=count {
            holds += must_hold[size];
            let seen = self.first_of_size[size];
            if let Some(seen) = seen
                && holds as usize != size
            {
                return Err(self.contradiction(seen));
            }
            level_of_size[size + 1] = level_of_size[size] + u32::from(seen.is_some());
        }

        let mut visible_from = vec![NONE; self.size.len()];
        for (writer, &(_, tx)) in self.writers.iter().enumerate() {
            visible_from[tx.index()] = level_of_size[missed(writer)];
        }
        let level_count = level_of_size[count + 1];
        let mut level = self.size;
        for size in level.iter_mut().filter(|size| **size != NONE) {
            *size = level_of_size[*size as usize];
        }
        let mut levels = Levels {
            level,
            visible_from,
            level_count,
        };
        levels.insert_ends(&self.ends, &self.committed);
        Ok(levels)
    }

    fn larger_of(&self, one: u32, other: u32) -> u32 {
        match (one, other) {
            (NONE, tx) | (tx, NONE) => tx,
            _ if self.size[one as usize] < self.size[other as usize] => other,
            _ => one,
        }
    }

    fn missing(&self, seen: Seen) -> &[u32] {
        &self.missing[seen.start..seen.end]
    }

    /// Names a set that contradicts `one`, which holds more writers than every set of its size
    /// must.
    fn contradiction(&self, one: Seen) -> LevelsError {
        let size = self.size[one.tx.index()];
        let sees =
            |writer: u32| writer < one.rank && self.missing(one).binary_search(&writer).is_err();
        let (seen_by_one, other) = (0..one.rank)
            .filter(|&writer| sees(writer))
            .find_map(|writer| match self.largest_missing[writer as usize] {
                tx if tx != NONE && self.size[tx as usize] >= size => Some((writer, Tx(tx))),
                _ => None,
            })
            .expect("some writer it sees is missing from a set that is at least as large");
        LevelsError::NotOrdered {
            one: one.tx,
            other,
            xid: self.writers[seen_by_one as usize].0,
            one_saw: size,
            other_saw: self.size[other.index()],
        }
    }
}

/// First position at or after `from` whose id is not below `xid`: doubling steps, then a binary
/// search.
fn gallop(writers: &[(Xid, Tx)], from: usize, xid: Xid) -> usize {
    let mut step = 1;
    let mut low = from;
    while low + step < writers.len() && writers[low + step].0 < xid {
        low += step;
        step *= 2;
    }
    let high = (low + step + 1).min(writers.len());
    low + writers[low..high.max(low)].partition_point(|&(id, _)| id < xid)
}
