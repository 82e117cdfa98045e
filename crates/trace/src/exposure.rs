//! Whether other users of this machine can read a trace that is on it.
//!
//! What is written now is for its owner only. A trace that an earlier version began has folders
//! that everybody can enter, and goes on being written.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Location, segment};

/// A folder whose recordings others can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposed {
    pub folder: PathBuf,
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.folder.display();
        write!(
            f,
            "other users of this machine can read what is recorded in {folder}; close it with `chmod -R go= {folder}`"
        )
    }
}

/// Looks at the trace's folder and, for a recorder with
/// [`WriterOptions::wal_folder`](crate::WriterOptions::wal_folder), at the folder of its
/// write-ahead files.
pub fn exposed(location: &Location, wal_folder: Option<&Path>) -> Option<Exposed> {
    let trace = match location {
        Location::Folder(folder) => Some(folder.clone()),
        Location::S3 { .. } => None,
    };
    let wals = wal_folder.and_then(|chosen| segment::wal_folder(location, Some(chosen)).ok());
    first_exposed(trace.into_iter().chain(wals))
}

pub(crate) fn first_exposed(mut folders: impl Iterator<Item = PathBuf>) -> Option<Exposed> {
    let folder = folders.find(|folder| can_be_read(folder))?;
    Some(Exposed { folder })
}

/// A user's own folder around folders of ours may be as open as the user likes: what is below ours
/// cannot be reached.
fn can_be_read(folder: &Path) -> bool {
    if !hindcast_private::is_open_to_others(folder) {
        return false;
    }
    let inside = fs::read_dir(folder).into_iter().flatten().flatten();
    inside.map(|entry| entry.path()).any(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let of_a_trace = path.is_dir() && segment::is_folder_of_a_trace(&name)
            || segment::parse_segment_name(&name).is_some();
        of_a_trace && hindcast_private::is_open_to_others(&path)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn open_up(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_a_trace_that_others_can_read_is_exposed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("trace");
        for inside in ["", "requests", "wal"] {
            fs::create_dir(folder.join(inside)).unwrap();
            open_up(&folder.join(inside), 0o755);
        }
        let location = Location::folder(&folder);
        let found = exposed(&location, None).unwrap();
        assert_eq!(
            found.to_string(),
            format!(
                "other users of this machine can read what is recorded in {0}; close it with `chmod -R go= {0}`",
                folder.display()
            )
        );
        // What the message proposes.
        for inside in ["requests", "wal", ""] {
            open_up(&folder.join(inside), 0o700);
        }
        assert_eq!(exposed(&location, None), None);
        // A user's own folder with folders of ours, and one of the user's, in it.
        open_up(&folder, 0o755);
        fs::create_dir(folder.join("notes")).unwrap();
        open_up(&folder.join("notes"), 0o777);
        assert_eq!(exposed(&location, None), None);
    }

    #[test]
    fn write_ahead_files_elsewhere_are_looked_at() {
        let chosen = tempfile::tempdir().unwrap();
        let location: Location = "s3://bucket/prefix".parse().unwrap();
        let folder = segment::wal_folder(&location, Some(chosen.path())).unwrap();
        fs::create_dir(&folder).unwrap();
        open_up(&folder, 0o755);
        let file = folder.join("r0-000001.wal");
        fs::write(&file, "").unwrap();
        open_up(&file, 0o644);
        let found = exposed(&location, Some(chosen.path()));
        assert_eq!(found, Some(Exposed { folder }));
        open_up(&file, 0o600);
        assert_eq!(exposed(&location, Some(chosen.path())), None);
    }
}
