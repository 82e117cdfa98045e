//! The line in which a request of a replay says its number: the program is not to see it. But a
//! shim may look for it, where nothing else tells which request a runtime serves: then it is put
//! into requests that are recorded, too, and the shim takes it out.

use std::sync::atomic::{AtomicBool, Ordering};

use hindcast_taplog::heads;
use libc::iovec;

use crate::descriptors::Entry;
use crate::symbol::Symbol;
use crate::{java, process, tokio};

/// Takes the line that says the number out of what was read of a request, before the program sees
/// it: some keep the headers of a request, or show them. Returns how much is left.
///
/// A read that filled its memory is left as it is: who gets less takes it that there is no more.
///
/// # Safety
/// What was read is in the parts, in order, and may be written.
pub unsafe fn take_out(parts: &[iovec], length: usize) -> usize {
    let replays = process::board().is_some_and(|board| board.replays());
    let first = parts
        .first()
        .filter(|part| replays && length < part.iov_len);
    let Some(part) = first else {
        return length;
    };
    // SAFETY: as the caller promises.
    let bytes = unsafe { std::slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), length) };
    match heads::saying(bytes).filter(|_| is_known_by_turns()) {
        Some(line) => {
            bytes.copy_within(line.end.., line.start);
            length - line.len()
        }
        None => length,
    }
}

/// A shim looks for the line.
static IS_LOOKED_FOR: AtomicBool = AtomicBool::new(false);

pub fn is_looked_for() {
    IS_LOOKED_FOR.store(true, Ordering::Relaxed);
}

/// Puts the line into what was read of a request that is recorded, if a shim looks for it and there
/// is room. `begins`: the request does here. Returns how much there is then.
///
/// # Safety
/// What was read is in the parts, in order, and they may be written.
pub unsafe fn put_in(entry: &Entry, begins: bool, parts: &[iovec], length: usize) -> usize {
    let records = || process::board().is_some_and(|board| !board.replays());
    if !IS_LOOKED_FOR.load(Ordering::Relaxed) || !entry.begins(false) && !begins || !records() {
        return length;
    }
    let line = heads::line(entry.turn());
    let with_it = length + line.len();
    let Some(part) = parts.first().filter(|part| length <= part.iov_len) else {
        return length;
    };
    // SAFETY: as the caller promises.
    let bytes = unsafe { std::slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), part.iov_len) };
    let read = &bytes[..length];
    let end = read.windows(2).position(|two| two == b"\r\n");
    // Who gets as much as there is room for takes it that there is more.
    let Some(end) = end.filter(|_| with_it < bytes.len()) else {
        // Some look at a few bytes first.
        entry.begins(!heads::is_whole(read) && !read.ends_with(b"\r"));
        return length;
    };
    let after = end + 2;
    // The head is at its end where nothing is in front of this line's.
    if end > 0 {
        bytes.copy_within(after..length, after + line.len());
        bytes[after..after + line.len()].copy_from_slice(&line);
        return with_it;
    }
    length
}

/// What each runtime has that a shim is loaded into.
static RUNTIME: Symbol = Symbol::new(&[
    c"Py_IsInitialized",
    c"node_module_register",
    c"ruby_init",
    c"perl_run",
    c"php_request_startup",
]);

/// Whether what the process asks of another one of the service is known to be of its request
/// without a number. One that only passes requests on, as nginx does, passes on the number, too.
fn is_known_by_turns() -> bool {
    if IS_LOOKED_FOR.load(Ordering::Relaxed) {
        return false;
    }
    let is_found = !RUNTIME.address().is_null();
    is_found || java::is_pinned() || tokio::running() != 0 || RUNTIME.find()
}
