//! What the kernel and this process are set to do about the instructions.

use std::sync::atomic::{AtomicU32, Ordering};

use hindcast_execlog::config::Instructions;

use crate::{raw, syscall};

const ARCH_GET_CPUID: i32 = 0x1011;
const ARCH_CPUID: i32 = 0x1012;
const PR_GET_TSC: i32 = 25;
const PR_SET_TSC: i32 = 26;
pub const PR_TSC_ENABLE: usize = 1;
pub const PR_TSC_SIGSEGV: usize = 2;

/// How the instructions are recorded, in both runs: an [`Instructions`], known since the image was
/// taken over.
static WAY: AtomicU32 = AtomicU32::new(Instructions::Free as u32);

pub fn way() -> Instructions {
    Instructions::from_number(WAY.load(Ordering::Relaxed))
}

pub fn set_way(way: Instructions) {
    WAY.store(way as u32, Ordering::Relaxed);
}

pub fn set_timestamp(setting: usize) -> bool {
    // SAFETY: changes what one instruction does in this thread.
    raw::error_of(unsafe { syscall!(libc::SYS_prctl, PR_SET_TSC, setting) }).is_none()
}

pub fn set_cpuid(enabled: bool) -> bool {
    // SAFETY: as above.
    raw::error_of(unsafe { syscall!(libc::SYS_arch_prctl, ARCH_CPUID, usize::from(enabled)) })
        .is_none()
}

pub fn timestamp_faults() -> bool {
    let mut setting = 0i32;
    // SAFETY: writes one number.
    raw::error_of(unsafe { syscall!(libc::SYS_prctl, PR_GET_TSC, &raw mut setting) }).is_none()
        && setting as usize == PR_TSC_SIGSEGV
}

pub fn cpuid_faults() -> bool {
    // SAFETY: no memory is involved.
    unsafe { syscall!(libc::SYS_arch_prctl, ARCH_GET_CPUID, 0) == 0 }
}

/// Lets the instructions run again in the calling thread: before `execve`, and after a detach. A
/// thread that faults after a detach comes here by itself.
pub fn disarm() {
    set_timestamp(PR_TSC_ENABLE);
    set_cpuid(true);
}
