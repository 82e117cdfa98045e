//! Descriptors: closing, duplicating, pairs. Those of the runtime do not exist for the program.

use hindcast_execlog::config::descriptors::{END, LIBRARY};

use super::system_call::SystemCall;
use crate::mechanism::call::Call;
use crate::mechanism::files;
use crate::{raw, syscall};

const EBADF: isize = -(libc::EBADF as isize);

#[inline(always)]
pub unsafe fn close(running: &mut Call, call: SystemCall) -> isize {
    let fd = call.arguments[0] as i32;
    running.input(fd as u64);
    running.cache();
    if files::is_protected(fd) {
        return running.run_kernel(|_| EBADF);
    }
    running.closes(fd);
    // SAFETY: the program's own call.
    running.run_kernel(|_| unsafe { call.run() })
}

pub unsafe fn close_range(running: &mut Call, call: SystemCall) -> isize {
    let [first, last, flags, ..] = call.arguments;
    let (first, last) = (first as u32, last as u32);
    running.input(first.into());
    running.input(last.into());
    running.input(flags as u64);
    let (ours, behind) = (LIBRARY as u32, END as u32);
    let spared = (first < behind && last >= ours).then_some(());
    let result = running.run_kernel(|_| {
        if spared.is_none() || first > last {
            // SAFETY: the program's own call.
            return unsafe { call.run() };
        }
        // SAFETY: the parts of the program's own call that leave out the runtime's descriptors.
        unsafe {
            let mut result = 0;
            if first < ours {
                result = syscall!(libc::SYS_close_range, first, ours - 1, flags);
            }
            if result == 0 && last >= behind {
                result = syscall!(libc::SYS_close_range, first.max(behind), last, flags);
            }
            result
        }
    });
    if result == 0 && flags as u32 & libc::CLOSE_RANGE_CLOEXEC == 0 {
        for fd in first..=last.min(files::TRACKED as u32 - 1) {
            if !files::is_protected(fd as i32) {
                files::closed(fd as i32);
            }
        }
    }
    result
}

pub unsafe fn dup(running: &mut Call, call: SystemCall) -> isize {
    let fd = call.arguments[0] as i32;
    running.input(fd as u64);
    let ours = files::is_protected(fd);
    // SAFETY: the program's own call.
    let result = running.run_kernel(|_| if ours { EBADF } else { unsafe { call.run() } });
    if result >= 0 {
        duplicated(running, fd, result as i32);
    }
    result
}

/// A number that is in use from now on, for what another one stands for.
pub fn duplicated(running: &mut Call, from: i32, to: i32) {
    running.opened(to, files::Kind::File);
    files::duplicated(from, to);
}

/// `dup2` and `dup3`.
pub unsafe fn dup2(running: &mut Call, call: SystemCall) -> isize {
    let (fd, wanted) = (call.arguments[0] as i32, call.arguments[1] as i32);
    running.input(fd as u64);
    running.input(wanted as u64);
    let ours = files::is_protected(fd) || files::is_protected(wanted);
    if !ours && fd != wanted {
        running.orders(wanted);
    }
    // SAFETY: the program's own call.
    let result = running.run_kernel(|_| if ours { EBADF } else { unsafe { call.run() } });
    if result >= 0 && fd != wanted {
        duplicated(running, fd, wanted);
    }
    result
}

/// `pipe` and `pipe2`.
pub unsafe fn pipe(running: &mut Call, call: SystemCall) -> isize {
    let ends = call.arguments[0] as *mut [i32; 2];
    if call.number == libc::SYS_pipe2 {
        running.input(call.arguments[1] as u64);
    }
    // SAFETY: the program's own call.
    let result = running.run_kernel(|_| unsafe { call.run() });
    if result == 0 {
        // SAFETY: the kernel wrote both, or will have written both when this is replayed.
        unsafe {
            running.out_value(ends);
            let [one, other] = *ends;
            running.opened_internal(one, other);
        }
    }
    result
}

/// `struct file_handle`: how many bytes, of what type, the bytes. The number is the room before and
/// the size after, and is there as well when the room was too small.
pub unsafe fn name_to_handle_at(running: &mut Call, call: SystemCall) -> isize {
    let [directory, path, handle, mount, flags, _] = call.arguments;
    running.input(directory as u64);
    running.input(flags as u64);
    // SAFETY: the program's own call.
    let result = unsafe {
        running.input_str(path as *const _);
        running.run_kernel(|_| call.run())
    };
    if result == 0 || raw::error_of(result) == Some(libc::EOVERFLOW) {
        // SAFETY: written by the kernel.
        unsafe {
            running.out_value(mount as *mut i32);
            running.out(handle as *mut u8, 8);
            if result == 0 {
                running.out((handle as *mut u8).add(8), *(handle as *const u32) as usize);
            }
        }
    }
    result
}
