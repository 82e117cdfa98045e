//! What of a recording has to be at hand while it is replayed, for traces of millions of requests.
//!
//! Requests and transactions are numbered densely, requests in order of arrival and transactions in
//! the order in which they began. About sixty bytes of each stay in memory. What only some
//! transactions have, and what may be large (bytes of aborted ones, bytes of ghosts, sequence
//! values), goes to a temporary file and is read back when it is needed; requests with their bodies
//! stay in the trace.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use hindcast_order::retroaction::{Origin, Past};
use hindcast_order::{Levels, LevelsError, LockStep, Request, StepAt, Tx, Writers};
use hindcast_taplog::pins::{Number, Reading, decode_readings};
use hindcast_trace::{
    self as trace, Attribution, Digest, Drawn, DrawnUuid, Isolation, Micros, Outcome, ReadError,
    RequestId, SecretKey, Secrets, SessionId, ShapeId, Snapshot, Trace, TransactionFilter,
    TransactionId, ValuesDigest, Xid,
};
use hindcast_wire::sql::{ADVISORY, ADVISORY_REFUSED};
use serde::{Deserialize, Serialize};

use crate::drawn::{not_told, told_or_shown};
use crate::inserts::{self, Insert};
use crate::looks::{Looks, Seen, Sights, StatementSights};
use crate::plan::Plan;
use crate::shapes::Shapes;
use crate::transaction::{Ask, first_error};

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
    /// Whether it is not known what all of its statements saw.
    pub fn is_approximate(&self) -> bool {
        self.isolation == Isolation::ReadCommitted
            && !self.knows_statements
            && self.fate != Fate::Aborted
            && self.has_snapshot
    }

    /// Whether one statement looks, and waits for nobody: its transaction's snapshot is its own.
    fn looks_once(&self, shapes: &Shapes) -> bool {
        let looking = shapes.looking(self.shape);
        let looks_once = looking.is_some_and(|all| all.len() <= 1) && !self.wrote;
        looks_once && self.isolation == Isolation::ReadCommitted && self.fate != Fate::Aborted
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
    /// What was taken out of both.
    secrets: Secrets,
}

impl Extras {
    fn is_empty(&self) -> bool {
        self.drawn.is_empty()
            && self.drawn_uuids.is_empty()
            && self.server_bytes.is_none()
            && self.client_bytes.is_none()
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
    /// Of a faithful replay: who inserted in the order of a sequence, by transaction.
    inserts: Vec<Insert>,
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
        let mut loading = Loading::new(scope, requests)?;
        loading.recording.values = trace.values_digests();
        loading.recording.keys = trace.secrets_keys().cloned().collect();
        for recorded in trace.transactions(TransactionFilter {
            began: Some(plan.period.clone()),
            ..Default::default()
        }) {
            loading.add(recorded?)?;
        }
        loading.finish(shapes)
    }

    /// Transactions that failed, where the next one of their request begins with the same
    /// statement; and ghosts that failed.
    fn find_retried(&mut self, shapes: &Shapes) {
        let opening = |tx: Tx| shapes.openings.get(&self.transaction(tx).shape);
        let mut retried = Vec::new();
        for number in 0..self.requests.len() as u32 {
            for pair in self.own(Request(number)).windows(2) {
                if self.transaction(pair[0]).fate == Fate::Aborted
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

    /// `ids`: of those that wrote, in the order of transactions.
    fn find_inserts(
        &mut self,
        drawn: &HashMap<Tx, Vec<Drawn>>,
        ids: &[(Tx, Xid)],
        shapes: &Shapes,
    ) {
        for tx in (0..self.transactions.len() as u32).map(Tx) {
            let shape = self.transaction(tx).shape;
            let shown_later = || drawn.get(self.shown_by.get(&tx)?);
            let drawn = drawn.get(&tx).or_else(shown_later).map_or(&[][..], |v| v);
            let at = ids.binary_search_by_key(&tx, |(tx, _)| *tx);
            let first = shapes.first_write(shape).zip(at.ok().map(|at| ids[at].1));
            let inserting = shapes.inserting(shape);
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

/// A recording that is being read, with what its schedule is made of.
struct Loading<'a> {
    scope: &'a Scope<'a>,
    recording: Recording,
    spill: Spill,
    snapshots: Vec<(Tx, Snapshot)>,
    /// What each statement saw, of transactions where that is known.
    statements: Vec<(Tx, StatementSights)>,
    /// Where transactions committed, in the server's log.
    committed: Vec<(Tx, u64)>,
    writers: Vec<(Tx, Xid)>,
    /// Those that waited for nobody's row: when they began to write is told by their ids.
    unhindered: Vec<(Tx, Xid)>,
    locks: Vec<LockStep>,
    /// Of a faithful replay: what committed transactions drew from sequences.
    drawn: HashMap<Tx, Vec<Drawn>>,
    /// Of changed code: snapshots of what aborted. They count unless it was tried again.
    aborted: Vec<(Tx, Snapshot)>,
    /// What requests read behind their answers, by the end of the transaction that it is kept with.
    late: Vec<(Micros, RequestId, Vec<Reading>)>,
}

impl<'a> Loading<'a> {
    fn new(scope: &'a Scope<'a>, requests: Vec<RecordedRequest>) -> io::Result<Self> {
        let extras = tempfile::tempfile()?;
        let spill = Spill {
            file: BufWriter::new(extras.try_clone()?),
            length: 0,
        };
        Ok(Self {
            scope,
            recording: Recording {
                requests,
                transactions: Vec::new(),
                own: Vec::new(),
                retried: Vec::new(),
                errors: HashMap::new(),
                looks: Looks::default(),
                ghost_xids: HashMap::new(),
                refused: HashMap::new(),
                late: HashMap::new(),
                shown_by: HashMap::new(),
                inserts: Vec::new(),
                values: BTreeMap::new(),
                extras,
                keys: Vec::new(),
            },
            spill,
            snapshots: Vec::new(),
            statements: Vec::new(),
            committed: Vec::new(),
            writers: Vec::new(),
            unhindered: Vec::new(),
            locks: Vec::new(),
            drawn: HashMap::new(),
            aborted: Vec::new(),
            late: Vec::new(),
        })
    }

    fn add(&mut self, recorded: trace::Transaction) -> io::Result<()> {
        let request = match recorded.request {
            None if !(self.scope.ghost)(recorded.shape) => return Ok(()),
            None => None,
            // Of a request that is not sent again: nothing that is compared can see it.
            Some((id, how)) => match self.recording.find(id) {
                Some(request) => Some((request, how)),
                None => return Ok(()),
            },
        };
        self.note_late(&recorded);
        let tx = Tx(self.recording.transactions.len() as u32);
        let fate = match recorded.outcome {
            Outcome::Committed => Fate::Committed,
            Outcome::Aborted => Fate::Aborted,
            Outcome::Prepared { .. } => Fate::Prepared,
            Outcome::Unknown => Fate::Unknown,
        };
        if self.scope.changed && fate == Fate::Aborted {
            let error = recorded.server_bytes.as_deref().and_then(first_error);
            self.recording.errors.extend(error.map(|error| (tx, error)));
        }
        let knows_statements = self.note_order(tx, fate, &recorded);
        let inserts = !self.scope.changed && fate == Fate::Committed;
        let draws_told = !recorded.drawn.iter().all(Drawn::is_of_sequence);
        let drawn = told_or_shown(recorded.drawn, recorded.sequence_values);
        if inserts && drawn.iter().any(Drawn::is_of_sequence) {
            self.drawn.insert(tx, drawn.clone());
        }
        let has_snapshot = recorded.snapshot.is_some();
        let wrote = recorded.xid.is_some();
        let ghost = recorded.xid.filter(|_| request.is_none());
        self.recording.ghost_xids.extend(ghost.map(|xid| (tx, xid)));
        let kept = Extras {
            drawn_uuids: not_told(recorded.drawn_uuids, &drawn),
            drawn,
            server_bytes: recorded.server_bytes.filter(|_| fate == Fate::Aborted),
            client_bytes: recorded.client_bytes.filter(|_| request.is_none()),
            secrets: recorded.secrets,
        };
        self.recording.transactions.push(RecordedTransaction {
            id: recorded.id,
            session: recorded.session,
            request,
            began: recorded.began,
            ended: recorded.ended,
            now: recorded.now,
            isolation: recorded.isolation,
            fate,
            wrote,
            has_snapshot,
            draws_told,
            knows_statements,
            shape: recorded.shape,
            digest: recorded.result_digest,
            rows: recorded.result_rows,
            values: recorded.values,
            extras: self.spill.keep(&kept)?,
        });
        Ok(())
    }

    fn note_late(&mut self, recorded: &trace::Transaction) {
        let began = recorded.began.saturating_mul(1000);
        if let Some((request, _)) = recorded.request
            && let Some(readings) = decode_readings(began, &recorded.clock)
            && !readings.is_empty()
        {
            self.late.push((recorded.ended, request, readings));
        }
    }

    /// What the schedule has to know of a transaction. Whether it is known what each of its
    /// statements saw.
    fn note_order(&mut self, tx: Tx, fate: Fate, recorded: &trace::Transaction) -> bool {
        let snapshot = recorded.snapshot.clone().map(|snapshot| (tx, snapshot));
        if fate == Fate::Aborted && !self.scope.changed {
            return false;
        }
        if let Some(xid) = recorded.xid.filter(|_| fate == Fate::Committed) {
            self.writers.push((tx, xid));
            let waited = !recorded.rechecked.is_empty();
            self.unhindered.extend((!waited).then_some((tx, xid)));
            self.committed
                .extend(recorded.commit_lsn.map(|lsn| (tx, lsn)));
        }
        // What a statement saw does not tell what it waited for in vain.
        let vain = ["(40001)", "(40P01)", "(55P03)", "(57014)"];
        let waited_in_vain = self.recording.failed_as(tx, &vain);
        let statements = StatementSights::of(recorded).filter(|_| !waited_in_vain);
        let knows_statements = statements.is_some();
        match statements {
            Some(sights) => self.statements.push((tx, sights)),
            None if fate == Fate::Aborted => self.aborted.extend(snapshot),
            None => self.snapshots.extend(snapshot),
        }
        if fate == Fate::Aborted {
            return knows_statements;
        }
        let in_vain = |lock: &&trace::Lock| lock.target == ADVISORY_REFUSED;
        let refused = recorded.locks.iter().filter(in_vain);
        let refused: Vec<u32> = refused.map(|lock| lock.statement).collect();
        if !refused.is_empty() {
            self.recording.refused.insert(tx, refused);
        }
        // Row and table locks are not taken, so nothing waits for them.
        let kept = |lock: &&trace::Lock| lock.target == ADVISORY && !self.scope.changed;
        let step = |lock: &trace::Lock| LockStep {
            tx,
            at: StepAt::Statement(lock.statement),
            target: u64::from(lock.target),
            completed: lock.completed,
        };
        self.locks
            .extend(recorded.locks.iter().filter(kept).map(step));
        knows_statements
    }

    fn finish(mut self, shapes: &Shapes) -> Result<(Recording, Levels, Vec<LockStep>), LoadError> {
        self.spill.file.flush()?;
        let mut recording = self.recording;
        for one in &mut recording.transactions {
            one.knows_statements |= one.looks_once(shapes);
        }
        recording.index_by_request();
        recording.find_shown(shapes);
        // Those that ended first were read first.
        self.late.sort_by_key(|(ended, ..)| *ended);
        for (_, request, readings) in self.late {
            recording.late.entry(request).or_default().extend(readings);
        }
        if !self.scope.changed {
            recording.find_inserts(&self.drawn, &self.unhindered, shapes);
        } else {
            recording.find_retried(shapes);
            let retried = |tx: &Tx| recording.retried.binary_search(tx).is_ok();
            self.aborted.retain(|(tx, _)| !retried(tx));
            self.statements.retain(|(tx, _)| !retried(tx));
            self.snapshots.extend(self.aborted);
        }
        let look = self.scope.look.as_ref();
        let begin = recording.transactions.len() + usize::from(look.is_some());
        recording.looks = Looks::starting_at(begin as u32);
        let mut seen_by_statements = Vec::new();
        for (tx, statements) in &self.statements {
            let shape = recording.transaction(*tx).shape;
            if shapes.gives_back(shape) {
                continue;
            }
            let locks_first = shapes.locks_first(shape);
            let looking = shapes.looking(shape);
            let sights = looking.and_then(|all| statements.sights(all, locks_first));
            let Some(Sights { first, later }) = sights else {
                // Nothing else is known of it.
                seen_by_statements.push((*tx, *tx, Seen::Snapshot(0), statements));
                continue;
            };
            seen_by_statements.push((*tx, *tx, first, statements));
            let stretches = later.iter().map(|&(stretch, _)| stretch);
            let scheduled = recording.looks.add(*tx, stretches);
            let looks = scheduled.zip(&later);
            let looks = looks.map(|(look, &(_, seen))| (look, *tx, seen, statements));
            seen_by_statements.extend(looks);
        }
        let mut writers = Writers::new(begin + recording.looks.count());
        for (tx, xid) in self.writers {
            writers.insert(tx, xid);
        }
        let mut seen = writers.sorted()?;
        let gives_back = |tx| shapes.gives_back(recording.transaction(tx).shape);
        self.snapshots.retain(|&(tx, _)| !gives_back(tx));
        for (tx, snapshot) in self.snapshots {
            seen.insert(tx, &snapshot)?;
        }
        for (look, tx, what, statements) in seen_by_statements {
            match what {
                Seen::Snapshot(nth) => seen.insert_look(look, tx, &statements.snapshots[nth])?,
                Seen::End => seen.insert_end(look, tx),
            }
        }
        for (tx, place) in self.committed {
            seen.committed_at(tx, place);
        }
        if let Some(snapshot) = look {
            seen.insert(recording.look(), snapshot)?;
        }
        Ok((recording, seen.levels()?, self.locks))
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

struct Spill {
    file: BufWriter<File>,
    length: u64,
}

impl Spill {
    fn keep(&mut self, extras: &Extras) -> io::Result<Range<u64>> {
        if extras.is_empty() {
            return Ok(0..0);
        }
        let bytes = postcard::to_stdvec(extras).map_err(io::Error::other)?;
        self.file.write_all(&bytes)?;
        let start = self.length;
        self.length += bytes.len() as u64;
        Ok(start..self.length)
    }
}
