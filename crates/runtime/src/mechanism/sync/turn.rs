//! Replay: waiting for one's turn.
//!
//! Each thread publishes how many acquisitions it has made. A thread whose log says that its next
//! acquisition came after another one waits until that number is reached.
//!
//! **How it waits** follows section 4.1.3 of "Optimizing Record/Replay through Relaxed Total
//! Ordering and Multi-Version eXecution". A thread first spins for [`SPINS`] rounds. When that was
//! not enough it *backs off*. As long as backing off is not what usually happens (at most
//! [`RATIO_HIGH`] times as often as a wait that spinning ended) it spins on, with growing
//! pauses; else it asks how the threads fare together, and where the global ratio is below
//! [`RATIO_LOW`] or above [`RATIO_HIGH`], it sleeps. Three bounds are ours: after [`BACKOFFS_MAX`]
//! rounds of pauses a thread sleeps in any case, on a machine with one processor at once, and for
//! the [`SLEEPS_AT_ONCE`] waits after one that came to sleep for the ratio's sake.
//!
//! **How it sleeps**: it writes the number it wants beside the other thread's count and waits on a
//! futex. The thread that counts must see the wish or the sleeper the count; instead of a fence at
//! every acquisition the sleeper makes the other processors pass one (`membarrier`), and looks
//! again.
//!
//! A wait that nobody can end is reported, not waited out: the awaited thread has ended or is at
//! the end of its log, or threads wait for each other in a circle.

use std::fmt::Write;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, compiler_fence};

use hindcast_execlog::board::State;
use hindcast_execlog::config::Waiting;
use hindcast_execlog::event::Kind;
use hindcast_execlog::{THREADS_MAX, Text};

use super::step::{Outcome, Step, next_event, unexpected};
use crate::mechanism::divergence::{self, Actual};
use crate::mechanism::{follow, going_on};
use crate::state::mode::{Mode, follows, mode};
use crate::state::sync::unpack;
use crate::state::thread::{self, Current, Thread};
use crate::{raw, syscall};

/// Rounds of spinning before a wait counts as a back-off: the paper's 1,000.
const SPINS: u32 = 1000;
/// A `pause` takes up to 140 cycles on recent processors, so only every so many rounds have one.
const ROUNDS_PER_PAUSE: u32 = 8;
/// The ratio of back-offs to waits that spinning ended, above which a thread asks for the ratio of
/// all.
const RATIO_HIGH: u32 = 2;
/// One over the global ratio below which threads sleep.
const RATIO_LOW: u32 = 2;
/// Back-offs of one wait, each longer than the one before, after which the thread sleeps whatever
/// the ratio.
const BACKOFFS_MAX: u32 = 2;
/// A thread that found sleeping to be better does so without spinning first this many times, then
/// tries again.
const SLEEPS_AT_ONCE: u32 = 15;
/// Between two looks at whether a wait can still end. Never what ends a wait, but where the leader
/// is lost: then others wait for this thread to notice.
const LOOK_NS: i64 = 50_000_000;
const LOOK_WHEN_LOST_NS: i64 = 1_000_000;
/// Looks in a row that must find the same circle of threads before it counts.
const LOOKS_FOR_CIRCLE: u32 = 4;

/// How far a thread has come, in a line of its own. Written by that thread, but for `wanted` and
/// `waits`.
#[repr(C, align(64))]
struct Turn {
    /// Acquisitions that have happened.
    acquired: AtomicU64,
    /// The lowest number that a sleeper wants to see, or zero.
    wanted: AtomicU64,
    /// Raised when sleepers are woken; what they sleep on.
    wakes: AtomicU32,
    /// Waits that spinning ended, and those that it did not.
    spun: AtomicU32,
    backed_off: AtomicU32,
    /// The acquisition that the thread itself sleeps for, or zero.
    waits_for: AtomicU64,
}

impl Turn {
    const fn new() -> Self {
        Turn {
            acquired: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            wakes: AtomicU32::new(0),
            spun: AtomicU32::new(0),
            backed_off: AtomicU32::new(0),
            waits_for: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn reached(&self, number: u64) -> bool {
        self.acquired.load(Ordering::Acquire) >= number
    }

    #[inline(always)]
    fn advance(&self, number: u64) {
        self.acquired.store(number, Ordering::Release);
        // Not reordered by the compiler; the processor is taken care of by the sleeper.
        compiler_fence(Ordering::SeqCst);
        // Zero wraps to a number that is never reached.
        if self.wanted.load(Ordering::Relaxed).wrapping_sub(1) < number {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.wanted.store(0, Ordering::SeqCst);
        self.wakes.fetch_add(1, Ordering::SeqCst);
        futex_wake(&self.wakes);
    }
}

static TURNS: [Turn; THREADS_MAX] = [const { Turn::new() }; THREADS_MAX];
/// Replay of the total order: the next ticket.
static TICKET: Turn = Turn::new();

/// Recording: the thread's entry of the global vector clock.
#[inline(always)]
pub fn count(thread: u32, acquisitions: u64) {
    TURNS[thread as usize]
        .acquired
        .store(acquisitions, Ordering::Release);
}

pub fn acquisitions(thread: u32) -> u64 {
    TURNS[thread as usize].acquired.load(Ordering::Acquire)
}

/// Replay: the acquisition of this number has happened.
#[inline(always)]
pub fn publish(thread: u32, acquisition: u64) {
    TURNS[thread as usize].advance(acquisition);
    if TICKET.wakes_are_used() {
        TICKET.advance(TICKET.acquired.load(Ordering::Relaxed) + 1);
    }
}

impl Turn {
    /// The ticket counter moves only in a process that was recorded with tickets: each thread that
    /// took one waits for it.
    #[inline(always)]
    fn wakes_are_used(&self) -> bool {
        USES_TICKETS.load(Ordering::Relaxed) != 0
    }
}

static USES_TICKETS: AtomicU8 = AtomicU8::new(0);

/// Waits for what the next event of the log says, which is not a run of relaxed acquisitions (or
/// signals come before it).
pub fn await_logged(thread: &mut Current, step: Step) -> Outcome {
    let Some(event) = next_event(thread, step.doing()) else {
        return Outcome::GoesOn;
    };
    if event.kind == Kind::Relaxed as u16 {
        if !thread.reader.take_relaxed() {
            unexpected(thread, step);
        }
        return Outcome::Acquires;
    }
    let word = |bytes: &[u8]| {
        bytes
            .first_chunk::<8>()
            .map(|bytes| u64::from_ne_bytes(*bytes))
    };
    match Kind::from_number(event.kind) {
        Some(Kind::Edge) => {
            let Some(edge) = word(event.payload) else {
                unexpected(thread, step)
            };
            wait_for(thread, edge, step);
        }
        Some(Kind::Ticket) => {
            let Some(ticket) = word(event.payload) else {
                unexpected(thread, step)
            };
            USES_TICKETS.store(1, Ordering::Relaxed);
            wait(thread, &TICKET, ticket, ALL_THREADS, step);
        }
        Some(Kind::Clock) => {
            let Some((_, words)) = event.payload.split_first_chunk::<4>() else {
                unexpected(thread, step)
            };
            for entry in words.chunks_exact(8) {
                if let Some(entry) = word(entry) {
                    wait_for(thread, entry, step);
                }
            }
        }
        Some(Kind::Busy) => {
            let Some(code) = event.payload.first_chunk::<4>() else {
                unexpected(thread, step)
            };
            thread.reader.advance(&event);
            return Outcome::Fails(i32::from_ne_bytes(*code));
        }
        _ => unexpected(thread, step),
    }
    if mode() == Mode::Off {
        return Outcome::GoesOn;
    }
    thread.reader.advance(&event);
    Outcome::Acquires
}

fn wait_for(thread: &mut Current, word: u64, step: Step) {
    let (owner, acquisition) = unpack(word);
    if owner != thread.number {
        wait(thread, &TURNS[owner as usize], acquisition, word, step);
    }
}

/// In place of an owner word: for a ticket.
const ALL_THREADS: u64 = u64::MAX;

#[inline]
fn wait(thread: &mut Current, turn: &'static Turn, number: u64, word: u64, step: Step) {
    if !turn.reached(number) {
        wait_long(thread, turn, number, word, step);
    }
}

#[cold]
fn wait_long(thread: &mut Current, turn: &'static Turn, number: u64, word: u64, step: Step) {
    let mine = &TURNS[thread.number as usize];
    let policy = thread.sync.waits.waiting;
    if thread.sync.waits.at_once > 0 {
        thread.sync.waits.at_once -= 1;
    } else if policy != Waiting::Wait && processors() > 1 {
        let mut backoffs = 0;
        loop {
            // The later back-offs look less often, to leave the line to the thread that writes it.
            for round in 0..SPINS {
                if round % ROUNDS_PER_PAUSE == 0 {
                    for _ in 0..1u32 << backoffs.min(BACKOFFS_MAX) {
                        std::hint::spin_loop();
                    }
                }
                if turn.reached(number) {
                    if backoffs == 0 {
                        raise(&mine.spun);
                    }
                    return;
                }
            }
            if backoffs == 0 {
                raise(&mine.backed_off);
            }
            backoffs += 1;
            match policy {
                Waiting::Spin => {
                    // SAFETY: no arguments.
                    unsafe { syscall!(libc::SYS_sched_yield) };
                    if backoffs % 1024 == 0 {
                        show(thread, word, number);
                        look(thread, turn, number, word, step, &mut 0);
                        if mode() == Mode::Off {
                            return;
                        }
                    }
                }
                _ if sleeping_is_better(mine) => {
                    thread.sync.waits.at_once = SLEEPS_AT_ONCE;
                    break;
                }
                _ if backoffs > BACKOFFS_MAX => break,
                _ => {}
            }
        }
    }
    sleep(thread, turn, number, word, step);
}

fn raise(counter: &AtomicU32) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(1),
        Ordering::Relaxed,
    );
}

/// The paper's decision between spinning and waiting.
fn sleeping_is_better(mine: &Turn) -> bool {
    let counts = |turn: &Turn| {
        (
            u64::from(turn.backed_off.load(Ordering::Relaxed)),
            u64::from(turn.spun.load(Ordering::Relaxed)),
        )
    };
    let (backed_off, spun) = counts(mine);
    if backed_off <= spun * u64::from(RATIO_HIGH) {
        return false;
    }
    let (all_backed_off, all_spun) = TURNS[..thread::count() as usize]
        .iter()
        .map(counts)
        .fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
    all_backed_off > all_spun * u64::from(RATIO_HIGH)
        || all_backed_off * u64::from(RATIO_LOW) < all_spun
}

fn sleep(thread: &mut Current, turn: &'static Turn, number: u64, word: u64, step: Step) {
    let mine = &TURNS[thread.number as usize];
    mine.waits_for.store(word, Ordering::Relaxed);
    show(thread, word, number);
    let mut circles = 0;
    loop {
        let wakes = turn.wakes.load(Ordering::SeqCst);
        want(turn, number);
        fence_everywhere();
        if turn.reached(number) || mode() == Mode::Off {
            break;
        }
        if futex_wait(&turn.wakes, wakes) == -(libc::ETIMEDOUT as isize) {
            look(thread, turn, number, word, step, &mut circles);
        }
    }
    mine.waits_for.store(0, Ordering::Relaxed);
    thread.show(State::Running, Kind::Edge as u16);
}

fn want(turn: &Turn, number: u64) {
    let mut wanted = turn.wanted.load(Ordering::SeqCst);
    while wanted == 0 || wanted > number {
        match turn
            .wanted
            .compare_exchange(wanted, number, Ordering::SeqCst, Ordering::SeqCst)
        {
            Ok(_) => return,
            Err(other) => wanted = other,
        }
    }
}

/// Tells the launcher for whom the thread waits.
fn show(thread: &Thread, word: u64, number: u64) {
    if let Some(slot) = thread.slot {
        let awaited = if word == ALL_THREADS {
            u64::MAX
        } else {
            u64::from(unpack(word).0)
        };
        slot.awaited_thread.store(awaited, Ordering::Relaxed);
        slot.awaited_acquisition.store(number, Ordering::Relaxed);
    }
    thread.show(State::Waiting, Kind::Edge as u16);
}

/// Whether the wait can still end; does not return when it cannot.
#[cold]
fn look(thread: &mut Current, turn: &Turn, number: u64, word: u64, step: Step, circles: &mut u32) {
    if word == ALL_THREADS {
        return;
    }
    let (owner, acquisition) = unpack(word);
    let Some(other) = thread::by_number(owner) else {
        return;
    };
    if other.ended.load(Ordering::Acquire) && !turn.reached(number) {
        let mut text = Text::<256>::new();
        let _ = write!(
            text,
            "{}({:#x}) waits for acquisition {acquisition} of thread {owner}, which ended after {}",
            step.function,
            step.object,
            acquisitions(owner)
        );
        divergence::diverged(thread, None, Actual::Step(text.as_str()));
    }
    if other.at_end.load(Ordering::Acquire) && !turn.reached(number) {
        // Killed, or left, before the other thread's acquisition was logged.
        if follow::is_leader_lost() {
            return going_on::go_on(thread, Kind::Edge as u16);
        }
        divergence::recording_ends(thread, Kind::Edge as u16);
    }
    *circles = if closes_circle(thread.number) {
        *circles + 1
    } else {
        0
    };
    if *circles >= LOOKS_FOR_CIRCLE {
        let mut text = Text::<256>::new();
        let _ = write!(
            text,
            "{}({:#x}) waits for acquisition {acquisition} of thread {owner}, which made {} and waits in turn, in a circle, for this thread",
            step.function,
            step.object,
            acquisitions(owner)
        );
        divergence::diverged(thread, None, Actual::Step(text.as_str()));
    }
}

/// Whether following whom each thread sleeps for leads back to `start`.
fn closes_circle(start: u32) -> bool {
    let mut at = start;
    for _ in 0..thread::count() {
        let word = TURNS[at as usize].waits_for.load(Ordering::Relaxed);
        let (next, acquisition) = unpack(word);
        if word == 0 || word == ALL_THREADS || TURNS[next as usize].reached(acquisition) {
            return false;
        }
        if next == start {
            return true;
        }
        at = next;
    }
    false
}

fn processors() -> u32 {
    static PROCESSORS: AtomicU32 = AtomicU32::new(0);
    let known = PROCESSORS.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let mut set = [0u64; 16];
    // SAFETY: room for 1024 processors; the kernel writes at most that much.
    let bytes = unsafe {
        syscall!(
            libc::SYS_sched_getaffinity,
            0,
            size_of_val(&set),
            set.as_mut_ptr()
        )
    };
    let found = if bytes > 0 {
        set.iter().map(|word| word.count_ones()).sum::<u32>().max(1)
    } else {
        2
    };
    PROCESSORS.store(found, Ordering::Relaxed);
    found
}

/// Whether the kernel knows that this process asks for fences.
static REGISTERED: AtomicU8 = AtomicU8::new(0);

/// In a process that becomes that of a checkpoint: it has not asked.
pub fn forget_registration() {
    REGISTERED.store(0, Ordering::Relaxed);
}

/// Makes every processor that runs a thread of this process pass a fence. Where the kernel cannot,
/// sleeping for a limited time at once has to do.
fn fence_everywhere() {
    const REGISTER: i32 = 1 << 4;
    const EXPEDITED: i32 = 1 << 3;
    std::sync::atomic::fence(Ordering::SeqCst);
    // SAFETY: numbers only.
    unsafe {
        if REGISTERED.load(Ordering::Relaxed) == 0 {
            syscall!(libc::SYS_membarrier, REGISTER, 0, 0);
            REGISTERED.store(1, Ordering::Relaxed);
        }
        syscall!(libc::SYS_membarrier, EXPEDITED, 0, 0);
    }
}

fn futex_wait(word: &AtomicU32, value: u32) -> isize {
    // A follower looks often enough to notice soon that its leader is lost.
    let look = match follows() {
        true if follow::is_leader_lost() => LOOK_WHEN_LOST_NS,
        true => LOOK_NS / 10,
        false => LOOK_NS,
    };
    let limit = libc::timespec {
        tv_sec: 0,
        tv_nsec: look,
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time limit are alive for the call.
    unsafe {
        syscall!(
            libc::SYS_futex,
            word.as_ptr(),
            operation,
            value,
            &raw const limit
        )
    }
}

fn futex_wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is alive.
    unsafe { syscall!(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
}

/// In a forked child nobody else waits, and nobody else is waited for.
pub fn after_fork_in_child(thread: &Thread) {
    let mine = &TURNS[thread.number as usize];
    mine.wanted.store(0, Ordering::Relaxed);
    mine.waits_for.store(0, Ordering::Relaxed);
    TICKET.acquired.store(0, Ordering::Relaxed);
    TICKET.wanted.store(0, Ordering::Relaxed);
    // The registration of membarrier does not survive a fork on every kernel; repeating it costs
    // nothing.
    let _ = raw::error_of(0);
}
