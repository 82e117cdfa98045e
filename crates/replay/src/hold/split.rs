//! Texts that are run a statement at a time, so that there is a moment before each in which to
//! wait.

use std::collections::VecDeque;

use bytes::Bytes;
use hindcast_trace::RequestId;
use hindcast_wire::Status;
use hindcast_wire::sql::{Company, Kind, Script};

use super::Holder;
use super::transaction::{self, Open};

/// A `Query` that is run a statement at a time.
#[derive(Debug)]
pub(super) struct Split {
    pub rest: VecDeque<Bytes>,
    /// The request that its text names.
    pub request: Option<RequestId>,
    pub failed: bool,
    /// How many of its statements the client was told to be complete.
    pub completed: usize,
}

/// Whether a text begins or ends transactions beside other statements.
pub(super) fn mixes(script: &Script) -> bool {
    let statements = &script.statements;
    let controls = || statements.iter().any(|one| one.kind.controls_transaction());
    statements.len() > 1 && !script.unterminated && controls()
}

impl Holder {
    /// Has a text run a statement at a time. Returns the first.
    pub(super) fn split(&mut self, text: &[u8], script: &Script) -> Bytes {
        let statements = script.statements.iter();
        let statements = statements.map(|statement| Bytes::copy_from_slice(statement.text(text)));
        self.split = Some(Split {
            rest: statements.collect(),
            request: self.request_in(text),
            failed: false,
            completed: 0,
        });
        self.next_of_split().expect("there are several")
    }

    /// Whether the open transaction looks again between the statements of a text. One that is left
    /// to the server is none if they come apart.
    pub(super) fn looks_within(&self, script: &Script) -> bool {
        let statements = &script.statements;
        let comes_apart = statements
            .iter()
            .all(|one| one.company == Company::Any && one.kind != Kind::CopyFromStdin);
        let is_open = |open: &&Open| open.kind != transaction::Kind::Direct;
        let open = self.transaction.as_ref().filter(is_open);
        statements.len() > 1
            && comes_apart
            && !script.unterminated
            && self.status != Status::Failed
            && open.is_some_and(|open| open.looks_within(statements.len() as u32))
    }

    pub(super) fn next_of_split(&mut self) -> Option<Bytes> {
        let split = self.split.as_mut()?;
        let next = split.rest.pop_front();
        if next.is_none() {
            self.split = None;
        }
        next
    }

    /// Statements of a text that was split are still to come.
    pub(super) fn is_within_split(&self) -> bool {
        let split = self.split.as_ref();
        split.is_some_and(|split| !split.rest.is_empty())
    }

    /// The rest of a text that was split is not run, as it would not have been in one piece, so its
    /// client hears at once that the server is ready. A transaction of ours has an end of its own
    /// to come, and its client is told then.
    pub(super) fn is_failed_split(&self) -> bool {
        !self.is_wrapped() && self.split.as_ref().is_some_and(|split| split.failed)
    }
}
