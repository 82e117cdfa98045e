//! What the kernel did for a leader in the moment that it was killed, and no log tells.
//!
//! A call that was killed in the kernel has had its effect: bytes were sent, or taken out of a
//! socket, a connection was accepted. The follower that goes on would do it once more. So it keeps
//! count of what the log says of each connection, and when it goes on it compares with what the
//! kernel has counted:
//!
//! ```text
//!   sent      the log says 120, the kernel 150    the next write has written 30 already
//!   received  the log says 800, the kernel 864    the next read has its 64 bytes from where
//!                                                 the leader had them put: behind its log
//!   a socket that no log opens                    what the next accept returns
//! ```
//!
//! **What this does not see**: connections that are not TCP, whose bytes the kernel does not count;
//! calls that receive into several buffers; descriptors that were duplicated. Where bytes are known
//! to be lost the connection is closed, so that the client sees it and does not wait.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};

use crate::functions::{self, Function};
use crate::state::mode::follows;
use crate::state::recording;
use crate::{raw, syscall};

/// Descriptors with numbers below this are known, and counted.
pub const COUNTED: usize = 1 << 16;

/// How a descriptor came to be, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Origin {
    /// Not open.
    None = 0,
    /// Not a connection whose bytes are counted.
    Other = 1,
    Accepted = 2,
    /// A socket that the program may connect.
    Made = 3,
    /// A thread is about to close it, and no log tells yet that it has.
    Closing = 4,
}

/// One descriptor. While following: bytes that the log tells of. After going on: bytes that it does
/// not tell of.
struct Flow {
    origin: AtomicU8,
    /// The leader had it open when it was killed.
    taken: AtomicBool,
    /// Threads that were given the number, and have to wait until the one that had it before has
    /// closed it.
    opening: AtomicU8,
    received: AtomicU64,
    sent: AtomicU64,
}

static FLOWS: [Flow; COUNTED] = [const {
    Flow {
        origin: AtomicU8::new(0),
        taken: AtomicBool::new(false),
        opening: AtomicU8::new(0),
        received: AtomicU64::new(0),
        sent: AtomicU64::new(0),
    }
}; COUNTED];

/// A connection that the leader had accepted and no log tells of; negative: none.
static ACCEPTED: AtomicI32 = AtomicI32::new(-1);
/// There is something to be found in `FLOWS` that no log tells of.
static UNTOLD: AtomicBool = AtomicBool::new(false);

/// Clients talk to this process, as far as its log tells: it has moved something through a
/// connection that was accepted.
static TALKS: AtomicBool = AtomicBool::new(false);

pub fn talks() -> bool {
    TALKS.load(Ordering::Relaxed)
}

pub fn set_talks(talks: bool) {
    TALKS.store(talks, Ordering::Relaxed);
}

fn flow(descriptor: i32) -> Option<&'static Flow> {
    FLOWS.get(usize::try_from(descriptor).ok()?)
}

impl Flow {
    fn origin(&self) -> Origin {
        match self.origin.load(Ordering::Relaxed) {
            0 => Origin::None,
            2 => Origin::Accepted,
            3 => Origin::Made,
            4 => Origin::Closing,
            _ => Origin::Other,
        }
    }

    fn set(&self, origin: Origin) {
        self.origin.store(origin as u8, Ordering::Relaxed);
        self.received.store(0, Ordering::Relaxed);
        self.sent.store(0, Ordering::Relaxed);
    }

    fn is_counted(&self) -> bool {
        matches!(self.origin(), Origin::Accepted | Origin::Made)
    }
}

// ---- While following ----

/// The standard descriptors, and what else the program inherits.
pub fn start() {
    for descriptor in 0..COUNTED as i32 / 64 {
        // SAFETY: numbers only.
        let result = unsafe { syscall!(libc::SYS_fcntl, descriptor, libc::F_GETFD) };
        if raw::error_of(result).is_none() {
            inherited(descriptor);
        }
    }
}

/// The log says that a number was given out; in this process another thread may have it still.
pub fn opens(descriptor: i32) {
    if follows()
        && let Some(flow) = flow(descriptor)
    {
        flow.opening.fetch_add(1, Ordering::Relaxed);
    }
}

/// After [`opens`]: now it is.
pub fn opened(descriptor: i32, origin: Origin) {
    if follows()
        && let Some(flow) = flow(descriptor)
    {
        flow.opening.fetch_sub(1, Ordering::Relaxed);
        flow.set(origin);
    }
}

/// A descriptor that came from elsewhere.
pub fn inherited(descriptor: i32) {
    if follows()
        && let Some(flow) = flow(descriptor)
    {
        flow.set(Origin::Other);
    }
}

/// A thread is about to close it. What was counted stays until it has.
pub fn closes(descriptor: i32) {
    if follows()
        && let Some(flow) = flow(descriptor)
    {
        flow.origin.store(Origin::Closing as u8, Ordering::Relaxed);
    }
}

/// Two numbers of one connection: neither is counted any more.
pub fn duplicated(from: i32, to: i32) {
    inherited(from);
    inherited(to);
}

/// Which way bytes go in a call, and through which descriptor.
enum Way {
    In(i32),
    Out(i32),
}

fn way(function: Function, inputs: &[u64]) -> Option<Way> {
    let first = *inputs.first()? as i32;
    Some(match function {
        functions::READ | functions::READV | functions::RECVFROM | functions::RECVMSG => {
            Way::In(first)
        }
        functions::WRITE | functions::WRITEV | functions::SENDTO | functions::SENDMSG => {
            Way::Out(first)
        }
        functions::SENDFILE => Way::Out(*inputs.get(1)? as i32),
        _ => return None,
    })
}

/// Whether a call moves bytes through a descriptor.
pub fn moves(function: Function, inputs: &[u64]) -> bool {
    way(function, inputs).is_some()
}

/// Whether a call leaves what it reads where it is, or moves bytes that its result does not count.
fn is_uncounted(function: Function, inputs: &[u64]) -> bool {
    let flags = match function {
        functions::RECVFROM => inputs.get(2),
        functions::RECVMSG => inputs.get(1),
        _ => None,
    };
    flags.is_some_and(|flags| *flags as i32 & (libc::MSG_PEEK | libc::MSG_TRUNC) != 0)
}

/// The log says that this call has had this result.
pub fn told(function: Function, inputs: &[u64], result: i64) {
    if function == functions::CLOSE {
        // Another thread may have been given the number in the meantime.
        if let Some(flow) = inputs.first().and_then(|closed| flow(*closed as i32))
            && flow.origin() == Origin::Closing
        {
            flow.set(Origin::None);
        }
        return;
    }
    if let functions::SENDMMSG | functions::RECVMMSG | functions::SPLICE = function {
        for descriptor in inputs {
            if let Some(flow) = flow(*descriptor as i32).filter(|flow| flow.is_counted()) {
                flow.set(Origin::Other);
            }
        }
        return;
    }
    let bytes = u64::try_from(result).unwrap_or(0);
    let (Some(way), false) = (way(function, inputs), is_uncounted(function, inputs)) else {
        return;
    };
    let (Way::In(descriptor) | Way::Out(descriptor)) = way;
    if let Some(flow) = flow(descriptor) {
        let count = match way {
            Way::In(_) => &flow.received,
            Way::Out(_) => &flow.sent,
        };
        count.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Bytes that the log tells of: received, and sent.
pub fn counted(descriptor: i32) -> (u64, u64) {
    flow(descriptor).map_or((0, 0), |flow| {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (count(&flow.received), count(&flow.sent))
    })
}

/// Counts from here.
pub fn count_anew(descriptor: i32) {
    if let Some(flow) = flow(descriptor) {
        flow.set(flow.origin());
    }
}

/// Whether the program has made a connection of this socket and used it.
pub fn has_moved(descriptor: i32) -> bool {
    flow(descriptor).is_some_and(|flow| flow.origin() == Origin::Made)
        && counted(descriptor) != (0, 0)
}

// ---- Going on ----

/// All that the log has opened is this process's own, and was from the beginning.
pub fn are_here() {
    for flow in &FLOWS {
        let is_open = !matches!(flow.origin(), Origin::None | Origin::Closing);
        flow.taken.store(is_open, Ordering::Relaxed);
        flow.received.store(0, Ordering::Relaxed);
        flow.sent.store(0, Ordering::Relaxed);
    }
}

/// The other end has so many bytes more than the log says that were sent.
pub fn sent_beyond(descriptor: i32, bytes: u64) {
    if let Some(flow) = flow(descriptor) {
        flow.sent.store(bytes, Ordering::Relaxed);
        UNTOLD.store(true, Ordering::Release);
    }
}

/// A descriptor of the leader's has become this process's. One that no log opens is kept for the
/// next accept if it is a connection, else closed.
pub fn taken_over(descriptor: i32) {
    let Some(flow) = flow(descriptor) else {
        return;
    };
    let counted = Counted::of(descriptor).filter(Counted::is_connected);
    let is_told = match flow.origin() {
        _ if flow.opening.load(Ordering::Relaxed) != 0 => true,
        Origin::None => false,
        // Closed, and another has the number: less went through it than the log tells of.
        Origin::Closing => counted.as_ref().is_none_or(|counted| {
            counted.received() >= flow.received.load(Ordering::Relaxed)
                && counted.sent() >= flow.sent.load(Ordering::Relaxed)
        }),
        _ => true,
    };
    flow.taken.store(is_told, Ordering::Relaxed);
    if is_told {
        return;
    }
    let is_connection = counted.is_some();
    if !is_connection || ACCEPTED.swap(descriptor, Ordering::AcqRel) >= 0 {
        raw::close(descriptor);
    }
}

/// Compares with what the kernel has counted.
pub fn settle() {
    for (descriptor, flow) in FLOWS.iter().enumerate() {
        if !flow.is_counted() {
            continue;
        }
        let counted = Counted::of(descriptor as i32).filter(Counted::is_connected);
        let made = u64::from(flow.origin() == Origin::Made);
        let (received, sent) = counted.map_or((0, 0), |counted| {
            (counted.received(), counted.sent().saturating_sub(made))
        });
        for (count, real) in [(&flow.received, received), (&flow.sent, sent)] {
            let untold = real.saturating_sub(count.load(Ordering::Relaxed));
            count.store(untold, Ordering::Relaxed);
            if untold != 0 {
                UNTOLD.store(true, Ordering::Release);
            }
        }
    }
}

/// Bytes that were taken out of the socket for the leader and are in no log. Once.
pub fn take_received(descriptor: i32) -> Option<usize> {
    take(&flow(descriptor)?.received)
}

fn take(count: &AtomicU64) -> Option<usize> {
    if !UNTOLD.load(Ordering::Acquire) {
        return None;
    }
    match count.swap(0, Ordering::Relaxed) {
        0 => None,
        bytes => Some(bytes as usize),
    }
}

/// What came of the call that a thread of the leader was killed in, if it is known to have been
/// made: the result. Bytes that were received must be asked for before.
pub fn done(function: Function, inputs: &[u64]) -> Option<isize> {
    match way(function, inputs) {
        Some(Way::Out(descriptor)) => take(&flow(descriptor)?.sent).map(|bytes| bytes as isize),
        Some(Way::In(descriptor)) => {
            take_received(descriptor)?;
            lost(descriptor);
            None
        }
        None if matches!(function, functions::ACCEPT | functions::ACCEPT4) => {
            let accepted = ACCEPTED.swap(-1, Ordering::AcqRel);
            (accepted >= 0).then_some(accepted as isize)
        }
        // The leader had closed it, and may have opened another under that number.
        None if function == functions::CLOSE => {
            let flow = flow(*inputs.first()? as i32)?;
            let is_closed = !flow.taken.load(Ordering::Relaxed)
                || flow.opening.load(Ordering::Relaxed) != 0
                || flow.origin() != Origin::Closing;
            is_closed.then_some(0)
        }
        None => None,
    }
}

/// Bytes of this connection are gone: the other end shall see that it ends.
pub fn lost(descriptor: i32) {
    if let Some(board) = recording::board() {
        board.lost_connections.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_shutdown, descriptor, libc::SHUT_RDWR) };
}

/// What a call says that was made twice: the result that it had the first time.
pub fn as_the_first_time(function: Function, result: isize) -> isize {
    let repeated = match function {
        functions::EPOLL_CTL => matches!(-result as i32, libc::EEXIST | libc::ENOENT),
        functions::BIND => -result as i32 == libc::EINVAL,
        functions::SHUTDOWN => -result as i32 == libc::ENOTCONN,
        functions::CONNECT => -result as i32 == libc::EISCONN,
        _ => false,
    };
    if repeated { 0 } else { result }
}

/// What the kernel counts of a TCP connection.
struct Counted {
    state: u8,
    acknowledged: u64,
    arrived: u64,
    /// Written and not acknowledged; arrived and not read.
    queued: i32,
    unread: i32,
}

/// States of a connection: see `tcp_states.h`.
const SYN_SENT: u8 = 2;
const SYN_RECEIVED: u8 = 3;
const FIN_WAIT_1: u8 = 4;
const FIN_WAIT_2: u8 = 5;
const TIME_WAIT: u8 = 6;
const CLOSED: u8 = 7;
const CLOSE_WAIT: u8 = 8;
const LAST_ACK: u8 = 9;
const LISTEN: u8 = 10;
const CLOSING: u8 = 11;

impl Counted {
    fn of(descriptor: i32) -> Option<Counted> {
        // `struct tcp_info` up to `tcpi_bytes_received`.
        const LENGTH: usize = 136;
        let (mut information, mut length) = ([0u64; LENGTH / 8], LENGTH as u32);
        // SAFETY: room for as much as is asked for.
        let result = unsafe {
            syscall!(
                libc::SYS_getsockopt,
                descriptor,
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                information.as_mut_ptr(),
                &raw mut length
            )
        };
        if raw::error_of(result).is_some() || (length as usize) < LENGTH {
            return None;
        }
        let queue = |request: u64| {
            let mut bytes = 0i32;
            // SAFETY: room for one number.
            unsafe { syscall!(libc::SYS_ioctl, descriptor, request, &raw mut bytes) };
            bytes
        };
        Some(Counted {
            state: information[0] as u8,
            acknowledged: information[120 / 8],
            arrived: information[128 / 8],
            queued: queue(libc::TIOCOUTQ),
            unread: queue(libc::FIONREAD),
        })
    }

    fn is_connected(&self) -> bool {
        !matches!(
            self.state,
            SYN_SENT | SYN_RECEIVED | CLOSED | LISTEN | TIME_WAIT
        )
    }

    /// Bytes that were read. The end of what the other side sends counts as one that arrives.
    fn received(&self) -> u64 {
        let end = matches!(self.state, CLOSE_WAIT | LAST_ACK | CLOSING);
        self.arrived
            .saturating_sub(self.unread as u64 + u64::from(end))
    }

    /// Bytes that were written. The end of what this side sends counts as one.
    fn sent(&self) -> u64 {
        let end = matches!(self.state, FIN_WAIT_1 | FIN_WAIT_2 | LAST_ACK | CLOSING);
        (self.acknowledged + self.queued as u64).saturating_sub(end.into())
    }
}
