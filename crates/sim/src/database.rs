//! A database with multi-version rows under snapshot isolation, as Postgres' REPEATABLE READ has
//! it, or under its READ COMMITTED.
//!
//! - The first statement takes the snapshot: all transactions completed so far are below `xmax` or
//!   not `in_progress`. Under READ COMMITTED each statement takes one.
//! - A transaction gets its id when it first writes or locks a row; ids are visible from the moment
//!   of commit.
//! - Writing a row locks it until the end. The second to come waits; if the first commits a new
//!   version, the second fails with a serialization error, and otherwise goes on (first updater
//!   wins). Under READ COMMITTED it goes on with the new version.
//! - Rows can be locked without writing, for update or shared, and so can advisory keys.
//! - Waiting in a circle fails the transaction that closes it.
//! - Rolling back to a savepoint undoes writes and releases the locks taken since.
//! - A row with the value 0 can be inserted. Inserting one that is there fails, whatever the
//!   snapshot shows: in a savepoint of its own, which has an id and is rolled back to.
//!
//! Nothing here is concurrent: a statement that would wait says so and is tried again at a later
//! step.

use std::collections::BTreeSet;

use hindcast_model::{Snapshot, Xid};

/// A lockable thing: rows come first, advisory keys after them.
pub type Lockable = u8;

/// An open transaction's place in the database.
pub type Handle = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Share,
    Exclusive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Read(u8),
    Write(u8, u64),
    /// `SAVEPOINT`, `INSERT`, and where that fails `ROLLBACK TO`. Under READ COMMITTED only.
    Insert(u8, u64),
    /// `SELECT … FOR UPDATE` or `FOR SHARE`: reads as well.
    LockRow(u8, Mode),
    /// `pg_advisory_xact_lock`.
    Advisory(u8),
    Savepoint,
    /// `ROLLBACK TO` the latest savepoint, or to the beginning.
    RollbackTo,
}

impl Op {
    pub fn takes_snapshot(self) -> bool {
        !matches!(self, Op::Savepoint | Op::RollbackTo)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Value(u64),
    Done,
    /// Could not serialize access due to concurrent update.
    Serialization,
    Deadlock,
    /// There is such a row.
    Duplicate,
}

impl Answer {
    pub fn failed(self) -> bool {
        matches!(self, Answer::Serialization | Answer::Deadlock)
    }
}

#[derive(Clone, Copy, Debug)]
struct Version {
    xid: Xid,
    value: u64,
}

#[derive(Clone, Debug, Default)]
struct Open {
    read_committed: bool,
    xid: Option<Xid>,
    snapshot: Option<Snapshot>,
    /// Rows written, in order, to undo.
    wrote: Vec<u8>,
    /// Locks taken, in order, to release.
    locked: Vec<(Lockable, Mode)>,
    /// Lengths of `wrote` and `locked` at each savepoint.
    savepoints: Vec<(usize, usize)>,
    waits_for: Option<(Lockable, Mode)>,
}

#[derive(Clone, Debug)]
pub struct Database {
    rows: Vec<Vec<Version>>,
    /// By lockable: who holds it.
    holders: Vec<Vec<(Handle, Mode)>>,
    open: Vec<Option<Open>>,
    next_xid: u64,
    latest_completed: u64,
}

impl Database {
    pub fn new(rows: usize, advisory: usize) -> Self {
        Self {
            rows: vec![
                vec![Version {
                    xid: Xid(1),
                    value: 0
                }];
                rows
            ],
            holders: vec![Vec::new(); rows + advisory],
            open: Vec::new(),
            next_xid: 100,
            latest_completed: 99,
        }
    }

    pub fn begin(&mut self, read_committed: bool) -> Handle {
        let open = Open {
            read_committed,
            ..Open::default()
        };
        match self.open.iter().position(Option::is_none) {
            Some(handle) => {
                self.open[handle] = Some(open);
                handle
            }
            None => {
                self.open.push(Some(open));
                self.open.len() - 1
            }
        }
    }

    fn tx(&mut self, handle: Handle) -> &mut Open {
        self.open[handle].as_mut().expect("the transaction is open")
    }

    fn peek(&self, handle: Handle) -> &Open {
        self.open[handle].as_ref().expect("the transaction is open")
    }

    pub fn assign_xid(&mut self, handle: Handle) -> Xid {
        let next = Xid(self.next_xid);
        let xid = *self.tx(handle).xid.get_or_insert(next);
        self.next_xid += u64::from(xid == next);
        xid
    }

    pub fn xid(&self, handle: Handle) -> Option<Xid> {
        self.peek(handle).xid
    }

    /// Whether a statement would run with the snapshot that there is.
    pub fn has_snapshot(&self, handle: Handle) -> bool {
        let open = self.peek(handle);
        open.snapshot.is_some() && !open.read_committed
    }

    /// Whether the statement, run now, goes on with a version of its row that its snapshot does not
    /// show.
    pub fn rechecks(&self, handle: Handle, op: Op) -> bool {
        let row = self.needs(op).filter(|_| !matches!(op, Op::Advisory(_)));
        let stale = row.is_some_and(|(row, _)| self.is_stale(handle, row));
        stale && self.peek(handle).read_committed
    }

    pub fn take_snapshot(&mut self, handle: Handle) -> Snapshot {
        let snapshot = self.visible_now(handle);
        self.tx(handle).snapshot = Some(snapshot.clone());
        snapshot
    }

    /// What a snapshot would show.
    pub fn visible_now(&self, handle: Handle) -> Snapshot {
        let xmax = Xid(self.latest_completed + 1);
        let others = self
            .open
            .iter()
            .enumerate()
            .filter(|&(other, _)| other != handle);
        let running = others.filter_map(|(_, open)| open.as_ref()?.xid);
        let in_progress: BTreeSet<Xid> = running.filter(|&xid| xid < xmax).collect();
        Snapshot {
            xmin: in_progress.first().copied().unwrap_or(xmax),
            xmax,
            in_progress: in_progress.into_iter().collect(),
        }
    }

    fn needs(&self, op: Op) -> Option<(Lockable, Mode)> {
        match op {
            Op::Write(row, _) | Op::Insert(row, _) => Some((row, Mode::Exclusive)),
            Op::LockRow(row, mode) => Some((row, mode)),
            Op::Advisory(key) => Some((self.rows.len() as u8 + key, Mode::Exclusive)),
            Op::Read(_) | Op::Savepoint | Op::RollbackTo => None,
        }
    }

    fn blockers(
        &self,
        handle: Handle,
        (lockable, mode): (Lockable, Mode),
    ) -> impl Iterator<Item = Handle> {
        let conflicts = move |held: Mode| mode == Mode::Exclusive || held == Mode::Exclusive;
        let holders = self.holders[lockable as usize].iter();
        holders
            .filter(move |&&(other, held)| other != handle && conflicts(held))
            .map(|&(other, _)| other)
    }

    /// Whether a version of the row was committed that the transaction does not see.
    fn is_stale(&self, handle: Handle, row: u8) -> bool {
        let tx = self.peek(handle);
        let snapshot = tx
            .snapshot
            .as_ref()
            .expect("statements on rows have a snapshot");
        let in_progress = |xid| self.open.iter().flatten().any(|open| open.xid == Some(xid));
        let latest = self.rows[row as usize]
            .iter()
            .rfind(|v| !in_progress(v.xid) || Some(v.xid) == tx.xid);
        latest.is_some_and(|v| Some(v.xid) != tx.xid && !snapshot.sees(v.xid))
    }

    /// Whether the statement would have to wait now.
    pub fn would_wait(&self, handle: Handle, op: Op) -> bool {
        let Some(lock) = self.needs(op) else {
            return false;
        };
        let stale = !matches!(op, Op::Advisory(_)) && self.is_stale(handle, lock.0);
        let fails = stale && !self.peek(handle).read_committed;
        !fails && self.blockers(handle, lock).next().is_some()
    }

    /// The transactions that the statement would have to wait for now, and those that these wait
    /// for.
    pub fn in_the_way(&self, handle: Handle, op: Op) -> BTreeSet<Handle> {
        let mut found = BTreeSet::new();
        let Some(lock) = self.needs(op).filter(|_| self.would_wait(handle, op)) else {
            return found;
        };
        let mut queue: Vec<Handle> = self.blockers(handle, lock).collect();
        while let Some(at) = queue.pop() {
            if at != handle && found.insert(at) {
                let waits = self.peek(at).waits_for;
                queue.extend(waits.into_iter().flat_map(|lock| self.blockers(at, lock)));
            }
        }
        found
    }

    /// The statement that waits is given up.
    pub fn stop_waiting(&mut self, handle: Handle) {
        self.tx(handle).waits_for = None;
    }

    /// `None`: the statement waits; try again when [`Database::would_wait`] no longer says so.
    pub fn execute(&mut self, handle: Handle, op: Op) -> Option<Answer> {
        if let Some(lock) = self.needs(op) {
            let on_row = !matches!(op, Op::Advisory(_));
            if on_row && self.is_stale(handle, lock.0) && !self.peek(handle).read_committed {
                return Some(Answer::Serialization);
            }
            if self.blockers(handle, lock).next().is_some() {
                self.tx(handle).waits_for = Some(lock);
                return self.waits_in_circle(handle).then_some(Answer::Deadlock);
            }
            self.tx(handle).waits_for = None;
            if on_row {
                self.assign_xid(handle);
            }
            if let Op::Insert(row, _) = op {
                let id = self.next_xid;
                self.next_xid += 1;
                if self.latest(row) != 0 {
                    self.latest_completed = self.latest_completed.max(id);
                    return Some(Answer::Duplicate);
                }
            }
            self.holders[lock.0 as usize].push((handle, lock.1));
            self.tx(handle).locked.push(lock);
        }
        Some(match op {
            Op::LockRow(row, _) if self.rechecks(handle, op) => Answer::Value(self.latest(row)),
            Op::Read(row) | Op::LockRow(row, _) => Answer::Value(self.read(handle, row)),
            Op::Write(row, value) | Op::Insert(row, value) => {
                let xid = self.assign_xid(handle);
                self.rows[row as usize].push(Version { xid, value });
                self.tx(handle).wrote.push(row);
                Answer::Done
            }
            Op::Advisory(_) => Answer::Done,
            Op::Savepoint => {
                let tx = self.tx(handle);
                tx.savepoints.push((tx.wrote.len(), tx.locked.len()));
                Answer::Done
            }
            Op::RollbackTo => {
                let to = self.tx(handle).savepoints.pop().unwrap_or((0, 0));
                self.undo(handle, to);
                Answer::Done
            }
        })
    }

    fn read(&self, handle: Handle, row: u8) -> u64 {
        let tx = self.peek(handle);
        let snapshot = tx.snapshot.as_ref().expect("reading takes a snapshot");
        let visible = |v: &&Version| Some(v.xid) == tx.xid || snapshot.sees(v.xid);
        let version = self.rows[row as usize].iter().rfind(visible);
        version
            .expect("every row has a version that everybody sees")
            .value
    }

    /// Who has the row locked sees its last version, since nobody else can have written one.
    fn latest(&self, row: u8) -> u64 {
        let last = self.rows[row as usize].last();
        last.expect("every row has a version").value
    }

    fn waits_in_circle(&self, handle: Handle) -> bool {
        let mut reached = BTreeSet::new();
        let mut queue = vec![handle];
        while let Some(at) = queue.pop() {
            let Some(lock) = self.peek(at).waits_for else {
                continue;
            };
            for blocker in self.blockers(at, lock) {
                if blocker == handle {
                    return true;
                }
                if reached.insert(blocker) {
                    queue.push(blocker);
                }
            }
        }
        false
    }

    fn undo(&mut self, handle: Handle, (wrote, locked): (usize, usize)) {
        let tx = self.open[handle].as_mut().expect("the transaction is open");
        for row in tx.wrote.drain(wrote..).rev() {
            let versions = &mut self.rows[row as usize];
            let mine = versions.iter().rposition(|v| Some(v.xid) == tx.xid);
            versions.remove(mine.expect("what was written is there"));
        }
        for lock in tx.locked.drain(locked..).rev() {
            let holders = &mut self.holders[lock.0 as usize];
            let mine = holders.iter().rposition(|&held| held == (handle, lock.1));
            holders.remove(mine.expect("what was locked is held"));
        }
    }

    pub fn commit(&mut self, handle: Handle) {
        self.end(handle);
    }

    pub fn abort(&mut self, handle: Handle) {
        self.undo(handle, (0, 0));
        self.end(handle);
    }

    fn end(&mut self, handle: Handle) {
        let tx = self.open[handle].take().expect("the transaction is open");
        for holders in &mut self.holders {
            holders.retain(|&(holder, _)| holder != handle);
        }
        self.latest_completed = self.latest_completed.max(tx.xid.map_or(0, |xid| xid.0));
    }

    /// What the rows hold when no transaction is open.
    pub fn state(&self) -> Vec<u64> {
        self.rows
            .iter()
            .map(|versions| versions.last().expect("every row has a version").value)
            .collect()
    }
}
