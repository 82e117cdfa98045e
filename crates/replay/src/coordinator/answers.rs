//! In which order a request hears the answers to what it has asked at a time.
//!
//! ```text
//!   recorded   ask a, ask b        a answered   ask c (for a)   b answered   ask d (for b)
//!   replayed   ask a, ask b   b is answered, and kept back: a is not, and c has not been asked
//! ```
//!
//! What a service does next depends on it: what a loader asks for in one statement, which of two
//! things a cache has first. So the end of an answer is kept back until all that came before it
//! have been given, and all that was asked before it has been.
//!
//! Each such wait goes forward in the time of the recording, as the rules do, so the two form no
//! cycle. What they do not know is a service that does otherwise now, or has no thread or
//! connection left. So nothing waits for what does not come longer than a moment, and some times.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use hindcast_order::{Request, Tx};
use hindcast_trace::Micros;

use super::Coordinator;
use crate::recording::Recording;
use crate::transaction::Ask;

/// What an answer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// That the service begins this one.
    Begin(Tx),
    /// That this one is answered.
    Answer(Tx),
    /// That it is its request's turn to begin the next one.
    Turn,
}

#[derive(Default)]
pub(super) struct InOrder {
    /// By transaction: others of its request were asked for before it was answered. Empty: order
    /// is of no interest.
    together: Arc<Vec<bool>>,
    /// Their answers are kept back.
    withheld: BTreeSet<u32>,
    /// By the statement that begins a transaction: how often it was waited for in vain.
    in_vain: HashMap<u64, u32>,
    /// Counts what may let an answer go.
    moved: u64,
}

/// A request that asks for thousands of things at a time is not looked through for each.
const NEAR: usize = 64;

/// What did not come so often is not waited for any more.
const IN_VAIN_MAX: u32 = 4;

impl InOrder {
    pub fn of(recording: &Recording) -> Self {
        let mut together = vec![false; recording.transactions.len()];
        for request in (0..recording.requests.len() as u32).map(Request) {
            let mut until = i64::MIN;
            let mut last = None;
            for &tx in recording.own(request) {
                let recorded = recording.transaction(tx);
                if recorded.began < until {
                    together[tx.index()] = true;
                }
                if let Some(last) = last
                    && recording.transaction(last).ended > recorded.began
                {
                    together[last.index()] = true;
                }
                until = until.max(recorded.ended);
                last = Some(tx);
            }
        }
        Self {
            together: Arc::new(together),
            ..Self::default()
        }
    }

    fn is_together(&self, tx: Tx) -> bool {
        self.together.get(tx.index()).copied().unwrap_or_default()
    }

    /// Something has become of a transaction.
    pub fn note(&mut self, tx: Tx) {
        self.moved += u64::from(self.is_together(tx));
    }

    pub fn moved(&self) -> u64 {
        self.moved
    }
}

impl Coordinator {
    /// By transaction, whether the order of its answer is of interest.
    pub fn answered_in_order(&self) -> Arc<Vec<bool>> {
        Arc::clone(&self.in_order.together)
    }

    /// A transaction is answered, and its client does not hear of it before that is permitted.
    pub fn withhold(&mut self, tx: Tx) {
        self.in_order.withheld.insert(tx.0);
    }

    /// The client has heard.
    pub fn gave_answer(&mut self, tx: Tx) {
        self.in_order.withheld.remove(&tx.0);
        self.in_order.note(tx);
    }

    /// Whether the client of a transaction that has begun has not heard of its end.
    pub(super) fn is_to_be_answered(&self, tx: Tx) -> bool {
        !self.is_over_with(tx) || self.in_order.withheld.contains(&tx.0)
    }

    /// What the answer of a transaction has to wait for.
    pub fn answer_awaits(&self, tx: Tx) -> Option<Awaited> {
        let turn = || (!self.may_hear(tx)).then_some(Awaited::Turn);
        self.others_asked_at_the_time(tx).or_else(turn)
    }

    fn others_asked_at_the_time(&self, tx: Tx) -> Option<Awaited> {
        let recorded = self.recording.transaction(tx);
        let (request, _) = recorded.request.filter(|_| self.in_order.is_together(tx))?;
        let own = self.recording.own(request);
        let at = own.binary_search(&tx).ok()?;
        let asked_before = |other: &&Tx| self.recording.transaction(**other).began < recorded.ended;
        let before = own[..at].iter().rev().take(NEAR);
        let behind = own[at + 1..].iter().take(NEAR).take_while(asked_before);
        let mut all = before.chain(behind);
        all.find_map(|&other| self.is_behind(tx, other))
    }

    fn is_behind(&self, tx: Tx, other: Tx) -> Option<Awaited> {
        let recorded = self.recording.transaction(tx);
        let one = self.recording.transaction(other);
        let is_sooner = one.ended < recorded.ended;
        if one.ended <= recorded.began {
            return None;
        }
        if self.is_over_with(other) {
            let is_kept = is_sooner && self.in_order.withheld.contains(&other.0);
            return is_kept.then_some(Awaited::Answer(other));
        }
        if self.claimed[other.index()] {
            return is_sooner.then_some(Awaited::Answer(other));
        }
        // A transaction that its client begins is known by its first statement, which may come
        // behind this answer.
        // Changed code may not begin it, and others wait meanwhile.
        let shows = self.changes.is_none() && (is_sooner || self.shapes.is_single(one.shape));
        let comes = shows && !self.comes_unnoticed(other) && !self.is_given_up(other);
        comes.then_some(Awaited::Begin(other))
    }

    /// What requests have not begun, and had originally before any of what they wait for now was
    /// answered: they may begin it all the same.
    pub fn still_to_begin(&self, waiting: &[Ask]) -> Vec<Tx> {
        let of_requests = |tx: Tx| Some((self.recording.transaction(tx).request?.0, tx));
        let mut answered: BTreeMap<Request, Micros> = BTreeMap::new();
        for (request, tx) in waiting.iter().filter_map(|ask| of_requests(ask.tx())) {
            let ended = self.recording.transaction(tx).ended;
            let first = answered.entry(request).or_insert(ended);
            *first = ended.min(*first);
        }
        let begun = |&(tx, answered): &(Tx, Micros)| {
            let had_begun = self.recording.transaction(tx).began < answered;
            had_begun
                && !self.is_over_with(tx)
                && !self.comes_unnoticed(tx)
                && !self.is_given_up(tx)
        };
        let each = answered.into_iter().flat_map(|(request, answered)| {
            let unclaimed = self.unclaimed(request);
            unclaimed.map(move |tx| (tx, answered))
        });
        each.filter(begun).map(|(tx, _)| tx).collect()
    }

    /// They have not come in a while in which nothing else moved: nobody waits for them. They may
    /// come still.
    pub fn expected_in_vain(&mut self, expected: &[Tx]) {
        self.steps += 1;
        for &tx in expected {
            self.waited_in_vain(Awaited::Begin(tx));
            self.rules.leave(tx, &self.recording);
        }
    }

    fn is_given_up(&self, tx: Tx) -> bool {
        let opening = self.opening(tx);
        let times = opening.and_then(|opening| self.in_order.in_vain.get(&opening));
        times.is_some_and(|&times| times >= IN_VAIN_MAX)
    }

    /// An answer goes out though something that it has waited for has not come.
    pub fn waited_in_vain(&mut self, awaited: Awaited) {
        if let Awaited::Begin(tx) = awaited
            && let Some(opening) = self.opening(tx)
        {
            *self.in_order.in_vain.entry(opening).or_default() += 1;
        }
    }
}
