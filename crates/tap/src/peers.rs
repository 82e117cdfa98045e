//! In a replay a service sees the addresses that its clients had, and not from where their requests
//! are sent again; and each client comes to the process that it came to.
//!
//! Where one process accepts for others, who is given a connection says that it has accepted it.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use hindcast_taplog::How;
use libc::{c_int, sockaddr, socklen_t};

use crate::{descriptors, listeners, process, turns};

/// Whether this process accepts for others.
static PASSES_ON: AtomicBool = AtomicBool::new(false);

pub fn pass_on() {
    PASSES_ON.store(true, Ordering::Relaxed);
}

/// Puts the client's address in the place of the one that the kernel has said.
///
/// # Safety
/// `address` is null, or `length` bytes of it were written by the kernel.
pub unsafe fn show(socket: c_int, address: *mut sockaddr, length: socklen_t) {
    // SAFETY: as the caller promises.
    unsafe {
        let Some(family) = address.as_ref().map(|address| address.sa_family) else {
            return;
        };
        let Some(client) = client(socket) else { return };
        match (i32::from(family), client.ip()) {
            (libc::AF_INET, IpAddr::V4(ip))
                if length as usize >= size_of::<libc::sockaddr_in>() =>
            {
                let address = &mut *address.cast::<libc::sockaddr_in>();
                address.sin_addr.s_addr = u32::from_ne_bytes(ip.octets());
                address.sin_port = client.port().to_be();
            }
            (libc::AF_INET6, ip) if length as usize >= size_of::<libc::sockaddr_in6>() => {
                let address = &mut *address.cast::<libc::sockaddr_in6>();
                address.sin6_addr.s6_addr = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                };
                address.sin6_port = client.port().to_be();
            }
            _ => {}
        }
    }
}

/// Who is to be seen at the other end of a connection that the service accepted; `None`: who is
/// there.
fn client(socket: c_int) -> Option<SocketAddr> {
    let board = process::board().filter(|board| board.replays())?;
    descriptors::stream(socket)?;
    let entry = descriptors::entry(socket)?;
    board.shown(entry.line().filter(|_| entry.is_accepted())?)
}

/// Whether another process is to accept what has come: this one is told that nobody is there, which
/// who does not wait in `accept` expects. Several are woken by one connection.
pub fn is_for_another(listener: c_int) -> bool {
    let Some(board) = process::board().filter(|board| board.invites()) else {
        return false;
    };
    if PASSES_ON.load(Ordering::Relaxed) {
        return false;
    }
    let waits = || {
        // SAFETY: plain system call.
        let flags = unsafe { libc::syscall(libc::SYS_fcntl, listener, libc::F_GETFL) };
        flags < 0 || flags as c_int & libc::O_NONBLOCK == 0
    };
    let port = listeners::port_got(listener).unwrap_or(0);
    let is_anothers = !board.is_invited(port, std::process::id()) && !waits();
    if is_anothers && listeners::shares_port(listener) {
        board.declined(port);
    }
    is_anothers
}

/// Says which process has accepted a connection.
pub fn accepted(socket: c_int) {
    if let Some(board) = process::board().filter(|board| board.invites())
        && !PASSES_ON.load(Ordering::Relaxed)
        && let Some(line) = descriptors::entry(socket).and_then(|entry| entry.line())
    {
        board.accepted(line, std::process::id());
    }
}

/// This process has been given a connection that another one has accepted for it.
pub fn given(socket: c_int) {
    descriptors::forget(socket);
    descriptors::opened(socket, How::Accepted);
    descriptors::entry(socket).map(turns::opened);
    accepted(socket);
}

/// Whether a connection that this process is given is to be another one's.
pub fn is_anothers(socket: c_int) -> bool {
    let Some(board) = process::board().filter(|board| board.invites()) else {
        return false;
    };
    descriptors::stream(socket);
    let line = descriptors::entry(socket).and_then(|entry| entry.line());
    line.is_some_and(|line| !board.may_have(line, std::process::id()))
}
