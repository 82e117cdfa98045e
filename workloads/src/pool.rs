//! A connection pool: at most so many sessions, handed out in the order of asking, the most
//! recently used first.
//!
//! A session goes back only if it is known to be outside a transaction. One whose transaction was
//! left open, because the handler was dropped when its client went away, is closed instead; the
//! server then aborts it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::{Client, Config, Error, NoTls, Statement};

use crate::database::{Sql, TraceParent};

#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    config: Config,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Session>>,
}

/// One connection with what is known of it.
pub(crate) struct Session {
    pub client: Client,
    prepared: HashMap<&'static str, Statement>,
    /// What `application_name` was last set to.
    pub application_name: Option<TraceParent>,
}

/// A session on loan. Dropped, it returns to the pool if it is reusable and closes otherwise.
pub(crate) struct Lease {
    session: Option<Session>,
    reusable: bool,
    pool: Pool,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub fn new(config: Config, sessions_max: usize) -> Self {
        let permits = Arc::new(Semaphore::new(sessions_max));
        Self(Arc::new(Inner {
            config,
            permits,
            idle: Mutex::default(),
        }))
    }

    /// One of its own, of sessions to the same database.
    pub fn with_sessions(&self, sessions_max: usize) -> Self {
        Self::new(self.0.config.clone(), sessions_max)
    }

    /// Waits for a session to be free; connects if none is idle.
    pub async fn lease(&self) -> Result<Lease, Error> {
        let permit = self
            .0
            .permits
            .clone()
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let session = match self.idle() {
            Some(session) => session,
            None => Session::connect(&self.0.config).await?,
        };
        Ok(Lease {
            session: Some(session),
            reusable: true,
            pool: self.clone(),
            _permit: permit,
        })
    }

    fn idle(&self) -> Option<Session> {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(session) = idle.pop() {
            if !session.client.is_closed() {
                return Some(session);
            }
        }
        None
    }
}

impl Session {
    async fn connect(config: &Config) -> Result<Self, Error> {
        let (client, connection) = config.connect(NoTls).await?;
        // The task ends with the client or with the connection; its error reaches whoever awaits a
        // query.
        tokio::spawn(connection);
        Ok(Self {
            client,
            prepared: HashMap::new(),
            application_name: None,
        })
    }

    /// The prepared form of a statement, made at its first use on this session.
    pub async fn prepare(&mut self, sql: &'static Sql) -> Result<Statement, Error> {
        if let Some(statement) = self.prepared.get(sql.text) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare_typed(sql.text, sql.types).await?;
        self.prepared.insert(sql.text, statement.clone());
        Ok(statement)
    }
}

impl Lease {
    pub fn session(&mut self) -> &mut Session {
        self.session
            .as_mut()
            .expect("a lease has its session until it is dropped")
    }

    /// Whether the session may be used again. False while a transaction is open.
    pub fn set_reusable(&mut self, reusable: bool) {
        self.reusable = reusable;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let session = self.session.take();
        if self.reusable {
            let mut idle = self
                .pool
                .0
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            idle.extend(session.filter(|session| !session.client.is_closed()));
        }
    }
}
