//! What the program wants done with each signal, and what the kernel was told.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hindcast_execlog::event::Kind;

use super::{arrival, mask};
use crate::mode::{Mode, mode};
use crate::thread::Thread;
use crate::trap::{self, KernelAction, SA_RESTORER};
use crate::{divergence, syscall};

pub const SIGNALS: usize = 65;
/// Signals of libc's own: to end a thread and to change the identity of all threads.
const LIBC_CANCEL: i32 = 32;
const LIBC_SETXID: i32 = 33;

/// An action as the program set it. Read by handlers in any thread; whoever races to set one races without us, too.
struct Entry {
    handler: AtomicUsize,
    flags: AtomicU64,
    restorer: AtomicUsize,
    mask: AtomicU64,
}

static ACTIONS: [Entry; SIGNALS] = [const {
    Entry {
        handler: AtomicUsize::new(0),
        flags: AtomicU64::new(0),
        restorer: AtomicUsize::new(0),
        mask: AtomicU64::new(0),
    }
}; SIGNALS];

/// What the default action of a signal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    Ends,
    Ignored,
    /// Stops or continues: the kernel's matter.
    Stops,
}

pub fn default_of(signal: i32) -> Default {
    match signal {
        libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH => Default::Ignored,
        libc::SIGCONT | libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
            Default::Stops
        }
        _ => Default::Ends,
    }
}

/// Signals that instructions raise.
pub fn is_fault(signal: i32) -> bool {
    matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP
    )
}

pub fn is_libcs_own(signal: i32) -> bool {
    signal == LIBC_CANCEL || signal == LIBC_SETXID
}

pub fn get(signal: i32) -> KernelAction {
    let entry = &ACTIONS[signal as usize];
    KernelAction {
        handler: entry.handler.load(Ordering::Relaxed),
        flags: entry.flags.load(Ordering::Relaxed),
        restorer: entry.restorer.load(Ordering::Relaxed),
        mask: entry.mask.load(Ordering::Relaxed),
    }
}

fn store(signal: i32, action: &KernelAction) {
    let entry = &ACTIONS[signal as usize];
    entry.flags.store(action.flags, Ordering::Relaxed);
    entry.restorer.store(action.restorer, Ordering::Relaxed);
    entry.mask.store(action.mask, Ordering::Relaxed);
    entry.handler.store(action.handler, Ordering::Release);
}

/// The program sets an action: remembered, and the kernel is told what makes it come to us.
pub fn set(signal: i32, action: &KernelAction) {
    let action = KernelAction {
        mask: action.mask & !mask::UNBLOCKABLE,
        ..*action
    };
    store(signal, &action);
    install(signal);
}

/// `SA_RESETHAND`: the handler has been called once.
pub fn reset(signal: i32) {
    let entry = &ACTIONS[signal as usize];
    entry.handler.store(libc::SIG_DFL, Ordering::Relaxed);
    install(signal);
}

/// Tells the kernel what follows from the program's action for this signal.
fn install(signal: i32) {
    if matches!(signal, libc::SIGKILL | libc::SIGSTOP | libc::SIGSYS) {
        return;
    }
    let action = get(signal);
    let ours = |handler: usize, extra: u64, mask: u64| KernelAction {
        handler,
        flags: libc::SA_SIGINFO as u64 | SA_RESTORER | action.flags & extra,
        restorer: trap::restorer(),
        mask,
    };
    let stack = libc::SA_ONSTACK as u64;
    if is_fault(signal) {
        // One handler for what the processor raises and for what others send. Nothing is blocked meanwhile that the program
        // does not want blocked: its handler runs inside ours.
        let extra = stack | (libc::SA_RESTART as u64);
        return trap::set_kernel_action(
            signal,
            &ours(
                arrival::arrived as *const () as usize,
                extra,
                mask::ASYNCHRONOUS,
            ),
        );
    }
    if is_libcs_own(signal) {
        return trap::set_kernel_action(
            signal,
            &ours(
                arrival::libcs_own as *const () as usize,
                !SA_RESTORER,
                action.mask,
            ),
        );
    }
    if mode() != Mode::Record {
        return;
    }
    let wanted = match (action.handler, default_of(signal)) {
        (libc::SIG_IGN, _) | (libc::SIG_DFL, Default::Ignored | Default::Stops) => KernelAction {
            flags: action.flags & !SA_RESTORER,
            restorer: 0,
            mask: 0,
            ..action
        },
        _ => {
            let extra = stack | (libc::SA_RESTART | libc::SA_NOCLDSTOP | libc::SA_NOCLDWAIT) as u64;
            ours(
                arrival::arrived as *const () as usize,
                extra,
                mask::ASYNCHRONOUS,
            )
        }
    };
    trap::set_kernel_action(signal, &wanted);
}

/// Reads what the process inherited (ignored signals, the mask), which is part of the recording, and takes over the rest.
pub fn start(thread: &mut Thread) {
    let (mut ignored, mut blocked) = (0u64, 0u64);
    match mode() {
        Mode::Record => {
            for signal in 1..SIGNALS as i32 {
                let mut action = KernelAction::default();
                // SAFETY: room for one action; the mask has 8 bytes.
                let result =
                    unsafe { syscall!(libc::SYS_rt_sigaction, signal, 0, &raw mut action, 8) };
                if result == 0 && action.handler == libc::SIG_IGN {
                    ignored |= mask::bit(signal);
                }
            }
            blocked = mask::real();
            thread.writer.append(
                Kind::Start,
                &[&ignored.to_ne_bytes(), &blocked.to_ne_bytes()],
            );
        }
        Mode::Replay => {
            let event = divergence::expect_event(thread, Kind::Start as u16);
            let Some((first, rest)) = event
                .payload
                .split_first_chunk::<8>()
                .filter(|_| event.kind == Kind::Start as u16)
            else {
                divergence::unusable(
                    format_args!("the log lacks the signals that the process inherited"),
                    "Record again.",
                )
            };
            ignored = u64::from_ne_bytes(*first);
            blocked = rest
                .first_chunk::<8>()
                .map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            thread.reader.advance(&event);
        }
        Mode::Off => {}
    }
    thread.signals.blocked = blocked;
    mask::apply(blocked);
    for signal in 1..SIGNALS as i32 {
        if ignored & mask::bit(signal) != 0 {
            store(
                signal,
                &KernelAction {
                    handler: libc::SIG_IGN,
                    ..KernelAction::default()
                },
            );
        }
        if !is_libcs_own(signal) && (is_fault(signal) || default_of(signal) == Default::Ends) {
            install(signal);
        }
    }
}

/// The kernel gets the program's own actions. Ours stay for `SIGSYS`, which threads that computed may still trap into once, and for
/// faults, which trapped instructions of other threads may still raise.
pub fn give_back() {
    for signal in 1..SIGNALS as i32 {
        if !matches!(signal, libc::SIGKILL | libc::SIGSTOP | libc::SIGSYS) && !is_fault(signal) {
            trap::set_kernel_action(signal, &get(signal));
        }
    }
}
