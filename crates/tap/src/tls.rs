//! Which connection OpenSSL encrypts for.
//!
//! ```text
//!   the program     SSL_read(ssl)                       plain bytes: told as what 7 carries
//!   libssl             └─▶ read(7) or recv(7)           encrypted: not told
//! ```
//!
//! Nobody says to which descriptor an `SSL` belongs: libpq and others bring ways of their own to
//! read and write. But whatever way it is, libssl goes it while the thread is in one of its
//! functions. So the descriptor that then carries the first record of a handshake is the one. An
//! `SSL` that is fed from memory (Python's asyncio) touches none, and stays unknown: what its
//! connection carries is told as it is, encrypted.

use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use hindcast_taplog::Told;
use libc::c_int;

use crate::descriptors::{self, Entry};
use crate::{process, thread};

/// The first bytes of a record of a handshake: its kind, and the version's first half.
const HANDSHAKE: &[u8] = &[0x16, 0x03];

/// For so many objects that are in use at a time the descriptor is known.
const COUNT: usize = 1 << 14;
/// How far from its place an object is looked for.
const PROBES: usize = 32;

struct Place {
    /// Its address; 0: none.
    ssl: AtomicUsize,
    descriptor: AtomicI32,
}

static PLACES: [Place; COUNT] = [const {
    Place {
        ssl: AtomicUsize::new(0),
        descriptor: AtomicI32::new(-1),
    }
}; COUNT];

thread_local! {
    /// The object in one of whose functions the thread is; 0: in none.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// What bytes on their way by a descriptor are.
pub enum Carries {
    Plain,
    /// What they say is told by what encrypts them.
    Encrypted,
    /// Something else than before.
    Unknown,
}

/// Whether the thread is in a function of libssl.
pub fn is_inside() -> bool {
    INSIDE.get() != 0
}

/// Does what a function of libssl does.
pub fn inside<T>(ssl: usize, work: impl FnOnce() -> T) -> T {
    let before = INSIDE.replace(ssl);
    let done = work();
    INSIDE.set(before);
    done
}

/// Looks at bytes that a descriptor carries, or is about to.
pub fn carries(descriptor: c_int, entry: &Entry, bytes: &[u8]) -> Carries {
    let ssl = INSIDE.get();
    let encrypts = entry.encrypted_by();
    if ssl != 0 && bytes.starts_with(HANDSHAKE) {
        if encrypts != ssl {
            belongs(ssl, descriptor, entry);
        }
        return match entry.encrypted_by() == ssl {
            true => Carries::Encrypted,
            // There was no place for it.
            false => Carries::Plain,
        };
    }
    match (encrypts, ssl) {
        (0, _) => Carries::Plain,
        (_, 0) => Carries::Unknown,
        _ => Carries::Encrypted,
    }
}

/// The descriptor that it encrypts for, and the stream.
pub fn carrier(ssl: usize) -> Option<(c_int, u64)> {
    let place = places(ssl).find(|place| place.ssl.load(Ordering::Acquire) == ssl)?;
    let descriptor = place.descriptor.load(Ordering::Relaxed);
    let stream = descriptors::known(descriptor)?;
    (descriptors::entry(descriptor)?.encrypted_by() == ssl).then_some((descriptor, stream))
}

fn places(ssl: usize) -> impl Iterator<Item = &'static Place> {
    // Objects are allocated, so the last bits are the same.
    let first = (ssl >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (0..PROBES).filter_map(move |probe| PLACES.get(first.wrapping_add(probe) % COUNT))
}

fn belongs(ssl: usize, descriptor: c_int, entry: &Entry) {
    let own = || places(ssl).find(|place| place.ssl.load(Ordering::Relaxed) == ssl);
    let Some(place) = own().or_else(|| places(ssl).find(|place| place.take(ssl))) else {
        return;
    };
    place.descriptor.store(descriptor, Ordering::Relaxed);
    place.ssl.store(ssl, Ordering::Release);
    entry.encrypt(ssl);
    if let Some(stream) = descriptors::known(descriptor) {
        let at = process::now();
        thread::tell(0, at, |ring| ring.tell(&Told::Encrypted { stream }, at));
    }
}

impl Place {
    /// Takes the place if nobody has it, or nobody any more.
    fn take(&self, ssl: usize) -> bool {
        let before = self.ssl.load(Ordering::Relaxed);
        let descriptor = self.descriptor.load(Ordering::Relaxed);
        let in_use = || descriptors::entry(descriptor).is_some_and(|e| e.encrypted_by() == before);
        let free = before == 0 || !in_use();
        free && self
            .ssl
            .compare_exchange(before, ssl, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}
