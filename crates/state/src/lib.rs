//! What the tables of a database hold: one digest per table, and the rows in which two databases
//! differ.
//!
//! Recording and replay digest with the same SQL, which is here, so equal digests mean equal
//! tables. A digest is the sum, modulo 2⁶⁴, of a 64-bit hash of each row's text, so it depends
//! neither on the order of the rows nor on where they lie.
//!
//! **What this crate does not do**: it writes nothing. It covers no sequences, materialised views
//! and large objects, which are not tables, and no foreign tables, whose rows are elsewhere.
//!
//! **Where to start reading**: [`digest_tables`] for one database, [`Pair`] for two.
//!
//! **The invariant to keep**: the same row has the same text in every session. The text depends on
//! session settings, so every query here runs under `FIXED_SETTINGS`.

mod columns;
mod differences;
mod foreign;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use futures::future;
use hindcast_pg::tokio::Client;
use hindcast_trace::TableDigest;

pub use columns::{Aligned, Column, Identity, LeftOut};
pub use differences::{Difference, FoundRow, Show, Written};
pub use foreign::{ForeignKey, parents_first};

use columns::Layout;

/// Why tables could not be digested or compared.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("cannot list the tables of the database")]
    List(#[source] hindcast_pg::Error),
    #[error("cannot read the table {table}")]
    Read {
        table: String,
        source: hindcast_pg::Error,
    },
    #[error("the table {table} does not exist in the {side} database")]
    Missing { table: String, side: Side },
    #[error(
        "the table {table} has different columns: {a} in the first database, {b} in the second"
    )]
    DifferentColumns { table: String, a: String, b: String },
    #[error(
        "rows of the table {table} cannot be told apart in the same way: the column {column} of its primary key is {a} in the first database, {b} in the second"
    )]
    IncomparableKey {
        table: String,
        column: String,
        a: String,
        b: String,
    },
}

impl StateError {
    fn different_columns(aligned: &Aligned) -> Self {
        let mut sides = [Vec::new(), Vec::new()];
        for column in &aligned.left_out {
            for (side, declared) in sides.iter_mut().zip([&column.a, &column.b]) {
                if let Some(declared) = declared {
                    side.push(format!("{} {declared}", column.column));
                }
            }
        }
        let [a, b] = sides.map(|columns| match columns.is_empty() {
            true => "none of its own".to_owned(),
            false => columns.join(", "),
        });
        Self::DifferentColumns {
            table: aligned.table.clone(),
            a,
            b,
        }
    }

    /// Whether this is about what one table is like, so that others can still be compared.
    pub fn is_about_layout(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. } | Self::DifferentColumns { .. } | Self::IncomparableKey { .. }
        )
    }
}

/// One of the two databases that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    A,
    B,
}

impl Side {
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::A => "first",
            Self::B => "second",
        })
    }
}

/// Everything that the text of a value depends on besides the value, and what large scans want.
/// `row_security = off` makes a policy that would hide rows an error instead of a wrong digest.
const FIXED_SETTINGS: &str = "SET LOCAL search_path = pg_catalog; SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC'; \
     SET LOCAL intervalstyle = 'postgres'; SET LOCAL extra_float_digits = 3; SET LOCAL bytea_output = 'hex'; \
     SET LOCAL xmloption = 'content'; SET LOCAL lc_monetary = 'C'; SET LOCAL row_security = off; \
     SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; \
     SET LOCAL jit = off; SET LOCAL work_mem = '64MB'; SET LOCAL cursor_tuple_fraction = 1.0";

/// Digests all user tables as of one snapshot, in the order of their names. Partitions count as
/// tables of their own, their parents do not.
///
/// The session must be idle: this runs in a read-only transaction of its own.
pub async fn digest_tables(client: &Client) -> Result<Vec<TableDigest>, StateError> {
    digest_tables_without(client, &|_| false).await
}

/// The same, without the columns whose names `left_out` is true of.
pub async fn digest_tables_without(
    client: &Client,
    left_out: &(dyn Fn(&str) -> bool + Sync),
) -> Result<Vec<TableDigest>, StateError> {
    in_snapshot(client, async {
        let tables = table_names(client).await?;
        let mut kept = kept_columns(client, left_out).await?;
        let mut digests = Vec::with_capacity(tables.len());
        for table in tables {
            let columns = kept.remove(&table);
            digests.push(digest_table(client, table, columns).await?);
        }
        Ok(digests)
    })
    .await
}

/// The other columns of tables that have one that is left out, quoted.
async fn kept_columns(
    client: &Client,
    left_out: &(dyn Fn(&str) -> bool + Sync),
) -> Result<BTreeMap<String, Vec<String>>, StateError> {
    let rows = client
        .query(
            "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), a.attname::text, pg_catalog.quote_ident(a.attname) \
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
             WHERE c.relkind = 'r' AND c.relpersistence <> 't' \
             AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') ORDER BY c.oid, a.attnum",
            &[],
        )
        .await
        .map_err(StateError::List)?;
    let (mut kept, mut concerned) = (BTreeMap::<String, Vec<String>>::new(), BTreeSet::new());
    for row in &rows {
        let (table, name, quoted): (String, &str, String) = (row.get(0), row.get(1), row.get(2));
        match left_out(name) {
            true => {
                concerned.insert(table.clone());
                kept.entry(table).or_default();
            }
            false => kept.entry(table).or_default().push(quoted),
        }
    }
    kept.retain(|table, _| concerned.contains(table));
    Ok(kept)
}

/// The user tables, in the order of their names: those that [`digest_tables`] digests.
pub async fn table_names(client: &Client) -> Result<Vec<String>, StateError> {
    let rows = client
        .query(
            "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) \
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.relkind = 'r' AND c.relpersistence <> 't' \
             AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') \
             ORDER BY pg_catalog.format('%I.%I', n.nspname, c.relname) COLLATE \"C\"",
            &[],
        )
        .await
        .map_err(StateError::List)?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// A row of these columns, or of all.
fn row_of(columns: Option<Vec<String>>) -> String {
    match columns {
        // `(r.*)` in parentheses is the whole row even if a column is called `r`.
        None => "(hindcast_row.*)".to_owned(),
        Some(columns) => {
            let of_row = columns
                .iter()
                .map(|column| format!("hindcast_row.{column}"));
            format!("ROW({})", of_row.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Of these columns, or of all.
async fn digest_table(
    client: &Client,
    table: String,
    columns: Option<Vec<String>>,
) -> Result<TableDigest, StateError> {
    let row = row_of(columns);
    let sql = format!(
        "SELECT pg_catalog.count(*), \
         pg_catalog.mod(coalesce(pg_catalog.sum(pg_catalog.hashtextextended({row}::text, 0)), 0), 18446744073709551616)::text \
         FROM ONLY {table} AS hindcast_row"
    );
    match client.query_one(&sql, &[]).await {
        Ok(row) => Ok(TableDigest {
            rows: row.get::<i64>(0) as u64,
            digest: wrapped(row.get(1)),
            table,
        }),
        Err(source) => Err(StateError::Read { table, source }),
    }
}

/// The rows of a table as texts, as its digest is of them.
#[derive(Debug)]
pub struct Rows {
    table: String,
    rows: Vec<String>,
}

/// The rows of one table, without the columns whose names `left_out` is true of.
pub async fn rows_without(
    client: &Client,
    table: &str,
    left_out: &(dyn Fn(&str) -> bool + Sync),
) -> Result<Rows, StateError> {
    in_snapshot(client, async {
        let columns = kept_columns(client, left_out).await?.remove(table);
        let row = row_of(columns);
        let sql = format!("SELECT {row}::text FROM ONLY {table} AS hindcast_row");
        let table = table.to_owned();
        match client.query(&sql, &[]).await {
            Ok(rows) => Ok(Rows {
                rows: rows.iter().map(|row| row.get(0)).collect(),
                table,
            }),
            Err(source) => Err(StateError::Read { table, source }),
        }
    })
    .await
}

impl Rows {
    pub fn any(&self, is: impl FnMut(&String) -> bool) -> bool {
        self.rows.iter().any(is)
    }

    /// The digest that the table would have if its rows were what `restored` makes of them.
    pub async fn restored(
        &self,
        client: &Client,
        restored: &(dyn Fn(&str) -> Option<String> + Sync),
    ) -> Result<u64, StateError> {
        const AT_A_TIME: usize = 10_000;
        const SQL: &str = "SELECT pg_catalog.mod(coalesce(pg_catalog.sum(\
            pg_catalog.hashtextextended(r, 0)), 0), 18446744073709551616)::text \
            FROM pg_catalog.unnest($1::text[]) AS r";
        let mut digest = 0u64;
        for rows in self.rows.chunks(AT_A_TIME) {
            let rows = rows
                .iter()
                .map(|row| restored(row).unwrap_or_else(|| row.clone()));
            let rows = array_of(rows);
            let sum = client.query_one(SQL, &[&rows]).await;
            let sum = sum.map_err(|source| StateError::Read {
                table: self.table.clone(),
                source,
            })?;
            digest = digest.wrapping_add(wrapped(sum.get(0)));
        }
        Ok(digest)
    }
}

/// As Postgres reads an array of texts.
fn array_of(texts: impl Iterator<Item = String>) -> String {
    let quoted = texts.map(|text| {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{text}\"")
    });
    format!("{{{}}}", quoted.collect::<Vec<_>>().join(","))
}

/// The sum of signed hashes, which Postgres reduced to within (-2⁶⁴, 2⁶⁴), as a number modulo 2⁶⁴.
fn wrapped(text: &str) -> u64 {
    let sum: i128 = text.parse().expect("mod() of an integer is an integer");
    sum as u64
}

async fn begin(client: &Client) -> Result<(), StateError> {
    let sql = format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {FIXED_SETTINGS}");
    client.batch_execute(&sql).await.map_err(StateError::List)
}

async fn end(client: &Client) {
    // A session that cannot even roll back is broken, and the first error says so better.
    let _ = client.batch_execute("ROLLBACK").await;
}

/// Runs `work` in a read-only transaction whose snapshot does not move, with [`FIXED_SETTINGS`].
async fn in_snapshot<T>(
    client: &Client,
    work: impl Future<Output = Result<T, StateError>>,
) -> Result<T, StateError> {
    let result = match begin(client).await {
        Ok(()) => work.await,
        Err(error) => Err(error),
    };
    end(client).await;
    result
}

/// Two databases, each seen as of one snapshot for as long as this is open.
///
/// Both sessions are in a read-only transaction meanwhile; dropped without [`Pair::close`] they
/// stay in it.
#[derive(Debug)]
pub struct Pair<'a> {
    a: &'a Client,
    b: &'a Client,
}

/// A table of at least one of the two databases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Schema-qualified, quoted where needed.
    pub name: String,
    /// Only this database has it.
    pub only_in: Option<Side>,
}

impl<'a> Pair<'a> {
    /// Both sessions must be idle.
    pub async fn open(a: &'a Client, b: &'a Client) -> Result<Self, StateError> {
        let pair = Self { a, b };
        match future::try_join(begin(a), begin(b)).await {
            Ok(_) => Ok(pair),
            Err(error) => {
                pair.close().await;
                Err(error)
            }
        }
    }

    /// Leaves both sessions as they were before.
    pub async fn close(self) {
        future::join(end(self.a), end(self.b)).await;
    }

    /// The user tables of both, in the order of their names, chosen as [`digest_tables`] chooses
    /// them.
    pub async fn tables(&self) -> Result<Vec<Table>, StateError> {
        let (a, b) = future::try_join(table_names(self.a), table_names(self.b)).await?;
        let mut tables: BTreeMap<String, Option<Side>> =
            a.into_iter().map(|name| (name, Some(Side::A))).collect();
        for name in b {
            tables
                .entry(name)
                .and_modify(|only_in| *only_in = None)
                .or_insert(Some(Side::B));
        }
        let table = |(name, only_in)| Table { name, only_in };
        Ok(tables.into_iter().map(table).collect())
    }

    /// The foreign keys between ordinary tables of the first database.
    pub async fn foreign_keys(&self) -> Result<Vec<ForeignKey>, StateError> {
        ForeignKey::read_all(self.a).await
    }

    /// On what the rows of a table (as [`Pair::tables`] names it) can be compared.
    pub async fn align(&self, table: &str) -> Result<Aligned, StateError> {
        let (a, b) =
            future::try_join(Layout::read(self.a, table), Layout::read(self.b, table)).await?;
        Aligned::new(table, a, b)
    }

    /// Calls `visit` with each row that differs, in the order of the primary key, until it breaks:
    /// integers in the order of numbers, everything else in the order of the bytes of its text.
    /// Rows without a primary key come in no particular order.
    ///
    /// Memory is bounded, whatever the size of the table and the number of differences.
    pub async fn differences(
        &self,
        aligned: &Aligned,
        show: Show,
        visit: &mut (dyn FnMut(Difference) -> ControlFlow<()> + Send),
    ) -> Result<(), StateError> {
        differences::visit_differences(self.a, self.b, aligned, show, visit).await
    }
}

/// The first rows in which a table differs between two databases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDifference {
    pub table: String,
    pub columns: Vec<String>,
    /// Empty: the table has no primary key, and rows are told apart by all they hold.
    pub key: Vec<String>,
    /// At most as many as asked for.
    pub rows: Vec<RowDifference>,
    /// There are more than `rows` shows.
    pub more: bool,
}

/// The values of a row as text, in the order of the table's columns. `None` is NULL; long values
/// may be cut and then carry their length and a hash.
pub type RowText = Vec<Option<String>>;

/// One row that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowDifference {
    OnlyInA(RowText),
    OnlyInB(RowText),
    /// The same primary key with other values.
    Changed {
        a: RowText,
        b: RowText,
    },
    /// Without a primary key: the same row, but not the same number of times.
    Count {
        row: RowText,
        a: u64,
        b: u64,
    },
}

/// Values longer than this are cut: these differences are for people to read.
const VALUE_CHARACTERS_MAX: usize = 200;

/// Finds rows of `table` (as [`digest_tables`] names it) that differ between the databases of two
/// idle sessions. A table that is not the same on both sides is an error; [`Pair`] compares what
/// can be compared.
pub async fn first_differences(
    a: &Client,
    b: &Client,
    table: &str,
    limit: usize,
) -> Result<TableDifference, StateError> {
    let pair = Pair::open(a, b).await?;
    let result = first_of_pair(&pair, table, limit).await;
    pair.close().await;
    result
}

async fn first_of_pair(
    pair: &Pair<'_>,
    table: &str,
    limit: usize,
) -> Result<TableDifference, StateError> {
    let aligned = pair.align(table).await?;
    if let Some(side) = aligned.only_in {
        return Err(StateError::Missing {
            table: table.to_owned(),
            side: side.other(),
        });
    }
    if !aligned.is_whole() {
        return Err(StateError::different_columns(&aligned));
    }
    let mut difference = TableDifference {
        table: table.to_owned(),
        columns: aligned.column_names(),
        key: aligned.key_names(),
        rows: Vec::new(),
        more: false,
    };
    let show = Show {
        value_characters_max: Some(VALUE_CHARACTERS_MAX),
        provenance: false,
    };
    pair.differences(&aligned, show, &mut |found| {
        if difference.rows.len() == limit {
            difference.more = true;
            return ControlFlow::Break(());
        }
        difference.rows.push(match found {
            Difference::OnlyInA(row) => RowDifference::OnlyInA(row.values),
            Difference::OnlyInB(row) => RowDifference::OnlyInB(row.values),
            Difference::Changed { a, b } if aligned.key.is_empty() => RowDifference::Count {
                row: a.values,
                a: a.count,
                b: b.count,
            },
            Difference::Changed { a, b } => RowDifference::Changed {
                a: a.values,
                b: b.values,
            },
        });
        ControlFlow::Continue(())
    })
    .await?;
    Ok(difference)
}
