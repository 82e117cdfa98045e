//! What follows a primary: the loop feeds it the log, in commit order, and asks what may be
//! acknowledged.

use std::sync::Arc;
use std::time::Instant;

use hindcast_pg::Lsn;

use crate::pgoutput::{Begin, Change, Commit, Relation, Truncate};

/// Where the log is applied: a Postgres backup, or the in-memory store.
///
/// Calls come from one thread, in the order of the log. Between [`Target::begin`] and
/// [`Target::commit`] there is one whole transaction: transactions that were rolled back never get
/// here.
pub trait Target {
    type Error: std::error::Error + Send + Sync + 'static;

    /// A table as it will look from here on: before its first change, and again whenever its shape
    /// has changed.
    fn relation(&mut self, relation: &Arc<Relation>) -> Result<(), Self::Error>;
    fn begin(&mut self, begin: &Begin) -> Result<(), Self::Error>;
    fn change(&mut self, relation: &Arc<Relation>, change: &Change<'_>) -> Result<(), Self::Error>;
    fn truncate(&mut self, relations: &[Arc<Relation>], how: Truncate) -> Result<(), Self::Error>;
    fn commit(&mut self, commit: &Commit) -> Result<(), Self::Error>;
    /// Everything before this position was handed over, and nothing behind it: a mark was written
    /// there ([`crate::mark`]). `is_doubted`: rows are known to be others than the primary's.
    fn mark(&mut self, at: Lsn, content: &[u8], is_doubted: bool) -> Result<(), Self::Error> {
        let _ = (at, content, is_doubted);
        Ok(())
    }
    /// Called every few milliseconds, and whenever the stream ran dry: time to cut an epoch, to see
    /// what was flushed.
    fn tick(&mut self, now: Instant) -> Result<(), Self::Error>;
    /// Nothing is under way, everything received is durable, and the log has been read to here
    /// without finding anything for us. The target notes the position as its progress now and then,
    /// so that [`Target::durable`] gets there: the primary of an idle database beside a busy one
    /// would keep WAL for ever otherwise. (Acknowledging it unnoted would be safe too, but then a
    /// backup that was put back to an older state could not be told from one that was idle.)
    fn idle(&mut self, read_to: Lsn, now: Instant) -> Result<(), Self::Error>;
    /// Everything committed so far becomes visible and durable before this returns.
    fn drain(&mut self) -> Result<(), Self::Error>;

    /// Transactions that end at or before this were handed over.
    fn received(&self) -> Lsn;
    /// Readers see all transactions that end at or before this.
    fn visible(&self) -> Lsn;
    /// Survives a crash of the target: may be acknowledged to the primary.
    fn durable(&self) -> Lsn;
    fn status(&self) -> TargetStatus;
}

/// Counters since the target was opened; all of them only grow, except where it says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetStatus {
    pub transactions: u64,
    /// Row changes as the primary made them.
    pub changes: u64,
    /// Row changes that were left after the net change of each epoch was taken.
    pub rows_written: u64,
    pub epochs: u64,
    /// Changes in the epoch that was applied last; goes up and down.
    pub epoch_changes: u64,
    /// Writes that a worker found not yet safe and put off (memory), or epochs that had to be
    /// applied again in commit order (backup).
    pub deferred: u64,
    /// When the transaction that readers saw last was committed on the primary, or up to when
    /// nothing came after it, in µs since 1970; goes up and down.
    pub visible_commit_time: Option<i64>,
    /// Bytes held in memory for changes that are not applied yet; goes up and down.
    pub pending_bytes: u64,
}
