//! What the kernel calls when a signal arrives, and the queue in which signals wait.

use std::sync::atomic::Ordering;

use hindcast_execlog::event::Kind;

use super::actions::{self, Default};
use super::{delivery, mask};
use crate::call::{errno, set_errno};
use crate::detach::{self, Reason};
use crate::divergence::{self, Actual};
use crate::mode::{Mode, mode};
use crate::thread::{self, REPLAY, Thread};
use crate::trap::KernelAction;
use crate::{instructions, probe, raw, syscall};

/// How long a signal may wait for a call of a thread that computes.
pub const DELAY_MAX_MS: i64 = 1000;

/// The part of `siginfo_t` that the kernel fills in.
pub const INFO_BYTES: usize = 48;
pub type Info = [u64; INFO_BYTES / 8];

const QUEUE_MAX: usize = 48;

#[derive(Clone, Copy)]
pub struct Queued {
    pub signal: i32,
    /// The kernel delivered it although the program has it blocked: a temporary mask was in force, as in `ppoll`.
    pub forced: bool,
    pub info: Info,
}

/// Signals that have arrived and were not delivered. Its thread touches it with signals blocked.
pub struct Queue {
    entries: [Queued; QUEUE_MAX],
    length: usize,
}

impl Queue {
    pub const fn new() -> Self {
        Queue {
            entries: [Queued {
                signal: 0,
                forced: false,
                info: [0; INFO_BYTES / 8],
            }; QUEUE_MAX],
            length: 0,
        }
    }

    /// A signal that is not one of the real-time ones and waits already is the same signal, as in the kernel. What does not fit is lost,
    /// as it would be beyond the kernel's own limit.
    fn push(&mut self, queued: Queued) {
        let waits = self.entries[..self.length]
            .iter()
            .any(|entry| entry.signal == queued.signal);
        if self.length < QUEUE_MAX && (queued.signal >= 32 || !waits) {
            self.entries[self.length] = queued;
            self.length += 1;
        }
    }

    fn position(&self, blocked: u64) -> Option<usize> {
        self.entries[..self.length]
            .iter()
            .position(|entry| entry.forced || blocked & mask::bit(entry.signal) == 0)
    }

    pub fn has_due(&self, blocked: u64) -> bool {
        self.position(blocked).is_some()
    }

    pub fn take(&mut self, blocked: u64) -> Option<Queued> {
        let index = self.position(blocked)?;
        let taken = self.entries[index];
        self.entries.copy_within(index + 1..self.length, index);
        self.length -= 1;
        Some(taken)
    }

    fn take_any(&mut self) -> Option<Queued> {
        self.take(0)
    }
}

/// Looks again whether something in the queue may be delivered.
pub fn look(thread: &mut Thread) {
    let signals = &mut thread.signals;
    let blocked = signals.suspended.unwrap_or(signals.blocked);
    signals
        .due
        .store(signals.queue.has_due(blocked).into(), Ordering::Relaxed);
}

/// The handler of every signal that the program handles or that would end it.
pub extern "C" fn arrived(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel passes it.
    if actions::is_fault(signal) && unsafe { (*info).si_code } > 0 {
        return synchronous_fault(signal, info, context);
    }
    let saved = errno();
    match (mode(), thread::current()) {
        (Mode::Record, Some(thread)) => receive(thread, signal, info, context),
        (Mode::Record, None) if forward(signal, info) => {}
        // Somebody outside wants to end the replay.
        (Mode::Replay, _) => delivery::die(signal),
        _ => call_directly(signal, info, context),
    }
    set_errno(saved);
}

fn receive(
    thread: &'static mut Thread,
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    let computes = thread.selector.load(Ordering::Relaxed) == REPLAY;
    let pointer: *mut Thread = thread;
    // SAFETY: the kernel passes `siginfo_t`, which is longer than what it fills in.
    let queued = Queued {
        signal,
        forced: thread.signals.blocked & mask::bit(signal) & mask::ASYNCHRONOUS != 0,
        info: unsafe { *info.cast::<Info>() },
    };
    if !computes && thread.signals.open.load(Ordering::Relaxed) {
        // SAFETY: the thread's own state; the handlers of asynchronous signals do not interrupt each other.
        unsafe {
            delivery::in_place(pointer, &queued);
            write_mask(context, mask::realized((*pointer).signals.blocked));
        }
        return;
    }
    let action = actions::get(signal);
    if computes && action.handler == libc::SIG_DFL && actions::default_of(signal) == Default::Ends {
        delivery::fatal(thread, signal);
    }
    thread.signals.queue.push(queued);
    look(thread);
    // SAFETY: the kernel's context.
    let instruction = unsafe { &mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] };
    if computes {
        watch(thread);
    } else if let Some(resume) = raw::interrupted_window(*instruction as usize) {
        *instruction = resume as i64;
    }
}

/// A thread that is none of the program's got a signal for the process: the first of the program's that lives gets it.
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

fn send(thread: u32, signal: i32, info: *const u8) -> bool {
    // SAFETY: `info` is a whole `siginfo_t`.
    unsafe {
        let process = syscall!(libc::SYS_getpid);
        syscall!(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info) == 0
    }
}

/// Recording is over in this process: what the kernel would have done.
fn call_directly(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let action = actions::get(signal);
    match (action.handler, actions::default_of(signal)) {
        (libc::SIG_IGN, _) if !actions::is_fault(signal) => {}
        (libc::SIG_DFL, Default::Ignored | Default::Stops) => {}
        (libc::SIG_DFL | libc::SIG_IGN, _) => delivery::die(signal),
        _ => {
            if action.flags & libc::SA_RESETHAND as u64 != 0 {
                actions::reset(signal);
            }
            mask::set_real(mask::realized(
                read_mask(context) | blocked_by(signal, &action),
            ));
            // SAFETY: the program's own handler.
            unsafe { call(action.handler, signal, info, context) };
        }
    }
}

/// What is blocked while a handler runs, beside what is blocked already.
pub fn blocked_by(signal: i32, action: &KernelAction) -> u64 {
    let own = if action.flags & libc::SA_NODEFER as u64 == 0 {
        mask::bit(signal)
    } else {
        0
    };
    (action.mask | own) & !mask::UNBLOCKABLE
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

pub fn read_mask(context: *const libc::ucontext_t) -> u64 {
    // SAFETY: the kernel's mask has 8 bytes.
    unsafe { (&raw const (*context).uc_sigmask).cast::<u64>().read() }
}

pub fn write_mask(context: *mut libc::ucontext_t, mask: u64) {
    // SAFETY: as above.
    unsafe { (&raw mut (*context).uc_sigmask).cast::<u64>().write(mask) }
}

/// A signal that an instruction of the program raised, and every `SIGSYS` that is not from the dispatch of system calls.
pub fn synchronous_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel passes both.
    let (code, registers) = unsafe { ((*info).si_code, &(*context).uc_mcontext.gregs) };
    // SAFETY: this is the kernel's argument.
    if unsafe { probe::recover(context) } {
        return;
    }
    // SAFETY: these are the kernel's arguments.
    if signal == libc::SIGSEGV && unsafe { instructions::fault(thread::current(), info, context) } {
        return;
    }
    if signal == libc::SIGSYS && is_ours(code, info) {
        return match thread::current() {
            Some(thread) if mode() == Mode::Record => {
                overdue(thread, registers[libc::REG_RIP as usize] as usize)
            }
            _ => flush(),
        };
    }
    let Some(thread) = thread::current().filter(|_| mode() != Mode::Off) else {
        return call_directly(signal, info, context);
    };
    if code <= 0 {
        // Sent by somebody: a `SIGSYS`, since `arrived` sorts out the others.
        return match mode() {
            Mode::Record => receive(thread, signal, info, context),
            _ => delivery::die(signal),
        };
    }
    let action = actions::get(signal);
    let handled = !matches!(action.handler, libc::SIG_DFL | libc::SIG_IGN)
        && thread.signals.blocked & mask::bit(signal) == 0;
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
    look(thread);
    mask::apply(thread.signals.blocked);
    write_mask(context, saved.0);
    let pointer: *mut Thread = thread;
    // SAFETY: the program's own handler, in replay space; the state is not referred to meanwhile.
    unsafe {
        call(action.handler, signal, info, context);
        (*pointer).signals.blocked = read_mask(context) & !mask::UNBLOCKABLE;
        look(&mut *pointer);
    }
    write_mask(
        context,
        if mode() == Mode::Replay {
            saved.1
        } else {
            mask::realized(read_mask(context))
        },
    );
}

/// A fault beneath the interface: the program passed an address that is none. Replay does not run what faulted, so this is logged.
fn fault_in_system_space(
    thread: &'static mut Thread,
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
    // SAFETY: the kernel's `siginfo_t`; the thread's own state.
    unsafe {
        let queued = Queued {
            signal,
            forced: true,
            info: *info.cast::<Info>(),
        };
        let pointer: *mut Thread = thread;
        delivery::in_place(pointer, &queued);
        write_mask(context, mask::realized((*pointer).signals.blocked));
    }
}

/// The fault ends the process. It happens again on return from the handler, with the default action, so that a core file shows it.
fn fatal_fault(thread: &mut Thread, signal: i32) {
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
    crate::trap::set_kernel_action(signal, &KernelAction::default());
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
    let action = actions::get(signal);
    if matches!(action.handler, libc::SIG_DFL | libc::SIG_IGN) {
        return;
    }
    let saved = errno();
    // SAFETY: libc's handler.
    unsafe { call(action.handler, signal, info, context) };
    set_errno(saved);
}

/// The value in a `SIGSYS` of ours.
const OURS: usize = 0x6869_6e64;

/// From the timer of [`watch`], or from [`flush_all`].
fn is_ours(code: i32, info: *const libc::siginfo_t) -> bool {
    // SAFETY: both kinds carry a value.
    matches!(code, libc::SI_TIMER | libc::SI_QUEUE)
        && unsafe { (*info).si_value().sival_ptr } as usize == OURS
}

/// A signal waits while the thread computes: not for ever.
pub fn watch(thread: &mut Thread) {
    #[repr(C)]
    struct Event {
        value: usize,
        signal: i32,
        notify: i32,
        thread: i32,
        rest: [i32; 11],
    }
    const SIGEV_THREAD_ID: i32 = 4;
    if thread.signals.timer < 0 {
        let event = Event {
            value: OURS,
            signal: libc::SIGSYS,
            notify: SIGEV_THREAD_ID,
            thread: thread.kernel_id.load(Ordering::Relaxed) as i32,
            rest: [0; 11],
        };
        // SAFETY: a `sigevent` and room for the timer's number.
        unsafe {
            syscall!(
                libc::SYS_timer_create,
                libc::CLOCK_MONOTONIC,
                &raw const event,
                &raw mut thread.signals.timer
            )
        };
    }
    set_timer(thread, DELAY_MAX_MS);
}

/// Nothing waits any more.
pub fn unwatch(thread: &mut Thread) {
    set_timer(thread, 0);
}

fn set_timer(thread: &Thread, milliseconds: i64) {
    if thread.signals.timer < 0 {
        return;
    }
    let zero = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let once = libc::timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    };
    let time = libc::itimerspec {
        it_interval: zero,
        it_value: once,
    };
    // SAFETY: a timer of ours.
    unsafe {
        syscall!(
            libc::SYS_timer_settime,
            thread.signals.timer,
            0,
            &raw const time,
            0
        )
    };
}

/// The timer of [`watch`] has run out.
fn overdue(thread: &mut Thread, instruction: usize) {
    if thread.signals.due.load(Ordering::Relaxed) == 0 {
        return;
    }
    let (start, length) = raw::text_range();
    let computes = thread.selector.load(Ordering::Relaxed) == REPLAY
        && !(start..start + length).contains(&instruction);
    if computes {
        let queued = thread.signals.queue.entries[0];
        delivery::log_waited(thread, &queued);
        detach::detach(Reason::SignalWaited {
            signal: queued.signal,
            address: instruction,
        });
    } else {
        watch(thread);
    }
}

/// Sends what is queued for the calling thread again, now that recording is over.
pub fn flush() {
    instructions::disarm();
    let Some(thread) = thread::current() else {
        return;
    };
    let before = mask::real();
    mask::set_real(before | mask::ASYNCHRONOUS);
    while let Some(queued) = thread.signals.queue.take_any() {
        let mut info = [0u64; size_of::<libc::siginfo_t>() / 8];
        info[..queued.info.len()].copy_from_slice(&queued.info);
        send(
            thread.kernel_id.load(Ordering::Relaxed),
            queued.signal,
            info.as_ptr().cast(),
        );
    }
    thread.signals.due.store(0, Ordering::Relaxed);
    unwatch(thread);
    mask::set_real(before);
}

/// As [`flush`] for every thread: the others do it when they get our `SIGSYS`.
pub fn flush_all() {
    let me = thread::current().map(|thread| thread.number);
    for thread in thread::all().filter(|thread| Some(thread.number) != me) {
        let kernel_id = thread.kernel_id.load(Ordering::Relaxed);
        // All of them: what a thread executes from now on would inherit that instructions of its trap.
        if kernel_id != 0 && !thread.ended.load(Ordering::Relaxed) {
            let mut info = [0u64; size_of::<libc::siginfo_t>() / 8];
            info[0] = libc::SIGSYS as u64;
            info[1] = libc::SI_QUEUE as u32 as u64;
            info[3] = OURS as u64;
            send(kernel_id, libc::SIGSYS, info.as_ptr().cast());
        }
    }
    flush();
}
