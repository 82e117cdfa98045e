//! Decides which transaction may do what, and notices where the replay is not the recording. Pure: it is told what
//! happens and answers questions; waiting and waking is up to its caller (see `gate`).
//!
//! A transaction of the service is matched to a recorded one by its request and its place among the request's transactions. Where a request
//! runs several at once, the text of the first statement tells them apart.
//!
//! What to do about a transaction that matches nothing is decided in one place, [`Coordinator::claim`], and when one may commit in another,
//! [`Coordinator::may`]: a replay of changed code needs other answers there, and nothing else.

use std::collections::HashMap;
use std::sync::Arc;

use hindcast_order::levels::Step;
use hindcast_order::{Request, Schedule, Tx};
use hindcast_trace::{Isolation, RequestId, ShapeId};

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
    /// By shape: hash of its first statement that takes a snapshot.
    openings: HashMap<ShapeId, u64>,
    counts: Counts,
    first: Option<Divergence>,
    /// Divergences after the first, as long as there are few.
    more: Vec<Divergence>,
    keep_going: bool,
    events: u64,
}

struct Sequence {
    steps: Vec<Step>,
    next: usize,
}

/// How many divergences are described; the rest are counted.
const DESCRIBED_MAX: usize = 100;

impl Coordinator {
    pub fn new(
        recording: Arc<Recording>,
        plan: Arc<Plan>,
        schedule: Schedule,
        openings: HashMap<ShapeId, u64>,
        sequential: bool,
        keep_going: bool,
    ) -> Self {
        let sequence = sequential.then(|| Sequence {
            steps: schedule.levels().sequential_order(),
            next: 0,
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
        let claimed = vec![false; recording.transactions.len()];
        Self {
            recording,
            plan,
            schedule,
            sequence,
            claimed,
            openings,
            counts,
            first: None,
            more: Vec::new(),
            keep_going,
            events: 0,
        }
    }

    /// A transaction of the service takes its first snapshot. `opening` is the hash of that statement's fingerprint.
    pub fn claim(&mut self, request: Option<RequestId>, opening: u64) -> Claim {
        self.events += 1;
        let Some(id) = request else {
            return Claim::Outside;
        };
        let Some(request) = self.recording.find(id) else {
            return Claim::Outside;
        };
        let own = self.recording.own(request);
        let mut unclaimed = own.iter().copied().filter(|tx| !self.claimed[tx.index()]);
        let in_place = unclaimed.next();
        let matching = own
            .iter()
            .copied()
            .filter(|tx| !self.claimed[tx.index()])
            .find(|&tx| self.openings.get(&self.recording.transaction(tx).shape) == Some(&opening));
        let Some(tx) = matching.or(in_place) else {
            if !self.plan.compares(id) {
                return Claim::Extra;
            }
            self.diverge(Divergence {
                position: Position::request(id),
                kind: DivergenceKind::ExtraTransaction {
                    recorded: own.len(),
                },
            });
            return Claim::Extra;
        };
        self.claimed[tx.index()] = true;
        match self.recording.transaction(tx).fate {
            Fate::Aborted => Claim::Serve(tx),
            Fate::Committed | Fate::Prepared | Fate::Unknown => Claim::Run(tx),
        }
    }

    /// A ghost is about to run. False if it is to be left out: it aborted, so it had no effect.
    pub fn claim_ghost(&mut self, tx: Tx) -> bool {
        self.events += 1;
        self.claimed[tx.index()] = true;
        self.recording.transaction(tx).fate != Fate::Aborted
    }

    /// A ghost is over without having had a snapshot.
    pub fn ghost_over(&mut self, tx: Tx) {
        self.events += 1;
        self.counts.transactions_done += 1;
        self.schedule.abandon(tx);
        self.settle_sequence(tx);
    }

    /// These will not be run: nobody could tell.
    pub fn leave_out(&mut self, transactions: Vec<Tx>) {
        for tx in transactions {
            self.claimed[tx.index()] = true;
            self.schedule.abandon(tx);
        }
        self.skip_settled();
    }

    /// Whether all is done that will be.
    pub fn is_finished(&self) -> bool {
        (0..self.recording.transactions.len() as u32)
            .map(Tx)
            .all(|tx| {
                self.schedule.has_ended(tx)
                    || self.schedule.is_abandoned(tx)
                    || self.recording.transaction(tx).fate == Fate::Aborted
            })
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
        self.events += 1;
        if !self.schedule.has_snapshot(tx) {
            self.schedule.took_snapshot(tx);
        }
    }

    pub fn locked(&mut self, tx: Tx, statement: u32) {
        self.events += 1;
        self.schedule.locked(tx, statement);
    }

    /// The transaction has done all but its commit: in sequential mode, the next one may run.
    pub fn ran(&mut self, tx: Tx) {
        self.events += 1;
        self.advance_sequence(Step::Run(tx));
    }

    /// The transaction is over; compares it with the recording.
    pub fn ended(&mut self, tx: Tx, ended: &Ended) {
        self.events += 1;
        self.counts.transactions_done += 1;
        if ended.fate == EndedAs::Committed {
            if !self.schedule.has_ended(tx) {
                self.schedule.committed(tx);
            }
        } else {
            self.schedule.abandon(tx);
        }
        self.advance_sequence(Step::Run(tx));
        self.advance_sequence(Step::Commit(tx));
        self.compare(tx, ended);
    }

    /// The transaction was answered from the recording. `complete`: every recorded byte was asked for, and nothing more.
    pub fn served(&mut self, tx: Tx, complete: bool) {
        self.events += 1;
        self.counts.transactions_done += 1;
        self.counts.served += 1;
        if !complete {
            self.diverge_at(tx, DivergenceKind::ServedDiffers);
        }
    }

    /// The session went away in the middle of a transaction.
    pub fn lost(&mut self, tx: Tx) {
        self.events += 1;
        self.counts.transactions_done += 1;
        self.schedule.abandon(tx);
        self.settle_sequence(tx);
        self.diverge_at(tx, DivergenceKind::ConnectionLost);
    }

    /// The request was answered, or never will be: what it has not begun by now will not come.
    pub fn request_ended(&mut self, request: Request) {
        self.events += 1;
        let recorded = self.recording.request(request);
        // What began after the response originally may still come.
        let answered = recorded.ended;
        let is_missing = |tx: &Tx| {
            !self.claimed[tx.index()] && self.recording.transaction(*tx).began <= answered
        };
        let missing: Vec<Tx> = self
            .recording
            .own(request)
            .iter()
            .copied()
            .filter(is_missing)
            .collect();
        for &tx in &missing {
            self.claimed[tx.index()] = true;
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
        let request = recorded
            .request
            .map(|(request, _)| self.recording.request(request).id);
        if request.is_some_and(|id| !self.plan.compares(id)) {
            return;
        }
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
    }

    /// Passes over `done`, and over everything behind it that was abandoned meanwhile.
    fn advance_sequence(&mut self, done: Step) {
        let Some(sequence) = &mut self.sequence else {
            return;
        };
        if sequence.steps.get(sequence.next) == Some(&done) {
            sequence.next += 1;
        }
        self.skip_settled();
    }

    fn skip_settled(&mut self) {
        let Some(sequence) = &mut self.sequence else {
            return;
        };
        while let Some(Step::Run(tx) | Step::Commit(tx)) = sequence.steps.get(sequence.next) {
            if !self.schedule.is_abandoned(*tx) && !self.schedule.has_ended(*tx) {
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

    /// Grows with everything that happens; if it stands still, so does the replay.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Whether the replay is to stop.
    pub fn is_over(&self) -> bool {
        self.first.is_some() && !self.keep_going
    }

    /// Described divergences, the first one first.
    pub fn divergences(&self) -> impl Iterator<Item = &Divergence> {
        self.first.iter().chain(&self.more)
    }

    /// For [`crate::gate`]: transactions of requests in flight that nobody runs yet.
    pub fn is_claimed(&self, tx: Tx) -> bool {
        self.claimed[tx.index()]
    }
}
