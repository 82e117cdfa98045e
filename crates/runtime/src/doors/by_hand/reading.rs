//! Opening and reading files. By hand because of R2's `reproduce`: where the user says that files
//! stay as they are, a read is logged as "these bytes of that file".

use super::system_call::SystemCall;
use crate::functions::Function;
use crate::mechanism::call::Call;
use crate::mechanism::{files, references, signals};
use crate::state::thread::Current;
use crate::syscall;

#[inline(always)]
pub unsafe fn read(running: &mut Call, call: SystemCall) -> isize {
    let [fd, buffer, count, ..] = call.arguments;
    running.input(fd as u64);
    running.input(count as u64);
    if let Some(key) = files::sync_key(fd as i32) {
        running.sync_after(key);
    }
    running.blocks();
    // SAFETY: the program's own call.
    unsafe {
        if files::is_followed_connection(fd as i32) {
            return running.run_receiving(
                fd as i32,
                buffer as *mut u8,
                count,
                |thread, to, most| thread.blocking6(call.number, [fd, to as usize, most, 0, 0, 0]),
            );
        }
        references::about_to_move(&running.thread, fd as i32);
        let result = running.run_kernel(|thread| call.run_blocking(thread));
        if result > 0 {
            running.out_read(fd as i32, None, buffer as *mut u8, result as usize);
        }
        result
    }
}

#[inline(always)]
pub unsafe fn pread(running: &mut Call, call: SystemCall) -> isize {
    let [fd, buffer, count, offset, ..] = call.arguments;
    running.input(fd as u64);
    running.input(count as u64);
    running.input(offset as u64);
    // SAFETY: the program's own call.
    unsafe {
        let result = running.run_kernel(|_| call.run());
        if result > 0 {
            running.out_read(
                fd as i32,
                Some(offset as i64),
                buffer as *mut u8,
                result as usize,
            );
        }
        result
    }
}

/// `readv`, `preadv` and `preadv2`.
pub unsafe fn readv(running: &mut Call, call: SystemCall) -> isize {
    let [fd, vector, count, offset, _, flags] = call.arguments;
    running.input(fd as u64);
    running.input(count as u64);
    // `preadv2` takes -1 for where the descriptor stands.
    let given = (call.number != libc::SYS_readv && offset as i64 != -1).then_some(offset as i64);
    if call.number != libc::SYS_readv {
        running.input(offset as u64);
    }
    if call.number == libc::SYS_preadv2 {
        running.input(flags as u64);
    }
    if let Some(key) = files::sync_key(fd as i32) {
        running.sync_after(key);
    }
    running.blocks();
    references::forget(fd as i32);
    // SAFETY: the program's own call.
    unsafe {
        let result = running.run_kernel(|thread| call.run_blocking(thread));
        if result <= 0 {
            return result;
        }
        if files::reproduced(fd as i32).is_none() {
            running.out_iovec(vector as *const libc::iovec, count, result as usize);
            return result;
        }
        // Replay takes the offset from the log.
        let mut offset = match given {
            Some(offset) => offset,
            None if running.is_recording() => {
                syscall!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) as i64 - result as i64
            }
            None => 0,
        };
        let (mut left, mut buffer) = (result as usize, vector as *const libc::iovec);
        while left > 0 {
            let length = (*buffer).iov_len.min(left);
            running.out_read(fd as i32, Some(offset), (*buffer).iov_base.cast(), length);
            left -= length;
            offset += length as i64;
            buffer = buffer.add(1);
        }
        result
    }
}

pub unsafe fn lseek(running: &mut Call, call: SystemCall) -> isize {
    let [fd, offset, whence, ..] = call.arguments;
    running.input(fd as u64);
    running.input(offset as u64);
    running.input(whence as i32 as u64);
    references::about_to_move(&running.thread, fd as i32);
    // SAFETY: the program's own call.
    let result = running.run_kernel(|_| unsafe { call.run() });
    if result >= 0 {
        references::moved(fd as i32, result as i64);
    }
    result
}

/// `open`, `openat`, `openat2` and `creat`. The mode means nothing unless a file is made, and is
/// then whatever lay in the register.
pub unsafe fn open(running: &mut Call, call: SystemCall) -> isize {
    let [a, b, c, d, ..] = call.arguments;
    // SAFETY: the program's own path, and for `openat2` a structure of the length that comes with
    // it.
    unsafe {
        match call.number {
            libc::SYS_open | libc::SYS_creat => {
                running.input(b as u64);
                running.input_str(a as *const _);
            }
            _ => {
                running.input(a as u64);
                running.input_str(b as *const _);
                if call.number == libc::SYS_openat {
                    running.input(c as u64);
                } else {
                    running.input_bytes(c as *const u8, d);
                }
            }
        }
        running.blocks();
        let result = running.run_kernel(|thread| call.run_blocking(thread));
        if result >= 0 {
            let is_alone = matches!(call.number, libc::SYS_open | libc::SYS_creat);
            let path = if is_alone { a } else { b };
            running.opened_file(result as i32, path as *const _);
            running.opened_with(match call.number {
                libc::SYS_open => b as i32,
                libc::SYS_openat => c as i32,
                // The kernel has just read them there.
                libc::SYS_openat2 => *(c as *const u64) as i32,
                _ => 0,
            });
        }
        result
    }
}

/// Which of a process's calls open a file by its name.
pub fn opens(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_open | libc::SYS_openat | libc::SYS_openat2 | libc::SYS_creat
    )
}

/// After the event of a call that opened a file was completed: is it one whose contents need not be
/// logged?
pub fn opened(thread: &mut Current, result: isize) {
    if result >= 0 {
        files::opened_path(thread, result as i32);
    }
}

/// The stub of a function that opens a file.
pub unsafe fn open_stub(function: Function, call: SystemCall) -> isize {
    let Some(mut running) = Call::enter(function) else {
        // SAFETY: the program's own call.
        return unsafe { call.run() };
    };
    // SAFETY: the program's own call.
    let result = unsafe { open(&mut running, call) };
    let thread = &mut running.finish();
    opened(thread, result);
    signals::leave(thread);
    result
}
