//! Ends the processes whose launcher was killed: those of a replay, and those of a protected
//! program. What a program starts belongs to nobody else then: a
//! signal at the launcher's death reaches its own child alone.
//!
//! A process of its own waits for the launcher's end of a pipe to close, and looks for processes
//! that have the replay's board open where only ours is. It is made while the launcher adopts no
//! orphans, so that it is none of its children.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use hindcast_execlog::config::descriptors;

/// While it lives, the replay goes on.
pub struct Keeper {
    _end: File,
}

impl Keeper {
    /// Call it while this process has one thread. `after` is what is left to do when the processes
    /// are gone.
    pub fn start(board: BorrowedFd<'_>, after: impl FnOnce()) -> io::Result<Keeper> {
        let board = File::from(board.try_clone_to_owned()?);
        let mut ends = [0; 2];
        // SAFETY: two fresh descriptors, owned from here on.
        let (mut launcher_is_gone, end) = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
                return Err(io::Error::last_os_error());
            }
            (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
        };
        // An earlier replay of this process has had it adopt orphans.
        // SAFETY: takes no memory.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 0) };
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: as above. The second one is nobody's child, and in no terminal's group.
                unsafe {
                    if libc::setsid() < 0 || libc::fork() != 0 {
                        libc::_exit(0);
                    }
                }
                close_all_but(&[launcher_is_gone.as_raw_fd(), board.as_raw_fd()]);
                let _ = launcher_is_gone.read(&mut [0]);
                end_all_with(&board);
                after();
                // SAFETY: ends this process, without what the launcher meant to do at its end.
                unsafe { libc::_exit(0) }
            }
            between => {
                // SAFETY: a child of ours.
                unsafe { libc::waitpid(between, std::ptr::null_mut(), 0) };
                Ok(Keeper { _end: end })
            }
        }
    }
}

/// Nobody waits for the end of what this process has open.
pub(crate) fn close_all_but(kept: &[i32]) {
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    let mut from = 0;
    for descriptor in kept {
        close_range(from, descriptor as u32);
        from = descriptor as u32 + 1;
    }
    close_range(from, u32::MAX);
}

/// Closes what is from `from` on and below `to`.
fn close_range(from: u32, to: u32) {
    if from < to {
        // SAFETY: nothing of these is used any more.
        unsafe {
            libc::syscall(
                libc::SYS_close_range,
                from,
                to - u32::from(to != u32::MAX),
                0,
            )
        };
    }
}

/// The processes that have this board open, but for the one that holds the table of descriptors
/// and this one.
pub(crate) fn all_with(board: BorrowedFd<'_>) -> Vec<libc::pid_t> {
    let found = board
        .try_clone_to_owned()
        .and_then(|board| File::from(board).metadata());
    let Ok(board) = found else { return Vec::new() };
    let holds_table = |pid: &libc::pid_t| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| name.trim_end() == "hindcast-table")
    };
    let mut all = with_board(board.dev(), board.ino());
    all.retain(|pid| *pid != std::process::id() as libc::pid_t && !holds_table(pid));
    all
}

fn end_all_with(board: &File) {
    let Ok(board) = board.metadata() else { return };
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        let left = with_board(board.dev(), board.ino());
        if left.is_empty() {
            return;
        }
        for pid in left {
            // SAFETY: it has our board, so it is of our replay.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn with_board(device: u64, inode: u64) -> Vec<libc::pid_t> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<libc::pid_t>().ok())
        .filter(|pid| {
            std::fs::metadata(format!("/proc/{pid}/fd/{}", descriptors::BOARD))
                .is_ok_and(|found| found.dev() == device && found.ino() == inode)
        })
        .collect()
}
