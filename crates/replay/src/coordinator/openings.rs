//! Transactions begin in the order of the recording, where pools of connections are as they were.
//!
//! See [`Openings`]. Requests are sent, and hear the answers to what they asked, when those before
//! them have begun or stand in line.

use hindcast_order::{Openings, Request, Tx};

use super::Coordinator;
use crate::recording::Fate;

impl Coordinator {
    /// From here on transactions of requests begin in the order of the recording.
    pub fn begin_in_order(&mut self) {
        let recorded = |tx: Tx| self.recording.transaction(tx);
        let all = (0..self.recording.transactions.len() as u32).map(Tx);
        let is_waited_for = |&tx: &Tx| {
            let is_told = matches!(recorded(tx).fate, Fate::Committed | Fate::Aborted);
            recorded(tx).request.is_some() && is_told && !self.comes_unnoticed(tx)
        };
        let line: Vec<Tx> = all.filter(is_waited_for).collect();
        let mut openings = Openings::new(line.clone());
        let claimed = line.into_iter().filter(|tx| self.claimed[tx.index()]);
        claimed.for_each(|tx| openings.came(tx));
        self.openings = Some(openings);
    }

    /// What came unnoticed right behind this transaction, on its session: if it has declared a
    /// cursor, what reads from that.
    pub fn reads_on(&self, tx: Tx) -> Vec<Tx> {
        let recorded = self.recording.transaction(tx);
        let Some((request, _)) = recorded.request else {
            return Vec::new();
        };
        let own = self.recording.own(request).iter().copied();
        let session = |tx: Tx| self.recording.transaction(tx).session;
        let behind = own.skip_while(|&one| one != tx).skip(1);
        let behind = behind.filter(|&one| session(one) == recorded.session);
        behind
            .take_while(|&one| self.comes_unnoticed(one))
            .collect()
    }

    /// Whether a request may be sent: see [`Openings::may_begin`].
    pub fn may_go_on(&self, request: Request) -> bool {
        self.may_begin_next(request, i64::MIN)
    }

    /// Whether the request of a transaction may hear of its end.
    pub(super) fn may_hear(&self, tx: Tx) -> bool {
        let recorded = self.recording.transaction(tx);
        let request = recorded.request.map(|(request, _)| request);
        request.is_none_or(|request| self.may_begin_next(request, recorded.ended))
    }

    /// Whether the end of the transaction may have to wait.
    pub fn may_be_kept_back(&self, tx: Tx) -> bool {
        self.openings.is_some() && !self.may_hear(tx)
    }

    /// What a request begins from this moment of the recording on.
    fn may_begin_next(&self, request: Request, from: i64) -> bool {
        let Some(openings) = &self.openings else {
            return true;
        };
        let mut left = self.unclaimed(request);
        let next = left.find(|&tx| self.recording.transaction(tx).began >= from);
        next.is_none_or(|tx| openings.may_begin(tx))
    }

    /// Nothing moves: the first that has not begun stands in line, or does not come.
    pub fn pass_opening(&mut self) {
        if let Some(openings) = &mut self.openings {
            openings.pass();
        }
    }
}
