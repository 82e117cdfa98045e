//! A stream that goes both ways: the log one way, acknowledgements the other.

use std::time::{Duration, Instant};

use bytes::BufMut;
use postgres_protocol::message::frontend;

use super::Connection;
use super::copy::{begun, failed};
use super::transport::Interrupter;
use crate::error::Error;

/// A session in `START_REPLICATION`.
pub struct CopyBoth {
    connection: Connection,
}

impl CopyBoth {
    pub(crate) fn begin(mut connection: Connection, sql: &str) -> Result<Self, Error> {
        connection.begin_query(sql)?;
        match begun(&mut connection)? {
            b'W' => Ok(Self { connection }),
            tag => Err(connection.unexpected(tag)),
        }
    }

    /// The next message of the stream, where it was read; `None` if none came until the deadline.
    ///
    /// # Errors
    /// [`Error::Closed`] also when the server ended the stream in good order, as it does at
    /// shutdown.
    #[inline]
    pub fn read(&mut self, deadline: Instant) -> Result<Option<&[u8]>, Error> {
        match self.connection.message_until(Some(deadline))? {
            None => Ok(None),
            Some((b'd', body)) => Ok(Some(self.connection.bytes(body))),
            Some((b'c' | b'C' | b'Z', _)) => Err(self.connection.fail(Error::Closed)),
            Some((b'E', body)) => Err(failed(&mut self.connection, body)?),
            Some((tag, _)) => Err(self.connection.unexpected(tag)),
        }
    }

    /// Whether [`CopyBoth::read`] has something without waiting.
    pub fn buffered(&self) -> bool {
        self.connection.has_message()
    }

    /// How many bytes have been read since the session began.
    pub fn received(&self) -> u64 {
        self.connection.received()
    }

    /// Lets no more than some bytes wait here before the server has to keep them, where the
    /// network's round trip is shorter than `near`: whether it is.
    pub fn limit_waiting(&self, bytes: usize, near: Duration) -> Result<bool, Error> {
        self.connection.limit_waiting(bytes, near)
    }

    /// Sends one message.
    pub fn write(&mut self, body: &[u8]) -> Result<(), Error> {
        let length = u32::try_from(body.len() + 4)
            .map_err(|_| Error::Protocol("a message of more than 4 GiB".to_owned()))?;
        let out = self.connection.output();
        out.put_u8(b'd');
        out.put_u32(length);
        out.put_slice(body);
        self.connection.send()
    }

    pub fn interrupter(&self) -> Interrupter {
        self.connection.interrupter()
    }

    pub fn server_version(&self) -> u32 {
        self.connection.server_version()
    }

    /// Ends the stream in good order; the session can be used for something else.
    pub fn finish(mut self) -> Result<Connection, Error> {
        frontend::copy_done(self.connection.output());
        self.connection.send()?;
        loop {
            match self.connection.message()? {
                (b'Z', _) => return Ok(self.connection),
                (b'E', body) => return Err(failed(&mut self.connection, body)?),
                // What was on its way.
                _ => {}
            }
        }
    }
}
