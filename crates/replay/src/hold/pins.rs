//! Values that are not transactional and are to come out as recorded.

use hindcast_rewind::pins::Values;
use hindcast_trace::{DrawnUuid, Isolation, Micros, SequenceValue};

use crate::looks::Stretch;

/// What a transaction is to see again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    pub isolation: Option<Isolation>,
    pub now: Option<Micros>,
    pub sequence_values: Vec<SequenceValue>,
    pub drawn_uuids: Vec<DrawnUuid>,
    /// It only read: nothing but `SELECT`s that lock nothing, draw from no sequence and read no
    /// clock. Then there is nothing to pin, and it may stay read-only.
    pub reads_only: bool,
    /// It aborted originally, so what beat it goes first; see
    /// [`Ask::Act`](crate::transaction::Ask::Act).
    pub acts_late: bool,
    /// It ran under READ COMMITTED, and this is what later statements saw; `None`: that is not
    /// known.
    pub looks: Option<Vec<Stretch>>,
    /// Its statements that are to try for an advisory lock in vain.
    pub refused: Vec<u32>,
    /// Its statements that insert in the order of a sequence.
    pub inserts: Vec<u32>,
    /// The hashes of its statements. Empty where they are certainly those that come.
    pub statements: Vec<u64>,
}

impl Pins {
    /// What [`hindcast_rewind::pins::SETTINGS`] are to be.
    pub(super) fn settings(&self) -> [String; 3] {
        let values = Values {
            now: self.now,
            sequences: &self.sequence_values,
            uuids: &self.drawn_uuids,
        };
        values.settings()
    }
}
