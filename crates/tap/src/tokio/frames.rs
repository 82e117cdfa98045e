//! What code of a program on tokio draws or reads the clock: the functions that it is in, up to the
//! task.
//!
//! Frames are found by what the compiler leaves for unwinding, and functions by the program's
//! symbols. A changed program has other addresses and the same names. In one that is stripped a
//! function is known by where it is: then a changed program asks by other code than the recorded
//! one did.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering};

use hindcast_taplog::pins::{Caller, mixed, mixed_text};

use super::steps::{Known, Steps};
use crate::program::{Sections, number, word};
use crate::{turns, works};

unsafe extern "C-unwind" {
    fn _Unwind_Backtrace(look: extern "C" fn(*mut c_void, *mut c_void) -> c_int, at: *mut c_void);
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
    fn _Unwind_GetRegionStart(context: *mut c_void) -> usize;
}

/// What the function that looks at a frame returns: look at the next one, or be done.
const ON: c_int = 0;
const DONE: c_int = 4;

/// Functions of the program that tell what code asks.
const FUNCTIONS: usize = 8;
/// Frames of others that may be in front of it, or between.
const OTHERS: usize = 16;

static PROGRAM: AtomicPtr<Program> = AtomicPtr::new(std::ptr::null_mut());

/// What is known of the program's functions.
pub struct Program {
    /// How far it is from where its file says.
    bias: usize,
    code: Range<usize>,
    /// By where they begin in the file, with the number of the symbol.
    functions: Vec<(u32, u32)>,
    symbols: &'static [u8],
    names: &'static [u8],
}

const SYMBOL: usize = 24;

/// By what the functions of places in the program's code are known.
static FUNCTIONS_AT: Known = Known::none();

pub fn begin(program: Program) {
    PROGRAM.store(Box::into_raw(Box::new(program)), Ordering::Release);
}

impl Program {
    pub fn of(bias: usize, code: Range<usize>) -> Self {
        let mut program = Self {
            bias,
            code,
            functions: Vec::new(),
            symbols: &[],
            names: &[],
        };
        // One that is stripped has none.
        let _ = program.find_functions();
        program
    }

    /// Where a function begins with these in its name.
    pub fn function(&self, parts: &[&[u8]]) -> Option<usize> {
        let has = |name: &[u8], part: &[u8]| name.windows(part.len()).any(|at| at == part);
        let is = |name: &[u8]| parts.iter().all(|part| has(name, part));
        let mut all = self.functions.iter();
        let (begins, _) = all.find(|(_, nth)| self.name(*nth).is_some_and(is))?;
        Some(self.bias.wrapping_add(*begins as usize))
    }

    /// Where the functions begin whose names end with this, but for a hash; one for each version
    /// of what they are in.
    pub fn functions_named(&self, ends: &[u8]) -> Vec<usize> {
        let is = |name: &[u8]| without_hash(name).ends_with(ends);
        let all = self.functions.iter();
        all.filter(|(_, nth)| self.name(*nth).is_some_and(is))
            .map(|(begins, _)| self.bias.wrapping_add(*begins as usize))
            .collect()
    }

    fn find_functions(&mut self) -> Option<()> {
        const FUNCTION: u8 = 2;
        let sections = Sections::of_program()?;
        let table = sections.find(&[b".symtab"])?;
        let names = sections.get(table.link)?;
        self.symbols = sections.map(&table)?;
        self.names = sections.map(&names)?;
        for (nth, symbol) in self.symbols.chunks_exact(SYMBOL).enumerate() {
            let is_function = symbol.get(4).is_some_and(|kind| kind & 0xf == FUNCTION);
            let begins = word(symbol, 8).filter(|&begins| is_function && begins != 0);
            let place = begins.and_then(|begins| u32::try_from(begins).ok());
            self.functions.extend(place.zip(u32::try_from(nth).ok()));
        }
        // Of several at one place the first counts: which one that is, the linker has said.
        self.functions.sort_unstable();
        self.functions.dedup_by_key(|(begins, _)| *begins);
        Some(())
    }

    /// By what a function is known that is running at `at`, and begins at `start`. A place is
    /// looked up once: names are long.
    fn known(&self, at: usize, start: usize) -> u64 {
        FUNCTIONS_AT.get(at).unwrap_or_else(|| {
            let hash = self.look_up(at, start);
            FUNCTIONS_AT.set(at, hash);
            hash
        })
    }

    fn look_up(&self, at: usize, start: usize) -> u64 {
        let place = |address: usize| address.wrapping_sub(self.bias);
        self.name_at(place(at))
            .map_or(place(start) as u64, |name| mixed_text(0, name))
    }

    fn name_at(&self, place: usize) -> Option<&'static [u8]> {
        let place = u32::try_from(place).ok()?;
        let behind = self
            .functions
            .partition_point(|(begins, _)| *begins <= place);
        let (begins, nth) = *self.functions.get(behind.checked_sub(1)?)?;
        let length = word(self.symbol(nth)?, 16)?;
        match (place - begins) as usize >= length.max(1) {
            true => None,
            false => Some(without_hash(self.name(nth)?)),
        }
    }

    fn symbol(&self, nth: u32) -> Option<&'static [u8]> {
        self.symbols.get((nth as usize).checked_mul(SYMBOL)?..)
    }

    fn name(&self, nth: u32) -> Option<&'static [u8]> {
        let name = self.names.get(number(self.symbol(nth)?, 0)? as usize..)?;
        name.get(..name.iter().position(|&byte| byte == 0)?)
    }
}

/// A mangled name ends with a hash, which is another one in each build: `17h…E`, and what the
/// linker's optimizer has put behind that.
fn without_hash(name: &[u8]) -> &[u8] {
    const DIGITS: usize = 16;
    let is_hash = |at: &[u8]| {
        let digits = at.strip_prefix(b"17h");
        digits.is_some_and(|digits| {
            digits.get(DIGITS) == Some(&b'E') && digits[..DIGITS].iter().all(u8::is_ascii_hexdigit)
        })
    };
    let ends = (0..name.len()).rev().find(|&at| is_hash(&name[at..]));
    ends.map_or(name, |end| &name[..end])
}

/// What was seen of the frames so far.
struct Frames {
    program: &'static Program,
    hash: u64,
    functions: usize,
    others: usize,
    steps: Steps,
}

impl Frames {
    /// `place`: in the frame of the function that looks.
    fn new(program: &'static Program, line: u64, place: usize) -> Self {
        Self {
            program,
            hash: line,
            functions: 0,
            // Who looks.
            others: 1,
            steps: Steps::from(place),
        }
    }

    /// A frame that returns to there: one of the program's functions, as `known` says, or of
    /// another's. Returns whether the next one is to be looked at.
    fn look(&mut self, returns: usize, known: impl FnOnce(usize) -> Option<u64>) -> Option<bool> {
        // It may return to behind a function that does not.
        let at = returns.wrapping_sub(1);
        match self.program.code.contains(&at) {
            true => {
                self.hash = mixed(self.hash, known(at)?);
                self.functions += 1;
            }
            // Ours, by which the task runs, or a library that has called it.
            false if self.functions > 0 => return Some(false),
            false => self.others += 1,
        }
        Some(self.functions < FUNCTIONS && self.others < OTHERS)
    }

    /// All of them, if they are as the unwinder has found some before.
    fn look_up_the_stack(&mut self) -> Option<u64> {
        loop {
            let returns = self.steps.next()?;
            if !self.look(returns, |at| FUNCTIONS_AT.get(at))? {
                return self.steps.are_known().then_some(self.hash);
            }
        }
    }
}

/// A frame, and all of them so far: the first is of who looks.
struct Unwound {
    frames: Frames,
    began: bool,
}

extern "C" fn look(context: *mut c_void, unwound: *mut c_void) -> c_int {
    // SAFETY: what `unwind` has given.
    let unwound = unsafe { &mut *unwound.cast::<Unwound>() };
    if !std::mem::replace(&mut unwound.began, true) {
        return ON;
    }
    let frames = &mut unwound.frames;
    // SAFETY: what the unwinder has given.
    let (returns, start, behind) = unsafe {
        (
            _Unwind_GetIP(context),
            _Unwind_GetRegionStart(context),
            _Unwind_GetCFA(context),
        )
    };
    frames
        .steps
        .learn(returns, behind.wrapping_sub(size_of::<usize>()));
    let program = frames.program;
    match frames.look(returns, |at| Some(program.known(at, start))) {
        Some(true) => ON,
        _ => {
            frames.steps.become_known();
            DONE
        }
    }
}

/// What code asks, in a task or in a thread that runs tasks; `None`: the program is none of tokio,
/// or it works on no request here.
pub fn caller() -> Option<Caller> {
    if turns::current() == 0 {
        return None;
    }
    // SAFETY: it is set once, and stays.
    let program = unsafe { PROGRAM.load(Ordering::Acquire).as_ref() }?;
    Some(Caller::of(hash(program, works::line(super::running()))))
}

/// It has a frame of its own, at the same place of which each walk begins.
#[inline(never)]
fn hash(program: &'static Program, line: u64) -> u64 {
    let mut place = 0_usize;
    let place = (&raw mut place) as usize;
    let known = Frames::new(program, line, place).look_up_the_stack();
    known.unwrap_or_else(|| {
        let frames = Frames::new(program, line, place);
        let mut unwound = Unwound {
            frames,
            began: false,
        };
        // SAFETY: the function takes what it is given here.
        unsafe { _Unwind_Backtrace(look, (&raw mut unwound).cast()) };
        unwound.frames.hash
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_known_by_its_name_in_each_build() {
        let name = b"_ZN5hyper5proto2h14role6Server17h0123456789abcdefE";
        assert_eq!(without_hash(name), b"_ZN5hyper5proto2h14role6Server");
        let optimized = b"_ZN5tokio4poll17h25622176752eeddfE.llvm.10421135154880654134";
        assert_eq!(without_hash(optimized), b"_ZN5tokio4poll");
        for other in [
            &b"main"[..],
            b"_RNvCs1234_7mycrate3foo",
            b"_ZN17harmlessE",
            b"",
        ] {
            assert_eq!(without_hash(other), other);
        }
    }
}
