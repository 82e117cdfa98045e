//! Numbers of processes that are a copy's own.
//!
//! A copy is to have the numbers that its program's processes had: the program knows them, waits
//! for them and sends them signals. On the machine of the copy others may have them. So a copy
//! runs in a namespace of numbers, in which they are free; from outside its processes have
//! others.
//!
//! The first process of such a namespace is one of ours: it collects what nobody else does, and the
//! kernel ends all others with it. It ends with the launcher.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use crate::keeper::close_all_but;

pub(crate) struct Numbers {
    first: libc::pid_t,
    space: OwnedFd,
    own: File,
}

impl Numbers {
    /// Call it while this thread is the one that starts everything: what is made here ends with it.
    pub(crate) fn new() -> io::Result<Numbers> {
        let own = File::open("/proc/self/ns/pid")?;
        let arguments = libc::clone_args {
            flags: libc::CLONE_NEWPID as u64,
            ..as_fork()
        };
        // SAFETY: as a fork; the child makes system calls only.
        let first = unsafe { clone(&arguments) }?;
        if first == 0 {
            collect()
        }
        // SAFETY: numbers; a fresh descriptor, owned from here on.
        let space = unsafe {
            match libc::syscall(libc::SYS_pidfd_open, first, 0) as i32 {
                -1 => {
                    let error = io::Error::last_os_error();
                    libc::kill(first, libc::SIGKILL);
                    libc::waitpid(first, std::ptr::null_mut(), 0);
                    return Err(error);
                }
                space => OwnedFd::from_raw_fd(space),
            }
        };
        Ok(Numbers { first, space, own })
    }

    /// As `fork`: the child is in the namespace, and has this number there if it is free. Gives
    /// the number outside, and zero in the child.
    pub(crate) fn fork(&self, number: Option<libc::pid_t>) -> io::Result<libc::pid_t> {
        let own = number.unwrap_or(0);
        let arguments = libc::clone_args {
            set_tid: &raw const own as u64,
            set_tid_size: u64::from(number.is_some()),
            ..as_fork()
        };
        // SAFETY: a namespace for this thread's children only, which is set back; and a fork, as in
        // `new`: the caller's child.
        unsafe {
            if libc::setns(self.space.as_raw_fd(), libc::CLONE_NEWPID) < 0 {
                return Err(io::Error::last_os_error());
            }
            let made = match clone(&arguments) {
                Err(_) if number.is_some() => clone(&as_fork()),
                made => made,
            };
            if !matches!(made, Ok(0)) {
                libc::setns(self.own.as_raw_fd(), libc::CLONE_NEWPID);
            }
            made
        }
    }
}

impl Drop for Numbers {
    /// The kernel lets the first process end when all others are gone, and those of them are not
    /// that this process has started and not waited for.
    fn drop(&mut self) {
        // SAFETY: children of ours, and nobody else of this process waits for any.
        unsafe {
            libc::kill(self.first, libc::SIGKILL);
            while !matches!(
                libc::waitpid(-1, std::ptr::null_mut(), 0),
                -1 if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted
            ) {
                if is_gone(self.first) {
                    break;
                }
            }
        }
    }
}

fn is_gone(process: libc::pid_t) -> bool {
    // SAFETY: numbers; signal zero is none.
    unsafe { libc::kill(process, 0) < 0 }
}

fn as_fork() -> libc::clone_args {
    // SAFETY: numbers.
    let none: libc::clone_args = unsafe { std::mem::zeroed() };
    libc::clone_args {
        exit_signal: libc::SIGCHLD as u64,
        ..none
    }
}

unsafe fn clone(arguments: &libc::clone_args) -> io::Result<libc::pid_t> {
    const SIZE: usize = size_of::<libc::clone_args>();
    // SAFETY: arguments with their length. Without a stack the child has a copy of this one.
    let made = unsafe { libc::syscall(libc::SYS_clone3, arguments, SIZE) };
    match made {
        -1 => Err(io::Error::last_os_error()),
        made => Ok(made as libc::pid_t),
    }
}

/// The first process of the namespace.
fn collect() -> ! {
    // SAFETY: settings of this process; nothing is allocated.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"hindcast-first".as_ptr());
        libc::setpgid(0, 0);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
    close_all_but(&[]);
    loop {
        // SAFETY: no arguments.
        unsafe { libc::pause() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status of a child that ends with what `inner` says.
    fn status_of(numbers: &Numbers, number: Option<i32>, inner: impl FnOnce() -> i32) -> i32 {
        let pid = numbers.fork(number).unwrap();
        if pid == 0 {
            // SAFETY: ends this process.
            unsafe { libc::_exit(inner()) };
        }
        let mut status = 0;
        // SAFETY: a child of this thread's.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn a_process_has_the_number_that_it_is_to_have() {
        // SAFETY: no arguments.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let numbers = Numbers::new().unwrap();
        // SAFETY: as above.
        let is_it = || i32::from(unsafe { libc::syscall(libc::SYS_getpid) } == 4321);
        assert_eq!(status_of(&numbers, Some(4321), is_it), 1);
        // One that cannot be had is another.
        assert_eq!(status_of(&numbers, Some(1), || 7), 7);
        // This thread's children are outside again.
        let outside = std::process::Command::new("true").status();
        assert!(outside.unwrap().success());
    }
}
