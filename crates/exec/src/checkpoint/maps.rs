//! What the kernel says about the memory of a process.

use std::ops::Range;

use hindcast_execlog::checkpoint::{PAGE, Source};
use hindcast_execlog::config::addresses;

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub range: Range<u64>,
    /// `PROT_*`.
    pub protection: u32,
    pub is_shared: bool,
    pub offset: u64,
    /// A path, or what the kernel calls it in brackets; empty for memory.
    pub name: String,
}

/// Why there is no checkpoint of a process that has this mapped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("it shares memory with others: {0}")]
    Shared(String),
    #[error("it has a file mapped that is not there any more: {0}")]
    Gone(String),
    #[error("it has a descriptor that cannot be made again: {0}")]
    Descriptor(String),
    #[error("it has another root folder")]
    Root,
}

pub fn read(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mapping> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (permissions, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    // Device and inode.
    let (_, rest) = rest.split_once(' ')?;
    let name = rest
        .split_once(' ')
        .map_or("", |(_, name)| name.trim_start());
    let bit = |letter: char, bit: i32| match permissions.contains(letter) {
        true => bit as u32,
        false => 0,
    };
    Some(Mapping {
        range: number(start)?..number(end)?,
        protection: bit('r', libc::PROT_READ)
            | bit('w', libc::PROT_WRITE)
            | bit('x', libc::PROT_EXEC),
        is_shared: permissions.ends_with('s'),
        offset: number(offset)?,
        name: name.replace("\\012", "\n"),
    })
}

const RUNTIME: &str = "/memfd:hindcast-runtime (deleted)";
const BOARD: &str = "/memfd:hindcast-board (deleted)";
const GONE: &str = " (deleted)";

/// Where programs may map at all.
const HIGHEST: u64 = 1 << 47;

impl Mapping {
    pub fn is_runtimes_text(&self) -> bool {
        self.name == RUNTIME && self.protection & libc::PROT_EXEC as u32 != 0
    }

    /// How it comes to be there again. `None`: it does not.
    pub fn source(&self) -> Result<Option<Source>, Unfit> {
        let restoring = addresses::RESTORING as u64..addresses::HANDLER_STACKS as u64;
        if self.range.end > HIGHEST || restoring.contains(&self.range.start) {
            return Ok(None);
        }
        let is_written = self.protection & libc::PROT_WRITE as u32 != 0;
        Ok(Some(match self.name.as_str() {
            "[vdso]" | RUNTIME => Source::There,
            BOARD => Source::Untouched,
            name if name.starts_with("[vvar") => Source::Untouched,
            _ if self.is_shared && is_written => return Err(Unfit::Shared(self.to_string())),
            "[stack]" => Source::Stack,
            name if name.ends_with(GONE) => return Err(Unfit::Gone(self.to_string())),
            name if name.starts_with('/') && self.is_shared => Source::Shared,
            name if name.starts_with('/') => Source::File,
            _ => Source::Memory,
        }))
    }

    pub fn pages(&self) -> usize {
        (self.range.end - self.range.start) as usize / PAGE
    }
}

impl std::fmt::Display for Mapping {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name.as_str() {
            "" => write!(formatter, "{:#x}", self.range.start),
            name => formatter.write_str(name),
        }
    }
}

/// Marks the runtime's own: the kernel maps what its file does not have, behind it, as memory
/// without a name.
pub fn sources(mappings: &[Mapping]) -> Result<Vec<Option<Source>>, Unfit> {
    let mut end_of_runtime = None;
    let mut made = Vec::with_capacity(mappings.len());
    for mapping in mappings {
        let follows = end_of_runtime == Some(mapping.range.start) && mapping.name.is_empty();
        end_of_runtime = (mapping.name == RUNTIME).then_some(mapping.range.end);
        made.push(match follows {
            true => Some(Source::There),
            false => mapping.source()?,
        });
    }
    Ok(made)
}

/// What `/proc/PID/pagemap` says of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page(pub u64);

impl Page {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    /// A page of a file, or of memory that is shared.
    const OF_FILE: u64 = 1 << 61;

    /// Whether the process alone has its bytes: it wrote them.
    fn is_own(self) -> bool {
        self.0 & (Self::PRESENT | Self::SWAPPED) != 0 && self.0 & Self::OF_FILE == 0
    }
}

/// Runs of pages that the process wrote, as addresses, appended to those before.
pub fn add_runs(runs: &mut Vec<Range<u64>>, first: u64, pages: impl Iterator<Item = Page>) {
    for (page, at) in pages.zip((first..).step_by(PAGE)) {
        if !page.is_own() {
            continue;
        }
        let end = at + PAGE as u64;
        match runs.last_mut() {
            Some(run) if run.end == at => run.end = end,
            _ => runs.push(at..end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
100000000000-100000040000 rw-p 00000000 00:00 0 
140100010000-14010005d000 rw-s 00000000 00:01 4024                       /memfd:hindcast-board (deleted)
140100070000-140100305000 r--p 00000000 fe:00 10010416                   /tmp/a b/p0/t0
555555555000-555555556000 r-xp 00001000 fe:00 18500                      /usr/bin/python3.11
7ffff6b2d000-7ffff6eb0000 r-xp 0007d000 00:01 4025                       /memfd:hindcast-runtime (deleted)
7ffff6eb8000-7ffff7340000 rw-p 00406000 00:01 4025                       /memfd:hindcast-runtime (deleted)
7ffff7340000-7ffff7fc2000 rw-p 00000000 00:00 0 
7ffff7fc2000-7ffff7fc6000 r--p 00000000 00:00 0                          [vvar]
7ffff7fc8000-7ffff7fca000 r-xp 00000000 00:00 0                          [vdso]
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn each_mapping_comes_back_in_its_way() {
        let mappings = read(TEXT);
        assert_eq!(mappings[2].name, "/tmp/a b/p0/t0");
        assert_eq!(mappings[3].offset, 0x1000);
        assert!(mappings[4].is_runtimes_text());
        assert_eq!(
            sources(&mappings).unwrap(),
            [
                Some(Source::Memory),
                Some(Source::Untouched),
                Some(Source::File),
                Some(Source::File),
                Some(Source::There),
                Some(Source::There),
                Some(Source::There),
                Some(Source::Untouched),
                Some(Source::There),
                Some(Source::Stack),
                None,
            ]
        );
    }

    #[test]
    fn what_cannot_come_back_is_named() {
        let shared = read("1000-2000 rw-s 00000000 00:01 7        /dev/zero (deleted)\n");
        assert_eq!(
            sources(&shared).unwrap_err().to_string(),
            "it shares memory with others: /dev/zero (deleted)"
        );
        let gone = read("1000-2000 r--p 00000000 00:01 7        /tmp/x (deleted)\n");
        assert_eq!(
            sources(&gone).unwrap_err().to_string(),
            "it has a file mapped that is not there any more: /tmp/x (deleted)"
        );
    }

    #[test]
    fn pages_that_were_written_are_joined() {
        let own = Page(Page::PRESENT);
        let swapped = Page(Page::SWAPPED);
        let none = Page(0);
        let of_file = Page(Page::PRESENT | Page::OF_FILE);
        let mut runs = Vec::new();
        add_runs(
            &mut runs,
            0x10000,
            [own, swapped, none, of_file, own].into_iter(),
        );
        add_runs(&mut runs, 0x15000, [own].into_iter());
        assert_eq!(runs, [0x10000..0x12000, 0x14000..0x16000]);
    }
}
