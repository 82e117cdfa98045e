//! Who a thread is, in which process: what it draws while it works on no request is known by that.
//!
//! ```text
//!   the program begins ──▶ its command, and what has started it ──▶ the first thread
//!   pthread_create     ──▶ n-th of its creator                  ──▶ a thread
//!   fork               ──▶ n-th of the thread that forks        ──▶ the first thread of a child
//! ```
//!
//! Glibc runs handlers around `fork`, and around those of `daemon` and `forkpty`. A child that was
//! made by another way has memory with what its parent knew of itself. It is seen by its page of
//! memory that the kernel wipes ([`process::generation`]), is not known from there on, and draws
//! from the kernel. So does a thread that was made by another way.

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hindcast_taplog::pins::{Caller, Draw};
use hindcast_taplog::starts::{Identity, Thread, Together};
use libc::{c_char, c_int, c_void};

use crate::process;

unsafe extern "C" {
    fn __register_atfork(
        prepare: extern "C" fn(),
        parent: extern "C" fn(),
        child: extern "C" fn(),
        library: *mut c_void,
    ) -> c_int;
}

/// The generation of this process, as far as we have seen; 0: nothing is pinned.
static SEEN: AtomicU32 = AtomicU32::new(0);
/// What programs descend from that a child of this process starts; 0: from the child. See
/// [`hindcast_taplog::starts::Program::is_shell`].
static BASE: AtomicU64 = AtomicU64::new(0);

/// What all threads of the process draw together, if they do: see [`begin_together`].
static TOGETHER: Together = Together::new();
/// The process that they are of; 0: they do not.
static TOGETHER_IN: AtomicU32 = AtomicU32::new(0);

struct Mine {
    thread: Thread,
    /// The process that the thread is of. One that has another one is not known.
    generation: Cell<u32>,
    /// The child that it is about to fork.
    child: Cell<Identity>,
}

thread_local! {
    static MINE: Mine = const {
        Mine {
            thread: Thread::new(),
            generation: Cell::new(0),
            child: Cell::new(Identity::UNKNOWN),
        }
    };
}

/// The program begins with these arguments, a null behind the last.
///
/// # Safety
/// They are that, or null.
pub unsafe fn begin(arguments: *const *const c_char) {
    let board = process::board().filter(|board| board.starts().are_pinned());
    let Some(starts) = board.map(|board| board.starts()) else {
        return;
    };
    let argument = |nth: usize| {
        // SAFETY: as the caller promises; the ones in front were not null.
        let one = unsafe { *arguments.add(nth) };
        // SAFETY: an argument is a C string.
        (!one.is_null()).then(|| unsafe { CStr::from_ptr(one) }.to_bytes())
    };
    let arguments = (0..).map_while(|nth| {
        if arguments.is_null() {
            None
        } else {
            argument(nth)
        }
    });
    // SAFETY: it always succeeds.
    let parent = unsafe { libc::getppid() } as u32;
    let program = starts.program((process::pid(), parent), arguments);
    // SAFETY: the functions stay as long as the process.
    let told = unsafe { __register_atfork(forks, has_forked, is_forked, std::ptr::null_mut()) };
    if told != 0 {
        return;
    }
    let generation = process::generation();
    MINE.with(|mine| {
        mine.thread.begin_program(&program);
        mine.generation.set(generation);
    });
    let base = if program.is_shell {
        program.base
    } else {
        Identity::UNKNOWN
    };
    BASE.store(base.number(), Ordering::Relaxed);
    SEEN.store(generation, Ordering::Relaxed);
}

/// Whether what threads draw outside of requests is computed.
pub fn are_pinned() -> bool {
    SEEN.load(Ordering::Relaxed) != 0
}

/// Where the thread's next draw comes from; `None`: from the kernel.
pub fn draw(caller: Caller) -> Option<Draw> {
    let starts = process::board()?.starts();
    known(|mine| mine.thread.draw(starts, caller)).flatten()
}

/// The process has a runtime with threads of its own: from here on [`draw_together`] knows what it
/// draws. This is its first thread, and there is no other one yet.
pub fn begin_together() {
    let identity = known(|mine| mine.thread.together());
    if let (Some(identity), Some(board)) = (identity, process::board()) {
        TOGETHER.begin(board.starts(), identity);
        TOGETHER_IN.store(process::generation(), Ordering::Relaxed);
    }
}

/// Where the next draw by this code of such a process comes from, whichever thread runs it; `None`:
/// from the kernel.
pub fn draw_together(caller: Caller) -> Option<Draw> {
    if TOGETHER_IN.load(Ordering::Relaxed) != process::generation() || !are_pinned() {
        return None;
    }
    TOGETHER.draw(process::board()?.starts(), caller)
}

/// The next thread that this one makes.
pub fn thread() -> Option<Identity> {
    known(|mine| mine.thread.thread())
}

/// This thread is that one, and has begun just now.
pub fn is(identity: Identity) {
    let generation = process::generation();
    MINE.with(|mine| {
        mine.thread.begin(identity);
        mine.generation.set(generation);
    });
}

/// `None` if nothing is pinned, or it is not known who the thread is.
fn known<T>(of: impl FnOnce(&Mine) -> T) -> Option<T> {
    if !are_pinned() {
        return None;
    }
    let generation = process::generation();
    MINE.with(|mine| {
        if SEEN.swap(generation, Ordering::Relaxed) != generation {
            become_child(mine, generation);
        }
        (mine.generation.get() == generation).then(|| of(mine))
    })
}

/// This is the one thread of a child.
fn become_child(mine: &Mine, generation: u32) {
    let identity = mine.child.take();
    mine.thread.begin(identity);
    mine.generation.set(generation);
    let base = match BASE.load(Ordering::Relaxed) {
        0 => identity,
        base => Identity::of_number(base),
    };
    if let Some(board) = process::board() {
        board.starts().begins(process::pid(), base);
    }
}

extern "C" fn forks() {
    let child = known(|mine| mine.thread.child());
    MINE.with(|mine| mine.child.set(child.unwrap_or_default()));
}

extern "C" fn has_forked() {
    MINE.with(|mine| mine.child.set(Identity::UNKNOWN));
}

extern "C" fn is_forked() {
    let _ = known(|_| ());
}
