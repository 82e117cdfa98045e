//! What a shim asks and says by the reserved descriptor.
//!
//! ```text
//!   read                 the request that this thread has read last
//!   pread  at offset N   the request that was read last from descriptor N
//!   write                whose turn this thread is; nothing: it is not told any more
//!   pwrite at offset N   on whose behalf descriptor N is written to; nothing: its thread's
//! ```
//!
//! A number is eight bytes, the lowest first.

use libc::{c_int, c_void, off_t, off64_t, size_t, ssize_t};

use crate::real::real;
use crate::turns;

/// # Safety
/// There is room for so many bytes.
pub unsafe fn answer(request: u64, bytes: *mut c_void, length: size_t) -> ssize_t {
    let number = request.to_le_bytes();
    let count = length.min(number.len());
    // SAFETY: as the caller promises.
    unsafe { std::ptr::copy_nonoverlapping(number.as_ptr(), bytes.cast(), count) };
    count as ssize_t
}

/// # Safety
/// There are so many bytes.
pub unsafe fn told(
    bytes: *const c_void,
    length: size_t,
    tell: impl FnOnce(Option<u64>),
) -> ssize_t {
    match length {
        0 => tell(None),
        // SAFETY: as the caller promises.
        8 => tell(Some(u64::from_le(unsafe {
            bytes.cast::<u64>().read_unaligned()
        }))),
        _ => {}
    }
    length as ssize_t
}

fn descriptor(offset: i64) -> c_int {
    c_int::try_from(offset).unwrap_or(-1)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread(
    from: c_int,
    bytes: *mut c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: what the caller gave.
    unsafe {
        match from {
            turns::RESERVED => answer(turns::read_from(descriptor(offset)), bytes, length),
            _ => real!(fn pread(c_int, *mut c_void, size_t, off_t) -> ssize_t)(
                from, bytes, length, offset,
            ),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread64(
    from: c_int,
    bytes: *mut c_void,
    length: size_t,
    offset: off64_t,
) -> ssize_t {
    // SAFETY: what the caller gave.
    unsafe {
        match from {
            turns::RESERVED => answer(turns::read_from(descriptor(offset)), bytes, length),
            _ => real!(fn pread64(c_int, *mut c_void, size_t, off64_t) -> ssize_t)(
                from, bytes, length, offset,
            ),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(
    to: c_int,
    bytes: *const c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    let tell = |request| turns::set_of(descriptor(offset), request);
    // SAFETY: what the caller gave.
    unsafe {
        match to {
            turns::RESERVED => told(bytes, length, tell),
            _ => real!(fn pwrite(c_int, *const c_void, size_t, off_t) -> ssize_t)(
                to, bytes, length, offset,
            ),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(
    to: c_int,
    bytes: *const c_void,
    length: size_t,
    offset: off64_t,
) -> ssize_t {
    let tell = |request| turns::set_of(descriptor(offset), request);
    // SAFETY: what the caller gave.
    unsafe {
        match to {
            turns::RESERVED => told(bytes, length, tell),
            _ => real!(fn pwrite64(c_int, *const c_void, size_t, off64_t) -> ssize_t)(
                to, bytes, length, offset,
            ),
        }
    }
}
