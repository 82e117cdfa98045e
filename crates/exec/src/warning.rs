//! What is worth a word and is no error.

use std::path::PathBuf;

use crate::log::Unreadable;
use crate::watch::Ended;

/// Something that is less in a recording than was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The library was loaded into the program and could not even begin.
    NothingRecorded,
    /// Recording ended before the process did.
    Ended {
        process: String,
        events: u64,
        reason: String,
    },
    /// The runtime noted something.
    Noted {
        process: String,
        text: String,
    },
    /// Left running by the program, and still being recorded.
    StillRunning {
        process: String,
        pid: u32,
    },
    Unreadable(String),
    /// A replay begins at a checkpoint, at which its threads had replayed so many events.
    BeginsAt {
        checkpoint: PathBuf,
        events: u64,
    },
    /// There are no checkpoints of a replay from some moment on.
    NoCheckpoints(String),
    /// The follower that writes the log ended before the program.
    FollowerEnded(Ended),
    /// It has not done all, and does it while the user does something else.
    FollowerGoesOn,
    /// A process's log refers to files still.
    Incomplete {
        process: String,
        why: String,
    },
}

/// Processes that are missing.
pub(crate) fn left_out(unreadable: &[Unreadable]) -> impl Iterator<Item = Warning> {
    let said = |Unreadable { process, why }: &Unreadable| {
        Warning::Unreadable(format!(
            "{process} is left out, with what it started: {why}"
        ))
    };
    unreadable.iter().map(said)
}
