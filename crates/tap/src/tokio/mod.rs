//! Programs in Rust on tokio, whose tasks run now in this thread and now in that one.
//!
//! ```text
//!   tokio        runs, wakes, gives back a task
//!                 │ by the table of its kind, which is changed
//!   poll          ▼ takes up what the task works on ◀──────────────┐
//!                the function that was in the table                works
//!                 │ a request is read or answered: it is saved ────┘
//! ```
//!
//! Tokio has a table of functions for each kind of task ([`kinds`]), by which all tasks are run,
//! woken and given back. What [`turns`] knows of a thread is taken up before a task runs, and
//! saved as it changes ([`works`]). So a task that has read a request works on it until it reads
//! another, wherever it runs.
//!
//! A task works for the request on behalf of which it was made. A task is memory of which the size
//! and the place are rare: so it is seen where it is allocated ([`allocated`]).
//!
//! What code draws or reads the clock is found out by the stack ([`frames`]).
//!
//! Drivers as tokio-postgres have a task of their own for each connection, which writes what others
//! hand to it: such a one works for whom it was woken by last ([`wakes`]), or who is about to hand
//! it something ([`clients`]).
//!
//! What a thread's generator gives to code of a request is drawn for that ([`generators`]).

mod changes;
mod clients;
mod frames;
mod generators;
mod kinds;
mod steps;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::descriptors::Entry;
use crate::vectors::Vectors;
use crate::{process, turns, works};
use frames::Program;
use kinds::{Constants, Ours};

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
    // SAFETY: as the caller promises.
    let Some(constants) = (unsafe { Constants::of(vectors) }) else {
        return;
    };
    let tables = constants.tables();
    if tables.is_empty() || works::begin().is_none() {
        return;
    }
    let program = Program::of(vectors.bias().unwrap_or(0), constants.code.clone());
    // The first functions of each table.
    let ours: [Ours; 3] = [poll as *const (), wake as *const (), dealloc as *const ()];
    let each = |table| (table..).step_by(size_of::<usize>()).zip(ours);
    let mut changes: Vec<_> = tables.into_iter().flat_map(each).collect();
    changes.extend(wakers(&constants, &program));
    // SAFETY: as the caller promises; tokio calls all of them with a task.
    if unsafe { constants.replace(&changes) } {
        // SAFETY: as the caller promises.
        unsafe {
            clients::begin(&program);
            generators::begin(&program);
        }
        frames::begin(program);
        SEEN.store(true, Ordering::Relaxed);
        // What makes them has been compiled into the program, each in its own way.
        if let Some(board) = process::board() {
            board.keep_pools();
        }
    }
}

/// The two functions by which wakers wake, also a task that runs at that moment. A stripped program
/// does not say where they are.
fn wakers(constants: &Constants, program: &Program) -> Vec<(usize, Ours)> {
    let function = |name: &[u8]| program.function(&[b"5tokio", name]);
    let by_value = function(b"4task5waker11wake_by_val");
    let by_reference = function(b"4task5waker11wake_by_ref");
    let both = by_value.zip(by_reference);
    match both.and_then(|(value, reference)| constants.pair([value, reference])) {
        None => Vec::new(),
        Some(at) => [at, at + size_of::<usize>()]
            .map(|place| (place, wake as *const ()))
            .to_vec(),
    }
}

pub use frames::caller;

/// The task that runs in the thread; 0: none does.
pub fn running() -> usize {
    RUNNING.with(Cell::get)
}

/// The thread has read of a request.
pub fn has_read() {
    if running() != 0 {
        works::reads(running());
        keep();
    }
}

/// The thread answers a request.
pub fn answers() {
    if running() != 0 {
        works::answers(running());
        keep();
    }
}

/// What the thread works on is the task's, wherever that goes on.
fn keep() {
    TAKEN_UP.with(|before| before.set(works::save(running(), before.get())));
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
    // Another task may run it within itself, or the thread, which reads requests by itself.
    let (outer, works_on) = (RUNNING.replace(task), turns::packed());
    let taken_up = TAKEN_UP.replace(works::take_up(task));
    // SAFETY: what tokio would have called.
    unsafe { whole(task) };
    // From here on it may run elsewhere, or there is none any more.
    turns::unpack(works_on);
    clients::stops();
    TAKEN_UP.set(taken_up);
    RUNNING.set(outer);
}

/// The request for which something is handed to a task: that of the task that runs here, or of the
/// thread; `None`: neither has one that is known.
fn in_hand() -> Option<u64> {
    match running() {
        0 => Some(turns::current()).filter(|&request| request != 0),
        _ => Some(turns::in_hand()),
    }
}

/// A task is woken: it is to run soon, or once more.
unsafe extern "C-unwind" fn wake(task: usize, whole: Function) {
    wakes(task);
    // SAFETY: what tokio would have called.
    unsafe { whole(task) };
}

/// One that has nothing to do but to write to a connection what others hand to it has been handed
/// something by who runs here. Or one that serves a connection's requests is told that another has
/// been read.
fn wakes(task: usize) {
    let Some(request) = in_hand().filter(|_| !works::has_read(task)) else {
        return;
    };
    if works::is_served_by(task, running()) {
        return works::tell(task, request);
    }
    let is_at_work = works::is_at_work(task);
    let drives = match works::connection(task) {
        Some(entry) => entry.is_driven_by(task),
        // It may be about to, if it was not made for a request.
        None => !is_at_work,
    };
    if drives {
        clients::wakes(task);
        works::tell(task, request);
        if !is_at_work {
            works::serves(task, running());
        }
    }
}

/// Nobody has the task any more.
unsafe extern "C-unwind" fn dealloc(task: usize, whole: Function) {
    works::has_ended(task);
    // SAFETY: what tokio would have called.
    unsafe { whole(task) };
}

/// Memory was allocated, which may be for a task.
pub fn allocated(at: usize, alignment: usize) {
    if alignment == ALIGNMENT && SEEN.load(Ordering::Relaxed) {
        works::begins(at, running(), turns::in_hand(), 0);
    }
}
