//! Mutexes as libc makes them: what is in one, and whether it is as it is known.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use hindcast_execlog::config::{Order, Run};
use libc::pthread_mutex_t;

use super::real;
use crate::state::mode::one_at_a_time;
use crate::state::recording;
use crate::state::sync::Quick;
use crate::state::thread::{self, Current, Thread};
use crate::syscall;

/// `pthread_mutex_t` of glibc for x86-64.
#[repr(C)]
pub struct Known {
    /// 0 free, 1 locked, 2 locked and somebody may sleep.
    pub lock: AtomicU32,
    pub count: u32,
    /// The kernel's id of the thread that holds it.
    pub owner: u32,
    pub users: u32,
    pub kind: c_int,
    spins: u32,
    /// Links in the list of robust and priority-inheriting mutexes that a thread holds: free in
    /// all others. The first is where the order keeps the last acquisition.
    pub links: [u64; 2],
}

const _: () = assert!(size_of::<Known>() == size_of::<pthread_mutex_t>());

/// The kind of an ordinary mutex of one process.
pub const ORDINARY: c_int = 0;
/// Bits of the kind: robust, priority-inheriting, shared between processes. These have their owners
/// in the table, the last because another process would write numbers of its own threads there.
pub const IN_TABLE: c_int = 16 | 32 | 128;

/// What the quick path of a thread is in a process with several.
fn quick(order: Order) -> Quick {
    match (recording::config().run(), order) {
        _ if !is_as_known() || one_at_a_time() => Quick::Nothing,
        (Run::Record, Order::Edge) => Quick::Edge,
        (Run::Record, Order::Relaxed) => Quick::Relaxed,
        (Run::Replay, _) => Quick::Replay,
        _ => Quick::Nothing,
    }
}

/// Whether libc does to a mutex what this module does.
fn is_as_known() -> bool {
    static ANSWER: AtomicU8 = AtomicU8::new(2);
    match ANSWER.load(Ordering::Relaxed) {
        2 => {}
        answer => return answer == 1,
    }
    let mut trial = std::mem::MaybeUninit::<pthread_mutex_t>::zeroed();
    let mutex = trial.as_mut_ptr();
    // SAFETY: zeroed memory is an ordinary mutex; both views of it are used one after the other.
    let known = unsafe {
        let seen = mutex.cast::<Known>();
        let me = syscall!(libc::SYS_gettid) as u32;
        let locked = real!(pthread_mutex_lock: fn(*mut pthread_mutex_t) -> c_int)(mutex) == 0;
        let held = (*seen).lock.load(Ordering::Relaxed) == 1
            && (*seen).owner == me
            && (*seen).users == 1
            && (*seen).kind == ORDINARY;
        let untouched = (*seen).count == 0 && (*seen).links == [0; 2];
        let unlocked = real!(pthread_mutex_unlock: fn(*mut pthread_mutex_t) -> c_int)(mutex) == 0;
        let free =
            (*seen).lock.load(Ordering::Relaxed) == 0 && (*seen).owner == 0 && (*seen).users == 0;
        locked && held && untouched && unlocked && free
    };
    ANSWER.store(known.into(), Ordering::Relaxed);
    known
}

/// Locks an ordinary mutex that is free.
#[inline(always)]
pub unsafe fn take(thread: &Thread, mutex: *mut Known) -> bool {
    // SAFETY: the program's mutex.
    unsafe {
        if (*mutex).kind != ORDINARY
            || (*mutex)
                .lock
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return false;
        }
        (*mutex).owner = thread.kernel_id.load(Ordering::Relaxed);
        (*mutex).users += 1;
    }
    true
}

/// The thread begins, in system space.
pub fn thread_starting(thread: &mut Current) {
    if thread.number != 0 || thread::are_several() {
        second_thread(thread);
    }
}

/// The process is about to have a second thread. Called by the first.
pub fn second_thread(thread: &mut Current) {
    thread.sync.quick = quick(thread.sync.order);
}
