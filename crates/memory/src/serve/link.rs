//! A client's socket and its buffers.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hindcast_wire::frame::{self, Direction, Frame, FrameError};
use rustls::{ServerConfig, ServerConnection};

/// What is written at once, and read at once.
const PART_BYTES: usize = 64 << 10;
/// The longest message that a client may send: longer ones could only be values of no use to reads.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// How long a client may take none of what it asked for.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);

/// Why nothing more can be read.
#[derive(Debug)]
pub enum LinkError {
    /// Gone, or told to go.
    Closed,
    /// Said nothing for as long as it was given.
    Silent,
    /// Does not speak the protocol.
    Garbage(String),
}

impl From<FrameError> for LinkError {
    fn from(error: FrameError) -> Self {
        LinkError::Garbage(error.to_string())
    }
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => LinkError::Silent,
            _ => LinkError::Closed,
        }
    }
}

pub struct Link {
    /// One file descriptor, with the list of sessions: there may be hundreds.
    stream: Arc<TcpStream>,
    /// Once the client has asked for encryption, and got it.
    tls: Option<Box<ServerConnection>>,
    input: BytesMut,
    /// Messages are built here, and written when it is much or when the client waits for them.
    pub out: BytesMut,
    part: Box<[u8]>,
}

impl Link {
    pub fn new(stream: Arc<TcpStream>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_PATIENCE))?;
        Ok(Self {
            stream,
            tls: None,
            input: BytesMut::new(),
            out: BytesMut::new(),
            part: vec![0; PART_BYTES / 4].into_boxed_slice(),
        })
    }

    /// Encrypts all that follows.
    pub fn encrypt(&mut self, config: Arc<ServerConfig>) -> Result<(), LinkError> {
        // Somebody in between may have put it there, to be taken for what the client said.
        if !self.input.is_empty() {
            let what = "received unencrypted data after the request for encryption";
            return Err(LinkError::Garbage(what.to_owned()));
        }
        let tls = ServerConnection::new(config);
        let tls = tls.map_err(|error| LinkError::Garbage(error.to_string()))?;
        self.tls = Some(Box::new(tls));
        Ok(())
    }

    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// How long reading may wait; `None`: for ever.
    pub fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(patience)
    }

    /// The next packet without a tag.
    pub fn startup(&mut self) -> Result<Bytes, LinkError> {
        loop {
            if let Some(packet) = frame::split_startup(&mut self.input)? {
                return Ok(packet);
            }
            self.fill()?;
        }
    }

    /// The next message.
    pub fn message(&mut self) -> Result<Frame, LinkError> {
        loop {
            if let Some(length) = frame::message_length(Direction::FromClient, &self.input)? {
                if length > MESSAGE_BYTES_MAX {
                    return Err(LinkError::Garbage(format!(
                        "a message of {length} bytes, more than the {MESSAGE_BYTES_MAX} that are accepted"
                    )));
                }
                // Not before it is there: the buffer grows by what arrives, not by what is
                // announced.
                if self.input.len() >= length {
                    return Ok(Frame(self.input.split_to(length).freeze()));
                }
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<(), LinkError> {
        loop {
            let mut socket = &*self.stream;
            let read = match &mut self.tls {
                Some(tls) => rustls::Stream::new(&mut **tls, &mut socket).read(&mut self.part),
                None => socket.read(&mut self.part),
            };
            match read {
                Ok(0) => return Err(LinkError::Closed),
                Ok(count) => {
                    self.input.extend_from_slice(&self.part[..count]);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes what was built.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut socket = &*self.stream;
        match &mut self.tls {
            Some(tls) => {
                let mut stream = rustls::Stream::new(&mut **tls, &mut socket);
                stream.write_all(&self.out)?;
                stream.flush()?;
            }
            None => socket.write_all(&self.out)?,
        }
        self.out.clear();
        if self.out.capacity() > 2 * PART_BYTES {
            // A long value made it grow.
            self.out = BytesMut::new();
        }
        Ok(())
    }

    pub fn flush_if_much(&mut self) -> io::Result<()> {
        match self.out.len() >= PART_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = tls.write_tls(&mut &*self.stream);
        }
        // The registry may hold the socket too, and the client is to see the end now. If it is gone
        // already, so much the better.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
