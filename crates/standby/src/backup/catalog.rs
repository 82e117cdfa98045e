//! What the backup knows of a table, and whether the primary's rows fit into it.

use std::sync::Arc;

use hindcast_pg::{Connection, Error, Lsn, quote_identifier, quote_literal};

use crate::pgoutput::{Identity, Relation};

use super::error::BackupError;
use super::table::{Column, Table};
use super::values::Wire;

/// Types below have the same oid on every server and in every version.
const FIXED_OIDS: u32 = 10_000;
const TEXT: u32 = 25;
const BPCHAR: u32 = 1042;
const VARCHAR: u32 = 1043;

#[derive(Clone, Debug)]
struct Found {
    partitioned: bool,
    columns: Vec<FoundColumn>,
    indexes: Vec<FoundIndex>,
}

#[derive(Clone, Debug)]
struct FoundColumn {
    name: String,
    type_oid: u32,
    modifier: i32,
    type_sql: String,
    always: bool,
    generated: bool,
    /// An insert that leaves it out fails.
    required: bool,
    not_null: bool,
    deterministic: bool,
    is_enum: bool,
    /// Its array type, if a cast from text is not the type's input function.
    parsed_as: Option<String>,
}

#[derive(Clone, Debug)]
struct FoundIndex {
    primary: bool,
    /// Unique over plain columns, at once and for all rows.
    identifies: bool,
    immediate: bool,
    columns: Vec<String>,
    operators: Vec<String>,
}

/// Looks the table up and decides how it is written.
///
/// # Errors
/// [`BackupError::Mismatch`] if the primary's rows do not fit.
pub fn look_up(
    connection: &mut Connection,
    relation: &Arc<Relation>,
    serial: u64,
    lsn: Lsn,
) -> Result<Table, BackupError> {
    let found = find(connection, relation).map_err(|error| BackupError::at(lsn, error))?;
    let mismatch = |what| BackupError::Mismatch {
        relation: Arc::clone(relation),
        lsn,
        what,
    };
    let Some(found) = found else {
        return Err(mismatch("there is no such table".to_owned()));
    };
    for column in &relation.columns {
        if fits(column, &found, "").is_err() {
            let (oid, modifier) = (column.type_oid, column.type_modifier);
            let rows = connection
                .query(&format!("SELECT format_type({oid}, {modifier})"))
                .map_err(|error| BackupError::at(lsn, error))?;
            let name = rows.first().map(|row| row.string(0)).unwrap_or_default();
            fits(column, &found, &name).map_err(mismatch)?;
        }
    }
    let extra = found.columns.iter().filter(|column| {
        !relation
            .columns
            .iter()
            .any(|other| other.name == column.name)
    });
    for column in extra.clone() {
        if column.required {
            return Err(mismatch(format!(
                "column {} is not null, has no default, and the primary does not have it",
                column.name
            )));
        }
    }
    let extra_columns = extra.filter(|column| !column.generated).count() > 0;
    Ok(describe(relation, &found, serial, extra_columns))
}

fn quoted(relation: &Relation) -> String {
    format!(
        "{}.{}",
        quote_identifier(&relation.schema),
        quote_identifier(&relation.name)
    )
}

/// How a column is written.
fn written(own: &FoundColumn) -> Column {
    let wire = Wire::of(own.type_oid);
    Column {
        name: quote_identifier(&own.name),
        type_sql: own.type_sql.clone(),
        wire,
        parsed_as: own.parsed_as.clone().filter(|_| wire == Wire::Cast),
        always: own.always,
        textual: is_textual(own),
    }
}

/// Tables `c` of schemas `n` with their columns, in the order of [`FoundColumn`].
const COLUMNS: &str = "SELECT c.oid, c.relkind, a.attname, a.atttypid, a.atttypmod, format_type(a.atttypid, a.atttypmod), a.attidentity = 'a', \
            a.attgenerated <> '', a.attnotnull AND NOT a.atthasdef AND a.attidentity = '', a.attnotnull, \
            coalesce(l.collisdeterministic, true), y.typtype = 'e', \
            CASE WHEN EXISTS (SELECT FROM pg_cast k, LATERAL (WITH RECURSIVE d(oid, base) AS (SELECT y.oid, y.typbasetype UNION ALL \
                    SELECT t.oid, t.typbasetype FROM d JOIN pg_type t ON t.oid = d.base) SELECT oid FROM d WHERE base = 0) b \
                  WHERE k.castsource = 'text'::regtype AND k.casttarget = b.oid AND k.castmethod = 'f') \
                 THEN format_type(a.atttypid, NULL) || '[]' END \
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
     LEFT JOIN pg_type y ON y.oid = a.atttypid LEFT JOIN pg_collation l ON l.oid = a.attcollation";

fn find(connection: &mut Connection, relation: &Relation) -> Result<Option<Found>, Error> {
    let rows = connection.query(&format!(
        "{COLUMNS} WHERE n.nspname = {} AND c.relname = {} AND c.relkind IN ('r', 'p') ORDER BY a.attnum",
        quote_literal(&relation.schema),
        quote_literal(&relation.name)
    ))?;
    let Some(first) = rows.first() else {
        return Ok(None);
    };
    let oid: u32 = first.parse(0)?;
    let mut found = Found {
        partitioned: first.text(1) == Some("p"),
        columns: Vec::new(),
        indexes: Vec::new(),
    };
    for row in rows.iter().filter(|row| row.text(2).is_some()) {
        found.columns.push(FoundColumn {
            name: row.string(2),
            type_oid: row.parse(3)?,
            modifier: row.parse(4)?,
            type_sql: row.string(5),
            always: row.is_true(6),
            generated: row.is_true(7),
            required: row.is_true(8),
            not_null: row.is_true(9),
            deterministic: row.is_true(10),
            is_enum: row.is_true(11),
            parsed_as: row.text(12).map(str::to_owned),
        });
    }
    // Constraints of single partitions count, too: they are met by some rows. Nothing here locks
    // the table, which our own workers may have truncated in a transaction that is still open.
    let rows = connection.query(&format!(
        "WITH RECURSIVE tree AS (SELECT {oid}::oid AS relid UNION ALL \
                SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.relid JOIN pg_class p ON p.oid = h.inhrelid AND p.relispartition) \
         SELECT i.indexrelid, i.indisprimary, \
                i.indrelid = {oid} AND i.indisunique AND i.indimmediate AND i.indisvalid AND NOT i.indisexclusion \
                AND i.indpred IS NULL AND i.indexprs IS NULL, \
                i.indimmediate, a.attname, quote_ident(s.nspname) || '.' || o.oprname \
         FROM pg_index i CROSS JOIN LATERAL generate_series(0, i.indnkeyatts - 1) AS p \
         LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[p] \
         JOIN pg_opclass c ON c.oid = i.indclass[p] \
         LEFT JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype \
              AND m.amopstrategy = 3 AND m.amopmethod = 403 \
         LEFT JOIN pg_operator o ON o.oid = m.amopopr LEFT JOIN pg_namespace s ON s.oid = o.oprnamespace \
         WHERE (i.indisunique OR i.indisexclusion) \
           AND (i.indrelid = {oid} OR (i.indrelid IN (SELECT relid FROM tree) \
                AND NOT EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = i.indexrelid))) \
         ORDER BY i.indexrelid, p"
    ))?;
    let mut last = None;
    for row in rows.iter() {
        let index: u32 = row.parse(0)?;
        if last != Some(index) {
            last = Some(index);
            found.indexes.push(FoundIndex {
                primary: row.is_true(1),
                identifies: row.is_true(2),
                immediate: row.is_true(3),
                columns: Vec::new(),
                operators: Vec::new(),
            });
        }
        if let Some(index) = found.indexes.last_mut() {
            index.columns.push(row.string(4));
            index.operators.push(row.string(5));
        }
    }
    Ok(Some(found))
}

/// Whether one of the primary's columns fits; otherwise what is wrong.
fn fits(column: &crate::pgoutput::Column, found: &Found, type_name: &str) -> Result<(), String> {
    let fixed = column.type_oid < FIXED_OIDS;
    let Some(own) = found.columns.iter().find(|own| own.name == column.name) else {
        return Err(format!("column {} is missing", column.name));
    };
    if own.generated {
        return Err(format!(
            "column {} is generated, and is not on the primary",
            column.name
        ));
    }
    let texts = [TEXT, VARCHAR];
    let same_type = match fixed {
        true => own.type_oid == column.type_oid,
        false => own.type_oid >= FIXED_OIDS,
    };
    let both_texts = texts.contains(&own.type_oid) && texts.contains(&column.type_oid);
    let wide_enough = own.modifier == column.type_modifier
        || !fixed
        || (texts.contains(&own.type_oid)
            && (own.modifier < 0
                || (column.type_modifier >= 0 && own.modifier >= column.type_modifier)));
    if (same_type || both_texts) && wide_enough {
        return Ok(());
    }
    let theirs = match fixed {
        true => type_name,
        false => "a type of the user's",
    };
    Err(format!(
        "column {} is {} and the primary's is {theirs}",
        column.name, own.type_sql
    ))
}

/// Columns of which equal values have equal texts.
fn is_textual(column: &FoundColumn) -> bool {
    const BOOL_CHAR_NAME: [u32; 3] = [16, 18, 19];
    const NUMBERS: [u32; 5] = [20, 21, 23, 26, 3220];
    const TIMES: [u32; 4] = [1082, 1083, 1114, 1184];
    let oid = column.type_oid;
    match oid {
        TEXT | VARCHAR => column.deterministic,
        BPCHAR => column.deterministic && column.modifier > 0,
        17 | 2950 => true,
        _ => {
            BOOL_CHAR_NAME.contains(&oid)
                || NUMBERS.contains(&oid)
                || TIMES.contains(&oid)
                || column.is_enum
        }
    }
}

/// By which unique index rows are found: the log must say all its columns, and they are never null.
fn choose_key(relation: &Relation, found: &Found) -> Option<usize> {
    let said = |name: &str| {
        relation
            .columns
            .iter()
            .any(|column| column.name == name && column.key)
    };
    let not_null = |name: &str| {
        found
            .columns
            .iter()
            .any(|column| column.name == name && column.not_null)
    };
    let usable = |index: &FoundIndex| {
        index.identifies
            && index.columns.iter().all(|name| {
                not_null(name)
                    && match relation.identity {
                        // Only rows that are inserted come: the new row says everything.
                        Identity::Nothing => relation.columns.iter().any(|c| c.name == *name),
                        _ => said(name),
                    }
            })
    };
    let position = |primary: bool| {
        found
            .indexes
            .iter()
            .position(|index| index.primary == primary && usable(index))
    };
    position(true).or_else(|| position(false))
}

fn describe(relation: &Arc<Relation>, found: &Found, serial: u64, extra_columns: bool) -> Table {
    let place = |name: &str| {
        relation
            .columns
            .iter()
            .position(|column| column.name == name)
    };
    let chosen = choose_key(relation, found);
    let (key, key_operators) = match chosen.map(|index| &found.indexes[index]) {
        Some(index) => (
            index
                .columns
                .iter()
                .filter_map(|name| place(name))
                .collect(),
            index
                .operators
                .iter()
                .map(|operator| match operator.is_empty() {
                    true => "pg_catalog.=".to_owned(),
                    false => operator.clone(),
                })
                .collect(),
        ),
        None if matches!(relation.identity, Identity::Full | Identity::Nothing) => {
            (Vec::new(), Vec::new())
        }
        // There is no index for it on the backup, and rows are found by reading the table.
        None => {
            let key: Vec<usize> = (0..relation.columns.len())
                .filter(|&column| relation.columns[column].key)
                .collect();
            let operators = key.iter().map(|_| "pg_catalog.=".to_owned()).collect();
            (key, operators)
        }
    };
    let own = |name: &str| {
        found
            .columns
            .iter()
            .find(|own| own.name == name)
            .expect("every column was found on the backup")
    };
    let columns: Vec<Column> = relation
        .columns
        .iter()
        .map(|column| written(own(&column.name)))
        .collect();
    let others = || {
        let indexes = found.indexes.iter().enumerate();
        indexes.filter(|(index, _)| Some(*index) != chosen)
    };
    let constrained = others().count() > 0;
    Table {
        serial,
        relation: Arc::clone(relation),
        name: quoted(relation),
        partitioned: found.partitioned,
        spreadable: !key.is_empty()
            && !constrained
            && key.iter().all(|&column| columns[column].textual),
        columns,
        key,
        key_operators,
        constrained,
        deferrable: others().any(|(_, index)| !index.immediate),
        extra_columns,
    }
}
