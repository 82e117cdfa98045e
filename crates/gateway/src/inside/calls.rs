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

#[derive(Debug)]
struct Kept {
    /// The connection, and which one it is on it.
    key: (u64, u32),
    /// More of the answer is to come.
    is_awaited: bool,
    call: Call,
}

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
        own.push(Kept {
            key: place.key,
            is_awaited: true,
            call,
        });
        if self.by_request.len() > Self::REQUESTS_MAX {
            // The first is nobody's.
            let oldest = self.by_request.keys().find(|&&request| request != 0);
            let oldest = oldest.copied().unwrap_or_default();
            self.by_request.remove(&oldest);
        }
    }

    fn find(&mut self, place: Place) -> Option<&mut Kept> {
        let mut own = self.by_request.get_mut(&place.request)?.iter_mut().rev();
        own.find(|kept| kept.key == place.key)
    }

    pub fn is_answered(&mut self, place: Place) -> bool {
        let kept = self.find(place);
        kept.is_none_or(|kept| !kept.call.received.is_empty())
    }

    pub fn more(&mut self, place: Place, bytes: &[u8]) {
        if let Some(kept) = self.find(place) {
            kept.call.sent.extend_from_slice(bytes);
        }
    }

    pub fn answer(&mut self, place: Place, at: Micros, bytes: &[u8]) {
        if let Some(kept) = self.find(place) {
            kept.call.ended = at;
            kept.call.received.extend_from_slice(bytes);
        }
    }

    /// All of its answer was told that is waited for.
    pub fn whole(&mut self, place: Place) {
        if let Some(kept) = self.find(place) {
            kept.is_awaited = false;
        }
    }

    pub fn closed(&mut self, place: Place) {
        if let Some(kept) = self.find(place) {
            kept.is_awaited = false;
            kept.call.closed = true;
        }
    }

    /// Those of a request, and before them what was asked on nobody's behalf since the last and
    /// has its answer: who looks for a job may wait for it for as long as many requests take.
    pub fn take(&mut self, request: u64, redactor: &Redactor) -> Vec<Call> {
        let mut take = |of| self.by_request.remove(&of).unwrap_or_default();
        let (awaited, nobodys): (Vec<_>, Vec<_>) =
            take(0).into_iter().partition(|kept| kept.is_awaited);
        let all: Vec<_> = nobodys.into_iter().chain(take(request)).collect();
        if !awaited.is_empty() {
            self.by_request.insert(0, awaited);
        }
        let all = all.into_iter().map(|Kept { mut call, .. }| {
            if let Some(sent) = messages::without_password(&call.sent) {
                call.sent = sent;
            }
            redactor.call(&mut call);
            call
        });
        all.collect()
    }
}
