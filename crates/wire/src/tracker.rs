//! Which message of the client, or of ours, the server answers next.
//!
//! The server reads messages one after the other and answers them in order, with three exceptions that this module is about:
//!
//! - After an error in the extended protocol it discards everything up to the next `Sync`, unanswered.
//! - While it takes in a `COPY`, it swallows `Sync` and `Flush`, and what ends the copy is not answered by itself.
//! - Parameter reports, notices and notifications come at any time and answer nothing.
//!
//! ```text
//!   sent:     P  B  E  S │ b  e  s │ Q            upper case: the client's, lower case: injected
//!             ▲          │         │
//!   answered: 1, 2, …    └ the queue: oldest first; the server's next answer is for the one in front
//! ```
//!
//! Whoever sends a message to the server tells the tracker with the method named after it; whoever gets one from the server
//! hands it to [`Tracker::answer`]. `T` is what the caller wants to find again with the answer, `S` what it keeps with
//! a prepared statement.
//!
//! Prepared statements and portals are kept as the *client's stream* defines them, that is, ahead of the answers and assuming success. If a message
//! turns out to have failed or to have been discarded, what it did to them is undone.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use crate::limits;
use crate::message::Malformed;
use crate::message::backend::{self, Status};
use crate::message::frontend::{Formats, Parse, Target};
use crate::sql::{Kind, Script};

/// Who sent a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Client,
    Injected,
}

/// The kinds of messages that are answered, or that decide what is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Query,
    Parse,
    Bind,
    DescribeStatement,
    DescribePortal,
    Execute,
    Close,
    Sync,
    FunctionCall,
    /// `CopyDone` or `CopyFail`. Never answered.
    CopyEnd,
}

impl Sent {
    /// An error makes the server discard what follows up to the next `Sync`.
    fn is_extended(self) -> bool {
        !matches!(
            self,
            Self::Query | Self::Sync | Self::FunctionCall | Self::CopyEnd
        )
    }
}

/// A message that was sent and is not yet answered.
#[derive(Debug)]
pub struct Pending<T, S> {
    pub sent: Sent,
    pub owner: Owner,
    /// Counts the messages of a session.
    pub sequence: u64,
    pub payload: T,
    /// What it prepared, describes, binds, executes or closed.
    pub prepared: Option<Arc<Prepared<S>>>,
    /// Result formats of an `Execute`.
    pub formats: Formats,
    /// What a `Parse` replaced.
    replaced: Option<Arc<Prepared<S>>>,
    /// `COPY … FROM STDIN` statements in it.
    copies: u32,
}

/// A prepared statement.
#[derive(Debug)]
pub struct Prepared<S> {
    /// Empty for the unnamed one.
    pub name: Box<[u8]>,
    /// `None` if the session's statements hold too much text already.
    pub text: Option<Box<[u8]>>,
    /// Parameter types as they stand in a `Parse` message: count and oids.
    pub types: Box<[u8]>,
    pub script: Arc<Script>,
    pub data: S,
    /// The body of its `RowDescription`, once [`Prepared::describe`] was called.
    row_description: OnceLock<Box<[u8]>>,
    sequence: u64,
}

impl<S> Prepared<S> {
    /// Its only statement; `None` if the text is empty. (A text with several is refused by the server.)
    pub fn statement(&self) -> Option<&crate::sql::Statement> {
        self.script.statements.first()
    }

    pub fn row_description(&self) -> Option<&[u8]> {
        self.row_description.get().map(|body| &body[..])
    }

    /// Keeps the body of the `RowDescription` that answered a `Describe` of it.
    pub fn describe(&self, body: &[u8]) {
        let _ = self.row_description.set(body.into());
    }

    /// The message that prepares it, or `None` if the text was not kept.
    pub fn parse_message(&self) -> Option<Parse<'_>> {
        Some(Parse {
            name: &self.name,
            text: self.text.as_deref()?,
            types: &self.types,
        })
    }
}

/// A bound statement.
#[derive(Debug)]
pub struct Portal<S> {
    pub prepared: Arc<Prepared<S>>,
    pub formats: Formats,
    sequence: u64,
}

/// What a message from the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Something before the session is established; its first `ReadyForQuery` included.
    Startup,
    /// A parameter report, notice or notification: nobody's answer.
    Aside,
    /// An answer that is not complete yet; [`Tracker::front`] is answered.
    Part,
    /// A statement ended well (`CommandComplete`, `EmptyQueryResponse`, `PortalSuspended`, `FunctionCallResponse`). It was an
    /// `Execute` if [`Answer::done`] is there, else it belongs to [`Tracker::front`].
    Statement,
    /// `ParseComplete` and the like: [`Answer::done`] is answered.
    Done,
    /// `ErrorResponse`. To an extended message if [`Answer::done`] is there: see [`Tracker::discarded`]. Else
    /// [`Tracker::front`], if any, failed and its `ReadyForQuery` follows.
    Failed,
    Ready(Status),
    /// The session turns into a replication stream.
    CopyBoth,
}

/// Whom a message from the server answers.
#[derive(Debug)]
pub struct Answer<T, S> {
    pub role: Role,
    pub owner: Owner,
    /// The message that is now answered in full, taken off the queue.
    pub done: Option<Pending<T, S>>,
}

/// The server, or the client, did what the protocol does not provide for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unexpected {
    #[error("the server answered although nothing was asked")]
    NothingOutstanding,
    #[error("this does not answer the oldest outstanding message, {0:?}")]
    NotAnAnswer(Sent),
    #[error("this has no place before the session is established")]
    BeforeReady,
    #[error("more than {} messages wait for an answer", limits::OUTSTANDING_MAX)]
    TooManyOutstanding,
    #[error("more than {} statements or portals are open", limits::PREPARED_MAX)]
    TooManyPrepared,
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

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
    statements: HashMap<Box<[u8]>, Arc<Prepared<S>>>,
    statement_bytes: usize,
    unnamed_portal: Option<Portal<S>>,
    portals: HashMap<Box<[u8]>, Portal<S>>,
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
            statements: HashMap::new(),
            statement_bytes: 0,
            unnamed_portal: None,
            portals: HashMap::new(),
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

    /// Whether the server may be taking in a copy when it gets what is sent next: then it takes whatever comes for data, and nothing may
    /// be injected.
    pub fn may_be_copying(&self) -> bool {
        self.open_copies > 0
    }

    /// Whether the server is known to discard what is sent next, unless it is a `Sync`.
    pub fn is_discarding(&self) -> bool {
        self.discarding
    }

    pub fn statement(&self, name: &[u8]) -> Option<&Arc<Prepared<S>>> {
        self.statements.get(name)
    }

    pub fn portal(&self, name: &[u8]) -> Option<&Portal<S>> {
        if name.is_empty() {
            self.unnamed_portal.as_ref()
        } else {
            self.portals.get(name)
        }
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
            let room = self.statement_bytes + parse.text.len() <= limits::PREPARED_BYTES_MAX;
            let prepared = Arc::new(Prepared {
                name: parse.name.into(),
                text: room.then(|| parse.text.into()),
                types: parse.types.into(),
                script,
                data,
                row_description: OnceLock::new(),
                sequence: pending.sequence,
            });
            pending.replaced = self.insert_statement(Arc::clone(&prepared));
            pending.prepared = Some(prepared);
            if self.statements.len() > limits::PREPARED_MAX {
                return Err(Unexpected::TooManyPrepared);
            }
        }
        self.push(pending)
    }

    /// The client sent a `Bind`.
    pub fn bind(
        &mut self,
        portal: &[u8],
        statement: &[u8],
        formats: Formats,
        payload: T,
    ) -> Result<(), Unexpected> {
        let mut pending = self.pending_of(Sent::Bind, payload);
        if !self.discarding {
            pending.prepared = self.statements.get(statement).cloned();
            let sequence = pending.sequence;
            let bound = pending.prepared.clone().map(|prepared| Portal {
                prepared,
                formats,
                sequence,
            });
            match bound {
                bound if portal.is_empty() => self.unnamed_portal = bound,
                Some(bound) => {
                    self.portals.insert(portal.into(), bound);
                    if self.portals.len() > limits::PREPARED_MAX {
                        return Err(Unexpected::TooManyPrepared);
                    }
                }
                None => {}
            }
        }
        self.push(pending)
    }

    /// The client sent a `Describe`.
    pub fn describe(&mut self, target: Target<'_>, payload: T) -> Result<(), Unexpected> {
        let (sent, prepared) = match target {
            Target::Statement(name) => {
                (Sent::DescribeStatement, self.statements.get(name).cloned())
            }
            Target::Portal(name) => {
                let portal = self.portal(name);
                (
                    Sent::DescribePortal,
                    portal.map(|portal| Arc::clone(&portal.prepared)),
                )
            }
        };
        let pending = self.pending_of(sent, payload);
        self.push(Pending {
            prepared,
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
            match target {
                Target::Statement(name) => pending.prepared = self.remove_statement(name),
                Target::Portal(b"") => self.unnamed_portal = None,
                Target::Portal(name) => drop(self.portals.remove(name)),
            }
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
    /// Its names must not collide with the client's, and it must not be sent while [`Tracker::may_be_copying`].
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

    /// `DEALLOCATE` of a statement, or of all of them (`None`), took effect: those prepared before the message
    /// with this sequence number are gone.
    pub fn deallocate(&mut self, name: Option<&[u8]>, sequence: u64) {
        match name {
            Some(name)
                if self
                    .statements
                    .get(name)
                    .is_some_and(|prepared| prepared.sequence < sequence) =>
            {
                drop(self.remove_statement(name))
            }
            Some(_) => {}
            None => {
                self.statements
                    .retain(|_, prepared| prepared.sequence >= sequence);
                self.statement_bytes = self
                    .statements
                    .values()
                    .map(|prepared| text_bytes(prepared))
                    .sum();
            }
        }
    }

    /// Takes a message from the server: who is answered by it?
    ///
    /// `body` may be incomplete for messages that are streamed.
    pub fn answer(&mut self, tag: u8, body: &[u8]) -> Result<Answer<T, S>, Unexpected> {
        use backend::*;
        if matches!(
            tag,
            NOTICE_RESPONSE | NOTIFICATION_RESPONSE | PARAMETER_STATUS
        ) {
            let role = if self.established {
                Role::Aside
            } else {
                Role::Startup
            };
            return Ok(Answer {
                role,
                owner: Owner::Client,
                done: None,
            });
        }
        if !self.established {
            return self.startup(tag, body);
        }
        self.discarded.clear();
        while !self.copying
            && self
                .queue
                .front()
                .is_some_and(|front| front.sent == Sent::CopyEnd)
        {
            self.pop();
        }
        let Some(front) = self.queue.front() else {
            return match tag {
                // The session is being ended.
                ERROR_RESPONSE => Ok(Answer {
                    role: Role::Failed,
                    owner: Owner::Client,
                    done: None,
                }),
                // After a failed copy nobody can tell how many `Sync`s the server swallowed.
                READY_FOR_QUERY => self.ready(body, None),
                _ => Err(Unexpected::NothingOutstanding),
            };
        };
        let (sent, owner) = (front.sent, front.owner);
        let unexpected = Err(Unexpected::NotAnAnswer(sent));
        let part = |role| {
            Ok(Answer {
                role,
                owner,
                done: None,
            })
        };
        match (sent, tag) {
            (_, ERROR_RESPONSE) => Ok(self.failed()),
            (Sent::Query | Sent::FunctionCall | Sent::Sync, READY_FOR_QUERY) => {
                let done = self.pop();
                self.ready(body, done)
            }
            (Sent::Query, ROW_DESCRIPTION) => part(Role::Part),
            (Sent::Query | Sent::Execute, DATA_ROW | COPY_OUT_RESPONSE | COPY_DATA | COPY_DONE) => {
                part(Role::Part)
            }
            (Sent::Query | Sent::Execute, COPY_IN_RESPONSE) => {
                self.copying = true;
                part(Role::Part)
            }
            (Sent::Query | Sent::Execute, COPY_BOTH_RESPONSE) => part(Role::CopyBoth),
            (Sent::Query | Sent::Execute, COMMAND_COMPLETE | EMPTY_QUERY_RESPONSE)
            | (Sent::Execute, PORTAL_SUSPENDED) => {
                if self.copying {
                    self.copy_completed();
                }
                let done = if sent == Sent::Execute {
                    self.pop()
                } else {
                    None
                };
                Ok(Answer {
                    role: Role::Statement,
                    owner,
                    done,
                })
            }
            (Sent::FunctionCall, FUNCTION_CALL_RESPONSE) => part(Role::Statement),
            (Sent::DescribeStatement, PARAMETER_DESCRIPTION) => part(Role::Part),
            (Sent::Parse, PARSE_COMPLETE)
            | (Sent::Bind, BIND_COMPLETE)
            | (Sent::Close, CLOSE_COMPLETE)
            | (Sent::DescribeStatement | Sent::DescribePortal, ROW_DESCRIPTION | NO_DATA) => {
                Ok(Answer {
                    role: Role::Done,
                    owner,
                    done: self.pop(),
                })
            }
            _ => unexpected,
        }
    }

    /// What the server discards because of the error that was just answered, in the order in which it was sent.
    pub fn discarded(&mut self) -> impl Iterator<Item = Pending<T, S>> {
        self.discarded.drain(..)
    }

    fn startup(&mut self, tag: u8, body: &[u8]) -> Result<Answer<T, S>, Unexpected> {
        use backend::*;
        match tag {
            AUTHENTICATION | BACKEND_KEY_DATA | NEGOTIATE_PROTOCOL_VERSION | ERROR_RESPONSE => {}
            READY_FOR_QUERY => {
                self.status = parse_ready_for_query(body)?;
                self.established = true;
            }
            _ => return Err(Unexpected::BeforeReady),
        }
        Ok(Answer {
            role: Role::Startup,
            owner: Owner::Client,
            done: None,
        })
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

    fn ready(
        &mut self,
        body: &[u8],
        done: Option<Pending<T, S>>,
    ) -> Result<Answer<T, S>, Unexpected> {
        self.status = backend::parse_ready_for_query(body)?;
        self.copying = false;
        if let (Status::Idle, Some(done)) = (self.status, &done)
            && !self.portals.is_empty()
        {
            // Portals live no longer than their transaction.
            self.portals
                .retain(|_, portal| portal.sequence > done.sequence);
        }
        let owner = done.as_ref().map_or(Owner::Client, |done| done.owner);
        Ok(Answer {
            role: Role::Ready(self.status),
            owner,
            done,
        })
    }

    /// The copy in front ended well: with it go its end, and the `Sync`s that were swallowed before that.
    fn copy_completed(&mut self) {
        self.copying = false;
        if let Some(end) = (1..self.queue.len()).find(|&at| self.queue[at].sent == Sent::CopyEnd) {
            self.remove(1..=end);
        }
    }

    fn failed(&mut self) -> Answer<T, S> {
        let copying = std::mem::take(&mut self.copying);
        let front = self.queue.front().expect("the caller looked at it");
        let (sent, owner) = (front.sent, front.owner);
        if copying {
            self.copy_failed(sent);
        }
        if !sent.is_extended() {
            return Answer {
                role: Role::Failed,
                owner,
                done: None,
            };
        }
        let done = self.pop();
        let kept = (0..self.queue.len()).find(|&at| self.queue[at].sent == Sent::Sync);
        self.discarding = kept.is_none();
        for _ in 0..kept.unwrap_or(self.queue.len()) {
            let pending = self.pop().expect("it was counted");
            self.discarded.push(pending);
        }
        // In reverse, so that of several definitions of a name the oldest comes back last.
        for at in (0..self.discarded.len()).rev() {
            let (sent, prepared, replaced) = (
                self.discarded[at].sent,
                self.discarded[at].prepared.clone(),
                self.discarded[at].replaced.take(),
            );
            self.undo(sent, prepared, replaced);
        }
        let mut done = done;
        if let Some(done) = &mut done {
            self.undo(done.sent, done.prepared.clone(), done.replaced.take());
        }
        Answer {
            role: Role::Failed,
            owner,
            done,
        }
    }

    /// A copy failed. What did the server read before it did?
    ///
    /// For the extended protocol the messages cannot tell: a `Sync` that the client sent behind its `Execute` was swallowed if the server got as
    /// far as reading data, and will be answered if not. We take it that it did if data was sent.
    fn copy_failed(&mut self, sent: Sent) {
        let end = (1..self.queue.len()).find(|&at| self.queue[at].sent == Sent::CopyEnd);
        if sent == Sent::Execute {
            match end {
                Some(end) => self.remove(1..=end),
                None if self.copy_data_sent => {
                    let syncs = (1..self.queue.len())
                        .take_while(|&at| self.queue[at].sent == Sent::Sync)
                        .count();
                    self.remove(1..=syncs);
                }
                None => {}
            }
        }
    }

    fn remove(&mut self, range: std::ops::RangeInclusive<usize>) {
        for _ in range.clone() {
            if let Some(pending) = self.queue.remove(*range.start()) {
                self.popped(&pending);
            }
        }
    }

    fn undo(
        &mut self,
        sent: Sent,
        prepared: Option<Arc<Prepared<S>>>,
        replaced: Option<Arc<Prepared<S>>>,
    ) {
        let Some(prepared) = prepared else { return };
        match sent {
            Sent::Parse if self.is_current(&prepared) => {
                self.remove_statement(&prepared.name);
                if let Some(replaced) = replaced {
                    self.insert_statement(replaced);
                }
            }
            Sent::Close if !self.statements.contains_key(&prepared.name) => {
                drop(self.insert_statement(prepared))
            }
            _ => {}
        }
    }

    /// Whether a statement is what its name stands for.
    fn is_current(&self, prepared: &Arc<Prepared<S>>) -> bool {
        let current = self.statements.get(&prepared.name);
        current.is_some_and(|current| Arc::ptr_eq(current, prepared))
    }

    fn insert_statement(&mut self, prepared: Arc<Prepared<S>>) -> Option<Arc<Prepared<S>>> {
        self.statement_bytes += text_bytes(&prepared);
        // Keep the key of an existing entry: the unnamed statement is replaced all the time.
        let replaced = match self.statements.get_mut(&prepared.name) {
            Some(slot) => Some(std::mem::replace(slot, prepared)),
            None => self.statements.insert(prepared.name.clone(), prepared),
        };
        self.statement_bytes -= replaced.as_deref().map_or(0, text_bytes);
        replaced
    }

    fn remove_statement(&mut self, name: &[u8]) -> Option<Arc<Prepared<S>>> {
        let removed = self.statements.remove(name);
        self.statement_bytes -= removed.as_deref().map_or(0, text_bytes);
        removed
    }
}

fn text_bytes<S>(prepared: &Prepared<S>) -> usize {
    prepared.text.as_ref().map_or(0, |text| text.len())
}

#[cfg(test)]
mod tests;
