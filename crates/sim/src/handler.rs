//! What a service does with a request: a deterministic program whose every step depends on
//! everything it read.
//!
//! A handler keeps one number that each answer is mixed into, and draws what to do next from that
//! number. Whatever it reads wrongly changes which rows it touches, whether it commits, how many
//! transactions it runs, and its response.

use crate::database::{Answer, Mode, Op};
use crate::rng::mix;

/// Which kinds of statements a service uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    pub rows: usize,
    pub advisory: usize,
    pub transactions_max: usize,
    pub statements_max: usize,
    /// Percent of statements that write.
    pub writes: usize,
    /// Percent of statements that lock a row without writing it.
    pub row_locks: usize,
    pub advisory_locks: usize,
    /// Percent of statements that set a savepoint or roll back to one.
    pub savepoints: usize,
    /// Rows behind the others, which are inserted and read.
    pub keys: usize,
    /// Whether they are written, too.
    pub changes: bool,
    /// Percent of statements that insert one, of transactions under READ COMMITTED.
    pub inserts: usize,
    /// Percent of transactions that end with a rollback of their own choice.
    pub rollbacks: usize,
    /// Percent of transactions under READ COMMITTED.
    pub read_committed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Begin(Begins),
    Do(Op),
    Commit,
    Rollback,
    Respond(u64),
}

/// How a transaction begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begins {
    /// Has an id before it has a snapshot, as after `LOCK TABLE`.
    pub early_xid: bool,
    pub read_committed: bool,
}

#[derive(Clone, Debug)]
pub struct Handler {
    habits: Habits,
    state: u64,
    transactions_left: usize,
    stage: Stage,
    /// A row that somebody else has inserted: it is looked at next.
    lost: Option<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Between,
    Within {
        statements_left: usize,
        read_only: bool,
        read_committed: bool,
    },
    Failed,
}

impl Handler {
    pub fn new(input: u64, habits: Habits) -> Self {
        Self {
            habits,
            state: mix(input),
            transactions_left: 1 + (mix(input ^ 1) % habits.transactions_max as u64) as usize,
            stage: Stage::Between,
            lost: None,
        }
    }

    fn draw(&mut self) -> usize {
        self.state = mix(self.state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        (self.state >> 33) as usize
    }

    /// What it does next. To be called again when that is done.
    pub fn act(&mut self) -> Action {
        match self.stage {
            Stage::Between => {
                // A handler that read something unlikely stops early.
                if self.transactions_left == 0 || self.draw().is_multiple_of(25) {
                    return Action::Respond(self.state);
                }
                self.transactions_left -= 1;
                let statements_left = 1 + self.draw() % self.habits.statements_max;
                let statements_left = match self.draw().is_multiple_of(16) {
                    true => 0,
                    false => statements_left,
                };
                let read_only = self.draw().is_multiple_of(3);
                let early_xid = self.draw().is_multiple_of(10);
                let read_committed = self.habits.read_committed > 0
                    && self.draw() % 100 < self.habits.read_committed;
                self.lost = None;
                self.stage = Stage::Within {
                    statements_left,
                    read_only,
                    read_committed,
                };
                Action::Begin(Begins {
                    early_xid,
                    read_committed,
                })
            }
            Stage::Within {
                statements_left: 0, ..
            } => {
                self.stage = Stage::Between;
                match self.draw() % 100 < self.habits.rollbacks {
                    true => Action::Rollback,
                    false => Action::Commit,
                }
            }
            Stage::Within {
                statements_left,
                read_only,
                read_committed,
            } => {
                self.stage = Stage::Within {
                    statements_left: statements_left - 1,
                    read_only,
                    read_committed,
                };
                let op = match (self.lost.take(), self.statement(read_only)) {
                    (Some(row), _) => Op::Read(row),
                    (None, Op::Insert(row, _)) if !read_committed => Op::Read(row),
                    (None, op) => op,
                };
                if let Op::Insert(row, _) = op {
                    self.lost = Some(row);
                }
                Action::Do(op)
            }
            Stage::Failed => {
                // Most services try again.
                self.transactions_left += usize::from(!self.draw().is_multiple_of(3));
                self.stage = Stage::Between;
                Action::Rollback
            }
        }
    }

    fn statement(&mut self, read_only: bool) -> Op {
        let row = (self.draw() % self.habits.rows) as u8;
        let kind = self.draw() % 100;
        let shares = [
            self.habits.writes,
            self.habits.row_locks,
            self.habits.advisory_locks,
            self.habits.savepoints,
            self.habits.inserts,
        ];
        let mut end = 0;
        let kind = shares.iter().position(|share| {
            end += share;
            kind < end
        });
        match kind {
            _ if read_only => Op::Read(row),
            Some(0) if self.habits.changes && self.draw().is_multiple_of(2) => {
                Op::Write(self.key(), self.state)
            }
            Some(0) => Op::Write(row, self.state),
            Some(1) if self.draw().is_multiple_of(3) => Op::LockRow(row, Mode::Share),
            Some(1) => Op::LockRow(row, Mode::Exclusive),
            Some(2) => Op::Advisory((self.draw() % self.habits.advisory) as u8),
            Some(3) if self.draw().is_multiple_of(2) => Op::Savepoint,
            Some(3) => Op::RollbackTo,
            Some(4) => Op::Insert(self.key(), self.state),
            _ => Op::Read(row),
        }
    }

    fn key(&mut self) -> u8 {
        (self.habits.rows + self.draw() % self.habits.keys) as u8
    }

    pub fn learn(&mut self, answer: Answer) {
        let told = match answer {
            Answer::Value(value) => value,
            Answer::Done => 1,
            Answer::Serialization => 2,
            Answer::Deadlock => 3,
            Answer::Duplicate => 4,
        };
        if answer != Answer::Duplicate {
            self.lost = None;
        }
        self.state = mix(self.state ^ told);
        if answer.failed() {
            self.stage = Stage::Failed;
        }
    }
}
