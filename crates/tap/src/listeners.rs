//! What a service listens on in a replay: a free port of this machine, in place of the one that it
//! asks for. The recorded service may still have that, and nobody but the replay is to come.

use hindcast_taplog::board::{Board, Listener};
use libc::{c_int, sockaddr, socklen_t};

use crate::process;

/// Binds to another port; `None` if this is not a replay, or no port that somebody would look for.
///
/// # Safety
/// As for libc's.
pub unsafe fn bind(socket: c_int, address: *const sockaddr, length: socklen_t) -> Option<c_int> {
    let board = process::board().filter(|board| board.replays())?;
    // SAFETY: what the caller of libc gave is at least as long as it says.
    let (v6, asked) = unsafe {
        let family = address.as_ref()?.sa_family;
        match i32::from(family) {
            libc::AF_INET if length as usize >= size_of::<libc::sockaddr_in>() => (
                false,
                u16::from_be((*address.cast::<libc::sockaddr_in>()).sin_port),
            ),
            libc::AF_INET6 if length as usize >= size_of::<libc::sockaddr_in6>() => (
                true,
                u16::from_be((*address.cast::<libc::sockaddr_in6>()).sin6_port),
            ),
            _ => return None,
        }
    };
    if asked == 0 || !is_stream(socket) {
        return None;
    }
    // Several sockets share a port, or one comes after another.
    let before = board.listener(asked, v6).unwrap_or(0);
    let result = bind_here(socket, v6, before);
    if result == 0 && before == 0 {
        say(board, socket, asked, v6);
    }
    Some(result)
}

/// To this port of this machine; 0: to any.
fn bind_here(socket: c_int, v6: bool, port: u16) -> c_int {
    // SAFETY: zeros are addresses; each is as long as is said. Not by libc, whose place is ours.
    let result = unsafe {
        match v6 {
            false => {
                let mut address: libc::sockaddr_in = std::mem::zeroed();
                address.sin_family = libc::AF_INET as libc::sa_family_t;
                address.sin_port = port.to_be();
                address.sin_addr.s_addr = libc::INADDR_LOOPBACK.to_be();
                let size = size_of_val(&address);
                libc::syscall(libc::SYS_bind, socket, &raw const address, size)
            }
            true => {
                let mut address: libc::sockaddr_in6 = std::mem::zeroed();
                address.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                address.sin6_port = port.to_be();
                address.sin6_addr.s6_addr = std::net::Ipv6Addr::LOCALHOST.octets();
                let size = size_of_val(&address);
                libc::syscall(libc::SYS_bind, socket, &raw const address, size)
            }
        }
    };
    result as c_int
}

fn say(board: &Board, socket: c_int, asked: u16, v6: bool) {
    // SAFETY: zeros are an address; the memory is ours and as long as is said.
    let got = unsafe {
        let mut address: libc::sockaddr_in6 = std::mem::zeroed();
        let mut length = size_of_val(&address) as socklen_t;
        let place = (&raw mut address).cast();
        if libc::getsockname(socket, place, &mut length) != 0 {
            return;
        }
        // The port stands at the same place in either family.
        u16::from_be(address.sin6_port)
    };
    board.listens(Listener { asked, got, v6 });
}

fn is_stream(socket: c_int) -> bool {
    let mut kind: c_int = 0;
    let mut length = size_of_val(&kind) as socklen_t;
    let place = (&raw mut kind).cast();
    // SAFETY: the memory is ours and as long as is said.
    let asked =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_TYPE, place, &mut length) };
    asked == 0 && kind == libc::SOCK_STREAM
}
