//! What becomes of every system call that Linux has on x86-64. A number that nobody decided about
//! cannot pass the tests.

use super::control;
use super::system_call::SystemCall;
use crate::mechanism::detach::{Reason, detach};
use crate::mechanism::{divergence, instructions};
use crate::state::mode::{Mode, mode};
use crate::state::thread::Current;

/// Numbers from here on are newer than this program. They are recorded by their result, and named.
pub const KNOWN_END: i64 = 462;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Recorded with everything it writes, by a core that is generated or by hand.
    Described,
    /// Made in both runs and not logged: it moves the process's own memory and threads about, or
    /// has no effect at all.
    Executed,
    /// Another module of the runtime has it: memory, signals, processes and threads.
    Owned,
    /// It would let data or control pass where nobody looks, or forbid the runtime its work:
    /// recording ends, the program goes on.
    Refused,
    /// Recorded by its result alone, and named.
    Unknown,
}

pub fn decision(number: i64) -> Decision {
    use Decision::{Described, Executed, Owned, Refused, Unknown};
    match number {
        // ---- memory ----
        libc::SYS_mmap | libc::SYS_mremap => Owned,
        libc::SYS_shmat | libc::SYS_remap_file_pages => Refused,
        libc::SYS_munmap
        | libc::SYS_mprotect
        | libc::SYS_madvise
        | libc::SYS_brk
        | libc::SYS_msync
        | libc::SYS_shmdt => Executed,
        libc::SYS_pkey_alloc
        | libc::SYS_pkey_free
        | libc::SYS_pkey_mprotect
        | libc::SYS_membarrier => Executed,
        // ---- threads ----
        libc::SYS_futex | libc::SYS_futex_waitv | 454..=456 | libc::SYS_sched_yield => Executed,
        libc::SYS_set_robust_list
        | libc::SYS_get_robust_list
        | libc::SYS_set_tid_address
        | libc::SYS_rseq => Executed,
        libc::SYS_arch_prctl
        | libc::SYS_restart_syscall
        | libc::SYS_set_thread_area
        | libc::SYS_get_thread_area => Executed,
        // ---- signals ----
        libc::SYS_rt_sigaction..=libc::SYS_rt_sigreturn
        | libc::SYS_rt_sigsuspend
        | libc::SYS_sigaltstack => Owned,
        // ---- processes ----
        libc::SYS_clone
        | libc::SYS_clone3
        | libc::SYS_fork
        | libc::SYS_vfork
        | libc::SYS_execve
        | libc::SYS_execveat => Owned,
        libc::SYS_exit | libc::SYS_exit_group | libc::SYS_wait4 | libc::SYS_waitid => Owned,
        // ---- what nobody can watch ----
        libc::SYS_io_uring_setup..=libc::SYS_io_uring_register => Refused,
        libc::SYS_io_setup..=libc::SYS_io_cancel | 333 => Refused,
        libc::SYS_ptrace | libc::SYS_bpf | libc::SYS_perf_event_open | libc::SYS_userfaultfd => {
            Refused
        }
        libc::SYS_landlock_restrict_self
        | libc::SYS_iopl
        | libc::SYS_ioperm
        | libc::SYS_modify_ldt => Refused,
        453 => Refused,
        // ---- gone from the kernel, or never there: -ENOSYS in every run ----
        libc::SYS_uselib | libc::SYS__sysctl | 174 | 177 | 178 => Executed,
        libc::SYS_nfsservctl..=libc::SYS_security
        | libc::SYS_lookup_dcookie
        | libc::SYS_epoll_ctl_old => Executed,
        libc::SYS_epoll_wait_old | libc::SYS_vserver => Executed,
        335..=423 => Executed,
        // ---- tools of administrators whose arguments lead on to more ----
        libc::SYS_quotactl
        | libc::SYS_quotactl_fd
        | libc::SYS_keyctl
        | libc::SYS_kexec_load
        | libc::SYS_kexec_file_load => Unknown,
        libc::SYS_reboot | 459 | 460 => Unknown,
        0..KNOWN_END => Described,
        _ => Unknown,
    }
}

/// Why a call ends recording, if it does.
fn refusal(call: SystemCall) -> Option<Reason> {
    match call.number {
        libc::SYS_seccomp => control::seccomp_refusal(call.arguments[0]),
        libc::SYS_prctl => control::prctl_refusal(call.arguments[0]),
        number if decision(number) == Decision::Refused => Some(match number {
            libc::SYS_io_uring_setup..=libc::SYS_io_uring_register => Reason::IoUring,
            libc::SYS_io_setup..=libc::SYS_io_cancel | 333 => Reason::Other(
                "the program uses the kernel's asynchronous input and output, which moves data without calls that could be recorded",
            ),
            libc::SYS_shmat => {
                Reason::Other("the program shares memory with other processes (System V)")
            }
            libc::SYS_remap_file_pages => {
                Reason::Other("the program maps the pages of a file out of order")
            }
            libc::SYS_ptrace => Reason::Other("the program traces processes"),
            libc::SYS_userfaultfd => Reason::Other("the program handles page faults itself"),
            libc::SYS_bpf | libc::SYS_perf_event_open => {
                Reason::Other("the program shares memory with the kernel (bpf, perf)")
            }
            libc::SYS_landlock_restrict_self => {
                Reason::Other("the program forbids itself files, and with them its recording")
            }
            _ => Reason::Other("the program uses the hardware directly"),
        }),
        _ => None,
    }
}

pub fn ends_recording(call: SystemCall) -> bool {
    refusal(call).is_some()
}

/// Ends recording if this call cannot be part of one. What remains is to make it. A replay has come
/// to its end here: `doing` is the number of the function that says so.
pub fn refused(thread: &mut Current, call: SystemCall, doing: u16) -> bool {
    let Some(reason) = refusal(call) else {
        return false;
    };
    if mode() == Mode::Replay {
        divergence::recording_ends(thread, doing);
    }
    if matches!(reason, Reason::Seccomp) {
        // Afterwards it may be forbidden, and a fault at `rdtsc` would be the end of the program.
        instructions::disarm();
    }
    detach(reason);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::generated;

    #[test]
    fn no_system_call_is_undecided() {
        let undecided: Vec<i64> = (0..KNOWN_END)
            .filter(|&number| decision(number) == Decision::Described)
            .filter(|number| {
                super::super::find(SystemCall {
                    number: *number,
                    arguments: [0; 6],
                })
                .is_none()
                    && !generated::NUMBERS.contains(number)
            })
            .collect();
        assert!(undecided.is_empty(), "described nowhere: {undecided:?}");
    }

    #[test]
    fn what_is_described_is_nobody_elses() {
        for number in generated::NUMBERS {
            assert_eq!(
                decision(*number),
                Decision::Described,
                "system call {number}"
            );
        }
    }
}
