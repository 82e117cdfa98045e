//! Mutexes: the quick path.
//!
//! Locking and unlocking an ordinary mutex that no other thread wants is done here, as libc does it, with the order on top: the
//! same two atomic instructions, one call less. Whatever is out of the ordinary (another kind, a waiter, another owner
//! before) takes the long way through the real function. Whether libc's mutexes are as this module knows them is found out at start
//! ([`is_as_known`]); if not, all take the long way.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use hindcast_execlog::config::{Order, Run};
use libc::{clockid_t, pthread_mutex_t, timespec};

use super::{
    Outcome, Step, await_turn, back_to_replay, enter, order, publish, real, record_exclusive,
    record_failure, turn,
};
use crate::mode::{Mode, mode};
use crate::thread::{self, REPLAY, Thread};
use crate::{init, raw, signals, syscall};

/// `pthread_mutex_t` of glibc for x86-64.
#[repr(C)]
struct Known {
    /// 0 free, 1 locked, 2 locked and somebody may sleep.
    lock: AtomicU32,
    count: u32,
    /// The kernel's id of the thread that holds it.
    owner: u32,
    users: u32,
    kind: c_int,
    spins: u32,
    /// Links in the list of robust and priority-inheriting mutexes that a thread holds: free in all others. The first is
    /// where the order keeps the last acquisition.
    links: [u64; 2],
}

const _: () = assert!(size_of::<Known>() == size_of::<pthread_mutex_t>());

/// The kind of an ordinary mutex of one process.
const ORDINARY: c_int = 0;
/// Bits of the kind: robust, priority-inheriting, shared between processes. These have their owners in the table, the
/// last because another process would write numbers of its own threads there.
const IN_TABLE: c_int = 16 | 32 | 128;

/// What a thread's quick path may do. Set when the thread begins, and for the first one when the second is created.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Quick {
    /// Nothing: each mutex takes the long way.
    Nothing,
    /// The process has one thread so far: an ordinary mutex is nobody else's business.
    Alone,
    /// Record the order of edges.
    Edge,
    /// Record the relaxed total order.
    Relaxed,
    Replay,
}

/// What the quick path of a thread is in a process with several.
pub fn quick(order: Order) -> Quick {
    match (init::config().run(), order) {
        _ if !is_as_known() => Quick::Nothing,
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
unsafe fn take(thread: &Thread, mutex: *mut Known) -> bool {
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

/// Logs that the mutex, which this thread now holds, was locked.
#[inline(always)]
pub unsafe fn record(thread: &mut Thread, mutex: *mut pthread_mutex_t) {
    // SAFETY: a mutex of the program, which the real function has just dealt with.
    unsafe {
        let known = mutex.cast::<Known>();
        if (*known).kind & IN_TABLE == 0 {
            order::record_inline(thread, (&raw mut (*known).links).cast());
        } else {
            record_exclusive(thread, mutex as u64);
        }
    }
}

#[inline(always)]
unsafe fn record_result(thread: &mut Thread, mutex: *mut pthread_mutex_t, result: c_int) {
    if result != 0 {
        record_failure(thread, result);
        if result != libc::EOWNERDEAD {
            return;
        }
    }
    // SAFETY: held: it was locked, or inherited from a thread that died with it.
    unsafe { record(thread, mutex) };
}

/// Replay of any function that locks: what the log says, and the lock if it was got.
fn replay(thread: &mut Thread, mutex: *mut pthread_mutex_t, function: &'static str) -> c_int {
    let step = Step::new(function, mutex);
    match await_turn(thread, step) {
        Outcome::Acquires => {
            // SAFETY: the program's mutex.
            let result = unsafe { lock_now(thread, mutex, step) };
            publish(thread);
            result
        }
        Outcome::Fails(libc::EOWNERDEAD) => {
            replay(thread, mutex, function);
            libc::EOWNERDEAD
        }
        Outcome::Fails(code) => code,
    }
}

/// Locks a mutex whose turn this is. At worst the previous owner has yet to let go of it.
pub unsafe fn lock_now(thread: &mut Thread, mutex: *mut pthread_mutex_t, step: Step) -> c_int {
    // SAFETY: the program's mutex.
    unsafe {
        let result = real!(pthread_mutex_trylock: fn(*mut pthread_mutex_t) -> c_int)(mutex);
        if result != libc::EBUSY {
            return result;
        }
        super::blocked(thread, step, || {
            real!(pthread_mutex_lock: fn(*mut pthread_mutex_t) -> c_int)(mutex)
        })
    }
}

#[inline(always)]
unsafe fn acquire(
    mutex: *mut pthread_mutex_t,
    function: &'static str,
    thread: &'static mut Thread,
    real: impl FnOnce() -> c_int,
) -> c_int {
    enter(thread);
    let result = if mode() == Mode::Record {
        let result = real();
        // SAFETY: the program's mutex.
        unsafe { record_result(thread, mutex, result) };
        result
    } else {
        replay(thread, mutex, function)
    };
    back_to_replay(thread);
    result
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // All that is not the usual is a call at the end, so that the usual needs no frame.
    // SAFETY: the program's mutex.
    unsafe {
        match thread::current() {
            Some(thread) if thread.selector.load(Ordering::Relaxed) == REPLAY => {
                match thread.sync.quick {
                    Quick::Edge => lock_quickly(thread, mutex),
                    Quick::Alone if (*mutex.cast::<Known>()).kind == ORDINARY => {
                        real!(pthread_mutex_lock: fn(*mut pthread_mutex_t) -> c_int)(mutex)
                    }
                    _ => lock_otherwise(mutex),
                }
            }
            _ => lock_otherwise(mutex),
        }
    }
}

/// Recording edges. The thread stays in replay space: there is nothing to wait for and no system call.
#[inline(always)]
unsafe fn lock_quickly(thread: &'static mut Thread, mutex: *mut pthread_mutex_t) -> c_int {
    let known = mutex.cast::<Known>();
    // SAFETY: the program's mutex; held from `take` on, so that its owner word is this thread's.
    unsafe {
        if !take(thread, known) {
            return lock(mutex);
        }
        let owner = (&raw mut (*known).links).cast::<u64>();
        let acquisition = thread.acquired + 1;
        let word = thread.sync.tag | acquisition;
        if !order::is_same_owner(*owner, word) || !thread.writer.bump_relaxed_in_place() {
            return log_slowly(thread, known);
        }
        thread.acquired = acquisition;
        *owner = word;
    }
    end_quickly(thread)
}

#[inline(always)]
fn end_quickly(thread: &'static mut Thread) -> c_int {
    if signals::count_boundary(thread) {
        deliver(thread)
    } else {
        0
    }
}

#[cold]
#[inline(never)]
fn deliver(thread: &'static mut Thread) -> c_int {
    thread.signals.enters_with_stack(raw::stack_pointer());
    signals::deliver(thread);
    0
}

/// The mutex is held, and its acquisition is more than a count in place.
#[inline(never)]
unsafe fn log_slowly(thread: &'static mut Thread, mutex: *mut Known) -> c_int {
    thread.enter_system();
    // SAFETY: the program's mutex, held by this thread.
    unsafe { order::record_inline(thread, (&raw mut (*mutex).links).cast()) };
    thread.enter_replay();
    end_quickly(thread)
}

/// The relaxed order, and replay.
#[inline(never)]
unsafe fn lock_otherwise(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the program's mutex.
    unsafe {
        match thread::current() {
            Some(thread) if thread.selector.load(Ordering::Relaxed) == REPLAY => {
                match thread.sync.quick {
                    Quick::Relaxed => lock_counting(thread, mutex),
                    Quick::Replay => lock_again(thread, mutex),
                    _ => lock(mutex),
                }
            }
            _ => lock(mutex),
        }
    }
}

/// As [`lock_quickly`] for the relaxed order, in which a thread's acquisitions are its entry of the global clock.
#[inline(always)]
unsafe fn lock_counting(thread: &'static mut Thread, mutex: *mut pthread_mutex_t) -> c_int {
    let known = mutex.cast::<Known>();
    // SAFETY: as there.
    unsafe {
        if !take(thread, known) {
            return lock(mutex);
        }
        let owner = (&raw mut (*known).links).cast::<u64>();
        let acquisition = thread.acquired + 1;
        let word = thread.sync.tag | acquisition;
        if *owner == 0
            || !order::is_same_owner(*owner, word)
            || !thread.writer.bump_relaxed_in_place()
        {
            return log_slowly(thread, known);
        }
        turn::count(thread.number, acquisition);
        thread.acquired = acquisition;
        *owner = word;
    }
    end_quickly(thread)
}

/// Replay of an acquisition that waits for nobody.
#[inline(always)]
unsafe fn lock_again(thread: &'static mut Thread, mutex: *mut pthread_mutex_t) -> c_int {
    let known = mutex.cast::<Known>();
    // SAFETY: the program's mutex.
    unsafe {
        if (*known).kind != ORDINARY
            || (*known).lock.load(Ordering::Relaxed) != 0
            || !thread.reader.take_relaxed()
        {
            return lock(mutex);
        }
        if !take(thread, known) {
            // Whoever has it since then is the previous owner or does not follow the order. It is waited for in either case.
            return lock_after_turn(thread, mutex);
        }
    }
    publish(thread);
    thread.signals.enters_with_stack(raw::stack_pointer());
    signals::at_boundary(thread);
    0
}

#[cold]
#[inline(never)]
unsafe fn lock_after_turn(thread: &'static mut Thread, mutex: *mut pthread_mutex_t) -> c_int {
    enter(thread);
    // SAFETY: the program's mutex.
    let result = unsafe { lock_now(thread, mutex, Step::new("pthread_mutex_lock", mutex)) };
    publish(thread);
    back_to_replay(thread);
    result
}

/// The long way.
#[inline(never)]
unsafe fn lock(mutex: *mut pthread_mutex_t) -> c_int {
    let real = real!(pthread_mutex_lock: fn(*mut pthread_mutex_t) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(mutex) };
    };
    unsafe { acquire(mutex, "pthread_mutex_lock", thread, || real(mutex)) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int {
    let real = real!(pthread_mutex_trylock: fn(*mut pthread_mutex_t) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(mutex) };
    };
    unsafe { acquire(mutex, "pthread_mutex_trylock", thread, || real(mutex)) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_mutex_timedlock(
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    let real = real!(pthread_mutex_timedlock: fn(*mut pthread_mutex_t, *const timespec) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(mutex, until) };
    };
    unsafe {
        acquire(mutex, "pthread_mutex_timedlock", thread, || {
            real(mutex, until)
        })
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_mutex_clocklock(
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    let real = real!(pthread_mutex_clocklock: fn(*mut pthread_mutex_t, clockid_t, *const timespec) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(mutex, clock, until) };
    };
    unsafe {
        acquire(mutex, "pthread_mutex_clocklock", thread, || {
            real(mutex, clock, until)
        })
    }
}

/// Nothing is logged, so no signal is delivered here either: replay would not know where.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    let known = mutex.cast::<Known>();
    if let Some(thread) = thread::current()
        && thread.selector.load(Ordering::Relaxed) == REPLAY
        // SAFETY: the program's mutex.
        && unsafe { (*known).kind } == ORDINARY
    {
        match thread.sync.quick {
            Quick::Nothing => return unsafe { unlock(mutex) },
            Quick::Alone => {
                return unsafe {
                    real!(pthread_mutex_unlock: fn(*mut pthread_mutex_t) -> c_int)(mutex)
                };
            }
            Quick::Edge | Quick::Relaxed | Quick::Replay => {}
        }
        // SAFETY: as above, and held by this thread, as the interface demands.
        unsafe {
            (*known).owner = 0;
            (*known).users = (*known).users.wrapping_sub(1);
            if (*known).lock.swap(0, Ordering::Release) > 1 {
                wake_one(&(*known).lock);
            }
        }
        return 0;
    }
    unsafe { unlock(mutex) }
}

#[cold]
#[inline(never)]
fn wake_one(lock: &AtomicU32) {
    // SAFETY: a word of this process. The program may free it any moment; waking an address is harmless.
    unsafe {
        syscall!(
            libc::SYS_futex,
            lock.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1
        )
    };
}

#[inline(never)]
unsafe fn unlock(mutex: *mut pthread_mutex_t) -> c_int {
    let real = real!(pthread_mutex_unlock: fn(*mut pthread_mutex_t) -> c_int);
    let Some(thread) = thread::in_replay_space() else {
        return unsafe { real(mutex) };
    };
    // In system space, because waking a waiter is a system call.
    thread::system_space(thread, || unsafe { real(mutex) })
}
