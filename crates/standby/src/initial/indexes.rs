//! Indexes and constraints that the primary's tables get and lose while they are followed.
//!
//! The log has no word of them. So the two catalogs are compared, and the backup notes which ones
//! the primary had when it was looked at last: one that is gone there goes here as well, one that
//! somebody dropped here is not made again, and what the backup has of its own is left alone.
//!
//! Primary keys are not among them: a table whose key changes is copied again. Nor is what a
//! partitioned table hands down to its partitions but their indexes.

use std::collections::BTreeMap;

use hindcast_pg::{Connection, Error, Row, quote_identifier, quote_literal};

use super::error::{InitialError, Side};
use crate::source::compared::TableName;

/// In the order in which they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Index,
    /// An index that allows a value once.
    Unique,
    /// `UNIQUE` or `EXCLUDE`.
    Key,
    Check,
    ForeignKey,
}

/// Which one it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    pub table: TableName,
    pub is_constraint: bool,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    pub kind: Kind,
    /// As its server writes it, without `NOT VALID`.
    pub sql: String,
    /// All rows are known to meet it; an index is complete.
    pub is_valid: bool,
}

pub type Definitions = BTreeMap<Id, Definition>;

/// What the primary had, in its words.
pub type Noted = BTreeMap<Id, String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Drop(Id),
    Make(Id, Definition),
    /// It is there already.
    Note(Id, String),
    /// It is neither there nor here.
    Forget(Id),
}

impl Step {
    /// Whether it is true only of rows that are the primary's at one moment: of several workers'
    /// transactions one may be ahead of another.
    pub fn needs_whole_state(&self) -> bool {
        matches!(self, Step::Make(_, made) if made.kind != Kind::Index)
    }

    pub fn id(&self) -> &Id {
        match self {
            Step::Drop(id) | Step::Make(id, _) | Step::Note(id, _) | Step::Forget(id) => id,
        }
    }
}

const DEFINITIONS: &str = "\
SELECT n.nspname, t.relname, false, c.relname, CASE WHEN i.indisunique THEN 'unique' ELSE 'index' END, \
       pg_catalog.pg_get_indexdef(i.indexrelid), i.indisvalid \
  FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid \
  JOIN pg_catalog.pg_class t ON t.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace \
 WHERE t.relkind = 'r' AND NOT i.indisprimary \
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conindid = i.indexrelid AND k.contype IN ('p', 'u', 'x')) \
 UNION ALL \
SELECT n.nspname, t.relname, true, k.conname, k.contype::text, pg_catalog.pg_get_constraintdef(k.oid), k.convalidated \
  FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class t ON t.oid = k.conrelid \
  JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace \
 WHERE t.relkind = 'r' AND k.contype IN ('u', 'x', 'c', 'f') AND k.conparentid = 0 AND k.conislocal";

/// What the tables of a server have. Its session writes names in full: see
/// [`reading`](super::reading).
fn definitions(connection: &mut Connection) -> Result<Definitions, Error> {
    let rows = connection.query(DEFINITIONS)?;
    Ok(rows.iter().map(definition).collect())
}

fn definition(row: &Row) -> (Id, Definition) {
    let kind = match row.text(4) {
        Some("index") => Kind::Index,
        Some("unique") => Kind::Unique,
        Some("c") => Kind::Check,
        Some("f") => Kind::ForeignKey,
        _ => Kind::Key,
    };
    let sql = row.string(5);
    let id = Id {
        table: (row.string(0), row.string(1)),
        is_constraint: row.is_true(2),
        name: row.string(3),
    };
    let definition = Definition {
        kind,
        sql: sql.trim_end_matches(" NOT VALID").to_owned(),
        is_valid: row.is_true(6),
    };
    (id, definition)
}

/// What there is to do with the tables for which `is_copied` is true, given what both servers say
/// now. A session on the backup is needed for what it has noted.
pub fn look(
    primary: &mut Connection,
    backup: &mut Connection,
    slot: &str,
    is_copied: impl Fn(&TableName) -> bool,
) -> Result<Vec<Step>, InitialError> {
    let failed = |side| InitialError::query(side, "see its indexes and constraints");
    let mut theirs = definitions(primary).map_err(failed(Side::Primary))?;
    let ours = definitions(backup).map_err(failed(Side::Backup))?;
    let noted = noted(backup, slot).map_err(failed(Side::Backup))?;
    // An index that the primary is about to make, or has failed to.
    theirs.retain(|id, it| is_copied(&id.table) && (it.is_valid || id.is_constraint));
    Ok(steps(&theirs, &ours, &noted))
}

/// What is another text once tables, indexes or constraints have changed. It costs little to ask,
/// where their definitions are thousands of texts that the server composes.
pub fn version(connection: &mut Connection) -> Result<String, Error> {
    let rows = connection.query(VERSION)?;
    Ok(rows.first().ok_or(Error::Closed)?.string(0))
}

const VERSION: &str = "\
SELECT pg_catalog.concat_ws('/', c.n, c.x, i.n, i.x, k.n, k.x) \
  FROM (SELECT count(*) AS n, sum(xmin::text::bigint) AS x FROM pg_catalog.pg_class WHERE relkind IN ('r', 'i')) c, \
       (SELECT count(*) AS n, sum(xmin::text::bigint) AS x FROM pg_catalog.pg_index) i, \
       (SELECT count(*) AS n, sum(xmin::text::bigint) AS x FROM pg_catalog.pg_constraint) k";

fn steps(theirs: &Definitions, ours: &Definitions, noted: &Noted) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut gone, mut make) = (Vec::new(), Vec::new());
    for id in noted.keys().filter(|id| !theirs.contains_key(id)) {
        match ours.get(id) {
            Some(there) => gone.push((id, there.kind)),
            None => steps.push(Step::Forget(id.clone())),
        }
    }
    for (id, wanted) in theirs {
        let known = noted.get(id);
        let is_noted = known == Some(&wanted.sql);
        match ours.get(id) {
            // Left by somebody who was ended while it was made.
            Some(there) if !there.is_valid && !id.is_constraint => {
                gone.push((id, there.kind));
                make.push((id, wanted));
            }
            // Another one of the name came in its place.
            Some(there) if known.is_some() && !is_noted && there.sql != wanted.sql => {
                gone.push((id, there.kind));
                make.push((id, wanted));
            }
            Some(_) if is_noted => {}
            Some(_) => steps.push(Step::Note(id.clone(), wanted.sql.clone())),
            // Somebody does not want it here.
            None if is_noted => {}
            None => make.push((id, wanted)),
        }
    }
    // What refers to another goes before it, and comes after it.
    gone.sort_by_key(|(_, kind)| std::cmp::Reverse(*kind));
    make.sort_by_key(|(_, wanted)| wanted.kind);
    steps.extend(gone.into_iter().map(|(id, _)| Step::Drop(id.clone())));
    let made = make.into_iter();
    steps.extend(made.map(|(id, wanted)| Step::Make(id.clone(), wanted.clone())));
    steps
}

/// Does a step on the backup, and notes it. Says what was done, for people.
pub fn take(backup: &mut Connection, slot: &str, step: &Step) -> Result<Option<String>, Error> {
    let id = step.id();
    let table = format!(
        "{}.{}",
        quote_identifier(&id.table.0),
        quote_identifier(&id.table.1)
    );
    let name = quote_identifier(&id.name);
    let statements = match step {
        Step::Note(..) | Step::Forget(_) => Vec::new(),
        Step::Drop(_) => vec![match id.is_constraint {
            true => format!("ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name}"),
            false => {
                let schema = quote_identifier(&id.table.0);
                format!("DROP INDEX IF EXISTS {schema}.{name}")
            }
        }],
        Step::Make(_, made) => making(&table, &name, made),
    };
    for statement in &statements {
        backup.execute(statement)?;
    }
    let noted = match step {
        Step::Drop(id) | Step::Forget(id) => forget(slot, id),
        Step::Make(id, Definition { sql, .. }) | Step::Note(id, sql) => note(slot, id, sql),
    };
    backup.execute(&noted)?;
    Ok(statements.into_iter().next())
}

fn making(table: &str, name: &str, made: &Definition) -> Vec<String> {
    let sql = &made.sql;
    let add = format!("ALTER TABLE {table} ADD CONSTRAINT {name} {sql}");
    match made.kind {
        // Nobody who writes waits for it.
        Kind::Index => vec![sql.replacen("CREATE INDEX ", "CREATE INDEX CONCURRENTLY ", 1)],
        Kind::Unique => vec![sql.clone()],
        Kind::Key => vec![add],
        Kind::Check | Kind::ForeignKey if made.is_valid => vec![add],
        Kind::Check | Kind::ForeignKey => vec![format!("{add} NOT VALID")],
    }
}

fn noted(backup: &mut Connection, slot: &str) -> Result<Noted, Error> {
    let rows = backup.query(&format!(
        "SELECT schema_name, table_name, is_constraint, name, definition FROM hindcast.standby_indexes WHERE slot = {}",
        quote_literal(slot)
    ))?;
    let one = |row: &Row| {
        let id = Id {
            table: (row.string(0), row.string(1)),
            is_constraint: row.is_true(2),
            name: row.string(3),
        };
        (id, row.string(4))
    };
    Ok(rows.iter().map(one).collect())
}

fn note(slot: &str, id: &Id, sql: &str) -> String {
    format!(
        "INSERT INTO hindcast.standby_indexes (slot, schema_name, table_name, is_constraint, name, definition) \
         VALUES ({}, {}, {}, {}, {}, {}) \
         ON CONFLICT (slot, schema_name, table_name, is_constraint, name) DO UPDATE SET definition = excluded.definition",
        quote_literal(slot),
        quote_literal(&id.table.0),
        quote_literal(&id.table.1),
        id.is_constraint,
        quote_literal(&id.name),
        quote_literal(sql)
    )
}

fn forget(slot: &str, id: &Id) -> String {
    format!(
        "DELETE FROM hindcast.standby_indexes WHERE slot = {} AND schema_name = {} AND table_name = {} AND is_constraint = {} AND name = {}",
        quote_literal(slot),
        quote_literal(&id.table.0),
        quote_literal(&id.table.1),
        id.is_constraint,
        quote_literal(&id.name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> Id {
        Id {
            table: ("public".to_owned(), "t".to_owned()),
            is_constraint: false,
            name: name.to_owned(),
        }
    }

    fn all(these: &[(&str, &str)]) -> Definitions {
        let one = |&(name, sql): &(&str, &str)| {
            let made = Definition {
                kind: match sql.contains("UNIQUE") {
                    true => Kind::Unique,
                    false => Kind::Index,
                },
                sql: sql.to_owned(),
                is_valid: !sql.contains('?'),
            };
            (id(name), made)
        };
        these.iter().map(one).collect()
    }

    fn said(theirs: &[(&str, &str)], ours: &[(&str, &str)], noted: &[(&str, &str)]) -> String {
        let noted = noted.iter();
        let noted = noted.map(|&(name, sql)| (id(name), sql.to_owned()));
        let steps = steps(&all(theirs), &all(ours), &noted.collect());
        let one = |step: &Step| match step {
            Step::Drop(id) => format!("drop {}", id.name),
            Step::Make(id, made) => format!("make {} {}", id.name, made.sql),
            Step::Note(id, sql) => format!("note {} {sql}", id.name),
            Step::Forget(id) => format!("forget {}", id.name),
        };
        steps.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn what_the_primary_got_is_made_and_what_it_lost_goes() {
        assert_eq!(
            said(&[("a", "UNIQUE 1"), ("b", "2")], &[], &[]),
            "make b 2, make a UNIQUE 1"
        );
        assert_eq!(said(&[], &[("a", "1")], &[("a", "1")]), "drop a");
        assert_eq!(said(&[], &[], &[("a", "1")]), "forget a");
        assert_eq!(said(&[("a", "1")], &[("a", "1")], &[]), "note a 1");
        assert_eq!(said(&[("a", "1")], &[("a", "1")], &[("a", "1")]), "");
    }

    #[test]
    fn what_the_backup_has_of_its_own_or_does_not_want_is_left_alone() {
        assert_eq!(said(&[], &[("own", "1")], &[]), "");
        assert_eq!(said(&[("a", "1")], &[], &[("a", "1")]), "");
    }

    #[test]
    fn what_was_made_anew_is_made_anew() {
        let now = [("a", "2")];
        assert_eq!(said(&now, &[("a", "1")], &[("a", "1")]), "drop a, make a 2");
        // It was the same change on both sides, as of a column's name.
        assert_eq!(said(&now, &[("a", "2")], &[("a", "1")]), "note a 2");
        // Another version of the server writes it in other words.
        assert_eq!(said(&[("a", "1")], &[("a", "(1)")], &[("a", "1")]), "");
        assert_eq!(said(&now, &[("a", "2?")], &[]), "drop a, make a 2");
    }
}
