//! A lock for what threads share.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::syscall;

/// Something that threads share, held only for a few instructions and never while code of the
/// program or the library runs.
pub struct Guarded<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached by whoever has set `taken`.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub const fn new(value: T) -> Self {
        Guarded {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    pub fn lock(&self) {
        while self.taken.swap(true, Ordering::Acquire) {
            // SAFETY: no arguments.
            unsafe { syscall!(libc::SYS_sched_yield) };
        }
    }

    pub fn unlock(&self) {
        self.taken.store(false, Ordering::Release);
    }

    pub fn with<R>(&self, inner: impl FnOnce(&mut T) -> R) -> R {
        self.lock();
        // SAFETY: `taken` was ours to set.
        let result = inner(unsafe { &mut *self.value.get() });
        self.unlock();
        result
    }
}
