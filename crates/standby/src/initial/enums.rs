//! The labels of the primary's enums, as they come and are renamed.
//!
//! The log has the labels of values, and no word of their types. Rows on the backup keep a label by
//! its oid there, so it is renamed without touching any. What tells a label that is new from one
//! that was renamed is its oid on the primary, which the backup notes with the name that the label
//! has here.
//!
//! ```text
//!  new                        ──▶ added at once: no row of before has it
//!  renamed                    ──▶ renamed where a row comes that has the new name, or where the
//!                                 log was followed to a position behind it
//!  a name that is another's   ──▶ rows that came may have been taken for the other: the tables are
//!  by now                         copied again
//! ```

use std::collections::BTreeMap;

use hindcast_pg::{Connection, DatabaseUrl, Error, Row, quote_identifier, quote_literal};

use super::copy::writing;
use super::error::{InitialError, Side};
use super::workers::reading;
use crate::source::compared::TableName;

/// Schema and name.
type EnumName = (String, String);
/// The labels of each enum in their order, with their oids.
type Enums = BTreeMap<EnumName, Vec<(u32, String)>>;
/// By the primary's oid: the names that a label has had here, the last one now.
type Noted = BTreeMap<u32, Vec<String>>;

const ENUMS: &str = "\
SELECT n.nspname, t.typname, e.enumlabel, e.oid \
  FROM pg_catalog.pg_enum e JOIN pg_catalog.pg_type t ON t.oid = e.enumtypid JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
 WHERE n.nspname NOT IN ('information_schema', 'hindcast') AND n.nspname !~ '^pg_' \
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e') \
 ORDER BY e.enumtypid, e.enumsortorder";

fn enums(connection: &mut Connection) -> Result<Enums, Error> {
    let mut enums = Enums::new();
    for row in connection.query(ENUMS)?.iter() {
        let name = (row.string(0), row.string(1));
        let label = (row.parse(3)?, row.string(2));
        enums.entry(name).or_default().push(label);
    }
    Ok(enums)
}

/// Tables that have values of an enum, by itself or in arrays, domains, ranges and rows.
const USERS: &str = "\
WITH RECURSIVE d (oid) AS ( \
  SELECT t.oid FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace WHERE n.nspname = {schema} AND t.typname = {name} \
  UNION SELECT t.oid FROM d JOIN pg_catalog.pg_type t ON t.typelem = d.oid OR t.typbasetype = d.oid \
     OR EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.typrelid AND t.typrelid <> 0 AND a.atttypid = d.oid) \
     OR EXISTS (SELECT FROM pg_catalog.pg_range r WHERE r.rngsubtype = d.oid AND t.oid IN (r.rngtypid, r.rngmultitypid))) \
SELECT DISTINCT n.nspname, c.relname FROM pg_catalog.pg_attribute a JOIN d ON d.oid = a.atttypid \
  JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r'";

/// What there is to do with a label that has another name on the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rename {
    of: EnumName,
    oid: u32,
    from: String,
    to: String,
}

/// How the backup's enums are other than the primary's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Differences {
    /// Enums and labels to be made, as SQL.
    add: Vec<String>,
    rename: Vec<Rename>,
    /// A name of theirs is that of another label here.
    mixed: Vec<EnumName>,
    /// Names that are the same on both sides, and were not noted.
    note: Vec<(u32, String)>,
}

/// What was found, and is not done yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// What was done, as SQL.
    pub made: Vec<String>,
    /// Labels are to be renamed at a position of the log.
    pub is_renamed: bool,
    /// Their rows may have labels that were taken for others.
    pub mixed: Vec<TableName>,
}

/// Both servers, and what is noted.
struct Sides<'a> {
    primary: Connection,
    backup: Connection,
    slot: &'a str,
    theirs: Enums,
    ours: Enums,
    noted: Noted,
}

impl<'a> Sides<'a> {
    fn ask(
        primary: &DatabaseUrl,
        backup: &DatabaseUrl,
        slot: &'a str,
    ) -> Result<Self, InitialError> {
        let failed = |side| InitialError::query(side, "see the labels of its enums");
        let mut primary = Connection::connect(primary, &reading())
            .map_err(InitialError::connect(Side::Primary))?;
        let mut backup = writing(backup)?;
        Ok(Self {
            theirs: enums(&mut primary).map_err(failed(Side::Primary))?,
            ours: enums(&mut backup).map_err(failed(Side::Backup))?,
            noted: noted(&mut backup, slot).map_err(failed(Side::Backup))?,
            primary,
            backup,
            slot,
        })
    }

    fn differences(&self) -> Differences {
        differences(&self.theirs, &self.ours, &self.noted)
    }

    /// Says whether the backup took it. What it refuses is of a schema that is not there, or of
    /// somebody else: what needs it fails, and says so.
    fn try_to(&mut self, sql: &str) -> Result<bool, InitialError> {
        match self.backup.execute(sql) {
            Ok(_) => Ok(true),
            Err(error) if error.is_connection() => {
                let failed = InitialError::query(Side::Backup, "make the labels of its enums");
                Err(failed(error))
            }
            Err(_) => Ok(false),
        }
    }

    /// Makes what is new, and notes what is the same.
    fn add(&mut self, found: &Differences) -> Result<Vec<String>, InitialError> {
        let mut made = Vec::new();
        for statement in &found.add {
            if self.try_to(statement)? {
                made.push(statement.clone());
            }
        }
        if !made.is_empty() {
            let failed = InitialError::query(Side::Backup, "see the labels of its enums");
            self.ours = enums(&mut self.backup).map_err(failed)?;
        }
        let notes = self.differences().note;
        let notes: Vec<_> = notes
            .iter()
            .map(|(oid, name)| note(self.slot, *oid, name))
            .collect();
        if !notes.is_empty() {
            self.try_to(&notes.join("; "))?;
        }
        Ok(made)
    }

    /// Gives labels the names that they have on the primary, which they may have exchanged.
    fn rename(&mut self, renames: &[Rename]) -> Result<Vec<String>, InitialError> {
        let mut statements = Vec::new();
        for (n, it) in renames.iter().enumerate() {
            statements.push(renaming(&it.of, &it.from, &format!("hindcast_renamed_{n}")));
        }
        for (n, it) in renames.iter().enumerate() {
            statements.push(renaming(&it.of, &format!("hindcast_renamed_{n}"), &it.to));
            statements.push(note(self.slot, it.oid, &it.to));
        }
        if statements.is_empty() {
            return Ok(statements);
        }
        if !self.try_to(&format!("BEGIN; {}; COMMIT", statements.join("; ")))? {
            self.try_to("ROLLBACK")?;
            return Ok(Vec::new());
        }
        let said = renames.iter().map(|it| renaming(&it.of, &it.from, &it.to));
        Ok(said.collect())
    }

    /// All labels of an enum that have another name than here.
    fn renames_of(&self, of: &EnumName) -> Vec<Rename> {
        let own = self.ours.get(of).into_iter().flatten();
        let own: Vec<_> = own.map(|(_, name)| name).collect();
        let labels = self.theirs.get(of).into_iter().flatten();
        let renames = labels.filter_map(|(oid, to)| {
            let from = self.noted.get(oid)?.last()?;
            (from != to && own.contains(&from)).then(|| Rename {
                of: of.clone(),
                oid: *oid,
                from: from.clone(),
                to: to.clone(),
            })
        });
        renames.collect()
    }

    fn users(&mut self, of: &[EnumName]) -> Result<Vec<TableName>, InitialError> {
        users(&mut self.primary, of)
    }
}

fn users(primary: &mut Connection, of: &[EnumName]) -> Result<Vec<TableName>, InitialError> {
    let mut tables = Vec::new();
    for (schema, name) in of {
        let sql = USERS
            .replace("{schema}", &quote_literal(schema))
            .replace("{name}", &quote_literal(name));
        let rows = primary.query(&sql);
        let rows = rows.map_err(InitialError::query(Side::Primary, "see who has an enum"))?;
        tables.extend(rows.iter().map(|row| (row.string(0), row.string(1))));
    }
    Ok(tables)
}

/// Tables of which some value may be called otherwise on the backup than on the primary, as two
/// sessions see them.
pub fn unlike(
    primary: &mut Connection,
    backup: &mut Connection,
    slot: &str,
) -> Result<Vec<TableName>, InitialError> {
    let failed = |side| InitialError::query(side, "see the labels of its enums");
    let theirs = enums(primary).map_err(failed(Side::Primary))?;
    let ours = enums(backup).map_err(failed(Side::Backup))?;
    let noted = noted(backup, slot).map_err(failed(Side::Backup))?;
    let found = differences(&theirs, &ours, &noted);
    let is_unknown = |(name, own): &(&EnumName, &Vec<(u32, String)>)| {
        let labels = theirs.get(*name).into_iter().flatten();
        let labels: Vec<_> = labels.map(|(_, label)| label).collect();
        own.iter().any(|(_, label)| !labels.contains(&label))
    };
    let unknown = ours.iter().filter(is_unknown).map(|(name, _)| name.clone());
    let renamed = found.rename.into_iter().map(|it| it.of);
    let unlike: Vec<_> = found
        .mixed
        .into_iter()
        .chain(renamed)
        .chain(unknown)
        .collect();
    users(primary, &unlike)
}

/// Makes the enums and labels that the backup lacks, and says what is to be renamed.
pub fn look(
    primary: &DatabaseUrl,
    backup: &DatabaseUrl,
    slot: &str,
) -> Result<Found, InitialError> {
    let mut sides = Sides::ask(primary, backup, slot)?;
    let found = sides.differences();
    Ok(Found {
        made: sides.add(&found)?,
        is_renamed: !found.rename.is_empty(),
        mixed: sides.users(&found.mixed)?,
    })
}

/// The backup refused a row with a label that it does not know, with this message. It is new, or
/// one that was renamed: then the row was written after that. Or a transaction that was open then
/// has written it before: then the label gets the name back that it had, and the next row that has
/// the new name brings us here again.
pub fn refused(
    primary: &DatabaseUrl,
    backup: &DatabaseUrl,
    slot: &str,
    message: &str,
) -> Result<Found, InitialError> {
    let mut sides = Sides::ask(primary, backup, slot)?;
    let found = sides.differences();
    let names = |name: &str| message.contains(&format!("\"{name}\""));
    let is_meant = |it: &&Rename| names(&it.to);
    let mut renames: Vec<_> = found.rename.iter().filter(is_meant).cloned().collect();
    let mut mixed = found.mixed.clone();
    if renames.is_empty() {
        for (of, labels) in &sides.theirs {
            let formerly = labels.iter().filter_map(|(oid, _)| {
                let (now, before) = sides.noted.get(oid)?.split_last()?;
                let to = before.iter().find(|name| names(name))?;
                Some((*oid, now, to))
            });
            for (oid, from, to) in formerly {
                match labels.iter().any(|(_, name)| name == to) {
                    true => mixed.push(of.clone()),
                    false => renames.push(Rename {
                        of: of.clone(),
                        oid,
                        from: from.clone(),
                        to: to.clone(),
                    }),
                }
            }
        }
    }
    if !mixed.is_empty() {
        return Ok(Found {
            mixed: sides.users(&mixed)?,
            ..Found::default()
        });
    }
    let mut made = sides.add(&found)?;
    made.extend(sides.rename(&renames)?);
    Ok(Found {
        made,
        ..Found::default()
    })
}

/// Makes them what the primary's are. The log was followed to a position behind that, and no
/// transaction was open there. `is_anew`: whether no row of a table is kept.
pub fn settle(
    primary: &DatabaseUrl,
    backup: &DatabaseUrl,
    slot: &str,
    is_anew: impl Fn(&TableName) -> bool,
) -> Result<Vec<String>, InitialError> {
    let mut sides = Sides::ask(primary, backup, slot)?;
    let found = sides.differences();
    let mut renames = found.rename;
    for of in found.mixed {
        // The next look finds the same, and all of them are copied.
        if sides.users(std::slice::from_ref(&of))?.iter().all(&is_anew) {
            renames.extend(sides.renames_of(&of));
        }
    }
    let mut made = sides.rename(&renames)?;
    let failed = InitialError::query(Side::Backup, "see the labels of its enums");
    sides.ours = enums(&mut sides.backup).map_err(&failed)?;
    sides.noted = noted(&mut sides.backup, slot).map_err(failed)?;
    let found = sides.differences();
    made.extend(sides.add(&found)?);
    Ok(made)
}

fn sql_name((schema, name): &EnumName) -> String {
    format!("{}.{}", quote_identifier(schema), quote_identifier(name))
}

fn renaming(of: &EnumName, from: &str, to: &str) -> String {
    let (from, to) = (quote_literal(from), quote_literal(to));
    format!("ALTER TYPE {} RENAME VALUE {from} TO {to}", sql_name(of))
}

fn noted(backup: &mut Connection, slot: &str) -> Result<Noted, Error> {
    let rows = backup.query(&format!(
        "SELECT label_oid, pg_catalog.array_to_string(names, E'\\x01') FROM hindcast.standby_labels WHERE slot = {}",
        quote_literal(slot)
    ))?;
    let one = |row: &Row| {
        let names = row.string(1);
        let names = names.split('\u{1}').map(str::to_owned).collect();
        Ok((row.parse(0)?, names))
    };
    rows.iter().map(one).collect()
}

/// The name that a label has here from now on.
fn note(slot: &str, oid: u32, name: &str) -> String {
    let (slot, name) = (quote_literal(slot), quote_literal(name));
    format!(
        "INSERT INTO hindcast.standby_labels (slot, label_oid, names) VALUES ({slot}, {oid}, ARRAY[{name}]::text[]) \
         ON CONFLICT (slot, label_oid) DO UPDATE SET names = pg_catalog.array_remove(standby_labels.names, {name}) || {name}::text"
    )
}

fn differences(theirs: &Enums, ours: &Enums, noted: &Noted) -> Differences {
    let mut found = Differences::default();
    for (name, labels) in theirs {
        let Some(own) = ours.get(name) else {
            let labels: Vec<_> = labels.iter().map(|(_, it)| quote_literal(it)).collect();
            let (of, labels) = (sql_name(name), labels.join(", "));
            (found.add).push(format!("CREATE TYPE {of} AS ENUM ({labels})"));
            continue;
        };
        let own: Vec<&str> = own.iter().map(|(_, name)| name.as_str()).collect();
        match labels.iter().any(|(oid, _)| noted.contains_key(oid)) {
            true => of_noted(name, labels, &own, noted, &mut found),
            false => of_unknown(name, labels, &own, &mut found),
        }
    }
    found
}

/// An enum of which nobody has noted which label is which: one that the backup alone has may be one
/// that was renamed, or not.
fn of_unknown(name: &EnumName, labels: &[(u32, String)], own: &[&str], found: &mut Differences) {
    let is_theirs = |own: &&str| labels.iter().any(|(_, label)| label == own);
    if !own.iter().all(is_theirs) {
        return;
    }
    let here = |(_, label): &(u32, String)| own.contains(&label.as_str()).then(|| label.clone());
    add_labels(name, labels, own, here, found);
    found.note.extend(
        labels
            .iter()
            .filter(|(_, label)| own.contains(&label.as_str()))
            .cloned(),
    );
}

fn of_noted(
    name: &EnumName,
    labels: &[(u32, String)],
    own: &[&str],
    noted: &Noted,
    found: &mut Differences,
) {
    let here = |(oid, _): &(u32, String)| noted.get(oid).and_then(|names| names.last()).cloned();
    let mut is_mixed = false;
    let mut renames = Vec::new();
    for label in labels {
        let (oid, to) = label;
        let is_there = own.contains(&to.as_str());
        let is_anothers = labels
            .iter()
            .any(|it| it.0 != *oid && here(it).as_ref() == Some(to));
        match here(label) {
            Some(from) if from == *to => {}
            Some(from) => match (own.contains(&from.as_str()), is_there) {
                (true, false) => renames.push(Rename {
                    of: name.clone(),
                    oid: *oid,
                    from,
                    to: to.clone(),
                }),
                // Somebody has done it.
                (false, true) if !is_anothers => found.note.push(label.clone()),
                (_, true) => is_mixed = true,
                (false, false) => {}
            },
            None if is_there && is_anothers => is_mixed = true,
            None if is_there => found.note.push(label.clone()),
            None => {}
        }
    }
    if is_mixed {
        found.mixed.push(name.clone());
        return;
    }
    found.rename.extend(renames);
    let is_there = |label: &(u32, String)| {
        let known =
            here(label).or_else(|| own.contains(&label.1.as_str()).then(|| label.1.clone()));
        known.filter(|name| own.contains(&name.as_str()))
    };
    add_labels(name, labels, own, is_there, found);
}

/// Those that are not here, each at its place. `here`: the name that a label has here.
fn add_labels(
    name: &EnumName,
    labels: &[(u32, String)],
    own: &[&str],
    here: impl Fn(&(u32, String)) -> Option<String>,
    found: &mut Differences,
) {
    let of = sql_name(name);
    let mut before: Option<String> = None;
    for label in labels {
        let known = here(label);
        if known.is_none() {
            // Those before it are there by now.
            let place = match &before {
                Some(before) => format!(" AFTER {}", quote_literal(before)),
                None => own.first().map_or(String::new(), |first| {
                    format!(" BEFORE {}", quote_literal(first))
                }),
            };
            let label = quote_literal(&label.1);
            (found.add).push(format!("ALTER TYPE {of} ADD VALUE {label}{place}"));
        }
        before = Some(known.unwrap_or_else(|| label.1.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> EnumName {
        ("public".to_owned(), "mood".to_owned())
    }

    /// `3 happy`: a label and its oid.
    fn one(labels: &[&str]) -> Enums {
        let label = |text: &&str| {
            let (oid, label) = text.split_once(' ').unwrap_or(("0", text));
            (oid.parse().unwrap(), label.to_owned())
        };
        Enums::from([(name(), labels.iter().map(label).collect())])
    }

    fn found(theirs: &[&str], ours: &[&str], noted: &[&str]) -> Differences {
        let noted = one(noted).remove(&name()).unwrap();
        let noted = noted.into_iter().map(|(oid, name)| (oid, vec![name]));
        differences(&one(theirs), &one(ours), &noted.collect())
    }

    fn said(theirs: &[&str], ours: &[&str], noted: &[&str]) -> String {
        let found = found(theirs, ours, noted);
        let renames = found.rename.iter();
        let renames = renames.map(|it| format!("{} is {}", it.from, it.to));
        let mixed = found.mixed.iter().map(|_| "mixed".to_owned());
        let all = found.add.into_iter().chain(renames).chain(mixed);
        let said = all.collect::<Vec<_>>().join("; ");
        said.replace("ALTER TYPE \"public\".\"mood\" ADD VALUE", "add")
    }

    #[test]
    fn a_label_is_added_in_its_place() {
        assert_eq!(said(&["1 a", "2 b"], &["a", "b"], &[]), "");
        let all = ["3 x", "1 a", "4 y", "5 z", "2 b", "6 w"];
        let added = "add 'x' BEFORE 'a'; add 'y' AFTER 'a'; add 'z' AFTER 'y'; add 'w' AFTER 'b'";
        assert_eq!(said(&all, &["a", "b"], &[]), added);
        assert_eq!(said(&all, &["a", "b"], &["1 a", "2 b"]), added);
        assert_eq!(
            found(&["1 a", "2 b"], &["a", "b"], &["1 a"]).note,
            [(2, "b".to_owned())]
        );
    }

    #[test]
    fn an_enum_is_made_and_one_that_nobody_knows_is_not_renamed() {
        let made = differences(&one(&["it's", "b"]), &Enums::new(), &Noted::new()).add;
        assert_eq!(
            made,
            ["CREATE TYPE \"public\".\"mood\" AS ENUM ('it''s', 'b')"]
        );
        let theirs = ["1 happy", "2 b", "3 c"];
        assert_eq!(found(&theirs, &["glad", "b"], &[]), Differences::default());
    }

    #[test]
    fn a_label_that_has_another_name_is_renamed() {
        let (ours, noted) = (["glad", "b"], ["1 glad", "2 b"]);
        assert_eq!(said(&["1 happy", "2 b"], &ours, &noted), "glad is happy");
        // What is new is put beside what it is called here.
        assert_eq!(
            said(&["1 happy", "3 c", "2 b"], &ours, &noted),
            "add 'c' AFTER 'glad'; glad is happy"
        );
        // Somebody has done it here.
        let done = found(&["1 happy", "2 b"], &["happy", "b"], &noted);
        assert_eq!(done.note, [(1, "happy".to_owned())]);
        assert!(done.rename.is_empty() && done.mixed.is_empty());
    }

    #[test]
    fn a_name_that_is_anothers_by_now_is_told() {
        let (ours, noted) = (["a", "b"], ["1 a", "2 b"]);
        assert_eq!(said(&["1 b", "2 a"], &ours, &noted), "mixed");
        assert_eq!(said(&["1 x", "2 b", "3 a"], &ours, &noted), "mixed");
        assert_eq!(said(&["1 b", "2 x"], &ours, &noted), "mixed");
    }
}
