//! The program's functions, as Go's linker has noted them for the runtime's own tracebacks.
//!
//! ```text
//!   section headers (in the file) ──▶ .gopclntab, .text
//!   pclntab    header   names of functions   …   (entry, where it is described) of each, in order
//! ```
//!
//! Entries count from the beginning of Go's code. Up to Go 1.25 the table says where that is; it is
//! also known by where [`SYSCALL`] is, whose bytes are the same in each version.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use hindcast_taplog::pins::mixed_text;

use crate::program::{Sections, number, word};
use crate::vectors::Vectors;

/// Of Go 1.20 and later.
const MAGIC: u32 = 0xffff_fff1;
/// What makes a system call: the arguments into the kernel's registers, the call, and its result
/// compared with the last error.
pub const SYSCALL: [u8; 20] = [
    0x49, 0x89, 0xf2, 0x48, 0x89, 0xfa, 0x48, 0x89, 0xce, 0x48, 0x89, 0xdf, 0x0f, 0x05, 0x48, 0x3d,
    0x01, 0xf0, 0xff, 0xff,
];

/// Functions that are looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Function {
    Syscall,
    Now,
    NewGoroutine,
    Random,
    Since,
    Until,
}

const FUNCTIONS: usize = 6;

impl Function {
    fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            // It has moved twice.
            b"internal/runtime/syscall/linux.Syscall6"
            | b"internal/runtime/syscall.Syscall6"
            | b"runtime/internal/syscall.Syscall6" => Self::Syscall,
            b"time.now" => Self::Now,
            b"runtime.newproc1" => Self::NewGoroutine,
            b"runtime.rand" => Self::Random,
            b"time.Since" => Self::Since,
            b"time.Until" => Self::Until,
            _ => return None,
        })
    }
}

pub struct Image {
    /// Where Go's code begins.
    text: usize,
    /// What describes a function counts from here.
    functions: &'static [u8],
    count: usize,
    names: &'static [u8],
    found: Vec<(Function, u32)>,
    known: Box<[AtomicU64]>,
}

/// A function's name as a hash, and whether what it asks the runtime's generator for is the
/// program's. Never 0.
#[derive(Clone, Copy)]
pub struct Known(u32);

const IS_KNOWN: u32 = 1;
const DRAWS: u32 = 2;

impl Known {
    fn named(name: &[u8]) -> Self {
        // Others have a table made, which Go's compiler does in their own code, or `sync` for them.
        const DRAWING: [&[u8]; 6] = [
            b"math/rand",
            b"hash/maphash.",
            b"os.",
            b"net.",
            b"runtime.fastrand",
            b"runtime.legacy_fastrand",
        ];
        let draws = DRAWING.iter().any(|own| name.starts_with(own));
        let draws = if draws { DRAWS } else { 0 };
        Self(mixed_text(0, name) as u32 & !(IS_KNOWN | DRAWS) | IS_KNOWN | draws)
    }

    pub fn hash(self) -> u64 {
        u64::from(self.0)
    }

    pub fn draws(self) -> bool {
        self.0 & DRAWS != 0
    }
}

/// Names that are kept; a power of two.
const KNOWN: usize = 1 << 12;

/// A part of the program's memory.
struct Part {
    start: usize,
    length: usize,
}

impl Part {
    /// # Safety
    /// The program is mapped there, and is not changed.
    unsafe fn bytes(&self) -> &'static [u8] {
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts(self.start as *const u8, self.length) }
    }
}

impl Image {
    /// `None` if it is none of Go's, or of a version that is not known.
    pub fn of_program(vectors: &Vectors) -> Option<Self> {
        let bias = vectors.is_go()?;
        let (table, code) = sections(bias)?;
        // SAFETY: sections of the program that it needs to run.
        let (table, code) = unsafe { (table.bytes(), (code.start, code.bytes())) };
        Self::of(table, code)
    }

    /// `code`: where it is, and its bytes.
    fn of(table: &'static [u8], code: (usize, &[u8])) -> Option<Self> {
        if number(table, 0)? != MAGIC || *table.get(7)? != 8 {
            return None;
        }
        let mut image = Self {
            text: 0,
            functions: table.get(word(table, 64)?..)?,
            count: word(table, 8)?,
            names: table.get(word(table, 32)?..)?,
            found: Vec::new(),
            known: (0..KNOWN).map(|_| AtomicU64::new(0)).collect(),
        };
        for nth in 0..image.count {
            let (entry, name) = image.function(nth)?;
            let function = Function::named(name).map(|function| (function, entry));
            image.found.extend(function);
            if image.found.len() == FUNCTIONS {
                break;
            }
        }
        let at = code.1.windows(SYSCALL.len()).position(|at| at == SYSCALL)?;
        image.text = code
            .0
            .checked_add(at)?
            .checked_sub(image.entry(Function::Syscall)? as usize)?;
        Some(image)
    }

    fn entry(&self, function: Function) -> Option<u32> {
        let mut all = self.found.iter();
        all.find(|(of, _)| *of == function).map(|(_, entry)| *entry)
    }

    /// Where a function begins.
    pub fn address(&self, function: Function) -> Option<usize> {
        self.text.checked_add(self.entry(function)? as usize)
    }

    /// Functions of which this gives something for their name, and where they begin.
    pub fn all<T>(&self, of: impl Fn(&[u8]) -> Option<T>) -> Vec<(usize, T)> {
        let one = |nth| {
            let (entry, name) = self.function(nth)?;
            Some((self.text.checked_add(entry as usize)?, of(name)?))
        };
        (0..self.count).filter_map(one).collect()
    }

    /// Where they end, too.
    pub fn all_ranges<T>(&self, of: impl Fn(&[u8]) -> Option<T>) -> Vec<(Range<usize>, T)> {
        let all = self.all(of).into_iter();
        all.filter_map(|(start, found)| Some((start..self.end(start)?, found)))
            .collect()
    }

    pub fn range(&self, function: Function) -> Option<Range<usize>> {
        let start = self.address(function)?;
        Some(start..self.end(start)?)
    }

    /// Where the function ends that begins there.
    fn end(&self, start: usize) -> Option<usize> {
        let entry = u32::try_from(start.checked_sub(self.text)?).ok()?;
        let next = self.number_at(entry)?.checked_add(1)?;
        self.text.checked_add(self.begins(next)? as usize)
    }

    /// The entry of a function, and its name.
    fn function(&self, nth: usize) -> Option<(u32, &'static [u8])> {
        let at = nth.checked_mul(8)?.checked_add(4)?;
        let described = number(self.functions, at)? as usize;
        let name = number(self.functions, described.checked_add(4)?)? as usize;
        let name = CStr::from_bytes_until_nul(self.names.get(name..)?).ok()?;
        Some((self.begins(nth)?, name.to_bytes()))
    }

    /// Where the function of this number begins, and the one before it ends.
    fn begins(&self, nth: usize) -> Option<u32> {
        number(self.functions, nth.checked_mul(8)?)
    }

    /// The function that an address is in; `None`: it is in none.
    pub fn function_at(&self, address: usize) -> Option<Known> {
        let offset = u32::try_from(address.checked_sub(self.text)?).ok()?;
        let place = self.known.get(offset as usize & (KNOWN - 1))?;
        // Half of it says which address it is of.
        let known = place.load(Ordering::Relaxed);
        if known >> 32 == u64::from(offset) && known as u32 != 0 {
            return Some(Known(known as u32));
        }
        let known = Known::named(self.find(offset)?);
        place.store(
            u64::from(offset) << 32 | u64::from(known.0),
            Ordering::Relaxed,
        );
        Some(known)
    }

    fn find(&self, offset: u32) -> Option<&'static [u8]> {
        Some(self.function(self.number_at(offset)?)?.1)
    }

    /// The number of the function that is there.
    fn number_at(&self, offset: u32) -> Option<usize> {
        let (mut low, mut high) = (0, self.count);
        if offset >= self.begins(high)? {
            return None;
        }
        while high.checked_sub(low)? > 1 {
            let middle = low + (high - low) / 2;
            match self.begins(middle)? <= offset {
                true => low = middle,
                false => high = middle,
            }
        }
        Some(low)
    }
}

/// # Safety
/// The program's code is there.
pub unsafe fn code(at: usize, length: usize) -> &'static [u8] {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(at as *const u8, length) }
}

/// The table and the code, as the program's file says; that part of it is not in memory.
fn sections(bias: usize) -> Option<(Part, Part)> {
    let sections = Sections::of_program()?;
    let named = |names: &[&[u8]]| {
        let section = sections.find(names)?;
        Some(Part {
            start: section.address.checked_add(bias)?,
            length: section.length,
        })
    };
    let table = named(&[b".gopclntab", b".data.rel.ro.gopclntab"])?;
    Some((table, named(&[b".text"])?))
}
