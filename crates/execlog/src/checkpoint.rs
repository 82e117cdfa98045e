//! A checkpoint: the memory of a process in replay at one moment, in a file that the launcher
//! writes from outside and the runtime becomes again from inside.
//!
//! ```text
//!   Image   Region, …   Run, …   numbers   names   (to the next page)   the pages of all runs
//! ```
//!
//! A region is a mapping, a run is a part of one whose bytes the file has. What else the regions
//! hold is what the kernel puts there when they are mapped: zeros, or a file's bytes. The numbers
//! are groups of users and descriptors, of a follower whose leader is elsewhere.

use crate::VERSION;

pub const PAGE: usize = 4096;

/// What tells a thread in replay to wait where it is: the kernel's last signal.
pub const HALT_SIGNAL: i32 = 64;

/// What the file begins with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Image {
    pub magic: [u8; 8],
    pub version: u32,
    pub regions: u32,
    pub runs: u32,
    /// Bytes of names.
    pub names: u32,
    /// Where the kernel's own library and the runtime's text lie. They lie there in the process
    /// that becomes this one, too, or it cannot.
    pub vdso: u64,
    pub runtime: u64,
    /// Where the heap by `brk` ends; zero if there is none.
    pub heap_end: u64,
    pub settings: Settings,
}

/// What a follower whose leader is elsewhere has set in the kernel, as its leader has.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// 0: it is no such follower, and nothing of this is its own.
    pub are_own: u32,
    pub umask: u32,
    /// The real, the effective and the saved ones.
    pub users: [u32; 3],
    pub groups: [u32; 3],
    /// How many of the numbers are further groups.
    pub further: u32,
    /// How many behind them are descriptors that are closed when another image is executed.
    pub closing: u32,
}

/// How a region comes to be there again.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Fresh memory.
    Memory = 0,
    /// As well, and grows downwards.
    Stack = 1,
    /// A private mapping of a file.
    File = 2,
    /// It is there already: the runtime, the kernel's library.
    There = 3,
    /// It is there already, and is not the process's to write: the launcher's board, the kernel's
    /// data.
    Untouched = 4,
    /// A shared mapping of a file, which the process only reads.
    Shared = 5,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub start: u64,
    pub length: u64,
    /// Where in its file it begins.
    pub offset: u64,
    /// The file's path: where it begins among the names, where a NUL follows it. Relative to the
    /// recording's folder, or absolute.
    pub name: u32,
    pub protection: u32,
    pub source: u32,
    pub padding: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub address: u64,
    pub length: u64,
    /// Where the file of the checkpoint has its bytes.
    pub offset: u64,
}

/// All but the pages.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub image: &'a Image,
    pub regions: &'a [Region],
    pub runs: &'a [Run],
    numbers: &'a [u32],
    names: &'a [u8],
}

impl Image {
    pub const MAGIC: [u8; 8] = *b"HCIMAGE\0";

    pub fn new(regions: usize, runs: usize, names: usize) -> Image {
        Image {
            magic: Self::MAGIC,
            version: VERSION,
            regions: regions as u32,
            runs: runs as u32,
            names: names as u32,
            vdso: 0,
            runtime: 0,
            heap_end: 0,
            settings: Settings::default(),
        }
    }

    fn is_valid(&self) -> bool {
        self.magic == Self::MAGIC && self.version == VERSION
    }

    /// Where the pages begin: what is before them is the plan.
    pub fn plan_bytes(&self) -> usize {
        let names = self.names as usize;
        let regions = self.regions as usize * size_of::<Region>();
        let runs = self.runs as usize * size_of::<Run>();
        (size_of::<Image>() + regions + runs + self.settings.bytes() + names).next_multiple_of(PAGE)
    }
}

impl Settings {
    fn numbers(&self) -> usize {
        self.further as usize + self.closing as usize
    }

    fn bytes(&self) -> usize {
        self.numbers() * size_of::<u32>()
    }
}

impl Source {
    pub fn from_number(number: u32) -> Source {
        match number {
            1 => Source::Stack,
            2 => Source::File,
            3 => Source::There,
            4 => Source::Untouched,
            5 => Source::Shared,
            _ => Source::Memory,
        }
    }
}

impl Region {
    pub fn end(&self) -> u64 {
        self.start + self.length
    }

    pub fn source(&self) -> Source {
        Source::from_number(self.source)
    }
}

impl<'a> Plan<'a> {
    /// Reads a plan. `None`: it is not one of this version, or cut off.
    pub fn of(bytes: &'a [u8]) -> Option<Plan<'a>> {
        let (image, rest) = split::<Image>(bytes, 1)?;
        let image = image.first().filter(|image| image.is_valid())?;
        let (regions, rest) = split::<Region>(rest, image.regions as usize)?;
        let (runs, rest) = split::<Run>(rest, image.runs as usize)?;
        let (numbers, rest) = split::<u32>(rest, image.settings.numbers())?;
        let names = rest.get(..image.names as usize)?;
        Some(Plan {
            image,
            regions,
            runs,
            numbers,
            names,
        })
    }

    /// The path of a region's file, with its NUL.
    pub fn name(&self, region: &Region) -> Option<&'a std::ffi::CStr> {
        let names = self.names.get(region.name as usize..)?;
        std::ffi::CStr::from_bytes_until_nul(names).ok()
    }

    /// Further groups of the process, and descriptors that are closed when another image is
    /// executed.
    pub fn numbers(&self) -> (&'a [u32], &'a [u32]) {
        self.numbers.split_at(self.image.settings.further as usize)
    }

    /// The plan as it lies in the file.
    pub fn write(
        image: &Image,
        regions: &[Region],
        runs: &[Run],
        numbers: &[u32],
        names: &[u8],
    ) -> Vec<u8> {
        let mut made = Vec::with_capacity(image.plan_bytes());
        made.extend(bytes_of(std::slice::from_ref(image)));
        made.extend(bytes_of(regions));
        made.extend(bytes_of(runs));
        made.extend(bytes_of(numbers));
        made.extend(names);
        made.resize(image.plan_bytes(), 0);
        made
    }
}

/// The structures above are numbers without padding between them: every bit pattern is one.
trait Plain: Copy {}
impl Plain for Image {}
impl Plain for Region {}
impl Plain for Run {}
impl Plain for u32 {}

fn split<T: Plain>(bytes: &[u8], count: usize) -> Option<(&[T], &[u8])> {
    let length = size_of::<T>().checked_mul(count)?;
    let (ours, rest) = bytes.split_at_checked(length)?;
    // SAFETY: every bit pattern is a `T`, and what does not lie where one may is refused.
    let (before, values, after) = unsafe { ours.align_to::<T>() };
    (before.is_empty() && after.is_empty()).then_some((values, rest))
}

fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that lie where a page would.
    fn in_words(bytes: &[u8]) -> Vec<u64> {
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
        bytes.chunks_exact(8).map(word).collect()
    }

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let regions = [Region {
            start: 0x1000,
            length: 0x2000,
            offset: 0,
            name: 5,
            protection: 3,
            source: Source::File as u32,
            padding: 0,
        }];
        let runs = [Run {
            address: 0x2000,
            length: 0x1000,
            offset: 4096,
        }];
        let names = b"none\0p0/t0\0";
        let mut image = Image::new(regions.len(), runs.len(), names.len());
        (image.settings.further, image.settings.closing) = (1, 2);
        let written = Plan::write(&image, &regions, &runs, &[65534, 7, 9], names);
        assert_eq!(written.len(), PAGE);
        let words = in_words(&written);
        let bytes = bytes_of_words(&words);
        let plan = Plan::of(bytes).unwrap();
        assert_eq!(plan.regions, regions);
        assert_eq!(plan.runs, runs);
        assert_eq!(plan.name(&plan.regions[0]), Some(c"p0/t0"));
        assert_eq!(plan.numbers(), (&[65534][..], &[7, 9][..]));
        assert_eq!(plan.regions[0].source(), Source::File);
        assert!(Plan::of(&bytes[..64]).is_none(), "cut off");
        let mut other = words.clone();
        other[1] += 1;
        assert!(
            Plan::of(bytes_of_words(&other)).is_none(),
            "another version"
        );
    }

    fn bytes_of_words(words: &[u64]) -> &[u8] {
        // SAFETY: as bytes, whatever they are.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8) }
    }
}
