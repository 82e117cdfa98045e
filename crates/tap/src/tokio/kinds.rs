//! The tables of tokio's tasks, as the compiler leaves them in the program's constants:
//!
//! ```text
//!   poll   schedule   dealloc   try_read_output   drop_join_handle_slow   drop_abort_handle
//!   shutdown   where the trailer is   where the scheduler is   where the id is
//! ```
//!
//! Seven functions, and three distances within a task: nothing else looks like that. So they are
//! found in a stripped program, too. Of a program that is linked otherwise, or of a tokio whose
//! tasks have no ids (before 1.23), nothing is found and nothing is changed.
//!
//! Functions that stand in constants are replaced by a few instructions that go on to ours, with
//! the one that was there.

use std::ops::Range;

use crate::memory::{self, protect};
use crate::vectors::{Segment, Vectors};

const PAGE: usize = 4096;
const WORD: usize = size_of::<usize>();
const FUNCTIONS: usize = 7;
/// Words of a table.
const WORDS: usize = FUNCTIONS + 3;
/// More kinds of tasks than programs have.
const KINDS_MAX: usize = 1 << 14;

/// What takes the place of a function: it is called with the task, and the function before.
pub type Ours = *const ();

/// What is relocated when the program is loaded, and constant from then on.
pub struct Constants {
    pub code: Range<usize>,
    start: usize,
    end: usize,
    words: &'static [usize],
}

impl Constants {
    /// # Safety
    /// The program has not begun.
    pub unsafe fn of(vectors: &Vectors) -> Option<Self> {
        let bias = vectors.bias()?;
        let of = |one: &Segment| {
            let start = bias.wrapping_add(one.address);
            start..start.wrapping_add(one.memory)
        };
        let segments = vectors.segments();
        let is_code = |one: &&Segment| one.kind == libc::PT_LOAD && one.flags & libc::PF_X != 0;
        let of_relro = |one: &&Segment| one.kind == libc::PT_GNU_RELRO;
        let (code, constant) = (
            of(segments.iter().find(is_code)?),
            of(segments.iter().find(of_relro)?),
        );
        let start = constant.start.next_multiple_of(WORD);
        let length = constant.end.checked_sub(start)? / WORD;
        Some(Self {
            code,
            start,
            end: constant.end,
            // SAFETY: the program is mapped there, and nobody else runs.
            words: unsafe { std::slice::from_raw_parts(start as *const usize, length) },
        })
    }

    /// Where the tables of tasks are.
    pub fn tables(&self) -> Vec<usize> {
        let all = tables(self.words, &self.code).take(KINDS_MAX);
        all.map(|at| self.start + at * WORD).collect()
    }

    /// Where these two functions stand one behind the other.
    pub fn pair(&self, functions: [usize; 2]) -> Option<usize> {
        let at = self.words.windows(2).position(|two| two == functions)?;
        Some(self.start + at * WORD)
    }

    /// Replaces the functions that stand at these places; false: none of them.
    ///
    /// # Safety
    /// They are of the kind that ours are for.
    pub unsafe fn replace(&self, places: &[(usize, Ours)]) -> bool {
        let all = || places.iter().map(|(place, _)| *place);
        let (Some(first), Some(last)) = (all().min(), all().max()) else {
            return false;
        };
        // Where they end within a page, that page was left as it is.
        let end = (last + WORD)
            .next_multiple_of(PAGE)
            .min(self.end & !(PAGE - 1));
        let pages = first & !(PAGE - 1)..end;
        let Some(stubs) = Stubs::with_room_for(places.len()) else {
            return false;
        };
        // SAFETY: the program's constants, of which functions are replaced by such.
        unsafe {
            if !pages.is_empty() && !protect(&pages, libc::PROT_READ | libc::PROT_WRITE) {
                return false;
            }
            for (nth, (place, ours)) in places.iter().enumerate() {
                let function = *place as *mut usize;
                *function = stubs.put(nth, *function, *ours);
            }
            stubs.finish();
            pages.is_empty() || protect(&pages, libc::PROT_READ)
        }
    }
}

/// Where tables begin among these words.
fn tables<'a>(words: &'a [usize], code: &'a Range<usize>) -> impl Iterator<Item = usize> + 'a {
    /// What is in front of the scheduler: the state, the queue, the table, the owner, and what
    /// versions have besides.
    const HEADER: Range<usize> = 0x18..0x81;
    /// The scheduler is a pointer at most.
    const SCHEDULER: usize = 16;
    const LARGEST: usize = 1 << 28;
    let all = words.windows(WORDS).enumerate();
    let found = all.filter(move |(_, words)| {
        let [trailer, scheduler, id] =
            [words[FUNCTIONS], words[FUNCTIONS + 1], words[FUNCTIONS + 2]];
        HEADER.contains(&scheduler)
            && id >= scheduler
            && id - scheduler <= SCHEDULER
            && (id + 8..LARGEST).contains(&trailer)
            && [trailer, scheduler, id].iter().all(|at| at % 8 == 0)
            && words[..FUNCTIONS]
                .iter()
                .all(|function| code.contains(function))
    });
    found.map(|(at, _)| at)
}

/// Memory with a few instructions for each function that is replaced.
struct Stubs {
    at: usize,
    length: usize,
}

/// `mov rsi, the function before`, `mov rax, ours`, `jmp rax`.
const STUB: usize = 32;

impl Stubs {
    fn with_room_for(count: usize) -> Option<Self> {
        let length = count.checked_mul(STUB)?;
        let at = memory::fresh(length)? as usize;
        Some(Self { at, length })
    }

    /// # Safety
    /// There is room for it.
    unsafe fn put(&self, nth: usize, before: usize, ours: *const ()) -> usize {
        let at = self.at + nth * STUB;
        let mut code = [0xcc; STUB];
        code[..2].copy_from_slice(&[0x48, 0xbe]);
        code[2..10].copy_from_slice(&before.to_le_bytes());
        code[10..12].copy_from_slice(&[0x48, 0xb8]);
        code[12..20].copy_from_slice(&(ours as usize).to_le_bytes());
        code[20..22].copy_from_slice(&[0xff, 0xe0]);
        // SAFETY: as the caller promises.
        unsafe { (at as *mut u8).copy_from_nonoverlapping(code.as_ptr(), STUB) };
        at
    }

    fn finish(&self) {
        // SAFETY: the memory is ours.
        unsafe {
            protect(
                &(self.at..self.at + self.length),
                libc::PROT_READ | libc::PROT_EXEC,
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_seven_functions_and_three_distances() {
        let code = 0x1000..0x2000;
        let functions = [0x1100, 0x1140, 0x1180, 0x11c0, 0x1200, 0x1240, 0x1280];
        let table = |distances: [usize; 3]| [&functions[..], &distances].concat();
        let found = |words: &[usize]| tables(words, &code).collect::<Vec<_>>();
        let two = [
            vec![0x1100, 24, 8],
            table([568, 32, 40]),
            table([592, 32, 32]),
            vec![0x1100],
        ];
        assert_eq!(found(&two.concat()), [3, 13]);
        // Of a trait's objects: size and alignment, and functions.
        assert!(found(&[&functions[..], &[0, 24, 8], &functions[..]].concat()).is_empty());
        assert!(found(&[&functions[..], &[0x1100, 40, 8], &functions[..]].concat()).is_empty());
        let mut other = table([568, 32, 40]);
        other[3] = 0x3000;
        assert!(found(&other).is_empty());
    }
}
