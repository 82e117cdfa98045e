//! jemalloc's own names, for programs that are linked with it: Debian's redis-server is. Its
//! `malloc` gives way to ours, so what it would say about blocks must be ours, too.

use std::ffi::{c_char, c_int, c_void};

use super::{aligned_alloc, calloc, free, malloc, malloc_usable_size, realloc, usable_size_for};

/// `MALLOCX_LG_ALIGN`: the logarithm of the alignment.
fn alignment_of(flags: c_int) -> usize {
    1 << (flags & 63)
}

/// `MALLOCX_ZERO`.
const ZERO: c_int = 64;

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mallocx(bytes: usize, flags: c_int) -> *mut c_void {
    // SAFETY: as C's; a block of that size.
    unsafe {
        let block = match (alignment_of(flags), flags & ZERO) {
            (..=16, 0) => malloc(bytes),
            (..=16, _) => return calloc(1, bytes),
            (alignment, _) => aligned_alloc(alignment, bytes),
        };
        if flags & ZERO != 0 && !block.is_null() {
            block.cast::<u8>().write_bytes(0, bytes);
        }
        block
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn rallocx(block: *mut c_void, bytes: usize, flags: c_int) -> *mut c_void {
    // SAFETY: the program's block; both have the smaller size.
    unsafe {
        let before = malloc_usable_size(block);
        let new = if alignment_of(flags) <= 16 {
            realloc(block, bytes.max(1))
        } else {
            let new = aligned_alloc(alignment_of(flags), bytes);
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(
                    block.cast::<u8>(),
                    new.cast::<u8>(),
                    before.min(bytes),
                );
                free(block);
            }
            new
        };
        if flags & ZERO != 0 && !new.is_null() && bytes > before {
            new.cast::<u8>().add(before).write_bytes(0, bytes - before);
        }
        new
    }
}

/// Never resizes in place: says the size that the block has.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn xallocx(
    block: *mut c_void,
    _bytes: usize,
    _extra: usize,
    _flags: c_int,
) -> usize {
    // SAFETY: passed on.
    unsafe { malloc_usable_size(block) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sallocx(block: *const c_void, _flags: c_int) -> usize {
    // SAFETY: passed on.
    unsafe { malloc_usable_size(block) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dallocx(block: *mut c_void, _flags: c_int) {
    // SAFETY: passed on.
    unsafe { free(block) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sdallocx(block: *mut c_void, _bytes: usize, _flags: c_int) {
    // SAFETY: passed on.
    unsafe { free(block) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nallocx(bytes: usize, _flags: c_int) -> usize {
    usable_size_for(bytes)
}

/// None of jemalloc's settings and figures exist here. It would start a thread of its own, for one.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mallctl(
    _name: *const c_char,
    _old: *mut c_void,
    _old_bytes: *mut usize,
    _new: *mut c_void,
    _new_bytes: usize,
) -> c_int {
    libc::ENOENT
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mallctlnametomib(
    _name: *const c_char,
    _mib: *mut usize,
    _length: *mut usize,
) -> c_int {
    libc::ENOENT
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mallctlbymib(
    _mib: *const usize,
    _length: usize,
    _old: *mut c_void,
    _old_bytes: *mut usize,
    _new: *mut c_void,
    _new_bytes: usize,
) -> c_int {
    libc::ENOENT
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc_stats_print(
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char)>,
    context: *mut c_void,
    _options: *const c_char,
) {
    if let Some(write) = write {
        // SAFETY: the program's function and its argument.
        unsafe {
            write(
                context,
                c"The recorder's heap keeps no statistics.\n".as_ptr(),
            )
        };
    }
}
