//! `COPY` in either direction.

use bytes::BufMut;
use postgres_protocol::message::frontend;

use super::Connection;
use crate::error::{Error, ServerError};
use crate::rows::affected;

/// A `COPY … FROM STDIN` that is under way. Dropped before [`CopyIn::finish`], nothing of it stays.
pub struct CopyIn<'a> {
    connection: &'a mut Connection,
    done: bool,
}

impl<'a> CopyIn<'a> {
    pub(crate) fn begin(connection: &'a mut Connection, sql: &str) -> Result<Self, Error> {
        connection.begin_query(sql)?;
        match begun(connection)? {
            b'G' => Ok(Self {
                connection,
                done: false,
            }),
            tag => Err(connection.unexpected(tag)),
        }
    }

    /// Any part of the data: rows need not be whole.
    pub fn write(&mut self, data: &[u8]) -> Result<(), Error> {
        // Far below what a message may hold.
        for piece in data.chunks(1 << 24) {
            let length = u32::try_from(piece.len() + 4).expect("pieces are small");
            let out = self.connection.output();
            out.put_u8(b'd');
            out.put_u32(length);
            out.put_slice(piece);
            self.connection.send_if_much()?;
        }
        Ok(())
    }

    /// How many rows were copied.
    pub fn finish(mut self) -> Result<u64, Error> {
        self.done = true;
        frontend::copy_done(self.connection.output());
        self.connection.send()?;
        end(self.connection)
    }
}

impl Drop for CopyIn<'_> {
    fn drop(&mut self) {
        if !self.done && !self.connection.is_broken() {
            // Where this fails the connection is marked as broken, and its next user learns of it.
            let _ = frontend::copy_fail("given up", self.connection.output());
            let _ = self.connection.send();
            let _ = end(self.connection);
        }
    }
}

pub(crate) fn copy_out<E: From<Error>>(
    connection: &mut Connection,
    sql: &str,
    mut each: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<u64, E> {
    connection.begin_query(sql)?;
    match begun(connection)? {
        b'H' => {}
        tag => return Err(connection.unexpected(tag).into()),
    }
    loop {
        match connection.message()? {
            (b'd', body) => {
                if let Err(error) = each(connection.bytes(body)) {
                    // Nobody wants the rest, which may be long.
                    connection.interrupter().interrupt();
                    connection.fail(Error::Interrupted);
                    return Err(error);
                }
            }
            (b'c', _) => return Ok(end(connection)?),
            (b'E', body) => return Err(failed(connection, body)?.into()),
            (tag, _) => return Err(connection.unexpected(tag).into()),
        }
    }
}

/// The first answer to a COPY or START_REPLICATION: its tag, or the server's refusal.
pub(crate) fn begun(connection: &mut Connection) -> Result<u8, Error> {
    match connection.message()? {
        (b'E', body) => Err(failed(connection, body)?),
        (tag, _) => Ok(tag),
    }
}

/// Reads on to the end of a query that failed.
pub(crate) fn failed(
    connection: &mut Connection,
    body: std::ops::Range<usize>,
) -> Result<Error, Error> {
    let error = ServerError::parse(connection.bytes(body))?;
    while connection.message()?.0 != b'Z' {}
    Ok(Error::Server(Box::new(error)))
}

fn end(connection: &mut Connection) -> Result<u64, Error> {
    let mut count = 0;
    loop {
        match connection.message()? {
            (b'C', body) => count = affected(connection.bytes(body))?,
            (b'E', body) => return Err(failed(connection, body)?),
            (b'Z', _) => return Ok(count),
            _ => {}
        }
    }
}
