//! How a table of the backup gets the shape that the primary's has by now.
//!
//! The log has rows and no DDL. What a change of a table did to rows that were there (a default,
//! the `USING` of another type, a rename) shows in the primary's catalog only as long as the table
//! was not rewritten: then new columns hold what the catalog says of them, and values are as they
//! were under another type. Otherwise the rows have to be copied again.

use hindcast_pg::{Connection, DatabaseUrl, Error, Row, quote_identifier, quote_literal};

use super::copy::writing;
use super::error::{InitialError, Side};
use super::state;
use super::workers::reading;
use crate::pgoutput::Relation;
use crate::source::compared::{self, Copied, TableName, former_name};
use crate::source::shape::Shape;
use crate::source::{Names, ReplicatedTable, TableFilter};

/// A column as the catalog has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    name: String,
    /// With its modifier, and its collation if that is not the type's.
    type_sql: String,
    not_null: bool,
    /// `DEFAULT …`, `GENERATED …`: as in a definition; empty without one.
    filled: String,
    /// What rows have that were there before the column; `None`: they were rewritten, or have NULL.
    missing: Option<String>,
    /// It has a plain default, or none.
    plain: bool,
}

const COLUMNS: &str = "\
SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attcollation <> t.typcollation \
           THEN ' COLLATE ' || pg_catalog.quote_ident(ln.nspname) || '.' || pg_catalog.quote_ident(l.collname) ELSE '' END, \
       a.attnotnull, \
       CASE WHEN a.attidentity <> '' THEN 'GENERATED ' || CASE a.attidentity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END || ' AS IDENTITY' \
            WHEN a.attgenerated <> '' THEN 'GENERATED ALWAYS AS (' || pg_catalog.pg_get_expr(d.adbin, d.adrelid) || ') STORED' \
            WHEN d.adbin IS NOT NULL THEN 'DEFAULT ' || pg_catalog.pg_get_expr(d.adbin, d.adrelid) ELSE '' END, \
       CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1] END, \
       a.attidentity = '' AND a.attgenerated = '' \
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
  LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
  LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation LEFT JOIN pg_catalog.pg_namespace ln ON ln.oid = l.collnamespace \
 WHERE a.attrelid = {table} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

/// `table`: SQL for an oid. The session's search path must be empty.
fn columns(connection: &mut Connection, table: &str) -> Result<Vec<Column>, Error> {
    let rows = connection.query(&COLUMNS.replace("{table}", table))?;
    let column = |row: &Row| Column {
        name: row.string(0),
        type_sql: row.string(1),
        not_null: row.is_true(2),
        filled: row.string(3),
        missing: row.text(4).map(str::to_owned),
        plain: row.is_true(5),
    };
    Ok(rows.iter().map(column).collect())
}

fn by_name(name: &str) -> String {
    format!("pg_catalog.to_regclass({})", quote_literal(name))
}

/// Statements that give a table without rows the primary's shape. What the backup alone has stays.
pub(super) fn of_empty(
    primary: &mut Connection,
    backup: &mut Connection,
    table: &ReplicatedTable,
) -> Result<Vec<String>, InitialError> {
    let failed = |side| InitialError::query(side, "see how a table is made");
    let theirs = columns(primary, &table.oid.to_string()).map_err(failed(Side::Primary))?;
    let ours = columns(backup, &by_name(&table.quoted())).map_err(failed(Side::Backup))?;
    let target = alterable(backup, &table.quoted()).map_err(failed(Side::Backup))?;
    Ok(differences(&target, &theirs, &ours))
}

/// Where a table's columns are changed: a partition has those of the whole.
fn alterable(backup: &mut Connection, table: &str) -> Result<String, Error> {
    let name = by_name(table);
    let rows = backup.query(&format!(
        "SELECT coalesce(pg_catalog.pg_partition_root({name}), {name})::text"
    ))?;
    let root = rows.first().and_then(|row| row.text(0));
    Ok(root.unwrap_or(table).to_owned())
}

fn differences(table: &str, theirs: &[Column], ours: &[Column]) -> Vec<String> {
    let mut statements = Vec::new();
    let mut alter = |what: String| statements.push(format!("ALTER TABLE {table} {what}"));
    for column in theirs {
        let (name, type_sql) = (quote_identifier(&column.name), &column.type_sql);
        match ours.iter().find(|own| own.name == column.name) {
            None => {
                let not_null = if column.not_null { " NOT NULL" } else { "" };
                alter(format!(
                    "ADD COLUMN {name} {type_sql} {}{not_null}",
                    column.filled
                ));
            }
            Some(own) if own.type_sql != *type_sql && own.plain => {
                alter(format!("ALTER COLUMN {name} DROP DEFAULT"));
                alter(format!(
                    "ALTER COLUMN {name} TYPE {type_sql} USING NULL::{}",
                    type_sql.split(" COLLATE ").next().unwrap_or(type_sql)
                ));
                if column.plain && !column.filled.is_empty() {
                    alter(format!("ALTER COLUMN {name} SET {}", column.filled));
                }
            }
            Some(_) => {}
        }
    }
    for own in ours {
        let is_theirs = theirs.iter().any(|column| column.name == own.name);
        if !is_theirs && own.not_null && own.filled.is_empty() {
            let name = quote_identifier(&own.name);
            alter(format!("ALTER COLUMN {name} DROP NOT NULL"));
        }
    }
    statements
}

fn quoted(relation: &Relation) -> String {
    let (schema, name) = (&relation.schema, &relation.name);
    format!("{}.{}", quote_identifier(schema), quote_identifier(name))
}

/// What became of a table that the log did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adapted {
    Done,
    /// It is another table of that name, and could not get another one.
    Name,
    /// Its rows may have become others.
    No,
    /// Somebody removed it from the backup.
    Gone,
}

/// Gives a table whose rows stay the name and the shape that the log has now, if that is all that
/// the primary did.
pub fn adapt(
    primary: &DatabaseUrl,
    backup: &DatabaseUrl,
    names: &Names,
    relation: &Relation,
) -> Result<Adapted, InitialError> {
    let failed = |side| InitialError::query(side, "see how a table was changed");
    let mut primary =
        Connection::connect(primary, &reading()).map_err(InitialError::connect(Side::Primary))?;
    let mut backup = writing(backup)?;
    let copied = state::tables(&mut backup, &names.slot).map_err(failed(Side::Backup))?;
    let filter = state::filter(&mut backup, &names.slot).map_err(failed(Side::Backup))?;
    let filter = TableFilter {
        rows: filter.unwrap_or_default().rows,
        ..TableFilter::default()
    };
    let compared =
        compared::compare(&mut primary, names, &filter, &copied).map_err(failed(Side::Primary))?;
    let renames = renames(&copied, compared.renamed.iter().chain(&compared.altered));
    let is_renamed = renames
        .iter()
        .any(|(_, (schema, name))| *schema == relation.schema && *name == relation.name);
    let (sql, otherwise) = if is_renamed {
        (Some(state::rename(&names.slot, &renames)), Adapted::Name)
    } else {
        let before = copied.get(&(relation.schema.clone(), relation.name.clone()));
        let before = before.and_then(Option::as_ref);
        let is_same = before.is_some_and(|shape| shape.oid == relation.id);
        if is_same && !is_there(&mut backup, relation).map_err(failed(Side::Backup))? {
            return Ok(Adapted::Gone);
        }
        let names = relation.columns.iter().map(|column| column.name.as_str());
        let names: Vec<_> = names.collect();
        let table = (relation.id, quoted(relation));
        let statements = additions_of(&mut primary, &mut backup, &table, &names, before)?;
        let statements = statements.filter(|statements| !statements.is_empty());
        (
            statements.map(|statements| statements.join("; ")),
            Adapted::No,
        )
    };
    let Some(sql) = sql else {
        return Ok(otherwise);
    };
    let sql = format!("BEGIN; SET LOCAL lock_timeout = '10s'; {sql}; COMMIT");
    match backup.execute(&sql) {
        Ok(_) => Ok(Adapted::Done),
        Err(error) if error.is_connection() => Err(failed(Side::Backup)(error)),
        // A type that is not there, or somebody has it locked.
        Err(_) => {
            let rollback = backup.execute("ROLLBACK");
            rollback.map(|_| otherwise).map_err(failed(Side::Backup))
        }
    }
}

fn is_there(backup: &mut Connection, relation: &Relation) -> Result<bool, Error> {
    let rows = backup.query(&format!("SELECT {}", by_name(&quoted(relation))))?;
    Ok(rows.first().is_some_and(|row| row.text(0).is_some()))
}

/// The names that tables had and have.
pub(super) fn renames<'a>(
    copied: &Copied,
    tables: impl IntoIterator<Item = &'a ReplicatedTable>,
) -> Vec<(TableName, TableName)> {
    let rename = |table: &ReplicatedTable| {
        let former = former_name(copied, table)?;
        Some((former.clone(), (table.schema.clone(), table.name.clone())))
    };
    tables.into_iter().filter_map(rename).collect()
}

/// Statements that give a table that has rows the columns that it has on the primary; `None` if
/// there is more to it. None of them: it has them.
pub fn grown(
    primary: &mut Connection,
    backup: &mut Connection,
    table: &ReplicatedTable,
    copied: &Copied,
) -> Result<Option<Vec<String>>, InitialError> {
    let before = copied.get(&(table.schema.clone(), table.name.clone()));
    let before = before.and_then(Option::as_ref);
    let names = table.columns.iter().map(|column| column.name.as_str());
    let names: Vec<_> = names.collect();
    let table = (table.oid, table.quoted());
    additions_of(primary, backup, &table, &names, before)
}

/// Of a table that has this oid on the primary, and these columns.
fn additions_of(
    primary: &mut Connection,
    backup: &mut Connection,
    (oid, table): &(u32, String),
    names: &[&str],
    before: Option<&Shape>,
) -> Result<Option<Vec<String>>, InitialError> {
    let failed = |side| InitialError::query(side, "see how a table was changed");
    let sql = format!("SELECT relfilenode FROM pg_catalog.pg_class WHERE oid = {oid}");
    let rows = primary.query(&sql).map_err(failed(Side::Primary))?;
    let now = rows.first().map(|row| row.parse(0)).transpose();
    let now: Option<u32> = now.map_err(failed(Side::Primary))?;
    if now.is_none() || now != before.map(|shape| shape.filenode) {
        return Ok(None);
    }
    let theirs = columns(primary, &oid.to_string()).map_err(failed(Side::Primary))?;
    let ours = columns(backup, &by_name(table)).map_err(failed(Side::Backup))?;
    let target = alterable(backup, table).map_err(failed(Side::Backup))?;
    Ok(additions(&target, names, &theirs, &ours))
}

/// `None` if there is more to it than columns that are new, and types that hold the same values.
fn additions(
    table: &str,
    names: &[&str],
    theirs: &[Column],
    ours: &[Column],
) -> Option<Vec<String>> {
    let is_theirs = |own: &Column| names.contains(&own.name.as_str());
    if ours.is_empty() || !ours.iter().filter(|own| own.plain).all(is_theirs) {
        return None;
    }
    let mut statements = Vec::new();
    for column in names {
        let name = quote_identifier(column);
        // It is there today, under this name.
        let theirs = theirs.iter().find(|it| it.name == *column)?;
        let type_sql = &theirs.type_sql;
        match ours.iter().find(|own| own.name == *column) {
            Some(own) if own.type_sql == *type_sql => {}
            Some(own) if own.plain && is_of_one_type(&own.type_sql, type_sql) => {
                statements.push(format!(
                    "ALTER TABLE {table} ALTER COLUMN {name} TYPE {type_sql}"
                ));
            }
            Some(_) => return None,
            None if !theirs.plain => return None,
            None => {
                let value = theirs.missing.as_deref().map(quote_literal);
                let (default, not_null) = match (value, theirs.not_null) {
                    (Some(value), true) => (format!(" DEFAULT {value}"), " NOT NULL"),
                    (Some(value), false) => (format!(" DEFAULT {value}"), ""),
                    (None, _) => (String::new(), ""),
                };
                statements.push(format!(
                    "ALTER TABLE {table} ADD COLUMN {name} {type_sql}{default}{not_null}"
                ));
                statements.push(match theirs.filled.is_empty() {
                    true => format!("ALTER TABLE {table} ALTER COLUMN {name} DROP DEFAULT"),
                    false => {
                        format!(
                            "ALTER TABLE {table} ALTER COLUMN {name} SET {}",
                            theirs.filled
                        )
                    }
                });
            }
        }
    }
    Some(statements)
}

/// Whether values are the same text in either: only modifiers differ.
fn is_of_one_type(one: &str, other: &str) -> bool {
    fn base(text: &str) -> &str {
        match text.split_once('(') {
            Some((base, modifier)) if modifier.ends_with(')') => base,
            _ => text,
        }
    }
    let are = |names: [&str; 2]| names.contains(&base(one)) && names.contains(&base(other));
    base(one) == base(other) || are(["text", "character varying"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, type_sql: &str) -> Column {
        Column {
            name: name.to_owned(),
            type_sql: type_sql.to_owned(),
            not_null: false,
            filled: String::new(),
            missing: None,
            plain: true,
        }
    }

    #[test]
    fn what_is_new_holds_what_the_catalog_says() {
        let ours = [column("a", "numeric(7,2)")];
        let mut new = column("b", "text");
        new.missing = Some("it's".to_owned());
        new.not_null = true;
        let theirs = [column("a", "numeric(9,2)"), new, column("c", "integer")];
        let statements = additions("t", &["a", "b", "c"], &theirs, &ours);
        assert_eq!(
            statements.unwrap(),
            [
                "ALTER TABLE t ALTER COLUMN \"a\" TYPE numeric(9,2)",
                "ALTER TABLE t ADD COLUMN \"b\" text DEFAULT 'it''s' NOT NULL",
                "ALTER TABLE t ALTER COLUMN \"b\" DROP DEFAULT",
                "ALTER TABLE t ADD COLUMN \"c\" integer",
                "ALTER TABLE t ALTER COLUMN \"c\" DROP DEFAULT",
            ]
        );
    }

    #[test]
    fn a_column_that_may_have_another_name_now_is_none_that_is_new() {
        let (ours, theirs) = ([column("a", "integer")], [column("b", "integer")]);
        assert_eq!(additions("t", &["b"], &theirs, &ours), None);
        // Nor is one whose name has changed since.
        assert_eq!(additions("t", &["a", "c"], &theirs, &ours), None);
        let mut identity = column("b", "integer");
        identity.plain = false;
        let theirs = [column("a", "integer"), identity];
        assert_eq!(additions("t", &["a", "b"], &theirs, &ours), None);
    }

    #[test]
    fn another_type_is_another_text() {
        let ours = [column("a", "timestamp without time zone")];
        let theirs = [column("a", "timestamp with time zone")];
        assert!(!is_of_one_type("integer", "bigint"));
        assert!(!is_of_one_type(
            "timestamp(3) without time zone",
            "timestamp with time zone"
        ));
        assert!(is_of_one_type("character varying(3)", "text"));
        assert!(is_of_one_type("numeric(3,1)", "numeric"));
        assert_eq!(additions("t", &["a"], &theirs, &ours), None);
    }

    #[test]
    fn a_table_without_rows_takes_any_shape() {
        let mut kept = column("kept", "integer");
        kept.not_null = true;
        let mut new = column("new", "integer");
        new.filled = "DEFAULT 7".to_owned();
        new.not_null = true;
        let ours = [column("a", "integer"), kept];
        let theirs = [column("a", "character(3)"), new];
        assert_eq!(
            differences("t", &theirs, &ours),
            [
                "ALTER TABLE t ALTER COLUMN \"a\" DROP DEFAULT",
                "ALTER TABLE t ALTER COLUMN \"a\" TYPE character(3) USING NULL::character(3)",
                "ALTER TABLE t ADD COLUMN \"new\" integer DEFAULT 7 NOT NULL",
                "ALTER TABLE t ALTER COLUMN \"kept\" DROP NOT NULL",
            ]
        );
    }
}
