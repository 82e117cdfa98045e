//! The order in which threads acquire what they share: recorded, and in replay enforced.
//!
//! Every step of a thread that could have happened in another order relative to another thread's (a lock taken, a
//! semaphore posted, a read from a pipe of its own process) is an *acquisition* of some object. Recording, the real
//! step happens first and is logged while the object is still held; in replay a thread waits for its turn first and
//! then takes the real step, which at worst waits for the previous owner to let go:
//!
//! ```text
//!   recording:  real lock ─→ log (relaxed run, edge, ticket or clock) ─→ become owner
//!   replay:     await turn ─→ real lock ─→ publish the acquisition
//! ```
//!
//! An acquisition whose object was last acquired by the same thread is a count in place ([`Kind::Relaxed`]). What is
//! logged otherwise depends on the order that was chosen ([`order`]). Unlocking is not logged: an edge names the
//! previous acquisition, and its real lock is what makes the next one wait for the release.
//!
//! **Why this cannot deadlock in replay**: every wait is for an acquisition that lies earlier in the real time of the
//! recording, counted at points at which the object was held (or, for a post, before its effect could be seen). So
//! the waits never form a cycle, and whoever is waited for can be reached by the same rule.
//!
//! **What this does not order**: memory that threads share without synchronization, futexes that a program uses
//! itself ([`foreign`] names it), and objects shared with other processes.
//!
//! **Where to start reading**: [`order`] for what is logged, [`turn`] for how replay waits, `mutex` for the quick path,
//! then the other primitives, which are variations.
//!
//! **The invariant to keep**: between the real step and the log nothing else is logged by the thread, and an owner
//! word is written after the event that it names is complete.

mod barrier;
mod condition;
pub mod foreign;
mod guard;
mod hidden;
mod mutex;
mod once;
mod order;
mod owners;
mod real;
mod rwlock;
mod semaphore;
pub mod standard;
mod turn;

use std::fmt::Write;

use hindcast_execlog::config::Order;
use hindcast_execlog::event::Kind;
use hindcast_execlog::{Event, Text};

use crate::divergence::{self, Actual};
use crate::mode::{Mode, mode};
use crate::thread::{self, Thread};
use crate::{init, raw, signals};

pub use hidden::release_commands;
pub(crate) use real::{Slot as RealSlot, real};

/// What the recorder and the replayer of acquisitions keep for a thread.
pub struct ThreadSync {
    order: Order,
    /// The order is [`Order::Edge`], asked at every acquisition.
    is_edge: bool,
    /// What locking a mutex may do without further questions.
    quick: mutex::Quick,
    /// The high part of the thread's owner words.
    tag: u64,
    /// Recording: the last acquisitions of other threads that are known to lie before this thread's next one.
    known: order::Known,
    /// What `pthread_once` is about to run.
    once: once::Current,
    /// Replay: how waiting went so far.
    waits: turn::History,
}

impl ThreadSync {
    pub fn new(number: u32) -> Self {
        let order = init::config().order();
        ThreadSync {
            order,
            is_edge: order == Order::Edge,
            quick: if crate::threads::are_several() || number != 0 {
                mutex::quick(order)
            } else {
                mutex::Quick::Alone
            },
            tag: order::pack(number, 0),
            known: order::Known::new(),
            once: once::Current::new(),
            waits: turn::History::new(),
        }
    }
}

impl ThreadSync {
    /// What the creator has acquired lies before everything that this thread does.
    pub fn created_by(&mut self, creator: &Thread) {
        self.known.learn(creator.number, creator.acquired);
    }
}

/// The process is about to have a second thread. Called by the first, in both runs.
pub fn second_thread(thread: &mut Thread) {
    thread.sync.quick = mutex::quick(thread.sync.order);
    foreign::start();
}

/// Recording: a thread was joined, so what it acquired lies before all that follows.
pub fn record_joined(thread: &mut Thread, number: Option<u32>) {
    if let Some(joined) = number.and_then(thread::by_number) {
        thread.sync.known.learn(joined.number, joined.acquired);
    }
    order::record_alone(thread);
}

/// What is acquired, for reports and for the launcher's view.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub function: &'static str,
    pub object: usize,
}

impl Step {
    #[inline(always)]
    pub fn new<T>(function: &'static str, object: *const T) -> Self {
        Step {
            function,
            object: object as usize,
        }
    }
}

/// What the log says about an acquisition that the program is about to try.
pub enum Outcome {
    /// It succeeds, and its turn has come: take the real step, then call [`publish`].
    Acquires,
    /// It failed with this code.
    Fails(i32),
}

/// An acquisition of a resource that is not one of pthread's: a pipe, a `FILE`, a key of an annotation. The thread is in
/// system space. Keys are addresses, or have the high bits set in a way no address has.
pub fn object(thread: &mut Thread, key: u64) {
    match mode() {
        Mode::Record => record(thread, key),
        Mode::Replay => {
            let step = Step {
                function: "a call that is ordered by its resource",
                object: key as usize,
            };
            match await_turn(thread, step) {
                Outcome::Acquires => publish(thread),
                Outcome::Fails(_) => unexpected(thread, step),
            }
        }
        Mode::Off => {}
    }
}

/// Logs the acquisition of an object whose owner is kept in the table. The object is held, or the effect of the step is not visible yet.
#[inline]
pub fn record(thread: &mut Thread, key: u64) {
    order::record_in_table(thread, key, order::Sharing::Shared);
}

/// As [`record`] for an object that only one thread holds at a time.
#[inline]
pub fn record_exclusive(thread: &mut Thread, key: u64) {
    order::record_in_table(thread, key, order::Sharing::Exclusive);
}

/// Logs an acquisition that comes after the last one of the object and before nothing: the object's owner stays.
#[inline]
pub fn record_observation(thread: &mut Thread, key: u64) {
    order::record_in_table(thread, key, order::Sharing::Observed);
}

/// Logs that an acquisition failed.
#[cold]
pub fn record_failure(thread: &mut Thread, code: i32) {
    thread.writer.append(Kind::Busy, &[&code.to_ne_bytes()]);
}

/// Logs that this thread is the one that runs what is run once, for this object.
#[cold]
pub fn record_claim(thread: &mut Thread, object: usize) {
    thread.writer.append(
        Kind::Busy,
        &[&CLAIM.to_ne_bytes(), &(object as u64).to_ne_bytes()],
    );
}

/// In place of an error number: see [`record_claim`].
const CLAIM: i32 = -2;

/// Replay: whether the next event is this thread's claim on the object. Consumes it if so.
pub fn claim(thread: &mut Thread, object: usize) -> bool {
    let Some(event) = thread
        .reader
        .peek()
        .filter(|event| event.kind == Kind::Busy as u16)
    else {
        return false;
    };
    let claims = event
        .payload
        .split_first_chunk::<4>()
        .is_some_and(|(code, rest)| {
            *code == CLAIM.to_ne_bytes() && *rest == (object as u64).to_ne_bytes()
        });
    if claims {
        thread.reader.advance(&event);
    }
    claims
}
/// Replay: what the log says about this acquisition, once its turn has come.
#[inline]
pub fn await_turn(thread: &mut Thread, step: Step) -> Outcome {
    if thread.reader.take_relaxed() {
        return Outcome::Acquires;
    }
    turn::await_logged(thread, step)
}

/// Replay: whether the next acquisition failed when it was recorded, and with which code. Consumes it if so.
pub fn failure(thread: &mut Thread, step: Step) -> Option<i32> {
    let event = next_event(thread, step);
    if event.kind != Kind::Busy as u16 {
        return None;
    }
    let Some(code) = event.payload.first_chunk::<4>() else {
        unexpected(thread, step)
    };
    thread.reader.advance(&event);
    Some(i32::from_ne_bytes(*code))
}

/// As [`failure`] for failures that `which` holds for; others, and signals before them, are left in the log.
pub fn failure_if(thread: &mut Thread, step: Step, which: impl FnOnce(i32) -> bool) -> Option<i32> {
    let event = thread
        .reader
        .peek()
        .filter(|event| event.kind == Kind::Busy as u16)?;
    let code = i32::from_ne_bytes(*event.payload.first_chunk::<4>()?);
    if which(code) {
        failure(thread, step)
    } else {
        None
    }
}

/// Replay: the acquisition has happened, whoever waits for it may go on.
#[inline(always)]
pub fn publish(thread: &mut Thread) {
    thread.acquired += 1;
    turn::publish(thread.number, thread.acquired);
}

/// The next event of the log that is not a signal. Signals that were delivered inside the step are delivered again.
pub fn next_event(thread: &mut Thread, step: Step) -> Event<'static> {
    loop {
        let Some(event) = thread
            .reader
            .peek()
            .filter(|event| event.kind != Kind::Ended as u16)
        else {
            turn::show_step(thread, step);
            return divergence::expect_event(thread, Kind::Relaxed as u16);
        };
        if event.kind != Kind::Signal as u16 {
            return event;
        }
        signals::replay_inside(thread, event);
    }
}

/// The log has something else here than this step.
#[cold]
pub(crate) fn unexpected(thread: &mut Thread, step: Step) -> ! {
    let mut text = Text::<128>::new();
    let _ = write!(text, "{}({:#x})", step.function, step.object);
    let event = thread.reader.peek();
    divergence::diverged(thread, event, Actual::Step(text.as_str()))
}

/// Recording: a real step that may sleep for long. Signals that arrive meanwhile are delivered in it, not after it.
#[inline]
pub fn waiting<R>(thread: &mut Thread, real: impl FnOnce() -> R) -> R {
    signals::interruptible(thread, real)
}

/// A wait begins. Who was woken by time keeps its order until then: see [`crate::call::Call::blocks`].
#[inline]
fn before_wait(thread: &mut Thread) {
    if thread.woken_by_time {
        thread.woken_by_time = false;
        object(thread, crate::call::TIME_KEY);
    }
}

/// A wait ran out.
#[cold]
fn after_timeout(thread: &mut Thread) {
    if crate::threads::are_several() {
        object(thread, crate::call::TIME_KEY);
        thread.woken_by_time = true;
    }
}

/// Replay: a real step that sleeps until another thread of the process has come far enough.
#[cold]
pub fn blocked<R>(thread: &mut Thread, step: Step, real: impl FnOnce() -> R) -> R {
    turn::show_blocked(thread, step);
    let result = real();
    turn::show_step(thread, step);
    result
}

/// A step begins: from replay space into system space.
#[inline(always)]
pub(crate) fn enter(thread: &mut Thread) {
    thread.signals.enters_with_stack(raw::stack_pointer());
    thread.enter_system();
}

/// After a step that is in the log, back in replay space: signals that arrived meanwhile.: signals that arrived meanwhile.
#[inline(always)]
pub(crate) fn back_to_replay(thread: &'static mut Thread) {
    thread.enter_replay();
    signals::at_boundary(thread);
}

/// In a forked child: the calling thread is the only one, and what was acquired before the fork lies behind it.
pub fn after_fork_in_child(thread: &mut Thread) {
    order::after_fork_in_child(thread);
    turn::after_fork_in_child(thread);
    hidden::after_fork_in_child(thread);
}
