//! From a trace to an [`Index`], in one reading of each table.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use hindcast_select::{Statement, TypeNamer};
use hindcast_trace::{
    Micros, Outcome, ReadError, Request, RequestFilter, RequestId, Response, Trace, Transaction,
    TransactionFilter,
};

use crate::index::{
    ABORTED, BLOCK, BROKEN, COMMITTED, Index, LOCKS, RECHECKED, ShapeFacts, UNRECORDED, WROTE,
    Writer,
};
use crate::lanes::Places;

/// How far a reading has come. Only grows.
#[derive(Debug, Default)]
pub struct Progress {
    pub done: AtomicU64,
    pub total: AtomicU64,
}

impl Progress {
    pub(crate) fn add(&self, rows: u64) {
        self.done.fetch_add(rows, Ordering::Relaxed);
    }

    /// Done, and of how many.
    pub fn read(&self) -> (u64, u64) {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        (read(&self.done), read(&self.total))
    }
}

/// Rows between two reports of progress.
const STRIDE: u64 = 4096;
/// Types beyond these count as one.
const TYPES_MAX: usize = u16::MAX as usize;

/// Reads requests and transactions side by side, each in a thread.
pub fn load(trace: &Trace, progress: &Progress) -> Result<Index, ReadError> {
    let total = trace.request_count() + trace.transaction_count();
    progress.total.store(total, Ordering::Relaxed);
    let (requests, transactions) = std::thread::scope(|scope| {
        let transactions = scope.spawn(|| transactions(trace, progress));
        let requests = requests(trace, progress);
        let transactions = transactions
            .join()
            .expect("reading transactions does not panic");
        (requests, transactions)
    });
    let mut index = requests?;
    transactions?.into_index(&mut index);
    index.last_end = last_end(&index);
    Ok(index)
}

fn requests(trace: &Trace, progress: &Progress) -> Result<Index, ReadError> {
    let lean = RequestFilter {
        lean: true,
        ..RequestFilter::default()
    };
    let mut index = Index::default();
    let mut types = Types::default();
    for (read, request) in (1..).zip(trace.requests(lean)) {
        let request = request?;
        index.arrived.push(request.arrived);
        index.took.push(saturated(request.ended - request.arrived));
        index.id.push(request.id.0);
        index.kind.push(types.number(&request));
        index.status.push(status(&request.response));
        if read % STRIDE == 0 {
            progress.add(STRIDE);
        }
    }
    progress.add(index.id.len() as u64 % STRIDE);
    in_order_of_arrival(&mut index);
    types.finish(&mut index);
    let mut places = Places::default();
    for at in 0..index.requests() {
        let slot = places.take(index.arrived[at], index.ended(at));
        index.slot.push(slot);
    }
    index.slots = places.used;
    for block in 0..index.requests().div_ceil(BLOCK) {
        let own = block * BLOCK..((block + 1) * BLOCK).min(index.requests());
        let end = own.map(|at| index.ended(at)).max();
        index.block_ends.push(end.unwrap_or(Micros::MIN));
    }
    if !index.id.is_sorted() {
        let mut by_id: Vec<u32> = (0..index.requests() as u32).collect();
        by_id.sort_unstable_by_key(|at| index.id[*at as usize]);
        index.by_id = by_id;
    }
    Ok(index)
}

/// A recorder numbers requests as they arrive, but clocks may step back.
fn in_order_of_arrival(index: &mut Index) {
    if index.arrived.is_sorted() {
        return;
    }
    let mut order: Vec<u32> = (0..index.requests() as u32).collect();
    order.sort_by_key(|at| index.arrived[*at as usize]);
    permute(&mut index.arrived, &order);
    permute(&mut index.took, &order);
    permute(&mut index.id, &order);
    permute(&mut index.kind, &order);
    permute(&mut index.status, &order);
}

fn permute<T: Copy>(column: &mut Vec<T>, order: &[u32]) {
    *column = order.iter().map(|at| column[*at as usize]).collect();
}

fn saturated(micros: Micros) -> u32 {
    u32::try_from(micros.max(0)).unwrap_or(u32::MAX)
}

fn status(response: &Response) -> u16 {
    match response {
        Response::Answered { status, .. } => *status,
        Response::Broken { .. } => BROKEN,
        Response::Unrecorded { .. } => UNRECORDED,
    }
}

/// Names types while more requests teach what ids look like; at the end names that became equal are
/// one.
#[derive(Default)]
struct Types {
    namer: TypeNamer,
    numbers: HashMap<String, u16>,
    /// Method and path of each, and whether it was never found.
    names: Vec<(String, String, bool)>,
    /// What was named last: services are asked for the same again and again.
    known: HashMap<String, u16>,
}

impl Types {
    const KNOWN_MAX: usize = 1 << 16;

    fn number(&mut self, request: &Request) -> u16 {
        let path = request.target.split('?').next().unwrap_or_default();
        // Requests for what is not there must not make ids of paths that are.
        let missed = matches!(request.response, Response::Answered { status: 404, .. });
        let key = format!("{}{} {path}", u8::from(missed), request.method);
        if let Some(number) = self.known.get(&key) {
            return *number;
        }
        if !missed {
            self.namer.observe(&request.method, path, None);
        }
        let name = self.namer.name(&request.method, path, None);
        let named = format!("{}{name}", u8::from(missed));
        let number = match self.numbers.get(&named) {
            Some(number) => *number,
            None => {
                let number = self.names.len().min(TYPES_MAX - 1);
                if number == self.names.len() {
                    let (method, path) = name.split_once(' ').unwrap_or((&name, ""));
                    self.names
                        .push((method.to_owned(), path.to_owned(), missed));
                    self.numbers.insert(named, number as u16);
                }
                number as u16
            }
        };
        if self.known.len() == Self::KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(key, number);
        number
    }

    /// The most frequent first.
    fn finish(self, index: &mut Index) {
        let name = |(method, path, missed): &(String, String, bool)| {
            if *missed && !self.namer.knows(method, path) {
                format!("{method} (not found)")
            } else {
                self.namer.name(method, path, None)
            }
        };
        let names: Vec<String> = self.names.iter().map(name).collect();
        let mut counts: HashMap<&str, u64> = HashMap::new();
        for kind in &index.kind {
            *counts.entry(&names[usize::from(*kind)]).or_default() += 1;
        }
        let mut sorted: Vec<(&str, u64)> = counts.into_iter().collect();
        sorted.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let places: HashMap<&str, u16> = sorted.iter().map(|(name, _)| *name).zip(0..).collect();
        let new = |old: &u16| places[names[usize::from(*old)].as_str()];
        index.kind = index.kind.iter().map(new).collect();
        index.types = sorted
            .into_iter()
            .map(|(name, _)| name.to_owned())
            .collect();
    }
}

/// Transactions as they are read, in the order in which they began.
#[derive(Default)]
struct Read {
    request: Vec<Option<RequestId>>,
    xid: Vec<u64>,
    columns: Index,
    sessions: HashMap<u64, u32>,
    shapes: HashMap<u32, u32>,
}

fn transactions(trace: &Trace, progress: &Progress) -> Result<Read, ReadError> {
    let lean = TransactionFilter {
        lean: true,
        ..TransactionFilter::default()
    };
    let mut read = Read::default();
    for (count, transaction) in (1..).zip(trace.transactions(lean)) {
        read.push(trace, &transaction?);
        if count % STRIDE == 0 {
            progress.add(STRIDE);
        }
    }
    progress.add(read.request.len() as u64 % STRIDE);
    Ok(read)
}

impl Read {
    fn push(&mut self, trace: &Trace, transaction: &Transaction) {
        let columns = &mut self.columns;
        self.request.push(transaction.request.map(|(id, _)| id));
        self.xid.push(transaction.xid.map_or(0, |xid| xid.0));
        columns.began.push(transaction.began);
        let lasted = saturated(transaction.ended - transaction.began);
        columns.lasted.push(lasted);
        columns.transaction.push(transaction.id.0);
        columns.flags.push(flags(transaction));
        let session = self.sessions.entry(transaction.session.0);
        columns.session.push(*session.or_insert_with(|| {
            columns.sessions.push(transaction.session.0);
            columns.sessions.len() as u32 - 1
        }));
        let shape = self.shapes.entry(transaction.shape.0);
        columns.shape.push(*shape.or_insert_with(|| {
            let shape = trace.shape(transaction.shape);
            let statements = shape.map(|shape| shape.statements.clone());
            let facts = shape_facts(transaction.shape.0, statements.unwrap_or_default());
            columns.shapes.push(facts);
            columns.shapes.len() as u32 - 1
        }));
    }

    /// Sorted by request: a counting sort, one column at a time, so that only one of them is there
    /// twice.
    fn into_index(self, index: &mut Index) {
        let requests = index.requests();
        let mut owner = Vec::with_capacity(self.request.len());
        // Of one recorder, transactions come nearly in the order of their requests.
        let mut near = 0;
        for request in &self.request {
            let found = request.and_then(|id| find_near(index, id, near));
            near = found.unwrap_or(near);
            owner.push(found.map_or(requests as u32, |at| at as u32));
        }
        drop(self.request);
        let mut ends = vec![0u32; requests + 2];
        for own in &owner {
            ends[*own as usize + 1] += 1;
        }
        for at in 1..ends.len() {
            ends[at] += ends[at - 1];
        }
        let mut next = ends.clone();
        let mut order = vec![0u32; owner.len()];
        for (at, own) in owner.iter().enumerate() {
            let place = &mut next[*own as usize];
            order[*place as usize] = at as u32;
            *place += 1;
        }
        drop((owner, next));
        ends.truncate(requests + 1);
        index.first = ends;
        let mut columns = self.columns;
        permute(&mut columns.began, &order);
        permute(&mut columns.lasted, &order);
        permute(&mut columns.transaction, &order);
        permute(&mut columns.session, &order);
        permute(&mut columns.shape, &order);
        permute(&mut columns.flags, &order);
        let writers = order.iter().zip(0..).filter_map(|(from, at)| {
            let xid = self.xid[*from as usize];
            let visible = xid != 0 && columns.flags[at as usize] & ABORTED == 0;
            visible.then_some(Writer { xid, at })
        });
        index.writers = writers.collect();
        index.writers.sort_unstable_by_key(|writer| writer.xid);
        index.began = columns.began;
        index.lasted = columns.lasted;
        index.transaction = columns.transaction;
        index.session = columns.session;
        index.shape = columns.shape;
        index.flags = columns.flags;
        index.sessions = columns.sessions;
        index.shapes = columns.shapes;
    }
}

/// Where a request is, probably a few places from `near`.
fn find_near(index: &Index, id: RequestId, near: usize) -> Option<usize> {
    let around = near.saturating_sub(32)..(near + 32).min(index.requests());
    let ids = &index.id[around.clone()];
    match ids.iter().position(|one| *one == id.0) {
        Some(place) => Some(around.start + place),
        None => index.find(id),
    }
}

fn flags(transaction: &Transaction) -> u8 {
    let outcome = match transaction.outcome {
        Outcome::Committed => COMMITTED,
        Outcome::Aborted => ABORTED,
        Outcome::Prepared { .. } | Outcome::Unknown => 0,
    };
    let flag = |holds: bool, flag: u8| if holds { flag } else { 0 };
    outcome
        | flag(transaction.xid.is_some(), WROTE)
        | flag(!transaction.locks.is_empty(), LOCKS)
        | flag(!transaction.rechecked.is_empty(), RECHECKED)
}

fn shape_facts(id: u32, statements: Vec<String>) -> ShapeFacts {
    let mut facts = ShapeFacts {
        id,
        ..ShapeFacts::default()
    };
    for statement in &statements {
        let touched = Statement::of(statement);
        facts
            .reads
            .extend(touched.reads.iter().map(ToString::to_string));
        facts
            .writes
            .extend(touched.writes.keys().map(ToString::to_string));
    }
    facts.statements = statements;
    facts
}

fn last_end(index: &Index) -> Micros {
    let requests = index.block_ends.iter().copied().max();
    let ghosts = index.ghosts().map(|at| index.transaction_ended(at)).max();
    requests.max(ghosts).unwrap_or_default()
}
