//! Recording has ended: the kernel delivers signals to the program again.

use std::sync::atomic::Ordering;

use super::kernel;
use super::timer::{OURS, send, unwatch};
use crate::mechanism::instructions::settings;
use crate::state::signals::{self, ASYNCHRONOUS, KernelAction, SIGNALS, is_fault};
use crate::state::thread;
use crate::syscall;

/// Recording has ended: the kernel gets the program's own actions, and signals that are queued are
/// sent again.
pub fn detached() {
    give_back();
    restart_after_ours();
    flush_all();
}
/// The kernel gets the program's own actions. Ours stay for `SIGSYS`, which threads that computed
/// may still trap into once, and for faults, which trapped instructions of other threads may still
/// raise.
fn give_back() {
    for signal in 1..SIGNALS as i32 {
        if !matches!(signal, libc::SIGKILL | libc::SIGSTOP | libc::SIGSYS) && !is_fault(signal) {
            kernel::set_action(signal, &signals::action(signal));
        }
    }
}

/// A `SIGSYS` of ours must not disturb the call that it interrupts. The signal with which libc
/// cancels a thread waits until the handler has returned: it unwinds the stack, which can be done
/// from calls, not from anywhere.
fn restart_after_ours() {
    const CANCEL: i32 = 32;
    let mut action = KernelAction::default();
    // SAFETY: room for one action; the mask has 8 bytes.
    unsafe { syscall!(libc::SYS_rt_sigaction, libc::SIGSYS, 0, &raw mut action, 8) };
    action.flags |= libc::SA_RESTART as u64;
    action.mask = signals::bit(CANCEL);
    kernel::set_action(libc::SIGSYS, &action);
}

/// Sends what is queued for the calling thread again, now that recording is over.
pub fn flush() {
    settings::disarm();
    // SAFETY: what is under way in the thread rests in the call that led here, or was interrupted.
    let Some(mut thread) = (unsafe { thread::current() }) else {
        return;
    };
    let before = kernel::mask();
    kernel::set_mask(before | ASYNCHRONOUS);
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
    unwatch(&mut thread);
    kernel::set_mask(before);
}

/// As [`flush`] for every thread: the others do it when they get our `SIGSYS`.
fn flush_all() {
    let me = thread::current_number();
    for thread in thread::all().filter(|thread| Some(thread.number) != me) {
        let kernel_id = thread.kernel_id.load(Ordering::Relaxed);
        // All of them: what a thread executes from now on would inherit that instructions of its
        // trap.
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
