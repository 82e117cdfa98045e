//! From what the coordinator saw to what the report says of transactions.

use std::collections::{BTreeMap, HashMap};

use hindcast_order::Tx;
use hindcast_replay::Recording;
use hindcast_replay::changes::{Changes, Difference, DifferenceKind};
use hindcast_trace::{ShapeId, Trace, TransactionId};

use crate::causes::Kinds;
use crate::report::{Group, Remark, TransactionChange, TransactionChangeKind, Transactions};

/// How many are described; all are counted.
const DESCRIBED_MAX: usize = 1000;

/// What transactions did otherwise.
pub fn transactions(
    trace: &Trace,
    recording: &Recording,
    changes: &Changes,
    kinds: &dyn Kinds,
) -> (Transactions, Vec<Remark>) {
    let describing = Describing {
        recording,
        statements: statements(trace, changes),
    };
    let id = |tx: Tx| recording.transaction(tx).id;
    let mut remarks = Vec::new();
    let mut described = Vec::new();
    let mut groups: BTreeMap<String, Group<TransactionId>> = BTreeMap::new();
    for difference in &changes.differing {
        let number = difference.tx.map(id);
        let kind = match describing.kind(difference) {
            Ok(kind) => kind,
            Err(error) => {
                let failed = |transaction| Remark::GhostFailed { transaction, error };
                remarks.extend(number.map(failed));
                continue;
            }
        };
        let request = difference.request.map(|one| recording.request(one).id);
        let of = request.map_or("no request", |request| kinds.of(request));
        // An added one has no number of its own: the request's first transaction stands for where
        // it is.
        let place = number.or_else(|| {
            let own = recording.own(difference.request?);
            own.first().map(|&tx| id(tx))
        });
        let what = format!("{of}: {}", in_words(&kind));
        groups
            .entry(what.clone())
            .and_modify(|group| {
                group.count += 1;
                group.last = place.unwrap_or(group.last);
            })
            .or_insert_with(|| Group {
                what,
                count: 1,
                first: place.unwrap_or(hindcast_trace::Id(0)),
                last: place.unwrap_or(hindcast_trace::Id(0)),
            });
        described.push(TransactionChange {
            transaction: number,
            request,
            of: of.to_owned(),
            kind,
        });
    }
    described.sort_by_key(|change| (change.request, change.transaction));
    described.truncate(DESCRIBED_MAX);
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    remarks.truncate(20);
    let transactions = Transactions {
        changed: described,
        groups,
    };
    (transactions, remarks)
}

/// Statements by shape, of the recorded and of the changed code.
fn statements(trace: &Trace, changes: &Changes) -> HashMap<ShapeId, Vec<String>> {
    let mut statements = changes.shapes.clone();
    for shape in trace.shapes() {
        statements.insert(shape.id, shape.statements.clone());
    }
    statements
}

struct Describing<'a> {
    recording: &'a Recording,
    statements: HashMap<ShapeId, Vec<String>>,
}

impl Describing<'_> {
    fn of_shape(&self, shape: ShapeId) -> Vec<String> {
        self.statements.get(&shape).cloned().unwrap_or_default()
    }

    /// A ghost that could not be run is no change of a transaction: the error with which it failed.
    fn kind(&self, difference: &Difference) -> Result<TransactionChangeKind, String> {
        let recorded = difference.tx.map(|tx| self.recording.transaction(tx));
        Ok(match difference.kind.clone() {
            DifferenceKind::Added {
                shape,
                error,
                retry,
            } => TransactionChangeKind::Added {
                statements: self.of_shape(shape),
                error,
                retry,
            },
            DifferenceKind::Deleted { into } => TransactionChangeKind::Deleted {
                into: into.map(|tx| self.recording.transaction(tx).id),
            },
            DifferenceKind::Statements { shape } => TransactionChangeKind::Statements {
                before: recorded.map_or(Vec::new(), |recorded| self.of_shape(recorded.shape)),
                after: self.of_shape(shape),
            },
            DifferenceKind::Results { rows } => TransactionChangeKind::Results {
                before_rows: recorded.map_or(0, |recorded| recorded.rows),
                after_rows: rows,
            },
            DifferenceKind::NewlyFailing { error } => TransactionChangeKind::NewlyFailing { error },
            DifferenceKind::NewlySucceeding { before } => {
                TransactionChangeKind::NewlySucceeding { error: before }
            }
            DifferenceKind::FailsOtherwise { before, after } => {
                TransactionChangeKind::FailsOtherwise { before, after }
            }
            DifferenceKind::GhostFailed { error } => return Err(error),
        })
    }
}

/// The same words for all changes that are of one kind.
fn in_words(kind: &TransactionChangeKind) -> String {
    match kind {
        TransactionChangeKind::Added {
            error: Some(error),
            retry: true,
            ..
        } => format!("tried again, and failed: {error}"),
        TransactionChangeKind::Added { retry: true, .. } => "tried again".to_owned(),
        TransactionChangeKind::Added {
            error: Some(error),
            statements,
            ..
        } => format!("added, and failed: {error}{}", opening(statements)),
        TransactionChangeKind::Added { statements, .. } => {
            format!("added{}", opening(statements))
        }
        TransactionChangeKind::Deleted { into: None } => "gone".to_owned(),
        TransactionChangeKind::Deleted { into: Some(_) } => "moved into another".to_owned(),
        TransactionChangeKind::Statements { .. } => "other statements".to_owned(),
        TransactionChangeKind::Results { .. } => "other results".to_owned(),
        TransactionChangeKind::NewlyFailing { error } => format!("fails now: {}", masked(error)),
        TransactionChangeKind::NewlySucceeding { error: Some(error) } => {
            format!("succeeds now, failed then: {}", masked(error))
        }
        TransactionChangeKind::NewlySucceeding { error: None } => {
            "succeeds now, failed then".to_owned()
        }
        TransactionChangeKind::FailsOtherwise { before, after } => format!(
            "fails with {} instead of {}",
            after.as_deref().map_or("a rollback".into(), masked),
            before.as_deref().map_or("a rollback".into(), masked)
        ),
    }
}

/// `: SELECT …`, the first statement that is not about the transaction itself.
fn opening(statements: &[String]) -> String {
    let about = |text: &&String| {
        let begins = |word| text.to_ascii_uppercase().starts_with(word);
        !begins("BEGIN") && !begins("START") && !begins("SET")
    };
    match statements.iter().find(about) {
        Some(text) => format!(": {text}"),
        None => String::new(),
    }
}

/// An error without the numbers in it, which would make each its own kind.
fn masked(error: &str) -> String {
    let mut text = String::new();
    let (message, state) = match error.rsplit_once(" (") {
        Some((message, state)) => (message, format!(" ({state}")),
        None => (error, String::new()),
    };
    for part in message.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits > 0 {
            text.push('…');
        }
        text.push_str(&part[digits..]);
    }
    text + &state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_differ_in_numbers_only_are_of_one_kind() {
        assert_eq!(
            masked("it waits for a lock of t17, which is complete (40001)"),
            "it waits for a lock of t…, which is complete (40001)"
        );
        assert_eq!(masked("no row 12"), "no row …");
        assert_eq!(masked("plain"), "plain");
    }
}
