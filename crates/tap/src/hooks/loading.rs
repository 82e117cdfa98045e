//! `dlopen`. PHP loads its extensions with `RTLD_DEEPBIND`: what they and their libraries call is
//! looked up in libc first then, and the tap is passed over. So that flag is taken away.
//!
//! Libc looks for a library where the caller says, and knows the caller by where it is to return
//! to. So libc's function is jumped to, not called.

use libc::{c_char, c_void};

use crate::java;
use crate::real::Real;

static REAL: Real = Real::new(c"dlopen");

extern "C" fn real_dlopen(name: *const c_char) -> *mut c_void {
    java::loads(name);
    REAL.address()
}

#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen() {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {real}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "and esi, {keep}",
        "jmp rax",
        real = sym real_dlopen,
        keep = const !libc::RTLD_DEEPBIND,
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen() {
    std::arch::naked_asm!(
        "stp x0, x1, [sp, #-32]!",
        "str x30, [sp, #16]",
        "bl {real}",
        "mov x16, x0",
        "ldr x30, [sp, #16]",
        "ldp x0, x1, [sp], #32",
        "and w1, w1, {keep}",
        "br x16",
        real = sym real_dlopen,
        keep = const !libc::RTLD_DEEPBIND,
    )
}
