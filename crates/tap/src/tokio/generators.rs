//! The generator of each thread that the crate `rand` has: it is seeded once, by the first request,
//! and gives numbers to whichever requests run in the thread.
//!
//! ```text
//!   thread_rng, rng    the thread's generator ──▶ what it has left is used up
//!   then               it is asked, and seeds itself anew ──▶ getrandom, for the request
//! ```
//!
//! So what code of a request draws depends on no other request. The function that gives the
//! generator is found by its symbol; the compiler leaves it in one piece, unless the whole program
//! is optimized at once. Where its counters are is looked for in each thread when the generator is
//! new: how many numbers are used, and how many are left until it seeds itself anew. Where they are
//! not found, the generator is as ever.

use std::cell::Cell;

use super::changes::{self, Moves};
use super::frames::Program;
use crate::turns;

/// Versions of `rand` in one program that are told apart.
const VERSIONS: usize = 4;
/// Numbers of 32 bits that it makes at a time.
const NUMBERS: u64 = 64;
/// Words of it in which the counters are, with those of the `Rc` that it is in.
const WORDS: usize = 46;
const BEFORE: usize = 2;

/// Where a generator counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counters {
    /// Of versions 0.8 and 0.9: how many numbers are used; and the bytes until the next seed, as
    /// they are at first and as they are left. By their words.
    Bytes { used: usize, left: usize },
    /// Of version 0.10: the first of the numbers says how many are used, and ChaCha counts its
    /// blocks. By their words.
    Blocks { used: usize, blocks: usize },
}

thread_local! {
    static SEEN: Cell<[(usize, Option<Counters>); VERSIONS]> =
        const { Cell::new([(0, None); VERSIONS]) };
}

/// # Safety
/// The program has not begun.
pub unsafe fn begin(program: &Program) {
    const PLACES: [&[u8]; 2] = [b"4rand4rngs6thread10thread_rng", b"4rand4rngs6thread3rng"];
    for at in PLACES
        .iter()
        .flat_map(|place| program.functions_named(place))
    {
        // SAFETY: as the caller promises. It takes nothing and gives a pointer.
        let _ = unsafe { changes::lead(at, Moves::Calls, given_by) };
    }
}

/// Calls the whole function, and tells what it gives.
fn given_by(whole: usize) -> Vec<u8> {
    let call = |of: usize| [&[0x48, 0xb8][..], &of.to_le_bytes(), &[0xff, 0xd0]].concat();
    [
        // sub rsp, 8
        &[0x48, 0x83, 0xec, 0x08][..],
        &call(whole),
        // mov [rsp], rax; mov rdi, rax
        &[0x48, 0x89, 0x04, 0x24, 0x48, 0x89, 0xc7],
        &call(given as *const () as usize),
        // pop rax; ret
        &[0x58, 0xc3],
    ]
    .concat()
}

/// The program was given this generator, of the thread.
extern "C" fn given(generator: usize) {
    if generator == 0 {
        return;
    }
    let mut seen = SEEN.get();
    let known = seen.iter().position(|(at, _)| [generator, 0].contains(at));
    let Some(place) = known.and_then(|known| seen.get_mut(known)) else {
        return;
    };
    if place.0 == 0 {
        // SAFETY: the function has made it just now, in an `Rc`; what is read lies in it if it has
        // counters, and in the heap if not.
        *place = (
            generator,
            Counters::of(|word| unsafe { *at(generator, word) }),
        );
        SEEN.set(seen);
        return given(generator);
    }
    if let Some(counters) = place.1
        && turns::of_code() != 0
    {
        counters.use_up(generator);
    }
}

fn at(generator: usize, word: usize) -> *mut u64 {
    (generator + word * size_of::<u64>()) as *mut u64
}

impl Counters {
    /// `word`: of a generator that has made no number. They are looked at one after the other, up
    /// to the last one that is needed.
    fn of(word: impl Fn(usize) -> u64) -> Option<Self> {
        const AT_FIRST: u64 = 64 << 10;
        const SAYS_WHAT_IT_IS: [u64; 2] = [0x3320_646e_6170_7865, 0x6b20_6574_7962_2d32];
        const KEY: usize = 4;
        let (mut used, mut left) = (None, None);
        let mut before = 0;
        for n in BEFORE..WORDS {
            let now = word(n);
            match now {
                NUMBERS if used.is_none() => used = Some(n),
                AT_FIRST if before == AT_FIRST => left = Some(n - 1),
                _ => {}
            }
            if let (Some(used), Some(left)) = (used, left) {
                return Some(Self::Bytes { used, left });
            }
            if [before, now] == SAYS_WHAT_IT_IS {
                let blocks = n + 1 + KEY;
                return used.map(|used| Self::Blocks { used, blocks });
            }
            before = now;
        }
        None
    }

    /// What the generator is asked for next it makes of a new seed.
    fn use_up(self, generator: usize) {
        // More than are made of one seed.
        const BLOCKS: u64 = 1 << 16;
        let set = |word, value: u64| {
            // SAFETY: the generator's, which the thread has in its hands and asks nothing yet.
            unsafe { *at(generator, word) = value };
        };
        match self {
            Self::Bytes { used, left } => {
                set(used, NUMBERS);
                set(left, 0);
                set(left + 1, 0);
            }
            Self::Blocks { used, blocks } => {
                // SAFETY: as above. The first number has half of the word.
                unsafe { *at(generator, used).cast::<u32>() = NUMBERS as u32 };
                set(blocks, BLOCKS);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[(usize, u64)], expected: Option<Counters>) {
        let word = |n| words.iter().find(|(at, _)| *at == n).map_or(0, |at| at.1);
        assert_eq!(Counters::of(word), expected);
    }

    #[test]
    fn counters_are_found_where_each_version_has_them() {
        let bytes = |used, left| Some(Counters::Bytes { used, left });
        let of_8 = [(0, 2), (1, 1), (34, 64), (35, 7), (42, 65536), (43, 65536)];
        check(&of_8, bytes(34, 42));
        let of_9 = [(0, 2), (1, 1), (34, 7), (40, 65536), (41, 65536), (42, 64)];
        check(&of_9, bytes(42, 40));
        let says = [(34, 0x3320_646e_6170_7865), (35, 0x6b20_6574_7962_2d32)];
        let blocks = Some(Counters::Blocks {
            used: 2,
            blocks: 40,
        });
        check(&[&says[..], &[(2, 64), (36, 7)]].concat(), blocks);
        check(&says, None);
        check(&[(34, 64), (42, 65536)], None);
    }

    #[test]
    fn what_is_left_of_a_generator_is_used_up() {
        let mut words = [7_u64; WORDS];
        let generator = words.as_mut_ptr() as usize;
        Counters::Bytes { used: 34, left: 42 }.use_up(generator);
        assert_eq!([words[34], words[42], words[43], words[44]], [64, 0, 0, 7]);
        words = [7 << 32; WORDS];
        Counters::Blocks {
            used: 2,
            blocks: 40,
        }
        .use_up(generator);
        assert_eq!(words[2], 7 << 32 | 64);
        assert!(words[40] >= 1024);
    }
}
