//! Whether the backup's tables can take the primary's rows.

use std::collections::HashMap;

use hindcast_pg::{Connection, Error, quote_identifier};

use super::error::{InitialError, Side};
use crate::source::ReplicatedTable;
use crate::source::tables::{TableFilter, tables};

/// Which of the primary's tables the backup has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Present {
    None,
    All,
}

/// A column that nothing fills when a row comes from the primary.
const REQUIRED: &str = "\
SELECT n.nspname, c.relname, a.attname \
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
 WHERE c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''";

/// Compares the tables: all must be there, or none. The session's search path is empty, as it was
/// when `wanted` was read, so that types are called the same. Without `keys` it does not matter
/// which primary keys there are: they are yet to be made.
pub(super) fn compare(
    backup: &mut Connection,
    wanted: &[ReplicatedTable],
    keys: bool,
) -> Result<Present, InitialError> {
    let failed = InitialError::query(Side::Backup, "look at its tables");
    let found = tables(backup, &TableFilter::default()).map_err(&failed)?;
    let unusable: HashMap<&str, &str> = found
        .left_out
        .iter()
        .map(|(name, reason)| (name.as_str(), *reason))
        .collect();
    let found: HashMap<(&str, &str), &ReplicatedTable> = found
        .tables
        .iter()
        .map(|table| ((table.schema.as_str(), table.name.as_str()), table))
        .collect();
    let required = required(backup).map_err(&failed)?;
    let mut differences = Vec::new();
    let mut missing = 0;
    for table in wanted {
        match found.get(&(table.schema.as_str(), table.name.as_str())) {
            Some(other) => {
                differences.extend(difference(table, other, &required));
                if keys {
                    differences.extend(key_difference(table, other));
                }
            }
            None => match unusable.get(table.to_string().as_str()) {
                Some(reason) => differences.push(format!("{table} cannot be used, since {reason}")),
                None => {
                    missing += 1;
                    differences.push(format!("{table} is missing"));
                }
            },
        }
    }
    if missing == wanted.len() {
        return Ok(Present::None);
    }
    match differences.is_empty() {
        true => Ok(Present::All),
        false => Err(InitialError::Different { differences }),
    }
}

type Required = HashMap<(String, String), Vec<String>>;

fn required(backup: &mut Connection) -> Result<Required, Error> {
    let mut required = Required::new();
    for row in backup.query(REQUIRED)?.iter() {
        let table = (row.string(0), row.string(1));
        required.entry(table).or_default().push(row.string(2));
    }
    Ok(required)
}

/// What rows of `table` do not find in `other`. That may have more columns, if something else fills
/// them.
fn difference(
    table: &ReplicatedTable,
    other: &ReplicatedTable,
    required: &Required,
) -> Vec<String> {
    let mut differences = Vec::new();
    for column in &table.columns {
        match other.columns.iter().find(|there| there.name == column.name) {
            None => differences.push(format!(
                "{table} lacks the column {} {} (or computes it)",
                quote_identifier(&column.name),
                column.type_name
            )),
            Some(there) if there.type_name != column.type_name => differences.push(format!(
                "{table}.{} is {} in place of {}",
                quote_identifier(&column.name),
                there.type_name,
                column.type_name
            )),
            Some(_) => {}
        }
    }
    let key = (table.schema.clone(), table.name.clone());
    for name in required.get(&key).into_iter().flatten() {
        if !table.columns.iter().any(|column| column.name == *name) {
            differences.push(format!(
                "{table}.{} must not be NULL, has no default, and is not on the primary",
                quote_identifier(name)
            ));
        }
    }
    differences
}

fn key_difference(table: &ReplicatedTable, other: &ReplicatedTable) -> Option<String> {
    if table.primary_key.is_empty() || table.primary_key == other.primary_key {
        return None;
    }
    Some(format!(
        "the primary key of {table} is ({}) in place of ({})",
        other.primary_key.join(", "),
        table.primary_key.join(", ")
    ))
}

/// Fails if a table has a row.
pub(super) fn must_be_empty(
    backup: &mut Connection,
    tables: &[ReplicatedTable],
) -> Result<(), InitialError> {
    let failed = InitialError::query(Side::Backup, "see whether its tables are empty");
    let mut pipeline = backup.pipeline();
    for table in tables {
        pipeline.run_sql(&format!("SELECT 1 FROM ONLY {} LIMIT 1", table.quoted()));
    }
    let outcomes = pipeline.finish().map_err(failed)?;
    let filled: Vec<String> = tables
        .iter()
        .zip(outcomes)
        .filter(|(_, outcome)| !outcome.rows.is_empty())
        .map(|(table, _)| table.quoted())
        .collect();
    match filled.is_empty() {
        true => Ok(()),
        false => Err(InitialError::NotEmpty { tables: filled }),
    }
}

/// Removes what an interrupted copy has copied.
pub(super) fn empty(
    backup: &mut Connection,
    tables: &[(String, String)],
) -> Result<(), InitialError> {
    if tables.is_empty() {
        return Ok(());
    }
    let tables: Vec<String> = tables
        .iter()
        .map(|(schema, name)| {
            format!(
                "ONLY {}.{}",
                quote_identifier(schema),
                quote_identifier(name)
            )
        })
        .collect();
    // All in one statement, since foreign keys may connect them.
    backup
        .execute(&format!("TRUNCATE {}", tables.join(", ")))
        .map(drop)
        .map_err(InitialError::query(
            Side::Backup,
            "remove what the interrupted copy left",
        ))
}

/// Which tables an interrupted copy of this slot may have filled, of those that are still there.
pub(super) fn begun(
    backup: &mut Connection,
    slot: &str,
) -> Result<Vec<(String, String)>, InitialError> {
    let rows = backup
        .query(&format!(
            "SELECT t.schema_name, t.table_name FROM hindcast.standby_tables t \
               JOIN pg_catalog.pg_namespace n ON n.nspname = t.schema_name \
               JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.table_name AND c.relkind = 'r' \
              WHERE t.slot = {}",
            hindcast_pg::quote_literal(slot)
        ))
        .map_err(InitialError::query(Side::Backup, "see what was copied"))?;
    Ok(rows
        .iter()
        .map(|row| (row.string(0), row.string(1)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::TableColumn;

    fn table(columns: &[(&str, &str)], key: &[&str]) -> ReplicatedTable {
        ReplicatedTable {
            oid: 1,
            schema: "public".to_owned(),
            name: "t".to_owned(),
            columns: columns
                .iter()
                .map(|&(name, type_name)| TableColumn {
                    name: name.to_owned(),
                    type_oid: 0,
                    type_name: type_name.to_owned(),
                    collation: String::new(),
                })
                .collect(),
            primary_key: key.iter().map(|&name| name.to_owned()).collect(),
            identity: 'd',
            changed: 0,
            rows_estimate: 0,
            bytes: 0,
            pages: 0,
            shape: Default::default(),
            rows: None,
            root: None,
        }
    }

    #[test]
    fn columns_are_compared_by_name_and_type() {
        let ours = table(&[("k", "integer"), ("v", "text")], &["k"]);
        let none = Required::new();
        let same = table(
            &[("extra", "text"), ("v", "text"), ("k", "integer")],
            &["k"],
        );
        assert_eq!(difference(&ours, &same, &none), [""; 0]);
        let other = table(&[("k", "bigint")], &[]);
        assert_eq!(
            difference(&ours, &other, &none),
            [
                "public.t.\"k\" is bigint in place of integer",
                "public.t lacks the column \"v\" text (or computes it)",
            ]
        );
        assert_eq!(key_difference(&ours, &same), None);
        assert_eq!(
            key_difference(&ours, &other).as_deref(),
            Some("the primary key of public.t is () in place of (k)")
        );
        let required = Required::from([(
            ("public".to_owned(), "t".to_owned()),
            vec!["k".to_owned(), "extra".to_owned()],
        )]);
        assert_eq!(
            difference(&ours, &same, &required),
            ["public.t.\"extra\" must not be NULL, has no default, and is not on the primary"]
        );
    }
}
