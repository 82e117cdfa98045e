//! Who saw whom, and who waited for whom.
//!
//! A snapshot says which writers a transaction could see: all that had committed but those it
//! names. That may be millions, so what is told are the latest that touched the same tables. Next
//! to them stand those that ran at the same time and were *not* seen: they are what a race is made
//! of.

use std::collections::BTreeSet;

use hindcast_trace::{Id, Micros, ReadError, Snapshot, Trace, Transaction, TransactionFilter};
use hindcast_wire::spoken::spoken;
use serde::Serialize;

use crate::index::{COMMITTED, Index, LOCKS, Writer};
use crate::lanes::Lanes;

/// Told of each kind.
const TOLD_MAX: usize = 12;
/// Writers that are looked at to find those.
const LOOKED_AT_MAX: usize = 20_000;
/// Transactions of a request that are looked at.
const OWN_MAX: usize = 64;
/// Ids among which the holders of locks are looked for.
const LOCKERS_MAX: u64 = 20_000;

/// What a transaction saw, could not see, and waited for.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Sight {
    /// `every transaction id below 812 that committed, except 809 and 810`. `None`: it took no
    /// snapshot.
    pub snapshot: Option<String>,
    /// The latest visible writers of tables that it touches, the latest first.
    pub saw: Vec<Neighbour>,
    /// Writers of such tables that ran at the same time and that it did not see.
    pub unseen: Vec<Neighbour>,
    /// Other requests with which its request crossed.
    pub crossed: Vec<Crossing>,
    pub waited: Vec<Wait>,
}

/// Another transaction, and where it is on the screen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Neighbour {
    pub id: String,
    pub request: Option<String>,
    /// The type of that request.
    pub of: Option<String>,
    pub lane: Option<usize>,
    pub began: Micros,
    pub ended: Micros,
    pub committed: bool,
    /// Tables that both touch, and one of them writes.
    pub tables: Vec<String>,
}

/// Two requests that read and wrote the same tables at the same time, each without seeing what the
/// other wrote: what most races are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Crossing {
    /// The transaction of this request that did not see what the other one wrote …
    pub read: String,
    pub read_began: Micros,
    /// … and the one whose write the other one did not see.
    pub write: String,
    pub write_ended: Micros,
    pub request: String,
    pub lane: usize,
    pub other_read: String,
    pub other_read_began: Micros,
    pub other_write: String,
    pub other_write_ended: Micros,
    /// Tables that both write.
    pub tables: Vec<String>,
    /// Values with which both wrote.
    pub values: Vec<String>,
    /// Whether the values were recorded; if not, it may have been about different rows.
    pub known: bool,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct Wait {
    /// From 1.
    pub statement: u32,
    /// The one that was in its way, as far as that can be told.
    pub other: Option<Neighbour>,
    pub why: &'static str,
}

/// Of the transaction at this place of the index; `own` is what the trace says of it.
pub fn sight(
    trace: &Trace,
    index: &Index,
    lanes: Lanes,
    at: usize,
    own: &Transaction,
) -> Result<Sight, ReadError> {
    let looking = Looking {
        index,
        lanes,
        at,
        own,
    };
    let mut sight = Sight::default();
    if let Some(snapshot) = &own.snapshot {
        sight.snapshot = Some(snapshot_text(snapshot));
    }
    if let Some(snapshot) = last_snapshot(own) {
        sight.saw = looking.saw(snapshot);
        let unseen = looking.unseen(snapshot, own.ended);
        sight.unseen = unseen.iter().map(|at| looking.neighbour(*at)).collect();
        let last = last_over(index, at, &unseen);
        sight
            .waited
            .extend(own.rechecked.iter().map(|statement| Wait {
                statement: statement + 1,
                other: last.map(|at| looking.neighbour(at)),
                why: "it waited for another transaction, or found a row changed after its snapshot",
            }));
    }
    if let Some(request) = index.request_of(at) {
        sight.crossed = crossings(trace, index, lanes, request)?;
    }
    sight.waited.extend(looking.locks(trace)?);
    Ok(sight)
}

struct Looking<'a> {
    index: &'a Index,
    lanes: Lanes,
    at: usize,
    own: &'a Transaction,
}

impl Looking<'_> {
    /// Tables where these two meet: both touch them, and one of them writes.
    fn tables(&self, other: usize) -> Vec<String> {
        let facts = |at: usize| &self.index.shapes[self.index.shape[at] as usize];
        let (own, other) = (facts(self.at), facts(other));
        let met: BTreeSet<&str> = other.met_by(own).chain(own.met_by(other)).collect();
        met.into_iter().map(str::to_owned).collect()
    }

    /// Whether the other one wrote what this one looks at.
    fn matters(&self, other: usize) -> bool {
        let facts = |at: usize| &self.index.shapes[self.index.shape[at] as usize];
        facts(other).met_by(facts(self.at)).next().is_some()
    }

    fn neighbour(&self, at: usize) -> Neighbour {
        let index = self.index;
        let request = index.request_of(at);
        Neighbour {
            id: Id(index.transaction[at]).to_string(),
            request: request.map(|request| Id(index.id[request]).to_string()),
            of: request.map(|request| index.types[usize::from(index.kind[request])].clone()),
            lane: request.map(|request| self.lanes.of(index, request)),
            began: index.began[at],
            ended: index.transaction_ended(at),
            committed: index.flags[at] & COMMITTED != 0,
            tables: self.tables(at),
        }
    }

    fn saw(&self, snapshot: &Snapshot) -> Vec<Neighbour> {
        let writers = &self.index.writers;
        let end = writers.partition_point(|writer| writer.xid < snapshot.xmax.0);
        let visible = writers[..end].iter().rev().take(LOOKED_AT_MAX);
        // Its own id, too, is below where another one of its snapshot ends.
        let others = |writer: &&Writer| writer.at as usize != self.at;
        let visible = visible.filter(others);
        let visible = visible.filter(|writer| snapshot.sees(hindcast_trace::Xid(writer.xid)));
        let mattering = visible.filter(|writer| self.matters(writer.at as usize));
        // Ids are given when something is written: the order of commits is another one.
        let mut latest: Vec<&Writer> = mattering.take(TOLD_MAX * 4).collect();
        latest.sort_by_key(|writer| -self.index.transaction_ended(writer.at as usize));
        let told = latest.iter().take(TOLD_MAX);
        told.map(|writer| self.neighbour(writer.at as usize))
            .collect()
    }

    /// Those that began before a moment, in the order of their transaction ids.
    fn unseen(&self, snapshot: &Snapshot, until: Micros) -> Vec<usize> {
        let writers = &self.index.writers;
        let place = |xid: u64| writers.partition_point(|writer| writer.xid < xid);
        let in_progress = snapshot.in_progress.iter().filter_map(|xid| {
            let writer = writers.get(place(xid.0))?;
            (writer.xid == xid.0).then_some(writer.at as usize)
        });
        let later = writers[place(snapshot.xmax.0)..].iter();
        let later = later
            .take(LOOKED_AT_MAX)
            .map(|writer| writer.at as usize)
            .take_while(|at| self.index.began[*at] <= until + SLACK)
            .filter(|at| self.index.began[*at] <= until);
        let others = in_progress.chain(later).filter(|at| *at != self.at);
        others
            .filter(|at| self.matters(*at))
            .take(TOLD_MAX)
            .collect()
    }

    /// The locks for which another one was in its way: it had the same just before, and ended only
    /// after this one had begun.
    fn locks(&self, trace: &Trace) -> Result<Vec<Wait>, ReadError> {
        if self.own.locks.is_empty() {
            return Ok(Vec::new());
        }
        let index = self.index;
        let around = index.within(self.own.began, self.own.ended + 1);
        let candidates: Vec<usize> = around
            .take(LOOKED_AT_MAX)
            .flat_map(|request| index.transactions_of(request))
            .filter(|at| index.flags[*at] & LOCKS != 0 && *at != self.at)
            .filter(|at| index.transaction_ended(*at) >= self.own.began)
            .collect();
        let mut held = held_by(self.at, self.own);
        for (at, other) in read(trace, index, &candidates)? {
            held.extend(held_by(at, &other));
        }
        let waits = lock_waits(index, held).into_iter();
        let own = waits.filter(|(_, waiting)| waiting.at == self.at);
        let told = own.map(|(holder, waiting)| Wait {
            statement: waiting.statement + 1,
            other: Some(self.neighbour(holder.at)),
            why: "it took such a lock just before, and ended while this one ran",
        });
        Ok(told.collect())
    }
}

/// A statement that took a lock other than by writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Held {
    recorder: u16,
    target: u32,
    /// Position in the order in which the recorder saw such statements complete.
    completed: u64,
    /// The transaction's place in the index.
    pub at: usize,
    pub statement: u32,
}

pub(crate) fn held_by(at: usize, own: &Transaction) -> Vec<Held> {
    let held = own.locks.iter().map(|lock| Held {
        recorder: own.id.recorder(),
        target: lock.target,
        completed: lock.completed,
        at,
        statement: lock.statement,
    });
    held.collect()
}

/// Who had such a lock just before somebody else and ended while that one ran: holder, and who
/// waited.
pub(crate) fn lock_waits(index: &Index, mut held: Vec<Held>) -> Vec<(Held, Held)> {
    held.sort_unstable();
    let pairs = held.windows(2).filter(|pair| {
        let [holder, waiting] = [pair[0], pair[1]];
        let end = index.transaction_ended(holder.at);
        (holder.recorder, holder.target) == (waiting.recorder, waiting.target)
            && holder.at != waiting.at
            && end >= index.began[waiting.at]
            && end <= index.transaction_ended(waiting.at)
    });
    pairs.map(|pair| (pair[0], pair[1])).collect()
}

/// The transaction for which one most probably waited: of those that it did not see, the last that
/// was over while it ran. For the place of one that has statements which were
/// [rechecked](Transaction::rechecked).
pub(crate) fn recheck_wait(index: &Index, at: usize, own: &Transaction) -> Option<usize> {
    let looking = Looking {
        index,
        lanes: Lanes::Client,
        at,
        own,
    };
    let unseen = looking.unseen(last_snapshot(own)?, own.ended);
    last_over(index, at, &unseen)
}

fn last_over(index: &Index, at: usize, others: &[usize]) -> Option<usize> {
    let ran = index.began[at]..=index.transaction_ended(at);
    let over = others.iter().copied();
    over.filter(|other| ran.contains(&index.transaction_ended(*other)))
        .max_by_key(|other| index.transaction_ended(*other))
}

/// Clocks of two sessions' observations may be so far apart, in µs.
const SLACK: Micros = 1_000_000;

/// Rows of the trace, with their places in the index.
fn read(
    trace: &Trace,
    index: &Index,
    places: &[usize],
) -> Result<Vec<(usize, Transaction)>, ReadError> {
    let ids = places.iter().map(|at| (index.transaction[*at], *at));
    let ids: std::collections::BTreeMap<u64, usize> = ids.collect();
    let (Some((first, _)), Some((last, _))) = (ids.first_key_value(), ids.last_key_value()) else {
        return Ok(Vec::new());
    };
    let last = (*last).min(first + LOCKERS_MAX);
    let filter = TransactionFilter {
        ids: Some(Id(*first)..=Id(last)),
        lean: true,
        ..TransactionFilter::default()
    };
    let mut found = Vec::new();
    for transaction in trace.transactions(filter) {
        let transaction = transaction?;
        if let Some(at) = ids.get(&transaction.id.0) {
            found.push((*at, transaction));
        }
    }
    Ok(found)
}

/// What its last statement saw: under READ COMMITTED that is more than the first did.
fn last_snapshot(own: &Transaction) -> Option<&Snapshot> {
    let later = own.statement_snapshots.last().map(|one| &one.snapshot);
    later.or(own.snapshot.as_ref())
}

/// Requests that did not see what this one wrote, and whose writes this one did not see.
fn crossings(
    trace: &Trace,
    index: &Index,
    lanes: Lanes,
    request: usize,
) -> Result<Vec<Crossing>, ReadError> {
    let of = |request: usize| index.transactions_of(request).take(OWN_MAX);
    let own = read_whole(trace, index, of(request).collect())?;
    // A look is trusted as long as the request goes on: others may write after it and before that.
    let until = own
        .iter()
        .map(|(_, own)| own.ended)
        .max()
        .unwrap_or_default();
    let mut met: Vec<(usize, usize)> = Vec::new();
    for (place, (at, transaction)) in own.iter().enumerate() {
        let looking = Looking {
            index,
            lanes,
            at: *at,
            own: transaction,
        };
        let unseen = last_snapshot(transaction).map(|snapshot| looking.unseen(snapshot, until));
        met.extend(unseen.into_iter().flatten().map(|other| (place, other)));
    }
    let requests = met.iter().filter_map(|(_, other)| index.request_of(*other));
    let requests: BTreeSet<usize> = requests.filter(|other| *other != request).collect();
    if requests.is_empty() || !own.iter().any(|(_, own)| own.xid.is_some()) {
        return Ok(Vec::new());
    }
    let others = requests.iter().flat_map(|request| of(*request)).collect();
    let others = read_whole(trace, index, others)?;
    let mut found: Vec<Crossing> = Vec::new();
    for (place, writer) in met {
        let Some(other) = index.request_of(writer).filter(|other| *other != request) else {
            continue;
        };
        let theirs = others
            .iter()
            .filter(|(at, _)| index.transactions_of(other).contains(at));
        for theirs in theirs {
            let unseen = own.iter().filter(|own| is_unseen_write(index, own, theirs));
            for write in unseen {
                let Some(their_write) = others.iter().find(|(at, _)| *at == writer) else {
                    continue;
                };
                let crossing = Crossing::of(index, lanes, &own[place], write, theirs, their_write);
                found.extend(crossing);
            }
        }
    }
    Ok(told(found))
}

type Placed = (usize, Transaction);

/// Whether one wrote where the other one looked, and was not seen by it.
fn is_unseen_write(index: &Index, (at, own): &Placed, (other, reader): &Placed) -> bool {
    let facts = |at: usize| &index.shapes[index.shape[at] as usize];
    let unseen = |xid| last_snapshot(reader).is_some_and(|snapshot| !snapshot.sees(xid));
    index.flags[*at] & COMMITTED != 0
        && own.xid.is_some_and(unseen)
        && facts(*at).met_by(facts(*other)).next().is_some()
}

impl Crossing {
    /// `None`: they wrote other tables, or with other values.
    fn of(
        index: &Index,
        lanes: Lanes,
        read: &Placed,
        write: &Placed,
        other_read: &Placed,
        other_write: &Placed,
    ) -> Option<Self> {
        let facts = |at: usize| &index.shapes[index.shape[at] as usize];
        let request = index.request_of(other_write.0)?;
        let (own, other) = (facts(write.0), facts(other_write.0));
        let tables: Vec<String> = own.writes.intersection(&other.writes).cloned().collect();
        let values = |(at, own): &Placed| -> Option<Vec<String>> {
            let sent = own.client_bytes.as_deref()?;
            let said = spoken(Some(sent), &facts(*at).statements).into_iter();
            Some(said.flat_map(|one| one.values).collect())
        };
        let both = values(write).zip(values(other_write));
        let shared: Option<Vec<String>> = both.map(|(mut own, other)| {
            let mut told = BTreeSet::new();
            own.retain(|value| other.contains(value) && told.insert(value.clone()));
            own
        });
        if tables.is_empty() || shared.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        let id = |(_, own): &Placed| own.id.to_string();
        Some(Self {
            read: id(read),
            read_began: read.1.began,
            write: id(write),
            write_ended: write.1.ended,
            request: Id(index.id[request]).to_string(),
            lane: lanes.of(index, request),
            other_read: id(other_read),
            other_read_began: other_read.1.began,
            other_write: id(other_write),
            other_write_ended: other_write.1.ended,
            tables,
            known: shared.is_some(),
            values: shared.unwrap_or_default(),
        })
    }
}

/// Of each other request the one with most in common; where values are known, only those with as
/// many in common as any: other users of one forum share its number, too.
fn told(mut found: Vec<Crossing>) -> Vec<Crossing> {
    // A look and a write tell more than two writes.
    let alike =
        |one: &Crossing| (one.read == one.write) as u8 + (one.other_read == one.other_write) as u8;
    found.sort_by_key(|one| (std::cmp::Reverse(one.values.len()), alike(one)));
    let most = found.first().map_or(0, |one| one.values.len());
    let mut requests = BTreeSet::new();
    found.retain(|one| one.values.len() == most && requests.insert(one.request.clone()));
    found.truncate(TOLD_MAX);
    found
}

/// With what was sent, and what each statement saw.
fn read_whole(trace: &Trace, index: &Index, places: Vec<usize>) -> Result<Vec<Placed>, ReadError> {
    let mut found = Vec::new();
    let mut requests: Vec<usize> = places
        .iter()
        .filter_map(|at| index.request_of(*at))
        .collect();
    requests.dedup();
    for request in requests {
        let id = Id(index.id[request]);
        let filter = TransactionFilter {
            requests: Some(id..=id),
            ids: ids_of(index, index.transactions_of(request)),
            ..TransactionFilter::default()
        };
        for transaction in trace.transactions(filter).take(OWN_MAX) {
            let transaction = transaction?;
            let at = index.find_transaction(transaction.id, Some(id));
            found.extend(at.map(|at| (at, transaction)));
        }
    }
    Ok(found)
}

/// Between which ids they are: files that hold others are not read.
fn ids_of(index: &Index, places: std::ops::Range<usize>) -> Option<std::ops::RangeInclusive<Id>> {
    let ids = &index.transaction[places];
    Some(Id(*ids.iter().min()?)..=Id(*ids.iter().max()?))
}

/// `every transaction id below 812 that committed, except 809 and 810`
pub fn snapshot_text(snapshot: &Snapshot) -> String {
    let mut text = format!(
        "every transaction id below {} that committed",
        snapshot.xmax
    );
    let shown: Vec<String> = snapshot
        .in_progress
        .iter()
        .take(12)
        .map(ToString::to_string)
        .collect();
    let more = snapshot.in_progress.len() - shown.len();
    match shown.as_slice() {
        [] => {}
        [one] => text += &format!(", except {one}"),
        [head @ .., last] if more == 0 => {
            text += &format!(", except {} and {last}", head.join(", "));
        }
        all => text += &format!(", except {} and {more} more", all.join(", ")),
    }
    text
}
