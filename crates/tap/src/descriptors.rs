//! Which descriptors are streams.
//!
//! A stream's number is the kernel's cookie of its socket, so a socket that several processes or
//! descriptors share is one stream.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use hindcast_taplog::board::Line;
use hindcast_taplog::{How, Told};
use libc::socklen_t;

use crate::errno::{errno, set_errno};
use crate::real::{getpeername, getsockname};
use crate::{memory, process, thread};

/// Descriptors from here on are not looked at.
const COUNT: usize = 1 << 20;

/// Not known. Anything from 2 on is a stream: twice its number.
const UNKNOWN: u64 = 0;
const NO_STREAM: u64 = 1;

/// A body longer than any.
const ENDLESS: u64 = u64::MAX;

/// What is known of a descriptor.
#[derive(Default)]
pub struct Entry {
    stream: AtomicU64,
    /// If it was accepted, the request that was read from it last; otherwise the one that was told,
    /// with 0 for none that was told, and [`NOBODY`].
    turn: AtomicU64,
    /// The connection's place on the board; 0: it has none.
    line: AtomicU64,
    /// The object of OpenSSL that encrypts what it carries; 0: none.
    ssl: AtomicUsize,
    /// How much of the body of the request that was read last is still to come.
    body: AtomicU64,
    /// If it is a connection of our own, the request for which it was written to last; 0: for none.
    written_for: AtomicU64,
    /// The task that has opened it, or written to it first.
    opener: AtomicUsize,
    /// The one task that has written to it since; [`SEVERAL`]: there were several.
    driver: AtomicUsize,
    state: AtomicU32,
    /// A session was asked for by it, and is not there yet.
    asks: AtomicBool,
    /// There is or was another descriptor of the same stream.
    copied: AtomicBool,
    /// The number of the request that was read last is to be put into what comes of its head.
    begun: AtomicBool,
}

/// Nothing special.
const PLAIN: u32 = 0;
/// Accepted; no request is unanswered.
const ACCEPTED: u32 = 1;
/// Accepted, and of the request that came nothing is answered yet.
const ASKED: u32 = 2;
/// It leads to the recorder, which sees what it carries.
const GATED: u32 = 3;
/// It leads to the service's database: whose turn it is is told with what is written.
const DATABASE: u32 = 4;
/// It is a device that gives random bytes.
const RANDOM: u32 = 5;
/// The service has connected it to somebody else: as of its database, whose turn it is is told.
const OTHER: u32 = 6;

/// Tasks have it in turn.
const SEVERAL: usize = usize::MAX;

/// It was told that it is nobody's turn.
const NOBODY: u64 = u64::MAX;

impl Entry {
    /// On whose behalf it is written to, if that was told.
    pub fn told(&self) -> Option<u64> {
        match self.turn() {
            0 => None,
            NOBODY => Some(0),
            request => Some(request),
        }
    }

    pub fn tell(&self, request: Option<u64>) {
        let turn = match request {
            None => 0,
            Some(0) => NOBODY,
            Some(request) => request,
        };
        self.turn.store(turn, Ordering::Relaxed);
    }

    /// The request for which it was written to last; 0: for none, or it is not known.
    pub fn written_for(&self) -> u64 {
        self.written_for.load(Ordering::Relaxed)
    }

    pub fn write_for(&self, request: u64) {
        self.written_for.store(request, Ordering::Relaxed);
    }

    /// This task opens it; 0: none does.
    pub fn open_by(&self, task: usize) {
        self.opener.store(task, Ordering::Relaxed);
        self.driver.store(0, Ordering::Relaxed);
    }

    /// This task writes to it; 0: none does.
    pub fn write_by(&self, task: usize) {
        let driver = self.driver.load(Ordering::Relaxed);
        let is_opener = self.opener.load(Ordering::Relaxed) == task;
        let now = match driver {
            0 if is_opener => return,
            0 => task,
            same if same == task => return,
            _ => SEVERAL,
        };
        self.driver.store(now, Ordering::Relaxed);
    }

    /// Whether nobody but this task has written to it since it was opened by another one: others
    /// have that done.
    pub fn is_driven_by(&self, task: usize) -> bool {
        task != 0 && self.driver.load(Ordering::Relaxed) == task
    }

    pub fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    pub fn line(&self) -> Option<Line> {
        Line::of_number(self.line.load(Ordering::Relaxed))
    }

    /// The object of OpenSSL that encrypts what it carries; 0: none.
    pub fn encrypted_by(&self) -> usize {
        self.ssl.load(Ordering::Relaxed)
    }

    pub fn encrypt(&self, ssl: usize) {
        self.ssl.store(ssl, Ordering::Relaxed);
    }

    /// Whether a session is asked for by it from here on. Returns whether that was so before.
    pub fn asks_for_session(&self, asks: bool) -> bool {
        self.asks.swap(asks, Ordering::Relaxed)
    }

    /// Whether the number of the request that was read last is to be put into what comes of its
    /// head. Returns whether that was so before.
    pub fn begins(&self, begins: bool) -> bool {
        self.begun.swap(begins, Ordering::Relaxed)
    }

    pub fn is_accepted(&self) -> bool {
        matches!(self.state(), ACCEPTED | ASKED)
    }

    pub fn is_asked(&self) -> bool {
        self.state() == ASKED
    }

    pub fn is_gated(&self) -> bool {
        self.state() == GATED
    }

    pub fn leads_to_database(&self) -> bool {
        matches!(self.state(), GATED | DATABASE)
    }

    /// Whether whose turn it is is told with what is written.
    pub fn tells_turns(&self) -> bool {
        matches!(self.state(), DATABASE | OTHER)
    }

    fn is_random(&self) -> bool {
        self.state() == RANDOM
    }

    /// So much was read. Returns how much of it is of the body that was still to come.
    pub fn pass_body(&self, length: usize) -> usize {
        let left = self.body.load(Ordering::Relaxed);
        let passed = left.min(length as u64);
        self.await_body(left - passed);
        passed as usize
    }

    pub fn await_body(&self, length: u64) {
        self.body.store(length, Ordering::Relaxed);
    }

    /// All of this request has come, and it is not answered. Servers read the beginnings of several
    /// in one thread, and begin with one when the rest is there.
    pub fn is_all_of(&self, request: u64) -> bool {
        self.is_asked() && self.turn() == request && self.body.load(Ordering::Relaxed) == 0
    }

    /// Nothing that comes begins a request.
    pub fn leave_alone(&self) {
        self.await_body(ENDLESS);
    }

    pub fn is_left_alone(&self) -> bool {
        self.body.load(Ordering::Relaxed) > ENDLESS / 2
    }

    pub fn ask(&self, turn: u64) {
        self.turn.store(turn, Ordering::Relaxed);
        self.state.store(ASKED, Ordering::Relaxed);
    }

    pub fn answer(&self) {
        self.state.store(ACCEPTED, Ordering::Relaxed);
    }

    fn state(&self) -> u32 {
        self.state.load(Ordering::Relaxed)
    }

    fn learn(&self, line: Option<Line>, state: u32) {
        self.turn.store(0, Ordering::Relaxed);
        let line = line.map_or(0, Line::number);
        self.line.store(line, Ordering::Relaxed);
        self.encrypt(0);
        self.await_body(0);
        self.write_for(0);
        self.open_by(0);
        self.asks_for_session(false);
        self.begins(false);
        self.copied.store(false, Ordering::Relaxed);
        self.state.store(state, Ordering::Relaxed);
    }

    fn copy(&self, from: &Self) {
        let stream = from.stream.load(Ordering::Relaxed);
        self.stream.store(stream, Ordering::Relaxed);
        self.turn.store(from.turn(), Ordering::Relaxed);
        let line = from.line.load(Ordering::Relaxed);
        self.line.store(line, Ordering::Relaxed);
        self.encrypt(from.encrypted_by());
        self.await_body(from.body.load(Ordering::Relaxed));
        self.write_for(from.written_for());
        self.open_by(from.opener.load(Ordering::Relaxed));
        let driver = from.driver.load(Ordering::Relaxed);
        self.driver.store(driver, Ordering::Relaxed);
        self.copied.store(true, Ordering::Relaxed);
        from.copied.store(true, Ordering::Relaxed);
        self.state.store(from.state(), Ordering::Relaxed);
    }
}

/// By descriptor. Pages of it that are not used take no memory.
static TABLE: AtomicPtr<Entry> = AtomicPtr::new(std::ptr::null_mut());

/// The largest descriptor of which anything was ever known.
static HIGHEST: AtomicU32 = AtomicU32::new(0);

pub fn begin() -> bool {
    let Some(table) = memory::fresh(COUNT * size_of::<Entry>()) else {
        return false;
    };
    TABLE.store(table.cast(), Ordering::Relaxed);
    true
}

pub fn entry(descriptor: i32) -> Option<&'static Entry> {
    let at = usize::try_from(descriptor).ok().filter(|&at| at < COUNT)?;
    let table = TABLE.load(Ordering::Relaxed);
    // SAFETY: the table has so many entries, and stays.
    (!table.is_null()).then(|| unsafe { &*table.add(at) })
}

fn stream_in(entry: u64) -> Option<u64> {
    (entry > NO_STREAM).then_some(entry >> 1)
}

/// The stream behind a descriptor, if it is one. One that is not known is looked at.
pub fn stream(descriptor: i32) -> Option<u64> {
    if !process::is_enabled() {
        return None;
    }
    match entry(descriptor)?.stream.load(Ordering::Relaxed) {
        UNKNOWN => opened(descriptor, How::Found),
        known => stream_in(known),
    }
}

/// The stream behind a descriptor, if that is known already.
pub fn known(descriptor: i32) -> Option<u64> {
    if !process::is_enabled() {
        return None;
    }
    stream_in(entry(descriptor)?.stream.load(Ordering::Relaxed))
}

/// The descriptor is new; tells it if it is a stream.
pub fn opened(descriptor: i32, how: How) -> Option<u64> {
    opened_to(descriptor, how, &[])
}

/// Likewise of one that connects to this address. As long as it does, nobody is at its other end
/// who could be asked for a name.
pub fn opened_to(descriptor: i32, how: How, address: &[u8]) -> Option<u64> {
    if !process::is_enabled() || process::is_sealed() || process::is_borrowed() {
        return None;
    }
    let errno = errno();
    let number = number_of(descriptor);
    learn(descriptor, number.map_or(NO_STREAM, |n| n << 1));
    if let Some(stream) = number {
        let (mut ours, mut theirs) = (Name::new(), Name::new());
        ours.of(descriptor, getsockname);
        if theirs.of(descriptor, getpeername).is_empty() {
            theirs.is(address);
        }
        let (local, peer) = (ours.text(), theirs.text());
        let told = Told::Opened {
            stream,
            how,
            local,
            peer,
        };
        let at = process::now();
        thread::tell(0, at, |ring| ring.tell(&told, at));
        if let Some(entry) = entry(descriptor) {
            let (line, state) = place(how, &ours, &theirs);
            entry.learn(line, state);
        }
    } else if is_random_device(descriptor)
        && let Some(entry) = entry(descriptor)
    {
        entry.learn(None, RANDOM);
    }
    set_errno(errno);
    number
}

/// Whether what is read from the descriptor are random bytes. What is not known is looked at; what
/// is known is looked at again, since it may have been closed by a way that is not seen.
pub fn is_random(descriptor: i32) -> bool {
    stream(descriptor);
    if process::is_sealed() || !entry(descriptor).is_some_and(Entry::is_random) {
        return false;
    }
    let errno = errno();
    let is_random = is_random_device(descriptor);
    set_errno(errno);
    is_random
}

/// `/dev/random` or `/dev/urandom`, under whatever name.
fn is_random_device(descriptor: i32) -> bool {
    // SAFETY: zeros are a `stat`, and the memory is ours.
    let stat = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        match libc::fstat(descriptor, &mut stat) {
            0 => stat,
            _ => return false,
        }
    };
    stat.st_mode & libc::S_IFMT == libc::S_IFCHR
        && [libc::makedev(1, 8), libc::makedev(1, 9)].contains(&stat.st_rdev)
}

/// Where a connection stands on the board, and what it is for us.
fn place(how: How, ours: &Name, theirs: &Name) -> (Option<Line>, u32) {
    // On another machine the same port is another connection.
    let near = theirs.is_near(ours);
    let connected = match near {
        true => ours.line_to(theirs),
        false => None,
    };
    let on_board = |line: &Line| process::board()?.whose_turn(*line);
    match how {
        How::Connected => (connected, OTHER),
        How::Database => (connected, DATABASE),
        // Made by another process of the service.
        How::Found if connected.as_ref().and_then(on_board).is_some() => (connected, PLAIN),
        How::Accepted | How::Found if near => (theirs.line_to(ours), ACCEPTED),
        How::Accepted | How::Found => (None, ACCEPTED),
    }
}

/// The descriptor is connected to the recorder, in place of the service's database.
pub fn gated(descriptor: i32) {
    opened(descriptor, How::Connected);
    if let Some(entry) = entry(descriptor) {
        entry.state.store(GATED, Ordering::Relaxed);
        if let (Some(line), Some(board)) = (entry.line(), process::board()) {
            board.set_turn(line, 0);
        }
    }
}

/// The descriptor is about to be closed. A stream of which the program has another descriptor stays
/// open.
pub fn closing(descriptor: i32) {
    if known(descriptor).is_some() && process::is_borrowed() {
        return;
    }
    if has_another(descriptor) {
        forget(descriptor);
        return;
    }
    if let (Some(entry), Some(board)) = (entry(descriptor), process::board())
        && let Some(line) = entry.line().filter(|_| !entry.is_accepted())
    {
        board.forget(line);
    }
    if let Some(stream) = forget(descriptor) {
        let at = process::now();
        thread::tell(0, at, |ring| ring.tell(&Told::Closed { stream }, at));
    }
}

/// Whether the program has the descriptor's stream open by another one.
fn has_another(descriptor: i32) -> bool {
    let is_copied = |entry: &Entry| entry.copied.load(Ordering::Relaxed);
    if !entry(descriptor).is_some_and(is_copied) {
        return false;
    }
    let Some(stream) = known(descriptor) else {
        return false;
    };
    let highest = HIGHEST.load(Ordering::Relaxed) as i32;
    let mut others = (0..=highest).filter(|&other| other != descriptor);
    others.any(|other| known(other) == Some(stream))
}

/// All descriptors of a range are about to be closed.
pub fn closing_range(first: u32, last: u32) {
    let last = last.min(HIGHEST.load(Ordering::Relaxed));
    if process::is_enabled() && !process::is_borrowed() {
        (first..=last).for_each(|descriptor| closing(descriptor as i32));
    }
}

/// The descriptor will be looked at when it is next used. Returns the stream that it was.
pub fn forget(descriptor: i32) -> Option<u64> {
    if !process::is_enabled() {
        return None;
    }
    let entry = entry(descriptor)?;
    match entry.stream.load(Ordering::Relaxed) {
        UNKNOWN => None,
        _ => {
            entry.learn(None, PLAIN);
            stream_in(entry.stream.swap(UNKNOWN, Ordering::Relaxed))
        }
    }
}

/// What is behind it is not looked at, whatever it is.
pub fn leave_alone(descriptor: i32) {
    learn(descriptor, NO_STREAM);
}

/// Both are the same from here on.
pub fn duplicated(from: i32, to: i32) {
    if from == to || to < 0 || !process::is_enabled() || process::is_borrowed() {
        return;
    }
    let Some(copy) = entry(to) else { return };
    match entry(from) {
        Some(from) => copy.copy(from),
        None => copy.copy(&Entry::default()),
    }
    HIGHEST.fetch_max(to as u32, Ordering::Relaxed);
}

fn learn(descriptor: i32, what: u64) {
    if let Some(entry) = entry(descriptor) {
        entry.stream.store(what, Ordering::Relaxed);
        entry.learn(None, PLAIN);
        HIGHEST.fetch_max(descriptor as u32, Ordering::Relaxed);
    }
}

/// The kernel's number of a socket that carries a stream to somebody.
fn number_of(descriptor: i32) -> Option<u64> {
    let kind: i32 = option(descriptor, libc::SO_TYPE)?;
    let domain: i32 = option(descriptor, libc::SO_DOMAIN)?;
    let listens: i32 = option(descriptor, libc::SO_ACCEPTCONN)?;
    let carries = kind == libc::SOCK_STREAM
        && matches!(domain, libc::AF_INET | libc::AF_INET6 | libc::AF_UNIX)
        && listens == 0;
    // Twice the number has to fit, and zero is none.
    let cookie: u64 = option(descriptor, libc::SO_COOKIE).filter(|_| carries)?;
    (cookie != 0 && cookie < 1 << 63).then_some(cookie)
}

fn option<T: Default>(descriptor: i32, name: i32) -> Option<T> {
    let mut value = T::default();
    let mut length = size_of::<T>() as socklen_t;
    // SAFETY: the memory is ours and as long as is said; a number may have any bits.
    let result = unsafe {
        libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &mut length,
        )
    };
    (result == 0).then_some(value)
}

/// An address as text.
struct Name {
    text: [u8; Self::LENGTH],
    length: usize,
    ip: Option<std::net::IpAddr>,
    port: u16,
}

type Ask = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut socklen_t) -> i32;

impl Name {
    /// Of the longest: `unix:` and a path.
    const LENGTH: usize = 128;

    fn new() -> Self {
        Self {
            text: [0; Self::LENGTH],
            length: 0,
            ip: None,
            port: 0,
        }
    }

    /// Of the connection that was made from here.
    fn line_to(&self, there: &Self) -> Option<Line> {
        match self.text.get(..self.length)?.strip_prefix(b"unix:@") {
            Some(name) => Line::of_name(name),
            None => Line::of_ports(self.port, there.port),
        }
    }

    /// Whether it is on the same machine as the other end.
    fn is_near(&self, other: &Self) -> bool {
        match (self.ip, other.ip) {
            (Some(ours), Some(theirs)) => {
                ours.to_canonical().is_loopback() || ours.to_canonical() == theirs.to_canonical()
            }
            _ => self.ip.is_none() && other.ip.is_none(),
        }
    }

    fn of(&mut self, descriptor: i32, ask: Ask) -> &[u8] {
        // SAFETY: zeros are an address; the memory is ours and as long as is said.
        unsafe {
            let mut address: libc::sockaddr_storage = std::mem::zeroed();
            let mut length = size_of::<libc::sockaddr_storage>() as socklen_t;
            if ask(descriptor, (&raw mut address).cast(), &mut length) == 0 {
                self.write(&address, length as usize);
            }
        }
        self.text()
    }

    /// Of an address as libc has it.
    fn is(&mut self, address: &[u8]) {
        let length = address.len().min(size_of::<libc::sockaddr_storage>());
        if length < size_of::<libc::sa_family_t>() {
            return;
        }
        // SAFETY: zeros are an address, and so many bytes fit into it.
        let address = unsafe {
            let mut storage: libc::sockaddr_storage = std::mem::zeroed();
            let into = (&raw mut storage).cast::<u8>();
            std::ptr::copy_nonoverlapping(address.as_ptr(), into, length);
            storage
        };
        self.write(&address, length);
    }

    fn text(&self) -> &[u8] {
        self.text.get(..self.length).unwrap_or_default()
    }

    fn write(&mut self, address: &libc::sockaddr_storage, length: usize) {
        use std::fmt::Write;
        let place: *const libc::sockaddr_storage = address;
        // SAFETY: a storage is as large as each of these, and aligned for it.
        let result = unsafe {
            match i32::from(address.ss_family) {
                libc::AF_INET => {
                    let v4 = &*place.cast::<libc::sockaddr_in>();
                    let ip = std::net::Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                    let port = u16::from_be(v4.sin_port);
                    (self.ip, self.port) = (Some(ip.into()), port);
                    write!(self, "{ip}:{port}")
                }
                libc::AF_INET6 => {
                    let v6 = &*place.cast::<libc::sockaddr_in6>();
                    let ip = std::net::Ipv6Addr::from(v6.sin6_addr.s6_addr);
                    let port = u16::from_be(v6.sin6_port);
                    (self.ip, self.port) = (Some(ip.into()), port);
                    write!(self, "[{ip}]:{port}")
                }
                libc::AF_UNIX => {
                    let unix = &*place.cast::<libc::sockaddr_un>();
                    let path = length.saturating_sub(size_of::<libc::sa_family_t>());
                    self.put(b"unix:");
                    let path = unix.sun_path.iter().take(path).map(|&byte| byte as u8);
                    // An abstract name begins with a zero, which is written as `@`.
                    for (at, byte) in path.enumerate() {
                        match byte {
                            0 if at == 0 => self.put(b"@"),
                            0 => break,
                            byte => self.put(&[byte]),
                        }
                    }
                    Ok(())
                }
                _ => Ok(()),
            }
        };
        // It cannot fail: what does not fit is cut off.
        let _ = result;
    }

    fn put(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if let Some(place) = self.text.get_mut(self.length) {
                *place = byte;
                self.length += 1;
            }
        }
    }
}

impl std::fmt::Write for Name {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}
