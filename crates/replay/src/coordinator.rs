//! Decides which transaction may do what, and notices where the replay is not the recording. Pure: it is told what
//! happens and answers questions; waiting and waking is up to its caller (see `gate`).
//!
//! A transaction of the service is matched to a recorded one by its request and its place among the request's transactions. Where a request
//! runs several at once, the text of the first statement tells them apart.
//!
//! What to do about a transaction that matches nothing is decided in one place, [`Coordinator::claim`], and when one may commit in another,
//! [`Coordinator::may`]: a replay of changed code needs other answers there, and nothing else.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use hindcast_order::levels::Step;
use hindcast_order::{Progress, Request, Schedule, Tx};
use hindcast_trace::{Attribution, Isolation, RequestId, ShapeId};

use crate::plan::Plan;
use crate::recording::{Answer, Fate, Recording};
use crate::verdict::{Divergence, DivergenceKind, Position};

/// Something that may have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    Snapshot(Tx),
    /// The statement with this index within its transaction.
    Lock(Tx, u32),
    Commit(Tx),
}

impl Ask {
    pub fn tx(self) -> Tx {
        match self {
            Self::Snapshot(tx) | Self::Lock(tx, _) | Self::Commit(tx) => tx,
        }
    }
}

/// What a transaction of the service turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It committed originally: run it under the schedule.
    Run(Tx),
    /// It aborted originally: answer from the recording.
    Serve(Tx),
    /// The request had no such transaction: run it without a schedule, or not at all if the replay has stopped.
    Extra,
    /// It belongs to no request that is replayed.
    Outside,
}

/// How a transaction ended in the replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub shape: ShapeId,
    pub digest: u32,
    pub rows: u64,
    pub fate: EndedAs,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndedAs {
    Committed,
    /// With the error that made it fail, if there was one.
    RolledBack {
        error: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub transactions: u64,
    pub transactions_done: u64,
    pub served: u64,
    pub ghosts: u64,
    pub read_committed: u64,
    pub divergences: u64,
}

pub struct Coordinator {
    recording: Arc<Recording>,
    plan: Arc<Plan>,
    schedule: Schedule,
    /// Set in sequential mode: the one order in which steps are taken.
    sequence: Option<Sequence>,
    /// By transaction: some session runs it or ran it.
    claimed: Vec<bool>,
    /// By request: how many of its transactions, from the first on, are claimed. Only grows.
    claimed_up_to: Vec<u32>,
    /// Sent, and neither answered nor given up.
    in_flight: BTreeSet<u32>,
    /// By shape: hash of its first statement that takes a snapshot.
    openings: HashMap<ShapeId, u64>,
    counts: Counts,
    first: Option<Divergence>,
    /// Divergences after the first, as long as there are few.
    more: Vec<Divergence>,
    keep_going: bool,
    /// The replay has ended: what sessions still do while they are shut down says nothing.
    stopped: bool,
    steps: u64,
}

struct Sequence {
    steps: Vec<Step>,
    next: usize,
    /// Transactions that did all but their commit before it was their turn, as those without a snapshot may.
    ran_early: HashSet<Tx>,
}

/// How many divergences are described; the rest are counted.
const DESCRIBED_MAX: usize = 100;

impl Coordinator {
    pub fn new(
        recording: Arc<Recording>,
        plan: Arc<Plan>,
        mut schedule: Schedule,
        openings: HashMap<ShapeId, u64>,
        sequential: bool,
        keep_going: bool,
    ) -> Self {
        let sequence = sequential.then(|| Sequence {
            steps: schedule.levels().sequential_order(),
            next: 0,
            ran_early: HashSet::new(),
        });
        let mut counts = Counts {
            transactions: recording.transactions.len() as u64,
            ..Default::default()
        };
        for transaction in &recording.transactions {
            counts.ghosts += u64::from(transaction.request.is_none());
            counts.read_committed += u64::from(
                transaction.isolation == Isolation::ReadCommitted && transaction.has_snapshot,
            );
        }
        for (transaction, tx) in recording.transactions.iter().zip(0..) {
            if transaction.fate == Fate::Aborted {
                // Answered from the recording: nobody waits for it.
                schedule.abandon(Tx(tx));
            }
        }
        let claimed = vec![false; recording.transactions.len()];
        let claimed_up_to = vec![0; recording.requests.len()];
        let mut coordinator = Self {
            recording,
            plan,
            schedule,
            sequence,
            claimed,
            claimed_up_to,
            in_flight: BTreeSet::new(),
            openings,
            counts,
            first: None,
            more: Vec::new(),
            keep_going,
            stopped: false,
            steps: 0,
        };
        coordinator.skip_settled();
        coordinator
    }

    /// A transaction of the service takes its first snapshot. `opening` is the hash of that statement's fingerprint.
    pub fn claim(&mut self, request: Option<RequestId>, opening: u64) -> Claim {
        let Some(id) = request else {
            return Claim::Outside;
        };
        let Some(request) = self.recording.find(id) else {
            return Claim::Outside;
        };
        let matching = self
            .unclaimed(request)
            .find(|&tx| self.openings.get(&self.recording.transaction(tx).shape) == Some(&opening));
        let in_place = self.unclaimed(request).next();
        let Some(tx) = matching.or(in_place) else {
            if self.compares(request) && !self.stopped {
                self.diverge(Divergence {
                    position: Position::request(id),
                    kind: DivergenceKind::ExtraTransaction {
                        recorded: self.recording.own(request).len(),
                    },
                });
            }
            return Claim::Extra;
        };
        self.steps += 1;
        self.set_claimed(tx);
        match self.recording.transaction(tx).fate {
            Fate::Aborted => Claim::Serve(tx),
            Fate::Committed | Fate::Prepared | Fate::Unknown => Claim::Run(tx),
        }
    }

    fn unclaimed(&self, request: Request) -> impl Iterator<Item = Tx> + '_ {
        let own = &self.recording.own(request)[self.claimed_up_to[request.index()] as usize..];
        own.iter().copied().filter(|tx| !self.claimed[tx.index()])
    }

    fn set_claimed(&mut self, tx: Tx) {
        self.claimed[tx.index()] = true;
        let Some((request, _)) = self.recording.transaction(tx).request else {
            return;
        };
        let up_to = &mut self.claimed_up_to[request.index()];
        let rest = &self.recording.own(request)[*up_to as usize..];
        *up_to += rest
            .iter()
            .take_while(|tx| self.claimed[tx.index()])
            .count() as u32;
    }

    /// Whether the request still has to begin a transaction that can be known as its own only if no other is in flight.
    pub fn must_be_alone(&self, request: Request) -> bool {
        self.unclaimed(request).any(|tx| {
            matches!(
                self.recording.transaction(tx).request,
                Some((_, Attribution::Alone))
            )
        })
    }

    fn compares(&self, request: Request) -> bool {
        let recorded = self.recording.request(request);
        self.plan.compares(recorded.id, recorded.arrived)
    }

    /// A ghost is about to run. False if it is to be left out: it aborted, so it had no effect.
    pub fn claim_ghost(&mut self, tx: Tx) -> bool {
        self.steps += 1;
        self.set_claimed(tx);
        self.recording.transaction(tx).fate != Fate::Aborted
    }

    /// A ghost could not be run.
    pub fn ghost_failed(&mut self, tx: Tx, error: String) {
        self.ghost_over(tx);
        self.diverge_at(tx, DivergenceKind::Failed { error: Some(error) });
    }

    /// A ghost is over without having had a snapshot.
    pub fn ghost_over(&mut self, tx: Tx) {
        self.steps += 1;
        self.set_claimed(tx);
        self.counts.transactions_done += 1;
        self.schedule.abandon(tx);
        self.settle_sequence(tx);
    }

    /// These will not be run: nobody could tell.
    pub fn leave_out(&mut self, transactions: Vec<Tx>) {
        for tx in transactions {
            self.set_claimed(tx);
            self.schedule.abandon(tx);
        }
        self.skip_settled();
    }

    /// Whether all is done that will be.
    pub fn is_finished(&self) -> bool {
        self.schedule.is_finished()
    }

    pub fn may(&self, ask: Ask) -> bool {
        if self.schedule.is_abandoned(ask.tx()) {
            return true;
        }
        let permitted = match ask {
            Ask::Snapshot(tx) => self.schedule.may_take_snapshot(tx),
            Ask::Lock(tx, statement) => self.schedule.may_lock(tx, statement),
            Ask::Commit(tx) => self.schedule.may_commit(tx),
        };
        permitted
            && self.sequence.as_ref().is_none_or(|sequence| {
                match (ask, sequence.steps.get(sequence.next)) {
                    (Ask::Snapshot(tx), Some(Step::Run(next))) => {
                        tx == *next || !self.recording.transaction(tx).has_snapshot
                    }
                    (Ask::Snapshot(tx), _) => !self.recording.transaction(tx).has_snapshot,
                    (Ask::Commit(tx), Some(Step::Commit(next))) => {
                        tx == *next || !self.is_writer(tx)
                    }
                    (Ask::Commit(tx), _) => !self.is_writer(tx),
                    (Ask::Lock(..), _) => true,
                }
            })
    }

    fn is_writer(&self, tx: Tx) -> bool {
        self.schedule.levels().visible_from(tx).is_some()
    }

    pub fn took_snapshot(&mut self, tx: Tx) {
        if !self.schedule.has_snapshot(tx) && !self.schedule.has_ended(tx) {
            self.steps += u64::from(!self.schedule.is_abandoned(tx));
            self.schedule.took_snapshot(tx);
        }
    }

    pub fn locked(&mut self, tx: Tx, statement: u32) {
        let before = self.schedule.progress().lock_steps;
        self.schedule.locked(tx, statement);
        self.steps += self.schedule.progress().lock_steps - before;
    }

    /// The transaction has done all but its commit, or may wait for a commit now: in sequential mode, the next one may run.
    pub fn ran(&mut self, tx: Tx) {
        self.advance_sequence(Step::Run(tx));
    }

    /// The transaction is over; compares it with the recording.
    pub fn ended(&mut self, tx: Tx, ended: &Ended) {
        self.steps += 1;
        self.counts.transactions_done += 1;
        if ended.fate == EndedAs::Committed {
            if !self.schedule.has_ended(tx) {
                self.schedule.committed(tx);
            }
        } else {
            self.schedule.abandon(tx);
        }
        self.settle_sequence(tx);
        self.compare(tx, ended);
    }

    /// The transaction was answered from the recording. `complete`: every recorded byte was asked for, and nothing more.
    pub fn served(&mut self, tx: Tx, complete: bool) {
        self.steps += 1;
        self.counts.transactions_done += 1;
        self.counts.served += 1;
        if !complete {
            self.diverge_at(tx, DivergenceKind::ServedDiffers);
        }
    }

    /// The session went away in the middle of a transaction.
    pub fn lost(&mut self, tx: Tx) {
        self.steps += 1;
        self.counts.transactions_done += 1;
        self.schedule.abandon(tx);
        self.settle_sequence(tx);
        self.diverge_at(tx, DivergenceKind::ConnectionLost);
    }

    pub fn request_sent(&mut self, request: Request) {
        self.steps += 1;
        self.in_flight.insert(request.0);
    }

    /// The request was answered, or never will be: what it has not begun by now will not come.
    pub fn request_ended(&mut self, request: Request) {
        self.steps += 1;
        self.in_flight.remove(&request.0);
        let recorded = self.recording.request(request);
        // What began after the response originally may still come.
        let answered = recorded.ended;
        let missing: Vec<Tx> = self
            .unclaimed(request)
            .filter(|&tx| self.recording.transaction(tx).began <= answered)
            .collect();
        for &tx in &missing {
            self.set_claimed(tx);
            self.counts.transactions_done += 1;
            self.schedule.abandon(tx);
            self.settle_sequence(tx);
        }
        let recorded = self.recording.request(request);
        if let Some(&first) = missing.first()
            && recorded.answer == Answer::Complete
        {
            self.diverge_at(first, DivergenceKind::MissingTransaction);
        }
    }

    fn compare(&mut self, tx: Tx, ended: &Ended) {
        let recorded = self.recording.transaction(tx);
        // Under READ COMMITTED only the first statement's snapshot is enforced; a difference is still a difference.
        let kind = match &ended.fate {
            EndedAs::RolledBack { error } => DivergenceKind::Failed {
                error: error.clone(),
            },
            EndedAs::Committed if ended.shape != recorded.shape => {
                DivergenceKind::OtherStatements {
                    expected: recorded.shape,
                    actual: ended.shape,
                }
            }
            EndedAs::Committed if ended.digest != recorded.digest.0 => {
                DivergenceKind::OtherResults {
                    expected_rows: recorded.rows,
                    actual_rows: ended.rows,
                    expected_digest: recorded.digest,
                    actual_digest: hindcast_trace::Digest(ended.digest),
                    read_committed: recorded.isolation == Isolation::ReadCommitted,
                }
            }
            EndedAs::Committed => return,
        };
        self.diverge_at(tx, kind);
    }

    pub fn diverge_at(&mut self, tx: Tx, kind: DivergenceKind) {
        let recorded = self.recording.transaction(tx);
        let request = recorded.request.map(|(request, _)| request);
        if self.stopped || request.is_some_and(|request| !self.compares(request)) {
            return;
        }
        let request = request.map(|request| self.recording.request(request).id);
        self.diverge(Divergence {
            position: Position {
                request,
                transaction: Some(recorded.id),
            },
            kind,
        });
    }

    pub fn diverge(&mut self, divergence: Divergence) {
        self.counts.divergences += 1;
        match self.first {
            None => self.first = Some(divergence),
            Some(_) if self.more.len() < DESCRIBED_MAX => self.more.push(divergence),
            Some(_) => {}
        }
    }

    fn settle_sequence(&mut self, tx: Tx) {
        self.advance_sequence(Step::Run(tx));
        self.advance_sequence(Step::Commit(tx));
        if let Some(sequence) = &mut self.sequence {
            sequence.ran_early.remove(&tx);
        }
    }

    /// Passes over `done`, and over everything behind it that was abandoned meanwhile.
    fn advance_sequence(&mut self, done: Step) {
        let Some(sequence) = &mut self.sequence else {
            return;
        };
        match done {
            _ if sequence.steps.get(sequence.next) == Some(&done) => {
                sequence.next += 1;
                self.steps += 1;
            }
            Step::Run(tx) if !self.schedule.has_ended(tx) => {
                sequence.ran_early.insert(tx);
            }
            Step::Run(_) | Step::Commit(_) => {}
        }
        self.skip_settled();
    }

    fn skip_settled(&mut self) {
        let Some(sequence) = &mut self.sequence else {
            return;
        };
        while let Some(step) = sequence.steps.get(sequence.next) {
            let (Step::Run(tx) | Step::Commit(tx)) = *step;
            let settled = self.schedule.is_abandoned(tx) || self.schedule.has_ended(tx);
            if !settled && (*step != Step::Run(tx) || !sequence.ran_early.remove(&tx)) {
                break;
            }
            sequence.next += 1;
        }
    }

    pub fn recording(&self) -> &Arc<Recording> {
        &self.recording
    }

    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How many steps of the recording were taken; if this stands still, so does the replay.
    ///
    /// Whatever the service does, there are only so many: what the recording does not have does not count. So a service that polls
    /// its database, or tries again and again, cannot keep a replay from being found stuck.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Nobody's answer from [`Coordinator::may`] has changed as long as this has not.
    pub fn frontier(&self) -> (Progress, usize) {
        let next = self.sequence.as_ref().map_or(0, |sequence| sequence.next);
        (self.schedule.progress(), next)
    }

    /// Requests that were sent and not answered, in the order in which they arrived originally.
    pub fn in_flight(&self) -> impl Iterator<Item = Request> + '_ {
        self.in_flight.iter().copied().map(Request)
    }

    /// The replay has ended. What transactions do from here on is not compared any more.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Puts what turned out to be the reason for the first divergence in its place.
    pub fn explain_first(&mut self, kind: DivergenceKind) {
        if let Some(first) = &mut self.first {
            first.kind = kind;
        }
    }

    /// Whether the replay is to stop.
    pub fn is_over(&self) -> bool {
        self.first.is_some() && !self.keep_going
    }

    /// Described divergences, the first one first.
    pub fn divergences(&self) -> impl Iterator<Item = &Divergence> {
        self.first.iter().chain(&self.more)
    }

    pub fn is_claimed(&self, tx: Tx) -> bool {
        self.claimed[tx.index()]
    }
}
