//! Indexes and constraints that the primary's tables get and lose while they are followed.
//!
//! The log has no word of them. So the two catalogs are compared, and the backup notes which ones
//! the primary had when it was looked at last: one that is gone there goes here as well, one that
//! somebody dropped here is not made again, and what the backup has of its own is left alone.
//!
//! That a column is `NOT NULL` is one of them. Primary keys are not: a table whose key changes is
//! copied again. What a partitioned table hands down to its partitions is made with its own, but
//! indexes, which are made for each partition first and then found by that of the whole.

use std::collections::{BTreeMap, BTreeSet};

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
    /// Behind the checks: one that says the same spares a look at all rows.
    NotNull,
    ForeignKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    Index,
    Constraint,
    /// That a column is `NOT NULL`; it is called as the column.
    NotNull,
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Index => "index",
            Self::Constraint => "constraint",
            Self::NotNull => "NOT NULL of column",
        })
    }
}

/// Which one it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    pub table: TableName,
    pub what: What,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    pub kind: Kind,
    /// As its server writes it, without `NOT VALID`.
    pub sql: String,
    /// All rows are known to meet it; an index is complete.
    pub is_valid: bool,
    /// Its table is a partitioned one.
    pub is_of_whole: bool,
}

pub type Definitions = BTreeMap<Id, Definition>;

/// What the primary had, in its words.
pub type Noted = BTreeMap<Id, String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Drop(Id),
    Make(Id, Definition),
    /// All rows meet a constraint that they did not have to meet when it was made.
    Validate(Id, String),
    /// It is there already.
    Note(Id, String),
    /// It is neither there nor here.
    Forget(Id),
}

impl Step {
    /// Whether it is true only of rows that are the primary's at one moment: of several workers'
    /// transactions one may be ahead of another. Or whether it keeps writers out of all partitions,
    /// if only for a moment.
    pub fn needs_whole_state(&self) -> bool {
        match self {
            Step::Make(_, made) => made.kind != Kind::Index || made.is_of_whole,
            Step::Validate(..) => true,
            Step::Drop(_) | Step::Note(..) | Step::Forget(_) => false,
        }
    }

    pub fn id(&self) -> &Id {
        match self {
            Step::Drop(id) | Step::Forget(id) => id,
            Step::Make(id, _) | Step::Validate(id, _) | Step::Note(id, _) => id,
        }
    }
}

const DEFINITIONS: &str = "\
SELECT n.nspname, t.relname, 'index', c.relname, CASE WHEN i.indisunique THEN 'unique' ELSE 'index' END, \
       pg_catalog.pg_get_indexdef(i.indexrelid), i.indisvalid, t.relkind = 'p' \
  FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid \
  JOIN pg_catalog.pg_class t ON t.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace \
 WHERE (t.relkind = 'r' OR t.relkind = 'p' AND NOT c.relispartition) AND NOT i.indisprimary \
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conindid = i.indexrelid AND k.contype IN ('p', 'u', 'x')) \
 UNION ALL \
SELECT n.nspname, t.relname, 'constraint', k.conname, k.contype::text, pg_catalog.pg_get_constraintdef(k.oid), k.convalidated, t.relkind = 'p' \
  FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class t ON t.oid = k.conrelid \
  JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace \
 WHERE t.relkind IN ('r', 'p') AND k.contype IN ('u', 'x', 'c', 'f') AND k.conparentid = 0 AND k.conislocal \
 UNION ALL \
SELECT n.nspname, t.relname, 'column', a.attname, 'n', 'NOT NULL', true, t.relkind = 'p' \
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class t ON t.oid = a.attrelid \
  JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace \
 WHERE t.relkind IN ('r', 'p') AND a.attnotnull AND a.attnum > 0 AND NOT a.attisdropped AND a.attidentity = '' \
   AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' \
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = t.oid AND i.indisprimary AND a.attnum = ANY (i.indkey::int2[]))";

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
        Some("n") => Kind::NotNull,
        _ => Kind::Key,
    };
    let sql = row.string(5);
    let id = Id {
        table: (row.string(0), row.string(1)),
        what: match row.text(2) {
            Some("index") => What::Index,
            Some("column") => What::NotNull,
            _ => What::Constraint,
        },
        name: row.string(3),
    };
    let definition = Definition {
        kind,
        sql: sql.trim_end_matches(" NOT VALID").to_owned(),
        is_valid: row.is_true(6),
        is_of_whole: row.is_true(7),
    };
    (id, definition)
}

const PARTITIONS: &str = "\
SELECT wn.nspname, w.relname, n.nspname, c.relname \
  FROM pg_catalog.pg_class w JOIN pg_catalog.pg_namespace wn ON wn.oid = w.relnamespace, \
       LATERAL pg_catalog.pg_partition_tree(w.oid) p JOIN pg_catalog.pg_class c ON c.oid = p.relid \
       JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
 WHERE w.relkind = 'p' AND p.isleaf";

/// The partitioned tables of which some partition is copied.
fn wholes(
    connection: &mut Connection,
    is_copied: impl Fn(&TableName) -> bool,
) -> Result<BTreeSet<TableName>, Error> {
    let rows = connection.query(PARTITIONS)?;
    let copied = rows
        .iter()
        .filter(|row| is_copied(&(row.string(2), row.string(3))));
    Ok(copied.map(|row| (row.string(0), row.string(1))).collect())
}

/// Whether the backup has what this is made of: its table, and the column that is to be `NOT NULL`.
fn can_be_made(backup: &mut Connection, id: &Id) -> Result<bool, Error> {
    let table = format!(
        "{}.{}",
        quote_identifier(&id.table.0),
        quote_identifier(&id.table.1)
    );
    let column = match id.what {
        What::NotNull => format!("AND attname = {}", quote_literal(&id.name)),
        _ => String::new(),
    };
    let rows = backup.query(&format!(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = pg_catalog.to_regclass({}) AND NOT attisdropped {column})",
        quote_literal(&table)
    ))?;
    Ok(rows.first().is_some_and(|row| row.is_true(0)))
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
    let wholes = match theirs.values().any(|it| it.is_of_whole) {
        true => wholes(primary, &is_copied).map_err(failed(Side::Primary))?,
        false => BTreeSet::new(),
    };
    let is_followed = |id: &Id| is_copied(&id.table) || wholes.contains(&id.table);
    // An index that the primary is about to make, or has failed to.
    theirs.retain(|id, it| is_followed(id) && (it.is_valid || id.what != What::Index));
    let mut possible = Vec::new();
    for step in steps(&theirs, &ours, &noted) {
        // A new column comes with its first row.
        let is_possible = match &step {
            Step::Make(id, _) => can_be_made(backup, id).map_err(failed(Side::Backup))?,
            _ => true,
        };
        possible.extend(is_possible.then_some(step));
    }
    Ok(possible)
}

/// What is another text once tables, indexes or constraints have changed. It costs little to ask,
/// where their definitions are thousands of texts that the server composes.
pub fn version(connection: &mut Connection) -> Result<String, Error> {
    let rows = connection.query(VERSION)?;
    Ok(rows.first().ok_or(Error::Closed)?.string(0))
}

const VERSION: &str = "\
SELECT pg_catalog.concat_ws('/', c.n, c.x, i.n, i.x, k.n, k.x, a.n, a.x) \
  FROM (SELECT count(*) AS n, sum(xmin::text::bigint) AS x FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p', 'i', 'I')) c, \
       (SELECT count(*) AS n, sum(xmin::text::bigint) AS x FROM pg_catalog.pg_attribute WHERE attnotnull AND attnum > 0) a, \
       (SELECT count(*) AS n, sum(xmin::text::bigint) AS x FROM pg_catalog.pg_index) i, \
       (SELECT count(*) AS n, sum(xmin::text::bigint) AS x FROM pg_catalog.pg_constraint) k";

fn steps(theirs: &Definitions, ours: &Definitions, noted: &Noted) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut gone, mut make) = (Vec::new(), Vec::new());
    for id in noted.keys().filter(|id| !theirs.contains_key(id)) {
        match ours.get(id) {
            Some(there) => gone.push((id, there)),
            None => steps.push(Step::Forget(id.clone())),
        }
    }
    for (id, wanted) in theirs {
        let known = noted.get(id);
        let is_noted = known == Some(&wanted.sql);
        match ours.get(id) {
            // Left by somebody who was ended while it was made.
            Some(there) if !there.is_valid && id.what == What::Index && !there.is_of_whole => {
                gone.push((id, there));
                make.push((id, wanted));
            }
            // Another one of the name came in its place.
            Some(there) if known.is_some() && !is_noted && there.sql != wanted.sql => {
                gone.push((id, there));
                make.push((id, wanted));
            }
            Some(there)
                if is_noted
                    && wanted.is_valid
                    && !there.is_valid
                    && id.what == What::Constraint =>
            {
                steps.push(Step::Validate(id.clone(), wanted.sql.clone()));
            }
            Some(_) if is_noted => {}
            Some(_) => steps.push(Step::Note(id.clone(), wanted.sql.clone())),
            // Somebody does not want it here.
            None if is_noted => {}
            None => make.push((id, wanted)),
        }
    }
    // What refers to another goes before it, and comes after it. Partitions may not give up what
    // the whole has, and their indexes are found when its own is made.
    gone.sort_by_key(|(_, it)| std::cmp::Reverse((it.is_of_whole, it.kind)));
    make.sort_by_key(|(_, wanted)| (wanted.kind, wanted.is_of_whole));
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
        Step::Drop(_) => vec![match id.what {
            What::Constraint => format!("ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name}"),
            What::NotNull => format!("ALTER TABLE {table} ALTER COLUMN {name} DROP NOT NULL"),
            What::Index => {
                let schema = quote_identifier(&id.table.0);
                format!("DROP INDEX IF EXISTS {schema}.{name}")
            }
        }],
        Step::Validate(..) => vec![format!("ALTER TABLE {table} VALIDATE CONSTRAINT {name}")],
        Step::Make(_, made) => making(&table, &name, made),
    };
    for statement in &statements {
        backup.execute(statement)?;
    }
    let noted = match step {
        Step::Drop(id) | Step::Forget(id) => forget(slot, id),
        Step::Make(id, Definition { sql, .. }) | Step::Validate(id, sql) | Step::Note(id, sql) => {
            note(slot, id, sql)
        }
    };
    backup.execute(&noted)?;
    Ok(statements.into_iter().next())
}

fn making(table: &str, name: &str, made: &Definition) -> Vec<String> {
    let sql = &made.sql;
    let add = format!("ALTER TABLE {table} ADD CONSTRAINT {name} {sql}");
    match made.kind {
        // Nobody who writes waits for it.
        Kind::Index if !made.is_of_whole => {
            vec![sql.replacen("CREATE INDEX ", "CREATE INDEX CONCURRENTLY ", 1)]
        }
        // Indexes of the partitions that are like it become parts of it.
        Kind::Index | Kind::Unique => vec![sql.replacen(" ON ONLY ", " ON ", 1)],
        Kind::NotNull => vec![format!(
            "ALTER TABLE {table} ALTER COLUMN {name} SET NOT NULL"
        )],
        Kind::Key => vec![add],
        Kind::Check | Kind::ForeignKey if made.is_valid => vec![add],
        Kind::Check | Kind::ForeignKey => vec![format!("{add} NOT VALID")],
    }
}

fn noted(backup: &mut Connection, slot: &str) -> Result<Noted, Error> {
    let rows = backup.query(&format!(
        "SELECT schema_name, table_name, is_constraint, name, definition, is_column FROM hindcast.standby_indexes WHERE slot = {}",
        quote_literal(slot)
    ))?;
    let one = |row: &Row| {
        let id = Id {
            table: (row.string(0), row.string(1)),
            what: match (row.is_true(2), row.is_true(5)) {
                (_, true) => What::NotNull,
                (true, _) => What::Constraint,
                (false, _) => What::Index,
            },
            name: row.string(3),
        };
        (id, row.string(4))
    };
    Ok(rows.iter().map(one).collect())
}

fn note(slot: &str, id: &Id, sql: &str) -> String {
    format!(
        "INSERT INTO hindcast.standby_indexes (slot, schema_name, table_name, is_constraint, is_column, name, definition) \
         VALUES ({}, {}, {}, {}, {}, {}, {}) \
         ON CONFLICT (slot, schema_name, table_name, is_constraint, is_column, name) DO UPDATE SET definition = excluded.definition",
        quote_literal(slot),
        quote_literal(&id.table.0),
        quote_literal(&id.table.1),
        id.what == What::Constraint,
        id.what == What::NotNull,
        quote_literal(&id.name),
        quote_literal(sql)
    )
}

fn forget(slot: &str, id: &Id) -> String {
    format!(
        "DELETE FROM hindcast.standby_indexes WHERE slot = {} AND schema_name = {} AND table_name = {} AND is_constraint = {} AND is_column = {} AND name = {}",
        quote_literal(slot),
        quote_literal(&id.table.0),
        quote_literal(&id.table.1),
        id.what == What::Constraint,
        id.what == What::NotNull,
        quote_literal(&id.name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> Id {
        Id {
            table: ("public".to_owned(), "t".to_owned()),
            what: match name.chars().next() {
                Some('k') => What::Constraint,
                _ => What::Index,
            },
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
                is_of_whole: sql.contains("WHOLE"),
            };
            let made = Definition {
                sql: made.sql.replace('?', ""),
                ..made
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
            Step::Validate(id, _) => format!("validate {}", id.name),
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

    #[test]
    fn a_constraint_is_validated_when_the_primarys_is() {
        let (valid, not_yet) = ([("k", "1")], [("k", "1?")]);
        assert_eq!(said(&valid, &not_yet, &valid), "validate k");
        assert_eq!(said(&not_yet, &not_yet, &valid), "");
        assert_eq!(said(&not_yet, &valid, &valid), "");
        // First it must be known to be the primary's.
        assert_eq!(said(&valid, &not_yet, &[]), "note k 1");
    }

    #[test]
    fn an_index_of_the_whole_comes_after_those_of_its_parts_and_goes_before_them() {
        let all = [("a", "WHOLE"), ("b", "1"), ("c", "2")];
        assert_eq!(said(&all, &[], &[]), "make b 1, make c 2, make a WHOLE");
        let gone = said(&[], &all, &all);
        assert!(gone.starts_with("drop a, "), "{gone}");
        // It is whole when its parts are, which are made.
        assert_eq!(said(&all[..1], &[("a", "WHOLE?")], &all[..1]), "");
    }
}
