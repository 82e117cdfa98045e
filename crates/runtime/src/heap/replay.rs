//! The replay heap: addresses that are the same in both runs, without a log.
//!
//! Each thread has an arena, so where a block lies depends on what this thread has allocated and
//! freed, and on nothing else. A block that another thread's arena cut is kept by the thread that
//! frees it. That would let a program grow without bound in which some threads allocate and others
//! free, so there are three places where memory changes hands. Each is an ordered acquisition, so
//! that replay sees the same, and each moves 64 KiB or more:
//!
//! | object | put | taken |
//! |---|---|---|
//! | pool of a class | a batch of blocks, by a thread that holds two batches of foreign ones | instead of a new span |
//! | an arena's inbox | its runs that another thread freed, when there are 64 KiB of them | before memory that was never used |
//! | arenas of ended threads | when a thread ends | when a thread begins |
//!
//! While the process has had one thread only, none of it happens.

use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use super::arena::{Arena, Block, Returning};
use super::runs::Run;
use super::sizes::{CLASSES, UNIT};
use super::space::{self, Entry, Fresh, REPLAY_ARENAS};

/// Foreign runs of so much are passed on together.
const RETURN_UNITS: usize = (64 << 10) / UNIT;
/// So much memory that was never used is taken before the inbox is looked at again, once it was
/// found empty.
const UNASKED_UNITS: usize = (256 << 10) / UNIT;
/// The memory of foreign runs of this length goes back to the kernel at once: nobody knows when
/// their arena's thread looks.
const DISCARD_UNITS: usize = (1 << 20) / UNIT;

/// What threads share and acquire in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    Pool(usize),
    Inbox(usize),
    /// The arenas that no living thread has.
    Arenas,
    /// The arena of threads that have given theirs up, or found none.
    Commons,
    /// Ranges for arenas that are full.
    Ranges,
}

impl Object {
    /// A number that is no address and no other module's key.
    pub fn key(self) -> u64 {
        let (kind, number) = match self {
            Object::Pool(class) => (1, class),
            Object::Inbox(arena) => (2, arena),
            Object::Arenas => (3, 0),
            Object::Commons => (4, 0),
            Object::Ranges => (5, 0),
        };
        0x4845_4150 << 32 | kind << 16 | number as u64
    }
}

/// Who makes acquisitions happen in the recorded order, one thread at a time for each object. The
/// steps are short; the only ones that have others inside are those of [`Object::Commons`].
pub trait Turns {
    fn acquire<R>(&mut self, object: Object, step: impl FnOnce(&mut Self) -> R) -> R;

    /// Whether the thread is where it can make an acquisition that it can also do without.
    fn may_ask(&self) -> bool {
        true
    }

    /// Asks the kernel for memory, and says whether it gave it in the recording.
    fn grow(&mut self, ask: &mut dyn FnMut() -> bool) -> bool {
        ask()
    }

    /// As `acquire` once there can be others.
    fn share<R>(&mut self, object: Object, step: impl FnOnce(&mut Self) -> R) -> R {
        if are_several() {
            self.acquire(object, step)
        } else {
            step(self)
        }
    }
}

/// Whether the process ever had a second thread. Set by the first before it makes the second, so
/// that every thread sees the same at the same point of its life.
static SEVERAL: AtomicBool = AtomicBool::new(false);

pub fn set_several(several: bool) {
    SEVERAL.store(several, Ordering::Relaxed);
}

pub fn are_several() -> bool {
    SEVERAL.load(Ordering::Relaxed)
}

/// Each part is touched within steps of its object only.
struct Shared {
    /// By class: the newest batch. The mark of its first block is the next batch.
    pools: [*mut Block; CLASSES],
    /// By arena: runs on their way back.
    inboxes: [*mut Returning; REPLAY_ARENAS],
    arenas: Arenas,
    commons: *mut Arena,
}

/// Arenas that no living thread has.
struct Arenas {
    /// Those of ended threads, the latest last.
    idle: [u16; REPLAY_ARENAS],
    idle_count: usize,
    next: usize,
    /// In a forked child: up to here there may be arenas that the parent's other threads made
    /// while it forked.
    stale_until: usize,
}

struct SharedCell(UnsafeCell<Shared>);

// SAFETY: see `Shared`.
unsafe impl Sync for SharedCell {}

static SHARED: SharedCell = SharedCell(UnsafeCell::new(Shared {
    pools: [null_mut(); CLASSES],
    inboxes: [null_mut(); REPLAY_ARENAS],
    arenas: Arenas {
        idle: [0; REPLAY_ARENAS],
        idle_count: 0,
        next: 0,
        stale_until: 0,
    },
    commons: null_mut(),
}));

/// A part of what is shared.
macro_rules! shared {
    ($($part:tt)+) => {{
        let shared = SHARED.0.get();
        // SAFETY: within a step of the part's object, and the borrow ends before the step does.
        #[allow(unused_unsafe)]
        let part = unsafe { &mut (*shared).$($part)+ };
        part
    }};
}

/// An arena for a thread that begins to use memory. `None`: there are too many threads, or memory
/// is short.
pub fn attach(turns: &mut impl Turns) -> Option<*mut Arena> {
    turns.share(Object::Arenas, |_| {
        let arenas = shared!(arenas);
        if arenas.idle_count > 0 {
            arenas.idle_count -= 1;
            return Some(space::arena_at(usize::from(arenas.idle[arenas.idle_count])).cast());
        }
        let number = arenas.next;
        if number == REPLAY_ARENAS {
            return None;
        }
        arenas.next += 1;
        if number < arenas.stale_until {
            space::forget_arena(number);
        }
        Arena::create(number)
    })
}

/// The thread of this arena ends; the next that begins may have it.
pub fn detach(turns: &mut impl Turns, arena: *mut Arena) {
    turns.share(Object::Arenas, |_| {
        let arenas = shared!(arenas);
        // SAFETY: the arena's thread is the caller.
        arenas.idle[arenas.idle_count] = unsafe { (*arena).number } as u16;
        arenas.idle_count += 1;
    });
}

/// Runs `inner` with the arena that threads share which have none of their own.
pub fn in_commons<T: Turns, R>(
    turns: &mut T,
    inner: impl FnOnce(Option<&mut Arena>, &mut T) -> R,
) -> R {
    turns.share(Object::Commons, |turns| {
        if shared!(commons).is_null()
            && let Some(arena) = attach(turns)
        {
            *shared!(commons) = arena;
        }
        // SAFETY: the step has the arena to itself.
        inner(unsafe { shared!(commons).as_mut() }, turns)
    })
}

/// A block of at most 1 KiB. Null when memory is short.
///
/// # Safety
/// All functions: the caller is alone with the arena.
#[inline]
pub unsafe fn allocate_small(arena: &mut Arena, turns: &mut impl Turns, class: usize) -> *mut u8 {
    // SAFETY: passed on.
    unsafe {
        let block = arena.pop(class);
        if !block.is_null() {
            return block.cast();
        }
        let block = arena.pop_other(class);
        if !block.is_null() {
            return block.cast();
        }
        refill(arena, turns, class).cast()
    }
}

#[cold]
#[inline(never)]
unsafe fn refill(arena: &mut Arena, turns: &mut impl Turns, class: usize) -> *mut Block {
    // SAFETY: passed on.
    let block = unsafe {
        if turns.may_ask() {
            take_from_pool(arena, turns, class)
        } else {
            null_mut()
        }
    };
    if !block.is_null() {
        return block;
    }
    // SAFETY: passed on.
    unsafe {
        let Some(run) = take_run(arena, turns, Arena::SPAN_UNITS, Arena::SPAN_ALIGNED) else {
            return null_mut();
        };
        arena.add_span(class, run);
        arena.pop_other(class)
    }
}

unsafe fn take_from_pool(arena: &mut Arena, turns: &mut impl Turns, class: usize) -> *mut Block {
    let batch = turns.share(Object::Pool(class), |_| {
        let pool = shared!(pools[class]);
        let batch = *pool;
        if !batch.is_null() {
            // SAFETY: batches of the pool belong to whoever has the turn.
            *pool = unsafe { (*batch).mark } as *mut Block;
        }
        batch
    });
    if batch.is_null() {
        return null_mut();
    }
    // SAFETY: just taken; the class has no block.
    unsafe {
        arena.adopt(class, batch);
        arena.pop(class)
    }
}

/// A run of units at a multiple of `aligned` units.
///
/// # Safety
/// As [`allocate_small`].
pub unsafe fn take_run(
    arena: &mut Arena,
    turns: &mut impl Turns,
    units: usize,
    aligned: usize,
) -> Option<Run> {
    // SAFETY: passed on.
    unsafe {
        if let Some(run) = arena.runs.take_free(units, aligned) {
            return Some(run);
        }
        if aligned == 1
            && !arena.returning.is_null()
            && let Some(run) = arena.reuse(units)
        {
            return Some(run);
        }
        if arena.unasked_units == 0 && turns.may_ask() {
            if empty_inbox(arena, turns) {
                if let Some(run) = arena.runs.take_free(units, aligned) {
                    return Some(run);
                }
            } else {
                arena.unasked_units = UNASKED_UNITS;
            }
        }
        arena.unasked_units = arena.unasked_units.saturating_sub(units);
        let turns = std::cell::RefCell::new(turns);
        arena.take_fresh(
            units,
            aligned,
            |owner, bytes| {
                turns
                    .borrow_mut()
                    .share(Object::Ranges, |_| Fresh::extension(owner, bytes))
            },
            |ask| turns.borrow_mut().grow(ask),
        )
    }
}

unsafe fn empty_inbox(arena: &mut Arena, turns: &mut impl Turns) -> bool {
    let number = arena.number;
    let mut run = turns.share(Object::Inbox(number), |_| {
        std::mem::replace(shared!(inboxes[number]), null_mut())
    });
    let any = !run.is_null();
    while !run.is_null() {
        // SAFETY: runs of ours that were given back.
        unsafe {
            let next = (*run).next;
            let Entry::Returning(units) = space::entry(run as usize) else {
                super::fatal::fatal("the heap is damaged", run as usize)
            };
            arena.runs.give(run as usize, units);
            run = next;
        }
    }
    any
}

/// How far the numbers of arenas have come: to be asked in order, before a fork.
pub fn arenas_so_far(turns: &mut impl Turns) -> usize {
    turns.share(Object::Arenas, |_| shared!(arenas).next)
}

/// In a forked child that has one thread, while the parent had several: what the others had is
/// unknown, and nobody's. `arenas` is what [`arenas_so_far`] said.
pub fn after_fork_in_child(arenas: usize) {
    if !are_several() {
        return;
    }
    set_several(false);
    *shared!(pools) = [null_mut(); CLASSES];
    *shared!(inboxes) = [null_mut(); REPLAY_ARENAS];
    *shared!(commons) = null_mut();
    let shared = shared!(arenas);
    shared.idle_count = 0;
    shared.stale_until = shared.stale_until.max(shared.next);
    shared.next = arenas;
}

/// As if nothing had ever been allocated. The mappings are the caller's matter.
#[cfg(test)]
pub fn forget_everything() {
    *shared!(pools) = [null_mut(); CLASSES];
    *shared!(inboxes) = [null_mut(); REPLAY_ARENAS];
    *shared!(commons) = null_mut();
    *shared!(arenas) = Arenas {
        idle: [0; REPLAY_ARENAS],
        idle_count: 0,
        next: 0,
        stale_until: 0,
    };
    set_several(false);
}

/// Takes back a small block of any arena of the replay heap.
///
/// # Safety
/// As [`allocate_small`], and the block is used no more.
pub unsafe fn free_small(
    arena: &mut Arena,
    turns: &mut impl Turns,
    class: usize,
    block: *mut Block,
) {
    // SAFETY: passed on.
    unsafe {
        if arena.owns(block as usize - space::BASE) {
            return arena.push(class, block);
        }
        if let Some(batch) = arena.push_foreign(class, block) {
            turns.share(Object::Pool(class), |_| {
                let pool = shared!(pools[class]);
                (*batch).mark = *pool as usize;
                *pool = batch;
            });
        }
    }
}

/// Takes back a run of any arena of the replay heap.
///
/// # Safety
/// As [`free_small`].
pub unsafe fn free_run(arena: &mut Arena, turns: &mut impl Turns, address: usize, units: usize) {
    // SAFETY: passed on.
    unsafe {
        if arena.owns(address - space::BASE) {
            return arena.runs.give(address, units);
        }
        if units >= DISCARD_UNITS {
            space::discard(
                address + size_of::<Returning>(),
                units * UNIT - size_of::<Returning>(),
            );
        }
        arena.set_aside(address, units);
        if arena.returning_units >= RETURN_UNITS {
            pass_on(arena, turns);
        }
    }
}

/// Sends the runs that were set aside to the arenas they were cut from.
unsafe fn pass_on(arena: &mut Arena, turns: &mut impl Turns) {
    let mut rest = std::mem::replace(&mut arena.returning, null_mut());
    arena.returning_units = 0;
    while !rest.is_null() {
        let Some(owner) = space::owner_at(rest as usize - space::BASE) else {
            super::fatal::fatal("the heap is damaged", rest as usize)
        };
        let (mut first, mut last) = (null_mut::<Returning>(), null_mut::<Returning>());
        let (mut other, mut run) = (null_mut::<Returning>(), rest);
        while !run.is_null() {
            // SAFETY: what was set aside is ours.
            unsafe {
                let next = (*run).next;
                if space::owner_at(run as usize - space::BASE) == Some(owner) {
                    (*run).next = first;
                    first = run;
                    if last.is_null() {
                        last = run;
                    }
                } else {
                    (*run).next = other;
                    other = run;
                }
                run = next;
            }
        }
        rest = other;
        turns.share(Object::Inbox(owner), |_| {
            let inbox = shared!(inboxes[owner]);
            // SAFETY: the last of our list.
            unsafe { (*last).next = *inbox };
            *inbox = first;
        });
    }
}
