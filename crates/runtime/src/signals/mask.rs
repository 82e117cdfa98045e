//! Which signals a thread has blocked: for the program, and for the kernel.

use crate::mode::{Mode, mode};
use crate::syscall;

pub const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The kernel ignores attempts to block these.
pub const UNBLOCKABLE: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);

/// Never blocked in the kernel: the runtime lives by them.
const OURS: u64 = bit(libc::SIGSYS) | bit(libc::SIGSEGV);

/// What may come at any time. Faults cannot wait, and libc's own signals must not.
pub const ASYNCHRONOUS: u64 = !(OURS
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(32)
    | bit(33));

/// What the kernel is given for what the program wants.
pub const fn realized(wanted: u64) -> u64 {
    wanted & !OURS
}

/// The kernel's mask of the calling thread.
pub fn real() -> u64 {
    let mut mask = 0u64;
    // SAFETY: room for 8 bytes.
    unsafe {
        syscall!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            0,
            &raw mut mask,
            8
        )
    };
    mask
}

/// Sets the kernel's mask of the calling thread to what follows from the program's. In replay nothing is ever
/// blocked in the kernel: no signal of the recording comes from there, and one that ends the replay must get through.
pub fn apply(wanted: u64) {
    set_real(if mode() == Mode::Replay {
        0
    } else {
        realized(wanted)
    });
}

pub fn set_real(mask: u64) {
    // SAFETY: reads 8 bytes.
    unsafe {
        syscall!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            0,
            8
        )
    };
}
