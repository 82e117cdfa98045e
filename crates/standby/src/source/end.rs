//! How much log the primary has, and how much of it it keeps for us.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hindcast_pg::{Connection, DatabaseUrl, Error, Lsn, Row, quote_literal};

use super::session::session;
use crate::status::{Retention, WalStatus};

/// Everything that was committed before this was asked ends at or before it, and can be read from a
/// slot: the log is read only as far as it is on disk, where transactions with
/// `synchronous_commit = off` come late.
pub(crate) fn end_of_log(primary: &mut Connection) -> Result<Lsn, Error> {
    // The commit of this message, which is for nobody, waits until all that was written before is
    // on disk.
    primary.execute(
        "BEGIN READ WRITE; SET LOCAL synchronous_commit = local; \
         SELECT pg_catalog.pg_logical_emit_message(true, 'hindcast', 'end'); COMMIT",
    )?;
    let rows = primary.query("SELECT pg_catalog.pg_current_wal_flush_lsn()")?;
    rows.first().ok_or(Error::Closed)?.parse(0)
}

/// Asks the primary for its end of WAL, and for the slot, now and then, in a session and thread of
/// its own.
///
/// The stream cannot tell: what it calls the end is how far the primary has decoded its log for us,
/// which is far behind the end whenever a large transaction is being decoded, and just then nothing
/// else comes that would tell.
pub(super) struct EndOfWal(Arc<Shared>);

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    stop: AtomicBool,
    sleep: (Mutex<()>, Condvar),
}

#[derive(Clone, Default)]
struct Seen {
    /// Only grows.
    end: Lsn,
    retention: Retention,
}

impl EndOfWal {
    /// Failures are tried again: whether the primary is lost is the stream's to say.
    pub fn watch(url: &DatabaseUrl, slot: &str, interval: Duration) -> Self {
        let shared = Arc::new(Shared::default());
        let (watcher, url) = (shared.clone(), url.clone());
        let sql = format!("{ASK}{}", quote_literal(slot));
        std::thread::spawn(move || {
            let mut connection = None;
            while !watcher.stop.load(Ordering::Relaxed) {
                match look(&mut connection, &url, &sql) {
                    Ok(looked) => {
                        let mut seen = watcher.seen();
                        seen.end = seen.end.max(looked.end);
                        seen.retention = looked.retention;
                    }
                    Err(_) => connection = None,
                }
                watcher.sleep(interval);
            }
        });
        Self(shared)
    }

    pub fn last(&self) -> Lsn {
        self.0.seen().end
    }

    pub fn retention(&self) -> Retention {
        self.0.seen().retention.clone()
    }
}

impl Drop for EndOfWal {
    /// Does not wait for the thread, which may be waiting for a primary that is gone; it ends with
    /// the answer, or with the connection's timeout.
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
        let (asleep, wake) = &self.0.sleep;
        drop(asleep.lock().unwrap_or_else(PoisonError::into_inner));
        wake.notify_all();
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep(&self, interval: Duration) {
        let (asleep, wake) = &self.sleep;
        let asleep = asleep.lock().unwrap_or_else(PoisonError::into_inner);
        let still = |_: &mut ()| !self.stop.load(Ordering::Relaxed);
        drop(wake.wait_timeout_while(asleep, interval, still));
    }
}

const ASK: &str = "\
SELECT e.flushed, s.wal_status, pg_catalog.pg_wal_lsn_diff(e.written, s.restart_lsn)::bigint, s.safe_wal_size, \
       (SELECT nullif(setting, '-1')::bigint * 1048576 FROM pg_catalog.pg_settings WHERE name = 'max_slot_wal_keep_size') \
  FROM (SELECT pg_catalog.pg_current_wal_flush_lsn() AS flushed, pg_catalog.pg_current_wal_insert_lsn() AS written) e \
  LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = ";

fn look(connection: &mut Option<Connection>, url: &DatabaseUrl, sql: &str) -> Result<Seen, Error> {
    let connection = match connection {
        Some(connection) => connection,
        None => {
            let options = session("hindcast standby lag");
            connection.insert(Connection::connect(url, &options).map_err(|_| Error::Closed)?)
        }
    };
    let rows = connection.query(sql)?;
    let row = rows.first().ok_or(Error::Closed)?;
    Ok(Seen {
        end: row.parse(0)?,
        retention: Retention {
            wal_status: row.text(1).map(WalStatus::of).unwrap_or_default(),
            kept_bytes: number(row, 2),
            safe_bytes: number(row, 3),
            limit_bytes: number(row, 4),
        },
    })
}

/// `None` for NULL.
fn number(row: &Row, column: usize) -> Option<i64> {
    row.text(column)?.parse().ok()
}
