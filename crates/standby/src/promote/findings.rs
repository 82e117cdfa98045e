//! Whether a backup is fit to be a database of its own.

use std::collections::{BTreeMap, BTreeSet};

use hindcast_pg::{Connection, Error, Row};

use crate::source::compared::Copied;

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

/// The columns of tables, with their defaults; partitions have those of the whole. The session's
/// search path must be empty.
const COLUMNS: &str = "\
SELECT n.nspname, c.relname, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname), pg_catalog.quote_ident(a.attname), \
       pg_catalog.pg_get_expr(d.adbin, d.adrelid), c.relkind = 'p' \
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
  LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
 WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''";

/// By table and column, as SQL writes them.
type Defaults = BTreeMap<(String, String), Option<String>>;

fn defaults(connection: &mut Connection, copied: &Copied) -> Result<Defaults, Error> {
    let rows = connection.query(COLUMNS)?;
    let ours = rows
        .iter()
        .filter(|row| row.is_true(5) || copied.contains_key(&(row.string(0), row.string(1))));
    let column = |row: &Row| {
        let default = row.text(4).map(str::to_owned);
        ((row.string(2), row.string(3)), default)
    };
    Ok(ours.map(column).collect())
}

/// Columns that were dropped on the primary, and defaults that were changed there: neither is
/// followed.
pub(super) fn unlike(
    primary: &mut Connection,
    backup: &mut Connection,
    copied: &Copied,
) -> Result<Vec<String>, Error> {
    let (theirs, ours) = (defaults(primary, copied)?, defaults(backup, copied)?);
    let tables: BTreeSet<&str> = theirs.keys().map(|(table, _)| table.as_str()).collect();
    let mut found = Vec::new();
    for ((table, column), own) in &ours {
        let alter = format!("ALTER TABLE {table}");
        match theirs.get(&(table.clone(), column.clone())) {
            None if tables.contains(table.as_str()) => found.push(format!(
                "the primary has no column {column} of {table}: unless it is meant to be here, {alter} DROP COLUMN {column}"
            )),
            Some(default) if default != own => found.push(match default {
                Some(default) => format!(
                    "the default of column {column} of {table} is another one on the primary: {alter} ALTER COLUMN {column} SET DEFAULT {default}"
                ),
                None => format!(
                    "column {column} of {table} has no default on the primary: {alter} ALTER COLUMN {column} DROP DEFAULT"
                ),
            }),
            _ => {}
        }
    }
    Ok(found)
}
