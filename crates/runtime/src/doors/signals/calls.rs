//! System calls about signals, as the trap meets them: libc's functions are thin around these.
//!
//! What only concerns the process's own table and mask is answered from there in both runs and not
//! logged. What asks the kernel, or another process, is recorded like any call.

use crate::mechanism::call::Call;
use crate::mechanism::signals::{actions, kernel, leave};
use crate::state::mode::{Mode, mode};
use crate::state::signals::{self, KernelAction, SIGNALS, UNBLOCKABLE, realized, write_mask};
use crate::state::thread::Current;
use crate::{functions, syscall};

const EINVAL: isize = -(libc::EINVAL as isize);
const MASK_BYTES: usize = 8;

/// A system call of the program's that is about signals. The thread is in system space. `None`: not
/// one of ours.
pub fn by_number(
    thread: &mut Current,
    number: i64,
    arguments: [usize; 6],
    context: *mut libc::ucontext_t,
) -> Option<isize> {
    let [a, b, c, d, ..] = arguments;
    // SAFETY: pointers of the program's own call.
    Some(unsafe {
        match number {
            libc::SYS_rt_sigaction => sigaction(
                a as i32,
                b as *const KernelAction,
                c as *mut KernelAction,
                d,
            ),
            libc::SYS_rt_sigprocmask => {
                sigprocmask(thread, a as i32, b as *const u64, c as *mut u64, d, context)
            }
            libc::SYS_rt_sigsuspend => sigsuspend(thread, a as *const u64, b),
            libc::SYS_sigaltstack => {
                sigaltstack(a as *const libc::stack_t, b as *mut libc::stack_t, context)
            }
            _ => return None,
        }
    })
}

unsafe fn sigaction(
    signal: i32,
    wanted: *const KernelAction,
    old: *mut KernelAction,
    bytes: usize,
) -> isize {
    let unchangeable = matches!(signal, libc::SIGKILL | libc::SIGSTOP);
    if bytes != MASK_BYTES
        || !(1..SIGNALS as i32).contains(&signal)
        || (unchangeable && !wanted.is_null())
    {
        return EINVAL;
    }
    let before = signals::action(signal);
    if !wanted.is_null() {
        // SAFETY: the program's own memory. Read before the old action is written: they may be the
        // same.
        actions::set(signal, unsafe { &*wanted });
    }
    if !old.is_null() {
        // SAFETY: the program's own memory.
        unsafe { old.write(before) };
    }
    0
}

unsafe fn sigprocmask(
    thread: &mut Current,
    how: i32,
    wanted: *const u64,
    old: *mut u64,
    bytes: usize,
    context: *mut libc::ucontext_t,
) -> isize {
    if bytes != MASK_BYTES {
        return EINVAL;
    }
    // What arrived before is delivered before: afterwards it may be blocked, and the program may
    // wait for it with `sigwait`.
    if !wanted.is_null() {
        leave(thread);
        thread.enter_system();
    }
    let before = thread.signals.blocked;
    if !wanted.is_null() {
        // SAFETY: the program's own memory.
        let wanted = unsafe { wanted.read() };
        thread.signals.blocked = match how {
            libc::SIG_BLOCK => before | wanted,
            libc::SIG_UNBLOCK => before & !wanted,
            libc::SIG_SETMASK => wanted,
            _ => return EINVAL,
        } & !UNBLOCKABLE;
        thread.signals.look();
        // Signals that were pending arrive here, and are delivered when the trap ends: before the
        // program's call returns.
        kernel::apply_mask(thread.signals.blocked);
        if mode() != Mode::Replay {
            // The return from the trap sets the mask that was in force before it.
            write_mask(context, realized(thread.signals.blocked));
        }
    }
    if !old.is_null() {
        // SAFETY: the program's own memory.
        unsafe { old.write(before) };
    }
    0
}

unsafe fn sigsuspend(thread: &mut Current, wanted: *const u64, bytes: usize) -> isize {
    if bytes != MASK_BYTES {
        return EINVAL;
    }
    // SAFETY: the program's own memory.
    let wanted = unsafe { wanted.read() } & !UNBLOCKABLE;
    let real = realized(wanted);
    thread.signals.suspended = Some(wanted);
    thread.signals.look();
    let mut call = Call::within(thread.lend(), functions::KERNEL_RT_SIGSUSPEND);
    call.input(wanted);
    // SAFETY: reads 8 bytes.
    let result = call.run_kernel(|thread| unsafe {
        thread.blocking6(
            libc::SYS_rt_sigsuspend,
            [&raw const real as usize, MASK_BYTES, 0, 0, 0, 0],
        )
    });
    call.finish();
    thread.signals.suspended = None;
    thread.signals.look();
    kernel::apply_mask(thread.signals.blocked);
    result
}

/// Executed in both runs: it is about memory of the program's. The return from the trap would undo
/// it.
unsafe fn sigaltstack(
    wanted: *const libc::stack_t,
    old: *mut libc::stack_t,
    context: *mut libc::ucontext_t,
) -> isize {
    // SAFETY: the program's own call.
    unsafe {
        let result = syscall!(libc::SYS_sigaltstack, wanted, old);
        if result == 0 && !wanted.is_null() {
            (*context).uc_stack = *wanted;
        }
        result
    }
}
