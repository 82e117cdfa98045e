//! Bytes that go from one descriptor to another, or out of several buffers.

use super::system_call::SystemCall;
use crate::mechanism::call::Call;
use crate::mechanism::{elsewhere, files, references};
use crate::state::mode::elsewhere;
use crate::{probe, raw, syscall};

pub unsafe fn writev(running: &mut Call, call: SystemCall) -> isize {
    let [fd, vector, count, ..] = call.arguments;
    let vector = vector as *const libc::iovec;
    running.input(fd as u64);
    running.input(count as u64);
    // SAFETY: the program's own buffers; a count that the kernel refuses is not followed.
    unsafe {
        if count <= libc::UIO_MAXIOV as usize {
            running.input_iovec(vector, count);
        }
        if let Some(key) = files::sync_key(fd as i32) {
            running.sync_before(key);
        }
        let result = running.run_kernel(|thread| call.run_blocking(thread));
        echo_vector(running, fd as i32, vector, result);
        result
    }
}

/// The first `total` bytes of several buffers are output.
///
/// # Safety
/// The buffers hold at least that much.
pub unsafe fn echo_vector(
    running: &mut Call,
    fd: i32,
    mut vector: *const libc::iovec,
    total: isize,
) {
    let mut left = usize::try_from(total).unwrap_or(0);
    while left > 0 {
        // SAFETY: the caller's promise.
        unsafe {
            let length = (*vector).iov_len.min(left);
            running.echo(fd, (*vector).iov_base.cast(), length);
            left -= length;
            vector = vector.add(1);
        }
    }
}

/// What one call moves at most when the bytes must pass through the runtime.
const PIECE: usize = 16 * 1024;

pub unsafe fn sendfile(running: &mut Call, call: SystemCall) -> isize {
    let [target, source, offset, count, ..] = call.arguments;
    let offset = offset as *mut i64;
    let route = Route {
        source: source as i32,
        source_offset: offset,
        target: target as i32,
        target_offset: std::ptr::null_mut(),
    };
    // SAFETY: the program's own call.
    unsafe { transfer(running, call, route, count) }
}

/// `splice` and `copy_file_range`, which take the same arguments.
pub unsafe fn splice(running: &mut Call, call: SystemCall) -> isize {
    let [source, source_offset, target, target_offset, count, flags] = call.arguments;
    running.input(flags as u64);
    let route = Route {
        source: source as i32,
        source_offset: source_offset as *mut i64,
        target: target as i32,
        target_offset: target_offset as *mut i64,
    };
    // SAFETY: the program's own call.
    unsafe { transfer(running, call, route, count) }
}

struct Route {
    source: i32,
    source_offset: *mut i64,
    target: i32,
    target_offset: *mut i64,
}

unsafe fn transfer(running: &mut Call, call: SystemCall, route: Route, count: usize) -> isize {
    running.input(route.source as u64);
    running.input(route.target as u64);
    running.input(count as u64);
    for offset in [route.source_offset, route.target_offset] {
        // SAFETY: the program's own offset, or none.
        running.input(if probe::readable(offset.cast(), 8) {
            unsafe { *offset as u64 }
        } else {
            u64::MAX
        });
    }
    if let Some(key) = files::sync_key(route.target) {
        running.sync_before(key);
    }
    if let Some(key) = files::sync_key(route.source) {
        running.sync_after(key);
    }
    // Replay must write again what goes to the original output, so it has to be seen on its way.
    let echoed = route.target_offset.is_null() && files::echo_target(route.target).is_some();
    let mut piece = [0u8; PIECE];
    // SAFETY: the program's own offset, or none.
    let before =
        probe::readable(route.source_offset.cast(), 8).then(|| unsafe { *route.source_offset });
    references::forget(route.source);
    let result = running.run_kernel(|thread| {
        // SAFETY: the program's own call.
        unsafe {
            match echoed {
                true => pass_through(&route, &mut piece[..count.min(PIECE)]),
                false => call.run_blocking(thread),
            }
        }
    });
    if result >= 0 {
        // SAFETY: offsets of the program that the kernel has updated; the piece holds what was
        // moved.
        unsafe {
            running.out_value(route.source_offset);
            running.out_value(route.target_offset);
            if let Some(before) = before
                && *route.source_offset == before
            {
                // It was done for a leader that was lost in it.
                *route.source_offset += result as i64;
            }
            if echoed {
                running.out(piece.as_mut_ptr(), result as usize);
                running.echo(route.target, piece.as_ptr(), result as usize);
            } else if !running.is_recording() && elsewhere() && !route.source_offset.is_null() {
                let from = *route.source_offset - result as i64;
                elsewhere::wrote_from(route.target, route.source, from, result as usize);
            }
        }
    }
    result
}

/// Reads and writes instead of letting the kernel do both. What could not be written is given back
/// to a file; a pipe is written to until it has taken everything.
unsafe fn pass_through(route: &Route, piece: &mut [u8]) -> isize {
    // SAFETY: buffers of ours and the program's offset.
    unsafe {
        let read = if route.source_offset.is_null() {
            syscall!(
                libc::SYS_read,
                route.source,
                piece.as_mut_ptr(),
                piece.len()
            )
        } else {
            syscall!(
                libc::SYS_pread64,
                route.source,
                piece.as_mut_ptr(),
                piece.len(),
                *route.source_offset
            )
        };
        if read <= 0 {
            return read;
        }
        let mut written = 0;
        while written < read {
            let more = syscall!(
                libc::SYS_write,
                route.target,
                piece.as_ptr().add(written as usize),
                (read - written) as usize
            );
            match raw::error_of(more) {
                None => written += more,
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) if written > 0 => {
                    let mut writable = libc::pollfd {
                        fd: route.target,
                        events: libc::POLLOUT,
                        revents: 0,
                    };
                    syscall!(libc::SYS_poll, &raw mut writable, 1, -1isize);
                }
                Some(_) => break,
            }
            if more < 0 && written == 0 && raw::error_of(more) != Some(libc::EINTR) {
                written = more;
                break;
            }
        }
        if route.source_offset.is_null() {
            let unwritten = read - written.max(0);
            if unwritten > 0 {
                syscall!(libc::SYS_lseek, route.source, -unwritten, libc::SEEK_CUR);
            }
        } else if written > 0 {
            *route.source_offset += written as i64;
        }
        written
    }
}
