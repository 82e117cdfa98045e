//! A small lock: spins, then waits in the kernel. Through raw system calls, and without a thread's
//! state.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const SPINS: u32 = 100;
/// How long a waiter sleeps that was overlooked.
const OVERLOOKED_NS: i64 = 500_000;

/// A lock on a value.
///
/// It is given back with a plain store and a look at the number of waiters, half as dear as an
/// exchange. The processor may look before it stores, and so overlook one that begins to wait just
/// then; which is why nobody sleeps for long.
pub struct Lock<T> {
    state: AtomicU32,
    waiters: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock admits one thread at a time.
unsafe impl<T> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Lock {
            state: AtomicU32::new(FREE),
            waiters: AtomicU32::new(0),
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
        if !self.take() {
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
        if !self.take() {
            self.wait();
        }
    }

    #[inline]
    pub fn unlock(&self) {
        self.state.store(FREE, Ordering::Release);
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    /// In a forked child: whoever held it or waited for it is not here.
    pub fn reset(&self) {
        self.state.store(FREE, Ordering::Relaxed);
        self.waiters.store(0, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        self.state
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn wake(&self) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: wakes one waiter of a word of ours.
        unsafe { crate::syscall!(libc::SYS_futex, self.state.as_ptr(), operation, 1) };
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.state.load(Ordering::Relaxed) == FREE && self.take() {
                return;
            }
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        let timeout = libc::timespec {
            tv_sec: 0,
            tv_nsec: OVERLOOKED_NS,
        };
        while !self.take() {
            let timeout = &raw const timeout;
            // SAFETY: waits on a word of ours while it says that the lock is taken.
            unsafe {
                crate::syscall!(
                    libc::SYS_futex,
                    self.state.as_ptr(),
                    operation,
                    TAKEN,
                    timeout
                )
            };
        }
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        static COUNT: Lock<u64> = Lock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100_000 {
                        COUNT.with(|count| *count += 1);
                    }
                });
            }
        });
        assert_eq!(COUNT.with(|count| *count), 400_000);
    }
}
