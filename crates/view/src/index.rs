//! Every request and transaction as a row of numbers.
//!
//! 34 bytes a request and 33 a transaction (37 if it wrote); the rest of what is known of them is
//! read from the trace when somebody asks for one.

use std::collections::BTreeSet;

use hindcast_trace::{Id, Micros, RequestId};

/// Requests per entry of [`Index::block_ends`].
pub(crate) const BLOCK: usize = 1024;

/// In the place of a status: the client or the service went away before the response was complete.
pub const BROKEN: u16 = 0;
/// In the place of a status: it was passed through without being recorded.
pub const UNRECORDED: u16 = 1;

/// A transaction committed.
pub const COMMITTED: u8 = 1;
pub const ABORTED: u8 = 2;
/// It has a transaction id: it wrote.
pub const WROTE: u8 = 4;
/// It has statements that lock other than by writing.
pub const LOCKS: u8 = 8;
/// A statement of it waited for another transaction, or found a row changed.
pub const RECHECKED: u8 = 16;

/// Requests by arrival; transactions by request and, within one, by beginning; ghosts behind all
/// others.
#[derive(Debug, Default)]
pub struct Index {
    pub arrived: Vec<Micros>,
    /// Saturates after 71 minutes.
    pub took: Vec<u32>,
    pub id: Vec<u64>,
    /// Position in [`Index::types`].
    pub kind: Vec<u16>,
    pub status: Vec<u16>,
    /// The first place that was free when it arrived.
    pub slot: Vec<u16>,
    /// Where its transactions begin; one more than there are requests.
    pub first: Vec<u32>,
    pub types: Vec<String>,
    pub slots: usize,
    /// Of each block of requests, when the last of them ended.
    pub(crate) block_ends: Vec<Micros>,
    /// Requests in the order of their ids, where that is not the order of arrival.
    pub(crate) by_id: Vec<u32>,

    pub began: Vec<Micros>,
    pub lasted: Vec<u32>,
    pub transaction: Vec<u64>,
    /// Position in [`Index::sessions`].
    pub session: Vec<u32>,
    /// Position in [`Index::shapes`].
    pub shape: Vec<u32>,
    pub flags: Vec<u8>,
    pub sessions: Vec<u64>,
    pub shapes: Vec<ShapeFacts>,
    /// Transactions that wrote and did not abort, by transaction id.
    pub writers: Vec<Writer>,
    pub(crate) last_end: Micros,
}

/// A transaction that others may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    pub xid: u64,
    /// Position in the columns.
    pub at: u32,
}

/// What is known of a kind of transaction by its statements.
#[derive(Clone, Debug, Default)]
pub struct ShapeFacts {
    pub id: u32,
    pub statements: Vec<String>,
    pub reads: BTreeSet<String>,
    pub writes: BTreeSet<String>,
}

impl ShapeFacts {
    /// `subscriptions` means `public.subscriptions`, too.
    pub fn touches(&self, table: &str) -> bool {
        let mut names = self.reads.iter().chain(&self.writes);
        names.any(|name| {
            name.eq_ignore_ascii_case(table)
                || name
                    .rsplit('.')
                    .next()
                    .is_some_and(|last| last.eq_ignore_ascii_case(table))
        })
    }

    /// Tables that this kind writes and the other one reads or writes.
    pub fn met_by<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        let met = self
            .writes
            .iter()
            .filter(|name| other.reads.contains(*name) || other.writes.contains(*name));
        met.map(String::as_str)
    }
}

impl Index {
    pub fn requests(&self) -> usize {
        self.id.len()
    }

    pub fn transactions(&self) -> usize {
        self.transaction.len()
    }

    pub fn transactions_of(&self, request: usize) -> std::ops::Range<usize> {
        self.first[request] as usize..self.first[request + 1] as usize
    }

    /// Transactions of no request, by beginning.
    pub fn ghosts(&self) -> std::ops::Range<usize> {
        self.first.last().map_or(0, |end| *end as usize)..self.transactions()
    }

    /// `None`: it is a ghost.
    pub fn request_of(&self, transaction: usize) -> Option<usize> {
        let behind = self
            .first
            .partition_point(|first| *first as usize <= transaction);
        behind.checked_sub(1).filter(|at| *at < self.requests())
    }

    pub fn ended(&self, request: usize) -> Micros {
        self.arrived[request].saturating_add(i64::from(self.took[request]))
    }

    pub fn transaction_ended(&self, transaction: usize) -> Micros {
        self.began[transaction].saturating_add(i64::from(self.lasted[transaction]))
    }

    /// From the first arrival to the last thing that ended.
    pub fn span(&self) -> Option<(Micros, Micros)> {
        let ghosts = self.ghosts();
        let first = self.arrived.first().into_iter();
        let first = first.chain(self.began.get(ghosts.start)).min()?;
        Some((*first, self.last_end.max(first + 1)))
    }

    pub fn find(&self, id: RequestId) -> Option<usize> {
        if self.by_id.is_empty() {
            return self.id.binary_search(&id.0).ok();
        }
        let key = |at: &u32| self.id[*at as usize];
        let place = self.by_id.binary_search_by_key(&id.0, key).ok()?;
        Some(self.by_id[place] as usize)
    }

    /// Where a transaction is, of which the request is known.
    pub fn find_transaction(&self, id: Id, request: Option<RequestId>) -> Option<usize> {
        let among = match request {
            Some(request) => self.transactions_of(self.find(request)?),
            None => self.ghosts(),
        };
        let ids = &self.transaction[among.clone()];
        Some(among.start + ids.iter().position(|one| *one == id.0)?)
    }

    /// Requests of which some part lies within the range, by arrival.
    pub fn within(&self, from: Micros, until: Micros) -> impl Iterator<Item = usize> + '_ {
        let first = self.arrived.partition_point(|at| *at < from);
        let end = self.arrived.partition_point(|at| *at < until).max(first);
        let earlier = (0..first.div_ceil(BLOCK))
            .filter(move |block| self.block_ends[*block] > from)
            .flat_map(move |block| block * BLOCK..((block + 1) * BLOCK).min(first))
            .filter(move |at| self.ended(*at) > from);
        earlier.chain(first..end)
    }

    /// Bytes that the columns take.
    pub fn bytes(&self) -> usize {
        fn of<T>(column: &[T]) -> usize {
            std::mem::size_of_val(column)
        }
        of(&self.arrived)
            + of(&self.took)
            + of(&self.id)
            + of(&self.kind)
            + of(&self.status)
            + of(&self.slot)
            + of(&self.first)
            + of(&self.by_id)
            + of(&self.began)
            + of(&self.lasted)
            + of(&self.transaction)
            + of(&self.session)
            + of(&self.shape)
            + of(&self.flags)
            + of(&self.writers)
    }
}
