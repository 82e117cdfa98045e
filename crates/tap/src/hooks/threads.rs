//! Threads that the program makes. Each is told who it is before it begins.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use hindcast_taplog::starts::Identity;
use libc::{c_int, c_void, pthread_attr_t, pthread_t};

use crate::real::real;
use crate::starts;

/// Threads that may be on their way to their beginning at a time. Others are not known.
const BEGINNINGS: usize = 256;

/// What a thread is to do.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Work {
    start: *mut c_void,
    argument: *mut c_void,
}

struct Beginning {
    is_taken: AtomicBool,
    of: UnsafeCell<MaybeUninit<(Work, Identity)>>,
}

// SAFETY: who has turned `is_taken` has what is in it, and the thread that it is for.
unsafe impl Sync for Beginning {}

static ALL: [Beginning; BEGINNINGS] = [const {
    Beginning {
        is_taken: AtomicBool::new(false),
        of: UnsafeCell::new(MaybeUninit::uninit()),
    }
}; BEGINNINGS];

impl Beginning {
    fn take() -> Option<&'static Self> {
        let is_free = |one: &&Self| {
            let turn = (Ordering::Acquire, Ordering::Relaxed);
            let taken = one.is_taken.compare_exchange(false, true, turn.0, turn.1);
            taken.is_ok()
        };
        ALL.iter().find(is_free)
    }

    fn give_back(&self) {
        self.is_taken.store(false, Ordering::Release);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: *mut c_void,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: what the caller gave, or a beginning that is this thread's alone.
    unsafe {
        let real = real!(
            fn pthread_create(*mut pthread_t, *const pthread_attr_t, *mut c_void, *mut c_void) -> c_int
        );
        // It is counted even where it cannot be told who it is.
        let beginning = starts::thread().and_then(|one| Some((Beginning::take()?, one)));
        let Some((beginning, identity)) = beginning else {
            return real(thread, attributes, start, argument);
        };
        (*beginning.of.get()).write((Work { start, argument }, identity));
        let place: *const Beginning = beginning;
        let made = real(
            thread,
            attributes,
            begin as *mut c_void,
            place.cast_mut().cast(),
        );
        if made != 0 {
            beginning.give_back();
        }
        made
    }
}

/// What the thread begins with. It goes on to what it is to do without a frame of ours beneath:
/// who ends a thread, or unwinds it, finds the same as without.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn begin() {
    std::arch::naked_asm!(
        "sub rsp, 8",
        "call {begun}",
        "add rsp, 8",
        "mov rdi, rdx",
        "jmp rax",
        begun = sym begun,
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn begin() {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "bl {begun}",
        "ldp x29, x30, [sp], #16",
        "mov x16, x0",
        "mov x0, x1",
        "br x16",
        begun = sym begun,
    )
}

unsafe extern "C" fn begun(beginning: *const Beginning) -> Work {
    // SAFETY: who made the thread has written there for it.
    let (work, identity) = unsafe {
        let beginning = &*beginning;
        let of = (*beginning.of.get()).assume_init();
        beginning.give_back();
        of
    };
    starts::is(identity);
    work
}
