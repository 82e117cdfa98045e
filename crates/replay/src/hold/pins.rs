//! Values that are not transactional and are to come out as recorded.

use hindcast_rewind::pins::{Settings, Values};
use hindcast_trace::{Drawn, DrawnUuid, Isolation, Micros};

use crate::looks::Stretch;

/// What a transaction is to see again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pins {
    pub isolation: Option<Isolation>,
    pub now: Option<Micros>,
    pub drawn: Vec<Drawn>,
    pub drawn_uuids: Vec<DrawnUuid>,
    /// It only read: nothing but `SELECT`s that lock nothing, draw from no sequence and read no
    /// clock. Then there is nothing to pin, and it may stay read-only.
    pub reads_only: bool,
    /// Changed code: it wrote or drew originally, also where that is in a function which its text
    /// only calls.
    pub wrote: bool,
    /// It aborted originally, so what beat it goes first; see
    /// [`Ask::Act`](crate::transaction::Ask::Act).
    pub acts_late: bool,
    /// It ran under READ COMMITTED, and this is what later statements saw; `None`: that is not
    /// known.
    pub looks: Option<Vec<Stretch>>,
    /// Its statements that are to try for an advisory lock in vain.
    pub refused: Vec<u32>,
    /// Changed code: all that tried, by their places and hashes. One that is not there is decided
    /// by the database.
    pub tries: Vec<(u32, u64)>,
    /// Its statements that insert in an order.
    pub inserts: Vec<u32>,
    /// Its statements that found a key taken.
    pub losing: Vec<u32>,
    /// Those that change rows of tables in which others did.
    pub changes: Vec<u32>,
    /// In which order the rows of its statements came; see
    /// [`RowOrder::all`](hindcast_wire::row_order::RowOrder::all).
    pub row_order: Vec<u8>,
    /// The hashes of its statements. Empty where they are certainly those that come.
    pub statements: Vec<u64>,
}

impl Pins {
    /// What [`hindcast_rewind::pins::SETTINGS`] are to be, from this statement on.
    pub(super) fn settings(&self, from: u32) -> Settings {
        let is_left = |one: &&Drawn| one.statement.is_none_or(|statement| statement >= from);
        let drawn: Vec<Drawn> = self.drawn.iter().filter(is_left).copied().collect();
        let values = Values {
            now: self.now,
            drawn: &drawn,
            uuids: &self.drawn_uuids,
        };
        values.settings()
    }

    /// Whether it is known which of its statements drew what.
    pub(super) fn draws_by_statement(&self) -> bool {
        self.drawn.iter().any(|one| one.statement.is_some())
    }
}
