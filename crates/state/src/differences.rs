//! The rows in which a table differs between two databases, streamed in the order of their keys.
//!
//! Both tables are first digested in many buckets, each in one scan and both at the same time. Only
//! rows of buckets that differ are then sorted by the server, fetched in small batches and merged.
//! So memory is bounded whatever the size of the table, equal tables are read once, and a large
//! table with few differences sends few rows.
//!
//! Buckets are ranges of the primary key where it is one integer: then the second step reads only
//! those ranges, through the index. Otherwise a row's bucket comes from the row's hash, and the
//! second step scans the table once more.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use futures::future;
use hindcast_pg::tokio::Client;
use hindcast_pg::{Error, Row};

use crate::columns::Aligned;
use crate::{RowText, Side, StateError};

/// How the rows that differ are shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Show {
    /// Values longer than this many characters are cut and carry their length and a hash; `None`:
    /// they are complete.
    pub value_characters_max: Option<usize>,
    /// Who wrote a row, too.
    pub provenance: bool,
}

/// A row of one of the databases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRow {
    /// In the order of [`Aligned::columns`].
    pub values: RowText,
    /// How many times it is there; always 1 where there is a primary key.
    pub count: u64,
    /// `ROW(primary key)::text`, or the text of the whole row where there is none.
    pub key: String,
    /// If it was asked for. Of rows that are there several times, the one written by the highest
    /// transaction id.
    pub written: Option<Written>,
}

/// The system columns that say who wrote a row. `cmin` is worthless if a later transaction tried to
/// update or delete the row and rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub xmin: u32,
    pub cmin: u32,
}

/// One row that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    OnlyInA(FoundRow),
    OnlyInB(FoundRow),
    /// The same primary key with other values; or without one, the same row but not the same number
    /// of times.
    Changed {
        a: FoundRow,
        b: FoundRow,
    },
}

/// How many rows each side has, by bucket, and the sum of their hashes.
type Buckets = Vec<(u64, u64)>;

/// There are never more, so that the server's hash table and ours stay small.
const BUCKETS_MAX: u32 = 1 << 17;
const BUCKETS_MIN: u32 = 1 << 12;
/// Once this share of all rows lies in buckets that differ, it is quicker to read everything.
const SHARE_OF_ALL: u64 = 4;
/// A fetch brings at least this many bytes of values, and about four times as many at most, unless
/// single rows are longer.
const BATCH_BYTES: usize = 256 * 1024;
const BATCH_ROWS_FIRST: usize = 64;
const BATCH_ROWS_MAX: usize = 4096;

/// How rows are put into buckets.
#[derive(Clone, Copy, Debug)]
enum Bucketing {
    /// By ranges of the primary key: `low`, and the width of a range.
    Range { low: i64, width: i64, count: u32 },
    /// By these bits of the row's hash.
    Hash { mask: u32 },
}

/// Calls `visit` with every row that differs, until it breaks.
pub(super) async fn visit_differences(
    a: &Client,
    b: &Client,
    aligned: &Aligned,
    show: Show,
    visit: &mut (dyn FnMut(Difference) -> ControlFlow<()> + Send),
) -> Result<(), StateError> {
    let read_error = |source| StateError::Read {
        table: aligned.table.clone(),
        source,
    };
    let (a, b) = match aligned.only_in {
        None => (Some(a), Some(b)),
        Some(Side::A) => (Some(a), None),
        Some(Side::B) => (None, Some(b)),
    };
    let which = match (a, b) {
        (Some(a), Some(b)) => {
            let bucketing = bucketing(a, b, aligned).await.map_err(read_error)?;
            let digest = bucket_sql(aligned, bucketing);
            let (in_a, in_b) = future::try_join(
                read_buckets(a, &digest, bucketing),
                read_buckets(b, &digest, bucketing),
            )
            .await
            .map_err(read_error)?;
            match suspects(&in_a, &in_b) {
                Suspects::None => return Ok(()),
                Suspects::All => Which::All,
                Suspects::Some(buckets) => restrict(aligned, bucketing, &buckets),
            }
        }
        _ => Which::All,
    };
    let query = RowsQuery {
        sql: rows_sql(aligned, show, &which),
        in_ranges: matches!(which, Which::Ranges { .. }),
    };
    let (mut left, mut right) = future::try_join(
        Cursor::open(a, &query, aligned),
        Cursor::open(b, &query, aligned),
    )
    .await
    .map_err(read_error)?;
    loop {
        future::try_join(left.fill(), right.fill())
            .await
            .map_err(read_error)?;
        let Some(difference) = next_difference(&mut left.rows, &mut right.rows) else {
            if left.is_at_end() && right.is_at_end() {
                break;
            }
            continue;
        };
        if visit(difference).is_break() {
            break;
        }
    }
    future::try_join(left.close(), right.close())
        .await
        .map_err(read_error)?;
    Ok(())
}

/// `None`: what is there of one side was used up, or the rows in front were equal.
fn next_difference(left: &mut Batch, right: &mut Batch) -> Option<Difference> {
    loop {
        let order = match (left.rows.front(), right.rows.front()) {
            (Some(l), Some(r)) => l.key.cmp(&r.key),
            (Some(_), None) if right.exhausted => std::cmp::Ordering::Less,
            (None, Some(_)) if left.exhausted => std::cmp::Ordering::Greater,
            _ => return None,
        };
        match order {
            std::cmp::Ordering::Less => {
                return left.rows.pop_front().map(|l| Difference::OnlyInA(l.row));
            }
            std::cmp::Ordering::Greater => {
                return right.rows.pop_front().map(|r| Difference::OnlyInB(r.row));
            }
            std::cmp::Ordering::Equal => {
                let (Some(l), Some(r)) = (left.rows.pop_front(), right.rows.pop_front()) else {
                    unreachable!("both have a row in front")
                };
                if l.hash != r.hash || l.row.count != r.row.count {
                    return Some(Difference::Changed { a: l.row, b: r.row });
                }
            }
        }
    }
}

/// Chooses buckets of some tens of rows each.
async fn bucketing(a: &Client, b: &Client, aligned: &Aligned) -> Result<Bucketing, Error> {
    let table = &aligned.table;
    let rows = async |client: &Client| -> Result<u64, Error> {
        // A table that was never analysed says -1; then its size has to do.
        let row = client
            .query_one(
                "SELECT greatest(c.reltuples, pg_catalog.pg_relation_size(c.oid) / 128)::int8 \
                 FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass($1)",
                &[table],
            )
            .await?;
        Ok(row.get::<Option<i64>>(0).unwrap_or(0) as u64)
    };
    let rows = rows(a).await?.max(rows(b).await?);
    let wanted = u32::try_from(rows / 32)
        .unwrap_or(BUCKETS_MAX)
        .next_power_of_two()
        .clamp(BUCKETS_MIN, BUCKETS_MAX);
    let hash = Bucketing::Hash { mask: wanted - 1 };
    let ([index], [true]) = (&aligned.key[..], &aligned.integer_keys[..]) else {
        return Ok(hash);
    };
    let column = &aligned.columns[*index].quoted;
    let bounds = format!(
        "SELECT pg_catalog.min(r.{column})::int8, pg_catalog.max(r.{column})::int8 FROM ONLY {table} AS r"
    );
    let (in_a, in_b) =
        future::try_join(a.query_one(&bounds, &[]), b.query_one(&bounds, &[])).await?;
    let bound = |column: usize| [&in_a, &in_b].map(|row| row.get::<Option<i64>>(column));
    let (Some(low), Some(high)) = (
        bound(0).into_iter().flatten().min(),
        bound(1).into_iter().flatten().max(),
    ) else {
        return Ok(hash);
    };
    // The server would overflow in `k - low`.
    let Some(span) = high.checked_sub(low).and_then(|span| span.checked_add(1)) else {
        return Ok(hash);
    };
    let width = span / i64::from(wanted) + 1;
    Ok(Bucketing::Range {
        low,
        width,
        count: (span / width) as u32 + 1,
    })
}

/// The text of a row, or of what is compared of it. `(r.*)` in parentheses is the whole row even if
/// a column is called `r`.
fn row_text(aligned: &Aligned) -> String {
    if aligned.whole {
        return "(r.*)::text".to_owned();
    }
    let columns: Vec<_> = (aligned.columns.iter())
        .map(|column| format!("r.{}", column.quoted))
        .collect();
    format!("ROW({})::text", columns.join(", "))
}

fn hash(text: &str, seed: u8) -> String {
    format!("pg_catalog.hashtextextended({text}, {seed})")
}

fn bucket_sql(aligned: &Aligned, bucketing: Bucketing) -> String {
    let table = &aligned.table;
    let hash = hash(&row_text(aligned), 0);
    match bucketing {
        Bucketing::Range { low, width, .. } => {
            let key = &aligned.columns[aligned.key[0]].quoted;
            format!(
                "SELECT ((r.{key}::int8 - ({low})) / {width})::int4, pg_catalog.count(*), pg_catalog.sum({hash})::text \
                 FROM ONLY {table} AS r GROUP BY 1"
            )
        }
        // OFFSET keeps the planner from computing the hash twice.
        Bucketing::Hash { mask } => format!(
            "SELECT (h & {mask})::int4, pg_catalog.count(*), pg_catalog.sum(h)::text \
             FROM (SELECT {hash} AS h FROM ONLY {table} AS r OFFSET 0) AS hashes GROUP BY 1"
        ),
    }
}

async fn read_buckets(client: &Client, sql: &str, bucketing: Bucketing) -> Result<Buckets, Error> {
    let count = match bucketing {
        Bucketing::Range { count, .. } => count,
        Bucketing::Hash { mask } => mask + 1,
    };
    let mut buckets = vec![(0, 0); count as usize];
    let mut rows = client.stream(sql, &[]).await?;
    while let Some(row) = rows.next().await? {
        let sum: i128 = (row.get::<&str>(2).parse()).expect("a sum of integers is an integer");
        buckets[row.get::<i32>(0) as usize] = (row.get::<i64>(1) as u64, sum as u64);
    }
    Ok(buckets)
}

enum Suspects {
    None,
    Some(Vec<u32>),
    /// So many that it does not pay to pick them.
    All,
}

fn suspects(a: &Buckets, b: &Buckets) -> Suspects {
    let (mut rows, mut suspicious) = (0, 0);
    let mut buckets = Vec::new();
    for (number, (a, b)) in a.iter().zip(b).enumerate() {
        rows += a.0 + b.0;
        if a != b {
            suspicious += a.0 + b.0;
            buckets.push(number as u32);
        }
    }
    if buckets.is_empty() {
        Suspects::None
    } else if suspicious > rows / SHARE_OF_ALL {
        Suspects::All
    } else {
        Suspects::Some(buckets)
    }
}

/// Which rows of a table are read.
enum Which {
    All,
    /// Those with a one-column integer key within one of these ranges, both ends included: `{1,7}`,
    /// `{3,9}`.
    Ranges {
        from: String,
        to: String,
    },
    /// Those for which this holds.
    Where(String),
}

struct RowsQuery {
    sql: String,
    /// It reads many short ranges of the key.
    in_ranges: bool,
}

/// The rows of these buckets.
fn restrict(aligned: &Aligned, bucketing: Bucketing, buckets: &[u32]) -> Which {
    match bucketing {
        Bucketing::Range { low, width, .. } => {
            let mut ranges: Vec<(u32, u32)> = Vec::new();
            for &bucket in buckets {
                match ranges.last_mut() {
                    Some((_, last)) if *last + 1 == bucket => *last = bucket,
                    _ => ranges.push((bucket, bucket)),
                }
            }
            let start = |bucket: u32| low.saturating_add(width.saturating_mul(i64::from(bucket)));
            let list = |value: &dyn Fn(&(u32, u32)) -> i64| {
                let values: Vec<_> = ranges
                    .iter()
                    .map(|range| value(range).to_string())
                    .collect();
                values.join(",")
            };
            Which::Ranges {
                from: list(&|range| start(range.0)),
                to: list(&|range| start(range.1).saturating_add(width - 1)),
            }
        }
        Bucketing::Hash { mask } => {
            let list: Vec<_> = buckets.iter().map(u32::to_string).collect();
            Which::Where(format!(
                "({} & {mask}) = ANY ('{{{}}}'::int8[])",
                hash(&row_text(aligned), 0),
                list.join(",")
            ))
        }
    }
}

/// Columns: the parts of the key, then hash, values, how often, `xmin << 32 | cmin` or NULL, text
/// of the key.
fn rows_sql(aligned: &Aligned, show: Show, which: &Which) -> String {
    let table = &aligned.table;
    let filter = match which {
        Which::Where(condition) => format!(" WHERE {condition}"),
        Which::All | Which::Ranges { .. } => String::new(),
    };
    let text = row_text(aligned);
    let values: Vec<_> = aligned
        .columns
        .iter()
        .map(|column| value_sql(&column.quoted, show.value_characters_max))
        .collect();
    let values = format!("ARRAY[{}]::text[]", values.join(", "));
    let written = if show.provenance {
        "(r.xmin::text::int8 << 32) | r.cmin::text::int8"
    } else {
        "NULL::int8"
    };
    if aligned.key.is_empty() {
        // 128 bits of hash stand for the row.
        return format!(
            "SELECT {hash}, {other}, {hash}, pg_catalog.min({values}), pg_catalog.count(*), pg_catalog.max({written}), pg_catalog.min({text}) \
             FROM ONLY {table} AS r{filter} GROUP BY 1, 2 ORDER BY 1, 2",
            hash = hash(&text, 0),
            other = hash(&text, 1),
        );
    }
    let key: Vec<_> = aligned
        .key
        .iter()
        .map(|index| format!("r.{}", aligned.columns[*index].quoted))
        .collect();
    // Numbers are in the order of numbers. Bytes compare the same way here and there, whatever the
    // collations of the databases are.
    let (parts, order): (Vec<_>, Vec<_>) = key
        .iter()
        .zip(&aligned.integer_keys)
        .map(|(column, integer)| {
            if *integer {
                (format!("{column}::int8"), column.clone())
            } else {
                let bytes = format!("pg_catalog.convert_to({column}::text, 'UTF8')");
                (bytes.clone(), bytes)
            }
        })
        .unzip();
    let rows = format!(
        "SELECT {parts}, {hash}, {values}, 1::int8, {written}, ROW({key})::text FROM ONLY {table} AS r{filter}",
        parts = parts.join(", "),
        hash = hash(&text, 0),
        key = key.join(", "),
    );
    let order = order.join(", ");
    match which {
        Which::All | Which::Where(_) => format!("{rows} ORDER BY {order}"),
        // Each range is a short scan of the index. OFFSET keeps the planner from joining the other
        // way round, every row with all ranges.
        Which::Ranges { from, to } => format!(
            "SELECT found.* FROM ROWS FROM (pg_catalog.unnest('{{{from}}}'::int8[]), pg_catalog.unnest('{{{to}}}'::int8[])) AS wanted(low, high), \
             LATERAL ({rows} WHERE {order} BETWEEN wanted.low AND wanted.high ORDER BY {order} OFFSET 0) AS found ORDER BY 1"
        ),
    }
}

fn value_sql(column: &str, characters_max: Option<usize>) -> String {
    let Some(max) = characters_max else {
        return format!("r.{column}::text");
    };
    format!(
        "CASE WHEN pg_catalog.length(r.{column}::text) > {max} THEN \
         pg_catalog.format('%s… (%s characters, hash %s)', pg_catalog.left(r.{column}::text, {max}), \
         pg_catalog.length(r.{column}::text), pg_catalog.hashtextextended(r.{column}::text, 0)) \
         ELSE r.{column}::text END"
    )
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KeyPart {
    Integer(i64),
    /// Bytes in hexadecimal, which has their order.
    Text(String),
}

#[derive(Debug)]
struct KeyedRow {
    key: Vec<KeyPart>,
    hash: i64,
    row: FoundRow,
}

#[derive(Debug, Default)]
struct Batch {
    rows: VecDeque<KeyedRow>,
    exhausted: bool,
}

/// Rows in the order of their keys, a few at a time.
struct Cursor<'a> {
    /// `None`: this database does not have the table.
    client: Option<&'a Client>,
    /// Which parts of the key are integers.
    integer_keys: Vec<bool>,
    batch_rows: usize,
    rows: Batch,
}

impl<'a> Cursor<'a> {
    async fn open(
        client: Option<&'a Client>,
        query: &RowsQuery,
        aligned: &Aligned,
    ) -> Result<Self, Error> {
        if let Some(client) = client {
            let declare = format!("DECLARE hindcast_rows NO SCROLL CURSOR FOR {}", query.sql);
            // The planner cannot know how short the ranges are, and might scan the table for each
            // of them.
            let sql = match query.in_ranges {
                true => format!(
                    "SET LOCAL enable_seqscan = off; {declare}; SET LOCAL enable_seqscan = on"
                ),
                false => declare,
            };
            client.batch_execute(&sql).await?;
        }
        Ok(Self {
            client,
            integer_keys: if aligned.key.is_empty() {
                vec![true, true]
            } else {
                aligned.integer_keys.clone()
            },
            batch_rows: BATCH_ROWS_FIRST,
            rows: Batch {
                rows: VecDeque::new(),
                exhausted: client.is_none(),
            },
        })
    }

    fn is_at_end(&self) -> bool {
        self.rows.exhausted && self.rows.rows.is_empty()
    }

    async fn fill(&mut self) -> Result<(), Error> {
        let Some(client) = self.client else {
            return Ok(());
        };
        if !self.rows.rows.is_empty() || self.rows.exhausted {
            return Ok(());
        }
        let rows = client
            .query(
                &format!("FETCH {} FROM hindcast_rows", self.batch_rows),
                &[],
            )
            .await?;
        self.rows.exhausted = rows.len() < self.batch_rows;
        self.rows.rows = rows.iter().map(|row| self.read(row)).collect();
        let values = self.rows.rows.iter().flat_map(|row| &row.row.values);
        let bytes: usize = values.flatten().map(String::len).sum();
        if bytes < BATCH_BYTES {
            self.batch_rows = (self.batch_rows * 2).min(BATCH_ROWS_MAX);
        } else if bytes > BATCH_BYTES * 4 {
            self.batch_rows = (self.batch_rows / 2).max(1);
        }
        Ok(())
    }

    fn read(&self, row: &Row) -> KeyedRow {
        let parts = self.integer_keys.len();
        KeyedRow {
            key: (self.integer_keys.iter().enumerate())
                .map(|(part, integer)| match integer {
                    true => KeyPart::Integer(row.get(part)),
                    false => KeyPart::Text(row.get(part)),
                })
                .collect(),
            hash: row.get(parts),
            row: FoundRow {
                values: row.get(parts + 1),
                count: row.get::<i64>(parts + 2) as u64,
                written: row.get::<Option<i64>>(parts + 3).map(|packed| Written {
                    xmin: (packed as u64 >> 32) as u32,
                    cmin: packed as u32,
                }),
                key: row.get(parts + 4),
            },
        }
    }

    async fn close(self) -> Result<(), Error> {
        match self.client {
            Some(client) => client.batch_execute("CLOSE hindcast_rows").await,
            None => Ok(()),
        }
    }
}
