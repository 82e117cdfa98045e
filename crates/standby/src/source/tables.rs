//! What is replicated: which tables of the primary, and what is known of them.

use std::collections::HashMap;

use hindcast_pg::{Connection, Error, quote_identifier};

use super::row_filter::RowFilter;
use super::shape::Shape;

/// Which tables are wanted, by patterns like `public.orders`, `sales.*` or `*_log`, and which rows
/// of them.
#[derive(Clone, Debug, Default)]
pub struct TableFilter {
    /// Empty: all.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    pub rows: Vec<RowFilter>,
}

impl TableFilter {
    pub fn wants(&self, schema: &str, name: &str) -> bool {
        let any = |patterns: &[String]| {
            patterns
                .iter()
                .any(|pattern| table_matches(pattern, schema, name))
        };
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }

    /// The condition of the rows of a table that are wanted; of several all have to be met.
    pub fn rows_of(&self, schema: &str, name: &str) -> Option<String> {
        let of_it = self.rows.iter();
        let of_it = of_it.filter(|filter| table_matches(&filter.pattern, schema, name));
        let conditions: Vec<_> = of_it.map(|filter| filter.condition.as_str()).collect();
        match conditions.as_slice() {
            [] => None,
            [one] => Some((*one).to_owned()),
            several => Some(format!("({})", several.join(") AND ("))),
        }
    }

    /// Patterns that no table fits: most likely misspelled.
    pub fn without_match<'a>(&'a self, found: &Tables) -> Vec<&'a str> {
        let fits = |pattern: &&String| {
            let replicated = found.tables.iter();
            let left_out = found.left_out.iter();
            !replicated
                .map(|table| (table.schema.as_str(), table.name.as_str()))
                .chain(left_out.filter_map(|(table, _)| table.split_once('.')))
                .any(|(schema, name)| table_matches(pattern, schema, name))
        };
        let of_rows = self.rows.iter().map(|filter| &filter.pattern);
        let patterns = self.include.iter().chain(of_rows);
        patterns.filter(fits).map(String::as_str).collect()
    }
}

/// A pattern without a dot is about the name, in whatever schema.
fn table_matches(pattern: &str, schema: &str, name: &str) -> bool {
    match pattern.split_once('.') {
        Some((schemas, names)) => glob(schemas, schema) && glob(names, name),
        None => glob(pattern, name),
    }
}

/// `*` stands for any number of characters.
fn glob(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(head) else {
        return false;
    };
    text.char_indices()
        .map(|(at, _)| at)
        .chain([text.len()])
        .any(|at| glob(rest, &text[at..]))
}

/// A table of the primary that holds rows: a plain one, or a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicatedTable {
    pub oid: u32,
    pub schema: String,
    pub name: String,
    /// Those that are stored: generated columns are made anew on the backup.
    pub columns: Vec<TableColumn>,
    /// Names of the primary key's columns; empty without one.
    pub primary_key: Vec<String>,
    /// What tells rows apart in the log, as in `pg_class.relreplident`: `d` the primary key, `i`
    /// another index, `f` the whole row; `n` also where the index is not there, or may be violated
    /// for a while (`DEFERRABLE`), so that the log cannot use it. `g`: the index has a generated
    /// column, which the log leaves out.
    pub identity: char,
    /// How many updates and deletions of its rows the primary's statistics count.
    pub changed: u64,
    /// What the primary's statistics say, as do the sizes.
    pub rows_estimate: u64,
    pub bytes: u64,
    pub pages: u64,
    pub shape: Shape,
    /// Which of its rows are wanted, as SQL; all without.
    pub rows: Option<String>,
    /// The primary's oid of the partitioned table that it is a part of, at the top.
    pub root: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumn {
    pub name: String,
    pub type_oid: u32,
    /// As SQL writes it, with its modifier.
    pub type_name: String,
    /// The collation's name, `C` and `POSIX` among them; empty where the type has none.
    pub collation: String,
}

impl ReplicatedTable {
    /// Whether the log can say which row was changed. Without that the primary refuses to update
    /// and delete rows of the table as long as it is published, unless it has a
    /// [computed](Self::has_computed_identity) one.
    pub fn has_identity(&self) -> bool {
        !matches!(self.identity, 'n' | 'g')
    }

    /// Whether its key has a generated column. Before version 18 the primary takes such a key for
    /// one: it refuses no update of a row, and logs it without saying of which.
    pub fn has_computed_identity(&self) -> bool {
        self.identity == 'g'
    }

    /// Whether publishing it takes nothing from the primary's users, as far as the primary knows:
    /// rows of a table without an identity were only ever inserted.
    pub fn may_be_published(&self) -> bool {
        self.has_identity() || self.identity == 'n' && self.changed == 0
    }

    /// Why it may not be published.
    pub fn unpublished(&self) -> &'static str {
        match self.has_computed_identity() {
            true => {
                "its key has a generated column, which is not in the log: an update would not say of which row it is"
            }
            false => {
                "it has no primary key or other replica identity, and its rows were updated or deleted, which the primary would refuse"
            }
        }
    }

    /// What publishing a table without an identity means for the primary's users.
    pub fn without_identity(&self) -> String {
        if self.has_computed_identity() {
            return format!(
                "{self} is replicated until a row of it is updated or deleted: {}. ALTER TABLE {} REPLICA IDENTITY FULL permits it",
                self.unpublished(),
                self.in_sql()
            );
        }
        format!(
            "{self} has no primary key or other replica identity: rows that are inserted are replicated, and the primary refuses to update or delete any while the table is published. ALTER TABLE {} REPLICA IDENTITY FULL permits it; --exclude-table {self} leaves the table out",
            self.in_sql()
        )
    }

    /// As SQL needs it, with quotes only where they are necessary: for sentences.
    pub fn in_sql(&self) -> String {
        let plain = |name: &str| {
            let fits = |c: char| c.is_ascii_lowercase() || c == '_';
            name.starts_with(fits) && name.chars().all(|c| fits(c) || c.is_ascii_digit())
        };
        match plain(&self.schema) && plain(&self.name) {
            true => self.to_string(),
            false => self.quoted(),
        }
    }

    /// As SQL writes it.
    pub fn quoted(&self) -> String {
        format!(
            "{}.{}",
            quote_identifier(&self.schema),
            quote_identifier(&self.name)
        )
    }

    pub fn column_list(&self) -> String {
        self.columns
            .iter()
            .map(|column| quote_identifier(&column.name))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

impl std::fmt::Display for ReplicatedTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

/// What a database has.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub tables: Vec<ReplicatedTable>,
    /// What holds rows and cannot be replicated, with the reason.
    pub left_out: Vec<(String, &'static str)>,
    /// What could be and is not wanted: its oid, schema and name.
    pub unwanted: Vec<(u32, String, String)>,
}

/// Tables of the user: not the system's, not our own. Sizes are those of the statistics: to look at
/// the files is to wait for whoever has a table locked.
const TABLES: &str = "\
SELECT c.oid, n.nspname, c.relname, c.relkind, c.relpersistence, \
       CASE WHEN c.relreplident = 'f' THEN 'f' \
            ELSE coalesce((SELECT CASE WHEN {computed} THEN 'g' ELSE c.relreplident END FROM pg_catalog.pg_index i \
                            WHERE i.indrelid = c.oid AND i.indimmediate AND i.indisvalid \
                              AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END), 'n') END, \
       greatest(c.reltuples, 0)::bigint, \
       (c.relpages + coalesce((SELECT t.relpages FROM pg_catalog.pg_class t WHERE t.oid = c.reltoastrelid), 0))::bigint \
           * current_setting('block_size')::bigint, \
       greatest(c.relpages, 0), \
       coalesce((SELECT pg_catalog.string_agg(a.attname, E'\\x01' ORDER BY k.place) \
                   FROM pg_catalog.pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place), pg_catalog.pg_attribute a \
                  WHERE i.indrelid = c.oid AND i.indisprimary AND k.place <= i.indnkeyatts \
                    AND a.attrelid = c.oid AND a.attnum = k.attnum), ''), \
       EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'), \
       c.oid || '/' || c.relfilenode || '/' || coalesce((SELECT pg_catalog.string_agg(a.attnum || ':' || a.xmin, ',' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a \
                   WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), ''), \
       CASE WHEN c.relispartition THEN pg_catalog.pg_partition_root(c.oid)::oid END, \
       pg_catalog.pg_stat_get_tuples_updated(c.oid) + pg_catalog.pg_stat_get_tuples_deleted(c.oid) \
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
 WHERE c.relkind IN ('r', 'f', 'm') AND c.relpersistence <> 't' \
   AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'hindcast') AND n.nspname !~ '^pg_(toast|temp)' \
 ORDER BY n.nspname, c.relname";

/// Whether an index `i` has a generated column: those are not in the log.
const COMPUTED: &str = "EXISTS (SELECT FROM pg_catalog.pg_attribute g WHERE g.attrelid = i.indrelid AND g.attgenerated <> '' \
                                  AND g.attnum = ANY (i.indkey::int2[]))";

const COLUMNS: &str = "\
SELECT a.attrelid, a.attname, a.atttypid, pg_catalog.format_type(a.atttypid, a.atttypmod), coalesce(l.collname, ''), \
       CASE WHEN l.collname = 'default' THEN (SELECT datcollate FROM pg_catalog.pg_database WHERE datname = current_database()) END \
  FROM pg_catalog.pg_attribute a \
  JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
  LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation \
 WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' \
 ORDER BY a.attrelid, a.attnum";

/// The tables of a database that can be replicated and are wanted.
pub fn tables(connection: &mut Connection, filter: &TableFilter) -> Result<Tables, Error> {
    let mut columns: HashMap<u32, Vec<TableColumn>> = Default::default();
    for row in connection.query(COLUMNS)?.iter() {
        columns.entry(row.parse(0)?).or_default().push(TableColumn {
            name: row.string(1),
            type_oid: row.parse(2)?,
            type_name: row.string(3),
            collation: row.text(5).unwrap_or(row.text(4).unwrap_or("")).to_owned(),
        });
    }
    let mut found = Tables::default();
    let sql = TABLES.replace("{computed}", COMPUTED);
    for row in connection.query(&sql)?.iter() {
        let (schema, name) = (row.string(1), row.string(2));
        let wanted = filter.wants(&schema, &name);
        let reason = match (row.text(3), row.text(4)) {
            _ if row.is_true(10) => Some("it belongs to an extension"),
            (Some("f"), _) => Some("a foreign table keeps its rows elsewhere"),
            (Some("m"), _) => Some("a materialized view is filled by REFRESH on the backup"),
            (_, Some("u")) => Some("an unlogged table is not in the log"),
            _ => None,
        };
        let oid = row.parse(0)?;
        match reason {
            Some(reason) if wanted => found.left_out.push((format!("{schema}.{name}"), reason)),
            None if !wanted => found.unwanted.push((oid, schema.clone(), name.clone())),
            _ => {}
        }
        if reason.is_some() || !wanted {
            continue;
        }
        let key = row.text(9).unwrap_or("");
        found.tables.push(ReplicatedTable {
            oid,
            columns: columns.remove(&oid).unwrap_or_default(),
            primary_key: key
                .split('\u{1}')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            identity: row
                .text(5)
                .and_then(|text| text.chars().next())
                .unwrap_or('d'),
            changed: row.parse(13)?,
            rows_estimate: row.parse(6)?,
            bytes: row.parse(7)?,
            pages: row.parse(8)?,
            shape: row.parse(11)?,
            rows: filter.rows_of(&schema, &name),
            root: row.text(12).map(|_| row.parse(12)).transpose()?,
            schema,
            name,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_about_schemas_and_names() {
        let wants = |include: &[&str], exclude: &[&str], schema, name| {
            let own = |patterns: &[&str]| patterns.iter().map(|&text| text.to_owned()).collect();
            TableFilter {
                include: own(include),
                exclude: own(exclude),
                rows: Vec::new(),
            }
            .wants(schema, name)
        };
        assert!(wants(&[], &[], "public", "orders"));
        assert!(wants(&["public.*"], &[], "public", "orders"));
        assert!(!wants(&["sales.*"], &[], "public", "orders"));
        assert!(wants(&["or*s"], &[], "public", "orders"));
        assert!(!wants(&["or*x"], &[], "public", "orders"));
        assert!(!wants(&["*"], &["*_log"], "public", "audit_log"));
        assert!(wants(&["*"], &["*_log"], "public", "audit_logs"));
    }
}
