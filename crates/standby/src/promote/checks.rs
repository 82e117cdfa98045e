//! Whether a backup is fit to be a database of its own.

use hindcast_pg::{Connection, Error, quote_identifier};

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

/// A table's rows, whatever their order: equal digests mean equal rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    pub rows: String,
    pub sum: String,
}

/// The stored columns of a table, `None` if there is no such table. Computed ones need not be
/// compared.
pub(super) fn columns(
    connection: &mut Connection,
    schema: &str,
    table: &str,
) -> Result<Option<Vec<String>>, Error> {
    let rows = connection.query(&format!(
        "SELECT a.attname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
           JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
          WHERE n.nspname = {} AND c.relname = {} AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum",
        hindcast_pg::quote_literal(schema),
        hindcast_pg::quote_literal(table),
    ))?;
    let columns: Vec<String> = rows.iter().map(|row| row.string(0)).collect();
    Ok((!columns.is_empty()).then_some(columns))
}

/// The session must have the settings of [`crate::source::session`], and an empty search path: a
/// row's text depends on them.
pub(super) fn digest(
    connection: &mut Connection,
    schema: &str,
    table: &str,
    columns: &[String],
) -> Result<Digest, Error> {
    let columns: Vec<String> = columns.iter().map(|name| quote_identifier(name)).collect();
    let rows = connection.query(&format!(
        "SELECT pg_catalog.count(*), coalesce(pg_catalog.sum(pg_catalog.hashtextextended(ROW({})::text, 0)), 0) FROM ONLY {}.{}",
        columns.join(", "),
        quote_identifier(schema),
        quote_identifier(table)
    ))?;
    let row = rows
        .first()
        .ok_or_else(|| Error::Protocol("an aggregate without a row".to_owned()))?;
    Ok(Digest {
        rows: row.string(0),
        sum: row.string(1),
    })
}
