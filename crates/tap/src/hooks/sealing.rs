//! Programs that lock themselves in, and what is asked for by the number of a system call.

use libc::{c_int, c_long, c_uint, c_ulong, c_void};

use super::{clocks, randomness};
use crate::real::real;
use crate::{descriptors, process};

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

/// Numbers are passed alike to a function with a fixed number of them and to one without; those
/// that the caller did not give are whatever was there, and nobody looks at them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
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
            libc::SYS_getrandom => {
                let bytes: *mut c_void = std::ptr::with_exposed_provenance_mut(a as usize);
                let asked = randomness::asked(bytes, b as usize, c as c_uint);
                asked.map_or_else(|| call(d), |done| done as c_long)
            }
            libc::SYS_futex => clocks::futex(b, d, call),
            // As libuv does.
            libc::SYS_close => {
                descriptors::closing(a as c_int);
                call(d)
            }
            _ => call(d),
        }
    }
}
