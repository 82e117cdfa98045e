//! Which requests built on what another one did, as far as a run shows it.

use std::collections::HashMap;

use hindcast_order::{Levels, Tx};
use hindcast_replay::Recording;
use hindcast_replay::changes::{Changes, DifferenceKind};
use hindcast_trace::{RequestId, TransactionId};

use crate::correction::Dependents;
use crate::report::Cause;
use crate::selection::Selector;

/// How many are named.
const NAMED_MAX: usize = 10;

/// Requests whose transactions went otherwise than originally, each with what its statements read.
/// A request that read a changed row has another result; so who saw a cause's writes, reads its
/// table and had the same result did not depend on it.
pub struct Readers {
    readers: Vec<Reader>,
    /// By recorded transaction that wrote: from which level on its writes were seen.
    seen_from: HashMap<TransactionId, u32>,
}

struct Reader {
    request: RequestId,
    level: u32,
    /// `None`: what it reads could not be determined.
    tables: Option<Vec<String>>,
}

impl Readers {
    pub fn new(
        changes: &Changes,
        recording: &Recording,
        levels: &Levels,
        selector: &Selector,
    ) -> Self {
        let mut readers = Vec::new();
        for difference in &changes.differing {
            let (Some(tx), Some(request)) = (difference.tx, difference.request) else {
                continue;
            };
            if let DifferenceKind::Deleted { .. } = difference.kind {
                continue;
            }
            let Some(level) = levels.level_of(tx) else {
                continue;
            };
            readers.push(Reader {
                request: recording.request(request).id,
                level: level.0,
                tables: selector.reads(recording.transaction(tx).shape),
            });
        }
        readers.sort_by_key(|reader| (reader.level, reader.request));
        let seen_from = (0..recording.transactions.len() as u32)
            .map(Tx)
            .filter_map(|tx| Some((recording.transaction(tx).id, levels.visible_from(tx)?.0)))
            .collect();
        Self { readers, seen_from }
    }
}

impl Dependents for Readers {
    fn of(&self, cause: &Cause, table: &str) -> (Vec<RequestId>, u64) {
        let Cause::Transaction {
            request,
            transaction: Some(transaction),
            ..
        } = cause
        else {
            return (Vec::new(), 0);
        };
        let Some(&since) = self.seen_from.get(transaction) else {
            return (Vec::new(), 0);
        };
        let first = self.readers.partition_point(|reader| reader.level < since);
        let mut found: Vec<RequestId> = self.readers[first..]
            .iter()
            .filter(|reader| Some(reader.request) != *request)
            .filter(|reader| {
                let tables = reader.tables.as_ref();
                tables.is_none_or(|tables| tables.iter().any(|one| one == table))
            })
            .map(|reader| reader.request)
            .collect();
        found.sort_unstable();
        found.dedup();
        let more = found.len().saturating_sub(NAMED_MAX) as u64;
        found.truncate(NAMED_MAX);
        (found, more)
    }
}
