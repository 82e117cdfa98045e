//! The statements of a correction script, as text.
//!
//! Every statement changes one row only if that still is as it was, and notes in a temporary table
//! if it was not.

use std::fmt::Write;

use hindcast_state::{Aligned, Column, FoundRow, Identity, RowText};

/// What the catalog says about a table beyond its columns.
#[derive(Clone, Debug, Default)]
pub(super) struct TableFacts {
    /// `(trigger, quoted; how it is enabled)`
    pub triggers: Vec<(String, char)>,
    /// It has a unique constraint that can be deferred; `ON CONFLICT` does not work then.
    pub deferrable_unique: bool,
    /// Conditions under which no other row would be changed or deleted along with a row `t`.
    pub alone: Vec<String>,
}

/// Where the script notes what it left alone.
pub(super) const LEFT_ALONE: &str = "pg_temp.hindcast_left_alone";

pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// On one line and not too long, whatever it says.
pub(super) fn comment(text: &str) -> String {
    const CHARACTERS_MAX: usize = 400;
    let words: Vec<_> = text
        .split(|character: char| character.is_whitespace() || character.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    let line = words.join(" ");
    match line.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// That a column of the row `t` holds a value.
fn holds(column: &Column, value: &Option<String>) -> String {
    let name = &column.quoted;
    match value {
        None => format!("t.{name} IS NULL"),
        Some(value) if column.has_equality => format!("t.{name} = {}", literal(value)),
        Some(value) => format!("t.{name}::text = {}", literal(value)),
    }
}

fn all(conditions: Vec<String>) -> String {
    match conditions.is_empty() {
        true => "true".to_owned(),
        false => conditions.join(" AND "),
    }
}

fn has_key(aligned: &Aligned, row: &RowText) -> Vec<String> {
    (aligned.key.iter())
        .map(|index| holds(&aligned.columns[*index], &row[*index]))
        .collect()
}

fn is_row(aligned: &Aligned, row: &RowText, unsure: &[bool]) -> Vec<String> {
    (aligned.columns.iter().zip(row).zip(unsure))
        .filter(|((column, _), unsure)| !column.generated && !**unsure)
        .map(|((column, value), _)| holds(column, value))
        .collect()
}

fn note(aligned: &Aligned, change: &str, row: &str, condition: &str) -> String {
    format!(
        "INSERT INTO {LEFT_ALONE} SELECT {}, {}, {} WHERE {condition};\n",
        literal(change),
        literal(&aligned.table),
        literal(row),
    )
}

/// Deletes `row`, or so many copies of it where there is no primary key. Columns of which it is
/// `unsure` what the database holds may hold anything.
pub(super) fn delete(
    aligned: &Aligned,
    facts: &TableFacts,
    row: &FoundRow,
    unsure: &[bool],
) -> String {
    let table = &aligned.table;
    let mut same = is_row(aligned, &row.values, unsure);
    if aligned.key.is_empty() {
        let count = row.count;
        return format!(
            "WITH done AS (DELETE FROM ONLY {table} AS d WHERE d.ctid = ANY (ARRAY(SELECT t.ctid FROM ONLY {table} AS t \
             WHERE {} LIMIT {count} FOR UPDATE)) RETURNING 1) {}",
            all(same),
            note(
                aligned,
                "delete",
                &row.key,
                &format!("(SELECT pg_catalog.count(*) FROM done) < {count}")
            ),
        );
    }
    same.extend(facts.alone.iter().cloned());
    // One that is gone already is as it should be.
    let missed = format!(
        "NOT EXISTS (SELECT FROM done) AND EXISTS (SELECT FROM ONLY {table} AS t WHERE {})",
        all(has_key(aligned, &row.values))
    );
    format!(
        "WITH done AS (DELETE FROM ONLY {table} AS t WHERE {} RETURNING 1) {}",
        all(same),
        note(aligned, "delete", &row.key, &missed),
    )
}

/// Changes `before` to `after`. `None` if there is nothing to change that can be written.
pub(super) fn update(
    aligned: &Aligned,
    before: &FoundRow,
    after: &RowText,
    unsure: &[bool],
) -> Option<String> {
    let mut conditions = has_key(aligned, &before.values);
    let mut assignments = Vec::new();
    let mut fixed = false;
    for (index, column) in aligned.columns.iter().enumerate() {
        let (old, new) = (&before.values[index], &after[index]);
        if old == new || column.generated {
            continue;
        }
        fixed |= column.identity == Some(Identity::Always);
        if !unsure[index] {
            conditions.push(holds(column, old));
        }
        let value = new.as_deref().map_or("NULL".to_owned(), literal);
        assignments.push(format!("{} = {value}", column.quoted));
    }
    if assignments.is_empty() {
        return None;
    }
    if fixed {
        let change = "update of a column that is GENERATED ALWAYS AS IDENTITY";
        return Some(note(aligned, change, &before.key, "true"));
    }
    Some(format!(
        "WITH done AS (UPDATE ONLY {} AS t SET {} WHERE {} RETURNING 1) {}",
        aligned.table,
        assignments.join(", "),
        all(conditions),
        note(
            aligned,
            "update",
            &before.key,
            "NOT EXISTS (SELECT FROM done)"
        ),
    ))
}

/// Inserts `values`, `count` times.
pub(super) fn insert(
    aligned: &Aligned,
    facts: &TableFacts,
    key: &str,
    values: &RowText,
    count: u64,
) -> String {
    let table = &aligned.table;
    let written = || (aligned.columns.iter().zip(values)).filter(|(column, _)| !column.generated);
    let columns: Vec<_> = written()
        .map(|(column, _)| column.quoted.as_str())
        .collect();
    // A SELECT would take a bare literal for a text.
    let values: Vec<_> = written()
        .map(|(column, value)| match value {
            None => format!("NULL::{}", column.base_type),
            Some(value) => format!("{}::{}", literal(value), column.base_type),
        })
        .collect();
    // Where there is no identity column it says nothing; and a replayed database, made to repeat
    // its numbers, may lack one that the real one has.
    let mut insert = format!(
        "INSERT INTO {table} AS t ({}) OVERRIDING SYSTEM VALUE SELECT {}",
        columns.join(", "),
        values.join(", ")
    );
    if count > 1 {
        let _ = write!(insert, " FROM pg_catalog.generate_series(1, {count})");
    }
    if !facts.deferrable_unique {
        insert += " ON CONFLICT DO NOTHING";
    } else if !aligned.key.is_empty() {
        let same: Vec<_> = (aligned.key.iter())
            .map(|index| {
                let column = &aligned.columns[*index].quoted;
                let position = columns.iter().position(|name| name == column);
                let value = position.map_or("NULL", |position| values[position].as_str());
                format!("other.{column} = {value}")
            })
            .collect();
        let _ = write!(
            insert,
            " WHERE NOT EXISTS (SELECT FROM ONLY {table} AS other WHERE {})",
            all(same)
        );
    }
    format!(
        "WITH done AS ({insert} RETURNING 1) {}",
        note(
            aligned,
            "insert",
            key,
            &format!("(SELECT pg_catalog.count(*) FROM done) < {count}")
        ),
    )
}

/// The sequence that gives out a column's values, as SQL names it.
pub(super) fn sequence(column: &Column) -> Option<String> {
    if let Some(sequence) = &column.sequence {
        return Some(sequence.clone());
    }
    let name = column.default.as_deref()?.strip_prefix("nextval('")?;
    Some(name.strip_suffix("'::regclass)")?.replace("''", "'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_stays_on_its_line() {
        assert_eq!(
            comment("SELECT 1\n  \r\n; DROP\u{85}TABLE t"),
            "SELECT 1 ; DROP TABLE t"
        );
        assert_eq!(comment(&"ä".repeat(500)).chars().count(), 401);
    }

    #[test]
    fn a_literal_is_one_whatever_it_holds() {
        assert_eq!(literal(r"it's \ :x"), r"'it''s \ :x'");
    }
}
