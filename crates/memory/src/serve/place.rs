//! What the sessions of a server have in common, and the place of each among them.

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hindcast_pg::scram::Verifier;
use hindcast_store::Store;
use rustls::ServerConfig;

use crate::catalog::Catalog;

/// Sessions at the same time.
pub const SESSIONS_MAX: usize = 500;

/// What all sessions have in common.
pub(super) struct Shared {
    pub store: Store,
    pub catalog: Arc<Catalog>,
    pub database: String,
    pub server_version: String,
    /// What clients must know.
    pub password: Option<Verifier>,
    /// With what connections are encrypted; all of them, if there is something.
    pub tls: Option<Arc<ServerConfig>>,
    pub stopping: AtomicBool,
    pub sessions: Mutex<HashMap<u32, Entry>>,
}

/// A connection, as the others see it.
pub(super) struct Entry {
    pub secret: [u8; 4],
    pub cancelled: Arc<AtomicBool>,
    pub socket: Arc<TcpStream>,
    /// It is past its startup, and counts.
    pub admitted: bool,
}

/// A connection's place among the others; given back when it is dropped.
pub(super) struct Place {
    pub shared: Arc<Shared>,
    pub process: u32,
    pub secret: [u8; 4],
    /// Somebody wants the running statement to end.
    pub cancelled: Arc<AtomicBool>,
}

impl Place {
    /// Whether one more session is allowed; from now on it counts.
    pub fn admit(&self) -> bool {
        let mut sessions = self.shared.sessions();
        let count = sessions.values().filter(|entry| entry.admitted).count();
        match sessions.get_mut(&self.process) {
            Some(entry) if count < SESSIONS_MAX => {
                entry.admitted = true;
                true
            }
            _ => false,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.sessions().remove(&self.process);
    }
}

impl Shared {
    pub fn sessions(&self) -> MutexGuard<'_, HashMap<u32, Entry>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the running statement of a session, for whoever knows its secret. Others are not told
    /// that they do not.
    pub fn cancel(&self, process: u32, secret: &[u8]) {
        if let Some(entry) = self.sessions().get(&process)
            && entry.secret == secret
        {
            entry.cancelled.store(true, Ordering::SeqCst);
        }
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}
