//! How much log the primary has.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use hindcast_pg::{Connection, DatabaseUrl, Error, Lsn};

use super::session::session;

/// Asks the primary for its end of WAL now and then, in a session and thread of its own.
///
/// The stream cannot tell: what it calls the end is how far the primary has decoded its log for us,
/// which is far behind the end whenever a large transaction is being decoded, and just then nothing
/// else comes that would tell.
pub(super) struct EndOfWal(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Only grows. Nothing is ordered by it.
    end: AtomicU64,
    stop: AtomicBool,
    sleep: (Mutex<()>, Condvar),
}

impl EndOfWal {
    /// Failures are tried again: whether the primary is lost is the stream's to say.
    pub fn watch(url: &DatabaseUrl, interval: Duration) -> Self {
        let shared = Arc::new(Shared::default());
        let (watcher, url) = (shared.clone(), url.clone());
        std::thread::spawn(move || {
            let mut connection = None;
            while !watcher.stop.load(Ordering::Relaxed) {
                match look(&mut connection, &url) {
                    Ok(end) => drop(watcher.end.fetch_max(end.0, Ordering::Relaxed)),
                    Err(_) => connection = None,
                }
                watcher.sleep(interval);
            }
        });
        Self(shared)
    }

    pub fn last(&self) -> Lsn {
        Lsn(self.0.end.load(Ordering::Relaxed))
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
    fn sleep(&self, interval: Duration) {
        let (asleep, wake) = &self.sleep;
        let asleep = asleep.lock().unwrap_or_else(PoisonError::into_inner);
        let still = |_: &mut ()| !self.stop.load(Ordering::Relaxed);
        drop(wake.wait_timeout_while(asleep, interval, still));
    }
}

fn look(connection: &mut Option<Connection>, url: &DatabaseUrl) -> Result<Lsn, Error> {
    let connection = match connection {
        Some(connection) => connection,
        None => {
            let options = session("hindcast standby lag");
            connection.insert(Connection::connect(url, &options).map_err(|_| Error::Closed)?)
        }
    };
    let rows = connection.query("SELECT pg_catalog.pg_current_wal_flush_lsn()")?;
    let row = rows.first().ok_or(Error::Closed)?;
    row.parse(0)
}
