//! Memory that the recorder makes and all processes of a service have: where a service's database
//! is found, and whose turn it is on each connection.
//!
//! ```text
//!   a thread reads a request ──▶ takes a number ────────────▶ Board::next
//!   it writes to a connection ─▶ its number stands there ───▶ Board::set_turn
//!                                                                  ▲
//!   the other end has read what was written, and looks ────────────┘
//! ```
//!
//! In a replay, requests of HTTP say their numbers themselves ([`REQUEST_HEADER`]); those of
//! FastCGI and uwsgi have no place for them, and who sends them puts them at their connection's
//! place ([`Board::sends`]). What the service listens on becomes another port, which is found here
//! ([`Board::listener`]), or a name that the kernel gives ([`Board::moved`]).
//!
//! A connection is known to both of its ends by the address of the end that connected: its port
//! and the one that it connected to (a port may be used for several connections at once), or the
//! name that the kernel gives a Unix socket that asks for one.
//!
//! All of it is plain numbers, which any process of the service may overwrite: who reads them
//! trusts none.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::hash::fnv1a;
use crate::pins::Pins;
use crate::sessions::Sessions;
use crate::starts::Starts;

pub use invited::Guests;
use invited::Invited;
use shown::Shown;

const MAGIC: u64 = u64::from_le_bytes(*b"hindbr12");

/// How a request that is sent again says which one it is: 16 hexadecimal digits.
pub const REQUEST_HEADER: &str = "hindcast-request";

/// Requests of a replay that there can be between the first and the last in flight.
const TAKEN: usize = 1 << 16;
/// Ports that a service can listen on in a replay.
const LISTENERS: usize = 64;

/// Addresses of one database.
pub const ADDRESSES: usize = 16;
/// Addresses of others that a service calls.
pub const OTHERS: usize = 128;
/// Connections that a replay refuses and that are remembered.
const REFUSED: usize = 16;
/// Connections that there can be at a time: one for each port, one for each name of five digits.
const PORTS: usize = 1 << 16;
const NAMES: usize = 1 << 20;
/// Connections from one port to several others, of which each has a place of its own.
const WAYS: usize = 8;

/// An address as the system has it: `sockaddr_in`, `sockaddr_in6`, `sockaddr_un`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    length: u32,
    bytes: [u8; Self::SIZE],
}

impl Address {
    /// Of a Unix socket, the longest.
    pub const SIZE: usize = 112;
    pub const NONE: Self = Self {
        length: 0,
        bytes: [0; Self::SIZE],
    };

    /// `None` if it is longer than addresses are.
    pub fn new(address: &[u8]) -> Option<Self> {
        let mut made = Self::NONE;
        made.bytes
            .get_mut(..address.len())?
            .copy_from_slice(address);
        made.length = address.len() as u32;
        Some(made)
    }

    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length as usize).unwrap_or_default()
    }

    /// `AF_INET`, `AF_INET6`, `AF_UNIX`, or 0.
    pub fn family(&self) -> u16 {
        match self.bytes() {
            [low, high, ..] => u16::from_ne_bytes([*low, *high]),
            _ => 0,
        }
    }
}

/// What a service's connections to its database become, and those to others.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Redirect {
    /// Where the service finds its database.
    pub from: [Address; ADDRESSES],
    /// Where it gets to instead, one for each family; of a family that has none, to the database
    /// itself.
    pub to: [Address; 3],
    /// In a replay: whom else the service calls, and where it gets to instead.
    pub others: [(Address, Address); OTHERS],
    /// In a replay: whether it may connect to whom nobody knows.
    pub may_leave: bool,
}

impl Redirect {
    pub const NONE: Self = Self {
        from: [Address::NONE; ADDRESSES],
        to: [Address::NONE; 3],
        others: [(Address::NONE, Address::NONE); OTHERS],
        may_leave: false,
    };
}

/// Which connection, for both of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    place: u32,
    /// The port that it leads to; 0 if that does not matter.
    to: u16,
}

impl Line {
    /// Of the connection from this port to that one.
    pub fn of_ports(from: u16, to: u16) -> Option<Self> {
        let place = u32::from(from);
        (from != 0).then_some(Self { place, to })
    }

    /// Of the connection whose connecting end has the abstract name that the kernel gave it: five
    /// digits.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        let place = PORTS as u32 + name_number(name)?;
        Some(Self { place, to: 0 })
    }

    /// As a number that is not zero, and back.
    pub fn number(self) -> u64 {
        u64::from(self.to) << 32 | u64::from(self.place)
    }

    pub fn of_number(number: u64) -> Option<Self> {
        let (place, to) = (number as u32, (number >> 32) as u16);
        (place != 0 && (place as usize) < PORTS + NAMES).then_some(Self { place, to })
    }
}

/// Digits of a name that the kernel gives.
const NAME: usize = 5;

fn name_number(name: &[u8]) -> Option<u32> {
    let digits: &[u8; NAME] = name.try_into().ok()?;
    digits.iter().try_fold(0, |number, &digit| {
        Some(number << 4 | char::from(digit).to_digit(16)?)
    })
}

fn name_of(number: u64) -> [u8; NAME] {
    let digit = |at: usize| b"0123456789abcdef"[(number >> (4 * (NAME - 1 - at)) & 15) as usize];
    std::array::from_fn(digit)
}

/// What a board is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Requests are numbered from here on.
    Record { first: u64 },
    /// Requests have numbers.
    Replay,
}

/// A port that a service listens on in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    pub asked: u16,
    pub got: u16,
    pub v6: bool,
}

impl Listener {
    fn number(self) -> u64 {
        u64::from(self.asked) << 32 | u64::from(self.v6) << 16 | u64::from(self.got)
    }

    fn of(number: u64) -> Self {
        Self {
            asked: (number >> 32) as u16,
            got: number as u16,
            v6: number >> 16 & 1 == 1,
        }
    }
}

/// A path that a service listens on in a replay: a hash of it, and the abstract name that its
/// socket has instead, which are five hexadecimal digits.
struct Moved;

impl Moved {
    const THERE: u64 = 1 << 63;
    const NAME_BITS: u32 = 20;

    /// Of the path, at its place.
    fn hash(path: &[u8]) -> u64 {
        fnv1a(path) << Self::NAME_BITS & !Self::THERE
    }

    fn is_of(number: u64, path: &[u8]) -> bool {
        number & Self::THERE != 0 && number & !Self::THERE & !Self::NAMES == Self::hash(path)
    }

    const NAMES: u64 = (1 << Self::NAME_BITS) - 1;
}

#[repr(C)]
pub struct Board {
    magic: AtomicU64,
    /// The number of the next request.
    next: AtomicU64,
    /// 1 in a replay.
    replays: AtomicU32,
    /// 1 if a process of the service has pools that a replay cannot make larger.
    keeps_pools: AtomicU32,
    /// The port that the service asked for in the high half, the one that it got in the low one;
    /// and whether that is one of IPv6.
    listeners: [AtomicU64; LISTENERS],
    /// [`Moved`].
    moved: [AtomicU64; LISTENERS],
    redirect: Redirect,
    refused: [AtomicU32; REFUSED],
    /// Paths that a replay does not let connections be made to, each with a zero behind it.
    refused_paths: [[AtomicU8; Address::SIZE]; REFUSED],
    refused_paths_count: AtomicU32,
    /// In a replay, a bit for each port that a process of the service has got from the kernel.
    own: [AtomicU64; PORTS / 64],
    /// In a replay, the requests that somebody has taken, each at a place of its number's.
    taken: [AtomicU64; TAKEN],
    /// Of connections that processes of the service have made.
    made: Lines,
    /// In a replay, of those by which requests are sent that do not say their numbers. They are
    /// others' than the service's, and may be from the same ports to other ones.
    sent: Lines,
    /// In a replay, of those by which requests are sent: whom the service is to see at their ends.
    shown: Shown,
    /// In a replay, for whom the connection is that is being made.
    invited: Invited,
    pins: Pins,
    starts: Starts,
    sessions: Sessions,
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board").finish_non_exhaustive()
    }
}

/// Set in what stands for a port.
const REFUSED_MARK: u32 = 1 << 16;
/// Set in what stands for a connection that is there.
const THERE: u64 = 1 << 63;

/// A number for each connection.
#[repr(C)]
struct Lines {
    numbers: [AtomicU64; PORTS * WAYS + NAMES],
    /// By the place of one between two ports: the port that it leads to.
    to: [AtomicU16; PORTS * WAYS],
}

impl Lines {
    fn place(line: Line) -> usize {
        let place = line.place as usize;
        match place.checked_sub(PORTS) {
            None => place * WAYS + usize::from(line.to) % WAYS,
            Some(name) => PORTS * WAYS + name,
        }
    }

    /// Whether the connection that stands at the line's place is the line's.
    fn is_there(&self, line: Line) -> bool {
        let to = self.to.get(Self::place(line));
        to.is_none_or(|to| to.load(Ordering::Acquire) == line.to)
    }

    fn put(&self, line: Line, number: u64) {
        let place = Self::place(line);
        if let Some(to) = self.to.get(place) {
            to.store(line.to, Ordering::Release);
        }
        if let Some(at) = self.numbers.get(place) {
            at.store(number & !THERE | THERE, Ordering::Release);
        }
    }

    fn get(&self, line: Line) -> Option<u64> {
        let number = self.numbers.get(Self::place(line))?;
        let number = number.load(Ordering::Acquire);
        (number & THERE != 0 && self.is_there(line)).then_some(number & !THERE)
    }

    fn forget(&self, line: Line) {
        let number = self.numbers.get(Self::place(line));
        if let Some(number) = number.filter(|_| self.is_there(line)) {
            number.store(0, Ordering::Release);
        }
    }
}

impl Board {
    pub const SIZE: usize = size_of::<Self>();

    /// Makes one of memory that is zero.
    ///
    /// # Safety
    /// `base` is page-aligned, [`Board::SIZE`] bytes from there on may be read and written for as
    /// long as this process runs, and nobody else has them yet.
    pub unsafe fn make(base: *mut u8, purpose: Purpose, redirect: &Redirect) -> &'static Self {
        let board = base.cast::<Self>();
        // SAFETY: as promised; nobody reads it yet.
        unsafe {
            (&raw mut (*board).redirect).write(*redirect);
            match purpose {
                Purpose::Record { first } => (*board).next.store(first, Ordering::Relaxed),
                Purpose::Replay => (*board).replays.store(1, Ordering::Relaxed),
            }
            (*board).magic.store(MAGIC, Ordering::Release);
            &*board
        }
    }

    /// One that somebody else has made; `None` if it is none.
    ///
    /// # Safety
    /// `base` is page-aligned, and [`Board::SIZE`] bytes from there on may be read and written for
    /// as long as this process runs.
    pub unsafe fn of(base: *mut u8) -> Option<&'static Self> {
        // SAFETY: as promised.
        let board = unsafe { &*base.cast::<Self>() };
        (board.magic.load(Ordering::Acquire) == MAGIC).then_some(board)
    }

    pub fn replays(&self) -> bool {
        self.replays.load(Ordering::Relaxed) != 0
    }

    /// Pools of connections of this process are as large as the program makes them.
    pub fn keep_pools(&self) {
        self.keeps_pools.store(1, Ordering::Relaxed);
    }

    pub fn keeps_pools(&self) -> bool {
        self.keeps_pools.load(Ordering::Relaxed) != 0
    }

    /// What requests draw, and which time they read.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// What processes draw while they work on no request.
    pub fn starts(&self) -> &Starts {
        &self.starts
    }

    /// In a replay, where PHP has the files of its sessions.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The port that the service got for this one.
    pub fn listener(&self, port: u16, v6: bool) -> Option<u16> {
        let mut all = self.listeners();
        all.find(|listener| (listener.asked, listener.v6) == (port, v6))
            .map(|listener| listener.got)
    }

    /// The port that the service has asked for and has this one for.
    pub fn asked(&self, got: u16, v6: bool) -> Option<u16> {
        let mut all = self.listeners();
        all.find(|listener| (listener.got, listener.v6) == (got, v6))
            .map(|listener| listener.asked)
    }

    /// All ports that the service has asked for.
    pub fn listeners(&self) -> impl Iterator<Item = Listener> + '_ {
        let numbers = self.listeners.iter();
        let numbers = numbers.map(|listener| listener.load(Ordering::Acquire));
        numbers.filter(|&number| number != 0).map(Listener::of)
    }

    /// The service gets another port than it asked for. False if there is no room to say so.
    pub fn listens(&self, listener: Listener) -> bool {
        let number = listener.number();
        let free = |place: &AtomicU64| {
            place
                .compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        self.listeners.iter().any(free)
    }

    /// The socket that the service wanted to have at this path has this abstract name. Who comes
    /// later takes the place of who had it. False if the name is none that the kernel gives, or
    /// there is no room.
    pub fn moves(&self, path: &[u8], name: &[u8]) -> bool {
        let Some(name) = name_number(name) else {
            return false;
        };
        let number = Moved::THERE | Moved::hash(path) | u64::from(name);
        self.moved.iter().any(|place| {
            let mine = |before: u64| before == 0 || Moved::is_of(before, path);
            let put = |before| mine(before).then_some(number);
            place
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, put)
                .is_ok()
        })
    }

    /// The abstract name of the socket that the service wanted to have at this path.
    pub fn moved(&self, path: &[u8]) -> Option<[u8; NAME]> {
        let mut numbers = self.moved_numbers();
        numbers
            .find(|&number| Moved::is_of(number, path))
            .map(name_of)
    }

    /// Of all sockets that have other names than the service gave them, but for these paths.
    pub fn all_moved_but<'a>(
        &self,
        paths: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> impl Iterator<Item = [u8; NAME]> {
        let is_none = move |&number: &u64| !paths.clone().any(|path| Moved::is_of(number, path));
        self.moved_numbers().filter(is_none).map(name_of)
    }

    fn moved_numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let numbers = self.moved.iter();
        let numbers = numbers.map(|place| place.load(Ordering::Acquire));
        numbers.filter(|&number| number != 0)
    }

    /// A number for a request that arrives.
    pub fn take_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// What the connection from here to there becomes: where it gets to instead.
    pub fn redirected(&self, to: &[u8]) -> Option<Address> {
        let Some(from) = self.database(to) else {
            let mut others = self.redirect.others.iter();
            let known =
                |(from, _): &&(Address, Address)| from.length != 0 && same(from.bytes(), to);
            return others.find(known).map(|(_, gate)| *gate);
        };
        let gates = self.redirect.to.iter();
        gates.copied().find(|gate| gate.family() == from.family())
    }

    /// Whether a replay lets a connection be made to whom it does not know.
    pub fn may_leave(&self) -> bool {
        !self.replays() || self.redirect.may_leave
    }

    /// In a replay: a process of the service asked for any port and got this one.
    pub fn owns(&self, port: u16) {
        self.own[usize::from(port) / 64].fetch_or(1 << (port % 64), Ordering::AcqRel);
    }

    /// Whether what listens on this port may be the service itself.
    pub fn is_own(&self, port: u16) -> bool {
        let bit = self.own[usize::from(port) / 64].load(Ordering::Acquire) >> (port % 64) & 1;
        bit == 1 || self.listeners().any(|listener| listener.got == port)
    }

    /// A connection to this port was refused, since nobody knows who that is.
    pub fn refuse(&self, port: u16) {
        let number = u32::from(port) | REFUSED_MARK;
        let free = |place: &AtomicU32| {
            let before = place.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire);
            before.is_ok() || before == Err(number)
        };
        self.refused.iter().any(free);
    }

    /// The ports of connections that were refused, as far as they are remembered.
    pub fn refused(&self) -> impl Iterator<Item = u16> + '_ {
        let numbers = self
            .refused
            .iter()
            .map(|place| place.load(Ordering::Acquire));
        numbers
            .filter(|&number| number != 0)
            .map(|number| number as u16)
    }

    /// A connection to this path was refused.
    pub fn refuse_path(&self, path: &[u8]) {
        let is_known = |place: &[AtomicU8; Address::SIZE]| {
            let mut bytes = place.iter().map(|byte| byte.load(Ordering::Acquire));
            path.iter().all(|&byte| bytes.next() == Some(byte)) && bytes.next() == Some(0)
        };
        if self.refused_paths.iter().any(is_known) {
            return;
        }
        let at = self.refused_paths_count.fetch_add(1, Ordering::AcqRel);
        if let Some(place) = self.refused_paths.get(at as usize) {
            for (to, &from) in place.iter().zip(path) {
                to.store(from, Ordering::Release);
            }
        }
    }

    /// Those that the service has not listened on itself by now: some look beforehand whether
    /// somebody else does.
    pub fn refused_paths(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        let paths = self.refused_paths.iter().map(|place| {
            let bytes = place.iter().map(|byte| byte.load(Ordering::Acquire));
            bytes.take_while(|&byte| byte != 0).collect::<Vec<u8>>()
        });
        paths.filter(|path| !path.is_empty() && self.moved(path).is_none())
    }

    /// Whether the service finds its database there.
    pub fn is_database(&self, to: &[u8]) -> bool {
        self.database(to).is_some()
    }

    fn database(&self, to: &[u8]) -> Option<&Address> {
        let known = |from: &&Address| from.length != 0 && same(from.bytes(), to);
        self.redirect.from.iter().find(known)
    }

    /// Takes a request in a replay, before it is worked on. False if somebody has.
    pub fn take(&self, request: u64) -> bool {
        self.place(request).swap(request, Ordering::AcqRel) != request
    }

    /// Whether somebody has taken a request.
    pub fn is_taken(&self, request: u64) -> bool {
        self.place(request).load(Ordering::Acquire) == request
    }

    fn place(&self, request: u64) -> &AtomicU64 {
        &self.taken[request as usize % TAKEN]
    }

    /// What is written to the connection from now on belongs to this request; 0: to none.
    pub fn set_turn(&self, line: Line, request: u64) {
        self.made.put(line, request);
    }

    /// The connection is there no more.
    pub fn forget(&self, line: Line) {
        self.made.forget(line);
    }

    /// The request that what was last written to the connection belongs to. `Some(0)`: to none, or
    /// it is not known; `None`: no process that has this board made the connection.
    pub fn whose_turn(&self, line: Line) -> Option<u64> {
        self.made.get(line)
    }

    /// In a replay: who sends requests is about to send this one by the connection.
    pub fn sends(&self, line: Line, request: u64) {
        self.sent.put(line, request);
    }

    /// In a replay: the request was answered, and the connection is about to be closed.
    pub fn has_sent(&self, line: Line) {
        self.sent.forget(line);
    }

    /// The request that is sent by the connection, if who sends it says so here.
    pub fn sent(&self, line: Line) -> Option<u64> {
        self.sent.get(line)
    }

    /// In a replay: who is to accept the connection that is about to be made. Until
    /// [`Board::welcome_all`], and one at a time.
    pub fn invite(&self, line: Line, guests: Guests<'_>) {
        self.invited.put(line, guests);
    }

    /// Whoever gets it accepts what comes.
    pub fn welcome_all(&self) {
        self.invited.clear();
    }

    /// Whether a process may accept what comes to this port now.
    pub fn is_invited(&self, port: u16, process: u32) -> bool {
        !self.replays() || self.invited.may(port, process)
    }

    /// Whether a process may have this connection, which another one has accepted for it.
    pub fn may_have(&self, line: Line, process: u32) -> bool {
        !self.invited.is_by(line) || self.is_invited(line.to, process)
    }

    /// Whether some are not to accept what comes to a port now.
    pub fn invites(&self) -> bool {
        self.replays() && self.invited.is_on()
    }

    /// A process has accepted a connection.
    pub fn accepted(&self, line: Line, process: u32) {
        self.invited.accepted(line, process);
    }

    /// What came to this port has come to a listener of which a process has others in other
    /// processes (`SO_REUSEPORT`), and this process is not to accept it.
    pub fn declined(&self, port: u16) {
        self.invited.declined(port);
    }

    /// Whether the connection for which somebody was invited has come to another process' listener.
    pub fn is_elsewhere(&self) -> bool {
        self.invited.is_elsewhere()
    }

    /// Who has accepted the connection for which somebody was invited.
    pub fn accepted_by(&self) -> Option<u32> {
        self.invited.by()
    }

    /// In a replay: at the other end of this connection the service is to see this client.
    pub fn show(&self, line: Line, client: SocketAddr) {
        self.shown.put(line, client);
    }

    /// The client that the service is to see at the other end of a connection; `None`: who is
    /// there. Of a port from which the service has connected to itself since, nothing was said.
    pub fn shown(&self, line: Line) -> Option<SocketAddr> {
        let shown = self.shown.get(line).filter(|_| self.replays())?;
        self.whose_turn(line).is_none().then_some(shown)
    }
}

/// Linux' numbers of families.
const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Whether two addresses are the same place. What a caller of `connect` may fill with anything does
/// not count: the flow of IPv6, and what follows the zero that ends a path.
fn same(ours: &[u8], theirs: &[u8]) -> bool {
    let family = |bytes: &[u8]| bytes.first_chunk().map(|two| u16::from_ne_bytes(*two));
    let agree = |range: std::ops::Range<usize>| {
        let part = ours.get(range.clone());
        part.is_some() && part == theirs.get(range)
    };
    match family(ours) {
        of if of != family(theirs) => false,
        // Family, port, address.
        Some(AF_INET) => agree(0..8),
        // Family, port, flow, address.
        Some(AF_INET6) => agree(0..4) && agree(8..24),
        Some(AF_UNIX) => path(ours).is_some() && path(ours) == path(theirs),
        _ => false,
    }
}

/// Of a Unix socket that has a name in the file system.
pub fn path(address: &[u8]) -> Option<&[u8]> {
    let path = address.get(2..)?.split(|&byte| byte == 0).next()?;
    (!path.is_empty()).then_some(path)
}

mod invited;
mod shown;
#[cfg(test)]
mod tests;
