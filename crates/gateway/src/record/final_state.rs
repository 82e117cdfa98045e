//! What the tables hold when recording stops.

use std::time::Duration;

use hindcast_pg::ConnectOptions;
use hindcast_pg::tokio::{Client, Connector};
use hindcast_state::StateError;
use hindcast_trace::{FinalState, SequenceName};

use super::sink::Sink;
use super::{FinalStateMode, catalog};
use crate::http::{Witness, with_causes};
use crate::redact::Rules;

/// A database below this size is read without being asked for.
const BYTES_MAX: i64 = 1 << 30;
/// How long a table may be locked before none is read: the user has pressed Ctrl-C and waits.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// The SQLSTATE of a lock that was not to be had in time.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Rows and digest of each table, without the columns that `redacted` leaves out, or why they are
/// not known.
pub(super) async fn take(
    connector: &Connector,
    sink: &Sink,
    mode: FinalStateMode,
    redacted: &Rules,
) -> Result<FinalState, String> {
    let control = connector
        .client(&ConnectOptions::named("hindcast: final state"))
        .await
        .map_err(|error| error.to_string())?;
    let bytes = catalog::database_bytes(&control)
        .await
        .map_err(|error| with_causes(&error))?;
    if mode == FinalStateMode::Auto && bytes >= BYTES_MAX {
        let gib = bytes >> 30;
        return Err(format!(
            "the database has {gib} GiB; ask for it if it is worth reading all of that"
        ));
    }
    let patience = LOCK_PATIENCE.as_millis();
    control
        .batch_execute(&format!("SET lock_timeout = {patience}"))
        .await
        .map_err(|error| with_causes(&error))?;
    let taken = sink.now();
    let left_out = |column: &str| redacted.leaves_out(column);
    match hindcast_state::digest_tables_without(&control, &left_out).await {
        Ok(tables) => Ok(FinalState {
            taken,
            tables,
            sequences: sequences(&control)
                .await
                .map_err(|error| with_causes(&error))?,
        }),
        Err(StateError::Read { table, source }) if source.code() == Some(LOCK_NOT_AVAILABLE) => {
            let holder = holder(&control, &table).await;
            Err(locked(&table, holder.as_deref()))
        }
        Err(error) => Err(with_causes(&error)),
    }
}

/// What the sequences are called that there are.
async fn sequences(client: &Client) -> Result<Vec<SequenceName>, hindcast_pg::Error> {
    let named = "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), c.oid FROM pg_catalog.pg_class c \
                   JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                  WHERE c.relkind = 'S' AND c.relpersistence <> 't' ORDER BY c.oid";
    let rows = client.query(named, &[]).await?;
    let names = rows.iter().map(|row| SequenceName {
        sequence: row.get(0),
        oid: row.get(1),
    });
    Ok(names.collect())
}

fn locked(table: &str, holder: Option<&str>) -> String {
    let holder = holder.unwrap_or("another session");
    format!(
        "the table {table} is locked by {holder} and was not free within {} s, so no table was read: a replay of this \
         recording has no final state to compare with. Let that session end before you stop a recording",
        LOCK_PATIENCE.as_secs()
    )
}

/// The session that keeps readers from a table: `process 4711 (psql, idle in transaction)`.
async fn holder(client: &Client, table: &str) -> Option<String> {
    let row = client
        .query_opt(
            "SELECT a.pid, coalesce(nullif(a.application_name, ''), a.usename::text, a.backend_type), \
                    coalesce(a.state, 'state not visible') \
               FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a USING (pid) \
              WHERE l.relation = pg_catalog.to_regclass($1) AND l.granted AND l.mode = 'AccessExclusiveLock' \
                AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) \
              LIMIT 1",
            &[&table],
        )
        .await;
    let row = row.ok().flatten()?;
    let (process, application, state): (i32, &str, &str) = (row.get(0), row.get(1), row.get(2));
    Some(format!("process {process} ({application}, {state})"))
}
