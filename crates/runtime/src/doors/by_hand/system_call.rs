//! A system call of the program's.

use crate::mechanism::call::Call;
use crate::raw;
use crate::state::thread::Thread;

/// A system call of the program's, as the kernel takes it.
#[derive(Clone, Copy)]
pub(crate) struct SystemCall {
    pub number: i64,
    pub arguments: [usize; 6],
}

impl SystemCall {
    /// Makes the call for real: what is handed to [`Call::run_kernel`].
    #[inline(always)]
    pub unsafe fn run(&self) -> isize {
        let [a, b, c, d, e, f] = self.arguments;
        // SAFETY: the program's own call.
        unsafe { raw::syscall6(self.number, a, b, c, d, e, f) }
    }

    /// The same for a call that may wait for somebody else.
    #[inline(always)]
    pub unsafe fn run_blocking(&self, thread: &Thread) -> isize {
        // SAFETY: the program's own call.
        unsafe { thread.blocking6(self.number, self.arguments) }
    }
}

/// What a function of ours does with a call of the program's.
pub(crate) type Core = unsafe fn(&mut Call, SystemCall) -> isize;

#[inline(always)]
pub fn arguments<const N: usize>(given: [usize; N]) -> [usize; 6] {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&given);
    all
}
