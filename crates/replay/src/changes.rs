//! What changed code does otherwise than the recording says. Pure bookkeeping for the coordinator
//! of a retroaction.

use std::collections::{HashMap, HashSet};

use hindcast_order::{Request, Tx};
use hindcast_trace::ShapeId;

use crate::transaction::{AddedId, Claim, Ended, EndedAs};

/// What was learnt about the changed code and is needed from the beginning. It only grows from one
/// run to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// Hashes of first statements of transactions that were added in front of recorded ones.
    added_openings: HashSet<u64>,
    /// This run goes on to its end, whatever there may be to learn.
    pub is_final: bool,
}

/// How many requests a run answers at least after something was learnt.
const ANSWERED_MORE: u64 = 20;

/// What is different so far.
#[derive(Debug, Default)]
pub struct Changes {
    learned: Learned,
    /// How many requests were answered when something was first learnt that is not acted on yet.
    learnt_at: Option<u64>,
    /// That is enough of what was learnt.
    given_up: bool,
    answered: u64,
    added: Vec<Added>,
    /// By transaction that is not over: its first statement.
    openings: HashMap<Claim, u64>,
    /// By request in flight.
    requests: HashMap<Request, OfRequest>,
    /// Of the added ones, and of those that are not as recorded.
    pub differing: Vec<Difference>,
    pub counts: ChangeCounts,
    /// By the low half of a transaction id, as rows carry it: who wrote.
    pub writers: HashMap<u32, Writer>,
    /// Statements of shapes that the recording may not have.
    pub shapes: HashMap<ShapeId, Vec<String>>,
}

#[derive(Clone, Debug)]
struct Added {
    request: Request,
    retry: bool,
}

#[derive(Clone, Debug, Default)]
struct OfRequest {
    /// The last transaction failed in a way that services try again after, and began like this.
    failed: Option<u64>,
    /// Recorded transactions that were taken by one which begins otherwise: how it was to begin,
    /// how it began.
    misplaced: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCounts {
    pub same: u64,
    pub same_failure: u64,
    pub statements: u64,
    pub results: u64,
    pub fails_otherwise: u64,
    pub newly_failing: u64,
    pub newly_succeeding: u64,
    pub deleted: u64,
    pub added: u64,
    pub retries: u64,
    pub yielded: u64,
    pub let_go: u64,
    /// They came with their connections, in whatever request: nobody follows them.
    pub unnoticed: u64,
    pub ghosts_failed: u64,
    /// With the same statements, at another isolation.
    pub isolation: u64,
    /// They took the place of recorded ones that came after them, in a run that did not begin
    /// again.
    pub mistaken: u64,
}

impl ChangeCounts {
    /// Recorded transactions of which it is known what became of them.
    pub fn over(&self) -> u64 {
        let came = self.same + self.same_failure + self.statements + self.results;
        let failed = self.fails_otherwise + self.newly_failing + self.newly_succeeding;
        came + failed + self.deleted + self.unnoticed
    }
}

impl ChangeCounts {
    /// Where a recorded transaction is counted that came, and was different in this.
    pub fn of(&mut self, kind: Option<&DifferenceKind>, had_failed: bool) -> &mut u64 {
        match kind {
            None if had_failed => &mut self.same_failure,
            None => &mut self.same,
            Some(DifferenceKind::NewlySucceeding { .. }) => &mut self.newly_succeeding,
            Some(DifferenceKind::Statements { .. }) => &mut self.statements,
            Some(DifferenceKind::Results { .. }) => &mut self.results,
            Some(DifferenceKind::FailsOtherwise { .. }) => &mut self.fails_otherwise,
            Some(_) => &mut self.newly_failing,
        }
    }
}

/// A transaction that is not as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `None`: it was added.
    pub tx: Option<Tx>,
    pub request: Option<Request>,
    pub kind: DifferenceKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    Added {
        shape: ShapeId,
        error: Option<String>,
        retry: bool,
    },
    /// `into`: its writes moved into this transaction.
    Deleted {
        into: Option<Tx>,
    },
    Statements {
        shape: ShapeId,
    },
    Results {
        rows: u64,
    },
    NewlyFailing {
        error: String,
    },
    NewlySucceeding {
        before: Option<String>,
    },
    FailsOtherwise {
        before: Option<String>,
        after: Option<String>,
    },
    GhostFailed {
        error: String,
    },
}

/// Who wrote rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The recorded transaction; `None`: it was added.
    pub tx: Option<Tx>,
    pub request: Option<Request>,
    /// Of its statements up to its commit.
    pub statements: std::sync::Arc<[String]>,
}

impl Changes {
    pub fn new(learned: Learned) -> Self {
        Self {
            learned,
            ..Self::default()
        }
    }

    /// What the next run is to know, if this one did not and its result is worth nothing.
    pub fn outdated(&self) -> Option<&Learned> {
        self.learnt_at.map(|_| &self.learned)
    }

    /// Whether a run that is outdated has learnt enough: it has gone twice as far as to where it
    /// began to learn. So what else is to be learnt soon is learnt by the same run, and the runs
    /// that are given up take, together, about as long as a few whole ones.
    pub fn is_enough(&self) -> bool {
        let far = |at| self.answered >= 2 * at + ANSWERED_MORE;
        self.given_up || self.learnt_at.is_some_and(far)
    }

    /// Ends a run that is outdated, and says whether it is.
    pub fn give_up(&mut self) -> bool {
        self.given_up = self.learnt_at.is_some();
        self.given_up
    }

    /// Whether another transaction took the place of the recorded one that begins like this, which
    /// comes only now. So the other one was added: what begins as it does is known as added.
    pub fn was_displaced(&mut self, request: Request, opening: u64) -> bool {
        let Some(of) = self.requests.get(&request) else {
            return false;
        };
        let took = of.misplaced.iter().filter(|(was, _)| *was == opening);
        let took: Vec<u64> = took.map(|&(_, began)| began).collect();
        let displaced = !took.is_empty();
        for began in took {
            if self.learned.is_final {
                self.counts.mistaken += 1;
            } else if self.learned.added_openings.insert(began) {
                self.learnt_at.get_or_insert(self.answered);
            }
        }
        displaced
    }

    /// Whether a transaction of this request that begins like this was added, as far as is known
    /// before the recorded ones are looked at.
    pub fn is_retry(&self, request: Request, opening: u64) -> bool {
        self.requests
            .get(&request)
            .is_some_and(|of| of.failed == Some(opening))
    }

    /// Whether a transaction that begins like this must not take the place of a recorded one which
    /// begins otherwise.
    pub fn is_known_as_added(&self, opening: u64) -> bool {
        self.learned.added_openings.contains(&opening)
    }

    pub fn add(&mut self, request: Request, opening: u64, retry: bool) -> AddedId {
        let id = self.added.len() as AddedId;
        self.added.push(Added { request, retry });
        self.openings.insert(Claim::Added(id), opening);
        id
    }

    /// A recorded transaction was taken by one that begins like this. `recorded`: how it was to
    /// begin.
    pub fn take(&mut self, request: Request, tx: Tx, opening: u64, recorded: Option<u64>) {
        self.openings.insert(Claim::Run(tx), opening);
        if let Some(recorded) = recorded.filter(|&recorded| recorded != opening) {
            let of = self.requests.entry(request).or_default();
            of.misplaced.push((recorded, opening));
        }
    }

    pub fn wrote(
        &mut self,
        claim: Claim,
        request: Option<Request>,
        ids: &[u64],
        statements: &[String],
    ) {
        let tx = match claim {
            Claim::Run(tx) => Some(tx),
            _ => None,
        };
        let writer = Writer {
            tx,
            request,
            statements: statements.into(),
        };
        for &id in ids {
            self.writers.insert(id as u32, writer.clone());
        }
    }

    /// A transaction that was added is over.
    pub fn added_over(&mut self, id: AddedId, ended: &Ended, compared: bool) {
        let Added { request, retry } = self.added[id as usize].clone();
        self.over(Claim::Added(id), Some(request), ended);
        if !compared {
            return;
        }
        self.counts.added += 1;
        self.counts.retries += u64::from(retry);
        let error = match &ended.fate {
            EndedAs::Committed => None,
            EndedAs::RolledBack { error } => {
                Some(error.clone().unwrap_or_else(|| "rolled back".to_owned()))
            }
        };
        self.differing.push(Difference {
            tx: None,
            request: Some(request),
            kind: DifferenceKind::Added {
                shape: ended.shape,
                error,
                retry,
            },
        });
    }

    /// A transaction is over: remembers what the next one of its request may have to do with it.
    pub fn over(&mut self, claim: Claim, request: Option<Request>, ended: &Ended) {
        if !ended.statements.is_empty() {
            self.shapes
                .entry(ended.shape)
                .or_insert_with(|| ended.statements.clone());
        }
        let opening = self.openings.remove(&claim);
        let Some(request) = request else { return };
        let failed = match &ended.fate {
            EndedAs::RolledBack { error: Some(error) } if is_retried(error) => opening,
            _ => None,
        };
        if failed.is_some() || self.requests.contains_key(&request) {
            self.requests.entry(request).or_default().failed = failed;
        }
    }

    /// Whether it repeats one that failed just before.
    pub fn repeats(&self, id: AddedId) -> bool {
        self.added[id as usize].retry
    }

    pub fn request_of(&self, id: AddedId) -> Request {
        self.added[id as usize].request
    }

    pub fn request_ended(&mut self, request: Request) {
        self.answered += 1;
        self.requests.remove(&request);
    }
}

/// Whether services try again after an error like this, and a second attempt is not another
/// transaction of theirs.
fn is_retried(error: &str) -> bool {
    ["(40001)", "(40P01)", "(23505)"]
        .iter()
        .any(|state| error.ends_with(state))
}
