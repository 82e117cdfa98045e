//! Who must wait for whom when changed code runs on a recording.
//!
//! There is no ground truth to reproduce any more: a transaction may read, write, fail and succeed
//! otherwise than it did. What is kept is the order and the concurrency of those that are still
//! there (R³, section 4.2):
//!
//! 1. It never hangs.
//! 2. Transactions of different requests that committed originally and were concurrent are
//!    concurrent.
//! 3. A transaction sees all that it saw, if that commits; and nothing else that committed
//!    originally.
//!
//! Each transaction of the changed code stands for a recorded one, or was *added*. Which it is, is
//! for the caller to say. Added ones, and with them repeated attempts, are held by no rule. The
//! others obey:
//!
//! - **Snapshot**: rule A of [`Schedule`], also for those that aborted originally, and also to wait
//!   for those: a snapshot tells who had been rolled back by then as it tells who had committed. So
//!   rows that one held until it was rolled back are taken by those behind it when it is over.
//! - **Commit** of one that wrote originally: rule B.
//! - **Locks** other than of rows: rule C, in the order in which they were taken.
//! - **Losers last**: one that failed originally because of a conflict writes or locks only when
//!   all writers that had ended when it did are over. So what beat it then beats it now, unless the
//!   change took the conflict away. If it completes, it commits at once. A recorder may read the
//!   error before it reads that the winner committed: see [`seen_late`].
//! - **New writers**: one that only read originally and writes now commits when all snapshots are
//!   taken that had been taken before it ended. Which these are is not recorded. But whoever began
//!   later saw no less than anybody who took a snapshot before; so they are those that began before
//!   it ended and saw no more than the least that anybody saw who began after.
//! - **Moved writes**: if its writing has moved here from a later transaction of its request
//!   ([`Retroaction::absorb`]), it commits in the later one's place: a transaction that did not see
//!   those writes then does not see them now. What is still to come between the two cannot be
//!   waited for, so it commits before that.
//! - **Giving way**: one that waits in the database for a transaction which is complete and waits
//!   for its commit fails, if that commit is to come after it ([`Retroaction::must_yield`]).
//!
//! Every rule makes a step wait only for steps that came before it originally. That is why, as in
//! [`crate::schedule`], of all that has not happened whatever came first has nothing left to wait
//! for, and they cannot form a circle. What they can meet is a lock that was not waited for
//! originally; that is what giving way is for. `docs/design/0010-retroaction.md` has the proofs and
//! what a simulation found.

use std::collections::HashMap;

use crate::{Level, Levels, LockStep, Request, Schedule, Tx, schedule};

/// What became of a transaction originally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Committed,
    Aborted,
    /// It is not run again: its request is left out, or it failed and was tried again.
    Left,
}

/// A recorded transaction. Times are a recorder's, of whatever unit.
#[derive(Clone, Copy, Debug)]
pub struct Past {
    pub began: i64,
    pub ended: i64,
    pub origin: Origin,
    pub request: Option<Request>,
}

/// A transaction that waits in the database.
#[derive(Clone, Copy, Debug)]
pub struct Victim<'a> {
    /// The recorded transaction that it stands for; `None`: it was added.
    pub tx: Option<Tx>,
    /// When that was over; for one that was added, when its request was.
    pub ended: i64,
    /// What else of its request is yet to come.
    pub unclaimed: &'a [Tx],
}

/// How far a run has come. As long as it is the same, no answer has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    schedule: schedule::Progress,
    begun: usize,
    won: usize,
    /// Answers that changed for a single transaction.
    exceptions: u64,
}

/// The rules for changed code. Events are amortised O(1) and so are questions, except of new
/// writers, whose answer takes time in proportion to the transactions that ran beside them.
///
/// Nothing that a service does makes it panic: what comes twice, or after the end, is ignored.
#[derive(Clone, Debug)]
pub struct Retroaction {
    schedule: Schedule,
    /// In the order in which they began.
    past: Vec<Past>,
    /// By loser: writers that may have beaten it although they were seen to end after it.
    seen_late: HashMap<Tx, Vec<Tx>>,
    /// By position: the least level among those that began there or later; of a writer that took no
    /// snapshot, the last that lacks it. [`u32::MAX`] if there is none.
    least_level: Vec<u32>,
    /// Writers in the order in which they ended.
    writers: Vec<Tx>,
    /// All before this position in `past` have taken their snapshots, or never will.
    begun: usize,
    /// All before this position in `writers` are over.
    won: usize,
    roles: HashMap<Tx, Role>,
    /// There was a new writer. `begun` stands still at those that it does not wait for, so every
    /// snapshot and every end may change its answer.
    new_writers: bool,
    exceptions: u64,
}

/// What a transaction has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    NewWriter,
    /// Commits when all snapshots below the level are taken, and the other transaction is over with
    /// it.
    Absorbed {
        due: u32,
        later: Tx,
    },
    /// No rule holds it any more.
    Free,
}

impl Retroaction {
    /// `past` is in the order of beginning. What `levels` has beyond them are looks of later
    /// statements: they write nothing. Those that are left have no levels. One that aborted is
    /// visible from where its end is, if it had an id. `locks`: see [rule C](crate::locks).
    pub fn new(levels: Levels, past: Vec<Past>, locks: impl IntoIterator<Item = LockStep>) -> Self {
        let count = past.len();
        let mut least_level = vec![u32::MAX; count + 1];
        for at in (0..count).rev() {
            let tx = Tx(at as u32);
            let lacks_it = || Some(levels.visible_from(tx)?.0.saturating_sub(1));
            let level = levels.level_of(tx).map(|level| level.0);
            least_level[at] = level
                .or_else(lacks_it)
                .unwrap_or(u32::MAX)
                .min(least_level[at + 1]);
        }
        let mut writers: Vec<Tx> = levels
            .transactions()
            .filter(|&tx| levels.visible_from(tx).is_some())
            .filter(|tx| past[tx.index()].origin == Origin::Committed)
            .collect();
        writers.sort_by_key(|tx| past[tx.index()].ended);
        let seen_late = seen_late(&levels, &past, &least_level, &writers);
        let mut schedule = Schedule::new(levels, locks);
        for (tx, one) in (0..).map(Tx).zip(&past) {
            if one.origin == Origin::Left {
                schedule.abandon(tx);
            }
        }
        let mut new = Self {
            schedule,
            past,
            seen_late,
            least_level,
            writers,
            begun: 0,
            won: 0,
            roles: HashMap::new(),
            new_writers: false,
            exceptions: 0,
        };
        new.advance();
        new
    }

    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    pub fn progress(&self) -> Progress {
        Progress {
            schedule: self.schedule.progress(),
            begun: self.begun,
            won: self.won,
            exceptions: self.exceptions,
        }
    }

    /// Whether every transaction is over or was left.
    pub fn is_finished(&self) -> bool {
        self.schedule.is_finished()
    }

    fn past(&self, tx: Tx) -> &Past {
        &self.past[tx.index()]
    }

    /// Whether it has ended, or will not come.
    pub fn is_over(&self, tx: Tx) -> bool {
        self.schedule.has_ended(tx) || self.schedule.is_abandoned(tx)
    }

    /// Whether no rule holds it any more.
    pub fn is_free(&self, tx: Tx) -> bool {
        self.schedule.is_abandoned(tx) || self.roles.get(&tx) == Some(&Role::Free)
    }

    // ---- questions ----

    pub fn may_take_snapshot(&self, tx: Tx) -> bool {
        self.is_free(tx) || self.schedule.may_take_snapshot(tx)
    }

    /// Whether a transaction's later statement may look.
    pub fn may_look(&self, tx: Tx, look: Tx) -> bool {
        self.is_free(tx) || self.may_take_snapshot(look)
    }

    /// Whether one of its statements may take or give back a lock.
    pub fn may_lock(&self, tx: Tx, statement: u32) -> bool {
        self.is_free(tx) || self.schedule.may_lock(tx, statement)
    }

    /// Losers last: whether it may write or lock.
    pub fn may_act(&self, tx: Tx) -> bool {
        let own = self.past(tx);
        if self.is_free(tx) || own.origin != Origin::Aborted {
            return true;
        }
        let levels = self.schedule.levels();
        let had_ended = |writer: &&Tx| self.past(**writer).ended <= own.ended;
        let open = self.writers[self.won..].iter().take_while(had_ended);
        let seen_late = self.seen_late.get(&tx).into_iter().flatten();
        open.chain(seen_late)
            .all(|&writer| self.is_over(writer) || ended_before(levels, tx, writer))
    }

    pub fn may_commit(&self, tx: Tx) -> bool {
        match self.roles.get(&tx) {
            _ if self.is_free(tx) || self.past(tx).origin == Origin::Aborted => true,
            Some(&Role::Absorbed { due, .. }) => due <= self.schedule.snapshot_frontier().0,
            Some(Role::NewWriter) => self.seen_by_all_before(tx),
            Some(Role::Free) | None => self.schedule.may_commit(tx),
        }
    }

    /// All snapshots below this level are to be taken before the transaction commits.
    pub fn due(&self, tx: Tx) -> Level {
        let visible = self.schedule.levels().visible_from(tx);
        match (self.roles.get(&tx), visible) {
            (Some(&Role::Absorbed { due, .. }), _) => Level(due),
            (Some(Role::NewWriter), _) => Level(self.latest_level(tx).saturating_add(1)),
            (_, Some(visible)) => visible,
            (_, None) => Level(0),
        }
    }

    /// The latest level of a snapshot that was certainly taken before the transaction had ended.
    fn latest_level(&self, tx: Tx) -> u32 {
        self.least_level[self.began_by_the_end_of(tx)]
    }

    /// How many began before the transaction had ended.
    fn began_by_the_end_of(&self, tx: Tx) -> usize {
        let ended = self.past(tx).ended;
        self.past.partition_point(|one| one.began <= ended)
    }

    fn seen_by_all_before(&self, tx: Tx) -> bool {
        let latest = self.latest_level(tx);
        (self.begun..self.began_by_the_end_of(tx))
            .map(|at| Tx(at as u32))
            .filter(|&other| other != tx && self.is_to_take_snapshot(other))
            .all(|other| {
                let level = self.schedule.levels().level_of(other);
                level.is_some_and(|level| level.0 > latest)
            })
    }

    fn is_to_take_snapshot(&self, tx: Tx) -> bool {
        let has_level = self.schedule.levels().level_of(tx).is_some();
        has_level && !self.schedule.has_snapshot(tx) && !self.is_over(tx)
    }

    /// Whether somebody who waits in the database for `holder`, or for somebody who does, has to
    /// fail so that `holder` can commit.
    ///
    /// Who wrote originally gives way to those that became visible later. So does whoever has
    /// something yet to come in its request that has to be before the holder's commit; and whoever
    /// was over before the holder was, since what the holder waits for may be sent only when the
    /// victim's request is over.
    pub fn must_yield(&self, victim: Victim<'_>, holder: Tx) -> bool {
        let levels = self.schedule.levels();
        let due = self.due(holder);
        let is_before = |tx: &Tx| {
            let first = levels.level_of(*tx).or(levels.visible_from(*tx));
            first.is_some_and(|level| level < due)
        };
        let in_place_of = match self.roles.get(&holder) {
            Some(&Role::Absorbed { later, .. }) => later,
            _ => holder,
        };
        victim.unclaimed.iter().any(is_before)
            || match victim.tx.and_then(|tx| levels.visible_from(tx)) {
                Some(visible) => visible < due,
                None => victim.ended <= self.past(in_place_of).ended,
            }
    }

    // ---- events ----

    pub fn took_snapshot(&mut self, tx: Tx) {
        if !self.schedule.has_snapshot(tx) && !self.is_over(tx) {
            self.schedule.took_snapshot(tx);
            self.exceptions += u64::from(self.new_writers);
            self.advance();
        }
    }

    /// A later statement has looked, or will not: it is not waited for any longer.
    pub fn looked(&mut self, look: Tx) {
        self.schedule.abandon(look);
    }

    /// It has a lock, or has given it back.
    pub fn locked(&mut self, tx: Tx, statement: u32) {
        self.schedule.locked(tx, statement);
    }

    pub fn committed(&mut self, tx: Tx) {
        if !self.is_over(tx) {
            self.schedule.committed(tx);
        }
        self.end(tx);
    }

    /// It was rolled back.
    pub fn failed(&mut self, tx: Tx) {
        self.schedule.abandon(tx);
        self.end(tx);
    }

    /// It will not come: its code is gone, or its request is over. If it comes all the same, no
    /// rule holds it.
    pub fn leave(&mut self, tx: Tx) {
        self.failed(tx);
    }

    fn end(&mut self, tx: Tx) {
        // A loser may have waited for just this one.
        self.exceptions += u64::from(self.new_writers || !self.seen_late.is_empty());
        if let Some(&Role::Absorbed { later, .. }) = self.roles.get(&tx) {
            self.schedule.abandon(later);
        }
        self.advance();
    }

    /// A transaction that only read originally has written, and is about to commit.
    pub fn became_writer(&mut self, tx: Tx) {
        self.new_writers = true;
        self.set_role(tx, Role::NewWriter);
    }

    /// The same, and what it has written was written by `later` originally, which will not come.
    /// `rest`: what else of its request is yet to come.
    pub fn absorb(&mut self, tx: Tx, later: Tx, rest: &[Tx]) {
        let levels = self.schedule.levels();
        let ended = self.past(later).ended;
        let between = rest
            .iter()
            .filter(|&&one| one != later && self.past(one).began <= ended)
            .filter_map(|&one| levels.level_of(one));
        let visible = levels.visible_from(later).map_or(u32::MAX, |level| level.0);
        let due = between.map(|level| level.0).fold(visible, u32::min);
        if self.is_over(tx) {
            self.failed(later);
            return;
        }
        let due = if self.is_free(tx) { 0 } else { due };
        self.roles.insert(tx, Role::Absorbed { due, later });
        self.exceptions += 1;
        self.took_snapshot(later);
    }

    /// From here on no rule holds the transaction: nothing moves, and one has to be first.
    pub fn let_go(&mut self, tx: Tx) {
        let role = match self.roles.get(&tx) {
            // The later one is still over with it.
            Some(&Role::Absorbed { later, .. }) => Role::Absorbed { due: 0, later },
            _ => Role::Free,
        };
        self.set_role(tx, role);
    }

    fn set_role(&mut self, tx: Tx, role: Role) {
        if !self.is_over(tx) && !self.is_free(tx) {
            self.roles.insert(tx, role);
            self.exceptions += 1;
        }
    }

    fn advance(&mut self) {
        while self.begun < self.past.len() && !self.is_to_take_snapshot(Tx(self.begun as u32)) {
            self.begun += 1;
        }
        while self
            .writers
            .get(self.won)
            .is_some_and(|&tx| self.is_over(tx))
        {
            self.won += 1;
        }
    }
}

/// Whether somebody's snapshot shows that a transaction was over before a writer had committed. A
/// recorder may have read the two in the other order.
fn ended_before(levels: &Levels, tx: Tx, writer: Tx) -> bool {
    let own = levels.visible_from(tx);
    own.is_some_and(|own| Some(own) < levels.visible_from(writer))
}

/// By loser: the writers that may have committed before it failed although a recorder saw them end
/// afterwards.
///
/// Postgres wakes who waits for a transaction before it tells that transaction's client, so a
/// recorder that is short of CPU reads the loser's error first. A writer is among these if it
/// had begun when the loser ended, the loser did not see it, and everyone who began afterwards saw
/// it: then nothing recorded speaks against its having committed first, and waiting for it is
/// waiting for a step that may have come before.
fn seen_late(
    levels: &Levels,
    past: &[Past],
    least_level: &[u32],
    writers: &[Tx],
) -> HashMap<Tx, Vec<Tx>> {
    let of = |tx: Tx| &past[tx.index()];
    let mut losers: Vec<Tx> = (0..past.len() as u32)
        .map(Tx)
        .filter(|&tx| of(tx).origin == Origin::Aborted)
        .collect();
    losers.sort_by_key(|&tx| of(tx).ended);
    let mut to_begin: Vec<Tx> = writers.to_vec();
    to_begin.sort_by_key(|&tx| std::cmp::Reverse(of(tx).began));
    let mut running: Vec<Tx> = Vec::new();
    let mut seen_late = HashMap::new();
    for loser in losers {
        let failed = of(loser).ended;
        while let Some(writer) = to_begin.pop_if(|writer| of(*writer).began < failed) {
            running.push(writer);
        }
        running.retain(|&writer| of(writer).ended > failed);
        let afterwards = past.partition_point(|one| one.began < failed);
        let saw = levels.level_of(loser).map(|level| level.0);
        let may_have_won = |writer: &Tx| {
            let visible = levels.visible_from(*writer).map(|level| level.0);
            visible > saw && visible.is_some_and(|visible| visible <= least_level[afterwards])
        };
        let of_loser: Vec<Tx> = running.iter().copied().filter(may_have_won).collect();
        if !of_loser.is_empty() {
            seen_late.insert(loser, of_loser);
        }
    }
    seen_late
}
