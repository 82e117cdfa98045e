//! The line in which a request of a replay says its number: the program is not to see it.

use hindcast_taplog::heads;
use libc::iovec;

use crate::symbol::Symbol;
use crate::{java, peers, process, tokio};

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

/// What each runtime has that a shim is loaded into.
static RUNTIME: Symbol = Symbol::new(&[
    c"Py_IsInitialized",
    c"node_module_register",
    c"ruby_init",
    c"perl_run",
    c"php_request_startup",
]);

/// Whether what the process asks of another one of the service is known to be of its request
/// without a number. One that only passes requests on, as nginx does, passes on the number, too. And
/// a shim may look for it.
fn is_known_by_turns() -> bool {
    if peers::are_remembered() {
        return false;
    }
    let is_found = !RUNTIME.address().is_null();
    is_found || java::is_pinned() || tokio::running() != 0 || RUNTIME.find()
}
