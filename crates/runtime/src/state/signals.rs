//! Signals: what the program believes about them, and what waits to be delivered.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// What a thread knows about its signals. Touched by its thread and by signal handlers that
/// interrupt it.
pub struct ThreadSignals {
    /// 1 while a queued signal may be delivered.
    pub due: AtomicU8,
    /// The thread waits in a function of libc, and a signal may be delivered at once.
    pub open: AtomicBool,
    /// The system call that [`Thread::blocking6`] was in last, to know whether it can be
    /// restarted; negative: none.
    pub blocking: AtomicI64,
    /// Which signals the program has blocked in this thread.
    pub blocked: u64,
    /// While the thread is in `sigsuspend`: the mask that is in force there.
    pub suspended: Option<u64>,
    /// Boundaries so far.
    pub boundaries: u32,
    /// Stack pointer of the program when it entered the call that the thread is in.
    pub stack: usize,
    pub queue: Queue,
    /// The kernel's timer for a signal that waits while the thread computes; negative: not made
    /// yet.
    pub timer: i32,
    /// The timer runs.
    pub watched: bool,
    /// How many handlers the thread is in. One that was left by a jump counts for ever, as it does
    /// in replay.
    pub depth: u64,
    /// The alternate stack that the program has set, where the kernel has a larger one of ours:
    /// its begin and its length.
    pub alternate: Option<[usize; 2]>,
}

impl ThreadSignals {
    pub const fn new() -> Self {
        ThreadSignals {
            due: AtomicU8::new(0),
            open: AtomicBool::new(false),
            blocking: AtomicI64::new(-1),
            blocked: 0,
            suspended: None,
            boundaries: 0,
            stack: 0,
            queue: Queue::new(),
            timer: -1,
            watched: false,
            depth: 0,
            alternate: None,
        }
    }

    /// A thread starts with the mask of the one that creates it.
    pub fn inherit(&mut self, creator: &ThreadSignals) {
        self.blocked = creator.blocked;
    }

    /// Where the program's stack ends at the call that begins.
    #[inline(always)]
    pub fn enters_with_stack(&mut self, pointer: usize) {
        self.stack = pointer;
    }

    /// Looks again whether something in the queue may be delivered.
    pub fn look(&mut self) {
        let due = self.queue.has_due(self.suspended.unwrap_or(self.blocked));
        self.due.store(due.into(), Ordering::Relaxed);
    }
}

/// The part of `siginfo_t` that the kernel fills in.
const INFO_BYTES: usize = 48;
pub type Info = [u64; INFO_BYTES / 8];

const QUEUE_MAX: usize = 48;

#[derive(Clone, Copy)]
pub struct Queued {
    pub signal: i32,
    /// The kernel delivered it although the program has it blocked: a temporary mask was in force,
    /// as in `ppoll`.
    pub forced: bool,
    pub info: Info,
}

/// Signals that have arrived and were not delivered. Its thread touches it with signals blocked.
pub struct Queue {
    pub entries: [Queued; QUEUE_MAX],
    length: usize,
}

impl Queue {
    pub const fn new() -> Self {
        Queue {
            entries: [Queued {
                signal: 0,
                forced: false,
                info: [0; INFO_BYTES / 8],
            }; QUEUE_MAX],
            length: 0,
        }
    }

    /// The kernel has delivered it: without us its handler would have run by now, so one that waits
    /// here already does not stand for it. What does not fit is lost, as it would be beyond the
    /// kernel's own limit.
    pub fn push(&mut self, queued: Queued) {
        if self.length < QUEUE_MAX {
            self.entries[self.length] = queued;
            self.length += 1;
        }
    }

    fn position(&self, blocked: u64) -> Option<usize> {
        self.entries[..self.length]
            .iter()
            .position(|entry| entry.forced || blocked & bit(entry.signal) == 0)
    }

    pub fn has_due(&self, blocked: u64) -> bool {
        self.position(blocked).is_some()
    }

    pub fn take(&mut self, blocked: u64) -> Option<Queued> {
        let index = self.position(blocked)?;
        let taken = self.entries[index];
        self.entries.copy_within(index + 1..self.length, index);
        self.length -= 1;
        Some(taken)
    }

    pub fn take_any(&mut self) -> Option<Queued> {
        self.take(0)
    }
}

/// What `rt_sigaction` takes: not what libc's `sigaction` is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelAction {
    pub handler: usize,
    pub flags: u64,
    pub restorer: usize,
    pub mask: u64,
}

pub const SIGNALS: usize = 65;
/// Signals of libc's own: to end a thread and to change the identity of all threads.
const LIBC_CANCEL: i32 = 32;
const LIBC_SETXID: i32 = 33;

/// An action as the program set it. Read by handlers in any thread; whoever races to set one races
/// without us, too.
struct Entry {
    handler: AtomicUsize,
    flags: AtomicU64,
    restorer: AtomicUsize,
    mask: AtomicU64,
}

static ACTIONS: [Entry; SIGNALS] = [const {
    Entry {
        handler: AtomicUsize::new(0),
        flags: AtomicU64::new(0),
        restorer: AtomicUsize::new(0),
        mask: AtomicU64::new(0),
    }
}; SIGNALS];

/// What the default action of a signal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    Ends,
    Ignored,
    /// Stops or continues: the kernel's matter.
    Stops,
}

pub fn default_of(signal: i32) -> Default {
    match signal {
        libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH => Default::Ignored,
        libc::SIGCONT | libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
            Default::Stops
        }
        _ => Default::Ends,
    }
}

/// Signals that instructions raise.
pub fn is_fault(signal: i32) -> bool {
    matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP
    )
}

pub fn is_libcs_own(signal: i32) -> bool {
    signal == LIBC_CANCEL || signal == LIBC_SETXID
}

/// What the program has set.
pub fn action(signal: i32) -> KernelAction {
    let entry = &ACTIONS[signal as usize];
    KernelAction {
        handler: entry.handler.load(Ordering::Relaxed),
        flags: entry.flags.load(Ordering::Relaxed),
        restorer: entry.restorer.load(Ordering::Relaxed),
        mask: entry.mask.load(Ordering::Relaxed),
    }
}

/// The program sets it. The kernel is told by others.
pub fn set(signal: i32, action: &KernelAction) {
    let entry = &ACTIONS[signal as usize];
    entry.flags.store(action.flags, Ordering::Relaxed);
    entry.restorer.store(action.restorer, Ordering::Relaxed);
    entry.mask.store(action.mask, Ordering::Relaxed);
    entry.handler.store(action.handler, Ordering::Release);
}

/// The action is the default one.
pub fn reset(signal: i32) {
    ACTIONS[signal as usize]
        .handler
        .store(libc::SIG_DFL, Ordering::Relaxed);
}

pub const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The kernel ignores attempts to block these.
pub const UNBLOCKABLE: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);

/// Never blocked in the kernel: the runtime lives by them.
const OURS: u64 = bit(libc::SIGSYS) | bit(libc::SIGSEGV);

/// What may come at any time. Faults cannot wait, and libc's own signals must not.
pub const ASYNCHRONOUS: u64 = !(OURS
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(32)
    | bit(33));

/// What the kernel is given for what the program wants.
pub const fn realized(wanted: u64) -> u64 {
    wanted & !OURS
}

/// What is blocked while a handler runs, beside what is blocked already.
pub fn blocked_by(signal: i32, action: &KernelAction) -> u64 {
    let own = if action.flags & libc::SA_NODEFER as u64 == 0 {
        bit(signal)
    } else {
        0
    };
    (action.mask | own) & !UNBLOCKABLE
}

pub fn read_mask(context: *const libc::ucontext_t) -> u64 {
    // SAFETY: the kernel's mask has 8 bytes.
    unsafe { (&raw const (*context).uc_sigmask).cast::<u64>().read() }
}

pub fn write_mask(context: *mut libc::ucontext_t, mask: u64) {
    // SAFETY: as above.
    unsafe { (&raw mut (*context).uc_sigmask).cast::<u64>().write(mask) }
}
