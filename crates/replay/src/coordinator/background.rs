//! The coordinator's part that is about work outside of requests: which ghost the service does
//! itself, and which the recording does for it.
//!
//! A transaction of no request does the next ghost that begins with the same statement and wrote,
//! if that can come now: a job queue's worker takes the jobs that it took. If it cannot, it waits
//! for it as long as something moves. The recording does what nobody has done who may be expected
//! to, so the database is as it was whatever the service does in the background.
//!
//! ```text
//!                   ┌─ the service begins it ──▶ By::Service ──▶ committed as recorded
//!   its turn comes ─┤                                └─ anything else ─┐ undone
//!                   └─ it is not expected, or late ──▶ By::Recording ◀─┘
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use hindcast_order::Tx;
use hindcast_trace::{Micros, SessionId};

use super::Coordinator;
use crate::hold::{Inserted, SentOpening};
use crate::recording::Recording;
use crate::transaction::{Ask, Claim, Ended, EndedAs, Opening};

/// For so long a ghost is left to a service that has sent its like.
const PATIENCE: Duration = Duration::from_millis(50);
/// What a session did originally within this time of what the service did of it is the same work.
const SAME_WORK: Duration = Duration::from_secs(2);
/// Where the code does the first part of some work, its next one may come later than recorded by
/// this, and by as long as it took.
const SLOWER: Duration = Duration::from_millis(500);

/// How transactions outside of requests are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    opening: u64,
    /// The client had begun it.
    begun: bool,
}

/// Who does a ghost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Service,
    Recording,
}

/// What the recording is to do with a ghost whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GhostTurn {
    /// It is done.
    Over,
    /// The service does it.
    Service,
    /// It may still come.
    Later,
    /// To run it.
    Now,
}

#[derive(Default)]
pub struct Background {
    openings: HashMap<Tx, SentOpening>,
    /// Which one lays this row.
    inserts: HashMap<Inserted, Tx>,
    /// Those that wrote, in the order in which they began.
    writers: HashMap<Kind, Vec<Tx>>,
    /// Those that only read while the service started.
    readers: HashMap<Kind, VecDeque<Tx>>,
    /// They look for something to do, and sometimes there is nothing.
    taking: HashSet<Kind>,
    /// How many of a kind there were at a time, at most.
    sessions: HashMap<Kind, usize>,
    /// Who took something just before, of those that were open at the same time: what it had locked
    /// was not found.
    taken_before: HashMap<Tx, Tx>,
    /// What the session did before.
    before: HashMap<Tx, Tx>,
    /// Those that were over when the service had started, while it does that again.
    start: HashSet<Tx>,
    by: HashMap<Tx, By>,
    /// The service began them and did something else.
    given_back: HashSet<Tx>,
    /// What the service has sent.
    seen: HashSet<Kind>,
    /// Since it has, it was waited for in vain.
    missed: HashSet<Kind>,
    waiting: HashMap<Kind, usize>,
    /// What the catalog says may be asked at the beginning of any ghost, as tools do that look
    /// which tables there are before they make others: it takes no snapshot from what comes behind.
    may_ask_before: bool,
    /// When the service found jobs originally that it has been given by others than the database.
    handed: BTreeSet<Micros>,
}

impl Kind {
    fn of(opening: &SentOpening) -> Self {
        Self {
            opening: opening.hash,
            begun: opening.begun,
        }
    }
}

impl Background {
    /// Of these openings, of all ghosts. `run`: those that the recording can do, by session.
    pub fn new(
        recording: &Recording,
        openings: HashMap<Tx, SentOpening>,
        run: &BTreeMap<SessionId, Vec<Tx>>,
    ) -> Self {
        let mut background = Self::default();
        for own in run.values() {
            background
                .before
                .extend(own.windows(2).map(|pair| (pair[1], pair[0])));
        }
        let (mut found, mut empty) = (HashSet::new(), HashSet::new());
        let mut sessions: HashMap<Kind, HashSet<SessionId>> = HashMap::new();
        for tx in recording.ghosts() {
            let Some(opening) = openings.get(&tx) else {
                continue;
            };
            let (kind, ghost) = (Kind::of(opening), recording.transaction(tx));
            let is_run = run.get(&ghost.session).is_some_and(|own| own.contains(&tx));
            match ghost.wrote && is_run {
                true => background.writers.entry(kind).or_default().push(tx),
                false => background.readers.entry(kind).or_default().push_back(tx),
            }
            if ghost.wrote && ghost.rows > 0 {
                found.insert(kind);
            }
            if !ghost.wrote && ghost.rows == 0 {
                empty.insert(kind);
            }
            if opening.skips_locked {
                background.taking.insert(kind);
            }
            sessions.entry(kind).or_default().insert(ghost.session);
        }
        let mut ghosts = recording.ghosts();
        background.may_ask_before = ghosts.all(|tx| recording.transaction(tx).is_read_committed());
        background.taking.extend(found.intersection(&empty));
        let sessions = sessions.into_iter();
        background.sessions = sessions.map(|(kind, own)| (kind, own.len())).collect();
        background.openings = openings;
        for kind in &background.taking {
            let all = background.writers.get(kind).map_or(&[][..], Vec::as_slice);
            let order = taking_order(recording, all);
            background.taken_before.extend(order);
        }
        background
    }

    /// Which ghosts lay these rows.
    pub fn with_rows(mut self, inserts: HashMap<Inserted, Tx>) -> Self {
        self.inserts = inserts;
        self
    }
}

/// Of transactions that take something, each with the one that did so just before, while it was
/// open.
fn taking_order(recording: &Recording, all: &[Tx]) -> Vec<(Tx, Tx)> {
    let mut by_id: Vec<Tx> = all.to_vec();
    by_id.sort_by_key(|&tx| recording.ghost_xid(tx));
    let span = |tx: Tx| {
        let recorded = recording.transaction(tx);
        (recorded.began, recorded.ended)
    };
    let overlap = |pair: &&[Tx]| {
        let (one, other) = (span(pair[0]), span(pair[1]));
        one.0 <= other.1 && other.0 <= one.1
    };
    let pairs = by_id.windows(2).filter(overlap);
    pairs.map(|pair| (pair[1], pair[0])).collect()
}

impl Coordinator {
    pub fn set_background(&mut self, background: Background) {
        self.background = background;
    }

    /// The service starts, and does itself what it did then: these ghosts.
    pub fn starts_itself(&mut self, ghosts: &[Tx]) {
        self.background.start = ghosts.iter().copied().collect();
    }

    /// The service has started.
    pub fn has_started_itself(&mut self) {
        self.background.start.clear();
        self.background.readers.clear();
    }

    /// A worker of the service was given a job that it found then, in a queue elsewhere.
    pub fn was_handed(&mut self, at: Micros) {
        if self.does_ghosts() {
            self.background.handed.insert(at);
        }
    }

    /// Whether the service may do ghosts: what changed code does in the background is undone.
    pub fn does_ghosts(&self) -> bool {
        self.changes.is_none()
    }

    /// A transaction of no request takes its first snapshot.
    pub(super) fn claim_background(&mut self, opening: Opening<'_>) -> Claim {
        let kind = Kind {
            opening: opening.hash,
            begun: opening.begun,
        };
        if opening.waited {
            self.background.waits_no_more(kind);
        }
        if self.stopped {
            return Claim::Outside;
        }
        if opening.sets_up {
            let may_be_ghost = self.does_ghosts() && self.background.may_ask_before;
            return match opening.begun && may_be_ghost {
                true => Claim::Later(None),
                false => Claim::Outside,
            };
        }
        self.background.seen.insert(kind);
        self.background.missed.remove(&kind);
        if let Some(read) = self.next_read(kind) {
            if opening.may_wait && !self.rules.schedule().may_take_snapshot(read) {
                self.background.waits(kind);
                return Claim::Wait(read);
            }
            let reads = self.background.readers.entry(kind).or_default();
            reads.pop_front();
            return Claim::Outside;
        }
        let spare = match self.background.taking.contains(&kind) {
            true => Claim::InVain,
            false => Claim::Outside,
        };
        let row = (opening.hash, opening.each_value.to_vec());
        let next = match self.background.inserts.get(&row) {
            Some(&tx) if self.claimed[tx.index()] => None,
            _ => self.next_ghost(kind, opening.each_value),
        };
        let Some(tx) = next.filter(|_| self.does_ghosts()) else {
            return spare;
        };
        if self.may(Ask::Ghost(tx)) && self.may(Ask::Snapshot(tx)) && self.may_take(tx) {
            self.steps += 1;
            self.set_claimed(tx);
            self.background.by.insert(tx, By::Service);
            return Claim::Run(tx);
        }
        let others = self.background.waiting.get(&kind).copied().unwrap_or(0);
        let at_a_time = self.background.sessions.get(&kind).copied().unwrap_or(0);
        if opening.may_wait && others < at_a_time {
            self.background.waits(kind);
            return Claim::Wait(tx);
        }
        spare
    }

    /// While the service starts: what it read next that begins so, if it read that before it did
    /// anything else that does.
    fn next_read(&self, kind: Kind) -> Option<Tx> {
        if self.background.start.is_empty() {
            return None;
        }
        let background = &self.background;
        let last = background.start.iter().max().copied();
        let read = background.readers.get(&kind)?.front().copied();
        let mut writers = background.writers.get(&kind).into_iter().flatten();
        let write = writers.find(|tx| !self.claimed[tx.index()]).copied();
        read.filter(|&read| Some(read) < last && write.is_none_or(|write| read < write))
    }

    /// The next ghost that begins so, of those that have most of these values. `None`, too, if the
    /// recording has done one that has more of them.
    fn next_ghost(&self, kind: Kind, values: &[u64]) -> Option<Tx> {
        let all = self.background.writers.get(&kind)?;
        let is_open = |tx: &&Tx| {
            let given_back = self.background.given_back.contains(tx);
            !self.claimed[tx.index()] && !given_back && !self.is_over_with(**tx)
        };
        let equal = |tx: &Tx| self.background.equal(*tx, values);
        // Of several the first, of which there are most.
        let (most, next) = all.iter().filter(is_open).fold((0, None), |best, tx| {
            let own = equal(tx);
            match best {
                (most, Some(_)) if own <= most => best,
                _ => (own, Some(*tx)),
            }
        });
        let by_recording = |tx: &&Tx| self.background.by.get(tx) == Some(&By::Recording);
        let is_done = all.iter().filter(by_recording).any(|tx| equal(tx) > most);
        next.filter(|_| !is_done).map(|tx| self.first_to_take(tx))
    }

    /// What is over and begins so: of those that have most of these values the last.
    pub fn done_like(&self, opening: Opening<'_>) -> Option<Tx> {
        let kind = Kind {
            opening: opening.hash,
            begun: opening.begun,
        };
        let all = self.background.writers.get(&kind)?.iter().copied();
        let equal = |tx: &Tx| self.background.equal(*tx, opening.each_value);
        all.filter(|&tx| self.is_over_with(tx)).max_by_key(equal)
    }

    /// Whether a row is there that a statement outside of requests lays, with all of its values: a
    /// ghost has laid it, or does so.
    pub fn is_laid(&self, row: &Inserted) -> bool {
        let by_recording = |tx| self.background.by.get(tx) == Some(&By::Recording);
        let ghost = self.background.inserts.get(row);
        ghost.is_some_and(|tx| by_recording(tx) || self.is_over_with(*tx))
    }

    /// The ghost, or one that has to take something before it, and has not begun.
    fn first_to_take(&self, tx: Tx) -> Tx {
        let before = self.background.taken_before.get(&tx);
        let waits = before.filter(|before| !self.claimed[before.index()] && !self.may_take(tx));
        waits.map_or(tx, |&before| self.first_to_take(before))
    }

    /// What the recording is to do with a ghost whose turn it has been for so long. `quiet`:
    /// nothing has moved meanwhile.
    pub fn ghost_turn(&mut self, tx: Tx, turn_for: Duration, quiet: bool) -> GhostTurn {
        if self.is_by_service(tx) {
            return match self.is_over_with(tx) {
                true => GhostTurn::Over,
                false => GhostTurn::Service,
            };
        }
        if !self.may_take(tx) && turn_for < SLOWER || !self.is_due(tx, turn_for, quiet) {
            return GhostTurn::Later;
        }
        if let Some(opening) = self.background.openings.get(&tx) {
            let kind = Kind::of(opening);
            self.background.missed.insert(kind);
        }
        self.background.by.insert(tx, By::Recording);
        match self.claim_ghost(tx) {
            true => GhostTurn::Now,
            false => GhostTurn::Over,
        }
    }

    /// Whether a ghost that takes something finds what others took before it locked. What they saw
    /// is no more than what it saw, or they could not come before it.
    fn may_take(&self, tx: Tx) -> bool {
        let Some(&before) = self.background.taken_before.get(&tx) else {
            return true;
        };
        let schedule = self.rules.schedule();
        let level = |tx| schedule.levels().level_of(tx);
        let is_through = schedule.has_snapshot(before) || self.is_over_with(before);
        is_through || level(before) > level(tx)
    }

    /// Whether the service is not waited for to do this.
    fn is_due(&self, tx: Tx, turn_for: Duration, quiet: bool) -> bool {
        let background = &self.background;
        let known = background.openings.get(&tx).filter(|_| self.does_ghosts());
        let Some(known) = known.filter(|_| !background.given_back.contains(&tx)) else {
            return true;
        };
        let before = background.before.get(&tx);
        let by = before.and_then(|before| background.by.get(before));
        if background.start.contains(&tx) {
            let is_waited_for = background.waiting.values().any(|&count| count > 0);
            return by == Some(&By::Recording) || quiet && is_waited_for;
        }
        let kind = Kind::of(known);
        let is_missed = background.missed.contains(&kind);
        if by == Some(&By::Service)
            && !is_missed
            && let Some(before) = before
            && background.openings.get(before).map(|one| one.hash) != Some(known.hash)
        {
            let own = self.recording.transaction(tx);
            let gap = own.began - self.recording.transaction(*before).ended;
            let gap = Duration::from_micros(gap.max(0) as u64);
            if gap <= SAME_WORK {
                return turn_for >= gap * 2 + SLOWER;
            }
        }
        // It may be what comes next in work that the service has begun in another session.
        let may_come = self.counts.ghosts_by_service > 0 && by != Some(&By::Recording);
        let own = self.recording.transaction(tx).began;
        let handed = background.handed.range(..=own).next_back();
        let handed = handed.map(|at| Duration::from_micros((own - at) as u64));
        let patience = match background.seen.contains(&kind) {
            _ if is_missed => Duration::ZERO,
            _ if let Some(gap) = handed.filter(|&gap| gap <= SAME_WORK) => gap * 2 + SLOWER,
            true => PATIENCE,
            false if may_come => SLOWER,
            false => Duration::ZERO,
        };
        turn_for >= patience
    }

    /// Whether the service is in the middle of this ghost.
    pub fn is_by_service(&self, tx: Tx) -> bool {
        self.background.by.get(&tx) == Some(&By::Service)
    }

    /// The service has ended a ghost, by this or by going away. Whether that is how it ended.
    pub(super) fn did_ghost(&mut self, claim: Claim, ended: Option<&Ended>) -> bool {
        let Claim::Run(tx) = claim else { return true };
        if !self.is_by_service(tx) {
            return true;
        }
        let done = ended.is_some_and(|ended| ended.fate == EndedAs::Committed);
        match done {
            true => self.counts.ghosts_by_service += 1,
            false => self.give_back(tx),
        }
        done
    }

    /// Whether a ghost that was answered otherwise had been begun by the service, which did
    /// something else, and so came behind what it was to come before.
    pub(super) fn is_done_late(&mut self, tx: Tx) -> bool {
        let is_late = self.background.given_back.contains(&tx);
        self.counts.ghosts_late += u64::from(is_late);
        is_late
    }

    /// The service did something else: the recording does it.
    pub fn give_back(&mut self, tx: Tx) {
        self.steps += 1;
        self.claimed[tx.index()] = false;
        self.background.by.remove(&tx);
        self.background.given_back.insert(tx);
    }

    /// What waited to do this ghost has gone away.
    pub fn waits_no_more(&mut self, tx: Tx) {
        if let Some(opening) = self.background.openings.get(&tx) {
            let kind = Kind::of(opening);
            self.background.waits_no_more(kind);
        }
    }
}

impl Background {
    /// How many of these values the ghost has.
    fn equal(&self, tx: Tx, values: &[u64]) -> usize {
        let pairs = values.iter().zip(&self.openings[&tx].values);
        pairs.filter(|(now, then)| now == then).count()
    }

    fn waits(&mut self, kind: Kind) {
        *self.waiting.entry(kind).or_default() += 1;
    }

    fn waits_no_more(&mut self, kind: Kind) {
        if let Some(count) = self.waiting.get_mut(&kind) {
            *count = count.saturating_sub(1);
        }
    }
}
