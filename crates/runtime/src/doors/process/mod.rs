//! Children, other images, and the end of the process.
//!
//! Libc's functions for all of these (`fork`, `vfork`, `posix_spawn`, `system`, `popen`, `daemon`,
//! `execvp` …) run in replay space and end in a handful of system calls, which trap. So there are
//! no stubs: what the program's `atfork` handlers do, the signals that `system` blocks, the
//! descriptors that `posix_spawn` moves are recorded like everything else, in the child's own log
//! where the child does it.
//!
//! ```text
//!   p0 ──fork──→ p0.1 ──exec──→ p0.1+        a folder for each image
//!    │
//!   exec                                     replay forks and executes for real; the child replays its own folder
//!    ↓
//!   p0+
//! ```
//!
//! - [`fork`]: `fork`, `vfork` and `clone` with a copy of the memory. A `vfork` child gets a copy,
//!   too; its parent still waits for it, and gets back what the child left on the shared stack.
//! - [`exec`]: another image, recorded if it can be ([`image`]).
//! - [`wait`]: results come from the log; replay waits as well for the child that it has, so that
//!   output keeps its order and nothing is left over.
//! - [`exit`]: how the process ends.
//!
//! **What this does not do**: order what different processes do, beyond waiting for a child. Each
//! replays by itself.
//!
//! **The invariant to keep**: a process writes to its own folder only, from the first moment of its
//! life.

mod exec;
mod exit;
mod fork;
mod image;
mod wait;

use crate::state::thread::Current;

/// A system call of the program's that is about processes. The thread is in system space. `None`:
/// not one of ours.
pub fn by_number(
    thread: &mut Current,
    number: i64,
    arguments: [usize; 6],
    context: *mut libc::ucontext_t,
) -> Option<isize> {
    // SAFETY: the program's own call, with its own pointers.
    Some(unsafe {
        match number {
            libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3 => {
                fork::by_number(thread, number, arguments, context)
            }
            libc::SYS_execve => exec::execve(
                thread,
                exec::Target::from_path(arguments[0]),
                arguments[1],
                arguments[2],
            ),
            libc::SYS_execveat => exec::execveat(thread, arguments),
            libc::SYS_exit_group => exit::exit(thread, arguments[0] as i32),
            libc::SYS_wait4 => wait::wait4(thread, arguments),
            libc::SYS_waitid => wait::waitid(thread, arguments),
            _ => return None,
        }
    })
}
