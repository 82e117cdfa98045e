//! Reads that come in another request than they did: whichever request is first fills a cache that
//! the service keeps, and the others find it filled.
//!
//! ```text
//!   recorded   request 1: read, insert     request 2: insert
//!   replayed   request 1: insert           request 2: read, insert
//! ```
//!
//! One that comes and was not recorded runs as it comes. One that was recorded and does not come is
//! a suspect until the end of the replay: it has moved if the same statement came elsewhere, and is
//! missing otherwise. What such a read was answered is compared with nothing. What its requests
//! make of it is compared as ever.

use std::collections::{BTreeMap, HashMap, HashSet};

use hindcast_order::{Request, Tx};
use hindcast_trace::ShapeId;

use super::Coordinator;
use crate::changes::{Changes, Difference, DifferenceKind};
use crate::recording::{Answer, Fate, Recording};
use crate::shapes::{self, Differing, Shapes};
use crate::transaction::{Ask, Claim, Ended, EndedAs, MovedReads, Opening};
use crate::verdict::DivergenceKind;

#[derive(Default)]
pub(super) struct Moved {
    /// Hashes of statements that read, and that some requests have sent more often than others.
    varying: HashSet<u64>,
    /// By what transactions begin with: the requests that have such a one, in order.
    sent_by: HashMap<u64, Vec<u32>>,
    /// What transactions begin with that some request had at a time: a service that does not wait
    /// for one before it sends the other, sends both.
    at_a_time: HashSet<(u64, u64)>,
    /// Requests of which a read that will still come was over before one that has come, with that
    /// one.
    late: Vec<(Request, Tx)>,
    /// Hashes of statements that came, in whichever transaction, or outside of requests.
    came: HashSet<u64>,
    suspects: Vec<Suspect>,
    /// Reads that were answered as another one by their statement was.
    answered_as_another: Vec<Suspect>,
    /// By shape, what recorded transactions were answered; filled when it is first needed.
    answers: HashSet<(ShapeId, u32)>,
    /// By statement: how often it came where it was not recorded, or the other way round.
    times: BTreeMap<u64, u64>,
}

/// A recorded transaction that did not come, or not with all of its reads.
struct Suspect {
    tx: Tx,
    /// What has to have come elsewhere.
    reads: Vec<u64>,
    /// What it is if that has not.
    otherwise: DivergenceKind,
}

impl Moved {
    pub fn new(recording: &Recording, shapes: &Shapes) -> Self {
        let mut times: HashMap<u64, (u32, bool)> = HashMap::new();
        let mut sent_by: HashMap<u64, Vec<u32>> = HashMap::new();
        let mut at_a_time = HashSet::new();
        for request in (0..recording.requests.len() as u32).map(Request) {
            let mut own: HashMap<u64, u32> = HashMap::new();
            for &tx in recording.own(request) {
                let shape = recording.transaction(tx).shape;
                let read = shapes.openings.get(&shape);
                if let Some(&opening) = read {
                    let by = sent_by.entry(opening).or_default();
                    by.extend((by.last() != Some(&request.0)).then_some(request.0));
                }
                if let Some(&read) = read.filter(|_| shapes.reading.contains(&shape)) {
                    *own.entry(read).or_default() += 1;
                }
            }
            at_a_time.extend(overlaps(recording, request).filter_map(|(one, other)| {
                let opening = |tx| shapes.openings.get(&recording.transaction(tx).shape);
                Some((*opening(one)?, *opening(other)?))
            }));
            for (read, count) in own {
                let (first, varies) = times.entry(read).or_insert((count, false));
                *varies |= *first != count;
            }
        }
        let varying = times.into_iter().filter(|(_, (_, varies))| *varies);
        Self {
            varying: varying.map(|(read, _)| read).collect(),
            sent_by,
            at_a_time,
            ..Self::default()
        }
    }

    /// Whether each of the requests that send one statement sends another one, too, as often each
    /// time, and there are several. Then it fills no cache.
    fn always_sent_with(&self, statement: u64, other: u64) -> bool {
        let by = |one| self.sent_by.get(&one).map_or(&[][..], Vec::as_slice);
        let all = by(other);
        let with = |request: &u32| by(statement).binary_search(request).is_ok();
        all.len() > 1 && !self.varying.contains(&statement) && all.iter().all(with)
    }

    fn may_come_at_a_time(&self, one: u64, other: u64) -> bool {
        self.at_a_time.contains(&(one, other)) || self.at_a_time.contains(&(other, one))
    }

    /// Whether each request that begins a transaction so sends a read, too, in the recording or
    /// now, and there are several.
    fn comes_with(&self, read: u64, opening: u64, times: &Times) -> bool {
        let all = self.sent_by.get(&opening).map_or(&[][..], Vec::as_slice);
        let with = times.read_by.get(&read);
        let sent = |one: &u32| with.is_some_and(|with| with.binary_search(one).is_ok());
        let sends = |one: &u32| {
            let it = (Request(*one), read);
            sent(one) && !times.gone.contains(&it) || times.new.contains(&it)
        };
        all.len() > 1 && (all.iter().all(sent) || all.iter().all(sends))
    }

    /// Requests that have a transaction that begins so.
    pub fn senders_of(&self, opening: u64) -> impl Iterator<Item = Request> {
        let all = self.sent_by.get(&opening).map_or(&[][..], Vec::as_slice);
        all.iter().copied().map(Request)
    }

    pub fn came(&mut self, statement: u64) {
        self.came.insert(statement);
    }

    fn count(&mut self, statement: u64) {
        *self.times.entry(statement).or_default() += 1;
    }
}

/// The transactions of a request of which one began before another was over.
fn overlaps(recording: &Recording, request: Request) -> impl Iterator<Item = (Tx, Tx)> {
    let own = recording.own(request);
    own.iter().enumerate().flat_map(move |(at, &one)| {
        let ended = recording.transaction(one).ended;
        let later = own[at + 1..].iter().copied();
        later
            .take_while(move |&tx| recording.transaction(tx).began < ended)
            .map(move |tx| (one, tx))
    })
}

/// By which reads requests of changed code differ from what they sent.
struct Times {
    gone: HashSet<(Request, u64)>,
    new: HashSet<(Request, u64)>,
    /// By read, in whichever place of a transaction: the requests that sent it, in order.
    read_by: HashMap<u64, Vec<u32>>,
}

impl Times {
    fn of(
        requests: impl Iterator<Item = Option<Request>>,
        reads: &[Option<Differing>],
        read_by: HashMap<u64, Vec<u32>>,
    ) -> Self {
        let (mut gone, mut new) = (HashSet::new(), HashSet::new());
        for (request, one) in requests.zip(reads) {
            let (Some(request), Some(one)) = (request, one) else {
                continue;
            };
            gone.extend(one.gone.iter().map(|&read| (request, read)));
            new.extend(one.new.iter().map(|&read| (request, read)));
        }
        Self { gone, new, read_by }
    }
}

/// Which requests sent each of these reads, in whichever place.
fn read_by(reads: &HashSet<u64>, recording: &Recording, shapes: &Shapes) -> HashMap<u64, Vec<u32>> {
    let mut all: HashMap<u64, Vec<u32>> = HashMap::new();
    for request in (0..recording.requests.len() as u32).map(Request) {
        for &tx in recording.own(request) {
            let statements = shapes.statements(recording.transaction(tx).shape);
            let statements = statements.unwrap_or_default().iter();
            for &read in statements.filter(|one| reads.contains(one)) {
                let by = all.entry(read).or_default();
                by.extend((by.last() != Some(&request.0)).then_some(request.0));
            }
        }
    }
    all
}

impl Coordinator {
    /// These statements came, in a transaction that stands for none. Without a claim it was not
    /// known which it is, and what it has read has moved.
    pub fn came(&mut self, claim: Option<Claim>, statements: &[u64]) {
        statements.iter().for_each(|&one| self.moved.came(one));
        let is_read = |one: &&u64| claim.is_none() && self.shapes.read(**one).is_some();
        let reads = statements.iter().filter(is_read);
        reads.for_each(|&read| self.moved.count(read));
    }

    /// Whether a statement that reads and was recorded, but in no transaction of this request that
    /// is still to come, is one that another request did.
    pub(super) fn reads_for_another(&mut self, request: Request, opening: Opening<'_>) -> bool {
        if self.shapes.read(opening.hash).is_none() {
            return false;
        }
        let late = |suspect: &Suspect| {
            let recorded = self.recording.transaction(suspect.tx);
            let own = recorded.request.is_some_and(|(of, _)| of == request);
            let is_missing = suspect.otherwise == DivergenceKind::MissingTransaction;
            own && is_missing && self.opening(suspect.tx) == Some(opening.hash)
        };
        match self.moved.suspects.iter().position(late) {
            // It was passed over too early.
            Some(at) => _ = self.moved.suspects.swap_remove(at),
            None => self.moved.count(opening.hash),
        }
        true
    }

    /// A client has begun a transaction, and reads first what none that the request has left begins
    /// with. It may be one that reads, to fill a cache, or one that writes and has such a read in
    /// front of it this time. What comes behind it tells, where that has a snapshot of its own, or
    /// where the request has none left.
    pub(super) fn turns_out_later(&self, request: Request, opening: Opening) -> bool {
        let reads = opening.begun && self.shapes.read(opening.hash).is_some();
        let recorded = |tx: Tx| self.recording.transaction(tx);
        let is_free = |tx: Tx| {
            let recorded = recorded(tx);
            recorded.is_read_committed() && recorded.fate == Fate::Committed
        };
        let writes = |tx: Tx| self.shapes.is_begun_to_write(recorded(tx).shape);
        let is_none_left = || self.next_noticed(request).is_none() && !self.is_broken_off(request);
        let may_write = || !self.shapes.opens_reads(opening.hash) && is_none_left();
        let left = || self.unclaimed(request);
        reads && left().all(is_free) && (left().any(writes) || may_write())
    }

    /// The transaction of the request that a client has begun, if its first reads do not come: they
    /// filled a cache, which another request has filled this time.
    pub(super) fn begins_further_on(&self, request: Request, opening: Opening) -> Option<Tx> {
        let leads = |&tx: &Tx| {
            let recorded = self.recording.transaction(tx);
            recorded.fate == Fate::Committed && self.shapes.leads_to(recorded.shape, opening.hash)
        };
        self.unclaimed(request)
            .find(leads)
            .filter(|_| opening.begun)
    }

    /// Whether something that does more than read still has to come before the transaction can: on
    /// the same session, so the one was asked for when the other was over. If its statement comes
    /// now, it is a read that another request did.
    pub(super) fn is_too_early(&self, request: Request, tx: Tx) -> bool {
        let own = self.recording.transaction(tx);
        let is_before = |one: Tx| {
            let waited_for = !self.comes_unnoticed(one) && !self.only_reads(one);
            let same_session = self.recording.transaction(one).session == own.session;
            same_session && waited_for && !self.is_handed_over(one)
        };
        let mut before = self.unclaimed(request).take_while(|&one| one < tx);
        !self.may_begin_behind(tx) && before.any(is_before)
    }

    /// Whether a statement that requests send now more often and now less would take the place of
    /// a transaction behind another read, which all requests send that send it at all. That one
    /// still comes, and would be given up.
    pub(super) fn is_far(&self, request: Request, tx: Tx, statement: u64) -> bool {
        let varies = |one: u64| self.moved.varying.contains(&one);
        let read = |&one: &Tx| self.only_reads(one) && !self.comes_unnoticed(one);
        let is_gone = |one: &Tx| !self.may_follow(request, *one);
        let mut reads = self.over_before(request, tx).filter(read).filter(is_gone);
        varies(statement) && reads.any(|one| !self.opening(one).is_some_and(varies))
    }

    /// Whether a recorded transaction did nothing but read. Many that do are rolled back, as by who
    /// closes a session of an ORM.
    pub(super) fn only_reads(&self, tx: Tx) -> bool {
        let recorded = self.recording.transaction(tx);
        let is_over = matches!(recorded.fate, Fate::Committed | Fate::Aborted);
        is_over && self.shapes.reading.contains(&recorded.shape)
    }

    /// These did not come.
    pub(super) fn suspect(&mut self, reads: Vec<Tx>) {
        self.counts.transactions_done += reads.len() as u64;
        reads.iter().for_each(|&tx| self.suspect_of_missing(tx));
        self.leave_out(reads);
    }

    fn suspect_of_missing(&mut self, tx: Tx) {
        self.moved.suspects.push(Suspect {
            tx,
            reads: self.opening(tx).into_iter().collect(),
            otherwise: DivergenceKind::MissingTransaction,
        });
    }

    /// Transactions of the request that have not come, and were over before this one began.
    pub(super) fn over_before(&self, request: Request, tx: Tx) -> impl Iterator<Item = Tx> {
        let began = self.recording.transaction(tx).began;
        let before = self.unclaimed(request).take_while(move |&one| one < tx);
        before.filter(move |&one| self.recording.transaction(one).ended <= began)
    }

    /// A transaction of a request comes: what was over before it began originally, and only read,
    /// will not come any more. Nothing may wait for it.
    ///
    /// A service may ask several things at a time, and wait for a connection for each. What all
    /// requests ask that ask the one that comes is still to come, and sees what it saw.
    pub(super) fn pass_over(&mut self, request: Request, tx: Tx) {
        let over = self.over_before(request, tx);
        let (unnoticed, rest): (Vec<Tx>, Vec<Tx>) =
            over.partition(|&one| self.comes_unnoticed(one));
        let (late, reads): (Vec<Tx>, Vec<Tx>) = rest
            .into_iter()
            .filter(|&one| self.only_reads(one))
            .partition(|&one| self.still_comes(one, tx));
        if !late.is_empty() {
            self.await_late(request, tx);
        }
        self.counts.transactions_done += unnoticed.len() as u64;
        self.leave_out(unnoticed);
        self.suspect(reads);
    }

    /// Whether a read that was over before a transaction began has to come, though that has.
    pub(super) fn still_comes(&self, read: Tx, tx: Tx) -> bool {
        let openings = self.opening(read).zip(self.opening(tx));
        let request = self.recording.transaction(tx).request;
        let comes = |(read, other)| {
            self.moved.always_sent_with(read, other) || self.moved.may_come_at_a_time(read, other)
        };
        openings.is_some_and(comes)
            || self.may_begin_behind(read)
            || self.may_begin_behind(tx)
            || self.were_sent_together(read, tx)
            || request.is_some_and(|(request, _)| self.may_follow(request, read))
    }

    /// Whether a read may be what a request does next with an answer that it has not had: a service
    /// does several things at a time, each one behind the other, and those of one thing say
    /// nothing of where another one has got.
    fn may_follow(&self, request: Request, read: Tx) -> bool {
        let began = self.recording.transaction(read).began;
        let own = self.recording.own(request).iter();
        let mut before = own.copied().take_while(|&one| one < read);
        before.any(|one| {
            self.claimed[one.index()]
                && self.recording.transaction(one).ended <= began
                && self.is_to_be_answered(one)
        })
    }

    /// Nothing moves: reads that were thought to be late do not come. Where there are none, what
    /// was handed over does not, or else one that waits goes on.
    pub fn nothing_moves(&mut self, waiting: &[Ask]) {
        let moves = self.pass_over_late() || self.give_up_handed_over();
        if !moves && !self.let_read_go(waiting) {
            self.pass_over_awaited(waiting);
        }
    }

    /// All wait in the end for a read that has not come, in the midst of what its request does: a
    /// cache may have it. Comes it still, then it was passed over too early.
    fn pass_over_awaited(&mut self, waiting: &[Ask]) {
        let schedule = self.schedule();
        let looks = self.recording.looks();
        let culprit = |ask: &Ask| schedule.explain(self.recording.scheduled(*ask)).culprit;
        let mut culprits = waiting.iter().map(|ask| looks.owner(culprit(ask)));
        let is_late = |tx: &Tx| {
            let request = self.recording.transaction(*tx).request;
            let in_flight = request.is_some_and(|(own, _)| self.in_flight().any(|one| one == own));
            let has_come = self.claimed[tx.index()];
            in_flight && !has_come && self.only_reads(*tx) && self.opening(*tx).is_some()
        };
        if let Some(read) = culprits.find(is_late).filter(|_| self.changes.is_none()) {
            self.suspect(vec![read]);
            self.steps += 1;
        }
    }

    /// What was thought to be late does not come. Returns whether there was such.
    pub(super) fn pass_over_late(&mut self) -> bool {
        let mut any = false;
        for (request, tx) in std::mem::take(&mut self.moved.late) {
            let over: Vec<Tx> = self.over_before(request, tx).collect();
            let (changed, reads): (Vec<Tx>, Vec<Tx>) = over
                .into_iter()
                .filter(|&one| self.only_reads(one) && !self.is_over_with(one))
                .partition(|_| self.changes.is_some());
            any |= !(changed.is_empty() && reads.is_empty());
            self.suspect(reads);
            // Of changed code it may come still, and is then no added one.
            for one in changed {
                self.rules.leave(one, &self.recording);
            }
        }
        self.steps += u64::from(any);
        any
    }

    /// A transaction has come, and reads that were over before it began have not, and still will.
    pub(super) fn await_late(&mut self, request: Request, tx: Tx) {
        self.moved.late.push((request, tx));
    }

    /// A transaction was served, but for reads that may have moved.
    pub(super) fn served_otherwise(&mut self, tx: Tx, moved: MovedReads) {
        let MovedReads { same, gone, new } = moved;
        let came = same.iter().chain(&new);
        came.for_each(|&read| self.moved.came(read));
        let differing = [gone, new].concat();
        if differing.is_empty() {
            return;
        }
        let is_known = |read: &u64| self.shapes.read(*read).is_some();
        if !differing.iter().all(is_known) {
            self.diverge_at(tx, DivergenceKind::ServedDiffers);
            return;
        }
        self.moved.suspects.push(Suspect {
            tx,
            reads: differing,
            otherwise: DivergenceKind::ServedDiffers,
        });
    }

    /// Whether a transaction has the recorded statements but for reads that may have moved.
    pub(super) fn differs_by_reads(&mut self, tx: Tx, ended: &Ended) -> bool {
        let shape = self.recording.transaction(tx).shape;
        if ended.fate != EndedAs::Committed || ended.shape == shape {
            return false;
        }
        let Some(reads) = self
            .shapes
            .differ_by_reads(shape, &ended.hashes, &ended.aside)
        else {
            return false;
        };
        self.moved.suspects.push(Suspect {
            tx,
            reads: [reads.gone, reads.new].concat(),
            otherwise: DivergenceKind::OtherStatements {
                expected: shape,
                actual: ended.shape,
            },
        });
        true
    }

    /// Whether a transaction of other results is a later one of its request, and itself the one
    /// that did not come: both read by the same statement.
    pub(super) fn stands_for_another(&mut self, tx: Tx, ended: &Ended) -> bool {
        let recorded = self.recording.transaction(tx);
        let differs = ended.fate == EndedAs::Committed && !ended.is_answered(recorded.digest);
        let may_be = differs && ended.shape == recorded.shape && self.only_reads(tx);
        let Some((request, _)) = recorded.request.filter(|_| may_be) else {
            return false;
        };
        let is_it = |&other: &Tx| {
            let other = self.recording.transaction(other);
            other.shape == recorded.shape && ended.is_answered(other.digest)
        };
        let Some(other) = self.unclaimed(request).find(is_it) else {
            return false;
        };
        self.counts.transactions_done += 1;
        self.leave_out(vec![other]);
        self.suspect_of_missing(tx);
        true
    }

    /// Whether a read was answered what another one by its statement was, in whichever request. If
    /// such reads move, it is that one, and has come instead of its own: a cache by a key is filled
    /// in another order.
    pub(super) fn is_answered_as_another(
        &mut self,
        tx: Tx,
        ended: &Ended,
        otherwise: &DivergenceKind,
    ) -> bool {
        let recorded = self.recording.transaction(tx);
        let shape = recorded.shape;
        let may_be = recorded.request.is_some() && self.only_reads(tx);
        let Some(read) = self.opening(tx).filter(|_| may_be) else {
            return false;
        };
        if self.moved.answers.is_empty() {
            let all = self.recording.transactions.iter();
            self.moved.answers = all.map(|one| (one.shape, one.digest.0)).collect();
        }
        let answered = [ended.digest, ended.digest_as_sent];
        let is_one = |digest: &u32| self.moved.answers.contains(&(shape, *digest));
        if self.shapes.read(read).is_none() || !answered.iter().any(is_one) {
            return false;
        }
        self.moved.answered_as_another.push(Suspect {
            tx,
            reads: vec![read],
            otherwise: otherwise.clone(),
        });
        true
    }

    /// Nothing more comes: which of those that did not come have moved. The others are differences.
    pub fn settle_moved(&mut self) {
        let suspects = std::mem::take(&mut self.moved.suspects);
        let is_missing = |one: &&Suspect| one.otherwise == DivergenceKind::MissingTransaction;
        let missing = suspects.iter().filter(is_missing).map(|one| one.tx);
        let missing: HashSet<Tx> = missing.collect();
        for suspect in suspects {
            let came = |read: &u64| self.moved.came.contains(read);
            let goes_without =
                || missing.contains(&suspect.tx) && self.goes_without(suspect.tx, &missing);
            if suspect.reads.iter().all(came) || goes_without() {
                let reads = suspect.reads.into_iter();
                reads.for_each(|read| self.moved.count(read));
                continue;
            }
            let request = self.recording.transaction(suspect.tx).request;
            let request = request.map(|(request, _)| self.recording.request(request));
            if request.is_none_or(|request| request.answer == Answer::Complete) {
                self.diverge_at(suspect.tx, suspect.otherwise);
            }
        }
        self.settle_answers(true);
    }

    /// Reads that were answered as another one was are differences unless such reads move. `all`:
    /// nothing more comes. Something else is different otherwise, and may be so because of them.
    pub(super) fn settle_answers(&mut self, all: bool) {
        for suspect in std::mem::take(&mut self.moved.answered_as_another) {
            let moves = |read: &u64| self.moved.times.contains_key(read);
            match suspect.reads.iter().all(moves) {
                true if all => suspect
                    .reads
                    .iter()
                    .for_each(|&read| self.moved.count(read)),
                true => self.moved.answered_as_another.push(suspect),
                false => self.diverge_at(suspect.tx, suspect.otherwise),
            }
        }
    }

    /// Changed code has ended: what is different by nothing but reads that came in one transaction
    /// instead of another is no difference.
    pub(super) fn settle_changes(&mut self) {
        let Some(mut changes) = self.changes.take() else {
            return;
        };
        let all = changes.differing.iter();
        let reads: Vec<Option<Differing>> = all.map(|one| self.reads_of(&changes, one)).collect();
        let all = || reads.iter().flatten();
        let gone: HashSet<u64> = all().flat_map(|one| &one.gone).copied().collect();
        let new: HashSet<u64> = all().flat_map(|one| &one.new).copied().collect();
        let differing = &gone | &new;
        let read_by = match differing.is_empty() {
            true => HashMap::new(),
            false => read_by(&differing, &self.recording, &self.shapes),
        };
        let requests = changes.differing.iter().map(|one| one.request);
        let times = Times::of(requests, &reads, read_by);
        let moved: Vec<bool> = reads
            .iter()
            .zip(&changes.differing)
            .map(|(one, difference)| {
                let fills = |read: &u64| self.fills_a_cache(difference, *read, &times);
                one.as_ref().is_some_and(|one| {
                    let is_moved = |read: &u64| new.contains(read) || fills(read);
                    let is_new = |read: &u64| gone.contains(read) || fills(read);
                    one.gone.iter().all(is_moved) && one.new.iter().all(is_new)
                })
            })
            .collect();
        let mut at = 0..;
        let counts = &mut changes.counts;
        changes.differing.retain(|one| {
            let at = at.next().expect("it has no end");
            if !moved[at] {
                return true;
            }
            match one.kind {
                DifferenceKind::Added { .. } => counts.added -= 1,
                DifferenceKind::Deleted { .. } => counts.deleted -= 1,
                _ => (counts.statements, counts.same) = (counts.statements - 1, counts.same + 1),
            }
            let of = reads[at]
                .iter()
                .flat_map(|one| one.gone.iter().chain(&one.new));
            of.for_each(|&read| self.moved.count(read));
            false
        });
        self.changes = Some(changes);
    }

    /// Whether a read that changed code sends in a request as it did not, or does not any more, is
    /// one that fills a cache of a process: it came in another one, too, and nothing that came in
    /// this one always comes with it, in the recording or now. So more processes have filled a
    /// cache, or fewer. A change that drops a read, or adds one, does so wherever its like has
    /// come.
    fn fills_a_cache(&self, difference: &Difference, read: u64, times: &Times) -> bool {
        let Some(request) = difference.request else {
            return false;
        };
        let own = self.recording.own(request).iter();
        let openings = own.filter_map(|&tx| self.opening(tx));
        let mut came = openings.filter(|&one| !times.gone.contains(&(request, one)));
        let is_sent = |one| self.moved.comes_with(read, one, times);
        self.moved.came.contains(&read) && !came.any(is_sent)
    }

    /// The reads by which a transaction of changed code is different, if that is all.
    fn reads_of(&self, changes: &Changes, difference: &Difference) -> Option<Differing> {
        let statements = |shape: &ShapeId| match self.shapes.statements(*shape) {
            Some(recorded) => Some((recorded.to_vec(), Vec::new())),
            None => changes.shapes.get(shape).map(|texts| shapes::hashes(texts)),
        };
        match (&difference.kind, difference.tx) {
            (DifferenceKind::Statements { shape }, Some(tx)) => {
                let recorded = self.recording.transaction(tx).shape;
                let (now, aside) = statements(shape)?;
                self.shapes.differ_by_reads(recorded, &now, &aside)
            }
            (DifferenceKind::Deleted { into: None }, Some(tx)) if self.only_reads(tx) => {
                let gone = self
                    .shapes
                    .statements(self.recording.transaction(tx).shape)?;
                let (gone, new) = (gone.to_vec(), Vec::new());
                (gone.len() == 1).then_some(Differing { gone, new })
            }
            (
                DifferenceKind::Added {
                    shape, error: None, ..
                },
                _,
            ) => {
                let (gone, new) = (Vec::new(), statements(shape)?.0);
                let reads = matches!(new[..], [one] if self.shapes.read(one).is_some());
                reads.then_some(Differing { gone, new })
            }
            _ => None,
        }
    }

    /// How many reads moved, and their statements; `None`: none.
    pub fn moved_reads(&self) -> Option<(u64, Vec<String>)> {
        let reads = self.moved().map(|(_, times)| times).sum();
        let statements = self.moved().map(|(text, _)| text.to_owned());
        (reads > 0).then(|| (reads, statements.collect()))
    }

    /// The reads that moved, and how often.
    pub fn moved(&self) -> impl Iterator<Item = (&str, u64)> {
        let text = |hash| self.shapes.read(hash).unwrap_or_default();
        let times = self.moved.times.iter();
        times.map(move |(&hash, &times)| (text(hash), times))
    }
}
