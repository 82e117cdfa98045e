//! Packets that wait in the kernel for a decision (`NFQUEUE`), by netlink.
//!
//! Written here and not taken from a library: it must be waited for together with other
//! descriptors, and many packets are let go with one message.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

const SUBSYSTEM: u16 = 3 << 8;
const PACKET: u16 = SUBSYSTEM;
const CONFIG: u16 = SUBSYSTEM | 2;
const VERDICT_BATCH: u16 = SUBSYSTEM | 3;

/// Attributes of a configuration.
mod config {
    pub const COMMAND: u16 = 1;
    pub const PARAMETERS: u16 = 2;
    pub const LENGTH_MAX: u16 = 3;
    pub const MASK: u16 = 4;
    pub const FLAGS: u16 = 5;
    pub const BIND: u8 = 1;
    pub const COPY_PACKET: u8 = 2;
    /// Large packets come as they are, before they are cut into segments.
    pub const WHOLE: u32 = 4;
}

/// Attributes of a packet and of a verdict.
mod packet {
    pub const HEADER: u16 = 1;
    pub const VERDICT: u16 = 2;
    pub const PAYLOAD: u16 = 10;
    pub const ACCEPT: u32 = 1;
}

/// Packets that the kernel keeps for us before it drops what comes.
const LENGTH_MAX: u32 = 65_536;
/// How much of each packet is of interest: its headers.
const COPIED: u32 = 128;
const RECEIVE_BYTES: i32 = 16 << 20;
const NO_ENOBUFS: i32 = 5;

/// One queue. Dropped, the kernel drops what is in it and what comes.
pub struct Queue {
    socket: OwnedFd,
    number: u16,
    room: Vec<u8>,
}

/// A packet in a queue.
#[derive(Debug)]
pub struct Queued<'a> {
    /// Numbers rise by one.
    pub id: u32,
    pub bytes: &'a [u8],
}

impl Queue {
    pub fn open(number: u16) -> io::Result<Queue> {
        // SAFETY: a fresh descriptor, owned from here on.
        let socket = unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            match libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_NETFILTER) {
                -1 => return Err(io::Error::last_os_error()),
                socket => OwnedFd::from_raw_fd(socket),
            }
        };
        set(
            &socket,
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            RECEIVE_BYTES,
        );
        set(&socket, libc::SOL_NETLINK, NO_ENOBUFS, 1);
        let mut queue = Queue {
            socket,
            number,
            room: vec![0; COPIED as usize + 4096],
        };
        queue.configure(&[(config::COMMAND, &[config::BIND, 0, 0, 0])])?;
        let mut parameters = COPIED.to_be_bytes().to_vec();
        parameters.push(config::COPY_PACKET);
        queue.configure(&[
            (config::PARAMETERS, &parameters),
            (config::LENGTH_MAX, &LENGTH_MAX.to_be_bytes()),
            (config::FLAGS, &config::WHOLE.to_be_bytes()),
            (config::MASK, &config::WHOLE.to_be_bytes()),
        ])?;
        Ok(queue)
    }

    fn configure(&mut self, attributes: &[(u16, &[u8])]) -> io::Result<()> {
        self.send(CONFIG, libc::NLM_F_ACK as u16, attributes)?;
        loop {
            let received = self.receive(0)?;
            let message = &self.room[..received];
            if word(message, 4).map(|word| word as u16) != Some(libc::NLMSG_ERROR as u16) {
                continue;
            }
            return match word(message, 16).map(|code| code as i32) {
                Some(0) => Ok(()),
                Some(code) => Err(io::Error::from_raw_os_error(-code)),
                None => Err(io::ErrorKind::InvalidData.into()),
            };
        }
    }

    fn send(&self, kind: u16, flags: u16, attributes: &[(u16, &[u8])]) -> io::Result<()> {
        let message = message(self.number, kind, flags, attributes);
        // SAFETY: bytes of this function.
        let sent = unsafe {
            libc::send(
                self.socket.as_raw_fd(),
                message.as_ptr().cast(),
                message.len(),
                0,
            )
        };
        match sent {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn receive(&mut self, flags: i32) -> io::Result<usize> {
        // SAFETY: writes no more than there is room for.
        let received = unsafe {
            libc::recv(
                self.socket.as_raw_fd(),
                self.room.as_mut_ptr().cast(),
                self.room.len(),
                flags,
            )
        };
        match received {
            -1 => Err(io::Error::last_os_error()),
            received => Ok(received as usize),
        }
    }

    /// Shows every packet that has come. The number of the last one.
    pub fn each(&mut self, mut show: impl FnMut(Queued)) -> io::Result<Option<u32>> {
        let mut last = None;
        loop {
            let received = match self.receive(libc::MSG_DONTWAIT) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(last),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if let Some(queued) = queued(&self.room[..received]) {
                last = Some(queued.id);
                show(queued);
            }
        }
    }

    /// Lets all packets go up to this one.
    pub fn release(&self, id: u32) -> io::Result<()> {
        let verdict = [packet::ACCEPT.to_be_bytes(), id.to_be_bytes()].concat();
        match self.send(VERDICT_BATCH, 0, &[(packet::VERDICT, &verdict)]) {
            // They are gone already.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            sent => sent,
        }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn set(socket: &OwnedFd, level: i32, option: i32, value: i32) {
    // SAFETY: one number. What cannot be set stays as it is.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            4,
        )
    };
}

fn message(queue: u16, kind: u16, flags: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut made = vec![0; 16];
    made.extend([libc::AF_UNSPEC as u8, 0]);
    made.extend(queue.to_be_bytes());
    for (name, value) in attributes {
        made.extend((value.len() as u16 + 4).to_ne_bytes());
        made.extend(name.to_ne_bytes());
        made.extend(*value);
        made.resize(made.len().next_multiple_of(4), 0);
    }
    let length = made.len() as u32;
    made[..4].copy_from_slice(&length.to_ne_bytes());
    made[4..6].copy_from_slice(&kind.to_ne_bytes());
    let flags = flags | libc::NLM_F_REQUEST as u16;
    made[6..8].copy_from_slice(&flags.to_ne_bytes());
    made
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A packet's message, in which attributes have their length, their name and their value.
fn queued(message: &[u8]) -> Option<Queued<'_>> {
    let (length, kind) = (word(message, 0)? as usize, word(message, 4)? as u16);
    if kind != PACKET {
        return None;
    }
    let mut rest = message.get(20..length)?;
    let (mut id, mut bytes) = (None, &[][..]);
    while let Some(head) = word(rest, 0) {
        let (length, name) = (head as u16 as usize, (head >> 16) as u16 & 0x3fff);
        let value = rest.get(4..length)?;
        match name {
            packet::HEADER => id = Some(u32::from_be_bytes(value.get(..4)?.try_into().ok()?)),
            packet::PAYLOAD => bytes = value,
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(Queued { id: id?, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queued_packet_has_a_number_and_its_bytes() {
        let header = [0, 0, 1, 2, 8, 0, 3];
        let attributes: [(u16, &[u8]); 3] = [(1, &header), (5, &[0; 4]), (10, b"packet")];
        let message = message(7, PACKET, 0, &attributes);
        let found = queued(&message).unwrap();
        assert_eq!((found.id, found.bytes), (0x102, &b"packet"[..]));
        for end in 0..message.len() {
            assert!(queued(&message[..end]).is_none());
        }
        let other = super::message(7, CONFIG, 0, &attributes);
        assert!(queued(&other).is_none());
    }
}
