//! How a thread, and the one thread of a forked child, begins.

use std::sync::atomic::Ordering;

use hindcast_execlog::Board;
use hindcast_execlog::board::State;

use crate::mechanism::detach::{self, Reason};
use crate::mechanism::follow::{self, Pause};
use crate::mechanism::{divergence, folder, heap, instructions, signals, sync};
use crate::state::log::{Reader, Unreadable, Writer};
use crate::state::mode::{Mode, follows, mode};
use crate::state::recording::{self, board, config, with_header};
use crate::state::thread::{self, Current};
use crate::{raw, syscall};

/// Sets up the calling thread with its state: its log, its line on the board, its traps. Leaves it
/// in system space.
pub fn enter_thread(thread: &mut Current) {
    thread::set_current(thread.as_ptr());
    // SAFETY: no arguments.
    thread.kernel_id.store(
        unsafe { syscall!(libc::SYS_gettid) } as u32,
        Ordering::Relaxed,
    );
    open_log(thread);
    take_slot(thread);
    arm(thread);
    sync::mutex::thread_starting(thread);
    heap::thread_starting(thread);
}

fn open_log(thread: &mut Current) {
    let process = config().process;
    let number = thread.number;
    match mode() {
        Mode::Record => {
            if let Err(code) = thread.writer.create(number, detach::log_is_full) {
                detach::log_is_full(code);
            }
            with_header(|header| header.threads.fetch_max(number + 1, Ordering::AcqRel));
        }
        Mode::Replay if follows() => {
            open_growing(thread);
            if config().break_thread == u64::from(number) {
                thread.reader.stop_before(config().break_event);
            }
        }
        Mode::Replay => {
            match thread.reader.open(process.as_str(), number) {
                // The process ended between the creation of the thread and its first step: an empty
                // log.
                Err(Unreadable::Missing(libc::ENOENT)) if number != 0 => {}
                Err(why) => divergence::unusable(
                    format_args!("{}/t{number}: {why}", process.as_str()),
                    why.hint(),
                ),
                Ok(()) => {}
            }
            if config().break_thread == u64::from(number) {
                thread.reader.stop_before(config().break_event);
            }
        }
        Mode::Off => {}
    }
}

/// The leader makes the log of a thread when that begins, which may be in a moment.
fn open_growing(thread: &mut Current) {
    let (process, number) = (config().process, thread.number);
    let mut pause = Pause::new();
    loop {
        let runs = follow::leader_runs();
        match thread.reader.open_growing(number) {
            Ok(true) => return,
            Ok(false) if runs => pause.take(),
            // An empty log: the leader ended before.
            Ok(false) => return,
            Err(why) => divergence::unusable(
                format_args!("{}/t{number}: {why}", process.as_str()),
                why.hint(),
            ),
        }
    }
}

fn take_slot(thread: &mut Current) {
    if mode() != Mode::Replay {
        return;
    }
    thread.slot = board().and_then(Board::take_slot);
    show_numbers(thread);
    if let Some(slot) = thread.slot {
        slot.thread.store(thread.number, Ordering::Relaxed);
        let name = (&raw const slot.process).cast_mut();
        // SAFETY: the slot is this thread's alone; the launcher reads it after `state` says that it
        // is in use.
        unsafe { (*name).set(config().process.as_str()) };
    }
    thread.show(State::Running, 0);
}

/// The numbers of the calling process and thread for who looks at `/proc`: the launcher, which may
/// see other ones than the process itself does.
fn numbers_in_proc() -> Option<(u32, u32)> {
    let mut link = [0u8; 64];
    // SAFETY: a C string, and room for what it leads to.
    let length = unsafe {
        syscall!(
            libc::SYS_readlink,
            c"/proc/thread-self".as_ptr(),
            link.as_mut_ptr(),
            link.len()
        )
    };
    let link = link.get(..usize::try_from(length).ok()?)?;
    let (process, thread) = std::str::from_utf8(link).ok()?.split_once("/task/")?;
    Some((process.parse().ok()?, thread.parse().ok()?))
}

/// Notes under which numbers the thread is found.
fn show_numbers(thread: &Current) {
    // SAFETY: no arguments.
    let (process, own) = unsafe { (syscall!(libc::SYS_getpid), syscall!(libc::SYS_gettid)) };
    thread.kernel_id.store(own as u32, Ordering::Relaxed);
    let (process, own) = numbers_in_proc().unwrap_or((process as u32, own as u32));
    thread.number_in_proc.store(own, Ordering::Relaxed);
    if let Some(slot) = thread.slot {
        slot.pid.store(process, Ordering::Relaxed);
    }
}

/// Makes system calls from replay space of the calling thread trap, and the instructions that say
/// what time or which processor it is.
pub fn arm(thread: &mut Current) {
    if mode() != Mode::Off {
        trap_calls(thread);
        instructions::arm(thread);
    }
}

/// As the thread of another process was armed, in the one that becomes it.
pub fn rearm(thread: &mut Current) {
    show_numbers(thread);
    if mode() != Mode::Off {
        trap_calls(thread);
        instructions::rearm(thread);
    }
}

fn trap_calls(thread: &Current) {
    const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
    const PR_SYS_DISPATCH_ON: usize = 1;
    let (text, length) = raw::text_range();
    // SAFETY: the selector byte lives as long as the process.
    let result = unsafe {
        syscall!(
            libc::SYS_prctl,
            PR_SET_SYSCALL_USER_DISPATCH,
            PR_SYS_DISPATCH_ON,
            text,
            length,
            thread.selector.as_ptr()
        )
    };
    if raw::error_of(result).is_some() {
        detach::detach(Reason::Other("this kernel has no Syscall User Dispatch"));
    }
}

/// There is no room for the child's folder: what it inherited of its parent's recording is the
/// parent's alone, and everything that traps in it is given back, also for what it executes.
fn unrecorded(thread: &mut Current, reason: folder::ErrorNumber) {
    recording::set_header(std::ptr::null_mut());
    thread.writer = Writer::closed();
    signals::after_fork_in_child(thread);
    detach::log_is_full(reason.0);
}

/// In the child of a fork, on its only thread, which is in system space: the child's own folder and
/// log.
pub fn after_fork(thread: &mut Current, process: &str) {
    thread::forget_others(thread);
    recording::set_process(process);
    if let Err(reason) = folder::open(mode()) {
        if mode() == Mode::Replay {
            divergence::unusable(
                format_args!("the folder {process} of the recording: {reason}"),
                "",
            );
        }
        return unrecorded(thread, reason);
    }
    thread.writer = Writer::closed();
    thread.reader = Reader::closed();
    thread.at_end.store(false, Ordering::Relaxed);
    enter_thread(thread);
}
