//! One thread at a time, for programs whose threads share memory without locks.
//!
//! Such a program comes to the same again only if its threads change at the same points. Points
//! that both runs find are calls. So one thread runs the program, until it makes a call that may
//! wait, or until the end of any other call when another thread has waited for a while:
//!
//! ```text
//!   recording:  away ─→ the call; others may run ─→ its event ─→ back: run, log who ran before
//!   replay:     away ────────────────────────────→ its event ─→ back: wait until it is as far
//! ```
//!
//! Each thread counts how often it was away. [`Kind::Turn`] names the thread that ran before and
//! its count then, so that all it did lies before; and the boundary at which it is, because a
//! thread that gives way at the end of a call was not away in it.
//!
//! **A thread that makes no call** does not give way. Another that has waited for [`PATIENCE_MS`]
//! runs beside it, and the recording says that a replay is not exact from there on.
//!
//! **The invariant to keep**: [`away`] and [`back`] are called at the same points in both runs.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hindcast_execlog::THREADS_MAX;
use hindcast_execlog::board::State;
use hindcast_execlog::event::Kind;
use hindcast_execlog::files::INEXACT;

use crate::mechanism::divergence;
use crate::state::mode::{Mode, mode, one_at_a_time};
use crate::state::recording;
use crate::state::thread::{self, Current};
use crate::{raw, syscall};

/// How long a thread waits before it asks the one that runs to give way at its next call.
const SLICE_MS: i64 = 2;
/// How long a thread that makes no call runs alone, of its own processor time.
const PATIENCE_MS: i64 = 500;
/// The same where it sleeps, or gets no processor: nobody knew that it would wait.
const PATIENCE_ASLEEP_MS: i64 = 5000;
/// Between two looks of a thread that waits. Also how long a call may last before another thread
/// runs, where nobody knew that it would wait.
const LOOK_NS: i64 = 1_000_000;
/// Looks without sleeping in replay.
const SPINS: u32 = 2000;

/// Who runs, number + 1, or zero; whether that thread is in a call; and a count, so that no two
/// calls look the same.
static RUNS: AtomicU64 = AtomicU64::new(0);
const WHO: u64 = (1 << 17) - 1;
const AWAY: u64 = 1 << 17;
const COUNT: u64 = 1 << 18;
const _: () = assert!(THREADS_MAX < WHO as usize);

/// Who ran last, number + 1. Written by the thread that runs.
static LAST: AtomicU32 = AtomicU32::new(0);
/// Who asks the one that runs to give way, number + 1, or zero.
static ASKS: AtomicU32 = AtomicU32::new(0);
/// What waiting threads sleep on, and how many do.
static BELL: AtomicU32 = AtomicU32::new(0);
static WAITING: AtomicU32 = AtomicU32::new(0);
/// How often each thread was away. Written by that thread.
static TIMES: [AtomicU64; THREADS_MAX] = [const { AtomicU64::new(0) }; THREADS_MAX];

fn times(number: u32) -> &'static AtomicU64 {
    &TIMES[number as usize]
}

/// The word when `who` runs after `before`.
fn next(before: u64, who: u64) -> u64 {
    (before & !(WHO | AWAY)).wrapping_add(COUNT) | who
}

fn replace(before: u64, after: u64) -> bool {
    RUNS.compare_exchange(before, after, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

fn id(thread: &Current) -> u64 {
    u64::from(thread.number) + 1
}

fn is_on() -> bool {
    one_at_a_time() && thread::are_several()
}

/// The process is about to have a second thread. Called by the first.
pub fn second_thread(thread: &Current) {
    RUNS.store(id(thread), Ordering::Release);
    LAST.store(id(thread) as u32, Ordering::Release);
}

/// The thread begins: runs when it is its turn.
pub fn begins(thread: &mut Current) {
    if is_on() {
        thread.away = true;
        back(thread);
    }
}

/// The thread has ended.
pub fn ends(thread: &Current) {
    if is_on() {
        times(thread.number).store(u64::MAX, Ordering::Release);
        let word = RUNS.load(Ordering::Acquire);
        if word & WHO == id(thread) {
            replace(word, next(word, 0));
        }
        ring();
    }
}

/// In a forked child there is one thread.
pub fn after_fork_in_child(thread: &Current) {
    second_thread(thread);
    ASKS.store(0, Ordering::Relaxed);
    WAITING.store(0, Ordering::Relaxed);
}

/// The thread is in a call: until [`back`] it does nothing that another may see.
#[inline]
pub fn away(thread: &mut Current) {
    if is_on() && !thread.away {
        thread.away = true;
        was_away_once_more(thread);
        lend(thread);
    }
}

fn was_away_once_more(thread: &Current) {
    times(thread.number).fetch_add(1, Ordering::AcqRel);
    if mode() == Mode::Replay && WAITING.load(Ordering::SeqCst) != 0 {
        ring();
    }
}

/// Recording: as [`away`], of a call that replay need not make, and so does not count.
pub fn lend(thread: &Current) {
    let word = RUNS.load(Ordering::Acquire);
    if mode() == Mode::Record && word & WHO == id(thread) {
        replace(word, next(word, id(thread)) | AWAY);
    }
}

/// Recording: the thread, which is away, is about to wait. Another may run at once.
#[inline]
pub fn waits(thread: &Current) {
    if !is_on() || mode() != Mode::Record {
        return;
    }
    let word = RUNS.load(Ordering::Acquire);
    if word & (WHO | AWAY) == id(thread) | AWAY {
        replace(word, next(word, 0));
        ring();
    }
}

/// The call is over, and the program goes on. In system space. Whether the thread was away.
pub fn back(thread: &mut Current) -> bool {
    let was_away = std::mem::take(&mut thread.away);
    match mode() {
        Mode::Record if was_away && !runs_on(thread) => run_again(thread),
        Mode::Replay => follow(thread, was_away),
        _ => {}
    }
    was_away
}

/// As [`back`] for a call of [`lend`]: nothing tells replay who ran meanwhile.
pub fn back_unlogged(thread: &mut Current) {
    thread.away = false;
    if mode() == Mode::Record && !runs_on(thread) {
        take(thread);
    }
}

/// At the end of any call, in replay space.
#[inline]
pub fn at_boundary(thread: &mut Current) {
    if is_on() {
        at_boundary_of_several(thread);
    }
}

fn at_boundary_of_several(thread: &mut Current) {
    let was_away = std::mem::take(&mut thread.away);
    match mode() {
        Mode::Record => {
            let is_asked = ![0, id(thread) as u32].contains(&ASKS.load(Ordering::Relaxed));
            if runs_on(thread) && !is_asked {
                return;
            }
            thread.enter_system();
            if !was_away {
                was_away_once_more(thread);
            }
            give_way(thread);
            run_again(thread);
            thread.enter_replay();
        }
        Mode::Replay => {
            thread.enter_system();
            follow(thread, was_away);
            thread.enter_replay();
        }
        Mode::Off => {}
    }
}

/// Whether no other thread ran since this one was away, and none will.
fn runs_on(thread: &Current) -> bool {
    let word = RUNS.load(Ordering::Acquire);
    word & WHO == id(thread) && (word & AWAY == 0 || replace(word, word & !AWAY))
}

fn give_way(thread: &Current) {
    let word = RUNS.load(Ordering::Acquire);
    let asks = u64::from(ASKS.swap(0, Ordering::AcqRel));
    if asks != 0 && word & WHO == id(thread) {
        replace(word, next(word, asks));
        ring();
    }
}

/// Recording: waits until the thread may run, and logs who ran before.
fn run_again(thread: &mut Current) {
    let Some(from) = take(thread).checked_sub(1) else {
        return;
    };
    if from != thread.number {
        let boundary = thread.signals.boundaries;
        let count = times(from).load(Ordering::Acquire);
        let parts: [&[u8]; 3] = [
            &boundary.to_ne_bytes(),
            &from.to_ne_bytes(),
            &count.to_ne_bytes(),
        ];
        thread.writer.append(Kind::Turn, &parts);
    }
}

/// Waits until the thread may run. Who ran before, number + 1.
fn take(thread: &Current) -> u32 {
    let me = id(thread);
    WAITING.fetch_add(1, Ordering::SeqCst);
    let began = now_ms();
    let (mut seen, mut since, mut used) = (0, began, 0);
    while mode() == Mode::Record {
        let bell = BELL.load(Ordering::SeqCst);
        let word = RUNS.load(Ordering::Acquire);
        let now = now_ms();
        if word != seen {
            (seen, since, used) = (word, now, processor_ms(word & WHO));
        }
        let is_free = matches!(word & WHO, 0) || word & WHO == me;
        let is_late = now - since >= PATIENCE_MS
            && (processor_ms(word & WHO) - used >= PATIENCE_MS
                || now - since >= PATIENCE_ASLEEP_MS);
        if is_free || is_late || (word & AWAY != 0 && now > since) {
            if replace(word, next(word, me)) {
                if !is_free && word & AWAY == 0 {
                    warn();
                }
                break;
            }
            continue;
        }
        if now - began >= SLICE_MS {
            let _ = ASKS.compare_exchange(0, me as u32, Ordering::AcqRel, Ordering::Relaxed);
        }
        sleep(bell);
    }
    WAITING.fetch_sub(1, Ordering::SeqCst);
    let _ = ASKS.compare_exchange(me as u32, 0, Ordering::AcqRel, Ordering::Relaxed);
    LAST.swap(me as u32, Ordering::AcqRel)
}

#[cold]
fn warn() {
    recording::warn(format_args!(
        "{INEXACT}: a thread ran for {PATIENCE_MS} ms without a call while another waited, which then ran beside it"
    ));
}

/// Replay: where the log says that another thread ran before, waits until that is as far.
fn follow(thread: &mut Current, was_away: bool) {
    let Some(event) = thread
        .reader
        .peek()
        .filter(|event| event.kind == Kind::Turn as u16)
    else {
        return;
    };
    let half = |at: usize| {
        let bytes = event.payload.get(at..)?.first_chunk::<4>()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    let (Some(boundary), Some(from), Some(low), Some(high)) = (half(0), half(4), half(8), half(12))
    else {
        return;
    };
    if boundary != thread.signals.boundaries || from as usize >= THREADS_MAX {
        return;
    }
    thread.reader.advance(&event);
    if !was_away {
        was_away_once_more(thread);
    }
    await_thread(thread, from, u64::from(high) << 32 | u64::from(low));
}

fn await_thread(thread: &mut Current, from: u32, count: u64) {
    let reached = || times(from).load(Ordering::Acquire) >= count;
    for _ in 0..SPINS {
        if reached() {
            return;
        }
        std::hint::spin_loop();
    }
    if let Some(slot) = thread.slot {
        slot.awaited_thread.store(from.into(), Ordering::Relaxed);
        slot.awaited_acquisition.store(count, Ordering::Relaxed);
    }
    thread.show(State::Waiting, Kind::Turn as u16);
    WAITING.fetch_add(1, Ordering::SeqCst);
    loop {
        let bell = BELL.load(Ordering::SeqCst);
        if reached() || mode() != Mode::Replay {
            break;
        }
        let is_over = thread::by_number(from)
            .is_some_and(|other| other.at_end.load(Ordering::Acquire) && !reached());
        if is_over {
            divergence::recording_ends(thread, Kind::Turn as u16);
        }
        sleep(bell);
    }
    WAITING.fetch_sub(1, Ordering::SeqCst);
    thread.show(State::Running, Kind::Turn as u16);
}

fn now_ms() -> i64 {
    read_ms(libc::CLOCK_MONOTONIC)
}

/// The processor time that a thread has used, by its number + 1.
fn processor_ms(who: u64) -> i64 {
    // As the kernel names the clocks of threads.
    const OF_THREAD: i32 = 6;
    let thread = u32::try_from(who)
        .ok()
        .and_then(|who| thread::by_number(who.checked_sub(1)?));
    thread.map_or(0, |thread| {
        let kernel_id = thread.kernel_id.load(Ordering::Relaxed) as i32;
        read_ms(!kernel_id << 3 | OF_THREAD)
    })
}

fn read_ms(clock: libc::clockid_t) -> i64 {
    let now = raw::time(clock);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

fn ring() {
    BELL.fetch_add(1, Ordering::SeqCst);
    if WAITING.load(Ordering::SeqCst) != 0 {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word is alive.
        unsafe { syscall!(libc::SYS_futex, BELL.as_ptr(), operation, i32::MAX) };
    }
}

fn sleep(bell: u32) {
    let limit = libc::timespec {
        tv_sec: 0,
        tv_nsec: LOOK_NS,
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time limit are alive for the call.
    unsafe {
        syscall!(
            libc::SYS_futex,
            BELL.as_ptr(),
            operation,
            bell,
            &raw const limit
        )
    };
}
