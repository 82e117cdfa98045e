//! A recording in the formats of other tools.
//!
//! Each reads requests and transactions once and writes as it reads.

mod csv;
mod otlp;
mod perfetto;
mod sql;

use std::io;

use hindcast_trace::{
    ReadError, Request, RequestFilter, Response, Trace, Transaction, TransactionFilter,
};

use crate::index::{Index, LOCKS, RECHECKED};
use crate::sight::{held_by, lock_waits, recheck_wait};

pub use csv::{Tables, csv};
pub use otlp::otlp;
pub use perfetto::perfetto;
pub use sql::sql;

/// Why a recording could not be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("the recording cannot be read")]
    Read(#[from] ReadError),
    #[error("the export cannot be written")]
    Write(#[from] io::Error),
}

fn requests(trace: &Trace) -> impl Iterator<Item = Result<Request, ReadError>> {
    trace.requests(RequestFilter {
        lean: true,
        ..RequestFilter::default()
    })
}

fn transactions(trace: &Trace) -> impl Iterator<Item = Result<Transaction, ReadError>> {
    trace.transactions(TransactionFilter {
        lean: true,
        ..TransactionFilter::default()
    })
}

/// Where a transaction is in the index.
fn place(index: &Index, transaction: &Transaction) -> Option<usize> {
    index.find_transaction(transaction.id, transaction.request.map(|(id, _)| id))
}

/// Who waited for whom, as places in the index: the one that was in the way, and the one that
/// waited.
fn waits(trace: &Trace, index: &Index) -> Result<Vec<(usize, usize)>, ReadError> {
    if !index
        .flags
        .iter()
        .any(|flags| flags & (LOCKS | RECHECKED) != 0)
    {
        return Ok(Vec::new());
    }
    let (mut held, mut found) = (Vec::new(), Vec::new());
    for transaction in transactions(trace) {
        let transaction = transaction?;
        if transaction.locks.is_empty() && transaction.rechecked.is_empty() {
            continue;
        }
        let Some(at) = place(index, &transaction) else {
            continue;
        };
        held.extend(held_by(at, &transaction));
        if !transaction.rechecked.is_empty() {
            found.extend(recheck_wait(index, at, &transaction).map(|other| (other, at)));
        }
    }
    let locks = lock_waits(index, held).into_iter();
    found.extend(locks.map(|(holder, waiting)| (holder.at, waiting.at)));
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The status, or how it ended without one.
fn outcome(response: &Response) -> (&'static str, Option<u16>) {
    match response {
        Response::Answered { status, .. } => ("answered", Some(*status)),
        Response::Broken { .. } => ("broken", None),
        Response::Unrecorded { .. } => ("unrecorded", None),
    }
}

fn outcome_of(transaction: &Transaction) -> &'static str {
    match transaction.outcome {
        hindcast_trace::Outcome::Committed => "committed",
        hindcast_trace::Outcome::Aborted => "aborted",
        hindcast_trace::Outcome::Prepared { .. } => "prepared",
        hindcast_trace::Outcome::Unknown => "unknown",
    }
}

/// The statements of a transaction, as normalised.
fn statements<'a>(trace: &'a Trace, transaction: &Transaction) -> &'a [String] {
    let shape = trace.shape(transaction.shape);
    shape.map_or(&[], |shape| &shape.statements)
}
