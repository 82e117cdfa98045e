//! Whether a backup is fit to be a database of its own.

use hindcast_pg::{Connection, Error};

/// Something about the backup that its new users should know; each query returns one text per
/// finding.
const FINDINGS: &[&str] = &[
    "SELECT 'the index ' || indexrelid::regclass || ' is invalid: REINDEX INDEX ' || indexrelid::regclass \
       FROM pg_catalog.pg_index i WHERE NOT indisvalid ORDER BY 1",
    "SELECT 'the constraint ' || pg_catalog.quote_ident(conname) || ' of ' || conrelid::regclass || ' was not checked for all rows: ALTER TABLE ' \
         || conrelid::regclass || ' VALIDATE CONSTRAINT ' || pg_catalog.quote_ident(conname) \
       FROM pg_catalog.pg_constraint WHERE NOT convalidated ORDER BY 1",
    "SELECT DISTINCT 'triggers of ' || tgrelid::regclass || ' are disabled: ALTER TABLE ' || tgrelid::regclass || ' ENABLE TRIGGER ' \
         || CASE WHEN tgisinternal THEN 'ALL' ELSE pg_catalog.quote_ident(tgname) END \
       FROM pg_catalog.pg_trigger WHERE tgenabled = 'D' ORDER BY 1",
    "SELECT 'the materialized view ' || oid::regclass || ' is not filled: REFRESH MATERIALIZED VIEW ' || oid::regclass \
       FROM pg_catalog.pg_class WHERE relkind = 'm' AND NOT relispopulated ORDER BY 1",
    "SELECT 'sessions begin with session_replication_role = ' || setting || ', in which triggers and foreign keys do nothing: reset it for role and database' \
       FROM pg_catalog.pg_settings WHERE name = 'session_replication_role' AND setting <> 'origin'",
    "SELECT 'sessions begin read-only: reset default_transaction_read_only for role and database' \
       FROM pg_catalog.pg_settings WHERE name = 'default_transaction_read_only' AND setting = 'on'",
];

/// Looks at a backup, from a session without settings of its own.
pub(super) fn findings(backup: &mut Connection) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for query in FINDINGS {
        found.extend(backup.query(query)?.iter().map(|row| row.string(0)));
    }
    Ok(found)
}
