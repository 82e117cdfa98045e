//! R2's `xpointer`: what a library hands out from its own memory, as a copy at an address that is
//! the same in both runs.

use std::collections::BTreeMap;

use super::guarded::Guarded;
use crate::mechanism::call::Call;
use crate::syscall;

/// How long a copy lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Until the program frees it.
    None,
    /// Until the same thread gets the next one from the same place.
    Thread,
    /// For ever; all threads see the same.
    Process,
    /// Until a call releases the key.
    Until(u64),
    /// Until the running callback returns.
    Callback,
}

pub(super) struct Shadows {
    /// By thread and place, the thread's current copy.
    of_threads: BTreeMap<(u32, u64), usize>,
    /// By place, the copies that were made of whatever was there, with their lengths.
    of_process: BTreeMap<u64, Vec<(usize, usize)>>,
    /// By thread and key. A key is often a handle, and the library may give a handle that one
    /// thread gave back to another thread: in replay nothing orders the two, so neither may
    /// end what the other has.
    until: BTreeMap<(u32, u64), Vec<usize>>,
    /// By thread, a list for each callback that runs, the innermost last.
    of_callbacks: BTreeMap<u32, Vec<Vec<usize>>>,
    /// Recording: the library's own block behind a copy that the program will free.
    real: BTreeMap<usize, usize>,
}

pub(super) static SHADOWS: Guarded<Shadows> = Guarded::new(Shadows {
    of_threads: BTreeMap::new(),
    of_process: BTreeMap::new(),
    until: BTreeMap::new(),
    of_callbacks: BTreeMap::new(),
    real: BTreeMap::new(),
});

/// In place of a length: no new copy, the one at the address that follows.
const SAME: u64 = u64::MAX;

/// The copy of what lies behind a pointer of the library. `size` is asked while recording only;
/// `None` is a string. `place` tells apart the pointers that functions hand out.
///
/// # Safety
/// Recording: a valid pointer, or null, with so many bytes behind it.
pub unsafe fn shadow(
    call: &mut Call,
    real: *mut u8,
    size: Option<&dyn Fn() -> usize>,
    owner: Owner,
    place: u64,
) -> *mut u8 {
    if real.is_null() {
        return real;
    }
    let recording = call.is_recording();
    let mut length = 0u64;
    if recording {
        // SAFETY: the caller's promise.
        length =
            size.map_or_else(|| unsafe { libc::strlen(real.cast()) } + 1, |size| size()) as u64;
        if owner == Owner::Process
            && let Some(known) = same_as_before(place, real, length as usize)
        {
            length = SAME;
            // SAFETY: two local values.
            unsafe { call.out_value(&raw mut length) };
            let mut known = known as u64;
            unsafe { call.out_value(&raw mut known) };
            return known as *mut u8;
        }
    }
    // SAFETY: local values.
    unsafe { call.out_value(&raw mut length) };
    if length == SAME {
        let mut known = 0u64;
        // SAFETY: as above.
        unsafe { call.out_value(&raw mut known) };
        await_copy(place, known as usize);
        return known as *mut u8;
    }
    if owner == Owner::Thread {
        let number = call.thread.number;
        if let Some(old) = SHADOWS.with(|shadows| shadows.of_threads.remove(&(number, place))) {
            // SAFETY: a copy that the next one replaces.
            unsafe { free(call, old as *mut u8) };
        }
    }
    // SAFETY: the caller's promise.
    let copy = unsafe { call.shadow(real, length as usize) };
    let number = call.thread.number;
    SHADOWS.with(|shadows| match owner {
        Owner::None if recording => drop(shadows.real.insert(copy as usize, real as usize)),
        Owner::None => {}
        Owner::Thread => drop(shadows.of_threads.insert((number, place), copy as usize)),
        Owner::Process => shadows
            .of_process
            .entry(place)
            .or_default()
            .push((copy as usize, length as usize)),
        Owner::Callback => {
            // Outside of any callback nobody says when it ends, so it stays.
            if let Some(innermost) = shadows
                .of_callbacks
                .get_mut(&number)
                .and_then(|running| running.last_mut())
            {
                innermost.push(copy as usize);
            }
        }
        Owner::Until(key) => shadows
            .until
            .entry((number, key))
            .or_default()
            .push(copy as usize),
    });
    copy
}

/// As [`shadow`] for a pointer that came out through an out parameter, which is replaced.
///
/// # Safety
/// As there; `pointer` is valid for reading and writing a pointer.
pub unsafe fn replace(
    call: &mut Call,
    pointer: *mut *mut u8,
    size: Option<&dyn Fn() -> usize>,
    owner: Owner,
    place: u64,
) {
    // SAFETY: the caller's promise.
    unsafe { pointer.write(shadow(call, pointer.read(), size, owner, place)) };
}

fn same_as_before(place: u64, real: *const u8, length: usize) -> Option<usize> {
    SHADOWS.with(|shadows| {
        let copies = shadows.of_process.get(&place)?;
        // SAFETY: copies live for ever; the real one is readable now.
        let is_same =
            |copy: usize| unsafe { libc::memcmp(copy as *const _, real.cast(), length) == 0 };
        copies
            .iter()
            .find(|(copy, bytes)| *bytes == length && is_same(*copy))
            .map(|(copy, _)| *copy)
    })
}

/// Replay: waits until the thread that made the copy first has made it again.
fn await_copy(place: u64, copy: usize) {
    let is_there = || {
        SHADOWS.with(|shadows| {
            shadows
                .of_process
                .get(&place)
                .is_some_and(|copies| copies.iter().any(|(known, _)| *known == copy))
        })
    };
    while !is_there() {
        // SAFETY: no arguments.
        unsafe { syscall!(libc::SYS_sched_yield) };
    }
}

/// Ends the copies that the thread was handed out under a key. In both runs at the same point.
pub fn release(call: &mut Call, key: u64) {
    for copy in SHADOWS
        .with(|shadows| shadows.until.remove(&(call.thread.number, key)))
        .unwrap_or_default()
    {
        // SAFETY: a copy that nobody may use any more.
        unsafe { free(call, copy as *mut u8) };
    }
}

/// A callback begins on the thread.
pub fn enter_callback(thread: u32) {
    SHADOWS.with(|shadows| {
        shadows
            .of_callbacks
            .entry(thread)
            .or_default()
            .push(Vec::new())
    });
}

/// It has returned: what was handed out for its time, to be freed.
pub fn leave_callback(thread: u32) -> Vec<usize> {
    SHADOWS
        .with(|shadows| shadows.of_callbacks.get_mut(&thread).and_then(Vec::pop))
        .unwrap_or_default()
}

/// Frees a block of the replay heap, as the program itself would.
///
/// # Safety
/// A block of the replay heap that nobody uses any more.
pub unsafe fn free(call: &mut Call, block: *mut u8) {
    call.thread.enter_replay();
    // SAFETY: the caller's promise. Our own `free`, in replay space.
    unsafe { libc::free(block.cast()) };
    call.thread.enter_system();
}

/// Recording: the library's block behind a copy that the program gives back; it is forgotten here.
pub fn take_real(copy: *mut u8) -> Option<*mut u8> {
    SHADOWS
        .with(|shadows| shadows.real.remove(&(copy as usize)))
        .map(|real| real as *mut u8)
}
