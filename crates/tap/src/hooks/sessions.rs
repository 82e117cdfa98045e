//! Functions by which PHP opens, looks at and removes the files of its sessions. In a replay they
//! are in a folder of the replay's ([`hindcast_taplog::sessions`]).
//!
//! A file that was there before the first request is copied when the service first opens it, as it
//! is by then: what the recorded service has written to it since is not undone.

use std::ffi::CStr;

use hindcast_taplog::sessions::{Path, Sessions};
use libc::{c_char, c_int, c_void, mode_t};

use crate::errno::{errno, set_errno};
use crate::php;
use crate::process;
use crate::real::real;

/// The kernel's time of a file is that of its last tick.
const TICK: i64 = 10_000;
/// So many bytes are copied at a time.
const PART: usize = 1 << 20;

/// The file of a session in a replay.
pub struct File {
    theirs: *const c_char,
    ours: Path,
    /// There once the service has removed it.
    gone: Path,
    until: i64,
}

impl File {
    /// `None` if it is none, or this is no replay.
    ///
    /// # Safety
    /// The path is null or a C string.
    pub unsafe fn at(path: *const c_char) -> Option<Self> {
        let board = process::board().filter(|board| board.replays() && !path.is_null())?;
        let sessions: &Sessions = board.sessions();
        // SAFETY: as promised.
        let (ours, gone) = sessions.instead(unsafe { CStr::from_ptr(path) }.to_bytes())?;
        let until = sessions.until();
        (php::is_there() && !process::is_sealed()).then_some(Self {
            theirs: path,
            ours,
            gone,
            until,
        })
    }

    pub fn ours(&self) -> *const c_char {
        self.ours.as_ptr().cast()
    }

    /// A file that was there before has its copy.
    pub fn copy(&self) {
        if !is_there(&self.ours) && self.was_there() {
            // SAFETY: the paths are C strings.
            unsafe { copy(self.theirs, self.ours()) };
        }
    }

    /// What the program looks at: its own, or what was there before.
    fn seen(&self) -> *const c_char {
        match !is_there(&self.ours) && self.was_there() {
            true => self.theirs,
            false => self.ours(),
        }
    }

    /// It is not seen again.
    pub fn removed(&self) {
        let errno = errno();
        let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC;
        // SAFETY: the path is a C string, and the descriptor ours.
        unsafe {
            let file = libc::syscall(
                libc::SYS_openat,
                libc::AT_FDCWD,
                self.gone.as_ptr(),
                flags,
                0o600,
            );
            libc::syscall(libc::SYS_close, file);
        }
        set_errno(errno);
    }

    /// Whether the recorded service had the file before the first request.
    fn was_there(&self) -> bool {
        if is_there(&self.gone) {
            return false;
        }
        let errno = errno();
        // SAFETY: zeros are a `statx`, the memory is ours, and the path a C string.
        let (found, stat) = unsafe {
            let mut stat: libc::statx = std::mem::zeroed();
            let wanted = libc::STATX_BTIME | libc::STATX_MTIME;
            let found = libc::statx(libc::AT_FDCWD, self.theirs, 0, wanted, &mut stat) == 0;
            (found, stat)
        };
        set_errno(errno);
        let made = match stat.stx_mask & libc::STATX_BTIME != 0 {
            true => stat.stx_btime,
            // Not every file system knows when a file was made.
            false => stat.stx_mtime,
        };
        let made = made.tv_sec * 1_000_000 + i64::from(made.tv_nsec) / 1000;
        found && made < self.until - TICK
    }
}

fn is_there(path: &Path) -> bool {
    let errno = errno();
    // SAFETY: the path is a C string.
    let found = unsafe {
        let path = path.as_ptr();
        libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path, libc::F_OK) == 0
    };
    set_errno(errno);
    found
}

/// Who comes second finds the file made. PHP takes the lock of a session before it reads it, so it
/// waits until the copy is there.
unsafe fn copy(from: *const c_char, to: *const c_char) {
    let errno = errno();
    // SAFETY: the caller's paths, memory of ours, and descriptors of ours. Plain system calls, so
    // no other function of ours sees them.
    unsafe {
        let open = |path: *const c_char, flags: c_int| {
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0o600) as c_int
        };
        let source = open(from, libc::O_RDONLY | libc::O_CLOEXEC);
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC;
        let target = if source < 0 { -1 } else { open(to, flags) };
        if target >= 0 {
            libc::syscall(libc::SYS_flock, target, libc::LOCK_EX);
        }
        let none = std::ptr::null_mut::<c_void>();
        while target >= 0 && libc::syscall(libc::SYS_sendfile, target, source, none, PART) > 0 {}
        for file in [source, target].into_iter().filter(|&file| file >= 0) {
            libc::syscall(libc::SYS_close, file);
        }
    }
    set_errno(errno);
}

macro_rules! opens {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: what the caller gave. A mode that it did not give is not looked at.
            unsafe {
                let file = File::at(path);
                file.iter().for_each(File::copy);
                let path = file.as_ref().map_or(path, File::ours);
                real!(fn $name(*const c_char, c_int, mode_t) -> c_int)(path, flags, mode)
            }
        }
    };
}

opens!(open);
opens!(open64);

macro_rules! looks {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, stat: *mut c_void) -> c_int {
            // SAFETY: what the caller gave.
            unsafe {
                let file = File::at(path);
                let path = file.as_ref().map_or(path, File::seen);
                real!(fn $name(*const c_char, *mut c_void) -> c_int)(path, stat)
            }
        }
    };
}

looks!(stat);
looks!(stat64);

/// `stat`, in programs that were made for glibc before 2.33.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __xstat(version: c_int, path: *const c_char, stat: *mut c_void) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        let file = File::at(path);
        let path = file.as_ref().map_or(path, File::seen);
        real!(fn __xstat(c_int, *const c_char, *mut c_void) -> c_int)(version, path, stat)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        let file = File::at(path);
        let path = file.as_ref().map_or(path, File::seen);
        real!(fn access(*const c_char, c_int) -> c_int)(path, mode)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn utime(path: *const c_char, times: *const c_void) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        let file = File::at(path);
        let path = file.as_ref().map_or(path, File::ours);
        real!(fn utime(*const c_char, *const c_void) -> c_int)(path, times)
    }
}
