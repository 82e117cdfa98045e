//! Writes epochs over one connection.

use std::collections::HashMap;

use hindcast_pg::{Connection, Error, Lsn, Parameter};

use super::epoch::{Body, End, Part, Step, Work};
use super::error::BackupError;
use super::net::Net;
use super::orders::{Command, Order, Statement, Way, Who, net_commands, orderly_commands};
use super::progress;
use super::statements;
use super::table::Table;

/// Answers are collected at least this often: the server must not wait for us to read them while we
/// wait for it to read what we send.
const RUNS_PER_ROUND_TRIP: usize = 1000;
/// More prepared statements than a table's usual handful come from ever new combinations of left
/// out columns.
const STATEMENTS_MAX: usize = 1000;
const COPY_BYTES: usize = 256 * 1024;

/// What a part did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    pub rows: u64,
    /// Steps that were done again, change by change in commit order.
    pub deferred: u64,
}

/// What the backup's WAL is like after a commit.
#[derive(Clone, Copy, Debug)]
pub struct Committed {
    /// The commit is in the WAL before this.
    pub insert_lsn: Lsn,
    pub flush_lsn: Lsn,
}

pub struct Writer {
    connection: Connection,
    slot: String,
    copy_rows_min: usize,
    prepared: HashMap<(u64, Statement), String>,
    names: u64,
    /// A transaction has begun, and has done so many steps.
    open: Option<usize>,
    /// The last step began with one.
    savepoint: bool,
}

/// Why a step failed.
enum Failure {
    Server(Error),
    /// A statement found fewer or more rows than it should have: which, and how many.
    Count(usize, u64),
    Backup(BackupError),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Server(error)
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        Failure::Backup(error)
    }
}

impl Writer {
    /// Inserts of so many rows are copied.
    pub fn new(connection: Connection, slot: &str, copy_rows_min: usize) -> Self {
        Self {
            connection,
            slot: slot.to_owned(),
            copy_rows_min,
            prepared: HashMap::new(),
            names: 0,
            open: None,
            savepoint: false,
        }
    }

    /// Writes a part; if the epoch ends with it, the transaction is as good as committed then, with
    /// `workers` noted as having come so far.
    ///
    /// # Errors
    /// Everything since the last commit is rolled back.
    pub fn write(
        &mut self,
        part: &Part,
        workers: &[usize],
        workers_total: usize,
    ) -> Result<Written, BackupError> {
        let mut written = Written::default();
        let result = self.steps(part, workers, workers_total, &mut written);
        if result.is_err() {
            self.roll_back();
        }
        result.map(|()| written)
    }

    /// Makes what was written last for good.
    pub fn commit(&mut self, lsn: Lsn) -> Result<Committed, BackupError> {
        let mut pipeline = self.connection.pipeline();
        pipeline.run_sql("COMMIT");
        pipeline.run_sql("SELECT pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn()");
        let outcomes = pipeline
            .finish()
            .map_err(|error| BackupError::at(lsn, error))?;
        self.open = None;
        self.savepoint = false;
        let row = outcomes.get(1).and_then(|outcome| outcome.rows.first());
        let lsn_at = |column| row.and_then(|row| row.parse(column).ok());
        let (Some(insert_lsn), Some(flush_lsn)) = (lsn_at(0), lsn_at(1)) else {
            let error = Error::Protocol("no answer about the WAL's end".to_owned());
            return Err(BackupError::at(lsn, error));
        };
        Ok(Committed {
            insert_lsn,
            flush_lsn,
        })
    }

    /// Nothing since the last commit stays.
    pub fn roll_back(&mut self) {
        self.open = None;
        self.savepoint = false;
        self.prepared.clear();
        // If this fails the connection is gone, and with it the transaction; whoever uses it next
        // is told.
        let _ = self.connection.execute("ROLLBACK; DEALLOCATE ALL");
    }

    fn steps(
        &mut self,
        part: &Part,
        workers: &[usize],
        workers_total: usize,
        written: &mut Written,
    ) -> Result<(), BackupError> {
        if self.prepared.len() > STATEMENTS_MAX {
            self.prepared.clear();
            self.connection
                .execute("DEALLOCATE ALL")
                .map_err(|error| BackupError::at(part.lsn, error))?;
        }
        let deferrable = part.steps.iter().any(|step| match step {
            Step::Tables(works) => works.iter().any(|work| work.table.deferrable),
            Step::Truncate { .. } => false,
        });
        let mut before = Vec::new();
        if self.open.is_none() {
            before.push(Command::sql("BEGIN"));
            self.open = Some(0);
        }
        if deferrable {
            before.push(Command::sql("SET CONSTRAINTS ALL DEFERRED"));
        }
        let mut after = Vec::new();
        if deferrable {
            // Violations show now, while it can still be said what is wrong, and before other
            // workers commit.
            after.push(Command::sql("SET CONSTRAINTS ALL IMMEDIATE"));
        }
        if let Some(end) = &part.end {
            after.extend(self.progress(end, workers, workers_total));
        }
        let count = part.steps.len();
        for (at, step) in part.steps.iter().enumerate() {
            let after = match at + 1 == count {
                true => std::mem::take(&mut after),
                false => Vec::new(),
            };
            self.step(step, part.lsn, std::mem::take(&mut before), after, written)?;
        }
        before.append(&mut after);
        if !before.is_empty() {
            self.run(&before)
                .map_err(|failure| self.explain(failure, &before, part.lsn, false))?;
        }
        Ok(())
    }

    fn progress(
        &self,
        end: &End,
        workers: &[usize],
        workers_total: usize,
    ) -> Vec<Command<'static>> {
        workers
            .iter()
            .map(|&worker| progress::insert(&self.slot, worker, workers_total, end))
            .collect()
    }

    fn step<'a>(
        &mut self,
        step: &'a Step,
        lsn: Lsn,
        before: Vec<Command<'a>>,
        after: Vec<Command<'a>>,
        written: &mut Written,
    ) -> Result<(), BackupError> {
        let done = self.open.unwrap_or(0);
        self.open = Some(done + 1);
        let may_reorder = match step {
            Step::Tables(works) => works
                .iter()
                .any(|work| matches!(work.body, Body::Net { raw: Some(_), .. })),
            Step::Truncate { .. } => false,
        };
        let savepoint = done > 0 || may_reorder;
        let mut commands = before;
        if std::mem::replace(&mut self.savepoint, savepoint) {
            // Of the step before, whose counts have been checked since.
            commands.push(Command::sql("RELEASE hindcast"));
        }
        if savepoint {
            commands.push(Command::sql("SAVEPOINT hindcast"));
        }
        self.commands(step, Way::Net, &mut commands)?;
        let mut after_at = commands.len();
        commands.extend(after);
        let mut failure = match self.run(&commands) {
            Ok(rows) => {
                written.rows += rows;
                return Ok(());
            }
            Err(failure) => failure,
        };
        // The rows' last states fit together, but not the order in which they were written. Those
        // that were updated may all go first; and the order of the primary fits in any case, but
        // has each change and not only the last.
        for way in [Way::Replacing, Way::InOrder] {
            let conflict = matches!(&failure, Failure::Server(error) if matches!(error.code(), Some("23505" | "23P01")));
            if !(may_reorder && conflict) {
                break;
            }
            written.deferred += u64::from(way == Way::InOrder);
            self.return_to_savepoint()
                .map_err(|error| BackupError::at(lsn, error))?;
            let after = commands.split_off(after_at);
            commands.clear();
            self.commands(step, way, &mut commands)?;
            after_at = commands.len();
            commands.extend(after);
            failure = match self.run(&commands) {
                Ok(rows) => {
                    written.rows += rows;
                    return Ok(());
                }
                Err(failure) => failure,
            };
        }
        Err(self.explain(failure, &commands, lsn, savepoint))
    }

    fn return_to_savepoint(&mut self) -> Result<(), Error> {
        self.prepared.clear();
        self.connection
            .execute("ROLLBACK TO SAVEPOINT hindcast; DEALLOCATE ALL")
            .map(drop)
    }

    /// Ways other than the net change are those of tables whose raw changes were kept.
    fn commands<'a>(
        &self,
        step: &'a Step,
        way: Way,
        into: &mut Vec<Command<'a>>,
    ) -> Result<(), BackupError> {
        match step {
            Step::Truncate { tables, how } => {
                let tables: Vec<&Table> = tables.iter().map(AsRef::as_ref).collect();
                into.push(Command::Sql(statements::truncate(
                    &tables,
                    how.cascade,
                    how.restart_identity,
                )));
            }
            Step::Tables(works) => {
                for Work { table, body } in works {
                    match body {
                        Body::Net { raw: Some(raw), .. } if way == Way::InOrder => {
                            orderly_commands(table, raw, into)?
                        }
                        Body::Net { net, raw } => {
                            let replacing = way == Way::Replacing && raw.is_some();
                            net_commands(table, net, replacing, self.copy_rows_min, into)?;
                        }
                        Body::InOrder(raw) => orderly_commands(table, raw, into)?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs commands in as few round trips as possible, and checks what each did. Returns the rows
    /// written.
    fn run(&mut self, commands: &[Command<'_>]) -> Result<u64, Failure> {
        let mut rows = 0;
        let mut start = 0;
        while start < commands.len() {
            if let Command::Copy {
                table,
                net,
                rows: which,
            } = &commands[start]
            {
                let copied = self.copy(table, net, which)?;
                if copied != which.len() as u64 {
                    return Err(Failure::Count(start, copied));
                }
                rows += copied;
                start += 1;
                continue;
            }
            let end = commands[start..]
                .iter()
                .position(|command| matches!(command, Command::Copy { .. }))
                .map_or(commands.len(), |at| start + at)
                .min(start + RUNS_PER_ROUND_TRIP);
            rows += self.round_trip(&commands[start..end], start)?;
            start = end;
        }
        Ok(rows)
    }

    fn round_trip(&mut self, commands: &[Command<'_>], first: usize) -> Result<u64, Failure> {
        let mut pipeline = self.connection.pipeline();
        for command in commands {
            match command {
                Command::Sql(sql) => pipeline.run_sql(sql),
                Command::Copy { .. } => unreachable!("copies are not part of a pipeline"),
                Command::Order(order) => {
                    let key = (order.table.serial, order.statement.clone());
                    let names = &mut self.names;
                    let name = self.prepared.entry(key).or_insert_with(|| {
                        *names += 1;
                        let name = format!("h{names}");
                        pipeline.prepare(&name, &order.statement.sql(order.table), &[]);
                        name
                    });
                    let parameters: Vec<Parameter<'_>> = order
                        .parameters
                        .iter()
                        .map(|value| value.borrow())
                        .collect();
                    pipeline.run(name, &parameters);
                }
            }
        }
        let outcomes = pipeline.finish().map_err(|error| shifted(error, first))?;
        let mut rows = 0;
        for (at, (command, outcome)) in commands.iter().zip(&outcomes).enumerate() {
            if let Command::Order(order) = command {
                if outcome.affected != order.expected {
                    return Err(Failure::Count(first + at, outcome.affected));
                }
                rows += outcome.affected;
            }
        }
        Ok(rows)
    }

    fn copy(&mut self, table: &Table, net: &Net, rows: &[u32]) -> Result<u64, Error> {
        let mut copy = self.connection.copy_in(&statements::copy(table))?;
        let mut lines = Vec::with_capacity(COPY_BYTES + 4096);
        for &row in rows {
            super::orders::copy_line(table, net, row, &mut lines);
            if lines.len() >= COPY_BYTES {
                copy.write(&lines)?;
                lines.clear();
            }
        }
        copy.write(&lines)?;
        copy.finish()
    }

    /// Finds out what a failure is about. The step is undone for it, or the whole transaction.
    fn explain(
        &mut self,
        failure: Failure,
        commands: &[Command<'_>],
        lsn: Lsn,
        savepoint: bool,
    ) -> BackupError {
        match failure {
            Failure::Backup(error) => error,
            Failure::Server(error) => {
                let run = error.server().and_then(|error| error.run);
                let order = run.and_then(|run| match commands.get(run) {
                    Some(Command::Order(order)) => Some(order),
                    _ => None,
                });
                let of_progress = |error: &hindcast_pg::ServerError| {
                    error.table.as_deref() == Some("standby_progress")
                };
                if error.code() == Some("23505") && error.server().is_some_and(of_progress) {
                    return BackupError::Busy {
                        slot: self.slot.clone(),
                    };
                }
                if error.code() == Some("23505")
                    && let Some(detail) = error.server().and_then(|error| error.detail.clone())
                {
                    let table = error.server().and_then(|error| {
                        Some(format!(
                            "{}.{}",
                            error.schema.as_ref()?,
                            error.table.as_ref()?
                        ))
                    });
                    return BackupError::Diverged {
                        table: table
                            .or_else(|| order.map(|order| order.table.relation.to_string()))
                            .unwrap_or_default(),
                        key: key_of_detail(&detail),
                        lsn,
                        what: error.to_string(),
                    };
                }
                match order {
                    Some(order) => BackupError::at(lsn, error).about(&order.table.relation),
                    None => BackupError::at(lsn, error),
                }
            }
            Failure::Count(at, found) => match &commands[at] {
                Command::Order(order) => self.missing(order, found, lsn, savepoint),
                Command::Copy { table, rows, .. } => BackupError::Diverged {
                    table: table.relation.to_string(),
                    key: "unknown".to_owned(),
                    lsn,
                    what: format!("{} rows were to be inserted, and {found} were", rows.len()),
                },
                Command::Sql(sql) => panic!("nothing is expected of {sql}"),
            },
        }
    }

    fn missing(&mut self, order: &Order<'_>, found: u64, lsn: Lsn, savepoint: bool) -> BackupError {
        let diverged = |key: String, lsn: Lsn, what: String| BackupError::Diverged {
            table: order.table.relation.to_string(),
            key,
            lsn,
            what,
        };
        let what = |found: u64| match found {
            0 => "it is not there".to_owned(),
            found => format!("there are {found} of it"),
        };
        match &order.who {
            Who::Key(key, lsn) => diverged(order.table.describe_key(key), *lsn, what(found)),
            Who::Row(row, lsn) => diverged(row.clone(), *lsn, what(found)),
            Who::Inserted => diverged(
                "unknown".to_owned(),
                lsn,
                format!(
                    "{} rows were to be inserted, and {found} were",
                    order.expected
                ),
            ),
            Who::Keys(net, rows) => {
                match savepoint {
                    true => {
                        if let Err(error) = self.return_to_savepoint() {
                            return BackupError::at(lsn, error);
                        }
                    }
                    false => self.roll_back(),
                }
                match self.count_keys(order) {
                    Err(error) => BackupError::at(lsn, error),
                    Ok(Some((place, found))) if (1..=rows.len()).contains(&place) => {
                        let row = rows[place - 1];
                        diverged(
                            order.table.describe_key(net.key(row)),
                            net.lsn(row),
                            what(found),
                        )
                    }
                    Ok(_) => diverged(
                        "unknown".to_owned(),
                        lsn,
                        format!(
                            "{} rows were to be changed, and {found} were; they are all there, so a trigger or a rule is in the way, or an \
                             identity column that cannot be set differs",
                            order.expected
                        ),
                    ),
                }
            }
        }
    }

    /// The place of the first key that has not one row, from 1, and how many it has.
    fn count_keys(&mut self, order: &Order<'_>) -> Result<Option<(usize, u64)>, Error> {
        let mut pipeline = self.connection.pipeline();
        pipeline.prepare("", &statements::count_keys(order.table), &[]);
        let keys = order.table.key.len();
        let parameters: Vec<Parameter<'_>> = order.parameters[..keys]
            .iter()
            .map(|value| value.borrow())
            .collect();
        pipeline.run("", &parameters);
        let outcomes = pipeline.finish()?;
        let row = outcomes.first().and_then(|outcome| outcome.rows.first());
        row.map(|row| Ok((row.parse(0)?, row.parse(1)?)))
            .transpose()
    }
}

/// Runs are counted from the first command of the step, not of the round trip.
fn shifted(mut error: Error, first: usize) -> Error {
    if let Error::Server(error) = &mut error
        && let Some(run) = &mut error.run
    {
        *run += first;
    }
    error
}

/// `Key (id)=(1) already exists.` without what is around the key.
fn key_of_detail(detail: &str) -> String {
    let key = detail.strip_prefix("Key ").unwrap_or(detail);
    let key = key.strip_suffix(" already exists.").unwrap_or(key);
    key.replace(")=(", ") = (")
}
