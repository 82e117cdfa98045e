//! Functions that change the file of a Unix socket. In a replay what the service listens on has no
//! file ([`crate::listeners`]), and the file of that path is the recorded service's, which may
//! still run: it is left as it is, and the program is told that it was done.

use std::ffi::CStr;

use libc::{c_char, c_int, c_uint, gid_t, mode_t, uid_t};

use super::sessions::File;
use crate::errno::{errno, set_errno};
use crate::process;
use crate::real::real;

/// Whether the path is one that the service listens on in a replay.
unsafe fn is_moved(path: *const c_char) -> bool {
    let board = process::board().filter(|board| board.replays() && !path.is_null());
    // SAFETY: the caller of libc gave a C string.
    board.is_some_and(|board| unsafe { board.moved(CStr::from_ptr(path).to_bytes()) }.is_some())
}

/// Whether it would remove a socket's file. Services do so before they listen, too.
unsafe fn is_socket(path: *const c_char) -> bool {
    if !process::board().is_some_and(|board| board.replays()) || path.is_null() {
        return false;
    }
    let errno = errno();
    // SAFETY: zeros are a `stat`, the memory is ours, and the path is a C string.
    let is_socket = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::lstat(path, &mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFSOCK
    };
    set_errno(errno);
    is_socket
}

/// Whether the file is not to be removed.
unsafe fn stays(path: *const c_char) -> bool {
    // SAFETY: what the caller gave.
    unsafe { is_moved(path) || is_socket(path) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        if stays(path) {
            return 0;
        }
        let Some(session) = File::at(path) else {
            return real!(fn unlink(*const c_char) -> c_int)(path);
        };
        session.copy();
        let removed = real!(fn unlink(*const c_char) -> c_int)(session.ours());
        session.removed();
        removed
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        if stays(path) {
            return 0;
        }
        real!(fn remove(*const c_char) -> c_int)(path)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        if folder == libc::AT_FDCWD && stays(path) {
            return 0;
        }
        real!(fn unlinkat(c_int, *const c_char, c_int) -> c_int)(folder, path, flags)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn chmod(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        if is_moved(path) {
            return 0;
        }
        real!(fn chmod(*const c_char, mode_t) -> c_int)(path, mode)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchmodat(
    folder: c_int,
    path: *const c_char,
    mode: mode_t,
    flags: c_int,
) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        if folder == libc::AT_FDCWD && is_moved(path) {
            return 0;
        }
        real!(fn fchmodat(c_int, *const c_char, c_uint, c_int) -> c_int)(folder, path, mode, flags)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn chown(path: *const c_char, user: uid_t, group: gid_t) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        if is_moved(path) {
            return 0;
        }
        real!(fn chown(*const c_char, uid_t, gid_t) -> c_int)(path, user, group)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lchown(path: *const c_char, user: uid_t, group: gid_t) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        if is_moved(path) {
            return 0;
        }
        real!(fn lchown(*const c_char, uid_t, gid_t) -> c_int)(path, user, group)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchownat(
    folder: c_int,
    path: *const c_char,
    user: uid_t,
    group: gid_t,
    flags: c_int,
) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        if folder == libc::AT_FDCWD && is_moved(path) {
            return 0;
        }
        real!(fn fchownat(c_int, *const c_char, uid_t, gid_t, c_int) -> c_int)(
            folder, path, user, group, flags,
        )
    }
}
