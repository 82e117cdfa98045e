//! The client's transaction, as far as it went.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use hindcast_order::Tx;
use hindcast_trace::{RequestId, ShapeId};
use hindcast_wire::answered::error_text;
use hindcast_wire::digest::{ResultDigest, ShapeHasher, row_hash};
use hindcast_wire::message::backend::{self as server, Fields};
use hindcast_wire::sql::{self, Statement};

use super::pins::Pins;
use super::places::Places;
use super::rows::Rows;
use super::sent::Sent;
use crate::learned::Results;
use crate::looks::Stretch;
use crate::reading::only_reads;
use crate::setup::{asks_catalog, sets_up};
use crate::shapes::may_be_aside;
use crate::transaction::{Ask, Claim, Ended, EndedAs, Looking};
use crate::transcript::Transcript;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The client's own `BEGIN`.
    Explicit,
    /// Autocommitted, in a `BEGIN` of ours.
    Wrapped,
    /// Autocommitted and left as it is.
    Direct,
}

/// Whether it is known which recorded transaction this is.
#[derive(Debug)]
enum Standing {
    /// It has had no statement that takes a snapshot.
    Unclaimed {
        /// What a comment said, as on `BEGIN`: a named statement that follows may have none.
        request: Option<RequestId>,
        /// The client's messages so far: if it turns out to have aborted, their recorded answers
        /// are passed over.
        sent: Vec<u8>,
    },
    Claimed(Claim),
}

/// What a commit of ours came to.
#[derive(Debug, Default)]
pub(super) struct OwnCommit {
    pub worked: bool,
    /// What the client is told.
    pub error: Option<Bytes>,
}

impl OwnCommit {
    /// Why it did not work, if the server said so.
    pub fn error_text(&self) -> Option<String> {
        let body = self.error.as_ref()?.get(5..)?;
        Some(error_text(body))
    }
}

/// An open transaction.
#[derive(Debug)]
pub(super) struct Open {
    pub kind: Kind,
    standing: Standing,
    digest: ResultDigest,
    /// The same of rows as they came.
    digest_as_sent: ResultDigest,
    /// What the digest is of, if that is kept.
    results: Results,
    shape: ShapeHasher,
    /// Statements sent so far, as hashes of their fingerprints.
    statements: Vec<u64>,
    /// Of these, those that may be aside.
    aside: Vec<u64>,
    /// Statements answered so far.
    answered: u32,
    error: Option<String>,
    /// Of the last statement that was answered: `COMMIT` at the end of a transaction that
    /// committed.
    last_tag: Bytes,
    /// Lock steps whose completion is to be reported, by statement, in order.
    locks: VecDeque<u32>,
    /// The statement that takes the snapshot, where none of ours did before it.
    snapshot_at: Option<u32>,
    /// That statement asks the catalog.
    snapshot_by_lookup: bool,
    /// What later statements are to see, each from its first to its last. How many of these were
    /// asked for, and how many are through.
    looks: Vec<Stretch>,
    asked: usize,
    looked: usize,
    /// What its first statement saw is still to be asked for: that one saw the present.
    asks_again: bool,
    /// Its statements that try for an advisory lock in vain.
    pub refused: Vec<u32>,
    /// Of changed code: all that originally tried, by place and hash.
    tries: Vec<(u32, u64)>,
    /// The recorded statements that insert in an order.
    inserts: Vec<u32>,
    /// The recorded statements that found a key taken.
    losing: Vec<u32>,
    /// Those that change rows of tables in which others did.
    changes: Vec<u32>,
    /// Rows that its client is not told of yet.
    pub rows: Rows,
    /// It is known which of its statements drew what.
    draws_by_statement: bool,
    /// A savepoint was set before its snapshot was taken, and so before anything was pinned.
    pub nested: bool,
    /// The place of what came behind the last savepoint.
    behind_savepoint: u32,
    /// What was pinned behind the first savepoint was rolled back, or what was drawn since another
    /// one is not to be drawn again.
    unpinned: Option<Unpinned>,
    /// How many of its statements were sent.
    sent: u32,
    /// Which recorded statements its own stand for.
    places: Places,
    /// It must not write or lock before it is permitted; see
    /// [`Ask::Act`](crate::transaction::Ask::Act).
    pub acts_late: bool,
    /// It has set savepoints, so rows may carry ids of subtransactions.
    pub savepoints: bool,
    /// It only read so far, as far as its texts tell. Of changed code only.
    pub only_read: bool,
    /// It only read originally; see [`Pins::reads_only`]. Not of changed code.
    pub reads_only: bool,
    /// Texts of its statements; of changed code only.
    pub texts: Vec<String>,
    /// To be shown if it turns out to be another one than recorded; not of changed code.
    pub transcript: Transcript,
    pub own_commit: OwnCommit,
    /// It belongs to no request, and what it writes is undone at its end.
    pub tried: Option<Tried>,
    /// It is a ghost that the service does itself.
    pub ghost: Option<Ghost>,
    /// It is one to the last statement, and about to commit. What it began with, for a message.
    pub departs: Option<String>,
    /// The statement by which it looks for something to do, of which there is nothing for it.
    pub in_vain: Option<u32>,
    /// This statement lays a row outside of requests that is there.
    pub laid: Option<u32>,
}

/// What is to be pinned again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unpinned {
    /// What is drawn from the place of the next statement on.
    Ahead,
    /// From this one on.
    From(u32),
}

/// What is done outside of requests, and undone.
#[derive(Debug)]
pub(super) struct Tried {
    /// The last statement that may have written, or else the first.
    pub statement: String,
    /// It has written.
    pub wrote: bool,
}

/// A ghost that the service does itself.
#[derive(Debug)]
pub(super) struct Ghost {
    /// What its client sent originally.
    pub sent: Vec<Sent>,
    /// What it began with, for a message.
    pub opening: String,
}

/// What an answer says of a transaction.
#[derive(Debug, Default)]
pub(super) struct Noted {
    pub took_snapshot: bool,
    /// Looks whose last statement this was.
    pub looked: Range<u32>,
    /// A lock step was completed by this statement.
    pub locked: Option<u32>,
}

impl Open {
    /// The client has begun it.
    pub fn unclaimed(request: Option<RequestId>) -> Self {
        let sent = Vec::new();
        Self::new(Kind::Explicit, Standing::Unclaimed { request, sent })
    }

    pub fn claimed(kind: Kind, claim: Claim) -> Self {
        Self::new(kind, Standing::Claimed(claim))
    }

    fn new(kind: Kind, standing: Standing) -> Self {
        Self {
            kind,
            standing,
            digest: ResultDigest::new(),
            digest_as_sent: ResultDigest::new(),
            results: Results::default(),
            shape: ShapeHasher::new(),
            statements: Vec::new(),
            aside: Vec::new(),
            answered: 0,
            error: None,
            last_tag: Bytes::new(),
            locks: VecDeque::new(),
            snapshot_at: None,
            snapshot_by_lookup: false,
            looks: Vec::new(),
            asked: 0,
            looked: 0,
            asks_again: false,
            refused: Vec::new(),
            tries: Vec::new(),
            inserts: Vec::new(),
            losing: Vec::new(),
            changes: Vec::new(),
            rows: Rows::default(),
            draws_by_statement: false,
            nested: false,
            behind_savepoint: 0,
            unpinned: None,
            sent: 0,
            places: Places::default(),
            acts_late: false,
            savepoints: false,
            only_read: true,
            reads_only: false,
            texts: Vec::new(),
            transcript: Transcript::default(),
            own_commit: OwnCommit::default(),
            tried: None,
            ghost: None,
            departs: None,
            in_vain: None,
            laid: None,
        }
    }

    /// Whether there is something to undo; `None`: it is not undone.
    pub fn has_tried(&self) -> Option<bool> {
        self.tried.as_ref().map(|tried| tried.wrote)
    }

    pub fn claim(&self) -> Option<Claim> {
        match self.standing {
            Standing::Unclaimed { .. } => None,
            Standing::Claimed(claim) => Some(claim),
        }
    }

    pub fn set_claim(&mut self, claim: Claim) {
        self.standing = Standing::Claimed(claim);
    }

    /// The request that was named before it was claimed.
    pub fn request(&self) -> Option<RequestId> {
        match self.standing {
            Standing::Unclaimed { request, .. } => request,
            Standing::Claimed(_) => None,
        }
    }

    /// The client sent this message before it is known which transaction this is.
    pub fn note_sent(&mut self, tag: Option<u8>, named: Option<RequestId>) {
        if let Standing::Unclaimed { request, sent } = &mut self.standing {
            sent.extend(tag);
            *request = request.or(named);
        }
    }

    /// What the client sent before it was known which transaction this is.
    pub fn into_sent(self) -> Vec<u8> {
        match self.standing {
            Standing::Unclaimed { sent, .. } => sent,
            Standing::Claimed(_) => Vec::new(),
        }
    }

    /// The recorded transaction that it stands for and is run as.
    pub fn run(&self) -> Option<Tx> {
        match self.claim() {
            Some(Claim::Run(tx)) => Some(tx),
            _ => None,
        }
    }

    /// Its claim, if what becomes of it is of interest.
    pub fn followed(&self) -> Option<Claim> {
        self.claim()
            .filter(|claim| matches!(claim, Claim::Run(_) | Claim::Added(_)))
    }

    /// Its own statement takes the snapshot: so many come before it in what is sent next. What its
    /// driver asks for itself in between does not, unless it is one itself.
    pub fn takes_snapshot_after(&mut self, before: u32, is_lookup: bool) {
        self.snapshot_at = Some(self.statements() + before);
        self.snapshot_by_lookup = is_lookup;
    }

    /// Its own statement has not taken the snapshot yet, and will.
    pub fn awaits_snapshot(&self) -> bool {
        self.snapshot_at.is_some()
    }

    /// Whether that is this statement.
    pub fn takes_snapshot_at(&self, statement: u32) -> bool {
        self.snapshot_at == Some(statement)
    }

    /// What statements of changed code are to do again. `is_pinned`: what they draw, too.
    pub fn pin_changed(&mut self, pins: &Pins, is_pinned: bool) {
        self.refused.clone_from(&pins.refused);
        self.tries.clone_from(&pins.tries);
        self.inserts.clone_from(&pins.inserts);
        self.losing.clone_from(&pins.losing);
        self.changes.clone_from(&pins.changes);
        self.rows = Rows::new(&pins.row_order);
        self.nested &= is_pinned;
        self.draws_by_statement = is_pinned && pins.draws_by_statement();
    }

    /// The recorded statement that the one is whose answer comes.
    pub fn recorded_statement(&self) -> Option<u32> {
        self.run()?;
        self.places.same(self.answered)
    }

    /// The recorded statement that this one is, if it is to insert in the recorded order.
    pub fn inserts(&self, statement: u32) -> Option<u32> {
        let recorded = self.places.same(statement)?;
        self.inserts.contains(&recorded).then_some(recorded)
    }

    /// Whether this statement found a key taken originally.
    pub fn loses(&self, statement: u32) -> bool {
        let recorded = self.places.same(statement);
        recorded.is_some_and(|recorded| self.losing.contains(&recorded))
    }

    /// The recorded statement that this one is, if it changes rows of a table in which others found
    /// a key taken.
    pub fn changes(&self, statement: u32) -> Option<u32> {
        let recorded = self.places.same(statement)?;
        self.changes.contains(&recorded).then_some(recorded)
    }

    /// The recorded statement that this one is, if that took or gave back an advisory lock. Changed
    /// code takes the locks of tables, too.
    pub fn locks(&self, statement: &Statement, index: u32, changed_code: bool) -> Option<u32> {
        let is_advisory = statement.locks.contains(&sql::ADVISORY);
        let recorded = match changed_code {
            false => index,
            true => self.places.same(index)?,
        };
        let locks = is_advisory || changed_code && statement.kind == sql::Kind::Lock;
        (locks && !self.refused.contains(&recorded)).then_some(recorded)
    }

    /// Whether the statement that comes next, which tries for an advisory lock, is to have it;
    /// `None`: the database decides.
    pub fn is_granted(&self, statement: &Statement, changed_code: bool) -> Option<bool> {
        self.run()?;
        let place = self.statements();
        let is_known = !changed_code || self.tries.contains(&(place, statement.fingerprint.hash));
        is_known.then(|| !self.refused.contains(&place))
    }

    /// What its statements are to do again.
    pub fn pinned(&mut self, pins: &Pins) {
        self.reads_only = pins.reads_only;
        self.refused.clone_from(&pins.refused);
        self.inserts.clone_from(&pins.inserts);
        self.losing.clone_from(&pins.losing);
        self.changes.clone_from(&pins.changes);
        self.rows = Rows::new(&pins.row_order);
        self.draws_by_statement = pins.draws_by_statement();
    }

    /// A savepoint is set. Returns whether that is the first one, and before anything was pinned.
    pub fn note_savepoint(&mut self, statement: &Statement) -> bool {
        if self.claim().is_none() {
            // All that is recorded comes behind it.
            return !std::mem::replace(&mut self.nested, true);
        }
        let is_recorded = self.places.is_ahead(statement.fingerprint.hash);
        self.behind_savepoint = self.place_of_next(statement) + u32::from(is_recorded);
        false
    }

    /// A statement rolls back to a savepoint. What is pinned and what was used of it is
    /// transactional; what the rolled back statements drew is not. What did not roll back
    /// originally may draw that again.
    pub fn note_rollback_to(&mut self, statement: &Statement) {
        self.unpinned = match self.places.is_ahead(statement.fingerprint.hash) {
            true if self.nested || self.draws_by_statement => Some(Unpinned::Ahead),
            false if self.nested => Some(Unpinned::From(self.behind_savepoint)),
            _ => self.unpinned,
        };
    }

    /// From which recorded statement on is to be pinned again what they drew, before this statement
    /// comes.
    pub fn pins_again(&mut self, statement: &Statement) -> Option<u32> {
        let unpinned = self.unpinned.take()?;
        Some(match unpinned {
            Unpinned::Ahead => self.place_of_next(statement),
            Unpinned::From(place) => place,
        })
    }

    /// The recorded statement that the next one, which is this, stands for.
    fn place_of_next(&self, statement: &Statement) -> u32 {
        let hash = statement.fingerprint.hash;
        self.places.next(self.statements(), hash)
    }

    /// Whether one of the next so many statements sees something else than the one before, or
    /// waited for a row.
    pub fn looks_within(&self, count: u32) -> bool {
        let from = self.statements();
        let within = |look: &Stretch| {
            let begins = from + u32::from(!look.early);
            (begins..from + count).contains(&look.first)
        };
        self.run().is_some() && self.looks[self.looked..].iter().any(within)
    }

    /// What its later statements are to see. `recorded`: the hashes of the recorded ones, if others
    /// may come.
    pub fn looks(&mut self, looks: Vec<Stretch>, recorded: Vec<u64>) {
        self.looks = looks;
        self.places = Places::new(recorded, &self.statements);
    }

    /// What the statement that is sent next is to see: the look that begins with it, or with one
    /// before it, or what the transaction saw first if that was not asked for. What asks
    /// for what the catalog says does not wait for it, but the next statement does: services fill
    /// caches so that all of their requests use, and let the others wait meanwhile.
    pub fn next_look(&mut self, statement: &Statement) -> Option<Ask> {
        let tx = self.run()?;
        let next = self.place_of_next(statement);
        let begun = self.looks.partition_point(|look| look.first <= next);
        let next = (self.asked.max(self.looked)..begun).next_back();
        if (next.is_some() || self.asks_again) && sets_up(statement) {
            return None;
        }
        self.asked = begun.max(self.asked);
        let again = std::mem::take(&mut self.asks_again);
        let first = again.then_some(Ask::Snapshot(tx));
        next.map(|nth| Ask::Look(tx, nth as u32)).or(first)
    }

    /// The look by which the statement that is sent next is taken down what it sees, before it has
    /// waited. Not of what the server begins and ends itself: it would be forgotten in between.
    pub fn early_look(&mut self, statement: &Statement) -> Option<(Tx, u32)> {
        let tx = self.run().filter(|_| self.kind != Kind::Direct)?;
        if !self.places.is_ahead(statement.fingerprint.hash) {
            return None;
        }
        let next = self.place_of_next(statement);
        let is_next = |look: &Stretch| look.early && look.first == next;
        let nth = self.looks.iter().position(is_next)?;
        if nth < self.asked.max(self.looked) {
            return None;
        }
        self.asked = nth + 1;
        Some((tx, nth as u32))
    }

    /// What it sees with this look is taken down.
    pub fn looked_early(&mut self, look: u32) {
        self.looked = self.looked.max(look as usize + 1);
    }

    /// The statement that was to see this sees the present, and the next one is to see it.
    pub fn present_look(&mut self, ask: Ask) {
        match ask {
            Ask::Look(_, nth) => self.asked = self.asked.min(nth as usize),
            _ => {
                self.snapshot_at = self.snapshot_at.map(|at| at + 1);
                self.asks_again = self.snapshot_at.is_some();
            }
        }
    }

    /// Whether what it saw first is still to be asked for, though it has looked.
    pub fn asks_again(&self) -> bool {
        self.asks_again
    }

    /// A later look begins. Returns whether the snapshot was to be taken by a statement that has
    /// not come, and will not: others need not wait for it.
    pub fn skip_snapshot(&mut self) -> bool {
        self.snapshot_at.take().is_some()
    }

    /// It looks no more before this look. Returns those that it has left out.
    pub fn skip_to(&mut self, look: u32) -> Range<u32> {
        let left_out = self.looked as u32..look;
        self.looked = self.looked.max(look as usize);
        left_out
    }

    /// So many statements were sent.
    pub fn note_sent_statements(&mut self, count: u32) {
        self.sent += count;
    }

    /// What the statements see that the server works on, if all that see it were sent.
    pub fn looking(&self) -> Option<Looking> {
        let tx = self.run()?;
        let first = match self.kind {
            Kind::Direct => Some(0),
            _ => self.snapshot_at,
        };
        let look = match first {
            Some(at) if at >= self.answered => {
                return (at < self.sent).then_some(Looking { tx, look: None });
            }
            _ => self.looked,
        };
        let last = self.looks.get(look)?.last;
        let is_sent = self
            .sent
            .checked_sub(1)
            .is_some_and(|sent| self.places.reaches(sent, last));
        is_sent.then_some(Looking {
            tx,
            look: Some(look as u32),
        })
    }

    /// A statement is about to be sent. Returns its index.
    pub fn note_statement(&mut self, statement: &Statement, changed_code: bool) -> u32 {
        self.shape.add(&statement.fingerprint);
        if changed_code {
            self.texts.push(statement.fingerprint.text.clone());
            self.only_read &= only_reads(statement);
            self.savepoints |= statement.kind == sql::Kind::Savepoint;
        }
        if let Some(tried) = self.tried.as_mut().filter(|_| !only_reads(statement)) {
            tried.statement.clone_from(&statement.fingerprint.text);
        }
        let index = self.statements();
        if self.snapshot_at == Some(index) && !self.snapshot_by_lookup && asks_catalog(statement) {
            self.snapshot_at = Some(index + 1);
        }
        self.places.note(statement.fingerprint.hash);
        self.statements.push(statement.fingerprint.hash);
        if may_be_aside(statement) {
            self.aside.push(statement.fingerprint.hash);
        }
        index
    }

    /// How many statements were sent so far.
    pub fn statements(&self) -> u32 {
        self.statements.len() as u32
    }

    /// Their hashes.
    pub fn hashes(&self) -> &[u64] {
        &self.statements
    }

    /// How many of them were answered.
    pub fn answered(&self) -> u32 {
        self.answered
    }

    /// The shape of the statements that were sent so far.
    pub fn shape(&self) -> ShapeId {
        ShapeId(self.shape.value())
    }

    /// The statement with this index locks, and it is to be told when it has.
    pub fn note_lock(&mut self, statement: u32) {
        if self.locks.back() != Some(&statement) {
            self.locks.push_back(statement);
        }
    }

    /// The server has answered a row, or something else that counts as one.
    pub fn note_row(&mut self, ordered: bool, as_sent: &[u8], text_form: &[u8]) {
        let hash = row_hash(text_form);
        self.digest.row_hash(ordered, hash);
        let as_sent = match std::ptr::eq(as_sent, text_form) {
            true => hash,
            false => row_hash(as_sent),
        };
        self.digest_as_sent.row_hash(ordered, as_sent);
        self.results.row(ordered, text_form);
    }

    /// The server has answered something else.
    pub fn note_answer(&mut self, tag: u8, body: &[u8], error: Option<&Fields<'_>>) -> Noted {
        let mut noted = Noted::default();
        // A client that wants no more than some rows has all that it saw with the last of them.
        let is_through = matches!(tag, server::COMMAND_COMPLETE | server::PORTAL_SUSPENDED);
        if (is_through || tag == server::ERROR_RESPONSE)
            && self.snapshot_at.is_some_and(|at| at <= self.answered)
        {
            self.snapshot_at = None;
            noted.took_snapshot = true;
        }
        match (tag, error) {
            // An empty query is no statement, so its answer says nothing.
            (server::COMMAND_COMPLETE, _) => {
                let command = body.strip_suffix(b"\0").unwrap_or(body);
                self.digest.complete(command);
                self.digest_as_sent.complete(command);
                self.results.complete(command);
                self.last_tag = Bytes::copy_from_slice(command);
            }
            (_, Some(fields)) => {
                self.digest.error(fields.sqlstate());
                self.digest_as_sent.error(fields.sqlstate());
                self.results.error(fields.sqlstate());
                self.error.get_or_insert_with(|| error_text(body));
            }
            _ => {}
        }
        if is_through || tag == server::ERROR_RESPONSE && self.answered < self.statements() {
            self.note_through(&mut noted);
        }
        if tag == server::ERROR_RESPONSE {
            // What was sent behind it is passed over.
            self.answered = self.statements();
        }
        noted
    }

    /// The first statement that was not answered is.
    fn note_through(&mut self, noted: &mut Noted) {
        let through = |look: &Stretch| self.places.is_past(self.answered, look.last);
        let looked = self.looks.partition_point(through).max(self.looked);
        noted.looked = self.looked as u32..looked as u32;
        self.looked = looked;
        if self.locks.front() == Some(&self.answered) {
            let locked = self.locks.pop_front();
            noted.locked = locked.map(|own| self.places.same(own).unwrap_or(own));
        }
        self.answered += 1;
    }

    /// A statement of ours has failed in it.
    pub fn note_own_error(&mut self, message: &[u8]) {
        let body = message.get(5..).unwrap_or_default();
        self.error.get_or_insert_with(|| error_text(body));
    }

    /// Whether it committed, now that the server is idle.
    pub fn has_committed(&self) -> bool {
        match self.kind {
            Kind::Direct => self.error.is_none(),
            Kind::Wrapped => self.own_commit.worked && self.error.is_none(),
            // COMMIT of a failed transaction is answered with ROLLBACK. An error inside a savepoint
            // that was rolled back to does not make it fail; then a later statement succeeded.
            Kind::Explicit => {
                let ends_well = ["COMMIT", "PREPARE TRANSACTION"];
                self.last_tag != "ROLLBACK"
                    && (self.error.is_none() || ends_well.iter().any(|tag| self.last_tag == tag))
            }
        }
    }

    pub fn into_ended(self) -> Ended {
        let shape = self.shape();
        let fate = match self.has_committed() {
            true => EndedAs::Committed,
            false => EndedAs::RolledBack { error: self.error },
        };
        Ended {
            shape,
            digest: self.digest.value(),
            digest_as_sent: self.digest_as_sent.value(),
            rows: self.digest.rows(),
            fate,
            hashes: self.statements,
            aside: self.aside,
            statements: self.texts,
            results: self.results,
            transcript: self.transcript,
        }
    }
}
