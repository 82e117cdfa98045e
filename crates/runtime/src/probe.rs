//! Whether memory that the program passes to a call can be read at all.
//!
//! A call with a pointer to nowhere fails with `EFAULT`, and programs make such calls: to see
//! whether an address is mapped, or with a length that the kernel refuses before it looks. The
//! stubs look first, since they compare inputs, and must not be what ends the program. So each page
//! is touched once by one instruction that is known to the handler of faults.

use std::arch::global_asm;

global_asm!(
    ".pushsection .text.hindcast_probe,\"ax\",@progbits",
    ".hidden hindcast_probe",
    ".hidden hindcast_probe_touch",
    ".hidden hindcast_probe_failed",
    ".globl hindcast_probe",
    ".globl hindcast_probe_touch",
    ".globl hindcast_probe_failed",
    // rdi: the first byte, rsi: behind the last one, which is at least one further.
    "hindcast_probe:",
    "hindcast_probe_touch:",
    "movzx eax, byte ptr [rdi]",
    "or rdi, 4095",
    "inc rdi",
    "cmp rdi, rsi",
    "jb hindcast_probe_touch",
    "mov eax, 1",
    "ret",
    "hindcast_probe_failed:",
    "xor eax, eax",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn hindcast_probe(first: *const u8, end: *const u8) -> u32;
    static hindcast_probe_touch: u8;
    static hindcast_probe_failed: u8;
}

/// Bytes per page, as the assembly has it.
const PAGE: usize = 4096;

/// Whether all of it can be read.
#[inline]
pub fn readable(bytes: *const u8, length: usize) -> bool {
    if length == 0 {
        return true;
    }
    match (bytes as usize).checked_add(length) {
        // SAFETY: touches memory only through the one instruction whose faults `recover` takes care
        // of.
        Some(end) => unsafe { hindcast_probe(bytes, end as *const u8) != 0 },
        None => false,
    }
}

/// The length of a C string that ends within readable memory.
#[inline]
pub fn string_length(text: *const u8) -> Option<usize> {
    let mut length = 0;
    loop {
        let at = text.wrapping_add(length);
        if !readable(at, 1) {
            return None;
        }
        let left = PAGE - at as usize % PAGE;
        // SAFETY: the page was touched just now, and this does not leave it.
        let found = unsafe { libc::strnlen(at.cast(), left) };
        length += found;
        if found < left {
            return Some(length);
        }
    }
}

/// Goes on behind the probe if that is where the fault was.
///
/// # Safety
/// `context` is that of the thread's signal handler.
pub unsafe fn recover(context: *mut libc::ucontext_t) -> bool {
    // SAFETY: the caller's promise.
    let instruction = unsafe { &mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] };
    if *instruction != (&raw const hindcast_probe_touch) as i64 {
        return false;
    }
    *instruction = (&raw const hindcast_probe_failed) as i64;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel's own argument.
        if !unsafe { recover(context.cast()) } {
            std::process::abort();
        }
    }

    #[test]
    fn memory_that_ends_is_noticed() {
        // SAFETY: installs a handler for this test's faults, and maps memory of its own.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGSEGV, &action, &mut before);
            let pages = libc::mmap(
                std::ptr::null_mut(),
                3 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
            .cast::<u8>();
            libc::munmap(pages.add(2 * PAGE).cast(), PAGE);
            assert!(readable(pages, 2 * PAGE));
            assert!(readable(pages.add(2 * PAGE - 1), 1));
            assert!(!readable(pages, 2 * PAGE + 1));
            assert!(!readable(8 as *const u8, 1));
            assert!(readable(8 as *const u8, 0));
            assert!(!readable(usize::MAX as *const u8, 2));
            assert!(!readable(0x8000_0000_0000_0000 as *const u8, 1));
            std::ptr::write_bytes(pages, b'x', 2 * PAGE);
            assert_eq!(string_length(pages), None);
            *pages.add(PAGE + 10) = 0;
            assert_eq!(string_length(pages), Some(PAGE + 10));
            assert_eq!(string_length(pages.add(PAGE + 10)), Some(0));
            libc::sigaction(libc::SIGSEGV, &before, std::ptr::null_mut());
        }
    }
}
