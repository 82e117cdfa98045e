//! Several sessions on the primary that read one snapshot, sharing what there is to read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hindcast_pg::{ConnectOptions, Connection, DatabaseUrl, Error, Interrupter, quote_literal};

use super::error::{InitialError, Side};
use crate::source::{ReplicatedTable, session};
use crate::status::{Control, CopyProgress, State};

/// Where the rows come from.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub primary: &'a DatabaseUrl,
    /// An exported snapshot. Whoever exported it keeps it until the copy has ended.
    pub snapshot: &'a str,
    /// Sessions that read at the same time.
    pub workers: usize,
    /// Tables larger than this are read in pieces of about this size, by several workers.
    pub chunk_bytes: u64,
}

impl Source<'_> {
    pub const CHUNK_BYTES: u64 = 128 << 20;
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    pub tables: usize,
    pub rows: u64,
    /// In COPY's text format.
    pub bytes: u64,
}

/// A piece of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Task {
    table: usize,
    /// The first block and the one after the last; the last piece of a table has no end, since the
    /// table may have grown.
    blocks: Option<(u64, Option<u64>)>,
}

/// Reads pieces of tables in one transaction, and counts.
pub(super) struct Reader<'a> {
    connection: Connection,
    tables: &'a [ReplicatedTable],
    shared: &'a Shared,
}

struct Shared {
    tasks: Vec<Task>,
    next: AtomicUsize,
    /// Pieces of each table that are not copied yet.
    left: Vec<AtomicUsize>,
    tables_done: AtomicUsize,
    rows: AtomicU64,
    bytes: AtomicU64,
    current: Mutex<String>,
    failed: AtomicBool,
    /// Why it ended: the first reason, of which all others are consequences.
    failure: Mutex<Option<InitialError>>,
}

impl Shared {
    fn fail(&self, error: InitialError) {
        self.failed.store(true, Ordering::SeqCst);
        locked(&self.failure).get_or_insert(error);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A failed read: of the primary, or of whoever takes what was read.
pub(super) enum ReadError {
    Primary(Error),
    Taker(InitialError),
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        Self::Primary(error)
    }
}

impl Reader<'_> {
    /// Hands over each row of a piece of a table, as a line of COPY's text format.
    fn read(
        &mut self,
        task: Task,
        mut each: impl FnMut(&[u8]) -> Result<(), InitialError>,
    ) -> Result<(), InitialError> {
        let table = &self.tables[task.table];
        let shared = self.shared;
        locked(&shared.current).clone_from(&table.to_string());
        // The counters are shared: not for every row.
        let (mut rows, mut bytes) = (0, 0);
        let result = self
            .connection
            .copy_out(&copy_to(table, task.blocks), |line| {
                rows += 1;
                bytes += line.len() as u64;
                if rows % 1024 == 0 {
                    shared.rows.fetch_add(1024, Ordering::Relaxed);
                    shared
                        .bytes
                        .fetch_add(std::mem::take(&mut bytes), Ordering::Relaxed);
                }
                each(line).map_err(ReadError::Taker)
            });
        shared.rows.fetch_add(rows % 1024, Ordering::Relaxed);
        shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        result.map(drop).map_err(|error| match error {
            ReadError::Taker(error) => error,
            ReadError::Primary(source) => InitialError::Copy {
                table: table.to_string(),
                side: Side::Primary,
                source,
            },
        })
    }
}

fn copy_to(table: &ReplicatedTable, blocks: Option<(u64, Option<u64>)>) -> String {
    let rows = table.rows.iter().map(|rows| format!("({rows})"));
    let mut conditions: Vec<String> = rows.collect();
    if let Some((from, to)) = blocks {
        if from > 0 {
            conditions.push(format!("ctid >= '({from},0)'::tid"));
        }
        if let Some(to) = to {
            conditions.push(format!("ctid < '({to},0)'::tid"));
        }
    }
    let condition = match conditions.is_empty() {
        true => String::new(),
        false => format!(" WHERE {}", conditions.join(" AND ")),
    };
    format!(
        "COPY (SELECT {} FROM ONLY {}{condition}) TO STDOUT",
        table.column_list(),
        table.quoted()
    )
}

/// A session whose values have a text that depends on nothing but the value. The path is empty so
/// that `regclass` and its like are qualified; row security that would hide rows is an error; and
/// however long something takes, it is no server's business to end it.
pub(crate) fn reading() -> ConnectOptions {
    session("hindcast standby copy")
        .set("search_path", "")
        .set("row_security", "off")
        .set("statement_timeout", "0")
        .set("idle_in_transaction_session_timeout", "0")
        .set("client_encoding", "UTF8")
}

/// A session on the primary that sees the snapshot.
pub(super) fn at_snapshot(source: &Source<'_>) -> Result<Connection, InitialError> {
    let mut connection = Connection::connect(source.primary, &reading())
        .map_err(InitialError::connect(Side::Primary))?;
    connection
        .execute(&format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {}",
            quote_literal(source.snapshot)
        ))
        .map_err(InitialError::query(
            Side::Primary,
            "read the slot's snapshot",
        ))?;
    Ok(connection)
}

/// What is known of the tables once nobody can rewrite them any more.
struct Sizes {
    /// Blocks, for tables that can be read in pieces.
    blocks: HashMap<u32, u64>,
    bytes_estimate: u64,
    block_bytes: u64,
}

/// Keeps the tables from being rewritten as long as the session lasts, and sees that none was since
/// the snapshot: `TRUNCATE` and `VACUUM FULL` do not respect snapshots, and pieces of a table that
/// were read before and after one would not fit together.
fn protect(holder: &mut Connection, tables: &[ReplicatedTable]) -> Result<Sizes, InitialError> {
    let failed = InitialError::query(Side::Primary, "look at its tables");
    holder
        .execute("SET LOCAL lock_timeout = '60s'")
        .map_err(&failed)?;
    let mut pipeline = holder.pipeline();
    for table in tables {
        pipeline.run_sql(&format!(
            "LOCK TABLE ONLY {} IN ACCESS SHARE MODE",
            table.quoted()
        ));
    }
    pipeline.finish().map_err(|source| {
        let run = source.server().and_then(|error| error.run);
        let table = run.and_then(|run| tables.get(run));
        let table = table.map_or_else(|| "the tables".to_owned(), ToString::to_string);
        match source.code() {
            Some("42P01" | "3F000") => InitialError::Rewritten { table },
            _ => InitialError::Copy {
                table,
                side: Side::Primary,
                source,
            },
        }
    })?;
    let oids: Vec<String> = tables.iter().map(|table| table.oid.to_string()).collect();
    // The catalog is read as of the snapshot, the functions look at what is there now.
    let rows = holder
        .query(&format!(
            "SELECT c.oid, c.relfilenode IS NOT DISTINCT FROM pg_catalog.pg_relation_filenode(c.oid), m.amname = 'heap', \
                    pg_catalog.pg_relation_size(c.oid), pg_catalog.pg_table_size(c.oid), pg_catalog.current_setting('block_size') \
               FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_am m ON m.oid = c.relam \
              WHERE c.oid = ANY ('{{{}}}'::oid[])",
            oids.join(",")
        ))
        .map_err(&failed)?;
    let mut sizes = Sizes {
        blocks: HashMap::new(),
        bytes_estimate: 0,
        block_bytes: 8192,
    };
    let mut as_they_were = HashMap::new();
    for row in rows.iter() {
        let oid: u32 = row.parse(0).map_err(&failed)?;
        sizes.block_bytes = row.parse(5).map_err(&failed)?;
        sizes.bytes_estimate += row.parse::<u64>(4).unwrap_or(0);
        if row.is_true(2) {
            let bytes = row.parse::<u64>(3).unwrap_or(0);
            sizes.blocks.insert(oid, bytes.div_ceil(sizes.block_bytes));
        }
        as_they_were.insert(oid, row.is_true(1));
    }
    match tables
        .iter()
        .find(|table| as_they_were.get(&table.oid) != Some(&true))
    {
        Some(table) => Err(InitialError::Rewritten {
            table: table.to_string(),
        }),
        None => Ok(sizes),
    }
}

/// Largest tables first, so that nobody is left with one at the end; pieces of a table one after
/// the other, so that its pages are read in order.
fn plan(tables: &[ReplicatedTable], sizes: &Sizes, chunk_bytes: u64) -> Vec<Task> {
    let per_chunk = (chunk_bytes / sizes.block_bytes).max(1);
    let blocks_of = |table: &ReplicatedTable| sizes.blocks.get(&table.oid).copied().unwrap_or(0);
    let mut order: Vec<usize> = (0..tables.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse((blocks_of(&tables[at]), tables[at].bytes)));
    let mut tasks = Vec::new();
    for table in order {
        let blocks = blocks_of(&tables[table]);
        if blocks <= per_chunk {
            tasks.push(Task {
                table,
                blocks: None,
            });
            continue;
        }
        let mut from = 0;
        while from < blocks {
            let to = from + per_chunk;
            tasks.push(Task {
                table,
                blocks: Some((from, (to < blocks).then_some(to))),
            });
            from = to;
        }
    }
    tasks
}

/// Reads all tables at the snapshot: each of `takers` has a session on the primary beside it, and
/// `take` is called for one piece of a table after the other. The first failure ends them all.
pub(super) fn run<T: Send>(
    source: &Source<'_>,
    tables: &[ReplicatedTable],
    takers: Vec<(T, Option<Interrupter>)>,
    control: &Control,
    take: impl Fn(&mut T, &ReplicatedTable, &mut Piece<'_, '_>) -> Result<(), InitialError> + Sync,
) -> Result<Copied, InitialError> {
    let mut holder = at_snapshot(source)?;
    let sizes = protect(&mut holder, tables)?;
    let tasks = plan(tables, &sizes, source.chunk_bytes);
    let left: Vec<AtomicUsize> = tables.iter().map(|_| AtomicUsize::new(0)).collect();
    for task in &tasks {
        left[task.table].fetch_add(1, Ordering::Relaxed);
    }
    let shared = Shared {
        tasks,
        next: AtomicUsize::new(0),
        left,
        tables_done: AtomicUsize::new(0),
        rows: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        current: Mutex::default(),
        failed: AtomicBool::new(false),
        failure: Mutex::default(),
    };
    let shared = &shared;
    let mut interrupters = Vec::new();
    let mut pairs = Vec::with_capacity(takers.len());
    for (taker, interrupter) in takers {
        let connection = at_snapshot(source)?;
        interrupters.push(connection.interrupter());
        interrupters.extend(interrupter);
        let reader = Reader {
            connection,
            tables,
            shared,
        };
        pairs.push((taker, reader));
    }
    let show = || {
        let progress = CopyProgress {
            tables_done: shared.tables_done.load(Ordering::Relaxed),
            tables: tables.len(),
            rows_done: shared.rows.load(Ordering::Relaxed),
            bytes_done: shared.bytes.load(Ordering::Relaxed),
            bytes_estimate: sizes.bytes_estimate,
            current: locked(&shared.current).clone(),
        };
        control.update(|status| status.state = State::Copying(progress));
    };
    let (ended, endings) = channel::<()>();
    std::thread::scope(|scope| {
        for (mut taker, mut reader) in pairs {
            let (ended, take) = (ended.clone(), &take);
            scope.spawn(move || {
                if let Err(error) = work(&mut taker, &mut reader, take) {
                    reader.shared.fail(error);
                }
                drop(ended);
            });
        }
        drop(ended);
        let mut interrupted = false;
        loop {
            let waited = endings.recv_timeout(Duration::from_millis(50));
            show();
            if control.is_stopping() {
                shared.fail(InitialError::Stopped);
            }
            if shared.failed.load(Ordering::SeqCst) && !interrupted {
                interrupters.iter().for_each(Interrupter::interrupt);
                interrupted = true;
            }
            if matches!(waited, Err(RecvTimeoutError::Disconnected)) {
                break;
            }
        }
    });
    match locked(&shared.failure).take() {
        Some(error) => Err(error),
        None => Ok(Copied {
            tables: tables.len(),
            rows: shared.rows.load(Ordering::Relaxed),
            bytes: shared.bytes.load(Ordering::Relaxed),
        }),
    }
}

/// A piece of a table that waits to be read.
pub(super) struct Piece<'r, 'a> {
    reader: &'r mut Reader<'a>,
    task: Task,
}

impl Piece<'_, '_> {
    /// Which table it is of, by its place in the list.
    pub fn table(&self) -> usize {
        self.task.table
    }

    pub fn read(
        &mut self,
        each: impl FnMut(&[u8]) -> Result<(), InitialError>,
    ) -> Result<(), InitialError> {
        self.reader.read(self.task, each)
    }
}

fn work<'a, T>(
    taker: &mut T,
    reader: &mut Reader<'a>,
    take: &impl Fn(&mut T, &ReplicatedTable, &mut Piece<'_, '_>) -> Result<(), InitialError>,
) -> Result<(), InitialError> {
    let (shared, tables) = (reader.shared, reader.tables);
    while !shared.failed.load(Ordering::SeqCst) {
        let Some(&task) = shared
            .tasks
            .get(shared.next.fetch_add(1, Ordering::Relaxed))
        else {
            break;
        };
        take(taker, &tables[task.table], &mut Piece { reader, task })?;
        if shared.left[task.table].fetch_sub(1, Ordering::Relaxed) == 1 {
            shared.tables_done.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(oid: u32, bytes: u64) -> ReplicatedTable {
        ReplicatedTable {
            oid,
            schema: "public".to_owned(),
            name: format!("t{oid}"),
            columns: Vec::new(),
            primary_key: Vec::new(),
            identity: 'd',
            changed: 0,
            rows_estimate: 0,
            bytes,
            pages: 0,
            shape: Default::default(),
            rows: None,
            root: None,
        }
    }

    #[test]
    fn the_pieces_of_a_table_are_the_table() {
        let tables = [table(1, 10), table(2, 0), table(3, 99)];
        let blocks = HashMap::from([(1, 10), (2, 0), (3, 7)]);
        let sizes = Sizes {
            blocks,
            bytes_estimate: 0,
            block_bytes: 8192,
        };
        let tasks = plan(&tables, &sizes, 3 * 8192);
        let piece = |table, from, to| Task {
            table,
            blocks: Some((from, to)),
        };
        let whole = Task {
            table: 1,
            blocks: None,
        };
        assert_eq!(
            tasks,
            [
                piece(0, 0, Some(3)),
                piece(0, 3, Some(6)),
                piece(0, 6, Some(9)),
                piece(0, 9, None),
                piece(2, 0, Some(3)),
                piece(2, 3, Some(6)),
                piece(2, 6, None),
                whole,
            ]
        );
        assert_eq!(plan(&tables, &sizes, 1 << 30).len(), 3);
    }
}
