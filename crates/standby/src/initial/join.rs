//! The copy of tables that appeared on the primary while it was followed.
//!
//! All of it is one transaction on the backup: readers see the tables from the state on that the
//! backup has then, and a copy that is interrupted leaves nothing.

use std::collections::HashSet;

use hindcast_pg::{Connection, DatabaseUrl, Lsn, Row, quote_identifier};

use super::copy::{analyze, as_of, watched, write, writing};
use super::dump::{self, Schema};
use super::error::{InitialError, Side};
use super::workers::{self, Source, at_snapshot};
use super::{reshape, schema, state};
use crate::source::ReplicatedTable;
use crate::source::compared::{Copied, TableName};
use crate::status::Control;

/// A copy into a backup that has applied everything before `consistent_point`, and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Join<'a> {
    pub source: Source<'a>,
    pub backup: &'a DatabaseUrl,
    pub slot: &'a str,
    /// Tables that hold what the primary's held, and may be emptied and changed.
    pub ours: &'a Copied,
    /// Those that have all rows, and only another name than they had.
    pub renamed: &'a [ReplicatedTable],
    /// Those that have all rows, and lack columns.
    pub outgrown: &'a [ReplicatedTable],
    /// What the source's snapshot is the state at.
    pub consistent_point: Lsn,
    /// Make tables that the backup has not.
    pub make_schema: bool,
}

/// What is to be done with which table.
struct Plan {
    renames: Vec<(TableName, TableName)>,
    /// How those are made that the backup has not.
    schema: Schema,
    /// Those that are there are emptied, and get the primary's shape.
    ours: Vec<ReplicatedTable>,
    /// They were made by others, and must be empty.
    others: Vec<ReplicatedTable>,
    all: Vec<ReplicatedTable>,
}

/// How long is waited for who reads or writes a table on the backup.
const PATIENTLY: &str = "SET LOCAL lock_timeout = '10s'";
/// The same for the whole of a table of which a partition is locked already. Who reads the whole
/// locks it first and the partition then: that would be a deadlock, for which Postgres ends either
/// after a second (`deadlock_timeout`).
const BRIEFLY: &str = "SET LOCAL lock_timeout = '300ms'";

/// Copies the tables as of the snapshot, and makes those that the backup has not.
pub fn join(
    join: &Join<'_>,
    wanted: &[ReplicatedTable],
    control: &Control,
) -> Result<(), InitialError> {
    let mut primary = at_snapshot(&join.source)?;
    let mut session = writing(join.backup)?;
    let plan = plan(join, wanted, &mut primary, &mut session, control)?;
    let failed = InitialError::query(Side::Backup, "copy tables that are new");
    watched(&mut session, control, |session| {
        session
            .execute(&format!(
                "BEGIN; SET LOCAL synchronous_commit = local; {PATIENTLY}"
            ))
            .map_err(&failed)?;
        make_fit(join, &plan, &mut primary, session)?;
        grow(join, &mut primary, session)?;
        if !plan.all.is_empty() {
            copy(join, &plan, session, control)?;
        }
        session.execute("COMMIT").map(drop).map_err(&failed)
    })?;
    watched(&mut session, control, |session| analyze(session, &plan.all))
}

fn plan(
    join: &Join<'_>,
    wanted: &[ReplicatedTable],
    primary: &mut Connection,
    session: &mut Connection,
    control: &Control,
) -> Result<Plan, InitialError> {
    let all = as_of(primary, wanted)?;
    let renamed = as_of(primary, join.renamed)?;
    let renames = reshape::renames(join.ours, renamed.iter().chain(&all));
    let mut there =
        relations(session).map_err(InitialError::query(Side::Backup, "see its tables"))?;
    for (old, _) in &renames {
        there.remove(&sql_name(&old.0, &old.1));
    }
    there.extend(renames.iter().map(|(_, new)| sql_name(&new.0, &new.1)));
    let is_there = |table: &ReplicatedTable| there.contains(&table.quoted());
    let (old, new): (Vec<_>, Vec<_>) = all.iter().cloned().partition(is_there);
    let schema = match new.is_empty() {
        true => Schema::default(),
        false if !join.make_schema => {
            let differences = new.iter().map(|table| format!("{table} is missing"));
            return Err(InitialError::Different {
                differences: differences.collect(),
            });
        }
        false => definitions(join, primary, &new, &there, control)?,
    };
    let is_ours = |table: &ReplicatedTable| {
        let name = (table.schema.clone(), table.name.clone());
        join.ours.contains_key(&name) || renames.iter().any(|(_, new)| *new == name)
    };
    let (ours, others) = old.into_iter().partition(is_ours);
    Ok(Plan {
        renames,
        schema,
        ours,
        others,
        all,
    })
}

/// Makes the tables that are to be copied, or empties them and gives them the primary's shape.
fn make_fit(
    join: &Join<'_>,
    plan: &Plan,
    primary: &mut Connection,
    session: &mut Connection,
) -> Result<(), InitialError> {
    if !plan.renames.is_empty() {
        let rename = state::rename(join.slot, &plan.renames);
        let failed = InitialError::query(Side::Backup, "rename tables");
        session.execute(&rename).map_err(failed)?;
    }
    dump::execute(session, &plan.schema.before_data)?;
    for table in &plan.ours {
        empty(session, table)?;
    }
    for table in plan.ours.iter().filter(|_| join.make_schema) {
        let statements = reshape::of_empty(primary, session, table)?;
        if !statements.is_empty() {
            let statements = [
                &[BRIEFLY.to_owned()],
                &statements[..],
                &[PATIENTLY.to_owned()],
            ];
            dump::execute(session, &statements.concat())?;
        }
    }
    schema::must_be_empty(session, &plan.others)?;
    let old = [&plan.ours[..], &plan.others[..]].concat();
    if !old.is_empty() {
        schema::compare(session, &old, true)?;
    }
    Ok(())
}

/// Gives tables whose rows stay the columns that they have on the primary. Everything from before
/// is there, and nothing else: what rows have in a column that is new is what the catalog says.
fn grow(
    join: &Join<'_>,
    primary: &mut Connection,
    session: &mut Connection,
) -> Result<(), InitialError> {
    for table in join.outgrown {
        // What has changed once more is looked at once more.
        let statements = reshape::grown(primary, session, table, join.ours)?.unwrap_or_default();
        if statements.is_empty() {
            continue;
        }
        let patiently = [PATIENTLY.to_owned()];
        let briefly = [BRIEFLY.to_owned()];
        dump::execute(session, &[&briefly[..], &statements, &patiently].concat())?;
    }
    Ok(())
}

/// The rows, then what comes after them.
fn copy(
    join: &Join<'_>,
    plan: &Plan,
    session: &mut Connection,
    control: &Control,
) -> Result<(), InitialError> {
    let source = Source {
        workers: 1,
        ..join.source
    };
    let interrupter = session.interrupter();
    let takers = vec![(&mut *session, Some(interrupter))];
    workers::run(
        &source,
        &plan.all,
        takers,
        control,
        |session, table, piece| write(session, table, piece),
    )?;
    let left_out = dump::execute(session, &plan.schema.after_data)?;
    control.note(&left_out);
    session
        .execute(&state::join(join.slot, &plan.all, join.consistent_point))
        .map(drop)
        .map_err(InitialError::query(Side::Backup, "note what was copied"))
}

/// Removes a table's rows, in the way that others allow which refer to it.
fn empty(session: &mut Connection, table: &ReplicatedTable) -> Result<(), InitialError> {
    let failed = InitialError::query(Side::Backup, "remove the rows of a table");
    let truncate = format!("TRUNCATE ONLY {}", table.quoted());
    match dump::attempt(session, &truncate).map_err(&failed)? {
        // Foreign keys refer to it.
        Err(error) if error.code() == Some("0A000") => {
            let delete = format!("DELETE FROM ONLY {}", table.quoted());
            session.execute(&delete).map(drop).map_err(&failed)
        }
        truncated => truncated.map_err(&failed),
    }
}

/// Tables of a database, partitioned ones among them, as SQL writes them.
fn relations(backup: &mut Connection) -> Result<HashSet<String>, hindcast_pg::Error> {
    let rows = backup.query(
        "SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
          WHERE c.relkind IN ('r', 'p')",
    )?;
    Ok(rows.iter().map(|row| quoted(row, 0)).collect())
}

/// Schema and name in these columns, as SQL writes it.
fn quoted(row: &Row, column: usize) -> String {
    sql_name(&row.string(column), &row.string(column + 1))
}

fn sql_name(schema: &str, name: &str) -> String {
    format!("{}.{}", quote_identifier(schema), quote_identifier(name))
}

/// Tables `c` with those that they are partitions of, those first.
const TREE: &str = "\
SELECT n.nspname, c.relname, pn.nspname, p.relname, pg_catalog.pg_get_expr(c.relpartbound, c.oid), pg_catalog.pg_get_partkeydef(c.oid), c.oid \
  FROM (SELECT o FROM unnest({oids}) AS o UNION SELECT a.relid FROM unnest({oids}) AS o, pg_catalog.pg_partition_ancestors(o) AS a) AS tree \
  JOIN pg_catalog.pg_class c ON c.oid = tree.o JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
  LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid AND c.relispartition \
  LEFT JOIN pg_catalog.pg_class p ON p.oid = i.inhparent LEFT JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace \
 ORDER BY (SELECT count(*) FROM pg_catalog.pg_partition_ancestors(c.oid)), n.nspname, c.relname";

/// What a partition has that its parent gives it not.
const OWN: &str = "\
SELECT pg_catalog.pg_get_indexdef(i.indexrelid) FROM pg_catalog.pg_index i \
 WHERE i.indrelid = {oid} AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhrelid = i.indexrelid) \
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conindid = i.indexrelid AND k.conrelid = i.indrelid) \
 UNION ALL \
SELECT pg_catalog.format('ALTER TABLE ONLY %s ADD CONSTRAINT %I %s', k.conrelid::pg_catalog.regclass, k.conname, pg_catalog.pg_get_constraintdef(k.oid)) \
  FROM pg_catalog.pg_constraint k WHERE k.conrelid = {oid} AND k.conparentid = 0 AND k.conislocal AND k.contype IN ('p', 'u', 'x', 'c', 'f')";

/// How tables are made that a backup has not. Whose parent it has is made as a partition of that;
/// the rest, as `pg_dump` writes it.
fn definitions(
    join: &Join<'_>,
    primary: &mut Connection,
    new: &[ReplicatedTable],
    there: &HashSet<String>,
    control: &Control,
) -> Result<Schema, InitialError> {
    let failed = InitialError::query(Side::Primary, "see how its tables are made");
    let oids: Vec<_> = new.iter().map(|table| table.oid.to_string()).collect();
    let oids = format!("ARRAY[{}]::oid[]", oids.join(", "));
    let tree = primary
        .query(&TREE.replace("{oids}", &oids))
        .map_err(&failed)?;
    let mut made = Schema::default();
    let mut there = there.clone();
    let mut dumped = Vec::new();
    for row in tree.iter() {
        let name = quoted(row, 0);
        if there.contains(&name) {
            continue;
        }
        let schema = quote_identifier(&row.string(0));
        made.before_data
            .push(format!("CREATE SCHEMA IF NOT EXISTS {schema}"));
        let parent = row.text(2).map(|_| quoted(row, 2));
        let Some(parent) = parent.filter(|parent| there.contains(parent)) else {
            dumped.push(name);
            continue;
        };
        let parted = row.text(5).map(|key| format!(" PARTITION BY {key}"));
        made.before_data.push(format!(
            "CREATE TABLE {name} PARTITION OF {parent} {}{}",
            row.string(4),
            parted.unwrap_or_default()
        ));
        let own = primary
            .query(&OWN.replace("{oid}", &row.string(6)))
            .map_err(&failed)?;
        made.after_data.extend(own.iter().map(|row| row.string(0)));
        there.insert(name);
    }
    if !dumped.is_empty() {
        let (url, snapshot) = (join.source.primary, join.source.snapshot);
        let version = primary.server_version();
        let rest = Schema::dump(url, version, snapshot, &dumped, control)?;
        made.before_data.extend(rest.before_data);
        made.after_data.extend(rest.after_data);
    }
    Ok(made)
}
