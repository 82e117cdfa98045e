//! Numbers by which a machine tells objects from others (`System.identityHashCode`), of those that
//! are the same in each run: classes and the constants of enums. They have no other hash, so a map
//! or a set of them is gone through in an order that each run has anew. Here their names give the
//! numbers.
//!
//! HotSpot draws such a number when an object is first asked for it, from a generator of the thread
//! (Marsaglia's, four words). So the thread's words are exchanged, the object is asked, and they
//! are put back: the machine does what it always does, and others get what they would have got.
//!
//! ```text
//!   an object is asked once ──▶ found      where the words are, behind which the thread's way is
//!   a class is there        ──▶ give       words that give its number; it is asked; its own words
//!   Enum's constructor      ──▶
//! ```
//!
//! **The invariant to keep**: words are written only where the generator's step was seen.

use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{c_int, c_void};

use super::asker::hash;
use super::machine::{Reference, Thread, Tools, tools};

/// How far in front of a thread's way into the machine its words are; 0: it is not known.
static BEFORE: AtomicUsize = AtomicUsize::new(0);

/// How far in front they are looked for.
const WINDOW: usize = 4096;
const WORD: usize = size_of::<u32>();
/// What a machine keeps of a number.
const KEPT: u32 = 0x7fff_ffff;

/// The words as they lie in memory: the last number is the first of them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Words([u32; 4]);

impl Words {
    /// Those after the next number.
    fn next(self) -> Self {
        let Self([last, first, second, third]) = self;
        let mixed = first ^ first << 11;
        let next = (last ^ last >> 19) ^ (mixed ^ mixed >> 8);
        Self([next, second, third, last])
    }

    /// Those whose next number is this one.
    fn giving(number: u32) -> Self {
        Self([number ^ number >> 19, 0, 0, 0])
    }
}

/// Finds the words, and numbers all classes that there are, and are to come.
pub fn begin(thread: Thread, tools: Tools, object: Reference) -> Option<()> {
    let window = |bytes: &mut [u8]| read(thread.address().checked_sub(WINDOW)?, bytes);
    let (mut before, mut behind) = ([0; WINDOW], [0; WINDOW]);
    window(&mut before)?;
    let hash = tools.hash_of(object)?;
    window(&mut behind)?;
    BEFORE.store(found(&before, &behind, hash)?, Ordering::Relaxed);
    tools.tell_classes(|class| named(thread, tools, class))
}

/// How far from the end of both the words are.
fn found(before: &[u8], behind: &[u8], hash: c_int) -> Option<usize> {
    let at = |bytes: &[u8], at| bytes.get(at..).and_then(<[u8]>::first_chunk).map(words);
    let steps = |&from: &usize| {
        let (Some(before), Some(behind)) = (at(before, from), at(behind, from)) else {
            return false;
        };
        let Words([number, ..]) = behind;
        behind == before.next() && (number & KEPT) as c_int == hash
    };
    let mut all = (0..before.len()).step_by(WORD).filter(steps);
    let only = all.next()?;
    all.next().is_none().then(|| before.len() - only)
}

fn words(bytes: &[u8; 4 * WORD]) -> Words {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<WORD>().0) {
        *word = u32::from_ne_bytes(*bytes);
    }
    Words(words)
}

/// Reads memory that need not be there.
fn read(from: usize, bytes: &mut [u8]) -> Option<()> {
    let ours = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let theirs = libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(from),
        iov_len: bytes.len(),
    };
    // SAFETY: what is written to is as long as is said; of what is read the kernel takes care.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &ours, 1, &theirs, 1, 0) };
    (usize::try_from(read) == Ok(bytes.len())).then_some(())
}

/// Gives an object its number, unless it has one. Its thread is the one that calls.
fn give(thread: Thread, tools: Tools, object: Reference, number: u32) {
    let before = BEFORE.load(Ordering::Relaxed);
    if before == 0 {
        return;
    }
    let place = thread.address() - before;
    let words: *mut Words = std::ptr::with_exposed_provenance_mut(place);
    // SAFETY: there they are in each of the machine's threads, and only the thread uses them.
    unsafe {
        let own = words.read_volatile();
        words.write_volatile(Words::giving(number));
        tools.hash_of(object);
        words.write_volatile(own);
    }
}

fn number(of: &[u8]) -> u32 {
    let hash = hash(of);
    let number = (hash ^ hash >> 32) as u32 & KEPT;
    // An object without a number has 0.
    number.max(1)
}

/// A class gets the number of its name. One that is made while the program runs has a place in
/// memory as a part of its name, behind a point.
fn named(thread: Thread, tools: Tools, class: Reference) {
    // SAFETY: it is a class.
    let number =
        unsafe { tools.name_of(class, |name| (!name.contains(&b'.')).then(|| number(name))) };
    if let Some(number) = number.flatten() {
        give(thread, tools, class, number);
    }
}

/// There is another class.
pub unsafe extern "C" fn loads(
    tools: *mut c_void,
    thread: *mut c_void,
    _: Reference,
    class: Reference,
) {
    // SAFETY: as the machine promises.
    unsafe { named(Thread::given(thread), Tools::given(tools), class) }
}

/// A constant of an enum is made, which has this name.
pub unsafe extern "C" fn made_constant(
    thread: *mut c_void,
    _: Reference,
    constant: Reference,
    name: Reference,
) {
    if BEFORE.load(Ordering::Relaxed) == 0 || name.is_null() {
        return;
    }
    // SAFETY: as the machine promises, and the name is a string.
    unsafe {
        let thread = Thread::given(thread);
        let class = thread.class_of(constant);
        let of_class = tools().name_of(class, number);
        let of_name = thread.text(name, number);
        if let (Some(class), Some(name)) = (of_class, of_name) {
            let both = [class.to_ne_bytes(), name.to_ne_bytes()].concat();
            give(thread, tools(), constant, number(&both));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_give_the_number_that_they_were_made_for() {
        for wanted in [1, 2, 0x1234_5678, KEPT] {
            let Words([next, ..]) = Words::giving(wanted).next();
            assert_eq!(next, wanted);
        }
    }

    #[test]
    fn the_words_are_where_their_step_is_seen() {
        let own = Words([273_326_509, 7, 842_502_087, 0x8767]);
        let Words([number, ..]) = own.next();
        let memory = |Words(words): Words| {
            let mut bytes = [0xa5; 64];
            for (at, word) in (12..).step_by(WORD).zip(words) {
                bytes[at..][..WORD].copy_from_slice(&word.to_ne_bytes());
            }
            bytes
        };
        let (before, behind) = (memory(own), memory(own.next()));
        let hash = (number & KEPT) as c_int;
        assert_eq!(found(&before, &behind, hash), Some(64 - 12));
        assert_eq!(found(&before, &behind, hash ^ 1), None);
        assert_eq!(found(&before, &before, hash), None);
    }
}
