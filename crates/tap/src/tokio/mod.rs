//! Programs in Rust on tokio, whose tasks run now in this thread and now in that one.
//!
//! ```text
//!   a task of the program       poll, wake, drop
//!                                │ by the table of its kind, which is changed
//!   entries                      ▼
//!   works     ◀── taken up ──── the function that was in the table ──── put down ──▶ works
//! ```
//!
//! Tokio has a table of functions for each kind of task ([`kinds`]), by which all tasks are run,
//! woken and given back. What [`turns`] knows of a thread is taken up before a task runs and put
//! down behind it ([`works`]). So a task that has read a request works on it until it reads
//! another, wherever it runs.
//!
//! A task works for the request on behalf of which it was made. A task is memory of which the size
//! and the place are rare: so it is seen where it is allocated ([`allocated`]).
//!
//! What code draws or reads the clock is found out by the stack ([`frames`]).
//!
//! Drivers as tokio-postgres have a task of their own for each connection, which writes what others
//! hand to it: such a one works for whom it was woken by last ([`wakes`]).

mod frames;
mod kinds;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::descriptors::Entry;
use crate::vectors::Vectors;
use crate::{turns, works};

/// What tasks are aligned to, so that no two share a line of a cache or its neighbour.
const ALIGNMENT: usize = 128;

/// There are tasks.
static SEEN: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The task that runs in the thread; 0: none does.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
    /// What it was taken up with.
    static TAKEN_UP: Cell<u64> = const { Cell::new(0) };
}

/// A function of a table: what is done with a task.
type Function = unsafe extern "C-unwind" fn(usize);

/// If the program is on tokio, its tasks are seen from here on.
///
/// # Safety
/// The program has not begun. These are what the kernel gave it.
pub unsafe fn begin(vectors: &Vectors) {
    let entries = kinds::Entries {
        poll: poll as *const (),
        schedule: schedule as *const (),
        dealloc: dealloc as *const (),
    };
    // SAFETY: as the caller promises.
    if let Some(code) = unsafe { kinds::change(vectors, &entries) } {
        frames::begin(vectors.bias().unwrap_or(0), code);
        SEEN.store(true, Ordering::Relaxed);
    }
}

pub use frames::caller;

/// The task that runs in the thread; 0: none does.
pub fn running() -> usize {
    RUNNING.with(Cell::get)
}

/// The thread has read a request.
pub fn has_read() {
    if running() != 0 {
        works::reads(running());
    }
}

/// The thread writes to a connection of our own.
pub fn writes_to(entry: &'static Entry) {
    let task = running();
    entry.write_by(task);
    if task == 0 {
        return;
    }
    works::writes_to(task, entry);
    if entry.is_driven_by(task)
        && let Some(work) = works::told(task, TAKEN_UP.with(Cell::get))
    {
        turns::unpack(work);
    }
}

/// A task runs, until it waits. `whole` does that.
unsafe extern "C-unwind" fn poll(task: usize, whole: Function) {
    let outer = RUNNING.replace(task);
    let outers = (outer != 0).then(|| (turns::packed(), TAKEN_UP.with(Cell::get)));
    let before = works::run(task);
    TAKEN_UP.with(|taken_up| taken_up.set(before));
    // SAFETY: what tokio would have called.
    unsafe { whole(task) };
    // It may have ended, and is nobody's then.
    match RUNNING.replace(outer) {
        0 => turns::ends(),
        _ => works::stop(task, before),
    }
    if let Some((work, taken_up)) = outers {
        turns::unpack(work);
        TAKEN_UP.with(|before| before.set(taken_up));
    }
}

/// A task is woken: it is to run soon.
unsafe extern "C-unwind" fn schedule(task: usize, whole: Function) {
    wakes(task);
    // SAFETY: what tokio would have called.
    unsafe { whole(task) };
}

/// One that has nothing to do but to write to a connection what others hand to it has been handed
/// something by the task that runs here.
fn wakes(task: usize) {
    if running() == 0 || works::has_read(task) {
        return;
    }
    let drives = match works::connection(task) {
        Some(entry) => entry.is_driven_by(task),
        // It may be about to, if it was not made for a request.
        None => !works::is_busy(task),
    };
    if drives {
        works::tell(task, turns::in_hand());
    }
}

/// Nobody has the task any more.
unsafe extern "C-unwind" fn dealloc(task: usize, whole: Function) {
    works::has_ended(task);
    if running() == task {
        RUNNING.with(|running| running.set(0));
    }
    // SAFETY: what tokio would have called.
    unsafe { whole(task) };
}

/// Memory was allocated, which may be for a task.
pub fn allocated(at: usize, alignment: usize) {
    if alignment == ALIGNMENT && SEEN.load(Ordering::Relaxed) {
        works::begins(at, running(), turns::in_hand(), 0);
    }
}
