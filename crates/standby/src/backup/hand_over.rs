//! From what is pending to what the workers write.

use std::sync::Arc;
use std::time::Instant;

use hindcast_pg::Lsn;

use crate::pgoutput::Commit;

use super::epoch::{End, Part, Step};
use super::pending::Pending;
use super::progress::Progress;
use super::worker::{Barrier, Job};
use super::{Backup, BackupError, CatchUp, EPOCH_STEPS_MAX, Granularity, InFlight, session};

impl Backup {
    /// Hands over what is pending if it is time to, and waits for the workers if it is too much.
    /// Between transactions only.
    pub(super) fn cut_if_due(&mut self, now: Instant) -> Result<(), BackupError> {
        let Some(last) = self.last else {
            return Ok(());
        };
        if let Some(catching_up) = &self.catching_up {
            let to = catching_up.to.commit_lsn;
            return match last.lsn.cmp(&to) {
                std::cmp::Ordering::Less => Ok(()),
                std::cmp::Ordering::Equal => self.catch_up(),
                std::cmp::Ordering::Greater => Err(BackupError::Progress {
                    slot: self.options.slot.clone(),
                    what: format!(
                        "a worker wrote everything up to the transaction at {to}, and the log has no such transaction"
                    ),
                }),
            };
        }
        self.collect()?;
        let full = self.pending.changes() >= self.options.epoch_rows_max
            || self.pending.bytes() >= self.options.epoch_bytes_max
            || self.pending.steps() >= EPOCH_STEPS_MAX
            || self.parts > 0
            || self.options.granularity == Granularity::Single;
        let old = self.pending_since.is_some_and(|since| {
            now.saturating_duration_since(since) >= self.options.epoch_interval
        });
        if full {
            self.wait()?;
        }
        if self.in_flight.is_none() && (full || old) {
            self.cut(last)?;
        }
        Ok(())
    }

    /// Gives readers a snapshot of what is visible, if it is time to and nothing is in flight.
    pub(super) fn publish_snapshot(&mut self, now: Instant) -> Result<(), BackupError> {
        match &mut self.snapshots {
            Some(snapshots)
                if self.in_flight.is_none()
                    && self.catching_up.is_none()
                    && snapshots.is_due(now, self.visible) =>
            {
                let commit_time = self.status.visible_commit_time;
                snapshots.take(&mut self.control, now, self.visible, commit_time)
            }
            _ => Ok(()),
        }
    }

    /// Ends the epoch with this transaction and hands it over. Nothing may be in flight.
    pub(super) fn cut(&mut self, last: Commit) -> Result<(), BackupError> {
        self.publish_snapshot(Instant::now())?;
        self.number += 1;
        let end = End {
            number: self.number,
            commit_lsn: last.lsn,
            end_lsn: last.end_lsn,
            commit_time: last.time,
        };
        self.last = None;
        self.pending_since = None;
        if self.workers.len() == 1 || self.pending.is_ordered() || self.parts > 0 {
            self.parts = 0;
            return self.hand_over_ordered(last.lsn, Some(end));
        }
        let (changes, bytes) = (self.pending.changes(), self.pending.bytes());
        let barrier = Arc::new(Barrier::new(self.workers.len()));
        let steps = self.pending.take_spread();
        self.in_flight = Some(InFlight::new(steps.len(), changes, bytes, Some(end)));
        for (number, steps) in steps.into_iter().enumerate() {
            self.workers[number].give(Job {
                part: Part {
                    steps,
                    lsn: last.lsn,
                    end: Some(end),
                },
                barrier: Some(Arc::clone(&barrier)),
                workers: vec![number],
                workers_total: self.workers.len(),
            })?;
        }
        Ok(())
    }

    /// Hands everything pending to one worker, which notes the progress of all.
    pub(super) fn hand_over_ordered(
        &mut self,
        lsn: Lsn,
        end: Option<End>,
    ) -> Result<(), BackupError> {
        let (changes, bytes) = (self.pending.changes(), self.pending.bytes());
        let steps = self.pending.take_ordered();
        let workers = (0..self.workers.len()).collect();
        let total = self.workers.len();
        self.give_first(steps, lsn, end, workers, total, changes, bytes)
    }

    #[expect(clippy::too_many_arguments)]
    fn give_first(
        &mut self,
        steps: Vec<Step>,
        lsn: Lsn,
        end: Option<End>,
        workers: Vec<usize>,
        workers_total: usize,
        changes: usize,
        bytes: usize,
    ) -> Result<(), BackupError> {
        self.in_flight = Some(InFlight::new(1, changes, bytes, end));
        self.workers[0].give(Job {
            part: Part { steps, lsn, end },
            barrier: None,
            workers,
            workers_total,
        })
    }

    /// A transaction is larger than an epoch may be: what there is of it goes first.
    pub(super) fn hand_over_part(&mut self) -> Result<(), BackupError> {
        self.wait()?;
        self.parts += 1;
        self.hand_over_ordered(self.position(), None)
    }

    /// The epoch that some workers have and others have not is complete.
    fn catch_up(&mut self) -> Result<(), BackupError> {
        let Some(CatchUp {
            behind,
            workers,
            to,
        }) = self.catching_up.take()
        else {
            return Ok(());
        };
        if self.pending.is_ordered() {
            return Err(BackupError::Progress {
                slot: self.options.slot.clone(),
                what: format!(
                    "epoch {} was written by one worker, and only in part",
                    to.number
                ),
            });
        }
        let (changes, bytes) = (self.pending.changes(), self.pending.bytes());
        let mut all = self.pending.take_spread();
        let steps = behind
            .iter()
            .flat_map(|&worker| std::mem::take(&mut all[worker]))
            .collect();
        self.last = None;
        self.pending_since = None;
        self.give_first(
            steps,
            to.commit_lsn,
            Some(to),
            behind,
            workers,
            changes,
            bytes,
        )?;
        self.wait()?;
        if workers != self.workers.len() {
            let even = Progress {
                slot: self.options.slot.clone(),
                positions: vec![to; workers],
            };
            self.number = session::spread(&mut self.control, &self.options, &even)?
                .greatest()
                .number;
        }
        if self.options.granularity == Granularity::Row {
            self.pending = Pending::new(self.workers.len());
        }
        Ok(())
    }
}
