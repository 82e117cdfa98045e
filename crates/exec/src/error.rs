//! Why neither of the two runs, nor what is asked beforehand, could take place.

use std::path::PathBuf;

use hindcast_interpose::imports::CheckError;

use crate::elf::ElfError;
use crate::launch::LaunchError;
use crate::log::LogError;
use crate::preflight::Refused;
use crate::program::FindError;
use crate::recording::{FolderError, OpenError};
use crate::runtime::RuntimeError;

/// Why a program could not be recorded or replayed at all.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("{} is not the one that was recorded: that was {recorded}, this is {found}", path.display())]
    OtherFile {
        path: PathBuf,
        recorded: String,
        found: String,
    },
    #[error("{} ({recorded}) was loaded when this was recorded, and is not now", path.display())]
    FileGone {
        path: PathBuf,
        recorded: String,
        source: Option<ElfError>,
    },
    #[error("{} was not loaded when this was recorded, and is now", .0.display())]
    FileAdded(PathBuf),
    #[error(
        "this was recorded with another build of the runtime: that of hindcast {by} ({recorded}), this is {own}"
    )]
    OtherRuntime {
        by: String,
        recorded: String,
        own: String,
    },
    #[error(transparent)]
    Imports(#[from] CheckError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("the log of {process} refers to files, and cannot be completed")]
    Incomplete {
        process: String,
        source: std::io::Error,
    },
    #[error("{what}")]
    System {
        what: &'static str,
        source: std::io::Error,
    },
}

impl ExecError {
    /// Logs that could not be completed, by process.
    pub(crate) fn incomplete(failed: Vec<(String, std::io::Error)>) -> Self {
        match failed.into_iter().next() {
            Some((process, source)) => ExecError::Incomplete { process, source },
            None => unreachable!("what failed is named"),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            ExecError::Find(FindError::NotInPath(_)) => "give its path, or see what PATH is",
            ExecError::Find(FindError::NotExecutable(_)) => {
                "make it executable (chmod +x), or record its interpreter: hindcast exec --record DIR -- sh SCRIPT"
            }
            ExecError::Find(FindError::NoInterpreter { .. }) => {
                "install the interpreter, or correct the first line of the script"
            }
            ExecError::Find(FindError::NoFormat(_)) => {
                "record its interpreter: hindcast exec --record DIR -- sh SCRIPT"
            }
            ExecError::Find(FindError::Unreadable { .. }) => {
                "name a program that is there, and that you may read"
            }
            ExecError::Find(FindError::TooManyScripts(_)) => {
                "correct the first line of the script: it is to name an executable"
            }
            ExecError::Refused(refused) => refused.hint(),
            ExecError::Folder(FolderError::NotEmpty(_)) => {
                "a recording is never written over: name another folder, or remove this one"
            }
            ExecError::Folder(_) => "name a folder where you may write, on a disk with room",
            ExecError::OtherRuntime { .. } | ExecError::Open(OpenError::Version { .. }) => {
                "replay with the hindcast that recorded, or record again"
            }
            ExecError::Open(OpenError::NoFolder(_) | OpenError::NoRecording(_)) => {
                "name the folder that was given to hindcast exec --record"
            }
            ExecError::Open(_) => {
                "copy the recording again from where it was made, or record again"
            }
            ExecError::Log(error) => error.hint(),
            ExecError::Incomplete { .. } => {
                "make room where the recording is, and see that it is yours to write; then replay again"
            }
            ExecError::OtherFile { .. } | ExecError::FileGone { .. } | ExecError::FileAdded(_) => {
                "replay needs the very program and libraries that were recorded: bring them to the same paths (a container image does), or record again"
            }
            ExecError::Imports(CheckError::Read { .. }) => {
                "see whether it is there, and yours to read"
            }
            ExecError::Imports(CheckError::NotElf { .. } | CheckError::Static { .. }) => {
                "name a dynamically linked program, or a shared library"
            }
            ExecError::Imports(CheckError::Damaged { .. }) => "install it again",
            ExecError::Runtime(RuntimeError::Missing) => {
                "build hindcast with `cargo build -p hindcast-cli`, or name a library in HINDCAST_RUNTIME"
            }
            ExecError::Runtime(RuntimeError::Unreadable { .. }) => {
                "build it, or unset HINDCAST_RUNTIME to use the one inside hindcast"
            }
            ExecError::Launch(LaunchError::Nul) => "a damaged recording.json says so: record again",
            ExecError::Launch(LaunchError::Exec { .. }) => {
                "see whether it runs without hindcast, as you and from here"
            }
            ExecError::Launch(_) | ExecError::System { .. } => {
                "see what limits this machine or container sets for processes, memory and open files"
            }
        }
    }
}

pub(crate) fn system(what: &'static str) -> impl Fn(std::io::Error) -> ExecError {
    move |source| ExecError::System { what, source }
}
