//! The folder of this process in the recording.

use hindcast_execlog::ProcessHeader;
use hindcast_execlog::config::descriptors;

use crate::mechanism::files;
use crate::mechanism::follow::{self, Pause};
use crate::state::log::{Path, grow, take_room};
use crate::state::mode::{Mode, follows, mode};
use crate::state::{recording, thread};
use crate::{raw, syscall};

/// Maps the file `process` of this process's folder: recording makes it, replay reads it.
pub fn open(mode: Mode) -> Result<(), ErrorNumber> {
    let process = recording::config().process;
    let length = size_of::<ProcessHeader>();
    let (open_flags, map_flags) = match mode {
        Mode::Record => (
            libc::O_RDWR | libc::O_CREAT | libc::O_EXCL,
            libc::MAP_SHARED,
        ),
        // What the leader still writes there is to be seen.
        _ if follows() => (libc::O_RDONLY, libc::MAP_SHARED),
        _ => (libc::O_RDONLY, libc::MAP_PRIVATE),
    };
    if mode == Mode::Record {
        let folder = Path::new(process.as_str(), format_args!(""));
        // SAFETY: a C string.
        unsafe {
            syscall!(
                libc::SYS_mkdirat,
                descriptors::FOLDER,
                folder.as_c_str().as_ptr(),
                0o700
            )
        };
    }
    let path = Path::new(process.as_str(), format_args!("process"));
    let mut pause = Pause::new();
    while follows() && follow::leader_runs() && !is_complete(&path) {
        pause.take();
    }
    let file = raw::open_at(descriptors::FOLDER, path.as_c_str(), open_flags, 0o600)
        .map_err(ErrorNumber)?;
    if mode == Mode::Record || follows() {
        keep_open(process.as_str())?;
    }
    if mode == Mode::Record
        && let Err(code) = grow(file, length)
    {
        raw::close(file);
        forget(&path, process.as_str());
        return Err(ErrorNumber(code));
    }
    let address = take_room(length).ok_or(ErrorNumber(libc::ENOMEM))?;
    // SAFETY: room taken just now.
    let mapped = unsafe {
        if follows() {
            raw::map_at(address, length, libc::PROT_READ, map_flags, file, 0)
        } else {
            raw::map_file(address, length, map_flags, file, 0)
        }
    };
    raw::close(file);
    let header = mapped.map_err(ErrorNumber)?.cast::<ProcessHeader>();
    // SAFETY: mapped, and every bit pattern is a header.
    while follows() && follow::leader_runs() && unsafe { !(*header).is_there() } {
        pause.take();
    }
    if mode == Mode::Record {
        // SAFETY: no arguments.
        let pid = unsafe { syscall!(libc::SYS_getpid) } as u32;
        // SAFETY: room for one.
        unsafe { ProcessHeader::new(pid, recording::config().parent.as_str()).write_to(header) };
    }
    recording::set_header(header);
    Ok(())
}

/// Keeps this process's folder open, and takes every number of ours.
pub fn keep_open(process: &str) -> Result<(), ErrorNumber> {
    let folder = Path::new(process, format_args!(""));
    let folder = raw::open_at(descriptors::FOLDER, folder.as_c_str(), libc::O_DIRECTORY, 0)
        .map_err(ErrorNumber)?;
    files::allowing_ours(|| {
        files::put_at(folder, descriptors::PROCESS, libc::O_CLOEXEC);
        // What is said of all numbers of ours must be true of each: none of them can become the
        // program's.
        for number in descriptors::LIBRARY..descriptors::END {
            if files::identity(number).is_none() {
                files::put_at(folder, number, libc::O_CLOEXEC);
            }
        }
    });
    raw::close(folder);
    Ok(())
}

/// There is no room for this process: a recording has nothing of it, rather than a file of no use.
fn forget(path: &Path, process: &str) {
    let folder = Path::new(process, format_args!(""));
    for (name, flags) in [(path, 0), (&folder, libc::AT_REMOVEDIR)] {
        // SAFETY: a C string.
        unsafe {
            syscall!(
                libc::SYS_unlinkat,
                descriptors::FOLDER,
                name.as_c_str().as_ptr(),
                flags
            )
        };
    }
}

pub struct ErrorNumber(pub i32);

impl std::fmt::Display for ErrorNumber {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            libc::ENOENT => write!(formatter, "is not there"),
            libc::EEXIST => write!(formatter, "is there already"),
            code => write!(formatter, "error {code}"),
        }
    }
}

/// This process is recorded from here on, in the place of the one that it has replayed: its file is
/// that one's.
pub fn succeed() -> Result<(), i32> {
    let length = size_of::<ProcessHeader>();
    let file = raw::open_at(descriptors::PROCESS, c"process", libc::O_RDWR, 0)?;
    let address = take_room(length).ok_or(libc::ENOMEM);
    // SAFETY: room taken just now.
    let mapped = address
        .and_then(|address| unsafe { raw::map_file(address, length, libc::MAP_SHARED, file, 0) });
    raw::close(file);
    recording::set_header(mapped?.cast());
    // SAFETY: no arguments.
    let pid = unsafe { syscall!(libc::SYS_getpid) } as u32;
    recording::with_header(|header| header.pid = pid);
    Ok(())
}

/// The process is about to become another user: the logs become that user's, so that they can grow
/// and new ones be made.
pub fn hand_over(user: u32) {
    if mode() != Mode::Record {
        return;
    }
    let give = |file: &std::ffi::CStr| {
        // SAFETY: a C string. Where it is not allowed the process was not privileged to begin with.
        unsafe {
            syscall!(
                libc::SYS_fchownat,
                descriptors::PROCESS,
                file.as_ptr(),
                user,
                -1i32,
                libc::AT_SYMLINK_NOFOLLOW
            )
        }
    };
    give(c".");
    give(c"process");
    for thread in thread::all() {
        give(Path::new(".", format_args!("t{}", thread.number)).as_c_str());
    }
}

/// Whether the file is there and has its whole length.
fn is_complete(path: &Path) -> bool {
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a C string, and room for one `stat`.
    let result = unsafe {
        syscall!(
            libc::SYS_newfstatat,
            descriptors::FOLDER,
            path.as_c_str().as_ptr(),
            found.as_mut_ptr(),
            0
        )
    };
    // SAFETY: filled in if that succeeded.
    raw::error_of(result).is_none()
        && unsafe { found.assume_init() }.st_size as usize >= size_of::<ProcessHeader>()
}

/// As [`is_recorded`]: a child of the leader's makes its folder a moment after the fork.
pub fn is_recorded_soon(process: &str) -> bool {
    const PATIENCE: u32 = 2000;
    let mut pause = Pause::new();
    for _ in 0..PATIENCE {
        if is_recorded(process) || !follows() || !follow::leader_runs() {
            break;
        }
        pause.take();
    }
    is_recorded(process)
}

/// Whether the recording has a folder of this name that a replay can use.
pub fn is_recorded(process: &str) -> bool {
    let left_out = &recording::config().left_out;
    if left_out.as_str().split(' ').any(|name| name == process) {
        return false;
    }
    let path = Path::new(process, format_args!("process"));
    // SAFETY: a C string.
    unsafe {
        syscall!(
            libc::SYS_faccessat,
            descriptors::FOLDER,
            path.as_c_str().as_ptr(),
            libc::R_OK
        ) == 0
    }
}
