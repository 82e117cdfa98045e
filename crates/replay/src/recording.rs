//! What of a recording has to be at hand while it is replayed, for traces of millions of requests.
//!
//! Requests and transactions are numbered densely, requests in order of arrival and transactions in
//! the order in which they began. About sixty bytes of each stay in memory. What only some
//! transactions have, and what may be large (bytes of aborted ones, bytes of ghosts, sequence
//! values), goes to a temporary file and is read back when it is needed; requests with their bodies
//! stay in the trace.

mod loading;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use hindcast_order::retroaction::{Origin, Past};
use hindcast_order::{Change, Levels, LevelsError, LockStep, Lost, Request, Tx};
use hindcast_rewind::pins::Pinned;
use hindcast_taplog::pins::{Number, Reading, decode_readings};
use hindcast_trace::{
    self as trace, Attribution, Digest, Drawn, DrawnUuid, Isolation, Micros, ReadError, RequestId,
    SecretKey, Secrets, SessionId, ShapeId, Snapshot, Trace, TransactionFilter, TransactionId,
    ValuesDigest, Xid,
};
use serde::{Deserialize, Serialize};

use self::loading::Loading;
use crate::inserts::{self, Id, Insert};
use crate::looks::Looks;
use crate::plan::Plan;
use crate::shapes::Shapes;
use crate::transaction::Ask;

/// One recorded request, without headers and bodies.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub id: RequestId,
    pub arrived: Micros,
    pub ended: Micros,
    pub answer: Answer,
    /// What it was given of the numbers that a process keeps, up to its answer.
    numbers: Box<[Number]>,
    /// Where its transactions are in [`Recording::own`].
    own: Range<u32>,
}

/// Whether a request can be sent again, and its response compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Complete,
    /// Sent again, but there is nothing to compare with.
    Broken,
    /// Cannot be sent again.
    Unrecorded,
}

/// One recorded transaction.
#[derive(Clone, Debug)]
pub struct RecordedTransaction {
    pub id: TransactionId,
    pub session: SessionId,
    /// `None`: a ghost.
    pub request: Option<(Request, Attribution)>,
    pub began: Micros,
    pub ended: Micros,
    pub now: Option<Micros>,
    pub isolation: Isolation,
    pub fate: Fate,
    pub wrote: bool,
    pub has_snapshot: bool,
    /// The server told what clocks and random functions returned to it.
    pub draws_told: bool,
    /// Under READ COMMITTED: it is known what each of its statements saw.
    pub knows_statements: bool,
    pub shape: ShapeId,
    pub digest: Digest,
    pub rows: u64,
    /// Digest of the values with which the statement ran that took its snapshot.
    pub values: Option<u32>,
    /// Where its [`Extras`] are in the temporary file; empty if it has none.
    extras: Range<u64>,
}

impl RecordedTransaction {
    /// Whether each of its statements takes a snapshot of its own.
    pub fn is_read_committed(&self) -> bool {
        self.isolation == Isolation::ReadCommitted
    }

    /// Whether it is not known what all of its statements saw.
    pub fn is_approximate(&self) -> bool {
        self.is_read_committed()
            && !self.knows_statements
            && self.fate != Fate::Aborted
            && self.has_snapshot
    }

    /// Whether one statement looks, and waits for nobody: its transaction's snapshot is its own.
    fn looks_once(&self, shapes: &Shapes) -> bool {
        let looking = shapes.looking(self.shape);
        let looks_once = looking.is_some_and(|all| all.len() <= 1) && !self.wrote;
        looks_once && self.is_read_committed() && self.fate != Fate::Aborted
    }
}

/// What became of a transaction originally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Committed,
    Aborted,
    Prepared,
    Unknown,
}

/// What only some transactions have.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Extras {
    /// What it drew, as the server told or else as results showed.
    pub drawn: Vec<Drawn>,
    pub drawn_uuids: Vec<DrawnUuid>,
    pub server_bytes: Option<Vec<u8>>,
    pub client_bytes: Option<Vec<u8>>,
    pub row_order: Vec<u8>,
    /// What was taken out of both.
    secrets: Secrets,
}

impl Extras {
    fn is_empty(&self) -> bool {
        self.drawn.is_empty()
            && self.drawn_uuids.is_empty()
            && self.server_bytes.is_none()
            && self.client_bytes.is_none()
            && self.row_order.is_empty()
    }
}

/// The part of a recording that a plan covers.
#[derive(Debug)]
pub struct Recording {
    pub requests: Vec<RecordedRequest>,
    pub transactions: Vec<RecordedTransaction>,
    /// Transactions by request, in the order in which they began.
    own: Vec<Tx>,
    /// Of changed code: those that failed originally and were tried again.
    retried: Vec<Tx>,
    /// Of changed code: why transactions failed originally.
    errors: HashMap<Tx, String>,
    /// Of a faithful replay: what later statements under READ COMMITTED saw.
    looks: Looks,
    /// The ids of ghosts that wrote.
    ghost_xids: HashMap<Tx, Xid>,
    /// Statements that tried to take an advisory lock, in vain.
    refused: HashMap<Tx, Vec<u32>>,
    /// What requests read from the wall clock behind their answers.
    late: HashMap<RequestId, Vec<Reading>>,
    /// Transactions that drew from sequences what the next one of their session showed.
    shown_by: HashMap<Tx, Tx>,
    /// Who inserted in an order that is known, by transaction.
    inserts: Vec<Insert>,
    /// Who found a key taken.
    lost: Vec<Lost>,
    /// Who changed rows of the tables in which others did.
    changes: HashMap<Tx, Vec<Change>>,
    /// By the recorder's number, what made the digests of values.
    values: BTreeMap<u16, ValuesDigest>,
    extras: File,
    /// Of what was taken out of transactions.
    keys: Vec<SecretKey>,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("the recording cannot be read")]
    Read(#[from] ReadError),
    #[error("a temporary file cannot be used")]
    Temporary(#[from] io::Error),
    #[error("the recorded snapshots contradict each other")]
    Levels(#[from] LevelsError),
}

/// Which part of what a plan covers is run, and how.
pub struct Scope<'a> {
    /// The code is changed: what aborted originally is run, too, and locks are the database's
    /// business.
    pub changed: bool,
    /// Which requests are sent.
    pub request: &'a (dyn Fn(RequestId) -> bool + Sync),
    /// Which ghosts are run.
    pub ghost: &'a (dyn Fn(ShapeId) -> bool + Sync),
    /// A snapshot besides those of the transactions, [`Recording::look`] in the schedule. As long
    /// as it is not taken, nothing commits that it does not see.
    pub look: Option<Snapshot>,
}

impl Scope<'_> {
    /// A faithful replay of everything.
    pub const ALL: Scope<'static> = Scope {
        changed: false,
        request: &|_| true,
        ghost: &|_| true,
        look: None,
    };
}

impl Recording {
    /// Reads what `plan` covers, and the levels and lock steps of the schedule that follows from
    /// it.
    pub fn load(
        trace: &Trace,
        plan: &Plan,
        shapes: &Shapes,
        scope: &Scope<'_>,
    ) -> Result<(Self, Levels, Vec<LockStep>), LoadError> {
        let mut requests = lean_requests(trace, plan)?;
        requests.retain(|request| (scope.request)(request.id));
        let mut loading = Loading::new(scope, shapes, requests)?;
        loading.recording.values = trace.values_digests();
        loading.recording.keys = trace.secrets_keys().cloned().collect();
        for recorded in trace.transactions(TransactionFilter {
            began: Some(plan.period.clone()),
            ..Default::default()
        }) {
            loading.add(recorded?)?;
        }
        loading.finish()
    }

    /// Transactions that failed, where the next one of their request begins with the same
    /// statement; and ghosts that failed. One that was rolled back without an error has not
    /// failed: a service that gives a session back after each read does so.
    fn find_retried(&mut self, shapes: &Shapes) {
        let opening = |tx: Tx| shapes.openings.get(&self.transaction(tx).shape);
        let mut retried = Vec::new();
        for number in 0..self.requests.len() as u32 {
            for pair in self.own(Request(number)).windows(2) {
                if self.transaction(pair[0]).fate == Fate::Aborted
                    && self.error(pair[0]).is_some()
                    && opening(pair[0]).is_some()
                    && opening(pair[0]) == opening(pair[1])
                    && self.transaction(pair[0]).ended <= self.transaction(pair[1]).began
                {
                    retried.push(pair[0]);
                }
            }
        }
        retried.extend(
            self.ghosts()
                .filter(|&tx| self.transaction(tx).fate == Fate::Aborted),
        );
        retried.sort_unstable();
        self.retried = retried;
    }

    /// Of changed code: those that failed originally and were tried again, and ghosts that failed.
    pub fn retried(&self) -> impl Iterator<Item = Tx> + '_ {
        self.retried.iter().copied()
    }

    /// What order makes of the recording when the code is changed.
    pub fn past(&self) -> Vec<Past> {
        let past = |(transaction, tx): (&RecordedTransaction, u32)| Past {
            began: transaction.began,
            ended: transaction.ended,
            origin: match transaction.fate {
                _ if self.retried.binary_search(&Tx(tx)).is_ok() => Origin::Left,
                Fate::Aborted => Origin::Aborted,
                Fate::Committed | Fate::Prepared | Fate::Unknown => Origin::Committed,
            },
            request: transaction.request.map(|(request, _)| request),
        };
        self.transactions.iter().zip(0..).map(past).collect()
    }

    /// Of changed code: whether a transaction failed originally because of what another one did at
    /// the time: serialization, deadlock, a lock, a unique key or an exclusion.
    pub fn lost_a_conflict(&self, tx: Tx) -> bool {
        self.failed_as(tx, &["(40001)", "(40P01)", "(55P03)", "(23505)", "(23P01)"])
    }

    /// Of changed code: whether a transaction was made to fail since it and others waited for each
    /// other.
    pub fn was_deadlocked(&self, tx: Tx) -> bool {
        self.failed_as(tx, &["(40P01)"])
    }

    /// Whether any was.
    pub fn has_deadlocks(&self) -> bool {
        self.errors.keys().any(|&tx| self.was_deadlocked(tx))
    }

    fn failed_as(&self, tx: Tx, states: &[&str]) -> bool {
        let ends = |error: &str| states.iter().any(|state| error.ends_with(state));
        self.error(tx).is_some_and(ends)
    }

    /// Of changed code: the error that made a transaction fail originally, `message (SQLSTATE)`.
    pub fn error(&self, tx: Tx) -> Option<&str> {
        self.errors.get(&tx).map(String::as_str)
    }

    /// Transactions that belong to no request and began while one was in flight, and so may well
    /// belong to one.
    pub fn unattributed(&self) -> u64 {
        let mut spans: Vec<_> = self
            .requests
            .iter()
            .map(|request| (request.arrived, request.ended))
            .collect();
        spans.sort_unstable();
        let mut latest = i64::MIN;
        for span in &mut spans {
            latest = latest.max(span.1);
            span.1 = latest;
        }
        let in_flight = |at| {
            spans[..spans.partition_point(|&(arrived, _)| arrived <= at)]
                .last()
                .is_some_and(|&(_, ended)| ended >= at)
        };
        self.transactions
            .iter()
            .filter(|ghost| ghost.request.is_none() && ghost.has_snapshot && in_flight(ghost.began))
            .count() as u64
    }

    fn index_by_request(&mut self) {
        let mut own: Vec<(Request, Tx)> = self
            .transactions
            .iter()
            .zip(0..)
            .filter_map(|(transaction, tx)| Some((transaction.request?.0, Tx(tx))))
            .collect();
        own.sort_unstable();
        let mut at = 0;
        for (request, number) in self.requests.iter_mut().zip(0..) {
            let start = at;
            let is_own = |at: u32| own.get(at as usize).is_some_and(|it| it.0.0 == number);
            while is_own(at) {
                at += 1;
            }
            request.own = start..at;
        }
        self.own = own.into_iter().map(|(_, tx)| tx).collect();
    }

    /// Keeps what requests read behind their answers, by the end of the transaction that it came
    /// with: those that ended first were read first.
    fn keep_late(&mut self, mut late: Vec<(Micros, RequestId, Vec<Reading>)>) {
        late.sort_by_key(|(ended, ..)| *ended);
        for (_, request, readings) in late {
            self.late.entry(request).or_default().extend(readings);
        }
    }

    /// What a request read from the wall clock behind its answer.
    pub fn read_late(&self, request: RequestId) -> &[Reading] {
        self.late.get(&request).map_or(&[], Vec::as_slice)
    }

    /// What all requests were given of the numbers that a process keeps.
    pub fn numbers(&self) -> impl Iterator<Item = Number> + '_ {
        let own = self.requests.iter().flat_map(|request| &request.numbers);
        let late = self.late.values().flatten();
        own.copied().chain(late.copied().filter_map(Number::of))
    }

    /// What a request was given of these, up to its answer.
    pub fn numbers_of(&self, request: Request) -> &[Number] {
        &self.request(request).numbers
    }

    pub fn request(&self, request: Request) -> &RecordedRequest {
        &self.requests[request.index()]
    }

    pub fn transaction(&self, tx: Tx) -> &RecordedTransaction {
        &self.transactions[tx.index()]
    }

    /// What [`RecordedTransaction::values`] is of transactions of this request that its recorder
    /// recorded and that began with these values, if the key is here.
    pub fn values_digest(&self, request: Request, values: u64) -> Option<u32> {
        let id = self.request(request).id;
        let digest = self.values.get(&id.recorder())?;
        Some(digest.of(id, values))
    }

    /// The request's transactions, in the order in which they began.
    pub fn own(&self, request: Request) -> &[Tx] {
        let own = &self.request(request).own;
        &self.own[own.start as usize..own.end as usize]
    }

    pub fn find(&self, id: RequestId) -> Option<Request> {
        self.requests
            .binary_search_by_key(&id, |r| r.id)
            .ok()
            .map(|at| Request(at as u32))
    }

    pub fn ghosts(&self) -> impl Iterator<Item = Tx> + '_ {
        self.transactions
            .iter()
            .zip(0..)
            .filter(|(transaction, _)| transaction.request.is_none())
            .map(|(_, tx)| Tx(tx))
    }

    /// What stands for [`Scope::look`] in the schedule: one past the transactions.
    pub fn look(&self) -> Tx {
        Tx(self.transactions.len() as u32)
    }

    /// Who asks, in the schedule.
    pub fn scheduled(&self, ask: Ask) -> Tx {
        match ask {
            Ask::Look(tx, nth) => self.looks.scheduled(tx, nth as usize),
            _ => ask.tx(),
        }
    }

    /// What later statements of transactions saw.
    pub fn looks(&self) -> &Looks {
        &self.looks
    }

    /// What may come out otherwise by itself in a database with these pins.
    pub fn not_pinned(&self, pinned: &Pinned) -> Vec<String> {
        let nothing = "sequence values and now(): the user of the rewound database is no superuser";
        let mut all = match pinned.active {
            false => vec![nothing.to_owned()],
            true => pinned.unpinned.iter().map(ToString::to_string).collect(),
        };
        let early = self.looks.early();
        if early > 0 && !pinned.imposes {
            all.push(format!(
                "what {early} statements that waited for a row saw of other rows: the server has not loaded hindcast, or an older one \
                 (`hindcast extension check`)"
            ));
        }
        all
    }

    /// The id of a ghost that wrote: those that locked something first have lower ones.
    pub fn ghost_xid(&self, tx: Tx) -> Option<Xid> {
        self.ghost_xids.get(&tx).copied()
    }

    /// The statements of a transaction that tried to take an advisory lock, in vain.
    pub fn refused(&self, tx: Tx) -> &[u32] {
        self.refused.get(&tx).map_or(&[], Vec::as_slice)
    }

    /// Which transactions drew what the next one of their session shows: an `INSERT` and `SELECT
    /// lastval()`, each committed by itself.
    fn find_shown(&mut self, shapes: &Shapes) {
        let drawn = self.own.windows(2).filter(|pair| {
            let [before, after] = [pair[0], pair[1]].map(|tx| self.transaction(tx));
            let are_neighbours = before.session == after.session && before.request == after.request;
            are_neighbours && before.wrote && !after.wrote && shapes.asks_last(after.shape)
        });
        self.shown_by = drawn.map(|pair| (pair[0], pair[1])).collect();
    }

    /// `ids`: of those that wrote.
    fn find_inserts(
        &mut self,
        drawn: &HashMap<Tx, Vec<Drawn>>,
        ids: &HashMap<Tx, Id>,
        shapes: &Shapes,
    ) {
        for tx in (0..self.transactions.len() as u32).map(Tx) {
            let shape = self.transaction(tx).shape;
            let shown_later = || drawn.get(self.shown_by.get(&tx)?);
            let drawn = drawn.get(&tx).or_else(shown_later).map_or(&[][..], |v| v);
            let first = shapes.writes.first_write(shape).zip(ids.get(&tx));
            let first = first.map(|(first, id)| (first, *id));
            let inserting = shapes.writes.inserting(shape);
            self.inserts
                .extend(inserts::of(tx, inserting, drawn, first));
        }
    }

    /// Who inserted in an order that is known.
    pub fn inserts(&self) -> &[Insert] {
        &self.inserts
    }

    /// The statements of a transaction that did.
    pub fn inserting(&self, tx: Tx) -> Vec<u32> {
        let from = self.inserts.partition_point(|insert| insert.tx < tx);
        let own = self.inserts[from..]
            .iter()
            .take_while(|insert| insert.tx == tx);
        own.map(|insert| insert.statement).collect()
    }

    /// Who found a key taken, and who changed rows there, where it is known what statements saw.
    fn find_losers(&mut self, shapes: &Shapes) {
        let all = (0..).map(Tx).zip(&self.transactions);
        let known = all.filter(|(_, one)| one.knows_statements && one.is_read_committed());
        let known: Vec<(Tx, ShapeId)> = known.map(|(tx, one)| (tx, one.shape)).collect();
        let losing = known
            .iter()
            .flat_map(|(_, shape)| shapes.writes.losing(*shape));
        let tables: HashSet<u32> = losing.map(|&(_, table)| table).collect();
        for (tx, shape) in known {
            let changing = shapes.writes.changing(shape).iter();
            let changing = changing.filter_map(|change| change.within(&tables));
            let changing: Vec<Change> = changing.collect();
            for &(statement, table) in shapes.writes.losing(shape) {
                self.lost.push(Lost {
                    table,
                    tx,
                    statement,
                    look: self.looks.at(tx, statement),
                });
            }
            if !changing.is_empty() {
                self.changes.insert(tx, changing);
            }
        }
    }

    /// Who found a key taken, by transaction.
    pub fn lost(&self) -> &[Lost] {
        &self.lost
    }

    /// The statements of a transaction that did.
    pub fn losing(&self, tx: Tx) -> Vec<u32> {
        let from = self.lost.partition_point(|one| one.tx < tx);
        let own = self.lost[from..].iter().take_while(|one| one.tx == tx);
        own.map(|one| one.statement).collect()
    }

    /// The statements of a transaction that change rows of tables in which others found a key
    /// taken.
    pub fn changes(&self, tx: Tx) -> &[Change] {
        self.changes.get(&tx).map_or(&[], Vec::as_slice)
    }

    /// Reads back what a transaction drew, also where the next one showed it.
    pub fn drawn(&self, tx: Tx) -> io::Result<Extras> {
        let mut drawn = self.extras(tx)?;
        if let Some(&shown_by) = self.shown_by.get(&tx)
            && !drawn.drawn.iter().any(Drawn::is_of_sequence)
        {
            drawn.drawn.extend(self.extras(shown_by)?.drawn);
        }
        Ok(drawn)
    }

    /// Reads a transaction's extras back.
    pub fn extras(&self, tx: Tx) -> io::Result<Extras> {
        let range = &self.transaction(tx).extras;
        if range.is_empty() {
            return Ok(Extras::default());
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.extras.read_exact_at(&mut bytes, range.start)?;
        let mut extras: Extras = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
        if let Some((server, client)) = extras
            .secrets
            .open_bytes(self.transaction(tx).id, &self.keys)
        {
            extras.server_bytes = extras.server_bytes.map(|_| server);
            extras.client_bytes = extras.client_bytes.map(|_| client);
        }
        Ok(extras)
    }
}

/// Requests are in order of their ids, which for one recorder is the order of arrival, and for
/// several is close to it.
fn lean_requests(trace: &Trace, plan: &Plan) -> Result<Vec<RecordedRequest>, ReadError> {
    let mut requests = Vec::new();
    for request in plan.requests(trace) {
        let request = request?;
        if plan.sends(request.arrived) {
            let arrived = request.arrived.saturating_mul(1000);
            let readings = decode_readings(arrived, &request.clock).unwrap_or_default();
            requests.push(RecordedRequest {
                numbers: readings.into_iter().filter_map(Number::of).collect(),
                id: request.id,
                arrived: request.arrived,
                ended: request.ended,
                answer: match request.response {
                    trace::Response::Answered { .. } => Answer::Complete,
                    trace::Response::Broken { .. } => Answer::Broken,
                    trace::Response::Unrecorded { .. } => Answer::Unrecorded,
                },
                own: 0..0,
            });
        }
    }
    requests.sort_by_key(|request| request.id);
    Ok(requests)
}
