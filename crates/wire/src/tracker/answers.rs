//! What the server's messages answer.

use std::sync::Arc;

use super::Tracker;
use super::pending::{Answer, Owner, Pending, Role, Sent, Unexpected};
use crate::message::backend::{self, Status};

impl<T, S> Tracker<T, S> {
    /// Takes a message from the server: what is answered by it?
    ///
    /// `body` may be incomplete for messages that are streamed.
    pub fn answer(&mut self, tag: u8, body: &[u8]) -> Result<Answer<T, S>, Unexpected> {
        use backend::*;
        if matches!(
            tag,
            NOTICE_RESPONSE | NOTIFICATION_RESPONSE | PARAMETER_STATUS
        ) {
            let role = match self.established {
                true => Role::Aside,
                false => Role::Startup,
            };
            return Ok(Answer::part(role, Owner::Client));
        }
        if !self.established {
            return self.startup(tag, body);
        }
        self.discarded.clear();
        let ends_copy = |front: &Pending<T, S>| front.sent == Sent::CopyEnd;
        while !self.copying && self.queue.front().is_some_and(ends_copy) {
            self.pop();
        }
        match self.queue.front() {
            Some(front) => self.answer_to(front.sent, front.owner, tag, body),
            // The session is being ended.
            None if tag == ERROR_RESPONSE => Ok(Answer::part(Role::Failed, Owner::Client)),
            // After a failed copy it cannot be told how many `Sync`s the server swallowed.
            None if tag == READY_FOR_QUERY => self.ready(body, None),
            None => Err(Unexpected::NothingOutstanding),
        }
    }

    /// The message in front is `sent`, by `owner`.
    fn answer_to(
        &mut self,
        sent: Sent,
        owner: Owner,
        tag: u8,
        body: &[u8],
    ) -> Result<Answer<T, S>, Unexpected> {
        use backend::*;
        let part = |role| Ok(Answer::part(role, owner));
        match (sent, tag) {
            (_, ERROR_RESPONSE) => Ok(self.failed()),
            (Sent::Query | Sent::FunctionCall | Sent::Sync, READY_FOR_QUERY) => {
                let done = self.pop();
                self.ready(body, done)
            }
            (Sent::Query, ROW_DESCRIPTION)
            | (Sent::Query | Sent::Execute, DATA_ROW | COPY_OUT_RESPONSE | COPY_DATA | COPY_DONE)
            | (Sent::DescribeStatement, PARAMETER_DESCRIPTION) => part(Role::Part),
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
                match sent {
                    Sent::Execute => Ok(self.done(Role::Statement, owner)),
                    _ => part(Role::Statement),
                }
            }
            (Sent::FunctionCall, FUNCTION_CALL_RESPONSE) => part(Role::Statement),
            (Sent::Parse, PARSE_COMPLETE)
            | (Sent::Bind, BIND_COMPLETE)
            | (Sent::Close, CLOSE_COMPLETE)
            | (Sent::DescribeStatement | Sent::DescribePortal, ROW_DESCRIPTION | NO_DATA) => {
                Ok(self.done(Role::Done, owner))
            }
            _ => Err(Unexpected::NotAnAnswer(sent)),
        }
    }

    /// The message in front is answered in full.
    fn done(&mut self, role: Role, owner: Owner) -> Answer<T, S> {
        Answer {
            role,
            owner,
            done: self.pop(),
        }
    }

    /// What the server discards because of the error that was just answered, in the order in which
    /// it was sent.
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
        Ok(Answer::part(Role::Startup, Owner::Client))
    }

    fn ready(
        &mut self,
        body: &[u8],
        done: Option<Pending<T, S>>,
    ) -> Result<Answer<T, S>, Unexpected> {
        self.status = backend::parse_ready_for_query(body)?;
        self.copying = false;
        if let (Status::Idle, Some(done)) = (self.status, &done) {
            self.names.end_transaction(done.sequence);
        }
        let owner = done.as_ref().map_or(Owner::Client, |done| done.owner);
        Ok(Answer {
            role: Role::Ready(self.status),
            owner,
            done,
        })
    }

    /// The copy in front ended well: with it go its end, and the `Sync`s that were swallowed before
    /// that.
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
            return Answer::part(Role::Failed, owner);
        }
        let mut done = self.pop();
        let kept = (0..self.queue.len()).find(|&at| self.queue[at].sent == Sent::Sync);
        self.discarding = kept.is_none();
        for _ in 0..kept.unwrap_or(self.queue.len()) {
            let pending = self.pop().expect("it was counted");
            self.discarded.push(pending);
        }
        // In reverse, so that of several definitions of a name the oldest comes back last.
        for undone in self.discarded.iter_mut().rev().chain(&mut done) {
            let replaced = undone.replaced.take();
            match (undone.sent, &undone.prepared) {
                (Sent::Parse, Some(prepared)) => self.names.undo_prepare(prepared, replaced),
                (Sent::Close, Some(prepared)) => self.names.undo_close(Arc::clone(prepared)),
                _ => {}
            }
        }
        Answer {
            role: Role::Failed,
            owner,
            done,
        }
    }

    /// A copy failed. What did the server read before it did?
    ///
    /// For the extended protocol the messages cannot tell: a `Sync` that the client sent behind its
    /// `Execute` was swallowed if the server got as far as reading data, and will be answered if
    /// not. We take it that it did if data was sent.
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
}
