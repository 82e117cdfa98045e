//! The order in which threads acquire what they share: recorded, and in replay enforced.
//!
//! Every step of a thread that could have happened in another order relative to another thread's (a
//! lock taken, a semaphore posted, a read from a pipe of its own process) is an *acquisition* of
//! some object. Recording, the real step happens first and is logged while the object is still
//! held; in replay a thread waits for its turn first and then takes the real step, which at worst
//! waits for the previous owner to let go:
//!
//! ```text
//!   recording:  real lock ─→ log (relaxed run, edge, ticket or clock) ─→ become owner
//!   replay:     await turn ─→ real lock ─→ publish the acquisition
//! ```
//!
//! An acquisition whose object was last acquired by the same thread is a count in place
//! ([`Kind::Relaxed`]). What is logged otherwise depends on the order that was chosen ([`order`]).
//! Unlocking is not logged: an edge names the previous acquisition, and its real lock is what makes
//! the next one wait for the release.
//!
//! **Why this cannot deadlock in replay**: every wait is for an acquisition that lies earlier in
//! the real time of the recording, counted at points at which the object was held (or, for a post,
//! before its effect could be seen). So the waits never form a cycle, and whoever is waited for can
//! be reached by the same rule.
//!
//! **What this does not order**: memory that threads share without synchronization, futexes that a
//! program uses itself (`doors::locks::foreign` names it), and objects shared with other processes.
//!
//! **Where to start reading**: [`order`] for what is logged, [`turn`] for how replay waits,
//! `doors::locks::mutex` for the quick path, then the other primitives, which are variations.
//!
//! **The invariant to keep**: between the real step and the log nothing else is logged by the
//! thread, and an owner word is written after the event that it names is complete.

pub mod mutex;
pub mod order;
mod owners;
mod real;
mod step;
pub mod turn;

use hindcast_execlog::board::State;
use hindcast_execlog::event::Kind;

use crate::mechanism::{follow, signals};
use crate::state::mode::{Mode, leads, mode};
use crate::state::thread::{self, Current};

pub(crate) use real::{Slot as RealSlot, find_all, real};
pub use step::{Outcome, Step, next_event, unexpected};

/// Recording: a thread was joined, so what it acquired lies before all that follows.
pub fn record_joined(thread: &mut Current, number: Option<u32>) {
    if let Some(joined) = number.and_then(thread::by_number) {
        thread.sync.known.learn(joined.number, joined.acquired());
    }
    order::record_alone(thread);
}

/// A moment of a thread that runs because time has passed: see [`order::record_moment`].
pub fn moment(thread: &mut Current) {
    match mode() {
        Mode::Record => order::record_moment(thread),
        Mode::Replay => {
            let step = Step {
                function: "a thread that time has woken",
                object: 0,
                is_recorded_after: true,
            };
            pass_or_record(thread, step, |_| {}, order::record_moment);
        }
        Mode::Off => {}
    }
}

/// An acquisition of a resource that is not one of pthread's: a pipe, a `FILE`, a key of an
/// annotation. The thread is in system space. Keys are addresses, or have the high bits set in a
/// way no address has.
pub fn object(thread: &mut Current, key: u64) {
    match mode() {
        Mode::Record => record(thread, key),
        Mode::Replay => {
            if !is_object_told(thread, key) && mode() == Mode::Record {
                record(thread, key);
            }
        }
        Mode::Off => {}
    }
}

/// Replay: as [`object`] for what is recorded later in the call, should this process be from here
/// on. Whether the log tells of it.
pub fn is_object_told(thread: &mut Current, key: u64) -> bool {
    let step = Step {
        function: "a call that is ordered by its resource",
        object: key as usize,
        is_recorded_after: true,
    };
    pass_if_told(thread, step, |_| {})
}

/// Replay: takes the real step when it is this thread's turn. It cannot have failed.
pub fn pass(thread: &mut Current, step: Step, real: impl FnOnce(&mut Current)) {
    pass_if_told(thread, step, real);
}

/// As [`pass`]; where the log says no more, and this process is recorded from there on, notes that
/// the step was taken.
pub fn pass_or_record(
    thread: &mut Current,
    step: Step,
    real: impl FnOnce(&mut Current),
    note: impl FnOnce(&mut Current),
) {
    if !pass_if_told(thread, step.recorded_after(), real) && mode() == Mode::Record {
        note(thread);
    }
}

/// As [`pass`], and says whether the log tells of the step.
pub fn pass_if_told(thread: &mut Current, step: Step, real: impl FnOnce(&mut Current)) -> bool {
    match await_turn(thread, step) {
        Outcome::Acquires => {
            real(thread);
            publish(thread);
            true
        }
        Outcome::GoesOn => {
            real(thread);
            false
        }
        Outcome::Fails(_) => unexpected(thread, step),
    }
}

/// A step that may fail, in either run: while recording the real step, and what notes that it has
/// succeeded; in replay the step `again`, when it is this thread's turn.
#[inline]
pub fn attempt(
    thread: &mut Current,
    step: Step,
    real: impl FnOnce(&mut Current) -> i32,
    note: impl FnOnce(&mut Current),
    again: impl FnOnce(&mut Current) -> i32,
) -> i32 {
    if mode() == Mode::Replay {
        match await_turn(thread, step.recorded_after()) {
            Outcome::Acquires => {
                let result = again(thread);
                publish(thread);
                return result;
            }
            Outcome::Fails(code) => return code,
            Outcome::GoesOn => {}
        }
    }
    let result = real(thread);
    if mode() == Mode::Record {
        match result {
            0 => note(thread),
            code => record_failure(thread, code),
        }
    }
    result
}

/// Logs the acquisition of an object whose owner is kept in the table. The object is held, or the
/// effect of the step is not visible yet.
#[inline]
pub fn record(thread: &mut Current, key: u64) {
    order::record_in_table(thread, key, order::Sharing::Shared);
}

/// As [`record`] for an object that only one thread holds at a time.
#[inline]
pub fn record_exclusive(thread: &mut Current, key: u64) {
    order::record_in_table(thread, key, order::Sharing::Exclusive);
}

/// Logs an acquisition that comes after the last one of the object and before nothing: the object's
/// owner stays.
#[inline]
pub fn record_observation(thread: &mut Current, key: u64) {
    order::record_in_table(thread, key, order::Sharing::Observed);
}

/// Logs that an acquisition failed.
#[cold]
pub fn record_failure(thread: &mut Current, code: i32) {
    thread.writer.append(Kind::Busy, &[&code.to_ne_bytes()]);
}

/// Logs that this thread is the one that runs what is run once, for this object.
#[cold]
pub fn record_claim(thread: &mut Current, object: usize) {
    thread.writer.append(
        Kind::Busy,
        &[&CLAIM.to_ne_bytes(), &(object as u64).to_ne_bytes()],
    );
}

/// In place of an error number: see [`record_claim`].
const CLAIM: i32 = -2;

/// Replay: whether the next event is this thread's claim on the object. Consumes it if so.
pub fn claim(thread: &mut Current, object: usize) -> bool {
    let Some(event) = follow::peek(thread).filter(|event| event.kind == Kind::Busy as u16) else {
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
pub fn await_turn(thread: &mut Current, step: Step) -> Outcome {
    if thread.reader.take_relaxed() {
        return Outcome::Acquires;
    }
    turn::await_logged(thread, step)
}

/// Replay: whether the next acquisition failed when it was recorded, and with which code. Consumes
/// it if so.
pub fn failure(thread: &mut Current, step: Step) -> Option<i32> {
    let event = next_event(thread, step.doing())?;
    if event.kind != Kind::Busy as u16 {
        return None;
    }
    let Some(code) = event.payload.first_chunk::<4>() else {
        unexpected(thread, step)
    };
    thread.reader.advance(&event);
    Some(i32::from_ne_bytes(*code))
}

/// As [`failure`] for failures that `which` holds for; others, and signals before them, are left in
/// the log.
pub fn failure_if(
    thread: &mut Current,
    step: Step,
    which: impl FnOnce(i32) -> bool,
) -> Option<i32> {
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
pub fn publish(thread: &mut Current) {
    let acquisition = thread.acquired() + 1;
    thread.has_acquired(acquisition);
    turn::publish(thread.number, acquisition);
}

/// Recording: a real step that may sleep for long. Signals that arrive meanwhile are delivered in
/// it, not after it. Whoever follows is told that the thread has come here: a wait gives a mutex
/// away, and must not be awaited by a follower that still holds it.
#[inline]
pub fn waiting<R>(thread: &mut Current, real: impl FnOnce() -> R) -> R {
    if leads() {
        thread.writer.enters();
    }
    signals::interruptible(thread, real)
}

/// A wait begins. Who was woken by time keeps its order until then: see
/// [`crate::mechanism::call::Call::blocks`].
#[inline]
pub fn before_wait(thread: &mut Current) {
    if thread.woken_by_time {
        thread.woken_by_time = false;
        moment(thread);
    }
}

/// A wait ran out.
#[cold]
pub fn after_timeout(thread: &mut Current) {
    if thread::are_several() {
        moment(thread);
        thread.woken_by_time = true;
    }
}

/// Replay: a real step that sleeps until another thread of the process has come far enough.
#[cold]
pub fn blocked<R>(thread: &mut Current, real: impl FnOnce() -> R) -> R {
    thread.show(State::Blocked, Kind::Edge as u16);
    let result = real();
    thread.show(State::Running, Kind::Edge as u16);
    result
}

/// In a forked child: the calling thread is the only one, and what was acquired before the fork
/// lies behind it.
pub fn after_fork_in_child(thread: &mut Current) {
    order::after_fork_in_child(thread);
    turn::after_fork_in_child(thread);
}
