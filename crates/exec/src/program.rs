//! From what the user typed to what the kernel would execute.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How many interpreters may name each other, as in the kernel.
const SCRIPTS_MAX: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Absolute.
    pub path: PathBuf,
    pub arguments: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("{} is in no folder of PATH", .0.to_string_lossy())]
    NotInPath(OsString),
    #[error("{} cannot be read", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is not executable", .0.display())]
    NotExecutable(PathBuf),
    #[error("{} is a script whose interpreter is missing: {}", script.display(), interpreter.display())]
    NoInterpreter {
        script: PathBuf,
        interpreter: PathBuf,
    },
    #[error("{} is a script, and so are {SCRIPTS_MAX} interpreters in a row", .0.display())]
    TooManyScripts(PathBuf),
    #[error("{} is neither an executable nor a script that says how it is run", .0.display())]
    NoFormat(PathBuf),
}

/// Finds `command[0]` as a shell would, and follows `#!` lines to the interpreter, which is the program that is
/// recorded then. `command` is not empty.
pub fn find(
    command: &[OsString],
    path: Option<&OsStr>,
    folder: &Path,
) -> Result<Program, FindError> {
    let mut found = folder.join(locate(&command[0], path, folder)?);
    let mut arguments = command.to_vec();
    for _ in 0..=SCRIPTS_MAX {
        if !is_executable(&found) {
            return Err(FindError::NotExecutable(found));
        }
        let unreadable = |source| FindError::Unreadable {
            path: found.clone(),
            source,
        };
        let mut start = Vec::new();
        std::fs::File::open(&found)
            .map_err(unreadable)?
            .take(256)
            .read_to_end(&mut start)
            .map_err(unreadable)?;
        if start.starts_with(b"\x7fELF") {
            return Ok(Program {
                path: found,
                arguments,
            });
        }
        let Some((interpreter, argument)) = shebang(&start) else {
            return Err(FindError::NoFormat(found));
        };
        // The kernel gives the interpreter the path of the script in place of the script's own name.
        arguments[0] = found.clone().into();
        if let Some(argument) = argument {
            arguments.insert(0, argument);
        }
        arguments.insert(0, interpreter.clone().into());
        let interpreter = folder.join(interpreter);
        if !interpreter.is_file() {
            return Err(FindError::NoInterpreter {
                script: found,
                interpreter,
            });
        }
        found = interpreter;
    }
    Err(FindError::TooManyScripts(found))
}

fn locate(name: &OsStr, path: Option<&OsStr>, folder: &Path) -> Result<PathBuf, FindError> {
    if name.as_bytes().contains(&b'/') {
        let given = PathBuf::from(name);
        return match std::fs::metadata(folder.join(&given)) {
            Ok(_) => Ok(given),
            Err(source) => Err(FindError::Unreadable {
                path: given,
                source,
            }),
        };
    }
    let path = path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    let mut not_executable = None;
    for place in std::env::split_paths(path) {
        let candidate = place.join(name);
        if folder.join(&candidate).is_file() {
            if is_executable(&folder.join(&candidate)) {
                return Ok(candidate);
            }
            not_executable.get_or_insert(candidate);
        }
    }
    Err(match not_executable {
        Some(candidate) => FindError::NotExecutable(candidate),
        None => FindError::NotInPath(name.into()),
    })
}

fn is_executable(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a NUL-terminated path.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}

/// The interpreter of a `#!` line and its one optional argument.
fn shebang(start: &[u8]) -> Option<(PathBuf, Option<OsString>)> {
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let end = line
        .iter()
        .position(|byte| matches!(byte, b' ' | b'\t'))
        .unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    let argument = argument.trim_ascii();
    (!interpreter.is_empty()).then(|| {
        (
            OsStr::from_bytes(interpreter).into(),
            (!argument.is_empty()).then(|| OsStr::from_bytes(argument).into()),
        )
    })
}
