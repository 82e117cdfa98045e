//! Memory that is aligned to more than usual: a task of [`tokio`] may be made there.

use libc::{c_int, c_void, size_t};

use crate::real::real;
use crate::tokio;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    at: *mut *mut c_void,
    alignment: size_t,
    length: size_t,
) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        let real = real!(fn posix_memalign(*mut *mut c_void, size_t, size_t) -> c_int);
        let failed = real(at, alignment, length);
        if failed == 0 {
            tokio::allocated(*at as usize, alignment);
        }
        failed
    }
}
