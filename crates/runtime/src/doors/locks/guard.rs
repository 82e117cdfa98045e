//! Statics of C++ functions, which are made when control first passes them.
//!
//! Compilers look at the first byte of a static's guard themselves and call the C++ library only
//! while it is not set. So in the recording a thread may have passed a static that another one had
//! made, without a call; in replay it may come before that other thread, and call. And the other
//! way round: a thread that waited for the other in the recording may find the static made. What is
//! certain is who made it. That is logged, and nothing else: any other thread that calls in
//! replay waits until the byte is set, which depends on nothing that the waiting thread has yet to
//! do.

// SAFETY, of each `unsafe` here that has no reason of its own: a function has the contract of
// the C++ library's function of its name, the caller keeps it, and `real` is that function.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::mechanism::sync::{self, Step, claim, pass, real, record, record_claim, waiting};
use crate::mechanism::{alone, signals};
use crate::raw;
use crate::state::mode::{Mode, mode};
use crate::state::thread::{self, Current};

type Guard = *mut u64;

fn is_made(guard: Guard) -> bool {
    // SAFETY: the program's guard, whose first byte the C++ library sets last.
    unsafe { AtomicU8::from_ptr(guard.cast()) }.load(Ordering::Acquire) != 0
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __cxa_guard_acquire(guard: Guard) -> c_int {
    let real = real!(__cxa_guard_acquire: fn(Guard) -> c_int);
    let Some(thread) = &mut thread::enter_if(thread::are_several()) else {
        return unsafe { real(guard) };
    };
    alone::away(thread);
    if mode() == Mode::Record {
        let makes = waiting(thread, || unsafe { real(guard) });
        if makes != 0 {
            record_claim(thread, guard as usize);
            record(thread, guard as u64);
            signals::leave(thread);
        } else {
            alone::back_unlogged(thread);
            thread.enter_replay();
        }
        return makes;
    }
    if claim(thread, guard as usize) {
        let step = Step::new("the construction of a static", guard);
        pass(thread, step, |_| {});
        let makes = unsafe { real(guard) };
        signals::leave(thread);
        return makes;
    }
    wait_until_made(thread, guard);
    alone::back_unlogged(thread);
    thread.enter_replay();
    0
}

fn wait_until_made(thread: &mut Current, guard: Guard) {
    let mut pauses = 0u32;
    sync::blocked(thread, || {
        while !is_made(guard) {
            if pauses < 100 {
                std::hint::spin_loop();
            } else {
                raw::pause(Duration::from_micros(50));
            }
            pauses += 1;
        }
    });
}

/// The constructor threw. Whoever comes next tries again, after this.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __cxa_guard_abort(guard: Guard) {
    let real = real!(__cxa_guard_abort: fn(Guard));
    let Some(thread) = &mut thread::enter_if(thread::are_several()) else {
        return unsafe { real(guard) };
    };
    match mode() {
        Mode::Replay => pass(thread, Step::new("a constructor that threw", guard), |_| {}),
        _ => record(thread, guard as u64),
    }
    unsafe { real(guard) };
    signals::leave(thread);
}
