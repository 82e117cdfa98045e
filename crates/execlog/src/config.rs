//! What the launcher tells the runtime: one page in a memory file that the process inherits.

use crate::{Text, VERSION};

/// File descriptors of ours in the recorded process. They are so high that they do not disturb the
/// numbers that the program gets, and below 1024, where a soft limit on open files usually ends.
pub mod descriptors {
    /// The runtime itself: `LD_PRELOAD=/proc/self/fd/960`, the same text wherever the library was
    /// installed.
    pub const LIBRARY: i32 = 960;
    /// The memory file with the [`Config`](super::Config).
    pub const CONFIG: i32 = 961;
    /// The memory file with the [`Board`](crate::Board).
    pub const BOARD: i32 = 962;
    /// The folder of the recording.
    pub const FOLDER: i32 = 963;
    /// In replay, where output goes that the program wrote to its standard output.
    pub const STDOUT: i32 = 964;
    /// In replay, where output goes that the program wrote to its standard error.
    pub const STDERR: i32 = 965;
    /// Libraries of the user's own interfaces follow from here.
    pub const INTERFACES: i32 = 966;
    /// In a replay that begins at a checkpoint: the file of its memory.
    pub const CHECKPOINT: i32 = 976;
    /// In a recording that a follower writes: where the files that reads refer to are handed to it.
    pub const FILES: i32 = 977;
    /// Where a leader's descriptors are asked for. In the leader the end of the process that holds
    /// its table; in a follower the other end.
    pub const TABLE: i32 = 978;
    /// While recording, the folder of this process image: a program that gives up its privileges
    /// still has it.
    pub const PROCESS: i32 = 979;
    /// While recording, the logs of the first threads, one after the other. Those of later threads
    /// are opened when they grow.
    pub const LOGS: i32 = 980;
    /// All of ours are below.
    pub const END: i32 = 1024;
}

/// The address range that the runtime keeps for itself and for what must be at equal addresses in
/// both runs. It lies in the middle of the address space, far from the program, its heap by `brk`,
/// its libraries and its stack.
pub mod addresses {
    /// Thread states, logs, tables, the runtime's own heap. 16 TiB.
    pub const RUNTIME: usize = 0x1000_0000_0000;
    pub const RUNTIME_END: usize = 0x1e00_0000_0000;
    /// While a process becomes that of a checkpoint: what to map, and the first stacks of threads.
    pub const RESTORING: usize = HANDLER_STACKS - (RESTORING_PLAN_BYTES + RESTORING_STACKS_BYTES);
    pub const RESTORING_PLAN_BYTES: usize = 1 << 30;
    pub const RESTORING_STACKS_BYTES: usize = crate::THREADS_MAX * RESTORING_STACK_BYTES;
    pub const RESTORING_STACK_BYTES: usize = 16 << 10;
    /// The last of these: stacks for signal handlers of programs whose own are too small.
    pub const HANDLER_STACKS: usize = RUNTIME_END - crate::THREADS_MAX * HANDLER_STACK_BYTES;
    pub const HANDLER_STACK_BYTES: usize = 64 << 10;
    /// What the two heaps keep about their blocks, and the runtime's own memory. 2 TiB.
    pub const HEAP_TABLES: usize = 0x1e00_0000_0000;
    pub const HEAP_TABLES_END: usize = 0x2000_0000_0000;
    /// Blocks of the replay heap: 16 GiB for each of the first 1536 threads that live at the same
    /// time, then ranges for those that need more.
    pub const HEAPS: usize = 0x2000_0000_0000;
    /// Blocks of the system heap. 8 TiB.
    pub const SYSTEM_HEAP: usize = 0x4000_0000_0000;
    pub const SYSTEM_HEAP_END: usize = 0x4800_0000_0000;
    /// Stacks of threads. 8 TiB.
    pub const STACKS: usize = 0x4800_0000_0000;
    pub const STACKS_END: usize = 0x5000_0000_0000;
}

#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Run {
    /// Everything passes through: the runtime is loaded and does nothing.
    #[default]
    Off = 0,
    Record = 1,
    Replay = 2,
}

/// Which order of acquisitions is recorded and enforced.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Order {
    /// Where a lock changes hands, its previous owner and how many acquisitions that one had made.
    #[default]
    Edge = 0,
    /// The paper's relaxed total order: the global vector clock where a lock changes hands.
    Relaxed = 1,
    /// A ticket from one global counter at every acquisition.
    Total = 2,
    /// The global vector clock at every acquisition.
    Vector = 3,
}

/// What to do with a system call from replay space that no stub covers.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Policy {
    /// Record it by its number, as a stub would.
    #[default]
    Record = 0,
    /// Record it and name it, once for each place it comes from.
    Report = 1,
    /// End the program with a report.
    Abort = 2,
}

/// How a thread in replay waits for its turn.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    #[default]
    Adaptive = 0,
    Spin = 1,
    Wait = 2,
}

/// How instructions are recorded that answer differently on every run: `rdtsc`, `cpuid`, `rdrand`
/// and the like.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instructions {
    /// Not at all: they run as they are.
    Free = 0,
    /// `rdtsc` faults; traps are put in place of the others where they are found.
    Replaced = 1,
    /// `cpuid` faults as well, where the processor can do that.
    #[default]
    Faulting = 2,
}

impl Instructions {
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Instructions::Free,
            1 => Instructions::Replaced,
            _ => Instructions::Faulting,
        }
    }
}

/// Where a replay begins.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginsAt {
    Beginning = 0,
    /// At the checkpoint that was handed over.
    Checkpoint = 1,
    /// At the nearest before where it is to stop, which its wrapper looks for.
    Nearest = 2,
}

/// Bits of [`Config::optimizations`].
pub mod optimizations {
    /// R2's `cache`: a status that is the same as the last one of the same function is not logged
    /// again.
    pub const CACHE: u32 = 1;
    /// R2's `reproduce`: reads of files below [`Config::reproduce`](super::Config::reproduce) are
    /// executed again instead of logged.
    pub const REPRODUCE: u32 = 2;
}

/// Bits of [`Config::follow`].
pub mod follow {
    /// The recording is followed while it is written: what is counted in memory otherwise is in the
    /// log at once, and another process holds the table of descriptors.
    pub const LEADS: u32 = 1;
    /// Replay waits for what is not written yet, and goes on by itself when the leader is lost.
    pub const FOLLOWS: u32 = 2;
    /// What was replayed is given back to the file system: nobody else reads this recording.
    pub const DISCARDS: u32 = 4;
    /// The leader is on another machine: replay makes descriptors itself, and the launcher connects
    /// its connections.
    pub const ELSEWHERE: u32 = 8;
    /// Replay that goes on in the place of a lost leader is recorded from there on: into the same
    /// recording, and as the leader of the followers that are left.
    pub const SUCCEEDS: u32 = 16;
    /// What is read from large files is not logged: a follower reads it as well and puts it into
    /// the log.
    pub const REFERS: u32 = 32;
}

/// Bits of [`Config::interfaces`]: the higher interfaces that are built in.
pub mod interfaces {
    pub const SQLITE3: u32 = 1;
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub magic: [u8; 8],
    pub version: u32,
    pub run: u32,
    pub order: u32,
    pub policy: u32,
    pub waiting: u32,
    pub optimizations: u32,
    pub interfaces: u32,
    pub instructions: u32,
    pub follow: u32,
    /// Whether one thread runs at a time: 1 or 0.
    pub one_at_a_time: u32,
    /// Replay: a [`BeginsAt`].
    pub begins_at: u32,
    /// How many of the nearest checkpoints are passed over.
    pub passed_over: u32,
    /// Device and inode of what standard output and standard error are, to know which bytes replay
    /// writes again.
    pub stdout: FileId,
    pub stderr: FileId,
    /// The folder of this process image in the recording, such as `p0.2+`.
    pub process: Text<256>,
    /// The folder of the image that forked or executed this one; empty for the first.
    pub parent: Text<256>,
    /// Below which folder files are reproduced instead of logged.
    pub reproduce: Text<1024>,
    /// Replay: the folders of processes that cannot be read, each with a space behind it.
    pub left_out: Text<1024>,
    /// Replay: call `hindcast_breakpoint` when this thread reaches this event. `u64::MAX`: never.
    pub break_thread: u64,
    pub break_event: u64,
    /// What the environment's `LD_PRELOAD` is for the images that this one executes.
    pub preload: Text<1024>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

impl Config {
    pub const MAGIC: [u8; 8] = *b"HCCONFIG";

    pub fn new(run: Run) -> Self {
        Config {
            magic: Self::MAGIC,
            version: VERSION,
            run: run as u32,
            order: Order::default() as u32,
            policy: Policy::default() as u32,
            waiting: Waiting::default() as u32,
            optimizations: 0,
            interfaces: 0,
            instructions: Instructions::default() as u32,
            follow: 0,
            one_at_a_time: 0,
            begins_at: BeginsAt::Beginning as u32,
            passed_over: 0,
            stdout: FileId::default(),
            stderr: FileId::default(),
            process: Text::from_text("p0"),
            parent: Text::new(),
            reproduce: Text::new(),
            left_out: Text::new(),
            break_thread: u64::MAX,
            break_event: u64::MAX,
            preload: Text::new(),
        }
    }

    pub fn is_valid(&self) -> bool {
        self.magic == Self::MAGIC && self.version == VERSION
    }

    /// The bytes to write into the memory file.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: a `repr(C)` struct of integers and byte arrays; padding, if any, is only ever
        // written to our own file.
        unsafe { std::slice::from_raw_parts((self as *const Self).cast(), size_of::<Self>()) }
    }

    /// What the memory file holds; `None`: something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Config> {
        if bytes.len() != size_of::<Config>() {
            return None;
        }
        // SAFETY: numbers and byte arrays, of that size.
        let config = unsafe { bytes.as_ptr().cast::<Config>().read_unaligned() };
        config.is_valid().then_some(config)
    }

    pub fn run(&self) -> Run {
        match self.run {
            1 => Run::Record,
            2 => Run::Replay,
            _ => Run::Off,
        }
    }

    pub fn order(&self) -> Order {
        match self.order {
            1 => Order::Relaxed,
            2 => Order::Total,
            3 => Order::Vector,
            _ => Order::Edge,
        }
    }

    pub fn policy(&self) -> Policy {
        match self.policy {
            1 => Policy::Report,
            2 => Policy::Abort,
            _ => Policy::Record,
        }
    }

    pub fn instructions(&self) -> Instructions {
        Instructions::from_number(self.instructions)
    }

    pub fn waiting(&self) -> Waiting {
        match self.waiting {
            1 => Waiting::Spin,
            2 => Waiting::Wait,
            _ => Waiting::Adaptive,
        }
    }
}
