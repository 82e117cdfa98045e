//! The address space of both heaps, and the two maps that say what lies where.
//!
//! ```text
//! HEAPS                                       SYSTEM_HEAP                     SYSTEM_HEAP_END
//! | range 0 | range 1 | .. | 1535 | extensions | shard 0 | .. | 15 | extensions |      16 GiB each
//! ```
//!
//! An arena begins with the range of its own number and takes more from the extensions when that is
//! full. A range is mapped from its beginning as it is needed, 16 MiB at a time, together with its
//! part of the maps:
//! - the *page map*, a byte for each 4 KiB: the class of the span there, or 0;
//! - the *unit map*, a word for each 256 bytes: where runs begin, and where free ones end. See
//!   [`Entry`].
//!
//! The maps are why a block needs no header, and why looking at a neighbour never reads memory that
//! belongs to the program.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

use hindcast_execlog::config::addresses;

use super::sizes::{PAGE, UNIT};
use crate::raw;

pub const BASE: usize = addresses::HEAPS;
pub const BYTES: usize = addresses::SYSTEM_HEAP_END - addresses::HEAPS;
pub const REPLAY_BYTES: usize = addresses::SYSTEM_HEAP - addresses::HEAPS;

const RANGE_SHIFT: u32 = 34;
pub const RANGE_BYTES: usize = 1 << RANGE_SHIFT;
const RANGES: usize = BYTES >> RANGE_SHIFT;
/// Arenas of the replay heap: that many threads may live at the same time and have one of their
/// own.
pub const REPLAY_ARENAS: usize = 1536;
const FIRST_REPLAY_EXTENSION: usize = REPLAY_ARENAS;
pub const FIRST_SHARD: usize = REPLAY_BYTES >> RANGE_SHIFT;
/// Arenas of the system heap.
pub const SHARDS: usize = 16;
const FIRST_SYSTEM_EXTENSION: usize = FIRST_SHARD + SHARDS;

/// How much of a range is mapped at a time: as much as makes a whole page of the page map.
const STEP: usize = PAGE * PAGE;

const UNIT_MAP: usize = addresses::HEAP_TABLES;
const PAGE_MAP: usize = UNIT_MAP + (1 << 40);
const ARENAS: usize = PAGE_MAP + (1 << 36);
pub const ARENA_BYTES: usize = 16 * 1024;
/// The runtime's own memory.
pub const OWN: usize = ARENAS + (1 << 36);
pub const OWN_END: usize = addresses::HEAP_TABLES_END;

const _: () = {
    assert!(BYTES / UNIT * size_of::<u32>() <= 1 << 40);
    assert!(BYTES / PAGE <= 1 << 36);
    assert!(REPLAY_BYTES.is_multiple_of(RANGE_BYTES) && BYTES.is_multiple_of(RANGE_BYTES));
    assert!(FIRST_REPLAY_EXTENSION < FIRST_SHARD && FIRST_SYSTEM_EXTENSION < RANGES);
    assert!(OWN < OWN_END);
};

/// Which arena a range belongs to, plus 1. Written before a block of the range is handed out, never
/// changed.
static OWNERS: [AtomicU16; RANGES] = [const { AtomicU16::new(0) }; RANGES];

/// Whether a pointer is into one of the two heaps, and how far.
#[inline(always)]
pub fn offset(address: usize) -> Option<usize> {
    let offset = address.wrapping_sub(BASE);
    (offset < BYTES).then_some(offset)
}

/// The range that an offset lies in.
#[inline(always)]
pub fn range_at(offset: usize) -> usize {
    offset >> RANGE_SHIFT
}

/// The arena that the memory at an offset belongs to.
#[inline]
pub fn owner_at(offset: usize) -> Option<usize> {
    usize::from(OWNERS[range_at(offset)].load(Ordering::Relaxed)).checked_sub(1)
}

/// Where the state of an arena lies, mapped or not.
pub fn arena_at(number: usize) -> *mut u8 {
    (ARENAS + number * ARENA_BYTES) as *mut _
}

/// Maps the state of an arena, zeroed.
pub fn map_arena(number: usize) -> Option<*mut u8> {
    map(ARENAS + number * ARENA_BYTES, ARENA_BYTES, false)
        .is_ok()
        .then(|| arena_at(number))
}

/// Unmaps what there is of an arena that another process's thread made.
pub fn forget_arena(number: usize) {
    OWNERS[number].store(0, Ordering::Relaxed);
    let offset = number * RANGE_BYTES;
    let parts = [
        (ARENAS + number * ARENA_BYTES, ARENA_BYTES),
        (BASE + offset, RANGE_BYTES),
        (
            UNIT_MAP + offset / UNIT * size_of::<u32>(),
            RANGE_BYTES / UNIT * size_of::<u32>(),
        ),
        (PAGE_MAP + offset / PAGE, RANGE_BYTES / PAGE),
    ];
    for (address, length) in parts {
        // SAFETY: the arena's alone, and nobody has it.
        unsafe { crate::syscall!(libc::SYS_munmap, address, length) };
    }
}

/// The class of the span at an offset, 0 where no span is. Only for what was handed out: elsewhere
/// the map may not be there.
///
/// # Safety
/// The offset lies in mapped memory of a heap.
#[inline(always)]
pub unsafe fn class_at(offset: usize) -> usize {
    // SAFETY: the page map is mapped together with the memory it describes. Atomic because spans
    // beside this one are made meanwhile.
    usize::from(
        unsafe { AtomicU8::from_ptr((PAGE_MAP + offset / PAGE) as *mut u8) }
            .load(Ordering::Relaxed),
    )
}

/// Enters a span into the page map.
///
/// # Safety
/// As [`class_at`]; the pages belong to the caller.
pub unsafe fn set_class(address: usize, bytes: usize, class: usize) {
    let first = PAGE_MAP + (address - BASE) / PAGE;
    for entry in first..first + bytes / PAGE {
        // SAFETY: as in `class_at`.
        unsafe { AtomicU8::from_ptr(entry as *mut u8) }.store(class as u8, Ordering::Relaxed);
    }
}

/// A word of the unit map. Of a run, the first unit's is set; of a free run, the last unit's as
/// well; all others are `Inside`.
///
/// `Free` is written by the thread that owns the range, and by nobody else ever. That makes joining
/// free neighbours deterministic without a lock: what another thread does to a run next door never
/// looks like `Free`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Inside,
    Used(usize),
    Free(usize),
    /// Freed by another thread than the owner of the range, and on its way back.
    Returning(usize),
}

const LENGTH: u32 = (1 << 29) - 1;
const USED: u32 = 1 << 31;
const FREE: u32 = 1 << 30;
const RETURNING: u32 = 1 << 29;

#[inline(always)]
fn word(address: usize) -> &'static AtomicU32 {
    // SAFETY: callers of `entry` and `set_entry` promise that the map is there.
    unsafe {
        AtomicU32::from_ptr((UNIT_MAP + (address - BASE) / UNIT * size_of::<u32>()) as *mut u32)
    }
}

/// # Safety
/// The address lies in mapped memory of a heap.
#[inline]
pub unsafe fn entry(address: usize) -> Entry {
    let word = word(address).load(Ordering::Relaxed);
    let units = (word & LENGTH) as usize;
    match word & !LENGTH {
        USED => Entry::Used(units),
        FREE => Entry::Free(units),
        RETURNING => Entry::Returning(units),
        _ => Entry::Inside,
    }
}

/// # Safety
/// As [`entry`], and the unit belongs to the caller.
#[inline]
pub unsafe fn set_entry(address: usize, entry: Entry) {
    let value = match entry {
        Entry::Inside => 0,
        Entry::Used(units) => USED | units as u32,
        Entry::Free(units) => FREE | units as u32,
        Entry::Returning(units) => RETURNING | units as u32,
    };
    word(address).store(value, Ordering::Relaxed);
}

/// Memory of an arena that was never used: `next..mapped` is there, zeroed; `mapped..end` can be
/// mapped.
///
/// The first and the last page of what is mapped are never handed out, so that looking at the
/// neighbours of a run stays in the maps.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    pub next: usize,
    mapped: usize,
    end: usize,
}

impl Fresh {
    /// The range of an arena's own number.
    pub fn own(number: usize) -> Fresh {
        Fresh::of(number, 1, number)
    }

    fn of(range: usize, count: usize, owner: usize) -> Fresh {
        for range in &OWNERS[range..range + count] {
            range.store(owner as u16 + 1, Ordering::Relaxed);
        }
        let base = BASE + range * RANGE_BYTES;
        Fresh {
            next: base + PAGE,
            mapped: base,
            end: base + count * RANGE_BYTES,
        }
    }

    /// Another range or several, for an arena whose own is full. To be called in order, as it takes
    /// from what all arenas share.
    pub fn extension(owner: usize, bytes: usize) -> Option<Fresh> {
        static REPLAY: AtomicU32 = AtomicU32::new(FIRST_REPLAY_EXTENSION as u32);
        static SYSTEM: AtomicU32 = AtomicU32::new(FIRST_SYSTEM_EXTENSION as u32);
        let (next, end) = if owner < FIRST_SHARD {
            (&REPLAY, FIRST_SHARD)
        } else {
            (&SYSTEM, RANGES)
        };
        let count = (bytes + 2 * PAGE).div_ceil(RANGE_BYTES);
        let first = next.load(Ordering::Relaxed) as usize;
        if first + count > end {
            return None;
        }
        next.store((first + count) as u32, Ordering::Relaxed);
        Some(Fresh::of(first, count, owner))
    }

    /// Whether nothing of it was handed out yet.
    pub fn is_untouched(&self) -> bool {
        self.mapped < self.next
    }

    /// Whether `bytes` from `address` on, which is not below `next`, fit.
    pub fn fits(&self, address: usize, bytes: usize) -> bool {
        address + bytes + PAGE <= self.end
    }

    /// Whether so much is there already.
    #[inline]
    pub fn reaches(&self, address: usize, bytes: usize) -> bool {
        address + bytes + PAGE <= self.mapped
    }

    /// Makes the memory up to `address + bytes`, which fits, usable. The caller moves `next`.
    pub fn reach(&mut self, address: usize, bytes: usize) -> bool {
        let needed = address + bytes + PAGE;
        if needed <= self.mapped {
            return true;
        }
        if needed > self.end {
            return false;
        }
        let length = (needed - self.mapped).next_multiple_of(STEP);
        let offset = self.mapped - BASE;
        let parts = [
            (
                UNIT_MAP + offset / UNIT * size_of::<u32>(),
                length / UNIT * size_of::<u32>(),
            ),
            (PAGE_MAP + offset / PAGE, length / PAGE),
            (self.mapped, length),
        ];
        for (done, part) in parts.iter().enumerate() {
            // Blocks count as promised memory, so that a program that asks for too much learns it
            // as it would from libc.
            let promised = done == 2 && !cfg!(test);
            if let Err(code) = map(part.0, part.1, promised) {
                for (address, length) in &parts[..done] {
                    // SAFETY: mapped just now, and nobody's yet.
                    unsafe { crate::syscall!(libc::SYS_munmap, *address, *length) };
                }
                if code == libc::EEXIST {
                    // The program has put something there.
                    self.end = self.mapped;
                }
                return false;
            }
        }
        self.mapped += length;
        true
    }
}

/// Unmaps the replay heap, so that its arenas can be made anew.
#[cfg(test)]
pub fn forget_everything() {
    for (number, owner) in OWNERS.iter().enumerate().take(FIRST_SHARD) {
        if owner.load(Ordering::Relaxed) != 0 {
            forget_arena(number);
        }
    }
}

/// Maps zeroed memory. Fails where the program has put something else: it is never overwritten.
fn map(address: usize, length: usize, promised: bool) -> Result<(), i32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let reserve = if promised { 0 } else { libc::MAP_NORESERVE };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | reserve;
    // SAFETY: a range that is the heaps' alone, or the call fails.
    let result = unsafe {
        crate::syscall!(
            libc::SYS_mmap,
            address,
            length,
            protection,
            flags,
            -1isize,
            0
        )
    };
    match raw::error_of(result) {
        Some(code) => Err(code),
        None if result as usize == address => Ok(()),
        None => {
            // A kernel before 4.17 takes the address for a hint.
            // SAFETY: mapped just now, and nobody's.
            unsafe { crate::syscall!(libc::SYS_munmap, result, length) };
            Err(libc::EEXIST)
        }
    }
}

/// Gives the memory of whole pages inside back to the kernel, so that they read as zero. `false`:
/// it is as it was, since it is locked.
///
/// # Safety
/// Nobody uses the memory.
pub unsafe fn discard(address: usize, bytes: usize) -> bool {
    let begin = address.next_multiple_of(PAGE);
    let end = (address + bytes) & !(PAGE - 1);
    // SAFETY: whole pages inside what the caller gives away.
    begin >= end
        || unsafe { crate::syscall!(libc::SYS_madvise, begin, end - begin, libc::MADV_DONTNEED) }
            == 0
}
