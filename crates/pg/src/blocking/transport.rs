//! A socket, encrypted or not, whose reads end at a deadline and that another thread can break.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};

use crate::Error;

pub(crate) enum Transport {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Transport {
    /// The next read waits no longer than this.
    pub fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        // Zero would mean forever.
        let patience = patience.map(|patience| patience.max(Duration::from_micros(1)));
        match self {
            Transport::Tcp(stream) => stream.set_read_timeout(patience),
            Transport::Unix(stream) => stream.set_read_timeout(patience),
            Transport::Tls(stream) => stream.sock.set_read_timeout(patience),
        }
    }

    /// `None`: nothing came in time.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let read = match self {
            Transport::Tcp(stream) => stream.read(into),
            Transport::Unix(stream) => stream.read(into),
            Transport::Tls(stream) => stream.read(into),
        };
        match read {
            Ok(count) => Ok(Some(count)),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Transport::Tcp(stream) => stream.write_all(bytes),
            Transport::Unix(stream) => stream.write_all(bytes),
            Transport::Tls(stream) => {
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }

    /// The certificate that the server showed, in DER.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        match self {
            Transport::Tls(stream) => stream.conn.peer_certificates()?.first().map(AsRef::as_ref),
            Transport::Tcp(_) | Transport::Unix(_) => None,
        }
    }

    pub fn interrupter(&self) -> io::Result<Interrupter> {
        let socket = match self {
            Transport::Tcp(stream) => Socket::Tcp(stream.try_clone()?),
            Transport::Unix(stream) => Socket::Unix(stream.try_clone()?),
            Transport::Tls(stream) => Socket::Tcp(stream.sock.try_clone()?),
        };
        Ok(Interrupter(Arc::new(Inner {
            socket,
            used: AtomicBool::new(false),
        })))
    }
}

/// Breaks a connection from another thread: whatever it is blocked in fails with
/// [`Error::Interrupted`], and so does all that follows.
#[derive(Clone)]
pub struct Interrupter(Arc<Inner>);

struct Inner {
    socket: Socket,
    used: AtomicBool,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Interrupter {
    pub fn interrupt(&self) {
        self.0.used.store(true, Ordering::SeqCst);
        // Fails when the other side has gone already, which is as good.
        let _ = match &self.0.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    pub(crate) fn was_used(&self) -> bool {
        self.0.used.load(Ordering::SeqCst)
    }
}

/// How long until a deadline, or an error if it has passed.
pub(crate) fn remaining(deadline: Instant) -> Option<Duration> {
    deadline
        .checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
}

pub(crate) fn broken(error: io::Error, interrupter: Option<&Interrupter>) -> Error {
    match interrupter.is_some_and(Interrupter::was_used) {
        true => Error::Interrupted,
        false => error.into(),
    }
}
