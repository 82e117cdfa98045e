//! The memory of the program, as its threads use it: which arena a thread has, and when threads
//! take turns.

use std::ptr::null_mut;

use crate::heap::arena::{self, Arena, Block};
use crate::heap::lock::Lock;
use crate::heap::replay::{self, Object, Turns};
use crate::heap::{own, sizes, space, system};
use crate::mechanism::divergence;
use crate::mechanism::sync::{self, Outcome, Step};
use crate::state::mode::{Mode, mode};
use crate::state::thread::{Current, REPLAY};

/// The process is about to have a second thread. Called by the first one before it creates it, in
/// both runs, in any space.
pub fn second_thread() {
    replay::set_several(true);
}

/// The thread begins: gives it its arena. Otherwise its first use of memory would, wherever that
/// is.
pub fn thread_starting(thread: &mut Current) {
    if thread.heap.arena.is_null() && !thread.heap.without {
        attach(thread);
    }
}

/// The thread will end: threads yet to come may have its arena. It may still free and allocate
/// afterwards, more slowly, so this is best called as late as possible. In both runs, at the same
/// point of the thread's log and before its end, in any space.
pub fn thread_exiting(thread: &mut Current) {
    let arena = std::mem::replace(&mut thread.heap.arena, null_mut());
    thread.heap.without = true;
    if !arena.is_null() {
        replay::detach(thread, arena);
    }
}

/// Before `fork`, in both runs: takes part in the order of threads, and then locks what must be
/// whole in the child. Nothing may use the system heap until one of the two functions that end this
/// was called.
pub fn before_fork(thread: Option<&mut Current>) {
    if let Some(thread) = thread {
        thread.heap.arenas_at_fork = replay::arenas_so_far(thread);
    }
    system::lock_all();
    own::lock_for_fork();
}

/// After `fork` in the parent, or when there was none.
pub fn after_fork_in_parent() {
    own::unlock_after_fork();
    system::unlock_all();
}

/// After `fork` in the child, whose only thread is the calling one.
pub fn after_fork_in_child(thread: Option<&mut Current>) {
    own::reset_after_fork();
    system::reset_all();
    for lock in &TURNS {
        lock.reset();
    }
    if let Some(thread) = thread {
        replay::after_fork_in_child(thread.heap.arenas_at_fork);
    }
}

/// A block of the replay heap for a thread that is in system space, inside an event: R2's shadow of
/// what a callee allocated. Null when memory is short.
pub fn allocate_for_replay(thread: &mut Current, bytes: usize) -> *mut u8 {
    if bytes > sizes::SIZE_MAX {
        return null_mut();
    }
    thread.heap.inside_event = true;
    let (block, _) = allocate(thread, bytes);
    thread.heap.inside_event = false;
    block
}

/// Whether an address lies in the replay heap.
pub fn is_of_replay(block: *const u8) -> bool {
    space::offset(block as usize).is_some_and(|offset| offset < space::REPLAY_BYTES)
}

#[cold]
fn attach(thread: &mut Current) -> Option<*mut Arena> {
    let arena = replay::attach(thread);
    thread.heap.arena = arena.unwrap_or(null_mut());
    thread.heap.without = arena.is_none();
    arena
}

/// Runs `inner` with the arena that the thread uses now.
#[inline]
pub fn with_arena<R>(
    thread: &mut Current,
    inner: impl FnOnce(Option<&mut Arena>, &mut Current) -> R,
) -> R {
    let arena = thread.heap.arena;
    if !arena.is_null() {
        // SAFETY: an arena lives for ever, and this one is the thread's.
        return inner(unsafe { arena.as_mut() }, thread);
    }
    without_arena(thread, inner)
}

#[cold]
fn without_arena<R>(
    thread: &mut Current,
    inner: impl FnOnce(Option<&mut Arena>, &mut Current) -> R,
) -> R {
    if !thread.heap.without
        && let Some(arena) = attach(thread)
    {
        // SAFETY: as above.
        return inner(unsafe { arena.as_mut() }, thread);
    }
    replay::in_commons(thread, inner)
}

/// A block, and whether it is known to be zero. Null when memory is short.
pub fn allocate(thread: &mut Current, bytes: usize) -> (*mut u8, bool) {
    if bytes <= sizes::SMALL_MAX {
        (allocate_small(thread, sizes::class_of(bytes)), false)
    } else {
        allocate_run(thread, sizes::units_of(bytes), 1)
    }
}

pub fn allocate_small(thread: &mut Current, class: usize) -> *mut u8 {
    with_arena(thread, |arena, turns| match arena {
        // SAFETY: the arena is the caller's.
        Some(arena) => unsafe { replay::allocate_small(arena, turns, class) },
        None => null_mut(),
    })
}

pub fn allocate_run(thread: &mut Current, units: usize, aligned: usize) -> (*mut u8, bool) {
    with_arena(thread, |arena, turns| {
        // SAFETY: the arena is the caller's.
        arena.and_then(|arena| unsafe { replay::take_run(arena, turns, units, aligned) })
    })
    .map_or((null_mut(), false), |run| {
        (run.address as *mut u8, run.zero)
    })
}

/// Takes back a block of the replay heap in replay space.
///
/// # Safety
/// It was given out, and nobody uses it.
pub unsafe fn free(thread: &mut Current, address: usize) {
    with_arena(thread, |arena, turns| {
        let Some(arena) = arena else { return };
        // SAFETY: passed on; the arena is the caller's.
        unsafe {
            let class = space::class_at(address - space::BASE);
            if class != 0 {
                replay::free_small(arena, turns, class, address as *mut Block);
            } else {
                replay::free_run(arena, turns, address, arena::used_run(address));
            }
        }
    });
}

/// Makes a run of the replay heap longer or shorter where it lies, if that is possible.
///
/// # Safety
/// As [`free`], but it stays in use.
pub unsafe fn resize(thread: &mut Current, address: usize, units: usize, wanted: usize) -> bool {
    // Of threads without an arena nobody knows who cut it.
    // SAFETY: the thread's arena lives for ever.
    let Some(arena) = (unsafe { thread.heap.arena.as_mut() }) else {
        return false;
    };
    if !arena.owns(address - space::BASE) {
        return false;
    }
    // SAFETY: passed on.
    unsafe { arena.resize(address, units, wanted, |ask| thread.grow(ask)) }
}

/// Locks for the steps of what threads share: one for each pool, some for the inboxes, one for each
/// of the others.
static TURNS: [Lock<()>; 64] = [const { Lock::new(()) }; 64];

fn lock_of(object: Object) -> &'static Lock<()> {
    &TURNS[match object {
        Object::Pool(class) => class,
        Object::Arenas => sizes::CLASSES,
        Object::Commons => sizes::CLASSES + 1,
        Object::Ranges => sizes::CLASSES + 2,
        Object::Inbox(arena) => {
            const FIRST: usize = sizes::CLASSES + 3;
            FIRST + arena % (64 - FIRST)
        }
    }]
}

impl Turns for Current<'_> {
    fn may_ask(&self) -> bool {
        !self.heap.inside_event
    }

    // Whether the kernel has memory depends on the limits of the moment. A failure is logged, with
    // the number of the attempt: what succeeds is not.
    #[cold]
    fn grow(&mut self, ask: &mut dyn FnMut() -> bool) -> bool {
        self.heap.asked += 1;
        let short = -((self.heap.asked << 8 & 0x7fff_ff00) as i32 | libc::ENOMEM);
        let step = Step {
            function: "malloc",
            object: 0,
            is_recorded_after: false,
        };
        if mode() == Mode::Replay && sync::failure_if(self, step, |code| code == short).is_some() {
            return false;
        }
        let grown = ask();
        match mode() {
            _ if grown || self.heap.inside_event => {}
            Mode::Record => {
                let space = self.selector.load(std::sync::atomic::Ordering::Relaxed);
                self.enter_system();
                sync::record_failure(self, short);
                if space == REPLAY {
                    self.enter_replay();
                }
            }
            Mode::Replay => divergence::unusable(
                format_args!("the program needs more memory than this machine gives it"),
                "Replay with as much memory, and as large limits (ulimit -v), as there were when it was recorded.",
            ),
            Mode::Off => {}
        }
        grown
    }

    #[cold]
    fn acquire<R>(&mut self, object: Object, step: impl FnOnce(&mut Self) -> R) -> R {
        let space = self.selector.load(std::sync::atomic::Ordering::Relaxed);
        self.enter_system();
        let lock = lock_of(object);
        let result = match mode() {
            Mode::Off => lock.with(|()| step(self)),
            Mode::Record => lock.with(|()| {
                sync::record_exclusive(self, object.key());
                step(self)
            }),
            Mode::Replay => {
                let step_awaited = Step {
                    function: "malloc",
                    object: object.key() as usize,
                    is_recorded_after: true,
                };
                let outcome = sync::await_turn(self, step_awaited);
                if let Outcome::Fails(_) = outcome {
                    sync::unexpected(self, step_awaited);
                }
                lock.with(|()| {
                    match outcome {
                        Outcome::Acquires => sync::publish(self),
                        _ if mode() == Mode::Record => sync::record_exclusive(self, object.key()),
                        _ => {}
                    }
                    step(self)
                })
            }
        };
        if space == REPLAY {
            self.enter_replay();
        }
        result
    }
}
