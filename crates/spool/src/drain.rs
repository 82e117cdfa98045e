//! Takes what taps tell.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hindcast_taplog::{Consumer, Told};
use memmap2::{MmapOptions, MmapRaw};

use crate::clock::{Clock, now};
use crate::hello::{Arrival, Door};
use crate::shared::SharedBoard;
use crate::taker::{Program, Records, SpoolError, Taker};

/// Between two looks, if little was told.
const PAUSE: Duration = Duration::from_millis(20);
/// And if a ring was this full, in percent: there is no pause.
const MUCH: u64 = 10;
/// And if it was this full, there is no time to make small what is taken.
const TOO_MUCH: u64 = 40;

/// The recorder's end of all rings.
#[derive(Debug)]
pub struct Drain {
    door: Door,
    programs: HashMap<Running, Process>,
    /// How many rings there ever were.
    rings: u32,
    /// Rings that could not be taken, or held what no tap writes.
    refused: u64,
    scratch: Vec<u8>,
}

/// A process while it runs one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Running {
    pid: u32,
    began: u64,
}

#[derive(Debug)]
struct Process {
    /// Readable when it has ended. `None` if it had ended before we asked.
    ended: Option<OwnedFd>,
    rings: Vec<Ring>,
}

#[derive(Debug)]
struct Ring {
    number: u32,
    memory: Memory,
    /// `None` until the tap has made a ring of the memory, and once it is found to hold nonsense.
    consumer: Option<Consumer>,
}

/// What was done in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of rings.
    pub bytes: u64,
    /// Of the fullest ring, before it was emptied, in percent.
    pub fill: u64,
}

impl Drain {
    pub fn new() -> io::Result<Self> {
        Self::open(None)
    }

    /// Taps get this board from it.
    pub fn with_board(board: Arc<SharedBoard>) -> io::Result<Self> {
        Self::open(Some(board))
    }

    fn open(board: Option<Arc<SharedBoard>>) -> io::Result<Self> {
        Ok(Self {
            door: Door::open(board)?,
            programs: HashMap::new(),
            rings: 0,
            refused: 0,
            scratch: Vec::new(),
        })
    }

    /// What a service has to have in its environment, beside the library in `LD_PRELOAD`.
    pub fn variable(&self) -> (&'static str, String) {
        self.door.variable()
    }

    /// How many rings were refused or given up.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Steps until `stop` says so, and once more.
    pub fn run(&mut self, to: &mut impl Taker, stop: &AtomicBool) -> Result<(), SpoolError> {
        loop {
            let last = stop.load(Ordering::Relaxed);
            let taken = self.step(to)?;
            if last {
                return Ok(());
            }
            if taken.fill < MUCH {
                self.door.wait(PAUSE);
            }
        }
    }

    /// Takes all that was told since the last time. Where there is no room for it, it is left.
    pub fn step(&mut self, to: &mut impl Taker) -> Result<Taken, SpoolError> {
        let mut taken = Taken::default();
        // Before anything is looked at, so that what was told earlier is found.
        let moment = now();
        // Before rings are taken, so that what a process said before it ended is there.
        let mut ended: Vec<Running> = self.ended();
        for arrival in self.door.arrivals().map_err(SpoolError::Socket)? {
            self.arrived(arrival, to)?;
        }
        ended.extend(self.left());
        if !to.has_room() {
            return Ok(taken);
        }
        for process in self.programs.values_mut() {
            for ring in &mut process.rings {
                self.refused += u64::from(!ring.take(to, &mut self.scratch, &mut taken)?);
            }
        }
        for running in ended {
            if let Some(process) = self.programs.remove(&running) {
                finish(process, to, &mut self.scratch)?;
            }
        }
        to.flush(moment, Clock::read())?;
        Ok(taken)
    }

    fn ended(&self) -> Vec<Running> {
        let programs = self.programs.iter();
        let ended = programs.filter(|(_, process)| process.ended.as_ref().is_none_or(is_readable));
        ended.map(|(running, _)| *running).collect()
    }

    /// Programs whose process runs another one now: of them nothing more will come.
    fn left(&self) -> Vec<Running> {
        let mut newest: HashMap<u32, u64> = HashMap::new();
        for running in self.programs.keys() {
            let began = newest.entry(running.pid).or_default();
            *began = running.began.max(*began);
        }
        let all = self.programs.keys();
        all.filter(|running| running.began < newest[&running.pid])
            .copied()
            .collect()
    }

    fn arrived(&mut self, arrival: Arrival, to: &mut impl Taker) -> Result<(), SpoolError> {
        let running = Running {
            pid: arrival.pid,
            began: arrival.began,
        };
        let Ok(memory) = Memory::map(&arrival.memory) else {
            self.refused += 1;
            return Ok(());
        };
        let number = self.rings;
        self.rings += 1;
        to.ring(number, &Program::of(arrival.pid, arrival.began))?;
        let process = self.programs.entry(running).or_insert_with(|| Process {
            ended: handle(arrival.pid),
            rings: Vec::new(),
        });
        process.rings.push(Ring {
            number,
            memory,
            consumer: None,
        });
        Ok(())
    }
}

/// Nobody will write to these rings any more, and they are empty.
fn finish(process: Process, to: &mut impl Taker, scratch: &mut Vec<u8>) -> Result<(), SpoolError> {
    for ring in process.rings {
        let untold = ring.consumer.as_ref().map(Consumer::lost_untold);
        let (records, bytes) = untold.unwrap_or_default();
        if records > 0 {
            scratch.clear();
            let told = Told::Lost {
                stream: None,
                records,
                bytes,
            };
            told.encode(0, scratch);
            to.told(ring.number, Records::of(scratch))?;
        }
        to.ended(ring.number)?;
    }
    Ok(())
}

impl Ring {
    /// False if it turns out to hold what no tap writes.
    fn take(
        &mut self,
        to: &mut impl Taker,
        scratch: &mut Vec<u8>,
        taken: &mut Taken,
    ) -> Result<bool, SpoolError> {
        if self.consumer.is_none() {
            // SAFETY: the memory stays mapped as long as the ring, and this is its only consumer.
            match unsafe { Consumer::new(self.memory.pages.as_mut_ptr(), self.memory.length) } {
                Ok(consumer) => self.consumer = consumer,
                Err(_) => return self.give_up(to),
            }
        }
        let Some(consumer) = &mut self.consumer else {
            return Ok(true);
        };
        scratch.clear();
        let fill = consumer.fill();
        taken.fill = taken.fill.max(fill);
        to.hurry(fill >= TOO_MUCH);
        let result = consumer.take(|at, told| told.encode(at, scratch));
        if !scratch.is_empty() {
            to.told(self.number, Records::of(scratch))?;
        }
        match result {
            Ok(bytes) => taken.bytes += bytes,
            Err(_) => return self.give_up(to),
        }
        Ok(true)
    }

    fn give_up(&mut self, to: &mut impl Taker) -> Result<bool, SpoolError> {
        to.garbled(self.number)?;
        self.consumer = None;
        self.memory.length = 0;
        Ok(false)
    }
}

/// The memory of a ring.
#[derive(Debug)]
struct Memory {
    pages: MmapRaw,
    /// As much of it as may be a ring.
    length: usize,
}

impl Memory {
    /// Fails if the service could still make it shorter: to read it then would be our end.
    fn map(file: &File) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        if length == 0
            || length > hindcast_taplog::ring::file_size(hindcast_taplog::ring::CAPACITY_MAX)
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: a plain call on a descriptor that is open.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let pages = MmapOptions::new().len(length).map_raw(file)?;
        // Sealed now, so this is what it keeps.
        if file.metadata()?.len() < length as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Self { pages, length })
    }
}

fn handle(pid: u32) -> Option<OwnedFd> {
    // SAFETY: the descriptor is new, and ours.
    unsafe {
        let handle = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        (handle >= 0).then(|| OwnedFd::from_raw_fd(handle as i32))
    }
}

fn is_readable(descriptor: &OwnedFd) -> bool {
    let mut poll = libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the memory is ours, one entry long.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}
