//! The rules as questions and facts: may it take its snapshot, lock, commit? It did.
//!
//! Two counters per level make both A and B one comparison:
//!
//! ```text
//!   level                         0    1    2    3    4
//!   snapshots not yet taken       0    0    2    5    1    first not zero: snapshot frontier = 2
//!   writers not yet committed     0    0    0    1    3    first not zero: commit frontier   = 3
//! ```
//!
//! - **A**: T may take its snapshot if and only if `level(T) <` commit frontier.
//! - **B**: w may commit if and only if `v(w) ≤` snapshot frontier.
//!
//! Both frontiers only grow. A caller with waiters keeps those for rule A by level and those for
//! rule B by `v`, watches [`Schedule::progress`], and wakes whom a frontier has passed; nobody ever
//! has to be asked twice in vain. Rule C's queues grow a counter of their own.
//!
//! A schedule is told facts and does not police them: a caller that lets a transaction through
//! against the rules (because its user asked for it) may report that as it happened.

use std::fmt;

use crate::locks::LockQueues;
use crate::{Level, Levels, LockStep, StepAt, Tx};

/// Which transactions may do what now. Events are amortised O(1), questions O(1), except that
/// transactions with lock steps pay a logarithm of their number.
#[derive(Clone, Debug)]
pub struct Schedule {
    levels: Levels,
    state: Vec<State>,
    locks: LockQueues,
    /// By level: transactions that have not taken their snapshot.
    unseen: Vec<u32>,
    /// By level up to and including one past the last: writers visible from there that have not
    /// committed.
    uncommitted: Vec<u32>,
    snapshot_frontier: u32,
    commit_frontier: u32,
    ended: u32,
}

/// What has become of a transaction. Bits only get set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State(u8);

impl State {
    const TOOK_SNAPSHOT: u8 = 1;
    const ENDED: u8 = 2;
    const ABANDONED: u8 = 4;
    /// Has steps in lock queues. Fixed from the start.
    const LOCKS: u8 = 8;

    fn is(self, bit: u8) -> bool {
        self.0 & bit != 0
    }
    fn set(&mut self, bit: u8) {
        self.0 |= bit;
    }
}

/// How far a schedule has come. Every part only ever grows; if none has grown, nobody's answer has
/// changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// All snapshots of the levels below this one were taken.
    pub snapshot_frontier: u32,
    /// All writers visible at the levels below this one have committed.
    pub commit_frontier: u32,
    /// How many lock steps are done.
    pub lock_steps: u64,
}

impl Schedule {
    pub fn new(levels: Levels, locks: impl IntoIterator<Item = LockStep>) -> Self {
        let count = levels.level_count() as usize;
        let locks = LockQueues::new(locks);
        let mut state = vec![State::default(); levels.len()];
        for tx in locks.transactions() {
            state[tx.index()].set(State::LOCKS);
        }
        let mut unseen = vec![0; count];
        let mut uncommitted = vec![0; count + 1];
        for tx in levels.transactions() {
            if let Some(level) = levels.level_of(tx) {
                unseen[level.0 as usize] += 1;
            }
            if let Some(level) = levels.visible_from(tx) {
                uncommitted[level.0 as usize] += 1;
            }
        }
        let mut schedule = Self {
            levels,
            state,
            locks,
            unseen,
            uncommitted,
            snapshot_frontier: 0,
            commit_frontier: 0,
            ended: 0,
        };
        schedule.advance();
        schedule
    }

    pub fn levels(&self) -> &Levels {
        &self.levels
    }

    /// Rule A. Always true of a transaction without snapshot.
    pub fn may_take_snapshot(&self, tx: Tx) -> bool {
        self.levels
            .level_of(tx)
            .is_none_or(|level| level.0 < self.commit_frontier)
    }

    /// The transaction took its snapshot.
    ///
    /// # Panics
    /// If it had already.
    pub fn took_snapshot(&mut self, tx: Tx) {
        if self.is_abandoned(tx) {
            return;
        }
        assert!(
            !self.has_snapshot(tx),
            "transaction {tx} takes one snapshot"
        );
        self.state[tx.index()].set(State::TOOK_SNAPSHOT);
        self.count_snapshot(tx);
        self.advance();
    }

    /// Rule B, and rule C where the end of the transaction is a step. A transaction that wrote
    /// nothing and locked nothing may always end.
    pub fn may_commit(&self, tx: Tx) -> bool {
        let visible_from = self.levels.visible_from(tx);
        visible_from.is_none_or(|level| level.0 <= self.snapshot_frontier)
            && self.may_step(tx, StepAt::End)
    }

    /// Whether it may commit as soon as it has its own snapshot: nobody else is without one that
    /// rule B has it wait for. That does not change any more.
    pub fn may_commit_once_seen(&self, tx: Tx) -> bool {
        let Some(visible_from) = self.levels.visible_from(tx) else {
            return self.may_step(tx, StepAt::End);
        };
        let own = self.levels.level_of(tx).filter(|_| !self.has_snapshot(tx));
        let below = self.snapshot_frontier..visible_from.0;
        let mut open = below.filter(|&level| self.unseen[level as usize] > 0);
        let is_own = |level| own == Some(Level(level)) && self.unseen[level as usize] == 1;
        open.all(is_own) && self.may_step(tx, StepAt::End)
    }

    /// The transaction committed, or ended without having written.
    ///
    /// # Panics
    /// If it had already.
    pub fn committed(&mut self, tx: Tx) {
        if self.is_abandoned(tx) {
            return;
        }
        assert!(!self.has_ended(tx), "transaction {tx} commits once");
        self.end(tx, State::ENDED);
    }

    /// Rule C for a statement of the transaction. Always true of one that is no lock step.
    pub fn may_lock(&self, tx: Tx, statement: u32) -> bool {
        self.may_step(tx, StepAt::Statement(statement))
    }

    /// The statement completed. No matter if it is no lock step.
    pub fn locked(&mut self, tx: Tx, statement: u32) {
        if self.state[tx.index()].is(State::LOCKS) {
            self.locks.finish(tx, StepAt::Statement(statement));
        }
    }

    /// The transaction will never come, or not come to its end: it is not waited for any longer.
    ///
    /// If it comes all the same, the questions about it are answered by the rules as before and
    /// what it does is not counted.
    pub fn abandon(&mut self, tx: Tx) {
        if self.has_ended(tx) || self.is_abandoned(tx) {
            return;
        }
        self.end(tx, State::ABANDONED);
    }

    fn may_step(&self, tx: Tx, at: StepAt) -> bool {
        !self.state[tx.index()].is(State::LOCKS) || self.locks.ahead(tx, at).is_none()
    }

    fn end(&mut self, tx: Tx, how: u8) {
        if !self.has_snapshot(tx) {
            self.count_snapshot(tx);
        }
        if let Some(level) = self.levels.visible_from(tx) {
            self.uncommitted[level.0 as usize] -= 1;
        }
        if self.state[tx.index()].is(State::LOCKS) {
            self.locks.finish_all(tx);
        }
        self.state[tx.index()].set(how);
        self.ended += 1;
        self.advance();
    }

    fn count_snapshot(&mut self, tx: Tx) {
        if let Some(level) = self.levels.level_of(tx) {
            self.unseen[level.0 as usize] -= 1;
        }
    }

    fn advance(&mut self) {
        let zeros = |counts: &[u32], from: u32| {
            let open = counts[from as usize..].iter().position(|&n| n > 0);
            open.map_or(counts.len() as u32, |at| from + at as u32)
        };
        self.snapshot_frontier = zeros(&self.unseen, self.snapshot_frontier);
        self.commit_frontier = zeros(&self.uncommitted, self.commit_frontier);
    }

    /// The least level with a snapshot that was not taken. A writer w may commit once this has
    /// reached `v(w)`.
    pub fn snapshot_frontier(&self) -> Level {
        Level(self.snapshot_frontier)
    }

    /// The least level at which a writer becomes visible that has not committed. A transaction may
    /// take its snapshot once this has passed its level.
    pub fn commit_frontier(&self) -> Level {
        Level(self.commit_frontier)
    }

    pub fn progress(&self) -> Progress {
        Progress {
            snapshot_frontier: self.snapshot_frontier,
            commit_frontier: self.commit_frontier,
            lock_steps: self.locks.done(),
        }
    }

    pub fn has_snapshot(&self, tx: Tx) -> bool {
        self.state[tx.index()].is(State::TOOK_SNAPSHOT)
    }

    pub fn has_ended(&self, tx: Tx) -> bool {
        self.state[tx.index()].is(State::ENDED)
    }

    pub fn is_abandoned(&self, tx: Tx) -> bool {
        self.state[tx.index()].is(State::ABANDONED)
    }

    /// Whether every transaction has ended or was abandoned.
    pub fn is_finished(&self) -> bool {
        self.ended as usize == self.state.len()
    }

    /// What the transaction would wait for in its present state. Takes time in proportion to the
    /// number of transactions.
    pub fn explain(&self, tx: Tx) -> Explanation {
        Explanation {
            tx,
            wait: self.wait(tx),
            culprit: self.culprit(tx),
        }
    }

    fn wait(&self, tx: Tx) -> Option<Wait> {
        if self.has_ended(tx) || self.is_abandoned(tx) {
            return None;
        }
        if let Some(level) = self.levels.level_of(tx)
            && !self.has_snapshot(tx)
        {
            if self.may_take_snapshot(tx) {
                return None;
            }
            let (first, count) = self.open(|other| {
                let v = self.levels.visible_from(other)?;
                (v <= level && !self.has_ended(other)).then_some(v)
            });
            return Some(Wait::Snapshot {
                level,
                first,
                count,
            });
        }
        let step = self.locks.next(tx);
        if let Some(step) = step
            && let Some(ahead) = self.locks.ahead(tx, step.at)
        {
            return Some(Wait::Lock { step, ahead });
        }
        // With a lock to take yet, it is not about to commit.
        let visible_from = self.levels.visible_from(tx)?;
        if visible_from.0 <= self.snapshot_frontier
            || step.is_some_and(|step| step.at != StepAt::End)
        {
            return None;
        }
        let (first, count) = self.open(|other| {
            let level = self.levels.level_of(other)?;
            (level < visible_from && !self.has_snapshot(other) && !self.has_ended(other))
                .then_some(level)
        });
        Some(Wait::Commit {
            visible_from,
            first,
            count,
        })
    }

    /// The transaction with the least key among those that have one, and their number.
    fn open(&self, key: impl Fn(Tx) -> Option<Level>) -> (Tx, u32) {
        let open = self
            .levels
            .transactions()
            .filter(|&tx| !self.is_abandoned(tx));
        let mut count = 0;
        let first = open
            .filter_map(|tx| Some((key(tx)?, tx)))
            .inspect(|_| count += 1)
            .min();
        let (_, first) = first.expect("somebody keeps a frontier where it is");
        (first, count)
    }

    /// Follows what everybody waits for to somebody who waits for nobody here: it has not come, or
    /// is busy.
    fn culprit(&self, tx: Tx) -> Tx {
        let mut at = tx;
        // The rules cannot form a cycle; levels that were chosen at will can.
        for _ in 0..64 {
            match self.wait(at) {
                Some(wait) => at = wait.on(),
                None => return at,
            }
        }
        at
    }
}

/// What a transaction waits for; for messages about a replay that does not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub tx: Tx,
    /// `None` if the schedule lets it go on.
    pub wait: Option<Wait>,
    /// At the end of the chain of waits: a transaction that may go on and does not. The
    /// transaction itself if it waits for nobody.
    pub culprit: Tx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Rule A: `count` writers that it saw have not committed, `first` among them.
    Snapshot { level: Level, first: Tx, count: u32 },
    /// Rule B: `count` transactions that did not see it have not taken their snapshots, `first`
    /// among them.
    Commit {
        visible_from: Level,
        first: Tx,
        count: u32,
    },
    /// Rule C: its next lock step is behind another one.
    Lock { step: LockStep, ahead: LockStep },
}

impl Wait {
    /// What it waits for; one of them if there are several.
    pub fn on(&self) -> Tx {
        match *self {
            Wait::Snapshot { first, .. } | Wait::Commit { first, .. } => first,
            Wait::Lock { ahead, .. } => ahead.tx,
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tx, wait, culprit } = self;
        match wait {
            None => write!(f, "transaction {tx} may go on"),
            Some(Wait::Snapshot { first, count, .. }) => {
                write!(
                    f,
                    "transaction {tx} waits for {} to commit, which it saw",
                    among(*first, *count)
                )
            }
            Some(Wait::Commit { first, count, .. }) => {
                write!(
                    f,
                    "transaction {tx} waits to commit until {} took the snapshot that lacks it",
                    among(*first, *count)
                )
            }
            Some(Wait::Lock { ahead, .. }) => {
                write!(
                    f,
                    "transaction {tx} waits for a lock that transaction {} had before it",
                    ahead.tx
                )
            }
        }?;
        match wait {
            Some(wait) if wait.on() != *culprit => {
                write!(f, "; in the end for transaction {culprit}")
            }
            _ => Ok(()),
        }
    }
}

fn among(first: Tx, count: u32) -> String {
    match count {
        1 => format!("transaction {first}"),
        2 => format!("transaction {first} and one more"),
        _ => format!("transaction {first} and {} more", count - 1),
    }
}
