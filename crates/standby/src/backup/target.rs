//! The calls of the follower.

use std::sync::Arc;
use std::time::Instant;

use hindcast_pg::Lsn;

use crate::initial::state;
use crate::mark;
use crate::pgoutput::{Begin, Change, Commit, Relation, Truncate};
use crate::target::{Target, TargetStatus};

use super::orders::contradiction;
use super::{Backup, BackupError, IDLE_NOTE, catalog};

impl Backup {
    fn look_up(&mut self, relation: &Arc<Relation>) -> Result<(), BackupError> {
        // What is pending may be written with the table as it was; what comes is written after it.
        if self.tables.contains_key(&relation.id) {
            self.pending.close();
        }
        let lsn = self.position();
        let name = (relation.schema.as_str(), relation.name.as_str());
        let noted = state::noted(&mut self.control, &self.options.slot, name)
            .map_err(|error| BackupError::at(lsn, error))?;
        self.joined.remove(&relation.id);
        if let Some(at) = noted.joined_at.filter(|&at| at > lsn) {
            self.joined.insert(relation.id, at);
            if at == state::NOT_YET {
                return Ok(());
            }
        }
        self.serial += 1;
        let found = match noted.oid.is_none_or(|oid| oid == relation.id) {
            true => catalog::look_up(&mut self.control, relation, self.serial, lsn),
            false => Err(BackupError::Mismatch {
                relation: Arc::clone(relation),
                lsn,
                what: "it is a copy of the table that had this name before".to_owned(),
            }),
        };
        match found {
            Ok(table) => {
                self.tables.insert(relation.id, Arc::new(table));
                Ok(())
            }
            Err(error) => {
                // Everything before the transaction that does not fit is made visible, if nothing
                // of it was mixed in.
                if self.transaction.is_some() && self.changes_of_transaction == 0 {
                    self.finish_epoch()?;
                }
                Err(error)
            }
        }
    }

    /// Whether the copy of a table has what the transaction under way did to it.
    fn is_copied(&self, relation: &Relation) -> bool {
        let joined = self.joined.get(&relation.id);
        joined.is_some_and(|&at| self.position() < at)
    }

    fn take_change(
        &mut self,
        relation: &Arc<Relation>,
        change: &Change<'_>,
    ) -> Result<(), BackupError> {
        self.status.changes += 1;
        if self.skipping || self.is_copied(relation) {
            return Ok(());
        }
        self.changes_of_transaction += 1;
        let table = self
            .tables
            .get(&relation.id)
            .expect("a relation is announced before its changes");
        let lsn = self.position();
        self.pending
            .change(table, lsn, change)
            .map_err(|source| contradiction(table, lsn, source))?;
        // An epoch that whole transactions fill is cut when the last of them ends. Here it is this
        // one that fills an epoch by itself: if what came before counted, an epoch would be handed
        // over in parts for as long as the backup is behind, and never end.
        let (changes, bytes) = self.pending_before;
        let full = self.pending.changes() - changes >= self.options.epoch_rows_max
            || self.pending.bytes() - bytes >= self.options.epoch_bytes_max;
        if full && self.catching_up.is_none() {
            self.hand_over_part()?;
            self.pending_before = (0, 0);
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
        let tables: Vec<_> = relations
            .iter()
            .filter(|relation| !self.is_copied(relation))
            .map(|relation| {
                let table = self.tables.get(&relation.id);
                Arc::clone(table.expect("a relation is announced before it is truncated"))
            })
            .collect();
        if tables.is_empty() {
            return Ok(());
        }
        self.changes_of_transaction += 1;
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
        self.last = Some(*commit);
        self.pending_since.get_or_insert(now);
        self.cut_if_due(now)
    }

    /// A mark of somebody else, or one that lies before what the backup has already, is passed
    /// over.
    fn take_mark(&mut self, at: Lsn, content: &[u8], is_doubted: bool) -> Result<(), BackupError> {
        let Some(mark) = mark::for_slot(content, &self.options.slot) else {
            return Ok(());
        };
        if at < self.received || self.transaction.is_some() || self.catching_up.is_some() {
            return Ok(());
        }
        self.finish_epoch()?;
        let now = Instant::now();
        (self.marks)
            .take(&mut self.control, now, mark, at, is_doubted)
            .map_err(|error| BackupError::at(at, error))
    }

    /// Writes and commits what is pending, except what belongs to a transaction under way whose
    /// changes are mixed in.
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

impl Target for Backup {
    type Error = BackupError;

    fn relation(&mut self, relation: &Arc<Relation>) -> Result<(), BackupError> {
        self.unless_stopped(|backup| backup.look_up(relation))
    }

    fn begin(&mut self, begin: &Begin) -> Result<(), BackupError> {
        self.unless_stopped(|backup| {
            backup.transaction = Some(*begin);
            backup.changes_of_transaction = 0;
            backup.pending_before = (backup.pending.changes(), backup.pending.bytes());
            // The log is followed from a position; should it begin earlier, what is on the backup
            // already is not applied again.
            backup.skipping = begin.final_lsn < backup.received;
            Ok(())
        })
    }

    fn change(&mut self, relation: &Arc<Relation>, change: &Change<'_>) -> Result<(), BackupError> {
        self.unless_stopped(|backup| backup.take_change(relation, change))
    }

    fn truncate(&mut self, relations: &[Arc<Relation>], how: Truncate) -> Result<(), BackupError> {
        self.unless_stopped(|backup| backup.take_truncate(relations, how))
    }

    fn commit(&mut self, commit: &Commit) -> Result<(), BackupError> {
        self.unless_stopped(|backup| {
            backup.take_commit(commit)?;
            match backup.options.alone_until {
                Some(until) if commit.lsn <= until => backup.finish_epoch(),
                _ => Ok(()),
            }
        })
    }

    fn mark(&mut self, at: Lsn, content: &[u8], is_doubted: bool) -> Result<(), BackupError> {
        self.unless_stopped(|backup| backup.take_mark(at, content, is_doubted))
    }

    fn tick(&mut self, now: Instant) -> Result<(), BackupError> {
        self.unless_stopped(|backup| {
            backup.collect()?;
            backup.publish_snapshot(now)?;
            backup.marks.expire(now);
            if backup.transaction.is_none() {
                backup.cut_if_due(now)?;
            }
            backup.poll_flush(now)?;
            backup.prune()
        })
    }

    fn idle(&mut self, read_to: Lsn, now: Instant) -> Result<(), BackupError> {
        self.unless_stopped(|backup| {
            if backup.in_flight.is_some()
                || backup.last.is_some()
                || backup.transaction.is_some()
                || backup.catching_up.is_some()
                || read_to <= backup.received
                || now.saturating_duration_since(backup.idle_noted) < IDLE_NOTE
            {
                return Ok(());
            }
            backup.idle_noted = now;
            backup.received = read_to;
            backup.note(read_to)
        })
    }

    fn drain(&mut self) -> Result<(), BackupError> {
        self.unless_stopped(|backup| {
            match backup.transaction {
                None => backup.finish_epoch()?,
                // The epoch holds a part of the transaction under way: it is left for the next
                // start.
                Some(_) => backup.wait()?,
            }
            backup.flush()
        })
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
