//! Values that are not transactional and are to come out as recorded.

use hindcast_trace::{Isolation, Micros, SequenceValue};

use crate::looks::Stretch;

/// What a transaction is to see again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    pub isolation: Option<Isolation>,
    pub now: Option<Micros>,
    pub sequence_values: Vec<SequenceValue>,
    /// It only read: nothing but `SELECT`s that lock nothing, draw from no sequence and read no
    /// clock. Then there is nothing to pin, and it may stay read-only.
    pub reads_only: bool,
    /// It aborted originally, so what beat it goes first; see
    /// [`Ask::Act`](crate::transaction::Ask::Act).
    pub acts_late: bool,
    /// It ran under READ COMMITTED, and this is what later statements saw; `None`: that is not
    /// known.
    pub looks: Option<Vec<Stretch>>,
    /// The hashes of its statements. Empty where they are certainly those that come.
    pub statements: Vec<u64>,
}

impl Pins {
    /// For the settings `hindcast_pins.now` and `hindcast_pins.sequences`; empty for what is not
    /// pinned.
    pub(super) fn settings(&self) -> (String, String) {
        let mut settings = hindcast_rewind::pins::settings(&self.sequence_values, self.now);
        let mut take = |name| {
            settings
                .iter_mut()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| std::mem::take(value))
                .unwrap_or_default()
        };
        (take("hindcast_pins.now"), take("hindcast_pins.sequences"))
    }
}
