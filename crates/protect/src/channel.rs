//! Messages over a connection that is never waited for.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{ProtectError, system};

/// No message is longer.
const LONGEST: usize = 64 << 20;

pub struct Channel {
    stream: TcpStream,
    outgoing: VecDeque<u8>,
    incoming: Vec<u8>,
    /// Where the next message begins in `incoming`.
    at: usize,
}

impl Channel {
    pub fn new(stream: TcpStream) -> io::Result<Channel> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Channel {
            stream,
            outgoing: VecDeque::new(),
            incoming: Vec::new(),
            at: 0,
        })
    }

    /// Puts a message behind those that wait.
    pub fn put(&mut self, message: &impl Serialize) {
        let bytes = postcard::to_stdvec(message).expect("a message can be written to memory");
        self.outgoing.extend((bytes.len() as u32).to_le_bytes());
        self.outgoing.extend(bytes);
    }

    /// Sends as much as the connection takes.
    pub fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            let (front, _) = self.outgoing.as_slices();
            match self.stream.write(front) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => drop(self.outgoing.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Who is at the other end.
    pub fn peer(&self) -> String {
        let peer = self.stream.peer_addr();
        peer.map_or_else(|error| error.to_string(), |peer| peer.to_string())
    }

    /// The address of this end.
    pub fn local(&self) -> Result<Ipv4Addr, ProtectError> {
        match self
            .stream
            .local_addr()
            .map_err(system("naming this end"))?
            .ip()
        {
            IpAddr::V4(ip) => Ok(ip),
            IpAddr::V6(ip) => ip
                .to_ipv4_mapped()
                .ok_or(ProtectError::NoDevice(Ipv4Addr::UNSPECIFIED)),
        }
    }

    /// Bytes that wait to be sent.
    pub fn waiting(&self) -> usize {
        self.outgoing.len()
    }

    /// Reads what has come. `Err(UnexpectedEof)`: the other end has closed.
    pub fn fill(&mut self) -> io::Result<()> {
        self.incoming.drain(..self.at);
        self.at = 0;
        let mut piece = [0u8; 64 << 10];
        // Not for ever: what has come is to be worked on.
        for _ in 0..64 {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.incoming.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next message, if all of it has come.
    pub fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let rest = &self.incoming[self.at..];
        let Some((length, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > LONGEST {
            return Err(io::Error::other("this is not what another hindcast says"));
        }
        let Some(bytes) = rest.get(..length) else {
            return Ok(None);
        };
        let message = postcard::from_bytes(bytes).map_err(io::Error::other)?;
        self.at += 4 + length;
        Ok(Some(message))
    }
}

/// Waits until one of these can be read, at most so long.
pub(crate) fn wait(ends: &[BorrowedFd], at_most: Duration) {
    let mut polled: Vec<libc::pollfd> = ends
        .iter()
        .map(|end| libc::pollfd {
            fd: end.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: an array with its length.
    unsafe {
        libc::poll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            at_most.as_millis() as i32,
        )
    };
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ToBackup;

    #[test]
    fn messages_arrive_as_they_were_put() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let (mut near, mut far) = (Channel::new(near).unwrap(), Channel::new(far).unwrap());
        let put: Vec<ToBackup> = (0..2000)
            .map(|number| ToBackup::Bytes {
                name: "p0/t0".into(),
                offset: number,
                bytes: vec![number as u8; number as usize],
            })
            .collect();
        put.iter().for_each(|message| near.put(message));
        let mut arrived = Vec::new();
        while arrived.len() < put.len() {
            near.flush().unwrap();
            far.fill().unwrap();
            while let Some(message) = far.next::<ToBackup>().unwrap() {
                arrived.push(message);
            }
        }
        assert_eq!(arrived, put);
        assert_eq!(near.waiting(), 0);
        drop(near);
        assert_eq!(far.fill().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
