//! Requests that are answered and may still be worked on: jobs that they have posted, and what PHP
//! does behind an answer, read the clock and call others as well.
//!
//! A request is told when nothing of it has come for a while; its times are those of its answer.

use std::collections::{BTreeMap, BTreeSet};

use hindcast_trace::{Micros, Response};

use crate::http::Exchange;

/// For how long something may still come, in nanoseconds.
const PATIENCE: u64 = 5_000_000_000;
/// Requests that are waited for; of more, the one goes that is due first.
const REQUESTS_MAX: usize = 1 << 12;

/// Answered, and not told yet.
pub(super) struct Ended {
    pub exchange: Exchange,
    pub at: Micros,
    pub response: Response,
}

/// By the number of their turn.
#[derive(Default)]
pub(super) struct Late {
    ended: BTreeMap<u64, (u64, Ended)>,
    due: BTreeSet<(u64, u64)>,
}

impl Late {
    /// A request was answered at this moment. Returns one that is not waited for any longer.
    pub fn answered(&mut self, moment: u64, turn: u64, ended: Ended) -> Option<(u64, Ended)> {
        let due = moment.saturating_add(PATIENCE);
        self.due.insert((due, turn));
        self.ended.insert(turn, (due, ended));
        (self.ended.len() > REQUESTS_MAX).then(|| self.take_before(u64::MAX))?
    }

    /// At this moment a request was still worked on, if it is one of these.
    pub fn goes_on(&mut self, moment: u64, turn: u64) {
        if let Some((due, _)) = self.ended.get_mut(&turn) {
            self.due.remove(&(*due, turn));
            *due = moment.saturating_add(PATIENCE).max(*due);
            self.due.insert((*due, turn));
        }
    }

    /// One of which nothing has come up to this moment for long enough.
    pub fn take_before(&mut self, moment: u64) -> Option<(u64, Ended)> {
        let &first = self.due.first().filter(|&&(due, _)| due <= moment)?;
        self.due.remove(&first);
        let (_, ended) = self.ended.remove(&first.1)?;
        Some((first.1, ended))
    }
}
