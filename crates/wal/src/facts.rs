//! What transactions did, gathered from records.

use std::collections::{BTreeSet, HashMap};

use super::record::{
    CUSTOM, GENERIC, HEAP, HEAP2, RELATION_MAP, Record, Relfile, SEQUENCE, STANDBY, STORAGE,
    TRANSACTION, XLOG, relfile, triple,
};
use super::{Bytes, Ending, Format};

/// Relations that are told apart in one transaction.
const RELATIONS_MAX: usize = 1000;
/// Between Postgres' epoch and that of Unix, in microseconds.
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

/// What a transaction wrote in the database that is asked about, and whether it wrote elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Relations in which it inserted, updated or deleted rows, and sequences that it advanced.
    pub rows: BTreeSet<Relfile>,
    /// Relations that it created, or wrote page by page, as an index is built or a table rewritten.
    pub built: BTreeSet<Relfile>,
    /// Those of `built` whose files it created.
    created: BTreeSet<Relfile>,
    /// Files that it gave up when it committed: of dropped, truncated or rewritten relations.
    pub dropped: BTreeSet<Relfile>,
    /// Wrote or locked in other databases, or in what all of them share.
    pub elsewhere: bool,
    /// Locked relations against readers. That alone takes an id.
    pub locked: bool,
    /// Cut a table short as VACUUM does, or changed a catalog's row in place, which maintenance
    /// does.
    pub maintained: bool,
    /// There were more relations than are kept apart.
    pub more: bool,
}

/// How a transaction committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The transaction itself; not the id of a subtransaction.
    pub top: u64,
    /// By the server's clock, in microseconds since 1970.
    pub at: i64,
}

/// What is known of the transactions in a stretch of WAL. Ids are 64 bits wide, epoch included.
#[derive(Debug)]
pub struct Facts {
    format: Format,
    /// The database that is asked about.
    database: u32,
    /// Some id of about the same time, to widen ids by.
    near: u64,
    effects: HashMap<u64, Effects>,
    /// Of committed transactions and their subtransactions.
    commits: HashMap<u64, Commit>,
    subtransactions: HashMap<u64, Vec<u64>>,
}

/// A 32-bit id at full width, given another of about the same time.
pub fn widen(xid: u32, near: u64) -> u64 {
    let distance = xid.wrapping_sub(near as u32) as i32;
    near.saturating_add_signed(i64::from(distance))
}

/// What a record means for the one who wrote it.
enum Means {
    Rows,
    Built,
    Maintained,
    Nothing,
}

impl Facts {
    pub fn new(format: Format, database: u32, near: u64) -> Self {
        Self {
            format,
            database,
            near,
            effects: HashMap::new(),
            commits: HashMap::new(),
            subtransactions: HashMap::new(),
        }
    }

    pub fn commit(&self, xid: u64) -> Option<Commit> {
        self.commits.get(&xid).copied()
    }

    /// Of a transaction with its subtransactions. Rows in files of its own making belong to what it
    /// built: a table that is rewritten has its long values inserted one by one.
    pub fn effects(&self, top: u64) -> Effects {
        let subtransactions = self.subtransactions.get(&top).into_iter().flatten();
        let mut all = Effects::default();
        for one in std::iter::once(&top)
            .chain(subtransactions)
            .filter_map(|xid| self.effects.get(xid))
        {
            all.rows.extend(&one.rows);
            all.built.extend(&one.built);
            all.created.extend(&one.created);
            all.dropped.extend(&one.dropped);
            all.elsewhere |= one.elsewhere;
            all.locked |= one.locked;
            all.maintained |= one.maintained;
            all.more |= one.more;
        }
        let Effects { rows, created, .. } = &mut all;
        rows.retain(|file| !created.contains(file));
        all
    }

    /// Takes a record into account.
    ///
    /// Row locks, hints and pruning are no writing: any transaction that only reads may do these.
    /// Nor is what maintenance does: it changes no row that a query sees. Index entries are none
    /// either, since the rows that they lead to are.
    pub fn note(&mut self, record: &Record<'_>) {
        if record.manager == TRANSACTION {
            self.end(record);
            return;
        }
        if record.xid == 0 {
            return;
        }
        let xid = widen(record.xid, self.near);
        let operation = record.info & 0x70;
        let means = match (record.manager, operation) {
            // Inserted, deleted, updated; not: locked, confirmed, in place.
            (HEAP, 0x00 | 0x10 | 0x20 | 0x40) => Means::Rows,
            // Several inserted at once; not: pruned, frozen, all visible, locked.
            (HEAP2, 0x50) => Means::Rows,
            (SEQUENCE | GENERIC | CUSTOM..=255, _) => Means::Rows,
            // In place.
            (HEAP, 0x70) => Means::Maintained,
            // A page as a whole; not the one that goes with a hint.
            (XLOG, _) if record.info & 0xF0 == 0xB0 => Means::Built,
            _ => Means::Nothing,
        };
        self.note_files(xid, record);
        for relation in record.relations {
            match means {
                Means::Rows => self.add(xid, *relation, |effects| &mut effects.rows),
                Means::Built => self.add(xid, *relation, |effects| &mut effects.built),
                Means::Maintained => self.mark(xid, relation.database, |effects| {
                    effects.maintained = true;
                }),
                Means::Nothing => {}
            }
        }
    }

    /// What a record says in its data, and not by its blocks.
    fn note_files(&mut self, xid: u64, record: &Record<'_>) {
        let mut data = Bytes(record.data);
        match (record.manager, record.info & 0x70) {
            (STORAGE, 0x10) => {
                if let Some(relation) = relfile(&mut data) {
                    self.add(xid, relation, |effects| &mut effects.built);
                    self.add(xid, relation, |effects| &mut effects.created);
                }
            }
            // Cut short, behind the number of blocks that are left.
            (STORAGE, 0x20) => {
                if let Some(relation) = data.u32().and_then(|_| relfile(&mut data)) {
                    self.mark(xid, relation.database, |effects| effects.maintained = true);
                }
            }
            // Which catalog has which files, in one database; its number is never asked for.
            (RELATION_MAP, _) => {
                let database = data.u32().map(|database| Relfile {
                    tablespace: 0,
                    database,
                    node: 0,
                });
                if let Some(relation) = database {
                    self.add(xid, relation, |effects| &mut effects.built);
                }
            }
            // Locks that a standby has to take too: how many, then for each the id, the database
            // and the relation.
            (STANDBY, 0x00) => {
                for _ in 0..data.u32().unwrap_or(0) {
                    let Some((_, database, _)) = triple(&mut data) else {
                        return;
                    };
                    self.mark(xid, database, |effects| effects.locked = true);
                }
            }
            _ => {}
        }
    }

    /// Something that it did to a relation, of which only the database matters.
    fn mark(&mut self, xid: u64, database: u32, mark: impl FnOnce(&mut Effects)) {
        let effects = self.effects.entry(xid).or_default();
        match database == self.database {
            true => mark(effects),
            false => effects.elsewhere = true,
        }
    }

    fn add(
        &mut self,
        xid: u64,
        relation: Relfile,
        set: impl FnOnce(&mut Effects) -> &mut BTreeSet<Relfile>,
    ) {
        let here = relation.database == self.database;
        let effects = self.effects.entry(xid).or_default();
        if !here {
            effects.elsewhere = true;
            return;
        }
        let set = set(effects);
        let full = set.len() >= RELATIONS_MAX;
        if !full {
            set.insert(relation);
        }
        effects.more |= full;
    }

    fn end(&mut self, record: &Record<'_>) {
        let Some(end) = Ending::read(self.format, record) else {
            return;
        };
        if end.top == 0 {
            return;
        }
        let top = widen(end.top, self.near);
        let subtransactions = end.subtransactions.iter();
        let subtransactions: Vec<u64> = subtransactions.map(|xid| widen(*xid, self.near)).collect();
        if !end.committed {
            for xid in std::iter::once(&top).chain(&subtransactions) {
                self.effects.remove(xid);
            }
            return;
        }
        for relation in end.dropped {
            self.add(top, relation, |effects| &mut effects.dropped);
        }
        let at = end.at.saturating_add(POSTGRES_EPOCH);
        for xid in std::iter::once(&top).chain(&subtransactions) {
            self.commits.insert(*xid, Commit { top, at });
        }
        if !subtransactions.is_empty() {
            self.subtransactions.insert(top, subtransactions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_widened_to_the_nearest() {
        let epoch = 1u64 << 32;
        assert_eq!(widen(700, 690), 700);
        assert_eq!(widen(u32::MAX, epoch + 5), epoch - 1);
        assert_eq!(widen(5, epoch - 1), epoch + 5);
        assert_eq!(widen(u32::MAX, 5), 0, "before the first id there is none");
    }
}
