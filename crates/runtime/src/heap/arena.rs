//! An arena: blocks of all sizes for one thread of the replay heap, or for one shard of the system
//! heap.
//!
//! Whoever calls is alone with it. What an arena does is a function of the calls it gets, in their
//! order.

use std::ptr::null_mut;

use super::runs::{Run, Runs};
use super::sizes::{CLASSES, PAGE, SPAN_BYTES, UNIT, UNITS_PER_PAGE, batch, class_bytes};
use super::space::{self, Entry, Fresh};

/// A free small block.
#[repr(C)]
pub struct Block {
    pub next: *mut Block,
    /// [`FREED`] while it is free. In a batch of the pool, the first block's is the next batch.
    pub mark: usize,
}

/// What a block is marked with that was freed: finds most of those that are freed twice.
const FREED: usize = 0x9e4a_f7ee_dead_b10c;
/// How far a list is searched for a block that seems to be freed twice.
const SEARCH_MAX: usize = 100_000;

/// Small blocks that were cut from other arenas, to be passed on when two batches have come
/// together.
#[derive(Clone, Copy)]
pub struct Foreign {
    blocks: *mut Block,
    count: usize,
    /// A whole batch, or none.
    batch: *mut Block,
}

/// What was not cut from a span yet.
#[derive(Clone, Copy)]
struct Span {
    next: usize,
    end: usize,
}

/// A run that another thread than its arena's freed.
#[repr(C)]
pub struct Returning {
    pub next: *mut Returning,
}

#[repr(C)]
pub struct Arena {
    pub number: usize,
    /// Free blocks by class. 0, which is no class, stays empty.
    pub small: [*mut Block; CLASSES],
    spans: [Span; CLASSES],
    foreign: [Foreign; CLASSES],
    pub returning: *mut Returning,
    pub returning_units: usize,
    /// Units that may be taken from memory that was never used before it is asked again what other
    /// threads gave back.
    pub unasked_units: usize,
    pub runs: Runs,
}

const _: () = assert!(size_of::<Arena>() <= space::ARENA_BYTES);

impl Arena {
    /// Makes the arena with this number, which was not made before. `None` when memory is short.
    pub fn create(number: usize) -> Option<*mut Arena> {
        let arena = space::map_arena(number)?.cast::<Arena>();
        // SAFETY: fresh memory, large enough.
        unsafe {
            arena.write(Arena {
                number,
                small: [null_mut(); CLASSES],
                spans: [Span { next: 0, end: 0 }; CLASSES],
                foreign: [Foreign {
                    blocks: null_mut(),
                    count: 0,
                    batch: null_mut(),
                }; CLASSES],
                returning: null_mut(),
                returning_units: 0,
                unasked_units: 0,
                runs: Runs::new(number),
            });
        }
        Some(arena)
    }

    /// Whether the memory at an offset was cut from this arena.
    #[inline(always)]
    pub fn owns(&self, offset: usize) -> bool {
        space::range_at(offset) == self.number || space::owner_at(offset) == Some(self.number)
    }

    /// A block from the free ones of a class: null if there is none.
    ///
    /// # Safety
    /// All methods: the caller is alone with the arena, and blocks given back are used no more.
    #[inline(always)]
    pub unsafe fn pop(&mut self, class: usize) -> *mut Block {
        let block = self.small[class];
        if !block.is_null() {
            // SAFETY: free blocks of ours.
            unsafe {
                self.small[class] = (*block).next;
                (*block).mark = 0;
            }
        }
        block
    }

    /// A block from what was freed of other arenas' blocks, or from the rest of the span.
    ///
    /// # Safety
    /// As [`Arena::pop`].
    pub unsafe fn pop_other(&mut self, class: usize) -> *mut Block {
        let foreign = &mut self.foreign[class];
        if foreign.blocks.is_null() && !foreign.batch.is_null() {
            foreign.blocks = std::mem::replace(&mut foreign.batch, null_mut());
            foreign.count = batch(class);
        }
        let block = foreign.blocks;
        if !block.is_null() {
            // SAFETY: free blocks that are ours until they are passed on.
            unsafe {
                foreign.blocks = (*block).next;
                (*block).mark = 0;
            }
            foreign.count -= 1;
            return block;
        }
        let span = &mut self.spans[class];
        if span.next < span.end {
            let block = span.next as *mut Block;
            span.next += class_bytes(class);
            return block;
        }
        null_mut()
    }

    /// Gives the class a fresh span to cut blocks from.
    ///
    /// # Safety
    /// As [`Arena::pop`]; the run has the length of a span and begins at a page.
    pub unsafe fn add_span(&mut self, class: usize, run: Run) {
        debug_assert!(run.address.is_multiple_of(PAGE));
        // SAFETY: the run is ours.
        unsafe { space::set_class(run.address, SPAN_BYTES, class) };
        let bytes = class_bytes(class);
        self.spans[class] = Span {
            next: run.address,
            end: run.address + SPAN_BYTES / bytes * bytes,
        };
    }

    pub const SPAN_UNITS: usize = SPAN_BYTES / UNIT;
    pub const SPAN_ALIGNED: usize = UNITS_PER_PAGE;

    /// Takes back a block that was cut from this arena.
    ///
    /// # Safety
    /// As [`Arena::pop`].
    #[inline(always)]
    pub unsafe fn push(&mut self, class: usize, block: *mut Block) {
        // SAFETY: nobody's block any more.
        unsafe {
            if (*block).mark == FREED {
                self.freed_already(class, block);
            }
            *block = Block {
                next: self.small[class],
                mark: FREED,
            };
        }
        self.small[class] = block;
    }

    /// Takes a block that was cut from another arena. When there are two batches of them, returns
    /// one to pass on.
    ///
    /// # Safety
    /// As [`Arena::pop`].
    pub unsafe fn push_foreign(&mut self, class: usize, block: *mut Block) -> Option<*mut Block> {
        // SAFETY: nobody's block any more.
        unsafe {
            if (*block).mark == FREED {
                self.freed_already(class, block);
            }
            let foreign = &mut self.foreign[class];
            *block = Block {
                next: foreign.blocks,
                mark: FREED,
            };
            foreign.blocks = block;
            foreign.count += 1;
            if foreign.count < batch(class) {
                return None;
            }
            foreign.count = 0;
            let batch = std::mem::replace(&mut foreign.blocks, null_mut());
            let previous = std::mem::replace(&mut foreign.batch, batch);
            (!previous.is_null()).then_some(previous)
        }
    }

    /// Takes over a batch of the pool: as blocks of its own, though they may be cut from anywhere.
    ///
    /// # Safety
    /// As [`Arena::pop`]; the arena has no block of the class.
    pub unsafe fn adopt(&mut self, class: usize, batch: *mut Block) {
        debug_assert!(self.small[class].is_null());
        // SAFETY: a batch belongs to whoever took it.
        unsafe { (*batch).mark = FREED };
        self.small[class] = batch;
    }

    /// Sets a foreign run aside. The caller passes on what was set aside when there is much of it.
    ///
    /// # Safety
    /// As [`Arena::pop`].
    pub unsafe fn set_aside(&mut self, address: usize, units: usize) {
        let run = address as *mut Returning;
        // SAFETY: nobody's run any more. Whoever looks at this entry at the same time learns that
        // it is not free.
        unsafe {
            space::set_entry(address, Entry::Returning(units));
            run.write(Returning {
                next: self.returning,
            });
        }
        self.returning = run;
        self.returning_units += units;
    }

    /// Uses a run again that was set aside, if one of the last has exactly the length.
    ///
    /// # Safety
    /// As [`Arena::pop`].
    pub unsafe fn reuse(&mut self, units: usize) -> Option<Run> {
        let mut link = &raw mut self.returning;
        for _ in 0..8 {
            // SAFETY: what was set aside is ours until it is passed on.
            unsafe {
                let run = *link;
                if run.is_null() {
                    return None;
                }
                if space::entry(run as usize) == Entry::Returning(units) {
                    *link = (*run).next;
                    self.returning_units -= units;
                    space::set_entry(run as usize, Entry::Used(units));
                    return Some(Run {
                        address: run as usize,
                        zero: false,
                    });
                }
                link = &raw mut (*run).next;
            }
        }
        None
    }

    /// A run from memory that was never used, of another range if need be. `None`: memory is short.
    ///
    /// # Safety
    /// As [`Arena::pop`]; `extend` hands out ranges in an order that is the same in replay, and
    /// `grow` says whether what it is given succeeded in the recording.
    pub unsafe fn take_fresh(
        &mut self,
        units: usize,
        aligned: usize,
        extend: impl FnOnce(usize, usize) -> Option<Fresh>,
        grow: impl FnOnce(&mut dyn FnMut() -> bool) -> bool,
    ) -> Option<Run> {
        if !self.runs.has_fresh(units, aligned) {
            self.runs
                .extend(extend(self.number, (units + aligned) * UNIT)?);
        }
        if !self.runs.reaches_fresh(units, aligned)
            && !grow(&mut || self.runs.reach_fresh(units, aligned))
        {
            return None;
        }
        // SAFETY: passed on.
        unsafe { self.runs.take_fresh(units, aligned) }
    }

    /// Makes a used run of this arena longer or shorter where it lies, if that is possible.
    ///
    /// # Safety
    /// As [`Arena::take_fresh`].
    pub unsafe fn resize(
        &mut self,
        address: usize,
        units: usize,
        wanted: usize,
        grow: impl FnOnce(&mut dyn FnMut() -> bool) -> bool,
    ) -> bool {
        // SAFETY: passed on.
        unsafe {
            if wanted <= units {
                self.runs.shorten(address, units, wanted);
                return true;
            }
            let missing = self.runs.missing(address, units, wanted);
            (missing == 0 || grow(&mut || self.runs.reach_fresh(missing, 1)))
                && self.runs.lengthen(address, units, wanted)
        }
    }

    /// Bytes in ranges, free runs and their number, free small blocks and their number. Walks all
    /// lists.
    pub fn statistics(&self) -> Statistics {
        let (free_units, free_runs) = self.runs.free_units();
        let mut statistics = Statistics {
            bytes: self.runs.used_to() % space::RANGE_BYTES,
            free_bytes: free_units * UNIT,
            free_runs,
            ..Statistics::default()
        };
        for class in 1..CLASSES {
            let mut count = (self.spans[class].end - self.spans[class].next) / class_bytes(class);
            let foreign = &self.foreign[class];
            for mut block in [self.small[class], foreign.blocks, foreign.batch] {
                while !block.is_null() {
                    count += 1;
                    // SAFETY: free blocks of ours.
                    block = unsafe { (*block).next };
                }
            }
            statistics.small_blocks += count;
            statistics.small_bytes += count * class_bytes(class);
        }
        statistics
    }

    #[cold]
    #[inline(never)]
    fn freed_already(&self, class: usize, wanted: *mut Block) {
        let foreign = &self.foreign[class];
        for mut block in [self.small[class], foreign.blocks, foreign.batch] {
            for _ in 0..SEARCH_MAX {
                if block.is_null() {
                    break;
                }
                if block == wanted {
                    super::fatal::fatal("free(): double free detected", wanted as usize);
                }
                // SAFETY: free blocks of ours.
                block = unsafe { (*block).next };
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    pub bytes: usize,
    pub free_bytes: usize,
    pub free_runs: usize,
    pub small_bytes: usize,
    pub small_blocks: usize,
}

/// The run that begins at an address that the program gave back, or the end of the program.
///
/// # Safety
/// The address lies in mapped memory of a heap, and not in a span.
pub unsafe fn used_run(address: usize) -> usize {
    // SAFETY: passed on.
    match unsafe { space::entry(address & !(UNIT - 1)) } {
        Entry::Used(units) if address.is_multiple_of(UNIT) => units,
        Entry::Free(_) | Entry::Returning(_) if address.is_multiple_of(UNIT) => {
            super::fatal::fatal("free(): double free detected", address)
        }
        _ => super::fatal::fatal("free(): invalid pointer", address),
    }
}

impl Statistics {
    pub fn add(&mut self, other: Statistics) {
        self.bytes += other.bytes;
        self.free_bytes += other.free_bytes;
        self.free_runs += other.free_runs;
        self.small_bytes += other.small_bytes;
        self.small_blocks += other.small_blocks;
    }
}
