//! What a trace gives out row by row.

use std::collections::HashMap;
use std::sync::Arc;

use super::scan::TraceStream;
use crate::tables;
use crate::*;

/// A transaction and its place in its request: what a replay needs to know about all of them at
/// once.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexEntry {
    /// How many transactions of the same request began before it; 0 for ghosts.
    pub position: u32,
    /// Without `server_bytes` and `client_bytes`.
    pub transaction: Transaction,
}

/// What tables and sequences are called in the database of a replay, by what they were called in
/// the recorded one: their oids are others where a database was restored from a dump.
pub(super) type Renamed = Arc<HashMap<u32, u32>>;

fn rename(names: &Renamed, transaction: &mut Transaction) {
    if names.is_empty() {
        return;
    }
    let rename = |oid: &mut u32| *oid = names.get(oid).copied().unwrap_or(*oid);
    for seen in &mut transaction.sequence_values {
        rename(&mut seen.sequence);
    }
    for drawn in &mut transaction.drawn {
        if let DrawnValue::Sequence { first, .. } = &mut drawn.value {
            rename(&mut first.sequence);
        }
    }
    for drawn in &mut transaction.drawn_uuids {
        if let DrawnAt::Default { table, .. } = &mut drawn.place {
            rename(table);
        }
    }
}

/// Requests in order of arrival; those of one recorder in order of their ids.
pub struct Requests(TraceStream<tables::Requests>);

/// Transactions nearly in the order in which they began; those of one recorder in order of their
/// ids.
pub struct Transactions(TraceStream<tables::Transactions>, Renamed);

/// Transactions with their places, in the same order.
pub struct Index {
    transactions: Transactions,
    /// How many were seen of each request.
    seen: HashMap<RequestId, u32>,
}

impl Requests {
    pub(super) fn new(stream: TraceStream<tables::Requests>) -> Self {
        Self(stream)
    }
}

impl Transactions {
    pub(super) fn new(stream: TraceStream<tables::Transactions>, renamed: Renamed) -> Self {
        Self(stream, renamed)
    }
}

impl Index {
    pub(super) fn new(transactions: Transactions) -> Self {
        Self {
            transactions,
            seen: HashMap::new(),
        }
    }
}

impl Iterator for Requests {
    type Item = Result<Request, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next_row().transpose()
    }
}

impl Iterator for Transactions {
    type Item = Result<Transaction, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut next = self.0.next_row().transpose();
        if let Some(Ok(transaction)) = &mut next {
            rename(&self.1, transaction);
        }
        next
    }
}

impl Iterator for Index {
    type Item = Result<IndexEntry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let transaction = match self.transactions.next()? {
            Ok(transaction) => transaction,
            Err(error) => return Some(Err(error)),
        };
        let position = match transaction.request {
            Some((request, _)) => {
                let seen = self.seen.entry(request).or_default();
                *seen += 1;
                *seen - 1
            }
            None => 0,
        };
        Some(Ok(IndexEntry {
            position,
            transaction,
        }))
    }
}
