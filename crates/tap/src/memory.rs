//! Memory of our own, and how memory may be used.

use std::ops::Range;

use libc::c_void;

/// New memory, all zeros, of which only what is used is made. It is never given back.
pub fn fresh(length: usize) -> Option<*mut c_void> {
    // SAFETY: new memory.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    (memory != libc::MAP_FAILED).then_some(memory)
}

/// # Safety
/// Nobody needs the pages otherwise.
pub unsafe fn protect(pages: &Range<usize>, how: libc::c_int) -> bool {
    // SAFETY: as the caller promises.
    unsafe { libc::mprotect(pages.start as *mut c_void, pages.len(), how) == 0 }
}
