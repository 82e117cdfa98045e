//! Which step must wait, for recorded and for changed code. The rules themselves are
//! `hindcast-order`'s.

use std::collections::HashSet;

use hindcast_order::levels::Step;
use hindcast_order::retroaction::{self, Retroaction};
use hindcast_order::{Losers, Lost, Progress, Schedule, Tx, losers};

use crate::inserts::{Insert, Inserts, Role};
use crate::recording::Recording;
use crate::transaction::Ask;

#[derive(Debug)]
pub struct Rules {
    order: Order,
    inserts: Inserts,
    losers: Losers,
}

#[derive(Debug)]
enum Order {
    Recorded(Box<Recorded>),
    Changed(Box<Retroaction>),
}

/// The schedule of a faithful replay.
#[derive(Debug)]
struct Recorded {
    schedule: Schedule,
    /// Set in sequential mode: the one order in which steps are taken.
    sequence: Option<Sequence>,
}

#[derive(Debug)]
struct Sequence {
    steps: Vec<Step>,
    next: usize,
    /// Transactions that did all but their commit before it was their turn, as those without a
    /// snapshot may.
    ran_early: HashSet<Tx>,
}

/// As long as this has not changed, no answer of [`Rules::may`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frontier {
    Recorded(Progress, usize, u64),
    Changed(retroaction::Progress, u64),
}

impl Rules {
    /// One after the other, transactions are not interrupted: then looks are of no interest.
    pub fn recorded(mut schedule: Schedule, recording: &Recording, sequential: bool) -> Self {
        let looks = recording.looks();
        if sequential {
            looks
                .scheduled_all()
                .for_each(|look| schedule.abandon(look));
        }
        let is_look = |step: &Step| {
            let (Step::Run(tx) | Step::Commit(tx)) = *step;
            looks.owner(tx) != tx
        };
        let steps = |schedule: &Schedule| {
            let steps = schedule.levels().sequential_order();
            steps.into_iter().filter(|step| !is_look(step)).collect()
        };
        let sequence = sequential.then(|| Sequence {
            steps: steps(&schedule),
            next: 0,
            ran_early: HashSet::new(),
        });
        Self {
            inserts: inserts(recording, &schedule),
            losers: losers(recording, &schedule),
            order: Order::Recorded(Box::new(Recorded { schedule, sequence })),
        }
    }

    pub fn of_changed(retroaction: Retroaction, recording: &Recording) -> Self {
        Self {
            inserts: inserts(recording, retroaction.schedule()),
            losers: losers(recording, retroaction.schedule()),
            order: Order::Changed(Box::new(retroaction)),
        }
    }

    pub fn schedule(&self) -> &Schedule {
        match &self.order {
            Order::Recorded(recorded) => &recorded.schedule,
            Order::Changed(changed) => changed.schedule(),
        }
    }

    pub fn changed(&mut self) -> Option<&mut Retroaction> {
        match &mut self.order {
            Order::Recorded(_) => None,
            Order::Changed(changed) => Some(changed),
        }
    }

    pub fn may(&self, ask: Ask, recording: &Recording) -> bool {
        if let Ask::Change(tx, statement) = ask {
            return self.may_change(tx, statement);
        }
        match &self.order {
            Order::Recorded(recorded) => recorded.may(ask, &self.inserts, recording),
            Order::Changed(changed) => may_if_changed(changed, ask, &self.inserts, recording),
        }
    }

    /// Whether all are over that found a key taken before this statement changes rows of the table.
    fn may_change(&self, tx: Tx, statement: u32) -> bool {
        let is_free = match &self.order {
            Order::Recorded(recorded) => {
                recorded.sequence.is_some() || recorded.schedule.is_abandoned(tx)
            }
            Order::Changed(changed) => changed.is_free(tx),
        };
        is_free || self.losers.may_change(tx, statement)
    }

    /// This statement is about to change rows. Whether it waits for one that waits for commits
    /// which it does not see.
    pub fn asks_to_change(&mut self, tx: Tx, statement: u32, recording: &Recording) -> bool {
        let (levels, looks) = (self.schedule().levels(), recording.looks());
        let mut changes = recording.changes(tx).iter();
        let Some(change) = changes.find(|one| one.statement == statement) else {
            return false;
        };
        let level = levels.level_of(looks.at(tx, statement));
        let until = losers::latest(levels, tx, looks.after(tx, statement));
        let (Some(level), Some(until)) = (level, until) else {
            return false;
        };
        let at = (tx, statement);
        self.losers
            .asks(at, &change.tables, level, until.max(level))
    }

    /// Whether this is to take rows that nobody has locked.
    pub fn takes_rows(&self, ask: Ask) -> bool {
        let role = |(tx, statement)| self.inserts.role(tx, statement);
        let insert = match ask {
            Ask::Insert(tx, statement) => Some((tx, statement)),
            _ => None,
        };
        insert.and_then(role) == Some(Role::Takes)
    }

    /// Whether a transaction may commit as soon as its statement has looked.
    pub fn commits_freely(&self, tx: Tx) -> bool {
        match &self.order {
            Order::Recorded(recorded) => {
                let schedule = &recorded.schedule;
                let may = schedule.is_abandoned(tx) || schedule.may_commit_once_seen(tx);
                may && recorded.sequence.is_none()
            }
            Order::Changed(_) => false,
        }
    }

    pub fn frontier(&self) -> Frontier {
        let inserts = self.inserts.count() + self.losers.count();
        match &self.order {
            Order::Recorded(recorded) => {
                let next = recorded
                    .sequence
                    .as_ref()
                    .map_or(0, |sequence| sequence.next);
                Frontier::Recorded(recorded.schedule.progress(), next, inserts)
            }
            Order::Changed(changed) => Frontier::Changed(changed.progress(), inserts),
        }
    }

    pub fn is_finished(&self) -> bool {
        match &self.order {
            Order::Recorded(recorded) => recorded.schedule.is_finished(),
            Order::Changed(changed) => changed.is_finished(),
        }
    }

    /// Whether this was news.
    pub fn took_snapshot(&mut self, tx: Tx) -> bool {
        let schedule = self.schedule();
        if schedule.has_snapshot(tx) || schedule.has_ended(tx) {
            return false;
        }
        let counts = !schedule.is_abandoned(tx);
        match &mut self.order {
            Order::Recorded(recorded) => recorded.schedule.took_snapshot(tx),
            Order::Changed(changed) => changed.took_snapshot(tx),
        }
        counts
    }

    /// The statements of a look are through.
    pub fn looked(&mut self, tx: Tx, nth: u32, recording: &Recording) -> bool {
        let look = recording.looks().scheduled(tx, nth as usize);
        let schedule = self.schedule();
        let news = !schedule.has_ended(look) && !schedule.is_abandoned(look);
        match &mut self.order {
            Order::Recorded(recorded) if news => recorded.schedule.committed(look),
            Order::Changed(changed) => changed.looked(look),
            Order::Recorded(_) => {}
        }
        news
    }

    /// What the transaction has not looked at by now, it will not.
    fn stop_looking(&mut self, tx: Tx, recording: &Recording) {
        for look in recording.looks().all(tx) {
            match &mut self.order {
                Order::Recorded(recorded) => recorded.schedule.abandon(look),
                Order::Changed(changed) => changed.looked(look),
            }
        }
    }

    /// How many lock steps that was.
    pub fn locked(&mut self, tx: Tx, statement: u32) -> u64 {
        self.inserts.done(tx, statement);
        self.losers.done(tx, statement);
        let before = self.schedule().progress().lock_steps;
        match &mut self.order {
            Order::Recorded(recorded) => recorded.schedule.locked(tx, statement),
            Order::Changed(changed) => changed.locked(tx, statement),
        }
        self.schedule().progress().lock_steps - before
    }

    pub fn committed(&mut self, tx: Tx, recording: &Recording) {
        self.stop_looking(tx, recording);
        match &mut self.order {
            Order::Recorded(recorded) => {
                if !recorded.schedule.has_ended(tx) {
                    recorded.schedule.committed(tx);
                }
                recorded.settle(tx);
            }
            Order::Changed(changed) => changed.committed(tx),
        }
        self.inserts.over(tx);
        self.losers.over(tx);
    }

    pub fn failed(&mut self, tx: Tx, recording: &Recording) {
        self.stop_looking(tx, recording);
        match &mut self.order {
            Order::Recorded(recorded) => recorded.abandon(tx),
            Order::Changed(changed) => changed.failed(tx),
        }
        self.inserts.over(tx);
        self.losers.over(tx);
    }

    /// The transaction will not come.
    pub fn leave(&mut self, tx: Tx, recording: &Recording) {
        self.stop_looking(tx, recording);
        match &mut self.order {
            Order::Recorded(recorded) => recorded.abandon(tx),
            Order::Changed(changed) => changed.leave(tx),
        }
        self.inserts.over(tx);
        self.losers.over(tx);
    }

    /// The transaction has done all but its commit, or may wait for a commit now. How many steps
    /// that was in sequential mode.
    pub fn ran(&mut self, tx: Tx, recording: &Recording) -> u64 {
        match &mut self.order {
            Order::Recorded(recorded) => recorded.advance(Step::Run(tx)),
            Order::Changed(_) => {
                self.stop_looking(tx, recording);
                0
            }
        }
    }
}

fn may_if_changed(
    retroaction: &Retroaction,
    ask: Ask,
    inserts: &Inserts,
    recording: &Recording,
) -> bool {
    match ask {
        Ask::Snapshot(tx) | Ask::Ghost(tx) => retroaction.may_take_snapshot(tx),
        Ask::Act(tx) => retroaction.may_act(tx),
        Ask::Commit(tx) => retroaction.may_commit(tx),
        Ask::Look(tx, _) => retroaction.may_look(tx, recording.scheduled(ask)),
        Ask::Insert(tx, statement) => {
            may_insert(tx, statement, inserts, retroaction.schedule(), recording)
        }
        Ask::Lock(tx, statement) => retroaction.may_lock(tx, statement),
        Ask::Change(..) | Ask::Answer(_) | Ask::Given(_) => true,
        Ask::Stop(_) => false,
    }
}

/// Those of transactions that are waited for.
fn inserts(recording: &Recording, schedule: &Schedule) -> Inserts {
    let is_left = |insert: &&Insert| !schedule.is_abandoned(insert.tx);
    let inserts = recording.inserts().iter().filter(is_left).copied();
    Inserts::new(inserts).with_commits(schedule.levels())
}

fn losers(recording: &Recording, schedule: &Schedule) -> Losers {
    let is_left = |one: &&Lost| !schedule.is_abandoned(one.tx);
    let lost = recording.lost().iter().filter(is_left);
    Losers::new(lost.copied(), schedule.levels())
}

/// Whether nobody is waited for who inserted before this statement.
///
/// Another insert that can only come when this transaction has committed, or has looked, which it
/// does with its own insert, is not waited for: each of the two would wait for the other. It drew
/// first, and takes a later snapshot: it was slow between the two, or what it saw is told by its
/// end. One that waited for a row had it as soon as who had it before was over, and took no
/// snapshot then: only if somebody committed in between had it not got the row when this looked.
fn may_insert(
    tx: Tx,
    statement: u32,
    inserts: &Inserts,
    schedule: &Schedule,
    recording: &Recording,
) -> bool {
    let levels = schedule.levels();
    let own = recording.looks().at(tx, statement);
    // Where it is not known what each statement saw, a statement of ours looks before.
    let looks_itself = recording.transaction(tx).knows_statements;
    let has_looked = schedule.has_snapshot(own) || schedule.has_ended(own);
    let comes_behind = |other: Insert| {
        let others = levels.level_of(recording.looks().at(other.tx, other.statement));
        let from = levels.visible_from(tx);
        let sees = others
            .zip(from)
            .is_some_and(|(others, from)| others >= from);
        let own = levels.level_of(own);
        let is_later = others
            .zip(own)
            .is_some_and(|(others, own)| match other.role {
                Role::LaysLate => inserts.any_between(own, others),
                Role::Lays | Role::Takes => others > own,
            });
        sees || is_later && looks_itself && !has_looked
    };
    inserts.may(tx, statement, comes_behind)
}

impl Recorded {
    fn may(&self, ask: Ask, inserts: &Inserts, recording: &Recording) -> bool {
        if let Ask::Ghost(tx) = ask {
            return self.schedule.may_take_snapshot(tx);
        }
        if self.schedule.is_abandoned(ask.tx()) {
            return true;
        }
        let permitted = match ask {
            Ask::Snapshot(tx) | Ask::Ghost(tx) => self.schedule.may_take_snapshot(tx),
            Ask::Look(..) => {
                let look = recording.scheduled(ask);
                self.schedule.is_abandoned(look) || self.schedule.may_take_snapshot(look)
            }
            Ask::Lock(tx, statement) => self.schedule.may_lock(tx, statement),
            Ask::Insert(tx, statement) => {
                let schedule = &self.schedule;
                self.sequence.is_some() || may_insert(tx, statement, inserts, schedule, recording)
            }
            Ask::Commit(tx) => self.schedule.may_commit(tx),
            Ask::Act(_) | Ask::Change(..) | Ask::Answer(_) | Ask::Given(_) => true,
            Ask::Stop(_) => false,
        };
        let is_writer = |tx| self.schedule.levels().visible_from(tx).is_some();
        permitted
            && self.sequence.as_ref().is_none_or(|sequence| {
                match (ask, sequence.steps.get(sequence.next)) {
                    (Ask::Snapshot(tx), Some(Step::Run(next))) => {
                        tx == *next || !recording.transaction(tx).has_snapshot
                    }
                    (Ask::Snapshot(tx), _) => !recording.transaction(tx).has_snapshot,
                    (Ask::Commit(tx), _) => !is_writer(tx) || self.is_turn(sequence, tx),
                    (
                        Ask::Look(..)
                        | Ask::Ghost(_)
                        | Ask::Lock(..)
                        | Ask::Insert(..)
                        | Ask::Change(..)
                        | Ask::Act(_)
                        | Ask::Answer(_)
                        | Ask::Given(_)
                        | Ask::Stop(_),
                        _,
                    ) => true,
                }
            })
    }

    /// Whether nobody looks before this commit. Commits between two looks are in no order: one of
    /// them may wait in the database for a lock that another has until its end.
    fn is_turn(&self, sequence: &Sequence, tx: Tx) -> bool {
        let looks = |other: Tx| self.schedule.levels().level_of(other).is_some();
        let next = sequence.steps[sequence.next..].iter();
        let mut up_to_look = next.take_while(|step| match step {
            Step::Run(other) => !looks(*other),
            Step::Commit(_) => true,
        });
        up_to_look.any(|step| *step == Step::Commit(tx))
    }

    fn abandon(&mut self, tx: Tx) {
        self.schedule.abandon(tx);
        self.settle(tx);
    }

    fn settle(&mut self, tx: Tx) {
        self.advance(Step::Run(tx));
        self.advance(Step::Commit(tx));
        if let Some(sequence) = &mut self.sequence {
            sequence.ran_early.remove(&tx);
        }
    }

    /// Passes over `done`, and over everything behind it that was abandoned meanwhile.
    fn advance(&mut self, done: Step) -> u64 {
        let Some(sequence) = &mut self.sequence else {
            return 0;
        };
        let before = sequence.next;
        match done {
            _ if sequence.steps.get(sequence.next) == Some(&done) => sequence.next += 1,
            Step::Run(tx) if !self.schedule.has_ended(tx) => {
                sequence.ran_early.insert(tx);
            }
            Step::Run(_) | Step::Commit(_) => {}
        }
        while let Some(step) = sequence.steps.get(sequence.next) {
            let (Step::Run(tx) | Step::Commit(tx)) = *step;
            let settled = self.schedule.is_abandoned(tx) || self.schedule.has_ended(tx);
            if !settled && (*step != Step::Run(tx) || !sequence.ran_early.remove(&tx)) {
                break;
            }
            sequence.next += 1;
        }
        u64::from(sequence.next > before)
    }
}
