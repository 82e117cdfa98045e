//! Calls to others, kept by the request that made them.

use std::collections::BTreeMap;

use hindcast_trace::{Call, Micros};

use crate::messages;
use crate::redact::Redactor;

/// Where a call is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub request: u64,
    /// The connection, and which one it is on it.
    pub key: (u64, u32),
    pub head_only: bool,
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

    pub fn begin(&mut self, place: Place, call: Call) {
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

    pub fn is_answered(&mut self, place: Place) -> bool {
        let call = self.find(place);
        call.is_none_or(|call| !call.received.is_empty())
    }

    pub fn more(&mut self, place: Place, bytes: &[u8]) {
        if let Some(call) = self.find(place) {
            call.sent.extend_from_slice(bytes);
        }
    }

    pub fn answer(&mut self, place: Place, at: Micros, bytes: &[u8]) {
        if let Some(call) = self.find(place) {
            call.ended = at;
            call.received.extend_from_slice(bytes);
        }
    }

    pub fn closed(&mut self, place: Place) {
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
