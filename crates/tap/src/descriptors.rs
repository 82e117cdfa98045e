//! Which descriptors are streams.
//!
//! A stream's number is the kernel's cookie of its socket, so a socket that several processes or
//! descriptors share is one stream.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use hindcast_taplog::{How, Told};
use libc::socklen_t;

use crate::{process, thread};

/// Descriptors from here on are not looked at.
const COUNT: usize = 1 << 20;

/// Not known. Anything from 2 on is a stream: twice its number.
const UNKNOWN: u64 = 0;
const NO_STREAM: u64 = 1;

/// By descriptor. Pages of it that are not used take no memory.
static TABLE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

/// The largest descriptor of which anything was ever known.
static HIGHEST: AtomicU32 = AtomicU32::new(0);

pub fn begin() -> bool {
    // SAFETY: new memory.
    let table = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            COUNT * size_of::<AtomicU64>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if table == libc::MAP_FAILED {
        return false;
    }
    TABLE.store(table.cast(), Ordering::Relaxed);
    true
}

fn entry(descriptor: i32) -> Option<&'static AtomicU64> {
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
    match entry(descriptor)?.load(Ordering::Relaxed) {
        UNKNOWN => opened(descriptor, How::Found),
        known => stream_in(known),
    }
}

/// The stream behind a descriptor, if that is known already.
pub fn known(descriptor: i32) -> Option<u64> {
    if !process::is_enabled() {
        return None;
    }
    stream_in(entry(descriptor)?.load(Ordering::Relaxed))
}

/// The descriptor is new; tells it if it is a stream.
pub fn opened(descriptor: i32, how: How) -> Option<u64> {
    if !process::is_enabled() || process::is_sealed() || process::is_borrowed() {
        return None;
    }
    let errno = thread::errno();
    let number = number_of(descriptor);
    learn(descriptor, number.map_or(NO_STREAM, |n| n << 1));
    if let Some(stream) = number {
        let (mut ours, mut theirs) = (Name::new(), Name::new());
        let (local, peer) = (
            ours.of(descriptor, libc::getsockname),
            theirs.of(descriptor, libc::getpeername),
        );
        let told = Told::Opened {
            stream,
            how,
            local,
            peer,
        };
        let at = process::now();
        thread::tell(0, at, |ring| ring.tell(&told, at));
    }
    thread::set_errno(errno);
    number
}

/// The descriptor is about to be closed.
pub fn closing(descriptor: i32) {
    if known(descriptor).is_some() && process::is_borrowed() {
        return;
    }
    if let Some(stream) = forget(descriptor) {
        let at = process::now();
        thread::tell(0, at, |ring| ring.tell(&Told::Closed { stream }, at));
    }
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
    match entry.load(Ordering::Relaxed) {
        UNKNOWN => None,
        _ => stream_in(entry.swap(UNKNOWN, Ordering::Relaxed)),
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
    let same = entry(from).map_or(UNKNOWN, |from| from.load(Ordering::Relaxed));
    learn(to, same);
}

fn learn(descriptor: i32, what: u64) {
    if let Some(entry) = entry(descriptor) {
        entry.store(what, Ordering::Relaxed);
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
}

type Ask = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut socklen_t) -> i32;

impl Name {
    /// Of the longest: `unix:` and a path.
    const LENGTH: usize = 128;

    fn new() -> Self {
        Self {
            text: [0; Self::LENGTH],
            length: 0,
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
                    let [a, b, c, d] = v4.sin_addr.s_addr.to_ne_bytes();
                    write!(self, "{a}.{b}.{c}.{d}:{}", u16::from_be(v4.sin_port))
                }
                libc::AF_INET6 => {
                    let v6 = &*place.cast::<libc::sockaddr_in6>();
                    let ip = std::net::Ipv6Addr::from(v6.sin6_addr.s6_addr);
                    write!(self, "[{ip}]:{}", u16::from_be(v6.sin6_port))
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
