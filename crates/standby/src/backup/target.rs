//! The calls of the follower.

use std::sync::Arc;
use std::time::Instant;

use hindcast_pg::Lsn;

use crate::pgoutput::{Begin, Change, Commit, Old, Relation, Truncate};
use crate::target::{Target, TargetStatus};

use super::epoch::Part;
use super::net::{Contradiction, hash_key, write_key};
use super::round::{WHOLE_TABLE, Written};
use super::table::Table;
use super::{Backup, BackupError, IDLE_NOTE, catalog};

impl Backup {
    fn look_up(&mut self, relation: &Arc<Relation>) -> Result<(), BackupError> {
        // What is pending may be written with the table as it was; what comes is written after it.
        if self.tables.contains_key(&relation.id) {
            self.pending.close();
        }
        self.serial += 1;
        let lsn = self.position();
        match catalog::look_up(&mut self.control, relation, self.serial, lsn) {
            Ok(table) => {
                self.tables.insert(relation.id, Arc::new(table));
                Ok(())
            }
            Err(error) => {
                // Everything before the transaction that does not fit is made visible, if nothing of it was mixed in.
                if self.transaction.is_some() && self.changes_of_transaction == 0 {
                    self.finish_epoch()?;
                }
                Err(error)
            }
        }
    }

    fn take_change(
        &mut self,
        relation: &Arc<Relation>,
        change: &Change<'_>,
    ) -> Result<(), BackupError> {
        self.status.changes += 1;
        if self.skipping {
            return Ok(());
        }
        self.changes_of_transaction += 1;
        let table = self
            .tables
            .get(&relation.id)
            .expect("a relation is announced before its changes");
        let lsn = self.position();
        if self.round.is_some() {
            match rows_written(table, change) {
                Ok(rows) => self.written.extend(rows),
                Err(source) => {
                    return Err(BackupError::Contradiction {
                        table: relation.to_string(),
                        lsn,
                        source,
                    });
                }
            }
        }
        self.pending
            .change(table, lsn, change)
            .map_err(|source| BackupError::Contradiction {
                table: relation.to_string(),
                lsn,
                source,
            })?;
        let full = self.pending.changes() >= self.options.epoch_rows_max
            || self.pending.bytes() >= self.options.epoch_bytes_max;
        if full && self.catching_up.is_none() && self.round.is_none() {
            self.hand_over_part()?;
        }
        Ok(())
    }

    fn take_truncate(
        &mut self,
        relations: &[Arc<Relation>],
        how: Truncate,
    ) -> Result<(), BackupError> {
        self.status.changes += 1;
        if self.skipping {
            return Ok(());
        }
        self.changes_of_transaction += 1;
        let tables = relations
            .iter()
            .map(|relation| {
                let table = self.tables.get(&relation.id);
                Arc::clone(table.expect("a relation is announced before it is truncated"))
            })
            .collect();
        self.pending.truncate(tables, how);
        Ok(())
    }

    fn take_commit(&mut self, commit: &Commit) -> Result<(), BackupError> {
        self.transaction = None;
        self.received = self.received.max(commit.end_lsn);
        self.status.transactions += 1;
        if std::mem::take(&mut self.skipping) {
            return Ok(());
        }
        let now = Instant::now();
        if let Some(round) = &mut self.round {
            // Truncations and the like are steps of their own.
            let alone = self.pending.is_ordered();
            let (changes, bytes) = (self.pending.changes(), self.pending.bytes());
            let part = Part {
                steps: self.pending.take_ordered(),
                lsn: commit.lsn,
                end: None,
            };
            round.push(part, self.written.drain(..), alone, changes, bytes);
        }
        self.last = Some(*commit);
        self.pending_since.get_or_insert(now);
        self.cut_if_due(now)
    }

    /// Writes and commits what is pending, except what belongs to a transaction under way whose changes are mixed in.
    fn finish_epoch(&mut self) -> Result<(), BackupError> {
        self.wait()?;
        if self.catching_up.is_none()
            && let Some(last) = self.last
        {
            self.cut(last)?;
            self.wait()?;
        }
        Ok(())
    }
}

/// Which rows a transaction has in common with others, if they write them.
fn rows_written(table: &Table, change: &Change<'_>) -> Result<Vec<Written>, Contradiction> {
    let id = table.relation.id;
    if !table.spreadable {
        return Ok(vec![(id, WHOLE_TABLE)]);
    }
    let key_of = |tuple, fallback| {
        let mut key = Vec::new();
        write_key(&table.key, tuple, fallback, &mut key)?;
        Ok((id, hash_key(&key)))
    };
    match *change {
        Change::Insert { new }
        | Change::Update {
            old: Old::None,
            new,
        } => Ok(vec![key_of(new, None)?]),
        Change::Delete {
            old: Old::Key(old) | Old::Full(old),
        } => Ok(vec![key_of(old, None)?]),
        Change::Update {
            old: Old::Key(old) | Old::Full(old),
            new,
        } => Ok(vec![key_of(old, None)?, key_of(new, Some(old))?]),
        Change::Delete { old: Old::None } => Err(Contradiction::NoKey),
    }
}

impl Target for Backup {
    type Error = BackupError;

    fn relation(&mut self, relation: &Arc<Relation>) -> Result<(), BackupError> {
        self.go_on()?;
        let result = self.look_up(relation);
        self.checked(result)
    }

    fn begin(&mut self, begin: &Begin) -> Result<(), BackupError> {
        self.go_on()?;
        if self.options.cut_before == Some(begin.final_lsn) {
            let result = self.finish_epoch();
            self.checked(result)?;
        }
        self.transaction = Some(*begin);
        self.changes_of_transaction = 0;
        // The log is followed from a position; should it begin earlier, what is on the backup already is not applied again.
        self.skipping = begin.final_lsn < self.received;
        Ok(())
    }

    fn change(&mut self, relation: &Arc<Relation>, change: &Change<'_>) -> Result<(), BackupError> {
        self.go_on()?;
        let result = self.take_change(relation, change);
        self.checked(result)
    }

    fn truncate(&mut self, relations: &[Arc<Relation>], how: Truncate) -> Result<(), BackupError> {
        self.go_on()?;
        let result = self.take_truncate(relations, how);
        self.checked(result)
    }

    fn commit(&mut self, commit: &Commit) -> Result<(), BackupError> {
        self.go_on()?;
        let result = self.take_commit(commit);
        self.checked(result)
    }

    fn tick(&mut self, now: Instant) -> Result<(), BackupError> {
        self.go_on()?;
        let result = (|| {
            self.collect()?;
            self.publish_snapshot(now)?;
            if self.transaction.is_none() {
                self.cut_if_due(now)?;
            }
            self.poll_flush(now)?;
            self.prune()
        })();
        self.checked(result)
    }

    fn idle(&mut self, read_to: Lsn, now: Instant) -> Result<(), BackupError> {
        self.go_on()?;
        if self.in_flight.is_some()
            || self.last.is_some()
            || self.transaction.is_some()
            || self.catching_up.is_some()
            || read_to <= self.received
            || now.saturating_duration_since(self.idle_noted) < IDLE_NOTE
        {
            return Ok(());
        }
        if self.round.is_some() {
            return Ok(());
        }
        self.idle_noted = now;
        self.received = read_to;
        let result = self.note(read_to);
        self.checked(result)
    }

    fn drain(&mut self) -> Result<(), BackupError> {
        self.go_on()?;
        let result = (|| {
            match self.transaction {
                None => self.finish_epoch()?,
                // The epoch holds a part of the transaction under way: it is left for the next start.
                Some(_) => self.wait()?,
            }
            self.flush()
        })();
        self.checked(result)
    }

    fn received(&self) -> Lsn {
        self.received
    }

    fn visible(&self) -> Lsn {
        self.visible
    }

    fn durable(&self) -> Lsn {
        self.durable
    }

    fn status(&self) -> TargetStatus {
        let in_flight = self.in_flight.as_ref().map_or(0, |flight| flight.bytes);
        TargetStatus {
            pending_bytes: self.pending.bytes() as u64 + in_flight,
            ..self.status.clone()
        }
    }
}
