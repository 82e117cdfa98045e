//! Waiting while a checkpoint is taken.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use hindcast_execlog::THREADS_MAX;
use hindcast_execlog::checkpoint::HALT_SIGNAL;

use crate::mechanism::signals::kernel;
use crate::state::recording;
use crate::state::signals::{KernelAction, bit};
use crate::state::thread::{self, Thread};
use crate::{raw, syscall};

pub const ARCH_GET_FS: i32 = 0x1003;
const ARCH_GET_GS: i32 = 0x1004;
const PR_GET_TID_ADDRESS: i32 = 40;

/// What the kernel knows of a thread that waits, and no memory tells.
#[repr(C)]
pub struct Halted {
    /// The handler's frame, to which the thread returns.
    pub frame: AtomicUsize,
    pub fs: AtomicUsize,
    pub gs: AtomicUsize,
    pub robust_list: [AtomicUsize; 2],
    /// What the kernel clears when the thread has ended.
    pub ended_at: AtomicUsize,
    /// Its [`Thread`]; none before it begins and when it has ended.
    pub thread: AtomicUsize,
    /// 1 for the thread that has the number of the process.
    pub is_first: AtomicUsize,
}

/// Those that wait, in the order in which they came.
static HALTED: [Halted; THREADS_MAX] = [const {
    Halted {
        frame: AtomicUsize::new(0),
        fs: AtomicUsize::new(0),
        gs: AtomicUsize::new(0),
        robust_list: [const { AtomicUsize::new(0) }; 2],
        ended_at: AtomicUsize::new(0),
        thread: AtomicUsize::new(0),
        is_first: AtomicUsize::new(0),
    }
}; THREADS_MAX];
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Those that waited when the checkpoint was taken. Nobody waits from here on.
pub fn take() -> &'static [Halted] {
    let count = COUNT.swap(0, Ordering::AcqRel) as usize;
    &HALTED[..count.min(THREADS_MAX)]
}

/// Has the kernel call [`halt`]. In replay alone, where no signal of the program's comes from the
/// kernel.
pub fn listen() {
    let action = KernelAction {
        handler: halt as *const () as usize,
        flags: (libc::SA_SIGINFO | libc::SA_RESTART) as u64 | kernel::SA_RESTORER,
        restorer: kernel::restorer(),
        mask: 0,
    };
    kernel::set_action(HALT_SIGNAL, &action);
}

/// The process is about to become another image, which listens when it has begun.
pub fn postpone() {
    kernel::set_mask(kernel::mask() | bit(HALT_SIGNAL));
}

/// The handler: waits until the launcher has seen enough. Wherever the thread was, it goes on from
/// there, in this process or in one that becomes it.
extern "C" fn halt(_: i32, _: *mut libc::siginfo_t, frame: *mut libc::ucontext_t) {
    let Some(board) = recording::board() else {
        return;
    };
    if board.halts.load(Ordering::Acquire) == 0 {
        return;
    }
    let place = COUNT.fetch_add(1, Ordering::AcqRel) as usize;
    if let Some(halted) = HALTED.get(place) {
        halted.note(frame as usize);
        board.halted.fetch_add(1, Ordering::AcqRel);
        while board.halts.load(Ordering::Acquire) != 0 {
            // SAFETY: waits at a word of the board while it is one.
            unsafe {
                syscall!(
                    libc::SYS_futex,
                    board.halts.as_ptr(),
                    libc::FUTEX_WAIT,
                    1,
                    0
                )
            };
        }
        COUNT.fetch_sub(1, Ordering::AcqRel);
        board.halted.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Halted {
    fn note(&self, frame: usize) {
        // SAFETY: each writes one word, or two.
        let (fs, gs, robust_list, ended_at, is_first) = unsafe {
            let (mut fs, mut gs, mut list, mut length, mut ended_at) = (0usize, 0, 0, 0, 0);
            syscall!(libc::SYS_arch_prctl, ARCH_GET_FS, &raw mut fs);
            syscall!(libc::SYS_arch_prctl, ARCH_GET_GS, &raw mut gs);
            syscall!(libc::SYS_get_robust_list, 0, &raw mut list, &raw mut length);
            let told = syscall!(libc::SYS_prctl, PR_GET_TID_ADDRESS, &raw mut ended_at);
            if raw::error_of(told).is_some() {
                ended_at = 0;
            }
            let is_first = syscall!(libc::SYS_getpid) == syscall!(libc::SYS_gettid);
            (fs, gs, [list, length], ended_at, is_first)
        };
        // SAFETY: the guard is used for what is atomic, and gone at once.
        let thread = unsafe { thread::current() };
        if let Some(thread) = &thread {
            thread.show_event();
        }
        let thread = thread.map_or(std::ptr::null_mut::<Thread>(), |thread| thread.as_ptr());
        let store = |to: &AtomicUsize, value| to.store(value, Ordering::Relaxed);
        store(&self.frame, frame);
        store(&self.fs, fs);
        store(&self.gs, gs);
        store(&self.robust_list[0], robust_list[0]);
        store(&self.robust_list[1], robust_list[1]);
        store(&self.ended_at, ended_at);
        store(&self.thread, thread as usize);
        store(&self.is_first, is_first.into());
    }
}
