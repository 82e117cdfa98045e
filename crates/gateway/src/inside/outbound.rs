//! A connection that the service has opened to somebody who is not its database.

use std::collections::VecDeque;

use hindcast_trace::Call;

use super::calls::Place;
use super::host::Host;
use crate::messages::{Malformed, Messages, Protocol, redis};

/// A longer call is not recorded.
const CALL_MAX: usize = 4 << 20;

/// Of one connection: where what it carries belongs.
pub(super) struct Outbound {
    stream: u64,
    peer: String,
    encrypted: bool,
    protocol: Option<Protocol>,
    /// Of a request that has not come to its end; before the protocol is known, all that was sent.
    sent: Vec<u8>,
    asks: Messages,
    answers: Messages,
    /// Of an answer that has not come to its end.
    received: Vec<u8>,
    /// On whose behalf `sent` was begun.
    turn: u64,
    began: u64,
    /// How many calls there were.
    count: u32,
    /// Those of which answers are to come; one as often as messages answer it.
    waiting: VecDeque<Place>,
    /// Commands of Redis that run together, from their `MULTI` on.
    together: Option<Place>,
}

impl Outbound {
    pub fn new(stream: u64, peer: &[u8]) -> Self {
        Self {
            stream,
            peer: String::from_utf8_lossy(peer).into_owned(),
            encrypted: false,
            protocol: None,
            sent: Vec::new(),
            asks: Messages::Other,
            answers: Messages::Other,
            received: Vec::new(),
            turn: 0,
            began: 0,
            count: 0,
            waiting: VecDeque::new(),
            together: None,
        }
    }

    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// From here on, bytes are what the service encrypts.
    pub fn encrypted(&mut self) {
        self.encrypted = true;
        self.protocol = None;
        self.sent.clear();
        self.waiting.clear();
        self.together = None;
    }

    pub fn is_busy(&self) -> bool {
        !self.sent.is_empty() || !self.waiting.is_empty()
    }

    pub fn sent(
        &mut self,
        host: &mut Host,
        at: u64,
        turn: Option<u64>,
        bytes: &[u8],
    ) -> Result<(), Malformed> {
        if self.sent.is_empty() {
            (self.turn, self.began) = (turn.unwrap_or(0), at);
        }
        let gathered;
        let mut bytes = bytes;
        if self.protocol.is_none() {
            self.sent.extend_from_slice(bytes);
            let Some(protocol) = Protocol::of(&self.sent) else {
                return Ok(());
            };
            self.protocol = Some(protocol);
            self.asks = Messages::asks(protocol);
            self.answers = Messages::answers(protocol);
            gathered = std::mem::take(&mut self.sent);
            bytes = &gathered;
        }
        if self.protocol == Some(Protocol::Other) {
            self.other_sent(host, at, turn.unwrap_or(0), bytes);
            return Ok(());
        }
        while !bytes.is_empty() {
            if self.sent.is_empty() {
                (self.turn, self.began) = (turn.unwrap_or(0), at);
            }
            let whole = self.asks.take(&mut bytes, &mut self.sent, false);
            if whole? {
                let sent = std::mem::take(&mut self.sent);
                match self.protocol {
                    Some(Protocol::Redis) => self.command(host, sent),
                    _ => self.begin(host, self.turn, self.began, sent),
                }
            }
            if self.sent.len() > CALL_MAX {
                return Err(Malformed);
            }
        }
        Ok(())
    }

    /// What runs together is one call, since only its end has an answer that says something.
    fn command(&mut self, host: &mut Host, sent: Vec<u8>) {
        let word = redis::name(&sent);
        if let Some(place) = self.together {
            host.calls.more(place, &sent);
            self.waiting.push_back(place);
            if redis::ends_together(&word) {
                self.together = None;
            }
            return;
        }
        let answers = redis::answers(&sent);
        self.begin(host, self.turn, self.began, sent);
        if let Some(&place) = self.waiting.back() {
            self.together = redis::begins_together(&word).then_some(place);
            (1..answers).for_each(|_| self.waiting.push_back(place));
        }
    }

    /// What is sent before anything is answered is one call.
    fn other_sent(&mut self, host: &mut Host, at: u64, turn: u64, bytes: &[u8]) {
        let open = self.waiting.front().copied();
        match open.filter(|open| open.request == turn && !host.calls.is_answered(*open)) {
            Some(open) => host.calls.more(open, bytes),
            None => {
                self.waiting.clear();
                self.received.clear();
                self.begin(host, turn, at, bytes.to_vec());
            }
        }
    }

    fn begin(&mut self, host: &mut Host, request: u64, at: u64, sent: Vec<u8>) {
        let place = Place {
            request,
            key: (self.stream, self.count),
            head_only: sent.starts_with(b"HEAD "),
        };
        self.count = self.count.wrapping_add(1);
        let at = host.clock.micros(at);
        let call = Call {
            peer: self.peer.clone(),
            within: request != 0,
            encrypted: self.encrypted,
            began: at,
            ended: at,
            sent,
            received: Vec::new(),
            closed: false,
        };
        host.calls.begin(place, call);
        self.waiting.push_back(place);
    }

    pub fn received(
        &mut self,
        host: &mut Host,
        at: u64,
        mut bytes: &[u8],
    ) -> Result<(), Malformed> {
        if self.protocol == Some(Protocol::Redis) {
            return self.redis_received(host, at, bytes);
        }
        while !bytes.is_empty() {
            let Some(&place) = self.waiting.front() else {
                // Servers may speak first.
                if self.protocol.is_none() || self.protocol == Some(Protocol::Other) {
                    self.protocol = Some(Protocol::Other);
                    self.begin(host, 0, at, Vec::new());
                    continue;
                }
                return Ok(());
            };
            let at = host.clock.micros(at);
            let before = self.received.len();
            let answer = &mut self.received;
            let whole = self.answers.take(&mut bytes, answer, place.head_only)?;
            host.calls.answer(place, at, &answer[before..]);
            if answer.len() > CALL_MAX {
                return Err(Malformed);
            }
            if whole {
                answer.clear();
                self.waiting.pop_front();
            }
            if whole || self.protocol == Some(Protocol::Other) {
                host.calls.whole(place);
            }
        }
        Ok(())
    }

    /// An answer is told when it is whole: what is published comes between answers.
    fn redis_received(
        &mut self,
        host: &mut Host,
        at: u64,
        mut bytes: &[u8],
    ) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            let whole = self.answers.take(&mut bytes, &mut self.received, false)?;
            if self.received.len() > CALL_MAX {
                return Err(Malformed);
            }
            if !whole {
                continue;
            }
            let message = std::mem::take(&mut self.received);
            if redis::is_published(&message) {
                self.published(host, at, message);
                continue;
            }
            let Some(place) = self.waiting.pop_front() else {
                continue;
            };
            host.calls.answer(place, host.clock.micros(at), &message);
            if self.waiting.front() != Some(&place) && self.together != Some(place) {
                host.calls.whole(place);
            }
        }
        Ok(())
    }

    /// It is kept as what the other side said unasked.
    fn published(&mut self, host: &mut Host, at: u64, message: Vec<u8>) {
        self.begin(host, 0, at, Vec::new());
        if let Some(place) = self.waiting.pop_back() {
            host.calls.answer(place, host.clock.micros(at), &message);
            host.calls.whole(place);
        }
    }

    /// The other side will say nothing more.
    pub fn closed(&mut self, host: &mut Host) {
        if let Some(place) = self.waiting.pop_front() {
            host.calls.closed(place);
        }
    }
}

#[cfg(test)]
mod tests;
