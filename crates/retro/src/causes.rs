//! Who wrote a row: from the transaction ids that rows carry to requests and statements.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use hindcast_order::Request;
use hindcast_replay::Recording;
use hindcast_replay::changes::Writer;
use hindcast_replay::shapes::targets;
use hindcast_trace::{
    Micros, Outcome, ReadError, RequestId, ShapeId, Trace, TransactionFilter, TransactionId,
};

use crate::database::Deletions;
use crate::report::Cause;
use crate::rows::Causes;

/// The kind of a request, such as `POST /subscribe`.
pub trait Kinds: Send + Sync {
    fn of(&self, request: RequestId) -> &str;
}

/// Who wrote what originally, by the low half of a transaction's id.
#[derive(Debug, Default)]
pub struct Original {
    writers: HashMap<u32, (TransactionId, Option<RequestId>, ShapeId)>,
    statements: HashMap<ShapeId, Vec<String>>,
}

impl Original {
    pub fn of(trace: &Trace, period: Range<Micros>) -> Result<Self, ReadError> {
        let mut original = Self::default();
        for shape in trace.shapes() {
            original
                .statements
                .insert(shape.id, shape.statements.clone());
        }
        for transaction in trace.transactions(TransactionFilter {
            began: Some(period),
            lean: true,
            ..Default::default()
        }) {
            let transaction = transaction?;
            let Some(xid) = transaction
                .xid
                .filter(|_| transaction.outcome != Outcome::Aborted)
            else {
                continue;
            };
            let request = transaction.request.map(|(request, _)| request);
            let writer = (transaction.id, request, transaction.shape);
            for id in transaction.subxids.iter().chain([&xid]) {
                original.writers.insert(id.0 as u32, writer);
            }
        }
        Ok(original)
    }
}

/// All that is known about who wrote what.
pub struct Provenance {
    pub original: Original,
    /// Whether the rows of the original final state carry the recorded ids.
    pub original_ids: bool,
    pub writers: HashMap<u32, Writer>,
    pub deletions: Deletions,
    /// Ids of the migration.
    pub preparation: Range<u64>,
    pub recording: Arc<Recording>,
    pub kinds: Arc<dyn Kinds>,
}

impl Provenance {
    fn kind(&self, request: Option<RequestId>) -> String {
        match request {
            Some(request) => self.kinds.of(request).to_owned(),
            None => "no request".to_owned(),
        }
    }

    fn writer(&self, table: &str, id: u32) -> Option<Cause> {
        let writer = self.writers.get(&id)?;
        let request = |request: Request| self.recording.request(request).id;
        let request = writer.request.map(request);
        Some(Cause::Transaction {
            request,
            transaction: writer.tx.map(|tx| self.recording.transaction(tx).id),
            of: self.kind(request),
            statement: writing(&writer.statements, table),
        })
    }

    /// Who wrote a row that no followed transaction wrote.
    fn other(&self, id: u32) -> Cause {
        let Range { start, end } = self.preparation;
        let age = |of: u64| (of as u32).wrapping_sub(id) as i32;
        match () {
            // Ids wrap around: whichever is less than half the circle behind came before.
            () if age(start) > 0 => Cause::Before,
            () if age(end) > 0 => Cause::Migration,
            () => Cause::Unknown,
        }
    }
}

impl Causes for Provenance {
    fn before(&self, table: &str, xmin: u32, _cmin: u32) -> Cause {
        if !self.original_ids {
            return Cause::Unknown;
        }
        match self.original.writers.get(&xmin) {
            Some(&(transaction, request, shape)) => Cause::Transaction {
                request,
                transaction: Some(transaction),
                of: self.kind(request),
                statement: self
                    .original
                    .statements
                    .get(&shape)
                    .and_then(|statements| writing(statements, table)),
            },
            None => Cause::Before,
        }
    }

    fn after(&self, table: &str, xmin: u32, _cmin: u32) -> Cause {
        self.writer(table, xmin).unwrap_or_else(|| self.other(xmin))
    }

    fn deleted(&self, table: &str, key: &str) -> Option<Cause> {
        // A missing row need not have been deleted: it may never have been written.
        let id = *self.deletions.get(&(table.to_owned(), key.to_owned()))?;
        Some(self.writer(table, id).unwrap_or_else(|| self.other(id)))
    }
}

/// The one statement that writes a table, if there is only one.
fn writing(statements: &[String], table: &str) -> Option<String> {
    let table = table.replace('"', "").to_ascii_lowercase();
    let bare = table.rsplit_once('.').map_or(&table[..], |(_, bare)| bare);
    let mut found: Vec<&String> = statements
        .iter()
        .filter(|statement| {
            let names = targets(std::slice::from_ref(statement));
            names.iter().any(|name| *name == table || name == bare)
        })
        .collect();
    found.dedup();
    match found[..] {
        [one] => Some(one.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_is_named_where_there_is_no_doubt() {
        let statements = [
            "BEGIN".to_owned(),
            "SELECT id FROM t".to_owned(),
            "INSERT INTO t VALUES ($1)".to_owned(),
            "UPDATE \"U\" SET x = $1".to_owned(),
        ];
        assert_eq!(
            writing(&statements, "public.t"),
            Some(statements[2].clone())
        );
        assert_eq!(
            writing(&statements, "public.\"U\""),
            Some(statements[3].clone())
        );
        assert_eq!(writing(&statements, "public.v"), None);
        let twice = [statements[2].clone(), "DELETE FROM t".to_owned()];
        assert_eq!(writing(&twice, "public.t"), None);
    }
}
