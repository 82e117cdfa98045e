//! The tables that a backup keeps about its standby, in a schema of their own.
//!
//! ```text
//! hindcast.standby           one row per slot: whose backup this is, and what it is doing.
//!                            `switchover_at`: it is about to become the primary, and, if
//!                            `way_back`, the primary its backup. `fenced_at`: it was the primary,
//!                            and its users only read
//! hindcast.standby_tables    what the initial copy of a slot copies, and what was copied later,
//!                            which the log is for from `joined_at` on: the greatest position as
//!                            long as nothing is copied. `shape` is what the primary's catalog said
//!                            of it then
//! hindcast.standby_indexes   indexes and constraints that the primary had when it was looked at
//!                            last; `is_column`: that a column is NOT NULL
//! hindcast.standby_labels    labels of enums by the primary's oid: the names that they have had
//!                            here, the last one now
//! hindcast.standby_progress  how far each worker has applied, inserted by the transaction that
//!                            applied it: an updated row would get ever more versions as long as a
//!                            reader's snapshot is open. The row with the greatest epoch counts
//! hindcast.standby_state     a view: what readers see, and whether that needs a snapshot
//! hindcast.standby_snapshots snapshots of states that the primary had, for the readers of a backup
//!                            with several workers
//! hindcast.standby_marks     snapshots at marks in the primary's log, or why there is none
//! hindcast.standby_snapshot  a function: the newest of them, for SET TRANSACTION SNAPSHOT
//! ```

use hindcast_pg::{Connection, Error};

const SCHEMA: &str = "\
CREATE SCHEMA IF NOT EXISTS hindcast; \
CREATE TABLE IF NOT EXISTS hindcast.standby ( \
  slot text PRIMARY KEY, \
  publication text NOT NULL, \
  source text NOT NULL, \
  system_identifier text NOT NULL, \
  source_database text NOT NULL, \
  state text NOT NULL CHECK (state IN ('copying', 'following', 'promoted')), \
  schema_made boolean NOT NULL DEFAULT false, \
  consistent_point pg_lsn, \
  started_at timestamptz NOT NULL DEFAULT now(), \
  following_since timestamptz, \
  stop_requested_at timestamptz, \
  stop_at pg_lsn, \
  stopped_at pg_lsn, \
  promoted_at timestamptz); \
CREATE TABLE IF NOT EXISTS hindcast.standby_tables ( \
  slot text NOT NULL REFERENCES hindcast.standby ON DELETE CASCADE, \
  schema_name text NOT NULL, \
  table_name text NOT NULL, \
  PRIMARY KEY (slot, schema_name, table_name)); \
CREATE TABLE IF NOT EXISTS hindcast.standby_indexes ( \
  slot text NOT NULL REFERENCES hindcast.standby ON DELETE CASCADE, \
  schema_name text NOT NULL, \
  table_name text NOT NULL, \
  is_constraint boolean NOT NULL, \
  name text NOT NULL, \
  definition text NOT NULL, \
  PRIMARY KEY (slot, schema_name, table_name, is_constraint, name)); \
CREATE TABLE IF NOT EXISTS hindcast.standby_labels ( \
  slot text NOT NULL REFERENCES hindcast.standby ON DELETE CASCADE, \
  label_oid bigint NOT NULL, \
  names text[] NOT NULL, \
  PRIMARY KEY (slot, label_oid)); \
CREATE TABLE IF NOT EXISTS hindcast.standby_progress ( \
  slot text NOT NULL, \
  worker int NOT NULL, \
  workers int NOT NULL, \
  epoch bigint NOT NULL, \
  commit_lsn pg_lsn NOT NULL, \
  end_lsn pg_lsn NOT NULL, \
  commit_time timestamptz, \
  written_at timestamptz NOT NULL DEFAULT now(), \
  PRIMARY KEY (slot, worker, epoch)); \
CREATE TABLE IF NOT EXISTS hindcast.standby_snapshots ( \
  slot text NOT NULL, \
  snapshot text NOT NULL, \
  end_lsn pg_lsn NOT NULL, \
  commit_time timestamptz, \
  taken_at timestamptz NOT NULL DEFAULT clock_timestamp()); \
CREATE TABLE IF NOT EXISTS hindcast.standby_marks ( \
  slot text NOT NULL, \
  mark text NOT NULL, \
  at pg_lsn NOT NULL, \
  snapshot text, \
  refused text, \
  taken_at timestamptz NOT NULL DEFAULT clock_timestamp()); \
DO $do$ BEGIN \
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = 'hindcast.standby_tables'::regclass AND attname = 'joined_at') THEN \
    ALTER TABLE hindcast.standby_tables ADD COLUMN joined_at pg_lsn, ADD COLUMN shape text; \
    ALTER TABLE hindcast.standby ADD COLUMN included text[], ADD COLUMN excluded text[]; \
  END IF; \
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = 'hindcast.standby'::regclass AND attname = 'switchover_at') THEN \
    ALTER TABLE hindcast.standby ADD COLUMN switchover_at timestamptz, ADD COLUMN way_back boolean, ADD COLUMN fenced_at timestamptz, \
      ADD COLUMN checked_at timestamptz, ADD COLUMN checked_lsn pg_lsn, ADD COLUMN check_differed bigint, ADD COLUMN check_repaired bigint; \
  END IF; \
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = 'hindcast.standby'::regclass AND attname = 'row_filters') THEN \
    ALTER TABLE hindcast.standby ADD COLUMN row_filters text[]; \
  END IF; \
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = 'hindcast.standby_indexes'::regclass AND attname = 'is_column') THEN \
    ALTER TABLE hindcast.standby_indexes ADD COLUMN is_column boolean NOT NULL DEFAULT false, DROP CONSTRAINT standby_indexes_pkey, \
      ADD PRIMARY KEY (slot, schema_name, table_name, is_constraint, is_column, name); \
  END IF; \
  IF pg_catalog.to_regclass('hindcast.standby_state') IS NULL THEN \
    CREATE VIEW hindcast.standby_state AS \
      SELECT slot, count(*)::int AS workers, min(end_lsn) AS visible_lsn, min(commit_time) AS commit_time, max(written_at) AS written_at, \
             count(*) = 1 OR min(epoch) = max(epoch) AS even \
        FROM (SELECT DISTINCT ON (slot, worker) * FROM hindcast.standby_progress ORDER BY slot, worker, epoch DESC) AS w \
       WHERE worker < (SELECT workers FROM hindcast.standby_progress AS p WHERE p.slot = w.slot ORDER BY epoch DESC LIMIT 1) \
       GROUP BY slot; \
  END IF; \
  IF pg_catalog.to_regproc('hindcast.standby_snapshot') IS NULL THEN \
    CREATE FUNCTION hindcast.standby_snapshot(slot_name text DEFAULT NULL) RETURNS text LANGUAGE sql VOLATILE AS $sql$ \
      SELECT s.snapshot FROM hindcast.standby_snapshots AS s \
       WHERE (slot_name IS NULL OR s.slot = slot_name) AND s.taken_at > clock_timestamp() - interval '9 s' ORDER BY s.taken_at DESC LIMIT 1 $sql$; \
  END IF; \
END $do$";

/// Makes the schema `hindcast` and its tables where they are missing.
pub fn create(connection: &mut Connection) -> Result<(), Error> {
    // Two that find them missing at the same time would both make them, and one would fail.
    connection
        .execute(&format!(
            "BEGIN; SELECT pg_catalog.pg_advisory_xact_lock({SCHEMA_LOCK}); SET LOCAL client_min_messages = error; {SCHEMA}; COMMIT"
        ))
        .map(drop)
        .inspect_err(|_| {
            // The error says what happened; a session that cannot roll back says so at its next
            // use.
            let _ = connection.execute("ROLLBACK");
        })
}

/// `hindcast` in ASCII.
const SCHEMA_LOCK: i64 = 0x6869_6e64_6361_7374;
