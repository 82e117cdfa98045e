//! How far the backup has come, as it says itself.

use hindcast_pg::{Connection, Error, Lsn, quote_literal};

use super::epoch::End;
use super::error::BackupError;
use super::orders::Command;

/// Old rows of the progress table are deleted when there are so many of them.
pub const EPOCHS_KEPT: u64 = 1000;

/// Where each worker is. They are at one epoch or at two successive ones: none begins an epoch
/// before all have committed the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub slot: String,
    pub positions: Vec<End>,
}

impl Progress {
    /// The worker that is least far: the log is followed from here.
    pub fn least(&self) -> End {
        *self
            .positions
            .iter()
            .min_by_key(|end| end.number)
            .expect("there is a worker")
    }

    /// What readers may see once all are there.
    pub fn greatest(&self) -> End {
        *self
            .positions
            .iter()
            .max_by_key(|end| end.number)
            .expect("there is a worker")
    }

    pub fn is_even(&self) -> bool {
        self.least().number == self.greatest().number
    }

    /// The workers that have not written the last epoch.
    pub fn behind(&self) -> Vec<usize> {
        let greatest = self.greatest().number;
        (0..self.positions.len())
            .filter(|&worker| self.positions[worker].number < greatest)
            .collect()
    }
}

/// Reads what is noted for a slot; nothing before the initial copy is complete.
pub fn read(connection: &mut Connection, slot: &str) -> Result<Option<Progress>, BackupError> {
    let rows = connection
        .query(&format!(
            "SELECT DISTINCT ON (worker) worker, workers, epoch, commit_lsn, end_lsn, \
                    coalesce((extract(epoch FROM commit_time) * 1000000)::int8, 0) \
             FROM hindcast.standby_progress WHERE slot = {} ORDER BY worker, epoch DESC",
            quote_literal(slot)
        ))
        .map_err(|error| BackupError::at(Lsn(0), error))?;
    let mut found: Vec<(usize, usize, End)> = Vec::new();
    for row in rows.iter() {
        let entry = || -> Result<_, Error> {
            Ok((
                row.parse(0)?,
                row.parse(1)?,
                End {
                    number: row.parse(2)?,
                    commit_lsn: row.parse(3)?,
                    end_lsn: row.parse(4)?,
                    commit_time: row.parse(5)?,
                },
            ))
        };
        found.push(entry().map_err(|error| BackupError::at(Lsn(0), error))?);
    }
    let Some(&(_, workers, newest)) = found.iter().max_by_key(|(_, _, end)| end.number) else {
        return Ok(None);
    };
    let wrong = |what: String| BackupError::Progress {
        slot: slot.to_owned(),
        what,
    };
    if workers == 0 {
        return Err(wrong(
            "it was applied transaction by transaction and not brought to an end".to_owned(),
        ));
    }
    let mut positions = Vec::new();
    for worker in 0..workers {
        let row = found.iter().find(|(number, ..)| *number == worker);
        let &(_, _, end) = row.ok_or_else(|| {
            wrong(format!(
                "there are {workers} workers, and nothing is said of worker {worker}"
            ))
        })?;
        if end.number + 1 < newest.number {
            return Err(wrong(format!(
                "worker {worker} is at epoch {}, and another is at {}",
                end.number, newest.number
            )));
        }
        positions.push(end);
    }
    Ok(Some(Progress {
        slot: slot.to_owned(),
        positions,
    }))
}

/// Notes that a worker has come to the end of an epoch, in the epoch's transaction.
pub fn insert(slot: &str, worker: usize, workers: usize, end: &End) -> Command<'static> {
    Command::Sql(format!(
        "INSERT INTO hindcast.standby_progress (slot, worker, workers, epoch, commit_lsn, end_lsn, commit_time) VALUES \
         ({}, {worker}, {workers}, {}, '{}', '{}', timestamptz 'epoch' + {} * interval '1 microsecond')",
        quote_literal(slot),
        end.number,
        end.commit_lsn,
        end.end_lsn,
        end.commit_time
    ))
}

/// Deletes what is older than the epochs that are kept, of workers that are no more as well.
pub fn prune(connection: &mut Connection, slot: &str, number: u64) -> Result<(), Error> {
    connection
        .execute(&format!(
            "DELETE FROM hindcast.standby_progress WHERE slot = {} AND epoch < {}",
            quote_literal(slot),
            number.saturating_sub(EPOCHS_KEPT)
        ))
        .map(drop)
}
