//! Messages over a connection that is never waited for, sealed with a key that both ends have.
//!
//! ```text
//!   each end     32 random bytes, in the clear
//!   from then    length, message sealed with ChaCha20-Poly1305: a key for each direction, made of
//!                the common one and of both ends' bytes; a message's number is its nonce
//! ```
//!
//! So nobody reads the log on its way, sends one of their own, or one that was sent before. Without
//! a key messages go as they are.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::time::Duration;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{ProtectError, system};
use crate::key::{self, Key};

/// No message is longer.
const LONGEST: usize = 64 << 20;
/// Most bytes that are read at once.
const ROOM: usize = 64 << 10;

pub struct Channel {
    stream: TcpStream,
    outgoing: VecDeque<u8>,
    incoming: Vec<u8>,
    room: Box<[u8; ROOM]>,
    /// Where the next message begins in `incoming`.
    at: usize,
    sealing: Sealing,
}

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Connects,
    Listens,
}

enum Sealing {
    Without,
    /// Until the other end's bytes have come: messages that wait for it.
    Begins {
        key: Key,
        side: Side,
        own: [u8; HELLO],
        waiting: Vec<Vec<u8>>,
    },
    Sealed(Box<Ways>),
}

struct Ways {
    outgoing: Way,
    incoming: Way,
}

const HELLO: usize = 32;

/// One direction.
struct Way {
    key: LessSafeKey,
    number: u64,
}

impl Way {
    fn new(secret: &hkdf::Prk, from: Side) -> Way {
        let name: &[u8] = match from {
            Side::Connects => b"from who connects",
            Side::Listens => b"from who listens",
        };
        let info = [name];
        let made = secret.expand(&info, &CHACHA20_POLY1305);
        let key = UnboundKey::from(made.expect("a key is short enough"));
        Way {
            key: LessSafeKey::new(key),
            number: 0,
        }
    }

    fn nonce(&mut self) -> Nonce {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        self.number += 1;
        Nonce::assume_unique_for_key(bytes)
    }

    fn seal(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        let nonce = self.nonce();
        let sealed = self
            .key
            .seal_in_place_append_tag(nonce, Aad::empty(), &mut bytes);
        sealed.expect("a message is short enough to be sealed");
        bytes
    }

    fn open<'a>(&mut self, bytes: &'a mut [u8]) -> Option<&'a [u8]> {
        let nonce = self.nonce();
        let opened = self.key.open_in_place(nonce, Aad::empty(), bytes).ok()?;
        Some(opened)
    }
}

impl Channel {
    pub fn new(stream: TcpStream, key: Option<&Key>, side: Side) -> io::Result<Channel> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let mut channel = Channel {
            stream,
            outgoing: VecDeque::new(),
            incoming: Vec::new(),
            room: Box::new([0; ROOM]),
            at: 0,
            sealing: Sealing::Without,
        };
        if let Some(key) = key {
            let own = key::random();
            channel.outgoing.extend(own);
            channel.sealing = Sealing::Begins {
                key: key.clone(),
                side,
                own,
                waiting: Vec::new(),
            };
            channel.flush()?;
        }
        Ok(channel)
    }

    /// Puts a message behind those that wait.
    pub fn put(&mut self, message: &impl Serialize) {
        let bytes = postcard::to_stdvec(message).expect("a message can be written to memory");
        let bytes = match &mut self.sealing {
            Sealing::Without => bytes,
            Sealing::Begins { waiting, .. } => return waiting.push(bytes),
            Sealing::Sealed(ways) => ways.outgoing.seal(bytes),
        };
        self.put_bytes(&bytes);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.outgoing.extend((bytes.len() as u32).to_le_bytes());
        self.outgoing.extend(bytes);
    }

    /// What the other end begins with has come: makes the keys, and seals what waits.
    fn begin(&mut self) {
        let Sealing::Begins {
            key,
            side,
            own,
            waiting,
        } = &mut self.sealing
        else {
            return;
        };
        let Some(theirs) = self.incoming[self.at..].first_chunk::<HELLO>() else {
            return;
        };
        let (own, other) = (&own[..], &theirs[..]);
        let (salt, from, to) = match side {
            Side::Connects => ([own, other].concat(), Side::Connects, Side::Listens),
            Side::Listens => ([other, own].concat(), Side::Listens, Side::Connects),
        };
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, &salt).extract(key.bytes());
        let mut outgoing = Way::new(&secret, from);
        let incoming = Way::new(&secret, to);
        let waiting = std::mem::take(waiting);
        let sealed: Vec<Vec<u8>> = waiting
            .into_iter()
            .map(|bytes| outgoing.seal(bytes))
            .collect();
        self.at += HELLO;
        self.sealing = Sealing::Sealed(Box::new(Ways { outgoing, incoming }));
        for bytes in sealed {
            self.put_bytes(&bytes);
        }
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

    /// Whether something waits that the connection has not taken.
    pub fn has_waiting(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// How many bytes wait so.
    pub fn waiting(&self) -> usize {
        self.outgoing.len()
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

    /// Reads what has come. `Err(UnexpectedEof)`: the other end has closed.
    pub fn fill(&mut self) -> io::Result<()> {
        self.incoming.drain(..self.at);
        self.at = 0;
        // Not for ever: what has come is to be worked on.
        for _ in 0..64 {
            match self.stream.read(&mut self.room[..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    self.incoming.extend_from_slice(&self.room[..read]);
                    if read < ROOM {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next message, if all of it has come.
    pub fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        self.begin();
        let incoming = match &mut self.sealing {
            Sealing::Begins { .. } => return Ok(None),
            Sealing::Without => None,
            Sealing::Sealed(ways) => Some(&mut ways.incoming),
        };
        let rest = &mut self.incoming[self.at..];
        let Some((length, rest)) = rest.split_first_chunk_mut::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        let foreign = || io::Error::other("this is not what another hindcast says");
        if length > LONGEST {
            return Err(foreign());
        }
        let Some(bytes) = rest.get_mut(..length) else {
            return Ok(None);
        };
        let bytes = match incoming {
            None => bytes,
            Some(way) => way.open(bytes).ok_or_else(foreign)?,
        };
        let message = postcard::from_bytes(bytes).map_err(io::Error::other)?;
        self.at += 4 + length;
        Ok(Some(message))
    }
}

/// Has this process run before others: clients wait for it, and a machine that is busy is not one
/// that is gone. What it starts is as it would be. Where that is not allowed it runs as it did.
pub(crate) fn run_first() {
    let first = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: one value.
    unsafe { libc::sched_setscheduler(0, policy, &first) };
}

/// Waits until one of these can be read, at most so long. Whether one can.
pub(crate) fn wait(ends: &[BorrowedFd], at_most: Duration) -> bool {
    let mut polled: Vec<libc::pollfd> = ends
        .iter()
        .map(|end| libc::pollfd {
            fd: end.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: an array with its length.
    let ready = unsafe {
        libc::poll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            at_most.as_millis() as i32,
        )
    };
    ready > 0
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

    fn pair(keys: [Option<&Key>; 2]) -> (Channel, Channel) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        (
            Channel::new(near, keys[0], Side::Connects).unwrap(),
            Channel::new(far, keys[1], Side::Listens).unwrap(),
        )
    }

    #[test]
    fn messages_arrive_as_they_were_put() {
        let key = Key::new();
        for key in [None, Some(&key)] {
            let (mut near, mut far) = pair([key, key]);
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
                near.fill().unwrap();
                let _ = near.take::<ToBackup>().unwrap();
                near.flush().unwrap();
                far.fill().unwrap();
                while let Some(message) = far.take::<ToBackup>().unwrap() {
                    arrived.push(message);
                }
            }
            assert_eq!(arrived, put);
            drop(near);
            assert_eq!(far.fill().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    /// Whether the message that one end puts is understood at the other.
    fn is_understood(keys: [Option<&Key>; 2]) -> bool {
        let (mut near, mut far) = pair(keys);
        near.put(&ToBackup::Alive);
        for _ in 0..200 {
            let _ = near.fill();
            let _ = near.take::<ToBackup>();
            let _ = near.flush();
            let _ = far.fill();
            match far.take::<ToBackup>() {
                Ok(Some(message)) => return message == ToBackup::Alive,
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => return false,
            }
        }
        false
    }

    #[test]
    fn without_the_same_key_nothing_is_understood() {
        let (one, other) = (Key::new(), Key::new());
        assert!(is_understood([Some(&one), Some(&one)]));
        for keys in [
            [Some(&one), Some(&other)],
            [Some(&one), None],
            [None, Some(&one)],
        ] {
            assert!(!is_understood(keys));
        }
    }
}
