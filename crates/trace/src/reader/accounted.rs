//! Several recorders of one database: each finds the others' transactions written past itself.

use std::collections::HashSet;

use super::{Trace, TransactionFilter};
use crate::{Gap, GapCause, Xid};

/// The gaps, without ids that some recorder has the transactions of. What cannot be read takes
/// nothing away.
pub(super) fn gaps(trace: &Trace) -> Vec<Gap> {
    let mut gaps = trace.small.gaps.clone();
    if trace.recorders().len() < 2 || gaps.iter_mut().all(|gap| ids(gap).is_none()) {
        return gaps;
    }
    let lean = TransactionFilter {
        lean: true,
        ..TransactionFilter::default()
    };
    let recorded: HashSet<Xid> = trace
        .transactions(lean)
        .map_while(Result::ok)
        .flat_map(|transaction| transaction.xid.into_iter().chain(transaction.subxids))
        .collect();
    gaps.retain_mut(|gap| {
        ids(gap).is_none_or(|ids| {
            let before = ids.len();
            ids.retain(|id| !recorded.contains(id));
            ids.len() == before || !ids.is_empty()
        })
    });
    gaps
}

/// The ids that a gap is about.
fn ids(gap: &mut Gap) -> Option<&mut Vec<Xid>> {
    match &mut gap.cause {
        GapCause::Unaccounted { xids, .. } | GapCause::Unexplained { xids, .. } => Some(xids),
        _ => None,
    }
}
