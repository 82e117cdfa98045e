//! Reads that go on out of order, since nothing else does.
//!
//! A service makes what all of its requests need under a lock of its own, whichever comes first,
//! and asks the database meanwhile. Originally it was another one. This one waits for that in the
//! schedule now, and that one for the lock.

use std::collections::BTreeSet;

use hindcast_order::Tx;

use super::Coordinator;
use crate::transaction::Ask;

#[derive(Default)]
pub(super) struct LetGo {
    /// Transactions that only read.
    transactions: BTreeSet<Tx>,
    /// What is asked by statements that only read, of transactions that do more, where each
    /// statement has a snapshot of its own. Until it is permitted.
    asking: Vec<Ask>,
    /// Of these, those that go on. Until the session has heard.
    present: Vec<Ask>,
    /// Transactions of such statements.
    of_statements: BTreeSet<Tx>,
    /// Only grows.
    times: u64,
}

impl LetGo {
    pub fn has(&self, ask: Ask) -> bool {
        self.transactions.contains(&ask.tx()) || self.present.contains(&ask)
    }

    /// How often something was let go.
    pub fn count(&self) -> u64 {
        self.times
    }
}

impl Coordinator {
    /// A statement that only reads, and takes a snapshot of its own, asks for this.
    pub fn asks_to_see(&mut self, ask: Ask) {
        let recorded = self.recording.transaction(ask.tx());
        if recorded.is_read_committed() && recorded.knows_statements && self.changes.is_none() {
            self.let_go.asking.push(ask);
        }
    }

    /// What a statement asked for is permitted. Returns whether it sees the present instead of what
    /// it saw.
    pub fn sees_present(&mut self, ask: Ask) -> bool {
        self.let_go.asking.retain(|&one| one != ask);
        let at = self.let_go.present.iter().position(|&one| one == ask);
        at.map(|at| self.let_go.present.swap_remove(at)).is_some()
    }

    /// The first transaction that waits and only reads goes on, or else the first statement that
    /// does. What it reads is compared as ever.
    /// Returns whether there was one.
    pub(super) fn let_read_go(&mut self, waiting: &[Ask]) -> bool {
        let looks = |ask: &&Ask| matches!(ask, Ask::Snapshot(_) | Ask::Look(..));
        let all = || waiting.iter().filter(looks).copied();
        let reads = |ask: &Ask| self.only_reads(ask.tx()) && !self.let_go.has(*ask);
        if let Some(first) = all().filter(reads).map(Ask::tx).min() {
            self.let_go.transactions.insert(first);
        } else {
            let is_one = |ask: &Ask| self.let_go.asking.contains(ask) && !self.let_go.has(*ask);
            let Some(first) = all().filter(is_one).min_by_key(|ask| ask.tx()) else {
                return false;
            };
            self.let_go.present.push(first);
            self.let_go.of_statements.insert(first.tx());
        }
        self.let_go.times += 1;
        self.steps += 1;
        true
    }

    /// How many transactions read out of order, with all of their statements or some.
    pub fn reads_let_go(&self) -> u64 {
        let LetGo {
            transactions,
            of_statements,
            ..
        } = &self.let_go;
        transactions.union(of_statements).count() as u64
    }
}
