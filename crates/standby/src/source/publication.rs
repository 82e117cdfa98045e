//! The publication on the primary: which tables the log is decoded for, and which of their rows.

use std::collections::HashMap;

use hindcast_pg::{Connection, DatabaseUrl, Error, quote_identifier, quote_literal};

use super::slot::{Names, SlotError, connect, refused};
use super::tables::{ReplicatedTable, TableFilter, tables};

/// The tables of which a publication has all columns and every kind of change, by their oid, with
/// the condition of the rows, if it has not all.
#[derive(Clone, Debug, Default)]
pub(super) struct Published(HashMap<u32, Option<String>>);

impl Published {
    /// Whether it has the rows of a table that are wanted. Of a condition only that there is one:
    /// the server writes it in other words than those in which it was given.
    pub fn has(&self, table: &ReplicatedTable) -> bool {
        let condition = self.0.get(&table.oid);
        condition.is_some_and(|it| it.is_some() == table.rows.is_some())
    }

    /// Whether it has rows of a table.
    pub fn has_some(&self, oid: u32) -> bool {
        self.0.contains_key(&oid)
    }
}

/// Publishing waits for those who change or maintain one of the tables, but not for ever: better to
/// say so.
const LOCK_TIMEOUT: &str = "SET lock_timeout = '5s'";

/// Columns of conditions that say nothing of a row that was, since the log lacks them then: the
/// primary would refuse to change it.
const UNIDENTIFIED: &str = "\
SELECT pg_catalog.format('%s.%s', n.nspname, c.relname), pg_catalog.string_agg(a.attname, ', ' ORDER BY a.attnum) \
  FROM pg_catalog.pg_publication p \
  JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid \
  JOIN pg_catalog.pg_class c ON c.oid = r.prrelid \
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
  JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_publication_rel'::regclass AND d.objid = r.oid \
   AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = c.oid AND d.refobjsubid > 0 \
  JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.refobjsubid \
 WHERE p.pubname = {publication} AND r.prqual IS NOT NULL AND c.relreplident <> 'f' \
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND a.attnum = ANY (i.indkey::int2[]) \
                      AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END) \
 GROUP BY 1 ORDER BY 1";

/// Makes the publication hold exactly these tables.
///
/// Tables are named one by one: with `FOR ALL TABLES` a table that somebody makes tomorrow without
/// a primary key could not be updated on the primary. A publication that is right already, with all
/// rows, is left alone, so that somebody else may have made it.
pub fn publish(
    url: &DatabaseUrl,
    names: &Names,
    tables: &[ReplicatedTable],
) -> Result<(), SlotError> {
    let refused = refused("publish the tables");
    let mut connection = connect(url)?;
    let published = published(&mut connection, &names.publication).map_err(&refused)?;
    let is_right = tables.len() == published.0.len() && tables.iter().all(|it| published.has(it));
    // Whether a condition is the one that is wanted cannot be told.
    if is_right && tables.iter().all(|table| table.rows.is_none()) {
        return Ok(());
    }
    write(&mut connection, names, tables)
}

fn write(
    connection: &mut Connection,
    names: &Names,
    tables: &[ReplicatedTable],
) -> Result<(), SlotError> {
    let refused = refused("publish the tables");
    let filtered = tables.iter().find(|table| table.rows.is_some());
    if let Some(table) = filtered
        && connection.server_version() < 150_000
    {
        return Err(SlotError::NoRowFilters {
            table: table.to_string(),
        });
    }
    let exists = connection
        .query(&format!(
            "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = {}",
            quote_literal(&names.publication)
        ))
        .map_err(&refused)?;
    let publication = quote_identifier(&names.publication);
    let list = tables.iter().map(in_list).collect::<Vec<_>>().join(", ");
    let sql = match exists.is_empty() {
        true => format!("CREATE PUBLICATION {publication} FOR TABLE {list}"),
        false => format!(
            "ALTER PUBLICATION {publication} SET TABLE {list}; \
             ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate', publish_via_partition_root = false)"
        ),
    };
    connection
        .execute(&format!("{LOCK_TIMEOUT}; BEGIN; {sql}"))
        .map_err(|source| match source.code() {
            // Whatever is wrong with an expression.
            Some(code) if filtered.is_some() && code != "42501" && is_of_sql(code) => {
                SlotError::RowFilter { source }
            }
            _ => refused(source),
        })?;
    if filtered.is_some() {
        must_be_identified(connection, names)?;
    }
    connection.execute("COMMIT").map(drop).map_err(refused)
}

fn in_list(table: &ReplicatedTable) -> String {
    let condition = table.rows.as_ref();
    let condition = condition.map_or(String::new(), |rows| format!(" WHERE ({rows})"));
    format!("ONLY {}{condition}", table.quoted())
}

/// Syntax error or access rule violation, feature not supported, data exception.
fn is_of_sql(code: &str) -> bool {
    ["42", "0A", "22"]
        .iter()
        .any(|class| code.starts_with(class))
}

fn must_be_identified(connection: &mut Connection, names: &Names) -> Result<(), SlotError> {
    let sql = UNIDENTIFIED.replace("{publication}", &quote_literal(&names.publication));
    let rows = connection
        .query(&sql)
        .map_err(refused("publish the tables"))?;
    match rows.first() {
        Some(row) => Err(SlotError::Unidentified {
            table: row.string(0),
            columns: row.string(1),
        }),
        None => Ok(()),
    }
}

/// Adds tables to the publication. What it has of others stays.
pub fn publish_also(
    url: &DatabaseUrl,
    names: &Names,
    new: &[ReplicatedTable],
) -> Result<(), SlotError> {
    let refused = refused("publish the tables");
    let mut connection = connect(url)?;
    let published = published(&mut connection, &names.publication).map_err(&refused)?;
    if new.iter().all(|table| published.has(table)) {
        return Ok(());
    }
    let mut all = tables(&mut connection, &TableFilter::default())
        .map_err(&refused)?
        .tables;
    all.retain_mut(|table| {
        let added = new.iter().find(|new| new.oid == table.oid);
        let rows = added.map(|added| &added.rows);
        let rows = rows.or_else(|| published.0.get(&table.oid));
        table.rows = rows.cloned().flatten();
        rows.is_some()
    });
    write(&mut connection, names, &all)
}

pub(super) fn published(
    connection: &mut Connection,
    publication: &str,
) -> Result<Published, Error> {
    let (condition, all_columns) = match connection.server_version() {
        150_000.. => (
            "pg_catalog.pg_get_expr(r.prqual, r.prrelid)",
            "r.prattrs IS NULL",
        ),
        _ => ("NULL::text", "true"),
    };
    // One of all tables, or of a schema's, has no entries of its own for them.
    let sql = format!(
        "SELECT c.oid, {condition} \
           FROM pg_catalog.pg_publication p, LATERAL pg_catalog.pg_get_publication_tables(p.pubname) t \
           JOIN pg_catalog.pg_class c ON c.oid = t.relid \
           LEFT JOIN pg_catalog.pg_publication_rel r ON r.prrelid = c.oid AND r.prpubid = (SELECT oid FROM pg_catalog.pg_publication WHERE pubname = {0}) \
          WHERE p.pubname = {0} AND c.relkind = 'r' AND (r.oid IS NULL OR {all_columns}) \
            AND p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate AND NOT p.pubviaroot",
        quote_literal(publication)
    );
    let mut published = Published::default();
    for row in connection.query(&sql)?.iter() {
        let condition = row.text(1).map(str::to_owned);
        published.0.insert(row.parse(0)?, condition);
    }
    Ok(published)
}
