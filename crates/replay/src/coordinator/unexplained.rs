//! Results that are not the recorded ones since they hold what was drawn in this run. Where the
//! service draws by itself, whether they differ in anything else is known when their request is
//! over, and what it drew was learned. Of what the database drew nothing is learned.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use hindcast_order::Tx;
use hindcast_trace::ShapeId;

use super::Coordinator;
use crate::changes::{Difference, DifferenceKind};
use crate::learned::{Draws, Explained};
use crate::transaction::Ended;
use crate::verdict::DivergenceKind;

/// Each has up to 256 KiB of results.
const POSTPONED_MAX: usize = 256;

#[derive(Default)]
pub(super) struct Unexplained {
    draws: Draws,
    pending: Vec<Pending>,
    /// Until the end of the run.
    postponed: Vec<Pending>,
    /// By shape: how many hold values that were drawn.
    drawn: BTreeMap<ShapeId, u64>,
}

/// A transaction whose results have another digest.
pub struct Pending {
    pub tx: Tx,
    pub ended: Ended,
    /// The recorded one.
    pub digest: u32,
}

impl Coordinator {
    pub fn draws(&mut self, draws: Draws) {
        self.unexplained.draws = draws;
    }

    /// A few statements of the recording that draw or read, in the database, what is not recorded:
    /// where a difference may come from.
    pub fn unpinned_statements(&self) -> Vec<String> {
        const MAX: usize = 5;
        let all = &self.recording.transactions;
        // Where it told of some, the others drew nothing.
        let told = all.iter().any(|one| one.draws_told);
        let shapes: HashSet<ShapeId> = all.iter().map(|one| one.shape).collect();
        let unpinned = |&shape| self.shapes.unpinned(shape, told);
        let all = shapes.iter().flat_map(unpinned);
        let all: BTreeSet<&String> = all.collect();
        all.into_iter().take(MAX).cloned().collect()
    }

    /// Whether it is left open what the other results of a transaction are.
    pub(super) fn leave_open(&mut self, tx: Tx, ended: &Ended) -> bool {
        let recorded = self.recording.transaction(tx);
        let pending = || Pending {
            tx,
            ended: ended.clone(),
            digest: recorded.digest.0,
        };
        let (shape, told) = (recorded.shape, recorded.draws_told);
        if ended.rows == recorded.rows && self.shapes.shows_drawn(shape, told) {
            let pending = pending();
            self.explain(&pending, Explained::Drawn);
            return true;
        }
        if !ended.results.may_be_explained(self.unexplained.draws) {
            return false;
        }
        let pending = pending();
        self.unexplained.pending.push(pending);
        true
    }

    /// Those that can be explained now: what their requests drew is known. `all`: nothing more
    /// will be.
    pub fn take_unexplained(&mut self, all: bool) -> Vec<Pending> {
        let is_due = |tx: Tx| {
            let request = self.recording.transaction(tx).request;
            all || request.is_none_or(|(request, _)| self.ended[request.index()])
        };
        let pending = std::mem::take(&mut self.unexplained.pending).into_iter();
        let (mut due, rest): (Vec<_>, _) = pending.partition(|one| is_due(one.tx));
        self.unexplained.pending = rest;
        if all {
            due.append(&mut self.unexplained.postponed);
        }
        due
    }

    /// What they are may be known later: of what an answer gave, only a hash is known until a
    /// request carries it.
    pub fn postpone(&mut self, pending: Pending, explained: Explained) {
        match self.unexplained.postponed.len() < POSTPONED_MAX {
            true => self.unexplained.postponed.push(pending),
            false => self.explain(&pending, explained),
        }
    }

    /// What the other results turned out to be.
    pub fn explain(&mut self, pending: &Pending, explained: Explained) {
        let recorded = self.recording.transaction(pending.tx);
        if explained == Explained::Drawn {
            *self.unexplained.drawn.entry(recorded.shape).or_default() += 1;
        }
        let is_other = explained == Explained::Other;
        if let Some(changes) = &mut self.changes {
            match is_other {
                true => changes.counts.results += 1,
                false => changes.counts.same += u64::from(recorded.request.is_some()),
            }
            let rows = pending.ended.rows;
            changes.differing.extend(is_other.then(|| Difference {
                tx: Some(pending.tx),
                request: recorded.request.map(|(request, _)| request),
                kind: DifferenceKind::Results { rows },
            }));
            return;
        }
        if is_other {
            let kind = DivergenceKind::OtherResults {
                expected_rows: recorded.rows,
                actual_rows: pending.ended.rows,
                expected_digest: recorded.digest,
                actual_digest: hindcast_trace::Digest(pending.ended.digest),
                read_committed: recorded.is_approximate(),
            };
            self.diverge_at(pending.tx, kind);
        }
    }

    /// How many transactions have results that hold values which were drawn, and whose other
    /// values are therefore not compared; and what they ask for.
    pub fn drawn_results(&self) -> Option<(u64, Vec<String>)> {
        let drawn = &self.unexplained.drawn;
        let statements = drawn.keys();
        let statements = statements.filter_map(|&shape| self.shapes.opening_text(shape));
        let statements: Vec<String> = statements.map(str::to_owned).collect();
        (!drawn.is_empty()).then(|| (drawn.values().sum(), statements))
    }
}
