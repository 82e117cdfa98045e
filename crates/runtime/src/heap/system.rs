//! The system heap: an ordinary allocator for system space, in shards with a lock each.
//!
//! A thread uses the shard that its address hashes to, or the next one that nobody holds. A block
//! returns to the shard that cut it. Addresses follow from the order of calls only as long as there
//! is one thread: enough for what libraries allocate before recording begins.

use std::arch::asm;
use std::ptr::null_mut;

use super::arena::{self, Arena, Block, Statistics};
use super::lock::Lock;
use super::sizes::{SMALL_MAX, UNIT, class_of, units_of};
use super::space::{self, FIRST_SHARD, Fresh, SHARDS};

struct Shard {
    number: usize,
    /// Null until it is used.
    arena: *mut Arena,
}

/// Each in a line of its own.
#[repr(align(128))]
struct Aligned(Lock<Shard>);

// SAFETY: the arena is used by whoever holds the lock.
unsafe impl Sync for Aligned {}

static HEAP: [Aligned; SHARDS] = {
    let mut heap = [const {
        Aligned(Lock::new(Shard {
            number: 0,
            arena: null_mut(),
        }))
    }; SHARDS];
    let mut number = 0;
    while number < SHARDS {
        heap[number] = Aligned(Lock::new(Shard {
            number: FIRST_SHARD + number,
            arena: null_mut(),
        }));
        number += 1;
    }
    heap
};
/// Ranges beyond the shards' own.
static RANGES: Lock<()> = Lock::new(());

impl Shard {
    fn arena(&mut self) -> Option<&mut Arena> {
        if self.arena.is_null() {
            self.arena = Arena::create(self.number)?;
        }
        // SAFETY: lives for ever, and the lock is held.
        unsafe { self.arena.as_mut() }
    }
}

/// glibc's own note that the process has had one thread only. Weak: older ones do not have it.
#[inline(always)]
fn is_single_threaded() -> bool {
    let flag: *const u8;
    // SAFETY: reads an entry of the global offset table, which is zero where the symbol is missing.
    unsafe {
        asm!(
            ".weak __libc_single_threaded",
            "mov {}, qword ptr [rip + __libc_single_threaded@GOTPCREL]",
            out(reg) flag,
            options(nostack, readonly, preserves_flags)
        );
        !flag.is_null()
            && flag
                .cast::<std::sync::atomic::AtomicU8>()
                .as_ref()
                .is_some_and(|flag| flag.load(std::sync::atomic::Ordering::Relaxed) != 0)
    }
}

#[inline]
fn home() -> usize {
    let thread: usize;
    // SAFETY: the thread's control block begins with its own address.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) thread, options(nostack, readonly, preserves_flags, pure))
    };
    (thread >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - SHARDS.ilog2())
}

/// Runs `inner` with a shard that nobody holds, or waits for the thread's own.
#[inline]
fn with_any<R>(mut inner: impl FnMut(&mut Shard) -> R) -> R {
    if is_single_threaded() {
        // SAFETY: libc says so. Threads made without libc do not use libc's functions.
        return unsafe { HEAP[0].0.alone(inner) };
    }
    let home = home();
    for step in 0..SHARDS {
        if let Some(result) = HEAP[(home + step) % SHARDS].0.try_with(&mut inner) {
            return result;
        }
    }
    HEAP[home].0.with(inner)
}

#[inline]
fn with_owner<R>(offset: usize, inner: impl FnOnce(&mut Shard) -> R) -> R {
    let Some(owner) = space::owner_at(offset) else {
        super::fatal::fatal("free(): invalid pointer", space::BASE + offset)
    };
    let lock = &HEAP[owner - FIRST_SHARD].0;
    if is_single_threaded() {
        // SAFETY: as above.
        return unsafe { lock.alone(inner) };
    }
    lock.with(inner)
}

/// A block at a multiple of 16. Null when memory is short; whether it is known to be zero.
#[inline]
pub fn allocate(bytes: usize) -> (*mut u8, bool) {
    if bytes <= SMALL_MAX {
        (allocate_small(class_of(bytes)), false)
    } else {
        allocate_run(units_of(bytes), 1)
    }
}

#[inline]
pub fn allocate_small(class: usize) -> *mut u8 {
    with_any(|shard| {
        let Some(arena) = shard.arena() else {
            return null_mut();
        };
        // SAFETY: the lock is held.
        unsafe {
            let block = arena.pop(class);
            if !block.is_null() {
                return block.cast();
            }
            let block = arena.pop_other(class);
            if !block.is_null() {
                return block.cast();
            }
            let span = take_run(arena, Arena::SPAN_UNITS, Arena::SPAN_ALIGNED);
            let Some(span) = span else { return null_mut() };
            arena.add_span(class, span);
            arena.pop_other(class).cast()
        }
    })
}

pub fn allocate_run(units: usize, aligned: usize) -> (*mut u8, bool) {
    with_any(|shard| {
        // SAFETY: the lock is held.
        shard
            .arena()
            .and_then(|arena| unsafe { take_run(arena, units, aligned) })
    })
    .map_or((null_mut(), false), |run| {
        (run.address as *mut u8, run.zero)
    })
}

unsafe fn take_run(arena: &mut Arena, units: usize, aligned: usize) -> Option<super::runs::Run> {
    // SAFETY: passed on.
    unsafe {
        if let Some(run) = arena.runs.take_free(units, aligned) {
            return Some(run);
        }
        arena.take_fresh(
            units,
            aligned,
            |owner, bytes| RANGES.with(|()| Fresh::extension(owner, bytes)),
            |ask| ask(),
        )
    }
}

/// Takes back a block of the system heap, in any space.
///
/// # Safety
/// It was given out, and nobody uses it.
#[inline]
pub unsafe fn free(address: usize) {
    let offset = address - space::BASE;
    // SAFETY: passed on; the lock is held.
    unsafe {
        let class = space::class_at(offset);
        with_owner(offset, |shard| {
            let Some(arena) = shard.arena() else { return };
            if class != 0 {
                arena.push(class, address as *mut Block);
            } else {
                arena.runs.give(address, arena::used_run(address));
            }
        });
    }
}

/// Takes a block of the replay heap that was freed in system space. It stays here: in replay nobody
/// frees it.
///
/// # Safety
/// As [`free`].
pub unsafe fn adopt(address: usize) {
    // SAFETY: passed on; the lock is held.
    unsafe {
        let class = space::class_at(address - space::BASE);
        if class != 0 {
            with_any(|shard| {
                if let Some(arena) = shard.arena() {
                    arena.push(class, address as *mut Block);
                }
            });
        } else {
            let units = arena::used_run(address);
            space::set_entry(address, space::Entry::Returning(units));
            space::discard(address, units * UNIT);
        }
    }
}

/// Makes a run of the system heap longer or shorter where it lies, if that is possible.
///
/// # Safety
/// As [`free`], but it stays in use.
pub unsafe fn resize(address: usize, units: usize, wanted: usize) -> bool {
    with_owner(address - space::BASE, |shard| {
        let Some(arena) = shard.arena() else {
            return false;
        };
        // SAFETY: passed on; the lock is held.
        unsafe { arena.resize(address, units, wanted, |ask| ask()) }
    })
}

pub fn trim() -> bool {
    let mut any = false;
    for shard in &HEAP {
        // SAFETY: the lock is held.
        any |= shard
            .0
            .with(|shard| !shard.arena.is_null() && unsafe { (*shard.arena).runs.trim() });
    }
    any
}

/// What all shards have together.
pub fn statistics() -> Statistics {
    let mut all = Statistics::default();
    for shard in &HEAP {
        shard.0.with(|shard| {
            // SAFETY: the lock is held.
            if let Some(arena) = unsafe { shard.arena.as_ref() } {
                all.add(arena.statistics());
            }
        });
    }
    all
}

pub fn lock_all() {
    RANGES.lock();
    for shard in &HEAP {
        shard.0.lock();
    }
}

pub fn reset_all() {
    for shard in &HEAP {
        shard.0.reset();
    }
    RANGES.reset();
}

pub fn unlock_all() {
    for shard in &HEAP {
        shard.0.unlock();
    }
    RANGES.unlock();
}
