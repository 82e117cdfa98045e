//! Things that must not stay behind when we are killed: a folder that is being filled, a program
//! that is running.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::{ClusterError, RunAs};

/// A server may still be shutting down in the folder, and write into it while it is removed.
const GUARD: &str = "read -r order || while ! rm -rf \"$1\" 2>/dev/null; do sleep 0.1; done";

/// A temporary folder that is removed even if we are killed: a shell waits for the end of a pipe
/// that we hold.
#[derive(Debug)]
pub struct Scratch {
    folder: Option<tempfile::TempDir>,
    guard: Child,
}

impl Scratch {
    /// In `parent`, or the folder for temporary files; owned by `run_as`.
    pub fn new(parent: Option<&Path>, prefix: &str, run_as: &RunAs) -> Result<Self, ClusterError> {
        let temporary = std::env::temp_dir();
        let parent = parent.unwrap_or(&temporary);
        let error = |source| ClusterError::Folder {
            path: parent.to_owned(),
            source,
        };
        run_as.make_folders(parent)?;
        let parent = parent.canonicalize().map_err(error)?;
        let folder = hindcast_private::temporary_folder(parent, prefix).map_err(error)?;
        run_as.own(folder.path())?;
        let guard = Command::new("/bin/sh")
            .args(["-c", GUARD, "hindcast-guard"])
            .arg(folder.path())
            .current_dir("/")
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|source| ClusterError::Spawn {
                program: "/bin/sh".into(),
                user: "ourselves".to_owned(),
                source,
            })?;
        Ok(Self {
            folder: Some(folder),
            guard,
        })
    }

    pub fn path(&self) -> &Path {
        self.folder
            .as_ref()
            .expect("only `keep` takes the folder, and it consumes self")
            .path()
    }

    /// Leaves the folder where it is.
    pub(crate) fn keep(mut self) {
        self.dismiss();
        if let Some(folder) = self.folder.take() {
            let _ = folder.keep();
        }
    }

    fn dismiss(&mut self) {
        if let Some(mut pipe) = self.guard.stdin.take() {
            let _ = writeln!(pipe, "done");
        }
        let _ = self.guard.wait();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // First the folder: the guard would miss it if we were killed between the two.
        drop(self.folder.take());
        self.dismiss();
    }
}

/// Runs a program to its end, which comes early if ours does.
pub fn supervised(program: Command) -> Result<Output, ClusterError> {
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg(include_str!("supervise.sh"))
        .arg("hindcast-supervisor");
    command.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let error = |source| ClusterError::Spawn {
        program: program.get_program().into(),
        user: "ourselves".to_owned(),
        source,
    };
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(error)?;
    // `wait_with_output` would close it first, and that is the signal to stop.
    let pipe = child.stdin.take();
    let output = child.wait_with_output().map_err(error);
    drop(pipe);
    output
}
