//! Where the client's stream will have brought the session's transaction by the time the server
//! gets there.
//!
//! What to ask has to be decided when a message is forwarded, and the client does not wait for
//! answers. So this follows the statements as they are sent and assumes that they succeed. Where
//! one did not, the next `ReadyForQuery` that leaves nothing outstanding puts it right; until then
//! we may ask too much or too little, and both are harmless.

use super::ask::Ask;
use crate::Status;
use crate::sql::{Company, Kind, Statement};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    Idle,
    /// One statement, one `Query` or one pipeline is its own transaction.
    Implicit,
    /// Between `BEGIN` and `COMMIT`.
    Explicit,
}

#[derive(Debug)]
pub(super) struct Forecast {
    block: Block,
    /// Counts transactions, so that an answer that comes late is not taken for a later one's.
    number: u64,
    /// The block is known to have failed: all that is left to it is `ROLLBACK`.
    failed: bool,
    flags: Flags,
}

/// What the transaction has done so far.
#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    took_snapshot: bool,
    asked_snapshot: bool,
    /// Something may have been written since the id was asked for.
    may_have_written: bool,
    savepoints: bool,
    notifies: bool,
    read_only: bool,
    /// A statement refuses company.
    refused: bool,
}

impl Forecast {
    pub fn new() -> Self {
        Self {
            block: Block::Idle,
            number: 0,
            failed: false,
            flags: Flags::default(),
        }
    }

    pub fn block(&self) -> Block {
        self.block
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// What to ask directly before this statement.
    pub fn before(&self, statement: &Statement) -> Option<Ask> {
        if self.failed || self.block == Block::Idle {
            return None;
        }
        let explicit = self.block == Block::Explicit;
        match statement.kind {
            Kind::Commit { .. } | Kind::PrepareTransaction { .. } => self.at_end(),
            // Its lock, by which a subtransaction's id can be found, goes with the savepoint.
            Kind::Release if explicit && self.flags.savepoints => {
                self.at_end().filter(|ask| ask.xid)
            }
            _ if explicit && statement.takes_snapshot && !self.flags.asked_snapshot => {
                Some(Ask::SNAPSHOT)
            }
            _ => None,
        }
    }

    /// What to ask where the client's batch ends; ends the implicit transaction. `alone`: the
    /// transaction is a single simple `Query` of a single statement.
    pub fn end_batch(&mut self, alone: Option<&Statement>) -> Option<Ask> {
        if self.block != Block::Implicit {
            return None;
        }
        self.block = Block::Idle;
        let unwilling = alone.is_some_and(|statement| statement.company != Company::Any);
        if unwilling || self.flags.refused {
            return None;
        }
        self.at_end()
    }

    fn at_end(&self) -> Option<Ask> {
        let flags = &self.flags;
        let snapshot = flags.took_snapshot && !flags.asked_snapshot;
        let xid = flags.may_have_written && !flags.read_only;
        (snapshot || xid).then_some(Ask {
            snapshot,
            xid,
            assign: xid && flags.notifies,
            subxids: xid && flags.savepoints,
        })
    }

    /// It was asked.
    pub fn asked(&mut self, ask: Ask) {
        self.flags.asked_snapshot |= ask.snapshot;
        self.flags.may_have_written &= !ask.xid;
    }

    /// This statement was sent.
    pub fn sent(&mut self, statement: &Statement) {
        match statement.kind {
            Kind::Begin { read_only, .. } => {
                match self.block {
                    Block::Idle => self.begin(Block::Explicit),
                    // What came before it in the same batch becomes part of the block.
                    Block::Implicit => self.block = Block::Explicit,
                    Block::Explicit => {}
                }
                self.flags.read_only |= read_only == Some(true);
            }
            Kind::Commit { chain } | Kind::Rollback { chain } => {
                if chain && self.block == Block::Explicit {
                    self.begin(Block::Explicit);
                } else {
                    self.block = Block::Idle;
                }
                self.failed = false;
            }
            Kind::PrepareTransaction { .. } => self.block = Block::Idle,
            _ => {
                if self.block == Block::Idle {
                    self.begin(Block::Implicit);
                }
                let flags = &mut self.flags;
                flags.took_snapshot |= statement.takes_snapshot;
                flags.may_have_written |= statement.kind.may_write();
                flags.notifies |= statement.notifies;
                flags.refused |= statement.company == Company::Refused;
                match statement.kind {
                    Kind::Savepoint => flags.savepoints = true,
                    Kind::RollbackTo => self.failed = false,
                    Kind::SetTransaction {
                        read_only: Some(read_only),
                        ..
                    } => flags.read_only = read_only,
                    _ => {}
                }
            }
        }
    }

    /// The server said that a transaction is, or is not, read-only.
    pub fn learn_read_only(&mut self, number: u64, read_only: bool) {
        if self.number == number && self.block == Block::Explicit {
            self.flags.read_only = read_only;
        }
    }

    /// The server reports its status, and nothing of the client's is outstanding.
    pub fn settle(&mut self, status: Status) {
        match (status, self.block) {
            (Status::Idle, _) => self.block = Block::Idle,
            (_, Block::Explicit) => {}
            _ => {
                // We missed how it began. Ask for everything.
                self.begin(Block::Explicit);
                self.flags.took_snapshot = true;
                self.flags.may_have_written = true;
            }
        }
        self.failed = status == Status::Failed;
    }

    fn begin(&mut self, block: Block) {
        self.block = block;
        self.number += 1;
        self.failed = false;
        self.flags = Flags::default();
    }
}
