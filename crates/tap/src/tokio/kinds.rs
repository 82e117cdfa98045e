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
//! The first three functions of each are replaced by a few instructions that go on to ours, with
//! the one that was there.

use std::ops::Range;

use crate::vectors::{Segment, Vectors};

const PAGE: usize = 4096;
const FUNCTIONS: usize = 7;
/// Words of a table.
const WORDS: usize = FUNCTIONS + 3;
/// Of its functions, those that are changed: they are the first.
const CHANGED: usize = 3;
/// More kinds of tasks than programs have.
const KINDS_MAX: usize = 1 << 14;

/// What the functions are replaced by. Each is called with the task, and the function before.
pub struct Entries {
    pub poll: *const (),
    pub schedule: *const (),
    pub dealloc: *const (),
}

/// Where the program's code is; `None` if there is no table, or it could not be done: then nothing
/// is changed.
///
/// # Safety
/// The program has not begun.
pub unsafe fn change(vectors: &Vectors, entries: &Entries) -> Option<Range<usize>> {
    let bias = vectors.bias()?;
    let of = |one: &Segment| {
        let start = bias.wrapping_add(one.address);
        start..start.wrapping_add(one.memory)
    };
    let segments = vectors.segments();
    let is_code = |one: &&Segment| one.kind == libc::PT_LOAD && one.flags & libc::PF_X != 0;
    let code = of(segments.iter().find(is_code)?);
    // What is relocated when the program is loaded, and constant from then on.
    let constant = of(segments.iter().find(|one| one.kind == libc::PT_GNU_RELRO)?);
    let constant = constant.start.next_multiple_of(size_of::<usize>())..constant.end;
    // SAFETY: the program is mapped there, and nobody else runs.
    let words = unsafe {
        let length = constant.len() / size_of::<usize>();
        std::slice::from_raw_parts(constant.start as *const usize, length)
    };
    let tables: Vec<usize> = tables(words, &code).take(KINDS_MAX).collect();
    if tables.is_empty() {
        return None;
    }
    crate::works::begin()?;
    let at = |table: &usize| constant.start + table * size_of::<usize>();
    let stubs = Stubs::with_room_for(tables.len() * CHANGED)?;
    let last = at(tables.last()?) + WORDS * size_of::<usize>();
    // Where it ends within a page, that page was left as it is.
    let end = last.next_multiple_of(PAGE).min(constant.end & !(PAGE - 1));
    let pages = at(tables.first()?) & !(PAGE - 1)..end;
    // SAFETY: they are the program's constants, of which functions are replaced by such.
    unsafe {
        if !protect(&pages, libc::PROT_READ | libc::PROT_WRITE) {
            return None;
        }
        let ours = [entries.poll, entries.schedule, entries.dealloc];
        let changes = tables
            .iter()
            .flat_map(|table| (0..CHANGED).map(move |nth| (at(table), nth)));
        for (nth_stub, (table, nth)) in changes.enumerate() {
            let function = (table as *mut usize).add(nth);
            *function = stubs.put(nth_stub, *function, ours[nth]);
        }
        protect(&pages, libc::PROT_READ);
    }
    stubs.finish();
    Some(code)
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
        // SAFETY: new memory.
        let at = unsafe {
            let (how, what) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            );
            libc::mmap(std::ptr::null_mut(), length, how, what, -1, 0)
        };
        (at != libc::MAP_FAILED).then_some(Self {
            at: at as usize,
            length,
        })
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

/// # Safety
/// Nobody needs the pages otherwise.
unsafe fn protect(pages: &Range<usize>, how: libc::c_int) -> bool {
    // SAFETY: as the caller promises.
    unsafe { libc::mprotect(pages.start as *mut libc::c_void, pages.len(), how) == 0 }
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
