//! Packets beside the kernel's connections: what comes from clients before anybody has them, and
//! what is sent to them in a connection's name.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use crate::packet::{FIN, RST, SYN};

/// What comes for an address, as it comes: before the kernel looks at it, and also what rules keep
/// out. Between it, what goes from there that begins or ends a connection.
pub struct Arriving {
    socket: OwnedFd,
    room: Vec<u8>,
}

/// Bytes of packets that the kernel keeps for us.
const KEPT: i32 = 64 << 20;

impl Arriving {
    pub fn at(address: Ipv4Addr) -> io::Result<Arriving> {
        // Of one protocol alone it would be shown what the kernel has answered already.
        let all = i32::from((libc::ETH_P_ALL as u16).to_be());
        let socket = socket(libc::AF_PACKET, libc::SOCK_DGRAM, all)?;
        let only = only_tcp_of(address);
        let program = libc::sock_fprog {
            len: only.len() as u16,
            filter: only.as_ptr().cast_mut(),
        };
        set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &KEPT)?;
        Ok(Arriving {
            socket,
            room: vec![0; 1 << 17],
        })
    }

    /// Shows every packet that has come since.
    pub fn each(&mut self, mut show: impl FnMut(&[u8])) {
        loop {
            let room = self.room.as_mut_ptr().cast();
            // SAFETY: writes no more than there is room for.
            let received = unsafe { libc::recv(self.socket.as_raw_fd(), room, self.room.len(), 0) };
            let Ok(received) = usize::try_from(received) else {
                return;
            };
            show(&self.room[..received]);
        }
    }

    /// Whether more has come since this was asked last than could be kept.
    pub fn has_lost(&self) -> bool {
        let mut counts = [0u32; 2];
        let mut length = size_of_val(&counts) as libc::socklen_t;
        // SAFETY: room for two numbers.
        let got = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                counts.as_mut_ptr().cast(),
                &mut length,
            )
        };
        got == 0 && counts[1] != 0
    }
}

impl AsFd for Arriving {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A filter of the kernel's: the packet's protocol, and protocol and addresses of its header. What
/// goes has one of three flags.
fn only_tcp_of(address: Ipv4Addr) -> [libc::sock_filter; 13] {
    let operation = |code, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_ABS;
    let is = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let has = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    let shows = libc::BPF_RET | libc::BPF_K;
    let protocol = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
    let flags = u32::from(SYN | FIN | RST);
    [
        operation(load | libc::BPF_H, 0, 0, protocol),
        operation(is, 0, 10, libc::ETH_P_IP as u32),
        operation(load | libc::BPF_B, 0, 0, 9),
        operation(is, 0, 8, libc::IPPROTO_TCP as u32),
        operation(load | libc::BPF_W, 0, 0, 16),
        operation(is, 5, 0, address.to_bits()),
        operation(load | libc::BPF_W, 0, 0, 12),
        operation(is, 0, 4, address.to_bits()),
        operation(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0),
        operation(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, 0, 0, 13),
        operation(has, 0, 1, flags),
        operation(shows, 0, 0, u32::MAX),
        operation(shows, 0, 0, 0),
    ]
}

fn set<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: a value with its length.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What is sent in a connection's name.
pub struct Wire {
    raw: OwnedFd,
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
        Ok(Wire {
            raw: socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW)?,
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
}
