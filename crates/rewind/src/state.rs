//! What the tables of a database hold: one digest per table, and the rows in which two databases differ.
//!
//! Recording and replay digest with the same SQL, here, so that equal digests mean equal tables. A digest is the sum, modulo 2⁶⁴,
//! of a 64-bit hash of each row's text: it depends neither on the order of the rows nor on where they lie. The text of a row
//! depends on session settings, so they are fixed first (see `FIXED_SETTINGS`).
//!
//! Sequences, materialised views and large objects are not tables and not covered; foreign tables hold their rows elsewhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hindcast_trace::TableDigest;
use tokio_postgres::{Client, Row};

/// Why tables could not be digested or compared.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("cannot list the tables of the database")]
    List(#[source] tokio_postgres::Error),
    #[error("cannot read the table {table}")]
    Read {
        table: String,
        source: tokio_postgres::Error,
    },
    #[error("the table {table} does not exist in the {side} database")]
    Missing { table: String, side: Side },
    #[error(
        "the table {table} has different columns: {a} in the first database, {b} in the second"
    )]
    DifferentColumns { table: String, a: String, b: String },
}

/// One of the two databases that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    A,
    B,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::A => "first",
            Self::B => "second",
        })
    }
}

/// Everything that the text of a value depends on besides the value. `row_security = off` makes a policy that would hide rows an
/// error instead of a wrong digest.
const FIXED_SETTINGS: &str = "SET LOCAL search_path = pg_catalog; SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC'; \
     SET LOCAL intervalstyle = 'postgres'; SET LOCAL extra_float_digits = 3; SET LOCAL bytea_output = 'hex'; \
     SET LOCAL xmloption = 'content'; SET LOCAL lc_monetary = 'C'; SET LOCAL row_security = off; \
     SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";

/// Digests all user tables as of one snapshot, in the order of their names. Partitions count as tables of their own, their
/// parents do not.
///
/// The session must be idle: this runs in a read-only transaction of its own.
pub async fn digest_tables(client: &Client) -> Result<Vec<TableDigest>, StateError> {
    in_snapshot(client, async {
        let tables = client
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
        let mut digests = Vec::with_capacity(tables.len());
        for row in tables {
            digests.push(digest_table(client, row.get(0)).await?);
        }
        Ok(digests)
    })
    .await
}

async fn digest_table(client: &Client, table: String) -> Result<TableDigest, StateError> {
    // `(r.*)` in parentheses is the whole row even if a column is called `r`.
    let sql = format!(
        "SELECT pg_catalog.count(*), \
         pg_catalog.mod(coalesce(pg_catalog.sum(pg_catalog.hashtextextended((hindcast_row.*)::text, 0)), 0), 18446744073709551616)::text \
         FROM ONLY {table} AS hindcast_row"
    );
    match client.query_one(&sql, &[]).await {
        Ok(row) => Ok(TableDigest {
            rows: row.get::<_, i64>(0) as u64,
            digest: wrapped(row.get(1)),
            table,
        }),
        Err(source) => Err(StateError::Read { table, source }),
    }
}

/// The sum of signed hashes, which Postgres reduced to within (-2⁶⁴, 2⁶⁴), as a number modulo 2⁶⁴.
fn wrapped(text: &str) -> u64 {
    let sum: i128 = text.parse().expect("mod() of an integer is an integer");
    sum as u64
}

/// Runs `work` in a read-only transaction whose snapshot does not move, with [`FIXED_SETTINGS`].
async fn in_snapshot<T>(
    client: &Client,
    work: impl Future<Output = Result<T, StateError>>,
) -> Result<T, StateError> {
    let begin = format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {FIXED_SETTINGS}");
    let result = match client.batch_execute(&begin).await {
        Ok(()) => work.await,
        Err(error) => Err(StateError::List(error)),
    };
    // A session that cannot even roll back is broken, and the first error says so better.
    let _ = client.batch_execute("ROLLBACK").await;
    result
}

/// The rows in which a table differs between two databases.
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

/// The values of a row as text, in the order of the table's columns. `None` is NULL; long values are cut and carry their length and a hash.
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

/// Values longer than this are cut: a difference is for people to read.
const VALUE_CHARACTERS_MAX: usize = 200;
const FETCH_ROWS: usize = 200;
const BUCKETS: u32 = 4096;

/// Finds rows of `table` (as [`digest_tables`] names it) that differ between the databases of two idle sessions.
///
/// Both tables are first digested in 4096 buckets by key, and only rows of buckets that differ are sorted, fetched in small
/// batches and merged: memory is bounded whatever the size of the table, and a large table with few differences sends few rows.
pub async fn first_differences(
    a: &Client,
    b: &Client,
    table: &str,
    limit: usize,
) -> Result<TableDifference, StateError> {
    in_snapshot(a, in_snapshot(b, differences(a, b, table, limit))).await
}

async fn differences(
    a: &Client,
    b: &Client,
    table: &str,
    limit: usize,
) -> Result<TableDifference, StateError> {
    let layout = Layout::read(a, table, Side::A).await?;
    let other = Layout::read(b, table, Side::B).await?;
    if layout.columns != other.columns {
        return Err(StateError::DifferentColumns {
            table: table.to_owned(),
            a: layout.columns.join(", "),
            b: other.columns.join(", "),
        });
    }
    let read_error = |source| StateError::Read {
        table: table.to_owned(),
        source,
    };
    let buckets = layout.bucket_sql(table);
    let (in_a, in_b) = (
        a.query(&buckets, &[]).await.map_err(read_error)?,
        b.query(&buckets, &[]).await.map_err(read_error)?,
    );
    let mut difference = TableDifference {
        table: table.to_owned(),
        columns: layout.columns.clone(),
        key: layout.key.clone(),
        rows: Vec::new(),
        more: false,
    };
    let suspects = differing_buckets(&in_a, &in_b);
    if suspects.is_empty() {
        return Ok(difference);
    }
    let sql = layout.rows_sql(table, &suspects);
    let mut left = Cursor::open(a, &sql).await.map_err(read_error)?;
    let mut right = Cursor::open(b, &sql).await.map_err(read_error)?;
    loop {
        left.fill().await.map_err(read_error)?;
        right.fill().await.map_err(read_error)?;
        let found = match (left.rows.front(), right.rows.front()) {
            (None, None) => return Ok(difference),
            (Some(l), Some(r)) if l.key == r.key => {
                let (Some(l), Some(r)) = (left.rows.pop_front(), right.rows.pop_front()) else {
                    unreachable!()
                };
                if l.hash != r.hash {
                    RowDifference::Changed {
                        a: l.values,
                        b: r.values,
                    }
                } else if l.count != r.count {
                    RowDifference::Count {
                        row: l.values,
                        a: l.count,
                        b: r.count,
                    }
                } else {
                    continue;
                }
            }
            (Some(l), Some(r)) if r.key < l.key => {
                RowDifference::OnlyInB(right.rows.pop_front().expect("it is in front").values)
            }
            (None, Some(_)) => {
                RowDifference::OnlyInB(right.rows.pop_front().expect("it is in front").values)
            }
            (Some(_), _) => {
                RowDifference::OnlyInA(left.rows.pop_front().expect("it is in front").values)
            }
        };
        if difference.rows.len() == limit {
            difference.more = true;
            return Ok(difference);
        }
        difference.rows.push(found);
    }
}

fn differing_buckets(a: &[Row], b: &[Row]) -> BTreeSet<i32> {
    let read = |rows: &[Row]| -> BTreeMap<i32, (i64, String)> {
        rows.iter()
            .map(|row| (row.get(0), (row.get(1), row.get(2))))
            .collect()
    };
    let (a, b) = (read(a), read(b));
    a.keys()
        .chain(b.keys())
        .copied()
        .filter(|bucket| a.get(bucket) != b.get(bucket))
        .collect()
}

/// The columns of a table and its primary key.
struct Layout {
    columns: Vec<String>,
    key: Vec<String>,
    /// The same, quoted where needed.
    quoted_columns: Vec<String>,
    quoted_key: Vec<String>,
}

impl Layout {
    async fn read(client: &Client, table: &str, side: Side) -> Result<Self, StateError> {
        let missing = || StateError::Missing {
            table: table.to_owned(),
            side,
        };
        let rows = client
            .query(
                "SELECT a.attname::text, pg_catalog.quote_ident(a.attname), \
                 coalesce(pg_catalog.array_position(i.indkey::int2[], a.attnum), -1) \
                 FROM pg_catalog.pg_attribute a \
                 LEFT JOIN pg_catalog.pg_index i ON i.indrelid = a.attrelid AND i.indisprimary \
                 WHERE a.attrelid = pg_catalog.to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
                &[&table],
            )
            .await
            .map_err(|source| StateError::Read { table: table.to_owned(), source })?;
        if rows.is_empty() {
            let row = client
                .query_one("SELECT pg_catalog.to_regclass($1) IS NULL", &[&table])
                .await
                .map_err(|source| StateError::Read {
                    table: table.to_owned(),
                    source,
                })?;
            if row.get(0) {
                return Err(missing());
            }
        }
        let mut layout = Self {
            columns: Vec::new(),
            key: Vec::new(),
            quoted_columns: Vec::new(),
            quoted_key: Vec::new(),
        };
        let mut key = Vec::new();
        for row in &rows {
            layout.columns.push(row.get(0));
            layout.quoted_columns.push(row.get(1));
            let position: i32 = row.get(2);
            if position >= 0 {
                key.push((position, row.get(0), row.get(1)));
            }
        }
        key.sort();
        for (_, name, quoted) in key {
            layout.key.push(name);
            layout.quoted_key.push(quoted);
        }
        Ok(layout)
    }

    /// What identifies a row, as text: its primary key, or 128 bits of hash of all of it.
    fn key_sql(&self) -> String {
        if self.quoted_key.is_empty() {
            "pg_catalog.concat(pg_catalog.hashtextextended((r.*)::text, 0), ' ', pg_catalog.hashtextextended((r.*)::text, 1))".to_owned()
        } else {
            let columns: Vec<_> = self
                .quoted_key
                .iter()
                .map(|column| format!("r.{column}"))
                .collect();
            format!("ROW({})::text", columns.join(", "))
        }
    }

    fn bucket_sql(&self, table: &str) -> String {
        format!(
            "SELECT (pg_catalog.hashtext({key}) & {mask}) AS bucket, pg_catalog.count(*), \
             pg_catalog.sum(pg_catalog.hashtextextended((r.*)::text, 0))::text FROM ONLY {table} AS r GROUP BY 1",
            key = self.key_sql(),
            mask = BUCKETS - 1,
        )
    }

    fn rows_sql(&self, table: &str, buckets: &BTreeSet<i32>) -> String {
        let key = self.key_sql();
        let values: Vec<String> = self
            .quoted_columns
            .iter()
            .map(|column| {
                format!(
                    "CASE WHEN pg_catalog.length(r.{column}::text) > {VALUE_CHARACTERS_MAX} THEN \
                     pg_catalog.format('%s… (%s characters, hash %s)', pg_catalog.left(r.{column}::text, {VALUE_CHARACTERS_MAX}), \
                     pg_catalog.length(r.{column}::text), pg_catalog.hashtextextended(r.{column}::text, 0)) \
                     ELSE r.{column}::text END"
                )
            })
            .collect();
        let values = format!("ARRAY[{}]::text[]", values.join(", "));
        let all = buckets.len() == BUCKETS as usize;
        let buckets: Vec<_> = buckets.iter().map(i32::to_string).collect();
        let which = if all {
            String::new()
        } else {
            format!(
                " WHERE (pg_catalog.hashtext({key}) & {}) IN ({})",
                BUCKETS - 1,
                buckets.join(", ")
            )
        };
        // Bytes compare the same way here and there, whatever the collation of the database is.
        let rows = format!(
            "SELECT pg_catalog.convert_to({key}, 'UTF8') AS key, pg_catalog.hashtextextended((r.*)::text, 0) AS hash, \
             {values} AS row_values FROM ONLY {table} AS r{which}"
        );
        if self.quoted_key.is_empty() {
            format!(
                "SELECT key, hash, pg_catalog.min(row_values), pg_catalog.count(*) FROM ({rows}) AS t GROUP BY 1, 2 ORDER BY 1"
            )
        } else {
            format!("SELECT key, hash, row_values, 1::bigint FROM ({rows}) AS t ORDER BY 1")
        }
    }
}

struct KeyedRow {
    key: Vec<u8>,
    hash: i64,
    values: RowText,
    count: u64,
}

/// Rows in the order of their keys, a few at a time.
struct Cursor<'a> {
    client: &'a Client,
    rows: VecDeque<KeyedRow>,
    exhausted: bool,
}

impl<'a> Cursor<'a> {
    async fn open(client: &'a Client, sql: &str) -> Result<Self, tokio_postgres::Error> {
        client
            .batch_execute(&format!("DECLARE hindcast_rows NO SCROLL CURSOR FOR {sql}"))
            .await?;
        Ok(Self {
            client,
            rows: VecDeque::new(),
            exhausted: false,
        })
    }

    async fn fill(&mut self) -> Result<(), tokio_postgres::Error> {
        if !self.rows.is_empty() || self.exhausted {
            return Ok(());
        }
        let rows = self
            .client
            .query(&format!("FETCH {FETCH_ROWS} FROM hindcast_rows"), &[])
            .await?;
        self.exhausted = rows.len() < FETCH_ROWS;
        self.rows = rows
            .iter()
            .map(|row| KeyedRow {
                key: row.get(0),
                hash: row.get(1),
                values: row.get(2),
                count: row.get::<_, i64>(3) as u64,
            })
            .collect();
        Ok(())
    }
}
