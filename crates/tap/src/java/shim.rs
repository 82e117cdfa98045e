//! The native methods that Java's own and its libraries' classes call. Generators have made
//! something, and what the request draws is put in its place. Pools of threads are handed work.

use std::cell::Cell;
use std::ffi::CString;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use hindcast_taplog::pins::{Caller, Reads};
use libc::{c_int, c_void};

use super::asker::{asker, caller, is_for_tls, reader};
use super::class::{
    ASKS_MORE, Called as Method, GIVEN, ID_AGAIN, ID_GIVEN, ID_HIGH, ID_LOW, IS_TAKEN, LOOKED,
    NUMBER_OF, PUTS_LOCAL, SEEN_AGAIN, SEEN_ENTITY, SERIES_OF, SHIM, SOURCE, of_natives,
};
use super::machine::{Native, Reference, Thread, tools};
use super::{copies, entities, hashes, ids, local, numbers, seen};
use crate::{pins, starts, turns};

/// What a generator begins with, and what `ThreadLocalRandom` goes on with.
pub const SEED: Method = ("seed", "(J)J");
pub const NEXT_SEED: Method = ("nextSeed", "(J)J");
/// At least 0 and less than 1.
pub const NUMBER: Method = ("number", "(D)D");
/// The generator's own work is no part of the request, until it fills. When it reads a device and
/// the clock depends on what others have drawn.
pub const STEP_ASIDE: Method = ("stepAside", "()V");
pub const STEP_BACK: Method = ("stepBack", "()V");
pub const FILL: Method = ("fill", "([B)V");
pub const FILL_UNLESS_SEEDED: Method = ("fillUnlessSeeded", "(Ljava/lang/Object;[B)V");
pub const WAS_SEEDED: Method = ("wasSeeded", "(Ljava/lang/Object;)V");

/// A calendar is made, and reads the clock: most that are made show another time in the end, and
/// libraries keep them. pgjdbc makes one for times that come as text, and none for binary ones.
pub const MAKES_CALENDAR: Method = ("makesCalendar", "()V");
pub const MADE_CALENDAR: Method = ("madeCalendar", "()V");

/// Work is handed to other threads, and a thread begins and ends some.
pub const HANDED_WORK: Method = ("handedWork", "(Ljava/lang/Object;)V");
pub const BEGINS_WORK: Method = ("beginsWork", "(Ljava/lang/Object;)V");
pub const ENDED_WORK: Method = ("endedWork", "()V");

/// What has waited goes on, in the thread of who lets it.
pub const LETS_GO_ON: Method = ("letsGoOn", "(Ljava/lang/Object;)V");
pub const HAS_LET_GO_ON: Method = ("hasLetGoOn", "()V");
/// Work that is done again and again is for nobody from the second time on.
pub const IS_DONE_AGAIN: Method = ("isDoneAgain", "(Ljava/lang/Object;)V");

/// A loop is done with all that it has read, and looks for work.
pub const LOOPS: Method = ("loops", "()V");

/// What a pool of threads runs that does nothing but run what it is handed: what its threads did
/// before is over.
pub const BEGINS: Method = ("begins", "(Ljava/lang/Object;)V");
pub const ENDED: Method = ("ended", "()V");
/// A part of a computation may run in a thread that works for somebody, and goes on with that.
pub const BEGINS_PART: Method = ("beginsPart", "(Ljava/lang/Object;)V");
pub const ENDED_PART: Method = ("endedPart", "(Ljava/lang/Object;)V");

/// A thread that the machine runs in threads of ours: it is started, goes on in one, and has to
/// wait.
pub const STARTED: Method = ("started", "(Ljava/lang/Object;)V");
pub const GOES_ON: Method = ("goesOn", "(Ljava/lang/Object;)V");
pub const WAITS: Method = ("waits", "(Ljava/lang/Object;)V");

/// A constant of an enum is made, of this name.
pub const MADE_CONSTANT: Method = ("madeConstant", "(Ljava/lang/Object;Ljava/lang/String;)V");

/// How many connections a pool may have.
pub const CONNECTIONS: Method = ("connections", "(I)I");

/// Hibernate numbers an object, asks the database for numbers, and makes one of them.
pub const NUMBERS_FOR: Method = ("numbersFor", "(Ljava/lang/Object;Ljava/lang/Object;)V");
pub const ASKED: Method = ("asked", "(Ljava/lang/Object;)V");

/// Something is put into a cache of the process, and is seen there.
pub const PUTS: Method = (
    "puts",
    "(Ljava/lang/Object;Ljava/lang/Object;Ljava/lang/Object;)V",
);
pub const PUTS_COPY: Method = (
    "putsCopy",
    "(Ljava/lang/Object;Ljava/lang/Object;Ljava/lang/Object;)V",
);
pub const SEEN: Method = (
    "seen",
    "(Ljava/lang/Object;Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;",
);

/// A cache that asks a source is made, is looked into, asks, is waited for, and is given something.
/// What is given for the second is looked into instead.
pub const MADE_CACHE: Method = ("madeCache", "(Ljava/lang/Object;)V");
pub const CACHE_OF: Method = ("cacheOf", "(Ljava/lang/Object;)Ljava/lang/Object;");
pub const ASKS: Method = ("asks", "(Ljava/lang/Object;)V");
pub const AWAITS: Method = ("awaits", "(Ljava/lang/Object;)V");
pub const HAS_GIVEN: Method = ("hasGiven", "(Ljava/lang/Object;Ljava/lang/Object;)V");

/// What stands for methods of the runtime that read the clock, which cannot be patched: they are
/// native, and compiled code reads the clock by itself.
pub const MILLIS: Method = ("currentTimeMillis", "()J");
pub const ADJUSTMENT: Method = ("getNanoTimeAdjustment", "(J)J");

/// How many connections a pool has at least; 0 where nothing is replayed.
pub static NEEDED: AtomicI32 = AtomicI32::new(0);

/// The native methods.
fn all() -> [(Method, *mut c_void); 56] {
    [
        (SEED, seed as *mut c_void),
        (NEXT_SEED, next_seed as *mut c_void),
        (STEP_ASIDE, step_aside as *mut c_void),
        (STEP_BACK, step_back as *mut c_void),
        (MAKES_CALENDAR, makes_calendar as *mut c_void),
        (MADE_CALENDAR, made_calendar as *mut c_void),
        (NUMBER, number as *mut c_void),
        (FILL, fill as *mut c_void),
        (FILL_UNLESS_SEEDED, fill_unless_seeded as *mut c_void),
        (WAS_SEEDED, was_seeded as *mut c_void),
        (HANDED_WORK, handed_work as *mut c_void),
        (BEGINS_WORK, begins_work as *mut c_void),
        (ENDED_WORK, ended_work as *mut c_void),
        (LETS_GO_ON, lets_go_on as *mut c_void),
        (HAS_LET_GO_ON, has_let_go_on as *mut c_void),
        (IS_DONE_AGAIN, is_done_again as *mut c_void),
        (LOOPS, loops as *mut c_void),
        (BEGINS, begins as *mut c_void),
        (ENDED, ended as *mut c_void),
        (BEGINS_PART, begins_part as *mut c_void),
        (ENDED_PART, ended_part as *mut c_void),
        (STARTED, started as *mut c_void),
        (GOES_ON, goes_on as *mut c_void),
        (WAITS, waits as *mut c_void),
        (MADE_CONSTANT, hashes::made_constant as *mut c_void),
        (CONNECTIONS, connections as *mut c_void),
        (NUMBERS_FOR, numbers::numbers_for as *mut c_void),
        (NUMBER_OF, numbers::number_of as *mut c_void),
        (GIVEN, numbers::given as *mut c_void),
        (ASKS_MORE, numbers::asks_more as *mut c_void),
        (ASKED, numbers::asked as *mut c_void),
        (IS_TAKEN, numbers::is_taken as *mut c_void),
        (SERIES_OF, numbers::series_of as *mut c_void),
        (ID_AGAIN, ids::id_again as *mut c_void),
        (ID_HIGH, ids::id_high as *mut c_void),
        (ID_LOW, ids::id_low as *mut c_void),
        (ID_GIVEN, ids::id_given as *mut c_void),
        (PUTS, seen::puts as *mut c_void),
        (PUTS_COPY, seen::puts_copy as *mut c_void),
        (SEEN, seen::seen as *mut c_void),
        (entities::PUTS_ENTITY, entities::puts_there as *mut c_void),
        (SEEN_ENTITY, entities::seen as *mut c_void),
        (local::MADE_LOCAL, local::made_local as *mut c_void),
        (local::SEEN_LOCAL, local::seen as *mut c_void),
        (local::SEEN_TO_COME, local::seen as *mut c_void),
        (PUTS_LOCAL, local::puts as *mut c_void),
        (SEEN_AGAIN, local::seen_again as *mut c_void),
        (SOURCE, local::source as *mut c_void),
        (LOOKED, local::looked as *mut c_void),
        (MADE_CACHE, copies::made_cache as *mut c_void),
        (CACHE_OF, copies::cache_of as *mut c_void),
        (ASKS, copies::asks as *mut c_void),
        (AWAITS, copies::awaits as *mut c_void),
        (HAS_GIVEN, copies::has_given as *mut c_void),
        (MILLIS, millis as *mut c_void),
        (ADJUSTMENT, adjustment as *mut c_void),
    ]
}

/// Makes the class of the native methods.
pub fn define(thread: Thread) -> Option<()> {
    let all = all();
    local::define(thread)?;
    let class = of_natives(SHIM, None, &all.map(|(method, _)| method))?;
    let text = |text: &str| CString::new(text).ok();
    let mut texts = Vec::new();
    for ((name, descriptor), _) in all {
        texts.push((text(name)?, text(descriptor)?));
    }
    let natives: Vec<Native> = texts
        .iter()
        .zip(all)
        .map(|((name, descriptor), (_, function))| Native {
            name: name.as_ptr(),
            descriptor: descriptor.as_ptr(),
            function,
        })
        .collect();
    thread.define(&text(SHIM)?, &class, &natives).map(|_| ())
}

/// Generators that all share and give numbers, each number a draw. They are asked by many, also by
/// libraries that draw now more and now less often, so each is known by itself and by who asks.
/// That costs more than the number itself: so often for a request in a thread.
const THREAD_LOCAL: u16 = 0x746c;
const MATH: u16 = 0x6d61;
const WHO_ASKED_MAX: u32 = 1000;

thread_local! {
    /// A request, and how often it was asked who asks.
    static WHO_ASKED: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
}

/// The next number of such a generator, for a request or outside of one.
fn shared_number(of: u16) -> Option<u64> {
    let request = turns::of_code();
    if request == 0 {
        return number_outside();
    }
    let (before, count) = WHO_ASKED.get();
    let count = if before == request { count } else { 0 };
    WHO_ASKED.set((request, count.saturating_add(1)));
    number_of(match count < WHO_ASKED_MAX {
        true => caller(tools(), u64::from(of)),
        false => Caller(of),
    })
}

/// What the request draws next that the thread works on, as this code; `None`: it works on none, or
/// draws from the kernel.
fn drawn<const N: usize>(caller: Caller) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: there is room for so many bytes.
    unsafe { pins::draw_by(caller, bytes.as_mut_ptr(), bytes.len()) }.then_some(bytes)
}

fn number_of(caller: Caller) -> Option<u64> {
    drawn(caller).map(u64::from_ne_bytes)
}

/// Outside of requests: what the thread draws there, by the code that asks for so many bytes. Names
/// that a program gives itself at its start are made so. It costs more than the number itself, so
/// not for long.
fn drawn_outside<const N: usize>(of: u64) -> Option<[u8; N]> {
    const MAX: u32 = 2000;
    static DRAWN: AtomicU32 = AtomicU32::new(0);
    if pins::is_of_request() || !starts::are_pinned() || DRAWN.load(Ordering::Relaxed) >= MAX {
        return None;
    }
    DRAWN.fetch_add(1, Ordering::Relaxed);
    if is_for_tls(tools()) {
        return None;
    }
    let mut bytes = [0; N];
    // SAFETY: there is room for so many bytes.
    unsafe { pins::draw_for_thread(caller(tools(), of), bytes.as_mut_ptr(), N) }.then_some(bytes)
}

fn number_outside() -> Option<u64> {
    drawn_outside(size_of::<u64>() as u64).map(u64::from_ne_bytes)
}

extern "C" fn seed(_: *mut c_void, _: Reference, given: i64) -> i64 {
    let number = || number_of(caller(tools(), size_of::<i64>() as u64));
    let own = (turns::of_code() != 0).then(number).flatten();
    own.map_or(given, |number| number as i64)
}

extern "C" fn next_seed(_: *mut c_void, _: Reference, given: i64) -> i64 {
    shared_number(THREAD_LOCAL).map_or(given, |number| number as i64)
}

extern "C" fn step_aside(_: *mut c_void, _: Reference) {
    turns::step_aside();
}

extern "C" fn number(_: *mut c_void, _: Reference, given: f64) -> f64 {
    const BITS: u32 = 53;
    shared_number(MATH).map_or(given, |number| {
        (number >> (u64::BITS - BITS)) as f64 / (1u64 << BITS) as f64
    })
}

extern "C" fn step_back(_: *mut c_void, _: Reference) {
    turns::step_back();
}

extern "C" fn makes_calendar(_: *mut c_void, _: Reference) {
    if turns::of_code() != 0 {
        turns::reads_for_library(asker(tools()) as u8);
    }
}

extern "C" fn made_calendar(_: *mut c_void, _: Reference) {
    turns::reads_as_ever();
}

unsafe extern "C" fn fill(thread: *mut c_void, _: Reference, array: Reference) {
    turns::step_back();
    if array.is_null() {
        return;
    }
    // SAFETY: a machine calls with its thread and an array of bytes.
    unsafe {
        let thread = Thread::given(thread);
        let length = thread.length(array);
        let key = match turns::of_code() {
            0 => drawn_outside(length as u64),
            _ => drawn(caller(tools(), length as u64)),
        };
        let Some(key) = key else {
            return;
        };
        let mut generator = ChaCha20Rng::from_seed(key);
        let mut bytes = [0; 512];
        for from in (0..length).step_by(bytes.len()) {
            let left = length.saturating_sub(from).min(bytes.len());
            let Some(part) = bytes.get_mut(..left) else {
                return;
            };
            generator.fill_bytes(part);
            thread.fill(array, from, part);
        }
    }
}

/// Of SHA1PRNG. One that a program has seeded before it drew from it gives what its seed says: some
/// programs compute keys so. What is seeded later is random all the same.
mod mark {
    pub const NONE: i64 = 0;
    pub const DREW: i64 = 1;
    pub const SEEDED: i64 = 2;
}

unsafe extern "C" fn fill_unless_seeded(
    thread: *mut c_void,
    class: Reference,
    generator: Reference,
    array: Reference,
) {
    match tools().mark(generator) {
        mark::SEEDED => return turns::step_back(),
        mark::NONE => tools().set_mark(generator, mark::DREW),
        _ => {}
    }
    // SAFETY: as the machine promises.
    unsafe { fill(thread, class, array) }
}

extern "C" fn was_seeded(_: *mut c_void, _: Reference, generator: Reference) {
    if tools().mark(generator) == mark::NONE {
        tools().set_mark(generator, mark::SEEDED);
    }
}

/// The mark of work that a loop hands over for nobody, as it does once a timer is over.
const NOBODYS: i64 = -1;

/// Work is marked with the request for which it is handed to others; what may be handed over
/// again, for another one or for none, with that.
extern "C" fn handed_work(_: *mut c_void, _: Reference, work: Reference) {
    if !work.is_null() {
        let mark = match turns::loops_for_nobody() {
            true => NOBODYS,
            false => turns::in_hand() as i64,
        };
        tools().set_mark(work, mark);
    }
}

extern "C" fn begins_work(_: *mut c_void, _: Reference, work: Reference) {
    turns::takes(Some(request_of(work)));
}

extern "C" fn ended_work(_: *mut c_void, _: Reference) {
    turns::takes(None);
}

extern "C" fn lets_go_on(_: *mut c_void, _: Reference, what: Reference) {
    turns::lets_go_on(match mark_of(what) {
        0 => None,
        mark => Some(request_of_mark(mark)),
    });
}

extern "C" fn has_let_go_on(_: *mut c_void, _: Reference) {
    turns::has_let_go_on();
}

extern "C" fn is_done_again(_: *mut c_void, _: Reference, work: Reference) {
    if !work.is_null() {
        tools().set_mark(work, 0);
    }
}

extern "C" fn loops(_: *mut c_void, _: Reference) {
    turns::loops();
}

extern "C" fn begins(_: *mut c_void, _: Reference, work: Reference) {
    turns::begins(request_of(work));
}

extern "C" fn ended(_: *mut c_void, _: Reference) {
    turns::ends();
}

fn request_of(work: Reference) -> u64 {
    request_of_mark(mark_of(work))
}

fn request_of_mark(mark: i64) -> u64 {
    match mark {
        NOBODYS => 0,
        mark => mark as u64,
    }
}

/// 0: it has none.
fn mark_of(work: Reference) -> i64 {
    match work.is_null() {
        true => 0,
        false => tools().mark(work),
    }
}

/// While it runs, its mark is what the thread worked on before, and 1.
extern "C" fn begins_part(_: *mut c_void, _: Reference, part: Reference) {
    let request = request_of(part);
    if !part.is_null() {
        let before = turns::taken().map_or(0, |before| before.saturating_add(1));
        tools().set_mark(part, before as i64);
        turns::takes(Some(request));
    }
}

extern "C" fn ended_part(_: *mut c_void, _: Reference, part: Reference) {
    turns::takes(request_of(part).checked_sub(1));
}

extern "C" fn started(_: *mut c_void, _: Reference, thread: Reference) {
    tools().set_mark(thread, turns::packed_work(turns::in_hand()) as i64);
}

extern "C" fn goes_on(_: *mut c_void, _: Reference, thread: Reference) {
    turns::unpack(tools().mark(thread) as u64);
}

extern "C" fn waits(_: *mut c_void, _: Reference, thread: Reference) {
    tools().set_mark(thread, turns::packed() as i64);
    turns::unpack(0);
}

/// In a replay, as many as requests need at a time. One without a limit has none.
extern "C" fn connections(_: *mut c_void, _: Reference, own: c_int) -> c_int {
    match own > 0 {
        true => own.max(NEEDED.load(Ordering::Relaxed)),
        false => own,
    }
}

const NANOS: i64 = 1_000_000_000;

/// In nanoseconds since 1970, as the code sees it that asks.
fn now() -> i64 {
    let of = if turns::of_code() == 0 {
        None
    } else {
        Some(reader(tools()))
    };
    pins::wall_clock_by(of, Reads::Instant)
}

extern "C" fn millis(_: *mut c_void, _: Reference) -> i64 {
    now().div_euclid(NANOS / 1000)
}

/// Nanoseconds since then, a time in seconds; -1: that is too long ago.
extern "C" fn adjustment(_: *mut c_void, _: Reference, since: i64) -> i64 {
    const LONG: i64 = 1 << 32;
    let now = now();
    let seconds = now.div_euclid(NANOS).saturating_sub(since);
    match (-LONG..=LONG).contains(&seconds) {
        true => seconds * NANOS + now.rem_euclid(NANOS),
        false => -1,
    }
}
