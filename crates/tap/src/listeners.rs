//! What a service listens on in a replay: a free port of this machine, in place of the one that it
//! asks for, and a name that the kernel gives, in place of a path. The recorded service may still
//! have those, and nobody but the replay is to come.

use std::net::{Ipv4Addr, Ipv6Addr};

use hindcast_taplog::How;
use hindcast_taplog::board::{self, Board, Listener};
use libc::{c_int, sockaddr, socklen_t};

use crate::errno::errno;
use crate::real::getsockname;
use crate::{descriptors, process};

/// Binds to another port; `None` if this is not a replay, or no port that somebody would look for.
///
/// # Safety
/// As for libc's.
pub unsafe fn bind(socket: c_int, address: *const sockaddr, length: socklen_t) -> Option<c_int> {
    let board = process::board().filter(|board| board.replays())?;
    // SAFETY: what the caller gave.
    if let Some(path) = unsafe { path_of(address, length) } {
        return is_stream(socket).then(|| bind_by_name(board, socket, path));
    }
    // SAFETY: what the caller gave.
    let Asked { mut family, port } = unsafe { port_of(address, length) }?;
    if !is_stream(socket) {
        return None;
    }
    if port == 0 {
        // SAFETY: as the caller promises.
        let result = unsafe { libc::syscall(libc::SYS_bind, socket, address, length) };
        if let Some(got) = port_got(socket).filter(|_| result == 0) {
            board.owns(got);
        }
        return Some(result as c_int);
    }
    // SAFETY: what the caller gave.
    if family == Family::V6 && unsafe { is_any(address) } && !is_v6_only(socket) {
        family = Family::Mapped;
    }
    // Several sockets share a port, or one comes after another.
    let before = board.listener(port, family.is_v6()).unwrap_or(0);
    let result = named_here(libc::SYS_bind, socket, family, before);
    if result == 0 && before == 0 {
        say(board, socket, port, family);
    }
    Some(result)
}

/// Whose clients come with which addresses. What listens at all addresses of both kinds listens at
/// one of IPv4 in a replay: a service sees the address of its client, and most are such.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    /// Of IPv4, in a socket of IPv6, as all of Java's are.
    Mapped,
    V6,
}

impl Family {
    pub fn is_v6(self) -> bool {
        self == Self::V6
    }
}

/// An address with a port.
pub struct Asked {
    pub family: Family,
    pub port: u16,
}

/// # Safety
/// It is an address of IPv6.
unsafe fn is_any(address: *const sockaddr) -> bool {
    // SAFETY: as the caller promises.
    let ip = unsafe { (*address.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr };
    Ipv6Addr::from(ip).is_unspecified()
}

fn is_v6_only(socket: c_int) -> bool {
    option(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY).is_none_or(|only| only != 0)
}

/// Whether there may be other sockets that listen on its port.
pub fn shares_port(socket: c_int) -> bool {
    option(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT).is_some_and(|shares| shares != 0)
}

fn option(socket: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of_val(&value) as socklen_t;
    // SAFETY: the memory is ours and as long as is said.
    let asked =
        unsafe { libc::getsockopt(socket, level, name, (&raw mut value).cast(), &mut length) };
    (asked == 0).then_some(value)
}

/// Puts the port that the service asked for in an address of its own in the place of the one that
/// it got: servers compare the two, and make URLs of it.
///
/// # Safety
/// The kernel has written an address there, as long as there was room.
pub unsafe fn name_as_asked(address: *mut sockaddr, length: socklen_t) {
    // SAFETY: what the caller of libc gave.
    let Some(Asked { family, port: got }) = (unsafe { port_of(address, length) }) else {
        return;
    };
    let board = process::board().filter(|board| board.replays());
    let Some(asked) = board.and_then(|board| board.asked(got, family.is_v6())) else {
        return;
    };
    // SAFETY: it is an address with a port, which stands at the same place in either family.
    unsafe { (*address.cast::<libc::sockaddr_in>()).sin_port = asked.to_be() };
}

/// `None` if it is of another kind.
///
/// # Safety
/// As for libc's `bind`.
pub unsafe fn port_of(address: *const sockaddr, length: socklen_t) -> Option<Asked> {
    // SAFETY: what the caller of libc gave is at least as long as it says.
    unsafe {
        match i32::from(address.as_ref()?.sa_family) {
            libc::AF_INET if length as usize >= size_of::<libc::sockaddr_in>() => Some(Asked {
                family: Family::V4,
                port: u16::from_be((*address.cast::<libc::sockaddr_in>()).sin_port),
            }),
            libc::AF_INET6 if length as usize >= size_of::<libc::sockaddr_in6>() => {
                let address = &*address.cast::<libc::sockaddr_in6>();
                let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
                let family = match ip.to_ipv4_mapped() {
                    Some(_) => Family::Mapped,
                    None => Family::V6,
                };
                let port = u16::from_be(address.sin6_port);
                Some(Asked { family, port })
            }
            _ => None,
        }
    }
}

/// The path of an address that is one in the file system.
///
/// # Safety
/// As for libc's `bind`.
pub unsafe fn path_of<'a>(address: *const sockaddr, length: socklen_t) -> Option<&'a [u8]> {
    // SAFETY: what the caller of libc gave is at least as long as it says.
    unsafe {
        let is_unix = i32::from(address.as_ref()?.sa_family) == libc::AF_UNIX;
        let bytes = std::slice::from_raw_parts(address.cast::<u8>(), length as usize);
        board::path(bytes).filter(|_| is_unix)
    }
}

/// In place of the path, to an abstract name that the kernel chooses.
fn bind_by_name(board: &Board, socket: c_int, path: &[u8]) -> c_int {
    let unix = libc::AF_UNIX as libc::sa_family_t;
    // SAFETY: the address is as long as is said.
    let result =
        unsafe { libc::syscall(libc::SYS_bind, socket, &raw const unix, size_of_val(&unix)) };
    if result == 0 {
        let mut name = abstract_name(&[]);
        let mut length = size_of_val(&name) as socklen_t;
        let place = (&raw mut name).cast();
        // SAFETY: the memory is ours and as long as is said.
        if unsafe { getsockname(socket, place, &mut length) } == 0 {
            // Family and a zero come first.
            let length = (length as usize).saturating_sub(size_of_val(&unix) + 1);
            let given = name.sun_path.iter().skip(1).take(length);
            let mut bytes = [0; 16];
            for (byte, &from) in bytes.iter_mut().zip(given) {
                *byte = from as u8;
            }
            board.moves(path, bytes.get(..length).unwrap_or_default());
        }
    }
    result as c_int
}

/// To the socket that the service wanted to have at a path.
pub fn connect_by_name(socket: c_int, name: &[u8]) -> c_int {
    let address = abstract_name(name);
    let length = size_of::<libc::sa_family_t>() + 1 + name.len();
    // SAFETY: the address is as long as is said.
    let result =
        unsafe { libc::syscall(libc::SYS_connect, socket, &raw const address, length) } as c_int;
    if result == 0 || errno() == libc::EINPROGRESS {
        descriptors::opened(socket, How::Connected);
    }
    result
}

fn abstract_name(name: &[u8]) -> libc::sockaddr_un {
    // SAFETY: zeros are an address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (place, &byte) in address.sun_path.iter_mut().skip(1).zip(name) {
        *place = byte as libc::c_char;
    }
    address
}

/// To what the service listens on: where it asked for this address, or for all.
pub fn connect_here(socket: c_int, board: &Board, asked: &Asked) -> Option<c_int> {
    let Asked { family, port } = *asked;
    let (family, port) = match (board.listener(port, family.is_v6()), family) {
        (Some(port), family) => (family, port),
        (None, Family::V6) => (Family::Mapped, board.listener(port, false)?),
        (None, _) => return None,
    };
    let result = named_here(libc::SYS_connect, socket, family, port);
    if result == 0 || errno() == libc::EINPROGRESS {
        descriptors::opened(socket, How::Connected);
    }
    Some(result)
}

/// `bind` or `connect`, by a port of this machine; 0: by any.
fn named_here(call: libc::c_long, socket: c_int, family: Family, port: u16) -> c_int {
    let ip = match family {
        Family::V4 => {
            // SAFETY: zeros are an address, which is as long as is said. Not by libc, whose place
            // is ours.
            return unsafe {
                let mut address: libc::sockaddr_in = std::mem::zeroed();
                address.sin_family = libc::AF_INET as libc::sa_family_t;
                address.sin_port = port.to_be();
                address.sin_addr.s_addr = libc::INADDR_LOOPBACK.to_be();
                let size = size_of_val(&address);
                libc::syscall(call, socket, &raw const address, size) as c_int
            };
        }
        Family::Mapped => Ipv4Addr::LOCALHOST.to_ipv6_mapped(),
        Family::V6 => Ipv6Addr::LOCALHOST,
    };
    // SAFETY: likewise.
    unsafe {
        let mut address: libc::sockaddr_in6 = std::mem::zeroed();
        address.sin6_family = libc::AF_INET6 as libc::sa_family_t;
        address.sin6_port = port.to_be();
        address.sin6_addr.s6_addr = ip.octets();
        let size = size_of_val(&address);
        libc::syscall(call, socket, &raw const address, size) as c_int
    }
}

fn say(board: &Board, socket: c_int, asked: u16, family: Family) {
    if let Some(got) = port_got(socket) {
        let v6 = family.is_v6();
        board.listens(Listener { asked, got, v6 });
    }
}

/// The port that it has, whatever the service has asked for.
pub fn port_got(socket: c_int) -> Option<u16> {
    // SAFETY: zeros are an address; the memory is ours and as long as is said.
    unsafe {
        let mut address: libc::sockaddr_in6 = std::mem::zeroed();
        let mut length = size_of_val(&address) as socklen_t;
        let place = (&raw mut address).cast();
        let asked = getsockname(socket, place, &mut length);
        // The port stands at the same place in either family.
        (asked == 0).then(|| u16::from_be(address.sin6_port))
    }
}

pub fn is_stream(socket: c_int) -> bool {
    let mut kind: c_int = 0;
    let mut length = size_of_val(&kind) as socklen_t;
    let place = (&raw mut kind).cast();
    // SAFETY: the memory is ours and as long as is said.
    let asked =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_TYPE, place, &mut length) };
    asked == 0 && kind == libc::SOCK_STREAM
}
