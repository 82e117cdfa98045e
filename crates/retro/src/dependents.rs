//! Which requests built on what another one did, as far as a run shows it.

use hindcast_order::Request;
use hindcast_replay::Recording;
use hindcast_replay::changes::{Changes, DifferenceKind};
use hindcast_trace::{Micros, RequestId};

use crate::correction::Dependents;
use crate::report::Cause;
use crate::selection::Selector;

/// How many are named.
const NAMED_MAX: usize = 10;

/// Requests whose transactions had other results than originally, each with what its statements read. A request that read a changed row has another
/// result; so whoever began after a cause, touches its table and has no other result did not depend on it.
pub struct Readers {
    /// In the order in which they began.
    readers: Vec<Reader>,
    /// When each request arrived, by its id.
    arrived: Vec<(RequestId, Micros)>,
}

struct Reader {
    began: Micros,
    request: RequestId,
    /// `None`: what it reads could not be determined.
    tables: Option<Vec<String>>,
}

impl Readers {
    pub fn new(changes: &Changes, recording: &Recording, selector: &Selector) -> Self {
        let mut readers = Vec::new();
        for difference in &changes.differing {
            let (Some(tx), Some(request)) = (difference.tx, difference.request) else {
                continue;
            };
            if let DifferenceKind::Deleted { .. } = difference.kind {
                continue;
            }
            let recorded = recording.transaction(tx);
            readers.push(Reader {
                began: recorded.began,
                request: recording.request(request).id,
                tables: selector.reads(recorded.shape),
            });
        }
        readers.sort_by_key(|reader| reader.began);
        let arrived = (0..recording.requests.len() as u32)
            .map(|number| recording.request(Request(number)))
            .map(|request| (request.id, request.arrived))
            .collect();
        Self { readers, arrived }
    }
}

impl Dependents for Readers {
    fn of(&self, cause: &Cause, table: &str) -> (Vec<RequestId>, u64) {
        let Cause::Transaction {
            request: Some(request),
            ..
        } = cause
        else {
            return (Vec::new(), 0);
        };
        let Ok(at) = self.arrived.binary_search_by_key(request, |(id, _)| *id) else {
            return (Vec::new(), 0);
        };
        let since = self.arrived[at].1;
        let later = &self.readers[self.readers.partition_point(|reader| reader.began < since)..];
        let mut found: Vec<RequestId> = later
            .iter()
            .filter(|reader| reader.request != *request)
            .filter(|reader| {
                let tables = reader.tables.as_ref();
                tables.is_none_or(|tables| tables.iter().any(|one| one == table))
            })
            .map(|reader| reader.request)
            .collect();
        found.dedup();
        let more = found.len().saturating_sub(NAMED_MAX) as u64;
        found.truncate(NAMED_MAX);
        (found, more)
    }
}
