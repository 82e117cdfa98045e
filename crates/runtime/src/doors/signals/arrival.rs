//! What the kernel calls when a signal arrives, and the queue in which signals wait.

use std::sync::atomic::Ordering;

use hindcast_execlog::event::Kind;

use crate::mechanism::divergence::{self, Actual};
use crate::mechanism::instructions;
use crate::mechanism::signals::timer::{is_ours, send, watch};
use crate::mechanism::signals::{actions, delivery, flush, kernel};
use crate::probe;
use crate::raw::{self, errno, set_errno};
use crate::state::mode::{Mode, mode};
use crate::state::signals::{
    self, ASYNCHRONOUS, Default, Info, KernelAction, Queued, UNBLOCKABLE, bit, blocked_by,
    default_of, is_fault, read_mask, realized, write_mask,
};
use crate::state::thread::{self, Current, REPLAY, Thread};

/// The handler of every signal that the program handles or that would end it.
pub extern "C" fn arrived(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel passes it.
    if is_fault(signal) && unsafe { (*info).si_code } > 0 {
        return synchronous_fault(signal, info, context);
    }
    let saved = errno();
    // SAFETY: what is under way in the thread goes on after this, and `Thread::signals` is made for
    // being interrupted.
    match (mode(), &mut unsafe { thread::current() }) {
        (Mode::Record, Some(thread)) => receive(thread, signal, info, context),
        (Mode::Record, None) if forward(signal, info) => {}
        // Somebody outside wants to end the replay.
        (Mode::Replay, _) => delivery::die(signal),
        _ => call_directly(signal, info, context),
    }
    set_errno(saved);
}

fn receive(
    thread: &mut Current,
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    let computes = thread.selector.load(Ordering::Relaxed) == REPLAY;
    // SAFETY: the kernel passes `siginfo_t`, which is longer than what it fills in.
    let queued = Queued {
        signal,
        forced: thread.signals.blocked & bit(signal) & ASYNCHRONOUS != 0,
        info: unsafe { *info.cast::<Info>() },
    };
    if !computes && thread.signals.open.load(Ordering::Relaxed) {
        delivery::in_place(thread, &queued);
        write_mask(context, realized(thread.signals.blocked));
        return;
    }
    let action = signals::action(signal);
    if computes && action.handler == libc::SIG_DFL && default_of(signal) == Default::Ends {
        delivery::fatal(thread, signal);
    }
    thread.signals.queue.push(queued);
    thread.signals.look();
    // SAFETY: the kernel's context.
    let instruction = unsafe { &mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] };
    if computes {
        watch(thread);
    } else if let Some(resume) = raw::interrupted_window(*instruction as usize) {
        *instruction = resume as i64;
    }
}

/// A thread that is none of the program's got a signal for the process: the first of the program's
/// that lives gets it.
fn forward(signal: i32, info: *const libc::siginfo_t) -> bool {
    let alive = |thread: &&Thread| {
        !thread.ended.load(Ordering::Relaxed) && thread.kernel_id.load(Ordering::Relaxed) != 0
    };
    thread::all().find(alive).is_some_and(|thread| {
        send(
            thread.kernel_id.load(Ordering::Relaxed),
            signal,
            info.cast(),
        )
    })
}

/// Recording is over in this process: what the kernel would have done.
fn call_directly(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let action = signals::action(signal);
    match (action.handler, default_of(signal)) {
        (libc::SIG_IGN, _) if !is_fault(signal) => {}
        (libc::SIG_DFL, Default::Ignored | Default::Stops) => {}
        (libc::SIG_DFL | libc::SIG_IGN, _) => delivery::die(signal),
        _ => {
            if action.flags & libc::SA_RESETHAND as u64 != 0 {
                actions::reset(signal);
            }
            kernel::set_mask(realized(read_mask(context) | blocked_by(signal, &action)));
            // SAFETY: the program's own handler.
            unsafe { call(action.handler, signal, info, context) };
        }
    }
}

/// # Safety
/// `handler` is a signal handler of the program's.
unsafe fn call(
    handler: usize,
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    // SAFETY: the caller's promise. A handler with one parameter ignores the others.
    unsafe {
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t) =
            std::mem::transmute(handler);
        handler(signal, info, context);
    }
}

/// A signal that an instruction of the program raised, and every `SIGSYS` that is not from the
/// dispatch of system calls.
pub fn synchronous_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel passes it.
    let code = unsafe { (*info).si_code };
    // SAFETY: this is the kernel's argument.
    if unsafe { probe::recover(context) } {
        return;
    }
    // SAFETY: as in `arrived`.
    let thread = &mut unsafe { thread::current() };
    // SAFETY: these are the kernel's arguments.
    if signal == libc::SIGSEGV && unsafe { instructions::fault(thread.as_mut(), info, context) } {
        return;
    }
    if signal == libc::SIGSYS && is_ours(code, info) {
        return match thread {
            Some(thread) if mode() == Mode::Record => overdue(thread, context),
            _ => flush(),
        };
    }
    let Some(thread) = thread.as_mut().filter(|_| mode() != Mode::Off) else {
        return call_directly(signal, info, context);
    };
    if code <= 0 {
        // Sent by somebody: a `SIGSYS`, since `arrived` sorts out the others.
        return match mode() {
            Mode::Record => receive(thread, signal, info, context),
            _ => delivery::die(signal),
        };
    }
    let action = signals::action(signal);
    let handled = !matches!(action.handler, libc::SIG_DFL | libc::SIG_IGN)
        && thread.signals.blocked & bit(signal) == 0;
    if thread.selector.load(Ordering::Relaxed) != REPLAY {
        return fault_in_system_space(thread, signal, info, context, handled);
    }
    if !handled {
        return fatal_fault(thread, signal);
    }
    if action.flags & libc::SA_RESETHAND as u64 != 0 {
        actions::reset(signal);
    }
    let saved = (thread.signals.blocked, read_mask(context));
    thread.signals.blocked |= blocked_by(signal, &action);
    thread.signals.look();
    kernel::apply_mask(thread.signals.blocked);
    write_mask(context, saved.0);
    // SAFETY: the program's own handler, in replay space; nothing is borrowed from the guard
    // meanwhile.
    unsafe { call(action.handler, signal, info, context) };
    thread.signals.blocked = read_mask(context) & !UNBLOCKABLE;
    thread.signals.look();
    write_mask(
        context,
        if mode() == Mode::Replay {
            saved.1
        } else {
            realized(read_mask(context))
        },
    );
}

/// A fault beneath the interface: the program passed an address that is none. Replay does not run
/// what faulted, so this is logged.
fn fault_in_system_space(
    thread: &mut Current,
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
    handled: bool,
) {
    if mode() == Mode::Replay {
        return match thread
            .reader
            .peek()
            .filter(|event| event.kind == Kind::Signal as u16)
        {
            Some(event) => delivery::replay_inside(thread, event),
            None => fatal_fault(thread, signal),
        };
    }
    if !handled {
        return fatal_fault(thread, signal);
    }
    let queued = Queued {
        signal,
        forced: true,
        // SAFETY: the kernel's `siginfo_t`.
        info: unsafe { *info.cast::<Info>() },
    };
    delivery::in_place(thread, &queued);
    write_mask(context, realized(thread.signals.blocked));
}

/// The fault ends the process. It happens again on return from the handler, with the default
/// action, so that a core file shows it.
fn fatal_fault(thread: &mut Current, signal: i32) {
    match mode() {
        Mode::Replay => match thread.reader.peek() {
            Some(event) if delivery::is_fatal_fault(&event, signal) => {
                thread.reader.advance(&event);
                divergence::wait_for_the_others(thread);
            }
            event => divergence::diverged(thread, event, Actual::Step(name(signal))),
        },
        _ => delivery::log_fatal(thread, signal, true),
    }
    kernel::set_action(signal, &KernelAction::default());
    if signal == libc::SIGTRAP || signal == libc::SIGSYS {
        delivery::die(signal);
    }
}

fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        _ => "SIGSYS",
    }
}

/// Libc's own signals are no part of the program: libc's handler runs at once.
pub extern "C" fn libcs_own(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    let action = signals::action(signal);
    if matches!(action.handler, libc::SIG_DFL | libc::SIG_IGN) {
        return;
    }
    let saved = errno();
    // SAFETY: libc's handler.
    unsafe { call(action.handler, signal, info, context) };
    set_errno(saved);
}

/// The timer of [`watch`] has run out: no call ended meanwhile, and the signal waits no longer.
fn overdue(thread: &mut Current, context: *mut libc::ucontext_t) {
    thread.signals.watched = false;
    if thread.signals.due.load(Ordering::Relaxed) == 0 {
        return;
    }
    // SAFETY: the kernel's context.
    let instruction = unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] } as usize;
    let (start, length) = raw::text_range();
    let computes = thread.selector.load(Ordering::Relaxed) == REPLAY
        && !(start..start + length).contains(&instruction);
    if computes {
        let saved = errno();
        delivery::while_computing(thread, context);
        set_errno(saved);
    } else {
        watch(thread);
    }
}
