//! Sessions on the backup, and what is done outside of epochs.

use hindcast_pg::{ConnectOptions, Connection, DatabaseUrl, Error, Lsn};

use super::Options;
use super::error::BackupError;
use super::orders::Command;
use super::progress::{self, Progress};

/// What a session needs to write what the primary says and nothing else.
///
/// Values come in the forms that the source's session prints; triggers and foreign keys rest as in
/// any replica; batches must find their rows by index whatever the planner makes of an array of
/// unknown length; nothing of the database's or the role's settings ends the session.
const SETTINGS: [(&str, &str, u32); 34] = [
    ("session_replication_role", "replica", 0),
    ("synchronous_commit", "off", 0),
    ("search_path", "", 0),
    ("row_security", "off", 0),
    ("default_transaction_isolation", "read committed", 0),
    ("default_transaction_read_only", "off", 0),
    ("statement_timeout", "0", 0),
    ("idle_in_transaction_session_timeout", "0", 0),
    ("idle_session_timeout", "0", 140_000),
    ("transaction_timeout", "0", 170_000),
    ("plan_cache_mode", "force_generic_plan", 120_000),
    ("enable_hashjoin", "off", 0),
    ("enable_mergejoin", "off", 0),
    ("enable_seqscan", "off", 0),
    ("enable_material", "off", 0),
    ("enable_memoize", "off", 140_000),
    ("max_parallel_workers_per_gather", "0", 0),
    ("jit", "off", 110_000),
    ("datestyle", "ISO, YMD", 0),
    ("intervalstyle", "postgres", 0),
    ("timezone", "UTC", 0),
    ("extra_float_digits", "3", 0),
    ("bytea_output", "hex", 0),
    ("lc_monetary", "C", 0),
    ("xmlbinary", "base64", 0),
    ("xmloption", "content", 0),
    ("array_nulls", "on", 0),
    ("quote_all_identifiers", "off", 0),
    ("standard_conforming_strings", "on", 0),
    ("backslash_quote", "safe_encoding", 0),
    ("transform_null_equals", "off", 0),
    ("check_function_bodies", "off", 0),
    ("default_tablespace", "", 0),
    ("client_min_messages", "warning", 0),
];

pub fn open(url: &DatabaseUrl, options: &Options) -> Result<Connection, BackupError> {
    let named = ConnectOptions::named("hindcast standby");
    let mut connection =
        Connection::connect(url, &named).map_err(|error| BackupError::Connect(Box::new(error)))?;
    let version = connection.server_version();
    let mut sql: String = SETTINGS
        .iter()
        .filter(|(_, _, since)| version >= *since)
        .map(|(name, value, _)| format!("SET {name} = '{value}'; "))
        .collect();
    sql += &format!(
        "SET lock_timeout = {}; SELECT pg_is_in_recovery()",
        options.lock_timeout.as_millis()
    );
    // An empty search path is a list with one empty name, which is no schema.
    let rows = connection
        .query(&sql)
        .map_err(|error| BackupError::at(Lsn(0), error))?;
    match rows.first().is_some_and(|row| row.is_true(0)) {
        true => Err(BackupError::InRecovery),
        false => Ok(connection),
    }
}

/// Up to where the backup's WAL is on disk.
pub fn flush_lsn(connection: &mut Connection) -> Result<Lsn, Error> {
    let rows = connection.query("SELECT pg_current_wal_flush_lsn()")?;
    let row = rows
        .first()
        .ok_or_else(|| Error::Protocol("no answer about the WAL's end".to_owned()))?;
    row.parse(0)
}

/// Everything committed so far is on disk when this returns: a commit waits for all WAL before it.
pub fn flush(connection: &mut Connection) -> Result<(), Error> {
    connection
        .execute(
            "BEGIN; SET LOCAL synchronous_commit = local; SELECT pg_logical_emit_message(true, 'hindcast', 'flush'); COMMIT",
        )
        .map(drop)
}

/// The number of workers changes: all are noted to be where all are.
pub fn spread(
    connection: &mut Connection,
    options: &Options,
    progress: &Progress,
) -> Result<Progress, BackupError> {
    let mut end = progress.greatest();
    end.number += 1;
    let mut sql = "BEGIN; ".to_owned();
    for worker in 0..options.workers {
        if let Command::Sql(insert) = progress::insert(&options.slot, worker, options.workers, &end)
        {
            sql += &insert;
            sql += "; ";
        }
    }
    sql += "COMMIT";
    connection.execute(&sql).map_err(|error| {
        // A session that cannot roll back says so at its next use.
        let _ = connection.execute("ROLLBACK");
        BackupError::at(end.end_lsn, error)
    })?;
    Ok(Progress {
        slot: options.slot.clone(),
        positions: vec![end; options.workers],
    })
}
