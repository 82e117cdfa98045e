//! Functions by which a program executes another one: that has the tap in it, too, whichever
//! environment it is given ([`environment`]).

use std::ffi::{c_char, c_int};

use libc::c_void;

use crate::environment;
use crate::real::real;

type Texts = *const *const c_char;

unsafe extern "C" {
    static environ: Texts;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, arguments: Texts, given: Texts) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        environment::with_ours(given, |all| {
            real!(fn execve(*const c_char, Texts, Texts) -> c_int)(path, arguments, all)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, arguments: Texts, given: Texts) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        environment::with_ours(given, |all| {
            real!(fn execvpe(*const c_char, Texts, Texts) -> c_int)(file, arguments, all)
        })
    }
}

/// With the process' environment, which a program may have emptied, or put another one in its
/// place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: what the caller gave.
    unsafe { execve(path, arguments, environ) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: what the caller gave.
    unsafe { execvpe(file, arguments, environ) }
}

type Spawn = unsafe extern "C" fn(
    *mut libc::pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    Texts,
    Texts,
) -> c_int;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    process: *mut libc::pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Texts,
    given: Texts,
) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        let real: Spawn = real!(fn posix_spawn(*mut libc::pid_t, *const c_char, *const c_void, *const c_void, Texts, Texts) -> c_int);
        environment::with_ours(given, |all| {
            real(process, path, actions, attributes, arguments, all)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    process: *mut libc::pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Texts,
    given: Texts,
) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        let real: Spawn = real!(fn posix_spawnp(*mut libc::pid_t, *const c_char, *const c_void, *const c_void, Texts, Texts) -> c_int);
        environment::with_ours(given, |all| {
            real(process, file, actions, attributes, arguments, all)
        })
    }
}
