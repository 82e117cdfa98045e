//! What the program wants done with each signal, and what the kernel was told.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::kernel;
use crate::state::mode::{Mode, mode};
use crate::state::signals::{
    self, ASYNCHRONOUS, Default, KernelAction, UNBLOCKABLE, default_of, is_fault, is_libcs_own,
};

/// What the kernel calls: the addresses of functions that take a signal, its `siginfo_t` and its
/// context.
pub struct Handlers {
    /// For every signal that the program handles or that would end it.
    pub arrived: AtomicUsize,
    /// For the signals that libc uses itself.
    pub libcs_own: AtomicUsize,
}

/// Written once, before the first action is set.
pub static HANDLERS: Handlers = Handlers {
    arrived: AtomicUsize::new(0),
    libcs_own: AtomicUsize::new(0),
};

/// The program sets an action: remembered, and the kernel is told what makes it come to us.
pub fn set(signal: i32, action: &KernelAction) {
    let action = KernelAction {
        mask: action.mask & !UNBLOCKABLE,
        ..*action
    };
    signals::set(signal, &action);
    install(signal);
}

/// `SA_RESETHAND`: the handler has been called once.
pub fn reset(signal: i32) {
    signals::reset(signal);
    install(signal);
}

/// Tells the kernel what follows from the program's action for this signal.
pub fn install(signal: i32) {
    if matches!(signal, libc::SIGKILL | libc::SIGSTOP | libc::SIGSYS) {
        return;
    }
    let action = signals::action(signal);
    let ours = |handler: usize, extra: u64, mask: u64| KernelAction {
        handler,
        flags: libc::SA_SIGINFO as u64 | kernel::SA_RESTORER | action.flags & extra,
        restorer: kernel::restorer(),
        mask,
    };
    let stack = libc::SA_ONSTACK as u64;
    if is_fault(signal) {
        // One handler for what the processor raises and for what others send. Nothing is blocked
        // meanwhile that the program does not want blocked: its handler runs inside ours.
        let extra = stack | (libc::SA_RESTART as u64);
        return kernel::set_action(
            signal,
            &ours(
                HANDLERS.arrived.load(Ordering::Relaxed),
                extra,
                ASYNCHRONOUS,
            ),
        );
    }
    if is_libcs_own(signal) {
        return kernel::set_action(
            signal,
            &ours(
                HANDLERS.libcs_own.load(Ordering::Relaxed),
                !kernel::SA_RESTORER,
                action.mask,
            ),
        );
    }
    if mode() != Mode::Record {
        return;
    }
    let wanted = match (action.handler, default_of(signal)) {
        (libc::SIG_IGN, _) | (libc::SIG_DFL, Default::Ignored | Default::Stops) => KernelAction {
            flags: action.flags & !kernel::SA_RESTORER,
            restorer: 0,
            mask: 0,
            ..action
        },
        _ => {
            let extra = stack | (libc::SA_RESTART | libc::SA_NOCLDSTOP | libc::SA_NOCLDWAIT) as u64;
            ours(
                HANDLERS.arrived.load(Ordering::Relaxed),
                extra,
                ASYNCHRONOUS,
            )
        }
    };
    kernel::set_action(signal, &wanted);
}
