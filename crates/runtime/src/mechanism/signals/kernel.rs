//! What the kernel is told about signals: not always what the program believes that it was told.

use std::arch::global_asm;

use crate::state::mode::{Mode, mode};
use crate::state::signals::{KernelAction, realized};
use crate::syscall;

pub const SA_RESTORER: u64 = 0x0400_0000;

// Return from a handler of ours. Libc's own would make its system call from replay space and trap.
global_asm!(
    ".text",
    ".globl hindcast_restorer",
    ".hidden hindcast_restorer",
    ".type hindcast_restorer, @function",
    // The unwinder recognises a signal frame by these very bytes.
    "nop",
    "hindcast_restorer:",
    "mov rax, 15",
    "syscall",
    ".size hindcast_restorer, . - hindcast_restorer",
);

unsafe extern "C" {
    fn hindcast_restorer();
}

/// The address that `restorer` of an action of ours must have.
pub fn restorer() -> usize {
    hindcast_restorer as *const () as usize
}

/// Sets the kernel's action for a signal, bypassing what the program believes to be set.
pub fn set_action(signal: i32, action: &KernelAction) {
    // SAFETY: a complete action; the mask has 8 bytes.
    unsafe {
        syscall!(
            libc::SYS_rt_sigaction,
            signal,
            action as *const KernelAction,
            0,
            8
        )
    };
}

/// The kernel's mask of the calling thread.
pub fn mask() -> u64 {
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

/// Sets the kernel's mask of the calling thread to what follows from the program's. In replay
/// nothing is ever blocked in the kernel: no signal of the recording comes from there, and one that
/// ends the replay must get through.
pub fn apply_mask(wanted: u64) {
    set_mask(if mode() == Mode::Replay {
        0
    } else {
        realized(wanted)
    });
}

pub fn set_mask(mask: u64) {
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
