//! A thread of the recorded program, and the bit that says in which space it is.

use std::arch::{asm, global_asm};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use hindcast_execlog::config::addresses;
use hindcast_execlog::{THREADS_MAX, board};

use crate::raw;
use crate::state::cache::Cache;
use crate::state::heap::ThreadHeap;
use crate::state::log::{Reader, Writer};
use crate::state::mode::{Mode, mode};
use crate::state::signals::ThreadSignals;
use crate::state::sync::ThreadSync;

/// In system space: stubs pass through, system calls go straight to the kernel.
pub const SYSTEM: u8 = 0;
/// In replay space: stubs record or replay, other system calls trap.
pub const REPLAY: u8 = 1;

/// Until when `cpuid` faults in a thread. Both runs count the same.
#[derive(Default)]
pub struct Asking {
    pub traps: bool,
    pub waits: u32,
}

/// One thread of the program. Lives at an address of its own for ever and is touched by its thread
/// alone, but for what is atomic.
#[repr(C)]
pub struct Thread {
    /// R2's mode bit, which is at the same time the selector byte of Syscall User Dispatch.
    pub selector: AtomicU8,
    /// The thread's number in its process: its log's name, the high part of its owner words.
    pub number: u32,
    /// Acquisitions so far: the low part of its owner words. Other threads look at it.
    acquired: AtomicU64,
    pub writer: Writer,
    pub reader: Reader,
    pub heap: ThreadHeap,
    pub signals: ThreadSignals,
    pub sync: ThreadSync,
    pub cache: Cache,
    /// The thread's line on the launcher's board, if there was one left.
    pub slot: Option<&'static board::Slot>,
    /// Replay: everything that the log holds was consumed.
    pub at_end: AtomicBool,
    /// The thread runs because a time limit ran out, and has not waited again since.
    pub woken_by_time: bool,
    /// Where one thread runs at a time: this one is in a call.
    pub away: bool,
    pub asking: Asking,
    /// The thread has ended.
    pub ended: AtomicBool,
    pub kernel_id: AtomicU32,
    /// As `/proc` has it, which may be that of another namespace.
    pub number_in_proc: AtomicU32,
}

// The address of the current thread's state, in the initial-exec model: one instruction, no call,
// no allocation.
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
    // SAFETY: reads the word above in this thread's static block. Not `pure`: a fork or a new
    // thread changes it.
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

/// The calling thread's state, for one way through the runtime: from where the program or the
/// kernel comes in to where it goes on.
///
/// It is a pointer. On the way the program may run (a handler, a callback of a library's) and come
/// in again with a guard of its own, so what is borrowed from this one lasts no longer than one use
/// of it. The mode bit says who is on the way: [`enter`] gives a guard in replay space only, and
/// having it means system space.
pub struct Current<'a>(NonNull<Thread>, PhantomData<&'a mut Thread>);

impl Deref for Current<'_> {
    type Target = Thread;

    #[inline(always)]
    fn deref(&self) -> &Thread {
        // SAFETY: states live for ever, this one is the calling thread's, and who made the guard
        // promised that no other is in use.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for Current<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Thread {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }
    }
}

impl Current<'_> {
    /// The guard for what is called from here; this one rests until that has returned.
    #[inline(always)]
    pub fn lend(&mut self) -> Current<'_> {
        Current(self.0, PhantomData)
    }

    /// The guard of a thread that begins.
    ///
    /// # Safety
    /// The calling thread's state, or that of a thread that does not run yet.
    pub unsafe fn of(thread: *mut Thread) -> Current<'static> {
        // SAFETY: the caller's promise.
        Current(unsafe { NonNull::new_unchecked(thread) }, PhantomData)
    }

    /// For code that runs the program in between.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut Thread {
        self.0.as_ptr()
    }
}

/// The calling thread's state, in whichever space it is. `None` before init and for threads that
/// libraries made behind our back.
///
/// # Safety
/// Nothing that was borrowed from another guard of this thread is used while this one is.
#[inline(always)]
pub unsafe fn current() -> Option<Current<'static>> {
    NonNull::new(current_pointer()).map(|thread| Current(thread, PhantomData))
}

/// The number of the calling thread.
pub fn current_number() -> Option<u32> {
    // SAFETY: states live for ever, and the number never changes.
    NonNull::new(current_pointer())
        .map(|thread| unsafe { (&raw const (*thread.as_ptr()).number).read() })
}

/// As [`current`], if the thread is in replay space of a process that is recorded or replayed, and
/// stays there.
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn current_in_replay_space() -> Option<Current<'static>> {
    // SAFETY: the caller's promise.
    unsafe { current() }
        .filter(|thread| thread.selector.load(Ordering::Relaxed) == REPLAY && mode() != Mode::Off)
}

/// Whether the calling thread is in replay space of a process that is recorded or replayed.
#[inline(always)]
pub fn is_in_replay_space() -> bool {
    // SAFETY: the guard is gone at once.
    unsafe { current_in_replay_space() }.is_some()
}

/// The program comes in: the calling thread's state, in system space from here on. `None` where
/// stubs pass through.
#[inline(always)]
pub fn enter() -> Option<Current<'static>> {
    // SAFETY: in replay space the program runs, and nothing of the runtime that is on its way uses
    // the thread's state.
    let mut thread = unsafe { current_in_replay_space() }?;
    thread.signals.enters_with_stack(raw::stack_pointer());
    thread.enter_system();
    Some(thread)
}

/// As [`enter`], if this is something that is recorded at all.
#[inline(always)]
pub fn enter_if(recorded: bool) -> Option<Current<'static>> {
    if recorded { enter() } else { None }
}

/// Runs `inner` in system space, and nothing of it is recorded.
#[inline(always)]
pub fn in_system_space<R>(inner: impl FnOnce() -> R) -> R {
    let thread = enter();
    let result = inner();
    if let Some(thread) = thread {
        thread.enter_replay();
    }
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

    /// A system call that may block. Returns `-EINTR` as well when a signal was queued just before
    /// it would have entered the kernel.
    ///
    /// # Safety
    /// As the system call.
    pub unsafe fn blocking6(&self, number: i64, arguments: [usize; 6]) -> isize {
        self.signals.blocking.store(number, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { raw::blocking6(number, arguments, &self.signals.due) }
    }

    #[inline(always)]
    pub fn acquired(&self) -> u64 {
        self.acquired.load(Ordering::Relaxed)
    }

    /// The acquisition of this number is in the log.
    #[inline(always)]
    pub fn has_acquired(&self, number: u64) {
        self.acquired.store(number, Ordering::Release);
    }

    /// The thread's logical time: events of its log that were written or consumed.
    pub fn event(&self) -> u64 {
        match mode() {
            Mode::Replay => self.reader.events(),
            _ => self.writer.events(),
        }
    }

    /// Replay: tells the launcher that the log says no more. Until the thread asks for more it
    /// computes, as it did when the process was killed.
    #[cold]
    pub fn has_nothing_left(&self) {
        if let Some(slot) = self.slot {
            slot.at_end.store(1, Ordering::Relaxed);
        }
    }

    /// Tells the launcher how far the thread is.
    pub fn show_event(&self) {
        if let Some(slot) = self.slot {
            slot.event.store(self.reader.events(), Ordering::Relaxed);
            slot.position.store(self.reader.begins(), Ordering::Relaxed);
        }
    }

    /// Tells the launcher what the thread is doing.
    pub fn show(&self, state: board::State, function: u16) {
        if let Some(slot) = self.slot {
            self.show_event();
            slot.function.store(function.into(), Ordering::Relaxed);
            slot.state.store(state as u32, Ordering::Release);
        }
    }
}

/// Room for a thread's state: whole pages, so that one thread's do not share a page with another's
/// selector.
const STATE_BYTES: usize = 64 * 1024;
const _: () = assert!(size_of::<Thread>() <= STATE_BYTES);

/// Every thread there has been, by number. Entries are written once, before the thread starts.
static THREADS: [AtomicPtr<Thread>; THREADS_MAX] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; THREADS_MAX];
static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// A fresh state for a thread with this number; `None` when memory is short.
pub fn create(number: u32) -> Option<Current<'static>> {
    let address = addresses::RUNTIME + number as usize * STATE_BYTES;
    let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
    // SAFETY: the room of this number, which no other thread has.
    let room = unsafe { raw::map_memory(address, STATE_BYTES, flags) }.ok()?;
    let thread = room.cast::<Thread>();
    // SAFETY: fresh zeroed memory of sufficient size; every field is written before it is read.
    unsafe {
        thread.write(Thread {
            selector: AtomicU8::new(SYSTEM),
            number,
            acquired: AtomicU64::new(0),
            writer: Writer::closed(),
            reader: Reader::closed(),
            heap: ThreadHeap::new(),
            signals: ThreadSignals::new(),
            sync: ThreadSync::new(number),
            cache: Cache::new(),
            slot: None,
            at_end: AtomicBool::new(false),
            woken_by_time: false,
            away: false,
            asking: Asking::default(),
            ended: AtomicBool::new(false),
            kernel_id: AtomicU32::new(0),
            number_in_proc: AtomicU32::new(0),
        });
    }
    THREADS[number as usize].store(thread, Ordering::Release);
    NUMBERS.fetch_max(number + 1, Ordering::AcqRel);
    NonNull::new(thread).map(|thread| Current(thread, PhantomData))
}

/// Where a debugger finds threads, and in each its number, its number in the kernel and its events.
#[repr(C)]
pub struct Layout {
    threads: &'static [AtomicPtr<Thread>; THREADS_MAX],
    count: &'static AtomicU32,
    number: usize,
    kernel_id: usize,
    events: usize,
}

#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_upper_case_globals)]
pub static hindcast_layout: Layout = Layout {
    threads: &THREADS,
    count: &NUMBERS,
    number: std::mem::offset_of!(Thread, number),
    kernel_id: std::mem::offset_of!(Thread, kernel_id),
    events: std::mem::offset_of!(Thread, reader) + Reader::EVENTS,
};

pub static SEVERAL: AtomicBool = AtomicBool::new(false);

/// Whether the process has had a second thread.
#[inline(always)]
pub fn are_several() -> bool {
    SEVERAL.load(Ordering::Relaxed)
}

/// The number for the next thread of this process. Recorded: replay takes it from the log of the
/// creating thread.
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
