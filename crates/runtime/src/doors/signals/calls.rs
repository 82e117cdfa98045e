//! System calls about signals, as the trap meets them: libc's functions are thin around these.
//!
//! What only concerns the process's own table and mask is answered from there in both runs and not
//! logged. What asks the kernel, or another process, is recorded like any call.

use hindcast_execlog::config::addresses;

use crate::mechanism::call::Call;
use crate::mechanism::signals::{actions, kernel, leave};
use crate::state::mode::{Mode, mode};
use crate::state::signals::{self, KernelAction, SIGNALS, UNBLOCKABLE, realized, write_mask};
use crate::state::thread::Current;
use crate::{functions, probe, raw, syscall};

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
            libc::SYS_sigaltstack => sigaltstack(
                thread,
                a as *const libc::stack_t,
                b as *mut libc::stack_t,
                context,
            ),
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
///
/// A stack of the size that libc recommends has no room for what lies between a handler and its
/// calls here: frames of the kernel with all registers, and ours. So in place of a small one the
/// kernel gets one of ours. The program is told of its own.
unsafe fn sigaltstack(
    thread: &mut Current,
    wanted: *const libc::stack_t,
    old: *mut libc::stack_t,
    context: *mut libc::ucontext_t,
) -> isize {
    // SAFETY: the program's own call.
    unsafe {
        // The kernel may write the old one over it.
        let given = probe::readable(wanted.cast(), size_of::<libc::stack_t>()).then(|| *wanted);
        let result = syscall!(libc::SYS_sigaltstack, wanted, old);
        if result != 0 {
            return result;
        }
        if let Some([start, length]) = thread.signals.alternate
            && !old.is_null()
        {
            (*old).ss_sp = start as *mut _;
            (*old).ss_size = length;
        }
        if let Some(given) = given {
            (*context).uc_stack = large_enough(thread, given);
        }
        result
    }
}

/// What the kernel has in place of an alternate stack that the program has set.
fn large_enough(thread: &mut Current, given: libc::stack_t) -> libc::stack_t {
    const SMALL: usize = addresses::HANDLER_STACK_BYTES / 2;
    thread.signals.alternate = None;
    if given.ss_flags & libc::SS_DISABLE != 0 || given.ss_size >= SMALL {
        return given;
    }
    let length = addresses::HANDLER_STACK_BYTES;
    let start = addresses::HANDLER_STACKS + thread.number as usize * length;
    let ours = libc::stack_t {
        ss_sp: start as *mut _,
        ss_size: length,
        ..given
    };
    // SAFETY: the room of this thread's number, which is used for this alone. What is there since
    // an earlier call is replaced: the kernel has just said that the thread is not on it.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        let mapped = raw::map_memory(start, length, flags);
        if mapped.is_err() || syscall!(libc::SYS_sigaltstack, &raw const ours, 0) != 0 {
            return given;
        }
    }
    thread.signals.alternate = Some([given.ss_sp as usize, given.ss_size]);
    ours
}
