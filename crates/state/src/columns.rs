//! What the columns of a table are in two databases, and on which of them its rows can be compared.

use hindcast_pg::tokio::Client;

use crate::{Side, StateError};

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// The same, quoted where SQL needs it.
    pub quoted: String,
    /// As SQL writes it: `character varying(20)`.
    pub declared_type: String,
    /// The same without domains and modifiers: `character varying`. A value can be cast to it
    /// without being changed.
    pub base_type: String,
    /// For enumerations, numbers and so on: `pg_type.typcategory` of the base type.
    pub category: char,
    /// `atttypmod` of the base type; -1 for none.
    pub modifier: i32,
    /// With all names qualified: `nextval('public.t_k_seq'::regclass)`.
    pub default: Option<String>,
    pub identity: Option<Identity>,
    /// Computed from other columns; nobody can write it.
    pub generated: bool,
    /// Whether the type has an equality that agrees with its order. Without one (`json`, `xml`,
    /// `point`), texts must be compared.
    pub has_equality: bool,
    /// The sequence that belongs to the column, qualified and quoted.
    pub sequence: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// An `INSERT` that gives a value must say `OVERRIDING SYSTEM VALUE`.
    Always,
    ByDefault,
}

impl Column {
    pub(super) fn is_integer(&self) -> bool {
        is_integer(&self.base_type)
    }
}

fn is_integer(base_type: &str) -> bool {
    matches!(base_type, "smallint" | "integer" | "bigint")
}

/// A column that was not compared: only one database has it, or its type is another one. The types,
/// where the column exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub column: String,
    pub a: Option<String>,
    pub b: Option<String>,
}

/// On what the rows of a table are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aligned {
    pub table: String,
    /// Those that both databases have, as the first one has them, in its order; all, where only
    /// one has the table.
    pub columns: Vec<Column>,
    /// The primary key as indexes into `columns`, in its own order. Empty: the databases have no
    /// common primary key, and rows are told apart by all they hold.
    pub key: Vec<usize>,
    pub left_out: Vec<LeftOut>,
    /// Only this database has the table; the other counts as having it empty.
    pub only_in: Option<Side>,
    /// Both sides have the same columns in the same order, so that a row's own text compares.
    pub(super) whole: bool,
    /// By index into `key`: compared as a number, on both sides.
    pub(super) integer_keys: Vec<bool>,
}

impl Aligned {
    /// Both databases have the same columns in the same order.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    pub fn column_names(&self) -> Vec<String> {
        let name = |column: &Column| column.name.clone();
        self.columns.iter().map(name).collect()
    }

    pub fn key_names(&self) -> Vec<String> {
        let name = |index: &usize| self.columns[*index].name.clone();
        self.key.iter().map(name).collect()
    }

    /// `None` for a database that lacks the table.
    pub(super) fn new(
        table: &str,
        a: Option<Layout>,
        b: Option<Layout>,
    ) -> Result<Self, StateError> {
        let (a, b, only_in) = match (a, b) {
            (Some(a), Some(b)) => (a, b, None),
            (Some(a), None) => (a.clone(), a, Some(Side::A)),
            (None, Some(b)) => (b.clone(), b, Some(Side::B)),
            (None, None) => {
                return Err(StateError::Missing {
                    table: table.to_owned(),
                    side: Side::A,
                });
            }
        };
        let whole = a.columns.len() == b.columns.len()
            && (a.columns.iter().zip(&b.columns))
                .all(|(a, b)| a.name == b.name && comparable(a, b));
        let mut aligned = Self {
            table: table.to_owned(),
            columns: Vec::new(),
            key: Vec::new(),
            left_out: Vec::new(),
            only_in,
            whole,
            integer_keys: Vec::new(),
        };
        let shared_key = a.key == b.key;
        for column in &a.columns {
            let other = b.columns.iter().find(|other| other.name == column.name);
            match other {
                Some(other) if comparable(column, other) => aligned.columns.push(column.clone()),
                Some(other) if shared_key && a.key.contains(&column.name) => {
                    return Err(StateError::IncomparableKey {
                        table: table.to_owned(),
                        column: column.name.clone(),
                        a: column.declared_type.clone(),
                        b: other.declared_type.clone(),
                    });
                }
                _ => aligned.left_out.push(LeftOut {
                    column: column.name.clone(),
                    a: Some(column.declared_type.clone()),
                    b: other.map(|other| other.declared_type.clone()),
                }),
            }
        }
        for column in &b.columns {
            if !a.columns.iter().any(|other| other.name == column.name) {
                aligned.left_out.push(LeftOut {
                    column: column.name.clone(),
                    a: None,
                    b: Some(column.declared_type.clone()),
                });
            }
        }
        if shared_key {
            let position = |columns: &[Column], name: &str| {
                columns
                    .iter()
                    .position(|column| column.name == name)
                    .expect("a primary key consists of columns of its table")
            };
            for name in &a.key {
                let index = position(&aligned.columns, name);
                aligned.key.push(index);
                let other = &b.columns[position(&b.columns, name)];
                aligned
                    .integer_keys
                    .push(aligned.columns[index].is_integer() && other.is_integer());
            }
        }
        Ok(aligned)
    }
}

/// Whether equal values of the two columns have equal texts, and different ones different texts.
///
/// That holds for two columns of one type, unless a modifier changes the text, and where a type was
/// widened or given another name for the same texts: `int` to `bigint`, `varchar(20)` to `text`,
/// `text` to an enumeration.
fn comparable(a: &Column, b: &Column) -> bool {
    if a.base_type == b.base_type {
        return a.modifier == b.modifier || !modifier_shows(&a.base_type);
    }
    match (
        a.base_type.strip_suffix("[]"),
        b.base_type.strip_suffix("[]"),
    ) {
        (Some(x), Some(y)) => same_texts(x, a, y, b),
        (None, None) => same_texts(&a.base_type, a, &b.base_type, b),
        _ => false,
    }
}

fn same_texts(x: &str, a: &Column, y: &str, b: &Column) -> bool {
    // Integers in a column `numeric` without a scale are written without a decimal point.
    let whole = |base: &str, column: &Column| {
        is_integer(base) || base == "oid" || (base == "numeric" && column.modifier == -1)
    };
    let text = |base: &str, column: &Column| {
        matches!(base, "text" | "character varying" | "name" | "uuid") || column.category == 'E'
    };
    (whole(x, a) && whole(y, b)) || (text(x, a) && text(y, b))
}

/// Whether the text of equal values depends on the modifier of the type: `1.5` is `1.50` as a
/// `numeric(10,2)`, and a `char(5)` is padded.
fn modifier_shows(base_type: &str) -> bool {
    matches!(
        base_type.trim_end_matches("[]"),
        "numeric" | "bpchar" | "\"bit\""
    )
}

/// The columns of a table in one database, and the names of its primary key.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub columns: Vec<Column>,
    pub key: Vec<String>,
}

const LAYOUT: &str = "SELECT a.attname::text, pg_catalog.quote_ident(a.attname), \
     pg_catalog.format_type(a.atttypid, a.atttypmod), pg_catalog.format_type(t.oid, -1), t.typcategory, base.modifier, \
     pg_catalog.pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated, \
     e.typtype IN ('e', 'r', 'm') OR e.typcategory = 'S' OR EXISTS (SELECT FROM pg_catalog.pg_opclass o \
         JOIN pg_catalog.pg_am m ON m.oid = o.opcmethod AND m.amname = 'btree' \
         WHERE o.opcdefault AND (o.opcintype = e.oid OR o.opcintype = (SELECT c.casttarget FROM pg_catalog.pg_cast c \
             WHERE c.castsource = e.oid AND c.castmethod = 'b' AND c.castcontext = 'i' LIMIT 1))), \
     CASE WHEN c.relkind IN ('r', 'p') THEN pg_catalog.pg_get_serial_sequence(pg_catalog.format('%I.%I', n.nspname, c.relname), a.attname) END, \
     coalesce(pg_catalog.array_position(i.indkey::int2[], a.attnum), -1) \
     FROM pg_catalog.pg_attribute a \
     JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
     JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     CROSS JOIN LATERAL (\
         WITH RECURSIVE domains(type, modifier, depth) AS (\
             SELECT a.atttypid, a.atttypmod, 0 \
             UNION ALL SELECT t.typbasetype, greatest(t.typtypmod, domains.modifier), depth + 1 \
             FROM domains JOIN pg_catalog.pg_type t ON t.oid = domains.type AND t.typtype = 'd') \
         SELECT type, modifier FROM domains ORDER BY depth DESC LIMIT 1) AS base \
     JOIN pg_catalog.pg_type t ON t.oid = base.type \
     JOIN pg_catalog.pg_type e ON e.oid = CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE t.oid END \
     LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
     LEFT JOIN pg_catalog.pg_index i ON i.indrelid = a.attrelid AND i.indisprimary \
     WHERE a.attrelid = pg_catalog.to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

impl Layout {
    /// `None` if there is no such table.
    pub(super) async fn read(client: &Client, table: &str) -> Result<Option<Self>, StateError> {
        let read_error = |source| StateError::Read {
            table: table.to_owned(),
            source,
        };
        let rows = client.query(LAYOUT, &[&table]).await.map_err(read_error)?;
        if rows.is_empty() {
            // A table can be without columns.
            let row = client
                .query_one("SELECT pg_catalog.to_regclass($1) IS NULL", &[&table])
                .await
                .map_err(read_error)?;
            if row.get(0) {
                return Ok(None);
            }
        }
        let mut columns = Vec::with_capacity(rows.len());
        let mut key = Vec::new();
        for row in &rows {
            let name: String = row.get(0);
            let position: i32 = row.get(11);
            if position >= 0 {
                key.push((position, name.clone()));
            }
            let generated = row.get::<char>(8) != '\0';
            columns.push(Column {
                name,
                quoted: row.get(1),
                declared_type: row.get(2),
                base_type: row.get(3),
                category: row.get(4),
                modifier: row.get(5),
                // What computes a generated column is stored like a default.
                default: if generated { None } else { row.get(6) },
                identity: match row.get(7) {
                    'a' => Some(Identity::Always),
                    'd' => Some(Identity::ByDefault),
                    _ => None,
                },
                generated,
                has_equality: row.get(9),
                sequence: row.get(10),
            });
        }
        key.sort();
        let key = key.into_iter().map(|(_, name)| name).collect();
        Ok(Some(Self { columns, key }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(base_type: &str, modifier: i32) -> Column {
        Column {
            name: "c".into(),
            quoted: "c".into(),
            declared_type: base_type.into(),
            base_type: base_type.into(),
            category: if base_type == "public.mood" { 'E' } else { 'X' },
            modifier,
            default: None,
            identity: None,
            generated: false,
            has_equality: true,
            sequence: None,
        }
    }

    #[test]
    fn a_widened_type_is_compared_by_its_text() {
        for ((a, x), (b, y)) in [
            (("integer", -1), ("bigint", -1)),
            (("integer[]", -1), ("bigint[]", -1)),
            (("integer", -1), ("numeric", -1)),
            (("character varying", 24), ("text", -1)),
            (("character varying", 24), ("character varying", 44)),
            (("text", -1), ("public.mood", -1)),
            (("character varying", 40), ("uuid", -1)),
        ] {
            assert!(comparable(&column(a, x), &column(b, y)), "{a} {b}");
            assert!(comparable(&column(b, y), &column(a, x)), "{b} {a}");
        }
    }

    #[test]
    fn a_type_whose_texts_differ_is_not_compared() {
        for ((a, x), (b, y)) in [
            (("integer", -1), ("text", -1)),
            (("integer", -1), ("integer[]", -1)),
            (("integer", -1), ("numeric", 655366)),
            (("numeric", 655366), ("numeric", 655368)),
            (("bpchar", 9), ("bpchar", 24)),
            (("bpchar", 9), ("text", -1)),
            (("real", -1), ("double precision", -1)),
            (("json", -1), ("jsonb", -1)),
            (
                ("timestamp without time zone", -1),
                ("timestamp with time zone", -1),
            ),
        ] {
            assert!(!comparable(&column(a, x), &column(b, y)), "{a} {b}");
        }
    }
}
