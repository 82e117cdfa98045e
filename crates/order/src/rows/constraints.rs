//! Which writes a write has to wait for.

use super::{Log, Seq};

/// How much of the log's order is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// C5: a write waits for the previous write to the same row, and for that to the row it takes
    /// over values from.
    Row,
    /// KuaFu: all writes of a transaction wait for all writes of every earlier transaction that
    /// wrote one of its rows. One worker applies a transaction, so its own writes are in order as
    /// well.
    Transaction,
    /// One write after the other.
    Single,
}

/// What every write of a log waits for.
///
/// Only direct constraints are kept. What they imply, a write that waits for one that waits for a
/// third, holds in every schedule anyway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraints {
    /// By write: where in `before` those that it waits for begin. One more at the end.
    begins: Vec<usize>,
    before: Vec<Seq>,
}

impl Constraints {
    /// Those of a whole log. Costs time and memory linear in the log at every granularity.
    pub fn new(log: &Log, granularity: Granularity) -> Self {
        match granularity {
            Granularity::Row => Self::rows(log),
            Granularity::Transaction => Self::transactions(log),
            Granularity::Single => Self::single(log),
        }
    }

    fn empty() -> Self {
        let begins = vec![0];
        let before = Vec::new();
        Self { begins, before }
    }

    fn push(&mut self, before: impl IntoIterator<Item = Seq>) {
        self.before.extend(before);
        self.begins.push(self.before.len());
    }

    fn rows(log: &Log) -> Self {
        // By row: its last write so far.
        let mut last = vec![Seq::START; log.row_count()];
        let mut all = Self::empty();
        for (write, row) in log.writes() {
            let source = log.source(write).map(|source| last[source.index()]);
            let previous = std::mem::replace(&mut last[row.index()], write);
            let mut before: Vec<_> = source.into_iter().chain([previous]).collect();
            before.retain(|&other| other != Seq::START);
            before.sort_unstable();
            all.push(before);
        }
        all
    }

    /// A transaction's first write waits for the last one of the last transaction that wrote each
    /// of its rows, the others for the one before them. That implies the rest: whoever wrote the
    /// row earlier still is waited for by that transaction.
    fn transactions(log: &Log) -> Self {
        let mut ends = vec![Seq::START; log.row_count()];
        let mut all = Self::empty();
        for (first, rows) in log.transactions() {
            let last = Seq(first.0 + rows.len() as u64 - 1);
            let sources = log.sources.range(first..=last).map(|(_, row)| row);
            let earlier = rows.iter().chain(sources).map(|row| ends[row.index()]);
            let mut earlier: Vec<_> = earlier.filter(|&end| end != Seq::START).collect();
            earlier.sort_unstable();
            earlier.dedup();
            all.push(earlier);
            for write in first.0..last.0 {
                all.push([Seq(write)]);
            }
            for row in rows {
                ends[row.index()] = last;
            }
        }
        all
    }

    fn single(log: &Log) -> Self {
        let mut all = Self::empty();
        for (write, _) in log.writes() {
            let previous = Seq(write.0 - 1);
            all.push((previous != Seq::START).then_some(previous));
        }
        all
    }

    /// How many writes there are.
    pub fn len(&self) -> usize {
        self.begins.len() - 1
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a write waits for, in log order.
    pub fn before(&self, write: Seq) -> &[Seq] {
        let at = write.index();
        &self.before[self.begins[at]..self.begins[at + 1]]
    }

    /// All of them as pairs: the second waits for the first.
    pub fn pairs(&self) -> impl Iterator<Item = (Seq, Seq)> + '_ {
        let writes = (0..self.len()).map(Seq::at);
        writes.flat_map(|after| {
            self.before(after)
                .iter()
                .map(move |&before| (before, after))
        })
    }

    /// All that these imply except that `after` waits for `before`, which must be one of
    /// [`Self::pairs`] and not be implied by others of them.
    ///
    /// What `after` waited for by way of `before`, and what waited for `before` by way of `after`,
    /// waits from now on directly.
    pub fn without(&self, before: Seq, after: Seq) -> Self {
        assert!(
            self.before(after).contains(&before),
            "{after} does not wait for {before}"
        );
        let mut rest = Self::empty();
        for write in (0..self.len()).map(Seq::at) {
            let mut kept = self.before(write).to_vec();
            if write == after {
                kept.retain(|&other| other != before);
                kept.extend(self.before(before));
            } else if kept.contains(&after) {
                kept.push(before);
            }
            kept.sort_unstable();
            kept.dedup();
            rest.push(kept);
        }
        rest
    }

    /// Whether these writes may be done one after the other in this order, none of them twice. They
    /// need not be all.
    pub fn allow(&self, schedule: impl IntoIterator<Item = Seq>) -> bool {
        let mut done = vec![false; self.len()];
        schedule.into_iter().all(|write| {
            let safe = self.before(write).iter().all(|other| done[other.index()]);
            safe && !std::mem::replace(&mut done[write.index()], true)
        })
    }
}
