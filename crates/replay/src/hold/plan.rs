//! What is to be done for one batch of the client's messages, step by step.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use hindcast_order::Tx;
use hindcast_trace::ShapeId;
use hindcast_wire::Status;
use hindcast_wire::frame::Frame;
use hindcast_wire::message::frontend as client;

use super::answers::{Expect, Owner};
use super::own::Own;
use crate::transaction::Ask;

/// One thing to do for a batch.
#[derive(Debug)]
pub(super) enum Step {
    Send {
        bytes: Bytes,
        expect: Vec<(Expect, Owner)>,
    },
    /// What is kept from the server for now, and answered by us.
    AtOnce {
        bytes: Bytes,
        expect: Vec<(Expect, Owner)>,
        at_once: AtOnce,
    },
    /// Statements of ours.
    Own(Own),
    /// Everything sent so far has been answered.
    Settle,
    Hold(Ask),
    /// Serve the recorded answers from here on, beginning with these messages of the client.
    /// Nothing follows it.
    Serve {
        tx: Tx,
        frames: Vec<Frame>,
        /// The client has had this many completions of the `Query` that comes first: it was split.
        completed: usize,
    },
    /// The client's autocommitted transaction is over: give it its `ReadyForQuery`.
    Ready,
    /// Tell the context what became of the open transaction where it was to be stopped, by what the
    /// commit before this came to. Nothing is taken after it.
    Stopped {
        shape: ShapeId,
    },
    /// The transaction was to be stopped within this text. Nothing is taken after it.
    CannotStop,
    /// Tell the context that others need not wait for what the open transaction does up to its
    /// commit.
    Ran,
}

/// What is answered at once: a statement's completion, and where the session is then.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtOnce {
    pub tag: &'static [u8],
    pub status: Status,
}

/// Steps that are still to be taken, and messages that will make up the next one.
///
/// When the last step is taken, everything that was sent has been answered.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub steps: VecDeque<Step>,
    bytes: BytesMut,
    expect: Vec<(Expect, Owner)>,
    /// The session is read-only while this is carried out, and was not before.
    pub secluded: bool,
    /// Of its statements one looks, and does nothing but read.
    pub reads_once: bool,
    /// A commit of ours may be sent before its statements are answered.
    pub commits_at_once: bool,
}

impl Plan {
    /// Adds a message to what is sent next.
    pub fn message(
        &mut self,
        expect: impl IntoIterator<Item = (Expect, Owner)>,
        write: impl FnOnce(&mut BytesMut),
    ) {
        write(&mut self.bytes);
        self.expect.extend(expect);
    }

    /// Whether there is nothing to do yet.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.bytes.is_empty()
    }

    /// Sends what there is.
    pub fn send(&mut self) {
        if !self.bytes.is_empty() {
            self.steps.push_back(Step::Send {
                bytes: self.bytes.split().freeze(),
                expect: std::mem::take(&mut self.expect),
            });
        }
    }

    /// Sends what there is, in the middle of a batch, and has it answered: whether it worked must
    /// be known before what follows.
    pub fn send_and_settle(&mut self) {
        if !self.bytes.is_empty() {
            client::flush(&mut self.bytes);
            self.send();
            self.steps.push_back(Step::Settle);
        }
    }

    /// Adds what the message that comes next has to wait for. What others may wait for is over
    /// before: what was executed is answered. What is only prepared or bound waits as well.
    pub fn wait(&mut self, waits: Vec<Step>) {
        let is_executed = |(expect, _): &(Expect, Owner)| expect.statements() > 0;
        if self.expect.iter().any(is_executed) {
            self.send_and_settle();
        }
        self.steps.extend(waits);
    }

    /// Whether answers have to come before the next step. They need not if a commit of ours comes
    /// next, and the transaction `may` commit as it is. Permission is then not asked for.
    pub fn settles(&mut self, may: impl FnOnce(Tx) -> bool) -> bool {
        let mut ahead = self.steps.iter();
        let ahead = [(); 4].map(|()| ahead.next());
        let at_once = match ahead {
            [
                Some(Step::Settle),
                Some(Step::Ran),
                Some(Step::Hold(Ask::Commit(tx))),
                Some(Step::Own(Own::Commit)),
            ] => self.commits_at_once && may(*tx),
            [first, ..] => return matches!(first, Some(Step::Settle)),
        };
        if at_once {
            self.steps.drain(1..3);
        }
        !at_once
    }

    pub fn own(&mut self, own: Own) {
        self.steps.push_back(Step::Own(own));
    }

    pub fn hold(&mut self, ask: Ask) {
        self.steps.push_back(Step::Hold(ask));
    }

    pub fn settle(&mut self) {
        self.steps.push_back(Step::Settle);
    }

    /// In front of all that is left, and behind it is waited for its answer.
    pub fn own_first(&mut self, own: Own) {
        self.steps.push_front(Step::Settle);
        self.steps.push_front(Step::Own(own));
    }
}
