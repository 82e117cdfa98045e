//! The epoch that is being put together.
//!
//! Pure. Changes come in commit order; what is taken out is a list of steps per worker, or one list
//! for a single worker if the order between rows of different workers matters.

use std::collections::HashMap;
use std::sync::Arc;

use hindcast_pg::Lsn;

use crate::pgoutput::{Change, Old, Truncate};

use super::epoch::{Body, Raw, Step, Work};
use super::net::{Applied, Contradiction, hash_key, write_key};
use super::table::Table;

/// About what a change costs besides its values.
const CHANGE_BYTES: usize = 64;

#[derive(Debug)]
pub struct Pending {
    /// One per worker.
    open: Vec<Open>,
    /// Steps that come before what is open. There are none unless the epoch must be written by one
    /// worker.
    closed: Vec<Step>,
    /// Changes are kept as they were, instead of what they amount to.
    in_order: bool,
    changes: usize,
    bytes: usize,
    key: Vec<u8>,
    old_key: Vec<u8>,
}

#[derive(Debug, Default)]
struct Open {
    works: Vec<Work>,
    /// By the table's serial.
    places: HashMap<u64, usize>,
}

impl Open {
    fn work(&mut self, table: &Arc<Table>, in_order: bool) -> &mut Work {
        let works = &mut self.works;
        let place = *self.places.entry(table.serial).or_insert_with(|| {
            works.push(Work::new(Arc::clone(table), in_order));
            works.len() - 1
        });
        &mut works[place]
    }
}

impl Pending {
    pub fn new(workers: usize) -> Self {
        Self {
            in_order: false,
            open: (0..workers).map(|_| Open::default()).collect(),
            closed: Vec::new(),
            changes: 0,
            bytes: 0,
            key: Vec::new(),
            old_key: Vec::new(),
        }
    }

    /// For one worker that does each change as it was.
    pub fn in_order() -> Self {
        Self {
            in_order: true,
            ..Self::new(1)
        }
    }

    /// Changes taken in since it was last emptied.
    pub fn changes(&self) -> usize {
        self.changes
    }

    /// The memory they hold, at most about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Steps that are complete.
    pub fn steps(&self) -> usize {
        self.closed.len()
    }

    /// Rows must be written by one worker, in the order of the steps.
    pub fn is_ordered(&self) -> bool {
        !self.closed.is_empty()
    }

    pub fn change(
        &mut self,
        table: &Arc<Table>,
        lsn: Lsn,
        change: &Change<'_>,
    ) -> Result<(), Contradiction> {
        self.changes += 1;
        self.bytes += CHANGE_BYTES + bytes(change) + 8 * table.columns.len();
        let worker = match self.open.len() > 1 && table.spreadable {
            false => Some(0),
            true => self.worker(table, change)?,
        };
        let Some(worker) = worker else {
            self.in_place(table, lsn, change);
            return Ok(());
        };
        let applied = match &mut self.open[worker].work(table, self.in_order).body {
            Body::InOrder(raw) => {
                raw.push(lsn, change);
                Applied::Done
            }
            Body::Net { net, raw } => {
                let applied = net.apply(lsn, change)?;
                if let Some(raw) = raw
                    && applied == Applied::Done
                {
                    raw.push(lsn, change);
                    self.bytes += bytes(change);
                }
                applied
            }
        };
        if applied == Applied::MustMove {
            self.in_place(table, lsn, change);
        }
        Ok(())
    }

    /// Whose row it is; `None` if a row goes from one worker to another.
    fn worker(
        &mut self,
        table: &Table,
        change: &Change<'_>,
    ) -> Result<Option<usize>, Contradiction> {
        let (tuple, before) = match *change {
            Change::Insert { new } => (new, None),
            Change::Delete {
                old: Old::Key(old) | Old::Full(old),
            } => (old, None),
            Change::Delete { old: Old::None } => return Err(Contradiction::NoKey),
            Change::Update {
                old: Old::None,
                new,
            } => (new, None),
            Change::Update {
                old: Old::Key(old) | Old::Full(old),
                new,
            } => (new, Some(old)),
        };
        let workers = self.open.len() as u64;
        let spread = |key: &[u8]| usize::try_from(hash_key(key) % workers).expect("few workers");
        self.key.clear();
        write_key(&table.key, tuple, before, &mut self.key)?;
        let worker = spread(&self.key);
        if let Some(before) = before {
            self.old_key.clear();
            write_key(&table.key, before, None, &mut self.old_key)?;
            if spread(&self.old_key) != worker {
                return Ok(None);
            }
        }
        Ok(Some(worker))
    }

    /// A change that must find its row as it is after everything before.
    fn in_place(&mut self, table: &Arc<Table>, lsn: Lsn, change: &Change<'_>) {
        self.close();
        let mut raw = Raw::default();
        raw.push(lsn, change);
        self.bytes += bytes(change);
        self.closed.push(Step::Tables(vec![Work {
            table: Arc::clone(table),
            body: Body::InOrder(raw),
        }]));
    }

    /// What comes after this is written after everything before.
    pub fn close(&mut self) {
        let works: Vec<Work> = self
            .open
            .iter_mut()
            .flat_map(|open| {
                open.places.clear();
                std::mem::take(&mut open.works)
            })
            .collect();
        if !works.is_empty() {
            self.closed.push(Step::Tables(works));
        }
    }

    /// The tables' changes up to here need not be written at all.
    pub fn truncate(&mut self, tables: Vec<Arc<Table>>, how: Truncate) {
        self.changes += 1;
        self.bytes += CHANGE_BYTES;
        let truncated = |work: &Work| {
            tables
                .iter()
                .any(|table| table.relation.id == work.table.relation.id)
        };
        for open in &mut self.open {
            open.works.retain(|work| !truncated(work));
        }
        self.close();
        self.closed.push(Step::Truncate { tables, how });
    }

    fn reset(&mut self) {
        self.changes = 0;
        self.bytes = 0;
    }

    /// Everything, for one worker.
    pub fn take_ordered(&mut self) -> Vec<Step> {
        self.close();
        self.reset();
        std::mem::take(&mut self.closed)
    }

    /// One list for each worker.
    pub fn take_spread(&mut self) -> Vec<Vec<Step>> {
        assert!(!self.is_ordered(), "the order of steps would be lost");
        self.reset();
        let take = |open: &mut Open| {
            open.places.clear();
            match std::mem::take(&mut open.works) {
                works if works.is_empty() => Vec::new(),
                works => vec![Step::Tables(works)],
            }
        };
        self.open.iter_mut().map(take).collect()
    }
}

fn bytes(change: &Change<'_>) -> usize {
    let old_bytes = |old: &Old<'_>| match old {
        Old::None => 0,
        Old::Key(tuple) | Old::Full(tuple) => tuple.raw().len(),
    };
    match change {
        Change::Insert { new } => new.raw().len(),
        Change::Update { old, new } => old_bytes(old) + new.raw().len(),
        Change::Delete { old } => old_bytes(old),
    }
}
