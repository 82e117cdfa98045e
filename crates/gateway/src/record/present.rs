//! What of a recorder is in the trace already.

use std::collections::{BTreeMap, HashSet};

use hindcast_trace::{
    Gap, Id, ReadError, Record, RequestFilter, ShapeId, Trace, TransactionFilter,
};

/// By the ids and moments that the same account gives it again.
#[derive(Default)]
pub(super) struct Present {
    requests: Numbers,
    transactions: Numbers,
    shapes: HashSet<ShapeId>,
    gaps: Vec<Gap>,
    recorder: bool,
    base: bool,
}

/// Numbers without holes, by the first: the last.
#[derive(Default)]
struct Numbers(BTreeMap<u64, u64>);

impl Numbers {
    fn insert(&mut self, number: u64) {
        match self.0.range_mut(..=number).next_back() {
            Some((_, last)) if *last >= number => {}
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => {
                self.0.insert(number, number);
            }
        }
    }

    fn contains(&self, number: u64) -> bool {
        let before = self.0.range(..=number).next_back();
        before.is_some_and(|(_, last)| *last >= number)
    }
}

impl Present {
    pub fn read(trace: &Trace, recorder: u16) -> Result<Self, ReadError> {
        let ids = Id::new(recorder, 0)..=Id::new(recorder, (1 << 48) - 1);
        let mut present = Self {
            shapes: trace.shapes().iter().map(|shape| shape.id).collect(),
            gaps: trace.gaps().to_vec(),
            recorder: trace.recorders().iter().any(|one| one.number == recorder),
            ..Self::default()
        };
        // A base is written behind its recorder, and before anything else.
        let requests = RequestFilter {
            ids: Some(ids.clone()),
            lean: true,
            ..Default::default()
        };
        for request in trace.requests(requests) {
            present.requests.insert(request?.id.0);
        }
        let transactions = TransactionFilter {
            ids: Some(ids),
            lean: true,
            ..Default::default()
        };
        for transaction in trace.transactions(transactions) {
            present.transactions.insert(transaction?.id.0);
        }
        Ok(present)
    }

    /// Whether a base is there that was taken at this moment.
    pub fn with_bases(mut self, trace: &Trace, taken: Option<i64>) -> Self {
        self.base = trace.bases().iter().any(|base| Some(base.taken) == taken);
        self
    }

    pub fn has(&self, record: &Record) -> bool {
        match record {
            Record::Request(request) => self.requests.contains(request.id.0),
            Record::Transaction(transaction) => self.transactions.contains(transaction.id.0),
            Record::Shape(shape) => self.shapes.contains(&shape.id),
            Record::Gap(gap) => self.has_gap(gap),
            Record::Recorder(_) => self.recorder,
            Record::Base(_) => self.base,
            _ => false,
        }
    }

    /// Where a gap ends may be when it was told.
    pub fn has_gap(&self, gap: &Gap) -> bool {
        let same = |known: &Gap| known.from == gap.from && known.cause == gap.cause;
        self.gaps.iter().any(same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_a_set(inserted in prop::collection::vec(0u64..200, 0..100)) {
            let mut numbers = Numbers::default();
            inserted.iter().for_each(|number| numbers.insert(*number));
            for number in 0..200 {
                prop_assert_eq!(numbers.contains(number), inserted.contains(&number));
            }
        }
    }
}
