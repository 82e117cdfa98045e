//! The coordinator's part that is about changed code: which transaction stands for which, which one
//! gives way, and what differs.

use hindcast_order::retroaction::Victim;
use hindcast_order::{Request, Tx};

use super::Coordinator;
use crate::changes::{Changes, Difference, DifferenceKind};
use crate::recording::Fate;
use crate::shapes;
use crate::transaction::{Ask, Claim, Ended, EndedAs, Opening};

impl Coordinator {
    /// Changed code: by the first statement, else by position, unless it is known to be one that is
    /// added, or the recorded one that begins like it was taken by another.
    pub(super) fn claim_changed(&mut self, request: Request, opening: Opening<'_>) -> Claim {
        let reads = opening.reads_alone && self.shapes.read(opening.hash).is_some();
        let changes = self.changes.as_mut().expect("the code is changed");
        if changes.is_retry(request, opening.hash) {
            return Claim::Added(changes.add(request, opening.hash, true));
        }
        let anyhow = Opening {
            begun: false,
            ..opening
        };
        let found = self.matching(request, anyhow);
        let found = found.filter(|&tx| !(reads && self.asks_again(request, tx, opening)));
        let opening = opening.hash;
        let found = found.or_else(|| self.in_place(request, opening, reads));
        let Some(tx) = found else {
            let changes = self.changes.as_mut().expect("the code is changed");
            return Claim::Added(changes.add(request, opening, false));
        };
        self.steps += 1;
        // What came before it in the request was left out. Nothing may wait for it.
        let late = |&one: &Tx| {
            let is_apart = self.may_begin_behind(tx) || self.is_handed_over(one);
            let comes = is_apart || self.only_reads(one) && self.still_comes(one, tx);
            comes && !self.comes_unnoticed(one)
        };
        let (late, passed): (Vec<Tx>, Vec<Tx>) = self.over_before(request, tx).partition(late);
        if !late.is_empty() {
            self.await_late(request, tx);
        }
        for earlier in passed {
            self.rules.leave(earlier, &self.recording);
        }
        self.set_claimed(tx);
        let recorded = self.opening(tx);
        let changes = self.changes.as_mut().expect("the code is changed");
        changes.take(request, tx, opening, recorded);
        Claim::Run(tx)
    }

    /// The next recorded transaction of the request, if one that begins like none of them may stand
    /// for it. A read that another request did takes the place of no other transaction. Nor does
    /// one take the place of what a connection did, which another may have opened now.
    fn in_place(&mut self, request: Request, opening: u64, reads: bool) -> Option<Tx> {
        let changes = self.changes.as_mut().expect("the code is changed");
        let displaced = changes.was_displaced(request, opening);
        let added = displaced || reads || changes.is_known_as_added(opening);
        let mut unclaimed = self.unclaimed(request);
        unclaimed.find(|&tx| !added && !self.comes_unnoticed(tx))
    }

    /// A transaction of changed code has written, and is about to commit.
    pub fn wrote(&mut self, claim: Claim, ids: &[u64], statements: &[String]) {
        let request = self.request_of(claim);
        let Some(changes) = &mut self.changes else {
            return;
        };
        changes.wrote(claim, request, ids, statements);
        let Claim::Run(tx) = claim else { return };
        let recorded = self.recording.transaction(tx);
        if recorded.wrote || recorded.fate == Fate::Aborted {
            return;
        }
        // It only read originally. If a later transaction of its request wrote the same table, the
        // writing has moved here.
        let targets = shapes::targets(statements);
        let moved = request.and_then(|request| {
            self.unclaimed(request).find(|&later| {
                let later = self.recording.transaction(later);
                let its = self.shapes.targets.get(&later.shape);
                later.wrote
                    && later.fate != Fate::Aborted
                    && its.is_some_and(|its| its.iter().any(|table| targets.contains(table)))
            })
        });
        self.steps += 1;
        let mut rest: Vec<Tx> = match request {
            Some(request) => self
                .unclaimed(request)
                .filter(|&one| Some(one) != moved)
                .collect(),
            None => Vec::new(),
        };
        // What is between the two has moved as well if its statements have.
        let also_moved: Vec<Tx> = match moved {
            Some(moved) => rest
                .extract_if(.., |one| {
                    let shape = self.recording.transaction(*one).shape;
                    *one < moved && self.shapes.is_within(shape, statements)
                })
                .collect(),
            None => Vec::new(),
        };
        for one in also_moved {
            self.rules.leave(one, &self.recording);
            self.set_claimed(one);
            self.note_deleted(one, Some(tx));
        }
        let Some(rules) = self.rules.changed() else {
            return;
        };
        match moved {
            Some(later) => {
                rules.absorb(tx, later, &rest);
                self.set_claimed(later);
                self.note_deleted(later, Some(tx));
            }
            None => rules.became_writer(tx),
        }
    }

    /// Whether a transaction that waits in the database for one which is complete and waits for its
    /// commit has to give way, because that commit has to come after it.
    ///
    /// One that repeats a failed one does not: it would meet the same holder again and again. Its
    /// request comes after the holder now, and the rest of the request, which cannot come before,
    /// is not waited for any more.
    pub fn must_yield(&mut self, victim: Claim, holder: Tx) -> bool {
        let rest: Vec<Tx> = match self.request_of(victim) {
            Some(request) => self.unclaimed(request).collect(),
            None => Vec::new(),
        };
        let repeats = |changes: &Changes| match victim {
            Claim::Added(id) => changes.repeats(id),
            _ => false,
        };
        if self.changes.as_ref().is_some_and(repeats) {
            for tx in rest {
                self.steps += u64::from(self.rules.took_snapshot(tx));
            }
            return false;
        }
        let tx = match victim {
            Claim::Run(tx) => Some(tx),
            _ => None,
        };
        let ended = match (tx, self.request_of(victim)) {
            (Some(tx), _) => self.recording.transaction(tx).ended,
            (None, Some(request)) => self.recording.request(request).ended,
            (None, None) => 0,
        };
        let victim = Victim {
            tx,
            ended,
            unclaimed: &rest,
        };
        self.rules
            .changed()
            .is_some_and(|rules| rules.must_yield(victim, holder))
    }

    /// Lets a transaction commit before one that waits for it and was to come first, if that goes
    /// on when it has waited: READ COMMITTED fails for no order.
    pub fn let_before(&mut self, holder: Tx, waiting: Claim) -> bool {
        let own = |request| self.recording.own(request).first().copied();
        let tx = match waiting {
            Claim::Run(tx) => Some(tx),
            _ => self.request_of(waiting).and_then(own),
        };
        let goes_on = tx.is_some_and(|tx| {
            let recorded = self.recording.transaction(tx);
            recorded.knows_statements && recorded.is_read_committed()
        });
        if goes_on {
            self.let_out_of_order(holder);
        }
        goes_on
    }

    /// Whether this is held until a transaction is over.
    pub fn is_held_for(&self, ask: Ask, tx: Tx) -> bool {
        let levels = self.rules.schedule().levels();
        let level = levels.level_of(self.recording.scheduled(ask));
        let over = levels.visible_from(tx);
        matches!(ask, Ask::Snapshot(_) | Ask::Look(..))
            && level.zip(over).is_some_and(|(level, over)| level >= over)
    }

    fn let_out_of_order(&mut self, tx: Tx) {
        if let (Some(rules), Some(changes)) = (self.rules.changed(), &mut self.changes) {
            rules.let_go(tx);
            changes.counts.let_go += 1;
        }
    }

    pub fn note_yielded(&mut self) {
        if let Some(changes) = &mut self.changes {
            changes.counts.yielded += 1;
        }
    }

    /// Nothing moves: lets the earliest transaction that waits go on, out of order. A transaction
    /// that may never come goes first: its request was answered, or has gone on without it.
    ///
    /// A run that is not worth its end is not helped to it.
    pub fn let_go(&mut self, waiting: &[Ask]) {
        if self.changes.as_mut().is_some_and(Changes::give_up) {
            return;
        }
        let behind: Vec<Tx> = (0..self.recording.requests.len() as u32)
            .map(Request)
            .filter(|request| !self.in_flight.contains(&request.0))
            .filter(|&request| self.ended[request.index()])
            .flat_map(|request| self.unclaimed(request).collect::<Vec<_>>())
            .collect();
        if !behind.is_empty() {
            for tx in behind {
                self.delete(tx);
            }
            return;
        }
        if self.pass_over_late() {
            return;
        }
        let Some(earliest) = waiting.iter().map(|ask| ask.tx()).min() else {
            return;
        };
        // That is no step of the recording: whether it helps is seen by those that follow.
        self.let_out_of_order(earliest);
    }

    /// The session went away. Some services roll back what has only read by closing its connection:
    /// then it ended originally without a commit and without an error. And pools close one whose
    /// statement has failed.
    pub(super) fn lost_changed(&mut self, claim: Claim, ended: Ended) {
        let rolls_back = |tx: Tx| {
            let recorded = self.recording.transaction(tx);
            recorded.fate == Fate::Aborted && self.recording.error(tx).is_none()
        };
        let had_failed = matches!(ended.fate, EndedAs::RolledBack { error: Some(_) });
        let ended = match claim {
            Claim::Run(tx) if had_failed || rolls_back(tx) => ended,
            _ => ended.lost(),
        };
        self.ended(claim, &ended);
    }

    pub(super) fn compare_changed(&mut self, tx: Tx, ended: &Ended) {
        let recorded = self.recording.transaction(tx);
        let request = recorded.request.map(|(request, _)| request);
        let compared = !self.stopped && request.is_none_or(|request| self.compares(request));
        // Asking for another isolation is no other statement: it shows in what comes of it.
        let same = ended.shape == recorded.shape
            || self.shapes.says_the_same(recorded.shape, &ended.statements);
        let isolation = same && ended.shape != recorded.shape;
        let before = match recorded.fate {
            Fate::Aborted => self.recording.error(tx).map(str::to_owned),
            _ => None,
        };
        // Without an error it was rolled back because the service wanted it so, as some pools end
        // reads.
        let had_failed = before.is_some();
        let same = same
            || had_failed
                && self
                    .shapes
                    .says_the_same_so_far(recorded.shape, &ended.statements);
        let kind = match &ended.fate {
            EndedAs::Committed if had_failed => Some(DifferenceKind::NewlySucceeding { before }),
            EndedAs::RolledBack { error: Some(error) } if !had_failed => {
                Some(DifferenceKind::NewlyFailing {
                    error: error.clone(),
                })
            }
            EndedAs::RolledBack { error } if sqlstate(&before) != sqlstate(error) => {
                Some(DifferenceKind::FailsOtherwise {
                    before,
                    after: error.clone(),
                })
            }
            EndedAs::RolledBack { error: None } if recorded.fate != Fate::Aborted && same => {
                Some(DifferenceKind::NewlyFailing {
                    error: "rolled back".to_owned(),
                })
            }
            _ if !same => Some(DifferenceKind::Statements { shape: ended.shape }),
            // Not every driver reads all rows that came before an error.
            _ if !had_failed && !ended.is_answered(recorded.digest) => {
                Some(DifferenceKind::Results { rows: ended.rows })
            }
            _ => None,
        };
        let changes = self.changes.as_mut().expect("the code is changed");
        changes.over(Claim::Run(tx), request, ended);
        let results = matches!(kind, Some(DifferenceKind::Results { .. }));
        if !compared || results && self.leave_open(tx, ended) {
            return;
        }
        let changes = self.changes.as_mut().expect("the code is changed");
        let counts = &mut changes.counts;
        counts.isolation += u64::from(isolation);
        // The others are counted, and ghosts are not among those that are to come.
        if kind.is_some() || request.is_some() {
            *counts.of(kind.as_ref(), had_failed) += 1;
        }
        if let Some(kind) = kind {
            changes.differing.push(Difference {
                tx: Some(tx),
                request,
                kind,
            });
        }
    }

    /// A recorded transaction of changed code will not come.
    pub(super) fn delete(&mut self, tx: Tx) {
        self.steps += 1;
        self.set_claimed(tx);
        self.counts.transactions_done += 1;
        self.rules.leave(tx, &self.recording);
        self.note_deleted(tx, None);
    }

    fn note_deleted(&mut self, tx: Tx, into: Option<Tx>) {
        let request = self.request_of(Claim::Run(tx));
        let compared = !self.stopped && request.is_some_and(|request| self.compares(request));
        if let Some(changes) = self.changes.as_mut().filter(|_| compared) {
            changes.counts.deleted += 1;
            changes.differing.push(Difference {
                tx: Some(tx),
                request,
                kind: DifferenceKind::Deleted { into },
            });
        }
    }

    /// What changed code did otherwise.
    pub fn changes(&self) -> Option<&Changes> {
        self.changes.as_ref()
    }

    pub fn take_changes(&mut self) -> Option<Changes> {
        self.settle_changes();
        self.changes.as_mut().map(std::mem::take)
    }
}

/// `40001` of `could not serialize access … (40001)`.
fn sqlstate(error: &Option<String>) -> Option<&str> {
    error
        .as_deref()?
        .strip_suffix(')')?
        .rsplit_once('(')
        .map(|(_, state)| state)
}
