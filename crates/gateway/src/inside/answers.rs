//! Answers of HTTP, on a connection that carries one after the other.

use std::collections::VecDeque;

use super::Off;
use super::call::Call;
use super::host::Host;
use crate::messages::Body;
use crate::messages::Gathered;
use crate::messages::head;

/// The half of a connection that the service writes.
#[derive(Debug, Default)]
pub(super) struct Answers {
    head: Gathered,
    /// Of the answer that has begun.
    body: Option<Body>,
    /// Nothing more will be seen of this half.
    blind: Option<&'static str>,
}

impl Answers {
    pub fn take(
        &mut self,
        host: &mut Host,
        calls: &mut VecDeque<Call>,
        at: u64,
        mut bytes: &[u8],
    ) -> Result<(), Off> {
        while !bytes.is_empty() && self.blind.is_none() {
            let Some(call) = calls.iter_mut().find(|call| !call.is_answered()) else {
                host.counters.unasked_answers.one();
                return Ok(());
            };
            match &mut self.body {
                Some(body) => {
                    if body.take(&mut bytes, |data| call.answer_body(data))? {
                        self.ended(host, call, at)?;
                    }
                }
                None => {
                    let parsed = self.head.take(&mut bytes, head::answer)?;
                    let Some(head) = parsed.transpose()? else {
                        return Ok(());
                    };
                    self.begun(host, call, at, head)?;
                }
            }
        }
        Ok(())
    }

    fn begun(
        &mut self,
        host: &mut Host,
        call: &mut Call,
        at: u64,
        head: head::AnswerHead,
    ) -> Result<(), Off> {
        match head.status {
            101 => {
                call.upgrade(host, at, &head.headers);
                return Err(Off::Upgraded);
            }
            100..=199 => return Ok(()),
            200..=299 if call.asked.connect => {
                call.upgrade(host, at, &head.headers);
                return Err(Off::Upgraded);
            }
            _ => {}
        }
        self.body = head.body(&call.asked)?;
        call.answer(host, head.status, head.headers);
        match self.body {
            None | Some(Body::Length(0)) => self.ended(host, call, at),
            Some(_) => Ok(()),
        }
    }

    fn ended(&mut self, host: &Host, call: &mut Call, at: u64) -> Result<(), Off> {
        if let Some(body) = self.body.take()
            && !body.trailers().trim_ascii().is_empty()
        {
            call.answer_trailers(head::fields(body.trailers())?);
        }
        call.answer_whole(host, at);
        Ok(())
    }

    /// Bytes went from a file to the socket.
    pub fn unseen(
        &mut self,
        host: &Host,
        calls: &mut VecDeque<Call>,
        at: u64,
        length: u64,
    ) -> Result<(), Off> {
        if length == u64::MAX {
            self.blind = Some("the service answers by stdio, which is not seen");
            return Ok(());
        }
        let call = calls.iter_mut().find(|call| !call.is_answered());
        let (Some(call), Some(body)) = (call, &mut self.body) else {
            return Err(Off::Malformed);
        };
        call.answer_unseen(length);
        if body.skip(length)? {
            self.ended(host, call, at)?;
        }
        Ok(())
    }

    /// What is read until the connection closes has ended now.
    pub fn closed(&mut self, host: &Host, calls: &mut VecDeque<Call>, at: u64) {
        if matches!(self.body, Some(Body::UntilClosed))
            && let Some(call) = calls.iter_mut().find(|call| !call.is_answered())
        {
            self.body = None;
            call.answer_whole(host, at);
        }
    }

    /// Whether an answer has begun that only a closed connection ends.
    pub fn ends_when_closed(&self) -> bool {
        matches!(self.body, Some(Body::UntilClosed))
    }

    /// Why there will be no answers to see.
    pub fn blind(&self) -> Option<&'static str> {
        self.blind
    }
}
