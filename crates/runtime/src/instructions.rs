//! Instructions that answer differently on every run: `rdtsc`, `rdtscp`, `cpuid`, and through the latter `rdrand`.

use crate::thread::Thread;

/// Which instructions trap for the calling thread after [`arm`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Armed {
    pub timestamp: bool,
    pub cpuid: bool,
}

/// Makes `rdtsc` and `cpuid` trap in the calling thread. Called at init and again after fork in the child; new threads inherit it.
pub fn arm() -> Armed {
    Armed::default()
}

/// Lets the instructions run again: after a detach.
pub fn disarm() {}

/// A `SIGSEGV` with these registers (`ucontext->uc_mcontext.gregs`): emulates the instruction if it is one of ours and says so.
///
/// # Safety
/// From the signal handler of a thread in the space it was interrupted in; `registers` are those of the interrupted code.
pub unsafe fn fault(thread: Option<&mut Thread>, information: *const libc::siginfo_t, context: *mut libc::ucontext_t) -> bool {
    let _ = (thread, information, context);
    false
}
