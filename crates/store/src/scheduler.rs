//! The scheduler: it runs on the appender's thread.
//!
//! While a write goes into the log it learns which write comes before it in its row (the paper's
//! `prev_timestamp`, section 7.2). That is all the scheduling there is: workers find out on their
//! own when a write is next, and the queue of every row lies in the log. The map from keys to rows
//! is private to this thread.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use crate::log::{Base, Commit, Header, Kind, NO_ROW, Segment, write_body};
use crate::map::{Entry, Last, RowMap, hash_of};
use crate::modes::Conflicts;
use crate::rows::{ROWS_MAX, row_bytes};
use crate::shared::{ARRIVALS_MANY, Shared, Table, lock};
use crate::types::{Cell, Failure, Mark, Mode, TableId};

/// How many segments wait for each worker before the appender does.
pub(crate) const QUEUE_SEGMENTS: usize = 8;

/// So many puts are looked up together.
const UNSETTLED_MAX: usize = 16;

/// The one writer. Everything is given in commit order; what was not committed is never visible.
///
/// After the store failed ([`crate::Store::failure`]) everything is ignored. Dropping the appender
/// hands over what was written; what is committed becomes visible, and the store goes on serving
/// reads.
pub struct Appender {
    shared: Arc<Shared>,
    queues: Vec<SyncSender<Box<Segment>>>,
    used: Receiver<Box<Segment>>,
    next_worker: usize,
    open: Box<Segment>,
    /// The number of the last write.
    seq: u64,
    tables: Vec<TableMap>,
    table_numbers: HashMap<TableId, usize>,
    /// The table of the last write; most often the next one's too.
    last_table: (TableId, usize),
    /// Puts whose values are in the open segment and whose headers are not, in order; and their
    /// keys, one behind the other.
    unsettled: Vec<Put>,
    unsettled_keys: Vec<u8>,
    /// Deletions whose rows are not forgotten yet, in log order.
    tombstones: VecDeque<Tombstone>,
    truncations: VecDeque<(usize, u64)>,
    free_rows: Vec<u32>,
    next_row: u32,
    /// Only in [`Mode::Transaction`].
    conflicts: Option<Conflicts>,
    born_bytes: i64,
    map_bytes: u64,
    written: u64,
    committed: u64,
    /// The store failed or is gone: nobody will apply anything any more.
    ended: bool,
}

/// A put that was taken in.
struct Put {
    table: usize,
    hash: u32,
    /// Where its key ends among the keys of unsettled puts.
    key_end: usize,
    layout: u32,
    cells: u32,
    unchanged: bool,
    len: u32,
}

struct TableMap {
    shared: Arc<Table>,
    rows: RowMap,
    /// Memory of `rows`, when last looked at.
    bytes: u64,
    /// Rows below this are gone, whatever their entry says.
    truncated: u64,
    born: Vec<u32>,
    dead: Vec<u32>,
}

struct Tombstone {
    seq: u64,
    table: usize,
    hash: u32,
    row: u32,
}

impl Appender {
    pub(crate) fn new(
        shared: Arc<Shared>,
        queues: Vec<SyncSender<Box<Segment>>>,
        used: Receiver<Box<Segment>>,
    ) -> Appender {
        let conflicts =
            (shared.options.mode == Mode::Transaction).then(|| Conflicts::new(shared.clone()));
        Appender {
            open: Box::new(Segment::with_capacity(shared.options.segment_bytes)),
            shared,
            queues,
            used,
            next_worker: 0,
            seq: 0,
            tables: Vec::new(),
            table_numbers: HashMap::new(),
            last_table: (TableId(0), usize::MAX),
            unsettled: Vec::with_capacity(UNSETTLED_MAX),
            unsettled_keys: Vec::new(),
            tombstones: VecDeque::new(),
            truncations: VecDeque::new(),
            free_rows: Vec::new(),
            next_row: 0,
            conflicts,
            born_bytes: 0,
            map_bytes: 0,
            written: 0,
            committed: 0,
            ended: false,
        }
    }

    /// Inserts or replaces a row. With `moved_from`, the row had that key before: `Unchanged` cells
    /// come from there and the old key is deleted.
    ///
    /// Panics when the values take more than 1 GiB, which no row of Postgres can.
    pub fn put<'a>(
        &mut self,
        table: TableId,
        key: &[u8],
        layout: u32,
        mut cells: impl ExactSizeIterator<Item = Cell<'a>>,
        moved_from: Option<&[u8]>,
    ) {
        if self.ended {
            return;
        }
        // The values first: taking them from the caller is all that can go wrong, and then nothing
        // was done yet.
        let body = self.open.data_used;
        self.open.data.truncate(body);
        let put = Put {
            table: self.table(table),
            hash: hash_of(key),
            key_end: self.unsettled_keys.len() + key.len(),
            layout,
            cells: cells.len() as u32,
            unchanged: write_body(&mut self.open.data, &mut cells),
            len: (self.open.data.len() - body) as u32,
        };
        self.open.data_used = self.open.data.len();
        match moved_from.filter(|&old| old != key) {
            Some(old) => {
                self.settle();
                let old = self.live(put.table, old);
                self.append_put(&put, key, Some(old));
                self.hand_over_if_full();
            }
            None => {
                self.unsettled_keys.extend_from_slice(key);
                self.unsettled.push(put);
                if self.unsettled.len() >= UNSETTLED_MAX
                    || self.open.bytes() >= self.shared.options.segment_bytes
                {
                    self.settle();
                    self.hand_over_if_full();
                }
            }
        }
    }

    /// Deletes a row. Nothing happens if there is none.
    pub fn delete(&mut self, table: TableId, key: &[u8]) {
        if self.ended {
            return;
        }
        self.settle();
        let table = self.table(table);
        if let Some(entry) = self.live(table, key) {
            self.bury(table, entry);
            self.hand_over_if_full();
        }
    }

    /// Deletes every row of a table.
    pub fn truncate(&mut self, table: TableId) {
        if self.ended {
            return;
        }
        self.settle();
        let table = self.table(table);
        self.append(Header {
            prev: 0,
            row: NO_ROW,
            len: 0,
            layout: 0,
            cells: 0,
            kind: Kind::Nothing,
        });
        let map = &mut self.tables[table];
        map.truncated = self.seq;
        // No reader minds: its snapshot does not go so far before this transaction is committed and
        // applied.
        lock(&map.shared.truncations).push(self.seq);
        self.truncations.push_back((table, self.seq));
        self.hand_over_if_full();
    }

    /// Ends a transaction. One without writes is fine: it says that the log has nothing else up to
    /// `mark`.
    pub fn commit(&mut self, mark: Mark) {
        if self.ended {
            return;
        }
        self.settle();
        self.open.commits.push(Commit {
            seq: self.seq,
            mark,
        });
        self.committed += 1;
        if let Some(conflicts) = &mut self.conflicts {
            conflicts.end(self.seq, &mut self.open);
            if conflicts.crowded() {
                self.hand_over();
                self.wait_while(|appender| {
                    appender.conflicts.as_mut().is_some_and(Conflicts::crowded)
                });
            }
        }
        if self.open.bytes() >= self.shared.options.segment_bytes
            || self.shared.waiting.load(Ordering::Relaxed) > 0
        {
            self.hand_over();
        }
    }

    /// Hands what was written so far to the workers now instead of when a segment is full, and
    /// tidies up.
    pub fn flush(&mut self) {
        self.settle();
        self.hand_over();
    }

    fn table(&mut self, id: TableId) -> usize {
        if self.last_table.0 == id && self.last_table.1 != usize::MAX {
            return self.last_table.1;
        }
        let number = match self.table_numbers.get(&id) {
            Some(&number) => number,
            None => {
                let shared = Arc::new(Table::new());
                lock(&self.shared.tables).insert(id, shared.clone());
                self.tables.push(TableMap {
                    shared,
                    rows: RowMap::new(),
                    bytes: 0,
                    truncated: 0,
                    born: Vec::new(),
                    dead: Vec::new(),
                });
                self.table_numbers.insert(id, self.tables.len() - 1);
                self.tables.len() - 1
            }
        };
        self.last_table = (id, number);
        number
    }

    /// The entry of a key that has a row now.
    fn live(&mut self, table: usize, key: &[u8]) -> Option<Entry> {
        let map = &mut self.tables[table];
        let rows = &self.shared.rows;
        // SAFETY: the map holds rows that this thread created and has not given up.
        let same = |row: u32| unsafe { rows.key(row) } == key;
        let entry = map.rows.find(hash_of(key), same)?;
        (!entry.last.is_deleted() && entry.last.seq() > map.truncated).then_some(*entry)
    }

    /// Gives the puts that were taken in their places in the log.
    ///
    /// Each needs the map, and for a row that exists its slot: memory that is in no cache. So all
    /// of them are looked up first, just to have it on its way for all at once.
    fn settle(&mut self) {
        let mut puts = std::mem::take(&mut self.unsettled);
        let mut keys = std::mem::take(&mut self.unsettled_keys);
        let rows = &self.shared.rows;
        let mut start = 0;
        for put in &puts {
            let key = &keys[start..put.key_end];
            start = put.key_end;
            // SAFETY: the map holds rows that this thread created and has not given up.
            let same = |row: u32| unsafe { rows.key(row) } == key;
            std::hint::black_box(self.tables[put.table].rows.find(put.hash, same).is_some());
        }
        start = 0;
        for put in &puts {
            self.append_put(put, &keys[start..put.key_end], None);
            start = put.key_end;
        }
        puts.clear();
        keys.clear();
        self.unsettled = puts;
        self.unsettled_keys = keys;
    }

    /// Appends a put whose values are in the open segment already. `moved_from`: the row had
    /// another key, that of this entry if there is one; it is deleted.
    fn append_put(&mut self, put: &Put, key: &[u8], moved_from: Option<Option<Entry>>) {
        let Some((row, prev)) = self.claim(put, key) else {
            return;
        };
        if put.unchanged {
            let base = match moved_from {
                Some(old) => old.map(|old| (old.row, old.last)),
                None => Some((row, prev)),
            };
            let truncated = self.tables[put.table].truncated;
            let base = base.filter(|(_, last)| last.seq() > truncated && !last.is_deleted());
            self.open.bases.push(match base {
                Some((row, last)) => Base {
                    row,
                    seq: last.seq(),
                },
                None => Base {
                    row: NO_ROW,
                    seq: 0,
                },
            });
        }
        let kind = if put.unchanged {
            Kind::PutOver
        } else {
            Kind::Put
        };
        let Put {
            len, layout, cells, ..
        } = *put;
        self.append(Header {
            prev: prev.seq(),
            row,
            len,
            layout,
            cells,
            kind,
        });
        if let Some(Some(old)) = moved_from {
            self.bury(put.table, old);
        }
    }

    /// The row for the next write, a put to `key`, and what was the last write to it. `None` when
    /// there is no room.
    fn claim(&mut self, put: &Put, key: &[u8]) -> Option<(u32, Last)> {
        let this = Last::put(self.seq + 1);
        let hash = put.hash;
        let rows = &self.shared.rows;
        let map = &mut self.tables[put.table];
        // SAFETY: the map holds rows that this thread created and has not given up.
        let same = |row: u32| unsafe { rows.key(row) } == key;
        let entry = map.rows.find_or_insert(hash, same, || {
            let row = match self.free_rows.pop() {
                Some(row) => row,
                None if self.next_row < ROWS_MAX => {
                    self.next_row += 1;
                    self.next_row - 1
                }
                None => return None,
            };
            // SAFETY: this is the scheduler, and the id is fresh or came back from the indexer.
            unsafe { rows.create(row, key) };
            map.born.push(row);
            self.born_bytes += row_bytes(key) as i64;
            Some(Entry {
                hash,
                row,
                last: Last::none(),
            })
        });
        let Some(entry) = entry else {
            self.shared.fail(Failure::TooManyRows {
                limit: u64::from(ROWS_MAX),
            });
            // What is open now lacks a header and will go nowhere.
            self.ended = true;
            return None;
        };
        Some((entry.row, std::mem::replace(&mut entry.last, this)))
    }

    /// Appends the deletion of a row that is there.
    fn bury(&mut self, table: usize, entry: Entry) {
        self.append(Header {
            prev: entry.last.seq(),
            row: entry.row,
            len: 0,
            layout: 0,
            cells: 0,
            kind: Kind::Delete,
        });
        let seq = self.seq;
        let hash = entry.hash;
        if let Some(entry) = self.tables[table].rows.find(hash, |row| row == entry.row) {
            entry.last = Last::deleted(seq);
        }
        self.tombstones.push_back(Tombstone {
            seq,
            table,
            hash,
            row: entry.row,
        });
    }

    /// Inlined, so that a header is written field by field where it stays. Copied from the stack in
    /// larger pieces than it was written in, it would wait until all earlier stores are through,
    /// above all the one to the map, which misses every cache: a third of the scheduler's time.
    #[inline(always)]
    fn append(&mut self, header: Header) {
        self.seq += 1;
        self.written += 1;
        if let Some(conflicts) = &mut self.conflicts {
            conflicts.touch(header.prev, &mut self.open);
        }
        self.open.headers.push(header);
    }

    fn hand_over_if_full(&mut self) {
        // A transaction is one unit for one worker in that mode, so it must not be torn.
        if self.open.bytes() >= self.shared.options.segment_bytes && self.conflicts.is_none() {
            self.hand_over();
        }
    }

    /// Gives the open segment to the next worker, and tells everybody else what is in it.
    fn hand_over(&mut self) {
        if self.shared.ending() {
            self.ended = true;
            self.open.clear();
            return;
        }
        self.forget_dead_rows();
        self.publish_rows();
        self.shared.written.store(self.written, Ordering::Relaxed);
        self.shared
            .committed
            .store(self.committed, Ordering::Relaxed);
        if self.over_memory() {
            self.wait_while(|appender| {
                // The dead rows that a moving horizon uncovers are part of what gives memory back.
                appender.forget_dead_rows();
                appender.publish_rows();
                appender.over_memory()
            });
        }
        if !self.open.commits.is_empty() {
            lock(&self.shared.commits).append(&mut self.open.commits);
        }
        // In Transaction mode the open transaction stays with its segment until it is complete.
        if self.open.headers.is_empty()
            || (self.conflicts.is_some() && Conflicts::inside(&self.open))
        {
            if self.shared.waiting.load(Ordering::Relaxed) > 0 {
                self.shared.wake_snapshotter();
            }
            return;
        }
        let fresh = self.used.try_recv().unwrap_or_else(|_| {
            Box::new(Segment::with_capacity(self.shared.options.segment_bytes))
        });
        let mut segment = std::mem::replace(&mut self.open, fresh);
        segment.first = self.seq + 1 - segment.headers.len() as u64;

        let worker = self.next_worker;
        self.next_worker = (worker + 1) % self.queues.len();
        self.shared.assigned[worker]
            .0
            .store(self.seq, Ordering::Release);
        // After `assigned`: whoever sees this sees that.
        self.shared.frontier.store(self.seq, Ordering::Release);
        if let Err(TrySendError::Full(segment)) = self.queues[worker].try_send(segment) {
            let since = Instant::now();
            // An error means that the worker is gone, which is a failure that is already known.
            let _ = self.queues[worker].send(segment);
            self.held_back(since);
        }
    }

    fn over_memory(&self) -> bool {
        self.shared
            .options
            .memory_max
            .is_some_and(|max| self.shared.memory() > max)
    }

    fn wait_while(&mut self, mut condition: impl FnMut(&mut Appender) -> bool) {
        let since = Instant::now();
        while !self.shared.ending() && condition(self) {
            self.shared.wake_snapshotter();
            self.shared.wake_indexer();
            std::thread::park_timeout(Duration::from_millis(1));
        }
        self.held_back(since);
    }

    fn held_back(&self, since: Instant) {
        self.shared
            .held_back_us
            .fetch_add(since.elapsed().as_micros() as u64, Ordering::Relaxed);
    }

    /// Removes from the map the rows that no snapshot can see any more and that nothing was written
    /// to since.
    fn forget_dead_rows(&mut self) {
        let horizon = self.shared.horizon.load(Ordering::Acquire);
        while let Some(tombstone) = self
            .tombstones
            .front()
            .filter(|tombstone| tombstone.seq <= horizon)
        {
            let map = &mut self.tables[tombstone.table];
            // Otherwise the key has a row again, or lost this one to a truncation.
            if map
                .rows
                .remove(tombstone.hash, tombstone.row, Last::deleted(tombstone.seq))
            {
                map.dead.push(tombstone.row);
            }
            self.tombstones.pop_front();
        }
        while let Some(&(table, at)) = self
            .truncations
            .front()
            .filter(|truncation| truncation.1 <= horizon)
        {
            let map = &mut self.tables[table];
            let dead = &mut map.dead;
            map.rows.retain(|entry| {
                let stays = entry.last.seq() > at;
                if !stays {
                    dead.push(entry.row);
                }
                stays
            });
            let mut truncations = lock(&map.shared.truncations);
            // This one still hides the versions below it; the ones before it hide nothing more.
            truncations.retain(|&other| other >= at);
            self.truncations.pop_front();
        }
        if self.free_rows.is_empty() {
            std::mem::swap(&mut self.free_rows, &mut lock(&self.shared.free_rows));
        }
    }

    /// Tells readers and the indexer which rows are new and which are dead. Before the segment goes
    /// out: whoever sees a snapshot with a row finds the row here.
    fn publish_rows(&mut self) {
        self.shared.account(std::mem::take(&mut self.born_bytes), 0);
        let mut many = false;
        for map in &mut self.tables {
            if map.born.is_empty() && map.dead.is_empty() {
                continue;
            }
            let bytes = map.rows.bytes() as u64;
            self.map_bytes = self.map_bytes - map.bytes + bytes;
            map.bytes = bytes;
            let mut arrivals = lock(&map.shared.arrivals);
            arrivals.born.append(&mut map.born);
            arrivals.dead.append(&mut map.dead);
            let count = arrivals.born.len() + arrivals.dead.len();
            map.shared.arrived.store(count, Ordering::Relaxed);
            many |= count >= ARRIVALS_MANY;
        }
        self.shared
            .map_bytes
            .store(self.map_bytes, Ordering::Relaxed);
        if many {
            self.shared.wake_indexer();
        }
    }
}

#[cfg(test)]
impl Appender {
    /// Puts something into the log that no worker can apply.
    pub(crate) fn append_defect(&mut self) {
        self.append(Header {
            prev: 0,
            row: NO_ROW,
            len: 0,
            layout: 0,
            cells: 0,
            kind: Kind::Delete,
        });
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.flush();
        }
    }
}
