//! What the runtime tells the launcher while a process runs: where each thread is, and the first
//! divergence.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{Text, VERSION};

pub const SLOTS: usize = 1024;

/// What a thread of a process in replay is doing.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No thread has this slot.
    Free = 0,
    Running = 1,
    /// For acquisition `awaited_acquisition` of thread `awaited_thread` (`u64::MAX`: of all threads
    /// together).
    Waiting = 2,
    /// In a real lock, join or wait for a child.
    Blocked = 3,
    Ended = 4,
}

/// One thread. Written by that thread alone.
#[repr(C)]
pub struct Slot {
    pub state: AtomicU32,
    pub pid: AtomicU32,
    pub thread: AtomicU32,
    /// The function or kind it is in.
    pub function: AtomicU32,
    /// Events replayed so far: the thread's logical time.
    pub event: AtomicU64,
    /// Of its log, in bytes, what is before is not looked at again.
    pub position: AtomicU64,
    pub awaited_thread: AtomicU64,
    pub awaited_acquisition: AtomicU64,
    /// 1 once its log says no more, while it has not asked for more.
    pub at_end: AtomicU32,
    pub process: Text<256>,
}

impl Slot {
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            1 => State::Running,
            2 => State::Waiting,
            3 => State::Blocked,
            4 => State::Ended,
            _ => State::Free,
        }
    }
}

/// What has become of the process that a follower follows.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leader {
    /// It runs, and its recording grows.
    Runs = 0,
    /// It came to its end, as far as its recording says; in a leader: nobody follows any more.
    Ended = 1,
    /// It was killed: the follower is to go on in its place.
    Lost = 2,
    /// The follower has gone on in its place, and is not recorded.
    Replaced = 3,
    /// The follower has gone on in its place, is recorded, and leads.
    Succeeded = 4,
}

/// What ended a run that did not end as the program would have.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    None = 0,
    /// Replay did something else than the recording says.
    Divergence = 1,
    /// The recording ends here: the program was killed or recording stopped. Everything before was
    /// replayed.
    RecordingEnds = 2,
    /// The recording cannot be read or is not for this program or runtime.
    Unusable = 3,
    /// The policy says that a system call that no stub covers ends the program.
    Policy = 4,
    /// The runtime itself failed.
    Broken = 5,
}

/// The first report wins; it is complete once `state` is 2.
#[repr(C)]
pub struct Report {
    /// 0 none, 1 being written, 2 complete.
    pub state: AtomicU32,
    pub kind: AtomicU32,
    pub pid: AtomicU32,
    pub thread: AtomicU32,
    pub event: AtomicU64,
    pub process: Text<256>,
    pub expected: Text<1024>,
    pub actual: Text<1024>,
    /// The place in the program: `module+0xoffset` lines, innermost first.
    pub site: Text<1024>,
    pub hint: Text<512>,
}

/// Most children that a copy whose leader is elsewhere may have at a time.
pub const MEMBERS: usize = 512;

/// A process of such a copy.
#[repr(C)]
pub struct Member {
    /// Zero: none. [`Member::COMING`]: one that is being made.
    pub pid: AtomicU32,
    /// How far it is in going on with the others.
    pub step: AtomicU32,
}

impl Member {
    pub const COMING: u32 = u32::MAX;
}

#[repr(C)]
pub struct Board {
    pub magic: [u8; 8],
    pub version: u32,
    /// Slots given out so far.
    pub slots_used: AtomicU32,
    pub report: Report,
    pub slots: [Slot; SLOTS],
    /// Pieces of output so far, of all processes: recording counts them, replay writes them in
    /// that order.
    pub outputs: AtomicU64,
    /// In a follower: a [`Leader`].
    pub leader: AtomicU32,
    /// In a leader: the process that holds its table of descriptors, or zero.
    pub table: AtomicU32,
    /// In a leader whose recording is for followers alone: the launcher. Without it, or when
    /// `leader` says [`Leader::Ended`], nobody reads the recording.
    pub launcher: AtomicU32,
    /// In a follower that has gone on: connections that could not be taken over.
    pub lost_connections: AtomicU32,
    /// As above: files that it wrote and that are not here.
    pub lost_files: AtomicU32,
    /// As above: files from which what no log tells was cut off.
    pub cut_files: AtomicU32,
    /// In a follower whose leader is elsewhere: children that were none any more, and were ended.
    pub dropped_children: AtomicU32,
    /// In a follower: 1 once a child has written to a file that its parent appends to.
    pub shares_appended: AtomicU32,
    /// Files that were given to the follower that writes the log.
    pub given: AtomicU32,
    /// 1 while there is such a follower and it can take more files.
    pub takes: AtomicU32,
    /// How often it has looked at every log, and done all that there was.
    pub rounds: AtomicU64,
    /// To a follower: 1 once nobody else will read the log, so that what was replayed can be given
    /// back to the file system.
    pub discards: AtomicU32,
    /// 1 while the threads of a replay are to wait where they are, for a checkpoint.
    pub halts: AtomicU32,
    /// How many of them do.
    pub halted: AtomicU32,
    /// In a follower whose leader is elsewhere: the process that the launcher started, of which
    /// only the step counts, and those that it has made.
    pub first: Member,
    pub members: [Member; MEMBERS],
    /// 1 once one of them cannot be recorded from here on.
    pub unrecorded: AtomicU32,
}

impl Board {
    pub const MAGIC: [u8; 8] = *b"HCBOARD\0";

    /// The bytes that make a fresh board: write them into a memory file of [`Board::bytes`] bytes;
    /// the rest is zero.
    pub fn prefix() -> [u8; 12] {
        let mut prefix = [0; 12];
        prefix[..8].copy_from_slice(&Self::MAGIC);
        prefix[8..].copy_from_slice(&VERSION.to_ne_bytes());
        prefix
    }

    pub const fn bytes() -> usize {
        size_of::<Self>()
    }

    pub fn leader(&self) -> Leader {
        match self.leader.load(Ordering::Acquire) {
            1 => Leader::Ended,
            2 => Leader::Lost,
            3 => Leader::Replaced,
            4 => Leader::Succeeded,
            _ => Leader::Runs,
        }
    }

    pub fn set_leader(&self, leader: Leader) {
        self.leader.store(leader as u32, Ordering::Release);
    }

    /// A slot for a new thread; `None` when there have been too many, which only costs the
    /// launcher's view.
    pub fn take_slot(&self) -> Option<&Slot> {
        let index = self.slots_used.fetch_add(1, Ordering::Relaxed) as usize;
        self.slots.get(index)
    }

    /// Whether the caller is the first to report; if so it fills the report in and calls
    /// [`Board::complete_report`].
    pub fn begin_report(&self) -> bool {
        self.report
            .state
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    pub fn complete_report(&self) {
        self.report.state.store(2, Ordering::Release);
    }

    pub fn report(&self) -> Option<(ReportKind, &Report)> {
        if self.report.state.load(Ordering::Acquire) != 2 {
            return None;
        }
        let kind = match self.report.kind.load(Ordering::Relaxed) {
            1 => ReportKind::Divergence,
            2 => ReportKind::RecordingEnds,
            3 => ReportKind::Unusable,
            4 => ReportKind::Policy,
            5 => ReportKind::Broken,
            _ => ReportKind::None,
        };
        Some((kind, &self.report))
    }
}
