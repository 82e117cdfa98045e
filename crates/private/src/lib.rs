//! Files and folders that only their owner can read.
//!
//! What Hindcast writes holds passwords, cookies, tokens and rows: recordings, rewound databases,
//! reports, the output of services. Every file of ours is created here, with mode 0600, and every
//! folder with mode 0700. `tests/tests/tidy` looks for creations elsewhere.
//!
//! **What this crate does not do**: it does not set the umask, which the service under replay and
//! other children would inherit, and it does not narrow folders that a user made.
//!
//! **Where to start reading**: [`create`] and [`folders`].
//!
//! **The invariant to keep**: the mode is given when the file is created. A mode that is set
//! afterwards leaves a moment in which another user can open the file, and read on for ever.
//!
//! The runtime in a recorded process makes its system calls itself, with the same modes.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub const FILE_MODE: u32 = 0o600;
pub const FOLDER_MODE: u32 = 0o700;

/// What a mode grants to the group and to all other users.
const OTHERS: u32 = 0o077;

/// For opening a file in any other way than [`create`] does. The mode counts if it creates one.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Creates a file, or empties the one that is there.
///
/// A file that others can read is replaced by a new one: emptied, it would be read by a process
/// that has it open. What is no ordinary file (`/dev/stdout`, a pipe) is opened as it is.
pub fn create(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    // Twice: the file that was there may go before it is opened.
    for _ in 0..2 {
        match options().write(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
        match empty(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            emptied => return emptied,
        }
    }
    // A link to a file that is not there yet.
    options().write(true).create(true).truncate(true).open(path)
}

fn empty(path: &Path) -> io::Result<File> {
    let file = File::options().write(true).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(file);
    }
    if metadata.mode() & OTHERS == 0 {
        file.set_len(0)?;
        return Ok(file);
    }
    let target = fs::canonicalize(path)?;
    fs::remove_file(&target)?;
    options().write(true).create_new(true).open(&target)
}

/// As [`std::fs::write`].
pub fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    create(path)?.write_all(contents.as_ref())
}

/// As [`std::fs::copy`], but the copy has our mode and not the mode of what is copied. Shares the
/// blocks where the file system can.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let mut source = File::open(from)?;
    let mut target = create(to)?;
    io::copy(&mut source, &mut target)
}

/// As [`std::fs::create_dir`].
pub fn folder(path: impl AsRef<Path>) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER_MODE).create(path)
}

/// As [`std::fs::create_dir_all`]. Returns the folders that were not there, the outermost first:
/// where a server runs as another user it must own each of them.
pub fn folders(path: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
    let path = path.as_ref();
    let mut missing: Vec<&Path> = path
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
        .collect();
    missing.reverse();
    let mut made = Vec::new();
    for folder in missing {
        match self::folder(folder) {
            Ok(()) => made.push(folder.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(made)
}

/// A folder with a new name in `parent`, removed when it is dropped.
pub fn temporary_folder(parent: impl AsRef<Path>, prefix: &str) -> io::Result<TempDir> {
    tempfile::Builder::new()
        .prefix(prefix)
        .permissions(fs::Permissions::from_mode(FOLDER_MODE))
        .tempdir_in(parent)
}

/// Whether the group or other users have any right to what is at this path. What cannot be looked
/// at is not open.
pub fn is_open_to_others(path: impl AsRef<Path>) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.mode() & OTHERS != 0)
}

#[cfg(test)]
mod tests;
