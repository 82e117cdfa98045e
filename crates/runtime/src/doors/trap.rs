//! System calls from replay space that no stub covers.
//!
//! Syscall User Dispatch raises SIGSYS for each of them, with the thread's mode bit as its
//! selector. The handler does what a stub would have done, by the call's number, and resumes the
//! program behind the instruction.

use std::sync::atomic::Ordering;

use crate::doors::locks::foreign;
use crate::doors::{by_hand, generated, memory, process, signals, threads};
use crate::mechanism::alone;
use crate::mechanism::call::Call;
use crate::mechanism::divergence::{self, Actual};
use crate::mechanism::signals::timer::watch;
use crate::mechanism::signals::{at_boundary, kernel};
use crate::raw::{self, errno, set_errno};
use crate::state::mode::{Mode, mode, one_at_a_time};
use crate::state::signals::KernelAction;
use crate::state::thread::{self, Current};
use crate::state::{names, recording};

use hindcast_execlog::config::Policy;

pub fn install() {
    let action = KernelAction {
        handler: on_trap as *const () as usize,
        flags: (libc::SA_SIGINFO | libc::SA_NODEFER) as u64 | kernel::SA_RESTORER,
        restorer: kernel::restorer(),
        mask: 0,
    };
    kernel::set_action(libc::SIGSYS, &action);
}

/// `si_code` of a SIGSYS that comes from Syscall User Dispatch.
const SYS_USER_DISPATCH: i32 = 2;

extern "C" fn on_trap(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    raw::in_own_frame(|| trapped(signal, info, context));
}

#[inline(always)]
fn trapped(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel passes both.
    let (information, registers) = unsafe { (&*info, &mut (*context).uc_mcontext.gregs) };
    // SAFETY: a system call of the program's traps in replay space, where no guard is in use.
    let thread = &mut unsafe { thread::current() };
    let Some(thread) = thread
        .as_mut()
        .filter(|_| information.si_code == SYS_USER_DISPATCH)
    else {
        return signals::synchronous_fault(signal, info, context);
    };
    thread.enter_system();
    thread
        .signals
        .enters_with_stack(registers[libc::REG_RSP as usize] as usize);
    let number = registers[libc::REG_RAX as usize];
    let argument = |register: i32| registers[register as usize] as usize;
    let arguments = [
        argument(libc::REG_RDI),
        argument(libc::REG_RSI),
        argument(libc::REG_RDX),
        argument(libc::REG_R10),
        argument(libc::REG_R8),
        argument(libc::REG_R9),
    ];
    let site = argument(libc::REG_RIP);
    let saved = errno();
    if number == libc::SYS_futex {
        foreign::futex(site);
    }
    let is_turn = changes_threads(number, site);
    let result = if is_turn {
        turn(thread, number, arguments)
    } else {
        dispatch(thread, number, arguments, site, context)
    };
    // SAFETY: the kernel's context, which `dispatch` does not keep.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_RAX as usize] = result as i64 };
    // A futex is waited for when a lock happens to be contended, and the like: not points that both
    // runs pass. `system` sets actions only where no other thread is in it.
    let is_boundary = is_turn || !executed_in_both_runs(number) && number != libc::SYS_rt_sigaction;
    if thread.away && !is_boundary {
        alone::back_unlogged(thread);
    }
    thread.enter_replay();
    if is_boundary {
        at_boundary(thread);
    } else if mode() == Mode::Record && thread.signals.due.load(Ordering::Relaxed) != 0 {
        watch(thread);
    }
    set_errno(saved);
}

fn dispatch(
    thread: &mut Current,
    number: i64,
    arguments: [usize; 6],
    site: usize,
    context: *mut libc::ucontext_t,
) -> isize {
    if mode() == Mode::Off || executed_in_both_runs(number) {
        let [a, b, c, d, e, f] = arguments;
        let may_wait = number == libc::SYS_futex && one_at_a_time();
        if may_wait {
            alone::lend(thread);
        }
        // SAFETY: the program's own call.
        let result = unsafe { raw::syscall6(number, a, b, c, d, e, f) };
        if may_wait {
            alone::back_unlogged(thread);
        }
        if matches!(number, libc::SYS_mprotect | libc::SYS_pkey_mprotect) && result == 0 {
            memory::protected(thread, a, b, c);
        }
        return result;
    }
    let known = memory::by_number(thread, number, arguments)
        .or_else(|| signals::by_number(thread, number, arguments, context))
        .or_else(|| threads::by_number(thread, number, arguments))
        .or_else(|| process::by_number(thread, number, arguments, context))
        .or_else(|| by_hand::by_number(thread, number, arguments))
        // SAFETY: the program's own call.
        .or_else(|| unsafe { generated::by_number(thread, number, arguments) });
    if recording::config().policy() != Policy::Record {
        apply_policy(thread, number, arguments, site);
    }
    known.unwrap_or_else(|| unlisted(thread, number, arguments, site))
}

/// What only moves the process's own memory and threads about. Both runs do it for real, and there
/// is nothing to log. A futex is here because libc's own locks wait on one only when they are
/// contended, which replay need not repeat.
fn executed_in_both_runs(number: i64) -> bool {
    by_hand::decisions::decision(number) == by_hand::decisions::Decision::Executed
}

/// Whether threads change where this call is made: where one thread runs at a time, what threads
/// wait for past pthread.
fn changes_threads(number: i64, site: usize) -> bool {
    one_at_a_time()
        && mode() != Mode::Off
        && thread::are_several()
        && (number == libc::SYS_sched_yield
            || number == libc::SYS_futex && !foreign::is_known(site))
}

/// Recorded by its result. Replay waits for nobody by itself: the order of turns has it.
fn turn(thread: &mut Current, number: i64, arguments: [usize; 6]) -> isize {
    let mut call = Call::within(thread.lend(), names::UNLISTED);
    call.input(number as u64);
    call.blocks();
    // SAFETY: the program's own call.
    let result = call.run_kernel(|thread| unsafe { thread.blocking6(number, arguments) });
    call.finish();
    result
}

fn apply_policy(thread: &mut Current, number: i64, arguments: [usize; 6], site: usize) {
    let mut place = hindcast_execlog::Text::<1024>::new();
    match recording::config().policy() {
        Policy::Record => {}
        Policy::Report => {
            divergence::describe_address(&mut place, site);
            recording::warn(format_args!(
                "system call {number} from {}",
                place.as_str().trim_end()
            ));
        }
        Policy::Abort => {
            divergence::forbidden(thread, Actual::SystemCall { number, arguments }, site)
        }
    }
}

/// Recorded by its result alone.
fn unlisted(thread: &mut Current, number: i64, arguments: [usize; 6], site: usize) -> isize {
    let mut place = hindcast_execlog::Text::<1024>::new();
    divergence::describe_address(&mut place, site);
    recording::warn(format_args!(
        "system call {number} is not known: what it wrote into memory is not recorded (from {})",
        place.as_str().trim_end()
    ));
    let mut call = Call::within(thread.lend(), names::UNLISTED);
    call.input(number as u64);
    // SAFETY: the program's own call.
    let result = call.run_kernel(|thread| unsafe { thread.blocking6(number, arguments) });
    call.finish();
    result
}
