//! Makes a fresh socket the service's end of a connection that another machine had (`TCP_REPAIR`).
//!
//! ```text
//!   in repair   bound, sequence numbers, "connected", what both can do; what the program has not
//!               read, and what the client may lack, as if it were on its way
//!   after it    what the client may lack is sent once more beside the socket: it drops what it has
//! ```
//!
//! The socket itself must believe that all was sent, or it would take no acknowledgement of it; but
//! then it waits for a second before it sends again. So that is done here.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd as _, OwnedFd};

use hindcast_execlog::handover;

use crate::book::{CLOCK_AHEAD_MS, Connection};
use crate::packet;
use crate::wire::Wire;

const TCP_REPAIR: i32 = 19;
const TCP_REPAIR_QUEUE: i32 = 20;
const TCP_QUEUE_SEQ: i32 = 21;
const TCP_REPAIR_OPTIONS: i32 = 22;
const TCP_TIMESTAMP: i32 = 24;
const TCP_REPAIR_WINDOW: i32 = 29;
const RECEIVE_QUEUE: i32 = 1;
const SEND_QUEUE: i32 = 2;

/// Kinds of [`OptionOf`], as in the header of a packet.
const SEGMENT: u32 = 2;
const WINDOW: u32 = 3;
const SELECTIVE: u32 = 4;
const TIMESTAMP: u32 = 8;

#[repr(C)]
struct OptionOf {
    code: u32,
    value: u32,
}

#[repr(C)]
#[derive(Default)]
struct Window {
    last_update: u32,
    send: u32,
    largest: u32,
    receive: u32,
    receive_update: u32,
}

/// A connection that is being taken over.
pub struct Repaired {
    socket: OwnedFd,
    /// What the client may lack, in packets.
    again: Vec<Vec<u8>>,
    client: SocketAddrV4,
}

/// How far the program was: bytes read, and what of it the client may lack.
pub struct Progress {
    pub read: u64,
    pub unread: Vec<u8>,
    pub sent: u64,
    pub again: Vec<u8>,
    /// What the client has beyond what the program knows to have sent.
    pub beyond: u64,
}

/// An error says at which step.
fn at(step: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{step}: {error}"))
}

fn set<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: a value with its length.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of_val(value) as u32,
        )
    };
    done(result)
}

fn done(result: i32) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn tcp<T>(socket: &OwnedFd, option: i32, value: &T) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, option, value)
}

fn address(of: SocketAddrV4, is_six: bool) -> (libc::sockaddr_in6, u32) {
    // SAFETY: plain data.
    unsafe {
        let mut made: libc::sockaddr_in6 = std::mem::zeroed();
        if is_six {
            made.sin6_family = libc::AF_INET6 as u16;
            made.sin6_port = of.port().to_be();
            made.sin6_addr.s6_addr = of.ip().to_ipv6_mapped().octets();
            return (made, size_of::<libc::sockaddr_in6>() as u32);
        }
        let four = &mut *(&raw mut made).cast::<libc::sockaddr_in>();
        four.sin_family = libc::AF_INET as u16;
        four.sin_port = of.port().to_be();
        four.sin_addr.s_addr = u32::from_ne_bytes(of.ip().octets());
        (made, size_of::<libc::sockaddr_in>() as u32)
    }
}

/// Makes `socket` the connection between `service` and `client`, in repair still: nothing is sent.
pub fn connect(
    socket: OwnedFd,
    (service, client): (SocketAddrV4, SocketAddrV4),
    known: &Connection,
    progress: Progress,
) -> io::Result<Repaired> {
    let first_again = progress.sent + progress.beyond - progress.again.len() as u64;
    let (receive, send) = known
        .sequences(progress.read, first_again)
        .ok_or_else(|| io::Error::other("the connection was never answered"))?;
    let mut domain = 0i32;
    let mut length = 4u32;
    // SAFETY: room for one number.
    done(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            (&raw mut domain).cast(),
            &raw mut length,
        )
    })?;
    let is_six = domain == libc::AF_INET6;
    tcp(&socket, TCP_REPAIR, &1i32).map_err(at("TCP_REPAIR"))?;
    let (own, own_length) = address(service, is_six);
    // SAFETY: an address with its length.
    done(unsafe { libc::bind(socket.as_raw_fd(), (&raw const own).cast(), own_length) })
        .map_err(at("bind"))?;
    for (queue, sequence) in [(SEND_QUEUE, send), (RECEIVE_QUEUE, receive)] {
        tcp(&socket, TCP_REPAIR_QUEUE, &queue)?;
        tcp(&socket, TCP_QUEUE_SEQ, &sequence).map_err(at("TCP_QUEUE_SEQ"))?;
    }
    let (other, other_length) = address(client, is_six);
    // SAFETY: an address with its length. In repair it sends nothing.
    done(unsafe { libc::connect(socket.as_raw_fd(), (&raw const other).cast(), other_length) })
        .map_err(at("connect"))?;
    agree(&socket, known).map_err(at("TCP_REPAIR_OPTIONS"))?;
    tcp(&socket, TCP_REPAIR_QUEUE, &RECEIVE_QUEUE)?;
    put(&socket, &progress.unread).map_err(at("what was not read"))?;
    tcp(&socket, TCP_REPAIR_QUEUE, &SEND_QUEUE)?;
    with_room(&socket, progress.again.len(), || {
        put(&socket, &progress.again).map_err(at("what was sent"))
    })?;
    window(&socket, known, receive).map_err(at("TCP_REPAIR_WINDOW"))?;
    let acknowledged = receive.wrapping_add(progress.unread.len() as u32);
    let segment = usize::from(known.client.segment.unwrap_or(536)).min(SEGMENT_MAX);
    let pieces = (0u32..)
        .step_by(segment)
        .zip(progress.again.chunks(segment));
    let again = pieces.map(|(offset, bytes)| {
        let numbers = (send.wrapping_add(offset), acknowledged);
        packet::form((service, client), numbers, bytes)
    });
    Ok(Repaired {
        again: again.collect(),
        socket,
        client,
    })
}

/// Fits what lies between the two machines, most likely.
const SEGMENT_MAX: usize = 1400;

/// Runs `inner` while the socket has room for so many bytes to be sent.
fn with_room(
    socket: &OwnedFd,
    bytes: usize,
    inner: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    const SO_BUF_LOCK: i32 = 72;
    if bytes == 0 {
        return Ok(());
    }
    let mut locks = 0i32;
    let mut length = 4u32;
    // SAFETY: room for one number.
    let known = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_BUF_LOCK,
            (&raw mut locks).cast(),
            &raw mut length,
        )
    };
    let room = (bytes * 2 + (256 << 10)) as i32;
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &room).map_err(at("SO_SNDBUFFORCE"))?;
    inner()?;
    // The kernel may go on choosing the room if it did before.
    if known == 0 {
        set(socket, libc::SOL_SOCKET, SO_BUF_LOCK, &locks)?;
    }
    Ok(())
}

/// What both sides can do.
fn agree(socket: &OwnedFd, known: &Connection) -> io::Result<()> {
    let (client, service) = (&known.client, &known.service);
    let mut options = Vec::new();
    if let Some(segment) = client.segment {
        options.push(OptionOf {
            code: SEGMENT,
            value: segment.into(),
        });
    }
    if let (Some(send), Some(receive)) = (client.window_scale, service.window_scale) {
        options.push(OptionOf {
            code: WINDOW,
            value: u32::from(send) | u32::from(receive) << 16,
        });
    }
    let both = |has: fn(&crate::packet::Options) -> bool| has(client) && has(service);
    if both(|options| options.selective) {
        options.push(OptionOf {
            code: SELECTIVE,
            value: 0,
        });
    }
    let clock = service.timestamp.filter(|_| client.timestamp.is_some());
    if clock.is_some() {
        options.push(OptionOf {
            code: TIMESTAMP,
            value: 0,
        });
    }
    // SAFETY: values with their length.
    done(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_REPAIR_OPTIONS,
            options.as_ptr().cast(),
            size_of_val(&options[..]) as u32,
        )
    })?;
    if let (Some(said), Some(when)) = (clock, known.answered) {
        // The client drops what seems to be from before.
        let now = said.wrapping_add(when.elapsed().as_millis() as u32 + CLOCK_AHEAD_MS);
        // An odd number has the kernel count microseconds (Linux 6.7), which the next machine would
        // not reach.
        let now = now & !1;
        tcp(socket, TCP_TIMESTAMP, &now)?;
    }
    Ok(())
}

/// Puts bytes into a queue of a socket in repair.
fn put(socket: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let piece = &bytes[..bytes.len().min(16 << 10)];
        // SAFETY: bytes with their length.
        let sent = unsafe { libc::send(socket.as_raw_fd(), piece.as_ptr().cast(), piece.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        bytes = &bytes[sent as usize..];
    }
    Ok(())
}

/// How much the client has said that it takes.
fn window(socket: &OwnedFd, known: &Connection, receive: u32) -> io::Result<()> {
    let mut window = Window::default();
    let mut length = size_of::<Window>() as u32;
    // SAFETY: room for one value.
    done(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_REPAIR_WINDOW,
            (&raw mut window).cast(),
            &raw mut length,
        )
    })?;
    let scale = known.service.window_scale.and(known.client.window_scale);
    let open = u32::from(known.window) << scale.unwrap_or(0).min(14);
    window.last_update = receive;
    window.send = open;
    window.largest = open.max(window.largest);
    tcp(socket, TCP_REPAIR_WINDOW, &window)
}

impl Repaired {
    /// From here on it is a connection like any other. `shut` are the ways that the program has
    /// shut down, `ended` says that the client sends no more.
    pub fn go_live(self, wire: &Wire, shut: u32, ended: bool) -> io::Result<()> {
        tcp(&self.socket, TCP_REPAIR, &0i32)?;
        // Repair leaves it the only one that may have its port; the program's listens there, too.
        set(&self.socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32)?;
        // What is lost here is sent again by the socket, a little later.
        for packet in &self.again {
            wire.send(packet, self.client);
        }
        let way = match (shut & 1 != 0 || ended, shut & 2 != 0) {
            (false, false) => return Ok(()),
            (true, false) => libc::SHUT_RD,
            (false, true) => libc::SHUT_WR,
            (true, true) => libc::SHUT_RDWR,
        };
        // SAFETY: numbers only.
        done(unsafe { libc::shutdown(self.socket.as_raw_fd(), way) })
    }
}

/// Who is at its other end, if the program has asked for it.
pub fn client_of(connection: &handover::Connection) -> Option<SocketAddrV4> {
    let peer = connection.peer.get(..connection.peer_length as usize)?;
    let family = u16::from_ne_bytes(peer.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(peer.get(2..4)?.try_into().ok()?);
    let ip: [u8; 4] = match i32::from(family) {
        libc::AF_INET => peer.get(4..8)?.try_into().ok()?,
        // An IPv4 address as one of IPv6.
        libc::AF_INET6 => peer.get(20..24)?.try_into().ok()?,
        _ => return None,
    };
    Some(SocketAddrV4::new(ip.into(), port))
}
