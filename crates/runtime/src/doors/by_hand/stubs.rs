//! Libc's names for the system calls that are written by hand.

use std::ffi::{c_char, c_void};

use super::decisions::Decision;
use super::system_call::{SystemCall, arguments};
use super::{
    control, decisions, descriptors, polling, reading, sockets, stub, system_call, transfers,
    variants,
};
use crate::functions;
use crate::raw::libc_result;
use crate::state::thread;

/// Defines functions that are exactly one system call: its number, its function, its core.
macro_rules! stubs {
    ($($name:ident($($parameter:ident: $type:ty),*) -> $result:ty = $number:ident, $function:ident, $core:path;)*) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> $result {
            let call = SystemCall { number: libc::$number, arguments: arguments([$($parameter as usize),*]) };
            // SAFETY: the program's own call.
            libc_result(unsafe { stub(functions::$function, $core, call) }) as $result
        }
    )* };
}

stubs! {
    read(fd: i32, buffer: *mut u8, count: usize) -> isize = SYS_read, READ, reading::read;
    __read(fd: i32, buffer: *mut u8, count: usize) -> isize = SYS_read, READ, reading::read;
    pread(fd: i32, buffer: *mut u8, count: usize, offset: i64) -> isize = SYS_pread64, PREAD, reading::pread;
    pread64(fd: i32, buffer: *mut u8, count: usize, offset: i64) -> isize = SYS_pread64, PREAD, reading::pread;
    __pread64(fd: i32, buffer: *mut u8, count: usize, offset: i64) -> isize = SYS_pread64, PREAD, reading::pread;
    readv(fd: i32, vector: *const libc::iovec, count: i32) -> isize = SYS_readv, READV, reading::readv;
    preadv(fd: i32, vector: *const libc::iovec, count: i32, offset: i64) -> isize = SYS_preadv, PREADV, reading::readv;
    preadv64(fd: i32, vector: *const libc::iovec, count: i32, offset: i64) -> isize = SYS_preadv, PREADV, reading::readv;

    lseek(fd: i32, offset: i64, whence: i32) -> i64 = SYS_lseek, LSEEK, reading::lseek;
    lseek64(fd: i32, offset: i64, whence: i32) -> i64 = SYS_lseek, LSEEK, reading::lseek;
    __lseek(fd: i32, offset: i64, whence: i32) -> i64 = SYS_lseek, LSEEK, reading::lseek;

    close(fd: i32) -> i32 = SYS_close, CLOSE, descriptors::close;
    __close(fd: i32) -> i32 = SYS_close, CLOSE, descriptors::close;
    close_range(first: u32, last: u32, flags: i32) -> i32 = SYS_close_range, CLOSE_RANGE, descriptors::close_range;
    dup(fd: i32) -> i32 = SYS_dup, DUP, descriptors::dup;
    dup2(fd: i32, wanted: i32) -> i32 = SYS_dup2, DUP2, descriptors::dup2;
    __dup2(fd: i32, wanted: i32) -> i32 = SYS_dup2, DUP2, descriptors::dup2;
    dup3(fd: i32, wanted: i32, flags: i32) -> i32 = SYS_dup3, DUP3, descriptors::dup2;
    getdents64(fd: i32, buffer: *mut u8, size: usize) -> isize = SYS_getdents64, GETDENTS64, descriptors::getdents64;
    pipe(ends: *mut i32) -> i32 = SYS_pipe, PIPE, descriptors::pipe;
    __pipe(ends: *mut i32) -> i32 = SYS_pipe, PIPE, descriptors::pipe;
    pipe2(ends: *mut i32, flags: i32) -> i32 = SYS_pipe2, PIPE2, descriptors::pipe;
    name_to_handle_at(directory: i32, path: *const c_char, handle: *mut u8, mount: *mut i32, flags: i32) -> i32
        = SYS_name_to_handle_at, NAME_TO_HANDLE_AT, descriptors::name_to_handle_at;

    writev(fd: i32, vector: *const libc::iovec, count: i32) -> isize = SYS_writev, WRITEV, transfers::writev;
    sendfile(target: i32, source: i32, offset: *mut i64, count: usize) -> isize = SYS_sendfile, SENDFILE, transfers::sendfile;
    sendfile64(target: i32, source: i32, offset: *mut i64, count: usize) -> isize = SYS_sendfile, SENDFILE, transfers::sendfile;
    splice(source: i32, source_offset: *mut i64, target: i32, target_offset: *mut i64, length: usize, flags: u32) -> isize
        = SYS_splice, SPLICE, transfers::splice;
    copy_file_range(source: i32, source_offset: *mut i64, target: i32, target_offset: *mut i64, length: usize, flags: u32) -> isize
        = SYS_copy_file_range, COPY_FILE_RANGE, transfers::splice;

    socketpair(domain: i32, kind: i32, protocol: i32, ends: *mut i32) -> i32 = SYS_socketpair, SOCKETPAIR, sockets::socketpair;
    accept(fd: i32, address: *mut u8, size: *mut u32) -> i32 = SYS_accept, ACCEPT, sockets::accept;
    accept4(fd: i32, address: *mut u8, size: *mut u32, flags: i32) -> i32 = SYS_accept4, ACCEPT4, sockets::accept;
    getsockname(fd: i32, address: *mut u8, size: *mut u32) -> i32 = SYS_getsockname, GETSOCKNAME, sockets::name;
    getpeername(fd: i32, address: *mut u8, size: *mut u32) -> i32 = SYS_getpeername, GETPEERNAME, sockets::name;
    getsockopt(fd: i32, level: i32, option: i32, value: *mut u8, size: *mut u32) -> i32 = SYS_getsockopt, GETSOCKOPT, sockets::getsockopt;
    recvfrom(fd: i32, buffer: *mut u8, length: usize, flags: i32, address: *mut u8, size: *mut u32) -> isize
        = SYS_recvfrom, RECVFROM, sockets::recvfrom;
    sendmsg(fd: i32, message: *const libc::msghdr, flags: i32) -> isize = SYS_sendmsg, SENDMSG, sockets::sendmsg;
    recvmsg(fd: i32, message: *mut libc::msghdr, flags: i32) -> isize = SYS_recvmsg, RECVMSG, sockets::recvmsg;
    sendmmsg(fd: i32, messages: *mut libc::mmsghdr, count: u32, flags: i32) -> i32 = SYS_sendmmsg, SENDMMSG, sockets::sendmmsg;
    __sendmmsg(fd: i32, messages: *mut libc::mmsghdr, count: u32, flags: i32) -> i32 = SYS_sendmmsg, SENDMMSG, sockets::sendmmsg;
    recvmmsg(fd: i32, messages: *mut libc::mmsghdr, count: u32, flags: i32, timeout: *mut libc::timespec) -> i32
        = SYS_recvmmsg, RECVMMSG, sockets::recvmmsg;

    __poll(fds: *mut libc::pollfd, count: u64, timeout_ms: i32) -> i32 = SYS_poll, POLL, polling::poll;
    poll(fds: *mut libc::pollfd, count: u64, timeout_ms: i32) -> i32 = SYS_poll, POLL, polling::poll;

    // Variadic in C. The third argument lies in the same register either way, and the cores know when it means something.
    ioctl(fd: i32, request: u64, argument: usize) -> i32 = SYS_ioctl, IOCTL, control::ioctl;
    semctl(id: i32, number: i32, command: i32, argument: usize) -> i32 = SYS_semctl, SEMCTL, control::semctl;
    msgctl(id: i32, command: i32, argument: *mut c_void) -> i32 = SYS_msgctl, MSGCTL, control::msgctl;
    shmctl(id: i32, command: i32, argument: *mut c_void) -> i32 = SYS_shmctl, SHMCTL, control::shmctl;
    capget(header: *mut u8, data: *mut u8) -> i32 = SYS_capget, CAPGET, control::capget;
}

/// Defines functions that open a file.
macro_rules! opening {
    ($($name:ident($($parameter:ident: $type:ty),*) = $number:ident, $function:ident;)*) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> i32 {
            let call = SystemCall { number: libc::$number, arguments: arguments([$($parameter as usize),*]) };
            // SAFETY: the program's own call.
            libc_result(unsafe { reading::open_stub(functions::$function, call) }) as i32
        }
    )* };
}

opening! {
    open(path: *const c_char, flags: i32, mode: u32) = SYS_open, OPEN;
    open64(path: *const c_char, flags: i32, mode: u32) = SYS_open, OPEN;
    __open(path: *const c_char, flags: i32, mode: u32) = SYS_open, OPEN;
    __open64(path: *const c_char, flags: i32, mode: u32) = SYS_open, OPEN;
    openat(directory: i32, path: *const c_char, flags: i32, mode: u32) = SYS_openat, OPENAT;
    openat64(directory: i32, path: *const c_char, flags: i32, mode: u32) = SYS_openat, OPENAT;
    creat(path: *const c_char, mode: u32) = SYS_creat, CREAT;
    creat64(path: *const c_char, mode: u32) = SYS_creat, CREAT;
}

/// `prctl`, which may end recording: from then on the thread stays in system space.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn prctl(option: i32, a: usize, b: usize, c: usize, d: usize) -> i32 {
    let call = SystemCall {
        number: libc::SYS_prctl,
        arguments: arguments([option as usize, a, b, c, d]),
    };
    // SAFETY: the program's own call.
    libc_result(unsafe {
        match &mut thread::enter_if(decisions::ends_recording(call)) {
            Some(thread) => {
                decisions::refused(thread, call, functions::PRCTL.0);
                call.run()
            }
            None => stub(functions::PRCTL, control::prctl, call),
        }
    }) as i32
}

/// Defines names of `fcntl`. Variadic in C, as those above.
macro_rules! fcntls {
    ($($name:ident)*) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(fd: i32, command: i32, argument: usize) -> i32 {
            let call = SystemCall { number: libc::SYS_fcntl, arguments: arguments([fd as usize, command as usize, argument]) };
            // SAFETY: the program's own call.
            libc_result(unsafe { stub(control::fcntl_function(command), control::fcntl, call) }) as i32
        }
    )* };
}

fcntls! { fcntl fcntl64 __fcntl __libc_fcntl64 }

/// `syscall(2)`: what is known here takes the short way; what needs the registers of the caller (a
/// new thread, a new process, a return from a signal handler) and what is not known goes on to libc
/// and traps there.
///
/// Here a futex call is shown to who wants to know where it comes from, which is the return
/// address.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall(
    number: i64,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> i64 {
    std::arch::naked_asm!(
        "cmp rdi, {futex}",
        "je 2f",
        "jmp {call}",
        "2:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "mov rdi, [rsp + 56]",
        "call {note}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp {call}",
        futex = const libc::SYS_futex,
        call = sym by_syscall,
        note = sym crate::doors::locks::foreign::futex,
    );
}

unsafe extern "C" fn by_syscall(
    number: i64,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> i64 {
    let call = SystemCall {
        number,
        arguments: [a, b, c, d, e, f],
    };
    let decision = decisions::decision(number);
    // SAFETY: the program's own call.
    unsafe {
        if decision == Decision::Executed || !thread::is_in_replay_space() {
            libc_result(call.run()) as i64
        } else if decision == Decision::Described {
            libc_result(system_call(call)) as i64
        } else {
            variants::next_syscall(call)
        }
    }
}
