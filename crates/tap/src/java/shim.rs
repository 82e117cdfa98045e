//! The native methods that Java's own and its libraries' classes call. Generators have made
//! something, and what the request draws is put in its place. Pools of threads are handed work.

use std::cell::Cell;
use std::ffi::CString;
use std::sync::atomic::{AtomicPtr, Ordering};

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use libc::c_void;

use super::asker::asker;
use super::class::{Called as Method, SHIM, of_natives};
use super::machine::{Native, Reference, Thread, Tools};
use crate::{pins, turns};

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

/// The machine's, for marks.
pub static TOOLS: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Makes the class of the native methods.
pub fn define(thread: Thread) -> Option<()> {
    let all: [(Method, *mut c_void); 13] = [
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
    ];
    let class = of_natives(SHIM, &all.map(|(method, _)| method))?;
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
    thread.define(&text(SHIM)?, &class, &natives)
}

/// Generators that all share and give numbers, each number a draw.
#[derive(Clone, Copy)]
enum Shared {
    ThreadLocal,
    Math,
}

/// Orders that are counted each for itself, if they are not alike modulo this.
const ORDERS: usize = 61;

/// What one thread gives to one request: drawn once for all of it, since how often a generator is
/// asked may depend on others.
struct Given {
    of: Cell<u64>,
    /// Of [`Shared`]; counted on as `SplittableRandom` does it.
    states: [Cell<u64>; 2],
    key: Cell<[u8; 32]>,
    /// How often bytes were given, by who asked for how many.
    counts: [Cell<u32>; ORDERS],
}

thread_local! {
    static GIVEN: Given = const {
        Given {
            of: Cell::new(0),
            states: [const { Cell::new(0) }; 2],
            key: Cell::new([0; 32]),
            counts: [const { Cell::new(0) }; ORDERS],
        }
    };
}

/// What is given to the request that the thread works on; `None`: it works on none, or draws from
/// the kernel.
fn given<T>(give: impl FnOnce(&Given) -> Option<T>) -> Option<T> {
    let request = turns::of_code();
    if request == 0 {
        return None;
    }
    GIVEN.with(|given| {
        if given.of.get() != request {
            let mut bytes = [0; 48];
            // SAFETY: there is room for so many bytes.
            if !unsafe { pins::draw(bytes.as_mut_ptr(), bytes.len()) } {
                return None;
            }
            let (key, states) = bytes.split_first_chunk()?;
            given.key.set(*key);
            for (state, bytes) in given.states.iter().zip(states.as_chunks().0) {
                state.set(u64::from_ne_bytes(*bytes));
            }
            given.counts.iter().for_each(|count| count.set(0));
            given.of.set(request);
        }
        give(given)
    })
}

/// The next number of the request that the thread works on.
fn next(of: Shared) -> Option<u64> {
    given(|given| {
        let place = given.states.get(of as usize)?;
        let state = place.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        place.set(state);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(mixed ^ mixed >> 31)
    })
}

/// What gives the next bytes to who asks the thread for so many.
fn bytes_of(size: usize) -> Option<ChaCha20Rng> {
    given(|given| {
        // Two orders that share a count have no two streams that are the same.
        let order = (asker(tools()) ^ size as u64) as u32;
        let count = given.counts.get(order as usize % ORDERS)?;
        let mut generator = ChaCha20Rng::from_seed(given.key.get());
        generator.set_stream(u64::from(order) << 32 | u64::from(count.get()));
        count.set(count.get().wrapping_add(1));
        Some(generator)
    })
}

extern "C" fn seed(_: *mut c_void, _: Reference, given: i64) -> i64 {
    let generator = bytes_of(size_of::<i64>());
    generator.map_or(given, |mut generator| generator.next_u64() as i64)
}

extern "C" fn next_seed(_: *mut c_void, _: Reference, given: i64) -> i64 {
    next(Shared::ThreadLocal).map_or(given, |number| number as i64)
}

extern "C" fn step_aside(_: *mut c_void, _: Reference) {
    turns::step_aside();
}

extern "C" fn number(_: *mut c_void, _: Reference, given: f64) -> f64 {
    const BITS: u32 = 53;
    next(Shared::Math).map_or(given, |number| {
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
    if array.is_null() || turns::of_code() == 0 {
        return;
    }
    // SAFETY: a machine calls with its thread and an array of bytes.
    unsafe {
        let thread = Thread::given(thread);
        let length = thread.length(array);
        let Some(mut generator) = bytes_of(length) else {
            return;
        };
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

fn tools() -> Tools {
    // SAFETY: a machine gave it before it could call anything here.
    unsafe { Tools::given(TOOLS.load(Ordering::Relaxed)) }
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

/// Work is marked with the request for which it is handed to others; what may be handed over
/// again, for another one or for none, with that.
extern "C" fn handed_work(_: *mut c_void, _: Reference, work: Reference) {
    if !work.is_null() {
        tools().set_mark(work, turns::in_hand() as i64);
    }
}

extern "C" fn begins_work(_: *mut c_void, _: Reference, work: Reference) {
    let is_work = !work.is_null();
    turns::takes(Some(if is_work {
        tools().mark(work) as u64
    } else {
        0
    }));
}

extern "C" fn ended_work(_: *mut c_void, _: Reference) {
    turns::takes(None);
}
