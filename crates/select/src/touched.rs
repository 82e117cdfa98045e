//! Which tables a run really touched, as the database itself counts.
//!
//! Postgres counts scans and changed rows per table. The difference between two readings is what
//! was touched in between, by whomever: also by functions whose code cannot be read. What it does
//! not count is found otherwise (`TRUNCATE` gives a table a new file) or is a read besides (`SELECT
//! … FOR UPDATE`).

use std::collections::BTreeMap;
use std::time::Duration;

use hindcast_pg::tokio::Client;

use crate::closure::Touches;

/// How long sessions that were told to end may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What the database has counted so far. Tables of the database itself and of ours are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    tables: BTreeMap<String, Counter>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counter {
    scans: i64,
    changes: i64,
    /// Another one after everything was written anew.
    file: i64,
}

/// The database's counters could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CountersError {
    #[error("the database's counters of what was touched cannot be read")]
    Read(#[from] hindcast_pg::Error),
    #[error("{sessions} sessions of the database did not end within {} s, so what they touched is not known", PATIENCE.as_secs())]
    StillConnected { sessions: i64 },
}

const READ: &str = "SELECT pg_catalog.format('%I.%I', s.schemaname, s.relname) AS name, coalesce(s.seq_scan, 0) + coalesce(s.idx_scan, 0) AS scans, \
    s.n_tup_ins + s.n_tup_upd + s.n_tup_del AS changes, coalesce(pg_catalog.pg_relation_filenode(s.relid)::bigint, 0) AS file \
    FROM pg_catalog.pg_stat_all_tables s WHERE s.schemaname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') \
    AND s.schemaname NOT LIKE 'hindcast%' AND s.schemaname NOT LIKE 'pg\\_temp%' AND s.schemaname NOT LIKE 'pg\\_toast\\_temp%'";

const OTHERS: &str = "SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE datname = pg_catalog.current_database() \
    AND pid <> pg_catalog.pg_backend_pid() AND backend_type IN ('client backend', 'parallel worker')";

/// Waits until no other session is connected to the database: sessions hand in what they counted
/// when they end, at the latest.
pub async fn settled(client: &Client) -> Result<(), CountersError> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let sessions: i64 = client.query_one(OTHERS, &[]).await?.get(0);
        if sessions == 0 {
            break;
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(CountersError::StillConnected { sessions });
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    client
        .batch_execute("SELECT pg_catalog.pg_stat_clear_snapshot()")
        .await?;
    Ok(())
}

impl Counters {
    /// The session must not have touched tables itself. What others did is complete once
    /// [`settled`].
    pub async fn read(client: &Client) -> Result<Self, CountersError> {
        let rows = client.query(READ, &[]).await?;
        let tables = rows.iter().map(|row| {
            let counter = Counter {
                scans: row.get("scans"),
                changes: row.get("changes"),
                file: row.get("file"),
            };
            (row.get("name"), counter)
        });
        Ok(Self {
            tables: tables.collect(),
        })
    }

    /// What was touched between the two readings. A table that is new was written, as was one that
    /// is gone.
    pub fn since(&self, earlier: &Self) -> Touches {
        let mut touches = Touches::default();
        for (name, now) in &self.tables {
            let Some(before) = earlier.tables.get(name) else {
                touches.writes.insert(name.clone());
                if now.scans > 0 {
                    touches.reads.insert(name.clone());
                }
                continue;
            };
            // Not only more: a table made anew under the same name counts from zero.
            if now.scans != before.scans {
                touches.reads.insert(name.clone());
            }
            if now.changes != before.changes || now.file != before.file {
                touches.writes.insert(name.clone());
            }
        }
        let gone = earlier.tables.keys();
        let gone = gone.filter(|name| !self.tables.contains_key(*name));
        touches.writes.extend(gone.cloned());
        touches
    }
}
