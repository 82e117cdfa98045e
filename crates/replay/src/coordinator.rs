//! Decides which transaction may do what, and notices where the replay is not the recording. Pure:
//! it is told what happens and answers questions; waiting and waking is up to its caller (see
//! `monitor`).
//!
//! A transaction of the service is matched to a recorded one by its request and its place among the
//! request's transactions. Where a request runs several at once, the text of the first statement
//! tells them apart.
//!
//! Changed code is matched in the same way, but a difference is what it is run for: transactions
//! that match nothing are *added*, those that do not come are *deleted*, and [`Changes`] keeps
//! account of all that is otherwise than recorded, instead of divergences.

mod answers;
mod background;
mod changed;
mod handed;
mod let_go;
mod look;
mod moved;
mod openings;
mod skipped;
mod together;
mod unexplained;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use hindcast_order::retroaction::Retroaction;
use hindcast_order::{Openings, Request, Schedule, Tx};
use hindcast_trace::{Attribution, RequestId, TransactionId};

use crate::changes::{Changes, Difference, DifferenceKind};
use crate::plan::Plan;
use crate::recording::{Answer, Fate, Recording};
use crate::rules::{Frontier, Rules};
use crate::shapes::Shapes;
use crate::transaction::{Ask, Claim, Ended, EndedAs, Looking, MovedReads, Opening};
use crate::transcript::{Said, Transcript};
use crate::verdict::{Divergence, DivergenceKind, Position};
pub use answers::Awaited;
use answers::InOrder;
pub use background::{Background, GhostTurn};
use handed::Handed;
use let_go::LetGo;
pub use look::Look;
use moved::Moved;
use together::OneBefore;
pub use unexplained::Pending;
use unexplained::Unexplained;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub transactions: u64,
    pub transactions_done: u64,
    pub served: u64,
    pub ghosts: u64,
    pub ghosts_by_service: u64,
    pub ghosts_late: u64,
    pub read_committed: u64,
    pub divergences: u64,
}

pub struct Coordinator {
    recording: Arc<Recording>,
    plan: Arc<Plan>,
    rules: Rules,
    /// The code is changed.
    changes: Option<Changes>,
    /// The replay ends where this can be seen.
    look: Option<Look>,
    /// By transaction: some session runs it or ran it.
    claimed: Vec<bool>,
    moved: Moved,
    handed: Handed,
    /// What reads out of order: all else waited for what the service did not do before.
    let_go: LetGo,
    unexplained: Unexplained,
    in_order: InOrder,
    /// Transactions begin in the order of the recording.
    openings: Option<Openings>,
    background: Background,
    /// By request: the service has begun a transaction of it. What is left out has no part in it.
    begun: Vec<bool>,
    /// By request: how many of its transactions, from the first on, are claimed. Only grows.
    claimed_up_to: Vec<u32>,
    /// Sent, and neither answered nor given up.
    in_flight: BTreeSet<u32>,
    /// By request: it was answered, or given up.
    ended: Vec<bool>,
    shapes: Arc<Shapes>,
    counts: Counts,
    first: Option<Divergence>,
    /// Divergences after the first, as long as there are few.
    more: Vec<Divergence>,
    /// What transactions sent and were answered that are not as recorded, by transaction.
    transcripts: BTreeMap<u32, Transcript>,
    keep_going: bool,
    /// The replay has ended: what sessions still do while they are shut down says nothing.
    stopped: bool,
    /// Requests that were broken off, and went on further.
    cut_off: BTreeSet<u32>,
    /// The recording could not be read: the run is over, and has no verdict.
    unreadable: Option<io::Error>,
    steps: u64,
}

/// How many divergences are described; the rest are counted.
const DESCRIBED_MAX: usize = 100;

impl Coordinator {
    /// A faithful replay.
    pub fn new(
        recording: Arc<Recording>,
        plan: Arc<Plan>,
        mut schedule: Schedule,
        shapes: Arc<Shapes>,
        sequential: bool,
        keep_going: bool,
    ) -> Self {
        for (transaction, tx) in recording.transactions.iter().zip(0..) {
            let sets_up = transaction.fate == Fate::Committed && shapes.sets_up(transaction.shape);
            if transaction.fate == Fate::Aborted || sets_up {
                // Answered from the recording, or of no interest to others: nothing waits for it.
                schedule.abandon(Tx(tx));
            }
        }
        let rules = Rules::recorded(schedule, &recording, sequential);
        let mut new = Self::with(recording, plan, rules, None, shapes, keep_going);
        if !sequential {
            new.in_order = InOrder::of(&new.recording);
        }
        new
    }

    /// A run of changed code.
    pub fn changed(
        recording: Arc<Recording>,
        plan: Arc<Plan>,
        retroaction: Retroaction,
        changes: Changes,
        shapes: Arc<Shapes>,
    ) -> Self {
        let rules = Rules::of_changed(retroaction, &recording);
        let mut coordinator = Self::with(recording, plan, rules, Some(changes), shapes, true);
        coordinator.in_order = InOrder::of(&coordinator.recording);
        let retried: Vec<Tx> = coordinator.recording.retried().collect();
        coordinator.leave_out(retried);
        coordinator
    }

    fn with(
        recording: Arc<Recording>,
        plan: Arc<Plan>,
        rules: Rules,
        changes: Option<Changes>,
        shapes: Arc<Shapes>,
        keep_going: bool,
    ) -> Self {
        let mut counts = Counts {
            transactions: recording.transactions.len() as u64,
            ..Default::default()
        };
        for transaction in &recording.transactions {
            counts.ghosts += u64::from(transaction.request.is_none());
            counts.read_committed += u64::from(transaction.is_approximate());
        }
        Self {
            claimed: vec![false; recording.transactions.len()],
            moved: Moved::new(&recording, &shapes),
            handed: Handed::of(&recording),
            let_go: LetGo::default(),
            unexplained: Unexplained::default(),
            in_order: InOrder::default(),
            openings: None,
            background: Background::default(),
            begun: vec![false; recording.requests.len()],
            claimed_up_to: vec![0; recording.requests.len()],
            ended: vec![false; recording.requests.len()],
            recording,
            plan,
            rules,
            changes,
            look: None,
            in_flight: BTreeSet::new(),
            shapes,
            counts,
            first: None,
            more: Vec::new(),
            transcripts: BTreeMap::new(),
            keep_going,
            stopped: false,
            cut_off: BTreeSet::new(),
            unreadable: None,
            steps: 0,
        }
    }

    /// A transaction of the service takes its first snapshot, for this statement.
    pub fn claim(&mut self, request: Option<RequestId>, mut opening: Opening<'_>) -> Claim {
        self.moved.came(opening.hash);
        // Drivers and ORMs begin a transaction for each read.
        opening.reads_alone |= self.changes.is_none() && self.shapes.opens_reads(opening.hash);
        let Some(id) = request else {
            return self.claim_background(opening);
        };
        let Some(request) = self.recording.find(id) else {
            return Claim::Outside;
        };
        self.begun[request.index()] = true;
        let matching = self.matching(request, opening);
        if opening.sets_up && matching.is_none() {
            // A connection was opened in another request than originally.
            return match opening.begun && self.may_ask_first(request) {
                true => Claim::Later(None),
                false => Claim::Outside,
            };
        }
        if self.changes.is_some() {
            return match matching.is_some_and(|tx| self.asks_sooner(request, tx, opening)) {
                true => Claim::Outside,
                false => self.claim_changed(request, opening),
            };
        }
        if let Some(tx) = matching.filter(|&tx| opening.sets_up && self.is_whenever(tx)) {
            self.steps += 1;
            self.counts.transactions_done += 1;
            self.leave_out(vec![tx]);
            return Claim::Outside;
        }
        let is_of_another = |&tx: &Tx| {
            self.is_too_early(request, tx)
                || self.is_far(request, tx, opening.hash)
                || self.asks_again(request, tx, opening)
        };
        let told = match self.is_one_before(request, opening) {
            OneBefore::Open(tx) => return Claim::Later(Some(tx)),
            OneBefore::Told(tx) => Some(tx),
            OneBefore::No => None,
        };
        if matching.or(told).is_none() && self.turns_out_later(request, opening) {
            return Claim::Later(None);
        }
        let matching = matching.filter(|tx| !(opening.reads_alone && is_of_another(tx)));
        let matching = told
            .or(matching)
            .or_else(|| self.begins_further_on(request, opening));
        if opening.reads_alone && matching.is_none() && self.reads_for_another(request, opening) {
            return Claim::Outside;
        }
        let Some(tx) = matching.or_else(|| self.next_noticed(request)) else {
            return self.one_too_many(request, opening);
        };
        self.steps += 1;
        self.set_claimed(tx);
        self.pass_over(request, tx);
        match self.recording.transaction(tx).fate {
            Fate::Aborted => Claim::Serve(tx),
            Fate::Committed | Fate::Prepared | Fate::Unknown => Claim::Run(tx),
        }
    }

    /// What begins is none of those that the request had.
    fn one_too_many(&mut self, request: Request, opening: Opening<'_>) -> Claim {
        if self.is_broken_off(request) {
            self.steps += 1;
            self.cut_off.insert(request.0);
            return Claim::CutOff;
        }
        if self.compares(request) && !self.stopped {
            let kind = DivergenceKind::ExtraTransaction {
                recorded: self.recording.own(request).len(),
                statement: opening.text.to_owned(),
            };
            let id = self.recording.request(request).id;
            self.diverge(Divergence::at(Position::request(id), kind));
        }
        Claim::Extra
    }

    /// Whether the transaction came with its connection, and not with its request.
    fn sets_up(&self, tx: Tx) -> bool {
        let recorded = self.recording.transaction(tx);
        let is_over = matches!(recorded.fate, Fate::Committed | Fate::Aborted);
        is_over && self.shapes.sets_up(recorded.shape)
    }

    /// Whether the transaction is answered the same whenever it runs: it asks for what the catalog
    /// says, and nothing in the recording defines anything, or whether the server is there. It must
    /// not wait, since services ask so to fill caches that all of their requests use, or to give a
    /// connection away, and let the others wait meanwhile.
    fn is_whenever(&self, tx: Tx) -> bool {
        let recorded = self.recording.transaction(tx);
        recorded.fate == Fate::Committed && self.shapes.asks_whenever(recorded.shape)
    }

    /// Whether changed code asks what the catalog says while its request has other things to do
    /// before it does so. It is a question that another request asked originally, and must not
    /// wait.
    fn asks_sooner(&self, request: Request, tx: Tx, opening: Opening<'_>) -> bool {
        let asks = opening.sets_up && !opening.begun && self.is_whenever(tx);
        let mut before = self.over_before(request, tx);
        asks && before.any(|one| !self.comes_unnoticed(one))
    }

    /// Whether what the catalog says may be asked at the beginning of any transaction that the
    /// request has left: it is the same whenever it is asked, and takes no snapshot from what comes
    /// behind it.
    fn may_ask_first(&self, request: Request) -> bool {
        let mut left = self.unclaimed(request);
        let is_free = |tx: Tx| self.recording.transaction(tx).is_read_committed();
        !self.shapes.define && left.all(is_free)
    }

    /// Whether nobody looks for the transaction when it comes: it is about its connection, or none
    /// of its statements takes a snapshot, as those that read on from an open cursor, or notify.
    fn comes_unnoticed(&self, tx: Tx) -> bool {
        let recorded = self.recording.transaction(tx);
        let wrote = recorded.wrote && !self.shapes.notifying.contains(&recorded.shape);
        let is_claimed = self.opening(tx).is_some() || wrote;
        self.sets_up(tx) || recorded.fate == Fate::Committed && !is_claimed
    }

    /// The hash of the statement that made a recorded transaction take its snapshot.
    fn opening(&self, tx: Tx) -> Option<u64> {
        let shape = self.recording.transaction(tx).shape;
        self.shapes.openings.get(&shape).copied()
    }

    /// The next transaction of the request that is known when it comes.
    fn next_noticed(&self, request: Request) -> Option<Tx> {
        let mut unclaimed = self.unclaimed(request);
        unclaimed.find(|&tx| !self.comes_unnoticed(tx))
    }

    fn unclaimed(&self, request: Request) -> impl Iterator<Item = Tx> + '_ {
        let own = &self.recording.own(request)[self.claimed_up_to[request.index()] as usize..];
        own.iter().copied().filter(|tx| !self.claimed[tx.index()])
    }

    fn set_claimed(&mut self, tx: Tx) {
        self.claimed[tx.index()] = true;
        self.in_order.note(tx);
        if let Some(openings) = &mut self.openings {
            openings.came(tx);
        }
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

    /// Whether the request still has to begin a transaction that can be known as its own only if no
    /// other is in flight.
    pub fn must_be_alone(&self, request: Request) -> bool {
        self.unclaimed(request).any(|tx| {
            matches!(
                self.recording.transaction(tx).request,
                Some((_, Attribution::Alone))
            )
        })
    }

    /// Whether nobody knows what the service would have done next for the request: it was not
    /// answered.
    fn is_broken_off(&self, request: Request) -> bool {
        self.recording.request(request).answer == Answer::Broken
    }

    /// How many requests went on further than they did originally, and were not let.
    pub fn cut_off(&self) -> u64 {
        self.cut_off.len() as u64
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
        if let Some(changes) = &mut self.changes {
            changes.counts.ghosts_failed += 1;
            changes.differing.push(Difference {
                tx: Some(tx),
                request: None,
                kind: DifferenceKind::GhostFailed { error },
            });
            return;
        }
        let kind = DivergenceKind::Failed {
            error: Some(error),
            read_committed: false,
        };
        self.diverge_at(tx, kind);
    }

    /// A ghost is over without having had a snapshot.
    pub fn ghost_over(&mut self, tx: Tx) {
        self.steps += 1;
        self.set_claimed(tx);
        self.counts.transactions_done += 1;
        self.rules.leave(tx, &self.recording);
    }

    /// These will not be run: nothing depends on them.
    pub fn leave_out(&mut self, transactions: Vec<Tx>) {
        for tx in transactions {
            self.set_claimed(tx);
            self.rules.leave(tx, &self.recording);
        }
    }

    /// Whether all is done that will be.
    pub fn is_finished(&self) -> bool {
        self.rules.is_finished()
    }

    /// Whether the transaction has ended, or will not be run.
    pub fn is_over_with(&self, tx: Tx) -> bool {
        let schedule = self.rules.schedule();
        schedule.has_ended(tx) || schedule.is_abandoned(tx)
    }

    pub fn may(&self, ask: Ask) -> bool {
        match ask {
            Ask::Stop(_) => self.how_stopped().is_none() && self.may_look(),
            Ask::Answer(tx) => self.answer_awaits(tx).is_none(),
            Ask::Snapshot(_) | Ask::Look(..) if self.let_go.has(ask) => true,
            // Others may wait for who asks.
            Ask::Snapshot(tx) if self.changes.is_some() && self.is_whenever(tx) => true,
            _ => self.rules.may(ask, &self.recording),
        }
    }

    /// Whether the transaction need not be held at its commit, which can be sent together with its
    /// only statement.
    pub fn commits_freely(&self, tx: Tx) -> bool {
        self.rules.commits_freely(tx)
    }

    /// Whether this is to take rows that nobody has locked.
    pub fn takes_rows(&self, ask: Ask) -> bool {
        self.rules.takes_rows(ask)
    }

    pub fn took_snapshot(&mut self, tx: Tx) {
        self.steps += u64::from(self.rules.took_snapshot(tx));
    }

    /// The statements of a transaction's look are through.
    pub fn looked(&mut self, tx: Tx, nth: u32) {
        self.steps += u64::from(self.rules.looked(tx, nth, &self.recording));
    }

    /// Statements wait for another transaction, so they have their snapshot and look no more.
    pub fn waits(&mut self, looking: Looking) {
        match looking.look {
            None => self.took_snapshot(looking.tx),
            Some(nth) => self.looked(looking.tx, nth),
        }
    }

    /// A statement that changes rows waits for those that found a key taken before. Where one of
    /// them waits for commits which the statement does not see, it looks when it may go on.
    pub fn asks_to_change(&mut self, tx: Tx, statement: u32) {
        if self.rules.asks_to_change(tx, statement, &self.recording) {
            let look = self.recording.looks().nth(tx, statement);
            self.waits(Looking { tx, look });
        }
    }

    pub fn locked(&mut self, tx: Tx, statement: u32) {
        self.steps += self.rules.locked(tx, statement);
    }

    /// The transaction has done all but its commit, or may wait for a commit now: in sequential
    /// mode, the next one may run.
    pub fn ran(&mut self, tx: Tx) {
        self.steps += self.rules.ran(tx, &self.recording);
    }

    pub fn request_of(&self, claim: Claim) -> Option<Request> {
        match claim {
            Claim::Run(tx) | Claim::Serve(tx) => self
                .recording
                .transaction(tx)
                .request
                .map(|(request, _)| request),
            Claim::Added(id) => self.changes.as_ref().map(|changes| changes.request_of(id)),
            _ => None,
        }
    }

    /// The transaction is over; compares it with the recording.
    pub fn ended(&mut self, claim: Claim, ended: &Ended) {
        let tx = match claim {
            Claim::Run(tx) => tx,
            Claim::Added(id) => {
                // What follows the range is run, and not reported.
                let request = self.request_of(claim);
                let compared = request.is_some_and(|request| self.compares(request));
                if let Some(changes) = self.changes.as_mut().filter(|_| !self.stopped) {
                    changes.added_over(id, ended, compared);
                }
                return;
            }
            _ => return,
        };
        if !self.did_ghost(claim, Some(ended)) {
            return;
        }
        self.steps += 1;
        self.in_order.note(tx);
        self.counts.transactions_done += 1;
        if ended.fate == EndedAs::Committed {
            self.rules.committed(tx, &self.recording);
        } else {
            self.rules.failed(tx, &self.recording);
        }
        ended.hashes.iter().for_each(|&hash| self.moved.came(hash));
        match self.changes {
            Some(_) => self.compare_changed(tx, ended),
            None => self.compare(tx, ended),
        }
    }

    /// The transaction was answered from the recording. `complete`: every recorded byte was asked
    /// for, and nothing more, but for reads that `moved`.
    pub fn served(&mut self, tx: Tx, complete: bool, moved: MovedReads) {
        self.steps += 1;
        self.counts.transactions_done += 1;
        self.counts.served += 1;
        let request = self.recording.transaction(tx).request;
        match request {
            _ if complete => self.served_otherwise(tx, moved),
            Some((request, _)) if self.is_broken_off(request) => {
                self.cut_off.insert(request.0);
            }
            _ => self.diverge_at(tx, DivergenceKind::ServedDiffers),
        }
    }

    /// The session went away in the middle of a transaction.
    pub fn lost(&mut self, claim: Claim, ended: Ended) {
        if self.changes.is_some() {
            return self.lost_changed(claim, ended);
        }
        let Claim::Run(tx) = claim else { return };
        if !self.did_ghost(claim, None) {
            return;
        }
        self.steps += 1;
        self.counts.transactions_done += 1;
        self.rules.leave(tx, &self.recording);
        self.diverge_at(tx, DivergenceKind::ConnectionLost);
    }

    pub fn request_sent(&mut self, request: Request) {
        self.steps += 1;
        self.in_flight.insert(request.0);
    }

    /// The request was answered, or never will be: what it has not begun by now will not come,
    /// unless it is handed over.
    pub fn request_ended(&mut self, request: Request) {
        self.steps += 1;
        self.in_flight.remove(&request.0);
        self.ended[request.index()] = true;
        let recorded = self.recording.request(request);
        // What began after the response originally may still come.
        let answered = recorded.ended;
        let missing: Vec<Tx> = self
            .unclaimed(request)
            .filter(|&tx| self.recording.transaction(tx).began <= answered)
            .collect();
        let (unnoticed, missing): (Vec<Tx>, Vec<Tx>) = missing
            .into_iter()
            .partition(|&tx| self.comes_unnoticed(tx));
        self.counts.transactions_done += unnoticed.len() as u64;
        if let Some(changes) = &mut self.changes {
            changes.counts.unnoticed += unnoticed.len() as u64;
        }
        self.leave_out(unnoticed);
        let missing = self.without_handed_over(missing);
        let Some(changes) = &mut self.changes else {
            return self.give_up(missing);
        };
        changes.request_ended(request);
        for tx in missing {
            self.delete(tx);
        }
    }

    fn compare(&mut self, tx: Tx, ended: &Ended) {
        self.keep_transcript(tx, ended);
        if self.differs_by_reads(tx, ended) || self.stands_for_another(tx, ended) {
            return;
        }
        let recorded = self.recording.transaction(tx);
        // Under READ COMMITTED only the first statement's snapshot is enforced, where nothing is
        // known of the others; a difference is still a difference.
        let kind = match &ended.fate {
            EndedAs::RolledBack { error } => DivergenceKind::Failed {
                error: error.clone(),
                read_committed: recorded.is_approximate(),
            },
            EndedAs::Committed if ended.shape != recorded.shape => {
                DivergenceKind::OtherStatements {
                    expected: recorded.shape,
                    actual: ended.shape,
                }
            }
            EndedAs::Committed if !ended.is_answered(recorded.digest) => {
                if self.is_done_late(tx) || self.leave_open(tx, ended) {
                    return;
                }
                let recorded = self.recording.transaction(tx);
                let kind = DivergenceKind::OtherResults {
                    expected_rows: recorded.rows,
                    actual_rows: ended.rows,
                    expected_digest: recorded.digest,
                    actual_digest: hindcast_trace::Digest(ended.digest),
                    read_committed: recorded.is_approximate(),
                };
                if self.is_answered_as_another(tx, ended, &kind) {
                    return;
                }
                kind
            }
            EndedAs::Committed => return,
        };
        self.diverge_at(tx, kind);
    }

    /// Whether it is a divergence may turn out later.
    fn keep_transcript(&mut self, tx: Tx, ended: &Ended) {
        let recorded = self.recording.transaction(tx);
        let same = ended.fate == EndedAs::Committed
            && ended.shape == recorded.shape
            && ended.is_answered(recorded.digest);
        if !same && self.transcripts.len() < DESCRIBED_MAX {
            self.transcripts.insert(tx.0, ended.transcript.clone());
        }
    }

    /// What the service sent and was answered in a transaction that is not as recorded.
    pub fn said(&self, id: TransactionId) -> Option<Said> {
        let mut all = self.transcripts.iter();
        let (_, transcript) = all.find(|(tx, _)| self.recording.transaction(Tx(**tx)).id == id)?;
        Some(transcript.said())
    }

    pub fn diverge_at(&mut self, tx: Tx, kind: DivergenceKind) {
        let recorded = self.recording.transaction(tx);
        let request = recorded.request.map(|(request, _)| request);
        let unseen = self.look.is_some() && (self.is_seen() || !self.matters(tx));
        if self.stopped || unseen || request.is_some_and(|request| !self.compares(request)) {
            return;
        }
        let request = request.map(|request| self.recording.request(request).id);
        let position = Position {
            request,
            transaction: Some(recorded.id),
        };
        self.diverge(Divergence::at(position, kind));
    }

    pub fn diverge(&mut self, divergence: Divergence) {
        self.settle_answers(false);
        self.counts.divergences += 1;
        match self.first {
            None => self.first = Some(divergence),
            Some(_) if self.more.len() < DESCRIBED_MAX => self.more.push(divergence),
            Some(_) => {}
        }
    }

    pub fn recording(&self) -> &Arc<Recording> {
        &self.recording
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    pub fn shapes(&self) -> &Shapes {
        &self.shapes
    }

    pub fn schedule(&self) -> &Schedule {
        self.rules.schedule()
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How many steps of the recording were taken; if this stands still, so does the replay.
    ///
    /// Whatever the service does, there are only so many: what the recording does not have does not
    /// count. So a service that polls its database, or tries again and again, cannot keep a replay
    /// from being found stuck.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// As long as this has not changed, no answer of [`Coordinator::may`] has.
    pub fn frontier(&self) -> (Frontier, u64) {
        let openings = self.openings.as_ref().map_or(0, Openings::passed);
        let others = self.let_go.count() + self.in_order.moved() + openings as u64;
        (self.rules.frontier(), others)
    }

    /// Whether the service has begun to work: a request has asked the database, or was answered.
    pub fn has_started(&self) -> bool {
        self.begun.contains(&true) || self.ended.contains(&true)
    }

    /// How many requests were answered.
    pub fn answered(&self) -> u64 {
        self.ended.iter().filter(|&&ended| ended).count() as u64
    }

    /// Requests that were sent and not answered, in the order in which they arrived originally.
    pub fn in_flight(&self) -> impl Iterator<Item = Request> + '_ {
        self.in_flight.iter().copied().map(Request)
    }

    /// The request in flight, if there is exactly one. Where the service says for which it works,
    /// what it does for none is not that one's, unless some of it was known so.
    pub fn alone(&self, knows_turns: bool) -> Option<RequestId> {
        let mut in_flight = self.in_flight();
        let one = in_flight.next().filter(|_| in_flight.next().is_none())?;
        if knows_turns && !self.must_be_alone(one) {
            return None;
        }
        Some(self.recording.request(one).id)
    }

    /// The recording cannot be read.
    pub fn fail(&mut self, error: io::Error) {
        self.unreadable.get_or_insert(error);
    }

    /// Why the recording could not be read, if that has ended the run.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.unreadable.take()
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
            || self.is_seen()
            || self.changes.as_ref().is_some_and(Changes::is_enough)
            || self.unreadable.is_some()
    }

    /// Described divergences, the first one first.
    pub fn divergences(&self) -> impl Iterator<Item = &Divergence> {
        self.first.iter().chain(&self.more)
    }

    /// Whether the service has begun a transaction of the request.
    pub fn has_begun(&self, request: Request) -> bool {
        self.begun[request.index()]
    }

    pub fn is_claimed(&self, tx: Tx) -> bool {
        self.claimed[tx.index()]
    }
}
