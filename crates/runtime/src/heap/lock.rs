//! A small lock: spins, then waits in the kernel. Through raw system calls, and without a thread's state.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const AWAITED: u32 = 2;
const SPINS: u32 = 100;

/// A lock on a value.
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock admits one thread at a time.
unsafe impl<T> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Lock {
            state: AtomicU32::new(FREE),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    pub fn with<R>(&self, inner: impl FnOnce(&mut T) -> R) -> R {
        self.lock();
        // SAFETY: held.
        let result = inner(unsafe { &mut *self.value.get() });
        self.unlock();
        result
    }

    /// As [`Lock::with`], or `None` at once if another thread holds it.
    #[inline]
    pub fn try_with<R>(&self, inner: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self
            .state
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            return None;
        }
        // SAFETY: held.
        let result = inner(unsafe { &mut *self.value.get() });
        self.unlock();
        Some(result)
    }

    /// Without taking the lock: for a process that has one thread.
    ///
    /// # Safety
    /// No other thread uses the value meanwhile.
    #[inline(always)]
    pub unsafe fn alone<R>(&self, inner: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the caller's promise.
        inner(unsafe { &mut *self.value.get() })
    }

    #[inline]
    pub fn lock(&self) {
        if self
            .state
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            self.wait();
        }
    }

    #[inline]
    pub fn unlock(&self) {
        if self.state.swap(FREE, Ordering::Release) == AWAITED {
            // SAFETY: wakes one waiter of a word of ours.
            unsafe {
                crate::syscall!(
                    libc::SYS_futex,
                    self.state.as_ptr(),
                    libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                    1
                )
            };
        }
    }

    /// In a forked child: whoever held it is not here.
    pub fn reset(&self) {
        self.state.store(FREE, Ordering::Relaxed);
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.state.load(Ordering::Relaxed) == FREE
                && self
                    .state
                    .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
        }
        while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
            // SAFETY: waits on a word of ours.
            unsafe {
                crate::syscall!(
                    libc::SYS_futex,
                    self.state.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    AWAITED,
                    0
                )
            };
        }
    }
}
