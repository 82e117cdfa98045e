//! A socket, encrypted or not, whose reads end at a deadline and that another thread can break.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustls::{ClientConnection, StreamOwned};
use socket2::SockRef;

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

    /// The kernel takes no more than about twice as much from the peer before it is read.
    pub fn limit_waiting(&self, bytes: usize) -> io::Result<()> {
        match self {
            Transport::Tcp(stream) => SockRef::from(stream).set_recv_buffer_size(bytes),
            Transport::Tls(stream) => SockRef::from(&stream.sock).set_recv_buffer_size(bytes),
            Transport::Unix(_) => Ok(()),
        }
    }

    /// Waits until there is something to read, and no longer than this. A socket's own timeout goes
    /// by the kernel's tick, which is several milliseconds.
    pub fn wait(&mut self, patience: Duration) -> io::Result<bool> {
        let socket = match self {
            Transport::Tcp(stream) => TcpStream::as_fd(stream),
            Transport::Unix(stream) => UnixStream::as_fd(stream),
            Transport::Tls(stream) => {
                let decrypted = stream.conn.process_new_packets();
                if decrypted.is_ok_and(|state| state.plaintext_bytes_to_read() > 0) {
                    return Ok(true);
                }
                stream.sock.as_fd()
            }
        };
        let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
        match poll(
            &mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)],
            Some(&patience),
        ) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_is_waited_for_by_the_clock() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut transport = Transport::Unix(ours);
        let patience = Duration::from_millis(1);
        // The kernel's tick is four milliseconds or more where it is not one. Others run, too: the
        // shortest wait counts.
        let wait = |_| {
            let began = Instant::now();
            assert!(!transport.wait(patience).unwrap());
            began.elapsed()
        };
        let shortest = (0..20).map(wait).min().unwrap();
        assert!(shortest >= patience, "{shortest:?}");
        assert!(shortest < Duration::from_millis(3), "{shortest:?}");
        theirs.write_all(b"x").unwrap();
        assert!(transport.wait(Duration::ZERO).unwrap());
    }
}
