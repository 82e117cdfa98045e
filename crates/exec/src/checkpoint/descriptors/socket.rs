//! A socket that is not connected, or one of a pair: what it was made as, and what was set.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use serde::{Deserialize, Serialize};

use super::owned;
use crate::checkpoint::take::NotTaken;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    domain: i32,
    kind: i32,
    protocol: i32,
    /// What it is bound to.
    name: Option<Vec<u8>>,
    options: Vec<Set>,
}

/// An option that is not what a new socket has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Set {
    level: i32,
    option: i32,
    value: Vec<u8>,
}

const SO_BUF_LOCK: i32 = 72;
const IPV6_FREEBIND: i32 = 78;

/// What a program may set, and the kernel tells.
const OPTIONS: [(i32, &[i32]); 4] = [
    (
        libc::SOL_SOCKET,
        &[
            libc::SO_REUSEADDR,
            libc::SO_REUSEPORT,
            libc::SO_KEEPALIVE,
            libc::SO_LINGER,
            libc::SO_OOBINLINE,
            libc::SO_BROADCAST,
            libc::SO_PRIORITY,
            libc::SO_MARK,
            libc::SO_RCVLOWAT,
            libc::SO_RCVTIMEO,
            libc::SO_SNDTIMEO,
            libc::SO_BUSY_POLL,
        ],
    ),
    (
        libc::IPPROTO_IP,
        &[
            libc::IP_FREEBIND,
            libc::IP_TOS,
            libc::IP_TTL,
            libc::IP_TRANSPARENT,
            libc::IP_PKTINFO,
            libc::IP_MTU_DISCOVER,
        ],
    ),
    (
        libc::IPPROTO_IPV6,
        &[IPV6_FREEBIND, libc::IPV6_V6ONLY, libc::IPV6_TCLASS],
    ),
    (
        libc::IPPROTO_TCP,
        &[
            libc::TCP_NODELAY,
            libc::TCP_CORK,
            libc::TCP_KEEPIDLE,
            libc::TCP_KEEPINTVL,
            libc::TCP_KEEPCNT,
            libc::TCP_USER_TIMEOUT,
            libc::TCP_DEFER_ACCEPT,
            libc::TCP_LINGER2,
            libc::TCP_NOTSENT_LOWAT,
            libc::TCP_FASTOPEN,
        ],
    ),
];

impl Socket {
    pub fn of(socket: &OwnedFd) -> Result<Socket, NotTaken> {
        let number = |option| {
            let value = get(socket, libc::SOL_SOCKET, option)?;
            let value = value
                .first_chunk::<4>()
                .map(|bytes| i32::from_ne_bytes(*bytes));
            value.ok_or(io::Error::from(io::ErrorKind::InvalidData))
        };
        let domain = number(libc::SO_DOMAIN)?;
        let kind = number(libc::SO_TYPE)?;
        let protocol = number(libc::SO_PROTOCOL)?;
        let name = |call| name_by(socket, call);
        let is_bound = |name: &Vec<u8>| match domain {
            libc::AF_INET | libc::AF_INET6 => name.get(2..4) != Some(&[0, 0]),
            libc::AF_UNIX => name.len() > 2,
            _ => false,
        };
        let mut found = Socket {
            domain,
            kind,
            protocol,
            name: name(libc::getsockname).filter(is_bound),
            options: Vec::new(),
        };
        let fresh = found.fresh()?;
        for (level, options) in OPTIONS {
            for &option in options {
                if let Ok(value) = get(socket, level, option)
                    && !get(&fresh, level, option).is_ok_and(|unset| unset == value)
                {
                    found.options.push(Set {
                        level,
                        option,
                        value,
                    });
                }
            }
        }
        found.add_buffers(number);
        Ok(found)
    }

    /// The sizes that were asked for. The kernel tells twice as much, and says which were.
    fn add_buffers(&mut self, number: impl Fn(i32) -> io::Result<i32>) {
        let locked = number(SO_BUF_LOCK).unwrap_or(0);
        for (bit, option) in [(1, libc::SO_SNDBUF), (2, libc::SO_RCVBUF)] {
            if locked & bit != 0
                && let Ok(size) = number(option)
            {
                self.options.push(Set {
                    level: libc::SOL_SOCKET,
                    option,
                    value: (size / 2).to_ne_bytes().to_vec(),
                });
            }
        }
    }

    fn fresh(&self) -> io::Result<OwnedFd> {
        let kind = self.kind | libc::SOCK_CLOEXEC;
        // SAFETY: numbers; a fresh descriptor, or -1.
        unsafe { owned(libc::socket(self.domain, kind, self.protocol)) }
    }

    /// Two of them that are connected to each other.
    pub fn make_pair(&self) -> io::Result<[OwnedFd; 2]> {
        let mut ends = [-1; 2];
        let kind = self.kind | libc::SOCK_CLOEXEC;
        // SAFETY: two fresh descriptors, owned from here on.
        unsafe {
            match libc::socketpair(self.domain, kind, self.protocol, ends.as_mut_ptr()) {
                0 => Ok(ends.map(|end| OwnedFd::from_raw_fd(end))),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// Sets what was set.
    pub fn set(&self, socket: &OwnedFd) {
        let file = socket.as_raw_fd();
        for set in &self.options {
            let length = set.value.len() as u32;
            // SAFETY: bytes with their length. What this machine does not have is left out.
            unsafe {
                libc::setsockopt(
                    file,
                    set.level,
                    set.option,
                    set.value.as_ptr().cast(),
                    length,
                )
            };
        }
    }

    pub fn make(&self) -> io::Result<OwnedFd> {
        let socket = self.fresh()?;
        let file = socket.as_raw_fd();
        self.set(&socket);
        if let Some(name) = &self.name {
            // SAFETY: as the kernel has told it, with its length.
            let bound = unsafe { libc::bind(file, name.as_ptr().cast(), name.len() as u32) };
            // A name in the file system is there already.
            if bound < 0 && self.domain != libc::AF_UNIX {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(socket)
    }
}

pub fn is_connected(socket: &OwnedFd) -> bool {
    name_by(socket, libc::getpeername).is_some()
}

/// Whether what is sent to one comes to the other. Nothing is in them: what is to be there lies in
/// the memory of the process, whose threads wait.
pub fn are_a_pair(one: &OwnedFd, other: &OwnedFd) -> bool {
    let waiting = || {
        let mut bytes = 0i32;
        // SAFETY: room for one number.
        unsafe { libc::ioctl(other.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
        bytes
    };
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let mut byte = 0u8;
    let room = (&raw mut byte).cast();
    if waiting() != 0 {
        return false;
    }
    // SAFETY: one byte, sent and taken out again.
    unsafe {
        if libc::send(one.as_raw_fd(), room, 1, flags) != 1 {
            return false;
        }
        let is_there = waiting() != 0;
        if is_there {
            libc::recv(other.as_raw_fd(), room, 1, flags);
        }
        is_there
    }
}

fn get(socket: &OwnedFd, level: i32, option: i32) -> io::Result<Vec<u8>> {
    let mut value = [0u8; 64];
    let mut length = value.len() as u32;
    let room = value.as_mut_ptr().cast();
    // SAFETY: room for as much as is asked for.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, room, &mut length) } {
        0 => Ok(value[..length as usize].to_vec()),
        _ => Err(io::Error::last_os_error()),
    }
}

type Names = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut u32) -> i32;

fn name_by(socket: &OwnedFd, call: Names) -> Option<Vec<u8>> {
    let mut name = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut length = size_of::<libc::sockaddr_storage>() as u32;
    // SAFETY: room for as much as is asked for, and zeroed bytes beyond what was told.
    unsafe {
        let told = call(socket.as_raw_fd(), name.as_mut_ptr().cast(), &mut length);
        let length = (length as usize).min(size_of::<libc::sockaddr_storage>());
        let bytes = std::slice::from_raw_parts(name.as_ptr().cast::<u8>(), length);
        (told == 0).then(|| bytes.to_vec())
    }
}
