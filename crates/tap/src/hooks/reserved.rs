//! What a shim asks and says by the reserved descriptor.
//!
//! ```text
//!   read                 the request that this thread has read last
//!   pread  at offset N   the request that was read last from descriptor N
//!   write                whose turn this thread is; nothing: it is not told any more. With a key
//!                        behind the number: apart from the request, see `turns::set_apart`
//!   pwrite at offset N   on whose behalf descriptor N is written to; nothing: its thread's
//!
//!   pread  at DRAW       what a request draws next, whose number is in the first bytes, or of 0
//!                        what the thread does; behind it, if there is room, what code asks: a
//!                        hash, or 0
//!   pread  at CLOCK      what it reads of the wall clock next, in nanoseconds since 1970;
//!                        likewise
//!   pread  at IN_HAND    the request for which this thread hands work to another one
//!   pread  at PUTS       the number of what a request puts into a cache: its number, and hashes of
//!                        the cache and of the key. In a replay 0 if it did not do so originally
//!   pwrite at SEEN       what it saw there, behind the same: see `shown`
//!   pread  at SEEN       in a replay: what it saw; nothing: it has not looked so often
//!   pread  at PUT        in a replay, what stands behind the same: whether a request put it there
//!   pread  at SEES_NEXT  in a replay: the number of what a request sees in a cache next, or 0
//!   pwrite at HANDED     this thread hands work to another one, which draws once for this request
//!   pread  at HANDED     whose draw was handed over so and has not been drawn, or 0
//!   pwrite at SAYS       from here on a request says its number in its head, also while it is
//!                        recorded
//!   pwrite at RETURNED + one of these four   the same for a runtime that gives `pread` no bytes:
//!                        what is answered is what `pwrite` returns, plus one; 0: no answer
//!   pwrite at GIVEN + N  this process has been given connection N by the one that accepts for it
//!   pread  at GIVEN + N  in a replay: 1 if it is to be another process'
//!   pwrite at PASSES_ON  this process accepts for others
//!   pwrite at CALLER     what code draws in this thread, a hash, until nothing is told
//!   pwrite at PYTHON     the address of the context variable in which Python has its request;
//!                        before that 0: there is a Python
//! ```
//!
//! A number is eight bytes, the lowest first. Nothing is drawn or read where the kernel is to be
//! asked, which is always so without pins.

use hindcast_taplog::pins::{Caller, KEY, Reads};
use libc::{c_int, c_long, c_void, off_t, off64_t, size_t, ssize_t};

use crate::real::real;
use crate::shown::{self, Slot};
use crate::{peers, pins, process, python, said, turns};

/// Offsets that are no descriptors.
const DRAW: i64 = 1 << 32;
const CLOCK: i64 = 2 << 32;
const PYTHON: i64 = 3 << 32;
const CALLER: i64 = 4 << 32;
const IN_HAND: i64 = 5 << 32;
const PUTS: i64 = 6 << 32;
const SEEN: i64 = 7 << 32;
const PUT: i64 = 8 << 32;
const GIVEN: i64 = 9 << 32;
const PASSES_ON: i64 = 10 << 32;
const SEES_NEXT: i64 = 11 << 32;
const HANDED: i64 = 12 << 32;
const SAYS: i64 = 13 << 32;
const RETURNED: i64 = 1 << 40;
/// Of what stands there a descriptor is the lower half.
const DESCRIPTORS: i64 = 1 << 32;

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

/// Whose turn the thread is.
///
/// # Safety
/// There are so many bytes.
pub unsafe fn told_of_thread(bytes: *const c_void, length: size_t) -> ssize_t {
    const APART: usize = size_of::<u64>() + KEY;
    // SAFETY: as the caller promises.
    unsafe {
        if length != APART {
            return told(bytes, length, turns::set);
        }
        let request = u64::from_le(bytes.cast::<u64>().read_unaligned());
        let key = bytes.cast::<u8>().add(size_of::<u64>());
        turns::set_apart(request, key.cast::<[u8; KEY]>().read_unaligned());
    }
    length as ssize_t
}

fn descriptor(offset: i64) -> c_int {
    c_int::try_from(offset).unwrap_or(-1)
}

/// A request and what code asks, as far as there are bytes.
///
/// # Safety
/// There are so many bytes, at least of one number.
unsafe fn numbers(bytes: *const c_void, length: size_t) -> (u64, Caller) {
    let numbers = bytes.cast::<u64>();
    // SAFETY: as the caller promises.
    unsafe {
        let request = u64::from_le(numbers.read_unaligned());
        let has_caller = length >= 2 * size_of::<u64>();
        let code = has_caller.then(|| Caller::of(u64::from_le(numbers.add(1).read_unaligned())));
        (request, code.unwrap_or_default())
    }
}

/// Of a cache: a request, a place in the cache, and what stands behind that, or 0.
///
/// # Safety
/// There are so many bytes.
unsafe fn of_cache(bytes: *const c_void, length: size_t) -> Option<(u64, Slot, i64)> {
    let number = |at: usize| match length >= (at + 1) * size_of::<u64>() {
        // SAFETY: as the caller promises.
        true => Some(u64::from_le(unsafe {
            bytes.cast::<u64>().add(at).read_unaligned()
        })),
        false => None,
    };
    let slot = Slot::new(number(1)?, number(2)?);
    Some((number(0)?, slot, number(3).unwrap_or(0) as i64))
}

/// # Safety
/// There are so many bytes, and room for as many.
unsafe fn asked_of_cache(offset: i64, bytes: *mut c_void, length: size_t) -> ssize_t {
    // SAFETY: as the caller promises.
    let answered = unsafe { said_of_cache(offset, bytes, length) };
    // SAFETY: as the caller promises.
    answered.map_or(0, |value| unsafe { answer(value as u64, bytes, length) })
}

/// # Safety
/// There are so many bytes.
unsafe fn said_of_cache(offset: i64, bytes: *const c_void, length: size_t) -> Option<i64> {
    if offset == SEES_NEXT && length >= size_of::<u64>() {
        // SAFETY: as the caller promises.
        let (request, _) = unsafe { numbers(bytes, length) };
        return Some(shown::sees_next(request));
    }
    // SAFETY: as the caller promises.
    let (request, slot, value) = unsafe { of_cache(bytes, length) }?;
    match offset {
        PUTS => shown::put(request, slot).or(Some(0)),
        PUT => Some(i64::from(shown::is_put(slot, value))),
        SEEN => shown::seen_again(request, slot),
        _ => None,
    }
}

/// # Safety
/// There are so many bytes, and room for as many.
unsafe fn asked_at(offset: i64, bytes: *mut c_void, length: size_t) -> ssize_t {
    // SAFETY: as the caller promises.
    unsafe {
        match offset {
            DRAW | CLOCK if length < size_of::<u64>() => 0,
            DRAW => {
                let (request, caller) = numbers(bytes, length);
                let bytes = bytes.cast();
                let drawn = match request {
                    0 => pins::draw_for_thread(caller, bytes, length),
                    _ => pins::draw_for(request, caller, bytes, length),
                };
                match drawn {
                    true => length as ssize_t,
                    false => 0,
                }
            }
            CLOCK => {
                let (request, caller) = numbers(bytes, length);
                match process::board()
                    .is_some_and(|board| board.replays() || board.pins().has_key())
                {
                    true => {
                        let real = process::real_time();
                        let shown = pins::wall_clock_of(request, caller, Reads::Instant, real);
                        answer(shown as u64, bytes, length)
                    }
                    false => 0,
                }
            }
            PUTS | SEEN | PUT | SEES_NEXT => asked_of_cache(offset, bytes, length),
            GIVEN..PASSES_ON => {
                let is_anothers = peers::is_anothers(descriptor(offset % DESCRIPTORS));
                answer(u64::from(is_anothers), bytes, length)
            }
            IN_HAND => answer(turns::in_hand(), bytes, length),
            HANDED => answer(pins::handed_draw(), bytes, length),
            _ => answer(turns::read_from(descriptor(offset)), bytes, length),
        }
    }
}

/// # Safety
/// There are so many bytes.
unsafe fn told_at(offset: i64, bytes: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: as the caller promises; who tells of Python's variable is the shim in it.
    unsafe {
        match offset {
            PYTHON => told(bytes, length, |variable| {
                python::set(variable.unwrap_or(0) as usize);
            }),
            GIVEN..PASSES_ON => {
                peers::given(descriptor(offset % DESCRIPTORS));
                length as ssize_t
            }
            HANDED => told(bytes, length, |request| {
                pins::hand_draw(request.unwrap_or(0));
            }),
            PASSES_ON => {
                peers::pass_on();
                length as ssize_t
            }
            SEEN => {
                if let Some((request, slot, value)) = of_cache(bytes, length) {
                    shown::saw(request, slot, value);
                }
                length as ssize_t
            }
            SAYS => {
                said::is_looked_for();
                length as ssize_t
            }
            RETURNED.. => {
                let said = said_of_cache(offset - RETURNED, bytes, length);
                said.map_or(0, |value| value.saturating_add(1)) as ssize_t
            }
            CALLER => told(bytes, length, |code| {
                turns::set_caller(code.map(Caller::of));
            }),
            _ => told(bytes, length, |request| {
                turns::set_of(descriptor(offset), request);
            }),
        }
    }
}

/// What a shim asks or says by libc's `syscall`: Perl has no other way to any descriptor. `None`:
/// it is another call.
///
/// # Safety
/// Calls that have bytes have so many.
pub unsafe fn called(
    number: c_long,
    bytes: *mut c_void,
    length: size_t,
    offset: c_long,
) -> Option<c_long> {
    // SAFETY: as the caller promises.
    let done = unsafe {
        match number {
            libc::SYS_read => answer(turns::last_read(), bytes, length),
            libc::SYS_write => told_of_thread(bytes, length),
            libc::SYS_pread64 => asked_at(offset, bytes, length),
            libc::SYS_pwrite64 => told_at(offset, bytes, length),
            _ => return None,
        }
    };
    Some(done as c_long)
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
            turns::RESERVED => asked_at(offset, bytes, length),
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
            turns::RESERVED => asked_at(offset, bytes, length),
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
    // SAFETY: what the caller gave.
    unsafe {
        match to {
            turns::RESERVED => told_at(offset, bytes, length),
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
    // SAFETY: what the caller gave.
    unsafe {
        match to {
            turns::RESERVED => told_at(offset, bytes, length),
            _ => real!(fn pwrite64(c_int, *const c_void, size_t, off64_t) -> ssize_t)(
                to, bytes, length, offset,
            ),
        }
    }
}
