//! What a call carried, told: by a descriptor, or as plain bytes by what encrypts for one.

use hindcast_taplog::{Direction, Told};
use libc::{c_int, c_void, iovec, size_t, ssize_t};

use crate::descriptors::Entry;
use crate::real::{real, recv};
use crate::turns::Begins;
use crate::{descriptors, process, said, thread, tls, tokio, turns};

/// Parts of a message that are looked at; more than the kernel takes.
const PARTS_MAX: usize = 1024;

/// `length` bytes of a stream were read; none where there was room: it has ended. Returns what the
/// caller is to be told: that it has ended, too, if another worker is at what was read.
///
/// # Safety
/// Each part's memory may be read, and what was read is in the parts, in order.
pub unsafe fn was_read(descriptor: c_int, parts: &[iovec], done: ssize_t) -> ssize_t {
    let Ok(length) = usize::try_from(done) else {
        return done;
    };
    let Some(stream) = descriptors::stream(descriptor) else {
        return done;
    };
    if let Some(entry) = descriptors::entry(descriptor) {
        turns::goes_on_with(entry);
    }
    // That it has ended is no secret.
    if let Some(entry) = descriptors::entry(descriptor).filter(|_| length > 0) {
        // SAFETY: as the caller promises.
        let bytes = unsafe { first(parts, length) };
        match tls::carries(descriptor, entry, bytes) {
            tls::Carries::Plain => {}
            tls::Carries::Encrypted => return done,
            tls::Carries::Unknown => {
                went_unseen(Some(stream), Direction::In, done);
                return done;
            }
        }
    }
    // SAFETY: as the caller promises.
    unsafe { plain_was_read(descriptor, stream, parts, length) }
}

/// What [`was_read`] does with bytes that are not encrypted, or not any more.
///
/// # Safety
/// As there.
pub unsafe fn plain_was_read(
    descriptor: c_int,
    stream: u64,
    parts: &[iovec],
    length: usize,
) -> ssize_t {
    let done = length as ssize_t;
    let entry = descriptors::entry(descriptor);
    if let Some(entry) = entry.filter(|entry| entry.leads_to_database()) {
        // SAFETY: as the caller promises.
        turns::is_answered(entry, unsafe { first(parts, length) });
    }
    if entry.is_some_and(Entry::is_gated) {
        return done;
    }
    let entry = entry.filter(|entry| entry.is_accepted());
    // SAFETY: as the caller promises.
    let begins =
        entry.and_then(|entry| unsafe { turns::was_read(descriptor, entry, first(parts, length)) });
    if entry.is_some_and(Entry::is_asked) {
        tokio::has_read();
    }
    let length = match begins {
        // SAFETY: as the caller promises.
        Some(Begins::Here(_)) => unsafe { said::take_out(parts, length) },
        _ => length,
    };
    let turn = match begins {
        Some(Begins::Elsewhere) => return ends(descriptor),
        Some(Begins::Here(number)) => Some(number),
        None => None,
    };
    let at = process::now();
    let direction = Direction::In;
    thread::tell(length as u64, at, |ring| match length {
        0 if parts.iter().any(|part| part.iov_len > 0) => {
            ring.tell(&Told::Ended { stream, direction }, at);
        }
        _ => {
            if let Some(request) = turn {
                ring.tell(&Told::Turn { stream, request }, at);
            }
            // SAFETY: as the caller promises.
            ring.tell_bytes(stream, direction, unsafe { places(parts) }, length, at);
        }
    });
    let length = match entry {
        // SAFETY: as the caller promises.
        Some(entry) => unsafe { said::put_in(entry, turn.is_some(), parts, length) },
        None => length,
    };
    length as ssize_t
}

/// Nothing more comes, and a reader is told that each time: Python's buffered ones read once more,
/// and would wait. What has come already would still be read.
fn ends(descriptor: c_int) -> ssize_t {
    // SAFETY: it is a connection of the program's.
    unsafe { real!(fn shutdown(c_int, c_int) -> c_int)(descriptor, libc::SHUT_RD) };
    let mut rest = [0_u8; 4096];
    while recv(descriptor, &mut rest, libc::MSG_DONTWAIT) > 0 {}
    0
}

/// A write to a descriptor that is about to be made; `None` if nobody wants to know. `parts`: what
/// of, or nothing if that cannot be seen.
///
/// # Safety
/// Each part's memory may be read.
pub unsafe fn about_to_write(descriptor: c_int, parts: &[iovec]) -> Option<Write> {
    let stream = descriptors::stream(descriptor)?;
    if let Some(entry) = descriptors::entry(descriptor) {
        // SAFETY: as the caller promises.
        let bytes = unsafe { first(parts, usize::MAX) };
        match tls::carries(descriptor, entry, bytes) {
            tls::Carries::Plain => {}
            tls::Carries::Encrypted => {
                if !entry.is_accepted() {
                    tokio::writes_to(entry);
                    turns::put_on_board(entry);
                }
                return None;
            }
            tls::Carries::Unknown => {
                let at = process::now();
                return Some(Write {
                    stream,
                    at,
                    turn: None,
                    is_seen: false,
                });
            }
        }
    }
    // SAFETY: as the caller promises.
    unsafe { about_to_write_plain(descriptor, stream, parts) }
}

/// What [`about_to_write`] does with bytes that are not encrypted, or not yet.
///
/// # Safety
/// As there.
pub unsafe fn about_to_write_plain(
    descriptor: c_int,
    stream: u64,
    parts: &[iovec],
) -> Option<Write> {
    let mut turn = None;
    if let Some(entry) = descriptors::entry(descriptor) {
        // SAFETY: as the caller promises.
        let bytes = unsafe { first(parts, usize::MAX) };
        match entry.is_accepted() {
            true => {
                turns::writes(entry, bytes);
                tokio::answers();
            }
            false => {
                tokio::writes_to(entry);
                turns::put_on_board(entry);
                turns::is_behind(entry, stream, bytes);
            }
        }
        if entry.is_gated() {
            return None;
        }
        if entry.tells_turns() {
            turn = Some(turns::of(entry)).filter(|&turn| turn != 0);
        }
    }
    let at = process::now();
    Some(Write {
        stream,
        at,
        turn,
        is_seen: true,
    })
}

/// A write that is being made.
#[derive(Clone, Copy)]
pub struct Write {
    stream: u64,
    at: u64,
    /// Whose turn it is, if it goes to the database or to others.
    turn: Option<u64>,
    /// Its bytes are what the stream carries.
    is_seen: bool,
}

/// So many bytes of the parts were written.
///
/// # Safety
/// Each part's memory may be read.
pub unsafe fn was_written(begun: Option<Write>, parts: &[iovec], done: ssize_t) {
    let (Some(write), Ok(length)) = (begun, usize::try_from(done)) else {
        return;
    };
    let Write {
        stream, at, turn, ..
    } = write;
    if !write.is_seen {
        return went_unseen(Some(stream), Direction::Out, done);
    }
    thread::tell(length as u64, at, |ring| {
        if let Some(request) = turn {
            ring.tell(&Told::Turn { stream, request }, at);
        }
        // SAFETY: what was written is in the parts, in order.
        ring.tell_bytes(stream, Direction::Out, unsafe { places(parts) }, length, at);
    });
}

/// So many bytes were carried that are not in the program's memory.
pub fn went_unseen(stream: Option<u64>, direction: Direction, length: ssize_t) {
    let (Some(stream), Ok(length)) = (stream, u64::try_from(length)) else {
        return;
    };
    let told = Told::Unseen {
        stream,
        direction,
        length,
    };
    let at = process::now();
    thread::tell(length, at, |ring| ring.tell(&told, at));
}

impl Write {
    pub fn stream(self) -> u64 {
        self.stream
    }
}

/// The first bytes of so many that are in the parts.
///
/// # Safety
/// Each part's memory may be read.
unsafe fn first(parts: &[iovec], length: usize) -> &[u8] {
    // SAFETY: as the caller promises.
    let part = unsafe { places(parts) }.next().unwrap_or_default();
    part.get(..length).unwrap_or(part)
}

/// # Safety
/// Each part's memory may be read.
unsafe fn places(parts: &[iovec]) -> impl Iterator<Item = &[u8]> {
    let full = parts.iter().filter(|part| part.iov_len > 0);
    // SAFETY: as the caller promises.
    full.map(|part| unsafe { std::slice::from_raw_parts(part.iov_base.cast(), part.iov_len) })
}

pub fn part(bytes: *const c_void, length: size_t) -> [iovec; 1] {
    [iovec {
        iov_base: bytes.cast_mut(),
        iov_len: length,
    }]
}

/// # Safety
/// There are so many.
pub unsafe fn parts<'a>(parts: *const iovec, count: usize) -> &'a [iovec] {
    match parts.is_null() || count > PARTS_MAX {
        true => &[],
        // SAFETY: as the caller promises.
        false => unsafe { std::slice::from_raw_parts(parts, count) },
    }
}
