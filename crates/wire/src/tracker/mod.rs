//! Which message of the client, or of ours, the server answers next.
//!
//! The server reads messages one after the other and answers them in order, with three exceptions
//! that this module is about:
//!
//! - After an error in the extended protocol it discards everything up to the next `Sync`,
//!   unanswered.
//! - While it takes in a `COPY`, it swallows `Sync` and `Flush`, and what ends the copy is not
//!   answered by itself.
//! - Parameter reports, notices and notifications come at any time and answer nothing.
//!
//! ```text
//!   sent:     P  B  E  S │ b  e  s │ Q          upper case: the client's, lower case: injected
//!             ▲          │         │
//!   answered: 1, 2, …    └ the queue: oldest first; the next answer is for the one in front
//! ```
//!
//! The caller tells the tracker of each message to the server with the method named after it, and
//! hands each message from the server to [`Tracker::answer`]. `T` is what the caller wants to find
//! again with the answer, `S` what it keeps with a prepared statement.
//!
//! Prepared statements and portals are kept as the *client's stream* defines them, ahead of the
//! answers and assuming success. If a message turns out to have failed or to have been discarded,
//! what it did to them is undone.

mod answers;
mod names;
mod pending;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::limits;
use crate::message::backend::Status;
use crate::message::frontend::{Formats, Parse, Target};
use crate::sql::{Kind, Script};
use names::Names;
pub use names::{Portal, Prepared};
pub use pending::{Answer, Owner, Pending, Role, Sent, Unexpected};

/// Follows what was sent and what is answered in one session.
#[derive(Debug)]
pub struct Tracker<T, S> {
    queue: VecDeque<Pending<T, S>>,
    sequence: u64,
    established: bool,
    /// As of the last `ReadyForQuery`.
    status: Status,
    /// The server failed and the `Sync` at which it goes on has not been sent yet.
    discarding: bool,
    /// The message in front takes in a copy.
    copying: bool,
    /// Copies that were sent and whose end was not.
    open_copies: u32,
    /// Data was sent since the last message that contained a copy.
    copy_data_sent: bool,
    /// Injected messages in the queue.
    injected: usize,
    names: Names<S>,
    discarded: Vec<Pending<T, S>>,
}

impl<T, S> Default for Tracker<T, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, S> Tracker<T, S> {
    pub fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            sequence: 0,
            established: false,
            status: Status::Idle,
            discarding: false,
            copying: false,
            open_copies: 0,
            copy_data_sent: false,
            injected: 0,
            names: Names::new(),
            discarded: Vec::new(),
        }
    }

    /// Whether the session's first `ReadyForQuery` has come.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// The transaction status of the last `ReadyForQuery`, ours included.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Whether everything that was sent is answered.
    pub fn is_quiet(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many messages are not answered yet.
    pub fn outstanding(&self) -> usize {
        self.queue.len()
    }

    /// How many of them were injected.
    pub fn injected_outstanding(&self) -> usize {
        self.injected
    }

    /// What is not answered yet, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = &Pending<T, S>> {
        self.queue.iter()
    }

    /// The message that the server answers next.
    pub fn front(&self) -> Option<&Pending<T, S>> {
        self.queue.front()
    }

    pub fn front_mut(&mut self) -> Option<&mut Pending<T, S>> {
        self.queue.front_mut()
    }

    /// Whether the server may be taking in a copy when it gets what is sent next: then it takes
    /// whatever comes for data, and nothing may be injected.
    pub fn may_be_copying(&self) -> bool {
        self.open_copies > 0
    }

    /// Whether the server is known to discard what is sent next, unless it is a `Sync`.
    pub fn is_discarding(&self) -> bool {
        self.discarding
    }

    pub fn statement(&self, name: &[u8]) -> Option<&Arc<Prepared<S>>> {
        self.names.statement(name)
    }

    pub fn portal(&self, name: &[u8]) -> Option<&Portal<S>> {
        self.names.portal(name)
    }

    /// The client sent a `Query` with so many `COPY … FROM STDIN` statements in it.
    pub fn query(&mut self, copies: u32, payload: T) -> Result<(), Unexpected> {
        self.copied(copies);
        let pending = self.pending_of(Sent::Query, payload);
        self.push(Pending { copies, ..pending })
    }

    /// The client sent a `Parse`.
    pub fn parse(
        &mut self,
        parse: &Parse<'_>,
        script: Arc<Script>,
        data: S,
        payload: T,
    ) -> Result<(), Unexpected> {
        let mut pending = self.pending_of(Sent::Parse, payload);
        if !self.discarding {
            let (prepared, replaced) = self.names.prepare(parse, script, data, pending.sequence);
            pending.replaced = replaced;
            pending.prepared = Some(prepared);
            if self.names.are_too_many() {
                return Err(Unexpected::TooManyPrepared);
            }
        }
        self.push(pending)
    }

    /// The client sent a `Bind`. `bound`: the formats of its rows, and with which values it will
    /// run (see [`Portal::values`]).
    pub fn bind(
        &mut self,
        portal: &[u8],
        statement: &[u8],
        bound: (Formats, Option<u64>),
        payload: T,
    ) -> Result<(), Unexpected> {
        let mut pending = self.pending_of(Sent::Bind, payload);
        if !self.discarding {
            pending.prepared = self.names.bind(portal, statement, bound, pending.sequence);
            if self.names.are_too_many() {
                return Err(Unexpected::TooManyPrepared);
            }
        }
        self.push(pending)
    }

    /// The client sent a `Describe`.
    pub fn describe(&mut self, target: Target<'_>, payload: T) -> Result<(), Unexpected> {
        let sent = match target {
            Target::Statement(_) => Sent::DescribeStatement,
            Target::Portal(_) => Sent::DescribePortal,
        };
        let formats = match target {
            Target::Statement(_) => None,
            Target::Portal(name) => self.portal(name).map(|portal| portal.formats.clone()),
        };
        let pending = self.pending_of(sent, payload);
        self.push(Pending {
            prepared: self.names.target(target),
            formats: formats.unwrap_or_default(),
            ..pending
        })
    }

    /// The client sent an `Execute`.
    pub fn execute(&mut self, portal: &[u8], payload: T) -> Result<(), Unexpected> {
        let mut pending = self.pending_of(Sent::Execute, payload);
        if let Some(portal) = self.portal(portal) {
            let statement = portal.prepared.statement();
            let copies = statement.is_some_and(|statement| statement.kind == Kind::CopyFromStdin);
            pending.formats = portal.formats.clone();
            pending.prepared = Some(Arc::clone(&portal.prepared));
            pending.copies = u32::from(copies);
        }
        self.copied(pending.copies);
        self.push(pending)
    }

    /// The client sent a `Close`.
    pub fn close(&mut self, target: Target<'_>, payload: T) -> Result<(), Unexpected> {
        let mut pending = self.pending_of(Sent::Close, payload);
        if !self.discarding {
            pending.prepared = self.names.close(target);
        }
        self.push(pending)
    }

    /// The client sent a `Sync`.
    pub fn sync(&mut self, payload: T) -> Result<(), Unexpected> {
        self.discarding = false;
        let pending = self.pending_of(Sent::Sync, payload);
        self.push(pending)
    }

    /// The client sent a `FunctionCall`.
    pub fn function_call(&mut self, payload: T) -> Result<(), Unexpected> {
        let pending = self.pending_of(Sent::FunctionCall, payload);
        self.push(pending)
    }

    /// The client sent a `CopyData`.
    pub fn copy_data(&mut self) {
        self.copy_data_sent = true;
    }

    /// The client sent a `CopyDone` or `CopyFail`. Outside of a copy the server ignores it.
    pub fn copy_end(&mut self, payload: T) -> Result<(), Unexpected> {
        self.open_copies = self.open_copies.saturating_sub(1);
        if self.queue.is_empty() {
            return Ok(());
        }
        let pending = self.pending_of(Sent::CopyEnd, payload);
        self.push(pending)
    }

    /// We sent a message of our own.
    ///
    /// Its names must not collide with the client's, and it must not be sent while
    /// [`Tracker::may_be_copying`].
    pub fn inject(&mut self, sent: Sent, payload: T) -> Result<(), Unexpected> {
        if sent == Sent::Sync {
            self.discarding = false;
        }
        let pending = self.pending_of(sent, payload);
        self.push(Pending {
            owner: Owner::Injected,
            ..pending
        })
    }

    /// `DEALLOCATE` of a statement, or of all of them (`None`), took effect: those prepared before
    /// the message with this sequence number are gone.
    pub fn deallocate(&mut self, name: Option<&[u8]>, sequence: u64) {
        self.names.deallocate(name, sequence);
    }

    fn pending_of(&self, sent: Sent, payload: T) -> Pending<T, S> {
        let sequence = self.sequence;
        Pending {
            sent,
            owner: Owner::Client,
            sequence,
            payload,
            prepared: None,
            formats: Formats::Text,
            replaced: None,
            copies: 0,
        }
    }

    fn push(&mut self, pending: Pending<T, S>) -> Result<(), Unexpected> {
        self.sequence += 1;
        if self.discarding {
            return Ok(());
        }
        if self.queue.len() >= limits::OUTSTANDING_MAX {
            return Err(Unexpected::TooManyOutstanding);
        }
        self.injected += usize::from(pending.owner == Owner::Injected);
        self.queue.push_back(pending);
        Ok(())
    }

    fn pop(&mut self) -> Option<Pending<T, S>> {
        let pending = self.queue.pop_front()?;
        self.popped(&pending);
        Some(pending)
    }

    fn popped(&mut self, pending: &Pending<T, S>) {
        self.injected -= usize::from(pending.owner == Owner::Injected);
        if self.queue.is_empty() {
            if self.queue.capacity() > 4096 {
                self.queue = VecDeque::new();
            }
            self.open_copies = 0;
        } else if pending.copies > 0 {
            let copies: u32 = self.queue.iter().map(|pending| pending.copies).sum();
            let ends = self
                .queue
                .iter()
                .filter(|pending| pending.sent == Sent::CopyEnd)
                .count();
            self.open_copies = copies.saturating_sub(u32::try_from(ends).unwrap_or(u32::MAX));
        }
    }

    fn copied(&mut self, copies: u32) {
        if copies > 0 && !self.discarding {
            self.open_copies += copies;
            self.copy_data_sent = false;
        }
    }
}

#[cfg(test)]
mod tests;
