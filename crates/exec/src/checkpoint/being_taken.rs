//! A checkpoint of a follower whose leader is elsewhere, which is taken in a thread of its own:
//! others wait for what this process acknowledges.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::take::{NotTaken, Taking};
use super::{Checkpoint, folders, keep, next};
use crate::mapped::Mapped;
use crate::preflight;
use crate::recording::Recording;

pub struct BeingTaken {
    thread: JoinHandle<Result<Checkpoint, NotTaken>>,
    is_needed: Arc<AtomicBool>,
}

impl BeingTaken {
    /// Of the process that this board is of, and whose log is in `folder`.
    pub(crate) fn begin(folder: PathBuf, process: libc::pid_t, board: OwnedFd) -> BeingTaken {
        let is_needed = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_needed);
        let thread = std::thread::spawn(move || take(&folder, process, board, &told));
        BeingTaken { thread, is_needed }
    }

    pub fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    /// What came of it. One that is not done is given up: the process has something else to do.
    pub fn end(self) -> Result<Checkpoint, NotTaken> {
        self.is_needed.store(true, Ordering::Release);
        self.thread.join().unwrap_or(Err(NotTaken::Ended))
    }
}

/// In place of those before.
fn take(
    folder: &Path,
    process: libc::pid_t,
    board: OwnedFd,
    is_needed: &AtomicBool,
) -> Result<Checkpoint, NotTaken> {
    let board = Mapped::to_write(&board.into())?.ok_or(NotTaken::Ended)?;
    let recording = Recording::open(folder).map_err(std::io::Error::other)?;
    let before = folders(folder);
    let taking = Taking {
        process,
        board: &board,
        recording: &folder.canonicalize()?,
        is_needed,
    };
    let of = (&recording, &preflight::here());
    let taken = keep(&taking, of, true, next(&before))?;
    for folder in before.values() {
        std::fs::remove_dir_all(folder)?;
    }
    Checkpoint::open(taken).ok_or(NotTaken::Ended)
}
