//! Read-write locks and spin locks.
//!
//! Readers of one lock are ordered among themselves, too: who comes first does not matter to them,
//! but then the next writer has one edge, to the last of them, which came after all others.

// SAFETY, of each `unsafe` here that has no reason of its own: a function has the contract of
// libc's function of the same name, the caller keeps it, and `real` is that function.

use std::ffi::{c_int, c_void};

use libc::{clockid_t, pthread_rwlock_t, timespec};

use crate::mechanism::signals;
use crate::mechanism::sync::{self, Step, real, record, record_exclusive};
use crate::state::thread::{self, Current};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

fn acquire(
    lock: *mut pthread_rwlock_t,
    access: Access,
    function: &'static str,
    thread: &mut Current,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let result = sync::attempt(
        thread,
        Step::new(function, lock),
        |_| real(),
        // The owner word of a lock that is at times shared is taken over in one step at all times.
        |thread| record(thread, lock as u64),
        |thread| lock_now(thread, lock, access),
    );
    signals::leave(thread);
    result
}

fn lock_now(thread: &mut Current, lock: *mut pthread_rwlock_t, access: Access) -> c_int {
    // SAFETY: the program's lock.
    unsafe {
        let now = match access {
            Access::Read => {
                real!(pthread_rwlock_tryrdlock: fn(*mut pthread_rwlock_t) -> c_int)(lock)
            }
            Access::Write => {
                real!(pthread_rwlock_trywrlock: fn(*mut pthread_rwlock_t) -> c_int)(lock)
            }
        };
        if now != libc::EBUSY {
            return now;
        }
        sync::blocked(thread, || match access {
            Access::Read => real!(pthread_rwlock_rdlock: fn(*mut pthread_rwlock_t) -> c_int)(lock),
            Access::Write => real!(pthread_rwlock_wrlock: fn(*mut pthread_rwlock_t) -> c_int)(lock),
        })
    }
}

takers! { acquire:
    pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t), Access::Read;
    pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t), Access::Read;
    pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, until: *const timespec), Access::Read;
    pthread_rwlock_clockrdlock(lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec), Access::Read;
    pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t), Access::Write;
    pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t), Access::Write;
    pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, until: *const timespec), Access::Write;
    pthread_rwlock_clockwrlock(lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec), Access::Write;
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int {
    let real = real!(pthread_rwlock_unlock: fn(*mut pthread_rwlock_t) -> c_int);
    // SAFETY: the program's lock.
    thread::in_system_space(|| unsafe { real(lock) })
}

type Spin = *mut c_void;

fn acquire_spin(
    lock: Spin,
    function: &'static str,
    thread: &mut Current,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let result = sync::attempt(
        thread,
        Step::new(function, lock),
        |_| real(),
        |thread| record_exclusive(thread, lock as u64),
        // SAFETY: the program's lock.
        |_| unsafe { real!(pthread_spin_lock: fn(Spin) -> c_int)(lock) },
    );
    signals::leave(thread);
    result
}

// `pthread_spin_unlock` is a store: nothing to do.
takers! { acquire_spin:
    pthread_spin_lock(lock: Spin);
    pthread_spin_trylock(lock: Spin);
}
