//! Which of a request's transactions that begin with the same statement is which. A service that
//! asks several things at a time may ask them in another order, and then their values tell.

use hindcast_order::{Request, Tx};

use super::Coordinator;
use crate::transaction::Opening;

impl Coordinator {
    /// The first that begins with the statement, or the one of those with its values. What was a
    /// statement by itself is no transaction that its client has begun.
    pub(super) fn matching(&self, request: Request, opening: Opening<'_>) -> Option<Tx> {
        let is_single = |tx: Tx| self.shapes.is_single(self.recording.transaction(tx).shape);
        let begins =
            |&tx: &Tx| self.opening(tx) == Some(opening.hash) && !(opening.begun && is_single(tx));
        let mut equal = self.unclaimed(request).filter(begins);
        let first = equal.next()?;
        let values = opening.values;
        let values = values.and_then(|values| self.recording.values_digest(request, values));
        let with = |tx: Tx| values.is_some() && self.recording.transaction(tx).values == values;
        let sooner = |&tx: &Tx| with(tx) && self.may_come_sooner(request, tx, first, opening);
        match with(first) {
            true => Some(first),
            false => equal.find(sooner).or(Some(first)),
        }
    }

    /// Whether a transaction may come before another one that begins with the same statement,
    /// which began sooner originally and has not come.
    ///
    /// It may where the request sent both without waiting for the first. What waited for a write
    /// cannot come before it, and taken for such a one, it would wait for what waits for it.
    fn may_come_sooner(&self, request: Request, tx: Tx, first: Tx, opening: Opening<'_>) -> bool {
        let reads = self.only_reads(tx);
        let mut over = self.over_before(request, tx);
        let was_before = over.all(|one| self.comes_unnoticed(one) || reads && self.only_reads(one));
        was_before
            && self.were_sent_together(first, tx)
            && !(opening.reads_alone && self.is_far(request, tx, opening.hash))
    }

    /// Whether a request sent two transactions that begin with the same statement at a time: they,
    /// or others like them in between, overlapped; or those like them went by several connections,
    /// of which some may have had to be opened, or to be waited for.
    pub(super) fn were_sent_together(&self, earlier: Tx, later: Tx) -> bool {
        let one = self.recording.transaction(earlier);
        let opening = self.opening(earlier);
        let (Some((request, _)), Some(_)) = (one.request, opening) else {
            return false;
        };
        if opening != self.opening(later) {
            return false;
        }
        let own = self.recording.own(request).iter().copied();
        let mut equal = own.filter(|&tx| self.opening(tx) == opening);
        let mut between = equal.clone().filter(|&tx| earlier < tx && tx <= later);
        let mut until = one.ended;
        let overlap = between.all(|tx| {
            let recorded = self.recording.transaction(tx);
            let overlaps = recorded.began < until;
            until = until.max(recorded.ended);
            overlaps
        });
        overlap || equal.any(|tx| self.recording.transaction(tx).session != one.session)
    }
}
