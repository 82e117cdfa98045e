//! A handler whose code was changed after it was recorded.

use std::collections::VecDeque;

use crate::database::{Answer, Op};
use crate::handler::{Action, Begins, Handler};
use crate::rng::mix;

/// What was changed. Transactions are counted within a request, from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing that the database could notice.
    Analysis,
    /// Every statement goes to the next row.
    OtherRows { rows: u8 },
    /// This transaction is not run any more.
    Deleted { nth: usize },
    /// This transaction and the next one are one.
    Merged { nth: usize },
    /// A transaction that writes this row comes before this one.
    Added { nth: usize, row: u8 },
    /// This transaction writes this row, too.
    Writes { nth: usize, row: u8 },
}

/// A handler, recorded or changed.
#[derive(Clone, Debug)]
pub enum Program {
    Recorded(Handler),
    Changed(Changed),
}

impl Program {
    pub fn act(&mut self) -> Action {
        match self {
            Self::Recorded(handler) => handler.act(),
            Self::Changed(changed) => changed.act(),
        }
    }

    pub fn learn(&mut self, answer: Answer) {
        match self {
            Self::Recorded(handler) => handler.learn(answer),
            Self::Changed(changed) => changed.learn(answer),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Changed {
    handler: Handler,
    change: Change,
    /// Transactions that the handler has begun.
    begun: usize,
    /// What comes before the handler's next action.
    ahead: VecDeque<Action>,
    /// Whose statement was run last.
    of: Of,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Handler,
    /// Of a transaction that was added.
    Added,
}

impl Changed {
    pub fn new(handler: Handler, change: Change) -> Self {
        Self {
            handler,
            change,
            begun: 0,
            ahead: VecDeque::new(),
            of: Of::Handler,
        }
    }

    fn act(&mut self) -> Action {
        if let Some(action) = self.ahead.pop_front() {
            return action;
        }
        self.of = Of::Handler;
        loop {
            let action = self.handler.act();
            let nth = self.begun.saturating_sub(1);
            match (action, self.change) {
                (Action::Begin(_), change) => {
                    self.begun += 1;
                    match change {
                        Change::Deleted { nth } if nth + 1 == self.begun => self.pass_over(),
                        Change::Added { nth, row } if nth + 1 == self.begun => {
                            self.ahead.extend([
                                Action::Do(Op::Write(row, mix(nth as u64))),
                                Action::Commit,
                                action,
                            ]);
                            self.of = Of::Added;
                            return Action::Begin(Begins::default());
                        }
                        _ => return action,
                    }
                }
                (Action::Do(op), Change::OtherRows { rows }) => return Action::Do(moved(op, rows)),
                (Action::Do(op), Change::Writes { nth: at, row }) if at == nth => {
                    self.change = Change::Analysis;
                    self.ahead
                        .push_back(Action::Do(Op::Write(row, mix(u64::from(row)))));
                    return Action::Do(op);
                }
                (Action::Commit, Change::Merged { nth: at }) if at == nth => {
                    match self.handler.act() {
                        // Commit and begin fall away.
                        Action::Begin(_) => self.begun += 1,
                        other => {
                            self.ahead.push_back(other);
                            return Action::Commit;
                        }
                    }
                }
                (action, _) => return action,
            }
        }
    }

    /// Runs a transaction of the handler without a database: all that it is told is that it worked.
    fn pass_over(&mut self) {
        loop {
            match self.handler.act() {
                Action::Do(_) => self.handler.learn(Answer::Done),
                Action::Commit | Action::Rollback => return,
                Action::Begin(_) | Action::Respond(_) => {
                    unreachable!("a transaction ends before anything else begins")
                }
            }
        }
    }

    fn learn(&mut self, answer: Answer) {
        match self.of {
            Of::Handler => self.handler.learn(answer),
            Of::Added if answer.failed() => {
                // Instead of its commit. The handler goes on without it.
                self.ahead.pop_front();
                self.ahead.push_front(Action::Rollback);
            }
            Of::Added => {}
        }
        // What stands ahead within the handler's own transaction falls away with it.
        if self.of == Of::Handler && answer.failed() {
            self.ahead.clear();
        }
    }
}

fn moved(op: Op, rows: u8) -> Op {
    let next = |row: u8| (row + 1) % rows;
    match op {
        Op::Read(row) => Op::Read(next(row)),
        Op::Write(row, value) => Op::Write(next(row), value),
        Op::Insert(row, value) => Op::Insert(next(row), value),
        Op::LockRow(row, mode) => Op::LockRow(next(row), mode),
        op => op,
    }
}
