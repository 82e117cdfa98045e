//! Sequences: their values are not in the logical log, so a backup gets them when it is promoted.

use std::collections::BTreeMap;

use hindcast_pg::{Connection, Error, quote_identifier, quote_literal};

/// How many values beyond the greatest one in its column a sequence is set where the primary cannot
/// be asked: values that it gave to transactions that never arrived are not given again, unless
/// there were more of them.
pub const MARGIN: i128 = 1000;

/// A sequence and what it was set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceSet {
    /// As SQL writes it.
    pub name: String,
    /// The next value is this one, if `called` is false, else one that follows it.
    pub value: i64,
    pub called: bool,
    pub like: Like,
}

/// Where a sequence's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Like {
    /// The primary's.
    Primary,
    /// Beyond the values of this column.
    Column(String),
}

/// What was done about sequences, and what could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequences {
    pub set: Vec<SequenceSet>,
    /// With the reason.
    pub left: Vec<(String, String)>,
}

/// Sequences of users, whichever schema they are in: one without a table may be what numbers the
/// invoices. Those of an extension are its own business.
const ALL: &str = "\
SELECT n.nspname, c.relname \
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
 WHERE c.relkind = 'S' AND c.relpersistence <> 't' AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'hindcast') \
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e') \
 ORDER BY 1, 2";

fn name_of(schema: &str, name: &str) -> String {
    format!("{}.{}", quote_identifier(schema), quote_identifier(name))
}

fn names(connection: &mut Connection) -> Result<Vec<String>, Error> {
    let rows = connection.query(ALL)?;
    Ok(rows
        .iter()
        .map(|row| name_of(&row.string(0), &row.string(1)))
        .collect())
}

/// What the primary's sequences say.
pub(super) fn of_primary(primary: &mut Connection) -> Result<Vec<SequenceSet>, Error> {
    let names = names(primary)?;
    let mut pipeline = primary.pipeline();
    for name in &names {
        pipeline.run_sql(&format!("SELECT last_value, is_called FROM {name}"));
    }
    let outcomes = pipeline.finish()?;
    names
        .into_iter()
        .zip(outcomes)
        .map(|(name, outcome)| {
            let row = outcome.rows.first();
            let row = row.ok_or_else(|| Error::Protocol(format!("{name} has no row")))?;
            Ok(SequenceSet {
                name,
                value: row.parse(0)?,
                called: row.is_true(1),
                like: Like::Primary,
            })
        })
        .collect()
}

/// Those that the backup has get the primary's values.
pub(super) fn fit(
    backup: &mut Connection,
    of_primary: Vec<SequenceSet>,
) -> Result<Sequences, Error> {
    let there = names(backup)?;
    let mut sequences = Sequences::default();
    for sequence in of_primary {
        match there.contains(&sequence.name) {
            true => sequences.set.push(sequence),
            false => {
                let reason = "the backup has none of this name".to_owned();
                sequences.left.push((sequence.name, reason));
            }
        }
    }
    Ok(sequences)
}

/// A sequence of the backup and the columns that are filled from it.
struct Used {
    increment: i64,
    min: i64,
    max: i64,
    columns: Vec<Column>,
}

struct Column {
    table: String,
    column: String,
    integer: bool,
    partition: bool,
}

/// All sequences, each once for every column that owns it or has it in its default.
const USED: &str = "\
SELECT n.nspname, c.relname, s.seqincrement, s.seqmin, s.seqmax, tn.nspname, t.relname, a.attname, \
       a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'numeric'::regtype) \
         OR (SELECT y.typbasetype FROM pg_catalog.pg_type y WHERE y.oid = a.atttypid) IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'numeric'::regtype), \
       t.relispartition \
  FROM pg_catalog.pg_sequence s \
  JOIN pg_catalog.pg_class c ON c.oid = s.seqrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
  LEFT JOIN ( \
        SELECT d.objid AS sequence, d.refobjid AS relation, d.refobjsubid AS attnum FROM pg_catalog.pg_depend d \
         WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.deptype IN ('a', 'i') AND d.refobjsubid > 0 \
        UNION \
        SELECT d.refobjid, f.adrelid, f.adnum FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_attrdef f ON f.oid = d.objid \
         WHERE d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass) u ON u.sequence = c.oid \
  LEFT JOIN pg_catalog.pg_class t ON t.oid = u.relation AND t.relkind IN ('r', 'p') \
  LEFT JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace \
  LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum = u.attnum \
 WHERE c.relpersistence <> 't' AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'hindcast') \
 ORDER BY 1, 2, 6, 7, 8";

/// Values that cannot have been given yet, as far as the backup's rows tell.
pub(super) fn from_columns(backup: &mut Connection) -> Result<Sequences, Error> {
    let mut used: BTreeMap<String, Used> = BTreeMap::new();
    for row in backup.query(USED)?.iter() {
        let sequence = used
            .entry(name_of(&row.string(0), &row.string(1)))
            .or_insert(Used {
                increment: row.parse(2)?,
                min: row.parse(3)?,
                max: row.parse(4)?,
                columns: Vec::new(),
            });
        if let (Some(schema), Some(table), Some(column)) = (row.text(5), row.text(6), row.text(7)) {
            sequence.columns.push(Column {
                table: name_of(schema, table),
                column: quote_identifier(column),
                integer: row.is_true(8),
                partition: row.is_true(9),
            });
        }
    }
    let mut sequences = Sequences::default();
    for (name, mut used) in used {
        // A partitioned table's rows are those of its partitions.
        if used.columns.iter().any(|column| !column.partition) {
            used.columns.retain(|column| !column.partition);
        }
        if used.columns.is_empty() || used.columns.iter().any(|column| !column.integer) {
            let reason = match used.columns.first() {
                None => "no column says which of its values were used".to_owned(),
                Some(column) => format!(
                    "the values of {}.{} are no numbers",
                    column.table, column.column
                ),
            };
            sequences.left.push((name, reason));
            continue;
        }
        let current = backup.query(&format!("SELECT last_value FROM {name}"))?;
        let mut furthest: i128 = match current.first() {
            Some(row) => row.parse(0)?,
            None => continue,
        };
        let extreme = if used.increment < 0 { "min" } else { "max" };
        for column in &used.columns {
            let rows = backup.query(&format!(
                "SELECT pg_catalog.trunc({extreme}({})::numeric) FROM {}",
                column.column, column.table
            ))?;
            let value = rows.first().and_then(|row| row.text(0)?.parse().ok());
            if let Some(value) = value {
                furthest = match used.increment < 0 {
                    true => furthest.min(value),
                    false => furthest.max(value),
                };
            }
        }
        let column = &used.columns[0];
        sequences.set.push(SequenceSet {
            value: beyond(furthest, &used),
            called: true,
            like: Like::Column(format!("{}.{}", column.table, column.column)),
            name,
        });
    }
    Ok(sequences)
}

fn beyond(furthest: i128, used: &Used) -> i64 {
    let value = furthest + MARGIN * i128::from(used.increment);
    let value = value.clamp(i128::from(used.min), i128::from(used.max));
    i64::try_from(value).expect("the limits of a sequence are 64 bits")
}

/// The SQL that sets them.
pub(super) fn set(sequences: &[SequenceSet]) -> Vec<String> {
    sequences
        .iter()
        .map(|sequence| {
            format!(
                "SELECT pg_catalog.setval({}::regclass, {}, {})",
                quote_literal(&sequence.name),
                sequence.value,
                sequence.called
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_stays_within_its_limits() {
        let used = |increment, min, max| Used {
            increment,
            min,
            max,
            columns: Vec::new(),
        };
        assert_eq!(beyond(7, &used(1, 1, i64::MAX)), 1007);
        assert_eq!(beyond(7, &used(10, 1, i64::MAX)), 10_007);
        assert_eq!(beyond(-7, &used(-1, i64::MIN, -1)), -1007);
        assert_eq!(beyond(32_000, &used(1, 1, 32_767)), 32_767);
        assert_eq!(
            beyond(i128::from(i64::MAX), &used(1, 1, i64::MAX)),
            i64::MAX
        );
    }
}
