//! Recording: what is logged for an acquisition.
//!
//! | order | same owner as before | another owner |
//! |---|---|---|
//! | edge | a count in place | the previous owner and its acquisition number, unless that is known to lie before |
//! | relaxed | a count in place | what is new in the vector clock since this thread's last one |
//! | total | a ticket | a ticket |
//! | vector | the vector clock | the vector clock |
//!
//! *Relaxed* is the relaxed total order of "Optimizing Record/Replay through Relaxed Total Ordering
//! and Multi-Version eXecution" (sections 3.1.2 and 4.1, Figure 5), with *vector* as its baseline.
//! The paper increments and scans its global clock as one step. Here each thread owns its entry,
//! scans the others' and then increments its own: if of two acquisitions each saw the other, each
//! would have scanned after the other incremented, hence after the other scanned, hence after
//! itself. So waiting for what was seen never forms a cycle, and nothing is locked. There are two
//! exceptions. *Vector* takes a lock, since it wants all clocks comparable. And where several may
//! hold an object at the same time, taking over its owner word, scanning and incrementing
//! must be one step: of two readers, the second could else find the first in the owner word and not
//! in the clock. If it then took the lock for writing, it would find itself, and nothing would tell
//! that the first reader came before.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use hindcast_execlog::config::Order;
use hindcast_execlog::event::Kind;

use super::owners::{Cell, Owners};
use super::turn;
use crate::state::sync::{CLOCK_MAX, Known, THREAD_SHIFT, pack, unpack};
use crate::state::thread::{self, Current, Thread};

static OWNERS: Owners<{ 1 << 16 }> = Owners::new();
static TICKETS: AtomicU64 = AtomicU64::new(0);
static CLOCK_LOCK: AtomicBool = AtomicBool::new(false);
/// In a forked child, threads below this number belong to the parent, but for the one that forked.
static FIRST_OWN: AtomicU32 = AtomicU32::new(0);
static FORKED: AtomicU32 = AtomicU32::new(0);

/// How an object is held at the moment of its acquisition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// By this thread alone.
    Exclusive,
    /// Possibly by several.
    Shared,
    /// This thread only looks: it comes after the last owner, and nobody needs to come after it.
    Observed,
}

/// Logs an acquisition of an object whose owner word it has room for itself: a mutex, which is
/// held.
///
/// # Safety
/// The word is inside the object and aligned; the object is held by this thread.
#[inline(always)]
pub unsafe fn record_inline(thread: &mut Current, owner: *mut u64) {
    // SAFETY: the caller's promise: nobody else reads or writes the word while the object is held.
    let previous = unsafe { owner.read() };
    let acquisition = thread.acquired() + 1;
    let moment = last_moment();
    if is_after_own(thread, previous, moment) {
        thread.writer.bump_relaxed();
    } else {
        log(thread, previous, acquisition, moment);
    }
    thread.has_acquired(acquisition);
    // SAFETY: as above.
    unsafe { owner.write(pack(thread.number, acquisition)) };
}

#[inline]
pub fn record_in_table(thread: &mut Current, key: u64, sharing: Sharing) {
    let Cell { owner, alone } = OWNERS.cell(key);
    let acquisition = thread.acquired() + 1;
    let mine = pack(thread.number, acquisition);
    let exclusive = alone && sharing == Sharing::Exclusive;
    // The owner word of what others may hold at the same time must be taken over in one step. The
    // event that it names is complete a little later; whoever is killed in between leaves an
    // edge to an acquisition that is not there, and the replayer takes that for the end of the
    // recording.
    let _one_step = (thread.sync.order == Order::Relaxed && !exclusive).then(ClockLock::hold);
    // Before others can come after this acquisition: a moment of theirs does not lie before it.
    let moment = last_moment();
    let previous = match sharing {
        Sharing::Shared | Sharing::Exclusive if !exclusive => owner.swap(mine, Ordering::AcqRel),
        _ => owner.load(Ordering::Acquire),
    };
    if is_after_own(thread, previous, moment) {
        thread.writer.bump_relaxed();
    } else {
        log(thread, previous, acquisition, moment);
    }
    thread.has_acquired(acquisition);
    if exclusive {
        owner.store(mine, Ordering::Release);
    }
}

/// Order of edges: whether an acquisition comes after nothing but what this thread did itself.
#[inline(always)]
fn is_after_own(thread: &Thread, previous: u64, moment: u64) -> bool {
    thread.sync.is_edge
        && previous >> THREAD_SHIFT == u64::from(thread.number)
        && moment == thread.sync.moment
}

/// The owner word of moments.
static MOMENT: AtomicU64 = AtomicU64::new(0);

#[inline(always)]
fn last_moment() -> u64 {
    MOMENT.load(Ordering::Acquire)
}

/// Whether the last moment lies before this thread's acquisitions anyway.
#[inline(always)]
pub fn is_moment_known(thread: &Thread) -> bool {
    last_moment() == thread.sync.moment
}

/// Logs a moment of a thread that runs because time has passed. It comes after every acquisition
/// that there has been, of any object, and the next acquisition of any other thread comes after it.
///
/// So what such a thread writes without a lock, between two moments that lie close to each other,
/// has its place among what the others do with locks. Nothing else orders a clock that one thread
/// keeps in a variable and all others read.
pub fn record_moment(thread: &mut Current) {
    if thread.sync.order != Order::Edge {
        return record_in_table(thread, MOMENTS, Sharing::Shared);
    }
    let acquisition = thread.acquired() + 1;
    let mine = pack(thread.number, acquisition);
    let me = thread.number;
    let mut words = [0; CLOCK_MAX];
    let mut used = 0;
    let mut comes_after = |thread: &mut Current, word| {
        let (owner, number) = unpack(word);
        if used < CLOCK_MAX
            && number != 0
            && owner != me
            && !is_before_fork(owner)
            && !thread.sync.known.covers(word)
        {
            words[used] = word;
            used += 1;
        }
    };
    // What is counted is in a log. Looked at before this moment is there for others, so that
    // nothing of it can come after this moment.
    let with_ended = std::mem::take(&mut thread.sync.after_all);
    for other in thread::all().filter(|other| with_ended || !other.ended.load(Ordering::Relaxed)) {
        comes_after(thread, pack(other.number, other.acquired()));
    }
    let previous = MOMENT.swap(mine, Ordering::AcqRel);
    comes_after(thread, previous);
    log_words(thread, &words[..used]);
    thread.has_acquired(acquisition);
    thread.sync.moment = mine;
}

/// Other orders: the key of moments in the table. No address, and no descriptor's key.
const MOMENTS: u64 = 1 << 62 | 1 << 60;

/// Logs an acquisition that comes after all of these.
fn log_words(thread: &mut Current, words: &[u64]) {
    match words {
        [] => thread.writer.bump_relaxed(),
        [word] => thread.writer.append(Kind::Edge, &[&word.to_ne_bytes()]),
        words => {
            let count = (words.len() as u32).to_ne_bytes();
            // SAFETY: numbers as bytes.
            let bytes =
                unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) };
            thread.writer.append(Kind::Clock, &[&count, bytes]);
        }
    }
}

/// Logs an acquisition of something that only this thread ever has.
pub fn record_alone(thread: &mut Current) {
    let acquisition = thread.acquired() + 1;
    let own = pack(thread.number, acquisition - 1);
    log(thread, own, acquisition, last_moment());
    thread.has_acquired(acquisition);
}

/// Logs an acquisition that came after `previous`, by the order that was chosen.
fn log(thread: &mut Current, previous: u64, acquisition: u64, moment: u64) {
    match thread.sync.order {
        Order::Edge => {
            if thread.sync.after_all {
                return log_after_all(thread, previous, moment);
            }
            let mut words = [0; 2];
            let mut used = 0;
            for word in [moment, previous] {
                if !is_behind(thread, word) {
                    words[used] = word;
                    used += 1;
                }
            }
            thread.sync.moment = moment;
            log_words(thread, &words[..used]);
        }
        Order::Relaxed => {
            // As in the paper, the first acquisition of an object counts as a change of owner.
            if previous != 0 && unpack(previous).0 == thread.number {
                thread.writer.bump_relaxed();
            } else {
                log_clock(thread, Entries::New);
            }
            turn::count(thread.number, acquisition);
        }
        Order::Total => {
            let ticket = TICKETS.fetch_add(1, Ordering::AcqRel);
            thread.writer.append(Kind::Ticket, &[&ticket.to_ne_bytes()]);
        }
        Order::Vector => {
            let _one_step = ClockLock::hold();
            log_clock(thread, Entries::All);
            turn::count(thread.number, acquisition);
        }
    }
}

/// Whether the acquisition lies before all that this thread does. Remembers it if not.
fn is_behind(thread: &mut Thread, word: u64) -> bool {
    let (owner, number) = unpack(word);
    number == 0 || owner == thread.number || is_before_fork(owner) || thread.sync.known.covers(word)
}

/// Logs an acquisition that comes after all that are in a log by now: see
/// [`crate::state::sync::succeed`].
#[cold]
fn log_after_all(thread: &mut Current, previous: u64, moment: u64) {
    let mut words = [0; CLOCK_MAX];
    let mut used = 0;
    let others = thread::all().map(|other| pack(other.number, other.acquired()));
    for word in [moment, previous].into_iter().chain(others) {
        if used < CLOCK_MAX && !is_behind(thread, word) {
            words[used] = word;
            used += 1;
        }
    }
    thread.sync.after_all = false;
    thread.sync.moment = moment;
    log_words(thread, &words[..used]);
}

/// Held while clocks are read and incremented in one step.
struct ClockLock;

impl ClockLock {
    fn hold() -> Self {
        while CLOCK_LOCK.swap(true, Ordering::Acquire) {
            while CLOCK_LOCK.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }
        Self
    }
}

impl Drop for ClockLock {
    fn drop(&mut self) {
        CLOCK_LOCK.store(false, Ordering::Release);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Entries {
    All,
    /// Those that are higher than in the last clock that this thread logged.
    New,
}

/// Logs the number of acquisitions of every other thread, as owner words.
fn log_clock(thread: &mut Current, entries: Entries) {
    let threads = thread::count() as usize;
    if entries == Entries::New && thread.sync.known.clock.len() < threads {
        thread.sync.known.clock.resize(threads, 0);
    }
    if !thread.writer.begin(threads * 8 >= 0xff00) {
        return;
    }
    let mut buffer = [0u8; 8 * 64];
    let mut used = 0;
    let mut written = 0u32;
    // The number of entries comes first and is known last: those that are new are counted
    // beforehand.
    let mut seen = [0u64; 64];
    if threads <= seen.len() {
        for number in 0..threads as u32 {
            let acquisitions = turn::acquisitions(number);
            let wanted = number != thread.number
                && !is_before_fork(number)
                && (entries == Entries::All
                    || acquisitions > thread.sync.known.clock[number as usize]);
            if wanted {
                seen[written as usize] = pack(number, acquisitions);
                written += 1;
                if entries == Entries::New {
                    thread.sync.known.clock[number as usize] = acquisitions;
                }
            }
        }
        for word in &seen[..written as usize] {
            buffer[used..used + 8].copy_from_slice(&word.to_ne_bytes());
            used += 8;
        }
        if thread.writer.put(&written.to_ne_bytes()) && thread.writer.put(&buffer[..used]) {
            thread.writer.finish(Kind::Clock as u16, 0, false);
        }
        return;
    }
    let long = threads * 8 >= 0xff00;
    let mut complete = thread.writer.put(&(threads as u32).to_ne_bytes());
    for number in 0..threads as u32 {
        let acquisitions = if number == thread.number || is_before_fork(number) {
            0
        } else {
            turn::acquisitions(number)
        };
        if entries == Entries::New {
            thread.sync.known.clock[number as usize] = acquisitions;
        }
        complete = complete && thread.writer.put(&pack(number, acquisitions).to_ne_bytes());
    }
    if complete {
        thread.writer.finish(Kind::Clock as u16, 0, long);
    }
}

fn is_before_fork(thread: u32) -> bool {
    thread < FIRST_OWN.load(Ordering::Relaxed) && thread != FORKED.load(Ordering::Relaxed)
}

/// What the parent's threads acquired before the fork lies behind everything that the child does.
/// The one that forked goes on under its number, and the child's other threads must wait for it as
/// ever. Tickets begin anew: in replay the parent's other threads may not have come as far when it
/// forks.
pub fn after_fork_in_child(thread: &mut Current) {
    FIRST_OWN.store(thread::count(), Ordering::Relaxed);
    FORKED.store(thread.number, Ordering::Relaxed);
    TICKETS.store(0, Ordering::Relaxed);
    CLOCK_LOCK.store(false, Ordering::Relaxed);
    thread.sync.known = Known::new();
}
