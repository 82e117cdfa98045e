//! Who the process is. The kernel keeps that for each thread; libc makes all threads change it
//! together, by a signal that each answers with the same system call.
//!
//! So the stubs leave the work to libc and record its answer. While they do, the same call from
//! another thread is that echo and nothing the program asked for: it is made and not recorded.

use std::sync::atomic::{AtomicI64, Ordering};

use super::system_call::SystemCall;
use crate::functions;
use crate::mechanism::call::{Call, Failure};
use crate::mechanism::folder;

/// The system call that libc is spreading over all threads; -1: none. Libc itself lets one thread
/// do so at a time.
static SPREADING: AtomicI64 = AtomicI64::new(-1);

pub fn is_echo_of_another_thread(number: i64) -> bool {
    SPREADING.load(Ordering::Acquire) == number
}

/// The bare system call, when a program makes it without libc: about the calling thread alone.
pub unsafe fn core(running: &mut Call, call: SystemCall) -> isize {
    let used = match call.number {
        libc::SYS_setuid | libc::SYS_setgid | libc::SYS_setgroups => 1,
        libc::SYS_setreuid | libc::SYS_setregid => 2,
        _ => 3,
    };
    for &value in &call.arguments[..used] {
        running.input(value as u32 as u64);
    }
    // SAFETY: the program's own call.
    running.run_kernel(|_| unsafe { call.run() })
}

/// Gives the logs to the user that the process is about to be.
fn hand_over(number: i64, arguments: &[u32]) {
    const UNCHANGED: u32 = u32::MAX;
    let user = match (number, arguments) {
        (libc::SYS_setuid | libc::SYS_setresuid, [user]) => *user,
        (libc::SYS_setreuid | libc::SYS_setresuid, [real, effective, ..])
            if *effective == UNCHANGED =>
        {
            *real
        }
        (libc::SYS_setreuid | libc::SYS_setresuid, [_, effective, ..]) => *effective,
        _ => UNCHANGED,
    };
    if user != UNCHANGED {
        folder::hand_over(user);
    }
}

macro_rules! spread {
    ($($name:ident($($parameter:ident: $type:ty),*) = $function:ident, $number:ident;)*) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> i32 {
            let real = crate::mechanism::sync::real!($name: fn($($type),*) -> i32);
            let Some(mut running) = Call::enter(functions::$function) else {
                // SAFETY: the program's own call.
                return unsafe { real($($parameter),*) };
            };
            $(running.input($parameter as u32 as u64);)*
            let result = running.run_libc(Failure::Minus1, || {
                hand_over(libc::$number, &[$($parameter),*]);
                SPREADING.store(libc::$number, Ordering::Release);
                // SAFETY: the program's own call.
                let result = unsafe { real($($parameter),*) };
                SPREADING.store(-1, Ordering::Release);
                i64::from(result)
            });
            running.leave();
            result as i32
        }
    )* };
}

spread! {
    setuid(user: u32) = SETUID, SYS_setuid;
    setgid(group: u32) = SETGID, SYS_setgid;
    setreuid(real_user: u32, effective: u32) = SETREUID, SYS_setreuid;
    setregid(real_group: u32, effective: u32) = SETREGID, SYS_setregid;
    setresuid(real_user: u32, effective: u32, saved: u32) = SETRESUID, SYS_setresuid;
    setresgid(real_group: u32, effective: u32, saved: u32) = SETRESGID, SYS_setresgid;
    seteuid(user: u32) = SETEUID, SYS_setresuid;
    setegid(group: u32) = SETEGID, SYS_setresgid;
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn setgroups(count: usize, groups: *const u32) -> i32 {
    let real = crate::mechanism::sync::real!(setgroups: fn(usize, *const u32) -> i32);
    let Some(mut running) = Call::enter(functions::SETGROUPS) else {
        // SAFETY: the program's own call.
        return unsafe { real(count, groups) };
    };
    running.input(count as u64);
    let result = running.run_libc(Failure::Minus1, || {
        SPREADING.store(libc::SYS_setgroups, Ordering::Release);
        // SAFETY: the program's own call.
        let result = unsafe { real(count, groups) };
        SPREADING.store(-1, Ordering::Release);
        i64::from(result)
    });
    running.leave();
    result as i32
}
