//! Signals that the runtime sends itself: the alarm of a thread that lets a signal wait, and the
//! call to let go of the rest.

use std::sync::atomic::Ordering;

use crate::state::thread::{Current, Thread};
use crate::syscall;

/// How long a signal may wait for a call of a thread that computes: at a call a replay finds it
/// again.
pub const DELAY_MAX_MS: i64 = 5;

/// The value in a `SIGSYS` of ours.
pub const OURS: usize = 0x6869_6e64;

/// From the timer of [`watch`], or from [`flush_all`].
pub fn is_ours(code: i32, info: *const libc::siginfo_t) -> bool {
    // SAFETY: both kinds carry a value.
    matches!(code, libc::SI_TIMER | libc::SI_QUEUE)
        && unsafe { (*info).si_value().sival_ptr } as usize == OURS
}

/// A signal waits while the thread computes: not for ever, and not longer when another comes.
pub fn watch(thread: &mut Current) {
    if thread.signals.watched {
        return;
    }
    thread.signals.watched = true;
    #[repr(C)]
    struct Event {
        value: usize,
        signal: i32,
        notify: i32,
        thread: i32,
        rest: [i32; 11],
    }
    const SIGEV_THREAD_ID: i32 = 4;
    if thread.signals.timer < 0 {
        let event = Event {
            value: OURS,
            signal: libc::SIGSYS,
            notify: SIGEV_THREAD_ID,
            thread: thread.kernel_id.load(Ordering::Relaxed) as i32,
            rest: [0; 11],
        };
        // SAFETY: a `sigevent` and room for the timer's number.
        unsafe {
            syscall!(
                libc::SYS_timer_create,
                libc::CLOCK_MONOTONIC,
                &raw const event,
                &raw mut thread.signals.timer
            )
        };
    }
    set_timer(thread, DELAY_MAX_MS);
}

/// Nothing waits any more.
pub fn unwatch(thread: &mut Current) {
    if thread.signals.watched {
        thread.signals.watched = false;
        set_timer(thread, 0);
    }
}

fn set_timer(thread: &Thread, milliseconds: i64) {
    if thread.signals.timer < 0 {
        return;
    }
    let zero = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let once = libc::timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    };
    let time = libc::itimerspec {
        it_interval: zero,
        it_value: once,
    };
    // SAFETY: a timer of ours.
    unsafe {
        syscall!(
            libc::SYS_timer_settime,
            thread.signals.timer,
            0,
            &raw const time,
            0
        )
    };
}

pub fn send(thread: u32, signal: i32, info: *const u8) -> bool {
    // SAFETY: `info` is a whole `siginfo_t`.
    unsafe {
        let process = syscall!(libc::SYS_getpid);
        syscall!(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info) == 0
    }
}
