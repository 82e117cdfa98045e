//! Which of the program's methods asks a generator, as a number that is the same whenever the
//! program runs.
//!
//! How often a request asks depends on others: the first that logs in has a salt made for all, a
//! server has a generator made where all it has are in use. That must not shift what the key of a
//! session is made of. So each asker has an order of its own.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::machine::Tools;

/// How deep it is looked for, and how many of the program's methods count.
const DEPTH: usize = 12;
const COUNTED: usize = 2;

/// Methods that were looked at before.
const KNOWN: usize = 1 << 10;

struct Known {
    method: AtomicUsize,
    number: AtomicU64,
}

static ALL_KNOWN: [Known; KNOWN] = [const {
    Known {
        method: AtomicUsize::new(0),
        number: AtomicU64::new(0),
    }
}; KNOWN];

/// Of the runtime itself.
const NOT_COUNTED: u64 = 0;

/// Who asks, the runtime's own methods left out.
pub fn asker(tools: Tools) -> u64 {
    let (methods, count) = tools.methods::<DEPTH>();
    let numbers = methods
        .iter()
        .take(count)
        .map(|&method| number(tools, method));
    let counted = numbers
        .filter(|&number| number != NOT_COUNTED)
        .take(COUNTED);
    counted.fold(0, |all, number| mixed(all ^ number))
}

fn number(tools: Tools, method: usize) -> u64 {
    let place = ALL_KNOWN.get((method >> 3) % KNOWN);
    let Some(known) = place else {
        return NOT_COUNTED;
    };
    if known.method.load(Ordering::Acquire) == method {
        return known.number.load(Ordering::Relaxed);
    }
    // SAFETY: the thread is in this method.
    let number = unsafe { tools.names(method, of_names) }.unwrap_or(NOT_COUNTED);
    // Where two methods have one place, the first keeps it.
    let mine = known
        .method
        .compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
    if mine.is_ok() {
        known.number.store(number, Ordering::Relaxed);
        known.method.store(method, Ordering::Release);
    }
    number
}

fn of_names(class: &[u8], method: &[u8]) -> u64 {
    const RUNTIME: [&[u8]; 4] = [b"Ljava/", b"Ljdk/", b"Lsun/", b"Lcom/sun/"];
    if RUNTIME.iter().any(|runtime| class.starts_with(runtime)) {
        return NOT_COUNTED;
    }
    // Behind it stands what is counted when the class is made.
    let made = class.windows(2).position(|two| two == b"$$");
    let class = made.and_then(|at| class.get(..at)).unwrap_or(class);
    let bytes = class.iter().chain(b".").chain(method);
    bytes.fold(1, |hash, &byte| mixed(hash ^ u64::from(byte))) | 1
}

fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}
