//! Functions of libc that are a system call but for a detail: another name, another order, an error
//! that is returned instead of set, a timeout that is not updated, a length that the compiler knew.

use std::ffi::c_char;
use std::ptr;

use super::system_call::{SystemCall, arguments};
use super::{polling, sockets, stub, system_call};
use crate::functions;
use crate::raw::{self, libc_result, set_errno};

/// Libc's own `syscall`, from which the call traps.
pub unsafe fn next_syscall(call: SystemCall) -> i64 {
    let real = crate::mechanism::sync::real!(syscall: fn(i64, usize, usize, usize, usize, usize, usize) -> i64);
    let [a, b, c, d, e, f] = call.arguments;
    // SAFETY: the program's own call.
    unsafe { real(call.number, a, b, c, d, e, f) }
}

/// The result in the kernel's convention of a described system call.
macro_rules! kernel {
    ($number:ident $(, $argument:expr)*) => {
        system_call(SystemCall { number: libc::$number, arguments: arguments([$($argument as usize),*]) })
    };
}

/// Defines functions by an expression that makes system calls.
macro_rules! variants {
    ($($name:ident($($parameter:ident: $type:ty),*) -> $result:ty $body:block)*) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> $result {
            // SAFETY: the program's own call.
            unsafe { $body }
        }
    )* };
}

// ---- Checked: libc compares a length that the compiler knew ----

/// Libc's answer to a length that is larger than the object the compiler saw: a message, and the
/// end.
#[cold]
fn overflow() -> ! {
    let real = crate::mechanism::sync::real!(__chk_fail: fn());
    // SAFETY: does not return.
    unsafe { real() };
    raw::exit_process(134)
}

#[inline(always)]
fn check(fits: bool) {
    if !fits {
        overflow();
    }
}

variants! {
    __read_chk(fd: i32, buffer: *mut u8, count: usize, room: usize) -> isize {
        check(count <= room);
        libc_result(kernel!(SYS_read, fd, buffer, count))
    }
    __pread_chk(fd: i32, buffer: *mut u8, count: usize, offset: i64, room: usize) -> isize {
        check(count <= room);
        libc_result(kernel!(SYS_pread64, fd, buffer, count, offset))
    }
    __pread64_chk(fd: i32, buffer: *mut u8, count: usize, offset: i64, room: usize) -> isize {
        check(count <= room);
        libc_result(kernel!(SYS_pread64, fd, buffer, count, offset))
    }
    __readlink_chk(path: *const c_char, buffer: *mut u8, size: usize, room: usize) -> isize {
        check(size <= room);
        libc_result(kernel!(SYS_readlink, path, buffer, size))
    }
    __readlinkat_chk(directory: i32, path: *const c_char, buffer: *mut u8, size: usize, room: usize) -> isize {
        check(size <= room);
        libc_result(kernel!(SYS_readlinkat, directory, path, buffer, size))
    }
    __getgroups_chk(count: i32, groups: *mut u32, room: usize) -> i32 {
        check(count < 0 || count as usize * 4 <= room);
        libc_result(kernel!(SYS_getgroups, count, groups)) as i32
    }
    __recv_chk(fd: i32, buffer: *mut u8, length: usize, room: usize, flags: i32) -> isize {
        check(length <= room);
        recv(fd, buffer, length, flags)
    }
    __recvfrom_chk(fd: i32, buffer: *mut u8, length: usize, room: usize, flags: i32, address: *mut u8, size: *mut u32) -> isize {
        check(length <= room);
        libc_result(kernel!(SYS_recvfrom, fd, buffer, length, flags, address, size))
    }
    __poll_chk(fds: *mut libc::pollfd, count: u64, timeout_ms: i32, room: usize) -> i32 {
        check(count as usize * size_of::<libc::pollfd>() <= room);
        libc_result(kernel!(SYS_poll, fds, count, timeout_ms)) as i32
    }
    __ppoll_chk(fds: *mut libc::pollfd, count: u64, timeout: *const libc::timespec, mask: *const u64, room: usize) -> i32 {
        check(count as usize * size_of::<libc::pollfd>() <= room);
        ppoll(fds, count, timeout, mask)
    }
    // Without O_CREAT there must be no mode; libc ends a program that leaves it out with O_CREAT.
    __open_2(path: *const c_char, flags: i32) -> i32 {
        check(flags & libc::O_CREAT == 0);
        libc_result(kernel!(SYS_open, path, flags)) as i32
    }
    __open64_2(path: *const c_char, flags: i32) -> i32 {
        check(flags & libc::O_CREAT == 0);
        libc_result(kernel!(SYS_open, path, flags)) as i32
    }
    __openat_2(directory: i32, path: *const c_char, flags: i32) -> i32 {
        check(flags & libc::O_CREAT == 0);
        libc_result(kernel!(SYS_openat, directory, path, flags)) as i32
    }
    __openat64_2(directory: i32, path: *const c_char, flags: i32) -> i32 {
        check(flags & libc::O_CREAT == 0);
        libc_result(kernel!(SYS_openat, directory, path, flags)) as i32
    }
}

// ---- Before glibc 2.33: the status functions with a version, which on x86-64 is 0 or 1 for the
// same structure ----

const EINVAL: i32 = libc::EINVAL;

/// Runs a status function unless the version is unknown.
unsafe fn versioned(version: i32, status: impl FnOnce() -> isize) -> i32 {
    if version == 0 || version == 1 {
        return libc_result(status()) as i32;
    }
    set_errno(EINVAL);
    -1
}

variants! {
    __xstat(version: i32, path: *const c_char, status: *mut libc::stat) -> i32 {
        versioned(version, || kernel!(SYS_stat, path, status))
    }
    __xstat64(version: i32, path: *const c_char, status: *mut libc::stat) -> i32 {
        versioned(version, || kernel!(SYS_stat, path, status))
    }
    __lxstat(version: i32, path: *const c_char, status: *mut libc::stat) -> i32 {
        versioned(version, || kernel!(SYS_lstat, path, status))
    }
    __lxstat64(version: i32, path: *const c_char, status: *mut libc::stat) -> i32 {
        versioned(version, || kernel!(SYS_lstat, path, status))
    }
    __fxstat(version: i32, fd: i32, status: *mut libc::stat) -> i32 {
        versioned(version, || kernel!(SYS_fstat, fd, status))
    }
    __fxstat64(version: i32, fd: i32, status: *mut libc::stat) -> i32 {
        versioned(version, || kernel!(SYS_fstat, fd, status))
    }
    __fxstatat(version: i32, directory: i32, path: *const c_char, status: *mut libc::stat, flags: i32) -> i32 {
        versioned(version, || kernel!(SYS_newfstatat, directory, path, status, flags))
    }
    __fxstatat64(version: i32, directory: i32, path: *const c_char, status: *mut libc::stat, flags: i32) -> i32 {
        versioned(version, || kernel!(SYS_newfstatat, directory, path, status, flags))
    }
}

// ---- Sockets without an address ----

variants! {
    recv(fd: i32, buffer: *mut u8, length: usize, flags: i32) -> isize {
        let given = arguments([fd as usize, buffer as usize, length, flags as usize]);
        libc_result(stub(functions::RECVFROM, sockets::recvfrom, SystemCall { number: libc::SYS_recvfrom, arguments: given }))
    }
    __recv(fd: i32, buffer: *mut u8, length: usize, flags: i32) -> isize {
        recv(fd, buffer, length, flags)
    }
    send(fd: i32, buffer: *const u8, length: usize, flags: i32) -> isize {
        libc_result(kernel!(SYS_sendto, fd, buffer, length, flags))
    }
    __send(fd: i32, buffer: *const u8, length: usize, flags: i32) -> isize {
        send(fd, buffer, length, flags)
    }
}

// ---- Timeouts that the kernel updates and libc does not; masks with their length ----

/// A signal mask as the kernel has it: 64 bits.
const MASK_BYTES: usize = 8;

/// The program's timeout, copied so that the kernel may write on it.
unsafe fn copied(timeout: *const libc::timespec, copy: &mut libc::timespec) -> *mut libc::timespec {
    if timeout.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the program's own timeout.
    *copy = unsafe { *timeout };
    copy
}

const NO_TIME: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

variants! {
    ppoll(fds: *mut libc::pollfd, count: u64, timeout: *const libc::timespec, mask: *const u64) -> i32 {
        let mut copy = NO_TIME;
        let given = arguments([fds as usize, count as usize, copied(timeout, &mut copy) as usize, mask as usize, MASK_BYTES]);
        libc_result(stub(functions::KERNEL_PPOLL, polling::poll, SystemCall { number: libc::SYS_ppoll, arguments: given })) as i32
    }
    pselect(count: i32, readable: *mut u8, writable: *mut u8, exceptional: *mut u8, timeout: *const libc::timespec, mask: *const u64) -> i32 {
        let mut copy = NO_TIME;
        let with_length = [mask as usize, MASK_BYTES];
        libc_result(kernel!(SYS_pselect6, count, readable, writable, exceptional, copied(timeout, &mut copy), with_length.as_ptr())) as i32
    }
    epoll_pwait(fd: i32, events: *mut u8, room: i32, timeout_ms: i32, mask: *const u64) -> i32 {
        libc_result(kernel!(SYS_epoll_pwait, fd, events, room, timeout_ms, mask, MASK_BYTES)) as i32
    }
}

// ---- Errors that are returned ----

variants! {
    clock_nanosleep(clock: i32, flags: i32, wanted: *const libc::timespec, remaining: *mut libc::timespec) -> i32 {
        if clock == libc::CLOCK_THREAD_CPUTIME_ID {
            return EINVAL;
        }
        -kernel!(SYS_clock_nanosleep, clock, flags, wanted, remaining) as i32
    }
    posix_fadvise(fd: i32, offset: i64, length: i64, advice: i32) -> i32 {
        -kernel!(SYS_fadvise64, fd, offset, length, advice) as i32
    }
    posix_fadvise64(fd: i32, offset: i64, length: i64, advice: i32) -> i32 {
        -kernel!(SYS_fadvise64, fd, offset, length, advice) as i32
    }
}

// ---- The machine ----

/// Above this, `getentropy` refuses.
const ENTROPY_MAX: usize = 256;

variants! {
    getentropy(buffer: *mut u8, size: usize) -> i32 {
        if size > ENTROPY_MAX {
            set_errno(libc::EIO);
            return -1;
        }
        let mut filled = 0;
        while filled < size {
            let more = kernel!(SYS_getrandom, buffer.add(filled), size - filled, 0);
            match raw::error_of(more) {
                None => filled += more as usize,
                Some(libc::EINTR) => {}
                Some(_) => return libc_result(more) as i32,
            }
        }
        0
    }
    getcpu(cpu: *mut u32, node: *mut u32) -> i32 {
        libc_result(kernel!(SYS_getcpu, cpu, node, 0)) as i32
    }
    sched_getcpu() -> i32 {
        let mut cpu = 0u32;
        let result = libc_result(kernel!(SYS_getcpu, &raw mut cpu, 0, 0));
        if result == 0 { cpu as i32 } else { -1 }
    }
    sched_getaffinity(process: i32, size: usize, mask: *mut u8) -> i32 {
        let written = libc_result(kernel!(SYS_sched_getaffinity, process, size.min(i32::MAX as usize), mask));
        if written < 0 {
            return -1;
        }
        ptr::write_bytes(mask.add(written as usize), 0, size - written as usize);
        0
    }
}
