//! The rewound database that changed code runs on: migrated, watched for deletions, pinned.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use hindcast_pg::tokio::Client;
use hindcast_pg::{ConnectError, ConnectOptions, DatabaseUrl, Error};
use hindcast_replay::{RestoreError, Start, restore_with};
use hindcast_rewind::pins::{Pinned, forget_types};
use hindcast_rewind::{Options as RewindOptions, Rewound};
use hindcast_trace::Trace;

/// A schema change that comes with the changed code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// As the user named it, e.g. a file.
    pub name: String,
    pub sql: String,
}

#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("the migration {name} failed{}: {message}", at(*line))]
    Migration {
        name: String,
        /// From 1.
        line: Option<usize>,
        message: String,
    },
    #[error("the rewound database cannot be watched")]
    Watch(#[source] Error),
}

fn at(line: Option<usize>) -> String {
    line.map(|line| format!(" at line {line}"))
        .unwrap_or_default()
}

/// A database to run on.
#[derive(Debug)]
pub struct Prepared {
    pub rewound: Rewound,
    pub pinned: Pinned,
    /// Transaction ids of what was done to it before the first request.
    pub preparation: Range<u64>,
    /// Tables that the migrations changed, in what they hold or in how they are defined.
    pub migrated: BTreeSet<String>,
}

pub async fn connect(url: &DatabaseUrl) -> Result<Client, ConnectError> {
    Client::connect(url, &ConnectOptions::named("hindcast")).await
}

/// Rewinds, migrates, pins.
pub async fn prepare(
    trace: &Trace,
    start: &Start,
    options: &RewindOptions,
    migrations: &[Migration],
) -> Result<Prepared, PrepareError> {
    let migrating = async |client: &Client| {
        let from = current_id(client).await?;
        for migration in migrations {
            migrate(client, migration).await?;
        }
        let migrated = match migrations {
            [] => BTreeSet::new(),
            _ => changed_since(client, from)
                .await
                .map_err(PrepareError::Watch)?,
        };
        Ok::<_, PrepareError>((from, migrated))
    };
    let (rewound, pinned, (from, migrated), client) =
        restore_with(trace, start, options, migrating).await?;
    let to = current_id(&client).await?;
    // No other session may be connected when the service starts.
    client.close().await;
    Ok(Prepared {
        rewound,
        pinned,
        preparation: from..to,
        migrated,
    })
}

async fn current_id(client: &Client) -> Result<u64, PrepareError> {
    let row = client
        .query_one("SELECT pg_catalog.pg_current_xact_id()::text", &[])
        .await
        .map_err(PrepareError::Watch)?;
    let text: &str = row.get(0);
    Ok(text.parse().expect("a transaction id is a number"))
}

/// Tables whose definition carries a later transaction's id in the catalog, or into which this
/// session has written.
async fn changed_since(client: &Client, id: u64) -> Result<BTreeSet<String>, Error> {
    // Ids in the catalog are 32 bits; whatever is less than half the circle ahead came later.
    const CHANGED: &str = "
        SELECT pg_catalog.format('%I.%I', n.nspname, c.relname)
          FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
           AND (EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND pg_catalog.age(a.xmin) <= pg_catalog.age($1::text::xid))
             OR EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND pg_catalog.age(i.xmin) <= pg_catalog.age($1::text::xid))
             OR EXISTS (SELECT FROM pg_catalog.pg_constraint o WHERE o.conrelid = c.oid AND pg_catalog.age(o.xmin) <= pg_catalog.age($1::text::xid))
             OR EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND pg_catalog.age(t.xmin) <= pg_catalog.age($1::text::xid))
             OR EXISTS (SELECT FROM pg_catalog.pg_rewrite w WHERE w.ev_class = c.oid AND pg_catalog.age(w.xmin) <= pg_catalog.age($1::text::xid))
             OR pg_catalog.pg_stat_get_tuples_inserted(c.oid) + pg_catalog.pg_stat_get_tuples_updated(c.oid) + pg_catalog.pg_stat_get_tuples_deleted(c.oid) > 0)";
    // What this session did is counted when it says so, or after a while.
    client
        .batch_execute("SELECT pg_catalog.pg_stat_force_next_flush()")
        .await
        .or_else(|error| {
            // Only Postgres 15 and later know it; before, the catalog has to do.
            match error.code() {
                Some("42883") => Ok(()),
                _ => Err(error),
            }
        })?;
    let rows = client.query(CHANGED, &[&(id as u32).to_string()]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

async fn migrate(client: &Client, migration: &Migration) -> Result<(), PrepareError> {
    let outcome = client.batch_execute(&migration.sql).await;
    // A migration that forgot to commit has not migrated; one that was not in a transaction gets a
    // warning that is not shown.
    let ended = client.batch_execute("COMMIT").await;
    outcome.and(ended).map_err(|error| {
        let server = error.server();
        let line = server
            .and_then(|server| server.position)
            .map(|at| line_of(&migration.sql, at as usize));
        let message = server.map_or_else(
            || error.to_string(),
            |server| format!("{} ({})", server.message, server.code),
        );
        PrepareError::Migration {
            name: migration.name.clone(),
            line,
            message,
        }
    })
}

/// The line of a character, both from 1.
fn line_of(text: &str, character: usize) -> usize {
    let before = text.chars().take(character.saturating_sub(1));
    1 + before.filter(|&c| c == '\n').count()
}

/// Rows say which transaction wrote them. Which one deleted a row is noted by a trigger.
/// Replication and rules do not fire it, and `TRUNCATE` goes unnoticed.
const WATCH: &str = r#"
CREATE SCHEMA hindcast_watch;
CREATE UNLOGGED TABLE hindcast_watch.deleted (relation oid, key text, xid xid8);
CREATE FUNCTION hindcast_watch.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog
    SET datestyle = 'ISO, YMD' SET timezone = 'UTC' SET intervalstyle = 'postgres' SET extra_float_digits = 3 SET bytea_output = 'hex' AS $note$
BEGIN
    EXECUTE pg_catalog.format('INSERT INTO hindcast_watch.deleted SELECT %s, %s::text, pg_catalog.pg_current_xact_id() FROM gone', TG_RELID, TG_ARGV[0]);
    RETURN NULL;
END
$note$;
DO $watch$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name,
               coalesce((SELECT 'ROW(' || pg_catalog.string_agg('gone.' || pg_catalog.quote_ident(a.attname), ', '
                                ORDER BY pg_catalog.array_position(i.indkey::int2[], a.attnum)) || ')'
                           FROM pg_catalog.pg_index i
                           JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
                          WHERE i.indrelid = c.oid AND i.indisprimary), '(gone.*)') AS key
          FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND NOT c.relispartition
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhrelid = c.oid)
           AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'hindcast_watch')
    LOOP
        EXECUTE pg_catalog.format('CREATE TRIGGER hindcast_watch AFTER DELETE ON %s REFERENCING OLD TABLE AS gone '
                                  'FOR EACH STATEMENT EXECUTE FUNCTION hindcast_watch.note(%L)', one.name, one.key);
    END LOOP;
END
$watch$;
"#;

/// From here on it is noted which transaction deletes what. This adds triggers, so it comes after
/// everything that reads the database's own. What a superuser alone may do is left out otherwise.
pub async fn watch_deletions(client: &Client, is_superuser: bool) -> Result<(), Error> {
    client.batch_execute("BEGIN").await?;
    client.batch_execute(WATCH).await?;
    if is_superuser {
        client
            .batch_execute("SET LOCAL allow_system_table_mods = on")
            .await?;
        forget_types(client, "hindcast_watch.deleted").await?;
    }
    client.batch_execute("COMMIT").await
}

/// Ends whatever still runs in the database: a statement that hangs does not notice that its client
/// has gone.
pub async fn end_sessions(client: &Client) -> Result<(), Error> {
    const OTHERS: &str = "SELECT pg_catalog.pg_terminate_backend(pid, 10000) FROM pg_catalog.pg_stat_activity \
         WHERE datname = pg_catalog.current_database() AND pid <> pg_catalog.pg_backend_pid() AND backend_type = 'client backend'";
    client.query(OTHERS, &[]).await.map(drop)
}

/// Who deleted which rows: by table and key, the low half of a transaction's id.
pub type Deletions = HashMap<(String, String), u32>;

/// Reads which transaction deleted what, of the tables that differ, and takes the watch away again.
pub async fn deletions(client: &Client) -> Result<Deletions, Error> {
    let rows = client
        .query(
            "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), d.key, d.xid::text \
             FROM hindcast_watch.deleted d JOIN pg_catalog.pg_class c ON c.oid = d.relation \
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace",
            &[],
        )
        .await?;
    let mut deletions = Deletions::new();
    for row in rows {
        let id: u64 = row.get::<&str>(2).parse().unwrap_or(0);
        deletions.insert((row.get(0), row.get(1)), id as u32);
    }
    client
        .batch_execute("SET client_min_messages = warning; DROP SCHEMA hindcast_watch CASCADE")
        .await?;
    Ok(deletions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_found_by_its_line() {
        assert_eq!(line_of("a\nb\nc", 1), 1);
        assert_eq!(line_of("a\nb\nc", 3), 2);
        assert_eq!(line_of("ä\nb\nc", 5), 3);
        assert_eq!(line_of("", 0), 1);
    }
}
