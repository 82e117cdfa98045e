//! What a request hands over to a thread and does not wait for: it may come behind the answer in a
//! replay though it came before it, or the other way round.
//!
//! ```text
//!   recorded   request 1: update, insert, answer     request 2: update, answer, insert
//!   replayed   request 1: update, answer, insert     request 2: update, insert, answer
//! ```
//!
//! The recording tells what is handed over: some request was answered before it was over. What is
//! like that and has not come with the answer of its request is waited for, as what came behind the
//! answer is. Where nothing moves it does not come.
//!
//! Of what only reads that has to have begun behind an answer: many services end behind it what has
//! only read, and did that before.

use std::collections::{BTreeSet, HashSet};

use hindcast_order::{Request, Tx};
use hindcast_trace::ShapeId;

use super::Coordinator;
use crate::recording::{Answer, Recording};
use crate::verdict::DivergenceKind;

#[derive(Default)]
pub(super) struct Handed {
    /// Shapes of which one began behind its request's answer.
    begun_behind: HashSet<ShapeId>,
    /// Shapes of which one was over behind it.
    over_behind: HashSet<ShapeId>,
    /// Their requests were answered, and they had come before that.
    late: BTreeSet<u32>,
}

impl Handed {
    pub fn of(recording: &Recording) -> Self {
        let mut handed = Self::default();
        for transaction in &recording.transactions {
            let Some((request, _)) = transaction.request else {
                continue;
            };
            let answered = recording.request(request).ended;
            if transaction.began > answered {
                handed.begun_behind.insert(transaction.shape);
            }
            if transaction.ended > answered {
                handed.over_behind.insert(transaction.shape);
            }
        }
        handed
    }
}

impl Coordinator {
    /// Whether the like of a transaction began behind the answer of its request: what else the
    /// request does has nothing to do with when this comes.
    pub(super) fn may_begin_behind(&self, tx: Tx) -> bool {
        self.is_like_one_of(&self.handed.begun_behind, tx)
    }

    pub(super) fn is_handed_over(&self, tx: Tx) -> bool {
        let is_over_behind = self.is_like_one_of(&self.handed.over_behind, tx);
        self.may_begin_behind(tx) || is_over_behind && !self.only_reads(tx)
    }

    /// What a pool asks of its connections is not: it may not come at all.
    fn is_like_one_of(&self, shapes: &HashSet<ShapeId>, tx: Tx) -> bool {
        shapes.contains(&self.recording.transaction(tx).shape) && !self.comes_unnoticed(tx)
    }

    /// A request is answered without these, which it had begun. Returns those that do not come; the
    /// others may.
    pub(super) fn without_handed_over(&mut self, missing: Vec<Tx>) -> Vec<Tx> {
        let handed = |&tx: &Tx| self.is_handed_over(tx);
        let (late, missing): (Vec<Tx>, Vec<Tx>) = missing.into_iter().partition(handed);
        self.handed.late.extend(late.iter().map(|tx| tx.0));
        missing
    }

    /// Whether something that was handed over is waited for.
    pub fn awaits_handed_over(&self) -> bool {
        let mut late = self.handed.late.iter();
        late.any(|&tx| !self.claimed[tx as usize])
    }

    /// Nothing moves: what was waited for does not come. Returns whether there was such.
    pub(super) fn give_up_handed_over(&mut self) -> bool {
        let late = std::mem::take(&mut self.handed.late).into_iter().map(Tx);
        let late: Vec<Tx> = late.filter(|tx| !self.claimed[tx.index()]).collect();
        let any = !late.is_empty();
        self.steps += u64::from(any);
        self.give_up(late);
        any
    }

    /// These transactions of requests that were answered do not come.
    pub(super) fn give_up(&mut self, missing: Vec<Tx>) {
        let (reads, missing): (Vec<Tx>, Vec<Tx>) =
            missing.into_iter().partition(|&tx| self.only_reads(tx));
        self.suspect(reads);
        self.counts.transactions_done += missing.len() as u64;
        self.leave_out(missing.clone());
        let mut told: Option<Request> = None;
        for tx in missing {
            let request = self.recording.transaction(tx).request;
            let request = request.map(|(request, _)| request);
            let answer = request.map(|request| self.recording.request(request).answer);
            if answer == Some(Answer::Complete) && request != told {
                self.diverge_at(tx, DivergenceKind::MissingTransaction);
            }
            told = request;
        }
    }
}
