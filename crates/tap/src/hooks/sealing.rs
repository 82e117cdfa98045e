//! Programs that lock themselves in, and what is asked for by the number of a system call.

use libc::{c_int, c_long, c_uint, c_ulong, c_void, size_t};

use super::{clocks, randomness, reserved};
use crate::real::real;
use crate::{descriptors, process, turns};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    if option == libc::PR_SET_SECCOMP {
        process::seal();
    }
    // SAFETY: what the caller gave; libc's own takes as many.
    unsafe {
        real!(fn prctl(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int)(option, a, b, c, d)
    }
}

/// What draws random bytes is told what calls it; all else is as the program calls it.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    std::arch::naked_asm!(
        "cmp rdi, {getrandom}",
        "jne {any}",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov edx, ecx",
        "mov rcx, [rsp]",
        "jmp {drawing}",
        getrandom = const libc::SYS_getrandom,
        any = sym any,
        drawing = sym drawing,
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    std::arch::naked_asm!(
        "cmp x0, {getrandom}",
        "b.ne 2f",
        "mov x0, x1",
        "mov x1, x2",
        "mov w2, w3",
        "mov x3, x30",
        "b {drawing}",
        "2: b {any}",
        getrandom = const libc::SYS_getrandom,
        any = sym any,
        drawing = sym drawing,
    )
}

unsafe extern "C" fn drawing(
    bytes: *mut c_void,
    length: size_t,
    flags: c_uint,
    caller: usize,
) -> c_long {
    // SAFETY: what the caller gave.
    unsafe {
        let asked = match randomness::seeds_openssl(caller) {
            true => None,
            false => randomness::asked(bytes, length, flags),
        };
        asked.map_or_else(
            || {
                real!(fn syscall(c_long, *mut c_void, size_t, c_uint) -> c_long)(
                    libc::SYS_getrandom,
                    bytes,
                    length,
                    flags,
                )
            },
            |done| done as c_long,
        )
    }
}

/// Numbers are passed alike to a function with a fixed number of them and to one without; those
/// that the caller did not give are whatever was there, and nobody looks at them.
unsafe extern "C" fn any(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if number == libc::SYS_seccomp {
        process::seal();
    }
    let call = |d| {
        // SAFETY: what the caller gave; libc's own takes as many.
        unsafe {
            real!(fn syscall(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long)(
                number, a, b, c, d, e, f,
            )
        }
    };
    // SAFETY: what the caller gave.
    unsafe {
        match number {
            libc::SYS_futex => clocks::futex(b, d, call),
            _ if a == c_long::from(turns::RESERVED) => {
                reserved::called(number, b as *mut c_void, c as size_t, d)
                    .unwrap_or_else(|| call(d))
            }
            // As libuv does.
            libc::SYS_close => {
                descriptors::closing(a as c_int);
                call(d)
            }
            _ => call(d),
        }
    }
}
