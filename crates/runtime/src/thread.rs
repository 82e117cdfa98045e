//! A thread of the recorded program, and the bit that says in which space it is.

use std::arch::{asm, global_asm};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

use hindcast_execlog::config::addresses;
use hindcast_execlog::{THREADS_MAX, board};

use crate::cache::Cache;
use crate::instructions::Asking;
use crate::log::{Reader, Writer};
use crate::mode::{Mode, mode};
use crate::{heap, raw, signals, sync};

/// In system space: stubs pass through, system calls go straight to the kernel.
pub const SYSTEM: u8 = 0;
/// In replay space: stubs record or replay, other system calls trap.
pub const REPLAY: u8 = 1;

/// One thread of the program. Lives at an address of its own for ever and is touched by its thread alone, but for what is atomic.
#[repr(C)]
pub struct Thread {
    /// R2's mode bit, which is at the same time the selector byte of Syscall User Dispatch.
    pub selector: AtomicU8,
    /// The thread's number in its process: its log's name, the high part of its owner words.
    pub number: u32,
    /// Acquisitions so far: the low part of its owner words.
    pub acquired: u64,
    pub writer: Writer,
    pub reader: Reader,
    pub heap: heap::ThreadHeap,
    pub signals: signals::ThreadSignals,
    pub sync: sync::ThreadSync,
    pub cache: Cache,
    /// The thread's line on the launcher's board, if there was one left.
    pub slot: Option<&'static board::Slot>,
    /// Replay: everything that the log holds was consumed.
    pub at_end: AtomicBool,
    /// The thread runs because a time limit ran out, and has not waited again since.
    pub woken_by_time: bool,
    pub asking: Asking,
    /// The thread has ended.
    pub ended: AtomicBool,
    pub kernel_id: AtomicU32,
}

// The address of the current thread's state, in the initial-exec model: one instruction, no call, no allocation.
global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".globl hindcast_current_thread",
    ".hidden hindcast_current_thread",
    ".type hindcast_current_thread, @object",
    ".size hindcast_current_thread, 8",
    ".p2align 3",
    "hindcast_current_thread:",
    ".zero 8",
    ".text",
);

#[inline(always)]
fn current_pointer() -> *mut Thread {
    let thread: *mut Thread;
    // SAFETY: reads the word above in this thread's static block. Not `pure`: a fork or a new thread changes it.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + hindcast_current_thread@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) thread,
            options(nostack, readonly, preserves_flags)
        );
    }
    thread
}

/// Makes `thread` the state of the calling thread.
pub fn set_current(thread: *mut Thread) {
    // SAFETY: as above.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + hindcast_current_thread@GOTTPOFF]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _,
            in(reg) thread,
            options(nostack, preserves_flags)
        );
    }
}

/// The calling thread's state. `None` before init and for threads that libraries made behind our back.
#[inline(always)]
pub fn current() -> Option<&'static mut Thread> {
    // SAFETY: set to a state that lives for ever and belongs to this thread. Callers do not keep two of these across a call
    // that uses the other: every entry from the program fetches it once.
    unsafe { current_pointer().as_mut() }
}

/// The calling thread's state if it is in replay space of a process that is recorded or replayed.
#[inline(always)]
pub fn in_replay_space() -> Option<&'static mut Thread> {
    let thread = current()?;
    (thread.selector.load(Ordering::Relaxed) == REPLAY && mode() != Mode::Off).then_some(thread)
}

/// Runs `inner` in system space, then returns to replay space.
#[inline(always)]
pub fn system_space<R>(thread: &mut Thread, inner: impl FnOnce() -> R) -> R {
    thread.enter_system();
    let result = inner();
    thread.enter_replay();
    result
}

/// As [`system_space`] for code that holds the thread's state as well.
#[inline(always)]
pub fn with_system_space<R>(thread: &mut Thread, inner: impl FnOnce(&mut Thread) -> R) -> R {
    thread.enter_system();
    let result = inner(thread);
    thread.enter_replay();
    result
}

impl Thread {
    #[inline(always)]
    pub fn enter_system(&self) {
        self.selector.store(SYSTEM, Ordering::Relaxed);
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }

    /// Back to replay space; stays in system space once recording has ended.
    #[inline(always)]
    pub fn enter_replay(&self) {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        if mode() != Mode::Off {
            self.selector.store(REPLAY, Ordering::Relaxed);
        }
    }

    /// The thread's logical time: events of its log that were written or consumed.
    pub fn event(&self) -> u64 {
        match mode() {
            Mode::Replay => self.reader.events(),
            _ => self.writer.events(),
        }
    }

    /// Tells the launcher what the thread is doing.
    pub fn show(&self, state: board::State, function: u16) {
        if let Some(slot) = self.slot {
            slot.function.store(function.into(), Ordering::Relaxed);
            slot.event.store(self.reader.events(), Ordering::Relaxed);
            slot.state.store(state as u32, Ordering::Release);
        }
    }
}

/// Room for a thread's state: whole pages, so that one thread's do not share a page with another's selector.
const STATE_BYTES: usize = 64 * 1024;
const _: () = assert!(size_of::<Thread>() <= STATE_BYTES);

/// Every thread there has been, by number. Entries are written once, before the thread starts.
static THREADS: [AtomicPtr<Thread>; THREADS_MAX] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; THREADS_MAX];
static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// A fresh state for a thread with this number; `None` when memory is short.
pub fn create(number: u32) -> Option<&'static mut Thread> {
    let address = addresses::RUNTIME + number as usize * STATE_BYTES;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the room of this number, which no other thread has.
    let room = unsafe {
        raw::map_at(
            address,
            STATE_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    }
    .ok()?;
    let thread = room.cast::<Thread>();
    // SAFETY: fresh zeroed memory of sufficient size; every field is written before it is read.
    unsafe {
        thread.write(Thread {
            selector: AtomicU8::new(SYSTEM),
            number,
            acquired: 0,
            writer: Writer::closed(),
            reader: Reader::closed(),
            heap: heap::ThreadHeap::new(number),
            signals: signals::ThreadSignals::new(),
            sync: sync::ThreadSync::new(number),
            cache: Cache::new(),
            slot: None,
            at_end: AtomicBool::new(false),
            woken_by_time: false,
            asking: Asking::default(),
            ended: AtomicBool::new(false),
            kernel_id: AtomicU32::new(0),
        });
    }
    THREADS[number as usize].store(thread, Ordering::Release);
    NUMBERS.fetch_max(number + 1, Ordering::AcqRel);
    // SAFETY: as `current`.
    unsafe { thread.as_mut() }
}

/// The number for the next thread of this process. Recorded: replay takes it from the log of the creating thread.
pub fn next_number() -> Option<u32> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let floor = NUMBERS.load(Ordering::Acquire);
    NEXT.fetch_max(floor, Ordering::AcqRel);
    let number = NEXT.fetch_add(1, Ordering::AcqRel);
    ((number as usize) < THREADS_MAX).then_some(number)
}

/// The state of the thread with this number, for what is atomic in it.
pub fn by_number(number: u32) -> Option<&'static Thread> {
    // SAFETY: states live for ever; the reference is used for atomics only.
    unsafe {
        THREADS
            .get(number as usize)?
            .load(Ordering::Acquire)
            .as_ref()
    }
}

/// How many thread numbers were given out.
pub fn count() -> u32 {
    NUMBERS.load(Ordering::Acquire)
}

/// All threads there have been.
pub fn all() -> impl Iterator<Item = &'static Thread> {
    (0..count()).filter_map(by_number)
}

/// In a forked child: only the calling thread is left.
pub fn forget_others(keep: &Thread) {
    for entry in &THREADS {
        let thread = entry.load(Ordering::Relaxed);
        if !thread.is_null() && !std::ptr::eq(thread, keep) {
            entry.store(std::ptr::null_mut(), Ordering::Relaxed);
        }
    }
}
