//! The end of a program that damages its heap.

use std::fmt::Write;

/// The program has damaged the heap or given back what it never had: says so and ends it, as libc
/// does.
#[cold]
pub fn fatal(what: &str, address: usize) -> ! {
    let mut text = hindcast_execlog::Text::<128>::new();
    let _ = writeln!(text, "{what} ({address:#x})");
    let text = text.as_str();
    // SAFETY: through the interface, like any other output of the program's.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        libc::abort()
    }
}
