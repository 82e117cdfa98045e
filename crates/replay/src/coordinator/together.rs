//! Which of a request's transactions that begin with the same statement is which. A service that
//! asks several things at a time may ask them in another order, and then their values tell.

use hindcast_order::{Request, Tx};

use super::Coordinator;
use crate::recording::Fate;
use crate::transaction::Opening;

/// Whether a transaction is a reading one of its request that begins further on than it did, or the
/// one behind that, which begins so and writes.
///
/// ```text
///   recorded   read a, b, c     read b, write
///   replayed   read b, c: another request has filled the cache that a is from
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OneBefore {
    /// There are no such two.
    No,
    /// Both have what came so far. The first one is this.
    Open(Tx),
    /// Only this one of them has it.
    Told(Tx),
}

impl Coordinator {
    /// Where the first reads of a transaction do not come, what it begins with may be what a later
    /// one begins with that writes. What only one of the two has tells them apart, where each
    /// statement has a snapshot of its own.
    pub(super) fn is_one_before(&self, request: Request, opening: Opening<'_>) -> OneBefore {
        let reads = |hash: &u64| self.shapes.read(*hash).is_some();
        if !opening.begun || !reads(&opening.hash) {
            return OneBefore::No;
        }
        let came: Vec<u64> = opening.earlier.iter().copied().filter(reads).collect();
        let came = || came.iter().copied().chain([opening.hash]);
        let shape = |tx: Tx| self.recording.transaction(tx).shape;
        let is_free = |tx: &Tx| {
            let recorded = self.recording.transaction(*tx);
            recorded.is_read_committed() && recorded.fate == Fate::Committed
        };
        let begins_so = |tx: &Tx| came().any(|hash| self.opening(*tx) == Some(hash));
        let writes = |tx: &Tx| self.shapes.is_begun_to_write(shape(*tx)) && is_free(tx);
        let Some(writer) = self
            .unclaimed(request)
            .find(|tx| writes(tx) && begins_so(tx))
        else {
            return OneBefore::No;
        };
        let has = |tx: Tx, hash: u64| {
            let statements = self.shapes.statements(shape(tx));
            statements.is_some_and(|all| all.contains(&hash))
        };
        let further_on = |tx: &Tx| {
            let is_one = is_free(tx) && self.only_reads(*tx) && !begins_so(tx);
            is_one && came().any(|hash| has(*tx, hash))
        };
        let Some(reader) = self.over_before(request, writer).find(further_on) else {
            return OneBefore::No;
        };
        let only = |one: Tx, other: Tx| came().any(|hash| has(one, hash) && !has(other, hash));
        match (only(reader, writer), only(writer, reader)) {
            (true, false) => OneBefore::Told(reader),
            (_, true) => OneBefore::Told(writer),
            (false, false) => OneBefore::Open(reader),
        }
    }

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

    /// Whether a read asks once more what its request has just read, and the next of the recording
    /// that asks so lies behind other reads which have not come. It fills a cache that another
    /// request filled originally, and in the place of that next one, it would take those others
    /// for reads that do not come.
    ///
    /// ```text
    ///   recorded   kind 1, a    kind 1, b    kind 2, c
    ///   replayed   kind 1, kind 1, a         the second one is for the cache
    /// ```
    pub(super) fn asks_again(&self, request: Request, tx: Tx, opening: Opening<'_>) -> bool {
        let values = opening.values;
        let values = values.and_then(|values| self.recording.values_digest(request, values));
        let own = self.recording.own(request).iter().copied();
        let claimed = |one: &Tx| self.claimed[one.index()];
        let Some(before) = own.take_while(|&one| one < tx).filter(claimed).last() else {
            return false;
        };
        let recorded = |one: Tx| self.recording.transaction(one);
        let is_same = values.is_some()
            && recorded(before).values == values
            && self.opening(before) == Some(opening.hash);
        let lies_between = |one: Tx| {
            let is_behind = recorded(before).ended <= recorded(one).began;
            is_behind && self.only_reads(one) && !self.comes_unnoticed(one)
        };
        is_same && self.is_over_with(before) && self.over_before(request, tx).any(lies_between)
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
