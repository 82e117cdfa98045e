//! System calls from replay space that no stub covers.
//!
//! Syscall User Dispatch raises SIGSYS for each of them, with the thread's mode bit as its selector. The handler does what a
//! stub would have done, by the call's number, and resumes the program behind the instruction.

use std::arch::global_asm;

use hindcast_execlog::config::Policy;

use crate::call::{Call, Function, errno, set_errno};
use crate::divergence::{self, Actual};
use crate::mode::{Mode, mode};
use crate::thread::{self, Thread};
use crate::{by_hand, generated, init, memory, process, raw, signals, syscall, threads};

/// A system call that nothing describes: its arguments and its result are in the log, memory that it wrote is not.
pub const UNLISTED: Function = Function(hindcast_execlog::event::KINDS_END - 1);

/// What `rt_sigaction` takes: not what libc's `sigaction` is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelAction {
    pub handler: usize,
    pub flags: u64,
    pub restorer: usize,
    pub mask: u64,
}

pub const SA_RESTORER: u64 = 0x0400_0000;

// Return from a handler of ours. Libc's own would make its system call from replay space and trap.
global_asm!(
    ".text",
    ".globl hindcast_restorer",
    ".hidden hindcast_restorer",
    ".type hindcast_restorer, @function",
    // The unwinder recognises a signal frame by these very bytes.
    "nop",
    "hindcast_restorer:",
    "mov rax, 15",
    "syscall",
    ".size hindcast_restorer, . - hindcast_restorer",
);

unsafe extern "C" {
    fn hindcast_restorer();
}

/// The address that `restorer` of an action of ours must have.
pub fn restorer() -> usize {
    hindcast_restorer as *const () as usize
}

/// Sets the kernel's action for a signal, bypassing what the program believes to be set.
pub fn set_kernel_action(signal: i32, action: &KernelAction) {
    // SAFETY: a complete action; the mask has 8 bytes.
    unsafe {
        syscall!(
            libc::SYS_rt_sigaction,
            signal,
            action as *const KernelAction,
            0,
            8
        )
    };
}

pub fn install() {
    install_with(0, 0);
}

/// After a detach, when a `SIGSYS` of ours must not disturb the call that it interrupts. The signal with which libc cancels
/// a thread waits until the handler has returned: it unwinds the stack, which can be done from calls, not from anywhere.
pub fn install_restarting() {
    const CANCEL: i32 = 32;
    install_with(libc::SA_RESTART, 1 << (CANCEL - 1));
}

fn install_with(flags: i32, mask: u64) {
    let action = KernelAction {
        handler: on_trap as *const () as usize,
        flags: (libc::SA_SIGINFO | libc::SA_NODEFER | flags) as u64 | SA_RESTORER,
        restorer: restorer(),
        mask,
    };
    set_kernel_action(libc::SIGSYS, &action);
}

/// `si_code` of a SIGSYS that comes from Syscall User Dispatch.
const SYS_USER_DISPATCH: i32 = 2;

extern "C" fn on_trap(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel passes both.
    let (information, registers) = unsafe { (&*info, &mut (*context).uc_mcontext.gregs) };
    let Some(thread) = thread::current().filter(|_| information.si_code == SYS_USER_DISPATCH)
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
        crate::sync::foreign::futex(site);
    }
    let result = dispatch(thread, number, arguments, site, context);
    // SAFETY: the kernel's context, which `dispatch` does not keep.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_RAX as usize] = result as i64 };
    if let Some(thread) = thread::current() {
        thread.enter_replay();
        // A futex is waited for when a lock happens to be contended, and the like: not points that both runs pass.
        // `system` sets actions only where no other thread is in it.
        if !executed_in_both_runs(number) && number != libc::SYS_rt_sigaction {
            signals::at_boundary(thread);
        }
    }
    set_errno(saved);
}

fn dispatch(
    thread: &'static mut Thread,
    number: i64,
    arguments: [usize; 6],
    site: usize,
    context: *mut libc::ucontext_t,
) -> isize {
    if mode() == Mode::Off || executed_in_both_runs(number) {
        let [a, b, c, d, e, f] = arguments;
        // SAFETY: the program's own call.
        return unsafe { raw::syscall6(number, a, b, c, d, e, f) };
    }
    // Each of these fetches the thread's state again, as a stub does.
    let known = memory::by_number(number, arguments)
        .or_else(|| signals::by_number(number, arguments, context))
        .or_else(|| threads::by_number(number, arguments))
        .or_else(|| process::by_number(number, arguments, context))
        .or_else(|| by_hand::by_number(number, arguments))
        // SAFETY: the program's own call.
        .or_else(|| unsafe { generated::by_number(number, arguments) });
    if init::config().policy() != Policy::Record {
        apply_policy(thread, number, arguments, site);
    }
    known.unwrap_or_else(|| unlisted(thread, number, arguments, site))
}

/// What only moves the process's own memory and threads about. Both runs do it for real, and there is nothing to log.
/// A futex is here because libc's own locks wait on one only when they are contended, which replay need not repeat.
fn executed_in_both_runs(number: i64) -> bool {
    by_hand::decisions::decision(number) == by_hand::decisions::Decision::Executed
}

fn apply_policy(thread: &mut Thread, number: i64, arguments: [usize; 6], site: usize) {
    let mut place = hindcast_execlog::Text::<1024>::new();
    match init::config().policy() {
        Policy::Record => {}
        Policy::Report => {
            divergence::describe_address(&mut place, site);
            init::warn(format_args!(
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
fn unlisted(thread: &'static mut Thread, number: i64, arguments: [usize; 6], site: usize) -> isize {
    let mut place = hindcast_execlog::Text::<1024>::new();
    divergence::describe_address(&mut place, site);
    init::warn(format_args!(
        "system call {number} is not known: what it wrote into memory is not recorded (from {})",
        place.as_str().trim_end()
    ));
    let mut call = Call::within(thread, UNLISTED);
    call.input(number as u64);
    // SAFETY: the program's own call.
    let result = call.run_kernel(|thread| unsafe { raw::blocking6(thread, number, arguments) });
    call.finish();
    result
}
