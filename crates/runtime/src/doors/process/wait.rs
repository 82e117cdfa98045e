//! Waiting for children.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::doors::locks;
use crate::mechanism::call::Call;
use crate::mechanism::tree;
use crate::state::mode::follows;
use crate::state::thread::Current;
use crate::{functions, syscall};

/// Replay: the children that there are: their number in the recording << 32 | their number now. A
/// slot is zero when it is free.
static CHILDREN: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// Replay: a child was made. One too many is only not waited for.
pub fn made(recorded: i32, real: i32) {
    let child = (recorded as u64) << 32 | real as u64;
    for slot in &CHILDREN {
        if slot
            .compare_exchange(0, child, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            return;
        }
    }
}

/// In a forked child: its parent's children are none of its own.
pub fn forget() {
    for slot in &CHILDREN {
        slot.store(0, Ordering::Relaxed);
    }
}

/// Replay: the program learns that this child has ended, so it has. One that was killed does not
/// know it from its own log, and waits for more where it follows.
fn reap(recorded: i32, is_killed: bool) {
    for slot in &CHILDREN {
        let child = slot.load(Ordering::Acquire);
        if child >> 32 == recorded as u64
            && slot
                .compare_exchange(child, 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        {
            let real = child as u32 as i32;
            if is_killed && follows() {
                // SAFETY: numbers; a child of this process's that was not waited for.
                unsafe { syscall!(libc::SYS_kill, real, libc::SIGKILL) };
            }
            // SAFETY: asks for no more than the end.
            while unsafe { syscall!(libc::SYS_wait4, real, 0, 0, 0) } == -(libc::EINTR as isize) {}
            tree::leaves(real as u32);
            return;
        }
    }
}

/// Whether a wait status says that the child has ended.
fn has_ended(status: i32) -> bool {
    libc::WIFEXITED(status) || libc::WIFSIGNALED(status)
}

/// # Safety
/// The program's own call.
pub unsafe fn wait4(thread: &mut Current, arguments: [usize; 6]) -> isize {
    let [process, status, options, usage, ..] = arguments;
    let mut own_status = 0i32;
    let status = if status == 0 {
        &raw mut own_status
    } else {
        status as *mut i32
    };
    locks::release_commands(thread);
    let mut call = Call::within(thread.lend(), functions::KERNEL_WAIT4);
    call.input(process as i32 as u64);
    call.input(options as u64);
    call.blocks();
    // SAFETY: the program's own call, or room of ours.
    let result = call.run_kernel(|thread| unsafe {
        thread.blocking6(
            libc::SYS_wait4,
            [process, status as usize, options, usage, 0, 0],
        )
    });
    if result > 0 {
        // SAFETY: as above.
        let status = unsafe {
            call.out_value(status);
            call.out(usage as *mut u8, size_of::<libc::rusage>());
            *status
        };
        if has_ended(status) && !call.is_recording() {
            reap(result as i32, libc::WIFSIGNALED(status));
        }
    }
    call.finish();
    result
}

/// # Safety
/// The program's own call.
pub unsafe fn waitid(thread: &mut Current, arguments: [usize; 6]) -> isize {
    let [which, process, information, options, usage, ..] = arguments;
    let mut own = [0u64; size_of::<libc::siginfo_t>() / 8];
    let information = if information == 0 {
        own.as_mut_ptr().cast()
    } else {
        information as *mut libc::siginfo_t
    };
    let mut call = Call::within(thread.lend(), functions::KERNEL_WAITID);
    call.input(which as u64);
    if which != libc::P_PIDFD as usize {
        call.input(process as i32 as u64);
    }
    call.input(options as u64);
    call.blocks();
    // SAFETY: the program's own call, or room of ours.
    let result = call.run_kernel(|thread| unsafe {
        thread.blocking6(
            libc::SYS_waitid,
            [which, process, information as usize, options, usage, 0],
        )
    });
    if result == 0 {
        // SAFETY: as above; the kernel fills in the fields of a child's end, or zeroes them.
        let (code, child) = unsafe {
            call.out_value(information);
            call.out(usage as *mut u8, size_of::<libc::rusage>());
            ((*information).si_code, (*information).si_pid())
        };
        let ended = matches!(code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
        if ended && child != 0 && options & libc::WNOWAIT as usize == 0 && !call.is_recording() {
            reap(child, code != libc::CLD_EXITED);
        }
    }
    call.finish();
    result
}
