//! A connection that the service has opened to somebody who is not its database.

use std::collections::{BTreeMap, VecDeque};

use hindcast_trace::{Call, Micros};

use super::host::Host;
use crate::messages::{self, Malformed, Messages, Protocol};
use crate::redact::Redactor;

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
    /// Those of which answers are to come.
    waiting: VecDeque<Place>,
}

/// Where a call is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    request: u64,
    /// The connection, and which one it is on it.
    key: (u64, u32),
    head_only: bool,
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
        }
    }

    /// From here on, bytes are what the service encrypts.
    pub fn encrypted(&mut self) {
        self.encrypted = true;
        self.protocol = None;
        self.sent.clear();
        self.waiting.clear();
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
                self.begin(host, self.turn, self.began, sent);
            }
            if self.sent.len() > CALL_MAX {
                return Err(Malformed);
            }
        }
        Ok(())
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
        while !bytes.is_empty() {
            let Some(&place) = self.waiting.front() else {
                // Servers may speak first; and what is published comes when it comes.
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
        }
        Ok(())
    }

    /// The other side will say nothing more.
    pub fn closed(&mut self, host: &mut Host) {
        if let Some(place) = self.waiting.pop_front() {
            host.calls.closed(place);
        }
    }
}

/// By the connection, and which one it is on it.
type Kept = ((u64, u32), Call);

/// What requests asked of others, until they end.
#[derive(Debug, Default)]
pub(super) struct Calls {
    by_request: BTreeMap<u64, Vec<Kept>>,
}

impl Calls {
    /// Requests of which calls are kept. What is asked after the answer is told, too, and is not
    /// asked for any more; of those that wait, the oldest goes.
    const REQUESTS_MAX: usize = 1 << 13;
    /// Calls on nobody's behalf that wait for the next request.
    const NOBODYS_MAX: usize = 1000;

    fn begin(&mut self, place: Place, call: Call) {
        let own = self.by_request.entry(place.request).or_default();
        if place.request == 0 && own.len() >= Self::NOBODYS_MAX {
            own.remove(0);
        }
        own.push((place.key, call));
        if self.by_request.len() > Self::REQUESTS_MAX {
            // The first is nobody's.
            let oldest = self.by_request.keys().find(|&&request| request != 0);
            let oldest = oldest.copied().unwrap_or_default();
            self.by_request.remove(&oldest);
        }
    }

    fn find(&mut self, place: Place) -> Option<&mut Call> {
        let own = self.by_request.get_mut(&place.request)?.iter_mut().rev();
        let mut own = own.filter(|(key, _)| *key == place.key);
        own.next().map(|(_, call)| call)
    }

    fn is_answered(&mut self, place: Place) -> bool {
        let call = self.find(place);
        call.is_none_or(|call| !call.received.is_empty())
    }

    fn more(&mut self, place: Place, bytes: &[u8]) {
        if let Some(call) = self.find(place) {
            call.sent.extend_from_slice(bytes);
        }
    }

    fn answer(&mut self, place: Place, at: Micros, bytes: &[u8]) {
        if let Some(call) = self.find(place) {
            call.ended = at;
            call.received.extend_from_slice(bytes);
        }
    }

    fn closed(&mut self, place: Place) {
        if let Some(call) = self.find(place) {
            call.closed = true;
        }
    }

    /// Those of a request, and before them what was asked on nobody's behalf since the last.
    pub fn take(&mut self, request: u64, redactor: &Redactor) -> Vec<Call> {
        let mut take = |of| self.by_request.remove(&of).unwrap_or_default();
        let all = take(0).into_iter().chain(take(request));
        let all = all.map(|(_, mut call)| {
            if let Some(sent) = messages::without_password(&call.sent) {
                call.sent = sent;
            }
            redactor.call(&mut call);
            call
        });
        all.collect()
    }
}

#[cfg(test)]
mod tests;
