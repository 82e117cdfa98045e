//! How a handler talks to Postgres: explicit transactions, one request's `traceparent` on each.
//!
//! A transaction's `BEGIN` leaves in the same flight as its first statement, as JDBC drivers do it.
//! The first statement carries the request's `traceparent` and is therefore sent unprepared, since
//! its text is different every time; the others are prepared once per session. An error ends the
//! transaction at once: it has been rolled back by the time the handler sees the error, so `?` is
//! all that a handler needs.

use std::fmt;
use std::future::Future;

use clap::ValueEnum;
use futures::future::{OptionFuture, join, join3};
use futures::{TryStreamExt, pin_mut};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, Error, Row, RowStream};

use crate::pool::{Lease, Pool};

/// A statement and the types of its parameters, which the unprepared path cannot ask the server
/// for.
pub struct Sql {
    pub text: &'static str,
    pub types: &'static [Type],
}

impl Sql {
    pub const fn new(text: &'static str, types: &'static [Type]) -> Self {
        Self { text, types }
    }
}

pub type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// How a transaction tells which request it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, ValueEnum)]
pub enum Propagation {
    /// A sqlcommenter comment on the first statement of each transaction.
    #[default]
    Comment,
    /// `SET application_name` before each transaction.
    ApplicationName,
    /// It does not.
    None,
}

/// The isolation level of every transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, ValueEnum)]
pub enum Isolation {
    ReadCommitted,
    /// The paper's: snapshot isolation.
    #[default]
    RepeatableRead,
    Serializable,
}

impl Isolation {
    fn begin(self) -> &'static str {
        match self {
            Self::ReadCommitted => "BEGIN ISOLATION LEVEL READ COMMITTED",
            Self::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ",
            Self::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE",
        }
    }

    fn setting(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }
}

#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    /// `postgres://user@host/database`, or `key=value` pairs.
    pub url: String,
    pub sessions_max: usize,
    pub propagation: Propagation,
    pub isolation: Isolation,
    /// Send a transaction that is one reading statement without `BEGIN` and `COMMIT`.
    pub autocommit_reads: bool,
    /// How often a transaction that fails to serialize is tried again.
    pub retries_max: u32,
}

impl DatabaseOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            sessions_max: 16,
            propagation: Propagation::default(),
            isolation: Isolation::default(),
            autocommit_reads: false,
            retries_max: 0,
        }
    }
}

pub struct Database {
    pool: Pool,
    begin: &'static str,
    propagation: Propagation,
    autocommit_reads: bool,
    retries_max: u32,
}

#[derive(Debug, thiserror::Error)]
#[error("the database URL cannot be understood")]
pub struct BadUrl(#[source] Error);

/// Why a transaction did not happen.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// Two transactions collided and this one lost; it may be tried again.
    #[error("{message}")]
    Conflict { deadlock: bool, message: String },
    #[error("{message}")]
    UniqueViolation { message: String },
    #[error("{message} (SQLSTATE {sqlstate})")]
    Refused { sqlstate: String, message: String },
    #[error("the database cannot be reached: {0}")]
    Unreachable(Error),
}

impl From<Error> for DatabaseError {
    fn from(error: Error) -> Self {
        let Some(refusal) = error.as_db_error() else {
            return Self::Unreachable(error);
        };
        let message = refusal.message().to_owned();
        match refusal.code() {
            &SqlState::T_R_SERIALIZATION_FAILURE => Self::Conflict {
                deadlock: false,
                message,
            },
            &SqlState::T_R_DEADLOCK_DETECTED => Self::Conflict {
                deadlock: true,
                message,
            },
            &SqlState::UNIQUE_VIOLATION => Self::UniqueViolation { message },
            // The server is starting, stopping, or has no connection left.
            code if matches!(&code.code()[..2], "53" | "57" | "08") => Self::Unreachable(error),
            code => Self::Refused {
                sqlstate: code.code().to_owned(),
                message,
            },
        }
    }
}

impl DatabaseError {
    /// A column is missing or has another type than expected: the schema is not the one this code
    /// was written for.
    pub(crate) fn from_column(error: Error) -> Self {
        Self::Refused {
            sqlstate: "XX000".to_owned(),
            message: format!("the schema is not ours: {error}"),
        }
    }
}

impl Database {
    /// Connects to nothing yet: sessions are opened when they are needed.
    pub fn new(options: &DatabaseOptions) -> Result<Self, BadUrl> {
        let mut config: Config = options.url.parse().map_err(BadUrl)?;
        if options.autocommit_reads {
            let level = options.isolation.setting().replace(' ', "\\ ");
            let before = config
                .get_options()
                .map(|text| format!("{text} "))
                .unwrap_or_default();
            config.options(format!("{before}-c default_transaction_isolation={level}"));
        }
        Ok(Self {
            pool: Pool::new(config, options.sessions_max.max(1)),
            begin: options.isolation.begin(),
            propagation: options.propagation,
            autocommit_reads: options.autocommit_reads,
            retries_max: options.retries_max,
        })
    }

    /// The same, on so many sessions that no other has.
    pub fn with_sessions(&self, sessions_max: usize) -> Self {
        Self {
            pool: self.pool.with_sessions(sessions_max),
            ..*self
        }
    }

    /// The database as one request uses it.
    pub fn for_request(&self, traceparent: Option<TraceParent>) -> Cx<'_> {
        Cx {
            database: self,
            traceparent,
            retries_max: self.retries_max,
        }
    }
}

/// The database in the name of one request.
#[derive(Clone, Copy)]
pub struct Cx<'a> {
    database: &'a Database,
    traceparent: Option<TraceParent>,
    retries_max: u32,
}

impl<'a> Cx<'a> {
    /// A transaction. Nothing is sent before its first statement.
    pub async fn begin(&self) -> Result<Transaction<'a>, DatabaseError> {
        let lease = self.database.pool.lease().await?;
        Ok(Transaction {
            cx: *self,
            lease,
            state: State::Unbegun,
        })
    }

    /// A transaction of one statement that only reads, tried again like any other.
    pub async fn read(
        &self,
        sql: &'static Sql,
        params: Params<'_>,
    ) -> Result<Vec<Row>, DatabaseError> {
        let read = || async {
            let mut transaction = self.begin().await?;
            if self.database.autocommit_reads {
                return Ok(transaction.send(sql, params, None).await?.rows);
            }
            let rows = transaction.query(sql, params).await?;
            transaction.commit().await?;
            Ok(rows)
        };
        self.retrying(read).await
    }

    /// The same, with transactions tried again at least this often.
    pub fn with_retries(self, retries_max: u32) -> Self {
        Self {
            retries_max: self.retries_max.max(retries_max),
            ..self
        }
    }

    /// Runs a transaction again while it fails to serialize and tries are left.
    ///
    /// Without a pause between tries: a loser has waited for the winner's commit already.
    pub async fn retrying<T, E, F>(&self, mut transaction: impl FnMut() -> F) -> Result<T, E>
    where
        E: MayConflict,
        F: Future<Output = Result<T, E>>,
    {
        let mut retries_left = self.retries_max;
        loop {
            match transaction().await {
                Err(error) if error.is_conflict() && retries_left > 0 => retries_left -= 1,
                outcome => return outcome,
            }
        }
    }
}

pub trait MayConflict {
    fn is_conflict(&self) -> bool;
}

impl MayConflict for DatabaseError {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }
}

/// An open transaction. Dropped without [`commit`](Self::commit) or [`rollback`](Self::rollback),
/// it takes its session with it, which aborts it.
pub struct Transaction<'a> {
    cx: Cx<'a>,
    lease: Lease,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing was sent yet.
    Unbegun,
    Open,
    /// An error ended it, and it was rolled back.
    Over,
}

struct Answer {
    rows: Vec<Row>,
    affected: u64,
}

impl Transaction<'_> {
    pub async fn query(
        &mut self,
        sql: &'static Sql,
        params: Params<'_>,
    ) -> Result<Vec<Row>, DatabaseError> {
        Ok(self.run(sql, params).await?.rows)
    }

    /// The row of a statement that always gives one.
    pub async fn query_one(
        &mut self,
        sql: &'static Sql,
        params: Params<'_>,
    ) -> Result<Row, DatabaseError> {
        let row = self.query_first(sql, params).await?;
        row.ok_or_else(|| DatabaseError::Refused {
            sqlstate: "02000".into(),
            message: "no row where there must be one".into(),
        })
    }

    /// The first row, where there is one.
    pub async fn query_first(
        &mut self,
        sql: &'static Sql,
        params: Params<'_>,
    ) -> Result<Option<Row>, DatabaseError> {
        Ok(self.run(sql, params).await?.rows.into_iter().next())
    }

    /// How many rows were inserted, updated or deleted.
    pub async fn execute(
        &mut self,
        sql: &'static Sql,
        params: Params<'_>,
    ) -> Result<u64, DatabaseError> {
        Ok(self.run(sql, params).await?.affected)
    }

    pub async fn commit(self) -> Result<(), DatabaseError> {
        self.end("COMMIT").await
    }

    pub async fn rollback(self) -> Result<(), DatabaseError> {
        self.end("ROLLBACK").await
    }

    async fn end(mut self, how: &'static str) -> Result<(), DatabaseError> {
        if self.state == State::Open {
            let ended = self.lease.session().client.batch_execute(how).await;
            // A COMMIT that the server refused has rolled back: the session is outside a
            // transaction either way.
            self.lease.set_reusable(
                ended
                    .as_ref()
                    .err()
                    .is_none_or(|error| error.as_db_error().is_some()),
            );
            ended?;
        }
        Ok(())
    }

    async fn run(
        &mut self,
        sql: &'static Sql,
        params: Params<'_>,
    ) -> Result<Answer, DatabaseError> {
        let answer = match self.state {
            State::Unbegun => {
                let begin = self.cx.database.begin;
                self.send(sql, params, Some(begin)).await
            }
            State::Open => {
                let session = self.lease.session();
                match session.prepare(sql).await {
                    Ok(statement) => {
                        answer(session.client.query_raw(&statement, params.iter().copied())).await
                    }
                    Err(error) => Err(error),
                }
            }
            State::Over => panic!("a transaction that an error ended was used again"),
        };
        self.state = State::Open;
        if answer.is_err() {
            self.state = State::Over;
            self.lease.set_reusable(false);
            // If this fails too, the session stays unusable and closes; the first error says more.
            if self
                .lease
                .session()
                .client
                .batch_execute("ROLLBACK")
                .await
                .is_ok()
            {
                self.lease.set_reusable(true);
            }
        }
        Ok(answer?)
    }

    /// The first statement, with what goes before it in the same flight.
    async fn send(
        &mut self,
        sql: &'static Sql,
        params: Params<'_>,
        begin: Option<&'static str>,
    ) -> Result<Answer, Error> {
        let propagation = self.cx.database.propagation;
        let traceparent = self.cx.traceparent;
        let session = self.lease.session();

        let name = (propagation == Propagation::ApplicationName
            && session.application_name != traceparent)
            .then(|| match traceparent {
                Some(traceparent) => format!("SET application_name = '{traceparent}'"),
                None => "RESET application_name".to_owned(),
            });
        if name.is_some() {
            session.application_name = traceparent;
        }
        // Preparing is a conversation of its own and must be over before anything is sent ahead.
        let prepared = match propagation {
            Propagation::Comment => None,
            Propagation::ApplicationName | Propagation::None => Some(session.prepare(sql).await?),
        };

        self.lease.set_reusable(false);
        let client = &self.lease.session().client;
        let name = OptionFuture::from(name.as_deref().map(|name| client.batch_execute(name)));
        let begun = OptionFuture::from(begin.map(|begin| client.batch_execute(begin)));
        // Joined futures are first polled in order, and a request is queued at its first poll.
        let (name, begun, answer) = match prepared {
            Some(statement) => {
                join3(
                    name,
                    begun,
                    answer(client.query_raw(&statement, params.iter().copied())),
                )
                .await
            }
            None => {
                let commented;
                let text = match traceparent {
                    Some(traceparent) => {
                        commented = format!("{} /*traceparent='{traceparent}'*/", sql.text);
                        &commented
                    }
                    None => sql.text,
                };
                let typed = params.iter().copied().zip(sql.types.iter().cloned());
                let ((name, begun), answer) = join(
                    join(name, begun),
                    answer(client.query_typed_raw(text, typed)),
                )
                .await;
                (name, begun, answer)
            }
        };
        name.transpose()?;
        begun.transpose()?;
        if begin.is_none() {
            self.lease.set_reusable(true);
        }
        answer
    }
}

async fn answer(stream: impl Future<Output = Result<RowStream, Error>>) -> Result<Answer, Error> {
    let stream = stream.await?;
    pin_mut!(stream);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await? {
        rows.push(row);
    }
    Ok(Answer {
        rows,
        affected: stream.rows_affected().unwrap_or(0),
    })
}

/// A W3C `traceparent` of version 00, checked, so that it can go into SQL as it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceParent([u8; 55]);

impl TraceParent {
    pub fn parse(header: &[u8]) -> Option<Self> {
        let bytes: [u8; 55] = header.try_into().ok()?;
        let fits = |(at, byte): (usize, &u8)| match at {
            2 | 35 | 52 => *byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        };
        let nonzero = |from: usize, to: usize| bytes[from..to].iter().any(|byte| *byte != b'0');
        (bytes.starts_with(b"00")
            && bytes.iter().enumerate().all(fits)
            && nonzero(3, 35)
            && nonzero(36, 52))
        .then_some(Self(bytes))
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("hexadecimal digits and dashes")
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_traceparent_reaches_sql() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(
            TraceParent::parse(good.as_bytes())
                .map(|t| t.to_string())
                .as_deref(),
            Some(good)
        );
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473'-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceParent::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
