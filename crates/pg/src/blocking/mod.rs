//! A session for a thread that has nothing else to do: messages in and out, and the simple query
//! protocol.
//!
//! [`Pipeline`]s of prepared statements and [`CopyIn`] are for moving many rows, [`CopyBoth`] for a
//! replication stream whose messages are read where the socket put them. **Every wait ends**:
//! connecting has a deadline, a stream is read until one, and an [`Interrupter`] held by another
//! thread ends everything else.

mod connect;
mod copy;
mod pipeline;
mod replication;
mod transport;

use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use postgres_protocol::message::frontend;

pub use copy::CopyIn;
pub use pipeline::{Outcome, Parameter, Pipeline};
pub use replication::CopyBoth;
pub use transport::Interrupter;

use crate::error::{AttemptError, ConnectError, Error, ServerError};
use crate::handshake::{ConnectOptions, Handshake, Session};
use crate::rows::Rows;
use crate::url::{Address, DatabaseUrl};
use connect::Opened;
use transport::{Transport, broken, remaining};

/// What is written at once when a lot is written.
pub(crate) const WRITE_BYTES: usize = 64 * 1024;
/// What is read at once.
const READ_BYTES: usize = 256 * 1024;
const HEADER: usize = 5;
/// How long the rest of what has begun to come may take.
const RECORD_PATIENCE: Duration = Duration::from_secs(1);

/// A session with a Postgres server. Dropping it ends the session.
pub struct Connection {
    transport: Transport,
    /// The network's when it was opened; nothing on a Unix socket.
    round_trip: Option<Duration>,
    interrupter: Interrupter,
    url: DatabaseUrl,
    address: Address,
    /// What was read and not yet looked at is `input[unread]`.
    input: Vec<u8>,
    unread: Range<usize>,
    output: BytesMut,
    session: Session,
    status: u8,
    broken: bool,
    /// How many bytes were read.
    received: u64,
    /// What the socket's timeout is set to at the moment.
    patience: Option<Duration>,
}

/// A message's tag and where its body is in the input buffer.
pub(crate) type Located = (u8, Range<usize>);

impl Connection {
    pub fn connect(url: &DatabaseUrl, options: &ConnectOptions) -> Result<Self, ConnectError> {
        connect::connect(url, options)
    }

    pub(crate) fn new(opened: Opened, url: DatabaseUrl, address: Address) -> Result<Self, Error> {
        let Opened {
            transport,
            round_trip,
        } = opened;
        Ok(Self {
            interrupter: transport.interrupter()?,
            transport,
            round_trip,
            url,
            address,
            input: vec![0; READ_BYTES],
            unread: 0..0,
            output: BytesMut::with_capacity(WRITE_BYTES),
            session: Session::default(),
            status: b'I',
            broken: false,
            received: 0,
            patience: None,
        })
    }

    /// As in `150004`.
    pub fn server_version(&self) -> u32 {
        let text = self.parameter("server_version").unwrap_or("0");
        let number = text.split([' ', 'd', 'b', 'r']).next().unwrap_or("0");
        let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
        let (major, minor): (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        major * 10_000 + minor
    }

    /// What the server reported of itself (`ParameterStatus`).
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.session.parameters.get(name).map(String::as_str)
    }

    /// The process that serves this session.
    pub fn process(&self) -> u32 {
        self.session.process
    }

    /// `I`dle, in a `T`ransaction, or in one that failed: `E`.
    pub fn transaction_status(&self) -> u8 {
        self.status
    }

    /// Nothing more can be done with it.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Lets no more than some bytes wait here before the server has to keep them, where the
    /// network's round trip is shorter than `near`. Far away this would make it slow.
    pub(crate) fn limit_waiting(&self, bytes: usize, near: Duration) -> Result<bool, Error> {
        match self.round_trip {
            Some(round_trip) if round_trip < near => {
                self.transport.limit_waiting(bytes)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    pub fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    pub fn cancel_token(&self) -> CancelToken {
        CancelToken {
            url: self.url.clone(),
            address: self.address.clone(),
            process: self.session.process,
            secret: self.session.secret,
        }
    }

    /// Runs one or more statements without parameters; the rows are the last statement's.
    pub fn query(&mut self, sql: &str) -> Result<Rows, Error> {
        self.begin_query(sql)?;
        let mut rows = Rows::default();
        let mut failure = None;
        loop {
            let (tag, body) = self.message()?;
            match tag {
                b'T' => rows = Rows::with_columns(&self.input[body])?,
                b'D' => rows.push(Bytes::copy_from_slice(&self.input[body])),
                b'C' => rows.complete(&self.input[body])?,
                b'E' => failure = failure.or(Some(ServerError::parse(&self.input[body])?)),
                b'Z' => break,
                b'I' => rows = Rows::default(),
                // The statement is a COPY: this is not how to run one.
                b'G' => {
                    frontend::copy_fail("a COPY needs copy_in", &mut self.output)?;
                    self.send()?;
                }
                b'H' | b'd' | b'c' | b'N' => {}
                other => return Err(self.unexpected(other)),
            }
        }
        match failure {
            Some(error) => Err(Error::Server(Box::new(error))),
            None => Ok(rows),
        }
    }

    /// The same for statements whose rows do not matter: how many rows the last one affected.
    pub fn execute(&mut self, sql: &str) -> Result<u64, Error> {
        Ok(self.query(sql)?.affected())
    }

    /// Statements with parameters, sent together.
    pub fn pipeline(&mut self) -> Pipeline<'_> {
        Pipeline::new(self)
    }

    /// Runs `COPY … FROM STDIN`.
    pub fn copy_in(&mut self, sql: &str) -> Result<CopyIn<'_>, Error> {
        CopyIn::begin(self, sql)
    }

    /// Runs `COPY … TO STDOUT` and hands over each piece, which is a row in text and CSV format. An
    /// error of `each` ends the copy and the connection.
    pub fn copy_out<E: From<Error>>(
        &mut self,
        sql: &str,
        each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        copy::copy_out(self, sql, each)
    }

    /// Runs `START_REPLICATION …`.
    pub fn start_replication(self, sql: &str) -> Result<CopyBoth, Error> {
        CopyBoth::begin(self, sql)
    }

    pub(crate) fn begin_query(&mut self, sql: &str) -> Result<(), Error> {
        frontend::query(sql, &mut self.output)?;
        self.send()
    }

    pub(crate) fn output(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    pub(crate) fn send(&mut self) -> Result<(), Error> {
        if self.broken {
            return Err(self.gone());
        }
        let written = self.transport.write_all(&self.output);
        self.output.clear();
        written.map_err(|error| self.fail(error.into()))
    }

    /// Sends a part already when a lot has come together.
    pub(crate) fn send_if_much(&mut self) -> Result<(), Error> {
        match self.output.len() >= WRITE_BYTES {
            true => self.send(),
            false => Ok(()),
        }
    }

    /// The next message that is an answer, however long it takes. Notices and changed parameters
    /// are dealt with.
    pub(crate) fn message(&mut self) -> Result<Located, Error> {
        match self.message_until(None)? {
            Some(message) => Ok(message),
            None => Err(Error::Closed),
        }
    }

    /// The same until a deadline; `None` when it has passed.
    pub(crate) fn message_until(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<Located>, Error> {
        loop {
            let Some((tag, body)) = self.raw_message(deadline)? else {
                return Ok(None);
            };
            match tag {
                b'S' => self.session.note_parameter(&self.input[body])?,
                b'N' | b'A' => {}
                b'Z' => {
                    self.status = self.input.get(body.start).copied().unwrap_or(b'I');
                    return Ok(Some((tag, body)));
                }
                b'E' => {
                    if ServerError::parse(&self.input[body.clone()])?.is_fatal() {
                        let error = ServerError::parse(&self.input[body])?;
                        return Err(self.fail(Error::Server(Box::new(error))));
                    }
                    return Ok(Some((tag, body)));
                }
                _ => return Ok(Some((tag, body))),
            }
        }
    }

    /// Whether a whole message has been read already.
    pub(crate) fn has_message(&self) -> bool {
        self.whole().is_some()
    }

    pub(crate) fn bytes(&self, located: Range<usize>) -> &[u8] {
        &self.input[located]
    }

    /// Logs in, on a connection on which nothing was said but about encryption.
    fn log_in(
        &mut self,
        url: &DatabaseUrl,
        address: &Address,
        options: &ConnectOptions,
        deadline: Instant,
    ) -> Result<(), AttemptError> {
        let begun = Instant::now();
        let certificate = self.transport.peer_certificate();
        let mut handshake = Handshake::begin(url, address, options, certificate, &mut self.output)?;
        loop {
            self.send().map_err(AttemptError::Session)?;
            let message = self.raw_message(Some(deadline));
            let Some((tag, body)) = message.map_err(AttemptError::Session)? else {
                let waited = begun.elapsed().as_secs();
                return Err(AttemptError::Session(Error::Timeout(waited)));
            };
            let body = &self.input[body];
            if let Some(session) = handshake.on_message(tag, body, &mut self.output)? {
                self.session = session;
                return Ok(());
            }
        }
    }

    pub(crate) fn unexpected(&mut self, tag: u8) -> Error {
        self.fail(Error::Protocol(format!(
            "a message {:?} that is no answer to what was asked",
            char::from(tag)
        )))
    }

    /// Notes that nothing more can be done with this session.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        self.broken = true;
        match error {
            Error::Io(error) => broken(error, Some(&self.interrupter)),
            Error::Closed if self.interrupter.was_used() => Error::Interrupted,
            error => error,
        }
    }

    fn gone(&self) -> Error {
        match self.interrupter.was_used() {
            true => Error::Interrupted,
            false => Error::Closed,
        }
    }

    fn whole(&self) -> Option<usize> {
        let input = &self.input[self.unread.clone()];
        let length = input.get(1..HEADER)?.try_into().ok()?;
        let length = u32::from_be_bytes(length) as usize + 1;
        (input.len() >= length).then_some(length)
    }

    fn raw_message(&mut self, deadline: Option<Instant>) -> Result<Option<Located>, Error> {
        loop {
            if let Some(length) = self.whole() {
                if length < HEADER {
                    return Err(self.fail(Error::Protocol("a message without a length".to_owned())));
                }
                let start = self.unread.start;
                self.unread.start += length;
                return Ok(Some((self.input[start], start + HEADER..start + length)));
            }
            if !self.fill(deadline)? {
                return Ok(None);
            }
        }
    }

    /// Reads more; false when the deadline has passed.
    fn fill(&mut self, deadline: Option<Instant>) -> Result<bool, Error> {
        if self.broken {
            return Err(self.gone());
        }
        self.make_room();
        if let Some(deadline) = deadline
            // Even when it has passed, one look at what is there.
            && !self.transport.wait(remaining(deadline).unwrap_or_default())?
        {
            return Ok(remaining(deadline).is_some());
        }
        // There is something now, though perhaps less than a whole record of TLS.
        let patience = deadline.map(|_| RECORD_PATIENCE);
        if patience != self.patience {
            self.transport.set_patience(patience)?;
            self.patience = patience;
        }
        let end = self.unread.end;
        match self.transport.read(&mut self.input[end..]) {
            Ok(Some(0)) => Err(self.fail(Error::Closed)),
            Ok(Some(count)) => {
                self.unread.end += count;
                self.received += count as u64;
                Ok(true)
            }
            Ok(None) => match deadline {
                Some(deadline) => Ok(remaining(deadline).is_some()),
                None => Ok(true),
            },
            Err(error) => Err(self.fail(error.into())),
        }
    }

    /// Space for a read: what was looked at goes, and a message larger than the buffer makes it
    /// grow.
    fn make_room(&mut self) {
        if self.unread.is_empty() {
            self.unread = 0..0;
            if self.input.len() > 8 * READ_BYTES {
                self.input.truncate(READ_BYTES);
                self.input.shrink_to_fit();
            }
        }
        let pending = self.unread.len();
        let wanted = match self.input[self.unread.clone()].get(1..HEADER) {
            Some(length) => {
                let length = length.try_into().expect("four bytes");
                u32::from_be_bytes(length) as usize + 1
            }
            None => HEADER,
        };
        let free = self.input.len() - self.unread.end;
        if free >= READ_BYTES / 4 && free >= wanted.saturating_sub(pending) {
            return;
        }
        self.input.copy_within(self.unread.clone(), 0);
        self.unread = 0..pending;
        if self.input.len() < wanted + READ_BYTES / 4 {
            self.input.resize(wanted + READ_BYTES / 4, 0);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.broken {
            self.output.clear();
            frontend::terminate(&mut self.output);
            let _ = self.transport.write_all(&self.output);
        }
    }
}

/// Asks the server to end what a session is doing; the session itself stays.
#[derive(Clone)]
pub struct CancelToken {
    url: DatabaseUrl,
    address: Address,
    process: u32,
    secret: u32,
}

impl CancelToken {
    pub fn cancel(&self) -> Result<(), AttemptError> {
        let opened = connect::open(&self.url, &self.address, self.url.connect_timeout)?;
        let mut transport = opened.transport;
        let mut request = BytesMut::new();
        frontend::cancel_request(
            self.process.cast_signed(),
            self.secret.cast_signed(),
            &mut request,
        );
        transport.write_all(&request)?;
        // The server closes the connection when it has passed the request on.
        transport.set_patience(Some(Duration::from_secs(5)))?;
        let _ = transport.read(&mut [0; 16]);
        Ok(())
    }
}
