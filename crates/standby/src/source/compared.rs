//! The primary's tables of today beside those that a backup has.

use std::collections::HashMap;

use hindcast_pg::{Connection, Error};

use super::publication::published;
use super::shape::Shape;
use super::slot::Names;
use super::tables::{ReplicatedTable, TableColumn, TableFilter, tables};

/// The tables whose rows a backup has, by schema and name, with the shape that the primary's had
/// then; `None` if nobody noted it.
pub type Copied = HashMap<TableName, Option<Shape>>;

/// Schema and name.
pub type TableName = (String, String);

/// The primary's tables of today, those that are wanted, beside a backup's.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// They are not published, or not copied.
    pub missing: Vec<ReplicatedTable>,
    /// They may have other rows than the log has made.
    pub altered: Vec<ReplicatedTable>,
    /// They have another name, and no other rows.
    pub renamed: Vec<ReplicatedTable>,
    /// They have another shape, and no other rows.
    pub reshaped: Vec<ReplicatedTable>,
    /// So have these, with columns that the backup's have not: see [`Compared::look_at_columns`].
    pub outgrown: Vec<ReplicatedTable>,
    /// How the columns differ, by the primary's oid.
    pub differences: HashMap<u32, String>,
    /// They are as they were.
    pub same: Vec<ReplicatedTable>,
    /// Tables that are not followed, and should not be, or cannot.
    pub left_out: Vec<LeftOut>,
}

/// A table of the primary that a backup is not to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub table: String,
    pub why: &'static str,
}

impl LeftOut {
    /// By who follows. The rest cannot be followed.
    pub fn is_chosen(&self) -> bool {
        matches!(self.why, UNWANTED | OTHER_ROWS)
    }
}

/// Why most of them are left out.
const UNWANTED: &str = "not wanted by --table and --exclude-table";

const OTHER_ROWS: &str = "not wanted by --row-filter";

/// The name that a table had when it was copied, if it is there under another one.
pub fn former_name<'a>(copied: &'a Copied, table: &ReplicatedTable) -> Option<&'a TableName> {
    let is_it = |shape: &Option<Shape>| shape.as_ref().is_some_and(|it| it.oid == table.oid);
    let name = copied
        .iter()
        .find(|(_, shape)| is_it(shape))
        .map(|(name, _)| name);
    name.filter(|(schema, name)| (schema, name) != (&table.schema, &table.name))
}

impl Compared {
    /// Looks which tables have columns now that the backup's have not, or have with another type.
    /// The log says so with the first row that comes, and there may be none.
    pub fn look_at_columns(&mut self, backup: &mut Connection) -> Result<(), Error> {
        if self.reshaped.is_empty() {
            return Ok(());
        }
        let there = tables(backup, &TableFilter::default())?.tables;
        let there: HashMap<_, _> = (there.iter())
            .map(|table| ((&table.schema, &table.name), &table.columns))
            .collect();
        let differences = &mut self.differences;
        let is_outgrown = |table: &mut ReplicatedTable| {
            let ours = there.get(&(&table.schema, &table.name));
            let difference = ours.and_then(|ours| difference(&table.columns, ours));
            difference.is_some_and(|what| {
                differences.insert(table.oid, what);
                true
            })
        };
        let outgrown = self.reshaped.extract_if(.., is_outgrown);
        self.outgrown.extend(outgrown);
        Ok(())
    }

    /// Names of the tables that a backup lacks, or may have with other rows.
    pub fn lacking(&self) -> Vec<String> {
        let tables = [&self.missing, &self.altered, &self.renamed, &self.outgrown];
        tables
            .into_iter()
            .flatten()
            .map(ToString::to_string)
            .collect()
    }
}

/// What a table of the backup has not that the primary's has.
fn difference(theirs: &[TableColumn], ours: &[TableColumn]) -> Option<String> {
    theirs.iter().find_map(|column| {
        let (name, theirs) = (&column.name, &column.type_name);
        match ours.iter().find(|own| own.name == *name) {
            None => Some(format!("column {name} is missing")),
            Some(own) if own.type_name != *theirs => Some(format!(
                "column {name} is {} and the primary's is {theirs}",
                own.type_name
            )),
            Some(_) => None,
        }
    })
}

pub fn compare(
    primary: &mut Connection,
    names: &Names,
    filter: &TableFilter,
    copied: &Copied,
) -> Result<Compared, Error> {
    let published = published(primary, &names.publication)?;
    let mut compared = Compared::default();
    let found = tables(primary, filter)?;
    let left_out = |table, why| LeftOut { table, why };
    for (oid, schema, name) in found.unwanted {
        let table = format!("{schema}.{name}");
        // What is not wanted any more, and was, is followed all the same.
        if !copied.contains_key(&(schema, name)) || !published.has_some(oid) {
            compared.left_out.push(left_out(table, UNWANTED));
        }
    }
    let impossible = found.left_out.into_iter();
    (compared.left_out).extend(impossible.map(|(table, why)| left_out(table, why)));
    for table in found.tables {
        if let Some(rows) = &table.rows {
            let others = format!("rows of {table} without {rows}");
            compared.left_out.push(left_out(others, OTHER_ROWS));
        }
        let name = (table.schema.clone(), table.name.clone());
        let former = former_name(copied, &table);
        let before = copied.get(former.unwrap_or(&name));
        let is_published = published.has(&table);
        match before {
            Some(before) if is_published => match before {
                Some(before) if before.may_differ(&table.shape) => compared.altered.push(table),
                Some(_) if former.is_some() => compared.renamed.push(table),
                Some(before) if before.followed_by(&table.shape) != *before => {
                    compared.reshaped.push(table);
                }
                _ => compared.same.push(table),
            },
            _ => compared.missing.push(table),
        }
    }
    Ok(compared)
}
