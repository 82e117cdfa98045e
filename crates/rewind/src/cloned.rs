//! A database that is made from a base for one rewind, and goes with it.

use std::time::{Duration, Instant};

use hindcast_pg::DatabaseUrl;
use hindcast_pg::tokio::Client;

use crate::error::RewindError;
use crate::server::connect_beside;
use crate::template;

/// Dropping it removes the database, also while that is being made.
pub(crate) struct Cloned {
    server: DatabaseUrl,
    database: String,
    /// Holds the advisory lock that says that we are alive; `None` once the database was kept or
    /// discarded.
    beside: Option<Client>,
}

/// How long the server may take to end the making of a database that nobody wants any more.
const PATIENCE: Duration = Duration::from_secs(20);

impl Cloned {
    pub async fn make(
        server: &DatabaseUrl,
        beside: Client,
        base: &str,
        database: &str,
    ) -> Result<Self, RewindError> {
        let name = template::name_of_clone(database);
        let cloned = Self {
            server: server.clone(),
            database: name.clone(),
            beside: Some(beside),
        };
        if let Some(beside) = &cloned.beside {
            template::clone_base(beside, base, &name).await?;
        }
        Ok(cloned)
    }

    pub fn database(&self) -> &str {
        &self.database
    }

    /// Leaves it for the user.
    pub async fn keep(mut self) -> Result<(), RewindError> {
        match self.beside.take() {
            Some(beside) => template::keep(&beside, &self.database).await,
            None => Ok(()),
        }
    }

    pub async fn discard(mut self) -> Result<(), RewindError> {
        match self.beside.take() {
            Some(beside) => template::drop_database(&beside, &self.database).await,
            None => Ok(()),
        }
    }
}

impl Drop for Cloned {
    fn drop(&mut self) {
        let Some(beside) = self.beside.take() else {
            return;
        };
        drop(beside);
        let (server, database) = (self.server.clone(), self.database.clone());
        // We may be inside a runtime, which must not be blocked on itself. A failure leaves a
        // database behind, which the next rewind removes.
        let _ = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                if let Ok(client) = connect_beside(&server).await {
                    let _ = remove(&client, &database).await;
                }
            });
            Ok::<_, std::io::Error>(())
        })
        .join();
    }
}

/// Drops a database that a session may be making at this moment: it goes on with that although we
/// are gone.
async fn remove(client: &Client, database: &str) -> Result<(), RewindError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let being_made = client
            .query_opt(
                "SELECT FROM pg_catalog.pg_stat_activity WHERE pid <> pg_catalog.pg_backend_pid() AND state = 'active' \
                 AND query LIKE 'CREATE DATABASE%' AND pg_catalog.strpos(query, $1) > 0",
                &[&database],
            )
            .await
            .map_err(RewindError::database("see whether it is being made"))?;
        if being_made.is_none() || Instant::now() > deadline {
            return template::drop_database(client, database).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
