//! What tells the rows of two databases apart.

use hindcast_pg::{Connection, Error, quote_identifier, quote_literal};

/// Rows, whatever their order: equal digests mean equal rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    pub rows: u64,
    pub sum: String,
    /// Of their texts.
    pub bytes: u64,
}

/// The stored columns of a table, `None` if there is no such table. Computed ones need not be
/// compared.
pub fn columns(
    connection: &mut Connection,
    schema: &str,
    table: &str,
) -> Result<Option<Vec<String>>, Error> {
    let rows = connection.query(&format!(
        "SELECT a.attname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
           JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
          WHERE n.nspname = {} AND c.relname = {} AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum",
        quote_literal(schema),
        quote_literal(table),
    ))?;
    let columns: Vec<String> = rows.iter().map(|row| row.string(0)).collect();
    Ok((!columns.is_empty()).then_some(columns))
}

/// A row as a text.
pub fn row(columns: &[String]) -> String {
    let columns: Vec<String> = columns.iter().map(|name| quote_identifier(name)).collect();
    format!("ROW({})::text", columns.join(", "))
}

/// Of the rows of a table, given as SQL writes it, that meet a condition. The session must have the
/// settings of [`crate::source::session`], and an empty search path: a row's text depends on them.
pub fn digest(
    connection: &mut Connection,
    table: &str,
    columns: &[String],
    condition: &str,
) -> Result<Digest, Error> {
    let row = row(columns);
    let rows = connection.query(&format!(
        "SELECT pg_catalog.count(*), coalesce(pg_catalog.sum(pg_catalog.hashtextextended({row}, 0)), 0), \
                coalesce(pg_catalog.sum(pg_catalog.octet_length({row})), 0) FROM ONLY {table} WHERE {condition}"
    ))?;
    let row = rows
        .first()
        .ok_or_else(|| Error::Protocol("an aggregate without a row".to_owned()))?;
    Ok(Digest {
        rows: row.parse(0)?,
        sum: row.string(1),
        bytes: row.parse(2)?,
    })
}
