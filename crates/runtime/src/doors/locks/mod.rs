//! What the program locks and waits for: the functions of pthread, C11 and C++, and those of libc
//! that lock inside.

// SAFETY, of each `unsafe` here that has no reason of its own: a function has the contract of
// libc's function of the same name, the caller keeps it, and `real` is that function.

/// Functions under their own names, with their own real functions: `take: name(arguments), more;`.
/// Where the thread is recorded they are `take(first argument, more, name, thread, real call)`.
macro_rules! takers {
    ($take:ident: $($name:ident $(@ $version:literal)? ($object:ident: $kind:ty $(, $argument:ident: $type:ty)*) $(, $more:expr)*;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($object: $kind $(, $argument: $type)*) -> c_int {
            let real = real!($name $(@ $version)?: fn($kind $(, $type)*) -> c_int);
            let Some(thread) = &mut thread::enter() else {
                return unsafe { real($object $(, $argument)*) };
            };
            $crate::mechanism::alone::away(thread);
            $take($object, $($more,)* stringify!($name), thread, || unsafe { real($object $(, $argument)*) })
        }
    )*};
}
pub(super) use takers;

mod barrier;
mod condition;
pub mod foreign;
mod guard;
mod hidden;
pub mod interpreter;
mod mutex;
mod once;
mod rwlock;
mod semaphore;
pub mod standard;

use crate::mechanism::{alone, sync};
use crate::state::thread::Current;

pub use hidden::release_commands;

/// The process is about to have a second thread. Called by the first, in both runs.
pub fn second_thread(thread: &mut Current) {
    sync::find_all();
    alone::second_thread(thread);
    sync::mutex::second_thread(thread);
    foreign::start();
}

/// In a forked child: the calling thread is the only one, and what was acquired before the fork
/// lies behind it.
pub fn after_fork_in_child(thread: &mut Current) {
    sync::after_fork_in_child(thread);
    alone::after_fork_in_child(thread);
    hidden::after_fork_in_child(thread);
}
