//! Reads that do not come, and come nowhere else: what they would bring was put into a cache by
//! another statement.
//!
//! ```text
//!   recorded   request 1: user, kind by id, list     request 2: user, list
//!   replayed   request 1: user, list                 request 2: user, list
//! ```
//!
//! A process that has looked a kind up by its name has it by its id, too. That the code goes
//! without such a read is known where the recording has a request that did: it went from what is in
//! front of the read to what is behind it.

use std::collections::HashSet;

use hindcast_order::{Request, Tx};

use super::Coordinator;

impl Coordinator {
    /// Whether a read that did not come, as others that are missing, is one that the code goes
    /// without now and then, and its request is otherwise as recorded.
    pub(super) fn goes_without(&self, read: Tx, missing: &HashSet<Tx>) -> bool {
        let request = self.recording.transaction(read).request;
        let Some((request, _)) = request.filter(|_| self.only_reads(read)) else {
            return false;
        };
        let id = self.recording.request(request).id;
        let mut different = self.divergences().map(|one| one.position.request);
        if different.any(|one| one == Some(id)) {
            return false;
        }
        let own = self.recording.own(request);
        let Some(at) = own.iter().position(|&tx| tx == read) else {
            return false;
        };
        let came = |tx: &&Tx| !missing.contains(tx);
        let around = own[..at]
            .iter()
            .rfind(came)
            .zip(own[at + 1..].iter().find(came));
        let openings = around.and_then(|(&before, &behind)| {
            let opening = self.opening(read)?;
            Some((self.opening(before)?, opening, self.opening(behind)?))
        });
        openings.is_some_and(|(before, read, behind)| {
            let mut others = self.moved.senders_of(before).filter(|&one| one != request);
            others.any(|other| self.went_without(other, before, read, behind))
        })
    }

    /// Whether a recorded request went from one statement to another without a read in between.
    fn went_without(&self, request: Request, before: u64, read: u64, behind: u64) -> bool {
        let own = self.recording.own(request).iter();
        let mut is_between = false;
        for opening in own.map(|&tx| self.opening(tx)) {
            match opening {
                Some(one) if one == behind && is_between => return true,
                Some(one) if one == read => is_between = false,
                Some(one) if one == before => is_between = true,
                _ => {}
            }
        }
        false
    }
}
