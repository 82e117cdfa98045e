//! Signals: queued when they arrive, delivered at the boundaries of calls, logged before the program's handler runs.
//!
//! A signal arrives between two instructions that no counter could find again. So the program's handlers are not what the kernel
//! calls. Ours is ([`arrival`]), and what it does depends on where the thread is:
//!
//! ```text
//!   replay space (the program computes)   queued; delivered when the next call ends               place: boundary
//!   in the kernel for a stub              queued, the call returns -EINTR; delivered before the    place: inside
//!                                         event of the call is written; SA_RESTART restarts it
//!   in a function of libc that may wait   delivered at once: the log has nothing half written      place: inside
//!   elsewhere in system space             queued; delivered when the call ends                     place: boundary
//! ```
//!
//! Each delivery is a [`Kind::Signal`](hindcast_execlog::event::Kind::Signal) event in the log of the thread that the kernel chose, with the
//! number of the boundary ([`at_boundary`] counts them), `siginfo_t`, and the action that was in force. Replay installs
//! no handler for anything that comes from outside and delivers where the log says so.
//!
//! Faults (`SIGSEGV` and the like with `si_code > 0`) happen again by themselves in replay, so they go straight to the
//! program's handler in both runs and are not logged.
//!
//! What the program believes about its signals is kept apart from what the kernel has: actions ([`actions`]) and masks
//! ([`mask`]). The real mask is the program's without `SIGSYS`, which the trap needs, and `SIGSEGV`, which the trapped instructions need.
//!
//! **A thread that computes without calls** never comes to a boundary. When a signal has waited for [`arrival::DELAY_MAX_MS`] while the
//! program's own code ran, recording ends ([`crate::detach`], with the signal and the address in the reason) and the handler runs where
//! the thread is: a `while (!flag);` that a handler ends does not hang without a word.
//!
//! **Stacks**: a handler that the runtime calls finds itself at the same address in both runs ([`delivery`]).
//!
//! **Where to start reading**: [`arrival::arrived`], then [`delivery`].
//!
//! **The invariant to keep**: [`at_boundary`] is called at the same points of the program in both runs, never after
//! a call that only one of them makes.

mod actions;
mod arrival;
mod calls;
mod delivery;
mod mask;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};

use hindcast_execlog::Event;

use crate::mode::{Mode, mode};
use crate::thread::{self, Thread};

pub use arrival::synchronous_fault;
pub use calls::by_number;
pub use delivery::replay_fatal;

use arrival::Queue;

/// What a thread knows about its signals. Touched by its thread and by signal handlers that interrupt it.
pub struct ThreadSignals {
    /// 1 while a queued signal may be delivered.
    due: AtomicU8,
    /// The thread waits in a function of libc, and a signal may be delivered at once.
    open: AtomicBool,
    /// The system call that [`crate::raw::blocking6`] was in last, to know whether it can be restarted; negative: none.
    blocking: AtomicI64,
    /// Which signals the program has blocked in this thread.
    blocked: u64,
    /// While the thread is in `sigsuspend`: the mask that is in force there.
    suspended: Option<u64>,
    /// Boundaries so far.
    boundaries: u32,
    /// Stack pointer of the program when it entered the call that the thread is in.
    stack: usize,
    queue: Queue,
    /// The kernel's timer that ends recording when a signal waits too long; negative: not made yet.
    timer: i32,
}

impl ThreadSignals {
    pub const fn new() -> Self {
        ThreadSignals {
            due: AtomicU8::new(0),
            open: AtomicBool::new(false),
            blocking: AtomicI64::new(-1),
            blocked: 0,
            suspended: None,
            boundaries: 0,
            stack: 0,
            queue: Queue::new(),
            timer: -1,
        }
    }

    /// Not zero while a signal is queued that must be delivered: what `raw::blocking6` looks at.
    pub fn queued_byte(&self) -> *const u8 {
        self.due.as_ptr()
    }

    /// The thread enters this system call.
    #[inline(always)]
    pub fn enters(&self, number: i64) {
        self.blocking.store(number, Ordering::Relaxed);
    }

    /// A thread starts with the mask of the one that creates it.
    pub fn inherit(&mut self, creator: &ThreadSignals) {
        self.blocked = creator.blocked;
    }

    /// Where the program's stack ends at the call that begins.
    #[inline(always)]
    pub fn enters_with_stack(&mut self, pointer: usize) {
        self.stack = pointer;
    }
}

/// At init, on the first thread, whose log is open: takes over what the process inherited.
pub fn start() {
    let Some(thread) = thread::current() else {
        return;
    };
    actions::start(thread);
}

/// The thread is back in replay space: delivers what is queued, or what the log says was delivered here.
#[inline(always)]
pub fn at_boundary(thread: &mut Thread) {
    thread.signals.boundaries = thread.signals.boundaries.wrapping_add(1);
    match mode() {
        Mode::Record if thread.signals.due.load(Ordering::Relaxed) != 0 => {
            delivery::at_boundary(thread)
        }
        Mode::Replay if delivery::is_next(thread) => delivery::replay_at_boundary(thread),
        _ => {}
    }
}

/// The first half of [`at_boundary`] while recording, for the quickest of paths: whether there is something to deliver, by [`deliver`].
#[inline(always)]
pub fn count_boundary(thread: &mut Thread) -> bool {
    thread.signals.boundaries = thread.signals.boundaries.wrapping_add(1);
    thread.signals.due.load(Ordering::Relaxed) != 0
}

/// The second half.
#[cold]
pub fn deliver(thread: &mut Thread) {
    delivery::at_boundary(thread);
}

/// After `EINTR`: delivers what is queued, and says whether the call is to be made again. Logged as delivered inside a call.
#[cold]
pub fn deliver_and_restart(thread: &mut Thread) -> bool {
    delivery::inside_call(thread)
}

/// Replay of what [`deliver_and_restart`] logged.
pub fn replay_inside(thread: &mut Thread, event: Event<'static>) {
    delivery::replay_inside(thread, event);
}

/// Runs a function of libc that may wait, in system space: signals that arrive meanwhile are delivered at once, as they
/// would be without us. Nothing of the call may be in the log yet.
#[inline]
pub fn interruptible<R>(thread: *mut Thread, real: impl FnOnce() -> R) -> R {
    if mode() != Mode::Record {
        return real();
    }
    // SAFETY: the calling thread's state, which lives for ever. No reference to it is held while the handlers run.
    let opened = unsafe { delivery::open(thread) };
    let result = real();
    if opened {
        // SAFETY: as above.
        unsafe { (*thread).signals.open.store(false, Ordering::Relaxed) };
    }
    result
}

/// Keeps asynchronous signals away while the process has no log of its own. The mask to give to [`unblock`].
pub fn block_all() -> u64 {
    let before = mask::real();
    mask::set_real(before | mask::ASYNCHRONOUS);
    before
}

pub fn unblock(before: u64) {
    mask::set_real(before);
}

/// In a forked child, on its only thread: timers are not inherited, queued signals are the parent's.
pub fn after_fork_in_child(thread: &mut Thread) {
    thread.signals.queue = Queue::new();
    thread.signals.due.store(0, Ordering::Relaxed);
    thread.signals.timer = -1;
}

/// Recording has ended: the kernel gets the program's own actions, and signals that are queued are sent again.
pub fn detached() {
    actions::give_back();
    crate::trap::install_restarting();
    arrival::flush_all();
}
