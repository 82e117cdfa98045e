//! Acquisitions: what a thread knows about its own and those of others.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use hindcast_execlog::config::{Order, Waiting};

use super::recording;

/// What the recorder and the replayer of acquisitions keep for a thread.
pub struct ThreadSync {
    pub order: Order,
    /// The order is [`Order::Edge`], asked at every acquisition.
    pub is_edge: bool,
    /// What locking a mutex may do without further questions.
    pub quick: Quick,
    /// The high part of the thread's owner words.
    pub tag: u64,
    /// Recording: the last acquisitions of other threads that are known to lie before this
    /// thread's next one.
    pub known: Known,
    /// Recording: the last moment that lies before this thread's next acquisition.
    pub moment: u64,
    /// Recording: the thread's next acquisition comes after all that there have been.
    pub after_all: bool,
    /// What `pthread_once` is about to run.
    pub once: Current,
    /// Replay: how waiting went so far.
    pub waits: History,
}

impl ThreadSync {
    pub fn new(number: u32) -> Self {
        let order = recording::config().order();
        ThreadSync {
            order,
            is_edge: order == Order::Edge,
            quick: Quick::Alone,
            tag: pack(number, 0),
            known: Known::new(),
            moment: if has_succeeded() { UNKNOWN } else { 0 },
            after_all: has_succeeded(),
            once: Current::new(),
            waits: History::new(),
        }
    }
}

/// Threads beyond these have no place at a moment, or where an acquisition comes after all.
pub const CLOCK_MAX: usize = 256;

/// In place of a moment: none that there has been.
const UNKNOWN: u64 = u64::MAX;

static SUCCEEDED: AtomicBool = AtomicBool::new(false);

/// Objects do not tell of all that was acquired: this process has replayed another, and is recorded
/// in its place.
fn has_succeeded() -> bool {
    SUCCEEDED.load(Ordering::Relaxed)
}

/// Before the first acquisition of a process that is recorded in the place of another. Replay keeps
/// no owners, so what each thread acquires first comes after all that was acquired until then.
pub fn succeed(thread: &mut ThreadSync) {
    SUCCEEDED.store(true, Ordering::Relaxed);
    thread.moment = UNKNOWN;
    thread.after_all = true;
}

/// What a thread's quick path may do. Set when the thread begins, and for the first one when the
/// second is created.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Quick {
    /// Nothing: each mutex takes the long way.
    Nothing,
    /// The process has one thread so far: an ordinary mutex is nobody else's business.
    Alone,
    /// Record the order of edges.
    Edge,
    /// Record the relaxed total order.
    Relaxed,
    Replay,
}

/// Owner words: `thread << 48 | acquisition`. Acquisitions count from one, so zero is nobody.
pub const THREAD_SHIFT: u32 = 48;
const NUMBER_MASK: u64 = (1 << THREAD_SHIFT) - 1;

#[inline(always)]
pub fn pack(thread: u32, acquisition: u64) -> u64 {
    u64::from(thread) << THREAD_SHIFT | (acquisition & NUMBER_MASK)
}

#[inline(always)]
pub fn unpack(word: u64) -> (u32, u64) {
    ((word >> THREAD_SHIFT) as u32, word & NUMBER_MASK)
}

/// Whether two owner words name the same thread. Nobody counts as the first thread, which is right
/// for edges: neither waits.
#[inline(always)]
pub fn is_same_owner(one: u64, other: u64) -> bool {
    (one ^ other) >> THREAD_SHIFT == 0
}

/// For other threads, an acquisition that certainly lies before this thread's next one: it was
/// waited for already. A small memory that forgets; forgetting costs an edge that was not needed.
pub struct Known {
    words: [u64; 32],
    /// Relaxed order: the last clock that was logged, by thread.
    pub clock: Vec<u64>,
}

impl Known {
    pub const fn new() -> Self {
        Known {
            words: [0; 32],
            clock: Vec::new(),
        }
    }

    /// Whether the acquisition need not be waited for. Remembers it if it must.
    #[inline]
    pub fn covers(&mut self, word: u64) -> bool {
        let (thread, acquisition) = unpack(word);
        let known = &mut self.words[thread as usize % 32];
        let (known_thread, known_acquisition) = unpack(*known);
        if known_thread == thread && known_acquisition >= acquisition {
            return true;
        }
        *known = word;
        false
    }

    /// The thread's acquisitions up to this one lie before all that follows: it created this
    /// thread, or was joined.
    pub fn learn(&mut self, thread: u32, acquisition: u64) {
        if acquisition != 0 {
            self.covers(pack(thread, acquisition));
        }
    }
}

pub type Routine = extern "C-unwind" fn();

/// What the innermost `pthread_once` of a thread is about to run. Part of the thread's own state,
/// not a thread-local variable of Rust: those need libc.
pub struct Current {
    pub routine: Cell<Option<(Routine, *mut c_int)>>,
    /// It has returned.
    pub ran: Cell<bool>,
}

impl Current {
    pub const fn new() -> Self {
        Current {
            routine: Cell::new(None),
            ran: Cell::new(false),
        }
    }
}

/// How waiting went for one thread.
pub struct History {
    pub waiting: Waiting,
    /// Waits to come that sleep without spinning first.
    pub at_once: u32,
}

impl History {
    pub fn new() -> Self {
        History {
            waiting: recording::config().waiting(),
            at_once: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_word_holds_the_thread_and_the_acquisition() {
        assert_eq!(unpack(pack(65_535, NUMBER_MASK)), (65_535, NUMBER_MASK));
        assert_eq!(unpack(pack(0, 1)), (0, 1));
        assert_ne!(pack(0, 1), 0);
    }

    #[test]
    fn what_was_waited_for_once_is_not_waited_for_again() {
        let mut known = Known::new();
        assert!(!known.covers(pack(3, 10)));
        assert!(known.covers(pack(3, 10)));
        assert!(known.covers(pack(3, 7)));
        assert!(!known.covers(pack(3, 11)));
        assert!(
            !known.covers(pack(35, 1)),
            "another thread at the same place"
        );
        assert!(!known.covers(pack(3, 11)), "which is forgotten by then");
    }
}
