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
        running.duplicated(fd, result as i32);
    }
    result
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
        running.duplicated(fd, wanted);
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

/// Entries of a folder. That of the process's descriptors does not have ours.
pub unsafe fn getdents64(running: &mut Call, call: SystemCall) -> isize {
    let [fd, buffer, size, ..] = call.arguments;
    running.input(fd as u64);
    running.input(size as u64);
    let result = running.run_kernel(|_| {
        loop {
            // SAFETY: the program's own call.
            let read = unsafe { call.run() };
            if read <= 0 || !files::lists_descriptors(fd as i32) {
                return read;
            }
            // SAFETY: the kernel has just written that much.
            let entries =
                unsafe { std::slice::from_raw_parts_mut(buffer as *mut u8, read as usize) };
            // Nothing would be the end of the folder.
            match leave_out_ours(entries) {
                0 => {}
                left => return left as isize,
            }
        }
    });
    if result > 0 {
        // SAFETY: written by the kernel.
        unsafe { running.out(buffer as *mut u8, result as usize) };
    }
    result
}

/// Moves the entries together that are not named by numbers of ours: how many bytes they are.
fn leave_out_ours(entries: &mut [u8]) -> usize {
    const LENGTH: usize = std::mem::offset_of!(libc::dirent64, d_reclen);
    const NAME: usize = std::mem::offset_of!(libc::dirent64, d_name);
    let (mut from, mut to) = (0, 0);
    while let Some(entry) = entries.get(from..).filter(|rest| rest.len() > NAME) {
        let length = usize::from(u16::from_ne_bytes([entry[LENGTH], entry[LENGTH + 1]]));
        let Some(name) = entry.get(NAME..length) else {
            break;
        };
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let number = std::str::from_utf8(name)
            .ok()
            .and_then(|name| name.parse().ok());
        if !number.is_some_and(files::is_protected) {
            entries.copy_within(from..from + length, to);
            to += length;
        }
        from += length;
    }
    to
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

#[cfg(test)]
mod tests {
    use super::leave_out_ours;

    fn entries(names: &[&str]) -> Vec<u8> {
        let mut made = Vec::new();
        for name in names {
            let length = (19 + name.len() + 1).next_multiple_of(8);
            let start = made.len();
            made.resize(start + length, 0);
            made[start + 16..start + 18].copy_from_slice(&(length as u16).to_ne_bytes());
            made[start + 19..start + 19 + name.len()].copy_from_slice(name.as_bytes());
        }
        made
    }

    #[test]
    fn a_folder_of_descriptors_does_not_have_ours() {
        let mut all = entries(&[".", "959", "960", "1023", "1024", "socket"]);
        let left = leave_out_ours(&mut all);
        assert_eq!(all[..left], entries(&[".", "959", "1024", "socket"]));
        let mut ours = entries(&["961", "1000"]);
        assert_eq!(leave_out_ours(&mut ours), 0);
    }
}
