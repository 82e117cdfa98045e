//! Taking a checkpoint: the threads of a process in replay wait where they are, and its memory is
//! copied from outside.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hindcast_execlog::Board;
use hindcast_execlog::checkpoint::{HALT_SIGNAL, Image, PAGE, Plan, Region, Run, Settings, Source};

use crate::mapped::Mapped;

use super::maps::{self, Mapping, Page, Unfit};

/// Why there is no checkpoint of this moment.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    #[error("the process has children")]
    Children,
    #[error("{0}")]
    Unfit(#[from] Unfit),
    #[error("its threads did not stop in time")]
    Moving,
    #[error("it has ended")]
    Ended,
    #[error("the process is needed")]
    Needed,
    #[error("{0}")]
    System(#[from] io::Error),
}

impl NotTaken {
    /// Whether it may be different at another moment.
    pub fn is_of_this_moment(&self) -> bool {
        matches!(
            self,
            NotTaken::Children | NotTaken::Moving | NotTaken::Ended | NotTaken::Needed
        )
    }
}

/// How long threads may take to stop. One that is being created has all signals blocked.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(100);
/// Entries of `pagemap` read at a time, and bytes of memory.
const ENTRIES: usize = 1 << 16;
const CHUNK: usize = 1 << 20;

/// All threads of a process, while they wait.
struct Halted<'a> {
    board: &'a Board,
}

impl<'a> Halted<'a> {
    fn all(
        process: libc::pid_t,
        board: &'a Board,
        is_needed: &AtomicBool,
    ) -> Result<Self, NotTaken> {
        board.halts.store(1, Ordering::SeqCst);
        // From here on, whatever happens, they are let go.
        let halted = Halted { board };
        let began = Instant::now();
        let mut told = Vec::new();
        loop {
            let threads = threads_of(process)?;
            if !crate::report::is_alive(process as u32) {
                return Err(NotTaken::Ended);
            }
            for &thread in threads.iter().filter(|thread| !told.contains(*thread)) {
                // SAFETY: numbers. One that has ended meanwhile is none.
                unsafe { libc::syscall(libc::SYS_tgkill, process, thread, HALT_SIGNAL) };
            }
            let waiting = board.halted.load(Ordering::Acquire) as usize;
            // The list is one of this moment only if no thread that runs can have made another.
            if waiting == threads.len() && threads == told {
                return Ok(halted);
            }
            if began.elapsed() > PATIENCE {
                return Err(NotTaken::Moving);
            }
            if is_needed.load(Ordering::Acquire) {
                return Err(NotTaken::Needed);
            }
            told = threads;
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Halted<'_> {
    fn drop(&mut self) {
        self.board.halts.store(0, Ordering::SeqCst);
        // SAFETY: wakes those that wait at a word of the board.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.board.halts.as_ptr(),
                libc::FUTEX_WAKE,
                i32::MAX,
            )
        };
        let began = Instant::now();
        while self.board.halted.load(Ordering::Acquire) != 0 && began.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
        }
    }
}

fn threads_of(process: libc::pid_t) -> io::Result<Vec<libc::pid_t>> {
    let mut threads = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{process}/task"))? {
        threads.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<libc::pid_t>().ok()),
        );
    }
    threads.sort_unstable();
    Ok(threads)
}

/// Of which process, and what goes on meanwhile.
pub struct Taking<'a> {
    pub process: libc::pid_t,
    pub board: &'a Mapped<Board>,
    /// Names of files below it are relative to it.
    pub recording: &'a Path,
    /// Whether the process has something else to do at once.
    pub is_needed: &'a AtomicBool,
}

/// What the process has set in the kernel.
#[derive(Default)]
pub struct Own {
    pub settings: Settings,
    pub numbers: Vec<u32>,
}

/// Writes the memory of a process to `image`. `seen` looks at the board and at the process while
/// all threads wait.
pub fn take<R>(
    taking: &Taking,
    image: &File,
    seen: impl FnOnce() -> Result<(R, Own), NotTaken>,
) -> Result<R, NotTaken> {
    let &Taking {
        process,
        board,
        recording,
        is_needed,
    } = taking;
    if crate::watch::has_children(process) {
        return Err(NotTaken::Children);
    }
    let _halted = Halted::all(process, board, is_needed)?;
    let mappings = maps::read(&std::fs::read_to_string(format!("/proc/{process}/maps"))?);
    let pagemap = File::open(format!("/proc/{process}/pagemap"))?;
    let memory = File::open(format!("/proc/{process}/mem"))?;
    let mut drawn = Drawn::new();
    for (mapping, source) in mappings.iter().zip(maps::sources(&mappings)?) {
        let Some(source) = source else { continue };
        drawn.add(mapping, source, recording);
        if source != Source::Untouched {
            drawn.add_written(mapping, &pagemap)?;
        }
    }
    let (found, own) = seen()?;
    drawn.image.settings = own.settings;
    drawn.numbers = own.numbers;
    drawn.write(&memory, image, is_needed)?;
    Ok(found)
}

/// A plan in the making.
struct Drawn {
    image: Image,
    regions: Vec<Region>,
    numbers: Vec<u32>,
    names: Vec<u8>,
    written: Vec<Range<u64>>,
}

impl Drawn {
    fn new() -> Drawn {
        Drawn {
            image: Image::new(0, 0, 0),
            regions: Vec::new(),
            numbers: Vec::new(),
            // A region without a file has an empty name.
            names: vec![0],
            written: Vec::new(),
        }
    }

    fn add(&mut self, mapping: &Mapping, source: Source, recording: &Path) {
        match mapping.name.as_str() {
            "[vdso]" => self.image.vdso = mapping.range.start,
            "[heap]" => self.image.heap_end = mapping.range.end,
            _ if mapping.is_runtimes_text() => self.image.runtime = mapping.range.start,
            _ => {}
        }
        let name = match source {
            Source::File | Source::Shared => self.name(&mapping.name, recording),
            _ => 0,
        };
        self.regions.push(Region {
            start: mapping.range.start,
            length: mapping.range.end - mapping.range.start,
            offset: mapping.offset,
            name,
            protection: mapping.protection,
            source: source as u32,
            padding: 0,
        });
    }

    fn name(&mut self, path: &str, recording: &Path) -> u32 {
        let path = Path::new(path);
        let path = path.strip_prefix(recording).unwrap_or(path);
        let at = self.names.len() as u32;
        self.names.extend(path.as_os_str().as_encoded_bytes());
        self.names.push(0);
        at
    }

    fn add_written(&mut self, mapping: &Mapping, pagemap: &File) -> io::Result<()> {
        let mut entries = vec![0u8; ENTRIES.min(mapping.pages()) * size_of::<u64>()];
        let mut first = 0;
        while first < mapping.pages() {
            let count = ENTRIES.min(mapping.pages() - first);
            let bytes = &mut entries[..count * size_of::<u64>()];
            let at = mapping.range.start + (first * PAGE) as u64;
            pagemap.read_exact_at(bytes, at / PAGE as u64 * size_of::<u64>() as u64)?;
            let page = |bytes: &[u8; 8]| Page(u64::from_ne_bytes(*bytes));
            let pages = bytes.as_chunks::<8>().0.iter().map(page);
            maps::add_runs(&mut self.written, at, pages);
            first += count;
        }
        Ok(())
    }

    fn write(
        mut self,
        memory: &File,
        mut image: &File,
        is_needed: &AtomicBool,
    ) -> Result<(), NotTaken> {
        self.image.regions = self.regions.len() as u32;
        self.image.runs = self.written.len() as u32;
        self.image.names = self.names.len() as u32;
        let mut offset = self.image.plan_bytes() as u64;
        let place = |range: &Range<u64>| {
            let run = Run {
                address: range.start,
                length: range.end - range.start,
                offset,
            };
            offset += run.length;
            run
        };
        let runs: Vec<Run> = self.written.iter().map(place).collect();
        let plan = Plan::write(
            &self.image,
            &self.regions,
            &runs,
            &self.numbers,
            &self.names,
        );
        image.write_all(&plan)?;
        let mut bytes = vec![0; CHUNK];
        for run in &runs {
            let mut done = 0;
            while done < run.length {
                if is_needed.load(Ordering::Acquire) {
                    return Err(NotTaken::Needed);
                }
                let chunk = &mut bytes[..CHUNK.min((run.length - done) as usize)];
                memory.read_exact_at(chunk, run.address + done)?;
                image.write_all(chunk)?;
                done += chunk.len() as u64;
            }
        }
        Ok(())
    }
}
