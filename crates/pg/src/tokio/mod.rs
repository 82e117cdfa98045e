//! A session for tasks: queries with parameters and rows, as text.
//!
//! ```no_run
//! # async fn example(url: hindcast_pg::DatabaseUrl) -> Result<(), hindcast_pg::Error> {
//! use hindcast_pg::{ConnectOptions, tokio::Client};
//! let client = Client::connect(&url, &ConnectOptions::named("example")).await?;
//! let row = client.query_one("SELECT count(*) FROM t WHERE k = $1", &[&7]).await?;
//! let count: i64 = row.get(0);
//! # Ok(())
//! # }
//! ```
//!
//! There is no task behind a [`Client`]: it reads and writes where it is awaited, one query at a
//! time. A query whose future is dropped goes on at the server; whoever asks next waits for its end
//! first. [`Connector`] reaches servers for others, too, who have a protocol of their own to speak:
//! the gateway, the runner of ghosts.

mod connect;
mod stream;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures::FutureExt;
use hindcast_wire::frame::{self, Direction, HEADER};
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Mutex, MutexGuard};

pub use connect::{Connector, Opened};
pub use stream::Stream;

use crate::error::{AttemptError, ConnectError, Error, ServerError};
use crate::handshake::ConnectOptions;
use crate::rows::{self, Row, Rows};
use crate::text::ToText;
use crate::url::DatabaseUrl;

/// How long a server may take to end a session that was told to end.
const CLOSE_PATIENCE: Duration = Duration::from_secs(30);
/// What is read at once, at least.
const READ_BYTES: usize = 64 * 1024;

/// A session with a Postgres server. Dropping it ends the session.
#[derive(Debug)]
pub struct Client {
    wire: Mutex<Wire>,
    closed: AtomicBool,
}

#[derive(Debug)]
struct Wire {
    stream: Stream,
    input: BytesMut,
    output: BytesMut,
    /// How many times the server has yet to say that it is ready: once, from when a query is sent
    /// until its end was read.
    owed: u32,
}

impl Client {
    pub async fn connect(
        url: &DatabaseUrl,
        options: &ConnectOptions,
    ) -> Result<Self, ConnectError> {
        let connector = Connector::new(url.clone()).map_err(|error| ConnectError {
            attempts: vec![(url.addresses[0].clone(), AttemptError::Tls(error))],
        })?;
        connector.client(options).await
    }

    fn new(opened: Opened) -> Self {
        Self {
            wire: Mutex::new(Wire {
                stream: opened.stream,
                input: BytesMut::new(),
                output: BytesMut::new(),
                owed: 0,
            }),
            closed: AtomicBool::new(false),
        }
    }

    /// Runs one statement.
    pub async fn query(&self, sql: &str, parameters: &[&dyn ToText]) -> Result<Rows, Error> {
        self.stream(sql, parameters).await?.collect().await
    }

    /// Runs a statement that returns exactly one row.
    pub async fn query_one(&self, sql: &str, parameters: &[&dyn ToText]) -> Result<Row, Error> {
        let row = self.query_opt(sql, parameters).await?;
        row.ok_or(Error::RowCount(0))
    }

    /// Runs a statement that returns at most one row.
    pub async fn query_opt(
        &self,
        sql: &str,
        parameters: &[&dyn ToText],
    ) -> Result<Option<Row>, Error> {
        let mut rows = self.query(sql, parameters).await?.rows;
        match rows.len() {
            0 | 1 => Ok(rows.pop()),
            more => Err(Error::RowCount(more)),
        }
    }

    /// Runs one statement: how many rows it affected.
    pub async fn execute(&self, sql: &str, parameters: &[&dyn ToText]) -> Result<u64, Error> {
        Ok(self.query(sql, parameters).await?.affected)
    }

    /// Runs statements without parameters, as one transaction unless they say otherwise.
    pub async fn batch_execute(&self, sql: &str) -> Result<(), Error> {
        self.simple_query(sql).await.map(drop)
    }

    /// The same; the rows are those of the last statement that returns any.
    pub async fn simple_query(&self, sql: &str) -> Result<Rows, Error> {
        let mut message = BytesMut::new();
        frontend::query(sql, &mut message)?;
        self.send(message).await?.collect().await
    }

    /// Runs one statement and hands out its rows as they come.
    pub async fn stream(
        &self,
        sql: &str,
        parameters: &[&dyn ToText],
    ) -> Result<RowStream<'_>, Error> {
        self.send(request(sql, parameters)?).await
    }

    /// Once the connection is at rest, that is, all is read that earlier queries left.
    async fn send(&self, message: BytesMut) -> Result<RowStream<'_>, Error> {
        let mut wire = self.wire.lock().await;
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        while wire.owed > 0 {
            self.note(wire.message().await)?;
        }
        wire.output = message;
        wire.owed = 1;
        Ok(RowStream {
            client: self,
            wire,
            columns: Arc::default(),
            affected: 0,
            failure: None,
        })
    }

    /// Whether the session is gone, as far as can be told without asking the server anything.
    pub fn is_closed(&self) -> bool {
        if let Ok(mut wire) = self.wire.try_lock() {
            let wire = &mut *wire;
            // What a server says unasked is kept for the next query. At the end there is nothing to
            // read for ever.
            while let Some(read) = wire.stream.read_buf(&mut wire.input).now_or_never() {
                if !matches!(read, Ok(1..)) {
                    self.closed.store(true, Ordering::Relaxed);
                    break;
                }
            }
        }
        self.closed.load(Ordering::Relaxed)
    }

    /// Ends the session, and waits until the server has ended it, too: from then on it is not
    /// connected to its database.
    pub async fn close(self) {
        let ended = async {
            let mut wire = self.wire.lock().await;
            frontend::terminate(&mut wire.output);
            while wire.message().await.is_ok() {}
        };
        // The connection is closed in any case when this returns.
        let _ = tokio::time::timeout(CLOSE_PATIENCE, ended).await;
        self.closed.store(true, Ordering::Relaxed);
    }

    fn note<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        // Every error but that of a statement leaves the two sides in disagreement about what comes
        // next.
        if result.is_err() {
            self.closed.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let wire = self.wire.get_mut();
        if !self.closed.load(Ordering::Relaxed) {
            // If it can be said at once. The server notices the end of the connection, too.
            wire.output.clear();
            frontend::terminate(&mut wire.output);
            let _ = wire.stream.write_all(&wire.output).now_or_never();
        }
    }
}

impl Wire {
    /// The next message that is an answer. Sends what there is to send first.
    async fn message(&mut self) -> Result<(u8, Bytes), Error> {
        loop {
            if !self.output.is_empty() {
                self.stream.write_all_buf(&mut self.output).await?;
                self.stream.flush().await?;
            }
            let split = frame::split(Direction::FromServer, &mut self.input);
            let Some(message) = split.map_err(|error| Error::Protocol(error.to_string()))? else {
                self.input.reserve(READ_BYTES);
                if self.stream.read_buf(&mut self.input).await? == 0 {
                    return Err(Error::Closed);
                }
                continue;
            };
            let tag = message.tag();
            let mut body = message.0;
            body.advance(HEADER);
            match tag {
                b'S' | b'N' | b'A' => continue,
                b'Z' => self.owed = self.owed.saturating_sub(1),
                b'E' => {
                    let error = ServerError::parse(&body)?;
                    if error.is_fatal() {
                        return Err(Error::Server(Box::new(error)));
                    }
                }
                // A COPY from here: this is not how to run one.
                b'G' => frontend::copy_fail("there is nothing to copy", &mut self.output)?,
                _ => {}
            }
            return Ok((tag, body));
        }
    }
}

/// One statement with parameters and rows as text.
fn request(sql: &str, parameters: &[&dyn ToText]) -> Result<BytesMut, Error> {
    let mut out = BytesMut::new();
    let mut text = String::new();
    frontend::parse("", sql, std::iter::empty(), &mut out)?;
    frontend::bind(
        "",
        "",
        std::iter::empty(),
        parameters,
        |parameter, out| {
            text.clear();
            match parameter.to_text(&mut text) {
                true => out.extend_from_slice(text.as_bytes()),
                false => return Ok(IsNull::Yes),
            }
            Ok(IsNull::No)
        },
        std::iter::empty(),
        &mut out,
    )
    .map_err(|error| match error {
        frontend::BindError::Conversion(error) => Error::Protocol(error.to_string()),
        frontend::BindError::Serialization(error) => error.into(),
    })?;
    frontend::describe(b'P', "", &mut out)?;
    frontend::execute("", 0, &mut out)?;
    frontend::sync(&mut out);
    Ok(out)
}

/// Rows as the server sends them. Dropped early, the rest is read by the next query.
#[derive(Debug)]
pub struct RowStream<'a> {
    client: &'a Client,
    wire: MutexGuard<'a, Wire>,
    columns: Arc<[String]>,
    affected: u64,
    failure: Option<ServerError>,
}

impl RowStream<'_> {
    pub async fn next(&mut self) -> Result<Option<Row>, Error> {
        while self.wire.owed > 0 {
            let (tag, body) = self.client.note(self.wire.message().await)?;
            match tag {
                b'T' => self.columns = rows::columns(&body)?,
                b'D' => {
                    let columns = Arc::clone(&self.columns);
                    return Ok(Some(Row { columns, body }));
                }
                b'C' => self.affected = rows::affected(&body)?,
                b'E' if self.failure.is_none() => self.failure = Some(ServerError::parse(&body)?),
                _ => {}
            }
        }
        match self.failure.take() {
            Some(error) => Err(Error::Server(Box::new(error))),
            None => Ok(None),
        }
    }

    async fn collect(mut self) -> Result<Rows, Error> {
        let mut rows = Vec::new();
        while let Some(row) = self.next().await? {
            rows.push(row);
        }
        // Of several statements, the last one's.
        rows.retain(|row: &Row| Arc::ptr_eq(&row.columns, &self.columns));
        Ok(Rows {
            columns: self.columns,
            rows,
            affected: self.affected,
        })
    }
}
