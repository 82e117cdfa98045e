//! Snapshots for readers, where several workers write.
//!
//! The workers' commits are not one: between two of them an ordinary reader sees half an epoch.
//! Between epochs nothing is written, and a snapshot that is exported then is a state that the
//! primary had. Readers import it:
//!
//! ```sql
//! SELECT hindcast.standby_snapshot();
//! BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '00000003-0000001B-1';
//! ```
//!
//! A snapshot can be imported as long as the transaction that exported it is open, hence a
//! connection for each.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hindcast_pg::{Connection, DatabaseUrl, Error, Lsn, quote_literal};

use super::error::BackupError;
use super::{Options, session};

/// How long a snapshot can be imported.
const KEPT: Duration = Duration::from_secs(10);
/// Notes of snapshots are deleted when there are so many of them.
const NOTES: u64 = 200;

pub struct Snapshots {
    url: DatabaseUrl,
    options: Options,
    /// Oldest first.
    open: VecDeque<(Instant, Connection)>,
    taken: u64,
    last: Option<(Instant, Lsn)>,
}

impl Snapshots {
    pub fn new(url: &DatabaseUrl, options: &Options) -> Self {
        Self {
            url: url.clone(),
            options: options.clone(),
            open: VecDeque::new(),
            taken: 0,
            last: None,
        }
    }

    /// Whether readers should get another one of the state up to `visible`.
    pub fn is_due(&self, now: Instant, visible: Lsn) -> bool {
        self.last.is_none_or(|(taken, lsn)| {
            let age = now.saturating_duration_since(taken);
            age >= self.options.snapshot_interval && (lsn != visible || age >= KEPT / 2)
        })
    }

    /// Nothing may be in flight.
    pub fn take(
        &mut self,
        control: &mut Connection,
        now: Instant,
        visible: Lsn,
        commit_time: Option<i64>,
    ) -> Result<(), BackupError> {
        let mut connection = match self.open.front() {
            Some((taken, _)) if now.saturating_duration_since(*taken) >= KEPT => {
                let (_, connection) = self.open.pop_front().expect("it is there");
                connection
            }
            _ => session::open(&self.url, &self.options)?,
        };
        let at = |error| BackupError::at(visible, error);
        let snapshot = export(&mut connection).map_err(at)?;
        self.open.push_back((now, connection));
        let slot = quote_literal(&self.options.slot);
        let commit_time = commit_time.map_or("NULL".to_owned(), |time| {
            format!("timestamptz 'epoch' + {time} * interval '1 microsecond'")
        });
        self.taken += 1;
        let mut sql = format!(
            "INSERT INTO hindcast.standby_snapshots (slot, snapshot, end_lsn, commit_time) VALUES ({slot}, {}, '{visible}', {commit_time})",
            quote_literal(&snapshot)
        );
        if self.taken % NOTES == 1 {
            sql += &format!(
                "; DELETE FROM hindcast.standby_snapshots WHERE slot = {slot} AND taken_at < clock_timestamp() - interval '1 min'"
            );
        }
        control.execute(&sql).map_err(at)?;
        self.last = Some((now, visible));
        Ok(())
    }
}

pub(super) fn export(connection: &mut Connection) -> Result<String, Error> {
    let rows = connection.query(
        "ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT pg_export_snapshot()",
    )?;
    Ok(rows.first().map(|row| row.string(0)).unwrap_or_default())
}
