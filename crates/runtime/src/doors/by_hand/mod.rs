//! What the generator cannot do: functions whose arguments depend on other arguments, and irregular
//! structures.
//!
//! Each function is a *core* that serves both runs and knows nothing of where it was called from,
//! as the generated ones are. A stub of libc's name runs it between [`Call::enter`] and
//! [`Call::leave`]; [`by_number`] runs it for the trap.
//!
//! - [`decisions`]: what becomes of every system call there is. **Start reading here.**
//! - [`reading`]: files, their names and their contents
//! - [`descriptors`]: closing and duplicating, pipes; [`transfers`]: what moves bytes between
//!   descriptors
//! - [`sockets`]: lengths that the kernel updates, messages with descriptors in them
//! - [`polling`]: `poll`, and libc's variants of what the kernel has with a timeout that it updates
//! - [`control`]: `fcntl`, `ioctl`, `prctl`, System V: one function, many meanings
//! - [`identity`]: who the process is, for all its threads at once
//! - [`stubs`]: libc's names for these; [`variants`]: its other names, and functions that are
//!   nearly a system call

mod asynchronous;
mod control;
pub(crate) mod decisions;
mod descriptors;
mod identity;
mod polling;
mod reading;
mod sockets;
mod stubs;
mod system_call;
mod transfers;
mod variants;

use hindcast_execlog::event::Kind;

use system_call::{Core, SystemCall};

use crate::doors::generated;
use crate::functions::{self, Function};
use crate::mechanism::call::Call;
use crate::mechanism::signals;
use crate::raw;
use crate::state::thread::{self, Current};

/// The system calls that are written by hand.
fn find(call: SystemCall) -> Option<(Function, Core)> {
    Some(match call.number {
        libc::SYS_read => (functions::READ, reading::read),
        libc::SYS_pread64 => (functions::PREAD, reading::pread),
        libc::SYS_readv => (functions::READV, reading::readv),
        libc::SYS_preadv => (functions::PREADV, reading::readv),
        libc::SYS_preadv2 => (functions::KERNEL_PREADV2, reading::readv),
        libc::SYS_lseek => (functions::LSEEK, reading::lseek),
        libc::SYS_open => (functions::OPEN, reading::open),
        libc::SYS_openat => (functions::OPENAT, reading::open),
        libc::SYS_openat2 => (functions::KERNEL_OPENAT2, reading::open),
        libc::SYS_creat => (functions::CREAT, reading::open),
        libc::SYS_close => (functions::CLOSE, descriptors::close),
        libc::SYS_close_range => (functions::CLOSE_RANGE, descriptors::close_range),
        libc::SYS_dup => (functions::DUP, descriptors::dup),
        libc::SYS_dup2 => (functions::DUP2, descriptors::dup2),
        libc::SYS_dup3 => (functions::DUP3, descriptors::dup2),
        libc::SYS_getdents64 => (functions::GETDENTS64, descriptors::getdents64),
        libc::SYS_pipe => (functions::PIPE, descriptors::pipe),
        libc::SYS_pipe2 => (functions::PIPE2, descriptors::pipe),
        libc::SYS_name_to_handle_at => {
            (functions::NAME_TO_HANDLE_AT, descriptors::name_to_handle_at)
        }
        libc::SYS_writev => (functions::WRITEV, transfers::writev),
        libc::SYS_sendfile => (functions::SENDFILE, transfers::sendfile),
        libc::SYS_splice => (functions::SPLICE, transfers::splice),
        libc::SYS_copy_file_range => (functions::COPY_FILE_RANGE, transfers::splice),
        libc::SYS_socketpair => (functions::SOCKETPAIR, sockets::socketpair),
        libc::SYS_accept => (functions::ACCEPT, sockets::accept),
        libc::SYS_accept4 => (functions::ACCEPT4, sockets::accept),
        libc::SYS_getsockname => (functions::GETSOCKNAME, sockets::name),
        libc::SYS_getpeername => (functions::GETPEERNAME, sockets::name),
        libc::SYS_getsockopt => (functions::GETSOCKOPT, sockets::getsockopt),
        libc::SYS_recvfrom => (functions::RECVFROM, sockets::recvfrom),
        libc::SYS_sendmsg => (functions::SENDMSG, sockets::sendmsg),
        libc::SYS_recvmsg => (functions::RECVMSG, sockets::recvmsg),
        libc::SYS_sendmmsg => (functions::SENDMMSG, sockets::sendmmsg),
        libc::SYS_recvmmsg => (functions::RECVMMSG, sockets::recvmmsg),
        libc::SYS_poll => (functions::POLL, polling::poll),
        libc::SYS_ppoll => (functions::KERNEL_PPOLL, polling::poll),
        libc::SYS_fcntl => (
            control::fcntl_function(call.arguments[1] as i32),
            control::fcntl,
        ),
        libc::SYS_ioctl => (functions::IOCTL, control::ioctl),
        libc::SYS_prctl => (functions::PRCTL, control::prctl),
        libc::SYS_semctl => (functions::SEMCTL, control::semctl),
        libc::SYS_msgctl => (functions::MSGCTL, control::msgctl),
        libc::SYS_shmctl => (functions::SHMCTL, control::shmctl),
        libc::SYS_capget => (functions::CAPGET, control::capget),
        libc::SYS_seccomp => (functions::KERNEL_SECCOMP, control::seccomp),
        libc::SYS_setuid => (functions::SETUID, identity::core),
        libc::SYS_setgid => (functions::SETGID, identity::core),
        libc::SYS_setreuid => (functions::SETREUID, identity::core),
        libc::SYS_setregid => (functions::SETREGID, identity::core),
        libc::SYS_setresuid => (functions::SETRESUID, identity::core),
        libc::SYS_setresgid => (functions::SETRESGID, identity::core),
        libc::SYS_setgroups => (functions::SETGROUPS, identity::core),
        _ => return None,
    })
}

/// Runs a system call of this module for a thread that trapped. `None`: not one of them.
pub fn by_number(thread: &mut Current, number: i64, arguments: [usize; 6]) -> Option<isize> {
    let call = SystemCall { number, arguments };
    let found = find(call);
    let doing = found.map_or(Kind::Ended as u16, |(function, _)| function.0);
    if decisions::refused(thread, call, doing) || identity::is_echo_of_another_thread(number) {
        // SAFETY: the program's own call. It is not recorded: recording has just ended, or another
        // thread recorded it.
        return Some(unsafe { call.run() });
    }
    let (function, core) = found?;
    let mut running = Call::within(thread.lend(), function);
    // SAFETY: the program's own call.
    let result = unsafe { core(&mut running, call) };
    running.finish();
    if reading::opens(number) {
        reading::opened(thread, result);
    }
    Some(result)
}

/// A stub: `core` in replay space, the call itself everywhere else. The result as the kernel gives
/// it.
#[inline(always)]
pub(crate) unsafe fn stub(function: Function, core: Core, call: SystemCall) -> isize {
    raw::in_own_frame(|| match Call::enter(function) {
        Some(mut running) => {
            // SAFETY: the program's own call.
            let result = unsafe { core(&mut running, call) };
            running.leave();
            result
        }
        // SAFETY: the program's own call.
        None => unsafe { call.run() },
    })
}

/// Any system call that is described here or by the generator, with the meaning of a stub.
pub(crate) unsafe fn system_call(call: SystemCall) -> isize {
    let Some(thread) = &mut thread::enter() else {
        // SAFETY: the program's own call.
        return unsafe { call.run() };
    };
    let result = by_number(thread, call.number, call.arguments)
        // SAFETY: the program's own call.
        .or_else(|| unsafe { generated::by_number(thread, call.number, call.arguments) });
    signals::leave(thread);
    result.unwrap_or(-(libc::ENOSYS as isize))
}

#[cfg(test)]
mod tests {
    /// The headers of the interface have these as numbers (`types.h` and at the prototypes).
    #[test]
    fn structures_are_as_large_as_the_interface_says() {
        assert_eq!(size_of::<libc::stat>(), 144);
        assert_eq!(size_of::<libc::statx>(), 256);
        assert_eq!(size_of::<libc::statfs>(), 120);
        assert_eq!(size_of::<libc::epoll_event>(), 12);
        assert_eq!(size_of::<libc::pollfd>(), 8);
        assert_eq!(size_of::<libc::sysinfo>(), 112);
        assert_eq!(size_of::<libc::utsname>(), 390);
        assert_eq!(size_of::<libc::rusage>(), 144);
        assert_eq!(size_of::<libc::rlimit>(), 16);
        assert_eq!(size_of::<libc::timex>(), 208);
        assert_eq!(size_of::<libc::timespec>(), 16);
        assert_eq!(size_of::<libc::timeval>(), 16);
        assert_eq!(size_of::<libc::itimerspec>(), 32);
        assert_eq!(size_of::<libc::tms>(), 32);
        assert_eq!(size_of::<libc::mq_attr>(), 64);
        assert_eq!(size_of::<libc::sembuf>(), 6);
        assert_eq!(size_of::<libc::siginfo_t>(), 128);
        assert_eq!(size_of::<libc::fd_set>(), 1024 / 8);
    }
}
