//! Packets beside the kernel's connections: what comes from clients before anybody has them, and
//! what is sent to them in a connection's name.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Sees what a device receives, also what rules keep out, and sends.
pub struct Wire {
    seen: OwnedFd,
    raw: OwnedFd,
    room: Vec<u8>,
}

fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: a fresh descriptor, owned from here on.
    unsafe {
        match libc::socket(domain, kind, protocol) {
            -1 => Err(io::Error::last_os_error()),
            socket => Ok(OwnedFd::from_raw_fd(socket)),
        }
    }
}

impl Wire {
    pub fn open() -> io::Result<Wire> {
        let all = i32::from((libc::ETH_P_IP as u16).to_be());
        Ok(Wire {
            seen: socket(libc::AF_PACKET, libc::SOCK_DGRAM, all)?,
            raw: socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW)?,
            room: vec![0; 1 << 17],
        })
    }

    /// Sends a whole packet. What cannot be sent at once is lost, as on any wire.
    pub fn send(&self, packet: &[u8], to: SocketAddrV4) {
        // SAFETY: plain data; a packet and an address with their lengths.
        unsafe {
            let mut address: libc::sockaddr_in = std::mem::zeroed();
            address.sin_family = libc::AF_INET as u16;
            address.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
            libc::sendto(
                self.raw.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                0,
                (&raw const address).cast(),
                size_of::<libc::sockaddr_in>() as u32,
            );
        }
    }

    /// Shows every packet that has come since.
    pub fn each(&mut self, mut show: impl FnMut(&[u8])) {
        loop {
            let room = self.room.as_mut_ptr().cast();
            // SAFETY: writes no more than there is room for.
            let received = unsafe { libc::recv(self.seen.as_raw_fd(), room, self.room.len(), 0) };
            let Ok(received) = usize::try_from(received) else {
                return;
            };
            show(&self.room[..received]);
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.seen.as_fd()
    }
}
