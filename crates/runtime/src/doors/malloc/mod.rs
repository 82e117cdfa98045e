//! The names that programs call.

mod jemalloc;
#[cfg(test)]
mod tests;

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::heap::arena::{self, Block, Statistics};
use crate::heap::sizes::{
    ALIGNMENT, PAGE, SIZE_MAX, SMALL_MAX, UNIT, aligned_class_of, class_bytes, class_of, units_of,
};
use crate::heap::space::{self, REPLAY_BYTES};
use crate::heap::system;
use crate::mechanism::heap;
use crate::raw::{errno, set_errno};
use crate::state::thread::{self, Current};

/// The thread whose heap it is. It stays in replay space: nothing of this is in the log.
#[inline(always)]
fn caller() -> Option<Current<'static>> {
    // SAFETY: in replay space no guard is in use, and these functions call nothing of the
    // program's.
    unsafe { thread::current_in_replay_space() }
}

#[cold]
fn no_memory() -> *mut c_void {
    set_errno(libc::ENOMEM);
    null_mut()
}

// Not named like one of libc's functions: the compiler makes one of `malloc` and `memset` into
// `calloc`, which would call itself.
#[inline]
fn take(bytes: usize) -> (*mut u8, bool) {
    if bytes > SIZE_MAX {
        return (null_mut(), false);
    }
    match caller() {
        Some(mut thread) => heap::allocate(&mut thread, bytes),
        None => system::allocate(bytes),
    }
}

#[cold]
#[inline(never)]
fn take_slowly(bytes: usize) -> *mut c_void {
    let (block, _) = take(bytes);
    if block.is_null() {
        no_memory()
    } else {
        block.cast()
    }
}

/// A block for `bytes` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    if bytes <= SMALL_MAX
        && let Some(thread) = caller()
        // SAFETY: the thread's arena lives for ever.
        && let Some(arena) = unsafe { thread.heap.arena.as_mut() }
    {
        // SAFETY: the arena is the thread's.
        let block = unsafe { arena.pop(class_of(bytes)) };
        if !block.is_null() {
            return block.cast();
        }
    }
    take_slowly(bytes)
}

/// A block of this size that must be zero gets fresh pages from the kernel.
const DISCARD_BYTES: usize = 4 << 20;

/// Zeroed memory for `count` items.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    let Some(total) = count.checked_mul(bytes) else {
        return no_memory();
    };
    let (block, zero) = take(total);
    if block.is_null() {
        return no_memory();
    }
    // SAFETY: a block of that size.
    unsafe {
        // Programs ask for much more than they will touch.
        if !zero && total >= DISCARD_BYTES && space::discard(block as usize, total) {
            let (head, tail) = (
                (block as usize).wrapping_neg() % PAGE,
                (block as usize + total) % PAGE,
            );
            block.write_bytes(0, head);
            block.add(total - tail).write_bytes(0, tail);
        } else if !zero {
            block.write_bytes(0, total);
        }
    }
    block.cast()
}

/// Takes a block back.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn free(block: *mut c_void) {
    let address = block as usize;
    // SAFETY: what a program frees it was given, or it is damaged anyway.
    unsafe {
        let Some(offset) = space::offset(address) else {
            if !block.is_null() {
                free_foreign(block);
            }
            return;
        };
        if offset >= REPLAY_BYTES {
            return system::free(address);
        }
        let Some(mut thread) = caller() else {
            return system::adopt(address);
        };
        if let Some(arena) = thread.heap.arena.as_mut()
            && space::range_at(offset) == arena.number
        {
            let class = space::class_at(offset);
            if class != 0 {
                return arena.push(class, block.cast::<Block>());
            }
        }
        heap::free(&mut thread, address);
    }
}

/// A block of another size with the same content, as far as both go.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: as in `free`.
    unsafe {
        if block.is_null() {
            return malloc(bytes);
        }
        if bytes == 0 {
            free(block);
            return null_mut();
        }
        if bytes > SIZE_MAX {
            return no_memory();
        }
        let address = block as usize;
        let Some(offset) = space::offset(address) else {
            return move_foreign(block, bytes);
        };
        let class = space::class_at(offset);
        let usable = if class != 0 {
            class_bytes(class)
        } else {
            arena::used_run(address) * UNIT
        };
        let fits = bytes <= usable && (bytes >= usable / 2 || usable <= 64);
        if class != 0 {
            return if fits {
                block
            } else {
                move_to(block, usable, bytes, bytes)
            };
        }
        if bytes > SMALL_MAX {
            let (units, wanted) = (usable / UNIT, units_of(bytes));
            // What is hardly shorter stays as it is.
            if wanted <= units && wanted >= units - units / 16 {
                return block;
            }
            let resized = match caller() {
                Some(mut thread) => {
                    offset < REPLAY_BYTES && heap::resize(&mut thread, address, units, wanted)
                }
                None => offset >= REPLAY_BYTES && system::resize(address, units, wanted),
            };
            if resized || fits {
                return block;
            }
        }
        // A large block that had to move will grow on: with room to do so it moves a number of
        // times that is logarithmic in its size.
        let room = if bytes > usable && bytes >= 32 * PAGE {
            bytes / 8
        } else {
            0
        };
        move_to(block, usable, bytes, (bytes + room).min(SIZE_MAX))
    }
}

unsafe fn move_to(block: *mut c_void, usable: usize, bytes: usize, room: usize) -> *mut c_void {
    // SAFETY: as in `free`; both blocks have the smaller size.
    unsafe {
        let new = malloc(room);
        if !new.is_null() {
            std::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), usable.min(bytes));
            free(block);
        }
        new
    }
}

/// As [`realloc`] for `count` items.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn reallocarray(
    block: *mut c_void,
    count: usize,
    bytes: usize,
) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: passed on.
        Some(total) => unsafe { realloc(block, total) },
        None => no_memory(),
    }
}

/// `None`: memory is short. Alignments are powers of two.
fn take_aligned(alignment: usize, bytes: usize) -> Option<*mut c_void> {
    if alignment <= ALIGNMENT {
        // SAFETY: as C's.
        let block = unsafe { malloc(bytes) };
        return (!block.is_null()).then_some(block);
    }
    if bytes > SIZE_MAX || alignment > SIZE_MAX / 4 {
        return None;
    }
    let block = match (aligned_class_of(bytes, alignment), caller()) {
        (Some(class), Some(mut thread)) => heap::allocate_small(&mut thread, class),
        (Some(class), None) => system::allocate_small(class),
        (None, thread) => {
            let (units, aligned) = (units_of(bytes.max(1)), alignment.div_ceil(UNIT));
            match thread {
                Some(mut thread) => heap::allocate_run(&mut thread, units, aligned).0,
                None => system::allocate_run(units, aligned).0,
            }
        }
    };
    (!block.is_null()).then_some(block.cast())
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_memalign(
    result: *mut *mut c_void,
    alignment: usize,
    bytes: usize,
) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<*const ()>()) {
        return libc::EINVAL;
    }
    let before = errno();
    let taken = take_aligned(alignment, bytes);
    set_errno(before);
    match taken {
        Some(block) => {
            // SAFETY: the caller's variable.
            unsafe { *result = block };
            0
        }
        None => libc::ENOMEM,
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void {
    // SAFETY: as C's.
    unsafe { memalign(alignment, bytes) }
}

/// As glibc's: an alignment that is no power of two is rounded up to one.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn memalign(alignment: usize, bytes: usize) -> *mut c_void {
    match alignment.checked_next_power_of_two() {
        Some(alignment) => take_aligned(alignment, bytes).unwrap_or_else(no_memory),
        None => {
            set_errno(libc::EINVAL);
            null_mut()
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn valloc(bytes: usize) -> *mut c_void {
    take_aligned(PAGE, bytes).unwrap_or_else(no_memory)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.checked_next_multiple_of(PAGE) {
        Some(bytes) => take_aligned(PAGE, bytes.max(PAGE)).unwrap_or_else(no_memory),
        None => no_memory(),
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: passed on.
    unsafe { free(block) };
}

/// How many bytes of a block may be used.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc_usable_size(block: *const c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    let Some(offset) = space::offset(block as usize) else {
        return next(&USABLE_SIZE, c"malloc_usable_size").map_or(0, |next| {
            // SAFETY: the next library's function of that name.
            unsafe {
                std::mem::transmute::<usize, unsafe extern "C" fn(*const c_void) -> usize>(next)(
                    block,
                )
            }
        });
    };
    // SAFETY: a block of ours.
    unsafe {
        match space::class_at(offset) {
            0 => arena::used_run(block as usize) * UNIT,
            class => class_bytes(class),
        }
    }
}

/// The usable size of a block that would be asked for with this size.
pub fn usable_size_for(bytes: usize) -> usize {
    if bytes <= SMALL_MAX {
        class_bytes(class_of(bytes))
    } else {
        units_of(bytes) * UNIT
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc_trim(_keep: usize) -> c_int {
    match caller() {
        // SAFETY: the thread's arena.
        Some(mut thread) => heap::with_arena(&mut thread, |arena, _| {
            arena.is_some_and(|arena| unsafe { arena.runs.trim() })
        })
        .into(),
        None => system::trim().into(),
    }
}

/// Nothing of what it sets exists here.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mallopt(_parameter: c_int, _value: c_int) -> c_int {
    1
}

/// In replay space what the calling thread's arena has: what others have depends on when one looks.
fn statistics() -> Statistics {
    match caller() {
        Some(mut thread) => heap::with_arena(&mut thread, |arena, _| {
            arena.map(|arena| arena.statistics())
        })
        .unwrap_or_default(),
        None => system::statistics(),
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mallinfo2() -> libc::mallinfo2 {
    let statistics = statistics();
    let free = statistics.free_bytes + statistics.small_bytes;
    libc::mallinfo2 {
        arena: statistics.bytes,
        ordblks: statistics.free_runs,
        smblks: statistics.small_blocks,
        hblks: 0,
        hblkhd: 0,
        usmblks: 0,
        fsmblks: statistics.small_bytes,
        uordblks: statistics.bytes.saturating_sub(free),
        fordblks: free,
        keepcost: 0,
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mallinfo() -> libc::mallinfo {
    // SAFETY: no arguments.
    let wide = unsafe { mallinfo2() };
    // As glibc's: what does not fit is cut off.
    libc::mallinfo {
        arena: wide.arena as c_int,
        ordblks: wide.ordblks as c_int,
        smblks: wide.smblks as c_int,
        hblks: 0,
        hblkhd: 0,
        usmblks: 0,
        fsmblks: wide.fsmblks as c_int,
        uordblks: wide.uordblks as c_int,
        fordblks: wide.fordblks as c_int,
        keepcost: 0,
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc_stats() {
    use std::fmt::Write;
    // SAFETY: no arguments.
    let all = unsafe { mallinfo2() };
    let mut text = hindcast_execlog::Text::<256>::new();
    let _ = writeln!(
        text,
        "Arena 0:\nsystem bytes     = {:>10}\nin use bytes     = {:>10}",
        all.arena, all.uordblks
    );
    let text = text.as_str();
    // SAFETY: through the interface, like other output of the program's.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

// Blocks that are not ours: made by another allocator's own functions, or before this library was
// there.

static FREE: AtomicUsize = AtomicUsize::new(0);
static REALLOC: AtomicUsize = AtomicUsize::new(0);
static USABLE_SIZE: AtomicUsize = AtomicUsize::new(0);

/// The function of this name in the next library that has one.
fn next(cache: &AtomicUsize, name: &std::ffi::CStr) -> Option<usize> {
    let mut function = cache.load(Ordering::Relaxed);
    if function == 0 {
        // SAFETY: a C string.
        function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) } as usize;
        cache.store(function, Ordering::Relaxed);
    }
    (function != 0).then_some(function)
}

#[cold]
unsafe fn free_foreign(block: *mut c_void) {
    if let Some(next) = next(&FREE, c"free") {
        // SAFETY: the next library's function of that name.
        unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void)>(next)(block) };
    }
}

#[cold]
unsafe fn move_foreign(block: *mut c_void, bytes: usize) -> *mut c_void {
    match next(&REALLOC, c"realloc") {
        // SAFETY: as above.
        Some(next) => unsafe {
            std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void>(
                next,
            )(block, bytes)
        },
        None => no_memory(),
    }
}
