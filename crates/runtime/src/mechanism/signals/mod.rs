//! Signals: queued when they arrive, delivered at the boundaries of calls, logged before the
//! program's handler runs.
//!
//! A signal arrives between two instructions that no counter could find again. So the program's
//! handlers are not what the kernel calls. Ours is (`doors::signals::arrival`), and what it does
//! depends on where the thread is:
//!
//! ```text
//!   replay space (the program computes)   queued; delivered when the next call ends               place: boundary
//!   in the kernel for a stub              queued, the call returns -EINTR; delivered before the    place: inside
//!                                         event of the call is written; SA_RESTART restarts it
//!   in a function of libc that may wait   delivered at once: the log has nothing half written      place: inside
//!   elsewhere in system space             queued; delivered when the call ends                     place: boundary
//! ```
//!
//! Each delivery is a [`Kind::Signal`](hindcast_execlog::event::Kind::Signal) event in the log of
//! the thread that the kernel chose, with the number of the boundary ([`at_boundary`] counts them),
//! `siginfo_t`, and the action that was in force. Replay installs no handler for anything that
//! comes from outside and delivers where the log says so.
//!
//! Faults (`SIGSEGV` and the like with `si_code > 0`) happen again by themselves in replay, so they
//! go straight to the program's handler in both runs and are not logged.
//!
//! What the program believes about its signals is kept apart from what the kernel has ([`kernel`]):
//! actions ([`actions`]) and masks. The real mask is the program's without `SIGSYS`, which the trap
//! needs, and `SIGSEGV`, which the trapped instructions need.
//!
//! **A thread that computes without calls** never comes to a boundary. When a signal has waited for
//! [`timer::DELAY_MAX_MS`] while the program's own code ran, the handler runs where the thread is,
//! with the program's registers in its context. Recording goes on, and says that a replay is not
//! exact from there on: it calls the handler at the boundary before.
//!
//! **Stacks**: a handler that the runtime calls finds itself at the same address in both runs
//! ([`delivery`]).
//!
//! **Where to start reading**: `doors::signals::arrival`, then [`delivery`].
//!
//! **The invariant to keep**: [`at_boundary`] is called at the same points of the program in both
//! runs, never after a call that only one of them makes.

pub mod actions;
pub mod delivery;
pub mod kernel;
mod release;
pub mod timer;

use std::sync::atomic::Ordering;

use crate::mechanism::{alone, follow};
use crate::state::mode::{Mode, follows, mode, one_at_a_time};
use crate::state::signals::{ASYNCHRONOUS, Queue};
use crate::state::thread::Current;

use delivery::Upcoming;
pub use delivery::{deliver, deliver_and_restart, replay_fatal, replay_inside};
pub use release::{detached, flush};

/// The thread is back in replay space: delivers what is queued, or what the log says was delivered
/// here.
#[inline(always)]
pub fn at_boundary(thread: &mut Current) {
    thread.signals.boundaries = thread.signals.boundaries.wrapping_add(1);
    follow::at_boundary(thread);
    if one_at_a_time() {
        alone::at_boundary(thread);
    }
    match mode() {
        Mode::Record if thread.signals.due.load(Ordering::Relaxed) != 0 => deliver(thread),
        Mode::Replay => match delivery::comes_next(thread) {
            Upcoming::Delivery => delivery::replay_at_boundary(thread),
            Upcoming::Nothing if !follows() => thread.has_nothing_left(),
            _ => {}
        },
        _ => {}
    }
}

/// Back to the program, at a boundary.
#[inline(always)]
pub fn leave(thread: &mut Current) {
    thread.enter_replay();
    at_boundary(thread);
}

/// The first half of [`at_boundary`] while recording, for the quickest of paths: whether there is
/// something to deliver, by [`deliver`].
#[inline(always)]
pub fn count_boundary(thread: &mut Current) -> bool {
    thread.signals.boundaries = thread.signals.boundaries.wrapping_add(1);
    thread.signals.due.load(Ordering::Relaxed) != 0
}

/// Runs a function of libc that may wait, in system space: signals that arrive meanwhile are
/// delivered at once, as they would be without us. Nothing of the call may be in the log yet.
#[inline]
pub fn interruptible<R>(thread: &mut Current, real: impl FnOnce() -> R) -> R {
    if mode() != Mode::Record {
        return real();
    }
    let opened = delivery::open(thread);
    let result = real();
    if opened {
        thread.signals.open.store(false, Ordering::Relaxed);
    }
    result
}

/// Keeps asynchronous signals away while the process has no log of its own. The mask to give to
/// [`unblock`].
pub fn block_all() -> u64 {
    let before = kernel::mask();
    kernel::set_mask(before | ASYNCHRONOUS);
    before
}

pub fn unblock(before: u64) {
    kernel::set_mask(before);
}

/// In a forked child, on its only thread: timers are not inherited, queued signals are the
/// parent's.
pub fn after_fork_in_child(thread: &mut Current) {
    thread.signals.queue = Queue::new();
    thread.signals.due.store(0, Ordering::Relaxed);
    thread.signals.timer = -1;
    thread.signals.watched = false;
}
